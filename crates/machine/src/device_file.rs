//! A device of one's own: a file that names a preset and the parameters that differ from it.
//!
//! Picture:    `my.toml` -> [`DeviceFile`] = a preset's name and numbers in place of its own; so a
//!             result or a reproducer names nothing that another machine lacks.
//! Invariants: 1. every number has a unit, which is the preset's, and a source that begins with how
//!                it came about: `given`, `fitted` or `assumed`;
//!             2. what was read makes a device;
//!             3. what [`DeviceFile::text`] writes is read as the same.

use std::fmt::Write;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};
use wp_base::plain::Shown as _;
use wp_device::DeviceEntry;
use wp_workload::fio::nearest_of;

/// What the first line of a file says.
pub const SCHEMA: &str = "writepath-device/1";
/// Longest file that is read: a preset has some fifty lines.
const BYTES_MAX: u64 = 1 << 20;
/// How a number came about: how its source begins.
pub const MARKS: [&str; 3] = [GIVEN, "fitted", "assumed"];
/// The mark of a number that is known.
pub const GIVEN: &str = "given";

/// A number in place of the preset's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// Its key.
    pub key: &'static str,
    /// Its value, in the unit that the preset has for it.
    pub value: u64,
    /// Where it is from, beginning with one of [`MARKS`].
    pub source: String,
}

/// A device of one's own.
#[derive(Clone)]
pub struct DeviceFile {
    /// The preset that it is like.
    pub base: &'static DeviceEntry,
    /// What it is, in a sentence; may be empty.
    pub about: String,
    /// What is otherwise, in the order of the preset.
    pub numbers: Vec<Number>,
}

/// What is wrong with a file, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// The file, as it was named.
    pub file: String,
    /// Line and column, from 1, the latter in characters.
    pub at: (usize, usize),
    /// What is wrong, and the hint.
    pub what: String,
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.at.0, self.at.1, self.what)
    }
}

impl std::error::Error for FileError {}

/// The path that a device's name is, if it is one: `file:my-drive`, `my.toml`, `./my.toml`.
pub fn path_of(name: &str) -> Option<&Path> {
    match name.strip_prefix("file:") {
        Some(path) => Some(Path::new(path)),
        None => name.ends_with(".toml").then_some(Path::new(name)),
    }
}

/// Reads a file. Errors: the host's; something that is none.
pub fn read(path: &Path) -> Result<DeviceFile, String> {
    let name = path.shown();
    let of_host = |e: std::io::Error| format!("{name}: {e}");
    if !std::fs::metadata(path).map_err(of_host)?.is_file() {
        return Err(format!("{name}: is not a file"));
    }
    let (mut text, file) = (String::new(), std::fs::File::open(path).map_err(of_host)?);
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(of_host)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("{name}: more than {BYTES_MAX} bytes: not a device description"));
    }
    parse(&name, &text).map_err(|e| e.to_string())
}

/// What is wrong, with the bytes that it is about.
type Wrong = (Range<usize>, String);

/// Reads a file's text; `name` is what errors call it. Errors: what is wrong, and where.
pub fn parse(name: &str, text: &str) -> Result<DeviceFile, FileError> {
    file(text).map_err(|(span, what)| {
        let start = (0..=span.start.min(text.len())).rev().find(|i| text.is_char_boundary(*i));
        let before = &text[..start.unwrap_or(0)];
        let line = before.rsplit('\n').next().unwrap_or("");
        let at = (before.matches('\n').count() + 1, line.chars().count() + 1);
        FileError { file: name.to_owned(), at, what }
    })
}

fn file(text: &str) -> Result<DeviceFile, Wrong> {
    let of_syntax =
        |e: toml::de::Error| (e.span().unwrap_or(0..0), e.message().trim().replace('\n', ", "));
    let root = DeTable::parse(text).map_err(of_syntax)?.into_inner();
    only(&root, &["schema", "base", "about", "parameters"])?;
    let schema = word(&root, "schema", 0..0)?;
    if schema.get_ref() != &SCHEMA {
        let what = format!("schema `{}` is not supported; write \"{SCHEMA}\"", schema.get_ref());
        return Err((schema.span(), what));
    }
    let base = word(&root, "base", 0..0)?;
    let Some(entry) = wp_device::find(base.get_ref()) else {
        let names = wp_device::DEVICES.iter().map(|d| d.name);
        let what = format!("no preset called `{}`{}", base.get_ref(), meant(names, base.get_ref()));
        return Err((base.span(), what));
    };
    let about = match root.contains_key("about") {
        true => (*word(&root, "about", 0..0)?.get_ref()).to_owned(),
        false => String::new(),
    };
    let (mut numbers, mut places) = (Vec::new(), Vec::new());
    if let Some(value) = root.get("parameters") {
        let DeValue::Table(table) = value.get_ref() else {
            return Err((value.span(), "parameters: write a table, [parameters]".to_owned()));
        };
        for (key, value) in table {
            numbers.push(number(entry, key, value)?);
            places.push(key.span());
        }
    }
    let params: Vec<(&str, u64)> = numbers.iter().map(|n| (n.key, n.value)).collect();
    if let Err(e) = entry.make(&params) {
        let at = numbers.iter().position(|n| n.key == e.key);
        return Err((at.map_or(base.span(), |i| places[i].clone()), e.to_string()));
    }
    numbers.sort_by_key(|n| entry.params.iter().position(|p| p.name == n.key));
    Ok(DeviceFile { base: entry, about, numbers })
}

