//! fio job files as a workload. Parsing and running are in `wp_workload`; here is what touches host
//! files.

use std::cell::RefCell;
use std::path::Path;

use wp_base::FsError;
use wp_cache::Fut;
use wp_vfs::{FsEntry, OptionError, OptionSpec, Options, Vfs, When};
use wp_workload::fio::{self, JobFile, JobResult, RunError, RunOptions, Severity, Variables};

use super::{Inputs, WorkloadEntry, WorkloadReport};
use crate::host::text;

/// End of the name of a number: writes of a job that wrote a part of what they were given.
pub const WRITE_SHORT: &str = "write_short";

/// Name of the document that is shaped as fio's JSON.
pub const REPORT: &str = "fio.json";
/// How long jobs took that ran one behind the other.
pub const IN_TURN: &str = "runtime_ns";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec { key: "job", when: When::Always, default: "", help: "the job file" },
    OptionSpec {
        key: "compat",
        when: When::Always,
        default: "intended",
        help: "bugs: sync the file that fio syncs, even if it is not the one written",
    },
    OptionSpec {
        key: "vars",
        when: When::Always,
        default: "",
        help: "values for ${NAME}: NAME:VALUE;NAME:VALUE",
    },
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "fio",
    about: "a fio job file (`writepath fio check` lists exact and refused options)",
    options: OPTIONS,
    check: |o| load(o).map(|_| ()),
    inputs: |o| load(o).map(|l| l.inputs),
    room,
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

/// A job file with all that it includes.
pub struct Loaded {
    /// Its jobs.
    pub file: JobFile,
    /// It, and each included file.
    pub inputs: Inputs,
    bugs: bool,
}

/// Reads and parses a job file of the host. Errors: the host's. What is wrong in the file is in its
/// diagnostics.
pub fn read(path: &Path, variables: &Variables) -> std::io::Result<Loaded> {
    let bytes = text::bytes(path)?;
    let name = path.to_string_lossy().into_owned();
    let inputs = RefCell::new(vec![(name.clone(), bytes.clone())]);
    let include = |name: &str| {
        let bytes = text::bytes(Path::new(name)).ok()?;
        inputs.borrow_mut().push((name.to_owned(), bytes.clone()));
        Some(bytes)
    };
    let file = fio::parse(&name, &bytes, &include, variables);
    Ok(Loaded { file, inputs: inputs.into_inner(), bugs: false })
}

/// Variables from `NAME:VALUE;NAME:VALUE`.
pub fn variables(text: &str) -> Result<Variables, String> {
    let mut all = Variables::default();
    for pair in text.split(';').filter(|p| !p.is_empty()) {
        let (name, value) =
            pair.split_once(':').ok_or_else(|| format!("`{pair}`: write NAME:VALUE"))?;
        all.named.insert(name.to_owned(), value.to_owned());
    }
    Ok(all)
}

fn load(o: &Options) -> Result<Loaded, OptionError> {
    let text = |key: &str| o.get(key, OPTIONS).unwrap_or_default().to_owned();
    let wrong = |key: &str, why: String| OptionError { key: key.to_owned(), value: text(key), why };
    let bugs = match text("compat").as_str() {
        "intended" => false,
        "bugs" => true,
        _ => return Err(wrong("compat", "one of intended, bugs".to_owned())),
    };
    let job = text("job");
    if job.is_empty() {
        return Err(wrong("job", "give a job file: `fio,job=FILE`".to_owned()));
    }
    let variables = variables(&text("vars")).map_err(|e| wrong("vars", e))?;
    let mut loaded = read(Path::new(&job), &variables).map_err(|e| wrong("job", e.to_string()))?;
    if loaded.file.has_errors() {
        return Err(wrong("job", format!("\n{}", loaded.file.rendered())));
    }
    loaded.bugs = bugs;
    Ok(loaded)
}

/// The block device that a job file's jobs use; `None`: they use files.
///
/// Errors: some use devices, others files; a file that cannot be read.
pub fn device(o: &Options) -> Result<Option<String>, String> {
    load(o).map_err(|e| e.to_string())?.file.device()
}

fn room(o: &Options, fs: &FsEntry) -> Vec<(String, u64)> {
    let Ok(loaded) = load(o) else { return Vec::new() };
    let jobs = loaded.file.laid_out_bytes(!fs.offers.fallocate).into_iter();
    jobs.map(|(job, bytes)| (format!("job `{job}`"), bytes)).collect()
}

