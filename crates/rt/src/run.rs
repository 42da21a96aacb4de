//! The loop: one callback, poll or timer at a time.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;

use wp_base::event::{Class, Event, Record};
use wp_base::{Span, Time};

use crate::cpu::{CpuOp, TIME_SLICE};
use crate::inbox::Message;
use crate::report::{Outcome, TaskReport, Waiting};
use crate::runtime::{Rt, TimeMode, TimerSink};
use crate::state::State;
use crate::tasks::{Body, NO_CORE, TaskId};
use crate::timers::Fire;

/// Polls and callbacks at one instant of virtual time after which a run ends as a livelock. A real
/// instant has as many as there are pages to write back at once; far more is a loop that waits for
/// nothing.
pub const POLLS_WITHOUT_TIME_MAX: u64 = 1_000_000;

/// Virtual time after which foreground tasks that none of its own timers can wake count as
/// deadlocked, although the timers of kernel threads go on for ever. 30 × Linux's
/// `hung_task_timeout_secs`.
pub const HUNG_AFTER: Span = Span::secs(3600);

/// What a run is for.
#[derive(Clone, Copy)]
enum Goal {
    /// Until no foreground task is left.
    Idle,
    /// Until that task has ended.
    Task(TaskId),
    /// All events up to and including that time.
    Until(Time),
}

enum Step {
    Poll(TaskId),
    Callback(Rc<dyn TimerSink>, u64),
    Wake(Waker),
    /// Real time: nothing to do until then.
    Wait(Option<Time>),
    End(Outcome),
}

impl Rt {
    /// Runs until no foreground task is left. In real time, sleeps while there is nothing to do.
    pub fn run(&self) -> Outcome {
        self.drive(Goal::Idle)
    }

    /// Runs all events up to and including `t`; then it is `t`. Never reports a deadlock: the
    /// caller may wake what waits.
    pub fn run_until(&self, t: Time) -> Outcome {
        self.drive(Goal::Until(t))
    }

