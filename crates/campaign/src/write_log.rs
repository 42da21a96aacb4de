//! A log of dm-log-writes as a run whose power failures are explored.
//!
//! Picture:    log over a base image -> tape (writes, FLUSHes and marks) -> [`Played`], whose calls
//!             are the marks. With marks of the order ([`LogOrder`], of a drive of ours) each
//!             request is submitted where it was; without, each completes before the next begins.
//! Invariants: 1. every state that is explored is one that the drive may have held: what stands in
//!                the log before a FLUSH had completed before it;
//!             2. the file is read anew by whoever plays it: contents are of one thread.
//! Left out:   without marks of the order, writes in flight. A log has a write when it has
//!             completed, so states are not there that need one in flight at the FLUSH.
//! Source:     Linux `drivers/md/dm-log-writes.c`: `normal_end_io` keeps writes back until a FLUSH
//!             takes those that had completed when it was sent; FUA writes and marks go in at once.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use wp_base::event::{Flags, Op};
use wp_base::plain::Shown as _;
use wp_base::{FsError, FsResult, Sector, Time};
use wp_crash::{Did, Entry, History, Ledger, Tape};
use wp_machine::MachineError;
use wp_machine::files::{self, FileView};
use wp_medium::log_order::{LogOrder, is_reserved};
use wp_medium::write_log::{LogEntry, LogFlags, WriteLog};
use wp_medium::{Medium, MediumView, Overlay, Slice};
use wp_vfs::{FsEntry, Options};
use wp_workload::program::{Call, Data};

use super::play::Played;

/// Bytes that an honest drive writes whole.
const ATOMIC: u32 = 4096;
/// Bytes of the longest device: a discard of all of it is a request of 2^31 sectors.
const MOST_BYTES: u64 = 1 << 40;

/// A log, as its user names it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogFile {
    /// The log.
    pub path: PathBuf,
    /// The image of the device before the first entry; `None`: all zeroes.
    pub base: Option<PathBuf>,
    /// Bytes of the device; `None`: as long as the base and the entries need.
    pub bytes: Option<u64>,
    /// Crash points before the first mark of this text are left out.
    pub from: Option<String>,
    /// What stands at and behind the first mark of this text is left out.
    pub to: Option<String>,
    /// Are marks acknowledgements, which a check is told? Those of Writepath never are.
    pub acks: bool,
    /// What it is called, if not by its path: one that goes when it is explored.
    pub name: Option<String>,
}

/// A log that can be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedRun {
    file: LogFile,
    /// Bytes of the device.
    bytes: u64,
    /// Bytes of a block of the file system.
    block: u32,
    /// Number of the mark with which exploration begins.
    from: Option<u32>,
    /// Entries that the last FLUSH before that mark has made durable: the run begins behind them.
    durable: u64,
    /// Does it say when requests were submitted?
    is_ordered: bool,
    entries: u64,
    marks: u64,
}

/// Why a log cannot be explored.
#[derive(Debug)]
pub enum LogError {
    /// The host cannot read this file.
    Host(PathBuf, io::Error),
    /// This is wrong in the log.
    Log(FsError),
    /// It has no such mark; those that it has.
    NoMark(String, Vec<String>),
    /// It writes nothing where exploration begins or behind it; the marks of the log.
    NoWrite(Vec<String>),
    /// No file system is there at the first crash point: why, and the marks of the log.
    NoFileSystem(FsError, Vec<String>),
    /// The device is shorter than this number of bytes, which its entries need.
    TooShort(u64),
    /// Entries need a device of this number of bytes, which is more than [`LoggedRun`] takes.
    TooLong(u64),
}

impl From<FsError> for LogError {
    fn from(e: FsError) -> LogError {
        LogError::Log(e)
    }
}

impl LogFile {
    /// What it is called.
    pub fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.path.shown().to_string())
    }

    /// Does this file begin as a log does? Errors: the host's.
    pub fn is_log(path: &Path) -> io::Result<bool> {
        use std::io::Read as _;
        let mut head = Vec::new();
        std::fs::File::open(path)?.take(8).read_to_end(&mut head)?;
        Ok(WriteLog::begins(&head))
    }

    /// The device before the first entry, and its length in bytes. Errors: the host's.
    fn base(&self) -> Result<(Medium, u64), LogError> {
        let Some(path) = &self.base else { return Ok((Medium::new(), 0)) };
        files::load(path).map_err(|e| LogError::Host(path.clone(), e))
    }

    /// The entries with their numbers, in order; did they end at the mark [`LogFile::to`]?
    ///
    /// Errors: the host's, and what is wrong in the log.
    fn each(&self, mut take: impl FnMut(u64, LogEntry)) -> Result<bool, LogError> {
        let host = |e| LogError::Host(self.path.clone(), e);
        let view = FileView::open(&self.path).map_err(host)?;
        let log = WriteLog::open(&view)?;
        for (n, entry) in (0..).zip(log.entries()) {
            let entry = entry?;
            if is_mark(&entry) && self.to.as_ref() == Some(&entry.mark) {
                return Ok(true);
            }
            take(n, entry);
        }
        Ok(false)
    }
}

