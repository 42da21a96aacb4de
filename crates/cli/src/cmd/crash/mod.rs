//! `crash`.

mod against;
mod bugs;
mod hunt;
mod key;
mod least;
mod modes;
mod report;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use wp_base::FsError;
use wp_base::plain::Shown as _;
use wp_crash::{Plan, Profile};
use wp_lab::crash::programs::NAMED;
use wp_lab::crash::wild::Extras;
use wp_lab::crash::{Bench, Campaign, Command, KnownFailures, Source, Space, line, mutate};
use wp_lab::host::text;
use wp_lab::machine::MachineError;
use wp_lab::workload::fio;
use wp_workload::program::Program;

use crate::output::{Exit, Out};

/// What a comparison with another setting has no use for.
const NOT_AGAINST: [&str; 9] = [
    "mutate",
    "bug",
    "state",
    "budget",
    "state_file",
    "accept",
    "minimise",
    "reproducer",
    "check_cmd",
];

/// Arguments.
#[derive(clap::Args, Clone)]
pub struct Args {
    /// What is cut: seq-1, seq-2 (every sequence of so many operations), wild (random programs),
    /// db-1, db-3 (so many databases with rollback journals), errors (a device that fails),
    /// publish, save, fill, direct (a database with O_DIRECT), a fio job file (NAME.fio), or a file
    /// with a program.
    #[arg(default_value = "seq-1")]
    programs: String,
    /// File system and options: `ext4,era=3.8,data=journal`.
    #[arg(long, default_value = "ext4,era=6.18")]
    fs: String,
    /// The same programs in every era that was held against a real kernel and every way to mount
    /// that promises the same, in place of those of --fs: a line each.
    #[arg(long, conflicts_with_all = [
        "mutate", "bug", "state", "against", "against_device", "against_space", "minimise",
        "reproducer", "state_file", "accept", "budget",
    ])]
    every_mode: bool,
    /// Device preset and replaced parameters; several, joined by +, one file system on all of them.
    #[arg(long, default_value = "fixed")]
    device: String,
    /// Capacity of the device. [default: 64M, or what the file system needs]
    #[arg(long)]
    size: Option<String>,
    /// Elevator; by default the kernel's.
    #[arg(long, default_value = "")]
    elevator: String,
    /// How many programs; all sequences, or 100 random ones, if left out.
    #[arg(long)]
    count: Option<u64>,
    /// The first program.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seed of random programs and of samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls of a random program, about.
    #[arg(long, default_value_t = 40)]
    calls: u32,
    /// Random programs without O_DIRECT, O_DSYNC and O_SYNC.
    #[arg(long)]
    no_direct: bool,
    /// Which states: permitted (by the contract of the device), modelled (what this device model
    /// could be left with at that nanosecond), zone-holes (of a zone any part may be there, not a
    /// prefix), or a breach of the contract: lying-flush, lost-fua,
    /// faulty-plp, faulty-drive (all three: also what was made durable may be lost).
    #[arg(long, default_value = "permitted")]
    space: String,
    /// Bytes that the drive writes whole; as the device says if left out.
    #[arg(long)]
    atomic: Option<u32>,
    /// Rules that the file system is held to besides POSIX, joined by +: names (fsync of a file
    /// keeps its names), order (names change in order), size (a length never runs ahead of its
    /// data), tail (the same within a block), cut (what a truncate took away stays away), version
    /// (a file is of one moment), replace (a file renamed over another is there with its contents),
    /// direct (O_DIRECT writes are durable when they return), marks (a name that the program told
    /// of stays), new (fdatasync keeps a new file), reads (what reads show is there once an fsync
    /// answered 0), reserve (fallocate through an O_SYNC or O_DSYNC descriptor makes the length
    /// durable), first (a failed write need only be told to who asks first, as until 4.12). What
    /// the file system promises if left out: names+order+reserve of ext4, names of F2FS.
    #[arg(long)]
    hold: Option<String>,
    /// Units in doubt up to which every state of a cut is visited.
    #[arg(long, default_value_t = 16)]
    complete: u32,
    /// Samples of a cut that has more.
    #[arg(long, default_value_t = 64)]
    samples: u32,
    /// No check of each recovered image.
    #[arg(long)]
    no_check: bool,
    /// Cuts during each new recovery: so many choices of its writes.
    #[arg(long, default_value_t = 0)]
    second: u32,
    /// Mount so many states of each program, and cut that: replay, clean-up of orphans, unmount.
    #[arg(long, value_name = "N", default_value_t = 0)]
    mounts: u32,
    /// Recover every state, also those that read the same as an earlier one: the same answer,
    /// later.
    #[arg(long)]
    no_prune: bool,
    /// Another process beside the program, which so many microseconds apart, on average, syncs one
    /// of its files or all of the file system, and promises nothing; 0: there is none.
    #[arg(long, value_name = "US", default_value_t = 0, conflicts_with_all = ["mutate", "bug"])]
    company: u64,
    /// The drive is as mkfs found it after a trim: without old data in free blocks.
    #[arg(long)]
    trimmed: bool,
    /// Threads; what comes out does not depend on it.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Leave out each step that a crash is safe by, in turn, and look who notices: `all`, or names
    /// of `list sites` or beginnings of them, joined by commas. Machines and programs are its own.
    #[arg(long, value_name = "SITES")]
    mutate: Option<String>,
    /// With --mutate: a file of what killed which mutant, tried first, in place of the built-in
    /// one; an empty file looks for all of it anew.
    #[arg(long, value_name = "FILE", requires = "mutate")]
    witnesses: Option<PathBuf>,
    /// With --mutate: programs that are tried for a site that no witness kills; 0: none.
    /// [default: 3 for sites of which it is said why nobody misses them, all for others]
    #[arg(long, value_name = "N", requires = "mutate")]
    search: Option<u64>,
    /// Leave out one step (a name of `list sites`) while the programs are played: what does a power
    /// cut do then? Not one of recovery: those are for --mutate.
    #[arg(long, value_name = "SITE", conflicts_with_all = ["mutate", "bug", "every_mode"])]
    without: Option<String>,
    /// Stop after so long: 90s, 5m. With --mutate, what was not looked at by then is interrupted.
    #[arg(long)]
    budget: Option<String>,
    /// Show one state: the timeline of program --first at FRAME, without its units U,V,…
    #[arg(long, value_name = "FRAME[:U,V]", conflicts_with_all = [
        "mutate", "bug", "budget", "state_file", "accept", "minimise", "check_cmd",
    ])]
    state: Option<String>,
    /// Known bugs by number (A3), or all: each found where it is and absent where it was mended?
    /// With --minimise N: so many failures of each, reduced, and how small they become.
    #[arg(long, conflicts_with_all = ["mutate", "budget", "state_file", "accept", "check_cmd"])]
    bug: Option<String>,
    /// With --state: write the device as the cut leaves it to this new image.
    #[arg(long, requires = "state")]
    image: Option<PathBuf>,
    /// Failures of each rule that are reduced to the fewest calls and lost units; 0: none.
    /// [default: 1; with --bug: 0]
    #[arg(long, value_name = "N")]
    minimise: Option<usize>,
    /// Write what is needed to see each reduced failure (or the --state) without this program:
    /// images, a log of dm-log-writes, the program, the timeline, the commands.
    #[arg(long, value_name = "DIR")]
    reproducer: Option<PathBuf>,
    /// Keep the campaign in a file: an interrupt or the --budget stops it, the same command goes
    /// on, and the end is as if it had not been stopped.
    #[arg(long, value_name = "FILE")]
    state_file: Option<PathBuf>,
    /// Failures that are known, as TOML: they are counted, and are no failure.
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Write what was found as such a list, to be looked through; with --known both. A new file, or
    /// that of --known.
    #[arg(long, value_name = "FILE")]
    accept: Option<PathBuf>,
    /// Rule O8: run this in every recovered tree; exit status 0 is right. See WRITEPATH_RETURNED,
    /// a file with the calls that had returned.
    #[arg(long, value_name = "CMD")]
    check_cmd: Option<String>,
    /// With --check-cmd: the device before recovery as a file, WRITEPATH_IMAGE.
    #[arg(long, requires = "check_cmd")]
    check_image: bool,
    /// With --check-cmd: how long one run may take.
    #[arg(long, default_value = "10s", requires = "check_cmd")]
    check_timeout: String,
    /// With --check-cmd: where trees are written, a directory that exists; best in memory.
    /// [default: the system's temporary directory]
    #[arg(long, requires = "check_cmd", value_name = "DIR")]
    check_dir: Option<PathBuf>,
    /// The same programs on another file system: what cuts at the calls' boundaries leave there and
    /// not here, and here and not there.
    #[arg(long, value_name = "FS", conflicts_with_all = NOT_AGAINST)]
    against: Option<String>,
    /// As --against, for another device.
    #[arg(long, value_name = "DEVICE", conflicts_with_all = NOT_AGAINST)]
    against_device: Option<String>,
    /// As --against, for other states.
    #[arg(long, value_name = "SPACE", conflicts_with_all = NOT_AGAINST)]
    against_space: Option<String>,
    /// Recovery empties the log before its blocks are at their homes, as none does: see A35.
    #[arg(long)]
    recovery_unordered: bool,
}

