//! Contents of a device with a simple volatile cache: what is there, what is durable, what lies
//! between.
//!
//! Invariants: 1. `durable` with all of `dirty` applied in order is `current`;
//!             2. what is in `dirty` holds at most `cache_bytes`: the oldest becomes durable when
//!                it would hold more.

use wp_base::{SECTOR_BYTES, Sector};
use wp_block::{CrashView, FlushSet, LossEffect, LossUnit, LossWhy};
use wp_medium::{Medium, Slice};

use crate::chain::Chain;

/// A completed write (or discard: zeroes) that a power cut may take.
#[derive(Clone)]
struct Dirty {
    /// One, unless later writes that went through have cut it up.
    pieces: Vec<Piece>,
    /// Sectors of cache that it takes.
    room: u64,
    /// Barriers before it.
    epoch: u32,
}

#[derive(Clone)]
struct Piece {
    at: Sector,
    sectors: u64,
    data: Vec<Slice>,
}

impl Piece {
    /// The part of it in `at..at + sectors`.
    fn within(&self, at: Sector, sectors: u64) -> Option<Piece> {
        let from = at.0.max(self.at.0);
        let end = (at.0 + sectors).min(self.at.0 + self.sectors);
        (from < end).then(|| Piece {
            at: Sector(from),
            sectors: end - from,
            data: cut(&self.data, (from - self.at.0) * SECTOR_BYTES, (end - from) * SECTOR_BYTES),
        })
    }

    /// What is left of it without `at..at + sectors`.
    fn without(self, at: Sector, sectors: u64) -> Vec<Piece> {
        let (start, end) = (self.at.0, self.at.0 + self.sectors);
        let (from, to) = (at.0.clamp(start, end), (at.0 + sectors).clamp(start, end));
        let kept = [(start, from), (to, end)].into_iter().filter(|(from, to)| from < to);
        let piece = |(from, to): (u64, u64)| Piece {
            at: Sector(from),
            sectors: to - from,
            data: cut(&self.data, (from - start) * SECTOR_BYTES, (to - from) * SECTOR_BYTES),
        };
        kept.map(piece).collect()
    }
}

/// Cache that a discard takes, in sectors: it carries no data, but as many of them as one likes
/// there cannot be.
const DISCARD_ROOM: u64 = 8;

/// See the module.
#[derive(Clone)]
pub(crate) struct Contents {
    current: Medium,
    durable: Medium,
    dirty: Chain<Dirty>,
    dirty_sectors: u64,
    cache_sectors: u64,
    /// Barriers so far.
    epoch: u32,
}

/// `sectors` of zeroes as slices.
pub(crate) fn zeroes(sectors: u64) -> Vec<Slice> {
    const MOST: u64 = 1 << 21;
    let whole = (0..sectors / MOST).map(|_| MOST);
    let rest = Some(sectors % MOST).filter(|n| *n > 0);
    whole.chain(rest).map(|n| Slice::zero((n * SECTOR_BYTES) as u32)).collect()
}

/// Writes `data` from `at` on.
pub(crate) fn write_all(medium: &mut Medium, at: Sector, data: &[Slice]) {
    let mut at = at;
    for slice in data {
        medium.write(at, slice);
        at = at.advance(u64::from(slice.len()) / SECTOR_BYTES);
    }
}

/// `len` bytes of `data` from byte `from`.
pub(crate) fn cut(data: &[Slice], from: u64, len: u64) -> Vec<Slice> {
    let (mut out, mut at) = (Vec::new(), 0u64);
    for slice in data {
        let (start, end) = (from.max(at), (from + len).min(at + u64::from(slice.len())));
        if start < end {
            // Both within the slice, whose length is of 32 bits.
            out.push(slice.sub((start - at) as u32, (end - start) as u32));
        }
        at += u64::from(slice.len());
    }
    out
}

/// How far slices have been taken apart, from the front: slices, and bytes of the next one.
#[derive(Default)]
pub(crate) struct Taken {
    slices: usize,
    bytes: u32,
}

impl Taken {
    /// The next `bytes` of `data`, or as many as there are.
    pub(crate) fn take(&mut self, data: &[Slice], bytes: u64) -> Vec<Slice> {
        let (mut out, mut left) = (Vec::new(), bytes);
        while left > 0
            && let Some(slice) = data.get(self.slices)
        {
            let n = u64::from(slice.len() - self.bytes).min(left) as u32;
            if n > 0 {
                out.push(slice.sub(self.bytes, n));
            }
            left -= u64::from(n);
            self.bytes += n;
            if self.bytes == slice.len() {
                *self = Taken { slices: self.slices + 1, bytes: 0 };
            }
        }
        out
    }
}

/// Should a write go to the medium at once, or may it stay in the cache?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    Cached,
    Through,
}

impl Contents {
    /// All zero, with a volatile cache of `cache_bytes`; 0 is none: all is durable at once.
    pub(crate) fn new(cache_bytes: u64) -> Contents {
        Contents {
            current: Medium::new(),
            durable: Medium::new(),
            dirty: Chain::new(),
            dirty_sectors: 0,
            cache_sectors: cache_bytes / SECTOR_BYTES,
            epoch: 0,
        }
    }

    pub(crate) fn current(&self) -> &Medium {
        &self.current
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_sectors * SECTOR_BYTES
    }

