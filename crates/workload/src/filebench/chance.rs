//! Where filebench's numbers come from, and the distributions that it makes of them.
//!
//! Picture:    [`Chance`] -> uniform numbers -> [`Drawn`] (`randvar`, `cvar`) -> a size, a count.
//!             filebench 1.5 has three generators: Matsumoto and Nishimura's Mersenne Twister
//!             (picks at the start, offsets, lengths of appends), `drand48` (gamma), and C's `rand`
//!             (is a file there at the start?). It seeds none of them: its runs begin with the same
//!             numbers every time. [`Chance::own`] begins so too; [`Chance::seeded`] does not.
//! Left out:   what filebench seeds from the machine: all `cvar` but gamma. Ours are seeded.
//! Source:     ACM TOMACS 8 (1998) 1, with the seeding of that paper; POSIX `drand48`; the additive
//!             feedback generator of the C library; Knuth, vol. 2, 3.4.1, for gamma (algorithm A
//!             and exercise 16).

use wp_base::rng::{Rng, mix64};

use super::math::{exp, ln, pow, tan};

/// Largest number of C's `rand`.
pub(super) const RAND_MAX: u64 = (1 << 31) - 1;
/// 2^48.
const TWO_48: f64 = (1u64 << 48) as f64;

const MT_WORDS: usize = 624;
const MT_OFFSET: usize = 397;

/// The Mersenne Twister of 32 bits.
struct Twister {
    words: Vec<u32>,
    next: usize,
}

impl Twister {
    /// As its authors seeded it first.
    fn new(seed: u32) -> Twister {
        let first = std::iter::successors(Some(seed), |w| Some(w.wrapping_mul(69_069)));
        Twister { words: first.take(MT_WORDS).collect(), next: MT_WORDS }
    }

    fn refill(&mut self) {
        for i in 0..MT_WORDS {
            let (next, far) = ((i + 1) % MT_WORDS, (i + MT_OFFSET) % MT_WORDS);
            let y = self.words[i] & 0x8000_0000 | self.words[next] & 0x7fff_ffff;
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.words[i] = self.words[far] ^ y >> 1 ^ odd;
        }
        self.next = 0;
    }

    fn u32(&mut self) -> u32 {
        if self.next == MT_WORDS {
            self.refill();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    /// The first number drawn is its upper half.
    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }
}

/// C's `rand`, not seeded.
struct LibraryRand {
    /// The last 31 numbers, the oldest at `at`.
    last: [u32; 31],
    at: usize,
}

impl LibraryRand {
    fn new() -> LibraryRand {
        let mut last = [1u32; 31];
        for i in 1..31 {
            last[i] = (u64::from(last[i - 1]) * 16_807 % RAND_MAX) as u32;
        }
        // The table's fourth number is the first to be added to; the first 310 sums are not given
        // out.
        let mut rand = LibraryRand { last, at: 3 };
        for _ in 0..310 {
            rand.next();
        }
        rand
    }

    fn next(&mut self) -> u32 {
        let behind = (self.at + 31 - 3) % 31;
        self.last[self.at] = self.last[self.at].wrapping_add(self.last[behind]);
        let n = self.last[self.at] >> 1;
        self.at = (self.at + 1) % 31;
        n
    }
}

/// One step of `drand48`'s generator.
fn step48(state: u64) -> u64 {
    state.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & ((1 << 48) - 1)
}

/// filebench's generators, as they stand at its start.
struct Own {
    twister: Twister,
    rand: LibraryRand,
    state48: u64,
    /// For what filebench would seed from the machine.
    other: Rng,
}

enum Source {
    Seeded(Rng),
    Own(Box<Own>),
}

/// A source of numbers.
pub(super) struct Chance(Source);

impl Chance {
    /// Numbers of this seed and stream.
    pub(super) fn seeded(seed: u64, stream: &str) -> Chance {
        Chance(Source::Seeded(Rng::stream(seed, stream)))
    }

    /// filebench's own. The seed is for what filebench seeds itself.
    pub(super) fn own(seed: u64) -> Chance {
        Chance(Source::Own(Box::new(Own {
            twister: Twister::new(4357),
            rand: LibraryRand::new(),
            state48: 0,
            other: Rng::stream(seed, "filebench cvar"),
        })))
    }

    /// 64 bits.
    fn u64(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seeded(rng) => rng.next_u64(),
            Source::Own(own) => own.twister.u64(),
        }
    }

