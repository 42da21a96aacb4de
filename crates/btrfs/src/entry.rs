//! btrfs' line in the registry.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{Fut, WbPolicy};
use wp_medium::{Medium, Overlay, Sound, View};
use wp_vfs::{
    BlockMap, Checked, Env, EraRule, FileInfo, FileSystem, FsEntry, Inspection, Mountable, Offers,
    OptionSpec, Options, Promises, RecoveryPlan, Version, When,
};

use crate::check::{self, CheckOptions};
use crate::disk::{CsumKind, SuperBlock};
use crate::era::{Era, POLICIES};
use crate::fs::{Btrfs, Mend, MountOptions, Mounted, OldLog, Subvolume};
use crate::image::{self, InspectOptions};
use crate::mkfs::{MkfsOptions, mkfs};
use crate::replay::{self, OldReplay, Overgrown, RecoverOptions};

const fn option(
    key: &'static str,
    when: When,
    default: &'static str,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { key, when, default, help }
}

const OPTIONS: &[OptionSpec] = &[
    option("era", When::Always, "6.12.117", "kernel version whose rules apply"),
    option("node_size", When::Mkfs, "16384", "tree block size in bytes (mkfs.btrfs -n)"),
    option("metadata", When::Mkfs, "dup", "copies of metadata: dup or single (mkfs.btrfs -m)"),
    option("csum", When::Mkfs, "crc32c", "crc32c or xxhash (mkfs.btrfs --csum)"),
    option("label", When::Mkfs, "", "label (mkfs.btrfs -L)"),
    option("subvol", When::Mount, "", "path of the subvolume to mount, from the top level"),
    option("subvolid", When::Mount, "", "ID of the subvolume to mount; 5 is the top level"),
    option("nobarrier", When::Mount, "", "no cache flushes, no FUA"),
    option("nodatacow", When::Mount, "", "new files are written in place, without checksums"),
    option("nodatasum", When::Mount, "", "new files have no checksums"),
    option(
        "direct_sums",
        When::Mount,
        "",
        "direct writes of checksummed data bypass the page cache, as in older kernels",
    ),
    option("notreelog", When::Mount, "", "every fsync commits a transaction"),
    option("max_inline", When::Mount, "2048", "largest inline file, in bytes"),
    option(
        "old_log",
        When::Mount,
        "",
        "log fixes to leave out, as in older kernels: exists+names+gone_parents+…",
    ),
    option(
        "old_replay",
        When::Always,
        "",
        "log-replay fixes to leave out: dir_size, refs, overwrite",
    ),
    option("overgrown", When::Always, "panic", "where log replay of 6.12 panics: panic or replace"),
    option(
        "fix",
        When::Mount,
        "",
        "bugs of the log of Linux 6.12 to fix: nameless+renamed+…, or all (docs/testing.md)",
    ),
    option("commit", When::Mount, "30", "seconds between commits"),
    option("hz", When::Mount, "250", "timer ticks per second"),
    option("others_wrote", When::Mount, "0", "blocks that other devices wrote shortly before"),
];

/// btrfs.
pub static ENTRY: FsEntry = FsEntry {
    name: "btrfs",
    about: "btrfs on one device; images as mkfs.btrfs 6.2 makes them",
    options: OPTIONS,
    kernels: ["5.15", "7.1"],
    runs_since: "5.15",
    next: None,
    held: &["6.12.117"],
    promises: Promises {
        // A log has the names of what is synced.
        fsync_keeps_names: true,
        // A log has some names and not others that came before.
        names_in_order: false,
        // `btrfs_fallocate` looks at no `O_SYNC`.
        fallocate_syncs: false,
        barriers: None,
        order_only: None,
        alone: None,
    },
    offers: Offers { moves_ranges: false, checkpoints: false, ..Offers::ALL },
    modes: &["", "notreelog", "nodatacow"],
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
    version.map(Era::of).ok_or(FsError::Invalid("era: a kernel version such as 6.12.117"))
}

fn how(o: &Options) -> FsResult<RecoverOptions> {
    let era = era_of(o)?;
    let old = o.get("old_replay", OPTIONS).unwrap_or_default();
    let old = OldReplay::parse(old)
        .ok_or(FsError::Invalid("old_replay: dir_size, refs, overwrite, with + in between"))?;
    let overgrown = match o.get("overgrown", OPTIONS).unwrap_or_default() {
        "panic" => Overgrown::Panic,
        "replace" => Overgrown::Replace,
        _ => return Err(FsError::Invalid("overgrown: panic or replace")),
    };
    Ok(RecoverOptions { era, old, overgrown, ..RecoverOptions::default() })
}

fn number(o: &Options, key: &str, what: &'static str) -> FsResult<u32> {
    o.get(key, OPTIONS).unwrap_or_default().parse().map_err(|_| FsError::Invalid(what))
}

fn is_set(o: &Options, key: &str) -> bool {
    o.get(key, OPTIONS).is_some_and(|v| v != "false" && v != "0")
}

