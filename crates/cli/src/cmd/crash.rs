//! `crash`.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use wp_base::SECTOR_BYTES;
use wp_crash::{Plan, Profile, Rule, Telling, Totals};
use wp_lab::crash::bugs::{BUGS, Bug, BugResult, show as show_bug};
use wp_lab::crash::programs::NAMED;
use wp_lab::crash::wild::Extras;
use wp_lab::crash::{Bench, Campaign, Cut, Findings, Found, Source, Space, play, run as explore};
use wp_workload::program::Program;

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What is cut: seq-1, seq-2 (every sequence of so many operations), wild (random programs),
    /// db-1, db-3 (so many databases with rollback journals), errors (a device that fails),
    /// publish, save, fill, or a file with a program.
    #[arg(default_value = "seq-1")]
    programs: String,
    /// File system and options: `ext4,era=3.8,data=journal`.
    #[arg(long, default_value = "ext4,era=6.18")]
    fs: String,
    /// Device preset and replaced parameters.
    #[arg(long, default_value = "fixed")]
    device: String,
    /// Capacity of the device.
    #[arg(long, default_value = "64M")]
    size: String,
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
    /// could be left with at that nanosecond), or a breach of the contract: lying-flush, lost-fua,
    /// faulty-plp.
    #[arg(long, default_value = "permitted")]
    space: String,
    /// Bytes that the drive writes whole; as the device says if left out.
    #[arg(long)]
    atomic: Option<u32>,
    /// Rules that the file system is held to besides POSIX, joined by +: names (fsync of a file
    /// keeps its names), order (names change in order), size (a length never runs ahead of its
    /// data), version (a file is of one moment), replace (a file renamed over another is there with
    /// its contents), direct (O_DIRECT writes are durable when they return), marks (a name that the
    /// program told of stays), reads (what reads show is there once an fsync answered 0), first
    /// (a failed write need only be told to who asks first, as until 4.12).
    #[arg(long, default_value = "names+order")]
    hold: String,
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
    /// Recover every state, also those that read the same as an earlier one: the same answer,
    /// later.
    #[arg(long)]
    no_prune: bool,
    /// The drive is as mkfs found it after a trim: without old data in free blocks.
    #[arg(long)]
    trimmed: bool,
    /// Threads; what comes out does not depend on it.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Stop after so long: 90s, 5m.
    #[arg(long)]
    budget: Option<String>,
    /// Show one state: the timeline of program --first at FRAME, without its units U,V,…
    #[arg(long, value_name = "FRAME[:U,V]")]
    state: Option<String>,
    /// Known bugs by number (A3), or all: each found where it is and absent where it was mended?
    #[arg(long)]
    bug: Option<String>,
    /// With --state: write the device as the cut leaves it.
    #[arg(long)]
    image: Option<PathBuf>,
}

fn source(a: &Args) -> Result<Source, String> {
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
        let extras = Extras { direct: !a.no_direct, ..Extras::ALL };
        return Ok(Source::Wild { seed: a.seed, calls: a.calls, extras });
    }
    if let Some((_, make)) = NAMED.iter().find(|(name, _)| *name == a.programs) {
        return Ok(Source::Made { seed: a.seed, make: *make });
    }
    let path = Path::new(&a.programs);
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("{}: {e}; or one of seq-1, seq-2, wild", path.display()))?;
    Program::parse(&text).map(Source::Text).map_err(|e| format!("{}: {e}", path.display()))
}

fn space(a: &Args) -> Result<Space, String> {
    let permitted = |lying_flush, lost_fua, faulty_plp| Space::Permitted {
        lying_flush,
        lost_fua,
        faulty_plp,
        atomic: a.atomic,
    };
    if let Some(n) = a.atomic.filter(|n| !n.is_power_of_two() || !(512..=1 << 20).contains(n)) {
        return Err(format!("atomic: {n} is no power of two from 512 to 1 MiB"));
    }
    match a.space.as_str() {
        "permitted" => Ok(permitted(false, false, false)),
        "lying-flush" => Ok(permitted(true, false, false)),
        "lost-fua" => Ok(permitted(false, true, false)),
        "faulty-plp" => Ok(permitted(false, false, true)),
        "modelled" => Ok(Space::Modelled),
        other => Err(format!(
            "no space called `{other}`; there are: permitted, modelled, lying-flush, lost-fua, faulty-plp"
        )),
    }
}

