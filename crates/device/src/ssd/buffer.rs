//! The write buffer: program units that fill, wait for their die, and are programmed; and the
//! tokens that bound it.
//!
//! Picture:    FILLING -close-> WAITING -start_next-> PROGRAMMING -programmed-> gone. One unit of
//!             each stream fills; units that wait stand in one queue a die, and reads that come
//!             meanwhile go before them.
//! Invariants: 1. tokens taken = host slots in units + slots of requests between their tokens and
//!                their units;
//!             2. a die programs one unit at a time;
//!             3. `index` names exactly the units in the buffer.

use std::rc::Rc;

use wp_base::Time;
use wp_medium::Slice;

use crate::ssd::ftl::{STREAMS, Stream};
use crate::ssd::runmap::NONE;

/// Neighbouring slots of one request in one program unit.
#[derive(Clone)]
pub(crate) struct Entry {
    /// First host slot.
    pub(crate) lpn: u32,
    /// First slot in the unit.
    pub(crate) first: u32,
    pub(crate) slots: u32,
    /// The request that waits for the program (FUA), or `NONE`.
    pub(crate) waiter: u32,
    /// Order in which its request arrived.
    pub(crate) seq: u64,
    /// Its request's.
    pub(crate) epoch: u32,
    /// `slots * 4096` bytes.
    pub(crate) data: Vec<Slice>,
}

/// Where a unit is on its way to the flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnitState {
    Filling,
    Waiting,
    Programming { start: Time },
}

/// A program unit in the buffer.
#[derive(Clone)]
pub(crate) struct Unit {
    /// Its number on the flash.
    pub(crate) number: u32,
    pub(crate) stream: Stream,
    pub(crate) state: UnitState,
    /// Order in which units were begun.
    pub(crate) serial: u64,
    /// Slots in use, from its first.
    pub(crate) filled: u32,
    /// Not programmed before this: old parts of its slots are still being read, or a flush being
    /// decoded.
    pub(crate) ready: Time,
    /// Next unit that waits for the same die.
    next: u32,
    /// What it holds; empty for moved data, which stand on the flash until they do here.
    pub(crate) entries: Rc<Vec<Entry>>,
}

/// Units that wait for a die, and whether it programs one.
#[derive(Clone, Copy)]
struct DieQueue {
    head: u32,
    tail: u32,
    busy: bool,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Buffer {
    units: Vec<Option<Unit>>,
    spare: Vec<u32>,
    index: UnitIndex,
    queues: Vec<DieQueue>,
    open: [u32; STREAMS],
    serial: u64,
    /// Free tokens, each good for one slot.
    pub(crate) tokens: u32,
    /// Units closed and not yet programmed, by stream.
    pub(crate) outstanding: [u32; STREAMS],
    /// Vectors for entries, to be used again.
    vectors: Vec<Rc<Vec<Entry>>>,
}

impl Buffer {
    pub(crate) fn new(dies: u32, tokens: u32) -> Buffer {
        Buffer {
            units: Vec::new(),
            spare: Vec::new(),
            index: UnitIndex::new(),
            queues: vec![DieQueue { head: NONE, tail: NONE, busy: false }; dies as usize],
            open: [NONE; STREAMS],
            serial: 0,
            tokens,
            outstanding: [0; STREAMS],
            vectors: Vec::new(),
        }
    }

    /// Key of the unit that `stream` fills, if one is open.
    pub(crate) fn open(&self, stream: Stream) -> Option<u32> {
        Some(self.open[stream as usize]).filter(|key| *key != NONE)
    }

    /// Slots left in the unit that `stream` fills.
    pub(crate) fn open_room(&self, stream: Stream, unit_slots: u32) -> u32 {
        self.open(stream).map_or(0, |key| unit_slots - self.unit(key).filled)
    }

    /// Units of host data closed and not yet programmed.
    pub(crate) fn host_outstanding(&self) -> u32 {
        Stream::OF_HOST.map(|s| self.outstanding[s as usize]).iter().sum()
    }

    /// Number that the next unit gets as its serial.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn unit(&self, key: u32) -> &Unit {
        self.units[key as usize].as_ref().expect("keys are of units in the buffer")
    }

    pub(crate) fn unit_mut(&mut self, key: u32) -> &mut Unit {
        self.units[key as usize].as_mut().expect("keys are of units in the buffer")
    }

    /// Begins unit `number` of the flash for `stream`. Returns its key.
    pub(crate) fn begin(&mut self, stream: Stream, number: u32, now: Time) -> u32 {
        assert_eq!(self.open[stream as usize], NONE, "{stream:?} fills a unit already");
        let unit = Unit {
            number,
            stream,
            state: UnitState::Filling,
            serial: self.serial,
            filled: 0,
            ready: now,
            next: NONE,
            entries: self.vectors.pop().unwrap_or_default(),
        };
        self.serial += 1;
        let key = self.spare.pop().unwrap_or_else(|| {
            self.units.push(None);
            self.units.len() as u32 - 1
        });
        self.units[key as usize] = Some(unit);
        self.index.insert(number, key);
        self.open[stream as usize] = key;
        key
    }

