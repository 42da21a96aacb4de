//! `kernels random`: random programs here and in a guest.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_machine::registry;
use wp_parity::vtime::guest::Guest;
use wp_parity::vtime::random::{
    CALLS, CallDifference, Extras, Verdict, both, findings, generate, name_of,
};
use wp_parity::vtime::shrink::shrink;
use wp_parity::vtime::{CONFIGS, Config, Program};
use wp_vfs::Offers;
use wp_workload::program::NO_THREADS;

use super::scratch;
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// A program, and the configuration that it runs on.
type Case = (&'static Config, Program);

/// Arguments.
#[derive(clap::Args)]
pub(super) struct RandomArgs {
    /// Seed of the first program; the next ones follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of programs
    #[arg(long, default_value_t = 200)]
    programs: u32,
    /// Approximate number of system calls of a program
    #[arg(long, default_value_t = CALLS)]
    calls: u32,
    /// File systems, joined by commas, in all configurations
    #[arg(long, default_value = "ext4", value_delimiter = ',')]
    fs: Vec<String>,
    /// Use this configuration only, and ignore --fs
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    config: String,
    /// Generate programs without O_DIRECT, O_DSYNC and O_SYNC
    #[arg(long)]
    no_direct: bool,
    /// Generate programs without fallocate
    #[arg(long)]
    no_fallocate: bool,
    /// Generate programs with pread of what is not cached, and posix_fadvise
    #[arg(long)]
    reads: bool,
    /// Generate programs with io_submit and io_getevents
    #[arg(long)]
    aio: bool,
    /// Generate programs with every call that programs have
    ///
    /// Files without a name, renameat2, mknod, chmod, chown, utimensat, stores through mappings,
    /// msync, sync_file_range, collapse and insert range, O_APPEND, copy_file_range, reflink,
    /// chattr, lseek for data and holes.
    #[arg(long)]
    all_calls: bool,
    /// Compare the requests and flushes of each call, too
    ///
    /// As /sys/block/DEVICE/stat counts them: reads, writes and discards sent to the device, and
    /// flushes that ended, from the beginning of the call to its end.
    #[arg(long)]
    requests: bool,
    /// Number of differing programs to minimise
    #[arg(long, default_value_t = 3)]
    shrink: u32,
    /// Folder of the guest [default: $GUEST or ~/.cache/kernel-guest]
    ///
    /// It has the kernel `linux` and the root directory `root`. `writepath kernel-lab --setup
    /// build` makes it.
    #[arg(long, value_name = "DIR")]
    guest: Option<PathBuf>,
    /// Run this program file instead, on --config
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Programs that share a boot.
const BATCH: usize = 50;

/// Compares random programs, or a given one.
pub(super) fn run(a: &RandomArgs, out: &Out) -> ExitCode {
    let kernel = match super::guest(a.guest.as_deref(), out) {
        Ok(kernel) => kernel,
        Err(code) => return code,
    };
    let scratch = match scratch("writepath-guest", out) {
        Ok(scratch) => scratch,
        Err(code) => return code,
    };
    let guest = match Guest::new(&kernel, scratch.path()) {
        Ok(guest) => guest,
        Err(why) => {
            return out.fail(Exit::Unsupported, "guest", &why, "apt-get install gcc libc6-dev");
        }
    };
    match on(a, &guest, out) {
        Ok(code) | Err(code) => code,
    }
}

/// The configurations that are asked for. Errors: there is none of that name, and that was told.
fn configs(a: &RandomArgs, out: &Out) -> Result<Vec<&'static Config>, ExitCode> {
    if let Some(other) = a.fs.iter().find(|f| !CONFIGS.iter().any(|c| c.fs == f.as_str())) {
        return Err(out.fail(
            Exit::Usage,
            "fs",
            &format!("no configuration of a file system called `{other}`"),
            "use ext4, f2fs, nilfs2 or btrfs",
        ));
    }
    let wanted = |c: &&Config| a.fs.iter().any(|f| f == c.fs) && c.not_modelled.is_empty();
    if a.config.is_empty() {
        return Ok(CONFIGS.iter().filter(wanted).collect());
    }
    let found = wp_parity::vtime::config::find(&a.config);
    found.map(|c| vec![c]).map_err(|why| out.fail(Exit::Usage, "config", &why, ""))
}

/// The programs, each with its configuration. Errors: what is wrong in a given one, which was told.
fn programs(a: &RandomArgs, out: &Out) -> Result<Vec<Case>, ExitCode> {
    let configs = configs(a, out)?;
    let Some(path) = &a.program else {
        let extras = Extras {
            direct: !a.no_direct,
            fallocate: !a.no_fallocate,
            aio: a.aio,
            reads: a.reads,
            calls: a.all_calls,
            offers: Offers::ALL,
        };
        let made = (0..a.programs).map(|i| {
            let config = configs[i as usize % configs.len()];
            let offers = registry::find_fs(config.fs).map_or(Offers::NONE, |fs| fs.offers);
            (config, generate(a.seed + u64::from(i), a.calls, Extras { offers, ..extras }))
        });
        return Ok(made.collect());
    };
    let text = wp_machine::host::text::read(path).map_err(|e| out.host_error(path, &e))?;
    match Program::parse(&text) {
        Ok(p) if p.has_threads() => {
            let what = format!("{}: {NO_THREADS}", path.shown());
            Err(out.fail(Exit::Usage, "program", &what, "remove its threads"))
        }
        Ok(p) => Ok(vec![(configs[0], p)]),
        Err(why) => Err(out.fail(Exit::Usage, "program", &why, "")),
    }
}

/// Runs the programs in the guest and here.
fn on(a: &RandomArgs, guest: &Guest, out: &Out) -> Result<ExitCode, ExitCode> {
    let mut programs = programs(a, out)?;
    let stop = out.interrupt_in_parts();
    let stopped = || stop.load(Ordering::SeqCst);
    let failed = |why: String| out.fail(Exit::HostIo, "guest", &why, "");
    let mut verdicts = Vec::new();
    let shown = Progress::new("kernels random");
    shown.at(0, programs.len() as u64, "programs");
    for batch in programs.chunks(BATCH) {
        let batch: Vec<(&Config, &Program)> = batch.iter().map(|(c, p)| (*c, p)).collect();
        match both(guest, &batch, a.requests) {
            Ok(v) => verdicts.extend(v),
            Err(_) if stopped() => {}
            Err(why) => return Err(failed(why)),
        }
        let different = verdicts.iter().filter(|v| matches!(v, Verdict::Different(_))).count();
        let (done, all) = (verdicts.len(), programs.len());
        shown.at(done as u64, all as u64, format_args!("programs, {different} different"));
        if stopped() {
            break;
        }
    }
    drop(shown);
    programs.truncate(verdicts.len());
    let mut small = Vec::new();
    for ((config, program), verdict) in programs.iter().zip(&verdicts) {
        if stopped() {
            break;
        }
        if small.len() < a.shrink as usize && matches!(verdict, Verdict::Different(_)) {
            match shrink(guest, config, program, a.requests) {
                Ok(p) => small.push((config.name, p)),
                Err(_) if stopped() => {}
                Err(why) => return Err(failed(why)),
            }
        }
    }
    report(out, (&programs, &verdicts, &small), (a.requests, stopped()))
}

/// Numbers of a configuration's programs.
#[derive(Clone, Copy, Default)]
struct Counts {
    programs: usize,
    equal: usize,
    different: usize,
    not_run: usize,
    equal_calls: usize,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        self.programs += 1;
        match verdict {
            Verdict::Same(calls) => {
                self.equal += 1;
                self.equal_calls += calls;
            }
            Verdict::Different(_) => self.different += 1,
            Verdict::NotRun(_) => self.not_run += 1,
        }
    }

    fn row(&self, name: &str) -> String {
        format!(
            "{name:<22} {:>9} {:>7} {:>10} {:>8} {:>10}\n",
            self.programs, self.equal, self.different, self.not_run, self.equal_calls
        )
    }
}