fn profile(a: &Args) -> Result<Profile, String> {
    let mut p = Profile::POSIX;
    for word in a.hold.split('+').filter(|w| !w.is_empty()) {
        match word {
            "names" => p.fsync_keeps_names = true,
            "order" => p.names_in_order = true,
            "size" => p.size_with_data = true,
            "version" => p.one_version = true,
            "replace" => p.replaces_whole = true,
            "direct" => p.direct_is_durable = true,
            "marks" => p.marks_hold = true,
            "reads" => p.reads_stay = true,
            "first" => p.errors = Telling::First,
            other => {
                return Err(format!(
                    "hold: `{other}`; there are: names, order, size, version, replace, direct, marks, reads, first"
                ));
            }
        }
    }
    Ok(p)
}

fn campaign(a: &Args) -> Result<Campaign, String> {
    let (fs, fs_options) = super::file_system(&a.fs)?;
    let era = fs_options.get("era", fs.options).unwrap_or("4.6").to_owned();
    let version = wp_ext4::era::Version::parse(&era)
        .ok_or_else(|| format!("`{era}` is not a kernel version"))?;
    let (device, mut device_params) = super::device(&a.device)?;
    device_params.push(("capacity_bytes".to_owned(), super::size(&a.size)?));
    let source = source(a)?;
    let all = source.count().unwrap_or(u64::MAX);
    let count = a.count.unwrap_or(if all == u64::MAX { 100 } else { all });
    let end = a.first.saturating_add(count).min(all);
    if a.first >= end {
        return Err(format!("first: {} of {all} programs", a.first));
    }
    Ok(Campaign {
        bench: Bench {
            fs,
            fs_options,
            device,
            device_params,
            elevator: a.elevator.clone(),
            kernel: (version.0, version.1),
            settle_s: 60,
            stale: !a.trimmed,
            model: a.space == "modelled",
        },
        source,
        programs: (a.first, end),
        space: space(a)?,
        plan: Plan { complete: a.complete.min(20), pairs: 64, samples: a.samples },
        seed: a.seed,
        profile: profile(a)?,
        check: !a.no_check,
        second_cuts: a.second,
        prune: !a.no_prune,
        recovery_in_order: true,
        stop_at: Vec::new(),
    })
}

fn budget(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_alphabetic()).len());
    let n: u64 = digits.parse().map_err(|_| format!("budget: `{text}`: write 90s, 5m or 2h"))?;
    match unit {
        "" | "s" => Ok(Duration::from_secs(n)),
        "m" => Ok(Duration::from_secs(60 * n)),
        "h" => Ok(Duration::from_secs(3600 * n)),
        _ => Err(format!("budget: `{text}`: write 90s, 5m or 2h")),
    }
}

