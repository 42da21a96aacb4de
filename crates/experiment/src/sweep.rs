//! Sweeps: which values which keys have, from point to point.
//!
//! Picture:    `[sweep]` -> axes, each with its choices -> points, one choice of each axis, the
//!             first axis slowest -> a point's file: the file with the chosen values in it.
//! A choice puts values at dotted keys. `"fs.era" = ["3.4", "4.6"]` puts one; keys in `zip` are put
//! together; a name of one's own, `system = [{ as = "f2fs", "fs.kind" = "f2fs" }]`, puts any.

use std::collections::BTreeSet;

use wp_workload::fio::{Diagnostic, Place};

use super::read::{Fields, suggest, wrong};
use super::source::{Entry, Item, Table, Value};

/// Most runs of an experiment: at a tenth of a second each, three hours.
pub const RUNS_MAX: u64 = 100_000;
/// Tables whose keys can be swept.
const SECTIONS: [&str; 5] = ["machine", "device", "fs", "workload", "crash"];

/// Values that differ together.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its columns: the dotted keys, or its own name.
    pub keys: Vec<String>,
    /// Its choices, in order.
    pub choices: Vec<Choice>,
}

/// A choice of an axis.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What it is called in each column.
    pub labels: Vec<String>,
    /// What each column puts, where.
    puts: Vec<Vec<Put>>,
}

/// A value for a dotted key, with where the key stands.
type Put = (String, Place, Item);

impl Choice {
    /// What it puts, where.
    pub fn puts(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.puts.iter().flatten().map(|(key, _, item)| (key.as_str(), &item.value))
    }

    /// What one of its columns puts.
    pub fn own_puts(&self, column: usize) -> impl Iterator<Item = (&str, &Value)> {
        self.puts[column].iter().map(|(key, _, item)| (key.as_str(), &item.value))
    }
}

/// All axes, with names for points and parts.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The axes.
    pub axes: Vec<Axis>,
    /// Names of parts, from `[points]`.
    pub names: Vec<(String, Part)>,
}

/// A part of all points: for some axes, choices.
pub type Part = Vec<(usize, Vec<usize>)>;

impl Sweep {
    /// Reads `[sweep]` and `[points]`.
    pub fn read(root: &Fields<'_>, found: &mut Vec<Diagnostic>) -> Sweep {
        let mut sweep = Sweep::default();
        let Some((table, _)) = root.table("sweep", found) else {
            if let Some(item) = root.item("points") {
                wrong(found, &item.at, "names of points without a sweep", "add a [sweep]");
            }
            return sweep;
        };
        if table.0.iter().all(|e| e.key == "zip") {
            let help =
                "write keys with their values, `\"fs.era\" = [\"3.8\", \"6.18\"]`, or leave it out";
            let at = &root.place("sweep");
            wrong(found, at, "[sweep] sweeps nothing", help);
        }
        let mut lists: Vec<(String, Place, &Item)> = Vec::new();
        for e in table.0.iter().filter(|e| e.key != "zip") {
            flatten(&e.key, e, &mut lists);
        }
        let mut columns: Vec<Column> =
            lists.into_iter().filter_map(|(key, at, item)| column(key, &at, item, found)).collect();
        let has_errors = !found.is_empty();
        let groups = zip_groups(table, &columns, found);
        while !columns.is_empty() {
            let first = columns.remove(0);
            let mut together = vec![first];
            if let Some(group) = groups.iter().find(|g| g.contains(&together[0].key)) {
                let (taken, left) = columns.into_iter().partition(|c| group.contains(&c.key));
                together.extend::<Vec<Column>>(taken);
                columns = left;
            }
            sweep.axes.extend(axis(together, found));
        }
        // Names of points that are not there because of another error are none of their own.
        if !has_errors || sweep.axes.len() == table.0.len() {
            sweep.read_names(root, found);
        }
        sweep
    }

