//! `[crash]`: power fails while the point's program runs, and every state that the drive may be
//! left with is recovered and judged, as `writepath crash` does it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use wp_base::Time;
use wp_base::rng::Rng;
use wp_campaign::calls::Calls;
use wp_campaign::{Bench, Campaign, Played, Source, Space, line, play};
use wp_crash::{Case, Explorer, History, Kept, Plan, Profile, Rule, Totals, Violation, of_instant};
use wp_machine::workload;
use wp_machine::{MachineError, MachineSpec};
use wp_workload::fio::{Diagnostic, Place, RunOptions};
use wp_workload::program::{Program, Step};

use super::expected_metrics::of_rule;
use super::metric::Number;
use super::read::{Fields, suggest, wrong};
use super::resolve::{Measure, Settings};
use super::run::Outcome;
use super::source::{Table, quoted};
use super::units::Unit;
use super::work::{Kind, Work};

/// Largest number of random instants.
const RANDOM_MAX: u64 = 1_000_000;
/// Largest number of unpersisted units up to which every state is explored: each more doubles the
/// states.
const COMPLETE_MAX: u64 = 20;
/// Largest number of samples of an instant.
const SAMPLES_MAX: u64 = 1_000_000;

/// When the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instants {
    /// Between every two changes of what it may leave.
    Every,
    /// At this number of instants drawn evenly over the program.
    Random(u64),
    /// At one, in nanoseconds since power-on.
    At(u64),
}

/// What to do.
#[derive(Clone)]
pub struct CrashPlan {
    bench: Bench,
    instants: Instants,
    space: Space,
    plan: Plan,
    check: Vec<Rule>,
    profile: Profile,
}

/// Reads `[crash]`. `None`: errors were found.
pub(super) fn read(
    item: (&Table, &Place),
    (machine, work): (&MachineSpec, &Work),
    measure: Measure,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<CrashPlan> {
    let before = found.len();
    let fields = Fields::new("crash", item, &[], found);
    if measure != Measure::default() {
        wrong(found, &fields.at, "[measure] cannot be used with [crash]", "remove [measure]");
    }
    if work.start_within_ns > 0 {
        wrong(
            found,
            &fields.at,
            "[crash] explores the program from its start",
            "leave `start_within` out",
        );
    }
    if let Err(why) = program(work, false, 0) {
        let help = "[crash] supports `fio`, `program` and `script` only";
        wrong(found, &fields.at, why, help);
    }
    let instants = instants(&fields, settings, found);
    let name = fields.text("space", found).unwrap_or(Space::NAMES[0]);
    let space = Space::named(name, None);
    if space.is_none() {
        let what = format!("no space called `{name}`");
        let help = suggest("there are", &Space::NAMES, name);
        wrong(found, &fields.place("space"), what, help);
    }
    let complete = fields.number("complete", 0..=COMPLETE_MAX, found).unwrap_or(16);
    let samples = fields.number("samples", 0..=SAMPLES_MAX, found).unwrap_or(64);
    let check = rules(&fields, found);
    let mounted = Profile::mounted(machine.fs, &machine.fs_options);
    let profile = profile(&fields, mounted, found);
    let used = fields.truth("used", found).unwrap_or(true);
    for (key, value) in [
        ("space", quoted(name)),
        ("complete", complete.to_string()),
        ("samples", samples.to_string()),
        ("used", used.to_string()),
        ("check", texts(check.iter().map(|r| r.name()))),
        ("require", texts(line::held(&profile))),
    ] {
        settings.push((format!("crash.{key}"), value));
    }
    let bench = bench(machine, used, space? == Space::Modelled, &fields.at, found)?;
    (found.len() == before).then_some(CrashPlan {
        bench,
        instants: instants?,
        space: space?,
        plan: Plan { complete: complete as u32, samples: samples as u32, ..Plan::default() },
        check,
        profile,
    })
}

/// Words as an array of TOML.
fn texts<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<String> = all.into_iter().map(quoted).collect();
    format!("[{}]", all.join(", "))
}

