//! Latencies: extremes, mean, deviation, and fio's log-linear buckets.

/// Bits of resolution within a power of two.
const BITS: u32 = 6;
/// Powers of two that are told apart; longer latencies count as the last.
const GROUPS: usize = 29;
const BUCKETS: usize = GROUPS << BITS;

/// Counts of latencies in buckets of 1/64 of a power of two; exact below 128 ns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    fn bucket(ns: u64) -> usize {
        let top = ns.checked_ilog2().unwrap_or(0);
        if top <= BITS {
            return ns as usize;
        }
        let drop = top - BITS;
        let within = (ns >> drop) & ((1 << BITS) - 1);
        ((((drop + 1) << BITS) as usize) + within as usize).min(BUCKETS - 1)
    }

    /// The middle of a bucket, in nanoseconds.
    fn middle(bucket: usize) -> u64 {
        if bucket < 2 << BITS {
            return bucket as u64;
        }
        let drop = (bucket >> BITS) as u32 - 1;
        let within = (bucket % (1 << BITS)) as u64;
        (1 << (drop + BITS)) + (within << drop) + (1 << drop) / 2
    }

    /// Counts one latency.
    pub fn add(&mut self, ns: u64) {
        self.counts[Histogram::bucket(ns)] += 1;
        self.total += 1;
    }

    /// Counts all of another's.
    pub fn merge(&mut self, other: &Histogram) {
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a += b;
        }
        self.total += other.total;
    }

    /// The latency below which a share lies, given in millionths of a percent; the middle of its
    /// bucket. `None` if nothing was counted.
    pub fn percentile(&self, share: u64) -> Option<u64> {
        let mut sum = 0u128;
        for (bucket, n) in self.counts.iter().enumerate() {
            sum += u128::from(*n);
            if self.total > 0 && sum * 100_000_000 >= u128::from(share) * u128::from(self.total) {
                return Some(Histogram::middle(bucket));
            }
        }
        None
    }

    /// Buckets that are not empty: their middle and their count.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.counts.iter().enumerate();
        all.filter(|(_, n)| **n > 0).map(|(b, n)| (Histogram::middle(b), *n))
    }
}

/// Latencies of one kind, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// How many.
    pub count: u64,
    /// Shortest; 0 if none.
    pub min: u64,
    /// Longest.
    pub max: u64,
    sum: u128,
    squares: u128,
    /// All of them.
    pub histogram: Histogram,
}

impl Stat {
    /// Counts one.
    pub fn add(&mut self, ns: u64) {
        self.min = if self.count == 0 { ns } else { self.min.min(ns) };
        self.max = self.max.max(ns);
        self.count += 1;
        self.sum += u128::from(ns);
        self.squares += u128::from(ns) * u128::from(ns);
        self.histogram.add(ns);
    }

    /// Counts all of another's.
    pub fn merge(&mut self, other: &Stat) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.histogram.merge(&other.histogram);
    }

    /// The latency below which a share lies, given in millionths of a percent; 0 if none.
    pub fn percentile(&self, share: u64) -> u64 {
        // The middle of a bucket may be beyond all that is in it.
        self.histogram.percentile(share).unwrap_or(0).clamp(self.min, self.max)
    }

    /// All of them together, at most `u64::MAX`.
    pub fn sum(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }

    /// Their mean; 0 if none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Their deviation from the mean (of a sample: divided by one less).
    pub fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = u128::from(self.count);
        // n * squares - sum^2 in whole numbers: no cancellation.
        let spread =
            n.saturating_mul(self.squares).saturating_sub(self.sum.saturating_mul(self.sum));
        (spread as f64 / n as f64 / (n - 1) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_middle() {
        for bucket in 0..BUCKETS {
            assert_eq!(Histogram::bucket(Histogram::middle(bucket)), bucket);
        }
        assert_eq!(Histogram::bucket(u64::MAX), BUCKETS - 1);
        // Known pairs from fio's reports: 6319 ns is shown as 6304.
        assert_eq!(Histogram::middle(Histogram::bucket(6319)), 6304);
    }

    #[test]
    fn means_deviations_and_percentiles_of_parts_are_those_of_the_whole() {
        let mut whole = Stat::default();
        let mut parts = [Stat::default(), Stat::default()];
        for i in 0..1000u64 {
            whole.add(i * i);
            parts[(i % 2) as usize].add(i * i);
        }
        let [mut a, b] = parts;
        a.merge(&b);
        a.merge(&Stat::default());
        assert_eq!(a, whole);
        assert!((whole.mean() - 332_833.5).abs() < 1e-6);
        let far = |i: u64| ((i * i) as f64 - whole.mean()).powi(2);
        let want = ((0..1000).map(far).sum::<f64>() / 999.0).sqrt();
        assert!((whole.deviation() - want).abs() < 1e-3, "{} {want}", whole.deviation());
        assert_eq!(
            whole.histogram.percentile(100_000_000),
            whole.histogram.bins().last().map(|b| b.0)
        );
    }
}
