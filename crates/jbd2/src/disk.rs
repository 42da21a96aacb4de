//! The journal's bytes. jbd2 is the only big-endian part of an ext4 image.
//!
//! Picture:    log block 0 = [`SuperBlock`]; then `[descriptor | data.. ]* [revoke]* [commit]` per
//!             transaction, in a ring from `s_first` to `s_maxlen` (less the fast-commit area).
//! Invariants: 1. every control block starts with a [`Header`]; a logged block never does (it is
//!                escaped).
//!             2. with checksums v2 or v3, descriptor and revoke blocks end in a [`Tail`].
//! Left out:   fast-commit records (little-endian, written and replayed by ext4, not by the
//!             journal).
//! Source:     Linux Documentation/filesystems/ext4/journal.rst; checked against real crashed
//!             images.

use std::mem::{offset_of, size_of};
use std::sync::LazyLock;

use wp_base::crc::{Crc32After, crc32c};
use wp_medium::{PAGE_BYTES, Page};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of every control block. `JBD2_MAGIC_NUMBER`.
pub const MAGIC: u32 = 0xC03B_3998;

/// `h_blocktype` of a descriptor block.
pub const DESCRIPTOR: u32 = 1;
/// `h_blocktype` of a commit record.
pub const COMMIT: u32 = 2;
/// `h_blocktype` of a superblock without feature fields.
pub const SUPER_V1: u32 = 3;
/// `h_blocktype` of a superblock with feature fields.
pub const SUPER_V2: u32 = 4;
/// `h_blocktype` of a block of revoke records.
pub const REVOKE: u32 = 5;

/// Compatible feature: a CRC-32 over each transaction stands in its commit record (checksum v1).
pub const COMPAT_CHECKSUM: u32 = 1;
/// Incompatible feature: the log may hold revoke blocks.
pub const INCOMPAT_REVOKE: u32 = 1;
/// Incompatible feature: tags and revoke records have 64-bit block numbers.
pub const INCOMPAT_64BIT: u32 = 2;
/// Incompatible feature: a commit record may reach the medium before its transaction.
pub const INCOMPAT_ASYNC_COMMIT: u32 = 4;
/// Incompatible feature: CRC-32C on everything, 16 bits of it in a tag.
pub const INCOMPAT_CSUM_V2: u32 = 8;
/// Incompatible feature: as v2, with 32 bits of it in a tag.
pub const INCOMPAT_CSUM_V3: u32 = 0x10;
/// Incompatible feature: the log's last blocks are a fast-commit area.
pub const INCOMPAT_FAST_COMMIT: u32 = 0x20;
/// Incompatible feature, of no kernel: that area holds i-transactions (iJournaling, ATC'17).
/// Whoever does not know it must not replay the log without them.
pub const INCOMPAT_IJOURNAL: u32 = 1 << 30;
/// All incompatible features that today's kernels know.
pub const INCOMPAT_KNOWN: u32 = 0x3F;

/// Tag flag: the block's first word was [`MAGIC`] and stands in the log as zero.
pub const TAG_ESCAPE: u16 = 1;
/// Tag flag: no UUID follows this tag.
pub const TAG_SAME_UUID: u16 = 2;
/// Tag flag: last tag of its descriptor.
pub const TAG_LAST: u16 = 8;

/// `s_checksum_type` and nothing else is used: CRC-32C.
pub const CHECKSUM_TYPE_CRC32C: u8 = 4;
/// `h_chksum_type` of checksum v1.
pub const CHECKSUM_TYPE_CRC32: u8 = 1;
/// `h_chksum_size` of checksum v1.
pub const CHECKSUM_SIZE_CRC32: u8 = 4;
/// Smallest log that a kernel mounts, in blocks. `JBD2_MIN_JOURNAL_BLOCKS`.
pub const LOG_BLOCKS_MIN: u32 = 1024;
/// Length of the fast-commit area where the superblock says 0.
pub const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// Bytes of the UUID that follows the first tag of a descriptor.
pub const UUID_BYTES: usize = 16;

