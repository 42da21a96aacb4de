//! fio's report as a line of fields for each job (`--minimal`, `--output-format=terse`, version 3),
//! from its report in JSON.
//!
//! Source: fio's manual, "Terse output"; `tests/fio_oracle.rs` compares it with the installed fio.

use serde_json::Value;

use super::normal::rate_of_group;

/// Percentiles of a line; what a job asks for less is 0.
const PERCENTILES: usize = 20;

/// The lines of a report.
pub fn terse(doc: &Value) -> String {
    let empty = Vec::new();
    let entries = doc["jobs"].as_array().unwrap_or(&empty);
    entries.iter().map(|e| line(doc, e, entries) + "\n").collect()
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or(0)
}

fn real(v: &Value) -> f64 {
    v.as_f64().unwrap_or(0.0)
}

fn line(doc: &Value, entry: &Value, entries: &[Value]) -> String {
    let version = doc["fio version"].as_str().unwrap_or_default();
    let name = entry["jobname"].as_str().unwrap_or_default();
    let mut fields = vec!["3".to_owned(), version.to_owned(), name.to_owned()];
    fields.extend([&entry["groupid"], &entry["error"]].map(|v| number(v).to_string()));
    for d in ["read", "write"] {
        direction(&mut fields, d, entry, entries);
    }
    for share in ["usr_cpu", "sys_cpu"] {
        fields.push(format!("{:.6}%", real(&entry[share])));
    }
    fields.extend(["ctx", "majf", "minf"].map(|k| number(&entry[k]).to_string()));
    for (key, digits) in [("iodepth_level", 1), ("latency_us", 2), ("latency_ms", 2)] {
        let Some(all) = entry[key].as_object() else { continue };
        let mut all: Vec<(u64, f64)> =
            all.iter().map(|(k, v)| (k.parse().unwrap_or(u64::MAX), real(v))).collect();
        all.sort_by_key(|(bound, _)| *bound);
        // What took less than a microsecond counts as less than two.
        if key == "latency_us"
            && let Some(ns) = entry["latency_ns"].as_object()
        {
            all[0].1 += ns.values().map(real).sum::<f64>();
        }
        fields.extend(all.iter().map(|(_, v)| format!("{v:.digits$}%")));
    }
    let disks = doc["disk_util"].as_array().map_or(&[][..], Vec::as_slice);
    for d in disks {
        fields.push(d["name"].as_str().unwrap_or_default().to_owned());
        let keys =
            ["read_ios", "write_ios", "read_merges", "write_merges", "read_ticks", "write_ticks"];
        fields.extend(keys.map(|k| number(&d[k]).to_string()));
        fields.push(number(&d["in_queue"]).to_string());
        fields.push(format!("{:.2}%", real(&d["util"])));
    }
    fields.extend(entry["desc"].as_str().map(str::to_owned));
    fields.join(";")
}

/// Latencies in whole microseconds, their mean and spread with decimals.
fn latency(fields: &mut Vec<String>, stat: &Value) {
    fields.extend([&stat["min"], &stat["max"]].map(|v| (number(v) / 1000).to_string()));
    fields.extend([&stat["mean"], &stat["stddev"]].map(|v| format!("{:.6}", real(v) / 1e3)));
}

fn direction(fields: &mut Vec<String>, name: &str, entry: &Value, entries: &[Value]) {
    let side = &entry[name];
    let keys = ["io_kbytes", "bw"];
    fields.extend(keys.map(|k| number(&side[k]).to_string()));
    fields.push((real(&side["iops"]) as u64).to_string());
    fields.push(number(&side["runtime"]).to_string());
    latency(fields, &side["slat_ns"]);
    latency(fields, &side["clat_ns"]);
    let mut list: Vec<(f64, u64)> = side["clat_ns"]["percentile"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(p, ns)| (p.parse().unwrap_or(0.0), number(ns) / 1000))
        .collect();
    if list.is_empty() {
        // A direction that did nothing has the job's percentiles, all of them 0.
        let of = |d: &str| entry[d]["clat_ns"]["percentile"].as_object();
        let other = of("read").or(of("write")).into_iter().flatten();
        list = other.map(|(p, _)| (p.parse().unwrap_or(0.0), 0)).collect();
    }
    list.sort_by(|a, b| a.0.total_cmp(&b.0));
    list.resize(PERCENTILES, (0.0, 0));
    fields.extend(list.into_iter().map(|(p, us)| match p {
        0.0 => "0%=0".to_owned(),
        p => format!("{p:.6}%={us}"),
    }));
    latency(fields, &side["lat_ns"]);
    let kib = [&side["bw_min"], &side["bw_max"]].map(|v| number(v).to_string());
    fields.extend(kib);
    let of_group = rate_of_group(name, entry, entries);
    let mean = real(&side["bw_mean"]);
    let share = (mean * 102_400.0 / of_group.max(1.0)).min(100.0);
    fields.push(format!("{share:.6}%"));
    fields.extend([mean, real(&side["bw_dev"])].map(|v| format!("{v:.6}")));
}
