//! Summaries: to which node each block of a segment belongs; and the journals that ride on them.
//!
//! Picture:    summary block = 512 summaries | journal (507 bytes: NAT entries in that of the hot
//!             data log, SIT entries in that of the cold data log) | footer.
//!             compacted (in a pack, if they fit 1 or 2 blocks) = NAT journal | SIT journal |
//!             summaries of hot, warm, cold data, as many as the logs have written.
//! Source:     `struct f2fs_summary_block`, `read_compacted_summaries`.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    BLOCK_BYTES, Block, Checkpoint, Log, NatJournalEntry, SEGMENT_BLOCKS, SitJournalEntry, alloc,
    count, index,
};

/// Owner of a block. `struct f2fs_summary`.
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
pub struct Summary {
    /// `nid`: of a data block the node that points to it, of a node block its own.
    pub nid: U32,
    /// `version` of that node when the block was written (data only).
    pub version: u8,
    /// `ofs_in_node`: which address in the node (data only).
    pub ofs_in_node: U16,
}
const _: () = assert!(size_of::<Summary>() == Summary::BYTES);

impl Summary {
    /// Its size in bytes.
    pub const BYTES: usize = 7;

    /// Of a block at place `ofs_in_node` of node `nid`, whose version is `version`.
    pub fn new(nid: u32, version: u8, ofs_in_node: u32) -> Summary {
        Summary { nid: nid.into(), version, ofs_in_node: super::lo16(ofs_in_node).into() }
    }
}

/// Journal of NAT or SIT entries, or other facts, in a summary block. `struct f2fs_journal`.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Journal {
    /// `n_nats`, `n_sits`: entries in use.
    pub count: U16,
    bytes: [u8; 505],
}
const _: () = assert!(size_of::<Journal>() == Journal::BYTES);

impl Journal {
    /// Its size in bytes. `SUM_JOURNAL_SIZE`.
    pub const BYTES: usize = 507;
    /// `NAT_JOURNAL_ENTRIES`.
    pub const NAT_MAX: usize = 505 / size_of::<NatJournalEntry>();
    /// `SIT_JOURNAL_ENTRIES`.
    pub const SIT_MAX: usize = 505 / size_of::<SitJournalEntry>();

    /// An empty one.
    pub const fn empty() -> Journal {
        Journal { count: U16::ZERO, bytes: [0; 505] }
    }

    /// The NAT entries in use; no more than fit, whatever `count` says.
    pub fn nats(&self) -> &[NatJournalEntry] {
        let n = usize::from(self.count.get()).min(Self::NAT_MAX);
        <[NatJournalEntry]>::ref_from_prefix_with_elems(&self.bytes, n).map_or(&[], |(e, _)| e)
    }

    /// The SIT entries in use; no more than fit, whatever `count` says.
    pub fn sits(&self) -> &[SitJournalEntry] {
        let n = usize::from(self.count.get()).min(Self::SIT_MAX);
        <[SitJournalEntry]>::ref_from_prefix_with_elems(&self.bytes, n).map_or(&[], |(e, _)| e)
    }

    /// Adds or replaces a NAT entry. No if it is full.
    pub fn put_nat(&mut self, entry: NatJournalEntry) -> bool {
        let at = self.nats().iter().position(|e| e.nid == entry.nid);
        self.put(at, Self::NAT_MAX, entry.as_bytes())
    }

    /// Adds or replaces a SIT entry. No if it is full.
    pub fn put_sit(&mut self, entry: SitJournalEntry) -> bool {
        let at = self.sits().iter().position(|e| e.segment == entry.segment);
        self.put(at, Self::SIT_MAX, entry.as_bytes())
    }

    fn put(&mut self, at: Option<usize>, max: usize, entry: &[u8]) -> bool {
        let used = usize::from(self.count.get());
        let n = at.unwrap_or(used);
        if n >= max {
            return false;
        }
        if let Some(place) = self.bytes.get_mut(n * entry.len()..(n + 1) * entry.len()) {
            place.copy_from_slice(entry);
        }
        if at.is_none() {
            self.count = super::lo16(count(used + 1)).into();
        }
        true
    }

    /// `info.kbytes_written`, in the summary block of the hot node log: KiB written, ever.
    pub fn kbytes_written(&self) -> u64 {
        self.bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
    }

    /// Sets `info.kbytes_written`.
    pub fn set_kbytes_written(&mut self, kib: u64) {
        let (place, _) = self.bytes.split_at_mut(8);
        place.copy_from_slice(&kib.to_le_bytes());
    }
}

/// End of a summary block. `struct summary_footer`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SummaryFooter {
    /// `entry_type`: [`SummaryBlock::NODE`] or [`SummaryBlock::DATA`].
    pub entry_type: u8,
    /// `check_sum`: never set by Linux.
    pub check_sum: U32,
}

/// Summaries of a segment. `struct f2fs_summary_block`.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SummaryBlock {
    /// `entries`, one a block of the segment.
    pub entries: [Summary; 512],
    /// `journal`.
    pub journal: Journal,
    /// `footer`.
    pub footer: SummaryFooter,
}
const _: () = assert!(size_of::<SummaryBlock>() == BLOCK_BYTES);

