//! The text of an experiment file, and what stands where in it.
//!
//! Picture:    bytes -> UTF-8 -> TOML with spans (crate `toml`) -> [`Table`], whose keys and values
//!             know their [`Place`].
//! Invariants: any bytes are taken: what is wrong becomes a diagnostic with its place.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use toml::de::{DeArray, DeTable, DeValue};
use wp_workload::fio::{Diagnostic, Place};

/// Most syntax errors that are told of one file.
const ERRORS_MAX: usize = 20;
/// Bytes of the largest file that is read: a thousand times what one would write.
const BYTES_MAX: usize = 4 << 20;

/// A value, with its place.
#[derive(Clone, Debug)]
pub struct Item {
    /// Where it stands.
    pub at: Place,
    /// What it is.
    pub value: Value,
}

/// What TOML knows, without dates.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// An array.
    List(Vec<Item>),
    /// A table.
    Table(Table),
}

impl Value {
    /// What it is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Int(_) => "a whole number",
            Value::Float(_) => "a number with a fraction",
            Value::Bool(_) => "true or false",
            Value::List(_) => "an array",
            Value::Table(_) => "a table",
        }
    }

    /// A string, number or truth value as one word; of lists and tables nothing.
    pub fn word(&self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text.clone()),
            Value::Int(n) => Some(n.to_string()),
            Value::Float(x) => Some(x.to_string()),
            Value::Bool(b) => Some(b.to_string()),
            Value::List(_) | Value::Table(_) => None,
        }
    }

    /// As TOML, on one line.
    pub fn to_toml(&self) -> String {
        match self {
            Value::Text(text) => quoted(text),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => format!("{x:?}"),
            Value::Bool(b) => b.to_string(),
            Value::List(items) => {
                let all: Vec<String> = items.iter().map(|i| i.value.to_toml()).collect();
                format!("[{}]", all.join(", "))
            }
            Value::Table(table) => {
                let one = |e: &Entry| format!("{} = {}", key(&e.key), e.item.value.to_toml());
                let all: Vec<String> = table.0.iter().map(one).collect();
                if all.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", all.join(", ")) }
            }
        }
    }
}

/// A text as a TOML string.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A key as TOML has it: bare where it may be.
pub fn key(text: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.chars().all(is_bare) { text.to_owned() } else { quoted(text) }
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where it stands.
    pub at: Place,
    /// Its value.
    pub item: Item,
}

/// Keys with their values, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct Table(pub Vec<Entry>);

impl Table {
    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|e| e.key == key)
    }

    /// The value of a key.
    pub fn item(&self, key: &str) -> Option<&Item> {
        self.get(key).map(|e| &e.item)
    }

    /// Puts a value where a dotted key says, over what is there; makes tables on the way. Nothing
    /// is done where something else than a table is in the way: answers whether it was.
    pub fn put(&mut self, path: &[&str], at: &Place, item: &Item) -> bool {
        let [first, rest @ ..] = path else { return false };
        let known = self.0.iter().position(|e| e.key == *first);
        if rest.is_empty() {
            let entry = Entry { key: (*first).to_owned(), at: at.clone(), item: item.clone() };
            match known {
                Some(n) => self.0[n] = entry,
                None => self.0.push(entry),
            }
            return true;
        }
        let n = known.unwrap_or_else(|| {
            let item = Item { at: at.clone(), value: Value::Table(Table::default()) };
            self.0.push(Entry { key: (*first).to_owned(), at: at.clone(), item });
            self.0.len() - 1
        });
        match &mut self.0[n].item.value {
            Value::Table(inner) => inner.put(rest, at, item),
            _ => false,
        }
    }
}

/// A file's text, which makes places of byte ranges.
pub struct Source {
    file: Rc<str>,
    text: String,
    /// First byte of each line.
    starts: Vec<usize>,
    /// Lines that places have: a hundred thousand values may stand in one.
    lines: RefCell<BTreeMap<usize, Rc<str>>>,
    /// Line and byte of the last place, and characters before it in its line: the next one is most
    /// often behind it.
    last: Cell<(usize, usize, u32)>,
}

