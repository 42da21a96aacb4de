//! What a block trace tells of a drive: its requests, each from dispatch to completion, as loads.
//!
//! Picture:    requests in the order of dispatch -> stretches of one operation and size -> of each
//!             request how many were in flight -> loads, with mean latencies.
//! Laws:       1. a request counts if all that was in flight beside it is of its own stretch: the
//!                loops of [`super::load`] know nothing else;
//!             2. the depth of a load is what was in flight when a request was given to the drive,
//!                that request included;
//!             3. writes with a flush after every N of them, and nothing but these, are a load with
//!                syncs; the flush's own time is that of the sync;
//!             4. a rate is reported where a stretch keeps one depth: then it is a closed loop, and
//!                what lies between a completion and the next request is the host's.
//! Left out:   what a trace does not hold: reads from the host's cache, which are no requests;
//!             sizes that a program asked for, before they were merged or cut; jobs, which are not
//!             told from depth.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wp_base::SECTOR_BYTES;
use wp_base::event::Op;

use super::load::{Figures, Load};
use super::measured::{HOST_NS_MAX, Input, Measured, OPERATIONS_MIN};

/// Writes at the beginning of a stretch that only fill a buffer; but at most half of them.
const FILL_BYTES: u64 = 8 << 20;
/// Shares of requests that follow one before them: from here on in order, up to there at random.
const IN_ORDER: f64 = 0.9;
const AT_RANDOM: f64 = 0.1;
/// Requests back in which a request's predecessor is looked for.
const LOOKED_BACK: usize = 32;
/// Share of a stretch that has to have one depth for it to be a closed loop.
const CLOSED: f64 = 0.9;
/// Requests of a stretch from which on its pattern can be told.
const PATTERN_MIN: usize = 16;
/// Stretches that are told of when they are not used.
const TOLD_MAX: usize = 20;

/// A request that a drive was given and completed. Times are nanoseconds of one clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Read, write, discard or flush.
    pub op: Op,
    /// Was it to be durable by itself (FUA), or to flush what came before (PREFLUSH)?
    pub forced: bool,
    /// First sector; 0 of a flush.
    pub at: u64,
    /// Sectors; 0 of a flush.
    pub sectors: u32,
    /// When the driver got it.
    pub issued_ns: u64,
    /// When it completed.
    pub done_ns: u64,
}

/// One of a stretch's own.
#[derive(Clone, Copy)]
struct Own {
    served: Served,
    /// How many were under way, itself among them.
    depth: u32,
    /// Nothing else was beside it when it was given away.
    alone: bool,
    /// Since the last completion, if one lies before it in the stretch.
    gap_ns: Option<u64>,
}

/// Requests of one operation and size behind each other, with flushes between writes.
struct Stretch {
    op: Op,
    sectors: u32,
    own: Vec<Own>,
    flushes: Vec<Served>,
    /// Writes between two flushes, of all of them.
    between: BTreeSet<u32>,
    since_flush: u32,
    forced: bool,
}

/// Sums of a load over stretches.
#[derive(Default)]
struct Sum {
    n: u64,
    ns: u64,
    took: Vec<u64>,
    gaps: (u64, u64),
    syncs: (u64, u64),
    /// Of closed loops: intervals between requests, and their time.
    rate: (u64, u64),
}

