//! When a request is due that follows from another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use wp_base::{Span, Time};

use crate::requests::Request;

/// The last completion before a request, recorded and here.
#[derive(Default)]
pub(super) struct Think {
    /// Requests sent whose recorded completion is after the last request that was processed: time
    /// of completion and number.
    recorded: BinaryHeap<Reverse<(u64, u64)>>,
    /// The one that completed last before that, as recorded.
    last: Option<(u64, u64)>,
    /// When those completed here that may still be asked for; `None` if they have not.
    here: BTreeMap<u64, Option<Time>>,
}

impl Think {
    /// When a request is due; `None` if what it follows has not completed yet. `otherwise` is when
    /// it is due if it follows nothing.
    pub fn due(&mut self, r: &Request, otherwise: Time) -> Option<Time> {
        while let Some(Reverse(first)) = self.recorded.peek().copied() {
            if first.0 > r.event.at_ns {
                break;
            }
            self.recorded.pop();
            if let Some((_, number)) = self.last.replace(first) {
                self.here.remove(&number);
            }
        }
        let Some((done_ns, number)) = self.last else { return Some(otherwise) };
        let here = (*self.here.get(&number)?)?;
        Some(here + Span(r.event.at_ns - done_ns))
    }

    /// A request was sent.
    pub fn sent(&mut self, r: &Request, number: u64, counts: bool) {
        if counts {
            self.recorded.push(Reverse((r.done_ns.unwrap_or(r.event.at_ns), number)));
            self.here.insert(number, None);
        }
    }

    /// It completed.
    pub fn completed(&mut self, number: u64, at: Time) {
        if let Some(here) = self.here.get_mut(&number) {
            *here = Some(at);
        }
    }
}
