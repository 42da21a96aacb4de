//! The few changes that cleaning up after a crash takes: freeing blocks and inodes, shortening
//! files.
//!
//! Works on an overlay; descriptors and bitmaps of blocks are changed in memory and written by
//! [`Editor::finish`].

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};
use wp_medium::Overlay;
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::extent::ExtentEntries;
use crate::disk::inode::flag;
use crate::disk::xattr::{self, XattrHeader};
use crate::disk::{
    Checksums, Extent, ExtentHeader, ExtentIdx, ExtentNode, GroupDesc, Inode, SuperBlock,
};

use super::{FileMap, Image, InodeRecord};

/// An open file system whose overlay is being changed.
pub(super) struct Editor<'a> {
    image: Image<'a>,
    dev: &'a Overlay<'a>,
    changed: BTreeSet<u32>,
    /// Block bitmaps of groups that were read.
    bitmaps: BTreeMap<u32, Vec<u8>>,
}

impl<'a> Editor<'a> {
    /// An image that was opened over `dev`, and has not changed since.
    pub(super) fn over(image: Image<'a>, dev: &'a Overlay<'a>) -> Editor<'a> {
        Editor { image, dev, changed: BTreeSet::new(), bitmaps: BTreeMap::new() }
    }

    /// Marks the file system as having errors (`EXT4_ERROR_FS`).
    pub(super) fn mark_errors(&mut self) {
        let state = self.image.sb.state.get();
        self.image.sb.state = (state | SuperBlock::STATE_ERROR).into();
    }

    pub(super) fn into_image(self) -> Image<'a> {
        self.image
    }
    pub(super) fn image(&self) -> &Image<'a> {
        &self.image
    }
    pub(super) fn super_block(&mut self) -> &mut SuperBlock {
        &mut self.image.sb
    }

    pub(super) fn write_block(&self, block: u64, bytes: &[u8]) -> FsResult<()> {
        self.dev.write_at(self.image.byte_of(block), bytes)
    }

    /// Writes an inode back, sealed.
    pub(super) fn write_inode(&self, record: &mut InodeRecord) -> FsResult<()> {
        record.inode.store(&mut record.raw);
        self.image.sums.seal_inode(record.number, &mut record.raw);
        self.dev.write_at(record.at, &record.raw)
    }

    /// Frees the clusters of `blocks` blocks from `start`; without bigalloc these blocks.
    pub(super) fn free_blocks(&mut self, start: u64, blocks: u64) -> FsResult<()> {
        let (mut at, end) = (self.image.g.cluster_floor(start), start.saturating_add(blocks));
        while at < end {
            let what = "ext4 block bitmap";
            let Some((group, first)) = self.image.g.locate_cluster(at) else {
                return Err(FsError::corrupt(what, "block", 0, at, "a block of the device"));
            };
            let left = self.image.g.clusters_of(end - at);
            let room = u64::from(self.image.g.clusters_in_group(group).saturating_sub(first));
            let n = left.min(room).max(1);
            let desc = self.image.groups.get(group as usize);
            let place = self.image.byte_of(desc.map_or(0, GroupDesc::block_bitmap));
            if self.bits(group)?.is_none() {
                return Err(FsError::corrupt(what, "bg_flags", 0, at, "a bitmap that is in use"));
            }
            if let Some(bits) = self.bitmaps.get_mut(&group) {
                clear_bits(bits, first, n as u32, place, what)?;
            }
            self.change_group(group, |desc| {
                desc.set_free_blocks_count(desc.free_blocks_count().saturating_add(n as u32));
            });
            at += n << self.image.g.cluster_bits;
        }
        Ok(())
    }

    /// [`Editor::free_blocks`] of a part of a file's map, unless blocks that stay may be in the
    /// same clusters: then [`Editor::free_clusters`] does it.
    fn free_part(&mut self, start: u64, blocks: u64) -> FsResult<()> {
        if self.image.g.cluster_bits > 0 { Ok(()) } else { self.free_blocks(start, blocks) }
    }

    /// Frees the clusters that a map has had and has no more.
    fn free_clusters(&mut self, before: &FileMap, after: &FileMap) -> FsResult<()> {
        let bits = self.image.g.cluster_bits;
        if bits == 0 {
            return Ok(());
        }
        let clusters = |map: &FileMap| -> BTreeSet<u64> {
            let runs = map.runs.iter().map(|r| (r.start, u64::from(r.blocks)));
            let all = runs.chain(map.nodes.iter().map(|node| (*node, 1)));
            all.flat_map(|(at, n)| at >> bits..=(at + n - 1) >> bits).collect()
        };
        for cluster in clusters(before).difference(&clusters(after)) {
            self.free_blocks(cluster << bits, 1)?;
        }
        Ok(())
    }

    /// The bitmap of a group's blocks; `None` if it was never written.
    pub(super) fn bits(&mut self, group: u32) -> FsResult<Option<&mut Vec<u8>>> {
        if !self.bitmaps.contains_key(&group) {
            let Some(bits) = self.image.block_bitmap(group)? else { return Ok(None) };
            self.bitmaps.insert(group, bits);
        }
        Ok(self.bitmaps.get_mut(&group))
    }

    /// Takes over the bitmap of a group's blocks, which it did not have.
    pub(super) fn set_bits(&mut self, group: u32, bits: Vec<u8>) {
        self.bitmaps.insert(group, bits);
    }

    /// Frees an inode's number. Its contents are for the caller.
    pub(super) fn free_inode(&mut self, record: &InodeRecord) -> FsResult<()> {
        let what = "ext4 inode bitmap";
        let slot = self.image.g.inode_slot(record.number).ok_or(FsError::Io)?;
        let Some(mut bits) = self.image.inode_bitmap(slot.group)? else {
            let found = record.number.into();
            return Err(FsError::corrupt(what, "bg_flags", 0, found, "a bitmap that is in use"));
        };
        let block = self.image.groups.get(slot.group as usize).map_or(0, GroupDesc::inode_bitmap);
        clear_bits(&mut bits, slot.index, 1, self.image.byte_of(block), what)?;
        self.write_block(block, &bits)?;
        let own = bits.get(..self.image.g.inode_bitmap_bytes()).unwrap_or(&bits);
        let (has_csum, csum) = (self.image.sums.metadata(), self.image.sums.bitmap(own));
        let is_dir = record.inode.is_dir();
        self.change_group(slot.group, |desc| {
            desc.set_free_inodes_count(desc.free_inodes_count().saturating_add(1));
            if is_dir {
                desc.set_used_dirs_count(desc.used_dirs_count().saturating_sub(1));
            }
            if has_csum {
                desc.set_inode_bitmap_csum(csum);
            }
        });
        Ok(())
    }

    /// Is the inode's number in use?
    pub(super) fn is_inode_used(&self, number: u32) -> FsResult<bool> {
        let Some(slot) = self.image.g.inode_slot(number) else { return Ok(false) };
        Ok(self.image.inode_bitmap(slot.group)?.is_some_and(|bits| super::bit(&bits, slot.index)))
    }

    pub(super) fn change_group(&mut self, group: u32, change: impl FnOnce(&mut GroupDesc)) {
        if let Some(desc) = self.image.groups.get_mut(group as usize) {
            change(desc);
            self.image.sums.seal_group_desc(group, desc);
            self.changed.insert(group);
        }
    }

    /// Frees all blocks from logical block `from` on, and the map's own blocks that become empty.
    /// Zeroes what lies behind the size in the last block, as a truncating kernel does. The caller
    /// writes the inode.
    pub(super) fn shorten(&mut self, record: &mut InodeRecord, from: u64) -> FsResult<()> {
        let bs = self.image.block_size();
        if !record.has_map(bs.sectors()) {
            return Ok(());
        }
        let map = self.image.map(record)?;
        let size = record.inode.size();
        let tail = size % u64::from(bs.bytes());
        if from > 0 && tail != 0 {
            let last = u32::try_from(size / u64::from(bs.bytes())).ok();
            if let Some(block) = last.and_then(|last| map.block(last)) {
                let mut bytes = self.image.read_block(block, "ext4 file")?;
                bytes.iter_mut().skip(tail as usize).for_each(|b| *b = 0);
                self.write_block(block, &bytes)?;
            }
        }
        let before = self.image.blocks_of(&map);
        let mut i_block = record.inode.block;
        if record.inode.has(flag::EXTENTS) {
            let seed = self.image.seed_of(record);
            if self.cut_node(&mut i_block, from, seed)? {
                let empty = ExtentHeader::empty(i_block.len(), 0);
                i_block.fill(0);
                empty.write_to_prefix(&mut i_block).map_err(|_| FsError::Io)?;
            }
            record.inode.block = i_block;
        } else {
            let mut logical = 0u64;
            for n in 0..15usize {
                let level = (n as u32 + 1).saturating_sub(Inode::DIRECT_BLOCKS);
                if self.cut_pointer(record.inode.pointer(n), level, &mut logical, from)? {
                    record.inode.set_pointer(n, 0);
                }
            }
        }
        let map_after = self.image.map(record)?;
        self.free_clusters(&map, &map_after)?;
        let after = self.image.blocks_of(&map_after);
        let unit = if record.inode.has(flag::HUGE_FILE) { 1 } else { u64::from(bs.sectors()) };
        let freed = before.saturating_sub(after).saturating_mul(unit);
        record.inode.set_blocks_raw(record.inode.blocks_raw().saturating_sub(freed));
        Ok(())
    }

    /// Drops what lies at `from` or behind it from the extent node `bytes`. Is it empty now?
    /// `map()` has verified the whole tree.
    fn cut_node(&mut self, bytes: &mut [u8], from: u64, seed: u32) -> FsResult<bool> {
        let copy = bytes.to_vec();
        let node = ExtentNode::verify(&copy, 0, None)?;
        let mut kept = 0u16;
        let mut slots: Vec<u8> = Vec::new();
        match node.entries() {
            ExtentEntries::Leaf(leaf) => {
                for e in leaf {
                    let stay = from.saturating_sub(e.logical().into()).min(e.blocks().into());
                    let gone = u64::from(e.blocks()) - stay;
                    self.free_part(e.start() + stay, gone)?;
                    if stay > 0 {
                        let e = Extent::new(e.logical(), e.start(), stay as u32, e.is_unwritten());
                        slots.extend_from_slice(e.as_bytes());
                        kept += 1;
                    }
                }
            }
            ExtentEntries::Inner(inner) => {
                for (n, e) in inner.iter().enumerate() {
                    let end = inner.get(n + 1).map_or(u64::MAX, |next| next.logical().into());
                    let mut is_empty = false;
                    if end > from {
                        let mut child = self.image.read_block(e.leaf(), "ext4 extent node")?;
                        is_empty = self.cut_node(&mut child, from, seed)?;
                        if is_empty {
                            self.free_part(e.leaf(), 1)?;
                        } else {
                            self.image.sums.seal_extent_block(seed, &mut child);
                            self.write_block(e.leaf(), &child)?;
                        }
                    }
                    if !is_empty {
                        slots.extend_from_slice(ExtentIdx::new(e.logical(), e.leaf()).as_bytes());
                        kept += 1;
                    }
                }
            }
        }
        if let Ok((header, room)) = ExtentHeader::mut_from_prefix(bytes) {
            header.entries = kept.into();
            room.iter_mut().zip(&slots).for_each(|(to, from)| *to = *from);
        }
        Ok(kept == 0)
    }

    /// Frees what pointer `to` reaches at `from` or behind it. Is the pointer to be cleared?
    fn cut_pointer(&mut self, to: u32, level: u32, logical: &mut u64, from: u64) -> FsResult<bool> {
        let per_block = self.image.block_bytes() as u64 / 4;
        let start = *logical;
        let end = start + per_block.pow(level);
        if to == 0 || end <= from {
            *logical = end;
            return Ok(false);
        }
        if level == 0 {
            *logical = end;
            self.free_part(to.into(), 1)?;
            return Ok(true);
        }
        let mut bytes = self.image.read_block(to.into(), "ext4 indirect block")?;
        let (pointers, _) = bytes.as_chunks_mut::<4>();
        for p in pointers {
            if self.cut_pointer(u32::from_le_bytes(*p), level - 1, logical, from)? {
                *p = [0; 4];
            }
        }
        if start >= from {
            self.free_part(to.into(), 1)?;
            return Ok(true);
        }
        self.write_block(to.into(), &bytes)?;
        Ok(false)
    }

    /// Gives up an inode's attribute block: one owner less, or free.
    ///
    /// Errors: `Unsupported` if a value lies in an inode of its own.
    pub(super) fn drop_attributes(&mut self, record: &mut InodeRecord) -> FsResult<()> {
        let block = record.inode.file_acl();
        for area in
            self.image.inode_attributes(record)?.iter().chain(&self.image.block_attributes(record)?)
        {
            if area.entries()?.iter().any(|e| e.header.value_inum.get() != 0) {
                return Err(FsError::Unsupported(
                    "deleting an orphan with attributes in inodes".to_owned(),
                ));
            }
        }
        if block == 0 {
            return Ok(());
        }
        let mut bytes = self.image.read_block(block, "ext4 xattr block")?;
        let (header, _) = XattrHeader::mut_from_prefix(&mut bytes).map_err(|_| FsError::Io)?;
        let owners = header.refcount.get();
        if owners > 1 {
            header.refcount = (owners - 1).min(xattr::REFCOUNT_MAX).into();
            self.image.sums.seal_xattr_block(block, &mut bytes);
            self.write_block(block, &bytes)?;
        } else {
            self.free_blocks(block, 1)?;
        }
        record.inode.set_file_acl(0);
        let unit: u64 = if record.inode.has(flag::HUGE_FILE) {
            1
        } else {
            self.image.block_size().sectors().into()
        };
        let unit = unit << self.image.g.cluster_bits;
        record.inode.set_blocks_raw(record.inode.blocks_raw().saturating_sub(unit));
        Ok(())
    }

    /// Writes bitmaps, descriptors and super block.
    pub(super) fn finish(&mut self) -> FsResult<()> {
        for (group, bits) in std::mem::take(&mut self.bitmaps) {
            // A bitmap that was only read is unchanged.
            if !self.changed.contains(&group) {
                continue;
            }
            let block = self.image.groups.get(group as usize).map_or(0, GroupDesc::block_bitmap);
            self.write_block(block, &bits)?;
            let own = bits.get(..self.image.g.block_bitmap_bytes()).unwrap_or(&bits);
            let (has_csum, csum) = (self.image.sums.metadata(), self.image.sums.bitmap(own));
            self.change_group(group, |desc| {
                if has_csum {
                    desc.set_block_bitmap_csum(csum);
                }
            });
        }
        let free: u64 = self.image.groups.iter().map(|d| u64::from(d.free_blocks_count())).sum();
        let free_blocks = free << self.image.g.cluster_bits;
        let free_inodes =
            self.image.groups.iter().map(|d| u64::from(d.free_inodes_count())).sum::<u64>();
        for group in &self.changed {
            let Some(desc) = self.image.groups.get(*group as usize) else { continue };
            let (block, offset) = self.image.g.desc_place(*group);
            let mut bytes = vec![0u8; usize::from(self.image.g.desc_bytes).min(GroupDesc::BYTES)];
            desc.store(&mut bytes);
            self.dev.write_at(self.image.byte_of(block) + offset as u64, &bytes)?;
        }
        self.image.sb.set_free_blocks_count(free_blocks);
        self.image.sb.free_inodes_count = u32::try_from(free_inodes).unwrap_or(u32::MAX).into();
        if self.image.sums.metadata() {
            self.image.sb.checksum = Checksums::super_block(&self.image.sb).into();
        }
        self.dev.write_at(SuperBlock::AT, self.image.sb.as_bytes())
    }
}

/// Clears bits of a bitmap. Errors: `Corrupt` if one of them is clear already.
fn clear_bits(
    bits: &mut [u8],
    first: u32,
    count: u32,
    at: u64,
    what: &'static str,
) -> FsResult<()> {
    for n in first..first.saturating_add(count) {
        let mask = 1u8 << (n % 8);
        match bits.get_mut((n / 8) as usize) {
            Some(byte) if *byte & mask != 0 => *byte &= !mask,
            _ => return Err(FsError::corrupt(what, "bit", at, n.into(), "a bit that is set")),
        }
    }
    Ok(())
}
