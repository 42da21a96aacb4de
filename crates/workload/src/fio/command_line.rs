//! fio's command line: jobs as arguments, job files, and what fio itself is asked for.
//!
//! Observed with fio 3.33: `--key=value` or `--key value`; an option of a job begins a job's
//! section at each `--name`, and stands for all jobs before the first one. Options that are
//! switches take a value only behind `=`. Job files follow the jobs of the command line. The first
//! file is under the options that stand for all; each further file begins with fio's defaults and
//! after a stonewall.

use std::rc::Rc;

use super::diag::{Diagnostic, Place};
use super::forms::{self, Kind};
use super::ini::{Entry, Section};
use super::options;

/// What is asked of fio itself, with whether it takes a value.
pub const COMMANDS: &[(&str, bool)] = &[
    ("output", true),
    ("output-format", true),
    ("minimal", false),
    ("terse-version", true),
    ("bandwidth-log", false),
    ("section", true),
    ("showcmd", false),
    ("parse-only", false),
    ("version", false),
    ("help", false),
    ("cmdhelp", true),
    ("enghelp", true),
    ("eta", true),
    ("eta-newline", true),
    ("eta-interval", true),
    ("status-interval", true),
    ("readonly", false),
    ("alloc-size", true),
    ("warnings-fatal", false),
    ("max-jobs", true),
    ("debug", true),
    ("aux-path", true),
    ("append-terse", false),
    ("merge-blktrace-only", false),
    ("cpuclock-test", false),
    ("crctest", true),
    ("server", true),
    ("daemonize", true),
    ("client", true),
    ("remote-config", true),
    ("idle-prof", true),
    ("inflate-log", true),
    ("trigger-file", true),
    ("trigger-timeout", true),
    ("trigger", true),
    ("trigger-remote", true),
];

/// A command line, cut into its parts.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Sections of jobs, `global` first if options stand before the first job.
    pub sections: Vec<Section>,
    /// Job files.
    pub files: Vec<String>,
    /// What fio itself is asked for, of [`COMMANDS`] and of the caller's own keys; a switch has an
    /// empty value.
    pub commands: Vec<(String, String)>,
    /// What is wrong with it.
    pub found: Vec<Diagnostic>,
}

