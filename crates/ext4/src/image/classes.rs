//! What every block of an image is.

use std::collections::BTreeMap;

use wp_base::FsResult;

use crate::disk::ino;
use crate::disk::inode::flag;

use super::{FileMap, Image, InodeRecord, bit};

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockClass {
    /// Boot block or super block; the copy of this group.
    SuperBlock {
        /// Its group.
        group: u32,
    },
    /// Group descriptors; the copy of this group.
    GroupDescriptors {
        /// The group in which they lie.
        group: u32,
        /// Which block of them, from 0.
        index: u32,
    },
    /// Kept for more descriptors.
    ReservedDescriptors {
        /// The group in which it lies.
        group: u32,
    },
    /// Bitmap of a group's blocks.
    BlockBitmap {
        /// The group that it describes.
        group: u32,
    },
    /// Bitmap of a group's inodes.
    InodeBitmap {
        /// The group that it describes.
        group: u32,
    },
    /// Part of an inode table.
    InodeTable {
        /// The group that it belongs to.
        group: u32,
        /// Block in the table, from 0.
        index: u32,
    },
    /// Block of the journal.
    Journal {
        /// Block in the log, from 0 (its super block).
        log: u32,
    },
    /// Block of a directory.
    Directory {
        /// Its inode.
        ino: u32,
        /// Block in the directory, from 0.
        logical: u32,
    },
    /// Extent node or indirect block.
    MapNode {
        /// The inode whose blocks it maps.
        ino: u32,
    },
    /// Block of extended attributes.
    Xattr {
        /// An inode that has them.
        ino: u32,
    },
    /// Target of a symbolic link.
    Symlink {
        /// Its inode.
        ino: u32,
    },
    /// Block of the orphan file.
    OrphanFile {
        /// Block in the file, from 0.
        logical: u32,
    },
    /// Contents of a file.
    Data {
        /// Its inode.
        ino: u32,
        /// Block in the file, from 0.
        logical: u32,
    },
    /// In use, but nothing owns it: an error of the image, or of an orphan that was not cleaned up.
    Unowned,
    /// Free.
    Free,
    /// Beyond the file system.
    Outside,
}

impl BlockClass {
    /// A short name for tables: `super`, `gdt`, `reserved_gdt`, `block_bitmap`, `inode_bitmap`,
    /// `inode_table`, `journal`, `directory`, `map_node`, `xattr`, `symlink`, `orphan_file`,
    /// `data`, `unowned`, `free`, `outside`.
    pub const fn name(self) -> &'static str {
        match self {
            BlockClass::SuperBlock { .. } => "super",
            BlockClass::GroupDescriptors { .. } => "gdt",
            BlockClass::ReservedDescriptors { .. } => "reserved_gdt",
            BlockClass::BlockBitmap { .. } => "block_bitmap",
            BlockClass::InodeBitmap { .. } => "inode_bitmap",
            BlockClass::InodeTable { .. } => "inode_table",
            BlockClass::Journal { .. } => "journal",
            BlockClass::Directory { .. } => "directory",
            BlockClass::MapNode { .. } => "map_node",
            BlockClass::Xattr { .. } => "xattr",
            BlockClass::Symlink { .. } => "symlink",
            BlockClass::OrphanFile { .. } => "orphan_file",
            BlockClass::Data { .. } => "data",
            BlockClass::Unowned => "unowned",
            BlockClass::Free => "free",
            BlockClass::Outside => "outside",
        }
    }

    /// The class of the block `n` further on in the same run.
    fn advance(self, n: u32) -> BlockClass {
        match self {
            BlockClass::GroupDescriptors { group, index } => {
                BlockClass::GroupDescriptors { group, index: index.saturating_add(n) }
            }
            BlockClass::InodeTable { group, index } => {
                BlockClass::InodeTable { group, index: index.saturating_add(n) }
            }
            BlockClass::Journal { log } => BlockClass::Journal { log: log.saturating_add(n) },
            BlockClass::Directory { ino, logical } => {
                BlockClass::Directory { ino, logical: logical.saturating_add(n) }
            }
            BlockClass::Symlink { ino } => BlockClass::Symlink { ino },
            BlockClass::OrphanFile { logical } => {
                BlockClass::OrphanFile { logical: logical.saturating_add(n) }
            }
            BlockClass::Data { ino, logical } => {
                BlockClass::Data { ino, logical: logical.saturating_add(n) }
            }
            same => same,
        }
    }
}

/// The class of every block of an image.
///
/// Invariants: runs do not overlap; where an image gives a block to two owners the first one found
///             has it, in
/// the order metadata, then inodes by number.
#[derive(Clone, Debug)]
pub struct BlockClasses {
    blocks_count: u64,
    /// Start -> (blocks, class of the first one).
    runs: BTreeMap<u64, (u64, BlockClass)>,
}

impl BlockClasses {
    /// Classifies all blocks of `image`, as it stands (recover first if the classes after recovery
    /// are wanted).
    ///
    /// Errors: `Corrupt` for bitmaps, inodes and maps that cannot be read.
    pub fn of(image: &Image<'_>) -> FsResult<BlockClasses> {
        let mut all = BlockClasses { blocks_count: image.g.blocks_count, runs: BTreeMap::new() };
        all.metadata(image);
        for number in image.used_inodes()? {
            let record = image.inode_unchecked(number)?;
            if record.inode.mode.get() == 0 && number != ino::RESIZE {
                continue;
            }
            let record = image.inode(number)?;
            let map = image.map(&record)?;
            all.file(image, &record, &map);
        }
        all.unowned(image)?;
        Ok(all)
    }