    fn read_names(&mut self, root: &Fields<'_>, found: &mut Vec<Diagnostic>) {
        let Some((table, _)) = root.table("points", found) else { return };
        for e in &table.0 {
            let Value::Table(inner) = &e.item.value else {
                let help = "as in `small = { \"workload.n\" = [1, 10] }`";
                wrong(found, &e.item.at, format!("`points.{}` is not a table", e.key), help);
                continue;
            };
            let mut keys = Vec::new();
            for e in &inner.0 {
                flatten(&e.key, e, &mut keys);
            }
            let mut part: Part = Vec::new();
            for (key, at, item) in keys {
                match self.named(&key, item) {
                    Ok(one) => part.push(one),
                    Err((what, help)) => {
                        let at = if self.axis_of(&key).is_none() { &at } else { &item.at };
                        wrong(found, at, format!("`points.{}`: {what}", e.key), help);
                    }
                }
            }
            self.names.push((e.key.clone(), part));
        }
    }

    /// The axis that has a column, and which of its columns it is.
    pub fn axis_of(&self, key: &str) -> Option<(usize, usize)> {
        self.axes
            .iter()
            .enumerate()
            .find_map(|(n, a)| Some((n, a.keys.iter().position(|k| k == key)?)))
    }

    /// All columns, in order.
    pub fn columns(&self) -> Vec<&str> {
        self.axes.iter().flat_map(|a| a.keys.iter().map(String::as_str)).collect()
    }

    /// The choices of a column that have one of some values.
    fn named(&self, key: &str, item: &Item) -> Result<(usize, Vec<usize>), (String, String)> {
        let words: Vec<String> = match &item.value {
            Value::List(items) => items.iter().filter_map(|i| i.value.word()).collect(),
            other => other.word().into_iter().collect(),
        };
        if words.is_empty() {
            return Err(("no value".to_owned(), "write one, or several in an array".to_owned()));
        }
        let mut all = BTreeSet::new();
        let mut axis = 0;
        for word in words {
            let (n, choices) = self.pair(key, &word)?;
            axis = n;
            all.extend(choices);
        }
        Ok((axis, all.into_iter().collect()))
    }

    /// The choices with this value in this column. Errors: what is wrong, and the hint.
    pub fn pair(&self, key: &str, value: &str) -> Result<(usize, Vec<usize>), (String, String)> {
        let Some((n, column)) = self.axis_of(key) else {
            let what = format!("`{key}` is not swept");
            return Err((what, suggest("swept are", &self.columns(), key)));
        };
        let choices = &self.axes[n].choices;
        let has = |c: &Choice| c.labels[column] == value;
        let all: Vec<usize> = (0..choices.len()).filter(|i| has(&choices[*i])).collect();
        if all.is_empty() {
            let labels: Vec<&str> = choices.iter().map(|c| c.labels[column].as_str()).collect();
            let what = format!("`{key}` is never `{value}`");
            return Err((what, suggest("its values are", &labels, value)));
        }
        Ok((n, all))
    }

    /// The part that a word names: a name of `[points]`, or a value of one column.
    pub fn word(&self, word: &str) -> Result<Part, (String, String)> {
        if let Some((_, part)) = self.names.iter().find(|(name, _)| name == word) {
            return Ok(part.clone());
        }
        let mut hits: Vec<(&str, (usize, Vec<usize>))> = Vec::new();
        for key in self.columns() {
            hits.extend(self.pair(key, word).ok().map(|one| (key, one)));
        }
        match hits.len() {
            1 => Ok(vec![hits.remove(0).1]),
            0 => {
                let labels = self.axes.iter().flat_map(|a| &a.choices).flat_map(|c| &c.labels);
                let names = self.names.iter().map(|(name, _)| name);
                let mut known: Vec<&str> = names.chain(labels).map(String::as_str).collect();
                known.dedup();
                known.truncate(40);
                let what = format!("no point and no value of the sweep is called `{word}`");
                Err((what, suggest("there are", &known, word)))
            }
            _ => {
                let keys: Vec<String> =
                    hits.iter().map(|(key, _)| format!("{key}={word}")).collect();
                Err((
                    format!("`{word}` is a value of several keys"),
                    format!("write {}", keys.join(" or ")),
                ))
            }
        }
    }