impl CommandLine {
    /// The last value of a command; `None`: not given.
    pub fn command(&self, key: &str) -> Option<&str> {
        self.commands.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a command.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.commands.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// The place of a part of argument number `n`, counted from 0.
fn place(n: usize, text: &str, from: usize, part: &str) -> Place {
    let column = text.get(..from).map_or(0, |t| t.chars().count()) as u32 + 1;
    let width = (part.chars().count() as u32).max(1);
    let (file, text): (Rc<str>, Rc<str>) = ("argument".into(), text.into());
    Place { file, line: n as u32 + 1, column, width, text }
}

/// Reads arguments; `own`: further keys that take a value and are no options of fio. Never fails:
/// what is wrong is in what it found.
pub fn read(arguments: &[String], own: &[&str]) -> CommandLine {
    let mut line = CommandLine::default();
    let mut n = 0;
    let mut only_files = false;
    while let Some(text) = arguments.get(n) {
        let at = n;
        n += 1;
        let dashes = match text {
            _ if only_files => 0,
            t if t == "--" => {
                only_files = true;
                continue;
            }
            t if t.starts_with("--") => 2,
            t if t.starts_with('-') && t.len() > 1 => 1,
            _ => 0,
        };
        if dashes == 0 {
            line.files.push(text.clone());
            continue;
        }
        let body = &text[dashes..];
        let (key, behind) = match body.split_once('=') {
            Some((k, v)) => (k, Some(v)),
            None => (body, None),
        };
        let key_at = place(at, text, dashes, key);
        let command = COMMANDS.iter().find(|(k, _)| *k == key);
        let option = options::find(key);
        let takes = match (command, option) {
            (Some((_, takes)), _) => *takes,
            _ if own.contains(&key) => true,
            (None, Some(o)) => forms::form(o.name).is_none_or(|f| f.kind != Kind::Switch),
            (None, None) => {
                let names = COMMANDS.iter().map(|c| c.0).chain(own.iter().copied());
                let names: Vec<&str> = names.collect();
                let help = options::nearest(key)
                    .or_else(|| options::nearest_of(names.into_iter(), key))
                    .map(|n| format!("did you mean `--{n}`?"))
                    .unwrap_or_else(|| {
                        "`writepath fio check --all` lists fio's options".to_owned()
                    });
                let what = format!("`{text}` is no option of fio 3.33");
                line.found.push(Diagnostic::error(&key_at, what, help));
                continue;
            }
        };
        let (value, value_at) = match (behind, takes) {
            (Some(v), _) => (Some(v.to_owned()), place(at, text, dashes + key.len() + 1, v)),
            (None, true) => {
                let next = arguments.get(n).cloned();
                n += 1;
                let Some(next) = next else {
                    let help = format!("write `--{key}=VALUE`");
                    let what = format!("`--{key}` needs a value");
                    line.found.push(Diagnostic::error(&key_at, what, help));
                    continue;
                };
                let value_at = place(at + 1, &next, 0, &next);
                (Some(next), value_at)
            }
            (None, false) => (None, key_at.clone()),
        };
        if command.is_some() || own.contains(&key) {
            line.commands.push((key.to_owned(), value.unwrap_or_default()));
            continue;
        }
        option_of_job(&mut line, key, (value, value_at), key_at);
    }
    line
}

/// Adds an option to the job that it is of.
fn option_of_job(
    line: &mut CommandLine,
    key: &str,
    (value, value_at): (Option<String>, Place),
    at: Place,
) {
    let begins = key == "name";
    if begins || line.sections.is_empty() {
        let name = match (&value, begins) {
            (Some(name), true) if !name.is_empty() => name.clone(),
            _ => "global".to_owned(),
        };
        line.sections.push(Section { name, at: at.clone(), entries: Vec::new() });
    }
    let entry = Entry { key: key.to_owned(), value, at, value_at, is_void: false };
    if let Some(section) = line.sections.last_mut()
        && !(begins && section.name.starts_with("global"))
    {
        section.entries.push(entry);
    }
}

/// A command line that says the same as a section (`--showcmd`).
pub fn shown(sections: &[Section]) -> String {
    let mut text = String::from("fio");
    for section in sections {
        if !section.name.starts_with("global") {
            text += &format!(" --name={}", quoted(&section.name));
        }
        for e in section.entries.iter().filter(|e| e.key != "name") {
            text += &match &e.value {
                Some(v) => format!(" --{}={}", e.key, quoted(v)),
                None => format!(" --{}", e.key),
            };
        }
    }
    text + "\n"
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/.,:%+-_=$@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        let arguments: Vec<String> = text.split(' ').map(str::to_owned).collect();
        read(&arguments, &["device"])
    }

    #[test]
    fn options_are_of_all_jobs_or_of_the_job_before_them() {
        let l = line("--bs=8k --name=a --size 1m --norandommap --name b -rw=read j.fio --device x");
        assert!(l.found.is_empty(), "{:?}", l.found);
        let of = |s: &Section| {
            let all = s.entries.iter().map(|e| format!("{}={:?}", e.key, e.value));
            format!("{}: {}", s.name, all.collect::<Vec<_>>().join(" "))
        };
        let all: Vec<String> = l.sections.iter().map(of).collect();
        assert_eq!(
            all,
            [
                "global: bs=Some(\"8k\")",
                "a: name=Some(\"a\") size=Some(\"1m\") norandommap=None",
                "b: name=Some(\"b\") rw=Some(\"read\")"
            ]
        );
        assert_eq!(
            (l.files, l.commands),
            (vec!["j.fio".into()], vec![("device".into(), "x".into())])
        );
        assert_eq!(
            shown(&line("--bs=8k --name=a --description x --norandommap").sections),
            "fio --bs=8k --name=a --description=x --norandommap\n"
        );
    }

    #[test]
    fn what_is_wrong_is_shown_in_its_argument() {
        let l = line("--name=a --sise=1m --size");
        let all: Vec<String> = l.found.iter().map(ToString::to_string).collect();
        assert!(all[0].contains("argument:2:3") && all[0].contains("did you mean `--size`?"));
        assert!(all[1].contains("argument:3:3") && all[1].contains("needs a value"), "{}", all[1]);
    }
}
