//! F2FS's line in the registry.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{Fut, WbPolicy};
use wp_medium::{Medium, Overlay, Sound, View};
use wp_vfs::{
    BlockMap, Checked, Env, EraRule, FileInfo, FileSystem, FsEntry, Inspection, Offers, OptionSpec,
    Options, Promises, RecoveryPlan, Version, When,
};

use crate::check::{self, CheckOptions};
use crate::disk::SuperBlock;
use crate::era::{Era, POLICIES};
use crate::fs::{DirectMode, F2fs, FsMode, FsyncMode, MountOptions, Mounted, RangeFlush};
use crate::image::{self, InspectOptions, RecoverOptions, Rules};
use crate::mkfs::{MkfsOptions, mkfs};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "era",
        when: When::Always,
        default: "6.18",
        help: "kernel version whose rules apply",
    },
    OptionSpec {
        key: "features",
        when: When::Mkfs,
        default: "",
        help: "joined by +, as in mkfs.f2fs -O: extra_attr+inode_checksum",
    },
    OptionSpec {
        key: "segs_per_sec",
        when: When::Mkfs,
        default: "1",
        help: "segments per section (mkfs.f2fs -s)",
    },
    OptionSpec {
        key: "secs_per_zone",
        when: When::Mkfs,
        default: "1",
        help: "sections per zone (mkfs.f2fs -z)",
    },
    OptionSpec {
        key: "large_nat_bitmap",
        when: When::Mkfs,
        default: "",
        help: "more node ids (mkfs.f2fs -i)",
    },
    OptionSpec { key: "label", when: When::Mkfs, default: "", help: "label (mkfs.f2fs -l)" },
    OptionSpec {
        key: "oprw",
        when: When::Mount,
        default: "",
        help: "order-preserving recovery: ignore nodes whose data was not written",
    },
    OptionSpec {
        key: "fsync_mode",
        when: When::Mount,
        default: "posix",
        help: "posix, strict or nobarrier; strict_fixed, posix_fixed: with a flush of data before nodes",
    },
    OptionSpec {
        key: "rflush",
        when: When::Mount,
        default: "",
        help: "RFLUSH, fsync flushes a set: log (sound), data (as published: nodes stay behind), file (data and own nodes)",
    },
    OptionSpec {
        key: "mode",
        when: When::Mount,
        default: "adaptive",
        help: "adaptive, or lfs (append only; zoned images always use it)",
    },
    OptionSpec {
        key: "direct",
        when: When::Mount,
        default: "linux",
        help: "linux: direct writes go where this kernel version writes them; log: to the data log, \
               also on zones, and nodes follow their data (not in Linux)",
    },
    OptionSpec { key: "nobarrier", when: When::Mount, default: "", help: "no cache flushes" },
    OptionSpec {
        key: "noflush_merge",
        when: When::Mount,
        default: "",
        help: "send one flush for each fsync",
    },
    OptionSpec { key: "active_logs", when: When::Mount, default: "6", help: "2, 4 or 6 logs" },
    OptionSpec { key: "background_gc", when: When::Mount, default: "on", help: "on or off" },
    OptionSpec {
        key: "nodiscard",
        when: When::Mount,
        default: "",
        help: "do not discard free blocks; zones are still reset",
    },
    OptionSpec {
        key: "noinline_data",
        when: When::Mount,
        default: "",
        help: "store small files in their own blocks",
    },
    OptionSpec {
        key: "noinline_dentry",
        when: When::Mount,
        default: "",
        help: "store small directories in their own blocks",
    },
    OptionSpec {
        key: "noinline_xattr",
        when: When::Mount,
        default: "",
        help: "store extended attributes in their own node",
    },
    OptionSpec { key: "noextent_cache", when: When::Mount, default: "", help: "no extent cache" },
    OptionSpec {
        key: "fastboot",
        when: When::Mount,
        default: "",
        help: "write node summaries in every checkpoint",
    },
    OptionSpec {
        key: "checkpoint",
        when: When::Mount,
        default: "enable",
        help: "enable (disable is not supported)",
    },
    OptionSpec {
        key: "wait_first_node",
        when: When::Mount,
        default: "",
        help: "fsync waits for the first node after a checkpoint; Linux does not (fixes R1)",
    },
    OptionSpec {
        key: "wait_last_node",
        when: When::Mount,
        default: "",
        help: "fsync in strict mode waits for its last node; Linux does not (fixes R2)",
    },
    OptionSpec {
        key: "wait_earlier_nodes",
        when: When::Mount,
        default: "",
        help: "in strict mode the flush of the last node waits for the nodes before it; Linux does not",
    },
    OptionSpec {
        key: "size_before_sync",
        when: When::Mount,
        default: "",
        help: "a direct write sets the length before its O_SYNC; Linux since 5.17: after",
    },
    OptionSpec {
        key: "fsync_alone",
        when: When::Mount,
        default: "",
        help: "fsync waits for others of the same file and always flushes; Linux does not",
    },
    OptionSpec {
        key: "recover_aside",
        when: When::Mount,
        default: "",
        help: "recovery keeps the node chain and its zones until its checkpoint is durable; Linux does not",
    },
    OptionSpec {
        key: "atomic_all_apart",
        when: When::Mount,
        default: "",
        help: "an atomic write reserves no blocks in the file before its commit; Linux does (fixes N42)",
    },
    OptionSpec {
        key: "sync_attributes",
        when: When::Mount,
        default: "",
        help: "fsync writes attributes that changed in the tick of another change; Linux does not (fixes N70)",
    },
    OptionSpec {
        key: "old_fdatasync",
        when: When::Mount,
        default: "",
        help: "fdatasync misses new lengths and holes, as before commit 281518c694a5",
    },
    OptionSpec {
        key: "old_zero_range",
        when: When::Mount,
        default: "",
        help: "zero range beyond EOF extends a recovered file, as before commit 17cd07ae9507",
    },
    OptionSpec { key: "hz", when: When::Mount, default: "250", help: "timer ticks per second" },
    OptionSpec::DIRTY_BACKGROUND_BYTES,
    OptionSpec::DIRTY_BYTES,
];

