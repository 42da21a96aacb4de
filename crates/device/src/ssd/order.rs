//! Barrier writes: dies program units out of order, and a power cut must not show it.
//!
//! Picture:    received -> epoch (a barrier write ends its own) -> buffer -> programmed on some die
//!             -> **safe**, once all of the epochs before are programmed; until then it is parked:
//!             readable, and lost in a power cut.
//! In a drive: this is the *in-order recovery* of the BarrierFS paper (section 3.2). The flash is a
//!             log; each page tells in its spare area when it was received, and in which epoch.
//!             After a power cut the drive reads the log to its first hole, and forgets what is of
//!             a later epoch than that, though it is on the flash: older versions of such slots
//!             count again. So a block that holds them is not erased before. Nothing waits and
//!             nothing is programmed in another order. What it costs is not in the model: the spare
//!             area is there, and the paper's five per cent is its authors' penalty on a simulated
//!             drive, no measurement of such a recovery.
//! Arrival:    data of writes come over the link in the order in which they were received (in a
//!             drive without barriers a short one may pass a long one).
//! FUA:        a forced write completes when it is safe; units that still fill are padded for it.
//! Discards:   are of the epoch in which they take effect. The map's changes go to the flash with
//!             the data that follow: they are durable once something of a later epoch is.
//! OPTR:       with `optr` every write is a barrier write, and what is on the flash of it is safe
//!             when all of it is: recovery counts the pages of each write in the spare areas of the
//!             open superblock, and keeps the longest prefix of writes that are whole.
//! Law:        what `safe` holds of an epoch presupposes all of the epochs before.

use std::collections::BTreeMap;

use wp_base::{Span, Time};
use wp_block::Effects;

use crate::ssd::buffer::Entry;
use crate::ssd::durable::Durable;
use crate::ssd::runmap::NONE;
use crate::ssd::{Ssd, Timer};

/// Programmed, and not safe.
#[derive(Clone)]
pub(super) struct Parked {
    pub(super) entry: Entry,
    /// Of its unit.
    serial: u64,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct InOrder {
    /// Epoch -> writes that are on their way to the buffer, and pieces of them in it.
    missing: BTreeMap<u32, u32>,
    /// Epoch -> what is programmed before its time, in the order in which that happened.
    parked: BTreeMap<u32, Vec<Parked>>,
    parked_slots: u32,
    /// What survives.
    pub(super) safe: Durable,
}

impl InOrder {
    /// `count` more of this epoch are on their way.
    pub(super) fn expect(&mut self, epoch: u32, count: u32) {
        *self.missing.entry(epoch).or_default() += count;
    }

    /// One of this epoch less is.
    fn met(&mut self, epoch: u32) {
        let left = self.missing.get_mut(&epoch).expect("it was expected");
        *left -= 1;
        if *left == 0 {
            self.missing.remove(&epoch);
        }
    }

    /// The first epoch that may not be whole, if `last` is received now: all of it that is
    /// programmed is safe, and all before it is.
    pub(super) fn first_open(&self, last: u32) -> u32 {
        self.missing.keys().next().copied().unwrap_or(last)
    }

    /// What is parked, in the order of epochs.
    pub(super) fn parked(&self) -> impl Iterator<Item = &Parked> {
        self.parked.values().flatten()
    }

    /// Serial of the oldest unit of which something is parked.
    pub(super) fn oldest_serial(&self) -> Option<u64> {
        self.parked().map(|p| p.serial).min()
    }

    /// Forgets contests of which nothing older can come; see [`Durable::prune`].
    pub(super) fn prune(&mut self, oldest: u64) {
        let oldest = self.parked().map(|p| p.entry.seq).min().map_or(oldest, |seq| oldest.min(seq));
        self.safe.prune(oldest);
    }
}

impl Ssd {
    /// What of the flash survives a power cut.
    pub(super) fn surviving(&self) -> &Durable {
        self.order.as_ref().map_or(&self.durable, |order| &order.safe)
    }

    /// A write of `epoch` that was in flight is in the buffer, in `pieces` pieces; or it failed
    /// (0).
    pub(super) fn write_came(&mut self, epoch: u32, pieces: u32) {
        if let Some(order) = &mut self.order {
            if pieces > 0 {
                order.expect(epoch, pieces);
            }
            order.met(epoch);
        }
    }

    /// A piece of a unit is on the flash: the last of its kind where order is not kept.
    pub(super) fn piece_programmed(
        &mut self,
        now: Time,
        serial: u64,
        entry: &Entry,
        fx: &mut Effects,
    ) {
        let Some(order) = &mut self.order else {
            return self.forced_done(now, entry.waiter, fx);
        };
        order.met(entry.epoch);
        order.parked_slots += entry.slots;
        let parked = Parked { entry: entry.clone(), serial };
        order.parked.entry(entry.epoch).or_default().push(parked);
    }

    /// Makes safe what has nothing missing before it.
    pub(super) fn release_parked(&mut self, now: Time, fx: &mut Effects) {
        let Some(order) = &mut self.order else { return };
        let open = order.first_open(self.epoch);
        // Of an epoch that is one write nothing is safe before all of it is.
        let end = if self.config.limits.ordered_writes { open } else { open + 1 };
        let mut waiters = Vec::new();
        while let Some(first) = order.parked.first_entry()
            && *first.key() < end
        {
            for Parked { entry, .. } in first.remove() {
                order.safe.programmed(entry.lpn, entry.slots, entry.seq, &entry.data);
                order.parked_slots -= entry.slots;
                waiters.push(entry.waiter);
            }
        }
        order.safe.settle_discards_before(open);
        let too_many = order.parked_slots > self.config.buffer_slots;
        waiters.into_iter().for_each(|waiter| self.forced_done(now, waiter, fx));
        if too_many {
            // Something old lies in a unit that fills slowly.
            self.pad_host(now, fx);
        }
    }

    /// A piece of a forced write is as durable as it must be.
    fn forced_done(&mut self, now: Time, waiter: u32, fx: &mut Effects) {
        if waiter == NONE {
            return;
        }
        let request = self.pool.get_mut(waiter);
        request.left -= 1;
        if request.left > 0 {
            return;
        }
        match self.config.sync.fua_overhead {
            Span::ZERO => fx.complete(self.pool.remove(waiter).id),
            overhead => Timer::Complete.set(now + overhead, u64::from(waiter), fx),
        }
    }
}