/// The table: a row for each configuration, and all of them.
fn table(programs: &[Case], verdicts: &[Verdict]) -> (String, Vec<Value>, Counts) {
    let mut t = format!(
        "{:<22} {:>9} {:>7} {:>10} {:>8} {:>10}\n",
        "configuration", "programs", "equal", "different", "not run", "equal calls"
    );
    let (mut rows, mut all) = (Vec::new(), Counts::default());
    verdicts.iter().for_each(|v| all.add(v));
    for config in CONFIGS {
        let mut n = Counts::default();
        let of = programs.iter().zip(verdicts).filter(|((c, _), _)| c.name == config.name);
        of.for_each(|(_, v)| n.add(v));
        if n.programs > 0 {
            t += &n.row(config.name);
            rows.push(json!({ "config": config.name, "programs": n.programs, "equal": n.equal,
                "different": n.different, "not_run": n.not_run, "equal_calls": n.equal_calls }));
        }
    }
    t += &all.row("all");
    (t, rows, all)
}

/// Programs that were not run, or differ.
fn differing(programs: &[Case], verdicts: &[Verdict]) -> (String, Vec<Value>) {
    let (mut t, mut differing) = (String::new(), Vec::new());
    for ((config, program), v) in programs.iter().zip(verdicts) {
        let name = name_of(program);
        match v {
            Verdict::Same(_) => {}
            Verdict::NotRun(why) => {
                writeln!(t, "{} {name}: not run: {why}", config.name).expect(LINE);
            }
            Verdict::Different(list) => {
                let calls: Vec<String> = list.iter().map(difference).collect();
                writeln!(t, "{} {name}: {}", config.name, calls.join("; ")).expect(LINE);
                differing.push(json!({ "config": config.name, "program": name, "calls": list }));
            }
        }
    }
    (t, differing)
}

