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
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let recorded = match super::recorded(&a.run, out) {
        Ok(r) => r,
        Err(code) => return code,
    };
    match wp_report::explain::explain(&recorded.records, &recorded.classes, a.op) {
        Ok(e) => out.result(&e.json(), &e.text()),
        Err(e) => {
            let help = "a run is recorded from after mount to before unmount";
            out.fail(Exit::Usage, "op", &e.to_string(), help)
        }
    }
}
