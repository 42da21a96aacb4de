//! The second and third pass: what was revoked, and everything else to its home.

use std::collections::BTreeMap;
use std::mem::size_of;

use wp_base::{FsError, FsResult};
use zerocopy::FromBytes;

use super::ring::{Block, Ring, Step, Tags, Walk};
use super::{RecoveryReport, bad_checksum};
use crate::disk::{self, RevokeHeader, SuperBlock};
use crate::site;

/// The passes must agree on where the log ends.
fn must_end(tid: u32, end: u32) -> FsResult<()> {
    if tid == end {
        return Ok(());
    }
    Err(FsError::corrupt("jbd2 log", "end", 0, u64::from(tid), format!("transaction {end}")))
}

/// Block -> newest transaction that revoked it. Source: `PASS_REVOKE`.
pub(super) fn collect_revokes(
    ring: &Ring<'_, '_>,
    sb: &SuperBlock,
    end: u32,
    report: &mut RecoveryReport,
) -> FsResult<BTreeMap<u64, u32>> {
    let mut revoked = BTreeMap::new();
    let mut tid = sb.sequence.get();
    let mut walk = Walk::new(ring, sb);
    while !disk::tid_at_least(tid, end) {
        match walk.step(tid)? {
            Step::End(_) => break,
            Step::Control(disk::DESCRIPTOR) => {
                if !walk.block.tail_is_right(&ring.format) && site::SEEN_CONTROL.on() {
                    return Err(bad_checksum("descriptor", tid));
                }
                let tags = walk.tags();
                walk.skip(tags);
            }
            Step::Control(disk::REVOKE) => {
                report.revoke_records += read_revokes(ring, &walk.block, tid, &mut revoked)?;
            }
            Step::Control(_) => tid = tid.wrapping_add(1),
        }
    }
    must_end(tid, end)?;
    Ok(revoked)
}

/// Reads one revoke block. Errors: `Corrupt` if it claims more than fits.
fn read_revokes(
    ring: &Ring<'_, '_>,
    block: &[u8],
    tid: u32,
    revoked: &mut BTreeMap<u64, u32>,
) -> FsResult<u64> {
    let Ok((h, _)) = RevokeHeader::read_from_prefix(block) else { return Ok(0) };
    let used = h.count.get() as usize;
    if used > block.len() - ring.format.tail_bytes() {
        return Err(FsError::corrupt(
            "jbd2 revoke block",
            "r_count",
            0,
            used as u64,
            format!("at most {}", block.len() - ring.format.tail_bytes()),
        ));
    }
    let record = ring.format.revoke_bytes();
    let bytes = block.get(size_of::<RevokeHeader>()..used).unwrap_or(&[]);
    let mut count = 0;
    for r in bytes.chunks_exact(record) {
        let home = r.iter().fold(0u64, |n, b| (n << 8) | u64::from(*b));
        let newest = revoked.entry(home).or_insert(tid);
        if disk::tid_after(tid, *newest) {
            *newest = tid;
        }
        count += 1;
    }
    Ok(count)
}

/// Writes every block that is not revoked to its home. Source: `PASS_REPLAY`.
pub(super) fn replay(
    ring: &Ring<'_, '_>,
    sb: &SuperBlock,
    end: u32,
    revoked: &BTreeMap<u64, u32>,
    report: &mut RecoveryReport,
) -> FsResult<()> {
    let mut tid = sb.sequence.get();
    let mut walk = Walk::new(ring, sb);
    let mut data = Block::new(ring.block_bytes());
    // As much as possible is recovered; the first failure is the answer.
    let mut failure = None;
    while !disk::tid_at_least(tid, end) {
        match walk.step(tid)? {
            Step::End(_) => break,
            Step::Control(disk::DESCRIPTOR) => {
                if !walk.block.tail_is_right(&ring.format) && site::SEEN_CONTROL.on() {
                    return Err(bad_checksum("descriptor", tid));
                }
                let descriptor = std::mem::replace(&mut walk.block, Block::new(0));
                for tag in Tags::new(&ring.format, &descriptor) {
                    let at = walk.at;
                    walk.skip(1);
                    let newest = revoked.get(&tag.block);
                    if newest.is_some_and(|newest| !disk::tid_after(tid, *newest))
                        && site::REVOKED.on()
                    {
                        report.blocks_revoked += 1;
                        continue;
                    }
                    match replay_block(ring, at, tid, &tag, &mut data) {
                        Ok(()) => report.blocks_replayed += 1,
                        Err(e) => failure = failure.or(Some(e)),
                    }
                }
                walk.block = descriptor;
            }
            Step::Control(disk::COMMIT) => tid = tid.wrapping_add(1),
            Step::Control(_) => {}
        }
    }
    must_end(tid, end)?;
    failure.map_or(Ok(()), Err)
}

fn replay_block(
    ring: &Ring<'_, '_>,
    at: u32,
    tid: u32,
    tag: &disk::ParsedTag,
    data: &mut Block,
) -> FsResult<()> {
    ring.read_block(at, data)?;
    if !data.tag_is_right(&ring.format, tag, tid) && site::SEEN_BLOCK.on() {
        return Err(bad_checksum("logged block", tid));
    }
    if tag.flags & disk::TAG_ESCAPE != 0 && site::UNESCAPE.on() {
        data.make_mut()[..4].copy_from_slice(&disk::MAGIC.to_be_bytes());
    }
    let home = tag.block.checked_mul(data.len() as u64).ok_or(FsError::Io)?;
    data.lay(ring.dev, home)
}
