//! PostgreSQL's `pg_test_fsync`: what each way to sync one or two blocks of a file costs.
//!
//! Laws:   its file is written beforehand, so `fdatasync` is the write and one FLUSH, and
//!         `open_datasync` a direct write that is durable when it ends (FUA, or write and FLUSH).
//!         `fsync` and `open_sync` also commit the file's times: the file system is in them.
//! Source: `src/bin/pg_test_fsync/pg_test_fsync.c` of PostgreSQL 15, and its output.

use super::{add, writes};
use crate::load::{Figures, Load};
use crate::measured::Input;

/// The line that every report begins its first table with.
const TITLE: &str = "Compare file sync methods using ";
const JOURNAL: &str = "it commits the file's times: the file system's own writes are in it";

/// Reads a report; `None`: it is none. Errors: `LINE:COLUMN: WHAT`.
pub(super) fn parse(text: &str) -> Option<Result<Input, String>> {
    text.lines().any(|l| l.starts_with(TITLE)).then(|| read(text))
}

fn read(text: &str) -> Result<Input, String> {
    let mut input = Input::default();
    // Blocks of a write, and its bytes; `None` outside of tables that compare methods.
    let mut table: Option<(u32, u32)> = None;
    for (n, line) in (1..).zip(text.lines()) {
        if let Some(rest) = line.strip_prefix(TITLE) {
            table = Some(blocks(rest).ok_or_else(|| {
                format!("{n}:{}: `{rest}` is not `one 8kB write:`", TITLE.len() + 1)
            })?);
            continue;
        }
        let Some((method, rate)) = row(line) else {
            // A table ends at the first line that is not indented.
            if !line.starts_with([' ', '\t', '(']) && !line.is_empty() {
                table = None;
            }
            continue;
        };
        let (Some((count, bytes)), Some(rate)) = (table, rate) else { continue };
        let iops: f64 = rate
            .parse()
            .ok()
            .filter(|v: &f64| v.is_finite() && *v > 0.0)
            .ok_or_else(|| format!("{n}:1: {method}: `{rate}` operations a second"))?;
        let source = format!("line {n} ({method})");
        let figures =
            |times: u32| Figures { iops: Some(iops * f64::from(times)), ..Figures::default() };
        match method {
            // The page cache writes neighbours as one.
            "fdatasync" => add(&mut input, writes(bytes * count, 1), figures(1), &source),
            "open_datasync" => {
                let load = Load { forced: true, ..writes(bytes, 0) };
                add(&mut input, load, figures(count), &source);
            }
            _ => input.skipped.push((source, JOURNAL.to_owned())),
        }
    }
    if input.measured.is_empty() {
        return Err("1:1: a report of pg_test_fsync without fdatasync or open_datasync".to_owned());
    }
    Ok(input)
}

/// `one 8kB write:`, `two 8kB writes:`: how many, and the bytes of each.
fn blocks(text: &str) -> Option<(u32, u32)> {
    let mut words = text.split_whitespace();
    let count = match words.next()? {
        "one" => 1,
        "two" => 2,
        _ => return None,
    };
    let kib: u32 = words.next()?.strip_suffix("kB")?.parse().ok()?;
    let is_whole = kib.is_multiple_of(4) && (4..=1024).contains(&kib);
    is_whole.then_some((count, kib << 10))
}

/// `fdatasync   307.807 ops/sec   3249 usecs/op`: the method and its rate, if it has one.
fn row(line: &str) -> Option<(&str, Option<&str>)> {
    if !line.starts_with([' ', '\t']) {
        return None;
    }
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [method, rate, "ops/sec", ..] => Some((method, Some(rate))),
        [method, "n/a" | "n/a*"] => Some((method, None)),
        _ => None,
    }
}
