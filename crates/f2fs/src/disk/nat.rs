//! NAT entries: where the block of a node is.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, addr, count};

/// Where a node lies. `struct f2fs_nat_entry`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct NatEntry {
    /// `version`: one more each time that the node loses its block, so that summaries of blocks of
    /// an earlier node with this number are known as stale.
    pub version: u8,
    /// `ino` of the file that the node belongs to.
    pub ino: U32,
    /// `block_addr`; [`addr::NULL`]: the number is free; [`addr::NEW`]: not written yet.
    pub block_addr: U32,
}
const _: () = assert!(size_of::<NatEntry>() == NatEntry::BYTES);

impl NatEntry {
    /// Its size in bytes.
    pub const BYTES: usize = 9;
    /// `NAT_ENTRY_PER_BLOCK`.
    pub const PER_BLOCK: u32 = count(BLOCK_BYTES / Self::BYTES);

    /// Of a node of `ino` in block `block`.
    pub fn new(version: u8, ino: u32, block: u32) -> NatEntry {
        NatEntry { version, ino: ino.into(), block_addr: block.into() }
    }

    /// Is the number free?
    pub fn is_free(&self) -> bool {
        self.block_addr.get() == addr::NULL
    }

    /// The entries of a block of the NAT.
    pub fn all(block: &Block) -> &[NatEntry] {
        let n = BLOCK_BYTES / Self::BYTES;
        <[NatEntry]>::ref_from_prefix_with_elems(block, n).map_or(&[], |(entries, _)| entries)
    }

    /// The entries of a block of the NAT, to change them.
    pub fn all_mut(block: &mut Block) -> &mut [NatEntry] {
        let n = BLOCK_BYTES / Self::BYTES;
        <[NatEntry]>::mut_from_prefix_with_elems(block, n).map_or(&mut [], |(entries, _)| entries)
    }
}

/// A NAT entry in a journal. `struct nat_journal_entry`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct NatJournalEntry {
    /// `nid`.
    pub nid: U32,
    /// `ne`.
    pub entry: NatEntry,
}
const _: () = assert!(size_of::<NatJournalEntry>() == 13);

/// The free-nid bitmaps at the end of a pack that an unmount wrote (`CP_NAT_BITS_FLAG`).
///
/// Two bitmaps over the blocks of the NAT, lowest bit first: which are full, which are empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatBits {
    /// `cp_ver`, with the checkpoint's checksum in the upper half: whether they belong to it.
    pub version: u64,
    /// Blocks of the NAT in which every number is taken.
    pub full: Vec<u8>,
    /// Blocks of the NAT in which every number is free.
    pub empty: Vec<u8>,
}

impl NatBits {
    /// From the bytes of their blocks. `nat_blocks`: blocks of one copy of the NAT. `None` if the
    /// bytes are too few.
    pub fn load(bytes: &[u8], nat_blocks: u32) -> Option<NatBits> {
        let len = super::index(nat_blocks / 8);
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let full = rest.get(..len)?.to_vec();
        let empty = rest.get(len..len.checked_mul(2)?)?.to_vec();
        Some(NatBits { version: u64::from_le_bytes(*version), full, empty })
    }

    /// Notes that `used` numbers of a NAT block are taken. `__update_nat_bits`.
    pub fn put(&mut self, block: u32, used: usize) {
        super::bits::set_le(&mut self.empty, block, used == 0);
        super::bits::set_le(&mut self.full, block, used == super::index(NatEntry::PER_BLOCK));
    }

    /// Their bytes, padded to whole blocks.
    pub fn store(&self) -> Vec<u8> {
        let mut out = self.version.to_le_bytes().to_vec();
        out.extend_from_slice(&self.full);
        out.extend_from_slice(&self.empty);
        out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
        out
    }
}