fn number(
    entry: &DeviceEntry,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Number, Wrong> {
    let name = key.get_ref();
    let Some(param) = entry.params.iter().find(|p| p.name == name.as_ref()) else {
        let names = entry.params.iter().map(|p| p.name);
        let what = format!("{} has no parameter `{name}`{}", entry.name, meant(names, name));
        return Err((key.span(), what));
    };
    let DeValue::Table(table) = value.get_ref() else {
        let what = format!(
            "{name}: write {{ value = {}, unit = \"{}\", source = \"given: …\" }}",
            param.value, param.unit
        );
        return Err((value.span(), what));
    };
    only(table, &["value", "unit", "source"])?;
    let Some(given) = table.get("value") else {
        return Err((key.span(), format!("{name}: `value` is missing")));
    };
    let whole = given.get_ref().as_integer().and_then(|i| {
        // Negative ones do not parse; the largest of TOML is that of a signed number.
        u64::from_str_radix(i.as_str(), i.radix()).ok().filter(|v| *v <= i64::MAX as u64)
    });
    let Some(value) = whole else {
        let what = format!("{name}: value must be a whole number, not negative, in {}", param.unit);
        return Err((given.span(), what));
    };
    let unit = word(table, "unit", key.span())?;
    if *unit.get_ref() != param.unit {
        let what = format!("{name} is in {}, not in {}", param.unit, unit.get_ref());
        return Err((unit.span(), what));
    }
    let source = word(table, "source", key.span())?;
    if !MARKS.iter().any(|m| source.get_ref().strip_prefix(m).is_some_and(is_end)) {
        let what = format!("{name}: a source begins with {}: `given: data sheet`", or(&MARKS));
        return Err((source.span(), what));
    }
    Ok(Number { key: param.name, value, source: (*source.get_ref()).to_owned() })
}

/// Does what follows a mark leave it a word?
fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([':', ' '])
}

fn or(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => names.join(""),
    }
}

fn meant<'a>(names: impl Iterator<Item = &'a str> + Clone, given: &str) -> String {
    match nearest_of(names.clone(), given) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!("; known: {}", names.collect::<Vec<&str>>().join(", ")),
    }
}

/// Has a table no other keys than these?
fn only(table: &DeTable<'_>, known: &[&str]) -> Result<(), Wrong> {
    match table.keys().find(|k| !known.contains(&k.get_ref().as_ref())) {
        None => Ok(()),
        Some(key) => {
            let what = format!(
                "unknown key `{}`{}",
                key.get_ref(),
                meant(known.iter().copied(), key.get_ref())
            );
            Err((key.span(), what))
        }
    }
}

/// A text that has to be there; `around` is where it would be.
fn word<'t>(
    table: &'t DeTable<'_>,
    key: &str,
    around: Range<usize>,
) -> Result<Spanned<&'t str>, Wrong> {
    let Some(value) = table.get(key) else {
        return Err((around, format!("`{key}` is missing")));
    };
    match value.get_ref().as_str() {
        Some(text) if !text.contains(char::is_control) => Ok(Spanned::new(value.span(), text)),
        _ => Err((value.span(), format!("{key}: write a text of one line in quotes"))),
    }
}

impl DeviceFile {
    /// The numbers, as they replace the preset's.
    pub fn params(&self) -> Vec<(String, u64)> {
        self.numbers.iter().map(|n| (n.key.to_owned(), n.value)).collect()
    }

