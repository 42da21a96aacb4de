//! All runs of an experiment, or of a shard of it, on some threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use wp_machine::MachineError;
use wp_machine::parallel::each;

use super::kept::Kept;
use super::run::{Outcome, run};
use super::table::Row;
use super::{Experiment, Points, results};

/// A part of the runs: every `of`-th, from number `index` on, which counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which.
    pub index: usize,
    /// Of how many.
    pub of: usize,
}

impl Shard {
    /// All of them.
    pub const WHOLE: Shard = Shard { index: 1, of: 1 };

    /// Reads `2/8`. Errors: what it takes.
    pub fn parse(text: &str) -> Result<Shard, String> {
        let pair = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match pair {
            Some((index, of)) if (1..=of).contains(&index) && of <= 100_000 => {
                Ok(Shard { index, of })
            }
            _ => Err(format!("`{text}`: write I/N with I from 1 to N, as 2/8")),
        }
    }

    /// The numbers of its runs, out of `all` runs.
    pub fn runs(self, all: usize) -> Vec<usize> {
        (0..all).filter(|n| n % self.of == self.index - 1).collect()
    }
}

/// How runs are made.
pub struct Plan<'a> {
    /// Which.
    pub shard: Shard,
    /// Threads.
    pub workers: usize,
    /// Where runs are kept; `None`: nowhere.
    pub kept: Option<&'a Kept>,
    /// Make also those that are kept.
    pub again: bool,
}

/// How it ended.
pub enum Ended {
    /// All runs were made, or were kept.
    Whole(Vec<Row>),
    /// It was stopped: this number of runs is kept.
    Stopped(usize),
    /// A run failed: its number, and why.
    Failed(usize, MachineError),
}

/// A run that is to be made: its place among the numbers, and what it takes.
struct Wanted {
    place: usize,
    point: usize,
    seed: u64,
    shown: String,
    /// What it is kept under.
    name: Option<String>,
}

/// A run for which there is no point: its number, and why.
type NoPoint = (usize, String);

/// The runs of these numbers: what is kept of them, and what is to be made.
fn look(
    e: &Experiment,
    plan: &Plan<'_>,
    numbers: &[usize],
) -> Result<(Vec<Option<Outcome>>, Vec<Wanted>), NoPoint> {
    let (mut outcomes, mut wanted) = (Vec::new(), Vec::new());
    // Text and inputs of the last point: its runs come one behind the other.
    let mut last: Option<(usize, String, String)> = None;
    for (place, n) in numbers.iter().enumerate() {
        let (point, seed) = e.run_of(*n);
        if plan.kept.is_some() && last.as_ref().is_none_or(|(of, ..)| *of != point) {
            let setup = e.setup(point).map_err(|why| (*n, why))?;
            let own = e.inputs.iter().filter(|(name, _)| setup.inputs.contains(*name));
            last = Some((point, setup.text(), results::inputs_hash(own)));
        }
        let name = plan.kept.zip(last.as_ref());
        let name = name.map(|(k, (_, text, inputs))| k.name(text, inputs, seed));
        let known = plan.kept.filter(|_| !plan.again).zip(name.as_ref());
        let outcome = known.and_then(|(kept, name)| kept.find(name));
        if outcome.is_none() {
            wanted.push(Wanted { place, point, seed, shown: e.describe(*n), name });
        }
        outcomes.push(outcome);
    }
    Ok((outcomes, wanted))
}

/// A run that another process can make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Number of its point; behind those of the sweep are those that variations change.
    pub point: usize,
    /// Its seed.
    pub seed: u64,
    /// What it is kept under.
    pub name: String,
}

/// The runs of an experiment that are not kept. Errors: the number of a run for which there is no
/// point, and why.
pub fn missing(e: &Experiment, kept: &Kept) -> Result<Vec<Task>, (usize, String)> {
    let plan = Plan { shard: Shard::WHOLE, workers: 1, kept: Some(kept), again: false };
    let (_, wanted) = look(e, &plan, &plan.shard.runs(e.runs()))?;
    let task = |w: Wanted| Some(Task { point: w.point, seed: w.seed, name: w.name? });
    Ok(wanted.into_iter().filter_map(task).collect())
}

