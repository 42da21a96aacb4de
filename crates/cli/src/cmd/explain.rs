//! `explain`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A result directory of `run`.
    run: PathBuf,
    /// Which fsync or fdatasync of the run, from 1.
    #[arg(long, default_value_t = 1)]
    op: usize,
    /// Its flow instead: what it does and waits for in order, what it sends, when the device has
    /// that on its flash, and what may persist out of order.
    #[arg(long)]
    flow: bool,
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let recorded = match super::recorded(&a.run, out) {
        Ok(r) => r,
        Err(code) => return code,
    };
    let (records, classes) = (&recorded.records, &recorded.classes);
    let done = if a.flow {
        let survives = match wp_lab::results::device_limits(&recorded.dir) {
            Ok(limits) => !limits.volatile_cache,
            Err(e) => return out.host_error(&recorded.dir.join("resolved.toml"), &e),
        };
        wp_report::flow::flow(records, classes, a.op, survives).map(|f| (f.json(), f.text()))
    } else {
        wp_report::explain::explain(records, classes, a.op).map(|e| (e.json(), e.text()))
    };
    match done {
        Ok((doc, text)) => out.result(&doc, &text),
        Err(e) => {
            let help = "a run is recorded from after mount to before unmount";
            out.fail(Exit::Usage, "op", &e.to_string(), help)
        }
    }
}
