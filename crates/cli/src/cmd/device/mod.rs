//! `device`: a modelled drive beside measurements of the real one, or through the usual tests.

mod syncs;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_calibrate::drive::{Comparison, Errors, Judged, Point, Regime, compare, parse, suite};
use wp_calibrate::sync;
use wp_machine::MachineError;

use crate::output::{Exit, Out};

const FITS: &str = "a string takes everything";

/// The points that are kept with the sources.
const POINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../devices/zn540/points.csv");

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath device 840pro-128\n\
    \x20 writepath device zn540-4tb\n\
    \x20 writepath device zn540-4tb --set read_ns=55000 --all")]
pub struct Args {
    /// Device model (`list devices`): a ZN540, or any other to run benchmarks on
    ///
    /// Of a ZN540 the model is compared with measured points of the drive. On other models
    /// `examples/drive-benchmark.fio` runs, beside the values that the drive is rated at, and what
    /// a sync takes is compared with public measurements (devices/sync/points.csv). A value marked
    /// `fitted` is one that a parameter was chosen by, without CPU costs; the model predicts the
    /// others.
    name: String,
    /// CPU cost profile of the benchmarks: one of `list cpus`
    #[arg(long, value_name = "PROFILE", default_value = "i7-4770")]
    cpu: String,
    /// Replace a parameter of the model, as NAME,KEY=VALUE does
    #[arg(long = "set", value_name = "KEY=VALUE")]
    replaced: Vec<String>,
    /// File of measured points [default: those in devices/]
    ///
    /// Points as in devices/zn540/points.csv or devices/sync/points.csv.
    #[arg(long)]
    points: Option<PathBuf>,
    /// Print every point
    #[arg(long)]
    all: bool,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let mut replaced = Vec::new();
    for text in &a.replaced {
        let parsed = text.split_once('=').and_then(|(k, v)| Some((k.to_owned(), v.parse().ok()?)));
        let Some(pair) = parsed else {
            let message = format!("--set {text}: not KEY=NUMBER");
            return out.fail(Exit::Usage, "set", &message, "--set read_ns=55000");
        };
        replaced.push(pair);
    }
    let help = "writepath list devices";
    let (name, own) = match wp_machine::spec::devices(&a.name) {
        Ok((device, more)) if more.is_empty() => device,
        Ok(_) => {
            let message = format!("{}: several devices, and one is compared: name one", a.name);
            return out.fail(Exit::Usage, "device", &message, help);
        }
        Err(e) => return out.fail(Exit::Usage, "device", &e, help),
    };
    let name = name.as_str();
    // What `--set` replaces holds.
    let own = own.into_iter().filter(|(key, _)| replaced.iter().all(|(k, _)| k != key));
    let replaced: Vec<(String, u64)> = own.chain(replaced.iter().cloned()).collect();
    if a.points.is_none() && wp_device::find(name).is_none_or(|e| !is_zoned(e)) {
        return tests(a, &replaced, out);
    }
    let path = a.points.clone().unwrap_or_else(|| PathBuf::from(POINTS));
    let text = match wp_machine::host::text::read(&path) {
        Ok(text) => text,
        Err(e) => return out.host_error(&path, &e),
    };
    if text.starts_with("device,stack,") {
        let points = sync::parse(&text);
        let points = points.map_err(|e| {
            let message = format!("{}:{e}", path.shown());
            out.fail(Exit::Usage, "points", &message, "see devices/sync/README.md")
        });
        return match points.and_then(|points| syncs::run(name, &replaced, &points, out)) {
            Ok(judged) if judged.is_empty() => {
                let message = format!("{}: no point of {name}", path.shown());
                out.fail(Exit::Usage, "points", &message, "see devices/sync/README.md")
            }
            Ok(judged) => {
                let doc = json!({ "schema": "writepath.drive-syncs/1", "device": name,
                    "syncs": syncs::document(&judged) });
                out.result(&doc, &syncs::print(&judged))
            }
            Err(code) => code,
        };
    }
    let points: Vec<Point> = match parse(&text) {
        Ok(points) => points,
        Err(e) => {
            let message = format!("{}: {e}", path.shown());
            return out.fail(Exit::Usage, "points", &message, "see devices/zn540/README.md");
        }
    };
    match compare(&points, name, &replaced) {
        Ok(found) => out.result(&document(&found, a.all), &print(&found, a.all)),
        Err(e) => out.fail(Exit::Usage, "device", &e.to_string(), "writepath list devices"),
    }
}

/// Is it one of the drives with measured points?
fn is_zoned(e: &wp_device::DeviceEntry) -> bool {
    e.name.starts_with("zn540")
}

