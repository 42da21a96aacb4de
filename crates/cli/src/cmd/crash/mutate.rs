//! `crash mutate`: leaves out each crash-safety point in turn.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use wp_campaign::mutate::{self, Argument, By, Class, Fate, Mutant, SETTINGS};

use super::plan::Mutate;
use crate::output::{Exit, Out};
use crate::progress::Progress;

const LINE: &str = "a string takes it";

/// Runs it. Exit 1 if no oracle detects a missing step and no reason is listed, or if an oracle
/// detects it although a reason is listed.
pub(super) fn run(plan: &Mutate, out: &Out) -> Result<ExitCode, ExitCode> {
    let fails = |code: &str, e: &str, help: &str| out.fail(Exit::Usage, code, e, help);
    let arguments = mutate::arguments().map_err(|e| fails("equivalent.toml", &e, ""))?;
    let stop = out.interrupt();
    #[expect(clippy::disallowed_methods, reason = "progress and the budget are of the host")]
    let start = Instant::now();
    let in_time = || plan.effort.limit.is_none_or(|l| start.elapsed() < l);
    let go_on = || !stop.load(Ordering::SeqCst) && in_time();
    let mutants = mutants(plan, &arguments, &go_on).map_err(|e| fails("mutate", &e, ""))?;
    if !stop.load(Ordering::SeqCst) && mutants.iter().map(|m| m.programs).sum::<u64>() == 0 {
        let what = "nothing was done: no program was run for any crash-safety point";
        return Err(fails("nothing", what, "leave out --search, or set it to 1 or more"));
    }
    let wrong = wrong(&mutants, &arguments);
    let seconds = start.elapsed().as_secs_f64();
    let summary = Summary::of(&mutants, &arguments);
    let exit = match (summary.interrupted, wrong.is_empty()) {
        (1.., _) => Exit::Interrupted,
        (0, true) => Exit::Ok,
        _ => Exit::No,
    };
    let text = text(&mutants, &arguments, &wrong, &summary, seconds);
    Ok(out.answer(exit, &document(&mutants, &arguments, &wrong, &summary), &text))
}

