//! Figures and tables of each paper on the page, from its results.
//!
//! Invariant: a number comes from the results; one of the paper comes from its claims.

pub(crate) mod conflict;
pub(crate) mod direct;
pub(crate) mod ext4;
mod ext4_traces;
pub(crate) mod f2fs;
mod f2fs_flows;
pub(crate) mod trim;

use wp_report::page::{Cell, Source, number};

/// A cell with a count.
fn count(n: u64) -> Cell {
    Cell::number(number(n as f64))
}

/// Each of them once, in the order in which they come.
fn each<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for v in all {
        if !out.contains(&v) {
            out.push(v);
        }
    }
    out
}

/// A count of bytes with its unit.
fn bytes(n: u64) -> String {
    if n >= 1 << 20 {
        format!("{} MiB", n as f64 / f64::from(1 << 20))
    } else {
        format!("{} KiB", n as f64 / 1024.0)
    }
}
