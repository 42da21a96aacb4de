//! `crash` on several file systems: `--fs` more than once, `--every-mode`, or `--every-version`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use wp_campaign::{Alike, Campaign, Findings, Source, Speed, Stage, Watch, resume, speed};
use wp_crash::{Rule, Totals};
use wp_machine::MachineError;

use super::hunt::{does_less, unexplored};
use super::plan::{Effort, Modes, Wrong};
use super::report;
use super::setup::{Exploration, Words};
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// How quick the program is there; `None` of several programs, and of one whose calls run together
/// or meet a device that fails.
fn speed_of(c: &Campaign) -> Result<Option<Speed>, MachineError> {
    match &c.source {
        Source::Text(program) if !program.has_threads() && !program.has_faults() => {
            speed(&c.bench, program).map(Some)
        }
        _ => Ok(None),
    }
}

/// The table: a line for each file system, broken rules below it.
struct Table {
    text: String,
    /// Width of the names.
    width: usize,
    /// Do some take over what others came to?
    is_shared: bool,
}

impl Table {
    fn new(head: &str, names: &[&str], has_speed: bool, is_shared: bool) -> Table {
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(head.len() + 1);
        let mut text = format!("{head:<width$}");
        if has_speed {
            write!(
                text,
                " {:>6} {:>9} {:>9} {:>9} {:>8} {:>10}",
                "syncs", "mean (us)", "p99 (us)", "max (us)", "FLUSHes", "MiB to drive"
            )
            .expect(LINE);
        } else {
            write!(text, " {:>9}", "programs").expect(LINE);
        }
        if is_shared {
            write!(text, " {:>9}", "explored").expect(LINE);
        }
        writeln!(text, " {:>10} {:>9}  verdict", "states", "distinct").expect(LINE);
        Table { text, width, is_shared }
    }

    /// `taken`: programs that did the same in a file system above.
    fn row(
        &mut self,
        name: &str,
        (speed, taken): (Option<&Speed>, u64),
        t: &Totals,
        verdict: &str,
    ) {
        let width = self.width;
        write!(self.text, "{name:<width$}").expect(LINE);
        match speed {
            Some(s) => {
                let us = |ns: u64| format!("{}.{}", ns / 1000, ns % 1000 / 100);
                let mib = s.written_bytes as f64 / f64::from(1 << 20);
                write!(
                    self.text,
                    " {:>6} {:>9} {:>9} {:>9} {:>8} {mib:>12.2}",
                    s.syncs.count,
                    us(s.syncs.mean() as u64),
                    us(s.syncs.percentile(99_000_000)),
                    us(s.syncs.max),
                    s.flushes
                )
                .expect(LINE);
            }
            None => write!(self.text, " {:>9}", t.programs).expect(LINE),
        }
        if self.is_shared {
            write!(self.text, " {:>9}", t.programs.saturating_sub(taken)).expect(LINE);
        }
        writeln!(self.text, " {:>10} {:>9}  {verdict}", t.raw, t.distinct).expect(LINE);
    }
}

fn speed_document(s: &Speed) -> Value {
    json!({
        "syncs": s.syncs.count, "sync_mean_ns": s.syncs.mean() as u64,
        "sync_p50_ns": s.syncs.percentile(50_000_000),
        "sync_p99_ns": s.syncs.percentile(99_000_000), "sync_max_ns": s.syncs.max,
        "elapsed_ns": s.elapsed_ns, "flushes": s.flushes, "written_bytes": s.written_bytes,
        "failed_calls": s.failed_calls,
    })
}

/// In a few words.
fn verdict(all: &Totals, is_whole: bool) -> String {
    let broken: Vec<&str> =
        Rule::ALL.into_iter().filter(|r| all.broken[*r as usize] > 0).map(|r| r.name()).collect();
    match (broken.is_empty(), is_whole) {
        (true, true) => "ok".to_owned(),
        (true, false) => "ok so far".to_owned(),
        (false, _) => format!("broken: {}", broken.join(", ")),
    }
}

/// What became of all so far.
struct Results {
    table: Option<Table>,
    documents: Vec<Value>,
    totals: Totals,
    /// Programs that did the same in a file system before.
    taken: u64,
    /// Did programs do less than they ask for?
    is_less: bool,
    /// Was everything explored?
    is_whole: bool,
}

