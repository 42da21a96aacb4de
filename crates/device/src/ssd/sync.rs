//! What a drive takes for a sync beside programming: how FLUSHes queue, what FUA costs, which FLUSH
//! is slow.
//!
//! Laws:   a FLUSH holds later ones, and writes if it does (`flush_holds_writes`), for
//!         `flush_serial_ns`: what has to wait is taken in the order in which it came, so a write
//!         that came before a FLUSH is served before it. A FLUSH that is alone waits for nothing.
//! Source: numbers of public measurements (`devices/sync/points.csv`); each preset has its own.

use std::collections::VecDeque;

use wp_base::event::Op;
use wp_base::{Rng, Span, Time};
use wp_block::{Effects, FlushSet};

use crate::config::{ConfigError, Param, Settings};
use crate::preset::{NO_OPTR, NO_RANGES, p};
use crate::ssd::buffer::Entry;
use crate::ssd::durable::{SLOT_SECTORS, sector_of};
use crate::ssd::ftl::Stream;
use crate::ssd::{PendingFlush, Ssd, Timer};

/// Its numbers in a preset.
pub(crate) const SYNC: [Param; 10] = [
    p("hardware_queues", 1, "count", "assumed: one; NVMe has one for each CPU"),
    p("flush_serial_ns", 0, "ns", "assumed: FLUSHes overlap"),
    p("flush_holds_writes", 0, "switch", "assumed: only later FLUSHes wait for one"),
    p("fua_overhead_ns", 0, "ns", "assumed: a FUA write waits for its program alone"),
    p("slow_flush_permille", 0, "permille", "assumed: every FLUSH takes the same overhead"),
    p("slow_flush_ns", 0, "ns", "assumed: a slow FLUSH takes no longer"),
    p("slow_flush_slc_full", 0, "switch", "1: FLUSHes are slow only while the SLC cache is full"),
    p("range_flush", 0, "switch", NO_RANGES),
    p("optr", 0, "switch", NO_OPTR),
    p("flush_with_plp", 0, "switch", "0: a drive with power-loss protection reports no cache"),
];

/// What a sync costs beside programming.
#[derive(Clone, Copy, Debug)]
pub struct SyncConfig {
    /// Time for which a FLUSH holds later ones.
    pub serial: Span,
    /// Does it hold later writes as well?
    pub holds_writes: bool,
    /// Time that a FUA write takes after it has been programmed.
    pub fua_overhead: Span,
    /// FLUSHes of a thousand that are slow, drawn with the seed of the FTL.
    pub slow_permille: u64,
    /// Time that a slow FLUSH takes besides.
    pub slow: Span,
    /// Are FLUSHes slow only while the SLC cache is full?
    pub slow_slc_full: bool,
    /// Does a drive with power-loss protection report a volatile cache, and take FLUSHes?
    pub with_plp: bool,
}

impl SyncConfig {
    /// From a preset's values. Errors: a number out of range.
    pub fn from_settings(s: &Settings) -> Result<SyncConfig, ConfigError> {
        let slow_permille = s.get("slow_flush_permille");
        if slow_permille > 1000 {
            let reason = "must be at most 1000";
            return Err(ConfigError::new("slow_flush_permille", slow_permille, reason));
        }
        Ok(SyncConfig {
            serial: Span(s.get("flush_serial_ns")),
            holds_writes: s.switch("flush_holds_writes")?,
            fua_overhead: Span(s.get("fua_overhead_ns")),
            slow_permille,
            slow: Span(s.get("slow_flush_ns")),
            slow_slc_full: s.switch("slow_flush_slc_full")?,
            with_plp: s.switch("flush_with_plp")?,
        })
    }
}

/// What waits for a FLUSH.
#[derive(Clone)]
pub(super) struct SyncState {
    /// Does a FLUSH hold what comes later?
    is_held: bool,
    /// Commands that wait for it, in order.
    held: VecDeque<u32>,
    rng: Rng,
}

impl SyncState {
    pub fn new(seed: u64) -> SyncState {
        SyncState { is_held: false, held: VecDeque::new(), rng: Rng::stream(seed, "slow flushes") }
    }
}

impl Ssd {
    /// Has command `key` to wait for a FLUSH? It is served later then.
    pub(super) fn waits_for_flush(&mut self, key: u32) -> bool {
        let may_wait = self.pool.get(key).op == Op::Flush || self.config.sync.holds_writes;
        let waits = may_wait && self.sync.is_held;
        if waits {
            self.sync.held.push_back(key);
        }
        waits
    }

