//! What is printed and with which exit code.
//!
//! Results go to stdout, narration and errors to stderr. With `--json` stdout is one document,
//! errors too.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use wp_base::FsError;
use wp_lab::machine::MachineError;

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

impl From<Exit> for ExitCode {
    fn from(e: Exit) -> ExitCode {
        match e {
            Exit::Interrupted => ExitCode::from(crate::signals::exit_code()),
            e => ExitCode::from(e as u8),
        }
    }
}

/// How far long work is, in one line of a terminal; goes with it. Where stderr is no terminal,
/// nothing.
pub struct Live(bool);

impl Live {
    /// Nothing is said yet.
    pub fn new() -> Live {
        Live(std::io::stderr().is_terminal())
    }

    /// So far it is now.
    pub fn say(&self, text: std::fmt::Arguments) {
        if self.0 {
            eprint!("\r{:<78.78}", text.to_string());
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.0 {
            eprint!("\r{:<78}\r", "");
        }
    }
}

/// How to print.
pub struct Out {
    json: bool,
}

impl Out {
    /// As text, or as JSON.
    pub fn new(json: bool) -> Out {
        Out { json }
    }

    /// A line of narration.
    pub fn note(&self, text: &str) {
        eprintln!("{text}");
    }

    /// A flag that an interrupt sets; see [`crate::signals`].
    pub fn interrupt(&self) -> Arc<AtomicBool> {
        crate::signals::flag()
    }

    /// The result: `text` for people, `document` with `--json`.
    pub fn result(&self, document: &Value, text: &str) -> ExitCode {
        self.answer(Exit::Ok, document, text)
    }

    /// The result with an exit code of its own.
    pub fn answer(&self, exit: Exit, document: &Value, text: &str) -> ExitCode {
        let mut stdout = std::io::stdout().lock();
        let written = if self.json {
            let mut doc = document.clone();
            if let Value::Object(map) = &mut doc {
                map.entry("ok").or_insert(Value::Bool(exit == Exit::Ok));
            }
            serde_json::to_writer_pretty(&mut stdout, &doc)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(stdout))
        } else {
            stdout.write_all(text.as_bytes())
        };
        match written {
            Ok(()) => exit.into(),
            // Whoever reads us has had enough (`| head`).
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => exit.into(),
            Err(_) => Exit::HostIo.into(),
        }
    }

    /// One line of a stream of JSON objects, at once. Without `--json`: nothing.
    pub fn line(&self, document: &Value) {
        if self.json {
            let mut stdout = std::io::stdout().lock();
            // Whoever reads us may have had enough; the end of the stream is told by the last.
            drop(writeln!(stdout, "{document}").and_then(|()| stdout.flush()));
        }
    }

    /// The result of a stream: `text` for people, with `--json` the last line.
    pub fn last_line(&self, exit: Exit, document: &Value, text: &str) -> ExitCode {
        if !self.json {
            return self.answer(exit, document, text);
        }
        let mut document = document.clone();
        if let Value::Object(map) = &mut document {
            map.insert("ok".to_owned(), Value::Bool(exit == Exit::Ok));
        }
        self.line(&document);
        exit.into()
    }

    /// One clear error: what, and the way out.
    pub fn fail(&self, exit: Exit, code: &str, message: &str, help: &str) -> ExitCode {
        if self.json {
            let doc = json!({
                "schema": "writepath.error/1", "ok": false,
                "error": { "code": code, "message": message, "help": help },
            });
            return self.answer(exit, &doc, "");
        }
        eprintln!("error: {message}");
        if !help.is_empty() {
            eprintln!("help: {help}");
        }
        exit.into()
    }

    /// A file system's error about `what` (a file, usually).
    pub fn fs_error(&self, what: &str, e: &FsError) -> ExitCode {
        let message = format!("{what}: {e}");
        match e {
            FsError::Unsupported(_) => self.fail(
                Exit::Unsupported,
                "unsupported",
                &message,
                "see `writepath list fs` for what this build can do",
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
                &format!("{what}: the image ends before the data that it should hold"),
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
            MachineError::Fs { during, error } => self.fs_error(during, error),
            MachineError::Stall(what) => self.fail(
                Exit::Bug,
                "stall",
                what,
                "this is a bug: repeat with the same command and report it",
            ),
        }
    }

    /// An error of the host about a file.
    pub fn host_error(&self, path: &std::path::Path, e: &std::io::Error) -> ExitCode {
        self.fail(Exit::HostIo, "host-io", &format!("{}: {e}", path.display()), "")
    }
}
