//! Hashes of names, by which hash trees are ordered.
//!
//! A name has two: the major one orders the tree (bit 0 is always 0, for in an index entry it says
//! that a value goes on), the minor one only readers of a whole directory.
//! Source:     Linux Documentation/filesystems/ext4/directory.rst ("Hash Tree Directories"); MD4:
//!             RFC 1320, of which two words in three are left out here; TEA: Wheeler and Needham,
//!             1994. Checked against `debugfs dx_hash` and by `e2fsck`.

use super::SuperBlock;
use super::htree::hash_version;

/// What a name hashes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHash {
    /// Orders the tree; even.
    pub major: u32,
    /// Orders names with the same `major` when a directory is listed.
    pub minor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Legacy,
    HalfMd4,
    Tea,
}

/// How the names of a directory are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirHash {
    kind: Kind,
    /// Bytes from 0x80 on are negative, as `char` is on x86.
    signed: bool,
    seed: [u32; 4],
}

/// What MD4 starts from; also where the super block has no seed.
const MD4_START: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
/// What the major hash may not be: twice the position that means "end of directory".
const END: u32 = 0xFFFF_FFFE;

impl DirHash {
    /// Of hash version `version` (as a root holds it), with the super block's seed and its sign of
    /// characters. `None`: no version that a directory without encryption has.
    pub fn of(sb: &SuperBlock, version: u8) -> Option<DirHash> {
        let unsigned = sb.flags.get() & SuperBlock::FLAG_UNSIGNED_HASH != 0;
        DirHash::new(version, !unsigned, sb.hash_seed.map(|w| w.get()))
    }

    /// [`DirHash::of`] from its parts.
    pub fn new(version: u8, signed: bool, seed: [u32; 4]) -> Option<DirHash> {
        let kind = match version {
            hash_version::LEGACY => Kind::Legacy,
            hash_version::HALF_MD4 => Kind::HalfMd4,
            hash_version::TEA => Kind::Tea,
            _ => return None,
        };
        let seed = if seed == [0; 4] { MD4_START } else { seed };
        Some(DirHash { kind, signed, seed })
    }

    /// The hash of `name`.
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = match self.kind {
            Kind::Legacy => (self.legacy(name), 0),
            Kind::HalfMd4 => {
                let [_, b, c, _] = self.chained::<8>(name, half_md4);
                (b, c)
            }
            Kind::Tea => {
                let [a, b, ..] = self.chained::<4>(name, tea);
                (a, b)
            }
        };
        let even = major & !1;
        NameHash { major: if even == END { END - 2 } else { even }, minor }
    }

    /// A byte of a name as a word.
    fn word(&self, byte: u8) -> u32 {
        if self.signed { i32::from(byte.cast_signed()).cast_unsigned() } else { byte.into() }
    }

    /// Runs `mix` over the name, `W` words at a time.
    ///
    /// A word holds four bytes, the first one highest. What the name does not fill holds the number
    /// of bytes that were left at the start of these words, in every byte.
    fn chained<const W: usize>(
        &self,
        name: &[u8],
        mix: fn([u32; 4], &[u32; W]) -> [u32; 4],
    ) -> [u32; 4] {
        let mut state = self.seed;
        let mut left = name.len();
        for part in name.chunks(4 * W) {
            let pad = u32::from(u8::try_from(left).expect("a name has at most 255 bytes"));
            let pad = pad * 0x0101_0101;
            let mut words = [pad; W];
            for (word, four) in words.iter_mut().zip(part.chunks(4)) {
                *word = four.iter().fold(pad, |w, b| (w << 8).wrapping_add(self.word(*b)));
            }
            state = mix(state, &words);
            left -= part.len();
        }
        state
    }

    /// The hash of the first hash trees: a linear recurrence of order two.
    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
        for byte in name {
            let next = before.wrapping_add(last ^ self.word(*byte).wrapping_mul(7_152_373));
            // Keep 31 bits.
            let next = if next >> 31 == 1 { next.wrapping_sub(0x7FFF_FFFF) } else { next };
            (before, last) = (last, next);
        }
        last << 1
    }
}