    /// C's `rand`: up to [`RAND_MAX`].
    pub(super) fn rand(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seeded(rng) => rng.next_u64() >> 33,
            Source::Own(own) => own.rand.next().into(),
        }
    }

    /// `drand48`: from 0 to 1, without 1.
    fn unit48(&mut self) -> f64 {
        match &mut self.0 {
            Source::Seeded(rng) => (rng.next_u64() >> 16) as f64 / TWO_48,
            Source::Own(own) => {
                own.state48 = step48(own.state48);
                own.state48 as f64 / TWO_48
            }
        }
    }

    /// `erand48` on `state`.
    fn unit48_of(&mut self, state: &mut u64) -> f64 {
        match &mut self.0 {
            Source::Seeded(_) => self.unit48(),
            Source::Own(_) => {
                *state = step48(*state);
                *state as f64 / TWO_48
            }
        }
    }

    /// From 0 to 1, without 1, in steps of 2^-32.
    fn unit32(&mut self) -> f64 {
        let bits = match &mut self.0 {
            Source::Seeded(rng) => rng.next_u64(),
            Source::Own(own) => own.other.next_u64(),
        };
        (bits >> 32) as f64 / (1u64 << 32) as f64
    }

    /// filebench's uniform number: up to `most` less `step`, in steps of `step` unless that is 0.
    /// `step` is at most `most`.
    pub(super) fn below(&mut self, most: u64, step: u64) -> u64 {
        let range = most.saturating_sub(step);
        let n = (self.u64() as f64 / u64::MAX as f64 * range as f64) as u64;
        n.checked_div(step).map_or(n, |steps| steps * step)
    }
}

/// Knuth's gamma variate of this shape and scale; `unit` gives uniform numbers.
fn knuth(shape: f64, scale: f64, mut unit: impl FnMut() -> f64) -> f64 {
    if shape <= 1.0 {
        let p = std::f64::consts::E / (shape + std::f64::consts::E);
        loop {
            let u = unit();
            let v = loop {
                let v = unit();
                if v > 0.0 {
                    break v;
                }
            };
            let (x, q) = if u < p {
                let x = pow(v, 1.0 / shape);
                (x, exp(-x))
            } else {
                let x = 1.0 - ln(v);
                (x, pow(x, shape - 1.0))
            };
            if unit() < q {
                return scale * x;
            }
        }
    }
    let root = (2.0 * shape - 1.0).sqrt();
    loop {
        let y = tan(std::f64::consts::PI * unit());
        let x = root * y + shape - 1.0;
        if x <= 0.0 {
            continue;
        }
        let v = unit();
        if v <= (1.0 + y * y) * exp((shape - 1.0) * ln(x / (shape - 1.0)) - root * y) {
            return scale * x;
        }
    }
}

/// A gamma variate of this mean and shape, of `drand48`'s numbers.
pub(super) fn gamma(chance: &mut Chance, mean: f64, shape: f64) -> f64 {
    knuth(shape, mean / shape, || chance.unit48())
}

/// Kinds of `randvar`.
#[derive(Clone, PartialEq, Debug)]
pub enum RandKind {
    /// `uniform`.
    Uniform,
    /// `gamma`, of this shape.
    Gamma(f64),
    /// `tabular`: base and width of each percent, for a least of 0 and a mean of 1.
    Table(Vec<(f64, f64)>),
}

/// `cvar` types, with their parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
#[expect(missing_docs, reason = "named as filebench's parameters are")]
pub enum CustomKind {
    Erlang { shape: u32, rate: f64 },
    Exponential { mean: f64 },
    Gamma { mean: f64, gamma: f64 },
    LogNormal { shape: f64, scale: f64 },
    Normal { mean: f64, sigma: f64 },
    Triangular { lower: f64, upper: f64, mode: f64 },
    Uniform { lower: f64, upper: f64 },
    Weibull { shape: f64, scale: f64 },
}

/// A variable that is drawn each time it is asked for.
#[derive(Clone, PartialEq, Debug)]
pub enum Drawn {
    /// `randvar`.
    Random {
        /// Its kind.
        kind: RandKind,
        /// Mean.
        mean: f64,
        /// Least.
        min: f64,
        /// Rounded to multiples of this; 0: not.
        round: f64,
        /// Seed of its own `rand48`; `None`: the Twister's numbers (`randsrc=urandom`).
        seed: Option<u64>,
    },
    /// `cvar`.
    Custom {
        /// Its type.
        kind: CustomKind,
        /// Least.
        min: f64,
        /// Most.
        max: f64,
        /// Rounded to multiples of this; 0: not.
        round: u64,
    },
}

