//! Files that a verb writes: tried before its work begins.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use wp_base::plain::Shown as _;
use wp_machine::host::{Existing, Output, Shape, output};

use crate::output::{Exit, Out};

/// Begins an output that replaces nothing; on failure says why and with which code to end.
pub fn new(path: &Path, shape: Shape, out: &Out) -> Result<Output, ExitCode> {
    begin(path, (shape, Existing::Refuse), "name a new file, or remove this one", out)
}

/// As [`new`], of an option that may be left out.
pub fn asked(path: Option<&Path>, shape: Shape, out: &Out) -> Result<Option<Output>, ExitCode> {
    path.map(|path| new(path, shape, out)).transpose()
}

/// Begins an output that replaces an existing file of its name if `replaces`; `help` is the hint if
/// the file exists and must stay.
pub fn forced(
    path: &Path,
    (shape, replaces): (Shape, bool),
    help: &str,
    out: &Out,
) -> Result<Output, ExitCode> {
    let existing = if replaces { Existing::Replace } else { Existing::Refuse };
    begin(path, (shape, existing), help, out)
}

fn begin(
    path: &Path,
    (shape, existing): (Shape, Existing),
    help: &str,
    out: &Out,
) -> Result<Output, ExitCode> {
    Output::create(path, shape, existing).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            out.fail(Exit::Usage, "exists", &format!("{} exists", path.shown()), help)
        }
        _ => out.host_error(path, &e),
    })
}

/// Writes all of an output. On failure says why and with which code to end.
pub fn finish(mut output: Output, bytes: &[u8], out: &Out) -> Result<(), ExitCode> {
    let path = output.path().to_owned();
    let done = output.write_all(bytes).and_then(|()| output.commit());
    done.map_err(|e| out.host_error(&path, &e))
}

/// Makes a folder for new files, if it is not there; on failure, also if something is in it, says
/// why and with which code to end.
pub fn empty_folder(folder: &Path, out: &Out) -> Result<(), ExitCode> {
    let made = std::fs::create_dir_all(folder).and_then(|()| std::fs::read_dir(folder));
    let mut there = made.map_err(|e| out.host_error(folder, &e))?;
    if there.next().is_some() {
        let what = format!("{} is not empty", folder.shown());
        return Err(out.fail(Exit::Usage, "exists", &what, "name a new folder"));
    }
    Ok(())
}

/// Can results be written below `folder`? On failure says why and with which code to end.
pub fn folder(folder: &Path, out: &Out) -> Result<(), ExitCode> {
    output::try_folder(folder).map_err(|e| out.host_error(folder, &e))
}
