//! What `[measure]` asks for, from the block events of a run and the image that it left.

use std::collections::BTreeSet;

use wp_base::event::{BlockAction, Class, Event, Op, Record};
use wp_base::{FsResult, SECTOR_BYTES};
use wp_machine::classify::{Classifier, mark};
use wp_machine::workload::fsync_last::{MARK_FSYNC, MARK_RETURN, MARK_WRITE};
use wp_machine::{Machine, MachineError};
use wp_papers::ext4_fsync::OnDisk;
use wp_parity::reference::{Filed, RunSummary, summarise};

use super::metric::{Metrics, Number};
use super::work::Work;

/// Name of the task that runs the workload: summaries know it as the one that calls fsync.
pub const TASK: &str = "w2";
/// Events that phases are made of.
pub const CLASSES: Class = Class(Class::BLOCK.0 | Class::JBD2.0 | Class::SYSCALL.0 | Class::MARK.0);
/// Seconds at the end of the watched time that are left out, as recordings do.
const MARGIN_S: i64 = 2;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Blocks dispatched, by phase (`write`, `fsync`, `after`), class and task; and what is on disk
/// when the fsync returns.
///
/// Errors: an image that cannot be read.
pub(super) fn phases(
    work: &Work,
    machine: &Machine,
    records: &[Record],
    out: &mut Metrics,
) -> Result<(), MachineError> {
    let config = |what: &str| MachineError::Config(what.to_owned());
    let wrong = |error| MachineError::Fs { during: "reading the image", error };
    let spec = machine.spec();
    let view = machine.view();
    let classifier =
        Classifier::new(spec.fs, &spec.fs_options, &view, spec.start).map_err(wrong)?;
    let zero = mark(records, MARK_FSYNC).ok_or_else(|| config("the trace has no fsync"))?;
    let end = mark(records, MARK_RETURN).ok_or_else(|| config("the trace has no end of fsync"))?;
    let from = mark(records, MARK_WRITE).unwrap_or(0);
    let lines = classifier.lines(&records[from..], zero - from);
    let fsync_ns = records[end].at.since(records[zero].at).0;
    let number = |key: &str| work.option(key).and_then(|n| n.parse().ok()).unwrap_or(0u64);
    let (files, bytes) = (number("n") as u32, number("bytes"));
    let watched = (number("watch") as i64 - MARGIN_S) * 1_000_000_000;
    let window = watched.max(fsync_ns as i64);
    let filed = Filed::count(&lines, fsync_ns as i64);
    let summary = summarise(&lines, fsync_ns as i64, files, window, filed)
        .map_err(|e| config(&e.to_string()))?;
    dispatched(&summary, out);
    let part = (files, spec.start, bytes);
    let state = OnDisk::at_return(&lines, fsync_ns, part, &view, spec.fs, &spec.fs_options)
        .map_err(wrong)?;
    let count = |all: &[bool]| all.iter().filter(|b| **b).count() as u64;
    for (key, n) in [
        ("files_with_data", count(&state.data)),
        ("files_with_inode_block", count(&state.table)),
        ("files_with_size", count(&state.size)),
        ("metadata_logged", u64::from(state.blocks)),
    ] {
        out.insert(format!("phase.{key}"), Number::Int(n));
    }
    Ok(())
}

fn dispatched(summary: &RunSummary, out: &mut Metrics) {
    for (phase, classes) in &summary.phases {
        for (class, found) in classes {
            let key = format!("phase.{}.{class}", phase.name());
            out.insert(key.clone(), Number::Int(u64::from(found.blocks())));
            for (issuer, share) in &found.by {
                out.insert(format!("{key}.{issuer}"), Number::Int(u64::from(share.blocks)));
            }
            let first = found.moments.first().and_then(|m| u64::try_from(m.first_ns).ok());
            if let Some(ns) = first {
                out.insert(format!("{key}.first_ns"), Number::Int(ns));
            }
        }
    }
}

/// Pages written and not discarded since, and pages discarded, by what they hold in the end.
///
/// Errors: an image that cannot be read.
pub(super) fn pages(machine: &Machine, records: &[Record], out: &mut Metrics) -> FsResult<()> {
    let spec = machine.spec();
    let classes = (spec.fs.blocks)(&machine.view())?;
    let class = |page: u64| match classes.class(page * PAGE / u64::from(classes.block_bytes())) {
        name if name.starts_with("journal") => "journal",
        name => name,
    };
    let mut live = BTreeSet::new();
    let mut add = |key: String, n: u64| {
        let before = out.get(&key).map_or(0, |n| n.value() as u64);
        out.insert(key, Number::Int(before + n));
    };
    let per = PAGE / SECTOR_BYTES;
    for r in records {
        let Event::Block { action: BlockAction::Issue, op, at, sectors, .. } = r.event else {
            continue;
        };
        let Some(first) = at.0.checked_sub(spec.start.0).filter(|_| sectors > 0) else { continue };
        let range = first / per..(first + u64::from(sectors)).div_ceil(per);
        match op {
            Op::Write => live.extend(range),
            Op::Discard => {
                for page in range {
                    live.remove(&page);
                    add(format!("pages.discarded.{}", class(page)), 1);
                }
            }
            _ => {}
        }
    }
    let all = live.len() as u64;
    for page in live {
        add(format!("pages.valid.{}", class(page)), 1);
    }
    add("pages.valid".to_owned(), all);
    Ok(())
}