/// Starts every control block. `struct journal_header_s`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// `h_magic`, always [`MAGIC`].
    pub magic: U32,
    /// `h_blocktype`.
    pub blocktype: U32,
    /// `h_sequence`, the transaction's id.
    pub sequence: U32,
}
const _: () = assert!(size_of::<Header>() == 12);

/// The journal's superblock, first 1024 bytes of log block 0. `struct journal_superblock_s`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SuperBlock {
    /// `s_header`; its blocktype is the format version.
    pub header: Header,
    /// `s_blocksize`, bytes.
    pub blocksize: U32,
    /// `s_maxlen`, blocks of the log, this one included.
    pub maxlen: U32,
    /// `s_first`, first block of the ring.
    pub first: U32,
    /// `s_sequence`, id of the first transaction that recovery expects.
    pub sequence: U32,
    /// `s_start`, where that one starts; 0 = the log is empty.
    pub start: U32,
    /// `s_errno`, why the journal was aborted, as a negative errno; 0 = it was not.
    pub errno: U32,
    /// `s_feature_compat`; from here on only in format version 2.
    pub feature_compat: U32,
    /// `s_feature_incompat`.
    pub feature_incompat: U32,
    /// `s_feature_ro_compat`, none defined.
    pub feature_ro_compat: U32,
    /// `s_uuid`.
    pub uuid: [u8; 16],
    /// `s_nr_users`, file systems that share the journal.
    pub nr_users: U32,
    /// `s_dynsuper`, unused.
    pub dynsuper: U32,
    /// `s_max_transaction`, unused.
    pub max_transaction: U32,
    /// `s_max_trans_data`, unused.
    pub max_trans_data: U32,
    /// `s_checksum_type`.
    pub checksum_type: u8,
    /// `s_padding2`.
    pub padding2: [u8; 3],
    /// `s_num_fc_blks`, length of the fast-commit area; 0 = the default.
    pub num_fc_blks: U32,
    /// `s_head`, where the next transaction goes in an empty log (Linux 6.4 and later).
    pub head: U32,
    /// `s_padding`.
    pub padding: [u8; 160],
    /// `s_checksum`, CRC-32C of the 1024 bytes with this field zero.
    pub checksum: U32,
    /// `s_users`.
    pub users: [u8; 768],
}
const _: () = assert!(size_of::<SuperBlock>() == 1024);
const _: () = assert!(offset_of!(SuperBlock, uuid) == 0x30);
const _: () = assert!(offset_of!(SuperBlock, checksum_type) == 0x50);
const _: () = assert!(offset_of!(SuperBlock, num_fc_blks) == 0x54);
const _: () = assert!(offset_of!(SuperBlock, head) == 0x58);
const _: () = assert!(offset_of!(SuperBlock, checksum) == 0xFC);
const _: () = assert!(offset_of!(SuperBlock, users) == 0x100);

/// A tag without checksum v3; how much of it is on disk depends on the features.
/// `journal_block_tag_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Tag {
    /// `t_blocknr`, low half of the home address.
    pub blocknr: U32,
    /// `t_checksum`, low half of the CRC (v2 only).
    pub checksum: U16,
    /// `t_flags`.
    pub flags: U16,
    /// `t_blocknr_high`, only with 64-bit block numbers.
    pub blocknr_high: U32,
}
const _: () = assert!(size_of::<Tag>() == 12);
const _: () = assert!(offset_of!(Tag, flags) == 6);

/// A tag with checksum v3. `journal_block_tag3_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Tag3 {
    /// `t_blocknr`, low half of the home address.
    pub blocknr: U32,
    /// `t_flags`.
    pub flags: U32,
    /// `t_blocknr_high`.
    pub blocknr_high: U32,
    /// `t_checksum`, whole CRC.
    pub checksum: U32,
}
const _: () = assert!(size_of::<Tag3>() == 16);

