//! A drive: a device model, or a plain image file, with requests in and answers out.
//!
//! Picture:    front end (NBD, vhost-user) -> [`Drive`] -> parts of at most what the model takes ->
//!             model; back come [`Answer`]s with the time at which they happened.
//! Invariants: 1. it never looks at a clock: whoever drives it tells the time, which never goes
//!                back;
//!             2. every request is answered exactly once, in this or a later call;
//!             3. requests reach the model in the order in which they came, as far as it takes
//!                them.
//! Crash:      [`freeze`] keeps what a power cut at an instant can leave; what is written after it
//!             goes on as if nothing had happened, and a thaw throws it away.

mod counts;
pub mod freeze;
mod image;
mod log;
mod parts;
mod restore;
pub mod supply;
mod written;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::plain::Shown as _;
use wp_base::{SECTOR_BYTES, Sector, Time, Zone};
use wp_block::{Admit, DevRequest, DeviceModel, Effects, Limits, Status};
use wp_crash::{Recorder, Taped};
use wp_medium::write_log::LogEntry;
use wp_medium::{Content, Medium, Slice};

pub use counts::Counts;
use freeze::{Freezer, Loss, Trigger};
use image::ImageFile;
pub use log::Log;
use parts::Parent;
pub use parts::slices_of;
use supply::Supply;
use written::Written;

/// What a client wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Data to the client.
    Read,
    /// Data from the client.
    Write,
    /// What was answered before is durable afterwards.
    Flush,
    /// The range's contents are no longer needed.
    Discard,
    /// The range reads as zeroes afterwards; with `unmap` it may be discarded for that.
    WriteZeroes {
        /// May the drive forget the range?
        unmap: bool,
    },
    /// Something with a zone.
    Zone(ZoneOp),
}

impl What {
    /// Does it change what is stored?
    fn changes(self) -> bool {
        !matches!(self, What::Read | What::Flush)
    }
}

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name, unique among those that are not answered yet; comes back in [`Answer::tag`].
    pub tag: u64,
    /// What to do.
    pub what: What,
    /// First sector.
    pub at: Sector,
    /// Length in sectors of 512 bytes.
    pub sectors: u64,
    /// Must it be durable when it is answered? Means something for what writes.
    pub fua: bool,
    /// What to write: `sectors * 512` bytes ([`slices_of`]); nothing for all else.
    pub data: Vec<Slice>,
}

/// Its answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// [`Request::tag`].
    pub tag: u64,
    /// When it was done.
    pub at: Time,
    /// How it went.
    pub status: Result<(), Status>,
    /// What a read found, in order.
    pub data: Vec<Slice>,
    /// Where a zone append has written.
    pub appended: Option<Sector>,
}

/// A stretch of a drive: does it hold data, or only zeroes?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Its length in sectors.
    pub sectors: u64,
    /// Is nothing stored there?
    pub is_hole: bool,
}

/// What stands behind a drive.
enum Store {
    /// A device model, on a tape.
    Model(Box<Model>),
    /// A file of the host, in place: no model, no time.
    File(ImageFile),
}

/// A model, its timers and what it has in hand.
struct Model {
    device: Taped,
    recorder: Recorder,
    /// The model's time is the drive's and so much more: what a thaw restores takes time of the
    /// model, and none of the client's.
    ahead: u64,
    /// (model time, order, token).
    timers: BinaryHeap<Reverse<(Time, u64, u64)>>,
    order: u64,
    fx: Effects,
    /// Parts that are in the model: name -> (tag of the request, which part, is it a flush?).
    flying: BTreeMap<u64, (u64, u32, bool)>,
    flushes: u32,
    waiting: VecDeque<(DevRequest, u64, u32)>,
    name: u64,
}

/// The drive.
pub struct Drive {
    store: Store,
    limits: Limits,
    name: String,
    now: Time,
    parents: BTreeMap<u64, Parent>,
    /// When the last flush came of those that are answered.
    flushed: Option<Time>,
    answers: VecDeque<Answer>,
    counts: Counts,
    log: Option<Log>,
    /// What was written, in the order of completion, and marks where it was submitted, if somebody
    /// wants to know.
    written: Option<Written>,
    freezer: Freezer,
    on_thaw: Option<OnThaw>,
    supply: Option<Supply>,
    read_only: bool,
}

/// Told of what a thaw has left, before anybody reads it.
pub type OnThaw = Box<dyn FnMut(&Medium, &[Zone])>;

