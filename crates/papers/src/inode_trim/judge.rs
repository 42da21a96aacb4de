//! From runs to claims.

use wp_machine::MachineError;
use wp_report::claim::Judged;

use super::{Results, RunOutcome, SLUG, Trim};
use crate::claims::{Book, Claims, Measured};

fn config(e: impl std::fmt::Display) -> MachineError {
    MachineError::Config(e.to_string())
}

/// How many pages of which class.
fn parts(r: &RunOutcome) -> String {
    let parts: Vec<String> =
        r.unmounted.0.iter().map(|(class, n)| format!("{class} {n}")).collect();
    format!("{}; with the journal {}", parts.join(", "), r.unmounted.with_journal())
}

pub(super) fn judge(found: &Results) -> Result<Vec<Judged>, MachineError> {
    let claims = Claims::fixed();
    let mut book = Book::open(&claims, SLUG).map_err(config)?;
    let mut emit = |id: &str, m: Measured| book.emit(id, m).map(|_| ()).map_err(config);
    let (plain, safe) = (found.runs.of(Trim::Discard), found.runs.of(Trim::Safe));
    let (a, b) = (plain.unmounted.counted() as f64, safe.unmounted.counted() as f64);
    let range = |of: &dyn Fn(f64, f64) -> f64| {
        let varied = found.varied.iter().map(|(_, a, b)| of(*a as f64, *b as f64));
        let all = varied.chain([of(a, b)]);
        let wider = |[low, high]: [f64; 2], v: f64| [low.min(v), high.max(v)];
        all.fold([f64::INFINITY, f64::NEG_INFINITY], wider)
    };
    let with = |m: Measured, of: &dyn Fn(f64, f64) -> f64| match range(of) {
        [low, high] if !found.varied.is_empty() => m.interval(low, high),
        _ => m,
    };
    emit("fig2.plain", with(Measured::value(a).why(parts(plain)), &|a, _| a))?;
    let naive = found.runs.of(Trim::Naive).unmounted.counted();
    let why = format!("judged: safe; naive leaves {naive}, see there; {}", parts(safe));
    emit("fig3.trim", with(Measured::value(b).why(why), &|_, b| b))?;
    emit("fig3.ratio", with(Measured::value(a / b), &|a, b| a / b))?;
    let more = safe.blocks_without_valid as f64 - plain.blocks_without_valid as f64;
    let of = format!("{} against {}", safe.blocks_without_valid, plain.blocks_without_valid);
    emit("fig3.blocks_freed", Measured::value(more).why(of))?;
    emit("perturb.half", Measured::value(found.half.tables_trimmed as f64))?;
    emit("perturb.15of16", Measured::value(found.most.tables_trimmed as f64))?;
    book.close().map_err(config)
}
