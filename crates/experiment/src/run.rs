//! One run: a point with a seed, on a machine of its own.
//!
//! Metrics, by what they begin with: none, what the workload tells; `device.` and `fs.`, counters
//! after the unmount and before it; `conflicts.`, journal conflicts; `phase.` and `pages.`, what
//! `[measure]` asks for; `crash.`, power failures.

use std::collections::BTreeMap;

use wp_base::event::{Class, Record};
use wp_base::{FsResult, Span};
use wp_machine::workload::fio::IN_TURN;
use wp_machine::workload::{WorkloadReport, program};
use wp_machine::{Machine, MachineError};
use wp_vfs::{JournalConflict, Vfs};

use super::measure;
use super::metric::{Metrics, Number};
use super::resolve::Setup;
use super::work::{Kind, Work};

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its numbers.
    pub metrics: Metrics,
    /// What its user should know.
    pub notes: Vec<String>,
}

/// Label of the random stream of `start_within`: that of paper direct-io's runs, whose file is to
/// give the same numbers.
const START: &str = "mobibench";

/// Makes a run. Errors: a machine that cannot be, what the file system answers.
pub fn run(setup: &Setup, seed: u64) -> Result<Outcome, MachineError> {
    if let Some(plan) = &setup.crash {
        return super::crash::run(plan, &setup.work, seed);
    }
    let mut spec = setup.machine.clone();
    spec.seed = seed;
    let machine = Machine::new(spec, None)?;
    if setup.measure.pages {
        machine.record(Class::BLOCK);
    }
    let vfs = machine.mount()?;
    if setup.measure.phases {
        machine.record(measure::CLASSES);
    }
    let (v, work) = (vfs.clone(), setup.work.clone());
    let report = machine
        .block_on(measure::TASK, async move { begin(&v, &work).await })?
        .map_err(|error| MachineError::Fs { during: "workload", error })?;
    let mut out = Outcome::default();
    out.notes.extend(report.notes);
    out.notes.extend(vfs.fs().notes());
    for (key, n) in report.numbers {
        out.metrics.insert(key, Number::Int(n));
    }
    rates(&setup.work, &mut out.metrics);
    let after = machine.rt.now();
    let records = if setup.measure.phases { machine.rt.probe().take() } else { Vec::new() };
    if setup.measure.phases && !setup.measure.pages {
        machine.record(Class(0));
    }
    conflicts(&vfs.fs().journal_conflicts(), &mut out.metrics);
    for (key, n) in vfs.fs().counters() {
        out.metrics.insert(format!("fs.{key}"), Number::Int(n));
    }
    machine.unmount(&vfs)?;
    out.metrics.insert("virtual_time_ns".to_owned(), Number::Int(after.0));
    device(&machine, &mut out.metrics);
    measured(setup, &machine, records, &mut out.metrics)?;
    Ok(out)
}

fn measured(
    setup: &Setup,
    machine: &Machine,
    mut records: Vec<Record>,
    out: &mut Metrics,
) -> Result<(), MachineError> {
    let wrong = |error| MachineError::Fs { during: "reading the image", error };
    if setup.measure.phases {
        measure::phases(&setup.work, machine, &records, out)?;
    }
    if setup.measure.pages {
        records.extend(machine.rt.probe().take());
        measure::pages(machine, &records, out).map_err(wrong)?;
    }
    Ok(())
}

/// Waits for its moment, and runs the workload.
async fn begin(vfs: &Vfs, work: &Work) -> FsResult<WorkloadReport> {
    if work.start_within_ns > 0 {
        let wait = vfs.rt().rng(START).below(work.start_within_ns);
        vfs.rt().sleep(Span(wait)).await;
    }
    match &work.kind {
        Kind::Entry(entry, options) => (entry.run)(vfs, options).await,
        Kind::Program(program) => Ok(program::play(vfs, program).await?.report()),
    }
}

/// Directions of fio, and what of them is added up over jobs.
const SUMS: [&str; 2] = ["ios", "bytes"];

/// What several numbers of a workload come to together: rates, and of fio's jobs the sums.
fn rates(work: &Work, out: &mut Metrics) {
    let Kind::Entry(entry, _) = &work.kind else { return };
    let of = |out: &Metrics, key: &str| out.get(key).map_or(0.0, |n| n.value());
    match entry.name {
        "fio" => fio_totals(out),
        "mobibench" => {
            let ns = of(out, "elapsed_ns").max(1.0);
            let mib = of(out, "bytes") / f64::from(1 << 20) * 1e9 / ns;
            let iops = of(out, "records") * 1e9 / ns;
            out.insert("mib_per_s".to_owned(), Number::Real(mib));
            out.insert("records_per_s".to_owned(), Number::Real(iops));
        }
        "filebench" | "varmail" if of(out, "elapsed_ns") > 0.0 => {
            let rate = of(out, "operations") * 1e9 / of(out, "elapsed_ns");
            out.insert("ops_per_s".to_owned(), Number::Real(rate));
        }
        _ => {}
    }
}