    /// The open unit of `stream` takes no more; it now waits for `die`. Returns its key.
    pub(crate) fn close(&mut self, stream: Stream, die: u32) -> u32 {
        let key = std::mem::replace(&mut self.open[stream as usize], NONE);
        self.unit_mut(key).state = UnitState::Waiting;
        self.outstanding[stream as usize] += 1;
        let queue = &mut self.queues[die as usize];
        let tail = std::mem::replace(&mut queue.tail, key);
        if tail == NONE {
            queue.head = key;
        } else {
            self.unit_mut(tail).next = key;
        }
        key
    }

    /// The unit that `die` is to program now, if it is idle and one waits.
    pub(crate) fn next_of(&mut self, die: u32) -> Option<u32> {
        let queue = self.queues[die as usize];
        if queue.busy || queue.head == NONE {
            return None;
        }
        let next = self.unit(queue.head).next;
        let tail = if next == NONE { NONE } else { queue.tail };
        self.queues[die as usize] = DieQueue { head: next, tail, busy: true };
        Some(queue.head)
    }

    /// `die` has programmed unit `key`, which leaves the buffer.
    pub(crate) fn programmed(&mut self, key: u32, die: u32) -> Unit {
        let unit = self.units[key as usize].take().expect("keys are of units in the buffer");
        self.spare.push(key);
        self.index.remove(unit.number);
        self.queues[die as usize].busy = false;
        self.outstanding[unit.stream as usize] -= 1;
        unit
    }

    /// Takes back the vector of a unit that is done with.
    pub(crate) fn recycle(&mut self, mut entries: Rc<Vec<Entry>>) {
        if let Some(v) = Rc::get_mut(&mut entries) {
            v.clear();
            self.vectors.push(entries);
        }
    }

    /// The unit in the buffer that has this number on the flash.
    pub(crate) fn find(&self, number: u32) -> Option<&Unit> {
        self.index.get(number).map(|key| self.unit(key))
    }

    /// Units in the buffer, in no order that means anything.
    pub(crate) fn units(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter().flatten()
    }
}

impl Unit {
    /// Entry that holds slot `slot` of the unit. `None` for moved data.
    pub(crate) fn entry_at(&self, slot: u32) -> Option<&Entry> {
        let i = self.entries.partition_point(|e| e.first + e.slots <= slot);
        self.entries.get(i)
    }
}

/// Unit number to key: a hash table with linear probing. Nobody ever walks it.
#[derive(Clone)]
struct UnitIndex {
    /// (number or `NONE`, key); a power of two of them, at most half in use.
    places: Vec<(u32, u32)>,
    used: usize,
}

impl UnitIndex {
    fn new() -> UnitIndex {
        UnitIndex { places: vec![(NONE, NONE); 64], used: 0 }
    }

    fn home(&self, number: u32) -> usize {
        // Fibonacci hashing: the high bits of the product are the good ones.
        (number.wrapping_mul(0x9E37_79B1) >> 16) as usize & (self.places.len() - 1)
    }

    fn get(&self, number: u32) -> Option<u32> {
        let mask = self.places.len() - 1;
        let mut i = self.home(number);
        loop {
            let (n, key) = self.places[i];
            if n == number {
                return Some(key);
            }
            if n == NONE {
                return None;
            }
            i = (i + 1) & mask;
        }
    }

    fn insert(&mut self, number: u32, key: u32) {
        if (self.used + 1) * 2 > self.places.len() {
            let twice = vec![(NONE, NONE); self.places.len() * 2];
            let old = std::mem::replace(&mut self.places, twice);
            self.used = 0;
            old.into_iter().filter(|p| p.0 != NONE).for_each(|(n, k)| self.insert(n, k));
        }
        let mask = self.places.len() - 1;
        let mut i = self.home(number);
        while self.places[i].0 != NONE {
            debug_assert_ne!(self.places[i].0, number);
            i = (i + 1) & mask;
        }
        self.places[i] = (number, key);
        self.used += 1;
    }

    fn remove(&mut self, number: u32) {
        let mask = self.places.len() - 1;
        let mut hole = self.home(number);
        while self.places[hole].0 != number {
            hole = (hole + 1) & mask;
        }
        // Move back what the hole would cut off from its home.
        let mut i = hole;
        loop {
            i = (i + 1) & mask;
            let n = self.places[i].0;
            if n == NONE {
                break;
            }
            let home = self.home(n);
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.places[hole] = self.places[i];
                hole = i;
            }
        }
        self.places[hole] = (NONE, NONE);
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_index_finds_what_is_in_it_and_nothing_else() {
        let mut rng = wp_base::Rng::stream(1, "index");
        let (mut index, mut naive) = (UnitIndex::new(), BTreeMap::new());
        for key in 0..20_000u32 {
            let number = rng.below(700) as u32 * 64;
            if naive.remove(&number).is_some() {
                index.remove(number);
            } else {
                naive.insert(number, key);
                index.insert(number, key);
            }
            let probe = rng.below(700) as u32 * 64;
            assert_eq!(index.get(probe), naive.get(&probe).copied());
        }
    }
}
