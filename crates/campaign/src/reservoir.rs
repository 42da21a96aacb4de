//! Some of the states that an explorer visits, chosen as they come.

use std::rc::Rc;

use wp_base::rng::Rng;
use wp_crash::{History, Kept, Outcome, Visit};

/// A state that was taken.
pub struct Taken {
    /// Its crash point, by number.
    pub frame: usize,
    /// Unpersisted units that it keeps.
    pub kept: Kept,
    /// What recovery left.
    pub outcome: Rc<Outcome>,
    /// Operations that had been called, and returned, by then.
    pub operations: (u32, u32),
}

impl Taken {
    /// Unpersisted units of its frame that are lost, by their place in it.
    pub fn lost(&self, history: &History) -> Vec<usize> {
        let live = history.frames[self.frame].live.len();
        (0..live).filter(|i| !self.kept.has(*i)).collect()
    }
}

/// A fixed number of states of a stream whose length is not known, each with the same probability.
pub struct Reservoir {
    rng: Rng,
    most: usize,
    offered: u64,
    taken: Vec<Taken>,
}

impl Reservoir {
    /// For `most` states; which, is decided by the seed and the name.
    pub fn new(most: usize, seed: u64, name: &str) -> Reservoir {
        Reservoir { rng: Rng::stream(seed, name), most, offered: 0, taken: Vec::new() }
    }

    /// One more comes by.
    pub fn offer(&mut self, v: &Visit<'_>) {
        self.offered += 1;
        let at = match self.taken.len() < self.most {
            true => self.taken.len() as u64,
            false => self.rng.below(self.offered),
        };
        let state = || Taken {
            frame: v.frame,
            kept: v.kept.clone(),
            outcome: v.outcome.clone(),
            operations: v.operations,
        };
        if at == self.taken.len() as u64 && self.taken.len() < self.most {
            self.taken.push(state());
        } else if let Some(place) = self.taken.get_mut(at as usize) {
            *place = state();
        }
    }

    /// What it holds; it is empty then, and begins anew.
    pub fn take(&mut self) -> Vec<Taken> {
        self.offered = 0;
        std::mem::take(&mut self.taken)
    }
}
