//! Files that are an array of entries behind a header: checkpoints, and the usage of segments.
//!
//! Picture:    block 0 = header in the place of the first entries, entries; other blocks = entries
//! Invariants: no entry crosses the end of a block.

use super::{index, wide};

/// Where entries stand in such a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table {
    /// Bytes of an entry.
    pub entry_bytes: usize,
    /// Entries of a block.
    pub per_block: u64,
    /// Places for entries that the header takes.
    header_entries: u64,
    /// Number of the first entry.
    first: u64,
}

impl Table {
    /// Entries of `entry_bytes` behind a header of `header_bytes`, the first of which has the
    /// number `first`.
    pub fn new(block_bits: u32, entry_bytes: usize, header_bytes: usize, first: u64) -> Table {
        let entry = entry_bytes.max(1);
        let per_block = wide((1usize << block_bits) / entry).max(1);
        let header_entries = wide(header_bytes.div_ceil(entry));
        Table { entry_bytes, per_block, header_entries, first }
    }

    /// Block of the file and byte in it where entry `n` stands.
    pub fn place(&self, n: u64) -> (u64, usize) {
        let at = n.wrapping_sub(self.first).saturating_add(self.header_entries);
        (at / self.per_block, index(at % self.per_block) * self.entry_bytes)
    }

    /// Entries that stand in block `block` of the file: number and byte in it.
    pub fn in_block(&self, block: u64) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (table, start) = (*self, block.saturating_mul(self.per_block));
        let skipped = if block == 0 { self.header_entries } else { 0 };
        (skipped..self.per_block).map(move |i| {
            let n = start.saturating_add(i) - table.header_entries + table.first;
            (n, index(i) * table.entry_bytes)
        })
    }

    /// Blocks that `n` entries take.
    pub fn blocks_of(&self, n: u64) -> u64 {
        n.saturating_add(self.header_entries).div_ceil(self.per_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_blocks_agree() {
        // Checkpoints of 192 bytes from number 1, usages of 16 bytes from number 0, in 1 KiB.
        for table in [Table::new(10, 192, 32, 1), Table::new(10, 16, 24, 0)] {
            let mut next = table.first;
            for block in 0..5 {
                for (n, at) in table.in_block(block) {
                    assert_eq!((n, table.place(n)), (next, (block, at)));
                    next += 1;
                }
            }
            assert_eq!(table.blocks_of(next - table.first), 5);
            assert_eq!(table.blocks_of(next - table.first + 1), 6);
        }
    }
}