    /// What `block` is.
    pub fn class(&self, block: u64) -> BlockClass {
        if block >= self.blocks_count {
            return BlockClass::Outside;
        }
        match self.runs.range(..=block).next_back() {
            Some((start, (blocks, class))) if block - start < *blocks => {
                class.advance(u32::try_from(block - start).unwrap_or(u32::MAX))
            }
            _ => BlockClass::Free,
        }
    }

    /// All runs that are not free, in order: (first block, blocks, class of the first block).
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64, BlockClass)> + '_ {
        self.runs.iter().map(|(start, (blocks, class))| (*start, *blocks, *class))
    }

    /// Gives the blocks `start .. start + blocks` to `class`, as far as they have no owner yet.
    fn add(&mut self, start: u64, blocks: u64, class: BlockClass) {
        let end = start.saturating_add(blocks).min(self.blocks_count);
        let mut at = start;
        while at < end {
            let before = self.runs.range(..=at).next_back().map(|(s, (n, _))| s + n);
            if let Some(taken) = before.filter(|taken| *taken > at) {
                at = taken;
                continue;
            }
            let next = self.runs.range(at..).next().map_or(end, |(s, _)| (*s).min(end));
            if next > at {
                let skipped = u32::try_from(at - start).unwrap_or(u32::MAX);
                self.runs.insert(at, (next - at, class.advance(skipped)));
            }
            at = next.max(at + 1);
        }
    }

    fn metadata(&mut self, image: &Image<'_>) {
        let g = &image.g;
        self.add(0, u64::from(g.first_data_block), BlockClass::SuperBlock { group: 0 });
        for group in 0..g.groups {
            if g.has_super(group) {
                let start = g.group_start(group);
                let descs = u64::from(g.gdt_blocks);
                self.add(start, 1, BlockClass::SuperBlock { group });
                self.add(start + 1, descs, BlockClass::GroupDescriptors { group, index: 0 });
                let reserved = u64::from(g.reserved_gdt_blocks);
                self.add(start + 1 + descs, reserved, BlockClass::ReservedDescriptors { group });
            }
            if let Some(desc) = image.groups.get(group as usize) {
                self.add(desc.block_bitmap(), 1, BlockClass::BlockBitmap { group });
                self.add(desc.inode_bitmap(), 1, BlockClass::InodeBitmap { group });
                let table = u64::from(g.itable_blocks);
                self.add(desc.inode_table(), table, BlockClass::InodeTable { group, index: 0 });
            }
        }
    }

    fn file(&mut self, image: &Image<'_>, record: &InodeRecord, map: &FileMap) {
        let number = record.number;
        let orphan_file = image.sb.orphan_file_inum.get();
        for node in &map.nodes {
            self.add(*node, 1, BlockClass::MapNode { ino: number });
        }
        for run in &map.runs {
            let logical = run.logical;
            let class = if number == image.sb.journal_inum.get() {
                BlockClass::Journal { log: logical }
            } else if number == orphan_file && orphan_file != 0 {
                BlockClass::OrphanFile { logical }
            } else if record.inode.is_dir() {
                BlockClass::Directory { ino: number, logical }
            } else if record.inode.is_symlink() {
                BlockClass::Symlink { ino: number }
            } else {
                BlockClass::Data { ino: number, logical }
            };
            self.add(run.start, run.blocks.into(), class);
        }
        let acl = record.inode.file_acl();
        if acl != 0 && !record.inode.has(flag::EA_INODE) && image.g.holds(acl, 1) {
            self.add(acl, 1, BlockClass::Xattr { ino: number });
        }
    }

    /// Clusters that the bitmaps say are in use, and of which nobody has claimed a block.
    fn unowned_clusters(&mut self, image: &Image<'_>, group: u32, bits: &[u8]) {
        let blocks = u64::from(image.g.cluster_blocks());
        for n in (0..image.g.clusters_in_group(group)).filter(|n| bit(bits, *n)) {
            let start = image.g.cluster_start(group, n);
            let before = self.runs.range(..start + blocks).next_back();
            if before.is_none_or(|(s, (n, _))| s + n <= start) {
                self.add(start, blocks, BlockClass::Unowned);
            }
        }
    }

    /// Blocks that the bitmaps say are in use, and that nobody has claimed.
    fn unowned(&mut self, image: &Image<'_>) -> FsResult<()> {
        for group in 0..image.g.groups {
            let Some(bits) = image.block_bitmap(group)? else { continue };
            if image.g.cluster_bits > 0 {
                self.unowned_clusters(image, group, &bits);
                continue;
            }
            let start = image.g.group_start(group);
            let mut run: Option<(u32, u32)> = None;
            for n in 0..=image.g.blocks_in_group(group) {
                let used = n < image.g.blocks_in_group(group) && bit(&bits, n);
                match (&mut run, used) {
                    (Some((_, blocks)), true) => *blocks += 1,
                    (None, true) => run = Some((n, 1)),
                    (Some((first, blocks)), false) => {
                        self.add(start + u64::from(*first), (*blocks).into(), BlockClass::Unowned);
                        run = None;
                    }
                    (None, false) => {}
                }
            }
        }
        Ok(())
    }
}
