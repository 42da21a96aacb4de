//! `diff`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wp_base::Sector;
use wp_report::diff::{Side, What, diff};

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A result directory of `run`.
    run_a: PathBuf,
    /// Another.
    run_b: PathBuf,
    /// Which events: letters of block actions, and J for the journal's.
    #[arg(long, default_value = "QMFIDCJ")]
    actions: String,
    /// Another time within its phase is a difference too.
    #[arg(long)]
    times: bool,
}

/// Where the run's partition begins, from its `resolved.toml`; 0 if there is none.
fn start(dir: &Path) -> Result<Sector, std::io::Error> {
    let text = match std::fs::read_to_string(dir.join("resolved.toml")) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Sector(0)),
        Err(e) => return Err(e),
    };
    let table: toml::Table = text.parse().map_err(std::io::Error::other)?;
    let start = table.get("partition_start").and_then(toml::Value::as_integer);
    let start = start.and_then(|s| u64::try_from(s).ok());
    start.map(Sector).ok_or_else(|| std::io::Error::other("no number `partition_start`"))
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(c) = a.actions.chars().find(|c| !"QAXGMFPUIDRCJ".contains(*c)) {
        let what = format!("`{c}` is no action");
        return out.fail(Exit::Usage, "actions", &what, "letters of QAXGMFPUIDRC, and J");
    }
    let (left, right) = match (super::recorded(&a.run_a, out), super::recorded(&a.run_b, out)) {
        (Ok(l), Ok(r)) => (l, r),
        (Err(code), _) | (_, Err(code)) => return code,
    };
    let (left_start, right_start) = match (start(&left.dir), start(&right.dir)) {
        (Ok(l), Ok(r)) => (l, r),
        (Err(e), _) => return out.host_error(&left.dir.join("resolved.toml"), &e),
        (_, Err(e)) => return out.host_error(&right.dir.join("resolved.toml"), &e),
    };
    let (left_name, right_name) = (a.run_a.display().to_string(), a.run_b.display().to_string());
    let answer = diff(
        &Side {
            name: &left_name,
            records: &left.records,
            classes: &left.classes,
            start: left_start,
        },
        &Side {
            name: &right_name,
            records: &right.records,
            classes: &right.classes,
            start: right_start,
        },
        &What { actions: a.actions.clone(), times: a.times },
    );
    let exit = if answer.differs() { Exit::No } else { Exit::Ok };
    out.answer(exit, &answer.json(), &answer.text())
}
