//! `verify`: what a job wrote, in the order in which it is read back, and what bytes files hold.
//!
//! Source: fio's manual; observed with `--debug=io`: a random job with a map reads back in the
//! order of its writes, all others by file and offset, of equal blocks the last. With
//! `verify_backlog` a batch is read whenever the number of blocks that wait is a multiple of it,
//! and a write came last. The first difference ends the job with EILSEQ, `verify_fatal` or not.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use wp_medium::Slice;

use super::job::{Job, Verify};
use super::setup::Layout;

/// Linux: `EILSEQ`, what fio ends a job with whose data differ.
pub(super) const EILSEQ: i32 = 84;

/// A block that waits to be read back.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Number of its file.
    pub file: usize,
    /// In bytes.
    pub offset: u64,
    /// What was written.
    pub data: Slice,
}

/// The blocks that a job wrote and has not read back.
#[derive(Default)]
pub(super) struct History {
    is_on: bool,
    in_order: Option<VecDeque<Piece>>,
    sorted: BTreeMap<(usize, u64), Slice>,
    backlog: u64,
    batch: u64,
    /// Blocks of a batch that are still to be read.
    due: u64,
}

impl History {
    /// Of a job that begins.
    pub(super) fn new(job: &Job) -> History {
        let has_map = job.random && !job.no_map;
        History {
            is_on: job.writes && job.verifies(),
            in_order: has_map.then(VecDeque::new),
            backlog: job.verify_backlog,
            batch: if job.verify_batch > 0 { job.verify_batch } else { job.verify_backlog },
            ..History::default()
        }
    }

    /// Is anything to be read back at the end of a round?
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    fn len(&self) -> u64 {
        self.in_order.as_ref().map_or(self.sorted.len(), VecDeque::len) as u64
    }

    /// A write begins.
    pub(super) fn wrote(&mut self, piece: Piece) {
        if !self.is_on {
            return;
        }
        let Some(list) = &mut self.in_order else {
            let end = piece.offset + u64::from(piece.data.len());
            // An overlapping older block is no longer what the file holds.
            let from = self.sorted.range(..(piece.file, piece.offset)).next_back();
            let before = from
                .filter(|((f, at), s)| *f == piece.file && at + u64::from(s.len()) > piece.offset);
            let mut old: Vec<(usize, u64)> = before.map(|(k, _)| *k).into_iter().collect();
            let over = self.sorted.range((piece.file, piece.offset)..(piece.file, end));
            old.extend(over.map(|(k, _)| *k));
            for key in old {
                self.sorted.remove(&key);
            }
            self.sorted.insert((piece.file, piece.offset), piece.data);
            return;
        };
        list.push_back(piece);
    }

    /// It failed: there is nothing to read back.
    pub(super) fn failed(&mut self, file: usize, offset: u64) {
        self.sorted.remove(&(file, offset));
        if let Some(list) = &mut self.in_order {
            list.retain(|p| p.file != file || p.offset != offset);
        }
    }

    /// The next block to be read back.
    pub(super) fn next(&mut self) -> Option<Piece> {
        match &mut self.in_order {
            Some(list) => list.pop_front(),
            None => {
                let ((file, offset), data) = self.sorted.pop_first()?;
                Some(Piece { file, offset, data })
            }
        }
    }

    /// The next block of a batch that is due before the next operation. `after_write`: the last
    /// operation was no read.
    pub(super) fn next_due(&mut self, after_write: bool) -> Option<Piece> {
        let len = self.len();
        if self.backlog == 0 || len == 0 {
            return None;
        }
        if self.due == 0 && after_write && len.is_multiple_of(self.backlog) {
            self.due = self.batch;
        }
        self.due = self.due.checked_sub(1)?;
        self.next()
    }
}

/// What a read must give.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// It is not compared.
    Anything,
    /// These bytes.
    Bytes(Vec<Slice>),
    /// No job wrote there: fio finds no header.
    NoHeader,
}

impl Expected {
    /// Is this what was read?
    pub(super) fn is(&self, data: &[Slice]) -> bool {
        match (self, data) {
            (Expected::Anything, _) => true,
            (Expected::NoHeader, _) => false,
            (Expected::Bytes(all), [one]) if all.len() == 1 => all[0] == *one,
            (Expected::Bytes(all), data) => Slice::concat(all) == Slice::concat(data),
        }
    }
}

/// What the files of all jobs hold, as far as their writes say.
#[derive(Clone, Default)]
pub(super) struct Contents(Option<Rc<RefCell<Files>>>);

