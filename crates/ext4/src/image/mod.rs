//! Reading a file system: purely, synchronously, from any [`View`], and never trusting it.
//!
//! Picture:    [`Image`] = super block + descriptors; inode -> [`FileMap`] -> bytes, names,
//!             attributes; [`recover()`] replays journal and orphans into an overlay; [`inspect`]
//!             lists the result; [`BlockClasses`] says what every block is.
//! Invariants: 1. no bytes make it panic, and no walk is longer than the image is large.
//!             2. nothing here writes, but [`recover()`] into the overlay that it is given.
//!             3. an error says where in the image it lies.
//! Left out:   encryption, compression: `Unsupported`.

#![deny(clippy::indexing_slicing)]

mod classes;
mod dirs;
mod editor;
mod fast_commit;
mod files;
mod list;
mod map;
mod mount;
mod orphans;
mod recovery;
mod survey;
mod xattrs;

use wp_base::{BlockSize, FsError, FsResult};
use wp_medium::View;

use crate::disk::feature::{self, incompat};
use crate::disk::inode::flag;
use crate::disk::{Checksums, Geometry, GroupDesc, Inode, InodeExtra, SuperBlock};

pub use classes::{BlockClass, BlockClasses};
pub use dirs::{DirName, Listing};
pub use fast_commit::FastCommits;
pub use list::{InspectOptions, Inspection, inspect, list};
pub use map::{FileMap, Run};
pub use recovery::{
    AtMount, Recovery, Stage, log_map, recover, recover_at_mount, recover_staged, replay_journal,
};
pub use survey::survey;

/// Incompatible features with which we can read a file system.
pub const INCOMPAT_READABLE: u32 = incompat::FILETYPE
    | incompat::RECOVER
    | incompat::EXTENTS
    | incompat::BIT64
    | incompat::MMP
    | incompat::FLEX_BG
    | incompat::EA_INODE
    | incompat::CSUM_SEED
    | incompat::LARGEDIR
    | incompat::INLINE_DATA
    | incompat::CASEFOLD;

/// An opened file system.
pub struct Image<'a> {
    view: &'a dyn View,
    sb: SuperBlock,
    g: Geometry,
    sums: Checksums,
    groups: Vec<GroupDesc>,
}

/// An inode with all its bytes.
#[derive(Clone, Debug)]
pub struct InodeRecord {
    /// Its number.
    pub number: u32,
    /// Where it lies, in bytes from the start of the image.
    pub at: u64,
    /// All its bytes.
    pub raw: Vec<u8>,
    /// The first 128 of them.
    pub inode: Inode,
    /// The fields after those; zero where it has none.
    pub extra: InodeExtra,
}

impl<'a> Image<'a> {
    /// Opens the file system in `view`.
    ///
    /// Errors: `Corrupt` for a wrong super block or descriptor (magic, checksum, contradictions, an
    ///         image that is shorter than its file system); `Unsupported` for features that we
    ///         cannot read.
    pub fn open(view: &'a dyn View) -> FsResult<Image<'a>> {
        Image::open_after(view, None)
    }

    /// The same file system as it stands now. What has not changed is not checked again. Errors: as
    /// [`Image::open`].
    fn again(&self) -> FsResult<Image<'a>> {
        Image::open_after(self.view, Some(self))
    }

