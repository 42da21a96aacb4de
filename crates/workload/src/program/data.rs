//! What writes of programs write.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wp_medium::Slice;

/// Bytes of a page, which a slice of given bytes never crosses.
const PAGE: u64 = 4096;

/// The word with which given bytes begin in a program.
const GIVEN: &str = "base64:";

/// The word for bytes that are all zero: logs of real programs are filled with them beforehand.
const ZEROES: &str = "zeroes";

/// From this seed on, a `pwrite` of one whole block of 4 KiB begins like a control block of a jbd2
/// journal: the magic number, a type and a low number of a transaction.
pub const MAGIC_SEED: u32 = 0xF000_0000;
/// What control blocks of a jbd2 journal begin with: data that look like one must not be taken for
/// one.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// The contents of a write.
#[derive(Clone, PartialEq, Eq)]
pub enum Data {
    /// Computed: no two seeds have a word in common, but for the first three from [`MAGIC_SEED`]
    /// on.
    Seed(u32),
    /// Those that a recorded program wrote.
    Given(Arc<[u8]>),
    /// As many zero bytes as the call has room for.
    Zeroes,
}

impl From<u32> for Data {
    fn from(seed: u32) -> Data {
        Data::Seed(seed)
    }
}

impl Data {
    /// Bytes that a program wrote.
    pub fn given(bytes: &[u8]) -> Data {
        Data::Given(bytes.into())
    }

    /// What a recorded call wrote, whose length the call has.
    pub fn written(bytes: &[u8]) -> Data {
        match bytes.iter().all(|b| *b == 0) {
            true => Data::Zeroes,
            false => Data::given(bytes),
        }
    }

    /// Out of the word of a line; `len`: bytes that the line says. Errors: neither a seed nor
    /// bytes of that number.
    pub(super) fn parse(word: &str, len: u32) -> Result<Data, String> {
        if word == ZEROES {
            return Ok(Data::Zeroes);
        }
        let Some(code) = word.strip_prefix(GIVEN) else {
            let seed = word.parse().ok().filter(|seed| *seed < u32::MAX);
            let none = || format!("`{word}`: a seed below {}, {ZEROES} or {GIVEN}DATA", u32::MAX);
            return seed.map(Data::Seed).ok_or_else(none);
        };
        let bytes = STANDARD.decode(code).map_err(|e| format!("{GIVEN}…: {e}"))?;
        match bytes.len() == len as usize {
            true => Ok(Data::Given(bytes.into())),
            false => Err(format!("{GIVEN}… has {} bytes, and the line says {len}", bytes.len())),
        }
    }

    /// Out of the word of an `ack`: bytes, or else the word itself. Errors: no such bytes.
    pub(super) fn said(word: &str) -> Result<Data, String> {
        match word.strip_prefix(GIVEN) {
            Some(code) => {
                let bytes = STANDARD.decode(code).map_err(|e| format!("{GIVEN}…: {e}"))?;
                Ok(Data::Given(bytes.into()))
            }
            None => Ok(Data::given(word.as_bytes())),
        }
    }

    /// What a write of `len` bytes at `at` writes, in order. Given bytes end with each page.
    pub fn slices(&self, at: u64, len: u32) -> Vec<Slice> {
        let bytes = match self {
            Data::Seed(seed) => return vec![contents(*seed, at, len)],
            Data::Zeroes => {
                return vec![Slice::zero(len)].into_iter().filter(|_| len > 0).collect();
            }
            Data::Given(bytes) => bytes.get(..len as usize).unwrap_or(bytes),
        };
        let first = ((PAGE - at % PAGE) as usize).min(bytes.len());
        let (first, rest) = bytes.split_at(first);
        let pieces = std::iter::once(first).chain(rest.chunks(PAGE as usize));
        pieces.filter(|piece| !piece.is_empty()).map(slice).collect()
    }

    /// Of the same, bytes `from` to `to`.
    pub fn part(&self, at: u64, len: u32, (from, to): (u32, u32)) -> Vec<Slice> {
        let mut begin = 0;
        let cut = |slice: Slice| {
            let (first, end) = (from.max(begin), to.min(begin + slice.len()));
            let part = (first < end).then(|| slice.sub(first - begin, end - first));
            begin += slice.len();
            part
        };
        self.slices(at, len).into_iter().filter_map(cut).collect()
    }

    /// The first `len` of its bytes, of a value that is no part of a file.
    pub fn bytes(&self, len: u32) -> Vec<u8> {
        self.slices(0, len).iter().flat_map(Slice::to_vec).collect()
    }
}

/// Pages of zeroes are many in the files of real programs.
fn slice(piece: &[u8]) -> Slice {
    match piece.iter().all(|b| *b == 0) {
        true => Slice::zero(piece.len() as u32),
        false => Slice::from_bytes(piece),
    }
}

/// What a `pwrite` with `seed` writes `at` for `len` bytes: no two seeds have a word in common, but
/// for the first three from [`MAGIC_SEED`] on.
pub fn contents(seed: u32, at: u64, len: u32) -> Slice {
    let data = Slice::pattern(u64::from(seed) + 1, at, len);
    if seed < MAGIC_SEED || !at.is_multiple_of(PAGE) || u64::from(len) != PAGE {
        return data;
    }
    let mut bytes = data.to_vec();
    let mixed = seed.wrapping_mul(0x9E37_79B1) >> 16;
    let (kind, tid) = (1 + mixed % 2, mixed / 2 % 48);
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..12].copy_from_slice(&tid.to_be_bytes());
    Slice::from_bytes(&bytes)
}

/// `{:#}` leaves out bytes that were given, for people.
impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Seed(seed) => write!(f, "{seed}"),
            Data::Zeroes => f.write_str(ZEROES),
            Data::Given(bytes) if f.alternate() => match std::str::from_utf8(bytes) {
                Ok(text) if text.len() <= 40 => write!(f, "{text:?}"),
                _ => f.write_str("…"),
            },
            Data::Given(bytes) => write!(f, "{GIVEN}{}", STANDARD.encode(bytes)),
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Seed(seed) => write!(f, "{seed}"),
            Data::Zeroes => f.write_str(ZEROES),
            Data::Given(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_bytes_are_cut_at_pages_and_come_back_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8 + 1).collect();
        let data = Data::given(&bytes);
        let shape: Vec<u32> = data.slices(4000, 10_000).iter().map(Slice::len).collect();
        assert_eq!(shape, [96, 4096, 4096, 1712]);
        let part: Vec<u8> =
            data.part(4000, 10_000, (90, 4200)).iter().flat_map(Slice::to_vec).collect();
        assert_eq!(part, bytes[90..4200]);
        assert_eq!(Data::given(&bytes).bytes(10_000), bytes);
        assert!(Data::given(&[]).slices(5, 0).is_empty());
    }

    #[test]
    fn a_word_of_a_line_is_a_seed_or_bytes_of_that_number() {
        let data = Data::given(b"two\nlines");
        assert_eq!(Data::parse(&data.to_string(), 9), Ok(data.clone()));
        assert_eq!(Data::parse("7", 9), Ok(Data::Seed(7)));
        assert_eq!(Data::written(&[0; 9]).to_string(), "zeroes");
        assert_eq!(Data::parse("zeroes", 9).map(|d| d.bytes(9)), Ok(vec![0; 9]));
        for (word, len) in [(data.to_string().as_str(), 8), ("base64:%", 1), ("x", 1)] {
            assert!(Data::parse(word, len).is_err(), "{word}");
        }
    }
}