/// What is done with each file system.
struct Each<'a> {
    effort: &'a Effort,
    stop: &'a AtomicBool,
    /// What they are, and what each is called.
    head: &'static str,
    /// See `head`.
    names: Vec<&'a str>,
    /// May one take over what another came to?
    is_shared: bool,
    out: &'a Out,
}

impl Each<'_> {
    /// Explores one; `None`: it was interrupted. Errors: nothing came of it, and that was told.
    fn explore(&self, x: &Exploration) -> Result<Option<(Option<Speed>, Findings)>, ExitCode> {
        let (c, out) = (&x.campaign, self.out);
        let fs = &x.setup.words.fs;
        let live = Progress::new("crash");
        live.say(format_args!("{fs}"));
        let speed = speed_of(c).map_err(|e| out.machine_error(&e))?;
        #[expect(clippy::disallowed_methods, reason = "the budget is of the host")]
        let begun = Instant::now();
        let in_time = || self.effort.limit.is_none_or(|l| begun.elapsed() < l);
        let go_on = || !self.stop.load(Ordering::Relaxed) && in_time();
        let (first, end) = c.programs;
        let at = |stage: &Stage| {
            // Of one program alone that is all the progress there is.
            if end - first == 1 {
                live.at(stage.points, stage.of_points, format_args!("crash points, {fs}"));
            }
        };
        let step = |f: &Findings| {
            live.at(f.done - first, end - first, format_args!("programs, {fs}"));
            go_on()
        };
        let watch = Watch { step: &|f, _| step(f), abandon: &|| !go_on(), at: &at };
        let explore = || resume(c, self.effort.workers, Findings::before(c), &watch);
        let f = match &c.command {
            Some(command) => command.end_when(&|| !go_on(), explore),
            None => explore(),
        };
        drop(live);
        if self.stop.load(Ordering::SeqCst) {
            return Ok(None);
        }
        // A version without a call leaves out the sequences that have it.
        if let Some((n, why)) = f.unplayed() {
            let why = format!("{fs}: program {n} could not run: {why}");
            return Err(out.fail(Exit::Usage, "crash", &why, "see --fs and --size"));
        }
        if let Some(e) = c.command.as_ref().and_then(|c| c.error()) {
            return Err(out.fail(Exit::HostIo, "check", &e, "the command could not be run"));
        }
        if let Some(why) = unexplored(c, &f) {
            let message = format!("{fs}: {}", why.message);
            return Err(out.fail(why.exit, "not-explored", &message, why.help));
        }
        Ok(Some((speed, f)))
    }

    /// Adds one to the results.
    fn add(&self, all: &mut Results, x: &Exploration, speed: Option<&Speed>, f: &Findings) {
        let fs = &x.setup.words.fs;
        all.is_less |= does_less(x, f);
        let is_done = f.done >= x.campaign.programs.1;
        all.is_whole &= is_done;
        let explored = report::explored(f);
        let is_shared = self.is_shared;
        let table = all
            .table
            .get_or_insert_with(|| Table::new(self.head, &self.names, speed.is_some(), is_shared));
        let taken = x.campaign.alike.as_ref().map_or(0, Alike::taken);
        all.taken += taken;
        let name = self.names[all.documents.len()];
        table.row(name, (speed, taken), &explored, &verdict(&explored, is_done));
        // What the calls of one program answer, and a file system may lack some.
        if speed.is_some() {
            table.text += &report::calls(x, f);
        }
        let unfinished = f.unfinished.iter().flat_map(|u| &u.found);
        for rule in Rule::ALL.into_iter().filter(|r| explored.broken[*r as usize] > 0) {
            let mut found = f.found.iter().chain(unfinished.clone());
            let what = found
                .find(|x| x.violation.rule == rule)
                .map(|x| format!("program {}: {}", x.program, report::violation(&x.violation)));
            let states = explored.broken[rule as usize];
            let what = what.unwrap_or_default();
            writeln!(table.text, "  {} in {states} states: {what}", rule.name()).expect(LINE);
        }
        let mut document = report::document(x, f);
        document["fs"] = json!(fs);
        document["speed"] = json!(speed.map(speed_document));
        document["explored_programs"] = json!(explored.programs.saturating_sub(taken));
        self.out.line(&document);
        all.documents.push(document);
        all.totals.add(&explored);
    }
}

