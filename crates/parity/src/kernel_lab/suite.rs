//! Campaigns that belong together, and their table.

use super::Report;

/// One campaign of a suite: what it has in place of the command line's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// File system.
    pub fs: &'static str,
    /// Options of its mount.
    pub mount: &'static str,
    /// The drive: preset and parameters.
    pub device: &'static str,
    /// Threads.
    pub jobs: u64,
}

/// Some campaigns.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in a line.
    pub about: &'static str,
    /// Its campaigns.
    pub rows: &'static [Row],
}

/// Zones with a buffer that a cut empties: small ones, so that a guest's mkfs takes them; the
/// conventional ones are for what F2FS writes in place.
const ZNS: &str = "zn540-4tb-noplp,zone_bytes=16777216,blocks_per_plane=96,conventional_zones=16,\
                   pages_per_block=12";
/// The same, surviving cuts.
const ZNS_PLP: &str = "zn540-4tb,zone_bytes=16777216,blocks_per_plane=96,conventional_zones=16,\
                       pages_per_block=12";
const SSD: &str = "ssd-128,capacity_bytes=536870912";

const fn zns(mount: &'static str, device: &'static str) -> Row {
    Row { fs: "f2fs", mount, device, jobs: 1 }
}

const fn ssd(fs: &'static str, mount: &'static str, jobs: u64) -> Row {
    Row { fs, mount, device: SSD, jobs }
}

/// All suites.
pub const SUITES: [Suite; 3] = [
    Suite {
        name: "f2fs-oprw",
        about: "table 6.2 of paper f2fs-oprw: modes of fsync on zones, without and with power-loss \
                protection",
        rows: &[
            zns("fsync_mode=posix", ZNS),
            zns("fsync_mode=strict", ZNS),
            zns("fsync_mode=nobarrier", ZNS),
            zns("fsync_mode=posix", ZNS_PLP),
            zns("fsync_mode=strict", ZNS_PLP),
            zns("fsync_mode=nobarrier", ZNS_PLP),
        ],
    },
    Suite {
        name: "ext4",
        about: "ext4's modes on an SSD with a volatile cache, one thread and three",
        rows: &[
            ssd("ext4", "data=ordered", 1),
            ssd("ext4", "data=ordered", 3),
            ssd("ext4", "data=writeback", 1),
            ssd("ext4", "data=writeback", 3),
            ssd("ext4", "nobarrier", 1),
            ssd("ext4", "nobarrier", 3),
        ],
    },
    Suite {
        name: "others",
        about: "F2FS, btrfs, NILFS2 and XFS on an SSD with a volatile cache, three threads",
        rows: &[
            ssd("f2fs", "fsync_mode=posix", 3),
            ssd("f2fs", "fsync_mode=strict", 3),
            ssd("btrfs", "", 3),
            ssd("nilfs2", "", 3),
            ssd("xfs", "", 3),
        ],
    },
];

impl Row {
    /// In a word: `f2fs,fsync_mode=posix zns x1`.
    pub fn name(&self) -> String {
        let comma = if self.mount.is_empty() { "" } else { "," };
        let preset = self.device.split(',').next().unwrap_or_default();
        format!("{}{comma}{} {preset} x{}", self.fs, self.mount, self.jobs)
    }

    /// The table's head.
    pub fn head() -> String {
        format!(
            "{:44} {:>5} {:>6} {:>5} {:>6} {:>7} {:>6} {:>5} {:>6} {:>5} {:>9}",
            "",
            "fails",
            "unpers",
            "lost",
            "early",
            "garbage",
            "unread",
            "mount",
            "differ",
            "oprw",
            "fsync ns"
        )
    }

    /// Its line in the table.
    pub fn line(&self, r: &Report) -> String {
        let known = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        format!(
            "{:44} {:>5} {:>6} {:>5} {:>6} {:>7} {:>6} {:>5} {:>6} {:>5} {:>9}",
            self.name(),
            r.cycles.len(),
            r.count(|c| c.in_doubt > 0),
            r.count(|c| c.lost > 0),
            known(r.early()),
            r.count(|c| c.garbage > 0),
            r.count(|c| c.unreadable > 0),
            r.count(|c| c.mount_error > 0),
            known(r.otherwise()),
            known(r.oprw_garbage()),
            r.fsync_mean_ns(),
        )
    }
}

/// What the columns are.
pub const LEGEND: &str = "fails: power failures; unpers: those with unpersisted writes; lost: \
    those that lost fsynced data
early: those that lost only fsyncs whose flush had not completed when they returned
garbage: a block holds no version of its data; unread: a block cannot be read
mount: the mount failed; differ: Writepath recovers the same state to other files
oprw: garbage with Writepath's order-preserving recovery of the same state
fsync ns: mean of fsyncs that returned before a power failure
";