fn source(a: &Args, bench: &Bench) -> Result<Source, String> {
    if let Some(length) = a.programs.strip_prefix("seq-") {
        return match length.parse() {
            Ok(n @ 1..=3) => Ok(Source::Sequences(n)),
            _ => Err(format!("`{}`: sequences are seq-1, seq-2 and seq-3", a.programs)),
        };
    }
    if let Some(journals) = a.programs.strip_prefix("db-") {
        return match journals.parse() {
            Ok(n @ 1..=16) => Ok(Source::Database { seed: a.seed, journals: n }),
            _ => Err(format!("`{}`: databases are db-1 to db-16", a.programs)),
        };
    }
    if a.programs == "wild" {
        let barriers = bench.fs.has_barriers(&bench.fs_options);
        let extras = Extras { direct: !a.no_direct, barriers, ..Extras::ALL }.on(bench.fs);
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
        return jobs(path);
    }
    let text = text::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{}: no such file", path.shown()),
        _ => format!("{}: {e}", path.shown()),
    })?;
    Program::parse(&text).map(Source::Text).map_err(|e| format!("{}: {e}", path.shown()))
}

/// The way out of a campaign that cannot be.
fn way_out(a: &Args) -> &'static str {
    let is_name = source_is_made(&a.programs) || a.programs.contains([' ', ';', '\n']);
    match is_name || Path::new(&a.programs).exists() {
        true => "writepath crash --help",
        false => {
            "a file with a program, a fio job (*.fio), a name (seq-2, wild, db-1), or steps with ; \
             between: 'open 0 a rw,creat; fsync 0'"
        }
    }
}

