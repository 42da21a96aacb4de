//! `cargo xtask torture`: hostile inputs for the program, a number of them or for a time, from a
//! seed.
//!
//! Picture:    kinds ([`KINDS`]) in turn -> a case each ([`judge::Case`]: a command and its files)
//!             -> [`judge::run`] -> a table of cases and problems by kind; each problem with its
//!             input in `target/torture`.
//! Invariants: 1. the same seed makes the same cases in the same order, as far as time lets it;
//!             2. only processes that a case began are ended, by their number.

mod arguments;
mod full;
mod images;
pub mod judge;
mod nbd;
pub mod rng;
mod servers;
mod signals;
mod texts;
mod vhost;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::repo;
use judge::Problem;
use rng::Rng;

/// What a run is given.
pub struct Options<'a> {
    /// Seconds after which no case begins.
    pub seconds: u64,
    /// Cases of each kind; `None`: as many as the time lets.
    pub cases: Option<u64>,
    /// Of all that is random.
    pub seed: u64,
    /// The program; `None`: it is built.
    pub binary: Option<&'a str>,
    /// The only kind; `None`: all.
    pub kind: Option<&'a str>,
}

/// Where cases are made and run.
pub struct World {
    /// The program.
    pub program: PathBuf,
    /// The repository.
    pub root: PathBuf,
    /// A folder that each case finds empty.
    pub scratch: PathBuf,
    /// Images to damage.
    pub bases: Vec<images::Base>,
    /// Requests that clients of servers got through to a drive.
    pub requests: Cell<u64>,
}

impl World {
    /// A call of the program, in a folder and with a folder for temporary files of its own.
    pub fn command(&self, arguments: &[String]) -> Command {
        // Who starts this may ignore a hangup (nohup), and the program would then, too.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(&self.program);
        command.args(arguments).current_dir(self.scratch.join("work"));
        command.env("TMPDIR", self.scratch.join("tmp")).env("RUST_BACKTRACE", "0");
        command
    }

    /// A file of the case.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.join("work").join(name)
    }

    /// Empties the folders of a case. Errors: of the file system.
    pub fn clear(&self) -> Result<(), String> {
        for name in ["work", "tmp"] {
            let dir = self.scratch.join(name);
            let io = |e: std::io::Error| format!("{}: {e}", dir.display());
            if dir.exists() {
                std::fs::remove_dir_all(&dir).map_err(io)?;
            }
            std::fs::create_dir_all(&dir).map_err(io)?;
        }
        Ok(())
    }
}

/// A kind of cases: its name, and what makes and runs the next one.
type Kind = (&'static str, fn(&World, &mut Rng) -> Result<Vec<Problem>, String>);

/// All kinds; each has as many turns as the others.
const KINDS: &[Kind] = &[
    ("image", images::run),
    ("text", texts::run),
    ("arguments", arguments::run),
    (SERVER, servers::run),
    ("signal", signals::run),
    (FULL_DISK, full::run),
];
const SERVER: &str = "server";
/// Servers of which some client's request must have been served.
const ENOUGH_SERVERS: u64 = 10;
const FULL_DISK: &str = "full disk";

/// Says that a kind cannot run, also to `./test`. Errors: its file cannot be written.
fn skip(kind: &str, why: &str) -> Result<(), String> {
    println!("torture, {kind}: skipped: {why}");
    let Some(list) = std::env::var_os("WRITEPATH_SKIPS") else { return Ok(()) };
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(list)
        .and_then(|mut file| writeln!(file, "torture, {kind}: {why}"))
        .map_err(|e| format!("WRITEPATH_SKIPS: {e}"))
}

/// Cases and problems of a kind.
#[derive(Default)]
struct Row {
    cases: u64,
    problems: u64,
    millis: u128,
}

/// The time.
#[expect(clippy::disallowed_methods, reason = "how long it goes on is no result of a run")]
fn now() -> Instant {
    Instant::now()
}

/// Reads the options, and runs. Errors: as [`run`], and options that are none.
pub fn command(words: &[&str]) -> Result<bool, String> {
    let mut options = Options { seconds: 600, cases: None, seed: 1, binary: None, kind: None };
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} takes a value", pair.concat()));
        };
        let number = || value.parse().map_err(|_| format!("{name} takes a number, not {value}"));
        match *name {
            "--seconds" => options.seconds = number()?,
            "--cases" => options.cases = Some(number()?),
            "--seed" => options.seed = number()?,
            "--binary" => options.binary = Some(value),
            "--kind" => options.kind = Some(value),
            _ => return Err(format!("torture has no option {name}")),
        }
    }
    run(&options)
}

