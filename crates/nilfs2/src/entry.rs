//! NILFS2's line in the registry.

use std::rc::Rc;

use wp_base::{FsError, FsResult, Span};
use wp_cache::{Fut, WbPolicy};
use wp_medium::{Medium, Overlay, Sound, View};
use wp_vfs::{
    BlockMap, Checked, Env, EraRule, FileInfo, FileSystem, FsEntry, Inspection, ListedCheckpoint,
    Offers, OptionSpec, Options, Promises, RecoveryPlan, Version, When,
};
use zerocopy::IntoBytes;

use crate::check::{self, CheckOptions};
use crate::disk::SuperBlock;
use crate::era::{Era, POLICIES};
use crate::fs::{CleanerOptions, MountOptions, Mounted, Nilfs, Share};
use crate::image::{self, InspectOptions, RecoverOptions};
use crate::mkfs::{MkfsOptions, mkfs};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "era",
        when: When::Always,
        default: "6.12",
        help: "kernel version whose rules apply",
    },
    OptionSpec {
        key: "block_size",
        when: When::Mkfs,
        default: "4096",
        help: "block size in bytes (mkfs.nilfs2 -b)",
    },
    OptionSpec {
        key: "blocks_per_segment",
        when: When::Mkfs,
        default: "2048",
        help: "blocks per segment (mkfs.nilfs2 -B)",
    },
    OptionSpec {
        key: "reserved_percent",
        when: When::Mkfs,
        default: "5",
        help: "segments kept free, in percent (mkfs.nilfs2 -m)",
    },
    OptionSpec {
        key: "interval",
        when: When::Mkfs,
        default: "0",
        help: "seconds from a change to its log (nilfs-tune -i); 0 means 5",
    },
    OptionSpec {
        key: "block_max",
        when: When::Mkfs,
        default: "0",
        help: "number of changed blocks that starts a write (nilfs-tune -m); 0 means 3600",
    },
    OptionSpec {
        key: "features",
        when: When::Mkfs,
        default: "",
        help: "block_count, or empty (mkfs.nilfs2 -O)",
    },
    OptionSpec { key: "label", when: When::Mkfs, default: "", help: "label (mkfs.nilfs2 -L)" },
    OptionSpec { key: "hz", when: When::Mount, default: "250", help: "timer ticks per second" },
    OptionSpec::DIRTY_BACKGROUND_BYTES,
    OptionSpec::DIRTY_BYTES,
    OptionSpec { key: "nobarrier", when: When::Mount, default: "", help: "no cache flushes" },
    OptionSpec {
        key: "order",
        when: When::Mount,
        default: "relaxed",
        help: "relaxed, or strict: fdatasync writes everything before it",
    },
    OptionSpec {
        key: "sync_inodes",
        when: When::Mount,
        default: "",
        help: "fsync writes an inode that changed without its blocks; Linux does not",
    },
    OptionSpec {
        key: "sync_nameless",
        when: When::Mount,
        default: "",
        help: "fdatasync of an unlinked file writes everything, so that recovery finds its inode",
    },
    OptionSpec {
        key: "flush_segments",
        when: When::Mount,
        default: "",
        help: "wait until all logs are durable before a new segment begins; Linux does not",
    },
    OptionSpec {
        key: "await_flush",
        when: When::Mount,
        default: "",
        help: "a sync waits for the end of the flush that it relies on; Linux does not (fixes N26)",
    },
    OptionSpec {
        key: "cleaner",
        when: When::Mount,
        default: "",
        help: "run nilfs_cleanerd; wait: calls also wait for the space that it frees",
    },
    OptionSpec {
        key: "cleaner_as_linux",
        when: When::Mount,
        default: "",
        help: "reuse cleaned segments before their release is durable, as Linux does",
    },
    OptionSpec {
        key: "protection_period",
        when: When::Mount,
        default: "3600",
        help: "cleaner: seconds that checkpoints are kept",
    },
    OptionSpec {
        key: "min_clean_segments",
        when: When::Mount,
        default: "10%",
        help: "cleaner: start below this number of free segments; 0: never pause",
    },
    OptionSpec {
        key: "max_clean_segments",
        when: When::Mount,
        default: "20%",
        help: "cleaner: pause above this number of free segments",
    },
    OptionSpec {
        key: "clean_check_interval",
        when: When::Mount,
        default: "10",
        help: "cleaner: seconds between checks of the free segments",
    },
    OptionSpec {
        key: "nsegments_per_clean",
        when: When::Mount,
        default: "2",
        help: "cleaner: segments per pass",
    },
    OptionSpec {
        key: "mc_nsegments_per_clean",
        when: When::Mount,
        default: "4",
        help: "cleaner: the same, below min_clean_segments",
    },
    OptionSpec {
        key: "cleaning_interval",
        when: When::Mount,
        default: "5",
        help: "cleaner: seconds between passes",
    },
    OptionSpec {
        key: "mc_cleaning_interval",
        when: When::Mount,
        default: "1",
        help: "cleaner: the same, below min_clean_segments",
    },
    OptionSpec {
        key: "min_reclaimable_blocks",
        when: When::Mount,
        default: "10%",
        help: "cleaner: least reclaimable blocks of a segment to clean",
    },
    OptionSpec {
        key: "mc_min_reclaimable_blocks",
        when: When::Mount,
        default: "1%",
        help: "cleaner: the same, below min_clean_segments",
    },
];

