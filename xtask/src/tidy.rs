//! Tidiness: lengths, banned words, what would make a run unrepeatable, names of one machine, and
//! the language of documents, doc comments and the command's texts.
//!
//! Each finding names the file, the line and what to write instead. Rules are in `rules.rs`, those
//! of language in `prose.rs`; here are the lengths, and how a rule meets a file.

mod prose;
mod ratchet;
mod rules;
mod wrap;

use std::collections::BTreeMap;

use crate::repo::{self, TextFile};
use crate::scan;
use ratchet::Long;
use rules::{BANNED_PLACES, BANNED_WORDS, Ban, DETERMINISM, Reach};

/// Characters in a line of Rust; rustfmt wraps code there, but neither comments nor literals.
/// A string literal at least this long excuses its line.
const LITERAL_CHARACTERS_MIN: usize = 40;
const LINE_CHARACTERS_MAX: usize = 100;
/// Lines of a crate's `lib.rs`: a tour and a list of modules, not code.
const LIB_LINES_MAX: usize = 150;
/// `#[expect(clippy::disallowed_…, reason = "…")]` lifts a determinism rule for this many lines.
const EXPECT_REACHES_LINES: usize = 5;

/// The lints that say what the determinism rules say; the compiler checks every expectation of one.
const DISALLOWED: &str = "clippy::disallowed_";

/// What was found; any error fails.
#[derive(Debug, Default)]
struct Findings {
    errors: Vec<String>,
    long: Long,
}

/// Checks every text file of the workspace and prints the findings; `fix` wraps comments first.
pub fn run(fix: bool) -> Result<bool, String> {
    let root = repo::root()?;
    let mut files = repo::text_files(&root)?;
    for file in files.iter_mut().filter(|file| fix && file.path.ends_with(".rs")) {
        let wrapped = wrap::wrap_comments(&file.text, LINE_CHARACTERS_MAX);
        if wrapped != file.text {
            std::fs::write(root.join(&file.path), &wrapped)
                .map_err(|e| format!("{}: {e}", file.path))?;
            file.text = wrapped;
        }
    }
    let findings = check(&files);
    let lowered = ratchet::lowered(&findings.long, &listed(&files)?);
    if let Some(text) = lowered.filter(|_| fix) {
        std::fs::write(root.join(ratchet::LIST), text)
            .map_err(|e| format!("{}: {e}", ratchet::LIST))?;
    }
    report(&files, &findings)
}

/// What was long before. Errors: a list that cannot be read.
fn listed(files: &[TextFile]) -> Result<Long, String> {
    let list = files.iter().find(|file| file.path == ratchet::LIST);
    ratchet::parse(list.map_or("", |file| &file.text))
}

fn report(files: &[TextFile], findings: &Findings) -> Result<bool, String> {
    for error in &findings.errors {
        eprintln!("error: {error}");
    }
    println!("tidy: {} files, {} errors", files.len(), findings.errors.len());
    Ok(findings.errors.is_empty())
}

fn check(files: &[TextFile]) -> Findings {
    let layers = layers_of(files);
    let mut findings = Findings::default();
    for file in files {
        check_places(file, &mut findings);
        if file.path.ends_with(".md") && !file.path.ends_with(".ko.md") {
            prose::check_page(file, &mut findings);
        }
        if file.path.ends_with(".rs") {
            check_rust(file, layer_of(&layers, &file.path), &mut findings);
        }
        if let Some(folder) = file.path.strip_suffix("tests/all.rs") {
            check_tests(files, folder, &file.text, &mut findings);
        }
    }
    match listed(files) {
        Ok(listed) => findings.errors.extend(ratchet::refusals(&findings.long, &listed)),
        Err(e) => findings.errors.push(e),
    }
    findings
}

/// Where a crate's tests are one program, a file beside it that it does not name would not run.
fn check_tests(files: &[TextFile], folder: &str, all: &str, findings: &mut Findings) {
    let names = files.iter().filter_map(|f| {
        let inside = f.path.strip_prefix(folder)?.strip_prefix("tests/")?.strip_suffix(".rs")?;
        let name = inside.strip_suffix("/mod").unwrap_or(inside);
        (name != "all" && !name.contains('/')).then_some(name)
    });
    for name in names {
        if !all.lines().any(|line| line.trim() == format!("mod {name};")) {
            let error = format!("{folder}tests/all.rs:1: no `mod {name};`: it would not run");
            findings.errors.push(error);
        }
    }
}

/// Layer of each crate directory, from the manifests among the files.
fn layers_of(files: &[TextFile]) -> BTreeMap<&str, i64> {
    let mut layers = BTreeMap::new();
    for file in files {
        let Some(dir) = file.path.strip_suffix("/Cargo.toml") else {
            continue;
        };
        let Ok(manifest) = file.text.parse::<toml::Table>() else {
            continue;
        };
        let layer = manifest
            .get("package")
            .and_then(|p| p.get("metadata"))
            .and_then(|m| m.get("layer"))
            .and_then(toml::Value::as_integer);
        if let Some(layer) = layer {
            layers.insert(dir, layer);
        }
    }
    layers
}

/// Layer of the crate that the file belongs to; a file outside any crate is held to all rules.
fn layer_of(layers: &BTreeMap<&str, i64>, path: &str) -> i64 {
    layers
        .iter()
        .find(|(dir, _)| path.strip_prefix(**dir).is_some_and(|rest| rest.starts_with('/')))
        .map_or(0, |(_, &layer)| layer)
}

