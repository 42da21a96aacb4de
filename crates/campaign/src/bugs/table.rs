//! Bugs with numbers of our own and of the field's.
//!
//! Source: `crash.md` section 6 (A1–A35) with the commits named there. N1 was found here, by the
//!         programs for A26 in era 6.18, and then seen on Linux 6.18.44 (`tests/errors.rs`). N2
//!         was found here by `crash seq-1 --fs f2fs`, and then seen in a block trace of 6.12; so
//!         was N3. N4 was found by `crash wild`; a guest with 6.12 loses the write too. N7 was
//!         read in the kernel's source; a guest with 6.12 loses the file. N9 was found by `crash
//!         wild` with `data=journal`, and then seen on Linux 6.18.44. N8 is paper `inode-trim`
//!         taken at its word. N10 and N11 were read in the kernel's source, found by `crash
//!         direct` with another process that syncs, and seen in a guest with 6.12; that process
//!         found N12, which the source has too, and N13, seen in the guest. N14 was found by `crash
//!         seq-1` and N15 by `crash wild`, both read in the source and seen in the guest; so was
//!         N16. N17 was found by random programs on the real kernel, N18 by `crash moved`, N19 and
//!         N21 by `crash logged`, N20, N22, N24 and N25 by `crash wild`, N23 by asking Linux what a
//!         fault of ours did there; all were seen in the guest. N31 was found by a test's program,
//!         and seen in the guest and in 6.18. N26 was found in the guest by
//!         `kernel-lab`. R1 and R2 are what the reference images of F2FS and its recorded waits
//!         show.

use wp_crash::{Profile, Rule};

use super::{BUG, Bug, PLAIN, Programs, Side};
use crate::programs::{
    beside, direct, emptied, errors, far, fill, logged, moved, nameless, ordered, publish, save,
    zeroed,
};
use crate::space::Space;

/// Little memory, so that the flusher is at work, and a slow device.
const PHONE: Side =
    Side { fs: "ext4,era=4.6,dirty_background_bytes=262144", device: "emmc-16", ..PLAIN };

/// Today's kernel.
const TODAY: Side = Side { fs: "ext4,era=6.18", elevator: "", ..PLAIN };

/// BarrierFS' kernel on a device that keeps the order of barrier writes.
const BARRIERS: Side =
    Side { fs: "ext4,era=3.10.61,journaling=barrier", params: &[("barrier_writes", 1)], ..PLAIN };

/// What F2FS is to wait for so that no known hole of its fsync is open: the first node after a
/// checkpoint, the last of an fsync and those before it; and a direct write's length is part of
/// what its sync makes durable.
macro_rules! mends {
    () => {
        "wait_first_node,wait_last_node,wait_earlier_nodes,size_before_sync"
    };
}
pub(crate) use mends;
/// F2FS so that no known hole is open: out of place, and a flush between data and nodes besides.
const MENDED: &str = concat!("f2fs,mode=lfs,fsync_mode=strict_fixed,", mends!());
/// What F2FS promises.
pub(super) const F2FS_KEEPS: Profile = Profile::of(&wp_f2fs::ENTRY.promises);
/// F2FS as it is mounted if nothing is said.
pub(super) const F2FS: Side = Side { fs: "f2fs", elevator: "", ..PLAIN };
/// A NILFS2 of few small segments.
const NILFS2: Side = Side { params: &[("capacity_bytes", 6 << 20)], elevator: "", ..PLAIN };
/// One of more and larger ones, so that no sync's logs go on in a next.
const NILFS2_LARGE: Side = Side { params: &[("capacity_bytes", 64 << 20)], ..NILFS2 };
/// A device preset and its parameters: zones of 16 MiB as in the power failures of paper
/// `f2fs-oprw`, so that all logs are on sequential ones.
pub const ZONES: (&str, &[(&str, u64)]) = (
    "zn540-4tb-noplp",
    &[
        ("zone_bytes", 16 << 20),
        ("blocks_per_plane", 24),
        ("conventional_zones", 2),
        ("channels", 8),
        ("dies_per_channel", 4),
        ("pages_per_block", 12),
        ("buffer_bytes", 5 << 20),
    ],
);
/// The same while others sync, with direct writes.
const F2FS_IN_COMPANY: Side = Side { company_us: 150, ..F2FS };
const F2FS_ZONED: Side = Side { device: ZONES.0, params: ZONES.1, elevator: "mq-deadline", ..F2FS };
/// A bug of F2FS, by which what was synced is lost.
pub(super) const F2FS_BUG: Bug =
    Bug { fixed: Side { fs: MENDED, ..F2FS }, rule: Rule::LostSync, profile: F2FS_KEEPS, ..BUG };

