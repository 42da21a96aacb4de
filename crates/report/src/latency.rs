//! Averages between the stages of bios, as `btt` defines them.
//!
//! An interval of no length counts as one nanosecond, and averages are rounded to the nearest,
//! both as `btt` does: so that its numbers and ours are equal. `Q2I` is ours; `btt` prints its two
//! parts.

use std::collections::BTreeMap;

use wp_base::event::Record;

use crate::requests::{Moment, requests};

/// Sum and number of one kind of interval.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum {
    /// Nanoseconds; at least one for each interval.
    pub ns: u128,
    /// Intervals.
    pub n: u64,
}

impl Sum {
    /// The average in nanoseconds, to the nearest.
    pub fn average(&self) -> u64 {
        let n = u128::from(self.n.max(1));
        u64::try_from((self.ns + n / 2) / n).expect("an average is a time")
    }
}

/// Intervals by btt's names: `Q2G`, `G2I`, `Q2I`, `Q2M`, `I2D`, `M2D`, `D2C`, `Q2C`.
///
/// Every bio counts for itself: the bios of a merged request have one `D` and one `C` in common.
/// Flush commands count nowhere.
pub fn stages(records: &[Record]) -> BTreeMap<&'static str, Sum> {
    let mut out: BTreeMap<&'static str, Sum> = BTreeMap::new();
    let mut add = |name, from: Option<Moment>, to: Option<Moment>| {
        if let (Some(from), Some(to)) = (from, to) {
            let sum = out.entry(name).or_default();
            sum.ns += u128::from(to.at.since(from.at).0.max(1));
            sum.n += 1;
        }
    };
    for r in requests(records) {
        let (Some(_), true) = (r.done, r.sectors > 0) else { continue };
        for bio in &r.bios {
            let queued = Some(bio.queued);
            if bio.merged.is_some() {
                add("Q2M", queued, bio.merged);
                add("M2D", bio.merged, r.issued);
            } else {
                add("Q2G", queued, r.got);
                add("G2I", r.got, r.inserted);
                add("Q2I", queued, r.inserted);
                add("I2D", r.inserted, r.issued);
            }
            add("D2C", r.issued, r.done);
            add("Q2C", queued, r.done);
        }
    }
    out
}
