//! Checksums of all structures.
//!
//! Two schemes exist: `uninit_bg` guards group descriptors with a CRC-16, `metadata_csum`
//! everything with a CRC-32C. Each CRC-32C starts from the file system's seed, and where a
//! structure belongs to an inode goes on over that inode's number and generation, so that a block
//! of another file is not taken for this one's.
//! Source: Linux Documentation/filesystems/ext4/checksums.rst.

use wp_base::crc::{crc16, crc32c};
use zerocopy::{FromBytes, IntoBytes};

use super::htree::{DxCountLimit, ENTRY_BYTES};
use super::{
    DirEntryTail, ExtentHeader, ExtentNode, GroupDesc, Inode, InodeExtra, SuperBlock, hi16,
    incompat, lo16, ro_compat,
};
use crate::site;

/// How a file system seals its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksums {
    kind: Kind,
    desc_bytes: usize,
    inode_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    None,
    /// CRC-16 of descriptors, continuing from that of the UUID.
    Descriptors {
        seed: u16,
    },
    /// CRC-32C of everything, from this seed.
    Metadata {
        seed: u32,
    },
}

impl Checksums {
    /// As the super block demands.
    pub fn of(sb: &SuperBlock) -> Checksums {
        let kind = if sb.has_metadata_csum() {
            let seed = if sb.has_incompat(incompat::CSUM_SEED) {
                sb.checksum_seed.get()
            } else {
                crc32c(!0, &sb.uuid)
            };
            Kind::Metadata { seed }
        } else if sb.has_ro_compat(ro_compat::GDT_CSUM) {
            Kind::Descriptors { seed: crc16(!0, &sb.uuid) }
        } else {
            Kind::None
        };
        Checksums { kind, desc_bytes: sb.desc_bytes().into(), inode_bytes: sb.inode_bytes().into() }
    }

    /// Does all metadata have checksums?
    pub fn metadata(&self) -> bool {
        matches!(self.kind, Kind::Metadata { .. })
    }

    /// Do group descriptors have checksums, and flags of what is uninitialised?
    pub fn descriptors(&self) -> bool {
        self.kind != Kind::None
    }

    fn seed(&self) -> u32 {
        match self.kind {
            Kind::Metadata { seed } => seed,
            _ => 0,
        }
    }

    /// `s_checksum`: from all ones, over all before it.
    pub fn super_block(sb: &SuperBlock) -> u32 {
        let bytes = sb.as_bytes();
        crc32c(!0, bytes.get(..SuperBlock::BYTES - 4).unwrap_or(bytes))
    }

    /// `bg_checksum` of descriptor `group`; 0 without checksums.
    pub fn group_desc(&self, group: u32, desc: &GroupDesc) -> u16 {
        const NUMBER: usize = size_of::<u32>();
        let mut bytes = [0u8; NUMBER + GroupDesc::BYTES];
        let (number, stored) = bytes.split_at_mut(NUMBER);
        number.copy_from_slice(&group.to_le_bytes());
        desc.store(stored);
        // Descriptors larger than our structure would end in zeroes that we do not keep; none
        // exist.
        let end = NUMBER + self.desc_bytes.clamp(GroupDesc::SHORT_BYTES, GroupDesc::BYTES);
        let at = NUMBER + GroupDesc::CHECKSUM_AT;
        let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or(&[]);
        match self.kind {
            Kind::None => 0,
            Kind::Descriptors { seed } => crc16(crc16(seed, part(0, at)), part(at + 2, end)),
            Kind::Metadata { seed } => {
                // Taken as zero, in one piece: that is much faster than four.
                if let Some(own) = bytes.get_mut(at..at + 2) {
                    own.fill(0);
                }
                lo16(crc32c(seed, bytes.get(..end).unwrap_or(&[])))
            }
        }
    }

    /// Sets the checksum of descriptor `group`.
    pub fn seal_group_desc(&self, group: u32, desc: &mut GroupDesc) {
        if self.descriptors() && site::GROUP_CHECKSUM.on() {
            desc.checksum = self.group_desc(group, desc).into();
        }
    }

    /// Has descriptor `group` the right checksum, or none to have?
    pub fn group_desc_ok(&self, group: u32, desc: &GroupDesc) -> bool {
        !self.descriptors() || desc.checksum.get() == self.group_desc(group, desc)
    }

    /// Checksum of a bitmap, 0 without one. `bytes`: one bit a block or inode of a full group, not
    /// the rest of the block.
    pub fn bitmap(&self, bytes: &[u8]) -> u32 {
        if self.metadata() { crc32c(self.seed(), bytes) } else { 0 }
    }

