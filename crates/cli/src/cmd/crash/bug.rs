//! `crash bug`: known bugs, each where it exists and where it was fixed.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::json;
use wp_campaign::bugs::{BugResult, show};
use wp_crash::Totals;

use super::plan::Bug;
use super::small;
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// Known bugs. Exit 1 if one is not found where it is, or found where it was fixed.
pub(super) fn run(plan: &Bug, out: &Out) -> Result<ExitCode, ExitCode> {
    let stop = out.interrupt();
    if let Some(n) = plan.minimise {
        return small::run(plan, n, &stop, out);
    }
    let mut t = String::new();
    let mut results: Vec<BugResult> = Vec::new();
    let mut left: Vec<&str> = plan.wanted.iter().map(|b| b.id).collect();
    for bug in &plan.wanted {
        let live = Progress::new("crash");
        let tell = |t: &Totals| {
            live.say(format_args!("{}: {} programs, {} states", bug.id, t.programs, t.raw));
        };
        let go_on = || !stop.load(Ordering::Relaxed);
        let shown = show(bug, 0..u64::MAX, plan.workers, &tell, &go_on);
        drop(live);
        let Some(r) = shown.map_err(|e| out.machine_error(&e))? else { break };
        t += &text(&r);
        results.push(r);
        left.remove(0);
    }
    let mut document = json!({ "schema": "writepath.crash.bugs/1", "bugs": results });
    if !left.is_empty() {
        // What is done is told; each of the others can be asked for.
        let which = left.join(", ");
        writeln!(t, "interrupted; not tried: {which}; go on with crash bug {}", left[0])
            .expect(LINE);
        document["not_tried"] = json!(left);
        return Ok(out.answer(Exit::Interrupted, &document, &t));
    }
    let exit = if results.iter().all(BugResult::holds) { Exit::Ok } else { Exit::No };
    Ok(out.answer(exit, &document, &t))
}

/// One of them.
fn text(r: &BugResult) -> String {
    let found = match (&r.affected.first, r.affected.states_to_find) {
        (Some(first), Some(n)) => format!("found after {n} states: {first}"),
        _ => "NOT FOUND".to_owned(),
    };
    let s = &r.fixed;
    let verdict = match (&s.first, &s.refused) {
        (_, Some(why)) => format!("mount refused ({why})"),
        (None, None) => "absent".to_owned(),
        (Some(first), None) => format!("FOUND in {} states: {first}", s.broken),
    };
    let mut t = format!("{:<6} {} ({})\n", r.id, r.what, r.rule);
    for (which, s, verdict) in [("affected:", &r.affected, found), ("fixed:", s, verdict)] {
        writeln!(
            t,
            "     {which:<9} {} programs, {} states, {} distinct: {verdict}",
            s.programs, s.raw, s.distinct
        )
        .expect(LINE);
    }
    t
}
