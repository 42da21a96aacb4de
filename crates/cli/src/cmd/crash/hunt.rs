//! `crash` with programs: the campaign.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_campaign::{
    Campaign, Findings, Found, KnownFailure, KnownFailures, Source, Stage, Watch, load_campaign,
    resume, save_campaign,
};
use wp_machine::host::{Output, Shape};

use super::key::{build, is_hidden, key};
use super::{Args, limit, reduced, report};
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
    a: &'a Args,
    c: &'a Campaign,
    out: &'a Out,
    key: String,
    build: String,
    stop: &'a AtomicBool,
    start: Instant,
    limit: Option<Duration>,
    shown: Progress,
    /// Has the size of a long program been told?
    sized: AtomicBool,
    saved: Mutex<Instant>,
    failed: Mutex<Option<std::io::Error>>,
}

impl Hunt<'_> {
    fn save(&self, path: &Path, f: &Findings) {
        if let Err(e) = save_campaign(path, &self.key, &self.build, f) {
            let mut failed = self.failed.lock().unwrap_or_else(|e| e.into_inner());
            failed.get_or_insert(e);
        }
    }

    /// After each chunk.
    fn step(&self, f: &Findings, new: &[Found]) -> bool {
        for found in new {
            self.out.line(&report::failure(self.a, self.c, found));
        }
        let all = self.c.programs.1 - self.c.programs.0;
        let done = f.done - self.c.programs.0;
        self.out.line(&json!({
            "kind": "progress", "done": f.done, "programs": [self.c.programs.0, self.c.programs.1],
            "raw_states": f.totals.raw, "distinct_states": f.totals.distinct,
            "broken": f.totals.broken.iter().sum::<u64>(),
        }));
        let (states, recoveries) = (f.totals.raw, f.totals.distinct);
        let text = format_args!("programs, {states} states, {recoveries} recoveries");
        self.shown.at(done, all, text);
        if let Some(path) = &self.a.state_file {
            let mut saved = self.saved.lock().unwrap_or_else(|e| e.into_inner());
            if saved.elapsed() > SAVE_EVERY {
                self.save(path, f);
                #[expect(clippy::disallowed_methods, reason = "how often a file is written")]
                let now = Instant::now();
                *saved = now;
            }
        }
        let failed = self.failed.lock().unwrap_or_else(|e| e.into_inner()).is_some()
            || self.c.command.as_ref().is_some_and(|c| c.error().is_some());
        !failed && !self.is_over()
    }

    /// How far a program is. Of one alone that is all the progress there is.
    fn at(&self, stage: &Stage) {
        if self.c.programs.1 - self.c.programs.0 > 1 {
            return;
        }
        let checks = match self.c.command.as_ref().map(|command| command.runs()) {
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
        match &self.c.command {
            Some(command) => command.end_when(&|| self.is_over(), work),
            None => work(),
        }
    }

    /// Has it been interrupted, or is its time over?
    fn is_over(&self) -> bool {
        let in_time = self.limit.is_none_or(|l| self.start.elapsed() < l);
        self.stop.load(Ordering::Relaxed) || !in_time
    }
}

