//! Whom the end of a bio concerns.

use crate::bio::{EndIo, OnDispatch};
use crate::waiters::NO_SLOT;

/// Whom a bio's end concerns.
pub(crate) enum End {
    Nobody,
    Call(EndIo),
    /// A task in `submit_wait`, by slot.
    Waiter(u32),
    /// A part of a split bio: (slot of the whole, number of the part).
    Part(u32, u32),
    /// Somebody wants to hear of the dispatch before.
    Telling(Box<Telling>),
}

/// An end with somebody to be told before: when the bio is dispatched. (It holds no [`End`]: a
/// list of ends would have to be dropped recursively, each time that a request completes.)
pub(crate) struct Telling {
    /// Until it has been told.
    pub dispatched: Option<OnDispatch>,
    call: Option<EndIo>,
    waiter: u32,
}

impl End {
    /// This end, of a bio that has not been split, with `dispatched` to be told before.
    #[inline]
    pub fn telling(self, dispatched: Option<OnDispatch>) -> End {
        if dispatched.is_none() {
            return self;
        }
        let (call, waiter) = match self {
            End::Call(call) => (Some(call), NO_SLOT),
            End::Waiter(slot) => (None, slot),
            _ => (None, NO_SLOT),
        };
        End::Telling(Box::new(Telling { dispatched, call, waiter }))
    }

    /// Whom to tell of the dispatch, and the end proper.
    pub fn told_apart(self) -> (Option<OnDispatch>, End) {
        match self {
            End::Telling(t) => (t.dispatched, End::proper(t.call, t.waiter)),
            end => (None, end),
        }
    }

    fn proper(call: Option<EndIo>, waiter: u32) -> End {
        match call {
            Some(call) => End::Call(call),
            None if waiter != NO_SLOT => End::Waiter(waiter),
            None => End::Nobody,
        }
    }
}
