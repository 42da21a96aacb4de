//! `resolved.toml`: the experiment with every default filled in and every path that of the results.
//!
//! Laws: it is an experiment file, and resolves to itself; it gives the same runs as the file that
//!       it came from. A setting stands in its table where all points that the sweep does not give
//!       it agree on it; what follows from swept keys is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::keys;
use super::resolve::{Files, Settings};
use super::source::{Table, Value, key, quoted};
use super::sweep::{Axis, Sweep};

/// Settings of the points seen so far, of those points that the sweep does not give them.
#[derive(Default)]
pub struct Common {
    values: BTreeMap<String, String>,
    differ: BTreeSet<String>,
    /// Points seen that might have had a key, by keys that the sweep puts; and all.
    seen: Vec<BTreeSet<String>>,
    points: usize,
}

impl Common {
    /// Takes in a point: its settings, and the keys that the sweep put.
    pub fn add(&mut self, settings: &Settings, put: &BTreeSet<String>) {
        for (key, value) in settings.iter().filter(|(key, _)| !is_put(key, put)) {
            match self.values.get(key) {
                Some(known) if known != value => drop(self.differ.insert(key.clone())),
                Some(_) => {}
                None => {
                    // Earlier points might have had it, and had not.
                    if self.seen.iter().any(|before| !is_put(key, before)) {
                        self.differ.insert(key.clone());
                    }
                    self.values.insert(key.clone(), value.clone());
                }
            }
        }
        let here: BTreeSet<&str> = settings.iter().map(|(k, _)| k.as_str()).collect();
        for key in self.values.keys().filter(|k| !here.contains(k.as_str()) && !is_put(k, put)) {
            self.differ.insert(key.clone());
        }
        if !self.seen.contains(put) {
            self.seen.push(put.clone());
        }
        self.points += 1;
    }

    fn of<'a>(&'a self, section: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.values.iter().filter(|(key, _)| !self.differ.contains(*key)).filter_map(
            move |(key, value)| {
                let rest = key.strip_prefix(section)?.strip_prefix('.')?;
                Some((rest, value.as_str()))
            },
        )
    }
}

/// Does the sweep give a point this key, or a table that holds it?
fn is_put(key: &str, put: &BTreeSet<String>) -> bool {
    put.iter().any(|p| {
        key.strip_prefix(p.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// What stands at the beginning.
pub struct Head<'a> {
    /// Name.
    pub name: &'a str,
    /// What it is for.
    pub about: &'a str,
    /// First seed, and runs of each point.
    pub seeds: (u64, u64),
    /// Metrics of the terminal's table.
    pub show: &'a [String],
}

/// The text.
pub fn text(
    head: &Head<'_>,
    common: &Common,
    sweep: &Sweep,
    root: &Table,
    files: &Files,
) -> String {
    let mut t = String::new();
    let mut line = |text: String| writeln!(t, "{text}").expect("a string takes it");
    line(format!("schema = {}", quoted(keys::SCHEMA)));
    line(format!("name = {}", quoted(head.name)));
    if !head.about.is_empty() {
        line(format!("about = {}", quoted(head.about)));
    }
    line(format!("seed = {}", head.seeds.0));
    line(format!("repeat = {}", head.seeds.1));
    if !head.show.is_empty() {
        let all: Vec<String> = head.show.iter().map(|s| quoted(s)).collect();
        line(format!("show = [{}]", all.join(", ")));
    }
    for section in ["machine", "device", "fs", "workload", "measure", "crash"] {
        let is_there = section == "workload" || root.get(section).is_some();
        let mut all = common.of(section).peekable();
        if all.peek().is_some() || (is_there && section == "crash") {
            line(format!("\n[{section}]"));
            all.for_each(|(key, value)| line(format!("{key} = {value}")));
        }
    }
    if !sweep.axes.is_empty() {
        line("\n[sweep]".to_owned());
        sweep.axes.iter().flat_map(|a| axis(a, files)).for_each(&mut line);
        let zips: Vec<String> = sweep
            .axes
            .iter()
            .filter(|a| a.keys.len() > 1)
            .map(|a| {
                let all: Vec<String> = a.keys.iter().map(|k| quoted(k)).collect();
                format!("[{}]", all.join(", "))
            })
            .collect();
        if !zips.is_empty() {
            line(format!("zip = [{}]", zips.join(", ")));
        }
    }
    for section in ["points", "vary"] {
        let Some(Value::Table(table)) = root.item(section).map(|i| &i.value) else { continue };
        line(format!("\n[{section}]"));
        for e in &table.0 {
            line(format!("{} = {}", key(&e.key), e.item.value.to_toml()));
        }
    }
    if let Some(Value::List(claims)) = root.item("claim").map(|i| &i.value) {
        for claim in claims {
            let Value::Table(table) = &claim.value else { continue };
            line("\n[[claim]]".to_owned());
            for e in &table.0 {
                line(format!("{} = {}", key(&e.key), e.item.value.to_toml()));
            }
        }
    }
    t
}

/// The lines of an axis.
fn axis(axis: &Axis, files: &Files) -> Vec<String> {
    let value = |name: &str, value: &Value| match (name, value) {
        ("workload.fio" | "workload.wml" | "workload.program", Value::Text(path)) => {
            quoted(files.names.get(path).unwrap_or(path))
        }
        _ => value.to_toml(),
    };
    let line = |(column, name): (usize, &String)| {
        let choices = axis.choices.iter().map(|choice| {
            if name.contains('.') {
                let found = choice.puts().find(|(key, _)| key == name);
                return found.map_or_else(String::new, |(key, v)| value(key, v));
            }
            let label = format!("as = {}", quoted(&choice.labels[column]));
            let puts =
                choice.own_puts(column).map(|(k, v)| format!("{} = {}", key(k), value(k, v)));
            let all: Vec<String> = std::iter::once(label).chain(puts).collect();
            format!("{{ {} }}", all.join(", "))
        });
        let all: Vec<String> = choices.collect();
        format!("{} = [{}]", key(name), all.join(", "))
    };
    axis.keys.iter().enumerate().map(line).collect()
}
