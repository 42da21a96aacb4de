//! Two traces beside each other: a recorded one and a simulated one, mostly.
//!
//! Picture:    two lists of requests -> `align`: which is which -> kinds, order, and distributions
//!             of times and depths ([`Measure`]) -> [`Comparison`] -> what is over a limit.
//! Laws:       a request of one is the n-th of its operation, size and place in the other's; what
//!             is left is the n-th of its operation and size, elsewhere; what is left then is
//!             missing. Places are moved by one number of sectors, that under which most agree.
//! Invariants: a trace beside itself differs in nothing.
//! Left out:   what was written: traces do not tell.

mod align;
mod spread;
mod steps;

use std::collections::BTreeMap;

use wp_base::event::{Flags, Op};

use crate::requests::{Action, Request};
pub use align::Aligned;
pub use spread::Spread;

/// Fewer latencies than that make no distribution that a limit could be held to.
pub const SAMPLES_MIN: usize = 20;

/// One of the two traces.
#[derive(Clone, Default, Debug)]
pub struct Side {
    /// Requests at one step; at `D` where the trace has it.
    pub requests: Vec<Request>,
    /// Which step that is.
    pub action: Option<Action>,
    /// Requests where they were queued, if `requests` are those that were issued and the trace
    /// tells of both; empty if not.
    pub queued: Vec<Request>,
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kind {
    /// The operation.
    pub op: Op,
    /// Has it PREFLUSH?
    pub preflush: bool,
    /// Has it FUA?
    pub fua: bool,
    /// Its sectors.
    pub sectors: u32,
}

/// A distribution of one thing, in both.
#[derive(Clone, Debug)]
pub struct Measure {
    /// What: `D2C`, `Q2D`, `Q2C`, `think`, `gap`, `depth`, `flush interval`, `FUA interval`.
    pub name: &'static str,
    /// Of which operation; of all if none.
    pub op: Option<Op>,
    /// In the real and the simulated trace; nanoseconds, or requests for `depth`.
    pub spreads: [Spread; 2],
    /// Is it a latency, which a limit is for?
    pub is_latency: bool,
}

impl Measure {
    /// The greatest distance of the two distributions (Kolmogorov and Smirnov), from 0 to 1; none
    /// if one of them has no sample.
    pub fn distance(&self) -> Option<f64> {
        self.spreads[0].distance(&self.spreads[1])
    }

    /// Are there samples enough for a limit?
    pub fn is_judged(&self) -> bool {
        self.is_latency && self.spreads.iter().all(|s| s.count() >= SAMPLES_MIN)
    }
}

/// What is the same and what is not.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Requests in both.
    pub requests: [usize; 2],
    /// By kind: how many in both.
    pub kinds: BTreeMap<Kind, [u64; 2]>,
    /// Which request is which.
    pub aligned: Aligned,
    /// By operation: the share of requests that begin where the one before of the same operation
    /// ended.
    pub sequential: BTreeMap<Op, [f64; 2]>,
    /// Distributions.
    pub measures: Vec<Measure>,
}

/// What may be different.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Greatest distance of a latency's distributions.
    pub ks_max: f64,
    /// Greatest share of requests, of either trace, that the other does not have.
    pub missing_max: f64,
}

/// Compares two traces. `offset`: sectors to add to places of the simulated one; found if not
/// given.
pub fn compare(real: &Side, sim: &Side, offset: Option<i64>) -> Comparison {
    let sides = [real, sim];
    let mut kinds: BTreeMap<Kind, [u64; 2]> = BTreeMap::new();
    for (i, side) in sides.iter().enumerate() {
        for r in &side.requests {
            kinds.entry(kind(r)).or_default()[i] += 1;
        }
    }
    let mut sequential: BTreeMap<Op, [f64; 2]> = BTreeMap::new();
    for (i, side) in sides.iter().enumerate() {
        for (op, share) in steps::sequential(&side.requests) {
            sequential.entry(op).or_default()[i] = share;
        }
    }
    Comparison {
        requests: sides.map(|s| s.requests.len()),
        kinds,
        aligned: align::align(&real.requests, &sim.requests, offset),
        sequential,
        measures: measures(sides),
    }
}

