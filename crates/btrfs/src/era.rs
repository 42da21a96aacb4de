//! The rules of btrfs' logs that changed between kernels. Older ones have words of their own
//! (`old_log`, `old_replay`).
//!
//! Left out: until 6.4 an inode that left memory counts as not logged for some of the rules, which
//!           ends some fsyncs in a commit.

use wp_base::kernel::Version;
use wp_base::policies;

policies! { FileSystem:
    /// Names of directories are logged by hash, too.
    logs_hashes = "339d03542484 btrfs: only copy dir index keys when logging a directory",
        None, Some(Version(5, 17, 0)),
        "directories are logged by DIR_ITEM and DIR_INDEX; since, by DIR_INDEX alone, and logs are smaller";
    /// Of a changed leaf with names of a directory each name is logged.
    logs_old_names = "732d591a5d6c btrfs: stop copying old dir items when logging a directory",
        None, Some(Version(5, 18, 0)),
        "a logged directory has all names of its changed leaves, and one at each end of a range (a450a4af7433); since, the new ones";
    /// A name counts as new however often its directory is logged.
    relogs_entries = "193df6245704 btrfs: search for last logged dir index if it's not cached in the inode",
        None, Some(Version(6, 1, 0)),
        "a directory that is logged again has inodes of all its new names logged that were not; since, only of names that its log lacks";
    /// Directories that were there before are logged with the directory that they are in.
    logs_old_directories = "de6bc7f59896 btrfs: stop trying to log subdirectories created in past transactions",
        None, Some(Version(5, 18, 0)),
        "fsync of a directory also logs its older subdirectories that have changed: more is durable, or a commit if something left one of them";
    /// A directory logged for another's new name does not count as logged.
    new_names_unmarked = "130341be7ffa btrfs: always update the logged transaction when logging new names",
        None, Some(Version(5, 16, 0)),
        "a directory that was logged because a file got a new name does not count as logged, and is logged again";
    /// A rename has the directory that it leaves logged once more.
    renames_relog = "88d2beec7e53 btrfs: avoid logging all directory changes during renames",
        None, Some(Version(5, 18, 0)),
        "a rename out of a logged directory logs it anew with all its new names; since, the log only says that the old name is gone";
    /// An inode that may have been logged counts as logged.
    guesses_logged = "0f8ce49821de btrfs: avoid inode logging during rename and link when possible",
        None, Some(Version(5, 18, 0)),
        "a rename or link logs the inode if it has changed and was not logged; since, the log is searched for it";
    /// Also if there is no log.
    guesses_without_log = "1e0860f3b3b2 btrfs: check if a log tree exists at inode_logged()",
        None, Some(Version(5, 16, 0)),
        "the same where nothing was logged in the transaction: the rename or link makes the log";
    /// Any number of inodes in conflict is logged.
    conflicts_unlimited = "e09d94c9e448 btrfs: log conflicting inodes without holding log mutex of the initial inode",
        None, Some(Version(6, 1, 0)),
        "any number of inodes whose names were reused is logged with an inode; since, more than ten make a commit";
    /// The directory of a removed file in conflict is logged.
    conflicts_log_parents = "5557a069f3d7 btrfs: skip logging parent dir when conflicting inode is not a dir",
        None, Some(Version(6, 1, 0)),
        "fsync of a new file with the name of a removed one logs their directory, or is a commit if something left it";
    /// A symbolic link that gets a new name is logged so that it exists, as a file is.
    links_exist_only = "d0e64a981fd8 btrfs: always log symlinks in full mode",
        None, Some(Version(5, 18, 0)),
        backported &[Version(5, 15, 39), Version(5, 17, 7)],
        "a symbolic link that is renamed is logged without its target: it is empty after replay (generic/690)";
    /// An fsync that examines all items logs no space behind the end that is in an unchanged leaf.
    full_sync_skips_space = "d99478874355 btrfs: fix lost prealloc extents beyond eof after full fsync",
        None, Some(Version(5, 17, 0)),
        backported &[Version(5, 15, 27), Version(5, 16, 13)],
        "space allocated behind the end of a file is lost by an fsync that examines all its items, if its leaf is unchanged";
    /// Extents of past transactions in changed leaves are logged.
    copies_old_extents = "7f30c07288bb btrfs: stop copying old file extents when doing a full fsync",
        None, Some(Version(5, 18, 0)),
        "an fsync that examines all items also logs old extents of changed leaves";
    /// A directory that is logged in full for another's new name counts as synced.
    new_names_count = "bfe3d755ef7c btrfs: do not update last_log_commit when logging inode due to a new name",
        Some(Version(5, 16, 0)), Some(Version(6, 18, 0)),
        backported &[
            Version(6, 1, 159), Version(6, 6, 117), Version(6, 12, 59), Version(6, 17, 9),
        ],
        "a directory logged in full because a file got a new name counts as synced: its own fsync does nothing (generic/782)";
    /// A directory that is logged for a new name is logged without the inodes of its new entries.
    new_names_skip_entries = "5630f7557de6 btrfs: do not skip logging new dentries when logging a new name",
        Some(Version(5, 16, 0)), Some(Version(6, 19, 0)),
        backported &[
            Version(6, 1, 160), Version(6, 6, 120), Version(6, 12, 64), Version(6, 18, 3),
        ],
        "inodes of new entries of a directory logged for a new name are never logged: replay drops the entries (generic/785)";
    /// An inode that is logged once more so that it exists keeps what it was at the last commit:
    /// its item says to replay that it is no more than "this inode exists", though the one that it
    /// replaces in the log said all.
    existing_keeps_size = "5254d4181add btrfs: fix zero size inode with non-zero size after log replay",
        None, Some(Version(7, 0, 0)),
        backported &[
            Version(6, 1, 191), Version(6, 6, 160), Version(6, 12, 114), Version(6, 18, 24),
            Version(6, 19, 14),
        ],
        "a synced file that is logged again for a name has its old permissions, owner and times after replay; cut to 0, its old length (generic/789)";
    /// Inodes without names are logged.
    logs_nameless = "5e85262e542d btrfs: fix fsync of files with no hard links not persisting deletion",
        Some(Version(6, 16, 0)), None,
        backported &[Version(6, 15, 3)],
        "fsync of an inode without names logs it; before, it does nothing (N16)";
    /// A removed directory does not remember that it was.
    rmdir_forgets = "999757231c49 btrfs: fix missing last_unlink_trans update when removing a directory",
        None, Some(Version(7, 1, 0)),
        backported &[
            Version(5, 15, 210), Version(6, 1, 176), Version(6, 6, 141), Version(6, 12, 91),
            Version(6, 18, 30), Version(7, 0, 7),
        ],
        "fsync of a removed directory logs it where logs_nameless holds, though something moved out of it: the log has a directory with two names, and the mount fails";
    /// Every removed directory makes the next fsync of its parent a commit.
    rmdir_commits_parent = "stable 6.1: 999757231c49 in front of what it builds on",
        Some(Version(6, 1, 176)), Some(Version(6, 2, 0)),
        "rmdir counts as if something had moved out of the directory: the next fsync of the parent in the same transaction is a commit";
    /// Replay skips items by the last inode of the round before, where it should by their own.
    replay_skips_by_last = "0a32e4f0025a btrfs: fix log tree replay failure due to file with 0 links and extents",
        None, Some(Version(6, 17, 0)),
        backported &[
            Version(5, 15, 190), Version(6, 1, 149), Version(6, 6, 103), Version(6, 12, 43),
            Version(6, 15, 11), Version(6, 16, 2),
        ],
        "replay brings extents of an inode without names, and fails, or leaves out those of all others (generic/771)";
    /// A directory that has moved is logged as one in conflict.
    logs_moved_conflicts = "266273eaf4d9 btrfs: don't log conflicting inode if it's a dir moved in the current transaction",
        None, Some(Version(6, 19, 0)),
        backported &[
            Version(6, 1, 160), Version(6, 6, 120), Version(6, 12, 64), Version(6, 18, 3),
        ],
        "a directory that was renamed and whose old name a logged inode has gets two names from the log: the mount fails (generic/784)";
    /// Only for new inodes is it asked who had their names.
    conflicts_of_new_only = "7ba0b6461bc4 btrfs: always detect conflicting inodes when logging inode refs",
        None, Some(Version(6, 19, 0)),
        backported &[
            Version(6, 1, 161), Version(6, 6, 121), Version(6, 12, 66), Version(6, 18, 6),
        ],
        "an older inode with a name that another had at the last commit is logged without the other, which replay removes (btrfs/340)";
    /// A directory logged for a removed one in conflict is logged without its new inodes.
    conflicts_skip_entries = "9573a365ff9f btrfs: log new dentries when logging parent dir of a conflicting inode",
        Some(Version(5, 1, 0)), Some(Version(7, 0, 0)),
        backported &[
            Version(6, 1, 191), Version(6, 6, 130), Version(6, 12, 78), Version(6, 18, 20),
            Version(6, 19, 10),
        ],
        "the parent of a removed directory whose name was reused is logged without the inodes of its new entries (generic/790)";
    /// An inode that gets a new name is copied to the log anew.
    renames_copy_all = "953902e4fb4c btrfs: set inode flag BTRFS_INODE_COPY_EVERYTHING when logging new name",
        Some(Version(6, 18, 0)), None,
        backported &[Version(6, 17, 9)],
        "a rename has the next fsync copy all items of the inode; before, the new name of a symbolic link is lost (N24, generic/779)";
}

