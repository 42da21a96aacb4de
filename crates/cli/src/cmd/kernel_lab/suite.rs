//! `kernel-lab --suite`: campaigns in one table.

use std::process::ExitCode;

use serde_json::json;
use wp_parity::kernel_lab::Report;
use wp_parity::kernel_lab::suite::{LEGEND, Row};

use super::Session;
use super::plan::{Campaign, Suite};
use super::report::{document, drawn, exit};
use crate::output::Out;

/// Runs a suite; what was done before an interruption is in the table.
pub(super) fn run(session: &Session, suite: &Suite, out: &Out) -> Result<ExitCode, ExitCode> {
    let mut text = String::new();
    let mut documents = Vec::new();
    let (mut sound, mut stopped) = (true, false);
    for (row, campaign) in suite.table.rows.iter().zip(&suite.campaigns) {
        let report = session.campaign(campaign, &format!("{}: ", row.name()))?;
        if text.is_empty() {
            text = head(suite, campaign, &report);
        }
        let line = row.line(&report) + &ours_column(campaign, Some(&report));
        text.push_str(&line);
        text.push('\n');
        out.note(&line);
        sound &= report.is_sound();
        stopped |= report.stopped;
        documents.push(document(campaign, &report));
        if stopped {
            break;
        }
    }
    text.push_str(LEGEND);
    if suite.campaigns.iter().any(|c| c.beside) {
        text.push_str("sim ns: the same of Writepath's file system on the same drive, without power failures\n");
    }
    let name = suite.table.name;
    let all = json!({ "schema": "writepath.kernel-lab-suite/1", "suite": name, "rows": documents });
    Ok(out.answer(exit(stopped, sound), &all, &text))
}

/// What it is, and the head of the table.
fn head(suite: &Suite, first: &Campaign, report: &Report) -> String {
    format!(
        "Linux {}, {}; {}\n{}{}\n",
        report.kernel,
        suite.table.about,
        drawn(first),
        Row::head(),
        ours_column(first, None)
    )
}

/// The column that `--beside` adds to the table: its head, or what ours took.
fn ours_column(c: &Campaign, report: Option<&Report>) -> String {
    match (c.beside, report.map(|r| r.ours_fsyncs)) {
        (false, _) => String::new(),
        (true, None) => format!(" {:>9}", "sim ns"),
        (true, Some(None)) => format!(" {:>9}", "-"),
        (true, Some(Some(ours))) => format!(" {:>9}", ours.mean_ns()),
    }
}
