//! A run of fio jobs: its `fio.json` as bars, one place a job, and as a table.

use serde_json::Value;

use super::block::Block;
use super::figure::{Axis, Figure, Mark, Point, Series, Shape};
use super::scale::number;
use super::table::{Cell, Table};
use super::words::{self, Lang, Text};

/// Directions of a job.
const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];
/// Most jobs of a figure; the table has all.
const JOBS_MAX: usize = 24;

/// A rated value of the drive that a job measures.
#[derive(Clone, PartialEq, Debug)]
pub struct Rated {
    /// The job.
    pub job: String,
    /// In `unit`.
    pub value: f64,
    /// `IOPS` or `MB/s`.
    pub unit: String,
}

/// Tables and figures of a fio report; `n`: the run's place on the page. Nothing of a document that
/// is none.
pub fn blocks(doc: &Value, rated: &[Rated], n: usize, lang: Lang) -> Vec<Block> {
    let Some(jobs) = doc["jobs"].as_array().filter(|j| !j.is_empty()) else { return Vec::new() };
    let shown = &jobs[..jobs.len().min(JOBS_MAX)];
    let of_unit = |unit: &str| rated.iter().filter(|r| r.unit == unit).collect::<Vec<_>>();
    let figure = |id: &str, title: Text, unit: &str, value: fn(&Value) -> Option<f64>| {
        bars(shown, (n, id, title.of(lang), unit), lang, value, &of_unit(unit))
    };
    let mut out = vec![
        figure("iops", words::JOB_RATE, "IOPS", per_second),
        figure("bandwidth", words::JOB_BANDWIDTH, "MB/s", megabytes),
        figure("latency", words::JOB_LATENCY, "us", latency),
    ];
    out.retain(|f| !f.is_empty());
    let mut out: Vec<Block> = out.into_iter().map(Block::Figure).collect();
    out.push(Block::Table(table(jobs, n, lang)));
    out
}

fn per_second(d: &Value) -> Option<f64> {
    d["iops"].as_f64()
}

/// 10^6 bytes per second.
fn megabytes(d: &Value) -> Option<f64> {
    d["bw_bytes"].as_f64().map(|b| b / 1e6)
}

/// Mean in microseconds; of an asynchronous engine from its preparation on.
fn latency(d: &Value) -> Option<f64> {
    d["lat_ns"]["mean"].as_f64().map(|ns| ns / 1e3)
}

/// The 99th percentile in microseconds.
fn p99(d: &Value) -> Option<f64> {
    d["clat_ns"]["percentile"]["99.000000"].as_f64().map(|ns| ns / 1e3)
}

fn has_run(d: &Value) -> bool {
    d["total_ios"].as_u64().is_some_and(|n| n > 0)
}

fn name(job: &Value) -> &str {
    job["jobname"].as_str().unwrap_or_default()
}

fn bars(
    jobs: &[Value],
    (n, id, title, unit): (usize, &str, &str, &str),
    lang: Lang,
    value: fn(&Value) -> Option<f64>,
    rated: &[&Rated],
) -> Figure {
    let series = DIRECTIONS.iter().enumerate().map(|(style, direction)| {
        let of = jobs.iter().enumerate().filter(|(_, j)| has_run(&j[*direction]));
        let points = of.filter_map(|(at, j)| Some(Point::new(at as f64, value(&j[*direction])?)));
        Series::new(*direction, style, points.collect())
    });
    let mark = |r: &&Rated| {
        let at = jobs.iter().position(|j| name(j) == r.job)?;
        Some(Mark {
            x: Some(at as f64),
            value: Some(r.value),
            band: None,
            label: format!("{}: {} {}", words::JOB_RATED.of(lang), number(r.value), r.unit),
            series: None,
        })
    };
    let names: Vec<String> =
        jobs.iter().zip(1..).map(|(j, at)| format!("{at} {}", name(j))).collect();
    Figure {
        id: format!("run-{n}-jobs-{id}"),
        number: "fio.json".to_owned(),
        title: title.to_owned(),
        caption: names.join(", "),
        shape: Shape::Bars,
        x: Axis::named(words::JOB.of(lang), (1..=jobs.len()).map(|n| n.to_string()).collect()),
        y: Axis::log(title, unit).switched(),
        series: series.filter(|s| !s.points.is_empty()).collect(),
        said_by: words::JOB_RATED,
        marks: rated.iter().filter_map(mark).collect(),
        claims: Vec::new(),
    }
}

fn table(jobs: &[Value], n: usize, lang: Lang) -> Table {
    let heads = [
        words::JOB.of(lang),
        words::JOB_DIRECTION.of(lang),
        "IOPS",
        "MB/s",
        words::JOB_MEAN.of(lang),
        words::JOB_P99.of(lang),
    ];
    let mut t = Table::new(
        &format!("run-{n}-jobs"),
        "fio.json".to_owned(),
        words::JOBS.of(lang).to_owned(),
        &heads,
    );
    for job in jobs {
        for direction in DIRECTIONS.iter().filter(|d| has_run(&job[**d])) {
            let d = &job[*direction];
            let value =
                |v: Option<f64>| v.map_or(Cell::text("\u{2014}"), |v| Cell::number(number(v)));
            t.rows.push(vec![
                Cell::text(name(job)).class("mono"),
                Cell::text(*direction),
                value(per_second(d)),
                value(megabytes(d)),
                value(latency(d)),
                value(p99(d)),
            ]);
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_job_is_a_place_and_what_it_is_rated_at_a_mark() {
        let side = |ios: u64, iops: f64| {
            json!({ "total_ios": ios, "iops": iops, "bw_bytes": iops * 4096.0,
                "lat_ns": { "mean": 5000.0 }, "clat_ns": {} })
        };
        let doc = json!({ "jobs": [
            { "jobname": "a", "read": side(7, 1000.0), "write": side(0, 0.0) },
            { "jobname": "b", "read": side(0, 0.0), "write": side(9, 50.0) },
        ] });
        let rated = [Rated { job: "b".into(), value: 60.0, unit: "IOPS".into() }];
        let made = blocks(&doc, &rated, 0, Lang::En);
        let figures: Vec<&Figure> = made
            .iter()
            .filter_map(|b| if let Block::Figure(f) = b { Some(f) } else { None })
            .collect();
        assert_eq!(figures.len(), 3);
        let places: Vec<(&str, f64)> =
            figures[0].series.iter().map(|s| (s.name.as_str(), s.points[0].x)).collect();
        assert_eq!(places, [("read", 0.0), ("write", 1.0)]);
        assert_eq!(figures[0].marks.len(), 1);
        assert_eq!((figures[0].marks[0].x, figures[1].marks.len()), (Some(1.0), 0));
        assert!(blocks(&json!({}), &[], 0, Lang::En).is_empty());
    }
}