fn is_mark(entry: &LogEntry) -> bool {
    entry.flags.has(LogFlags::MARK)
}

impl LoggedRun {
    /// Reads the log, and finds the file system at its first crash point.
    ///
    /// Errors: see [`LogError`].
    pub fn open(file: LogFile, fs: &FsEntry, options: &Options) -> Result<LoggedRun, LogError> {
        LoggedRun::read(file, Some((fs, options)))
    }

    /// Reads a log of a file system of which Writepath has no recovery: its states can be had, and
    /// not explored.
    ///
    /// Errors: see [`LogError`].
    pub fn of_any(file: LogFile) -> Result<LoggedRun, LogError> {
        LoggedRun::read(file, None)
    }

    fn read(file: LogFile, fs: Option<(&FsEntry, &Options)>) -> Result<LoggedRun, LogError> {
        let (mut start, mut bytes) = file.base()?;
        let mut marks = Vec::new();
        let (mut from, mut durable, mut entries, mut writes) = (None, 0, 0, 0u64);
        let mut sent = Sent::default();
        let is_cut = file.each(|n, entry| {
            if sent.note(n, &entry) {
                return;
            }
            entries += 1;
            bytes = bytes.max(entry.end_bytes());
            let is_before = file.from.is_some() && from.is_none();
            let began = sent.taken(n);
            if is_before && entry.flags.has(LogFlags::FLUSH) && began >= durable {
                (durable, writes) = (began, 0);
            }
            writes += u64::from(!is_mark(&entry) && entry.sectors > 0);
            if is_mark(&entry) {
                if is_before && file.from.as_ref() == Some(&entry.mark) {
                    from = Some(marks.len() as u32);
                }
                marks.push(entry.mark);
            } else if is_before {
                entry.apply(&mut start);
            }
        })?;
        for (wanted, is_there) in [(&file.from, from.is_some()), (&file.to, is_cut)] {
            if let (Some(wanted), false) = (wanted, is_there) {
                return Err(LogError::NoMark(wanted.clone(), marks));
            }
        }
        if writes == 0 {
            return Err(LogError::NoWrite(marks));
        }
        if let Some(given) = file.bytes {
            if given < bytes {
                return Err(LogError::TooShort(bytes));
            }
            bytes = given;
        }
        if bytes > MOST_BYTES {
            return Err(LogError::TooLong(bytes));
        }
        let view = MediumView { medium: start, start: Sector(0), bytes };
        let block = match fs.map(|(fs, options)| block_bytes(&view, fs, options)) {
            Some(Ok(block)) => block,
            None => ATOMIC,
            Some(Err(e)) => return Err(LogError::NoFileSystem(e, marks)),
        };
        let marks = marks.len() as u64;
        let is_ordered = sent.any;
        Ok(LoggedRun { file, bytes, block, from, durable, is_ordered, entries, marks })
    }

    /// The log, as its user named it.
    pub fn file(&self) -> &LogFile {
        &self.file
    }

    /// Entries that are explored, marks among them, and the marks.
    pub fn counts(&self) -> (u64, u64) {
        (self.entries, self.marks)
    }

    /// Does the log say when requests were submitted, and not only in which order they completed?
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Bytes of the device.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The device before the first entry that is on the tape. Errors: the host's.
    pub(super) fn image(&self) -> Result<Medium, MachineError> {
        let (mut medium, _) = self.file.base().map_err(changed)?;
        if self.durable > 0 {
            let done = self.file.each(|n, entry| {
                if n < self.durable {
                    entry.apply(&mut medium);
                }
            });
            done.map_err(changed)?;
        }
        Ok(medium)
    }

    /// The run, on what [`LoggedRun::image`] gave. Errors: the host's; a log that was changed.
    pub(super) fn play(&self, base: Medium) -> Result<Played, MachineError> {
        let mut run = Recorded { acks: self.file.acks, ..Recorded::default() };
        let done = self.file.each(|n, entry| {
            // Marks are said of all that comes later; so is what was submitted and is in flight.
            let is_done = matches!(LogOrder::of(&entry), Some(LogOrder::Complete(_)));
            if n >= self.durable || is_mark(&entry) && !is_done {
                run.add(n, entry);
            }
        });
        done.map_err(changed)?;
        let (entries, dids) = run.done();
        let mut tape = Tape::of(entries);
        (tape.base, tape.only_completions) = (base, !self.is_ordered);
        Ok(Played {
            tape,
            ledger: Ledger::new(&dids, self.block),
            dids,
            partition: (0, self.bytes),
            volatile: true,
            atomic: ATOMIC,
        })
    }