/// Tells what came of it. `requests`: they were compared too.
fn report(
    out: &Out,
    (programs, verdicts, small): (&[Case], &[Verdict], &[(&str, Program)]),
    (requests, stopped): (bool, bool),
) -> Result<ExitCode, ExitCode> {
    let mut t = format!(
        "Device waits of each call of random programs: Writepath against a Linux 6.12 guest\n\
         in virtual time. A wait is 100 us. A call that is less than 5 us short of a wait\n\
         counts as one, on both sides: reading the guest's clock takes 256 ns of it.\n{}\n",
        match requests {
            true =>
                "Requests sent to the device and flushes that ended in each call are compared, too.\n",
            false => "",
        }
    );
    let (table, rows, all) = table(programs, verdicts);
    let (lines, differing) = differing(programs, verdicts);
    t += &(table + &lines);
    let ran: Vec<(&Config, &Program)> = programs.iter().map(|(c, p)| (*c, p)).collect();
    let findings = findings(&ran, verdicts, requests)
        .map_err(|why| out.fail(Exit::Bug, "random.toml", &why, ""))?;
    if all.not_run > 0 {
        writeln!(t, "{} of {} programs did not run", all.not_run, all.programs).expect(LINE);
    }
    match findings.len() {
        0 => writeln!(t, "every difference is listed in kernels/linux-6.12/random.toml"),
        n => writeln!(t, "{n} calls do not match kernels/linux-6.12/random.toml:"),
    }
    .expect(LINE);
    for f in &findings {
        writeln!(t, "  {f}").expect(LINE);
    }
    let mut smallest = Vec::new();
    for (config, program) in small {
        writeln!(t, "\nsmallest differing program, on {config}:\n{program}").expect(LINE);
        smallest.push(json!({ "config": config, "program": program.to_string() }));
    }
    let doc = json!({ "schema": "writepath.kernels.random/1",
        "programs": all.equal + all.different, "configs": rows,
        "differing": differing, "findings": findings, "smallest": smallest });
    let exit = match (stopped, findings.is_empty()) {
        (true, _) => Exit::Interrupted,
        // Of those that did not run nothing is known.
        (_, true) if all.not_run > 0 => Exit::Simulated,
        (_, true) => Exit::Ok,
        (_, false) => Exit::No,
    };
    Ok(out.answer(exit, &doc, &t))
}

fn difference(d: &CallDifference) -> String {
    format!("{}: Writepath {}, Linux {}", d.call, d.ours, d.theirs)
}