impl Drawn {
    /// Its mean, where filebench asks for that of a `randvar`.
    pub(super) fn mean(&self) -> Option<f64> {
        match self {
            Drawn::Random { mean, .. } => Some(*mean),
            Drawn::Custom { .. } => None,
        }
    }

    /// The state of its own generator at the start.
    pub(super) fn state(&self) -> u64 {
        match self {
            Drawn::Random { seed, .. } => seed.unwrap_or(0) & ((1 << 48) - 1),
            Drawn::Custom { .. } => 0,
        }
    }

    /// The next number. `state` is this variable's; `mean_now` stands for its mean if given.
    pub(super) fn draw(&self, chance: &mut Chance, state: &mut u64, mean_now: Option<f64>) -> f64 {
        match self {
            Drawn::Random { kind, mean, min, round, seed } => {
                let mean = mean_now.unwrap_or(*mean);
                let mut unit = || match seed {
                    Some(_) => chance.unit48_of(state),
                    // Twice through floating point, as in filebench.
                    None => chance.below(u64::MAX, 0) as f64 / u64::MAX as f64,
                };
                let n = match kind {
                    RandKind::Uniform => unit() * 2.0 * (mean - min) + min,
                    RandKind::Gamma(shape) => knuth(*shape, (mean - min) / shape, unit) + min,
                    RandKind::Table(rows) => {
                        let at = unit() * rows.len() as f64;
                        let (base, width) = rows.get(at as usize).copied().unwrap_or_default();
                        (base + width * (at - at.floor())) * (mean - min) + min
                    }
                };
                if *round == 0.0 { n } else { (n / round).round() * round }
            }
            Drawn::Custom { kind, min, max, round } => {
                let mut n = kind.draw(chance);
                if *round > 0 {
                    let whole = n as u64;
                    let lower = whole - whole % round;
                    let upper = lower.saturating_add(*round);
                    n = if whole - lower > upper - whole { upper } else { lower } as f64;
                }
                n.max(*min).min(*max)
            }
        }
    }
}

impl CustomKind {
    fn draw(self, chance: &mut Chance) -> f64 {
        // Uniform without 0, of which there is no logarithm.
        let mut open = || loop {
            let u = chance.unit32();
            if u > 0.0 {
                break u;
            }
        };
        match self {
            CustomKind::Gamma { mean, gamma: shape } => gamma(chance, mean, shape),
            CustomKind::Erlang { shape, rate } => {
                let order = shape.max(1);
                -rate * (0..order).map(|_| ln(open())).sum::<f64>() / f64::from(order)
            }
            CustomKind::Exponential { mean } => -mean * ln(open()),
            CustomKind::LogNormal { shape, scale } => exp(normal(chance, scale, shape)),
            CustomKind::Normal { mean, sigma } => normal(chance, mean, sigma),
            CustomKind::Triangular { lower, upper, mode } => {
                let (u, width) = (chance.unit32(), upper - lower);
                let top = (mode - lower) / width;
                let at = if u <= top {
                    (top * u).sqrt()
                } else {
                    1.0 - ((1.0 - top) * (1.0 - u)).sqrt()
                };
                lower + width * at
            }
            CustomKind::Uniform { lower, upper } => lower + chance.unit32() * (upper - lower),
            CustomKind::Weibull { shape, scale } => {
                let u = open();
                scale * exp(ln(-ln(u)) / shape)
            }
        }
    }
}

