//! What a check can find.

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A super block that is no good; the file system cannot be read if both are.
    SuperBlock,
    /// The two super blocks differ.
    SuperCopies,
    /// No good checkpoint pack, or one that contradicts the super block.
    Checkpoint,
    /// A count of the checkpoint.
    CheckpointCount,
    /// A log that goes on where something is.
    LogHead,
    /// A journal.
    Journal,
    /// A SIT entry that contradicts itself.
    SitEntry,
    /// A block in use that nothing refers to.
    BlockLost,
    /// A block that is referred to, but not in use.
    BlockFree,
    /// A block that two things refer to.
    BlockShared,
    /// An address outside the main area.
    Address,
    /// A segment of nodes with data in it, or the other way round.
    SegmentType,
    /// A summary that names another owner.
    Summary,
    /// A NAT entry that leads nowhere.
    NatEntry,
    /// A node that nothing refers to.
    NodeLost,
    /// A node that is another one than was looked for.
    NodeFooter,
    /// A field of an inode.
    Inode,
    /// An inode's checksum.
    InodeChecksum,
    /// An inode's count of blocks.
    InodeBlocks,
    /// The largest extent that an inode remembers.
    Extent,
    /// An inode's count of links.
    Links,
    /// An entry of a directory.
    Dentry,
    /// The hash of a name, or the bucket that it stands in.
    DentryHash,
    /// An attribute.
    Attribute,
    /// An orphan that is none.
    Orphan,
    /// A write pointer that contradicts what is in use.
    WritePointer,
}

impl Kind {
    /// A stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SuperBlock => "super-block",
            Kind::SuperCopies => "super-copies",
            Kind::Checkpoint => "checkpoint",
            Kind::CheckpointCount => "checkpoint-count",
            Kind::LogHead => "log-head",
            Kind::Journal => "journal",
            Kind::SitEntry => "sit-entry",
            Kind::BlockLost => "block-lost",
            Kind::BlockFree => "block-free",
            Kind::BlockShared => "block-shared",
            Kind::Address => "address",
            Kind::SegmentType => "segment-type",
            Kind::Summary => "summary",
            Kind::NatEntry => "nat-entry",
            Kind::NodeLost => "node-lost",
            Kind::NodeFooter => "node-footer",
            Kind::Inode => "inode",
            Kind::InodeChecksum => "inode-checksum",
            Kind::InodeBlocks => "inode-blocks",
            Kind::Extent => "extent",
            Kind::Links => "links",
            Kind::Dentry => "dentry",
            Kind::DentryHash => "dentry-hash",
            Kind::Attribute => "attribute",
            Kind::Orphan => "orphan",
            Kind::WritePointer => "write-pointer",
        }
    }

    /// The part of the format that it is about.
    pub const fn structure(self) -> &'static str {
        match self {
            Kind::SuperBlock | Kind::SuperCopies => "super block",
            Kind::Checkpoint | Kind::CheckpointCount | Kind::LogHead | Kind::Journal => {
                "checkpoint"
            }
            Kind::SitEntry
            | Kind::BlockLost
            | Kind::BlockFree
            | Kind::BlockShared
            | Kind::SegmentType => "SIT",
            Kind::Summary => "SSA",
            Kind::NatEntry | Kind::NodeLost => "NAT",
            Kind::NodeFooter | Kind::Address => "node",
            Kind::Inode
            | Kind::InodeChecksum
            | Kind::InodeBlocks
            | Kind::Extent
            | Kind::Links
            | Kind::Attribute
            | Kind::Orphan => "inode",
            Kind::Dentry | Kind::DentryHash => "directory",
            Kind::WritePointer => "zone",
        }
    }

    /// Does it do no harm? A super block is there twice, and a mount repairs write pointers.
    pub const fn is_harmless(self) -> bool {
        matches!(self, Kind::SuperCopies)
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
