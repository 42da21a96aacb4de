//! The sectors that a ranged FLUSH makes durable.
//!
//! Format: the payload of the command, as DATA SET MANAGEMENT has one: 16 bytes a range, first
//!         sector and length, both little-endian; a length of 0 is padding.
//! Source: "RFLUSH: Rethink the Flush" (FAST'18) for the idea of a FLUSH that carries addresses; no
//!         standard has such a command, so the payload's form is ours.

use wp_base::{SECTOR_BYTES, Sector};
use wp_medium::Slice;

use crate::bio::Bio;
use crate::device::Status;
use crate::queue::BlockQueue;

/// Bytes of a range in the payload.
const RANGE_BYTES: usize = 16;
/// Ranges of one slice of the payload: a page.
const RANGES: usize = 4096 / RANGE_BYTES;

/// Ranges of sectors, in order, apart from each other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlushSet(Vec<(u64, u64)>);

impl FlushSet {
    /// Of ranges in any order: first sector and length. Those that meet become one.
    pub fn of(ranges: impl IntoIterator<Item = (Sector, u64)>) -> FlushSet {
        let ends = ranges.into_iter().map(|(at, n)| (at.0, at.0.saturating_add(n)));
        let mut all: Vec<(u64, u64)> = ends.filter(|(from, end)| from < end).collect();
        all.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (from, end) in all {
            match out.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(end),
                _ => out.push((from, end)),
            }
        }
        FlushSet(out)
    }

    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// First sectors and lengths, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (Sector, u64)> {
        self.0.iter().map(|(from, end)| (Sector(*from), end - from))
    }

    /// Is any of these sectors in it?
    pub fn meets(&self, at: Sector, sectors: u64) -> bool {
        let next = self.0.partition_point(|(_, end)| *end <= at.0);
        self.0.get(next).is_some_and(|(from, _)| *from < at.0.saturating_add(sectors))
    }

    /// Are all of these sectors in it?
    pub fn covers(&self, at: Sector, sectors: u64) -> bool {
        let next = self.0.partition_point(|(_, end)| *end <= at.0);
        let range = self.0.get(next);
        range.is_some_and(|(from, end)| *from <= at.0 && at.0.saturating_add(sectors) <= *end)
    }

    /// The same, `sectors` further on.
    #[must_use]
    pub fn moved(&self, sectors: u64) -> FlushSet {
        let on = |n: u64| n.saturating_add(sectors);
        // At the end of all sectors ranges become empty, or meet.
        FlushSet::of(self.0.iter().map(|(from, end)| (Sector(on(*from)), on(*end) - on(*from))))
    }

    /// The same, `sectors` further back: what a device that begins there is told.
    #[must_use]
    pub fn moved_back(&self, sectors: u64) -> FlushSet {
        let back = |n: u64| n.saturating_sub(sectors);
        FlushSet::of(
            self.0.iter().map(|(from, end)| (Sector(back(*from)), back(*end) - back(*from))),
        )
    }

    /// The payload; of an empty set one range of no sectors.
    pub fn encode(&self) -> Vec<Slice> {
        let none = [(0, 0)];
        let ranges = if self.0.is_empty() { &none[..] } else { &self.0[..] };
        let slice = |chunk: &[(u64, u64)]| {
            let mut bytes: Vec<u8> = Vec::with_capacity(4096);
            for (from, end) in chunk {
                bytes.extend_from_slice(&from.to_le_bytes());
                bytes.extend_from_slice(&(end - from).to_le_bytes());
            }
            bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES as usize), 0);
            Slice::from_bytes(&bytes)
        };
        ranges.chunks(RANGES).map(slice).collect()
    }

    /// What a payload says.
    pub fn decode(payload: &[Slice]) -> FlushSet {
        let bytes: Vec<u8> = payload.iter().flat_map(Slice::to_vec).collect();
        let number = |b: &[u8]| b.iter().rev().fold(0, |n: u64, byte| n << 8 | u64::from(*byte));
        let range = |b: &[u8]| (Sector(number(&b[..8])), number(&b[8..]));
        FlushSet::of(bytes.chunks_exact(RANGE_BYTES).map(range))
    }
}

impl BlockQueue {
    /// Makes durable what of the set had completed before the call, and perhaps more: all of it on
    /// a device without [`crate::Limits::range_flush`]. Sectors count from the start of the device.
    ///
    /// Waits: for the command, which is merged with no other.
    pub async fn flush_set(&self, set: &FlushSet) -> Result<(), Status> {
        if !self.limits().volatile_cache {
            return Ok(());
        }
        let is_known = self.limits().range_flush;
        let bio = if is_known { Bio::flush_set(set) } else { Bio::flush() };
        self.submit_wait(bio).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_says_what_was_put_into_it_and_a_search_finds_each_sector() {
        let mut rng = wp_base::Rng::stream(1, "flush sets");
        for _ in 0..200 {
            let count = rng.below(600);
            let ranges: Vec<(Sector, u64)> =
                (0..count).map(|_| (Sector(rng.below(9000)), rng.below(20))).collect();
            let set = FlushSet::of(ranges.clone());
            assert_eq!(FlushSet::decode(&set.encode()), set);
            assert_eq!(set.moved(77).moved_back(77), set);
            for at in (0..9100).step_by(7) {
                let naive = ranges.iter().any(|(f, n)| *n > 0 && f.0 < at + 8 && at < f.0 + n);
                assert_eq!(set.meets(Sector(at), 8), naive, "{at}");
                let has = |s: u64| ranges.iter().any(|(from, n)| from.0 <= s && s < from.0 + n);
                assert_eq!(set.covers(Sector(at), 8), (at..at + 8).all(has), "{at}");
            }
        }
    }

    #[test]
    fn a_payload_of_nonsense_is_some_set() {
        let bytes: Vec<u8> = (0..512u32).map(|n| (n * 37) as u8 | 128).collect();
        assert!(!FlushSet::decode(&[Slice::from_bytes(&bytes)]).is_empty());
    }
}