    /// Does a bitmap fit the checksum in its descriptor, or has none? A short descriptor holds 16
    /// bits.
    pub fn bitmap_ok(&self, bytes: &[u8], stored: u32) -> bool {
        let mask = if self.desc_bytes < GroupDesc::BYTES { 0xFFFF } else { u32::MAX };
        !self.metadata() || (self.bitmap(bytes) ^ stored) & mask == 0
    }

    /// Checksum of the block of multiple-mount protection; 0 without `metadata_csum`.
    /// `ext4_mmp_csum`.
    pub fn mmp(&self, mmp: &super::mmp::Mmp) -> u32 {
        if self.metadata() { crc32c(self.seed(), mmp.summed()) } else { 0 }
    }

    /// Where the checksums of everything that belongs to an inode start (`i_csum_seed`); 0 without
    /// metadata checksums.
    pub fn inode_seed(&self, ino: u32, generation: u32) -> u32 {
        match self.kind {
            Kind::Metadata { seed } => {
                crc32c(crc32c(seed, &ino.to_le_bytes()), &generation.to_le_bytes())
            }
            _ => 0,
        }
    }

    /// Checksum of inode `ino`, all its bytes being `raw`, with its checksum fields taken as zero.
    pub fn inode(&self, ino: u32, raw: &[u8]) -> u32 {
        let mut bytes = raw.to_vec();
        let generation = Inode::load(raw).map_or(0, |i| i.generation.get());
        self.put_inode_csum(&mut bytes, 0);
        crc32c(self.inode_seed(ino, generation), &bytes)
    }

    /// Has the inode room for the upper half?
    fn has_checksum_hi(&self, raw: &[u8]) -> bool {
        self.inode_bytes > Inode::BYTES
            && InodeExtra::load(raw).extra_isize.get() >= InodeExtra::WITH_CHECKSUM_HI
    }

    fn put_inode_csum(&self, raw: &mut [u8], crc: u32) {
        let has_hi = self.has_checksum_hi(raw);
        if let Ok((inode, rest)) = Inode::mut_from_prefix(raw) {
            inode.checksum_lo = lo16(crc).into();
            if let (true, Some(hi)) = (has_hi, rest.get_mut(2..4)) {
                hi.copy_from_slice(&hi16(crc).to_le_bytes());
            }
        }
    }

    /// Sets the checksum of inode `ino` in all its bytes, `raw`.
    pub fn seal_inode(&self, ino: u32, raw: &mut [u8]) {
        if self.metadata() && site::INODE_CHECKSUM.on() {
            let generation = Inode::load(raw).map_or(0, |i| i.generation.get());
            self.put_inode_csum(raw, 0);
            let crc = crc32c(self.inode_seed(ino, generation), raw);
            self.put_inode_csum(raw, crc);
        }
    }

    /// Has inode `ino` the right checksum, or none to have?
    pub fn inode_ok(&self, ino: u32, raw: &[u8]) -> bool {
        if !self.metadata() {
            return true;
        }
        let Some(inode) = Inode::load(raw) else { return false };
        let crc = self.inode(ino, raw);
        let hi = InodeExtra::load(raw).checksum_hi.get();
        inode.checksum_lo.get() == lo16(crc) && (!self.has_checksum_hi(raw) || hi == hi16(crc))
    }

    /// Checksum of an extent node in a block of its own, `seed` from [`Self::inode_seed`]. `None`
    /// if the header leaves no room for it.
    pub fn extent_block(&self, seed: u32, block: &[u8]) -> Option<u32> {
        let (header, _) = ExtentHeader::read_from_prefix(block).ok()?;
        let tail_at = ExtentNode::tail_at(header.entries_max.get());
        block.get(tail_at..tail_at + 4)?;
        Some(crc32c(seed, block.get(..tail_at)?))
    }