/// F2FS.
pub static ENTRY: FsEntry = FsEntry {
    name: "f2fs",
    about: "F2FS, Linux 4.19 to 6.18; images as mkfs.f2fs 1.15 makes them",
    options: OPTIONS,
    kernels: ["4.19", "6.18"],
    runs_since: "3.10",
    next: None,
    // Calls and images; bios of fsyncs; all bios of a mount.
    held: &["6.12.117", "6.18", "6.1"],
    // A file is recovered with its name, and before those that were made before it.
    promises: Promises {
        fsync_keeps_names: true,
        names_in_order: false,
        fallocate_syncs: false,
        barriers: None,
        order_only: None,
        alone: None,
    },
    offers: Offers { shares: false, subvolumes: false, checkpoints: false, ..Offers::ALL },
    modes: &["", "fsync_mode=strict", "mode=lfs"],
    mkfs: make,
    mkfs_disks: Some(crate::zoned::mkfs_disks),
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

fn how(o: &Options) -> FsResult<RecoverOptions> {
    let version = Version::parse(o.get("era", OPTIONS).unwrap_or_default())
        .ok_or(FsError::Invalid("era: a kernel version such as 6.1"))?;
    let rules = Rules::of(Era::of(version));
    let (oprw, aside) = (is_set(o, "oprw"), is_set(o, "recover_aside"));
    Ok(RecoverOptions { rules, oprw, aside, ..RecoverOptions::default() })
}

/// Was a flag given, and not as `false` or `0`?
fn is_set(o: &Options, key: &str) -> bool {
    o.get(key, OPTIONS).is_some_and(|v| v != "false" && v != "0")
}

fn number(o: &Options, key: &str, what: &'static str) -> FsResult<u32> {
    o.get(key, OPTIONS).unwrap_or_default().parse().map_err(|_| FsError::Invalid(what))
}

fn make(o: &Options, bytes: u64) -> FsResult<Medium> {
    write(&mkfs_options(o, bytes)?)
}

/// The image that mkfs makes with these options.
pub(crate) fn write(m: &MkfsOptions) -> FsResult<Medium> {
    let mut medium = Medium::new();
    mkfs(m)?.write_to(&mut medium);
    Ok(medium)
}

/// What mkfs is asked for.
pub(crate) fn mkfs_options(o: &Options, bytes: u64) -> FsResult<MkfsOptions> {
    let mut m = MkfsOptions::new(bytes);
    m.segments_per_section = number(o, "segs_per_sec", "segs_per_sec: 1 or more")?;
    m.sections_per_zone = number(o, "secs_per_zone", "secs_per_zone: 1 or more")?;
    m.large_nat_bitmap = is_set(o, "large_nat_bitmap");
    m.label = o.get("label", OPTIONS).unwrap_or_default().to_owned();
    for name in o.get("features", OPTIONS).unwrap_or_default().split('+').filter(|n| !n.is_empty())
    {
        m.set_feature(name, true)?;
    }
    Ok(m)
}

fn mount<'a>(env: &'a Env, o: &'a Options) -> Fut<'a, Rc<dyn FileSystem>> {
    Box::pin(async move {
        let options = mount_options(env, o)?;
        let parts: Vec<_> = std::iter::once(&env.part).chain(&env.more).cloned().collect();
        options.check_range_flush(&parts)?;
        let fs = F2fs::mount(&env.rt, parts, options).await?;
        let fs: Rc<dyn FileSystem> = Rc::new(Mounted(fs));
        Ok(fs)
    })
}

fn fsync_mode(name: &str) -> FsResult<FsyncMode> {
    Ok(match name {
        "posix" => FsyncMode::Posix,
        "strict" => FsyncMode::Strict,
        "strict_fixed" => FsyncMode::StrictFixed,
        "posix_fixed" => FsyncMode::PosixFixed,
        "nobarrier" => FsyncMode::NoBarrier,
        _ => {
            let what = "fsync_mode: posix, strict, strict_fixed, posix_fixed or nobarrier";
            return Err(FsError::Invalid(what));
        }
    })
}

fn mount_options(env: &Env, o: &Options) -> FsResult<MountOptions> {
    let version = Version::parse(o.get("era", OPTIONS).unwrap_or_default())
        .ok_or(FsError::Invalid("era: a kernel version such as 6.1"))?;
    let text = |key: &str| o.get(key, OPTIONS).unwrap_or_default();
    let hz = u64::from(number(o, "hz", "hz: timer ticks a second")?);
    if !(100..=1000).contains(&hz) || 1000 % hz != 0 {
        return Err(FsError::Invalid("hz: 100, 125, 200, 250, 500 or 1000"));
    }
    if text("checkpoint") == "disable" {
        return Err(FsError::Unsupported("checkpoint=disable".into()));
    } else if text("checkpoint") != "enable" {
        return Err(FsError::Invalid("checkpoint: enable"));
    }
    let logs = number(o, "active_logs", "active_logs: 2, 4 or 6")?;
    if ![2, 4, 6].contains(&logs) {
        return Err(FsError::Invalid("active_logs: 2, 4 or 6"));
    }
    let base = MountOptions::new(Era::of(version), &env.disk, env.device);
    Ok(MountOptions {
        fsync_mode: fsync_mode(text("fsync_mode"))?,
        range_flush: RangeFlush::from_name(text("rflush"))
            .ok_or(FsError::Invalid("rflush: log, data or file"))?,
        mode: match text("mode") {
            "adaptive" => FsMode::Adaptive,
            "lfs" => FsMode::Lfs,
            _ => return Err(FsError::Invalid("mode: adaptive or lfs")),
        },
        direct: match text("direct") {
            "linux" => DirectMode::Linux,
            "log" => DirectMode::Log,
            _ => return Err(FsError::Invalid("direct: linux or log")),
        },
        background_gc: match text("background_gc") {
            "on" => true,
            "off" => false,
            _ => return Err(FsError::Invalid("background_gc: on or off")),
        },
        oprw: is_set(o, "oprw"),
        barrier: !is_set(o, "nobarrier"),
        flush_merge: !is_set(o, "noflush_merge"),
        active_logs: logs,
        discard: !is_set(o, "nodiscard"),
        inline_data: !is_set(o, "noinline_data"),
        inline_dentry: !is_set(o, "noinline_dentry"),
        inline_xattr: !is_set(o, "noinline_xattr"),
        extent_cache: !is_set(o, "noextent_cache"),
        fastboot: is_set(o, "fastboot"),
        wait_first_node: is_set(o, "wait_first_node"),
        wait_last_node: is_set(o, "wait_last_node"),
        wait_earlier_nodes: is_set(o, "wait_earlier_nodes"),
        size_before_sync: is_set(o, "size_before_sync"),
        fsync_alone: is_set(o, "fsync_alone"),
        recover_aside: is_set(o, "recover_aside"),
        atomic_all_apart: is_set(o, "atomic_all_apart"),
        sync_attributes: is_set(o, "sync_attributes"),
        old_fdatasync: is_set(o, "old_fdatasync"),
        old_zero_range: is_set(o, "old_zero_range"),
        epoch_secs: env.epoch_secs,
        writeback: WbPolicy { hz, ..wp_vfs::dirty_limits(o, OPTIONS, base.writeback.clone())? },
        ..base
    })
}

/// By the magic of either copy: Linux mounts by the second where the first is gone.
fn probe(view: &dyn View) -> bool {
    (0..u64::from(SuperBlock::COPIES)).any(|copy| {
        let mut magic = [0u8; 4];
        view.read_at(copy * 4096 + SuperBlock::AT as u64, &mut magic).is_ok()
            && u32::from_le_bytes(magic) == SuperBlock::MAGIC
    })
}

/// Beside the chain, whatever Linux does: an image that a cut leaves is recovered again.
fn recover(view: &dyn View, o: &Options) -> FsResult<RecoveryPlan> {
    let overlay = Overlay::new(view);
    image::recover(&overlay, &RecoverOptions { aside: true, ..how(o)? })?;
    Ok(RecoveryPlan::of(&overlay))
}

fn inspect(view: &dyn View, o: &Options, hash: bool) -> FsResult<Inspection> {
    let options = InspectOptions { hash, recover: how(o)?, ..Default::default() };
    let found = match image::inspect(view, &options) {
        Ok(found) => found,
        Err(e) => return Inspection::not_mountable(e),
    };
    let failed = found.recovery.failed.iter().map(|e| format!("roll-forward failed: {e}"));
    let rejected = found.recovery.oprw.iter().flat_map(|r| &r.nodes);
    let listed = Inspection {
        recovered: found.recovery.is_needed(),
        left_out: rejected.map(ToString::to_string).collect(),
        findings: failed.collect(),
        files: found.files.iter().map(FileInfo::listed).collect(),
        ..Inspection::default()
    };
    Ok(listed.with_misread(&found.findings))
}

fn check(view: &dyn View, o: &Options, recover: bool, sound: &Sound) -> FsResult<Checked> {
    let recover = if recover { Some(how(o)?) } else { None };
    let mut report = check::check_one_of(view, &CheckOptions { recover }, sound)?;
    report.not_checked = check::not_checked(view);
    Ok(report.checked())
}

fn eras(text: &str) -> Option<Vec<EraRule>> {
    Some(wp_vfs::era_rules(POLICIES, Version::parse(text)?))
}
