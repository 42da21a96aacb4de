//! i-transactions of iJournaling: records of one file between a beginning and a tail, in the area
//! that a log has for fast commits ([`super::fast_commit`], whose records these are).
//!
//! Picture:    BEGIN (transaction, core, sequence), names, ranges and inode, TAIL with a checksum
//!             over all bytes before it; each begins a block, and goes on in the next ones.
//! Source:     Park, Shin, "iJournaling", ATC'17, for what is logged. The paper gives no format:
//!             this one is ours, and says so in the log ([`wp_jbd2::disk::INCOMPAT_IJOURNAL`]).

use wp_base::crc::crc32c;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::fast_commit::{Record, TagLength, records};

/// Value of `fc_tag` of [`Begin`]; no kernel has it.
pub const BEGIN: u16 = 0x100;

/// How an i-transaction begins.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Begin {
    /// The transaction of the journal that makes it void when it commits.
    pub tid: U32,
    /// The core whose area it is in.
    pub core: U32,
    /// Its place in the order of all i-transactions of a mount.
    pub sequence: U64,
}
const _: () = assert!(size_of::<Begin>() == 16);

impl Begin {
    /// Bytes of it with tag and length.
    pub const BYTES: usize = size_of::<TagLength>() + size_of::<Begin>();

    /// What a block begins with, if that is an i-transaction.
    pub fn of(block: &[u8]) -> Option<Begin> {
        let (head, after) = TagLength::read_from_prefix(block).ok()?;
        let is_one = head.tag.get() == BEGIN && usize::from(head.len.get()) == size_of::<Begin>();
        is_one.then(|| Begin::read_from_prefix(after).ok().map(|(begin, _)| begin))?
    }
}

/// Is an i-transaction whole? Asked block by block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole {
    tid: u32,
    inode_bytes: u16,
    crc: u32,
    is_first: bool,
}

impl Whole {
    /// One of transaction `tid`.
    pub fn new(tid: u32, inode_bytes: u16) -> Whole {
        Whole { tid, inode_bytes, crc: 0, is_first: true }
    }

    /// The next block: `Some(true)`: it ends here, and is whole; `Some(false)`: it goes on.
    /// `None`: it is torn, of another transaction, or none.
    pub fn block(&mut self, block: &[u8]) -> Option<bool> {
        let mut rest = block;
        if std::mem::take(&mut self.is_first) {
            Begin::of(block).filter(|b| b.tid.get() == self.tid)?;
            self.crc = crc32c(0, block.get(..Begin::BYTES)?);
            rest = block.get(Begin::BYTES..)?;
        }
        while let Ok((head, after)) = TagLength::read_from_prefix(rest) {
            let len = usize::from(head.len.get());
            let value = after.get(..len)?;
            match Record::read(head.tag.get(), value, self.inode_bytes)? {
                Record::Head(_) => return None,
                Record::Tail(t) => {
                    let crc = crc32c(crc32c(self.crc, head.as_bytes()), t.tid.as_bytes());
                    let is_right = t.tid.get() == self.tid && t.crc.get() == crc;
                    return is_right.then_some(true);
                }
                _ => self.crc = crc32c(crc32c(self.crc, head.as_bytes()), value),
            }
            rest = after.get(len..)?;
        }
        Some(false)
    }
}

/// The records of a whole i-transaction, in order.
pub fn records_of(blocks: &[Vec<u8>], inode_bytes: u16) -> impl Iterator<Item = Record<'_>> {
    blocks.iter().enumerate().flat_map(move |(n, block)| {
        let from = if n == 0 { Begin::BYTES } else { 0 };
        records(block.get(from..).unwrap_or_default(), inode_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::fast_commit::{Tail, tag};

    fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
        let len = u16::try_from(value.len()).expect("short");
        out.extend_from_slice(TagLength { tag: kind.into(), len: len.into() }.as_bytes());
        out.extend_from_slice(value);
    }

    /// Two blocks of 128 bytes: a name, padding; a name, the tail.
    fn two_blocks(tid: u32) -> Vec<Vec<u8>> {
        let begin = Begin { tid: tid.into(), core: 1.into(), sequence: 7.into() };
        let mut first = Vec::new();
        put(&mut first, BEGIN, begin.as_bytes());
        put(&mut first, tag::LINK, b"\x02\0\0\0\x0c\0\0\0name");
        let pad = 128 - first.len() - size_of::<TagLength>();
        put(&mut first, tag::PAD, &vec![0; pad]);
        let mut second = Vec::new();
        put(&mut second, tag::UNLINK, b"\x02\0\0\0\x0c\0\0\0old");
        let crc = crc32c(crc32c(0, &first), &second);
        let len = u16::try_from(128 - second.len() - size_of::<TagLength>()).expect("short");
        let head = TagLength { tag: tag::TAIL.into(), len: len.into() };
        let crc = crc32c(crc32c(crc, head.as_bytes()), &tid.to_le_bytes());
        second.extend_from_slice(head.as_bytes());
        second.extend_from_slice(Tail { tid: tid.into(), crc: crc.into() }.as_bytes());
        second.resize(128, 0);
        vec![first, second]
    }

    fn is_whole(blocks: &[Vec<u8>], tid: u32) -> Option<bool> {
        let mut whole = Whole::new(tid, 256);
        blocks.iter().map(|b| whole.block(b)).find(|found| *found != Some(false)).flatten()
    }

    #[test]
    fn one_is_whole_with_all_of_its_bytes_in_their_order_and_no_others() {
        let blocks = two_blocks(9);
        assert_eq!(is_whole(&blocks, 9), Some(true));
        assert_eq!(is_whole(&blocks, 10), None, "of an older transaction");
        assert_eq!(is_whole(blocks.get(..1).expect("one"), 9), None, "without its end");
        for n in 0..2 {
            // Behind the checksum of the tail nothing counts.
            for at in 0..if n == 0 { 128 } else { 27 } {
                let mut torn = blocks.clone();
                *torn.get_mut(n).and_then(|b| b.get_mut(at)).expect("a byte") ^= 1;
                assert_ne!(is_whole(&torn, 9), Some(true), "block {n}, byte {at}");
            }
        }
        let kinds: Vec<bool> =
            records_of(&blocks, 256).map(|r| matches!(r, Record::Link(_))).collect();
        assert_eq!(kinds, [true, false, false, false]);
    }
}
