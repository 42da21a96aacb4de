//! The checkpoint: what is valid, in one block (and `cp_payload` more) at both ends of a pack.
//!
//! Picture:    pack = checkpoint | payload.. | orphans.. | data summaries.. | node summaries.. |
//!             checkpoint again | ... | nat_bits at the end of the segment.
//! Invariants: 1. a pack is valid if both its checkpoints have the same version and a right
//!                checksum; of two valid packs the later version counts.
//! Source:     `struct f2fs_checkpoint`, `__bitmap_ptr`, `validate_checkpoint`,
//!             `f2fs_sanity_check_ckpt`.

use std::mem::offset_of;

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, Geometry, SEGMENT_BLOCKS, checksum, index, wide};

/// One of the logs. `CURSEG_*`: numbers are the format's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Log {
    /// Directory entries.
    HotData = 0,
    /// Other data.
    WarmData = 1,
    /// Moved by cleaning, or of files named as cold.
    ColdData = 2,
    /// Direct nodes of directories.
    HotNode = 3,
    /// Direct nodes of other files: the log of fsync.
    WarmNode = 4,
    /// Indirect nodes.
    ColdNode = 5,
}

impl Log {
    /// All of them, in order of their numbers.
    pub const ALL: [Log; 6] =
        [Log::HotData, Log::WarmData, Log::ColdData, Log::HotNode, Log::WarmNode, Log::ColdNode];
    /// Those of data.
    pub const DATA: [Log; 3] = [Log::HotData, Log::WarmData, Log::ColdData];
    /// Those of nodes.
    pub const NODE: [Log; 3] = [Log::HotNode, Log::WarmNode, Log::ColdNode];

    /// The log with a number; `None` for more than six.
    pub fn of(number: u16) -> Option<Log> {
        Log::ALL.get(usize::from(number)).copied()
    }

    /// Its number.
    #[expect(clippy::as_conversions, reason = "the discriminants are the format's numbers")]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Does it hold nodes?
    pub const fn is_node(self) -> bool {
        matches!(self, Log::HotNode | Log::WarmNode | Log::ColdNode)
    }

    /// Short name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Log::HotData => "hot data",
            Log::WarmData => "warm data",
            Log::ColdData => "cold data",
            Log::HotNode => "hot node",
            Log::WarmNode => "warm node",
            Log::ColdNode => "cold node",
        }
    }

    /// Its number among the three of its kind.
    fn slot(self) -> usize {
        usize::from(self.number() % 3)
    }
}

/// How a log takes its next block (`alloc_type`).
pub mod alloc {
    /// One after another. `LFS`.
    pub const LFS: u8 = 0;
    /// Into holes of a segment in use. `SSR`.
    pub const SSR: u8 = 1;
}

/// Bits of `ckpt_flags`. `CP_*_FLAG`.
pub mod cp_flag {
    /// Written by an unmount: nothing to recover.
    pub const UMOUNT: u32 = 0x1;
    /// The pack has orphan blocks.
    pub const ORPHAN_PRESENT: u32 = 0x2;
    /// Data summaries are [`super::super::Compacted`].
    pub const COMPACT_SUM: u32 = 0x4;
    /// Checkpoints were stopped after an error.
    pub const ERROR: u32 = 0x8;
    /// A check is due.
    pub const FSCK: u32 = 0x10;
    /// Node summaries are in the pack though it is not of an unmount.
    pub const FASTBOOT: u32 = 0x20;
    /// Footers of nodes carry the checkpoint's checksum too.
    pub const CRC_RECOVERY: u32 = 0x40;
    /// The pack ends in nat_bits.
    pub const NAT_BITS: u32 = 0x80;
    /// Everything free was discarded.
    pub const TRIMMED: u32 = 0x100;
    /// Of the footers of nodes only the version counts (set by fsck).
    pub const NOCRC_RECOVERY: u32 = 0x200;
    /// The bitmaps have the layout for large NATs.
    pub const LARGE_NAT_BITMAP: u32 = 0x400;
    /// Quotas need a check.
    pub const QUOTA_NEED_FSCK: u32 = 0x800;
    /// Checkpoints are switched off (`checkpoint=disable`).
    pub const DISABLED: u32 = 0x1000;
    /// Switched off without garbage collection before.
    pub const DISABLED_QUICK: u32 = 0x2000;
    /// The file system is being resized.
    pub const RESIZEFS: u32 = 0x4000;

