//! `replay`: what the file is, decides.

mod input;
mod log;
mod print;
mod trace;
mod workload;

use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_medium::write_log::WriteLog;

use crate::output::{Exit, Out};
pub use input::{Reading, action_of, files as input_files, is_stdin, rereadable};
pub use print::seconds;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath replay trace --on ssd-128,queue_depth=1\n\
    \x20 zstd -dc trace.zst | writepath replay - --mode timed\n\
    \x20 writepath replay my.csv --columns time:us,dev,lba:512,size:bytes,op --from all\n\
    \x20 writepath replay log.img --to-mark fsync-3 --out disk.img")]
pub struct Args {
    /// Block trace, MQSim workload, or dm-log-writes log; - is a trace on stdin
    ///
    /// A block trace is replayed onto a device model; several files are one trace, and NAME stands
    /// for NAME.blktrace.0, NAME.blktrace.1, …. The flows of an MQSim workload definition run on
    /// one device model. A dm-log-writes log is listed, or written as the image that its device
    /// held.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Options for a dm-log-writes log")]
    log: log::LogArgs,
    #[command(flatten, next_help_heading = "Options for a block trace")]
    trace: trace::TraceArgs,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let mixed = |option: &str, kind: &str| {
        let what = format!("{option} does not apply: {} is {kind}", a.files[0].shown());
        out.fail(Exit::Usage, "kind", &what, "writepath replay --help")
    };
    let is_log = match is_log(&a.files[0]) {
        Ok(is_log) => is_log,
        Err(e) => return out.host_error(&a.files[0], &e),
    };
    match (is_log, a.trace.given(), a.log.given()) {
        (true, Some(option), _) => mixed(option, "a dm-log-writes log"),
        (false, _, Some(option)) => mixed(option, "not a dm-log-writes log"),
        (true, ..) if a.files.len() > 1 => {
            out.fail(Exit::Usage, "files", "replay takes one dm-log-writes log at a time", "")
        }
        (true, ..) => log::run(&a.files[0], &a.log, out),
        (false, ..) => trace_or_workload(a, out),
    }
}

/// A block trace, or a workload definition of MQSim.
fn trace_or_workload(a: &Args, out: &Out) -> ExitCode {
    let first = &a.files[0];
    let is_workload = is_file(first).and_then(|is_file| Ok(is_file && workload::is_one(first)?));
    match is_workload {
        Err(e) => out.host_error(first, &e),
        Ok(true) if a.files.len() > 1 => {
            out.fail(Exit::Usage, "files", "replay takes one workload definition at a time", "")
        }
        Ok(true) => match a.trace.given_beside_a_workload() {
            Some(option) => {
                let what = format!("{option} does not apply: {} says it itself", first.shown());
                out.fail(Exit::Usage, "kind", &what, "writepath replay --help")
            }
            None => workload::run(first, &a.trace, out),
        },
        Ok(false) if a.trace.scenario.is_some() => {
            let what =
                format!("--scenario does not apply: {} is no workload definition", first.shown());
            out.fail(Exit::Usage, "kind", &what, "writepath replay --help")
        }
        Ok(false) => trace::run(&a.files, &a.trace, out),
    }
}

/// Is the file a log of dm-log-writes? (One that is not there may be a name of several.)
fn is_log(path: &Path) -> std::io::Result<bool> {
    if !is_file(path)? {
        return Ok(false);
    }
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(8).read_to_end(&mut head)?;
    Ok(WriteLog::begins(&head))
}

/// Can the file be read more than once? What a pipe has said once it does not say again.
fn is_file(path: &Path) -> std::io::Result<bool> {
    if is_stdin(path) || !path.exists() {
        return Ok(false);
    }
    let kind = std::fs::metadata(path)?.file_type();
    Ok(kind.is_file() || kind.is_block_device())
}
