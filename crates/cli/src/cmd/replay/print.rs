//! What a replay of a trace did, for people and as a document.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_trace::mqsim::Scenario;
use wp_trace::replay::{Mode, OpCounts, Options, Outcome};
use wp_trace::{Format, Found, Requests, Skip};
use wp_workload::fio::Stat;

use crate::output::path;

/// What was replayed, and onto what.
pub(super) struct Of<'r, 't, 'a> {
    pub files: &'r [PathBuf],
    pub requests: &'r Requests<'t, 'a>,
    pub on: &'r str,
    pub options: &'r Options,
    /// Devices that lie one behind the other; none if there is one.
    pub found: &'r [Found],
}

/// Quantiles that are told: their names, and millionths of a percent.
const QUANTILES: [(&str, u64); 4] =
    [("p50", 50_000_000), ("p95", 95_000_000), ("p99", 99_000_000), ("p99.9", 99_900_000)];
/// Devices that are named in one line.
const NAMED_MAX: usize = 8;
/// Devices that have a line each.
const PLACED_MAX: usize = 20;
const SECOND_NS: u128 = 1_000_000_000;

/// A duration with a unit that fits.
pub fn seconds(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{}.{} us", ns / 1000, ns % 1000 / 100),
        10_000_000..10_000_000_000 => {
            format!("{}.{} ms", ns / 1_000_000, ns % 1_000_000 / 100_000)
        }
        _ => format!("{}.{:03} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000_000),
    }
}

/// Bytes that went to or from the device. (A discard moves none.)
fn moved(o: &Outcome) -> u64 {
    o.reads.bytes_done + o.writes.bytes_done
}

/// Rate per second: `n` units in `ns` nanoseconds.
fn rate(n: u64, ns: u64) -> u64 {
    let rate = u128::from(n) * SECOND_NS / u128::from(ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn quantile(stat: &Stat, share: u64) -> u64 {
    // The middle of a bucket may be beyond the longest.
    stat.histogram.percentile(share).unwrap_or(0).clamp(stat.min, stat.max)
}

fn stat(s: &Stat) -> Value {
    let mut doc = json!({
        "count": s.count, "min": s.min, "mean": s.mean() as u64, "max": s.max,
    });
    for (name, share) in QUANTILES {
        doc[name] = json!(quantile(s, share));
    }
    doc
}

/// The operations of an outcome, by name.
fn ops(o: &Outcome) -> BTreeMap<&'static str, Value> {
    o.kinds()
        .into_iter()
        .map(|(name, c)| {
            let doc = json!({
                "requests": c.requests, "bytes": c.bytes, "bytes_done": c.bytes_done,
                "failed": c.failed, "not_sent": c.not_sent, "service_ns": stat(&c.service),
                "response_ns": stat(&c.response), "recorded_ns": stat(&c.recorded),
            });
            (name, doc)
        })
        .collect()
}

/// The device's counters.
fn counters(all: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    all.iter().copied().collect()
}

/// The document of `--json`. Latencies are in nanoseconds.
pub(super) fn document(of: &Of<'_, '_, '_>, o: &Outcome) -> Value {
    let (trace, options) = (of.requests.trace(), of.options);
    let skipped: BTreeMap<&str, u64> =
        trace.skipped().iter().map(|(why, n)| (why.name(), n)).collect();
    let ops = ops(o);
    let bytes = moved(o);
    let files: Vec<Value> = of.files.iter().map(|f| path(f)).collect();
    let devices = of.requests.devices();
    let device = match devices[..] {
        [(name, _)] => Some(name),
        _ => None,
    };
    let placed: Vec<Value> = placed(of)
        .into_iter()
        .map(|(name, base, n)| json!({ "name": name, "base_sector": base, "requests": n }))
        .collect();
    json!({
        "schema": "writepath.replay-trace/1",
        "trace": {
            "files": files,
            "format": trace.format().name(), "units": trace.units(), "device": device,
            "devices": placed,
            "action": of.requests.action().map(|a| a.letter()), "span_ns": o.trace.0,
            "skipped": skipped, "out_of_order": of.requests.out_of_order(),
        },
        "on": of.on, "mode": options.mode.name(), "depth": o.depth,
        "offset_sectors": options.offset, "wrap": options.wrap, "align": options.align,
        "fill_bytes": options.fill_bytes, "fill_ns": o.fill.0,
        "virtual_ns": o.end.0, "bytes_per_s": rate(bytes, o.end.0),
        "requests": o.requests(), "requests_per_s": rate(o.requests(), o.end.0),
        "ops": ops, "late_ns": stat(&o.late), "device_full": o.busy, "split": o.split,
        "wrapped": o.wrapped, "widened": o.widened, "interrupted": o.interrupted,
        "notes": remarks(of, o),
        "counters": counters(&o.counters), "counters_before": counters(&o.counters_before),
    })
}

/// Devices that lie one behind the other: name, first sector, requests.
fn placed<'r>(of: &Of<'r, '_, '_>) -> Vec<(&'r str, u64, u64)> {
    let bases = wp_trace::bases(of.found);
    let base = |f: &Found| bases.get(&f.name).copied().unwrap_or(0);
    of.found.iter().map(|f| (f.name.as_str(), base(f), f.requests)).collect()
}

