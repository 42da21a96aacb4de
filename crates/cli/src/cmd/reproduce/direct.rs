//! `reproduce direct-io`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use wp_base::table::Layout;
use wp_papers::direct_io::{self, Graph, Left, Mechanism, Point, SIZES, Sent};
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
    let done = direct_io::reproduce(a.seed, a.quick, &mut step);
    progress.end();
    match done {
        Ok(Some(found)) => report(a, out, found, progress.began),
        Ok(None) => interrupted(out),
        Err(e) => out.machine_error(&e),
    }
}

fn report(a: &Args, out: &Out, found: direct_io::Results, began: Instant) -> ExitCode {
    if let Some(note) = found.notes.first() {
        out.note(&format!("note: {note}"));
    }
    let text = tables(&found);
    let answer = Answer {
        slug: direct_io::SLUG,
        began,
        results: Results::DirectIo(Box::new(found)),
        text,
        is_unlisted: false,
        more: Vec::new(),
    };
    answer.finish(a, out)
}

fn tables(found: &direct_io::Results) -> String {
    let mut t = format!(
        "Paper direct-io: MobiBench on Linux {}, class of {}, CPU {} (assumed costs).\n",
        direct_io::KERNEL,
        direct_io::DEVICE,
        direct_io::PROFILE,
    );
    for g in &found.graphs {
        graph(&mut t, g);
    }
    mechanisms(&mut t, &found.mechanisms);
    cuts(&mut t, &found.cuts);
    t.push('\n');
    claims_table(&mut t, &found.claims);
    t
}

/// Systems down, sizes across.
fn graph(t: &mut String, g: &Graph) {
    let size = |n: u64| if n < 1 << 20 { format!("{}K", n >> 10) } else { format!("{}M", n >> 20) };
    let heads: String = SIZES.iter().map(|n| format!("{:>8}", size(*n))).collect();
    let runs = g.points.first().map_or(0, |p| p.runs.len());
    writeln!(t, "\n{}; mean of {runs}\n{:<20}{heads}{:>8}", g.figure.name(), "", "spread")
        .expect(LINE);
    for row in g.points.chunk_by(|a, b| a.system == b.system) {
        let cell = |p: &Point| {
            let v = p.mean(g.figure);
            if v < 1000.0 { format!("{v:>8.1}") } else { format!("{v:>8.0}") }
        };
        let cells: String = row.iter().map(cell).collect();
        let spread = row.iter().map(|p| p.spread(g.figure)).fold(0.0, f64::max);
        writeln!(t, "{:<20}{cells}{:>7.1}%", row[0].system.name(), 100.0 * spread).expect(LINE);
    }
    if runs > 1 {
        let why = "Runs differ only in their start time after the mount.";
        writeln!(t, "{why}").expect(LINE);
    }
}

/// What was sent beside the file's blocks.
fn beside(s: &Sent) -> String {
    let mut parts: Vec<String> = s
        .by_class
        .iter()
        .filter(|(class, _)| *class != "data")
        .map(|(class, n)| format!("{n} {class}"))
        .collect();
    if s.flushes > 0 {
        parts.push(format!("{} flush", s.flushes));
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn mechanisms(t: &mut String, rows: &[Mechanism]) {
    const LAYOUT: Layout = Layout("<28>7>9>9>9  <44 <0");
    *t += "\nBlocks that were moved, and what else is sent to the drive (in order: bios that begin \
           where the previous one ended)\n";
    let mut cases: Vec<_> = Vec::new();
    for row in rows {
        if !cases.contains(&row.case) {
            cases.push(row.case);
        }
    }
    for case in cases {
        *t += &LAYOUT.line(&[
            &case.name(),
            &"moved",
            &"bios/wr.",
            &"in order",
            &"data",
            &"other than data, in the writes",
            &"fdatasync; fsync after it",
        ]);
        for m in rows.iter().filter(|m| m.case == case) {
            let in_order = 100.0 * m.writes.next as f64 / m.writes.bios.max(1) as f64;
            *t += &LAYOUT.line(&[
                &format!("  {}", m.system),
                &m.moved.map_or("-".to_owned(), |v| format!("{:.0} %", 100.0 * v)),
                &format!("{:.2}", m.writes.bios as f64 / m.case.writes as f64),
                &format!("{in_order:.0} %"),
                &m.writes.of("data"),
                &beside(&m.writes),
                &format!("{}; {}", beside(&m.fdatasync), beside(&m.fsync)),
            ]);
        }
    }
}

/// What may be there after a cut.
fn cuts(t: &mut String, rows: &[Left]) {
    const LAYOUT: Layout = Layout("<28>8<1>8>8>8>8>8>8>8>8>6");
    *t += &format!(
        "\nCrash states of {} direct writes of 16 KiB over a file, one every 3 s, on a drive\n\
         with a volatile cache; each state is recovered (*: a sample of them). all, some,\n\
         none: how many of the returned writes survive; torn: one survives in part; order:\n\
         one survives and an earlier one does not; synced: fsynced data is missing; foreign:\n\
         a block holds data never written there; most: writes missing in one state\n",
        direct_io::cuts::WRITES
    );
    *t += &LAYOUT.line(&[
        &"", &"states", &"", &"all", &"some", &"none", &"torn", &"order", &"synced", &"foreign",
        &"refused", &"most",
    ]);
    for r in rows {
        *t += &LAYOUT.line(&[
            &format!("{}{}", r.system, if r.synced { ", fsync" } else { "" }),
            &r.states,
            &if r.sampled > 0 { "*" } else { "" },
            &r.all,
            &r.some,
            &r.none,
            &r.torn,
            &r.out_of_order,
            &r.lost_synced,
            &r.foreign,
            &r.refused,
            &r.most_lost,
        ]);
    }
    if rows.iter().any(|r| r.lost_synced > 0 && r.system.starts_with("F2FS")) {
        *t += "F2FS, synced: an fsync does not wait for the first node after a checkpoint, as in Linux\n\
               (`writepath crash bug R1`; mount option wait_first_node).\n";
    }
}
