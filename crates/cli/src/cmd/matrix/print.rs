//! The matrix as text, CSV and JSON.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};

use serde_json::{Value, json};
use wp_base::csv;
use wp_base::table::Layout;
use wp_papers::matrix::holes;
use wp_papers::matrix::speed::Workload;
use wp_papers::matrix::{Cell, DRIVES, Speed};

const LINE: &str = "a string takes it";

fn speed(cell: &Cell, workload: Workload) -> Option<&Speed> {
    cell.speeds.iter().find(|s| s.workload == workload)
}

fn us(ns: u64) -> String {
    match ns {
        0..100_000 => format!("{:.1}", ns as f64 / 1e3),
        _ => format!("{}", ns / 1000),
    }
}

/// What power failures left, with numbers.
fn verdict(cell: &Cell) -> String {
    match (&cell.refused, &cell.verdict) {
        (None, Some(v)) if v.broken.is_empty() => format!("clean in {} states", v.distinct),
        (None, Some(v)) => format!("{} (of {})", cell.outcome(), v.distinct),
        _ => cell.outcome(),
    }
}

/// A table of those that were run, one of those that were not, and what the numbers of holes mean.
pub(super) fn text(cells: &[Cell]) -> String {
    let mut t = String::new();
    for d in DRIVES {
        writeln!(t, "drive {:<10} {}", d.name, d.about).expect(LINE);
    }
    let ran: Vec<&Cell> = cells.iter().filter(|c| c.refused.is_none()).collect();
    if !ran.is_empty() {
        runs(&mut t, &ran);
    }
    let refused: Vec<(&Cell, &String)> =
        cells.iter().filter_map(|c| c.refused.as_ref().map(|why| (c, why))).collect();
    if !refused.is_empty() {
        writeln!(t, "\nRefused:").expect(LINE);
        for (cell, why) in &refused {
            writeln!(t, "{:<40} {why}", cell.name).expect(LINE);
        }
    }
    let verdicts = || ran.iter().filter_map(|c| c.verdict.as_ref());
    let known: BTreeSet<&str> = verdicts()
        .flat_map(|v| &v.broken)
        .flat_map(|b| &b.holes)
        .flat_map(|h| h.split(['/', '+']))
        .collect();
    if !known.is_empty() {
        writeln!(t, "\nKnown bugs (`writepath crash bug ID`; names without a number: `writepath list eras`):")
            .expect(LINE);
    }
    for id in holes::ids().filter(|id| known.contains(id)) {
        writeln!(t, "{id:<7} {}", holes::what(id)).expect(LINE);
    }
    for cell in ran.iter().filter(|c| c.is_unknown()) {
        writeln!(t, "\nUNKNOWN: {}", cell.name).expect(LINE);
        for b in cell.verdict.iter().flat_map(|v| &v.broken).filter(|b| b.holes.is_empty()) {
            let (rule, states) = (&b.rule, b.states);
            writeln!(t, "  {rule} in {states} states: {}\n  {}", b.example, b.command).expect(LINE);
        }
    }
    let clean = verdicts().filter(|v| v.broken.is_empty()).count();
    let unknown = ran.iter().filter(|c| c.is_unknown()).count();
    writeln!(
        t,
        "\n{} combinations: {clean} clean, {} broken by known bugs, {unknown} by unknown ones, {} refused",
        cells.len(),
        ran.len() - clean - unknown,
        refused.len()
    )
    .expect(LINE);
    t
}

/// The table of runs.
fn runs(t: &mut String, ran: &[&Cell]) {
    const LAYOUT: Layout = Layout("<40 >7 >7 >7 >5  >8 >7 >5  >8 >6  >8 >5 >5  <0");
    *t += "\np50, p99: latency of an fsync or direct write, us. fl: flushes per fsync. sent:\n\
           bytes sent to the drive per byte that programs wrote. prog: bytes programmed into\n\
           flash per byte sent.\n\n";
    let groups: [&dyn Display; 5] = [&"", &"mail", &"overwrite", &"direct", &"churn"];
    *t += &Layout("<40 ^29  ^22  ^15  ^19").line(&groups);
    *t += &LAYOUT.line(&[
        &"",
        &"fsync/s",
        &"p50",
        &"p99",
        &"fl",
        &"fsync/s",
        &"p50",
        &"fl",
        &"writes/s",
        &"p50",
        &"files/s",
        &"sent",
        &"prog",
        &"crash states",
    ]);
    let whole = |v: f64| format!("{v:.0}");
    let exact = |v: f64| format!("{v:.2}");
    for cell in ran {
        let of = |w| speed(cell, w);
        let all = (
            of(Workload::Mail),
            of(Workload::Overwrite),
            of(Workload::Direct),
            of(Workload::Churn),
        );
        let (Some(mail), Some(over), Some(direct), Some(churn)) = all else { continue };
        *t += &LAYOUT.line(&[
            &cell.name,
            &whole(mail.ops_per_second()),
            &us(mail.p50_ns),
            &us(mail.p99_ns),
            &exact(mail.flushes_per_wait()),
            &whole(over.ops_per_second()),
            &us(over.p50_ns),
            &exact(over.flushes_per_wait()),
            &whole(direct.ops_per_second()),
            &us(direct.p50_ns),
            &whole(churn.ops_per_second()),
            &exact(churn.sent()),
            &exact(churn.programmed()),
            &verdict(cell),
        ]);
    }
}

/// One line for each workload of a combination, one for what was refused.
pub(super) fn cells_csv(cells: &[Cell]) -> String {
    let mut t = "combination,workload,operations,elapsed_ns,p50_ns,p99_ns,waits,flushes,\
                 program_bytes,drive_bytes,flash_bytes,states,distinct,outcome\n"
        .to_owned();
    for c in cells {
        let outcome = csv::field(&c.outcome()).into_owned();
        let (states, distinct) = c.verdict.as_ref().map_or((0, 0), |v| (v.states, v.distinct));
        if c.refused.is_some() {
            writeln!(t, "{},,,,,,,,,,,,,{outcome}", c.name).expect(LINE);
        }
        for s in &c.speeds {
            writeln!(
                t,
                "{},{},{},{},{},{},{},{},{},{},{},{states},{distinct},{outcome}",
                c.name,
                s.workload.name(),
                s.operations,
                s.elapsed_ns,
                s.p50_ns,
                s.p99_ns,
                s.waits,
                s.flushes,
                s.program_bytes,
                s.drive_bytes,
                s.flash_bytes
            )
            .expect(LINE);
        }
    }
    t
}

/// A cell with what is computed of it.
pub(super) fn document(cell: &Cell) -> Value {
    let speeds: Vec<Value> = cell
        .speeds
        .iter()
        .map(|s| {
            let mut v = json!(s);
            v["ops_per_second"] = json!(s.ops_per_second());
            v["flushes_per_wait"] = json!(s.flushes_per_wait());
            v["drive_bytes_per_program_byte"] = json!(s.sent());
            v["flash_bytes_per_drive_byte"] = json!(s.programmed());
            v
        })
        .collect();
    json!({
        "name": cell.name, "refused": cell.refused, "speeds": speeds, "verdict": cell.verdict,
        "outcome": cell.outcome(), "is_unknown": cell.is_unknown(),
    })
}
