//! Which superblock garbage collection takes next.

use crate::ssd::ftl::{Ftl, SuperState, Superblock};
use crate::ssd::policy::GcPolicy;

impl Ftl {
    /// The closed superblock that the policy takes, or, if superblocks are worn too differently,
    /// the least worn. `None` if moving none would help.
    pub(crate) fn pick_victim(&mut self) -> Option<u32> {
        let level = self.least_worn();
        // Every other time at most: moving what is cold makes no room.
        self.levelling = level.is_some() && !self.levelling;
        let victim = match level.filter(|_| self.levelling) {
            Some(victim) => victim,
            None => self.by_policy().or_else(|| self.greedy(1))?,
        };
        self.superblocks[victim as usize].state = SuperState::Victim;
        Some(victim)
    }

    fn closed(&self) -> impl Iterator<Item = (u32, &Superblock)> {
        let all = (0u32..).zip(&self.superblocks);
        all.filter(|(_, s)| s.state == SuperState::Closed && s.flying == 0)
    }

    /// Does moving it make room for at least `units` program units?
    fn makes_room(&self, block: &Superblock, units: u32) -> bool {
        block.valid + units * self.geometry.unit_slots <= self.geometry.superblock_slots
    }

    /// The one with the least valid slots; the lowest of equals.
    fn greedy(&self, units: u32) -> Option<u32> {
        let (victim, block) = self.closed().min_by_key(|(_, s)| s.valid)?;
        self.makes_room(block, units).then_some(victim)
    }

    /// What the policy takes, if that makes more room than moving it may waste, what is moved for
    /// its wear in between included.
    fn by_policy(&mut self) -> Option<u32> {
        let units = 1 + u32::from(self.policy.wear_gap > 0);
        match self.policy.gc {
            GcPolicy::Greedy => self.greedy(units),
            GcPolicy::CostBenefit => {
                let slots = u64::from(self.geometry.superblock_slots);
                let closed = self.closed().filter(|(_, s)| self.makes_room(s, units));
                // Twice the benefit over the cost as (numerator, denominator); what costs nothing
                // goes before all others.
                let score = |s: &Superblock| {
                    let age = u128::from(self.clock - s.youngest) + 1;
                    (age * u128::from(slots - u64::from(s.valid)), u128::from(s.valid))
                };
                let better = |a: &(u32, &Superblock), b: &(u32, &Superblock)| {
                    let (a_num, a_den) = score(a.1);
                    let (b_num, b_den) = score(b.1);
                    (a_num * b_den).cmp(&(b_num * a_den)).then(b.0.cmp(&a.0))
                };
                closed.max_by(better).map(|(victim, _)| victim)
            }
            GcPolicy::Choices(choices) => {
                let closed: Vec<u32> = self.closed().map(|(number, _)| number).collect();
                if closed.is_empty() {
                    return None;
                }
                let mut draw = || closed[self.rng.below(closed.len() as u64) as usize];
                let drawn: Vec<u32> = (0..choices).map(|_| draw()).collect();
                let best = drawn.into_iter().min_by_key(|v| self.superblock(*v).valid)?;
                self.makes_room(self.superblock(best), units).then_some(best)
            }
        }
    }

    /// The least worn closed superblock, if a free one is worn so much more that its data, which
    /// have stayed for long, are to be moved there (Chang: "On efficient wear leveling for
    /// large-scale flash-memory storage systems", 2007: the swap of dual pools).
    fn least_worn(&self) -> Option<u32> {
        if self.policy.wear_gap == 0 {
            return None;
        }
        let most = self.free.iter().map(|number| self.superblock(*number).erases).max()?;
        let (number, block) = self.closed().min_by_key(|(_, s)| s.erases)?;
        (most.saturating_sub(block.erases) > self.policy.wear_gap).then_some(number)
    }
}
