//! Replay of requests onto a device model, in virtual time.
//!
//! Picture:    requests -> when is the next due ([`Mode`]) -> `host`: commands, as a driver sends
//!             them -> device -> how long each took ([`Outcome`]).
//! Laws:       1. requests are sent in the order of the trace, one after the other;
//!             2. no more than the depth are at the device or wait for it; a device that takes
//!                fewer makes the others wait;
//!             3. `afap`: a request is due at once. `timed`: as long after the first as it was in
//!                the trace. `think`: let c(j) be the recorded completion of request j, its time
//!                if none is recorded, and p(i) the request before i with the latest c(p) that is
//!                not after i's own time t(i). Then i is due t(i) - c(p) after p has completed
//!                here; without a p, as in `timed`. So a gap counts less what the recorded device
//!                took of it, requests that overlapped may overlap, and a faster device ends
//!                earlier. Of a trace with one request at a time it is the gap less the recorded
//!                service time.
//! Invariants: the same requests on the same device give the same outcome.
//! Left out:   the block layer: nothing is merged, sorted or held by a plug. A trace's `D` has been
//!             through all of that already.

mod host;
mod outcome;
mod streams;
mod think;

use std::collections::BTreeMap;

use wp_base::event::{Flags, Op};
use wp_base::{SECTOR_BYTES, Sector, Span, Time};
use wp_block::DeviceModel;
use wp_medium::Slice;

use crate::error::TraceError;
use crate::item::Event;
use crate::requests::Request;
use host::{Command, Host};
pub use outcome::{OpCounts, Outcome, StreamCounts};
pub use streams::{Pace, Stream, replay_streams};
use think::Think;

/// Requests between two looks at whether to go on.
const LOOK_EVERY: u64 = 1024;
/// Longest request: a bio counts its bytes in 32 bits.
const SECTORS_MAX: u32 = 1 << 23;
/// Longest trace: whatever is later is no time, but damage.
const SPAN_MAX: Span = Span::secs(100 * 365 * 86_400);
/// Bytes of a write with which a device is filled.
const FILL_BYTES: u64 = 512 * 1024;

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// As fast as possible: as soon as there is room.
    Afap,
    /// At the times of the trace, whatever the device does.
    Timed,
    /// After the time that the host thought.
    Think,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Afap, Mode::Timed, Mode::Think];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Afap => "afap",
            Mode::Timed => "timed",
            Mode::Think => "think",
        }
    }

    /// By its name.
    pub fn find(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|m| m.name() == name)
    }
}

/// How to replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// When requests are sent.
    pub mode: Mode,
    /// Most requests at a time; without it what the device takes.
    pub depth: Option<u32>,
    /// Sectors that are added to each place.
    pub offset: i64,
    /// Is each sector taken modulo the device's size? If not, one beyond its end is an error.
    pub wrap: bool,
    /// Is a request widened to whole blocks of the device? If not, one that is none is an error.
    pub align: bool,
    /// Bytes from the beginning that are written once before.
    pub fill_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        let mode = Mode::Afap;
        Options { mode, depth: None, offset: 0, wrap: false, align: false, fill_bytes: 0 }
    }
}

/// Why a replay ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplayError {
    /// The trace cannot be read on.
    Trace(TraceError),
    /// A request that the device cannot be asked for.
    Request {
        /// It.
        request: Box<Request>,
        /// Why not.
        what: String,
        /// What to do.
        help: &'static str,
    },
    /// The device neither completes nor sets a timer: a mistake of its model.
    Stuck(Time),
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Requests sent.
    pub requests: u64,
    /// Sectors of [`Options::fill_bytes`] that are written, and all of them, while it fills.
    pub filled: Option<(u64, u64)>,
    /// Virtual time since the replay began, or the filling.
    pub elapsed: Span,
}

/// Plays `requests`, which come in the order of their times, on `device`. `go_on` is asked now and
/// then; what was done until it says no counts.
pub fn replay(
    device: Box<dyn DeviceModel>,
    requests: impl Iterator<Item = Result<Request, TraceError>>,
    options: &Options,
    go_on: &mut dyn FnMut(Progress) -> bool,
) -> Result<Outcome, ReplayError> {
    let mut player = Player::new(device, *options);
    if player.fill(go_on)? {
        player.play(requests, go_on)?;
    }
    Ok(player.outcome())
}

