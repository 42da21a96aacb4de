//! The file of an experiment, as a whole: read, checked, its parts put together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use wp_machine::{Machine, MachineError};
use wp_workload::fio::{Diagnostic, Severity};

use crate::canon;
use crate::canon::{Common, Head};
use crate::claims;
use crate::claims::Said;
use crate::expected_metrics::ExpectedMetrics;
use crate::expr;
use crate::keys;
use crate::points;
use crate::points::{Points, Source};
use crate::read::{Fields, wrong};
use crate::resolve;
use crate::resolve::Files;
use crate::resolve::Setup;
use crate::source;
use crate::source::{Table, Value};
use crate::sweep::{RUNS_MAX, Sweep};
use crate::vary::{Variations, Vary};

/// Most errors that are told of one file.
const ERRORS_MAX: usize = 50;
/// Longest name of an experiment.
const NAME_MAX: usize = 80;

/// An experiment, ready to be run.
pub struct Experiment {
    /// Name of its results.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// First seed.
    pub seed: u64,
    /// Runs of each point.
    pub repeat: u64,
    /// Metrics that the terminal's table has, if any are named.
    pub show: Vec<String>,
    /// What differs.
    pub sweep: Sweep,
    /// The points, in order.
    pub points: Points,
    /// What ought to come out.
    pub claims: Vec<Said>,
    /// What is varied for intervals of claims; `None`: nothing.
    pub varied: Option<Arc<Variations>>,
    /// `resolved.toml`.
    pub resolved: String,
    /// The files that it reads, by their names in the results.
    pub inputs: Arc<BTreeMap<String, Vec<u8>>>,
}

impl Experiment {
    /// Its seeds.
    pub fn seeds(&self) -> std::ops::Range<u64> {
        self.seed..self.seed + self.repeat
    }

    /// How many runs it has, those of variations too.
    pub fn runs(&self) -> usize {
        let varied = self.varied.as_ref().map_or(0, |v| v.points.len());
        (self.points.len() + varied) * self.repeat as usize
    }

    /// A point by its number; behind those of the sweep are those that variations change. Errors:
    /// an input that has changed since the experiment was read.
    pub fn setup(&self, point: usize) -> Result<Setup, String> {
        self.points.at(point)
    }

    /// The point that a variation makes of another; itself if it changes nothing there.
    pub fn point_under(&self, variation: usize, point: usize) -> usize {
        let place = self.varied.as_ref().and_then(|v| v.of(variation, point));
        place.map_or(point, |n| self.points.len() + n)
    }

    /// A point in words: its values, and the variation that changed it.
    pub fn describe_point(&self, point: usize) -> String {
        let changed = point.checked_sub(self.points.len());
        let changed = changed.zip(self.varied.as_ref()).map(|(n, v)| (&v.points[n], v));
        let place = self.sweep.describe(changed.map_or(point, |(c, _)| c.point));
        let place = if place.is_empty() { self.name.clone() } else { place };
        match changed {
            Some((c, v)) => format!("{place}, {}", v.names[c.variation]),
            None => place,
        }
    }

    /// Point and seed of run number `n`.
    pub fn run_of(&self, n: usize) -> (usize, u64) {
        let repeat = self.repeat as usize;
        (n / repeat, self.seed + (n % repeat) as u64)
    }

    /// Run number `n` in one line.
    pub fn describe(&self, n: usize) -> String {
        let (point, seed) = self.run_of(n);
        format!("{}, seed {seed}", self.describe_point(point))
    }

    /// Builds and mounts each machine once, which is what options of mkfs and mount are checked by,
    /// the first `most` that differ. Errors: the first that cannot be, with its point.
    pub fn try_machines(&self, most: usize) -> Result<Tried, (usize, MachineError)> {
        let (mut seen, mut choices) = (BTreeSet::new(), BTreeSet::new());
        for n in 0..self.points.len() {
            if seen.len() >= most {
                return Ok(Tried { machines: seen.len(), points: n });
            }
            if !choices.insert(self.sweep.of_machine(n)) {
                continue;
            }
            let setup = self.setup(n).map_err(|why| (n, MachineError::Config(why)))?;
            let of_machine = setup.settings.iter().filter(|(k, _)| !k.starts_with("workload."));
            let text: String = of_machine.map(|(k, v)| format!("{k}={v}\n")).collect();
            if seen.insert(text) {
                let machine = Machine::new(setup.machine.clone(), None).map_err(|e| (n, e))?;
                let vfs = machine.mount().map_err(|e| (n, e))?;
                drop(vfs);
            }
        }
        Ok(Tried { machines: seen.len(), points: self.points.len() })
    }
}

