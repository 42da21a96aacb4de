//! `crash` with programs: the campaign.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_campaign::{
    Campaign, Findings, Found, KnownFailure, KnownFailures, LoggedRun, Source, Stage, Watch,
    broken_at_prefixes, load_campaign, resume, save_campaign,
};
use wp_crash::Rule;
use wp_machine::host::{Output, Shape};

use super::key::{build, key};
use super::log::{ExploredLog, Then};
use super::plan::{Effort, Keep, One, Wrong};
use super::reduced::{self, Reduced};
use super::report;
use super::setup::Exploration;
use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::{Progress, time};

/// A campaign file is written at most so often.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Seconds after which work is long, and its size is told.
const TELL_AFTER: f64 = 2.0;
/// Seconds left from which on there is advice how to shorten it.
const LONG: f64 = 5.0;

/// The size of a program's exploration, of which `seconds` are over. The time left is a lower
/// bound: states of later crash points have more to recover.
fn size(stage: &Stage, seconds: f64) -> String {
    let Stage { of_points, of_states, unpersisted, states, .. } = stage;
    let left = seconds * of_states.saturating_sub(*states) as f64 / *states as f64;
    let mut text = format!(
        "crash: {of_points} crash points, at most {of_states} states, at most {unpersisted} \
         unpersisted writes at a point; at least {} left",
        time(left)
    );
    if left > LONG {
        text += "\nhelp: fewer or larger writes, a smaller size= of a job, or --budget 60s take less time";
    }
    text
}

struct Hunt<'a> {
    x: &'a Exploration<'a>,
    keep: &'a Keep,
    effort: &'a Effort,
    out: &'a Out,
    key: String,
    /// Of the program, for a state file; empty without one.
    build: String,
    stop: &'a AtomicBool,
    start: Instant,
    shown: Progress,
    /// Has the size of a long program been told?
    sized: AtomicBool,
    saved: Mutex<Instant>,
    failed: Mutex<Option<std::io::Error>>,
}

