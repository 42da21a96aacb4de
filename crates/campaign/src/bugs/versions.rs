//! What versions of file systems forgot to make durable: the last that does, and the first that
//! does not, each without the other faults of its age that the same programs would meet.

use wp_crash::{Profile, Rule};

use super::{BUG, Bug, PLAIN, Programs, Side};
use crate::programs::durable;

/// ext4 by one version's rules, on its own scheduler.
macro_rules! ext4 {
    ($options:literal) => {
        Side { fs: concat!("ext4,era=", $options), elevator: "", ..PLAIN }
    };
}
pub(super) use ext4;

/// NILFS2 with small blocks, which syncs what a later call than its own changed.
macro_rules! nilfs2 {
    ($version:literal) => {
        Side {
            fs: concat!("nilfs2,block_size=1024,sync_inodes,flush_segments,era=", $version),
            elevator: "",
            params: &[("capacity_bytes", 64 << 20)],
            ..PLAIN
        }
    };
}

/// btrfs by one release's rules, as small as mkfs makes one.
macro_rules! btrfs {
    ($version:literal) => {
        Side {
            fs: concat!("btrfs,era=", $version),
            elevator: "",
            params: &[("capacity_bytes", 128 << 20)],
            ..PLAIN
        }
    };
}

/// F2FS by one release's rules, without the faults that every version has.
macro_rules! f2fs {
    ($version:literal) => {
        Side {
            fs: concat!(
                "f2fs,mode=lfs,wait_first_node,wait_last_node,wait_earlier_nodes,size_before_sync,\
                 era=",
                $version
            ),
            elevator: "",
            params: &[("capacity_bytes", 64 << 20)],
            ..PLAIN
        }
    };
}

/// F2FS' roll-forward does not bring back what was synced.
const LOST_BY_RECOVERY: Bug = Bug { profile: Profile::of(&wp_f2fs::ENTRY.promises), ..LOST };

/// btrfs' log does not bring back what was synced.
const LOST_IN_A_LOG: Bug = Bug { profile: Profile::of(&wp_btrfs::ENTRY.promises), ..LOST };

