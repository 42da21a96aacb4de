//! `crash -- CMD`: a program of this host is recorded first.

use std::process::ExitCode;

use wp_fuse::record;
use wp_lab::host::Shape;
use wp_workload::program::{Program, Step};

use super::Args;
use crate::cmd::host_program;
use crate::output::{Exit, Out};
use crate::outputs;

/// How long the machine stays on after the program has ended, microseconds: twice the age at which
/// Linux writes back what is dirty (`dirty_expire_centisecs`).
const REST_US: u64 = 60_000_000;

/// Runs the program of the host, and says what was recorded. Errors: there is nothing to crash,
/// and that was told.
pub(super) fn recorded(a: &Args, out: &Out) -> Result<Program, ExitCode> {
    let help = "writepath crash --help";
    let bench = super::bench(a).map_err(|e| out.fail(Exit::Usage, "crash", &e, help))?;
    let file = outputs::asked(a.record.as_deref(), Shape::Text, out)?;
    let done = record(&bench, &a.command, &out.interrupt());
    let mut program = host_program::told(&a.command, done, out)?.program();
    // The machine stays on: what the program has left dirty is written back, and power fails then
    // too.
    program.0.push(Step::Nap(REST_US));
    if let Some(file) = file {
        outputs::finish(file, program.to_string().as_bytes(), out)?;
    }
    Ok(program)
}
