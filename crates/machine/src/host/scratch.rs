//! Scratch directories.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use wp_base::plain::Shown as _;

use super::leftover::{Held, Leftover, hold};

/// A new directory that only this user can enter; it goes with this, and with the program.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _held: Held,
}

impl Scratch {
    /// A directory `PREFIX-RANDOM` in the system's temporary directory. Errors: the host's.
    pub fn new(prefix: &str) -> io::Result<Scratch> {
        Scratch::within(&std::env::temp_dir(), prefix)
    }

    /// A directory `PREFIX-RANDOM` in `parent`, which must exist. Errors: the host's, with the
    /// name of `parent`.
    pub fn within(parent: &Path, prefix: &str) -> io::Result<Scratch> {
        let (path, held) = hold(|| {
            let made = tempfile::Builder::new()
                .prefix(&format!("{prefix}-"))
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(parent)
                .map_err(|e| named(parent, e))?;
            // Commands that run in it have other working directories.
            let path = std::path::absolute(made.keep())?;
            Ok((path.clone(), Leftover::Directory(path)))
        })?;
        Ok(Scratch { path, _held: held })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An error of a directory, without the temporary name that the library puts into it.
fn named(parent: &Path, e: io::Error) -> io::Error {
    let why = match e.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number).to_string(),
        None if e.kind() == io::ErrorKind::NotFound => "no such directory".to_owned(),
        None => e.to_string(),
    };
    io::Error::new(e.kind(), format!("{}: {why}", parent.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_new_and_gone_afterwards() {
        let parent = tempfile::tempdir().expect("a directory");
        let one = Scratch::within(parent.path(), "check").expect("made");
        let other = Scratch::within(parent.path(), "check").expect("made");
        assert_ne!(one.path(), other.path());
        let mode = std::fs::metadata(one.path()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::write(one.path().join("file"), "contents").expect("written");
        drop((one, other));
        assert_eq!(std::fs::read_dir(parent.path()).expect("listed").count(), 0);
    }

    #[test]
    fn no_parents_are_made() {
        let parent = tempfile::tempdir().expect("a directory");
        let missing = parent.path().join("a/b");
        let e = Scratch::within(&missing, "check").expect_err("there is no such directory");
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert!(e.to_string().starts_with(&missing.display().to_string()), "{e}");
        assert!(!parent.path().join("a").exists());
    }
}
