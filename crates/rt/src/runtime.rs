//! The handle [`Rt`].

use std::cell::{Cell, OnceCell, RefCell};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, RawWakerVTable, Waker};

use wp_base::event::{Class, Event, Probe, Record};
use wp_base::live::{Kind, Tally};
use wp_base::{Rng, Span, Time};

use crate::cpu::{CostProfile, Cpu, CpuModel, CpuOp};
use crate::inbox::{Clock, Inbox, Remote, TaskWaker};
use crate::interrupt::LeaveInterrupt;
use crate::join::{Join, JoinState};
use crate::report::{RtStats, Waiting};
use crate::sleep::{Sleep, Yield};
use crate::state::State;
use crate::tasks::{Body, Task, TaskId};
use crate::timers::{Fire, TimerKey};

/// Where time comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeMode {
    /// Time jumps from event to event.
    Virtual,
    /// The wall clock, from the runtime's making on. [`Rt::run`] sleeps until the next timer or
    /// inbox message.
    Real,
}

/// A callback in interrupt context: there is no current task.
pub trait TimerSink {
    /// The timer armed with `token` has come. May wake, spawn, submit and arm; cannot wait.
    fn fire(self: Rc<Self>, now: Time, token: u64);
}

/// A callback when a task is about to wait, in the task's own context (Linux: `schedule()` flushes
/// the task's plug).
pub trait SuspendHook {
    /// The task is about to wait.
    fn suspended(self: Rc<Self>);
}

/// The only source of time, tasks and randomness. Cheap to clone, bound to one thread.
#[derive(Clone)]
pub struct Rt(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    seed: u64,
    /// `None` in virtual mode.
    clock: Option<Clock>,
    profile: CostProfile,
    /// Does CPU time pass?
    pub modelled: bool,
    pub now: Cell<Time>,
    pub current: Cell<Option<TaskId>>,
    /// The task that is being polled; in interrupt context it is not the current one.
    pub polled: Cell<Option<TaskId>>,
    /// The waker that the current task is polled with, to know it again.
    own_waker: Cell<(*const (), *const RawWakerVTable)>,
    pub running: Cell<bool>,
    /// Where the present run ends by time.
    pub limit: Cell<Time>,
    pub stopping: Cell<bool>,
    pub cutting: Cell<bool>,
    /// Where other threads read the time.
    pub shared_now: OnceCell<Arc<AtomicU64>>,
    /// Set by another thread, every run ends.
    pub halt: OnceCell<Arc<AtomicBool>>,
    swapper: Rc<str>,
    probe: Probe,
    pub state: RefCell<State>,
    pub remote: Arc<Remote>,
    _tally: Tally,
}

impl Rt {
    /// Virtual time, no modelled CPU cost.
    pub fn new(seed: u64) -> Rt {
        Rt::with(TimeMode::Virtual, seed, CpuModel::free())
    }

    /// CPU cost is modelled only in virtual time. Panics if there is no core.
    pub fn with(mode: TimeMode, seed: u64, cpu: CpuModel) -> Rt {
        assert!(cpu.cores > 0, "a machine needs a core");
        let modelled = mode == TimeMode::Virtual && !cpu.profile.is_zero();
        Rt(Rc::new(Inner {
            seed,
            clock: (mode == TimeMode::Real).then(Clock::start),
            profile: cpu.profile,
            modelled,
            now: Cell::new(Time::ZERO),
            current: Cell::new(None),
            polled: Cell::new(None),
            own_waker: Cell::new((ptr::null(), ptr::null())),
            running: Cell::new(false),
            limit: Cell::new(Time::NEVER),
            stopping: Cell::new(false),
            cutting: Cell::new(false),
            shared_now: OnceCell::new(),
            halt: OnceCell::new(),
            swapper: Rc::from("swapper"),
            probe: Probe::new(),
            state: RefCell::new(State::new(cpu.cores)),
            remote: Arc::new(Remote::default()),
            _tally: Tally::new(Kind::World),
        }))
    }

