//! Closed loops on a device alone: jobs that keep a number of commands in flight, each with the
//! time that its host takes between a completion and the next command.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use wp_base::event::{Flags, Op, ZoneOp};
use wp_base::{Rng, Sector, Span, Time};
use wp_block::{Admit, DevRequest, DeviceModel, Effects};
use wp_device::zns::Zns;
use wp_medium::Slice;

/// What a job does next.
pub(super) enum Next {
    Command(Op, Sector, u32),
    /// Not before then.
    Wait(Time),
}

/// Chooses a command.
type Chooser = Box<dyn FnMut(Time, &mut Rng) -> Next>;

/// A moment of a [`Loop`]: time, order, and whose: the device's by its token, or a job's by its
/// number.
type Timer = Reverse<(Time, u64, Result<u64, usize>)>;

/// One thread of the host.
pub(super) struct Job {
    /// What the host takes for a command, one after the other.
    pub host: Span,
    /// Chooses the next command.
    pub next: Chooser,
    /// Is it measured?
    pub measured: bool,
    /// Until when its thread is busy.
    busy: Time,
    /// Commands that may be sent.
    idle: u32,
}

impl Job {
    pub(super) fn new(
        depth: u32,
        host: Span,
        measured: bool,
        next: impl FnMut(Time, &mut Rng) -> Next + 'static,
    ) -> Job {
        let next = Box::new(next);
        Job { host, next, measured, busy: Time::ZERO, idle: depth }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Commands per second.
    pub iops: f64,
}

/// A device and its jobs.
pub(super) struct Loop {
    device: Zns,
    timers: BinaryHeap<Timer>,
    order: u64,
    fx: Effects,
    now: Time,
    flying: BTreeMap<u64, (usize, Time)>,
    id: u64,
    rng: Rng,
    /// Measured commands: how many, and their latencies' sum in ns.
    done: (u64, u64),
}

impl Loop {
    pub(super) fn new(device: Zns) -> Loop {
        Loop {
            device,
            timers: BinaryHeap::new(),
            order: 0,
            fx: Effects::new(),
            now: Time::ZERO,
            flying: BTreeMap::new(),
            id: 0,
            rng: Rng::stream(1, "drive"),
            done: (0, 0),
        }
    }

    fn wake(&mut self, at: Time, what: Result<u64, usize>) {
        self.order += 1;
        self.timers.push(Reverse((at, self.order, what)));
    }

    fn absorb(&mut self, jobs: &mut [Job]) {
        for (at, token) in std::mem::take(&mut self.fx.timers) {
            self.wake(at, Ok(token));
        }
        for done in std::mem::take(&mut self.fx.done) {
            let Some((job, sent)) = self.flying.remove(&done.id) else { continue };
            assert!(done.status.is_ok(), "a command of a scene failed: {:?}", done.status);
            let j = &mut jobs[job];
            j.idle += 1;
            // The host's part of the next command comes before that is sent.
            j.busy = j.busy.max(self.now) + j.host;
            let ready = j.busy;
            if j.measured {
                self.done.0 += 1;
                self.done.1 += self.now.since(sent).0;
            }
            self.wake(ready, Err(job));
        }
    }

    /// Sends a job's next command, if it may send one.
    fn pump(&mut self, jobs: &mut [Job], job: usize) {
        let j = &mut jobs[job];
        if j.idle == 0 {
            return;
        }
        match (j.next)(self.now, &mut self.rng) {
            Next::Wait(at) => self.wake(at.max(self.now + Span(1)), Err(job)),
            Next::Command(op, at, sectors) => {
                j.idle -= 1;
                self.send(job, op, at, sectors);
                self.absorb(jobs);
            }
        }
    }

    /// Lets jobs send their first commands.
    fn begin(&mut self, jobs: &mut [Job]) {
        for (n, job) in jobs.iter_mut().enumerate() {
            for _ in 0..job.idle {
                job.busy += job.host;
                self.wake(job.busy, Err(n));
            }
        }
    }

    fn send(&mut self, job: usize, op: Op, at: Sector, sectors: u32) {
        self.id += 1;
        let data = if op.writes() { vec![Slice::zero(sectors * 512)] } else { Vec::new() };
        let rq = DevRequest { id: self.id, op, flags: Flags::NONE, at, sectors, data };
        self.flying.insert(self.id, (job, self.now));
        match self.device.submit(self.now, rq, &mut self.fx) {
            Admit::Accepted => {}
            Admit::Busy(_) => panic!("the queue is deeper than any scene"),
        }
    }