    /// Every bit with its name in dumps.
    pub const NAMES: &[(u32, &str)] = &[
        (UMOUNT, "umount"),
        (ORPHAN_PRESENT, "orphan_present"),
        (COMPACT_SUM, "compact_sum"),
        (ERROR, "error"),
        (FSCK, "fsck"),
        (FASTBOOT, "fastboot"),
        (CRC_RECOVERY, "crc_recovery"),
        (NAT_BITS, "nat_bits"),
        (TRIMMED, "trimmed"),
        (NOCRC_RECOVERY, "nocrc_recovery"),
        (LARGE_NAT_BITMAP, "large_nat_bitmap"),
        (QUOTA_NEED_FSCK, "quota_need_fsck"),
        (DISABLED, "disabled"),
        (DISABLED_QUICK, "disabled_quick"),
        (RESIZEFS, "resizefs"),
    ];
}

/// The fixed fields at the start of a checkpoint. `struct f2fs_checkpoint`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CheckpointHead {
    /// `checkpoint_ver`, one more with each checkpoint.
    pub checkpoint_ver: U64,
    /// `user_block_count`, blocks that may be in use.
    pub user_block_count: U64,
    /// `valid_block_count`, blocks in use in the main area (nodes and data, promised ones too).
    pub valid_block_count: U64,
    /// `rsvd_segment_count`, segments kept for cleaning.
    pub rsvd_segment_count: U32,
    /// `overprov_segment_count`.
    pub overprov_segment_count: U32,
    /// `free_segment_count` of the main area.
    pub free_segment_count: U32,
    /// `cur_node_segno`: segments that the node logs write; three are used.
    pub cur_node_segno: [U32; 8],
    /// `cur_node_blkoff`: next block there.
    pub cur_node_blkoff: [U16; 8],
    /// `cur_data_segno`.
    pub cur_data_segno: [U32; 8],
    /// `cur_data_blkoff`.
    pub cur_data_blkoff: [U16; 8],
    /// `ckpt_flags`, see [`cp_flag`].
    pub ckpt_flags: U32,
    /// `cp_pack_total_block_count`, both checkpoint blocks included.
    pub cp_pack_total_block_count: U32,
    /// `cp_pack_start_sum`, where in the pack the data summaries begin.
    pub cp_pack_start_sum: U32,
    /// `valid_node_count`.
    pub valid_node_count: U32,
    /// `valid_inode_count`.
    pub valid_inode_count: U32,
    /// `next_free_nid`, where the search for a free one goes on.
    pub next_free_nid: U32,
    /// `sit_ver_bitmap_bytesize`.
    pub sit_ver_bitmap_bytesize: U32,
    /// `nat_ver_bitmap_bytesize`.
    pub nat_ver_bitmap_bytesize: U32,
    /// `checksum_offset` in this block.
    pub checksum_offset: U32,
    /// `elapsed_time`, seconds mounted.
    pub elapsed_time: U64,
    /// `alloc_type` of each log, see [`alloc`].
    pub alloc_type: [u8; 16],
}
const _: () = assert!(size_of::<CheckpointHead>() == CheckpointHead::BYTES);
const _: () = assert!(offset_of!(CheckpointHead, cur_node_segno) == 36);
const _: () = assert!(offset_of!(CheckpointHead, ckpt_flags) == 132);
const _: () = assert!(offset_of!(CheckpointHead, checksum_offset) == 164);
const _: () = assert!(offset_of!(CheckpointHead, alloc_type) == 176);

impl CheckpointHead {
    /// Its size in bytes; bitmaps follow.
    pub const BYTES: usize = 192;
    /// `CP_CHKSUM_OFFSET`, where the checksum usually stands.
    pub const CHECKSUM_AT: u32 = 4092;
    /// `CP_MIN_CHKSUM_OFFSET`, where it stands with large NAT bitmaps.
    pub const CHECKSUM_AT_MIN: u32 = 192;
    /// `F2FS_CP_PACKS`: blocks of a pack that are the checkpoint itself.
    pub const COPIES: u32 = 2;
}

/// A whole checkpoint: its first block and the payload blocks behind it.
#[derive(Clone, PartialEq, Eq)]
pub struct Checkpoint {
    bytes: Vec<u8>,
}

impl Checkpoint {
    /// All zero, with room for `payload` blocks.
    pub fn zeroed(payload: u32) -> Checkpoint {
        Checkpoint { bytes: vec![0; BLOCK_BYTES * (1 + index(payload))] }
    }

