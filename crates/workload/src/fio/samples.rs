//! Bandwidth and rate as fio samples them: every half second (`bwavgtime`, `iopsavgtime`) of what a
//! job did since the last sample.
//!
//! Observed: a sample is a whole number of KiB per second and of operations per second, the last
//! piece of less than a period gives none, and both start with the job.

use super::stats::Stat;

/// A sampled figure.
#[derive(Clone, Debug)]
pub struct Sampler {
    period_ns: u64,
    /// When the period began, and what was done by then.
    from_ns: u64,
    done: u64,
    /// What the samples were.
    pub stat: Stat,
}

impl Sampler {
    /// One that samples every `period_ns` nanoseconds from `now_ns` on.
    pub fn new(period_ns: u64, now_ns: u64) -> Sampler {
        Sampler { period_ns: period_ns.max(1), from_ns: now_ns, done: 0, stat: Stat::default() }
    }

    /// Takes a sample if a period is over: `total` is what was done since the job began, `unit`
    /// what counts as one.
    pub fn take(&mut self, now_ns: u64, total: u64, unit: u64) {
        let passed = now_ns.saturating_sub(self.from_ns);
        // A direction that did nothing has no samples of nothing.
        if total == 0 {
            return;
        }
        if passed < self.period_ns {
            return;
        }
        let done = u128::from(total.saturating_sub(self.done));
        let rate = done * 1_000_000_000 / u128::from(passed) / u128::from(unit.max(1));
        self.stat.add(u64::try_from(rate).unwrap_or(u64::MAX));
        (self.from_ns, self.done) = (now_ns, total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_the_rate_of_its_own_period() {
        let mut s = Sampler::new(500, 1000);
        s.take(1400, 1 << 20, 1024);
        assert_eq!(s.stat.count, 0);
        s.take(1500, 1 << 20, 1024);
        s.take(2000, 1 << 20, 1024);
        assert_eq!((s.stat.count, s.stat.min, s.stat.max), (2, 0, 1024 * 2_000_000));
    }
}
