//! `crash --bug`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::json;
use wp_campaign::bugs::{self, Bug, BugResult, show as show_bug};
use wp_crash::Totals;

use super::{Args, reduced};
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Known bugs. Exit 1 if one is not found where it is, or found where it was fixed.
pub(super) fn run(a: &Args, which: &str, out: &Out) -> ExitCode {
    // A number may stand for several, each with one of its own behind a point.
    let is_wanted = |b: &&Bug| {
        let is_part = || b.id.strip_prefix(which).is_some_and(|rest| rest.starts_with('.'));
        which == "all" || b.id == which || is_part()
    };
    let wanted: Vec<&Bug> = bugs::all().filter(is_wanted).collect();
    if wanted.is_empty() {
        let known: Vec<&str> = bugs::all().map(|b| b.id).collect();
        let why = format!("no bug called `{which}` (bugs: all, {})", known.join(", "));
        return out.fail(Exit::Usage, "bug", &why, "");
    }
    let stop = out.interrupt();
    if let Some(n) = a.minimise.filter(|n| *n > 0) {
        return reduced::bugs(a, &wanted, n, &stop, out);
    }
    let line = "a string takes it";
    let mut t = String::new();
    let mut results: Vec<BugResult> = Vec::new();
    let mut left: Vec<&str> = wanted.iter().map(|b| b.id).collect();
    for bug in wanted {
        let live = Progress::new("crash");
        let tell = |t: &Totals| {
            live.say(format_args!("{}: {} programs, {} states", bug.id, t.programs, t.raw));
        };
        let go_on = || !stop.load(Ordering::Relaxed);
        let shown = show_bug(bug, 0..u64::MAX, a.workers(), &tell, &go_on);
        drop(live);
        let r = match shown {
            Ok(Some(r)) => r,
            Ok(None) => break,
            Err(e) => return out.machine_error(&e),
        };
        writeln!(t, "{:<6} {} ({})", r.id, r.what, r.rule).expect(line);
        let found = match (&r.affected.first, r.affected.states_to_find) {
            (Some(first), Some(n)) => format!("found after {n} states: {first}"),
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
            (_, Some(why)) => format!("mount refused ({why})"),
            (None, None) => "absent".to_owned(),
            (Some(first), None) => format!("FOUND in {} states: {first}", s.broken),
        };
        writeln!(
            t,
            "     fixed:    {} programs, {} states, {} distinct: {verdict}",
            s.programs, s.raw, s.distinct
        )
        .expect(line);
        results.push(r);
        left.remove(0);
    }
    let mut document = json!({ "schema": "writepath.crash.bugs/1", "bugs": results });
    if !left.is_empty() {
        // What is done is told; each of the others can be asked for.
        let which = left.join(", ");
        writeln!(t, "interrupted; not tried: {which}; go on with --bug {}", left[0]).expect(line);
        document["not_tried"] = json!(left);
        return out.answer(Exit::Interrupted, &document, &t);
    }
    let exit = if results.iter().all(BugResult::holds) { Exit::Ok } else { Exit::No };
    out.answer(exit, &document, &t)
}
