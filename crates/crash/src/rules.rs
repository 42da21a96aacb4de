//! The rules that what recovery left is judged by, and what a file system is held to.

use wp_vfs::{FsEntry, Options, Promises};

/// Which rule was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// O0: it cannot be mounted, or a second recovery gives something else.
    Recoverable,
    /// O1: a check of the recovered image finds damage.
    Metadata,
    /// O2: a block holds what this file never held there.
    Exposure,
    /// O3: the length is of a later version than the data below it.
    SizeAhead,
    /// O3: the same of a length that grew within the block in which the file ended.
    TailAhead,
    /// O3: no single version has these contents and this length.
    MixedVersions,
    /// O4: what a completed sync promised is not there.
    LostSync,
    /// O5: the tree of names is that of no moment; or something is there, and not what a barrier
    /// put before it.
    Order,
    /// O6: a file that took another's name, or was cut and written anew, is there without its
    /// contents.
    Replaced,
    /// O7: the device failed, what was written is not there, and whoever was to be told was not.
    Errors,
    /// O8: a command of the user says that the recovered files are wrong.
    Application,
}

impl Rule {
    /// All, in order.
    pub const ALL: [Rule; 11] = [
        Rule::Recoverable,
        Rule::Metadata,
        Rule::Exposure,
        Rule::SizeAhead,
        Rule::TailAhead,
        Rule::MixedVersions,
        Rule::LostSync,
        Rule::Order,
        Rule::Replaced,
        Rule::Errors,
        Rule::Application,
    ];

    /// The rule of a name.
    pub fn of(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|r| r.name() == name)
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Recoverable => "O0-recoverable",
            Rule::Metadata => "O1-metadata",
            Rule::Exposure => "O2-exposure",
            Rule::SizeAhead => "O3-size-ahead",
            Rule::TailAhead => "O3-tail-ahead",
            Rule::MixedVersions => "O3-mixed-versions",
            Rule::LostSync => "O4-lost-sync",
            Rule::Order => "O5-order",
            Rule::Replaced => "O6-replaced",
            Rule::Errors => "O7-errors",
            Rule::Application => "O8-application",
        }
    }
}

/// Whom a write of data that failed is told to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Telling {
    /// Whoever asks first, once (`AS_EIO`: Linux until 4.12).
    First,
    /// Every open file once (`errseq_t`).
    EachOpenFile,
}

/// What a file system is held to, besides what POSIX asks. Bits of BOB's persistence properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// `fsync` of a file also makes its names durable (ext4, btrfs; not POSIX).
    pub fsync_keeps_names: bool,
    /// Names change in the order of the calls: the tree is that of some moment (one journal).
    pub names_in_order: bool,
    /// A length never runs ahead of its data (not POSIX; data=journal, or ext4 3.4).
    pub size_with_data: bool,
    /// The same of a write that ends in the block in which the file ended: no block is allocated,
    /// so that delayed allocation does not keep the length back (the claims `size_ahead.*`).
    pub tail_with_data: bool,
    /// What a cut took away does not come back when the file is longer again (not POSIX; ordered
    /// mode writes the zeroed rest of a block before the commit).
    pub cut_stays_cut: bool,
    /// A file that is renamed over another, or cut to nothing and written anew until it was closed,
    /// is there with its contents or not at all (not POSIX; ext4's `auto_da_alloc`).
    pub replaces_whole: bool,
    /// An `O_DIRECT` write is durable when it returns (nobody; programs assume it).
    pub direct_is_durable: bool,
    /// All blocks of a file are of one version (nobody but copy-on-write and data=journal).
    pub one_version: bool,
    /// Whom an fsync that answers 0 must have told before, if the data are not there.
    pub errors: Telling,
    /// A name that the program told of ([`wp_workload::program::Call::Mark`]) stays (nobody;
    /// programs assume it).
    pub marks_hold: bool,
    /// An atomic write is durable when its commit returns (nobody; programs assume it).
    pub commits_hold: bool,
    /// `fdatasync` of a file that the program made keeps the file under the name it was made with
    /// (not POSIX; ext4, which remembers the transaction that made an inode for it,
    /// `ext4_new_inode`).
    pub new_by_fdatasync: bool,
    /// What reads show is what is there, once an fsync answered 0, whatever was told before
    /// (programs that call fsync again assume it; btrfs, whose pages revert).
    pub reads_stay: bool,
    /// `fallocate` through a descriptor opened with `O_SYNC` or `O_DSYNC` makes the length durable
    /// (not POSIX; ext4, `ext4_fallocate`, and XFS; not F2FS).
    pub fallocate_syncs: bool,
    /// Nobody knows the calls of the run: only whether it recovers and is sound is judged (O0, O1).
    pub image_alone: bool,
    /// `fsync` and `fdatasync` promise order and no more: `fbarrier` and `fdatabarrier` under
    /// another name (BarrierFS' programs that need no durability).
    pub syncs_only_order: bool,
}

impl Profile {
    /// POSIX alone.
    pub const POSIX: Profile = Profile {
        fsync_keeps_names: false,
        names_in_order: false,
        size_with_data: false,
        tail_with_data: false,
        cut_stays_cut: false,
        replaces_whole: false,
        direct_is_durable: false,
        one_version: false,
        errors: Telling::EachOpenFile,
        marks_hold: false,
        commits_hold: false,
        new_by_fdatasync: false,
        reads_stay: false,
        fallocate_syncs: false,
        image_alone: false,
        syncs_only_order: false,
    };
    /// What a file system promises.
    pub const fn of(promises: &Promises) -> Profile {
        Profile {
            fsync_keeps_names: promises.fsync_keeps_names,
            names_in_order: promises.names_in_order,
            fallocate_syncs: promises.fallocate_syncs,
            ..Profile::POSIX
        }
    }

    /// The same as it is mounted: some options take a part of it back.
    pub fn mounted(entry: &FsEntry, options: &Options) -> Profile {
        let syncs_only_order = entry.syncs_only_order(options);
        let names_in_order = entry.names_in_order(options);
        Profile { syncs_only_order, names_in_order, ..Profile::of(&entry.promises) }
    }

    /// ext4 with a journal.
    pub const EXT4: Profile = Profile {
        fsync_keeps_names: true,
        names_in_order: true,
        fallocate_syncs: true,
        ..Profile::POSIX
    };
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// Path of the file that it is about; empty: the whole.
    pub path: String,
    /// Byte offset in it.
    pub offset: Option<u64>,
    /// What is allowed.
    pub expected: String,
    /// What is there.
    pub seen: String,
}