impl Source {
    fn new(file: &str, text: String) -> Source {
        let ends = text.match_indices('\n').map(|(i, _)| i + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        let (lines, last) = (RefCell::default(), Cell::new((0, 0, 0)));
        Source { file: file.into(), text, starts, lines, last }
    }

    /// The place of a range of bytes; of several lines the first one's part.
    pub fn place(&self, range: Range<usize>) -> Place {
        let start = floor(&self.text, range.start);
        let end = floor(&self.text, range.end.max(start));
        let line = self.starts.partition_point(|s| *s <= start).max(1) - 1;
        let from = self.starts[line];
        let until = self.starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let text = || self.text[from..until.max(from)].trim_end_matches('\r').into();
        let text = self.lines.borrow_mut().entry(line).or_insert_with(text).clone();
        let chars = |from: usize, to: usize| {
            self.text.get(from..to).map_or(0, |part| part.chars().count()) as u32
        };
        let before = match self.last.get() {
            (of, at, n) if of == line && (from..=start).contains(&at) => n + chars(at, start),
            _ => chars(from, start),
        };
        self.last.set((line, start, before));
        Place {
            file: self.file.clone(),
            line: line as u32 + 1,
            column: before + 1,
            width: chars(start, end.min(until)).max(1),
            text,
        }
    }
}

/// The character boundary at or before a byte.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Reads a file's bytes into a table. What cannot be read is reported in `found`, and left out.
pub fn parse(file: &str, bytes: &[u8], found: &mut Vec<Diagnostic>) -> Table {
    if bytes.len() > BYTES_MAX {
        let at = Source::new(file, String::new()).place(0..0);
        let what = format!("the file has {} bytes", bytes.len());
        found.push(Diagnostic::error(&at, what, format!("at most {BYTES_MAX}")));
        return Table::default();
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text).to_owned(),
        Err(e) => {
            let lossy = String::from_utf8_lossy(bytes).into_owned();
            let source = Source::new(file, lossy);
            let at = source.place(e.valid_up_to()..e.valid_up_to() + 1);
            let byte = bytes.get(e.valid_up_to()).copied().unwrap_or(0);
            let what = format!("byte 0x{byte:02x} is not UTF-8");
            found.push(Diagnostic::error(&at, what, "save the file as UTF-8"));
            return Table::default();
        }
    };
    let source = Source::new(file, text);
    let (root, errors) = DeTable::parse_recoverable(&source.text);
    let is_job = file.ends_with(".fio");
    for e in errors.iter().take(if is_job { 1 } else { ERRORS_MAX }) {
        let at = source.place(e.span().unwrap_or(0..0));
        let message = e.message().trim().replace('\n', "; ");
        let help = match is_job {
            true => {
                format!("a fio job runs as a workload: writepath run --workload fio,job={file}")
            }
            false => String::new(),
        };
        found.push(Diagnostic::error(&at, format!("not TOML: {message}"), help));
    }
    table(&source, root.get_ref(), found)
}

fn table(source: &Source, from: &DeTable<'_>, found: &mut Vec<Diagnostic>) -> Table {
    let mut entries: Vec<_> = from.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let of = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let at = source.place(key.span());
        let span = value.span();
        let item = Item {
            at: source.place(span.clone()),
            value: self::value(source, value.get_ref(), span, found)?,
        };
        Some(Entry { key: name.to_string(), at, item })
    };
    Table(entries.into_iter().filter_map(of).collect())
}

fn list(source: &Source, from: &DeArray<'_>, found: &mut Vec<Diagnostic>) -> Vec<Item> {
    let of = |value: &toml::Spanned<DeValue<'_>>| {
        let span = value.span();
        let inner = self::value(source, value.get_ref(), span.clone(), found)?;
        Some(Item { at: source.place(span), value: inner })
    };
    from.iter().filter_map(of).collect()
}

