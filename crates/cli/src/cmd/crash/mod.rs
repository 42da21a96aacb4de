//! `crash`.

mod against;
mod bugs;
mod checks;
mod folder;
mod host;
mod hunt;
mod key;
mod modes;
mod reduced;
mod report;
mod show;
mod source;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use wp_base::FsError;
use wp_campaign::lives::Lives;
use wp_campaign::{Bench, Campaign, Source, Space, line, mutate};
use wp_crash::{Plan, Profile};
use wp_machine::MachineError;
use wp_vfs::{FsEntry, Options};
use wp_workload::program::{Call, Interleavings, Program};

use self::checks::{command, known, setting};
use self::source::{hint, source, source_is_made};
use crate::output::{Exit, Out};

/// What a comparison with another setting has no use for.
const NOT_AGAINST: [&str; 10] = [
    "mutate",
    "bug",
    "state",
    "budget",
    "state_file",
    "accept",
    "minimise",
    "reproducer",
    "check_cmd",
    "checker",
];

/// What is of one file system alone.
const NOT_OF_SEVERAL: [&str; 10] = [
    "mutate",
    "bug",
    "state",
    "against",
    "against_device",
    "against_space",
    "minimise",
    "reproducer",
    "state_file",
    "accept",
];

/// Arguments.
#[derive(clap::Args, Clone)]
#[command(after_help = "Examples:\n\
    \x20 writepath crash seq-1\n\
    \x20 writepath crash app.fio --require names+replace --budget 5m\n\
    \x20 writepath crash --check ./check.sh -- ./my-program\n\
    \x20 writepath crash run.txt --fs ext4,era=3.4 --fs f2fs --fs btrfs --device ssd-128\n\
    \x20 writepath crash wild --count 1000 --state-file crash.state\n\
    \x20 writepath crash --bug A3")]
