//! Table 3.1 and figure 6.1: fio's random write with an fsync after each, one thread.

use serde::{Deserialize, Serialize};
use wp_base::event::{BlockAction, Class, Event, Op, Record};
use wp_machine::MachineError;
use wp_workload::fio::{self, RunError, RunOptions, Variables};

use super::machine::{Mode, Setup};

/// Request sizes of figure 6.1 in KiB: from 4 on, as the text says; where they end it does not.
pub const SIZES_KIB: [u64; 7] = [4, 8, 16, 32, 64, 128, 256];
/// MiB of the file. The paper does not say; the table of its blocks fills the inode and four nodes.
const FILE_MIB: u64 = 16;
/// Requests of a run.
pub const REQUESTS: u64 = 200;

/// The job of a request size.
pub fn job(kib: u64, requests: u64) -> String {
    let bytes = requests * kib * 1024;
    format!(
        "[figure-6-1]\nfilename=data\nioengine=psync\nrw=randwrite\nnorandommap=1\nbs={kib}k\n\
         size={FILE_MIB}m\nio_size={bytes}\noverwrite=1\ncreate_fsync=1\nfsync=1\n"
    )
}

/// What a run of figure 6.1 gave.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rate {
    /// Requests a second.
    pub per_second: f64,
    /// Nanoseconds of a request, its fsync included.
    pub ns: f64,
}

fn wrong(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// Runs the job on a new file system; the events of `classes`.
fn play(
    setup: &Setup,
    kib: u64,
    requests: u64,
    classes: Class,
) -> Result<(fio::JobResult, Vec<Record>), MachineError> {
    let machine = setup.machine()?;
    let vfs = machine.mount()?;
    let text = job(kib, requests);
    let file = fio::parse("figure 6.1", text.as_bytes(), &|_| None, &Variables::default());
    if file.has_errors() {
        return Err(wrong(file.rendered()));
    }
    machine.record(classes);
    let v = vfs.clone();
    let done =
        machine.block_on("fio", async move { fio::run(&v, &file, RunOptions::default()).await })?;
    let mut results = done.map_err(|e| match e {
        RunError::Fs(error) => MachineError::Fs { during: "fio", error },
        RunError::Job(what) => MachineError::Config(what),
    })?;
    let records = machine.rt.probe().take();
    machine.record(Class(0));
    machine.unmount(&vfs)?;
    let result = results.pop().ok_or_else(|| wrong("fio ran no job"))?;
    if let Some(error) = result.failed {
        return Err(MachineError::Fs { during: "fio", error });
    }
    Ok((result, records))
}

/// A point of figure 6.1. Errors: as the machine's.
pub fn rate(setup: &Setup, kib: u64, requests: u64) -> Result<Rate, MachineError> {
    let (result, _) = play(setup, kib, requests, Class(0))?;
    let writes = &result.directions[1];
    if writes.ios == 0 || writes.runtime_ns == 0 {
        return Err(wrong("fio wrote nothing"));
    }
    let ns = writes.runtime_ns as f64 / writes.ios as f64;
    Ok(Rate { per_second: 1e9 / ns, ns })
}

/// Stages of one fsync of a 4 KiB random write, microseconds: means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Until the data is dispatched.
    pub prepare_data: f64,
    /// Until the caller goes on behind it.
    pub wait_data: f64,
    /// Until the nodes are dispatched.
    pub prepare_node: f64,
    /// Until the caller goes on behind them.
    pub wait_node: f64,
    /// The call for a flush.
    pub flush: f64,
    /// What is left of fsync.
    pub other: f64,
}

impl Stages {
    /// Their sum: an fsync.
    pub fn total(&self) -> f64 {
        self.prepare_data
            + self.wait_data
            + self.prepare_node
            + self.wait_node
            + self.flush
            + self.other
    }
}

/// Moments of one fsync.
#[derive(Default)]
struct Moments {
    enter: u64,
    issues: Vec<u64>,
    /// First CPU time of the caller after each completion; the wait ends there.
    resumed: Vec<u64>,
    flush: u64,
    is_waiting: bool,
}

/// Table 3.1: stages of each fsync of the run that sends two requests one after the other,
/// averaged.
///
/// Errors: as the machine's; a run without such an fsync.
pub fn stages(setup: &Setup) -> Result<Stages, MachineError> {
    let classes = Class(Class::BLOCK.0 | Class::SYSCALL.0 | Class::CPU.0);
    let (_, records) = play(setup, 4, REQUESTS, classes)?;
    let mut sum = Stages::default();
    let mut n = 0.0;
    let mut now: Option<Moments> = None;
    for r in &records {
        let at = r.at.0;
        match (&r.event, now.as_mut()) {
            (Event::SyscallEnter { name: "fsync", .. }, _) => {
                now = Some(Moments { enter: at, ..Moments::default() });
            }
            (Event::Block { action: BlockAction::Issue, op: Op::Write, .. }, Some(m)) => {
                m.issues.push(at);
            }
            (Event::Block { action: BlockAction::Complete, op: Op::Write, .. }, Some(m)) => {
                m.is_waiting = true;
            }
            (Event::Cpu { what, span }, Some(m)) if &*r.task != "swapper" => {
                // The call, and the empty bio that it makes.
                if *what == "flush_issue" || m.flush > 0 && *what == "bio_submit" {
                    m.flush += span.0;
                }
                if m.is_waiting && *what != "completion" && *what != "context_switch" {
                    m.is_waiting = false;
                    m.resumed.push(at);
                }
            }
            (Event::SyscallExit { name: "fsync", .. }, _) => {
                let Some(mut m) = now.take() else { continue };
                if m.is_waiting {
                    m.resumed.push(at);
                }
                // One request of data, one of nodes; not the one that lays out the file.
                let ([data, node], [first, .., last]) = (&m.issues[..], &m.resumed[..]) else {
                    continue;
                };
                let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
                n += 1.0;
                sum.prepare_data += us(m.enter, *data);
                sum.wait_data += us(*data, *first);
                sum.prepare_node += us(*first, *node);
                sum.wait_node += us(*node, *last);
                let flush = m.flush as f64 / 1e3;
                sum.flush += flush;
                sum.other += us(*last, at) - flush;
            }
            _ => {}
        }
    }
    if n == 0.0 {
        return Err(wrong("table 3.1: no fsync that sends data, then nodes"));
    }
    Ok(Stages {
        prepare_data: sum.prepare_data / n,
        wait_data: sum.wait_data / n,
        prepare_node: sum.prepare_node / n,
        wait_node: sum.wait_node / n,
        flush: sum.flush / n,
        other: sum.other / n,
    })
}

