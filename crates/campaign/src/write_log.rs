//! A log of dm-log-writes as a run whose power failures are explored.
//!
//! Picture:    log over a base image -> tape (writes, FLUSHes and marks, each completed before the
//!             next one begins) -> [`Played`], whose calls are the marks.
//! Invariants: 1. every state that is explored is one that the drive may have held: what stands in
//!                the log before a FLUSH had completed before it;
//!             2. the file is read anew by whoever plays it: contents are of one thread.
//! Left out:   writes in flight. A log has a write when it has completed, so states are not there
//!             that need one in flight at the FLUSH.
//! Source:     Linux `drivers/md/dm-log-writes.c`: `normal_end_io` keeps writes back until a FLUSH
//!             takes those that had completed when it was sent; FUA writes and marks go in at once.

use std::io;
use std::path::{Path, PathBuf};

use wp_base::event::{Flags, Op};
use wp_base::{FsError, FsResult, Sector, Time};
use wp_crash::{Did, Entry, History, Ledger, Tape};
use wp_machine::MachineError;
use wp_machine::files::{self, FileView};
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
    /// Are marks acknowledgements, which a check is told?
    pub acks: bool,
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
        let (mut start, mut bytes) = file.base()?;
        let mut marks = Vec::new();
        let (mut from, mut durable, mut entries, mut writes) = (None, 0, 0, 0u64);
        let is_cut = file.each(|n, entry| {
            entries = n + 1;
            bytes = bytes.max(entry.end_bytes());
            let is_before = file.from.is_some() && from.is_none();
            if is_before && entry.flags.has(LogFlags::FLUSH) {
                (durable, writes) = (n, 0);
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
        let block = match block_bytes(&view, fs, options) {
            Ok(block) => block,
            Err(e) => return Err(LogError::NoFileSystem(e, marks)),
        };
        let marks = marks.len() as u64;
        Ok(LoggedRun { file, bytes, block, from, durable, entries, marks })
    }

    /// The log, as its user named it.
    pub fn file(&self) -> &LogFile {
        &self.file
    }

    /// Entries that are explored, marks among them, and the marks.
    pub fn counts(&self) -> (u64, u64) {
        (self.entries, self.marks)
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
            // Marks are said of all that comes later.
            if n >= self.durable || is_mark(&entry) {
                run.add(n, entry);
            }
        });
        done.map_err(changed)?;
        let dids = run.dids;
        let mut tape = Tape::of(run.tape);
        (tape.base, tape.only_completions) = (base, true);
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

/// Entries as a tape and calls.
#[derive(Default)]
struct Recorded {
    /// Are marks acknowledgements?
    acks: bool,
    tape: Vec<(Time, Entry)>,
    dids: Vec<Did>,
}

impl Recorded {
    /// Entry number `n`. A log has no times: each entry takes a microsecond.
    fn add(&mut self, n: u64, entry: LogEntry) {
        let now = Time(n * 1000);
        if is_mark(&entry) {
            let n = self.dids.len() as u32;
            self.dids.push(Did::of(match self.acks {
                true => Call::Ack(Data::given(entry.mark.as_bytes())),
                false => Call::Mark(entry.mark),
            }));
            self.tape.extend([(now, Entry::Begin(n)), (now, Entry::End(n))]);
            return;
        }
        if entry.flags.has(LogFlags::FLUSH) {
            self.completed(now, (Op::Flush, Flags::NONE), (Sector(0), 0), Vec::new());
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
            self.completed(now, (op, flags), (entry.at, entry.sectors as u32), entry.data);
        }
    }

    /// A request that is complete before anything else comes.
    fn completed(
        &mut self,
        now: Time,
        (op, flags): (Op, Flags),
        (at, sectors): (Sector, u32),
        data: Vec<Slice>,
    ) {
        let id = self.tape.len() as u64;
        self.tape.push((now, Entry::Submit { id, op, flags, at, sectors, data }));
        self.tape.push((now, Entry::Complete { id, ok: true }));
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