/// Is it a name of programs that are made up?
fn source_is_made(programs: &str) -> bool {
    let by_name = programs == "wild" || NAMED.iter().any(|(name, _)| *name == programs);
    by_name || programs.starts_with("seq-") || programs.starts_with("db-")
}

/// The calls of a fio job file. Errors: what is wrong in it, with its place.
fn jobs(path: &Path) -> Result<Source, String> {
    let at = |e: String| format!("{}: {e}", path.shown());
    let loaded = fio::read(path, &Default::default()).map_err(|e| at(e.to_string()))?;
    if loaded.file.has_errors() {
        return Err(loaded.file.rendered());
    }
    loaded.file.program(Default::default()).map(Source::Text).map_err(at)
}

fn space(a: &Args) -> Result<Space, String> {
    if let Some(n) = a.atomic.filter(|n| !n.is_power_of_two() || !(512..=1 << 20).contains(n)) {
        return Err(format!("atomic: {n} is no power of two from 512 to 1 MiB"));
    }
    Space::named(&a.space, a.atomic).ok_or_else(|| {
        format!("no space called `{}`; there are: {}", a.space, Space::NAMES.join(", "))
    })
}

fn profile(a: &Args, bench: &Bench) -> Result<Profile, String> {
    let mounted = Profile::mounted(bench.fs, &bench.fs_options);
    let Some(hold) = &a.hold else { return Ok(mounted) };
    let mut p = Profile { syncs_only_order: mounted.syncs_only_order, ..Profile::POSIX };
    for word in hold.split('+').filter(|w| !w.is_empty()) {
        if !line::hold(&mut p, word) {
            return Err(format!("hold: `{word}`; there are: {}", line::HOLDS.join(", ")));
        }
    }
    Ok(p)
}

