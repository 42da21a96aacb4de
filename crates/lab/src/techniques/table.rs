//! The table.

use super::{Conflict, Need, Origin, Technique};
use crate::paper::{direct_io, ext4_fsync, f2fs_oprw, inode_trim, journal_conflict};

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

const ONE_ERA: &str = "they are rules of different kernels";
const ONE_MODE: &str = "a mount has one mode of fsync";
const NO_PLACE: &str =
    "a discard has no place in the order of writes: the next transaction could overtake it";

/// All, in the order in which they are listed.
pub static TECHNIQUES: &[Technique] = &[
    Technique {
        name: "inode-lists",
        about: "ordered data: write() and writeback file the inode with the transaction, whose commit writes the data of all that are filed, and waits for it",
        on: "era=3.4",
        until: Some((3, 8)),
        ..PLAIN
    },
    Technique {
        name: "no-filing",
        about: "no inode is filed with the transaction any more: fsync is quicker, and metadata can be durable before the data it names (A3)",
        on: "era=3.8",
        since: Some((3, 8)),
        until: Some((4, 7)),
        conflicts: &[refused_era("inode-lists"), refused_era("filed-at-allocation")],
        ..PLAIN
    },
    Technique {
        name: "filed-at-allocation",
        about: "ordered data: writeback files the inode whose blocks it allocates (4.6.2 on), and the commit waits for that data",
        on: "era=4.6",
        since: Some((4, 6)),
        conflicts: &[refused_era("inode-lists")],
        ..PLAIN
    },
    Technique {
        name: "unwritten-first",
        about: "dioread_nolock: blocks are allocated unwritten and made written when their data has arrived, so no commit has to wait for data (the default since 5.6)",
        on: "era=6.18,dioread_nolock",
        since: Some((3, 8)),
        ..PLAIN
    },
    Technique {
        name: "data-journal",
        about: "data=journal: data goes through the log too",
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
        about: "journal_async_commit: the commit record goes with its transaction, and one flush comes behind both",
        on: "data=writeback,journal_async_commit",
        conflicts: &[
            refused(
                "inode-trim",
                "nothing is flushed between a discard and the revokes of what it replaces",
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
        about: "nobarrier: no flush and no FUA (EXT4-OD of the paper on conflicts); for drives with power-loss protection",
        origin: Origin::Linux(BARRIER),
        on: "nobarrier",
        unsafe_without: &[("power-loss protection", "A6")],
        ..PLAIN
    },
    Technique {
        name: "dual-mode",
        about: "BarrierFS' dual-mode journaling: the commit thread dispatches a transaction and goes on, in the drive's order; a flush thread makes durable; several commit at once",
        origin: Origin::Paper(BARRIER),
        on: "journaling=barrier",
        needs: &[Need::OrderedWrites],
        conflicts: &[unwise(
            "nobarrier",
            "the order of its transactions is made by barrier writes",
        )],
        unsafe_without: &[(Need::OrderedWrites.name(), "A32")],
        ..PLAIN
    },
    Technique {
        name: "ordering-only",
        about: "fsync only orders, as fbarrier (BFS-OD): what was synced may be lost, never torn from its order",
        origin: Origin::Paper(BARRIER),
        on: "journaling=barrier,ordering_only",
        needs: &[Need::OrderedWrites],
        unsafe_without: &[(Need::OrderedWrites.name(), "A32")],
        ..PLAIN
    },
    Technique {
        name: "versions",
        about: "CJFS' versions of a metadata buffer: a transaction that finds one taken by a committing transaction gets another, and there is no conflict to wait for",
        origin: Origin::Literature(BARRIER),
        on: "journaling=barrier,jh_versions=3",
        needs: &[Need::OrderedWrites],
        ..PLAIN
    },
    Technique {
        name: "coalescing",
        about: "CJFS' opportunistic coalescing: a transaction that waits for conflicts goes on taking handles",
        origin: Origin::Literature(BARRIER),
        on: "journaling=barrier,coalesce",
        needs: &[Need::OrderedWrites],
        ..PLAIN
    },
    Technique {
        name: "compound-flush",
        about: "CJFS' compound flush: one flush for several transactions that were dispatched",
        origin: Origin::Literature(BARRIER),
        on: "journaling=barrier,compound_flush=3",
        needs: &[Need::OrderedWrites],
        ..PLAIN
    },
    Technique {
        name: "no-conflicts",
        about: "as many versions as it takes: what the cure can gain at most",
        origin: Origin::Ours(BARRIER),
        on: "journaling=barrier,jh_versions=all",
        needs: &[Need::OrderedWrites],
        conflicts: &[unwise("versions", PARTS_OF_VERSIONS)],
        ..PLAIN
    },
    Technique {
        name: "discard",
        about: "blocks of data that a committed transaction freed are discarded, as the era does it",
        origin: Origin::Linux(TRIM),
        on: "discard",
        needs: &[Need::Discards],
        conflicts: &[refused("dual-mode", NO_PLACE), refused("ordering-only", NO_PLACE)],
        unsafe_without: &[("data=ordered", "A33")],
        ..PLAIN
    },
    Technique {
        name: "inode-trim",
        about: "blocks of inode tables without an inode in use are discarded once that is durable, and no replay or next inode sees what they held",
        origin: Origin::Ours(TRIM),
        on: "discard,inode_trim=safe",
        needs: &[Need::Discards, Need::ZeroesAfterDiscard],
        conflicts: &[refused("dual-mode", NO_PLACE), refused("ordering-only", NO_PLACE)],
        ..PLAIN
    },
    Technique {
        name: "inode-trim-naive",
        about: "the same as the paper has it: at once, when the last bit is cleared; a power cut before the commit loses files (N8)",
        origin: Origin::Paper(TRIM),
        on: "discard,inode_trim=naive",
        needs: &[Need::Discards],
        conflicts: &[
            unwise("inode-trim", "a block is discarded at once, or when that is durable"),
            refused("dual-mode", NO_PLACE),
            refused("ordering-only", NO_PLACE),
        ],
        unsafe_without: &[("a commit before it", "N8")],
        ..PLAIN
    },
    Technique {
        name: "posix",
        about: "F2FS' fsync: data, wait, nodes, wait, flush; on a volatile cache a node may be there without its data (A8)",
        on: "fsync_mode=posix",
        ..F2FS
    },
    Technique {
        name: "strict",
        about: "only the last node carries the mark, with flushes around it; on zones the first of them is missing (A9)",
        on: "fsync_mode=strict",
        since: Some((4, 17)),
        conflicts: &[unwise("posix", ONE_MODE)],
        ..F2FS
    },
    Technique {
        name: "strict-fixed",
        about: "strict with the flush between data and the last node that the paper on OPRW measures",
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
        name: "oprw",
        about: "order-preserving recovery by write pointers: a node whose data was not written counts as not written; so fsync sends nodes without waiting for the data",
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
        about: "O_DIRECT overwrites in place, as F2FS since 3.13: quick, and out of reach of its log's recovery; holes are filled past it since 4.1 (N10, N11, N13)",
        origin: Origin::Paper(DIRECT),
        on: "direct=linux",
        since: Some((3, 13)),
        ..F2FS
    },
    Technique {
        name: "direct-lfs",
        about: "mode=lfs: O_DIRECT writes go to new places, which nodes name before the data is there (4.20 on; N10)",
        origin: Origin::Linux(DIRECT),
        on: "mode=lfs",
        since: Some((4, 20)),
        ..F2FS
    },
    Technique {
        name: "direct-log",
        about: "log-structured direct writes: to the data log, on zones too, and no node names a block before its data is there",
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
        about: "NILFS2 has no direct writes: they go through the cache, and the user is told",
        origin: Origin::Paper(DIRECT),
        fs: Some("nilfs2"),
        ..PLAIN
    },
    named(
        "QASIO",
        "asynchronous writes that somebody waits for are sent as synchronous ones",
        FSYNC,
    ),
    named(
        "FS-LRU",
        "a page cache that keeps in NVRAM the pages that an fsync would wait for",
        FSYNC,
    ),
    named(
        "per-block-group journaling",
        "a journal for each block group, so that commits do not meet",
        FSYNC,
    ),
    named("queue-depth adaptation", "requests in flight by what the drive can do", FSYNC),
    named(
        "HoraeFS",
        "the order of writes is told through persistent memory of the drive; data goes without waiting",
        OPRW,
    ),
    named(
        "MQFS",
        "the same by entries of NVMe's queues, which are in persistent memory of the drive",
        OPRW,
    ),
    named(
        "OPTR",
        "a translation layer that appends to one superblock recovers writes in their order",
        OPRW,
    ),
    named("RFLUSH", "a flush for a range, not for all of the cache", OPRW),
    named("OptFS", "order by checksums and asynchronous durability notices", OPRW),
    named("iJournaling", "fsync logs one file, not the whole compound transaction", OPRW),
    named("MAX", "F2FS for many cores: logs and locks of their own", OPRW),
];

const PARTS_OF_VERSIONS: &str = "one number of versions is in force";

/// Two eras.
const fn refused_era(with: &'static str) -> Conflict {
    unwise(with, ONE_ERA)
}

/// One that a paper names, and that is not built.
const fn named(name: &'static str, about: &'static str, paper: &'static str) -> Technique {
    Technique { name, about, origin: Origin::Literature(paper), ..NAMED }
}