/// The devices of the trace, for people.
fn devices(of: &Of<'_, '_, '_>) -> String {
    let names: Vec<&str> = of.requests.devices().into_iter().map(|(name, _)| name).collect();
    match names.len() {
        0 => "device -".to_owned(),
        1 => format!("device {}", names[0]),
        n if n > NAMED_MAX => format!("{n} devices"),
        _ => format!("devices {}", names.join(" ")),
    }
}

/// What somebody who reads the numbers should know.
fn remarks(of: &Of<'_, '_, '_>, o: &Outcome) -> Vec<String> {
    let mut all = of.requests.trace().notes();
    if let Some((event, status)) = &o.first_failed {
        let what = format!("the first failed request ended with {status:?}");
        all.push(of.requests.trace().error(event, what, "").to_string());
    }
    if o.failed_fill > 0 {
        all.push(format!("{} writes of --fill failed", o.failed_fill));
    }
    let unknown = |c: &OpCounts| c.requests - c.recorded.count;
    let unknown: u64 = o.kinds().iter().map(|(_, c)| unknown(c)).sum();
    if of.options.mode == Mode::Think && unknown > 0 {
        all.push(format!(
            "{unknown} requests have no recorded completion: they count as completed at once"
        ));
    }
    if of.options.mode != Mode::Afap && o.trace.0 == 0 && o.requests() > 1 {
        all.push("all requests of the trace have the same time".to_owned());
    }
    let lost = of.requests.trace().skipped().count(Skip::Lost);
    if lost > 0 {
        all.push(format!("the tracer lost {lost} events: the trace is incomplete"));
    }
    all
}

/// The same for people.
pub(super) fn text(of: &Of<'_, '_, '_>, o: &Outcome) -> String {
    let mut t = String::new();
    put(&mut t, of, o).expect("a string takes it");
    t
}

fn put(t: &mut String, of: &Of<'_, '_, '_>, o: &Outcome) -> std::fmt::Result {
    let trace = of.requests.trace();
    let files: Vec<String> = of.files.iter().map(|f| f.shown()).collect();
    let action = of.requests.action().map_or("", |a| a.letter());
    writeln!(
        t,
        "trace    {}: {}, {}, at {action}: {} requests in {}",
        files.join(" "),
        trace.format().name(),
        devices(of),
        o.requests(),
        seconds(o.trace.0)
    )?;
    // Those of a kernel's or fio's trace are no question.
    if !matches!(
        trace.format(),
        Format::Blktrace | Format::Blkparse | Format::Ftrace | Format::Iolog
    ) {
        writeln!(t, "units    {}", trace.units())?;
    }
    for (name, base, requests) in placed(of).into_iter().take(PLACED_MAX) {
        writeln!(t, "device   {name}: {requests} requests, from sector {base}")?;
    }
    if of.found.len() > PLACED_MAX {
        writeln!(t, "device   … and {} more (--json has all)", of.found.len() - PLACED_MAX)?;
    }
    header(t, of.on, of.options.mode.name(), o)?;
    for remark in remarks(of, o) {
        writeln!(t, "note     {remark}")?;
    }
    let skipped: Vec<String> =
        trace.skipped().iter().map(|(why, n)| format!("{n} {}", why.name())).collect();
    if !skipped.is_empty() {
        writeln!(t, "skipped  {}", skipped.join(", "))?;
    }
    tables(t, of.options, o, of.requests.out_of_order())
}

/// Where it was replayed, how, and how fast.
fn header(t: &mut String, on: &str, mode: &str, o: &Outcome) -> std::fmt::Result {
    let bytes = moved(o);
    let interrupted = if o.interrupted { ", interrupted" } else { "" };
    writeln!(
        t,
        "replay   {on}, {mode}, at most {} in flight: {} of virtual time, {} KB/s, {} requests/s{interrupted}",
        o.depth,
        seconds(o.end.0),
        rate(bytes, o.end.0) / 1000,
        rate(o.requests(), o.end.0)
    )
}

