//! Replay of fast commits: logical records, in the journal's last blocks, of what came after the
//! last whole transaction.
//!
//! Picture:    scan (which records are whole? of i-transactions: `ijournal`) -> records in order,
//!             on inodes held in memory ([`Replay`]) -> maps and inodes written, bitmaps made
//!             right, descriptors sealed.
//! Invariants: 1. as a kernel does, every record may find that it was done before: replaying
//!                all of them twice gives the same. Over a part of what a replay changed it may
//!                not: [`super::recover_staged`] logs it first.
//!             2. an inode is held once; what is on the overlay may be older.
//!             3. no block that a record names is given to a directory or a map.
//! Differs:    the leaves of a map that changed are written packed, where a kernel leaves them as
//!             its insertions shaped them: blocks of the map may be others, and fewer.
//! Left out:   inline data, a third level of hash trees: `Unsupported`.
//! Source:     Linux `fs/ext4/fast_commit.c` (`ext4_fc_replay`, `ext4_fc_replay_scan`),
//!             `fs/jbd2/recovery.c` (`fc_do_one_pass`).

mod bitmaps;
mod htree;
mod ijournal;
mod inodes;
mod names;
mod ranges;

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};
use wp_jbd2::{LogMap, RecoveryReport};
use wp_medium::Overlay;

use crate::disk::fast_commit::{BadArea, Record, Scan, Scanned, records};

use super::Image;
use super::editor::Editor;
use inodes::Held;

/// What was replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FastCommits {
    /// Whole fast commits.
    pub commits: u32,
    /// Their records, heads, tails and padding included.
    pub records: u32,
}

/// Replays what the area holds on top of the last transaction that was replayed.
///
/// Errors: those that make a kernel refuse the mount: an area whose first commit is not whole, one
///         that is full to its last block, a record that cannot be followed.
pub(super) fn replay(
    dev: &Overlay<'_>,
    image: &Image<'_>,
    log: &LogMap,
    report: &RecoveryReport,
    now: u32,
) -> FsResult<FastCommits> {
    let none = FastCommits::default();
    let Some((first, blocks)) = report.fast_commit else { return Ok(none) };
    if report.scan_end == wp_jbd2::ScanEnd::Clean {
        return Ok(none);
    }
    if image.geometry().cluster_bits > 0 {
        return Err(FsError::Unsupported("fast commits of an ext4 with bigalloc".to_owned()));
    }
    if report.is_ijournal {
        return ijournal::replay(dev, image, log, report, now);
    }
    let inode_bytes = image.geometry().inode_bytes;
    let mut scan = Scan::new(report.end_tid, inode_bytes);
    let mut area = Vec::new();
    let mut scanned = Scanned::Continue;
    for n in first..first.saturating_add(blocks) {
        let block = log.block(n).ok_or(FsError::Io)?;
        let bytes = image.read_block(block, "ext4 fast-commit area")?;
        scanned = scan.block(&bytes).map_err(|why| bad_area(image.byte_of(block), why))?;
        area.push(bytes);
        if scanned == Scanned::Stop {
            break;
        }
    }
    if scanned == Scanned::Continue {
        // The kernel then reads the block behind the log and takes the error for its own.
        let expected = "an area that ends before the log does";
        let found = u64::from(first) + u64::from(blocks);
        return Err(FsError::corrupt("ext4 fast-commit area", "end", 0, found, expected));
    }
    if scan.records == 0 {
        return Ok(none);
    }
    replay_all(dev, now, || {
        let all = area.iter().flat_map(|block| records(block, inode_bytes));
        all.take(scan.records as usize)
    })?;
    Ok(FastCommits { commits: scan.commits, records: scan.records })
}

/// Replays records, in their order.
fn replay_all<'r, I: Iterator<Item = Record<'r>>>(
    dev: &Overlay<'_>,
    now: u32,
    whole: impl Fn() -> I,
) -> FsResult<()> {
    let mut replay = Replay::new(Editor::over(Image::open(dev)?, dev), now);
    for record in whole() {
        if let Record::AddRange(add) = record {
            replay.exclude(add.extent.start(), add.extent.blocks().into());
        }
    }
    for record in whole() {
        replay.record(&record)?;
    }
    replay.finish()
}

fn bad_area(at: u64, why: BadArea) -> FsError {
    let wrong = |field, found: u32, expected: &str| {
        FsError::corrupt("ext4 fast-commit area", field, at, found.into(), expected)
    };
    match why {
        BadArea::Record => wrong("fc_tag", 0, "records up to the first commit's tail"),
        BadArea::Checksum => wrong("fc_crc", 0, "a whole first commit"),
        BadArea::Features(bits) => wrong("fc_features", bits, "0"),
    }
}

/// One replay.
struct Replay<'a> {
    editor: Editor<'a>,
    now: u32,
    /// Inodes that were read.
    inodes: BTreeMap<u32, Held>,
    /// Inodes whose blocks are marked in use at the end (`fc_modified_inodes`).
    modified: BTreeSet<u32>,
    /// Blocks that are given to nobody (`fc_regions`): start to end, not overlapping.
    excluded: BTreeMap<u64, u64>,
}

impl<'a> Replay<'a> {
    fn new(editor: Editor<'a>, now: u32) -> Replay<'a> {
        Replay {
            editor,
            now,
            inodes: BTreeMap::new(),
            modified: BTreeSet::new(),
            excluded: BTreeMap::new(),
        }
    }

    fn record(&mut self, record: &Record<'_>) -> FsResult<()> {
        match record {
            Record::AddRange(r) => self.add_range(r.ino.get(), &r.extent),
            Record::DelRange(r) => self.del_range(r.ino.get(), r.logical.get(), r.blocks.get()),
            Record::Create(n) => self.create(n),
            Record::Link(n) => self.link(n),
            Record::Unlink(n) => self.unlink(n),
            Record::Inode { ino, raw } => self.inode(*ino, raw),
            Record::Head(_) | Record::Tail(_) | Record::Pad => Ok(()),
        }
    }

    /// Gives the blocks to nobody from now on. Source: `ext4_fc_record_regions`.
    fn exclude(&mut self, start: u64, blocks: u64) {
        let (mut start, mut end) = (start, start.saturating_add(blocks));
        if start == end {
            return;
        }
        while let Some((s, e)) = self.excluded.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
            if e < start {
                break;
            }
            self.excluded.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        self.excluded.insert(start, end);
    }

    /// A free block near `goal`, marked in use. Errors: `NoSpace`. Source:
    /// `ext4_mb_new_blocks_simple`.
    fn new_block(&mut self, goal: u64) -> FsResult<u64> {
        let excluded = &self.excluded;
        let taken = |block: u64| {
            let before = excluded.range(..=block).next_back();
            before.filter(|(_, end)| **end > block).map(|(_, end)| *end)
        };
        self.editor.take_free_block(goal, taken)
    }

    /// Writes maps and inodes, and makes the bitmaps right.
    ///
    /// Source: `ext4_fc_set_bitmaps_and_counters`.
    fn finish(mut self) -> FsResult<()> {
        // First everything that is in use, so that a map's new blocks are free ones.
        for ino in std::mem::take(&mut self.modified) {
            self.mark_used(ino);
        }
        for ino in self.inodes.keys().copied().collect::<Vec<_>>() {
            self.write_back(ino)?;
        }
        self.editor.finish()
    }
}
