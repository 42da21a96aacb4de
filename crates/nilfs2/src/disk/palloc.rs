//! Files whose entries are given out and taken back: the DAT and inode files.
//!
//! Picture:    descriptor block | group | group | … | descriptor block | group | …
//!             a group = bitmap block, blocks of entries; it has as many entries as a block has
//!             bits. A descriptor block has the number of free entries of each group behind it.
//! Invariants: no entry crosses the end of a block; blocks that were never used are holes, and
//!             count as all free.

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::{index, view, view_mut, wide};

/// Where entries stand in such a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Palloc {
    /// Bytes of an entry.
    pub entry_bytes: usize,
    /// Entries of a group.
    pub group_entries: u64,
    /// Entries of a block.
    pub per_block: u64,
    /// Groups that a descriptor block describes.
    pub desc_groups: u64,
    /// Blocks of a group.
    group_blocks: u64,
}

impl Palloc {
    /// A table of entries of `entry_bytes` bytes.
    pub fn new(block_bits: u32, entry_bytes: usize) -> Palloc {
        let block = 1u64 << block_bits;
        let per_block = (block / wide(entry_bytes).max(1)).max(1);
        let group_entries = block * 8;
        Palloc {
            entry_bytes,
            group_entries,
            per_block,
            desc_groups: block / 4,
            group_blocks: group_entries.div_ceil(per_block) + 1,
        }
    }

    /// Blocks from one descriptor block to the next.
    pub fn desc_blocks(&self) -> u64 {
        self.desc_groups * self.group_blocks + 1
    }

    /// The group of an entry, and its number in it.
    pub fn group_of(&self, n: u64) -> (u64, u64) {
        (n / self.group_entries, n % self.group_entries)
    }

    /// Groups that there can be.
    pub fn groups_max(&self) -> u64 {
        u64::MAX / self.group_entries + 1
    }

    /// Block of the file that describes a group.
    pub fn desc_block(&self, group: u64) -> u64 {
        (group / self.desc_groups).saturating_mul(self.desc_blocks())
    }

    /// Byte in that block where the group's descriptor stands.
    pub fn desc_at(&self, group: u64) -> usize {
        index(group % self.desc_groups) * 4
    }

    /// Block of the file with the bitmap of a group.
    pub fn bitmap_block(&self, group: u64) -> u64 {
        let within = (group % self.desc_groups) * self.group_blocks;
        self.desc_block(group).saturating_add(1 + within)
    }

    /// Block of the file and byte in it where entry `n` stands.
    pub fn place(&self, n: u64) -> (u64, usize) {
        let (group, i) = self.group_of(n);
        let block = self.bitmap_block(group).saturating_add(1 + i / self.per_block);
        (block, index(i % self.per_block) * self.entry_bytes)
    }

    /// What block `block` of the file is for.
    pub fn role(&self, block: u64) -> Role {
        let (desc, i) = (block / self.desc_blocks(), block % self.desc_blocks());
        let first_group = desc.saturating_mul(self.desc_groups);
        if i == 0 {
            return Role::Desc { first_group };
        }
        let group = first_group.saturating_add((i - 1) / self.group_blocks);
        match (i - 1) % self.group_blocks {
            0 => Role::Bitmap { group },
            at => {
                let first = group.saturating_mul(self.group_entries);
                let within = (at - 1) * self.per_block;
                let entries = self.per_block.min(self.group_entries - within);
                Role::Entries { first: first.saturating_add(within), entries }
            }
        }
    }
}

/// What a block of such a file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Descriptors of groups.
    Desc {
        /// The first of these groups.
        first_group: u64,
    },
    /// Which entries of a group are in use.
    Bitmap {
        /// That group.
        group: u64,
    },
    /// Entries.
    Entries {
        /// Number of the first.
        first: u64,
        /// How many.
        entries: u64,
    },
}

