//! How a run ended, and what the tasks that are left wait for.

use std::fmt;
use std::rc::Rc;

use wp_base::{Span, Time};

use crate::cpu::CpuOp;
use crate::tasks::TaskId;

/// Why [`crate::Rt::run`] returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No foreground task is left.
    Idle,
    /// [`crate::Rt::stop`] was called.
    Stopped,
    /// [`crate::Rt::cut`] was called: nothing is left.
    PowerCut,
    /// Foreground tasks remain and nothing can ever wake one. All tasks, in spawn order.
    Deadlock(Vec<TaskReport>),
    /// Time does not move any more although tasks run. All tasks, in spawn order.
    Livelock(Vec<TaskReport>),
    /// The time given to [`crate::Rt::run_until`] has come.
    Reached,
}

/// A task, and what it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskReport {
    /// Which.
    pub id: TaskId,
    /// Its name.
    pub name: Rc<str>,
    /// Spawned by [`crate::Rt::spawn_daemon`]?
    pub daemon: bool,
    /// What its last poll came to wait for, such as ``lock `inode`, held by `writer` ``.
    pub waits_for: String,
    /// When its last poll ended (its spawn, if it never ran).
    pub since: Time,
}

/// What the executor has done since it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RtStats {
    /// Polls of tasks.
    pub polls: u64,
    /// Timers fired, `soon` callbacks included, cancelled ones not.
    pub timers_fired: u64,
    /// Tasks spawned.
    pub tasks_spawned: u64,
    /// Times that a task began to run after another, or after it had waited (charged or not).
    pub context_switches: u64,
    /// Virtual time that each core was held by computing tasks. All zero while CPU is not modelled.
    pub core_busy: Vec<Span>,
}

/// What a task waits for, unformatted.
#[derive(Clone, Copy)]
pub(crate) enum Waiting {
    /// It has never been polled, or its last poll named nothing.
    Nothing,
    Sleep(Time),
    Yield,
    Cpu(CpuOp),
    Join(TaskId),
    /// A named primitive, and who has it.
    On {
        kind: &'static str,
        name: &'static str,
        holder: Option<TaskId>,
    },
}

impl Waiting {
    /// Name of the primitive; empty if there is none.
    pub fn name(&self) -> &'static str {
        match *self {
            Waiting::On { name, .. } => name,
            _ => "",
        }
    }

    /// As text; `name_of` finds a task's name.
    pub fn text(&self, name_of: impl Fn(TaskId) -> Option<Rc<str>>) -> String {
        match *self {
            Waiting::Nothing => "a waker unknown to the runtime".to_string(),
            Waiting::Sleep(at) => format!("time {at}"),
            Waiting::Yield => "its turn".to_string(),
            Waiting::Cpu(op) => format!("cpu time ({})", op.name()),
            Waiting::Join(id) => match name_of(id) {
                Some(name) => format!("end of task `{name}`"),
                None => "end of a task that is gone".to_string(),
            },
            Waiting::On { kind, name, holder: None } => format!("{kind} `{name}`"),
            Waiting::On { kind, name, holder: Some(id) } => match name_of(id) {
                Some(holder) => format!("{kind} `{name}`, held by `{holder}`"),
                None => format!("{kind} `{name}`, held by a task that is gone"),
            },
        }
    }
}

impl fmt::Display for TaskReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.daemon { "daemon" } else { "task" };
        write!(f, "{kind} `{}` waits since {} for {}", self.name, self.since, self.waits_for)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, tasks) = match self {
            Outcome::Idle => return f.write_str("idle"),
            Outcome::Stopped => return f.write_str("stopped"),
            Outcome::PowerCut => return f.write_str("power cut"),
            Outcome::Reached => return f.write_str("time reached"),
            Outcome::Deadlock(tasks) => ("deadlock", tasks),
            Outcome::Livelock(tasks) => ("livelock", tasks),
        };
        write!(f, "{what}:")?;
        for t in tasks {
            write!(f, "\n  {t}")?;
        }
        Ok(())
    }
}