/// The commit record's used part; the block's rest is zero. `struct commit_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommitBlock {
    /// `h_magic`, `h_blocktype` = [`COMMIT`], `h_sequence`.
    pub header: Header,
    /// `h_chksum_type`, [`CHECKSUM_TYPE_CRC32`] with checksum v1, else 0.
    pub checksum_type: u8,
    /// `h_chksum_size`, 4 with checksum v1, else 0.
    pub checksum_size: u8,
    /// `h_padding`.
    pub padding: [u8; 2],
    /// `h_chksum`; only the first is used: v1's CRC-32 of the transaction, or v2/v3's CRC-32C of
    /// this block.
    pub checksum: [U32; 8],
    /// `h_commit_sec`, seconds since 1970.
    pub commit_sec: U64,
    /// `h_commit_nsec`.
    pub commit_nsec: U32,
}
const _: () = assert!(size_of::<CommitBlock>() == 60);
const _: () = assert!(offset_of!(CommitBlock, checksum) == 0x10);
const _: () = assert!(offset_of!(CommitBlock, commit_sec) == 0x30);

/// Starts a block of revoke records. `jbd2_journal_revoke_header_t`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RevokeHeader {
    /// `r_header`.
    pub header: Header,
    /// `r_count`, bytes in use, this header included.
    pub count: U32,
}
const _: () = assert!(size_of::<RevokeHeader>() == 16);

/// Ends descriptor and revoke blocks with checksum v2 or v3. `struct jbd2_journal_block_tail`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Tail {
    /// `t_checksum`, CRC-32C of the block with this field zero.
    pub checksum: U32,
}
const _: () = assert!(size_of::<Tail>() == 4);

/// What the feature words mean for the layout and the checksums of log blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Format {
    /// `s_feature_compat`, 0 in format version 1.
    pub compat: u32,
    /// `s_feature_incompat`, 0 in format version 1.
    pub incompat: u32,
    /// CRC-32C of the UUID: the seed of every v2 and v3 checksum.
    pub seed: u32,
}

