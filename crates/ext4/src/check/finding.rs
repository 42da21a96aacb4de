//! What a check finds.

/// How much a finding weighs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The image is wrong.
    Error,
    /// It is wrong as it stands, and replaying the journal puts it right.
    FixedByReplay,
    /// Worth knowing; `e2fsck -fn` would not mind.
    Harmless,
}

impl Severity {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::FixedByReplay => "fixed-by-replay",
            Severity::Harmless => "harmless",
        }
    }
}

/// The part of the format that a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Super block.
    Super,
    /// Group descriptors and the places that they name.
    Group,
    /// Inodes.
    Inode,
    /// Extent trees and indirect blocks.
    Map,
    /// Extended attributes.
    Xattr,
    /// Names.
    Dir,
    /// Hash trees of directories.
    Htree,
    /// Link counts, parents, reachability.
    Links,
    /// Bitmaps.
    Bitmap,
    /// Counts of free and used things.
    Count,
    /// The journal's inode and super block.
    Journal,
    /// The orphan file and the chain of orphans.
    Orphan,
    /// The resize inode.
    Resize,
}

impl Class {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Class::Super => "super block",
            Class::Group => "group descriptor",
            Class::Inode => "inode",
            Class::Map => "block map",
            Class::Xattr => "extended attributes",
            Class::Dir => "directory",
            Class::Htree => "hash tree",
            Class::Links => "links",
            Class::Bitmap => "bitmap",
            Class::Count => "counts",
            Class::Journal => "journal",
            Class::Orphan => "orphans",
            Class::Resize => "resize inode",
        }
    }
}

macro_rules! kinds {
    ($($kind:ident $class:ident $name:literal $what:literal,)*) => {
        /// What is wrong. Names are stable.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Kind { $(#[doc = $what] $kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];
            /// Its stable name.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
            /// What it is about.
            pub fn class(self) -> Class {
                match self { $(Kind::$kind => Class::$class,)* }
            }
            /// One line about it.
            pub fn what(self) -> &'static str {
                match self { $(Kind::$kind => $what,)* }
            }
        }
    };
}

