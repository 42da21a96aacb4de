//! What a sync takes of a drive, beside public measurements.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_calibrate::sync;
use wp_machine::MachineError;

use super::{FITS, percent};
use crate::output::{Exit, Out};

/// Runs the points of a drive. Errors: the exit code, after saying why.
pub(super) fn run(
    name: &str,
    replaced: &[(String, u64)],
    points: &[sync::Point],
    out: &Out,
) -> Result<Vec<sync::Judged>, ExitCode> {
    sync::compare(points, name, replaced).map_err(|e| match e {
        MachineError::Config(e) => out.fail(Exit::Usage, "device", &e, "writepath list devices"),
        e => out.machine_error(&e),
    })
}

/// As JSON.
pub(super) fn document(judged: &[sync::Judged]) -> Value {
    let half = |regime: sync::Regime, fitted: bool| {
        let found = sync::error(judged, regime, fitted);
        found.map(|(points, error)| json!({ "points": points, "error": error }))
    };
    let regimes: Vec<Value> = sync::Regime::ALL
        .into_iter()
        .map(|r| json!({ "regime": r.name(), "fitted": half(r, true), "held_out": half(r, false) }))
        .collect();
    let points: Vec<Value> = judged
        .iter()
        .map(|j| {
            let (means, tail) = j.errors();
            json!({ "load": j.point.name(), "regime": j.point.regime().name(),
                "fitted": j.point.fitted, "measured": j.point.measured, "model": j.model,
                "error": means, "error_p99": tail, "source": j.point.source })
        })
        .collect();
    json!({ "regimes": regimes, "points": points })
}

/// Each point beside the model, then the errors.
pub(super) fn print(judged: &[sync::Judged]) -> String {
    let mut t = String::new();
    writeln!(
        t,
        "{:<33}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}  half",
        "sync",
        "IOPS",
        "model",
        "write us",
        "model",
        "sync us",
        "model",
        "p99 us",
        "model",
        "error"
    )
    .expect(FITS);
    let value = |v: Option<f64>| match v {
        None => "-".to_owned(),
        Some(v) if v >= 1000.0 => format!("{v:.0}"),
        Some(v) => format!("{v:.1}"),
    };
    for j in judged {
        let (real, model) = (j.point.measured, j.model);
        let pair = |r: Option<f64>, m: Option<f64>| (value(r), value(m.filter(|_| r.is_some())));
        let (iops, mean) = (pair(real.iops, model.iops), pair(real.mean_us, model.mean_us));
        let (sync, p99) = (pair(real.sync_us, model.sync_us), pair(real.p99_us, model.p99_us));
        let half = if j.point.fitted { "fitted" } else { "held out" };
        writeln!(
            t,
            "{:<33}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}  {half}",
            j.point.name(),
            iops.0,
            iops.1,
            mean.0,
            mean.1,
            sync.0,
            sync.1,
            p99.0,
            p99.1,
            j.errors().0.map_or("-".to_owned(), percent),
        )
        .expect(FITS);
    }
    regimes(&mut t, judged);
    t
}

/// The errors of each regime that has points.
fn regimes(t: &mut String, judged: &[sync::Judged]) {
    writeln!(
        t,
        "\n{:<18}{:>8}{:>10}  |{:>8}{:>10}",
        "regime", "points", "fitted", "points", "held out"
    )
    .expect(FITS);
    for regime in sync::Regime::ALL {
        let half = |fitted: bool| match sync::error(judged, regime, fitted) {
            None => (0, "-".to_owned()),
            Some((points, error)) => (points, percent(error)),
        };
        let (fitted, held) = (half(true), half(false));
        if fitted.0 + held.0 > 0 {
            writeln!(
                t,
                "{:<18}{:>8}{:>10}  |{:>8}{:>10}",
                regime.name(),
                fitted.0,
                fitted.1,
                held.0,
                held.1
            )
            .expect(FITS);
        }
    }
}
