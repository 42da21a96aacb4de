//! The rules of btrfs' logs that changed between kernels. Older ones have words of their own
//! (`old_log`, `old_replay`).
//!
//! Left out: until 6.0 a log has any number of inodes in conflict; until 6.4 an inode that left
//!           memory counts as not logged; both end more fsyncs in a commit later, or sooner.

use wp_vfs::{Version, policies};

policies! {
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
    /// An inode that is logged once more so that it exists keeps the length of the last commit.
    existing_keeps_size = "5254d4181add btrfs: fix zero size inode with non-zero size after log replay",
        None, Some(Version(7, 0, 0)),
        backported &[
            Version(6, 1, 191), Version(6, 6, 160), Version(6, 12, 114), Version(6, 18, 24),
            Version(6, 19, 14),
        ],
        "a file cut to length 0, synced and logged again for a name has its old length after replay (generic/789)";
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
