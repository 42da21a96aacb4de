//! Wait for wait: small programs whose every system call is timed here and on a real kernel.
//!
//! ```text
//! Program (text) ─┬─ run::run ────────────> Outcome ─┐
//!                 └─ guest (prog.c in a UML guest) ──┼─ compare -> rows <-> differences.toml
//!        recorded runs (kernels/linux-6.12) ─────────┘
//! ```
//! On a device that takes one latency for every request, and with a CPU that costs nothing, the
//! duration of a call divided by the latency is the number of device waits in its chain. That
//! number is a property of the write path alone, and can be compared with the real kernel's.
//!
//! Invariants: 1. both sides execute the same program text.
//!             2. `kernels/linux-6.12/differences.toml` lists exactly the differences, and
//!                `random.toml` those of random programs: an unlisted one and a stale one are both
//!                findings.
//! Left out:   who waits for what (the traces tell); calls that overlap.

pub mod cases;
pub mod compare;
pub mod config;
pub mod guest;
pub mod listed;
pub mod random;
pub mod recorded;
pub mod run;
pub mod shrink;
pub mod timeline;

pub use compare::{Report, compare_recorded};
pub use config::{CONFIGS, Config};
pub use listed::{Finding, Listed};
pub use run::{Outcome, Timed};
pub use wp_workload::program::{Call, Program, Step};
