//! `kernel-lab --explore` of a file system of which Writepath has no recovery, or shall not have a
//! part: the guest's kernel recovers states, and the check runs in the guest.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_campaign::{LogFile, LogState, log_prefixes, sample_log};
use wp_parity::kernel_lab::{Mounted, Ran, Verdict};

use super::Session;
use super::explore::{kept, mounted, name};
use super::plan::{Explore, Program};
use crate::cmd::crash::log::{self, ExploreArgs};
use crate::cmd::host_command;
use crate::output::{Exit, Out};

/// States that are mounted, if nobody says how many.
const SAMPLE: usize = 200;
/// Failures of a rule that are printed.
const SHOWN: usize = 3;

/// The rule of the user's check.
const APPLICATION: &str = "O8-application";

/// A rule, and the states that break it.
struct Broken<'a> {
    rule: &'static str,
    states: Vec<(&'a LogState, String)>,
    /// Prefixes of the log that break it: dm-log-writes' replay reaches those.
    prefixes: usize,
}

/// Recovers states of the log of what a program did. Errors: the exit code, after saying why.
pub(super) fn run(
    session: &Session,
    (program, explore, states): (&Program, &Explore, &ExploreArgs),
    (ran, file): (&Ran, LogFile),
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    let (run, space, plan) = log::of_any(file, states, out)?;
    let n = explore.sample.unwrap_or(SAMPLE);
    let go_on = || !session.stop.load(Ordering::Relaxed);
    let sample = sample_log(&run, (space, &plan, explore.seed), (n, &[]), &go_on);
    let mut chosen = sample.map_err(|e| out.machine_error(&e))?;
    let explored = chosen.states.len();
    chosen.states.extend(log_prefixes(&run, &go_on).map_err(|e| out.machine_error(&e))?);
    let check = guest_check(states, &program.folder);
    let has_check = check.is_some();
    let all = mounted(session, program, check, (&chosen.states, states.limit(out)?), out)?;
    let is_whole = all.len() == chosen.states.len();
    let (all, prefixes) = all.split_at(explored.min(all.len()));
    let rules = judged(&chosen.states, all, prefixes);
    let distinct = all.iter().filter(|m| !m.is_same).count();
    let mut text = format!(
        "{} as {} of Linux {}, {} of {} crash states, recovered by the guest's kernel:\n  {distinct} \
         trees with other files or acknowledgements than an earlier one; {} prefixes of the \
         log as well\n",
        program.line,
        program.plan.fs,
        ran.kernel,
        all.len(),
        chosen.of,
        prefixes.len(),
    );
    let is_any = !(all.is_empty() && prefixes.is_empty());
    let is_checked = |rule| is_any && (has_check || rule != APPLICATION);
    rules.iter().for_each(|broken| text.push_str(&broken.text(is_checked(broken.rule))));
    let failed = rules.iter().flat_map(|b| b.states.iter().map(|s| s.0));
    text.push_str(&kept(explore, failed, ran.bytes, out)?);
    let is_sound = rules.iter().all(|b| b.states.is_empty() && b.prefixes == 0);
    let counts = rules.iter().map(|b| (b.rule, b.states.len()));
    let at_prefixes = rules.iter().map(|b| (b.rule, b.prefixes));
    let document = json!({
        "schema": "writepath.kernel-lab-states/1", "fs": program.plan.fs, "kernel": ran.kernel,
        "states": chosen.of, "mounted": all.len(), "distinct": distinct, "prefixes": prefixes.len(),
        "broken": counts.collect::<BTreeMap<_, _>>(),
        "broken_at_prefixes": at_prefixes.collect::<BTreeMap<_, _>>(),
        "found": rules.iter().flat_map(Broken::documents).collect::<Vec<_>>(),
    });
    let exit = match (is_whole, is_sound) {
        // What was not mounted may break a rule.
        (false, true) => Exit::Interrupted,
        (false, false) if !go_on() => Exit::Interrupted,
        (true, true) => Exit::Ok,
        (_, false) => Exit::No,
    };
    Ok(out.last_line(exit, &document, &text))
}

/// The rules that can be checked of what a kernel has recovered: `all` of the first `states`, and
/// `prefixes` of the log.
fn judged<'a>(states: &'a [LogState], all: &[Mounted], prefixes: &[Mounted]) -> [Broken<'a>; 3] {
    let of = |rule, why: &dyn Fn(&Mounted) -> Option<String>| Broken {
        rule,
        states: states.iter().zip(all).filter_map(|(s, m)| Some((s, why(m)?))).collect(),
        prefixes: prefixes.iter().filter(|m| why(m).is_some()).count(),
    };
    let unreadable =
        |m: &Mounted| m.unreadable.first().map(|file| format!("the kernel cannot read {file}"));
    let refused = |m: &Mounted| m.tree.as_ref().err().map(ToString::to_string);
    let bad = |m: &Mounted| match &m.verdict {
        Verdict::Bad(why) => Some(why.clone()),
        Verdict::Ok | Verdict::NotAsked => None,
    };
    [of("O0-recoverable", &refused), of("O1-metadata", &unreadable), of(APPLICATION, &bad)]
}

impl Broken<'_> {
    /// For people. `is_checked`: was there a state, and somebody who could break it?
    fn text(&self, is_checked: bool) -> String {
        let verdict = match (self.states.len(), self.prefixes) {
            (0, 0) if !is_checked => "not checked".to_owned(),
            (0, 0) => "ok".to_owned(),
            (n, prefixes) => format!("broken in {n} states, and {prefixes} prefixes of the log"),
        };
        let mut text = format!("{:<20} {verdict}\n", self.rule);
        for (state, why) in self.states.iter().take(SHOWN) {
            text.push_str(&format!("  state {}: {why}\n", name(state)));
        }
        text
    }

    /// For programs.
    fn documents(&self) -> impl Iterator<Item = Value> {
        self.states.iter().take(SHOWN).map(
            |(s, why)| json!({ "rule": self.rule, "frame": s.frame, "lost": s.lost, "seen": why }),
        )
    }
}

/// The user's check as a shell command of one run in the guest, of which `folder` is where the user
/// wrote it. `None`: there is none.
pub(super) fn guest_check(states: &ExploreArgs, folder: &Path) -> Option<String> {
    let (line, stays) = states.check()?;
    let line = host_command(line, folder);
    Some(if stays { asked_once(&line) } else { line })
}

/// A checker that stays up, asked about one tree: exit status 0 if it answers `ok`.
fn asked_once(line: &str) -> String {
    format!(
        "said=$(printf '%s\\t%s\\n' \"$PWD\" \"$WRITEPATH_ACKED\" | ({line})) || exit; \
         [ \"$said\" = ok ] || {{ echo \"${{said#bad }}\"; exit 1; }}"
    )
}
