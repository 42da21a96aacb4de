//! Recovery: finds the end of the log, collects what was revoked, and replays the rest into an
//!           overlay.
//!
//! Picture:    scan (where does the log end?) -> revoke (block -> newest revoking transaction) ->
//!             replay. Then a file system may add a transaction of its own ([`Addition`]).
//! Invariants: 1. pure: reads through the overlay, writes into it, waits for nothing, prints
//!                nothing.
//!             2. no bytes make it panic or run longer than a few passes over the log.
//!             3. a transaction is replayed as a whole or not at all, and none after the first gap.
//! Left out:   fast-commit records: the report says where they would be, ext4 replays them.
//! Source:     Linux 6.1 `fs/jbd2/recovery.c` for the rules; real crashed images for the bytes.

mod append;
mod policy;
mod replay;
mod ring;
mod scan;
mod super_block;

use wp_base::{BlockSize, FsError, FsResult};
use wp_medium::Overlay;

use crate::log::LogMap;

pub use append::{Addition, empty};
pub use policy::{BadCommit, RecoverPolicy, RecoveryReport, ScanEnd};
pub use super_block::{clear_errno, read_super, verify_super};

/// Recovers the log at `log` into `dev`: [`replay_log`], then [`end_recovery`].
///
/// Units:  `bs` is the file system's block size, which must be the log's.
/// Errors: those of both. Blocks may have been replayed before an error is found, as a kernel does.
/// Crash:  stages as the kernel's: what was replayed, then the superblock of the empty log.
/// Source: `jbd2_journal_load`.
pub fn recover(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    policy: &RecoverPolicy,
) -> FsResult<RecoveryReport> {
    let report = replay_log(dev, log, bs, policy, &|_, _| true)?;
    dev.barrier();
    end_recovery(dev, log, bs, policy, &report)?;
    Ok(report)
}

/// Does the file system still give out block `.1` of the device as the log's, with what has been
/// replayed into the overlay so far? The kernel asks before each block (`jbd2_journal_bmap`).
pub type MayRead<'a> = &'a dyn Fn(&Overlay<'_>, u64) -> bool;

/// The three passes over the log; its superblock stays as it is.
///
/// Errors: `Corrupt` for a superblock that no log can have, for a block that `may_read` does not
///         give out, for a checksum error outside of a
///         commit record that a kernel stops at, and for passes that disagree; `Unsupported` for an
///         unknown feature; `Io` where the view cannot be read.
/// Source: `jbd2_journal_recover`, `do_one_pass`.
pub fn replay_log(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    policy: &RecoverPolicy,
    may_read: MayRead<'_>,
) -> FsResult<RecoveryReport> {
    let sb = read_super(dev, log, bs)?;
    let unknown = |incompat| policy.unknown_incompat(incompat);
    verify_super(&sb, log, bs, super_block::super_at(log, bs)?, unknown)?;
    let ring = ring::Ring::new(dev, log, bs, &sb, may_read)?;
    let mut report = RecoveryReport {
        first_tid: sb.sequence.get(),
        end_tid: sb.sequence.get(),
        blocks_replayed: 0,
        blocks_revoked: 0,
        revoke_records: 0,
        scan_end: ScanEnd::Clean,
        failed_commit: None,
        next_sequence: sb.sequence.get().wrapping_add(1),
        head: sb.head.get(),
        fast_commit: ring.fast_commit,
        is_ijournal: ring.format.has(crate::disk::INCOMPAT_IJOURNAL),
        errno: sb.errno.get(),
    };
    if sb.start.get() == 0 {
        return Ok(report);
    }
    let found = scan::scan(&ring, &sb, policy)?;
    report.end_tid = found.end_tid;
    report.scan_end = found.why;
    report.failed_commit = found.failed;
    report.head = found.head;
    // Without a revoke block nothing is revoked: the pass would find what the scan has seen.
    let revoked = match found.saw_revokes {
        true => replay::collect_revokes(&ring, &sb, found.end_tid, &mut report)?,
        false => Default::default(),
    };
    replay::replay(&ring, &sb, found.end_tid, &revoked, &mut report)?;
    // Ids are never used twice: what an asynchronous log holds behind its gap counts as used.
    report.next_sequence = found.newest_seen.wrapping_add(1);
    Ok(report)
}

/// What follows the passes, and the replay of fast commits, which is not the journal's: refuses a
/// log with a wrong commit record, or marks it empty, as `policy` says.
///
/// Crash:  a [barrier](Overlay::barrier) must be between what was replayed and this, as the kernel
///         syncs and flushes before it resets the log; the caller sets it, and one behind.
/// Errors: `Corrupt`, naming the transaction, under [`BadCommit::Refuse`].
/// Source: `jbd2_journal_load`, after `jbd2_journal_recover`.
pub fn end_recovery(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    policy: &RecoverPolicy,
    report: &RecoveryReport,
) -> FsResult<()> {
    if report.scan_end == ScanEnd::Clean {
        return Ok(());
    }
    if let (Some(tid), BadCommit::Refuse) = (report.failed_commit, policy.bad_commit) {
        let at = log.block(report.head).unwrap_or(0).saturating_mul(u64::from(bs.bytes()));
        return Err(FsError::corrupt(
            "jbd2 transaction",
            "commit checksum",
            at,
            u64::from(tid),
            "a transaction whose checksum is right",
        ));
    }
    if policy.mark_empty {
        mark_empty(dev, log, bs, policy, report)?;
    }
    Ok(())
}

/// Empties a log that need not be replayed; what it holds is forgotten.
///
/// Units, errors: as [`replay_log`].
/// Source: `jbd2_journal_wipe`, `jbd2_journal_skip_recovery`.
pub fn wipe(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    policy: &RecoverPolicy,
) -> FsResult<()> {
    let report = replay_log(&Overlay::new(dev), log, bs, policy, &|_, _| true)?;
    if report.scan_end != ScanEnd::Clean {
        mark_empty(dev, log, bs, policy, &report)?;
        dev.barrier();
    }
    Ok(())
}

fn mark_empty(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    policy: &RecoverPolicy,
    report: &RecoveryReport,
) -> FsResult<()> {
    let head = policy.record_head().then_some(report.head);
    super_block::mark_empty(dev, log, bs, report.next_sequence, head)
}

fn bad_checksum(what: &'static str, tid: u32) -> FsError {
    FsError::corrupt(
        "jbd2 transaction",
        "checksum",
        0,
        u64::from(tid),
        format!("a {what} with a right checksum"),
    )
}
