//! A verb in the process of another program: what it would print comes back as values.
//!
//! Picture:    [`begin`] starts the verb on a thread of its own, whose thread-local session
//!             [`Out`](crate::output::Out) and [`Progress`](crate::progress::Progress) find.
//!             [`Running`] waits for it, asks how far it is, and interrupts it; [`Answer`] is what
//!             came of it.
//! Laws:       the document, the text, the exit code and every error are those of the command with
//!             the same words. An interrupt ends the machine that runs on the verb's thread, and
//!             otherwise has the meaning of the first signal: what is done is kept.
//! Invariants: several verbs may run beside each other; nothing of them is in common.

use std::cell::RefCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use wp_base::plain;
use wp_machine::host::contents;

use crate::internal;
use crate::output::{Exit, Out};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Session>>> = const { RefCell::new(None) };
}

/// Bytes of a verb's stack: as the main thread of a program has.
const STACK_BYTES: usize = 8 << 20;

/// Most narration that is kept, in bytes; what comes later is left out.
const NOTES_BYTES: usize = 1 << 20;

/// How far a verb is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Far {
    /// What the work is: `run`, `crash`, `minimising`, ….
    pub what: String,
    /// Parts that are done.
    pub done: u64,
    /// All parts; 0: nobody knows.
    pub all: u64,
    /// What is done now.
    pub text: String,
}

/// An error as the command prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Its name for programs: `config`, `exists`, ….
    pub code: String,
    /// What is wrong, with the file, offset or key.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl Failure {
    /// A command line that is wrong.
    pub fn usage(message: &str, help: &str) -> Failure {
        let code = "usage".to_owned();
        Failure { code, message: message.to_owned(), help: help.to_owned() }
    }
}

/// What came of a verb.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The command's exit code.
    pub exit: u8,
    /// What `--json` prints; of a stream the last line.
    pub document: Value,
    /// What is printed without `--json`.
    pub text: String,
    /// What goes to stderr: notes and hints, a line each.
    pub notes: String,
    /// Of a stream the lines before the last; those that only say how far it is are left out.
    pub lines: Vec<Value>,
    /// The error, if it ended with one.
    pub error: Option<Failure>,
    /// Was it interrupted?
    pub is_interrupted: bool,
}

#[derive(Default)]
struct State {
    far: Far,
    notes: String,
    lines: Vec<Value>,
    answer: Option<(Exit, Value, String)>,
}

/// Who takes what a verb would print.
#[derive(Default)]
pub struct Session {
    state: Mutex<State>,
    interrupt: Arc<AtomicBool>,
    /// What has the machine of the verb's own thread stop.
    halt: Mutex<Option<Arc<AtomicBool>>>,
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes a piece of narration.
    pub fn note(&self, text: &str) {
        let mut state = self.state();
        if state.notes.len() < NOTES_BYTES {
            state.notes.push_str(&plain::lines(text));
        }
    }

    /// Takes a line of a stream.
    pub fn line(&self, document: &Value) {
        if document["kind"] != "progress" {
            self.state().lines.push(document.clone());
        }
    }

    /// Takes the answer; a later one is a bug that changes nothing.
    pub fn answer(&self, exit: Exit, document: &Value, text: &str) -> ExitCode {
        let mut state = self.state();
        debug_assert!(state.answer.is_none(), "one command has one answer");
        state
            .answer
            .get_or_insert_with(|| (exit, document.clone(), plain::lines(text).into_owned()));
        drop(state);
        ExitCode::from(exit as u8)
    }

    /// Has the verb answered?
    pub fn is_answered(&self) -> bool {
        self.state().answer.is_some()
    }

    /// `done` of `all` parts are done, `text` is next.
    pub fn set_far(&self, what: &str, (done, all): (u64, u64), text: &str) {
        let text = plain::name(text).into_owned();
        self.state().far = Far { what: what.to_owned(), done, all, text };
    }

    /// A flag that an interrupt sets.
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        self.interrupt.clone()
    }

    fn interrupt(&self) {
        self.interrupt.store(true, Ordering::SeqCst);
        if let Some(halt) = &*self.halt.lock().unwrap_or_else(|e| e.into_inner()) {
            halt.store(true, Ordering::SeqCst);
        }
    }

    /// What came of the verb, which has ended.
    fn take(&self) -> Answer {
        let mut state = self.state();
        let is_interrupted = self.interrupt.load(Ordering::SeqCst);
        let (exit, document, text) = state.answer.take().unwrap_or_else(|| {
            // Verbs that are interrupted may end without a word.
            let exit = if is_interrupted { Exit::Interrupted } else { Exit::Bug };
            (exit, Value::Null, String::new())
        });
        let word = |key: &str| document["error"][key].as_str().unwrap_or_default().to_owned();
        let failure =
            || Failure { code: word("code"), message: word("message"), help: word("help") };
        Answer {
            exit: exit as u8,
            error: document.get("error").is_some().then(failure),
            document,
            text,
            notes: std::mem::take(&mut state.notes),
            lines: std::mem::take(&mut state.lines),
            is_interrupted,
        }
    }
}