/// Runs the verb. Exit 1 if a rule is broken.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(which) = &a.bug {
        return bugs(a, which, out);
    }
    let campaign = match campaign(a) {
        Ok(c) => c,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, "writepath crash --help"),
    };
    if let Some(state) = &a.state {
        return show(a, &campaign, state, out);
    }
    let limit = match a.budget.as_deref().map(budget).transpose() {
        Ok(l) => l,
        Err(e) => return out.fail(Exit::Usage, "budget", &e, ""),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    if let Err(e) = ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst)) {
        out.note(&format!("note: an interrupt will end this at once ({e})"));
    }
    let live = std::io::stderr().is_terminal();
    #[expect(clippy::disallowed_methods, reason = "progress, the budget and rates are of the host")]
    let start = Instant::now();
    let all = campaign.programs.1 - campaign.programs.0;
    let findings = explore(&campaign, a.workers, &|t| {
        if live {
            let s = start.elapsed().as_secs_f64();
            let left = s * (all - t.programs.min(all)) as f64 / t.programs.max(1) as f64;
            eprint!(
                "\r{} of {all} programs, {} states, {} recoveries; {left:.0} s left   ",
                t.programs, t.raw, t.distinct
            );
        }
        !stop.load(Ordering::SeqCst) && limit.is_none_or(|l| start.elapsed() < l)
    });
    if live {
        eprint!("\r{:<78}\r", "");
    }
    let seconds = start.elapsed().as_secs_f64();
    let broken = findings.totals.broken.iter().any(|n| *n > 0);
    let text = text(a, &campaign, &findings, seconds);
    let exit = match (stop.load(Ordering::SeqCst), broken) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::No,
        _ => Exit::Ok,
    };
    out.answer(exit, &document(a, &campaign, &findings), &text)
}

/// Known bugs. Exit 1 if one is not found where it is, or found where it was mended.
fn bugs(a: &Args, which: &str, out: &Out) -> ExitCode {
    let wanted: Vec<&Bug> = BUGS.iter().filter(|b| which == "all" || b.id == which).collect();
    if wanted.is_empty() {
        let known: Vec<&str> = BUGS.iter().map(|b| b.id).collect();
        let why = format!("no bug called `{which}`; there are: all, {}", known.join(", "));
        return out.fail(Exit::Usage, "bug", &why, "");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    if let Err(e) = ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst)) {
        out.note(&format!("note: an interrupt will end this at once ({e})"));
    }
    let live = std::io::stderr().is_terminal();
    let line = "a string takes it";
    let mut t = String::new();
    let mut results: Vec<BugResult> = Vec::new();
    for bug in wanted {
        let shown = show_bug(bug, u64::MAX, a.workers, &|totals| {
            if live {
                eprint!("\r{}: {} programs, {} states   ", bug.id, totals.programs, totals.raw);
            }
            !stop.load(Ordering::SeqCst)
        });
        if live {
            eprint!("\r{:<60}\r", "");
        }
        let r = match shown {
            Ok(Some(r)) => r,
            Ok(None) => {
                return out.fail(Exit::Interrupted, "interrupted", "interrupted", "start again");
            }
            Err(e) => return out.machine_error(&e),
        };
        writeln!(t, "{:<4} {} ({})", r.id, r.what, r.rule).expect(line);
        let found = match (&r.affected.first, r.affected.states_to_find) {
            (Some(first), Some(n)) => format!("found after {n} states of its chunk: {first}"),
            _ => "NOT FOUND".to_owned(),
        };
        let s = &r.affected;
        writeln!(
            t,
            "     affected: {} programs, {} states, {} distinct: {found}",
            s.programs, s.raw, s.distinct
        )
        .expect(line);
        let s = &r.fixed;
        let verdict = match (&s.first, &s.refused) {
            (_, Some(why)) => format!("the mount is refused ({why})"),
            (None, None) => "absent".to_owned(),
            (Some(first), None) => format!("FOUND in {} states: {first}", s.broken),
        };
        writeln!(
            t,
            "     mended:   {} programs, {} states, {} distinct: {verdict}",
            s.programs, s.raw, s.distinct
        )
        .expect(line);
        results.push(r);
    }
    let exit = if results.iter().all(BugResult::holds) { Exit::Ok } else { Exit::No };
    out.answer(exit, &json!({ "schema": "writepath.crash.bugs/1", "bugs": results }), &t)
}