/// Leaves out each site in turn, and shows how far it is.
fn mutants(
    plan: &Mutate,
    arguments: &BTreeMap<String, Argument>,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Mutant>, String> {
    let shown = Progress::new("crash mutate");
    let done = AtomicUsize::new(0);
    // Mutants may run into assertions: that is an answer, and needs no trace.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (sites, all) = (&plan.sites, plan.sites.len() as u64);
    let told = |m: &Mutant| {
        let n = done.fetch_add(1, Ordering::SeqCst) + 1;
        let (fate, detail) = verdict(m, arguments);
        shown.at(n as u64, all, format_args!("{}: {fate}; {detail}", m.site.name));
    };
    let how = (&*plan.witnesses, plan.search);
    let mutants = mutate::run(sites, SETTINGS, how, plan.effort.workers, &told, go_on);
    std::panic::set_hook(hook);
    mutants
}

/// What became of all, in numbers.
struct Summary {
    sites: usize,
    /// Break a rule.
    broke: usize,
    /// Break none, but stop the file system.
    stopped: usize,
    /// Nobody can tell, and why is said.
    equivalent: usize,
    /// Not shown, and why is said.
    unkilled: usize,
    /// Nobody says why.
    open: usize,
    interrupted: usize,
}

impl Summary {
    fn of(mutants: &[Mutant], arguments: &BTreeMap<String, Argument>) -> Summary {
        let mut s = Summary {
            sites: mutants.len(),
            broke: 0,
            stopped: 0,
            equivalent: 0,
            unkilled: 0,
            open: 0,
            interrupted: 0,
        };
        for m in mutants {
            let class = arguments.get(m.site.name).map(|a| a.class);
            *match (&m.fate, class) {
                (Fate::Killed { .. }, _) => &mut s.broke,
                (Fate::Stopped { .. }, _) => &mut s.stopped,
                (Fate::Interrupted, _) => &mut s.interrupted,
                (_, Some(Class::Equivalent)) => &mut s.equivalent,
                (_, Some(Class::Unkilled)) => &mut s.unkilled,
                (_, None) => &mut s.open,
            } += 1;
        }
        s
    }

    /// Per cent of those that are not equivalent, and are through.
    fn killed_percent(&self) -> f64 {
        let killed = self.broke + self.stopped;
        let all = killed + self.unkilled + self.open;
        if all == 0 { 100.0 } else { 100.0 * killed as f64 / all as f64 }
    }
}

/// What is not as `equivalent.toml` says.
fn wrong(mutants: &[Mutant], arguments: &BTreeMap<String, Argument>) -> Vec<String> {
    mutants
        .iter()
        .filter_map(|m| {
            let name = m.site.name;
            if matches!(m.fate, Fate::Interrupted) {
                return None;
            }
            match (m.is_killed(), arguments.contains_key(name)) {
                (false, false) => {
                    Some(format!("{name} survives, and equivalent.toml gives no reason"))
                }
                (true, true) => {
                    Some(format!("{name} is killed, though equivalent.toml lists it as surviving"))
                }
                (true, false) if m.stale => Some(format!(
                    "{name}: its recorded program does not kill it; {} does",
                    by(m).map(ToString::to_string).unwrap_or_default()
                )),
                _ if !m.without.is_empty() => {
                    let rules: Vec<&str> = m.without.iter().map(|r| r.name()).collect();
                    let rules = rules.join(", ");
                    Some(format!(
                        "{name}: its recorded program breaks {rules} also with the step in place"
                    ))
                }
                _ => None,
            }
        })
        .collect()
}

fn by(m: &Mutant) -> Option<&By> {
    match &m.fate {
        Fate::Killed { by, .. } | Fate::Stopped { by, .. } => Some(by),
        _ => None,
    }
}

fn verdict(m: &Mutant, arguments: &BTreeMap<String, Argument>) -> (String, String) {
    let reason = arguments.get(m.site.name).map(|a| format!("{}: {}", a.class.name(), a.why));
    let reason = reason.unwrap_or_default();
    match &m.fate {
        Fate::Killed { by, violation: v } => {
            let at = v.offset.map_or(String::new(), |o| format!(" at byte {o}"));
            let path = if v.path.is_empty() { "the image" } else { &v.path };
            (
                v.rule.name().to_owned(),
                format!("{by}: {path}{at}: {}; expected {}", v.seen, v.expected),
            )
        }
        Fate::Stopped { by, why } => ("stopped".to_owned(), format!("{by}: {why}")),
        Fate::Survives => ("survives".to_owned(), reason),
        Fate::NotReached => ("not reached".to_owned(), reason),
        Fate::Interrupted => ("interrupted".to_owned(), reason),
    }
}

fn text(
    mutants: &[Mutant],
    arguments: &BTreeMap<String, Argument>,
    wrong: &[String],
    summary: &Summary,
    seconds: f64,
) -> String {
    let mut t = format!(
        "{:<38} {:<8} {:>8} {:>9}  {:<18} detected by, or reason that it survives\n",
        "site", "kind", "programs", "states", "fate"
    );
    for m in mutants {
        let (fate, detail) = verdict(m, arguments);
        writeln!(
            t,
            "{:<38} {:<8} {:>8} {:>9}  {fate:<18} {detail}",
            m.site.name,
            m.site.kind.name(),
            m.programs,
            m.states
        )
        .expect(LINE);
    }
    let s = summary;
    let killed = s.broke + s.stopped;
    let rows = [
        ("killed", killed, "a rule is broken, or the file system stops"),
        ("equivalent", s.equivalent, "no difference is possible"),
        ("unkilled", s.unkilled, "a difference is possible, and was not found"),
        ("open", s.open, "no reason is listed"),
        ("interrupted", s.interrupted, "not explored to the end"),
        ("all", s.sites, ""),
    ];
    for (name, count, what) in rows {
        writeln!(t, "{name:<12} {count:>4}  {what}").expect(LINE);
    }
    writeln!(
        t,
        "killed: {killed} of {} that are not equivalent, {:.1} %; {} states; {seconds:.0} s",
        killed + s.unkilled + s.open,
        s.killed_percent(),
        mutants.iter().map(|m| m.states).sum::<u64>(),
    )
    .expect(LINE);
    for w in wrong {
        writeln!(t, "wrong: {w}").expect(LINE);
    }
    t
}

fn document(
    mutants: &[Mutant],
    arguments: &BTreeMap<String, Argument>,
    wrong: &[String],
    s: &Summary,
) -> Value {
    let list: Vec<Value> = mutants
        .iter()
        .map(|m| {
            let (fate, detail) = verdict(m, arguments);
            let by = by(m);
            json!({
                "site": m.site.name,
                "kind": m.site.kind.name(),
                "what": m.site.what,
                "file": m.site.file,
                "killed": m.is_killed(),
                "argument": arguments.get(m.site.name).map(|a| a.class.name()),
                "fate": fate,
                "detail": detail,
                "setting": by.map(|b| &b.setting),
                "program": by.map(|b| b.program.to_string()),
                "programs": m.programs,
                "states": m.states,
                "by_setting": m.spent,
            })
        })
        .collect();
    let summary = json!({
        "sites": s.sites,
        "break_a_rule": s.broke,
        "stop_the_file_system": s.stopped,
        "equivalent": s.equivalent,
        "unkilled": s.unkilled,
        "open": s.open,
        "interrupted": s.interrupted,
        "killed_percent": s.killed_percent(),
    });
    json!({ "schema": "writepath.mutate/1", "summary": summary, "mutants": list, "wrong": wrong })
}

/// `list sites`: all, or those whose names begin so.
pub fn list(begins: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let all = mutate::sites()
        .iter()
        .filter(|s| begins.is_none_or(|b| s.name.starts_with(b)))
        .map(|s| {
            let kind = s.kind.name();
            writeln!(text, "{:<38} {kind:<8} {}\n{:>47} {}", s.name, s.what, "", s.file)
                .expect(LINE);
            json!({ "name": s.name, "kind": kind, "what": s.what, "file": s.file })
        })
        .collect();
    (all, text)
}
