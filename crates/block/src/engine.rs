//! A bio's way into the elevator: merge, allocate, plug, insert.
//!
//! Picture:    bio -> [merge into the task's plug | into the elevator] or new request -> plug ->
//!             elevator -> dispatch queue -> driver (`dispatch.rs`). Flush sequences (`flush.rs`)
//!             go round the elevator.
//! Invariants: 1. a request is in exactly one of: a plug, the elevator, the dispatch queue, the
//!                flush machine's lists, the driver, the device;
//!             2. it is in the merge index exactly while it is in the elevator and mergeable;
//!             3. nothing here calls foreign code: ends to be told gather in `ended`.
//! Source:     behaviour of `blk_queue_bio()`, `blk_flush_plug_list()`, `__elv_add_request()`
//!             (Linux 3.x–4.x).

use std::collections::{BTreeMap, VecDeque};

use wp_base::event::{BlockAction, Class, Event, Flags, Op};
use wp_base::{SECTOR_BYTES, Sector, Time};
use wp_medium::Slice;
use wp_rt::{Rt, TaskId};

use crate::bio::{BioEnd, OnDispatch};
use crate::config::{PlugScan, QueueConfig, WaitUnplug};
use crate::device::{DeviceModel, Done, Effects, Limits};
use crate::device_events::DeviceEvents;
use crate::dispatch::Current;
use crate::elevator::{Elevator, ElvCx, Kick, Layer};
use crate::end::End;
use crate::epoch::Epochs;
use crate::flush::FlushMachine;
use crate::merge::{self, MergeIndex, Side};
use crate::mq::MqState;
use crate::plug::Plugs;
use crate::pool::NO_EPOCH;
use crate::pool::{BioInfo, IoClass, Pool, RqId, State, is_sync};
use crate::quasi::QuasiWaits;
use crate::slab::Slab;
use crate::sync_depth::DepthState;
use crate::zone_plug::ZonePlugs;

/// What does not change: set-up and surroundings.
pub(crate) struct Ctx {
    pub rt: Rt,
    pub limits: Limits,
    pub config: QueueConfig,
}

impl Ctx {
    /// Emits an event of a request or bio.
    #[inline]
    pub fn event(
        &self,
        action: BlockAction,
        op: Op,
        flags: Flags,
        at: Sector,
        sectors: u32,
        extra: u64,
    ) {
        self.rt.emit(Class::BLOCK, || Event::Block { action, op, flags, at, sectors, extra });
    }

    /// Is it a queue of blk-mq?
    pub fn is_mq(&self) -> bool {
        self.config.layer == Layer::Multi
    }

    /// Does somebody listen to what the device does within?
    #[inline]
    pub fn listening(&self) -> bool {
        self.rt.probe().on(Class::DEVICE)
    }

    /// Emits an event that concerns the queue as a whole.
    pub fn queue_event(&self, action: BlockAction, requests: u32) {
        self.event(action, Op::Write, Flags::NONE, Sector(0), requests, 0);
    }
}

/// A bio that has been checked and remapped.
pub(crate) struct Ready {
    pub info: BioInfo,
    pub segs: Vec<Slice>,
    pub end: End,
}

/// A bio that was split: told when all its parts have ended.
pub(crate) struct Whole {
    pub left: u32,
    pub status: Result<(), crate::device::Status>,
    pub data: Vec<Vec<Slice>>,
    pub end: End,
    /// Parts that the device has not accepted, and whom to tell when there is none left.
    pub unsent: u32,
    pub dispatched: Option<OnDispatch>,
}

/// What a queue did, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueCounters {
    /// Bios that entered (`Q`).
    pub bios: u64,
    /// Sectors of the writes that entered (`STAT_WRITE`, which Linux counts at their completion).
    pub sectors_written: u64,
    /// Bios that joined a request at its back.
    pub back_merges: u64,
    /// Bios that joined a request at its front.
    pub front_merges: u64,
    /// Requests that joined a request.
    pub request_merges: u64,
    /// Requests and cache flushes that the driver has seen (`D`).
    pub issued: u64,
    /// Requests that completed.
    pub completed: u64,
    /// Cache flushes sent to the device.
    pub flushes: u64,
    /// Flush steps that they served: more than `flushes` when some were shared.
    pub flush_steps: u64,
    /// Times that the device was busy.
    pub busy: u64,
    /// Epochs of ordered writes that were closed.
    pub epochs: u64,
    /// Writes with a barrier that the device has accepted.
    pub barriers: u64,
    /// Requests that had to wait for epochs before theirs.
    pub gated: u64,
}