/// The arguments that make the same machine and states.
fn arguments(a: &Args) -> String {
    let mut t = format!("{} --fs {}", a.programs, a.fs);
    let mut add = |flag: &str, value: &str, default: &str| {
        if value != default {
            write!(t, " --{flag} {value}").expect("a string takes it");
        }
    };
    add("device", &a.device, "fixed");
    add("size", &a.size, "64M");
    add("elevator", &a.elevator, "");
    add("seed", &a.seed.to_string(), "1");
    add("calls", &a.calls.to_string(), "40");
    add("space", &a.space, "permitted");
    add("hold", &a.hold, "names+order");
    if let Some(n) = a.atomic {
        add("atomic", &n.to_string(), "");
    }
    for (on, flag) in [(a.no_direct, "--no-direct"), (a.trimmed, "--trimmed")] {
        if on {
            t += " ";
            t += flag;
        }
    }
    t
}

fn replay(a: &Args, f: &Found) -> String {
    let lost: Vec<String> = f.lost.iter().map(usize::to_string).collect();
    let lost = if lost.is_empty() { String::new() } else { format!(":{}", lost.join(",")) };
    format!("writepath crash {} --first {} --state {}{lost}", arguments(a), f.program, f.frame)
}

fn numbers(t: &Totals) -> Vec<(&'static str, u64)> {
    vec![
        ("programs", t.programs),
        ("cuts", t.cuts),
        ("cuts sampled", t.cuts_sampled),
        ("most units in doubt", u64::from(t.most_in_doubt)),
        ("raw states", t.raw),
        ("distinct states, each recovered", t.distinct),
        ("judged", t.judged),
        ("cuts during recovery", t.second),
    ]
}

fn text(a: &Args, c: &Campaign, f: &Findings, seconds: f64) -> String {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "{} on {} ({}), {} states, {} free blocks:",
        a.fs,
        a.device,
        a.size,
        a.space,
        if a.trimmed { "trimmed" } else { "used" }
    )
    .expect(line);
    for (name, n) in numbers(&f.totals) {
        writeln!(t, "  {name:<34} {n:>14}").expect(line);
    }
    let rate = |n: u64| n as f64 / seconds.max(1e-9);
    writeln!(
        t,
        "  {:<34} {:>14.0} raw, {:.0} distinct a second, {} threads, {}",
        "speed",
        rate(f.totals.raw),
        rate(f.totals.distinct),
        a.workers,
        if c.check { "each checked in full" } else { "not checked (--no-check)" }
    )
    .expect(line);
    if f.totals.cuts_sampled > 0 {
        writeln!(
            t,
            "  {} cuts have more than {} units in doubt (up to 2^{} states): prefixes, single and pair\n  \
             losses, single survivors and {} samples of each were visited.",
            f.totals.cuts_sampled, c.plan.complete, f.totals.most_in_doubt, c.plan.samples
        )
        .expect(line);
    }
    for (n, why) in f.not_played.iter().take(3) {
        writeln!(t, "  program {n} was not played: {why}").expect(line);
    }
    if f.done < c.programs.1 {
        writeln!(t, "  stopped before program {}: go on with --first {}", f.done, f.done)
            .expect(line);
    }
    for rule in Rule::ALL {
        let n = f.totals.broken[rule as usize];
        let held = match rule {
            Rule::SizeAhead => c.profile.size_with_data,
            Rule::MixedVersions => c.profile.one_version,
            Rule::Order => c.profile.names_in_order,
            Rule::Replaced => c.profile.replaces_whole,
            Rule::Metadata => c.check,
            _ => true,
        };
        let verdict = match (held, n) {
            (false, _) => "not asked".to_owned(),
            (true, 0) => "never".to_owned(),
            (true, n) => format!("in {n} states"),
        };
        writeln!(t, "{:<20} broken {verdict}", rule.name()).expect(line);
        for found in f.found.iter().filter(|f| f.violation.rule == rule).take(1) {
            let v = &found.violation;
            let at = v.offset.map_or(String::new(), |o| format!(" at byte {o}"));
            let path = if v.path.is_empty() { "the image" } else { &v.path };
            writeln!(
                t,
                "  program {}: {path}{at}: {}; expected {}\n  {}",
                found.program,
                v.seen,
                v.expected,
                replay(a, found)
            )
            .expect(line);
        }
    }
    t
}