impl Drive {
    /// A drive of a model. `loss`: what a thaw will go by ([`Loss::Contract`] keeps a record of
    /// every request since the last thaw).
    pub fn new(name: &str, model: Box<dyn DeviceModel>, loss: Loss) -> Drive {
        let limits = *model.limits();
        let (device, recorder) = Taped::new(model);
        let model = Model {
            device,
            recorder,
            ahead: 0,
            timers: BinaryHeap::new(),
            order: 0,
            fx: Effects::new(),
            flying: BTreeMap::new(),
            flushes: 0,
            waiting: VecDeque::new(),
            name: 0,
        };
        let mut drive = Drive::of(name, Store::Model(Box::new(model)), limits);
        drive.freezer.loss = loss;
        drive.arm();
        drive
    }

    /// A drive that is an image file of the host, read and written in place. Errors: the host's; a
    /// length that is not a multiple of 512 bytes.
    pub fn of_file(path: &std::path::Path, read_only: bool) -> std::io::Result<Drive> {
        let file = ImageFile::open(path, read_only)?;
        let limits = file.limits();
        Ok(Drive::of(&path.shown(), Store::File(file), limits))
    }

    fn of(name: &str, store: Store, limits: Limits) -> Drive {
        Drive {
            store,
            limits,
            name: name.to_owned(),
            now: Time(0),
            parents: BTreeMap::new(),
            flushed: None,
            answers: VecDeque::new(),
            counts: Counts::default(),
            log: None,
            written: None,
            freezer: Freezer::default(),
            on_thaw: None,
            supply: None,
            read_only: false,
        }
    }

    /// Has every request that would change something refused from now on.
    pub fn set_read_only(&mut self) {
        self.read_only = true;
    }

    /// Does it refuse what would change something?
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Its name: the preset's, or the file's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the device says of itself.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Is there a model behind it? If not, it has no time and no loss contract.
    pub fn is_modelled(&self) -> bool {
        matches!(self.store, Store::Model(_))
    }

    /// Its zones as a report has them; none of a drive without.
    pub fn zones(&self) -> Vec<Zone> {
        match &self.store {
            Store::Model(m) => m.device.zones(),
            Store::File(_) => Vec::new(),
        }
    }

    /// Its contents as a reader sees them. `None` of an image file.
    pub fn medium(&self) -> Option<Medium> {
        match &self.store {
            Store::Model(m) => Some(m.device.medium()),
            Store::File(_) => None,
        }
    }

