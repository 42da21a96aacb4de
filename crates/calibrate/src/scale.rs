//! The numbers of a model as the search sees them: logarithms, so that a step is a share.
//!
//! A time that is added to others (`_ns`) counts from a share of the measured times on: a step of a
//! small one is then large enough to be felt beside them. A FLUSH of 50 us that takes 1 ms is found
//! so, which a step of 8 % of 50 us does not.

use super::load::Figures;
use super::measured::Measured;

/// Farthest that a number may be from the class's: that many times.
pub(super) const FACTOR_MAX: f64 = 100.0;
/// Share of that range, in logarithms, beyond which a number is told to be near its end.
const NEAR_END: f64 = 0.85;
/// Share of the median measured time that is added to a time.
const SHARE: f64 = 0.1;

/// One number's scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// What is added to the value before its logarithm.
    offset: f64,
    /// The class's value.
    start: f64,
    /// The largest value.
    most: f64,
}

impl Scale {
    /// Of the number `key`, which the class has at `start`, for these loads.
    pub fn of(key: &str, start: u64, loads: &[Measured]) -> Scale {
        let start = start as f64;
        let most = start * FACTOR_MAX;
        if !key.ends_with("_ns") {
            return Scale { offset: 0.0, start, most };
        }
        let mut times: Vec<f64> = loads.iter().filter_map(time_ns).collect();
        times.sort_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
        let longest = times.last().copied().unwrap_or(0.0);
        Scale { offset: median * SHARE, start, most: most.max(longest) }
    }

    /// Where a value is.
    pub fn at(&self, value: f64) -> f64 {
        (value + self.offset).ln()
    }

    /// The value there, a whole number above 0.
    pub fn value(&self, at: f64) -> u64 {
        (at.exp() - self.offset).round().max(1.0) as u64
    }

    /// Where the class's value is.
    pub fn start(&self) -> f64 {
        self.at(self.start)
    }

    /// The ends of where it may be.
    pub fn bounds(&self) -> (f64, f64) {
        (self.at((self.start / FACTOR_MAX).max(1.0)), self.at(self.most))
    }

    /// Is a value near the largest or the smallest that it may have?
    pub fn is_near_end(&self, value: u64) -> bool {
        let times = (value as f64 / self.start).ln();
        let up = (self.most / self.start).ln();
        times > up * NEAR_END || times < -FACTOR_MAX.ln() * NEAR_END
    }
}

/// What a load takes for an operation, with its sync, in nanoseconds.
fn time_ns(measured: &Measured) -> Option<f64> {
    let Figures { mean_ns, iops, sync_ns } = measured.figures;
    let load = measured.load;
    let rate = iops.map(|iops| f64::from(load.jobs) * f64::from(load.depth) * 1e9 / iops);
    [sync_ns, mean_ns, rate].into_iter().flatten().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::parse;

    #[test]
    fn a_small_time_beside_a_long_latency_has_steps_that_are_felt() {
        let list = "op,bs,qd,iops,lat_us,fsync\nwrite,4k,1,1000,,1\nrandwrite,4k,1,50000,,0\n";
        let loads = parse("list", list).expect("a list").measured;
        let flush = Scale::of("flush_overhead_ns", 50_000, &loads);
        let step = flush.value(flush.start() + 0.08) - 50_000;
        assert!(step > 10_000, "{step} ns beside 1 ms");
        assert_eq!(flush.value(flush.start()), 50_000);
        assert!(flush.value(flush.bounds().1) >= 4_999_999);
        assert!(flush.is_near_end(4_900_000) && !flush.is_near_end(900_000));
        // A rate has steps that are shares of it.
        let link = Scale::of("link_mb_s", 500, &loads);
        assert_eq!(link.value(link.start() + 0.08), 542);
        // One measured time beyond a hundred times the class's value is not out of reach.
        assert!(
            Scale::of("flush_overhead_ns", 1_000, &loads).bounds().1 >= flush.at(999_999.0) - 1.0
        );
    }
}
