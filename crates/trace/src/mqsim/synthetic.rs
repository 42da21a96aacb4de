//! A synthetic flow: it generates its requests.
//!
//! Laws:   what is drawn is distributed as MQSim's source draws it; the numbers are those of this
//!         program's generator, so that a seed gives the same requests on every machine, and not
//!         MQSim's.
//! Source: MQSim `src/host/IO_Flow_Synthetic.cpp`, `src/exec/Host_System.cpp`.

use wp_base::event::{Flags, Op};
use wp_base::rng::Rng;
use wp_base::{SECTOR_BYTES, Sector, Span};
use wp_workload::filebench::ln;

use super::{Parameters, at};
use crate::error::{Place, TraceError, Wrong};
use crate::item::{Event, Step};
use crate::requests::Request;

/// Parameters of its own.
const OWN: [&str; 15] = [
    "Working_Set_Percentage",
    "Synthetic_Generator_Type",
    "Read_Percentage",
    "Address_Distribution",
    "Percentage_of_Hot_Region",
    "Generated_Aligned_Addresses",
    "Address_Alignment_Unit",
    "Request_Size_Distribution",
    "Average_Request_Size",
    "Variance_Request_Size",
    "Seed",
    "Average_No_of_Reqs_in_Queue",
    "Bandwidth",
    "Stop_Time",
    "Total_Requests_To_Generate",
];
/// Longest request in sectors, 1 GiB: a generator's mistake is found before it fills the memory.
const SECTORS_MAX: u64 = 1 << 21;
/// Most requests in flight; NVMe has 65535 in a queue.
const DEPTH_MAX: u64 = 65_535;
/// 2^53: a double holds all smaller whole numbers.
const TWO_53: f64 = (1u64 << 53) as f64;

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generator {
    /// This number of requests is kept in flight.
    QueueDepth(u32),
    /// At exponentially distributed intervals of this mean, in nanoseconds.
    Interval(u64),
}

/// Where requests are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Addresses {
    Streaming,
    Uniform,
    /// `n` percent of the addresses are hot, and get all but `n` percent of the requests.
    HotCold(u64),
}

/// How long requests are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sizes {
    Fixed,
    /// Normal, with this standard deviation (which MQSim calls a variance).
    Normal(u64),
}

/// A synthetic flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synthetic {
    /// When they are sent.
    pub generator: Generator,
    /// When it stops; if `None`, after [`Synthetic::requests`].
    pub until: Option<Span>,
    /// How many there are, if no time stops it.
    pub requests: u64,
    working_set_percent: u64,
    read_percent: u64,
    addresses: Addresses,
    /// Addresses are multiples of this number of sectors; 1 if they are not aligned.
    aligned: u64,
    sizes: Sizes,
    /// Mean length in sectors.
    sectors: u64,
    seed: u64,
}

pub(super) fn synthetic(flow: &Parameters<'_>) -> Result<Synthetic, Wrong> {
    flow.verify(&OWN)?;
    let percent = |name: &str, least| flow.number(name, least..=100);
    let sectors = flow.number("Average_Request_Size", 1..=SECTORS_MAX)?;
    let generator = match flow.word("Synthetic_Generator_Type", &["QUEUE_DEPTH", "BANDWIDTH"])? {
        0 => {
            let depth = flow.number("Average_No_of_Reqs_in_Queue", 1..=DEPTH_MAX)?;
            Generator::QueueDepth(depth as u32)
        }
        _ => {
            let bytes_per_s = flow.number("Bandwidth", 1..=u64::MAX)?;
            let ns = u128::from(sectors * SECTOR_BYTES) * 1_000_000_000 / u128::from(bytes_per_s);
            Generator::Interval((ns as u64).max(1))
        }
    };
    let addresses = ["STREAMING", "RANDOM_UNIFORM", "RANDOM_HOTCOLD"];
    let addresses = match flow.word("Address_Distribution", &addresses)? {
        0 => Addresses::Streaming,
        1 => Addresses::Uniform,
        _ => Addresses::HotCold(percent("Percentage_of_Hot_Region", 1)?),
    };
    let sizes = match flow.word("Request_Size_Distribution", &["FIXED", "NORMAL"])? {
        0 => Sizes::Fixed,
        _ => Sizes::Normal(flow.number("Variance_Request_Size", 0..=SECTORS_MAX)?),
    };
    let aligned = match flow.word("Generated_Aligned_Addresses", &["false", "true"])? {
        0 => 1,
        _ => flow.number("Address_Alignment_Unit", 1..=SECTORS_MAX)?,
    };
    let stop_ns = flow.number("Stop_Time", 0..=u64::MAX)?;
    let requests = match stop_ns {
        0 => flow.number("Total_Requests_To_Generate", 0..=u64::MAX)?,
        _ => u64::MAX,
    };
    if requests == 0 {
        let line = flow.need("Stop_Time")?.line;
        let help = "set Stop_Time (ns) or Total_Requests_To_Generate";
        return Err(at(line, "a flow that makes no request", help));
    }
    Ok(Synthetic {
        generator,
        until: (stop_ns > 0).then_some(Span(stop_ns)),
        requests,
        working_set_percent: percent("Working_Set_Percentage", 1)?,
        read_percent: percent("Read_Percentage", 0)?,
        addresses,
        aligned,
        sizes,
        sectors,
        seed: flow.number("Seed", 0..=u64::MAX)?,
    })
}