/// NILFS2.
pub static ENTRY: FsEntry = FsEntry {
    name: "nilfs2",
    about: "NILFS2, optionally with its cleaner; images as mkfs.nilfs2 2.2.9 makes them",
    options: OPTIONS,
    kernels: ["5.10", "6.12"],
    runs_since: "3.10",
    next: None,
    // Crashed images and marks of a write log; the write path of 6.12 is the same.
    held: &["6.1", "6.12"],
    promises: Promises {
        // A checkpoint has everything that came before it, in order. But Linux's fsync of a file
        // without dirty blocks writes none, whatever happened to its names; with
        // `sync_inodes` it does.
        fsync_keeps_names: false,
        names_in_order: true,
        fallocate_syncs: false,
        barriers: None,
        order_only: None,
        alone: None,
    },
    offers: Offers { copies: true, checkpoints: true, ..Offers::NONE },
    modes: &["", "order=strict"],
    mkfs: make,
    mkfs_disks: None,
    mount: Some(mount),
    probe,
    inspect,
    recover,
    check,
    survey: |overlay, o| image::survey(overlay, &how(o)?),
    blocks: |view| Ok(Box::new(crate::evidence::Blocks::read(view)?) as Box<dyn BlockMap>),
    eras,
    stages: &crate::stages::STAGES,
};

fn era_of(o: &Options) -> FsResult<Era> {
    let version = Version::parse(o.get("era", OPTIONS).unwrap_or_default());
    version.map(Era::of).ok_or(FsError::Invalid("era: a kernel version such as 6.1"))
}

fn how(o: &Options) -> FsResult<RecoverOptions> {
    Ok(RecoverOptions { era: Some(era_of(o)?), ..RecoverOptions::default() })
}

fn number(o: &Options, key: &str, what: &'static str) -> FsResult<u32> {
    o.get(key, OPTIONS).unwrap_or_default().parse().map_err(|_| FsError::Invalid(what))
}

fn is_set(o: &Options, key: &str) -> bool {
    o.get(key, OPTIONS).is_some_and(|v| v != "false" && v != "0")
}

fn share(o: &Options, key: &str, what: &'static str) -> FsResult<Share> {
    let text = o.get(key, OPTIONS).unwrap_or_default();
    let wrong = |_| FsError::Invalid(what);
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(Share::Percent).map_err(wrong),
        None => text.parse().map(Share::Count).map_err(wrong),
    }
}

const CHECK_INTERVAL: &str = "clean_check_interval: seconds, at least 1";

/// The cleaner that was asked for.
fn cleaner(o: &Options) -> FsResult<Option<CleanerOptions>> {
    if !is_set(o, "cleaner") {
        return Ok(None);
    }
    let awaited = match o.get("cleaner", OPTIONS).unwrap_or_default() {
        "wait" => true,
        "" | "true" | "on" | "1" => false,
        _ => return Err(FsError::Invalid("cleaner: on or wait")),
    };
    let count = |key, what| number(o, key, what).map(u64::from);
    Ok(Some(CleanerOptions {
        protection_period: count("protection_period", "protection_period: seconds")?,
        min_clean_segments: share(
            o,
            "min_clean_segments",
            "min_clean_segments: such as 20 or 10%",
        )?,
        max_clean_segments: share(
            o,
            "max_clean_segments",
            "max_clean_segments: such as 20 or 10%",
        )?,
        clean_check_interval: match count("clean_check_interval", CHECK_INTERVAL)? {
            0 => return Err(FsError::Invalid(CHECK_INTERVAL)),
            seconds => seconds,
        },
        nsegments_per_clean: [
            count("nsegments_per_clean", "nsegments_per_clean: a number")?,
            count("mc_nsegments_per_clean", "mc_nsegments_per_clean: a number")?,
        ],
        cleaning_interval: [
            count("cleaning_interval", "cleaning_interval: seconds")?,
            count("mc_cleaning_interval", "mc_cleaning_interval: seconds")?,
        ],
        min_reclaimable_blocks: [
            share(o, "min_reclaimable_blocks", "min_reclaimable_blocks: such as 20 or 10%")?,
            share(o, "mc_min_reclaimable_blocks", "mc_min_reclaimable_blocks: such as 20 or 1%")?,
        ],
        secure: !is_set(o, "cleaner_as_linux"),
        awaited,
    }))
}

