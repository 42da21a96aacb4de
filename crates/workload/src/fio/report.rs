//! A report shaped as fio's `--output-format=json`.
//!
//! Times are virtual. What a simulation has none of (CPU shares, page faults, disks of the host,
//! sampled bandwidth) is there with 0, so that programs which read fio's reports find their keys.

use serde_json::{Map, Value, json};

use super::job::JobFile;
use super::result::JobResult;
use super::stats::Stat;
use super::steady::Steadiness;

/// The report. `epoch_secs`: seconds since 1970 when the machine was switched on; `now_ns`:
/// virtual time of the report.
pub fn report(file: &JobFile, results: &[JobResult], epoch_secs: i64, now_ns: u64) -> Value {
    report_with(file, results, (epoch_secs, now_ns), Bins::None)
}

/// Are the latencies' bins part of the report (`--output-format=json+`)?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bins {
    /// No.
    None,
    /// All that are not empty.
    All,
}

/// As [`report`].
pub fn report_with(
    file: &JobFile,
    results: &[JobResult],
    (epoch_secs, now_ns): (i64, u64),
    bins: Bins,
) -> Value {
    let secs = epoch_secs + (now_ns / 1_000_000_000) as i64;
    let merged = by_group(results);
    let jobs: Vec<Value> = merged.iter().map(|r| job(r, bins)).collect();
    let mut doc = json!({
        "fio version": "fio-3.33",
        "timestamp": secs,
        "timestamp_ms": secs * 1000 + (now_ns / 1_000_000 % 1000) as i64,
        "time": date(secs),
        "jobs": jobs,
        "disk_util": [],
    });
    if !file.global.is_empty() {
        doc["global options"] = json!(options(&file.global));
    }
    doc
}

/// What the report as text has of an entry and the document does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Jobs that it is of.
    pub jobs: u64,
    /// Number of the first of them.
    pub first: u64,
    /// Zones that they have reset.
    pub zone_resets: u64,
}

/// Those of each entry of a report.
pub fn counts(results: &[JobResult]) -> Vec<Counts> {
    let mut out: Vec<(Counts, u32)> = Vec::new();
    for r in results {
        match out.last_mut() {
            Some((o, group)) if r.job.group_reporting && *group == r.job.group => {
                o.jobs += 1;
                o.zone_resets += r.zone_resets;
            }
            _ => {
                let (first, zone_resets) = (u64::from(r.job.thread_number), r.zone_resets);
                out.push((Counts { jobs: 1, first, zone_resets }, r.job.group));
            }
        }
    }
    out.into_iter().map(|(counts, _)| counts).collect()
}