    /// What was asked so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The model's own counters: (name with its unit, value).
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        match &self.store {
            Store::Model(m) => m.device.counters(),
            Store::File(_) => Vec::new(),
        }
    }

    /// Has every request and answer written down from now on.
    pub fn record(&mut self, log: Log) {
        self.log = Some(log);
    }

    /// Ends the record. Errors: the host's, of any line of it.
    pub fn end_record(&mut self) -> std::io::Result<()> {
        self.log.take().map_or(Ok(()), Log::finish)
    }

    /// Keeps everything that is written from now on, for a log as dm-log-writes makes it, with
    /// marks of the order in which it was submitted ([`wp_medium::log_order`]).
    pub fn keep_writes(&mut self) {
        self.written = Some(Written::default());
    }

    /// What was written since [`Drive::keep_writes`], in the order in which it was answered; where
    /// the power went and came back there are marks, and those of [`Drive::mark`].
    pub fn written(&self) -> &[LogEntry] {
        self.written.as_ref().map_or(&[], |w| &w.entries)
    }

    /// The same, of which the drive keeps nothing: what comes later begins a new list. Whoever runs
    /// a guest for hours does not have all that it wrote in memory.
    pub fn take_written(&mut self) -> Vec<LogEntry> {
        self.written.as_mut().map_or_else(Vec::new, |w| std::mem::take(&mut w.entries))
    }

    /// The time that it was told last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What was answered before this time is durable by a flush that has ended: when the last one
    /// came of those that are answered, without an error. `None`: none is.
    pub fn flushed(&self) -> Option<Time> {
        self.flushed
    }

    /// Requests that are not answered yet.
    pub fn unanswered(&self) -> usize {
        self.parents.len()
    }

    /// When something happens next if nothing more is asked; `None`: never. Not before now.
    pub fn next(&self) -> Option<Time> {
        if let Some(answer) = self.answers.front() {
            return Some(answer.at.max(self.now));
        }
        let Store::Model(m) = &self.store else { return None };
        let timer = m.timers.peek().map(|Reverse((at, _, _))| Time(at.0.saturating_sub(m.ahead)));
        let cut = match self.freezer.trigger {
            Some(Trigger::Time(at)) => Some(at),
            _ => None,
        };
        [timer, cut].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Hands it a request at `now`.
    pub fn submit(&mut self, now: Time, request: Request) {
        self.run_until(now);
        let now = self.now;
        self.event(request.what.changes());
        self.counts.count(request.what, request.fua);
        if let Some(log) = &mut self.log {
            log.submitted(now, &request);
        }
        let verdict = self.check(&request);
        let (tag, what) = (request.tag, request.what);
        let mut parent = Parent::of(&request, now);
        if let Some(written) = &mut self.written {
            written.submitted(&request, &mut parent);
        }
        self.parents.insert(tag, parent);
        match (verdict, &mut self.store) {
            (Err(status), _) => self.answer(tag, Err(status)),
            (Ok(()), Store::File(file)) => {
                let (status, data) = file.serve(&request);
                if let Some(parent) = self.parents.get_mut(&tag) {
                    parent.put(0, data, None);
                }
                self.answer(tag, status);
            }
            (Ok(()), Store::Model(_)) if what == What::Flush && !self.limits.volatile_cache => {
                self.answer(tag, Ok(()));
            }
            (Ok(()), Store::Model(_)) => self.split(request),
        }
    }

    /// Goes on to `now`: everything that happens until then happens. A queue that was drained may
    /// have taken it further than the clock is: then nothing happens.
    pub fn run_until(&mut self, now: Time) {
        while let Some(at) = self.next_in_model().filter(|at| *at <= now) {
            self.now = at.max(self.now);
            self.step();
        }
        self.now = now.max(self.now);
    }

    /// The next answer that has happened by now.
    pub fn take(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Which of `sectors` from `at` hold something, in order; it may tell of fewer.
    pub fn extents(&self, at: Sector, sectors: u64) -> Vec<Extent> {
        /// More than this is not looked through at once: 256 MiB.
        const MOST: u64 = 1 << 19;
        let sectors = sectors.min(MOST);
        let medium = match &self.store {
            Store::Model(m) => m.device.medium(),
            Store::File(file) => return file.extents(at, sectors),
        };
        let mut out: Vec<Extent> = Vec::new();
        for slice in medium.read(at, sectors as u32) {
            let is_hole = matches!(slice.content(), Content::Zero);
            let n = u64::from(slice.len()) / SECTOR_BYTES;
            match out.last_mut() {
                Some(last) if last.is_hole == is_hole => last.sectors += n,
                _ => out.push(Extent { sectors: n, is_hole }),
            }
        }
        out
    }

    /// As [`Drive::next`], answers that wait to be taken aside.
    fn next_in_model(&self) -> Option<Time> {
        let Store::Model(m) = &self.store else { return None };
        let timer = m.timers.peek().map(|Reverse((at, _, _))| Time(at.0.saturating_sub(m.ahead)));
        let cut = match self.freezer.trigger {
            Some(Trigger::Time(at)) => Some(at),
            _ => None,
        };
        [timer, cut].into_iter().flatten().min()
    }

    /// What happens now: the power goes, or a timer of the model fires.
    fn step(&mut self) {
        if matches!(self.freezer.trigger, Some(Trigger::Time(at)) if at <= self.now) {
            self.freeze();
            return;
        }
        let Store::Model(m) = &mut self.store else { return };
        let Some(Reverse((at, _, token))) = m.timers.pop() else { return };
        m.device.timer(at, token, &mut m.fx);
        self.absorb();
    }

    /// May the request be asked of this drive? What is malformed is an I/O error, as a device
    /// has it.
    fn check(&self, rq: &Request) -> Result<(), Status> {
        let unit = u64::from(self.limits.logical_bytes) / SECTOR_BYTES;
        let ranged = !matches!(rq.what, What::Flush | What::Zone(_));
        let inside = rq.at.0.checked_add(rq.sectors).is_some_and(|end| end <= self.limits.sectors);
        let aligned = rq.at.0.is_multiple_of(unit) && rq.sectors.is_multiple_of(unit);
        if self.read_only && rq.what.changes() {
            return Err(Status::Io);
        }
        if ranged && (!inside || !aligned || rq.sectors == 0) {
            return Err(Status::Io);
        }
        let writes = matches!(rq.what, What::Write | What::Zone(ZoneOp::Append));
        let bytes: u64 = rq.data.iter().map(|s| u64::from(s.len())).sum();
        if bytes != if writes { rq.sectors * SECTOR_BYTES } else { 0 } {
            return Err(Status::Io);
        }
        match rq.what {
            What::Discard if !self.limits.discard => Err(Status::NotSupported),
            What::Zone(_) if self.limits.zones.is_none() => Err(Status::NotSupported),
            _ => Ok(()),
        }
    }

    /// Takes a request apart and hands the parts to the model.
    fn split(&mut self, request: Request) {
        let parts = parts::split(&self.limits, &request);
        let tag = request.tag;
        let Some(parent) = self.parents.get_mut(&tag) else { return };
        parent.left = parts.len() as u32;
        let Store::Model(m) = &mut self.store else { return };
        for (n, part) in (0..).zip(parts) {
            let id = m.new_name();
            m.waiting.push_back((DevRequest { id, ..part }, tag, n));
        }
        self.dispatch();
    }

    /// Hands the model what it takes, in order.
    fn dispatch(&mut self) {
        let alone = !self.limits.flush_beside_others;
        let Store::Model(m) = &mut self.store else { return };
        while let Some((rq, tag, n)) = m.waiting.pop_front() {
            let is_flush = rq.op == Op::Flush;
            if alone && (is_flush && !m.flying.is_empty() || m.flushes > 0) {
                m.waiting.push_front((rq, tag, n));
                break;
            }
            let (id, now) = (rq.id, Time(self.now.0.saturating_add(m.ahead)));
            match m.device.submit(now, rq, &mut m.fx) {
                Admit::Accepted => {
                    m.flying.insert(id, (tag, n, is_flush));
                    m.flushes += u32::from(is_flush);
                }
                Admit::Busy(rq) => {
                    m.waiting.push_front((rq, tag, n));
                    break;
                }
            }
        }
        if !m.fx.done.is_empty() || !m.fx.timers.is_empty() {
            self.absorb();
        }
    }

    /// Takes in what the model has said, and hands it what now fits.
    fn absorb(&mut self) {
        let Store::Model(m) = &mut self.store else { return };
        for (at, token) in m.fx.timers.drain(..) {
            m.timers.push(Reverse((at, m.order, token)));
            m.order += 1;
        }
        let done: Vec<_> = m.fx.done.drain(..).collect();
        m.fx.clear();
        let any = !done.is_empty();
        for d in done {
            let Store::Model(m) = &mut self.store else { return };
            let Some((tag, n, is_flush)) = m.flying.remove(&d.id) else { continue };
            m.flushes -= u32::from(is_flush);
            self.part_done(tag, n, d.status, d.data, d.appended);
        }
        if any {
            self.dispatch();
        }
    }

    fn part_done(
        &mut self,
        tag: u64,
        n: u32,
        status: Result<(), Status>,
        data: Vec<Slice>,
        appended: Option<Sector>,
    ) {
        let Some(parent) = self.parents.get_mut(&tag) else { return };
        parent.put(n, data, appended);
        parent.status = parent.status.and(status);
        parent.left -= 1;
        if parent.left > 0 {
            return;
        }
        let (status, forced) = (parent.status, parent.fua);
        // A drive without FUA makes a forced write durable by a flush behind it; so is a discard,
        // which no drive takes forced.
        let flushed = !self.limits.fua || parent.is_discard(&self.limits);
        if forced && status.is_ok() && self.limits.volatile_cache && flushed {
            parent.fua = false;
            parent.left = 1;
            let Store::Model(m) = &mut self.store else { return };
            let flush = parts::device_request(m.new_name(), Op::Flush, Sector(0), 0);
            m.waiting.push_back((flush, tag, u32::MAX));
            return;
        }
        self.answer(tag, status);
    }

    /// The request is done.
    fn answer(&mut self, tag: u64, status: Result<(), Status>) {
        let Some(parent) = self.parents.remove(&tag) else { return };
        if let Some(log) = &mut self.log {
            log.answered(self.now, &parent, status);
        }
        if let (Some(written), Ok(())) = (&mut self.written, status) {
            written.completed(&parent);
        }
        if parent.what == What::Flush && status.is_ok() {
            self.flushed = self.flushed.max(Some(parent.since));
        }
        let at = self.now;
        let appended = parent.appended;
        let data = parent.into_data();
        self.answers.push_back(Answer { tag, at, status, data, appended });
        self.event(false);
    }

    /// One more event: is it the one at which the power goes?
    fn event(&mut self, changes: bool) {
        self.counts.events += 1;
        let due = match self.freezer.trigger {
            Some(Trigger::Events(n)) => self.counts.events >= n,
            Some(Trigger::Changes(n)) => changes && self.counts.changes().saturating_add(1) >= n,
            _ => false,
        };
        if due {
            self.freeze();
        }
    }
}

impl Model {
    fn new_name(&mut self) -> u64 {
        self.name += 1;
        self.name
    }
}

/// Flags of a part.
fn flags(fua: bool) -> Flags {
    if fua { Flags::FUA } else { Flags::NONE }
}

#[cfg(test)]
mod tests;
