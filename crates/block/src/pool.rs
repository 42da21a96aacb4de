//! The slab of requests and of the bios in them. Nothing is allocated for a request once the slab
//! is warm.
//!
//! Picture:    request -> first bio -> next bio -> … (slots); a request is in one list at a time,
//!             through its own two links (`List`), or in a plug, the dispatch queue or the driver.
//! Invariants: 1. the bios of a request cover its range in order, without a gap;
//!             2. a slot's generation changes when it is freed, so a device that completes twice is
//!                found out.

use wp_base::event::{Flags, Op};
use wp_base::live::{Kind, Tally};
use wp_base::{Sector, Time};
use wp_medium::Slice;
use wp_rt::TaskId;

use crate::device::Status;
use crate::end::End;
use crate::slab::Slab;

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;
/// The epoch of what has none.
pub(crate) const NO_EPOCH: u32 = NONE;

/// Names a live request of one queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RqId(pub(crate) u32);

/// Class of a task's I/O priority (`ioprio_set()`). Only mq-deadline since 5.14 looks at it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum IoClass {
    /// Before all others.
    RealTime,
    /// As everybody who asks for nothing else.
    #[default]
    BestEffort,
    /// When nobody else wants the disk.
    Idle,
}

/// What a bio would be as a request: what merging is decided on.
#[derive(Clone, Copy, Debug)]
pub struct BioInfo {
    /// Operation.
    pub op: Op,
    /// Flags.
    pub flags: Flags,
    /// First sector on the device.
    pub at: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// Segments: slices that do not continue one another.
    pub segments: u32,
    /// Who submits it; `None` in interrupt context.
    pub task: Option<TaskId>,
    /// The modelled core that it is submitted on.
    pub core: u32,
    /// The submitter's class of I/O priority.
    pub class: IoClass,
    /// The epoch that it is in, or would join: a slot of `epoch.rs`, or [`NO_EPOCH`].
    pub(crate) epoch: u32,
}

impl BioInfo {
    /// First sector behind it.
    pub fn end(&self) -> Sector {
        self.at.advance(u64::from(self.sectors))
    }
}

/// Does somebody wait for it? Reads count as synchronous (`rw_is_sync()`).
pub(crate) fn is_sync(op: Op, flags: Flags) -> bool {
    op == Op::Read || flags.has(Flags::SYNC)
}

/// One or more merged bios: what the elevator sorts and the device sees (`struct request`).
pub struct Request {
    /// Operation.
    pub op: Op,
    /// Flags: those of its first bio, less what the flush machine has taken over.
    pub flags: Flags,
    /// First sector on the device.
    pub at: Sector,
    /// Length in sectors.
    pub sectors: u32,
    /// Segments: slices that do not continue one another.
    pub segments: u32,
    /// When its first bio was queued.
    pub queued: Time,
    /// The task that it was allocated for; `None` in interrupt context.
    pub task: Option<TaskId>,
    /// The core that it was allocated on.
    pub core: u32,
    /// Its class of I/O priority.
    pub class: IoClass,
    /// The elevator's: when it should be served at the latest.
    pub deadline: Time,
    /// The elevator's: a number of its own.
    pub elv: u32,

    pub(crate) state: State,
    /// The epoch of its bios while it is on its way to the device, or [`NO_EPOCH`].
    pub(crate) epoch: u32,
    /// Flush steps done (see `flush.rs`).
    pub(crate) steps: u8,
    pub(crate) generation: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
    prev: u32,
    next: u32,
    /// End sector under which it is in the merge index.
    pub(crate) hash_key: u64,
    pub(crate) hash_prev: u32,
    pub(crate) hash_next: u32,
    /// Device commands sent and not completed; more to come while it is the driver's current one.
    pub(crate) commands: u32,
    pub(crate) status: Result<(), Status>,
    /// Where an append has written.
    pub(crate) appended: Option<Sector>,
}

/// Bits of a request's life.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct State(u16);

impl State {
    /// The elevator has or had it.
    pub const SORTED: State = State(1);
    /// The driver has seen it: no more merging (`REQ_STARTED`).
    pub const STARTED: State = State(2);
    /// A merge failed for its size: do not try again (`REQ_NOMERGE`).
    pub const NOMERGE: State = State(4);
    /// The flush machine sequences it (`REQ_FLUSH_SEQ`).
    pub const FLUSH_SEQ: State = State(8);
    /// It is the flush machine's own cache flush.
    pub const FLUSH_RQ: State = State(16);
    /// It is in the merge index.
    pub const HASHED: State = State(32);
    /// It was counted as synchronous when it was allocated.
    pub const SYNC: State = State(64);
    /// It counts against `nr_requests`.
    pub const COUNTED: State = State(128);
    /// Its dispatch concerns somebody: it has an epoch, or a bio of which somebody is told.
    pub const WATCHED: State = State(256);

    pub const fn has(self, other: State) -> bool {
        self.0 & other.0 == other.0
    }
    pub fn set(&mut self, other: State) {
        self.0 |= other.0;
    }
    pub fn clear(&mut self, other: State) {
        self.0 &= !other.0;
    }
}