/// The loads of a trace's requests, in the order of dispatch. `name`: the file's, for sources.
///
/// Errors: too few requests for any mean.
pub fn recorded(name: &str, served: &[Served]) -> Result<Input, String> {
    if served.len() < OPERATIONS_MIN as usize {
        let n = served.len();
        return Err(format!(
            "{name}: {n} requests with dispatch (D) and completion (C): a mean needs at least \
             {OPERATIONS_MIN}"
        ));
    }
    let mut input = Input::default();
    let mut sums: BTreeMap<Load, Sum> = BTreeMap::new();
    let mut left: BTreeMap<String, u64> = BTreeMap::new();
    for stretch in stretches(served) {
        match stretch.load() {
            Ok(load) => stretch.add(load, &mut sums),
            Err(why) => {
                let n = stretch.own.len() + stretch.flushes.len();
                *left.entry(why).or_default() += n as u64;
            }
        }
    }
    // By load but for the depth: requests, and depths.
    let mut few: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (load, sum) in sums {
        let (title, n) = (load.name(), sum.n);
        match sum.measured(load) {
            Some(m) => {
                input.measured.push(Measured { source: format!("{name}: {title}"), ..m });
            }
            None => {
                let all = few.entry(title.replace(&format!(" depth {}", load.depth), ""));
                let (requests, depths) = all.or_default();
                (*requests, *depths) = (*requests + n, *depths + 1);
            }
        }
    }
    input.skipped.extend(few.into_iter().map(|(title, (n, depths))| {
        let why = format!("{n} requests at {depths} depths: fewer than {OPERATIONS_MIN} at each");
        (format!("{name}: {title}"), why)
    }));
    let told = left.into_iter().take(TOLD_MAX);
    input.skipped.extend(told.map(|(why, n)| (format!("{name}: {n} requests"), why)));
    Ok(input)
}

/// Cuts requests into stretches.
fn stretches(served: &[Served]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    // Under way: when each completes, and which stretch it is of.
    let mut flying: Vec<(u64, usize)> = Vec::new();
    let mut last_done = 0;
    for s in served {
        for (done, _) in flying.iter().filter(|(done, _)| *done <= s.issued_ns) {
            last_done = last_done.max(*done);
        }
        flying.retain(|(done, _)| *done > s.issued_ns);
        let goes_on = all.last().is_some_and(|l| l.takes(s));
        if !goes_on {
            all.push(Stretch::new(s));
        }
        let number = all.len() - 1;
        let Some(stretch) = all.last_mut() else { continue };
        let alone = flying.iter().all(|(_, of)| *of == number);
        let begun = stretch.own.first().map(|o| o.served.issued_ns);
        if s.op == Op::Flush {
            stretch.flush(*s);
        } else {
            let gap_ns = begun.filter(|b| last_done > *b).map(|_| s.issued_ns - last_done);
            let depth = flying.len() as u32 + 1;
            stretch.since_flush += 1;
            stretch.own.push(Own { served: *s, depth, alone, gap_ns });
        }
        flying.push((s.done_ns, number));
    }
    all
}

impl Stretch {
    fn new(s: &Served) -> Stretch {
        Stretch {
            op: s.op,
            sectors: s.sectors,
            own: Vec::new(),
            flushes: Vec::new(),
            between: BTreeSet::new(),
            since_flush: 0,
            forced: s.forced,
        }
    }

    /// Does a request go on with it?
    fn takes(&self, s: &Served) -> bool {
        let is_flush = s.op == Op::Flush && self.op == Op::Write && !self.forced;
        is_flush || (s.op, s.sectors, s.forced) == (self.op, self.sectors, self.forced)
    }

    fn flush(&mut self, s: Served) {
        if !self.flushes.is_empty() {
            self.between.insert(self.since_flush);
        }
        self.since_flush = 0;
        self.flushes.push(s);
    }

    /// What it is a load of, but for the depth. Errors: why it is none.
    fn load(&self) -> Result<Load, String> {
        let bytes = u64::from(self.sectors) * SECTOR_BYTES;
        match self.op {
            Op::Flush => return Err("flushes without writes of one size around them".to_owned()),
            Op::Discard => return Err("discards: no load has them".to_owned()),
            Op::Zone(_) => return Err("zone commands: no load has them".to_owned()),
            Op::Read | Op::Write => {}
        }
        if self.forced {
            return Err("writes with FUA or PREFLUSH: no load has them".to_owned());
        }
        let bytes = u32::try_from(bytes).ok().filter(|b| *b > 0 && b.is_multiple_of(4096));
        let bytes = bytes.ok_or("requests that are not multiples of 4 KiB")?;
        if self.own.len() < PATTERN_MIN {
            let what = "too few consecutive requests of one operation and size to detect a pattern";
            return Err(format!("{what} ({PATTERN_MIN})"));
        }
        let random = match self.in_order() {
            share if share >= IN_ORDER => false,
            share if share <= AT_RANDOM => true,
            _ => return Err("neither sequential nor random".to_owned()),
        };
        let sync_every = match (self.flushes.len(), self.between.len()) {
            (0, _) => 0,
            (1, _) => return Err("one flush is too few to detect a load".to_owned()),
            (_, 1) => self.between.first().copied().unwrap_or(0),
            _ => return Err("flushes after varying numbers of writes".to_owned()),
        };
        if sync_every == 0 && !self.flushes.is_empty() {
            return Err("flushes without writes between them".to_owned());
        }
        let (op, depth, jobs, forced) = (self.op, 1, 1, false);
        Ok(Load { op, random, bytes, depth, jobs, sync_every, forced, host_ns: 0 })
    }

