//! The programs that a command line of `crash` names, and how they are generated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wp_base::plain::Shown as _;
use wp_campaign::programs::{Make, NAMED};
use wp_campaign::wild::Extras;
use wp_campaign::{Bench, LogFile, LoggedRun, Of, Source, line};
use wp_machine::host::text;
use wp_machine::workload::fio;
use wp_workload::fio::RunOptions;
use wp_workload::program::Program;

use super::args::GeneratedArgs;
use super::plan::Wrong;
use crate::internal::shell;

/// Sequences by what their names begin with.
const SEQUENCES: [(&str, Of); 2] = [("seq-", Of::Ace), ("calls-", Of::Further)];
/// Random programs: have they every call that programs have, and are they of threads?
const WILD: [(&str, bool, bool); 3] =
    [("wild", false, false), ("wild-calls", true, false), ("wild-threads", false, true)];

/// What a program can be.
const FORMS: &str = "use a program file, a fio job (*.fio), a name (seq-2, wild, db-1), or steps \
                     separated by ;: 'open 0 a rw,creat; fsync 0'";

/// Programs, and how the user named them.
pub(super) struct Programs {
    word: String,
    origin: Origin,
}

enum Origin {
    /// Every sequence of N calls.
    Sequences(Of, u32),
    /// N databases.
    Database(u32),
    /// Random ones, see [`WILD`].
    Wild { calls: bool, threads: bool },
    /// Made from a seed.
    Made(Make),
    /// Steps in one argument.
    Steps(Program),
    /// A file with a program.
    File(Program),
    /// The calls of a file with fio jobs: with `fallocate`, and without.
    Job([Result<Program, String>; 2]),
    /// What a program of the host did, and the file that has it.
    Recorded(Program, Option<PathBuf>),
    /// What a log has recorded of a device.
    Log(Arc<LoggedRun>),
}

impl Programs {
    /// Those that a word names. Errors: there are none of that name; what is wrong in a file.
    pub(super) fn named(word: &str) -> Result<Programs, Wrong> {
        let origin = origin(word).map_err(|e| {
            let is_there = word.contains([' ', ';', '\n']) || Path::new(word).exists();
            match is_there || is_name(word) {
                true => Wrong::from(e),
                false => Wrong::from(e).but(FORMS),
            }
        })?;
        Ok(Programs { word: word.to_owned(), origin })
    }

    /// The program of a file that was read.
    pub(super) fn of_file(path: &Path, program: &Program) -> Programs {
        let origin = Origin::File(program.clone().without_think_times());
        Programs { word: path.to_string_lossy().into_owned(), origin }
    }

    /// What a program of the host did; `record`: the file that has it.
    pub(super) fn recorded(program: Program, record: Option<&Path>) -> Programs {
        let origin = Origin::Recorded(program.without_think_times(), record.map(Path::to_owned));
        Programs { word: "-- CMD".to_owned(), origin }
    }

    /// What a log has recorded of a device.
    pub(super) fn logged(run: LoggedRun) -> Programs {
        let word = run.file().name();
        Programs { word, origin: Origin::Log(Arc::new(run)) }
    }

    /// As the user named them.
    pub(super) fn word(&self) -> &str {
        &self.word
    }

    /// The same as a word of a shell that names them again.
    pub(super) fn quoted(&self) -> String {
        match &self.origin {
            Origin::Recorded(_, Some(path)) => path.shown().to_string(),
            Origin::Recorded(_, None) => "FILE-OF---record".to_owned(),
            Origin::Steps(program) => line::quoted(program),
            Origin::Log(run) => shell(&run.file().name()),
            _ => self.word.clone(),
        }
    }

    /// Has a user written their steps, so that a call that fails is worth a line?
    pub(super) fn is_written(&self) -> bool {
        matches!(self.origin, Origin::Steps(_) | Origin::File(_) | Origin::Job(_))
    }

    /// The log, if they are of one.
    pub(super) fn log(&self) -> Option<&LoggedRun> {
        match &self.origin {
            Origin::Log(run) => Some(run),
            _ => None,
        }
    }

    /// Are they fio jobs, none of whose calls may fail?
    pub(super) fn is_job(&self) -> bool {
        matches!(self.origin, Origin::Job(_))
    }

