//! The result of a run: its files, and what is printed of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::FsResult;
use wp_base::event::Record;
use wp_base::plain::Shown as _;
use wp_machine::Machine;
use wp_machine::classify::{Classifier, lines_to_tsv, mark};
use wp_machine::results::{EVENTS, Results, events_compressed};
use wp_machine::workload::fio::WRITE_SHORT;
use wp_machine::workload::fsync_last::{MARK_FSYNC, MARK_RETURN};
use wp_vfs::JournalConflict;

use super::{Args, Ran};
use crate::output::{Exit, Out, path};

/// Block and journal events with the classes of their blocks, counted from where the workload marks
/// its fsync, or from the first; nothing of a run without events.
fn lines(machine: &Machine, records: &[Record]) -> Option<FsResult<String>> {
    let last = records.len().checked_sub(1)?;
    let zero = mark(records, MARK_FSYNC).unwrap_or(0);
    let end = mark(records, MARK_RETURN).unwrap_or(last);
    let spec = machine.spec();
    let named = Classifier::of_writes(spec.fs, &spec.fs_options, machine.view(), spec.start);
    let took = records[end].at.0 as i64 - records[zero].at.0 as i64;
    Some(named.map(|c| lines_to_tsv(c.each_line(records, zero), took)))
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

/// Keeps and prints what a run gave.
pub(super) fn keep(a: &Args, ran: Ran, out: &Out) -> Result<ExitCode, ExitCode> {
    let lines = lines(&ran.machine, &ran.records);
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
    if a.no_events {
        // It does not take the place of a result with events.
        results.set_key("without events");
    } else if left_out > 0 {
        results.set_key(&format!("the first {} events", records.len()));
        out.note(&format!(
            "note: the first {} of {} events are recorded; --max-events N records more",
            records.len(),
            records.len() as u64 + left_out
        ));
    }
    results.add("resolved.toml", ran.resolved);
    results.add("summary.json", serde_json::to_vec_pretty(&summary).unwrap_or_default());
    if !a.no_events {
        let events = events_compressed(&records).map_err(|e| out.host_error(&a.out, &e))?;
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
    if let Some(lines) = lines {
        let tsv = lines.map_err(|e| out.fs_error("classes of blocks", &e))?;
        results.add("lines.tsv", tsv);
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
