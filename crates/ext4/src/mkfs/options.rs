//! What can be asked of mkfs, and what it answers when that cannot be had.

use std::fmt;

use crate::disk::feature::{self, compat, incompat, ro_compat};

/// Feature bits of all three kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// See [`compat`].
    pub compat: u32,
    /// See [`incompat`].
    pub incompat: u32,
    /// See [`ro_compat`].
    pub ro_compat: u32,
}

/// What mke2fs 1.47.0 gives every ext4 unless told otherwise, apart from how metadata is guarded.
const COMMON: Features = Features {
    compat: compat::HAS_JOURNAL | compat::EXT_ATTR | compat::RESIZE_INODE | compat::DIR_INDEX,
    incompat: incompat::FILETYPE | incompat::EXTENTS | incompat::FLEX_BG,
    ro_compat: ro_compat::SPARSE_SUPER
        | ro_compat::LARGE_FILE
        | ro_compat::HUGE_FILE
        | ro_compat::DIR_NLINK
        | ro_compat::EXTRA_ISIZE,
};

impl Features {
    /// As Linux 3.4 to 4.6 found them: uninit_bg, no metadata_csum, no 64bit.
    /// `mke2fs -t ext4 -O ^64bit,^metadata_csum,^orphan_file,uninit_bg`.
    pub const fn era_2012() -> Features {
        Features { ro_compat: COMMON.ro_compat | ro_compat::GDT_CSUM, ..COMMON }
    }

    /// What `mke2fs -t ext4` of e2fsprogs 1.47.0 makes: metadata_csum and 64bit.
    pub const fn today() -> Features {
        Features {
            incompat: COMMON.incompat | incompat::BIT64,
            ro_compat: COMMON.ro_compat | ro_compat::METADATA_CSUM,
            ..COMMON
        }
    }

    /// Adds (`on`) or takes away the feature called `name`, as in e2fsprogs. As there, asking for
    /// `metadata_csum` drops `uninit_bg`: no file system has both.
    pub fn set(mut self, name: &str, on: bool) -> Result<Features, MkfsError> {
        let tables = [
            (&mut self.compat, compat::NAMES),
            (&mut self.incompat, incompat::NAMES),
            (&mut self.ro_compat, ro_compat::NAMES),
        ];
        let (word, bit) = tables
            .into_iter()
            .find_map(|(word, names)| feature::bit(name, names).map(|bit| (word, bit)))
            .ok_or_else(|| MkfsError::UnknownFeature(name.to_owned()))?;
        *word = if on { *word | bit } else { *word & !bit };
        if self.ro_compat & ro_compat::METADATA_CSUM != 0 {
            self.ro_compat &= !ro_compat::GDT_CSUM;
        }
        Ok(self)
    }

    pub(super) fn has_compat(&self, bit: u32) -> bool {
        self.compat & bit != 0
    }
    pub(super) fn has_incompat(&self, bit: u32) -> bool {
        self.incompat & bit != 0
    }
    pub(super) fn has_ro_compat(&self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }
}

/// How large the journal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalSize {
    /// By the number of blocks, from 1024 to 262144; none below 2048 blocks.
    Default,
    /// A number of MiB (`-J size=`).
    Mebibytes(u32),
}

/// What the descriptors say about inode tables. The tables read as zeroes either way: the medium is
/// new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InodeTables {
    /// Zeroed by mkfs (`lazy_itable_init=0`, or a device whose discard gives zeroes).
    Zeroed,
    /// To be zeroed by the kernel after the first mount (`lazy_itable_init=1`).
    Lazy,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Length of the device. What does not fill a page of 4 KiB is left unused.
    pub bytes: u64,
    /// 1024, 2048 or 4096. `None`: 1024 below 512 MiB, else 4096.
    pub block_size: Option<u32>,
    /// Bytes of a cluster with bigalloc (`mke2fs -C`), a power of two. `None`: 16 blocks.
    pub cluster_size: Option<u32>,
    /// Bytes of an inode: a power of two from 128 to the block size.
    pub inode_size: u32,
    /// Bytes of the device for each inode. `None`: by the device's size, 16384 for most.
    pub inode_ratio: Option<u32>,
    /// At least this number of inodes, whatever the ratio.
    pub inodes: Option<u32>,
    /// Blocks in a group. `None`: eight times the block size.
    pub blocks_per_group: Option<u32>,
    /// Features. Some are taken away where mke2fs does: no journal on a tiny device, no
    /// resize_inode beyond 2^32 blocks.
    pub features: Features,
    /// Groups whose metadata lies together, a power of two; counts with flex_bg only.
    pub groups_per_flex: u32,
    /// Size of the journal.
    pub journal: JournalSize,
    /// Blocks of the orphan file. `None`: by the device's size, 32 to 512.
    pub orphan_file_blocks: Option<u32>,
    /// Percentage of the blocks that only root may use, at most 50.
    pub reserved_percent: u32,
    /// Identity of the file system; seeds all checksums.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// Every time stamp, in seconds since 1970. Not 0, which mke2fs takes for "now".
    pub now: u32,
    /// Volume name, padded with zeroes.
    pub label: [u8; 16],
    /// State of the inode tables.
    pub inode_tables: InodeTables,
}