/// Marsaglia's polar method.
fn normal(chance: &mut Chance, mean: f64, sigma: f64) -> f64 {
    loop {
        let (x, y) = (2.0 * chance.unit32() - 1.0, 2.0 * chance.unit32() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square <= 1.0 {
            return mean + sigma * x * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

/// A stream of its own for each thread.
pub(super) fn of_thread(seed: u64, number: u32) -> Chance {
    Chance::seeded(mix64(seed ^ u64::from(number)), "filebench thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generators_are_the_published_ones() {
        // Printed by the library that filebench is built with, not seeded.
        let mut twister = Twister::new(4357);
        assert_eq!(
            [0; 2].map(|_| twister.u64()),
            [15_077_078_441_692_132_482, 9_414_376_495_862_522_890]
        );
        let last = (0..2001).map(|_| twister.u64()).last();
        assert_eq!(last, Some(1_396_774_290_333_592_083));
        // `rand` without `srand`, as every program on glibc has it.
        let mut rand = LibraryRand::new();
        assert_eq!(
            [0; 4].map(|_| rand.next()),
            [1_804_289_383, 846_930_886, 1_681_692_777, 1_714_636_915]
        );
        // `drand48` without a seed.
        let mut chance = Chance::own(0);
        assert!((chance.unit48() - 3.907_985_046_680_551e-14).abs() < 1e-27);
        assert!((chance.unit48() - 0.000_985_394_674_650_308_4).abs() < 1e-17);
    }

    #[test]
    fn gamma_has_its_mean_variance_and_median() {
        for mut chance in [Chance::own(0), Chance::seeded(1, "gamma")] {
            let (mean, shape, n) = (16_384.0, 1.5, 40_000);
            let mut all: Vec<f64> = (0..n).map(|_| gamma(&mut chance, mean, shape)).collect();
            let found = all.iter().sum::<f64>() / f64::from(n);
            assert!((found / mean - 1.0).abs() < 0.02, "mean {found}");
            let squares: f64 = all.iter().map(|x| (x - found) * (x - found)).sum();
            let variance = squares / f64::from(n) / (mean * mean / shape);
            assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
            all.sort_by(f64::total_cmp);
            // Median of shape 1.5: 1.18299 / 1.5 of the mean.
            let median = all[n as usize / 2] / mean;
            assert!((median - 0.7887).abs() < 0.02, "median {median}");
        }
    }

    fn mean_of(drawn: &Drawn) -> f64 {
        let (mut chance, mut state) = (Chance::seeded(5, "means"), drawn.state());
        let n = 20_000;
        (0..n).map(|_| drawn.draw(&mut chance, &mut state, None)).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn variables_have_the_means_of_their_distributions() {
        let custom = |kind| Drawn::Custom { kind, min: -1e9, max: 1e9, round: 0 };
        for (kind, mean) in [
            (CustomKind::Erlang { shape: 3, rate: 12.0 }, 12.0),
            (CustomKind::Exponential { mean: 7.0 }, 7.0),
            (CustomKind::Gamma { mean: 5.0, gamma: 0.5 }, 5.0),
            // e^(1 + 0.5^2/2).
            (CustomKind::LogNormal { shape: 0.5, scale: 1.0 }, 3.0802),
            (CustomKind::Normal { mean: 3.0, sigma: 1.0 }, 3.0),
            (CustomKind::Triangular { lower: 0.0, upper: 9.0, mode: 3.0 }, 4.0),
            (CustomKind::Uniform { lower: 2.0, upper: 4.0 }, 3.0),
            // 2 Gamma(1.5).
            (CustomKind::Weibull { shape: 2.0, scale: 2.0 }, 1.77245),
        ] {
            let found = mean_of(&custom(kind));
            assert!((found / mean - 1.0).abs() < 0.03, "{kind:?}: {found}");
        }
        let rows: Vec<(f64, f64)> = (0..100).map(|i| (f64::from(i) / 50.0, 0.02)).collect();
        for kind in [RandKind::Uniform, RandKind::Gamma(1.5), RandKind::Table(rows)] {
            let drawn = Drawn::Random { kind, mean: 100.0, min: 20.0, round: 0.0, seed: Some(9) };
            let found = mean_of(&drawn);
            assert!((found / 100.0 - 1.0).abs() < 0.03, "{drawn:?}: {found}");
        }
    }

    #[test]
    fn rounding_and_limits_are_those_of_filebench() {
        let kind = CustomKind::Uniform { lower: 5.0, upper: 6.0 };
        let mut chance = Chance::seeded(1, "x");
        let mut draw = |d: Drawn| d.draw(&mut chance, &mut 0, None);
        assert_eq!(draw(Drawn::Custom { kind, min: 0.0, max: 1e9, round: 4 }), 4.0);
        assert_eq!(draw(Drawn::Custom { kind, min: 100.0, max: 200.0, round: 0 }), 100.0);
        assert_eq!(draw(Drawn::Custom { kind, min: 0.0, max: 2.0, round: 0 }), 2.0);
        let mut own = Chance::own(0);
        // Offsets of personality randomwrite in a file of 8 MiB, seen with strace: for each write,
        // a place in the thread's memory is drawn, and then one in the file.
        let offsets = [0; 6].map(|_| {
            own.below(5 << 20, 8192);
            own.below(8 << 20, 8192)
        });
        assert_eq!(offsets, [4_276_224, 5_242_880, 8_216_576, 3_719_168, 3_088_384, 7_553_024]);
        assert!((0..1000).all(|_| own.below(16_384, 1) < 16_384));
        assert!((0..1000).all(|_| own.below(65_536, 4096).is_multiple_of(4096)));
    }
}