    /// Nanoseconds since power-on.
    #[inline]
    pub fn now(&self) -> Time {
        match &self.0.clock {
            None => self.0.now.get(),
            Some(clock) => clock.now(),
        }
    }

    /// The time in nanoseconds, for other threads, which may see one of a moment ago: how far a run
    /// is. Nothing that is computed may depend on it.
    pub fn shared_now(&self) -> Arc<AtomicU64> {
        self.0.shared_now.get_or_init(|| Arc::new(AtomicU64::new(self.now().0))).clone()
    }

    /// Has every run end in [`Outcome::Stopped`](crate::Outcome::Stopped) once another thread sets
    /// `flag`: a user's interrupt. How far a run has come by then depends on the host, so nothing
    /// that is computed may be taken from it. Panics if there is a flag already.
    pub fn halt_on(&self, flag: Arc<AtomicBool>) {
        assert!(self.0.halt.set(flag).is_ok(), "a runtime has one flag to halt on");
    }

    /// When the next timer comes; `None`: there is none.
    pub fn next_timer(&self) -> Option<Time> {
        self.0.state.borrow_mut().timers.next_at()
    }

    /// Virtual or real?
    pub fn mode(&self) -> TimeMode {
        if self.0.clock.is_none() { TimeMode::Virtual } else { TimeMode::Real }
    }

    /// The world's seed.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Where events go.
    pub fn probe(&self) -> &Probe {
        &self.0.probe
    }

    /// Records an event if its class is on; `f` is not called otherwise.
    #[inline]
    pub fn emit(&self, class: Class, f: impl FnOnce() -> Event) {
        if self.0.probe.on(class) {
            let event = f();
            self.0.probe.push(Record { at: self.now(), task: self.current_name(), event });
        }
    }