impl MkfsOptions {
    /// mke2fs's defaults for a device of `bytes` bytes.
    pub fn new(bytes: u64, features: Features) -> MkfsOptions {
        MkfsOptions {
            bytes,
            block_size: None,
            cluster_size: None,
            inode_size: 256,
            inode_ratio: None,
            inodes: None,
            blocks_per_group: None,
            features,
            groups_per_flex: 16,
            journal: JournalSize::Default,
            orphan_file_blocks: None,
            reserved_percent: 5,
            uuid: [0; 16],
            hash_seed: [0; 16],
            now: 1,
            label: [0; 16],
            inode_tables: InodeTables::Zeroed,
        }
    }
}

/// Why no file system can be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MkfsError {
    /// Block size in bytes is not 1024, 2048 or 4096.
    BlockSize(u32),
    /// Cluster size in bytes is not a power of two from two blocks to 256 MiB.
    ClusterSize(u32),
    /// Inode size in bytes is not a power of two from 128 to the block size.
    InodeSize(u32),
    /// Bytes per inode are not from 1024 to 64 MiB.
    InodeRatio(u32),
    /// Blocks per group are not a multiple of 8 from 256 to eight times the block size.
    BlocksPerGroup(u32),
    /// Groups per flexible group are not a power of two from 2 to 2^31.
    GroupsPerFlex(u32),
    /// More than half of the blocks would be reserved.
    ReservedPercent(u32),
    /// No feature has this name.
    UnknownFeature(String),
    /// This program makes no file systems with these features.
    UnsupportedFeatures(String),
    /// The first feature is of no use without the second.
    FeatureNeeds(&'static str, &'static str),
    /// The two features exclude each other.
    FeatureExcludes(&'static str, &'static str),
    /// The device's bytes do not hold the metadata.
    TooSmall(u64),
    /// More than 2^32 - 1 blocks need the 64bit feature.
    TooManyBlocks(u64),
    /// This number of inodes does not fit.
    TooManyInodes(u64),
    /// This number of inodes is too small for the files that every file system has.
    TooFewInodes(u64),
    /// Descriptors would fill three quarters of a group: that takes meta_bg.
    NeedsMetaBg,
    /// The journal's blocks, with the fast-commit area, are not from 1024 to 10240000.
    JournalBlocks(u64),
    /// The journal's blocks would be more than half of the free ones.
    JournalTooBig(u64),
    /// The journal falls into more pieces than an extent tree of one leaf describes.
    JournalPieces(u64),
    /// No room is left for this.
    NoRoom(&'static str),
    /// A time of 0.
    NoTime,
}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use MkfsError::*;
        match self {
            BlockSize(n) => write!(f, "block size {n}: 1024, 2048 or 4096 can be made"),
            ClusterSize(n) => {
                write!(f, "cluster size {n}: must be a power of two, two blocks to 256 MiB")
            }
            InodeSize(n) => {
                write!(f, "inode size {n}: must be a power of two from 128 to the block size")
            }
            InodeRatio(n) => write!(f, "{n} bytes per inode: must be from 1024 to 67108864"),
            BlocksPerGroup(n) => {
                write!(f, "{n} blocks per group: must be a multiple of 8, 256 to a block's bits")
            }
            GroupsPerFlex(n) => {
                write!(f, "{n} groups per flexible group: must be a power of two, 2 or more")
            }
            ReservedPercent(n) => write!(f, "{n} % of the blocks reserved: must be at most 50"),
            UnknownFeature(name) => write!(f, "no ext4 feature is called {name:?}"),
            UnsupportedFeatures(names) => write!(f, "cannot make file systems with {names}"),
            FeatureNeeds(a, b) => write!(f, "feature {a} needs feature {b}"),
            FeatureExcludes(a, b) => write!(f, "features {a} and {b} exclude each other"),
            TooSmall(n) => write!(f, "{n} bytes are too few for the metadata"),
            TooManyBlocks(n) => write!(f, "{n} blocks need feature 64bit"),
            TooManyInodes(n) => {
                write!(f, "{n} inodes do not fit; use fewer inodes or more bytes per inode")
            }
            TooFewInodes(n) => write!(f, "{n} inodes are too few for the first files"),
            NeedsMetaBg => {
                f.write_str("descriptors would fill a group; that takes feature meta_bg")
            }
            JournalBlocks(n) => write!(f, "a journal of {n} blocks: must be from 1024 to 10240000"),
            JournalTooBig(n) => {
                write!(f, "a journal of {n} blocks is more than half of the free ones")
            }
            JournalPieces(n) => write!(f, "the journal would fall into {n} pieces"),
            NoRoom(what) => write!(f, "no room for {what}"),
            NoTime => f.write_str("the time must not be 0"),
        }
    }
}

impl std::error::Error for MkfsError {}
