//! A transaction of a recovery: what follows the replay (orphans) goes through the log, so that a
//! power cut at any write leaves all of it or nothing.
//!
//! Picture:    descriptors, blocks, commit record -> barrier -> superblock with the log's start ->
//!             barrier -> blocks at home -> barrier -> superblock of an empty log.
//! Source:     `jbd2_journal_commit_transaction`, `jbd2_log_do_checkpoint`.

use std::mem::size_of;

use wp_base::{BlockSize, FsError, FsResult};
use wp_medium::Overlay;
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::ring::Ring;
use super::super_block::{self, write_super};
use super::{RecoverPolicy, RecoveryReport, read_super};
use crate::disk::{self, CommitBlock, Format, ParsedTag};
use crate::log::LogMap;

/// Changes blocks of the device together: logs them in an empty log, writes them home, and empties
/// the log again, with barriers between.
///
/// Shape:  `blocks`: (home, contents of a whole block), each home once.
/// Units:  `secs`: time of the commit, seconds since 1970.
/// Errors: `Corrupt` for a superblock that no log can have, or that says that the log is not empty;
///         `NoSpace` where the log is too short for the transaction.
pub fn commit_blocks(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    policy: &RecoverPolicy,
    blocks: &[(u64, Vec<u8>)],
    secs: u64,
) -> FsResult<()> {
    let mut sb = read_super(dev, log, bs)?;
    let at = super_block::super_at(log, bs)?;
    super_block::verify_super(&sb, log, bs, at, policy.incompat_known)?;
    if sb.start.get() != 0 {
        let (found, expected) = (sb.start.get().into(), "0: an empty log");
        return Err(FsError::corrupt("jbd2 superblock", "s_start", at, found, expected));
    }
    let records = transaction(&sb, sb.sequence.get(), bs, blocks, secs);
    let (first, end) = Ring::bounds(&sb)?;
    let after = u64::from(first) + records.len() as u64;
    // The block behind the record must not be the first one again.
    if after >= u64::from(end) {
        return Err(FsError::NoSpace);
    }
    for (n, bytes) in (first..).zip(&records) {
        let block = log.block(n).ok_or(FsError::Io)?;
        dev.write_at(block * u64::from(bs.bytes()), bytes)?;
    }
    dev.barrier();
    sb.start = U32::new(first);
    write_super(dev, log, bs, sb)?;
    dev.barrier();
    for (home, bytes) in blocks {
        dev.write_at(home * u64::from(bs.bytes()), bytes)?;
    }
    dev.barrier();
    sb.start = U32::new(0);
    sb.sequence = U32::new(sb.sequence.get().wrapping_add(1));
    if policy.record_head {
        sb.head = U32::new(u32::try_from(after).unwrap_or(first));
    }
    write_super(dev, log, bs, sb)?;
    dev.barrier();
    Ok(())
}

/// Changes blocks of the device together, behind the transactions of a log that were replayed and
/// whose blocks are home: one more transaction is logged, then written home. The log stays as long
/// as it is. With it fast commits are of a transaction that is over.
///
/// No if the log has no room, or has seen later transactions: then nothing was written.
///
/// Shape, units: as [`commit_blocks`]. Errors: `Io` for a log with holes.
pub fn append_blocks(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    report: &RecoveryReport,
    blocks: &[(u64, Vec<u8>)],
    secs: u64,
) -> FsResult<bool> {
    let sb = read_super(dev, log, bs)?;
    let tid = report.end_tid;
    let records = transaction(&sb, tid, bs, blocks, secs);
    let (first, end) = Ring::bounds(&sb)?;
    let (ring, start) = (u64::from(end - first), u64::from(sb.start.get()));
    let used = (u64::from(report.head) + ring).saturating_sub(start) % ring;
    let is_full = used == 0 && report.transactions() > 0;
    let is_last = report.next_sequence == tid.wrapping_add(1);
    if is_full || !is_last || used + records.len() as u64 >= ring {
        return Ok(false);
    }
    let (record, rest) = records.split_last().ok_or(FsError::Io)?;
    let place = |n: usize| {
        let at = (u64::from(report.head.saturating_sub(first)) + n as u64) % ring;
        let block = u32::try_from(at).ok().and_then(|at| log.block(first + at));
        Ok::<u64, FsError>(block.ok_or(FsError::Io)? * u64::from(bs.bytes()))
    };
    for (n, bytes) in rest.iter().enumerate() {
        dev.write_at(place(n)?, bytes)?;
    }
    dev.barrier();
    dev.write_at(place(rest.len())?, record)?;
    dev.barrier();
    for (home, bytes) in blocks {
        dev.write_at(home * u64::from(bs.bytes()), bytes)?;
    }
    Ok(true)
}

/// The blocks of the log, in order.
fn transaction(
    sb: &disk::SuperBlock,
    tid: u32,
    bs: BlockSize,
    blocks: &[(u64, Vec<u8>)],
    secs: u64,
) -> Vec<Vec<u8>> {
    let format = Format::of(sb);
    let bytes = bs.bytes() as usize;
    let mut out = Vec::new();
    for batch in blocks.chunks(format.tags_per_descriptor(bytes) as usize) {
        let mut descriptor = disk::control_block(bytes, disk::DESCRIPTOR, tid);
        let mut at = size_of::<disk::Header>();
        let mut logged = Vec::new();
        for (n, (home, block)) in batch.iter().enumerate() {
            let mut block = block.clone();
            let mut flags = 0;
            if block.starts_with(&disk::MAGIC.to_be_bytes()) {
                block[..4].fill(0);
                flags |= disk::TAG_ESCAPE;
            }
            if n > 0 {
                flags |= disk::TAG_SAME_UUID;
            }
            if n + 1 == batch.len() {
                flags |= disk::TAG_LAST;
            }
            let sum = if format.csum_v2or3() { format.tag_checksum(tid, &block) } else { 0 };
            format.put_tag(&mut descriptor, at, &ParsedTag { block: *home, flags, checksum: sum });
            at += format.tag_bytes();
            if n == 0 {
                descriptor[at..at + disk::UUID_BYTES].copy_from_slice(&sb.uuid);
                at += disk::UUID_BYTES;
            }
            logged.push(block);
        }
        format.set_tail(&mut descriptor);
        out.push(descriptor);
        out.append(&mut logged);
    }
    let crc = out.iter().fold(!0, |crc, block| disk::crc32_be(crc, block));
    out.push(commit_record(format, tid, bytes, secs, crc));
    out
}

fn commit_record(format: Format, tid: u32, bytes: usize, secs: u64, crc: u32) -> Vec<u8> {
    let mut block = disk::control_block(bytes, disk::COMMIT, tid);
    let mut record = CommitBlock::new_zeroed();
    record.header = disk::header(disk::COMMIT, tid);
    record.commit_sec = U64::new(secs);
    if format.csum_v1() {
        record.checksum_type = disk::CHECKSUM_TYPE_CRC32;
        record.checksum_size = disk::CHECKSUM_SIZE_CRC32;
        record.checksum[0] = U32::new(crc);
    }
    block[..size_of::<CommitBlock>()].copy_from_slice(record.as_bytes());
    format.set_commit(&mut block);
    block
}