    /// Writes; the oldest leaves the cache for it if it is full. What goes through takes with it
    /// what a barrier has put before it ([`Contents::before`]).
    pub(crate) fn write(&mut self, at: Sector, sectors: u64, data: Vec<Slice>, put: Put) {
        write_all(&mut self.current, at, &data);
        if self.cache_sectors == 0 {
            // Then `current` is durable, and `durable` is not kept up.
            return;
        }
        match put {
            Put::Cached => self.push(Piece { at, sectors, data }, sectors),
            Put::Through => {
                if self.holds_older_epoch() {
                    // It would be there before what a barrier puts before it.
                    self.flush_to(self.mark());
                }
                // Older data below it are worth nothing now, and a flush must not lay them over it.
                for n in self.dirty.first()..self.dirty.end() {
                    let below = |p: &Piece| p.at.0 < at.0 + sectors && at.0 < p.at.0 + p.sectors;
                    if self.dirty.get(n).pieces.iter().any(below) {
                        let dirty = self.dirty.get_mut(n);
                        let pieces = std::mem::take(&mut dirty.pieces);
                        dirty.pieces =
                            pieces.into_iter().flat_map(|p| p.without(at, sectors)).collect();
                    }
                }
                write_all(&mut self.durable, at, &data);
            }
        }
    }

    /// Makes `sectors` zero, as durably as a cached write would be.
    pub(crate) fn discard(&mut self, at: Sector, sectors: u64) {
        self.current.discard(at, sectors);
        if self.cache_sectors > 0 {
            self.push(Piece { at, sectors, data: zeroes(sectors) }, DISCARD_ROOM);
        }
    }

    fn push(&mut self, piece: Piece, room: u64) {
        self.dirty_sectors += room;
        self.dirty.push(Dirty { pieces: vec![piece], room, epoch: self.epoch });
        while self.dirty_sectors > self.cache_sectors {
            self.settle_first();
        }
    }

    /// A barrier: what is in the cache becomes durable before anything that comes later. A barrier
    /// write is before its own.
    pub(crate) fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// Does the cache hold anything of before the last barrier?
    pub(crate) fn holds_older_epoch(&self) -> bool {
        let first = self.dirty.first();
        first < self.dirty.end() && self.dirty.get(first).epoch < self.epoch
    }

    /// Bytes that must be durable before what is written through now.
    pub(crate) fn before(&self) -> u64 {
        if self.holds_older_epoch() { self.dirty_bytes() } else { 0 }
    }

    /// Barriers so far.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Everything written so far is before this mark.
    pub(crate) fn mark(&self) -> u64 {
        self.dirty.end()
    }

    /// Makes durable what was written before `mark`.
    pub(crate) fn flush_to(&mut self, mark: u64) {
        while self.dirty.first() < mark.min(self.dirty.end()) {
            self.settle_first();
        }
    }

    /// Makes durable what was written before `mark` to sectors of the set.
    pub(crate) fn flush_set_to(&mut self, mark: u64, set: &FlushSet) {
        for n in self.dirty.first()..mark.min(self.dirty.end()) {
            if !self.dirty.get(n).pieces.iter().any(|p| set.meets(p.at, p.sectors)) {
                continue;
            }
            let mut left = std::mem::take(&mut self.dirty.get_mut(n).pieces);
            for (at, sectors) in set.ranges() {
                left.iter().for_each(|piece| {
                    if let Some(inside) = piece.within(at, sectors) {
                        write_all(&mut self.durable, inside.at, &inside.data);
                    }
                });
                left = left.into_iter().flat_map(|p| p.without(at, sectors)).collect();
            }
            self.dirty.get_mut(n).pieces = left;
        }
    }

    /// Makes the oldest entry durable.
    fn settle_first(&mut self) {
        let Dirty { pieces, room, .. } = self.dirty.get(self.dirty.first());
        for piece in pieces {
            write_all(&mut self.durable, piece.at, &piece.data);
        }
        self.dirty_sectors -= room;
        self.dirty.drop_first();
    }

    /// What a power cut can leave, apart from requests in flight, which the device appends.
    pub(crate) fn crash_view(&self) -> CrashView {
        let medium = if self.cache_sectors == 0 { &self.current } else { &self.durable };
        let pieces =
            self.dirty.iter().flat_map(|(n, d)| d.pieces.iter().map(move |p| (n, d.epoch, p)));
        let loss = pieces.map(|(seq, epoch, p)| LossUnit {
            epoch,
            effect: LossEffect::Data,
            at: p.at,
            data: p.data.clone(),
            acked: true,
            why: LossWhy::InBuffer,
            seq,
        });
        CrashView { medium: medium.clone(), loss: loss.collect(), zones: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Piece by piece from the front, each is what a cut of all of it gives.
    #[test]
    fn pieces_taken_from_the_front_are_cuts() {
        let slice = |n: u32| Slice::pattern(u64::from(n), 512, n * 512);
        let data: Vec<Slice> = [3, 1, 8, 0, 2, 5].map(slice).to_vec();
        for step in 1..20u64 {
            let (mut taken, mut at) = (Taken::default(), 0);
            while at < 19 * 512 {
                let right = cut(&data, at, step * 512);
                assert_eq!(taken.take(&data, step * 512), right, "{step} from {at}");
                at += step * 512;
            }
            assert!(taken.take(&data, 512).is_empty());
        }
    }
}
