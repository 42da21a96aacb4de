//! Writes that the drive keeps whole (`atomic_bytes`): all of one lies in one program unit.
//!
//! A unit is programmed whole or not at all. So the open unit is padded when such a write would
//! go beyond its end, which costs flash; how real drives do it is not public.

use wp_base::{Sector, Time};
use wp_block::Effects;

use crate::ssd::Ssd;
use crate::ssd::ftl::Stream;

impl Ssd {
    /// Programs the open unit of `stream` as it is, if a write that is kept whole goes beyond it.
    pub(super) fn make_room_for_whole(
        &mut self,
        now: Time,
        stream: Stream,
        (at, sectors): (Sector, u32),
        slots: u32,
        fx: &mut Effects,
    ) {
        let room = self.buffer.open_room(stream, self.config.geometry.unit_slots);
        if slots > room && self.config.limits.keeps_whole(at, u64::from(sectors)) {
            self.pad_and_close(now, stream, fx);
        }
    }
}
