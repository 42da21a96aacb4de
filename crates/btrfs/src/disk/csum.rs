//! Checksums: of the super block, of tree blocks and of data.

use wp_base::crc::crc32c;

/// Room for a checksum at the head of a super block or tree block. `BTRFS_CSUM_SIZE`.
pub const SPACE: usize = 32;

/// Which checksum a file system has. `enum btrfs_csum_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CsumKind {
    /// CRC-32C, 4 bytes.
    Crc32c,
    /// `XXH64` with seed 0, 8 bytes.
    Xxhash64,
}

impl CsumKind {
    /// The kind of this number; `None`: SHA-256 and BLAKE2b, which are not done here, or no kind.
    pub fn of(number: u16) -> Option<CsumKind> {
        match number {
            0 => Some(CsumKind::Crc32c),
            1 => Some(CsumKind::Xxhash64),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u16 {
        match self {
            CsumKind::Crc32c => 0,
            CsumKind::Xxhash64 => 1,
        }
    }

    /// Bytes of it.
    pub fn bytes(self) -> usize {
        match self {
            CsumKind::Crc32c => 4,
            CsumKind::Xxhash64 => 8,
        }
    }

    /// The checksum of `bytes`, as a number whose first [`Self::bytes`] little-endian bytes are
    /// stored.
    pub fn sum(self, bytes: &[u8]) -> u64 {
        match self {
            CsumKind::Crc32c => u64::from(!crc32c(!0, bytes)),
            CsumKind::Xxhash64 => xxhash_rust::xxh64::xxh64(bytes, 0),
        }
    }

    /// The checksum that is stored at the head of `bytes`; 0 if they are too short.
    pub fn stored(self, bytes: &[u8]) -> u64 {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes.iter().take(self.bytes())) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    }

    /// Appends the checksum of `bytes` to `out`, as checksum items hold it.
    pub fn push(self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend(self.sum(bytes).to_le_bytes().iter().take(self.bytes()));
    }

    /// Is the checksum at the head of a super block or tree block that of the rest?
    pub fn is_sealed(self, block: &[u8]) -> bool {
        block.get(SPACE..).is_some_and(|rest| self.sum(rest) == self.stored(block))
    }

    /// Sets the checksum at the head of a super block or tree block; the room behind it is zero.
    pub fn seal(self, block: &mut [u8]) {
        let sum = block.get(SPACE..).map_or(0, |rest| self.sum(rest)).to_le_bytes();
        let sum = sum.iter().take(self.bytes()).chain(std::iter::repeat(&0));
        for (to, from) in block.iter_mut().take(SPACE).zip(sum) {
            *to = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standards() {
        assert_eq!(CsumKind::Crc32c.sum(b"123456789"), 0xE306_9283);
        assert_eq!(CsumKind::Xxhash64.sum(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(CsumKind::Xxhash64.sum(b"xxhash"), 3_665_147_885_093_898_016);
        for kind in [CsumKind::Crc32c, CsumKind::Xxhash64] {
            let mut block = vec![7; 100];
            assert!(!kind.is_sealed(&block));
            kind.seal(&mut block);
            assert!(kind.is_sealed(&block));
            assert!(block.get(kind.bytes()..SPACE).is_some_and(|b| b.iter().all(|b| *b == 0)));
        }
    }
}
