//! A program of this host, before it is crashed or run in virtual time: what was recorded.

use std::ffi::OsString;
use std::process::ExitCode;

use wp_fuse::{RecordError, Recorded, Recording};

use crate::output::{Exit, Out};
use crate::signals;

/// Says how the program ended and what was recorded. Errors: nothing was, and that was told.
pub fn told(
    command: &[OsString],
    done: Result<Recorded, RecordError>,
    out: &Out,
) -> Result<Recording, ExitCode> {
    let Recorded { recording, code } = match done {
        Ok(recorded) => recorded,
        Err(RecordError::Interrupted) => return Err(ExitCode::from(signals::exit_code())),
        Err(RecordError::Machine(e)) => return Err(out.machine_error(&e)),
        Err(RecordError::Host(e)) => {
            let what = format!("the program could not be run: {e}");
            let help = "it needs FUSE (/dev/fuse), and root or user namespaces";
            return Err(out.fail(Exit::HostIo, "program", &what, help));
        }
    };
    let name = command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    if recording.calls() == 0 {
        let what =
            format!("{name}: exit {code}, and no call that changes a file in $WRITEPATH_DIR");
        let help = "the program's working directory is the file system; nothing else is recorded";
        return Err(out.fail(Exit::Usage, "program", &what, help));
    }
    let (calls, acks) = (recording.calls(), recording.acknowledged());
    out.note(&format!(
        "{name}: exit {code}, {calls} system calls recorded, {acks} acknowledgements"
    ));
    Ok(recording)
}
