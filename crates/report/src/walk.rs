//! Walking back from the end of a system call: what ran, what was waited for, who woke whom.
//!
//! Steps are contiguous by construction: each ends where the one after it begins, so their lengths
//! add up to the call's.

use std::collections::BTreeMap;

use wp_base::event::{Event, Flags, Record};
use wp_base::{Span, Time};

use crate::requests::{Request, requests};

/// The task of interrupt context.
const SWAPPER: &str = "swapper";
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
    /// A wait whose end no event explains (a timer, a lock).
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

pub(crate) struct Walk<'a> {
    records: &'a [Record],
    pub requests: Vec<Request>,
    /// Indexes of each task's records.
    by_task: BTreeMap<&'a str, Vec<usize>>,
    /// Index of the completion record -> request.
    done: BTreeMap<usize, usize>,
    /// Indexes of the `D` records -> request.
    issued: BTreeMap<usize, usize>,
    /// Ends of flush commands.
    flush_ends: BTreeMap<Time, usize>,
    /// Where a modelled CPU stopped running a task -> its record.
    cpu_ends: BTreeMap<Time, Vec<usize>>,
    /// CPU record -> when that work began and ended: what a task is charged at one instant is
    /// worked off one after another.
    bursts: BTreeMap<usize, (Time, Time)>,
    /// CPU record -> when the task began to work without a pause.
    busy_since: BTreeMap<usize, Time>,
}

