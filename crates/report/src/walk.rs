//! Walking back from the end of a system call: what ran, what was waited for, who woke whom.
//!
//! Steps are contiguous by construction: each ends where the one after it begins, so their lengths
//! add up to the call's.

use std::collections::BTreeMap;

use wp_base::event::{Event, Flags, Record};
use wp_base::{Span, Time};

use crate::requests::{Request, requests};

/// The task of interrupt context.
pub(crate) const SWAPPER: &str = "swapper";
/// What is shown for time that interrupts took from a task.
const INTERRUPTS: &str = "interrupts";

/// What a stretch of time went into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// A modelled CPU ran an operation.
    Cpu(&'static str),
    /// A request was in the driver and device. Index into [`Walk::requests`].
    Request(usize, Role),
    /// A request stood in the elevator and nothing that the trace shows held it.
    Elevator(usize),
    /// The task was ready, and no core was free.
    Runnable,
    /// Nothing but time ended it: a sleep, or a timer of the kernel's.
    Sleep,
    /// The trace does not reach back to what it waited for.
    Unknown,
}

/// What a request did for the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// As its blocks say.
    Own,
    /// The flush before a commit record.
    PreFlush,
    /// The flush behind it.
    PostFlush,
    /// A flush for somebody else, or for no record.
    Flush,
    /// It kept the device's queue full.
    Ahead,
}

/// One stretch, on whose behalf `who` ran or waited.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub who: String,
    pub from: Time,
    pub to: Time,
    pub doing: Doing,
}

/// A wait of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// Since when.
    pub began: Time,
    /// The task's last record before.
    pub last: usize,
    /// The record that ends it.
    pub wake: usize,
}

pub(crate) struct Walk<'a> {
    records: &'a [Record],
    pub requests: Vec<Request>,
    /// Are CPUs modelled?
    cores: bool,
    /// Indexes of each task's records.
    by_task: BTreeMap<&'a str, Vec<usize>>,
    /// Task -> indexes of the records that tell of its being woken.
    wakeups: BTreeMap<&'a str, Vec<usize>>,
    /// Index of the completion record -> request.
    done: BTreeMap<usize, usize>,
    /// Ends of flush commands.
    flush_ends: BTreeMap<Time, usize>,
    /// Where interrupt context's work ended -> its record.
    interrupt_ends: BTreeMap<Time, Vec<usize>>,
    /// CPU record -> when that work began and ended, interrupts not counted: what a task is charged
    /// at one instant is worked off one after another.
    bursts: BTreeMap<usize, (Time, Time)>,
}

/// The examined task, and up to which record.
struct Place<'a> {
    task: &'a str,
    at: Time,
    /// Records from here on are later.
    before: usize,
}

