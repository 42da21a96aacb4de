//! Failures reduced to the least that still fails.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_campaign::bugs::{Bug, Cause, affected, cause as cause_of};
use wp_campaign::{
    Bounds, Campaign, Cut, Findings, Found, Minimal, Reproducer, Source, Watch,
    line as command_line, minimise, play, resume, write_reproducer,
};
use wp_crash::Rule;
use wp_machine::MachineError;
use wp_workload::program::Step;

use super::{Args, report};
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";
/// How long known bugs are tried for, with the minimising before.
const CAUSE: Duration = Duration::from_secs(60);
/// What is small: calls, lost units, seconds (`crash.md`, section 7.6).
const GOAL: (usize, usize, f64) = (5, 3, 30.0);

/// Steps of a program up to which all are shown, and how many of a longer one.
const STEPS_WHOLE: usize = 200;
const STEPS: usize = 30;

/// The writes that a minimised failure loses. Errors: its program cannot be played.
fn lost_writes(c: &Campaign, m: &Minimal) -> Result<Vec<String>, MachineError> {
    let played = play(&c.bench, &m.program)?;
    let history = Rc::new(c.space.history(&played));
    let cut = Cut {
        fs: (c.bench.fs, &c.bench.fs_options),
        played: &played,
        history: &history,
        frame: m.found.frame,
        lost: &m.found.lost,
    };
    Ok(cut.lost_writes())
}

/// A failure, and what was left of it.
pub(super) struct Reduced {
    first: Found,
    /// Calls of the program that it comes from.
    calls: usize,
    minimal: Option<Minimal>,
    /// The known bugs that it comes from.
    cause: Option<Cause>,
    /// The writes that are lost, of the program of a host: it may be too long to be read.
    lost: Vec<String>,
    seconds: f64,
    reproducer: Option<PathBuf>,
}

impl Reduced {
    fn of(
        c: &Campaign,
        found: &Found,
        go_on: &(dyn Fn() -> bool + Sync),
        out: &Out,
    ) -> Result<Reduced, ExitCode> {
        #[expect(clippy::disallowed_methods, reason = "how long it took is of the host")]
        let start = Instant::now();
        // A command of the user takes a thousand times as long as a rule of ours.
        let bounds = match found.violation.rule {
            Rule::Application => Bounds { plays: 200, ..Bounds::default() },
            _ => Bounds::default(),
        };
        let minimal = minimise(c, found, bounds, go_on);
        let minimal = minimal.map_err(|e| out.machine_error(&e))?;
        let program = c.source.program(found.program);
        let calls = program.0.iter().filter(|s| matches!(s, Step::Call(..))).count();
        let seconds = start.elapsed().as_secs_f64();
        let in_time = || go_on() && start.elapsed() < CAUSE;
        let cause = minimal.as_ref().filter(|_| !matches!(c.source, Source::Lives(_)));
        let cause = cause.and_then(|m| cause_of(c, &m.program, found.violation.rule, &in_time));
        let recorded = minimal.as_ref().filter(|m| m.program.is_recorded());
        let lost = recorded.map(|m| lost_writes(c, m)).transpose();
        let lost = lost.map_err(|e| out.machine_error(&e))?.unwrap_or_default();
        let first = found.clone();
        Ok(Reduced { first, calls, minimal, cause, lost, seconds, reproducer: None })
    }

    fn replay(&self, c: &Campaign) -> String {
        let Some(m) = &self.minimal else { return String::new() };
        let state = (m.found.frame, &m.found.lost[..]);
        let program = match m.program.is_recorded() {
            // Too long for a line of a shell; --reproducer writes it.
            true => "program.txt".to_owned(),
            false => command_line::quoted(&m.program),
        };
        command_line::state(c, &program, state)
    }

