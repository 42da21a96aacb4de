//! `list techniques`.

use std::fmt::Write;

use serde_json::{Value, json};
use wp_papers::techniques::{Conflict, TECHNIQUES, Technique, conflict};

const LINE: &str = "a string takes it";
/// Columns of text, and of what names stand in.
const WIDTH: usize = 100;
const INDENT: usize = 22;

/// Every technique, or that of a name: as JSON and as text.
pub fn list(name: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let all = TECHNIQUES
        .iter()
        .filter(|t| name.is_none_or(|n| n == t.name))
        .map(|t| {
            described(t, &mut text);
            let conflicts: Vec<Value> = conflicts(t)
                .map(|(with, c)| {
                    json!({ "with": with, "why": c.why, "mount_refuses": c.mount_refuses })
                })
                .collect();
            let needs: Vec<&str> = t.needs.iter().map(|n| n.name()).collect();
            let lost: Vec<Value> = t
                .unsafe_without
                .iter()
                .map(|(what, bug)| json!({ "without": what, "bug": bug }))
                .collect();
            json!({
                "name": t.name, "about": t.about, "origin": t.origin.to_string(),
                "paper": t.origin.paper(), "fs": t.fs, "is_built": t.fs.is_some(),
                "options": t.on, "elevator": t.elevator,
                "kernels": t.kernels(), "needs": needs, "conflicts": conflicts,
                "unsafe_without": lost,
            })
        })
        .collect();
    (all, text)
}

/// What it cannot be together with, whichever of the two the table has it with.
fn conflicts(t: &Technique) -> impl Iterator<Item = (&'static str, &'static Conflict)> {
    TECHNIQUES
        .iter()
        .filter(|other| other.name != t.name)
        .filter_map(move |other| conflict(t, other).map(|c| (other.name, c)))
}

/// Lines about one.
fn described(t: &Technique, text: &mut String) {
    wrapped(text, t.name, t.about);
    match t.fs {
        None => wrapped(text, "", &format!("{}; not implemented", t.origin)),
        Some(fs) => {
            wrapped(text, "", &t.origin.to_string());
            let comma = if t.on.is_empty() { "" } else { "," };
            match t.elevator {
                "" => wrapped(text, "", &format!("--fs {fs}{comma}{}", t.on)),
                params => wrapped(text, "", &format!("--elevator NAME,{params}")),
            }
        }
    }
    let kernels = t.kernels();
    if !kernels.is_empty() {
        wrapped(text, "", &format!("Linux {kernels}"));
    }
    for need in t.needs {
        wrapped(text, "", &format!("needs {}", need.name()));
    }
    for (what, bug) in t.unsafe_without {
        wrapped(text, "", &format!("unsafe without {what}: crash bug {bug}"));
    }
    for (with, c) in conflicts(t) {
        let by = if c.mount_refuses { "; the mount is refused" } else { "" };
        wrapped(text, "", &format!("conflicts with {with}: {}{by}", c.why));
    }
}

/// A name, and words behind it in a column of their own.
fn wrapped(text: &mut String, name: &str, words: &str) {
    let mut line = format!("{name:<INDENT$}");
    for word in words.split(' ') {
        if line.len() + word.len() > WIDTH && line.trim_end().len() >= INDENT {
            writeln!(text, "{}", line.trim_end()).expect(LINE);
            line = " ".repeat(INDENT + 2);
        }
        line.push_str(word);
        line.push(' ');
    }
    writeln!(text, "{}", line.trim_end()).expect(LINE);
}
