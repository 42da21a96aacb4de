//! The workload of a point: one of the registry's, a file, or a program of system calls.

use wp_machine::registry;
use wp_machine::workload::WorkloadEntry;
use wp_vfs::{OptionSpec, Options};
use wp_workload::fio::{Diagnostic, Place};
use wp_workload::program::{NO_THREADS, Program, Step};

use super::read::{Fields, suggest, wrong};
use super::resolve::{Files, Settings, options, settle};
use super::source::{Table, Value, key, quoted};
use super::units::Unit;

/// What is run.
#[derive(Clone)]
pub struct Work {
    /// What.
    pub kind: Kind,
    /// It begins at a random moment within this number of nanoseconds.
    pub start_within_ns: u64,
}

/// One of two kinds.
#[derive(Clone)]
pub enum Kind {
    /// Of the registry, with its options.
    Entry(&'static WorkloadEntry, Options),
    /// A program.
    Program(Program),
}

/// The workload whose files and phases are known.
const PHASED: &str = "fsync-last";
/// The keys that say what is run.
const WHICH: [&str; 5] = ["name", "fio", "wml", "program", "script"];

impl Work {
    /// Are its phases known, so that blocks can be counted by them?
    pub fn has_phases(&self) -> bool {
        matches!(self.kind, Kind::Entry(w, _) if w.name == PHASED)
    }

    /// An option's value.
    pub fn option(&self, key: &str) -> Option<&str> {
        match &self.kind {
            Kind::Entry(w, options) => options.get(key, w.options),
            Kind::Program(_) => None,
        }
    }
}

/// Reads `[workload]`. `None`: errors were found.
pub(super) fn read(
    (table, at): (&Table, &Place),
    files: &mut Files,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<Work> {
    let given: Vec<&str> = WHICH.into_iter().filter(|k| table.get(k).is_some()).collect();
    let which = match given[..] {
        [one] => one,
        [] => {
            let help = "write one of name, fio, wml, program, script";
            wrong(found, at, "[workload] names no workload", help);
            return None;
        }
        [first, second, ..] => {
            let at = table.get(second).map_or(at, |e| &e.at);
            wrong(found, at, format!("both `{first}` and `{second}`"), "a workload is one of them");
            return None;
        }
    };
    let entry = match which {
        "fio" => Some(registered("fio")),
        "wml" => Some(registered("filebench")),
        "name" => Some(by_name(table, found)?),
        _ => None,
    };
    let known: Vec<&str> = entry.map_or_else(Vec::new, visible);
    let before = found.len();
    let fields = Fields::new("workload", (table, at), &known, found);
    let start = fields.unit("start_within", Unit::Time(1), found).unwrap_or(0);
    let kind = match entry {
        Some(entry) => of_registry(which, entry, &fields, files, settings, found)?,
        None => Kind::Program(program(which, &fields, files, settings, found)?),
    };
    settings.push(("workload.start_within".to_owned(), quoted(&Unit::Time(1).text(start))));
    (found.len() == before).then_some(Work { kind, start_within_ns: start })
}

fn registered(name: &str) -> &'static WorkloadEntry {
    let found = registry::WORKLOADS.iter().find(|w| w.name == name);
    found.expect("it is in the table")
}

/// Its options, without those that a file or `vars` stands for.
fn visible(entry: &WorkloadEntry) -> Vec<&'static str> {
    let hidden: &[&str] = match entry.name {
        "fio" => &["job", "vars"],
        "filebench" => &["file", "set"],
        _ => &[],
    };
    entry.options.iter().map(|o| o.key).filter(|k| !hidden.contains(k)).collect()
}

fn by_name(table: &Table, found: &mut Vec<Diagnostic>) -> Option<&'static WorkloadEntry> {
    let item = table.item("name")?;
    let Value::Text(name) = &item.value else {
        let what = format!("`workload.name` takes a string, not {}", item.value.kind());
        wrong(found, &item.at, what, "as in `name = \"varmail\"`");
        return None;
    };
    if name == "fio" {
        let help = "write `fio = \"FILE\"` in place of `name`";
        wrong(found, &item.at, "fio needs its job file", help);
        return None;
    }
    let entry = registry::WORKLOADS.iter().find(|w| w.name == name);
    if entry.is_none() {
        let names: Vec<&str> = registry::WORKLOADS.iter().map(|w| w.name).collect();
        let what = format!("no workload called `{name}`");
        wrong(found, &item.at, what, suggest("there are", &names, name));
    }
    entry.copied()
}

/// Variables of a job or text, as its option has them.
fn variables(
    entry: &WorkloadEntry,
    fields: &Fields<'_>,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> String {
    let Some((table, at)) = fields.table("vars", found) else { return String::new() };
    if !matches!(entry.name, "fio" | "filebench") {
        wrong(
            found,
            at,
            format!("{} has no variables", entry.name),
            "only fio and wml have variables",
        );
    }
    let mut all = Vec::new();
    for e in &table.0 {
        match e.item.value.word() {
            Some(word) if !word.contains(';') && !e.key.contains([':', ';']) => {
                settings.push((format!("workload.vars.{}", key(&e.key)), quoted(&word)));
                all.push(format!("{}:{word}", e.key));
            }
            _ => {
                wrong(found, &e.item.at, "a variable is a string or a number, without `;`", "");
            }
        }
    }
    all.join(";")
}

