//! The queue of one block device: what everything above submits to.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use wp_base::event::{Flags, ZoneOp};
use wp_base::live::{Kind, Tally};
use wp_base::{Sector, Span, Time, Zone};
use wp_medium::Slice;
use wp_rt::{CpuOp, Rt, SuspendHook, TimerSink, WaitQueue};

use crate::bio::{Bio, BioEnd};
use crate::config::QueueConfig;
use crate::device::{DeviceModel, Done, Effects, Limits, Status};
use crate::end::End;
use crate::engine::{Core, Ctx, QueueCounters};
use crate::entry::{InFlight, Range};
use crate::epoch_log::EpochLog;
use crate::kblockd::{self, Work};
use crate::partition::Partition;
use crate::plug::{PlugGuard, PlugHook};
use crate::pool::IoClass;
use crate::waiters::Waiters;

/// A device that is busy though nothing of ours is in it is asked again after this
/// (`SCSI_QUEUE_DELAY`).
const BUSY_RETRY: Span = Span::millis(3);

/// Tokens of the queue's own timers.
const SOON: u64 = 0;
const ELEVATOR: u64 = 1;
const RETRY: u64 = 2;
const SERVED: u64 = 3;

/// A block device's request queue, with its elevator, driver and device.
///
/// Bios go in through [`BlockQueue::submit`] (or a [`Partition`]) and come back through their
/// `end`. Everything else happens in virtual time by itself. After a power cut ([`Rt::cut`]) the
/// queue drops what it holds, uncalled.
pub struct BlockQueue {
    pub(crate) cx: Ctx,
    me: Weak<BlockQueue>,
    pub(crate) core: RefCell<Core>,
    pub(crate) device: RefCell<Box<dyn DeviceModel>>,
    pub(crate) waiters: RefCell<Waiters>,
    /// Tasks that wait for a request: [asynchronous, synchronous].
    room: [WaitQueue; 2],
    kblockd: Rc<Work>,
    own: Rc<OwnTimers>,
    hook: Rc<PlugHook>,
    /// What the device's last timer caused.
    fx: RefCell<Effects>,
    /// Memory of a list that is emptied with nothing borrowed.
    ends: Cell<Vec<(End, BioEnd)>>,
    soon_armed: Cell<bool>,
    _tally: Tally,
}

/// Timers of the queue, apart from the device's.
struct OwnTimers(Weak<BlockQueue>);

impl TimerSink for OwnTimers {
    fn fire(self: Rc<Self>, _now: Time, token: u64) {
        let Some(queue) = self.0.upgrade() else { return };
        match token {
            SOON => queue.soon(),
            ELEVATOR => queue.elevator_timer(),
            SERVED => queue.served(),
            _ => queue.retry(),
        }
    }
}

/// The device's timers.
impl TimerSink for BlockQueue {
    fn fire(self: Rc<Self>, _now: Time, token: u64) {
        self.device_event(|dev, now, fx| dev.timer(now, token, fx));
    }
}

impl BlockQueue {
    /// A queue for `device`.
    pub fn new(rt: &Rt, config: QueueConfig, device: Box<dyn DeviceModel>) -> Rc<BlockQueue> {
        let limits = *device.limits();
        assert!(limits.queue_depth > 0, "a device holds at least one request");
        assert!(
            limits.max_sectors >= 8 && limits.max_segments > 0,
            "a request holds at least a page"
        );
        let elevator = config.make_elevator(limits);
        let work = Rc::new(Work::new(rt));
        let queue = Rc::new_cyclic(|me: &Weak<BlockQueue>| BlockQueue {
            me: me.clone(),
            core: RefCell::new(Core::new(elevator, &limits)),
            device: RefCell::new(device),
            waiters: RefCell::default(),
            room: [WaitQueue::new(rt, "async request"), WaitQueue::new(rt, "sync request")],
            kblockd: work.clone(),
            own: Rc::new(OwnTimers(me.clone())),
            hook: Rc::new(PlugHook { queue: me.clone() }),
            fx: RefCell::default(),
            ends: Cell::default(),
            soon_armed: Cell::new(false),
            _tally: Tally::new(Kind::World),
            cx: Ctx { rt: rt.clone(), limits, config },
        });
        kblockd::start(rt, &queue, work);
        queue
    }

