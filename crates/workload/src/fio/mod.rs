//! fio job files (fio 3.33): parsing, sequences of offsets, running, and the JSON report.
//!
//! Sources: fio's manual, published algorithms (L'Ecuyer's Tausworthe generators, maximal shift
//! registers), and what the installed program does when it runs: `--ioengine=null --write_iolog`
//! logs every open, close, operation and sync. Each module says which of them a rule comes from.
//! `tests/fio_oracle.rs` holds the sequences against the installed fio, also for jobs at random.

mod calls;
mod command_line;
mod control;
mod diag;
mod direct;
mod distribution;
mod engines;
mod forms;
mod ini;
mod iolog;
mod job;
mod jobs;
mod lay_out;
mod lfsr;
mod logs;
mod map;
mod normal;
mod options;
mod paths;
mod queue;
mod random;
mod replay;
mod report;
mod resolve;
mod result;
mod run;
mod samples;
mod sequence;
mod setup;
mod stats;
mod steady;
mod terse;
mod value;
mod verify;
mod zoned;

pub use command_line::{COMMANDS, CommandLine, read as read_command_line, shown as shown_command};
pub use diag::{Diagnostic, Place, Severity};
pub use direct::Direct;
pub use forms::{Form, Kind, form, forms};
pub use ini::{Includes, Section, Variables};
pub use iolog::IoLog;
pub use job::{
    Distribution, Engine, ExitWhat, FileService, Generator, Job, JobFile, LatencyTarget, SyncWhat,
    Used, Verify,
};
pub use jobs::{parse, parse_all};
pub use logs::{Logged, all_files as log_files};
pub use normal::{heading, normal};
pub use options::{Class, OPTIONS, OptionInfo, find, nearest_of};
pub use replay::{Due, Line, Log, ReplayOptions, Step};
pub use report::{Bins, Counts, counts, report, report_with};
pub use result::{DepthCounts, DirectionResult, JobResult};
pub use run::{RunError, RunOptions, run};
pub use sequence::{Action, Direction, Sequence, Until, Zone};
pub use setup::{Existing, FileSetup, Layout, layout};
pub use stats::{Histogram, Stat};
pub use steady::{Criterion, Steadiness, SteadyState};
pub use terse::terse;
pub use value::MICROS_MAX;
pub use zoned::{Ask, Chosen, Place as ZonePlace, Zones};
