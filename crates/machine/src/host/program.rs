//! This program itself, as it runs: another one may have been built in its place since it started,
//! and neither what was kept by that one nor a process of that one is of this one.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::results::sha256;

/// A path that leads to the program that runs, for itself and for what it starts. The name under
/// which it was started may be gone, or be another program's.
const PATH: &str = "/proc/self/exe";

/// A program that is part of another one: a library that an interpreter has loaded.
struct Guest {
    library: PathBuf,
    words: Vec<OsString>,
}

static GUEST: OnceLock<Guest> = OnceLock::new();

/// Says that this program is `library` (a file), loaded by another program, and that `words` (a
/// program and its first arguments) start it by itself. To be called first; later calls change
/// nothing.
pub fn is_library(library: &Path, words: Vec<OsString>) {
    GUEST.get_or_init(|| Guest { library: library.to_owned(), words });
}

/// A command that starts this program, its arguments to be added.
pub fn command() -> Command {
    let words = GUEST.get().and_then(|guest| guest.words.split_first());
    let Some((program, first)) = words else { return Command::new(PATH) };
    let mut command = Command::new(program);
    command.args(first);
    command
}

/// A command that starts the Python interpreter that has loaded this program, or that of the host.
pub fn python() -> Command {
    let own = GUEST.get().and_then(|guest| guest.words.first());
    own.map_or_else(|| Command::new("python3"), Command::new)
}

/// SHA-256 of its bytes. Errors: the host's.
pub fn hash() -> io::Result<&'static str> {
    static HASH: OnceLock<String> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return Ok(hash);
    }
    let path = GUEST.get().map_or(Path::new(PATH), |guest| &guest.library);
    let hash = sha256(&std::fs::read(path)?);
    Ok(HASH.get_or_init(|| hash))
}
