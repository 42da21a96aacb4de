//! `kernel-lab --suite fstests-GROUP`: tests of xfstests, as many in one boot of a guest as go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wp_parity::kernel_lab::ProgramError;
use wp_parity::kernel_lab::fstests::{Event, Tested, Verdict};

use super::plan::Fstests;
use super::{Session, scratch};
use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Lines of a failed test that are printed; all of them are in `--json`.
const LINES: usize = 12;

/// What was done.
#[derive(Default)]
struct Done {
    tests: Vec<Tested>,
    /// The boot in which each test ran, from 1 on.
    boots: Vec<u64>,
}

impl Done {
    fn count(&self, name: &str) -> usize {
        self.tests.iter().filter(|t| t.verdict.name() == name).count()
    }
}

/// Runs the tests; what was done before an interruption is in the table.
pub(super) fn run(session: &Session, asked: &Fstests, out: &Out) -> Result<ExitCode, ExitCode> {
    let mut done = Done::default();
    let all = asked.tests.len() as u64;
    let shown = Progress::new("kernel-lab");
    let (mut boot, mut stopped) = (0, false);
    while let Some(rest) = asked.tests.get(done.tests.len()..).filter(|rest| !rest.is_empty()) {
        let scratch = scratch(out)?;
        boot += 1;
        let mut tell = |event: Event| {
            match event {
                Event::Runs(test) => {
                    let at = done.tests.len() as u64;
                    let what = if test.is_empty() { "the guest boots" } else { &test };
                    shown.at(at, all, format_args!("tests; {what}"));
                }
                Event::Ended(tested) => {
                    out.note(&line(&tested));
                    done.tests.push(*tested);
                    done.boots.push(boot);
                }
            }
            session.stop.load(Ordering::Relaxed)
        };
        let (plan, tests) = (&asked.plan, (rest, asked.limits));
        match asked.tree.boot(&session.kernel, plan, tests, scratch.path(), &mut tell) {
            Ok(_) => {}
            Err(ProgramError::Interrupted) => {
                stopped = true;
                break;
            }
            Err(ProgramError::Guest(why) | ProgramError::Setup(_, why)) => {
                drop(shown);
                return Err(out.fail(Exit::Simulated, "guest", &why, ""));
            }
            Err(ProgramError::TooLong(limit, _)) => {
                drop(shown);
                let why = format!("no test began within {limit:?}");
                return Err(out.fail(Exit::Simulated, "guest", &why, "--guest-limit 10m"));
            }
        }
    }
    drop(shown);
    let tried = asked.tests.len() - done.count("not run");
    let exit = match (stopped, done.count("passed")) {
        (true, _) => Exit::Interrupted,
        (false, passed @ 1..) if passed == tried => Exit::Ok,
        // A suite of which no test ran has shown nothing.
        _ => Exit::No,
    };
    Ok(out.answer(exit, &document(asked, &done), &text(asked, &done)))
}

fn line(t: &Tested) -> String {
    let what = match &t.verdict {
        Verdict::NotRun(why) | Verdict::TooLong(why) => format!("  {why}"),
        Verdict::Panicked(why) => format!("  {}", why.lines().next().unwrap_or_default()),
        Verdict::Passed | Verdict::Failed(_) => String::new(),
    };
    format!(
        "{:<16} {:<8} {:>10.2} {:>8.1} {:>9} {:>8}  {:08x}{what}",
        t.test,
        t.verdict.name(),
        t.virtual_ns as f64 / 1e9,
        t.wall.as_secs_f64(),
        t.sent.writes,
        t.sent.flushes,
        t.digest,
    )
}

fn text(asked: &Fstests, done: &Done) -> String {
    let plan = &asked.plan;
    let kernel = done.tests.iter().map(|t| &*t.kernel).find(|k| !k.is_empty()).unwrap_or("?");
    let mount = if plan.mount.is_empty() { String::new() } else { format!(",{}", plan.mount) };
    let mut text = format!(
        "{}: Linux {kernel} {}{mount} on two {}\n{:<16} {:<8} {:>10} {:>8} {:>9} {:>8}  digest\n",
        asked.name, plan.fs, asked.device, "test", "", "virtual s", "real s", "writes", "FLUSHes",
    );
    for t in &done.tests {
        writeln!(text, "{}", line(t)).expect("a string takes it");
        if let Verdict::Failed(said) = &t.verdict {
            for said in said.lines().take(LINES) {
                writeln!(text, "    {said}").expect("a string takes it");
            }
        }
    }
    for (why, tests) in reasons(done) {
        writeln!(text, "{tests:>4} not run: {why}").expect("a string takes it");
    }
    let real: f64 = done.tests.iter().map(|t| t.wall.as_secs_f64()).sum();
    let virtual_s: f64 = done.tests.iter().map(|t| t.virtual_ns as f64 / 1e9).sum();
    writeln!(
        text,
        "{} of {} tests in {} boots: {} passed, {} failed, {} panicked, {} too long, {} not run; \
         {virtual_s:.1} s of virtual time in {real:.1} s",
        done.tests.len(),
        asked.tests.len(),
        done.boots.last().copied().unwrap_or_default(),
        done.count("passed"),
        done.count("failed"),
        done.count("panicked"),
        done.count("too long"),
        done.count("not run"),
    )
    .expect("a string takes it");
    text
}

/// Reasons of tests that did not run, the most frequent first, with how many have each.
fn reasons(done: &Done) -> Vec<(&str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for t in &done.tests {
        if let Verdict::NotRun(why) = &t.verdict {
            *counts.entry(why).or_default() += 1;
        }
    }
    let mut all: Vec<(&str, usize)> = counts.into_iter().collect();
    all.sort_by_key(|(why, tests)| (std::cmp::Reverse(*tests), *why));
    all
}

fn document(asked: &Fstests, done: &Done) -> Value {
    let one = |(t, boot): (&Tested, &u64)| {
        json!({
            "test": t.test, "verdict": t.verdict.name(), "why": t.verdict.said(),
            "kernel": t.kernel, "boot": boot, "virtual_ns": t.virtual_ns,
            "real_s": t.wall.as_secs_f64(), "sent": t.sent,
            "digest": format!("{:08x}", t.digest),
        })
    };
    let plan = &asked.plan;
    let not_run =
        reasons(done).into_iter().map(|(why, tests)| json!({ "why": why, "tests": tests }));
    json!({
        "schema": "writepath.kernel-lab-fstests/2", "suite": asked.name, "fs": plan.fs,
        "mount": plan.mount, "device": asked.device, "asked": asked.tests.len(),
        "passed": done.count("passed"),
        "not_run": not_run.collect::<Vec<_>>(),
        "tests": done.tests.iter().zip(&done.boots).map(one).collect::<Vec<_>>(),
    })
}
