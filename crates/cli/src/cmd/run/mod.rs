//! `run`.

mod result;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use wp_base::event::{Class, Event, Record};
use wp_base::{FsResult, Sector};
use wp_block::QueueConfig;
use wp_machine::classify::{Classifier, is_listed};
use wp_machine::host::{Output, Scratch, Shape};
use wp_machine::profile::Profile;
use wp_machine::registry;
use wp_machine::results::sha256;
use wp_machine::workload::fio;
use wp_machine::workload::{Inputs, WorkloadReport};
use wp_machine::{Machine, MachineError, MachineSpec};
use wp_medium::Medium;
use wp_vfs::{JournalConflict, Options, Vfs};
use wp_workload::program::Program;

use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// What a run is on, but for its file system.
#[derive(clap::Args, Clone)]
pub struct Setup {
    /// Device preset and parameters; join several by +
    ///
    /// Such as ssd-128,queue_depth=1. Several devices hold one file system:
    /// fixed,capacity_bytes=268435456+zn540-4tb. `writepath list devices` lists presets and
    /// parameters.
    #[arg(long, value_name = "PRESET", default_value = "ssd-128")]
    device: String,
    /// Workload and options: fio,job=app.fio
    ///
    /// Such as fsync-last,n=10,case=extend. `writepath list workloads` lists workloads and options.
    #[arg(long, value_name = "NAME", default_value = "fsync-last")]
    workload: String,
    /// I/O scheduler [default: cfq until 4.20, mq-deadline from 5.0]
    ///
    /// The default is that of the kernel version. `writepath list elevators` lists the names.
    #[arg(long, value_name = "NAME")]
    elevator: Option<String>,
    /// CPU cost profile: one of `list cpus`
    #[arg(long, value_name = "PROFILE", default_value = "i7-4770")]
    cpu: String,
    /// Seed of every random stream [default: 1, or the experiment's]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// First sector of the partition [default: 2048; 0 on zoned devices]
    ///
    /// The default is 0 also with several devices, and without a file system.
    #[arg(long, value_name = "SECTOR")]
    partition_start: Option<u64>,
    /// Partition size, such as 29GiB [default: the rest of the device]
    #[arg(long, value_name = "BYTES")]
    partition_size: Option<String>,
    /// Start from this image instead of a new file system
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

impl Setup {
    /// Of what has no workload of ours.
    pub(super) fn of(device: &str, elevator: Option<&str>, cpu: &str) -> Setup {
        Setup {
            device: device.to_owned(),
            workload: "fsync-last".to_owned(),
            elevator: elevator.map(str::to_owned),
            cpu: cpu.to_owned(),
            seed: None,
            partition_start: None,
            partition_size: None,
            image: None,
        }
    }

    /// The image to start from.
    pub(super) fn image(&self) -> Option<&std::path::Path> {
        self.image.as_deref()
    }

