//! The Mersenne Twister of 64 bits (Nishimura 2000), which gives MobiBench its order of records.

/// Words of its state.
const WORDS: usize = 312;
/// How far apart the words are that are mixed.
const APART: usize = 156;
/// Word to be mixed in where the lowest bit is set.
const TWIST: u64 = 0xb502_6f5a_a966_19e9;
/// The upper 33 bits.
const UPPER: u64 = !0x7fff_ffff;

/// The generator.
pub(super) struct Twister {
    state: [u64; WORDS],
    next: usize,
}

impl Twister {
    fn from_word(seed: u64) -> Twister {
        let mut state = [seed; WORDS];
        for i in 1..WORDS {
            state[i] = mixed(state[i - 1]).wrapping_mul(6_364_136_223_846_793_005);
            state[i] = state[i].wrapping_add(i as u64);
        }
        Twister { state, next: WORDS }
    }

    /// Seeded with a key of several words, which is not empty.
    pub(super) fn new(key: &[u64]) -> Twister {
        let mut t = Twister::from_word(19_650_218);
        let s = &mut t.state;
        let mut i = 1;
        let step = |s: &mut [u64; WORDS], i: &mut usize| {
            *i += 1;
            if *i == WORDS {
                s[0] = s[WORDS - 1];
                *i = 1;
            }
        };
        for round in 0..WORDS.max(key.len()) {
            let j = round % key.len();
            let word = s[i] ^ mixed(s[i - 1]).wrapping_mul(3_935_559_000_370_003_845);
            s[i] = word.wrapping_add(key[j]).wrapping_add(j as u64);
            step(s, &mut i);
        }
        for _ in 1..WORDS {
            let word = s[i] ^ mixed(s[i - 1]).wrapping_mul(2_862_933_555_777_941_757);
            s[i] = word.wrapping_sub(i as u64);
            step(s, &mut i);
        }
        s[0] = 1 << 63;
        t
    }

    fn refill(&mut self) {
        for i in 0..WORDS {
            let word = self.state[i] & UPPER | self.state[(i + 1) % WORDS] & !UPPER;
            let twist = if word & 1 == 1 { TWIST } else { 0 };
            self.state[i] = self.state[(i + APART) % WORDS] ^ word >> 1 ^ twist;
        }
        self.next = 0;
    }

    /// The next number.
    pub(super) fn next_u64(&mut self) -> u64 {
        if self.next == WORDS {
            self.refill();
        }
        let mut x = self.state[self.next];
        self.next += 1;
        x ^= x >> 29 & 0x5555_5555_5555_5555;
        x ^= x << 17 & 0x71d6_7fff_eda6_0000;
        x ^= x << 37 & 0xfff7_eee0_0000_0000;
        x ^ x >> 43
    }
}

fn mixed(word: u64) -> u64 {
    word ^ word >> 62
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of `mt19937-64.out.txt`, which its authors publish.
    #[test]
    fn it_gives_the_published_numbers() {
        let mut t = Twister::new(&[0x12345, 0x23456, 0x34567, 0x45678]);
        let first: Vec<u64> = (0..5).map(|_| t.next_u64()).collect();
        let published = [
            7_266_447_313_870_364_031,
            4_946_485_549_665_804_864,
            16_945_909_448_695_747_420,
            16_394_063_075_524_226_720,
            4_873_882_236_456_199_058,
        ];
        assert_eq!(first, published);
        // Beyond the first refill; the thousandth number of that file.
        let thousandth = (5..1000).map(|_| t.next_u64()).last();
        assert_eq!(thousandth, Some(994_412_663_058_993_407));
    }
}
