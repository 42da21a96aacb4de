//! Requests of a trace: of one device or several, by one step, each with its recorded completion.
//!
//! Picture:    events -> those asked for -> waiting for their `C` -> requests in their order.
//! Laws:       a completion ends the requests of its device and kind that lie within it, and of
//!             those that begin at one sector the oldest; one that is shorter than its request
//!             leaves the rest of it. A completion without sectors ends the oldest flush.
//! Invariants: requests come in the order of the trace, and their times never go back: a line that
//!             is out of order by more than a window is given the time before it, and counted.
//! Left out:   completions later than `WAITING_MAX` requests or `TOOK_MAX`: the request counts
//!             as one whose completion is not known.

use std::collections::{BTreeMap, VecDeque};

use wp_base::event::Op;
use wp_base::{Sector, Span};

use crate::devices::{Counts, Devices};
use crate::error::TraceError;
use crate::item::{Event, Item, Skip, Step};
use crate::trace::Trace;

/// Requests that wait for their completion: more than any queue holds, by far. Those of a trace
/// without completions wait so long in vain.
const WAITING_MAX: usize = 1 << 14;
/// Longest that a request takes. Drivers give one up after minutes; what is later than a day is no
/// time, but damage.
const TOOK_MAX: Span = Span::secs(86_400);
/// Requests that are counted for a message.
const COUNTED_MAX: u64 = 1 << 20;
/// Events among which a `D` is looked for when nothing says whether `Q` or `D` is wanted.
const LOOKED_AT: usize = 4096;

/// The step at which a request counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// `Q`: bios, as a file system sent them.
    Queue,
    /// `D`: requests, as a driver got them, merged and sorted.
    Issue,
    /// The format has one line a request.
    Whole,
}

impl Action {
    /// Its letter, as blktrace's; `-` of formats that have none.
    pub fn letter(self) -> &'static str {
        match self {
            Action::Queue => "Q",
            Action::Issue => "D",
            Action::Whole => "-",
        }
    }
}

/// Which requests are wanted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Select {
    /// Of these devices or files.
    pub devices: Devices,
    /// At this step. Without it `D`, or `Q` of a trace that begins without `D`.
    pub action: Option<Action>,
    /// Sectors that are added to the addresses of a device, by its name ([`crate::bases`]).
    pub bases: BTreeMap<String, u64>,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The event that it is made of; its time is the one to go by.
    pub event: Event,
    /// When it completed, on the same clock, if that was recorded.
    pub done_ns: Option<u64>,
}

/// Requests that wait for a completion are found by device, kind, sector and number.
type Key = (u32, Kind, u64, u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Read,
    Write,
    Discard,
    Flush,
}

fn kind(op: Op) -> Kind {
    match op {
        Op::Read => Kind::Read,
        Op::Discard => Kind::Discard,
        Op::Flush => Kind::Flush,
        Op::Write | Op::Zone(_) => Kind::Write,
    }
}

/// The step that an event is taken at; a completion is at none.
fn action_of(step: Step) -> Action {
    match step {
        Step::Queue => Action::Queue,
        Step::Issue | Step::Complete => Action::Issue,
        Step::Whole { .. } => Action::Whole,
    }
}

/// When a request of that time completed, if it can have been then: not before, and not days
/// later.
fn completion(at_ns: u64, done_ns: u64) -> Option<u64> {
    let took = done_ns.saturating_sub(at_ns);
    (took <= TOOK_MAX.0).then_some(at_ns + took)
}

/// The requests of a trace.
pub struct Requests<'t, 'a> {
    trace: &'t mut Trace<'a>,
    select: Select,
    /// Events read before it was known which action is wanted.
    ahead: VecDeque<Event>,
    action: Option<Action>,
    /// Of each device met at this step: what is added to its addresses, if it is wanted.
    chosen: BTreeMap<u32, Option<u64>>,
    counts: Counts,
    /// With the sector under which each is in `open`.
    waiting: VecDeque<(Request, u64)>,
    /// Number of the first of `waiting`.
    first: u64,
    /// By key: where it ends.
    open: BTreeMap<Key, u64>,
    last_ns: u64,
    out_of_order: u64,
    ended: bool,
    error: Option<TraceError>,
}

impl<'t, 'a> Requests<'t, 'a> {
    /// Those of `trace` that are selected.
    pub fn new(trace: &'t mut Trace<'a>, select: Select) -> Requests<'t, 'a> {
        let action = select.action;
        Requests {
            trace,
            select,
            ahead: VecDeque::new(),
            action,
            chosen: BTreeMap::new(),
            counts: Counts::default(),
            waiting: VecDeque::new(),
            first: 0,
            open: BTreeMap::new(),
            last_ns: 0,
            out_of_order: 0,
            ended: false,
            error: None,
        }
    }

