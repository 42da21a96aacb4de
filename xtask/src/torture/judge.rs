//! A case: what the program must not do, whatever it is given.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use super::World;

/// Longest that a case may take: what is given a budget keeps it within far less.
const SECONDS_MAX: u64 = 60;
/// The same.
pub const LIMIT: Duration = Duration::from_secs(SECONDS_MAX);
/// Exit codes that `writepath --help` names, but that of a bug.
const CODES: [i32; 10] = [0, 1, 2, 3, 4, 6, 74, 129, 130, 143];

/// Something that the program did and must not do.
pub struct Problem {
    /// What, in a few words: the same for the same mistake.
    what: String,
    /// The command.
    command: String,
    /// What it said.
    said: String,
}

impl Problem {
    /// What is the same of the same mistake: what happened, and the verb that it happened to.
    pub fn key(&self) -> String {
        let verb = self.command.split(' ').next().unwrap_or("");
        format!("{verb}: {}", self.what)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<&str> = self.said.lines().take(4).collect();
        write!(f, "{}\n  command: writepath {}", self.what, self.command)?;
        said.iter().try_for_each(|line| write!(f, "\n  {}", line.escape_debug()))
    }
}

/// A call of the program with files beside it.
pub struct Case {
    /// Arguments.
    pub arguments: Vec<String>,
    /// What it reads from its standard input.
    pub input: Vec<u8>,
    /// Names of files that may be there afterwards, beside what was there.
    pub outputs: Vec<&'static str>,
    /// May it change files that were there?
    pub writes: bool,
    /// Is it run twice, to compare?
    pub twice: bool,
}

impl Case {
    /// One that writes nothing.
    pub fn reading(arguments: &[&str]) -> Case {
        Case {
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            input: Vec::new(),
            outputs: Vec::new(),
            writes: false,
            twice: false,
        }
    }

    /// A problem of this case.
    pub fn problem(&self, what: impl Into<String>, said: &[u8]) -> Problem {
        let quoted = |a: &String| match a.is_empty() || a.contains(char::is_whitespace) {
            true => format!("{a:?}"),
            false => a.clone(),
        };
        let command = self.arguments.iter().map(quoted).collect::<Vec<_>>().join(" ");
        let said = String::from_utf8_lossy(said).into_owned();
        Problem { what: what.into(), command, said }
    }
}

/// What a call said and how it ended; `None`: it did not.
pub struct Ended {
    /// Standard output and standard error.
    pub said: [Vec<u8>; 2],
    /// Exit code or signal.
    pub status: Option<ExitStatus>,
}

/// What is kept of what a process says.
const SAID_BYTES_MAX: u64 = 64 << 20;

/// What a process writes to.
type Pipe = Box<dyn Read + Send>;

/// Reads all that comes out of a pipe, beside what else is done.
#[expect(clippy::disallowed_methods, reason = "a process that is not read from does not end")]
fn listen(pipe: Option<Pipe>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            // What cannot be read was not said. The rest is read too: a process whose pipe is
            // closed ends by a signal.
            let _ = pipe.by_ref().take(SAID_BYTES_MAX).read_to_end(&mut all);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        all
    })
}

/// Waits for a process that the case began, and ends it when it takes too long.
pub fn wait(mut child: Child, limit: Duration) -> Result<Ended, String> {
    let begin = super::now();
    let pipes: [Option<Pipe>; 2] = [
        child.stdout.take().map(|p| Box::new(p) as Pipe),
        child.stderr.take().map(|p| Box::new(p) as Pipe),
    ];
    let readers = pipes.map(listen);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break Some(status);
        }
        if begin.elapsed() > limit {
            child.kill().map_err(|e| e.to_string())?;
            child.wait().map_err(|e| e.to_string())?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let said = readers.map(|r| r.join().unwrap_or_default());
    Ok(Ended { said, status })
}

/// What tells whether a file was written to: its length, and when it was.
type State = (u64, i64, i64);

/// All files below a folder.
fn files(dir: &Path) -> BTreeMap<PathBuf, State> {
    let mut out = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.metadata() {
                Ok(m) if m.is_dir() => todo.push(path),
                Ok(m) => drop(out.insert(path, (m.len(), m.mtime(), m.mtime_nsec()))),
                Err(_) => {}
            }
        }
    }
    out
}

/// Runs a case, once or twice, and says what it did wrong. Errors: of the machine.
pub fn run(world: &World, case: &Case) -> Result<Vec<Problem>, String> {
    let work = world.scratch.join("work");
    let before = files(&work);
    let mut problems = Vec::new();
    let first = once(world, case, &mut problems)?;
    check_files(world, case, &before, &mut problems);
    if case.twice && problems.is_empty() {
        for name in &case.outputs {
            remove(&work.join(name));
        }
        let second = once(world, case, &mut problems)?;
        if first.said != second.said || first.status != second.status {
            problems.push(case.problem("another result the second time", &second.said[1]));
        }
    }
    Ok(problems)
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
}

