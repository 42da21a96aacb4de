//! `reproduce`: the papers' experiments and the verdicts on their claims.

mod conflict;
mod direct;
mod ext4;
mod f2fs;
mod flows;
mod trim;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wp_lab::claims::{Judged, Verdict};
use wp_lab::paper::{direct_io, ext4_fsync, f2fs_oprw, inode_trim, journal_conflict};

use crate::output::{Exit, Out};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Papers; all that this build knows if left out: ext4-fsync, f2fs-oprw, direct-io,
    /// inode-trim, journal-conflict.
    papers: Vec<String>,
    /// Fewer and shorter runs; claims that need the others are `not-modelled` then.
    #[arg(long)]
    quick: bool,
    /// Power cuts, some minutes on two cores. ext4-fsync: in so many programs of each era (1000 if
    /// no number is given: what a 0 needs), and in a fiftieth of it of each kind of database.
    /// f2fs-oprw: so many cuts of posix, strict_fixed, OPRW and nobarrier, in 2000 seeds each
    /// (1000000; without this, the paper's 1000), and a finer surface.
    #[arg(long, value_name = "N", num_args = 0..=1)]
    crash: Option<Option<u64>>,
    /// Seed of every random stream.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results go.
    #[arg(long, default_value = "results")]
    out: PathBuf,
}

/// A paper's run.
type Run = fn(&Args, &Out, &AtomicBool) -> ExitCode;

/// The papers.
const PAPERS: [(&str, Run); 5] = [
    (ext4_fsync::SLUG, ext4::run),
    (f2fs_oprw::SLUG, f2fs::run),
    (direct_io::SLUG, direct::run),
    (inode_trim::SLUG, trim::run),
    (journal_conflict::SLUG, conflict::run),
];

/// Runs the verb. Exit 1 if a claim differs.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(p) = a.papers.iter().find(|p| PAPERS.iter().all(|(name, _)| p != name)) {
        return out.fail(
            Exit::Usage,
            "paper",
            &format!("no paper called `{p}` in this build"),
            "writepath list papers",
        );
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    if let Err(e) = ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst)) {
        out.note(&format!("note: an interrupt will end this at once ({e})"));
    }
    let is_wanted = |name: &str| a.papers.is_empty() || a.papers.iter().any(|p| p == name);
    let mut answer = ExitCode::SUCCESS;
    for (_, run) in PAPERS.iter().filter(|(name, _)| is_wanted(name)) {
        let one = run(a, out, &stop);
        if one != ExitCode::SUCCESS {
            answer = one;
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    answer
}

fn interrupted(out: &Out) -> ExitCode {
    out.fail(
        Exit::Interrupted,
        "interrupted",
        "interrupted before the last run",
        "the runs are short; start again",
    )
}

/// Every claim, and how many of each verdict.
fn claims_table(t: &mut String, claims: &[Judged]) {
    let line = "a string takes it";
    writeln!(t, "{:<42} {:>10} {:>10} {:<8} verdict", "claim", "paper", "ours", "unit")
        .expect(line);
    for c in claims {
        let ours = c.ours.map_or("-".to_owned(), |v| {
            format!("{:.4}", v).trim_end_matches('0').trim_end_matches('.').to_owned()
        });
        let interval = c.interval.map_or(String::new(), |[a, b]| format!("  [{a:.3}, {b:.3}]"));
        let why = if c.why.is_empty() { String::new() } else { format!("  ({})", c.why) };
        writeln!(
            t,
            "{:<42} {:>10} {ours:>10} {:<8} {}{interval}{why}",
            c.id,
            paper_value(c),
            c.unit.as_deref().unwrap_or(""),
            c.verdict.name()
        )
        .expect(line);
    }
    let count = |v: Verdict| claims.iter().filter(|c| c.verdict == v).count();
    writeln!(t, "\n{} claims: {} match, {} differ, {} follow from inputs, {} paper-inconsistent, {} not modelled",
        claims.len(),
        count(Verdict::Match),
        count(Verdict::Differs),
        count(Verdict::FollowsFromInputs),
        count(Verdict::PaperInconsistent), count(Verdict::NotModelled)).expect(line);
}

fn paper_value(c: &Judged) -> String {
    serde_json::to_value(&c.paper_value).map_or_else(
        |_| "?".to_owned(),
        |v| match v {
            serde_json::Value::String(s) => s,
            other => other.to_string(),
        },
    )
}