    /// A part of the device that is addressed from 0: `sectors` from `start`. Panics beyond the
    /// device's end.
    pub fn partition(self: &Rc<Self>, start: Sector, sectors: u64) -> Partition {
        Partition::new(self.clone(), start, sectors)
    }

    /// The whole device as a partition.
    pub fn whole(self: &Rc<Self>) -> Partition {
        self.partition(Sector(0), self.cx.limits.sectors)
    }

    /// Queues a bio now: it is merged, plugged or issued before this returns. Never waits, not even
    /// for a free request (`nr_requests`): see [`BlockQueue::submit_throttled`].
    ///
    /// A bio beyond the end ends with [`Status::Io`], a discard that the device does not know with
    /// [`Status::NotSupported`], a flush on a device without volatile cache at once, all in
    /// interrupt context and without any event. Panics if a write is not of whole sectors or a read
    /// or discard is empty.
    pub fn submit(&self, bio: Bio) {
        self.submit_in(bio, self.range());
    }

    /// Queues a bio and waits for its end; charges the CPU cost of a submission. Its own `end` must
    /// be `None`.
    ///
    /// Waits: for the bio. Dropped before its end: the bio goes on alone.
    /// Returns: what a read found.
    pub fn submit_wait(&self, bio: Bio) -> impl Future<Output = Result<Vec<Slice>, Status>> {
        self.submit_wait_in(bio, self.range())
    }

    /// Queues a bio now, as [`BlockQueue::submit`]; its end can be waited for with what this
    /// returns. Its own `end` must be `None`.
    pub fn send(&self, bio: Bio) -> InFlight {
        self.send_in(bio, self.range())
    }

    /// As [`BlockQueue::submit`], but first waits for a request if the bio cannot be merged and
    /// `nr_requests` of its kind are in use (`get_request_wait()`); waiting flushes the task's
    /// plug. Charges the CPU cost of a submission. In interrupt context use `submit`.
    ///
    /// Crash: a future dropped while it waits takes the bio with it; its end is not called.
    pub async fn submit_throttled(&self, bio: Bio) {
        self.submit_throttled_in(bio, self.range()).await;
    }

    /// Waits: until fewer than `nr_requests` requests of the kind (`sync`: reads, and writes with
    /// [`wp_base::event::Flags::SYNC`]) are in use. First come, first served.
    pub async fn wait_room(&self, sync: bool) {
        let room = &self.room[usize::from(sync)];
        let mut first = true;
        loop {
            let full =
                self.core.borrow().allocated[usize::from(sync)] >= self.cx.config.nr_requests;
            if !full && (room.waiters() == 0 || !first) {
                return;
            }
            first = false;
            room.wait().await;
        }
    }

    /// Are requests of the kind scarce (`bdi_congested()`): more than 7/8 of `nr_requests` in use,
    /// and not yet below 13/16 again?
    pub fn is_congested(&self, sync: bool) -> bool {
        self.core.borrow().congested[usize::from(sync)]
    }

    /// Holds back what the current task submits until the guard is dropped or the task waits
    /// (`blk_start_plug()`).
    /// Plugs nest: only the outermost guard's drop flushes. In interrupt context nothing is held
    ///             back.
    pub fn plug(&self) -> PlugGuard {
        let queue = self.rc();
        let task = self.cx.rt.current();
        let Some(id) = task else { return PlugGuard { queue, task } };
        let mut core = self.core.borrow_mut();
        match core.plugs.of(task) {
            Some(plug) => plug.depth += 1,
            None => {
                let hook: Rc<dyn SuspendHook> = self.hook.clone();
                let before = self.cx.rt.set_suspend_hook(Some(hook));
                core.plugs.start(id, before);
            }
        }
        drop(core);
        PlugGuard { queue, task }
    }

