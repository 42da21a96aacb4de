//! What `crash` says.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value, json};
use wp_base::plain;
use wp_campaign::{Calls, Campaign, FailedCall, Findings, Found, Source, line as command_line};
use wp_crash::{Rule, Totals, Violation};
use wp_workload::program::Interleavings;

use super::log;
use super::reduced::Reduced;
use super::setup::Exploration;

const LINE: &str = "a string takes it";

/// What was done in this run of the command.
pub(super) struct Session {
    /// Wall time.
    pub seconds: f64,
    /// States visited.
    pub raw: u64,
    /// States recovered.
    pub distinct: u64,
    /// Threads.
    pub workers: usize,
    /// Does the same command go on?
    pub resumes: bool,
    /// Of a log that breaks rules: those that a replay of it breaks as well.
    pub at_prefixes: Option<BTreeSet<Rule>>,
}

/// A broken rule in a line.
pub(super) fn violation(v: &Violation) -> String {
    let at = v.offset.map_or(String::new(), |o| format!(" at byte {o}"));
    let path = match (v.rule, &*v.path) {
        (Rule::Application, "") => "the recovered files",
        (_, "") => "the image",
        (_, path) => path,
    };
    let line = format!("{path}{at}: {}; expected {}", v.seen, v.expected);
    plain::name(&line).into_owned()
}

/// A broken rule for programs.
pub(super) fn violation_document(v: &Violation) -> Value {
    json!({
        "rule": v.rule.name(), "path": v.path, "offset": v.offset, "expected": v.expected,
        "seen": v.seen,
    })
}

/// A failure for programs.
pub(super) fn failure(x: &Exploration, f: &Found) -> Value {
    let c = &x.campaign;
    let mut doc = violation_document(&f.violation);
    doc["kind"] = json!("failure");
    doc["program"] = json!(f.program);
    doc["frame"] = json!(f.frame);
    doc["lost"] = json!(f.lost);
    doc["replay"] = json!(replay(x, f));
    if threads(c).is_some() {
        doc["interleaving"] = json!(c.source.program(f.program).to_string());
    }
    doc
}

/// The command line that shows a failure.
pub(super) fn replay(x: &Exploration, f: &Found) -> String {
    state_line(x, f.program, (f.frame, &f.lost))
}

/// The command line that shows a state.
pub(super) fn state_line(x: &Exploration, program: u64, state: (usize, &[usize])) -> String {
    let c = &x.campaign;
    // An interleaving is said by its text: which number it has depends on how many are explored.
    let one = match &c.source {
        Source::Threads(_) => Some((c.source.program(program), 0)),
        Source::Lives(lives) if lives.threads().is_some() => Some(lives.whole(program)),
        _ => None,
    };
    let (word, generator, program) = match one {
        Some((text, first)) => (command_line::quoted(&text), String::new(), first),
        None => (x.programs.quoted(), x.generator(), program),
    };
    let first = if program == 0 { String::new() } else { format!(" --first {program}") };
    format!("{}{generator}{first}", command_line::state(c, &word, state))
}

/// Names in the document, words of the table, and numbers.
fn numbers(t: &Totals) -> Vec<(&'static str, &'static str, u64)> {
    vec![
        ("programs", "programs", t.programs),
        ("cuts", "crash points", t.cuts),
        ("cuts_sampled", "sampled crash points", t.cuts_sampled),
        ("most_units_in_doubt", "most unpersisted writes", u64::from(t.most_in_doubt)),
        ("raw_states", "crash states", t.raw),
        ("distinct_states__each_recovered", "distinct recovered states", t.distinct),
        ("judged", "checks of states", t.judged),
        ("cuts_during_recovery", "crashed recoveries", t.second),
        ("mounts_that_were_cut", "crashed mounts", t.mounts),
    ]
}

/// What was explored, also of a part that was stopped.
pub(super) fn explored(f: &Findings) -> Totals {
    let mut all = f.totals;
    if let Some(part) = &f.unfinished {
        all.add(&part.totals);
    }
    all
}

/// Calls of the programs, also of a part that was stopped.
fn all_calls(f: &Findings) -> Calls {
    let mut all = f.calls.clone();
    if let Some(part) = &f.unfinished {
        all.add(part.calls.clone());
    }
    all
}

/// The capacity of the device as options say it.
fn size(x: &Exploration) -> String {
    let given = x.setup.words.size.clone();
    let of = |(key, n): &(String, u64)| (key == "capacity_bytes").then(|| format!("{}M", n >> 20));
    given.or_else(|| x.campaign.bench.device_params.iter().find_map(of)).unwrap_or_default()
}

