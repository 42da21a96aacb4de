//! What a list of requests says of its host: how it waited, thought, and how much it asked at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use wp_base::event::{Flags, Op};

use crate::requests::Request;

/// By operation: the share of requests that begin where the one before ended.
pub(super) fn sequential(requests: &[Request]) -> BTreeMap<Op, f64> {
    let mut counts: BTreeMap<Op, (u64, u64, u64)> = BTreeMap::new();
    for e in requests.iter().map(|r| &r.event).filter(|e| e.op != Op::Flush) {
        let (end, followed, all) = counts.entry(e.op).or_insert((u64::MAX, 0, 0));
        *followed += u64::from(*end == e.at.0);
        *all += 1;
        *end = e.at.0.saturating_add(e.sectors.into());
    }
    counts.into_iter().map(|(op, (_, n, all))| (op, n as f64 / all as f64)).collect()
}

/// From the last completion before a request to the request; what comes before any completion is
/// left out. Of a trace without completions: nothing.
pub(super) fn thought(requests: &[Request]) -> Vec<u64> {
    let mut flying: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let (mut last, mut all) = (None, Vec::new());
    for r in requests {
        while let Some(Reverse(done)) = flying.peek().copied().filter(|d| d.0 <= r.event.at_ns) {
            last = Some(done);
            flying.pop();
        }
        all.extend(last.map(|done: u64| r.event.at_ns - done));
        flying.extend(r.done_ns.map(Reverse));
    }
    all
}

/// From a request to the next.
pub(super) fn gaps(requests: &[Request]) -> Vec<u64> {
    requests.windows(2).map(|w| w[1].event.at_ns.saturating_sub(w[0].event.at_ns)).collect()
}

/// Requests under way when one more came, that one too. Of a trace without completions: nothing.
pub(super) fn depths(requests: &[Request]) -> Vec<u64> {
    let mut flying: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut all = Vec::new();
    for r in requests {
        while flying.peek().is_some_and(|d| d.0 <= r.event.at_ns) {
            flying.pop();
        }
        if let Some(done) = r.done_ns {
            flying.push(Reverse(done));
            all.push(flying.len() as u64);
        }
    }
    all
}

fn intervals(requests: &[Request], of: impl Fn(&Request) -> bool) -> Vec<u64> {
    let chosen: Vec<Request> = requests.iter().copied().filter(of).collect();
    gaps(&chosen)
}

/// From a flush of the cache to the next, whether by itself or before a write.
pub(super) fn flush_intervals(requests: &[Request]) -> Vec<u64> {
    let flushes = |r: &Request| r.event.op == Op::Flush || r.event.flags.has(Flags::PREFLUSH);
    intervals(requests, flushes)
}

/// From a forced write to the next.
pub(super) fn fua_intervals(requests: &[Request]) -> Vec<u64> {
    intervals(requests, |r| r.event.flags.has(Flags::FUA))
}

/// How long what was queued waited until something of it was issued, with its operation.
///
/// An issue takes all of its operation that lie within it, and the oldest that it lies within.
pub(super) fn waited(queued: &[Request], issued: &[Request]) -> Vec<(Op, u64)> {
    let mut open: BTreeMap<(Op, u64, usize), (u64, u64)> = BTreeMap::new();
    let mut all = Vec::new();
    let mut rest = queued.iter().enumerate().peekable();
    for d in issued.iter().map(|r| &r.event) {
        while let Some((n, q)) = rest.next_if(|(_, q)| q.event.at_ns <= d.at_ns) {
            let end = q.event.at.0.saturating_add(q.event.sectors.into());
            open.insert((q.event.op, q.event.at.0, n), (end, q.event.at_ns));
        }
        let end = d.at.0.saturating_add(d.sectors.into()).max(d.at.0 + 1);
        let within = open.range((d.op, d.at.0, 0)..(d.op, end, 0));
        let mut taken: Vec<_> = within
            .filter(|((_, at, _), (its_end, _))| *its_end <= end || *at == d.at.0)
            .map(|(key, (_, at_ns))| (*key, *at_ns))
            .collect();
        if d.op == Op::Flush {
            taken.truncate(1);
        }
        for (key, at_ns) in taken {
            open.remove(&key);
            all.push((d.op, d.at_ns - at_ns));
        }
    }
    all
}