/// Requests, latencies and counters.
fn tables(t: &mut String, options: &Options, o: &Outcome, out_of_order: u64) -> std::fmt::Result {
    writeln!(t, "\n{:<9}{:>12}{:>17}{:>9}{:>10}", "", "requests", "bytes", "failed", "not sent")?;
    let met = || o.kinds().into_iter().filter(|(_, c)| c.requests > 0);
    for (name, c) in met() {
        let (n, bytes) = (c.requests, c.bytes);
        writeln!(t, "{name:<9}{n:>12}{bytes:>17}{:>9}{:>10}", c.failed, c.not_sent)?;
    }
    write!(t, "\n{:<18}{:>10}{:>12}", "", "n", "mean")?;
    QUANTILES.iter().try_for_each(|(name, _)| write!(t, "{name:>12}"))?;
    writeln!(t, "{:>12}", "max")?;
    for (name, c) in met() {
        row(t, &format!("{name} service"), &c.service)?;
        if options.mode == Mode::Timed {
            row(t, &format!("{name} response"), &c.response)?;
        }
        row(t, &format!("{name} recorded"), &c.recorded)?;
    }
    for (n, s) in (1..).zip(&o.streams) {
        row(t, &format!("flow {n} response"), &s.response)?;
    }
    row(t, "late", &o.late)?;
    let told = [
        ("times the queue was full", o.busy),
        ("commands added by splitting", o.split),
        ("wrapped requests", o.wrapped),
        ("widened requests", o.widened),
        ("lines out of order", out_of_order),
    ];
    writeln!(t)?;
    for (what, n) in told.into_iter().filter(|(_, n)| *n > 0) {
        writeln!(t, "{what:<30}{n:>16}")?;
    }
    let filled = options.fill_bytes > 0;
    for ((name, n), (_, before)) in o.counters.iter().zip(&o.counters_before) {
        if *n > 0 || *before > 0 {
            write!(t, "{name:<30}{n:>16}")?;
            if filled {
                write!(t, "{before:>16} before")?;
            }
            writeln!(t)?;
        }
    }
    Ok(())
}

fn row(t: &mut String, name: &str, s: &Stat) -> std::fmt::Result {
    if s.count == 0 {
        return Ok(());
    }
    write!(t, "{name:<18}{:>10}{:>12}", s.count, seconds(s.mean() as u64))?;
    for (_, share) in QUANTILES {
        write!(t, "{:>12}", seconds(quantile(s, share)))?;
    }
    writeln!(t, "{:>12}", seconds(s.max))
}

/// What of a workload definition was replayed, and onto what.
pub(super) struct OfWorkload<'w> {
    pub path: &'w Path,
    pub scenario: &'w Scenario,
    pub on: &'w str,
    pub options: &'w Options,
}

impl OfWorkload<'_> {
    /// What somebody who reads the numbers should know.
    fn notes(&self, o: &Outcome) -> Vec<String> {
        let mut all = self.scenario.notes.clone();
        if let Some((event, status)) = &o.first_failed {
            let flow = event.device + 1;
            all.push(format!("the first failed request, of flow {flow}, ended with {status:?}"));
        }
        if o.failed_fill > 0 {
            all.push(format!("{} writes of --fill failed", o.failed_fill));
        }
        all
    }

    /// The document of `--json`. Latencies are in nanoseconds.
    pub fn document(&self, o: &Outcome) -> Value {
        let bytes = moved(o);
        let flows: Vec<Value> = o
            .streams
            .iter()
            .map(|s| {
                json!({
                    "requests": s.requests, "bytes_done": s.bytes_done,
                    "requests_per_s": rate(s.requests, o.end.0),
                    "response_ns": stat(&s.response),
                })
            })
            .collect();
        json!({
            "schema": "writepath.replay-workload/1",
            "workload": { "file": path(self.path), "line": self.scenario.line,
                "what": self.scenario.what() },
            "on": self.on, "depth": o.depth, "wrap": self.options.wrap,
            "align": self.options.align, "fill_bytes": self.options.fill_bytes,
            "fill_ns": o.fill.0, "virtual_ns": o.end.0, "bytes_per_s": rate(bytes, o.end.0),
            "requests": o.requests(), "requests_per_s": rate(o.requests(), o.end.0),
            "ops": ops(o), "flows": flows, "late_ns": stat(&o.late), "device_full": o.busy,
            "split": o.split, "wrapped": o.wrapped, "widened": o.widened,
            "interrupted": o.interrupted, "notes": self.notes(o),
            "counters": counters(&o.counters),
            "counters_before": counters(&o.counters_before),
        })
    }

    /// The same for people.
    pub fn text(&self, o: &Outcome) -> String {
        let mut t = String::new();
        self.put(&mut t, o).expect("a string takes it");
        t
    }

    fn put(&self, t: &mut String, o: &Outcome) -> std::fmt::Result {
        let (line, what) = (self.scenario.line, self.scenario.what());
        let requests = o.requests();
        writeln!(t, "workload {}: {what} (line {line}): {requests} requests", self.path.shown())?;
        header(t, self.on, "each flow at its pace", o)?;
        for (n, s) in (1..).zip(&o.streams) {
            let (rate, bytes) = (rate(s.requests, o.end.0), rate(s.bytes_done, o.end.0) / 1000);
            writeln!(t, "flow {n:<3} {} requests, {rate} requests/s, {bytes} KB/s", s.requests)?;
        }
        for note in self.notes(o) {
            writeln!(t, "note     {note}")?;
        }
        tables(t, self.options, o, 0)
    }
}