    /// Of its first block, with room for `payload` more.
    pub fn new(first: &Block, payload: u32) -> Checkpoint {
        let mut cp = Checkpoint::zeroed(payload);
        cp.set_block(0, first);
        cp
    }

    /// Sets block `n` (0: the first, with the fixed fields). Panics beyond the payload.
    pub fn set_block(&mut self, n: u32, block: &Block) {
        let at = index(n) * BLOCK_BYTES;
        let place = self.bytes.get_mut(at..at + BLOCK_BYTES).expect("a block of the checkpoint");
        place.copy_from_slice(block);
    }

    /// Block `n`. Panics beyond the payload.
    pub fn block(&self, n: u32) -> Block {
        let at = index(n) * BLOCK_BYTES;
        *self.bytes.get(at..).and_then(<[u8]>::first_chunk).expect("a block of the checkpoint")
    }

    /// Blocks beyond the first.
    pub fn payload(&self) -> u32 {
        super::count(self.bytes.len() / BLOCK_BYTES) - 1
    }

    /// The fixed fields.
    pub fn head(&self) -> &CheckpointHead {
        CheckpointHead::ref_from_prefix(&self.bytes).expect("a checkpoint has its first block").0
    }

    /// The fixed fields, to change them. The checksum is the caller's ([`Self::seal`]).
    pub fn head_mut(&mut self) -> &mut CheckpointHead {
        CheckpointHead::mut_from_prefix(&mut self.bytes).expect("it has its first block").0
    }

    /// Has it all `bits` of [`cp_flag`]?
    pub fn has(&self, bits: u32) -> bool {
        self.head().ckpt_flags.get() & bits == bits
    }

    /// Sets or clears `bits` of [`cp_flag`].
    pub fn set_flag(&mut self, bits: u32, to: bool) {
        let now = self.head().ckpt_flags.get();
        self.head_mut().ckpt_flags = if to { now | bits } else { now & !bits }.into();
    }

    /// Are node summaries in the pack? `__exist_node_summaries`.
    pub fn has_node_summaries(&self) -> bool {
        self.head().ckpt_flags.get() & (cp_flag::UMOUNT | cp_flag::FASTBOOT) != 0
    }

    /// Segment and next block of a log.
    pub fn log(&self, log: Log) -> (u32, u32) {
        let h = self.head();
        let (segments, offsets) = if log.is_node() {
            (&h.cur_node_segno, &h.cur_node_blkoff)
        } else {
            (&h.cur_data_segno, &h.cur_data_blkoff)
        };
        let segment = segments.get(log.slot()).map_or(0, |s| s.get());
        (segment, offsets.get(log.slot()).map_or(0, |o| o.get().into()))
    }

    /// Sets segment and next block of a log.
    pub fn set_log(&mut self, log: Log, segment: u32, offset: u32) {
        let h = self.head_mut();
        let (segments, offsets) = if log.is_node() {
            (&mut h.cur_node_segno, &mut h.cur_node_blkoff)
        } else {
            (&mut h.cur_data_segno, &mut h.cur_data_blkoff)
        };
        if let Some(s) = segments.get_mut(log.slot()) {
            *s = segment.into();
        }
        if let Some(o) = offsets.get_mut(log.slot()) {
            *o = super::lo16(offset).into();
        }
    }

    /// How a log allocates, see [`alloc`].
    pub fn alloc_type(&self, log: Log) -> u8 {
        self.head().alloc_type.get(usize::from(log.number())).copied().unwrap_or(0)
    }

    /// Sets how a log allocates.
    pub fn set_alloc_type(&mut self, log: Log, to: u8) {
        if let Some(t) = self.head_mut().alloc_type.get_mut(usize::from(log.number())) {
            *t = to;
        }
    }