/// The session of the verb that runs on this thread. `None`: it prints.
pub fn current() -> Option<Arc<Session>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// Runs the command as [`crate::main`] does: its exit code as a number.
pub fn exit_code_of(words: Vec<OsString>) -> u8 {
    let code = crate::command::main(words);
    // Its only other reader is the end of a process.
    (0..=u8::MAX).find(|n| ExitCode::from(*n) == code).unwrap_or(Exit::Bug as u8)
}

/// A verb under way.
pub struct Running {
    session: Arc<Session>,
    /// Several threads may wait.
    ended: Mutex<Receiver<()>>,
}

/// Starts a verb: the words of the command line behind the program's name. Errors: the host has no
/// thread.
pub fn begin(words: Vec<OsString>) -> std::io::Result<Running> {
    let session = Arc::new(Session::default());
    let (end, ended) = channel();
    let own = session.clone();
    let run = move || {
        contents::keep_within_memory();
        *own.halt.lock().unwrap_or_else(|e| e.into_inner()) = contents::failed();
        CURRENT.with(|current| *current.borrow_mut() = Some(own.clone()));
        let command = internal::line(&words);
        let words = std::iter::once(OsString::from("writepath")).chain(words).collect();
        // It may have been interrupted before this thread could be told.
        if own.interrupt.load(Ordering::SeqCst) {
            Out::new(true).fail(Exit::Interrupted, "interrupted", "interrupted", "");
        } else {
            internal::caught(&command, || crate::command::parsed(words, |_| {}));
        }
        CURRENT.with(|current| *current.borrow_mut() = None);
        // Whoever waited may have gone.
        let _ = end.send(());
    };
    std::thread::Builder::new().name("verb".to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(Running { session, ended: Mutex::new(ended) })
}

impl Running {
    /// Waits for its end, no longer than this. Has it ended?
    pub fn wait(&self, limit: Duration) -> bool {
        // A thread that has gone without a word has ended, too.
        let ended = self.ended.lock().unwrap_or_else(|e| e.into_inner());
        !matches!(ended.recv_timeout(limit), Err(RecvTimeoutError::Timeout))
    }

    /// How far it is.
    pub fn far(&self) -> Far {
        self.session.state().far.clone()
    }

    /// Has it stop: after the step that is under way, or with the machine that runs on its thread.
    pub fn interrupt(&self) {
        self.session.interrupt();
    }

    /// What came of it, once it has ended.
    pub fn answer(self) -> Answer {
        self.session.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of(words: &[&str]) -> Answer {
        let running = begin(words.iter().map(OsString::from).collect()).expect("a thread");
        while !running.wait(Duration::from_secs(1)) {}
        running.answer()
    }

    #[test]
    fn an_error_is_the_commands_and_calls_beside_each_other_do_not_mix() {
        let one = begin(vec!["run".into(), "--fs".into(), "ext5".into()]).expect("a thread");
        let other = answer_of(&["run", "--nonsense"]);
        while !one.wait(Duration::from_secs(1)) {}
        let one = one.answer();
        let error = one.error.expect("an error");
        assert_eq!((one.exit, error.code.as_str()), (2, "config"));
        assert!(error.message.contains("no file system called `ext5`"), "{error:?}");
        let error = other.error.expect("an error");
        assert_eq!((other.exit, error.code.as_str()), (2, "usage"));
        assert!(error.message.contains("--nonsense"), "{error:?}");
    }

    #[test]
    fn an_answer_has_document_and_text() {
        let listed = answer_of(&["list", "fs"]);
        assert_eq!((listed.exit, listed.error), (0, None));
        assert!(listed.text.contains("ext4") && listed.document["count"].as_u64() >= Some(4));
        let help = answer_of(&["run", "--help"]);
        assert!(help.exit == 0 && help.text.contains("--workload"), "{help:?}");
    }

    #[test]
    fn an_interrupt_ends_a_machine() {
        let dir = tempfile::tempdir().expect("a directory");
        let out = dir.path().to_string_lossy().into_owned();
        let words = ["run", "--workload", "varmail,seconds=100000", "--no-events", "--out", &out];
        let running = begin(words.iter().map(OsString::from).collect()).expect("a thread");
        while running.far().text.is_empty() {
            assert!(!running.wait(Duration::from_millis(20)), "it ended");
        }
        running.interrupt();
        assert!(running.wait(Duration::from_secs(20)), "it went on");
        assert!(running.answer().is_interrupted);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    }
}
