//! Wait queues and completions.

use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use wp_base::Span;

use crate::line::Line;
use crate::report::Waiting;
use crate::runtime::Rt;

/// Tasks that wait to be woken, first come, first served. Linux: `wait_queue_head_t`.
///
/// Costs five words and no allocation until somebody waits.
pub struct WaitQueue {
    rt: Rt,
    name: &'static str,
    line: RefCell<Option<Box<Waiters>>>,
}

struct Waiters {
    line: Line<()>,
    /// Tickets below this were woken together: nobody is owed what one of them does not take.
    all_below: u64,
}

impl WaitQueue {
    /// `name` appears in reports of who waits for what.
    pub fn new(rt: &Rt, name: &'static str) -> WaitQueue {
        WaitQueue { rt: rt.clone(), name, line: RefCell::new(None) }
    }

    /// Waits for the next wake-up after this call (not: after its first poll), so that the
    /// condition may be checked in between. Linux: `prepare_to_wait`.
    pub fn wait(&self) -> Wait<'_> {
        self.wait_as("wait queue")
    }

    fn wait_as(&self, kind: &'static str) -> Wait<'_> {
        let mut line = self.line.borrow_mut();
        let waiters =
            line.get_or_insert_with(|| Box::new(Waiters { line: Line::new(), all_below: 0 }));
        Wait { queue: self, kind, ticket: Some(waiters.line.enter(())) }
    }

    /// Wakes the one that has waited longest. False if nobody waited.
    pub fn wake_one(&self) -> bool {
        let who = match self.line.borrow_mut().as_mut() {
            Some(w) => w.line.call(u64::MAX),
            None => None,
        };
        let Some(who) = who else { return false };
        if let Some(who) = who {
            self.rt.wake(who);
        }
        true
    }

    /// Wakes all that wait now, in the order in which they came.
    pub fn wake_all(&self) {
        let limit = match self.line.borrow_mut().as_mut() {
            Some(w) if !w.line.is_empty() => {
                w.all_below = w.line.next_ticket();
                w.all_below
            }
            _ => return,
        };
        loop {
            let who = match self.line.borrow_mut().as_mut() {
                Some(w) => w.line.call(limit),
                None => None,
            };
            match who {
                Some(Some(who)) => self.rt.wake(who),
                Some(None) => {}
                None => return,
            }
        }
    }

    /// Waits: until `cond` holds; looks at once, and after each wake-up. Linux: `wait_event`.
    pub async fn wait_until(&self, cond: impl FnMut() -> bool) {
        self.wait_until_as("wait queue", cond).await;
    }

    async fn wait_until_as(&self, kind: &'static str, mut cond: impl FnMut() -> bool) {
        while !cond() {
            self.wait_as(kind).await;
        }
    }

    /// How many wait.
    pub fn waiters(&self) -> usize {
        self.line.borrow().as_ref().map_or(0, |w| w.line.len())
    }
}

/// Future of [`WaitQueue::wait`].
#[must_use = "waits only when awaited"]
pub struct Wait<'a> {
    queue: &'a WaitQueue,
    kind: &'static str,
    /// `None` once the wake-up has been taken.
    ticket: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let queue = self.queue;
        let Some(ticket) = self.ticket else {
            return Poll::Ready(());
        };
        let waits = match queue.line.borrow_mut().as_mut() {
            Some(w) => w.line.still_waits(ticket, || queue.rt.who(cx)),
            None => false,
        };
        if waits {
            queue.rt.note(Waiting::On { kind: self.kind, name: queue.name, holder: None });
            return Poll::Pending;
        }
        self.ticket = None;
        Poll::Ready(())
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let owed = match self.queue.line.borrow_mut().as_mut() {
            Some(w) => !w.line.leave(ticket) && ticket >= w.all_below,
            None => false,
        };
        if owed {
            self.queue.wake_one();
        }
    }
}

/// Waits: for a wake-up, but at most `span`. True: woken. A wake-up at the very end of the span
/// counts.
pub async fn wait_timeout(queue: &WaitQueue, span: Span) -> bool {
    let mut woken = pin!(queue.wait());
    let mut over = pin!(queue.rt.sleep(span));
    std::future::poll_fn(|cx| {
        // The sleep first, so that a report names the queue.
        let over = over.as_mut().poll(cx).is_ready();
        match woken.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if over => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Something that happens once (until it is reset). Linux: `struct completion` with `complete_all`.
pub struct Completion {
    queue: WaitQueue,
    done: Cell<bool>,
}

impl Completion {
    /// Not done. `name` appears in reports.
    pub fn new(rt: &Rt, name: &'static str) -> Completion {
        Completion { queue: WaitQueue::new(rt, name), done: Cell::new(false) }
    }
    /// It has happened: wakes all that wait. Again: nothing more.
    pub fn done(&self) {
        if !self.done.replace(true) {
            self.queue.wake_all();
        }
    }
    /// Has it happened?
    pub fn is_done(&self) -> bool {
        self.done.get()
    }
    /// Waits: until it has happened. A waiter that was woken but had no turn before a reset waits
    /// on.
    pub async fn wait(&self) {
        self.queue.wait_until_as("completion", || self.done.get()).await;
    }
    /// It may happen again.
    pub fn reset(&self) {
        self.done.set(false);
    }
}
