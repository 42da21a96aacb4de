//! fio job files (fio 3.33): parsing, sequences of offsets, running, and the JSON report.
//!
//! Sources: fio's manual, published algorithms (L'Ecuyer's Tausworthe generators, maximal shift
//! registers), and what the installed program does when it runs: `--ioengine=null --write_iolog`
//! logs every open, close, operation and sync. Each module says which of them a rule comes from.
//! `tests/fio_oracle.rs` holds the sequences against the installed fio, also for jobs at random.

mod calls;
mod diag;
mod ini;
mod job;
mod lfsr;
mod map;
mod options;
mod paths;
mod random;
mod report;
mod resolve;
mod run;
mod sequence;
mod setup;
mod stats;
mod value;

pub use diag::{Diagnostic, Place, Severity};
pub use ini::{Includes, Variables};
pub use job::{Engine, FileService, Generator, Job, JobFile, SyncWhat, Used, parse};
pub use options::{Class, OPTIONS, OptionInfo, find, nearest_of};
pub use report::report;
pub use run::{JobResult, RunError, RunOptions, run};
pub use sequence::{Action, Direction, Sequence};
pub use setup::{FileSetup, Layout, layout};
pub use stats::{Histogram, Stat};
