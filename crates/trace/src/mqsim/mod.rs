//! MQSim's workload definition: scenarios of flows that replay traces or generate requests.
//!
//! Picture:    XML -> [`Workload`]: scenarios -> [`Flow`]s -> a stream of requests each
//!             ([`crate::replay::Stream`]).
//! Laws:       1. the flows of a scenario share the device's addresses in equal parts, in their
//!                order, as MQSim divides what flows share;
//!             2. a flow of a trace sends at the trace's own times; an address beyond the flow's
//!                part is taken modulo its size;
//!             3. a synthetic flow keeps a fixed number of requests in flight (`QUEUE_DEPTH`), or
//!                sends at exponentially distributed intervals (`BANDWIDTH`).
//! Left out:   flows that own channels, chips, dies or planes; priorities; the cache's mode; what
//!             is written before (`Initial_Occupancy_Percentage`). What would matter is told.
//! Source:     MQSim's README ("Defining MQSim Workload"), `workload.xml`,
//!             `src/exec/IO_Flow_Parameter_Set.{h,cpp}`, `src/host/IO_Flow_{Synthetic,Trace_Based}`
//!             and `src/exec/Host_System.cpp`. MQSim keeps `Time_Unit` and counts nanoseconds
//!             whatever it says; here the unit counts.

mod flow;
mod synthetic;
mod xml;

use crate::error::{Place, TraceError, Wrong};
pub use flow::TraceFlow;
use flow::trace_flow;
pub use synthetic::{Generator, Synthetic};
use xml::Element;

/// The outermost element of a definition.
const ROOT: &str = "MQSim_IO_Scenarios";
/// Parameters that say which parts of the flash a flow has.
const PARTS: [&str; 4] = ["Channel_IDs", "Chip_IDs", "Die_IDs", "Plane_IDs"];

/// Does a file that begins so define workloads of MQSim?
pub fn begins(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.starts_with('<') && text.contains(&format!("<{ROOT}"))
}

/// What a definition has.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Scenarios; MQSim runs each on a drive of its own.
    pub scenarios: Vec<Scenario>,
}

/// Flows that run at one time.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// The line at which it begins.
    pub line: u64,
    /// Its flows, at least one.
    pub flows: Vec<Flow>,
    /// Its parameters without effect here, in words.
    pub notes: Vec<String>,
    /// The line and the name of a parameter that cannot be simulated.
    pub unsupported: Option<(u64, String)>,
}

/// A flow.
#[derive(Clone, PartialEq, Debug)]
pub enum Flow {
    /// Replays a trace.
    Trace(TraceFlow),
    /// Generates requests.
    Synthetic(Synthetic),
}

impl Scenario {
    /// What it has, for a list: `2 synthetic flows, 1 trace`.
    pub fn what(&self) -> String {
        let traces = self.flows.iter().filter(|f| matches!(f, Flow::Trace(_))).count();
        let made = self.flows.len() - traces;
        let all = [(made, "synthetic flow"), (traces, "trace")];
        let some = all.iter().filter(|(n, _)| *n > 0);
        let some = some.map(|(n, what)| format!("{n} {what}{}", if *n == 1 { "" } else { "s" }));
        some.collect::<Vec<_>>().join(", ")
    }
}

/// Reads a definition. Errors: XML that is not well formed, an element or value that MQSim has not,
/// a parameter that is missing.
pub fn parse(file: &str, text: &str) -> Result<Workload, TraceError> {
    workload(text.trim_start_matches('\u{feff}')).map_err(|e| e.of(file))
}

fn workload(text: &str) -> Result<Workload, Wrong> {
    let root = xml::parse(text)?;
    if root.name != ROOT {
        let what = format!("`<{}>` is not `<{ROOT}>`", root.name);
        return Err(at(root.line, what, "expected a workload definition of MQSim"));
    }
    let scenarios: Vec<Scenario> = root.children.iter().map(scenario).collect::<Result<_, _>>()?;
    if scenarios.is_empty() {
        return Err(at(root.line, "no scenario", "expected `<IO_Scenario>`"));
    }
    Ok(Workload { scenarios })
}

fn scenario(element: &Element) -> Result<Scenario, Wrong> {
    if element.name != "IO_Scenario" {
        let what = format!("`<{}>` is not `<IO_Scenario>`", element.name);
        return Err(at(element.line, what, "a definition has scenarios"));
    }
    let mut notes: Vec<String> = Vec::new();
    let mut flows = Vec::new();
    for (n, child) in element.children.iter().enumerate() {
        let parameters = Parameters(child);
        let flow = match child.name.as_str() {
            "IO_Flow_Parameter_Set_Synthetic" => {
                Flow::Synthetic(synthetic::synthetic(&parameters)?)
            }
            "IO_Flow_Parameter_Set_Trace_Based" => Flow::Trace(trace_flow(&parameters)?),
            other => {
                let help = "supported: IO_Flow_Parameter_Set_Synthetic and \
                            IO_Flow_Parameter_Set_Trace_Based";
                return Err(at(child.line, format!("`<{other}>` is no flow"), help));
            }
        };
        notes.extend(without_effect(n + 1, &parameters)?);
        flows.push(flow);
    }
    if flows.is_empty() {
        return Err(at(element.line, "a scenario without flows", "expected flows"));
    }
    let priority = |e: &Element| Parameters(e).find("Priority_Class").map(|p| p.text.clone());
    let first = priority(&element.children[0]);
    if element.children.iter().any(|c| priority(c) != first) {
        notes.push("Priority_Class differs; all flows have one priority here".to_owned());
    }
    let unsupported = partitioned(&element.children);
    Ok(Scenario { line: element.line, flows, notes, unsupported })
}

