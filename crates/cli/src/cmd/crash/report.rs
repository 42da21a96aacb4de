//! What `crash` says.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use wp_crash::{Rule, Totals, Violation};
use wp_lab::crash::{Campaign, Findings, Found, Source, line as command_line};

use super::Args;
use super::least::Least;

/// What was done in this run of the program.
pub(super) struct Speed {
    /// Wall time.
    pub seconds: f64,
    /// States visited.
    pub raw: u64,
    /// States recovered.
    pub distinct: u64,
}

/// A broken rule in a line.
pub(super) fn violation(v: &Violation) -> String {
    let at = v.offset.map_or(String::new(), |o| format!(" at byte {o}"));
    let path = match (v.rule, &*v.path) {
        (Rule::Application, "") => "the recovered files",
        (_, "") => "the image",
        (_, path) => path,
    };
    format!("{path}{at}: {}; expected {}", v.seen, v.expected)
}

/// A broken rule for programs.
pub(super) fn violation_document(v: &Violation) -> Value {
    json!({
        "rule": v.rule.name(), "path": v.path, "offset": v.offset, "expected": v.expected,
        "seen": v.seen,
    })
}

/// A failure for programs.
pub(super) fn failure(a: &Args, c: &Campaign, x: &Found) -> Value {
    let mut doc = violation_document(&x.violation);
    doc["kind"] = json!("failure");
    doc["program"] = json!(x.program);
    doc["frame"] = json!(x.frame);
    doc["lost"] = json!(x.lost);
    doc["replay"] = json!(replay(a, c, x));
    doc
}

/// What makes the same programs, machine and states.
pub(super) fn arguments(a: &Args, c: &Campaign) -> String {
    let mut t = match &c.source {
        Source::Text(p) if a.programs.contains([' ', ';', '\n']) => command_line::quoted(p),
        _ => a.programs.clone(),
    };
    if let Source::Wild { .. } = c.source {
        write!(t, " --calls {}", a.calls).expect("a string takes it");
        t += if a.no_direct { " --no-direct" } else { "" };
    }
    write!(t, " {}", command_line::arguments(c)).expect("a string takes it");
    t
}

fn replay(a: &Args, c: &Campaign, f: &Found) -> String {
    state_line(a, c, f.program, (f.frame, &f.lost))
}

/// The command line that shows a state.
pub(super) fn state_line(
    a: &Args,
    c: &Campaign,
    program: u64,
    (frame, lost): (usize, &[usize]),
) -> String {
    let lost: Vec<String> = lost.iter().map(usize::to_string).collect();
    let lost = if lost.is_empty() { String::new() } else { format!(":{}", lost.join(",")) };
    let first = if program == 0 { String::new() } else { format!(" --first {program}") };
    format!("writepath crash {}{first} --state {frame}{lost}", arguments(a, c))
}

fn numbers(t: &Totals) -> Vec<(&'static str, u64)> {
    vec![
        ("programs", t.programs),
        ("cuts", t.cuts),
        ("cuts sampled", t.cuts_sampled),
        ("most units in doubt", u64::from(t.most_in_doubt)),
        ("raw states", t.raw),
        ("distinct states, each recovered", t.distinct),
        ("judged", t.judged),
        ("cuts during recovery", t.second),
        ("mounts that were cut", t.mounts),
    ]
}