async fn run(vfs: &Vfs, o: &Options) -> Result<WorkloadReport, FsError> {
    let loaded = load(o).map_err(|_| FsError::Invalid("workload options"))?;
    let chance = vfs.rt().rng("fio").next_u64();
    let options = RunOptions { chance, bugs: loaded.bugs, ..RunOptions::default() };
    let results = match fio::run(vfs, &loaded.file, options).await {
        Ok(r) => r,
        Err(RunError::Fs(e)) => return Err(e),
        Err(RunError::Job(what)) => return Err(FsError::Unsupported(what)),
    };
    // Others went on, as in fio; the run as a whole has failed.
    if let Some(e) = results.iter().find_map(|r| r.failed.clone()) {
        return Err(e);
    }
    let mut report = WorkloadReport::default();
    for r in &results {
        let mut number = |what: &str, n: u64| {
            let key = format!("{}.{}.{what}", r.job.name, r.job.subjob);
            report.numbers.push((key, n));
        };
        for (word, d) in ["read", "write", "trim"].into_iter().zip(&r.directions) {
            if d.ios > 0 {
                number(&format!("{word}_ios"), d.ios);
                // A read ends where its file does; of a write a part found no room.
                if word == "write" && d.short > 0 && !r.job.fill_device {
                    number(WRITE_SHORT, d.short);
                }
                number(&format!("{word}_bytes"), d.bytes);
                number(&format!("{word}_runtime_ns"), d.runtime_ns);
                number(
                    &format!("{word}_p50_ns"),
                    d.clat.histogram.percentile(50_000_000).unwrap_or(0),
                );
                number(
                    &format!("{word}_p99_ns"),
                    d.clat.histogram.percentile(99_000_000).unwrap_or(0),
                );
            }
        }
        // Beside the latency of writes, which has no sync in it and is often misread.
        if r.syncs > 0 {
            number("sync_ios", r.syncs);
            number("sync_p50_ns", r.sync.histogram.percentile(50_000_000).unwrap_or(0));
            number("sync_p99_ns", r.sync.histogram.percentile(99_000_000).unwrap_or(0));
        }
    }
    if results.iter().any(|r| r.stays_cached) {
        let name = vfs.fs().name();
        report
            .notes
            .push(format!("invalidate=1 has no effect: {name} does not drop a file's pages"));
    }
    report.numbers.extend(in_turn(&results));
    let document = fio::report(&loaded.file, &results, crate::EPOCH_SECS, vfs.rt().now().0);
    report.documents.push((REPORT.to_owned(), document));
    let logs = fio::log_files(&results);
    report.files.extend(logs.into_iter().map(|(name, text)| (name.replace('/', "_"), text)));
    for r in &results {
        let Some(error) = r.error_text() else { continue };
        report.notes.push(format!("job `{}` met errors: {error}", r.job.name));
    }
    let warnings = loaded.file.diagnostics.iter().filter(|d| d.severity == Severity::Warning);
    report.notes.extend(warnings.map(ToString::to_string));
    Ok(report)
}

/// Where jobs ran one behind the other (`stonewall`): how long the reads and the writes of all of
/// them took, and all together. Of jobs that ran beside each other nothing: that is the longest's.
fn in_turn(results: &[JobResult]) -> Vec<(String, u64)> {
    let mut turns: Vec<[u64; 3]> = Vec::new();
    for r in results {
        if turns.is_empty() || r.job.stonewall {
            turns.push([0; 3]);
        }
        for (longest, d) in turns.iter_mut().rev().take(1).flatten().zip(&r.directions) {
            *longest = d.runtime_ns.max(*longest);
        }
    }
    if turns.len() < 2 {
        return Vec::new();
    }
    let sum = |of: &dyn Fn(&[u64; 3]) -> u64| turns.iter().map(of).sum::<u64>();
    let (reads, writes) = (sum(&|t| t[0]), sum(&|t| t[1]));
    let trims = sum(&|t| t[2]);
    let all = sum(&|t| t[0].max(t[1]).max(t[2]));
    let named = [
        ("read_runtime_ns", reads),
        ("write_runtime_ns", writes),
        ("trim_runtime_ns", trims),
        (IN_TURN, all),
    ];
    named.into_iter().filter(|(_, n)| *n > 0).map(|(k, n)| (k.to_owned(), n)).collect()
}