/// The kind of a request.
pub fn kind(r: &Request) -> Kind {
    let e = &r.event;
    let (preflush, fua) = (e.flags.has(Flags::PREFLUSH), e.flags.has(Flags::FUA));
    Kind { op: e.op, preflush, fua, sectors: e.sectors }
}

fn measures(sides: [&Side; 2]) -> Vec<Measure> {
    let took = |of: &[Request], op: Op| -> Vec<u64> {
        let ours = of.iter().filter(|r| r.event.op == op);
        ours.filter_map(|r| Some(r.done_ns?.saturating_sub(r.event.at_ns))).collect()
    };
    let waited = sides.map(|s| steps::waited(&s.queued, &s.requests));
    let mut all = Vec::new();
    let mut add = |name, op, spreads: [Vec<u64>; 2], is_latency| {
        if spreads.iter().any(|s| !s.is_empty()) {
            all.push(Measure { name, op, spreads: spreads.map(Spread::new), is_latency });
        }
    };
    let issued = |s: &Side| s.action != Some(Action::Queue);
    for op in [Op::Read, Op::Write, Op::Discard, Op::Flush] {
        let part = |i: usize, own: bool| {
            let side = sides[i];
            match (own, issued(side)) {
                (true, true) => took(&side.requests, op),
                (false, true) => took(&side.queued, op),
                (false, false) => took(&side.requests, op),
                (true, false) => Vec::new(),
            }
        };
        let of_op = |i: usize| -> Vec<u64> {
            waited[i].iter().filter(|(o, _)| *o == op).map(|(_, ns)| *ns).collect()
        };
        add("Q2D", Some(op), [of_op(0), of_op(1)], false);
        // A trace of `Q` alone has no other latency than Q2C.
        let d2c = [part(0, true), part(1, true)];
        let q2c = [part(0, false), part(1, false)];
        let judged_d2c = d2c.iter().all(|s| !s.is_empty());
        add("D2C", Some(op), d2c, true);
        add("Q2C", Some(op), q2c, !judged_d2c);
    }
    let both = |of: fn(&[Request]) -> Vec<u64>| sides.map(|s| of(&s.requests));
    add("think", None, both(steps::thought), false);
    add("gap", None, both(steps::gaps), false);
    add("depth", None, both(steps::depths), false);
    add("flush interval", None, both(steps::flush_intervals), false);
    add("FUA interval", None, both(steps::fua_intervals), false);
    all
}

impl Comparison {
    /// What is over the limits, a sentence each; none if all is within them.
    pub fn over(&self, limits: &Limits) -> Vec<String> {
        let mut over = Vec::new();
        for (side, share) in ["REAL", "SIM"].into_iter().zip(self.missing()) {
            if share > limits.missing_max {
                over.push(format!(
                    "{:.2} % of {side}'s requests are not in the other (at most {:.2} %)",
                    share * 100.0,
                    limits.missing_max * 100.0
                ));
            }
        }
        for m in self.measures.iter().filter(|m| m.is_judged()) {
            let distance = m.distance().unwrap_or(1.0);
            if distance > limits.ks_max {
                over.push(format!(
                    "{} of {}: distance {distance:.3} (at most {:.3})",
                    m.name,
                    m.op.map_or("all", op_name),
                    limits.ks_max
                ));
            }
        }
        over
    }

    /// The share of each trace's requests that the other does not have, there or elsewhere.
    pub fn missing(&self) -> [f64; 2] {
        let a = &self.aligned;
        let share = |n: usize, of: usize| if of == 0 { 0.0 } else { n as f64 / of as f64 };
        [share(a.missing, self.requests[0]), share(a.extra, self.requests[1])]
    }

    /// Were latencies compared at all?
    pub fn has_judged_latency(&self) -> bool {
        self.measures.iter().any(Measure::is_judged)
    }
}

/// An operation's name in reports.
pub fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Discard => "discard",
        Op::Flush => "flush",
        Op::Zone(_) => "zone",
    }
}