fn value(
    source: &Source,
    from: &DeValue<'_>,
    span: Range<usize>,
    found: &mut Vec<Diagnostic>,
) -> Option<Value> {
    let mut wrong = |what: &str, help: &str| {
        found.push(Diagnostic::error(&source.place(span.clone()), what, help));
        None
    };
    Some(match from {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Int(n),
            Err(_) => return wrong("a number that does not fit 64 bits", ""),
        },
        DeValue::Float(x) => match x.as_str().parse::<f64>() {
            Ok(x) if x.is_finite() => Value::Float(x),
            _ => return wrong("not a finite number", ""),
        },
        DeValue::Datetime(_) => {
            return wrong("dates are not supported", "write a string");
        }
        DeValue::Array(all) => Value::List(list(source, all, found)),
        DeValue::Table(inner) => Value::Table(table(source, inner, found)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> (Table, Vec<Diagnostic>) {
        let mut found = Vec::new();
        let table = parse("x.toml", text, &mut found);
        (table, found)
    }

    #[test]
    fn keys_and_values_know_their_places() {
        let (t, found) = read("a = 1\n[b]\nc = [\"ä\", true]\nd.e = 2.5\n".as_bytes());
        assert!(found.is_empty(), "{found:?}");
        let Value::Table(b) = &t.item("b").expect("there").value else { panic!("a table") };
        let c = b.get("c").expect("there");
        assert_eq!((c.at.line, c.at.column, c.at.width), (3, 1, 1));
        let Value::List(items) = &c.item.value else { panic!("a list") };
        assert_eq!((items[1].at.column, items[1].at.width), (11, 4), "in characters");
        assert_eq!(
            t.item("b").map(|i| i.value.to_toml()).as_deref(),
            Some("{ c = [\"ä\", true], d = { e = 2.5 } }")
        );
    }

    #[test]
    fn values_of_one_line_share_its_text_and_their_columns_are_right() {
        let values: Vec<String> = (0..1000).map(|n| format!("\"ä{n}\"")).collect();
        let (t, _) = read(format!("a = [{}]\n", values.join(", ")).as_bytes());
        let Value::List(items) = &t.item("a").expect("there").value else { panic!("a list") };
        let mut column = 6;
        for (item, value) in items.iter().zip(&values) {
            // A copy for each is what took 16 GB of a sweep of 50,000 points.
            assert!(Rc::ptr_eq(&item.at.text, &items[0].at.text));
            assert_eq!(item.at.column, column, "{value}");
            column += value.chars().count() as u32 + 2;
        }
    }

    #[test]
    fn what_is_no_toml_is_shown_where_it_stands() {
        for (text, line, column, what) in [
            (&b"a = \n"[..], 1, 5, "not TOML"),
            (b"a = 1\na = 2\n", 2, 1, "duplicate"),
            (b"a = 1\nb = 99999999999999999999\n", 2, 5, "64 bits"),
            (b"\na = 1979-05-27\n", 2, 5, "date"),
            (b"a = 1\nb = \"\xff\"\n", 2, 6, "UTF-8"),
            (b"a = nan\n", 1, 5, "finite"),
        ] {
            let (_, found) = read(text);
            let d = found.first().unwrap_or_else(|| panic!("{what}: nothing found"));
            assert_eq!((d.at.line, d.at.column), (line, column), "{d}");
            assert!(d.message.contains(what), "{d}");
        }
    }

    #[test]
    fn a_fio_job_is_told_how_to_run() {
        let mut found = Vec::new();
        parse("a/j.fio", b"[global]\nfilename=/f\ndirect=1x\n", &mut found);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("not TOML"), "{found:?}");
        assert!(found[0].to_string().contains("--workload fio,job=a/j.fio"), "{}", found[0]);
    }

    #[test]
    fn a_value_is_put_over_what_is_there_and_never_through_it() {
        let (mut t, _) = read(b"a = 1\n[b]\nc = 1\n");
        let item = t.item("a").expect("there").clone();
        let at = item.at.clone();
        assert!(t.put(&["b", "c"], &at, &item) && t.put(&["n", "m"], &at, &item));
        assert!(!t.put(&["a", "x"], &at, &item));
        assert_eq!(t.item("n").map(|i| i.value.to_toml()).as_deref(), Some("{ m = 1 }"));
    }

    #[test]
    fn text_is_quoted_so_that_toml_reads_it_again() {
        for text in ["", "plain", "a\"b\\c", "line\nline\t\u{1}", "ä"] {
            let (t, found) = read(format!("a = {}\n{} = 1\n", quoted(text), key(text)).as_bytes());
            assert!(found.is_empty() || text == "a", "{found:?}");
            assert!(matches!(&t.item("a").expect("there").value, Value::Text(got) if got == text));
            assert!(t.item(text).is_some());
        }
    }
}
