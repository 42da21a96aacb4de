//! The recorded runs of Linux 6.18: what each was, and what it queued.
//!
//! Made from `ext4-fsync-trace` of the reference data by [`read_today`]; a test compares. Kept in
//! `papers/ext4-fsync/kernel-6.18-runs.json`, so that the comparison needs nothing else.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ReferenceError;
use super::bios::{CaseBios, PhaseBios};
use super::summary::Phase;

/// Flushes of one `sync` call on the machine's file systems are closer together than this.
const SAME_SYNC_US: u64 = 500_000;

/// What was kept of the recorded runs.
pub const TODAY_RUNS_JSON: &str =
    include_str!("../../../../papers/ext4-fsync/kernel-6.18-runs.json");

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodayRun {
    /// Its name, `def_N100`.
    pub run: String,
    /// Options of mke2fs besides `-b 4096 -E lazy_itable_init=0,lazy_journal_init=0`.
    pub mkfs: String,
    /// Mount options.
    pub mount: String,
    /// Size of the image in MiB.
    pub image_mib: u64,
    /// Seed of the image's directory hashes: how a directory splits follows from it.
    pub hash_seed: String,
    /// Files.
    pub files: u32,
    /// Bytes of each.
    pub bytes: u32,
    /// Its two parts, `alloc` and `over`.
    pub cases: BTreeMap<String, TodayCase>,
}

/// A part of a recorded run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodayCase {
    /// Milliseconds from the return of fsync to the `sync` that ended the watching.
    pub watch_ms: u64,
    /// Milliseconds from the return of fsync to flushes of other processes' `sync` calls, which the
    /// machine happened to make.
    pub syncs_ms: Vec<u64>,
    /// What was queued.
    #[serde(flatten)]
    pub bios: CaseBios,
}

/// The recorded runs that were compiled in. Errors: the file is not such a one.
pub fn today_runs() -> Result<Vec<TodayRun>, ReferenceError> {
    serde_json::from_str(TODAY_RUNS_JSON).map_err(|e| ReferenceError(e.to_string()))
}

/// The kept runs as text, one line a run.
pub fn today_runs_to_json(runs: &[TodayRun]) -> String {
    let line = |run: &TodayRun| serde_json::to_string(run).expect("keys are text");
    format!("[\n{}\n]\n", runs.iter().map(line).collect::<Vec<_>>().join(",\n"))
}

#[derive(Deserialize)]
struct Recorded {
    mkfs: String,
    mount: String,
    image: String,
    #[serde(rename = "N")]
    files: u32,
    cases: BTreeMap<String, RecordedCase>,
}

#[derive(Deserialize)]
struct RecordedCase {
    lat: String,
    phases: BTreeMap<String, RecordedPhase>,
    after_profile_s: BTreeMap<i64, BTreeMap<String, u32>>,
}

#[derive(Deserialize)]
struct RecordedPhase {
    blocks: BTreeMap<String, u32>,
    by_rwbs: BTreeMap<String, u32>,
}

