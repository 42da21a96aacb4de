//! What of an image of F2FS is worth a patch, and its checksums.

use std::collections::BTreeSet;

use wp_f2fs::disk::{
    Block, Checkpoint, Checksums, Footer, Geometry, Inode, Log, SuperBlock, ZERO_BLOCK,
};
use wp_f2fs::image::{DirName, Image};
use wp_medium::{Overlay, View};

use super::patch::{Kind, Spot};

/// What a block is, as far as its checksum goes; in the order in which they are sealed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// A super block.
    Super,
    /// An inode, or a node of the chain that may be one.
    Node,
    /// A block of a checkpoint pack.
    Pack,
}

/// Nodes behind the checkpoint that are worth a patch.
const CHAIN: u32 = 64;
/// Only node numbers below this bound are read.
const NODES: u32 = 200;

fn block_at(view: &dyn View, n: u32) -> Option<Block> {
    let mut block = ZERO_BLOCK;
    view.read_at(Geometry::byte_of(n), &mut block).ok()?;
    Some(block)
}

/// The structures of an image that can be opened, most telling first.
pub fn spots(view: &dyn View) -> Vec<Spot> {
    let image = Image::open(view).expect("a base image");
    let (g, cp) = (image.geometry(), image.checkpoint());
    let mut out = Vec::new();
    let whole = |n: u32, kind| Spot { at: Geometry::byte_of(n), bytes: 4096, kind };
    let super_block = Spot {
        at: SuperBlock::AT as u64,
        bytes: size_of::<SuperBlock>() as u32,
        kind: Kind::F2fs(Part::Super),
    };
    out.push(super_block);
    let total = cp.head().cp_pack_total_block_count.get();
    let pack = g.pack(image.is_second_pack());
    out.extend((pack..pack + total).map(|n| whole(n, Kind::F2fs(Part::Pack))));
    for n in 0..2.min(g.sit_blocks_used()) {
        out.push(whole(g.current_sit_block(n, cp), Kind::Other));
    }
    out.push(whole(g.current_nat_block(0, cp), Kind::Other));
    for log in Log::ALL {
        out.push(whole(g.summary_block(cp.log(log).0), Kind::Other));
    }
    let (segment, offset) = cp.log(Log::WarmNode);
    let mut at = g.block(segment, offset);
    for _ in 0..CHAIN {
        let Some(block) = block_at(view, at).filter(|_| g.is_main(at)) else { break };
        if !cp.is_recoverable(Footer::of(&block).cp_ver.get()) {
            break;
        }
        out.push(whole(at, Kind::F2fs(Part::Node)));
        at = Footer::of(&block).next_blkaddr.get();
    }
    for nid in 3..NODES.min(g.nids()) {
        let Ok((at, block)) = image.node(nid) else { continue };
        let kind = if Footer::of(&block).is_inode() { Kind::F2fs(Part::Node) } else { Kind::Other };
        out.push(Spot { at, bytes: 4096, kind });
        // Names that stand in blocks of their own.
        let Ok(record) = image.inode(nid) else { continue };
        if Inode::of(&record.block).is_dir() {
            let names: Vec<DirName> = image.names(&record).unwrap_or_default();
            let runs =
                if names.is_empty() { Vec::new() } else { image.map(&record).unwrap_or_default() };
            let blocks = runs.iter().flat_map(|r| r.start..r.start + r.blocks).take(8);
            out.extend(blocks.map(|n| whole(n, Kind::Other)));
        }
    }
    out
}

/// Makes the checksums of what was hit right, as far as the image still says how.
pub fn seal(hit: &BTreeSet<Spot>, over: &Overlay<'_>) {
    let Some(first) = block_at(over, 0) else { return };
    let sb = SuperBlock::load(&first);
    let sums = Checksums::of(&sb);
    let mut by_kind: Vec<&Spot> = hit.iter().collect();
    by_kind.sort_by_key(|s| (s.kind, s.at));
    let mut packs = BTreeSet::new();
    for spot in by_kind {
        let mut block = ZERO_BLOCK;
        match spot.kind {
            Kind::F2fs(Part::Node) => {
                over.read_at(spot.at, &mut block).expect("within the image");
                sums.seal_inode(&mut block);
                over.write_at(spot.at, &block).expect("within the image");
            }
            Kind::F2fs(Part::Pack) => {
                packs.insert(spot.at / 4096 / 512 * 512);
            }
            _ => {}
        }
    }
    for pack in packs {
        let Some(mut cp) = head_of(over, pack) else { continue };
        let total = u64::from(cp.head().cp_pack_total_block_count.get());
        cp.seal();
        // Both ends of the pack say the same.
        for n in [0, total.saturating_sub(1)].into_iter().filter(|n| *n < 512) {
            let _ = over.write_at((pack + n) * 4096, &cp.block(0));
        }
    }
}

/// The first block of the pack there, if its checksum has a place.
fn head_of(over: &Overlay<'_>, pack: u64) -> Option<Checkpoint> {
    let block = block_at(over, u32::try_from(pack).ok()?)?;
    let cp = Checkpoint::new(&block, 0);
    (192..=4092).contains(&cp.head().checksum_offset.get()).then_some(cp)
}
