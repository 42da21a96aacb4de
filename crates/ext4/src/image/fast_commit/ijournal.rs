//! The scan of i-transactions: those that are whole and newer than the last commit, in the order in
//! which they were made.
//!
//! Picture:    every block of the area, whichever core's: does one begin here? -> is it whole? ->
//!             sorted by their sequence -> replayed as the records of fast commits are.
//! Invariants: 1. what is torn hides nothing behind it: each fsync stands for itself.
//!             2. where one core's area ends need not be known: each block says whether one begins.
//! Source:     iJournaling, ATC'17: "recovery scans all areas"; the rest is ours.

use wp_base::{FsError, FsResult};
use wp_jbd2::{LogMap, RecoveryReport};
use wp_medium::{Overlay, View};

use crate::disk::ijournal::{Begin, Whole, records_of};
use crate::site;

use super::super::Image;
use super::{FastCommits, replay_all};

/// Replays the i-transactions of the transaction that did not commit.
///
/// Errors: `Io` for a log with holes; a record that cannot be followed.
pub(super) fn replay(
    dev: &Overlay<'_>,
    image: &Image<'_>,
    log: &LogMap,
    report: &RecoveryReport,
    now: u32,
) -> FsResult<FastCommits> {
    let (inode_bytes, tid) = (image.geometry().inode_bytes, report.end_tid);
    let Some((first, blocks)) = report.fast_commit else { return Ok(FastCommits::default()) };
    let end = first.saturating_add(blocks);
    let mut found: Vec<(u64, Vec<Vec<u8>>)> = Vec::new();
    let mut at = first;
    while at < end {
        let block = log.block(at).ok_or(FsError::Io)?;
        let mut head = [0; Begin::BYTES];
        dev.read_at(image.byte_of(block), &mut head)?;
        at += 1;
        let is_void = |b: &Begin| b.tid.get() != tid && site::RECOVER_NEWER.on();
        let Some(begin) = Begin::of(&head).filter(|b| !is_void(b)) else { continue };
        let mut whole = Whole::new(begin.tid.get(), inode_bytes);
        let mut own = Vec::new();
        for n in at - 1..end {
            let block = log.block(n).ok_or(FsError::Io)?;
            own.push(image.read_block(block, "ext4 i-transaction")?);
            match own.last().and_then(|bytes| whole.block(bytes)) {
                Some(false) => {}
                Some(true) => {
                    at = n + 1;
                    found.push((begin.sequence.get(), own));
                    break;
                }
                None => break,
            }
        }
    }
    if found.is_empty() {
        return Ok(FastCommits::default());
    }
    // A stable order: of equal sequences, which a sound log does not have, that of the area.
    found.sort_by_key(|(sequence, _)| *sequence);
    let all = || found.iter().flat_map(|(_, own)| records_of(own, inode_bytes));
    replay_all(dev, now, all)?;
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(FastCommits { commits: count(found.len()), records: count(all().count()) })
}
