//! `reproduce inode-trim`.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use wp_base::table::Layout;
use wp_papers::inode_trim::{self, RunOutcome, Trim, Wear};
use wp_papers::results::Results;

use super::progress::Progress;
use super::{Answer, Args, claims_table, interrupted};
use crate::output::Out;

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
    const LAYOUT: Layout = Layout("<18 >9 >9 >9 >9 >9 >10");
    let mut t = format!(
        "Paper inode-trim: ext4 of 3.18.25; {} files of 4 KiB made, sync, deleted, sync.\n\
         Assumed: ssd-128, 8 GiB, names as fio's; counted after a clean unmount, and before.\n\n\
         Figures 2 and 3: valid pages that the run wrote\n",
        inode_trim::FILES
    );
    let heads = ["deleted", "+60 s", "unmounted", "+journal", "tables", "discards"];
    let [deleted, later, unmounted, journal, tables, discards] = heads;
    t += &LAYOUT.line(&[&"", &deleted, &later, &unmounted, &journal, &tables, &discards]);
    let mut line = |name: &str, r: &RunOutcome| {
        t += &LAYOUT.line(&[
            &name,
            &r.deleted.counted(),
            &r.written_back.counted(),
            &r.unmounted.counted(),
            &r.unmounted.with_journal(),
            &r.tables_trimmed,
            &r.table_discards,
        ]);
    };
    for trim in Trim::ALL {
        line(trim.name(), found.runs.of(trim));
    }
    line("half deleted, safe", &found.half);
    line("15 of 16, safe", &found.most);
    t.push_str(
        "tables: blocks of inode tables discarded; discards: number of discards. The next \
         checkpoint\nrewrites the blocks that naive discards.\n\nValid pages by class, after the \
         unmount\n",
    );
    for trim in Trim::ALL {
        let pages = &found.runs.of(trim).unmounted;
        let parts: Vec<String> = pages.0.iter().map(|(k, n)| format!("{k} {n}")).collect();
        t += &Layout("<18 <0").line(&[&trim.name(), &parts.join(", ")]);
    }
    others(&mut t, found);
    wear(&mut t, &found.wear);
    t.push('\n');
    claims_table(&mut t, &found.claims);
    t
}

/// Other settings, and what is assumed, varied.
fn others(t: &mut String, found: &inode_trim::Results) {
    if !found.others.is_empty() {
        const LAYOUT: Layout = Layout("<18 >9 >9 >9");
        *t += "\nOther settings, after the unmount, without the journal\n";
        *t += &LAYOUT.line(&[&"", &"discard", &"safe", &"tables"]);
        for row in &found.others {
            *t += &LAYOUT.line(&[
                &row.name,
                &row.discard.unmounted.counted(),
                &row.safe.unmounted.counted(),
                &row.safe.tables_trimmed,
            ]);
        }
    }
    if !found.varied.is_empty() {
        const LAYOUT: Layout = Layout("<26 >9 >9");
        *t += "\nParameters that the paper does not give, varied\n";
        *t += &LAYOUT.line(&[&"", &"discard", &"safe"]);
        for (name, discard, safe) in &found.varied {
            *t += &LAYOUT.line(&[name, discard, safe]);
        }
    }
}

fn wear(t: &mut String, rows: &[Wear]) {
    const LAYOUT: Layout = Layout("<18 <18 >6 >8 >8 >7 >8 >8 >8 >8 >8");
    if rows.is_empty() {
        return;
    }
    *t += "\nAged drive of 4 GiB, nearly full, ext4 of 6.18; slots of 4 KiB. WAF: slots programmed \
           / slots\nwritten. Latency of an fsync, a buffered write of a file, an insert, a sync.\n";
    let heads = ["WAF", "written", "copied", "erases", "discards", "ops/s"];
    let [waf, written, copied, erases, discards, rate] = heads;
    *t += &LAYOUT.line(&[
        &"",
        &"",
        &waf,
        &written,
        &copied,
        &erases,
        &discards,
        &rate,
        &"p50 us",
        &"p99 us",
        &"p99.9 us",
    ]);
    for w in rows {
        let [p50, p99, p999] = w.latency_ns.map(|ns| ns / 1000);
        *t += &LAYOUT.line(&[
            &w.work.name(),
            &if w.only_deleted { "safe, deleted only" } else { w.trim.name() },
            &format!("{:.3}", w.amplification),
            &w.host_slots,
            &w.copied_slots,
            &w.erased_blocks,
            &w.discards,
            &format!("{:.0}", w.rate),
            &p50,
            &p99,
            &p999,
        ]);
    }
}
