//! A flow that replays a trace of MQSim's.

use super::{Parameters, at};
use crate::columns::Columns;
use crate::error::{TraceError, Wrong};
use crate::item::{Event, Item};
use crate::requests::Request;
use crate::trace::Trace;
use wp_base::Sector;

/// Parameters of its own.
const OWN: [&str; 4] = ["File_Path", "Percentage_To_Be_Executed", "Relay_Count", "Time_Unit"];
/// Most rounds of a trace.
const ROUNDS_MAX: u64 = 1_000_000;

/// A flow of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceFlow {
    /// The trace's file, as the definition names it.
    pub path: String,
    /// The line that names it.
    pub line: u64,
    /// How much of it is replayed; all, if there are several rounds.
    pub percent: u64,
    /// How often.
    pub rounds: u64,
    /// How its lines are read.
    pub columns: Columns,
}

pub(super) fn trace_flow(flow: &Parameters<'_>) -> Result<TraceFlow, Wrong> {
    flow.verify(&OWN)?;
    let path = flow.need("File_Path")?;
    if path.text.is_empty() {
        return Err(at(path.line, "File_Path is empty", "name a trace"));
    }
    let unit = ["ps", "ns", "us"];
    let unit = unit[flow.word("Time_Unit", &["PICOSECOND", "NANOSECOND", "MICROSECOND"])?];
    let columns = Columns::parse(&format!("time:{unit},dev,lba:512,size:512,op:w=0/r=1"));
    Ok(TraceFlow {
        path: path.text.clone(),
        line: path.line,
        percent: flow.number("Percentage_To_Be_Executed", 1..=100)?,
        rounds: flow.number("Relay_Count", 1..=ROUNDS_MAX)?,
        columns: columns.expect("a description of ours"),
    })
}

impl TraceFlow {
    /// Requests to replay of a trace that has `lines` requests: a percentage of one round, or all
    /// of several rounds.
    pub fn requests_of(&self, lines: u64) -> u64 {
        match self.rounds {
            1 => (u128::from(lines) * u128::from(self.percent) / 100) as u64,
            rounds => lines.saturating_mul(rounds),
        }
    }

    /// Its requests in a part of the device: `sectors` from `start`. `open` begins to read the
    /// trace anew, for each round; `requests` ends it ([`TraceFlow::requests_of`]). `flow`: the
    /// number that they have as their device.
    pub fn replay<'a>(
        open: Box<dyn FnMut() -> Result<Trace<'a>, TraceError> + 'a>,
        requests: u64,
        (flow, (start, sectors)): (u32, (u64, u64)),
    ) -> impl Iterator<Item = Result<Request, TraceError>> + use<'a> {
        let part = Part { start, sectors: sectors.max(1) };
        let (offset_ns, last_ns, met) = (0, 0, false);
        Rounds { open, flow, trace: None, left: requests, part, offset_ns, last_ns, met }
    }
}

/// A part of the device's addresses.
#[derive(Clone, Copy)]
struct Part {
    start: u64,
    sectors: u64,
}

impl Part {
    /// Where an address of a trace is; a request that would end beyond the part is at its start.
    fn place(self, at: Sector, sectors: u32) -> Sector {
        let within = if at.0 < self.sectors { at.0 } else { at.0 % self.sectors };
        let fits = within.saturating_add(sectors.into()) <= self.sectors;
        Sector(self.start + if fits { within } else { 0 })
    }
}

struct Rounds<'a> {
    open: Box<dyn FnMut() -> Result<Trace<'a>, TraceError> + 'a>,
    flow: u32,
    trace: Option<Trace<'a>>,
    left: u64,
    part: Part,
    /// When this round began.
    offset_ns: u64,
    last_ns: u64,
    /// Has this round a request?
    met: bool,
}

impl Rounds<'_> {
    fn step(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            let trace = match &mut self.trace {
                Some(trace) => trace,
                none => {
                    self.offset_ns = self.last_ns;
                    self.met = false;
                    none.insert((self.open)()?)
                }
            };
            match trace.next_item() {
                Some(Ok(Item::Event(e))) => {
                    self.met = true;
                    self.left -= 1;
                    let at_ns = self.offset_ns.saturating_add(e.at_ns).max(self.last_ns);
                    self.last_ns = at_ns;
                    let at = self.part.place(e.at, e.sectors);
                    let event = Event { at_ns, at, device: self.flow, ..e };
                    return Ok(Some(Request { event, done_ns: None }));
                }
                Some(Ok(_)) => {}
                Some(Err(e)) => return Err(e),
                // A round without requests would be followed by others without end.
                None if !self.met => return Ok(None),
                None => self.trace = None,
            }
        }
    }
}

impl Iterator for Rounds<'_> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        let next = self.step().transpose();
        if matches!(next, Some(Err(_))) {
            self.left = 0;
        }
        next
    }
}
