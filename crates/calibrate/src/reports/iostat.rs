//! `iostat -x -o JSON`: what a drive took for a FLUSH (`f_await`) beside the writes of a workload.
//!
//! Laws:   a disk with FLUSHes and writes is a load of writes of its mean size, with a sync behind
//!         every N; only the times of a write and of a FLUSH are compared, since the workload
//!         sets the rates. A FLUSH request has a place of its own from Linux 5.5 on.
//! Source: iostat(1) of sysstat 12.6, and its output.

use serde_json::Value;

use super::writes;
use crate::load::{Figures, Load};
use crate::measured::{Input, Measured};

/// FLUSHes a second of which an average means something.
const FLUSHES_MIN: f64 = 1.0;

/// Reads a report; `None`: it is none. Errors: `LINE:COLUMN: WHAT`.
pub(super) fn parse(text: &str) -> Option<Result<Input, String>> {
    let text = text.trim_start();
    // Whatever JSON it is, this key says that it is of sysstat.
    let head = text.get(..text.len().min(64)).or_else(|| text.get(..text.find('\n')?))?;
    (head.starts_with('{') && head.contains("\"sysstat\"")).then(|| read(text))
}

fn read(text: &str) -> Result<Input, String> {
    let doc: Value = serde_json::from_str(text)
        .map_err(|e| format!("{}:{}: no report of iostat: {e}", e.line(), e.column()))?;
    let hosts = doc["sysstat"]["hosts"].as_array().map_or(&[][..], Vec::as_slice);
    let intervals = hosts.iter().flat_map(|h| h["statistics"].as_array().into_iter().flatten());
    let mut input = Input::default();
    for (n, interval) in (1..).zip(intervals) {
        for disk in interval["disk"].as_array().into_iter().flatten() {
            let device = disk["disk_device"].as_str().unwrap_or("?");
            let source = format!("interval {n} ({device})");
            match load(disk) {
                Ok((load, figures)) => {
                    input.measured.push(Measured { load, figures, p99_ns: None, source });
                }
                Err(why) => input.skipped.push((source, why)),
            }
        }
    }
    if input.measured.is_empty() && input.skipped.is_empty() {
        return Err("1:1: a report of iostat without `disk`: run iostat -x -o JSON".to_owned());
    }
    Ok(input)
}

/// The load of a disk. Errors: why it is none.
fn load(disk: &Value) -> Result<(Load, Figures), String> {
    let number = |key: &str| {
        let value = disk[key].as_f64().filter(|v| v.is_finite() && *v >= 0.0);
        value.ok_or_else(|| format!("no `{key}`: run iostat -x -o JSON of sysstat 12 or later"))
    };
    let (flushes, await_ms) = (number("f/s")?, number("f_await")?);
    if flushes < FLUSHES_MIN || await_ms == 0.0 {
        return Err(format!("{flushes} FLUSHes a second: a mean needs at least {FLUSHES_MIN}"));
    }
    let (rate, kib, write_ms) = (number("w/s")?, number("wareq-sz")?, number("w_await")?);
    // Requests of a size between two are taken for the next whole block.
    let blocks = (kib / 4.0).ceil().clamp(1.0, 4096.0) as u32;
    let between = (rate / flushes).round().clamp(1.0, 1e6) as u32;
    let figures = Figures {
        mean_ns: (write_ms > 0.0).then_some(write_ms * 1e6),
        iops: None,
        sync_ns: Some(await_ms * 1e6),
    };
    Ok((Load { random: true, ..writes(blocks * 4096, between) }, figures))
}
