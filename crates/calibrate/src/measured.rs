//! What was measured of a real drive: reports of fio and of other tools, and lists of points.
//!
//! Laws:   jobs of one group of fio ran at once: those of one description are one load, those of
//!         several are none that a model could be asked for; a job counts where it went past the
//!         host's cache (`direct=1`), with one size and one direction.
//! Source: fio's manual (JSON output), and reports of fio 3.33.

use serde_json::{Map, Value};
use wp_base::event::{Op, ZoneOp};

use super::load::{Figures, Load};
use crate::{drive, reports};

/// Fewer operations than that tell no mean.
pub(super) const OPERATIONS_MIN: u64 = 100;
/// What a host may take between two operations; more is idleness of another reason.
pub(super) const HOST_NS_MAX: f64 = 1e6;
/// How far a rate and a mean may be beyond Little's law: a report rounds its times to milliseconds,
/// and counts what is in flight at both ends of a run once.
const LITTLE_EXCESS: f64 = 1.1;

/// A load that was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// What was asked of the drive.
    pub load: Load,
    /// What it did.
    pub figures: Figures,
    /// 99 % of the operations were not slower, in nanoseconds; for reports only.
    pub p99_ns: Option<f64>,
    /// File and job.
    pub source: String,
}

/// What a file holds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Input {
    /// Loads that can be compared.
    pub measured: Vec<Measured>,
    /// What was passed over: whose, and why.
    pub skipped: Vec<(String, String)>,
}

/// Reads a file, of a report in JSON or a list of points. Errors: the place, and what is wrong
/// there.
pub fn parse(name: &str, bytes: impl AsRef<[u8]>) -> Result<Input, String> {
    let text = text(bytes.as_ref()).map_err(|e| format!("{name}: {e}"))?;
    if let Some(read) = reports::parse(name, text) {
        return read;
    }
    // fio writes notes before its report.
    let begins = text.lines().scan(0, |at, line| {
        let here = *at;
        *at += line.len() + 1;
        Some((here, line))
    });
    let report = begins.into_iter().find(|(_, line)| line.trim_start().starts_with('{'));
    match report {
        Some((at, _)) => fio(name, text, at),
        None => points(name, text),
    }
}

/// The text of a file, without a byte order mark. Errors: what the file is, and what would be read.
fn text(bytes: &[u8]) -> Result<&str, String> {
    const WANTED: &str = "a report of fio in JSON, or a list of points, is text in UTF-8";
    let known: [(&[u8], &str); 6] = [
        (b"\xff\xfe", "UTF-16 text: convert it with `iconv -f UTF-16 -t UTF-8`"),
        (b"\xfe\xff", "UTF-16 text: convert it with `iconv -f UTF-16 -t UTF-8`"),
        (b"\x1f\x8b", "compressed: decompress it with `gzip -dc`"),
        (b"\x28\xb5\x2f\xfd", "compressed: decompress it with `zstd -dc`"),
        (b"\xfd7zXZ", "compressed: decompress it with `xz -dc`"),
        (b"BZh", "compressed: decompress it with `bzip2 -dc`"),
    ];
    if let Some((_, what)) = known.iter().find(|(begins, _)| bytes.starts_with(begins)) {
        return Err((*what).to_owned());
    }
    let binary = |at: usize| format!("no report of fio: byte {at} is not text ({WANTED})");
    let text = std::str::from_utf8(bytes).map_err(|e| binary(e.valid_up_to()))?;
    match text.bytes().position(|b| b == 0) {
        Some(at) => Err(binary(at)),
        None => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
    }
}

/// A report of `fio --output-format=json` or `json+`; it begins at byte `at`.
fn fio(name: &str, text: &str, at: usize) -> Result<Input, String> {
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
    let doc = match values.next() {
        Some(Ok(doc)) => doc,
        Some(Err(e)) => {
            let line = text[..at].matches('\n').count() + e.line();
            let what = if e.is_eof() { "the report is truncated" } else { "not JSON" };
            return Err(format!("{name}:{line}:{}: {what}: {e}", e.column()));
        }
        None => return Err(format!("{name}: is empty")),
    };
    let Some(jobs) = doc.get("jobs").and_then(Value::as_array) else {
        return Err(format!("{name}: no `jobs`; run fio with --output-format=json"));
    };
    let global = doc.get("global options").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut input = Input::default();
    let mut groups: Vec<(u64, Vec<Entry>)> = Vec::new();
    for (n, job) in jobs.iter().enumerate() {
        let title = job.get("jobname").and_then(Value::as_str).unwrap_or("?");
        let source = format!("{name}: job {n} ({title})");
        let group = job.get("groupid").and_then(Value::as_u64).unwrap_or(n as u64);
        let entry = Entry { read: entry(job, &global), source };
        match groups.last_mut() {
            Some((g, all)) if *g == group => all.push(entry),
            _ => groups.push((group, vec![entry])),
        }
    }
    for (_, entries) in groups {
        group(entries, &mut input);
    }
    Ok(input)
}

