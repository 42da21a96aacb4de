//! `crash` of a folder: every program in it.

use std::fmt::Write;
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
use super::plan::Folder;
use super::programs::Programs;
use super::report;
use super::setup::Setup;
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// What became of a program.
struct Done {
    exit: Exit,
    /// Its line of the table, and what follows it.
    text: String,
    document: Value,
    totals: Totals,
}

/// Explores one. Nothing: it was interrupted.
fn one(setup: &Setup, file: &ProgramFile, is_over: &(dyn Fn() -> bool + Sync)) -> Option<Done> {
    let programs = Programs::of_file(&file.path, &file.program);
    let failed = |exit: Exit, why: &str| {
        let text = format!("{:<28} could not run: {why}\n", file.name);
        let document = json!({ "program": file.name, "error": why });
        Some(Done { exit, text, document, totals: Totals::default() })
    };
    let x = match setup.exploration(&programs) {
        Ok(x) => x,
        Err(e) => return failed(Exit::Usage, &e),
    };
    let c = &x.campaign;
    let watch = Watch { step: &|_, _| !is_over(), abandon: is_over, at: &|_| {} };
    let f = resume(c, 1, Findings::before(c), &watch);
    if f.done < c.programs.1 {
        return None;
    }
    // The file system may lack a call of the program, which then tests something else.
    if let Some(why) = unexplored(c, &f) {
        return failed(why.exit, &why.message);
    }
    let t = &f.totals;
    let mut text = format!("{:<28} {:>10} {:>9}  ", file.name, t.raw, t.distinct);
    let broken: Vec<Rule> = Rule::ALL.into_iter().filter(|r| t.broken[*r as usize] > 0).collect();
    let names: Vec<&str> = broken.iter().map(|r| r.name()).collect();
    let less = does_less(&x, &f);
    text += match (broken.is_empty(), less) {
        (false, _) => "broken: ",
        (true, true) => "calls did not answer as the program expects",
        (true, false) => "ok",
    };
    writeln!(text, "{}", names.join(", ")).expect(LINE);
    for rule in broken {
        if let Some(found) = f.found.iter().find(|f| f.violation.rule == rule) {
            let what = report::violation(&found.violation);
            writeln!(text, "  {what}\n  {}", report::replay(&x, found)).expect(LINE);
        }
    }
    let exit = match (names.is_empty(), less) {
        (false, _) => Exit::No,
        (true, true) => Exit::Simulated,
        (true, false) => Exit::Ok,
    };
    let mut document = report::document(&x, &f);
    document["program"] = json!(file.name);
    document["kind"] = json!("program");
    Some(Done { exit, text, document, totals: f.totals })
}

/// Runs every program of the folder that is for the file system. Exit 1 if one breaks a rule.
pub(super) fn run(plan: &Folder, out: &Out) -> Result<ExitCode, ExitCode> {
    let (folder, fs) = (plan.folder.shown(), plan.setup.bench.fs.name);
    let fails = |what: &str, help: &str| out.fail(Exit::Usage, "crash", what, help);
    let all = read(&plan.folder).map_err(|e| fails(&e, "programs are files *.txt"))?;
    let (files, others): (Vec<&ProgramFile>, Vec<&ProgramFile>) =
        all.iter().partition(|file| file.is_for(fs));
    if files.is_empty() {
        return Err(fails(&format!("{folder}: no program in it is for {fs}"), "see --fs"));
    }
    let stop = out.interrupt();
    #[expect(clippy::disallowed_methods, reason = "the budget and what it took are of the host")]
    let start = Instant::now();
    let is_over = || {
        let in_time = plan.effort.limit.is_none_or(|l: Duration| start.elapsed() < l);
        stop.load(Ordering::Relaxed) || !in_time
    };
    let finished = explored(plan, &files, &is_over);
    finished.iter().for_each(|d| out.line(&d.document));
    let is_whole = finished.len() == files.len();
    let summary = Summary { plan, finished: &finished, others: &others, files: files.len() };
    let exit = match (stop.load(Ordering::SeqCst), summary.count(Exit::No) > 0) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::No,
        _ if !is_whole => Exit::Interrupted,
        _ => summary.worst().unwrap_or(Exit::Ok),
    };
    let text = summary.text(start.elapsed().as_secs_f64());
    Ok(out.last_line(exit, &summary.document(stop.load(Ordering::SeqCst)), &text))
}

/// The programs that were explored before it was over, in their order.
fn explored(
    plan: &Folder,
    files: &[&ProgramFile],
    is_over: &(dyn Fn() -> bool + Sync),
) -> Vec<Done> {
    let (next, shown) = (AtomicUsize::new(0), Progress::new("crash"));
    let done: Mutex<Vec<Option<Done>>> = Mutex::new(files.iter().map(|_| None).collect());
    let work = || {
        while !is_over() {
            let n = next.fetch_add(1, Ordering::SeqCst);
            let Some(file) = files.get(n) else { break };
            let made = one(&plan.setup, file, is_over);
            let mut done = done.lock().unwrap_or_else(|e| e.into_inner());
            done[n] = made;
            let finished = done.iter().flatten().count();
            shown.at(finished as u64, files.len() as u64, "programs");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.effort.workers.clamp(1, files.len()) {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.into_iter().flatten().collect()
}

/// What became of all.
struct Summary<'a> {
    plan: &'a Folder,
    finished: &'a [Done],
    /// Programs that are not for the file system.
    others: &'a [&'a ProgramFile],
    /// How many are for it.
    files: usize,
}

impl Summary<'_> {
    fn count(&self, exit: Exit) -> usize {
        self.finished.iter().filter(|d| d.exit == exit).count()
    }

    /// The worst that became of a program that breaks no rule.
    fn worst(&self) -> Option<Exit> {
        [Exit::Usage, Exit::Simulated].into_iter().find(|e| self.count(*e) > 0)
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.finished.iter().for_each(|d| totals.add(&d.totals));
        totals
    }

    /// For people.
    fn text(&self, seconds: f64) -> String {
        let (fs, totals) = (&self.plan.setup.words.fs, self.totals());
        let mut t = format!("{:<28} {:>10} {:>9}  rules, {fs}\n", "program", "states", "distinct");
        t.extend(self.finished.iter().map(|d| &*d.text));
        let (broken, ok, all) = (self.count(Exit::No), self.count(Exit::Ok), self.finished.len());
        writeln!(
            t,
            "{all} programs: {ok} ok, {broken} broken, {} others; {} states, {} distinct; {seconds:.1} s",
            all - ok - broken,
            totals.raw,
            totals.distinct,
        )
        .expect(LINE);
        if !self.others.is_empty() {
            let fs = self.plan.setup.bench.fs.name;
            writeln!(t, "{} programs are not for {fs}", self.others.len()).expect(LINE);
        }
        if all < self.files {
            writeln!(t, "incomplete: {} programs were not explored", self.files - all).expect(LINE);
        }
        t
    }

    /// For programs.
    fn document(&self, is_stopped: bool) -> Value {
        let (totals, all) = (self.totals(), self.finished.len());
        json!({
            "schema": "writepath.crash.folder/1", "kind": "summary", "fs": self.plan.setup.words.fs,
            "programs": [0, self.files], "done": all, "ok_programs": self.count(Exit::Ok),
            "broken_programs": self.count(Exit::No), "raw_states": totals.raw,
            "distinct_states": totals.distinct,
            "totals": { "programs": all, "raw_states": totals.raw },
            "not_for_this_file_system": self.others.iter().map(|f| &f.name).collect::<Vec<_>>(),
            "complete": !is_stopped && all == self.files,
        })
    }
}
