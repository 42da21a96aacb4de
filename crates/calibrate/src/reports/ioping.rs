//! `ioping`: latencies of single requests, one after the other.
//!
//! Laws:   without `-D` and `-C` each write is followed by fdatasync (write and FLUSH together),
//!         and each read goes past the cache; the report does not say which options were given.
//! Source: ioping(1) of ioping 1.3, and its output.

use wp_base::event::Op;

use super::{add, writes};
use crate::load::{Figures, Load};
use crate::measured::Input;

const STATISTICS: &str = " ioping statistics ---";
/// Fewer requests than that tell no mean: ioping makes one a second.
const REQUESTS_MIN: u64 = 10;

/// Reads a report; `None`: it is none. Errors: `LINE:COLUMN: WHAT`.
pub(super) fn parse(text: &str) -> Option<Result<Input, String>> {
    text.lines().any(|l| l.starts_with("--- ") && l.ends_with(STATISTICS)).then(|| read(text))
}

fn read(text: &str) -> Result<Input, String> {
    let mut input = Input::default();
    let mut bytes = None;
    let mut lines = (1..).zip(text.lines());
    while let Some((n, line)) = lines.next() {
        if let Some(found) = request(line) {
            bytes = Some(found);
            continue;
        }
        if !line.ends_with(STATISTICS) {
            continue;
        }
        let of = format!("line {n}");
        let Some((_, done)) = lines.next() else {
            return Err(format!("{n}:1: the report is truncated"));
        };
        let (count, is_write) =
            completed(done).ok_or_else(|| format!("{}:1: `{done}`: not `… completed`", n + 1))?;
        let mean = lines.by_ref().find_map(|(_, l)| mean_ns(l));
        let mean = mean.ok_or_else(|| format!("{n}:1: no line `min/avg/max/mdev`"))?;
        if count < REQUESTS_MIN {
            let why = format!("{count} requests: a mean needs at least {REQUESTS_MIN} (-c 100)");
            input.skipped.push((of, why));
            continue;
        }
        let Some(bytes) = bytes.or_else(|| each(done, count)) else {
            input.skipped.push((of, "no multiple of 4 KiB below 4 GiB".to_owned()));
            continue;
        };
        let (load, figures) = if is_write {
            let figures = Figures { iops: Some(1e9 / mean), ..Figures::default() };
            (Load { random: true, ..writes(bytes, 1) }, figures)
        } else {
            let figures = Figures { mean_ns: Some(mean), ..Figures::default() };
            (Load { op: Op::Read, random: true, ..writes(bytes, 0) }, figures)
        };
        add(&mut input, load, figures, &of);
    }
    Ok(input)
}

/// Bytes of `4 KiB >>> /dev/sda (…): request=2 time=6.15 ms`.
fn request(line: &str) -> Option<u32> {
    let at = line.find(" <<< ").or_else(|| line.find(" >>> "))?;
    line[at..].contains(": request=").then_some(())?;
    size(&line[..at])
}

/// `3 requests completed in 26.1 ms, 48 KiB written, …`: how many, and whether they wrote.
fn completed(line: &str) -> Option<(u64, bool)> {
    let (count, rest) = line.split_once(" requests completed in ")?;
    let is_write = rest.contains(" written,");
    (is_write || rest.contains(" read,")).then_some(())?;
    Some((scaled(count)?.round() as u64, is_write))
}

/// Bytes of one of `count` requests, of the sum (`48 KiB written`).
fn each(line: &str, count: u64) -> Option<u32> {
    let sum = line.split(", ").nth(1)?;
    let sum = sum.strip_suffix(" written").or_else(|| sum.strip_suffix(" read"))?;
    whole(bytes_of(sum)? / count as f64)
}

/// The mean of `min/avg/max/mdev = 6.15 ms / 8.71 ms / 12.0 ms / 2.44 ms`, in nanoseconds.
fn mean_ns(line: &str) -> Option<f64> {
    let times = line.strip_prefix("min/avg/max/mdev = ")?;
    let (value, unit) = times.split(" / ").nth(1)?.split_once(' ')?;
    let unit = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let value: f64 = value.parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value * unit)
}

/// A number with its unit of a thousand: `5.97 k`.
fn scaled(text: &str) -> Option<f64> {
    let mut words = text.split(' ');
    let value: f64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None => 1.0,
        Some("k") => 1e3,
        Some("M") => 1e6,
        Some(_) => return None,
    };
    (value.is_finite() && value >= 0.0).then_some(value * unit)
}

/// `48 KiB` in bytes.
fn bytes_of(text: &str) -> Option<f64> {
    let (value, unit) = text.trim().split_once(' ')?;
    let unit = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let value: f64 = value.parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value * unit)
}

fn size(text: &str) -> Option<u32> {
    whole(bytes_of(text)?)
}

/// A multiple of 4 KiB below 4 GiB.
fn whole(bytes: f64) -> Option<u32> {
    let is_whole = (4096.0..4294967296.0).contains(&bytes) && bytes % 4096.0 == 0.0;
    is_whole.then_some(bytes as u32)
}
