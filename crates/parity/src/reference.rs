//! Recorded runs of real kernels, and how ours differ from them.
//!
//! ```text
//! *.tsv -> Trace ─┐
//! our run ────────┴─> RunSummary: phase x class -> {issuer: blocks, requests, flags}, moments
//!                         │
//!                         └─ compare(run, ours, theirs) -> Difference…  <-> differences.toml
//! ```
//! Invariants: 1. both sides go through the same summary, which contains none of our own beliefs
//!                about what a kernel does.
//!             2. `differences.toml` lists exactly the differences: an unlisted one and a stale
//!                one are both findings.
//! Left out:   how data is split into requests and the microseconds: matters of that disk and of
//!             an emulated machine (the requests are in the table, not in the comparison).
//! Source:     the READMEs of the folders linux-3.4, linux-3.8, linux-4.6 and linux-5.10 of the
//!             reference data.

mod bios;
mod compare;
mod recorded_runs;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod today;

pub use bios::{CaseBios, PhaseBios, QueuedBio, compare_bios};
pub use compare::parse_differences;
pub use compare::{Difference, Finding, ListedDifference, What, check_differences, compare};
pub use recorded_runs::{
    KERNEL_RUNS_JSON, KernelRun, RunSpec, WriteCase, kernel_runs, kernel_runs_to_json,
    parse_kernel_runs, read_folder,
};
pub use summary::{ClassSummary, Filed, Issuer, Moment, Phase, RunSummary, Share, summarise};
pub use table::{Row, SideBySide, side_by_side};
pub use today::{TODAY_RUNS_JSON, TodayCase, TodayRun, read_today, today_runs, today_runs_to_json};
pub use wp_machine::lines::{ReferenceError, Trace, TraceLine, parse_tsv};