impl Era {
    /// The release that was compared with a real kernel, and whose rules hold if none is named.
    pub const COMPARED: Version = Version(6, 12, 117);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_resolves_to_its_rules() {
        let v = |t| Era::of(Version::parse(t).expect("a version"));
        let of = |rule: fn(&Era) -> bool, all: [&'static str; 4]| all.map(|t| rule(&v(t)));
        assert_eq!(
            of(|e| e.logs_hashes(), ["5.15.215", "5.16", "5.17", "7.1"]),
            [true, true, false, false]
        );
        assert_eq!(
            of(|e| e.links_exist_only(), ["5.15.38", "5.15.39", "5.17.6", "5.17.7"]),
            [true, false, true, false]
        );
        assert_eq!(
            of(|e| e.full_sync_skips_space(), ["5.15.26", "5.15.27", "5.16.12", "5.17"]),
            [true, false, true, false]
        );
        assert_eq!(
            of(|e| e.conflicts_unlimited(), ["5.15", "6.0", "6.1", "6.18"]),
            [true, true, false, false]
        );
        assert_eq!(
            of(|e| e.relogs_entries(), ["5.15", "6.0", "6.1", "6.18"]),
            [true, true, false, false]
        );
        // Between the two a directory that is logged for a new name counts as logged, and as
        // synced.
        assert_eq!(
            of(|e| e.new_names_count(), ["5.15", "5.16", "6.17", "6.18"]),
            [false, true, true, false]
        );
        assert_eq!(
            of(|e| e.new_names_unmarked(), ["5.15", "5.16", "6.17", "6.18"]),
            [true, false, false, false]
        );
        assert_eq!(
            of(|e| e.existing_keeps_size(), ["5.15", "6.18.23", "6.18.24", "7.0"]),
            [true, true, false, false]
        );
        assert_eq!(
            of(|e| e.rmdir_forgets(), ["5.15.209", "5.15.210", "7.0.6", "7.0.7"]),
            [true, false, true, false]
        );
    }
}
