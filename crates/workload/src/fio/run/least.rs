//! Rates below which a job ends with an error (`rate_min`, `rate_iops_min`).
//!
//! Source: fio's manual and its `check_min_rate`.

use wp_base::{Span, Time};

use super::super::job::Job;
use super::super::result::DirectionResult;

/// In the beginning a job may be slower.
const SETTLES: Span = Span::secs(2);

/// What was counted when the rate was checked last, by direction.
#[derive(Clone, Debug, Default)]
pub(super) struct LeastRates([Option<(Time, u64, u64)>; 3]);

impl LeastRates {
    /// After an operation: what rate is not met, in words. `since`: when the round began.
    pub(super) fn unmet(
        &mut self,
        job: &Job,
        (since, now): (Time, Time),
        counts: &[DirectionResult; 3],
    ) -> Option<String> {
        if now.since(since) < SETTLES {
            return None;
        }
        for (d, (last, c)) in self.0.iter_mut().zip(counts).enumerate() {
            let (least, least_iops) = (job.rate_min[d], job.rate_iops_min[d]);
            if (least == 0 && least_iops == 0) || c.ios == 0 {
                continue;
            }
            if let Some((at, bytes, ios)) = *last {
                let ms = now.since(at).0 / 1_000_000;
                if ms == 0 || ms < job.rate_cycle {
                    continue;
                }
                let rate = |n: u64| n.saturating_mul(1000) / ms;
                let (bw, iops) = (rate(c.bytes - bytes), rate(c.ios - ios));
                if least > 0 && bw < least {
                    return Some(format!("rate_min={least}B/s not met, got {bw}B/s"));
                }
                if least == 0 && iops < least_iops {
                    return Some(format!("rate_iops_min={least_iops} not met, got {iops} IOPS"));
                }
            }
            *last = Some((now, c.bytes, c.ios));
        }
        None
    }
}
