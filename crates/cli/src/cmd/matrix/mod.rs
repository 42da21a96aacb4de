//! `matrix`.

mod print;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_machine::MachineError;
use wp_machine::parallel::each;
use wp_machine::results::Results;
use wp_papers::matrix::{self, Cell, Combination, Length};

use super::keep::Keep;
use crate::output::{Exit, Out};
use crate::outputs;
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath matrix --quick\n\
    \x20 writepath matrix --only ext4/3.8,oprw/zones")]
pub struct Args {
    /// Run shorter workloads and explore fewer crash states
    #[arg(long)]
    quick: bool,
    /// Run combinations whose names contain a PATTERN: ext4/3.8,oprw/zones
    ///
    /// Join several patterns by commas. Names are as ext4/3.8/jbd2/discard/plp.
    #[arg(long, value_name = "PATTERN", default_value = "")]
    #[arg(hide_default_value = true)]
    only: String,
    /// Seed of every random stream
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Results folder
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Rerun everything, also results kept from an earlier run
    #[arg(long)]
    again: bool,
    /// Threads [default: number of cores]
    ///
    /// Results do not depend on their number.
    #[arg(long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
}

impl Args {
    fn length(&self) -> Length {
        if self.quick { Length::Quick } else { Length::Whole }
    }

    /// What is asked for, in full.
    fn resolved(&self) -> String {
        format!(
            "schema = \"writepath/1\"\nmatrix = {:?}\nonly = {:?}\nseed = {}\n",
            if self.quick { "quick" } else { "whole" },
            self.only,
            self.seed
        )
    }

    fn is_wanted(&self, c: &Combination) -> bool {
        let name = c.name();
        let mut patterns = self.only.split(',').filter(|p| !p.is_empty()).peekable();
        match patterns.peek() {
            None => c.is_in(self.length()),
            Some(_) => patterns.any(|p| name.contains(p)),
        }
    }
}

/// Runs the verb. Exit 1 if a combination breaks a rule that no known hole of it does.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    let wanted: Vec<Combination> =
        matrix::combinations().into_iter().filter(|c| a.is_wanted(c)).collect();
    let all = matrix::combinations();
    let unknown = |p: &&str| !p.is_empty() && !all.iter().any(|c| c.name().contains(*p));
    if let Some(pattern) = a.only.split(',').find(unknown) {
        let what = format!("--only {pattern}: matches no combination");
        return out.fail(Exit::Usage, "only", &what, "names look like ext4/3.8/jbd2/discard/plp");
    }
    if wanted.is_empty() {
        let what = format!("--only {}: matches no combination", a.only);
        return out.fail(Exit::Usage, "only", &what, "names look like ext4/3.8/jbd2/discard/plp");
    }
    if let Err(code) = outputs::folder(&a.out, out) {
        return code;
    }
    let kept = match Keep::new(&a.out, "matrix", &format!("{:?} {}", a.length(), a.seed)) {
        Ok(kept) => kept,
        Err(e) => return out.host_error(std::path::Path::new("this program"), &e),
    };
    let stop = out.interrupt_in_parts();
    match cells(a, &wanted, &kept, &stop) {
        Err(Failed::Machine(name, e)) => {
            out.note(&format!("{name}:"));
            out.machine_error(&e)
        }
        Err(Failed::Host(e)) => out.host_error(&a.out, &e),
        Ok(cells) if cells.len() < wanted.len() => out.fail(
            Exit::Interrupted,
            "interrupted",
            &format!(
                "interrupted: {} of {} combinations are done and kept",
                cells.len(),
                wanted.len()
            ),
            "run the same command to continue",
        ),
        Ok(cells) => answer(a, out, &cells),
    }
}

/// Why no cell came of it.
enum Failed {
    Machine(String, MachineError),
    Host(std::io::Error),
}

/// Runs what is not kept; those that are done, in their order.
fn cells(
    a: &Args,
    wanted: &[Combination],
    kept: &Keep,
    stop: &AtomicBool,
) -> Result<Vec<Cell>, Failed> {
    let jobs = a.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        std::num::NonZeroUsize::get,
    );
    let (shown, ended) = (Progress::new("matrix"), AtomicUsize::new(0));
    let step = |name: &str| {
        let n = ended.fetch_add(1, Ordering::SeqCst) + 1;
        shown.at(n as u64, wanted.len() as u64, name);
    };
    let failed = Mutex::new(None);
    let go_on = || !stop.load(Ordering::SeqCst);
    let done = each(
        jobs,
        wanted.len(),
        || (),
        |(), n| {
            let c = &wanted[n];
            let name = c.name();
            if let Some(cell) = kept.find(&name).filter(|_| !a.again) {
                step(&name);
                return Some(cell);
            }
            if !go_on() {
                return None;
            }
            let fails = |why| {
                failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(why);
                stop.store(true, Ordering::SeqCst);
            };
            match matrix::run(c, a.length(), a.seed, &go_on) {
                Ok(None) => None,
                Ok(Some(cell)) => match kept.note(&name, &cell) {
                    Ok(()) => {
                        step(&name);
                        Some(cell)
                    }
                    Err(e) => {
                        fails(Failed::Host(e));
                        None
                    }
                },
                Err(e) => {
                    fails(Failed::Machine(name, e));
                    None
                }
            }
        },
    );
    drop(shown);
    match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(why) => Err(why),
        None => Ok(done.into_iter().flatten().collect()),
    }
}

/// Writes the results, and prints them.
fn answer(a: &Args, out: &Out, cells: &[Cell]) -> ExitCode {
    let text = print::text(cells);
    let unknown = cells.iter().filter(|c| c.is_unknown()).count();
    let refused = cells.iter().filter(|c| c.refused.is_some()).count();
    let document = json!({
        "schema": "writepath.matrix/1", "seed": a.seed, "quick": a.quick, "only": a.only,
        "combinations": cells.len(), "ran": cells.len() - refused,
        "refused": refused, "unknown": unknown,
        "cells": cells.iter().map(print::document).collect::<Vec<_>>(),
    });
    let mut results = Results::default();
    results.add("resolved.toml", a.resolved());
    results.add("matrix.json", serde_json::to_vec_pretty(&document).unwrap_or_default());
    results.add("matrix.csv", print::cells_csv(cells));
    results.add("matrix.txt", text.clone());
    match results.write(&a.out, "matrix") {
        Ok(dir) => out.note(&format!("results: {}", dir.shown())),
        Err(e) => return out.host_error(&a.out, &e),
    }
    out.answer(if unknown > 0 { Exit::No } else { Exit::Ok }, &document, &text)
}
