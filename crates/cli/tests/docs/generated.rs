//! What a page has from the program: between `<!-- generated: COMMAND -->` and `<!-- end -->`
//! stands what the command prints, as a block of text.

use wp_machine::testing::blessing;

use super::pages::{Page, blocks, repository};
use super::play::shell;

/// At the beginning of a line.
const BEGIN: &str = "\n<!-- generated: ";
const END: &str = "<!-- end -->";

/// What is not as the program prints it; rewrites the page instead with `WRITEPATH_BLESS=1`.
pub fn check(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut whole = String::new();
    let mut rest = page.text.as_str();
    while let Some(at) = rest.find(BEGIN) {
        let (before, from) = rest.split_at(at);
        let (head, body) = from.split_once(" -->\n").expect("the marker ends its line");
        let command = &head[BEGIN.len()..];
        assert!(command.starts_with("writepath "), "{}: {command}", page.path);
        let (old, after) = body
            .split_once(END)
            .unwrap_or_else(|| panic!("{}: `{command}` has no {END}", page.path));
        let new = format!("```text\n{}```\n", printed(command));
        if old != new {
            wrong.push(format!("{}: `{command}` prints something else", page.path));
        }
        whole.push_str(before);
        whole.push_str(&format!("{head} -->\n{new}{END}"));
        rest = after;
    }
    whole.push_str(rest);
    if blessing() && !wrong.is_empty() {
        std::fs::write(repository(&page.path), whole).expect("written");
        wrong.clear();
    }
    wrong
}

fn printed(command: &str) -> String {
    let scratch = tempfile::tempdir().expect("a folder");
    let told = scratch.path();
    shell(&format!("{{ {command}\n}} >\"$TOLD/out\" || echo failed >>\"$TOLD/out\""), told, told);
    let text = std::fs::read_to_string(told.join("out")).expect("text");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert!(!text.is_empty() && !text.ends_with("failed\n"), "`{command}` fails: {text}");
    lines.join("\n") + "\n"
}

/// Code that a page has from the sources (`rust from=PATH`) and that does not stand there.
pub fn check_quotes(page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    for block in blocks(page) {
        let Some(from) = block.info.split(' ').find_map(|w| w.strip_prefix("from=")) else {
            continue;
        };
        let source = std::fs::read_to_string(repository(from)).unwrap_or_default();
        // Parts between lines of dots stand there one after the other.
        let mut rest = source.as_str();
        for part in block.lines.split(|l| l.trim() == "...") {
            let part = part.join("\n");
            match rest.find(&part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => wrong.push(format!("{}:{}: not in {from}", page.path, block.line)),
            }
        }
    }
    wrong
}
