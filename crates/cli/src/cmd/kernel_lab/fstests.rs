//! `kernel-lab --suite fstests-GROUP`: tests of xfstests, each in a guest of its own.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_parity::kernel_lab::ProgramError;
use wp_parity::kernel_lab::fstests::{Tested, Verdict};

use super::plan::Fstests;
use super::{Session, scratch};
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Lines of a failed test that are printed; all of them are in `--json`.
const LINES: usize = 12;

/// Runs the tests; what was done before an interruption is in the table.
pub(super) fn run(session: &Session, asked: &Fstests, out: &Out) -> Result<ExitCode, ExitCode> {
    let mut done: Vec<Tested> = Vec::new();
    let all = asked.tests.len() as u64;
    let shown = Progress::new("kernel-lab");
    let mut stopped = false;
    for test in &asked.tests {
        let scratch = scratch(out)?;
        let at = done.len() as u64;
        let mut progress = || {
            shown.at(at, all, format_args!("tests; {test} runs in the guest"));
            session.stop.load(Ordering::Relaxed)
        };
        let plan = &asked.plan;
        match asked.tree.run(&session.kernel, plan, test, scratch.path(), &mut progress) {
            Ok(tested) => {
                out.note(&line(&tested));
                done.push(tested);
            }
            Err(ProgramError::Interrupted) => {
                stopped = true;
                break;
            }
            Err(ProgramError::Guest(why) | ProgramError::Setup(_, why)) => {
                drop(shown);
                return Err(out.fail(Exit::Simulated, "guest", &format!("{test}: {why}"), ""));
            }
            // A test that takes too long is an outcome.
            Err(ProgramError::TooLong(..)) => {}
        }
    }
    drop(shown);
    let count = |name: &str| done.iter().filter(|t| t.verdict.name() == name).count();
    let (passed, bad) = (count("passed"), count("failed") + count("too long"));
    let exit = match (stopped, passed, bad) {
        (true, ..) => Exit::Interrupted,
        (false, 1.., 0) => Exit::Ok,
        // A suite of which no test ran has shown nothing.
        _ => Exit::No,
    };
    Ok(out.answer(exit, &document(asked, &done), &text(asked, &done)))
}

fn line(t: &Tested) -> String {
    let what = match &t.verdict {
        Verdict::NotRun(why) => format!("  {why}"),
        _ => String::new(),
    };
    format!(
        "{:<16} {:<8} {:>12.3} {:>10.1} {:>9} {:>8}  {:08x}{what}",
        t.test,
        t.verdict.name(),
        t.virtual_ns as f64 / 1e9,
        t.wall.as_secs_f64(),
        t.counts.writes,
        t.counts.flushes,
        t.digest,
    )
}

fn text(asked: &Fstests, done: &[Tested]) -> String {
    let plan = &asked.plan;
    let kernel = done.iter().map(|t| &*t.kernel).find(|k| !k.is_empty()).unwrap_or("?");
    let mount = if plan.mount.is_empty() { String::new() } else { format!(",{}", plan.mount) };
    let mut text = format!(
        "{}: Linux {kernel} {}{mount} on two {}\n{:<16} {:<8} {:>12} {:>10} {:>9} {:>8}  digest\n",
        asked.name, plan.fs, asked.device, "test", "", "virtual s", "real s", "writes", "FLUSHes",
    );
    for t in done {
        writeln!(text, "{}", line(t)).expect("a string takes it");
        if let Verdict::Failed(said) = &t.verdict {
            for said in said.lines().take(LINES) {
                writeln!(text, "    {said}").expect("a string takes it");
            }
        }
    }
    let count = |name: &str| done.iter().filter(|t| t.verdict.name() == name).count();
    let real: f64 = done.iter().map(|t| t.wall.as_secs_f64()).sum();
    let virtual_s: f64 = done.iter().map(|t| t.virtual_ns as f64 / 1e9).sum();
    writeln!(
        text,
        "{} of {} tests: {} passed, {} failed, {} too long, {} not run; {virtual_s:.1} s of virtual \
         time in {real:.1} s",
        done.len(),
        asked.tests.len(),
        count("passed"),
        count("failed"),
        count("too long"),
        count("not run"),
    )
    .expect("a string takes it");
    text
}

fn document(asked: &Fstests, done: &[Tested]) -> Value {
    let one = |t: &Tested| {
        let said = match &t.verdict {
            Verdict::Failed(said) | Verdict::NotRun(said) => Some(said),
            Verdict::Passed | Verdict::TooLong => None,
        };
        json!({
            "test": t.test, "verdict": t.verdict.name(), "why": said, "kernel": t.kernel,
            "virtual_ns": t.virtual_ns, "real_s": t.wall.as_secs_f64(), "counts": t.counts,
            "digest": format!("{:08x}", t.digest),
        })
    };
    let plan = &asked.plan;
    json!({
        "schema": "writepath.kernel-lab-fstests/1", "suite": asked.name, "fs": plan.fs,
        "mount": plan.mount, "device": asked.device, "asked": asked.tests.len(),
        "passed": done.iter().filter(|t| t.verdict == Verdict::Passed).count(),
        "tests": done.iter().map(one).collect::<Vec<_>>(),
    })
}
