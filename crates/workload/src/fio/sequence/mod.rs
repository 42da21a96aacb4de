//! The operations of a job, one after the other, as a state machine without I/O.
//!
//! Where the rules come from: the manual (options by their names) and logs of the installed fio
//! (`--ioengine=null --write_iolog`), which show every open, close, operation and sync. Observed
//! there, and not in the manual:
//! - `size` or `io_size`, and `number_ios`, times `loops` bound the whole job: it ends before the
//!   operation that would begin beyond, and never cuts one short;
//! - a round ends when every file is done. Another one follows while `loops` are left, or while
//!   `io_size` lacks at least one largest block, or while time is left;
//! - a sync is due when the operation before was none and the number of writes since the job began
//!   is a multiple of the period. So reads of a mixed job may be followed by syncs, and the last
//!   write of a job never is. If both are due, `fsync` goes first and `fdatasync` is left out;
//! - a sync takes a turn of the files as any operation does (axboe/fio #1904);
//! - the sync of `end_fsync` at the end of a round is left out if the last operation was a sync,
//!   and one may be due again at the beginning of the next round; a round that did nothing is the
//!   last;
//! - `fsync_on_close` adds no sync where a file that is done is closed within a round; at the end
//!   of a round it does what `end_fsync` does;
//! - bytes within a zone of `zonemode=strided` are counted over all files, and the file whose turn
//!   comes when they are enough goes to its next zone;
//! - turns of files go on from one round to the next;
//! - a job that is `time_based` begins its only sequential file again, and any random one, within
//!   the round: no file is closed, and the random streams go on. `number_ios` is no limit of it;
//! - operations that `verify` reads count towards `number_ios` and towards the bytes that another
//!   round of `io_size` would have to add;
//! - a job that trims and writes writes what it has trimmed, with the trim's length, before it
//!   trims more of the same file; it does twice the bytes, and no sync but those at the end of a
//!   round;
//! - a mixed job draws a direction for each operation, and again when the file turns out done. But
//!   where the drawn direction is another one, it is kept until it has had its share of the number
//!   of operations of the direction before.

mod distribution;
mod length;
mod service;
mod streams;
mod target;

use std::collections::VecDeque;

pub use self::distribution::{Until, Zone};
use self::service::Service;
pub(super) use self::streams::Streams;
use self::target::{Target, Want};
use super::job::{Job, SyncWhat};
use super::setup::Layout;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Trim,
}

impl Direction {
    /// Its place in arrays by direction.
    pub const fn index(self) -> usize {
        match self {
            Direction::Read => 0,
            Direction::Write => 1,
            Direction::Trim => 2,
        }
    }
}

/// The next thing to do. Files are numbers in [`Layout::files`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Open a file.
    Open(usize),
    /// Close a file.
    Close {
        /// Which.
        file: usize,
    },
    /// Read, write or discard.
    Io {
        /// Where.
        file: usize,
        /// Which of them.
        direction: Direction,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// A read, write or trim of a job on zones, whose place is chosen by their state: to be
    /// answered with [`Sequence::placed`] or [`Sequence::no_place`].
    Place {
        /// Which file.
        file: usize,
        /// What it does.
        direction: Direction,
        /// Proposed first byte.
        offset: u64,
        /// Bytes at most.
        length: u64,
    },
    /// A file of a job that goes on for a time begins again: its clean pages are dropped, as
    /// `invalidate` asks for.
    Rewind {
        /// Which.
        file: usize,
    },
    /// Read back what was written; all files are closed.
    Verify,
    /// Sync.
    Sync {
        /// Which file.
        file: usize,
        /// How.
        what: SyncWhat,
    },
    /// A round is over.
    RoundEnd {
        /// With an `fsync` of every file, those that are not open too.
        sync: bool,
    },
    /// The job is over.
    Done,
}

impl Action {
    /// Is it an operation or a sync?
    pub const fn is_of_a_file(self) -> bool {
        matches!(self, Action::Io { .. } | Action::Place { .. } | Action::Sync { .. })
    }
}

/// Operations and bytes that may still begin; `None`: as many as there is time for.
#[derive(Clone, Copy, Debug)]
struct Budget {
    bytes: Option<u64>,
    ios: Option<u64>,
}

impl Budget {
    fn is_spent(self) -> bool {
        self.bytes == Some(0) || self.ios == Some(0)
    }

    fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.map(|b| b.saturating_sub(bytes));
        self.ios = self.ios.map(|n| n.saturating_sub(1));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// The round is over and its end was told.
    Between,
    Over,
}

/// The operations of a job.
#[derive(Clone, Debug)]
pub struct Sequence {
    job: Job,
    fresh: Streams,
    streams: Streams,
    files: Vec<Target>,
    service: Service,
    budget: Budget,
    /// Bytes of `io_size` or `size` that are missing, for another round.
    missing: u64,
    rounds: u64,
    /// Operations since the job began, by direction.
    begun: [u64; 3],
    /// The direction of a mixed job, and how many operations it must have had before a draw.
    mixed: Direction,
    owed: u64,
    /// Bytes done in a zone, in whichever file.
    zone_done: u64,
    /// Operations since a place was drawn.
    run: u64,
    /// May a sync be due? Not right after one in the same round.
    sync_allowed: bool,
    last_was_sync: bool,
    /// Was anything done in this round?
    moved: bool,
    last_written: Option<usize>,
    bugs: bool,
    /// Bytes that a round may have, where fio counts them.
    round_limit: Option<u64>,
    round_bytes: u64,
    stop: bool,
    has_nothing: bool,
    tried: Option<u64>,
    /// The place that was proposed last was drawn.
    is_drawn: bool,
    phase: Phase,
    pending: VecDeque<Action>,
}

impl Sequence {
    /// The sequence of a job on its files. `chance`: the seed of jobs that are not to repeat;
    /// `bugs`: sync the file that fio syncs (axboe/fio #1904).
    ///
    /// Errors: a shift register that cannot move.
    pub fn new(job: &Job, layout: &Layout, chance: u64, bugs: bool) -> Result<Sequence, String> {
        let largest = layout.files.iter().map(|f| f.span).max().unwrap_or(0);
        let streams = Streams::new(job, chance, Streams::wide(job, largest));
        let files: Result<Vec<Target>, String> =
            layout.files.iter().map(|f| Target::new(job, f, &streams)).collect();
        let once = match job.io_size.bytes() {
            0 => layout.size,
            n => n,
        };
        // What is trimmed is written, too; whether another round follows is reckoned without that.
        let times = if job.trims && job.writes { 2 } else { 1 };
        let limit = |n: u64| n.saturating_mul(job.loops).saturating_mul(times);
        let bytes = (!job.time_based).then(|| limit(once));
        let ios = (job.number_ios > 0 && !job.time_based).then(|| limit(job.number_ios));
        // What an asynchronous engine takes is counted, and ends the round.
        let most = match job.random && job.no_map && job.writes {
            true => layout.size.max(job.io_size.bytes()),
            false => layout.size,
        };
        // What is read back within the round counts, too.
        let with_backlog = job.writes && job.verify.is_some() && job.verify_backlog > 0;
        let most = if with_backlog { most.saturating_add(layout.size) } else { most };
        let has_end = !job.time_based || job.verify.is_some();
        let is_counted = job.queues() && has_end && !job.trims;
        Ok(Sequence {
            round_limit: is_counted.then_some(most),
            round_bytes: 0,
            job: job.clone(),
            fresh: streams.clone(),
            streams,
            files: files?,
            service: Service::new(),
            budget: Budget { bytes, ios },
            missing: once,
            rounds: job.loops,
            begun: [0; 3],
            mixed: Direction::Read,
            owed: 0,
            zone_done: 0,
            run: 0,
            sync_allowed: false,
            last_was_sync: false,
            moved: false,
            last_written: None,
            bugs,
            stop: job.create_only,
            has_nothing: false,
            tried: None,
            is_drawn: false,
            phase: Phase::Running,
            pending: VecDeque::new(),
        })
    }

    /// Of a job with several operations in flight: one has ended. fio lets a sync follow until one
    /// has ended, and again when another operation has.
    pub fn ended(&mut self, was_sync: bool) {
        self.sync_allowed = !was_sync;
    }

    /// Has the device of a job on zones nothing to read? Then a mixed job writes.
    pub fn set_has_nothing(&mut self, has_nothing: bool) {
        self.has_nothing = has_nothing;
    }