    /// Was the workload left to us?
    pub(super) fn is_default_workload(&self) -> bool {
        self.workload == "fsync-last"
    }
}

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath run --fs ext4,era=3.4 --workload fsync-last,n=10,case=extend\n\
    \x20 writepath run --fs f2fs,era=6.12 --workload fio,job=app.fio --fio-json fio.json\n\
    \x20 writepath run experiment.toml --jobs 2\n\
    \x20 writepath run --fs btrfs --record run.txt -- ./my-program\n\
    \x20 writepath run --fs f2fs --replay run.txt")]
pub struct Args {
    #[command(flatten)]
    experiment: super::experiment::RunArgs,
    /// File system and options: ext4,nodelalloc [default: ext4,era=4.6]
    ///
    /// `none` is a drive without a file system, for fio jobs with filename=/dev/NAME, whose default
    /// it is.
    ///
    /// The option `era` is the kernel version whose rules the file system follows. Without it that
    /// is the default of `writepath list fs` (ext4: 4.6). That verb lists all options, `writepath
    /// list eras` the rules of each version.
    #[arg(long, value_name = "NAME")]
    fs: Option<String>,
    #[command(flatten)]
    setup: Setup,
    /// Save the partition to this new file after unmount
    #[arg(long, value_name = "FILE")]
    save_image: Option<PathBuf>,
    /// Write a report like fio's --output-format=json (workload fio only)
    #[arg(long, value_name = "FILE")]
    fio_json: Option<PathBuf>,
    /// Events to record: none, calls, requests or all [default: all]
    ///
    /// calls: system calls and marks. requests: also the block layer, the journal and the commands
    /// of the drive. all: also CPU time, wake-ups, and the work inside the drive, which `explain`
    /// needs. The counters and latencies of a result do not depend on it.
    #[arg(long, value_name = "WHICH", conflicts_with = "no_events", hide_possible_values = true)]
    events: Option<Recording>,
    /// The same as --events none; keeps long runs small
    #[arg(long)]
    no_events: bool,
    /// Maximum number of recorded events [default: 2000000]
    #[arg(long, value_name = "N", conflicts_with = "no_events")]
    max_events: Option<usize>,
    /// Results folder
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Run the calls of a recorded program, in virtual time
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "file", "command"])]
    replay: Option<PathBuf>,
    /// Keep the times between calls of a recorded program [default: none]
    ///
    /// A recording has the host's time from each answer to the next call, from 100 us on (steps
    /// `think`). Background writeback and garbage collection go on meanwhile. Without this option
    /// the calls follow each other at once.
    #[arg(long)]
    think: bool,
    /// Write the recorded calls of CMD to this new program file
    #[arg(long, value_name = "FILE", requires = "command")]
    record: Option<PathBuf>,
    /// Run this program of the host in the file system: it is the workload
    ///
    /// The program runs once, with the file system as its working directory, mounted for it alone
    /// (FUSE). Its calls are recorded, and are run again in virtual time: what it does between them
    /// takes no time without --think. Tasks have the names of its processes.
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["workload", "file"])]
    command: Vec<std::ffi::OsString>,
}

/// Which events a run records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Recording {
    /// None.
    None,
    /// System calls and marks.
    Calls,
    /// The same, the block layer, the journal, and work that calls share.
    Requests,
    /// All.
    All,
}

impl Recording {
    /// The classes of events.
    pub(super) fn classes(self) -> Class {
        let calls = Class::SYSCALL.0 | Class::MARK.0;
        match self {
            Recording::None => Class(0),
            Recording::Calls => Class(calls),
            Recording::Requests => Class(calls | Class::BLOCK.0 | Class::JBD2.0 | Class::FS.0),
            Recording::All => Class::ALL,
        }
    }
}

impl Args {
    /// Which events are recorded.
    fn recording(&self) -> Recording {
        if self.no_events { Recording::None } else { self.events.unwrap_or(Recording::All) }
    }
}

/// The file system of `run` and `fio` by default.
pub(super) const FS: &str = "ext4,era=4.6";

/// Default of --max-events: about 12 MB of a result.
const MAX_EVENTS: usize = 2_000_000;

