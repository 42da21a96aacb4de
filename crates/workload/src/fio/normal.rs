//! fio's report as text (`--output-format=normal`), from its report in JSON.
//!
//! The layout was observed: `tests/fio_oracle.rs` has the installed fio print one run both ways
//! (`--output-format=normal,json`), and compares this module's text of the one with the other.

use std::fmt::Write;

use serde_json::Value;

use super::job::{Job, JobFile};
use super::report::Counts;

const FITS: &str = "a string takes everything";
/// Characters of a line of percentiles, of an entry beside its value, and of a value at least.
const PERCENTILES: (usize, usize, usize) = (73, 12, 5);
/// Latency classes in a line.
const CLASSES_PER_LINE: usize = 5;

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    None,
    Bytes,
    BytesPerSecond,
}

/// A number in at most `digits` digits, with a prefix of 1024 or of 1000.
fn short(number: u64, digits: usize, is_binary: bool, unit: Unit) -> String {
    let thousand: u64 = if is_binary { 1024 } else { 1000 };
    let prefixes: [&str; 7] = match is_binary {
        true => ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"],
        false => ["", "k", "M", "G", "T", "P", "E"],
    };
    let length = |n: u64| n.checked_ilog10().unwrap_or(0) as usize + 1;
    let (mut whole, mut rest, mut power) = (number, None, 0);
    while length(whole) > digits {
        rest = Some(whole % thousand);
        whole /= thousand;
        power += 1;
    }
    let mut text = match rest {
        None => whole.to_string(),
        Some(rest) => match digits.saturating_sub(length(whole)) {
            // A decimal takes a digit for its point.
            0 | 1 => (whole + u64::from(rest >= thousand / 2)).to_string(),
            room => {
                let exact = whole as f64 + rest as f64 / thousand as f64;
                format!("{exact:.*}", room - 1)
            }
        },
    };
    text += prefixes[power];
    text += match unit {
        Unit::None => "",
        Unit::Bytes => "B",
        Unit::BytesPerSecond => "B/s",
    };
    text
}

/// What fio prints before a run: each job, and how many processes and threads begin.
pub fn heading(file: &JobFile) -> String {
    let mut text = String::new();
    let mut dotted = false;
    for job in &file.jobs {
        // Clones of a job are dots.
        if job.subjob > 0 {
            if !dotted {
                text.push_str("...\n");
            }
            dotted = true;
            continue;
        }
        dotted = false;
        let (group, rw, engine) = (job.group, direction(job), job.engine.name());
        let bs = ["R", "W", "T"].iter().enumerate().map(|(d, letter)| {
            let size = |n: u64| short(n, 4, job.kb_base == 1024, Unit::Bytes);
            format!("({letter}) {}-{}", size(job.min_bs[d]), size(job.max_bs[d]))
        });
        let bs = bs.collect::<Vec<_>>().join(", ");
        writeln!(
            text,
            "{}: (g={group}): rw={rw}, bs={bs}, ioengine={engine}, iodepth={}",
            job.name, job.iodepth
        )
        .expect(FITS);
    }
    text.push_str("fio-3.33\n");
    let threads = file.jobs.iter().filter(|j| j.thread).count();
    let processes = file.jobs.len() - threads;
    let counted = |n: usize, one: &str, more: &str| match n {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {more}")),
    };
    let both = [counted(threads, "thread", "threads"), counted(processes, "process", "processes")];
    let both: Vec<String> = both.into_iter().flatten().collect();
    writeln!(text, "Starting {}", both.join(" and ")).expect(FITS);
    text
}

/// The word of `rw=`.
fn direction(job: &Job) -> &'static str {
    match (job.reads, job.writes, job.random) {
        (false, true, false) if job.trims => "trimwrite",
        (false, true, true) if job.trims => "randtrimwrite",
        (false, false, false) => "trim",
        (false, false, true) => "randtrim",
        (true, false, false) => "read",
        (false, true, false) => "write",
        (true, false, true) => "randread",
        (false, true, true) => "randwrite",
        (true, true, true) => "randrw",
        _ => "rw",
    }
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or(0)
}

fn real(v: &Value) -> f64 {
    v.as_f64().unwrap_or(0.0)
}

