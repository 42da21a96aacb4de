//! `crash compare`: O9.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use wp_campaign::against::{Boundary, Compared, compare};
use wp_campaign::{Campaign, Source};
use wp_machine::MachineError;

use super::plan::{Compare, Wrong};
use super::setup::Exploration;
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";
/// Rows and examples of each side that are printed.
const ROWS: usize = 40;
const EXAMPLES: usize = 3;

/// Why programs cannot be compared, if they cannot.
fn why_alone(x: &Exploration) -> Option<&'static str> {
    match x.campaign.source {
        Source::Lives(_) => Some("programs with power_failure cannot be compared"),
        _ if x.first().has_threads() => Some("programs with threads cannot be compared"),
        _ => None,
    }
}

/// Compares every program. Exit 1 if something can be left in one setting alone.
pub(super) fn run(plan: Compare, out: &Out) -> Result<ExitCode, ExitCode> {
    let [here, there] = &plan.sides;
    let programs = plan.programs.recorded(&here.bench, None, out)?;
    let wrong = |e: String| Wrong::from(e).told(out);
    let here = here.exploration(&programs).map_err(wrong)?;
    let there = there.exploration(&programs).map_err(wrong)?;
    if let Some(why) = why_alone(&here) {
        let help = "crash each file system by itself";
        return Err(out.fail(Exit::Usage, "compare", why, help));
    }
    let stop = out.interrupt();
    let done = compared([&here.campaign, &there.campaign], &stop);
    let done = done.map_err(|e| out.machine_error(&e))?;
    let name = |x: &Exploration| {
        let words = &x.setup.words;
        format!("{} on {}, {} crash states", words.fs, words.device, words.space)
    };
    let names = [name(&here), name(&there)];
    for (n, compared) in &done {
        let vain =
            compared.calls.iter().zip(&names).find_map(|(c, name)| Some((c.in_vain()?, name)));
        if let Some((why, name)) = vain {
            let what = format!("program {n} on {name}: {why}");
            let help = "correct its descriptors and paths";
            return Err(out.fail(Exit::Simulated, "not-explored", &what, help));
        }
    }
    let differs = done.iter().any(|(_, c)| c.differs());
    let exit = match (stop.load(Ordering::SeqCst), differs) {
        (true, _) => Exit::Interrupted,
        (_, true) => Exit::No,
        _ => Exit::Ok,
    };
    let programs: Vec<Value> = done.iter().map(|(n, c)| document(*n, c)).collect();
    let doc = json!({
        "schema": "writepath.crash.against/1", "settings": names, "programs": programs,
    });
    Ok(out.answer(exit, &doc, &text(&names, &done)))
}

/// Every program in both settings, until `stop`.
fn compared(
    [here, there]: [&Campaign; 2],
    stop: &AtomicBool,
) -> Result<Vec<(u64, Compared)>, MachineError> {
    let live = Progress::new("crash compare");
    let mut done = Vec::new();
    let (from, to) = here.programs;
    for n in from..to {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        live.at(n - from, to - from, format_args!("program {n}"));
        let Some(c) = compare(here, there, n, &|| !stop.load(Ordering::Relaxed))? else { break };
        done.push((n, c));
    }
    Ok(done)
}

fn document(n: u64, c: &Compared) -> Value {
    let side = |b: &Boundary, i: usize| {
        let only: Vec<Value> = b.only[i]
            .iter()
            .map(|(tree, rule)| json!({ "tree": tree.0, "breaks": rule }))
            .collect();
        json!({ "trees": b.trees[i], "broken": b.broken[i], "only": only })
    };
    let boundaries: Vec<Value> = c
        .boundaries
        .iter()
        .map(
            |b| json!({ "calls": b.calls, "after": b.after, "settings": [side(b, 0), side(b, 1)] }),
        )
        .collect();
    json!({ "program": n, "states": c.states, "cuts_sampled": c.sampled, "boundaries": boundaries })
}

fn text(names: &[String; 2], done: &[(u64, Compared)]) -> String {
    let mut t = format!(
        "A: {}\nB: {}\nFor each crash point between two calls: trees that recovery can leave, how many of them \
         break\na rule, and how many only A or only B can leave.\n\n",
        names[0], names[1]
    );
    let rows: Vec<(u64, &Boundary)> = done
        .iter()
        .flat_map(|(n, c)| c.boundaries.iter().map(move |b| (*n, b)))
        .filter(|(_, b)| done.len() == 1 || b.only.iter().any(|o| !o.is_empty()))
        .collect();
    t += &table(&rows);
    for (side, letter) in ["A", "B"].into_iter().enumerate() {
        t += &examples(&rows, side, letter);
    }
    let sum = |f: &dyn Fn(&Compared) -> u64| done.iter().map(|(_, c)| f(c)).sum::<u64>();
    let differ = done.iter().filter(|(_, c)| c.differs()).count();
    writeln!(
        t,
        "\n{} programs, {differ} differ; {} and {} crash states.",
        done.len(),
        sum(&|c| c.states[0]),
        sum(&|c| c.states[1])
    )
    .expect(LINE);
    let sampled = [sum(&|c| c.sampled[0]), sum(&|c| c.sampled[1])];
    if sampled != [0, 0] {
        writeln!(
            t,
            "{} and {} crash points were sampled: a tree of one setting may exist, unexplored, in the \
             other.",
            sampled[0], sampled[1]
        )
        .expect(LINE);
    }
    t
}

/// A line for each boundary.
fn table(rows: &[(u64, &Boundary)]) -> String {
    let mut t = format!(
        "{:>7} {:>5} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7}  after\n",
        "program", "calls", "A", "B", "broken", "broken", "A only", "B only"
    );
    for (n, b) in rows.iter().take(ROWS) {
        writeln!(
            t,
            "{n:>7} {:>5} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7}  {}",
            b.calls,
            b.trees[0],
            b.trees[1],
            b.broken[0],
            b.broken[1],
            b.only[0].len(),
            b.only[1].len(),
            b.after
        )
        .expect(LINE);
    }
    if rows.len() > ROWS {
        writeln!(t, "{:>7} and {} more; --json has all", "", rows.len() - ROWS).expect(LINE);
    }
    t
}

/// Some trees that only one side can leave.
fn examples(rows: &[(u64, &Boundary)], side: usize, letter: &str) -> String {
    let mut all: Vec<(bool, u64, &Boundary, &str, Option<&str>)> = rows
        .iter()
        .flat_map(|(n, b)| b.only[side].iter().map(move |(t, r)| (r.is_none(), *n, *b, &*t.0, *r)))
        .collect();
    // What breaks a rule tells most.
    all.sort_by_key(|(legal, n, b, ..)| (*legal, *n, b.calls));
    let mut t = String::new();
    for (_, n, b, tree, rule) in all.into_iter().take(EXAMPLES) {
        let rule = rule.map_or("legal".to_owned(), |r| format!("breaks {r}"));
        writeln!(
            t,
            "\nonly {letter}, {rule}: program {n}, after call {} (`{}`):\n  {tree}",
            b.calls, b.after
        )
        .expect(LINE);
    }
    t
}