    /// A FLUSH begins: from `start` on it holds what comes later.
    fn hold_for_flush(&mut self, start: Time, fx: &mut Effects) {
        if self.config.sync.serial > Span::ZERO {
            self.sync.is_held = true;
            Timer::FlushHeld.set(start + self.config.sync.serial, 0, fx);
        }
    }

    /// A FLUSH holds nothing any more: what waited for it is served, up to the next FLUSH.
    pub(super) fn flush_held(&mut self, now: Time, fx: &mut Effects) {
        self.sync.is_held = false;
        while !self.sync.is_held
            && let Some(key) = self.sync.held.pop_front()
        {
            let request = self.pool.get(key);
            match request.op {
                Op::Flush => self.flush(now, request.decoded.max(now), key, fx),
                _ => self.write(now, key, fx),
            }
        }
    }

    /// The unit of this serial is on the flash: FLUSHes that have waited for it last are over soon.
    pub(super) fn note_for_flushes(&mut self, now: Time, serial: u64, fx: &mut Effects) {
        let mut flushes = std::mem::take(&mut self.flushes);
        for flush in flushes.iter_mut().filter(|f| f.waits_for(serial)) {
            flush.units -= 1;
            if flush.units == 0 {
                Timer::Complete.set(now + self.flush_overhead(), u64::from(flush.key), fx);
            }
        }
        flushes.retain(|f| f.units > 0);
        self.flushes = flushes;
    }

    /// FLUSH `key` has its turn.
    pub(super) fn flush(&mut self, now: Time, decoded: Time, key: u32, fx: &mut Effects) {
        self.hold_for_flush(decoded, fx);
        let payload = std::mem::take(&mut self.pool.get_mut(key).data);
        if !payload.is_empty() {
            return self.flush_set(now, decoded, key, &FlushSet::decode(&payload), fx);
        }
        self.pool.get_mut(key).left = self.seq;
        if !self.config.plp {
            for open in Stream::OF_HOST.map(|s| self.buffer.open(s)).into_iter().flatten() {
                let unit = self.buffer.unit_mut(open);
                unit.ready = unit.ready.max(decoded);
            }
            self.pad_host(now, fx);
            let units = self.buffer.host_outstanding();
            if units > 0 {
                let before_serial = self.buffer.next_serial();
                self.flushes.push(PendingFlush { key, before_serial, units, only: None });
                return;
            }
        }
        Timer::Complete.set(decoded + self.flush_overhead(), u64::from(key), fx);
    }

    /// Ranged FLUSH `key` has its turn: it waits for the units that hold something of the set, and
    /// pads those of them that still fill. The map's changes by discards stay in memory.
    fn flush_set(&mut self, now: Time, decoded: Time, key: u32, set: &FlushSet, fx: &mut Effects) {
        self.pool.get_mut(key).left = 0;
        if !self.config.plp {
            let in_set = |e: &Entry| set.meets(sector_of(e.lpn), u64::from(e.slots) * SLOT_SECTORS);
            for stream in Stream::OF_HOST {
                let Some(open) = self.buffer.open(stream) else { continue };
                let unit = self.buffer.unit_mut(open);
                if unit.entries.iter().any(in_set) {
                    unit.ready = unit.ready.max(decoded);
                    self.pad_and_close(now, stream, fx);
                }
            }
            let held = self.buffer.units().filter(|u| u.entries.iter().any(in_set));
            let serials: Vec<u64> = held.map(|u| u.serial).collect();
            if !serials.is_empty() {
                let (before_serial, units) = (self.buffer.next_serial(), serials.len() as u32);
                let only = Some(serials);
                self.flushes.push(PendingFlush { key, before_serial, units, only });
                return;
            }
        }
        Timer::Complete.set(decoded + self.flush_overhead(), u64::from(key), fx);
    }

    /// What this FLUSH takes after everything has been programmed.
    fn flush_overhead(&mut self) -> Span {
        let SyncConfig { slow_permille, slow, slow_slc_full, .. } = self.config.sync;
        let may_be = !slow_slc_full || self.slc.is_full(self.config.geometry.unit_bytes());
        let is_slow = may_be && slow_permille > 0 && self.sync.rng.below(1000) < slow_permille;
        self.config.flush_overhead + if is_slow { slow } else { Span::ZERO }
    }
}
