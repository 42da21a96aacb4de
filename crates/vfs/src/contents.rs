//! The digest of a file's contents: SHA-256 as `sha256sum` prints it, and for a file of mostly
//! zeroes one that takes no time for them.
//!
//! A hole and zeroes that were written are the same contents, and have the same digest.

use std::fmt;

use sha2::{Digest as _, Sha256};
use wp_base::{FsError, FsResult};

/// A part of a file's contents, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// Bytes that were read.
    Bytes(&'a [u8]),
    /// A hole: this number of zero bytes that are stored nowhere.
    Zeroes(u64),
}

/// Takes the parts of a file. An error of it ends the reading.
pub type TakePart<'t> = dyn FnMut(Part<'_>) -> FsResult<()> + 't;

impl Part<'_> {
    /// Appends it to `out`. Errors: `TooBig` beyond `bytes_max` in all.
    pub fn append_to(self, out: &mut Vec<u8>, bytes_max: usize) -> FsResult<()> {
        let more = match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Zeroes(n) => usize::try_from(n).unwrap_or(usize::MAX),
        };
        let end = out.len().saturating_add(more);
        if end > bytes_max {
            return Err(FsError::TooBig);
        }
        match self {
            Part::Bytes(bytes) => out.extend_from_slice(bytes),
            Part::Zeroes(_) => out.resize(end, 0),
        }
        Ok(())
    }
}

/// What identifies the contents of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Digest {
    /// SHA-256 of all bytes.
    Sha256([u8; 32]),
    /// Of a file with more than [`Digest::ZEROES_MAX`] bytes in blocks of zeroes: SHA-256 of
    /// [`Digest::SPARSE`], of number and bytes of each other block of 4096 bytes (the last one may
    /// be shorter), of 2^64 - 1, and of the length; numbers as 8 bytes, little-endian.
    Sparse([u8; 32]),
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, bytes) = match self {
            Digest::Sha256(bytes) => ("", bytes),
            Digest::Sparse(bytes) => ("sparse:", bytes),
        };
        f.write_str(prefix)?;
        bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

const BLOCK: usize = 4096;
static ZEROES: [u8; BLOCK] = [0; BLOCK];

impl Digest {
    /// Bytes in blocks of zeroes that are still hashed: a few tenths of a second.
    pub const ZEROES_MAX: u64 = 256 << 20;
    /// What the hash of a sparse file begins with.
    pub const SPARSE: &'static [u8] = b"writepath sparse contents 1\0";

    /// Of the contents that `read` gives to what it is called with; it may be called twice.
    /// `bytes_left`: bytes that may still be read or hashed, holes of a sparse file not counted.
    ///
    /// Errors: of `read`; `Unsupported` when that is used up.
    pub fn of(
        bytes_left: &mut u64,
        mut read: impl FnMut(&mut TakePart<'_>) -> FsResult<()>,
    ) -> FsResult<Digest> {
        let mut plain = Hasher { sparse: false, sha: Sha256::new(), zeroes: 0 };
        if let Some(sha) = plain.run(bytes_left, &mut read)? {
            return Ok(Digest::Sha256(sha));
        }
        let sha = Sha256::new_with_prefix(Digest::SPARSE);
        let mut sparse = Hasher { sparse: true, sha, zeroes: 0 };
        let sha = sparse.run(bytes_left, &mut read)?;
        sha.map(Digest::Sparse).ok_or(FsError::Io)
    }
}

/// Hashes in one of the two ways.
struct Hasher {
    sparse: bool,
    sha: Sha256,
    /// Bytes in blocks of zeroes so far.
    zeroes: u64,
}

impl Hasher {
    /// `None`: there are too many zeroes for this way.
    fn run(
        &mut self,
        bytes_left: &mut u64,
        read: &mut dyn FnMut(&mut TakePart<'_>) -> FsResult<()>,
    ) -> FsResult<Option<[u8; 32]>> {
        let mut blocks = Blocks { number: 0, part: Vec::with_capacity(BLOCK) };
        let mut stopped = false;
        let read = read(&mut |part| {
            let cost = match part {
                Part::Bytes(bytes) => bytes.len() as u64,
                Part::Zeroes(n) if !self.sparse && n <= Digest::ZEROES_MAX => n,
                Part::Zeroes(_) => 0,
            };
            let left = bytes_left.checked_sub(cost);
            *bytes_left = left.ok_or_else(|| {
                FsError::Unsupported("hashing a file that is beyond the limit".to_owned())
            })?;
            blocks.push(part, self);
            stopped = !self.sparse && self.zeroes > Digest::ZEROES_MAX;
            if stopped { Err(FsError::TooBig) } else { Ok(()) }
        });
        if stopped {
            return Ok(None);
        }
        read?;
        let bytes = blocks.end(self);
        if self.sparse {
            self.sha.update(u64::MAX.to_le_bytes());
            self.sha.update(bytes.to_le_bytes());
        }
        Ok(Some(std::mem::take(&mut self.sha).finalize().into()))
    }

    /// A block, whole or the last.
    fn block(&mut self, number: u64, bytes: &[u8]) {
        let is_zero = ZEROES.starts_with(bytes);
        if is_zero {
            self.zeroes += bytes.len() as u64;
        }
        if self.sparse && !is_zero {
            self.sha.update(number.to_le_bytes());
        }
        if !self.sparse || !is_zero {
            self.sha.update(bytes);
        }
    }

    /// Takes `blocks` blocks of zeroes.
    fn zero_blocks(&mut self, blocks: u64) {
        self.zeroes = self.zeroes.saturating_add(blocks.saturating_mul(BLOCK as u64));
        if !self.sparse && self.zeroes <= Digest::ZEROES_MAX {
            (0..blocks).for_each(|_| self.sha.update(ZEROES));
        }
    }
}

/// Contents as blocks, wherever their parts end.
struct Blocks {
    /// The block that `part` begins.
    number: u64,
    part: Vec<u8>,
}

impl Blocks {
    fn push(&mut self, part: Part<'_>, to: &mut Hasher) {
        match part {
            Part::Bytes(bytes) => self.bytes(bytes, to),
            Part::Zeroes(mut n) => {
                if !self.part.is_empty() {
                    let fill = ((BLOCK - self.part.len()) as u64).min(n);
                    self.bytes(&ZEROES[..fill as usize], to);
                    n -= fill;
                }
                let blocks = n / BLOCK as u64;
                if blocks > 0 {
                    to.zero_blocks(blocks);
                    self.number += blocks;
                }
                self.bytes(&ZEROES[..(n % BLOCK as u64) as usize], to);
            }
        }
    }