/// A program's number, and which life of which state it is.
fn named(c: &Campaign, n: u64) -> String {
    match &c.source {
        Source::Lives(lives) => format!("{n} ({})", lives.describe(n)),
        Source::Threads(_) => format!("{n} (interleaving {})", n + 1),
        _ => n.to_string(),
    }
}

/// The interleavings of a program with threads.
fn threads(c: &Campaign) -> Option<&Interleavings> {
    match &c.source {
        Source::Threads(all) => Some(all),
        Source::Lives(lives) => lives.threads(),
        _ => None,
    }
}

/// How many interleavings are explored, and how many there are: in words, and for programs.
fn interleavings(c: &Campaign) -> Option<(String, Value)> {
    let all = threads(c)?;
    let (explored, is_all) = match &c.source {
        Source::Threads(_) => {
            let explored = c.programs.1 - c.programs.0;
            (explored, all.is_complete() && explored == all.programs().len() as u64)
        }
        _ => (all.programs().len() as u64, all.is_complete()),
    };
    let words = format!("{explored} of {}", all.total());
    let sampled = if is_all { "" } else { ", sampled" };
    let line = format!("  {:<26} {words:>14}{sampled}\n", "interleavings");
    let value = json!({ "explored": explored, "of": all.total(), "complete": is_all });
    Some((line, value))
}

/// Where a failed call stands: its line in the user's program, or its number.
fn place(x: &Exploration, f: &FailedCall) -> String {
    let c = &x.campaign;
    if threads(c).is_some() {
        return format!("program {}", named(c, f.program));
    }
    let before = match &c.source {
        Source::Lives(lives) => lives.steps_before(f.program),
        _ => 0,
    };
    let step = f.step + before;
    match x.programs.lines() {
        Some(lines) => format!("line {}", lines.get(step).copied().unwrap_or(step + 1)),
        None if x.programs.is_written() => format!("step {}", step + 1),
        None => format!("program {}, step {}", f.program, f.step + 1),
    }
}

/// Calls that failed. Of generated programs only how many: they try what may fail.
pub(super) fn calls(x: &Exploration, f: &Findings) -> String {
    let all = all_calls(f);
    let mut t = String::new();
    if all.expected > 0 {
        let n = all.expected;
        writeln!(t, "  {n} of {} calls failed as the program expects", all.made).expect(LINE);
    }
    if all.failed == 0 {
        return t;
    }
    write!(t, "  {} of {} calls failed", all.failed, all.made).expect(LINE);
    if !x.programs.is_written() {
        t += "\n";
        return t;
    }
    for (n, call) in all.first.iter().enumerate() {
        let gap = if n == 0 { ": " } else { "\n    " };
        write!(t, "{gap}{} `{}`: {}", place(x, call), call.call, call.answer).expect(LINE);
    }
    let more = all.failed - all.first.len() as u64;
    if more > 0 {
        write!(t, "\n    and {more} more").expect(LINE);
    }
    t += "\n";
    t
}

/// Calls that failed, for programs.
fn calls_document(x: &Exploration, f: &Findings) -> Value {
    let all = all_calls(f);
    let first: Vec<Value> = all
        .first
        .iter()
        .map(|call| {
            json!({
                "program": call.program, "step": call.step, "place": place(x, call),
                "call": call.call, "answer": call.answer,
            })
        })
        .collect();
    json!({
        "made": all.made, "failed": all.failed, "failed_as_expected": all.expected,
        "short_writes": all.short, "first_failed": first,
    })
}

/// Programs that were not explored.
fn not_played(c: &Campaign, f: &Findings) -> String {
    let mut t = String::new();
    if f.not_played.is_empty() {
        return t;
    }
    let all = c.programs.1 - c.programs.0;
    writeln!(t, "  {} of {all} programs were not explored:", f.not_played.len()).expect(LINE);
    for (n, why) in f.not_played.iter().take(3) {
        writeln!(t, "    program {n} could not run: {why}").expect(LINE);
    }
    t
}

/// How far a campaign came that was stopped.
fn stopped(c: &Campaign, f: &Findings, session: &Session) -> String {
    if f.done >= c.programs.1 {
        return String::new();
    }
    let how = match session.resumes {
        true => "run the same command to resume".to_owned(),
        false if c.programs.1 - c.programs.0 == 1 => "a longer --budget explores more".to_owned(),
        false => format!("resume with --first {}, or use --state-file", f.done),
    };
    let at = match &f.unfinished {
        None => format!("before program {}", f.done),
        Some(u) => format!(
            "in program {} after {} of {} crash points and {} states",
            u.program, u.frames, u.of_frames, u.totals.raw
        ),
    };
    format!("  incomplete: stopped {at}; {how}\n")
}