    /// For people.
    pub(super) fn text(&self, c: &Campaign) -> String {
        let rule = self.first.violation.rule.name();
        let Some(m) = &self.minimal else {
            return format!(
                "\n{rule} of program {}: not reproduced when minimised.\n",
                self.first.program
            );
        };
        let mut t = String::new();
        let unfinished = if m.finished { "" } else { ", unfinished" };
        writeln!(
            t,
            "\n{rule}, minimised from {} to {} calls and from {} to {} lost writes in {:.1} s ({} programs, \
             {} states{unfinished}):",
            self.calls,
            m.calls,
            self.first.lost.len(),
            m.lost(),
            self.seconds,
            m.work.0,
            m.work.1
        )
        .expect(LINE);
        let steps = &m.program.0;
        let before = steps.len().checked_sub(STEPS).filter(|_| steps.len() > STEPS_WHOLE);
        if let Some(before) = before {
            writeln!(t, "    … {before} steps; --reproducer DIR writes them").expect(LINE);
        }
        for step in &steps[before.unwrap_or(0)..] {
            writeln!(t, "    {step:#}").expect(LINE);
        }
        for lost in &self.lost {
            writeln!(t, "  lost: {lost}").expect(LINE);
        }
        writeln!(t, "  {}", report::violation(&m.found.violation)).expect(LINE);
        writeln!(t, "  {}", self.replay(c)).expect(LINE);
        if let Some(Cause { bugs, options }) = &self.cause {
            let ids: Vec<&str> = bugs.iter().map(|b| b.id).collect();
            let is_one = if ids.len() == 1 { "known bug" } else { "known bugs, all of them" };
            writeln!(t, "  {is_one}: {} (not with {options})", ids.join(", ")).expect(LINE);
            for bug in bugs {
                writeln!(t, "    {}: {}; crash --bug {0}", bug.id, bug.what).expect(LINE);
            }
        }
        if let Some(dir) = &self.reproducer {
            writeln!(t, "  {}: see README.md there", dir.shown()).expect(LINE);
        }
        t
    }

    /// For programs; what does not depend on the host.
    pub(super) fn document(&self, c: &Campaign) -> Value {
        let Some(m) = &self.minimal else {
            return json!({ "kind": "minimised", "rule": self.first.violation.rule.name(),
                "program": self.first.program, "shows_again": false });
        };
        let mut doc = report::violation_document(&m.found.violation);
        doc["kind"] = json!("minimised");
        doc["of_program"] = json!(self.first.program);
        doc["program"] = json!(m.program.to_string());
        doc["calls"] = json!(m.calls);
        doc["frame"] = json!(m.found.frame);
        doc["lost"] = json!(m.found.lost);
        doc["finished"] = json!(m.finished);
        doc["replay"] = json!(self.replay(c));
        doc["known_bugs"] = json!(self.cause.as_ref().map(|cause| json!({
            "ids": cause.bugs.iter().map(|b| b.id).collect::<Vec<_>>(),
            "fixed_by": cause.options,
        })));
        doc
    }

    fn is_small(&self) -> bool {
        let Some(m) = &self.minimal else { return false };
        m.calls <= GOAL.0 && m.lost() <= GOAL.1 && self.seconds <= GOAL.2
    }

    fn write(&mut self, a: &Args, c: &Campaign, dir: &Path, out: &Out) -> Result<(), ExitCode> {
        let Some(m) = &self.minimal else { return Ok(()) };
        let played = play(&c.bench, &m.program).map_err(|e| out.machine_error(&e))?;
        let history = Rc::new(c.space.history(&played));
        let cut = Cut {
            fs: (c.bench.fs, &c.bench.fs_options),
            played: &played,
            history: &history,
            frame: m.found.frame,
            lost: &m.found.lost,
        };
        let reproducer = Reproducer {
            cut: &cut,
            space: c.space,
            program: &m.program,
            violation: Some(&m.found.violation),
            replay: &self.replay(c),
            fs: &a.fs,
        };
        let written = write_reproducer(dir, &reproducer);
        written.map_err(|e| out.host_error(dir, &e))?;
        self.reproducer = Some(dir.to_owned());
        Ok(())
    }
}

/// The first `wanted` failures of each rule. Errors: the exit code, after saying why.
pub(super) fn all(
    a: &Args,
    c: &Campaign,
    found: &[Found],
    wanted: usize,
    go_on: &(dyn Fn() -> bool + Sync),
    out: &Out,
) -> Result<Vec<Reduced>, ExitCode> {
    let mut least = Vec::new();
    for rule in Rule::ALL {
        // What a mount comes to is not in the state that it mounts.
        let these = found.iter().filter(|f| f.violation.rule == rule && !f.mount);
        for (n, found) in these.take(wanted).enumerate() {
            if !go_on() {
                return Ok(least);
            }
            let live = Progress::new("minimising");
            live.say(format_args!(
                "minimising {}; an interrupt keeps the smallest so far",
                rule.name()
            ));
            let mut l = Reduced::of(c, found, go_on, out)?;
            drop(live);
            if let Some(dir) = &a.reproducer {
                l.write(a, c, &dir.join(format!("{}-{n}", rule.name())), out)?;
            }
            out.line(&l.document(c));
            least.push(l);
        }
    }
    Ok(least)
}