    /// Sets the checksum of an extent node. Panics if the node has no room for it.
    pub fn seal_extent_block(&self, seed: u32, block: &mut [u8]) {
        if self.metadata() && site::EXTENT_CHECKSUM.on() {
            let crc =
                self.extent_block(seed, block).expect("a node that we write has room for its tail");
            let (header, _) = ExtentHeader::read_from_prefix(block).expect("it was just read");
            let at = ExtentNode::tail_at(header.entries_max.get());
            block
                .get_mut(at..at + 4)
                .expect("it was just looked at")
                .copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Has an extent node the right checksum, or none to have?
    pub fn extent_block_ok(&self, seed: u32, block: &[u8]) -> bool {
        if !self.metadata() {
            return true;
        }
        let stored = ExtentHeader::read_from_prefix(block)
            .ok()
            .and_then(|(h, _)| {
                block.get(ExtentNode::tail_at(h.entries_max.get())..)?.first_chunk::<4>()
            })
            .map(|b| u32::from_le_bytes(*b));
        stored.is_some() && stored == self.extent_block(seed, block)
    }

    /// Checksum of a directory block with names: all before its tail.
    pub fn dir_block(&self, seed: u32, block: &[u8]) -> u32 {
        let names = block.len().saturating_sub(DirEntryTail::BYTES);
        crc32c(seed, block.get(..names).unwrap_or(&[]))
    }

    /// Writes the tail of a directory block with names. Panics if the block is shorter than a tail.
    pub fn seal_dir_block(&self, seed: u32, block: &mut [u8]) {
        if self.metadata() && site::DIR_CHECKSUM.on() {
            let crc = self.dir_block(seed, block);
            DirEntryTail::put(block, crc);
        }
    }

    /// Has a directory block with names the right checksum, or none to have?
    pub fn dir_block_ok(&self, seed: u32, block: &[u8]) -> bool {
        !self.metadata()
            || DirEntryTail::find(block)
                .is_some_and(|t| t.checksum.get() == self.dir_block(seed, block))
    }

    /// Checksum of a hash-tree node whose entries start at `entries_at`, and where it stands.
    /// `None` if the node leaves no room for it.
    pub fn htree_block(&self, seed: u32, block: &[u8], entries_at: usize) -> Option<(usize, u32)> {
        let (head, _) = DxCountLimit::read_from_prefix(block.get(entries_at..)?).ok()?;
        let tail_at = entries_at + usize::from(head.limit.get()) * ENTRY_BYTES;
        let used = block.get(..entries_at + usize::from(head.count.get()) * ENTRY_BYTES)?;
        let reserved = block.get(tail_at..tail_at + 4)?;
        block.get(tail_at + 4..tail_at + 8)?;
        Some((tail_at + 4, crc32c(crc32c(crc32c(seed, used), reserved), &[0; 4])))
    }

    /// Sets the checksum of a hash-tree node. Panics if the node has no room for it.
    pub fn seal_htree_block(&self, seed: u32, block: &mut [u8], entries_at: usize) {
        if self.metadata() && site::HTREE_CHECKSUM.on() {
            let (at, crc) = self
                .htree_block(seed, block, entries_at)
                .expect("a node that we write has room for its tail");
            block
                .get_mut(at..at + 4)
                .expect("it was just looked at")
                .copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Has a hash-tree node the right checksum, or none to have?
    pub fn htree_block_ok(&self, seed: u32, block: &[u8], entries_at: usize) -> bool {
        !self.metadata()
            || self.htree_block(seed, block, entries_at).is_some_and(|(at, crc)| {
                block.get(at..).and_then(|b| b.first_chunk::<4>()) == Some(&crc.to_le_bytes())
            })
    }

    /// Checksum of the attribute block `number`, with its checksum field taken as zero.
    pub fn xattr_block(&self, number: u64, block: &[u8]) -> u32 {
        let crc = crc32c(self.seed(), &number.to_le_bytes());
        let crc = crc32c(crc, block.get(..16).unwrap_or(&[]));
        crc32c(crc32c(crc, &[0; 4]), block.get(20..).unwrap_or(&[]))
    }

    /// Sets the checksum of the attribute block `number`. Panics if it is shorter than its header.
    pub fn seal_xattr_block(&self, number: u64, block: &mut [u8]) {
        if self.metadata() && site::XATTR_CHECKSUM.on() {
            let crc = self.xattr_block(number, block);
            block.get_mut(16..20).expect("a whole block").copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Has the attribute block `number` the right checksum, or none to have?
    pub fn xattr_block_ok(&self, number: u64, block: &[u8]) -> bool {
        !self.metadata()
            || block.get(16..).and_then(|b| b.first_chunk::<4>())
                == Some(&self.xattr_block(number, block).to_le_bytes())
    }

    /// Checksum of block `number` of the orphan file, `seed` of the file's inode.
    pub fn orphan_block(&self, seed: u32, number: u64, block: &[u8]) -> u32 {
        crc32c(crc32c(seed, &number.to_le_bytes()), super::orphan::slots(block).as_bytes())
    }
}
