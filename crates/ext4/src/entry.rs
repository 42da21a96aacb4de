//! ext4's line in the registry.

mod options;

use std::num::NonZeroU32;
use std::rc::Rc;

use wp_base::{FsError, FsResult, Sector};
use wp_cache::Fut;
use wp_jbd2::{DualMode, RecoverPolicy};
use wp_medium::{Medium, Overlay, Sound, View};
use wp_vfs::{
    BlockMap, Checked, Env, EraRule, FileInfo, FileSystem, FsEntry, Inspection, Offers, Options,
    Promises, RecoveryPlan,
};

use self::options::OPTIONS;
use crate::check::{self, CheckOptions};
use crate::disk::{SuperBlock, ro_compat};
use crate::fs::era::{Era, POLICIES, version};
use crate::fs::{
    DataMode, Ext4, FastFixes, FastOptions, IomapOptions, Literature, MountOptions, Mounted,
    TableTrim,
};
use crate::image;
use crate::mkfs::{Features, InodeTables, JournalSize, MkfsOptions, mkfs};

/// Time stamp of what is made or recovered without a clock: 2014-01-01, the year of the papers'
/// kernels.
const NOW: u32 = 1_388_534_400;

/// ext4.
pub static ENTRY: FsEntry = FsEntry {
    name: "ext4",
    about: "ext4 with jbd2, Linux 3.3 to 6.18; validated against Linux 3.4.2, 3.8.0, 4.6.2, 5.10, 6.12, 6.18",
    options: OPTIONS,
    kernels: ["3.3", "6.18"],
    runs_since: "3.3",
    next: Some(
        "Linux 6.18 and, with buffered_iomap, \"ext4: use iomap for regular file's buffered I/O \
         path\" (v7 of October 2026, in no release)",
    ),
    held: &["3.4", "3.8", "4.6", "5.10", "6.18"],
    promises: Promises {
        fsync_keeps_names: true,
        names_in_order: true,
        fallocate_syncs: true,
        barriers: Some(("journaling", "barrier")),
        order_only: Some("ordering_only"),
        alone: Some("ijournal"),
    },
    offers: Offers { shares: false, subvolumes: false, checkpoints: false, ..Offers::ALL },
    modes: &["", "data=writeback", "data=journal", "nodelalloc"],
    mkfs: make,
    mkfs_disks: None,
    mount: Some(mount),
    probe,
    inspect,
    survey: |overlay, o| image::survey(overlay, &policy(o)?, NOW),
    recover,
    check,
    blocks,
    eras,
    stages: &crate::stages::STAGES,
};

fn era_of(o: &Options) -> FsResult<Era> {
    let text = o.get("era", OPTIONS).unwrap_or("4.6");
    let version =
        version(text).ok_or(FsError::Invalid("era: a kernel version such as 3.4 or 4.6.2"))?;
    // Single repairs, so that the effect of each can be told from the rest of a kernel version.
    let mut era = Era::of(version);
    for rule in ["sync_flushes", "files_in_map_blocks"] {
        if switch(o, rule) {
            era = era.with(rule, true);
        }
    }
    let newest = newest_era();
    for name in o.get("fix", OPTIONS).unwrap_or_default().split('+').filter(|n| !n.is_empty()) {
        if !era.take(name, &newest) {
            return Err(FsError::Invalid("fix: names of rules with + in between (`list eras`)"));
        }
    }
    Ok(era)
}

fn newest_era() -> Era {
    Era::of(version(ENTRY.newest()).expect("a version of our own table"))
}

fn switch(o: &Options, key: &str) -> bool {
    o.get(key, OPTIONS).is_some_and(|v| v != "false" && v != "0")
}

