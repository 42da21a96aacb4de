//! What is printed and with which exit code.
//!
//! Results go to stdout, narration and errors to stderr. With `--json` stdout is one document,
//! errors too; of a stream it is one object a line, and the last line says `ok`.
//!
//! Invariants: nothing here panics because stdout or stderr is closed or full. Text has no control
//!             characters but line feeds and tabs, whatever names it has in it.
//! Laws:       a verb says yes only with a count of work that is not zero ([`contract`]).

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_base::{FsError, plain};
use wp_machine::MachineError;

use crate::contract::{self, Contract, Work};
use crate::session::{self, Session};

/// Exit codes; `writepath --help` lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Done, and the answer is yes.
    Ok = 0,
    /// The answer is no.
    No = 1,
    /// Usage or syntax.
    Usage = 2,
    /// Unsupported feature.
    Unsupported = 3,
    /// A simulated error that the experiment did not expect.
    Simulated = 4,
    /// A bug of ours.
    Bug = 5,
    /// The same again was not the same.
    NotSame = 6,
    /// The host's I/O failed.
    HostIo = 74,
    /// Interrupted: 130 by SIGINT, 143 by SIGTERM, 129 by SIGHUP.
    Interrupted = 130,
}

impl Exit {
    /// All of them.
    pub const ALL: [Exit; 9] = [
        Exit::Ok,
        Exit::No,
        Exit::Usage,
        Exit::Unsupported,
        Exit::Simulated,
        Exit::Bug,
        Exit::NotSame,
        Exit::HostIo,
        Exit::Interrupted,
    ];

    /// The one of a number; of a number that is none of them, a bug.
    pub fn of(code: u8) -> Exit {
        Exit::ALL.into_iter().find(|e| *e as u8 == code).unwrap_or(Exit::Bug)
    }

