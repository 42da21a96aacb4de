//! The result of a run: its files, and what is printed of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

use serde_json::{Value, json};
use wp_base::event::{Event, Record};
use wp_base::plain::Shown as _;
use wp_machine::Machine;
use wp_machine::classify::{Classifier, is_listed};
use wp_machine::results::{EVENTS, Results, events_to_table};
use wp_machine::workload::fio::WRITE_SHORT;
use wp_vfs::JournalConflict;

use super::{Args, Ran, Recording};
use crate::output::{Exit, Out, path};

/// Classes that are kept for the next events: those of a request are asked for several times.
const CLASSES_MAX: usize = 1 << 14;

/// The events as a table, with what the blocks of block events are at the end of the run. Errors:
/// told, and the exit code.
fn table(
    machine: &Machine,
    records: &[Record],
    root: &Path,
    out: &Out,
) -> Result<Vec<u8>, ExitCode> {
    let spec = machine.spec();
    let named = Classifier::of_writes(spec.fs, &spec.fs_options, machine.view(), spec.start);
    let named = named.map_err(|e| out.fs_error("classes of blocks", &e))?;
    let mut known: BTreeMap<(u64, u32), Rc<str>> = BTreeMap::new();
    let mut class = |r: &Record| match r.event {
        Event::Block { at, sectors, .. } if is_listed(r) && sectors > 0 => {
            if known.len() >= CLASSES_MAX {
                known.clear();
            }
            let of = || named.range(at, sectors).into();
            Some(known.entry((at.0, sectors)).or_insert_with(of).clone())
        }
        _ => None,
    };
    events_to_table(records, &mut class).map_err(|e| out.host_error(root, &e))
}

/// Journal conflicts: sums by type of block and case, then what each task met.
fn conflicts_json(met: &[JournalConflict]) -> Value {
    let sum = |rows: &mut dyn Iterator<Item = &JournalConflict>| {
        rows.fold((0, 0), |(calls, lost), r| (calls + r.calls, lost + r.lost_ns))
    };
    let by = |key: fn(&JournalConflict) -> &str| {
        let keys: BTreeSet<&str> = met.iter().map(key).collect();
        let each = keys.into_iter().map(|k| {
            let (calls, lost_ns) = sum(&mut met.iter().filter(|r| r.counts && key(r) == k));
            (k.to_owned(), json!({ "calls": calls, "lost_ns": lost_ns }))
        });
        each.collect::<serde_json::Map<String, Value>>()
    };
    let (calls, lost_ns) = sum(&mut met.iter().filter(|r| r.counts));
    let rows: Vec<Value> = met
        .iter()
        .map(|r| {
            json!({ "task": r.task, "block": r.block, "case": r.case, "counts": r.counts,
                "calls": r.calls, "lost_ns": r.lost_ns })
        })
        .collect();
    json!({ "calls": calls, "lost_ns": lost_ns, "by_block": by(|r| r.block),
        "by_case": by(|r| r.case), "by_task": by(|r| &r.task), "rows": rows })
}

/// The device's counters; those of further devices with their number.
fn device_counters(machine: &Machine) -> serde_json::Map<String, Value> {
    let first = machine.queue.with_device(|d| d.counters()).into_iter();
    let more = machine.more.iter().zip(2..).flat_map(|((queue, _), n)| {
        let counters = queue.with_device(|d| d.counters());
        counters.into_iter().map(move |(k, v)| (format!("device{n}.{k}"), json!(v)))
    });
    first.map(|(k, v)| (k.to_owned(), json!(v))).chain(more).collect()
}

/// What keeps a result apart from the one with all events; `left_out`: events of those that are
/// recorded, behind the first ones.
fn key(recorded: Recording, (first, left_out): (usize, u64)) -> String {
    let which = match recorded {
        Recording::None => "without events",
        Recording::Calls => "events of calls",
        Recording::Requests => "events of requests",
        Recording::All => "",
    };
    match (which, left_out) {
        // As before there was a choice: such a result keeps its place.
        ("", 1..) => format!("the first {first} events"),
        (which, 1..) if recorded != Recording::None => format!("{which}, the first {first}"),
        (which, _) => which.to_owned(),
    }
}

/// Keeps and prints what a run gave.
pub(super) fn keep(a: &Args, ran: Ran, out: &Out) -> Result<ExitCode, ExitCode> {
    let events = match a.recording() {
        Recording::None => None,
        _ => Some(table(&ran.machine, &ran.records, &a.out, out)?),
    };
    out.contents_kept()?;
    let Ran { machine, calls, failed, records, left_out, report, .. } = ran;
    let Ran { fs_counters, conflicts, workload, .. } = ran;
    let numbers: serde_json::Map<String, Value> =
        report.numbers.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    let fs_counters: BTreeMap<&str, u64> = fs_counters.into_iter().collect();
    let summary = json!({
        "schema": "writepath.run/1", "workload": workload.name, "numbers": numbers,
        "device_counters": device_counters(&machine), "fs_counters": fs_counters,
        "notes": report.notes, "journal_conflicts": conflicts_json(&conflicts),
        "calls": calls, "failed_calls": failed.iter().map(failed_json).collect::<Vec<_>>(),
        "events": records.len() as u64 + left_out, "events_left_out": left_out,
        "virtual_time_ns": machine.rt.now().0,
    });
    let mut results = Results::default();
    results.set_key(&key(a.recording(), (records.len(), left_out)));
    if left_out > 0 {
        out.note(&format!(
            "note: the first {} of {} events are recorded; --max-events N records more",
            records.len(),
            records.len() as u64 + left_out
        ));
    }
    results.add("resolved.toml", ran.resolved);
    results.add("summary.json", serde_json::to_vec_pretty(&summary).unwrap_or_default());
    if let Some(events) = events {
        results.add(EVENTS, events);
    }
    for (n, (_, bytes)) in ran.inputs.into_iter().enumerate() {
        results.add(&format!("input-{n}"), bytes);
    }
    for (name, document) in &report.documents {
        results.add(name, serde_json::to_vec_pretty(document).unwrap_or_default());
    }
    for (name, text) in &report.files {
        results.add(name, text.clone());
    }
    for note in &report.notes {
        out.note(note);
    }
    let dir = results.write(&a.out, workload.name).map_err(|e| out.host_error(&a.out, &e))?;
    let mut text = String::new();
    for (k, v) in &report.numbers {
        writeln!(text, "{k:<12} {v}").expect("a string takes it");
    }
    for (name, errno, n) in &failed {
        writeln!(text, "{:<12} {n} x {name}: {errno}", "FAILED CALLS").expect("a string takes it");
    }
    let short = report.numbers.iter().filter(|(k, _)| k.ends_with(WRITE_SHORT));
    let short: u64 = short.map(|(_, n)| *n).sum();
    if short > 0 {
        writeln!(text, "{:<12} {short} calls", "SHORT WRITES").expect("a string takes it");
    }
    writeln!(text, "result       {}", dir.shown()).expect("a string takes it");
    let mut doc = summary;
    doc["result"] = path(&dir);
    // The program asked for more than the storage did: its numbers are not those of the workload.
    let exit = if failed.is_empty() && short == 0 { Exit::Ok } else { Exit::Simulated };
    Ok(out.answer(exit, &doc, &text))
}

/// Calls that failed, for programs.
fn failed_json((name, errno, n): &(&str, &str, u64)) -> Value {
    json!({ "call": name, "errno": errno, "count": n })
}