/// Figure 6.1 at one request size: nanoseconds of a request in each mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Request size.
    pub kib: u64,
    /// Without power-loss protection: posix, strict with the flush that is missing, OPRW.
    pub posix: f64,
    /// See `posix`.
    pub strict: f64,
    /// See `posix`.
    pub oprw: f64,
    /// With it: nobarrier, and OPRW.
    pub nobarrier: f64,
    /// See `nobarrier`.
    pub oprw_nobarrier: f64,
}

impl Point {
    /// Runs all five modes, each on a machine that `of` makes. Errors: as the machines'.
    pub fn measure(
        kib: u64,
        requests: u64,
        of: &dyn Fn(Mode, bool) -> Setup,
    ) -> Result<Point, MachineError> {
        let ns = |mode, plp| rate(&of(mode, plp), kib, requests).map(|r| r.ns);
        Ok(Point {
            kib,
            posix: ns(Mode::Posix, false)?,
            strict: ns(Mode::StrictFixed, false)?,
            oprw: ns(Mode::OprwPosix, false)?,
            nobarrier: ns(Mode::NoBarrier, true)?,
            oprw_nobarrier: ns(Mode::OprwNoBarrier, true)?,
        })
    }

    /// Throughput of OPRW over F2FS with power-loss protection.
    pub fn gain(&self) -> f64 {
        self.nobarrier / self.oprw_nobarrier
    }
}

/// Figure 6.1 in short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// strict over posix, throughput, geometric mean over the sizes.
    pub strict_over_posix: f64,
    /// OPRW over posix, the same.
    pub oprw_over_posix: f64,
    /// Smallest gain with PLP, and its size.
    pub min: (f64, u64),
    /// Largest.
    pub max: (f64, u64),
}

impl Figure {
    /// Of the points. Panics without any.
    pub fn of(points: &[Point]) -> Figure {
        assert!(!points.is_empty(), "no points");
        let mean = |ratio: &dyn Fn(&Point) -> f64| {
            let product: f64 = points.iter().map(ratio).product();
            product.powf(1.0 / points.len() as f64)
        };
        let mut gains: Vec<(f64, u64)> = points.iter().map(|p| (p.gain(), p.kib)).collect();
        gains.sort_by(|a, b| a.0.total_cmp(&b.0));
        Figure {
            strict_over_posix: mean(&|p| p.posix / p.strict),
            oprw_over_posix: mean(&|p| p.posix / p.oprw),
            min: gains[0],
            max: gains[gains.len() - 1],
        }
    }
}

/// The closed form of a size that knows table 3.1 alone: each transfer grows by the link's rate,
/// and OPRW hides the data's wait.
pub fn null_gain(paper: &Stages, kib: u64, link_mb_s: u64) -> f64 {
    let more = (kib.saturating_sub(4) * 1024) as f64 / link_mb_s as f64;
    let wait = paper.wait_data + more;
    let all = paper.total() - paper.flush + more;
    all / (all - wait)
}

/// The same of strict over posix, from the preset's flush alone: (S + F) / (S + 2 F).
pub fn null_strict(paper: &Stages, flush_us: f64) -> f64 {
    let rest = paper.total() - paper.flush;
    (rest + flush_us) / (rest + 2.0 * flush_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_understood_in_full() {
        for kib in SIZES_KIB {
            let text = job(kib, 10);
            let file = fio::parse("job", text.as_bytes(), &|_| None, &Variables::default());
            assert!(!file.has_errors() && file.diagnostics.is_empty(), "{}", file.rendered());
        }
    }

    #[test]
    fn the_closed_forms_are_those_of_the_claims() {
        let paper = Stages {
            prepare_data: 10.40,
            wait_data: 15.25,
            prepare_node: 16.16,
            wait_node: 16.38,
            flush: 2.12,
            other: 5.65,
        };
        // 63.84 / (63.84 - 15.25)
        assert!((null_gain(&paper, 4, 2050) - 1.3138).abs() < 1e-3);
        assert!((null_strict(&paper, 3.67 * 63.84) - 0.56).abs() < 1e-3);
        let point = Point {
            kib: 4,
            posix: 2.0,
            strict: 4.0,
            oprw: 2.0,
            nobarrier: 1.3,
            oprw_nobarrier: 1.0,
        };
        let figure = Figure::of(&[point, Point { kib: 8, strict: 1.0, ..point }]);
        assert!((figure.strict_over_posix - 1.0).abs() < 1e-12);
        assert_eq!((figure.oprw_over_posix, figure.max), (1.0, (1.3, 8)));
    }
}