kinds! {
    SuperMagic Super "super-magic" "No super block.",
    SuperChecksum Super "super-checksum" "The super block's checksum is wrong.",
    SuperValue Super "super-value" "A field of the super block is out of its range.",
    SuperFeature Super "super-feature" "Features that nobody knows, or that contradict each other.",
    SuperBackup Super "super-backup" "A backup of the super block is none.",
    SuperState Super "super-state" "The file system is marked as having errors.",
    DeviceTooShort Super "device-too-short" "The image is shorter than its file system.",
    GroupChecksum Group "group-checksum" "A group descriptor's checksum is wrong.",
    GroupPlace Group "group-place" "A bitmap or inode table lies where it cannot.",
    GroupOverlap Group "group-overlap" "Bitmaps, tables or descriptors lie on each other.",
    GroupFlags Group "group-flags" "Flags or unused inodes of a group contradict the features.",
    InodeTable Group "inode-table" "An inode table is not zeroed where its group says so.",
    ReadError Group "read-error" "A block cannot be read.",
    InodeChecksum Inode "inode-checksum" "An inode's checksum is wrong.",
    InodeMode Inode "inode-mode" "An inode is of no type, or of one that its number forbids.",
    InodeReserved Inode "inode-reserved" "A reserved inode is in use.",
    InodeSize Inode "inode-size" "An inode's size does not fit its blocks.",
    InodeBlocks Inode "inode-blocks" "An inode's count of sectors is not what it uses.",
    InodeDtime Inode "inode-dtime" "A time of deletion where there is none to be, or none.",
    InodeFlags Inode "inode-flags" "Flags that the inode's type or the features forbid.",
    InodeField Inode "inode-field" "A field that must be zero, or within a range, is not.",
    InodeExtraSize Inode "inode-extra-size" "i_extra_isize is out of its range.",
    SymlinkTarget Inode "symlink-target" "A symbolic link's target does not fit its size.",
    ExtentNode Map "extent-node" "An extent node is none.",
    ExtentOrder Map "extent-order" "Extents are out of order or beyond what their node covers.",
    ExtentChecksum Map "extent-checksum" "An extent node's checksum is wrong.",
    BlockRange Map "block-range" "An inode's block is not one of the device.",
    BlockTwice Map "block-claimed-twice" "A block belongs to two owners.",
    WalkBudget Map "walk-budget" "So much is claimed that the walk was stopped.",
    XattrBlock Xattr "xattr-block" "An attribute block is none.",
    XattrChecksum Xattr "xattr-checksum" "An attribute block's checksum is wrong.",
    XattrRefcount Xattr "xattr-refcount" "An attribute block's count of users is wrong.",
    XattrEntry Xattr "xattr-entry" "An attribute does not lie where it says, or hashes wrongly.",
    DirHole Dir "dir-hole" "A directory has a hole.",
    DirEntry Dir "dir-entry" "Entries do not cover their block.",
    DirChecksum Dir "dir-checksum" "A directory block's checksum is wrong or missing.",
    DirDot Dir "dir-dot" "`.` or `..` is missing, doubled or points elsewhere.",
    DirName Dir "dir-name" "A name that cannot be.",
    DirDuplicate Dir "dir-duplicate-name" "A name stands twice in a directory.",
    DirInode Dir "dir-inode" "A name of an inode that does not exist or is not in use.",
    DirType Dir "dir-type" "A name's type is not its inode's.",
    DirLinkedTwice Dir "dir-linked-twice" "A directory has two names.",
    HtreeRoot Htree "htree-root" "A hash tree's root cannot be.",
    HtreeNode Htree "htree-node" "A hash-tree node's limit, count or order is wrong.",
    HtreeChecksum Htree "htree-checksum" "A hash-tree node's checksum is wrong.",
    HtreeBlock Htree "htree-block" "A block is in the hash tree twice, not at all, or is not there.",
    HtreeHash Htree "htree-hash" "A name lies in the wrong block of a hash tree.",
    Unattached Links "unattached" "An inode is in use and no name leads to it.",
    DirParent Links "dir-parent" "`..` is not the directory that holds the name.",
    LinkCount Links "link-count" "An inode's count of links is not the number of its names.",
    BitmapChecksum Bitmap "bitmap-checksum" "A bitmap's checksum is wrong.",
    BlockBitmap Bitmap "block-bitmap" "The block bitmap is not what is in use.",
    InodeBitmap Bitmap "inode-bitmap" "The inode bitmap is not what is in use.",
    BitmapPadding Bitmap "bitmap-padding" "Bits behind a bitmap's end are not set.",
    GroupCount Count "group-count" "A group's counts of free blocks, inodes or directories is wrong.",
    TotalCount Count "total-count" "The super block's count of free blocks or inodes is wrong.",
    JournalInode Journal "journal-inode" "The journal's inode is no file for one.",
    JournalSuper Journal "journal-super" "The journal's super block is wrong.",
    JournalDirty Journal "journal-dirty" "The log is not empty, and needs_recovery is not set.",
    Recovery Journal "recovery-failed" "The log cannot be replayed.",
    OrphanChain Orphan "orphan-chain" "The super block's chain of orphans is not empty.",
    OrphanFile Orphan "orphan-file" "A block of the orphan file is wrong.",
    ResizeInode Resize "resize-inode" "The resize inode does not own the reserved descriptors.",
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// How much it weighs.
    pub severity: Severity,
    /// Where: `inode 12`, `group 3`, `block 77`, with a field's name.
    pub place: String,
    /// What stands there.
    pub found: String,
    /// What would have been right.
    pub expected: String,
}

/// The outcome of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Was the image recovered in memory first, and was there anything to recover?
    pub recovered: bool,
    /// What was found, in the order of the passes.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub left_out: u64,
    max: usize,
}

impl Report {
    pub(super) fn new(max: usize) -> Report {
        Report { recovered: false, findings: Vec::new(), left_out: 0, max }
    }

    /// Is nothing wrong? Harmless findings, and those that a replay puts right, do not count.
    pub fn is_clean(&self) -> bool {
        self.left_out == 0 && self.findings.iter().all(|f| f.severity != Severity::Error)
    }

    /// Is nothing wrong as it stands, before any replay?
    pub fn is_clean_as_it_stands(&self) -> bool {
        self.left_out == 0 && self.findings.iter().all(|f| f.severity == Severity::Harmless)
    }

    pub(super) fn add(
        &mut self,
        kind: Kind,
        place: String,
        found: impl ToString,
        expected: impl ToString,
    ) {
        self.add_as(Severity::Error, kind, place, found, expected);
    }

    pub(super) fn add_as(
        &mut self,
        severity: Severity,
        kind: Kind,
        place: String,
        found: impl ToString,
        expected: impl ToString,
    ) {
        if self.findings.len() < self.max {
            let (found, expected) = (found.to_string(), expected.to_string());
            self.findings.push(Finding { kind, severity, place, found, expected });
        } else if severity != Severity::Harmless {
            self.left_out += 1;
        }
    }
}