/// What [`Experiment::try_machines`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tried {
    /// Machines that were built and mounted.
    pub machines: usize,
    /// Points, from the first, that are known to have a machine.
    pub points: usize,
}

/// What reading a file gave: the experiment, unless there are errors.
pub struct Checked {
    /// The experiment.
    pub experiment: Option<Experiment>,
    /// What is wrong, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads an experiment file of the host. `seed`: in place of the file's. Errors: the host's.
pub fn load(path: &Path, seed: Option<u64>) -> std::io::Result<Checked> {
    let bytes = wp_machine::host::text::bytes(path)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    Ok(parse(&path.to_string_lossy(), &bytes, dir, seed))
}

/// Reads an experiment from bytes; `dir` is where its paths begin.
pub fn parse(name: &str, bytes: &[u8], dir: &Path, seed: Option<u64>) -> Checked {
    let mut found = Vec::new();
    let experiment = experiment(name, bytes, dir, seed, &mut found);
    let mut seen = BTreeSet::new();
    found.retain(|d: &Diagnostic| seen.insert((d.at.line, d.at.column, d.message.clone())));
    found.sort_by_key(|d| (d.at.line, d.at.column));
    found.truncate(ERRORS_MAX);
    let has_errors = found.iter().any(|d| d.severity == Severity::Error);
    Checked { experiment: experiment.filter(|_| !has_errors), diagnostics: found }
}

/// What stands at the beginning of a file.
struct Beginning {
    name: String,
    about: String,
    seed: u64,
    repeat: u64,
    show: Vec<String>,
}

fn beginning(root: &Fields<'_>, seed: Option<u64>, found: &mut Vec<Diagnostic>) -> Beginning {
    let schema = root.text("schema", found);
    if schema != Some(keys::SCHEMA) {
        let given = schema.map_or(String::new(), |s| format!(", not `{s}`"));
        let what = format!("an experiment says `schema = \"{}\"`{given}", keys::SCHEMA);
        wrong(found, &root.place("schema"), what, "write it into the first line");
    }
    let name = root.text("name", found).unwrap_or_default().to_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.starts_with('.')
        && name.chars().all(is_plain);
    if !is_name {
        let what = match root.item("name") {
            None => "the experiment has no `name`".to_owned(),
            Some(_) => format!("`{name}` cannot be the name of a results folder"),
        };
        wrong(found, &root.place("name"), what, "letters, digits, `-`, `_` and `.`, 80 at most");
    }
    let own = root.number("seed", 0..=i64::MAX as u64, found).unwrap_or(1);
    Beginning {
        name,
        about: root.text("about", found).unwrap_or_default().to_owned(),
        seed: seed.unwrap_or(own),
        repeat: root.number("repeat", 1..=RUNS_MAX, found).unwrap_or(1),
        show: root.texts("show", found).into_iter().map(|(s, _)| s.to_owned()).collect(),
    }
}

fn experiment(
    file: &str,
    bytes: &[u8],
    dir: &Path,
    seed: Option<u64>,
    found: &mut Vec<Diagnostic>,
) -> Option<Experiment> {
    let root = source::parse(file, bytes, found);
    if !found.is_empty() {
        return None;
    }
    let top = points::top(file, bytes);
    let fields = Fields::new("", (&root, &top), &[], found);
    let begin = beginning(&fields, seed, found);
    let sweep = Sweep::read(&fields, found);
    if let Err(what) = runs(&sweep, &begin) {
        let at = fields.place(if fields.item("sweep").is_some() { "sweep" } else { "repeat" });
        wrong(found, &at, what, format!("at most {RUNS_MAX}: sweep less, or write several files"));
        return None;
    }
    if !found.is_empty() && fields.item("sweep").is_some() {
        // Points of a sweep with errors would only repeat them.
        return None;
    }
    let mut files = Files::new(dir);
    let common = common(&root, &top, &sweep, &mut files, found)?;
    let claims = claims::read(&fields, &begin.name, &sweep, found);
    let vary = Vary::read(&fields, &claims, found);
    let mut points = Source::new(file, bytes, dir, &files).open();
    check_claims(&points, &sweep, &claims, found);
    check_shown(&points, &fields, found);
    if let Some((vary, places)) = vary.filter(|_| found.is_empty()) {
        vary.check(&places, &points, found);
        let most = (RUNS_MAX / begin.repeat).saturating_sub(points.len() as u64);
        match vary.variations((&points, &sweep), &claims, most) {
            Some(varied) => points.source.varied = Some(Arc::new(varied)),
            None => {
                let help = "give fewer claims an interval";
                let at = fields.place(if fields.item("vary").is_some() { "vary" } else { "claim" });
                let what = format!("with variations there are more than {RUNS_MAX} runs");
                wrong(found, &at, what, help);
            }
        }
    }
    let head = Head {
        name: &begin.name,
        about: &begin.about,
        seeds: (begin.seed, begin.repeat),
        show: &begin.show,
    };
    let resolved = canon::text(&head, &common, &sweep, &root, &files);
    Some(Experiment {
        name: begin.name,
        about: begin.about,
        seed: begin.seed,
        repeat: begin.repeat,
        show: begin.show,
        sweep,
        claims,
        varied: points.source.varied.clone(),
        resolved,
        inputs: points.source.inputs.clone(),
        points,
    })
}

/// Are there no more runs than may be? Errors: how many there are, in words.
fn runs(sweep: &Sweep, begin: &Beginning) -> Result<(), String> {
    let points = sweep.points();
    let runs = points.and_then(|n| n.checked_mul(begin.repeat));
    let is_few = runs.is_some_and(|n| n <= RUNS_MAX);
    if is_few && begin.seed.checked_add(begin.repeat).is_some() {
        return Ok(());
    }
    let in_words = |n: Option<u64>| n.map_or("more than 2^64".to_owned(), |n| n.to_string());
    let (points, runs) = (in_words(points), in_words(runs));
    Err(format!("{points} points with {} seeds each are {runs} runs", begin.repeat))
}

/// What all points have in common, whose files are read on the way. `None`: there are errors.
fn common(
    root: &Table,
    top: &wp_workload::fio::Place,
    sweep: &Sweep,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> Option<Common> {
    let mut common = Common::default();
    let mut is_whole = true;
    for n in 0..sweep.points()? as usize {
        let file = sweep.file(root, n, found);
        match resolve::resolve(&file, top, files, found) {
            Some(setup) => common.add(&setup.settings, &sweep.put(n)),
            None => is_whole = false,
        }
        if found.len() > ERRORS_MAX {
            return None;
        }
    }
    is_whole.then_some(common)
}

fn check_claims(points: &Points, sweep: &Sweep, claims: &[Said], found: &mut Vec<Diagnostic>) {
    // Claims go through the points in order: one is enough to remember.
    let last: std::cell::RefCell<Option<(usize, Setup, ExpectedMetrics)>> = Default::default();
    let has = |point: usize, name: &str| {
        let mut last = last.borrow_mut();
        if last.as_ref().is_none_or(|(n, ..)| *n != point) {
            let setup = points.at(point)?;
            let known = ExpectedMetrics::of(&setup);
            *last = Some((point, setup, known));
        }
        let (_, setup, known) = last.as_ref().expect("it was put there");
        match name.strip_prefix(expr::SETTING) {
            Some(key) => setup.number(key).map(Some),
            None => known.has(name).map(|()| None),
        }
    };
    for said in claims {
        claims::check(said, sweep, &has, found);
    }
}

/// Is each metric that the table is to have one of some point?
fn check_shown(points: &Points, fields: &Fields<'_>, found: &mut Vec<Diagnostic>) {
    // Those that no point had yet, with why the first one has not.
    let mut left: Vec<(&str, wp_workload::fio::Place, String)> = Vec::new();
    for n in 0..points.len() {
        let Ok(setup) = points.at(n) else { return };
        let known = ExpectedMetrics::of(&setup);
        if n == 0 {
            let shown = fields.texts("show", &mut Vec::new()).into_iter();
            left.extend(shown.filter_map(|(name, at)| Some((name, at, known.has(name).err()?))));
        } else {
            left.retain(|(name, ..)| known.has(name).is_err());
        }
        if left.is_empty() {
            return;
        }
    }
    left.into_iter().for_each(|(_, at, why)| wrong(found, &at, why, ""));
}

/// Does a text look like an experiment, and not like a fio job or a filebench workload model?
pub fn is_experiment(bytes: &[u8]) -> bool {
    let mut found = Vec::new();
    let table = source::parse("", bytes, &mut found);
    matches!(table.item("schema").map(|i| &i.value), Some(Value::Text(_)))
}
