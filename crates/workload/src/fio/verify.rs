//! `verify`: what a job wrote, in the order in which it is read back, and what bytes files hold.
//!
//! Source: fio's manual; observed with `--debug=io`: a random job with a map reads back in the
//! order of its writes, all others (those of a shift register, too) by file and offset, of
//! overlapping blocks the last. With `verify_backlog` a batch is read whenever the number of blocks
//! that wait is a multiple of it, and a write came last. The first difference ends the job with
//! EILSEQ, `verify_fatal` or not.
//!
//! What fio compares is a header for every `verify_interval` bytes, and a checksum. A job that only
//! reads needs headers of its own interval and checksum (`meta` takes any). A mixed job without
//! `verify_backlog` expects the seed of the write that has the number of the read. So one that
//! reads back by offset fails in fio, unless it wrote by offset.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use wp_medium::Slice;

use super::job::{Engine, Generator, Job, Verify};
use super::setup::Layout;

/// Linux: `EILSEQ`, what fio ends a job with whose data differ.
pub(super) const EILSEQ: i32 = 84;

/// fio's word for a header without a checksum.
const HEADER_ONLY: &str = "meta";
/// fio's word for a pattern without headers.
const NO_HEADERS: &str = "pattern";

/// Removes the blocks that overlap `offset..end`, and answers with them.
fn take_overlapping<T>(
    all: &mut BTreeMap<u64, T>,
    (offset, end): (u64, u64),
    length: impl Fn(&T) -> u64,
) -> Vec<(u64, T)> {
    let before = all.range(..offset).next_back().filter(|(at, b)| *at + length(b) > offset);
    let first = before.map_or(offset, |(at, _)| *at);
    let over: Vec<u64> = all.range(first..end).map(|(at, _)| *at).collect();
    over.into_iter().filter_map(|at| all.remove(&at).map(|block| (at, block))).collect()
}

/// A block that waits to be read back.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Number of its file.
    pub file: usize,
    /// In bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What the read must give.
    pub expected: Expected,
}

/// A block that was written.
#[derive(Clone, Debug)]
struct Block {
    data: Slice,
    /// Which of the round's writes it was.
    number: u64,
}

impl Block {
    fn bytes(&self) -> u64 {
        u64::from(self.data.len())
    }
}

/// The blocks that a job wrote and has not read back.
#[derive(Default)]
pub(super) struct History {
    is_on: bool,
    compares: bool,
    in_order: Option<VecDeque<(usize, u64, Block)>>,
    sorted: BTreeMap<usize, BTreeMap<u64, Block>>,
    backlog: u64,
    batch: u64,
    /// Blocks of a batch that are still to be read.
    due: u64,
    /// The number of a read must be that of its write.
    has_seeds: bool,
    /// Writes and reads of this round.
    written: u64,
    read: u64,
}

impl History {
    /// Of a job that begins.
    pub(super) fn new(job: &Job) -> History {
        let has_map = job.random && !job.no_map && job.generator != Generator::Lfsr;
        History {
            is_on: job.writes && job.verifies(),
            compares: job.verify == Some(Verify::Contents) && job.engine != Engine::Null,
            in_order: has_map.then(VecDeque::new),
            backlog: job.verify_backlog,
            batch: if job.verify_batch > 0 { job.verify_batch } else { job.verify_backlog },
            has_seeds: job.reads && job.verify_backlog == 0,
            ..History::default()
        }
    }

    /// Is anything to be read back at the end of a round?
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// A round begins: what was not read back is forgotten.
    pub(super) fn begin_round(&mut self) {
        // What is left of a batch is read in the next round, as in fio.
        (self.written, self.read) = (0, 0);
        self.sorted.clear();
        self.in_order.iter_mut().for_each(VecDeque::clear);
    }

    fn len(&self) -> u64 {
        let sorted = || self.sorted.values().map(BTreeMap::len).sum();
        self.in_order.as_ref().map_or_else(sorted, VecDeque::len) as u64
    }

    /// A write begins.
    pub(super) fn wrote(&mut self, file: usize, offset: u64, data: Slice) {
        if !self.is_on {
            return;
        }
        let block = Block { data, number: self.written };
        self.written += 1;
        match &mut self.in_order {
            Some(list) => list.push_back((file, offset, block)),
            None => {
                let all = self.sorted.entry(file).or_default();
                // An overlapping older block is no longer what the file holds.
                take_overlapping(all, (offset, offset + block.bytes()), Block::bytes);
                all.insert(offset, block);
            }
        }
    }

    /// It failed: there is nothing to read back.
    pub(super) fn failed(&mut self, file: usize, offset: u64) {
        if let Some(all) = self.sorted.get_mut(&file) {
            all.remove(&offset);
        }
        if let Some(list) = &mut self.in_order {
            list.retain(|(f, at, _)| *f != file || *at != offset);
        }
    }