impl Request {
    /// First sector behind it.
    pub fn end(&self) -> Sector {
        self.at.advance(u64::from(self.sectors))
    }

    /// Does somebody wait for it? Reads count as synchronous.
    pub fn is_sync(&self) -> bool {
        is_sync(self.op, self.flags)
    }

    /// May anything still be merged with it (`rq_mergeable()`)?
    pub fn is_mergeable(&self) -> bool {
        !matches!(self.op, Op::Flush | Op::Zone(_))
            && !self.flags.any(Flags::PREFLUSH | Flags::FUA)
            && self.state.0 & (State::STARTED.0 | State::NOMERGE.0 | State::FLUSH_SEQ.0) == 0
    }
}

/// A bio inside a request.
pub(crate) struct BioRec {
    pub sectors: u32,
    pub segs: Vec<Slice>,
    pub end: End,
    /// Slot of the bio that follows it in the request.
    pub next: u32,
    _tally: Tally,
}

/// All requests and bios of one queue.
#[derive(Default)]
pub struct Pool {
    requests: Vec<Request>,
    free: Vec<u32>,
    bios: Slab<BioRec>,
}

impl std::ops::Index<RqId> for Pool {
    type Output = Request;
    fn index(&self, rq: RqId) -> &Request {
        &self.requests[rq.0 as usize]
    }
}
impl std::ops::IndexMut<RqId> for Pool {
    fn index_mut(&mut self, rq: RqId) -> &mut Request {
        &mut self.requests[rq.0 as usize]
    }
}

impl Pool {
    /// A request for `bio`, without bios yet.
    pub(crate) fn alloc(&mut self, bio: &BioInfo, now: Time) -> RqId {
        let mut rq = Request {
            op: bio.op,
            flags: bio.flags,
            at: bio.at,
            sectors: bio.sectors,
            segments: bio.segments,
            queued: now,
            task: bio.task,
            core: bio.core,
            class: bio.class,
            deadline: Time::NEVER,
            elv: NONE,
            state: if bio.epoch == NO_EPOCH { State::default() } else { State::WATCHED },
            epoch: bio.epoch,
            steps: 0,
            generation: 0,
            first: NONE,
            last: NONE,
            prev: NONE,
            next: NONE,
            hash_key: 0,
            hash_prev: NONE,
            hash_next: NONE,
            commands: 0,
            status: Ok(()),
            appended: None,
        };
        match self.free.pop() {
            Some(slot) => {
                rq.generation = self.requests[slot as usize].generation;
                self.requests[slot as usize] = rq;
                RqId(slot)
            }
            None => {
                self.requests.push(rq);
                RqId((self.requests.len() - 1) as u32)
            }
        }
    }

    /// Requests with bios in them, in no order that means anything.
    pub(crate) fn live(&self) -> impl Iterator<Item = RqId> {
        let all = (0u32..).zip(&self.requests);
        all.filter(|(_, r)| r.first != NONE).map(|(slot, _)| RqId(slot))
    }

    /// Frees a request, whose bios have been taken out.
    pub(crate) fn free(&mut self, rq: RqId) {
        let r = &mut self[rq];
        assert!(r.first == NONE, "a request is freed with bios in it");
        assert!(!r.state.has(State::HASHED), "a request is freed while bios can still find it");
        r.generation = r.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(rq.0);
    }

    /// Stores a bio at the end (or start) of a request's list. Counts nothing: the request's range
    /// is the caller's.
    pub(crate) fn attach(
        &mut self,
        rq: RqId,
        sectors: u32,
        segs: Vec<Slice>,
        end: End,
        front: bool,
    ) {
        if matches!(end, End::Part(..) | End::Telling(_)) {
            self[rq].state.set(State::WATCHED);
        }
        let next = if front { self[rq].first } else { NONE };
        let bio = self.bios.put(BioRec { sectors, segs, end, next, _tally: Tally::new(Kind::Bio) });
        let r = &mut self.requests[rq.0 as usize];
        if r.first == NONE {
            (r.first, r.last) = (bio, bio);
        } else if front {
            r.first = bio;
        } else {
            let last = std::mem::replace(&mut r.last, bio);
            self.bios.get_mut(last).next = bio;
        }
    }

    /// Moves the bios of `next` behind those of `rq`.
    pub(crate) fn append(&mut self, rq: RqId, next: RqId) {
        let (first, last) = (self[next].first, self[next].last);
        (self[next].first, self[next].last) = (NONE, NONE);
        if self[next].state.has(State::WATCHED) {
            self[rq].state.set(State::WATCHED);
        }
        let tail = std::mem::replace(&mut self[rq].last, last);
        self.bios.get_mut(tail).next = first;
    }

    /// The ends of a request's bios, in order.
    pub(crate) fn for_each_end(&mut self, rq: RqId, mut f: impl FnMut(&mut End)) {
        let mut slot = self[rq].first;
        while slot != NONE {
            let bio = self.bios.get_mut(slot);
            f(&mut bio.end);
            slot = bio.next;
        }
    }