    /// How long the operation may be that [`Action::Place`] proposed at `offset`, which is chosen
    /// to have `length`: its blocks are done.
    pub fn mark(&mut self, file: usize, direction: Direction, (offset, length): (u64, u64)) -> u64 {
        match self.is_drawn {
            true => self.files[file].mark(&self.job, direction.index(), (offset, length)),
            false => length,
        }
    }

    /// The operation that [`Action::Place`] proposed begins here.
    pub fn placed(&mut self, file: usize, direction: Direction, (offset, length): (u64, u64)) {
        self.files[file].went_to(direction.index(), offset, length);
        self.count(file, direction, length);
    }

    /// There is no place for it: the file is done.
    pub fn no_place(&mut self, file: usize) {
        self.files[file].done = true;
        self.close(file);
    }

    /// Is the next thing to do another operation, as far as is known? What `verify_backlog` wants
    /// read back is read then.
    pub fn is_at_operation(&self) -> bool {
        self.phase == Phase::Running && self.pending.is_empty() && !self.is_round_over()
    }

    /// A block is read back: of a file that was opened for it within the round (`verify_backlog`),
    /// or after the round.
    pub fn read_back(&mut self, length: u64, file: Option<usize>) {
        self.budget.ios = self.budget.ios.map(|n| n.saturating_sub(1));
        self.missing = self.missing.saturating_sub(length);
        if let Some(file) = file {
            self.files[file].open = true;
            self.round_bytes += length;
            self.sync_allowed = true;
            self.last_was_sync = false;
        }
    }

    /// The offset of an operation that did not fit, since somebody asked: fio's `io_u` keeps it.
    pub fn take_tried(&mut self) -> Option<u64> {
        self.tried.take()
    }

    /// Time is over: no operation begins any more.
    pub fn terminate(&mut self) {
        self.stop = true;
    }

    /// The next thing to do; [`Action::Done`] again and again at the end.
    pub fn next_action(&mut self) -> Action {
        loop {
            if let Some(action) = self.pending.pop_front() {
                return action;
            }
            match self.phase {
                Phase::Running => self.operate(),
                Phase::Between => self.begin_or_end(),
                Phase::Over => return Action::Done,
            }
        }
    }

    fn is_round_over(&self) -> bool {
        // What was trimmed is written, whatever there is left to do.
        let owes_write = || self.files.iter().any(|f| f.trimmed.is_some());
        let is_over = self.round_limit.is_some_and(|most| self.round_bytes >= most);
        self.stop || is_over || self.budget.is_spent() && !owes_write()
    }

    fn operate(&mut self) {
        if self.is_round_over() {
            return self.end_round();
        }
        match self.due_sync() {
            Some(what) => self.sync(what),
            None => self.transfer(),
        }
    }

    fn end_round(&mut self) {
        let asked = self.job.end_fsync || self.job.fsync_on_close;
        let sync = asked && self.job.writes && !self.last_was_sync;
        self.pending.push_back(Action::RoundEnd { sync });
        if self.job.verifies() {
            (0..self.files.len()).for_each(|i| self.close(i));
            self.pending.push_back(Action::Verify);
        }
        self.phase = Phase::Between;
    }

    fn begin_or_end(&mut self) {
        self.rounds = self.rounds.saturating_sub(1);
        let more_bytes = self.missing > 0 && self.missing >= self.job.block_max();
        // Before it verifies, fio forgets which files are done.
        let may_miss = self.job.io_size.bytes() > 0 || self.job.verifies();
        // A round in which nothing was done is the last one.
        let more = !self.stop
            && self.moved
            && (self.job.time_based
                || self.rounds > 0
                || (may_miss && more_bytes && !self.budget.is_spent()));
        for i in 0..self.files.len() {
            self.close(i);
        }
        if !more {
            self.phase = Phase::Over;
            return;
        }
        if !self.job.seed_given {
            self.streams = self.fresh.clone();
        }
        for file in &mut self.files {
            file.restart(&self.streams);
        }
        self.service.restart();
        self.owed = 0;
        self.round_bytes = 0;
        self.moved = false;
        self.sync_allowed = true;
        self.last_was_sync = false;
        self.zone_done = 0;
        self.phase = Phase::Running;
    }

    fn due_sync(&self) -> Option<SyncWhat> {
        let trims_and_writes = self.job.trims && self.job.writes;
        if !self.sync_allowed || self.begun[1] == 0 || trims_and_writes {
            return None;
        }
        let due = |every: u64| every > 0 && self.begun[1].is_multiple_of(every);
        if due(self.job.fsync) {
            Some(SyncWhat::All)
        } else if due(self.job.fdatasync) {
            Some(SyncWhat::Data)
        } else {
            None
        }
    }