impl Format {
    /// Reads it from a superblock.
    pub fn of(sb: &SuperBlock) -> Format {
        if sb.header.blocktype.get() == SUPER_V1 {
            return Format::default();
        }
        Format {
            compat: sb.feature_compat.get(),
            incompat: sb.feature_incompat.get(),
            seed: crc32c(!0, &sb.uuid),
        }
    }
    /// Is the incompatible feature on?
    pub const fn has(&self, incompat: u32) -> bool {
        self.incompat & incompat != 0
    }
    /// Checksums of control blocks and tags (v2 or v3)?
    pub const fn csum_v2or3(&self) -> bool {
        self.has(INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3)
    }
    /// Checksum of the transaction in its commit record (v1)?
    pub const fn csum_v1(&self) -> bool {
        self.compat & COMPAT_CHECKSUM != 0
    }
    /// Bytes of one tag. `journal_tag_bytes`: v2 adds two bytes that nothing uses.
    pub const fn tag_bytes(&self) -> usize {
        if self.has(INCOMPAT_CSUM_V3) {
            return size_of::<Tag3>();
        }
        let mut n = offset_of!(Tag, blocknr_high);
        if self.has(INCOMPAT_CSUM_V2) {
            n += 2;
        }
        if self.has(INCOMPAT_64BIT) {
            n += 4;
        }
        n
    }
    /// Bytes at the end of a descriptor or revoke block that are not for records.
    pub const fn tail_bytes(&self) -> usize {
        if self.csum_v2or3() { size_of::<Tail>() } else { 0 }
    }
    /// Bytes of one revoke record.
    pub const fn revoke_bytes(&self) -> usize {
        if self.has(INCOMPAT_64BIT) { 8 } else { 4 }
    }
    /// Revoke records in a block of `block_bytes`.
    pub const fn revokes_per_block(&self, block_bytes: usize) -> u32 {
        ((block_bytes - size_of::<RevokeHeader>() - self.tail_bytes()) / self.revoke_bytes()) as u32
    }
    /// Tags that a descriptor surely holds, as credits are reckoned
    /// (`jbd2_descriptor_blocks_per_trans`).
    pub const fn tags_per_descriptor(&self, block_bytes: usize) -> u32 {
        let room = block_bytes - size_of::<Header>() - UUID_BYTES - self.tail_bytes() - 16;
        (room / self.tag_bytes()) as u32
    }
    /// What stands in the tag of a logged block (`data` as it stands in the log): CRC-32C over id
    /// and block.
    pub fn tag_checksum(&self, tid: u32, data: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &tid.to_be_bytes()), data)
    }
    /// CRC-32C of a control block whose 4 bytes at `field` count as zero.
    pub fn block_checksum(&self, block: &[u8], field: usize) -> u32 {
        let before = crc32c(self.seed, block.get(..field).unwrap_or(block));
        let zeroed = crc32c(before, &[0; 4]);
        crc32c(zeroed, block.get(field + 4..).unwrap_or(&[]))
    }
    /// Is the tail of a descriptor or revoke block right? Always, without v2 or v3.
    pub fn tail_is_right(&self, block: &[u8]) -> bool {
        let Some(at) = block.len().checked_sub(size_of::<Tail>()) else { return false };
        !self.csum_v2or3() || word(block, at) == Some(self.block_checksum(block, at))
    }
    /// [`Format::tail_is_right`] of a block that is a page, whose own checksum is known.
    pub fn tail_of_page_is_right(&self, page: &Page) -> bool {
        let (block, at) = (page.bytes(), PAGE_BYTES - size_of::<Tail>());
        // Without inversions a checksum is linear: what the last four bytes add can be taken off.
        let sum = || page.crc32c(self.seed) ^ crc32c(0, &block[at..]);
        !self.csum_v2or3() || word(block, at) == Some(sum())
    }
    /// Writes the tail of a descriptor or revoke block, if the format has one.
    pub fn set_tail(&self, block: &mut [u8]) {
        if self.csum_v2or3() {
            let at = block.len() - size_of::<Tail>();
            let sum = self.block_checksum(block, at);
            block[at..].copy_from_slice(&sum.to_be_bytes());
        }
    }
    /// Is the commit record's own checksum right? Always, without v2 or v3.
    pub fn commit_is_right(&self, block: &[u8]) -> bool {
        let at = offset_of!(CommitBlock, checksum);
        !self.csum_v2or3() || word(block, at) == Some(self.block_checksum(block, at))
    }
    /// [`Format::commit_is_right`] of a block that is a page, whose own checksum is known.
    pub fn commit_of_page_is_right(&self, page: &Page) -> bool {
        /// What the bytes behind the field do to a checksum that stood before them.
        static BEHIND: LazyLock<Crc32After> = LazyLock::new(|| {
            Crc32After::of(PAGE_BYTES - offset_of!(CommitBlock, checksum) - 4, crc32c)
        });
        let (block, at) = (page.bytes(), offset_of!(CommitBlock, checksum));
        let sum = || page.crc32c(self.seed) ^ BEHIND.join(crc32c(0, &block[at..at + 4]), 0);
        !self.csum_v2or3() || word(block, at) == Some(sum())
    }
    /// Would the commit record's checksum be right if everything after its used part were zero?
    ///
    /// A device whose atomic unit is smaller than a block may have left the old rest in place.
    pub fn commit_head_is_right(&self, block: &[u8]) -> bool {
        let used = size_of::<CommitBlock>();
        if !self.csum_v2or3() || block.len() < used {
            return false;
        }
        let mut head = vec![0; block.len()];
        head[..used].copy_from_slice(&block[..used]);
        self.commit_is_right(&head)
    }
    /// Writes the commit record's own checksum, if the format has one.
    pub fn set_commit(&self, block: &mut [u8]) {
        if self.csum_v2or3() {
            let at = offset_of!(CommitBlock, checksum);
            let sum = self.block_checksum(block, at);
            block[at..at + 4].copy_from_slice(&sum.to_be_bytes());
        }
    }
    /// Reads the tag at byte `at` of a descriptor block; `None` if it does not fit before the tail.
    pub fn tag(&self, block: &[u8], at: usize) -> Option<ParsedTag> {
        let n = self.tag_bytes();
        if at.checked_add(n)? > block.len().checked_sub(self.tail_bytes())? {
            return None;
        }
        let bytes = block.get(at..at + n)?;
        let wide = self.has(INCOMPAT_64BIT);
        if self.has(INCOMPAT_CSUM_V3) {
            let (t, _) = Tag3::read_from_prefix(bytes).ok()?;
            let high = if wide { u64::from(t.blocknr_high.get()) << 32 } else { 0 };
            return Some(ParsedTag {
                block: u64::from(t.blocknr.get()) | high,
                flags: t.flags.get() as u16,
                checksum: t.checksum.get(),
            });
        }
        let mut whole = [0u8; size_of::<Tag>()];
        let have = n.min(whole.len());
        whole[..have].copy_from_slice(&bytes[..have]);
        let (t, _) = Tag::read_from_prefix(&whole).ok()?;
        let high = if wide { u64::from(t.blocknr_high.get()) << 32 } else { 0 };
        Some(ParsedTag {
            block: u64::from(t.blocknr.get()) | high,
            flags: t.flags.get(),
            checksum: u32::from(t.checksum.get()),
        })
    }
    /// Writes a tag at byte `at` of a descriptor block that has room for it, and says where the
    /// next one begins.
    pub fn put_tag(&self, block: &mut [u8], at: usize, tag: &ParsedTag) -> usize {
        let high = if self.has(INCOMPAT_64BIT) { (tag.block >> 32) as u32 } else { 0 };
        let out = &mut block[at..at + self.tag_bytes()];
        if self.has(INCOMPAT_CSUM_V3) {
            let t = Tag3 {
                blocknr: U32::new(tag.block as u32),
                flags: U32::new(u32::from(tag.flags)),
                blocknr_high: U32::new(high),
                checksum: U32::new(tag.checksum),
            };
            out.copy_from_slice(t.as_bytes());
            return at + self.tag_bytes();
        }
        let checksum = if self.has(INCOMPAT_CSUM_V2) { tag.checksum as u16 } else { 0 };
        let t = Tag {
            blocknr: U32::new(tag.block as u32),
            checksum: U16::new(checksum),
            flags: U16::new(tag.flags),
            blocknr_high: U32::new(high),
        };
        let n = out.len().min(size_of::<Tag>());
        out[..n].copy_from_slice(&t.as_bytes()[..n]);
        at + self.tag_bytes()
    }
    /// [`Format::put_tag`] of a descriptor's first tag, which the journal's UUID follows.
    pub fn put_first_tag(
        &self,
        block: &mut [u8],
        at: usize,
        tag: &ParsedTag,
        uuid: &[u8; UUID_BYTES],
    ) -> usize {
        let at = self.put_tag(block, at, tag);
        block[at..at + UUID_BYTES].copy_from_slice(uuid);
        at + UUID_BYTES
    }
    /// Writes a commit record behind its header; its own checksum is [`Format::set_commit`]'s.
    ///
    /// Units:  `time`: seconds since 1970, nanoseconds; `crc`: of the transaction's blocks, for v1.
    pub fn put_record(&self, block: &mut [u8], (secs, nanos): (u64, u32), crc: u32) {
        let Ok((record, _)) = CommitBlock::mut_from_prefix(block) else { return };
        record.commit_sec = U64::new(secs);
        record.commit_nsec = U32::new(nanos);
        if self.csum_v1() {
            record.checksum_type = CHECKSUM_TYPE_CRC32;
            record.checksum_size = CHECKSUM_SIZE_CRC32;
            record.checksum[0] = U32::new(crc);
        }
    }
    /// Does the tag's checksum fit the logged block? Always, without v2 or v3.
    pub fn tag_is_right(&self, tag: &ParsedTag, tid: u32, data: &[u8]) -> bool {
        self.tag_has(tag, || self.tag_checksum(tid, data))
    }
    /// [`Format::tag_is_right`] of a logged block that is a page, whose own checksum is known.
    pub fn tag_of_page_is_right(&self, tag: &ParsedTag, tid: u32, page: &Page) -> bool {
        self.tag_has(tag, || page.crc32c(crc32c(self.seed, &tid.to_be_bytes())))
    }
    fn tag_has(&self, tag: &ParsedTag, sum: impl FnOnce() -> u32) -> bool {
        if self.has(INCOMPAT_CSUM_V3) {
            return tag.checksum == sum();
        }
        !self.has(INCOMPAT_CSUM_V2) || tag.checksum == sum() & 0xFFFF
    }
}

