//! `kernels`: ours beside real kernels, call by call.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_machine::host::Scratch;
use wp_machine::registry;
use wp_parity::recovered;
use wp_parity::roundtrip::{Plan, trips};
use wp_parity::vtime::compare::{Compared, Report, Row};
use wp_parity::vtime::guest::Guest;
use wp_parity::vtime::random::{
    CALLS, CallDifference, Extras, Verdict, both, findings, generate, name_of,
};
use wp_parity::vtime::shrink::shrink;
use wp_parity::vtime::{CONFIGS, Config, Program, compare_recorded};
use wp_workload::program::NO_THREADS;

use wp_vfs::Offers;

use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath kernels waits\n\
    \x20 writepath kernels recovery\n\
    \x20 writepath kernels crash examples/xfstests --guest\n\
    \x20 writepath kernels random --programs 50 --fs f2fs")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Compare device waits of recorded programs with Linux 6.12.
    ///
    /// For each system call: how often it waits for the device, and which requests follow it. Exit
    /// code 1 if a difference is not listed, or a listed one is gone.
    Waits(WaitsArgs),
    /// Compare device waits of random programs with a Linux 6.12 guest.
    ///
    /// Boots the guest (`uml.sh`), runs each program in it and here, and prints the smallest
    /// program of some that differ. Exit code 1 if a difference is not listed, or a listed one is
    /// gone.
    Random(RandomArgs),
    /// Compare the blocks that an fsync writes with recorded Linux 6.18 runs.
    ///
    /// Blocks of new files, of the fsync of the last and of the 70 s after it: class, flags, order
    /// and second. Exit code 1 if a difference is not listed, or a listed one is gone.
    Blocks(super::today::Args),
    /// Recover images of crashed real kernels, and compare the files.
    ///
    /// Images that real kernels left at a power failure, and a dm-log-writes log replayed to each
    /// mark. Compares every file with what the kernel recovered. Only reads the images. Exit code 1
    /// if a file differs.
    Recovery(RecoveryArgs),
    /// Recover crash states here and with a real kernel, and compare the files.
    ///
    /// Explores power failures of generated programs in several kernel versions and mount modes,
    /// recovers each state here and with the host's kernel (on loop devices; needs root), and
    /// compares every file. With PROGRAMS the programs are given, and the kernel may be a guest's.
    /// Exit code 1 if a file differs.
    Crash(super::kernel_crash::Args),
    /// Exchange images with a Linux 6.12 guest, and compare their files.
    ///
    /// The guest (`uml.sh`) mounts, lists and changes images that Writepath wrote, cleanly
    /// unmounted or crashed; Writepath then checks, lists and mounts them again. Exit code 1 if a
    /// file differs.
    Mounts(MountsArgs),
}

#[derive(clap::Args)]
struct MountsArgs {
    /// File system and options (`,zoned`: as --zoned)
    #[arg(long, default_value = "ext4,era=6.12.117")]
    fs: String,
    /// Seed of the first program; each image uses two
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of images
    #[arg(long, default_value_t = 40)]
    images: u64,
    /// Mount options of the guest
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    mount: String,
    /// Use a zoned device: 256 MiB, zones of 4 MiB, the first 16 conventional
    #[arg(long)]
    zoned: bool,
    /// Round trips of each image; every second one crashes the guest
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Make the first image with this host's mkfs and these arguments
    #[arg(long)]
    mkfs: Option<String>,
    /// Script that boots the guest [default: uml.sh beside the repository]
    ///
    /// Default: ../shared/tools/kernel-guest/uml.sh. `uml-setup.sh` puts what the script needs into
    /// ~/.cache/kernel-guest.
    #[arg(long)]
    guest: Option<PathBuf>,
}

#[derive(clap::Args)]
struct RecoveryArgs {
    /// Folder of the reference images [default: testdata/reference]
    #[arg(long)]
    reference: Option<PathBuf>,
}