/// Reads the folder of recorded runs. `unpack` gives the text of a packed file.
///
/// Runs with fast commits (`fc_*`) are left out: no journal of ours has them. Errors: a file that
/// is missing or is not what it should be, by name.
pub fn read_today(
    folder: &Path,
    unpack: &dyn Fn(&Path) -> std::io::Result<String>,
) -> Result<Vec<TodayRun>, ReferenceError> {
    let wrong = |what: &str, e: &dyn std::fmt::Display| ReferenceError(format!("{what}: {e}"));
    let text = std::fs::read_to_string(folder.join("summary.json"))
        .map_err(|e| wrong("summary.json", &e))?;
    let all: BTreeMap<String, Recorded> =
        serde_json::from_str(&text).map_err(|e| wrong("summary.json", &e))?;
    // `sync` covers every file system of the machine, and all traces count from one moment: where
    // no flush shows it (`barrier=0`), the others' traces do.
    let mut everywhere: Vec<u64> = Vec::new();
    for run in all.keys().filter(|run| !run.starts_with("fc_")) {
        let name = format!("{run}/alloc.trace.txt.zst");
        let text = unpack(&folder.join(&name)).map_err(|e| wrong(&name, &e))?;
        everywhere.extend(foreign_syncs(&text));
    }
    everywhere.sort_unstable();
    everywhere.dedup_by(|later, first| *later - *first < SAME_SYNC_US);
    let mut runs = Vec::new();
    for (run, r) in all.into_iter().filter(|(run, _)| !run.starts_with("fc_")) {
        let mib: u64 = r
            .image
            .strip_suffix('G')
            .and_then(|n| n.parse::<u64>().ok())
            .ok_or_else(|| wrong(&run, &"image size"))?
            * 1024;
        let mut cases = BTreeMap::new();
        let mut bytes = 0;
        for (case, c) in r.cases {
            let read = |suffix: &str| {
                let name = format!("{run}/{case}.{suffix}.zst");
                unpack(&folder.join(&name)).map_err(|e| wrong(&name, &e))
            };
            let size = c.lat.split_whitespace().find_map(|w| w.strip_prefix("size="));
            bytes = size.and_then(|s| s.parse().ok()).ok_or_else(|| wrong(&run, &"file size"))?;
            let seen = (r.mount == "barrier=0").then_some(everywhere.as_slice());
            let times =
                Times::of(&read("trace.txt")?, seen).ok_or_else(|| wrong(&run, &"its marks"))?;
            let phases = c.phases.iter().filter_map(|(name, p)| {
                let phase = Phase::SYNCED.into_iter().find(|phase| phase.name() == name)?;
                let kept = PhaseBios { blocks: p.blocks.clone(), bios: p.by_rwbs.clone() };
                (!kept.bios.is_empty()).then_some((phase, kept))
            });
            let mut seconds: BTreeMap<String, Vec<(i64, u32)>> = BTreeMap::new();
            for (second, classes) in &c.after_profile_s {
                for (class, n) in classes {
                    seconds.entry(class.clone()).or_default().push((*second, *n));
                }
            }
            let bios = CaseBios {
                phases: phases.collect(),
                order: order(&read("fsync_sequence.tsv")?),
                seconds,
            };
            cases.insert(case, TodayCase { watch_ms: times.watch, syncs_ms: times.syncs, bios });
        }
        let name = format!("{run}/dumpe2fs.txt.zst");
        let dump = unpack(&folder.join(&name)).map_err(|e| wrong(&name, &e))?;
        let hash_seed = dump
            .lines()
            .find_map(|l| l.strip_prefix("Directory Hash Seed:"))
            .ok_or_else(|| wrong(&name, &"hash seed"))?
            .trim()
            .to_owned();
        let (mkfs, mount, files) = (r.mkfs, r.mount, r.files);
        runs.push(TodayRun { run, mkfs, mount, image_mib: mib, hash_seed, files, bytes, cases });
    }
    Ok(runs)
}

/// Milliseconds after the return of fsync.
struct Times {
    watch: u64,
    syncs: Vec<u64>,
}

impl Times {
    /// From a trace in the format of the kernel's tracer; with `syncs`, moments of `sync` calls
    /// that it cannot show.
    fn of(trace: &str, syncs: Option<&[u64]>) -> Option<Times> {
        let mark = |text: &str| at(trace.lines().find(|l| l.trim_end().ends_with(text))?);
        let (end, sync) = (mark("WL fsync_end")?, mark("WL sync_start")?);
        let ms = |us: u64| us.saturating_sub(end) / 1000;
        let syncs = syncs.map_or_else(|| foreign_syncs(trace), <[u64]>::to_vec);
        let syncs = syncs.into_iter().filter(|us| (end..sync).contains(us)).map(ms).collect();
        Some(Times { watch: ms(sync), syncs })
    }
}

/// Microseconds of a line `task-pid [cpu] flags seconds: event: …`.
fn at(line: &str) -> Option<u64> {
    let word = line.split_whitespace().find(|w| {
        w.strip_suffix(':').is_some_and(|t| t.contains('.') && t.parse::<f64>().is_ok())
    })?;
    let (s, us) = word.strip_suffix(':')?.split_once('.')?;
    Some(s.parse::<u64>().ok()? * 1_000_000 + us.parse::<u64>().ok()?)
}

/// When other processes' `sync` calls flushed.
fn foreign_syncs(trace: &str) -> Vec<u64> {
    trace
        .lines()
        .filter(|l| l.contains("block_bio_queue") && l.trim_end().ends_with("[sync]"))
        .filter_map(at)
        .collect()
}

/// The steps of `fsync_sequence.tsv`, reads left out.
fn order(tsv: &str) -> Vec<String> {
    let mut steps: Vec<(String, u32)> = Vec::new();
    for line in tsv.lines().skip(1) {
        let mut fields = line.split('\t').skip(2);
        let (Some(rwbs), _, blocks, Some(class)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if !rwbs.contains('W') {
            continue;
        }
        let blocks = blocks.and_then(|b| b.parse::<u32>().ok()).unwrap_or(0).max(1);
        let step = format!("{rwbs} {class}");
        match steps.last_mut() {
            Some((s, n)) if *s == step => *n += blocks,
            _ => steps.push((step, blocks)),
        }
    }
    steps.into_iter().map(|(step, n)| format!("{step} {n}")).collect()
}
