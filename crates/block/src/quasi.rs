//! Quasi-asynchronous I/O: writes that were sent as asynchronous and that a task now waits for.
//!
//! Picture:    a task begins to wait for blocks -> [`BlockQueue::note_wait`] -> asynchronous
//!             requests with these blocks are counted by class; with `boost=1` those still in the
//!             elevator go before other asynchronous ones ([`crate::Elevator::boost`]).
//! Left out:   requests in a plug, and those that the driver has: they cannot be reordered.
//! Source:     Jeong, Lee, Kim, "Boosting Quasi-Asynchronous I/O for Better Responsiveness in
//!             Mobile Devices" (FAST'15), classes from its slides. How a request is found and where
//!             it goes is ours.

use wp_base::Sector;
use wp_base::event::{Flags, Op};

use crate::engine::{Core, Ctx};
use crate::flush_set::FlushSet;
use crate::partition::Partition;
use crate::pool::{Request, RqId, State};
use crate::queue::BlockQueue;

/// Why a task waits for an asynchronous request (the paper's names in brackets).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Quasi {
    /// It wants to change metadata that is being written (`D_meta`).
    Metadata = 0,
    /// It wants to change data that is being written (`D_data`).
    Data = 1,
    /// It wants data to be on the device (`D_sync`).
    Sync = 2,
    /// It waits for discards (`D_discard`).
    Discard = 3,
    /// It cannot start a journal handle, as the commit waits (`I_jhandle`).
    Handle = 4,
    /// Its fsync waits for a commit that waits (`I_jcommit`).
    Commit = 5,
}

impl Quasi {
    /// Number of classes.
    pub const COUNT: usize = 6;
    /// The paper's names, in the order of the classes.
    pub const NAMES: [&str; Quasi::COUNT] =
        ["D_meta", "D_data", "D_sync", "D_discard", "I_jhandle", "I_jcommit"];
}

/// Waits for asynchronous requests, by class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QuasiWaits {
    /// Waits that met such a request.
    pub waits: [u64; Quasi::COUNT],
    /// Requests that went before others because of one.
    pub boosted: [u64; Quasi::COUNT],
}

/// Is it an asynchronous write or discard?
fn is_quasi(r: &Request) -> bool {
    (r.op == Op::Write || r.op == Op::Discard) && !r.is_sync()
}

impl Core {
    /// A task begins to wait for these sectors. Does it wait for an asynchronous request?
    fn note_wait(&mut self, cx: &Ctx, set: &FlushSet, class: Quasi) -> bool {
        let meets = |rq: &RqId| {
            let r = &self.pool[*rq];
            is_quasi(r) && set.meets(r.at, u64::from(r.sectors))
        };
        let waited: Vec<RqId> = self.pool.live().filter(meets).collect();
        let task = cx.rt.current();
        for rq in waited.iter().filter(|_| cx.config.boost) {
            let state = self.pool[*rq].state;
            let in_elevator = state.has(State::SORTED) && !state.has(State::STARTED);
            let is_taken = self.depth.held.contains(rq) || self.dispatch.contains(rq);
            if in_elevator && !is_taken {
                self.elv(cx, |e, elv| e.boost(elv, *rq, task));
                self.quasi.boosted[class as usize] += 1;
            }
        }
        !waited.is_empty()
    }
}

impl BlockQueue {
    /// Does anybody want to know of waits, and is there an asynchronous request to wait for?
    pub fn has_quasi(&self) -> bool {
        let core = self.core.borrow();
        (self.config().boost || self.config().counts_quasi)
            && core.pool.live().any(|rq| is_quasi(&core.pool[rq]))
    }

    /// A task begins to wait for asynchronous writes of these sectors, counted from the start of
    /// the device: one wait, of the class.
    pub fn note_wait(&self, ranges: impl Iterator<Item = (Sector, u64)>, class: Quasi) {
        if !self.has_quasi() {
            return;
        }
        let set = FlushSet::of(ranges);
        let mut core = self.core.borrow_mut();
        if !core.note_wait(&self.cx, &set, class) {
            return;
        }
        core.quasi.waits[class as usize] += 1;
        if self.config().boost {
            core.run(&self.cx, &mut **self.device.borrow_mut());
            self.settle(&mut core);
        }
    }

    /// Waits for asynchronous requests so far.
    pub fn quasi_waits(&self) -> QuasiWaits {
        self.core.borrow().quasi
    }
}

impl Partition {
    /// See [`BlockQueue::note_wait`]; sectors count from the start of the partition.
    pub fn note_wait(&self, ranges: impl Iterator<Item = (Sector, u64)>, class: Quasi) {
        let start = self.start();
        self.queue().note_wait(ranges.map(|(at, n)| (at.advance(start.0), n)), class);
    }
}

/// A boosted request is synchronous from then on.
pub(crate) const BOOSTED: Flags = Flags::SYNC;
