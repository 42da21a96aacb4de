//! The slab of tasks.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

use wp_base::Time;
use wp_base::live::{Kind, Tally};

use crate::report::Waiting;
use crate::runtime::SuspendHook;

/// Names one task of one runtime; never reused within 2³² spawns into the same slot.
// One word (generation above, slot below), so that the ready queue moves it in one piece.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({}.{})", self.slot(), self.generation())
    }
}

impl TaskId {
    /// Names no task, ever.
    pub(crate) const NOBODY: TaskId = TaskId(u64::MAX);

    #[inline]
    fn new(slot: u32, generation: u32) -> TaskId {
        TaskId(u64::from(generation) << 32 | u64::from(slot))
    }
    #[inline]
    pub(crate) fn slot(self) -> usize {
        (self.0 & 0xFFFF_FFFF) as usize
    }
    #[inline]
    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// `core` of a task that is on none.
pub(crate) const NO_CORE: u32 = u32::MAX;

/// What is polled. Out of its slot while it runs.
pub(crate) struct Body {
    pub future: Pin<Box<dyn Future<Output = ()>>>,
    pub waker: Waker,
}

/// One task.
pub(crate) struct Task {
    /// `None` while it is being polled.
    pub body: Option<Body>,
    pub name: Rc<str>,
    pub daemon: bool,
    /// Does it run in interrupt context: at once, on no core, as nobody?
    pub interrupt: bool,
    /// Woken, and not yet polled since.
    pub queued: bool,
    /// Did its last poll end in waiting (or was there none)? Then the next one is a context switch.
    pub blocked: bool,
    /// Modelled core that it holds, or [`NO_CORE`].
    pub core: u32,
    /// Core it held last: preferred, as Linux prefers the previous CPU.
    pub last_core: u32,
    /// It computes until then and cannot be polled before.
    pub cpu_until: Time,
    /// When it got its core.
    pub dispatched: Time,
    pub waiting: Waiting,
    /// When its last poll ended.
    pub since: Time,
    pub hook: Option<Rc<dyn SuspendHook>>,
    /// Spawn number: the fixed order of reports and of [`crate::Rt::cut`].
    pub spawned: u64,
    pub _tally: Tally,
}

impl Task {
    pub fn new(name: Rc<str>, daemon: bool, now: Time, spawned: u64) -> Task {
        Task {
            body: None,
            name,
            daemon,
            interrupt: false,
            queued: false,
            blocked: true,
            core: NO_CORE,
            last_core: 0,
            cpu_until: Time::ZERO,
            dispatched: Time::ZERO,
            waiting: Waiting::Nothing,
            since: now,
            hook: None,
            spawned,
            _tally: Tally::new(Kind::Task),
        }
    }
}

struct Slot {
    generation: u32,
    task: Option<Task>,
}

/// Slots with generations: a stale [`TaskId`] finds nothing.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Tasks {
    pub fn insert(&mut self, task: Task) -> TaskId {
        if let Some(slot) = self.free.pop() {
            let s = &mut self.slots[slot as usize];
            s.task = Some(task);
            return TaskId::new(slot, s.generation);
        }
        let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 tasks at once");
        self.slots.push(Slot { generation: 0, task: Some(task) });
        TaskId::new(slot, 0)
    }

    #[inline]
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        let s = self.slots.get(id.slot())?;
        if s.generation == id.generation() { s.task.as_ref() } else { None }
    }

    #[inline]
    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        let s = self.slots.get_mut(id.slot())?;
        if s.generation == id.generation() { s.task.as_mut() } else { None }
    }

    pub fn remove(&mut self, id: TaskId) -> Option<Task> {
        let s = self.slots.get_mut(id.slot())?;
        if s.generation != id.generation() {
            return None;
        }
        let task = s.task.take()?;
        s.generation = s.generation.wrapping_add(1);
        self.free.push(id.slot() as u32);
        Some(task)
    }

    /// All tasks in the order in which they were spawned.
    pub fn in_spawn_order(&self) -> Vec<(TaskId, &Task)> {
        let mut all: Vec<(TaskId, &Task)> = self
            .slots
            .iter()
            .zip(0u32..)
            .filter_map(|(s, slot)| s.task.as_ref().map(|t| (TaskId::new(slot, s.generation), t)))
            .collect();
        all.sort_by_key(|(_, t)| t.spawned);
        all
    }
}