/// What was synced is lost.
pub(super) const LOST: Bug = Bug { rule: Rule::LostSync, profile: Profile::EXT4, ..BUG };

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "V1",
        rule_name: Some("space_is_synchronous"),
        what: "fallocate through an O_DSYNC descriptor returns before its commit (until 3.5)",
        affected: ext4!("3.5,sync_flushes"),
        // A delayed write behind the space is V6.
        fixed: ext4!("4.15,sync_flushes"),
        programs: Programs::Made(durable::asked, 32),
        ..LOST
    },
    Bug {
        id: "V2",
        rule_name: Some("size_counts_for_fdatasync"),
        what: "fdatasync ignores a change of the length alone (until 3.6)",
        affected: ext4!("3.6"),
        fixed: ext4!("3.7"),
        programs: Programs::Made(durable::lengths, 32),
        ..LOST
    },
    Bug {
        id: "V3",
        rule_name: Some("async_syncs_early"),
        what: "io_submit of an O_DSYNC write syncs before the data, and never after them (until 3.11)",
        affected: ext4!("3.11"),
        fixed: ext4!("3.12"),
        programs: Programs::Made(durable::queued, 32),
        ..LOST
    },
    Bug {
        id: "V4",
        rule_name: Some("append_syncs_elsewhere"),
        what: "write() to an O_APPEND|O_SYNC descriptor syncs other bytes than it wrote (until 3.13)",
        affected: ext4!("3.13"),
        fixed: ext4!("3.14"),
        programs: Programs::Made(durable::at_the_end, 32),
        ..LOST
    },
    Bug {
        id: "V5",
        rule_name: Some("holes_count_for_fdatasync"),
        what: "fdatasync ignores a hole (until 4.11.4)",
        affected: ext4!("4.11.4"),
        fixed: ext4!("4.11.5"),
        programs: Programs::Made(durable::holes, 32),
        ..LOST
    },
    Bug {
        id: "V6",
        rule_name: Some("space_moves_disksize"),
        what: "fallocate through an O_DSYNC descriptor before a delayed write leaves the length where it was (until 4.14.2)",
        affected: ext4!("4.14.2"),
        fixed: ext4!("4.14.3"),
        programs: Programs::Made(durable::asked, 32),
        ..LOST
    },
    Bug {
        id: "V7",
        rule_name: Some("space_counts_for_fdatasync"),
        what: "fdatasync ignores space asked for beyond EOF (generic/468, until 4.14.7)",
        affected: ext4!("4.14.7"),
        fixed: ext4!("4.14.8"),
        programs: Programs::Made(durable::space, 32),
        ..LOST
    },
    Bug {
        id: "V8",
        rule_name: Some("direct_moves_disksize"),
        what: "a direct O_DSYNC write before a delayed one leaves the length where it was (until 4.16)",
        affected: ext4!("4.16"),
        fixed: ext4!("4.17"),
        programs: Programs::Made(durable::behind, 32),
        ..LOST
    },
    Bug {
        id: "V9",
        rule_name: Some("direct_syncs_before_size"),
        what: "an extending O_DIRECT|O_DSYNC write syncs before the new length (generic/737, 5.5 to 6.6.2, 6.1.63)",
        affected: ext4!("6.1.63"),
        // 6.1.64 and 6.1.65 corrupt direct writes by another change that they lack.
        fixed: ext4!("6.1.66"),
        programs: Programs::Made(durable::appended, 32),
        ..LOST
    },
    Bug {
        id: "V10",
        rule_name: Some("recovery_misplaces"),
        what: "NILFS2 with blocks of 1 KiB: recovery copies the data of an fdatasync to another place of its page (until 6.7, 6.1.78)",
        affected: nilfs2!("6.1.78"),
        fixed: nilfs2!("6.1.79"),
        profile: Profile::of(&wp_nilfs2::ENTRY.promises),
        programs: Programs::Made(durable::parts, 32),
        ..LOST
    },
    Bug {
        id: "V11",
        rule_name: Some("new_names_count"),
        what: "btrfs: a directory that was logged for a link in it counts as synced: its fsync loses a new directory (generic/782, 5.16 to 6.17)",
        affected: btrfs!("6.12.58"),
        fixed: btrfs!("6.12.59"),
        programs: Programs::Text(
            "open 0 file1 rw,creat\n\
             sync\n\
             mkdir dir\n\
             open 1 file1 rw,sync\n\
             pwrite 1 10 0 5\n\
             link file1 dir/file2\n\
             open 2 . r\n\
             fsync 2",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V12",
        rule_name: Some("new_names_skip_entries"),
        what: "btrfs: a directory that was logged for a renamed file loses its other new entries (generic/785, 6.1 to 6.18.2)",
        affected: btrfs!("6.12.63"),
        fixed: btrfs!("6.12.64"),
        programs: Programs::Text(
            "open 0 file1 rw,creat\n\
             sync\n\
             pwrite 0 1000 0 170\n\
             fsync 0\n\
             mkdir dir\n\
             open 1 dir/foo rw,creat\n\
             rename file1 file2\n\
             open 2 . r\n\
             fsync 2",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V13",
        rule_name: Some("existing_keeps_size"),
        what: "btrfs: a file cut to length 0, synced and linked has its old length again (generic/789, until 6.18.23)",
        affected: btrfs!("6.12.113"),
        fixed: btrfs!("6.12.114"),
        programs: Programs::Text(
            "open 0 foo rw,creat\n\
             pwrite 0 65536 0 5\n\
             sync\n\
             ftruncate 0 0\n\
             fsync 0\n\
             link foo bar\n\
             open 1 baz rw,creat\n\
             fsync 1",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V14",
        rule_name: Some("rmdir_forgets"),
        what: "btrfs: fsync of a removed directory that another moved out of: no mount (6.15.3 to 6.18.29)",
        affected: btrfs!("6.18.29"),
        fixed: btrfs!("6.18.30"),
        rule: Rule::Recoverable,
        programs: Programs::Text(
            "mkdir dir1\n\
             mkdir dir1/dir2\n\
             mkdir dir3\n\
             sync\n\
             open 0 dir1 r\n\
             setxattr dir1 user.a 1 1\n\
             fsync 0\n\
             rename dir1/dir2 dir3/dir2\n\
             rmdir dir1\n\
             fsync 0",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V15",
        rule_name: Some("replay_skips_by_last"),
        what: "btrfs: replay of a synced file without names fails: no mount (generic/771, 6.15.3 to 6.16.1)",
        affected: btrfs!("6.16.1"),
        fixed: btrfs!("6.16.2"),
        rule: Rule::Recoverable,
        programs: Programs::Text(
            "mkdir testdir\n\
             open 0 testdir/foo rw,creat\n\
             pwrite 0 65536 0 5\n\
             unlink testdir/foo\n\
             fsync 0\n\
             open 1 testdir/bar rw,creat\n\
             fsync 1",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V16",
        rule_name: Some("logs_moved_conflicts"),
        what: "btrfs: a moved directory whose old name a synced file has gets two names: no mount (generic/784, until 6.18.2)",
        affected: btrfs!("6.12.63"),
        fixed: btrfs!("6.12.64"),
        rule: Rule::Recoverable,
        programs: Programs::Text(
            "mkdir dir1\n\
             mkdir dir2\n\
             sync\n\
             rename dir1 dir2/dir1\n\
             open 0 dir1 rw,creat\n\
             fsync 0\n\
             rename dir1 dir2/foo\n\
             open 1 dir2/foo r\n\
             fsync 1",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V17",
        rule_name: Some("conflicts_of_new_only"),
        what: "btrfs: a directory takes the name of a renamed one and is synced: the renamed one and its files are lost (btrfs/340, until 6.18.5)",
        affected: btrfs!("6.12.65"),
        fixed: btrfs!("6.12.66"),
        programs: Programs::Text(
            "mkdir d1\n\
             mkdir d2\n\
             open 0 d2/foo rw,creat\n\
             pwrite 0 4096 0 1\n\
             sync\n\
             rename d2 d3\n\
             rename d1 d2\n\
             open 1 d2 r\n\
             fsync 1",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V18",
        rule_name: Some("conflicts_skip_entries"),
        what: "btrfs: the name of a removed directory is reused: the synced parent loses its new entries (generic/790, 5.1 to 6.18.19)",
        affected: btrfs!("6.12.77"),
        fixed: btrfs!("6.12.78"),
        programs: Programs::Text(
            "mkdir foo\n\
             sync\n\
             rmdir foo\n\
             mkdir dir1\n\
             mkdir dir2\n\
             open 0 foo rw,creat\n\
             link foo dir2/link\n\
             open 1 dir2 r\n\
             fsync 1\n\
             open 2 . r\n\
             fsync 2",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V19",
        rule_name: Some("renames_copy_all"),
        what: "btrfs: a symbolic link renamed between two fsyncs of its directory has its old name (N24, generic/779, until 6.17.8)",
        affected: btrfs!("6.16"),
        fixed: btrfs!("6.18"),
        programs: Programs::Text(
            "mkdir dir\n\
             symlink target dir/old\n\
             open 0 dir r\n\
             fsync 0\n\
             rename dir/old dir/new\n\
             fsync 0",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V20",
        rule_name: Some("links_exist_only"),
        what: "btrfs: a symbolic link renamed before the fsync of its directory is empty (generic/690, until 5.15.38, 5.17.6)",
        affected: btrfs!("5.15.38"),
        fixed: btrfs!("5.15.39"),
        programs: Programs::Text(
            "mkdir dir\n\
             open 0 dir r\n\
             fsync 0\n\
             symlink target dir/old\n\
             rename dir/old dir/new\n\
             fsync 0",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V21",
        rule_name: Some("full_sync_skips_space"),
        what: "btrfs: fsync after chmod loses space behind the end of a file whose extents are in an unchanged leaf (until 5.15.26, 5.16.12)",
        affected: btrfs!("5.15.26,node_size=4096"),
        fixed: btrfs!("5.15.27,node_size=4096"),
        programs: Programs::Text(
            "open 0 f rw,creat\n\
             setxattr f user.a 1500 1\n\
             setxattr f user.b 1500 2\n\
             setxattr f user.c 1500 3\n\
             pwrite 0 8192 0 3\n\
             fallocate 0 keep 8192 65536\n\
             sync\n\
             chmod f 600\n\
             fsync 0",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V22",
        rule_name: Some("recovers_owners"),
        what: "F2FS: roll-forward does not recover the owner of a synced file (until 4.19.221, 4.20)",
        affected: f2fs!("4.19.221"),
        fixed: f2fs!("4.19.222"),
        programs: Programs::Text(
            "open 0 f rw,creat\n\
             pwrite 0 4096 0 1\n\
             sync\n\
             chown f 1000 100\n\
             pwrite 0 4096 4096 2\n\
             fsync 0",
        ),
        ..LOST_BY_RECOVERY
    },
    Bug {
        id: "V23",
        rule_name: Some("recovery_writes_inodes"),
        what: "F2FS: roll-forward forgets the mode of a synced file of which nothing else changed (until 5.0, 4.19.221)",
        affected: f2fs!("5.0"),
        fixed: f2fs!("5.1"),
        programs: Programs::Text(
            "open 0 f rw,creat\n\
             pwrite 0 4096 0 1\n\
             sync\n\
             chmod f 600\n\
             fsync 0",
        ),
        ..LOST_BY_RECOVERY
    },
    Bug {
        id: "V24",
        rule_name: Some("existing_keeps_size"),
        what: "btrfs: permissions, owner and times of a synced file that got a new name are those of the last commit (until 6.18.23)",
        affected: btrfs!("6.12.113"),
        fixed: btrfs!("6.12.114"),
        programs: Programs::Text(
            "mkdir a\n\
             open 0 b rw,creat\n\
             sync\n\
             chmod b 710\n\
             chown b 1000 100\n\
             utimensat b 1 2\n\
             fsync 0\n\
             link b a/c\n\
             open 1 a r\n\
             fsync 1",
        ),
        ..LOST_IN_A_LOG
    },
    Bug {
        id: "V25",
        rule_name: Some("sync_flushes"),
        what: "ext4: syncfs sends no flush where no transaction is to be committed: data written in place is lost (until 3.10)",
        affected: ext4!("3.10"),
        fixed: ext4!("3.11"),
        programs: Programs::Text(
            "open 0 a rw,creat\n\
             pwrite 0 8192 0 1\n\
             open 1 . r\n\
             syncfs 1\n\
             pwrite 0 4096 4096 2\n\
             syncfs 1",
        ),
        ..LOST
    },
    Bug {
        id: "V26",
        rule_name: Some("zeroes_before_disksize"),
        what: "ext4: a store into a range that zero range has prepared beyond the length on disk: fsck finds the length too small (generic/456, until 5.4.33, 5.5.18)",
        affected: ext4!("5.4.33"),
        fixed: ext4!("5.4.34"),
        rule: Rule::Metadata,
        programs: Programs::Text(
            "open 0 f rw,creat\n\
             pwrite 0 56425 79837 1\n\
             fallocate 0 extend 46385 46509\n\
             fallocate 0 collapse 114688 16384\n\
             pwrite 0 6676 255468 2\n\
             fallocate 0 zero-keep 135084 28060\n\
             mmap_write 0 10063 136877 3\n\
             sync_file_range 0 135168 12288\n\
             open 1 g rw,creat\n\
             fsync 1",
        ),
        ..LOST
    },
];
