//! What may be merged with what, and the index that finds the request that a bio continues.
//!
//! Rules (`blk_rq_merge_ok()`, `ll_back_merge_fn()`): same operation; no [`Flags::PREFLUSH`],
//! [`Flags::FUA`] or flush on either side; neither started; together within `max_sectors` and
//! `max_segments`. [`Flags::SYNC`] may differ as far as this file goes: CFQ refuses it, noop does
//! not. A merged request keeps its own flags. An untorn write ([`Flags::ATOMIC`]) is merged with
//! untorn ones only, up to `atomic_write_max_bytes` and within one boundary.
//! Ours: what is ordered is merged with its own epoch only (`epoch.rs`), so with nothing that was
//!       submitted behind its [`Flags::BARRIER`]; where in the epoch the barrier stands does not
//!       matter, as it goes to whatever is dispatched last. (BarrierFS's published kernel merges
//!       across epochs, and ordered with orderless.)

use wp_base::Sector;
use wp_base::event::{Flags, Op};

use crate::device::Limits;
use crate::pool::{BioInfo, NONE, Pool, Request, RqId, State};

/// On which side a bio joins a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Back,
    Front,
}

/// The side on which `bio` touches the request, if their kinds agree.
pub(crate) fn side(rq: &Request, bio: &BioInfo) -> Option<Side> {
    let kinds = kinds_agree(rq.flags, bio.flags) && rq.epoch == bio.epoch;
    if rq.op != bio.op || !rq.is_mergeable() || !kinds {
        return None;
    }
    if rq.end() == bio.at {
        Some(Side::Back)
    } else if bio.end() == rq.at {
        Some(Side::Front)
    } else {
        None
    }
}

fn kinds_agree(rq: Flags, bio: Flags) -> bool {
    let alike = Flags::ORDERED | Flags::ATOMIC;
    !bio.any(Flags::PREFLUSH | Flags::FUA) && (rq.0 ^ bio.0) & alike.0 == 0
}

/// Would a request over `at..end` be untorn still, if it is
/// (`rq_straddles_atomic_write_boundary()`, `blk_queue_get_max_sectors()`)?
fn is_untorn(limits: &Limits, flags: Flags, at: Sector, end: Sector) -> bool {
    let fits = || limits.atomic().is_some_and(|a| a.is_request(at, end.0 - at.0));
    !flags.has(Flags::ATOMIC) || fits()
}

/// Would a request of `sectors` and `segments` more be within the limits? Discards have no data to
/// limit.
fn fits(limits: &Limits, rq: &Request, sectors: u32, segments: u32) -> bool {
    if rq.op == Op::Discard {
        return rq.sectors.checked_add(sectors).is_some();
    }
    u64::from(rq.sectors) + u64::from(sectors) <= u64::from(limits.max_sectors)
        && u64::from(rq.segments) + u64::from(segments) <= u64::from(limits.max_segments)
}

/// Would a request over `at..end` lie in one zone (`blk_chunk_sectors_left()`)?
fn is_in_one_zone(limits: &Limits, at: Sector, end: Sector) -> bool {
    limits.zones.is_none_or(|zones| zones.is_within_one(at, end))
}

/// Widens the request by `bio`. False if it would become too large: then nothing is tried with it
/// again.
pub(crate) fn grow(rq: &mut Request, bio: &BioInfo, side: Side, limits: &Limits) -> bool {
    let (at, end) = (rq.at.min(bio.at), rq.end().max(bio.end()));
    let fits = fits(limits, rq, bio.sectors, bio.segments) && is_untorn(limits, rq.flags, at, end);
    if !fits || !is_in_one_zone(limits, at, end) {
        rq.state.set(State::NOMERGE);
        return false;
    }
    rq.sectors += bio.sectors;
    rq.segments += bio.segments;
    match side {
        Side::Front => rq.at = bio.at,
        Side::Back => {}
    }
    rq.flags |= Flags(bio.flags.0 & Flags::BARRIER.0);
    true
}

/// May `next` be appended to `rq` (`attempt_merge()`)?
pub(crate) fn can_append(pool: &Pool, rq: RqId, next: RqId, limits: &Limits) -> bool {
    let (a, b) = (&pool[rq], &pool[next]);
    a.op == b.op
        && a.is_mergeable()
        && b.is_mergeable()
        && a.end() == b.at
        && kinds_agree(a.flags, b.flags)
        && a.epoch == b.epoch
        && fits(limits, a, b.sectors, b.segments)
        && is_in_one_zone(limits, a.at, b.end())
        && is_untorn(limits, a.flags, a.at, b.end())
}

/// Buckets of the index (`ELV_HASH_ENTRIES`).
const BUCKETS: usize = 64;

/// Queued requests by the sector behind them (the elevator core's hash), and the one that was
/// merged with last.
pub(crate) struct MergeIndex {
    heads: [u32; BUCKETS],
    /// `q->last_merge`: tried first.
    pub last: Option<RqId>,
}

impl Default for MergeIndex {
    fn default() -> MergeIndex {
        MergeIndex { heads: [NONE; BUCKETS], last: None }
    }
}

fn bucket(sector: u64) -> usize {
    // Fibonacci hashing on 4 KiB units, as `hash_long(sector >> 3)`; the upper bits are the
    // well-mixed ones.
    ((sector >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}

impl MergeIndex {
    /// Adds a request, newest first.
    pub fn add(&mut self, pool: &mut Pool, rq: RqId) {
        let key = pool[rq].end().0;
        let head = std::mem::replace(&mut self.heads[bucket(key)], rq.0);
        let r = &mut pool[rq];
        r.state.set(State::HASHED);
        (r.hash_key, r.hash_prev, r.hash_next) = (key, NONE, head);
        if head != NONE {
            pool[RqId(head)].hash_prev = rq.0;
        }
    }

    /// Removes a request if it is there.
    pub fn remove(&mut self, pool: &mut Pool, rq: RqId) {
        if self.last == Some(rq) {
            self.last = None;
        }
        let r = &mut pool[rq];
        if !r.state.has(State::HASHED) {
            return;
        }
        r.state.clear(State::HASHED);
        let (key, prev, next) = (r.hash_key, r.hash_prev, r.hash_next);
        if prev == NONE {
            self.heads[bucket(key)] = next;
        } else {
            pool[RqId(prev)].hash_next = next;
        }
        if next != NONE {
            pool[RqId(next)].hash_prev = prev;
        }
    }

    /// After a merge at its back: files it under its new end.
    pub fn moved(&mut self, pool: &mut Pool, rq: RqId) {
        let last = self.last;
        if pool[rq].state.has(State::HASHED) {
            self.remove(pool, rq);
            self.add(pool, rq);
        }
        self.last = last;
    }

    /// A mergeable request that ends at `at`.
    pub fn ending_at(&self, pool: &Pool, at: Sector) -> Option<RqId> {
        let mut slot = self.heads[bucket(at.0)];
        while slot != NONE {
            let r = &pool[RqId(slot)];
            if r.hash_key == at.0 && r.is_mergeable() {
                return Some(RqId(slot));
            }
            slot = r.hash_next;
        }
        None
    }
}