fn number(o: &Options, key: &str, what: &'static str) -> FsResult<u32> {
    o.get(key, OPTIONS).unwrap_or_default().parse().map_err(|_| FsError::Invalid(what))
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut out = [0u8; 16];
    if hex.len() != 32 {
        return None;
    }
    for (o, pair) in out.iter_mut().zip(hex.chunks(2)) {
        *o = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

/// Features that mke2fs gave in an era: metadata_csum and 64bit came later.
fn features(era: Era) -> Features {
    if era.mkfs_has_checksums() { Features::today() } else { Features::era_2012() }
}

fn make(o: &Options, bytes: u64) -> FsResult<Medium> {
    // Also where the features do not depend on it: an era that is none is an error here, and not
    // only when the image is mounted.
    let era = era_of(o)?;
    let mut named = o.get("features", OPTIONS).unwrap_or_default().split('+').peekable();
    let features = match named.peek().copied() {
        Some("2012") => Features::era_2012(),
        Some("today") => Features::today(),
        _ => features(era),
    };
    named.next_if(|n| matches!(*n, "2012" | "today"));
    let mut m = MkfsOptions::new(bytes, features);
    m.block_size = Some(number(o, "block_size", "block_size: 1024, 2048 or 4096")?);
    m.inode_size =
        number(o, "inode_size", "inode_size: a power of two from 128 to the block size")?;
    m.uuid = uuid(o.get("uuid", OPTIONS).unwrap_or_default())
        .ok_or(FsError::Invalid("uuid: 32 hexadecimal digits"))?;
    m.hash_seed = match o.get("hash_seed", OPTIONS) {
        Some(text) => uuid(text).ok_or(FsError::Invalid("hash_seed: 32 hexadecimal digits"))?,
        None => m.uuid,
    };
    m.now = NOW;
    for name in named.filter(|n| !n.is_empty()) {
        let (name, on) = name.strip_prefix('^').map_or((name, true), |n| (n, false));
        m.features =
            m.features.set(name, on).map_err(|e| FsError::Unsupported(format!("mkfs: {e}")))?;
    }
    if let Some(text) = o.get("cluster", OPTIONS) {
        let bytes = wp_base::quantity::bytes(text).ok().and_then(|n| u32::try_from(n).ok());
        let wrong = FsError::Invalid("cluster: bytes of a cluster, such as 16k");
        m.cluster_size = Some(bytes.ok_or(wrong)?);
        m.features = m
            .features
            .set("bigalloc", true)
            .map_err(|e| FsError::Unsupported(format!("mkfs: {e}")))?;
    }
    if switch(o, "fast_commit") || switch(o, "ijournal") {
        if !era.fast_commits() {
            let what = "fast_commit, ijournal: kernels have the area from 5.10 on; \
                        add era=5.10 or a newer one";
            return Err(FsError::Unsupported(what.into()));
        }
        m.features = m
            .features
            .set("fast_commit", true)
            .map_err(|e| FsError::Unsupported(format!("mkfs: {e}")))?;
    }
    if o.get("journal_mb", OPTIONS).is_some() {
        let mb = number(o, "journal_mb", "journal_mb: a whole number of MiB")?;
        m.journal = JournalSize::Mebibytes(mb);
    }
    if switch(o, "lazy_itable_init") {
        m.inode_tables = InodeTables::Lazy;
    }
    let layout = mkfs(&m).map_err(|e| FsError::Unsupported(format!("mkfs: {e}")))?;
    let mut medium = Medium::new();
    layout.write_to(&mut medium, Sector(0));
    Ok(medium)
}

fn mount<'a>(env: &'a Env, o: &'a Options) -> Fut<'a, Rc<dyn FileSystem>> {
    Box::pin(async move {
        let era = era_of(o)?;
        let commit = number(o, "commit", "commit: seconds")?;
        if commit == 0 || commit > 3600 {
            return Err(FsError::Invalid("commit: from 1 to 3600 seconds"));
        }
        let data = DataMode::from_name(o.get("data", OPTIONS).unwrap_or("ordered"))
            .ok_or(FsError::Invalid("data: ordered, writeback or journal"))?;
        let hz = u64::from(number(o, "hz", "hz: timer ticks a second")?);
        if !(100..=1000).contains(&hz) || 1000 % hz != 0 {
            return Err(FsError::Invalid("hz: 100, 125, 200, 250, 500 or 1000"));
        }
        let multiplier = number(o, "init_itable", "init_itable: a multiple of time")?;
        let base = MountOptions::new(era, &env.disk, env.device.0, env.device.1);
        let options = MountOptions {
            barrier: !(switch(o, "nobarrier") || switch(o, "optr") && switch(o, "ordering_only")),
            // `data=journal` switches delayed allocation off (`ext4_check_opt_consistency`).
            delalloc: !switch(o, "nodelalloc") && data != DataMode::Journal,
            data,
            dioread_nolock: match (switch(o, "dioread_nolock"), switch(o, "dioread_lock")) {
                (true, true) => {
                    return Err(FsError::Invalid("dioread_nolock or dioread_lock, not both"));
                }
                (true, false) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            },
            commit_interval: wp_base::Span::secs(u64::from(commit)),
            init_itable: (!switch(o, "noinit_itable")).then_some(multiplier),
            rotational: switch(o, "rotational"),
            smp: !switch(o, "nosmp"),
            cpus: number(o, "cpus", "cpus: a number")?.max(1),
            zeroout_kib: number(o, "extent_max_zeroout_kb", "extent_max_zeroout_kb: a number")?,
            epoch_secs: env.epoch_secs,
            async_commit: switch(o, "journal_async_commit"),
            dual: dual_mode(o)?,
            literature: Literature {
                force_copy: switch(o, "force_copy"),
                optr: switch(o, "optr"),
                iomap: iomap_options(o)?,
            },
            fast: fast_options(o)?,
            ordering_only: switch(o, "ordering_only"),
            relatime: switch(o, "relatime"),
            count_access: switch(o, "count_access"),
            data_err_abort: match o.get("data_err", OPTIONS) {
                Some("abort") => true,
                None | Some("ignore") => false,
                Some(_) => return Err(FsError::Invalid("data_err: abort or ignore")),
            },
            auto_da_alloc: !switch(o, "noauto_da_alloc"),
            discard: switch(o, "discard"),
            discard_committed: switch(o, "discard_committed"),
            size_before_sync: switch(o, "size_before_sync"),
            untorn_commit: switch(o, "untorn_commit"),
            table_trim: TableTrim::from_name(o.get("inode_trim", OPTIONS).unwrap_or(""))
                .ok_or(FsError::Invalid("inode_trim: naive or safe"))?,
            writeback: wp_cache::WbPolicy {
                hz,
                ..wp_vfs::dirty_limits(o, OPTIONS, base.writeback.clone())?
            },
            ..base
        };
        options.check_drive(&env.part.limits())?;
        let fs = Ext4::mount(&env.rt, env.part.clone(), options).await?;
        let fs: Rc<dyn FileSystem> = Rc::new(Mounted(fs));
        Ok(fs)
    })
}

/// How regular files are written through the cache. Errors: as of [`IomapOptions::of`].
fn iomap_options(o: &Options) -> FsResult<IomapOptions> {
    let given = [switch(o, "buffered_iomap"), switch(o, "nobuffered_iomap")];
    let fixes = o.get("iomap_fix", OPTIONS).unwrap_or_default();
    IomapOptions::of(given, o.get("era", OPTIONS).unwrap_or_default(), fixes)
}

/// What fast commits do beside what kernels do. Errors: `Invalid` for a fix that there is not.
fn fast_options(o: &Options) -> FsResult<FastOptions> {
    let fixes = FastFixes::parse(o.get("fast_fix", OPTIONS).unwrap_or_default());
    let fixes = fixes.ok_or(FsError::Invalid(
        "fast_fix: blocks, head, unnamed, unlinked, ineligible, untracked, directories, company, \
         attributes, area, orphans, zeroed, or all",
    ))?;
    let (ijournal, selective_flush) = (switch(o, "ijournal"), switch(o, "fast_selective_flush"));
    if !ijournal {
        return Ok(FastOptions { fixes, selective_flush, ijournal });
    }
    if switch(o, "fast_commit") || selective_flush || fixes != FastFixes::default() {
        let what = "ijournal with fast_commit, fast_fix or fast_selective_flush: use one of them";
        return Err(FsError::Invalid(what));
    }
    // What fast commits forget to track, one file would miss too.
    Ok(FastOptions { fixes: FastFixes::all(), selective_flush, ijournal })
}

/// BarrierFS' journaling and what CJFS adds. Errors: `Invalid` for additions without it.
fn dual_mode(o: &Options) -> FsResult<Option<DualMode>> {
    let versions = match o.get("jh_versions", OPTIONS) {
        None | Some("") => None,
        Some("all") => Some(DualMode::NO_CONFLICTS),
        Some(n) => Some(
            n.parse().map_err(|_| FsError::Invalid("jh_versions: a number from 1 on, or all"))?,
        ),
    };
    let group = number(o, "compound_flush", "compound_flush: a number from 1 on")?;
    let compound_flush =
        NonZeroU32::new(group).ok_or(FsError::Invalid("compound_flush: a number from 1 on"))?;
    let dual = DualMode { versions, coalesce: switch(o, "coalesce"), compound_flush };
    match o.get("journaling", OPTIONS) {
        Some("barrier") => Ok(Some(dual)),
        None | Some("flush") if dual == DualMode::default() => Ok(None),
        None | Some("flush") => Err(FsError::Invalid(
            "jh_versions, coalesce and compound_flush need journaling=barrier",
        )),
        Some(_) => Err(FsError::Invalid("journaling: flush or barrier")),
    }
}

fn probe(view: &dyn View) -> bool {
    let mut magic = [0u8; 2];
    view.read_at(SuperBlock::AT + 0x38, &mut magic).is_ok()
        && u16::from_le_bytes(magic) == SuperBlock::MAGIC
}

fn policy(o: &Options) -> FsResult<RecoverPolicy> {
    let policy = RecoverPolicy::of(&wp_jbd2::Era::of(era_of(o)?.version()));
    Ok(if switch(o, "ijournal") { policy.with_ijournal() } else { policy })
}

fn recover(view: &dyn View, o: &Options) -> FsResult<RecoveryPlan> {
    let overlay = Overlay::new(view);
    image::recover_staged(&overlay, &policy(o)?, NOW)?;
    Ok(RecoveryPlan::of(&overlay))
}

fn inspect(view: &dyn View, o: &Options, hash: bool) -> FsResult<Inspection> {
    let options = image::InspectOptions {
        hash,
        policy: policy(o)?,
        version: (era_of(o)?.version().0, era_of(o)?.version().1),
        now: NOW,
        ..Default::default()
    };
    let found = match image::inspect(view, &options) {
        Ok(found) => found,
        Err(e) => return Inspection::not_mountable(e),
    };
    let listed = Inspection {
        recovered: found.recovery.is_needed(),
        files: found.files.iter().map(FileInfo::listed).collect(),
        left_out: left_out(view, &found.recovery).map(str::to_owned).into_iter().collect(),
        ..Inspection::default()
    };
    Ok(listed.with_misread(&found.findings))
}

/// What a mount of Linux does and recovery here does not: quota files count what is freed.
fn left_out(view: &dyn View, recovery: &image::Recovery) -> Option<&'static str> {
    let mut bytes = [0; SuperBlock::BYTES];
    view.read_at(SuperBlock::AT, &mut bytes).ok()?;
    let has_quota = SuperBlock::load(&bytes)?.has_ro_compat(ro_compat::QUOTA);
    let has_orphans = recovery.orphans_deleted + recovery.orphans_truncated > 0;
    (has_quota && has_orphans)
        .then_some("quota files still count what orphans had (`e2fsck -f` counts anew)")
}

fn check(view: &dyn View, o: &Options, recover: bool, sound: &Sound) -> FsResult<Checked> {
    let options = CheckOptions {
        recover,
        policy: policy(o)?,
        now: NOW,
        tables_zeroed: switch(o, "lazy_itable_init"),
        ..Default::default()
    };
    let mut report = check::check_one_of(view, &options, sound)?;
    report.not_checked = check::not_checked(view).unwrap_or_default();
    Ok(report.checked())
}

fn blocks(view: &dyn View) -> FsResult<Box<dyn BlockMap>> {
    Ok(Box::new(crate::evidence::Blocks::read(view)?))
}

fn eras(text: &str) -> Option<Vec<EraRule>> {
    Some(wp_vfs::era_rules(POLICIES, version(text)?))
}