impl<'a> Walk<'a> {
    pub fn new(records: &'a [Record]) -> Walk<'a> {
        let requests = requests(records);
        let mut w = Walk {
            records,
            requests: Vec::new(),
            cores: false,
            by_task: BTreeMap::new(),
            wakeups: BTreeMap::new(),
            done: BTreeMap::new(),
            flush_ends: BTreeMap::new(),
            interrupt_ends: BTreeMap::new(),
            bursts: BTreeMap::new(),
        };
        for (i, r) in requests.iter().enumerate() {
            for m in [r.done, r.ended].into_iter().flatten() {
                // A record that shows the end of a sequence and of its flush is the sequence's.
                if !r.is_flush() || !w.done.contains_key(&m.index) {
                    w.done.insert(m.index, i);
                }
            }
            if let (true, Some(done)) = (r.is_flush(), r.done) {
                w.flush_ends.insert(done.at, i);
            }
        }
        w.requests = requests;
        let mut busy: BTreeMap<&str, Time> = BTreeMap::new();
        for (i, r) in records.iter().enumerate().filter(|(_, r)| !of_device(r)) {
            w.by_task.entry(&r.task).or_default().push(i);
            match &r.event {
                Event::SwitchIn { .. } => w.cores = true,
                Event::Wakeup { task, .. } => w.wakeups.entry(task).or_default().push(i),
                Event::Cpu { span, .. } => {
                    let until = busy.entry(&r.task).or_insert(r.at);
                    let start = r.at.max(*until);
                    *until = start + *span;
                    w.bursts.insert(i, (start, *until));
                    if *r.task == *SWAPPER {
                        w.interrupt_ends.entry(*until).or_default().push(i);
                    }
                }
                _ => {}
            }
        }
        w
    }

    /// Do the records say who woke whom?
    pub fn knows_wakeups(&self) -> bool {
        !self.wakeups.is_empty()
    }

    /// Did the task of record `enter` wait for something but time before record `exit`?
    pub fn waited(&self, enter: usize, exit: usize) -> bool {
        let task: &str = &self.records[enter].task;
        self.waits(task, enter, exit).iter().any(|w| match self.records[w.wake].event {
            Event::Wakeup { timer, .. } => !timer,
            _ => false,
        })
    }

    /// The waits of a task that a wake-up between two records ends, in order.
    pub fn waits(&self, task: &str, from: usize, to: usize) -> Vec<Wait> {
        let woken = self.wakeups.get(task).map_or(&[][..], Vec::as_slice);
        let own = self.by_task.get(task).map_or(&[][..], Vec::as_slice);
        let first = woken.partition_point(|w| *w <= from);
        let within = woken[first..].iter().take_while(|w| **w <= to);
        let wait = |&wake: &usize| {
            let &last = own[..own.partition_point(|i| *i < wake)].last()?;
            let began = match self.records[last].event {
                Event::SwitchOut { ready: true } => return None,
                Event::SwitchOut { ready: false } => self.records[last].at,
                // It held its core.
                _ if self.cores => return None,
                _ => self.bursts.get(&last).map_or(self.records[last].at, |b| b.1),
            };
            (began < self.records[wake].at).then_some(Wait { began, last, wake })
        };
        within.filter_map(wait).collect()
    }

    /// The request whose end had interrupt context wake somebody with this record.
    pub fn ended_before(&self, wake: usize) -> Option<usize> {
        let mut at = self.records[wake].at;
        loop {
            if let Some(done) = self.at(at, wake).find_map(|i| self.done.get(&i)) {
                return Some(*done);
            }
            at = self.interrupt_before(at, wake)?;
        }
    }

    /// The steps of what ends with record `exit`, back to time `from`, in order of time.
    pub fn back(&self, exit: usize, from: Time) -> Vec<Step> {
        let r = &self.records[exit];
        let mut place = Place { task: &r.task, at: r.at, before: exit };
        let mut steps = Vec::new();
        // Each turn goes back in time or to an earlier record.
        while place.at > from {
            place = self.turn(&place, from, &mut steps);
        }
        steps.reverse();
        steps
    }

    /// From a place at which the task ran, back to why it ran there.
    fn turn(&self, p: &Place<'a>, from: Time, steps: &mut Vec<Step>) -> Place<'a> {
        let mut push = |begin: Time, end: Time, doing: Doing| {
            let begin = begin.max(from);
            if begin < end {
                steps.push(Step { who: p.task.to_owned(), from: begin, to: end, doing });
            }
        };
        let own = self.by_task.get(p.task).map_or(&[][..], Vec::as_slice);
        let own = &own[..own.partition_point(|&i| i < p.before)];
        let mut at = p.at;
        for &i in own.iter().rev() {
            let record = &self.records[i];
            match record.event {
                Event::Cpu { what, .. } => {
                    let (start, end) = self.bursts[&i];
                    // A task that holds a core and has nothing left to do goes on or gives it up.
                    push(end, at, Doing::Cpu(INTERRUPTS));
                    at = at.min(end);
                    push(start, at, Doing::Cpu(what));
                    at = at.min(start);
                }
                Event::SwitchIn { .. } => {
                    // An interrupt had the core when the task was given it.
                    push(record.at, at, Doing::Cpu(INTERRUPTS));
                    return self.woken(p.task, at.min(record.at), i, &mut push);
                }
                // It was looked for where it did not run.
                Event::SwitchOut { .. } => break,
                // Without modelled CPUs a task runs when it is woken, and takes no time.
                _ if record.at < at && !self.cores => break,
                _ => {}
            }
            if at <= from {
                return Place { task: p.task, at, before: i };
            }
        }
        self.woken(p.task, at, p.before, &mut push)
    }

    /// The task began to run at `at`, before record `before`: who had made it ready, and when?
    fn woken(
        &self,
        task: &'a str,
        at: Time,
        before: usize,
        push: &mut impl FnMut(Time, Time, Doing),
    ) -> Place<'a> {
        let given_up = |e: &Event| matches!(e, Event::SwitchOut { .. });
        let out = self.latest(self.by_task.get(task), before, given_up);
        let wake = self.latest(self.wakeups.get(task), before, |_| true);
        if let Some(out) = out.filter(|&o| wake.is_none_or(|w| w < o)) {
            // It was ready all the time, if it was woken before it gave its core up.
            let was = &self.records[out];
            let ready = matches!(was.event, Event::SwitchOut { ready: true });
            push(was.at, at, if ready { Doing::Runnable } else { Doing::Unknown });
            return Place { task, at: was.at, before: out };
        }
        let Some(wake) = wake else {
            // It was woken before the trace began, or the place is not one at which it ran.
            push(Time::ZERO, at, Doing::Unknown);
            return Place { task, at: Time::ZERO, before: 0 };
        };
        let record = &self.records[wake];
        push(record.at, at, Doing::Runnable);
        let place = Place { task, at: record.at, before: wake };
        match record.event {
            Event::Wakeup { timer: true, .. } => self.slept(place, push),
            _ if *record.task == *SWAPPER => self.interrupt(place, push),
            _ => Place { task: &record.task, at: record.at, before: wake },
        }
    }

    /// The last of the records `list` before `before` that is of the kind.
    fn latest(
        &self,
        list: Option<&Vec<usize>>,
        before: usize,
        kind: fn(&Event) -> bool,
    ) -> Option<usize> {
        let list = list.map_or(&[][..], Vec::as_slice);
        let known = &list[..list.partition_point(|&i| i < before)];
        known.iter().rev().copied().find(|&i| kind(&self.records[i].event))
    }

    /// The wait that ended at `p` was a sleep: back to where it began.
    fn slept(&self, p: Place<'a>, push: &mut impl FnMut(Time, Time, Doing)) -> Place<'a> {
        let own = self.by_task.get(p.task).map_or(&[][..], Vec::as_slice);
        let own = &own[..own.partition_point(|&i| i < p.before)];
        let (began, before) = own.last().map_or((Time::ZERO, 0), |&i| {
            let end = self.bursts.get(&i).map_or(self.records[i].at, |b| b.1);
            (end, i + 1)
        });
        push(began, p.at, Doing::Sleep);
        Place { task: p.task, at: began.min(p.at), before }
    }

    /// Interrupt context woke the task at `p`: because of which request's end?
    fn interrupt(&self, p: Place<'a>, push: &mut impl FnMut(Time, Time, Doing)) -> Place<'a> {
        let mut at = p.at;
        loop {
            let now = self.at(at, p.before).find_map(|i| Some((i, *self.done.get(&i)?)));
            if let Some((index, request)) = now {
                push(at, p.at, Doing::Cpu(INTERRUPTS));
                return self.request(&Place { at, ..p }, request, index, push);
            }
            match self.interrupt_before(at, p.before) {
                Some(start) => at = start,
                None => return self.slept(p, push),
            }
        }
    }

    /// When the work of interrupt context began that ended at `at`.
    fn interrupt_before(&self, at: Time, before: usize) -> Option<Time> {
        let ended = self.interrupt_ends.get(&at).into_iter().flatten();
        let starts = ended.filter(|i| **i < before).map(|i| self.bursts[i].0);
        starts.filter(|start| *start < at).min()
    }

    /// Records at a time, from the last before `before` back.
    fn at(&self, at: Time, before: usize) -> impl Iterator<Item = usize> + '_ {
        // Times of records never fall.
        let end = self.records[..before].partition_point(|r| r.at <= at);
        let now = (0..end).rev().take_while(move |&i| self.records[i].at == at);
        now.filter(|&i| !of_device(&self.records[i]))
    }

    /// Over a completed request to whoever issued it.
    fn request(
        &self,
        p: &Place<'a>,
        request: usize,
        index: usize,
        push: &mut impl FnMut(Time, Time, Doing),
    ) -> Place<'a> {
        let r = &self.requests[request];
        let ends_sequence = r.ended.is_some_and(|m| m.index == index);
        let (request, role) = match self.flush_ends.get(&p.at) {
            Some(&flush) if ends_sequence => (flush, Role::PostFlush),
            _ if r.is_flush() => (request, Role::Flush),
            _ => (request, Role::Own),
        };
        let role = match role {
            Role::PostFlush if r.sectors == 0 => Role::Flush,
            role => role,
        };
        self.over(p.task, p.at, request, role, push)
    }

    /// Over one request that ended at `until`.
    fn over(
        &self,
        who: &'a str,
        until: Time,
        request: usize,
        role: Role,
        push: &mut impl FnMut(Time, Time, Doing),
    ) -> Place<'a> {
        let Some(issued) = self.requests[request].issued else {
            // A flush that another's command did: that is what was waited for.
            let shared = self.flush_ends.get(&until).copied();
            if let Some(flush) = shared.filter(|&f| self.requests[f].issued.is_some()) {
                return self.over(who, until, flush, Role::Flush, push);
            }
            // Its beginning is not in the trace, or it was an empty flush that needed no command.
            let start = self.requests[request].start();
            let (at, before) = start.map_or((Time::ZERO, 0), |m| (m.at, m.index));
            push(at, until, Doing::Unknown);
            return Place { task: who, at, before };
        };
        push(issued.at, until, Doing::Request(request, role));
        let task: &'a str = &self.records[issued.index].task;
        if !is_block_layer(task) {
            return Place { task, at: issued.at, before: issued.index + 1 };
        }
        self.dispatched(who, request, push)
    }