fn make(o: &Options, bytes: u64) -> FsResult<Medium> {
    how(o)?;
    let mut m = MkfsOptions::new(bytes);
    m.node_bytes = number(o, "node_size", "node_size: 4096 to 65536, a power of two")?;
    m.dup_metadata = match o.get("metadata", OPTIONS).unwrap_or_default() {
        "dup" => true,
        "single" => false,
        _ => return Err(FsError::Invalid("metadata: dup or single")),
    };
    m.csum = match o.get("csum", OPTIONS).unwrap_or_default() {
        "crc32c" => CsumKind::Crc32c,
        "xxhash" => CsumKind::Xxhash64,
        other => return Err(FsError::Unsupported(format!("btrfs checksum: {other}"))),
    };
    m.label = o.get("label", OPTIONS).unwrap_or_default().to_owned();
    let mut medium = Medium::new();
    mkfs(&m)?.write_to(&mut medium);
    Ok(medium)
}

fn mount<'a>(env: &'a Env, o: &'a Options) -> Fut<'a, Rc<dyn FileSystem>> {
    Box::pin(async move {
        let how = how(o)?;
        let old_log = OldLog::parse(o.get("old_log", OPTIONS).unwrap_or_default());
        let old_log = old_log.ok_or(FsError::Invalid(
            "old_log: exists, names, gone_parents, one_parent, dir_refs, parents, moves, prealloc",
        ))?;
        let mend = Mend::parse(o.get("fix", OPTIONS).unwrap_or_default());
        let mend = mend.ok_or(FsError::Invalid(
            "fix: nameless, renamed, unlinked, space, reloaded, symlinks, cut, all",
        ))?;
        let commit_secs = match number(o, "commit", "commit: seconds, at least 1")? {
            0 => return Err(FsError::Invalid("commit: seconds, at least 1")),
            n => u64::from(n),
        };
        let hz = u64::from(number(o, "hz", "hz: timer ticks a second")?);
        if !(100..=1000).contains(&hz) || 1000 % hz != 0 {
            return Err(FsError::Invalid("hz: 100, 125, 200, 250, 500 or 1000"));
        }
        let others_wrote = number(o, "others_wrote", "others_wrote: blocks")?.into();
        let subvolume = match (o.get("subvol", OPTIONS), o.get("subvolid", OPTIONS)) {
            (None | Some(""), None | Some("")) => Subvolume::Default,
            (Some(path), None | Some("")) => Subvolume::Path(path.to_owned()),
            (None | Some(""), Some(_)) => {
                Subvolume::Id(number(o, "subvolid", "subvolid: a number")?.into())
            }
            _ => return Err(FsError::Invalid("subvol and subvolid: one of both")),
        };
        let options = MountOptions {
            subvolume,
            barrier: !is_set(o, "nobarrier"),
            datacow: !is_set(o, "nodatacow"),
            datasum: !is_set(o, "nodatasum"),
            direct_sums: is_set(o, "direct_sums"),
            treelog: !is_set(o, "notreelog"),
            era: how.era,
            old_log,
            mend,
            old_replay: how.old,
            overgrown: how.overgrown,
            max_inline: number(o, "max_inline", "max_inline: bytes")?.into(),
            commit_secs,
            epoch_secs: env.epoch_secs,
            writeback: WbPolicy { hz, others_wrote, ..MountOptions::default().writeback },
        };
        let fs = Btrfs::mount(&env.rt, env.part.clone(), options).await?;
        let fs: Rc<dyn FileSystem> = Rc::new(Mounted(fs));
        Ok(fs)
    })
}

/// By the magic of the first super block: what is wrong behind it, and features that are not done
/// here, are for the readers to name.
fn probe(view: &dyn View) -> bool {
    let mut magic = [0u8; 8];
    view.read_at(SuperBlock::AT + SuperBlock::MAGIC_AT, &mut magic).is_ok()
        && u64::from_le_bytes(magic) == SuperBlock::MAGIC
}

fn recover(view: &dyn View, o: &Options) -> FsResult<RecoveryPlan> {
    let overlay = Overlay::new(view);
    replay::recover(&overlay, &how(o)?)?;
    Ok(RecoveryPlan::of(&overlay))
}

fn inspect(view: &dyn View, o: &Options, hash: bool) -> FsResult<Inspection> {
    let options = InspectOptions { hash, recover: how(o)?, ..Default::default() };
    let found = match image::inspect(view, &options) {
        Ok(found) => found,
        Err(e) => return Inspection::not_mountable(e),
    };
    // Most that cannot be read of a tree is missed by a file too.
    let is_new = |e: &&FsError| found.findings.iter().all(|f| f.error != **e);
    let mountable = match &found.mountable {
        Ok(()) => Mountable::Yes,
        Err(e) => Mountable::no(e),
    };
    let listed = Inspection {
        mountable,
        recovered: found.recovery.is_needed,
        findings: found.refused.iter().filter(is_new).map(ToString::to_string).collect(),
        files: found.files.iter().map(FileInfo::listed).collect(),
        ..Inspection::default()
    };
    Ok(listed.with_misread(&found.findings))
}

fn check(view: &dyn View, o: &Options, recover: bool, _sound: &Sound) -> FsResult<Checked> {
    let recover = if recover { Some(how(o)?) } else { None };
    let report = check::check(view, &CheckOptions { recover, contents: false })?;
    Ok(report.checked())
}

fn eras(text: &str) -> Option<Vec<EraRule>> {
    Version::parse(text).map(|v| wp_vfs::era_rules(POLICIES, v))
}
