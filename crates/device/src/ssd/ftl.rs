//! Which slot of the flash holds which slot of the host.
//!
//! Invariants: 1. `p2l` of `l2p` of a slot is that slot;
//!             2. a superblock's `valid` counts the slots in it that `l2p` points to;
//!             3. a superblock is erased only when it is `Victim`, nothing in it is valid, and
//!                every unit that was open or in flight when its last slot went is programmed;
//!             4. `left_over` of a slot is where its last data are on the flash, if it was
//!                discarded and they have not been erased since.
//! Left out:   the time and flash that keeping the map itself takes.

use std::collections::VecDeque;
use std::rc::Rc;

use wp_base::Rng;

use crate::nand::Geometry;
use crate::ssd::SsdConfig;
use crate::ssd::aged::{Aged, Role};
use crate::ssd::blocks::{Blocks, Erased, superblocks_of};
use crate::ssd::policy::{AgedStart, FtlConfig};
use crate::ssd::runmap::{First, NONE, Run, RunMap};

/// Who fills a program unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    /// The host; where hot and cold data are kept apart, with what it overwrites often.
    Host = 0,
    /// Garbage collection.
    Gc = 1,
    /// The host, with what it overwrites rarely.
    HostCold = 2,
    /// Garbage collection, with what it moves only to level wear.
    Level = 3,
}

/// Streams that there can be.
pub(crate) const STREAMS: usize = 4;

impl Stream {
    /// Those of the host.
    pub(crate) const OF_HOST: [Stream; 2] = [Stream::Host, Stream::HostCold];

    pub(crate) fn is_host(self) -> bool {
        matches!(self, Stream::Host | Stream::HostCold)
    }
}

/// State of a superblock. FREE -take_unit-> OPEN -take_unit (its last)-> CLOSED -pick_victim->
/// VICTIM -erased-> FREE, or BAD if a block of it has failed for which there is no spare one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperState {
    /// Erased.
    Free,
    /// Being filled.
    Open,
    /// Full.
    Closed,
    /// Being collected or erased.
    Victim,
    /// Not in use: some block of it is bad.
    Bad,
}

/// A superblock.
#[derive(Clone, Copy)]
pub(crate) struct Superblock {
    pub(crate) state: SuperState,
    /// Who has filled it.
    pub(crate) stream: Stream,
    /// Slots that hold the newest data of their host slot.
    pub(crate) valid: u32,
    /// Program units handed out and not yet programmed.
    pub(crate) flying: u32,
    pub(crate) erases: u32,
    /// When the youngest of its data came from the host, by [`Ftl::clock`].
    pub(crate) youngest: u64,
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
    pub(super) geometry: Geometry,
    pub(super) policy: FtlConfig,
    user_slots: u32,
    l2p: RunMap,
    p2l: RunMap,
    /// Only where discarded slots read as what they held.
    left_over: Option<RunMap>,
    pub(super) superblocks: Vec<Superblock>,
    pub(super) free: VecDeque<u32>,
    filling: [Option<Filling>; STREAMS],
    /// Host slots written so far: the time by which data age.
    pub(super) clock: u64,
    /// Host slots that have a place on the flash.
    mapped: u32,
    pub(super) rng: Rng,
    /// Was the last victim taken for its wear?
    pub(super) levelling: bool,
    /// Only where blocks are or go bad.
    blocks: Option<Rc<Blocks>>,
    /// Superblocks in use, and with how few of them the device still works.
    usable: u32,
    usable_least: u32,
    /// Free superblocks that only garbage collection may take.
    reserve: usize,
    soon: [u32; 8],
    soon_used: usize,
}

/// Superblocks that only garbage collection may take: moving one never needs more than one new one.
const GC_RESERVE: usize = 1;