    fn step(&mut self, jobs: &mut [Job]) {
        let Some(Reverse((at, _, what))) = self.timers.pop() else { return };
        self.now = at;
        match what {
            Ok(token) => {
                self.device.timer(at, token, &mut self.fx);
                self.absorb(jobs);
            }
            Err(job) => self.pump(jobs, job),
        }
    }

    /// Runs jobs until `warm` measured commands are over, then `count` more; their rates.
    pub(super) fn rates(&mut self, jobs: &mut [Job], warm: u64, count: u64) -> Rates {
        self.begin(jobs);
        while self.done.0 < warm {
            self.step(jobs);
        }
        let (first, begun) = (self.done, self.now);
        while self.done.0 < first.0 + count {
            self.step(jobs);
        }
        let commands = (self.done.0 - first.0) as f64;
        let ns = (self.done.1 - first.1) as f64;
        let seconds = self.now.since(begun).0 as f64 / 1e9;
        Rates { mean_us: ns / commands / 1e3, iops: commands / seconds }
    }

    /// As [`Loop::rates`], over stretches of time.
    pub(super) fn rates_for(&mut self, jobs: &mut [Job], warm: Span, span: Span) -> Rates {
        self.begin(jobs);
        let from = self.now + warm;
        while self.now < from {
            self.step(jobs);
        }
        let (first, begun) = (self.done, self.now);
        while self.now < from + span {
            self.step(jobs);
        }
        let commands = (self.done.0 - first.0).max(1) as f64;
        let seconds = self.now.since(begun).0 as f64 / 1e9;
        Rates { mean_us: (self.done.1 - first.1) as f64 / commands / 1e3, iops: commands / seconds }
    }

    /// Runs jobs, and after `warm` one command for a zone beside them: seconds that it takes with
    /// `tail` behind it, and measured commands meanwhile.
    pub(super) fn during(
        &mut self,
        jobs: &mut [Job],
        warm: Span,
        (op, at): (ZoneOp, Sector),
        tail: Span,
    ) -> (f64, f64) {
        self.begin(jobs);
        while self.now < Time::ZERO + warm {
            self.step(jobs);
        }
        let (first, begun) = (self.done.0, self.now);
        self.id += 1;
        // Nobody's: it is over when the zone's state says so.
        let rq = DevRequest {
            id: u64::MAX,
            op: Op::Zone(op),
            flags: Flags::NONE,
            at,
            sectors: 0,
            data: Vec::new(),
        };
        let taken = self.device.submit(self.now, rq, &mut self.fx);
        assert!(matches!(taken, Admit::Accepted), "the queue is deeper than any scene");
        while !self.fx.done.iter().any(|d| d.id == u64::MAX) {
            self.absorb(jobs);
            let Some(Reverse((at, _, what))) = self.timers.pop() else { break };
            self.now = at;
            match what {
                Ok(token) => self.device.timer(at, token, &mut self.fx),
                Err(job) => self.pump(jobs, job),
            }
        }
        let end = self.now + tail;
        self.absorb(jobs);
        while self.now < end {
            self.step(jobs);
        }
        let seconds = self.now.since(begun).0 as f64 / 1e9;
        (seconds, (self.done.0 - first) as f64)
    }

    /// One command by itself, after a second of idleness: its latency in microseconds.
    pub(super) fn one(&mut self, op: Op, at: Sector, sectors: u32) -> f64 {
        let until = self.now + Span::secs(1);
        let mut job = [Job::new(0, Span::ZERO, true, |_, _| Next::Wait(Time::NEVER))];
        while self.timers.peek().is_some_and(|t| t.0.0 <= until) {
            self.step(&mut job);
        }
        self.now = until;
        let before = self.now;
        self.send(0, op, at, sectors);
        self.absorb(&mut job);
        while !self.flying.is_empty() {
            self.step(&mut job);
        }
        self.now.since(before).0 as f64 / 1e3
    }

    /// A command for a zone by itself.
    pub(super) fn manage(&mut self, op: ZoneOp, at: Sector) -> f64 {
        self.one(Op::Zone(op), at, 0)
    }
}
