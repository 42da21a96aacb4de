//! Fuzz targets: one for each thing that reads what others wrote.
//!
//! Picture:    libFuzzer (`fuzz_targets/`), or a test that replays what it once found
//!             (`crates/cli/tests/fuzzed.rs`, which includes this file) -> [`run`] -> a target.
//! Invariants: 1. a target panics, aborts, or reads or allocates beyond its bounds if and only if
//!                there is something to fix;
//!             2. the same bytes do the same, here and there.

pub mod base;
pub mod btrfs;
pub mod containers;
pub mod ext4;
pub mod f2fs;
pub mod feed;
pub mod files;
pub mod flush_set;
pub mod identify;
pub mod image;
pub mod log;
mod meter;
pub mod nilfs2;
pub mod patch;
pub mod patch_btrfs;
pub mod patch_f2fs;
pub mod patch_nilfs2;
pub mod serve;
pub mod texts;
pub mod traces;
pub mod world;

use base::Family;

/// A target.
pub struct Target {
    /// Its name: of its binary, its corpus and its regression inputs.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Takes an input.
    pub run: fn(&[u8]),
    /// Is an input a patch list ([`patch`]), whose first byte names a base of this family?
    pub images: Option<Family>,
}

impl Target {
    /// Takes an input, within the limit of memory.
    pub fn take(&self, input: &[u8]) {
        let _limit = meter::Limit::begin();
        (self.run)(input);
    }

    /// Has the input a base that is not here?
    pub fn needs_reference(&self, input: &[u8]) -> bool {
        let number = input.first().copied().unwrap_or(0);
        self.images.is_some_and(|family| family.base(number.into()).is_none())
    }
}

const fn ext4(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run, images: Some(Family::Ext4) }
}

const fn f2fs(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run, images: Some(Family::F2fs) }
}

const fn btrfs(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run, images: Some(Family::Btrfs) }
}

const fn nilfs2(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run, images: Some(Family::Nilfs2) }
}

const fn plain(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run, images: None }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    ext4("ext4_read", "listing, hashes, classes of blocks, evidence, survey", ext4::read),
    ext4("ext4_check", "our fsck", ext4::fsck),
    ext4("ext4_recover", "replay, fast commits, orphans; twice", ext4::recovery),
    ext4("ext4_mount", "a mount, a walk, a few calls, an unmount", ext4::mount),
    f2fs("f2fs_read", "listing, hashes, evidence, survey", f2fs::read),
    f2fs("f2fs_check", "our fsck", f2fs::fsck),
    f2fs("f2fs_recover", "roll-forward, orphans, zones, order preservation; twice", f2fs::recovery),
    btrfs("btrfs_read", "listing, hashes, classes of blocks, survey", btrfs::read),
    btrfs("btrfs_check", "our fsck, with and without contents", btrfs::fsck),
    btrfs("btrfs_recover", "replay of log trees; twice, and a commit", btrfs::recovery),
    nilfs2("nilfs2_read", "listing of checkpoints, hashes, evidence, survey", nilfs2::read),
    nilfs2("nilfs2_check", "our fsck", nilfs2::fsck),
    nilfs2("nilfs2_recover", "logs behind the checkpoint, the new one; twice", nilfs2::recovery),
    plain("fast_commit", "fast commits put together by rule, checksums right", log::fast_commit),
    plain("jbd2_log", "a journal put together by rule, in every format", log::jbd2),
    plain("identify", "what an image file is, and its partitions", identify::image),
    plain("log_writes", "a log of dm-log-writes", files::log_writes),
    plain("log_tape", "a log of writes as a tape, and states of it", files::log_tape),
    plain("blktrace", "blktrace's binary format", files::blktrace),
    plain(
        "block_trace",
        "a block trace in each format, replayed onto a device",
        files::block_trace,
    ),
    plain(
        "trace_columns",
        "a description of columns, and a text that has them, of all its devices",
        traces::columns,
    ),
    plain("qcow2", "a qcow2 image", containers::qcow2),
    plain("android_sparse", "an Android sparse image", containers::android_sparse),
    plain("mqsim", "a workload definition of MQSim, its flows on a device", traces::mqsim),
    plain("events", "a run's events and lines, and every view of them", files::events),
    plain("events_table", "a run's events as a Parquet file", files::events_table),
    plain("kernel_trace", "a recorded kernel's trace, and its summary", files::kernel_trace),
    plain("fio_job", "a fio job file, its layout and operations", texts::fio_job),
    plain("fio_log", "a log of fio that a job replays", texts::fio_log),
    plain("wml", "a filebench text", texts::wml),
    plain("program", "a program of system calls", texts::program),
    plain("words", "file systems, devices, sizes and versions by option", texts::words),
    plain("experiment", "an experiment file, and what it resolves to", texts::experiment),
    plain("nbd", "an NBD client's bytes, in portions", serve::nbd),
    plain("vhost", "a front end's messages, its memory and queues", serve::vhost),
    plain("calendar", "a guest's messages about its time", serve::calendar),
    plain("flush_set", "the payload of a FLUSH of a set", flush_set::payload),
    plain("control", "control lines of a guest, between writes", serve::control),
    plain("measurements", "reports and lists that calibrate reads", texts::measurements),
    plain("lists", "claims, verdicts, known failures, kept runs, campaigns", texts::lists),
];

/// Gives an input to the target of this name. Panics if there is no such target.
pub fn run(name: &str, input: &[u8]) {
    TARGETS.iter().find(|t| t.name == name).expect("a target's name").take(input);
}