/// Makes one run, of what the experiment has read. Errors: a machine that cannot be, an input that
/// has changed meanwhile.
pub fn make(points: &Points, point: usize, seed: u64) -> Result<Outcome, MachineError> {
    let setup = points.at(point).map_err(MachineError::Config)?;
    let outcome = run(&setup, seed);
    // What it read may not be what the experiment, and the name that it is kept by, say.
    points.source.unchanged(&setup).map_err(MachineError::Config).and(outcome)
}

/// Makes the runs. `progress(done, of, name)` is called before each; `false` stops.
///
/// Errors: the host's, of what is kept.
pub fn run_all(
    e: &Experiment,
    plan: &Plan<'_>,
    progress: &(dyn Fn(usize, usize, &str) -> bool + Sync),
) -> std::io::Result<Ended> {
    let numbers = plan.shard.runs(e.runs());
    let (mut outcomes, wanted) = match look(e, plan, &numbers) {
        Ok(found) => found,
        Err((n, why)) => return Ok(Ended::Failed(n, MachineError::Config(why))),
    };
    let made = AtomicUsize::new(0);
    let source = &e.points.source;
    let answers = each(
        plan.workers,
        wanted.len(),
        || source.open(),
        |points, i| {
            let w = &wanted[i];
            if !progress(made.load(Ordering::SeqCst), wanted.len(), &w.shown) {
                return None;
            }
            let outcome = make(points, w.point, w.seed);
            let kept = match (&outcome, plan.kept, &w.name) {
                (Ok(outcome), Some(kept), Some(name)) => kept.keep(name, outcome),
                _ => Ok(()),
            };
            made.fetch_add(1, Ordering::SeqCst);
            Some((outcome, kept))
        },
    );
    for (w, answer) in wanted.iter().zip(answers) {
        let Some((outcome, kept)) = answer else { continue };
        kept?;
        match outcome {
            Ok(outcome) => outcomes[w.place] = Some(outcome),
            Err(error) => return Ok(Ended::Failed(numbers[w.place], error)),
        }
    }
    let done = outcomes.iter().flatten().count();
    if done < numbers.len() {
        return Ok(Ended::Stopped(done));
    }
    let rows = numbers.iter().zip(outcomes).filter_map(|(n, outcome)| {
        let (point, seed) = e.run_of(*n);
        Some(Row { point, seed, outcome: outcome? })
    });
    Ok(Ended::Whole(rows.collect()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use wp_report::claim::Verdict;

    use super::super::claims::Answered;
    use super::super::{Checked, Number, parse};
    use super::*;

    /// Writes files into a folder and reads the experiment among them, of a small drive and `more`.
    fn experiment(dir: &Path, files: &[(&str, &str)], more: &str) -> Checked {
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let text = format!(
            "schema = \"writepath/1\"\nname = \"t\"\n[device]\npreset = \"fixed\"\n\
                capacity_bytes = \"64MiB\"\n{more}"
        );
        parse("t.toml", text.as_bytes(), dir, None)
    }

    const JOB: &str = "[j]\nrw=write\nbs=4k\nsize=16k\nfilename=f\n";

    #[test]
    fn an_input_that_changes_under_an_experiment_ends_it_and_nothing_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let more = "[workload]\nfio = \"a.fio\"\n";
        let read = || experiment(dir.path(), &[], more).experiment.expect("right");
        std::fs::write(dir.path().join("a.fio"), JOB).expect("written");
        let kept = Kept::new(dir.path().join("kept"), "program");
        let plan = Plan { shard: Shard::WHOLE, workers: 1, kept: Some(&kept), again: false };
        let e = read();
        std::fs::write(dir.path().join("a.fio"), JOB.replace("16k", "32k")).expect("written");
        let ended = run_all(&e, &plan, &|_, _, _| true).expect("the host is well");
        let Ended::Failed(0, error) = ended else { panic!("it went on") };
        assert!(error.to_string().contains("a.fio changed while"), "{error}");
        assert!(!dir.path().join("kept").exists(), "nothing was kept");
        let ended = run_all(&read(), &plan, &|_, _, _| true).expect("the host is well");
        let Ended::Whole(rows) = ended else { panic!("it is as it was read") };
        assert_eq!(rows[0].outcome.metrics["write_bytes"], Number::Int(32 << 10));
    }

    #[test]
    fn two_files_cannot_be_kept_under_one_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let more = "[sweep]\n\"workload.fio\" = [\"a.fio\", \"inputs/a.fio\"]\n\
            [workload]\nfio = \"a.fio\"\n";
        let other = JOB.replace("16k", "32k");
        let two = [("a.fio", JOB), ("inputs/a.fio", other.as_str())];
        let checked = experiment(dir.path(), &two, more);
        let told: Vec<String> = checked.diagnostics.iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|t| t.contains("another file of the experiment")), "{told:?}");
        // The same bytes twice are no matter.
        let same = [("a.fio", JOB), ("inputs/a.fio", JOB)];
        assert!(experiment(dir.path(), &same, more).experiment.is_some());
    }

    #[test]
    fn rates_of_jobs_that_ran_one_behind_the_other_do_not_add_up() {
        let dir = tempfile::tempdir().expect("a directory");
        let two = format!("{JOB}[k]\nstonewall\nrw=read\nbs=4k\nsize=16k\nfilename=f\n");
        let more = "[workload]\nfio = \"a.fio\"\n";
        let of = |job: &str| {
            let e = experiment(dir.path(), &[("a.fio", job)], more).experiment.expect("right");
            run(&e.setup(0).expect("a point"), 1).expect("it runs").metrics
        };
        let m = of(&two);
        let (one, other) = (m["j.0.write_runtime_ns"].value(), m["k.0.read_runtime_ns"].value());
        assert_eq!(m["iops"].value(), 8.0 * 1e9 / (one + other), "{m:?}");
        assert!(!m.contains_key("runtime_ns"));
        // Two writers, one behind the other, take as long as both.
        let m = of(&two.replace("rw=read", "rw=write"));
        let sum = m["j.0.write_runtime_ns"].value() + m["k.0.write_runtime_ns"].value();
        assert_eq!(m["write_runtime_ns"].value(), sum);
        assert_eq!(m["write_iops"].value(), 8.0 * 1e9 / sum);
    }

    #[test]
    fn a_claim_about_a_count_that_cannot_be_is_not_judged() {
        let dir = tempfile::tempdir().expect("a directory");
        let claim = |id: &str, name: &str| {
            format!("[[claim]]\nid = \"{id}\"\nexpr = \"{name}\"\nequals = 0\n")
        };
        let more = [
            "[workload]\nname = \"fsync-last\"\nn = 2\nwatch = \"0s\"\n",
            "[measure]\nphases = true\n",
            &claim("not-met", "phase.fsync.fast_commit"),
            &claim("class", "phase.fsync.journl"),
            &claim("phase", "phase.fsnc.journal"),
            &claim("kind", "phase.files_with_dat"),
        ];
        let e = experiment(dir.path(), &[], &more.concat()).experiment.expect("right");
        let plan = Plan { shard: Shard::WHOLE, workers: 1, kept: None, again: false };
        let ended = run_all(&e, &plan, &|_, _, _| true).expect("the host is well");
        let Ended::Whole(rows) = ended else { panic!("it runs") };
        let of = |a: &Answered| (a.judged.verdict, a.judged.why.clone());
        let found: Vec<_> = results::ready(&e, &rows, Shard::WHOLE).claims.iter().map(of).collect();
        assert_eq!(found[0].0, Verdict::Match, "{found:?}");
        for (verdict, why) in &found[1..] {
            assert_eq!(*verdict, Verdict::NotModelled);
            assert!(why.contains("no metric"), "{why}");
        }
    }

    #[test]
    fn shards_have_every_run_once() {
        let mut all: Vec<usize> =
            (1..=3).flat_map(|index| Shard { index, of: 3 }.runs(10)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_eq!(Shard::parse("2/8"), Ok(Shard { index: 2, of: 8 }));
        for wrong in ["", "2", "0/2", "3/2", "1/0", "a/b", "-1/2", "1/999999"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }
}