/// Runs all cases that were asked for, or until the time is over. No if there is a problem, or if
/// the time was over before the cases that were asked for.
///
/// Errors: what does not build, what the machine refuses, and a run of no case.
pub fn run(options: &Options<'_>) -> Result<bool, String> {
    let begin = now();
    let root = repo::root()?;
    let program = match options.binary {
        Some(path) => std::fs::canonicalize(path).map_err(|e| format!("{path}: {e}"))?,
        None => build(&root)?,
    };
    let out = repo::target(&root).join("torture");
    let scratch = out.join(format!("scratch-{}", std::process::id()));
    let mut world = World { program, root, scratch, bases: Vec::new(), requests: Cell::new(0) };
    world.clear()?;
    world.bases = images::bases(&world)?;
    let chosen = |k: &&Kind| options.kind.is_none_or(|only| only == k.0);
    let mut kinds: Vec<&Kind> = KINDS.iter().filter(chosen).collect();
    if kinds.is_empty() {
        let names: Vec<&str> = KINDS.iter().map(|k| k.0).collect();
        return Err(format!("no kind of cases has this name; there are: {}", names.join(", ")));
    }
    world.clear()?;
    if kinds.iter().any(|k| k.0 == FULL_DISK) && !full::is_possible(&world) {
        skip(FULL_DISK, "no tmpfs can be mounted: run it as root")?;
        kinds.retain(|k| k.0 != FULL_DISK);
    }
    if kinds.is_empty() {
        return Err("no kind of cases can run here".to_owned());
    }
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let limit = Duration::from_secs(options.seconds);
    let mut number = 0u64;
    let wanted = options.cases.map(|each| each.saturating_mul(kinds.len() as u64));
    while begin.elapsed() < limit && wanted.is_none_or(|wanted| number < wanted) {
        let (name, case) = kinds[number as usize % kinds.len()];
        let mut rng = Rng::of(options.seed, number);
        number += 1;
        world.clear()?;
        let start = now();
        let problems = case(&world, &mut rng)?;
        let row = rows.entry(name).or_default();
        row.cases += 1;
        row.millis += start.elapsed().as_millis();
        for problem in problems {
            row.problems += 1;
            let count = seen.entry(problem.key()).or_default();
            *count += 1;
            // The same again and again is one problem.
            if *count <= 2 {
                println!("{name} {number}: {problem}");
                keep(&world, &out, name, number, &problem)?;
            }
        }
    }
    std::fs::remove_dir_all(&world.scratch).map_err(|e| e.to_string())?;
    if number == 0 {
        return Err("no case was run: give --seconds and --cases of 1 or more".to_owned());
    }
    println!("{:12} {:>8} {:>9} {:>9}", "kind", "cases", "problems", "seconds");
    for (name, row) in &rows {
        let seconds = row.millis / 1000;
        println!("{name:12} {:8} {:9} {seconds:9}", row.cases, row.problems);
    }
    for (what, count) in &seen {
        println!("{count:6} × {what}");
    }
    let served = rows.get(SERVER).map_or(0, |row| row.cases);
    if served > 0 {
        println!("{} reads and writes of clients reached a drive", world.requests.get());
    }
    if served >= ENOUGH_SERVERS && world.requests.get() == 0 {
        return Err("no client of any server reached its drive: nothing was tried".to_owned());
    }
    let is_short = wanted.is_some_and(|wanted| number < wanted);
    if is_short {
        println!("{number} cases in {} s, fewer than were asked for", options.seconds);
    }
    Ok(seen.is_empty() && !is_short)
}

/// Builds the program.
pub fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "writepath"])
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !built.success() {
        return Err("the program does not build".to_owned());
    }
    let program = repo::target(root).join("debug/writepath");
    std::fs::canonicalize(&program).map_err(|e| format!("{}: {e}", program.display()))
}

/// Largest file that is kept.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// Keeps a problem with the files of its case.
fn keep(
    world: &World,
    out: &Path,
    kind: &str,
    number: u64,
    problem: &Problem,
) -> Result<(), String> {
    let dir = out.join(format!("{}-{number}", kind.replace(' ', "-")));
    let io = |e: std::io::Error| format!("{}: {e}", dir.display());
    std::fs::create_dir_all(&dir).map_err(io)?;
    std::fs::write(dir.join("problem.txt"), format!("{problem}\n")).map_err(io)?;
    for entry in std::fs::read_dir(world.scratch.join("work")).map_err(io)? {
        let entry = entry.map_err(io)?;
        // Those beyond are holes that a case made: their names are in the command.
        if entry.metadata().is_ok_and(|m| m.is_file() && m.len() <= KEPT_BYTES_MAX) {
            std::fs::copy(entry.path(), dir.join(entry.file_name())).map_err(io)?;
        }
    }
    Ok(())
}
