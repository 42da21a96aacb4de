//! A table of the file, read key by key: what is of the wrong kind or unknown becomes a diagnostic.

use wp_workload::fio::{Diagnostic, Place, nearest_of};

use super::keys;
use super::source::{Item, Table, Value};
use super::units::Unit;

/// A table under reading.
pub struct Fields<'a> {
    section: &'static str,
    table: &'a Table,
    /// Where the table stands.
    pub at: Place,
}

/// The name of a key with its table.
fn full(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// `did you mean` and the names that there are.
pub fn suggest(kind: &str, names: &[&str], given: &str) -> String {
    let near = nearest_of(names.iter().copied(), given);
    let near = near.map_or(String::new(), |n| format!("did you mean `{n}`? "));
    format!("{near}{kind}: {}", names.join(", "))
}

/// The name that replaced an old key of a table.
fn renamed(section: &str, key: &str) -> Option<&'static str> {
    match (section, key) {
        ("crash", "hold") => Some("require"),
        ("fs", key) => wp_vfs::renamed(key),
        _ => None,
    }
}

/// An error, added to what was found.
pub fn wrong(
    found: &mut Vec<Diagnostic>,
    at: &Place,
    message: impl Into<String>,
    help: impl Into<String>,
) {
    found.push(Diagnostic::error(at, message, help));
}

impl<'a> Fields<'a> {
    /// Begins; keys that neither this format nor `more` knows are errors.
    pub fn new(
        section: &'static str,
        item: (&'a Table, &Place),
        more: &[&str],
        found: &mut Vec<Diagnostic>,
    ) -> Fields<'a> {
        let fields = Fields { section, table: item.0, at: item.1.clone() };
        let names: Vec<&str> =
            keys::of(section).map(|k| k.name).chain(more.iter().copied()).collect();
        for e in &fields.table.0 {
            if !names.contains(&e.key.as_str()) {
                let what = match section {
                    "" => format!("unknown key `{}`", e.key),
                    _ => format!("unknown key `{}` in [{section}]", e.key),
                };
                let help = match renamed(section, &e.key) {
                    Some(new) => format!("it was renamed: write `{new}`"),
                    None => suggest("there are", &names, &e.key),
                };
                wrong(found, &e.at, what, help);
            }
        }
        fields
    }

    /// The value of a key; nothing if it is not there.
    pub fn item(&self, key: &str) -> Option<&'a Item> {
        self.table.item(key)
    }

    /// Where a key's value stands; the table's place if it is not there.
    pub fn place(&self, key: &str) -> Place {
        self.item(key).map_or_else(|| self.at.clone(), |i| i.at.clone())
    }

    /// Says that a value is of the wrong kind.
    fn refuse(&self, key: &str, item: &Item, wanted: &str, found: &mut Vec<Diagnostic>) {
        let what =
            format!("`{}` takes {wanted}, not {}", full(self.section, key), item.value.kind());
        let known = keys::find(self.section, key);
        let example = known.filter(|k| !k.example.is_empty());
        let help = example.map_or(String::new(), |k| format!("as in `{} = {}`", key, k.example));
        wrong(found, &item.at, what, help);
    }

    /// A string.
    pub fn text(&self, key: &str, found: &mut Vec<Diagnostic>) -> Option<&'a str> {
        let item = self.item(key)?;
        match &item.value {
            Value::Text(text) => Some(text),
            _ => {
                self.refuse(key, item, "a string", found);
                None
            }
        }
    }

    /// A whole number in a range.
    pub fn number(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
        found: &mut Vec<Diagnostic>,
    ) -> Option<u64> {
        let item = self.item(key)?;
        let Value::Int(n) = item.value else {
            self.refuse(key, item, "a whole number", found);
            return None;
        };
        let fits = u64::try_from(n).ok().filter(|n| range.contains(n));
        if fits.is_none() {
            let help = format!("a whole number from {} to {}", range.start(), range.end());
            wrong(found, &item.at, format!("`{}` cannot be {n}", full(self.section, key)), help);
        }
        fits
    }

    /// A number, with a fraction or without.
    pub fn real(&self, key: &str, found: &mut Vec<Diagnostic>) -> Option<f64> {
        let item = self.item(key)?;
        let x = real(item);
        if x.is_none() {
            self.refuse(key, item, "a number", found);
        }
        x
    }

    /// A truth value.
    pub fn truth(&self, key: &str, found: &mut Vec<Diagnostic>) -> Option<bool> {
        let item = self.item(key)?;
        let Value::Bool(b) = item.value else {
            self.refuse(key, item, "true or false", found);
            return None;
        };
        Some(b)
    }

    /// A string with a unit, as a number of these.
    pub fn unit(&self, key: &str, unit: Unit, found: &mut Vec<Diagnostic>) -> Option<u64> {
        let item = self.item(key)?;
        unit_of(&full(self.section, key), item, unit, found)
    }

    /// An array.
    pub fn list(&self, key: &str, found: &mut Vec<Diagnostic>) -> Option<&'a [Item]> {
        let item = self.item(key)?;
        let Value::List(items) = &item.value else {
            self.refuse(key, item, "an array", found);
            return None;
        };
        Some(items)
    }

    /// An array of strings.
    pub fn texts(&self, key: &str, found: &mut Vec<Diagnostic>) -> Vec<(&'a str, Place)> {
        let mut all = Vec::new();
        for item in self.list(key, found).unwrap_or_default() {
            match &item.value {
                Value::Text(text) => all.push((text.as_str(), item.at.clone())),
                _ => self.refuse(key, item, "strings", found),
            }
        }
        all
    }

    /// A table.
    pub fn table(&self, key: &str, found: &mut Vec<Diagnostic>) -> Option<(&'a Table, &'a Place)> {
        let item = self.item(key)?;
        let Value::Table(table) = &item.value else {
            self.refuse(key, item, "a table", found);
            return None;
        };
        Some((table, &item.at))
    }

    /// Every entry whose key is none of this format's own: options and parameters.
    pub fn others(&self) -> impl Iterator<Item = &'a super::source::Entry> {
        let section = self.section;
        self.table.0.iter().filter(move |e| keys::find(section, &e.key).is_none())
    }
}

/// A number, with a fraction or without.
pub fn real(item: &Item) -> Option<f64> {
    match item.value {
        Value::Int(n) => Some(n as f64),
        Value::Float(x) => Some(x),
        _ => None,
    }
}

/// A string with a unit, as a number of these.
pub fn unit_of(name: &str, item: &Item, unit: Unit, found: &mut Vec<Diagnostic>) -> Option<u64> {
    let (what, example) = unit.words();
    match &item.value {
        Value::Text(text) => match unit.number(text) {
            Ok(n) => Some(n),
            Err((why, help)) => {
                wrong(found, &item.at, format!("`{name}`: {why}"), help);
                None
            }
        },
        Value::Int(n) => {
            let meant = u64::try_from(*n).map(|n| format!("\"{}\"", unit.text(n)));
            let meant = meant.unwrap_or_else(|_| example.to_owned());
            let message = format!("`{name}` is {what} and has no unit");
            wrong(found, &item.at, message, format!("write a string with a unit: {meant}"));
            None
        }
        other => {
            let message = format!("`{name}` takes {what}, not {}", other.kind());
            wrong(found, &item.at, message, format!("write {example}"));
            None
        }
    }
}
