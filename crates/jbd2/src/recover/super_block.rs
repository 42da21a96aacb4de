//! The superblock, before and after a recovery.

use std::mem::size_of;

use wp_base::{BlockSize, FsError, FsResult};
use wp_medium::{Overlay, View};
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::{self, Format, SuperBlock};
use crate::log::LogMap;
use crate::site;

/// Reads the journal's superblock. Errors: `Corrupt` if the log has no block 0, `Io`.
pub fn read_super(dev: &dyn View, log: &LogMap, bs: BlockSize) -> FsResult<SuperBlock> {
    let mut bytes = [0u8; size_of::<SuperBlock>()];
    dev.read_at(super_at(log, bs)?, &mut bytes)?;
    SuperBlock::read_from_bytes(&bytes).map_err(|_| FsError::Io)
}

/// Byte address of the superblock. A log of 512-byte blocks would split it; none exists.
pub(super) fn super_at(log: &LogMap, bs: BlockSize) -> FsResult<u64> {
    let at = log.block(0).and_then(|b| b.checked_mul(u64::from(bs.bytes())));
    at.ok_or_else(|| FsError::corrupt("jbd2 log map", "block 0", 0, 0, "a mapped block"))
}

/// The conditions on a superblock; `at` is its byte address. Source: `journal_get_superblock`.
pub fn verify_super(
    sb: &SuperBlock,
    log: &LogMap,
    bs: BlockSize,
    at: u64,
    unknown_incompat: impl Fn(u32) -> u32,
) -> FsResult<()> {
    let bad = |field: &'static str, found: u64, expected: &str| {
        Err(FsError::corrupt("jbd2 superblock", field, at, found, expected))
    };
    let version = sb.header.blocktype.get();
    if sb.header.magic.get() != disk::MAGIC {
        return bad("h_magic", u64::from(sb.header.magic.get()), "0xc03b3998");
    }
    if version != disk::SUPER_V1 && version != disk::SUPER_V2 {
        return bad("h_blocktype", u64::from(version), "3 or 4");
    }
    if sb.blocksize.get() != bs.bytes() {
        return bad("s_blocksize", u64::from(sb.blocksize.get()), &bs.bytes().to_string());
    }
    let (first, maxlen) = (sb.first.get(), sb.maxlen.get());
    if maxlen > log.len() {
        return bad("s_maxlen", u64::from(maxlen), &format!("at most {}", log.len()));
    }
    if first == 0 || first >= maxlen {
        return bad("s_first", u64::from(first), &format!("1..{maxlen}"));
    }
    if sb.start.get() >= maxlen {
        return bad("s_start", u64::from(sb.start.get()), &format!("0..{maxlen}"));
    }
    let f = Format::of(sb);
    let unknown = unknown_incompat(f.incompat);
    if unknown != 0 {
        return Err(FsError::Unsupported(format!("jbd2 features {unknown:#x}")));
    }
    if version == disk::SUPER_V2 && sb.feature_ro_compat.get() != 0 {
        return Err(FsError::Unsupported(format!(
            "jbd2 ro features {:#x}",
            sb.feature_ro_compat.get()
        )));
    }
    let both = disk::INCOMPAT_CSUM_V2 | disk::INCOMPAT_CSUM_V3;
    if f.incompat & both == both || (f.csum_v2or3() && f.csum_v1()) {
        return bad("s_feature_incompat", u64::from(f.incompat), "one kind of checksum");
    }
    if f.csum_v2or3() {
        if sb.checksum_type != disk::CHECKSUM_TYPE_CRC32C {
            return bad("s_checksum_type", u64::from(sb.checksum_type), "4 (crc32c)");
        }
        if sb.checksum.get() != sb.checksum_now() && site::SEEN_SUPER.on() {
            return bad(
                "s_checksum",
                u64::from(sb.checksum.get()),
                &format!("{:#x}", sb.checksum_now()),
            );
        }
    }
    Ok(())
}

/// Writes the superblock of an empty log; `head`: of a kernel that records it.
pub(super) fn mark_empty(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    sequence: u32,
    head: Option<u32>,
) -> FsResult<()> {
    let mut sb = read_super(dev, log, bs)?;
    sb.start = U32::new(0);
    sb.sequence = U32::new(sequence);
    if Format::of(&sb).has(disk::INCOMPAT_IJOURNAL) {
        // An empty log has no i-transactions, and any kernel may use it.
        sb.feature_incompat = U32::new(sb.feature_incompat.get() & !disk::INCOMPAT_IJOURNAL);
    }
    if let Some(head) = head {
        sb.head = U32::new(head);
    }
    write_super(dev, log, bs, sb)
}

/// Forgets the recorded error, which is the file system's business from then on.
///
/// Source: `jbd2_journal_clear_err`, `jbd2_journal_ack_err`.
pub fn clear_errno(dev: &Overlay<'_>, log: &LogMap, bs: BlockSize) -> FsResult<()> {
    let mut sb = read_super(dev, log, bs)?;
    sb.errno = U32::new(0);
    write_super(dev, log, bs, sb)
}

/// Writes the superblock, sealed.
pub(super) fn write_super(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    mut sb: SuperBlock,
) -> FsResult<()> {
    if Format::of(&sb).csum_v2or3() {
        sb.checksum = U32::new(sb.checksum_now());
    }
    dev.write_at(super_at(log, bs)?, sb.as_bytes())
}
