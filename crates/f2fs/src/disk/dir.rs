//! Directory entries: names in slots of eight bytes, in blocks or in the inode.
//!
//! Picture:    area = bitmap of slots (lowest bit first) | reserved | entries of 11 bytes, one a
//!             slot | names of 8 bytes, one a slot. A name takes as many slots as it has bytes / 8;
//!             its entry stands in the first of them.
//! Source:     `struct f2fs_dentry_block`, `make_dentry_ptr_block`, `make_dentry_ptr_inline`,
//!             `f2fs_update_dentry`, `f2fs_fill_dentries`.

use std::ops::Range;

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, bits, count, index};

/// Entry of a name. `struct f2fs_dir_entry`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DentryEntry {
    /// `hash_code` of the name.
    pub hash_code: U32,
    /// `ino` that it names.
    pub ino: U32,
    /// `name_len`, bytes.
    pub name_len: U16,
    /// `file_type`, see [`wp_vfs::FileType::entry`].
    pub file_type: u8,
}
const _: () = assert!(size_of::<DentryEntry>() == DentryEntry::BYTES);

impl DentryEntry {
    /// Its size in bytes. `SIZE_OF_DIR_ENTRY`.
    pub const BYTES: usize = 11;
}

/// Bytes of a name in a slot. `F2FS_SLOT_LEN`.
pub const SLOT_BYTES: usize = 8;

/// Words of 64 bits for the slots of the largest area.
const SLOT_WORDS: usize = 4;

/// Slots that a name of `len` bytes takes. `GET_DENTRY_SLOTS`.
pub fn slots_of(len: usize) -> u32 {
    count(len.div_ceil(SLOT_BYTES))
}

/// How bytes are laid out as slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DentryArea {
    /// Slots in it.
    pub slots: u32,
    entries_at: usize,
    names_at: usize,
}

/// A name in an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dentry<'a> {
    /// Its first slot.
    pub slot: u32,
    /// Its entry.
    pub entry: DentryEntry,
    /// The name.
    pub name: &'a [u8],
}

impl DentryArea {
    /// Of a block of a directory. `NR_DENTRY_IN_BLOCK`.
    pub const BLOCK: DentryArea =
        DentryArea { slots: 214, entries_at: 30, names_at: 30 + 214 * DentryEntry::BYTES };

    /// Of names in an inode, which have `bytes` of room. `NR_INLINE_DENTRY`.
    pub fn inline(bytes: u32) -> DentryArea {
        let per_slot = count(DentryEntry::BYTES + SLOT_BYTES);
        let slots = bytes * 8 / (per_slot * 8 + 1);
        // The space that is left over lies between bitmap and entries.
        let entries_at = index(bytes - per_slot * slots);
        DentryArea { slots, entries_at, names_at: entries_at + index(slots) * DentryEntry::BYTES }
    }

    /// Bytes of the entry in a slot.
    pub fn entry_range(&self, slot: u32) -> Range<usize> {
        let at = self.entries_at + index(slot) * DentryEntry::BYTES;
        at..at + DentryEntry::BYTES
    }

    /// Bytes of a name of this length that begins in a slot.
    pub fn name_range(&self, slot: u32, len: usize) -> Range<usize> {
        let at = self.names_at + index(slot) * SLOT_BYTES;
        at..at + len
    }

    /// Is a slot taken?
    pub fn is_used(&self, bytes: &[u8], slot: u32) -> bool {
        slot < self.slots && bits::test_le(bytes, slot)
    }

    /// The entry in a slot, whatever it means.
    pub fn entry(&self, bytes: &[u8], slot: u32) -> Option<DentryEntry> {
        DentryEntry::read_from_bytes(bytes.get(self.entry_range(slot))?).ok()
    }