fn campaign(a: &Args) -> Result<Campaign, String> {
    let (fs, fs_options) = super::file_system(&a.fs)?;
    let fresh = Bench::of(fs, fs_options).map_err(|e| e.to_string())?;
    let ((device, mut device_params), more) = super::devices(&a.device)?;
    // What a zoned drive holds is the sum of its zones.
    let sized = |d: &wp_device::DeviceEntry| d.params.iter().any(|p| p.name == "capacity_bytes");
    let is_sized = wp_device::find(&device).is_none_or(sized);
    if let Some(size) = a.size.as_ref().filter(|_| is_sized) {
        device_params.push(("capacity_bytes".to_owned(), super::size(size)?));
    }
    let (source, profile) = (source(a, &fresh)?, profile(a, &fresh)?);
    let all = source.count().unwrap_or(u64::MAX);
    let count = a.count.unwrap_or(if all == u64::MAX { 100 } else { all });
    let end = a.first.saturating_add(count).min(all);
    if count == 0 {
        return Err("count: 0 programs: nothing would be explored".to_owned());
    }
    if a.first >= end {
        return Err(format!("first: {} is behind the last of {all} programs", a.first));
    }
    if source.program(a.first).calls().next().is_none() {
        return Err("the program has no calls: nothing would be explored".to_owned());
    }
    let mut bench = Bench {
        device,
        device_params,
        more,
        elevator: a.elevator.clone(),
        stale: !a.trimmed,
        model: a.space == "modelled",
        company_us: a.company,
        without: a.without.as_deref().map(mutate::step).transpose()?,
        ..fresh
    };
    if a.size.is_none() && is_sized {
        fit(&mut bench);
    }
    Ok(Campaign {
        bench,
        source,
        programs: (a.first, end),
        space: space(a)?,
        plan: Plan { complete: a.complete.min(20), pairs: 64, samples: a.samples },
        seed: a.seed,
        profile,
        check: !a.no_check,
        second_cuts: a.second,
        mounts: a.mounts,
        prune: !a.no_prune,
        recovery_in_order: !a.recovery_unordered,
        stop_at: Vec::new(),
        known: Arc::new(known(a)?),
        command: command(a)?,
    })
}

/// Gives the device the least of some capacities that has room for the file system.
fn fit(bench: &mut Bench) {
    const CAPACITIES: [u64; 4] = [64 << 20, 128 << 20, 256 << 20, 512 << 20];
    let given = bench.device_params.clone();
    for capacity in CAPACITIES {
        bench.device_params = given.clone();
        bench.device_params.push(("capacity_bytes".to_owned(), capacity));
        let is_full =
            |e: &MachineError| matches!(e, MachineError::Fs { error: FsError::NoSpace, .. });
        if !bench.image().as_ref().is_err_and(is_full) {
            return;
        }
    }
}

fn known(a: &Args) -> Result<KnownFailures, String> {
    let Some(path) = &a.known else { return Ok(KnownFailures::default()) };
    let at = |e: String| format!("{}: {e}", path.shown());
    let text = text::read(path).map_err(|e| at(e.to_string()))?;
    KnownFailures::parse(&text, &setting(a)).map_err(at)
}

/// The setting, as lists of known failures have it.
fn setting(a: &Args) -> String {
    format!("{} {} {}", a.fs, a.device, a.space)
}

fn command(a: &Args) -> Result<Option<Arc<Command>>, String> {
    let Some(line) = &a.check_cmd else { return Ok(None) };
    if line.trim().is_empty() {
        return Err("check-cmd: the command is empty, and would check nothing".to_owned());
    }
    let dir = a.check_dir.clone().unwrap_or_else(std::env::temp_dir);
    let timeout = budget(&a.check_timeout)?;
    let made = Command::new(line, &dir, timeout, a.check_image);
    made.map(Some).map_err(|e| format!("--check-dir: {e}"))
}

/// What `--budget` says. Errors: it is no time, and that was told.
fn limit(a: &Args, out: &Out) -> Result<Option<Duration>, ExitCode> {
    let limit = a.budget.as_deref().map(budget).transpose();
    limit.map_err(|e| out.fail(Exit::Usage, "budget", &e, ""))
}

/// Time from `90s`, `5m`, `2h`.
fn budget(text: &str) -> Result<Duration, String> {
    match wp_base::quantity::nanoseconds(text) {
        Ok(0) => Err(format!("budget: `{text}` leaves no time for anything")),
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(e) => Err(format!("budget: {e}")),
    }
}

/// Runs the verb. Exit 1 if a rule is broken.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(sites) = &a.mutate {
        let how = |limit| (a.witnesses.as_deref(), a.search, limit);
        return match limit(a, out) {
            Ok(limit) => super::mutate::run(sites, how(limit), a.workers, out),
            Err(exit) => exit,
        };
    }
    if let Some(which) = &a.bug {
        return bugs::run(a, which, out);
    }
    if a.every_mode {
        return modes::run(a, out);
    }
    let campaign = match campaign(a) {
        Ok(c) => c,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, way_out(a)),
    };
    if let Some(state) = &a.state {
        return show::run(a, &campaign, state, out);
    }
    if a.against.is_some() || a.against_device.is_some() || a.against_space.is_some() {
        return against::run(a, &campaign, out);
    }
    hunt::run(a, &campaign, out)
}
