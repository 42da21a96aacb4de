//! WML, the language of filebench 1.5's workload models (`.f` files).
//!
//! Picture:    text -> words (`lex`) -> commands ([`parse`](self::parse())) -> a
//!             [`Personality`] (`resolve`, `check`), or diagnostics.
//! Invariants: no word is ignored in silence: [`WORDS`] says of each what it does here.
//! Differs:    what filebench finds while it runs is an error before; a bracket may follow a
//!             variable; a variable's name may have one letter.
//! Source:     the grammar that filebench 1.5 accepts, read and tried.

mod check;
mod lex;
mod parse;
mod resolve;
mod vars;
mod words;

use std::collections::BTreeMap;

pub use words::{Owner, WORDS, Word};

use super::model::{Kind, Personality, Step};
use crate::fio::{Diagnostic, Place, Severity};
use parse::{Attr, CommandText, FlowopText, Placed, Setting};

/// A word of a text, where it stands.
#[derive(Clone, Debug)]
pub struct Used {
    /// The word.
    pub word: &'static Word,
    /// Where.
    pub at: Place,
}

/// What came of a text.
#[derive(Clone, Debug)]
pub struct WmlFile {
    /// What it says; means nothing where there are errors.
    pub personality: Personality,
    /// What it echoes.
    pub echoes: Vec<String>,
    /// What is wrong with it.
    pub diagnostics: Vec<Diagnostic>,
    /// Its words, in order.
    pub used: Vec<Used>,
    /// Names of the variables that it sets.
    pub variables: Vec<String>,
}

impl WmlFile {
    /// Can it not run?
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }

    /// All diagnostics, one below the other.
    pub fn rendered(&self) -> String {
        self.diagnostics.iter().map(|d| format!("{d}\n")).collect()
    }
}

/// Reads a text. `given` says what variables are instead of what the text sets them to, in its
/// language: `4k`, `true`, `cvar(...)`; the text must set each.
pub fn parse(name: &str, bytes: &[u8], given: &BTreeMap<String, String>) -> WmlFile {
    let mut found = Vec::new();
    let tokens = lex::lex(name, bytes, &mut found);
    let commands = parse::parse(&tokens, &mut found);
    let mut variables: Vec<String> = Vec::new();
    for c in &commands {
        if let CommandText::Set { name, .. } = &c.command
            && !variables.contains(name)
        {
            variables.push(name.clone());
        }
    }
    let nowhere = |text: &str| Place {
        file: "(given)".into(),
        line: 1,
        column: 1,
        width: text.chars().count().max(1) as u32,
        text: text.into(),
    };
    let mut settings = BTreeMap::new();
    for (key, value) in given {
        let text = format!("set ${key}={value}");
        if !variables.contains(key) {
            let names: Vec<String> = variables.iter().map(|v| format!("${v}")).collect();
            let help = format!("it sets {}", names.join(", "));
            let message = format!("the text sets no `${key}`");
            found.push(Diagnostic::error(&nowhere(&text), message, help));
            continue;
        }
        let tokens = lex::lex("(given)", text.as_bytes(), &mut found);
        let mut read = parse::parse(&tokens, &mut found);
        match (read.pop(), read.len()) {
            (Some(Placed { command: CommandText::Set { to, .. }, .. }), 0) => {
                settings.insert(key.clone(), to);
            }
            _ => found.push(Diagnostic::error(&nowhere(&text), "this is not one value", "")),
        }
    }
    let stem = name.rsplit('/').next().unwrap_or(name);
    let stem = stem.strip_suffix(".f").unwrap_or(stem);
    let mut used = Vec::new();
    commands.iter().for_each(|c| note(c, &mut used));
    let resolved = resolve::resolve(stem, &commands, &settings, &nowhere(""));
    // A command that was not understood may have set what others need.
    if found.iter().all(|d| d.severity != Severity::Error) {
        found.extend(resolved.found);
    }
    let (personality, echoes) = (resolved.personality, resolved.echoes);
    WmlFile { personality, echoes, diagnostics: found, used, variables }
}

/// Notes the words of a command.
fn note(placed: &Placed, used: &mut Vec<Used>) {
    let mut add = |owner, name: &str, at: &Place| {
        if let Some(word) = words::find(owner, name) {
            used.push(Used { word, at: at.clone() });
        }
    };
    let mut attrs = |owner, list: &[Attr]| list.iter().for_each(|a| add(owner, &a.name, &a.at));
    let flowops = |list: &[FlowopText], used: &mut dyn FnMut(Owner, &str, &Place)| {
        for f in list {
            used(Owner::Flowop, &f.kind, &f.at);
            f.attrs.iter().for_each(|a| used(Owner::Attribute, &a.name, &a.at));
        }
    };
    match &placed.command {
        CommandText::Set { to: Setting::Random(a), .. } => attrs(Owner::RandVar, a),
        CommandText::Set { to: Setting::Custom(a), .. } => attrs(Owner::CVar, a),
        CommandText::Files { owner, attrs: a } => attrs(*owner, a),
        CommandText::Process { attrs: a, threads } => {
            attrs(Owner::Process, a);
            for t in threads {
                t.attrs.iter().for_each(|a| add(Owner::Thread, &a.name, &a.at));
                flowops(&t.flowops, &mut add);
            }
        }
        CommandText::Composite { attrs: a, flowops: list, .. } => {
            attrs(Owner::Composite, a);
            flowops(list, &mut add);
        }
        CommandText::Rate(Some(a)) => add(Owner::EventGen, &a.name, &a.at),
        CommandText::System(_) => add(Owner::Command, "system", &placed.at),
        CommandText::Run { is_psrun, .. } => {
            add(Owner::Command, if *is_psrun { "psrun" } else { "run" }, &placed.at);
        }
        _ => {}
    }
}

/// Types of flowops that a thread's list has, in order; those of its own as what they do.
pub fn kinds(steps: &[Step]) -> Vec<Kind> {
    let of = |s: &Step| match s {
        Step::Do(f) => vec![f.kind],
        Step::Repeat(_, inner) => kinds(inner),
    };
    steps.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests;
