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

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// Where, for people.
    pub place: String,
    /// What stands there.
    pub found: String,
    /// What would have been right.
    pub expected: String,
}

/// The outcome of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Was something recovered first?
    pub recovered: bool,
    /// What was found, in order.
    pub findings: Vec<Finding>,
    /// Findings beyond the most that are kept.
    pub left_out: u64,
}

/// Findings that are kept.
const MOST: usize = 200;

impl Report {
    /// Is nothing wrong that does harm?
    pub fn is_clean(&self) -> bool {
        self.left_out == 0 && self.findings.iter().all(|f| f.kind.is_harmless())
    }

    pub(super) fn add(
        &mut self,
        kind: Kind,
        place: impl Into<String>,
        found: impl ToString,
        expected: impl ToString,
    ) {
        if self.findings.len() >= MOST {
            self.left_out += 1;
            return;
        }
        let (found, expected) = (found.to_string(), expected.to_string());
        self.findings.push(Finding { kind, place: place.into(), found, expected });
    }

    pub(super) fn corrupt(&mut self, kind: Kind, place: &str, c: &wp_base::Corruption) {
        let place = format!("{place}: {} {} at byte {}", c.structure, c.field, c.at);
        self.add(kind, place, format!("{:#x}", c.found), &c.expected);
    }
}
