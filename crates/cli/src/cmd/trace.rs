//! `trace`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use wp_base::event::{Event, rwbs};
use wp_block::trace::{Issues, TraceDevice};
use wp_lab::results::read_block_events;

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A result directory of `run`.
    run: PathBuf,
    /// blkparse (its default text), paper (`-f "%T.%9t %a %d %S + %n [%C]\n" -a issue`) or csv.
    #[arg(long, default_value = "blkparse")]
    to: String,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let path = if a.run.is_dir() { a.run.join("events.ndjson") } else { a.run.clone() };
    let records = match read_block_events(&path) {
        Ok(r) => r,
        Err(e) => return out.host_error(&path, &e),
    };
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
                        r.task
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
                &format!("`{other}` is not a format"),
                "blkparse, paper or csv",
            );
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    out.result(&json!({ "schema": "writepath.trace/1", "format": a.to, "lines": lines }), &text)
}