    fn turn(&mut self) -> Option<usize> {
        self.service.next(&self.job, &self.files, &mut self.streams.file)
    }

    fn open(&mut self, i: usize) {
        if !self.files[i].open {
            self.files[i].open = true;
            self.pending.push_back(Action::Open(i));
        }
    }

    fn close(&mut self, i: usize) {
        let file = &mut self.files[i];
        if file.open {
            file.open = false;
            self.pending.push_back(Action::Close { file: i });
        }
    }

    fn sync(&mut self, what: SyncWhat) {
        let file = if self.bugs { self.turn() } else { self.last_written };
        let Some(file) = file else { return self.end_round() };
        self.open(file);
        self.sync_allowed = false;
        self.last_was_sync = true;
        self.pending.push_back(Action::Sync { file, what });
    }

    fn direction(&mut self) -> Direction {
        if self.job.trims {
            return Direction::Trim;
        }
        match (self.job.reads, self.job.writes) {
            (true, true) => {}
            (true, false) => return Direction::Read,
            _ => return Direction::Write,
        }
        let current = self.mixed.index();
        if self.begun[current] >= self.owed {
            let read = self.streams.direction.percent() <= self.job.rwmix_read;
            let drawn = if read { Direction::Read } else { Direction::Write };
            if drawn != self.mixed {
                let reads = self.job.rwmix_read;
                let share = if read { reads } else { 100 - reads };
                self.owed = self.begun[current].saturating_mul(share) / 100;
                self.mixed = drawn;
            }
        }
        self.mixed
    }

    /// How the place of the next operation is found.
    fn want(&mut self, d: usize) -> Want {
        if !self.job.random {
            return Want::Next;
        }
        if self.job.sequence > 1 {
            let first = self.run.is_multiple_of(self.job.sequence);
            self.run += 1;
            if !first {
                return if self.job.identical { Want::Again } else { Want::Next };
            }
        }
        let share = self.job.percent_random[d];
        if share >= 100 || self.streams.share[d].percent() <= share {
            Want::Drawn
        } else {
            Want::Next
        }
    }

    fn transfer(&mut self) {
        let Some(file) = self.turn() else { return self.end_round() };
        self.open(file);
        if let Some((offset, length)) = self.files[file].trimmed.take() {
            // Of `rw=randtrimwrite:N` both count.
            self.run += 1;
            return self.begin(file, Direction::Write, (offset, length));
        }
        let mut direction = self.direction();
        if self.has_nothing && direction == Direction::Read && self.job.writes {
            direction = Direction::Write;
        }
        let d = direction.index();
        let want = self.want(d);
        if self.job.strided && self.zone_done >= self.job.zone_size {
            self.zone_done = 0;
            self.files[file].next_zone(&self.job);
        }
        let placed = self.files[file].place(&self.job, d, want, &mut self.streams);
        if std::mem::take(&mut self.files[file].rewound) {
            self.pending.push_back(Action::Rewind { file });
        }
        self.tried = self.files[file].tried.take().or(self.tried);
        let Some((offset, length)) = placed else {
            self.files[file].done = true;
            return self.close(file);
        };
        if self.job.zbd {
            self.is_drawn = want == Want::Drawn;
            return self.pending.push_back(Action::Place { file, direction, offset, length });
        }
        if direction == Direction::Trim && self.job.writes {
            self.files[file].trimmed = Some((offset, length));
        }
        self.begin(file, direction, (offset, length));
    }

    fn begin(&mut self, file: usize, direction: Direction, (offset, length): (u64, u64)) {
        self.count(file, direction, length);
        self.pending.push_back(Action::Io { file, direction, offset, length });
    }

    /// An operation begins.
    fn count(&mut self, file: usize, direction: Direction, length: u64) {
        if direction == Direction::Write {
            self.last_written = Some(file);
        }
        self.begun[direction.index()] += 1;
        self.zone_done += length;
        self.round_bytes += length;
        self.sync_allowed = true;
        self.last_was_sync = false;
        self.moved = true;
        self.budget.spend(length);
        self.missing = self.missing.saturating_sub(length);
    }
}
