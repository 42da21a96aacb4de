//! Where contents go that memory has no room for: a file of the host, laid out here.
//!
//! Picture:    [`Weight`]s count what the pages and nodes of this thread take; a medium that writes
//!             while they are [`over`] the limit moves subtrees to the [`Vault`] (`stored.rs`).
//! Invariants: 1. without [`spill_to`] nothing moves, and below its budget nothing does;
//!             2. pieces in the vault do not overlap; what is freed is used again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// A file that contents are moved to. Whoever implements it keeps what went wrong, and has the run
/// end: a medium has nobody to tell.
pub trait Spill {
    /// Writes `bytes` at byte `at`. False: it cannot, and they stay in memory.
    fn write(&self, at: u64, bytes: &[u8]) -> bool;
    /// Reads all of `out` from byte `at`, which was written before. False: it cannot, and the
    /// contents read as zeroes from now on.
    fn read(&self, at: u64, out: &mut [u8]) -> bool;
}

/// Bytes of pieces that were read lately and are kept.
const KEPT_BYTES: usize = 8 << 20;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    static VAULT: RefCell<Option<(Rc<Vault>, usize)>> = const { RefCell::new(None) };
}

/// From now on contents of this thread's media that take more than `budget` bytes of memory move to
/// `file`, those first that have not been written to for longest. What they are does not change.
pub fn spill_to(file: Box<dyn Spill>, budget: usize) {
    let vault = Vault {
        file,
        free: RefCell::default(),
        end: Cell::new(0),
        kept: RefCell::default(),
        scratch: RefCell::default(),
    };
    VAULT.set(Some((Rc::new(vault), budget)));
    LIMIT.set(budget);
}

/// Bytes of memory that pages and nodes of this thread take now, and those that are in the file.
pub fn held_and_spilled() -> (usize, u64) {
    let spilled = VAULT.with_borrow(|v| v.as_ref().map_or(0, |(vault, _)| vault.used()));
    (HELD.get(), spilled)
}

/// Is it time to move contents?
#[inline]
pub(crate) fn over() -> bool {
    HELD.get() > LIMIT.get()
}

/// Runs `sweep` to move what is cold, and once more for all if that is not enough.
pub(crate) fn sweep(mut sweep: impl FnMut(&Rc<Vault>, bool)) {
    let Some((vault, budget)) = VAULT.with_borrow(Clone::clone) else { return };
    sweep(&vault, false);
    if HELD.get() > budget {
        sweep(&vault, true);
    }
    // What was written since the last time stays until the next, if it is half of the budget. What
    // cannot move (pages of caches) must not have each write try again.
    LIMIT.set(budget.max(HELD.get() + budget / 2));
}

/// Bytes of memory that are in use while this is held.
pub(crate) struct Weight(u32);

impl Weight {
    pub(crate) fn new(bytes: usize) -> Weight {
        HELD.set(HELD.get() + bytes);
        Weight(bytes as u32)
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        // The thread may be ending, its counter gone already.
        let _ = HELD.try_with(|held| held.set(held.get() - self.0 as usize));
    }
}

/// Pieces of bytes in a file.
pub(crate) struct Vault {
    file: Box<dyn Spill>,
    /// Free places before `end`: at which byte, how many.
    free: RefCell<BTreeMap<u64, u64>>,
    end: Cell<u64>,
    /// Pieces that were read lately, the last one at the end.
    kept: RefCell<VecDeque<(u64, Rc<[u8]>)>>,
    /// Where the next piece is made: pieces of megabytes of many sizes would leave holes in memory.
    pub(crate) scratch: RefCell<Vec<u8>>,
}

