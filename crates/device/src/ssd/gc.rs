//! Garbage collection: a superblock is read, its valid slots are written elsewhere, and it is
//! erased. One victim at a time (`choose` says which), at full speed while too few superblocks are
//! free.
//!
//! Picture:    IDLE -pick-> READING a batch -gc_has_read-> moved (units program by themselves) ->
//!             READING the next ... -> victim empty -> EMPTIED until everything older is programmed
//!             -> erasing -> free.
//! Why EMPTIED: the slots of a victim were replaced by newer ones, which may still be in the
//! buffer. If it were erased
//!             and the power then went, neither would be left.
//! Left out:   throttling against the host, copy-back, more than one stream of moved data (the
//!             host's and the moved data are apart).

use wp_base::Time;
use wp_block::Effects;

use crate::ssd::ftl::Stream;
use crate::ssd::runmap::NONE;
use crate::ssd::tell::Cause;
use crate::ssd::{Ssd, Timer};

/// Stretch of valid slots of a victim that has been read.
#[derive(Clone, Copy)]
struct Moved {
    ppa: u32,
    lpn: u32,
    slots: u32,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Gc {
    /// The superblock being emptied, and how many of its slots have been scanned.
    victim: Option<(u32, u32)>,
    /// Where its slots go.
    to: Stream,
    /// What is being read of it; empty when nothing is.
    batch: Vec<Moved>,
    /// Superblocks emptied: (number, serial of the first unit that need not be programmed first).
    emptied: Vec<(u32, u64)>,
    /// Superblocks being erased.
    erasing: Vec<u32>,
}

impl Gc {
    pub(crate) fn new() -> Gc {
        Gc {
            victim: None,
            to: Stream::Gc,
            batch: Vec::new(),
            emptied: Vec::new(),
            erasing: Vec::new(),
        }
    }
}

impl Ssd {
    /// Goes on with garbage collection as far as it can without waiting.
    pub(super) fn collect_garbage(&mut self, now: Time, fx: &mut Effects) {
        while self.gc.batch.is_empty() {
            let Some((victim, looked)) = self.gc.victim else {
                let coming = self.gc.emptied.len() + self.gc.erasing.len();
                let enough = self.ftl.free_superblocks() + coming >= self.config.gc_low as usize;
                if enough || self.read_only {
                    break;
                }
                // A victim and the padding after it fill a superblock at most: so there is always
                // one to begin with.
                if self.gc_room(Stream::Gc) < self.config.geometry.superblock_slots {
                    break;
                }
                let Some(victim) = self.ftl.pick_victim() else { break };
                self.gc.to = if self.ftl.levelling { Stream::Level } else { Stream::Gc };
                self.counts.gc_victims += 1;
                self.counts.gc_victims_for_wear += u64::from(self.ftl.levelling);
                self.gc.victim = Some((victim, 0));
                continue;
            };
            let geometry = self.config.geometry;
            // Twice the dies keep all of them busy; more would only pile up before them.
            let flying = self.buffer.outstanding[self.gc.to as usize];
            if flying > 2 * geometry.dies {
                break;
            }
            self.read_batch(now, victim, looked, fx);
        }
        self.unblock(now, fx);
    }

    /// Slots that moved data can go to.
    fn gc_room(&self, stream: Stream) -> u32 {
        let unit = self.config.geometry.unit_slots;
        self.buffer.open_room(stream, unit) + self.ftl.units_left(stream) * unit
    }

    /// The host waits for room, and an erase (or the choice of a victim) for a unit that only the
    /// host would fill: programs it as it is.
    fn unblock(&mut self, now: Time, fx: &mut Effects) {
        if !self.space_queue.is_empty() && self.gc.erasing.is_empty() && self.gc.batch.is_empty() {
            self.pad_host(now, fx);
            self.give_up_if_stuck(fx);
        }
    }

    /// Where erases fail there may be no superblock left to move anything to.
    fn give_up_if_stuck(&mut self, fx: &mut Effects) {
        let idle = self.gc.victim.is_none() && self.gc.emptied.is_empty();
        let programming: u32 = self.buffer.outstanding.iter().sum();
        if self.config.ftl.endurance > 0 && idle && programming == 0 {
            self.become_read_only(fx);
        }
    }