#[derive(clap::Args)]
struct RandomArgs {
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
    /// Script that boots the guest [default: uml.sh beside the repository]
    ///
    /// Default: ../shared/tools/kernel-guest/uml.sh. `uml-setup.sh` puts what the script needs into
    /// ~/.cache/kernel-guest.
    #[arg(long)]
    guest: Option<PathBuf>,
    /// Run this program file instead, on --config
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(clap::Args)]
struct WaitsArgs {
    /// Compare this configuration only, such as ext4-default
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    config: String,
    /// Print every call and second, also equal ones
    #[arg(long)]
    all: bool,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match &a.what {
        What::Waits(w) => waits(w, out),
        What::Random(r) => random(r, out),
        What::Blocks(b) => super::today::run(b, out),
        What::Recovery(r) => recovery(r, out),
        What::Crash(c) => super::kernel_crash::run(c, out),
        What::Mounts(m) => mounts(m, out),
    }
}

/// Images of one boot: each is 64 MiB.
const IMAGES_A_BOOT: u64 = 20;

fn mounts(a: &MountsArgs, out: &Out) -> ExitCode {
    let named = a.fs.strip_suffix(",zoned");
    let zoned = a.zoned || named.is_some();
    let (fs, options) = match wp_machine::spec::file_system(named.unwrap_or(&a.fs)) {
        Ok(found) => found,
        Err(e) => {
            return out.fail(Exit::Usage, "fs", &e, "`writepath list fs` lists names and options");
        }
    };
    let script = a.guest.clone().unwrap_or_else(Guest::usual_place);
    if let Err(why) = Guest::is_ready(&script) {
        let help = "a User-Mode Linux 6.12 with its uml.sh is needed; see --guest";
        return out.fail(Exit::Unsupported, "guest", &why, help);
    }
    let scratch = match scratch("writepath-mounts", out) {
        Ok(scratch) => scratch,
        Err(code) => return code,
    };
    let mut all = Vec::new();
    let shown = Progress::new("kernels mounts");
    for first in (0..a.images).step_by(IMAGES_A_BOOT as usize) {
        shown.at(first, a.images, "images");
        let count = IMAGES_A_BOOT.min(a.images - first);
        let seeds = (a.seed + 2 * first, count);
        let plan = Plan {
            fs,
            options: &options,
            kernel_mount: &a.mount,
            seeds,
            zoned,
            real_mkfs: a.mkfs.as_deref(),
            rounds: a.rounds,
        };
        match trips(&script, scratch.path(), &plan) {
            Ok(some) => all.extend(some),
            Err(e) => {
                return out.fail(
                    Exit::HostIo,
                    "guest",
                    &e,
                    "--guest FILE names the script that boots it",
                );
            }
        }
    }
    drop((shown, scratch));
    let differ = all.iter().filter(|t| !t.differences.is_empty()).count();
    let mut text = format!(
        "{}: {} images, {} of them crashed; {} files listed by the kernel, {} after its changes; \
         {differ} images differ\n",
        a.fs,
        all.len(),
        all.iter().filter(|t| t.crashed).count(),
        all.iter().map(|t| t.files).sum::<usize>(),
        all.iter().map(|t| t.after).sum::<usize>(),
    );
    for t in all.iter().filter(|t| !t.differences.is_empty()) {
        let kind = if t.crashed { "crashed" } else { "clean" };
        writeln!(text, "seed {} ({kind}):", t.seed).expect("a string takes it");
        for d in &t.differences {
            writeln!(text, "  {d}").expect("a string takes it");
        }
    }
    let doc = json!({ "schema": "writepath.kernels.mounts/1", "fs": a.fs, "images": all });
    out.answer(if differ == 0 { Exit::Ok } else { Exit::No }, &doc, &text)
}

fn recovery(a: &RecoveryArgs, out: &Out) -> ExitCode {
    let folder = a
        .reference
        .clone()
        .unwrap_or_else(|| wp_machine::testing::repository("testdata/reference"));
    let shown = Progress::new("kernels recovery");
    let at = |done, all, name: &str| shown.at(done, all, format_args!("cases, {name}"));
    let (rows, skipped) = match recovered::rows(&folder, &at) {
        Ok(rows) => rows,
        Err(e) => {
            return out.fail(Exit::HostIo, "reference", &e, "--reference DIR names the folder");
        }
    };
    drop(shown);
    let equal = rows.iter().filter(|r| r.is_equal()).count();
    let doc =
        json!({ "schema": "writepath.kernels.recovery/1", "rows": rows, "not_compared": skipped });
    let exit = if equal == rows.len() { Exit::Ok } else { Exit::No };
    let mut text = recovery_text(&rows, equal);
    if !skipped.is_empty() {
        let names = skipped.join(", ");
        writeln!(text, "not compared by this verb: {names}").expect("a string takes it");
    }
    out.answer(exit, &doc, &text)
}

