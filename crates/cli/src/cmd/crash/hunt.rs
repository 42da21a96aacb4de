//! `crash` with programs: the campaign.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wp_lab::crash::{
    Campaign, Findings, Found, KnownFailure, KnownFailures, Source, Watch, load_campaign, resume,
    save_campaign,
};

use super::{Args, least, limit, report};
use crate::output::{Exit, Out, stderr};

/// A campaign file is written at most so often.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// All that the findings depend on, and nothing else.
fn key(a: &Args, c: &Campaign) -> String {
    let mut t = report::arguments(a, c);
    t += &format!(
        " --first {} --end {} --complete {} --samples {}",
        c.programs.0, c.programs.1, c.plan.complete, c.plan.samples
    );
    for (on, flag) in [(!c.check, " --no-check"), (!c.prune, " --no-prune")] {
        t += if on { flag } else { "" };
    }
    if let Source::Text(program) = &c.source {
        t += &format!(" program {:08x}", wp_base::crc::crc32c(0, program.to_string().as_bytes()));
    }
    for (entry, here) in c.known.entries() {
        t += &format!(
            " known {:08x} {here}",
            wp_base::crc::crc32c(0, format!("{entry:?}").as_bytes())
        );
    }
    if let Some(command) = &a.check_cmd {
        t += &format!(" --check-cmd {command} {} {}", a.check_image, a.check_timeout);
    }
    t
}

/// Which build of this program it is: results of two need not be the same.
fn build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let bytes = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    format!("{version} {:08x}", wp_base::crc::crc32c(0, &bytes))
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
    live: bool,
    /// States and programs that were there before.
    before: (u64, u64),
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
        if self.live {
            let here = done.saturating_sub(self.before.0).max(1);
            let left = self.start.elapsed().as_secs_f64() * (all - done) as f64 / here as f64;
            stderr(format_args!(
                "\r{done} of {all} programs, {} states, {} recoveries; {left:.0} s left   ",
                f.totals.raw, f.totals.distinct
            ));
        }
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
        let in_time = self.limit.is_none_or(|l| self.start.elapsed() < l);
        !failed && !self.stop.load(Ordering::SeqCst) && in_time
    }
}

/// Runs it.
pub(super) fn run(a: &Args, c: &Campaign, out: &Out) -> ExitCode {
    let limit = match limit(a, out) {
        Ok(limit) => limit,
        Err(exit) => return exit,
    };
    let (key, build) = (key(a, c), build());
    let mut findings = Findings::before(c);
    if let Some(path) = &a.state_file {
        match load_campaign(path, &key, &build) {
            Ok(None) => {}
            Ok(Some((f, is_other))) => {
                out.note(&format!("{}: goes on with program {}", path.display(), f.done));
                if is_other {
                    out.note("note: another build of this program made the file");
                }
                out.line(&json!({ "kind": "resumed", "done": f.done }));
                findings = f;
            }
            Err(e) => {
                let what = format!("{}: {e}", path.display());
                return out.fail(Exit::Usage, "state-file", &what, "name another --state-file");
            }
        }
    }
    let stop = out.interrupt();
    #[expect(clippy::disallowed_methods, reason = "progress, the budget and rates are of the host")]
    let start = Instant::now();
    let before = (findings.done - c.programs.0, findings.totals.raw);
    let hunt = Hunt {
        a,
        c,
        out,
        key,
        build,
        stop: &stop,
        start,
        limit,
        live: std::io::stderr().is_terminal(),
        before,
        saved: Mutex::new(start),
        failed: Mutex::new(None),
    };
    let distinct = findings.totals.distinct;
    let findings = resume(
        c,
        a.workers,
        findings,
        &Watch { step: &|f, new| hunt.step(f, new), abandon: &|| stop.load(Ordering::SeqCst) },
    );
    if hunt.live {
        stderr(format_args!("\r{:<78}\r", ""));
    }
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &a.state_file {
        hunt.save(path, &findings);
        if let Some(e) = hunt.failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return out.host_error(path, &e);
        }
    }
    if let Some(e) = c.command.as_ref().and_then(|c| c.error()) {
        return out.fail(Exit::HostIo, "check-cmd", &e, "the command could not be run");
    }
    let mut least = Vec::new();
    if !stop.load(Ordering::SeqCst) {
        let wanted = a.minimise.unwrap_or(1);
        match least::all(a, c, &findings.found, wanted, &stop, out) {
            Ok(found) => least = found,
            Err(e) => return e,
        }
    }
    if let Some(path) = &a.accept
        && let Err(e) = accept(a, c, &findings, path)
    {
        return out.host_error(path, &e);
    }
    let broken = findings.totals.broken.iter().any(|n| *n > 0);
    let speed = report::Speed {
        seconds,
        raw: findings.totals.raw - before.1,
        distinct: findings.totals.distinct - distinct,
    };
    let text = report::text(a, c, &findings, &least, &speed);
    let exit = match (stop.load(Ordering::SeqCst), broken) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::No,
        _ => Exit::Ok,
    };
    let minimised: Vec<Value> = least.iter().map(|l| l.document(c)).collect();
    let mut document = report::document(a, c, &findings);
    document["minimised"] = json!(minimised);
    out.last_line(exit, &document, &text)
}

/// Writes what was found, and what was known before, as a list of known failures.
fn accept(a: &Args, c: &Campaign, f: &Findings, path: &Path) -> std::io::Result<()> {
    let setting = super::setting(a);
    let known = c.known.entries().map(|(e, _)| e.clone());
    let new = f.places.iter().map(|((rule, path), states)| KnownFailure {
        rule: rule.name().to_owned(),
        path: Some(path.clone()),
        seen: None,
        setting: Some(setting.clone()),
        why: format!("found in {states} states of `{}`; nobody has said why yet", a.programs),
    });
    let all: Vec<KnownFailure> = known.chain(new).collect();
    std::fs::write(path, KnownFailures::write(&all).map_err(std::io::Error::other)?)
}
