//! Messages from other threads to a task.
//!
//! A job pushed into an [`Inbox`] must be `Send` and so cannot hold a mounted file system. A task
//! that holds one receives requests here instead.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::inbox::Inbox;
use crate::report::Waiting;
use crate::runtime::Rt;

struct Queue<M> {
    messages: VecDeque<M>,
    receiver: Option<Waker>,
    senders: usize,
    closed: bool,
}

struct Shared<M>(Mutex<Queue<M>>);

impl<M> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, Queue<M>> {
        // No code of others runs under this lock, so a poisoned queue is still a whole one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a [`Mailbox`] for other threads. Keeps a run in real time waiting, as an [`Inbox`]
/// does.
pub struct Sender<M> {
    shared: Arc<Shared<M>>,
    inbox: Inbox,
}

impl<M: Send> Sender<M> {
    /// Sends; hands the message back if the mailbox is gone. There is no bound: who sends requests
    /// waits for their replies.
    pub fn send(&self, message: M) -> Result<(), M> {
        let receiver = {
            let mut q = self.shared.lock();
            if q.closed {
                return Err(message);
            }
            q.messages.push_back(message);
            q.receiver.take()
        };
        if let Some(waker) = receiver {
            waker.wake();
        }
        Ok(())
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Sender<M> {
        self.shared.lock().senders += 1;
        Sender { shared: self.shared.clone(), inbox: self.inbox.clone() }
    }
}

impl<M> Drop for Sender<M> {
    fn drop(&mut self) {
        let receiver = {
            let mut q = self.shared.lock();
            q.senders -= 1;
            if q.senders == 0 { q.receiver.take() } else { None }
        };
        if let Some(waker) = receiver {
            waker.wake();
        }
    }
}

/// The end of a mailbox that a task holds.
pub struct Mailbox<M> {
    rt: Rt,
    name: &'static str,
    shared: Arc<Shared<M>>,
}

impl Rt {
    /// A mailbox and its first sender. `name` appears in reports.
    pub fn mailbox<M: Send>(&self, name: &'static str) -> (Sender<M>, Mailbox<M>) {
        let shared = Arc::new(Shared(Mutex::new(Queue {
            messages: VecDeque::new(),
            receiver: None,
            senders: 1,
            closed: false,
        })));
        let sender = Sender { shared: shared.clone(), inbox: self.inbox() };
        (sender, Mailbox { rt: self.clone(), name, shared })
    }
}

impl<M> Mailbox<M> {
    /// Waits: for a message. `None`: all senders are gone, and all they sent was received.
    /// One task at a time may wait.
    pub async fn receive(&self) -> Option<M> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    fn poll_receive(&self, cx: &Context<'_>) -> Poll<Option<M>> {
        let mut q = self.shared.lock();
        if let Some(message) = q.messages.pop_front() {
            return Poll::Ready(Some(message));
        }
        if q.senders == 0 {
            return Poll::Ready(None);
        }
        q.receiver = Some(cx.waker().clone());
        self.rt.note(Waiting::On { kind: "mailbox", name: self.name, holder: None });
        Poll::Pending
    }
}

impl<M> Drop for Mailbox<M> {
    fn drop(&mut self) {
        let left = {
            let mut q = self.shared.lock();
            q.closed = true;
            (std::mem::take(&mut q.messages), q.receiver.take())
        };
        drop(left);
    }
}