fn of_registry(
    which: &str,
    entry: &'static WorkloadEntry,
    fields: &Fields<'_>,
    files: &mut Files,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<Kind> {
    let before = found.len();
    let (specs, known) = (entry.options, visible(entry));
    let given = fields.others().filter(|e| known.contains(&e.key.as_str()));
    let mut all = options("workload", (entry.name, specs), given, found);
    let seen: Vec<OptionSpec> = specs.iter().filter(|o| known.contains(&o.key)).copied().collect();
    settle("workload", (entry.name, &seen), &all, settings);
    let vars = variables(entry, fields, settings, found);
    if found.len() > before {
        return None;
    }
    let mut set = |key: &str, value: &str| {
        all.set(key, value, specs).expect("an option of its table");
    };
    if !vars.is_empty() {
        set(if entry.name == "fio" { "vars" } else { "set" }, &vars);
    }
    if which == "name" {
        settings.push(("workload.name".to_owned(), quoted(entry.name)));
    } else {
        let path = fields.text(which, found)?;
        let key = if which == "fio" { "job" } else { "file" };
        set(key, &files.host(path).to_string_lossy());
        let kept = match (entry.inputs)(&all) {
            Ok(inputs) => match &inputs[..] {
                [(_, bytes), others @ ..] => files.keep(path, bytes, others),
                [] => Err("it is empty".to_owned()),
            },
            Err(e) => Err(e.why.trim().to_owned()),
        };
        match kept {
            Ok(stored) => settings.push((format!("workload.{which}"), quoted(&stored))),
            Err(why) => {
                let help = "paths are relative to the folder of this file";
                wrong(found, &fields.place(which), format!("{path}: {why}"), help);
                return None;
            }
        }
    }
    if let Err(e) = (entry.check)(&all) {
        let at = fields.place(if fields.item(&e.key).is_some() { &e.key } else { which });
        let value = match e.value.is_empty() {
            true => String::new(),
            false => format!(" cannot be `{}`", e.value),
        };
        wrong(found, &at, format!("`workload.{}`{value}: {}", e.key, e.why.trim()), "");
        return None;
    }
    Some(Kind::Entry(entry, all))
}

fn program(
    which: &str,
    fields: &Fields<'_>,
    files: &mut Files,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<Program> {
    let item = fields.item(which)?;
    let mut lines: Vec<(&str, &Place)> = Vec::new();
    match (which, &item.value) {
        ("program", Value::Text(path)) => return of_file(path, &item.at, files, settings, found),
        ("script", Value::Text(text)) => lines.extend(text.lines().map(|l| (l, &item.at))),
        ("script", Value::List(items)) => {
            for i in items {
                match &i.value {
                    Value::Text(text) => lines.push((text, &i.at)),
                    other => {
                        wrong(found, &i.at, format!("a step is a string, not {}", other.kind()), "")
                    }
                }
            }
        }
        (_, other) => {
            let what = format!("`workload.{which}` takes a string, not {}", other.kind());
            wrong(found, &item.at, what, "");
            return None;
        }
    }
    let before = found.len();
    for (line, at) in &lines {
        if let Err(e) = Program::parse(line) {
            let why = e.split_once(": ").map_or(e.as_str(), |(_, why)| why);
            let help = "steps are as in docs/experiments.md: `open 0 f rw,creat`, `fsync 0`";
            wrong(found, at, format!("`{}`: {why}", line.trim()), help);
        }
    }
    if found.len() > before {
        return None;
    }
    let text: Vec<&str> = lines.iter().map(|(line, _)| *line).collect();
    let program = parse(&text.join("\n"), "script", &item.at, found)?;
    let steps: Vec<String> = program.0.iter().map(|s| quoted(&s.to_string())).collect();
    settings.push(("workload.script".to_owned(), format!("[{}]", steps.join(", "))));
    Some(program)
}

fn of_file(
    path: &str,
    at: &Place,
    files: &mut Files,
    settings: &mut Settings,
    found: &mut Vec<Diagnostic>,
) -> Option<Program> {
    let bytes = match files.read(path) {
        Ok(bytes) => bytes,
        Err(e) => {
            let help = "paths are relative to the folder of this file";
            wrong(found, at, format!("{path}: {e}"), help);
            return None;
        }
    };
    let stored = match files.keep(path, &bytes, &[]) {
        Ok(stored) => stored,
        Err(why) => {
            wrong(found, at, format!("{path}: {why}"), "");
            return None;
        }
    };
    settings.push(("workload.program".to_owned(), quoted(&stored)));
    parse(&String::from_utf8_lossy(&bytes), path, at, found)
}

fn parse(text: &str, name: &str, at: &Place, found: &mut Vec<Diagnostic>) -> Option<Program> {
    match Program::parse(text) {
        Ok(program) if program.has_threads() => {
            wrong(found, at, format!("{name}: {NO_THREADS}"), "remove its threads");
            None
        }
        Ok(program) if program.0.iter().any(|s| matches!(s, Step::Call(..))) => Some(program),
        Ok(_) => {
            wrong(found, at, format!("{name}: a program without a call"), "");
            None
        }
        Err(e) => {
            wrong(found, at, format!("{name}: {e}"), "");
            None
        }
    }
}
