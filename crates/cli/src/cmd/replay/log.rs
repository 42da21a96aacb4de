//! `replay` of a log of dm-log-writes: what a device held at a moment of it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::{FsError, FsResult, Sector};
use wp_machine::files::FileView;
use wp_machine::host::Shape;
use wp_medium::write_log::{LogEntry, LogFlags, Until, WriteLog};

use crate::images::refuse_container;
use crate::output::{self, Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// Arguments that say something of such a log only.
#[derive(clap::Args)]
pub(super) struct LogArgs {
    /// Stop at the first mark with this text
    #[arg(long, conflicts_with = "to_entry")]
    to_mark: Option<String>,
    /// Stop before this entry, counted from 0
    #[arg(long)]
    to_entry: Option<u64>,
    /// Initial image of the device [default: all zeroes]
    #[arg(long, requires = "out")]
    base: Option<PathBuf>,
    /// Write the image to this file [default: list the entries]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Size of the image: 64M [default: what the log needs]
    #[arg(long, requires = "out")]
    size: Option<String>,
    /// Replace an existing image
    #[arg(long)]
    force: bool,
}

impl LogArgs {
    /// The first that was given.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            (self.to_mark.is_some(), "--to-mark"),
            (self.to_entry.is_some(), "--to-entry"),
            (self.out.is_some(), "--out"),
        ];
        all.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}

/// Makes the image, or lists the entries.
pub(super) fn run(path: &Path, a: &LogArgs, out: &Out) -> ExitCode {
    let view = match FileView::open(path) {
        Ok(v) => v,
        Err(e) => return out.host_error(path, &e),
    };
    let name = path.shown();
    let until = match (&a.to_mark, a.to_entry) {
        (Some(mark), _) => Until::Mark(mark),
        (None, Some(n)) => Until::Entry(n),
        (None, None) => Until::End,
    };
    let log = match WriteLog::open(&view) {
        Ok(log) => log,
        Err(e) => return out.fs_error(&name, &e),
    };
    let shown = Progress::new("replay");
    let Some(image) = &a.out else { return entries(path, (&log, until), &shown, out) };
    shown.say("the log's writes");
    let how = (Shape::Image, a.force);
    let file = match outputs::forced(image, how, "--force replaces it", out) {
        Ok(file) => file,
        Err(code) => return code,
    };
    if let Some(Err(code)) = a.base.as_deref().map(|base| refuse_container(base, out)) {
        return code;
    }
    let (base, held) = match a.base.as_deref().map(wp_machine::files::load).transpose() {
        Ok(base) => base.unwrap_or_default(),
        Err(e) => return out.host_error(a.base.as_deref().unwrap_or(image), &e),
    };
    let (medium, needed) = match log.replay_over(base, until) {
        Ok((medium, needed)) => (medium, needed.max(held)),
        Err(FsError::NotFound) => {
            let mark = a.to_mark.as_deref().unwrap_or("");
            let what = format!("{name}: no mark `{mark}`");
            return out.fail(Exit::Usage, "mark", &what, "`writepath replay LOG` lists the marks");
        }
        Err(e) => return out.fs_error(&name, &e),
    };
    let bytes = match &a.size {
        Some(text) => match crate::cmd::size(text) {
            Ok(bytes) if bytes >= needed => bytes,
            Ok(_) => {
                let what = format!("--size {text}: the log needs {needed} bytes");
                return out.fail(Exit::Usage, "size", &what, "");
            }
            Err(e) => return out.fail(Exit::Usage, "size", &e, ""),
        },
        // Of all the log: what comes later shows how long the device is.
        None => {
            let ends = log.entries().map(|e| e.map(|e| e.end_bytes()));
            match ends.collect::<FsResult<Vec<u64>>>() {
                Ok(ends) => ends.into_iter().max().unwrap_or(0).max(held),
                Err(e) => return out.fs_error(&name, &e),
            }
        }
    };
    shown.say("the image");
    if let Err(e) = wp_machine::files::save_as(&medium, Sector(0), bytes, file) {
        return out.host_error(image, &e);
    }
    let doc = json!({
        "schema": "writepath.replay/1", "log": output::path(path),
        "image": output::path(image), "size_bytes": bytes,
        "to_mark": a.to_mark, "to_entry": a.to_entry,
    });
    out.result(&doc, &format!("{}: {bytes} bytes\n", image.shown()))
}

/// What is asked for and a log of `entries` entries does not have, in words.
fn missing(name: &str, until: Until<'_>, entries: u64) -> Option<String> {
    match until {
        Until::End => None,
        Until::Mark(mark) => Some(format!("{name}: no mark `{mark}`")),
        Until::Entry(n) if n <= entries => None,
        Until::Entry(n) => Some(format!("{name}: no entry {n}: the log has {entries}")),
    }
}

fn entries(
    path: &Path,
    (log, until): (&WriteLog<'_>, Until<'_>),
    shown: &Progress,
    out: &Out,
) -> ExitCode {
    let mut text = String::new();
    let mut docs = Vec::new();
    let mut is_reached = false;
    for (n, entry) in (0u64..).zip(log.entries()) {
        if until == Until::Entry(n) {
            break;
        }
        if n.is_multiple_of(1 << 16) {
            shown.say(format_args!("entry {n}"));
        }
        let e = match entry {
            Ok(e) => e,
            Err(e) => return out.fs_error(&path.shown(), &e),
        };
        let flags = e.flags.to_string();
        docs.push(json!({
            "entry": n, "sector": e.at.0, "sectors": e.sectors, "flags": flags,
            "mark": is_mark(&e).then_some(&e.mark),
        }));
        let what = if is_mark(&e) { format!("`{}`", e.mark) } else { String::new() };
        writeln!(text, "{n:>8} {:>12} + {:<8} {flags:<16} {what}", e.at.0, e.sectors)
            .expect("a string takes it");
        if is_mark(&e) && until == Until::Mark(&e.mark) {
            is_reached = true;
            break;
        }
    }
    if let (false, Some(message)) = (is_reached, missing(&path.shown(), until, docs.len() as u64)) {
        return out.fail(Exit::Usage, "until", &message, "without these options all are listed");
    }
    let doc = json!({ "schema": "writepath.replay.entries/1", "entries": docs });
    out.result(&doc, &text)
}

fn is_mark(e: &LogEntry) -> bool {
    e.flags.has(LogFlags::MARK)
}
