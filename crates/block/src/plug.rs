//! Plugs: each task's own list of requests that have not yet reached the elevator.
//!
//! A task that is about to submit several bios plugs; what it submits then gathers in its list,
//! where bios merge without troubling anyone, and goes to the elevator together: when the outermost
//! guard is dropped, when the task waits (so that it cannot wait for what it holds back itself), or
//! before one request too many.

use std::rc::{Rc, Weak};

use wp_rt::{SuspendHook, TaskId};

use crate::pool::RqId;
use crate::queue::BlockQueue;

/// One task's plug.
pub(crate) struct Plug {
    pub task: TaskId,
    /// Guards: only the outermost one's end flushes.
    pub depth: u32,
    pub list: Vec<RqId>,
    /// The task's suspend hook before ours.
    pub before: Option<Rc<dyn SuspendHook>>,
}

/// The plugs of all tasks. Few have one at a time.
#[derive(Default)]
pub(crate) struct Plugs {
    active: Vec<Plug>,
    /// Lists that were used, for their memory.
    spare: Vec<Vec<RqId>>,
}

impl Plugs {
    /// The task's plug.
    #[inline]
    pub fn of(&mut self, task: Option<TaskId>) -> Option<&mut Plug> {
        if self.active.is_empty() {
            return None;
        }
        let task = task?;
        self.active.iter_mut().find(|p| p.task == task)
    }

    /// Starts a plug for a task that has none.
    pub fn start(&mut self, task: TaskId, before: Option<Rc<dyn SuspendHook>>) {
        let list = self.spare.pop().unwrap_or_default();
        self.active.push(Plug { task, depth: 1, list, before });
    }

    /// Ends a task's plug; what it held is the caller's.
    pub fn end(&mut self, task: TaskId) -> Plug {
        let at =
            self.active.iter().position(|p| p.task == task).expect("a guard's task has a plug");
        self.active.swap_remove(at)
    }

    /// Keeps a list's memory for the next plug.
    pub fn recycle(&mut self, mut list: Vec<RqId>) {
        list.clear();
        self.spare.push(list);
    }

    /// All requests that are held back.
    pub fn held(&self) -> usize {
        self.active.iter().map(|p| p.list.len()).sum()
    }

    /// Forgets every request (a power cut).
    pub fn clear(&mut self) {
        self.active.iter_mut().for_each(|p| p.list.clear());
    }
}

/// Called when a task that has a plug waits.
pub(crate) struct PlugHook {
    pub queue: Weak<BlockQueue>,
}

impl SuspendHook for PlugHook {
    fn suspended(self: Rc<Self>) {
        if let Some(queue) = self.queue.upgrade() {
            queue.unplug_on_wait();
        }
    }
}

/// Holds a task's bios back until it is dropped. See [`BlockQueue::plug`].
///
/// Invariant: dropping it elsewhere than in its own task's poll does no I/O: the task is being
/// destroyed, and a task that waits has nothing in its plug.
#[must_use = "the plug is flushed when the guard is dropped"]
pub struct PlugGuard {
    pub(crate) queue: Rc<BlockQueue>,
    /// `None`: made in interrupt context, where nothing is held back.
    pub(crate) task: Option<TaskId>,
}

impl Drop for PlugGuard {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            self.queue.unplug(task);
        }
    }
}
