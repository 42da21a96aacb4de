//! Queue-depth adaptation: asynchronous requests get a small part of the device's queue while
//! somebody syncs, so that what an fsync sends does not stand behind a full queue of writeback.
//!
//! Picture:    elevator -> over the limit? held : dispatch queue. Held requests go first as soon as
//!             there is room for them.
//! Predictor:  a task that synced will sync again: the limit holds for [`SyncDepth::window`] after
//!             each synchronous write or flush; without a window always, which bounds what any
//!             predictor can gain.
//! Invariants: 1. at least one asynchronous request may be in the device, so that a completion
//!                comes that asks for the held ones;
//!             2. synchronous requests are never held.
//! Source:     Park, Kim, Shin, JSTS 15(5), 2015, of which the abstract alone was read: it predicts
//!             an fsync and lowers the depth before. The predictor, both depths, and that only
//!             asynchronous requests are limited are ours.

use std::collections::VecDeque;
use std::fmt;

use wp_base::event::Op;
use wp_base::{Span, Time};

use crate::engine::{Core, Ctx};
use crate::pool::RqId;

/// Settings of the adaptation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncDepth {
    /// Asynchronous requests in the device while it holds.
    pub depth: u32,
    /// How long it holds after a synchronous write or flush; `None`: always.
    pub window: Option<Span>,
}

impl SyncDepth {
    /// Default window, milliseconds.
    pub(crate) const WINDOW_MS: u64 = 100;
}

impl fmt::Display for SyncDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.window.map_or(0, |w| w.0 / 1_000_000);
        write!(f, "fsync_depth={},fsync_window_ms={ms}", self.depth)
    }
}

/// What the adaptation remembers.
#[derive(Default)]
pub(crate) struct DepthState {
    /// Asynchronous commands in the device.
    pub in_device: u32,
    /// Taken from the elevator, and over the limit.
    pub held: VecDeque<RqId>,
    /// When the last synchronous write or flush came.
    last_sync: Option<Time>,
}

impl Core {
    /// A request was made: if it is a sync's, the limit holds from now on.
    pub fn note_sync(&mut self, cx: &Ctx, rq: RqId) {
        let r = &self.pool[rq];
        if r.op != Op::Read && r.is_sync() {
            self.depth.last_sync = Some(cx.rt.now());
        }
    }

    /// Must an asynchronous request wait?
    fn is_over_limit(&self, cx: &Ctx) -> bool {
        let Some(SyncDepth { depth, window }) = cx.config.sync_depth else { return false };
        let is_near = |window| self.depth.last_sync.is_some_and(|at| cx.rt.now() < at + window);
        window.is_none_or(is_near) && self.depth.in_device >= depth
    }

    /// Has this request to wait for others to complete?
    pub fn must_hold(&self, cx: &Ctx, rq: RqId) -> bool {
        !self.pool[rq].is_sync() && self.is_over_limit(cx)
    }

    /// A held request for which there is room now.
    pub fn take_held(&mut self, cx: &Ctx) -> Option<RqId> {
        match self.depth.held.is_empty() || self.is_over_limit(cx) {
            true => None,
            false => self.depth.held.pop_front(),
        }
    }
}