struct Entry {
    read: Result<Measured, String>,
    source: String,
}

/// Adds up what ran at once.
fn group(entries: Vec<Entry>, input: &mut Input) {
    let source = entries[0].source.clone();
    let mut all = Vec::new();
    for e in entries {
        match e.read {
            Ok(m) => all.push(m),
            Err(why) => {
                input.skipped.push((e.source, why));
                return;
            }
        }
    }
    let first = all[0].clone();
    let shape = |m: &Measured| Load { host_ns: 0, jobs: 1, ..m.load };
    if all.iter().any(|m| shape(m) != shape(&first)) {
        let why = "it ran in parallel with other jobs: put `stonewall` into each".to_owned();
        input.skipped.push((source, why));
        return;
    }
    let n = all.len() as f64;
    let mean = |of: fn(&Measured) -> Option<f64>| {
        let known: Vec<f64> = all.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    // One report of several processes (group_reporting), or one of each.
    let jobs = if all.len() > 1 { all.len() as u32 } else { first.load.jobs };
    let figures = Figures {
        mean_ns: mean(|m| m.figures.mean_ns),
        iops: mean(|m| m.figures.iops).map(|v| v * n),
        sync_ns: mean(|m| m.figures.sync_ns),
    };
    let p99_ns = mean(|m| m.p99_ns);
    let load = Load { jobs, ..first.load };
    if let Err(why) = little(&load, &figures) {
        input.skipped.push((source, why));
        return;
    }
    let load = match load.depth {
        1 => with_host(load, &figures),
        _ => load,
    };
    input.measured.push(Measured { load, figures, p99_ns, source });
}

/// Options of a job, over those of all.
struct Options<'v>(&'v Map<String, Value>, &'v Map<String, Value>);

impl Options<'_> {
    fn text(&self, names: &[&str]) -> Option<String> {
        let found = names.iter().find_map(|n| self.0.get(*n).or_else(|| self.1.get(*n)))?;
        Some(match found {
            Value::String(s) => s.trim().to_ascii_lowercase(),
            Value::Null => String::new(),
            other => other.to_string(),
        })
    }

    /// A switch, which may stand there without a value.
    fn is_on(&self, name: &str) -> bool {
        self.text(&[name]).is_some_and(|v| v != "0")
    }

    fn count(&self, name: &str, otherwise: u32) -> Result<u32, String> {
        match self.text(&[name]) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| format!("{name}={text} is not a number")),
        }
    }
}

