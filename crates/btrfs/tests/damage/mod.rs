//! Damage to tree blocks in use, and checksums made right again, so that what they say is believed.

use wp_base::Rng;
use wp_btrfs::chunks::ChunkMap;
use wp_btrfs::disk::node::{Common, HEADER_BYTES, ITEM_BYTES, PTR_BYTES};
use wp_btrfs::disk::{NodeRef, RootItem, kind};
use wp_btrfs::image::Image;
use wp_medium::View;

/// What damaging needs to know of an image.
pub struct Map {
    /// Byte addresses of the first copies of tree blocks in use, each once.
    pub blocks: Vec<usize>,
    /// Checksum and size of blocks.
    pub common: Common,
    chunks: ChunkMap,
}

impl Map {
    pub fn of(view: &dyn View) -> Map {
        let image = Image::open(view).expect("an image");
        let (common, chunks) = (*image.common(), image.chunks().clone());
        let mut map = Map { blocks: Vec::new(), common, chunks };
        let sb = image.super_block();
        map.tree(view, sb.chunk_root.get());
        map.tree(view, sb.root.get());
        if sb.log_root.get() != 0 {
            map.tree(view, sb.log_root.get());
        }
        map.blocks.sort_unstable();
        map.blocks.dedup();
        map
    }

    fn tree(&mut self, view: &dyn View, bytenr: u64) {
        let size = self.common.node_bytes;
        let at = self.chunks.places(bytenr, size as u64).expect("a place")[0];
        let mut bytes = vec![0; size];
        view.read_at(at, &mut bytes).expect("within");
        self.blocks.push(at as usize);
        let node = NodeRef::trusted(&bytes);
        for slot in 0..node.len() {
            if node.level() > 0 {
                self.tree(view, node.ptr(slot).expect("a pointer").blockptr.get());
            } else if node.key(slot).expect("a key").kind == kind::ROOT_ITEM {
                let root = RootItem::load(node.data(slot).expect("bytes"), 0).expect("a root");
                self.tree(view, root.bytenr.get());
            }
        }
    }

    /// Damages a part of a block in use and makes its checksum right. Answers where the block is,
    /// what it was, and what was changed.
    pub fn damage(&self, bytes: &mut [u8], rng: &mut Rng) -> (usize, Vec<u8>, String) {
        let at = self.blocks[rng.below(self.blocks.len() as u64) as usize];
        let block = &mut bytes[at..at + self.common.node_bytes];
        let before = block.to_vec();
        let node = NodeRef::trusted(block);
        let (n, level) = (node.len(), node.level());
        let owner = node.header().owner.get().cast_signed();
        let slot = rng.below(n.max(1) as u64) as usize;
        let key = node.key(slot).map_or(String::new(), |k| k.to_string());
        let slot_bytes = if level == 0 { ITEM_BYTES } else { PTR_BYTES };
        let item = node.data(slot).filter(|d| level == 0 && !d.is_empty());
        let (what, from, span) = match (rng.below(10), item) {
            (0, _) => ("header", 48, HEADER_BYTES - 48),
            (1..=2, _) | (_, None) => ("slot", HEADER_BYTES + slot * slot_bytes, slot_bytes),
            (_, Some(item)) => ("item", node.data_at(slot), item.len()),
        };
        // A block that was damaged before may lead out of itself.
        let place = (from + rng.below(span as u64) as usize) % block.len();
        let old = block[place];
        block[place] = match rng.below(4) {
            0 => rng.next_u64() as u8,
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            _ => old ^ (1 << rng.below(8)),
        };
        let said = format!(
            "tree {owner} level {level} {key}: {what} byte {}: {old:#04x} -> {:#04x}",
            place.wrapping_sub(from),
            block[place]
        );
        self.common.csum.seal(block);
        (at, before, said)
    }
}