/// A btrfs as small as mkfs makes one.
const BTRFS: Side = Side { params: &[("capacity_bytes", 128 << 20)], elevator: "", ..PLAIN };
/// One with what Linux 6.12 lacks, and no more.
macro_rules! btrfs {
    ($old:literal) => {
        Side { fs: concat!("btrfs,fix=all,overgrown=replace", $old), ..BTRFS }
    };
}
/// A bug of btrfs' logs, by which what was synced is lost.
const BTRFS_BUG: Bug = Bug {
    fixed: btrfs!(""),
    rule: Rule::LostSync,
    profile: Profile::of(&wp_btrfs::ENTRY.promises),
    programs: Programs::Made(logged::names, 640),
    ..BUG
};

/// All of them.
pub static BUGS: &[Bug] = &[
    Bug {
        id: "A1",
        what: "a file renamed over another has lost its contents (noauto_da_alloc)",
        affected: Side { fs: "ext4,era=4.6,noauto_da_alloc", ..PLAIN },
        rule: Rule::Replaced,
        profile: Profile { replaces_whole: true, ..Profile::EXT4 },
        programs: Programs::Wild(600),
        ..BUG
    },
    Bug {
        id: "A2",
        what: "a file truncated to 0 and rewritten has lost its contents (noauto_da_alloc)",
        affected: Side { fs: "ext4,era=4.6,noauto_da_alloc", ..PLAIN },
        rule: Rule::Replaced,
        profile: Profile { replaces_whole: true, ..Profile::EXT4 },
        programs: Programs::Made(save::in_place, 64),
        ..BUG
    },
    Bug {
        id: "A3",
        what: "data=ordered exposes old data after a crash (3.8 to 4.6.1)",
        affected: Side { fs: "ext4,era=3.8,dirty_background_bytes=262144", ..PHONE },
        fixed: PHONE,
        programs: Programs::Wild(200),
        ..BUG
    },
    Bug {
        id: "A4",
        what: "journal_async_commit with data=ordered: one flush, a valid record, old data (until 3.18)",
        affected: Side { fs: "ext4,era=3.4,journal_async_commit", ..PLAIN },
        fixed: Side { fs: "ext4,era=4.6,journal_async_commit", refused: true, ..PLAIN },
        programs: Programs::Sequences(1),
        ..BUG
    },
    Bug {
        id: "A5",
        what: "the journal tail is updated only in the drive's cache: overwritten transactions are replayed, or none (until 3.3)",
        affected: Side { fs: "ext4,era=3.3,data=journal,journal_mb=4", ..PLAIN },
        fixed: Side { fs: "ext4,era=3.4,data=journal,journal_mb=4", ..PLAIN },
        rule: Rule::LostSync,
        programs: Programs::Made(fill::round_the_log, 1),
        ..BUG
    },
    Bug {
        id: "A6",
        what: "nobarrier on a volatile cache: an incomplete transaction is replayed",
        affected: Side { fs: "ext4,era=3.4,nobarrier", ..PLAIN },
        fixed: Side { fs: "ext4,era=3.4", ..PLAIN },
        rule: Rule::Metadata,
        ..BUG
    },
    Bug {
        id: "A8",
        what: "F2FS, fsync_mode=posix: a node is durable before its data: a file shows data that it never held",
        affected: Side { fs: concat!("f2fs,mode=lfs,", mends!()), ..F2FS },
        fixed: Side { fs: MENDED, ..F2FS },
        profile: F2FS_KEEPS,
        ..BUG
    },
    Bug {
        id: "A9",
        what: "F2FS, fsync_mode=strict on zones: no flush before the last node: fsynced data reads as zeroes",
        affected: Side { fs: concat!("f2fs,fsync_mode=strict,", mends!()), ..F2FS_ZONED },
        fixed: Side { fs: concat!("f2fs,fsync_mode=strict_fixed,", mends!()), ..F2FS_ZONED },
        // Behind a write pointer nothing old is left to be shown.
        rule: Rule::LostSync,
        profile: F2FS_KEEPS,
        ..BUG
    },
    Bug {
        id: "A10",
        what: "F2FS: fdatasync misses a new length or a hole far into a file (until 281518c694a5)",
        affected: Side {
            fs: concat!("f2fs,mode=lfs,fsync_mode=strict_fixed,old_fdatasync,", mends!()),
            ..F2FS
        },
        programs: Programs::Made(far::behind_the_inode, 48),
        ..F2FS_BUG
    },
    Bug {
        id: "A13",
        what: "btrfs: a directory logged with LOG_INODE_EXISTS counts as fsynced: a file renamed into it is lost",
        affected: btrfs!(",old_log=exists"),
        programs: Programs::Made(logged::nested, 64),
        ..BTRFS_BUG
    },
    Bug {
        id: "A13.moved",
        what: "btrfs: fsync of a directory that a file was moved out of loses the file",
        affected: btrfs!(",old_log=moves"),
        ..BTRFS_BUG
    },
    Bug {
        id: "A14",
        what: "btrfs: a moved file whose old directory was replaced is in both directories (until 0f375eed92b5)",
        // To rename directories is a part of it, which makes an fsync a commit if N18 is fixed.
        affected: Side { fs: "btrfs,fix=nameless,old_log=gone_parents", ..BTRFS },
        fixed: Side { fs: "btrfs,fix=nameless", ..BTRFS },
        programs: Programs::Made(logged::replaced, 64),
        ..BTRFS_BUG
    },
    Bug {
        id: "A15",
        what: "btrfs: the parent directory of a new link counts as fsynced and is missing (until d4682ba03ef6)",
        affected: btrfs!(",old_log=names"),
        programs: Programs::Made(logged::nested, 128),
        ..BTRFS_BUG
    },
    Bug {
        id: "A16",
        what: "btrfs: a renamed and fsynced directory has its old name",
        affected: btrfs!(",old_log=dir_refs"),
        ..BTRFS_BUG
    },
    Bug {
        id: "A17",
        what: "btrfs: a link in a new directory is missing after fsync of the file by either name (until 41bd60676923)",
        affected: btrfs!(",old_log=one_parent"),
        ..BTRFS_BUG
    },
    Bug {
        id: "A18.34",
        what: "btrfs: replay counts new directory entries twice: rmdir fails forever (generic/034)",
        affected: btrfs!(",old_replay=dir_size"),
        rule: Rule::Metadata,
        ..BTRFS_BUG
    },
    Bug {
        id: "A18.39",
        what: "btrfs: a removed name stays in its directory: rmdir fails forever (generic/039)",
        // To remove a name is a part of it, which makes an fsync a commit if N19 is fixed.
        affected: Side {
            fs: "btrfs,fix=nameless+renamed,old_log=parents,old_replay=refs",
            ..BTRFS
        },
        fixed: Side { fs: "btrfs,fix=nameless+renamed", ..BTRFS },
        rule: Rule::Metadata,
        ..BTRFS_BUG
    },
    Bug {
        id: "A19",
        what: "btrfs: replay finds no room for an item that exists already: the mount fails (generic/041, until 2c2c452b0cbc)",
        affected: Side {
            fs: "btrfs,fix=nameless+renamed,overgrown=replace,old_replay=overwrite",
            ..BTRFS
        },
        fixed: Side { fs: "btrfs,fix=nameless+renamed,overgrown=replace", ..BTRFS },
        rule: Rule::Recoverable,
        programs: Programs::Made(logged::many_links, 16),
        ..BTRFS_BUG
    },
    Bug {
        id: "A20.6",
        what: "btrfs: fsync of a directory loses its files if one of them was fsynced before",
        affected: btrfs!(",old_log=exists"),
        programs: Programs::Made(logged::nested, 64),
        ..BTRFS_BUG
    },
    Bug {
        id: "A20.7",
        what: "btrfs: fsync of a file loses some of its names (until 41bd60676923)",
        affected: btrfs!(",old_log=one_parent"),
        ..BTRFS_BUG
    },
    Bug {
        id: "A20.8",
        what: "btrfs: fsynced preallocation beyond EOF is lost (until 471d557afed1)",
        affected: btrfs!(",old_log=prealloc"),
        ..BTRFS_BUG
    },
    Bug {
        id: "A21.9",
        what: "F2FS: zero range with KEEP_SIZE beyond EOF makes the file longer (until 17cd07ae9507)",
        affected: Side {
            fs: concat!("f2fs,mode=lfs,fsync_mode=strict_fixed,old_zero_range,", mends!()),
            ..F2FS
        },
        programs: Programs::Made(far::behind_the_inode, 48),
        ..F2FS_BUG
    },
    Bug {
        id: "A21.10",
        what: "F2FS: a file created and fsynced in a renamed directory is in the old one (strict mode until 0a007b97aad6)",
        affected: Side { fs: concat!("f2fs,mode=lfs,fsync_mode=posix,", mends!()), ..F2FS },
        programs: Programs::Made(moved::directories, 64),
        // Mended: strict, where such an fsync is a checkpoint.
        ..F2FS_BUG
    },
    Bug {
        id: "A11",
        what: "F2FS, fsync_mode=nobarrier on a volatile cache: fsynced data is lost",
        affected: Side { fs: concat!("f2fs,mode=lfs,fsync_mode=nobarrier,", mends!()), ..F2FS },
        ..F2FS_BUG
    },
    Bug {
        id: "R1",
        what: "F2FS: fsync does not wait for the first node after a checkpoint: the flush can overtake it",
        affected: Side {
            fs: "f2fs,mode=lfs,fsync_mode=strict_fixed,\
                wait_last_node,wait_earlier_nodes,size_before_sync",
            ..F2FS
        },
        ..F2FS_BUG
    },
    Bug {
        id: "R2",
        what: "F2FS, strict: fsync does not wait for its last node (the one with the fsync mark)",
        affected: Side {
            fs: "f2fs,mode=lfs,fsync_mode=strict_fixed,\
                wait_first_node,wait_earlier_nodes,size_before_sync",
            ..F2FS
        },
        ..F2FS_BUG
    },
    Bug {
        id: "N2",
        what: "F2FS: syncfs after in-place overwrites sends neither a flush nor a checkpoint",
        affected: Side { fs: concat!("f2fs,fsync_mode=strict_fixed,", mends!()), ..F2FS },
        // Mended: out of place, where a node changes, and with it there is a checkpoint.
        ..F2FS_BUG
    },
    Bug {
        id: "N3",
        what: "F2FS, strict: the flush before the last node overtakes the nodes before it",
        affected: Side {
            fs: "f2fs,mode=lfs,fsync_mode=strict_fixed,\
                wait_first_node,wait_last_node,size_before_sync",
            ..F2FS
        },
        ..F2FS_BUG
    },
    Bug {
        id: "N4",
        what: "F2FS: a direct O_DSYNC write updates the length after its sync (since a1e09b03e6f5)",
        affected: Side {
            fs: "f2fs,mode=lfs,fsync_mode=strict_fixed,\
                wait_first_node,wait_last_node,wait_earlier_nodes",
            ..F2FS
        },
        programs: Programs::Wild(200),
        ..F2FS_BUG
    },
    Bug {
        id: "N5",
        what: "F2FS: recovery overwrites the node chain that it reads: a crash during recovery loses fsynced files",
        affected: Side { fs: MENDED, ..F2FS },
        fixed: Side {
            fs: concat!("f2fs,mode=lfs,fsync_mode=strict_fixed,recover_aside,", mends!()),
            ..F2FS
        },
        rule: Rule::Recoverable,
        profile: F2FS_KEEPS,
        second_cuts: 64,
        ..BUG
    },
    Bug {
        id: "N6",
        what: "F2FS on zones: recovery resets the zone where the node chain begins: a crash before its checkpoint loses fsynced files",
        affected: Side { fs: concat!("f2fs,fsync_mode=strict_fixed,", mends!()), ..F2FS_ZONED },
        fixed: Side {
            fs: concat!("f2fs,fsync_mode=strict_fixed,recover_aside,", mends!()),
            ..F2FS_ZONED
        },
        rule: Rule::Recoverable,
        profile: F2FS_KEEPS,
        second_cuts: 64,
        ..BUG
    },
    Bug {
        id: "N10",
        what: "F2FS, mode=lfs: a checkpoint or another fsync makes the new place of a direct write durable before its data",
        affected: Side {
            fs: concat!("f2fs,mode=lfs,fsync_mode=strict_fixed,fsync_alone,", mends!()),
            ..F2FS_IN_COMPANY
        },
        fixed: Side {
            fs: concat!("f2fs,mode=lfs,direct=log,fsync_mode=strict_fixed,fsync_alone,", mends!()),
            ..F2FS_IN_COMPANY
        },
        programs: Programs::Made(direct::database, 48),
        rule: Rule::LostSync,
        ..F2FS_BUG
    },
    Bug {
        id: "N11",
        what: "F2FS: the same for a direct write that fills a hole or extends the file, in any mode",
        affected: Side {
            fs: concat!("f2fs,fsync_mode=strict_fixed,fsync_alone,", mends!()),
            ..F2FS_IN_COMPANY
        },
        fixed: Side {
            fs: concat!("f2fs,direct=log,fsync_mode=strict_fixed,fsync_alone,", mends!()),
            ..F2FS_IN_COMPANY
        },
        programs: Programs::Made(direct::database, 48),
        rule: Rule::Exposure,
        ..F2FS_BUG
    },
    Bug {
        id: "N12",
        what: "F2FS: an fsync during the flush of another fsync of the same file returns at once",
        affected: Side {
            fs: concat!("f2fs,era=6.12.117,direct=log,fsync_mode=strict_fixed,", mends!()),
            company_us: 300,
            ..F2FS_ZONED
        },
        fixed: Side {
            fs: concat!(
                "f2fs,era=6.12.117,direct=log,fsync_mode=strict_fixed,fsync_alone,",
                mends!()
            ),
            company_us: 300,
            ..F2FS_ZONED
        },
        programs: Programs::Made(direct::database, 48),
        ..F2FS_BUG
    },
    Bug {
        id: "N13",
        what: "F2FS: a direct O_DSYNC overwrite uses FUA, but the nodes that lead to it are not written (since a1e09b03e6f5)",
        affected: Side {
            fs: concat!("f2fs,fsync_mode=strict_fixed,fsync_alone,", mends!()),
            ..F2FS
        },
        fixed: Side {
            fs: concat!("f2fs,direct=log,fsync_mode=strict_fixed,fsync_alone,", mends!()),
            ..F2FS
        },
        programs: Programs::Made(direct::durable, 128),
        ..F2FS_BUG
    },
    Bug {
        id: "N14",
        what: "NILFS2: if the logs of a sync span two segments, recovery accepts the second when the first is lost",
        affected: Side { fs: "nilfs2,sync_inodes,blocks_per_segment=16", ..NILFS2 },
        fixed: Side { fs: "nilfs2,sync_inodes,blocks_per_segment=16,flush_segments", ..NILFS2 },
        rule: Rule::Recoverable,
        profile: Profile::of(&wp_nilfs2::ENTRY.promises),
        programs: Programs::Made(moved::directories, 16),
        ..BUG
    },
    Bug {
        id: "N15",
        what: "NILFS2: after fdatasync of an unlinked open file recovery and mount fail",
        affected: Side { fs: "nilfs2,sync_inodes,blocks_per_segment=64", ..NILFS2_LARGE },
        fixed: Side {
            fs: "nilfs2,sync_inodes,sync_nameless,blocks_per_segment=64",
            ..NILFS2_LARGE
        },
        rule: Rule::Recoverable,
        profile: Profile::of(&wp_nilfs2::ENTRY.promises),
        programs: Programs::Made(nameless::spill, 32),
        ..BUG
    },
    Bug {
        id: "N28",
        what: "NILFS2: an fsync writes no inode that changed without its blocks: a chmod, chown or utimensat is lost",
        affected: Side { fs: "nilfs2,blocks_per_segment=64", ..NILFS2_LARGE },
        fixed: Side { fs: "nilfs2,sync_inodes,blocks_per_segment=64", ..NILFS2_LARGE },
        rule: Rule::LostSync,
        profile: Profile::of(&wp_nilfs2::ENTRY.promises),
        programs: Programs::Text(
            "open 0 a rw,creat\nopen 1 . r\nsyncfs 1\nchmod a 0710\nfsync 0\n",
        ),
        ..BUG
    },
    Bug {
        id: "N26",
        what: "NILFS2: an fsync returns during the flush of another fsync of the same log: its data is lost",
        affected: Side {
            fs: "nilfs2,sync_inodes,flush_segments,blocks_per_segment=64",
            company_us: 300,
            ..NILFS2_LARGE
        },
        fixed: Side {
            fs: "nilfs2,sync_inodes,flush_segments,await_flush,blocks_per_segment=64",
            company_us: 300,
            ..NILFS2_LARGE
        },
        rule: Rule::LostSync,
        profile: Profile::of(&wp_nilfs2::ENTRY.promises),
        programs: Programs::Made(beside::synced, 32),
        ..BUG
    },
    Bug {
        id: "N16",
        what: "btrfs: fsync of an unlinked open file does nothing: the name returns with old data",
        affected: Side { fs: "btrfs,fix=renamed", ..BTRFS },
        programs: Programs::Made(nameless::spill, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N17",
        what: "btrfs: the log has more names of a file than fit into its item: Linux panics at mount",
        affected: Side { fs: "btrfs,fix=nameless+renamed", ..BTRFS },
        rule: Rule::Recoverable,
        programs: Programs::Made(logged::many_links, 16),
        ..BTRFS_BUG
    },
    Bug {
        id: "N18",
        what: "btrfs: a file fsynced in a renamed directory is in the directory with the old name",
        affected: Side { fs: "btrfs,fix=nameless", ..BTRFS },
        programs: Programs::Made(moved::directories, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N19",
        what: "btrfs: a file is linked into another directory, unlinked and fsynced: with a new directory next to it, the removed name returns",
        affected: Side { fs: "btrfs,fix=nameless+renamed+space,overgrown=replace", ..BTRFS },
        programs: Programs::Made(logged::names, 640),
        ..BTRFS_BUG
    },
    Bug {
        id: "N21",
        what: "btrfs: a synced file is linked elsewhere and unlinked, its old directory is fsynced: the file is lost",
        affected: Side { fs: "btrfs,fix=nameless+renamed+space,overgrown=replace", ..BTRFS },
        programs: Programs::Made(logged::linked_away, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N20",
        what: "btrfs: fsync of a directory with a new link to a file loses the file's preallocation beyond EOF",
        affected: Side { fs: "btrfs,fix=nameless+renamed+unlinked,overgrown=replace", ..BTRFS },
        programs: Programs::Made(logged::spare, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N22",
        what: "btrfs: write and fsync of the front of a preallocation beyond EOF lose the rest of it",
        affected: Side { fs: "btrfs,fix=nameless+renamed+unlinked,overgrown=replace", ..BTRFS },
        programs: Programs::Made(logged::front, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N23",
        what: "btrfs: a new inode is evicted, a synced file is renamed next to it, the new file is fsynced: it is lost",
        affected: Side {
            fs: "btrfs,fix=nameless+renamed+unlinked+space,overgrown=replace",
            ..BTRFS
        },
        programs: Programs::Made(logged::reloaded, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N24",
        what: "btrfs: a symbolic link is renamed between two fsyncs of its directory: the new name is lost",
        affected: Side {
            fs: "btrfs,fix=nameless+renamed+unlinked+space+reloaded,overgrown=replace",
            ..BTRFS
        },
        programs: Programs::Made(logged::renamed_links, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N25",
        what: "btrfs: a file is truncated, fsynced and extended, another fsync commits: the truncated bytes return",
        affected: Side {
            fs: "btrfs,fix=nameless+renamed+unlinked+space+reloaded+symlinks,overgrown=replace",
            ..BTRFS
        },
        programs: Programs::Made(logged::longer, 32),
        ..BTRFS_BUG
    },
    Bug {
        id: "N31",
        what: "btrfs: an fsync after rmdir of a subvolume's name in a snapshot of its parent: the mount fails",
        affected: Side { fs: "btrfs", ..BTRFS },
        fixed: Side { fs: "btrfs,fix=placeholder", ..BTRFS },
        rule: Rule::Recoverable,
        programs: Programs::Text(
            "subvolume_create s\nsnapshot . t\nrmdir t/s\nopen 0 t r\nfsync 0\n",
        ),
        ..BTRFS_BUG
    },
    Bug {
        id: "A12",
        what: "a drive with faulty power-loss protection loses its cache",
        affected: Side {
            params: &[("cache_bytes", 0), ("fua", 0)],
            space: Space::Permitted {
                lying_flush: false,
                lost_fua: false,
                faulty_plp: true,
                atomic: None,
            },
            ..PLAIN
        },
        fixed: Side { params: &[("cache_bytes", 0), ("fua", 0)], ..PLAIN },
        rule: Rule::LostSync,
        ..BUG
    },
    Bug {
        id: "A22",
        what: "a published name is lost: the directory was not fsynced",
        affected: TODAY,
        // The fixed program calls fsync on the directory.
        fixed: TODAY,
        rule: Rule::LostSync,
        profile: Profile { marks_hold: true, ..Profile::EXT4 },
        programs: Programs::Made(publish::without_directory, 64),
        fixed_programs: Some(Programs::Made(publish::with_directory, 64)),
        ..BUG
    },
    Bug {
        id: "A26",
        what: "a data write fails, one fsync returns EIO, the fsync of another descriptor returns 0 (until 4.12)",
        affected: PLAIN,
        fixed: Side { fs: "ext4,era=6.12", elevator: "", ..PLAIN },
        rule: Rule::Errors,
        programs: Programs::Made(errors::several_files_open, 256),
        ..BUG
    },
    Bug {
        id: "A27",
        what: "after a failed fsync reads return data that is not on the device, and fsync returns 0 (ext4's part)",
        affected: TODAY,
        // Pages never revert in ext4. What has no page shows what is there.
        fixed: TODAY,
        rule: Rule::Errors,
        profile: Profile { reads_stay: true, ..Profile::EXT4 },
        programs: Programs::Made(errors::read_back, 64),
        fixed_programs: Some(Programs::Made(errors::read_back_direct, 64)),
        ..BUG
    },
    Bug {
        id: "N1",
        what: "a block is rewritten after its first write failed, fsync returns 0, the block is lost (since 6.15)",
        affected: TODAY,
        fixed: Side { fs: "ext4,era=6.12", elevator: "", ..PLAIN },
        rule: Rule::Errors,
        programs: Programs::Made(errors::fresh_blocks, 64),
        ..BUG
    },
    Bug {
        id: "N7",
        what: "ext4 with discard: blocks freed by a failed commit are discarded though they are still in use",
        affected: Side { fs: "ext4,era=6.18,discard", ..TODAY },
        fixed: Side { fs: "ext4,era=6.18,discard,discard_committed", ..TODAY },
        rule: Rule::Errors,
        programs: Programs::Made(errors::failing_commit, 64),
        ..BUG
    },
    Bug {
        id: "N8",
        what: "an inode-table block is discarded when its last inode is freed (paper inode-trim), before that is durable",
        affected: Side {
            fs: "ext4,era=6.18,inode_size=1024,data=journal,inode_trim=naive",
            ..TODAY
        },
        fixed: Side { fs: "ext4,era=6.18,inode_size=1024,data=journal,inode_trim=safe", ..TODAY },
        rule: Rule::Metadata,
        programs: Programs::Made(emptied::tables_data_logged, 8),
        ..BUG
    },
    Bug {
        id: "N9",
        what: "data=journal: blocks are zeroed outside the journal, and recovery overwrites them with an older copy",
        affected: Side { fs: "ext4,era=6.18,data=journal", ..TODAY },
        // In a kernel, by `/sys/fs/ext4/DEV/extent_max_zeroout_kb`.
        fixed: Side { fs: "ext4,era=6.18,data=journal,extent_max_zeroout_kb=0", ..TODAY },
        rule: Rule::LostSync,
        programs: Programs::Made(zeroed::in_place, 64),
        ..BUG
    },
    Bug {
        id: "A32",
        what: "BarrierFS on a device without ordered writes: a write survives, and writes before its barrier do not",
        affected: Side { params: &[("barrier_writes", 0)], ..BARRIERS },
        fixed: BARRIERS,
        rule: Rule::Order,
        programs: Programs::Made(ordered::logs, 48),
        ..BUG
    },
    Bug {
        id: "A33",
        what: "data=writeback with discard: blocks are discarded before their freeing is durable",
        affected: Side { fs: "ext4,era=6.18,discard,data=writeback", ..TODAY },
        fixed: Side { fs: "ext4,era=6.18,discard", ..TODAY },
        rule: Rule::LostSync,
        programs: Programs::Wild(64),
        ..BUG
    },
    Bug {
        id: "A28",
        what: "an O_DIRECT write without fsync, or its new length, is lost in a volatile cache",
        affected: PLAIN,
        // The fixed program calls fsync, and relies on nothing else.
        fixed_profile: Some(Profile::EXT4),
        rule: Rule::LostSync,
        profile: Profile { direct_is_durable: true, ..Profile::EXT4 },
        ..BUG
    },
    Bug {
        id: "A35",
        what: "crash during recovery: the journal is cleared before its blocks are written in place",
        affected: Side { recovery_in_order: false, ..PLAIN },
        rule: Rule::Recoverable,
        second_cuts: 64,
        ..BUG
    },
];
