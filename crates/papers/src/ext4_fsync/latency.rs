//! The latencies that claims are about, with the range that the assumed parameters leave them.

use wp_machine::MachineError;
use wp_machine::profile::Profile;
use wp_parity::reference::TraceLine;

use super::run::{PC, RunPlan, Short, config, run, short};
use super::{CASES, ERAS};
use crate::vary::{self, Range, Variation};

/// Every assumed parameter of device and CPU profile, halved and half as much again.
pub fn variations() -> Vec<Variation> {
    let paper = RunPlan::paper(ERAS[0], CASES[0], 1, 0);
    let mut out = vary::of_device(&paper.device, vary::BY_HALF);
    out.extend(vary::of_cpu(Profile::known(PC), vary::BY_HALF));
    out
}

/// The latencies that claims are about: value, and the range over the variations.
pub(super) struct Latency {
    /// 3.4 extend, N=10 over N=1, less one.
    pub(super) min_growth: Range,
    /// 3.4 extend, the largest of all N over N=1, less one.
    pub(super) max_growth: Range,
    /// 3.4 over 3.8, N=10, first dispatch to dispatch of the commit record.
    pub(super) ratio: Range,
    /// For each era: allocating, does the latency grow with N at every step (1 = yes)?
    pub(super) grows: [Range; ERAS.len()],
    /// Allocating: increase from N=100 to 1000 over increase from 1 to 100, in the era where this
    /// is smallest.
    pub(super) step: Range,
    /// Data blocks that the fsync writes (figure 11): era, case, N.
    pub(super) data: Vec<(&'static str, &'static str, u32, Range)>,
}

impl Latency {
    pub(super) fn measure(
        seed: u64,
        files: &[u32],
        change: &dyn Fn(RunPlan) -> RunPlan,
    ) -> Result<Latency, MachineError> {
        let mut data = Vec::new();
        let mut figure =
            |era: &'static str, case: &'static str| -> Result<Vec<f64>, MachineError> {
                let mut latencies = Vec::new();
                for n in files {
                    let plan = change(RunPlan::figure_10(era, case, *n, seed));
                    let Short { fsync_ns, data_blocks } = short(&plan)?;
                    latencies.push(fsync_ns as f64);
                    data.push((era, case, *n, Range::new(f64::from(data_blocks))));
                }
                Ok(latencies)
            };
        let span = |era: &str| -> Result<f64, MachineError> {
            let plan = RunPlan { watch: 3, ..RunPlan::paper(era, "extend", 10, seed) };
            dispatch_span(&run(&change(plan))?.lines)
                .ok_or_else(|| config("no commit record in the trace"))
        };
        let extend = figure("3.4", "extend")?;
        let mut grows = [Range::new(0.0); ERAS.len()];
        let mut step = f64::MAX;
        for (era, grows) in ERAS.into_iter().zip(&mut grows) {
            if era != ERAS[0] {
                figure(era, "extend")?;
            }
            let alloc = figure(era, "alloc")?;
            let yes = alloc.windows(2).all(|w| w[0] < w[1]);
            *grows = Range::new(f64::from(u8::from(yes)));
            step = step.min(increase_ratio(&alloc));
        }
        Ok(Latency {
            min_growth: Range::new(extend[1] / extend[0] - 1.0),
            max_growth: Range::new(extend.iter().fold(0.0, |a, b| b.max(a)) / extend[0] - 1.0),
            ratio: Range::new(span("3.4")? / span("3.8")?),
            grows,
            step: Range::new(step),
            data,
        })
    }

    fn ranges(&mut self) -> impl Iterator<Item = &mut Range> {
        [&mut self.min_growth, &mut self.max_growth, &mut self.ratio, &mut self.step]
            .into_iter()
            .chain(&mut self.grows)
            .chain(self.data.iter_mut().map(|(_, _, _, blocks)| blocks))
    }

    pub(super) fn widen(&mut self, mut other: Latency) {
        self.ranges().zip(other.ranges()).for_each(|(ours, other)| ours.widen(other.value));
    }
}

/// Of latencies for N = 1, 10, 100, 1000: the increase of the last step over that of the others
/// together. 0 without N = 1000; a nanosecond where nothing increases before.
fn increase_ratio(latency: &[f64]) -> f64 {
    match latency {
        [one, _, hundred, thousand] => (thousand - hundred) / (hundred - one).max(1.0),
        _ => 0.0,
    }
}

/// First dispatch to dispatch of the commit record, in the fsync.
fn dispatch_span(lines: &[TraceLine]) -> Option<f64> {
    let first = lines.iter().find(|l| l.action == 'D' && l.ns_from_fsync_start >= 0)?;
    let commit = lines.iter().find(|l| l.action == 'D' && l.class == "journal_commit")?;
    Some((commit.ns_from_fsync_start - first.ns_from_fsync_start) as f64)
}
