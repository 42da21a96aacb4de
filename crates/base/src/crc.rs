//! Checksums with the seeds that the formats use. All are *raw*: no inversion before or after.

/// CRC-32C (Castagnoli) over `bytes`, continuing from `seed`, without the usual final inversion.
///
/// ext4, jbd2 and btrfs seed it with `!0` or with the checksum of a UUID: the kernel's `crc32c()`.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    // The crate inverts before and after; undo both.
    !crc32c::crc32c_append(!seed, bytes)
}

/// Plain CRC-32 (IEEE, little-endian) continuing from `seed`, no inversion: the kernel's
/// `crc32_le()`.
pub fn crc32_le(seed: u32, bytes: &[u8]) -> u32 {
    let mut h = crc32fast::Hasher::new_with_initial(!seed);
    h.update(bytes);
    !h.finalize()
}

/// What a fixed number of bytes does to a CRC-32 that stood before them: with it the checksum of a
/// whole comes from those of its parts ([`crc32_le`] or [`crc32c()`] from 0 on), without their
/// bytes.
///
/// Checksums without inversion are linear: that of `a` and `b` from `seed` on is that of `b` from 0
/// on, plus what as many zeroes make of that of `a` from `seed` on.
pub struct Crc32After([[u32; 256]; 4]);

impl Crc32After {
    /// For parts of `bytes` bytes, with [`crc32_le`].
    pub fn new(bytes: usize) -> Crc32After {
        Crc32After::of(bytes, crc32_le)
    }

    /// For parts of `bytes` bytes, with a checksum of this module that has 32 bits.
    pub fn of(bytes: usize, sum: fn(u32, &[u8]) -> u32) -> Crc32After {
        let zeroes = vec![0; bytes];
        let mut table = [[0; 256]; 4];
        for (n, places) in table.iter_mut().enumerate() {
            for (byte, place) in (0u32..).zip(places.iter_mut()) {
                *place = sum(byte << (8 * n), &zeroes);
            }
        }
        Crc32After(table)
    }

    /// The checksum behind a part whose own is `own`, where that before it is `before`.
    #[inline]
    pub fn join(&self, before: u32, own: u32) -> u32 {
        let bytes = before.to_le_bytes();
        self.0.iter().zip(bytes).fold(own, |sum, (of, byte)| sum ^ of[usize::from(byte)])
    }
}

/// CRC-16/ANSI (polynomial 0xA001, reflected) continuing from `seed`: the kernel's `crc16()`, which
/// guards ext4's group descriptors under `uninit_bg`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let crc = eights.iter().fold(seed, |crc, b| {
        let [lo, hi] = crc.to_le_bytes();
        let [b0, b1, after @ ..] = b;
        let first = CRC16[7][usize::from(b0 ^ lo)] ^ CRC16[6][usize::from(b1 ^ hi)];
        after.iter().zip(CRC16[..6].iter().rev()).fold(first, |x, (b, t)| x ^ t[usize::from(*b)])
    });
    rest.iter().fold(crc, |crc, b| {
        let [lo, hi] = crc.to_le_bytes();
        CRC16[0][usize::from(lo ^ b)] ^ u16::from(hi)
    })
}

/// `CRC16[n][b]`: what byte `b` adds to a CRC-16 with `n` bytes after it.
static CRC16: [[u16; 256]; 8] = {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u16;
        let mut n = 0;
        while n < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 != 0 { (crc >> 1) ^ 0xA001 } else { crc >> 1 };
                bit += 1;
            }
            tables[n][byte] = crc;
            n += 1;
        }
        byte += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(!crc32_le(!0, b"123456789"), 0xCBF4_3926);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }

    #[test]
    fn crc16_is_that_of_one_bit_after_another() {
        let mut bytes = [0u8; 100];
        bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i * i * 7 + 3) as u8);
        for len in 0..bytes.len() {
            for seed in [0, 0xFFFF, 0x1234] {
                let slow = bytes[..len].iter().fold(seed, |mut crc, b| {
                    crc ^= u16::from(*b);
                    for _ in 0..8 {
                        crc = if crc & 1 != 0 { (crc >> 1) ^ 0xA001 } else { crc >> 1 };
                    }
                    crc
                });
                assert_eq!(crc16(seed, &bytes[..len]), slow);
            }
        }
    }

    #[test]
    fn a_checksum_comes_from_those_of_its_parts() {
        let bytes: Vec<u8> = (0..3000u32).map(|n| (n * n * 7 + 3) as u8).collect();
        for part in [1, 7, 1000] {
            let after = Crc32After::new(part);
            for seed in [0, !0, 0x1234_5678] {
                let whole = &bytes[..part * 3];
                let parts = whole.chunks(part).map(|b| crc32_le(0, b));
                let joined = parts.fold(seed, |sum, own| after.join(sum, own));
                assert_eq!(joined, crc32_le(seed, whole), "parts of {part} from {seed:#x} on");
            }
        }
    }

    #[test]
    fn continuing_equals_one_piece() {
        let whole = crc32c(!0, b"hello world");
        assert_eq!(whole, crc32c(crc32c(!0, b"hello "), b"world"));
        let whole = crc32_le(!0, b"hello world");
        assert_eq!(whole, crc32_le(crc32_le(!0, b"hello "), b"world"));
    }
}
