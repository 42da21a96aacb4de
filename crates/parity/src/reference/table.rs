//! Two runs side by side, as text and as JSON.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;

use super::compare::{What, compare, flags_text, issuers_text, seconds_text};
use super::summary::{ClassSummary, Filed, Phase, RunSummary};

/// What both sides dispatched of one class in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Phase.
    pub phase: Phase,
    /// Class of blocks.
    pub class: String,
    /// Ours; `None` if there was none.
    pub ours: Option<ClassSummary>,
    /// The kernel's.
    pub kernel: Option<ClassSummary>,
    /// In what they differ; empty if they agree.
    pub differs: Vec<What>,
}

/// Two runs side by side; serialised, it is the JSON form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SideBySide {
    /// Name of the recorded run.
    pub run: String,
    /// One row a phase and class.
    pub rows: Vec<Row>,
    /// Our filings.
    pub filed_ours: Filed,
    /// The kernel's.
    pub filed_kernel: Filed,
}

/// Puts our run beside the kernel's.
pub fn side_by_side(run: &str, ours: &RunSummary, theirs: &RunSummary) -> SideBySide {
    let differences = compare(run, ours, theirs);
    let mut rows = Vec::new();
    for phase in Phase::ALL {
        let classes: BTreeSet<&String> = [ours, theirs]
            .into_iter()
            .filter_map(|summary| summary.phases.get(&phase))
            .flat_map(|classes| classes.keys())
            .collect();
        for class in classes {
            let differs = differences
                .iter()
                .filter(|d| d.phase == phase && &d.class == class && d.what != What::Filed)
                .map(|d| d.what)
                .collect();
            rows.push(Row {
                phase,
                class: class.clone(),
                ours: ours.class(phase, class).cloned(),
                kernel: theirs.class(phase, class).cloned(),
                differs,
            });
        }
    }
    let (filed_ours, filed_kernel) = (ours.filed, theirs.filed);
    SideBySide { run: run.to_owned(), rows, filed_ours, filed_kernel }
}

impl SideBySide {
    /// Do the runs agree in all that is compared?
    pub fn is_same(&self) -> bool {
        self.filed_ours == self.filed_kernel && self.rows.iter().all(|row| row.differs.is_empty())
    }

    /// The table as text, a row a line.
    pub fn to_text(&self) -> String {
        let mut cells: Vec<[String; 5]> =
            vec![["phase", "class", "kernel", "ours", ""].map(str::to_owned)];
        for row in &self.rows {
            let differs: Vec<&str> = row.differs.iter().map(|what| what.name()).collect();
            cells.push([
                row.phase.name().to_owned(),
                row.class.clone(),
                cell(row.kernel.as_ref()),
                cell(row.ours.as_ref()),
                verdict(differs.join(", ")),
            ]);
        }
        let (ours, kernel) = (self.filed_ours, self.filed_kernel);
        let filed = |f: Filed| format!("{} / {} / {}", f.write, f.fsync, f.after);
        let differs = if ours == kernel { "" } else { What::Filed.name() };
        cells.push([
            "all".to_owned(),
            "filed write/fsync/after".to_owned(),
            filed(kernel),
            filed(ours),
            verdict(differs.to_owned()),
        ]);
        let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = format!("{}\n", self.run);
        for row in &cells {
            let mut line = String::new();
            for (value, width) in row.iter().zip(&widths) {
                write!(line, "{value:<width$}  ").expect("a string takes all");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn verdict(differs: String) -> String {
    if differs.is_empty() { "same".to_owned() } else { format!("DIFFERS: {differs}") }
}

/// `9 flusher, W, 9 requests, 30 s`
fn cell(class: Option<&ClassSummary>) -> String {
    let Some(class) = class else {
        return "-".to_owned();
    };
    let requests: u32 = class.by.values().map(|share| share.requests).sum();
    let plural = if requests == 1 { "" } else { "s" };
    let (issuers, flags, seconds) = (issuers_text(class), flags_text(class), seconds_text(class));
    format!("{issuers}; {flags}; {requests} request{plural}; {seconds} s")
}