    /// Spawns `fut` as a foreground task and runs until it has ended. Other tasks keep their state.
    ///
    /// Errors: how the run ended before the task did; the task then remains, except after a power
    /// cut.
    pub fn block_on<T: 'static>(
        &self,
        name: &str,
        fut: impl Future<Output = T> + 'static,
    ) -> Result<T, Outcome> {
        let join = self.spawn(name, fut);
        let outcome = self.drive(Goal::Task(join.id()));
        join.try_take().ok_or(outcome)
    }

    /// Power cut: after the current poll (now, if not running) every task is dropped in spawn
    /// order, then every callback and timer, without being run. [`Rt::run`] returns
    /// [`Outcome::PowerCut`], now and ever after; what is spawned or armed from now on is dropped
    /// at once.
    pub fn cut(&self) {
        self.0.cutting.set(true);
        if !self.0.running.get() {
            self.drop_everything();
        }
    }

    /// All tasks that have not ended and what they wait for, in spawn order.
    pub fn tasks(&self) -> Vec<TaskReport> {
        self.0.state.borrow().report()
    }

    fn drop_everything(&self) {
        let ids: Vec<TaskId> =
            self.0.state.borrow().tasks.in_spawn_order().into_iter().map(|(id, _)| id).collect();
        for id in ids {
            // Out of the slab first: destructors run other code, which may come back here.
            let task = self.0.state.borrow_mut().tasks.remove(id);
            drop(task);
        }
        let (soon, timers) = {
            let mut s = self.0.state.borrow_mut();
            s.ready.clear();
            s.interrupts.clear();
            s.foreground = 0;
            s.cores.iter_mut().for_each(|c| c.task = None);
            (std::mem::take(&mut s.soon), s.timers.clear())
        };
        drop(soon);
        drop(timers);
        drop(self.0.remote.close());
    }

    fn drive(&self, goal: Goal) -> Outcome {
        assert!(!self.0.running.replace(true), "a runtime cannot be run from inside itself");
        let _running = Running(self);
        self.0.limit.set(match goal {
            Goal::Until(t) => t,
            Goal::Idle | Goal::Task(_) => Time::NEVER,
        });
        loop {
            if self.0.cutting.get() {
                self.drop_everything();
                return Outcome::PowerCut;
            }
            let halted = self.0.halt.get().is_some_and(|h| h.load(Ordering::Relaxed));
            if halted || self.0.stopping.replace(false) {
                return Outcome::Stopped;
            }
            if self.0.remote.pending() {
                self.take_messages();
                continue;
            }
            if let Some(shared) = self.0.shared_now.get() {
                shared.store(self.now().0, Ordering::Relaxed);
            }
            match self.next_step(goal) {
                Step::Poll(id) => self.poll_task(id),
                Step::Callback(sink, token) => sink.fire(self.now(), token),
                Step::Wake(waker) => waker.wake(),
                Step::Wait(until) => {
                    let span = until.map(|at| Duration::from_nanos(at.since(self.now()).0));
                    self.0.remote.wait(span);
                }
                Step::End(outcome) => return outcome,
            }
        }
    }

    fn take_messages(&self) {
        for message in self.0.remote.take() {
            match message {
                Message::Wake(id) => self.wake_task(id),
                Message::Job(job) => job(self),
            }
        }
    }

    /// Decides what to do next, and takes it out of the state.
    fn next_step(&self, goal: Goal) -> Step {
        let mut state = self.0.state.borrow_mut();
        let s = &mut *state;
        let virtual_time = self.mode() == TimeMode::Virtual;
        let now = self.now();
        s.steps_here += 1;
        if s.steps_here > POLLS_WITHOUT_TIME_MAX && virtual_time {
            s.steps_here = 0;
            return Step::End(Outcome::Livelock(s.report()));
        }
        if let Some((sink, token)) = s.soon.pop_front() {
            s.fired += 1;
            return Step::Callback(sink, token);
        }
        let limit = match goal {
            Goal::Idle if s.foreground == 0 => return Step::End(Outcome::Idle),
            Goal::Task(id) if s.tasks.get(id).is_none() => return Step::End(Outcome::Idle),
            Goal::Idle | Goal::Task(_) => Time::NEVER,
            Goal::Until(t) => t,
        };
        if let Some(id) = self.next_ready(s, now) {
            return Step::Poll(id);
        }
        loop {
            let next = s.timers.next_at();
            let due = if virtual_time { limit } else { limit.min(now) };
            match next {
                Some(at) if at <= due => {
                    if virtual_time && at > now && limit == Time::NEVER && is_hung(s, at) {
                        return Step::End(Outcome::Deadlock(s.report()));
                    }
                    if let Some(step) = self.fire_next(s, at) {
                        return step;
                    }
                }
                next => return self.nothing_due(s, next, limit, now),
            }
        }
    }

    /// No timer is due and no task ready.
    fn nothing_due(&self, s: &mut State, next: Option<Time>, limit: Time, now: Time) -> Step {
        if limit != Time::NEVER {
            if self.mode() == TimeMode::Virtual {
                s.steps_here = 0;
                self.0.now.set(limit.max(now));
            } else if now < limit {
                return Step::Wait(Some(next.map_or(limit, |at| at.min(limit))));
            }
            return Step::End(Outcome::Reached);
        }
        if self.mode() == TimeMode::Real && (next.is_some() || self.0.remote.has_handles()) {
            return Step::Wait(next);
        }
        Step::End(Outcome::Deadlock(s.report()))
    }

    /// The next task that can be polled now.
    #[inline]
    fn next_ready(&self, s: &mut State, now: Time) -> Option<TaskId> {
        if let Some(id) = s.interrupts.pop_front() {
            return Some(id);
        }
        if self.0.modelled { self.dispatch(s, now) } else { s.pop_ready() }
    }

    /// Gives free cores to ready tasks until one of them can be polled.
    fn dispatch(&self, s: &mut State, now: Time) -> Option<TaskId> {
        while !s.ready.is_empty() && s.free_core(0).is_some() {
            let id = s.pop_ready()?;
            let Some(t) = s.tasks.get_mut(id) else {
                continue;
            };
            let last_core = t.last_core;
            let core = s.free_core(last_core).expect("there is a free core");
            let previous = s.cores[core as usize].last.replace(id);
            s.cores[core as usize].task = Some(id);
            let t = s.tasks.get_mut(id).expect("it was there a moment ago");
            (t.core, t.last_core, t.dispatched) = (core, core, now);
            if self.probe().on(Class::SCHED) {
                let event = Event::SwitchIn { core };
                self.probe().push(Record { at: now, task: t.name.clone(), event });
            }
            let switched = t.blocked || previous != Some(id);
            s.switches += u64::from(switched);
            let held = s.cores[core as usize].interrupted_until.max(now).since(now);
            let cost = if switched { Span(self.cost_of(CpuOp::ContextSwitch)) } else { Span::ZERO };
            // The interrupt's time was counted as busy when it came.
            let busy = &mut s.cores[core as usize].busy;
            *busy = Span(busy.0.saturating_sub(held.0));
            if cost + held == Span::ZERO {
                return Some(id);
            }
            let t = s.tasks.get_mut(id).expect("it was there a moment ago");
            if cost > Span::ZERO && self.probe().on(Class::CPU) {
                let event = Event::Cpu { what: CpuOp::ContextSwitch.name(), span: cost };
                self.probe().push(Record { at: now, task: t.name.clone(), event });
            }
            t.waiting = Waiting::Cpu(CpuOp::ContextSwitch);
            s.burst(id, now, held + cost);
        }
        None
    }

    /// Takes the first timer out; time moves to it.
    #[inline]
    fn fire_next(&self, s: &mut State, at: Time) -> Option<Step> {
        if self.mode() == TimeMode::Virtual && at > self.0.now.get() {
            self.0.now.set(at);
            s.steps_here = 0;
        }
        s.fired += 1;
        match s.timers.pop()? {
            Fire::Sink(sink, token) => Some(Step::Callback(sink, token)),
            Fire::Foreign(waker) => Some(Step::Wake(waker)),
            Fire::Task(id) => {
                if s.wake(id) && self.probe().on(Class::SCHED) {
                    let t = s.tasks.get(id).expect("it was woken a moment ago");
                    let (task, on) = (t.name.clone(), t.waiting.name());
                    let event = Event::Wakeup { task, timer: true, on };
                    self.probe().push(Record { at, task: self.interrupts(), event });
                }
                self.next_ready(s, at).map(Step::Poll)
            }
            Fire::Cpu(id) => self.burst_over(s, id, at).map(Step::Poll),
        }
    }

    /// A task's burst of CPU time is over: who runs next on its core?
    fn burst_over(&self, s: &mut State, id: TaskId, at: Time) -> Option<TaskId> {
        let t = s.tasks.get_mut(id)?;
        if t.core == NO_CORE || t.cpu_until > at {
            return None;
        }
        if at.since(t.dispatched) < TIME_SLICE || s.ready.is_empty() {
            return Some(id);
        }
        t.queued = true;
        t.blocked = false;
        self.release_core(s, id);
        self.dispatch(s, at)
    }

    /// Takes the core from a task, if it has one; puts it in the run queue if it was woken.
    fn release_core(&self, s: &mut State, id: TaskId) {
        if let Some(t) = s.tasks.get(id).filter(|t| t.core != NO_CORE)
            && self.probe().on(Class::SCHED)
        {
            let event = Event::SwitchOut { ready: t.queued };
            self.probe().push(Record { at: self.now(), task: t.name.clone(), event });
        }
        s.release_core(id);
    }

    #[inline]
    fn poll_task(&self, id: TaskId) {
        let taken = self.0.state.borrow_mut().take_body(id, self.0.now.get());
        let Some((mut body, in_interrupt)) = taken else { return };
        self.0.current.set((!in_interrupt).then_some(id));
        self.0.polled.set(Some(id));
        self.set_own_waker(&body.waker);
        let polled = body.future.as_mut().poll(&mut Context::from_waker(&body.waker));
        if polled.is_pending() {
            self.suspend(id, body);
        } else {
            self.finish(id, body);
        }
        self.0.current.set(None);
        self.0.polled.set(None);
    }

    /// A task has ended.
    fn finish(&self, id: TaskId, body: Body) {
        // Destructors of what the future still holds run in the task's own context.
        drop(body);
        let gone = {
            let mut s = self.0.state.borrow_mut();
            if let Some(t) = s.tasks.get_mut(id) {
                t.queued = false;
            }
            self.release_core(&mut s, id);
            let gone = s.tasks.remove(id);
            s.foreground -= usize::from(gone.as_ref().is_some_and(|t| !t.daemon));
            gone
        };
        drop(gone);
    }

    /// A poll ended in waiting.
    #[inline]
    fn suspend(&self, id: TaskId, body: Body) {
        let now = self.now();
        let (computes, hook) = {
            let mut s = self.0.state.borrow_mut();
            let t = s.tasks.get_mut(id).expect("a task is removed only when it is not polled");
            t.body = Some(body);
            t.since = now;
            t.blocked = !t.queued;
            let computes = t.core != NO_CORE && t.cpu_until > now;
            (computes, if computes || t.queued { None } else { t.hook.clone() })
        };
        if let Some(hook) = hook {
            hook.suspended();
        }
        if self.0.modelled && !computes {
            self.release_core(&mut self.0.state.borrow_mut(), id);
        }
    }
}

/// Have all foreground tasks waited for very long, with no timer of their own?
#[inline]
fn is_hung(s: &mut State, at: Time) -> bool {
    if at.since(s.foreground_ran) <= HUNG_AFTER {
        return false;
    }
    if s.foreground_sleeps() {
        s.foreground_ran = at;
        return false;
    }
    true
}

/// Ends a run, also when a task panics.
struct Running<'a>(&'a Rt);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.running.set(false);
        self.0.0.current.set(None);
        self.0.0.polled.set(None);
    }
}
