//! What a check finds.

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
    SuperMagic Super "super-magic" "The super block's magic number is missing.",
    SuperChecksum Super "super-checksum" "The super block's checksum is wrong.",
    SuperValue Super "super-value" "A field of the super block is out of range.",
    SuperFeature Super "super-feature" "Unknown or contradictory features.",
    SuperBackup Super "super-backup" "A backup super block is invalid.",
    Mmp Super "mmp" "The block of multiple-mount protection is invalid.",
    SuperState Super "super-state" "The file system is marked as having errors.",
    DeviceTooShort Super "device-too-short" "The image is shorter than its file system.",
    GroupChecksum Group "group-checksum" "A group descriptor's checksum is wrong.",
    GroupPlace Group "group-place" "The block number of a bitmap or inode table is invalid.",
    GroupOverlap Group "group-overlap" "Bitmaps, inode tables or group descriptors overlap.",
    GroupFlags Group "group-flags" "Flags or unused inodes of a group contradict the features.",
    InodeTable Group "inode-table" "An inode table is not zeroed where its group says so.",
    ReadError Group "read-error" "A block cannot be read.",
    InodeChecksum Inode "inode-checksum" "An inode's checksum is wrong.",
    InodeMode Inode "inode-mode" "An inode's type is invalid, or not allowed for its number.",
    InodeReserved Inode "inode-reserved" "A reserved inode is in use.",
    InodeSize Inode "inode-size" "An inode's size does not match its blocks.",
    InodeBlocks Inode "inode-blocks" "An inode's i_blocks is wrong.",
    InodeDtime Inode "inode-dtime" "A deletion time is set on an inode in use, or missing on a deleted one.",
    InodeFlags Inode "inode-flags" "An inode has flags that its type or the features do not allow.",
    InodeField Inode "inode-field" "A field of an inode is not zero or out of range.",
    InodeExtraSize Inode "inode-extra-size" "i_extra_isize is out of range.",
    SymlinkTarget Inode "symlink-target" "A symbolic link's target does not match its size.",
    ExtentNode Map "extent-node" "An extent block is invalid.",
    ExtentOrder Map "extent-order" "Extents are out of order, or outside the range of their node.",
    ExtentChecksum Map "extent-checksum" "An extent block's checksum is wrong.",
    BlockRange Map "block-range" "An inode's block is outside the file system.",
    BlockTwice Map "block-claimed-twice" "A block belongs to two owners.",
    WalkBudget Map "walk-budget" "Inodes claim too many blocks; the check stopped there.",
    XattrBlock Xattr "xattr-block" "An extended attribute block is invalid.",
    XattrChecksum Xattr "xattr-checksum" "An extended attribute block's checksum is wrong.",
    XattrRefcount Xattr "xattr-refcount" "An extended attribute block's reference count is wrong.",
    XattrEntry Xattr "xattr-entry" "An extended attribute entry's offset or hash is wrong.",
    DirHole Dir "dir-hole" "A directory has a hole.",
    DirEntry Dir "dir-entry" "Directory entries do not cover their block.",
    DirChecksum Dir "dir-checksum" "A directory block's checksum is wrong or missing.",
    DirDot Dir "dir-dot" "`.` or `..` is missing, duplicate or wrong.",
    DirName Dir "dir-name" "A name is invalid.",
    DirDuplicate Dir "dir-duplicate-name" "A directory has duplicate names.",
    DirInode Dir "dir-inode" "A directory entry points to an inode that does not exist or is not in use.",
    DirType Dir "dir-type" "A directory entry's file type differs from its inode.",
    DirLinkedTwice Dir "dir-linked-twice" "A directory has two names.",
    HtreeRoot Htree "htree-root" "A hash tree's root is invalid.",
    HtreeNode Htree "htree-node" "A hash-tree node's limit, count or order is wrong.",
    HtreeChecksum Htree "htree-checksum" "A hash-tree node's checksum is wrong.",
    HtreeBlock Htree "htree-block" "A block is in the hash tree twice, missing from it, or outside the directory.",
    HtreeHash Htree "htree-hash" "A name is in the wrong block of a hash tree.",
    Unattached Links "unattached" "An inode in use has no name.",
    DirParent Links "dir-parent" "`..` does not point to the parent directory.",
    LinkCount Links "link-count" "An inode's link count differs from the number of its names.",
    BitmapChecksum Bitmap "bitmap-checksum" "A bitmap's checksum is wrong.",
    BlockBitmap Bitmap "block-bitmap" "The block bitmap differs from the blocks in use.",
    InodeBitmap Bitmap "inode-bitmap" "The inode bitmap differs from the inodes in use.",
    BitmapPadding Bitmap "bitmap-padding" "Padding bits of a bitmap are not set.",
    GroupCount Count "group-count" "A group's count of free blocks, free inodes or directories is wrong.",
    TotalCount Count "total-count" "The super block's count of free blocks or inodes is wrong.",
    JournalInode Journal "journal-inode" "The journal inode is invalid.",
    JournalSuper Journal "journal-super" "The journal super block is wrong.",
    JournalDirty Journal "journal-dirty" "The journal is not empty, but needs_recovery is not set.",
    Recovery Journal "recovery-failed" "The journal cannot be replayed.",
    OrphanChain Orphan "orphan-chain" "The orphan list is not empty.",
    OrphanFile Orphan "orphan-file" "A block of the orphan file is wrong.",
    ResizeInode Resize "resize-inode" "The resize inode does not own the reserved descriptors.",
}

impl wp_vfs::finding::Kind for Kind {
    fn name(self) -> &'static str {
        Kind::name(self)
    }

    fn structure(self) -> &'static str {
        self.class().name()
    }
}

/// One thing that is wrong.
pub type Finding = wp_vfs::finding::Finding<Kind>;
/// The outcome of a check.
pub type Report = wp_vfs::finding::Report<Kind>;
