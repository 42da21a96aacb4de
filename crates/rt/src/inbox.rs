//! The only door between the runtime's thread and others: wake-ups and work from outside, and the
//! wall clock of real-time mode.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::{Duration, Instant};

use wp_base::Time;

use crate::runtime::Rt;
use crate::tasks::TaskId;

/// What comes in from outside.
pub(crate) enum Message {
    Wake(TaskId),
    Job(Box<dyn FnOnce(&Rt) + Send>),
}

#[derive(Default)]
struct Queue {
    messages: Vec<Message>,
    closed: bool,
}

/// The side of a runtime that other threads may touch.
#[derive(Default)]
pub(crate) struct Remote {
    queue: Mutex<Queue>,
    signal: Condvar,
    pending: AtomicBool,
    handles: AtomicUsize,
}

impl Remote {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code of others runs under this lock, so a poisoned queue is still a whole one.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Hands a message in; hands it back if the runtime is gone.
    fn push(&self, message: Message) -> Result<(), Message> {
        let mut q = self.lock();
        if q.closed {
            return Err(message);
        }
        q.messages.push(message);
        self.pending.store(true, Ordering::Release);
        self.signal.notify_one();
        Ok(())
    }
    /// Is there a message? One load.
    #[inline]
    pub fn pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }
    /// All messages so far, in the order in which they came.
    pub fn take(&self) -> Vec<Message> {
        let mut q = self.lock();
        self.pending.store(false, Ordering::Release);
        std::mem::take(&mut q.messages)
    }
    /// Refuses messages from now on; returns those that were left.
    pub fn close(&self) -> Vec<Message> {
        self.lock().closed = true;
        self.take()
    }
    /// Can another thread still send?
    pub fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }
    /// Sleeps until a message comes, the last handle goes, or `span` is over.
    pub fn wait(&self, span: Option<Duration>) {
        let q = self.lock();
        if !q.messages.is_empty() || (span.is_none() && !self.has_handles()) {
            return;
        }
        match span {
            Some(span) => drop(self.signal.wait_timeout(q, span)),
            None => drop(self.signal.wait(q)),
        }
    }
}

/// A handle through which other threads hand work to the runtime. The only thing here that is
/// `Send`.
///
/// In real-time mode [`Rt::run`] does not report a deadlock while a handle lives.
pub struct Inbox(Arc<Remote>);

impl Inbox {
    pub(crate) fn new(remote: Arc<Remote>) -> Inbox {
        remote.handles.fetch_add(1, Ordering::AcqRel);
        Inbox(remote)
    }
    /// Has `job` run on the runtime's thread, in interrupt context, between two polls; in the order
    /// of the pushes. False if the runtime is gone or was cut: `job` is dropped then.
    pub fn push(&self, job: impl FnOnce(&Rt) + Send + 'static) -> bool {
        self.0.push(Message::Job(Box::new(job))).is_ok()
    }
}

impl Clone for Inbox {
    fn clone(&self) -> Inbox {
        Inbox::new(self.0.clone())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // Under the lock, so that a runtime about to sleep either sees no handle or gets the
        // signal.
        let _q = self.0.lock();
        self.0.handles.fetch_sub(1, Ordering::AcqRel);
        self.0.signal.notify_one();
    }
}

/// A task's waker for code that knows nothing of this runtime. The futures of this crate do not use
/// it.
pub(crate) struct TaskWaker {
    pub id: TaskId,
    pub remote: Arc<Remote>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        // A runtime that is gone has no task to wake.
        let _ = self.remote.push(Message::Wake(self.id));
    }
}

/// The wall clock of real-time mode.
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "real-time mode is where time comes from")]
    pub fn start() -> Clock {
        Clock(Instant::now())
    }
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).expect("an uptime below 584 years"))
    }
}
