//! `kernel-lab`: a real kernel's file system on a modelled drive, and power failures.

mod setup;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use wp_machine::host::{Scratch, Shape};
use wp_machine::profile::Profile;
use wp_machine::spec::device;
use wp_parity::kernel_lab::fsyncs;
use wp_parity::kernel_lab::suite::{LEGEND, Row, SUITES};
use wp_parity::kernel_lab::{
    CutBy, Cycle, FILE_SYSTEMS, Keep, Kernel, MOST_JOBS, Outcome, Plan, Report, run as lab,
};
use wp_serve::drive::Log;
use wp_serve::drive::freeze::Loss;

use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args, Clone)]
#[command(after_help = "Examples:\n\
    \x20 writepath kernel-lab --setup check\n\
    \x20 writepath kernel-lab --fs f2fs --cycles 1000\n\
    \x20 writepath kernel-lab --suite ext4")]
pub struct Args {
    /// Check, copy or build the guest: check, take or build
    ///
    /// check: lists what the guest has, and crashes each file system once. take: copies --kernel
    /// and --root to the folder where they are looked for. build: makes what of them is not named:
    /// a root directory of this host's programs, a kernel of Debian's source.
    #[arg(long, value_name = "check|take|build", conflicts_with = "suite")]
    #[arg(help_heading = "Guest")]
    setup: Option<String>,
    /// With --setup build: kernel source, an archive or a tree
    ///
    /// Default: the newest /usr/src/linux-source-*.tar.xz.
    #[arg(long, value_name = "FILE|DIR", requires = "setup")]
    #[arg(help_heading = "Guest", hide_short_help = true)]
    source: Option<PathBuf>,
    /// With --setup: target folder [default: $GUEST or ~/.cache/kernel-guest]
    #[arg(long, value_name = "DIR", requires = "setup")]
    #[arg(help_heading = "Guest", hide_short_help = true)]
    to: Option<PathBuf>,
    /// Run a suite of campaigns, one table: f2fs-oprw, ext4 or others
    ///
    /// f2fs-oprw is table 6.2 of that paper.
    #[arg(long, value_name = "NAME")]
    #[arg(conflicts_with_all = ["fs", "mount", "device", "jobs", "trace", "all"])]
    suite: Option<String>,
    /// File system of the guest: ext4, f2fs, btrfs, nilfs2 or xfs
    #[arg(long, default_value = "ext4")]
    fs: String,
    /// Mount options, joined by commas
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    #[arg(hide_default_value = true)]
    mount: String,
    /// Further arguments of mkfs
    #[arg(long, value_name = "ARGUMENTS", default_value = "", allow_hyphen_values = true)]
    #[arg(hide_default_value = true)]
    mkfs: String,
    /// Drive preset and parameters
    #[arg(long, value_name = "PRESET", default_value = "ssd-128,capacity_bytes=536870912")]
    device: String,
    /// Writes a power failure may lose: model or contract
    ///
    /// model: writes that the drive model has not made durable. contract: every write that neither
    /// a flush nor FUA covers.
    #[arg(long, value_name = "model|contract", default_value = "model")]
    #[arg(help_heading = "Power failures")]
    loss: String,
    /// Number of power failures
    #[arg(long, default_value_t = 100)]
    #[arg(help_heading = "Power failures")]
    cycles: u64,
    /// Seed of program, crash points and lost writes
    #[arg(long, default_value_t = 1)]
    #[arg(help_heading = "Power failures")]
    seed: u64,
    /// Crash points are drawn by: event, time or change
    ///
    /// event: submissions and completions of the drive. time: virtual time. change: requests that
    /// change data.
    #[arg(long, value_name = "event|time|change", default_value = "event")]
    #[arg(help_heading = "Power failures")]
    cut: String,
    /// Threads, each with its own file
    #[arg(long, default_value_t = 1)]
    #[arg(help_heading = "Workload")]
    jobs: u64,
    /// File size in blocks of 4 KiB
    #[arg(long, default_value_t = 64)]
    #[arg(help_heading = "Workload")]
    blocks: u64,
    /// Overwrites with fsync per thread and power failure
    #[arg(long, default_value_t = 16)]
    #[arg(help_heading = "Workload")]
    ops: u64,
    /// Write with O_DIRECT
    #[arg(long)]
    #[arg(help_heading = "Workload")]
    direct: bool,
    /// Call sync(2) after every N overwrites of a thread; 0: never
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(help_heading = "Workload")]
    sync: u64,
    /// CPU cost profile of the guest (`list cpus`)
    ///
    /// The program is charged the cost of its system calls; requests and completions of the drive
    /// are delayed by the other costs.
    #[arg(long, value_name = "PROFILE", default_value = "free")]
    #[arg(help_heading = "Workload")]
    cpu: String,
    /// Also run the program on Writepath's own file system; compare fsync times
    ///
    /// The same drive and program, without power failures.
    #[arg(long)]
    #[arg(help_heading = "Results")]
    beside: bool,
    /// User-Mode Linux kernel with time travel [default: in $GUEST]
    ///
    /// Without --kernel and $GUEST: the one in ~/.cache/kernel-guest.
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Guest")]
    kernel: Option<PathBuf>,
    /// Root directory of the guest [default: in $GUEST]
    ///
    /// Without --root and $GUEST: the one in ~/.cache/kernel-guest.
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = "Guest")]
    root: Option<PathBuf>,
    /// Memory of the guest, in MiB
    #[arg(long, default_value_t = 512)]
    #[arg(help_heading = "Guest", value_name = "MIB")]
    memory: u32,
    /// Write every request and completion of the drive, in blkparse format
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "Results")]
    trace: Option<PathBuf>,
    /// Write images of the first four failed crash states to a folder
    ///
    /// States that lost data, or that Writepath recovers to other files than the kernel.
    #[arg(long, value_name = "DIR")]
    #[arg(help_heading = "Results")]
    keep: Option<PathBuf>,
    /// Write the guest's kernel log (dmesg) at its end
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    #[arg(help_heading = "Results")]
    messages: Option<PathBuf>,
    /// Print every power failure
    #[arg(long)]
    #[arg(help_heading = "Results")]
    all: bool,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let done = match (&a.setup, &a.suite) {
        (Some(what), _) => setup::run(a, what, out),
        (_, Some(name)) => suite(a, name, out),
        (None, None) => Session::new(a, out).and_then(|s| Ok(print(a, &s.campaign(a, "")?, out))),
    };
    match done {
        Ok(code) | Err(code) => code,
    }
}

