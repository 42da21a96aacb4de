//! One run: a point with a seed, on a machine of its own.
//!
//! Metrics, by what they begin with: none, what the workload tells; `device.` and `fs.`, counters
//! after the unmount and before it; `conflicts.`, journal conflicts; `phase.` and `pages.`, what
//! `[measure]` asks for; `crash.`, power failures.

use std::collections::BTreeMap;

use wp_base::event::{Class, Record};
use wp_base::{FsError, FsResult, Span};
use wp_vfs::{JournalConflict, Vfs};
use wp_workload::program::{By, Call, NO_THREADS, Player, Program, Step};

use super::measure;
use super::metric::{Metrics, Number};
use super::resolve::Setup;
use super::work::{Kind, Work};
use crate::machine::{Machine, MachineError};
use crate::workload::WorkloadReport;
use crate::workload::fio::IN_TURN;

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
        Kind::Program(program) => play(vfs, program).await,
    }
}

/// Times of calls of one kind, or of stretches of one name.
#[derive(Default)]
struct Took {
    count: u64,
    sum: u64,
    most: u64,
}

impl Took {
    fn add(&mut self, span: Span) {
        self.count += 1;
        self.sum += span.0;
        self.most = self.most.max(span.0);
    }
}

/// Plays a program. What calls answer is counted, and told; damage ends it.
async fn play(vfs: &Vfs, program: &Program) -> FsResult<WorkloadReport> {
    let rt = vfs.rt().clone();
    let player = Player::new(vfs.clone());
    let mut report = WorkloadReport::default();
    let mut took: BTreeMap<String, Took> = BTreeMap::new();
    let mut open: Vec<(String, wp_base::Time)> = Vec::new();
    let (begun, mut calls, mut failed) = (rt.now(), 0u64, 0u64);
    let mut expected = None;
    for step in &program.0 {
        match step {
            Step::Case(_) => {}
            Step::Align => {
                const TICK_NS: u64 = 10_000_000;
                let next = rt.now().0.next_multiple_of(TICK_NS) + TICK_NS / 10;
                rt.sleep_until(wp_base::Time(next)).await;
            }
            Step::Nap(us) => rt.sleep(Span::micros(*us)).await,
            Step::Exit => player.exit().await?,
            Step::Begin(label) => open.push((label.op.clone(), rt.now())),
            Step::End => {
                if let Some((name, from)) = open.pop() {
                    took.entry(name).or_default().add(rt.now().since(from));
                }
            }
            Step::Fail(_) | Step::Slow(_) | Step::Tear(_) | Step::Heal => {
                return Err(FsError::Invalid("steps that make the device fail are for [crash]"));
            }
            Step::PowerFailure => {
                return Err(FsError::Invalid("power_failure is a step of `writepath crash`"));
            }
            Step::Join | Step::InOrder => return Err(FsError::Invalid(NO_THREADS)),
            Step::Call(by, _) if by.thread > 0 => return Err(FsError::Invalid(NO_THREADS)),
            Step::Expect(errno) => expected = Some(*errno),
            Step::Call(By { label, .. }, call) => {
                let from = rt.now();
                let answer = answer(&player, call).await;
                let span = rt.now().since(from);
                calls += 1;
                let name = label.as_ref().map_or(call.name(), |l| &l.op);
                took.entry(name.to_owned()).or_default().add(span);
                let told = match (answer, expected.take()) {
                    (Err(e @ (FsError::Unsupported(_) | FsError::Corrupt(_))), _) => return Err(e),
                    (Err(e), Some(errno)) if e.errno() == errno => None,
                    (Err(e), _) => Some(e.to_string()),
                    (Ok(_), Some(errno)) => Some(format!("success, expected {errno}")),
                    (Ok(short), None) => short,
                };
                if let Some(told) = told {
                    failed += 1;
                    note(&mut report, call, &told, failed);
                }
            }
        }
    }
    let mut add = |key: &str, n: u64| report.numbers.push((key.to_owned(), n));
    add("calls", calls);
    add("failed_calls", failed);
    add("elapsed_ns", rt.now().since(begun).0);
    for (name, t) in took {
        add(&format!("{name}.count"), t.count);
        add(&format!("{name}.sum_ns"), t.sum);
        add(&format!("{name}.mean_ns"), t.sum / t.count.max(1));
        add(&format!("{name}.max_ns"), t.most);
    }
    Ok(report)
}

/// Does a call. Answers what it did if it wrote only a part. Errors: what the call answers.
async fn answer(player: &Player, call: &Call) -> FsResult<Option<String>> {
    let Call::Pwrite { fd, len, at, data } = call else {
        return player.call(call).await.map(|()| None);
    };
    let wrote = player.write(*fd, *at, &data.slices(*at, *len)).await?;
    Ok((wrote < u64::from(*len)).then(|| format!("{wrote} of {len} bytes written")))
}

/// Tells of the first calls that failed.
fn note(report: &mut WorkloadReport, call: &Call, told: &str, failed: u64) {
    const TOLD: u64 = 5;
    if failed <= TOLD {
        report.notes.push(format!("`{call}` returned {told}"));
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
