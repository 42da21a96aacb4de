//! Contents of a block in memory.
//!
//! Invariants: 1. who only passes contents on gets them by reference: a pattern or zeroes that a
//!                program wrote stay what they are up to the medium.
//!             2. whoever changes contents that another has too gets a copy first.

use std::rc::Rc;

use wp_base::crc::crc32_le;
use wp_medium::{Content, PAGE_BYTES, Slice, Versions, ZERO_PAGE};

/// Contents of a block. Clones share them until one is changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block(Kind);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// At most a page.
    Small(Slice),
    /// More than a page: no mount has such blocks, but images that are recovered may.
    Large(Rc<Vec<u8>>),
}

impl From<Slice> for Block {
    fn from(slice: Slice) -> Block {
        Block(Kind::Small(slice))
    }
}

impl From<Vec<u8>> for Block {
    fn from(bytes: Vec<u8>) -> Block {
        if bytes.len() > PAGE_BYTES {
            return Block(Kind::Large(Rc::new(bytes)));
        }
        Block(Kind::Small(Slice::from_bytes(&bytes)))
    }
}

impl Block {
    /// A block of `len` zero bytes.
    pub fn zero(len: usize) -> Block {
        match u32::try_from(len) {
            Ok(short) if len <= PAGE_BYTES => Block(Kind::Small(Slice::zero(short))),
            _ => Block(Kind::Large(Rc::new(vec![0; len]))),
        }
    }

    /// A block of `len` bytes, zero but for what `f` makes of them.
    pub fn made(len: usize, f: impl FnOnce(&mut [u8])) -> Block {
        let mut out = Block::zero(len);
        f(out.bytes_mut());
        out
    }

    /// A block of these bytes, most of which are zero.
    pub fn sparse(bytes: &[u8]) -> Block {
        match u32::try_from(bytes.len()) {
            Ok(len) if bytes.len() <= PAGE_BYTES => {
                Block(Kind::Small(Slice::of_page(Versions::only(bytes), 0, len)))
            }
            _ => bytes.to_vec().into(),
        }
    }

    /// A block of these bytes, the next version of what `versions` has.
    pub fn version(bytes: &[u8], versions: &mut Versions) -> Block {
        match u32::try_from(bytes.len()) {
            Ok(len) if bytes.len() <= PAGE_BYTES => {
                Block(Kind::Small(Slice::of_page(versions.next(bytes), 0, len)))
            }
            _ => bytes.to_vec().into(),
        }
    }

    /// Its contents by reference. `None`: it is larger than a page.
    pub fn slice(&self) -> Option<&Slice> {
        match &self.0 {
            Kind::Small(slice) => Some(slice),
            Kind::Large(_) => None,
        }
    }

    /// Its bytes. From here on a page holds them.
    pub fn bytes(&mut self) -> &[u8] {
        match &mut self.0 {
            Kind::Small(slice) => {
                if slice.held().is_none() {
                    *slice = Slice::of_page(slice.to_page(), 0, slice.len());
                }
                slice.held().unwrap_or(&[])
            }
            Kind::Large(bytes) => bytes,
        }
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Small(slice) => {
                if slice.held().is_none() || slice.offset() != 0 {
                    *slice = Slice::of_page(slice.to_page(), 0, slice.len());
                }
                slice.held_mut().unwrap_or(&mut [])
            }
            Kind::Large(bytes) => Rc::<Vec<u8>>::make_mut(bytes),
        }
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.0 {
            Kind::Small(slice) => slice.to_vec(),
            Kind::Large(bytes) => bytes.to_vec(),
        }
    }

    /// The CRC-32 that goes on from `sum` over its bytes.
    pub fn crc32(&self, sum: u32) -> u32 {
        let slice = match &self.0 {
            Kind::Small(slice) => slice,
            Kind::Large(bytes) => return crc32_le(sum, bytes),
        };
        if let Some(bytes) = slice.held() {
            return crc32_le(sum, bytes);
        }
        let len = usize::try_from(slice.len()).unwrap_or(PAGE_BYTES);
        if matches!(slice.content(), Content::Zero) {
            return crc32_le(sum, ZERO_PAGE.get(..len).unwrap_or(&[]));
        }
        let mut own = [0; PAGE_BYTES];
        let own = own.get_mut(..len).unwrap_or(&mut []);
        slice.copy_to(own);
        crc32_le(sum, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_shared_until_they_are_changed() {
        for len in [1024, 4096, 8192] {
            let mut block = Block::made(len, |bytes| bytes.fill(7));
            let sent = block.clone();
            block.bytes_mut().fill(8);
            assert_eq!((sent.to_vec(), block.to_vec()), (vec![7; len], vec![8; len]));
        }
    }

    #[test]
    fn checksums_are_those_of_the_bytes_whatever_holds_them() {
        let of_page = Slice::from_bytes(&[9; 4096]).sub(1024, 1024);
        for slice in [Slice::pattern(3, 5, 1024), Slice::zero(1024), of_page] {
            let mut block = Block::from(slice);
            let sum = crc32_le(5, &block.to_vec());
            assert_eq!(block.crc32(5), sum);
            assert_eq!(crc32_le(5, block.bytes()), sum);
            assert_eq!(crc32_le(5, block.bytes_mut()), sum);
        }
    }
}
