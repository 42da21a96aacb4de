//! `crash` of a folder: every program in it.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_campaign::folder::{ProgramFile, read};
use wp_campaign::{Findings, Watch, resume};
use wp_crash::{Rule, Totals};

use super::hunt::{does_less, unexplored};
use super::{Args, campaign, limit, report};
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// What is of one program, and no folder has it.
fn of_one(a: &Args) -> Option<&'static str> {
    let given = [
        ("--state", a.state.is_some()),
        ("--minimise", a.minimise.is_some()),
        ("--reproducer", a.reproducer.is_some()),
        ("--state-file", a.state_file.is_some()),
        ("--accept", a.accept.is_some()),
        ("--every-mode", a.every_mode),
        ("--against", a.against.is_some()),
        ("--against-device", a.against_device.is_some()),
        ("--against-space", a.against_space.is_some()),
        ("--check-cmd", a.check_cmd.is_some()),
        ("--first", a.first > 0),
        ("--count", a.count.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
}

/// What became of a program.
struct Done {
    exit: Exit,
    /// Its line of the table, and what follows it.
    text: String,
    document: Value,
    totals: Totals,
}

/// Explores one. Nothing: it was interrupted.
fn one(a: &Args, file: &ProgramFile, is_over: &(dyn Fn() -> bool + Sync)) -> Option<Done> {
    let a = Args { programs: file.path.to_string_lossy().into_owned(), ..a.clone() };
    let line = "a string takes it";
    let failed = |exit: Exit, why: &str| {
        let text = format!("{:<28} could not run: {why}\n", file.name);
        let document = json!({ "program": file.name, "error": why });
        Some(Done { exit, text, document, totals: Totals::default() })
    };
    let c = match campaign(&a) {
        Ok(c) => c,
        Err(e) => return failed(Exit::Usage, &e),
    };
    let watch = Watch { step: &|_, _| !is_over(), abandon: is_over, at: &|_| {} };
    let f = resume(&c, 1, Findings::before(&c), &watch);
    if f.done < c.programs.1 {
        return None;
    }
    // The file system may lack a call of the program, which then tests something else.
    if let Some(why) = unexplored(&c, &f) {
        return failed(why.exit, &why.message);
    }
    let t = &f.totals;
    let mut text = format!("{:<28} {:>10} {:>9}  ", file.name, t.raw, t.distinct);
    let broken: Vec<Rule> = Rule::ALL.into_iter().filter(|r| t.broken[*r as usize] > 0).collect();
    let names: Vec<&str> = broken.iter().map(|r| r.name()).collect();
    let less = does_less(&a, &f);
    text += match (broken.is_empty(), less) {
        (false, _) => "broken: ",
        (true, true) => "calls did not answer as the program expects",
        (true, false) => "ok",
    };
    writeln!(text, "{}", names.join(", ")).expect(line);
    for rule in broken {
        if let Some(x) = f.found.iter().find(|x| x.violation.rule == rule) {
            let what = report::violation(&x.violation);
            writeln!(text, "  {what}\n  {}", report::replay(&a, &c, x)).expect(line);
        }
    }
    let exit = match (names.is_empty(), less) {
        (false, _) => Exit::No,
        (true, true) => Exit::Simulated,
        (true, false) => Exit::Ok,
    };
    let mut document = report::document(&a, &c, &f);
    document["program"] = json!(file.name);
    document["kind"] = json!("program");
    Some(Done { exit, text, document, totals: f.totals })
}

/// Runs every program of the folder that is for the file system. Exit 1 if one breaks a rule.
pub(super) fn run(a: &Args, folder: &Path, out: &Out) -> ExitCode {
    if let Some(option) = of_one(a) {
        let what = format!("{option} is of one program; {} is a folder", folder.shown());
        return out.fail(Exit::Usage, "crash", &what, "name a file of the folder");
    }
    let limit = match limit(a, out) {
        Ok(limit) => limit,
        Err(exit) => return exit,
    };
    let all = match read(folder) {
        Ok(all) => all,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, "programs are files *.txt"),
    };
    let fs = match super::file_system(&a.fs) {
        Ok((fs, _)) => fs,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, super::hint(a)),
    };
    let (files, others): (Vec<&ProgramFile>, Vec<&ProgramFile>) =
        all.iter().partition(|file| file.is_for(fs.name));
    if files.is_empty() {
        let what = format!("{}: no program in it is for {}", folder.shown(), fs.name);
        return out.fail(Exit::Usage, "crash", &what, "see --fs");
    }
    let stop = out.interrupt();
    #[expect(clippy::disallowed_methods, reason = "the budget and what it took are of the host")]
    let start = Instant::now();
    let is_over = || {
        let in_time = limit.is_none_or(|l: Duration| start.elapsed() < l);
        stop.load(Ordering::Relaxed) || !in_time
    };
    let (next, shown) = (AtomicUsize::new(0), Progress::new("crash"));
    let done: Mutex<Vec<Option<Done>>> = Mutex::new(files.iter().map(|_| None).collect());
    let work = || {
        while !is_over() {
            let n = next.fetch_add(1, Ordering::SeqCst);
            let Some(file) = files.get(n) else { break };
            let made = one(a, file, &is_over);
            let mut done = done.lock().unwrap_or_else(|e| e.into_inner());
            done[n] = made;
            let finished = done.iter().flatten().count();
            shown.at(finished as u64, files.len() as u64, "programs");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..a.workers().clamp(1, files.len()) {
            scope.spawn(work);
        }
    });
    drop(shown);
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    let finished: Vec<Done> = done.into_iter().flatten().collect();
    let line = "a string takes it";
    let mut t = format!("{:<28} {:>10} {:>9}  rules, {}\n", "program", "states", "distinct", a.fs);
    let mut totals = Totals::default();
    for d in &finished {
        t += &d.text;
        totals.add(&d.totals);
        out.line(&d.document);
    }
    let count = |exit: Exit| finished.iter().filter(|d| d.exit == exit).count();
    let (broken, ok) = (count(Exit::No), count(Exit::Ok));
    writeln!(
        t,
        "{} programs: {ok} ok, {broken} broken, {} others; {} states, {} distinct; {:.1} s",
        finished.len(),
        finished.len() - ok - broken,
        totals.raw,
        totals.distinct,
        start.elapsed().as_secs_f64()
    )
    .expect(line);
    if !others.is_empty() {
        writeln!(t, "{} programs are not for {}", others.len(), fs.name).expect(line);
    }
    if finished.len() < files.len() {
        writeln!(t, "incomplete: {} programs were not explored", files.len() - finished.len())
            .expect(line);
    }
    let stopped = stop.load(Ordering::SeqCst) || finished.len() < files.len();
    let worst = [Exit::Usage, Exit::Simulated].into_iter().find(|e| count(*e) > 0);
    let exit = match (stop.load(Ordering::SeqCst), broken > 0) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::No,
        _ if stopped => Exit::Interrupted,
        _ => worst.unwrap_or(Exit::Ok),
    };
    let summary = json!({
        "schema": "writepath.crash.folder/1", "kind": "summary", "fs": a.fs,
        "programs": [0, files.len()], "done": finished.len(), "ok_programs": ok,
        "broken_programs": broken, "raw_states": totals.raw,
        "distinct_states": totals.distinct,
        "totals": { "programs": finished.len(), "raw_states": totals.raw },
        "not_for_this_file_system": others.iter().map(|f| &f.name).collect::<Vec<_>>(),
        "complete": !stopped,
    });
    out.last_line(exit, &summary, &t)
}