impl Ftl {
    pub(crate) fn new(config: &SsdConfig) -> Ftl {
        let (geometry, policy, user_slots) = (config.geometry, config.ftl, config.user_slots);
        let usable = superblocks_of(&geometry, policy.bad_permille, policy.seed);
        let fresh = Superblock {
            state: SuperState::Free,
            stream: Stream::Host,
            valid: 0,
            flying: 0,
            erases: policy.aged.map_or(0, |a| a.erases),
            youngest: 0,
        };
        let mut superblocks = vec![fresh; geometry.superblocks as usize];
        superblocks[usable as usize..].iter_mut().for_each(|s| s.state = SuperState::Bad);
        let blocks = (policy.bad_permille > 0 || policy.endurance > 0).then(|| {
            let numbers = (policy.bad_permille, policy.endurance);
            Rc::new(Blocks::new(&geometry, numbers, policy.seed, fresh.erases))
        });
        let mut ftl = Ftl {
            geometry,
            policy,
            user_slots,
            l2p: RunMap::new(user_slots),
            p2l: RunMap::new(geometry.superblocks * geometry.superblock_slots),
            left_over: policy.old_after_trim.then(|| RunMap::new(user_slots)),
            superblocks,
            free: (0..usable).collect(),
            filling: [None; STREAMS],
            clock: 0,
            mapped: 0,
            rng: Rng::stream(policy.seed, "ftl"),
            levelling: false,
            blocks,
            usable,
            usable_least: config.superblocks_least,
            // The superblock that was to be had by an erase that failed must be to be had again.
            reserve: GC_RESERVE + usize::from(policy.endurance > 0),
            soon: [0; 8],
            soon_used: 0,
        };
        if let Some(start) = policy.aged {
            ftl.grow_old(start, config.gc_low);
        }
        ftl
    }

    /// Turns a fresh drive into one that begins as `start` says, with `free` superblocks free.
    fn grow_old(&mut self, start: AgedStart, free: u32) {
        let (aged, roles) = Aged::new(&self.geometry, &self.policy, start, (self.usable, free));
        let aged = Rc::new(aged);
        self.l2p = RunMap::with(self.user_slots, First::Places(Rc::clone(&aged)));
        let slots = self.geometry.superblocks * self.geometry.superblock_slots;
        self.p2l = RunMap::with(slots, First::Owners(aged));
        self.mapped = start.mapped_slots;
        let age = |role: &Role| if let Role::Closed(_, age) = role { *age } else { 0 };
        self.clock = roles.iter().map(|(_, role, _)| age(role)).max().unwrap_or(0);
        self.free.clear();
        for (number, role, valid) in roles {
            let block = &mut self.superblocks[number as usize];
            block.valid = valid;
            match role {
                Role::Free => self.free.push_back(number),
                Role::Open(stream) => {
                    let units = self.geometry.superblock_units / 2;
                    (block.state, block.stream) = (SuperState::Open, stream);
                    block.youngest = self.clock;
                    self.filling[stream as usize] = Some(Filling { superblock: number, units });
                }
                Role::Closed(stream, age) => {
                    (block.state, block.stream) = (SuperState::Closed, stream);
                    block.youngest = self.clock - age;
                }
            }
        }
    }

