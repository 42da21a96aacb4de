//! `reproduce inode-trim`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use wp_papers::inode_trim::{self, RunOutcome, Trim, Wear};
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
    let done = inode_trim::reproduce(a.seed, a.quick, &mut step);
    progress.end();
    match done {
        Ok(Some(found)) => report(a, out, found, progress.began),
        Ok(None) => interrupted(out),
        Err(e) => out.machine_error(&e),
    }
}

fn report(a: &Args, out: &Out, found: inode_trim::Results, began: Instant) -> ExitCode {
    let text = tables(&found);
    let answer = Answer {
        slug: inode_trim::SLUG,
        began,
        results: Results::InodeTrim(Box::new(found)),
        text,
        is_unlisted: false,
        more: Vec::new(),
    };
    answer.finish(a, out)
}

fn tables(found: &inode_trim::Results) -> String {
    let mut t = format!(
        "Paper inode-trim: ext4 of 3.18.25; {} files of 4 KiB made, sync, deleted, sync.\n\
         Assumed: ssd-128, 8 GiB, names as fio's; counted after a clean unmount, and before.\n\n\
         Figures 2 and 3: valid pages that the run wrote\n\
         {:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}\n",
        inode_trim::FILES,
        "",
        "deleted",
        "+60 s",
        "unmounted",
        "+journal",
        "tables",
        "discards"
    );
    for trim in Trim::ALL {
        line(&mut t, trim.name(), found.runs.of(trim));
    }
    line(&mut t, "half deleted, safe", &found.half);
    line(&mut t, "15 of 16, safe", &found.most);
    t.push_str(
        "tables: blocks of inode tables discarded; discards: number of discards. The next \
         checkpoint\nrewrites the blocks that naive discards.\n\nValid pages by class, after the \
         unmount\n",
    );
    for trim in Trim::ALL {
        let parts: Vec<String> =
            found.runs.of(trim).unmounted.0.iter().map(|(k, n)| format!("{k} {n}")).collect();
        writeln!(t, "{:<18} {}", trim.name(), parts.join(", ")).expect(LINE);
    }
    if !found.others.is_empty() {
        writeln!(
            t,
            "\nOther settings, after the unmount, without the journal\n{:<18} {:>9} {:>9} {:>9}",
            "", "discard", "safe", "tables"
        )
        .expect(LINE);
    }
    for row in &found.others {
        writeln!(
            t,
            "{:<18} {:>9} {:>9} {:>9}",
            row.name,
            row.discard.unmounted.counted(),
            row.safe.unmounted.counted(),
            row.safe.tables_trimmed
        )
        .expect(LINE);
    }
    if !found.varied.is_empty() {
        writeln!(
            t,
            "\nParameters that the paper does not give, varied\n{:<26} {:>9} {:>9}",
            "", "discard", "safe"
        )
        .expect(LINE);
    }
    for (name, discard, safe) in &found.varied {
        writeln!(t, "{name:<26} {discard:>9} {safe:>9}").expect(LINE);
    }
    wear(&mut t, &found.wear);
    t.push('\n');
    claims_table(&mut t, &found.claims);
    t
}

fn line(t: &mut String, name: &str, r: &RunOutcome) {
    writeln!(
        t,
        "{name:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}",
        r.deleted.counted(),
        r.written_back.counted(),
        r.unmounted.counted(),
        r.unmounted.with_journal(),
        r.tables_trimmed,
        r.table_discards
    )
    .expect(LINE);
}

fn wear(t: &mut String, rows: &[Wear]) {
    if rows.is_empty() {
        return;
    }
    t.push_str(
        "\nAged drive of 4 GiB, nearly full, ext4 of 6.18; slots of 4 KiB. WAF: slots programmed \
         / slots\n\
         written. Latency of an fsync, a buffered write of a file, an insert, a sync.\n",
    );
    writeln!(
        t,
        "{:<18} {:<18} {:>6} {:>8} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "",
        "",
        "WAF",
        "written",
        "copied",
        "erases",
        "discards",
        "ops/s",
        "p50 us",
        "p99 us",
        "p99.9 us"
    )
    .expect(LINE);
    for w in rows {
        let [a, b, c] = w.latency_ns.map(|ns| ns / 1000);
        let name = if w.only_deleted { "safe, deleted only" } else { w.trim.name() };
        writeln!(
            t,
            "{:<18} {name:<18} {:>6.3} {:>8} {:>8} {:>7} {:>8} {:>8.0} {a:>8} {b:>8} {c:>8}",
            w.work.name(),
            w.amplification,
            w.host_slots,
            w.copied_slots,
            w.erased_blocks,
            w.discards,
            w.rate
        )
        .expect(LINE);
    }
}