    /// What ended at `at`, before record `before`, and let interrupt context issue `request`; and
    /// what it was to that.
    fn ended(&self, at: Time, before: usize, request: usize) -> Option<(usize, Role)> {
        let r = &self.requests[request];
        let flush = self.flush_ends.get(&at).copied().filter(|&f| f != request);
        if let (Some(flush), false, true) = (flush, r.is_flush(), r.flags.has(Flags::PREFLUSH)) {
            return Some((flush, Role::PreFlush));
        }
        let ended = self.at(at, before).find_map(|i| {
            let &done = self.done.get(&i)?;
            (done != request).then_some(done)
        });
        if let Some(done) = ended {
            let role = match &self.requests[done] {
                d if r.is_flush() && d.is_sequence() => Role::Own,
                d if d.is_flush() => Role::Flush,
                _ => Role::Ahead,
            };
            return Some((done, role));
        }
        flush.map(|f| (f, Role::Flush))
    }

    /// Interrupt context issued it: what had ended?
    fn dispatched(
        &self,
        who: &'a str,
        request: usize,
        push: &mut impl FnMut(Time, Time, Doing),
    ) -> Place<'a> {
        let r = &self.requests[request];
        let issued = r.issued.expect("the caller came from its D");
        // What ended may have ended before the interrupt's work that comes between.
        let (mut at, mut before) = (issued.at, issued.index);
        let task: &'a str = &self.records[issued.index].task;
        let woken = self.latest(self.wakeups.get(task), before, |_| true);
        if let Some(woken) = woken.filter(|_| *task != *SWAPPER) {
            let by = &self.records[woken];
            if *by.task != *SWAPPER {
                // A task had kblockd run the queue.
                return Place { task, at, before };
            }
            (at, before) = (by.at, woken);
        }
        loop {
            if let Some((done, role)) = self.ended(at, before, request) {
                push(at, issued.at, Doing::Cpu(INTERRUPTS));
                return self.over(who, at, done, role, push);
            }
            match self.interrupt_before(at, before) {
                Some(start) => at = start,
                None => break,
            }
        }
        let Some(entered) = r.inserted.or(r.start()).filter(|m| m.index < issued.index) else {
            // A flush for several: each waited since its own bio, for the flush before.
            let own = self.by_task.get(who).map_or(&[][..], Vec::as_slice);
            let last = own[..own.partition_point(|&i| i < issued.index)].last().copied();
            let Some(last) = last.filter(|_| r.is_flush()) else {
                return Place { task: who, at: issued.at, before: issued.index };
            };
            let begins = self.bursts.get(&last).map_or(self.records[last].at, |b| b.1);
            push(begins.min(issued.at), issued.at, Doing::Elevator(request));
            return Place { task: who, at: begins.min(issued.at), before: last + 1 };
        };
        push(entered.at, issued.at, Doing::Elevator(request));
        let task: &'a str = &self.records[entered.index].task;
        Place { task, at: entered.at, before: entered.index + 1 }
    }
}

/// Does the task dispatch for others: interrupt context, or kblockd (`kworker/0:1H`)?
pub(crate) fn is_block_layer(task: &str) -> bool {
    task == SWAPPER || (task.starts_with("kworker/") && task.ends_with('H'))
}

/// Does the record tell of the device's inside? Such work is no task's.
fn of_device(r: &Record) -> bool {
    matches!(r.event, Event::Command { .. } | Event::CommandEnd { .. } | Event::Device(_))
}

/// Length of a step.
pub(crate) fn length(step: &Step) -> Span {
    step.to.since(step.from)
}