/// A tag, whatever its layout on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ParsedTag {
    /// Home address, file-system blocks.
    pub block: u64,
    /// [`TAG_ESCAPE`], [`TAG_SAME_UUID`], [`TAG_LAST`].
    pub flags: u16,
    /// Checksum; 16 bits of it with v2, none before.
    pub checksum: u32,
}

impl SuperBlock {
    /// CRC-32C over the structure with its checksum field zero.
    pub fn checksum_now(&self) -> u32 {
        let mut copy = *self;
        copy.checksum = U32::new(0);
        crc32c(!0, copy.as_bytes())
    }
    /// Length of the fast-commit area if the feature is on, else 0.
    pub fn fast_commit_blocks(&self) -> u32 {
        match (Format::of(self).has(INCOMPAT_FAST_COMMIT), self.num_fc_blks.get()) {
            (false, _) => 0,
            (true, 0) => FAST_COMMIT_BLOCKS_DEFAULT,
            (true, n) => n,
        }
    }
}

/// A control block of `block_bytes` with its header and zeroes.
pub fn control_block(block_bytes: usize, blocktype: u32, tid: u32) -> Vec<u8> {
    let mut block = vec![0; block_bytes];
    put_header(&mut block, blocktype, tid);
    block
}

/// A block that looks like a control block as the log holds it: without the magic number, and with
/// [`TAG_ESCAPE`] in its tag. `None`: it looks like none, and is logged as it is.
pub fn escaped(block: &[u8]) -> Option<Vec<u8>> {
    let rest = block.strip_prefix(&MAGIC.to_be_bytes())?;
    Some([&[0; 4], rest].concat())
}