fn entry(job: &Value, global: &Map<String, Value>) -> Result<Measured, String> {
    let empty = Map::new();
    let own = job.get("job options").and_then(Value::as_object).unwrap_or(&empty);
    let options = Options(own, global);
    if let Some(error) = job.get("error").and_then(Value::as_i64).filter(|e| *e != 0) {
        return Err(format!("it ended with error {error}"));
    }
    let is_direct =
        options.is_on("direct") || options.text(&["buffered"]).is_some_and(|v| v == "0");
    if !is_direct {
        return Err("buffered: the host's cache was measured; run it with direct=1".to_owned());
    }
    let rw = options.text(&["rw", "readwrite"]).unwrap_or_else(|| "read".to_owned());
    let (op, random) = match rw.as_str() {
        "read" => (Op::Read, false),
        "write" => (Op::Write, false),
        "randread" => (Op::Read, true),
        "randwrite" => (Op::Write, true),
        other => return Err(no_pattern(other, &options)),
    };
    let forced = op == Op::Write && is_forced(&options)?;
    let bs = options.text(&["bs", "blocksize"]).unwrap_or_else(|| "4k".to_owned());
    if options.text(&["bsrange", "bssplit", "bs_unaligned"]).is_some() || bs.contains([',', '-']) {
        return Err("several block sizes: only one size can be compared".to_owned());
    }
    for limit in ["rate", "rate_iops", "thinktime", "rate_min"] {
        if options.text(&[limit]).is_some_and(|v| v != "0") {
            return Err(format!("{limit}: the host limits the rate"));
        }
    }
    let bytes = wp_machine::spec::size(&bs)?;
    let bytes = u32::try_from(bytes).ok().filter(|b| *b > 0 && b.is_multiple_of(4096));
    let bytes = bytes.ok_or_else(|| format!("bs={bs}: not a multiple of 4 KiB below 4 GiB"))?;
    let engine = options.text(&["ioengine"]).unwrap_or_else(|| "psync".to_owned());
    let is_sync = ["psync", "sync", "vsync", "pvsync", "pvsync2"].contains(&engine.as_str());
    let depth = if is_sync { 1 } else { options.count("iodepth", 1)? };
    let (fsync, fdatasync) = (options.count("fsync", 0)?, options.count("fdatasync", 0)?);
    let sync_every = if op == Op::Write { fsync.max(fdatasync) } else { 0 };
    let jobs = options.count("numjobs", 1)?;
    let load = Load { op, random, bytes, depth, jobs, sync_every, forced, host_ns: 0 };
    if !(1..=65_536).contains(&depth) || !(1..=256).contains(&jobs) {
        return Err(format!("{}: too many in parallel to compare", load.name()));
    }
    figures(job, load)
}

/// Why a drive alone cannot run a pattern, and the hint.
fn no_pattern(rw: &str, options: &Options<'_>) -> String {
    let share = options.text(&["rwmixread"]).or_else(|| {
        let writes: u32 = options.text(&["rwmixwrite"])?.parse().ok()?;
        Some(100u32.saturating_sub(writes).to_string())
    });
    let share = share.unwrap_or_else(|| "50".to_owned());
    match rw {
        "rw" | "readwrite" | "randrw" => {
            let one = if rw == "randrw" { "rand" } else { "" };
            format!(
                "rw={rw} with rwmixread={share}: no class has a parameter for reads that wait for \
                 writes; run one job of rw={one}read and one of rw={one}write"
            )
        }
        "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => {
            format!(
                "rw={rw}: no class has a parameter that discards determine; run reads and writes"
            )
        }
        other => format!("rw={other}: unknown; run read, write, randread or randwrite"),
    }
}

/// Is each write made durable before it counts (`sync=1`, `sync=sync`, `sync=dsync`)? Errors: on a
/// file, where the file system's own writes are in it.
fn is_forced(options: &Options<'_>) -> Result<bool, String> {
    let sync = options.text(&["sync"]).unwrap_or_default();
    if matches!(sync.as_str(), "" | "0" | "none") {
        return Ok(false);
    }
    let file = options.text(&["filename"]).unwrap_or_default();
    if file.starts_with("/dev/") {
        return Ok(true);
    }
    Err(format!(
        "sync={sync} on a file: the file system's own writes are in each latency; run it on the \
         device itself (filename=/dev/...), or with fsync=1"
    ))
}

fn figures(job: &Value, mut load: Load) -> Result<Measured, String> {
    let side = if load.op == Op::Read { &job["read"] } else { &job["write"] };
    let total = side["total_ios"].as_u64().unwrap_or(0);
    if total < OPERATIONS_MIN {
        return Err(format!("{total} operations: a mean needs at least {OPERATIONS_MIN}"));
    }
    // fio before 3 counts microseconds.
    let clat = match side.get("clat_ns") {
        Some(clat) => (clat, 1.0),
        None => (&side["clat"], 1000.0),
    };
    let positive = |v: Option<f64>| v.filter(|v| v.is_finite() && *v > 0.0);
    let scaled = |v: &Value| positive(v.as_f64().map(|v| v * clat.1));
    let iops = positive(side["iops"].as_f64());
    let (Some(mut mean_ns), Some(iops)) = (scaled(&clat.0["mean"]), iops) else {
        return Err("no `iops`, or no mean of `clat_ns`".to_owned());
    };
    // With a submission thread (io_uring's sqthread_poll) fio has no time of submission, and counts
    // completion latency since boot; its total latency is right then.
    let alone = |mean_ns: f64| Figures { mean_ns: Some(mean_ns), iops: Some(iops), sync_ns: None };
    let mut has_clat = true;
    if little(&load, &alone(mean_ns)).is_err()
        && let Some(lat_ns) = positive(side["lat_ns"]["mean"].as_f64())
        && little(&load, &alone(lat_ns)).is_ok()
    {
        (mean_ns, has_clat) = (lat_ns, false);
    }
    let sync_ns = match load.sync_every {
        0 => None,
        _ => positive(job["sync"]["lat_ns"]["mean"].as_f64()),
    };
    // At depth 1 `with_host` knows more, once all jobs of the group are there.
    let slat = positive(side["slat_ns"]["mean"].as_f64()).filter(|_| has_clat).unwrap_or(0.0);
    load.host_ns = slat.clamp(0.0, HOST_NS_MAX) as u64;
    let p99_ns = scaled(&clat.0["percentile"]["99.000000"]).filter(|_| has_clat);
    let figures = Figures { mean_ns: Some(mean_ns), iops: Some(iops), sync_ns };
    Ok(Measured { load, figures, p99_ns, source: String::new() })
}