/// The report of a run; `jobs`: of each entry of the document.
pub fn normal(doc: &Value, jobs: &[Counts]) -> String {
    let mut text = String::new();
    let empty = Vec::new();
    let entries = doc["jobs"].as_array().unwrap_or(&empty);
    let time = doc["time"].as_str().unwrap_or_default();
    for (i, entry) in entries.iter().enumerate() {
        let none = Counts { jobs: 1, first: i as u64 + 1, zone_resets: 0 };
        let Counts { jobs: count, first, zone_resets } = jobs.get(i).copied().unwrap_or(none);
        // Only the first entry has an empty line before it.
        let before = if i == 0 { "\n" } else { "" };
        writeln!(
            text,
            "{before}{}: (groupid={}, jobs={count}): err={:2}: pid={first}: {time}",
            entry["jobname"].as_str().unwrap_or_default(),
            number(&entry["groupid"]),
            number(&entry["error"]),
        )
        .expect(FITS);
        if let Some(about) = entry["desc"].as_str() {
            writeln!(text, "  Description  : [{about}]").expect(FITS);
        }
        job(&mut text, entry, entries, zone_resets);
    }
    groups(&mut text, entries);
    disks(&mut text, &doc["disk_util"]);
    text
}

fn job(text: &mut String, entry: &Value, entries: &[Value], zone_resets: u64) {
    for (name, what) in [("read", "  read"), ("write", "  write"), ("trim", "  trim")] {
        let side = &entry[name];
        if number(&side["runtime"]) == 0 || number(&side["total_ios"]) == 0 {
            continue;
        }
        let bw = number(&side["bw_bytes"]);
        let resets = match name {
            "write" => format!("; {zone_resets} zone resets"),
            _ => String::new(),
        };
        writeln!(
            text,
            "{what}: IOPS={}, BW={} ({})({}/{}msec){resets}",
            short(real(&side["iops"]) as u64, 4, false, Unit::None),
            short(bw, 4, true, Unit::BytesPerSecond),
            short(bw, 4, false, Unit::BytesPerSecond),
            short(number(&side["io_bytes"]), 4, true, Unit::Bytes),
            number(&side["runtime"]),
        )
        .expect(FITS);
        for kind in ["slat", "clat", "lat"] {
            latency(text, kind, &side[format!("{kind}_ns")]);
        }
        for kind in ["slat", "clat", "lat"] {
            percentiles(text, kind, &side[format!("{kind}_ns")]);
        }
        samples(text, name, entry, entries);
    }
    classes(text, entry);
    let sync = &entry["sync"];
    if number(&sync["total_ios"]) > 0 {
        text.push_str("  fsync/fdatasync/sync_file_range:\n");
        latency(text, "sync", &sync["lat_ns"]);
        percentiles(text, "sync", &sync["lat_ns"]);
    }
    writeln!(
        text,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}",
        real(&entry["usr_cpu"]),
        real(&entry["sys_cpu"]),
        number(&entry["ctx"]),
        number(&entry["majf"]),
        number(&entry["minf"])
    )
    .expect(FITS);
    shares(text, "  IO depths    : ", &entry["iodepth_level"]);
    shares(text, "     submit    : ", &entry["iodepth_submit"]);
    shares(text, "     complete  : ", &entry["iodepth_complete"]);
    let all = |key: &str, sync: u64| {
        let each = ["read", "write", "trim"].map(|d| number(&entry[d][key]).to_string());
        format!("{},{sync}", each.join(","))
    };
    writeln!(
        text,
        "     issued rwts: total={} short={} dropped={}",
        all("total_ios", number(&sync["total_ios"])),
        all("short_ios", 0),
        all("drop_ios", 0)
    )
    .expect(FITS);
    writeln!(
        text,
        "     latency   : target={}, window={}, percentile={:.2}%, depth={}",
        number(&entry["latency_target"]),
        number(&entry["latency_window"]),
        real(&entry["latency_percentile"]),
        number(&entry["latency_depth"])
    )
    .expect(FITS);
    if let Some(s) = entry.get("steadystate") {
        steadystate(text, s);
    }
}

/// How far the job came to its steady state.
fn steadystate(text: &mut String, s: &Value) {
    let bw = number(&s["data"]["bw_mean"]) / 1024;
    let wanted = s["ss"].as_str().unwrap_or_default();
    let (what, _) = wanted.split_once(':').unwrap_or((wanted, ""));
    let what = match what.strip_suffix("_slope") {
        Some(rate) => format!("{rate} slope"),
        None => format!("{what} mean dev"),
    };
    let criterion = s["criterion"].as_str().unwrap_or_default();
    let unit = if criterion.ends_with('%') { "%" } else { "" };
    let value: f64 = criterion.trim_end_matches('%').parse().unwrap_or_default();
    // In decimal units, too, fio takes the number of KiB for one of KB.
    writeln!(
        text,
        "  steadystate  : attained={}, bw={} ({}), iops={}, {what}={value:.3}{unit}",
        if number(&s["attained"]) > 0 { "yes" } else { "no" },
        short(bw << 10, 4, true, Unit::BytesPerSecond),
        short(bw * 1000, 4, false, Unit::BytesPerSecond),
        short(number(&s["data"]["iops_mean"]), 4, false, Unit::None),
    )
    .expect(FITS);
}