    /// Sends what the current task's plug holds back; the plug stays, empty. What a file system
    /// that ends its caller's plug does around each bio (`blk_finish_plug(current->plug)`).
    pub fn empty_plug(&self) {
        let task = self.cx.rt.current();
        let mut core = self.core.borrow_mut();
        if core.flush_plug(&self.cx, &mut **self.device.borrow_mut(), task, None) {
            self.kblockd.want();
        }
        self.settle(&mut core);
    }

    /// Closes the current task's epoch of ordered writes without another write
    /// (`blk_issue_barrier_plug()` of BarrierFS's kernel): the request of the epoch that is
    /// dispatched last carries the barrier. False: no request of the epoch can carry it
    /// (`barrier_fail`), since the epoch is empty or all its requests have been dispatched; the
    /// epoch is not closed then.
    pub fn close_epoch(&self) -> bool {
        let task = self.cx.rt.current();
        self.core.borrow_mut().close_epoch(task)
    }

    /// Begins to record ordered writes as they are submitted, until the power is cut: see
    /// [`EpochLog`].
    pub fn record_epochs(&self) -> Rc<RefCell<EpochLog>> {
        let log = Rc::new(RefCell::new(EpochLog::default()));
        self.core.borrow_mut().epochs.log = Some(log.clone());
        log
    }

    /// Empties the device's volatile cache (`blkdev_issue_flush()`); ready at once if it has none.
    ///
    /// Waits: for the flush. What had completed before the call is durable after it.
    pub async fn flush(&self) -> Result<(), Status> {
        if !self.cx.limits.volatile_cache {
            return Ok(());
        }
        self.submit_wait(Bio::flush()).await.map(|_| ())
    }

    /// Orders the device's volatile cache: what has completed is on the medium before anything that
    /// is submitted after this, once a power cut has come. A cache barrier where the device has one
    /// (eMMC 5.1 `BARRIER_EN`), else a flush; ready at once without a volatile cache.
    ///
    /// Waits: for the command. Nothing is durable after a mere barrier.
    pub async fn barrier(&self) -> Result<(), Status> {
        if !self.cx.limits.volatile_cache {
            return Ok(());
        }
        self.submit_wait(Bio::barrier()).await.map(|_| ())
    }

    /// What the device says of its zones now, in order (`blkdev_report_zones()`).
    ///
    /// Waits: for the command. Errors: [`Status::NotSupported`] of a device without zones.
    pub async fn report_zones(&self) -> Result<Vec<Zone>, Status> {
        self.submit_wait(Bio::zone(ZoneOp::Report, Sector(0))).await?;
        Ok(self.with_device(|device| device.zones()))
    }

    /// Does `op` with the zone that begins at `at` (`blkdev_zone_mgmt()`); with all of them if it
    /// is [`ZoneOp::ResetAll`].
    ///
    /// Waits: for the command. Errors: [`Status::NotSupported`] of a device without zones;
    /// [`Status::Io`] if no sequential zone begins there, or its state does not allow it;
    /// [`Status::ZoneOpenResource`], [`Status::ZoneActiveResource`] if too many are open or active.
    pub async fn manage_zone(&self, op: ZoneOp, at: Sector) -> Result<(), Status> {
        self.submit_wait(Bio::zone(op, at)).await.map(|_| ())
    }

    /// Appends `segs` to the zone that begins at `at`, and tells where they are.
    ///
    /// Waits: for the bio. Errors: as [`BlockQueue::manage_zone`]; [`Status::Io`] also if they are
    /// more than the device appends at once, or more than the zone has room for.
    pub async fn append(
        &self,
        at: Sector,
        segs: Vec<Slice>,
        flags: Flags,
    ) -> Result<Sector, Status> {
        let end = self.submit_end_in(Bio::append(at, segs, flags), self.range()).await;
        end.status.map(|()| end.appended.unwrap_or(at))
    }

