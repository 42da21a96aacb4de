//! What a user types after `crash`: a subcommand, and the options that mean something to it.
//!
//! Options of several subcommands are declared once, in groups. [`plan`](super::plan) reads the
//! texts that are in them.

use std::ffi::OsString;
use std::path::PathBuf;

use super::log::{LogArgs, OverArgs};

/// Arguments.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "`writepath crash PROGRAMS` is short for `writepath crash run PROGRAMS`. Examples:\n\
    \x20 writepath crash seq-1\n\
    \x20 writepath crash app.fio --require names+replace --budget 5m\n\
    \x20 writepath crash --check ./check.sh -- ./my-program\n\
    \x20 writepath crash run.txt --fs ext4,era=3.4 --fs f2fs --fs btrfs --device ssd-128\n\
    \x20 writepath crash wild --count 1000 --state-file crash.state\n\
    \x20 writepath crash log app.log --base base.img --fs ext4\n\
    \x20 writepath crash show log.txt 4:0,1 --fs ext4,nobarrier\n\
    \x20 writepath crash bug A3"
)]
pub struct Args {
    #[command(subcommand)]
    pub(super) what: Option<What>,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

/// What `crash` does.
#[derive(clap::Subcommand)]
pub(super) enum What {
    /// Explore every crash state of programs; the word `run` may be left out
    Run(Box<RunArgs>),
    /// Explore every crash state of a log of writes (dm-log-writes)
    ///
    /// The log has the contents of every write: of a real kernel's dm-log-writes, or of `writepath
    /// serve --log-writes`. Each state that the drive may hold is recovered and checked.
    Log(Box<LogArgs>),
    /// Show one crash state: the timeline, the files after recovery, the broken rule
    ///
    /// Each failure that `crash run` prints ends with the command line that shows it.
    Show(Box<ShowArgs>),
    /// Reproduce a known bug where it exists, and check its fix
    ///
    /// Each bug must be found in the kernel version that has it and be absent where it was fixed.
    Bug(BugArgs),
    /// Remove crash-safety points one by one until an oracle detects it
    ///
    /// Each crash-safety point (a step that makes a crash safe) is removed in turn; programs run
    /// until a check fails. It uses machines and programs of its own.
    Mutate(MutateArgs),
    /// Compare two settings: recovered trees that only one of them can leave
    ///
    /// Runs the same programs in both settings. For power failures between two system calls, lists
    /// the recovered trees that only one of the two can leave. Exit code 1 if there are some.
    Compare(Box<CompareArgs>),
}

/// Arguments of `run`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath crash run seq-1\n\
    \x20 writepath crash run app.fio --require names+replace --budget 5m\n\
    \x20 writepath crash run run.txt --fs ext4,era=3.4 --fs f2fs --fs btrfs --device ssd-128\n\
    \x20 writepath crash run seq-1 --fs f2fs --every-mode\n\
    \x20 writepath crash run --checker ./check.py --record run.txt -- ./my-program")]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub help: HelpArgs,
    #[command(flatten)]
    pub programs: ProgramsArgs,
    /// File system and options (repeatable)
    ///
    /// The option `era` is the kernel version whose rules the file system follows. Without it that
    /// is the default of `writepath list fs` (ext4: 4.6). That verb lists all options, `writepath
    /// list eras` the rules of each version.
    ///
    /// With several, one line for each: crash states and broken rules, and of one program also sync
    /// latency, FLUSHes and bytes written.
    #[arg(long = "fs", value_name = "FS", default_value = FS)]
    #[arg(default_value_if("every_version", "true", "ext4"))]
    pub file_systems: Vec<String>,
    /// Repeat in each validated kernel version and equivalent mount mode
    ///
    /// Runs the same programs with each kernel version that was validated against a real kernel,
    /// and with each mount option that makes the same promises; prints one line for each. They
    /// replace `era` and the mount mode in --fs.
    #[arg(long)]
    pub every_mode: bool,
    /// Repeat in every kernel version; what they share is explored once
    ///
    /// Runs the same programs with each set of rules that the modelled kernel versions have, and
    /// prints one line for each: the oldest version with these rules. It begins with `era` in --fs.
    /// Programs that ask for no rule that differs are not explored again.
    #[arg(long, conflicts_with = "every_mode")]
    pub every_version: bool,
    /// Device preset and parameters; join several by +
    ///
    /// `writepath list devices` lists presets and parameters.
    #[arg(long, default_value = DEVICE)]
    pub device: String,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Threads; the result does not depend on their number [default: the CPUs]
    ///
    /// Programs are explored side by side. One program is explored by one thread, and its recovered
    /// trees are checked (--check, --checker) by N processes, each in a directory of its own.
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Stop after this time: 90s, 5m
    ///
    /// With several --fs each has this time.
    #[arg(long)]
    pub budget: Option<String>,
    /// permitted, sectors, modelled, zone-holes, a fault
    ///
    /// permitted: every state that the device contract allows. sectors: the same, and blocks tear
    /// at sectors of 512 bytes but where the drive keeps a write whole (atomic_bytes). modelled:
    /// only states that this device model can be left in at that nanosecond. zone-holes: any part
    /// of a zone may be missing, not only its end.
    ///
    /// Device faults, which lose data that was reported durable: lying-flush (FLUSH does nothing),
    /// lost-fua (FUA does nothing), faulty-plp (power-loss protection fails), faulty-drive (all
    /// three).
    #[arg(long, default_value = SPACE)]
    #[arg(help_heading = "Crash states")]
    pub space: String,
    #[command(flatten)]
    pub states: StatesArgs,
    #[command(flatten)]
    pub samples: SamplesArgs,
    /// Crash each new recovery in N states of its writes; 0: never
    #[arg(long, default_value_t = 0)]
    #[arg(help_heading = "Crash states", value_name = "N")]
    pub second: u32,
    /// Mount N states of each program, crash the mounts; 0: none
    ///
    /// The mount replays the journal, deletes orphans and is unmounted; power fails in between.
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(help_heading = "Crash states")]
    pub mounts: u32,
    /// Leave out crash points before acknowledgement N; 0: none
    ///
    /// For a program that first prepares something, as a database server its files: it acknowledges
    /// a line when it is ready, and power failures before that say nothing of interest.
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(help_heading = "Crash states")]
    pub after_acks: u32,
    #[command(flatten)]
    pub rules: RulesArgs,
    #[command(flatten)]
    pub checks: ChecksArgs,
    #[command(flatten)]
    pub results: ResultsArgs,
}