fn recovery_text(rows: &[recovered::Row], equal: usize) -> String {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "{:<28} {:>6} {:>5} {:>6} {:>13} {:>5} {:>6} {:>7} {:>12} {:>15}  mount",
        "image",
        "kernel",
        "files",
        "equal",
        "transactions",
        "nodes",
        "blocks",
        "revoked",
        "fast commits",
        "orphans del/cut"
    )
    .expect(line);
    for r in rows {
        let orphans = format!("{}/{}", r.deleted, r.truncated);
        let mount = match (&r.refused, r.refused_there) {
            (None, _) => "ok".to_owned(),
            (Some(errno), true) => format!("{errno}, as in Linux"),
            (Some(errno), false) => errno.clone(),
        };
        writeln!(
            t,
            "{:<28} {:>6} {:>5} {:>6} {:>13} {:>5} {:>6} {:>7} {:>12} {orphans:>15}  {mount}",
            r.case,
            r.kernel,
            r.expected,
            r.equal,
            r.transactions,
            r.nodes,
            r.blocks,
            r.revoked,
            r.fast_commits
        )
        .expect(line);
        if let Some(d) = &r.difference {
            writeln!(t, "  DIFFERS: {d}").expect(line);
        }
    }
    writeln!(t, "{equal} of {} images are recovered as Linux recovers them", rows.len())
        .expect(line);
    t
}

fn waits(a: &WaitsArgs, out: &Out) -> ExitCode {
    if !a.config.is_empty() && !CONFIGS.iter().any(|c| c.recorded && c.name == a.config) {
        let known: Vec<&str> = CONFIGS.iter().filter(|c| c.recorded).map(|c| c.name).collect();
        return out.fail(
            Exit::Usage,
            "config",
            &format!("no recorded configuration called `{}`", a.config),
            &format!("recorded: {}", known.join(", ")),
        );
    }
    let shown = Progress::new("kernels waits");
    shown.say("recorded programs");
    let report = match compare_recorded(&a.config) {
        Ok(r) => r,
        Err(e) => return out.machine_error(&e),
    };
    drop(shown);
    let exit = if report.findings.is_empty() { Exit::Ok } else { Exit::No };
    let calls: usize = report.configs.iter().map(|c| c.calls.len()).sum();
    let doc = json!({ "schema": "writepath.kernels.waits/1", "calls": calls, "report": report });
    out.answer(exit, &doc, &text(&report, a.all))
}

fn text(report: &Report, all: bool) -> String {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "Writepath against recorded Linux 6.12 in virtual time, with one latency for every\n\
         request: device waits of each call (duration / latency, rounded down), and the\n\
         requests of each second after `idle`. kernels/linux-6.12/differences.toml lists\n\
         differences with their kernel functions.\n"
    )
    .expect(line);
    writeln!(
        t,
        "{:<22} {:>7} {:>7} {:>10} {:>9} {:>7} {:>10}",
        "configuration", "calls", "equal", "different", "seconds", "equal", "different"
    )
    .expect(line);
    for c in &report.configs {
        let count = |rows: &[Row]| {
            let equal = rows.iter().filter(|r| r.is_equal()).count();
            (rows.len(), equal, rows.len() - equal)
        };
        let ((n, equal, other), (m, same, unlike)) = (count(&c.calls), count(&c.moments));
        writeln!(t, "{:<22} {n:>7} {equal:>7} {other:>10} {m:>9} {same:>7} {unlike:>10}", c.config)
            .expect(line);
    }
    writeln!(t).expect(line);
    for c in &report.configs {
        rows(&mut t, c, all);
    }
    writeln!(t, "{} listed differences, {} not as listed", report.listed, report.findings.len())
        .expect(line);
    for f in &report.findings {
        writeln!(t, "NOT AS LISTED: {f}").expect(line);
    }
    t
}

