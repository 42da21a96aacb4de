//! The table.

use super::{Conflict, Need, Origin, Technique};
use crate::{direct_io, ext4_fsync, f2fs_oprw, inode_trim, journal_conflict};

const FSYNC: &str = ext4_fsync::SLUG;
const OPRW: &str = f2fs_oprw::SLUG;
const DIRECT: &str = direct_io::SLUG;
const TRIM: &str = inode_trim::SLUG;
const BARRIER: &str = journal_conflict::SLUG;

/// What the others differ from.
const PLAIN: Technique = Technique {
    name: "",
    about: "",
    origin: Origin::Linux(FSYNC),
    fs: Some("ext4"),
    on: "",
    elevator: "",
    since: None,
    until: None,
    needs: &[],
    conflicts: &[],
    unsafe_without: &[],
};
const F2FS: Technique = Technique { fs: Some("f2fs"), origin: Origin::Linux(OPRW), ..PLAIN };
const NAMED: Technique = Technique { fs: None, ..PLAIN };

/// A conflict that a mount refuses.
const fn refused(with: &'static str, why: &'static str) -> Conflict {
    Conflict { with, why, mount_refuses: true }
}

/// One that a mount takes, for nothing in it asks.
const fn unwise(with: &'static str, why: &'static str) -> Conflict {
    Conflict { with, why, mount_refuses: false }
}

const ONE_ERA: &str = "they belong to different kernel versions";
const ONE_MODE: &str = "a mount has one fsync mode";
const NO_PLACE: &str =
    "discards are not ordered with writes: the next transaction could overtake one";