pub struct Args {
    /// Programs to crash: seq-2, wild, JOB.fio, a program file, a folder
    ///
    /// Generated programs: `seq-1` to `seq-3` (every sequence of that many system calls), `wild`
    /// (random programs), `calls-1` to `calls-3` and `wild-calls` (the same with every call of
    /// `list calls`), `wild-threads` (random programs of 2 or 3 threads, each in one random
    /// interleaving), `db-1` to `db-16` (that many databases with rollback journals), `errors`
    /// (a device that fails requests), `publish`, `save`, `fill`, `direct` (a database that writes
    /// with O_DIRECT).
    ///
    /// Or a fio job (NAME.fio), a file with a program, a folder with programs (*.txt), or a program
    /// in one argument: 'open 0 a rw,creat; fsync 0'.
    #[arg(default_value = "seq-1")]
    programs: String,
    /// Run this program of the host in the file system, and crash what it did
    ///
    /// The program runs once, with the file system as its working directory, mounted for it alone
    /// (FUSE). Its system calls are recorded with their contents, and every crash state of them is
    /// explored. WRITEPATH_DIR names the directory. Each line that the program writes to the file
    /// $WRITEPATH_ACK is what it has told the world by then (an acknowledgement).
    #[arg(last = true, value_name = "CMD")]
    #[arg(conflicts_with_all = ["programs", "mutate", "bug"])]
    command: Vec<OsString>,
    /// Write the recorded calls of CMD to this new program file
    #[arg(long, value_name = "FILE", requires = "command")]
    #[arg(help_heading = "Programs")]
    record: Option<PathBuf>,
    /// What was recorded.
    #[arg(skip)]
    recorded: Option<Program>,
    /// File system and options (repeatable)
    ///
    /// The option `era` is the kernel version whose rules the file system follows. Without it that
    /// is the default of `writepath list fs` (ext4: 4.6). That verb lists all options, `writepath
    /// list eras` the rules of each version.
    ///
    /// With several, one line for each: crash states and broken rules, and of one program also sync
    /// latency, FLUSHes and bytes written.
    #[arg(long = "fs", value_name = "FS", default_value = "ext4,era=6.18")]
    file_systems: Vec<String>,
    /// That which is explored.
    #[arg(skip)]
    fs: String,
    /// Repeat in each validated kernel version and equivalent mount mode
    ///
    /// Runs the same programs with each kernel version that was validated against a real kernel,
    /// and with each mount option that makes the same promises; prints one line for each. They
    /// replace `era` and the mount mode in --fs.
    #[arg(long, conflicts_with_all = NOT_OF_SEVERAL)]
    #[arg(help_heading = "Other modes")]
    every_mode: bool,
    /// Device preset and parameters; join several by +
    ///
    /// `writepath list devices` lists presets and parameters.
    #[arg(long, default_value = "fixed")]
    device: String,
    /// Device capacity: 128M [default: smallest of 64M to 512M that fits]
    #[arg(long)]
    size: Option<String>,
    /// I/O scheduler [default: the one of the kernel version]
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    elevator: String,
    /// Number of programs [default: all of seq-N, 100 of random ones]
    #[arg(long)]
    #[arg(help_heading = "Programs")]
    count: Option<u64>,
    /// Number of the first program
    #[arg(long, default_value_t = 0)]
    #[arg(help_heading = "Programs")]
    first: u64,
    /// Seed of random programs and of sampled crash states
    #[arg(long, default_value_t = 1)]
    #[arg(help_heading = "Programs")]
    seed: u64,
    /// Approximate number of system calls of a random program
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    calls: u32,
    /// Generate programs without O_DIRECT, O_DSYNC and O_SYNC
    #[arg(long)]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    no_direct: bool,
    /// Interleavings of a program with threads: all, or a sample of N
    ///
    /// An interleaving is an order in which the calls of the threads begin, each while the calls
    /// before are in progress or when they have returned. The sample depends on --seed.
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    interleavings: u32,
    /// permitted, modelled, zone-holes or a device fault
    ///
    /// permitted: every state that the device contract allows. modelled: only states that this
    /// device model can be left in at that nanosecond. zone-holes: any part of a zone may be
    /// missing, not only its end.
    ///
    /// Device faults, which lose data that was reported durable: lying-flush (FLUSH does nothing),
    /// lost-fua (FUA does nothing), faulty-plp (power-loss protection fails), faulty-drive (all
    /// three).
    #[arg(long, default_value = "permitted")]
    #[arg(help_heading = "Crash states")]
    space: String,
    /// Bytes that the drive writes atomically [default: as the device says]
    #[arg(long)]
    #[arg(help_heading = "Crash states", hide_short_help = true)]
    atomic: Option<u32>,
    /// Rules to check besides POSIX, joined by + [default: of the file system]
    ///
    /// names: fsync of a file keeps its names. order: names change in order. size: a length never
    /// runs ahead of its data. tail: the same within a block. cut: what truncate removed does not
    /// return. version: a file holds one version of its data, not a mix. replace: a file renamed
    /// over another keeps its own contents. direct: an O_DIRECT write is durable when it returns.
    /// published: a name that the program has published (step `mark`) stays. new: fdatasync keeps a
    /// new file. reads: data that a read returned is there after an fsync that returned 0. reserve:
    /// fallocate through an O_SYNC or O_DSYNC descriptor makes the length durable. first: only the
    /// first caller that asks gets EIO for a failed write, as before Linux 4.13.
    ///
    /// The default is what the file system promises: names+order+reserve for ext4, names for F2FS.
    #[arg(long)]
    #[arg(help_heading = "Checks")]
    require: Option<String>,
    /// Explore every state of up to N unpersisted writes
    ///
    /// A crash point with more unpersisted writes (in-flight or in the volatile cache) is sampled:
    /// prefixes, single losses, pair losses of up to 64 writes, single survivors and --samples
    /// random states. At most 20.
    #[arg(long, default_value_t = 16)]
    #[arg(help_heading = "Crash states", hide_short_help = true, value_name = "N")]
    complete: u32,
    /// Random states of a crash point with more unpersisted writes
    #[arg(long, default_value_t = 64)]
    #[arg(help_heading = "Crash states", hide_short_help = true, value_name = "N")]
    samples: u32,
    /// Explore at most N states of a crash point [default: no limit]
    ///
    /// For a check that takes long, as one that starts a server: everything kept, and single
    /// losses, prefixes and random states in turn, chosen by --seed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(help_heading = "Crash states")]
    max_states: Option<u64>,
    /// Leave out crash points before acknowledgement N; 0: none
    ///
    /// For a program that first prepares something, as a database server its files: it acknowledges
    /// a line when it is ready, and power failures before that say nothing of interest.
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(conflicts_with_all = ["mutate", "bug", "against", "against_device", "against_space"])]
    #[arg(help_heading = "Crash states")]
    after_acks: u32,
    /// Skip the fsck of each recovered image
    #[arg(long)]
    #[arg(help_heading = "Checks")]
    no_check: bool,
    /// Crash each new recovery in N states of its writes; 0: never
    #[arg(long, default_value_t = 0)]
    #[arg(help_heading = "Crash states", value_name = "N")]
    second: u32,
    /// Mount N states of each program, crash the mounts; 0: none
    ///
    /// The mount replays the journal, deletes orphans and is unmounted; power fails in between.
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(help_heading = "Crash states")]
    mounts: u32,
    /// Recover states again that read the same as an earlier one (slower)
    ///
    /// The result is the same.
    #[arg(long)]
    #[arg(help_heading = "Crash states", hide_short_help = true)]
    no_prune: bool,
    /// Call sync in a second process every US us; 0: never
    ///
    /// The process syncs a file of the program, or the whole file system, after US microseconds on
    /// average. No promise depends on it.
    #[arg(long, value_name = "US", default_value_t = 0, conflicts_with_all = ["mutate", "bug"])]
    #[arg(value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    #[arg(help_heading = "Programs")]
    concurrent_sync_us: u64,
    /// Start with a trimmed drive: free blocks hold no old data
    #[arg(long)]
    #[arg(help_heading = "Crash states")]
    trimmed: bool,
    /// Threads; the result does not depend on their number [default: the CPUs]
    ///
    /// Programs are explored side by side. One program is explored by one thread, and its recovered
    /// trees are checked (--check, --checker) by N processes, each in a directory of its own.
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Remove crash-safety points one by one until an oracle detects it
    ///
    /// `all`, or names or prefixes of `writepath list sites`, joined by commas. Each crash-safety
    /// point (a step that makes a crash safe) is removed in turn; programs run until a check fails.
    /// Uses its own machines and programs.
    #[arg(long, value_name = "SITES")]
    #[arg(help_heading = "Other modes")]
    mutate: Option<String>,
    /// With --mutate: detecting programs to try first [default: built in]
    ///
    /// A file that lists the program that detects each mutant. An empty file searches for all of
    /// them again.
    #[arg(long, value_name = "FILE", requires = "mutate")]
    #[arg(help_heading = "Other modes", hide_short_help = true)]
    witnesses: Option<PathBuf>,
    /// With --mutate: programs to try for an undetected mutant; 0: none
    ///
    /// Default: 3 for mutants that are listed as undetectable, all programs for others.
    #[arg(long, value_name = "N", requires = "mutate")]
    #[arg(help_heading = "Other modes", hide_short_help = true)]
    search: Option<u64>,
    /// Remove one crash-safety point (`list sites`) while programs run
    ///
    /// Shows what a power failure does without this step. Points of recovery need --mutate.
    #[arg(long, value_name = "SITE", conflicts_with_all = ["mutate", "bug", "every_mode"])]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    without: Option<String>,
    /// Stop after this time: 90s, 5m
    ///
    /// With several --fs each has this time. With --mutate, crash-safety points that were not
    /// explored by then count as interrupted.
    #[arg(long)]
    budget: Option<String>,
    /// Show one crash state: program --first, FRAME, without writes U,V,…
    ///
    /// Prints the timeline of the program up to this crash point, the files after recovery and the
    /// broken rule.
    #[arg(long, value_name = "FRAME[:U,V]", conflicts_with_all = [
        "mutate", "bug", "budget", "state_file", "accept", "minimise", "check_cmd",
    ])]
    #[arg(help_heading = "Results")]
    state: Option<String>,
    /// Reproduce a known bug (A3) or all of them, and check its fix
    ///
    /// Each bug must be found where it exists and be absent where it was fixed. With --minimise N:
    /// minimises N failures of each bug and prints their sizes.
    #[arg(long, conflicts_with_all = ["mutate", "budget", "state_file", "accept", "check_cmd"])]
    #[arg(help_heading = "Other modes")]
    bug: Option<String>,
    /// With --state: write the crashed device to this new image file
    #[arg(long, requires = "state")]
    #[arg(help_heading = "Results")]
    image: Option<PathBuf>,
    /// Failures of each rule to minimise; 0: none [default: 1, with --bug 0]
    ///
    /// A minimised failure has the fewest system calls and lost writes that still break the rule.
    #[arg(long, value_name = "N")]
    #[arg(help_heading = "Results")]
    minimise: Option<usize>,
    /// Write images, log, program and commands of each minimised failure
    ///
    /// Also of the --state. The folder holds what shows the failure without Writepath: images, a
    /// dm-log-writes log, the program, the timeline and the commands.
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = "Results")]
    reproducer: Option<PathBuf>,
    /// Save progress to FILE; the same command resumes from it
    ///
    /// The result is the same as without an interruption.
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Results")]
    state_file: Option<PathBuf>,
    /// TOML list of known failures, which are counted but not reported
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Checks")]
    known: Option<PathBuf>,
    /// Write failures to FILE as such a list: new, or that of --known
    ///
    /// Look through the list before you use it. With --known it holds both.
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Checks")]
    accept: Option<PathBuf>,
    /// Run CMD in every recovered tree; exit status 0 passes (rule O8)
    ///
    /// The environment variable WRITEPATH_RETURNED names a file with the system calls that had
    /// returned before the crash. Of a program of the host (-- CMD), and of programs with `ack`,
    /// WRITEPATH_ACKED names a file with the lines that were acknowledged before the crash.
    #[arg(long = "check", value_name = "CMD", group = "a_check")]
    #[arg(help_heading = "Checks")]
    check_cmd: Option<String>,
    /// As --check, with a command that stays up: no process for each tree
    ///
    /// It reads a line for each tree from its standard input: the tree's directory, a tab, the file
    /// that --check gets as WRITEPATH_ACKED (or WRITEPATH_RETURNED). It answers with a line on its
    /// standard output: `ok`, or `bad REASON`. What it changes in the tree is undone.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["mutate", "bug", "state"])]
    #[arg(group = "a_check")]
    #[arg(help_heading = "Checks")]
    checker: Option<String>,
    /// With --check: pass the unrecovered device as $WRITEPATH_IMAGE
    #[arg(long, requires = "a_check")]
    #[arg(help_heading = "Checks", hide_short_help = true)]
    check_image: bool,
    /// With --check: time limit of one run
    #[arg(long, default_value = "10s", requires = "a_check")]
    #[arg(help_heading = "Checks", hide_short_help = true)]
    check_timeout: String,
    /// With --check: existing folder for trees [default: $TMPDIR]
    ///
    /// A folder in memory (tmpfs) is fastest.
    #[arg(long, requires = "a_check", value_name = "DIR")]
    #[arg(help_heading = "Checks", hide_short_help = true)]
    check_dir: Option<PathBuf>,
    /// Compare with file system FS: states that only one of them leaves
    ///
    /// Runs the same programs on both. For power failures between two system calls, lists the
    /// recovered trees that only one of the two settings can leave.
    #[arg(long, value_name = "FS", conflicts_with_all = NOT_AGAINST)]
    #[arg(help_heading = "Other modes")]
    against: Option<String>,
    /// Compare with another device, as --against
    #[arg(long, value_name = "DEVICE", conflicts_with_all = NOT_AGAINST)]
    #[arg(help_heading = "Other modes", hide_short_help = true)]
    against_device: Option<String>,
    /// Compare with other crash states, as --against
    #[arg(long, value_name = "SPACE", conflicts_with_all = NOT_AGAINST)]
    #[arg(help_heading = "Other modes", hide_short_help = true)]
    against_space: Option<String>,
    /// Let recovery clear the journal before its blocks are written (A35)
    ///
    /// No Linux version does this; it shows that the checks detect it.
    #[arg(long)]
    #[arg(help_heading = "Crash states", hide_short_help = true)]
    recovery_unordered: bool,
}