/// Arguments of `show`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath crash show log.txt 4:0,1 --fs ext4,nobarrier\n\
    \x20 writepath crash show 'open 0 a rw,creat; fsync 0' 3:7 --fs ext4,nobarrier --image c.img\n\
    \x20 writepath crash show seq-2 12 --first 1043 --reproducer failure")]
pub(super) struct ShowArgs {
    #[command(flatten)]
    pub help: HelpArgs,
    /// A file, JOB.fio, a log of writes, steps in one argument, or seq-2, wild
    pub program: String,
    /// Crash point FRAME, without the writes U, V, …
    #[arg(value_name = "FRAME[:U,V]")]
    pub state: String,
    #[command(flatten)]
    pub over: OverArgs,
    /// Number of the program, of a word that stands for many
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(help_heading = "Programs")]
    pub first: u64,
    #[command(flatten)]
    pub generated: GeneratedArgs,
    /// File system and options
    #[arg(long, value_name = "FS", default_value = FS)]
    pub fs: String,
    /// Device preset and parameters; join several by +
    #[arg(long, default_value = DEVICE)]
    pub device: String,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// permitted, modelled, zone-holes or a device fault
    #[arg(long, default_value = SPACE)]
    #[arg(help_heading = "Crash states")]
    pub space: String,
    #[command(flatten)]
    pub states: StatesArgs,
    /// Crash the recovery in N states of its writes; 0: never
    #[arg(long, default_value_t = 0)]
    #[arg(help_heading = "Crash states", value_name = "N")]
    pub second: u32,
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Write the crashed device to this new image file
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Results")]
    pub image: Option<PathBuf>,
    /// Write images, log, program and commands of this state to a folder
    ///
    /// The folder holds what shows the failure without Writepath: images, a dm-log-writes log, the
    /// program, the timeline and the commands.
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = "Results")]
    pub reproducer: Option<PathBuf>,
}

