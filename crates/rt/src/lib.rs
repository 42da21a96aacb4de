//! The executor: one thread, one clock, one order of events.
//!
//! Picture:    `Rt` = tasks (slab) + ready queue (FIFO) + timers (heap by time, then sequence)
//!             + modelled cores. One step = a `soon` callback | a poll of the first ready task
//!             | the next timer.
//! Invariants: 1. Time moves only when no task is ready (or none of them can get a modelled core).
//!             2. Same seed and same calls: same order of polls, on every machine, in every build.
//!             3. No borrow of the runtime is held while a task, sink, hook or destructor runs.
//!             4. A future of this crate that is dropped leaves no trace and hands on a wake-up
//!                that it had consumed.
//! Left out:   priorities, preemption inside a burst of CPU time, affinity, cost of interrupts.
//!
//! Tasks hold clones of [`Rt`], so a runtime with tasks left keeps itself alive: end every world
//! with [`Rt::cut`].

mod cpu;
mod heap;
mod inbox;
mod interrupt;
mod join;
mod line;
mod lock;
mod mailbox;
mod maybe_ready;
mod report;
mod run;
mod runtime;
mod select;
mod semaphore;
mod sleep;
mod state;
mod tasks;
mod ticks;
mod timers;
mod wait;

pub use cpu::{CostProfile, Cpu, CpuModel, CpuOp, TIME_SLICE};
pub use inbox::Inbox;
pub use interrupt::LeaveInterrupt;
pub use join::Join;
pub use lock::{Lock, LockGuard, Locking, OwnedLockGuard};
pub use mailbox::{Mailbox, Sender};
pub use maybe_ready::MaybeReady;
pub use report::{Outcome, RtStats, TaskReport};
pub use run::{HUNG_AFTER, POLLS_WITHOUT_TIME_MAX};
pub use runtime::{Rt, SuspendHook, TimeMode, TimerSink};
pub use select::{Either, join_all, race, timeout};
pub use semaphore::{Acquire, Permit, Semaphore};
pub use sleep::{Sleep, Yield};
pub use tasks::TaskId;
pub use ticks::Ticks;
pub use wait::{Completion, Wait, WaitQueue, wait_timeout};