/// Names of the numbers of fio's jobs are `JOB.SUBJOB.WHAT`; of a file with one job `WHAT` alone.
fn fio_totals(out: &mut Metrics) {
    let split = |key: &str| {
        let (job, what) = key.rsplit_once('.')?;
        Some((job.to_owned(), what.to_owned()))
    };
    let own: Vec<(String, (String, String), Number)> =
        out.iter().filter_map(|(k, n)| Some((k.clone(), split(k)?, *n))).collect();
    let mut jobs: Vec<&str> = own.iter().map(|(_, (job, _), _)| job.as_str()).collect();
    jobs.dedup();
    let is_one = jobs.len() == 1;
    let (mut all_iops, mut all_ios) = (0.0, 0.0);
    for direction in ["read", "write", "trim"] {
        let numbers = |what: &str| {
            let wanted = format!("{direction}_{what}");
            own.iter().filter(move |(_, (_, w), _)| *w == wanted).map(|(_, _, n)| n.value() as u64)
        };
        if numbers("ios").next().is_none() {
            continue;
        }
        for what in SUMS {
            let sum = numbers(what).sum();
            out.insert(format!("{direction}_{what}"), Number::Int(sum));
        }
        // Of jobs that ran one behind the other the workload has told it.
        let key = format!("{direction}_runtime_ns");
        let told = out.get(&key).map(|n| n.value() as u64);
        let longest = told.or_else(|| numbers("runtime_ns").max()).unwrap_or(0);
        out.insert(key, Number::Int(longest));
        if longest > 0 {
            let iops = numbers("ios").sum::<u64>() as f64 * 1e9 / longest as f64;
            out.insert(format!("{direction}_iops"), Number::Real(iops));
            all_iops += iops;
            all_ios += numbers("ios").sum::<u64>() as f64;
        }
    }
    // Rates of what never ran together do not add up.
    if let Some(ns) = out.remove(IN_TURN) {
        all_iops = all_ios * 1e9 / ns.value();
    }
    out.insert("iops".to_owned(), Number::Real(all_iops));
    if is_one {
        for (key, (_, what), n) in own {
            out.remove(&key);
            out.insert(what, n);
        }
    }
}

fn conflicts(rows: &[JournalConflict], out: &mut Metrics) {
    if rows.is_empty() {
        return;
    }
    let mut tasks: BTreeMap<&str, u64> = BTreeMap::new();
    let mut add = |key: String, n: u64| {
        let before = out.get(&key).map_or(0, |n| n.value() as u64);
        out.insert(key, Number::Int(before + n));
    };
    for r in rows.iter().filter(|r| r.counts) {
        add("conflicts.calls".to_owned(), r.calls);
        add("conflicts.lost_ns".to_owned(), r.lost_ns);
        add(format!("conflicts.block.{}", r.block), r.calls);
        add(format!("conflicts.case.{}", r.case), r.calls);
        if r.task.contains('/') && !r.task.starts_with("jbd2/") && !r.task.starts_with("kworker/") {
            add("conflicts.program.calls".to_owned(), r.calls);
            add(format!("conflicts.program.block.{}", r.block), r.calls);
            *tasks.entry(&r.task).or_default() += r.calls;
        }
    }
    let (least, most) = (tasks.values().min(), tasks.values().max());
    for (name, n) in [("least", least), ("most", most)] {
        add(format!("conflicts.program.thread_{name}"), n.copied().unwrap_or(0));
    }
}

fn device(machine: &Machine, out: &mut Metrics) {
    for (key, n) in machine.queue.with_device(|d| d.counters()) {
        out.insert(format!("device.{key}"), Number::Int(n));
    }
    for ((queue, _), number) in machine.more.iter().zip(2..) {
        for (key, n) in queue.with_device(|d| d.counters()) {
            out.insert(format!("device{number}.{key}"), Number::Int(n));
        }
    }
    let flash = machine.queue.with_device(|d| d.flash_blocks());
    if let Some(empty) = flash.first() {
        out.insert("device.flash_blocks_without_valid".to_owned(), Number::Int(*empty));
    }
}