/// What campaigns have in common.
struct Session<'a> {
    kernel: Kernel,
    out: &'a Out,
    stop: Arc<AtomicBool>,
}

impl Session<'_> {
    fn new<'a>(a: &Args, out: &'a Out) -> Result<Session<'a>, ExitCode> {
        let kernel = Kernel::find(a.kernel.as_deref(), a.root.as_deref()).map_err(|e| {
            out.fail(
                Exit::Unsupported,
                "guest",
                &e,
                "kernel-lab --setup build; or --kernel FILE --root DIR, or GUEST=DIR",
            )
        })?;
        let kernel = Kernel { memory_mib: a.memory, ..kernel };
        Ok(Session { kernel, out, stop: out.interrupt() })
    }

    /// Runs one. `of` says in its progress which.
    fn campaign(&self, a: &Args, of: &str) -> Result<Report, ExitCode> {
        let out = self.out;
        let plan = plan(a, out)?;
        let scratch = scratch(out)?;
        let recorded = outputs::asked(a.trace.as_deref(), Shape::Text, out)?;
        let trace = recorded.as_ref().map(|file| file.file().try_clone()).transpose();
        let trace = trace.map_err(|e| out.host_error(scratch.path(), &e))?;
        let trace = trace.map(|file| Log::new(Box::new(file)));
        let said = outputs::asked(a.messages.as_deref(), Shape::Text, out)?;
        let shown = Progress::new("kernel-lab");
        let mut progress = |done: u64| {
            shown.at(done, plan.cycles, format_args!("{of}power failures"));
            self.stop.load(Ordering::Relaxed)
        };
        if let Some(folder) = &a.keep {
            outputs::empty_folder(folder, out)?;
        }
        let keep = Keep { trace, images: a.keep.as_deref(), messages: said };
        let done = lab(&self.kernel, &plan, scratch.path(), keep, &mut progress);
        drop(shown);
        // The report is what is kept.
        drop(scratch);
        // What has failed is looked for in it.
        if let Some(file) = recorded {
            outputs::finish(file, &[], out)?;
        }
        let mut report = done.map_err(|e| out.fail(Exit::Simulated, "guest", &e, ""))?;
        if a.beside {
            let rounds: Vec<u64> = report.cycles.iter().map(|c| c.fsyncs).collect();
            match fsyncs::play(&plan, &report.kernel, &rounds) {
                Ok(ours) => report.ours_fsyncs = Some(ours),
                Err(why) => out.note(&format!("{of}Writepath's file system cannot run it: {why}")),
            }
        }
        Ok(report)
    }
}