    /// Bytes that the map takes, besides a few per superblock.
    pub(crate) fn map_bytes(&self) -> u64 {
        let maps = [Some(&self.l2p), Some(&self.p2l), self.left_over.as_ref()];
        maps.into_iter().flatten().map(|m| m.parts_in_memory() as u64 * 2048).sum()
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

    /// `lpn` will be mapped soon. Eight of these are read together, so that their cache misses
    /// overlap (as [`wp_medium::Medium::touch`]); no result depends on it.
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

    /// Soon it is asked where the owners of `len` flash slots from `ppa` are, and they are mapped
    /// anew: as [`Ftl::touch_soon`].
    pub(crate) fn touch_owners(&self, ppa: u32, len: u32) {
        self.p2l.each_stored(ppa, len, |lpn| {
            std::hint::black_box(self.l2p.touch(lpn));
        });
    }

    /// As [`Ftl::find`], and where discarded slots have left their data, if they can be read.
    pub(crate) fn find_readable(&self, lpn: u32, len: u32) -> Run {
        let run = self.l2p.run(lpn, len);
        match &self.left_over {
            Some(left_over) if run.value == NONE => left_over.run(lpn, run.len),
            _ => run,
        }
    }

    /// Which host stream takes what is written from `lpn`, told by its first slot.
    ///
    /// Between two writes of a slot there are as many others, in the mean over all writes, as slots
    /// are mapped, whatever is written how often. What comes back sooner is hot.
    pub(crate) fn stream_of(&self, lpn: u32) -> Stream {
        if !self.policy.hot_cold {
            return Stream::Host;
        }
        let ppa = self.l2p.get(lpn);
        if ppa == NONE {
            return Stream::HostCold;
        }
        let block = self.superblock(self.superblock_of(ppa));
        if block.stream.is_host() && self.clock - block.youngest < u64::from(self.mapped) {
            Stream::Host
        } else {
            Stream::HostCold
        }
    }

    /// What `len` flash slots from `ppa` were written for; may tell of fewer.
    pub(crate) fn owner(&self, ppa: u32, len: u32) -> Run {
        self.p2l.run(ppa, len)
    }

    /// Calls `f` for every valid flash slot of superblock `number`.
    pub(crate) fn each_valid(&self, number: u32, mut f: impl FnMut(u32)) {
        let (first, end) = self.slots_of(number);
        let mut ppa = first;
        while ppa < end {
            let owner = self.p2l.run(ppa, end - ppa);
            let valid = |i: &u32| self.l2p.get(owner.value + i) == ppa + i;
            if owner.value != NONE {
                (0..owner.len).filter(valid).for_each(|i| f(ppa + i));
            }
            ppa += owner.len;
        }
    }

    /// Flash slots of superblock `number`: first, and the one after the last.
    fn slots_of(&self, number: u32) -> (u32, u32) {
        let slots = self.geometry.superblock_slots;
        (number * slots, (number + 1) * slots)
    }

    /// Program units that `stream` can still get.
    pub(crate) fn units_left(&self, stream: Stream) -> u32 {
        let all = self.geometry.superblock_units;
        let here = self.filling[stream as usize].map_or(0, |f| all - f.units);
        let kept = if stream.is_host() { self.reserve } else { 0 };
        here + (self.free.len().saturating_sub(kept) as u32).min(1) * all
    }

    /// Hands out the next program unit. Panics if there is none: callers ask `units_left` first.
    pub(crate) fn take_unit(&mut self, stream: Stream) -> u32 {
        let filling = self.filling[stream as usize].take();
        let mut f =
            filling.unwrap_or_else(|| Filling { superblock: self.take_free(stream), units: 0 });
        let unit = f.superblock * self.geometry.superblock_units + f.units;
        f.units += 1;
        let block = &mut self.superblocks[f.superblock as usize];
        block.flying += 1;
        block.stream = stream;
        block.state = SuperState::Closed;
        if f.units < self.geometry.superblock_units {
            block.state = SuperState::Open;
            self.filling[stream as usize] = Some(f);
        }
        unit
    }

    /// The free superblock that `stream` gets: that which has been free for longest; where wear is
    /// levelled the least worn, but for what is moved to level it the most worn.
    fn take_free(&mut self, stream: Stream) -> u32 {
        let erases = |number: &u32| self.superblocks[*number as usize].erases;
        let places = (0..self.free.len()).zip(self.free.iter().map(erases));
        let place = match stream {
            _ if self.policy.wear_gap == 0 => Some(0),
            Stream::Level => places.max_by_key(|p| p.1).map(|p| p.0),
            _ => places.min_by_key(|p| p.1).map(|p| p.0),
        };
        place.and_then(|i| self.free.remove(i)).expect("units_left has said so")
    }

    /// A unit has been programmed.
    pub(crate) fn unit_programmed(&mut self, unit: u32) {
        self.superblocks[(unit / self.geometry.superblock_units) as usize].flying -= 1;
    }

    /// Maps `len` host slots from `lpn`, written by the host, to flash slots from `ppa`. Tells
    /// `old` where they were, or `NONE`.
    pub(crate) fn map(
        &mut self,
        lpn: u32,
        len: u32,
        ppa: u32,
        old: impl FnMut(&[Superblock], Run),
    ) {
        self.clock += u64::from(len);
        if let Some(left_over) = &mut self.left_over {
            left_over.set(lpn, len, NONE, |_| {});
        }
        self.map_to(lpn, len, ppa, old);
        let block = &mut self.superblocks[(ppa / self.geometry.superblock_slots) as usize];
        block.youngest = self.clock;
    }

    /// Maps `len` host slots from `lpn`, which were in superblock `from`, to flash slots from
    /// `ppa`.
    pub(crate) fn map_moved(&mut self, lpn: u32, len: u32, from: u32, ppa: u32) {
        self.map_to(lpn, len, ppa, |_, _| {});
        let youngest = self.superblock(from).youngest;
        let block = &mut self.superblocks[(ppa / self.geometry.superblock_slots) as usize];
        block.youngest = block.youngest.max(youngest);
    }

    fn map_to(&mut self, lpn: u32, len: u32, ppa: u32, mut old: impl FnMut(&[Superblock], Run)) {
        let Ftl { geometry, l2p, p2l, superblocks, mapped, .. } = self;
        *mapped += len;
        l2p.set(lpn, len, ppa, |run| {
            *mapped -= drop_valid(superblocks, geometry.superblock_slots, run);
            old(superblocks, run);
        });
        p2l.set(ppa, len, lpn, |run| {
            debug_assert_eq!(run.value, NONE, "flash slot {} is taken", run.at)
        });
        superblocks[(ppa / geometry.superblock_slots) as usize].valid += len;
    }

    /// Forgets where `len` host slots from `lpn` are. Tells `old` where they were, or `NONE`.
    pub(crate) fn unmap(&mut self, lpn: u32, len: u32, mut old: impl FnMut(&[Superblock], Run)) {
        let Ftl { geometry, l2p, superblocks, mapped, left_over, .. } = self;
        l2p.set(lpn, len, NONE, |run| {
            *mapped -= drop_valid(superblocks, geometry.superblock_slots, run);
            old(superblocks, run);
            if let Some(left_over) = left_over.as_mut().filter(|_| run.value != NONE) {
                left_over.set(run.at, run.len, run.value, |_| {});
            }
        });
    }

    /// Everything valid has left `victim`: forgets what it held, before its erase. Tells `gone` the
    /// host slots, as (first, how many), of which discarded data were still to be read there.
    pub(crate) fn empty_victim(&mut self, victim: u32, mut gone: impl FnMut(u32, u32)) {
        let block = &self.superblocks[victim as usize];
        assert_eq!(
            (block.state, block.valid),
            (SuperState::Victim, 0),
            "superblock {victim} is not empty"
        );
        let (first, end) = self.slots_of(victim);
        let Ftl { p2l, left_over, .. } = self;
        if let Some(left_over) = left_over {
            let mut ppa = first;
            while ppa < end {
                let mut owner = p2l.run(ppa, end - ppa);
                if owner.value != NONE {
                    let left = left_over.run(owner.value, owner.len);
                    owner.len = left.len;
                    if left.value == ppa {
                        gone(left.at, left.len);
                        left_over.set(left.at, left.len, NONE, |_| {});
                    }
                }
                ppa += owner.len;
            }
        }
        p2l.forget(first, end - first);
    }

    /// The erase of `victim` is over.
    pub(crate) fn erased(&mut self, victim: u32) {
        let block = &mut self.superblocks[victim as usize];
        block.erases += 1;
        block.youngest = 0;
        let erased = self.blocks.as_mut().map(|b| Rc::make_mut(b).erased(victim, block.erases));
        if erased == Some(Erased::GivenUp) {
            block.state = SuperState::Bad;
            self.usable -= 1;
        } else {
            block.state = SuperState::Free;
            self.free.push_back(victim);
        }
    }

    /// Have too many blocks failed, so that the drive's capacity has no room to be rewritten?
    pub(crate) fn is_worn_out(&self) -> bool {
        self.usable < self.usable_least
    }

    /// Flash blocks that are bad, and those that stand by in the plane that has the fewest.
    pub(crate) fn bad_and_spare(&self) -> (u32, u32) {
        self.blocks.as_ref().map_or((0, 0), |b| (b.bad(), b.spare_least()))
    }

    /// Panics unless the invariants hold. Walks everything.
    pub(crate) fn assert_valid(&self) {
        let user_slots = self.user_slots;
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
        assert_eq!(self.mapped, valid.iter().sum::<u32>(), "slots that have a place");
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

/// The flash slots of `run` hold nothing of worth any more. Returns how many did.
fn drop_valid(superblocks: &mut [Superblock], superblock_slots: u32, run: Run) -> u32 {
    if run.value == NONE {
        return 0;
    }
    // A run may go on from one superblock into the next.
    let (mut ppa, end) = (run.value, run.value + run.len);
    while ppa < end {
        let block = ppa / superblock_slots;
        let n = end.min((block + 1) * superblock_slots) - ppa;
        superblocks[block as usize].valid -= n;
        ppa += n;
    }
    run.len
}