    fn bytes(&mut self, mut bytes: &[u8], to: &mut Hasher) {
        while !bytes.is_empty() {
            if self.part.is_empty() && bytes.len() >= BLOCK {
                let (block, rest) = bytes.split_at(BLOCK);
                to.block(self.number, block);
                (bytes, self.number) = (rest, self.number + 1);
                continue;
            }
            let (taken, rest) = bytes.split_at(bytes.len().min(BLOCK - self.part.len()));
            self.part.extend_from_slice(taken);
            bytes = rest;
            if self.part.len() == BLOCK {
                to.block(self.number, &self.part);
                self.part.clear();
                self.number += 1;
            }
        }
    }

    /// Nothing follows; bytes in all.
    fn end(self, to: &mut Hasher) -> u64 {
        if !self.part.is_empty() {
            to.block(self.number, &self.part);
        }
        (self.number * BLOCK as u64).saturating_add(self.part.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[Part<'_>]) -> Digest {
        let mut left = 1 << 40;
        let all = |take: &mut TakePart<'_>| parts.iter().try_for_each(|p| take(*p));
        Digest::of(&mut left, all).expect("nothing fails")
    }

    #[test]
    fn ordinary_contents_have_the_hash_that_sha256sum_prints() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of(&[]).to_string(), empty);
        let bytes = [&[1; 5000][..], &[0; 9000], &[2; 3]].concat();
        let right = Digest::Sha256(Sha256::digest(&bytes).into());
        let parts = [
            Part::Bytes(&bytes[..1]),
            Part::Bytes(&bytes[1..5000]),
            Part::Zeroes(9000),
            Part::Bytes(&[2; 3]),
        ];
        assert_eq!(of(&parts), right);
    }

    #[test]
    fn a_hole_of_any_length_takes_no_time_and_is_what_written_zeroes_are() {
        let far = 777 << 30;
        let a = of(&[
            Part::Bytes(b"a"),
            Part::Zeroes(far),
            Part::Bytes(b"z"),
            Part::Zeroes(u64::MAX / 2),
        ]);
        assert!(matches!(a, Digest::Sparse(_)) && a.to_string().starts_with("sparse:"));
        // Zeroes here and there were written.
        let zeroes = vec![0; 1 << 20];
        let b = of(&[
            Part::Bytes(b"a\0\0"),
            Part::Zeroes(far - (1 << 20) - 2),
            Part::Bytes(&zeroes),
            Part::Bytes(b"z"),
            Part::Zeroes(u64::MAX / 2),
        ]);
        assert_eq!(a, b);
        let moved = of(&[
            Part::Bytes(b"a"),
            Part::Zeroes(far + 1),
            Part::Bytes(b"z"),
            Part::Zeroes(u64::MAX / 2 - 1),
        ]);
        assert_ne!(a, moved, "a byte stands elsewhere");
        let longer = of(&[
            Part::Bytes(b"a"),
            Part::Zeroes(far),
            Part::Bytes(b"z"),
            Part::Zeroes(u64::MAX / 2 + 1),
        ]);
        assert_ne!(a, longer);
    }

    #[test]
    fn which_digest_it_is_depends_on_the_contents_alone() {
        let zeroes = vec![0; 1 << 20];
        let written = |mib: usize| vec![Part::Bytes(&zeroes); mib];
        let most = Digest::ZEROES_MAX;
        assert_eq!(of(&[Part::Zeroes(most)]), of(&written(256)));
        assert!(matches!(of(&[Part::Zeroes(most)]), Digest::Sha256(_)));
        let more = [written(256), vec![Part::Bytes(&zeroes[..4096])]].concat();
        assert_eq!(of(&[Part::Zeroes(most + 4096)]), of(&more));
        assert!(matches!(of(&more), Digest::Sparse(_)));
    }

    #[test]
    fn data_is_limited_and_holes_are_not() {
        let mut left = 10;
        let read = |take: &mut TakePart<'_>| {
            take(Part::Zeroes(1 << 50))?;
            take(Part::Bytes(&[1; 4]))
        };
        assert!(Digest::of(&mut left, read).is_ok());
        assert_eq!(left, 6);
        let read = |take: &mut TakePart<'_>| take(Part::Bytes(&[1; 7]));
        assert!(matches!(Digest::of(&mut left, read), Err(FsError::Unsupported(_))));
    }
}