    /// The first frame that is explored: that in which the mark is set with which it begins.
    pub(super) fn first_frame(&self, tape: &Tape, history: &History) -> usize {
        let Some(mark) = self.from else { return 0 };
        let is_it = |(_, entry): &(Time, Entry)| matches!(entry, Entry::End(n) if *n == mark);
        history.frame_after(tape.entries.iter().position(is_it).unwrap_or(usize::MAX))
    }
}

/// Where requests of a log were submitted.
#[derive(Default)]
struct Sent {
    /// Number of a request that has not completed -> entry at which it was submitted.
    at: BTreeMap<u64, u64>,
    /// Where the request of the next entry was submitted.
    next: Option<u64>,
    /// Does the log say it at all?
    any: bool,
}

impl Sent {
    /// Entry number `n`. Is it about the order, and nothing else?
    fn note(&mut self, n: u64, entry: &LogEntry) -> bool {
        match LogOrder::of(entry) {
            Some(LogOrder::Submit(request)) => {
                self.at.insert(request, n);
            }
            Some(LogOrder::Complete(request)) => self.next = self.at.remove(&request),
            None => return false,
        }
        self.any = true;
        true
    }

    /// Where the request of entry `n` was submitted, which was not about the order.
    fn taken(&mut self, n: u64) -> u64 {
        self.next.take().unwrap_or(n)
    }
}

/// Entries as a tape and calls.
#[derive(Default)]
struct Recorded {
    /// Are marks acknowledgements?
    acks: bool,
    /// `None`: the place at which a request was submitted of which nothing is known yet.
    tape: Vec<(Time, Option<Entry>)>,
    /// Those that were submitted before the tape begins.
    before: Vec<(Time, Option<Entry>)>,
    /// Number of a request -> its place on the tape.
    submitted: BTreeMap<u64, usize>,
    /// The request of the next entry.
    next: Option<u64>,
    requests: u64,
    dids: Vec<Did>,
}

impl Recorded {
    /// Entry number `n`. A log has no times: each entry takes a microsecond.
    fn add(&mut self, n: u64, entry: LogEntry) {
        let now = Time(n * 1000);
        match LogOrder::of(&entry) {
            Some(LogOrder::Submit(request)) => {
                self.submitted.insert(request, self.tape.len());
                self.tape.push((now, None));
                return;
            }
            Some(LogOrder::Complete(request)) => {
                self.next = Some(request);
                return;
            }
            None => {}
        }
        if is_mark(&entry) {
            let n = self.dids.len() as u32;
            self.dids.push(Did::of(match self.acks && !is_reserved(&entry.mark) {
                true => Call::Ack(Data::given(entry.mark.as_bytes())),
                false => Call::Mark(entry.mark),
            }));
            let both = [Entry::Begin(n), Entry::End(n)];
            self.tape.extend(both.map(|entry| (now, Some(entry))));
            return;
        }
        let request = self.next.take();
        if entry.flags.has(LogFlags::FLUSH) {
            // What a FLUSH entry writes comes behind the FLUSH.
            let request = request.filter(|_| entry.sectors == 0);
            let flush = (Op::Flush, Flags::NONE, Sector(0), 0, Vec::new());
            self.completed(now, request, flush);
        }
        let mut flags = Flags::NONE;
        for (theirs, ours) in [(LogFlags::FUA, Flags::FUA), (LogFlags::META, Flags::META)] {
            if entry.flags.has(theirs) {
                flags |= ours;
            }
        }
        let op = match entry.flags.has(LogFlags::DISCARD) {
            true => Op::Discard,
            false => Op::Write,
        };
        if entry.sectors > 0 {
            let wrote = (op, flags, entry.at, entry.sectors as u32, entry.data);
            self.completed(now, request, wrote);
        }
    }

    /// A request has completed; `request`: the number with which it was submitted. One that has
    /// none was submitted just now.
    fn completed(
        &mut self,
        now: Time,
        request: Option<u64>,
        (op, flags, at, sectors, data): (Op, Flags, Sector, u32, Vec<Slice>),
    ) {
        let id = self.requests;
        self.requests += 1;
        let submit = Some(Entry::Submit { id, op, flags, at, sectors, data });
        let place = request.map(|n| self.submitted.remove(&n));
        match place.map(|at| at.and_then(|at| self.tape.get_mut(at))) {
            Some(Some(place)) => place.1 = submit,
            Some(None) => self.before.push((Time(0), submit)),
            None => self.tape.push((now, submit)),
        }
        self.tape.push((now, Some(Entry::Complete { id, ok: true })));
    }

