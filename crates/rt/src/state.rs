//! What the executor keeps, and the changes to it that run no foreign code.

use std::collections::VecDeque;
use std::rc::Rc;

use wp_base::{Rng, Span, Time};

use crate::cpu::Core;
use crate::report::{TaskReport, Waiting};
use crate::runtime::TimerSink;
use crate::tasks::{Body, NO_CORE, TaskId, Tasks};
use crate::timers::{Fire, Timers};

/// Virtual time in one poll, at most.
const POLL_MAX: Span = Span::secs(1);

pub(crate) struct State {
    pub tasks: Tasks,
    /// Woken tasks that hold no core, in the order of their wake-ups.
    pub ready: VecDeque<TaskId>,
    /// Woken tasks in interrupt context.
    pub interrupts: VecDeque<TaskId>,
    pub timers: Timers,
    pub soon: VecDeque<(Rc<dyn TimerSink>, u64)>,
    /// Empty while CPU is not modelled.
    pub cores: Vec<Core>,
    /// Permutes the ready order.
    pub chaos: Option<Rng>,
    /// Tasks that are no daemons.
    pub foreground: usize,
    /// When a foreground task was last polled.
    pub foreground_ran: Time,
    /// When the present poll began.
    pub poll_began: Time,
    /// Polls and callbacks since time last moved.
    pub steps_here: u64,
    pub last_polled: Option<TaskId>,
    pub polls: u64,
    pub fired: u64,
    pub spawned: u64,
    pub switches: u64,
}

impl State {
    pub fn new(cores: u32) -> State {
        State {
            tasks: Tasks::default(),
            ready: VecDeque::new(),
            interrupts: VecDeque::new(),
            timers: Timers::default(),
            soon: VecDeque::new(),
            cores: vec![Core::default(); cores as usize],
            chaos: None,
            foreground: 0,
            foreground_ran: Time::ZERO,
            poll_began: Time::ZERO,
            steps_here: 0,
            last_polled: None,
            polls: 0,
            fired: 0,
            spawned: 0,
            switches: 0,
        }
    }

    /// Marks a task as woken. False: it was already, or has ended.
    #[inline]
    pub fn wake(&mut self, id: TaskId) -> bool {
        let Some(t) = self.tasks.get_mut(id).filter(|t| !t.queued) else { return false };
        t.queued = true;
        // A task that holds a core is polled when its burst, or its present poll, has ended.
        if t.interrupt {
            self.interrupts.push_back(id);
        } else if t.core == NO_CORE {
            self.ready.push_back(id);
        }
        true
    }

    /// The next ready task: the first, or a random one under chaos.
    #[inline]
    pub fn pop_ready(&mut self) -> Option<TaskId> {
        match &mut self.chaos {
            None => self.ready.pop_front(),
            Some(_) if self.ready.is_empty() => None,
            Some(rng) => {
                let at = rng.below(self.ready.len() as u64) as usize;
                self.ready.remove(at)
            }
        }
    }

    /// The core for a task: the one it held last, if free; else the first free one.
    pub fn free_core(&self, preferred: u32) -> Option<u32> {
        if self.cores.get(preferred as usize).is_some_and(|c| c.task.is_none()) {
            return Some(preferred);
        }
        (0u32..).zip(&self.cores).find(|(_, c)| c.task.is_none()).map(|(i, _)| i)
    }

    /// Takes the core from a task; puts it in the run queue if it was woken meanwhile.
    pub fn release_core(&mut self, id: TaskId) {
        if let Some(t) = self.tasks.get_mut(id)
            && t.core != NO_CORE
        {
            self.cores[t.core as usize].task = None;
            t.core = NO_CORE;
            if t.queued {
                self.ready.push_back(id);
            }
        }
    }

    /// Makes the task compute for `cost` after what it already has to, and arms the timer of that;
    /// returns when it ends.
    pub fn burst(&mut self, id: TaskId, now: Time, cost: Span) -> Time {
        let end = self.compute(id, now, cost);
        self.timers.push(end, Fire::Cpu(id));
        end
    }

