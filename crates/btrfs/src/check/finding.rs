//! What a check can find.

use std::fmt::Display;

use wp_vfs::finding::Severity;

use crate::disk::Key;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The first super block is no good: the file system cannot be read.
    SuperBlock,
    /// A copy of the super block is no good; the first one is what counts.
    SuperCopies,
    /// A count in the super block or in the device's item.
    SuperCount,
    /// A chunk, or the place that it says it has.
    Chunk,
    /// A part of the device that belongs to a chunk, or should.
    DevExtent,
    /// A block group: not that of its chunk.
    BlockGroup,
    /// How much of a block group is used.
    BlockGroupUsed,
    /// A tree block that cannot be read or is not the one that leads to it means.
    TreeBlock,
    /// The second copy of a tree block.
    TreeBlockCopy,
    /// Keys of a tree out of order over its blocks.
    KeyOrder,
    /// An item that is too short, too long, or contradicts itself.
    Item,
    /// An item of the extent tree.
    Extent,
    /// An extent that is used and has no item.
    ExtentMissing,
    /// An extent that has an item and no user.
    ExtentExtra,
    /// Users of an extent.
    ExtentRefs,
    /// Extents that overlap, or lie in no block group or one of another kind.
    ExtentPlace,
    /// The free-space tree.
    FreeSpace,
    /// Free space of a block group that there is not: mkfs.btrfs 6.2 leaves it.
    FreeSpaceStray,
    /// A count of runs of free space.
    FreeSpaceCount,
    /// Checksums of data.
    Sums,
    /// Contents that are not as their checksums say.
    Contents,
    /// A root item, or what leads to a subvolume.
    Root,
    /// A reference to a subvolume.
    RootRef,
    /// A field of an inode.
    Inode,
    /// An inode's count of links.
    Links,
    /// An inode's size, of a directory.
    DirSize,
    /// An inode's count of bytes.
    InodeBytes,
    /// An inode without links, and none that says that it is to be deleted.
    InodeLost,
    /// What says that an inode is to be deleted, and it is not: Linux removes it.
    Orphan,
    /// An extent of a file.
    FileExtent,
    /// An entry of a directory, or what should be the same of it.
    Dentry,
    /// An extended attribute.
    Xattr,
    /// The log, which cannot be replayed: no mount.
    Log,
    /// Counts of a quota group.
    Quota,
}

impl Kind {
    /// A stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SuperBlock => "super-block",
            Kind::SuperCopies => "super-copies",
            Kind::SuperCount => "super-count",
            Kind::Chunk => "chunk",
            Kind::DevExtent => "dev-extent",
            Kind::BlockGroup => "block-group",
            Kind::BlockGroupUsed => "block-group-used",
            Kind::TreeBlock => "tree-block",
            Kind::TreeBlockCopy => "tree-block-copy",
            Kind::KeyOrder => "key-order",
            Kind::Item => "item",
            Kind::Extent => "extent",
            Kind::ExtentMissing => "extent-missing",
            Kind::ExtentExtra => "extent-extra",
            Kind::ExtentRefs => "extent-refs",
            Kind::ExtentPlace => "extent-place",
            Kind::FreeSpace => "free-space",
            Kind::FreeSpaceStray => "free-space-stray",
            Kind::FreeSpaceCount => "free-space-count",
            Kind::Sums => "sums",
            Kind::Contents => "contents",
            Kind::Root => "root",
            Kind::RootRef => "root-ref",
            Kind::Inode => "inode",
            Kind::Links => "links",
            Kind::DirSize => "dir-size",
            Kind::InodeBytes => "inode-bytes",
            Kind::InodeLost => "inode-lost",
            Kind::Orphan => "orphan",
            Kind::FileExtent => "file-extent",
            Kind::Dentry => "dentry",
            Kind::Xattr => "xattr",
            Kind::Log => "log",
            Kind::Quota => "quota",
        }
    }

    /// The part of the format that it is about.
    pub const fn structure(self) -> &'static str {
        match self {
            Kind::SuperBlock | Kind::SuperCopies | Kind::SuperCount => "super block",
            Kind::Chunk | Kind::DevExtent => "chunk tree",
            Kind::TreeBlock | Kind::TreeBlockCopy | Kind::KeyOrder | Kind::Item => "tree",
            Kind::BlockGroup
            | Kind::BlockGroupUsed
            | Kind::Extent
            | Kind::ExtentMissing
            | Kind::ExtentExtra
            | Kind::ExtentRefs
            | Kind::ExtentPlace => "extent tree",
            Kind::FreeSpace | Kind::FreeSpaceStray | Kind::FreeSpaceCount => "free-space tree",
            Kind::Sums | Kind::Contents => "checksum tree",
            Kind::Root | Kind::RootRef => "root tree",
            Kind::Inode
            | Kind::Links
            | Kind::DirSize
            | Kind::InodeBytes
            | Kind::InodeLost
            | Kind::Orphan
            | Kind::FileExtent
            | Kind::Xattr => "inode",
            Kind::Dentry => "directory",
            Kind::Log => "log tree",
            Kind::Quota => "quota tree",
        }
    }

    /// Does it do no harm? Copies are there for repair, and the rest Linux puts right or never
    /// looks at.
    pub const fn is_harmless(self) -> bool {
        matches!(
            self,
            Kind::SuperCopies | Kind::TreeBlockCopy | Kind::FreeSpaceStray | Kind::Orphan
        )
    }
}

impl wp_vfs::finding::Kind for Kind {
    fn name(self) -> &'static str {
        Kind::name(self)
    }

    fn structure(self) -> &'static str {
        Kind::structure(self)
    }

    fn is_harmless(self) -> bool {
        Kind::is_harmless(self)
    }
}

/// One thing that is wrong.
pub type Finding = wp_vfs::finding::Finding<Kind>;
/// The outcome of a check.
pub type Report = wp_vfs::finding::Report<Kind>;

/// Where an item stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    /// Its tree.
    pub tree: u64,
    /// Its key.
    pub key: Key,
    /// Byte address on the device.
    pub byte: u64,
}

impl Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tree = self.tree.cast_signed();
        write!(f, "tree {tree} {} at byte {:#x}", self.key, self.byte)
    }
}

/// The image has a log, and `after` is what a check finds once it is replayed: that puts some
/// things right, and what it brings may be wrong.
pub(super) fn compare_replayed(report: &mut Report, after: Report) {
    let before = report.findings.clone();
    report.mark_fixed_by_replay(&after);
    for f in after.findings.into_iter().filter(|f| f.severity == Severity::Error) {
        // Copy on write moves items: what is wrong before is wrong at another place after.
        if !before.iter().any(|b| b.kind == f.kind) {
            report.add(f.kind, format!("after replay: {}", f.place), f.found, f.expected);
        }
    }
}