/// Failures of known bugs, `n` of each from different programs: how small do they become? Exit 1 if
/// fewer than nine in ten become small.
pub(super) fn bugs(a: &Args, wanted: &[&Bug], n: usize, stop: &AtomicBool, out: &Out) -> ExitCode {
    let mut t = String::new();
    writeln!(
        t,
        "{:<5} {:<17} {:>8} {:>6}  {:>14} {:>15} {:>13}",
        "bug", "rule", "failures", "small", "calls", "lost writes", "seconds"
    )
    .expect(LINE);
    let mut documents = Vec::new();
    let (mut small, mut of) = (0, 0);
    let mut examples = String::new();
    let mut left: Vec<&str> = wanted.iter().map(|b| b.id).collect();
    let mut is_found = true;
    for bug in wanted {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let (campaign, rule) = match affected(bug) {
            Ok(x) => x,
            Err(e) => return out.machine_error(&e),
        };
        let mut least: Vec<Reduced> = Vec::new();
        let live = Progress::new("minimising");
        for number in campaign.programs.0..campaign.programs.1 {
            if least.len() == n || stop.load(Ordering::SeqCst) {
                break;
            }
            live.say(format_args!("{}: {} failures, program {number}", bug.id, least.len()));
            let one = Campaign { programs: (number, number + 1), ..campaign.clone() };
            let watch =
                Watch { step: &|_, _| true, abandon: &|| stop.load(Ordering::SeqCst), at: &|_| {} };
            let f = resume(&one, 1, Findings::before(&one), &watch);
            let Some(found) = f.found.iter().find(|f| f.violation.rule == rule) else { continue };
            match Reduced::of(&one, found, &|| !stop.load(Ordering::SeqCst), out) {
                Ok(l) => least.push(l),
                Err(e) => return e,
            }
        }
        drop(live);
        let range = |mut all: Vec<f64>, digits: usize| {
            all.sort_by(f64::total_cmp);
            match (all.first(), all.get(all.len() / 2), all.last()) {
                (Some(a), Some(b), Some(c)) => {
                    format!("{a:.digits$} {b:.digits$} {c:.digits$}")
                }
                _ => "-".to_owned(),
            }
        };
        let these = |f: &dyn Fn(&Minimal) -> usize| {
            least.iter().filter_map(|l| l.minimal.as_ref()).map(|m| f(m) as f64).collect()
        };
        let here = least.iter().filter(|l| l.is_small()).count();
        small += here;
        is_found &= !least.is_empty();
        left.remove(0);
        of += least.len();
        writeln!(
            t,
            "{:<5} {:<17} {:>8} {:>6}  {:>14} {:>15} {:>13}",
            bug.id,
            rule.name(),
            least.len(),
            here,
            range(these(&|m| m.calls), 0),
            range(these(&|m| m.lost()), 0),
            range(least.iter().map(|l| l.seconds).collect(), 1)
        )
        .expect(LINE);
        if let Some(l) = least.first_mut() {
            if let Some(dir) = &a.reproducer
                && let Err(e) = l.write(a, &campaign, &dir.join(bug.id), out)
            {
                return e;
            }
            write!(examples, "\n{}: {}{}", bug.id, bug.what, l.text(&campaign)).expect(LINE);
        }
        documents.push(json!({
            "bug": bug.id, "rule": rule.name(), "failures": least.len(), "small": here,
            "minimised": least.iter().map(|l| l.document(&campaign)).collect::<Vec<_>>(),
        }));
    }
    writeln!(
        t,
        "\nsmall: at most {} calls, {} lost writes and {} s: {small} of {of} ({:.1} %).\n\
         Three numbers are minimum, median and maximum. open and close count as calls.",
        GOAL.0,
        GOAL.1,
        GOAL.2,
        100.0 * small as f64 / f64::from(u32::try_from(of.max(1)).unwrap_or(u32::MAX))
    )
    .expect(LINE);
    t += &examples;
    // Of no failure none became small.
    let is_good = is_found && of > 0 && small * 10 >= of * 9;
    let exit = match (stop.load(Ordering::SeqCst), is_good) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::Ok,
        _ => Exit::No,
    };
    let doc = json!({
        "schema": "writepath.crash.minimised/1", "bugs": documents, "failures": of, "small": small,
        "not_tried": left,
    });
    out.answer(exit, &doc, &t)
}