    /// The share of requests that begin where one of those before them ends.
    fn in_order(&self) -> f64 {
        let mut ends: VecDeque<u64> = VecDeque::new();
        let mut follow = 0u64;
        for o in &self.own {
            follow += u64::from(ends.contains(&o.served.at));
            ends.push_back(o.served.at + u64::from(o.served.sectors));
            if ends.len() > LOOKED_BACK {
                ends.pop_front();
            }
        }
        let pairs = self.own.len().saturating_sub(1).max(1);
        follow as f64 / pairs as f64
    }

    /// Adds its requests to the loads of their depths.
    fn add(&self, load: Load, sums: &mut BTreeMap<Load, Sum>) {
        let fill = match self.op {
            Op::Write => (FILL_BYTES / u64::from(load.bytes)).min(self.own.len() as u64 / 2),
            _ => 0,
        };
        let counted = &self.own[fill as usize..];
        let mut by_depth: BTreeMap<u32, u64> = BTreeMap::new();
        for o in counted.iter().filter(|o| o.alone) {
            let took = o.served.done_ns - o.served.issued_ns;
            let sum = sums.entry(Load { depth: o.depth, ..load }).or_default();
            (sum.n, sum.ns) = (sum.n + 1, sum.ns + took);
            sum.took.push(took);
            if let Some(gap) = o.gap_ns {
                sum.gaps = (sum.gaps.0 + 1, sum.gaps.1 + gap);
            }
            *by_depth.entry(o.depth).or_default() += 1;
        }
        let most = by_depth.iter().max_by_key(|(_, n)| **n);
        let Some((depth, n)) = most else { return };
        let sum = sums.entry(Load { depth: *depth, ..load }).or_default();
        for f in &self.flushes {
            sum.syncs = (sum.syncs.0 + 1, sum.syncs.1 + (f.done_ns - f.issued_ns));
        }
        let is_closed = *n as f64 >= CLOSED * counted.len() as f64;
        if let ([first, .., last], true) = (counted, is_closed) {
            let ns = last.served.issued_ns - first.served.issued_ns;
            sum.rate = (sum.rate.0 + counted.len() as u64 - 1, sum.rate.1 + ns);
        }
    }
}