/// The file system as it was given, with the kernel version that it follows if none was.
fn with_era(x: &Exploration) -> String {
    let (bench, fs) = (&x.campaign.bench, &x.setup.words.fs);
    let era = bench.fs_options.get("era", bench.fs.options).filter(|_| !fs.contains("era="));
    era.map_or_else(|| fs.clone(), |era| format!("{fs},era={era}"))
}

/// For people.
pub(super) fn text(x: &Exploration, f: &Findings, least: &[Reduced], session: &Session) -> String {
    let (c, words) = (&x.campaign, &x.setup.words);
    let mut t = match &c.source {
        Source::Log(run) => log::head(run, &with_era(x), &words.space),
        _ => format!(
            "{} on {} ({}), {} crash states, free blocks {}:\n",
            with_era(x),
            words.device,
            size(x),
            words.space,
            if c.bench.stale { "hold old data" } else { "are trimmed" }
        ),
    };
    let explored = explored(f);
    t += &interleavings(c).map(|(line, _)| line).unwrap_or_default();
    let is_log = matches!(c.source, Source::Log(_));
    for (_, name, n) in numbers(&explored).into_iter().skip(usize::from(is_log)) {
        writeln!(t, "  {name:<26} {n:>14}").expect(LINE);
    }
    t += &calls(x, f);
    let rate = |n: u64| n as f64 / session.seconds.max(1e-9);
    writeln!(
        t,
        "  {:<26} {:>14.0} states/s, {:.0} distinct/s, {} threads, {}",
        "speed",
        rate(session.raw),
        rate(session.distinct),
        session.workers,
        if c.check { "images checked by fsck" } else { "no fsck (--no-check)" }
    )
    .expect(LINE);
    t += &sampling(c, &explored);
    t += &not_played(c, f);
    t += &stopped(c, f, session);
    for rule in Rule::ALL {
        let states = explored.broken[rule as usize];
        t += &verdict(x, f, (rule, states));
        t += &at_prefixes(session, (rule, states));
    }
    t += &known(c, f);
    t += &checks(x, session);
    for l in least {
        t += &l.text(c);
    }
    t
}

/// What was not explored at crash points that have too many states.
fn sampling(c: &Campaign, explored: &Totals) -> String {
    let mut t = String::new();
    let Totals { cuts_sampled, most_in_doubt, cuts_thinned, .. } = *explored;
    if cuts_sampled > 0 && c.plan.most < u64::MAX {
        writeln!(
            t,
            "  {cuts_sampled} crash points have more states (of up to {most_in_doubt} unpersisted writes); of each, Writepath\n  \
             explored at most {}: everything kept, single losses, prefixes and random states.",
            c.plan.most
        )
        .expect(LINE);
    } else if cuts_sampled > 0 {
        writeln!(
            t,
            "  {cuts_sampled} crash points have more than {} unpersisted writes (up to 2^{most_in_doubt} states); of each,\n  \
             Writepath explored prefixes, single losses, pair losses of up to {} writes,\n  \
             single survivors and {} random states.",
            c.plan.complete, c.plan.pairs, c.plan.samples
        )
        .expect(LINE);
    }
    if cuts_thinned > 0 {
        writeln!(
            t,
            "  At {cuts_thinned} of them recovery reads thousands of the unpersisted writes; of those, Writepath\n  \
             explored prefixes, single losses and single survivors at even distances.",
        )
        .expect(LINE);
    }
    t
}

/// Is the file system held to a rule?
fn is_held(c: &Campaign, rule: Rule) -> bool {
    match rule {
        Rule::Metadata => c.check,
        Rule::Application => c.command.is_some(),
        _ if c.profile.image_alone => rule == Rule::Recoverable,
        Rule::SizeAhead => c.profile.size_with_data || c.profile.cut_stays_cut,
        Rule::TailAhead => c.profile.tail_with_data,
        Rule::MixedVersions => c.profile.one_version || c.source.commits(),
        Rule::Order => c.profile.names_in_order,
        Rule::Replaced => c.profile.replaces_whole,
        _ => true,
    }
}

/// What became of a rule that is broken in some states, with the first of them.
fn verdict(x: &Exploration, f: &Findings, (rule, states): (Rule, u64)) -> String {
    let c = &x.campaign;
    let verdict = match (is_held(c, rule), states) {
        (false, _) => "not checked".to_owned(),
        (true, 0) if f.explored() == 0 => "not checked".to_owned(),
        (true, 0) if f.done < c.programs.1 => "ok so far".to_owned(),
        (true, 0) => "ok".to_owned(),
        (true, n) => format!("broken in {n} states"),
    };
    let mut t = format!("{:<20} {verdict}\n", rule.name());
    let unfinished = f.unfinished.iter().flat_map(|u| &u.found);
    if let Some(found) = f.found.iter().chain(unfinished).find(|f| f.violation.rule == rule) {
        let program = match &c.source {
            Source::Log(_) => String::new(),
            _ => format!("program {}: ", named(c, found.program)),
        };
        let (what, line) = (violation(&found.violation), replay(x, found));
        writeln!(t, "  {program}{what}\n  {line}").expect(LINE);
    }
    t
}

