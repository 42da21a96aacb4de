//! Which slot of the flash holds which slot of the host.
//!
//! Invariants: 1. `p2l` of `l2p` of a slot is that slot;
//!             2. a superblock's `valid` counts the slots in it that `l2p` points to;
//!             3. a superblock is erased only when it is `Victim`, nothing in it is valid, and
//!                every unit that was open or in flight when its last slot went is programmed.
//! Left out:   the time and flash that keeping the map itself takes; wear levelling beyond taking
//! free superblocks in
//!             the order in which they were erased.

use std::collections::VecDeque;

use crate::nand::Geometry;
use crate::ssd::runmap::{NONE, Run, RunMap};

/// Who fills a program unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Host = 0,
    Gc = 1,
}

/// State of a superblock. FREE -take_unit-> OPEN -take_unit (its last)-> CLOSED -pick_victim->
/// VICTIM -erased-> FREE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SuperState {
    Free,
    Open,
    Closed,
    Victim,
}

/// A superblock.
#[derive(Clone, Copy)]
pub(crate) struct Superblock {
    pub(crate) state: SuperState,
    /// Slots that hold the newest data of their host slot.
    pub(crate) valid: u32,
    /// Program units handed out and not yet programmed.
    pub(crate) flying: u32,
    pub(crate) erases: u32,
}

/// A superblock that is being filled.
#[derive(Clone, Copy)]
struct Filling {
    superblock: u32,
    units: u32,
}

/// The map and the superblocks.
#[derive(Clone)]
pub(crate) struct Ftl {
    geometry: Geometry,
    l2p: RunMap,
    p2l: RunMap,
    superblocks: Vec<Superblock>,
    free: VecDeque<u32>,
    filling: [Option<Filling>; 2],
    soon: [u32; 8],
    soon_used: usize,
}

/// Superblocks that only garbage collection may take: moving one never needs more than one new one.
const GC_RESERVE: usize = 1;

impl Ftl {
    pub(crate) fn new(geometry: Geometry, user_slots: u32) -> Ftl {
        let fresh = Superblock { state: SuperState::Free, valid: 0, flying: 0, erases: 0 };
        Ftl {
            geometry,
            l2p: RunMap::new(user_slots),
            p2l: RunMap::new(geometry.superblocks * geometry.superblock_slots),
            superblocks: vec![fresh; geometry.superblocks as usize],
            free: (0..geometry.superblocks).collect(),
            filling: [None; 2],
            soon: [0; 8],
            soon_used: 0,
        }
    }

    /// Bytes that the map takes, besides a few per superblock.
    pub(crate) fn map_bytes(&self) -> u64 {
        (self.l2p.parts_in_memory() + self.p2l.parts_in_memory()) as u64 * 2048
    }

