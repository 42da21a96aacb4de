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
        for (i, r) in records.iter().enumerate() {
            w.by_task.entry(&r.task).or_default().push(i);
            if let Event::Cpu { span, .. } = r.event {
                w.cpu_ends.entry(r.at + span).or_default().push(i);
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
        let Some(&last) = own[..own.partition_point(|&i| i < p.before)].last() else {
            push(from, p.at, Doing::Unknown);
            return Place { at: from, ..p };
        };
        let r = &self.records[last];
        let (ends, cpu) = match r.event {
            Event::Cpu { what, span } => (r.at + span, Some(what)),
            _ => (r.at, None),
        };
        if ends >= p.at {
            if let Some(what) = cpu {
                push(r.at, p.at, Doing::Cpu(what));
            }
            return Place { at: r.at.min(p.at), before: last, ..p };
        }
        // It did nothing between `ends` and `p.at`: something ended its wait.
        match self.waker(&p, last) {
            Some(Waker::Completion(request, index)) => self.request(&p, request, index, &mut push),
            Some(Waker::Task(index)) => {
                Place { task: &self.records[index].task, at: p.at, before: index + 1 }
            }
            None => {
                push(ends, p.at, Doing::Unknown);
                Place { at: ends.max(from), before: last + 1, ..p }
            }
        }
    }

    /// What happened when the wait of `p` ended, and after record `last` of its own.
    fn waker(&self, p: &Place<'a>, last: usize) -> Option<Waker> {
        let now = self.at(p.at, p.before).filter(|&i| i > last);
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
        (0..end).rev().take_while(move |&i| self.records[i].at == at)
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
            // Its beginning is not in the trace, or it was an empty flush that needed no command.
            let start = self.requests[request].start();
            let (at, before) = start.map_or((Time::ZERO, 0), |m| (m.at, m.index));
            push(at, until, Doing::Unknown);
            return Place { task: who, at, before };
        };
        push(issued.at, until, Doing::Request(request, role));
        let task: &'a str = &self.records[issued.index].task;
        if task != SWAPPER {
            return Place { task, at: issued.at, before: issued.index + 1 };
        }
        self.dispatched(who, request, push)
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
        let flush = self.flush_ends.get(&issued.at).copied().filter(|&f| f != request);
        if let (Some(flush), false, true) = (flush, r.is_flush(), r.flags.has(Flags::PREFLUSH)) {
            return self.over(who, issued.at, flush, Role::PreFlush, push);
        }
        let ended = self.at(issued.at, issued.index).find_map(|i| {
            let &done = self.done.get(&i)?;
            (done != request).then_some(done)
        });
        if let Some(done) = ended {
            let role = match &self.requests[done] {
                d if r.is_flush() && d.is_sequence() => Role::Own,
                d if d.is_flush() => Role::Flush,
                _ => Role::Ahead,
            };
            return self.over(who, issued.at, done, role, push);
        }
        if let Some(flush) = flush {
            return self.over(who, issued.at, flush, Role::Flush, push);
        }
        let Some(entered) = r.inserted.or(r.start()).filter(|m| m.index < issued.index) else {
            return Place { task: who, at: issued.at, before: issued.index };
        };
        push(entered.at, issued.at, Doing::Elevator(request));
        let task: &'a str = &self.records[entered.index].task;
        Place { task, at: entered.at, before: entered.index + 1 }
    }
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