    /// Gives a task's I/O a class of priority (`ioprio_set()`), until it is given another.
    pub fn set_io_class(&self, task: wp_rt::TaskId, class: IoClass) {
        self.core.borrow_mut().classes.insert(task, class);
    }

    /// What the device says of itself.
    pub fn limits(&self) -> Limits {
        self.cx.limits
    }

    /// The queue's set-up.
    pub fn config(&self) -> &QueueConfig {
        &self.cx.config
    }

    /// Looks into the device. `f` must not use the queue, and must not make the device do anything:
    /// see [`BlockQueue::device_event`].
    pub fn with_device<R>(&self, f: impl FnOnce(&mut dyn DeviceModel) -> R) -> R {
        f(&mut **self.device.borrow_mut())
    }

    /// Lets something happen in the device, and acts on what it causes: for completions that come
    /// from outside the simulation (real mode) and for faults that tests inject. Call it in
    /// interrupt context or outside `run`.
    pub fn device_event(&self, f: impl FnOnce(&mut dyn DeviceModel, Time, &mut Effects)) {
        let mut fx = self.fx.borrow_mut();
        fx.listening = self.cx.listening();
        f(&mut **self.device.borrow_mut(), self.cx.rt.now(), &mut fx);
        if !fx.works.is_empty() {
            self.core.borrow_mut().device_events.works(&self.cx, &mut fx.works);
        }
        self.arm(&mut fx);
        if fx.done.is_empty() {
            return;
        }
        // Completions call whoever waits, with nothing borrowed.
        let mut done = std::mem::take(&mut fx.done);
        drop(fx);
        for done in done.drain(..) {
            self.interrupt(done);
        }
        self.fx.borrow_mut().done = done;
    }

    /// Commands in the device.
    pub fn in_flight(&self) -> usize {
        self.core.borrow().in_device as usize
    }

    /// blk-mq: requests that wait for kblockd (`blk_mq_requeue_work()`).
    pub fn requeued(&self) -> usize {
        self.core.borrow().requeued()
    }

    /// Bios that have been submitted and not ended, wherever they are.
    pub fn pending(&self) -> usize {
        self.core.borrow().pending_bios()
    }

    /// Requests that wait in plugs.
    pub fn plugged(&self) -> usize {
        self.core.borrow().plugs.held()
    }

    /// What it did so far.
    pub fn counters(&self) -> QueueCounters {
        let core = self.core.borrow();
        let epochs = core.counters.epochs + core.epochs.count();
        QueueCounters { epochs, ..core.counters }
    }

    pub(crate) fn rc(&self) -> Rc<BlockQueue> {
        self.me.upgrade().expect("a queue lives in an Rc, and somebody is calling it")
    }

    fn range(&self) -> Range {
        Range { start: Sector(0), sectors: self.cx.limits.sectors }
    }

    // ---- what follows from a change, with the core borrowed ----

    /// Arms timers and wakes tasks, as the last calls into the core want.
    pub(crate) fn settle(&self, core: &mut Core) {
        if !core.fx.timers.is_empty() {
            self.arm(&mut core.fx);
        }
        if core.mq.wanted {
            core.mq.wanted = false;
            self.kblockd.want();
        }
        if !core.done_soon.is_empty() || !core.dispatched.is_empty() {
            self.arm_soon();
        }
        if let Some(at) = core.timer_wanted.take()
            && core.timer_armed.is_none_or(|armed| at < armed)
        {
            core.timer_armed = Some(at);
            self.cx.rt.timer(at, self.own.clone(), ELEVATOR);
        }
        if core.blocked && core.in_device == 0 && !core.retry_armed {
            core.retry_armed = true;
            self.cx.rt.timer(self.cx.rt.now() + BUSY_RETRY, self.own.clone(), RETRY);
        }
    }

    /// Arms the device's timers.
    fn arm(&self, fx: &mut Effects) {
        if fx.timers.is_empty() {
            return;
        }
        let sink = self.rc();
        for (at, token) in fx.timers.drain(..) {
            self.cx.rt.timer(at, sink.clone(), token);
        }
    }