fn bench(
    machine: &MachineSpec,
    stale: bool,
    model: bool,
    at: &Place,
    found: &mut Vec<Diagnostic>,
) -> Option<Bench> {
    // `crash` refuses it, too: what a power failure left then is not known.
    let era = machine.fs_options.get("era", machine.fs.options).unwrap_or_default();
    if let Err(why) = machine.fs.check_era(era) {
        wrong(found, at, why, "leave [crash] out, or name a later era");
        return None;
    }
    let fresh = match Bench::of(machine.fs, machine.fs_options.clone()) {
        Ok(bench) => bench,
        Err(e) => {
            wrong(found, at, e.to_string(), "");
            return None;
        }
    };
    Some(Bench {
        device: machine.device.clone(),
        device_params: machine.device_params.clone(),
        more: machine.more.clone(),
        elevator: machine.elevator.clone(),
        kernel: machine.kernel,
        stale,
        model,
        cpu: machine.cpu.clone(),
        ..fresh
    })
}

fn instants(
    fields: &Fields<'_>,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<Instants> {
    let random = fields.number("random", 1..=RANDOM_MAX, found);
    let at = fields.unit("at", Unit::Time(1), found);
    let points = fields.text("points", found);
    let given: Vec<&str> =
        ["random", "at"].into_iter().filter(|k| fields.item(k).is_some()).collect();
    if let [_, second] = given[..] {
        wrong(found, &fields.place(second), "both `random` and `at`", "use one of them");
        return None;
    }
    let instants = match (points, random, at) {
        (None | Some("random"), Some(n), None) => Instants::Random(n),
        (None, None, Some(ns)) => Instants::At(ns),
        (None | Some("every"), None, None) => Instants::Every,
        (Some("random"), None, None) => {
            wrong(found, &fields.place("points"), "how many instants?", "write `random = 1000`");
            return None;
        }
        (Some(other), ..) => {
            let what = format!("`{other}`: unknown crash points");
            wrong(
                found,
                &fields.place("points"),
                what,
                "`points = \"every\"`, or `random = N`, or `at = \"120s\"`",
            );
            return None;
        }
        (None, Some(_), Some(_)) => return None,
    };
    settings.push(match instants {
        Instants::Every => ("crash.points".to_owned(), quoted("every")),
        Instants::Random(n) => ("crash.random".to_owned(), n.to_string()),
        Instants::At(ns) => ("crash.at".to_owned(), quoted(&Unit::Time(1).text(ns))),
    });
    Some(instants)
}