    /// How many points there are. `None`: more than can be counted.
    pub fn points(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |n, a| n.checked_mul(a.choices.len() as u64))
    }

    /// The choices of point number `n`.
    pub fn choices(&self, n: usize) -> Vec<usize> {
        let mut left = n;
        let mut all: Vec<usize> = Vec::new();
        for axis in self.axes.iter().rev() {
            all.push(left % axis.choices.len());
            left /= axis.choices.len();
        }
        all.reverse();
        all
    }

    /// The keys that point number `n` is given.
    pub fn put(&self, n: usize) -> BTreeSet<String> {
        let choices = self.axes.iter().zip(self.choices(n));
        let keys = choices.flat_map(|(a, c)| a.choices[c].puts().map(|(key, _)| key.to_owned()));
        keys.collect()
    }

    /// The choices of point number `n` that put anything outside of `[workload]`: points that agree
    /// on them have the same machine.
    pub fn of_machine(&self, n: usize) -> Vec<usize> {
        // An axis puts the same keys at each of its choices, unless it has a name of its own.
        let is_of_workload = |a: &Axis| a.keys.iter().all(|key| key.starts_with("workload."));
        let choices = self.axes.iter().zip(self.choices(n));
        choices.filter(|(a, _)| !is_of_workload(a)).map(|(_, c)| c).collect()
    }

    /// What point number `n` is called in each column.
    pub fn labels(&self, n: usize) -> Vec<&str> {
        let choices = self.choices(n);
        let all = self.axes.iter().zip(choices).flat_map(|(a, c)| &a.choices[c].labels);
        all.map(String::as_str).collect()
    }

    /// Point number `n` in one line: `fs.era=3.4, workload.n=10`; of the only one nothing.
    pub fn describe(&self, n: usize) -> String {
        let pairs = self.columns().into_iter().zip(self.labels(n));
        let all: Vec<String> = pairs.map(|(k, v)| format!("{k}={v}")).collect();
        all.join(", ")
    }

    /// The file of point number `n`: `root` with the chosen values in it.
    pub fn file(&self, root: &Table, n: usize, found: &mut Vec<Diagnostic>) -> Table {
        // Of a table of a hundred thousand values no copy is made for each of them.
        let is_of_point = |e: &&Entry| !matches!(e.key.as_str(), "sweep" | "points" | "claim");
        let mut file = Table(root.0.iter().filter(is_of_point).cloned().collect());
        for (axis, choice) in self.axes.iter().zip(self.choices(n)) {
            for (key, at, item) in axis.choices[choice].puts.iter().flatten() {
                let path: Vec<&str> = key.split('.').collect();
                if !file.put(&path, at, item) {
                    let what = format!("`{key}` is not a table");
                    wrong(found, at, what, "");
                }
            }
        }
        file
    }
}

/// A key with its values, before keys are put together.
struct Column {
    key: String,
    at: Place,
    choices: Vec<(String, Vec<Put>)>,
}

/// Dotted keys of nested tables: `[sweep.fs] era = […]` is `"fs.era" = […]`.
fn flatten<'a>(key: &str, e: &'a Entry, out: &mut Vec<(String, Place, &'a Item)>) {
    match &e.item.value {
        Value::Table(inner) => {
            for e in &inner.0 {
                flatten(&format!("{key}.{}", e.key), e, out);
            }
        }
        _ => out.push((key.to_owned(), e.at.clone(), &e.item)),
    }
}

/// A key of `[sweep]` with its values.
fn column(key: String, at: &Place, item: &Item, found: &mut Vec<Diagnostic>) -> Option<Column> {
    let Value::List(values) = &item.value else {
        let what = format!("`{key}` is swept over {}", item.value.kind());
        wrong(
            found,
            &item.at,
            what,
            format!("write its values in an array: `[{}]`", item.value.to_toml()),
        );
        return None;
    };
    if values.is_empty() {
        wrong(
            found,
            &item.at,
            format!("`{key}` has no value to be swept over"),
            "write one at least, or leave it out",
        );
        return None;
    }
    let own = !key.contains('.');
    let section = key.split('.').next().unwrap_or_default();
    if !own && !SECTIONS.contains(&section) {
        let what = format!("`{key}` cannot be swept");
        wrong(found, at, what, suggest("keys are swept of", &SECTIONS, section));
        return None;
    }
    let mut choices: Vec<(String, Vec<_>)> = Vec::new();
    for value in values {
        let choice = match &value.value {
            Value::Table(table) if own => bundle(&key, table, &value.at, found)?,
            Value::Table(_) | Value::List(_) => {
                let what = format!("`{key}` is swept over {}", value.value.kind());
                let help = "for several keys at once give it a name of your own: `system = [{ as \
                    = \"a\", \"fs.kind\" = \"ext4\" }]`";
                wrong(found, &value.at, what, help);
                return None;
            }
            _ if own => {
                let what = format!("`{key}` is not a key that can be swept");
                let help = "write `\"fs.era\" = …`; a name of your own takes tables: `{ as = \
                    \"a\", \"fs.kind\" = \"ext4\" }`";
                wrong(found, at, what, help);
                return None;
            }
            word => {
                let label = word.word().unwrap_or_default();
                (label, vec![(key.clone(), at.clone(), value.clone())])
            }
        };
        choices.push(choice);
    }
    Some(Column { key, at: at.clone(), choices })
}

