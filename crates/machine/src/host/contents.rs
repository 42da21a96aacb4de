//! Contents of simulated drives that memory has no room for, in a temporary file.

use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wp_medium::Spill;

/// Bytes of contents that each thread keeps in memory.
const BUDGET: usize = 64 << 20;

thread_local! {
    static OWN: OnceCell<Rc<State>> = const { OnceCell::new() };
}

/// The file of one thread. It is made with the first contents, has no name, and goes with the
/// program.
struct State {
    directory: PathBuf,
    file: OnceCell<File>,
    error: RefCell<Option<io::Error>>,
    failed: Arc<AtomicBool>,
}

impl State {
    fn new(directory: &Path) -> State {
        State {
            directory: directory.to_owned(),
            file: OnceCell::new(),
            error: RefCell::default(),
            failed: Arc::default(),
        }
    }

    fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = tempfile::tempfile_in(&self.directory)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// Keeps the first error, and has the run end.
    fn done(&self, done: io::Result<()>) -> bool {
        let Err(e) = done else { return true };
        self.error.borrow_mut().get_or_insert(e);
        self.failed.store(true, Ordering::Relaxed);
        false
    }
}

/// [`State`] as the medium has it.
struct Contents(Rc<State>);

impl Spill for Contents {
    fn write(&self, at: u64, bytes: &[u8]) -> bool {
        // After an error all stays in memory.
        !self.0.failed.load(Ordering::Relaxed)
            && self.0.done(self.0.file().and_then(|file| file.write_all_at(bytes, at)))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> bool {
        self.0.done(self.0.file().and_then(|file| file.read_exact_at(out, at)))
    }
}

/// From now on contents of this thread's drives move to a file in the system's temporary directory
/// where they take more than 64 MiB of memory.
pub fn keep_within_memory() {
    OWN.with(|own| {
        own.get_or_init(|| {
            let state = Rc::new(State::new(&std::env::temp_dir()));
            wp_medium::spill_to(Box::new(Contents(state.clone())), BUDGET);
            state
        });
    });
}

/// Is set once the file fails: what to halt on ([`wp_rt::Rt::halt_on`]).
pub fn failed() -> Option<Arc<AtomicBool>> {
    OWN.with(|own| own.get().map(|state| state.failed.clone()))
}

/// What went wrong with the file, and the directory that it is in: nothing that was computed since
/// can be used.
pub fn failure() -> Option<(PathBuf, io::Error)> {
    let state = OWN.with(|own| own.get().cloned())?;
    let error = state.error.borrow();
    let e = error.as_ref()?;
    let said = format!("cannot keep the contents of the drive in a temporary file: {e}");
    Some((state.directory.clone(), io::Error::new(e.kind(), said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_has_no_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let contents = Contents(Rc::new(State::new(directory.path())));
        assert!(contents.write(70_000, b"behind") && contents.write(0, b"before"));
        let mut read = [0; 6];
        assert!(contents.read(70_000, &mut read));
        assert_eq!(&read, b"behind");
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
        assert!(!contents.0.failed.load(Ordering::Relaxed));
    }

    #[test]
    fn an_error_is_kept_and_nothing_is_written_after_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = Rc::new(State::new(&directory.path().join("missing")));
        let contents = Contents(state.clone());
        assert!(!contents.write(0, b"bytes") && !contents.write(0, b"bytes"));
        assert!(state.failed.load(Ordering::Relaxed));
        let kind = state.error.borrow().as_ref().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::NotFound));
    }
}