#[derive(Default)]
struct Files {
    written: BTreeMap<String, BTreeMap<u64, Slice>>,
    /// Files that jobs made.
    made: BTreeSet<String>,
    /// Files that were there before: nobody knows what is in them.
    older: BTreeSet<String>,
}

impl Contents {
    /// Of jobs that are to run; nothing is kept if none of them compares what it reads.
    pub(super) fn new(jobs: &[Job]) -> Contents {
        let reads = |j: &Job| j.verify == Some(Verify::Contents) && j.do_verify && !j.writes;
        Contents(jobs.iter().any(reads).then(Rc::default))
    }

    /// A job's files are there.
    pub(super) fn laid_out(&self, layout: &Layout) {
        let Some(files) = &self.0 else { return };
        let mut files = files.borrow_mut();
        for file in &layout.files {
            if file.existing > 0 && !files.made.contains(&file.path) {
                files.older.insert(file.path.clone());
            } else {
                files.made.insert(file.path.clone());
            }
        }
    }

    /// A write to `path` begins.
    pub(super) fn wrote(&self, path: &str, offset: u64, data: &Slice) {
        let Some(files) = &self.0 else { return };
        let mut files = files.borrow_mut();
        let all = files.written.entry(path.to_owned()).or_default();
        let end = offset + u64::from(data.len());
        let before = all.range(..offset).next_back().map(|(at, s)| (*at, s.clone()));
        if let Some((at, s)) = before
            && at + u64::from(s.len()) > offset
        {
            let keep = (offset - at) as u32;
            all.insert(at, s.sub(0, keep));
            if at + u64::from(s.len()) > end {
                let from = (end - at) as u32;
                all.insert(end, s.sub(from, s.len() - from));
            }
        }
        let over: Vec<u64> = all.range(offset..end).map(|(at, _)| *at).collect();
        for at in over {
            if let Some(s) = all.remove(&at)
                && at + u64::from(s.len()) > end
            {
                let from = (end - at) as u32;
                all.insert(end, s.sub(from, s.len() - from));
            }
        }
        all.insert(offset, data.clone());
    }

    /// What a job reads at `offset` of `path`.
    pub(super) fn expected(&self, job: &Job, path: &str, offset: u64, length: u64) -> Expected {
        let is_on = job.verify == Some(Verify::Contents) && job.do_verify && !job.writes;
        let Some(files) = self.0.as_ref().filter(|_| is_on) else { return Expected::Anything };
        let files = files.borrow();
        let unknown = match files.older.contains(path) {
            true => Expected::Anything,
            false => Expected::NoHeader,
        };
        let Some(all) = files.written.get(path) else { return unknown };
        let first = all.range(..=offset).next_back().map_or(offset, |(at, _)| *at);
        let (mut bytes, mut at) = (Vec::new(), offset);
        for (start, s) in all.range(first..offset + length) {
            let end = start + u64::from(s.len());
            if end <= at {
                continue;
            }
            if *start > at {
                return unknown;
            }
            let upto = end.min(offset + length);
            bytes.push(s.sub((at - start) as u32, (upto - at) as u32));
            at = upto;
        }
        if at < offset + length { unknown } else { Expected::Bytes(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, tag: u64) -> Piece {
        Piece { file: 0, offset, data: Slice::pattern(tag, offset, 4096) }
    }

    #[test]
    fn blocks_are_read_back_by_offset_and_an_overwritten_one_once() {
        let mut history = History { is_on: true, ..History::default() };
        for (offset, tag) in [(8192, 1), (0, 2), (8192, 3)] {
            history.wrote(piece(offset, tag));
        }
        let read: Vec<(u64, Slice)> =
            std::iter::from_fn(|| history.next()).map(|p| (p.offset, p.data)).collect();
        let expected = [(0, Slice::pattern(2, 0, 4096)), (8192, Slice::pattern(3, 8192, 4096))];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_batch_is_due_when_enough_blocks_wait() {
        let mut history = History { is_on: true, backlog: 2, batch: 1, ..History::default() };
        history.wrote(piece(0, 1));
        assert!(history.next_due(true).is_none());
        history.wrote(piece(4096, 1));
        assert!(history.next_due(false).is_none(), "a read came last");
        assert_eq!(history.next_due(true).map(|p| p.offset), Some(0));
        assert!(history.next_due(false).is_none());
        history.wrote(piece(8192, 1));
        assert_eq!(history.next_due(true).map(|p| p.offset), Some(4096));
    }
}