    /// Takes the first bio out of a request.
    pub(crate) fn detach(&mut self, rq: RqId) -> Option<BioRec> {
        let slot = self[rq].first;
        if slot == NONE {
            return None;
        }
        let bio = self.bios.take(slot);
        let r = &mut self[rq];
        r.first = bio.next;
        if r.first == NONE {
            r.last = NONE;
        }
        Some(bio)
    }

    /// Takes the data out of a request's bios, in order, by reference.
    pub(crate) fn take_data(&mut self, rq: RqId) -> Vec<Slice> {
        let (mut slot, last) = (self[rq].first, self[rq].last);
        if slot == NONE {
            return Vec::new();
        }
        let mut data = std::mem::take(&mut self.bios.get_mut(slot).segs);
        while slot != last {
            slot = self.bios.get(slot).next;
            data.append(&mut self.bios.get_mut(slot).segs);
        }
        data
    }

    /// Has its first bio data?
    pub(crate) fn has_data(&self, rq: RqId) -> bool {
        let slot = self[rq].first;
        slot != NONE && !self.bios.get(slot).segs.is_empty()
    }

    /// Gives data back that the device did not take. It need not lie in the bios that it came from:
    /// nobody but `take_data` looks again.
    pub(crate) fn give_data(&mut self, rq: RqId, data: Vec<Slice>) {
        let slot = self[rq].first;
        if slot != NONE {
            self.bios.get_mut(slot).segs = data;
        }
    }

    /// Bios in it.
    pub(crate) fn bios(&self) -> usize {
        self.bios.len()
    }

    /// The request that a device's name for a command means, with the command's number.
    pub(crate) fn resolve(&self, id: u64) -> (RqId, u32) {
        let rq = RqId(id as u32);
        let generation = (id >> 48) as u32;
        let r = self.requests.get(rq.0 as usize);
        assert!(
            r.is_some_and(|r| r.generation == generation && r.commands > 0),
            "the device completed command {id:#x}, which it does not have"
        );
        (rq, (id >> 32) as u32 & 0xFFFF)
    }

    /// The name under which the device knows command `number` of a request.
    pub(crate) fn name(&self, rq: RqId, number: u32) -> u64 {
        assert!(number <= 0xFFFF, "a request of more than 65536 commands");
        u64::from(self[rq].generation) << 48 | u64::from(number) << 32 | u64::from(rq.0)
    }
}

/// A generation has the upper 16 bits of a command's name.
const GENERATION_MASK: u32 = 0xFFFF;

/// A list of requests, first in first out, through the requests' own links.
#[derive(Clone, Copy)]
pub struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

fn some(slot: u32) -> Option<RqId> {
    (slot != NONE).then_some(RqId(slot))
}

impl List {
    /// Requests in it.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// None in it?
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }
    /// The first.
    pub fn first(&self) -> Option<RqId> {
        some(self.head)
    }
    /// The last.
    pub fn last(&self) -> Option<RqId> {
        some(self.tail)
    }
    /// The request before `rq` in its list, and the one after.
    pub fn around(pool: &Pool, rq: RqId) -> (Option<RqId>, Option<RqId>) {
        (some(pool[rq].prev), some(pool[rq].next))
    }
    /// Adds a request, which is in no list, at the end.
    pub fn push(&mut self, pool: &mut Pool, rq: RqId) {
        pool[rq].prev = self.tail;
        pool[rq].next = NONE;
        match some(self.tail) {
            Some(tail) => pool[tail].next = rq.0,
            None => self.head = rq.0,
        }
        self.tail = rq.0;
        self.len += 1;
    }
    /// Adds a request, which is in no list, at the head.
    pub(crate) fn push_front(&mut self, pool: &mut Pool, rq: RqId) {
        pool[rq].prev = NONE;
        pool[rq].next = self.head;
        match some(self.head) {
            Some(head) => pool[head].prev = rq.0,
            None => self.tail = rq.0,
        }
        self.head = rq.0;
        self.len += 1;
    }
    /// Removes a request that is in this list.
    pub fn remove(&mut self, pool: &mut Pool, rq: RqId) {
        let (prev, next) = (pool[rq].prev, pool[rq].next);
        match some(prev) {
            Some(p) => pool[p].next = next,
            None => self.head = next,
        }
        match some(next) {
            Some(n) => pool[n].prev = prev,
            None => self.tail = prev,
        }
        (pool[rq].prev, pool[rq].next) = (NONE, NONE);
        self.len -= 1;
    }
    /// Puts `rq`, which is in no list, in the place of `old`, which leaves this one.
    pub fn replace(&mut self, pool: &mut Pool, old: RqId, rq: RqId) {
        let (prev, next) = (pool[old].prev, pool[old].next);
        (pool[rq].prev, pool[rq].next) = (prev, next);
        (pool[old].prev, pool[old].next) = (NONE, NONE);
        match some(prev) {
            Some(p) => pool[p].next = rq.0,
            None => self.head = rq.0,
        }
        match some(next) {
            Some(n) => pool[n].prev = rq.0,
            None => self.tail = rq.0,
        }
    }
}
