//! Queue-depth adaptation: an fsync beside tasks that write, with the predictor, with the oracle,
//! and with neither.

use wp_base::Span;
use wp_machine::MachineError;

use super::Ask;
use super::beside::{Load, Setup, run};
use crate::claims::Measured;
use crate::journal_conflict::profile;
use crate::vary::{BY_HALF, Range, Variation};

/// A drive with command queuing; what the paper's (UFS, NCQ) were is not public.
const DEVICE: &str = "850pro-256";
/// Lowered depth of the predictor.
const DEPTH: u32 = 2;
/// Depths of the oracle.
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Mean latency of the fsyncs, nanoseconds.
fn mean(ask: Ask, params: &str, varied: Option<&Variation>) -> Result<f64, MachineError> {
    let memory = "dirty_bytes=268435456,dirty_background_bytes=33554432";
    let mut setup = Setup {
        fs: format!("ext4,era=3.13,noinit_itable,{memory}"),
        device: DEVICE,
        params: Vec::new(),
        elevator: format!("deadline{params}"),
        kernel: (3, 13),
        cpu: profile().model(),
        seed: ask.seed,
    };
    if let Some(varied) = varied {
        varied.apply(&mut setup.params, &mut setup.cpu);
    }
    let length = Span::millis(ask.pick(1000, 8000));
    Ok(run(&setup, Load { syncers: 1, writers: 2, file_bytes: 64 << 20, length })?.mean_ns())
}

/// Change of the mean latency, percent.
fn change(ask: Ask, params: &str, varied: Option<&Variation>) -> Result<f64, MachineError> {
    Ok(100.0 * (mean(ask, params, varied)? / mean(ask, "", varied)? - 1.0))
}

pub(super) fn measure(ask: Ask) -> Result<Vec<(&'static str, Measured)>, MachineError> {
    let predicted = format!(",fsync_depth={DEPTH}");
    let stock = mean(ask, "", None)?;
    let with = mean(ask, &predicted, None)?;
    let mut range = Range::new(100.0 * (with / stock - 1.0));
    for varied in Variation::of_all_cpu(BY_HALF) {
        range.widen(change(ask, &predicted, Some(&varied))?);
    }
    let mut best = (0, f64::INFINITY);
    for depth in DEPTHS {
        let at = mean(ask, &format!(",fsync_depth={depth},fsync_window_ms=0"), None)?;
        if at < best.1 {
            best = (depth, at);
        }
    }
    let us = |ns: f64| ns / 1000.0;
    Ok(vec![
        (
            "qda.latency",
            range.measured().why(format!("{:.0} us, without {:.0} us", us(with), us(stock))),
        ),
        ("qda.depth_low", Measured::value(f64::from(DEPTH)).why("ours, with a window of 100 ms")),
        (
            "qda.oracle",
            Measured::value(best.1 / with).why(format!("best at {}: {:.0} us", best.0, us(best.1))),
        ),
    ])
}
