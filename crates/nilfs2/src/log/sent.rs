//! What logs have of a block that they have again and again, changed a little each time.
//!
//! A log's checksum covers all of its blocks, and most of each is as it was in the log before.
//! Checksums are linear, so that of a block comes from those of its parts, and only parts that have
//! changed are read again.

use std::ops::Range;
use std::sync::LazyLock;

use wp_base::crc::{Crc32After, crc32_le};
use wp_medium::{PAGE_BYTES, Slice, Versions};

use super::block::Block;

const PART: usize = Versions::PART_BYTES;

/// What one part does to the checksum before it.
static AFTER: LazyLock<Crc32After> = LazyLock::new(|| Crc32After::new(PART));

/// All parts of a block.
pub(super) const ALL: u16 = !0;

/// The parts that bytes `range` of a block are in, a bit for each, the lowest first.
pub(super) fn parts(range: &Range<usize>) -> u16 {
    let last = range.end.max(range.start + 1) - 1;
    (range.start / PART..=last / PART)
        .fold(0, |bits, n| bits | 1u16.checked_shl(n as u32).unwrap_or(0))
}

/// The versions of a block that logs have, and checksums of the last one's parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    versions: Versions,
    /// From 0 on: of zeroes it is 0, too.
    sums: [u32; PAGE_BYTES / PART],
}

impl Sent {
    /// The next version of a block of `len` bytes, of which no part but `touched` has changed, and
    /// the checksum that goes on from `sum` over it. `make` gets the number of a part and its
    /// bytes, all of which it sets.
    pub fn next(
        &mut self,
        len: usize,
        touched: u16,
        sum: u32,
        mut make: impl FnMut(usize, &mut [u8]),
    ) -> (Block, u32) {
        if len > PAGE_BYTES || !len.is_multiple_of(PART) {
            let mut bytes = vec![0; len];
            bytes.chunks_mut(PART).enumerate().for_each(|(n, part)| make(n, part));
            let sum = crc32_le(sum, &bytes);
            return (bytes.into(), sum);
        }
        let parts = len / PART;
        let of_block = ALL >> (PAGE_BYTES / PART - parts);
        let page = self.versions.next_of_parts(touched & of_block, |n, part| make(n, part));
        let (changed, bytes) = (self.versions.changed(), self.versions.bytes());
        let mut sum = sum;
        for (n, own) in self.sums.iter_mut().enumerate().take(parts) {
            if changed & (1 << n) != 0 {
                *own = crc32_le(0, bytes.get(n * PART..(n + 1) * PART).unwrap_or(&[]));
            }
            sum = AFTER.join(sum, *own);
        }
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        (Slice::of_page(page, 0, len).into(), sum)
    }

    /// The same for `bytes`.
    pub fn next_of(&mut self, bytes: &[u8], touched: u16, sum: u32) -> (Block, u32) {
        self.next(bytes.len(), touched, sum, |n, part| {
            let there = bytes.get(n * PART..).unwrap_or(&[]);
            let len = part.len().min(there.len());
            if let (Some(to), Some(from)) = (part.get_mut(..len), there.get(..len)) {
                to.copy_from_slice(from);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_base::Rng;

    #[test]
    fn bytes_are_in_the_parts_that_have_them() {
        assert_eq!((parts(&(0..1)), parts(&(255..257)), parts(&(4095..4096))), (1, 3, 1 << 15));
        assert_eq!((parts(&(0..4096)), parts(&(512..512)), parts(&(9000..9001))), (ALL, 4, 0));
    }

    #[test]
    fn versions_and_checksums_are_those_of_the_bytes() {
        for len in [1024, 2048, 4096, 8192] {
            let (mut rng, mut sent) = (Rng::stream(len as u64, "sent"), Sent::default());
            let (mut bytes, mut sum, mut right) = (vec![0; len], 7, 7);
            for round in 0..300 {
                // More versions than lie between two whole pages, some with many changes.
                let changes = if round % 41 == 0 { 900 } else { rng.below(5) };
                let mut touched = rng.next_u64() as u16 & rng.next_u64() as u16;
                for _ in 0..changes {
                    let at = usize::try_from(rng.below(len as u64)).expect("a place");
                    *bytes.get_mut(at).expect("within") = rng.next_u64() as u8;
                    touched |= parts(&(at..at + 1));
                }
                let block;
                (block, sum) = sent.next_of(&bytes, touched, sum);
                right = crc32_le(right, &bytes);
                assert_eq!(sum, right, "round {round} of {len}");
                assert_eq!(block.to_vec(), bytes, "round {round} of {len}");
            }
        }
    }
}
