//! `kernel-lab --run`: a program of the host on a real kernel's file system.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_machine::host::{Output, Shape};
use wp_medium::log_order::{BEGIN, END};
use wp_medium::write_log::write_log;
use wp_parity::kernel_lab::{ProgramError, Ran, run_program};
use wp_serve::drive::Log;

use super::plan::Program;
use super::{Session, compare, explore, scratch};
use crate::cmd::crash::log::ExploreArgs;
use crate::output::{Exit, Out, path as path_value};
use crate::outputs;
use crate::progress::Progress;

/// Runs it, and says how it ended, or explores its crash states.
pub(super) fn run(
    session: &Session,
    asked: &Program,
    states: &ExploreArgs,
    out: &Out,
) -> Result<ExitCode, ExitCode> {
    if let Some(other) = &asked.other {
        return compare::run(session, (asked, states), other, out);
    }
    let log = outputs::asked(asked.save_log.as_deref(), Shape::Image, out)?;
    let ran = ran(session, asked, out)?;
    let saved = log.map(|file| save(&ran, file, out)).transpose()?;
    let Some(explored) = &asked.explore else {
        let exit = if ran.code == 0 { Exit::Ok } else { Exit::No };
        return Ok(out.answer(exit, &document(asked, &ran), &text(asked, &ran)));
    };
    if ran.code != 0 {
        let what = format!("{}: exit {}: nothing was explored", asked.line, ran.code);
        return Err(out.fail(Exit::Simulated, "program", &what, "its output stands above"));
    }
    out.note(text(asked, &ran).trim_end());
    // A log that is not kept goes when its states are explored.
    let scratch = scratch(out)?;
    let path = match saved {
        Some(path) => path,
        None => {
            let path = scratch.path().join("writes.log");
            save(&ran, outputs::new(&path, Shape::Image, out)?, out)?
        }
    };
    explore::run(session, (asked, explored, states), (&ran, &path), out)
}

/// Runs it. Errors: nothing came of it, and that was told.
pub(super) fn ran(session: &Session, asked: &Program, out: &Out) -> Result<Ran, ExitCode> {
    let scratch = scratch(out)?;
    let recorded = outputs::asked(asked.trace.as_deref(), Shape::Text, out)?;
    let trace = recorded.as_ref().map(|file| file.file().try_clone()).transpose();
    let trace = trace.map_err(|e| out.host_error(scratch.path(), &e))?;
    let trace = trace.map(|file| Log::new(Box::new(file)));
    let shown = Progress::new("kernel-lab");
    let mut progress = || {
        shown.say("the program runs in the guest");
        session.stop.load(Ordering::Relaxed)
    };
    let done = run_program(&session.kernel, &asked.plan, scratch.path(), trace, &mut progress);
    drop(shown);
    if let Some(file) = recorded {
        outputs::finish(file, &[], out)?;
    }
    let ran = done.map_err(|e| told(&e, asked, out))?;
    if !ran.output.is_empty() {
        out.note(ran.output.trim_end());
    }
    Ok(ran)
}

/// Says why nothing came of it.
fn told(e: &ProgramError, asked: &Program, out: &Out) -> ExitCode {
    let behind = |said: &str| match said.trim_end() {
        "" => String::new(),
        said => format!("; its output:\n{said}"),
    };
    match e {
        ProgramError::Guest(why) => out.fail(Exit::Simulated, "guest", why, ""),
        ProgramError::Setup(code, said) => {
            let what = format!("--setup: exit {code}{}", behind(said));
            out.fail(Exit::Simulated, "setup", &what, "the program was not run")
        }
        ProgramError::TooLong(limit, said) => {
            let what = format!(
                "{}: not done in {} s of wall-clock time{}",
                asked.line,
                limit.as_secs_f64(),
                behind(said)
            );
            let help = "--guest-limit allows more; a program that waits for time to pass without a \
                        system call never ends";
            out.fail(Exit::Simulated, "guest-limit", &what, help)
        }
        ProgramError::Interrupted => ExitCode::from(crate::signals::exit_code()),
    }
}

/// Writes what the drive was sent, and says where. Errors: the host's, and that was told.
fn save(ran: &Ran, mut file: Output, out: &Out) -> Result<PathBuf, ExitCode> {
    let path = file.path().to_owned();
    let written = write_log(&mut file, ran.sector_bytes, &ran.writes);
    written.and_then(|()| file.commit()).map_err(|e| out.host_error(&path, &e))?;
    Ok(path)
}

/// How it ended, and what it did, in lines.
fn text(asked: &Program, ran: &Ran) -> String {
    let plan = &asked.plan;
    let mount = if plan.mount.is_empty() { String::new() } else { format!(",{}", plan.mount) };
    let counts = &ran.counts;
    let saved = asked.save_log.as_deref().map_or(String::new(), explore_line);
    format!(
        "Linux {} {}{mount} on {}\n{}: exit {}, {} acknowledgements; ended at {} ns\n{} writes, {} \
         discards, {} FLUSHes, {} reads since the drive was new\n{saved}",
        ran.kernel,
        plan.fs,
        asked.device,
        asked.line,
        ran.code,
        ran.acks.len(),
        ran.ended_ns,
        counts.writes,
        counts.discards,
        counts.flushes,
        counts.reads,
    )
}

/// The command that explores a log which was saved.
fn explore_line(path: &Path) -> String {
    format!(
        "writepath crash log {} --from '{BEGIN}' --to '{END}' explores its crash states\n",
        path.shown()
    )
}

/// The same for programs.
fn document(asked: &Program, ran: &Ran) -> Value {
    let plan = &asked.plan;
    json!({
        "schema": "writepath.kernel-lab-run/1",
        "fs": plan.fs, "mount": plan.mount, "mkfs": plan.mkfs, "device": asked.device,
        "cpu": plan.cpu.name, "kernel": ran.kernel, "command": asked.line,
        "exit": ran.code, "ended_ns": ran.ended_ns, "acknowledged": ran.acks,
        "requests": ran.counts.writes + ran.counts.discards + ran.counts.flushes,
        "counts": ran.counts, "log": asked.save_log.as_deref().map(path_value),
    })
}