/// Do flows own parts of the flash? Where they say so first.
fn partitioned(flows: &[Element]) -> Option<(u64, String)> {
    let first = Parameters(&flows[0]);
    for flow in &flows[1..] {
        for name in PARTS {
            let (ours, other) = (Parameters(flow).find(name), first.find(name));
            let text = |e: Option<&Element>| {
                let list = e.map_or(String::new(), |e| e.text.clone());
                list.split(',').map(|id| id.trim().to_owned()).collect::<Vec<_>>()
            };
            if text(ours) != text(other) {
                let line = ours.map_or(flow.line, |e| e.line);
                return Some((line, format!("{name} differs from the first flow's")));
            }
        }
    }
    None
}

/// Parameters of a flow that have no effect here, though they would in MQSim.
fn without_effect(number: usize, flow: &Parameters<'_>) -> Result<Vec<String>, Wrong> {
    let mut notes = Vec::new();
    if let Some(e) = flow.find("Device_Level_Data_Caching_Mode") {
        flow.one_of(e, &["TURNED_OFF", "WRITE_CACHE", "READ_CACHE", "WRITE_READ_CACHE"])?;
        let mode = e.text.to_ascii_uppercase();
        if mode != "WRITE_CACHE" {
            notes.push(format!("flow {number}: caching mode {mode} is not applied (--on has one)"));
        }
    }
    if let Some(e) = flow.find("Priority_Class") {
        flow.one_of(e, &["URGENT", "HIGH", "MEDIUM", "LOW"])?;
    }
    if flow.find("Initial_Occupancy_Percentage").is_some() {
        let percent = flow.number("Initial_Occupancy_Percentage", 0..=100)?;
        if percent > 0 {
            notes.push(format!(
                "flow {number}: Initial_Occupancy_Percentage {percent} is not applied: --fill \
                 writes the device first"
            ));
        }
    }
    if flow.find("Intensity").is_some() {
        notes.push(format!("flow {number}: Intensity is a parameter that MQSim does not read"));
    }
    Ok(notes)
}

fn at(line: u64, what: impl Into<String>, help: impl Into<String>) -> Wrong {
    Wrong::new(Place::Line(line), what, help)
}

/// Parameters that every flow may have.
const COMMON: [&str; 8] = [
    "Priority_Class",
    "Device_Level_Data_Caching_Mode",
    "Channel_IDs",
    "Chip_IDs",
    "Die_IDs",
    "Plane_IDs",
    "Initial_Occupancy_Percentage",
    "Intensity",
];

/// The parameters of a flow.
struct Parameters<'e>(&'e Element);

impl<'e> Parameters<'e> {
    /// Errors: one that is in neither list, or there twice, or has elements in it.
    fn verify(&self, own: &[&str]) -> Result<(), Wrong> {
        for (n, e) in self.0.children.iter().enumerate() {
            let name = e.name.as_str();
            if !COMMON.contains(&name) && !own.contains(&name) {
                let help = format!("supported: {}", [&COMMON[..], own].concat().join(", "));
                return Err(at(e.line, format!("no parameter is called {name}"), help));
            }
            if self.0.children[..n].iter().any(|other| other.name == e.name) {
                return Err(at(e.line, format!("{name} is there twice"), "one value is needed"));
            }
            if !e.children.is_empty() {
                return Err(at(e.line, format!("{name} has elements in it"), "expected a value"));
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&'e Element> {
        self.0.children.iter().find(|e| e.name == name)
    }

    fn need(&self, name: &str) -> Result<&'e Element, Wrong> {
        let what = || format!("<{}> has no {name}", self.0.name);
        self.find(name).ok_or_else(|| at(self.0.line, what(), format!("add <{name}>")))
    }

    /// A whole number.
    fn number(&self, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, Wrong> {
        let e = self.need(name)?;
        let number = crate::lines::digits::<u64>(&e.text).filter(|n| range.contains(n));
        number.ok_or_else(|| {
            let what = format!("{name}: `{}`", crate::blkparse::shortened(&e.text));
            let help = format!("expected a whole number from {} to {}", range.start(), range.end());
            at(e.line, what, help)
        })
    }

    /// The place of a value among words, in any case.
    fn one_of(&self, e: &Element, words: &[&str]) -> Result<usize, Wrong> {
        let found = words.iter().position(|w| w.eq_ignore_ascii_case(&e.text));
        found.ok_or_else(|| {
            let what = format!("{}: `{}`", e.name, crate::blkparse::shortened(&e.text));
            at(e.line, what, format!("expected one of {}", words.join(", ")))
        })
    }

    fn word(&self, name: &str, words: &[&str]) -> Result<usize, Wrong> {
        self.one_of(self.need(name)?, words)
    }
}