fn once(world: &World, case: &Case, problems: &mut Vec<Problem>) -> Result<Ended, String> {
    let mut command = world.command(&case.arguments);
    let stdin = if case.input.is_empty() { Stdio::null() } else { Stdio::piped() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", world.program.display()))?;
    if let Some(mut pipe) = child.stdin.take() {
        // It may have ended without reading.
        let _ = std::io::Write::write_all(&mut pipe, &case.input);
    }
    let ended = wait(child, LIMIT)?;
    check_end(case, &ended, problems);
    Ok(ended)
}

/// Did it end as it may, and say what it must?
pub fn check_end(case: &Case, ended: &Ended, problems: &mut Vec<Problem>) {
    let [out, err] = &ended.said;
    let Some(status) = ended.status else {
        problems.push(case.problem(format!("no end within {SECONDS_MAX} s"), err));
        return;
    };
    match (status.code(), status.signal()) {
        (Some(code), _) if CODES.contains(&code) => {}
        (Some(101), _) => problems.push(case.problem(format!("panic{}", panicked(err)), err)),
        (Some(5), _) => {
            problems.push(case.problem(format!("internal error{}", panicked(err)), err));
        }
        (Some(code), _) => problems.push(case.problem(format!("exit code {code}"), err)),
        (None, signal) => {
            let what = format!("ended by signal {}", signal.unwrap_or(0));
            problems.push(case.problem(what, err));
        }
    }
    let failed = status.code().is_some_and(|c| c != 0);
    let is_stream = case.arguments.first().is_some_and(|verb| verb == "crash");
    if case.arguments.iter().any(|a| a == "--json") && !is_json(out, is_stream) {
        let what = format!("--json: no document on stdout (exit {:?})", status.code());
        problems.push(case.problem(what, if out.is_empty() { err } else { out }));
    } else if failed && out.is_empty() && err.is_empty() {
        problems.push(case.problem("fails without a word", err));
    }
    if [out, err].iter().any(|text| has_control(text)) {
        problems.push(case.problem("control characters on the terminal", err));
    }
}

/// Where a panic was: the same for the same mistake.
fn panicked(err: &[u8]) -> String {
    let err = String::from_utf8_lossy(err);
    let line = err.lines().find(|l| l.contains("panicked at") || l.contains(".rs:"));
    let place = line.and_then(|l| l.split_whitespace().find(|w| w.contains(".rs:")));
    place.map_or(String::new(), |p| format!(" at {}", p.trim_end_matches(':')))
}

/// Is it one document, or of a stream one a line?
fn is_json(out: &[u8], is_stream: bool) -> bool {
    let text = String::from_utf8_lossy(out);
    let is_value = |t: &str| serde_json::from_str::<serde_json::Value>(t).is_ok();
    is_value(&text) || (is_stream && !text.trim().is_empty() && text.lines().all(is_value))
}

/// Are there characters that a terminal acts upon? (Progress takes carriage returns.)
fn has_control(text: &[u8]) -> bool {
    let is_kept = |c| matches!(c, '\n' | '\t' | '\r');
    let is_mark = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    String::from_utf8_lossy(text).chars().any(|c| (c.is_control() && !is_kept(c)) || is_mark(c))
}

/// Is what was there as it was, and nothing there that may not be?
fn check_files(
    world: &World,
    case: &Case,
    before: &BTreeMap<PathBuf, State>,
    problems: &mut Vec<Problem>,
) {
    let work = world.scratch.join("work");
    let after = files(&work);
    let is_output = |path: &Path| case.outputs.iter().any(|o| path.starts_with(work.join(o)));
    for (path, what) in before {
        if !case.writes && !is_output(path) && after.get(path) != Some(what) {
            let name = path.strip_prefix(&work).unwrap_or(path);
            problems.push(case.problem(format!("changed its input {}", name.display()), b""));
        }
    }
    for path in after.keys().filter(|p| !before.contains_key(*p) && !is_output(p)) {
        let name = path.strip_prefix(&work).unwrap_or(path);
        problems.push(case.problem(format!("left {}", name.display()), b""));
    }
    let temporary = std::fs::read_dir(world.scratch.join("tmp")).into_iter().flatten().flatten();
    for entry in temporary {
        let what = "left a temporary file".to_owned();
        let name = entry.file_name().to_string_lossy().into_owned();
        problems.push(case.problem(what, name.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_one_and_a_stream_is_one_a_line() {
        assert!(is_json(b"{\n\"a\": 1}\n", false) && is_json(b"{}\n{}\n", true));
        assert!(!is_json(b"{}\n{}\n", false) && !is_json(b"", true) && !is_json(b"", false));
    }

    #[test]
    fn what_a_terminal_obeys_is_seen() {
        for bad in ["a\u{1b}[2J", "\u{9b}2J", "\u{7f}", "\u{202e}gpj.exe"] {
            assert!(has_control(bad.as_bytes()), "{bad:?}");
        }
        assert!(!has_control("쓰기 µs\tb\r\n".as_bytes()));
    }
}
