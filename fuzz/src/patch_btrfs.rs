//! What of an image of btrfs is worth a patch, and its checksums.
//!
//! Picture:    super block, and of each tree block in use its head with the slots, and each item's
//!             bytes: the gap in between says nothing.

use std::collections::BTreeSet;

use wp_btrfs::disk::node::{HEADER_BYTES, ITEM_BYTES, PTR_BYTES};
use wp_btrfs::disk::{CsumKind, NodeRef, RootItem, SuperBlock, kind};
use wp_btrfs::image::Image;
use wp_medium::{Overlay, View};
use zerocopy::IntoBytes;

use super::patch::{Kind, Spot};

/// What a place is of, as far as its checksum goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// A super block.
    Super,
    /// A tree block: byte addresses of its first copy and of its last, which may be the same.
    Tree(u64, u64),
}

/// The structures of an image that can be opened, most telling first.
pub fn spots(view: &dyn View) -> Vec<Spot> {
    let image = Image::open(view).expect("a base image");
    let sb = image.super_block();
    let bytes = SuperBlock::BYTES as u32;
    let copies = SuperBlock::copies_of_mkfs(view.len_bytes());
    let mut out: Vec<Spot> =
        copies.map(|at| Spot { at, bytes, kind: Kind::Btrfs(Part::Super) }).collect();
    let mut seen = BTreeSet::new();
    let mut log = Vec::new();
    if sb.log_root.get() != 0 {
        tree(&image, sb.log_root.get(), &mut seen, &mut log);
    }
    for root in [sb.root.get(), sb.chunk_root.get()] {
        tree(&image, root, &mut seen, &mut out);
    }
    // A log is small beside the trees: so often that every third patch hits one.
    let times = if log.is_empty() { 0 } else { (out.len() / (2 * log.len())).max(1) };
    out.extend(std::iter::repeat_n(log, times).flatten());
    out
}

/// Adds what is in the tree block at a logical address, and below it; each block once.
fn tree(image: &Image<'_>, logical: u64, seen: &mut BTreeSet<u64>, out: &mut Vec<Spot>) {
    if !seen.insert(logical) {
        return;
    }
    let mut block = vec![0; image.common().node_bytes];
    let places = image.chunks().places(logical, block.len() as u64).expect("a base image");
    let (first, last) = (places[0], *places.last().expect("a place"));
    image.view().read_at(first, &mut block).expect("within the image");
    let node = NodeRef::trusted(&block);
    let kind = Kind::Btrfs(Part::Tree(first, last));
    let slot_bytes = if node.level() == 0 { ITEM_BYTES } else { PTR_BYTES };
    let bytes = (HEADER_BYTES + node.len() * slot_bytes) as u32;
    out.push(Spot { at: first, bytes, kind });
    for slot in 0..node.len() {
        if node.level() > 0 {
            tree(image, node.ptr(slot).expect("a pointer").blockptr.get(), seen, out);
            continue;
        }
        let data = node.data(slot).expect("an item's bytes");
        if !data.is_empty() {
            let at = first + node.data_at(slot) as u64;
            out.push(Spot { at, bytes: data.len() as u32, kind });
        }
        if node.key(slot).is_some_and(|key| key.kind == self::kind::ROOT_ITEM) {
            let root = RootItem::load(data, 0).expect("a base image");
            tree(image, root.bytenr.get(), seen, out);
        }
    }
}

/// Makes the checksums of what was hit right, as far as the image still says how, and all copies of
/// a tree block the same: of copies that differ a sound one is taken.
pub fn seal(hit: &BTreeSet<Spot>, over: &Overlay<'_>) {
    let mut blocks = BTreeSet::new();
    let Some((csum, node_bytes)) = read_super(over, SuperBlock::AT) else { return };
    for spot in hit {
        match spot.kind {
            Kind::Btrfs(Part::Tree(first, last)) => {
                blocks.insert((first, last));
            }
            Kind::Btrfs(Part::Super) => {
                let mut bytes = [0; SuperBlock::BYTES];
                over.read_at(spot.at, &mut bytes).expect("within the image");
                csum.seal(&mut bytes);
                over.write_at(spot.at, &bytes).expect("within the image");
            }
            _ => {}
        }
    }
    for (first, last) in blocks {
        let mut block = vec![0; node_bytes];
        if over.read_at(first, &mut block).is_err() {
            continue;
        }
        csum.seal(&mut block);
        for at in [first, last] {
            let _ = over.write_at(at, &block);
        }
    }
}

/// The checksum and the bytes of a tree block that a super block names, if they can be.
fn read_super(view: &dyn View, at: u64) -> Option<(CsumKind, usize)> {
    let mut sb = SuperBlock::zeroed();
    view.read_at(at, sb.as_mut_bytes()).ok()?;
    let node_bytes = sb.nodesize.get();
    let has_size = node_bytes.is_power_of_two() && (4096..=65536).contains(&node_bytes);
    Some((CsumKind::of(sb.csum_type.get())?, node_bytes as usize)).filter(|_| has_size)
}
