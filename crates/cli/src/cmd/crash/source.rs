//! Where the programs of `crash` come from.

use std::path::Path;

use wp_base::plain::Shown as _;
use wp_campaign::programs::NAMED;
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, Of, Source};
use wp_machine::host::text;
use wp_machine::workload::fio;
use wp_workload::fio::RunOptions;
use wp_workload::program::Program;

use super::Args;

/// Sequences by what their names begin with.
const SEQUENCES: [(&str, Of); 2] = [("seq-", Of::Ace), ("calls-", Of::Further)];
/// Random programs, random ones with every call that programs have, and random ones of threads.
const WILD: [&str; 3] = ["wild", "wild-calls", "wild-threads"];

/// The programs that `a` names. Errors: there are none of that name; what is wrong in a file.
pub(super) fn source(a: &Args, bench: &Bench) -> Result<Source, String> {
    if let Some(program) = &a.recorded {
        return Ok(Source::Text(program.clone()));
    }
    for (prefix, of) in SEQUENCES {
        if let Some(length) = a.programs.strip_prefix(prefix) {
            return match length.parse() {
                Ok(n @ 1..=3) => Ok(Source::Sequences(of, n)),
                _ => {
                    let names = (1..=3).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
                    Err(format!("{}: sequences are {}", a.programs, names.join(", ")))
                }
            };
        }
    }
    if let Some(journals) = a.programs.strip_prefix("db-") {
        return match journals.parse() {
            Ok(n @ 1..=16) => Ok(Source::Database { seed: a.seed, journals: n }),
            _ => Err(format!("{}: databases are db-1 to db-16", a.programs)),
        };
    }
    if WILD.contains(&a.programs.as_str()) {
        let barriers = bench.fs.has_barriers(&bench.fs_options);
        let (calls, threads) = (a.programs == "wild-calls", a.programs == "wild-threads");
        let extras = Extras { direct: !a.no_direct, barriers, calls, threads, ..Extras::ALL };
        let extras = extras.on(bench.fs);
        return Ok(Source::Wild { seed: a.seed, calls: a.calls, extras });
    }
    if let Some((_, make)) = NAMED.iter().find(|(name, _)| *name == a.programs) {
        return Ok(Source::Made { seed: a.seed, make: *make });
    }
    let path = Path::new(&a.programs);
    if !path.exists() && a.programs.contains([' ', ';', '\n']) {
        let text = a.programs.replace(';', "\n");
        return Program::parse(&text).map(Source::Text).map_err(|e| format!("program: {e}"));
    }
    if path.extension().is_some_and(|e| e == "fio") {
        return jobs(path, bench);
    }
    let text = text::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{}: no such file", path.shown()),
        _ => format!("{}: {e}", path.shown()),
    })?;
    // Power failures are explored in the time of the drive alone.
    let program = Program::parse(&text).map(Program::without_think_times);
    program.map(Source::Text).map_err(|e| format!("{}: {e}", path.shown()))
}

/// The hint for a campaign that cannot run.
pub(super) fn hint(a: &Args) -> &'static str {
    let is_name = source_is_made(&a.programs) || a.programs.contains([' ', ';', '\n']);
    match is_name || Path::new(&a.programs).exists() {
        true => "writepath crash --help",
        false => {
            "use a program file, a fio job (*.fio), a name (seq-2, wild, db-1), or steps separated by \
             ;: 'open 0 a rw,creat; fsync 0'"
        }
    }
}

/// Is it a name of programs that are made up?
pub(super) fn source_is_made(programs: &str) -> bool {
    let by_name = WILD.contains(&programs) || NAMED.iter().any(|(name, _)| *name == programs);
    let is_sequence = SEQUENCES.iter().any(|(prefix, _)| programs.starts_with(prefix));
    by_name || is_sequence || programs.starts_with("db-")
}

/// The calls of a fio job file. Errors: what is wrong in it, with its place.
fn jobs(path: &Path, bench: &Bench) -> Result<Source, String> {
    let at = |e: String| format!("{}: {e}", path.shown());
    let loaded = fio::read(path, &Default::default()).map_err(|e| at(e.to_string()))?;
    if loaded.file.has_errors() {
        return Err(loaded.file.rendered());
    }
    let options = RunOptions { no_fallocate: !bench.fs.offers.fallocate, ..RunOptions::default() };
    loaded.file.program(options).map(Source::Text).map_err(at)
}