/// Arguments of `bug`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath crash bug A3\n\
    \x20 writepath crash bug all --minimise 10")]
pub(super) struct BugArgs {
    #[command(flatten)]
    pub help: HelpArgs,
    /// Bug of docs/findings.md or docs/model/versions.md: A3, N10, V9; or all
    #[arg(value_name = "ID|all")]
    pub bug: String,
    /// Minimise N failures of each bug and print their sizes
    ///
    /// A minimised failure has the fewest system calls and lost writes that still break the rule.
    /// Exit code 1 if fewer than nine in ten become small.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub minimise: Option<u32>,
    /// With --minimise: write images, log, program and commands of one failure
    #[arg(long, value_name = "DIR", requires = "minimise")]
    pub reproducer: Option<PathBuf>,
    /// Threads; the result does not depend on their number [default: the CPUs]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
}

/// Arguments of `mutate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath crash mutate all --budget 10m\n\
    \x20 writepath crash mutate ext4/sync/flush,jbd2/ --search 20")]
pub(super) struct MutateArgs {
    #[command(flatten)]
    pub help: HelpArgs,
    /// all, or names or prefixes of `writepath list sites`, joined by commas
    pub sites: String,
    /// Detecting programs to try first [default: built in]
    ///
    /// A file that lists the program that detects each mutant. An empty file searches for all of
    /// them again.
    #[arg(long, value_name = "FILE")]
    pub witnesses: Option<PathBuf>,
    /// Programs to try for an undetected mutant; 0: none
    ///
    /// Default: 3 for mutants that are listed as undetectable, all programs for others.
    #[arg(long, value_name = "N")]
    pub search: Option<u64>,
    /// Stop after this time: 90s, 5m
    ///
    /// Crash-safety points that were not explored by then count as interrupted.
    #[arg(long)]
    pub budget: Option<String>,
    /// Threads; the result does not depend on their number [default: the CPUs]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
}

/// Arguments of `compare`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath crash compare log.txt --fs ext4,era=3.4 --fs ext4,era=6.18\n\
    \x20 writepath crash compare seq-1 --fs f2fs --device ssd-128 --device emmc-16\n\
    \x20 writepath crash compare log.txt --space permitted --space modelled")]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub help: HelpArgs,
    #[command(flatten)]
    pub programs: ProgramsArgs,
    /// File system and options; two are compared
    #[arg(long = "fs", value_name = "FS", default_value = FS)]
    pub file_systems: Vec<String>,
    /// Device preset and parameters; two are compared
    #[arg(long = "device", value_name = "DEVICE", default_value = DEVICE)]
    pub devices: Vec<String>,
    #[command(flatten)]
    pub machine: MachineArgs,
    /// permitted, modelled, …; two are compared
    #[arg(long = "space", value_name = "SPACE", default_value = SPACE)]
    #[arg(help_heading = "Crash states")]
    pub spaces: Vec<String>,
    #[command(flatten)]
    pub states: StatesArgs,
    #[command(flatten)]
    pub samples: SamplesArgs,
    #[command(flatten)]
    pub rules: RulesArgs,
}

pub(super) const FS: &str = "ext4,era=6.18";
const DEVICE: &str = "fixed";
pub(super) const SPACE: &str = "permitted";

/// Help that fits a screen: what needs more stands in the manual page.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct HelpArgs {
    /// Print this; `writepath man crash …` says more of each option
    #[arg(short, long, action = clap::ArgAction::HelpShort)]
    pub help: Option<bool>,
}