/// Free entries that a descriptor at byte `at` tells. `pg_nfrees` of
/// `struct nilfs_palloc_group_desc`.
pub fn free_entries(desc_block: &[u8], at: usize) -> u32 {
    view::<U32>(desc_block, at).map_or(0, |n| n.get())
}

/// Sets that.
pub fn set_free_entries(desc_block: &mut [u8], at: usize, free: u32) {
    if let Some(n) = view_mut::<U32>(desc_block, at) {
        n.set(free);
    }
}

/// A descriptor block whose groups are all free.
pub fn fresh_desc_block(block_bytes: usize) -> Vec<u8> {
    let free = U32::from(super::lo32(wide(block_bytes) * 8));
    let mut block = vec![0; block_bytes];
    if let Ok(all) = <[U32]>::mut_from_bytes(&mut block) {
        all.fill(free);
    }
    block
}

/// Is bit `n` of a bitmap set?
pub fn bit(bitmap: &[u8], n: u64) -> bool {
    bitmap.get(index(n / 8)).is_some_and(|b| b & (1 << (n % 8)) != 0)
}

/// Sets or clears bit `n`.
pub fn set_bit(bitmap: &mut [u8], n: u64, on: bool) {
    if let Some(b) = bitmap.get_mut(index(n / 8)) {
        let mask = 1 << (n % 8);
        *b = if on { *b | mask } else { *b & !mask };
    }
}

/// The first clear bit from `from` on and below `to`.
pub fn clear_bit_from(bitmap: &[u8], from: u64, to: u64) -> Option<u64> {
    let mut n = from;
    while n < to {
        // Most of what is in use stands together.
        let word = bitmap.get(index(n / 8)..).and_then(<[u8]>::first_chunk::<8>);
        if n.is_multiple_of(64) && word == Some(&[0xFF; 8]) {
            n += 64;
            continue;
        }
        match bitmap.get(index(n / 8)) {
            Some(0xFF) => n = (n / 8 + 1) * 8,
            Some(b) if b & (1 << (n % 8)) == 0 => return Some(n),
            Some(_) => n += 1,
            None => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clear_bit_is_found() {
        let mut bits = [0xFF; 40];
        bits[25] = 0b1011_1111;
        let slow = |from: u64, to: u64| (from..to).find(|n| !bit(&bits, *n));
        for from in 0..320 {
            for to in [from, 206, 207, 320] {
                assert_eq!(clear_bit_from(&bits, from, to), slow(from, to), "{from}..{to}");
            }
        }
    }

    #[test]
    fn every_entry_is_found_again_in_its_block() {
        for p in [Palloc::new(10, 32), Palloc::new(12, 128), Palloc::new(10, 192)] {
            let far = p.group_entries * p.desc_groups;
            for n in
                (0..3000).chain(p.group_entries - 5..p.group_entries + 5).chain(far - 3..far + 3)
            {
                let (block, at) = p.place(n);
                match p.role(block) {
                    Role::Entries { first, entries } => {
                        assert!(first <= n && n < first + entries, "{n} in {first}+{entries}");
                        assert_eq!(at, index(n - first) * p.entry_bytes);
                    }
                    other => panic!("{n}: {other:?}"),
                }
                let (group, _) = p.group_of(n);
                assert_eq!(p.role(p.bitmap_block(group)), Role::Bitmap { group });
                assert!(matches!(p.role(p.desc_block(group)), Role::Desc { .. }));
            }
        }
    }

    #[test]
    fn clear_bits_are_found_in_order() {
        let mut map = vec![0xFF; 16];
        set_bit(&mut map, 77, false);
        set_bit(&mut map, 20, false);
        assert_eq!(clear_bit_from(&map, 0, 128), Some(20));
        assert_eq!(clear_bit_from(&map, 21, 128), Some(77));
        assert_eq!(clear_bit_from(&map, 21, 77), None);
        assert_eq!(clear_bit_from(&map, 78, 9999), None);
    }
}