fn make(o: &Options, bytes: u64) -> FsResult<Medium> {
    let mut m = MkfsOptions::new(bytes);
    m.block_bytes = number(o, "block_size", "block_size: 1024, 2048 or 4096")?;
    m.segment_blocks = number(o, "blocks_per_segment", "blocks_per_segment: 16 or more")?;
    m.reserved_percent = number(o, "reserved_percent", "reserved_percent: 1 to 99")?;
    m.interval = number(o, "interval", "interval: seconds")?;
    m.block_max = number(o, "block_max", "block_max: a number of blocks")?;
    m.label = o.get("label", OPTIONS).unwrap_or_default().to_owned();
    m.block_count = match o.get("features", OPTIONS).unwrap_or_default() {
        "" => false,
        "block_count" => true,
        other => return Err(FsError::Unsupported(format!("mkfs: feature {other}"))),
    };
    let mut medium = Medium::new();
    mkfs(&m)?.write_to(&mut medium);
    Ok(medium)
}

/// What `hz` is to be.
const HZ: &str = "hz: timer ticks a second, 100, 125, 200, 250, 500 or 1000";

fn mount<'a>(env: &'a Env, o: &'a Options) -> Fut<'a, Rc<dyn FileSystem>> {
    Box::pin(async move {
        let era = era_of(o)?;
        let strict_order = match o.get("order", OPTIONS).unwrap_or_default() {
            "relaxed" => false,
            "strict" => true,
            _ => return Err(FsError::Invalid("order: relaxed or strict")),
        };
        let hz = u64::from(number(o, "hz", HZ)?);
        if !(100..=1000).contains(&hz) || 1000 % hz != 0 {
            return Err(FsError::Invalid(HZ));
        }
        let nobarrier = o.get("nobarrier", OPTIONS);
        let options = MountOptions {
            era,
            barrier: nobarrier.is_none_or(|v| v == "false" || v == "0"),
            strict_order,
            sync_inodes: is_set(o, "sync_inodes"),
            sync_nameless: is_set(o, "sync_nameless"),
            flush_segments: is_set(o, "flush_segments"),
            await_flush: is_set(o, "await_flush"),
            cleaner: cleaner(o)?,
            epoch_secs: env.epoch_secs,
            tick: Span(1_000_000_000 / hz),
            writeback: writeback(o, &era_of(o)?, hz)?,
        };
        let fs = Nilfs::mount(&env.rt, env.part.clone(), options).await?;
        let fs: Rc<dyn FileSystem> = Rc::new(Mounted(fs));
        Ok(fs)
    })
}

/// The flusher, with limits of dirty data as `vm.dirty_background_bytes` and `vm.dirty_bytes` give
/// them.
fn writeback(o: &Options, era: &Era, hz: u64) -> FsResult<WbPolicy> {
    let policy = WbPolicy { hz, era: wp_cache::Era::of(era.version()), ..WbPolicy::default() };
    wp_vfs::dirty_limits(o, OPTIONS, policy)
}

/// A super block that is right, or the magic with its revision: one of two damaged ones is named by
/// the readers.
fn probe(view: &dyn View) -> bool {
    let read = |at| {
        let mut sb = SuperBlock::zeroed();
        view.read_at(at, sb.as_mut_bytes()).is_ok().then_some(sb)
    };
    let is_one = |at| read(at).is_some_and(|sb| sb.verify(at).is_ok());
    let is_damaged_one = |at| read(at).is_some_and(|sb| sb.has_magic());
    is_damaged_one(SuperBlock::AT) || is_one(SuperBlock::second_at(view.len_bytes()))
}

fn recover(view: &dyn View, o: &Options) -> FsResult<RecoveryPlan> {
    let overlay = Overlay::new(view);
    image::recover(&overlay, &how(o)?)?;
    Ok(RecoveryPlan::of(&overlay))
}

fn inspect(view: &dyn View, o: &Options, hash: bool) -> FsResult<Inspection> {
    let options = InspectOptions { hash, recover: how(o)?, ..Default::default() };
    let found = match image::inspect(view, &options) {
        Ok(found) => found,
        Err(e) => return Inspection::not_mountable(e),
    };
    let listed = Inspection {
        recovered: found.recovery.is_needed,
        files: found.files.iter().map(FileInfo::listed).collect(),
        checkpoints: found
            .checkpoints
            .iter()
            .map(|cp| ListedCheckpoint {
                number: cp.cno.get(),
                is_snapshot: cp.is_snapshot(),
                made: cp.create.get(),
                inodes: cp.inodes_count.get(),
                blocks: cp.blocks_count.get(),
            })
            .collect(),
        ..Inspection::default()
    };
    Ok(listed.with_misread(&found.findings))
}

fn check(view: &dyn View, o: &Options, recover: bool, _sound: &Sound) -> FsResult<Checked> {
    let recover = if recover { Some(how(o)?) } else { None };
    let mut report = check::check(view, &CheckOptions { recover })?;
    report.not_checked.push("numbers that no checkpoint has any more");
    Ok(report.checked())
}

fn eras(text: &str) -> Option<Vec<EraRule>> {
    Version::parse(text).map(|v| wp_vfs::era_rules(POLICIES, v))
}