/// Columns of a list of points; the first four are needed.
const COLUMNS: [&str; 8] = ["op", "bs", "qd", "iops", "lat_us", "jobs", "fsync", "sync_us"];

/// A list: a line of columns, then a load each. Or the points of `devices/zn540`.
fn points(name: &str, text: &str) -> Result<Input, String> {
    if text.starts_with("device,experiment,") {
        return drive::parse(text).map(|p| zoned(name, &p)).map_err(|e| format!("{name}: {e}"));
    }
    let mut lines = (1..).zip(text.lines()).filter(|(_, l)| !l.trim().is_empty());
    let help = format!("a report of fio in JSON, or lines with the columns {}", COLUMNS.join(","));
    let Some((n, title)) = lines.next() else { return Err(format!("{name}: is empty: {help}")) };
    let columns: Vec<&str> = title.split(',').map(str::trim).collect();
    let known = columns.iter().all(|c| COLUMNS.contains(c));
    if !known || COLUMNS[..4].iter().any(|c| !columns.contains(c)) {
        return Err(format!("{name}:{n}:1: this is not an input: {help}"));
    }
    let mut input = Input::default();
    for (n, line) in lines {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != columns.len() {
            let what = format!("{} fields instead of {}", fields.len(), columns.len());
            return Err(format!("{name}:{n}:1: {what}"));
        }
        let field = |c: &str| columns.iter().position(|x| *x == c).map_or("", |i| fields[i]);
        let point = point(&field).map_err(|(key, what)| {
            let before = columns.iter().take_while(|c| **c != key).count();
            let column = 1 + fields[..before].iter().map(|f| f.len() + 1).sum::<usize>();
            format!("{name}:{n}:{column}: {key}: {what}")
        })?;
        input.measured.push(Measured { source: format!("{name}: line {n}"), ..point });
    }
    Ok(input)
}

type NoPoint = (&'static str, String);

fn point<'t>(field: &impl Fn(&str) -> &'t str) -> Result<Measured, NoPoint> {
    let (op, random) = match field("op") {
        "read" => (Op::Read, false),
        "write" => (Op::Write, false),
        "randread" => (Op::Read, true),
        "randwrite" => (Op::Write, true),
        "append" => (Op::Zone(ZoneOp::Append), false),
        other => {
            let what = format!("`{other}` is not read, write, randread, randwrite or append");
            return Err(("op", what));
        }
    };
    let bytes = wp_machine::spec::size(field("bs")).map_err(|e| ("bs", e))?;
    let bytes = u32::try_from(bytes).ok().filter(|b| *b > 0 && b.is_multiple_of(4096));
    let bytes = bytes.ok_or_else(|| ("bs", "not a multiple of 4 KiB below 4 GiB".to_owned()))?;
    let count = |key: &'static str, missing: u32, most: u32| match field(key) {
        "" => Ok(missing),
        text => match text.parse::<u32>() {
            Ok(n) if n <= most => Ok(n),
            _ => Err((key, format!("`{text}` is not a number up to {most}"))),
        },
    };
    let real = |key: &'static str| match field(key) {
        "" => Ok(None),
        text => match text.parse::<f64>() {
            Ok(v) if v.is_finite() && v > 0.0 => Ok(Some(v)),
            _ => Err((key, format!("`{text}` is not a number above 0"))),
        },
    };
    let depth = count("qd", 1, 65_536)?.max(1);
    let (jobs, sync_every) = (count("jobs", 1, 256)?.max(1), count("fsync", 0, 1 << 20)?);
    let ns = |key: &'static str| Ok(real(key)?.map(|us| us * 1e3));
    let figures = Figures { iops: real("iops")?, mean_ns: ns("lat_us")?, sync_ns: ns("sync_us")? };
    // The rest of the time between two writes would be taken for the host's.
    if sync_every > 0 && figures.mean_ns.is_some() && figures.sync_ns.is_none() {
        let what = "with fsync, lat_us is of the write alone: give the mean of a sync in sync_us, \
                    or leave lat_us empty";
        return Err(("lat_us", what.to_owned()));
    }
    if sync_every == 0 && figures.sync_ns.is_some() {
        return Err(("sync_us", "a load without fsync has no syncs".to_owned()));
    }
    if figures == Figures::default() {
        return Err(("iops", "a point needs iops, lat_us or sync_us".to_owned()));
    }
    let forced = false;
    let load = Load { op, random, bytes, depth, jobs, sync_every, forced, host_ns: 0 };
    little(&load, &figures).map_err(|e| ("lat_us", e))?;
    Ok(Measured { load: with_host(load, &figures), figures, p99_ns: None, source: String::new() })
}

