//! filebench: a WML text of the host, or one that comes with it. Parsing and running are in
//! `wp_workload`; here is what touches host files.

use std::collections::BTreeMap;
use std::path::Path;

use wp_base::{FsError, Span};
use wp_cache::Fut;
use wp_vfs::{FsEntry, OptionError, OptionSpec, Options, Vfs, When};
use wp_workload::filebench::wml::{self, WmlFile};
use wp_workload::filebench::{self, BenchResult, RunLength};
use wp_workload::fio::Severity;

use super::{Inputs, WorkloadEntry, WorkloadReport, number};

/// Name of the document with all of a run's result.
pub const REPORT: &str = "filebench.json";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        key: "file",
        when: When::Always,
        default: "",
        help: "the workload model (.f file)",
    },
    OptionSpec {
        key: "personality",
        when: When::Always,
        default: "",
        help: "built-in model instead of a file: varmail, varmail-nodel, fileserver, webserver, oltp, createfiles, \
               randomwrite, filemicro_create, _createfiles, _delete, _writefsync, _rwritefsync, \
               _rwritedsync",
    },
    OptionSpec {
        key: "set",
        when: When::Always,
        default: "",
        help: "values of its variables: NAME:VALUE;NAME:VALUE",
    },
    OptionSpec {
        key: "seconds",
        when: When::Always,
        default: "",
        help: "seconds to run [default: as its `run` line says]",
    },
    OptionSpec {
        key: "loops",
        when: When::Always,
        default: "",
        help: "passes of each thread through its list, instead of seconds",
    },
    OptionSpec {
        key: "flowop_ns",
        when: When::Always,
        default: "0",
        help: "CPU time of a thread per flowop, ns",
    },
    OptionSpec {
        key: "numbers",
        when: When::Always,
        default: "seed",
        help: "filebench: use filebench's own unseeded random numbers",
    },
    OptionSpec {
        key: "summary",
        when: When::Always,
        default: "0",
        help: "1: print the summary lines of filebench",
    },
    super::SEED,
];

/// The workload.
pub static ENTRY: WorkloadEntry = WorkloadEntry {
    name: "filebench",
    about: "a filebench workload model (.f file), or a built-in one",
    options: OPTIONS,
    check: |o| load(o).map(|_| ()),
    inputs: |o| load(o).map(|l| l.inputs),
    room,
    run: |vfs, o| Box::pin(run(vfs, o)) as Fut<'_, WorkloadReport>,
};

/// A text and how it is run.
struct Loaded {
    file: WmlFile,
    inputs: Inputs,
    length: RunLength,
}

/// Reads and parses a text of the host. Errors: the host's. What is wrong in it is in its
/// diagnostics.
pub fn read(path: &Path, given: &BTreeMap<String, String>) -> std::io::Result<(WmlFile, Inputs)> {
    let bytes = crate::host::text::bytes(path)?;
    let name = path.to_string_lossy().into_owned();
    let file = wml::parse(&name, &bytes, given);
    Ok((file, vec![(name, bytes)]))
}

/// Variables from `NAME:VALUE;NAME:VALUE`.
pub fn variables(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = text.split(';').filter(|p| !p.is_empty());
    let split = pairs.map(|pair| {
        let (name, value) =
            pair.split_once(':').ok_or_else(|| format!("`{pair}`: write NAME:VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    });
    split.collect()
}

fn load(o: &Options) -> Result<Loaded, OptionError> {
    let text = |key: &str| o.get(key, OPTIONS).unwrap_or_default().to_owned();
    let wrong = |key: &str, why: String| OptionError { key: key.to_owned(), value: text(key), why };
    let given = variables(&text("set")).map_err(|e| wrong("set", e))?;
    let (path, name) = (text("file"), text("personality"));
    let (key, (mut file, inputs)) = match (path.is_empty(), name.is_empty()) {
        (false, true) => {
            ("file", read(Path::new(&path), &given).map_err(|e| wrong("file", e.to_string()))?)
        }
        (true, false) => {
            let names = filebench::PERSONALITIES.iter().map(|p| p.name).collect::<Vec<_>>();
            let found = filebench::built_in(&name, &given)
                .ok_or_else(|| wrong("personality", format!("one of {}", names.join(", "))))?;
            ("personality", (found, Vec::new()))
        }
        _ => {
            let why = "give one of them: `filebench,file=FILE` or `filebench,personality=NAME`";
            return Err(wrong("file", why.to_owned()));
        }
    };
    if file.has_errors() {
        return Err(wrong(key, format!("\n{}", file.rendered())));
    }
    file.personality.flowop_ns = number(o, OPTIONS, "flowop_ns", 0..=1_000_000_000)?;
    file.personality.own_numbers = match text("numbers").as_str() {
        "seed" => false,
        "filebench" => true,
        _ => return Err(wrong("numbers", "one of seed, filebench".to_owned())),
    };
    number(o, OPTIONS, "summary", 0..=1)?;
    super::check_seed(o)?;
    let length = match (text("seconds").is_empty(), text("loops").is_empty()) {
        (true, true) => RunLength::AsWritten,
        (false, true) => RunLength::Time(Span::secs(number(o, OPTIONS, "seconds", 1..=1_000_000)?)),
        (true, false) => RunLength::Loops(number(o, OPTIONS, "loops", 1..=1_000_000_000)?),
        (false, false) => return Err(wrong("loops", "give `seconds` or `loops`".to_owned())),
    };
    Ok(Loaded { file, inputs, length })
}

/// A run's result as numbers and a document.
pub(super) fn report(found: &BenchResult) -> WorkloadReport {
    let mut report = WorkloadReport::default();
    let mut add = |key: &str, n: u64| report.numbers.push((key.to_owned(), n));
    add("operations", found.operations());
    add("elapsed_ns", found.elapsed_ns);
    add("operations_per_s", found.ops_per_second() as u64);
    add("loops", found.loops);
    add("written_bytes", found.written);
    add("read_bytes", found.read);
    add("files", found.files);
    for (name, op) in &found.ops {
        add(&format!("{name}.count"), op.count);
        let percentile = |share| op.latency.histogram.percentile(share).unwrap_or(0);
        add(&format!("{name}.p50_ns"), percentile(50_000_000));
        add(&format!("{name}.p99_ns"), percentile(99_000_000));
    }
    report.documents.push((REPORT.to_owned(), found.json()));
    report
}

fn room(o: &Options, _fs: &FsEntry) -> Vec<(String, u64)> {
    let Ok(loaded) = load(o) else { return Vec::new() };
    let sets = loaded.file.personality.preallocated_bytes().into_iter();
    sets.map(|(set, bytes)| (format!("fileset `{set}`"), bytes)).collect()
}

async fn run(vfs: &Vfs, o: &Options) -> Result<WorkloadReport, FsError> {
    let loaded = load(o).map_err(|_| FsError::Invalid("workload options"))?;
    let seed = super::seed(vfs, o, "filebench")?;
    let found = filebench::run(vfs, &loaded.file.personality, loaded.length, seed).await?;
    let mut report = report(&found);
    report.notes.extend(loaded.file.echoes.iter().map(|e| format!("echo: {e}")));
    let warnings = loaded.file.diagnostics.iter().filter(|d| d.severity == Severity::Warning);
    report.notes.extend(warnings.map(ToString::to_string));
    if o.get("summary", OPTIONS) == Some("1") {
        report.notes.push(found.summary());
    }
    Ok(report)
}
