//! A report shaped as fio's `--output-format=json`.
//!
//! Times are virtual. What a simulation has none of (CPU shares, page faults, disks of the host,
//! sampled bandwidth) is there with 0, so that programs which read fio's reports find their keys.

use serde_json::{Map, Value, json};

use super::job::JobFile;
use super::run::JobResult;
use super::stats::Stat;

/// The report. `epoch_secs`: seconds since 1970 when the machine was switched on; `now_ns`:
/// virtual time of the report.
pub fn report(file: &JobFile, results: &[JobResult], epoch_secs: i64, now_ns: u64) -> Value {
    let secs = epoch_secs + (now_ns / 1_000_000_000) as i64;
    let merged = by_group(results);
    let jobs: Vec<Value> = merged.iter().map(job).collect();
    let mut doc = json!({
        "fio version": "fio-3.33",
        "timestamp": secs,
        "timestamp_ms": secs * 1000 + (now_ns / 1_000_000 % 1000) as i64,
        "time": format!("{secs} seconds since 1970 (virtual)"),
        "jobs": jobs,
        "disk_util": [],
    });
    if !file.global.is_empty() {
        doc["global options"] = json!(options(&file.global));
    }
    doc
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
                    a.clat.merge(&b.clat);
                }
                o.syncs += r.syncs;
                o.sync.merge(&r.sync);
                o.elapsed_ns = o.elapsed_ns.max(r.elapsed_ns);
            }
            _ => out.push(r.clone()),
        }
    }
    out
}

fn job(r: &JobResult) -> Value {
    let j = &r.job;
    let all: u64 = r.directions.iter().map(|d| d.ios).sum();
    // As fio counts them: operations and syncs, over operations.
    let depth = if all > 0 { 100.0 * (all + r.syncs) as f64 / all as f64 } else { 0.0 };
    let any = if all > 0 { 100.0 } else { 0.0 };
    let mut doc = json!({
        "jobname": j.name,
        "groupid": j.group,
        "error": 0,
        "eta": 0,
        "elapsed": r.elapsed_ns.div_ceil(1_000_000_000),
        "job options": options(&j.given),
        "read": direction(r, 0),
        "write": direction(r, 1),
        "trim": direction(r, 2),
        "sync": {
            "total_ios": r.syncs,
            "lat_ns": latency(&r.sync, j.lat_percentiles || j.clat_percentiles, &j.percentiles),
        },
        "job_runtime": r.elapsed_ns / 1_000_000,
        "usr_cpu": 0.0, "sys_cpu": 0.0, "ctx": 0, "majf": 0, "minf": 0,
        "iodepth_level": shares(&["1", "2", "4", "8", "16", "32", ">=64"], |i| {
            if i == 0 { depth } else { 0.0 }
        }),
        "iodepth_submit": shares(&["0", "4", "8", "16", "32", "64", ">=64"], |i| {
            if i == 1 { any } else { 0.0 }
        }),
        "iodepth_complete": shares(&["0", "4", "8", "16", "32", "64", ">=64"], |i| {
            if i == 1 { any } else { 0.0 }
        }),
        "latency_depth": j.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    });
    for (key, unit, bounds) in [
        ("latency_ns", 1, &BOUNDS[..10]),
        ("latency_us", 1000, &BOUNDS[..10]),
        ("latency_ms", 1_000_000, &BOUNDS[..]),
    ] {
        doc[key] = classes(r, unit, bounds, all);
    }
    if !j.description.is_empty() {
        doc["desc"] = json!(j.description);
    }
    doc
}

const BOUNDS: [u64; 12] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000, u64::MAX];

/// Shares of operations by latency, below each bound in a unit of `unit` nanoseconds.
fn classes(r: &JobResult, unit: u64, bounds: &[u64], all: u64) -> Value {
    let mut counts = vec![0u64; bounds.len()];
    for (ns, n) in r.directions.iter().flat_map(|d| d.clat.histogram.bins()) {
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
        let share = if all > 0 { 100.0 * n as f64 / all as f64 } else { 0.0 };
        map.insert(key, json!(share));
    }
    Value::Object(map)
}

fn shares(keys: &[&str], of: impl Fn(usize) -> f64) -> Value {
    let all = keys.iter().enumerate();
    Value::Object(all.map(|(i, k)| ((*k).to_owned(), json!(of(i)))).collect())
}

fn direction(r: &JobResult, d: usize) -> Value {
    let nothing = super::run::DirectionResult::default();
    let c = r.directions.get(d).unwrap_or(&nothing);
    let (j, ms) = (&r.job, c.runtime_ns.div_ceil(1_000_000));
    // Rates from nanoseconds: a simulated run may be over in a fraction of a millisecond.
    let per_second = |n: u64| {
        let ns = u128::from(c.runtime_ns.max(1));
        (u128::from(n) * 1_000_000_000 / ns) as u64
    };
    let iops = if c.runtime_ns > 0 { c.ios as f64 * 1e9 / c.runtime_ns as f64 } else { 0.0 };
    let bytes_per_second = if c.runtime_ns > 0 { per_second(c.bytes) } else { 0 };
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
        "slat_ns": latency(&Stat::default(), j.slat_percentiles, &j.percentiles),
        "clat_ns": latency(&c.clat, j.clat_percentiles, &j.percentiles),
        "lat_ns": latency(&c.clat, j.lat_percentiles, &j.percentiles),
        "bw_min": 0, "bw_max": 0, "bw_agg": 0.0, "bw_mean": 0.0, "bw_dev": 0.0, "bw_samples": 0,
        "iops_min": 0, "iops_max": 0, "iops_mean": 0.0, "iops_stddev": 0.0, "iops_samples": 0,
    })
}

fn latency(s: &Stat, percentiles: bool, shares: &[u64]) -> Value {
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
    }
    doc
}