/// Runs the usual tests.
fn tests(a: &Args, replaced: &[(String, u64)], out: &Out) -> ExitCode {
    let help = "writepath list devices";
    let cpu = match wp_machine::profile::Profile::find(&a.cpu) {
        Ok(cpu) => cpu,
        Err(e) => return out.fail(Exit::Usage, "cpu", &e, "writepath list cpus"),
    };
    let all = match suite(&a.name, replaced, cpu, 1) {
        Ok(all) => all,
        Err(MachineError::Config(e)) => return out.fail(Exit::Usage, "device", &e, help),
        Err(e) => return out.machine_error(&e),
    };
    let mut t = String::new();
    writeln!(
        t,
        "{:<17}{:>10}{:>10}{:>12}{:>12}{:>16}    difference",
        "test", "IOPS", "MB/s", "mean us", "p99 us", "rated"
    )
    .expect(FITS);
    let mut tests = Vec::new();
    for test in &all {
        let us = |ns: f64| ns / 1e3;
        let (rated, off) = match test.rated {
            None => ("-".to_owned(), "-".to_owned()),
            Some(rated) => {
                let off = (test.value() / rated.value - 1.0) * 100.0;
                let mark = if rated.fitted { "  fitted" } else { "" };
                (format!("{} {}", rated.value, rated.unit), format!("{off:+.1} %{mark}"))
            }
        };
        writeln!(
            t,
            "{:<17}{:>10.0}{:>10.1}{:>12.1}{:>12.1}{rated:>16}    {off}",
            test.test,
            test.iops,
            test.mb_s,
            us(test.mean_ns),
            us(test.p99_ns as f64),
        )
        .expect(FITS);
        let rated = test.rated.map(
            |r| json!({ "value": r.value, "unit": r.unit, "source": r.source, "fitted": r.fitted }),
        );
        tests.push(json!({
            "test": test.test, "iops": test.iops, "mb_per_s": test.mb_s,
            "mean_ns": test.mean_ns, "p99_ns": test.p99_ns, "rated": rated,
        }));
    }
    let points = sync::points();
    let name = a.name.split(',').next().unwrap_or_default();
    let judged = match syncs::run(name, replaced, &points, out) {
        Ok(judged) => judged,
        Err(code) => return code,
    };
    if !judged.is_empty() {
        t.push('\n');
        t.push_str(&syncs::print(&judged));
    }
    let doc = json!({ "schema": "writepath.drive-tests/1", "device": a.name, "tests": tests,
        "syncs": syncs::document(&judged) });
    out.result(&doc, &t)
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn print(found: &Comparison, all: bool) -> String {
    let mut t = String::new();
    if all {
        writeln!(t, "{:<13} {:<28} point", "regime", "experiment").expect(FITS);
        found.judged.iter().for_each(|j| point_line(&mut t, j));
    }
    writeln!(
        t,
        "{:<14}{:>8}{:>10}{:>14}  |{:>8}{:>10}{:>14}",
        "regime", "values", "fitted", "interpolated", "values", "held out", "interpolated"
    )
    .expect(FITS);
    let mut sums = [(0.0, 0.0); 2];
    for (regime, (fitted, held)) in &found.regimes {
        let half = |e: &Errors| {
            let baseline = e.baseline.map_or("-".to_owned(), percent);
            format!("{:>8}{:>10}{:>14}", e.values, percent(e.model), baseline)
        };
        writeln!(t, "{:<14}{}  |{}", regime.name(), half(fitted), half(held)).expect(FITS);
        for (sum, e) in sums.iter_mut().zip([fitted, held]) {
            *sum = (sum.0 + e.model, sum.1 + e.baseline.unwrap_or(0.0));
        }
    }
    let n = found.regimes.len() as f64;
    let mean = |(model, baseline): (f64, f64)| {
        format!("{:>8}{:>10}{:>14}", "", percent(model / n), percent(baseline / n))
    };
    writeln!(t, "{:<14}{}  |{}", "mean", mean(sums[0]), mean(sums[1])).expect(FITS);
    t
}

fn point_line(t: &mut String, j: &Judged) {
    let p = &j.point;
    let value = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.2}"));
    let half = if p.is_fitted() { "fitted" } else { "held out" };
    let fraction = p.fraction.map_or(String::new(), |f| format!(" written {f:.3}"));
    writeln!(
        t,
        "{:<13} {:<28} {} bytes, depth {}, zones {}{fraction}: {} us (measured {}), rate {} (measured \
         {}); error {} (interpolated {}), {half}",
        j.regime.name(),
        p.experiment,
        p.size,
        p.depth,
        p.zones,
        value(j.model.0),
        value(j.measured.0),
        value(j.model.1),
        value(j.measured.1),
        percent(j.error.0),
        j.error.1.map_or("-".to_owned(), percent),
    )
    .expect(FITS);
}

fn document(found: &Comparison, all: bool) -> Value {
    let half =
        |e: &Errors| json!({ "values": e.values, "error": e.model, "interpolated": e.baseline });
    let regimes: Vec<Value> = Regime::ALL
        .iter()
        .filter_map(|r| {
            let (fitted, held) = found.regimes.get(r)?;
            Some(json!({ "regime": r.name(), "fitted": half(fitted), "held_out": half(held) }))
        })
        .collect();
    let point = |j: &Judged| {
        let p = &j.point;
        json!({
            "regime": j.regime.name(), "experiment": p.experiment, "op": p.op,
            "size_bytes": p.size, "queue_depth": p.depth, "zones": p.zones,
            "fraction_written": p.fraction, "fitted": p.is_fitted(),
            "measured_us": j.measured.0, "measured_rate": j.measured.1,
            "model_us": j.model.0, "model_rate": j.model.1,
            "error": j.error.0, "interpolated": j.error.1,
        })
    };
    let points: Vec<Value> =
        if all { found.judged.iter().map(point).collect() } else { Vec::new() };
    json!({ "schema": "writepath.device/1", "compared": found.judged.len(), "regimes": regimes,
        "points": points })
}
