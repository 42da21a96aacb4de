//! `crash -- CMD`: a program of this host is recorded first.

use std::process::ExitCode;

use wp_fuse::{RecordError, Recorded, record};
use wp_lab::host::Shape;
use wp_workload::program::{Program, Step};

use super::Args;
use crate::output::{Exit, Out};
use crate::{outputs, signals};

/// How long the machine stays on after the program has ended, microseconds: twice the age at which
/// Linux writes back what is dirty (`dirty_expire_centisecs`).
const REST_US: u64 = 60_000_000;

/// Runs the program of the host, and says what was recorded. Errors: there is nothing to crash,
/// and that was told.
pub(super) fn recorded(a: &Args, out: &Out) -> Result<Program, ExitCode> {
    let help = "writepath crash --help";
    let bench = super::bench(a).map_err(|e| out.fail(Exit::Usage, "crash", &e, help))?;
    let file = outputs::asked(a.record.as_deref(), Shape::Text, out)?;
    let interrupted = out.interrupt();
    let Recorded { recording, code } = match record(&bench, &a.command, &interrupted) {
        Ok(recorded) => recorded,
        Err(RecordError::Interrupted) => return Err(ExitCode::from(signals::exit_code())),
        Err(RecordError::Machine(e)) => return Err(out.machine_error(&e)),
        Err(RecordError::Host(e)) => {
            let what = format!("the program could not be run: {e}");
            return Err(out.fail(Exit::HostIo, "program", &what, help));
        }
    };
    let name = a.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let how = if code == 0 { "exit 0".to_owned() } else { format!("exit {code}") };
    if recording.calls() == 0 {
        let what = format!("{name}: {how}, and no call that changes a file in $WRITEPATH_DIR");
        let help = "the program's working directory is the file system; nothing else is recorded";
        return Err(out.fail(Exit::Usage, "program", &what, help));
    }
    let (calls, acks) = (recording.calls(), recording.acknowledged());
    out.note(&format!("{name}: {how}, {calls} system calls recorded, {acks} acknowledgements"));
    let mut program = recording.program();
    // The machine stays on: what the program has left dirty is written back, and power fails then
    // too.
    program.0.push(Step::Nap(REST_US));
    if let Some(file) = file {
        outputs::finish(file, program.to_string().as_bytes(), out)?;
    }
    Ok(program)
}