/// A choice of an axis with a name of its own: `as` and dotted keys.
fn bundle(
    key: &str,
    table: &Table,
    at: &Place,
    found: &mut Vec<Diagnostic>,
) -> Option<(String, Vec<Put>)> {
    let Some(label) = table.item("as").and_then(|i| i.value.word()) else {
        wrong(found, at, format!("a choice of `{key}` has no name"), "write `as = \"NAME\"` in it");
        return None;
    };
    let mut keys = Vec::new();
    for e in table.0.iter().filter(|e| e.key != "as") {
        flatten(&e.key, e, &mut keys);
    }
    let mut puts = Vec::new();
    for (key, at, item) in keys {
        let section = key.split('.').next().unwrap_or_default();
        if !key.contains('.') || !SECTIONS.contains(&section) {
            let what = format!("`{key}` cannot be swept");
            wrong(found, &at, what, suggest("keys are swept of", &SECTIONS, section));
            return None;
        }
        puts.push((key, at, item.clone()));
    }
    Some((label, puts))
}

/// The groups of `zip`: keys that are swept together.
fn zip_groups(table: &Table, columns: &[Column], found: &mut Vec<Diagnostic>) -> Vec<Vec<String>> {
    let Some(item) = table.item("zip") else { return Vec::new() };
    let form =
        "write `zip = [\"fs.era\", \"machine.cpu\"]`, or an array of such for several groups";
    let Value::List(items) = &item.value else {
        wrong(found, &item.at, format!("`zip` takes an array, not {}", item.value.kind()), form);
        return Vec::new();
    };
    let is_nested = items.iter().any(|i| matches!(i.value, Value::List(_)));
    let lists: Vec<&[Item]> = if is_nested {
        let inner = items.iter().filter_map(|i| match &i.value {
            Value::List(inner) => Some(inner.as_slice()),
            _ => None,
        });
        inner.collect()
    } else {
        vec![items]
    };
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for list in lists {
        let mut group = Vec::new();
        for item in list {
            let Value::Text(key) = &item.value else {
                wrong(found, &item.at, format!("`zip` has {} in it", item.value.kind()), form);
                continue;
            };
            let names: Vec<&str> = columns.iter().map(|c| c.key.as_str()).collect();
            if !names.contains(&key.as_str()) {
                let what = format!("`{key}` is not swept");
                wrong(found, &item.at, what, suggest("swept are", &names, key));
            } else if !seen.insert(key.clone()) {
                wrong(found, &item.at, format!("`{key}` is in `zip` twice"), "");
            } else {
                group.push(key.clone());
            }
        }
        groups.push(group);
    }
    groups
}

/// Keys that are swept together as one axis.
fn axis(columns: Vec<Column>, found: &mut Vec<Diagnostic>) -> Option<Axis> {
    let (first, rest) = columns.split_first()?;
    let n = first.choices.len();
    if let Some(other) = rest.iter().find(|c| c.choices.len() != n) {
        let what = format!(
            "`{}` has {} values, and `{}`, with which it is swept together, has {n}",
            other.key,
            other.choices.len(),
            first.key
        );
        wrong(found, &other.at, what, "all keys in `zip` need the same number of values");
        return None;
    }
    let choice = |i: usize| Choice {
        labels: columns.iter().map(|c| c.choices[i].0.clone()).collect(),
        puts: columns.iter().map(|c| c.choices[i].1.clone()).collect(),
    };
    let choices: Vec<Choice> = (0..n).map(choice).collect();
    let mut seen = BTreeSet::new();
    for choice in &choices {
        if !seen.insert(&choice.labels) {
            let what =
                format!("`{}` has the value `{}` twice", first.key, choice.labels.join(", "));
            wrong(found, &first.at, what, "use `repeat` for several runs of a point");
            return None;
        }
    }
    Some(Axis { keys: columns.into_iter().map(|c| c.key).collect(), choices })
}
