//! A line of waiting futures, first come, first served.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use crate::runtime::Rt;
use crate::tasks::TaskId;

/// Whom to wake: a task of this runtime, without the cost of a waker, or something else's waker.
#[derive(Clone)]
pub(crate) enum Who {
    Task(TaskId),
    Foreign(Waker),
}

impl Who {
    pub fn task(&self) -> Option<TaskId> {
        match self {
            Who::Task(id) => Some(*id),
            Who::Foreign(_) => None,
        }
    }
}

struct Place<M> {
    ticket: u64,
    /// `None` until the future has been polled.
    who: Option<Who>,
    meta: M,
}

/// The line. Tickets rise, so a place is found by binary search; leaving from the middle moves the
/// shorter side.
pub(crate) struct Line<M> {
    next_ticket: u64,
    places: VecDeque<Place<M>>,
}

impl<M: Copy> Line<M> {
    pub const fn new() -> Line<M> {
        Line { next_ticket: 0, places: VecDeque::new() }
    }
    /// A place at the end.
    pub fn enter(&mut self, meta: M) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.places.push_back(Place { ticket, who: None, meta });
        ticket
    }
    fn find(&self, ticket: u64) -> Option<usize> {
        match self.places.front() {
            None => None,
            Some(p) if p.ticket == ticket => Some(0),
            Some(p) if p.ticket > ticket => None,
            Some(_) => self.places.binary_search_by_key(&ticket, |p| p.ticket).ok(),
        }
    }
    /// If the ticket still waits, remembers whom to wake. False: its turn has come.
    pub fn still_waits(&mut self, ticket: u64, who: impl FnOnce() -> Who) -> bool {
        match self.find(ticket) {
            Some(at) => {
                self.places[at].who = Some(who());
                true
            }
            None => false,
        }
    }
    /// Gives up a place. False: its turn had come already.
    pub fn leave(&mut self, ticket: u64) -> bool {
        match self.find(ticket) {
            Some(at) => {
                self.places.remove(at);
                true
            }
            None => false,
        }
    }
    /// What the first one wants.
    pub fn first(&self) -> Option<M> {
        self.places.front().map(|p| p.meta)
    }
    /// Takes the first one out, if its ticket is below `limit`.
    pub fn call(&mut self, limit: u64) -> Option<Option<Who>> {
        if self.places.front()?.ticket >= limit {
            return None;
        }
        self.places.pop_front().map(|p| p.who)
    }
    /// The ticket that the next one to enter will get.
    pub fn next_ticket(&self) -> u64 {
        self.next_ticket
    }
    pub fn len(&self) -> usize {
        self.places.len()
    }
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl Rt {
    /// Whom to wake for a future that is being polled with `cx`.
    #[inline]
    pub(crate) fn who(&self, cx: &Context<'_>) -> Who {
        match self.0.polled.get() {
            Some(id) if self.is_own_waker(cx.waker()) => Who::Task(id),
            _ => Who::Foreign(cx.waker().clone()),
        }
    }
    /// Wakes it. Call without holding a borrow: a foreign waker may run other code.
    pub(crate) fn wake(&self, who: Who) {
        match who {
            Who::Task(id) => self.wake_task(id),
            Who::Foreign(waker) => waker.wake(),
        }
    }
}