impl Args {
    /// Threads.
    fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.unwrap_or_else(cores).max(1)
    }
}

fn space(a: &Args) -> Result<Space, String> {
    if let Some(n) = a.atomic.filter(|n| !n.is_power_of_two() || !(512..=1 << 20).contains(n)) {
        return Err(format!("--atomic {n}: not a power of two from 512 to 1 MiB"));
    }
    Space::named(&a.space, a.atomic).ok_or_else(|| {
        format!("--space {}: unknown (crash states: {})", a.space, Space::NAMES.join(", "))
    })
}

fn profile(a: &Args, bench: &Bench) -> Result<Profile, String> {
    let mounted = Profile::mounted(bench.fs, &bench.fs_options);
    let Some(require) = &a.require else { return Ok(mounted) };
    let mut p = Profile { syncs_only_order: mounted.syncs_only_order, ..Profile::POSIX };
    for word in require.split('+').filter(|w| !w.is_empty()) {
        if !line::hold(&mut p, word) {
            let why = match line::renamed(word) {
                Some(new) => format!("was renamed to `{new}`"),
                None => format!("is not a rule (rules: {})", line::RULES.join(", ")),
            };
            return Err(format!("--require: `{word}` {why}"));
        }
    }
    Ok(p)
}

/// A file system of an era whose power failures are known.
fn file_system(text: &str) -> Result<(&'static FsEntry, Options), String> {
    let (fs, options) = wp_machine::spec::recoverable(text)?;
    super::eras::tell(fs, options.get("era", fs.options).unwrap_or_default());
    Ok((fs, options))
}

