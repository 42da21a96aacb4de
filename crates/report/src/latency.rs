//! Averages between the stages of bios, as `btt` defines them.
//!
//! An interval of no length counts as one nanosecond, and averages are rounded to the nearest,
//! both as `btt` does: so that its numbers and ours are equal. `Q2I` is ours; `btt` prints its two
//! parts.

use std::collections::BTreeMap;

use wp_base::event::{BlockAction, Event, Record};
use wp_base::{Sector, Time};

use crate::requests::{Moment, requests};

/// Sum and number of one kind of interval.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// Nanoseconds; at least one for each interval.
    pub ns: u128,
    /// Intervals.
    pub n: u64,
    /// The shortest; at least 1.
    pub least: u64,
    /// The longest.
    pub most: u64,
}

impl Sum {
    fn add(&mut self, from: Time, to: Time) {
        let ns = to.since(from).0.max(1);
        self.least = if self.n == 0 { ns } else { self.least.min(ns) };
        self.most = self.most.max(ns);
        self.ns += u128::from(ns);
        self.n += 1;
    }

    /// The average in nanoseconds, to the nearest.
    pub fn average(&self) -> u64 {
        let n = u128::from(self.n.max(1));
        u64::try_from((self.ns + n / 2) / n).expect("an average is a time")
    }
}

/// Does the event's range start here?
fn starts(r: &Record, sector: Sector) -> bool {
    matches!(r.event, Event::Block { at, .. } if at == sector)
}

/// Intervals by btt's names: `Q2Q` (from one bio to the next), `Q2G`, `G2I`, `Q2I`, `Q2M`, `I2D`,
/// `M2D`, `D2C`, `Q2C`.
///
/// Every bio counts for itself: the bios of a merged request have one `D` and one `C` in common.
/// An `I` is that of the bio with which the request begins then: if one was merged at the front
/// under the plug, of that one. Flush commands count nowhere. Each part of a split bio counts;
/// `btt` leaves such bios out behind `G`.
pub fn stages(records: &[Record]) -> BTreeMap<&'static str, Sum> {
    let mut out: BTreeMap<&'static str, Sum> = BTreeMap::new();
    let mut add = |name, from: Option<Moment>, to: Option<Moment>| {
        if let (Some(from), Some(to)) = (from, to) {
            out.entry(name).or_default().add(from.at, to.at);
        }
    };
    for r in requests(records) {
        let (Some(_), true) = (r.done, r.sectors > 0) else { continue };
        for bio in &r.bios {
            let queued = Some(bio.queued);
            let (got, inserted) = bio.was.unwrap_or((r.got, r.inserted));
            let inserted = inserted.filter(|m| starts(&records[m.index], bio.at));
            if bio.merged.is_some() {
                add("Q2M", queued, bio.merged);
            } else {
                add("Q2G", queued, got);
                add("G2I", got, inserted);
                add("Q2I", queued, inserted);
            }
            match inserted {
                Some(_) => add("I2D", inserted, r.issued),
                None => add("M2D", bio.merged, r.issued),
            }
            add("D2C", r.issued, r.done);
            add("Q2C", queued, r.done);
        }
    }
    let queued = |r: &Record| match r.event {
        Event::Block { action: BlockAction::Queue, sectors: 1.., .. } => Some(r.at),
        _ => None,
    };
    let mut last = None;
    for at in records.iter().filter_map(queued) {
        if let Some(before) = last.replace(at) {
            out.entry("Q2Q").or_default().add(before, at);
        }
    }
    out
}