    /// The names in it, in order of slots. `at`: byte address of the area, for the error.
    ///
    /// Errors: a name without length, or one that reaches beyond the area.
    pub fn names<'a>(&self, bytes: &'a [u8], at: u64) -> Result<Vec<Dentry<'a>>, Corruption> {
        let mut out = Vec::new();
        let mut slot = 0;
        while slot < self.slots {
            if !self.is_used(bytes, slot) {
                slot += 1;
                continue;
            }
            let found = self.entry(bytes, slot);
            let len = found.map_or(0, |e| usize::from(e.name_len.get()));
            let name = bytes.get(self.name_range(slot, len)).filter(|_| {
                (1..=super::Inode::NAME_MAX).contains(&len) && slot + slots_of(len) <= self.slots
            });
            let (Some(entry), Some(name)) = (found, name) else {
                return Err(Corruption {
                    structure: "f2fs directory entry",
                    field: "name_len",
                    at: at + super::wide(self.entry_range(slot).start),
                    found: super::wide(len),
                    expected: format!("1 to 255, within {} slots (slot {slot})", self.slots),
                });
            };
            out.push(Dentry { slot, entry, name });
            slot += slots_of(len);
        }
        Ok(out)
    }

    /// The slot of a name with this hash. Entries that are wrong are passed over, as Linux does.
    pub fn find(&self, bytes: &[u8], hash: u32, name: &[u8]) -> Option<(u32, DentryEntry)> {
        // Most areas that are looked at have no entry with this hash.
        let entries = bytes.get(self.entries_at..self.entry_range(self.slots).start)?;
        let (entries, _) = entries.as_chunks::<{ DentryEntry::BYTES }>();
        // Without a way out in between: a slot is one load and one comparison.
        let is_there = |any, [a, b, c, d, ..]: &[u8; DentryEntry::BYTES]| {
            any | (u32::from_le_bytes([*a, *b, *c, *d]) == hash)
        };
        if !entries.iter().fold(false, is_there) {
            return None;
        }
        let mut slot = 0;
        while slot < self.slots {
            let entry = self.entry(bytes, slot).filter(|_| self.is_used(bytes, slot));
            let Some(entry) = entry.filter(|e| e.name_len.get() != 0) else {
                slot += 1;
                continue;
            };
            let len = usize::from(entry.name_len.get());
            let there = bytes.get(self.name_range(slot, len));
            if entry.hash_code.get() == hash
                && slot + slots_of(len) <= self.slots
                && there == Some(name)
            {
                return Some((slot, entry));
            }
            slot += slots_of(len);
        }
        None
    }

    /// Has it a run of `slots` free slots, or a longer one? What a look-up remembers
    /// (`f2fs_find_target_dentry`).
    pub fn has_room(&self, bytes: &[u8], slots: u32) -> bool {
        self.find_room(bytes, slots).is_some()
    }

    /// First run of `slots` free slots. `f2fs_room_for_filename`.
    pub fn find_room(&self, bytes: &[u8], slots: u32) -> Option<u32> {
        let mut starts = self.free_slots(bytes);
        // A run that is longer by one starts where both slots start one of the length before.
        for _ in 1..slots {
            let next = starts;
            for (n, word) in starts.iter_mut().enumerate() {
                let carried = next.get(n + 1).map_or(0, |after| after << 63);
                *word &= (*word >> 1) | carried;
            }
        }
        (0..).step_by(64).zip(starts).find(|(_, word)| *word != 0).map(|(at, word)| {
            let start: u32 = at;
            start + word.trailing_zeros()
        })
    }

    /// A bit for each free slot, the lowest first.
    fn free_slots(&self, bytes: &[u8]) -> [u64; SLOT_WORDS] {
        let mut words = [0; SLOT_WORDS];
        for (first, word) in (0..self.slots).step_by(64).zip(&mut words) {
            let from = index(first / 8);
            let mut used = [0; 8];
            let there = bytes.get(from..).unwrap_or(&[]);
            used.iter_mut().zip(there).for_each(|(to, byte)| *to = *byte);
            let of_area = (self.slots - first).min(64);
            *word = !u64::from_le_bytes(used) & (!0 >> (64 - of_area));
        }
        words
    }

    /// Writes a name into free slots. Panics if it reaches beyond the area. `f2fs_update_dentry`.
    pub fn put(&self, bytes: &mut [u8], slot: u32, entry: &DentryEntry, name: &[u8]) {
        let slots = slots_of(name.len());
        assert!(slot + slots <= self.slots, "{slots} slots at {slot} of {}", self.slots);
        assert_eq!(usize::from(entry.name_len.get()), name.len());
        let place = bytes.get_mut(self.entry_range(slot)).expect("a slot of the area");
        place.copy_from_slice(entry.as_bytes());
        let place = bytes.get_mut(self.name_range(slot, name.len())).expect("slots of the area");
        place.copy_from_slice(name);
        for n in slot..slot + slots {
            bits::set_le(bytes, n, true);
            // An entry that only continues a name has no length, so that it is not taken for one.
            if n > slot
                && let Some(place) = bytes.get_mut(self.entry_range(n))
                && let Ok(rest) = DentryEntry::mut_from_bytes(place)
            {
                rest.name_len = U16::ZERO;
            }
        }
    }

    /// Frees the slots of a name of `len` bytes; its bytes stay. `f2fs_delete_entry`.
    pub fn remove(&self, bytes: &mut [u8], slot: u32, len: usize) {
        for n in slot..(slot + slots_of(len)).min(self.slots) {
            bits::set_le(bytes, n, false);
        }
    }

    /// Points the entry in a slot to another inode. Panics beyond the area. `f2fs_set_link`.
    pub fn set_target(&self, bytes: &mut [u8], slot: u32, ino: u32, file_type: u8) {
        let place = bytes.get_mut(self.entry_range(slot)).expect("a slot of the area");
        let entry = DentryEntry::mut_from_bytes(place).expect("its size");
        entry.ino = ino.into();
        entry.file_type = file_type;
    }

    /// Is no slot taken?
    pub fn is_empty(&self, bytes: &[u8]) -> bool {
        (0..self.slots).all(|n| !bits::test_le(bytes, n))
    }
}
const _: () = assert!(DentryArea::BLOCK.names_at + 214 * SLOT_BYTES == BLOCK_BYTES);
const _: () = assert!(SLOT_WORDS == 4 && DentryArea::BLOCK.slots <= 4 * 64);

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], ino: u32) -> DentryEntry {
        DentryEntry {
            hash_code: super::super::hash::name_hash(name).into(),
            ino: ino.into(),
            name_len: super::super::lo16(count(name.len())).into(),
            file_type: wp_vfs::FileType::File.entry(),
        }
    }

    #[test]
    fn areas_have_the_sizes_of_the_format() {
        // The two that the kernel's comment works out: by default, and the smallest.
        let a = DentryArea::inline(3488);
        assert_eq!((a.slots, a.entries_at), (182, 23 + 7));
        let a = DentryArea::inline(40);
        assert_eq!((a.slots, a.entries_at, a.names_at), (2, 2, 24));
    }

    #[test]
    fn names_are_put_found_and_removed() {
        for (area, len) in [(DentryArea::BLOCK, BLOCK_BYTES), (DentryArea::inline(3488), 3488)] {
            let mut bytes = vec![0u8; len];
            let names: [&[u8]; 3] = [b"a", b"exactly8", b"a name of more than two slots"];
            for (n, name) in names.iter().enumerate() {
                let slot = area.find_room(&bytes, slots_of(name.len())).expect("room");
                area.put(&mut bytes, slot, &entry(name, count(n) + 10), name);
            }
            let all = area.names(&bytes, 0).expect("well formed");
            assert_eq!(
                all.iter().map(|d| (d.slot, d.name)).collect::<Vec<_>>(),
                [(0, names[0]), (1, names[1]), (2, names[2]),]
            );
            let hash = super::super::hash::name_hash(names[1]);
            assert_eq!(area.find(&bytes, hash, names[1]).map(|f| f.1.ino.get()), Some(11));
            area.remove(&mut bytes, 1, 8);
            assert_eq!(area.find(&bytes, hash, names[1]), None);
            assert_eq!(area.find_room(&bytes, 2), Some(6));
            assert_eq!(area.find_room(&bytes, 1), Some(1));
        }
    }

    #[test]
    fn room_is_found_where_a_look_at_each_slot_finds_it() {
        for area in [DentryArea::BLOCK, DentryArea::inline(3488), DentryArea::inline(40)] {
            for seed in 0..200u32 {
                // Bytes that are full or empty more often than mixed.
                let byte = |n: u32| match (n * 7 + seed * 13) % 5 {
                    0 | 1 => 0,
                    2 | 3 => 0xFF,
                    _ => (n * 31 + seed * 17).to_le_bytes()[0],
                };
                let bytes: Vec<u8> = (0..4096).map(byte).collect();
                for slots in 1..=slots_of(super::super::Inode::NAME_MAX) {
                    let is_free =
                        |start: u32| (start..start + slots).all(|n| !area.is_used(&bytes, n));
                    let starts = 0..(area.slots + 1).saturating_sub(slots);
                    let slow = starts.into_iter().find(|start| is_free(*start));
                    let found = area.find_room(&bytes, slots);
                    assert_eq!(found, slow, "{} {seed} {slots}", area.slots);
                    assert_eq!(area.has_room(&bytes, slots), slow.is_some());
                }
            }
        }
    }

    #[test]
    fn a_name_beyond_the_area_is_refused() {
        let area = DentryArea::BLOCK;
        let mut bytes = vec![0u8; BLOCK_BYTES];
        area.put(&mut bytes, 213, &entry(b"z", 4), b"z");
        assert_eq!(area.names(&bytes, 0).map(|n| n.len()), Ok(1));
        let range = area.entry_range(213);
        *bytes.get_mut(range.start + 8).expect("an entry") = 9;
        let wrong = area.names(&bytes, 4096).expect_err("two slots at the last");
        assert_eq!((wrong.field, wrong.found), ("name_len", 9));
    }
}
