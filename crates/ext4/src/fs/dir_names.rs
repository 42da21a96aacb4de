//! What is known of the directory blocks that were searched last, so that a name need not be
//! searched for byte by byte: where each name stands, and where the search for free space may
//! begin.
//!
//! Picture:    block number -> [`Known`], in a fixed number of places; a later block takes the
//!             place of an earlier one.
//! Invariants: 1. it stands for the work of this program only: blocks are read, waited for and
//!                charged as for a search, and the answers are those of a search of the bytes.
//!             2. what is known counts only while [`Buffer::changes`] stands still; a change made
//!                through [`Names::inserted`] and the like is followed.

use std::rc::{Rc, Weak};

use wp_cache::Buffer;

use crate::disk::dir;
use crate::disk::htree::DxEntry;

/// Blocks that something is known of, at most. A power of two.
const BLOCKS: usize = 1024;
/// Places of a table: more than the 341 names that a block of 4 KiB has at most. A power of two.
const PLACES: usize = 512;
/// A table is given up when this many of its places are taken, by names or gone ones.
const FULL: usize = PLACES * 7 / 8;
/// The low half of a taken place: offset in units of four bytes, plus one.
const OFFSET: u32 = 0xFFFF;
/// A place whose name is gone.
const GONE: u32 = OFFSET;

/// Where the names of a block stand, by hash.
struct Table {
    /// 0: free. Else the name's hash above, its offset below.
    places: [u32; PLACES],
    taken: usize,
}

/// What is known of one block.
struct Known {
    /// Weak, so that the block counts as unused and its address is not another's.
    buf: Weak<Buffer>,
    changes: u64,
    table: Option<Box<Table>>,
    /// No entry before this offset has room for this many bytes or more: (bytes, offset).
    room: (usize, usize),
    index: Option<Index>,
}

/// An inner block of a hash tree, as it was read and checked.
#[derive(Clone)]
pub(super) struct Index {
    /// Where its entries start.
    pub entries_at: usize,
    pub entries: Rc<Vec<DxEntry>>,
    /// The directory had this number of blocks: no entry leads beyond them.
    pub blocks: u64,
}

/// What is known of directory blocks.
#[derive(Default)]
pub(super) struct Names {
    known: Vec<Option<Box<Known>>>,
}

