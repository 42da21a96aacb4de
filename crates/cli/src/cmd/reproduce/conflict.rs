//! `reproduce journal-conflict`.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use wp_base::table::Layout;
use wp_papers::journal_conflict::{self, Graph, Outcome, TYPES};
use wp_papers::results::Results;

use super::progress::Progress;
use super::{Answer, Args, claims_table, interrupted};
use crate::output::Out;

/// Runs it. Exit 1 if a verdict is not the pinned one.
pub(super) fn run(a: &Args, out: &Out, stop: &AtomicBool) -> ExitCode {
    let mut progress = Progress::new(stop);
    let mut step = |done: usize, all: usize, name: &str| progress.step(done, all, name);
    let done = journal_conflict::reproduce(a.seed, a.quick, &mut step);
    progress.end();
    match done {
        Ok(Some(found)) => report(a, out, found, progress.began),
        Ok(None) => interrupted(out),
        Err(e) => out.machine_error(&e),
    }
}

fn report(a: &Args, out: &Out, found: journal_conflict::Results, began: Instant) -> ExitCode {
    let text = tables(&found);
    let answer = Answer {
        slug: journal_conflict::SLUG,
        began,
        results: Results::JournalConflict(Box::new(found)),
        text,
        is_unlisted: false,
        more: Vec::new(),
    };
    answer.finish(a, out)
}

fn tables(found: &journal_conflict::Results) -> String {
    let mut t = format!(
        "Paper journal-conflict: BarrierFS and EXT4 of {}, class of {}, CPU {} (assumed costs).\n",
        journal_conflict::KERNEL,
        journal_conflict::DEVICE,
        journal_conflict::PROFILE,
    );
    for (n, o) in (2..).zip(&found.tables) {
        table(&mut t, n, o);
    }
    for (n, g) in (1..).zip(&found.graphs) {
        graph(&mut t, &format!("Graph {n}: operations per second, {}", g.load.name()), g);
    }
    for g in &found.cure {
        let title = format!("CJFS techniques: operations per second, {}", g.load.name());
        graph(&mut t, &title, g);
        cure(&mut t, g);
    }
    t.push('\n');
    claims_table(&mut t, &found.claims);
    t
}

/// Tables 2 and 3.
fn table(t: &mut String, number: u32, o: &Outcome) {
    const LAYOUT: Layout = Layout("<6>9>9>9>9>9>9");
    let Outcome { system, load, threads, .. } = o;
    *t += &format!("\nTable {number}: conflicts of {system}, {load}, {threads} threads\n");
    let mut line = |name: &str, [a, b, c, d, e, f]: [String; TYPES.len()]| {
        *t += &LAYOUT.line(&[&name, &a, &b, &c, &d, &e, &f]);
    };
    line("", TYPES.map(str::to_owned));
    for (n, thread) in (1..).zip(&o.by_thread) {
        line(&format!("T{n}"), thread.each().map(|n| n.to_string()));
    }
    line("total", TYPES.map(|kind| o.conflicts.of_type(kind).to_string()));
    *t += &format!(
        "{} in {} operations: {:.1} %; {:.0} operations per second; {:.1} % of commits delayed\n",
        o.conflicts.total(),
        o.operations,
        100.0 * o.per_op(),
        o.ops_per_second,
        100.0 * o.counter("delayed_commits") as f64 / o.counter("commits").max(1) as f64
    );
    let cases = ["joined", "frozen", "shadow", "copy", "logged"];
    let cells: Vec<String> =
        cases.iter().map(|c| format!("{c} {}", o.conflicts.of_case(c))).collect();
    *t += &format!("by case: {}; {:.1} s of waits\n", cells.join(", "), o.lost_ns as f64 / 1e9);
}

/// Systems down, threads across.
fn graph(t: &mut String, title: &str, g: &Graph) {
    let mut threads: Vec<u32> = g.points.iter().map(|o| o.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let heads: String = threads.iter().map(|n| format!("{n:>9}")).collect();
    *t += &format!("\n{title}\n{:<26}{heads}\n", "threads");
    for row in g.points.chunk_by(|a, b| a.system == b.system) {
        let cells: String = row.iter().map(|o| format!("{:>9.0}", o.ops_per_second)).collect();
        *t += &format!("{:<26}{cells}\n", row[0].system);
    }
}

/// What each part of the cure does, with 8 threads.
fn cure(t: &mut String, g: &Graph) {
    const LAYOUT: Layout = Layout("<26>9>9>9>9>9>10>10");
    *t += &LAYOUT.line(&[
        &"with 8 threads",
        &"conf/op",
        &"slot",
        &"shadow",
        &"delayed",
        &"fsyncs/",
        &"coalesced",
        &"flushes/",
    ]);
    *t += &LAYOUT.line(&[&"", &"", &"", &"", &"commits", &"commit", &"times", &"fsync"]);
    for o in g.points.iter().filter(|o| o.threads == 8) {
        let commits = o.counter("commits").max(1) as f64;
        let delayed = 100.0 * o.counter("delayed_commits") as f64 / commits;
        let flushes = o.counter("journal_flushes") as f64 / o.fsyncs.max(1) as f64;
        *t += &LAYOUT.line(&[
            &o.system,
            &format!("{:.3}", o.per_op()),
            &o.conflicts.of_case("slot"),
            &o.conflicts.of_case("shadow"),
            &format!("{delayed:.1}%"),
            &format!("{:.2}", o.fsyncs as f64 / commits),
            &o.counter("coalesced"),
            &format!("{flushes:.3}"),
        ]);
    }
}