impl<'a> Hunt<'a> {
    fn new(
        x: &'a Exploration,
        keep: &'a Keep,
        effort: &'a Effort,
        stop: &'a AtomicBool,
        out: &'a Out,
    ) -> Hunt<'a> {
        #[expect(
            clippy::disallowed_methods,
            reason = "progress, the budget and rates are of the host"
        )]
        let start = Instant::now();
        Hunt {
            x,
            keep,
            effort,
            out,
            key: key(x, keep.state_file.is_some()),
            // It is read and hashed, which takes longer than a small program.
            build: keep.state_file.as_ref().map_or_else(String::new, |_| build()),
            stop,
            start,
            shown: Progress::new("crash"),
            sized: AtomicBool::new(false),
            saved: Mutex::new(start),
            failed: Mutex::new(None),
        }
    }

    /// What was found before: nothing, or what the state file has. Errors: it is of another
    /// campaign or build, and that was told.
    fn before(&self) -> Result<Findings, ExitCode> {
        let Some(path) = &self.keep.state_file else {
            return Ok(Findings::before(&self.x.campaign));
        };
        let fails = |what: &str| {
            let what = format!("{}: {what}", path.shown());
            Err(self.out.fail(Exit::Usage, "state-file", &what, "name another --state-file"))
        };
        match load_campaign(path, &self.key, &self.build) {
            Ok(None) => Ok(Findings::before(&self.x.campaign)),
            Ok(Some((_, true))) => fails("written by another build of writepath"),
            Ok(Some((f, false))) => {
                self.out.note(&format!("{}: resumes with program {}", path.shown(), f.done));
                self.out.line(&json!({ "kind": "resumed", "done": f.done }));
                Ok(f)
            }
            Err(e) => fails(&e.to_string()),
        }
    }

    /// Goes on from `before`. Errors: nothing came of it, and that was told.
    fn explore(&self, before: Findings) -> Result<Findings, ExitCode> {
        let (c, out) = (&self.x.campaign, self.out);
        // Until then nothing of it is this run's.
        self.shown.at(before.done - c.programs.0, c.programs.1 - c.programs.0, "programs");
        let findings = self.with_command(|| {
            let watch = Watch {
                step: &|f, new| self.step(f, new),
                abandon: &|| self.is_over(),
                at: &|stage| self.at(stage),
            };
            resume(c, self.effort.workers, before, &watch)
        });
        if let Some(path) = &self.keep.state_file {
            self.save(path, &findings);
            if let Some(e) = self.failed.lock().unwrap_or_else(|e| e.into_inner()).take() {
                return Err(out.host_error(path, &e));
            }
        }
        if let Some(e) = c.command.as_ref().and_then(|c| c.error()) {
            return Err(out.fail(Exit::HostIo, "check", &e, "the command could not be run"));
        }
        match unexplored(c, &findings) {
            Some(why) => Err(out.fail(why.exit, "not-explored", &why.message, why.help)),
            None => Ok(findings),
        }
    }

    /// Minimises failures in the time that is left.
    fn reduce(&self, findings: &Findings) -> Result<Vec<Reduced>, ExitCode> {
        if self.stop.load(Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        let until = || !self.is_over();
        self.with_command(|| reduced::all(self.x, self.keep, &findings.found, &until, self.out))
    }

    /// The rules that a replay of the log breaks as well. `None`: nobody asks, as it is no log or
    /// breaks none, or there was no time to look.
    fn at_prefixes(
        &self,
        findings: &Findings,
        out: &Out,
    ) -> Result<Option<BTreeSet<Rule>>, ExitCode> {
        if !matches!(self.x.campaign.source, Source::Log(_)) || !findings.is_broken() {
            return Ok(None);
        }
        // Its runs are none of the exploration's.
        let command = self.x.setup.check.as_ref().map(|check| check.command(true));
        let command = command.transpose().map_err(|e| Wrong::from(e).told(out))?;
        let c = Campaign { command, ..self.x.campaign.clone() };
        let broken = broken_at_prefixes(&c, &|| !self.is_over());
        broken.map_err(|e| out.machine_error(&e))
    }

    /// A log, for somebody who recovers its states as well.
    fn explored<'r>(&self, run: &'r LoggedRun, findings: &Findings) -> ExploredLog<'r> {
        let c = &self.x.campaign;
        ExploredLog {
            run,
            states: (c.space, c.plan, c.seed),
            failures: findings.found.iter().map(|f| (f.frame, f.lost.clone())).collect(),
            is_stopped: self.is_over(),
        }
    }

    /// What an exploration comes to.
    fn exit(&self, f: &Findings) -> Exit {
        if self.stop.load(Ordering::SeqCst) {
            Exit::Interrupted
        } else if f.is_broken() {
            Exit::No
        } else if f.done < self.x.campaign.programs.1 {
            // The budget is over, and what was not explored may break a rule.
            Exit::Interrupted
        } else if does_less(self.x, f) {
            Exit::Simulated
        } else {
            Exit::Ok
        }
    }

    fn save(&self, path: &Path, f: &Findings) {
        if let Err(e) = save_campaign(path, &self.key, &self.build, f) {
            let mut failed = self.failed.lock().unwrap_or_else(|e| e.into_inner());
            failed.get_or_insert(e);
        }
    }

    /// After each chunk.
    fn step(&self, f: &Findings, new: &[Found]) -> bool {
        for found in new {
            self.out.line(&report::failure(self.x, found));
        }
        let c = &self.x.campaign;
        let all = c.programs.1 - c.programs.0;
        let done = f.done - c.programs.0;
        self.out.line(&json!({
            "kind": "progress", "done": f.done, "programs": [c.programs.0, c.programs.1],
            "raw_states": f.totals.raw, "distinct_states": f.totals.distinct,
            "broken": f.totals.broken.iter().sum::<u64>(),
        }));
        let (states, recoveries) = (f.totals.raw, f.totals.distinct);
        let text = format_args!("programs, {states} states, {recoveries} recoveries");
        self.shown.at(done, all, text);
        if let Some(path) = &self.keep.state_file {
            let mut saved = self.saved.lock().unwrap_or_else(|e| e.into_inner());
            if saved.elapsed() > SAVE_EVERY {
                self.save(path, f);
                #[expect(clippy::disallowed_methods, reason = "how often a file is written")]
                let now = Instant::now();
                *saved = now;
            }
        }
        let failed = self.failed.lock().unwrap_or_else(|e| e.into_inner()).is_some()
            || c.command.as_ref().is_some_and(|c| c.error().is_some());
        !failed && !self.is_over()
    }

    /// How far a program is. Of one alone that is all the progress there is.
    fn at(&self, stage: &Stage) {
        let c = &self.x.campaign;
        if c.programs.1 - c.programs.0 > 1 {
            return;
        }
        let checks = match c.command.as_ref().map(|command| command.runs()) {
            Some(r) => format!(", {} of {} trees checked", r.runs, r.runs + r.waiting),
            None => String::new(),
        };
        let text = format_args!("crash points, {} states{checks}", stage.states);
        self.shown.at(stage.points, stage.of_points, text);
        let seconds = self.start.elapsed().as_secs_f64();
        if seconds > TELL_AFTER && stage.states > 0 && !self.sized.swap(true, Ordering::Relaxed) {
            self.shown.line(&size(stage, seconds));
        }
    }

    /// Does `work`, and ends a command of the user that runs when all is to stop.
    fn with_command<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.x.campaign.command {
            Some(command) => command.end_when(&|| self.is_over(), work),
            None => work(),
        }
    }

    /// Has it been interrupted, or is its time over?
    fn is_over(&self) -> bool {
        let in_time = self.effort.limit.is_none_or(|l| self.start.elapsed() < l);
        self.stop.load(Ordering::Relaxed) || !in_time
    }
}