/// The machine that the arguments describe. Errors: what is wrong in them.
fn bench(a: &Args) -> Result<Bench, String> {
    let (fs, fs_options) = file_system(&a.fs)?;
    let fresh = Bench::of(fs, fs_options).map_err(|e| e.to_string())?;
    let ((device, mut device_params), more) = super::devices(&a.device)?;
    // What a zoned drive holds is the sum of its zones.
    let sized = |d: &wp_device::DeviceEntry| d.params.iter().any(|p| p.name == "capacity_bytes");
    let is_sized = wp_device::find(&device).is_none_or(sized);
    if let Some(size) = a.size.as_ref().filter(|_| is_sized) {
        device_params.push(("capacity_bytes".to_owned(), super::size(size)?));
    }
    if let Some(size) = (a.size.is_none() && is_sized && !a.command.is_empty()).then_some(HOST) {
        device_params.push(("capacity_bytes".to_owned(), size));
    }
    let mut bench = Bench {
        device,
        device_params,
        more,
        elevator: a.elevator.clone(),
        stale: !a.trimmed,
        model: a.space == "modelled",
        company_us: a.concurrent_sync_us,
        without: a.without.as_deref().map(mutate::step).transpose()?,
        ..fresh
    };
    if a.size.is_none() && is_sized && a.command.is_empty() {
        fit(&mut bench);
    }
    Ok(bench)
}