    /// The tape and the calls. What was submitted and did not complete is of no use: nobody knows
    /// what it would have written.
    fn done(self) -> (Vec<(Time, Entry)>, Vec<Did>) {
        let all = self.before.into_iter().chain(self.tape);
        (all.filter_map(|(now, entry)| Some((now, entry?))).collect(), self.dids)
    }
}

/// Bytes of a block of the file system that is there once it has recovered. Errors: there is none.
fn block_bytes(view: &MediumView, fs: &FsEntry, options: &Options) -> FsResult<u32> {
    let over = Overlay::new(view);
    (fs.survey)(&over, options)?;
    (fs.blocks)(&over).map(|blocks| blocks.block_bytes())
}

/// A log that could be read when it was opened.
fn changed(e: LogError) -> MachineError {
    match e {
        LogError::Host(path, e) => MachineError::Config(format!("{}: {e}", path.display())),
        LogError::Log(error) => MachineError::Fs { during: "reading the log", error },
        LogError::NoMark(..)
        | LogError::NoWrite(_)
        | LogError::NoFileSystem(..)
        | LogError::TooShort(_)
        | LogError::TooLong(_) => MachineError::Config("the log has changed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use wp_medium::log_order::BEGIN;
    use wp_medium::write_log::write_log;

    use super::*;
    use crate::space::Space;

    fn write(at: u64, byte: u8) -> LogEntry {
        let data = vec![Slice::from_bytes(&[byte; 4096])];
        LogEntry::write(Sector(at), data, LogFlags::default())
    }

    fn flush() -> LogEntry {
        LogEntry::write(Sector(0), Vec::new(), LogFlags::FLUSH)
    }

    /// The run of a log with these entries, from [`BEGIN`] on if it has that.
    fn played(entries: &[LogEntry]) -> (LoggedRun, Played) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        write_log(&mut file.reopen().expect("a file"), 512, entries).expect("written");
        let from = entries.iter().any(|e| e.mark == BEGIN).then(|| BEGIN.to_owned());
        let path = file.path().to_owned();
        let file = LogFile { path, from, acks: true, ..LogFile::default() };
        let run = LoggedRun::of_any(file).expect("a log");
        let played = run.play(run.image().expect("a base")).expect("the same log");
        (run, played)
    }

    /// Bytes of the units that a power failure at the end may lose.
    fn unpersisted(played: &Played) -> Vec<u8> {
        let history = Space::HONEST.history(played);
        let last = history.frames.last().expect("a frame");
        let unit = |n: &u32| history.units[*n as usize].data[0].to_vec()[0];
        last.live.iter().map(unit).collect()
    }

    #[test]
    fn a_write_in_flight_at_the_flush_may_be_lost_if_the_log_says_that_it_was() {
        let [submit, complete] = [LogOrder::Submit, LogOrder::Complete].map(|of| of(7).entry());
        let [sent, done] = [LogOrder::Submit, LogOrder::Complete].map(|of| of(8).entry());
        let ordered = [submit, sent, complete, write(8, 1), done, flush()];
        let (run, played) = self::played(&ordered);
        assert!(run.is_ordered() && !played.tape.only_completions);
        assert_eq!((run.counts(), unpersisted(&played)), ((2, 0), vec![1]));
        let (run, played) = self::played(&[write(8, 1), flush()]);
        assert!(!run.is_ordered() && played.tape.only_completions);
        assert!(unpersisted(&played).is_empty(), "what completed before the FLUSH is durable");
    }

    #[test]
    fn what_was_submitted_before_the_beginning_is_in_flight_there() {
        let order = |submits, n| match submits {
            true => LogOrder::Submit(n).entry(),
            false => LogOrder::Complete(n).entry(),
        };
        let (run, played) = self::played(&[
            order(true, 0),
            order(false, 0),
            write(0, 1),
            order(true, 1),
            order(true, 2),
            order(false, 2),
            flush(),
            LogEntry::mark("made"),
            LogEntry::mark(BEGIN),
            order(false, 1),
            write(8, 2),
            LogEntry::mark("stored 1"),
            order(true, 3),
        ]);
        assert_eq!(unpersisted(&played), [2]);
        let durable = played.tape.base.read(Sector(0), 1);
        assert_eq!(durable[0].to_vec()[0], 1, "the FLUSH was sent behind it");
        let acks = played.dids.iter().filter(|did| matches!(did.call, Call::Ack(_))).count();
        assert_eq!(acks, 2, "marks of Writepath are no acknowledgements");
        let history = Space::HONEST.history(&played);
        assert!(run.first_frame(&played.tape, &history) > 0);
        assert_eq!(played.tape.entries.iter().filter(is_submit).count(), 2, "3 has no contents");
    }

    fn is_submit(entry: &&(Time, Entry)) -> bool {
        matches!(entry.1, Entry::Submit { .. })
    }
}