    /// What it says, whatever the verb.
    pub fn means(self) -> &'static str {
        match self {
            Exit::Ok => "done, and the answer is yes",
            Exit::No => "the answer is no: a claim not met, a difference, damage found",
            Exit::Usage => "usage or syntax; nothing to do",
            Exit::Unsupported => "an unsupported feature",
            Exit::Simulated => "an unexpected simulated error",
            Exit::Bug => "a bug of Writepath",
            Exit::NotSame => "a repeated run gave another result",
            Exit::HostIo => "the host's I/O failed",
            Exit::Interrupted => {
                "interrupted; what is done is kept (130 by SIGINT, 143 by SIGTERM, 129 by SIGHUP)"
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(e: Exit) -> ExitCode {
        match e {
            Exit::Interrupted => ExitCode::from(crate::signals::exit_code()),
            e => ExitCode::from(e as u8),
        }
    }
}

/// Writes to stderr as it is, with no line feed. Nobody has to listen: a closed or full stderr
/// changes neither what is done nor the exit code.
///
/// Of a verb that runs in another program's process the session takes it.
pub fn stderr(text: std::fmt::Arguments) {
    if let Some(session) = session::current() {
        return session.note(&text.to_string());
    }
    let mut to = std::io::stderr().lock();
    drop(to.write_fmt(text).and_then(|()| to.flush()));
}

/// Is stdout to be JSON, and has the answer been written? For the words of an end that comes from
/// outside of a verb: an interrupt, a panic.
static IS_JSON: AtomicBool = AtomicBool::new(false);
static IS_ANSWERED: AtomicBool = AtomicBool::new(false);
static IS_STREAM: AtomicBool = AtomicBool::new(false);

/// How to print.
pub struct Out {
    json: bool,
    contract: Option<&'static Contract>,
    /// Who takes the answer in place of stdout, if the verb runs in another program's process.
    session: Option<Arc<Session>>,
}

impl Out {
    /// As text, or as JSON.
    pub fn new(json: bool) -> Out {
        let session = session::current();
        if session.is_none() {
            IS_JSON.store(json, Ordering::SeqCst);
        }
        // Whoever takes the answer takes the document too.
        Out { json: json || session.is_some(), contract: None, session }
    }

    /// Of a verb: what it must have done to say yes.
    pub fn of(json: bool, contract: Option<&'static Contract>) -> Out {
        Out { contract, ..Out::new(json) }
    }

    /// As whatever the command asked for, for an end that comes from outside of a verb.
    pub fn of_this_process() -> Out {
        let session = session::current();
        let json = session.is_some() || IS_JSON.load(Ordering::SeqCst);
        Out { json, contract: None, session }
    }

    /// Has the answer been written?
    pub fn is_answered() -> bool {
        IS_ANSWERED.load(Ordering::SeqCst)
    }

    /// Is the answer to be JSON?
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Has this verb answered?
    pub fn has_answered(&self) -> bool {
        self.session.as_ref().map_or_else(Out::is_answered, |s| s.is_answered())
    }

    /// A line of narration.
    pub fn note(&self, text: &str) {
        match &self.session {
            Some(session) => session.note(&format!("{text}\n")),
            None => stderr(format_args!("{}\n", plain::lines(text))),
        }
    }

    /// A flag that an interrupt sets; see [`crate::signals`].
    pub fn interrupt(&self) -> Arc<AtomicBool> {
        self.session.as_ref().map_or_else(crate::signals::flag, |s| s.interrupt_flag())
    }

    /// The same for work that keeps every part that is done; see [`crate::signals`].
    pub fn interrupt_in_parts(&self) -> Arc<AtomicBool> {
        self.session.as_ref().map_or_else(crate::signals::flag_in_parts, |s| s.interrupt_flag())
    }

    /// What `--help` and `--version` print.
    pub fn help(&self, text: &str) -> ExitCode {
        match &self.session {
            Some(session) => session.answer(Exit::Ok, &json!({ "ok": true, "text": text }), text),
            None => written(Exit::Ok, text.as_bytes()),
        }
    }

    /// The result: `text` for people, `document` with `--json`.
    pub fn result(&self, document: &Value, text: &str) -> ExitCode {
        self.answer(Exit::Ok, document, text)
    }

    /// The result with an exit code of its own.
    pub fn answer(&self, exit: Exit, document: &Value, text: &str) -> ExitCode {
        if let Some(c) = self.contract {
            debug_assert!(c.allows(exit), "{} does not end with {}", c.verb, exit as u8);
        }
        let document = match self.worked(exit, document) {
            Ok(document) => document,
            Err(code) => return code,
        };
        if let Some(session) = &self.session {
            return session.answer(exit, &document, text);
        }
        let bytes = match self.json {
            false => plain::lines(text).into_owned().into_bytes(),
            true if IS_STREAM.load(Ordering::SeqCst) => json_bytes(&format!("{document}\n")),
            true => json_bytes(&format!("{document:#}\n")),
        };
        written(exit, &bytes)
    }

    /// The document with `ok` and with what was done. Errors: it says yes, and nothing was done.
    fn worked(&self, exit: Exit, document: &Value) -> Result<Value, ExitCode> {
        let mut document = document.clone();
        if let Some(Contract { work: Work::Counted { of, at }, .. }) = self.contract
            && document.get("error").is_none()
        {
            let count = contract::count(&document, at);
            match (exit, count) {
                (Exit::Ok, None) => {
                    let what = format!("internal: the answer has no count of {of}");
                    return Err(self.fail(Exit::Bug, "internal", &what, contract::REPORT));
                }
                (Exit::Ok, Some(0)) => {
                    let what = format!("nothing was done: 0 {of}");
                    return Err(self.fail(Exit::Usage, "nothing", &what, contract::NOTHING));
                }
                (_, Some(n)) => document["work"] = json!({ "of": of, "count": n }),
                (_, None) => {}
            }
        }
        if let Value::Object(map) = &mut document {
            map.insert("ok".to_owned(), Value::Bool(exit == Exit::Ok));
        }
        Ok(document)
    }

    /// One line of a stream of JSON objects, at once. Without `--json`: nothing.
    pub fn line(&self, document: &Value) {
        if let Some(session) = &self.session {
            session.line(document);
        } else if self.json {
            IS_STREAM.store(true, Ordering::SeqCst);
            let mut stdout = std::io::stdout().lock();
            // Whoever reads us may have had enough; the end of the stream is told by the last.
            let bytes = json_bytes(&format!("{document}\n"));
            drop(stdout.write_all(&bytes).and_then(|()| stdout.flush()));
        }
    }

    /// The result of a stream: `text` for people, with `--json` the last line.
    pub fn last_line(&self, exit: Exit, document: &Value, text: &str) -> ExitCode {
        if self.session.is_some() {
            return self.answer(exit, document, text);
        }
        IS_STREAM.store(true, Ordering::SeqCst);
        self.answer(exit, document, text)
    }

    /// Prints one error: the message and the hint.
    pub fn fail(&self, exit: Exit, code: &str, message: &str, help: &str) -> ExitCode {
        if self.json {
            let doc = json!({
                "schema": "writepath.error/1", "ok": false,
                "error": { "code": code, "message": message, "help": help },
            });
            return self.answer(exit, &doc, "");
        }
        claim_answer();
        stderr(format_args!("error: {}\n", plain::lines(message)));
        if !help.is_empty() {
            stderr(format_args!("help: {}\n", plain::lines(help)));
        }
        exit.into()
    }

    /// A file system's error about `what` (a file, usually).
    pub fn fs_error(&self, what: &str, e: &FsError) -> ExitCode {
        let message = format!("{what}: {e}");
        match e {
            FsError::Unsupported(_)
            | FsError::NotInKernel
            | FsError::NoSuchCall
            | FsError::NoSuchIoctl => self.fail(
                Exit::Unsupported,
                "unsupported",
                &message,
                "`writepath list fs` lists what is supported",
            ),
            FsError::Corrupt(_) => self.fail(
                Exit::No,
                "corrupt",
                &message,
                "the image is damaged there; nothing was written",
            ),
            FsError::Io => self.fail(
                Exit::No,
                "truncated",
                &format!("{what}: the image ends before its data"),
                "the file is shorter than its file system; nothing was written",
            ),
            FsError::Invalid(_) | FsError::TooBig => {
                self.fail(Exit::Usage, "invalid", &message, "")
            }
            _ => self.fail(Exit::Simulated, "simulated", &message, ""),
        }
    }

    /// A machine's error.
    pub fn machine_error(&self, e: &MachineError) -> ExitCode {
        match e {
            MachineError::Config(what) => self.fail(
                Exit::Usage,
                "config",
                what,
                "`writepath list` shows names and parameters",
            ),
            // What does not fit is a matter of what was asked for.
            MachineError::Fs { during: "mkfs", error: FsError::NoSpace } => self.fail(
                Exit::Usage,
                "too-small",
                "mkfs: the device or partition is too small for the file system",
                "use a larger one: --device NAME,capacity_bytes=N, --partition-size or --size",
            ),
            MachineError::Fs { during, error } => self.fs_error(during, error),
            MachineError::Host(path, e) => self.contents_error(path, e),
            MachineError::Stall(what) => self.fail(
                Exit::Bug,
                "stall",
                what,
                "this is a bug: repeat with the same command and report it",
            ),
        }
    }

    /// The directory of temporary files, which cannot hold what is on simulated drives.
    fn contents_error(&self, path: &std::path::Path, e: &std::io::Error) -> ExitCode {
        let message = format!("{}: {e}", path.shown());
        let help = "set TMPDIR to a directory on a disk with more room";
        self.fail(Exit::HostIo, "host-io", &message, help)
    }

    /// Can all that simulated drives hold still be read? Errors: told, and the exit code.
    pub fn contents_kept(&self) -> Result<(), ExitCode> {
        match wp_machine::host::contents::failure() {
            Some((path, e)) => Err(self.contents_error(&path, &e)),
            None => Ok(()),
        }
    }

    /// An error of a trace: of its bytes, or of the host that reads them.
    pub fn trace_error(&self, e: &wp_trace::TraceError) -> ExitCode {
        let (exit, code) = match e.host {
            true => (Exit::HostIo, "host-io"),
            false => (Exit::Usage, "trace"),
        };
        self.fail(exit, code, &plain::name(&e.to_string()), &e.help)
    }

    /// An error of the host about a file; or of the file, which is not what it was named for.
    pub fn host_error(&self, path: &std::path::Path, e: &std::io::Error) -> ExitCode {
        let name = path.shown();
        if e.kind() == std::io::ErrorKind::InvalidData {
            let said = e.to_string();
            let message = match said.starts_with(&name) {
                true => said,
                false => format!("{name}: {said}"),
            };
            return self.fail(Exit::Usage, "file", &plain::name(&message), "name another file");
        }
        let message = format!("{}: {e}", plain::name(&name));
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            return self.fail(Exit::Usage, "exists", &message, "");
        }
        self.fail(Exit::HostIo, "host-io", &message, "")
    }
}

/// JSON as it goes to stdout, which may be a terminal.
fn json_bytes(document: &str) -> Vec<u8> {
    plain::json(document).into_owned().into_bytes()
}

/// Takes the right to answer, which a command has once.
///
/// A signal's last words may have it already: the program then ends with them, whatever this thread
/// was about to say.
fn claim_answer() {
    while IS_ANSWERED.swap(true, Ordering::SeqCst) {
        if !crate::signals::has_come() {
            debug_assert!(false, "one command has one answer");
            return;
        }
        std::thread::park();
    }
}

/// Writes the answer to stdout.
fn written(exit: Exit, bytes: &[u8]) -> ExitCode {
    claim_answer();
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => exit.into(),
        // Whoever reads us has had enough (`| head`).
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => exit.into(),
        Err(e) => {
            stderr(format_args!("error: stdout: {e}\n"));
            Exit::HostIo.into()
        }
    }
}

/// A path for a document. JSON is Unicode: bytes of a name that are none become U+FFFD, as in text.
pub fn path(path: &std::path::Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}
