//! Tasks that wait for a bio, in slots that are used again.

use std::rc::Rc;

use wp_rt::{Completion, Rt};

use crate::bio::BioEnd;

/// Names no slot.
pub(crate) const NO_SLOT: u32 = u32::MAX;

struct Waiter {
    done: Rc<Completion>,
    end: Option<BioEnd>,
    /// Nobody waits any more.
    abandoned: bool,
}

#[derive(Default)]
pub(crate) struct Waiters {
    slots: Vec<Waiter>,
    free: Vec<u32>,
}

impl Waiters {
    /// A slot for a task that is going to wait, and what it is going to wait for.
    pub fn start(&mut self, rt: &Rt) -> (u32, Rc<Completion>) {
        if let Some(slot) = self.free.pop() {
            return (slot, self.slots[slot as usize].done.clone());
        }
        let done = Rc::new(Completion::new(rt, "block I/O"));
        self.slots.push(Waiter { done: done.clone(), end: None, abandoned: false });
        ((self.slots.len() - 1) as u32, done)
    }

    /// The bio has ended: what to announce, with nothing borrowed.
    pub fn end(&mut self, slot: u32, end: BioEnd) -> Option<Rc<Completion>> {
        let w = &mut self.slots[slot as usize];
        if w.abandoned {
            w.abandoned = false;
            self.free.push(slot);
            return None;
        }
        w.end = Some(end);
        Some(w.done.clone())
    }

    /// The task has seen the end.
    pub fn finish(&mut self, slot: u32) -> BioEnd {
        let w = &mut self.slots[slot as usize];
        w.done.reset();
        self.free.push(slot);
        w.end.take().expect("announced ends are stored")
    }

    /// The task does not wait any more.
    pub fn abandon(&mut self, slot: u32) {
        let Some(w) = self.slots.get_mut(slot as usize) else { return };
        if w.end.take().is_some() {
            w.done.reset();
            self.free.push(slot);
        } else {
            w.abandoned = true;
        }
    }

    /// No bio will end any more.
    pub fn power_cut(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}