fn hash(name: &[u8]) -> u32 {
    let mut h = name.len() as u64;
    for chunk in name.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = (h.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (h >> 32) as u32
}

fn is_named(block: &[u8], offset: usize, name: &[u8]) -> Option<u32> {
    dir::entry_at(block, offset).filter(|(_, n)| *n == name).map(|(ino, _)| ino)
}

impl Table {
    fn of(block: &[u8]) -> Option<Box<Table>> {
        let mut table = Box::new(Table { places: [0; PLACES], taken: 0 });
        dir::each_name(block, |offset, name| table.add(offset, name)).then_some(table)
    }

    /// False: it is too full, or the offset too large.
    fn add(&mut self, offset: usize, name: &[u8]) -> bool {
        let low = offset as u32 / 4 + 1;
        if self.taken >= FULL || low >= GONE {
            return false;
        }
        let h = hash(name);
        let mut at = h as usize % PLACES;
        while self.places[at] != 0 {
            at = (at + 1) % PLACES;
        }
        self.places[at] = (h & !OFFSET) | low;
        self.taken += 1;
        true
    }

    fn find(&self, block: &[u8], name: &[u8]) -> Option<(usize, u32)> {
        let h = hash(name);
        let mut at = h as usize % PLACES;
        loop {
            let place = self.places[at];
            if place == 0 {
                return None;
            }
            let low = place & OFFSET;
            if (place ^ h) & !OFFSET == 0 && low != GONE {
                let offset = (low as usize - 1) * 4;
                if let Some(ino) = is_named(block, offset, name) {
                    return Some((offset, ino));
                }
            }
            at = (at + 1) % PLACES;
        }
    }

    fn remove(&mut self, offset: usize, name: &[u8]) {
        let (h, low) = (hash(name), offset as u32 / 4 + 1);
        let mut at = h as usize % PLACES;
        while self.places[at] != 0 {
            if self.places[at] & OFFSET == low {
                self.places[at] = GONE;
                return;
            }
            at = (at + 1) % PLACES;
        }
    }
}

impl Names {
    /// What is known of `buf` as it is, and whether that is news.
    fn of(&mut self, buf: &Rc<Buffer>) -> (&mut Known, bool) {
        if self.known.is_empty() {
            self.known.resize_with(BLOCKS, || None);
        }
        let slot = &mut self.known[buf.block() as usize % BLOCKS];
        let fresh = slot.as_ref().is_none_or(|k| !k.is_of(buf, buf.changes()));
        if fresh {
            let table = None;
            let (buf, changes) = (Rc::downgrade(buf), buf.changes());
            *slot = Some(Box::new(Known { buf, changes, table, room: (0, 0), index: None }));
        }
        (slot.as_mut().expect("it was just put there"), fresh)
    }

    /// What was known of `buf` when it had changed `changes` times.
    fn before(&mut self, buf: &Rc<Buffer>, changes: u64) -> Option<&mut Known> {
        let slot = self.known.get_mut(buf.block() as usize % BLOCKS)?;
        slot.as_deref_mut().filter(|k| k.is_of(buf, changes))
    }

    /// As [`dir::find`]. The first look at a block is a search; the second makes its table.
    pub fn find(&mut self, buf: &Rc<Buffer>, name: &[u8]) -> Option<(usize, u32)> {
        let (known, fresh) = self.of(buf);
        buf.with(|b| {
            if known.table.is_none() && !fresh {
                known.table = Table::of(b);
            }
            match &known.table {
                Some(table) => table.find(b, name),
                None => dir::find(b, name),
            }
        })
    }

    /// Where a search for an entry with `bytes` to spare may begin.
    pub fn room_from(&mut self, buf: &Rc<Buffer>, bytes: usize) -> usize {
        match self.before(buf, buf.changes()) {
            Some(Known { room: (known, at), .. }) if bytes >= *known => *at,
            _ => 0,
        }
    }

    /// The first entry with `bytes` to spare is at `offset`, or nowhere.
    pub fn room_found(&mut self, buf: &Rc<Buffer>, bytes: usize, offset: Option<usize>) {
        let (known, _) = self.of(buf);
        known.room = (bytes, offset.unwrap_or(buf.len() as usize));
    }

    /// `name` was put at `offset`, into the first entry with room, since `buf` had changed
    /// `changes` times.
    pub fn inserted(&mut self, buf: &Rc<Buffer>, changes: u64, offset: usize, name: &[u8]) {
        if let Some(known) = self.before(buf, changes) {
            known.changes = buf.changes();
            known.index = None;
            if known.table.as_mut().is_some_and(|t| !t.add(offset, name)) {
                known.table = None;
            }
        }
    }

    /// The name at `offset` was removed since.
    pub fn removed(&mut self, buf: &Rc<Buffer>, changes: u64, offset: usize, name: &[u8]) {
        if let Some(known) = self.before(buf, changes) {
            known.changes = buf.changes();
            known.index = None;
            known.room = (0, 0);
            if let Some(table) = &mut known.table {
                table.remove(offset, name);
            }
        }
    }

    /// The inner block's entries, if it was read and checked in a directory of no more blocks.
    pub fn index(&mut self, buf: &Rc<Buffer>, entries_at: usize, blocks: u64) -> Option<Index> {
        let known = self.before(buf, buf.changes())?;
        known.index.clone().filter(|i| i.entries_at == entries_at && i.blocks <= blocks)
    }

    /// It was read and checked.
    pub fn note_index(&mut self, buf: &Rc<Buffer>, index: Index) {
        self.of(buf).0.index = Some(index);
    }
}

impl Known {
    fn is_of(&self, buf: &Rc<Buffer>, changes: u64) -> bool {
        std::ptr::eq(self.buf.as_ptr(), Rc::as_ptr(buf)) && self.changes == changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::dir::{DirIter, Wipe};
    use wp_base::Rng;
    use wp_rt::Rt;

    /// Random names are put, sought and removed; each answer is that of a search of the bytes.
    #[test]
    fn answers_are_those_of_a_search() {
        let rt = Rt::new(1);
        let mut names = Names::default();
        let mut rng = Rng::stream(7, "names");
        for has_tail in [false, true] {
            let buf = Rc::new(Buffer::new(&rt, 5 + BLOCKS as u64, 4096));
            buf.with_mut(|b| dir::format(b, has_tail));
            let (mut hits, mut full, mut gone) = (0, 0, 0);
            for round in 0..30_000u32 {
                let number = rng.below(400).to_string();
                let name = &number.repeat(1 + rng.below(3) as usize).into_bytes()[..];
                let slow = buf.with(|b| dir::find(b, name));
                let found = names.find(&buf, name);
                assert_eq!(found, slow);
                let changes = buf.changes();
                if let Some((offset, _)) = found {
                    hits += 1;
                    if rng.below(2) == 0 {
                        buf.with_mut(|b| dir::remove(b, 0, 500, offset, Wipe::Keep)).expect("is");
                        names.removed(&buf, changes, offset, name);
                        gone += 1;
                    }
                    continue;
                }
                let slow = buf.with(|b| dir::find_room(b, 0, 500, 0, name.len())).expect("sound");
                let bytes = dir::space(name.len());
                let from = names.room_from(&buf, bytes);
                let room = buf.with(|b| dir::find_room(b, 0, 500, from, name.len()));
                assert_eq!(room.expect("sound"), slow);
                names.room_found(&buf, bytes, slow);
                let Some(at) = slow else {
                    full += 1;
                    continue;
                };
                let at = buf.with_mut(|b| dir::insert(b, at, 1 + round % 499, name, 1));
                // Another change of the block that moves no name, as sealing it is.
                buf.with_mut(|_| ());
                names.inserted(&buf, changes, at, name);
                if rng.below(500) == 0 {
                    // Changed behind its back.
                    buf.with_mut(|b| dir::format(b, has_tail));
                }
            }
            assert!(hits > 1000 && full > 100 && gone > 1000, "{hits} {full} {gone}");
            buf.with(|b| assert!(DirIter::new(b, 0, 500).all(|e| e.is_ok())));
        }
    }
}
