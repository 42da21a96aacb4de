//! What a FLUSH covers of what had completed when it was sent.

use wp_block::FlushSet;
use wp_medium::Slice;

use crate::history::Unit;
use crate::tape::device_of;

/// A FLUSH on the tape.
pub(crate) struct Flushed {
    /// It is of one device.
    device: u64,
    /// Of a ranged one, its set.
    set: Option<FlushSet>,
}

impl Flushed {
    /// Of the request with this number and payload.
    pub fn of(request: u64, payload: &[Slice]) -> Flushed {
        let set = (!payload.is_empty()).then(|| FlushSet::decode(payload));
        Flushed { device: device_of(request), set }
    }

    /// Is a unit covered? Of a ranged flush only if all of it is in the set.
    pub fn covers(&self, unit: &Unit) -> bool {
        device_of(unit.request) == self.device
            && self.set.as_ref().is_none_or(|set| set.covers(unit.at, unit.sectors()))
    }
}