/// Names that are true on one machine only, in any text file.
fn check_places(file: &TextFile, findings: &mut Findings) {
    for (number, line) in numbered(&file.text) {
        for ban in BANNED_PLACES {
            // The lock file has to say where a crate comes from.
            let is_lock = file.path.rsplit('/').next() == Some("Cargo.lock");
            if !is_lock && contains_word(line, ban.word) {
                findings.errors.push(refusal(file, number, ban));
            }
        }
    }
}

fn check_rust(file: &TextFile, layer: i64, findings: &mut Findings) {
    let code = scan::code_only(&file.text);
    let code_lines: Vec<&str> = code.lines().collect();
    let mut is_test = scan::test_lines(&code);
    if is_test_path(&file.path) {
        is_test.fill(true);
    }
    check_lengths(file, findings);
    check_examples(file, findings);
    findings.long.extend(ratchet::long_ones(&file.path, &code, &is_test));
    prose::check_rust(file, &code, findings);
    for (number, line) in numbered(&file.text) {
        for ban in BANNED_WORDS {
            if line.contains(ban.word) {
                findings.errors.push(refusal(file, number, ban));
            }
        }
    }
    let whole_file = code
        .split("#![expect(")
        .skip(1)
        .any(|attribute| attribute.split(']').next().is_some_and(|a| a.contains(DISALLOWED)));
    let expected = |index: usize| {
        let above = &code_lines[index.saturating_sub(EXPECT_REACHES_LINES)..index];
        whole_file || above.iter().any(|line| line.contains(DISALLOWED))
    };
    for (index, line) in code_lines.iter().enumerate() {
        let grouped = grouped_std_imports(&code_lines, index);
        for ban in DETERMINISM {
            let applies = match ban.reach {
                Reach::Everywhere => true,
                Reach::BelowLayer(limit) => layer < limit && !is_test[index],
            };
            let named = contains_word(line, ban.word) || grouped.iter().any(|g| g == ban.word);
            let lifted = ban.reach == Reach::Everywhere && expected(index);
            if applies && named && !lifted {
                findings.errors.push(refusal(file, index + 1, ban));
            }
        }
    }
}

/// Examples in comments are compiled in this crate only: to look for them in the others takes
/// rustdoc longer than the tests of most.
const HAS_EXAMPLES: &str = "crates/base/";

/// Code in a comment that nobody compiles.
fn check_examples(file: &TextFile, findings: &mut Findings) {
    if file.path.starts_with(HAS_EXAMPLES) {
        return;
    }
    let mut is_open = false;
    for (number, line) in numbered(&file.text) {
        let comment =
            line.trim_start().strip_prefix("///").or(line.trim_start().strip_prefix("//!"));
        let Some(tag) = comment.and_then(|c| c.trim_start().strip_prefix("```")) else { continue };
        is_open = !is_open;
        if is_open && matches!(tag.trim(), "" | "rust" | "no_run" | "should_panic") {
            let what = "an example that is not compiled: make it a test, or tag it `text`";
            findings.errors.push(format!("{}:{number}: {what}", file.path));
        }
    }
}

/// Characters in the longest string literal of a line. Text for people stays in one piece, so that
/// it can be searched for: rustfmt leaves such lines alone, and so does the limit.
fn literal_characters(line: &str) -> usize {
    if line.trim_start().starts_with("//") {
        return 0;
    }
    line.split('"').skip(1).step_by(2).map(|part| part.chars().count()).max().unwrap_or(0)
}

fn check_lengths(file: &TextFile, findings: &mut Findings) {
    for (number, line) in numbered(&file.text) {
        let length = line.chars().count();
        if length > LINE_CHARACTERS_MAX && literal_characters(line) < LITERAL_CHARACTERS_MIN {
            findings.errors.push(format!(
                "{}:{number}: {length} characters: at most {LINE_CHARACTERS_MAX} \
                 (cargo fmt; comments: cargo xtask tidy --fix)",
                file.path
            ));
        }
    }
    let all = file.text.lines().count();
    if file.path.ends_with("src/lib.rs") && all > LIB_LINES_MAX {
        findings.errors.push(format!(
            "{}:1: {all} lines: a lib.rs has at most {LIB_LINES_MAX}; move code to a module",
            file.path
        ));
    }
}

/// Test files by their place: `tests/`, `benches/`, `…tests.rs`.
fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "benches") || path.ends_with("tests.rs")
}

/// `use std::{fs, io}` on this line means `std::fs` and `std::io`; the group may span lines.
fn grouped_std_imports(lines: &[&str], index: usize) -> Vec<String> {
    let Some((_, group)) = lines[index].split_once("std::{") else {
        return Vec::new();
    };
    let mut text = group.to_owned();
    for line in &lines[index + 1..] {
        if text.contains(';') {
            break;
        }
        text.push_str(line);
    }
    let mut depth = 0;
    let mut names = vec![String::new()];
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(String::new()),
            _ if depth == 0 => names.last_mut().expect("never empty").push(c),
            _ => {}
        }
    }
    names
        .iter()
        .filter_map(|name| name.trim().split("::").next())
        .filter(|name| !name.is_empty())
        .map(|name| format!("std::{name}"))
        .collect()
}

/// Does the word stand in the line, not as a part of a longer one?
fn contains_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open = word.ends_with(|c| !part_of_word(c));
        !before.is_some_and(part_of_word) && (open || !after.is_some_and(part_of_word))
    })
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn refusal(file: &TextFile, number: usize, ban: &Ban) -> String {
    format!("{}:{number}: `{}`: {}", file.path, ban.word, ban.instead)
}

#[cfg(test)]
mod tests;