    pub(crate) fn arm_soon(&self) {
        if !self.soon_armed.replace(true) {
            self.cx.rt.soon(self.own.clone(), SOON);
        }
    }

    /// Issues what can be issued.
    pub(crate) fn run(&self) {
        let mut core = self.core.borrow_mut();
        core.run(&self.cx, &mut **self.device.borrow_mut());
        self.settle(&mut core);
        self.make_room(&mut core);
    }

    /// kblockd's turn.
    pub(crate) fn run_by_kblockd(&self) {
        let mut core = self.core.borrow_mut();
        core.take_requeued();
        core.start_held(&self.cx);
        drop(core);
        self.run();
    }

    /// Wakes tasks that wait for a request.
    fn make_room(&self, core: &mut Core) {
        for sync in 0..2 {
            while core.room[sync] > 0 {
                core.room[sync] -= 1;
                self.room[sync].wake_one();
            }
        }
    }

    // ---- interrupt context, nothing borrowed ----

    /// The device says that a command has completed. Where that costs CPU time its effects come
    /// when the interrupt has been served.
    fn interrupt(&self, done: Done) {
        match self.cx.rt.spend(CpuOp::Completion, 1) {
            None => self.command_done(done),
            Some(at) => {
                self.core.borrow_mut().served.push_back(done);
                self.cx.rt.timer(at, self.own.clone(), SERVED);
            }
        }
    }

    /// An interrupt has been served: they are, in the order in which they came.
    fn served(&self) {
        let done = self.core.borrow_mut().served.pop_front();
        if let Some(done) = done {
            self.command_done(done);
        }
    }

    /// A command has completed: ends its bios, and issues what waited for room; blk-mq leaves that
    /// to kblockd.
    fn command_done(&self, done: Done) {
        let mut core = self.core.borrow_mut();
        if !core.dispatched.is_empty() {
            drop(core);
            self.tell_dispatched();
            core = self.core.borrow_mut();
        }
        core.command_done(&self.cx, done);
        drop(core);
        self.tell_ends();
        if self.cx.is_mq() {
            let mut core = self.core.borrow_mut();
            core.restart_mq();
            self.settle(&mut core);
            self.make_room(&mut core);
        } else {
            self.run();
        }
    }

    /// Tells the ends of bios.
    fn tell_ends(&self) {
        let mut ends = self.ends.take();
        std::mem::swap(&mut ends, &mut self.core.borrow_mut().ended);
        for (end, how) in ends.drain(..) {
            self.tell(end, how);
        }
        let other = self.ends.replace(ends);
        if other.capacity() == 0 {
            // Nearly always; and the compiler does not see that there is nothing to be dropped.
            std::mem::forget(other);
        }
    }

    fn tell(&self, end: End, how: BioEnd) {
        match end {
            End::Nobody => {}
            End::Call(end) => end(how),
            End::Waiter(slot) => {
                let done = self.waiters.borrow_mut().end(slot, how);
                if let Some(done) = done {
                    done.done();
                }
            }
            telling @ End::Telling(_) => {
                let (dispatched, end) = telling.told_apart();
                if let Some(dispatched) = dispatched {
                    dispatched();
                }
                self.tell(end, how);
            }
            End::Part(whole, part) => {
                let mut core = self.core.borrow_mut();
                let w = core.wholes.get_mut(whole);
                w.left -= 1;
                if how.status.is_err() {
                    w.status = how.status;
                }
                w.data[part as usize] = how.data;
                if w.left > 0 {
                    return;
                }
                let mut w = core.wholes.take(whole);
                drop(core);
                if let Some(dispatched) = w.dispatched.take() {
                    dispatched();
                }
                let data = if w.status.is_ok() {
                    w.data.into_iter().flatten().collect()
                } else {
                    Vec::new()
                };
                self.tell(w.end, BioEnd { status: w.status, data, appended: None });
            }
        }
    }

