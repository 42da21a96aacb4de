//! Failures reduced to the least that still fails.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_campaign::bugs::{Cause, cause as cause_of};
use wp_campaign::{
    Bounds, Campaign, Cut, Found, Minimal, Reproducer, Source, line as command_line, minimise,
    play, write_reproducer,
};
use wp_crash::Rule;
use wp_machine::MachineError;
use wp_workload::program::Step;

use super::plan::Keep;
use super::report;
use super::setup::Exploration;
use crate::output::Out;
use crate::progress::Progress;

const LINE: &str = "a string takes it";
/// How long known bugs are tried for, with the minimising before.
const CAUSE: Duration = Duration::from_secs(60);

/// Steps of a program up to which all are shown, and how many of a longer one.
const STEPS_WHOLE: usize = 200;
const STEPS: usize = 30;

/// The writes that a minimised failure loses. Errors: its program cannot be played.
fn lost_writes(c: &Campaign, m: &Minimal) -> Result<Vec<String>, MachineError> {
    let played = match &c.source {
        Source::Log(_) => c.play(c.image()?, m.found.program)?,
        _ => play(&c.bench, &m.program)?,
    };
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
    pub(super) minimal: Option<Minimal>,
    /// The known bugs that it comes from.
    cause: Option<Cause>,
    /// The writes that are lost, of the program of a host: it may be too long to be read.
    lost: Vec<String>,
    pub(super) seconds: f64,
    /// The command that shows a state of a log.
    state: Option<String>,
    reproducer: Option<PathBuf>,
}

impl Reduced {
    pub(super) fn of(
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
        // Known bugs are of programs, which a log has none of.
        let has_program = !matches!(c.source, Source::Lives(_) | Source::Log(_));
        let cause = minimal.as_ref().filter(|_| has_program);
        let cause = cause.and_then(|m| cause_of(c, &m.program, found.violation.rule, &in_time));
        let is_log = matches!(c.source, Source::Log(_));
        let recorded = minimal.as_ref().filter(|m| is_log || m.program.is_recorded());
        let lost = recorded.map(|m| lost_writes(c, m)).transpose();
        let lost = lost.map_err(|e| out.machine_error(&e))?.unwrap_or_default();
        let first = found.clone();
        let state = None;
        Ok(Reduced { first, calls, minimal, cause, lost, seconds, state, reproducer: None })
    }

    fn replay(&self, c: &Campaign) -> String {
        let Some(m) = &self.minimal else { return String::new() };
        if let Some(line) = &self.state {
            return line.clone();
        }
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
        let (before, lost, states) = (self.first.lost.len(), m.lost(), m.work.1);
        let (calls, work) = match &c.source {
            Source::Log(_) => (String::new(), String::new()),
            _ => (
                format!("from {} to {} calls and ", self.calls, m.calls),
                format!("{} programs, ", m.work.0),
            ),
        };
        writeln!(
            t,
            "\n{rule}, minimised {calls}from {before} to {lost} lost writes in {:.1} s ({work}{states} \
             states{unfinished}):",
            self.seconds,
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
                writeln!(t, "    {}: {}; crash bug {0}", bug.id, bug.what).expect(LINE);
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
        match &c.source {
            Source::Log(_) => doc["lost_writes"] = json!(self.lost),
            _ => {
                doc["program"] = json!(m.program.to_string());
                doc["calls"] = json!(m.calls);
            }
        }
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

    /// Writes what shows it without us. `fs`: the file system of the campaign, as options say it.
    pub(super) fn write(
        &mut self,
        (c, fs): (&Campaign, &str),
        dir: &Path,
        out: &Out,
    ) -> Result<(), ExitCode> {
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
            fs,
        };
        let written = write_reproducer(dir, &reproducer);
        written.map_err(|e| out.host_error(dir, &e))?;
        self.reproducer = Some(dir.to_owned());
        Ok(())
    }
}

/// The first failures of each rule, as many as are wanted. Errors: the exit code, after saying why.
pub(super) fn all(
    x: &Exploration,
    keep: &Keep,
    found: &[Found],
    go_on: &(dyn Fn() -> bool + Sync),
    out: &Out,
) -> Result<Vec<Reduced>, ExitCode> {
    let c = &x.campaign;
    // What comes before a life is not made smaller.
    let wanted = if matches!(c.source, Source::Lives(_)) { 0 } else { keep.minimise };
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
            if let (Source::Log(_), Some(m)) = (&c.source, &l.minimal) {
                l.state = Some(report::replay(x, &m.found));
            }
            if let Some(dir) = &keep.reproducer {
                let dir = dir.join(format!("{}-{n}", rule.name()));
                l.write((c, &x.setup.words.fs), &dir, out)?;
            }
            out.line(&l.document(c));
            least.push(l);
        }
    }
    Ok(least)
}
