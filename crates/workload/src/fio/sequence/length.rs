//! Lengths of operations.
//!
//! - manual, `blocksize_range`: a multiple of the smallest length unless `blocksize_unaligned`;
//! - observed with raw numbers `r` in `0..1`: the length is `min + floor(max * r)`, cut down to a
//!   multiple of `min`, then to `max`. So the largest lengths come more often than others;
//! - manual, `bssplit`; observed: the entries stand in order of their shares, those of equal share
//!   as they were written, and `r` picks the first whose shares add up to it and which fits;
//! - observed at the end of a range: where no length fits another number is drawn, until one does.

use crate::fio::job::Job;
use crate::fio::random::Taus;

/// A length for direction `d` that is at most `room` bytes; `None` if the smallest is longer.
pub fn draw(job: &Job, d: usize, room: u64, stream: &mut Taus) -> Option<u64> {
    let (min, max) = (job.min_bs[d], job.max_bs[d]);
    if min > room {
        return None;
    }
    if min == max {
        return Some(min);
    }
    loop {
        let length = if job.split[d].is_empty() {
            let drawn = min.saturating_add(stream.scaled(max));
            Some(if job.unaligned { drawn } else { drawn - drawn % min }.min(max))
        } else {
            by_share(&job.split[d], room, stream)
        };
        if let Some(length) = length.filter(|l| *l <= room) {
            return Some(length);
        }
    }
}

fn by_share(split: &[(u64, u64)], room: u64, stream: &mut Taus) -> Option<u64> {
    let drawn = u128::from(stream.next()) * 100;
    let whole = u128::from(stream.max());
    let mut sum = 0;
    for (i, (length, share)) in split.iter().enumerate() {
        sum += u128::from(*share);
        // Shares that were filled in may add up to a little less than all.
        let picked = drawn <= sum * whole || i + 1 == split.len();
        if picked && *length <= room {
            return Some(*length);
        }
    }
    None
}