/// Does a replay of the log reach a state that breaks the rule?
fn at_prefixes(session: &Session, (rule, states): (Rule, u64)) -> String {
    match &session.at_prefixes {
        Some(rules) if states > 0 && rules.contains(&rule) => {
            "  also at a prefix of the log: dm-log-writes' replay reaches a state that breaks it\n"
                .to_owned()
        }
        Some(_) if states > 0 => {
            "  at no prefix of the log: dm-log-writes' replay reaches no state that breaks it\n"
                .to_owned()
        }
        _ => String::new(),
    }
}

/// Known failures, and whether they were met.
fn known(c: &Campaign, f: &Findings) -> String {
    let mut t = String::new();
    for (n, (entry, here)) in c.known.entries().enumerate() {
        let met = match (here, f.known.get(&n)) {
            (false, _) => "known failure of another setting".to_owned(),
            (true, Some(states)) => format!("known failure, in {states} states"),
            (true, None) => "known failure, NOT FOUND".to_owned(),
        };
        let path = plain::name(entry.path.as_deref().unwrap_or("*"));
        writeln!(t, "{:<20} {met}: {path}: {}", entry.rule, entry.why).expect(LINE);
    }
    t
}

/// What the user's command did.
fn checks(x: &Exploration, session: &Session) -> String {
    let (Some(command), Some(check)) = (&x.campaign.command, &x.setup.check) else {
        return String::new();
    };
    let r = command.runs();
    let per_s = r.runs as f64 / session.seconds.max(1e-9);
    let what = if command.sees_images() { "images" } else { "trees" };
    format!(
        "`{}`: {} {what} checked, {} failed, {per_s:.0}/s ({:.1} ms each); {} states have the\nsame {what} as an earlier one\n",
        check.line,
        r.runs,
        r.refused,
        r.spent.as_secs_f64() * 1e3 / r.runs.max(1) as f64,
        r.cached
    )
}

/// For programs.
pub(super) fn document(x: &Exploration, f: &Findings) -> Value {
    let c = &x.campaign;
    let explored = explored(f);
    let unfinished = f.unfinished.as_ref().map(|u| {
        json!({
            "program": u.program, "frames": u.frames, "of_frames": u.of_frames,
            "raw_states": u.totals.raw,
        })
    });
    let mut totals: Map<String, Value> =
        numbers(&explored).into_iter().map(|(key, _, n)| (key.to_owned(), json!(n))).collect();
    totals.insert("cuts_with_thinned_families".to_owned(), json!(explored.cuts_thinned));
    let broken: Map<String, Value> = Rule::ALL
        .iter()
        .map(|r| (r.name().to_owned(), json!(explored.broken[*r as usize])))
        .collect();
    let all = f.found.iter().chain(f.unfinished.iter().flat_map(|u| &u.found));
    let found: Vec<Value> = all.map(|found| failure(x, found)).collect();
    let known: Vec<Value> = c
        .known
        .entries()
        .enumerate()
        .map(|(n, (entry, here))| {
            json!({
                "rule": entry.rule, "path": entry.path, "why": entry.why, "of_this_setting": here,
                "states": f.known.get(&n).copied().unwrap_or(0),
            })
        })
        .collect();
    let not_played: Vec<Value> =
        f.not_played.iter().map(|(n, why)| json!({ "program": n, "why": why })).collect();
    let mut document = json!({
        "schema": "writepath.crash/1",
        "kind": "summary",
        "programs": [c.programs.0, c.programs.1],
        "done": f.done,
        "totals": totals,
        "broken": broken,
        "found": found,
        "known": known,
        "not_played": not_played,
        "check_cmd": c.command.as_ref().map(|c| c.runs()).map(|r| {
            json!({ "runs": r.runs, "refused": r.refused, "states_as_before": r.cached })
        }),
        "calls": calls_document(x, f),
        "complete": f.done >= c.programs.1,
        "unfinished": unfinished,
    });
    if let Some((_, value)) = interleavings(c) {
        document["interleavings"] = value;
    }
    if let Source::Log(run) = &c.source {
        document["log"] = log::document(run);
    }
    document
}