/// A time of day as C's `ctime` has it, in UTC.
fn date(secs: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let weekday = DAYS[days.rem_euclid(7) as usize];
    let is_leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    let (mut year, mut day) = (1970, days.max(0));
    while day >= 365 + i64::from(is_leap(year)) {
        day -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let length = |month: usize| match month {
        1 => 28 + i64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    let mut month = 0;
    while day >= length(month) {
        day -= length(month);
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let day = day + 1;
    format!("{weekday} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}", MONTHS[month])
}

fn options(given: &[(String, String)]) -> Map<String, Value> {
    given.iter().map(|(k, v)| (k.clone(), json!(v))).collect()
}

/// Results as they are reported: one a job, or one a group.
fn by_group(results: &[JobResult]) -> Vec<JobResult> {
    let mut out: Vec<JobResult> = Vec::new();
    for r in results {
        match out.last_mut() {
            Some(o) if r.job.group_reporting && o.job.group == r.job.group => {
                for (a, b) in o.directions.iter_mut().zip(&r.directions) {
                    a.ios += b.ios;
                    a.bytes += b.bytes;
                    a.short += b.short;
                    a.runtime_ns = a.runtime_ns.max(b.runtime_ns);
                    a.slat.merge(&b.slat);
                    a.clat.merge(&b.clat);
                    a.lat.merge(&b.lat);
                    a.bw.merge(&b.bw);
                    a.iops.merge(&b.iops);
                    a.jobs += b.jobs;
                }
                o.depth.merge(&r.depth);
                o.errors += r.errors;
                o.zone_resets += r.zone_resets;
                o.error = if o.error == 0 { r.error } else { o.error };
                o.syncs += r.syncs;
                o.full_syncs += r.full_syncs;
                o.sync.merge(&r.sync);
                o.elapsed_ns = o.elapsed_ns.max(r.elapsed_ns);
            }
            _ => out.push(r.clone()),
        }
    }
    out
}

fn job(r: &JobResult, bins: Bins) -> Value {
    let j = &r.job;
    let all: u64 = r.directions.iter().map(|d| d.ios).sum();
    // As fio counts them: operations and syncs, over operations.
    // It shows no share below a tenth of a percent.
    let share = |n: u64, of: u64| match (n, of) {
        (0, _) | (_, 0) => 0.0,
        (n, of) => (100.0 * n as f64 / of as f64).max(0.1),
    };
    let calls = |classes: &[u64; 7]| {
        let all: u64 = classes.iter().sum();
        shares(&["0", "4", "8", "16", "32", "64", ">=64"], |i| share(classes[i], all))
    };
    let mut doc = json!({
        "jobname": j.name,
        "groupid": j.group,
        "error": r.error,
        "eta": 0,
        "elapsed": r.elapsed_ns.div_ceil(1_000_000_000),
        "job options": options(&j.given),
        "read": direction(r, 0, bins),
        "write": direction(r, 1, bins),
        "trim": direction(r, 2, bins),
        "sync": {
            "total_ios": r.full_syncs,
            "lat_ns": latency(
                &r.sync,
                (j.lat_percentiles || j.clat_percentiles, &j.percentiles),
                bins,
            ),
        },
        "job_runtime": r.elapsed_ns / 1_000_000,
        "usr_cpu": 0.0, "sys_cpu": 0.0, "ctx": 0, "majf": 0, "minf": 0,
        "iodepth_level": shares(&["1", "2", "4", "8", "16", "32", ">=64"], |i| {
            share(r.depth.levels[i], all)
        }),
        "iodepth_submit": calls(&r.depth.submits),
        "iodepth_complete": calls(&r.depth.completes),
        "latency_depth": r.latency_depth,
        "latency_target": j.latency_target.map_or(0, |t| t.ns),
        "latency_percentile": j.latency_target.map_or(100.0, |t| t.percentile),
        "latency_window": j.latency_target.map_or(0, |t| t.window_us),
    });
    if let Some(s) = &r.steadiness {
        doc["steadystate"] = steadystate(s);
    }
    for (key, unit, bounds) in [
        ("latency_ns", 1, &BOUNDS[..10]),
        ("latency_us", 1000, &BOUNDS[..10]),
        ("latency_ms", 1_000_000, &BOUNDS[..]),
    ] {
        doc[key] = classes(r, unit, bounds, all);
    }
    // As fio, which has these keys of a job with errors only.
    if j.continue_on_error.contains(&true) {
        doc["total_err"] = json!(r.errors);
        doc["first_error"] = json!(r.error);
    }
    if !j.description.is_empty() {
        doc["desc"] = json!(j.description);
    }
    doc
}

fn steadystate(s: &Steadiness) -> Value {
    let [bw, iops] = s.values();
    let mean = |all: &[u64]| all.iter().sum::<u64>() / (all.len() as u64).max(1);
    let unit = if s.wanted.criterion.percent { "%" } else { "" };
    json!({
        "ss": s.wanted.criterion.text(),
        "duration": s.wanted.seconds,
        "attained": u8::from(s.is_attained),
        "criterion": format!("{:.6}{unit}", s.criterion),
        "max_deviation": s.deviation,
        "slope": s.slope,
        "data": { "bw_mean": mean(&bw), "iops_mean": mean(&iops), "iops": iops, "bw": bw },
    })
}

const BOUNDS: [u64; 12] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000, u64::MAX];

/// Shares of operations by latency, below each bound in a unit of `unit` nanoseconds.
fn classes(r: &JobResult, unit: u64, bounds: &[u64], all: u64) -> Value {
    let mut counts = vec![0u64; bounds.len()];
    for (ns, n) in r.directions.iter().flat_map(|d| d.lat.histogram.bins()) {
        let first = if unit == 1 { 0 } else { unit };
        let last = if bounds.len() == 10 { unit * 1000 } else { u64::MAX };
        if ns >= first && ns < last {
            let at = bounds.iter().position(|b| ns / unit < *b).unwrap_or(bounds.len() - 1);
            counts[at] += n;
        }
    }
    let mut map = Map::new();
    for (bound, n) in bounds.iter().zip(counts) {
        let key = if *bound == u64::MAX { ">=2000".to_owned() } else { bound.to_string() };
        // fio shows no share below a hundredth of a percent.
        let share = match (n, all) {
            (0, _) | (_, 0) => 0.0,
            (n, all) => (100.0 * n as f64 / all as f64).max(0.01),
        };
        map.insert(key, json!(share));
    }
    Value::Object(map)
}

fn shares(keys: &[&str], of: impl Fn(usize) -> f64) -> Value {
    let all = keys.iter().enumerate();
    Value::Object(all.map(|(i, k)| ((*k).to_owned(), json!(of(i)))).collect())
}

fn direction(r: &JobResult, d: usize, bins: Bins) -> Value {
    let nothing = super::result::DirectionResult::default();
    let c = r.directions.get(d).unwrap_or(&nothing);
    let (j, ms) = (&r.job, c.runtime_ns.div_ceil(1_000_000));
    // Rates from nanoseconds: a simulated run may be over in a fraction of a millisecond.
    let per_second = |n: u64| {
        let ns = u128::from(c.runtime_ns.max(1));
        (u128::from(n) * 1_000_000_000 / ns) as u64
    };
    let iops = if c.runtime_ns > 0 { c.ios as f64 * 1e9 / c.runtime_ns as f64 } else { 0.0 };
    let bytes_per_second = if c.runtime_ns > 0 { per_second(c.bytes) } else { 0 };
    // Samples are of each job; of a group fio adds the means up.
    let jobs = c.jobs.max(1) as f64;
    let share = match bytes_per_second {
        0 => 0.0,
        all => (c.bw.mean() * jobs * 102_400.0 / all as f64).min(100.0),
    };
    json!({
        "io_bytes": c.bytes,
        "io_kbytes": c.bytes >> 10,
        "bw_bytes": bytes_per_second,
        "bw": bytes_per_second / 1024,
        "iops": iops,
        "runtime": ms,
        "total_ios": c.ios,
        "short_ios": c.short,
        "drop_ios": 0,
        "slat_ns": latency(&c.slat, (j.slat_percentiles, &j.percentiles), bins),
        "clat_ns": latency(&c.clat, (j.clat_percentiles, &j.percentiles), bins),
        "lat_ns": latency(&c.lat, (j.lat_percentiles, &j.percentiles), bins),
        "bw_min": c.bw.min, "bw_max": c.bw.max, "bw_agg": share, "bw_mean": c.bw.mean() * jobs,
        "bw_dev": c.bw.deviation(), "bw_samples": c.bw.count,
        "iops_min": c.iops.min, "iops_max": c.iops.max, "iops_mean": c.iops.mean() * jobs,
        "iops_stddev": c.iops.deviation(), "iops_samples": c.iops.count,
    })
}

/// Latencies; with percentiles where they are asked for, and their shares.
fn latency(s: &Stat, (percentiles, shares): (bool, &[u64]), bins: Bins) -> Value {
    let mut doc = json!({
        "min": s.min, "max": s.max, "mean": s.mean(), "stddev": s.deviation(), "N": s.count,
    });
    if percentiles && s.count > 0 {
        let list: Map<String, Value> = shares
            .iter()
            .filter_map(|p| {
                let ns = s.histogram.percentile(*p)?;
                Some((format!("{}.{:06}", p / 1_000_000, p % 1_000_000), json!(ns)))
            })
            .collect();
        doc["percentile"] = Value::Object(list);
        if bins == Bins::All {
            let all = s.histogram.bins().map(|(ns, n)| (ns.to_string(), json!(n)));
            doc["bins"] = Value::Object(all.collect());
        }
    }
    doc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `date -u -d @SECONDS` prints them.
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(1_388_534_400), "Wed Jan  1 00:00:00 2014");
        assert_eq!(date(951_782_399), "Mon Feb 28 23:59:59 2000");
        assert_eq!(date(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(date(1_795_845_322), "Sat Nov 28 05:55:22 2026");
    }
}