fn rows(t: &mut String, c: &Compared, all: bool) {
    let line = "a string takes it";
    for (case, why) in &c.not_modelled {
        writeln!(t, "{}: {case} was not run: {why}", c.config).expect(line);
    }
    for r in c.calls.iter().chain(&c.moments) {
        if all || !r.is_equal() {
            let mark = if r.is_equal() { "=" } else { "!" };
            writeln!(t, "{mark} {r}").expect(line);
        }
    }
}

/// Programs that share a boot.
const BATCH: usize = 50;

/// A private directory; on failure says why and with which code to end.
fn scratch(name: &str, out: &Out) -> Result<Scratch, ExitCode> {
    let help = "set TMPDIR to a writable folder";
    Scratch::new(name).map_err(|e| out.fail(Exit::HostIo, "host-io", &e.to_string(), help))
}

fn random(a: &RandomArgs, out: &Out) -> ExitCode {
    let script = a.guest.clone().unwrap_or_else(Guest::usual_place);
    let scratch = match scratch("writepath-guest", out) {
        Ok(scratch) => scratch,
        Err(code) => return code,
    };
    let guest = match Guest::find(&script, scratch.path()) {
        Ok(g) => g,
        Err(why) => {
            return out.fail(
                Exit::Unsupported,
                "guest",
                &format!("no guest: {why}"),
                "kernels random needs a User-Mode Linux 6.12 and its uml.sh: --guest FILE",
            );
        }
    };
    random_on(a, out, &guest)
}

fn random_on(a: &RandomArgs, out: &Out, guest: &Guest) -> ExitCode {
    if let Some(other) = a.fs.iter().find(|f| !CONFIGS.iter().any(|c| c.fs == f.as_str())) {
        return out.fail(
            Exit::Usage,
            "fs",
            &format!("no configuration of a file system called `{other}`"),
            "use ext4, f2fs, nilfs2 or btrfs",
        );
    }
    let wanted = |c: &&Config| a.fs.iter().any(|f| f == c.fs) && c.not_modelled.is_empty();
    let mut configs: Vec<&Config> = CONFIGS.iter().filter(wanted).collect();
    if !a.config.is_empty() {
        match wp_parity::vtime::config::find(&a.config) {
            Ok(c) => configs = vec![c],
            Err(why) => return out.fail(Exit::Usage, "config", &why, ""),
        }
    }
    let extras = Extras {
        direct: !a.no_direct,
        fallocate: !a.no_fallocate,
        aio: a.aio,
        reads: a.reads,
        calls: a.all_calls,
        offers: Offers::ALL,
    };
    let mut programs: Vec<(&Config, Program)> = (0..a.programs)
        .map(|i| {
            let config = configs[i as usize % configs.len()];
            let offers = registry::find_fs(config.fs).map_or(Offers::NONE, |fs| fs.offers);
            (config, generate(a.seed + u64::from(i), a.calls, Extras { offers, ..extras }))
        })
        .collect();
    if let Some(path) = &a.program {
        let text = match wp_machine::host::text::read(path) {
            Ok(t) => t,
            Err(e) => return out.host_error(path, &e),
        };
        match Program::parse(&text) {
            Ok(p) if p.has_threads() => {
                let what = format!("{}: {NO_THREADS}", path.shown());
                return out.fail(Exit::Usage, "program", &what, "remove its threads");
            }
            Ok(p) => programs = vec![(configs[0], p)],
            Err(why) => return out.fail(Exit::Usage, "program", &why, ""),
        }
    }
    let stop = out.interrupt_in_parts();
    let stopped = || stop.load(Ordering::SeqCst);
    let mut verdicts = Vec::new();
    let shown = Progress::new("kernels random");
    shown.at(0, programs.len() as u64, "programs");
    for batch in programs.chunks(BATCH) {
        let batch: Vec<(&Config, &Program)> = batch.iter().map(|(c, p)| (*c, p)).collect();
        match both(guest, &batch, a.requests) {
            Ok(v) => verdicts.extend(v),
            Err(_) if stopped() => {}
            Err(why) => return out.fail(Exit::HostIo, "guest", &why, ""),
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
                Err(why) => return out.fail(Exit::HostIo, "guest", &why, ""),
            }
        }
    }
    random_report(out, &programs, &verdicts, &small, (a.requests, stopped()))
}

