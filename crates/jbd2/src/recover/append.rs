//! A transaction that a recovery adds: what no transaction of the log holds (fast commits, orphans)
//! goes through the log, so that a power failure at any write leaves all of it or nothing.
//!
//! Picture:    superblock, the log begins here -> barrier -> descriptors, blocks -> barrier ->
//!             commit record -> barrier -> blocks at home -> barrier. Whoever called empties the
//!             log.
//! Invariants: before the first write all that the log held is at home, and durable.
//! Source:     `jbd2_journal_commit_transaction`, `jbd2_log_do_checkpoint`.

use std::mem::size_of;

use wp_base::{BlockSize, FsError, FsResult};
use wp_medium::Overlay;
use zerocopy::byteorder::big_endian::U32;

use super::ring::Ring;
use super::super_block::{self, write_super};
use super::{RecoveryReport, read_super};
use crate::disk::{self, Format, ParsedTag};
use crate::log::LogMap;

/// Blocks that change together, and their place in a log whose transactions are all at home.
pub struct Addition<'a> {
    /// Log block of the first descriptor.
    pub at: u32,
    /// Id of the transaction; nothing behind `at` in the log has it.
    pub tid: u32,
    /// Time of the commit, seconds since 1970.
    pub secs: u64,
    /// (home, contents of a whole block), each home once, at least one.
    pub blocks: &'a [(u64, Vec<u8>)],
}

impl<'a> Addition<'a> {
    /// Behind what a replay found: fast commits, which are of a transaction that is over with it.
    pub fn behind(report: &RecoveryReport, secs: u64, blocks: &'a [(u64, Vec<u8>)]) -> Self {
        Addition { at: report.head, tid: report.end_tid, secs, blocks }
    }

    /// Logs the blocks, and writes them home. The log block behind it comes back.
    ///
    /// Units:  `bs` is the file system's block size, which must be the log's.
    /// Errors: `NoSpace` where the log is too short; `Io` for a log with holes. Nothing was written
    ///         then.
    pub fn commit(&self, dev: &Overlay<'_>, log: &LogMap, bs: BlockSize) -> FsResult<u32> {
        let mut sb = read_super(dev, log, bs)?;
        let (first, end) = Ring::bounds(&sb)?;
        let ring = u64::from(end - first);
        let per_descriptor = Format::of(&sb).tags_per_descriptor(bs.bytes() as usize) as usize;
        let length = self.blocks.len() + self.blocks.len().div_ceil(per_descriptor) + 1;
        // The block behind the record must not be the first one again.
        if length as u64 >= ring {
            return Err(FsError::NoSpace);
        }
        let position = |n: usize| {
            let at = (u64::from(self.at.saturating_sub(first)) + n as u64) % ring;
            first + at as u32
        };
        let bytes = |n: usize| {
            let block = log.block(position(n)).ok_or(FsError::Io)?;
            Ok::<u64, FsError>(block * u64::from(bs.bytes()))
        };
        let places = (0..length).map(bytes).collect::<FsResult<Vec<u64>>>()?;
        let (blocks, record) = self.records(&sb, bs);
        sb.start = U32::new(position(0));
        sb.sequence = U32::new(self.tid);
        write_super(dev, log, bs, sb)?;
        dev.barrier();
        for (place, block) in places.iter().zip(&blocks) {
            dev.write_at(*place, block)?;
        }
        dev.barrier();
        dev.write_at(places[length - 1], &record)?;
        dev.barrier();
        for (home, block) in self.blocks {
            dev.write_at(home * u64::from(bs.bytes()), block)?;
        }
        dev.barrier();
        Ok(position(length))
    }

    /// Descriptors and blocks in the order of the log, and the commit record.
    fn records(&self, sb: &disk::SuperBlock, bs: BlockSize) -> (Vec<Vec<u8>>, Vec<u8>) {
        let format = Format::of(sb);
        let bytes = bs.bytes() as usize;
        let mut out = Vec::new();
        for batch in self.blocks.chunks(format.tags_per_descriptor(bytes) as usize) {
            let mut descriptor = disk::control_block(bytes, disk::DESCRIPTOR, self.tid);
            let mut at = size_of::<disk::Header>();
            let mut logged = Vec::new();
            for (n, (home, block)) in batch.iter().enumerate() {
                let escaped = disk::escaped(block);
                let mut flags = if escaped.is_some() { disk::TAG_ESCAPE } else { 0 };
                if n > 0 {
                    flags |= disk::TAG_SAME_UUID;
                }
                if n + 1 == batch.len() {
                    flags |= disk::TAG_LAST;
                }
                let block = escaped.unwrap_or_else(|| block.clone());
                let sums = format.csum_v2or3();
                let checksum = if sums { format.tag_checksum(self.tid, &block) } else { 0 };
                let tag = ParsedTag { block: *home, flags, checksum };
                at = match n {
                    0 => format.put_first_tag(&mut descriptor, at, &tag, &sb.uuid),
                    _ => format.put_tag(&mut descriptor, at, &tag),
                };
                logged.push(block);
            }
            format.set_tail(&mut descriptor);
            out.push(descriptor);
            out.append(&mut logged);
        }
        let crc = out.iter().fold(!0, |crc, block| disk::crc32_be(crc, block));
        let mut record = disk::control_block(bytes, disk::COMMIT, self.tid);
        format.put_record(&mut record, (self.secs, 0), crc);
        format.set_commit(&mut record);
        (out, record)
    }
}

/// Empties a log behind an [`Addition`] whose blocks are at home.
///
/// Shape:  `head`: what [`Addition::commit`] gave, if the kernel records it.
/// Errors: those of reading the superblock.
pub fn empty(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    added: &Addition<'_>,
    head: Option<u32>,
) -> FsResult<()> {
    super_block::mark_empty(dev, log, bs, added.tid.wrapping_add(1), head)?;
    dev.barrier();
    Ok(())
}