/// One round of MD4 over eight words: `mix` is its function, `add` its constant; `steps` are which
/// word each step takes and by how much it turns.
#[inline(always)]
fn md4_round(
    state: [u32; 4],
    words: &[u32; 8],
    mix: impl Fn(u32, u32, u32) -> u32,
    add: u32,
    steps: [(usize, u32); 8],
) -> [u32; 4] {
    steps.into_iter().fold(state, |[a, b, c, d], (word, turn)| {
        let word = words.get(word).copied().unwrap_or(0);
        let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(word);
        [d, sum.wrapping_add(add).rotate_left(turn), b, c]
    })
}

fn half_md4(state: [u32; 4], words: &[u32; 8]) -> [u32; 4] {
    let steps = [(0, 3), (1, 7), (2, 11), (3, 19), (4, 3), (5, 7), (6, 11), (7, 19)];
    let mixed = md4_round(state, words, |x, y, z| (x & y) | (!x & z), 0, steps);
    let steps = [(1, 3), (3, 5), (5, 9), (7, 13), (0, 3), (2, 5), (4, 9), (6, 13)];
    let mix = |x, y, z| (x & y) | (x & z) | (y & z);
    let mixed = md4_round(mixed, words, mix, 0x5A82_7999, steps);
    let steps = [(3, 3), (7, 9), (2, 11), (6, 15), (1, 3), (5, 9), (0, 11), (4, 15)];
    let [a, b, c, d] = md4_round(mixed, words, |x, y, z| x ^ y ^ z, 0x6ED9_EBA1, steps);
    let [s, t, u, v] = state;
    [s.wrapping_add(a), t.wrapping_add(b), u.wrapping_add(c), v.wrapping_add(d)]
}

/// Sixteen rounds of the Tiny Encryption Algorithm, the words being the key.
fn tea(state: [u32; 4], key: &[u32; 4]) -> [u32; 4] {
    let [first, second, third, fourth] = state;
    let [k0, k1, k2, k3] = *key;
    let half = |v: u32, sum: u32, ka: u32, kb: u32| {
        (v << 4).wrapping_add(ka) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(kb)
    };
    let (mut y, mut z, mut sum) = (first, second, 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        y = y.wrapping_add(half(z, sum, k0, k1));
        z = z.wrapping_add(half(y, sum, k2, k3));
    }
    [first.wrapping_add(y), second.wrapping_add(z), third, fourth]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u32; 4] = [0x3322_1100, 0x7766_5544, 0xBBAA_9988, 0xFFEE_DDCC];

    fn hash(version: u8, signed: bool, seed: [u32; 4], name: &[u8]) -> (u32, u32) {
        let h = DirHash::new(version, signed, seed).expect("a version").hash(name);
        (h.major, h.minor)
    }

    /// From `debugfs -R "dx_hash -h VERSION -s 00112233-4455-6677-8899-aabbccddeeff NAME"` and
    /// without `-s` (e2fsprogs 1.47.0).
    #[test]
    fn names_hash_as_debugfs_says() {
        use hash_version::*;
        let long = "hellö".as_bytes();
        assert_eq!(hash(LEGACY, true, [0; 4], b"hello"), (0x3225_2546, 0));
        assert_eq!(hash(HALF_MD4, true, [0; 4], b"hello"), (0x1746_DA32, 0x4200_13B5));
        assert_eq!(hash(TEA, true, [0; 4], b"hello"), (0x6F5B_B1A8, 0x2319_17C2));
        assert_eq!(hash(LEGACY, true, SEED, long), (0xDE14_66B4, 0));
        assert_eq!(hash(HALF_MD4, true, SEED, long), (0x3390_7476, 0x0F36_A8E4));
        assert_eq!(hash(TEA, true, SEED, long), (0x63AB_98D4, 0x5C45_F9EB));
    }

    #[test]
    fn the_sign_of_characters_matters_from_byte_128_on() {
        for version in [hash_version::LEGACY, hash_version::HALF_MD4, hash_version::TEA] {
            let differ =
                |name: &[u8]| hash(version, true, SEED, name) != hash(version, false, SEED, name);
            assert!(!differ(b"plain letters, and more of them than one pass takes"));
            assert!(differ("hellö".as_bytes()));
        }
        assert!(DirHash::new(hash_version::SIPHASH, true, SEED).is_none());
    }
}
