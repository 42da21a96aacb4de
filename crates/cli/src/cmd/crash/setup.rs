//! One setting of `crash`: a machine, its crash states, what they are held to; and what it explores
//! of some programs.

use std::path::Path;
use std::sync::Arc;

use wp_base::FsError;
use wp_base::plain::Shown as _;
use wp_block::QueueConfig;
use wp_campaign::lives::Lives;
use wp_campaign::{Bench, Campaign, KnownFailures, Source, Space, line, mutate};
use wp_crash::{Plan, Profile};
use wp_machine::host::text;
use wp_machine::{MachineError, make_device};
use wp_workload::program::{Call, Interleavings, Program};

use super::args::{GeneratedArgs, MachineArgs, ProgramsArgs, RulesArgs, SamplesArgs, StatesArgs};
use super::check::Check;
use super::log;
use super::plan::Wrong;
use super::programs::Programs;
use crate::cmd::eras;

/// Capacity of the drive for a program of the host, bytes.
const HOST: u64 = 512 << 20;

/// What a setting is called, as the user wrote it.
#[derive(Clone)]
pub(super) struct Words {
    pub fs: String,
    pub device: String,
    pub space: String,
    /// The capacity, if it is given.
    pub size: Option<String>,
}

impl Words {
    /// The setting, as lists of known failures have it.
    pub(super) fn line(&self) -> String {
        format!("{} {} {}", self.fs, self.device, self.space)
    }
}

/// What makes a setting, not yet read.
pub(super) struct Given<'a> {
    /// File system, device and crash states.
    pub words: [&'a str; 3],
    pub machine: &'a MachineArgs,
    pub states: &'a StatesArgs,
    pub rules: &'a RulesArgs,
    pub generated: &'a GeneratedArgs,
    pub of: Of,
    /// Is the user told what there is to know of the kernel version?
    pub has_notes: bool,
}

/// What a setting is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Programs of ours.
    Programs,
    /// A program of the host, of whose needs nobody knows.
    Host,
    /// A log: the machine runs nothing, and nobody knows the calls.
    Log,
}

impl Of {
    /// Of the programs that are named.
    pub(super) fn named(a: &ProgramsArgs) -> Of {
        if a.command.is_empty() { Of::Programs } else { Of::Host }
    }
}

/// A machine, its crash states, and what they are held to.
#[derive(Clone)]
pub(super) struct Setup {
    pub words: Words,
    pub bench: Bench,
    profile: Profile,
    space: Space,
    plan: Plan,
    recovery_in_order: bool,
    /// Is each recovered image checked in full?
    fsck: bool,
    prune: bool,
    generated: GeneratedArgs,
    /// First program, and how many; `None`: all, or [`SOME`].
    pub first: u64,
    pub count: Option<u64>,
    /// Crashes of each new recovery.
    pub second: u32,
    /// Mounts of each program that are crashed.
    pub mounts: u32,
    /// Crash points before this acknowledgement are left out.
    pub after_acks: u32,
    pub known: Arc<KnownFailures>,
    pub check: Option<Check>,
}

/// How many of an endless list of programs are explored if nobody says.
const SOME: u64 = 100;

impl Setup {
    /// Errors: what is wrong in what is given.
    pub(super) fn new(given: &Given) -> Result<Setup, Wrong> {
        let [fs, device, space] = given.words.map(str::to_owned);
        let words = Words { fs, device, space, size: given.machine.size.clone() };
        let bench = bench(&words, given)?;
        verify_parts(&bench)?;
        Ok(Setup {
            profile: Profile {
                image_alone: given.of == Of::Log,
                ..profile(given.rules.require.as_deref(), &bench)?
            },
            space: crash_states(&words.space, given.states.atomic)?,
            words,
            bench,
            plan: Plan::default(),
            recovery_in_order: !given.states.recovery_unordered,
            fsck: !given.rules.no_check,
            prune: true,
            generated: given.generated.clone(),
            first: 0,
            count: None,
            second: 0,
            mounts: 0,
            after_acks: 0,
            known: Arc::default(),
            check: None,
        })
    }

