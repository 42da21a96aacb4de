//! Kernel timers: what a number of ticks means, and when a timer that was armed for one fires.
//!
//! Picture:    the kernel counts ticks (`jiffies`) from five minutes before the wrap of 32 bits.
//!             Until 4.7 a timer of more than 255 ticks might be late by a 256th part, and was put
//!             on the roundest tick there (`apply_slack`); others fired at their tick. Since 4.8
//!             timers are kept in a wheel of levels, the first with slots of one tick, each next
//!             one with slots eight times as long; a timer fires at the end of its slot. A timer of
//!             5 s at 100 ticks a second fires up to 80 ms late, one of 5.05 s up to 640 ms.
//! Source:     `kernel/time/timer.c` (`calc_wheel_index`, `round_jiffies_common`; `apply_slack` of
//!             2.6.35 to 4.7).

use wp_base::{Span, Time};

/// Slots of a level.
const LEVEL_SLOTS: u64 = 64;
/// Bits by which slots grow from level to level.
const LEVEL_SHIFT: u32 = 3;
/// Levels of the wheel; what is further away fires at its end.
const LEVELS: u32 = 9;

/// A kernel's clock of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// Ticks a second (`HZ`).
    pub hz: u64,
    /// Timers are in the wheel of 4.8 and later.
    pub wheel: bool,
}

impl Ticks {
    /// The kernel's number of the first tick (`INITIAL_JIFFIES`).
    fn first(self) -> u64 {
        (1 << 32) - 300 * self.hz
    }

    /// Ticks since power-on.
    pub fn at(self, time: Time) -> u64 {
        (u128::from(time.0) * u128::from(self.hz) / 1_000_000_000) as u64
    }

    /// When a tick since power-on is.
    pub fn time(self, ticks: u64) -> Time {
        Time((u128::from(ticks) * 1_000_000_000).div_ceil(u128::from(self.hz)) as u64)
    }

    /// The smallest number of ticks that is at least `span`.
    pub fn of(self, span: Span) -> u64 {
        (u128::from(span.0) * u128::from(self.hz)).div_ceil(1_000_000_000) as u64
    }

    /// The tick at which a timer fires that is armed at tick `now` for tick `expires`.
    pub fn fires(self, now: u64, expires: u64) -> u64 {
        if !self.wheel {
            return self.with_slack(now, expires);
        }
        let delta = expires.saturating_sub(now);
        let level = (0..LEVELS - 1)
            .find(|l| delta < (LEVEL_SLOTS - 1) << (LEVEL_SHIFT * l))
            .unwrap_or(LEVELS - 1);
        let shift = LEVEL_SHIFT * level;
        let expires = self.first() + expires.max(now);
        (((expires >> shift) + 1) << shift) - self.first()
    }

    /// `apply_slack`: where the bits of the earliest and the latest tick differ first, all lower
    /// ones become zero.
    fn with_slack(self, now: u64, expires: u64) -> u64 {
        let earliest = self.first() + expires;
        let latest = earliest + expires.saturating_sub(now) / 256;
        match (earliest ^ latest).checked_ilog2() {
            Some(bit) => (latest >> bit << bit) - self.first(),
            None => expires,
        }
    }

    /// The next whole second of the kernel's count after `ticks` (`round_jiffies_up` on CPU 0).
    pub fn round_up(self, ticks: u64) -> u64 {
        let j = self.first() + ticks;
        j - j % self.hz + self.hz - self.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Ticks = Ticks { hz: 100, wheel: true };

    #[test]
    fn a_timer_of_five_seconds_fires_at_the_end_of_its_slot_of_eight_ticks() {
        // Recorded on 6.12: dirty at 377.88 s, the flusher at 382.96, 388.00, … 408.16, 413.20 s.
        let mut now = 37_788;
        for want in [38_296, 38_800, 39_304, 39_808, 40_312, 40_816, 41_320] {
            now = T.fires(now, now + 500);
            assert_eq!(now, want);
        }
    }

    #[test]
    fn a_commit_timer_is_rounded_to_a_second_and_then_to_a_slot_of_64_ticks() {
        // Recorded on 6.12: transactions of 377.88 s and 408.16 s, committed at 383.20 and 414.56
        // s.
        assert_eq!(T.fires(37_788, T.round_up(37_788 + 500)), 38_320);
        assert_eq!(T.fires(40_816, T.round_up(40_816 + 500)), 41_456);
    }

    #[test]
    fn no_timer_fires_early_and_old_kernels_fire_at_a_round_tick() {
        let old = Ticks { wheel: false, ..T };
        for delta in [0, 1, 62, 63, 64, 503, 504, 4031, 4032, 40_000, 1 << 40] {
            assert!(T.fires(7, 7 + delta) > 7 + delta);
            let late = old.fires(7, 7 + delta) - (7 + delta);
            assert!(late <= delta / 256, "{delta} ticks, {late} late");
        }
        assert_eq!(T.at(T.time(12_345)), 12_345);
        assert_eq!(T.of(Span::secs(5)), 500);
    }
}
