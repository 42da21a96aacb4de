//! Rows, one a run, and what points come to: `points.csv`, `summary.json`, and back from
//! `rows.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};
use wp_base::csv;

use super::Experiment;
use super::metric::{self, Metrics, Number};
use super::run::Outcome;
use super::sweep::Sweep;

/// A run that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Number of the point.
    pub point: usize,
    /// Seed.
    pub seed: u64,
    /// Its outcome.
    pub outcome: Outcome,
}

/// One row a run: number of the point, its values, the seed, and every metric, empty where a run
/// does not have it.
pub fn points_csv(sweep: &Sweep, rows: &[Row]) -> String {
    let plain = |row: &Row| (row.point, Vec::new());
    columns(sweep, rows, &[], &plain)
}

/// The same of runs that variations changed, whose name stands before: rows have the numbers that
/// points have behind those of the sweep.
pub fn varied_csv(e: &Experiment, rows: &[Row]) -> String {
    let named = |row: &Row| {
        let changed = e.varied.as_ref().and_then(|v| {
            let c = v.points.get(row.point.checked_sub(e.points.len())?)?;
            Some((c.point, vec![v.names[c.variation].clone()]))
        });
        changed.unwrap_or((row.point, vec![String::new()]))
    };
    columns(&e.sweep, rows, &["variation"], &named)
}

/// Rows with further columns before: `place` has a row's point and what stands in them.
fn columns(
    sweep: &Sweep,
    rows: &[Row],
    first: &[&str],
    place: &dyn Fn(&Row) -> (usize, Vec<String>),
) -> String {
    let names: BTreeSet<&str> =
        rows.iter().flat_map(|r| r.outcome.metrics.keys()).map(String::as_str).collect();
    let mut out = String::new();
    let head = first.iter().copied().chain(["point"]).chain(sweep.columns()).chain(["seed"]);
    let head = csv::row(head.chain(names.iter().copied()));
    writeln!(out, "{head}").expect("a string takes it");
    for row in rows {
        let (point, before) = place(row);
        let mut all = before;
        all.push(point.to_string());
        all.extend(sweep.labels(point).into_iter().map(str::to_owned));
        all.push(row.seed.to_string());
        let of = |name: &&str| row.outcome.metrics.get(*name).map(Number::to_string);
        all.extend(names.iter().map(|n| of(n).unwrap_or_default()));
        writeln!(out, "{}", csv::row(all)).expect("a string takes it");
    }
    out
}

/// Mean, least and greatest of a metric over the seeds of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean.
    pub mean: f64,
    /// Least.
    pub min: Number,
    /// Greatest.
    pub max: Number,
    /// Runs that have it.
    pub runs: u64,
}

impl Summary {
    /// Of some numbers. `None` of none.
    pub fn of(all: &[Number]) -> Option<Summary> {
        let by_value = |a: &&Number, b: &&Number| a.value().total_cmp(&b.value());
        let (min, max) = (*all.iter().min_by(by_value)?, *all.iter().max_by(by_value)?);
        let runs = all.len() as u64;
        // Runs that agree have their number for a mean, whatever a sum would round.
        let mean = match min == max {
            true => min.value(),
            false => all.iter().map(|n| n.value()).sum::<f64>() / runs as f64,
        };
        Some(Summary { mean, min, max, runs })
    }

    /// Greatest less least, over the mean; 0 around 0.
    pub fn spread(&self) -> f64 {
        let width = self.max.value() - self.min.value();
        if width == 0.0 || self.mean == 0.0 { 0.0 } else { width / self.mean }
    }
}

/// A number for JSON.
pub fn json_number(n: Number) -> Value {
    match n {
        Number::Int(n) => json!(n),
        Number::Real(x) => json!(x),
    }
}

/// The runs of a point; rows are in the order of points.
pub fn of_point(rows: &[Row], point: usize) -> Vec<&Row> {
    let from = rows.partition_point(|r| r.point < point);
    rows[from..].iter().take_while(|r| r.point == point).collect()
}

/// Every metric of a point over its seeds.
pub fn summaries(rows: &[&Row]) -> BTreeMap<String, Summary> {
    let mut all: BTreeMap<&str, Vec<Number>> = BTreeMap::new();
    for row in rows {
        for (name, n) in &row.outcome.metrics {
            all.entry(name).or_default().push(*n);
        }
    }
    let of = |(name, list): (&str, Vec<Number>)| Some((name.to_owned(), Summary::of(&list)?));
    all.into_iter().filter_map(of).collect()
}

