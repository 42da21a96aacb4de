//! A task's result.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::line::Who;
use crate::report::Waiting;
use crate::runtime::Rt;
use crate::tasks::TaskId;

pub(crate) struct JoinState<T> {
    value: Cell<Option<T>>,
    done: Cell<bool>,
    waiter: RefCell<Option<Who>>,
}

impl<T> JoinState<T> {
    pub fn new() -> Rc<JoinState<T>> {
        Rc::new(JoinState {
            value: Cell::new(None),
            done: Cell::new(false),
            waiter: RefCell::new(None),
        })
    }
    pub fn finish(&self, rt: &Rt, value: T) {
        self.value.set(Some(value));
        self.done.set(true);
        let waiter = self.waiter.borrow_mut().take();
        if let Some(who) = waiter {
            rt.wake(who);
        }
    }
}

/// A spawned task's result: await it, or look with [`Join::try_take`]. Dropping it leaves the task
/// alone. After a power cut it never ends.
pub struct Join<T> {
    rt: Rt,
    id: TaskId,
    state: Rc<JoinState<T>>,
}

impl<T> Join<T> {
    pub(crate) fn new(rt: Rt, id: TaskId, state: Rc<JoinState<T>>) -> Join<T> {
        Join { rt, id, state }
    }
    /// The result, once, if the task has ended.
    pub fn try_take(&self) -> Option<T> {
        self.state.value.take()
    }
    /// Has the task ended?
    pub fn is_done(&self) -> bool {
        self.state.done.get()
    }
    /// The task.
    pub fn id(&self) -> TaskId {
        self.id
    }
}

impl<T> Future for Join<T> {
    type Output = T;
    /// Panics if the result has been taken already.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(value) = self.state.value.take() {
            return Poll::Ready(value);
        }
        assert!(!self.state.done.get(), "a task's result was taken twice");
        self.rt.note(Waiting::Join(self.id));
        let who = self.rt.who(cx);
        *self.state.waiter.borrow_mut() = Some(who);
        Poll::Pending
    }
}

impl<T> Drop for Join<T> {
    fn drop(&mut self) {
        *self.state.waiter.borrow_mut() = None;
    }
}
