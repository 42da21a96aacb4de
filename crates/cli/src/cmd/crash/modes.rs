//! `crash` on several file systems: `--fs` more than once, or `--every-mode`.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Value, json};
use wp_campaign::{Campaign, Findings, Source, Speed, Watch, resume, speed};
use wp_crash::{Rule, Totals};
use wp_machine::MachineError;

use super::hunt::{does_less, unexplored};
use super::{Args, campaign, limit, report};
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// The file systems as `--fs` has them: what was given, but each era and mode.
fn modes(fs: &str) -> Result<Vec<String>, String> {
    let (entry, given) = crate::cmd::file_system(fs)?;
    if entry.held.is_empty() || entry.modes.is_empty() {
        return Err(format!("--every-mode: no kernel version of {} was validated", entry.name));
    }
    let replaced: Vec<&str> =
        entry.modes.iter().flat_map(|m| m.split(',')).filter_map(|o| o.split('=').next()).collect();
    let kept = given.given().filter(|(k, _)| *k != "era" && !replaced.contains(k));
    let kept: String = kept.map(|(k, v)| format!(",{k}={v}")).collect();
    let of = |era: &str, mode: &str| {
        let comma = if mode.is_empty() { "" } else { "," };
        format!("{},era={era}{kept}{comma}{mode}", entry.name)
    };
    Ok(entry.held.iter().flat_map(|era| entry.modes.iter().map(|m| of(era, m))).collect())
}

/// What is explored on each file system.
fn campaigns(a: &Args) -> Result<Vec<(Args, Campaign)>, String> {
    let named = a.file_systems.iter().map(|fs| match a.every_mode {
        true => modes(fs),
        false => Ok(vec![fs.clone()]),
    });
    let all: Vec<String> = named.collect::<Result<Vec<_>, _>>()?.concat();
    let of = |fs: String| {
        let a = Args { fs, ..a.clone() };
        campaign(&a).map(|c| (a, c))
    };
    all.into_iter().map(of).collect()
}

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
}

impl Table {
    fn new(names: &[&str], has_speed: bool) -> Table {
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(12);
        let mut text = format!("{:<width$}", "file system");
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
        writeln!(text, " {:>10} {:>9}  verdict", "states", "distinct").expect(LINE);
        Table { text, width }
    }

    fn row(&mut self, name: &str, speed: Option<&Speed>, t: &Totals, verdict: &str) {
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

/// Runs the campaign in each. Exit 1 if a rule is broken in any.
pub(super) fn run(a: &Args, out: &Out) -> ExitCode {
    let campaigns = match campaigns(a) {
        Ok(c) => c,
        Err(e) => return out.fail(Exit::Usage, "crash", &e, super::hint(a)),
    };
    let limit = match limit(a, out) {
        Ok(limit) => limit,
        Err(exit) => return exit,
    };
    let stop = out.interrupt();
    let mut left: Vec<&str> = campaigns.iter().map(|(a, _)| a.fs.as_str()).collect();
    #[expect(clippy::disallowed_methods, reason = "what it took is of the host")]
    let start = Instant::now();
    let (mut less, mut is_whole) = (false, true);
    let (mut documents, mut all) = (Vec::new(), Totals::default());
    let mut table: Option<Table> = None;
    for (a, c) in &campaigns {
        let live = Progress::new("crash");
        live.say(format_args!("{}", a.fs));
        let speed = match speed_of(c) {
            Ok(speed) => speed,
            Err(e) => return out.machine_error(&e),
        };
        #[expect(clippy::disallowed_methods, reason = "the budget is of the host")]
        let begun = Instant::now();
        let go_on = || !stop.load(Ordering::Relaxed) && limit.is_none_or(|l| begun.elapsed() < l);
        let at = |stage: &wp_campaign::Stage| {
            live.at(stage.points, stage.of_points, format_args!("crash points, {}", a.fs));
        };
        let watch = Watch { step: &|_, _| go_on(), abandon: &|| !go_on(), at: &at };
        let explore = || resume(c, a.workers(), Findings::before(c), &watch);
        let f = match &c.command {
            Some(command) => command.end_when(&|| !go_on(), explore),
            None => explore(),
        };
        drop(live);
        if stop.load(Ordering::SeqCst) {
            break;
        }
        // A version without a call leaves out the sequences that have it.
        if let Some((n, why)) = f.unplayed() {
            let why = format!("{}: program {n} could not run: {why}", a.fs);
            return out.fail(Exit::Usage, "crash", &why, "see --fs and --size");
        }
        if let Some(e) = c.command.as_ref().and_then(|c| c.error()) {
            return out.fail(Exit::HostIo, "check", &e, "the command could not be run");
        }
        if let Some(why) = unexplored(c, &f) {
            let message = format!("{}: {}", a.fs, why.message);
            return out.fail(why.exit, "not-explored", &message, why.help);
        }
        less |= does_less(a, &f);
        let is_done = f.done >= c.programs.1;
        is_whole &= is_done;
        let explored = report::explored(&f);
        let table = table.get_or_insert_with(|| Table::new(&left, speed.is_some()));
        table.row(&a.fs, speed.as_ref(), &explored, &verdict(&explored, is_done));
        // What the calls of one program answer, and a file system may lack some.
        if speed.is_some() {
            table.text += &report::calls(a, c, &f);
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
        let mut document = report::document(a, c, &f);
        document["fs"] = json!(a.fs);
        document["speed"] = json!(speed.as_ref().map(speed_document));
        out.line(&document);
        documents.push(document);
        all.add(&explored);
        left.remove(0);
    }
    let mut t = table.map_or_else(String::new, |t| t.text);
    let (n, seconds) = (documents.len(), start.elapsed().as_secs_f64());
    let (states, distinct) = (all.raw, all.distinct);
    writeln!(
        t,
        "{n} file systems on {} ({} crash states): {states} states, {distinct} distinct, \
         {seconds:.1} s, {} threads",
        a.device,
        a.space,
        a.workers()
    )
    .expect(LINE);
    let exit = match all.broken.iter().all(|n| *n == 0) {
        _ if !left.is_empty() => Exit::Interrupted,
        false => Exit::No,
        // What was not explored may break a rule.
        true if !is_whole => Exit::Interrupted,
        true if less => Exit::Simulated,
        true => Exit::Ok,
    };
    if let Some(next) = left.first() {
        let which = left.join(" ");
        writeln!(t, "interrupted; not tried: {which}; go on with --fs {next}").expect(LINE);
    }
    let broken: u64 = all.broken.iter().sum();
    let summary = json!({
        "schema": "writepath.crash.modes/1", "kind": "summary", "programs": all.programs,
        "raw_states": all.raw, "distinct_states": all.distinct, "broken": broken,
        "modes": documents, "not_tried": left,
    });
    out.last_line(exit, &summary, &t)
}
