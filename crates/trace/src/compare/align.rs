//! Which request of one trace is which of the other.

use std::collections::{BTreeMap, VecDeque};

use wp_base::event::Op;

use super::kind;
use crate::requests::Request;

/// Requests of one operation and size, from the beginning, by which the places are moved.
const VOTERS: usize = 64;

/// Which requests both have, and in which order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Aligned {
    /// Sectors added to places of the simulated trace.
    pub offset: i64,
    /// In both, at the same place.
    pub same: usize,
    /// In both, the simulated one at another place.
    pub elsewhere: usize,
    /// In the real trace only.
    pub missing: usize,
    /// In the simulated trace only.
    pub extra: usize,
    /// In both, with other flags (PREFLUSH, FUA).
    pub other_flags: usize,
    /// Of those in both, the share that is in one order: the longest subsequence of both.
    pub in_order: f64,
    /// Of all pairs of those in both, the share that is the other way round.
    pub inverted: f64,
}

type Place = (Op, u32, i128);

fn place(r: &Request, offset: i64) -> Place {
    let at = if r.event.op == Op::Flush { 0 } else { i128::from(r.event.at.0) };
    let moved = if r.event.op == Op::Flush { 0 } else { i128::from(offset) };
    (r.event.op, r.event.sectors, at + moved)
}

/// Takes for each of `real` one of those that are left of `left`, if it has one.
fn pair<K: Ord>(
    real: &[Request],
    partner: &mut [Option<usize>],
    mut left: BTreeMap<K, VecDeque<usize>>,
    key: impl Fn(&Request) -> K,
) -> usize {
    let mut paired = 0;
    for (r, partner) in real.iter().zip(partner).filter(|(_, p)| p.is_none()) {
        *partner = left.get_mut(&key(r)).and_then(VecDeque::pop_front);
        paired += usize::from(partner.is_some());
    }
    paired
}

/// Those of `sim` that are nobody's partner, by a key.
fn left<K: Ord>(
    sim: &[Request],
    partner: &[Option<usize>],
    key: impl Fn(&Request) -> K,
) -> BTreeMap<K, VecDeque<usize>> {
    let mut taken = vec![false; sim.len()];
    partner.iter().flatten().for_each(|i| taken[*i] = true);
    let mut left: BTreeMap<K, VecDeque<usize>> = BTreeMap::new();
    for (i, r) in sim.iter().enumerate().filter(|(i, _)| !taken[*i]) {
        left.entry(key(r)).or_default().push_back(i);
    }
    left
}

pub(super) fn align(real: &[Request], sim: &[Request], offset: Option<i64>) -> Aligned {
    let offset = offset.unwrap_or_else(|| likely_offset(real, sim));
    let mut partner = vec![None; real.len()];
    let there = left(sim, &partner, |r| place(r, offset));
    let same = pair(real, &mut partner, there, |r| place(r, 0));
    let somewhere = left(sim, &partner, |r| (r.event.op, r.event.sectors));
    let elsewhere = pair(real, &mut partner, somewhere, |r| (r.event.op, r.event.sectors));
    let of_flags = |(r, p): (&Request, &Option<usize>)| p.is_some_and(|p| kind(r) != kind(&sim[p]));
    let order: Vec<usize> = partner.iter().flatten().copied().collect();
    let n = order.len();
    let pairs = n as f64 * (n as f64 - 1.0) / 2.0;
    Aligned {
        offset,
        same,
        elsewhere,
        missing: real.len() - n,
        extra: sim.len() - n,
        other_flags: real.iter().zip(&partner).filter(|p| of_flags(*p)).count(),
        in_order: if n == 0 { 1.0 } else { longest_increasing(&order) as f64 / n as f64 },
        inverted: if n < 2 { 0.0 } else { inversions(order) as f64 / pairs },
    }
}

/// The offset under which most of the first requests of each operation and size agree; of several
/// the smallest.
fn likely_offset(real: &[Request], sim: &[Request]) -> i64 {
    let first = |of: &[Request]| {
        let mut groups: BTreeMap<(Op, u32), Vec<u64>> = BTreeMap::new();
        for e in of.iter().map(|r| &r.event).filter(|e| e.op != Op::Flush) {
            let places = groups.entry((e.op, e.sectors)).or_default();
            if places.len() < VOTERS {
                places.push(e.at.0);
            }
        }
        groups
    };
    let (ours, theirs) = (first(real), first(sim));
    let mut votes: BTreeMap<i64, u64> = BTreeMap::new();
    for (key, places) in &ours {
        for (a, b) in
            places.iter().flat_map(|a| theirs.get(key).into_iter().flatten().map(move |b| (a, b)))
        {
            if let Ok(difference) = i64::try_from(i128::from(*a) - i128::from(*b)) {
                *votes.entry(difference).or_default() += 1;
            }
        }
    }
    let best =
        votes.into_iter().max_by_key(|(d, n)| (*n, std::cmp::Reverse((d.unsigned_abs(), *d))));
    best.map_or(0, |(difference, _)| difference)
}

/// Length of the longest increasing subsequence.
fn longest_increasing(order: &[usize]) -> usize {
    // The least last value of a subsequence of each length.
    let mut last: Vec<usize> = Vec::new();
    for value in order {
        let at = last.partition_point(|v| v < value);
        match last.get_mut(at) {
            Some(v) => *v = *value,
            None => last.push(*value),
        }
    }
    last.len()
}

/// Pairs that are the other way round, by merging.
fn inversions(mut order: Vec<usize>) -> u64 {
    let (mut width, mut count) = (1, 0);
    let mut merged = Vec::with_capacity(order.len());
    while width < order.len() {
        for run in order.chunks(2 * width) {
            let (mut a, mut b) = run.split_at(width.min(run.len()));
            while let (Some(x), Some(y)) = (a.first(), b.first()) {
                if x <= y {
                    merged.push(*x);
                    a = &a[1..];
                } else {
                    count += a.len() as u64;
                    merged.push(*y);
                    b = &b[1..];
                }
            }
            merged.extend_from_slice(a);
            merged.extend_from_slice(b);
        }
        std::mem::swap(&mut order, &mut merged);
        merged.clear();
        width *= 2;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_counted_as_their_definitions_say() {
        let orders: [&[usize]; 6] =
            [&[], &[0], &[0, 1, 2, 3, 4], &[4, 3, 2, 1, 0], &[2, 0, 1, 4, 3], &[1, 2, 3, 4, 0]];
        let by_hand = |o: &[usize]| {
            let after = |i: usize| o[i + 1..].iter().filter(|v| **v < o[i]).count() as u64;
            (0..o.len()).map(after).sum::<u64>()
        };
        for o in orders {
            assert_eq!(inversions(o.to_vec()), by_hand(o), "{o:?}");
        }
        assert_eq!(orders.map(longest_increasing), [0, 1, 5, 1, 3, 4]);
    }
}