    /// The trace that they are of.
    pub fn trace(&self) -> &Trace<'a> {
        self.trace
    }

    /// The step that is taken; `None` before the first request.
    pub fn action(&self) -> Option<Action> {
        self.action
    }

    /// The devices that they are of so far, and how many of each.
    pub fn devices(&self) -> Vec<(&str, u64)> {
        let wanted = |id: &u32| self.chosen.get(id).is_some_and(Option::is_some);
        let met = self.counts.devices.iter().filter(|(id, _)| wanted(id));
        met.map(|(id, n)| (self.trace.names().name(*id), *n)).collect()
    }

    /// Why there is no request, and what to do; of a trace that was read to its end.
    pub fn none(&self) -> (String, String) {
        self.counts.none(self.trace, &self.select, self.action)
    }

    /// Lines that were later than their place.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// The next event from the trace; marks are counted.
    fn event_of_trace(&mut self) -> Option<Event> {
        while !self.ended {
            match self.trace.next_item() {
                Some(Ok(Item::Event(e))) => return Some(e),
                Some(Ok(Item::Mark { .. })) => self.trace.skip(Skip::Note),
                Some(Ok(Item::Skip(..))) => {}
                Some(Err(e)) => {
                    self.error = Some(e);
                    self.ended = true;
                }
                None => self.ended = true,
            }
        }
        None
    }

    /// Looks for a `D` near the beginning.
    fn choose_action(&mut self) {
        let mut found = None;
        while found.is_none() && self.ahead.len() < LOOKED_AT {
            let Some(e) = self.event_of_trace() else { break };
            self.ahead.push_back(e);
            match e.step {
                Step::Issue => found = Some(Action::Issue),
                Step::Whole { .. } => found = Some(Action::Whole),
                Step::Queue | Step::Complete => {}
            }
        }
        self.action = Some(found.unwrap_or(Action::Queue));
    }

    fn next_event(&mut self) -> Option<Event> {
        if self.action.is_none() {
            self.choose_action();
        }
        self.ahead.pop_front().or_else(|| self.event_of_trace())
    }

    /// What is added to the address, if it is of a device that is wanted. Errors: of a second one,
    /// where none is chosen.
    fn base_of(&mut self, e: &Event) -> Result<Option<u64>, TraceError> {
        *self.counts.devices.entry(e.device).or_default() += 1;
        if let Some(known) = self.chosen.get(&e.device) {
            return Ok(*known);
        }
        let name = self.trace.names().name(e.device);
        if self.select.devices == Devices::One && !self.chosen.is_empty() {
            while self.counts.all() < COUNTED_MAX
                && let Some(e) = self.next_event()
            {
                self.counts.step(&e);
                if e.step != Step::Complete && self.action == Some(action_of(e.step)) {
                    *self.counts.devices.entry(e.device).or_default() += 1;
                }
            }
            let (what, help) = self.counts.several(self.trace);
            return Err(self.trace.error(e, what, &help));
        }
        let base = self.select.bases.get(name).copied().unwrap_or(0);
        let base = self.select.devices.has(name).then_some(base);
        self.chosen.insert(e.device, base);
        Ok(base)
    }

    /// Takes one more event in; false at the end.
    fn advance(&mut self) -> bool {
        let Some(e) = self.next_event() else { return false };
        self.counts.step(&e);
        if e.step == Step::Complete {
            self.complete(&e);
            return true;
        }
        if self.action != Some(action_of(e.step)) {
            self.trace.skip(Skip::Action);
            return true;
        }
        match self.base_of(&e) {
            Ok(Some(base)) => self.take(e, base),
            Ok(None) => self.trace.skip(Skip::Device),
            Err(error) => {
                self.error = Some(error);
                self.ended = true;
                self.ahead.clear();
                return false;
            }
        }
        true
    }

    fn take(&mut self, e: Event, base: u64) {
        let number = self.first + self.waiting.len() as u64;
        let mut at_ns = e.at_ns;
        if at_ns < self.last_ns {
            self.out_of_order += 1;
            at_ns = self.last_ns;
        }
        self.last_ns = at_ns;
        let done_ns = match e.step {
            Step::Whole { done_ns } => done_ns,
            _ => {
                let key = (e.device, kind(e.op), e.at.0, number);
                self.open.insert(key, e.at.0.saturating_add(e.sectors.into()));
                None
            }
        };
        let done_ns = done_ns.and_then(|done| completion(at_ns, done));
        // Completions are at the trace's own sectors.
        let at = if e.op == Op::Flush { e.at } else { Sector(e.at.0.saturating_add(base)) };
        self.waiting.push_back((Request { event: Event { at_ns, at, ..e }, done_ns }, e.at.0));
    }

    fn complete(&mut self, e: &Event) {
        let kind = kind(e.op);
        let end = e.at.0.saturating_add(e.sectors.into());
        // A flush has no place, so it is the oldest of all.
        let last = if kind == Kind::Flush { 1 } else { end };
        let range = (e.device, kind, e.at.0, 0)..(e.device, kind, last, 0);
        let mut ended: Vec<(Key, u64)> = Vec::new();
        for (key, its_end) in self.open.range(range) {
            let is_second = ended.last().is_some_and(|(k, _)| k.2 == key.2);
            let begins_here = key.2 == e.at.0;
            if !is_second && (begins_here || *its_end <= end) {
                ended.push((*key, *its_end));
            }
        }
        for (key, its_end) in ended {
            self.open.remove(&key);
            let index = key.3.checked_sub(self.first).and_then(|i| usize::try_from(i).ok());
            let Some((r, open_at)) = index.and_then(|i| self.waiting.get_mut(i)) else { continue };
            if its_end > end {
                *open_at = end;
                self.open.insert((key.0, key.1, end, key.3), its_end);
            } else {
                r.done_ns = completion(r.event.at_ns, e.at_ns);
            }
        }
    }

    /// Gives the oldest away.
    fn give(&mut self) -> Option<Request> {
        let (r, open_at) = self.waiting.pop_front()?;
        let number = self.first;
        self.first += 1;
        if r.done_ns.is_none() {
            self.open.remove(&(r.event.device, kind(r.event.op), open_at, number));
        }
        Some(r)
    }
}

impl Iterator for Requests<'_, '_> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        loop {
            let is_known = self.waiting.front().is_some_and(|(r, _)| r.done_ns.is_some());
            let is_whole = self.action == Some(Action::Whole) && !self.waiting.is_empty();
            if is_known || is_whole || self.waiting.len() >= WAITING_MAX || !self.advance() {
                return match self.give() {
                    Some(r) => Some(Ok(r)),
                    None => self.error.take().map(Err),
                };
            }
        }
    }
}
