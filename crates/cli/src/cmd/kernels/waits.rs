//! `kernels waits`: recorded programs beside Linux 6.12.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;
use wp_parity::vtime::compare::{Compared, Report, Row};
use wp_parity::vtime::{CONFIGS, compare_recorded};

use crate::output::{Exit, Out};
use crate::progress::Progress;

/// Arguments.
#[derive(clap::Args)]
pub(super) struct WaitsArgs {
    /// Compare this configuration only, such as ext4-default
    #[arg(long, default_value = "")]
    #[arg(hide_default_value = true)]
    config: String,
    /// Print every call and second, also equal ones
    #[arg(long)]
    all: bool,
}

/// Compares them.
pub(super) fn run(a: &WaitsArgs, out: &Out) -> ExitCode {
    if !a.config.is_empty() && !CONFIGS.iter().any(|c| c.recorded && c.name == a.config) {
        let known: Vec<&str> = CONFIGS.iter().filter(|c| c.recorded).map(|c| c.name).collect();
        return out.fail(
            Exit::Usage,
            "config",
            &format!("no recorded configuration called `{}`", a.config),
            &format!("recorded: {}", known.join(", ")),
        );
    }
    let shown = Progress::new("kernels waits");
    shown.say("recorded programs");
    let report = match compare_recorded(&a.config) {
        Ok(r) => r,
        Err(e) => return out.machine_error(&e),
    };
    drop(shown);
    let exit = if report.findings.is_empty() { Exit::Ok } else { Exit::No };
    let calls: usize = report.configs.iter().map(|c| c.calls.len()).sum();
    let doc = json!({ "schema": "writepath.kernels.waits/1", "calls": calls, "report": report });
    out.answer(exit, &doc, &text(&report, a.all))
}

fn text(report: &Report, all: bool) -> String {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "Writepath against recorded Linux 6.12 in virtual time, with one latency for every\n\
         request: device waits of each call (duration / latency, rounded down), and the\n\
         requests of each second after `idle`. kernels/linux-6.12/differences.toml lists\n\
         differences with their kernel functions.\n"
    )
    .expect(line);
    writeln!(
        t,
        "{:<22} {:>7} {:>7} {:>10} {:>9} {:>7} {:>10}",
        "configuration", "calls", "equal", "different", "seconds", "equal", "different"
    )
    .expect(line);
    for c in &report.configs {
        let count = |rows: &[Row]| {
            let equal = rows.iter().filter(|r| r.is_equal()).count();
            (rows.len(), equal, rows.len() - equal)
        };
        let ((n, equal, other), (m, same, unlike)) = (count(&c.calls), count(&c.moments));
        writeln!(t, "{:<22} {n:>7} {equal:>7} {other:>10} {m:>9} {same:>7} {unlike:>10}", c.config)
            .expect(line);
    }
    writeln!(t).expect(line);
    for c in &report.configs {
        rows(&mut t, c, all);
    }
    writeln!(t, "{} listed differences, {} not as listed", report.listed, report.findings.len())
        .expect(line);
    for f in &report.findings {
        writeln!(t, "NOT AS LISTED: {f}").expect(line);
    }
    t
}

fn rows(t: &mut String, c: &Compared, all: bool) {
    let line = "a string takes it";
    for (case, why) in &c.not_modelled {
        writeln!(t, "{}: {case} was not run: {why}", c.config).expect(line);
    }
    for r in c.calls.iter().chain(&c.moments) {
        if all || !r.is_equal() {
            let mark = if r.is_equal() { "=" } else { "!" };
            writeln!(t, "{mark} {r}").expect(line);
        }
    }
}
