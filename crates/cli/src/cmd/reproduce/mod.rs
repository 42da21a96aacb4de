//! `reproduce`: the papers' experiments and the verdicts on their claims.

mod all;
mod conflict;
mod direct;
mod ext4;
mod f2fs;
mod flows;
pub(super) mod kept;
mod page;
mod pinned;
mod progress;
mod trim;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::json;
use wp_base::plain::Shown as _;
use wp_base::table::Layout;
use wp_machine::results::Results as Folder;
use wp_papers::results::Results;
use wp_papers::{direct_io, ext4_fsync, f2fs_oprw, inode_trim, journal_conflict};
use wp_report::claim::{Judged, Verdict};
use wp_report::page::Reproduced as _;

pub(super) use self::kept::program;
use self::pinned::Beside;
pub use self::progress::end_with_parent;
use crate::output::{Exit, Out};
use crate::outputs;
use crate::session::Failure;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n\
    \x20 writepath reproduce\n\
    \x20 writepath reproduce ext4-fsync --quick\n\
    \x20 writepath reproduce f2fs-oprw --crash 10000 --strict")]
pub struct Args {
    /// Papers to reproduce [default: all]
    ///
    /// ext4-fsync, f2fs-oprw, direct-io, inode-trim, journal-conflict.
    papers: Vec<String>,
    /// Run fewer and shorter runs; other claims become not-modelled
    #[arg(long)]
    quick: bool,
    /// Explore N power failures (ext4-fsync: N programs)
    ///
    /// ext4-fsync: explores the crash states of N programs in each kernel version, and of N/50 of
    /// each kind of database. Default: 1000 (fewer do not support a count of 0); none with --quick.
    ///
    /// f2fs-oprw: N power failures in each of the modes posix, strict_fixed, OPRW and nobarrier,
    /// over 2000 seeds, and a finer surface. Default: the paper's 1000; 1000000 if N is left out.
    #[arg(long, value_name = "N", num_args = 0..=1)]
    crash: Option<Option<u64>>,
    /// Seed of every random stream
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Exit with 1 also if a claim differs from its paper
    ///
    /// Without it, the exit code is 1 only if a verdict is not the pinned one
    /// (papers/verdicts.toml).
    #[arg(long)]
    strict: bool,
    /// Results folder
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Rerun everything, also results kept from an earlier run
    #[arg(long)]
    again: bool,
    /// Papers to run in parallel, one process each [default: number of cores]
    #[arg(long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
}

/// A paper.
struct Paper {
    slug: &'static str,
    run: fn(&Args, &Out, &AtomicBool) -> ExitCode,
    /// How many power failures, or programs of them, `--crash` without a number is; 0: it has none.
    crash: u64,
    /// Are they explored without `--crash`, too, unless the run is a quick one?
    crash_by_default: bool,
    /// Seconds of one core that it takes, quick and by default: what the time left is told by until
    /// this machine has been seen.
    seconds: (f64, f64),
}

/// The papers.
static PAPERS: [Paper; 5] = [
    Paper {
        slug: ext4_fsync::SLUG,
        run: ext4::run,
        crash: ext4::PROGRAMS,
        crash_by_default: true,
        seconds: (2.0, 140.0),
    },
    Paper {
        slug: f2fs_oprw::SLUG,
        run: f2fs::run,
        crash: f2fs::LONG,
        crash_by_default: false,
        seconds: (12.0, 50.0),
    },
    Paper::without_crashes(direct_io::SLUG, direct::run, (7.0, 190.0)),
    Paper::without_crashes(inode_trim::SLUG, trim::run, (1.0, 10.0)),
    Paper::without_crashes(journal_conflict::SLUG, conflict::run, (9.0, 75.0)),
];

impl Paper {
    /// A paper that says nothing of power failures.
    const fn without_crashes(
        slug: &'static str,
        run: fn(&Args, &Out, &AtomicBool) -> ExitCode,
        seconds: (f64, f64),
    ) -> Paper {
        Paper { slug, run, crash: 0, crash_by_default: false, seconds }
    }

    /// How many power failures, or programs of them, are explored.
    fn crashes(&self, a: &Args) -> Option<u64> {
        match a.crash {
            Some(asked) => Some(asked.unwrap_or(self.crash)),
            None => (self.crash_by_default && !a.quick).then_some(self.crash),
        }
    }

    /// What is asked for, in full: what its results depend on.
    fn resolved(&self, a: &Args) -> String {
        let mut text = format!(
            "schema = \"writepath/1\"\npaper = {:?}\nseed = {}\nquick = {}\n",
            self.slug, a.seed, a.quick
        );
        if self.crash > 0 {
            let cuts = self.crashes(a).unwrap_or(0);
            writeln!(text, "crash = {cuts}").expect("a string takes it");
        }
        text
    }
}

/// The paper of a slug.
fn paper(slug: &str) -> Option<&'static Paper> {
    PAPERS.iter().find(|p| p.slug == slug)
}

impl Args {
    /// The paper's verdicts beside the pinned ones, and the exit code that they come to.
    fn beside(&self, slug: &str, claims: &[Judged], is_unlisted: bool) -> (Beside, Exit) {
        let beside = Beside::of(slug, claims, self.quick);
        let is_no = is_unlisted || !beside.changed.is_empty() || (self.strict && beside.differ > 0);
        (beside, if is_no { Exit::No } else { Exit::Ok })
    }
}

/// A paper that is asked for and that nobody knows.
fn unknown(a: &Args) -> Option<String> {
    let p = a.papers.iter().find(|p| PAPERS.iter().all(|known| known.slug != *p))?;
    Some(format!("no paper called `{p}`"))
}