/// Which programs.
#[derive(clap::Args)]
pub(super) struct ProgramsArgs {
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
    pub programs: String,
    /// Run this program of the host in the file system, and crash what it did
    ///
    /// The program runs once, with the file system as its working directory, mounted for it alone
    /// (FUSE). Its system calls are recorded with their contents, and every crash state of them is
    /// explored. WRITEPATH_DIR names the directory. Each line that the program writes to the file
    /// $WRITEPATH_ACK is what it has told the world by then (an acknowledgement).
    #[arg(last = true, value_name = "CMD", conflicts_with = "programs")]
    pub command: Vec<OsString>,
    /// Write the recorded calls of CMD to this new program file
    #[arg(long, value_name = "FILE", requires = "command")]
    #[arg(help_heading = "Programs")]
    pub record: Option<PathBuf>,
    /// Number of programs [default: all of seq-N, 100 of random ones]
    #[arg(long)]
    #[arg(help_heading = "Programs")]
    pub count: Option<u64>,
    /// Number of the first program
    #[arg(long, default_value_t = 0)]
    #[arg(help_heading = "Programs")]
    pub first: u64,
    #[command(flatten)]
    pub generated: GeneratedArgs,
}

/// How programs are generated.
#[derive(clap::Args, Clone, Default)]
pub(super) struct GeneratedArgs {
    /// Seed of random programs and of sampled crash states
    #[arg(long, default_value_t = 1)]
    #[arg(help_heading = "Programs")]
    pub seed: u64,
    /// Approximate number of system calls of a random program
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    pub calls: u32,
    /// Generate programs without O_DIRECT, O_DSYNC and O_SYNC
    #[arg(long)]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    pub no_direct: bool,
    /// Interleavings of a program with threads: all, or a sample of N
    ///
    /// An interleaving is an order in which the calls of the threads begin, each while the calls
    /// before are in progress or when they have returned. The sample depends on --seed.
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    pub interleavings: u32,
}

/// The machine, except for its file system and device.
#[derive(clap::Args, Default)]
pub(super) struct MachineArgs {
    /// Device capacity: 128M [default: smallest of 64M to 512M that fits]
    #[arg(long)]
    pub size: Option<String>,
    /// I/O scheduler [default: the one of the kernel version]
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    pub elevator: String,
    /// Call sync in a second process every US us; 0: never
    ///
    /// The process syncs a file of the program, or the whole file system, after US microseconds on
    /// average. No promise depends on it.
    #[arg(long, value_name = "US", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=3_600_000_000))]
    #[arg(help_heading = "Programs")]
    pub concurrent_sync_us: u64,
    /// Remove one crash-safety point (`list sites`) while programs run
    ///
    /// Shows what a power failure does without this step. Points of recovery need `crash mutate`.
    #[arg(long, value_name = "SITE")]
    #[arg(help_heading = "Programs", hide_short_help = true)]
    pub without: Option<String>,
}

/// Which crash states there are.
#[derive(clap::Args, Default)]
pub(super) struct StatesArgs {
    /// Bytes that the drive writes atomically [default: as the device says]
    #[arg(long)]
    #[arg(help_heading = "Crash states", hide_short_help = true)]
    pub atomic: Option<u32>,
    /// Start with a trimmed drive: free blocks hold no old data
    #[arg(long)]
    #[arg(help_heading = "Crash states")]
    pub trimmed: bool,
    /// Let recovery clear the journal before its blocks are written (A35)
    ///
    /// No Linux version does this; it shows that the checks detect it.
    #[arg(long)]
    #[arg(help_heading = "Crash states", hide_short_help = true)]
    pub recovery_unordered: bool,
}