    pub(crate) fn free_superblocks(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn superblock(&self, number: u32) -> &Superblock {
        &self.superblocks[number as usize]
    }

    /// Superblock of a flash slot.
    pub(crate) fn superblock_of(&self, ppa: u32) -> u32 {
        ppa / self.geometry.superblock_slots
    }

    /// Is any program unit of the superblock that holds `ppa` handed out and not yet programmed?
    pub(crate) fn may_be_flying(&self, ppa: u32) -> bool {
        self.superblock(self.superblock_of(ppa)).flying > 0
    }

    /// Where `len` host slots from `lpn` are; may tell of fewer.
    pub(crate) fn find(&self, lpn: u32, len: u32) -> Run {
        self.l2p.run(lpn, len)
    }

    /// `lpn` will be mapped soon. Some of these are looked at together, because then they wait for
    /// memory together (as [`wp_medium::Medium::touch`]); no result depends on it.
    pub(crate) fn touch_soon(&mut self, lpn: u32) {
        self.soon[self.soon_used] = lpn;
        self.soon_used += 1;
        if self.soon_used == self.soon.len() {
            self.soon_used = 0;
            for lpn in self.soon {
                std::hint::black_box(self.l2p.touch(lpn));
            }
        }
    }

    pub(crate) fn find_one(&self, lpn: u32) -> u32 {
        self.l2p.get(lpn)
    }

    /// What `len` flash slots from `ppa` were written for; may tell of fewer.
    pub(crate) fn owner(&self, ppa: u32, len: u32) -> Run {
        self.p2l.run(ppa, len)
    }

    /// Program units that `stream` can still get.
    pub(crate) fn units_left(&self, stream: Stream) -> u32 {
        let all = self.geometry.superblock_units;
        let here = self.filling[stream as usize].map_or(0, |f| all - f.units);
        let kept = if stream == Stream::Host { GC_RESERVE } else { 0 };
        here + (self.free.len().saturating_sub(kept) as u32).min(1) * all
    }

    /// Hands out the next program unit. Panics if there is none: callers ask `units_left` first.
    pub(crate) fn take_unit(&mut self, stream: Stream) -> u32 {
        let filling = &mut self.filling[stream as usize];
        let mut f = filling.take().unwrap_or_else(|| {
            let superblock = self.free.pop_front().expect("units_left has said so");
            Filling { superblock, units: 0 }
        });
        let unit = f.superblock * self.geometry.superblock_units + f.units;
        f.units += 1;
        let block = &mut self.superblocks[f.superblock as usize];
        block.flying += 1;
        block.state = SuperState::Closed;
        if f.units < self.geometry.superblock_units {
            block.state = SuperState::Open;
            *filling = Some(f);
        }
        unit
    }

    /// A unit has been programmed.
    pub(crate) fn unit_programmed(&mut self, unit: u32) {
        self.superblocks[(unit / self.geometry.superblock_units) as usize].flying -= 1;
    }

    /// Maps `len` host slots from `lpn` to flash slots from `ppa`. Tells `old` where they were, or
    /// `NONE`.
    pub(crate) fn map(
        &mut self,
        lpn: u32,
        len: u32,
        ppa: u32,
        mut old: impl FnMut(&[Superblock], Run),
    ) {
        let Ftl { geometry, l2p, p2l, superblocks, .. } = self;
        l2p.set(lpn, len, ppa, |run| {
            drop_valid(superblocks, geometry.superblock_slots, run);
            old(superblocks, run);
        });
        p2l.set(ppa, len, lpn, |run| {
            debug_assert_eq!(run.value, NONE, "flash slot {} is taken", run.at)
        });
        superblocks[(ppa / geometry.superblock_slots) as usize].valid += len;
    }

    /// Forgets where `len` host slots from `lpn` are. Tells `old` where they were, or `NONE`.
    pub(crate) fn unmap(&mut self, lpn: u32, len: u32, mut old: impl FnMut(&[Superblock], Run)) {
        let Ftl { geometry, l2p, superblocks, .. } = self;
        l2p.set(lpn, len, NONE, |run| {
            drop_valid(superblocks, geometry.superblock_slots, run);
            old(superblocks, run);
        });
    }

    /// The closed superblock with the least valid slots; the lowest of equals. `None` if moving
    /// none would help.
    pub(crate) fn pick_victim(&mut self) -> Option<u32> {
        let closed = self.superblocks.iter().enumerate();
        let closed = closed.filter(|(_, s)| s.state == SuperState::Closed && s.flying == 0);
        let (victim, block) = closed.min_by_key(|(_, s)| s.valid)?;
        if block.valid + self.geometry.unit_slots > self.geometry.superblock_slots {
            return None;
        }
        self.superblocks[victim].state = SuperState::Victim;
        Some(victim as u32)
    }

    /// Everything valid has left `victim`: forgets what it held, before its erase.
    pub(crate) fn empty_victim(&mut self, victim: u32) {
        let block = &self.superblocks[victim as usize];
        assert_eq!(
            (block.state, block.valid),
            (SuperState::Victim, 0),
            "superblock {victim} is not empty"
        );
        let slots = self.geometry.superblock_slots;
        self.p2l.set(victim * slots, slots, NONE, |_| {});
    }

    /// The erase of `victim` is over.
    pub(crate) fn erased(&mut self, victim: u32) {
        let block = &mut self.superblocks[victim as usize];
        block.state = SuperState::Free;
        block.erases += 1;
        self.free.push_back(victim);
    }

    /// Panics unless the invariants hold. Walks everything.
    pub(crate) fn assert_valid(&self, user_slots: u32) {
        let mut valid = vec![0u32; self.superblocks.len()];
        let mut lpn = 0;
        while lpn < user_slots {
            let run = self.l2p.run(lpn, user_slots - lpn);
            if run.value != NONE {
                for i in 0..run.len {
                    assert_eq!(
                        self.p2l.get(run.value + i),
                        lpn + i,
                        "owner of flash slot {}",
                        run.value + i
                    );
                    valid[self.superblock_of(run.value + i) as usize] += 1;
                }
            }
            lpn += run.len;
        }
        for (i, s) in self.superblocks.iter().enumerate() {
            assert_eq!(s.valid, valid[i], "valid slots of superblock {i}");
            assert_eq!(
                s.state == SuperState::Free,
                self.free.contains(&(i as u32)),
                "superblock {i}"
            );
        }
    }
}

/// The flash slots of `run` hold nothing of worth any more.
fn drop_valid(superblocks: &mut [Superblock], superblock_slots: u32, run: Run) {
    if run.value == NONE {
        return;
    }
    // A run may go on from one superblock into the next.
    let (mut ppa, end) = (run.value, run.value + run.len);
    while ppa < end {
        let block = ppa / superblock_slots;
        let n = end.min((block + 1) * superblock_slots) - ppa;
        superblocks[block as usize].valid -= n;
        ppa += n;
    }
}