/// The rules that are looked for; all but the user's own command if none are named.
fn rules(fields: &Fields<'_>, found: &mut Vec<Diagnostic>) -> Vec<Rule> {
    let known: Vec<Rule> = Rule::ALL.into_iter().filter(|r| *r != Rule::Application).collect();
    if fields.item("check").is_none() {
        return known;
    }
    let mut all = Vec::new();
    for (name, at) in fields.texts("check", found) {
        // The words of a check that people know, beside the rules' own.
        let rule = match name {
            "mount" => Some(Rule::Recoverable),
            "fsck" => Some(Rule::Metadata),
            name => known.iter().copied().find(|r| r.name() == name),
        };
        match rule {
            Some(rule) => all.push(rule),
            None => {
                let mut names = vec!["mount", "fsck"];
                names.extend(known.iter().map(|r| r.name()));
                let help = suggest("there are", &names, name);
                wrong(found, &at, format!("no rule called `{name}`"), help);
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

fn profile(fields: &Fields<'_>, mounted: Profile, found: &mut Vec<Diagnostic>) -> Profile {
    if fields.item("require").is_none() {
        return mounted;
    }
    let mut profile = Profile { syncs_only_order: mounted.syncs_only_order, ..Profile::POSIX };
    for (word, at) in fields.texts("require", found) {
        if !line::hold(&mut profile, word) {
            let help = match line::renamed(word) {
                Some(new) => format!("it was renamed: write `{new}`"),
                None => suggest("there are", &line::RULES, word),
            };
            wrong(found, &at, format!("`require`: no rule called `{word}`"), help);
        }
    }
    profile
}

/// The program that is cut. Errors: a workload that is none.
fn program(work: &Work, no_fallocate: bool, seed: u64) -> Result<Program, String> {
    match &work.kind {
        Kind::Program(program) => Ok(program.clone()),
        Kind::Entry(entry, options) if entry.name == "fio" => {
            let job = options.get("job", entry.options).unwrap_or_default();
            let vars = options.get("vars", entry.options).unwrap_or_default();
            let vars = workload::fio::variables(vars)?;
            let loaded = workload::fio::read(std::path::Path::new(job), &vars)
                .map_err(|e| format!("{job}: {e}"))?;
            let chance = fio_chance(seed);
            loaded.file.program(RunOptions { chance, no_fallocate, ..RunOptions::default() })
        }
        Kind::Entry(entry, _) => {
            Err(format!("the promises of `{}` are not known call by call", entry.name))
        }
    }
}

/// What jobs with `randrepeat=0` begin with.
fn fio_chance(seed: u64) -> u64 {
    Rng::stream(seed, "fio").next_u64()
}

/// Cuts the power. Errors: a machine that cannot be, a program that cannot be played.
pub(super) fn run(plan: &CrashPlan, work: &Work, seed: u64) -> Result<Outcome, MachineError> {
    let no_fallocate = !plan.bench.fs.offers.fallocate;
    let program = program(work, no_fallocate, seed).map_err(MachineError::Config)?;
    let calls = program.0.iter().filter(|s| matches!(s, Step::Call(..))).count() as u64;
    let campaign = Campaign {
        space: plan.space,
        plan: plan.plan,
        seed,
        profile: plan.profile,
        check: plan.check.contains(&Rule::Metadata),
        ..Campaign::new(plan.bench.clone(), Source::Text(program.clone()), (0, 1))
    };
    let (totals, broken, mut notes, answered) = match plan.instants {
        Instants::Every => every(&campaign)?,
        instants => at_instants(plan, &campaign, &program, instants, seed)?,
    };
    if let Some(what) = answered.in_vain() {
        return Err(MachineError::Config(what));
    }
    if let Some(first) = answered.first.first() {
        let (failed, call, answer) = (answered.failed, &first.call, &first.answer);
        notes.push(format!("{failed} calls failed; the first was `{call}`: {answer}"));
    }
    let mut out = Outcome { notes, ..Outcome::default() };
    let mut all = 0;
    for rule in &plan.check {
        let n = broken.get(rule).copied().unwrap_or(0);
        all += n;
        out.metrics.insert(of_rule(*rule), Number::Int(n));
    }
    for (key, n) in [
        ("crash.instants", totals.cuts),
        ("crash.states", totals.raw),
        ("crash.recoveries", totals.distinct),
        ("crash.broken", all),
        ("crash.calls", calls),
        ("crash.failed_calls", answered.failed),
    ] {
        out.metrics.insert(key.to_owned(), Number::Int(n));
    }
    Ok(out)
}

type Counts = (Totals, BTreeMap<Rule, u64>, Vec<String>, Calls);

/// A failure in words.
fn tell(v: &Violation, when: &str) -> String {
    let place = v.offset.map_or(String::new(), |o| format!(" at byte {o}"));
    let file = if v.path.is_empty() { String::new() } else { format!(" {}", v.path) };
    let (rule, seen, expected) = (v.rule.name(), &v.seen, &v.expected);
    format!("{rule}{file}{place}: {seen}, expected: {expected} ({when})")
}

/// Every state of every instant.
fn every(campaign: &Campaign) -> Result<Counts, MachineError> {
    let found = wp_campaign::run(campaign, 1, &|_| true);
    if let Some((_, why)) = found.unplayed() {
        return Err(MachineError::Config(why.clone()));
    }
    let broken = Rule::ALL.into_iter().map(|r| (r, found.totals.broken[r as usize])).collect();
    let mut told: BTreeMap<Rule, String> = BTreeMap::new();
    for f in &found.found {
        let when = format!("frame {}, {} of its calls returned", f.frame, f.operations.1);
        told.entry(f.violation.rule).or_insert_with(|| tell(&f.violation, &when));
    }
    Ok((found.totals, broken, told.into_values().collect(), found.calls))
}

/// States of some instants; what is broken is counted in instants.
fn at_instants(
    plan: &CrashPlan,
    campaign: &Campaign,
    program: &Program,
    instants: Instants,
    seed: u64,
) -> Result<Counts, MachineError> {
    let played = play(&plan.bench, program)?;
    let history = plan.space.history(&played);
    let frames = frames(&played, &history, instants, seed)?;
    let subject = campaign.subject(&played, campaign.check);
    let mut explorer = Explorer::new(&subject, campaign.options(plan.plan, played.partition));
    explorer.expect(std::iter::once(&history));
    let mut case = Case::new(&played.tape, &history, &played.ledger);
    let mut totals = Totals { programs: 1, ..Totals::default() };
    let mut broken: BTreeMap<Rule, u64> = BTreeMap::new();
    let mut told: BTreeMap<Rule, String> = BTreeMap::new();
    for (frame, n) in frames {
        let mut states: Vec<Kept> = Vec::new();
        // Also what earlier frames had: those need not be among the instants.
        let visited = of_instant(&history, frame, &plan.plan, seed, &mut |kept: &Kept| {
            states.push(kept.clone());
            true
        });
        totals.cuts += n;
        totals.raw += states.len() as u64;
        totals.cuts_sampled += u64::from(!visited.complete);
        let seen: RefCell<BTreeMap<Rule, Violation>> = RefCell::default();
        explorer.visit(&mut case, frame, &mut states.into_iter(), &mut |_, look| {
            for v in &look.violations.news {
                seen.borrow_mut().entry(v.rule).or_insert_with(|| v.clone());
            }
            true
        });
        for (rule, v) in seen.into_inner() {
            *broken.entry(rule).or_default() += n;
            let at = played.tape.entries.get(history.frames[frame].pos).map_or(0, |(at, _)| at.0);
            told.entry(rule).or_insert_with(|| tell(&v, &format!("power failure at {at} ns")));
        }
    }
    totals.distinct = explorer.totals.distinct;
    let answered = Calls::of(0, program, &played.dids);
    Ok((totals, broken, told.into_values().collect(), answered))
}

/// The frames in which the instants lie, with how many of them each has.
fn frames(
    played: &Played,
    history: &History,
    instants: Instants,
    seed: u64,
) -> Result<BTreeMap<usize, u64>, MachineError> {
    let entries = &played.tape.entries;
    let ends = (entries.first(), entries.last());
    let (Some((Time(from), _)), Some((Time(to), _))) = ends else {
        return Err(MachineError::Config("the program has no crash point".to_owned()));
    };
    let at_of = |frame: &wp_crash::Frame| entries.get(frame.pos).map_or(0, |(at, _)| at.0);
    let of = |instant: u64| {
        let after = history.frames.partition_point(|f| at_of(f) <= instant);
        after.saturating_sub(1)
    };
    let mut frames: BTreeMap<usize, u64> = BTreeMap::new();
    match instants {
        Instants::At(ns) => {
            if !(*from..=*to).contains(&ns) {
                let time = |ns: u64| Unit::Time(1).text(ns);
                let (from, to) = (time(*from), time(*to));
                let what = format!("the program runs from {from} to {to}, not at {}", time(ns));
                return Err(MachineError::Config(what));
            }
            frames.insert(of(ns), 1);
        }
        Instants::Random(n) => {
            let mut rng = Rng::stream(seed, "instants");
            for _ in 0..n {
                *frames.entry(of(from + rng.below((to - from).max(1)))).or_default() += 1;
            }
        }
        Instants::Every => {}
    }
    Ok(frames)
}