/// The state of a queue.
pub(crate) struct Core {
    pub pool: Pool,
    pub elevator: Box<dyn Elevator>,
    pub merge: MergeIndex,
    pub plugs: Plugs,
    pub dispatch: VecDeque<RqId>,
    /// One of each hardware queue.
    pub flush: Vec<FlushMachine>,
    /// The request of which the driver is still sending segments.
    pub current: Option<Current>,
    /// Data read by the commands of a request that has several.
    pub pieces: BTreeMap<RqId, Vec<Vec<Slice>>>,
    /// Commands in the device.
    pub in_device: u32,
    /// Is one of them a cache flush?
    pub flush_in_device: bool,
    /// The device said that it is busy: wait for a completion.
    pub blocked: bool,
    /// Requests: [asynchronous, synchronous].
    pub allocated: [u32; 2],
    pub congested: [bool; 2],
    /// Tasks to be woken, as there is room: [asynchronous, synchronous].
    pub room: [u32; 2],
    /// Ends to be told as soon as nothing is borrowed.
    pub ended: Vec<(End, BioEnd)>,
    /// What the device's last call caused.
    pub fx: Effects,
    /// Completions that a `submit` to the device caused, and ends of bios that never got that far:
    /// told in interrupt context.
    pub done_soon: VecDeque<Done>,
    /// Completions whose interrupt is being served.
    pub served: VecDeque<Done>,
    pub ended_soon: VecDeque<(End, BioEnd)>,
    /// Whom to tell, before any end, that a bio was dispatched.
    pub dispatched: VecDeque<OnDispatch>,
    pub epochs: Epochs,
    pub wholes: Slab<Whole>,
    /// When the elevator wants its timer, and the timer that is armed.
    pub timer_wanted: Option<Time>,
    pub timer_armed: Option<Time>,
    /// Is the timer armed that asks a busy device again?
    pub retry_armed: bool,
    /// What blk-mq has besides.
    pub mq: MqState,
    /// Zones that are being written, and what waits for that.
    pub zone_plugs: ZonePlugs,
    /// Waits for asynchronous requests.
    pub quasi: QuasiWaits,
    /// Asynchronous requests that queue-depth adaptation counts and holds.
    pub depth: DepthState,
    /// Classes of I/O priority of tasks that asked for one.
    pub classes: BTreeMap<TaskId, IoClass>,
    pub counters: QueueCounters,
    /// Commands by their numbers in the trace.
    pub device_events: DeviceEvents,
}

impl Core {
    /// Idle, with the hardware queues of a device.
    pub fn new(elevator: Box<dyn Elevator>, limits: &Limits) -> Core {
        Core {
            pool: Pool::default(),
            elevator,
            merge: MergeIndex::default(),
            plugs: Plugs::default(),
            dispatch: VecDeque::new(),
            flush: (0..limits.hardware_queues.max(1)).map(|_| FlushMachine::default()).collect(),
            current: None,
            pieces: BTreeMap::new(),
            in_device: 0,
            flush_in_device: false,
            blocked: false,
            allocated: [0; 2],
            congested: [false; 2],
            room: [0; 2],
            ended: Vec::new(),
            fx: Effects::new(),
            done_soon: VecDeque::new(),
            served: VecDeque::new(),
            ended_soon: VecDeque::new(),
            dispatched: VecDeque::new(),
            epochs: Epochs::default(),
            wholes: Slab::default(),
            timer_wanted: None,
            timer_armed: None,
            retry_armed: false,
            mq: MqState::default(),
            zone_plugs: ZonePlugs::default(),
            quasi: QuasiWaits::default(),
            depth: DepthState::default(),
            classes: BTreeMap::new(),
            counters: QueueCounters::default(),
            device_events: DeviceEvents::default(),
        }
    }