/// A request at the device.
struct Flight {
    event: Event,
    due: Time,
    sent: Option<Time>,
    /// Number in the trace.
    number: u64,
    /// Which of several streams it is of.
    stream: usize,
    /// Groups of commands, the last group first; a group is sent when no command of the request is
    /// in flight.
    groups: Vec<Vec<Command>>,
    /// Commands of the present group.
    left: usize,
    failed: bool,
}

struct Player {
    host: Host,
    options: Options,
    depth: usize,
    flights: BTreeMap<u64, Flight>,
    think: Think,
    out: Outcome,
    /// Requests of each stream that are under way.
    under_way: Vec<u64>,
    began: Time,
    counters_before: Vec<(&'static str, u64)>,
}

impl Player {
    fn new(device: Box<dyn DeviceModel>, options: Options) -> Player {
        let host = Host::new(device);
        let depth = options.depth.unwrap_or(host.limits().queue_depth).max(1) as usize;
        Player {
            host,
            options,
            depth,
            flights: BTreeMap::new(),
            think: Think::default(),
            out: Outcome::default(),
            under_way: vec![0],
            began: Time::ZERO,
            counters_before: Vec::new(),
        }
    }

    /// Writes the beginning of the device, in order, and has it flushed. False if `go_on` said no.
    fn fill(&mut self, go_on: &mut dyn FnMut(Progress) -> bool) -> Result<bool, ReplayError> {
        let limits = *self.host.limits();
        let end = self.options.fill_bytes.min(limits.sectors * SECTOR_BYTES) / SECTOR_BYTES;
        let step = (FILL_BYTES / SECTOR_BYTES).min(limits.max_sectors.into());
        let unit = u64::from(limits.logical_bytes) / SECTOR_BYTES;
        let (mut at, end) = (0, end / unit * unit);
        while at < end {
            let sectors = step.min(end - at) as u32;
            self.host.queue(Command::write(Sector(at), sectors, fill_tag(), Flags::NONE));
            at += u64::from(sectors);
            self.drain(limits.queue_depth as usize - 1)?;
            let elapsed = self.host.now().since(Time::ZERO);
            if !go_on(Progress { requests: 0, filled: Some((at, end)), elapsed }) {
                self.out.interrupted = true;
                break;
            }
        }
        if end > 0 && limits.volatile_cache {
            self.host.queue(Command::flush());
        }
        self.drain(0)?;
        self.out.failed_fill = self.host.take_done().filter(|(_, how)| how.is_err()).count() as u64;
        self.began = self.host.now();
        self.counters_before = self.host.counters();
        Ok(!self.out.interrupted)
    }

    /// Goes on until no more than `most` commands are under way.
    fn drain(&mut self, most: usize) -> Result<(), ReplayError> {
        self.host.dispatch();
        while self.host.under_way() > most {
            if !self.host.step(Time::NEVER) {
                return Err(ReplayError::Stuck(self.host.now()));
            }
            self.host.dispatch();
        }
        Ok(())
    }

