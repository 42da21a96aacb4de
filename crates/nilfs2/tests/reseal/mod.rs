//! Damaged logs whose checksums are right again, so that what they say is believed.

use wp_nilfs2::disk::summary::{data_sum, flag, set_data_sum, summary_sum};
use wp_nilfs2::disk::{Geometry, SummaryHead};
use zerocopy::IntoBytes;

/// Makes the checksums of all logs right.
pub fn reseal(bytes: &mut [u8], g: &Geometry) {
    for segment in 0..g.segments {
        let (mut start, end) = g.segment(segment);
        while start < end {
            let at = g.byte_of(start) as usize;
            let mut head = SummaryHead::load(&bytes[at..]);
            let blocks = u64::from(head.nblocks.get());
            if head.magic.get() != SummaryHead::MAGIC || blocks == 0 || start + blocks > end {
                break;
            }
            let log = &mut bytes[at..g.byte_of(start + blocks) as usize];
            if head.has(flag::SUPER_ROOT) {
                let root = log.len() - g.block_bytes();
                let length = usize::from(u16::from_le_bytes([log[root + 4], log[root + 5]]));
                let sum = wp_base::crc::crc32_le(
                    g.crc_seed,
                    &log[root + 4..root + length.clamp(4, g.block_bytes())],
                );
                log[root..root + 4].copy_from_slice(&sum.to_le_bytes());
            }
            let summary = (head.sumbytes.get() as usize).min(log.len());
            head.sumsum = summary_sum(g.crc_seed, log, summary as u64).into();
            log[..SummaryHead::BYTES].copy_from_slice(head.as_bytes());
            let sum = data_sum(g.crc_seed, log.chunks(g.block_bytes()));
            set_data_sum(log, sum);
            start += blocks;
        }
    }
}