/// A run that is over.
pub(super) struct Ran {
    /// The machine, unmounted.
    pub machine: Machine,
    /// System calls of the workload, and those of them that the storage failed.
    calls: u64,
    failed: Vec<(&'static str, &'static str, u64)>,
    /// What was recorded.
    pub records: Vec<Record>,
    /// Events that were not.
    left_out: u64,
    report: WorkloadReport,
    fs_counters: Vec<(&'static str, u64)>,
    conflicts: Vec<JournalConflict>,
    workload: &'static wp_machine::workload::WorkloadEntry,
    /// What was asked, as TOML.
    resolved: String,
    inputs: Inputs,
}

fn spec(
    fs: &str,
    a: &Setup,
) -> Result<(MachineSpec, &'static wp_machine::workload::WorkloadEntry, Options), String> {
    let (fs, fs_options) = wp_machine::spec::machine_fs(fs)?;
    let ((device, device_params), more) = super::devices(&a.device)?;
    let (name, rest) = super::name_and_rest(&a.workload);
    let workload = registry::find("workload", registry::WORKLOADS, |w| w.name, name)?;
    let options =
        Options::parse(rest, workload.options).map_err(|e| format!("workload {name}: {e}"))?;
    (workload.check)(&options).map_err(|e| format!("workload {name}: {e}"))?;
    let profile = Profile::find(&a.cpu)?;
    let era = fs_options.get("era", fs.options).unwrap_or("4.6").to_owned();
    let version =
        wp_vfs::Version::parse(&era).ok_or_else(|| format!("`{era}` is not a kernel version"))?;
    super::eras::tell(fs, &era);
    let sectors = a.partition_size.as_deref().map(super::size).transpose()?.map(|b| b / 512);
    let kernel = (version.0, version.1);
    let is_zoned =
        wp_device::find(&device).is_some_and(|d| d.params.iter().any(|p| p.name == "zone_bytes"));
    let is_whole = is_zoned || !more.is_empty() || fs.name == registry::NONE.name;
    let start = if is_whole { 0 } else { 2048 };
    let elevator = QueueConfig::for_kernel(kernel, a.elevator.as_deref())?.elevator_text();
    let spec = MachineSpec {
        seed: a.seed.unwrap_or(1),
        cpu: profile.model(),
        device,
        device_params,
        more,
        elevator,
        start: Sector(a.partition_start.unwrap_or(start)),
        sectors,
        fs,
        fs_options,
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel,
    };
    Ok((spec, workload, options))
}

/// The machine of a setup, whatever its workload. Errors: what is wrong with which name.
pub(super) fn machine_spec(fs: &str, a: &Setup) -> Result<MachineSpec, String> {
    spec(fs, a).map(|(spec, _, _)| spec)
}

/// What was asked, every default filled in: what the result's name is the hash of.
fn resolved(
    a: &Setup,
    spec: &MachineSpec,
    workload: &wp_machine::workload::WorkloadEntry,
    options: &Options,
) -> String {
    let mut t = String::new();
    let mut line = |k: &str, v: String| writeln!(t, "{k} = {v}").expect("a string takes it");
    line("schema", "\"writepath/1\"".into());
    line("seed", spec.seed.to_string());
    line("fs.name", format!("{:?}", spec.fs.name));
    for o in spec.fs.options {
        if let Some(v) = spec.fs_options.get(o.key, spec.fs.options) {
            line(&format!("fs.{}", o.key), format!("{v:?}"));
        }
    }
    line("device.name", format!("{:?}", spec.device));
    for (k, v) in &spec.device_params {
        line(&format!("device.{k}"), v.to_string());
    }
    for (n, (name, params)) in spec.more.iter().enumerate() {
        line(&format!("device{}.name", n + 2), format!("{name:?}"));
        for (k, v) in params {
            line(&format!("device{}.{k}", n + 2), v.to_string());
        }
    }
    line("elevator", format!("{:?}", spec.elevator));
    line("cpu", format!("{:?}", a.cpu));
    line("partition_start", spec.start.0.to_string());
    line("partition_sectors", spec.sectors.map_or("\"rest\"".into(), |s| s.to_string()));
    line("workload.name", format!("{:?}", workload.name));
    for o in workload.options {
        if let Some(v) = options.get(o.key, workload.options) {
            line(&format!("workload.{}", o.key), format!("{v:?}"));
        }
    }
    t
}

/// The names of what a run's block events wrote, by the record's index; none without events.
pub(super) fn classes(ran: &Ran) -> FsResult<BTreeMap<usize, String>> {
    let spec = ran.machine.spec();
    let view = ran.machine.view();
    let named = Classifier::of_writes(spec.fs, &spec.fs_options, view, spec.start)?;
    let class = |(i, r): (usize, &Record)| match r.event {
        Event::Block { at, sectors, .. } if is_listed(r) && sectors > 0 => {
            Some((i, named.range(at, sectors)))
        }
        _ => None,
    };
    Ok(ran.records.iter().enumerate().filter_map(class).collect())
}

/// Is there room for the files that the workload lays out, what each takes in bytes? Errors: no,
/// with those that need most.
pub(super) fn verify_room(
    machine: &Machine,
    vfs: &Vfs,
    workload: &str,
    mut needs: Vec<(String, u64)>,
) -> Result<(), MachineError> {
    let all = needs.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
    let fs = vfs.fs().clone();
    let stat = machine
        .block_on("statfs", async move { fs.stat_fs().await })?
        .map_err(|error| MachineError::Fs { during: "statfs", error })?;
    let free = stat.blocks_free.saturating_mul(u64::from(stat.block_bytes));
    if all <= free {
        return Ok(());
    }
    needs.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let mib = |n: u64| n >> 20;
    let named: Vec<String> =
        needs.iter().take(3).map(|(what, n)| format!("{what}: {} MiB", mib(*n))).collect();
    Err(MachineError::Config(format!(
        "workload {}: its files take {} MiB at the start, and the file system has {} MiB free ({}{})",
        workload,
        mib(all),
        mib(free),
        named.join(", "),
        if needs.len() > 3 { ", …" } else { "" }
    )))
}

/// A workload with its options, and the machine that it runs on, before it is made.
struct Asked {
    spec: MachineSpec,
    image: Option<Medium>,
    workload: &'static wp_machine::workload::WorkloadEntry,
    options: Options,
    /// What was asked, as TOML.
    resolved: String,
    inputs: Inputs,
}

/// Runs a workload on a machine; `events`: which are recorded, and how many at most. Errors: told,
/// and the exit code.
pub(super) fn perform(
    fs: &str,
    a: &Setup,
    events: (Recording, usize),
    out: &Out,
) -> Result<Ran, ExitCode> {
    if let Some(code) = super::fio::refused(&a.workload, a.image.is_some(), out) {
        return Err(code);
    }
    let made = spec(fs, a).and_then(|(spec, workload, options)| {
        workload.check_on(&options, spec.fs)?;
        Ok((spec, workload, options))
    });
    let (spec, workload, options) = made.map_err(|e| {
        out.fail(
            Exit::Usage,
            "config",
            &e,
            "`writepath list fs`, `list devices` and `list workloads` list names and options",
        )
    })?;
    let mut resolved = resolved(a, &spec, workload, &options);
    let inputs = (workload.inputs)(&options)
        .map_err(|e| out.fail(Exit::Usage, "config", &e.to_string(), ""))?;
    for (n, (_, bytes)) in inputs.iter().enumerate() {
        writeln!(resolved, "input.{n} = {:?}", sha256(bytes)).expect("a string takes it");
    }
    let image = match &a.image {
        None => None,
        Some(path) => {
            let (m, bytes) = crate::images::load(path, out)?;
            writeln!(resolved, "image_bytes = {bytes}").expect("a string takes it");
            Some(m)
        }
    };
    let asked = Asked { spec, image, workload, options, resolved, inputs };
    asked.play(events).map_err(|e| out.machine_error(&e))
}

impl Asked {
    /// Makes the machine, and runs the workload on it.
    fn play(self, events: (Recording, usize)) -> Result<Ran, MachineError> {
        let Asked { spec, image, workload, options, resolved, inputs } = self;
        let (recording, most) = events;
        let is_new = image.is_none();
        let machine = Machine::new(spec, image)?;
        let now = machine.rt.shared_now();
        let _shown = Progress::asking("run", move || {
            let seconds = now.load(Ordering::Relaxed) as f64 / 1e9;
            format!("{seconds:.1} s of virtual time")
        });
        let vfs = machine.mount()?;
        // What an image holds already may be what the files take.
        if is_new {
            let needs = (workload.room)(&options, machine.spec().fs);
            verify_room(&machine, &vfs, workload.name, needs)?;
        }
        machine.rt.probe().set_limit(most);
        machine.record(recording.classes());
        let v = vfs.clone();
        let mut report = machine
            .block_on("w2", async move { (workload.run)(&v, &options).await })?
            .map_err(|error| MachineError::Fs { during: "workload", error })?;
        let (records, left_out) = (machine.rt.probe().take(), machine.rt.probe().left_out());
        machine.record(Class(0));
        let (calls, failed) = (vfs.calls(), vfs.failed_calls());
        let (fs_counters, conflicts) = (vfs.fs().counters(), vfs.fs().journal_conflicts());
        report.notes.extend(vfs.fs().notes());
        machine.unmount(&vfs)?;
        Ok(Ran {
            machine,
            calls,
            failed,
            records,
            left_out,
            report,
            fs_counters,
            conflicts,
            workload,
            resolved,
            inputs,
        })
    }
}

/// Saves the partition and fio's report where that was asked for.
fn save(
    (image, fio): (Option<Output>, Option<Output>),
    ran: &Ran,
    out: &Out,
) -> Result<(), ExitCode> {
    if let Some(image) = image {
        let (view, path) = (ran.machine.view(), image.path().to_owned());
        wp_machine::files::save_as(&view.medium, view.start, view.bytes, image)
            .map_err(|e| out.host_error(&path, &e))?;
    }
    let Some(fio) = fio else { return Ok(()) };
    let documents = &ran.report.documents;
    let found = documents.iter().find(|(name, _)| name == wp_machine::workload::fio::REPORT);
    let Some((_, document)) = found else { return Err(no_fio_report(out)) };
    let bytes = serde_json::to_vec_pretty(document).unwrap_or_default();
    outputs::finish(fio, &bytes, out)
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(file) = &a.experiment.file {
        return super::experiment::run(file, &a.experiment, (a.setup.seed, &a.out), out);
    }
    match fresh(a, out) {
        Ok(code) | Err(code) => code,
    }
}

/// The file system of a run that names none.
fn default_fs(setup: &Setup) -> String {
    let (name, rest) = super::name_and_rest(&setup.workload);
    let options = Options::parse(rest, fio::ENTRY.options).ok();
    let device = options.filter(|_| name == fio::ENTRY.name).map(|o| fio::device(&o));
    match device {
        Some(Ok(Some(_))) => registry::NONE.name.to_owned(),
        _ => FS.to_owned(),
    }
}

fn no_fio_report(out: &Out) -> ExitCode {
    let help = "use `--workload fio,job=FILE`";
    out.fail(Exit::Usage, "fio-json", "this workload has no fio report", help)
}

/// Runs a workload; the outputs are tried before.
fn fresh(a: &Args, out: &Out) -> Result<ExitCode, ExitCode> {
    let (workload, _) = super::name_and_rest(&a.setup.workload);
    if a.fio_json.is_some() && workload != "fio" {
        return Err(no_fio_report(out));
    }
    outputs::folder(&a.out, out)?;
    let image = outputs::asked(a.save_image.as_deref(), Shape::Image, out)?;
    let fio = outputs::asked(a.fio_json.as_deref(), Shape::Text, out)?;
    if a.max_events == Some(0) {
        let what = "--max-events 0 records nothing";
        return Err(out.fail(Exit::Usage, "max-events", what, "use --events none to record none"));
    }
    // Room for them is taken at once.
    let most = if a.recording() == Recording::None { 0 } else { MAX_EVENTS };
    let events = (a.recording(), a.max_events.unwrap_or(most));
    let fs = a.fs.clone().unwrap_or_else(|| default_fs(&a.setup));
    let scratch;
    let replayed = if a.command.is_empty() {
        a.replay.as_ref().map(|path| path.to_string_lossy().into_owned())
    } else {
        let of_host = |e: std::io::Error| out.host_error(&std::env::temp_dir(), &e);
        scratch = Scratch::new("writepath-recording").map_err(of_host)?;
        let path = scratch.path().join("recording.txt");
        let program = recorded(a, &fs, out)?;
        std::fs::write(&path, program.to_string()).map_err(|e| out.host_error(&path, &e))?;
        Some(path.to_string_lossy().into_owned())
    };
    if a.think && replayed.is_none() {
        let what = "--think is of a recorded program";
        return Err(out.fail(Exit::Usage, "think", what, "add --replay FILE, or -- CMD"));
    }
    let ran = match replayed {
        None => perform(&fs, &a.setup, events, out)?,
        Some(file) => {
            let think = if a.think { ",think=1" } else { "" };
            let workload = format!("program,file={file}{think}");
            let setup = Setup { workload, ..a.setup.clone() };
            perform(&fs, &setup, events, out)?
        }
    };
    save((image, fio), &ran, out)?;
    result::keep(a, ran, out)
}

/// Runs the program of the host on a machine of its own, and says what was recorded.
fn recorded(a: &Args, fs: &str, out: &Out) -> Result<Program, ExitCode> {
    let file = outputs::asked(a.record.as_deref(), Shape::Text, out)?;
    let spec = machine_spec(fs, &a.setup);
    let spec = spec.map_err(|e| out.fail(Exit::Usage, "config", &e, "writepath run --help"))?;
    let image = match &a.setup.image {
        Some(path) => Some(crate::images::load(path, out)?.0),
        None => None,
    };
    let is_new = image.is_none();
    let machine = Machine::new(spec, image).map_err(|e| out.machine_error(&e))?;
    let vfs = machine.mount().map_err(|e| out.machine_error(&e))?;
    let done = wp_fuse::record_on((&machine, &vfs, is_new), &a.command, &out.interrupt());
    let recording = super::host_program::told(&a.command, done, out)?;
    let program = recording.program();
    if let Some(file) = file {
        outputs::finish(file, program.to_string().as_bytes(), out)?;
    }
    Ok(program)
}