    /// The class of a task's I/O.
    pub fn class_of(&self, task: Option<TaskId>) -> IoClass {
        if self.classes.is_empty() {
            return IoClass::BestEffort;
        }
        task.and_then(|t| self.classes.get(&t).copied()).unwrap_or_default()
    }

    /// Calls the elevator.
    #[inline]
    pub fn elv<R>(
        &mut self,
        cx: &Ctx,
        f: impl FnOnce(&mut dyn Elevator, &mut ElvCx<'_>) -> R,
    ) -> R {
        let mut elv = ElvCx { now: cx.rt.now(), pool: &mut self.pool, timer: None };
        let result = f(&mut *self.elevator, &mut elv);
        if elv.timer.is_some() {
            self.timer_wanted = elv.timer;
        }
        result
    }

    /// Merges the bio into a waiting request, or gives it back. What is ordered comes by way of
    /// [`Core::join_epoch`].
    pub fn join(&mut self, cx: &Ctx, bio: Ready) -> Result<(), Ready> {
        if bio.info.op == Op::Flush || bio.info.flags.any(Flags::PREFLUSH | Flags::FUA) {
            return Err(bio);
        }
        if let Some((rq, side)) = self.plug_match(cx, &bio.info) {
            self.merge_bio(cx, rq, side, bio);
            return Ok(());
        }
        if self.elevator.queued() == 0 || self.may_not_pass(cx, &bio.info) {
            return Err(bio);
        }
        let Some((rq, side)) = self.elevator_match(&bio.info) else { return Err(bio) };
        let old_at = self.pool[rq].at;
        if !merge::grow(&mut self.pool[rq], &bio.info, side, &cx.limits) {
            self.merge.remove(&mut self.pool, rq);
            return Err(bio);
        }
        self.merge_bio(cx, rq, side, bio);
        self.merged(cx, rq, side, old_at);
        Ok(())
    }

    /// A plugged request of the same task that takes the bio; it has grown by it already.
    fn plug_match(&mut self, cx: &Ctx, bio: &BioInfo) -> Option<(RqId, Side)> {
        let plug = self.plugs.of(bio.task)?;
        let scan = match cx.config.plug.scan {
            PlugScan::All => plug.list.len(),
            PlugScan::Newest => 1,
        };
        for &rq in plug.list.iter().rev().take(scan) {
            if let Some(side) = merge::side(&self.pool[rq], bio)
                && merge::grow(&mut self.pool[rq], bio, side, &cx.limits)
            {
                return Some((rq, side));
            }
        }
        None
    }

    /// A request in the elevator that touches the bio (`elv_merge()`).
    fn elevator_match(&self, bio: &BioInfo) -> Option<(RqId, Side)> {
        let allowed = |rq: RqId| {
            let side = merge::side(&self.pool[rq], bio)?;
            self.elevator.allow_merge(&self.pool, rq, bio).then_some((rq, side))
        };
        if let Some(found) = self.merge.last.and_then(allowed) {
            return Some(found);
        }
        if let Some(found) = self.merge.ending_at(&self.pool, bio.at).and_then(allowed) {
            return Some(found);
        }
        self.elevator.starting_at_end(&self.pool, bio).and_then(allowed)
    }

    pub fn merge_bio(&mut self, cx: &Ctx, rq: RqId, side: Side, bio: Ready) {
        let (action, count) = match side {
            Side::Back => (BlockAction::BackMerge, &mut self.counters.back_merges),
            Side::Front => (BlockAction::FrontMerge, &mut self.counters.front_merges),
        };
        *count += 1;
        cx.event(action, bio.info.op, bio.info.flags, bio.info.at, bio.info.sectors, 0);
        self.pool.attach(rq, bio.info.sectors, bio.segs, bio.end, side == Side::Front);
    }

    /// A request in the elevator has grown: perhaps it now touches its neighbour.
    fn merged(&mut self, cx: &Ctx, rq: RqId, side: Side, old_at: Sector) {
        if side == Side::Front {
            self.elv(cx, |e, elv| e.moved(elv, rq, old_at));
        }
        let (former, latter) = self.elevator.neighbours(&self.pool, rq);
        let pair = match side {
            Side::Back => latter.map(|next| (rq, next)),
            Side::Front => former.map(|before| (before, rq)),
        };
        let kept = match pair {
            Some((kept, gone)) if merge::can_append(&self.pool, kept, gone, &cx.limits) => {
                self.absorb(cx, kept, gone);
                kept
            }
            _ => {
                self.merge.moved(&mut self.pool, rq);
                rq
            }
        };
        if self.pool[kept].state.has(State::HASHED) {
            self.merge.last = Some(kept);
        }
    }

    /// Appends `gone`, which is in the elevator or just about to be, to `kept`, which is.
    fn absorb(&mut self, cx: &Ctx, kept: RqId, gone: RqId) {
        if self.pool[gone].state.has(State::SORTED) {
            self.elv(cx, |e, elv| e.absorbed(elv, kept, gone));
            self.merge.remove(&mut self.pool, gone);
        }
        let (sectors, segments) = (self.pool[gone].sectors, self.pool[gone].segments);
        let (queued, barrier) =
            (self.pool[gone].queued, self.pool[gone].flags.0 & Flags::BARRIER.0);
        let r = &mut self.pool[kept];
        r.sectors += sectors;
        r.segments += segments;
        r.queued = r.queued.min(queued);
        r.flags |= Flags(barrier);
        let epoch = std::mem::replace(&mut self.pool[gone].epoch, NO_EPOCH);
        self.epochs.merged(epoch);
        self.pool.append(kept, gone);
        self.merge.moved(&mut self.pool, kept);
        self.counters.request_merges += 1;
        self.free(cx, gone);
    }

    /// Makes a request of a bio that joined none, and plugs, inserts or issues it.
    pub fn add(&mut self, cx: &Ctx, dev: &mut dyn DeviceModel, bio: Ready) {
        let mut info = bio.info;
        if info.flags.has(Flags::ORDERED) {
            self.epochs.enlist(&mut info, &bio.segs);
        }
        cx.event(BlockAction::GetRequest, info.op, info.flags, info.at, info.sectors, 0);
        let rq = self.pool.alloc(&info, cx.rt.now());
        self.count(cx, rq);
        self.note_sync(cx, rq);
        self.pool.attach(rq, info.sectors, bio.segs, bio.end, false);
        if cx.is_mq() && self.add_mq(cx, dev, rq) {
            return;
        }
        if let Some(plug) = self.plugs.of(info.task) {
            let most = cx.config.plug.flush_bytes;
            let large = most > 0
                && plug.list.last().is_some_and(|last| {
                    u64::from(self.pool[*last].sectors) * SECTOR_BYTES >= u64::from(most)
                });
            if large || plug.list.len() >= cx.config.plug.requests_max as usize {
                self.flush_plug(cx, dev, info.task, None);
            }
            let plug = self.plugs.of(info.task).expect("a flush does not end the plug");
            if plug.list.is_empty() {
                cx.queue_event(BlockAction::Plug, 0);
            }
            plug.list.push(rq);
            return;
        }
        self.insert(cx, rq, false);
        self.run(cx, dev);
    }

    pub fn count(&mut self, cx: &Ctx, rq: RqId) {
        let r = &mut self.pool[rq];
        let sync = is_sync(r.op, r.flags);
        r.state.set(State::COUNTED);
        if sync {
            r.state.set(State::SYNC);
        }
        let n = &mut self.allocated[usize::from(sync)];
        *n += 1;
        // `queue_congestion_on_threshold()`
        let limit = cx.config.nr_requests;
        if *n > limit - limit / 8 {
            self.congested[usize::from(sync)] = true;
        }
    }

    /// Frees a request without bios.
    pub fn free(&mut self, cx: &Ctx, rq: RqId) {
        self.release_zone(cx, rq);
        let state = self.pool[rq].state;
        self.pool.free(rq);
        if !state.has(State::COUNTED) {
            return;
        }
        let dir = usize::from(state.has(State::SYNC));
        self.allocated[dir] -= 1;
        // `queue_congestion_off_threshold()`
        let limit = cx.config.nr_requests;
        if self.allocated[dir] < (limit - limit / 8 - limit / 16).saturating_sub(1) {
            self.congested[dir] = false;
        }
        if self.allocated[dir] < limit {
            self.room[dir] += 1;
        }
    }

    /// Hands a request to the elevator, or to the flush machine (`__elv_add_request()`).
    pub fn insert(&mut self, cx: &Ctx, rq: RqId, from_plug: bool) -> Kick {
        if self.stops_at_gate(cx, rq) {
            return Kick::No;
        }
        let r = &self.pool[rq];
        if cx.is_mq() {
            return self.insert_mq(cx, rq);
        }
        cx.event(BlockAction::Insert, r.op, r.flags, r.at, r.sectors, 0);
        if r.op == Op::Flush || r.flags.any(Flags::PREFLUSH | Flags::FUA) {
            self.flush_insert(cx, rq);
            return Kick::No;
        }
        if from_plug && self.insert_by_merge(cx, rq) {
            return Kick::No;
        }
        self.pool[rq].state.set(State::SORTED);
        if self.pool[rq].is_mergeable() {
            self.merge.add(&mut self.pool, rq);
            if self.merge.last.is_none() {
                self.merge.last = Some(rq);
            }
        }
        self.elv(cx, |e, elv| e.insert(elv, rq))
    }

    /// Appends a request that comes from a plug to one in the elevator, if one ends where it starts
    /// (`elv_attempt_insert_merge()`), and that one to another, and so on.
    pub fn insert_by_merge(&mut self, cx: &Ctx, rq: RqId) -> bool {
        let last = self.merge.last.filter(|l| merge::can_append(&self.pool, *l, rq, &cx.limits));
        if let Some(last) = last {
            self.absorb(cx, last, rq);
            return true;
        }
        let mut merged = None;
        loop {
            let rq = merged.unwrap_or(rq);
            let Some(before) = self.merge.ending_at(&self.pool, self.pool[rq].at) else { break };
            if before == rq || !merge::can_append(&self.pool, before, rq, &cx.limits) {
                break;
            }
            self.absorb(cx, before, rq);
            merged = Some(before);
        }
        merged.is_some()
    }

    /// Sends what a task's plug holds to the elevator and runs the queue (`blk_flush_plug_list()`).
    /// True: the queue is to be run by kblockd.
    pub fn flush_plug(
        &mut self,
        cx: &Ctx,
        dev: &mut dyn DeviceModel,
        task: Option<TaskId>,
        on_wait: Option<WaitUnplug>,
    ) -> bool {
        let Some(plug) = self.plugs.of(task) else { return false };
        if plug.list.is_empty() {
            return false;
        }
        let mut list = std::mem::take(&mut plug.list);
        let later = self.flush_list(cx, dev, &mut list, on_wait);
        match self.plugs.of(task) {
            Some(plug) => {
                list.clear();
                plug.list = list;
            }
            None => self.plugs.recycle(list),
        }
        later
    }

    /// As [`Core::flush_plug`], for requests that are in no plug any more.
    pub fn flush_list(
        &mut self,
        cx: &Ctx,
        dev: &mut dyn DeviceModel,
        list: &mut [RqId],
        on_wait: Option<WaitUnplug>,
    ) -> bool {
        if cx.config.plug.sort {
            list.sort_by_key(|rq| self.pool[*rq].at);
        }
        let requests = list.len() as u32;
        if cx.is_mq() {
            return self.flush_list_mq(cx, dev, list, on_wait);
        }
        for rq in list {
            if self.insert(cx, *rq, true) == Kick::Run {
                self.run(cx, dev);
            }
        }
        cx.queue_event(BlockAction::Unplug, requests);
        if on_wait == Some(WaitUnplug::Kblockd) {
            return true;
        }
        self.run(cx, dev);
        false
    }

    /// Requests and bios that have not ended, wherever they are.
    pub fn pending_bios(&self) -> usize {
        self.pool.bios() + self.ended_soon.len() + self.zone_plugs.held()
    }
}
