//! The runs that were recorded: what each was, and its summary, kept in the repository.

use std::path::Path;

use serde::{Deserialize, Serialize};
use wp_base::plain::Shown as _;

use super::{Filed, ReferenceError, RunSummary, Trace, parse_tsv, summarise};

/// Summaries of the recorded runs, made from the reference data by this code; a test compares.
pub const KERNEL_RUNS_JSON: &str = include_str!("../../../../papers/ext4-fsync/kernel-runs.json");

/// Nanoseconds after the call of fsync in which a run was watched (74 to 76 s by the READMEs).
const WINDOW_NS: i64 = 74_000_000_000;
/// The same of the runs that were mounted `nodelalloc` (6 s by the READMEs).
const WINDOW_NODELALLOC_NS: i64 = 6_000_000_000;
/// The same of the runs that were mounted `dioread_lock` (45 s by the README).
const WINDOW_DIOREAD_LOCK_NS: i64 = 44_000_000_000;

/// What the traced program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteCase {
    /// 3072 bytes into an empty file: allocates.
    Alloc,
    /// 2048 bytes behind the first 1024: extends the size inside a mapped block.
    Extend,
    /// 3072 bytes over as many.
    Over,
}

/// What a recorded run was, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// Folder and file: `linux-3.4/single-cfq_alloc_N10`.
    pub name: String,
    /// `3.4`.
    pub kernel: String,
    /// `cfq`.
    pub elevator: String,
    /// Mounted `nodelalloc`.
    pub nodelalloc: bool,
    /// Mounted `dioread_lock`.
    pub dioread_lock: bool,
    /// The only disk of its guest, which had one CPU.
    pub single: bool,
    /// What is written.
    pub case: WriteCase,
    /// How many files; fsync is called on the last.
    pub files: u32,
}

impl RunSpec {
    /// Takes a name apart. Errors: a name of another form.
    pub fn parse(name: &str) -> Result<RunSpec, ReferenceError> {
        let parts = || {
            let (folder, stem) = name.split_once('/')?;
            let kernel = folder.strip_prefix("linux-")?;
            let (rest, files) = stem.rsplit_once("_N")?;
            let (scheduler, case) = rest.rsplit_once('_')?;
            let case = match case {
                "alloc" => WriteCase::Alloc,
                "extend" => WriteCase::Extend,
                "over" => WriteCase::Over,
                _ => return None,
            };
            let files = files.parse().ok().filter(|&n| n > 0)?;
            let mut spec = RunSpec {
                name: name.to_owned(),
                kernel: kernel.to_owned(),
                elevator: String::new(),
                nodelalloc: false,
                dioread_lock: false,
                single: false,
                case,
                files,
            };
            let mut elevator = scheduler;
            for (prefix, flag) in [
                ("nodelalloc-", &mut spec.nodelalloc),
                ("dioread_lock-", &mut spec.dioread_lock),
                ("single-", &mut spec.single),
            ] {
                if let Some(rest) = elevator.strip_prefix(prefix) {
                    (elevator, *flag) = (rest, true);
                }
            }
            spec.elevator = elevator.to_owned();
            Some(spec)
        };
        parts().ok_or_else(|| ReferenceError(format!("{name}: not the name of a recorded run")))
    }

    /// How long the run was watched, nanoseconds since fsync was called.
    pub fn window_ns(&self) -> i64 {
        match (self.nodelalloc, self.dioread_lock) {
            (true, _) => WINDOW_NODELALLOC_NS,
            (_, true) => WINDOW_DIOREAD_LOCK_NS,
            _ => WINDOW_NS,
        }
    }
}

/// A recorded run: what it was, and what the kernel did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRun {
    /// What it was.
    pub spec: RunSpec,
    /// What the kernel did.
    pub summary: RunSummary,
}

impl KernelRun {
    /// Summarises a recorded trace. Errors: see [`RunSpec::parse`] and [`summarise`].
    pub fn new(name: &str, trace: &Trace) -> Result<KernelRun, ReferenceError> {
        let spec = RunSpec::parse(name)?;
        let filed = Filed::count(&trace.lines, trace.fsync_end_ns);
        let (end, window) = (trace.fsync_end_ns, spec.window_ns());
        let summary = summarise(&trace.lines, end, spec.files, window, filed)?;
        Ok(KernelRun { spec, summary })
    }
}

/// Reads every trace of a folder of the reference data, in order of name.
///
/// Errors: a folder or file that cannot be read, or what is in it, with the file's name.
pub fn read_folder(folder: &Path) -> Result<Vec<(String, Trace)>, ReferenceError> {
    let host = |path: &Path, e: std::io::Error| ReferenceError(format!("{}: {e}", path.shown()));
    let prefix = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut traces = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| host(folder, e))? {
        let path = entry.map_err(|e| host(folder, e))?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if path.extension().is_none_or(|extension| extension != "tsv") {
            continue;
        }
        let name = format!("{prefix}/{stem}");
        let text = std::fs::read_to_string(&path).map_err(|e| host(&path, e))?;
        let trace = parse_tsv(&text).map_err(|e| ReferenceError(format!("{name}: {e}")))?;
        traces.push((name, trace));
    }
    traces.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(traces)
}

/// The recorded runs that were compiled in.
pub fn kernel_runs() -> Vec<KernelRun> {
    parse_kernel_runs(KERNEL_RUNS_JSON).expect("a test parses the committed file")
}

#[derive(Serialize, Deserialize)]
struct Kept {
    run: String,
    #[serde(flatten)]
    summary: RunSummary,
}

/// Reads the kept summaries. Errors: not such a file.
pub fn parse_kernel_runs(text: &str) -> Result<Vec<KernelRun>, ReferenceError> {
    let kept: Vec<Kept> = serde_json::from_str(text).map_err(|e| ReferenceError(e.to_string()))?;
    let run =
        |kept: Kept| Ok(KernelRun { spec: RunSpec::parse(&kept.run)?, summary: kept.summary });
    kept.into_iter().map(run).collect()
}

/// The kept summaries, one line a run.
pub fn kernel_runs_to_json(runs: &[KernelRun]) -> String {
    let line = |run: &KernelRun| {
        let kept = Kept { run: run.spec.name.clone(), summary: run.summary.clone() };
        serde_json::to_string(&kept).expect("keys are text")
    };
    format!("[\n{}\n]\n", runs.iter().map(line).collect::<Vec<_>>().join(",\n"))
}