/// All, in the order in which they are listed.
pub static TECHNIQUES: &[Technique] = &[
    Technique {
        name: "inode-lists",
        about: "data=ordered: write() and writeback add the inode to the transaction's list; the \
            commit writes the data of all listed inodes and waits for it",
        on: "era=3.4",
        until: Some((3, 8)),
        ..PLAIN
    },
    Technique {
        name: "no-filing",
        about: "no inode is added to the transaction's list: fsync is faster, and metadata can be \
            durable before its data (A3)",
        on: "era=3.8",
        since: Some((3, 8)),
        until: Some((4, 7)),
        conflicts: &[refused_era("inode-lists"), refused_era("filed-at-allocation")],
        ..PLAIN
    },
    Technique {
        name: "filed-at-allocation",
        about: "data=ordered since 4.6.2: writeback adds the inode whose blocks it allocates, and \
            the commit waits for that data",
        on: "era=4.6",
        since: Some((4, 6)),
        conflicts: &[refused_era("inode-lists")],
        ..PLAIN
    },
    Technique {
        name: "unwritten-first",
        about: "dioread_nolock (default since 5.6): extents are allocated unwritten and converted \
            when the data is written, so no commit waits for data",
        on: "era=6.18,dioread_nolock",
        since: Some((3, 8)),
        ..PLAIN
    },
    Technique {
        name: "data-journal",
        about: "data=journal: data is journaled too",
        on: "data=journal",
        ..PLAIN
    },
    Technique {
        name: "data-writeback",
        about: "data=writeback: no order between data and metadata",
        on: "data=writeback",
        conflicts: &[unwise("data-journal", "a mount has one data mode")],
        ..PLAIN
    },
    Technique {
        name: "async-commit",
        about: "journal_async_commit: the commit record is sent with its transaction, and one \
            flush follows",
        on: "data=writeback,journal_async_commit",
        conflicts: &[
            refused(
                "inode-trim",
                "no flush separates a discard from the revoke records of the blocks that it \
                 replaces",
            ),
            refused(
                "dual-mode",
                "dual-mode journaling orders its record by a barrier, not by a checksum",
            ),
        ],
        ..PLAIN
    },
    Technique {
        name: "nobarrier",
        about: "nobarrier: no flush and no FUA (EXT4-OD of the paper on conflicts); for drives \
            with power-loss protection",
        origin: Origin::Linux(BARRIER),
        on: "nobarrier",
        unsafe_without: &[("power-loss protection", "A6")],
        ..PLAIN
    },
    Technique {
        name: "dual-mode",
        about: "dual-mode journaling of BarrierFS: the commit thread dispatches transactions in \
            the drive's write order, a flush thread makes them durable, several commit at once",
        origin: Origin::Paper(BARRIER),
        on: "journaling=barrier",
        needs: &[Need::OrderedWrites],
        conflicts: &[
            unwise("nobarrier", "barrier writes keep the order of its transactions"),
            refused("fast-commit", "fast commits are a commit of their own"),
        ],
        unsafe_without: &[(Need::OrderedWrites.name(), "A32")],
        ..PLAIN
    },
    Technique {
        name: "ordering-only",
        about: "fsync only orders writes, as fbarrier (BFS-OD): fsynced data may be lost, but not \
            out of order",
        origin: Origin::Paper(BARRIER),
        on: "journaling=barrier,ordering_only",
        needs: &[Need::OrderedWrites],
        unsafe_without: &[(Need::OrderedWrites.name(), "A32")],
        ..PLAIN
    },
    Technique {
        name: "versions",
        about: "versions of a metadata buffer (CJFS): a transaction gets a new version of a \
            buffer that a committing transaction holds, and does not wait",
        origin: Origin::Literature(BARRIER),
        on: "journaling=barrier,jh_versions=3",
        needs: &[Need::OrderedWrites],
        ..PLAIN
    },
    Technique {
        name: "coalescing",
        about: "opportunistic coalescing (CJFS): a transaction that waits for conflicts keeps \
            accepting handles",
        origin: Origin::Literature(BARRIER),
        on: "journaling=barrier,coalesce",
        needs: &[Need::OrderedWrites],
        ..PLAIN
    },
    Technique {
        name: "compound-flush",
        about: "compound flush (CJFS): one flush for several dispatched transactions",
        origin: Origin::Literature(BARRIER),
        on: "journaling=barrier,compound_flush=3",
        needs: &[Need::OrderedWrites],
        ..PLAIN
    },
    Technique {
        name: "no-conflicts",
        about: "unlimited versions: the upper bound of the gain",
        origin: Origin::Ours(BARRIER),
        on: "journaling=barrier,jh_versions=all",
        needs: &[Need::OrderedWrites],
        conflicts: &[unwise("versions", PARTS_OF_VERSIONS)],
        ..PLAIN
    },
    Technique {
        name: "force-copy",
        about: "force_copy of Alibaba Cloud Linux: the commit logs a copy of each buffer, so no \
            handle waits for a log write (case 3)",
        origin: Origin::Distribution(BARRIER),
        on: "force_copy",
        conflicts: &[
            refused("versions", "versions of a buffer are logged from copies already"),
            refused("no-conflicts", "versions of a buffer are logged from copies already"),
        ],
        ..PLAIN
    },
    Technique {
        name: "optr",
        about: "OPTR: the drive keeps all writes in order, each whole, so a commit flushes once, \
            behind its record",
        origin: Origin::Literature(OPRW),
        on: "optr",
        needs: &[Need::OrderedWholeWrites],
        conflicts: &[
            refused("dual-mode", ONE_ORDER),
            refused("ordering-only", ONE_ORDER),
            refused("async-commit", ONE_ORDER),
            refused("fast-commit", "fast commits are a commit of their own"),
            refused("discard", NO_PLACE),
            refused("inode-trim", NO_PLACE),
            refused("inode-trim-naive", NO_PLACE),
        ],
        ..PLAIN
    },
    Technique {
        name: "optr-nobarrier",
        about: "OPTR without any flush: fsync only orders, and the last syncs may be lost, but \
            not out of order",
        origin: Origin::Literature(OPRW),
        on: "optr,ordering_only",
        needs: &[Need::OrderedWholeWrites],
        conflicts: &[unwise("optr", "a commit flushes once, or never")],
        unsafe_without: &[(Need::OrderedWholeWrites.name(), "A6")],
        ..PLAIN
    },
    Technique {
        name: "untorn",
        about: "untorn writes: an O_DIRECT write of one block (since 6.16 up to a bigalloc cluster) \
            with RWF_ATOMIC is there whole or not at all after a power failure; a call's flag, no \
            option",
        origin: Origin::Linux(DIRECT),
        since: Some((6, 13)),
        needs: &[Need::WholeBlocks],
        ..PLAIN
    },
    Technique {
        name: "discard",
        about: "discard data blocks that a committed transaction freed, as this kernel version \
            does",
        origin: Origin::Linux(TRIM),
        on: "discard",
        needs: &[Need::Discards],
        conflicts: &[refused("dual-mode", NO_PLACE), refused("ordering-only", NO_PLACE)],
        unsafe_without: &[("data=ordered", "A33")],
        ..PLAIN
    },
    Technique {
        name: "inode-trim",
        about: "discard inode-table blocks without an inode in use once that is durable; neither \
            replay nor a new inode sees old contents",
        origin: Origin::Ours(TRIM),
        on: "discard,inode_trim=safe",
        needs: &[Need::Discards, Need::ZeroesAfterDiscard],
        conflicts: &[refused("dual-mode", NO_PLACE), refused("ordering-only", NO_PLACE)],
        ..PLAIN
    },
    Technique {
        name: "inode-trim-naive",
        about: "the same as in the paper: discard as soon as the last bit is cleared; a power \
            failure before the commit loses files (N8)",
        origin: Origin::Paper(TRIM),
        on: "discard,inode_trim=naive",
        needs: &[Need::Discards],
        conflicts: &[
            unwise(
                "inode-trim",
                "a block is discarded either at once or when its release is durable",
            ),
            refused("dual-mode", NO_PLACE),
            refused("ordering-only", NO_PLACE),
        ],
        unsafe_without: &[("a commit before it", "N8")],
        ..PLAIN
    },
    Technique {
        name: "posix",
        about: "fsync of F2FS: data, wait, nodes, wait, flush; on a volatile cache a node may \
            survive without its data (A8)",
        on: "fsync_mode=posix",
        ..F2FS
    },
    Technique {
        name: "strict",
        about: "only the last node has the fsync mark, with a flush before and after it; on zones \
            the first flush is missing (A9)",
        on: "fsync_mode=strict",
        since: Some((4, 17)),
        conflicts: &[unwise("posix", ONE_MODE)],
        ..F2FS
    },
    Technique {
        name: "strict-fixed",
        about: "strict with a flush between data and the last node, as measured in the OPRW paper",
        origin: Origin::Paper(OPRW),
        on: "fsync_mode=strict_fixed",
        conflicts: &[unwise("posix", ONE_MODE), unwise("strict", ONE_MODE)],
        ..F2FS
    },
    Technique {
        name: "fsync-nobarrier",
        about: "fsync sends no flush; for drives with power-loss protection",
        on: "fsync_mode=nobarrier",
        since: Some((4, 18)),
        conflicts: &[
            unwise("posix", ONE_MODE),
            unwise("strict", ONE_MODE),
            unwise("strict-fixed", ONE_MODE),
        ],
        unsafe_without: &[("power-loss protection", "A11")],
        ..F2FS
    },
    Technique {
        name: "rflush",
        about: "RFLUSH, made sound: fsync flushes the file's data, every node since the last \
            checkpoint, and the data of synced files whose nodes these are",
        origin: Origin::Literature(OPRW),
        on: "rflush=log",
        needs: &[Need::RangeFlush],
        conflicts: &[
            refused("strict", RFLUSH_POSIX),
            refused("strict-fixed", RFLUSH_POSIX),
            refused("fsync-nobarrier", RFLUSH_POSIX),
        ],
        ..F2FS
    },
    Technique {
        name: "rflush-published",
        about: "RFLUSH as its published kernel has it: fsync flushes the data of the file, and \
            its nodes stay in the volatile cache (H2)",
        origin: Origin::Literature(OPRW),
        on: "rflush=data",
        needs: &[Need::RangeFlush],
        conflicts: &[
            unwise("rflush", "an fsync flushes one set"),
            refused("strict", RFLUSH_POSIX),
            refused("strict-fixed", RFLUSH_POSIX),
            refused("fsync-nobarrier", RFLUSH_POSIX),
        ],
        unsafe_without: &[("power-loss protection", "H2")],
        ..F2FS
    },
    Technique {
        name: "f2fs-atomic",
        about: "atomic writes: what is written between START_ATOMIC_WRITE and COMMIT goes to blocks \
            apart, which COMMIT gives to the file as a whole; durable only later (H4)",
        since: Some((5, 19)),
        unsafe_without: &[("a wait for the last node", "H4")],
        ..F2FS
    },
    Technique {
        name: "oprw",
        about: "order-preserving recovery by write pointers: recovery ignores a node whose data \
            was not written, so fsync sends nodes without waiting for data",
        origin: Origin::Paper(OPRW),
        on: "oprw",
        needs: &[Need::Zones],
        ..F2FS
    },
    Technique {
        name: "zoned-f2fs",
        about: "F2FS on zones: appends only, write pointers, zone resets",
        origin: Origin::Linux(OPRW),
        since: Some((4, 10)),
        needs: &[Need::Zones],
        ..F2FS
    },
    Technique {
        name: "direct-in-place",
        about: "O_DIRECT overwrites in place, as in F2FS since 3.13, and fills holes since 4.1: \
            fast, but outside the log that recovery reads (N10, N11, N13)",
        origin: Origin::Paper(DIRECT),
        on: "direct=linux",
        since: Some((3, 13)),
        ..F2FS
    },
    Technique {
        name: "direct-lfs",
        about: "mode=lfs since 4.20: O_DIRECT writes go to new blocks, and nodes point to them \
            before the data is durable (N10)",
        origin: Origin::Linux(DIRECT),
        on: "mode=lfs",
        since: Some((4, 20)),
        ..F2FS
    },
    Technique {
        name: "direct-log",
        about: "log-structured direct writes: to the data log, also on zones, and nodes follow \
            their data",
        origin: Origin::Ours(DIRECT),
        on: "direct=log",
        conflicts: &[unwise("direct-in-place", "a direct write goes to one place")],
        ..F2FS
    },
    Technique {
        name: "cow-direct",
        about: "BTRFS: each direct overwrite gets a new extent, so random writes become sequential",
        origin: Origin::Paper(DIRECT),
        fs: Some("btrfs"),
        ..PLAIN
    },
    Technique {
        name: "nodatacow",
        about: "BTRFS in place, without checksums",
        origin: Origin::Linux(DIRECT),
        fs: Some("btrfs"),
        on: "nodatacow",
        ..PLAIN
    },
    Technique {
        name: "buffered-direct",
        about: "NILFS2 has no direct writes: they go through the page cache, with a note",
        origin: Origin::Paper(DIRECT),
        fs: Some("nilfs2"),
        ..PLAIN
    },
    Technique {
        name: "queue-depth",
        about: "queue-depth adaptation: while a task syncs, only a few asynchronous requests are \
            in the drive at once; fsync_window_ms=0: always",
        origin: Origin::Literature(FSYNC),
        elevator: "fsync_depth=2",
        ..PLAIN
    },
    Technique {
        name: "qasio",
        about: "QASIO: cfq and deadline serve an asynchronous write that a task waits for before \
            other asynchronous ones",
        origin: Origin::Literature(FSYNC),
        elevator: "boost=1",
        ..PLAIN
    },
    named(
        "FS-LRU",
        "a page cache that holds in NVRAM the pages that an fsync would wait for",
        FSYNC,
    ),
    named("per-block-group journaling", "one journal per block group, which shortens fsync", FSYNC),
    named(
        "HoraeFS",
        "passes the write order through persistent memory of the drive; data is sent without \
         waiting",
        OPRW,
    ),
    named("MQFS", "the same with NVMe queue entries in persistent memory of the drive", OPRW),
    named("OptFS", "order by checksums and asynchronous durability notices", OPRW),
    Technique {
        name: "fast-commit",
        about: "ext4 fast commits: fsync logs what changed since the last commit as records, one \
            block and one FLUSH in the good case (H1, N33 to N40, N44, N45, N55)",
        on: "era=6.12,fast_commit",
        since: Some((5, 10)),
        unsafe_without: &[("power-loss protection", "H1")],
        ..PLAIN
    },
    Technique {
        name: "buffered-iomap",
        about: "ext4 buffered_iomap (patches of 2026, in no release): no commit waits for data, new \
            blocks are unwritten until their data arrives, and so does a length (N60 to N62)",
        on: "era=next,buffered_iomap",
        since: Some((6, 18)),
        conflicts: &[
            refused("fast-commit", "no published text says which length a fast commit logs"),
            refused_era("inode-lists"),
            refused_era("no-filing"),
            refused_era("filed-at-allocation"),
        ],
        ..PLAIN
    },
    Technique {
        name: "ijournaling",
        about: "iJournaling: fsync logs its file alone, in an area of its core; the transaction \
            commits later and makes that void (fast commits log all that changed)",
        origin: Origin::Literature(OPRW),
        on: "era=6.12,ijournal",
        since: Some((5, 10)),
        conflicts: &[
            refused("fast-commit", "one of them has the area behind the log"),
            refused("dual-mode", COMMIT_OF_ITS_OWN),
            refused("ordering-only", COMMIT_OF_ITS_OWN),
            refused("optr", COMMIT_OF_ITS_OWN),
            refused("optr-nobarrier", COMMIT_OF_ITS_OWN),
            refused("async-commit", "recovery could not tell which transaction it is of"),
        ],
        ..PLAIN
    },
    named("MAX", "F2FS for many cores: per-core logs and locks", OPRW),
];

const RFLUSH_POSIX: &str = "only fsync_mode=posix ends with a flush that can be narrowed";
const COMMIT_OF_ITS_OWN: &str = "i-transactions are a commit of their own";
const ONE_ORDER: &str = "either the drive orders all writes, or the journal says which";
const PARTS_OF_VERSIONS: &str = "only one number of versions applies";

/// Two eras.
const fn refused_era(with: &'static str) -> Conflict {
    unwise(with, ONE_ERA)
}

/// One that a paper names, and that is not built.
const fn named(name: &'static str, about: &'static str, paper: &'static str) -> Technique {
    Technique { name, about, origin: Origin::Literature(paper), ..NAMED }
}