/// Little's law: the rate times the mean latency is the mean number of operations in flight, which
/// is at most what the load keeps in flight. Errors: a rate and a latency that contradict.
pub(crate) fn little(load: &Load, figures: &Figures) -> Result<(), String> {
    let (Some(mean), Some(iops)) = (figures.mean_ns, figures.iops) else { return Ok(()) };
    let possible = f64::from(load.depth) * f64::from(load.jobs);
    let syncs = match (figures.sync_ns, load.sync_every) {
        // At more depth other operations go on during a sync.
        (Some(sync), every @ 1..) if load.depth == 1 => sync / f64::from(every),
        _ => 0.0,
    };
    let in_flight = iops * (mean + syncs) / 1e9;
    if in_flight <= possible * LITTLE_EXCESS {
        return Ok(());
    }
    let with = if syncs > 0.0 { " with syncs" } else { "" };
    Err(format!(
        "{}: a mean latency of {:.1} us{with} at {iops:.0} operations per second needs \
         {in_flight:.1} operations in flight; this load has {possible} at most: one of the two \
         numbers is wrong",
        load.name(),
        (mean + syncs) / 1e3,
    ))
}

/// The host's share, where one operation was under way: of the time between two what is neither its
/// latency nor a sync's.
pub(crate) fn with_host(load: Load, figures: &Figures) -> Load {
    let syncs = figures.sync_ns.filter(|_| load.sync_every > 0);
    let syncs = syncs.map_or(0.0, |s| s / f64::from(load.sync_every));
    let host = match (figures.iops, figures.mean_ns, load.depth) {
        (Some(iops), Some(mean), 1) => f64::from(load.jobs) * 1e9 / iops - mean - syncs,
        _ => 0.0,
    };
    Load { host_ns: host.clamp(0.0, HOST_NS_MAX) as u64, ..load }
}

/// Points of loads by themselves of the zoned drive.
fn zoned(name: &str, points: &[drive::Point]) -> Input {
    let mut input = Input::default();
    for p in points {
        let (op, random) = match (p.device.as_str(), p.experiment.as_str()) {
            ("zn540", "append") => (Op::Zone(ZoneOp::Append), false),
            ("zn540", "sequential_write") => (Op::Write, false),
            ("zn540", "random_read") => (Op::Read, true),
            _ => {
                let source = format!("{name}: {}", p.experiment);
                input.skipped.push((source, "no load by itself of data".to_owned()));
                continue;
            }
        };
        let figures =
            Figures { iops: p.iops, mean_ns: p.mean_us.map(|us| us * 1e3), sync_ns: None };
        let (bytes, depth, jobs) = (p.size, p.depth, p.zones);
        let (sync_every, forced) = (0, false);
        let load = Load { op, random, bytes, depth, jobs, sync_every, forced, host_ns: 0 };
        let source = format!("{name}: {}", p.source);
        if let Err(why) = little(&load, &figures) {
            input.skipped.push((source, why));
            continue;
        }
        let load = with_host(load, &figures);
        input.measured.push(Measured { load, figures, p99_ns: None, source });
    }
    input
}
