//! Timers, ordered by time and then by the order in which they were set.

use std::rc::Rc;
use std::task::Waker;

use wp_base::Time;

use crate::heap::{Entry, Heap};
use crate::line::Who;
use crate::runtime::TimerSink;
use crate::tasks::TaskId;

/// What a timer does when its time has come.
pub(crate) enum Fire {
    /// Wakes a sleeping task.
    Task(TaskId),
    /// A task's burst of CPU time is over.
    Cpu(TaskId),
    /// Wakes through a waker that is not the runtime's own.
    Foreign(Waker),
    /// Calls back in interrupt context.
    Sink(Rc<dyn TimerSink>, u64),
}

impl From<Who> for Fire {
    #[inline]
    fn from(who: Who) -> Fire {
        match who {
            Who::Task(id) => Fire::Task(id),
            Who::Foreign(waker) => Fire::Foreign(waker),
        }
    }
}

/// Names a timer; stale once it fired or was cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerKey {
    slot: u32,
    seq: u64,
}

struct Slot {
    seq: u64,
    fire: Option<Fire>,
}

/// A heap of times over a slab of effects. Cancelling empties the slot; the heap forgets the
/// entry when it comes to the top, or when more than half of it is dead.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Heap,
    slots: Vec<Slot>,
    free: Vec<u32>,
    next_seq: u64,
    dead: usize,
}

/// Below this many dead entries the heap is never rebuilt.
const DEAD_MIN: usize = 64;

impl Timers {
    /// Arms a timer.
    #[inline]
    pub fn push(&mut self, at: Time, fire: Fire) -> TimerKey {
        let key = self.enter(at);
        // Written here, inlined, and in place: handing the effect through memory costs a tenth of
        // the whole wake-up (wide loads of what narrow stores have just written).
        self.slots[key.slot as usize].fire = Some(fire);
        key
    }

    /// A place in the heap and an empty slot.
    fn enter(&mut self, at: Time) -> TimerKey {
        self.next_seq += 1;
        let seq = self.next_seq;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { seq, fire: None });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 timers at once")
        });
        self.slots[slot as usize].seq = seq;
        self.heap.push(Entry { at: at.0, seq, slot });
        TimerKey { slot, seq }
    }

    /// The effect of a timer that has neither fired nor been cancelled.
    #[inline]
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut Fire> {
        let s = self.slots.get_mut(key.slot as usize)?;
        if s.seq == key.seq { s.fire.as_mut() } else { None }
    }

    /// Removes a timer; returns its effect, to be dropped where no borrow is held.
    pub fn cancel(&mut self, key: TimerKey) -> Option<Fire> {
        // After a power cut there are no slots.
        let s = self.slots.get_mut(key.slot as usize)?;
        if s.seq != key.seq {
            return None;
        }
        let fire = s.fire.take()?;
        // Sequence 0 is given to no timer.
        s.seq = 0;
        self.free.push(key.slot);
        self.dead += 1;
        if self.dead >= DEAD_MIN && self.dead * 2 > self.heap.len() {
            let slots = &self.slots;
            self.heap.retain(|e| slots[e.slot as usize].seq == e.seq);
            self.dead = 0;
        }
        Some(fire)
    }

    /// Time of the next timer.
    #[inline]
    pub fn next_at(&mut self) -> Option<Time> {
        loop {
            let top = self.heap.peek()?;
            if self.dead == 0 || self.slots[top.slot as usize].seq == top.seq {
                return Some(Time(top.at));
            }
            self.heap.pop();
            self.dead -= 1;
        }
    }

    /// Takes the next timer out. Call only after [`Timers::next_at`] has said that there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<Fire> {
        let top = self.heap.pop()?;
        let s = &mut self.slots[top.slot as usize];
        s.seq = 0;
        self.free.push(top.slot);
        s.fire.take()
    }

    /// Live timers' effects, in no meaningful order.
    pub fn effects(&self) -> impl Iterator<Item = &Fire> {
        self.slots.iter().filter_map(|s| s.fire.as_ref())
    }

    /// Takes all effects out, in slot order.
    pub fn clear(&mut self) -> Vec<Fire> {
        self.heap.clear();
        self.dead = 0;
        self.free.clear();
        std::mem::take(&mut self.slots).into_iter().filter_map(|s| s.fire).collect()
    }
}
