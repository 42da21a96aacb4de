//! SIT entries: which blocks of a segment are in use.

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, Log, SEGMENT_BLOCKS, bits, count, lo16};

/// A segment of the main area. `struct f2fs_sit_entry`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SitEntry {
    /// `vblocks`: log that wrote the segment << 10 | blocks in use.
    pub vblocks: U16,
    /// `valid_map`: the blocks in use, highest bit first.
    pub valid_map: [u8; 64],
    /// `mtime`: mean time of change, in seconds of `elapsed_time`.
    pub mtime: U64,
}
const _: () = assert!(size_of::<SitEntry>() == SitEntry::BYTES);

impl Default for SitEntry {
    fn default() -> SitEntry {
        SitEntry { vblocks: U16::ZERO, valid_map: [0; 64], mtime: U64::ZERO }
    }
}

impl SitEntry {
    /// Its size in bytes.
    pub const BYTES: usize = 74;
    /// `SIT_ENTRY_PER_BLOCK`.
    pub const PER_BLOCK: u32 = count(BLOCK_BYTES / Self::BYTES);

    /// Blocks in use, as it says.
    pub fn valid_blocks(&self) -> u32 {
        u32::from(self.vblocks.get() & 0x3FF)
    }

    /// Number of the log that wrote the segment, see [`Log::of`].
    pub fn kind(&self) -> u16 {
        self.vblocks.get() >> 10
    }

    /// Sets log and number of blocks in use.
    pub fn set(&mut self, log: Log, valid_blocks: u32) {
        self.vblocks = (u16::from(log.number()) << 10 | lo16(valid_blocks)).into();
    }

    /// Is a block in use?
    pub fn is_valid(&self, offset: u32) -> bool {
        bits::test(&self.valid_map, offset)
    }

    /// Checks it as a mount does. `segment`, `at`: for the error. `check_block_count`.
    pub fn verify(&self, segment: u32, at: u64) -> Result<(), Corruption> {
        let ones = bits::ones(&self.valid_map);
        let structure = "f2fs SIT entry";
        if self.valid_blocks() != ones || ones > SEGMENT_BLOCKS {
            let expected = format!("{ones} blocks, as in the bitmap of segment {segment}");
            let found = self.valid_blocks().into();
            return Err(Corruption { structure, field: "vblocks", at, found, expected });
        }
        if Log::of(self.kind()).is_none() {
            let expected = format!("a log, 0 to 5 (segment {segment})");
            let found = self.kind().into();
            return Err(Corruption { structure, field: "type", at, found, expected });
        }
        Ok(())
    }

    /// The entries of a block of the SIT.
    pub fn all(block: &Block) -> &[SitEntry] {
        let n = BLOCK_BYTES / Self::BYTES;
        <[SitEntry]>::ref_from_prefix_with_elems(block, n).map_or(&[], |(entries, _)| entries)
    }

    /// The entries of a block of the SIT, to change them.
    pub fn all_mut(block: &mut Block) -> &mut [SitEntry] {
        let n = BLOCK_BYTES / Self::BYTES;
        <[SitEntry]>::mut_from_prefix_with_elems(block, n).map_or(&mut [], |(entries, _)| entries)
    }
}

/// A SIT entry in a journal. `struct sit_journal_entry`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SitJournalEntry {
    /// `segno`.
    pub segment: U32,
    /// `se`.
    pub entry: SitEntry,
}
const _: () = assert!(size_of::<SitJournalEntry>() == 78);