/// A directory for what a guest and we share.
fn scratch(out: &Out) -> Result<Scratch, ExitCode> {
    let made = Scratch::new("writepath-kernel-lab");
    made.map_err(|e| {
        out.fail(Exit::HostIo, "host-io", &e.to_string(), "set TMPDIR to a writable folder")
    })
}

/// The column that `--beside` adds to a suite's table: its head, or what ours took.
fn ours_column(a: &Args, report: Option<&Report>) -> String {
    match (a.beside, report.map(|r| r.ours_fsyncs)) {
        (false, _) => String::new(),
        (true, None) => format!(" {:>9}", "sim ns"),
        (true, Some(None)) => format!(" {:>9}", "-"),
        (true, Some(Some(ours))) => format!(" {:>9}", ours.mean_ns()),
    }
}

/// Runs a suite; what was done before an interruption is in the table.
fn suite(a: &Args, name: &str, out: &Out) -> Result<ExitCode, ExitCode> {
    let Some(suite) = SUITES.iter().find(|s| s.name == name) else {
        let known: Vec<&str> = SUITES.iter().map(|s| s.name).collect();
        let message = format!("--suite {name}: unknown suite");
        return Err(out.fail(
            Exit::Usage,
            "suite",
            &message,
            &format!("suites: {}", known.join(", ")),
        ));
    };
    let session = Session::new(a, out)?;
    let mut text = String::new();
    let mut documents = Vec::new();
    let (mut sound, mut stopped) = (true, false);
    for row in suite.rows {
        let mut args = a.clone();
        args.fs = row.fs.to_owned();
        args.mount = row.mount.to_owned();
        args.device = row.device.to_owned();
        args.jobs = row.jobs;
        args.keep = a.keep.as_ref().map(|k| k.join(row.name().replace(' ', "-")));
        let report = session.campaign(&args, &format!("{}: ", row.name()))?;
        if text.is_empty() {
            text = format!(
                "Linux {}, {}; --loss {}, --cut {}, --seed {}{}\n{}{}\n",
                report.kernel,
                suite.about,
                a.loss,
                a.cut,
                a.seed,
                on_cpu(a),
                Row::head(),
                ours_column(a, None)
            );
        }
        let line = row.line(&report) + &ours_column(a, Some(&report));
        text.push_str(&line);
        text.push('\n');
        out.note(&line);
        sound &= report.is_sound();
        stopped |= report.stopped;
        documents.push(document(&args, &report));
        if stopped {
            break;
        }
    }
    text.push_str(LEGEND);
    if a.beside {
        text.push_str("sim ns: the same of Writepath's file system on the same drive, without power failures\n");
    }
    let all = json!({ "schema": "writepath.kernel-lab-suite/1", "suite": name, "rows": documents });
    Ok(out.answer(exit(stopped, sound), &all, &text))
}

/// Whose CPU, if it costs something.
fn on_cpu(a: &Args) -> String {
    if a.cpu == "free" { String::new() } else { format!(", CPU of {}", a.cpu) }
}

fn exit(stopped: bool, sound: bool) -> Exit {
    match (stopped, sound) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Ok,
        (false, false) => Exit::No,
    }
}

