//! Damage of the shape of things: cross-linked blocks, loops of directories, wrong counts.

use wp_base::Rng;
use wp_ext4::disk::dir::DirIter;
use wp_ext4::disk::inode::flag;
use wp_ext4::disk::{GroupDesc, ino};
use wp_ext4::image::InodeRecord;
use wp_medium::Overlay;

use super::{Target, get, pick};

impl Target<'_> {
    /// Damages how structures refer to each other.
    pub(super) fn shape(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        match rng.below(11) {
            0 | 1 => self.cross_link(o, rng),
            2 => self.copied_map(o, rng),
            3 => self.links(o, rng),
            4 => self.dot_dot(o, rng),
            5 | 6 => self.swapped_names(o, rng),
            7 => self.lost_name(o, rng),
            8 => self.swapped_inodes(o, rng, seal),
            9 => self.bits(o, rng, seal),
            _ => self.attributes(o, rng),
        }
    }

    /// Any block that something owns.
    fn some_block(&self, rng: &mut Rng) -> u64 {
        if rng.below(2) == 0 {
            let names: Vec<_> = self.blocks.keys().copied().collect();
            let name = *pick(rng, &names);
            return pick(rng, &self.blocks[name]).0;
        }
        for _ in 0..20 {
            let r = pick(rng, &self.inodes);
            let runs = self.image.map(r).map(|m| m.runs).unwrap_or_default();
            if !runs.is_empty() && r.number != ino::RESIZE {
                let run = pick(rng, &runs);
                return run.start + rng.below(run.blocks.into());
            }
        }
        1
    }

    /// A file's first run lies on another's block, or on metadata.
    fn cross_link(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let with: Vec<&InodeRecord> = self
            .inodes
            .iter()
            .filter(|r| (r.inode.is_file() || r.inode.is_dir()) && r.inode.pointer(0) != 0)
            .collect();
        let (r, to) = (*pick(rng, &with), self.some_block(rng));
        let mut raw = r.raw.clone();
        let at = 0x28 + if r.inode.has(flag::EXTENTS) { 20 } else { 4 * rng.below(15) as usize };
        raw[at..at + 4].copy_from_slice(&(to as u32).to_le_bytes());
        self.put_inode(o, r, &mut raw, true);
        format!("inode {} is linked to block {to} at byte {at}", r.number)
    }

    fn copied_map(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let (a, b) = (pick(rng, &self.inodes), pick(rng, &self.inodes));
        let mut raw = a.raw.clone();
        raw[0x28..0x64].copy_from_slice(&b.raw[0x28..0x64]);
        if rng.below(2) == 0 {
            // Its size and flags too.
            raw[4..8].copy_from_slice(&b.raw[4..8]);
            raw[0x1C..0x24].copy_from_slice(&b.raw[0x1C..0x24]);
        }
        self.put_inode(o, a, &mut raw, true);
        format!("inode {} has the map of {}", a.number, b.number)
    }

    fn links(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let r = pick(rng, &self.inodes);
        let mut raw = r.raw.clone();
        let old = r.inode.links_count.get();
        let new = match rng.below(4) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => 0,
            _ => rng.below(70000) as u16,
        };
        raw[0x1A..0x1C].copy_from_slice(&new.to_le_bytes());
        self.put_inode(o, r, &mut raw, true);
        format!("inode {}, links {old} -> {new}", r.number)
    }

    /// (byte address of the entry, its inode, name) of every name; the directory and its block.
    fn names(&self, o: &Overlay<'_>) -> Vec<(usize, u64, usize, u32, Vec<u8>)> {
        let mut out = Vec::new();
        for (n, r) in self.inodes.iter().enumerate().filter(|(_, r)| r.inode.is_dir()) {
            let Ok(map) = self.image.map(r) else { continue };
            for run in &map.runs {
                for block in run.start..run.start + u64::from(run.blocks) {
                    let bytes = get(block * self.bs(), self.bs() as usize, o);
                    for e in DirIter::new(&bytes, 0, u32::MAX).flatten().filter(|e| e.inode != 0) {
                        out.push((n, block, e.offset, e.inode, e.name.to_vec()));
                    }
                }
            }
        }
        out
    }

    fn set_name(&self, o: &Overlay<'_>, dir: usize, block: u64, offset: usize, to: u32) {
        let mut bytes = get(block * self.bs(), self.bs() as usize, o);
        bytes[offset..offset + 4].copy_from_slice(&to.to_le_bytes());
        self.put_dir(o, &self.inodes[dir], block, &mut bytes, true);
    }

    fn dot_dot(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let names: Vec<_> = self.names(o).into_iter().filter(|n| n.4 == b"..").collect();
        if names.is_empty() {
            return self.links(o, rng);
        }
        let (dir, block, offset, _, _) = pick(rng, &names);
        let to = pick(rng, &self.inodes).number;
        self.set_name(o, *dir, *block, *offset, to);
        format!("directory {}: `..` -> {to}", self.inodes[*dir].number)
    }

    /// Two names lead to each other's inodes: loops, if they are of directories.
    fn swapped_names(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let all = self.names(o);
        let is_dir = |n: u32| self.inodes.iter().any(|r| r.number == n && r.inode.is_dir());
        let dirs_only = rng.below(3) != 0;
        let names: Vec<_> = all
            .into_iter()
            .filter(|n| n.4 != b"." && n.4 != b".." && (!dirs_only || is_dir(n.3)))
            .collect();
        if names.is_empty() {
            return self.links(o, rng);
        }
        let (a, b) = (pick(rng, &names).clone(), pick(rng, &names).clone());
        self.set_name(o, a.0, a.1, a.2, b.3);
        let to = if rng.below(2) == 0 { a.3 } else { self.inodes[a.0].number };
        self.set_name(o, b.0, b.1, b.2, to);
        format!(
            "directory {}: a name of {} -> {}; directory {}: a name of {} -> {to}",
            self.inodes[a.0].number, a.3, b.3, self.inodes[b.0].number, b.3
        )
    }

    fn lost_name(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let names = self.names(o);
        if names.is_empty() {
            return self.links(o, rng);
        }
        let (dir, block, offset, number, _) = pick(rng, &names);
        self.set_name(o, *dir, *block, *offset, 0);
        format!("directory {}: a name of {number} is lost", self.inodes[*dir].number)
    }

    fn swapped_inodes(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let (a, b) = (pick(rng, &self.inodes), pick(rng, &self.inodes));
        let (mut one, mut other) = (b.raw.clone(), a.raw.clone());
        if rng.below(3) == 0 {
            one.fill(0);
            self.put_inode(o, a, &mut one, false);
            return format!("inode {} zeroed", a.number);
        }
        self.put_inode(o, a, &mut one, seal);
        self.put_inode(o, b, &mut other, seal);
        format!("inodes {} and {} swapped", a.number, b.number)
    }

    /// Many bits of a bitmap.
    fn bits(&self, o: &Overlay<'_>, rng: &mut Rng, seal: bool) -> String {
        let g = self.image.geometry();
        let n = rng.below(g.groups.into()) as u32;
        let of_blocks = rng.below(2) == 0;
        let desc = self.image.groups()[n as usize];
        let (at, len) = if of_blocks {
            (desc.block_bitmap(), g.block_bitmap_bytes())
        } else {
            (desc.inode_bitmap(), g.inode_bitmap_bytes())
        };
        let mut bytes = get(at * self.bs(), self.bs() as usize, o);
        let from = rng.below(len as u64) as usize;
        let to = (from + 1 + rng.below(64) as usize).min(len);
        let value = [0, 0xFF, 0x55][rng.below(3) as usize];
        bytes[from..to].fill(value);
        o.write_at(at * self.bs(), &bytes).expect("written");
        let sums = self.image.checksums();
        if seal && sums.metadata() {
            let mut raw = self.group_bytes(o, n);
            let mut desc = GroupDesc::load(&raw);
            if of_blocks {
                desc.set_block_bitmap_csum(sums.bitmap(&bytes[..len]));
            } else {
                desc.set_inode_bitmap_csum(sums.bitmap(&bytes[..len]));
            }
            desc.store(&mut raw);
            self.put_group(o, n, &mut raw, true);
        }
        let what = if of_blocks { "block" } else { "inode" };
        format!("group {n}: {what} bitmap, bytes {from}..{to} -> {value:#x}")
    }

    /// An inode gets another's attribute block, or some block, or none.
    fn attributes(&self, o: &Overlay<'_>, rng: &mut Rng) -> String {
        let r = pick(rng, &self.inodes);
        let with: Vec<_> = self.inodes.iter().filter(|r| r.inode.file_acl() != 0).collect();
        let to = match rng.below(4) {
            0 => 0,
            1 => self.some_block(rng),
            _ if with.is_empty() => self.some_block(rng),
            _ => pick(rng, &with).inode.file_acl(),
        };
        let mut raw = r.raw.clone();
        raw[0x68..0x6C].copy_from_slice(&(to as u32).to_le_bytes());
        self.put_inode(o, r, &mut raw, true);
        format!("inode {}, i_file_acl -> {to}", r.number)
    }
}
