//! What a file system asked for: its ordered writes as it submitted them, and whether a medium is
//! what a power cut may leave of them.
//!
//! Picture:    [`BlockQueue::record_epochs`](crate::BlockQueue::record_epochs) -> [`EpochLog`]
//!             -> [`EpochIndex`], once a run -> [`EpochIndex::check`], once a state.
//! Law:        that of `epoch.rs`: if any sector shows a write that was submitted after an epoch
//!             was closed, each sector of that epoch shows what the epoch wrote, or something
//!             later.
//! Knows:      tasks, flags, places and contents of bios; nothing of requests, of barriers as the
//!             device gets them, or of epochs as queue and device number them.
//! Left out:   orderless writes: a sector that shows none of the contents known of it was written
//!             by one, and says nothing. What shows contents that were written twice counts as the
//!             first for what it proves, and as the last for what is asked of it.

use std::collections::BTreeMap;
use std::fmt;

use wp_base::event::Flags;
use wp_base::{SECTOR_BYTES, Sector};
use wp_medium::{Medium, Slice};
use wp_rt::TaskId;

/// An ordered write.
struct Sent {
    at: Sector,
    data: Vec<Slice>,
    epoch: usize,
    /// Epochs that had been closed.
    after: u64,
}

/// Ordered writes of one queue, in the order in which they were submitted.
#[derive(Default)]
pub struct EpochLog {
    sent: Vec<Sent>,
    /// By task.
    open: BTreeMap<Option<TaskId>, usize>,
    /// By epoch: its place in the order of closing, from 1.
    closed: Vec<Option<u64>>,
    count: u64,
}

impl EpochLog {
    /// Ordered writes so far.
    pub fn writes(&self) -> usize {
        self.sent.len()
    }

    /// Epochs closed so far.
    pub fn closed(&self) -> u64 {
        self.count
    }

    /// A task has submitted an ordered write.
    pub(crate) fn sent(&mut self, task: Option<TaskId>, at: Sector, data: &[Slice], flags: Flags) {
        let epochs = &mut self.closed;
        let epoch = *self.open.entry(task).or_insert_with(|| {
            epochs.push(None);
            epochs.len() - 1
        });
        self.sent.push(Sent { at, data: data.to_vec(), epoch, after: self.count });
        if flags.has(Flags::BARRIER) {
            self.close(task);
        }
    }

    /// A task's epoch is closed.
    pub(crate) fn close(&mut self, task: Option<TaskId>) {
        if let Some(epoch) = self.open.remove(&task) {
            self.count += 1;
            self.closed[epoch] = Some(self.count);
        }
    }

    /// Everything by sector; `base` is what the device held before.
    pub fn index(&self, base: &Medium) -> EpochIndex {
        let mut sectors: BTreeMap<Sector, Held> = BTreeMap::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let mut at = sent.at;
            for slice in &sent.data {
                for from in (0..slice.len()).step_by(SECTOR_BYTES as usize) {
                    let held = sectors
                        .entry(at)
                        .or_insert_with(|| Held { base: id_at(base, at), versions: Vec::new() });
                    let id = slice.clone().sub(from, SECTOR_BYTES as u32).id();
                    held.versions.push(Version {
                        write: number,
                        id,
                        after: sent.after,
                        closed: self.closed[sent.epoch].unwrap_or(u64::MAX),
                    });
                    at = at.advance(1);
                }
            }
        }
        EpochIndex { sectors }
    }
}

fn id_at(medium: &Medium, at: Sector) -> u128 {
    match &medium.read(at, 1)[..] {
        [one] => one.id(),
        // Nobody writes less than a sector: such contents are none that we know.
        parts => parts.iter().fold(1, |h: u128, s| h.rotate_left(31) ^ s.id()),
    }
}

struct Version {
    write: usize,
    id: u128,
    /// Epochs that had been closed when it was submitted.
    after: u64,
    /// Place of its own epoch in the order of closing.
    closed: u64,
}

/// A sector: contents before, and those that were written, in order.
struct Held {
    base: u128,
    versions: Vec<Version>,
}

/// See [`EpochLog::index`].
pub struct EpochIndex {
    sectors: BTreeMap<Sector, Held>,
}

/// Something is there that presupposes something that is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inversion {
    /// A sector of a closed epoch that does not show what it should.
    pub missing: Sector,
    /// The write that it should show at least, in the order of submission.
    pub due: usize,
    /// What it shows; `None`: what was there before.
    pub shows: Option<usize>,
    /// A sector that shows a write that was submitted after that epoch was closed, and that write.
    pub later: (Sector, usize),
}

impl fmt::Display for Inversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, later) = (self.later.0.0, self.later.1);
        write!(f, "sector {at} shows ordered write {later}, ")?;
        let (missing, due) = (self.missing.0, self.due);
        match self.shows {
            Some(old) => write!(f, "and sector {missing} shows write {old} instead of {due}, ")?,
            None => write!(f, "and sector {missing} lacks write {due}, ")?,
        }
        f.write_str("whose epoch was closed before")
    }
}

impl EpochIndex {
    /// Is `medium` a legal cut: whole epochs, in the order in which they were closed, before
    /// anything that was submitted after? Errors: it is not, and where.
    pub fn check(&self, medium: &Medium) -> Result<(), Inversion> {
        // How many epochs must be whole, and the sector whose contents require it.
        let mut whole = (0, None);
        let mut shown = Vec::with_capacity(self.sectors.len());
        for (at, held) in &self.sectors {
            let id = id_at(medium, *at);
            let mut same = held.versions.iter().filter(|v| v.id == id);
            let first = same.next();
            let last = same.next_back().or(first);
            if let Some(first) = first
                && id != held.base
                && first.after > whole.0
            {
                whole = (first.after, Some((*at, first.write)));
            }
            shown.push((last.map(|v| v.write), last.is_some() || id == held.base));
        }
        let (whole, Some(later)) = whole else { return Ok(()) };
        for ((at, held), (shows, is_known)) in self.sectors.iter().zip(shown) {
            let due = held.versions.iter().rev().find(|v| v.closed <= whole);
            if let Some(due) = due
                && is_known
                && shows.is_none_or(|n| n < due.write)
            {
                return Err(Inversion { missing: *at, due: due.write, shows, later });
            }
        }
        Ok(())
    }
}
