//! The syntax of job files: sections, options, comments, includes, variables.
//!
//! Any bytes are taken: what is no UTF-8 becomes replacement characters, and every line that is not
//! understood becomes a diagnostic.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::diag::{Diagnostic, Place};

/// How deep includes may nest.
const INCLUDES_MAX: u32 = 8;

/// Finds included files; `None` if there is none of that name.
pub type Includes<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// What `${NAME}` and fio's own words (`$pagesize`, `$ncpus`, `$mb_memory`) stand for.
///
/// The environment of the host is never read: a job's meaning is in what is handed in.
#[derive(Clone, Debug)]
pub struct Variables {
    /// `${NAME}`.
    pub named: BTreeMap<String, String>,
    /// `$pagesize`, in bytes.
    pub page_bytes: u64,
    /// `$mb_memory`, in MiB.
    pub memory_mib: u64,
    /// `$ncpus`.
    pub cpus: u64,
}

impl Default for Variables {
    fn default() -> Variables {
        Variables { named: BTreeMap::new(), page_bytes: 4096, memory_mib: 8192, cpus: 1 }
    }
}

/// One option as it stands.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// What follows `=`; `None` for a key alone.
    pub value: Option<String>,
    /// Where the key stands.
    pub at: Place,
    /// Where the value stands; the key's place if there is none.
    pub value_at: Place,
    /// An error about the value has been reported: it says nothing.
    pub is_void: bool,
}

/// A section.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Where its header stands.
    pub at: Place,
    /// Its options, in order.
    pub entries: Vec<Entry>,
}

/// Splits text into sections.
pub fn split(
    name: &str,
    bytes: &[u8],
    includes: Includes<'_>,
    variables: &Variables,
    found: &mut Vec<Diagnostic>,
) -> Vec<Section> {
    let mut reader = Reader { includes, variables, found, sections: Vec::new() };
    reader.file(name, bytes, 0, None);
    reader.sections
}

struct Reader<'a> {
    includes: Includes<'a>,
    variables: &'a Variables,
    found: &'a mut Vec<Diagnostic>,
    sections: Vec<Section>,
}

fn place(file: &Rc<str>, line: u32, text: &Rc<str>, part: &str) -> Place {
    // `part` is a part of `text`: their distance is the column.
    let byte = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    let column = text.get(..byte).map_or(0, |t| t.chars().count()) as u32 + 1;
    let width = (part.chars().count() as u32).max(1);
    Place { file: file.clone(), line, column, width, text: text.clone() }
}

impl Reader<'_> {
    fn file(&mut self, name: &str, bytes: &[u8], depth: u32, from: Option<&Place>) {
        let text = String::from_utf8_lossy(bytes);
        let file: Rc<str> = name.into();
        let body = text.strip_suffix('\n').unwrap_or(&text);
        for (i, raw) in body.split('\n').enumerate() {
            let line = i as u32 + 1;
            let text: Rc<str> = raw.trim_end_matches('\r').into();
            // fio ends a line at the first `;` or `#`, wherever it stands.
            let end = text.find([';', '#']).unwrap_or(text.len());
            let code = text[..end].trim_matches(|c: char| c.is_whitespace() || c.is_control());
            if code.is_empty() {
                continue;
            }
            let at = place(&file, line, &text, code);
            if let Some(rest) = code.strip_prefix('[') {
                if from.is_some() {
                    self.error(&at, "no new section may begin in an included file", "");
                    continue;
                }
                match rest.strip_suffix(']') {
                    Some(name) if !name.trim().is_empty() => self.sections.push(Section {
                        name: name.to_owned(),
                        at,
                        entries: Vec::new(),
                    }),
                    _ => self.error(&at, "a section's header is `[name]`", "close it with `]`"),
                }
                continue;
            }
            if self.sections.is_empty() {
                let help = "begin with `[global]` or `[name of a job]`";
                self.error(&at, "an option outside of any section", help);
                continue;
            }
            if let Some(rest) = code.strip_prefix("include")
                && rest.starts_with([' ', '\t'])
            {
                self.include(&file, rest.trim(), &at, depth);
                continue;
            }
            self.option(&file, line, &text, code);
        }
    }

    fn include(&mut self, file: &Rc<str>, wanted: &str, at: &Place, depth: u32) {
        if depth >= INCLUDES_MAX {
            self.error(at, format!("includes nest more than {INCLUDES_MAX} deep"), "");
            return;
        }
        // As named, then beside the file that includes it.
        let beside = file.rfind('/').map(|i| format!("{}/{wanted}", &file[..i]));
        let got = (self.includes)(wanted)
            .map(|b| (wanted.to_owned(), b))
            .or_else(|| beside.and_then(|p| (self.includes)(&p).map(|b| (p, b))));
        match got {
            Some((name, bytes)) => self.file(&name, &bytes, depth + 1, Some(at)),
            None => self.error(at, format!("cannot include `{wanted}`: no such file"), ""),
        }
    }

    fn option(&mut self, file: &Rc<str>, line: u32, text: &Rc<str>, code: &str) {
        let (key, value) = match code.split_once('=') {
            Some((k, v)) => (k.trim(), Some(v.trim())),
            None => (code, None),
        };
        let at = place(file, line, text, if key.is_empty() { code } else { key });
        if key.is_empty() {
            self.error(&at, "no option before `=`", "write `key=value`");
            return;
        }
        let value_at = match value {
            Some(v) if !v.is_empty() => place(file, line, text, v),
            _ => at.clone(),
        };
        let errors = self.found.len();
        let value = value.map(|v| self.substitute(v, &value_at));
        let is_void = self.found.len() > errors;
        let entry = Entry { key: key.to_owned(), value, at, value_at, is_void };
        if let Some(section) = self.sections.last_mut() {
            section.entries.push(entry);
        }
    }

    fn substitute(&mut self, value: &str, at: &Place) -> String {
        let mut out = String::new();
        let mut rest = value;
        while let Some(i) = rest.find("${") {
            let Some(end) = rest[i..].find('}') else { break };
            out.push_str(&rest[..i]);
            let name = &rest[i + 2..i + end];
            match self.variables.named.get(name) {
                Some(v) => out.push_str(v),
                None => self.error(
                    at,
                    format!("no variable `{name}` was given"),
                    &format!(
                        "`--vars {name}:VALUE` (`run --workload fio,job=FILE,vars={name}:VALUE`); \
                         the host's environment is not read"
                    ),
                ),
            }
            rest = &rest[i + end + 1..];
        }
        out.push_str(rest);
        let words = [
            ("$pagesize", self.variables.page_bytes),
            ("$mb_memory", self.variables.memory_mib),
            ("$ncpus", self.variables.cpus),
        ];
        for (word, number) in words {
            let Some((_, behind)) = out.split_once(word) else { continue };
            // fio has `bc` of the host compute it.
            if behind.trim_start().starts_with(['+', '-', '*', '/']) {
                let what = format!(
                    "`{word}` is a number of the host, and arithmetic on it is not supported"
                );
                self.error(at, what, "write the number");
                return String::new();
            }
            out = out.replace(word, &number.to_string());
        }
        out
    }

    fn error(&mut self, at: &Place, message: impl Into<String>, help: &str) {
        self.found.push(Diagnostic::error(at, message, help));
    }
}