impl Sum {
    /// What was measured of the load. `None`: too few requests for a mean.
    fn measured(mut self, load: Load) -> Option<Measured> {
        if self.n < OPERATIONS_MIN {
            return None;
        }
        let mean = |(n, sum): (u64, u64)| (n > 0).then(|| sum as f64 / n as f64);
        let host = mean(self.gaps).unwrap_or(0.0).clamp(0.0, HOST_NS_MAX);
        self.took.sort_unstable();
        let p99_ns = self.took.get(self.took.len() * 99 / 100).map(|ns| *ns as f64);
        let iops = mean((self.rate.0, self.rate.1)).filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns);
        let sync_ns = mean(self.syncs).filter(|_| load.sync_every > 0);
        let mean_ns = mean((self.n, self.ns)).filter(|ns| *ns > 0.0);
        let figures = Figures { mean_ns, iops, sync_ns };
        let load = Load { host_ns: host as u64, ..load };
        Some(Measured { load, figures, p99_ns, source: String::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(op: Op, at: u64, sectors: u32, issued_ns: u64, took: u64) -> Served {
        Served { op, forced: false, at, sectors, issued_ns, done_ns: issued_ns + took }
    }

    /// `n` requests one after the other, each of 100 us, 10 us between them.
    fn alone(op: Op, n: u64, place: fn(u64) -> u64) -> Vec<Served> {
        (0..n).map(|i| one(op, place(i), 8, i * 110_000, 100_000)).collect()
    }

    #[test]
    fn requests_one_after_the_other_are_a_load_of_depth_one() {
        for (op, place, name) in [
            (Op::Read, (|i| i * 7919 % 100_003 * 8) as fn(u64) -> u64, "randread 4k depth 1"),
            (Op::Write, |i| i * 8, "write 4k depth 1"),
        ] {
            let input = recorded("t", &alone(op, 400, place)).expect("long enough");
            let [m] = &input.measured[..] else { panic!("{input:?}") };
            assert_eq!((m.load.name().as_str(), m.load.host_ns), (name, 10_000));
            assert_eq!(m.figures.mean_ns, Some(100_000.0));
            assert!((m.figures.iops.expect("a closed loop") - 1e9 / 110_000.0).abs() < 1e-6);
        }
    }

    #[test]
    fn depth_is_what_was_under_way_at_dispatch() {
        // Four at a time, each begun when the oldest ends.
        let all: Vec<Served> = (0..800)
            .map(|i| one(Op::Read, i * 7919 % 100_003 * 8, 8, i * 25_000, 100_000))
            .collect();
        let input = recorded("t", &all).expect("long enough");
        let [m] = &input.measured[..] else { panic!("{input:?}") };
        assert_eq!(m.load.name(), "randread 4k depth 4");
        let why = "3 requests at 3 depths: fewer than 100 at each";
        assert_eq!(input.skipped, [("t: randread 4k".to_owned(), why.to_owned())], "the first");
    }

    #[test]
    fn flushes_behind_each_write_are_syncs() {
        let pair = |i: u64| {
            let at = i * 400_000;
            let write = one(Op::Write, i * 7919 % 100_003 * 8, 8, at, 50_000);
            [write, one(Op::Flush, 0, 0, at + 60_000, 300_000)]
        };
        let all: Vec<Served> = (0..300).flat_map(pair).collect();
        let input = recorded("t", &all).expect("long enough");
        let [m] = &input.measured[..] else { panic!("{input:?}") };
        assert_eq!(m.load.name(), "randwrite 4k depth 1 fsync 1");
        assert_eq!((m.figures.mean_ns, m.figures.sync_ns), (Some(50_000.0), Some(300_000.0)));
    }

    #[test]
    fn what_tells_nothing_is_left_out_with_the_reason() {
        let e = recorded("t", &alone(Op::Read, 99, |i| i * 8)).expect_err("short");
        assert!(e.starts_with("t: 99 requests") && e.contains("a mean needs"), "{e}");
        let mut forced = alone(Op::Write, 200, |i| i * 8);
        forced.iter_mut().for_each(|s| s.forced = true);
        let mut odd = alone(Op::Write, 200, |i| i * 8);
        odd.iter_mut().for_each(|s| s.sectors = 7);
        let half = |i: u64| if i % 4 < 2 { i * 8 } else { i * 7919 % 100_003 * 8 + 8_000_000 };
        for (all, want) in [
            (forced, "FUA or PREFLUSH"),
            (odd, "not multiples of 4 KiB"),
            (alone(Op::Discard, 200, |i| i * 8), "discards"),
            (alone(Op::Flush, 200, |_| 0), "flushes without writes"),
            (alone(Op::Read, 200, half), "neither sequential nor random"),
        ] {
            let input = recorded("t", &all).expect("long enough");
            let told = input.skipped.iter().any(|(_, why)| why.contains(want));
            assert!(input.measured.is_empty() && told, "{want}: {input:?}");
        }
        // Reads and writes beside each other: neither has the drive for itself.
        let mixed = |i: u64| {
            let op = if i.is_multiple_of(2) { Op::Read } else { Op::Write };
            one(op, i * 7919 % 100_003 * 8, 8, i * 25_000, 100_000)
        };
        let all: Vec<Served> = (0..800).map(mixed).collect();
        assert!(recorded("t", &all).expect("long enough").measured.is_empty());
    }
}