    /// Byte ranges of the bitmaps: (SIT, NAT). `__bitmap_ptr`.
    fn bitmaps(&self) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let h = self.head();
        let sit = index(h.sit_ver_bitmap_bytesize.get());
        let nat = index(h.nat_ver_bitmap_bytesize.get());
        let start = CheckpointHead::BYTES;
        let (sit_at, nat_at) = if self.has(cp_flag::LARGE_NAT_BITMAP) {
            // The checksum stands before both.
            (start + 4 + nat, start + 4)
        } else if self.payload() > 0 {
            (BLOCK_BYTES, start)
        } else {
            (start, start + sit)
        };
        (sit_at..sit_at.saturating_add(sit), nat_at..nat_at.saturating_add(nat))
    }

    /// Which copy of each SIT block is valid, highest bit first (set: the second). Empty if it
    /// does not fit, which [`Self::verify`] refuses.
    pub fn sit_bitmap(&self) -> &[u8] {
        self.bytes.get(self.bitmaps().0).unwrap_or(&[])
    }

    /// Which copy of each NAT block is valid, highest bit first (set: the second).
    pub fn nat_bitmap(&self) -> &[u8] {
        self.bytes.get(self.bitmaps().1).unwrap_or(&[])
    }

    /// The bitmap of SIT versions, to change it.
    pub fn sit_bitmap_mut(&mut self) -> &mut [u8] {
        let range = self.bitmaps().0;
        self.bytes.get_mut(range).unwrap_or(&mut [])
    }

    /// The bitmap of NAT versions, to change it.
    pub fn nat_bitmap_mut(&mut self) -> &mut [u8] {
        let range = self.bitmaps().1;
        self.bytes.get_mut(range).unwrap_or(&mut [])
    }

    /// Checksum that stands in it. `cur_cp_crc`.
    pub fn crc(&self) -> u32 {
        checksum::stored(&self.block(0), self.head().checksum_offset.get()).unwrap_or(0)
    }

    /// Sets its checksum; call it last. Panics if the place of the checksum is not in the block.
    pub fn seal(&mut self) {
        let at = index(self.head().checksum_offset.get());
        let crc = checksum::checkpoint(&self.block(0), at);
        let place = self.bytes.get_mut(at..at + 4).expect("the checksum stands in the block");
        place.copy_from_slice(&crc.to_le_bytes());
    }

    /// What the footer of a node that is written after this checkpoint carries as `cp_ver`.
    /// `fill_node_footer_blkaddr`.
    pub fn node_version(&self) -> u64 {
        let version = self.head().checkpoint_ver.get();
        if self.has(cp_flag::CRC_RECOVERY) {
            version | u64::from(self.crc()) << 32
        } else {
            version
        }
    }

    /// Was a node with this `cp_ver` written after this checkpoint? `is_recoverable_dnode`.
    pub fn is_recoverable(&self, cp_ver: u64) -> bool {
        if self.has(cp_flag::NOCRC_RECOVERY) {
            return self.head().checkpoint_ver.get() << 32 == cp_ver << 32;
        }
        self.node_version() == cp_ver
    }

    /// Version of a checkpoint block, if its checksum is right. `at`: its byte address, for the
    /// error. `get_checkpoint_version`.
    pub fn version_of(block: &Block, at: u64) -> Result<u64, Corruption> {
        let wrong = |field, found: u32, expected: String| {
            let structure = "f2fs checkpoint";
            Err(Corruption { structure, field, at, found: found.into(), expected })
        };
        let head = CheckpointHead::ref_from_prefix(block).expect("a block is longer").0;
        let place = head.checksum_offset.get();
        let range = CheckpointHead::CHECKSUM_AT_MIN..=CheckpointHead::CHECKSUM_AT;
        if !range.contains(&place) {
            let expected = format!("{} to {}", range.start(), range.end());
            return wrong("checksum_offset", place, expected);
        }
        let right = checksum::checkpoint(block, index(place));
        match checksum::stored(block, place) {
            Some(found) if found == right => Ok(head.checkpoint_ver.get()),
            found => wrong("checksum", found.unwrap_or(0), format!("{right:#x}")),
        }
    }

    /// Checks it against the layout, as a mount does. `at`: its byte address, for the error.
    ///
    /// Source: `f2fs_sanity_check_ckpt`.
    pub fn verify(&self, sb: &super::SuperBlock, g: &Geometry, at: u64) -> Result<(), Corruption> {
        let wrong = |field, found: u64, expected: String| {
            Err(Corruption { structure: "f2fs checkpoint", field, at, found, expected })
        };
        let h = self.head();
        let read_only = sb.has(super::feature::RO);
        let (reserved, spare) = (h.rsvd_segment_count.get(), h.overprov_segment_count.get());
        let meta = [sb.segment_count_ckpt, sb.segment_count_sit, sb.segment_count_nat];
        let meta: u64 = meta.iter().map(|s| u64::from(s.get())).sum::<u64>()
            + u64::from(sb.segment_count_ssa.get());
        if meta + u64::from(reserved) >= u64::from(sb.segment_count.get()) {
            let expected = format!("less than {} with the metadata", sb.segment_count.get());
            return wrong("rsvd_segment_count", reserved.into(), expected);
        }
        if !read_only && (spare == 0 || reserved == 0) {
            let least = u64::from(spare.min(reserved));
            return wrong("overprov_segment_count", least, "1 or more".to_owned());
        }
        let user = h.user_block_count.get();
        let main = u64::from(g.segments + u32::from(read_only)) * u64::from(SEGMENT_BLOCKS);
        if user == 0 || user >= main {
            return wrong("user_block_count", user, format!("1 to {}", main - 1));
        }
        if h.valid_block_count.get() > user {
            let found = h.valid_block_count.get();
            return wrong("valid_block_count", found, format!("up to {user}"));
        }
        let nodes = g.nids().saturating_sub(super::nid::RESERVED);
        if h.valid_node_count.get() > nodes {
            let found = h.valid_node_count.get().into();
            return wrong("valid_node_count", found, format!("up to {nodes}"));
        }
        self.verify_logs(g, read_only, &wrong)?;
        self.verify_places(g, &wrong)
    }

    fn verify_logs(
        &self,
        g: &Geometry,
        read_only: bool,
        wrong: &dyn Fn(&'static str, u64, String) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        for log in Log::ALL {
            // Those that are only read need one log of each kind.
            if read_only && log.slot() != 0 {
                continue;
            }
            let (segment, offset) = self.log(log);
            if segment >= g.segments {
                let expected = format!("less than {} ({} log)", g.segments, log.name());
                return wrong("cur_segno", segment.into(), expected);
            }
            if offset >= SEGMENT_BLOCKS {
                let expected = format!("less than {SEGMENT_BLOCKS} ({} log)", log.name());
                return wrong("cur_blkoff", offset.into(), expected);
            }
            let twin = Log::ALL.into_iter().find(|o| *o < log && self.log(*o).0 == segment);
            if let Some(twin) = twin.filter(|_| !read_only) {
                let expected = format!("another than that of the {} log", twin.name());
                return wrong("cur_segno", segment.into(), expected);
            }
        }
        Ok(())
    }

    fn verify_places(
        &self,
        g: &Geometry,
        wrong: &dyn Fn(&'static str, u64, String) -> Result<(), Corruption>,
    ) -> Result<(), Corruption> {
        let h = self.head();
        let sizes = [
            ("sit_ver_bitmap_bytesize", h.sit_ver_bitmap_bytesize.get(), g.sit_bitmap_bytes()),
            ("nat_ver_bitmap_bytesize", h.nat_ver_bitmap_bytesize.get(), g.nat_bitmap_bytes()),
        ];
        for (field, found, right) in sizes {
            if found != right {
                return wrong(field, found.into(), right.to_string());
            }
        }
        let (sit, nat) = self.bitmaps();
        for (field, range) in [("sit_ver_bitmap_bytesize", &sit), ("nat_ver_bitmap_bytesize", &nat)]
        {
            if range.end > self.bytes.len() {
                let expected = format!("an end within {} bytes", self.bytes.len());
                return wrong(field, wide(range.end), expected);
            }
        }
        let start = h.cp_pack_start_sum.get();
        let range = self.payload() + 1..=SEGMENT_BLOCKS - 1 - 6;
        if !range.contains(&start) {
            let expected = format!("{} to {}", range.start(), range.end());
            return wrong("cp_pack_start_sum", start.into(), expected);
        }
        let at = h.checksum_offset.get();
        if self.has(cp_flag::LARGE_NAT_BITMAP) && at != CheckpointHead::CHECKSUM_AT_MIN {
            return wrong("checksum_offset", at.into(), "192 with large NAT bitmaps".to_owned());
        }
        let bits = g.nat_bits_blocks();
        if self.has(cp_flag::NAT_BITS) && self.payload() + 2 + 6 + bits >= SEGMENT_BLOCKS {
            return wrong("ckpt_flags", h.ckpt_flags.get().into(), "room for nat_bits".to_owned());
        }
        Ok(())
    }

    /// Where in the pack a log's summary block stands; `None` if it is in the SSA, or compacted.
    /// `sum_blk_addr`: node summaries lie at the end of the pack, before the second checkpoint.
    pub fn summary_place(&self, log: Log) -> Option<u32> {
        let total = self.head().cp_pack_total_block_count.get();
        let slot = super::count(log.slot());
        let from_end = match (log.is_node(), self.has_node_summaries()) {
            (true, false) => return None,
            (true, true) => 3 - slot,
            (false, _) if self.has(cp_flag::COMPACT_SUM) => return None,
            (false, true) => 6 - slot,
            (false, false) => 3 - slot,
        };
        total.checked_sub(1 + from_end)
    }
}
