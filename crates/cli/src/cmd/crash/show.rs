//! `crash --state`: one state. Exit code 1 if it breaks a rule, as of a campaign that meets one.

use std::process::ExitCode;
use std::rc::Rc;

use serde_json::json;
use wp_base::Sector;
use wp_campaign::{Campaign, Cut, Reproducer, verdicts, write_reproducer};
use wp_machine::host::Shape;

use super::Args;
use crate::output::{Exit, Out};
use crate::outputs;

/// Calls of the timeline before the cut.
const CALLS: usize = 12;

/// One state: its timeline, and what recovery leaves.
pub(super) fn run(a: &Args, c: &Campaign, state: &str, out: &Out) -> ExitCode {
    let (frame, lost) = state.split_once(':').unwrap_or((state, ""));
    let lost: Result<Vec<usize>, _> =
        lost.split(',').filter(|w| !w.is_empty()).map(str::parse).collect();
    let (Ok(frame), Ok(lost)) = (frame.parse::<usize>(), lost) else {
        return out.fail(
            Exit::Usage,
            "state",
            &format!("--state {state}: write FRAME or FRAME:U,V"),
            "",
        );
    };
    let image = match outputs::asked(a.image.as_deref(), Shape::Image, out) {
        Ok(image) => image,
        Err(code) => return code,
    };
    if let Some(dir) = &a.reproducer
        && let Err(code) = outputs::folder(dir, out)
    {
        return code;
    }
    let program = c.source.program(c.programs.0);
    let played = c.bench.image().and_then(|image| c.play(image, c.programs.0));
    let played = match played {
        Ok(p) => Rc::new(p),
        Err(e) => return out.machine_error(&e),
    };
    let history = Rc::new(c.space.history(&played));
    let Some(here) = history.frames.get(frame) else {
        let why =
            format!("--state {frame}: the program has {} frames, from 0", history.frames.len());
        return out.fail(Exit::Usage, "state", &why, "");
    };
    if let Some(u) = lost.iter().find(|u| **u >= here.live.len()) {
        let why = format!(
            "--state: no write {u}; frame {frame} has {} unpersisted writes",
            here.live.len()
        );
        return out.fail(Exit::Usage, "state", &why, "");
    }
    let cut = Cut {
        fs: (c.bench.fs, &c.bench.fs_options),
        played: &played,
        history: &history,
        frame,
        lost: &lost,
    };
    if let Some(image) = image {
        let path = image.path().to_owned();
        let len = played.partition.0 + played.partition.1;
        if let Err(e) = wp_machine::files::save_as(&cut.medium(), Sector(0), len, image) {
            return out.host_error(&path, &e);
        }
    }
    let violations = verdicts(c, &played, &history, (frame, &lost));
    if let Some(dir) = &a.reproducer {
        let reproducer = Reproducer {
            cut: &cut,
            space: c.space,
            program: &program,
            violation: violations.first(),
            replay: &super::report::state_line(a, c, c.programs.0, (frame, &lost)),
            fs: &a.fs,
        };
        if let Err(e) = write_reproducer(dir, &reproducer) {
            return out.host_error(dir, &e);
        }
    }
    let timeline = cut.tell(CALLS);
    let files = cut.files();
    let wrong: Vec<(String, String)> =
        violations.iter().map(|v| (super::report::violation(v), cut.why(v))).collect();
    let doc = json!({
        "schema": "writepath.crash.state/1",
        "program": program.to_string(),
        "frame": frame,
        "lost": lost,
        "timeline": timeline,
        "files": files,
        "violations": violations.iter().map(super::report::violation_document).collect::<Vec<_>>(),
        "why": wrong.iter().map(|(_, why)| why).collect::<Vec<_>>(),
    });
    let exit = if wrong.is_empty() { Exit::Ok } else { Exit::No };
    let wrong = match wrong.is_empty() {
        true => "No rule is broken.\n".to_owned(),
        false => wrong
            .iter()
            .zip(&violations)
            .map(|((what, why), v)| format!("{} broken: {what}\n{why}\n", v.rule.name()))
            .collect(),
    };
    let text = format!("{program}\n{timeline}\nAfter recovery:\n{files}\n{wrong}");
    out.answer(exit, &doc, &text)
}
