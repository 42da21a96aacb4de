//! The combined Tausworthe generators of P. L'Ecuyer, as fio seeds them.
//!
//! "Maximally equidistributed combined Tausworthe generators", Mathematics of Computation 65
//! (1996), and "Tables of maximally equidistributed combined LFSR generators", 68 (1999): taus88
//! with 32 bits and LFSR258 with 64. fio's manual names them by their periods, 2^88 and 2^258.
//!
//! How a seed becomes a state was found by looking: the numbers that fio draws
//! (`rw=randread,bs=512,size=2t,norandommap` logs 32 bits of each) are a stream of taus88 begun as
//! here for exactly one of the 2^32 seeds, and that seed is a plain function of the job
//! (`sequence/streams.rs`). The multiplier of the chain of states is the customary 69069.

/// A component: `s` becomes `((s & mask) << d) ^ (((s << a) ^ s) >> b)`.
struct Component<W> {
    a: u32,
    b: u32,
    d: u32,
    mask: W,
}

const fn c32(a: u32, b: u32, d: u32, low: u32) -> Component<u32> {
    Component { a, b, d, mask: u32::MAX << low }
}

const fn c64(a: u32, b: u32, d: u32, low: u32) -> Component<u64> {
    Component { a, b, d, mask: u64::MAX << low }
}

const TAUS88: [Component<u32>; 3] = [c32(13, 19, 12, 1), c32(2, 25, 4, 3), c32(3, 11, 17, 4)];
const LFSR258: [Component<u64>; 5] = [
    c64(1, 53, 10, 1),
    c64(24, 50, 5, 9),
    c64(3, 23, 29, 12),
    c64(5, 24, 23, 17),
    c64(3, 33, 8, 23),
];

/// Values below which a component would degenerate; a smaller seed is raised by as much.
const FLOORS: [u64; 5] = [1, 7, 15, 33, 49];
/// What the first component is seeded from (fio's value).
const FIRST: u64 = 53;
/// Numbers thrown away after seeding.
const WARM_UP: u32 = 6;

/// A stream.
#[derive(Clone, Debug)]
pub enum Taus {
    /// taus88: 32 bits.
    Narrow([u32; 3]),
    /// LFSR258: 64 bits.
    Wide([u64; 5]),
}

impl Taus {
    /// The stream of a seed; a narrow one uses its low 32 bits.
    pub fn new(seed: u64, wide: bool) -> Taus {
        let mut s = if wide {
            let mut state = [0u64; 5];
            let mut last = FIRST;
            for (part, floor) in state.iter_mut().zip(FLOORS) {
                let x = last.wrapping_mul(6_906_969_069) ^ seed;
                last = if x < floor { x + floor } else { x };
                *part = last;
            }
            Taus::Wide(state)
        } else {
            let mut state = [0u32; 3];
            let mut last = FIRST as u32;
            for (part, floor) in state.iter_mut().zip(FLOORS) {
                let x = last.wrapping_mul(69069) ^ seed as u32;
                last = if u64::from(x) < floor { x + floor as u32 } else { x };
                *part = last;
            }
            Taus::Narrow(state)
        };
        for _ in 0..WARM_UP {
            s.next();
        }
        s
    }

    /// The next number, of 32 or 64 bits.
    pub fn next(&mut self) -> u64 {
        match self {
            Taus::Narrow(state) => {
                let mut out = 0;
                for (s, c) in state.iter_mut().zip(&TAUS88) {
                    *s = ((*s & c.mask) << c.d) ^ (((*s << c.a) ^ *s) >> c.b);
                    out ^= *s;
                }
                u64::from(out)
            }
            Taus::Wide(state) => {
                let mut out = 0;
                for (s, c) in state.iter_mut().zip(&LFSR258) {
                    *s = ((*s & c.mask) << c.d) ^ (((*s << c.a) ^ *s) >> c.b);
                    out ^= *s;
                }
                out
            }
        }
    }

    /// The greatest number it gives.
    pub fn max(&self) -> u64 {
        match self {
            Taus::Narrow(_) => u64::from(u32::MAX),
            Taus::Wide(_) => u64::MAX,
        }
    }

    /// The next number scaled to `0..bound`.
    ///
    /// In floating point, because fio's is: conversion, one division by a power of two and one
    /// product, all of them defined to the bit by IEEE 754, so every machine gets the same.
    pub fn scaled(&mut self, bound: u64) -> u64 {
        let top = self.max() as f64 + 1.0;
        // The sum is exact for 32 bits and rounds to 2^64 for 64 bits, as it does in fio.
        (bound as f64 * (self.next() as f64 / top)) as u64
    }

    /// A number from 1 to 100.
    pub fn percent(&mut self) -> u64 {
        1 + self.scaled(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_different_seeds_differ_and_repeat() {
        for wide in [false, true] {
            let take = |seed| {
                let mut t = Taus::new(seed, wide);
                (0..4).map(|_| t.next()).collect::<Vec<_>>()
            };
            assert_eq!(take(1), take(1));
            assert_ne!(take(1), take(2));
        }
    }

    #[test]
    fn percents_reach_both_ends_and_no_further() {
        let mut t = Taus::new(9, false);
        let all: Vec<u64> = (0..5000).map(|_| t.percent()).collect();
        assert_eq!((all.iter().min(), all.iter().max()), (Some(&1), Some(&100)));
    }
}
