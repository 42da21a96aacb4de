//! Logs: the newest with a super root, and what the summaries of all segments in use say.

use std::collections::BTreeMap;

use wp_base::{Corruption, FsError, FsResult};

use crate::disk::summary::{data_sum, flag, summary_sum};
use crate::disk::{Summary, SummaryHead, SuperBlock, ino};

use super::tables::Usage;
use super::{Kind, Owner, Report, Volume};

/// The newest super root.
pub(super) struct Tip {
    /// Its block.
    pub block: u64,
    /// The checkpoint that it ends.
    pub cno: u64,
}

/// The head and the summary of a log, if head and both checksums are right. `seq`: its sequence
/// number, if known; `says`: will anybody hear what is wrong with it? If not, a log whose checksum
/// is wrong is not read.
fn log_at(
    volume: &Volume<'_>,
    (start, end): (u64, u64),
    seq: Option<u64>,
    says: bool,
) -> FsResult<Result<(SummaryHead, Vec<u8>), Corruption>> {
    let g = &volume.g;
    let mut bytes = volume.read(start)?;
    let head = SummaryHead::load(&bytes);
    let wrong = |field, found, expected: String| {
        let (structure, at) = ("nilfs2 log", g.byte_of(start));
        Ok(Err(Corruption { structure, field, at, found, expected }))
    };
    if head.magic.get() != SummaryHead::MAGIC {
        return wrong("ss_magic", head.magic.get().into(), format!("{:#x}", SummaryHead::MAGIC));
    }
    if let Some(seq) = seq.filter(|s| *s != head.seq.get()) {
        return wrong("ss_seq", head.seq.get(), seq.to_string());
    }
    let blocks = u64::from(head.nblocks.get());
    if blocks == 0 || start + blocks > end {
        return wrong("ss_nblocks", blocks, format!("1 to {}", end - start));
    }
    let append = |bytes: &mut Vec<u8>, end| {
        (start + (bytes.len() >> g.block_bits) as u64..end)
            .try_for_each(|block| volume.read(block).map(|mut more| bytes.append(&mut more)))
    };
    if start + blocks > volume.view.len_bytes() >> g.block_bits {
        return Err(FsError::Io);
    }
    if !head.has_data_sum(volume.view, g, start)? {
        append(&mut bytes, if says { start + blocks } else { start })?;
        let sum = data_sum(g.crc_seed, bytes.chunks(g.block_bytes()));
        return wrong("ss_datasum", head.datasum.get().into(), format!("{sum:#x}"));
    }
    append(&mut bytes, start + head.summary_blocks(g).min(blocks))?;
    let sum = summary_sum(g.crc_seed, &bytes, head.sumbytes.get().into());
    if head.sumsum.get() != sum {
        return wrong("ss_sumsum", head.sumsum.get().into(), format!("{sum:#x}"));
    }
    Ok(Ok((head, bytes)))
}

/// From the log that the super block names along the logs to the newest with a super root.
pub(super) fn newest(
    volume: &Volume<'_>,
    sb: &SuperBlock,
    report: &mut Report,
) -> FsResult<Option<Tip>> {
    let g = &volume.g;
    let (mut start, mut seq) = (sb.last_pseg.get(), sb.last_seq.get());
    let mut cno = sb.last_cno.get();
    if !g.is_in_segment(start) {
        report.add(Kind::SuperBlock, "super block: s_last_pseg", start, "a block of a segment");
        return Ok(None);
    }
    let mut tip = None;
    let mut misses = 0;
    let mut next = g.segment_of(start);
    loop {
        let segment = g.segment_of(start);
        let (_, end) = g.segment(segment);
        match log_at(volume, (start, end), Some(seq), tip.is_none())? {
            Ok((head, _)) => {
                misses = 0;
                start += u64::from(head.nblocks.get());
                next = g.segment_of(head.next.get());
                if head.has(flag::SUPER_ROOT) {
                    tip = Some(Tip { block: start - 1, cno });
                    cno = cno.wrapping_add(1);
                } else if tip.is_none() {
                    let place = "super block: s_last_pseg";
                    report.add(Kind::SuperBlock, place, start, "a log with a super root");
                    return Ok(None);
                }
                if start + 1 < end {
                    continue;
                }
            }
            Err(c) if tip.is_none() => {
                report.corrupt(Kind::Log, "newest log", &c);
                return Ok(None);
            }
            Err(_) => {}
        }
        misses += 1;
        if misses > 1 || next >= g.segments {
            return Ok(tip);
        }
        seq = seq.wrapping_add(1);
        (start, _) = g.segment(next);
    }
}

/// Who has summaries and super roots.
const NOBODY: Owner = Owner { ino: 0, number: 0, offset: None };

/// What the logs of all segments in use say of their blocks: the owner of each.
pub(super) fn of_segments(
    volume: &Volume<'_>,
    usage: &BTreeMap<u64, Usage>,
    report: &mut Report,
) -> FsResult<BTreeMap<u64, Owner>> {
    let g = &volume.g;
    let mut owners = BTreeMap::new();
    for (segment, usage) in usage.iter().filter(|(_, u)| u.blocks > 0 && !u.is_bad) {
        let (mut start, end) = g.segment(*segment);
        let used = (start + usage.blocks).min(end);
        let place = format!("segment {segment}");
        let mut seq = None;
        while start < used {
            let (head, bytes) = match log_at(volume, (start, used), seq, true)? {
                Ok(found) => found,
                Err(c) => {
                    report.corrupt(Kind::Log, &place, &c);
                    break;
                }
            };
            seq = Some(head.seq.get());
            let at = g.byte_of(start);
            let blocks = u64::from(head.nblocks.get());
            match Summary::load(&bytes, g, at) {
                Ok(summary) => {
                    let first = start + head.summary_blocks(g);
                    owners.extend((start..start + blocks).map(|b| (b, NOBODY)));
                    let counted = note(&summary, first, &mut owners);
                    let tail = u64::from(head.has(flag::SUPER_ROOT));
                    if counted + tail != start + blocks {
                        let found = counted + tail - start;
                        report.add(Kind::Log, format!("{place}, block {start}"), found, blocks);
                    }
                }
                Err(c) => report.corrupt(Kind::Log, &place, &c),
            }
            start += blocks;
        }
    }
    Ok(owners)
}

/// Notes who has the blocks of a log from `block` on; the block behind the last.
fn note(summary: &Summary, mut block: u64, owners: &mut BTreeMap<u64, Owner>) -> u64 {
    for file in &summary.files {
        let data = file.data.iter().map(|b| (b, Some(b.offset)));
        for (info, offset) in data.chain(file.nodes.iter().map(|b| (b, None))) {
            let number = if file.ino == ino::DAT { 0 } else { info.virtual_block };
            owners.insert(block, Owner { ino: file.ino, number, offset });
            block += 1;
        }
    }
    block
}
