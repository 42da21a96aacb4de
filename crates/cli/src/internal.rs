//! A bug of ours ends the program as everything else does: with an exit code of its own (5), one
//! line or document that says what, and how to report it.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::Mutex;

use crate::contract::REPORT;
use crate::output::{Exit, Out, stderr};

/// What the first panic said; later ones follow from it.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// What is thrown, in words.
fn said(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

fn note(info: &PanicHookInfo<'_>) {
    let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line()));
    let text = format!("{}{}", said(info.payload()), place.unwrap_or_default());
    FIRST.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(text);
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0") {
        stderr(format_args!("{}\n", std::backtrace::Backtrace::force_capture()));
    }
}

/// A word, as a shell takes it again.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The command line, as a shell takes it again; `words`: behind the program's name.
pub fn line(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|a| shell(&a.to_string_lossy())).collect();
    format!("writepath {}", words.join(" "))
}

/// Runs the program; a panic becomes exit code 5. `command`: what to report, by [`line`].
pub fn caught(command: &str, run: impl FnOnce() -> ExitCode) -> ExitCode {
    set_hook(Box::new(note));
    // No state of the run is read again, so no half-done change can be seen.
    let payload = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(code) => return code,
        Err(payload) => payload,
    };
    let first = FIRST.lock().unwrap_or_else(|e| e.into_inner()).take();
    let what = first.unwrap_or_else(|| said(&*payload).to_owned());
    if Out::of_this_process().has_answered() {
        stderr(format_args!("error: internal, after the answer: {what}\n"));
        return Exit::Bug.into();
    }
    let help = format!("{REPORT}: {command}");
    Out::of_this_process().fail(Exit::Bug, "internal", &format!("internal: {what}"), &help)
}