/// For people.
pub(super) fn text(a: &Args, c: &Campaign, f: &Findings, least: &[Least], speed: &Speed) -> String {
    let mut t = String::new();
    let line = "a string takes it";
    writeln!(
        t,
        "{} on {} ({}), {} states, {} free blocks:",
        a.fs,
        a.device,
        a.size,
        a.space,
        if a.trimmed { "trimmed" } else { "used" }
    )
    .expect(line);
    for (name, n) in numbers(&f.totals) {
        writeln!(t, "  {name:<34} {n:>14}").expect(line);
    }
    let rate = |n: u64| n as f64 / speed.seconds.max(1e-9);
    writeln!(
        t,
        "  {:<34} {:>14.0} raw, {:.0} distinct a second, {} threads, {}",
        "speed",
        rate(speed.raw),
        rate(speed.distinct),
        a.workers,
        if c.check { "each checked in full" } else { "not checked (--no-check)" }
    )
    .expect(line);
    if f.totals.cuts_sampled > 0 {
        writeln!(
            t,
            "  {} cuts have more than {} units in doubt (up to 2^{} states): prefixes, single and pair\n  \
             losses, single survivors and {} samples of each were visited.",
            f.totals.cuts_sampled, c.plan.complete, f.totals.most_in_doubt, c.plan.samples
        )
        .expect(line);
    }
    for (n, why) in f.not_played.iter().take(3) {
        writeln!(t, "  program {n} was not played: {why}").expect(line);
    }
    if f.done < c.programs.1 {
        let how = match a.state_file.is_some() {
            true => "the same command goes on".to_owned(),
            false => format!("go on with --first {}, or use --state-file", f.done),
        };
        writeln!(t, "  stopped before program {}: {how}", f.done).expect(line);
    }
    for rule in Rule::ALL {
        let n = f.totals.broken[rule as usize];
        let held = match rule {
            Rule::SizeAhead => c.profile.size_with_data || c.profile.cut_stays_cut,
            Rule::TailAhead => c.profile.tail_with_data,
            Rule::MixedVersions => c.profile.one_version,
            Rule::Order => c.profile.names_in_order,
            Rule::Replaced => c.profile.replaces_whole,
            Rule::Metadata => c.check,
            Rule::Application => c.command.is_some(),
            _ => true,
        };
        let verdict = match (held, n) {
            (false, _) => "not asked".to_owned(),
            (true, 0) => "never".to_owned(),
            (true, n) => format!("in {n} states"),
        };
        writeln!(t, "{:<20} broken {verdict}", rule.name()).expect(line);
        for found in f.found.iter().filter(|f| f.violation.rule == rule).take(1) {
            writeln!(
                t,
                "  program {}: {}\n  {}",
                found.program,
                violation(&found.violation),
                replay(a, c, found)
            )
            .expect(line);
        }
    }
    for (n, (entry, here)) in c.known.entries().enumerate() {
        let met = match (here, f.known.get(&n)) {
            (false, _) => "not of this setting".to_owned(),
            (true, Some(states)) => format!("known, in {states} states"),
            (true, None) => "known, and NEVER MET".to_owned(),
        };
        let path = entry.path.as_deref().unwrap_or("*");
        writeln!(t, "{:<20} {met}: {path}: {}", entry.rule, entry.why).expect(line);
    }
    if let Some(command) = &c.command {
        let r = command.runs();
        let per_s = r.runs as f64 / speed.seconds.max(1e-9);
        writeln!(
            t,
            "`{}`: run for {} trees, {} refused, {per_s:.0} a second ({:.1} ms each); {} states had \
             the tree and\nthe answers of one before",
            a.check_cmd.as_deref().unwrap_or(""),
            r.runs,
            r.refused,
            r.spent.as_secs_f64() * 1e3 / r.runs.max(1) as f64,
            r.cached
        )
        .expect(line);
    }
    for l in least {
        t += &l.text(c);
    }
    t
}

/// For programs.
pub(super) fn document(a: &Args, c: &Campaign, f: &Findings) -> Value {
    let totals: Map<String, Value> = numbers(&f.totals)
        .into_iter()
        .map(|(k, v)| (k.replace([' ', ','], "_"), json!(v)))
        .collect();
    let broken: Map<String, Value> = Rule::ALL
        .iter()
        .map(|r| (r.name().to_owned(), json!(f.totals.broken[*r as usize])))
        .collect();
    let found: Vec<Value> = f.found.iter().map(|x| failure(a, c, x)).collect();
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
    json!({
        "schema": "writepath.crash/1",
        "kind": "summary",
        "programs": [c.programs.0, c.programs.1],
        "done": f.done,
        "totals": totals,
        "broken": broken,
        "found": found,
        "known": known,
        "not_played": not_played,
    })
}
