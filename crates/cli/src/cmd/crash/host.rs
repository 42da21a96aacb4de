//! `crash -- CMD`: a program of this host is recorded first.

use std::path::Path;
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_campaign::Bench;
use wp_fuse::record;
use wp_machine::host::{Shape, text};
use wp_workload::program::{Program, Step};

use super::plan::{HostProgram, Named};
use super::programs::Programs;
use crate::cmd::host_program;
use crate::output::{Exit, Out};
use crate::outputs;

/// How long the machine stays on after the program has ended, microseconds: twice the age at which
/// Linux writes back what is dirty (`dirty_expire_centisecs`).
const REST_US: u64 = 60_000_000;

impl Named {
    /// The programs; one of the host is run on the machine and recorded. `state`: the file that an
    /// exploration goes on from. Errors: there is nothing to crash, and that was told.
    pub(super) fn recorded(
        self,
        bench: &Bench,
        state: Option<&Path>,
        out: &Out,
    ) -> Result<Programs, ExitCode> {
        let host = match self {
            Named::Programs(programs) => return Ok(programs),
            Named::Host(host) => host,
        };
        let before = match (state, &host.record) {
            (Some(state), Some(record)) if state.exists() => Some(recorded_before(record, out)?),
            _ => None,
        };
        let program = before.map_or_else(|| recorded(&host, bench, out), Ok)?;
        Ok(Programs::recorded(program, host.record.as_deref()))
    }
}

/// Runs the program of the host, and says what was recorded.
fn recorded(host: &HostProgram, bench: &Bench, out: &Out) -> Result<Program, ExitCode> {
    let file = outputs::asked(host.record.as_deref(), Shape::Text, out)?;
    let done = record(bench, &host.command, &out.interrupt());
    let mut program = host_program::told(&host.command, done, out)?.program();
    // The machine stays on: what the program has left dirty is written back, and power fails then
    // too.
    program.0.push(Step::Nap(REST_US));
    if let Some(file) = file {
        outputs::finish(file, program.to_string().as_bytes(), out)?;
    }
    Ok(program)
}

/// What an exploration that goes on has recorded: another run of the program would do other calls.
/// Errors: that is not there, and that was told.
fn recorded_before(record: &Path, out: &Out) -> Result<Program, ExitCode> {
    let at = |e: String| format!("{}: {e}", record.shown());
    let text = text::read(record).map_err(|e| at(e.to_string()));
    let program = text.and_then(|text| Program::parse(&text).map_err(at)).map_err(|e| {
        let help = "name the --record of the run that wrote --state-file, or another one";
        out.fail(Exit::Usage, "state-file", &e, help)
    })?;
    out.note(&format!("{}: recorded before; the program is not run again", record.shown()));
    Ok(program)
}
