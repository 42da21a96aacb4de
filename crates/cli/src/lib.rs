//! The `writepath` command: argument parsing and printing only.
//!
//! Picture: the program calls [`main`]: the answer goes to stdout, errors to stderr. Another
//!          program
//!          in whose process a verb runs (the Python package) calls [`begin`]: the answer comes
//!          back as a value ([`Answer`]), and how far the work is can be asked for ([`Running`]).

#![deny(clippy::print_stdout, clippy::print_stderr)] // They panic where nobody reads: `output`.

mod cmd;
mod command;
mod contract;
#[cfg(test)]
mod documented;
mod images;
mod internal;
mod output;
mod outputs;
mod overview;
mod progress;
mod renamed;
mod session;
mod signals;
mod usage;

pub use cmd::crash::CrashParts;
pub use command::{crash_parts, exit_codes, main, missing_papers};
pub use session::{Answer, Failure, Far, Running, begin, exit_code_of};
