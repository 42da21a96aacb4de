//! `crash`: power failures of programs.
//!
//! Picture: [`args`] (what clap reads) -> [`plan`] (the same, typed; every usage error) -> one room
//!          for each subcommand: [`hunt`], [`folder`] and [`modes`] of `run`, [`log`], [`show`],
//!          [`bug`], [`mutate`], [`compare`]. [`parts`] splits `run` for other processes.

mod args;
mod bug;
mod check;
mod compare;
mod folder;
mod host;
mod hunt;
mod key;
pub mod log;
mod modes;
pub mod mutate;
mod parts;
mod plan;
mod programs;
mod reduced;
mod report;
mod setup;
mod show;
mod small;

use std::path::Path;
use std::process::ExitCode;

pub use self::args::Args;
use self::args::{RunArgs, What};
pub use self::parts::CrashParts;
use self::plan::{Bug, Compare, Mutate, Run, Show, Wrong};
use crate::output::Out;

/// Runs the verb. Exit 1 if a rule is broken.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let told = |wrong: Wrong| wrong.told(out);
    let done = match &a.what {
        None => explore(&a.run, out),
        Some(What::Run(a)) => explore(a, out),
        Some(What::Log(a)) => log::run(a, out),
        Some(What::Show(a)) => refused_job(&a.program, out)
            .and_then(|()| log::shown(a, out))
            .and_then(|log| Show::new(a, log).map_err(told))
            .and_then(|plan| show::run(&plan, out)),
        Some(What::Bug(a)) => Bug::new(a).map_err(told).and_then(|plan| bug::run(&plan, out)),
        Some(What::Mutate(a)) => {
            Mutate::new(a).map_err(told).and_then(|plan| mutate::run(&plan, out))
        }
        Some(What::Compare(a)) => refused_job(&a.programs.programs, out)
            .and_then(|()| Compare::new(a).map_err(told))
            .and_then(|plan| compare::run(plan, out)),
    };
    match done {
        Ok(code) | Err(code) => code,
    }
}

/// `crash run`.
fn explore(a: &RunArgs, out: &Out) -> Result<ExitCode, ExitCode> {
    refused_job(&a.programs.programs, out)?;
    match Run::new(a).map_err(|wrong| wrong.told(out))? {
        Run::One(plan) => hunt::run(*plan, None, out),
        Run::Folder(plan) => folder::run(&plan, out),
        Run::Modes(plan) => modes::run(plan, out),
    }
}

/// What fio can do and Writepath cannot is said as `fio check` says it.
fn refused_job(programs: &str, out: &Out) -> Result<(), ExitCode> {
    let path = Path::new(programs);
    let is_job = path.extension().is_some_and(|e| e == "fio");
    let refused = is_job.then(|| super::fio::refused_file(path, "", false, out)).flatten();
    refused.map_or(Ok(()), Err)
}
