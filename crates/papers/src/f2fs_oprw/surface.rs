//! The region of table 6.2: failures of posix over what the paper does not give of its drive.

use serde::Serialize;
use wp_machine::MachineError;

use super::cuts::{CutPlan, Drive, cut};
use super::machine::Mode;

/// Channels, and dies of each.
pub const DIES: [(u64, u64); 6] = [(1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (8, 4)];
/// MiB of the write buffer. Less than 2 cannot hold a program unit of each active zone.
pub const BUFFERS_MIB: [u64; 2] = [2, 16];
/// Microseconds between the emulator's free flushes; 0: none.
pub const PERIODS_US: [u64; 4] = [0, 500, 2_000, 10_000];
/// Rates in percent that 30 failures of 1000 are compatible with (95 %), by the claim.
pub const PAPER: [f64; 2] = [0.021, 0.043];

/// A point.
#[derive(Clone, Debug, Serialize)]
pub struct SurfacePoint {
    /// Dies in all.
    pub dies: u64,
    /// Of how many channels.
    pub channels: u64,
    /// Buffer.
    pub buffer_mib: u64,
    /// Period of the free flush.
    pub period_us: u64,
    /// Share of failures.
    pub rate: f64,
    /// Its 95 % interval over seeds.
    pub interval: [f64; 2],
}

impl SurfacePoint {
    /// Is the rate one that the paper's count is compatible with?
    pub fn is_papers(&self) -> bool {
        (PAPER[0]..=PAPER[1]).contains(&self.rate)
    }
}

/// Runs every point with `seeds` seeds and `cuts` power failures of each, into `out`. Was every
/// point run?
///
/// `progress(done, all)` is called before each and while it runs; `false` stops.
pub fn surface(
    (seeds, cuts): (u64, u64),
    workers: usize,
    out: &mut Vec<SurfacePoint>,
    progress: &(dyn Fn(usize, usize) -> bool + Sync),
) -> Result<bool, MachineError> {
    let all = DIES.len() * BUFFERS_MIB.len() * PERIODS_US.len();
    for dies in DIES {
        for buffer_mib in BUFFERS_MIB {
            for period_us in PERIODS_US {
                if !progress(out.len(), all) {
                    return Ok(false);
                }
                let drive = Drive {
                    dies,
                    buffer_bytes: buffer_mib << 20,
                    period_ns: period_us * 1000,
                    ..Drive::PRESET
                };
                let plan = CutPlan { mode: Mode::Posix, drive, seeds: (1, seeds), cuts };
                let done = out.len();
                let counts = cut(&plan, workers, &|_| progress(done, all))?;
                if counts.runs < seeds {
                    return Ok(false);
                }
                out.push(SurfacePoint {
                    dies: dies.0 * dies.1,
                    channels: dies.0,
                    buffer_mib,
                    period_us,
                    rate: counts.rate(),
                    interval: counts.interval(),
                });
            }
        }
    }
    Ok(true)
}