/// The header of a control block.
pub fn header(blocktype: u32, tid: u32) -> Header {
    Header { magic: U32::new(MAGIC), blocktype: U32::new(blocktype), sequence: U32::new(tid) }
}

/// Puts the header of a control block at the start of `block`.
pub fn put_header(block: &mut [u8], blocktype: u32, tid: u32) {
    block[..size_of::<Header>()].copy_from_slice(header(blocktype, tid).as_bytes());
}

/// Big-endian word at byte `at`, if it is there.
pub fn word(block: &[u8], at: usize) -> Option<u32> {
    let bytes = block.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Does the sequence number `a` come after `b`? Numbers wrap. `tid_gt`.
pub const fn tid_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// Is the sequence number `a` the same as `b` or after it? `tid_geq`.
pub const fn tid_at_least(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) >= 0
}

const CRC32_BE_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 != 0 { (crc << 1) ^ 0x04C1_1DB7 } else { crc << 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// CRC-32 with the most significant bit first, no inversion: the kernel's `crc32_be()`, checksum
/// v1.
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(seed, |crc, b| (crc << 8) ^ CRC32_BE_TABLE[usize::from((crc >> 24) as u8 ^ b)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_be_is_the_one_of_bzip2() {
        assert_eq!(!crc32_be(!0, b"123456789"), 0xFC89_1918);
    }

    #[test]
    fn tag_sizes_are_the_kernels() {
        let f = |incompat| Format { compat: 0, incompat, seed: 0 }.tag_bytes();
        assert_eq!(f(0), 8);
        assert_eq!(f(INCOMPAT_64BIT), 12);
        assert_eq!(f(INCOMPAT_CSUM_V2), 10);
        assert_eq!(f(INCOMPAT_CSUM_V2 | INCOMPAT_64BIT), 14);
        assert_eq!(f(INCOMPAT_CSUM_V3), 16);
        assert_eq!(f(INCOMPAT_CSUM_V3 | INCOMPAT_64BIT), 16);
    }

    #[test]
    fn every_tag_layout_reads_back_what_was_written() {
        for csum in [0, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3] {
            for wide in [0, INCOMPAT_64BIT] {
                let f = Format { compat: 0, incompat: csum | wide, seed: 77 };
                let mut block = control_block(1024, DESCRIPTOR, 9);
                let home = if wide != 0 { 0x12_3456_789A } else { 0x3456_789A };
                let data = [0x5A; 1024];
                let tag = ParsedTag {
                    block: home,
                    flags: TAG_ESCAPE | TAG_LAST,
                    checksum: f.tag_checksum(9, &data),
                };
                f.put_tag(&mut block, 12, &tag);
                let read = f.tag(&block, 12).expect("it fits");
                assert_eq!((read.block, read.flags), (tag.block, tag.flags));
                assert!(f.tag_is_right(&read, 9, &data));
                assert_eq!(f.tag_is_right(&read, 10, &data), csum == 0);
                assert!(f.tag(&block, 1024 - 4).is_none());
            }
        }
    }

    #[test]
    fn checksums_of_a_page_are_those_of_its_bytes() {
        for incompat in [0, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3] {
            let f = Format { compat: 0, incompat, seed: 0x1234_5678 };
            let data: Vec<u8> = (0..4096u32).map(|n| (n * n * 7 + 3) as u8).collect();
            let (mut tail, mut commit) = (data.clone(), data.clone());
            f.set_tail(&mut tail);
            f.set_commit(&mut commit);
            let tag = ParsedTag { checksum: f.tag_checksum(9, &data), ..ParsedTag::default() };
            let tag = ParsedTag {
                checksum: if incompat == INCOMPAT_CSUM_V2 {
                    tag.checksum & 0xFFFF
                } else {
                    tag.checksum
                },
                ..tag
            };
            let all = |bytes: [&[u8]; 3]| {
                let pages = bytes.map(Page::from_bytes);
                let of_pages = [
                    f.tail_of_page_is_right(&pages[0]),
                    f.commit_of_page_is_right(&pages[1]),
                    f.tag_of_page_is_right(&tag, 9, &pages[2]),
                ];
                let of_bytes = [
                    f.tail_is_right(bytes[0]),
                    f.commit_is_right(bytes[1]),
                    f.tag_is_right(&tag, 9, bytes[2]),
                ];
                assert_eq!(of_pages, of_bytes);
                of_pages
            };
            assert_eq!(all([&tail, &commit, &data]), [true; 3]);
            // Each byte counts, also those behind and within the fields.
            for at in [0, 15, 16, 19, 20, 2000, 4091, 4092, 4095] {
                let flipped = |bytes: &[u8]| {
                    let mut bytes = bytes.to_vec();
                    bytes[at] ^= 0x40;
                    bytes
                };
                let [a, b, c] = [&tail, &commit, &data].map(|bytes| flipped(bytes));
                assert_eq!(all([&a, &b, &c]), [incompat == 0; 3], "byte {at}");
            }
        }
    }

    #[test]
    fn sequence_numbers_compare_across_their_wrap() {
        assert!(tid_after(1, u32::MAX));
        assert!(!tid_after(u32::MAX, 1));
        assert!(tid_at_least(5, 5) && !tid_after(5, 5));
    }
}