    /// Of some of its programs.
    pub(super) fn of_programs(self, a: &ProgramsArgs) -> Setup {
        Setup { first: a.first, count: a.count, ..self }
    }

    /// With some of its crash states.
    pub(super) fn sampled(self, a: &SamplesArgs) -> Setup {
        Setup { plan: sampled_plan(a), prune: !a.no_prune, ..self }
    }

    /// What it explores of `programs`. Errors: there is nothing to explore.
    pub(super) fn exploration<'a>(
        &'a self,
        programs: &'a Programs,
    ) -> Result<Exploration<'a>, String> {
        let source = self.lives_or_threads(programs.source(&self.generated, &self.bench)?)?;
        let all = source.count().unwrap_or(u64::MAX);
        let count = self.count.unwrap_or(if all == u64::MAX { SOME } else { all });
        let end = self.first.saturating_add(count).min(all);
        if count == 0 {
            return Err("--count 0: nothing would be explored".to_owned());
        }
        if self.first >= end {
            return Err(format!("--first {}: there are only {all} programs", self.first));
        }
        let first = source.program(self.first);
        let is_log = matches!(source, Source::Log(_));
        if first.calls().next().is_none() && !is_log {
            return Err("the program has no calls: nothing would be explored".to_owned());
        }
        let acks = first.calls().filter(|c| matches!(c, Call::Ack(_))).count();
        if acks < self.after_acks as usize {
            let n = self.after_acks;
            return Err(format!("--after-acks {n}: the program makes {acks} acknowledgements"));
        }
        let command = self.check.as_ref().map(|check| check.command(first.is_recorded() || is_log));
        let campaign = Campaign {
            bench: self.bench.clone(),
            source,
            programs: (self.first, end),
            space: self.space,
            plan: self.plan,
            seed: self.generated.seed,
            profile: self.profile,
            check: self.fsck,
            second_cuts: self.second,
            mounts: self.mounts,
            prune: self.prune,
            recovery_in_order: self.recovery_in_order,
            stop_at: Vec::new(),
            known: self.known.clone(),
            after_acks: self.after_acks,
            command: command.transpose()?,
            alike: None,
        };
        Ok(Exploration { setup: self, programs, campaign })
    }

    /// The lives of a program with power failures in it, or the interleavings of one with threads.
    fn lives_or_threads(&self, source: Source) -> Result<Source, String> {
        let Source::Text(program) = source else { return Ok(source) };
        let sample = (self.generated.interleavings as usize, self.generated.seed);
        let lives = Lives::of(&self.bench, self.space, &program, sample);
        Ok(match lives.map_err(|e| e.to_string())? {
            Some(lives) => Source::Lives(Arc::new(lives)),
            None => match Interleavings::of(&program, sample.0, sample.1) {
                Some(all) => Source::Threads(Arc::new(all)),
                None => Source::Text(program),
            },
        })
    }
}

/// What a setting explores of some programs.
pub(super) struct Exploration<'a> {
    pub setup: &'a Setup,
    pub programs: &'a Programs,
    pub campaign: Campaign,
}

impl Exploration<'_> {
    /// The program that is the first.
    pub(super) fn first(&self) -> Program {
        self.campaign.source.program(self.campaign.programs.0)
    }

    /// What makes random programs again, or names the device of a log.
    pub(super) fn generator(&self) -> String {
        let g = &self.setup.generated;
        match &self.campaign.source {
            Source::Log(run) => log::options(run.file()),
            Source::Wild { .. } => {
                let no_direct = if g.no_direct { " --no-direct" } else { "" };
                format!(" --calls {}{no_direct}", g.calls)
            }
            _ => String::new(),
        }
    }
}