    fn play(
        &mut self,
        mut requests: impl Iterator<Item = Result<Request, TraceError>>,
        go_on: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(), ReplayError> {
        let mut next: Option<Request> = None;
        let mut first_ns = None;
        let mut number = 0u64;
        let mut ended = false;
        loop {
            if next.is_none() && !ended {
                next = requests.next().transpose().map_err(ReplayError::Trace)?;
                ended = next.is_none();
            }
            // When is it due, if that is known and there is room?
            let mut wake = Time::NEVER;
            if let Some(r) = next {
                let first_ns = *first_ns.get_or_insert(r.event.at_ns);
                let after = Span(r.event.at_ns.saturating_sub(first_ns));
                if after > SPAN_MAX {
                    let what = format!("{} s after the first request", after.0 / 1_000_000_000);
                    let help = "a trace spans at most a century: check the format (--format)";
                    return Err(ReplayError::Request { request: Box::new(r), what, help });
                }
                let due = match self.options.mode {
                    Mode::Afap => Some(self.host.now()),
                    Mode::Timed => Some(self.began + after),
                    Mode::Think => self.think.due(&r, self.began + after),
                };
                let has_room = self.flights.len() < self.depth && self.host.is_idle();
                if let (Some(due), true) = (due, has_room) {
                    if due <= self.host.now() {
                        self.send(&r, (number, 0), due)?;
                        self.out.trace = after;
                        next = None;
                        number += 1;
                        let elapsed = self.host.now().since(self.began);
                        if number.is_multiple_of(LOOK_EVERY)
                            && !go_on(Progress { requests: number, filled: None, elapsed })
                        {
                            self.out.interrupted = true;
                            ended = true;
                        }
                        continue;
                    }
                    wake = due;
                }
            } else if self.flights.is_empty() {
                return Ok(());
            }
            if !self.host.step(wake) {
                return Err(ReplayError::Stuck(self.host.now()));
            }
            self.settle();
        }
    }

    /// Hands a request over, whose time has come: its number, and its stream's.
    fn send(
        &mut self,
        r: &Request,
        (number, stream): (u64, usize),
        due: Time,
    ) -> Result<(), ReplayError> {
        let groups = self.commands(r, number)?;
        let e = &r.event;
        let counts = self.out.of(e.op);
        counts.requests += 1;
        counts.bytes += u64::from(e.sectors) * SECTOR_BYTES;
        if let Some(done) = r.done_ns {
            counts.recorded.add(done.saturating_sub(e.at_ns));
        }
        self.think.sent(r, number, self.options.mode == Mode::Think);
        self.under_way[stream] += 1;
        let (event, left, failed) = (*e, 0, false);
        let flight = Flight { event, due, sent: None, number, stream, groups, left, failed };
        self.flights.insert(number, flight);
        self.go_on_with(number);
        self.host.dispatch();
        self.settle();
        Ok(())
    }

    /// Queues the next group of a request; false if there is none.
    fn go_on_with(&mut self, number: u64) -> bool {
        let Some(flight) = self.flights.get_mut(&number) else { return false };
        let Some(group) = flight.groups.pop() else {
            self.end(number);
            return false;
        };
        flight.left = group.len();
        for command in group {
            self.host.queue(Command { owner: number, ..command });
        }
        true
    }

    /// Takes note of what the device took and completed.
    fn settle(&mut self) {
        loop {
            for (owner, at) in self.host.take_admitted() {
                let Some(flight) = self.flights.get_mut(&owner) else { continue };
                if flight.sent.is_none() {
                    flight.sent = Some(at);
                    let late = at.since(flight.due);
                    if self.options.mode == Mode::Timed && late > Span::ZERO {
                        self.out.late.add(late.0);
                    }
                }
            }
            let done: Vec<_> = self.host.take_done().collect();
            if done.is_empty() {
                return;
            }
            for (owner, how) in done {
                let Some(flight) = self.flights.get_mut(&owner) else { continue };
                if let Err(status) = how {
                    flight.failed = true;
                    self.out.first_failed.get_or_insert((flight.event, status));
                }
                flight.left -= 1;
                if flight.left == 0 {
                    self.go_on_with(owner);
                }
            }
            self.host.dispatch();
        }
    }

    fn end(&mut self, number: u64) {
        let Some(flight) = self.flights.remove(&number) else { return };
        let now = self.host.now();
        self.think.completed(flight.number, now);
        self.out.end = now.since(self.began);
        self.under_way[flight.stream] -= 1;
        if let Some(of_stream) = self.out.streams.get_mut(flight.stream) {
            of_stream.requests += 1;
            if flight.sent.is_some() && !flight.failed {
                of_stream.bytes_done += u64::from(flight.event.sectors) * SECTOR_BYTES;
                of_stream.response.add(now.since(flight.due).0);
            }
        }
        let counts = self.out.of(flight.event.op);
        let Some(sent) = flight.sent else {
            // Nothing had to be sent: a flush of a device that has nothing to flush.
            counts.not_sent += 1;
            return;
        };
        if flight.failed {
            counts.failed += 1;
            return;
        }
        counts.bytes_done += u64::from(flight.event.sectors) * SECTOR_BYTES;
        counts.service.add(now.since(sent).0);
        counts.response.add(now.since(flight.due).0);
    }

    fn outcome(mut self) -> Outcome {
        self.out.counters = self.host.counters();
        self.out.counters_before = self.counters_before;
        self.out.fill = self.began.since(Time::ZERO);
        self.out.busy = self.host.refused();
        self.out.depth = self.depth as u64;
        self.out
    }

    /// The commands of a request: groups that follow one another, the last first.
    fn commands(&mut self, r: &Request, number: u64) -> Result<Vec<Vec<Command>>, ReplayError> {
        let limits = *self.host.limits();
        let e = &r.event;
        let flush = || vec![Command::flush()];
        let mut groups = Vec::new();
        if e.op == Op::Flush {
            if limits.volatile_cache {
                groups.push(flush());
            }
            return Ok(groups);
        }
        if e.op == Op::Discard && !limits.discard {
            return Ok(groups);
        }
        let is_write = e.op == Op::Write;
        let fua = is_write && e.flags.has(Flags::FUA) && limits.volatile_cache;
        if fua && !limits.fua {
            groups.push(flush());
        }
        let flags = if fua && limits.fua { Flags::FUA } else { Flags::NONE };
        let mut parts = Vec::new();
        for (at, sectors) in self.places(r)? {
            let most = if e.op == Op::Discard { u32::MAX } else { limits.max_sectors };
            let (mut at, mut left) = (at, sectors);
            while left > 0 {
                let n = left.min(most.into()) as u32;
                parts.push(match e.op {
                    Op::Write if e.zeroes => Command {
                        data: Some(Slice::zero(n * SECTOR_BYTES as u32)),
                        ..Command::new(Op::Write, Sector(at), n, flags)
                    },
                    Op::Write => Command::write(Sector(at), n, number + 1, flags),
                    op => Command::new(op, Sector(at), n, flags),
                });
                (at, left) = (at + u64::from(n), left - u64::from(n));
            }
        }
        self.out.split += parts.len() as u64 - 1;
        groups.push(parts);
        if e.flags.has(Flags::PREFLUSH) && limits.volatile_cache {
            groups.push(flush());
        }
        Ok(groups)
    }

    /// Where on the device a request is: one place, or several if it is wrapped.
    fn places(&mut self, r: &Request) -> Result<Vec<(u64, u64)>, ReplayError> {
        let limits = *self.host.limits();
        let e = &r.event;
        let refused =
            |what: String, help| Err(ReplayError::Request { request: Box::new(*r), what, help });
        if e.sectors > SECTORS_MAX {
            let what = format!("a request of {} sectors", e.sectors);
            return refused(what, "a request has at most 4 GiB: check the format (--format)");
        }
        let size = limits.sectors;
        let Some(mut at) = e.at.0.checked_add_signed(self.options.offset) else {
            let what =
                format!("sector {} + offset {} is out of range", e.at.0, self.options.offset);
            return refused(what, "a smaller --offset");
        };
        let mut sectors = u64::from(e.sectors);
        let unit = u64::from(limits.logical_bytes) / SECTOR_BYTES;
        let end = at.checked_add(sectors);
        let over = end.and_then(|end| Some((at % unit, end.checked_next_multiple_of(unit)? - end)));
        match over {
            None => {
                return refused(
                    format!("sector {at} is out of range"),
                    "check the format: --format",
                );
            }
            Some((0, 0)) => {}
            Some((before, after)) if self.options.align => {
                at -= before;
                sectors += before + after;
                self.out.widened += 1;
            }
            Some(_) => {
                let what = format!(
                    "sectors {at} + {sectors} are not whole blocks of {} bytes",
                    limits.logical_bytes
                );
                return refused(what, "--align widens such requests, or choose another --on");
            }
        }
        if at + sectors <= size {
            return Ok(vec![(at, sectors)]);
        }
        if !self.options.wrap {
            let what = format!("sectors {at} + {sectors} are beyond the device's {size}");
            return refused(
                what,
                "--wrap folds them onto it, --offset moves them, or a larger --on",
            );
        }
        self.out.wrapped += 1;
        let (mut at, mut places) = (at % size, Vec::new());
        // As large as the device is as good as larger.
        let mut left = sectors.min(size);
        while left > 0 {
            let n = left.min(size - at);
            places.push((at, n));
            (at, left) = (0, left - n);
        }
        Ok(places)
    }
}

/// The tag of what a device is filled with; requests have their number, from 1.
fn fill_tag() -> u64 {
    0
}
