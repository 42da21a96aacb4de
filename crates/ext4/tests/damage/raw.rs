//! Damage without regard to fields: bits, bytes, words and whole blocks of every class of metadata.

use std::collections::BTreeMap;

use wp_base::Rng;
use wp_ext4::disk::{GroupDesc, SuperBlock, htree, inode::flag};
use wp_ext4::image::{BlockClass, BlockClasses};
use wp_medium::Overlay;

use super::{Target, get, pick};

/// Blocks of metadata by class.
pub type Blocks = BTreeMap<&'static str, Vec<(u64, BlockClass)>>;

/// Lists the blocks of metadata of a sound image.
pub fn blocks(image: &wp_ext4::image::Image<'_>) -> Blocks {
    let mut out = Blocks::new();
    let all = BlockClasses::of(image).expect("a sound image");
    for (start, blocks, _) in all.runs() {
        for block in start..start + blocks {
            let class = all.class(block);
            let is_log = matches!(class, BlockClass::Journal { log } if log > 0);
            if !is_log && !matches!(class.name(), "data" | "unowned" | "free" | "outside") {
                out.entry(class.name()).or_default().push((block, class));
            }
        }
    }
    out
}

impl Target<'_> {
    /// Damages bits, bytes, words or blocks of some metadata; with `seal` its checksum is made
    /// right again.
    pub(super) fn raw(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let names: Vec<_> = self.blocks.keys().copied().collect();
        let name = *pick(rng, &names);
        let (block, class) = *pick(rng, &self.blocks[name]);
        let bs = self.bs() as usize;
        let mut bytes = get(block * self.bs(), bs, o);
        let what = match rng.below(12) {
            0..=7 => self.small(rng, class, &mut bytes),
            8 => {
                bytes.fill(0);
                "zeroed".to_owned()
            }
            9 => {
                let other = *pick(rng, &names);
                let (from, _) = *pick(rng, &self.blocks[other]);
                bytes = get(from * self.bs(), bs, o);
                format!("a copy of block {from}")
            }
            10 => {
                let by = [4, 8, 12, 32, 128, 256, 512][rng.below(7) as usize] % bs;
                if rng.below(2) == 0 {
                    bytes.rotate_left(by)
                } else {
                    bytes.rotate_right(by)
                }
                format!("shifted by {by}")
            }
            _ => {
                // A torn write: some sectors are of another time, all zero or another block.
                let (from, _) = *pick(rng, &self.blocks[name]);
                let old =
                    if rng.below(2) == 0 { vec![0; bs] } else { get(from * self.bs(), bs, o) };
                let cut = 512 * (1 + rng.below(bs as u64 / 512 - 1)) as usize;
                bytes[cut..].copy_from_slice(&old[cut..]);
                format!("torn at byte {cut}, rest of {from} or zero")
            }
        };
        o.write_at(block * self.bs(), &bytes).expect("written");
        if seal {
            self.reseal(o, block, class);
        }
        format!("raw {name} block {block}: {what}")
    }

    /// Exchanges two blocks of one class.
    pub(super) fn swap(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let names: Vec<_> = self.blocks.keys().copied().collect();
        let name = *pick(rng, &names);
        let ((a, _), (b, _)) = (*pick(rng, &self.blocks[name]), *pick(rng, &self.blocks[name]));
        let bs = self.bs() as usize;
        let (one, other) = (get(a * self.bs(), bs, o), get(b * self.bs(), bs, o));
        o.write_at(a * self.bs(), &other).expect("written");
        o.write_at(b * self.bs(), &one).expect("written");
        format!("raw {name} blocks {a} and {b}: swapped")
    }

    /// A bit, a byte or a word; more likely where something stands.
    fn small(&self, rng: &mut Rng, class: BlockClass, bytes: &mut [u8]) -> String {
        let len = bytes.len() as u64;
        let mut at = rng.below(len) as usize;
        for _ in 0..6 {
            if bytes[at] != 0 {
                break;
            }
            at = rng.below(len) as usize;
        }
        if let (BlockClass::InodeTable { group, index }, true) = (class, rng.below(4) != 0) {
            // Inodes in use.
            let g = self.image.geometry();
            let per = g.block_size.bytes() / u32::from(g.inode_bytes);
            let first = group * g.inodes_per_group + index * per + 1;
            let here: Vec<_> =
                self.inodes.iter().filter(|r| (first..first + per).contains(&r.number)).collect();
            if !here.is_empty() {
                let n = (pick(rng, &here).number - first) as usize;
                let size = usize::from(g.inode_bytes);
                at = n * size + rng.below(size.min(160) as u64) as usize;
            }
        }
        match rng.below(4) {
            0 | 1 => {
                let bit = rng.below(8);
                bytes[at] ^= 1 << bit;
                format!("byte {at}, bit {bit}")
            }
            2 => {
                bytes[at] = rng.next_u64() as u8;
                format!("byte {at} -> {:#x}", bytes[at])
            }
            _ => {
                let at = at & !3;
                let new = match rng.below(3) {
                    0 => u32::MAX,
                    1 => 0,
                    _ => rng.next_u64() as u32,
                };
                bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
                format!("word {at} -> {new:#x}")
            }
        }
    }

    /// Makes the checksums of a block right again, so that what they protect is looked at.
    fn reseal(&self, o: &Overlay<'_>, block: u64, class: BlockClass) {
        let (g, sums, bs) = (self.image.geometry(), self.image.checksums(), self.bs());
        let mut bytes = get(block * bs, bs as usize, o);
        let owner = |ino: u32| self.inodes.iter().find(|r| r.number == ino);
        match class {
            BlockClass::SuperBlock { group: 0 } => {
                let mut sb = get(SuperBlock::AT, SuperBlock::BYTES, o);
                self.put_super(o, &mut sb, true);
                return;
            }
            BlockClass::GroupDescriptors { group: 0, .. } => {
                for n in (0..g.groups).filter(|n| g.desc_place(*n).0 == block) {
                    let mut desc = self.group_bytes(o, n);
                    self.put_group(o, n, &mut desc, true);
                }
                return;
            }
            BlockClass::BlockBitmap { group } | BlockClass::InodeBitmap { group } => {
                if sums.metadata() {
                    let mut raw = self.group_bytes(o, group);
                    let mut desc = GroupDesc::load(&raw);
                    if matches!(class, BlockClass::BlockBitmap { .. }) {
                        desc.set_block_bitmap_csum(sums.bitmap(&bytes[..g.block_bitmap_bytes()]));
                    } else {
                        desc.set_inode_bitmap_csum(sums.bitmap(&bytes[..g.inode_bitmap_bytes()]));
                    }
                    desc.store(&mut raw);
                    self.put_group(o, group, &mut raw, true);
                }
                return;
            }
            BlockClass::InodeTable { group, index } => {
                let size = usize::from(g.inode_bytes);
                let per = bs as u32 / size as u32;
                let first = group * g.inodes_per_group + index * per + 1;
                for (n, raw) in (first..).zip(bytes.chunks_exact_mut(size)) {
                    if raw.iter().any(|b| *b != 0) {
                        sums.seal_inode(n, raw);
                    }
                }
            }
            BlockClass::Directory { ino, .. } => {
                let Some(r) = owner(ino) else { return };
                match htree::entries_at(&bytes).filter(|_| r.inode.has(flag::INDEX)) {
                    Some(from) => {
                        if sums.htree_block(0, &bytes, from).is_some() {
                            sums.seal_htree_block(self.seed(r), &mut bytes, from);
                        }
                    }
                    None => sums.seal_dir_block(self.seed(r), &mut bytes),
                }
            }
            BlockClass::MapNode { ino } => {
                let Some(r) = owner(ino).filter(|r| r.inode.has(flag::EXTENTS)) else { return };
                if sums.extent_block(0, &bytes).is_some() {
                    sums.seal_extent_block(self.seed(r), &mut bytes);
                }
            }
            BlockClass::Xattr { .. } => sums.seal_xattr_block(block, &mut bytes),
            BlockClass::OrphanFile { .. } => {
                let number = self.image.super_block().orphan_file_inum.get();
                let Some(r) = owner(number).filter(|_| sums.metadata()) else { return };
                let sum = sums.orphan_block(self.seed(r), block, &bytes);
                let at = bytes.len() - 4;
                bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            }
            _ => return,
        }
        o.write_at(block * bs, &bytes).expect("written");
    }
}
