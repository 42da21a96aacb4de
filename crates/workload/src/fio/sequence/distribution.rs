//! `random_distribution`: places that are not equally likely.
//!
//! - zipf: J. Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994;
//!   pareto: a power of a uniform number; normal: the mean of twelve uniform numbers (manual, and
//!   fio's `fio-genzipf`). What is popular is spread over the file by a product with the golden
//!   ratio of 64 bits, which was observed;
//! - zoned, zoned_abs: a number from 1 to 100 of stream 16 chooses a part of the file, and the
//!   offset is uniform within it. Observed, and the same as fio's to the operation;
//! - observed: none of them keeps a random map.
//!
//! Left out: the seeds of fio's zipf, pareto and normal streams, which depend on the file's name in
//!           a way that was not found. The places are as popular, and others.

use crate::filebench::math::{ln, pow};
use crate::fio::job::{Distribution, Job};
use crate::fio::random::Taus;

/// The golden ratio as a fraction of 2^64.
const GOLDEN_RATIO: u64 = 0x61C8_8646_80B5_83EB;
/// Terms of the zeta sum beyond which fio does not go.
const ZETA_TERMS: u64 = 10_000_000;

/// Places of one file, counted in its smallest blocks.
#[derive(Clone, Debug)]
pub struct Popular {
    kind: Distribution,
    blocks: u64,
    /// Where the most popular block is.
    center: u64,
    stream: Taus,
    /// Of zipf: the sum over all ranks, and over the first two.
    zeta: [f64; 2],
}

impl Popular {
    /// Of a file of some blocks; `None`: the job's offsets are uniform, or by zones.
    pub fn new(job: &Job, path: &str, blocks: u64) -> Option<Popular> {
        let (kind, center) = match &job.distribution {
            Distribution::Random | Distribution::Zoned(_) => return None,
            kind => (kind.clone(), job.distribution_center),
        };
        let name = path.bytes().fold(0u64, |h, b| wp_base::rng::mix64(h ^ u64::from(b)));
        let seed = (name ^ job.seed).wrapping_mul(u64::from(job.thread_number));
        let mut stream = Taus::new(seed, false);
        let blocks = blocks.max(1);
        // A center is a millionth share of the file.
        let center = match center {
            Some(share) => (u128::from(blocks) * u128::from(share) / 1_000_000) as u64,
            None => stream.next() % blocks,
        };
        let zeta = match kind {
            Distribution::Zipf(theta) => {
                let theta = theta as f64 / 1e6;
                let sum = |n: u64| (1..=n).map(|i| pow(1.0 / i as f64, theta)).sum();
                [sum(blocks.min(ZETA_TERMS)), sum(2)]
            }
            _ => [0.0; 2],
        };
        Some(Popular { kind, blocks, center, stream, zeta })
    }

    /// The next block.
    pub fn next(&mut self) -> u64 {
        let n = self.blocks as f64;
        let uniform = |stream: &mut Taus| stream.next() as f64 / f64::from(u32::MAX);
        let rank = match self.kind {
            Distribution::Zipf(theta) => {
                let theta = theta as f64 / 1e6;
                let u = uniform(&mut self.stream);
                let z = u * self.zeta[0];
                if z < 1.0 {
                    0
                } else if z < self.zeta[1] {
                    1
                } else {
                    let eta =
                        (1.0 - pow(2.0 / n, 1.0 - theta)) / (1.0 - self.zeta[1] / self.zeta[0]);
                    (n * pow((eta * u - eta + 1.0).max(f64::MIN_POSITIVE), 1.0 / (1.0 - theta)))
                        as u64
                }
            }
            Distribution::Pareto(h) => {
                let h = h as f64 / 1e6;
                let power = ln(h) / ln(1.0 - h);
                let u = uniform(&mut self.stream).max(f64::MIN_POSITIVE);
                ((n - 1.0) * pow(u, power)) as u64
            }
            Distribution::Normal(deviation) => self.normal(deviation),
            Distribution::Random | Distribution::Zoned(_) => 0,
        };
        rank.wrapping_mul(GOLDEN_RATIO).wrapping_add(self.center) % self.blocks
    }

    /// The mean of twelve numbers, moved by up to half of `deviation` millionths of a percent.
    fn normal(&mut self, deviation: u64) -> u64 {
        let sum: u64 = (0..12).map(|_| self.stream.scaled(self.blocks)).sum();
        let spread = u128::from(self.blocks) * u128::from(deviation) / 100_000_000;
        let spread = (spread as u64).min(self.blocks / 2);
        let moved = (sum / 12 + self.stream.scaled(spread.max(1))).saturating_sub(spread / 2);
        moved.min(self.blocks - 1)
    }
}

/// The part of `span` bytes that a number from 1 to 100 chooses: its first byte, and its end.
pub fn zone(zones: &[Zone], drawn: u64, span: u64) -> (u64, u64) {
    let mut sum = 0;
    let mut from = 0;
    for z in zones {
        sum += z.percent;
        let end = match z.until {
            Until::Percent(100) => span,
            Until::Percent(p) => (u128::from(span) * u128::from(p) / 100) as u64,
            Until::Byte(at) => at.min(span),
        };
        if drawn <= sum {
            return (from, end.max(from));
        }
        from = end;
    }
    (0, span)
}

/// A part of the file, and how many of all operations go there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Of all operations.
    pub percent: u64,
    /// Where it ends.
    pub until: Until,
}

/// Where a zone ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// At this percentage of the file (`zoned`).
    Percent(u64),
    /// At this byte of the file (`zoned_abs`).
    Byte(u64),
}
