//! Permutations of `0..size` that are computed, both ways, instead of stored.
//!
//! Picture:    four rounds of (add a key, multiply by an odd number, xor the upper half into the
//!             lower), each a bijection of the next power of two; what falls beyond `size` goes
//!             round again until it does not (cycle walking), twice in the mean at most.
//! Left out:   strength against an adversary.

use wp_base::rng::mix64;

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Shuffle {
    size: u32,
    mask: u32,
    /// At least half of the bits, so that the xor is its own inverse.
    shift: u32,
    keys: [u32; 2],
}

const ODD: [u32; 4] = [0x9E37_79B1, 0x85EB_CA6B, 0xC2B2_AE35, 0x27D4_EB2F];
const INVERSE: [u32; 4] = {
    let mut all = ODD;
    let mut i = 0;
    while i < 4 {
        // Newton: every step doubles the bits that are right, of which 3 are to begin with.
        let mut inverse = ODD[i];
        let mut step = 0;
        while step < 4 {
            inverse = inverse.wrapping_mul(2u32.wrapping_sub(ODD[i].wrapping_mul(inverse)));
            step += 1;
        }
        assert!(inverse.wrapping_mul(ODD[i]) == 1);
        all[i] = inverse;
        i += 1;
    }
    all
};

impl Shuffle {
    /// The permutation number `number` of `0..size` (at least one) of the world `seed`.
    pub(crate) fn new(size: u32, seed: u64, number: u64) -> Shuffle {
        let bits = u32::BITS - (size - 1).leading_zeros();
        let key = mix64(mix64(seed).wrapping_add(number));
        Shuffle {
            size,
            mask: u32::MAX.checked_shr(u32::BITS - bits).unwrap_or(0),
            shift: bits.div_ceil(2).max(1),
            keys: [key as u32, (key >> 32) as u32],
        }
    }

    /// Where `x` goes.
    pub(crate) fn of(&self, x: u32) -> u32 {
        let mut x = x;
        loop {
            for (round, odd) in ODD.into_iter().enumerate() {
                x = x.wrapping_add(self.keys[round & 1]).wrapping_mul(odd) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.size {
                return x;
            }
        }
    }

    /// What goes to `y`.
    pub(crate) fn from(&self, y: u32) -> u32 {
        let mut y = y;
        loop {
            for (round, inverse) in INVERSE.into_iter().enumerate().rev() {
                y ^= y >> self.shift;
                y = y.wrapping_mul(inverse).wrapping_sub(self.keys[round & 1]) & self.mask;
            }
            if y < self.size {
                return y;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_goes_somewhere_else_and_back() {
        for size in (1..200).chain([1000, 4096, 5000, 65_536, 100_003]) {
            for number in 0..3 {
                let shuffle = Shuffle::new(size, 7, number);
                let mut seen = vec![false; size as usize];
                for x in 0..size {
                    let y = shuffle.of(x);
                    assert_eq!(shuffle.from(y), x);
                    assert!(!std::mem::replace(&mut seen[y as usize], true));
                }
            }
        }
        let large = Shuffle::new(u32::MAX, 1, 1);
        assert_eq!(large.from(large.of(u32::MAX - 1)), u32::MAX - 1);
    }

    #[test]
    fn neighbours_are_scattered() {
        // Into 64 parts of equal size go about as many of any stretch.
        let (size, parts) = (100_003u32, 64);
        for number in 0..20 {
            let shuffle = Shuffle::new(size, 3, number);
            let mut counts = [0u32; 64];
            (5000..11_400)
                .for_each(|x| counts[(shuffle.of(x) / size.div_ceil(parts)) as usize] += 1);
            // 100 each; chi-squared with 63 degrees of freedom is below 110 in 9998 of 10000.
            let chi: u32 = counts.iter().map(|n| n.abs_diff(100).pow(2)).sum::<u32>() / 100;
            assert!(chi < 130, "{number}: {chi}");
            let neighbours = (0..size - 1).filter(|x| shuffle.of(x + 1) == shuffle.of(*x) + 1);
            assert!(neighbours.count() < 30);
        }
    }
}