    /// As a file's text.
    pub fn text(&self) -> String {
        let quoted = |s: &str| Value::from(s).to_string();
        let mut t = format!("schema = \"{SCHEMA}\"\nbase = {}\n", quoted(self.base.name));
        if !self.about.is_empty() {
            writeln!(t, "about = {}", quoted(&self.about)).expect("a string takes it");
        }
        t.push_str("\n[parameters]\n");
        for n in &self.numbers {
            let unit = self.base.params.iter().find(|p| p.name == n.key).map_or("", |p| p.unit);
            let (unit, source) = (quoted(unit), quoted(&n.source));
            let Number { key, value, .. } = n;
            writeln!(t, "{key} = {{ value = {value}, unit = {unit}, source = {source} }}")
                .expect("a string takes it");
        }
        t
    }
}

/// The source of a preset's number as a file has it: with how it came about before.
pub fn marked(source: &str) -> String {
    let is_marked = MARKS.iter().any(|m| source.strip_prefix(m).is_some_and(is_end));
    if is_marked { source.to_owned() } else { format!("given: {source}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: &str = r#"schema = "writepath-device/1"
base = "ssd-128"
about = "mine"

[parameters]
read_ns = { value = 55_000, unit = "ns", source = "fitted: to reads" }
queue_depth = { value = 8, unit = "count", source = "given: data sheet" }
"#;

    fn wrong(from: &str, to: &str) -> String {
        assert!(MINE.contains(from), "{from}");
        let e = parse("my.toml", &MINE.replace(from, to)).err().expect("it is wrong");
        e.to_string()
    }

    #[test]
    fn a_file_is_its_preset_with_other_numbers_and_is_written_as_it_was_read() {
        let mine = parse("my.toml", MINE).expect("it is right");
        assert_eq!(mine.base.name, "ssd-128");
        let want = [("queue_depth".to_owned(), 8), ("read_ns".to_owned(), 55_000)];
        assert_eq!(mine.params(), want);
        let again = parse("again", &mine.text()).expect("we wrote it");
        assert_eq!((again.about, again.numbers), (mine.about, mine.numbers));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_the_way_out() {
        for (from, to, want) in [
            ("device/1", "device/9", "my.toml:1:10: schema `writepath-device/9` is not supported"),
            (
                "\"ssd-128\"",
                "\"ssd-12\"",
                "my.toml:2:8: no preset called `ssd-12`; did you mean `ssd-128`?",
            ),
            ("base =", "bass =", "my.toml:2:1: unknown key `bass`; did you mean `base`?"),
            (
                "read_ns",
                "red_ns",
                "my.toml:6:1: ssd-128 has no parameter `red_ns`; did you mean `read_ns`?",
            ),
            ("55_000", "-1", "my.toml:6:21: read_ns: value must be a whole number"),
            ("55_000", "5.5", "my.toml:6:21: read_ns: value must be a whole number"),
            ("\"ns\"", "\"us\"", "my.toml:6:36: read_ns is in ns, not in us"),
            (
                "fitted:",
                "guessed:",
                "my.toml:6:51: read_ns: a source begins with given, fitted or assumed",
            ),
            ("value = 8", "value = 0", "my.toml:7:1: queue_depth = 0: must be from 1 to"),
            ("value = 8, ", "", "my.toml:7:1: queue_depth: `value` is missing"),
            (
                "{ value = 8, unit = \"count\", source = \"given: data sheet\" }",
                "8",
                "my.toml:7:15: queue_depth: write { value = 31",
            ),
            ("about = \"mine\"", "about = ", "my.toml:3:"),
            (
                "about = \"mine\"",
                "about = \"a\\u0007\"",
                "my.toml:3:9: about: write a text of one line",
            ),
        ] {
            let told = wrong(from, to);
            assert!(told.starts_with(want), "{told}");
        }
    }

    #[test]
    fn every_preset_is_written_as_a_file_that_makes_it_again() {
        for entry in wp_device::DEVICES {
            let number = |p: &wp_device::Param| Number {
                key: p.name,
                value: p.value,
                source: marked(p.source),
            };
            let numbers: Vec<Number> = entry.params.iter().map(number).collect();
            let written = DeviceFile { base: entry, about: String::new(), numbers }.text();
            let again = parse(entry.name, &written).unwrap_or_else(|e| panic!("{e}"));
            assert!(again.numbers.iter().zip(entry.params).all(|(n, p)| n.value == p.value));
        }
    }

    #[test]
    fn a_file_that_is_cut_off_or_damaged_anywhere_is_refused_or_makes_a_device() {
        for cut in 0..MINE.len() {
            drop(parse("cut", &MINE[..cut]));
            for with in ["\"", "{", "}", "=", "\n", "9", "\u{7}", "ä", "[["] {
                drop(parse("changed", &format!("{}{with}{}", &MINE[..cut], &MINE[cut + 1..])));
            }
        }
    }
}
