//! A cache of flash with one bit a cell: the drive programs what the host writes fast until the
//! cache is full, then at the rate of its other cells.
//!
//! Laws:     - a unit of a host stream goes to the cache while the cache has room for all of it,
//!             and takes `slc_program_ns`; any other unit takes `program_ns`;
//!           - the drive empties the cache at `slc_fold_mb_s` while it programs no host unit.
//! Left out: the dies that emptying the cache keeps busy, and its share in wear; space of the cache
//!           that discards free; a cache that shrinks as the drive fills.
//! Source:   sequential writes of reviews, which show the size as the place where the rate falls
//!           (techpowerup), and syncs of one drive fresh and after minutes of writing (smalldatum).

use wp_base::{Span, Time};

use crate::config::{ConfigError, Param, Settings};
use crate::nand::Nand;
use crate::preset::p;

/// Its numbers in a preset.
pub(crate) const SLC: [Param; 4] = [
    p("slc_bytes", 0, "bytes", "assumed: no SLC cache"),
    p("slc_program_ns", 0, "ns", "program of a unit into the SLC cache"),
    p("slc_fold_mb_s", 0, "MB/s", "assumed: a drive that is idle empties none of its SLC cache"),
    p("slc_used_permille", 0, "permille", "0: the SLC cache is empty at the start"),
];

/// What the cache is like.
#[derive(Clone, Copy, Debug)]
pub struct SlcConfig {
    /// Bytes that it takes; zero: there is none.
    bytes: u64,
    /// tPROG of a unit in it.
    program: Span,
    /// Bytes that the drive moves out of it in a microsecond in which it programs no host unit.
    fold_mb_s: u64,
    /// Bytes in it at the start.
    used: u64,
}

impl SlcConfig {
    /// From a preset's values. Errors: a number out of range, or a cache that programs in no time.
    pub fn from_settings(s: &Settings) -> Result<SlcConfig, ConfigError> {
        let (bytes, program) = (s.get("slc_bytes"), s.get("slc_program_ns"));
        let permille = s.get("slc_used_permille");
        if permille > 1000 {
            let reason = "must be at most 1000";
            return Err(ConfigError::new("slc_used_permille", permille, reason));
        }
        if bytes > 0 && program == 0 {
            let reason = "must be at least 1 where slc_bytes is not 0";
            return Err(ConfigError::new("slc_program_ns", program, reason));
        }
        let used = (u128::from(bytes) * u128::from(permille) / 1000) as u64;
        Ok(SlcConfig { bytes, program: Span(program), fold_mb_s: s.get("slc_fold_mb_s"), used })
    }
}

/// What is in it.
#[derive(Clone)]
pub(super) struct Slc {
    config: SlcConfig,
    used: u64,
    /// When the last host unit was on the flash, as far as is known.
    busy_until: Time,
}

impl Slc {
    pub fn new(config: SlcConfig) -> Slc {
        Slc { used: config.used, busy_until: Time::ZERO, config }
    }

    /// Is there a cache, and has it no room for a unit of `unit_bytes`?
    pub fn is_full(&self, unit_bytes: u64) -> bool {
        self.config.bytes > 0 && self.used + unit_bytes > self.config.bytes
    }

    /// Takes a host unit whose program begins at `from`. Returns its tPROG; `None`: that of the
    /// other cells.
    fn take(&mut self, from: Time, unit_bytes: u64) -> Option<Span> {
        if self.config.bytes == 0 {
            return None;
        }
        let idle = u128::from(from.since(self.busy_until.min(from)).0);
        let folded = idle * u128::from(self.config.fold_mb_s) / 1000;
        self.used = self.used.saturating_sub(u64::try_from(folded).unwrap_or(u64::MAX));
        let fits = !self.is_full(unit_bytes);
        if fits {
            self.used += unit_bytes;
        }
        fits.then_some(self.config.program)
    }

    /// Programs a host unit on `die`, not before `ready`. Returns as [`Nand::program`].
    pub fn program(&mut self, nand: &mut Nand, now: Time, ready: Time, die: u32) -> (Time, Time) {
        let cached = self.take(ready, nand.geometry().unit_bytes());
        let program = cached.unwrap_or(nand.timing().program);
        let (start, end) = nand.program(now, ready, die, program);
        self.busy_until = self.busy_until.max(end);
        (start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slc(bytes: u64, fold_mb_s: u64) -> Slc {
        Slc::new(SlcConfig { bytes, program: Span(7), fold_mb_s, used: 0 })
    }

    #[test]
    fn units_are_fast_until_the_cache_is_full_and_after_it_was_emptied() {
        let mut slc = slc(2000, 1);
        assert_eq!(slc.take(Time(0), 1000), Some(Span(7)));
        assert_eq!(slc.take(Time(7), 1000), Some(Span(7)));
        assert_eq!(slc.take(Time(7), 1000), None);
        slc.busy_until = Time(100);
        assert!(slc.is_full(1000));
        // One megabyte a second is a byte a microsecond.
        assert_eq!(slc.take(Time(100 + 999_000), 1000), None);
        assert_eq!(slc.take(Time(100 + 1_000_000), 1000), Some(Span(7)));
    }

    #[test]
    fn without_a_cache_every_unit_is_like_any_other() {
        let mut slc = slc(0, 1);
        assert_eq!(slc.take(Time(0), 1000), None);
        assert!(!slc.is_full(1000));
    }
}