/// The papers that are asked for.
fn wanted(a: &Args) -> Vec<&'static Paper> {
    let is_wanted = |name: &str| a.papers.is_empty() || a.papers.iter().any(|p| p == name);
    PAPERS.iter().filter(|p| is_wanted(p.slug)).collect()
}

/// Names of the papers that would run: those that no earlier run has kept. Errors: one that nobody
/// knows; the host's.
pub fn missing(a: &Args) -> Result<Vec<&'static str>, Failure> {
    if let Some(what) = unknown(a) {
        return Err(Failure::usage(&what, "writepath list papers"));
    }
    let program = kept::program().map_err(|e| Failure::usage(&e.to_string(), ""))?;
    let is_kept =
        |p: &Paper| !a.again && kept::find(&a.out, p.slug, &p.resolved(a), &program).is_some();
    Ok(wanted(a).into_iter().filter(|p| !is_kept(p)).map(|p| p.slug).collect())
}

/// Runs the verb. Exit 1 if a verdict is not the pinned one; with --strict, if a claim differs.
pub fn run(a: &Args, out: &Out) -> ExitCode {
    if let Some(what) = unknown(a) {
        return out.fail(Exit::Usage, "paper", &what, "writepath list papers");
    }
    if let Err(code) = outputs::folder(&a.out, out) {
        return code;
    }
    let papers = wanted(a);
    match papers[..] {
        [paper] => one(a, out, paper, &out.interrupt_in_parts()),
        _ => all::run(a, out, &papers, &out.interrupt()),
    }
}

/// One paper: what an earlier run found, or a run.
fn one(a: &Args, out: &Out, paper: &Paper, stop: &AtomicBool) -> ExitCode {
    let kept = match kept::program() {
        Ok(program) if !a.again => kept::find(&a.out, paper.slug, &paper.resolved(a), &program),
        _ => None,
    };
    match kept {
        Some(kept) => {
            out.note(&format!("results (kept from an earlier run): {}", kept.folder.shown()));
            if let Err(code) = page::write_and_say(a, out) {
                return code;
            }
            let claims = kept.results.claims();
            let (beside, exit) = a.beside(paper.slug, claims, kept.is_unlisted);
            out.answer(exit, &json!(kept.results), &format!("{}{}", kept.text, beside.text()))
        }
        None => (paper.run)(a, out, stop),
    }
}

/// What a paper's run found.
struct Answer {
    slug: &'static str,
    /// When it began.
    began: Instant,
    results: Results,
    text: String,
    /// Is there a difference from a kernel's run that is not listed?
    is_unlisted: bool,
    /// More files of its results.
    more: Vec<(String, Vec<u8>)>,
}

impl Answer {
    /// Writes the results, notes that they are there, and prints the answer: exit 1 if a verdict
    /// is not the pinned one.
    fn finish(self, a: &Args, out: &Out) -> ExitCode {
        let paper = PAPERS.iter().find(|p| p.slug == self.slug).expect("it is one of them");
        let resolved = paper.resolved(a);
        let document = json!(self.results);
        let mut folder = Folder::default();
        folder.add("resolved.toml", resolved.clone());
        folder.add("claims.json", serde_json::to_vec_pretty(&document).unwrap_or_default());
        folder.add("tables.txt", self.text.clone());
        for (name, bytes) in self.more {
            folder.add(&name, bytes);
        }
        let seconds = self.began.elapsed().as_secs_f64();
        let noted = folder.write(&a.out, &format!("reproduce-{}", self.slug)).and_then(|dir| {
            out.note(&format!("results: {}", dir.shown()));
            kept::note(&a.out, (self.slug, &resolved), &dir, (self.is_unlisted, seconds))
        });
        if let Err(e) = noted {
            return out.host_error(&a.out, &e);
        }
        // Of several papers the process that started this one writes the page.
        if !progress::is_child()
            && let Err(code) = page::write_and_say(a, out)
        {
            return code;
        }
        let (beside, exit) = a.beside(self.slug, self.results.claims(), self.is_unlisted);
        out.answer(exit, &document, &format!("{}{}", self.text, beside.text()))
    }
}

fn interrupted(out: &Out) -> ExitCode {
    out.fail(
        Exit::Interrupted,
        "interrupted",
        "interrupted before the end",
        "finished papers are kept: run the same command to continue",
    )
}

/// Every claim, and how many of each verdict.
pub(super) fn claims_table(t: &mut String, claims: &[Judged]) {
    const LAYOUT: Layout = Layout("<42 >10 >10 <8 <0");
    *t += &LAYOUT.line(&[&"claim", &"paper", &"simulated", &"unit", &"verdict"]);
    for c in claims {
        let ours = c.ours.map_or("-".to_owned(), |v| {
            format!("{v:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
        });
        let interval = c.interval.map_or(String::new(), |[a, b]| format!("  [{a:.3}, {b:.3}]"));
        let why = if c.why.is_empty() { String::new() } else { format!("  ({})", c.why) };
        let verdict = format!("{}{interval}{why}", c.verdict.name());
        let unit = c.unit.as_deref().unwrap_or("");
        *t += &LAYOUT.line(&[&c.id, &c.paper_value, &ours, &unit, &verdict]);
    }
    let [matches, differ, follow, inconsistent, not_modelled] = counts(claims);
    *t += &format!(
        "\n{} claims: {matches} match, {differ} differ, {follow} follow from inputs, \
         {inconsistent} paper-inconsistent, {not_modelled} not modelled\n",
        claims.len()
    );
}

/// How many claims have each verdict, in the order of [`Verdict::ALL`].
fn counts(claims: &[Judged]) -> [usize; 5] {
    Verdict::ALL.map(|v| claims.iter().filter(|c| c.verdict == v).count())
}