/// Runs it.
pub(super) fn run(a: &Args, c: &Campaign, out: &Out) -> ExitCode {
    let limit = match limit(a, out) {
        Ok(limit) => limit,
        Err(exit) => return exit,
    };
    let accepted = match outputs(a, out) {
        Ok(accepted) => accepted,
        Err(exit) => return exit,
    };
    if let (Some(command), Some(_)) = (a.check_cmd.as_ref().or(a.checker.as_ref()), &a.state_file)
        && is_hidden(command)
    {
        let what =
            "--check: the shell expands a part of it, so that a change of its files is not seen";
        let help = "with --state-file name files as they are: --check 'sh ./check.sh'";
        return out.fail(Exit::Usage, "check", what, help);
    }
    let (key, build) = (key(a, c), build());
    let mut findings = Findings::before(c);
    if let Some(path) = &a.state_file {
        match load_campaign(path, &key, &build) {
            Ok(None) => {}
            Ok(Some((_, true))) => {
                let what = format!("{}: written by another build of writepath", path.shown());
                return out.fail(Exit::Usage, "state-file", &what, "name another --state-file");
            }
            Ok(Some((f, false))) => {
                out.note(&format!("{}: resumes with program {}", path.shown(), f.done));
                out.line(&json!({ "kind": "resumed", "done": f.done }));
                findings = f;
            }
            Err(e) => {
                let what = format!("{}: {e}", path.shown());
                return out.fail(Exit::Usage, "state-file", &what, "name another --state-file");
            }
        }
    }
    let stop = out.interrupt();
    #[expect(clippy::disallowed_methods, reason = "progress, the budget and rates are of the host")]
    let start = Instant::now();
    let before = findings.totals.raw;
    let hunt = Hunt {
        a,
        c,
        out,
        key,
        build,
        stop: &stop,
        start,
        limit,
        shown: Progress::new("crash"),
        sized: AtomicBool::new(false),
        saved: Mutex::new(start),
        failed: Mutex::new(None),
    };
    let distinct = findings.totals.distinct;
    // Until then nothing of it is this run's.
    hunt.shown.at(findings.done - c.programs.0, c.programs.1 - c.programs.0, "programs");
    let findings = hunt.with_command(|| {
        let watch = Watch {
            step: &|f, new| hunt.step(f, new),
            abandon: &|| hunt.is_over(),
            at: &|stage| hunt.at(stage),
        };
        resume(c, a.workers(), findings, &watch)
    });
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &a.state_file {
        hunt.save(path, &findings);
        if let Some(e) = hunt.failed.lock().unwrap_or_else(|e| e.into_inner()).take() {
            return out.host_error(path, &e);
        }
    }
    if let Some(e) = c.command.as_ref().and_then(|c| c.error()) {
        return out.fail(Exit::HostIo, "check", &e, "the command could not be run");
    }
    if let Some(why) = unexplored(c, &findings) {
        return out.fail(why.exit, "not-explored", &why.message, why.help);
    }
    let mut least = Vec::new();
    if !stop.load(Ordering::SeqCst) {
        // What comes before a life is not made smaller.
        let has_lives = matches!(c.source, Source::Lives(_));
        let wanted = if has_lives { 0 } else { a.minimise.unwrap_or(1) };
        // What was found is reduced in the time that is left of the budget.
        let until = || !hunt.is_over();
        match hunt.with_command(|| reduced::all(a, c, &findings.found, wanted, &until, out)) {
            Ok(found) => least = found,
            Err(e) => return e,
        }
    }
    if let Some(file) = accepted
        && let Err(exit) = accept(a, c, &findings, file, out)
    {
        return exit;
    }
    let speed = report::Speed {
        seconds,
        raw: findings.explored() - before,
        distinct: findings.totals.distinct - distinct
            + findings.unfinished.as_ref().map_or(0, |u| u.totals.distinct),
    };
    let text = report::text(a, c, &findings, &least, &speed);
    let exit = if stop.load(Ordering::SeqCst) {
        Exit::Interrupted
    } else if findings.is_broken() {
        Exit::No
    } else if findings.done < c.programs.1 {
        // The budget is over, and what was not explored may break a rule.
        Exit::Interrupted
    } else if does_less(a, &findings) {
        Exit::Simulated
    } else {
        Exit::Ok
    };
    let minimised: Vec<Value> = least.iter().map(|l| l.document(c)).collect();
    let mut document = report::document(a, c, &findings);
    document["minimised"] = json!(minimised);
    out.last_line(exit, &document, &text)
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
pub(super) fn does_less(a: &Args, f: &Findings) -> bool {
    let unmet = f.calls.unmet > 0;
    let is_job = Path::new(&a.programs).extension().is_some_and(|e| e == "fio");
    unmet || is_job && f.calls.failed > 0 || f.unplayed().is_some()
}

/// Writes what was found, and what was known before, as a list of known failures.
fn accept(a: &Args, c: &Campaign, f: &Findings, file: Output, out: &Out) -> Result<(), ExitCode> {
    let setting = super::setting(a);
    let known = c.known.entries().map(|(e, _)| e.clone());
    let new = f.places.iter().map(|((rule, path), states)| KnownFailure {
        rule: rule.name().to_owned(),
        path: Some(path.clone()),
        seen: None,
        setting: Some(setting.clone()),
        why: format!("found in {states} states of `{}`; reason not yet given", a.programs),
    });
    let all: Vec<KnownFailure> = known.chain(new).collect();
    let text = KnownFailures::write(&all).map_err(std::io::Error::other);
    let text = text.map_err(|e| out.host_error(file.path(), &e))?;
    outputs::finish(file, text.as_bytes(), out)
}

/// Tries what is written in the end, and begins the list of what was found: a new file, or that of
/// `--known`.
fn outputs(a: &Args, out: &Out) -> Result<Option<Output>, ExitCode> {
    if let Some(path) = &a.state_file {
        // An existing file is read and checked when the hunt resumes from it.
        outputs::forced(path, (Shape::Text, true), "", out)?;
    }
    if let Some(dir) = &a.reproducer {
        outputs::folder(dir, out)?;
    }
    let Some(path) = &a.accept else { return Ok(None) };
    let real = |path: &Path| path.canonicalize().ok();
    let is_known = a.known.as_deref().is_some_and(|known| real(known) == real(path));
    let help = "name a new file, or that of --known";
    outputs::forced(path, (Shape::Text, is_known), help, out).map(Some)
}
