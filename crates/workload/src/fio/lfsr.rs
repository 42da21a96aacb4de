//! The shift register of `random_generator=lfsr`: every number below a bound once.
//!
//! Where each fact comes from:
//! - manual, `random_generator`: the register never gives an offset twice;
//! - Xilinx XAPP 052 (P. Alfke, "Efficient Shift Registers, LFSR Counters, and Long Pseudo-Random
//!   Sequence Generators"): registers with XNOR feedback, whose forbidden state is all ones, and
//!   feedback taps of maximal length;
//! - observed with `--write_iolog` for 3 to 41 bits: of two neighbours in a log of a range of
//!   `2^k - 1` blocks the second is the first, complemented, shifted right and complemented again,
//!   with [`TAPS`] exclusive-ored in when a one falls out (Galois' form). The taps are those of
//!   the note but for 32 bits, where the observed ones are used;
//! - observed: the shortest register that has more states than there are blocks is taken, numbers
//!   beyond the range are stepped over, the register begins at the low bits of the seed of the
//!   offsets, and one step more is made before the first round than before later ones.

/// Positions of the taps, from 1, for registers of 3 bits and more.
const TAPS: [&[u32]; 39] = [
    &[3, 2],
    &[4, 3],
    &[5, 3],
    &[6, 5],
    &[7, 6],
    &[8, 6, 5, 4],
    &[9, 5],
    &[10, 7],
    &[11, 9],
    &[12, 6, 4, 1],
    &[13, 4, 3, 1],
    &[14, 5, 3, 1],
    &[15, 14],
    &[16, 15, 13, 4],
    &[17, 14],
    &[18, 11],
    &[19, 6, 2, 1],
    &[20, 17],
    &[21, 19],
    &[22, 21],
    &[23, 18],
    &[24, 23, 22, 17],
    &[25, 22],
    &[26, 6, 2, 1],
    &[27, 5, 2, 1],
    &[28, 25],
    &[29, 27],
    &[30, 6, 4, 1],
    &[31, 28],
    &[32, 31, 29, 1],
    &[33, 20],
    &[34, 27, 2, 1],
    &[35, 33],
    &[36, 25],
    &[37, 5, 4, 3, 2, 1],
    &[38, 6, 5, 1],
    &[39, 35],
    &[40, 38, 21, 19],
    &[41, 38],
];

/// A register over `0..count`.
#[derive(Clone, Debug)]
pub struct Lfsr {
    count: u64,
    ones: u64,
    feedback: u64,
    /// The state, complemented: never 0.
    inverse: u64,
    /// Where this round ends; `None` before its first number.
    first: Option<u64>,
    over: bool,
}

impl Lfsr {
    /// A register for `count` numbers, at the low bits of `seed`. `None` if they are all ones, the
    /// state that leads nowhere, or if no register is long enough.
    pub fn new(count: u64, seed: u64) -> Option<Lfsr> {
        let taps = TAPS.iter().find(|t| (1 << t[0]) > count)?;
        let ones = (1 << taps[0]) - 1;
        let feedback = taps.iter().map(|t| 1 << (t - 1)).sum();
        let mut register = Lfsr { count, ones, feedback, inverse: 0, first: None, over: false };
        if !register.restart(seed) {
            return None;
        }
        register.step();
        Some(register)
    }

    /// Begins a later round; false if `seed` is the state that leads nowhere.
    pub fn restart(&mut self, seed: u64) -> bool {
        (self.first, self.over) = (None, false);
        self.inverse = !seed & self.ones;
        self.inverse != 0
    }

    fn step(&mut self) {
        let falls_out = self.inverse & 1 == 1;
        self.inverse >>= 1;
        if falls_out {
            self.inverse ^= self.feedback;
        }
    }

    /// The next number; `None` when each was given once.
    pub fn next(&mut self) -> Option<u64> {
        if self.over {
            return None;
        }
        loop {
            self.step();
            match self.first {
                None => self.first = Some(self.inverse),
                Some(f) if f == self.inverse => {
                    self.over = true;
                    return None;
                }
                Some(_) => {}
            }
            let number = !self.inverse & self.ones;
            if number < self.count {
                return Some(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_in_every_round() {
        for count in [1, 2, 7, 8, 15, 100, 5000, 70_000] {
            let mut register = Lfsr::new(count, 20).expect("a seed that moves");
            for round in 0..2 {
                let mut all: Vec<u64> = std::iter::from_fn(|| register.next()).collect();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>(), "{count}, round {round}");
                assert!(register.restart(20));
            }
        }
        assert!(Lfsr::new(7, 7).is_none(), "all ones");
    }

    #[test]
    fn taps_are_of_maximal_length() {
        for taps in TAPS.iter().take_while(|t| t[0] <= 20) {
            let mut register = Lfsr::new((1 << taps[0]) - 1, 0).expect("moves");
            let start = register.inverse;
            let mut period = 0u64;
            loop {
                register.step();
                period += 1;
                if register.inverse == start {
                    break;
                }
            }
            assert_eq!(period, (1 << taps[0]) - 1, "{taps:?}");
        }
    }
}