fn campaign(a: &Args) -> Result<Campaign, String> {
    let bench = bench(a)?;
    let (source, profile) = (source(a, &bench)?, profile(a, &bench)?);
    let space = space(a)?;
    let source = match source {
        Source::Text(program) => {
            let sample = (a.interleavings as usize, a.seed);
            match Lives::of(&bench, space, &program, sample) {
                Ok(Some(lives)) => Source::Lives(Arc::new(lives)),
                Ok(None) => match Interleavings::of(&program, sample.0, sample.1) {
                    Some(all) => Source::Threads(Arc::new(all)),
                    None => Source::Text(program),
                },
                Err(e) => return Err(e.to_string()),
            }
        }
        source => source,
    };
    let all = source.count().unwrap_or(u64::MAX);
    let count = a.count.unwrap_or(if all == u64::MAX { 100 } else { all });
    let end = a.first.saturating_add(count).min(all);
    if count == 0 {
        return Err("--count 0: nothing would be explored".to_owned());
    }
    if a.first >= end {
        return Err(format!("--first {}: there are only {all} programs", a.first));
    }
    if source.program(a.first).calls().next().is_none() {
        return Err("the program has no calls: nothing would be explored".to_owned());
    }
    let acked = source.program(a.first).is_recorded();
    if a.after_acks > 0 {
        let acks = source.program(a.first).calls().filter(|c| matches!(c, Call::Ack(_))).count();
        if acks < a.after_acks as usize {
            let n = a.after_acks;
            return Err(format!("--after-acks {n}: the program makes {acks} acknowledgements"));
        }
    }
    Ok(Campaign {
        bench,
        source,
        programs: (a.first, end),
        space,
        plan: Plan {
            complete: a.complete.min(20),
            samples: a.samples,
            most: a.max_states.unwrap_or(u64::MAX),
            ..Plan::default()
        },
        seed: a.seed,
        profile,
        check: !a.no_check,
        second_cuts: a.second,
        mounts: a.mounts,
        prune: !a.no_prune,
        recovery_in_order: !a.recovery_unordered,
        stop_at: Vec::new(),
        known: Arc::new(known(a)?),
        after_acks: a.after_acks,
        command: command(a, acked)?,
    })
}