/// A metric of a point over its seeds; of a count that no run met, 0. `None`: there is no such.
pub fn metric_of(rows: &[&Row], name: &str) -> Option<Summary> {
    let all = rows.iter().map(|r| match r.outcome.metrics.get(name) {
        Some(n) => Some(*n),
        None => metric::value(&r.outcome.metrics, name).map(|_| Number::Int(0)),
    });
    Summary::of(&all.collect::<Option<Vec<Number>>>()?)
}

/// `summary.json`: each point with its values, its metrics over the seeds, and what was told.
pub fn summary(name: &str, sweep: &Sweep, seeds: std::ops::Range<u64>, rows: &[Row]) -> Value {
    let mut by_point: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_point.entry(row.point).or_default().push(row);
    }
    let point = |(n, rows): (&usize, &Vec<&Row>)| {
        let values: serde_json::Map<String, Value> = sweep
            .columns()
            .into_iter()
            .zip(sweep.labels(*n))
            .map(|(k, v)| (k.to_owned(), json!(v)))
            .collect();
        let metrics: serde_json::Map<String, Value> = summaries(rows)
            .into_iter()
            .map(|(name, s)| {
                let doc = json!({
                    "mean": s.mean, "min": json_number(s.min), "max": json_number(s.max),
                    "spread": s.spread(), "runs": s.runs,
                });
                (name, doc)
            })
            .collect();
        let notes: BTreeSet<&str> =
            rows.iter().flat_map(|r| &r.outcome.notes).map(String::as_str).collect();
        json!({ "point": n, "values": values, "metrics": metrics, "notes": notes })
    };
    let points: Vec<Value> = by_point.iter().map(point).collect();
    json!({
        "schema": "writepath.experiment/1", "name": name, "seeds": [seeds.start, seeds.end],
        "sweep": sweep.columns(), "points": points,
    })
}

/// A run as JSON, from which it is read again exactly: numbers are text.
pub fn outcome_json(outcome: &Outcome) -> Value {
    let metrics: BTreeMap<&str, String> =
        outcome.metrics.iter().map(|(k, n)| (k.as_str(), n.to_string())).collect();
    json!({ "metrics": metrics, "notes": outcome.notes })
}

/// The inverse. `None`: it is no such document.
pub fn outcome_of(doc: &Value) -> Option<Outcome> {
    let mut metrics = Metrics::new();
    for (name, n) in doc["metrics"].as_object()? {
        metrics.insert(name.clone(), Number::parse(n.as_str()?)?);
    }
    let note = |n: &Value| n.as_str().map(str::to_owned);
    let notes = doc["notes"].as_array()?.iter().map(note).collect::<Option<Vec<String>>>()?;
    Some(Outcome { metrics, notes })
}

/// Rows as JSON, for other shards to be put beside.
pub fn rows_json(rows: &[Row]) -> Value {
    let row =
        |r: &Row| json!({ "point": r.point, "seed": r.seed, "outcome": outcome_json(&r.outcome) });
    json!({ "schema": "writepath.rows/1", "rows": rows.iter().map(row).collect::<Vec<Value>>() })
}

/// The inverse. `None`: it is no such document.
pub fn rows_of(doc: &Value) -> Option<Vec<Row>> {
    let row = |r: &Value| {
        Some(Row {
            point: usize::try_from(r["point"].as_u64()?).ok()?,
            seed: r["seed"].as_u64()?,
            outcome: outcome_of(&r["outcome"])?,
        })
    };
    doc["rows"].as_array()?.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seed: u64, pairs: &[(&str, Number)]) -> Row {
        let metrics = pairs.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect();
        let notes = vec!["a, \"note\"".to_owned()];
        Row { point: 0, seed, outcome: Outcome { metrics, notes } }
    }

    #[test]
    fn rows_survive_their_document() {
        let rows = vec![
            row(1, &[("iops", Number::Real(1.0 / 3.0)), ("n", Number::Int(u64::MAX))]),
            row(2, &[("iops", Number::Real(2.0))]),
        ];
        let text = rows_json(&rows).to_string();
        let doc: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(rows_of(&doc), Some(rows.clone()));
        let csv = points_csv(&Sweep::default(), &rows);
        assert_eq!(
            csv,
            "point,seed,iops,n\n0,1,0.3333333333333333,18446744073709551615\n0,2,2.0,\n"
        );
        assert_eq!(rows_of(&json!({ "rows": [{ "point": 1 }] })), None);
    }

    #[test]
    fn runs_that_agree_have_their_number_for_a_mean() {
        let x = Number::Real(0.1);
        let s = Summary::of(&[x, x, x]).expect("some");
        assert_eq!((s.mean, s.spread(), s.runs), (0.1, 0.0, 3));
        let s = Summary::of(&[Number::Int(10), Number::Int(30)]).expect("some");
        assert_eq!((s.mean, s.spread()), (20.0, 1.0));
        assert_eq!(Summary::of(&[]), None);
    }
}
