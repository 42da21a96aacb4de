//! What a check can find.

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A super block that is no good; the file system cannot be read if both are.
    SuperBlock,
    /// One of the super blocks is no good, or they are of two file systems.
    SuperCopies,
    /// A log: its checksums, or that it is none.
    Log,
    /// The summary of a log names another owner of a block.
    Summary,
    /// The super root.
    SuperRoot,
    /// A block map.
    BlockMap,
    /// An address outside of the segments.
    Address,
    /// A block that two things refer to.
    BlockShared,
    /// A block in use that lies in no segment in use, or behind its logs.
    BlockFree,
    /// An entry of the DAT: its life, or its block.
    DatEntry,
    /// A number that the newest checkpoint is to see, and nothing refers to.
    DatLost,
    /// A number or inode that is referred to, and not given out.
    NotAllocated,
    /// A count of free entries.
    FreeCount,
    /// A segment's usage.
    Usage,
    /// A count of segments.
    UsageCount,
    /// A checkpoint.
    Checkpoint,
    /// A count of checkpoints, or of what one has.
    CheckpointCount,
    /// The list of snapshots.
    Snapshots,
    /// A field of an inode.
    Inode,
    /// An inode's count of blocks.
    InodeBlocks,
    /// An inode's count of links.
    Links,
    /// An inode that is given out and has no name.
    InodeLost,
    /// An inode without links that is given out: open when the power went.
    Orphan,
    /// An entry of a directory.
    Dentry,
}

impl Kind {
    /// A stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SuperBlock => "super-block",
            Kind::SuperCopies => "super-copies",
            Kind::Log => "log",
            Kind::Summary => "summary",
            Kind::SuperRoot => "super-root",
            Kind::BlockMap => "block-map",
            Kind::Address => "address",
            Kind::BlockShared => "block-shared",
            Kind::BlockFree => "block-free",
            Kind::DatEntry => "dat-entry",
            Kind::DatLost => "dat-lost",
            Kind::NotAllocated => "not-allocated",
            Kind::FreeCount => "free-count",
            Kind::Usage => "usage",
            Kind::UsageCount => "usage-count",
            Kind::Checkpoint => "checkpoint",
            Kind::CheckpointCount => "checkpoint-count",
            Kind::Snapshots => "snapshots",
            Kind::Inode => "inode",
            Kind::InodeBlocks => "inode-blocks",
            Kind::Links => "links",
            Kind::InodeLost => "inode-lost",
            Kind::Orphan => "orphan",
            Kind::Dentry => "dentry",
        }
    }

    /// The part of the format that it is about.
    pub const fn structure(self) -> &'static str {
        match self {
            Kind::SuperBlock | Kind::SuperCopies => "super block",
            Kind::Log | Kind::Summary | Kind::SuperRoot => "log",
            Kind::BlockMap | Kind::Address | Kind::BlockShared => "block map",
            Kind::DatEntry | Kind::DatLost => "DAT",
            Kind::NotAllocated | Kind::FreeCount => "bitmap",
            Kind::BlockFree | Kind::Usage | Kind::UsageCount => "segment usage",
            Kind::Checkpoint | Kind::CheckpointCount | Kind::Snapshots => "checkpoint",
            Kind::Inode | Kind::InodeBlocks | Kind::Links | Kind::InodeLost | Kind::Orphan => {
                "inode"
            }
            Kind::Dentry => "directory",
        }
    }

    /// Does it do no harm? A super block is there twice, and Linux leaves files that were open
    /// without a name where they are.
    pub const fn is_harmless(self) -> bool {
        matches!(self, Kind::SuperCopies | Kind::Orphan)
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
