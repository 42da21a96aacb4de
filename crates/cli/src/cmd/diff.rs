//! `diff`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use wp_base::plain::Shown as _;
use wp_report::compare::{Comparison, Measured};
use wp_report::diff::{Diff, Side, What, diff};
use wp_report::run::{SYNCS, Seen, WHOLE, WRITES};

use super::Recorded;
use super::run::{Recording, Setup, classes, perform};
use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath diff results/fsync-last/0123456789ab results/fsync-last/456789abcdef\n\
    \x20 writepath diff --fs ext4,era=3.4 --fs ext4,era=3.8 --workload \
    fsync-last,n=10,case=extend")]
pub struct Args {
    /// Two results of `run`
    #[arg(num_args = 2, value_names = ["RUN_A", "RUN_B"], required_unless_present = "fs")]
    runs: Vec<PathBuf>,
    /// File system to run; give it twice, instead of two results
    ///
    /// Runs the workload on both file systems and compares the runs. The options below set the
    /// workload, the device and the kernel's part of both.
    #[arg(long, value_name = "NAME", conflicts_with = "runs")]
    fs: Vec<String>,
    /// blktrace actions to compare; J: journal
    #[arg(long, value_name = "LETTERS", default_value = "QMFIDCJ")]
    actions: String,
    /// Report a different time within a phase as a difference
    #[arg(long)]
    times: bool,
    /// List the events that differ
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    setup: Setup,
}

/// The calls that are compared: syncs of files, or of everything, or writes that wait.
fn compared(a: &Seen<'_>, b: &Seen<'_>) -> &'static [&'static str] {
    let has = |names: &[&str]| !a.calls(names).is_empty() && !b.calls(names).is_empty();
    [SYNCS, WHOLE, WRITES].into_iter().find(|names| has(names)).unwrap_or(SYNCS)
}

/// Two runs with their names.
type Two = [(String, Recorded); 2];

/// The runs that are given, or that are made.
fn two(a: &Args, out: &Out) -> Result<Two, ExitCode> {
    let mut all = Vec::new();
    for dir in &a.runs {
        all.push((dir.shown(), super::recorded(dir, out)?));
    }
    for fs in &a.fs {
        let ran = perform(fs, &a.setup, (Recording::All, usize::MAX), out)?;
        let classes = classes(&ran).map_err(|e| out.fs_error("classes of blocks", &e))?;
        let limits = ran.machine.queue.with_device(|d| *d.limits());
        let recorded = Recorded {
            records: ran.records,
            classes,
            stages: ran.machine.spec().fs.stages,
            survives: !limits.volatile_cache,
            zone_sectors: limits.zones.map(|z| z.zone_sectors),
            start: ran.machine.spec().start,
            left_out: 0,
        };
        all.push((fs.clone(), recorded));
    }
    all.try_into().map_err(|all: Vec<_>| {
        let what = format!("`diff` compares two runs, got {}", all.len());
        let help = "two results of `run`, or --fs twice: --fs ext4,era=3.4 --fs ext4,era=3.8";
        out.fail(Exit::Usage, "fs", &what, help)
    })
}

fn events([(left_name, left), (right_name, right)]: &Two, a: &Args) -> Diff {
    let side = |name, run| {
        let Recorded { records, classes, start, .. }: &Recorded = run;
        Side { name, records, classes, start: *start }
    };
    let what = What { actions: a.actions.clone(), times: a.times };
    diff(&side(left_name, left), &side(right_name, right), &what)
}

fn comparison([(left_name, left), (right_name, right)]: &Two) -> Comparison {
    let (left, right) = (Seen::new(left.run()), Seen::new(right.run()));
    let names = compared(&left, &right);
    let measured = |seen: &Seen<'_>| Measured::new(seen, &seen.calls(names));
    let (a, b) = (measured(&left), measured(&right));
    let used = |seen: &Seen<'_>, name: &str| !seen.calls(&[name]).is_empty();
    let calls: Vec<&str> =
        names.iter().copied().filter(|n| used(&left, n) || used(&right, n)).collect();
    let calls = if calls.is_empty() { "fsync".to_owned() } else { calls.join(" and ") };
    Comparison { a: left_name.clone(), b: right_name.clone(), calls, left: a, right: b }
}

/// Where versions whose syncs take the same differ; nothing where they do, or where the user has
/// chosen a workload.
fn hint(a: &Args, compared: &Comparison) -> Option<&'static str> {
    const ALIKE_PERCENT: u64 = 5;
    let [left, right] = [&compared.left, &compared.right].map(|m| m.total_ns);
    let is_alike = left.abs_diff(right) * 100 <= left.max(right) * ALIKE_PERCENT;
    (is_alike && !a.fs.is_empty() && a.setup.is_default_workload()).then_some(
        "hint: new files (case=alloc) cost the same in many versions; files that grow do not: \
         --workload fsync-last,n=10,case=extend\n",
    )
}

/// Runs the verb.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(c) = a.actions.chars().find(|c| !"QAXGMFPUIDRCJ".contains(*c)) {
        let what = format!("--actions {c}: no such blktrace action");
        return out.fail(Exit::Usage, "actions", &what, "letters of QAXGMFPUIDRC, and J (journal)");
    }
    let two = match two(a, out) {
        Ok(two) => two,
        Err(code) => return code,
    };
    let answer = events(&two, a);
    let compared = comparison(&two);
    let exit = if answer.differs() { Exit::No } else { Exit::Ok };
    let of = |count: fn(&wp_report::diff::Phase) -> usize| answer.phases.iter().map(count).sum();
    let sides: [usize; 2] = [of(|p| p.a_events), of(|p| p.b_events)];
    for (n, (name, _)) in sides.iter().zip(&two) {
        if *n == 0 {
            let what =
                format!("{name}: no event with one of the actions {} is recorded", a.actions);
            let help = "run it again with --events all; --actions names other events";
            return out.fail(Exit::Usage, "events", &what, help);
        }
    }
    let left_out: u64 = two.iter().map(|(_, run)| run.left_out).sum();
    if left_out > 0 && !answer.differs() {
        let what =
            format!("the recorded events are the same, but {left_out} events are not recorded");
        let help = "run both again with a larger --max-events";
        return out.fail(Exit::Usage, "incomplete", &what, help);
    }
    let mut doc: Value = answer.json();
    doc["events_left_out"] = json!(left_out);
    doc["events"] = json!(sides[0] + sides[1]);
    doc["compared"] = json!(compared.json());
    let mut text = compared.text();
    text.push('\n');
    text.push_str(&if a.events { answer.text() } else { answer.counts() });
    if let Some(hint) = hint(a, &compared) {
        text.push_str(hint);
        doc["hint"] = json!(hint.trim_end());
    }
    out.answer(exit, &doc, &text)
}