fn random_report(
    out: &Out,
    programs: &[(&Config, Program)],
    verdicts: &[Verdict],
    small: &[(&str, Program)],
    (requests, stopped): (bool, bool),
) -> ExitCode {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "Device waits of each call of random programs: Writepath against a Linux 6.12 guest\n\
         in virtual time. A wait is 100 us. A call that is less than 5 us short of a wait\n\
         counts as one, on both sides: reading the guest's clock takes 256 ns of it.\n{}",
        match requests {
            true => "Requests sent to the device and flushes that ended in each call are compared, too.\n",
            false => "",
        }
    )
    .expect(line);
    writeln!(
        t,
        "{:<22} {:>9} {:>7} {:>10} {:>8} {:>10}",
        "configuration", "programs", "equal", "different", "not run", "equal calls"
    )
    .expect(line);
    let mut rows = Vec::new();
    let mut sum = [0usize; 5];
    for config in CONFIGS {
        let mut n = [0usize; 5];
        for ((_, _), v) in programs.iter().zip(verdicts).filter(|((c, _), _)| c.name == config.name)
        {
            n[0] += 1;
            match v {
                Verdict::Same(calls) => {
                    n[1] += 1;
                    n[4] += calls;
                }
                Verdict::Different(_) => n[2] += 1,
                Verdict::NotRun(_) => n[3] += 1,
            }
        }
        if n[0] > 0 {
            row(&mut t, config.name, &n);
            rows.push(json!({ "config": config.name, "programs": n[0], "equal": n[1],
                "different": n[2], "not_run": n[3], "equal_calls": n[4] }));
            sum.iter_mut().zip(n).for_each(|(s, n)| *s += n);
        }
    }
    row(&mut t, "all", &sum);
    let mut differing = Vec::new();
    for ((config, program), v) in programs.iter().zip(verdicts) {
        let name = name_of(program);
        match v {
            Verdict::Same(_) => {}
            Verdict::NotRun(why) => {
                writeln!(t, "{} {name}: not run: {why}", config.name).expect(line);
            }
            Verdict::Different(list) => {
                let calls: Vec<String> = list.iter().map(difference).collect();
                writeln!(t, "{} {name}: {}", config.name, calls.join("; ")).expect(line);
                differing.push(json!({ "config": config.name, "program": name, "calls": list }));
            }
        }
    }
    let ran: Vec<(&Config, &Program)> = programs.iter().map(|(c, p)| (*c, p)).collect();
    let findings = match findings(&ran, verdicts, requests) {
        Ok(findings) => findings,
        Err(why) => return out.fail(Exit::Bug, "random.toml", &why, ""),
    };
    if sum[3] > 0 {
        writeln!(t, "{} of {} programs did not run", sum[3], sum[0]).expect(line);
    }
    match findings.len() {
        0 => writeln!(t, "every difference is listed in kernels/linux-6.12/random.toml"),
        n => writeln!(t, "{n} calls do not match kernels/linux-6.12/random.toml:"),
    }
    .expect(line);
    for f in &findings {
        writeln!(t, "  {f}").expect(line);
    }
    let mut smallest = Vec::new();
    for (config, program) in small {
        writeln!(t, "\nsmallest differing program, on {config}:\n{program}").expect(line);
        smallest.push(json!({ "config": config, "program": program.to_string() }));
    }
    let doc = json!({ "schema": "writepath.kernels.random/1", "programs": sum[1] + sum[2],
        "configs": rows,
        "differing": differing, "findings": findings, "smallest": smallest });
    let exit = match (stopped, findings.is_empty()) {
        (true, _) => Exit::Interrupted,
        // Of those that did not run nothing is known.
        (_, true) if sum[3] > 0 => Exit::Simulated,
        (_, true) => Exit::Ok,
        (_, false) => Exit::No,
    };
    out.answer(exit, &doc, &t)
}

fn row(t: &mut String, name: &str, n: &[usize; 5]) {
    writeln!(t, "{name:<22} {:>9} {:>7} {:>10} {:>8} {:>10}", n[0], n[1], n[2], n[3], n[4])
        .expect("a string takes it");
}

fn difference(d: &CallDifference) -> String {
    format!("{}: Writepath {}, Linux {}", d.call, d.ours, d.theirs)
}
