//! `crash --against`: O9.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_campaign::Campaign;
use wp_campaign::against::{Boundary, Compared, compare};

use super::{Args, campaign};
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Rows and examples of each side that are printed.
const ROWS: usize = 40;
const EXAMPLES: usize = 3;

/// Compares every program. Exit 1 if something can be left in one setting alone.
pub(super) fn run(a: &Args, here: &Campaign, out: &Out) -> ExitCode {
    let other = Args {
        fs: a.against.clone().unwrap_or_else(|| a.fs.clone()),
        device: a.against_device.clone().unwrap_or_else(|| a.device.clone()),
        space: a.against_space.clone().unwrap_or_else(|| a.space.clone()),
        check_cmd: None,
        checker: None,
        ..a.clone()
    };
    let there = match campaign(&other) {
        Ok(c) => c,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, super::hint(a)),
    };
    let stop = out.interrupt();
    let live = Progress::new("crash --against");
    let mut done: Vec<(u64, Compared)> = Vec::new();
    for n in here.programs.0..here.programs.1 {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let (from, to) = here.programs;
        live.at(n - from, to - from, format_args!("program {n}"));
        match compare(here, &there, n, &|| !stop.load(Ordering::Relaxed)) {
            Ok(Some(c)) => done.push((n, c)),
            Ok(None) => break,
            Err(e) => return out.machine_error(&e),
        }
    }
    drop(live);
    let name = |a: &Args| format!("{} on {}, {} crash states", a.fs, a.device, a.space);
    let names = [name(a), name(&other)];
    for (n, compared) in &done {
        let vain =
            compared.calls.iter().zip(&names).find_map(|(c, name)| Some((c.in_vain()?, name)));
        if let Some((why, name)) = vain {
            let what = format!("program {n} on {name}: {why}");
            let help = "correct its descriptors and paths";
            return out.fail(Exit::Simulated, "not-explored", &what, help);
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
    out.answer(exit, &doc, &text(&names, &done))
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
    let line = "a string takes it";
    let mut t = String::new();
    writeln!(
        t,
        "A: {}\nB: {}\nFor each crash point between two calls: trees that recovery can leave, how many of them \
         break\na rule, and how many only A or only B can leave.\n",
        names[0], names[1]
    )
    .expect(line);
    writeln!(
        t,
        "{:>7} {:>5} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7}  after",
        "program", "calls", "A", "B", "broken", "broken", "A only", "B only"
    )
    .expect(line);
    let rows: Vec<(u64, &Boundary)> = done
        .iter()
        .flat_map(|(n, c)| c.boundaries.iter().map(move |b| (*n, b)))
        .filter(|(_, b)| done.len() == 1 || b.only.iter().any(|o| !o.is_empty()))
        .collect();
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
        .expect(line);
    }
    if rows.len() > ROWS {
        writeln!(t, "{:>7} and {} more; --json has all", "", rows.len() - ROWS).expect(line);
    }
    for (side, letter) in ["A", "B"].into_iter().enumerate() {
        // What breaks a rule tells most.
        let mut all: Vec<(bool, u64, &Boundary, &str, Option<&str>)> = rows
            .iter()
            .flat_map(|(n, b)| {
                b.only[side].iter().map(move |(t, r)| (r.is_none(), *n, *b, &*t.0, *r))
            })
            .collect();
        all.sort_by_key(|(legal, n, b, ..)| (*legal, *n, b.calls));
        for (_, n, b, tree, rule) in all.into_iter().take(EXAMPLES) {
            let rule = rule.map_or("legal".to_owned(), |r| format!("breaks {r}"));
            writeln!(
                t,
                "\nonly {letter}, {rule}: program {n}, after call {} (`{}`):\n  {tree}",
                b.calls, b.after
            )
            .expect(line);
        }
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
    .expect(line);
    let sampled = [sum(&|c| c.sampled[0]), sum(&|c| c.sampled[1])];
    if sampled != [0, 0] {
        writeln!(
            t,
            "{} and {} crash points were sampled: a tree of one setting may exist, unexplored, in the \
             other.",
            sampled[0], sampled[1]
        )
        .expect(line);
    }
    t
}
