//! First in, first out. Merging is the queue's: at the back by the index, at the front only with
//! the request that was merged with last, as in the kernel, where noop has no merge function of its
//! own.
//!
//! Source: behaviour of `block/noop-iosched.c`.

use crate::elevator::interface::{Elevator, ElvCx, Kick};
use crate::pool::{List, Pool, RqId};

/// The elevator `noop`.
#[derive(Default)]
pub struct Noop {
    fifo: List,
}

impl Noop {
    /// An empty one.
    pub fn new() -> Noop {
        Noop::default()
    }
}

impl Elevator for Noop {
    fn neighbours(&self, pool: &Pool, rq: RqId) -> (Option<RqId>, Option<RqId>) {
        List::around(pool, rq)
    }
    fn insert(&mut self, cx: &mut ElvCx<'_>, rq: RqId) -> Kick {
        self.fifo.push(cx.pool, rq);
        Kick::No
    }
    fn absorbed(&mut self, cx: &mut ElvCx<'_>, _kept: RqId, gone: RqId) {
        self.fifo.remove(cx.pool, gone);
    }
    fn next(&mut self, cx: &mut ElvCx<'_>) -> Option<RqId> {
        let rq = self.fifo.first()?;
        self.fifo.remove(cx.pool, rq);
        Some(rq)
    }
    fn queued(&self) -> usize {
        self.fifo.len()
    }
}
