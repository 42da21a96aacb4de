//! What of an image of NILFS2 is worth a patch, and its checksums.

use std::collections::BTreeSet;

use wp_medium::{Overlay, View};
use wp_nilfs2::disk::summary::{data_sum, flag, set_data_sum, summary_sum};
use wp_nilfs2::disk::{Geometry, SummaryHead, SuperBlock};
use wp_nilfs2::image::Image;
use wp_vfs::BlockMap;
use zerocopy::IntoBytes;

use super::patch::{Kind, Spot};

/// What a place is, as far as its checksum goes; in the order in which they are sealed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// A super block.
    Super,
    /// A block of a log.
    Log,
}

/// The structures of an image that can be opened, most telling first.
pub fn spots(view: &dyn View) -> Vec<Spot> {
    let image = Image::open(view).expect("a base image");
    let classes = wp_nilfs2::Blocks::read(view).expect("a base image");
    let g = image.geometry();
    let supers = [SuperBlock::AT, SuperBlock::second_at(view.len_bytes())];
    let bytes = SuperBlock::SPACE as u32;
    let mut out: Vec<Spot> =
        supers.map(|at| Spot { at, bytes, kind: Kind::Nilfs2(Part::Super) }).to_vec();
    let mut blocks: Vec<u64> = (g.first_data_block..g.end())
        .filter(|b| !matches!(classes.class(*b), "free" | "data"))
        .collect();
    // The newest are the last.
    blocks.reverse();
    let bytes = 1 << g.block_bits;
    out.extend(blocks.into_iter().map(|b| Spot {
        at: g.byte_of(b),
        bytes,
        kind: Kind::Nilfs2(Part::Log),
    }));
    out
}

/// Makes the checksums of what was hit right, as far as the image still says how.
pub fn seal(hit: &BTreeSet<Spot>, over: &Overlay<'_>) {
    for at in [SuperBlock::AT, SuperBlock::second_at(over.len_bytes())] {
        let mut sb = SuperBlock::zeroed();
        over.read_at(at, sb.as_mut_bytes()).expect("within the image");
        if let Some(sum) = sb.right_sum() {
            sb.sum = sum.into();
            over.write_at(at, sb.as_bytes()).expect("within the image");
        }
    }
    let mut sb = SuperBlock::zeroed();
    over.read_at(SuperBlock::AT, sb.as_mut_bytes()).expect("within the image");
    let Ok(g) = Geometry::from_super(&sb, over.len_bytes()) else { return };
    let logs = hit.iter().filter(|s| s.kind == Kind::Nilfs2(Part::Log));
    let segments: BTreeSet<u64> = logs.map(|s| g.segment_of(s.at >> g.block_bits)).collect();
    for segment in segments.into_iter().filter(|s| *s < g.segments) {
        let (mut start, end) = g.segment(segment);
        while start < end {
            match seal_log(&g, over, start, end) {
                Some(blocks) => start += blocks,
                None => break,
            }
        }
    }
}

/// Seals the log at a block; its blocks.
fn seal_log(g: &Geometry, over: &Overlay<'_>, start: u64, end: u64) -> Option<u64> {
    let mut first = vec![0; g.block_bytes()];
    over.read_at(g.byte_of(start), &mut first).ok()?;
    let mut head = SummaryHead::load(&first);
    let blocks = u64::from(head.nblocks.get());
    if head.magic.get() != SummaryHead::MAGIC || blocks == 0 || start + blocks > end {
        return None;
    }
    let mut log = vec![0; g.byte_of(blocks) as usize];
    over.read_at(g.byte_of(start), &mut log).ok()?;
    if head.has(flag::SUPER_ROOT) {
        let at = log.len() - g.block_bytes();
        let root = &mut log[at..];
        let length = usize::from(u16::from_le_bytes([root[4], root[5]]));
        let covered = &root[4..length.clamp(4, root.len())];
        let sum = wp_base::crc::crc32_le(g.crc_seed, covered);
        root[..4].copy_from_slice(&sum.to_le_bytes());
    }
    let summary = u64::from(head.sumbytes.get()).min(log.len() as u64);
    head.sumsum = summary_sum(g.crc_seed, &log, summary).into();
    log[..SummaryHead::BYTES].copy_from_slice(head.as_bytes());
    let sum = data_sum(g.crc_seed, log.chunks(g.block_bytes()));
    set_data_sum(&mut log, sum);
    over.write_at(g.byte_of(start), &log).ok()?;
    Some(blocks)
}
