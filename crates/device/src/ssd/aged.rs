//! A drive that begins old: mapped as if it had been overwritten at random for long.
//!
//! Picture:    The superblocks are as full as [`steady`] says, one of each stream half written, and
//!             as many free as collection keeps. Which of a superblock's slots are valid, and which
//!             host slot each holds, are permutations that are computed both ways: nothing is
//!             stored but a few numbers a superblock. A part of the map is written down when the
//!             first of it changes ([`crate::ssd::runmap`]).
//! Laws:       host slot -> rank -> superblock by the ranks that each has -> slot in it; and back.
//! Left out:   contents: what was not written in this life reads as the medium says, which is
//!             zeroes, at the price of a read from the flash; slots of one request next to each
//!             other.

use wp_base::Rng;

use crate::nand::Geometry;
use crate::ssd::ftl::Stream;
use crate::ssd::policy::{AgedStart, FtlConfig};
use crate::ssd::runmap::NONE;
use crate::ssd::shuffle::Shuffle;
use crate::ssd::steady::steady;

/// What an old superblock holds.
#[derive(Clone, Copy)]
struct Old {
    /// Rank of the first of its valid slots.
    first: u32,
    valid: u32,
    /// Orders its slots that are written; those that come first are valid.
    order: Option<Shuffle>,
    written: u32,
}

/// See the module.
pub(crate) struct Aged {
    superblock_slots: u32,
    mapped: u32,
    ranks: Shuffle,
    superblocks: Vec<Old>,
    /// The superblock that holds rank `n << hint_shift`.
    hints: Vec<u32>,
    hint_shift: u32,
}

/// What a superblock is at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Free,
    /// Being filled by a stream; half of its units are.
    Open(Stream),
    /// Written by a stream; the number is its age in host writes.
    Closed(Stream, u64),
}

/// Each superblock's (number, role, valid slots), in the order in which they became what they are.
pub(crate) type Roles = Vec<(u32, Role, u32)>;

impl Aged {
    /// A drive of `superblocks` usable superblocks of which `free` are erased.
    pub(crate) fn new(
        g: &Geometry,
        policy: &FtlConfig,
        start: AgedStart,
        (superblocks, free): (u32, u32),
    ) -> (Aged, Roles) {
        let mut rng = Rng::stream(policy.seed, "aged");
        let mut numbers: Vec<u32> = (0..superblocks).collect();
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let half = g.superblock_units / 2 * g.unit_slots;
        let mut left = start.mapped_slots;
        let mut roles: Roles = Vec::with_capacity(numbers.len());
        let mut numbers = numbers.into_iter();
        roles.extend(numbers.by_ref().take(free as usize).map(|n| (n, Role::Free, 0)));
        let streams = [Stream::Host, Stream::Gc, Stream::HostCold];
        let open = streams.into_iter().take(policy.host_streams() as usize + 1);
        // In this order, so that no number is taken for which there is no stream.
        for (stream, number) in open.zip(numbers.by_ref()) {
            let valid = half.min(left);
            left -= valid;
            roles.push((number, Role::Open(stream), valid));
        }
        let closed = superblocks - roles.len() as u32;
        let state = steady(policy.gc, closed, g.superblock_slots, left);
        let writes = u64::from(state.writes_per_victim);
        for ((number, valid), n) in numbers.zip(state.valid).zip(0..) {
            // Of what is written the host has as much as it writes between two collections.
            let by_host = rng.below(u64::from(g.superblock_slots)) < writes;
            let stream = if by_host { Stream::Host } else { Stream::Gc };
            roles.push((number, Role::Closed(stream, n * writes), valid));
        }
        (Aged::of(g, policy.seed, start.mapped_slots, superblocks, &roles), roles)
    }

    fn of(g: &Geometry, seed: u64, mapped: u32, superblocks: u32, roles: &Roles) -> Aged {
        let none = Old { first: 0, valid: 0, order: None, written: 0 };
        let mut old = vec![none; superblocks as usize];
        for (number, role, valid) in roles {
            let written = match role {
                Role::Free => 0,
                Role::Open(_) => g.superblock_units / 2 * g.unit_slots,
                Role::Closed(..) => g.superblock_slots,
            };
            let order = (written > 0).then(|| Shuffle::new(written, seed, 1 + u64::from(*number)));
            old[*number as usize] = Old { first: 0, valid: *valid, order, written };
        }
        let mut first = 0;
        for superblock in &mut old {
            superblock.first = first;
            first += superblock.valid;
        }
        assert_eq!(first, mapped, "every mapped slot is somewhere");
        // About four hints a superblock.
        let bits = u32::BITS - (mapped / superblocks.max(1) / 4).leading_zeros();
        let mut aged = Aged {
            superblock_slots: g.superblock_slots,
            mapped,
            ranks: Shuffle::new(mapped, seed, 0),
            superblocks: old,
            hints: Vec::new(),
            hint_shift: bits,
        };
        let mut number = 0;
        for n in 0..=(mapped - 1) >> bits {
            while !aged.holds(number, n << bits) {
                number += 1;
            }
            aged.hints.push(number);
        }
        aged
    }

    fn holds(&self, superblock: u32, rank: u32) -> bool {
        let old = &self.superblocks[superblock as usize];
        rank < old.first + old.valid
    }

    /// Flash slot of host slot `lpn`, or `NONE`.
    pub(crate) fn place(&self, lpn: u32) -> u32 {
        if lpn >= self.mapped {
            return NONE;
        }
        let rank = self.ranks.of(lpn);
        let mut number = self.hints[(rank >> self.hint_shift) as usize];
        while !self.holds(number, rank) {
            number += 1;
        }
        let old = &self.superblocks[number as usize];
        match &old.order {
            Some(order) => number * self.superblock_slots + order.from(rank - old.first),
            None => NONE,
        }
    }

    /// Host slot of flash slot `ppa` if that is valid, or `NONE`.
    pub(crate) fn owner(&self, ppa: u32) -> u32 {
        let slot = ppa % self.superblock_slots;
        match self.superblocks.get((ppa / self.superblock_slots) as usize) {
            Some(Old { first, valid, order: Some(order), written }) if slot < *written => {
                match order.of(slot) {
                    rank if rank < *valid => self.ranks.from(first + rank),
                    _ => NONE,
                }
            }
            _ => NONE,
        }
    }
}