/// Capacity of the drive for a program of the host, bytes.
const HOST: u64 = 512 << 20;

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

/// What `--budget` says. Errors: it is no time, and that was told.
fn limit(a: &Args, out: &Out) -> Result<Option<Duration>, ExitCode> {
    let limit = a.budget.as_deref().map(budget).transpose();
    limit.map_err(|e| out.fail(Exit::Usage, "budget", &e, ""))
}

/// Time from `90s`, `5m`, `2h`.
fn budget(text: &str) -> Result<Duration, String> {
    match wp_base::quantity::nanoseconds(text) {
        Ok(0) => Err(format!("--budget {text}: must be more than 0")),
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(e) => Err(format!("--budget: {e}")),
    }
}

/// What was asked for that several file systems cannot have together.
fn not_of_several(a: &Args) -> Option<&'static str> {
    if a.file_systems.len() < 2 {
        return None;
    }
    let against = a.against.is_some() || a.against_device.is_some() || a.against_space.is_some();
    let asked = [
        ("--mutate", a.mutate.is_some()),
        ("--bug", a.bug.is_some()),
        ("--state", a.state.is_some()),
        ("--against", against),
        ("--minimise", a.minimise.is_some()),
        ("--reproducer", a.reproducer.is_some()),
        ("--state-file", a.state_file.is_some()),
        ("--accept", a.accept.is_some()),
        ("a folder of programs", Path::new(&a.programs).is_dir() && a.command.is_empty()),
    ];
    asked.into_iter().find_map(|(what, is_asked)| is_asked.then_some(what))
}

/// Runs the verb. Exit 1 if a rule is broken.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let of_first = Args { fs: a.file_systems.first().cloned().unwrap_or_default(), ..a.clone() };
    let a = &of_first;
    if let Some(what) = not_of_several(a) {
        let help = "name one --fs, or leave it out";
        return out.fail(Exit::Usage, "fs", &format!("{what} is of one file system"), help);
    }
    if let Some(sites) = &a.mutate {
        let how = |limit| (a.witnesses.as_deref(), a.search, limit);
        return match limit(a, out) {
            Ok(limit) => super::mutate::run(sites, how(limit), a.workers(), out),
            Err(exit) => exit,
        };
    }
    if let Some(which) = &a.bug {
        return bugs::run(a, which, out);
    }
    let programs = Path::new(&a.programs);
    if programs.is_dir() {
        return folder::run(a, programs, out);
    }
    // What fio can do and Writepath cannot is said as `fio check` says it.
    if programs.extension().is_some_and(|e| e == "fio")
        && let Some(code) = super::fio::refused_file(programs, "", false, out)
    {
        return code;
    }
    let with_recorded;
    let a = match a.command.is_empty() {
        true => a,
        false => match host::recorded(a, out) {
            Ok(program) => {
                with_recorded = Args { recorded: Some(program), ..a.clone() };
                &with_recorded
            }
            Err(exit) => return exit,
        },
    };
    if a.every_mode || a.file_systems.len() > 1 {
        return modes::run(a, out);
    }
    let campaign = match campaign(a) {
        Ok(c) => c,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, hint(a)),
    };
    if let Some(state) = &a.state {
        return show::run(a, &campaign, state, out);
    }
    if a.against.is_some() || a.against_device.is_some() || a.against_space.is_some() {
        let why = match &campaign.source {
            Source::Lives(_) => "power_failure in a program cannot be compared with --against",
            _ if campaign.source.program(campaign.programs.0).has_threads() => {
                "threads in a program cannot be compared with --against"
            }
            _ => "",
        };
        if !why.is_empty() {
            return out.fail(Exit::Usage, "against", why, "crash each file system by itself");
        }
        return against::run(a, &campaign, out);
    }
    hunt::run(a, &campaign, out)
}