fn document(a: &Args, c: &Campaign, f: &Findings) -> serde_json::Value {
    let totals: serde_json::Map<String, serde_json::Value> = numbers(&f.totals)
        .into_iter()
        .map(|(k, v)| (k.replace([' ', ','], "_"), json!(v)))
        .collect();
    let broken: serde_json::Map<String, serde_json::Value> = Rule::ALL
        .iter()
        .map(|r| (r.name().to_owned(), json!(f.totals.broken[*r as usize])))
        .collect();
    let found: Vec<serde_json::Value> = f
        .found
        .iter()
        .map(|x| {
            json!({
                "rule": x.violation.rule.name(),
                "program": x.program,
                "path": x.violation.path,
                "offset": x.violation.offset,
                "expected": x.violation.expected,
                "seen": x.violation.seen,
                "frame": x.frame,
                "lost": x.lost,
                "replay": replay(a, x),
            })
        })
        .collect();
    let not_played: Vec<serde_json::Value> =
        f.not_played.iter().map(|(n, why)| json!({ "program": n, "why": why })).collect();
    json!({
        "schema": "writepath.crash/1",
        "programs": [c.programs.0, c.programs.1],
        "done": f.done,
        "totals": totals,
        "broken": broken,
        "found": found,
        "not_played": not_played,
    })
}

/// One state: its timeline, and what recovery leaves.
fn show(a: &Args, c: &Campaign, state: &str, out: &Out) -> ExitCode {
    let (frame, lost) = state.split_once(':').unwrap_or((state, ""));
    let lost: Result<Vec<usize>, _> =
        lost.split(',').filter(|w| !w.is_empty()).map(str::parse).collect();
    let (Ok(frame), Ok(lost)) = (frame.parse::<usize>(), lost) else {
        return out.fail(Exit::Usage, "state", &format!("`{state}`: write FRAME or FRAME:U,V"), "");
    };
    let program = c.source.program(c.programs.0);
    let played = match play(&c.bench, &program) {
        Ok(p) => p,
        Err(e) => return out.machine_error(&e),
    };
    let history = c.space.history(&played);
    let Some(here) = history.frames.get(frame) else {
        let why = format!("frame {frame} of {}", history.frames.len());
        return out.fail(Exit::Usage, "state", &why, "");
    };
    if let Some(u) = lost.iter().find(|u| **u >= here.live.len()) {
        let why = format!("unit {u}: {} are in doubt at frame {frame}", here.live.len());
        return out.fail(Exit::Usage, "state", &why, "");
    }
    let cut = Cut {
        fs: (c.bench.fs, &c.bench.fs_options),
        played: &played,
        history: &history,
        frame,
        lost: &lost,
    };
    if let Some(path) = &a.image {
        let medium = cut.medium();
        let mut bytes = vec![0u8; 1 << 20];
        let len = played.partition.0 + played.partition.1;
        let written = std::fs::File::create(path).and_then(|mut f| {
            f.set_len(len)?;
            for (at, sectors) in medium.runs() {
                let mut done = 0;
                while done < sectors * SECTOR_BYTES {
                    let n = (sectors * SECTOR_BYTES - done).min(1 << 20);
                    let part = &mut bytes[..n as usize];
                    medium.read_bytes(at.bytes() + done, part);
                    std::io::Seek::seek(&mut f, std::io::SeekFrom::Start(at.bytes() + done))?;
                    std::io::Write::write_all(&mut f, part)?;
                    done += n;
                }
            }
            Ok(())
        });
        if let Err(e) = written {
            return out.host_error(path, &e);
        }
    }
    let timeline = cut.tell(12);
    let files = cut.files();
    let doc = json!({
        "schema": "writepath.crash.state/1",
        "program": program.to_string(),
        "frame": frame,
        "lost": lost,
        "timeline": timeline,
        "files": files,
    });
    let text = format!("{program}\n{timeline}\nAfter recovery:\n{files}");
    out.answer(Exit::Ok, &doc, &text)
}
