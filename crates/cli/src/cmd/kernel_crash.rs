//! `kernels crash`: our recovery beside this host's, state by state.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::json;
use wp_machine::host::Scratch;
use wp_parity::host_kernel::{Agreement, Ask, Counts, agree, cannot};

use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Program file, or folder of them, instead of generated programs
    ///
    /// With --config, --each (default 8), --seed and --guest only.
    #[arg(value_name = "PROGRAMS", conflicts_with_all = [
        "states", "workers", "first", "programs", "calls", "all_calls", "fsck",
    ])]
    files: Option<PathBuf>,
    /// With PROGRAMS: configurations [default: of each file system]
    #[arg(long, value_delimiter = ',', requires = "files")]
    #[arg(default_value = "ext4-default,f2fs-posix,f2fs-strict,nilfs2,btrfs")]
    #[arg(hide_default_value = true)]
    pub(super) config: Vec<String>,
    /// With PROGRAMS: mount in a Linux 6.12 guest, not in this host
    ///
    /// DIR has the kernel `linux` and the root directory `root` [default: $GUEST or
    /// ~/.cache/kernel-guest]. The guest also runs the programs itself, and the tree that is then
    /// left is compared, too.
    #[arg(long, value_name = "DIR", requires = "files")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) guest: Option<OsString>,
    /// Distinct crash states to compare
    #[arg(long, default_value_t = 1000)]
    states: u64,
    /// Seed of programs and of the choice of states
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Threads, each with its own loop device
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// Number of the first program
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Maximum number of programs [default: no limit]
    #[arg(long, default_value_t = u64::MAX)]
    #[arg(hide_default_value = true)]
    programs: u64,
    /// Approximate number of system calls of a program
    #[arg(long, default_value_t = 24)]
    calls: u32,
    /// Generate programs with every call that programs have (`list calls`)
    #[arg(long)]
    all_calls: bool,
    /// Maximum number of states of one program [default: 40, with PROGRAMS 8]
    #[arg(long)]
    each: Option<usize>,
    /// Run e2fsck and `writepath fsck` every N states; 0: never
    #[arg(long, default_value_t = 20)]
    #[arg(value_name = "N")]
    fsck: u64,
    /// Folder for images, best in memory (tmpfs)
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
}

/// States of one program at most.
const EACH: usize = 40;
const EACH_OF_GIVEN: usize = 8;

impl Args {
    /// States of each life of a given program, besides those at its end.
    pub(super) fn each_of_given(&self) -> usize {
        self.each.unwrap_or(EACH_OF_GIVEN)
    }
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let stop = out.interrupt();
    let scratch = match Scratch::within(&a.dir, "writepath-agree") {
        Ok(scratch) => scratch,
        Err(e) => return out.fail(Exit::HostIo, "host-io", &e.to_string(), "--dir DIR"),
    };
    let dir = scratch.path();
    if let Some(files) = &a.files {
        return super::kernel_trees::run(a, files, dir, out);
    }
    if let Some(why) = cannot(&dir.join("tried")) {
        return out.fail(
            Exit::Unsupported,
            "host",
            &format!("this host cannot run it: {why}"),
            "kernels crash needs root, losetup and a kernel with ext4 and loop devices; see --dir",
        );
    }
    let ask = Ask {
        states: a.states,
        seed: a.seed,
        first: a.first,
        programs: a.programs,
        calls: a.calls,
        all_calls: a.all_calls,
        each: a.each.unwrap_or(EACH),
        fsck: a.fsck,
        dir: dir.to_owned(),
    };
    let live = Progress::new("kernels crash");
    #[expect(clippy::disallowed_methods, reason = "progress and rates are of the host")]
    let start = Instant::now();
    let found = agree(&ask, a.workers, &|t| {
        live.at(t.states, a.states, format_args!("states, {} different", t.different));
        !stop.load(Ordering::SeqCst)
    });
    drop(live);
    let seconds = start.elapsed().as_secs_f64();
    drop(scratch);
    let found = match found {
        Ok(found) => found,
        Err(e) => return out.fail(Exit::HostIo, "host", &e, ""),
    };
    let exit = match (stop.load(Ordering::SeqCst), found.different.is_empty()) {
        (true, _) => Exit::Interrupted,
        (_, false) => Exit::No,
        _ if !found.not_played.is_empty() => Exit::Simulated,
        _ => Exit::Ok,
    };
    out.answer(exit, &document(&found), &text(a, &found, seconds))
}

