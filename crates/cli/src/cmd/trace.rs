//! `trace`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use wp_base::event::{Event, Record, rwbs};
use wp_base::plain::Shown as _;
use wp_block::trace::{Issues, TraceDevice};
use wp_machine::classify::{lines_by, lines_to_tsv, mark};
use wp_machine::host::Shape;
use wp_machine::lines::TraceLine;
use wp_machine::results::read_block_events;
use wp_machine::workload::fsync_last::{MARK_FSYNC, MARK_RETURN};

use crate::output::{Exit, Out, path};
use crate::outputs;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath trace results/latest\n\
    \x20 writepath trace results/latest --to blktrace --out run.blktrace.0\n\
    \x20 writepath trace results/latest --to perfetto --out run.perfetto-trace")]
pub struct Args {
    /// Result of `run`: its folder, or results/latest
    run: PathBuf,
    /// blkparse, paper, csv, lines; with --out: blktrace, perfetto
    ///
    /// blkparse: its default text. paper: issued requests only, as blkparse prints with
    /// `-f "%T.%9t %a %d %S + %n [%C]\n" -a issue`. csv: one block event a line. lines: block and
    /// journal events with the class of each block, and the seconds since the fsync that the
    /// workload marks.
    ///
    /// blktrace: the binary format, for blkparse, btt and fio. perfetto: for ui.perfetto.dev, with
    /// system calls, journal, bios, requests, device commands, flash dies, and a flow from each
    /// fsync.
    #[arg(long, value_name = "FORMAT", default_value = "blkparse")]
    to: String,
    /// New file; needed by blktrace and perfetto [default: stdout]
    ///
    /// blkparse and btt open NAME.blktrace.0 under the name NAME.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    match a.to.as_str() {
        "perfetto" => return perfetto(a, out),
        "lines" => return lines(a, out),
        _ => {}
    }
    let events = match super::result_paths(&a.run, out) {
        Ok((_, events)) => events,
        Err(code) => return code,
    };
    let records = match read_block_events(&events) {
        Ok(r) => r,
        Err(e) => return out.host_error(&events, &e),
    };
    let is_block = |r: &&Record| matches!(r.event, Event::Block { .. });
    let events = records.iter().filter(is_block).count();
    let binary = match a.to.as_str() {
        "blktrace" => Some(wp_trace::blktrace::write(&records, TraceDevice::default())),
        _ => None,
    };
    if let Some(bytes) = binary {
        let Some(file) = &a.out else {
            let what = format!("{} is binary", a.to);
            return out.fail(Exit::Usage, "out", &what, "say where to write it: --out FILE");
        };
        return written(a, file, (&bytes, events), out);
    }
    let text = match a.to.as_str() {
        "blkparse" => wp_block::trace::blkparse(&records, TraceDevice::default()),
        "paper" => wp_block::trace::issues(&records, Issues::All),
        "csv" => {
            let mut t = String::from("time_ns,action,rwbs,sector,sectors,task\n");
            for r in &records {
                if let Event::Block { action, op, flags, at, sectors, .. } = &r.event {
                    writeln!(
                        t,
                        "{},{},{},{},{sectors},{}",
                        r.at.0,
                        action.letter(),
                        rwbs(*op, *flags),
                        at.0,
                        wp_base::csv::field(&r.task)
                    )
                    .expect("a string takes it");
                }
            }
            t
        }
        other => {
            return out.fail(
                Exit::Usage,
                "to",
                &format!("--to {other}: no such format"),
                "blkparse, paper, csv, lines, blktrace or perfetto",
            );
        }
    };
    told(a, &text, events, out)
}

/// Writes text, or prints it.
fn told(a: &Args, text: &str, events: usize, out: &Out) -> ExitCode {
    if let Some(file) = &a.out {
        return written(a, file, (text.as_bytes(), events), out);
    }
    if events == 0 {
        return nothing(&a.run, out);
    }
    let lines: Vec<&str> = text.lines().collect();
    let doc = json!({
        "schema": "writepath.trace/1", "format": a.to, "events": events, "lines": lines,
    });
    out.result(&doc, text)
}

/// Block and journal events with their classes, counted from where the workload marks its fsync, or
/// from the first.
fn lines(a: &Args, out: &Out) -> ExitCode {
    let recorded = match super::recorded(&a.run, out) {
        Ok(r) => r,
        Err(code) => return code,
    };
    let records = &recorded.records;
    let Some(last) = records.len().checked_sub(1) else { return nothing(&a.run, out) };
    let zero = mark(records, MARK_FSYNC).unwrap_or(0);
    let end = mark(records, MARK_RETURN).unwrap_or(last);
    let took = records[end].at.0 as i64 - records[zero].at.0 as i64;
    // Of a result without classes nobody knows them.
    let class = |n: usize, _, _| recorded.classes.get(&n).map_or("-".to_owned(), String::clone);
    let all: Vec<TraceLine> = lines_by(records, zero, class).collect();
    told(a, &lines_to_tsv(&all, took), all.len(), out)
}

/// A viewer that shows system calls needs more than block events.
fn perfetto(a: &Args, out: &Out) -> ExitCode {
    let Some(file) = &a.out else {
        let help = "say where to write it: --out FILE";
        return out.fail(Exit::Usage, "out", "perfetto is binary", help);
    };
    let recorded = match super::recorded(&a.run, out) {
        Ok(r) => r,
        Err(code) => return code,
    };
    let seen = wp_report::run::Seen::new(recorded.run());
    let bytes = wp_report::perfetto::write(&seen);
    written(a, file, (&bytes, recorded.records.len()), out)
}

/// A run without events shows nothing.
fn nothing(run: &Path, out: &Out) -> ExitCode {
    let what = format!("{}: no events are recorded", run.shown());
    out.fail(Exit::Usage, "events", &what, "run it again with --events all")
}

/// Writes what was made of some events. Of none it writes no file.
fn written(a: &Args, file: &Path, (bytes, events): (&[u8], usize), out: &Out) -> ExitCode {
    if events == 0 {
        return nothing(&a.run, out);
    }
    let written = outputs::new(file, Shape::Text, out).and_then(|f| outputs::finish(f, bytes, out));
    if let Err(code) = written {
        return code;
    }
    let doc = json!({
        "schema": "writepath.trace/1", "format": a.to, "file": path(file),
        "events": events, "bytes": bytes.len(),
    });
    out.result(&doc, &format!("{} bytes in {}\n", bytes.len(), file.shown()))
}