/// The kernel version in the name of a file system.
fn era(fs: &str) -> &str {
    fs.split(',').find_map(|word| word.strip_prefix("era=")).unwrap_or(fs)
}

/// What the rows are if all of them are this file system.
fn versions_of(fs: &str) -> String {
    let words: Vec<&str> = fs.split(',').filter(|word| !word.starts_with("era=")).collect();
    format!("kernel versions of {}", words.join(","))
}

/// Runs the campaign in each. Exit 1 if a rule is broken in any.
pub(super) fn run(plan: Modes, out: &Out) -> Result<ExitCode, ExitCode> {
    let Modes { setups, is_one, programs, effort } = plan;
    let first = setups.first().expect("a file system has a default");
    let programs = programs.recorded(&first.bench, None, out)?;
    let all: Result<Vec<_>, String> = setups.iter().map(|s| s.exploration(&programs)).collect();
    let mut all = all.map_err(|e| Wrong::from(e).told(out))?;
    Alike::share(&mut all.iter_mut().map(|x| &mut x.campaign).collect::<Vec<_>>());
    let stop = out.interrupt();
    let full: Vec<&str> = setups.iter().map(|s| s.words.fs.as_str()).collect();
    let (what, head, names) = match is_one {
        true => (versions_of(&first.words.fs), "Linux", full.iter().map(|fs| era(fs)).collect()),
        false => ("file systems".to_owned(), "file system", full.clone()),
    };
    let is_shared = all.iter().filter(|x| x.campaign.alike.is_some()).count() > 1;
    let each = Each { effort: &effort, stop: &stop, head, names, is_shared, out };
    let mut results = Results {
        table: None,
        documents: Vec::new(),
        totals: Totals::default(),
        taken: 0,
        is_less: false,
        is_whole: true,
    };
    #[expect(clippy::disallowed_methods, reason = "what it took is of the host")]
    let start = Instant::now();
    for x in &all {
        let Some((speed, f)) = each.explore(x)? else { break };
        each.add(&mut results, x, speed.as_ref(), &f);
    }
    let left = &full[results.documents.len()..];
    let exit = match results.totals.broken.iter().all(|n| *n == 0) {
        _ if !left.is_empty() => Exit::Interrupted,
        false => Exit::No,
        // What was not explored may break a rule.
        true if !results.is_whole => Exit::Interrupted,
        true if results.is_less => Exit::Simulated,
        true => Exit::Ok,
    };
    let seconds = start.elapsed().as_secs_f64();
    let t = summary(&results, (&what, &first.words, &effort), seconds, (left, is_one));
    let totals = &results.totals;
    let broken: u64 = totals.broken.iter().sum();
    let summary = json!({
        "schema": "writepath.crash.modes/1", "kind": "summary", "programs": totals.programs,
        "raw_states": totals.raw, "distinct_states": totals.distinct, "broken": broken,
        "modes": results.documents, "not_tried": left,
    });
    Ok(out.last_line(exit, &summary, &t))
}

/// The table, and what all came to.
fn summary(
    all: &Results,
    (what, words, effort): (&str, &Words, &Effort),
    seconds: f64,
    (left, is_one): (&[&str], bool),
) -> String {
    let mut t = all.table.as_ref().map_or_else(String::new, |t| t.text.clone());
    writeln!(
        t,
        "{} {what} on {} ({} crash states): {} states, {} distinct, {seconds:.1} s, {} threads",
        all.documents.len(),
        words.device,
        words.space,
        all.totals.raw,
        all.totals.distinct,
        effort.workers
    )
    .expect(LINE);
    if all.taken > 0 {
        let explored = all.totals.programs.saturating_sub(all.taken);
        writeln!(
            t,
            "{explored} of {} programs explored: the others ask for no rule that differs from a \
             version above, and do the same",
            all.totals.programs
        )
        .expect(LINE);
    }
    if let Some(next) = left.first() {
        let (which, every) = match is_one {
            true => (left.iter().map(|fs| era(fs)).collect(), " --every-version"),
            false => (left.to_vec(), ""),
        };
        let which = which.join(" ");
        writeln!(t, "interrupted; not tried: {which}; go on with --fs {next}{every}").expect(LINE);
    }
    t
}