    /// Starts reading the next valid slots of `victim`, of which `looked` slots have been scanned.
    fn read_batch(&mut self, now: Time, victim: u32, looked: u32, fx: &mut Effects) {
        let geometry = self.config.geometry;
        let base = victim * geometry.superblock_slots;
        let most = geometry.dies * geometry.unit_slots;
        let (mut at, mut found, mut end) = (looked, 0, now);
        self.ftl.touch_owners(base + looked, most.min(geometry.superblock_slots - looked));
        while at < geometry.superblock_slots && found < most {
            // Up to the end of a unit, so that a stretch is on one die.
            let left = geometry.unit_slots - at % geometry.unit_slots;
            let owner = self.ftl.owner(base + at, left.min(most - found));
            let (mut at_owner, owner_end) = (0, owner.len);
            while owner.value != NONE && at_owner < owner_end {
                let here = base + at + at_owner;
                let now_at = self.ftl.find(owner.value + at_owner, owner_end - at_owner);
                // A run that is elsewhere in its first slot is so in all.
                if now_at.value == here {
                    self.gc.batch.push(Moved {
                        ppa: here,
                        lpn: owner.value + at_owner,
                        slots: now_at.len,
                    });
                    let (unit, first) = (here / geometry.unit_slots, here % geometry.unit_slots);
                    let what = (unit, first, now_at.len);
                    end = end.max(self.read_flash((now, now), what, Cause::Gc, fx));
                    found += now_at.len;
                }
                at_owner += now_at.len;
            }
            at += owner.len;
        }
        self.gc.victim = Some((victim, at));
        if found > 0 {
            Timer::GcRead.set(end, 0, fx);
        } else {
            self.victim_empty(now, victim, fx);
        }
    }

    /// The batch is in the controller: writes what is still valid elsewhere.
    pub(super) fn gc_has_read(&mut self, now: Time, fx: &mut Effects) {
        let unit_slots = self.config.geometry.unit_slots;
        for Moved { ppa, lpn, slots } in std::mem::take(&mut self.gc.batch) {
            let mut done = 0;
            while done < slots {
                let here = self.ftl.find(lpn + done, slots - done);
                if here.value != ppa + done {
                    // Written anew meanwhile.
                    done += here.len;
                    continue;
                }
                let key = self.open_unit(now, self.gc.to, fx);
                let unit = self.buffer.unit_mut(key);
                let n = here.len.min(unit_slots - unit.filled);
                let to = unit.number * unit_slots + unit.filled;
                unit.filled += n;
                let full = unit.filled == unit_slots;
                self.ftl.map_moved(lpn + done, n, self.ftl.superblock_of(ppa), to);
                self.counts.gc_slots_moved += u64::from(n);
                if full {
                    self.close_unit(now, self.gc.to, fx);
                }
                done += n;
            }
        }
        self.collect_garbage(now, fx);
    }

    fn victim_empty(&mut self, now: Time, victim: u32, fx: &mut Effects) {
        let (durable, order) = (&mut self.durable, &mut self.order);
        self.ftl.empty_victim(victim, |lpn, slots| {
            durable.forget(lpn, slots);
            if let Some(order) = order.as_mut() {
                order.safe.forget(lpn, slots);
            }
        });
        self.gc.victim = None;
        self.pad_and_close(now, self.gc.to, fx);
        self.gc.emptied.push((victim, self.buffer.next_serial()));
        self.erase_emptied(now, fx);
    }

    /// Erases the emptied superblocks before which nothing is left to program.
    pub(super) fn erase_emptied(&mut self, now: Time, fx: &mut Effects) {
        if self.gc.emptied.is_empty() {
            return;
        }
        let in_buffer = self.buffer.units().map(|u| u.serial).min().unwrap_or(u64::MAX);
        // What is not safe yet: a power cut would ask for the versions before it.
        let parked = self.order.as_ref().and_then(|o| o.oldest_serial()).unwrap_or(u64::MAX);
        let oldest = in_buffer.min(parked);
        if parked < in_buffer {
            // Whatever keeps it from being safe is to go to the flash now.
            self.pad_host(now, fx);
        }
        let (ready, wait): (Vec<_>, Vec<_>) =
            self.gc.emptied.iter().partition(|(_, before)| oldest >= *before);
        self.gc.emptied = wait;
        for (victim, _) in ready {
            let dies = 0..self.config.geometry.dies;
            let end = dies.map(|die| self.erase_die(now, die, fx)).max().unwrap_or(now);
            self.gc.erasing.push(victim);
            Timer::Erased.set(end, u64::from(victim), fx);
        }
    }

    /// The erase of superblock `victim` is over on every die.
    pub(super) fn erased(&mut self, now: Time, victim: u32, fx: &mut Effects) {
        self.gc.erasing.retain(|v| *v != victim);
        self.ftl.erased(victim);
        if self.ftl.is_worn_out() {
            self.become_read_only(fx);
        }
        self.place_waiting(now, fx);
        self.collect_garbage(now, fx);
    }
}