impl Vault {
    /// Puts `bytes` into the file, and says where. `None`: the file does not take them.
    pub(crate) fn put(&self, bytes: &[u8]) -> Option<u64> {
        let len = bytes.len() as u64;
        let mut free = self.free.borrow_mut();
        let fits = free.iter().find(|(_, room)| **room >= len).map(|(at, room)| (*at, *room));
        let at = fits.map_or(self.end.get(), |(at, _)| at);
        if !self.file.write(at, bytes) {
            return None;
        }
        match fits {
            None => self.end.set(at + len),
            Some((at, room)) => {
                free.remove(&at);
                if room > len {
                    free.insert(at + len, room - len);
                }
            }
        }
        Some(at)
    }

    /// The piece of `len` bytes that was put at `at`.
    pub(crate) fn get(&self, at: u64, len: usize) -> Rc<[u8]> {
        let mut kept = self.kept.borrow_mut();
        if let Some(n) = kept.iter().rposition(|(place, _)| *place == at) {
            let piece = kept[n].1.clone();
            if n + 1 < kept.len()
                && let Some(used) = kept.remove(n)
            {
                kept.push_back(used);
            }
            return piece;
        }
        let mut bytes = vec![0; len];
        if !self.file.read(at, &mut bytes) {
            bytes.fill(0);
        }
        let piece: Rc<[u8]> = bytes.into();
        kept.push_back((at, piece.clone()));
        while kept.len() > 1 && kept.iter().map(|(_, p)| p.len()).sum::<usize>() > KEPT_BYTES {
            kept.pop_front();
        }
        piece
    }

    /// Forgets that piece.
    pub(crate) fn free(&self, at: u64, len: usize) {
        self.kept.borrow_mut().retain(|(place, _)| *place != at);
        let mut free = self.free.borrow_mut();
        let (mut at, mut len) = (at, len as u64);
        if let Some((before, room)) = free.range(..at).next_back().map(|(at, room)| (*at, *room))
            && before + room == at
        {
            free.remove(&before);
            (at, len) = (before, len + room);
        }
        if let Some(room) = free.remove(&(at + len)) {
            len += room;
        }
        if at + len == self.end.get() {
            self.end.set(at);
        } else {
            free.insert(at, len);
        }
    }

    fn used(&self) -> u64 {
        self.end.get() - self.free.borrow().values().sum::<u64>()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file in memory.
    #[derive(Default)]
    pub(crate) struct InMemory(RefCell<Vec<u8>>);

    impl Spill for InMemory {
        fn write(&self, at: u64, bytes: &[u8]) -> bool {
            let mut all = self.0.borrow_mut();
            let end = at as usize + bytes.len();
            if all.len() < end {
                all.resize(end, 0);
            }
            all[at as usize..end].copy_from_slice(bytes);
            true
        }
        fn read(&self, at: u64, out: &mut [u8]) -> bool {
            out.copy_from_slice(&self.0.borrow()[at as usize..][..out.len()]);
            true
        }
    }

    #[test]
    fn places_are_used_again_and_joined() {
        spill_to(Box::<InMemory>::default(), 0);
        let (vault, _) = VAULT.with_borrow(Clone::clone).expect("just made");
        let at: Vec<u64> = (1..5).map(|n| vault.put(&[n; 100]).expect("room")).collect();
        assert_eq!(at, [0, 100, 200, 300]);
        vault.free(0, 100);
        vault.free(200, 100);
        vault.free(100, 100);
        assert_eq!(vault.used(), 100);
        assert_eq!(vault.put(&[7; 250]), Some(0));
        assert_eq!(vault.put(&[8; 100]), Some(400));
        assert_eq!(vault.put(&[9; 50]), Some(250));
        assert_eq!((&*vault.get(0, 250), &*vault.get(300, 100)), (&[7; 250][..], &[4; 100][..]));
        vault.free(400, 100);
        vault.free(300, 100);
        assert_eq!((vault.used(), vault.end.get()), (300, 300));
        assert_eq!(*vault.get(250, 50), [9; 50]);
        spill_to(Box::<InMemory>::default(), usize::MAX);
    }
}
