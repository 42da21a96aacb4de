//! `crash bug --minimise`: how small failures of known bugs become.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use wp_campaign::bugs::{Bug as KnownBug, affected};
use wp_campaign::{Campaign, Findings, Minimal, Watch, line, resume};
use wp_crash::Rule;

use super::plan::Bug;
use super::reduced::Reduced;
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// What is small: calls, lost units, seconds (`crash.md`, section 7.6).
const GOAL: (usize, usize, f64) = (5, 3, 30.0);

fn is_small(l: &Reduced) -> bool {
    let Some(m) = &l.minimal else { return false };
    m.calls <= GOAL.0 && m.lost() <= GOAL.1 && l.seconds <= GOAL.2
}

/// Failures of known bugs, `n` of each from different programs: how small do they become? Exit 1 if
/// fewer than nine in ten become small.
pub(super) fn run(
    plan: &Bug,
    n: usize,
    stop: &AtomicBool,
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    let mut t = format!(
        "{:<5} {:<17} {:>8} {:>6}  {:>14} {:>15} {:>13}\n",
        "bug", "rule", "failures", "small", "calls", "lost writes", "seconds"
    );
    let mut documents: Vec<Value> = Vec::new();
    let (mut small, mut of) = (0, 0);
    let mut examples = String::new();
    let mut left: Vec<&str> = plan.wanted.iter().map(|b| b.id).collect();
    let mut is_found = true;
    for bug in &plan.wanted {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let (campaign, rule) = affected(bug).map_err(|e| out.machine_error(&e))?;
        let mut least = failures(bug, (&campaign, rule), n, stop, out)?;
        let here = least.iter().filter(|l| is_small(l)).count();
        small += here;
        of += least.len();
        is_found &= !least.is_empty();
        left.remove(0);
        t += &row(bug, rule, &least);
        if let Some(l) = least.first_mut() {
            if let Some(dir) = &plan.reproducer {
                let fs = line::file_system(&campaign.bench);
                l.write((&campaign, &fs), &dir.join(bug.id), out)?;
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
    Ok(out.answer(exit, &doc, &t))
}

/// Minimised failures of a bug, at most `n`, each of another program.
fn failures(
    bug: &KnownBug,
    (campaign, rule): (&Campaign, Rule),
    n: usize,
    stop: &AtomicBool,
    out: &Out,
) -> Result<Vec<Reduced>, ExitCode> {
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
        least.push(Reduced::of(&one, found, &|| !stop.load(Ordering::SeqCst), out)?);
    }
    Ok(least)
}

/// A bug in a line: minimum, median and maximum of its failures.
fn row(bug: &KnownBug, rule: Rule, least: &[Reduced]) -> String {
    let range = |mut all: Vec<f64>, digits: usize| {
        all.sort_by(f64::total_cmp);
        match (all.first(), all.get(all.len() / 2), all.last()) {
            (Some(a), Some(b), Some(c)) => format!("{a:.digits$} {b:.digits$} {c:.digits$}"),
            _ => "-".to_owned(),
        }
    };
    let these = |f: &dyn Fn(&Minimal) -> usize| {
        least.iter().filter_map(|l| l.minimal.as_ref()).map(|m| f(m) as f64).collect()
    };
    format!(
        "{:<5} {:<17} {:>8} {:>6}  {:>14} {:>15} {:>13}\n",
        bug.id,
        rule.name(),
        least.len(),
        least.iter().filter(|l| is_small(l)).count(),
        range(these(&|m| m.calls), 0),
        range(these(&|m| m.lost()), 0),
        range(least.iter().map(|l| l.seconds).collect(), 1)
    )
}
