//! The driver's side of a device: timers, a queue of commands, one flush at a time where it must
//! be.
//!
//! Laws: commands are sent in the order in which they were queued; a device that cannot be sent a
//!       flush beside others (`Limits::flush_beside_others`) gets it alone, as libata does it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use wp_base::event::{Flags, Op};
use wp_base::{Sector, Time};
use wp_block::{Admit, DevRequest, DeviceModel, Effects, Limits, Status};
use wp_medium::Slice;

/// A command that is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Command {
    /// The request that it is of.
    pub owner: u64,
    pub op: Op,
    pub flags: Flags,
    pub at: Sector,
    pub sectors: u32,
    pub data: Option<Slice>,
}

impl Command {
    pub fn new(op: Op, at: Sector, sectors: u32, flags: Flags) -> Command {
        Command { owner: 0, op, flags, at, sectors, data: None }
    }

    pub fn flush() -> Command {
        Command::new(Op::Flush, Sector(0), 0, Flags::NONE)
    }

    /// Writes bytes that tell by `tag` which write they are of, and by their place where they
    /// belong.
    pub fn write(at: Sector, sectors: u32, tag: u64, flags: Flags) -> Command {
        let data = Slice::pattern(tag, at.bytes(), sectors * wp_base::SECTOR_BYTES as u32);
        Command { data: Some(data), ..Command::new(Op::Write, at, sectors, flags) }
    }
}

pub(super) struct Host {
    device: Box<dyn DeviceModel>,
    fx: Effects,
    now: Time,
    timers: BinaryHeap<Reverse<(Time, u64, u64)>>,
    timers_set: u64,
    id: u64,
    /// Commands at the device: whose each is, and whether it is a flush.
    flying: BTreeMap<u64, (u64, bool)>,
    flushes_flying: usize,
    ready: VecDeque<Command>,
    admitted: Vec<(u64, Time)>,
    done: Vec<(u64, Result<(), Status>)>,
    refused: u64,
    is_full: bool,
}

impl Host {
    pub fn new(device: Box<dyn DeviceModel>) -> Host {
        Host {
            device,
            fx: Effects::new(),
            now: Time::ZERO,
            timers: BinaryHeap::new(),
            timers_set: 0,
            id: 0,
            flying: BTreeMap::new(),
            flushes_flying: 0,
            ready: VecDeque::new(),
            admitted: Vec::new(),
            done: Vec::new(),
            refused: 0,
            is_full: false,
        }
    }

    pub fn limits(&self) -> &Limits {
        self.device.limits()
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.device.counters()
    }

    /// Times that the device was full when something was to be sent.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Is nothing waiting to be sent?
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// Commands that wait or are at the device.
    pub fn under_way(&self) -> usize {
        self.ready.len() + self.flying.len()
    }

    pub fn queue(&mut self, command: Command) {
        self.ready.push_back(command);
    }

    /// Which requests the device took something of, and when.
    pub fn take_admitted(&mut self) -> std::vec::IntoIter<(u64, Time)> {
        std::mem::take(&mut self.admitted).into_iter()
    }

    /// Commands that completed: whose, and how.
    pub fn take_done(&mut self) -> std::vec::IntoIter<(u64, Result<(), Status>)> {
        std::mem::take(&mut self.done).into_iter()
    }

    /// Sends what can be sent.
    pub fn dispatch(&mut self) {
        while let Some(command) = self.ready.front() {
            let limits = self.device.limits();
            let is_flush = command.op == Op::Flush;
            let alone = !limits.flush_beside_others;
            let must_wait =
                alone && (self.flushes_flying > 0 || (is_flush && !self.flying.is_empty()));
            if must_wait {
                return;
            }
            if self.flying.len() >= limits.queue_depth as usize {
                // Counted once, however often it is looked.
                self.refused += u64::from(!self.is_full);
                self.is_full = true;
                return;
            }
            let Some(command) = self.ready.pop_front() else { return };
            self.id += 1;
            let rq = DevRequest {
                id: self.id,
                op: command.op,
                flags: command.flags,
                at: command.at,
                sectors: command.sectors,
                data: command.data.iter().cloned().collect(),
            };
            // The completion may be among the effects of this call.
            self.flying.insert(self.id, (command.owner, is_flush));
            self.flushes_flying += usize::from(is_flush);
            match self.device.submit(self.now, rq, &mut self.fx) {
                Admit::Accepted => self.admitted.push((command.owner, self.now)),
                Admit::Busy(_) => {
                    self.flying.remove(&self.id);
                    self.flushes_flying -= usize::from(is_flush);
                    self.refused += u64::from(!self.is_full);
                    self.is_full = true;
                    self.ready.push_front(command);
                    self.absorb();
                    return;
                }
            }
            self.absorb();
        }
    }

    fn absorb(&mut self) {
        for (at, token) in self.fx.timers.drain(..) {
            self.timers_set += 1;
            self.timers.push(Reverse((at, self.timers_set, token)));
        }
        for done in self.fx.done.drain(..) {
            let flew = self.flying.remove(&done.id);
            let (owner, is_flush) = flew.expect("a device completes what it was sent, once");
            self.flushes_flying -= usize::from(is_flush);
            self.is_full = false;
            self.done.push((owner, done.status));
        }
    }

    /// Goes to the next timer, or to `wake` if that is earlier. False if there is neither.
    pub fn step(&mut self, wake: Time) -> bool {
        let next = self.timers.peek().map(|Reverse((at, ..))| *at);
        match next {
            Some(at) if at <= wake => {
                let Some(Reverse((at, _, token))) = self.timers.pop() else { return false };
                self.now = at;
                self.device.timer(at, token, &mut self.fx);
                self.absorb();
                true
            }
            _ if wake < Time::NEVER => {
                self.now = self.now.max(wake);
                true
            }
            _ => false,
        }
    }
}