impl SummaryBlock {
    /// `SUM_TYPE_NODE`.
    pub const NODE: u8 = 1;
    /// `SUM_TYPE_DATA`.
    pub const DATA: u8 = 0;

    /// Of a segment of node or data blocks, with nothing in it.
    pub fn empty(is_node: bool) -> SummaryBlock {
        let entry_type = if is_node { Self::NODE } else { Self::DATA };
        SummaryBlock {
            entries: [Summary::default(); 512],
            journal: Journal::empty(),
            footer: SummaryFooter { entry_type, check_sum: U32::ZERO },
        }
    }

    /// From a block.
    pub fn load(block: &Block) -> SummaryBlock {
        SummaryBlock::read_from_bytes(block).expect("it is a whole block")
    }

    /// As a block.
    pub fn store(&self) -> Block {
        let mut out = super::ZERO_BLOCK;
        self.write_to(&mut out).expect("it is a whole block");
        out
    }

    /// Summary of block `offset` of the segment; of nothing beyond it.
    pub fn entry(&self, offset: u32) -> Summary {
        self.entries.get(index(offset)).copied().unwrap_or_default()
    }

    /// Sets the summary of block `offset`; beyond the segment nothing.
    pub fn set_entry(&mut self, offset: u32, to: Summary) {
        if let Some(e) = self.entries.get_mut(index(offset)) {
            *e = to;
        }
    }
}

/// Data summaries of a pack where they fit one or two blocks. `CP_COMPACT_SUM_FLAG`.
#[derive(Clone, PartialEq, Eq)]
pub struct Compacted {
    /// Journal of NAT entries.
    pub nat: Journal,
    /// Journal of SIT entries.
    pub sit: Journal,
    /// Summaries of the hot, warm and cold data log, in order of blocks.
    pub data: [Vec<Summary>; 3],
}

impl Compacted {
    /// Summaries that each data log of a checkpoint has here: what it has written, or, of one that
    /// fills holes, the whole segment.
    pub fn counts(cp: &Checkpoint) -> [u32; 3] {
        Log::DATA.map(
            |log| {
                if cp.alloc_type(log) == alloc::SSR { SEGMENT_BLOCKS } else { cp.log(log).1 }
            },
        )
    }

    /// Blocks that these numbers of summaries take; 3: they do not fit, and whole summary blocks
    /// are written. `f2fs_npages_for_summary_flush`.
    pub fn blocks(counts: [u32; 3]) -> u32 {
        let first = count((BLOCK_BYTES - 2 * Journal::BYTES - 5) / Summary::BYTES);
        let more = count((BLOCK_BYTES - 5) / Summary::BYTES);
        match counts.iter().sum::<u32>() {
            n if n <= first => 1,
            n if n - first <= more => 2,
            _ => 3,
        }
    }

    /// Reads them. `next` gives the next block of the pack. Errors: those of `next`.
    pub fn load<E>(
        counts: [u32; 3],
        mut next: impl FnMut() -> Result<Block, E>,
    ) -> Result<Compacted, E> {
        let mut block = next()?;
        let journal = |block: &Block, n: usize| {
            block
                .get(n * Journal::BYTES..)
                .and_then(|b| Journal::read_from_prefix(b).ok())
                .map_or(Journal::empty(), |(j, _)| j)
        };
        let (nat, sit) = (journal(&block, 0), journal(&block, 1));
        let mut at = 2 * Journal::BYTES;
        let mut data: [Vec<Summary>; 3] = Default::default();
        for (log, n) in data.iter_mut().zip(counts) {
            for _ in 0..n {
                // A block is fetched when its first summary is due: the last may end with it.
                if at + Summary::BYTES > BLOCK_BYTES - 5 {
                    block = next()?;
                    at = 0;
                }
                let entry = block.get(at..).and_then(|b| Summary::read_from_prefix(b).ok());
                log.push(entry.map_or(Summary::default(), |(s, _)| s));
                at += Summary::BYTES;
            }
        }
        Ok(Compacted { nat, sit, data })
    }

    /// As blocks.
    pub fn store(&self) -> Vec<Block> {
        let mut block = super::ZERO_BLOCK;
        let mut out = Vec::new();
        let put = |block: &mut Block, at: usize, bytes: &[u8]| {
            let place = block.get_mut(at..at + bytes.len()).expect("parts fit a block");
            place.copy_from_slice(bytes);
        };
        put(&mut block, 0, self.nat.as_bytes());
        put(&mut block, Journal::BYTES, self.sit.as_bytes());
        let mut at = 2 * Journal::BYTES;
        for entry in self.data.iter().flatten() {
            if at + Summary::BYTES > BLOCK_BYTES - 5 {
                out.push(std::mem::replace(&mut block, super::ZERO_BLOCK));
                at = 0;
            }
            put(&mut block, at, entry.as_bytes());
            at += Summary::BYTES;
        }
        out.push(block);
        out
    }
}