/// What latencies are printed in: the unit, and its nanoseconds.
fn scale(min: f64, max: f64, spread: Option<f64>) -> (&'static str, f64) {
    let wide = |least: f64| spread.is_none_or(|s| s > least);
    if min > 2_000_000.0 && max > 99_999_999.0 && wide(1_000_000.0) {
        ("msec", 1e6)
    } else if min > 2000.0 && max > 99_999.0 && wide(1000.0) {
        ("usec", 1e3)
    } else {
        ("nsec", 1.0)
    }
}

fn latency(text: &mut String, kind: &str, stat: &Value) {
    if number(&stat["N"]) == 0 {
        return;
    }
    let (min, max) = (number(&stat["min"]), number(&stat["max"]));
    let (mean, spread) = (real(&stat["mean"]), real(&stat["stddev"]));
    let (unit, ns) = scale(min as f64, max as f64, Some(spread));
    let whole = |n: u64| short(n / ns as u64, 6, false, Unit::None);
    writeln!(
        text,
        "    {kind:>4} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        whole(min),
        whole(max),
        mean / ns,
        spread / ns
    )
    .expect(FITS);
}

fn percentiles(text: &mut String, kind: &str, stat: &Value) {
    let Some(list) = stat["percentile"].as_object().filter(|l| !l.is_empty()) else { return };
    let mut list: Vec<(f64, u64)> =
        list.iter().map(|(p, ns)| (p.parse().unwrap_or(0.0), number(ns))).collect();
    list.sort_by(|a, b| a.0.total_cmp(&b.0));
    let extreme = |of: Option<&(f64, u64)>| of.map_or(0.0, |p| p.1 as f64);
    let (unit, ns) = scale(extreme(list.first()), extreme(list.last()), None);
    writeln!(text, "    {kind:>4} percentiles ({unit}):").expect(FITS);
    let shown = |value: &u64| value.div_ceil(ns as u64);
    let longest = list.iter().map(|(_, v)| shown(v).to_string().len()).max().unwrap_or(0);
    let width = longest.max(PERCENTILES.2);
    let per_line = PERCENTILES.0 / (width + PERCENTILES.1);
    for (i, (share, value)) in list.iter().enumerate() {
        if i % per_line.max(1) == 0 {
            text.push_str("     |");
        }
        write!(text, " {share:5.2}th=[{:width$}]", shown(value)).expect(FITS);
        let last = i + 1 == list.len();
        text.push_str(match (last, (i + 1) % per_line.max(1) == 0) {
            (true, _) => "\n",
            (false, true) => ",\n",
            (false, false) => ",",
        });
    }
}

/// Bytes per second of a direction of all jobs of an entry's group, over the longest of them.
pub(super) fn rate_of_group(name: &str, entry: &Value, entries: &[Value]) -> f64 {
    let group = entries.iter().filter(|e| e["groupid"] == entry["groupid"]).map(|e| &e[name]);
    let bytes: f64 = group.clone().map(|side| real(&side["io_bytes"])).sum();
    let longest = group.map(|side| number(&side["runtime"])).max().unwrap_or(0);
    bytes * 1000.0 / longest.max(1) as f64
}

/// Bandwidth and rate as sampled twice a second.
fn samples(text: &mut String, name: &str, entry: &Value, entries: &[Value]) {
    let side = &entry[name];
    if number(&side["bw_samples"]) > 0 {
        let of_group = rate_of_group(name, entry, entries);
        let mean = real(&side["bw_mean"]);
        let share = (mean * 100.0 * 1024.0 / of_group.max(1.0)).min(100.0);
        let (unit, kib) = if mean > 1_048_576.0 { ("MiB", 1024.0) } else { ("KiB", 1.0) };
        writeln!(
            text,
            "   bw ({unit:>5}/s): min={:5}, max={:5}, per={share:.2}%, avg={:5.2}, stdev={:5.2}, samples={}",
            (real(&side["bw_min"]) / kib) as u64,
            (real(&side["bw_max"]) / kib) as u64,
            mean / kib,
            real(&side["bw_dev"]) / kib,
            number(&side["bw_samples"])
        )
        .expect(FITS);
    }
    if number(&side["iops_samples"]) > 0 {
        writeln!(
            text,
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
            number(&side["iops_min"]),
            number(&side["iops_max"]),
            real(&side["iops_mean"]),
            real(&side["iops_stddev"]),
            number(&side["iops_samples"])
        )
        .expect(FITS);
    }
}

