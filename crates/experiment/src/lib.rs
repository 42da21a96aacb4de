//! Experiments as files: TOML that says machine, drive, file system, workload, what differs from
//! point to point, power failures, and what ought to come out.
//!
//! Picture:    file -> `source` (spans) -> `sweep` (points) -> for each point `resolve`
//!             (names looked up, defaults) -> `run` with each seed -> `table` (rows) ->
//!             `claims`; beside them `resolved.toml` (`canon`) and the results.
//! Laws:       what comes out depends on the file, its inputs and this program, and neither on the
//!             number of threads, on shards, nor on what was kept from an earlier run.
//! Invariants: any bytes are taken: what is wrong is told with file, line and column.
//! Source:     the format is in docs/experiments.md, whose tables are those of `keys`.

mod canon;
pub mod claims;
mod crash;
pub mod expected_metrics;
pub mod expr;
mod file;
mod kept;
pub mod keys;
mod measure;
mod metric;
mod points;
mod read;
mod resolve;
mod results;
mod run;
mod runs;
mod source;
pub mod sweep;
pub mod table;
#[cfg(test)]
mod tests;
mod units;
pub mod vary;
mod work;

pub use file::{Checked, Experiment, Tried, is_experiment, load, parse};
pub use kept::Kept;
pub use metric::{Metrics, Number};
pub use points::{Points, Source};
pub use resolve::Setup;
pub use results::{MergeError, Ready, Written, merge, ready};
pub use run::{Outcome, run};
pub use runs::{Ended, Plan, Shard, Task, make, missing, run_all};
pub use table::Row;
