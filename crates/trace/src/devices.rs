//! Which devices of a trace are wanted, what it has, and where several lie on one.
//!
//! Picture:    a trace -> [`survey`]: each device with its requests and its end -> [`bases`]: one
//!             device behind the other -> [`crate::Select::bases`].
//! Laws:       devices lie in the order in which the trace meets them, each from a whole mebibyte,
//!             so that what was aligned on its own device is aligned here.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::error::TraceError;
use crate::item::{Event, Step};
use crate::requests::{Action, Requests, Select};
use crate::trace::Trace;

/// Sectors of a mebibyte.
const ALIGNED: u64 = 2048;
/// Devices that a message names.
const NAMED_MAX: usize = 20;
/// Requests between two looks at whether to go on.
const LOOK_EVERY: u64 = 1 << 14;

/// Devices or files of a trace.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Devices {
    /// The only one: a trace of two is an error.
    #[default]
    One,
    /// Those of these names (`8,16`).
    These(Vec<String>),
    /// All of them.
    All,
}

impl Devices {
    /// Those that names stand for: none for the only one, `all` for all.
    pub fn named(names: &[String]) -> Devices {
        match names {
            [] => Devices::One,
            names if names.iter().any(|n| n == "all") => Devices::All,
            names => Devices::These(names.to_vec()),
        }
    }

    /// Can there be more than one?
    pub fn are_several(&self) -> bool {
        match self {
            Devices::One => false,
            Devices::These(names) => names.len() > 1,
            Devices::All => true,
        }
    }

    /// Is the device of this name wanted?
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Devices::One | Devices::All => true,
            Devices::These(names) => names.iter().any(|n| n == name),
        }
    }
}

/// A device that a trace has requests of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// How many.
    pub requests: u64,
    /// The sector behind the last one.
    pub end: u64,
}

/// Reads a trace to its end and tells the chosen devices in the order of their first requests.
/// `go_on` is asked now and then with the number of requests read; what was read until it says no
/// counts. Errors: those of the trace.
pub fn survey(
    trace: &mut Trace<'_>,
    select: &Select,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<Found>, TraceError> {
    let select = Select { bases: BTreeMap::new(), ..select.clone() };
    let mut order: Vec<u32> = Vec::new();
    let mut ends: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut read = 0u64;
    let mut requests = Requests::new(trace, select);
    for request in requests.by_ref() {
        let e = request?.event;
        let (n, end) = ends.entry(e.device).or_insert_with(|| {
            order.push(e.device);
            (0, 0)
        });
        *n += 1;
        *end = (*end).max(e.at.0.saturating_add(e.sectors.into()));
        read += 1;
        if read.is_multiple_of(LOOK_EVERY) && !go_on(read) {
            break;
        }
    }
    let names = trace.names();
    let found = |id: u32| {
        let (requests, end) = ends.get(&id).copied().unwrap_or_default();
        Found { name: names.name(id).to_owned(), requests, end }
    };
    Ok(order.into_iter().map(found).collect())
}

/// Where each device begins, in sectors, if one lies behind the other.
pub fn bases(found: &[Found]) -> BTreeMap<String, u64> {
    let mut next = 0u64;
    let mut all = BTreeMap::new();
    for device in found {
        all.insert(device.name.clone(), next);
        let end = next.saturating_add(device.end);
        next = end.checked_next_multiple_of(ALIGNED).unwrap_or(u64::MAX);
    }
    all
}

/// What was met in a trace, for messages.
#[derive(Default)]
pub(crate) struct Counts {
    /// Requests at the wanted step, by device.
    pub devices: BTreeMap<u32, u64>,
    /// Events at `Q`, `D` and `C`.
    steps: [u64; 3],
}

impl Counts {
    /// Counts an event's step.
    pub fn step(&mut self, e: &Event) {
        match e.step {
            Step::Queue => self.steps[0] += 1,
            Step::Issue => self.steps[1] += 1,
            Step::Complete => self.steps[2] += 1,
            Step::Whole { .. } => {}
        }
    }

    /// Requests at the wanted step.
    pub fn all(&self) -> u64 {
        self.devices.values().sum()
    }

    /// The devices with their requests: `0 (12), 1 (3)`, the busiest first.
    fn listed(&self, trace: &Trace<'_>) -> String {
        let mut all: Vec<(u32, u64)> = self.devices.iter().map(|(id, n)| (*id, *n)).collect();
        all.sort_by_key(|(id, n)| (Reverse(*n), *id));
        let name = |(id, n): &(u32, u64)| format!("{} ({n})", trace.names().name(*id));
        let named: Vec<String> = all.iter().take(NAMED_MAX).map(name).collect();
        let more = all.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        named.join(", ") + &more
    }

    /// That there are several devices and none was chosen.
    pub fn several(&self, trace: &Trace<'_>) -> (String, String) {
        let what = format!(
            "{} devices in {} requests, and none is chosen: {}",
            self.devices.len(),
            self.all(),
            self.listed(trace)
        );
        let busiest = self.devices.iter().max_by_key(|(id, n)| (**n, Reverse(**id)));
        let busiest = busiest.map_or("?", |(id, _)| trace.names().name(*id));
        let help = format!(
            "--from {busiest} takes one (it may be repeated), --from all takes all, one device \
             behind the other"
        );
        (what, help)
    }

    /// That there is no request that is wanted.
    pub fn none(
        &self,
        trace: &Trace<'_>,
        select: &Select,
        action: Option<Action>,
    ) -> (String, String) {
        let [queued, issued, completed] = self.steps;
        if let (Devices::These(names), true) = (&select.devices, self.all() > 0) {
            let what = format!("no request of {}: {}", names.join(" or "), self.listed(trace));
            return (what, "--from takes one of these names, or all".to_owned());
        }
        if completed > 0 && queued + issued == 0 {
            let what = format!("the trace has only completions (C): {completed}");
            let help = "Q or D is needed: blktrace and blkparse take -a queue and -a issue";
            return (what, help.to_owned());
        }
        if queued + issued > 0 {
            let letter = action.map_or("-", Action::letter);
            let what = format!(
                "no request at {letter}: the trace has Q {queued}, D {issued}, C {completed}"
            );
            return (what, format!("--action {}", if queued > 0 { "Q" } else { "D" }));
        }
        let skipped: Vec<String> =
            trace.skipped().iter().map(|(why, n)| format!("{} {n}", why.name())).collect();
        let what = match skipped.is_empty() {
            true => "the trace has no request".to_owned(),
            false => format!("the trace has no request; skipped: {}", skipped.join(", ")),
        };
        (what, "check the format: --format".to_owned())
    }
}
