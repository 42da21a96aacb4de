//! `crash -- CMD`: a program of this host is recorded first.

use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_fuse::record;
use wp_machine::host::{Shape, text};
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
    if let Some(program) = recorded_before(a, out)? {
        return Ok(program);
    }
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
    Ok(program.without_think_times())
}

/// What an exploration that goes on has recorded: another run of the program would do other calls.
/// Errors: that is not there, and that was told.
fn recorded_before(a: &Args, out: &Out) -> Result<Option<Program>, ExitCode> {
    let Some(state) = &a.state_file else { return Ok(None) };
    let fails = |what: &str, help: &str| Err(out.fail(Exit::Usage, "state-file", what, help));
    let Some(record) = &a.record else {
        let what = "--state-file of a program of the host needs its recording";
        return fails(what, "add --record FILE: the same command goes on with it");
    };
    if !state.exists() {
        return Ok(None);
    }
    let at = |e: String| format!("{}: {e}", record.shown());
    let text = text::read(record).map_err(|e| at(e.to_string()));
    match text.and_then(|text| Program::parse(&text).map_err(at)) {
        Ok(program) => {
            out.note(&format!("{}: recorded before; the program is not run again", record.shown()));
            Ok(Some(program.without_think_times()))
        }
        Err(e) => fails(&e, "name the --record of the run that wrote --state-file, or another one"),
    }
}