    /// The next block to be read back.
    pub(super) fn next(&mut self) -> Option<Piece> {
        let (file, offset, block) = match &mut self.in_order {
            Some(list) => list.pop_front()?,
            None => {
                let (file, all) = self.sorted.iter_mut().find(|(_, all)| !all.is_empty())?;
                let (offset, block) = all.pop_first()?;
                (*file, offset, block)
            }
        };
        let is_its_turn = block.number == self.read;
        self.read += 1;
        let length = block.bytes();
        let expected = match (self.compares, self.has_seeds && !is_its_turn) {
            (false, _) => Expected::Anything,
            (true, true) => Expected::NoHeader,
            (true, false) => Expected::Bytes(vec![block.data]),
        };
        Some(Piece { file, offset, length, expected })
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
    /// fio finds no header there, or another one than it expects.
    NoHeader,
    /// Nobody knows what was there before the jobs: zeroes are no header.
    Unknown,
}

impl Expected {
    /// Is this what was read?
    pub(super) fn is(&self, data: &[Slice]) -> bool {
        match (self, data) {
            (Expected::Anything, _) => true,
            (Expected::NoHeader, _) => false,
            (Expected::Unknown, data) => Slice::concat(data).iter().any(|byte| *byte != 0),
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
    written: BTreeMap<String, BTreeMap<u64, Written>>,
    /// Files that jobs made.
    made: BTreeSet<String>,
    /// Files that were there before: nobody knows what is in them.
    older: BTreeSet<String>,
}

/// What one write left.
#[derive(Clone)]
struct Written {
    data: Slice,
    /// Of a job that verifies.
    header: Option<Header>,
}

/// fio's headers in what a write wrote.
#[derive(Clone)]
struct Header {
    /// Where the first one is.
    first: u64,
    /// Bytes from one to the next.
    interval: u64,
    checksum: Rc<str>,
}

impl Written {
    fn bytes(&self) -> u64 {
        u64::from(self.data.len())
    }

    /// A part of it, which begins at `from` of the file; it begins at `at`.
    fn part(&self, at: u64, (from, end): (u64, u64)) -> Written {
        let data = self.data.sub((from - at) as u32, (end - from) as u32);
        Written { data, header: self.header.clone() }
    }

    /// Has it a header for a job's `from..from + interval`?
    fn has_header(&self, job: &Job, from: u64, interval: u64) -> bool {
        self.header.as_ref().is_some_and(|h| {
            let fits = h.interval == interval && (from - h.first).is_multiple_of(interval);
            let is_same = *h.checksum == *job.checksum;
            match (&*job.checksum, &*h.checksum) {
                (NO_HEADERS, _) => is_same,
                (_, NO_HEADERS) => false,
                (HEADER_ONLY, _) => fits,
                _ => fits && is_same,
            }
        })
    }
}

/// Forgets what was written in `offset..end`.
fn make_room(all: &mut BTreeMap<u64, Written>, (offset, end): (u64, u64)) {
    for (at, old) in take_overlapping(all, (offset, end), Written::bytes) {
        let old_end = at + old.bytes();
        if at < offset {
            all.insert(at, old.part(at, (at, offset)));
        }
        if old_end > end {
            all.insert(end, old.part(at, (end, old_end)));
        }
    }
}

impl Contents {
    /// Of jobs that are to run; nothing is kept if none of them compares what it reads.
    pub(super) fn new(jobs: &[Job]) -> Contents {
        Contents(jobs.iter().any(compares).then(Rc::default))
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

    /// A trim of `path` begins, which leaves nothing that a header could be.
    pub(super) fn trimmed(&self, path: &str, offset: u64, length: u64) {
        let Some(files) = &self.0 else { return };
        let mut files = files.borrow_mut();
        let all = files.written.entry(path.to_owned()).or_default();
        let data = Slice::zero(length as u32);
        make_room(all, (offset, offset + length));
        all.insert(offset, Written { data, header: None });
    }

    /// A write of a job to `path` begins.
    pub(super) fn wrote(&self, job: &Job, path: &str, offset: u64, data: &Slice) {
        let Some(files) = &self.0 else { return };
        let mut files = files.borrow_mut();
        let all = files.written.entry(path.to_owned()).or_default();
        let length = u64::from(data.len());
        let end = offset + length;
        make_room(all, (offset, end));
        let header = (job.verify == Some(Verify::Contents)).then(|| Header {
            first: offset,
            interval: job.header_interval(length),
            checksum: job.checksum.as_str().into(),
        });
        all.insert(offset, Written { data: data.clone(), header });
    }

    /// What a job reads at `offset` of `path`.
    pub(super) fn expected(&self, job: &Job, path: &str, offset: u64, length: u64) -> Expected {
        let Some(files) = self.0.as_ref().filter(|_| compares(job)) else {
            return Expected::Anything;
        };
        if job.engine.lays_out() {
            return Expected::NoHeader;
        }
        let files = files.borrow();
        let unknown = match files.older.contains(path) {
            true => Expected::Unknown,
            false => Expected::NoHeader,
        };
        let Some(all) = files.written.get(path) else { return unknown };
        let has_headers = job.checksum != NO_HEADERS;
        let interval = job.header_interval(length);
        let (mut bytes, mut at) = (Vec::new(), offset);
        while at < offset + length {
            let found = all.range(..=at).next_back().filter(|(start, w)| **start + w.bytes() > at);
            let Some((start, written)) = found else { return unknown };
            let end = start + written.bytes();
            let upto = match has_headers {
                true => (at + interval).min(offset + length),
                false => end.min(offset + length),
            };
            // What one write left of another has the wrong checksum.
            if upto > end || !written.has_header(job, at, interval) {
                return Expected::NoHeader;
            }
            bytes.push(written.part(*start, (at, upto)).data);
            at = upto;
        }
        Expected::Bytes(bytes)
    }
}

/// Does a job compare what it reads? One that writes only what it has written.
fn compares(job: &Job) -> bool {
    job.verify == Some(Verify::Contents) && job.reads && !job.writes
}

#[cfg(test)]
mod tests {
    use super::super::{Variables, parse};
    use super::*;

    fn data(offset: u64, tag: u64) -> Slice {
        Slice::pattern(tag, offset, 4096)
    }

    fn gives(piece: &Piece) -> Vec<Slice> {
        match &piece.expected {
            Expected::Bytes(all) => all.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn blocks_are_read_back_by_offset_and_an_overwritten_one_once() {
        let mut history = History { is_on: true, compares: true, ..History::default() };
        for (offset, tag) in [(8192, 1), (0, 2), (8192, 3), (6144, 4)] {
            history.wrote(0, offset, data(offset, tag));
        }
        let read: Vec<(u64, Vec<Slice>)> =
            std::iter::from_fn(|| history.next()).map(|p| (p.offset, gives(&p))).collect();
        // The last one overlaps the one at 8192.
        assert_eq!(read, [(0, vec![data(0, 2)]), (6144, vec![data(6144, 4)])]);
    }

    #[test]
    fn a_batch_is_due_when_enough_blocks_wait() {
        let mut history = History { is_on: true, backlog: 2, batch: 1, ..History::default() };
        history.wrote(0, 0, data(0, 1));
        assert!(history.next_due(true).is_none());
        history.wrote(0, 4096, data(4096, 1));
        assert!(history.next_due(false).is_none(), "a read came last");
        assert_eq!(history.next_due(true).map(|p| p.offset), Some(0));
        assert!(history.next_due(false).is_none());
        history.wrote(0, 8192, data(8192, 1));
        assert_eq!(history.next_due(true).map(|p| p.offset), Some(4096));
    }

    /// What the second job is to read at 0, after the first one has written the file by `writes`.
    fn expected(writer: &str, reader: &str, writes: &[(u64, u32)], length: u64) -> Expected {
        let head = "[global]\nsize=64k\nfilename=f\n";
        let text = format!("{head}[w]\nrw=write\n{writer}\n[r]\nrw=read\n{reader}\n");
        let file = parse("t.fio", text.as_bytes(), &|_| None, &Variables::default());
        assert!(!file.has_errors(), "{}", file.rendered());
        let contents = Contents::new(&file.jobs);
        for (offset, length) in writes {
            contents.wrote(&file.jobs[0], "f", *offset, &Slice::pattern(1, *offset, *length));
        }
        contents.expected(&file.jobs[1], "f", 0, length)
    }

    /// As the installed fio answers to the same pairs of jobs.
    #[test]
    fn a_job_that_reads_needs_headers_of_its_interval_and_checksum() {
        let blocks = [(0, 4096), (4096, 4096)];
        for (writer, reader, length, is_fine) in [
            ("verify=md5", "verify=md5", 4096, true),
            ("verify=md5", "verify=crc32c", 4096, false),
            ("verify=crc32c", "verify=crc32c-intel", 4096, true),
            ("verify=md5", "verify=meta", 4096, true),
            ("verify=md5", "bs=8k\nverify=md5", 8192, false),
            ("verify=md5", "bs=8k\nverify=md5\nverify_interval=4k", 8192, true),
            ("", "verify=md5", 4096, false),
            ("verify=null", "verify=md5", 4096, false),
            ("verify=md5\ndo_verify=0", "verify=md5\ndo_verify=0", 4096, true),
            ("", "verify=md5\ndo_verify=0", 4096, false),
            ("verify=pattern", "verify=pattern", 4096, true),
            ("verify=pattern", "verify=md5", 4096, false),
        ] {
            let found = expected(writer, reader, &blocks, length);
            assert_eq!(matches!(found, Expected::Bytes(_)), is_fine, "{writer} {reader} {found:?}");
        }
        let one = [(0, 8192)];
        let found = expected("bs=8k\nverify=md5", "verify=md5", &one, 4096);
        assert!(matches!(found, Expected::NoHeader), "{found:?}");
        let torn = [(0, 4096), (2048, 4096)];
        let found = expected("verify=md5", "verify=md5", &torn, 4096);
        assert!(matches!(found, Expected::NoHeader), "{found:?}");
    }

    #[test]
    fn zeroes_of_before_have_no_header() {
        assert!(!Expected::Unknown.is(&[Slice::zero(4096)]));
        assert!(Expected::Unknown.is(&[data(0, 1)]));
    }
}
