//! A lock that is handed on in the order of asking.

use std::cell::{Cell, RefCell, RefMut};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::line::Line;
use crate::report::Waiting;
use crate::runtime::Rt;
use crate::tasks::TaskId;

/// A value that one task at a time may use, across waits. Strictly first come, first served: an
/// unlock hands the lock to the first in line, so that nobody overtakes. Linux: `struct mutex`,
/// without its optimistic spinning.
pub struct Lock<T> {
    rt: Rt,
    name: &'static str,
    held: Cell<bool>,
    holder: Cell<Option<TaskId>>,
    line: RefCell<Line<()>>,
    value: RefCell<T>,
}

impl<T> Lock<T> {
    /// Free. `name` appears in reports.
    pub fn new(rt: &Rt, name: &'static str, value: T) -> Lock<T> {
        Lock {
            rt: rt.clone(),
            name,
            held: Cell::new(false),
            holder: Cell::new(None),
            line: RefCell::new(Line::new()),
            value: RefCell::new(value),
        }
    }

    /// Waits: for all who asked before.
    pub fn lock(&self) -> Locking<'_, T> {
        Locking { lock: self, state: Asking::New }
    }

    /// Takes it if it is free.
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        self.take_free().then(|| self.guard())
    }

    /// Waits like [`Lock::lock`]; the guard can be kept in a structure.
    pub async fn lock_owned(self: Rc<Self>) -> OwnedLockGuard<T> {
        let guard = self.lock().await;
        guard.leave_held();
        OwnedLockGuard { lock: self }
    }

    /// Does somebody hold it?
    pub fn is_locked(&self) -> bool {
        self.held.get()
    }

    fn take_free(&self) -> bool {
        if self.held.replace(true) {
            return false;
        }
        self.holder.set(self.rt.current());
        true
    }

    fn guard(&self) -> LockGuard<'_, T> {
        LockGuard { lock: self, value: Some(self.value.borrow_mut()) }
    }

    /// Hands the lock to the first in line, or frees it.
    fn unlock(&self) {
        let next = self.line.borrow_mut().call(u64::MAX);
        match next {
            // Stays held: it is the next one's already, who may not know yet.
            Some(who) => {
                self.holder.set(who.as_ref().and_then(|w| w.task()));
                if let Some(who) = who {
                    self.rt.wake(who);
                }
            }
            None => {
                self.holder.set(None);
                self.held.set(false);
            }
        }
    }
}

enum Asking {
    New,
    InLine(u64),
    Done,
}

/// Future of [`Lock::lock`]. It takes its place in line when first polled.
#[must_use = "locks only when awaited"]
pub struct Locking<'a, T> {
    lock: &'a Lock<T>,
    state: Asking,
}

impl<'a, T> Future for Locking<'a, T> {
    type Output = LockGuard<'a, T>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LockGuard<'a, T>> {
        let lock = self.lock;
        let ticket = match self.state {
            Asking::New if lock.take_free() => {
                self.state = Asking::Done;
                return Poll::Ready(lock.guard());
            }
            Asking::New => {
                let ticket = lock.line.borrow_mut().enter(());
                self.state = Asking::InLine(ticket);
                ticket
            }
            Asking::InLine(ticket) => ticket,
            Asking::Done => unreachable!("a lock future was polled after it was ready"),
        };
        if lock.line.borrow_mut().still_waits(ticket, || lock.rt.who(cx)) {
            let holder = lock.holder.get();
            lock.rt.note(Waiting::On { kind: "lock", name: lock.name, holder });
            return Poll::Pending;
        }
        self.state = Asking::Done;
        lock.holder.set(lock.rt.current());
        Poll::Ready(lock.guard())
    }
}

impl<T> Drop for Locking<'_, T> {
    fn drop(&mut self) {
        if let Asking::InLine(ticket) = self.state
            && !self.lock.line.borrow_mut().leave(ticket)
        {
            // It had been handed the lock and never came to use it.
            self.lock.unlock();
        }
    }
}

/// Holds a [`Lock`]. Dropping it hands the lock on.
#[must_use = "unlocks when dropped"]
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    value: Option<RefMut<'a, T>>,
}

impl<T> LockGuard<'_, T> {
    /// Drops the guard but not the lock.
    fn leave_held(mut self) {
        self.value = None;
        std::mem::forget(self);
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until the guard is dropped")
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("present until the guard is dropped")
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.lock.unlock();
    }
}

/// Holds a [`Lock`] by reference count. Dropping it hands the lock on.
#[must_use = "unlocks when dropped"]
pub struct OwnedLockGuard<T> {
    lock: Rc<Lock<T>>,
}

impl<T> OwnedLockGuard<T> {
    /// Uses the value. `f` cannot wait.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock.value.borrow_mut())
    }
}

impl<T> Drop for OwnedLockGuard<T> {
    fn drop(&mut self) {
        self.lock.unlock();
    }
}
