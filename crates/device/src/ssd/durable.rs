//! What the flash holds, by host address, when units are programmed out of order.
//!
//! Dies finish in any order, so an older version of a slot may reach the flash after a newer one.
//! Such slots are *contested* while an older version may still be on its way: for each, the order
//! number of the version on the flash is kept, and older ones are not laid over it. All other slots
//! go straight to the medium.

use std::collections::{BTreeMap, VecDeque};

use wp_base::{SECTOR_BYTES, Sector};
use wp_medium::{Medium, Slice};

use crate::contents::{cut, write_all};
use crate::nand::SLOT_BYTES;

/// Sectors of a slot.
pub(crate) const SLOT_SECTORS: u64 = SLOT_BYTES / SECTOR_BYTES;

/// Discards that the device keeps in memory before it writes its map on its own account.
const DISCARDS_MAX: usize = 256;

#[derive(Clone, Copy)]
struct Contest {
    /// Version on the flash; 0 if it is older than all that are on their way.
    durable: u64,
    /// Newest version that is on its way or was; older ones may still be.
    until: u64,
}

/// A completed discard that a power cut may undo.
#[derive(Clone, Copy)]
pub(crate) struct Discard {
    pub(crate) seq: u64,
    pub(crate) lpn: u32,
    pub(crate) slots: u32,
    /// Barrier writes received when it took effect.
    pub(crate) epoch: u32,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Durable {
    medium: Medium,
    contested: BTreeMap<u32, Contest>,
    discards: VecDeque<Discard>,
}

/// First sector of a host slot.
pub(crate) fn sector_of(lpn: u32) -> Sector {
    Sector(u64::from(lpn) * SLOT_SECTORS)
}

impl Durable {
    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    pub(crate) fn discards(&self) -> impl Iterator<Item = &Discard> {
        self.discards.iter()
    }

    /// Version `seq` of these slots is on its way while an older one is too.
    pub(crate) fn contest(&mut self, lpn: u32, slots: u32, seq: u64) {
        for lpn in lpn..lpn + slots {
            self.contested.entry(lpn).or_insert(Contest { durable: 0, until: 0 }).until = seq;
        }
    }

    /// Version `seq` of slots that had no place on the flash is on its way: contested if they are
    /// so already, or if a discard of them is not yet durable.
    pub(crate) fn rewrite(&mut self, lpn: u32, slots: u32, seq: u64) {
        if self.discards.is_empty() && self.contested.is_empty() {
            return;
        }
        for lpn in lpn..lpn + slots {
            let discarded = self.discards.iter().any(|d| (d.lpn..d.lpn + d.slots).contains(&lpn));
            if discarded || self.contested.contains_key(&lpn) {
                self.contest(lpn, 1, seq);
            }
        }
    }

    /// Calls `f` for the stretches of `slots` slots from `lpn` of which the flash holds nothing
    /// newer than `seq`.
    pub(crate) fn not_newer(&self, lpn: u32, slots: u32, seq: u64, mut f: impl FnMut(u32, u32)) {
        let mut from = lpn;
        for (at, contest) in self.contested.range(lpn..lpn + slots) {
            if contest.durable > seq {
                if *at > from {
                    f(from, at - from);
                }
                from = at + 1;
            }
        }
        if from < lpn + slots {
            f(from, lpn + slots - from);
        }
    }

    /// See [`Medium::touch`].
    pub(crate) fn touch(&self, lpn: u32) {
        std::hint::black_box(self.medium.touch(sector_of(lpn)));
    }

    /// Version `seq` of these slots has been programmed.
    pub(crate) fn programmed(&mut self, lpn: u32, slots: u32, seq: u64, data: &[Slice]) {
        // Nearly always none of them is, though others may be.
        if self.contested.is_empty() || self.contested.range(lpn..lpn + slots).next().is_none() {
            return write_all(&mut self.medium, sector_of(lpn), data);
        }
        let mut medium = std::mem::take(&mut self.medium);
        self.not_newer(lpn, slots, seq, |from, n| {
            let part = cut(data, u64::from(from - lpn) * SLOT_BYTES, u64::from(n) * SLOT_BYTES);
            write_all(&mut medium, sector_of(from), &part);
        });
        self.medium = medium;
        self.reached(lpn, slots, seq);
    }

    /// The host has discarded these slots; durable at the next flush. What is of a later epoch than
    /// `open` must not be durable before.
    pub(crate) fn discard(&mut self, discard: Discard, open: u32) {
        self.discards.push_back(discard);
        if self.discards.len() > DISCARDS_MAX && self.discards[0].epoch <= open {
            self.settle_first_discard();
        }
    }

    /// What was discarded of these slots, and could still be read, is erased.
    pub(crate) fn forget(&mut self, lpn: u32, slots: u32) {
        self.medium.discard(sector_of(lpn), u64::from(slots) * SLOT_SECTORS);
    }

    /// Makes durable the discards up to order number `seq`.
    pub(crate) fn settle_discards(&mut self, seq: u64) {
        while self.discards.front().is_some_and(|d| d.seq <= seq) {
            self.settle_first_discard();
        }
    }

    /// Makes durable the discards of the epochs before `epoch`.
    pub(crate) fn settle_discards_before(&mut self, epoch: u32) {
        while self.discards.front().is_some_and(|d| d.epoch < epoch) {
            self.settle_first_discard();
        }
    }

    fn settle_first_discard(&mut self) {
        let Some(Discard { seq, lpn, slots, .. }) = self.discards.pop_front() else { return };
        let mut medium = std::mem::take(&mut self.medium);
        self.not_newer(lpn, slots, seq, |from, n| {
            medium.discard(sector_of(from), u64::from(n) * SLOT_SECTORS);
        });
        self.medium = medium;
        self.reached(lpn, slots, seq);
    }

    /// The flash now holds version `seq`, or a newer one, of these slots.
    fn reached(&mut self, lpn: u32, slots: u32, seq: u64) {
        for (_, contest) in self.contested.range_mut(lpn..lpn + slots) {
            contest.durable = contest.durable.max(seq);
        }
    }

    /// Is any slot contested?
    pub(crate) fn is_contested(&self) -> bool {
        !self.contested.is_empty()
    }

    /// Forgets contests of which nothing older can come; `oldest` is the lowest order number in the
    /// buffer.
    pub(crate) fn prune(&mut self, oldest: u64) {
        let oldest = self.discards.front().map_or(oldest, |d| oldest.min(d.seq));
        self.contested.retain(|_, contest| contest.until > oldest);
    }
}