    /// The same file system, read from what lies over its view and has not changed it yet.
    fn over<'b>(&self, view: &'b dyn View) -> Image<'b> {
        let Image { sb, g, sums, groups, .. } = self;
        Image { view, sb: *sb, g: *g, sums: *sums, groups: groups.clone() }
    }

    fn open_after(view: &'a dyn View, before: Option<&Image<'_>>) -> FsResult<Image<'a>> {
        let mut bytes = [0u8; SuperBlock::BYTES];
        let end = SuperBlock::AT + SuperBlock::BYTES as u64;
        if view.len_bytes() < end {
            return Err(too_short(view.len_bytes(), end));
        }
        view.read_at(SuperBlock::AT, &mut bytes)?;
        let sb = SuperBlock::load(&bytes).ok_or(FsError::Io)?;
        sb.verify(SuperBlock::AT)?;
        let unknown = sb.feature_incompat.get() & !INCOMPAT_READABLE;
        if unknown != 0 {
            let names = feature::names(unknown, incompat::NAMES);
            return Err(FsError::Unsupported(format!("ext4 with incompatible feature {names}")));
        }
        let g = Geometry::from_super(&sb)?;
        if g.bytes() > view.len_bytes() {
            return Err(too_short(view.len_bytes(), g.bytes()));
        }
        let mut image = Image { view, sb, g, sums: Checksums::of(&sb), groups: Vec::new() };
        image.groups = image.read_groups(before)?;
        Ok(image)
    }

    /// The super block as it stands in the image.
    pub fn super_block(&self) -> &SuperBlock {
        &self.sb
    }
    /// Its layout.
    pub fn geometry(&self) -> &Geometry {
        &self.g
    }
    /// How its metadata is sealed.
    pub fn checksums(&self) -> &Checksums {
        &self.sums
    }
    /// All group descriptors.
    pub fn groups(&self) -> &[GroupDesc] {
        &self.groups
    }
    /// What it is read from.
    pub fn view(&self) -> &'a dyn View {
        self.view
    }

    fn block_size(&self) -> BlockSize {
        self.g.block_size
    }

    /// Block size in bytes, for lengths in memory.
    fn block_bytes(&self) -> usize {
        self.g.block_size.bytes() as usize
    }

    /// Byte address of a block. The caller has checked that the block exists.
    fn byte_of(&self, block: u64) -> u64 {
        block * u64::from(self.g.block_size.bytes())
    }

    /// A block's bytes. Errors: `Corrupt`, naming `structure`, for a block beyond the file system.
    pub fn read_block(&self, block: u64, structure: &'static str) -> FsResult<Vec<u8>> {
        if block >= self.g.blocks_count {
            let expected = format!("less than {}", self.g.blocks_count);
            return Err(FsError::corrupt(structure, "block", 0, block, expected));
        }
        let mut bytes = vec![0u8; self.block_bytes()];
        self.view.read_at(self.byte_of(block), &mut bytes)?;
        Ok(bytes)
    }

    /// Reads and checks all descriptors. Source: `ext4_check_descriptors`.
    fn read_groups(&self, before: Option<&Image<'_>>) -> FsResult<Vec<GroupDesc>> {
        let g = &self.g;
        let is_flex = |image: &Image<'_>| image.sb.has_incompat(incompat::FLEX_BG);
        let like = |b: &&Image<'_>| (b.g, b.sums, is_flex(b)) == (self.g, self.sums, is_flex(self));
        let known = before.filter(like).map_or(&[][..], |b| &b.groups);
        let mut groups = Vec::with_capacity(g.groups as usize);
        let mut table = (u64::MAX, Vec::new());
        for n in 0..g.groups {
            let (block, offset) = g.desc_place(n);
            if table.0 != block {
                table = (block, self.read_block(block, "ext4 group descriptors")?);
            }
            let bytes = table
                .1
                .get(offset..)
                .and_then(|b| b.get(..usize::from(g.desc_bytes)))
                .unwrap_or(&[]);
            let desc = GroupDesc::load(bytes);
            if known.get(n as usize) == Some(&desc) {
                groups.push(desc);
                continue;
            }
            let at = self.byte_of(block) + offset as u64;
            let wrong = |field, found: u64, expected: String| {
                Err(FsError::corrupt("ext4 group descriptor", field, at, found, expected))
            };
            if !self.sums.group_desc_ok(n, &desc) {
                let right = self.sums.group_desc(n, &desc);
                return wrong(
                    "bg_checksum",
                    desc.checksum.get().into(),
                    format!("{right:#x} (group {n})"),
                );
            }
            // The first block of all is the super block's; that of another group may be a bitmap.
            let (first, last) = if n == 0 || self.sb.has_incompat(incompat::FLEX_BG) {
                let end = g.group_start(0) + u64::from(g.blocks_in_group(0));
                let flex = self.sb.has_incompat(incompat::FLEX_BG);
                (u64::from(g.first_data_block) + 1, if flex { g.blocks_count } else { end })
            } else {
                (g.group_start(n), g.group_start(n) + u64::from(g.blocks_in_group(n)))
            };
            let places = [
                ("bg_block_bitmap", desc.block_bitmap(), 1),
                ("bg_inode_bitmap", desc.inode_bitmap(), 1),
                ("bg_inode_table", desc.inode_table(), u64::from(g.itable_blocks)),
            ];
            for (field, block, blocks) in places {
                if block < first || block.checked_add(blocks).is_none_or(|end| end > last) {
                    return wrong(field, block, format!("{blocks} blocks within {first}..{last}"));
                }
            }
            groups.push(desc);
        }
        Ok(groups)
    }

    /// Reads an inode that a name leads to. Errors: as [`Image::inode`]; also `Corrupt` if it was
    /// deleted (`ext4_lookup`: "deleted inode referenced").
    pub fn named_inode(&self, number: u32) -> FsResult<InodeRecord> {
        let record = self.inode(number)?;
        if record.inode.links_count.get() == 0 {
            let expected = format!("1 or more: the inode has a name (inode {number})");
            return Err(FsError::corrupt("ext4 inode", "i_links_count", record.at, 0, expected));
        }
        Ok(record)
    }

    /// Reads inode `number` and checks its checksum and its shape.
    ///
    /// Errors: `Corrupt`, also for a number that no inode has. A free inode is no error.
    pub fn inode(&self, number: u32) -> FsResult<InodeRecord> {
        let record = self.inode_unchecked(number)?;
        if !self.sums.inode_ok(number, &record.raw) {
            let right = self.sums.inode(number, &record.raw);
            let found = u64::from(record.inode.checksum_lo.get())
                | u64::from(record.extra.checksum_hi.get()) << 16;
            let expected = format!("{right:#x} (inode {number})");
            return Err(FsError::corrupt("ext4 inode", "i_checksum", record.at, found, expected));
        }
        let isize = record.extra.extra_isize.get();
        let room = self.g.inode_bytes - Inode::BYTES as u16;
        if isize > room || isize % 4 != 0 {
            let expected = format!("a multiple of 4, at most {room}");
            return Err(FsError::corrupt(
                "ext4 inode",
                "i_extra_isize",
                record.at,
                isize.into(),
                expected,
            ));
        }
        Ok(record)
    }

    /// Reads inode `number` without a look at what it holds.
    fn inode_unchecked(&self, number: u32) -> FsResult<InodeRecord> {
        let group_of = |slot: &crate::disk::InodeSlot| self.groups.get(slot.group as usize);
        let slot = self.g.inode_slot(number);
        let Some((slot, desc)) = slot.and_then(|slot| Some((slot, group_of(&slot)?))) else {
            let expected = format!("1 to {}", self.g.inodes_count);
            return Err(FsError::corrupt("ext4 inode", "number", 0, number.into(), expected));
        };
        let block = desc.inode_table() + u64::from(slot.table_block);
        let at = self.byte_of(block) + u64::from(slot.offset);
        let mut raw = vec![0u8; self.g.inode_bytes.into()];
        self.view.read_at(at, &mut raw)?;
        let inode = Inode::load(&raw).ok_or(FsError::Io)?;
        let extra = InodeExtra::load(&raw);
        Ok(InodeRecord { number, at, raw, inode, extra })
    }

    /// Seed of the checksums of everything that belongs to `record`.
    fn seed_of(&self, record: &InodeRecord) -> u32 {
        self.sums.inode_seed(record.number, record.inode.generation.get())
    }

    /// Is a block marked as in use? Groups whose bitmap was never written count their own metadata
    /// only.
    fn block_bitmap(&self, group: u32) -> FsResult<Option<Vec<u8>>> {
        let Some(desc) = self.groups.get(group as usize) else { return Ok(None) };
        if self.sums.descriptors() && desc.has(GroupDesc::BLOCK_UNINIT) {
            return Ok(None);
        }
        let bits = self.read_block(desc.block_bitmap(), "ext4 block bitmap")?;
        let own = bits.get(..self.g.block_bitmap_bytes()).unwrap_or(&bits);
        if !self.sums.bitmap_ok(own, desc.block_bitmap_csum()) {
            return Err(self.wrong_bitmap(
                "ext4 block bitmap",
                desc.block_bitmap(),
                own,
                desc.block_bitmap_csum(),
            ));
        }
        Ok(Some(bits))
    }

    /// The bits of a group's inodes; `None` if they were never written.
    fn inode_bitmap(&self, group: u32) -> FsResult<Option<Vec<u8>>> {
        let Some(desc) = self.groups.get(group as usize) else { return Ok(None) };
        if self.sums.descriptors() && desc.has(GroupDesc::INODE_UNINIT) {
            return Ok(None);
        }
        let bits = self.read_block(desc.inode_bitmap(), "ext4 inode bitmap")?;
        let own = bits.get(..self.g.inode_bitmap_bytes()).unwrap_or(&bits);
        if !self.sums.bitmap_ok(own, desc.inode_bitmap_csum()) {
            return Err(self.wrong_bitmap(
                "ext4 inode bitmap",
                desc.inode_bitmap(),
                own,
                desc.inode_bitmap_csum(),
            ));
        }
        Ok(Some(bits))
    }

    fn wrong_bitmap(
        &self,
        structure: &'static str,
        block: u64,
        bits: &[u8],
        stored: u32,
    ) -> FsError {
        let right = format!("{:#x}", self.sums.bitmap(bits));
        FsError::corrupt(structure, "checksum", self.byte_of(block), stored.into(), right)
    }

    /// Numbers of the inodes that are in use.
    ///
    /// Errors: `Corrupt` for a bitmap with a wrong checksum.
    pub fn used_inodes(&self) -> FsResult<Vec<u32>> {
        let mut out = Vec::new();
        for group in 0..self.g.groups {
            let Some(bits) = self.inode_bitmap(group)? else { continue };
            let first = group * self.g.inodes_per_group + 1;
            out.extend((0..self.g.inodes_per_group).filter(|n| bit(&bits, *n)).map(|n| first + n));
        }
        Ok(out)
    }
}

impl InodeRecord {
    /// Does `i_block` map blocks (and not hold a link, inline data or a device number)?
    fn has_map(&self, sectors_per_block: u32) -> bool {
        self.can_be_truncated(sectors_per_block) && !self.inode.has(flag::INLINE_DATA)
    }

    /// Is it of a kind that has a length to cut? Source: `ext4_can_truncate`.
    fn can_be_truncated(&self, sectors_per_block: u32) -> bool {
        let i = &self.inode;
        i.is_file() || i.is_dir() || i.is_symlink() && !i.is_fast_symlink(sectors_per_block)
    }
}

fn bit(bits: &[u8], n: u32) -> bool {
    bits.get((n / 8) as usize).is_some_and(|byte| byte >> (n % 8) & 1 == 1)
}

fn too_short(bytes: u64, need: u64) -> FsError {
    FsError::corrupt("ext4 image", "length", 0, bytes, format!("{need} bytes or more"))
}