impl Synthetic {
    /// Its requests in a part of the device: `sectors` from `start`. Those of a queue depth are all
    /// at time 0: who keeps the depth says when. `flow`: the number that they have as their device.
    pub fn requests_in(
        &self,
        flow: u32,
        (start, sectors): (u64, u64),
    ) -> impl Iterator<Item = Result<Request, TraceError>> + use<> {
        let stream = |what: &str| Rng::stream(self.seed, what);
        let span = sectors.saturating_sub(1);
        let percent = u128::from(self.working_set_percent);
        let end = start + (u128::from(span) * percent / 100) as u64;
        let mut made = Made {
            flow: self.clone(),
            number: flow,
            start,
            end,
            left: self.requests,
            at_ns: 0,
            next: start,
            kinds: stream("mqsim kind"),
            places: stream("mqsim address"),
            regions: stream("mqsim region"),
            lengths: stream("mqsim length"),
            intervals: stream("mqsim interval"),
        };
        let first = start + made.places.below(end - start + 1);
        made.next = made.aligned(first);
        made
    }
}

/// A number from 0 to below 1.
fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / TWO_53
}

/// Marsaglia's polar method.
fn normal(rng: &mut Rng, mean: f64, deviation: f64) -> f64 {
    loop {
        let (x, y) = (2.0 * unit(rng) - 1.0, 2.0 * unit(rng) - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square <= 1.0 {
            return mean + deviation * x * (-2.0 * ln(square) / square).sqrt();
        }
    }
}

struct Made {
    flow: Synthetic,
    number: u32,
    /// First and last sector of the working set.
    start: u64,
    end: u64,
    left: u64,
    at_ns: u64,
    /// Where a stream goes on.
    next: u64,
    kinds: Rng,
    places: Rng,
    regions: Rng,
    lengths: Rng,
    intervals: Rng,
}

impl Made {
    /// The aligned sector at or before one; not before the flow's part.
    fn aligned(&self, sector: u64) -> u64 {
        let at = sector - sector % self.flow.aligned;
        if at < self.start { sector } else { at }
    }

    fn length(&mut self) -> u64 {
        let most = (self.end - self.start + 1).min(SECTORS_MAX);
        let sectors = match self.flow.sizes {
            Sizes::Fixed => self.flow.sectors,
            Sizes::Normal(deviation) => {
                let mean = self.flow.sectors as f64;
                normal(&mut self.lengths, mean, deviation as f64).ceil().max(1.0) as u64
            }
        };
        sectors.min(most)
    }

    fn place(&mut self, sectors: u64) -> u64 {
        let (start, end) = (self.start, self.end);
        let is_within = |at: u64| at + sectors - 1 <= end;
        match self.flow.addresses {
            Addresses::Streaming => {
                let at = if is_within(self.next) { self.next } else { start };
                let next = (at + sectors).next_multiple_of(self.flow.aligned);
                self.next = if next > end { start } else { next };
                self.aligned(at)
            }
            Addresses::Uniform => {
                let at = start + self.places.below(end - start + 1);
                self.aligned(if is_within(at) { at } else { start })
            }
            Addresses::HotCold(percent) => {
                let span = u128::from(end - start);
                let hot_end = start + (span * u128::from(percent) / 100) as u64;
                let is_cold = self.regions.below(100) < percent && hot_end < end;
                let (first, last) = if is_cold { (hot_end + 1, end) } else { (start, hot_end) };
                let at = first + self.places.below(last - first + 1);
                self.aligned(if is_within(at) { at } else { start })
            }
        }
    }
}

impl Iterator for Made {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        self.left = self.left.checked_sub(1)?;
        if let Generator::Interval(mean) = self.flow.generator {
            let wait = -(mean as f64) * ln(1.0 - unit(&mut self.intervals));
            self.at_ns = self.at_ns.saturating_add(wait as u64);
            if self.flow.until.is_some_and(|until| self.at_ns > until.0) {
                self.left = 0;
                return None;
            }
        }
        let is_read = self.kinds.below(100) < self.flow.read_percent;
        let sectors = self.length();
        let at = self.place(sectors);
        let event = Event {
            at_ns: self.at_ns,
            step: Step::Whole { done_ns: None },
            op: if is_read { Op::Read } else { Op::Write },
            zeroes: false,
            flags: Flags::NONE,
            at: Sector(at),
            sectors: sectors as u32,
            device: self.number,
            file: 0,
            place: Place::Line(0),
        };
        Some(Ok(Request { event, done_ns: None }))
    }
}