/// Which crash states are explored.
#[derive(clap::Args)]
pub struct SamplesArgs {
    /// Explore every state of up to N unpersisted writes
    ///
    /// A crash point with more unpersisted writes (in-flight or in the volatile cache) is sampled:
    /// prefixes, single losses, pair losses of up to 64 writes, single survivors and --samples
    /// random states. At most 20.
    #[arg(long, default_value_t = 16)]
    #[arg(help_heading = "Crash states", hide_short_help = true, value_name = "N")]
    pub complete: u32,
    /// Random states of a crash point with more unpersisted writes
    #[arg(long, default_value_t = 64)]
    #[arg(help_heading = "Crash states", hide_short_help = true, value_name = "N")]
    pub samples: u32,
    /// Explore at most N states of a crash point [default: no limit]
    ///
    /// For a check that takes long, as one that starts a server: everything kept, and single
    /// losses, prefixes and random states in turn, chosen by --seed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(help_heading = "Crash states")]
    pub max_states: Option<u64>,
    /// Recover states again that read the same as an earlier one (slower)
    ///
    /// The result is the same.
    #[arg(long)]
    #[arg(help_heading = "Crash states", hide_short_help = true)]
    pub no_prune: bool,
}

/// What must hold in a crash state.
#[derive(clap::Args)]
pub(super) struct RulesArgs {
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
    pub require: Option<String>,
    /// Skip the fsck of each recovered image
    #[arg(long)]
    #[arg(help_heading = "Checks")]
    pub no_check: bool,
}

/// What the user holds states against: a command, and a list of known failures.
#[derive(clap::Args)]
pub struct ChecksArgs {
    /// TOML list of known failures, which are counted but not reported
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Checks")]
    pub known: Option<PathBuf>,
    /// Write failures to FILE as such a list: new, or that of --known
    ///
    /// Look through the list before you use it. With --known it holds both.
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Checks")]
    pub accept: Option<PathBuf>,
    /// Run CMD in every recovered tree; exit status 0 passes (rule O8)
    ///
    /// The environment variable WRITEPATH_RETURNED names a file with the system calls that had
    /// returned before the crash. Of a program of the host (-- CMD), and of programs with `ack`,
    /// WRITEPATH_ACKED names a file with the lines that were acknowledged before the crash.
    #[arg(long = "check", value_name = "CMD", group = "a_check")]
    #[arg(help_heading = "Checks")]
    pub check: Option<String>,
    /// As --check, with a command that stays up: no process for each tree
    ///
    /// It reads a line for each tree from its standard input: the tree's directory, a tab, the file
    /// that --check gets as WRITEPATH_ACKED (or WRITEPATH_RETURNED). It answers with a line on its
    /// standard output: `ok`, or `bad REASON`. What it changes in the tree is undone.
    #[arg(long, value_name = "CMD", group = "a_check")]
    #[arg(help_heading = "Checks")]
    pub checker: Option<String>,
    /// With --check: pass the unrecovered device as $WRITEPATH_IMAGE
    #[arg(long, requires = "a_check")]
    #[arg(help_heading = "Checks", hide_short_help = true)]
    pub check_image: bool,
    /// With --check: time limit of one run
    #[arg(long, default_value = "10s", requires = "a_check")]
    #[arg(help_heading = "Checks", hide_short_help = true)]
    pub check_timeout: String,
    /// With --check: existing folder for trees [default: $TMPDIR]
    ///
    /// A folder in memory (tmpfs) is fastest.
    #[arg(long, requires = "a_check", value_name = "DIR")]
    #[arg(help_heading = "Checks", hide_short_help = true)]
    pub check_dir: Option<PathBuf>,
}

/// What is kept of an exploration.
#[derive(clap::Args)]
pub(super) struct ResultsArgs {
    /// Failures of each rule to minimise; 0: none [default: 1]
    ///
    /// A minimised failure has the fewest system calls and lost writes that still break the rule.
    #[arg(long, value_name = "N")]
    #[arg(help_heading = "Results")]
    pub minimise: Option<usize>,
    /// Write images, log, program and commands of each minimised failure
    ///
    /// The folder holds what shows the failure without Writepath: images, a dm-log-writes log, the
    /// program, the timeline and the commands.
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = "Results")]
    pub reproducer: Option<PathBuf>,
    /// Save progress to FILE; the same command resumes from it
    ///
    /// The result is the same as without an interruption.
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Results")]
    pub state_file: Option<PathBuf>,
}
