//! `replay`: what the file is, decides.

mod log;
mod print;
mod trace;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_medium::write_log::WriteLog;

use crate::output::{Exit, Out};
pub use print::seconds;
pub use trace::{action_of, files as input_files, format_of, is_stdin};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A log of dm-log-writes: what its device held at a moment, as an image; or its entries.
    /// Or a block trace: its requests, replayed onto a device model; NAME for NAME.blktrace.0, .1,
    /// … (several files are one trace); - for stdin.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Of a log of dm-log-writes")]
    log: log::LogArgs,
    #[command(flatten, next_help_heading = "Of a block trace")]
    trace: trace::TraceArgs,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let mixed = |option: &str, kind: &str| {
        let what = format!("{option}: {} is {kind}", a.files[0].shown());
        out.fail(Exit::Usage, "kind", &what, "writepath replay --help")
    };
    let is_log = match is_log(&a.files[0]) {
        Ok(is_log) => is_log,
        Err(e) => return out.host_error(&a.files[0], &e),
    };
    match (is_log, a.trace.given(), a.log.given()) {
        (true, Some(option), _) => mixed(option, "a log of dm-log-writes"),
        (false, _, Some(option)) => mixed(option, "no log of dm-log-writes"),
        (true, ..) if a.files.len() > 1 => {
            out.fail(Exit::Usage, "files", "one log of dm-log-writes at a time", "")
        }
        (true, ..) => log::run(&a.files[0], &a.log, out),
        (false, ..) => trace::run(&a.files, &a.trace, out),
    }
}

/// Is the file a log of dm-log-writes? (One that is not there may be a name of several.)
fn is_log(path: &Path) -> std::io::Result<bool> {
    if trace::is_stdin(path) || !path.exists() {
        return Ok(false);
    }
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(8).read_to_end(&mut head)?;
    Ok(WriteLog::begins(&head))
}