/// How many states of a crash point.
pub(super) fn sampled_plan(a: &SamplesArgs) -> Plan {
    Plan {
        complete: a.complete.min(20),
        samples: a.samples,
        most: a.max_states.unwrap_or(u64::MAX),
        ..Plan::default()
    }
}

/// The list of known failures in a file. Errors: what is wrong in it.
pub(super) fn known(path: Option<&Path>, words: &Words) -> Result<Arc<KnownFailures>, String> {
    let Some(path) = path else { return Ok(Arc::default()) };
    let at = |e: String| format!("{}: {e}", path.shown());
    let text = text::read(path).map_err(|e| at(e.to_string()))?;
    KnownFailures::parse(&text, &words.line()).map(Arc::new).map_err(at)
}

pub(super) fn crash_states(name: &str, atomic: Option<u32>) -> Result<Space, String> {
    if let Some(n) = atomic.filter(|n| !n.is_power_of_two() || !(512..=1 << 20).contains(n)) {
        return Err(format!("--atomic {n}: not a power of two from 512 to 1 MiB"));
    }
    if name == "sectors" && atomic.is_some() {
        return Err("--atomic: --space sectors says it, 512; leave one of them away".to_owned());
    }
    Space::named(name, atomic).ok_or_else(|| {
        format!("--space {name}: unknown (crash states: {})", Space::NAMES.join(", "))
    })
}

/// What the file system promises, or the rules of `--require`.
fn profile(require: Option<&str>, bench: &Bench) -> Result<Profile, String> {
    let mounted = Profile::mounted(bench.fs, &bench.fs_options);
    let Some(require) = require else { return Ok(mounted) };
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

/// The machine. Errors: what is wrong in what is given.
fn bench(words: &Words, given: &Given) -> Result<Bench, String> {
    let (fs, fs_options) = wp_machine::spec::recoverable(&words.fs)?;
    if given.has_notes {
        eras::tell(fs, fs_options.get("era", fs.options).unwrap_or_default());
    }
    let fresh = Bench::of(fs, fs_options).map_err(|e| e.to_string())?;
    let ((device, mut device_params), more) = crate::cmd::devices(&words.device)?;
    // What a zoned drive holds is the sum of its zones.
    let sized = |d: &wp_device::DeviceEntry| d.params.iter().any(|p| p.name == "capacity_bytes");
    let is_sized = wp_device::find(&device).is_none_or(sized);
    let capacity = match &words.size {
        Some(size) => Some(crate::cmd::size(size)?),
        None => (given.of == Of::Host).then_some(HOST),
    };
    if let Some(bytes) = capacity.filter(|_| is_sized) {
        device_params.push(("capacity_bytes".to_owned(), bytes));
    }
    let machine = given.machine;
    let mut bench = Bench {
        device,
        device_params,
        more,
        elevator: machine.elevator.clone(),
        stale: !given.states.trimmed,
        model: words.space == "modelled",
        company_us: machine.concurrent_sync_us,
        without: machine.without.as_deref().map(mutate::step).transpose()?,
        ..fresh
    };
    if is_sized && capacity.is_none() && given.of != Of::Log {
        fit(&mut bench);
    }
    Ok(bench)
}

/// Errors: a device or an elevator that there is not, or that cannot be so.
fn verify_parts(bench: &Bench) -> Result<(), Wrong> {
    let devices = [(&bench.device, &bench.device_params)];
    for (name, params) in devices.into_iter().chain(bench.more.iter().map(|(n, p)| (n, p))) {
        make_device(name, params)
            .map_err(|e| Wrong::new("device", e.to_string(), "writepath list devices"))?;
    }
    let elevator = Some(bench.elevator.as_str()).filter(|name| !name.is_empty());
    match QueueConfig::for_kernel(bench.kernel, elevator) {
        Ok(_) => Ok(()),
        Err(e) => Err(Wrong::new("elevator", e, "writepath list elevators")),
    }
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
