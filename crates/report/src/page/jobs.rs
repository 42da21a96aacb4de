//! A run of fio jobs: its `fio.json` as bars, one place a job, and as a table.

use serde::Deserialize;

use super::block::Block;
use super::figure::{Axis, Figure, Mark, Point, Series, Shape};
use super::scale::number;
use super::table::{Cell, Table};
use super::words::{self, Lang, Text};

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

/// What the page shows of a fio report.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Fio {
    /// Its jobs, in order.
    pub jobs: Vec<Job>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Job {
    /// Its name.
    pub jobname: String,
    /// What it read.
    pub read: Direction,
    /// What it wrote.
    pub write: Direction,
    /// What it trimmed.
    pub trim: Direction,
}

/// One direction of a job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Direction {
    /// Operations; 0: there is nothing to show.
    pub total_ios: u64,
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bw_bytes: f64,
    /// Latency; of an asynchronous engine from its preparation on.
    pub lat_ns: Latency,
    /// Latency from the submission on.
    pub clat_ns: Completion,
}

/// A latency in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Latency {
    /// Its mean.
    pub mean: f64,
}

/// A latency whose percentiles a job may be asked for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Completion {
    /// The percentiles; none of a job that keeps none.
    pub percentile: Option<Percentiles>,
}

/// Percentiles in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Percentiles {
    /// The 99th, if it is one of those that were asked for.
    #[serde(rename = "99.000000")]
    pub p99: Option<f64>,
}

impl Job {
    /// Its directions that have done something: place among the three, name, numbers.
    fn directions(&self) -> impl Iterator<Item = (usize, &'static str, &Direction)> {
        let all = [("read", &self.read), ("write", &self.write), ("trim", &self.trim)];
        let all = all.into_iter().enumerate().map(|(n, (name, d))| (n, name, d));
        all.filter(|(_, _, d)| d.total_ios > 0)
    }
}

/// Tables and figures of a fio report; `n`: the run's place on the page.
pub fn blocks(fio: &Fio, rated: &[Rated], n: usize, lang: Lang) -> Vec<Block> {
    let jobs = &fio.jobs;
    if jobs.is_empty() {
        return Vec::new();
    }
    let shown = &jobs[..jobs.len().min(JOBS_MAX)];
    let of_unit = |unit: &str| rated.iter().filter(|r| r.unit == unit).collect::<Vec<_>>();
    let figure = |id: &str, title: Text, unit: &str, value: fn(&Direction) -> f64| {
        bars(shown, (n, id, title.of(lang), unit), lang, value, &of_unit(unit))
    };
    let mut out = vec![
        figure("iops", words::JOB_RATE, "IOPS", |d| d.iops),
        figure("bandwidth", words::JOB_BANDWIDTH, "MB/s", megabytes),
        figure("latency", words::JOB_LATENCY, "us", latency),
    ];
    out.retain(|f| !f.is_empty());
    let mut out: Vec<Block> = out.into_iter().map(Block::Figure).collect();
    out.push(Block::Table(table(jobs, n, lang)));
    out
}

/// 10^6 bytes per second.
fn megabytes(d: &Direction) -> f64 {
    d.bw_bytes / 1e6
}

/// Mean in microseconds.
fn latency(d: &Direction) -> f64 {
    d.lat_ns.mean / 1e3
}

/// The 99th percentile in microseconds.
fn p99(d: &Direction) -> Option<f64> {
    Some(d.clat_ns.percentile.as_ref()?.p99? / 1e3)
}

fn bars(
    jobs: &[Job],
    (n, id, title, unit): (usize, &str, &str, &str),
    lang: Lang,
    value: fn(&Direction) -> f64,
    rated: &[&Rated],
) -> Figure {
    let series = ["read", "write", "trim"].into_iter().enumerate().map(|(style, name)| {
        let all = jobs.iter().enumerate();
        let of = all.flat_map(|(at, j)| j.directions().map(move |(n, _, d)| (at, n, d)));
        let points = of.filter(|(_, n, _)| *n == style);
        let points = points.map(|(at, _, d)| Point::new(at as f64, value(d)));
        Series::new(name, style, points.collect())
    });
    let mark = |r: &&Rated| {
        let at = jobs.iter().position(|j| j.jobname == r.job)?;
        Some(Mark {
            x: Some(at as f64),
            value: Some(r.value),
            band: None,
            label: format!("{}: {} {}", words::JOB_RATED.of(lang), number(r.value), r.unit),
            series: None,
        })
    };
    let names: Vec<String> =
        jobs.iter().zip(1..).map(|(j, at)| format!("{at} {}", j.jobname)).collect();
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

fn table(jobs: &[Job], n: usize, lang: Lang) -> Table {
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
        for (_, name, d) in job.directions() {
            let value = |v: f64| Cell::number(number(v));
            t.rows.push(vec![
                Cell::text(&job.jobname).class("mono"),
                Cell::text(name),
                value(d.iops),
                value(megabytes(d)),
                value(latency(d)),
                p99(d).map_or_else(|| Cell::text("\u{2014}"), value),
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
        let none = || side(0, 0.0);
        let doc = json!({ "jobs": [
            { "jobname": "a", "read": side(7, 1000.0), "write": none(), "trim": none() },
            { "jobname": "b", "read": none(), "write": side(9, 50.0), "trim": none() },
        ] });
        let fio: Fio = crate::document::read(&doc.to_string()).expect("a report of fio");
        let rated = [Rated { job: "b".into(), value: 60.0, unit: "IOPS".into() }];
        let made = blocks(&fio, &rated, 0, Lang::En);
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
        assert!(blocks(&Fio { jobs: Vec::new() }, &[], 0, Lang::En).is_empty());
        let wrong = doc.to_string().replace("bw_bytes", "bw");
        let wrong = crate::document::read::<Fio>(&wrong).expect_err("a key is missing");
        assert!(wrong.to_string().starts_with("jobs[0].read: missing field `bw_bytes`"), "{wrong}");
    }
}