fn row(t: &mut String, era: &str, mode: &str, c: &Counts) {
    writeln!(
        t,
        "{era:<5} {mode:<11} {:>8} {:>8} {:>8} {:>9} {:>8} {:>7} {:>8} {:>9} {:>6} {:>6}",
        c.programs,
        c.states,
        c.equal,
        c.different,
        c.refused,
        c.faulty,
        format!("{}/{}", c.again_equal, c.again),
        c.checked,
        c.clean,
        c.both_unclean
    )
    .expect("a string takes it");
}

fn text(a: &Args, f: &Agreement, seconds: f64) -> String {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "Crash states of generated programs, recovered by Writepath and by Linux {}.\n\
         Compared: success of the mount, and of every file the path, type, mode, owner, device,\n\
         inode, link count, size, link target and contents, and of regular files the mtime,\n\
         unless the kernel's mount has set it.\n",
        f.release
    )
    .expect(line);
    writeln!(
        t,
        "{:<5} {:<11} {:>8} {:>8} {:>8} {:>9} {:>8} {:>7} {:>8} {:>9} {:>6} {:>6}",
        "linux",
        "mode",
        "programs",
        "states",
        "equal",
        "different",
        "refused",
        "faulty",
        "again",
        "e2fsck'd",
        "clean",
        "faults"
    )
    .expect(line);
    for ((era, mode), counts) in &f.modes {
        row(&mut t, era, mode, counts);
    }
    let total = f.total();
    row(&mut t, "all", "", &total);
    writeln!(
        t,
        "\nrefused: neither mounts. faulty: files that neither can read. again: equal/mounted,\n\
         of states that Writepath recovers like an earlier one. e2fsck'd: checked by e2fsck\n\
         after the kernel's unmount and by `writepath fsck` after recovery; clean or faults:\n\
         on both sides.\n\
         {} states were not mounted: another program left the same image.",
        f.repeated
    )
    .expect(line);
    t += &rates(a, f, seconds);
    for (n, why) in &f.not_played {
        writeln!(t, "program {n} could not run: {why}").expect(line);
    }
    for d in &f.different {
        writeln!(
            t,
            "DIFFERENT: program {} ({} {} {}): {}\n  writepath crash show {} --image FILE",
            d.program, d.mode.era, d.mode.name, d.mode.block, d.what, d.replay
        )
        .expect(line);
    }
    t
}

/// How fast both recovered.
fn rates(a: &Args, f: &Agreement, seconds: f64) -> String {
    let rate = |n: u64, s: f64| n as f64 / s.max(1e-9);
    let each = |d: std::time::Duration| d.as_secs_f64() * 1e3 / f.spent.mounts.max(1) as f64;
    let s = &f.spent;
    let cycle = s.write + s.mount + s.read + s.unmount;
    format!(
        "Linux:     {:.1} states/s per thread (ms: write {:.2}, mount {:.2}, read {:.2}, unmount \
         {:.2})\n\
         Writepath: {:.1} states/s per thread ({} recoveries, of these states and others)\n\
         together:  {:.1} states/s with {} threads, {seconds:.0} s\n",
        rate(s.mounts, cycle.as_secs_f64()),
        each(s.write),
        each(s.mount),
        each(s.read),
        each(s.unmount),
        rate(f.recoveries, f.explored.as_secs_f64()),
        f.recoveries,
        rate(s.mounts, seconds),
        a.workers
    )
}

fn document(f: &Agreement) -> serde_json::Value {
    let counts = |c: &Counts| {
        json!({
            "programs": c.programs, "states": c.states, "equal": c.equal,
            "different": c.different, "refused": c.refused, "faulty": c.faulty,
            "again": c.again, "again_equal": c.again_equal, "checked": c.checked,
            "clean": c.clean, "both_unclean": c.both_unclean,
        })
    };
    let modes: Vec<serde_json::Value> = f
        .modes
        .iter()
        .map(|((era, mode), c)| json!({ "era": era, "mode": mode, "counts": counts(c) }))
        .collect();
    let different: Vec<serde_json::Value> = f
        .different
        .iter()
        .map(|d| {
            json!({
                "program": d.program, "frame": d.frame, "lost": d.lost, "what": d.what,
                "era": d.mode.era, "mode": d.mode.name, "block": d.mode.block,
                "replay": format!("writepath crash show {}", d.replay),
            })
        })
        .collect();
    let not_played: Vec<serde_json::Value> =
        f.not_played.iter().map(|(n, why)| json!({ "program": n, "why": why })).collect();
    json!({
        "schema": "writepath.kernels.crash/1",
        "release": f.release,
        "modes": modes,
        "total": counts(&f.total()),
        "repeated": f.repeated,
        "recoveries": f.recoveries,
        "different": different,
        "not_played": not_played,
    })
}
