//! `reproduce journal-conflict`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use wp_papers::journal_conflict::{self, Graph, Outcome, TYPES};
use wp_papers::results::Results;

use super::progress::Progress;
use super::{Answer, Args, claims_table, interrupted};
use crate::output::Out;

/// A string takes what is written to it.
const LINE: &str = "a string takes it";

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
    writeln!(t, "\nTable {number}: conflicts of {}, {}, {} threads", o.system, o.load, o.threads)
        .expect(LINE);
    let heads: String = TYPES.iter().map(|k| format!("{k:>9}")).collect();
    writeln!(t, "{:<6}{heads}", "").expect(LINE);
    for (n, thread) in (1..).zip(&o.by_thread) {
        let cells: String = thread.each().map(|count| format!("{count:>9}")).concat();
        writeln!(t, "T{n:<5}{cells}").expect(LINE);
    }
    let cells: String = TYPES.iter().map(|k| format!("{:>9}", o.conflicts.of_type(k))).collect();
    writeln!(t, "total {cells}").expect(LINE);
    writeln!(
        t,
        "{} in {} operations: {:.1} %; {:.0} operations per second; {:.1} % of commits delayed",
        o.conflicts.total(),
        o.operations,
        100.0 * o.per_op(),
        o.ops_per_second,
        100.0 * o.counter("delayed_commits") as f64 / o.counter("commits").max(1) as f64
    )
    .expect(LINE);
    let cases = ["joined", "frozen", "shadow", "copy", "logged"];
    let cells: Vec<String> =
        cases.iter().map(|c| format!("{c} {}", o.conflicts.of_case(c))).collect();
    writeln!(t, "by case: {}; {:.1} s of waits", cells.join(", "), o.lost_ns as f64 / 1e9)
        .expect(LINE);
}

/// Systems down, threads across.
fn graph(t: &mut String, title: &str, g: &Graph) {
    let mut threads: Vec<u32> = g.points.iter().map(|o| o.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let heads: String = threads.iter().map(|n| format!("{n:>9}")).collect();
    writeln!(t, "\n{title}\n{:<26}{heads}", "threads").expect(LINE);
    for row in g.points.chunk_by(|a, b| a.system == b.system) {
        let cells: String = row.iter().map(|o| format!("{:>9.0}", o.ops_per_second)).collect();
        writeln!(t, "{:<26}{cells}", row[0].system).expect(LINE);
    }
}

/// What each part of the cure does, with 8 threads.
fn cure(t: &mut String, g: &Graph) {
    writeln!(
        t,
        "{:<26}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>10}",
        "with 8 threads",
        "conf/op",
        "slot",
        "shadow",
        "delayed",
        "fsyncs/",
        "coalesced",
        "flushes/"
    )
    .expect(LINE);
    writeln!(
        t,
        "{:<26}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>10}",
        "", "", "", "", "commits", "commit", "times", "fsync"
    )
    .expect(LINE);
    for o in g.points.iter().filter(|o| o.threads == 8) {
        let commits = o.counter("commits").max(1);
        writeln!(
            t,
            "{:<26}{:>9.3}{:>9}{:>9}{:>8.1}%{:>9.2}{:>10}{:>10.3}",
            o.system,
            o.per_op(),
            o.conflicts.of_case("slot"),
            o.conflicts.of_case("shadow"),
            100.0 * o.counter("delayed_commits") as f64 / commits as f64,
            o.fsyncs as f64 / commits as f64,
            o.counter("coalesced"),
            o.counter("journal_flushes") as f64 / o.fsyncs.max(1) as f64,
        )
        .expect(LINE);
    }
}