    /// Tells of bios that the device has accepted.
    fn tell_dispatched(&self) {
        loop {
            let dispatched = self.core.borrow_mut().dispatched.pop_front();
            let Some(dispatched) = dispatched else { return };
            dispatched();
        }
    }

    /// What was dispatched, completions that came too early, and bios that did not get in.
    fn soon(&self) {
        self.soon_armed.set(false);
        self.tell_dispatched();
        loop {
            let done = self.core.borrow_mut().done_soon.pop_front();
            let Some(done) = done else { break };
            self.interrupt(done);
        }
        loop {
            let ended = self.core.borrow_mut().ended_soon.pop_front();
            let Some((end, how)) = ended else { break };
            self.tell(end, how);
        }
    }

    fn elevator_timer(&self) {
        let mut core = self.core.borrow_mut();
        let now = self.cx.rt.now();
        if core.timer_armed.is_some_and(|at| at <= now) {
            core.timer_armed = None;
        }
        core.elv(&self.cx, |e, elv| e.timer(elv));
        drop(core);
        self.run();
    }

    fn retry(&self) {
        let mut core = self.core.borrow_mut();
        core.retry_armed = false;
        core.blocked = false;
        drop(core);
        self.run();
    }

    // ---- plugs ----

    /// The current task waits.
    pub(crate) fn unplug_on_wait(&self) {
        let task = self.cx.rt.current();
        let mut core = self.core.borrow_mut();
        let how = Some(self.cx.config.plug.on_wait);
        if core.flush_plug(&self.cx, &mut **self.device.borrow_mut(), task, how) {
            self.kblockd.want();
        }
        self.settle(&mut core);
        let before = core.plugs.of(task).and_then(|p| p.before.clone());
        drop(core);
        if let Some(before) = before {
            before.suspended();
        }
    }

    /// A guard of `task` is dropped.
    pub(crate) fn unplug(&self, task: wp_rt::TaskId) {
        let mut core = self.core.borrow_mut();
        let plug = core.plugs.of(Some(task)).expect("a guard's task has a plug");
        plug.depth -= 1;
        if plug.depth > 0 {
            return;
        }
        let mut plug = core.plugs.end(task);
        // Dropped by somebody else than its task: a power cut, or the task is being destroyed while
        // it waits. A task that waits for anything but CPU time has an empty plug, and a destructor
        // does no I/O.
        if self.cx.rt.current() == Some(task) {
            if !plug.list.is_empty() {
                core.flush_list(&self.cx, &mut **self.device.borrow_mut(), &mut plug.list, None);
                self.settle(&mut core);
            }
            self.take_hook_back(plug.before);
        }
        core.plugs.recycle(plug.list);
    }

    /// Puts the task's former suspend hook back, unless somebody has set another on top of ours:
    /// then ours stays below it and finds nothing to do.
    fn take_hook_back(&self, before: Option<Rc<dyn SuspendHook>>) {
        let ours: Rc<dyn SuspendHook> = self.hook.clone();
        let now = self.cx.rt.set_suspend_hook(before);
        if let Some(now) = now
            && !Rc::ptr_eq(&now, &ours)
        {
            self.cx.rt.set_suspend_hook(Some(now));
        }
    }

    /// The power is gone: forgets everything, calls nobody.
    pub(crate) fn power_cut(&self) {
        let mut core = self.core.borrow_mut();
        core.plugs.clear();
        let elevator = self.cx.config.make_elevator(self.cx.limits);
        let mut old = std::mem::replace(&mut *core, Core::new(elevator, &self.cx.limits));
        core.plugs = std::mem::take(&mut old.plugs);
        core.counters = old.counters;
        core.counters.epochs += old.epochs.count();
        core.device_events = old.device_events.after_cut();
        drop(core);
        // Whatever the ends own is dropped here, with nothing borrowed.
        drop(old);
        self.waiters.borrow_mut().power_cut();
    }
}