/// Shares of operations by latency, those that are not 0.
fn classes(text: &mut String, entry: &Value) {
    for (key, unit) in [("latency_ns", "nsec"), ("latency_us", "usec"), ("latency_ms", "msec")] {
        let Some(all) = entry[key].as_object() else { continue };
        let mut all: Vec<(&String, f64)> = all.iter().map(|(k, v)| (k, real(v))).collect();
        all.retain(|(_, share)| *share > 0.0);
        all.sort_by_key(|(bound, _)| bound.parse().unwrap_or(u64::MAX));
        for line in all.chunks(CLASSES_PER_LINE) {
            let each: Vec<String> = line.iter().map(|(k, v)| format!("{k}={v:3.2}%")).collect();
            writeln!(text, "  lat ({unit})   : {}", each.join(", ")).expect(FITS);
        }
    }
}

fn shares(text: &mut String, what: &str, shares: &Value) {
    let Some(all) = shares.as_object() else { return };
    let mut all: Vec<(&String, f64)> = all.iter().map(|(k, v)| (k, real(v))).collect();
    all.sort_by_key(|(bound, _)| bound.parse().unwrap_or(u64::MAX));
    let each: Vec<String> = all.iter().map(|(k, v)| format!("{k}={v:3.1}%")).collect();
    writeln!(text, "{what}{}", each.join(", ")).expect(FITS);
}

/// One line for each group and direction.
fn groups(text: &mut String, entries: &[Value]) {
    let mut ids: Vec<u64> = entries.iter().map(|e| number(&e["groupid"])).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        writeln!(text, "\nRun status group {id} (all jobs):").expect(FITS);
        for (name, what) in [("read", "READ"), ("write", "WRITE"), ("trim", "TRIM")] {
            let all: Vec<&Value> = entries
                .iter()
                .filter(|e| number(&e["groupid"]) == id)
                .map(|e| &e[name])
                .filter(|side| number(&side["runtime"]) > 0)
                .collect();
            if all.is_empty() {
                continue;
            }
            let bytes: u64 = all.iter().map(|s| number(&s["io_bytes"])).sum();
            let times = all.iter().map(|s| number(&s["runtime"]));
            let (least, most) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(1));
            let rates = all.iter().map(|s| number(&s["bw_bytes"]));
            let (slowest, fastest) = (rates.clone().min().unwrap_or(0), rates.max().unwrap_or(0));
            // Of one entry its own rate is more exact than what whole milliseconds give.
            let all_rate = match all.as_slice() {
                [one] => number(&one["bw_bytes"]),
                _ => bytes.saturating_mul(1000) / most.max(1),
            };
            let rate = |n: u64, binary: bool| short(n, 4, binary, Unit::BytesPerSecond);
            let size = |binary: bool| short(bytes, 4, binary, Unit::Bytes);
            writeln!(
                text,
                "{what:>7}: bw={} ({}), {}-{} ({}-{}), io={} ({}), run={least}-{most}msec",
                rate(all_rate, true),
                rate(all_rate, false),
                rate(slowest, true),
                rate(fastest, true),
                rate(slowest, false),
                rate(fastest, false),
                size(true),
                size(false)
            )
            .expect(FITS);
        }
    }
}

fn disks(text: &mut String, disks: &Value) {
    let Some(disks) = disks.as_array().filter(|d| !d.is_empty()) else { return };
    text.push_str("\nDisk stats (read/write):\n");
    for d in disks {
        let pair = |of: &str| {
            format!("{}/{}", number(&d[format!("read_{of}")]), number(&d[format!("write_{of}")]))
        };
        writeln!(
            text,
            "  {}: ios={}, merge={}, ticks={}, in_queue={}, util={:.2}%",
            d["name"].as_str().unwrap_or_default(),
            pair("ios"),
            pair("merges"),
            pair("ticks"),
            number(&d["in_queue"]),
            real(&d["util"])
        )
        .expect(FITS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As printed by fio 3.33.
    #[test]
    fn numbers_are_as_short_as_fios() {
        for (n, binary, unit, text) in [
            (4096, true, Unit::Bytes, "4096B"),
            (65_536, true, Unit::Bytes, "64.0KiB"),
            (1 << 20, true, Unit::Bytes, "1024KiB"),
            (45_590_260, true, Unit::BytesPerSecond, "43.5MiB/s"),
            (45_590_260, false, Unit::BytesPerSecond, "45.6MB/s"),
            (838_860_800, true, Unit::BytesPerSecond, "800MiB/s"),
            (12_800, false, Unit::None, "12.8k"),
            (299, false, Unit::None, "299"),
            (91_180_521, true, Unit::BytesPerSecond, "87.0MiB/s"),
            (4_194_304, false, Unit::Bytes, "4194kB"),
        ] {
            assert_eq!(short(n, 4, binary, unit), text);
        }
    }
}