fn plan(a: &Args, out: &Out) -> Result<Plan, ExitCode> {
    let wrong = |code: &str, message: &str, help: &str| out.fail(Exit::Usage, code, message, help);
    let Some(loss) = Loss::find(&a.loss) else {
        let message = format!("--loss {}: use model or contract", a.loss);
        return Err(wrong("loss", &message, "--loss model"));
    };
    if !FILE_SYSTEMS.contains(&a.fs.as_str()) {
        let message = format!("--fs {}: not supported", a.fs);
        return Err(wrong("fs", &message, &format!("file systems: {}", FILE_SYSTEMS.join(", "))));
    }
    let Some(cut) = CutBy::find(&a.cut) else {
        let message = format!("--cut {}: use event, time or change", a.cut);
        return Err(wrong("cut", &message, "--cut event"));
    };
    for (what, n, most) in [
        ("cycles", a.cycles, 1_000_000),
        ("jobs", a.jobs, MOST_JOBS),
        ("blocks", a.blocks, 1 << 18),
        ("ops", a.ops, 1 << 20),
    ] {
        if !(1..=most).contains(&n) {
            let message = format!("--{what} {n}: must be from 1 to {most}");
            return Err(wrong(what, &message, ""));
        }
    }
    let device = device(&a.device).map_err(|e| wrong("device", &e, "writepath list devices"))?;
    Ok(Plan {
        fs: a.fs.clone(),
        mount: a.mount.clone(),
        mkfs: a.mkfs.clone(),
        device,
        loss,
        cycles: a.cycles,
        seed: a.seed,
        cut,
        jobs: a.jobs,
        blocks: a.blocks,
        ops: a.ops,
        direct: a.direct,
        sync: a.sync,
        cpu: Profile::find(&a.cpu).map_err(|e| wrong("cpu", &e, "writepath list cpus"))?,
    })
}

/// A cycle in a line.
fn line(c: &Cycle, unit: &str) -> String {
    let ours = match c.ours.as_ref().map(|o| &o.outcome) {
        Some(Outcome::Refused(why)) if c.differs() => {
            format!("; Writepath refuses the mount: {why}")
        }
        Some(Outcome::Files(_)) if c.differs() => "; Writepath recovers other files".to_owned(),
        _ => String::new(),
    };
    let early = match c.early {
        Some(n) if c.lost > 0 => format!(" ({n} early)"),
        _ => String::new(),
    };
    format!(
        "power failure {} after {} {unit}: {} of {} unpersisted writes kept, {} zones rolled back; mount \
         {}, lost {}{early}, garbage {}, unreadable {}{ours}\n",
        c.cycle,
        c.into,
        c.kept,
        c.in_doubt,
        c.zones_back,
        c.mount_error,
        c.lost,
        c.garbage,
        c.unreadable
    )
}

fn print(a: &Args, report: &Report, out: &Out) -> ExitCode {
    let mount = if a.mount.is_empty() { String::new() } else { format!(",{}", a.mount) };
    let mut text = format!(
        "Linux {} {}{mount} on {}, --loss {}, --cut {}, --seed {}{}\n",
        report.kernel,
        a.fs,
        a.device,
        a.loss,
        a.cut,
        a.seed,
        on_cpu(a)
    );
    let unit = match CutBy::find(&a.cut) {
        Some(CutBy::Time) => "ns",
        Some(CutBy::Change) => "changes",
        Some(CutBy::Event) | None => "events",
    };
    text.push_str(&report.table());
    for c in report.cycles.iter().filter(|c| a.all || !c.is_sound() || c.differs()) {
        text.push_str(&line(c, unit));
    }
    out.answer(exit(report.stopped, report.is_sound()), &document(a, report), &text)
}

/// A campaign as JSON.
fn document(a: &Args, report: &Report) -> Value {
    json!({
        "schema": "writepath.kernel-lab/1",
        "fs": a.fs, "mount": a.mount, "device": a.device, "loss": a.loss, "cut": a.cut,
        "jobs": a.jobs, "direct": a.direct, "sync": a.sync, "cpu": a.cpu, "seed": a.seed,
        "fsync_mean_ns": report.fsync_mean_ns(),
        "ours_fsync_mean_ns": report.ours_fsyncs.map(|ours| ours.mean_ns()),
        "lost": report.count(|c| c.lost > 0),
        "lost_early": report.early(),
        "garbage": report.count(|c| c.garbage > 0),
        "unreadable": report.count(|c| c.unreadable > 0),
        "mount_failed": report.count(|c| c.mount_error > 0),
        "oprw_garbage": report.oprw_garbage(),
        "ours_otherwise": report.otherwise(),
        "report": report,
    })
}