    /// As [`State::burst`], without a timer.
    #[inline]
    pub fn compute(&mut self, id: TaskId, now: Time, cost: Span) -> Time {
        let t = self.tasks.get_mut(id).expect("only a live task computes");
        let end = now.max(t.cpu_until) + cost;
        t.cpu_until = end;
        if let Some(core) = self.cores.get_mut(t.core as usize) {
            core.busy += cost;
        }
        end
    }

    /// Will the task, which is being polled and computes until `end`, be polled next, and nothing
    /// happen before? A poll that has gone on for long is ended all the same: what looks after the
    /// run looks between polls.
    #[inline]
    pub fn is_alone_until(&mut self, id: TaskId, end: Time) -> bool {
        let Some(t) = self.tasks.get(id) else { return false };
        // Woken while it is polled: another of its futures has to be polled.
        !t.queued
            && t.core != NO_CORE
            && self.ready.is_empty()
            && self.interrupts.is_empty()
            && self.soon.is_empty()
            && end.since(self.poll_began) < POLL_MAX
            && self.timers.next_at().is_none_or(|at| at > end)
    }

    /// The task has computed until `end` with nothing between: as if its poll had ended and the
    /// next had begun.
    #[inline]
    pub fn computed(&mut self, id: TaskId, end: Time) {
        self.steps_here = 0;
        let Some(t) = self.tasks.get(id) else { return };
        if !t.daemon {
            self.foreground_ran = end;
        }
    }

    /// An interrupt takes core 0 for `cost`, after those before it; returns when it ends. The task
    /// that computes there ends that much later.
    pub fn interrupt(&mut self, now: Time, cost: Span) -> Time {
        let core = self.cores.first_mut().expect("called only where CPU is modelled");
        let end = now.max(core.interrupted_until) + cost;
        core.interrupted_until = end;
        core.busy += cost;
        if let Some(id) = core.task
            && let Some(t) = self.tasks.get_mut(id)
            && t.cpu_until > now
        {
            t.cpu_until += cost;
            let until = t.cpu_until;
            self.timers.push(until, Fire::Cpu(id));
        }
        end
    }

    /// Takes a task's body out for a poll, and says whether that is in interrupt context. `None`:
    /// the task is gone.
    #[inline]
    pub fn take_body(&mut self, id: TaskId, now: Time) -> Option<(Body, bool)> {
        let t = self.tasks.get_mut(id)?;
        t.queued = false;
        t.waiting = Waiting::Nothing;
        self.poll_began = now;
        if !t.daemon {
            self.foreground_ran = now;
        }
        self.polls += 1;
        // With modelled cores the dispatch counts it.
        if t.core == NO_CORE && !t.interrupt && (t.blocked || self.last_polled != Some(id)) {
            self.switches += 1;
            self.last_polled = Some(id);
        }
        Some((t.body.take()?, t.interrupt))
    }

    /// Can time alone wake a foreground task?
    pub fn foreground_sleeps(&self) -> bool {
        self.timers.effects().any(|fire| match fire {
            Fire::Task(id) | Fire::Cpu(id) => self.tasks.get(*id).is_some_and(|t| !t.daemon),
            // Whose waker it is cannot be known: give it the benefit of the doubt.
            Fire::Foreign(_) => true,
            Fire::Sink(..) => false,
        })
    }

    /// All tasks and what they wait for, in spawn order.
    pub fn report(&self) -> Vec<TaskReport> {
        let name_of = |id| self.tasks.get(id).map(|t| t.name.clone());
        self.tasks
            .in_spawn_order()
            .into_iter()
            .map(|(id, t)| TaskReport {
                id,
                name: t.name.clone(),
                daemon: t.daemon,
                waits_for: if t.queued && t.core == NO_CORE {
                    "its turn".to_string()
                } else {
                    t.waiting.text(name_of)
                },
                since: t.since,
            })
            .collect()
    }
}
