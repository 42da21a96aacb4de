//! The first pass: where does the log end?

use wp_base::FsResult;
use zerocopy::FromBytes;

use super::ring::{Block, Ring, Step, Walk};
use super::{RecoverPolicy, ScanEnd, bad_checksum};
use crate::disk::{self, CommitBlock, SuperBlock};
use crate::site;

/// What the scan found.
pub(super) struct Found {
    pub end_tid: u32,
    pub newest_seen: u32,
    pub why: ScanEnd,
    pub failed: Option<u32>,
    pub head: u32,
    /// Was there a revoke block anywhere?
    pub saw_revokes: bool,
}

/// State of the scan.
struct Scan<'p> {
    policy: &'p RecoverPolicy,
    tid: u32,
    /// Where the log ends although later transactions were seen.
    end: Option<u32>,
    failed: Option<u32>,
    newest_seen: u32,
    head: u32,
    /// Running checksum v1.
    crc: u32,
    last_time: u64,
    /// A control block of this transaction has a wrong checksum: its commit time decides.
    doubtful: bool,
}

/// What a commit record means for the scan.
enum Verdict {
    Accept,
    /// Counts as a gap, but the scan goes on behind it.
    Gap,
    /// Not accepted; the scan looks at the next block for the same transaction, as the kernel does.
    Reject,
    Stale,
}

/// Finds the end of the log. Source: `do_one_pass`, `PASS_SCAN`.
pub(super) fn scan(
    ring: &Ring<'_, '_>,
    sb: &SuperBlock,
    policy: &RecoverPolicy,
) -> FsResult<Found> {
    let tid = sb.sequence.get();
    let mut s = Scan {
        policy,
        tid,
        end: None,
        failed: None,
        newest_seen: tid,
        head: sb.start.get(),
        crc: !0,
        last_time: 0,
        doubtful: false,
    };
    let mut walk = Walk::new(ring, sb);
    let mut saw_revokes = false;
    let why = loop {
        let kind = match walk.step(s.tid)? {
            Step::Control(kind) => kind,
            Step::End(why) => break why,
        };
        match kind {
            disk::DESCRIPTOR => {
                s.check_tail(ring, &walk.block)?;
                if !s.pass_descriptor(ring, &mut walk) {
                    break ScanEnd::Unreadable;
                }
            }
            disk::REVOKE => {
                saw_revokes = true;
                s.check_tail(ring, &walk.block)?;
            }
            _ => match s.judge_commit(ring, &walk.block)? {
                Verdict::Accept => {
                    s.tid = s.tid.wrapping_add(1);
                    s.newest_seen = s.tid;
                    if s.end.is_none() {
                        s.head = walk.at;
                    }
                }
                Verdict::Gap => {
                    s.tid = s.tid.wrapping_add(1);
                    s.newest_seen = s.tid;
                }
                Verdict::Reject => {}
                Verdict::Stale => break ScanEnd::Stale,
            },
        }
    };
    let why = if s.end.is_some() { ScanEnd::BadChecksum } else { why };
    Ok(Found {
        end_tid: s.end.unwrap_or(s.tid),
        newest_seen: s.newest_seen,
        why,
        failed: s.failed,
        head: s.head,
        saw_revokes,
    })
}

impl Scan<'_> {
    /// A wrong tail makes the transaction doubtful, or in older kernels the recovery fail.
    fn check_tail(&mut self, ring: &Ring<'_, '_>, block: &Block) -> FsResult<()> {
        if block.tail_is_right(&ring.format) || !site::SCAN_CONTROL.on() {
            return Ok(());
        }
        if !self.policy.stale_by_time() {
            return Err(bad_checksum("control block", self.tid));
        }
        self.doubtful = true;
        Ok(())
    }

    /// Goes past a descriptor's blocks; with checksum v1 through them. False if one cannot be read.
    fn pass_descriptor(&mut self, ring: &Ring<'_, '_>, walk: &mut Walk<'_, '_, '_>) -> bool {
        let tags = walk.tags();
        if !ring.format.csum_v1() || self.doubtful || self.end.is_some() {
            walk.skip(tags);
            return true;
        }
        self.crc = disk::crc32_be(self.crc, &walk.block);
        let mut data = vec![0; ring.block_bytes()];
        for _ in 0..tags {
            if ring.read(walk.at, &mut data).is_err() {
                return false;
            }
            self.crc = disk::crc32_be(self.crc, &data);
            walk.skip(1);
        }
        true
    }

    fn judge_commit(&mut self, ring: &Ring<'_, '_>, block: &Block) -> FsResult<Verdict> {
        let Ok((c, _)) = CommitBlock::read_from_prefix(block) else { return Ok(Verdict::Reject) };
        let time = c.commit_sec.get();
        if self.doubtful {
            if time >= self.last_time {
                return Err(bad_checksum("control block", self.tid));
            }
            return Ok(Verdict::Stale);
        }
        let mut right = true;
        if ring.format.csum_v1() {
            if let Some(end) = self.end {
                // A complete transaction behind a wrong one: not an interrupted commit.
                self.failed = Some(end);
                return Ok(Verdict::Reject);
            }
            let found = c.checksum[0].get();
            let is_set = self.crc == found
                && c.checksum_type == disk::CHECKSUM_TYPE_CRC32
                && c.checksum_size == disk::CHECKSUM_SIZE_CRC32;
            let is_unset = found == 0 && c.checksum_type == 0 && c.checksum_size == 0;
            right = is_set || is_unset;
            if right {
                self.crc = !0;
            }
        }
        right = right
            && (block.commit_is_right(&ring.format)
                || (ring.format.commit_head_is_right(block) && self.policy.partial_commit())
                || !site::SCAN_RECORD.on());
        if right {
            self.last_time = time;
            return Ok(Verdict::Accept);
        }
        if time < self.last_time && self.policy.stale_by_time() {
            return Ok(Verdict::Stale);
        }
        self.end = Some(self.tid);
        if ring.format.has(disk::INCOMPAT_ASYNC_COMMIT) {
            self.last_time = time;
            return Ok(Verdict::Gap);
        }
        self.failed = Some(self.tid);
        Ok(Verdict::Reject)
    }
}
