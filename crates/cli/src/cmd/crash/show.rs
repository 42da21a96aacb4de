//! `crash show`: one state. Exit code 1 if it breaks a rule, as of a campaign that meets one.

use std::process::ExitCode;
use std::rc::Rc;

use serde_json::json;
use wp_base::Sector;
use wp_campaign::{Cut, Reproducer, verdicts, write_reproducer};
use wp_crash::{History, Violation};
use wp_machine::host::Shape;
use wp_workload::program::Program;

use super::plan::{Show, Wrong};
use super::report;
use crate::output::{Exit, Out};
use crate::outputs;

/// Calls of the timeline before the cut.
const CALLS: usize = 12;

/// The state of a played program that a plan means. Errors: there is none, and that was told.
fn check_state(plan: &Show, history: &History, out: &Out) -> Result<(), ExitCode> {
    let fails = |why: &str| Err(out.fail(Exit::Usage, "state", why, ""));
    let (frame, frames) = (plan.frame, history.frames.len());
    let Some(here) = history.frames.get(frame) else {
        return fails(&format!("no frame {frame}: the program has {frames} frames, from 0"));
    };
    let live = here.live.len();
    match plan.lost.iter().find(|u| **u >= live) {
        Some(u) => fails(&format!("no write {u}: frame {frame} has {live} unpersisted writes")),
        None => Ok(()),
    }
}

/// One state: its timeline, and what recovery leaves. Errors: the exit code, after saying why.
pub(super) fn run(plan: &Show, out: &Out) -> Result<ExitCode, ExitCode> {
    let x = plan.setup.exploration(&plan.programs).map_err(|e| Wrong::from(e).told(out))?;
    let c = &x.campaign;
    let image = outputs::asked(plan.image.as_deref(), Shape::Image, out)?;
    if let Some(dir) = &plan.reproducer {
        outputs::folder(dir, out)?;
    }
    let played = c.image().and_then(|image| c.play(image, c.programs.0));
    let played = Rc::new(played.map_err(|e| out.machine_error(&e))?);
    let history = Rc::new(c.space.history(&played));
    check_state(plan, &history, out)?;
    let (frame, lost) = (plan.frame, &*plan.lost);
    let cut = Cut {
        fs: (c.bench.fs, &c.bench.fs_options),
        played: &played,
        history: &history,
        frame,
        lost,
    };
    if let Some(image) = image {
        let path = image.path().to_owned();
        let len = played.partition.0 + played.partition.1;
        wp_machine::files::save_as(&cut.medium(), Sector(0), len, image)
            .map_err(|e| out.host_error(&path, &e))?;
    }
    let violations = verdicts(c, &played, &history, (frame, lost));
    if let Some(dir) = &plan.reproducer {
        let reproducer = Reproducer {
            cut: &cut,
            space: c.space,
            program: &x.first(),
            violation: violations.first(),
            replay: &report::state_line(&x, c.programs.0, (frame, lost)),
            fs: &plan.setup.words.fs,
        };
        write_reproducer(dir, &reproducer).map_err(|e| out.host_error(dir, &e))?;
    }
    Ok(told(&x.first(), &cut, &violations, out))
}

/// Tells what is left of a cut, and what is wrong with it.
fn told(program: &Program, cut: &Cut, violations: &[Violation], out: &Out) -> ExitCode {
    let timeline = cut.tell(CALLS);
    let files = cut.files();
    let wrong: Vec<(String, String)> =
        violations.iter().map(|v| (report::violation(v), cut.why(v))).collect();
    let doc = json!({
        "schema": "writepath.crash.state/1",
        "program": program.to_string(),
        "frame": cut.frame,
        "lost": cut.lost,
        "timeline": timeline,
        "files": files,
        "violations": violations.iter().map(report::violation_document).collect::<Vec<_>>(),
        "why": wrong.iter().map(|(_, why)| why).collect::<Vec<_>>(),
    });
    let exit = if wrong.is_empty() { Exit::Ok } else { Exit::No };
    let wrong = match wrong.is_empty() {
        true => "No rule is broken.\n".to_owned(),
        false => wrong
            .iter()
            .zip(violations)
            .map(|((what, why), v)| format!("{} broken: {what}\n{why}\n", v.rule.name()))
            .collect(),
    };
    let text = format!("{program}\n{timeline}\nAfter recovery:\n{files}\n{wrong}");
    out.answer(exit, &doc, &text)
}