/// Who is looked at, and up to which record.
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
            by_task: BTreeMap::new(),
            done: BTreeMap::new(),
            issued: BTreeMap::new(),
            flush_ends: BTreeMap::new(),
            cpu_ends: BTreeMap::new(),
            bursts: BTreeMap::new(),
            busy_since: BTreeMap::new(),
        };
        for (i, r) in requests.iter().enumerate() {
            for m in [r.done, r.ended].into_iter().flatten() {
                // A record that shows the end of a sequence and of its flush is the sequence's.
                if !r.is_flush() || !w.done.contains_key(&m.index) {
                    w.done.insert(m.index, i);
                }
            }
            w.issued.extend(r.issued.map(|m| (m.index, i)));
            if let (true, Some(done)) = (r.is_flush(), r.done) {
                w.flush_ends.insert(done.at, i);
            }
        }
        w.requests = requests;
        let mut busy: BTreeMap<&str, (Time, Time)> = BTreeMap::new();
        for (i, r) in records.iter().enumerate().filter(|(_, r)| !of_device(r)) {
            w.by_task.entry(&r.task).or_default().push(i);
            if let Event::Cpu { span, .. } = r.event {
                let (since, until) = busy.entry(&r.task).or_insert((r.at, r.at));
                if r.at > *until {
                    (*since, *until) = (r.at, r.at);
                }
                let start = *until;
                *until = start + span;
                w.bursts.insert(i, (start, *until));
                w.busy_since.insert(i, *since);
                w.cpu_ends.entry(*until).or_default().push(i);
            }
        }
        w
    }

    /// The steps of what ends with record `exit`, back to time `from`, in order of time.
    pub fn back(&self, exit: usize, from: Time) -> Vec<Step> {
        let r = &self.records[exit];
        let mut place = Place { task: &r.task, at: r.at, before: exit };
        let mut steps = Vec::new();
        // Each turn goes back in time or to an earlier record.
        while place.at > from {
            place = self.turn(place, from, &mut steps);
        }
        steps.reverse();
        steps
    }

    fn turn(&self, p: Place<'a>, from: Time, steps: &mut Vec<Step>) -> Place<'a> {
        let mut push = |begin: Time, end: Time, doing: Doing| {
            let begin = begin.max(from);
            if begin < end {
                steps.push(Step { who: p.task.to_owned(), from: begin, to: end, doing });
            }
        };
        let own = self.by_task.get(p.task).map_or(&[][..], Vec::as_slice);
        let last = own[..own.partition_point(|&i| i < p.before)].last().copied();
        // A task that waits since before the trace has done nothing in it.
        let mut ends = Time::ZERO;
        if let Some(last) = last {
            let r = &self.records[last];
            let (starts, cpu);
            (starts, ends, cpu) = match (&r.event, self.bursts.get(&last)) {
                (Event::Cpu { what, .. }, Some(&(start, end))) => (start, end, Some(*what)),
                _ => (r.at, r.at, None),
            };
            let since = self.busy_since.get(&last).copied().unwrap_or(starts);
            let stolen = cpu.is_some() && ends < p.at && self.interrupted(since, ends, p.at);
            if stolen {
                push(ends, p.at, Doing::Cpu(INTERRUPTS));
            }
            if ends >= p.at || stolen {
                if let Some(what) = cpu {
                    push(starts, ends.min(p.at), Doing::Cpu(what));
                }
                return Place { at: starts.min(p.at), before: last, ..p };
            }
        }
        // Work that was charged before its last record may still have been worked off behind it.
        let behind = self.cpu_ends.get(&p.at).into_iter().flatten().rev().copied().find(|&i| {
            i < p.before && &*self.records[i].task == p.task && self.bursts[&i].0 < p.at
        });
        if let (Some(i), Event::Cpu { what, .. }) =
            (behind, &self.records[behind.unwrap_or(0)].event)
        {
            let start = self.bursts[&i].0;
            push(start, p.at, Doing::Cpu(what));
            return Place { at: start, before: i, ..p };
        }
        let latest = own[..own.partition_point(|&i| i < p.before)]
            .iter()
            .rev()
            .find_map(|i| Some((*self.busy_since.get(i)?, self.bursts.get(i)?.1)));
        if let Some((start, end)) = latest
            && (ends..p.at).contains(&end)
            && self.interrupted(start, end, p.at)
        {
            push(end, p.at, Doing::Cpu(INTERRUPTS));
            return Place { at: end, ..p };
        }
        // It did nothing between `ends` and `p.at`: something ended its wait.
        match self.waker(&p, last) {
            Some(Waker::Completion(request, index)) => self.request(&p, request, index, &mut push),
            Some(Waker::Task(index)) => {
                Place { task: &self.records[index].task, at: p.at, before: index + 1 }
            }
            None => {
                push(ends, p.at, Doing::Unknown);
                Place { at: ends.max(from), before: last.map_or(0, |i| i + 1), ..p }
            }
        }
    }

    /// Did interrupts take the time from `end` to `until` from work that began at `start`? They are
    /// all served by one core, and delay what computes there.
    fn interrupted(&self, start: Time, end: Time, until: Time) -> bool {
        let own = self.by_task.get(SWAPPER).map_or(&[][..], Vec::as_slice);
        // Times of records never fall, those of their work's end may; what was charged before
        // `start` may be worked off behind it.
        let after = own.partition_point(|i| self.records[*i].at < start);
        let before = own[..after].iter().rev();
        let pending = before.map_while(|i| self.bursts.get(i).filter(|b| b.1 > start));
        let within = own[after..].iter().take_while(|i| self.records[**i].at < until);
        let bursts = pending.chain(within.filter_map(|i| self.bursts.get(i)));
        let taken: u64 = bursts.map(|(a, b)| b.min(&until).0.saturating_sub(a.max(&start).0)).sum();
        taken >= until.since(end).0
    }

    /// What happened when the wait of `p` ended, and after record `last` of its own.
    fn waker(&self, p: &Place<'a>, last: Option<usize>) -> Option<Waker> {
        let now = self.at(p.at, p.before).filter(|&i| last.is_none_or(|last| i > last));
        let mut tasks = None;
        let mut completion = None;
        for i in now {
            let r = &self.records[i];
            if let Some(&request) = self.done.get(&i) {
                let mine = self.requests[request]
                    .bios
                    .iter()
                    .any(|b| &*self.records[b.queued.index].task == p.task);
                if mine {
                    return Some(Waker::Completion(request, i));
                }
                completion = completion.or(Some(Waker::Completion(request, i)));
            } else if &*r.task != SWAPPER && &*r.task != p.task {
                // A task that has just been woken itself wakes nobody yet.
                let woken = matches!(r.event, Event::Cpu { what: "context_switch", .. });
                tasks = tasks.or((!woken).then_some(Waker::Task(i)));
            }
        }
        let stopped = self.cpu_ends.get(&p.at).into_iter().flatten().rev();
        let other = |i: &&usize| &*self.records[**i].task != p.task && **i < p.before;
        tasks.or(completion).or_else(|| stopped.clone().find(other).map(|&i| Waker::Task(i)))
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

    /// What ended at `at` and let interrupt context issue `request`, and what it was to that.
    fn ended(&self, at: Time, request: usize) -> Option<(usize, Role)> {
        let r = &self.requests[request];
        let issued = r.issued?;
        let flush = self.flush_ends.get(&at).copied().filter(|&f| f != request);
        if let (Some(flush), false, true) = (flush, r.is_flush(), r.flags.has(Flags::PREFLUSH)) {
            return Some((flush, Role::PreFlush));
        }
        let ended = self.at(at, issued.index).find_map(|i| {
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
        let mut at = issued.at;
        loop {
            if let Some((done, role)) = self.ended(at, request) {
                push(at, issued.at, Doing::Cpu(INTERRUPTS));
                return self.over(who, at, done, role, push);
            }
            let before = self.cpu_ends.get(&at).into_iter().flatten().find(|i| {
                is_block_layer(&self.records[**i].task)
                    && self.bursts[i].0 < at
                    && **i < issued.index
            });
            match before {
                Some(i) => at = self.bursts[i].0,
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
fn is_block_layer(task: &str) -> bool {
    task == SWAPPER || (task.starts_with("kworker/") && task.ends_with('H'))
}

/// Does the record tell of the device's inside? Such work is no task's.
fn of_device(r: &Record) -> bool {
    matches!(r.event, Event::Command { .. } | Event::CommandEnd { .. } | Event::Device(_))
}

enum Waker {
    /// This request's end, at this record.
    Completion(usize, usize),
    /// What a task did at this record, or the end of its work there.
    Task(usize),
}

/// Length of a step.
pub(crate) fn length(step: &Step) -> Span {
    step.to.since(step.from)
}
