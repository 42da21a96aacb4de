//! Counted permits, first come, first served.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::line::Line;
use crate::report::Waiting;
use crate::runtime::Rt;

/// A number of permits. Strictly first come, first served: who asks for few does not overtake who
/// asks for many. Clones share the permits.
#[derive(Clone)]
pub struct Semaphore(Rc<Inner>);

struct Inner {
    rt: Rt,
    name: &'static str,
    free: Cell<u64>,
    /// Each place wants that many.
    line: RefCell<Line<u64>>,
}

impl Semaphore {
    /// With `permits` free. `name` appears in reports.
    pub fn new(rt: &Rt, name: &'static str, permits: u64) -> Semaphore {
        Semaphore(Rc::new(Inner {
            rt: rt.clone(),
            name,
            free: Cell::new(permits),
            line: RefCell::new(Line::new()),
        }))
    }

    /// Waits: for all who asked before, and until `n` permits are free.
    pub fn acquire(&self, n: u64) -> Acquire {
        Acquire { sem: self.0.clone(), n, state: Asking::New }
    }

    /// Takes `n` permits if they are free and nobody waits.
    pub fn try_acquire(&self, n: u64) -> Option<Permit> {
        self.0.take_free(n).then(|| Permit { sem: self.0.clone(), n })
    }

    /// `n` more permits.
    pub fn add_permits(&self, n: u64) {
        self.0.give(n);
    }

    /// Free permits.
    pub fn available(&self) -> u64 {
        self.0.free.get()
    }

    /// How many wait.
    pub fn waiters(&self) -> usize {
        self.0.line.borrow().len()
    }
}

impl Inner {
    fn take_free(&self, n: u64) -> bool {
        if n > self.free.get() || !self.line.borrow().is_empty() {
            return false;
        }
        self.free.set(self.free.get() - n);
        true
    }

    fn give(&self, n: u64) {
        self.free.set(self.free.get() + n);
        self.grant();
    }

    /// Serves the line from its head, as far as the permits go.
    fn grant(&self) {
        loop {
            let who = {
                let mut line = self.line.borrow_mut();
                match line.first() {
                    Some(n) if n <= self.free.get() => {
                        self.free.set(self.free.get() - n);
                        line.call(u64::MAX).flatten()
                    }
                    _ => return,
                }
            };
            if let Some(who) = who {
                self.rt.wake(who);
            }
        }
    }
}

enum Asking {
    New,
    InLine(u64),
    Done,
}

/// Future of [`Semaphore::acquire`]. It takes its place in line when first polled.
#[must_use = "acquires only when awaited"]
pub struct Acquire {
    sem: Rc<Inner>,
    n: u64,
    state: Asking,
}

impl Future for Acquire {
    type Output = Permit;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        let sem = &this.sem;
        let ticket = match this.state {
            Asking::New if sem.take_free(this.n) => {
                this.state = Asking::Done;
                return Poll::Ready(Permit { sem: sem.clone(), n: this.n });
            }
            Asking::New => {
                let ticket = sem.line.borrow_mut().enter(this.n);
                this.state = Asking::InLine(ticket);
                ticket
            }
            Asking::InLine(ticket) => ticket,
            Asking::Done => unreachable!("a semaphore future was polled after it was ready"),
        };
        if sem.line.borrow_mut().still_waits(ticket, || sem.rt.who(cx)) {
            sem.rt.note(Waiting::On { kind: "semaphore", name: sem.name, holder: None });
            return Poll::Pending;
        }
        this.state = Asking::Done;
        Poll::Ready(Permit { sem: sem.clone(), n: this.n })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Asking::InLine(ticket) = self.state else {
            return;
        };
        let waited = self.sem.line.borrow_mut().leave(ticket);
        if waited {
            // It may have been the one that held up smaller ones behind it.
            self.sem.grant();
        } else {
            self.sem.give(self.n);
        }
    }
}

/// Permits of a [`Semaphore`], given back when dropped.
#[must_use = "gives the permits back when dropped"]
pub struct Permit {
    sem: Rc<Inner>,
    n: u64,
}

impl Permit {
    /// How many.
    pub fn count(&self) -> u64 {
        self.n
    }
    /// Keeps them taken for ever ([`Semaphore::add_permits`] gives them back).
    pub fn forget(mut self) {
        self.n = 0;
    }
    /// Gives `n` of them back. Panics if it has fewer.
    pub fn release(&mut self, n: u64) {
        assert!(n <= self.n, "release of {n} permits of {}", self.n);
        self.n -= n;
        self.sem.give(n);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.n > 0 {
            self.sem.give(self.n);
        }
    }
}