/// Runs it, and does `then` with what a log has left. Errors: the exit code, after saying why.
pub(super) fn run(plan: One, then: Option<Then<'_>>, out: &Out) -> Result<ExitCode, ExitCode> {
    let One { setup, programs, effort, keep } = plan;
    let programs = programs.recorded(&setup.bench, keep.state_file.as_deref(), out)?;
    let x = setup.exploration(&programs).map_err(|e| Wrong::from(e).told(out))?;
    let c = &x.campaign;
    let accepted = outputs(&keep, out)?;
    let stop = out.interrupt();
    let hunt = Hunt::new(&x, &keep, &effort, &stop, out);
    let before = hunt.before()?;
    let (raw, distinct) = (before.totals.raw, before.totals.distinct);
    let findings = hunt.explore(before)?;
    let seconds = hunt.start.elapsed().as_secs_f64();
    let least = hunt.reduce(&findings)?;
    let at_prefixes = hunt.at_prefixes(&findings, out)?;
    let mut exit = hunt.exit(&findings);
    let explored = programs.log().map(|run| hunt.explored(run, &findings));
    // Its progress is over.
    drop(hunt);
    let beside = match (then, explored) {
        (Some(then), Some(explored)) => Some(then(&explored)?),
        _ => None,
    };
    if let Some(file) = accepted {
        accept(&x, &findings, file, out)?;
    }
    let unfinished = findings.unfinished.as_ref().map_or(0, |u| u.totals.distinct);
    let session = report::Session {
        seconds,
        raw: findings.explored() - raw,
        distinct: findings.totals.distinct - distinct + unfinished,
        workers: effort.workers,
        resumes: keep.state_file.is_some(),
        at_prefixes,
    };
    let mut text = report::text(&x, &findings, &least, &session);
    let minimised: Vec<Value> = least.iter().map(|l| l.document(c)).collect();
    let mut document = report::document(&x, &findings);
    document["minimised"] = json!(minimised);
    if let Some(rules) = &session.at_prefixes {
        document["broken_at_prefixes"] = json!(rules.iter().map(|r| r.name()).collect::<Vec<_>>());
    }
    if let Some(beside) = beside {
        text.push_str(&beside.text);
        document[beside.document.0] = beside.document.1;
        if exit == Exit::Ok && !beside.is_sound {
            exit = Exit::No;
        }
    }
    Ok(out.last_line(exit, &document, &text))
}

/// Why a campaign has explored nothing that its user asked for.
pub(super) struct Unexplored {
    pub exit: Exit,
    pub message: String,
    pub help: &'static str,
}

/// Has nothing been explored, though it was not stopped?
pub(super) fn unexplored(c: &Campaign, f: &Findings) -> Option<Unexplored> {
    if f.done < c.programs.1 {
        return None;
    }
    let help = "see --fs, --device, --elevator and --size";
    if let (0, Some((n, why))) = (f.totals.programs, f.unplayed()) {
        let message = format!("nothing was explored: program {n} could not run: {why}");
        return Some(Unexplored { exit: Exit::Usage, message, help });
    }
    let message = f.calls.in_vain()?;
    let help =
        "correct its descriptors and paths, or put `expect ERROR` before calls that must fail";
    Some(Unexplored { exit: Exit::Simulated, message, help })
}

/// Did the programs do less than they ask for? A fio job has no call that may fail; a program of
/// its user may, unless it says with what.
pub(super) fn does_less(x: &Exploration, f: &Findings) -> bool {
    let unmet = f.calls.unmet > 0;
    unmet || x.programs.is_job() && f.calls.failed > 0 || f.unplayed().is_some()
}

/// Writes what was found, and what was known before, as a list of known failures.
fn accept(x: &Exploration, f: &Findings, file: Output, out: &Out) -> Result<(), ExitCode> {
    let (setting, word) = (x.setup.words.line(), x.programs.word());
    let known = x.campaign.known.entries().map(|(e, _)| e.clone());
    let new = f.places.iter().map(|((rule, path), states)| KnownFailure {
        rule: rule.name().to_owned(),
        path: Some(path.clone()),
        seen: None,
        setting: Some(setting.clone()),
        why: format!("found in {states} states of `{word}`; reason not yet given"),
    });
    let all: Vec<KnownFailure> = known.chain(new).collect();
    let text = KnownFailures::write(&all).map_err(std::io::Error::other);
    let text = text.map_err(|e| out.host_error(file.path(), &e))?;
    outputs::finish(file, text.as_bytes(), out)
}

/// Tries what is written in the end, and begins the list of what was found: a new file, or that of
/// `--known`.
fn outputs(keep: &Keep, out: &Out) -> Result<Option<Output>, ExitCode> {
    if let Some(path) = &keep.state_file {
        // An existing file is read and checked when the hunt resumes from it.
        outputs::forced(path, (Shape::Text, true), "", out)?;
    }
    if let Some(dir) = &keep.reproducer {
        outputs::folder(dir, out)?;
    }
    let Some(path) = &keep.accept else { return Ok(None) };
    let real = |path: &Path| path.canonicalize().ok();
    let is_known = keep.known.as_deref().is_some_and(|known| real(known) == real(path));
    let help = "name a new file, or that of --known";
    outputs::forced(path, (Shape::Text, is_known), help, out).map(Some)
}