    /// Starts a foreground task: [`Rt::run`] goes on until it has ended. Its first poll comes after
    /// those of the tasks that are ready now. After a cut, `fut` is dropped and the result never
    /// comes.
    pub fn spawn<T: 'static>(
        &self,
        name: impl Into<Rc<str>>,
        fut: impl Future<Output = T> + 'static,
    ) -> Join<T> {
        let state = JoinState::new();
        let (rt, result) = (self.clone(), state.clone());
        let body = async move {
            let value = fut.await;
            result.finish(&rt, value);
        };
        let id = self.start(name.into(), true, false, Box::pin(body));
        Join::new(self.clone(), id, state)
    }

    /// Starts a kernel thread: its waiting is no deadlock and does not keep [`Rt::run`] going.
    pub fn spawn_daemon(
        &self,
        name: impl Into<Rc<str>>,
        fut: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        self.start(name.into(), false, false, Box::pin(fut))
    }

    /// Starts what goes on in interrupt context: there is no current task while it is polled, it
    /// needs no core, and each poll comes before those of all other tasks. For what a device's
    /// completion does. [`Rt::leave_interrupt`] makes it a kernel thread called `name`.
    pub fn spawn_interrupt(
        &self,
        name: impl Into<Rc<str>>,
        fut: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        self.start(name.into(), false, true, Box::pin(fut))
    }

    /// In interrupt context: goes on as a kernel thread, in the order of those that are ready
    /// (`queue_work`). Elsewhere nothing happens.
    pub fn leave_interrupt(&self) -> LeaveInterrupt {
        LeaveInterrupt::new(self.clone())
    }

    fn start(
        &self,
        name: Rc<str>,
        foreground: bool,
        interrupt: bool,
        future: std::pin::Pin<Box<dyn Future<Output = ()>>>,
    ) -> TaskId {
        if self.0.cutting.get() {
            // No power: the future is dropped here, where no borrow is held. The id names nothing.
            return TaskId::NOBODY;
        }
        let now = self.now();
        let mut state = self.0.state.borrow_mut();
        let s = &mut *state;
        let id = s.tasks.insert(Task::new(name, !foreground, now, s.spawned));
        s.spawned += 1;
        s.foreground += usize::from(foreground);
        s.foreground_ran = now;
        let waker = Waker::from(Arc::new(TaskWaker { id, remote: self.0.remote.clone() }));
        let task = s.tasks.get_mut(id).expect("just inserted");
        (task.body, task.interrupt) = (Some(Body { future, waker }), interrupt);
        drop(state);
        self.wake_task(id);
        id
    }

    /// The running task; `None` in interrupt context and outside [`Rt::run`].
    #[inline]
    pub fn current(&self) -> Option<TaskId> {
        self.0.current.get()
    }

    /// Which poll of a task this is, from 1 on: between two moments with the same number nothing
    /// else has run. `None` in interrupt context and outside [`Rt::run`].
    #[inline]
    pub fn turn(&self) -> Option<u64> {
        self.current().map(|_| self.0.state.borrow().polls)
    }

    /// The running task's name; `swapper` when there is none.
    pub fn current_name(&self) -> Rc<str> {
        self.current()
            .and_then(|id| self.0.state.borrow().tasks.get(id).map(|t| t.name.clone()))
            .unwrap_or_else(|| self.interrupts())
    }

    /// Under what name interrupt context appears in events.
    pub(crate) fn interrupts(&self) -> Rc<str> {
        self.0.swapper.clone()
    }

    /// The name of a task that has not ended.
    pub fn name_of(&self, id: TaskId) -> Option<Rc<str>> {
        self.0.state.borrow().tasks.get(id).map(|t| t.name.clone())
    }

    /// Waits: for `span` of time. A span of zero is over at once, without a turn for others.
    #[inline]
    pub fn sleep(&self, span: Span) -> Sleep {
        Sleep::new(self.clone(), self.now() + span)
    }

    /// Waits: until `at`.
    #[inline]
    pub fn sleep_until(&self, at: Time) -> Sleep {
        Sleep::new(self.clone(), at)
    }

    /// Lets every task that is ready now run first. No suspend hook is called, as Linux's
    /// `schedule()` flushes no plug for a task that stays runnable.
    pub fn yield_now(&self) -> Yield {
        Yield::new(self.clone())
    }

    /// An independent random stream: adding a consumer never shifts another's numbers.
    pub fn rng(&self, stream: &str) -> Rng {
        Rng::stream(self.0.seed, stream)
    }

    /// Does CPU time pass? If not, [`Rt::cpu`] is always over at once.
    #[inline]
    pub fn is_modelled(&self) -> bool {
        self.0.modelled
    }

    /// Charges `n` times the cost of `op`: the current task computes that long and keeps its core.
    /// Ready at once when that is nothing, in real-time mode, and in interrupt context.
    #[inline]
    pub fn cpu(&self, op: CpuOp, n: u64) -> Cpu<'_> {
        let cost = if self.0.modelled { Span(self.0.profile.get(op) * n) } else { Span::ZERO };
        Cpu::new(self, op, cost)
    }

    /// Charges `n` times the cost of `op` to whoever is running, without a wait here: for code that
    /// cannot await. Returns when that is worked off; `None` if it costs nothing.
    ///
    /// A task holds its core that much longer before it goes on or waits. In interrupt context it
    /// is core 0 that is kept, and the task that computes there is delayed (a softirq on the core
    /// that takes the disk's interrupts; `rq_affinity=1` leaves it there when all cores share a
    /// cache).
    #[inline]
    pub fn spend(&self, op: CpuOp, n: u64) -> Option<Time> {
        if !self.0.modelled {
            return None;
        }
        let cost = Span(self.0.profile.get(op) * n);
        if cost == Span::ZERO {
            return None;
        }
        self.charge(op, cost).or_else(|| Some(self.interrupt(op, cost)))
    }

    /// Keeps core 0 for `cost`; returns when that is over.
    fn interrupt(&self, op: CpuOp, cost: Span) -> Time {
        self.emit(Class::CPU, || Event::Cpu { what: op.name(), span: cost });
        self.0.state.borrow_mut().interrupt(self.0.now.get(), cost)
    }

    /// The modelled core that the current task is on; 0 in interrupt context, and where CPU is not
    /// modelled.
    pub fn core(&self) -> u32 {
        let Some(id) = self.current() else { return 0 };
        let s = self.0.state.borrow();
        s.tasks.get(id).map_or(0, |t| if t.core == crate::tasks::NO_CORE { 0 } else { t.core })
    }

    /// Where the current task runs, for what is kept for each core: its core, or, where CPU is not
    /// modelled, a number that it alone has at the time; 0 in interrupt context.
    pub fn place(&self) -> u32 {
        match self.is_modelled() {
            true => self.core(),
            false => self.current().map_or(0, |id| id.slot() as u32),
        }
    }

    /// Nanoseconds that one `op` costs.
    pub(crate) fn cost_of(&self, op: CpuOp) -> u64 {
        self.0.profile.get(op)
    }

    /// The current task computes: returns the time at which it is polled again, or, if nothing else
    /// can happen until then, lets that time come at once and returns it.
    ///
    /// For a task that waits for one thing at a time it is the same as a timer and a poll later,
    /// without them: most bursts of a machine with few busy tasks are over before anything else is
    /// due. Of several futures in one task the one that computes goes first, and its core is not
    /// shared with the others meanwhile.
    pub(crate) fn compute(&self, op: CpuOp, cost: Span) -> Option<Time> {
        let id = self.current()?;
        self.emit(Class::CPU, || Event::Cpu { what: op.name(), span: cost });
        let mut s = self.0.state.borrow_mut();
        let now = self.0.now.get();
        let end = s.compute(id, now, cost);
        let asked_to_end = self.0.cutting.get() || self.0.stopping.get();
        let to_last = end <= self.0.limit.get();
        if to_last && !asked_to_end && !self.0.remote.pending() && s.is_alone_until(id, end) {
            s.computed(id, end);
            self.0.now.set(end);
        } else {
            s.timers.push(end, Fire::Cpu(id));
            s.tasks.get_mut(id).expect("the current task is alive").waiting = Waiting::Cpu(op);
        }
        Some(end)
    }

    /// Does the current task compute, and wait for nothing else? While it is polled, and before its
    /// poll has ended.
    pub fn is_computing(&self) -> bool {
        let Some(id) = self.current() else { return false };
        self.0.state.borrow().tasks.get(id).is_some_and(|t| t.cpu_until > self.0.now.get())
    }

    /// Begins a burst of the current task, which goes on all the same; returns the burst's end.
    pub(crate) fn charge(&self, op: CpuOp, cost: Span) -> Option<Time> {
        let id = self.current()?;
        self.emit(Class::CPU, || Event::Cpu { what: op.name(), span: cost });
        let mut s = self.0.state.borrow_mut();
        let end = s.burst(id, self.0.now.get(), cost);
        s.tasks.get_mut(id).expect("the current task is alive").waiting = Waiting::Cpu(op);
        Some(end)
    }

    /// Calls `sink` in interrupt context at `at`, or as the next timer if that has passed. Timers
    /// of the same time fire in the order in which they were set; tasks that are ready run before.
    pub fn timer(&self, at: Time, sink: Rc<dyn TimerSink>, token: u64) {
        if self.0.cutting.get() {
            return;
        }
        let at = at.max(self.0.now.get());
        self.0.state.borrow_mut().timers.push(at, Fire::Sink(sink, token));
    }

    /// Calls `sink` in interrupt context right after the current poll or callback, before any other
    /// task runs and before time moves.
    pub fn soon(&self, sink: Rc<dyn TimerSink>, token: u64) {
        if self.0.cutting.get() {
            return;
        }
        self.0.state.borrow_mut().soon.push_back((sink, token));
    }

    /// Sets the current task's suspend hook; returns the one before. It is called whenever a poll
    /// of the task ends in waiting, except when it waits for CPU time ([`Rt::cpu`]) or was woken
    /// already. Without a current task nothing is set.
    pub fn set_suspend_hook(
        &self,
        hook: Option<Rc<dyn SuspendHook>>,
    ) -> Option<Rc<dyn SuspendHook>> {
        let id = self.current()?;
        let mut s = self.0.state.borrow_mut();
        let task = s.tasks.get_mut(id)?;
        std::mem::replace(&mut task.hook, hook)
    }

    /// A handle for other threads.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.0.remote.clone())
    }

    /// Makes [`Rt::run`] return [`crate::Outcome::Stopped`] after the current poll; when it is not
    /// running, the next one does so at once.
    pub fn stop(&self) {
        self.0.stopping.set(true);
    }

    /// From now on the next ready task is drawn from the stream `seed`; `None`: first come, first
    /// served. Searches interleavings: whatever a program guarantees must hold under every seed.
    pub fn set_chaos(&self, seed: Option<u64>) {
        self.0.state.borrow_mut().chaos = seed.map(|seed| Rng::stream(seed, "chaos"));
    }

    /// What was done so far.
    pub fn stats(&self) -> RtStats {
        let s = self.0.state.borrow();
        RtStats {
            polls: s.polls,
            timers_fired: s.fired,
            tasks_spawned: s.spawned,
            context_switches: s.switches,
            core_busy: s.cores.iter().map(|c| c.busy).collect(),
        }
    }

    // ---- for the futures of this crate ----

    #[inline]
    pub(crate) fn wake_task(&self, id: TaskId) {
        let woken = self.0.state.borrow_mut().wake(id);
        if woken && self.0.probe.on(Class::SCHED) {
            let (task, on) = {
                let s = self.0.state.borrow();
                let t = s.tasks.get(id).expect("it was woken a moment ago");
                (t.name.clone(), t.waiting.name())
            };
            self.emit(Class::SCHED, || Event::Wakeup { task, timer: false, on });
        }
    }

    /// Remembers what the current task waits for.
    #[inline]
    pub(crate) fn note(&self, waiting: Waiting) {
        if let Some(id) = self.0.polled.get()
            && let Some(t) = self.0.state.borrow_mut().tasks.get_mut(id)
        {
            t.waiting = waiting;
        }
    }

    pub(crate) fn set_own_waker(&self, waker: &Waker) {
        self.0.own_waker.set((waker.data(), ptr::from_ref(waker.vtable())));
    }

    /// Is it the waker that the current task is polled with (and not that of some combinator)?
    #[inline]
    pub(crate) fn is_own_waker(&self, waker: &Waker) -> bool {
        self.0.own_waker.get() == (waker.data(), ptr::from_ref(waker.vtable()))
    }

    /// Arms a timer for the future polled with `cx`.
    #[inline]
    pub(crate) fn arm(&self, at: Time, cx: &Context<'_>) -> TimerKey {
        let Some(id) = self.0.polled.get().filter(|_| self.is_own_waker(cx.waker())) else {
            self.note(Waiting::Sleep(at));
            return self.0.state.borrow_mut().timers.push(at, Fire::Foreign(cx.waker().clone()));
        };
        let mut state = self.0.state.borrow_mut();
        let s = &mut *state;
        if let Some(t) = s.tasks.get_mut(id) {
            t.waiting = Waiting::Sleep(at);
        }
        s.timers.push(at, Fire::Task(id))
    }

    /// If the timer has not fired, has it wake the future polled with `cx`. False: it has fired.
    #[inline]
    pub(crate) fn rearm(&self, key: TimerKey, at: Time, cx: &Context<'_>) -> bool {
        let before = {
            let mut state = self.0.state.borrow_mut();
            let s = &mut *state;
            let Some(fire) = s.timers.get_mut(key) else {
                return false;
            };
            if let Some(t) = self.0.polled.get().and_then(|id| s.tasks.get_mut(id)) {
                t.waiting = Waiting::Sleep(at);
            }
            std::mem::replace(fire, Fire::from(self.who(cx)))
        };
        drop(before);
        true
    }

    pub(crate) fn disarm(&self, key: TimerKey) {
        let fire = self.0.state.borrow_mut().timers.cancel(key);
        drop(fire);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Wakers and handles of other threads may outlive the runtime; what they hold must not.
        drop(self.remote.close());
    }
}
