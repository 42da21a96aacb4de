//! Files of a trace, opened once or several times, and how they are read.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use wp_base::plain::Shown as _;
use wp_trace::{Action, Columns, Format, Found, Select, Trace, TraceError, bases, survey};

use crate::output::{Exit, Out};
use crate::progress::Progress;

/// An invalid value: the option, what is wrong, and the hint.
pub type NoWord = (&'static str, String, String);

/// That a word is none of those that there are.
pub fn one_of(key: &'static str, word: &str, all: &[&str]) -> NoWord {
    (key, format!("--{key} {word}: unknown"), format!("use {}", all.join(", ")))
}

/// A step by its letter. Errors: another letter.
pub fn action_of(letter: Option<&str>) -> Result<Option<Action>, NoWord> {
    match letter {
        None => Ok(None),
        Some("Q") => Ok(Some(Action::Queue)),
        Some("D") => Ok(Some(Action::Issue)),
        Some(other) => Err(one_of("action", other, &["Q", "D"])),
    }
}

/// How files are read.
pub struct Reading {
    format: Option<Format>,
    columns: Option<Columns>,
    torn_ok: bool,
}

impl Reading {
    /// By a format's name, or a description of columns. Errors: there is no such format, or the
    /// description says nothing.
    pub fn of_words(
        format: Option<&str>,
        columns: Option<&str>,
        torn_ok: bool,
    ) -> Result<Reading, NoWord> {
        let formats: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
        let format = match format {
            None | Some("auto") => None,
            Some(name) => Some(Format::find(name).ok_or_else(|| one_of("format", name, &formats))?),
        };
        let columns = match columns.map(Columns::parse).transpose() {
            Ok(columns) => columns,
            Err(what) => {
                let what = format!("--columns: {what}");
                return Err(("columns", what, Columns::SYNTAX.to_owned()));
            }
        };
        Ok(Reading { format, columns, torn_ok })
    }

    /// Begins to read. Errors: those of the trace.
    pub fn open<'a>(&self, files: Vec<wp_trace::File<'a>>) -> Result<Trace<'a>, TraceError> {
        match &self.columns {
            Some(columns) => Trace::open_columns(files, columns, self.torn_ok),
            None => Trace::open(files, self.format, self.torn_ok),
        }
    }
}

/// Is it the name of stdin?
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The files that names stand for: of `t` that is not there, `t.blktrace.0`, `t.blktrace.1`, …
pub fn files(named: &[PathBuf], out: &Out) -> Vec<PathBuf> {
    let of_cpu = |base: &str, cpu: usize| PathBuf::from(format!("{base}.blktrace.{cpu}"));
    let mut all = Vec::new();
    for path in named {
        let name = path.shown();
        if !is_stdin(path) && !path.exists() && of_cpu(&name, 0).exists() {
            all.extend((0..).map(|cpu| of_cpu(&name, cpu)).take_while(|p| p.exists()));
            continue;
        }
        if let ([_], Some(base)) = (named, name.strip_suffix(".blktrace.0"))
            && of_cpu(base, 1).exists()
        {
            out.note(&format!(
                "note: {name} has the requests of CPU 0 only; `replay {base}` reads all CPUs"
            ));
        }
        all.push(path.clone());
    }
    all
}

/// A file that is read more than once: what says its bytes only once (a pipe, stdin) is copied
/// first.
pub fn rereadable(path: &Path, out: &Out) -> Result<File, ExitCode> {
    use std::os::unix::fs::FileTypeExt;
    let failed = |e: io::Error| out.host_error(path, &e);
    let mut once: Box<dyn Read> = match is_stdin(path) {
        true => Box::new(io::stdin().lock()),
        false => {
            let file = File::open(path).map_err(failed)?;
            let kind = file.metadata().map_err(failed)?.file_type();
            if !kind.is_fifo() && !kind.is_socket() {
                return Ok(file);
            }
            Box::new(file)
        }
    };
    let mut copy = tempfile::tempfile().map_err(failed)?;
    io::copy(&mut once, &mut copy).map_err(failed)?;
    Ok(copy)
}

/// Counts what is read, for progress.
struct Counted<R> {
    from: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(out)?;
        self.bytes.set(self.bytes.get() + n as u64);
        Ok(n)
    }
}

/// The files of one trace.
pub struct Inputs {
    paths: Vec<PathBuf>,
    /// Open; none of stdin, which is read once.
    files: Vec<Option<File>>,
    /// Are they read more than once? What is a pipe was copied then.
    again: bool,
    bytes: Rc<Cell<u64>>,
    total: u64,
}

impl Inputs {
    /// Opens them. `again`: they are read more than once. Errors: the host's, told to the user.
    pub fn open(named: &[PathBuf], again: bool, out: &Out) -> Result<Inputs, ExitCode> {
        let paths = files(named, out);
        let mut files = Vec::new();
        let mut total = 0;
        for path in &paths {
            let file = match (again, is_stdin(path)) {
                (true, _) => Some(rereadable(path, out)?),
                (false, true) => None,
                (false, false) => Some(File::open(path).map_err(|e| out.host_error(path, &e))?),
            };
            total += file.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |m| m.len());
            files.push(file);
        }
        Ok(Inputs { paths, files, again, bytes: Rc::default(), total })
    }

    /// Their paths.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Their names, for a message.
    pub fn name(&self) -> String {
        self.paths.iter().map(|p| p.shown()).collect::<Vec<_>>().join(" ")
    }

    /// From their beginning. Errors: the host's, told to the user.
    pub fn files(&self, out: &Out) -> Result<Vec<wp_trace::File<'_>>, ExitCode> {
        self.bytes.set(0);
        let mut all = Vec::new();
        for (path, file) in self.paths.iter().zip(&self.files) {
            let from: Box<dyn Read + '_> = match file {
                None => Box::new(io::stdin().lock()),
                Some(file) => {
                    let mut file = file;
                    if self.again {
                        file.rewind().map_err(|e| out.host_error(path, &e))?;
                    }
                    Box::new(file)
                }
            };
            let from = Box::new(Counted { from, bytes: self.bytes.clone() });
            all.push(wp_trace::File { name: path.shown(), from });
        }
        Ok(all)
    }

    /// How much was read, for progress: ` 42 % `, or nothing of what has no length.
    pub fn share(&self) -> String {
        let share = self.bytes.get().saturating_mul(100).checked_div(self.total);
        share.map_or(String::new(), |s| format!("{:>3} % ", s.min(100)))
    }

    /// Looks what several devices have, and lays them one behind the other. Nothing to do for one.
    /// Errors: those of the trace, told to the user.
    pub fn lay_out(
        &self,
        reading: &Reading,
        select: &mut Select,
        stop: &AtomicBool,
        out: &Out,
    ) -> Result<Vec<Found>, ExitCode> {
        if !select.devices.are_several() {
            return Ok(Vec::new());
        }
        let failed = |e: TraceError| out.trace_error(&e);
        let mut trace = reading.open(self.files(out)?).map_err(failed)?;
        let live = Progress::new("replay");
        let mut go_on = |requests: u64| {
            let share = self.share();
            live.say(format_args!("{share}devices of {requests} requests"));
            !stop.load(Ordering::SeqCst)
        };
        let found = survey(&mut trace, select, &mut go_on).map_err(failed)?;
        if stop.load(Ordering::SeqCst) {
            return Err(out.fail(Exit::Interrupted, "interrupted", "interrupted", ""));
        }
        select.bases = bases(&found);
        Ok(found)
    }
}
