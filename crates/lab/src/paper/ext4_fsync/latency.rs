//! The latencies that claims are about, with the range that the assumed parameters leave them.

use wp_rt::CpuOp;

use super::run::{RunPlan, config, run};
use super::{CASES, ERAS};
use crate::claims::Measured;
use crate::machine::MachineError;
use crate::reference::TraceLine;

/// A change of one assumed parameter.
pub(super) struct Variation {
    pub(super) name: String,
    pub(super) change: Box<dyn Fn(RunPlan) -> RunPlan>,
}

/// Every assumed parameter of device and CPU profile, halved and half as much again.
pub(super) fn variations() -> Vec<Variation> {
    let mut out = Vec::new();
    let paper = RunPlan::paper(ERAS[0], CASES[0], 1, 0);
    let device = wp_device::find(&paper.device).map_or(&[][..], |d| d.params);
    for p in device.iter().filter(|p| p.source.starts_with("assumed") && p.unit != "switch") {
        for (num, den) in [(1, 2), (3, 2)] {
            let (key, value) = (p.name.to_owned(), p.value * num / den);
            out.push(Variation {
                name: format!("{key} x{num}/{den}"),
                change: Box::new(move |mut plan| {
                    plan.device_params.push((key.clone(), value));
                    plan
                }),
            });
        }
    }
    for op in CpuOp::ALL.iter().copied() {
        for (num, den) in [(1, 2), (3, 2)] {
            out.push(Variation {
                name: format!("cpu {} x{num}/{den}", op.name()),
                change: Box::new(move |mut plan| {
                    let ns = plan.cpu.profile.get(op);
                    plan.cpu.profile.set(op, ns * num / den);
                    plan
                }),
            });
        }
    }
    out
}

/// The latencies that claims are about: value, and the range over the variations.
pub(super) struct Latency {
    /// 3.4 extend, N=10 over N=1, less one.
    pub(super) growth: Range,
    /// 3.4 over 3.8, N=10, first dispatch to dispatch of the commit record.
    pub(super) ratio: Range,
}

#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) value: f64,
    low: f64,
    high: f64,
}

impl Range {
    fn new(value: f64) -> Range {
        Range { value, low: value, high: value }
    }
    fn widen(&mut self, other: f64) {
        self.low = self.low.min(other);
        self.high = self.high.max(other);
    }
    pub(super) fn measured(&self) -> Measured {
        Measured::value(self.value).interval(self.low, self.high)
    }
}

impl Latency {
    pub(super) fn measure(
        seed: u64,
        change: &dyn Fn(RunPlan) -> RunPlan,
    ) -> Result<Latency, MachineError> {
        let figure = |n| {
            Ok::<_, MachineError>(
                run(&change(RunPlan::figure_10("3.4", "extend", n, seed)))?.fsync_ns,
            )
        };
        let span = |era: &str| -> Result<f64, MachineError> {
            let plan = RunPlan { watch: 3, ..RunPlan::paper(era, "extend", 10, seed) };
            dispatch_span(&run(&change(plan))?.lines)
                .ok_or_else(|| config("no commit record in the trace"))
        };
        Ok(Latency {
            growth: Range::new(figure(10)? as f64 / figure(1)? as f64 - 1.0),
            ratio: Range::new(span("3.4")? / span("3.8")?),
        })
    }

    pub(super) fn widen(&mut self, other: &Latency) {
        self.growth.widen(other.growth.value);
        self.ratio.widen(other.ratio.value);
    }
}

/// First dispatch to dispatch of the commit record, in the fsync.
fn dispatch_span(lines: &[TraceLine]) -> Option<f64> {
    let first = lines.iter().find(|l| l.action == 'D' && l.ns_from_fsync_start >= 0)?;
    let commit = lines.iter().find(|l| l.action == 'D' && l.class == "journal_commit")?;
    Some((commit.ns_from_fsync_start - first.ns_from_fsync_start) as f64)
}
