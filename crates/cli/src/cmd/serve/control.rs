//! `serve control`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::output::{Exit, Out};

/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath serve control control.sock status\n\
    \x20 writepath serve control control.sock freeze 'thaw seed=3' 'save crashed.img' quit")]
pub struct Args {
    /// Socket of --control
    socket: PathBuf,
    /// Commands: status, freeze, 'thaw seed=3', 'save FILE', quit
    ///
    /// Each command is one argument. The first one that the server refuses ends the verb with exit
    /// code 1.
    #[arg(required = true, value_name = "COMMAND")]
    lines: Vec<String>,
}

/// Runs the verb. Exit 1 if the server refuses a line; those behind it are not sent.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(line) = a.lines.iter().find(|l| l.contains('\n') || l.trim().is_empty()) {
        let what = format!("{line:?} is not one command");
        return out.fail(Exit::Usage, "line", &what, "give each command as one argument");
    }
    let mut stream = match UnixStream::connect(&a.socket) {
        Ok(stream) => stream,
        Err(e) => return out.host_error(&a.socket, &e),
    };
    let mut answers = Vec::new();
    let mut text = String::new();
    let mut refused = false;
    for line in &a.lines {
        let answer = match ask(&mut stream, line) {
            Ok(answer) => answer,
            Err(e) => return out.host_error(&a.socket, &e),
        };
        refused = answer["ok"] != true;
        text.push_str(&format!("{line}: {answer}\n"));
        answers.push(json!({ "line": line, "answer": answer }));
        if refused {
            break;
        }
    }
    let doc = json!({ "schema": "writepath.serve.control/1", "answers": answers });
    out.answer(if refused { Exit::No } else { Exit::Ok }, &doc, &text)
}

/// Sends a line and reads its answer. Errors: the host's; the server has gone, or says what is no
/// JSON.
fn ask(stream: &mut UnixStream, line: &str) -> std::io::Result<Value> {
    use std::io::{Error, ErrorKind};
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    serde_json::from_str(&answer).map_err(|e| Error::other(format!("its reply is not JSON: {e}")))
}