    /// Lines of the steps in the user's file.
    pub(super) fn lines(&self) -> Option<Vec<usize>> {
        let is_file = matches!(self.origin, Origin::File(_));
        let text = is_file.then(|| std::fs::read_to_string(&self.word).ok()).flatten()?;
        Some(Program::lines(&text))
    }

    /// The source of a campaign on a machine. Errors: what no program can be made of.
    pub(super) fn source(&self, g: &GeneratedArgs, bench: &Bench) -> Result<Source, String> {
        let seed = g.seed;
        Ok(match &self.origin {
            Origin::Sequences(of, calls) => Source::Sequences(*of, *calls),
            Origin::Database(journals) => Source::Database { seed, journals: *journals },
            &Origin::Wild { calls, threads } => {
                let barriers = bench.fs.has_barriers(&bench.fs_options);
                let extras =
                    Extras { direct: !g.no_direct, barriers, calls, threads, ..Extras::ALL };
                Source::Wild { seed, calls: g.calls, extras: extras.on(bench.fs) }
            }
            Origin::Made(make) => Source::Made { seed, make: *make },
            Origin::Steps(program) | Origin::File(program) | Origin::Recorded(program, _) => {
                Source::Text(program.clone())
            }
            Origin::Log(run) => Source::Log(run.clone()),
            Origin::Job([with, without]) => {
                let job = if bench.fs.offers.fallocate { with } else { without };
                Source::Text(job.clone()?)
            }
        })
    }
}

/// Errors: what is wrong in the word, or in the file that it names.
fn origin(word: &str) -> Result<Origin, String> {
    for (prefix, of) in SEQUENCES {
        if let Some(length) = word.strip_prefix(prefix) {
            return match length.parse() {
                Ok(n @ 1..=3) => Ok(Origin::Sequences(of, n)),
                _ => {
                    let names = (1..=3).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
                    Err(format!("{word}: sequences are {}", names.join(", ")))
                }
            };
        }
    }
    if let Some(journals) = word.strip_prefix("db-") {
        return match journals.parse() {
            Ok(n @ 1..=16) => Ok(Origin::Database(n)),
            _ => Err(format!("{word}: databases are db-1 to db-16")),
        };
    }
    if let Some((_, calls, threads)) = WILD.into_iter().find(|(name, ..)| *name == word) {
        return Ok(Origin::Wild { calls, threads });
    }
    if let Some((_, make)) = NAMED.iter().find(|(name, _)| *name == word) {
        return Ok(Origin::Made(*make));
    }
    let path = Path::new(word);
    if !path.exists() && word.contains([' ', ';', '\n']) {
        let program = Program::parse(&word.replace(';', "\n"));
        return program.map(Origin::Steps).map_err(|e| format!("program: {e}"));
    }
    match path.extension().is_some_and(|e| e == "fio") {
        true => job(path),
        false => file(path),
    }
}

/// The program of a file.
fn file(path: &Path) -> Result<Origin, String> {
    if LogFile::is_log(path).unwrap_or(false) {
        let name = path.shown();
        return Err(format!("{name}: no program but a log of writes: writepath crash log {name}"));
    }
    let text = text::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{}: no such file", path.shown()),
        _ => format!("{}: {e}", path.shown()),
    })?;
    // Power failures are explored in the time of the drive alone.
    let program = Program::parse(&text).map(Program::without_think_times);
    program.map(Origin::File).map_err(|e| format!("{}: {e}", path.shown()))
}

/// The jobs of a fio job file. Errors: what is wrong in it, with its place.
fn job(path: &Path) -> Result<Origin, String> {
    let loaded = fio::read(path, &Default::default());
    let loaded = loaded.map_err(|e| format!("{}: {e}", path.shown()))?;
    if loaded.file.has_errors() {
        return Err(loaded.file.rendered());
    }
    let calls = |no_fallocate| {
        let program = loaded.file.program(RunOptions { no_fallocate, ..RunOptions::default() });
        program.map_err(|e| format!("{}: {e}", path.shown()))
    };
    Ok(Origin::Job([calls(false), calls(true)]))
}

/// Is it a name of programs that are made up?
fn is_name(word: &str) -> bool {
    let mut names = WILD.iter().map(|(name, ..)| name).chain(NAMED.iter().map(|(name, _)| name));
    let by_name = names.any(|name| *name == word);
    let is_sequence = SEQUENCES.iter().any(|(prefix, _)| word.starts_with(prefix));
    by_name || is_sequence || word.starts_with("db-")
}
