//! A device's share of the background limit, which follows what was written lately.
//!
//! Picture:    what devices have written counts half after each period of three seconds; each has
//!             the part of the limit that it has of all that is counted. One whose count has come
//!             down to nothing, before the others' has, has no part: whatever is dirty is over it.
//! Source:     lib/flex_proportions.c (`fprop_new_period`, `fprop_reflect_period_percpu`),
//!             mm/page-writeback.c (`writeout_period`, `__wb_calc_thresh`).

use std::cell::Cell;

use wp_base::Span;
use wp_rt::Ticks;

/// `VM_COMPLETIONS_PERIOD_LEN`.
const PERIOD: Span = Span::secs(3);

/// What one device has written lately, beside others.
pub(crate) struct Share {
    ticks: Ticks,
    own: Cell<u64>,
    /// Of all devices.
    total: Cell<u64>,
    /// Tick at which the period ends, and that at which the timer says so; `None`: there is too
    /// little left for periods to matter.
    end: Cell<Option<(u64, u64)>>,
}

impl Share {
    /// At the start this device has written no blocks and all others `others` blocks; periods have
    /// followed each other since power-on.
    pub fn new(ticks: Ticks, now: u64, others: u64) -> Share {
        let (own, total) = (Cell::new(0), Cell::new(others));
        let share = Share { ticks, own, total, end: Cell::new(None) };
        let period = ticks.of(PERIOD);
        share.start(now / period * period);
        share
    }

    /// A period begins at tick `at`.
    fn start(&self, at: u64) {
        let end = at + self.ticks.of(PERIOD);
        self.end.set(Some((end, self.ticks.fires(at, end))));
    }

    fn age(&self, now: u64) {
        while let Some((end, fires)) = self.end.get()
            && fires <= now
        {
            if self.total.get() <= 1 {
                self.end.set(None);
                return;
            }
            self.own.set(self.own.get() / 2);
            self.total.set(self.total.get() / 2);
            self.start(end);
        }
    }

    /// Counts `blocks` blocks that the device has written by tick `now`. `wb_domain_writeout_add`.
    pub fn add(&self, now: u64, blocks: u64) {
        self.age(now);
        self.own.set(self.own.get() + blocks);
        self.total.set(self.total.get() + blocks);
        if self.end.get().is_none() {
            self.start(now);
        }
    }

    /// The device's part of `limit` at tick `now`.
    pub fn of(&self, limit: u64, now: u64) -> u64 {
        self.age(now);
        (u128::from(limit) * u128::from(self.own.get()) / u128::from(self.total.get().max(1)))
            as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKS: Ticks = Ticks { hz: 100, wheel: true };

    #[test]
    fn what_was_written_counts_half_after_each_period() {
        let share = Share::new(TICKS, 2, 1246);
        assert_eq!(share.of(1000, 2), 0);
        share.add(4, 7);
        // Periods end in the timer wheel's slots of eight ticks: at 304, 608 and 904.
        for (now, own, total) in [(303, 7, 1253), (304, 3, 626), (607, 3, 626), (608, 1, 313)] {
            assert_eq!(share.of(100_000, now), 100_000 * own / total, "tick {now}");
        }
        assert_eq!(share.of(100_000, 904), 0);
    }

    #[test]
    fn a_device_alone_keeps_its_share() {
        let share = Share::new(TICKS, 2, 1);
        assert_eq!(share.of(1000, 304), 0);
        share.add(400, 14);
        assert_eq!(share.of(1000, 1_000_000), 1000);
        share.add(1_000_000, 7);
        assert_eq!(share.of(1000, 1_000_400), 1000);
    }
}
