//! The pages of the documentation, and what in them is a command.
//!
//! A fenced block is `console run` (its `$` lines are run, in order, and what stands below each is
//! what it prints), `console slow` (the same, where somebody has the time), `LANGUAGE file=NAME` (a
//! file that the page's commands find), or only to be read.

use std::path::PathBuf;

/// A page.
pub struct Page {
    /// Path from the repository's root, with `/` between its parts.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// What stands behind the opening fence.
    pub info: String,
    /// Number of the line of the opening fence, from 1.
    pub line: usize,
    /// Its lines.
    pub lines: Vec<String>,
}

/// A path inside the repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Every page for users: `README*.md` and what is below `docs`, in the order of paths.
pub fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    collect("", false, &mut paths);
    collect("docs", true, &mut paths);
    paths.retain(|p| p.starts_with("docs/") || p.starts_with("README"));
    paths.sort();
    assert!(paths.len() > 10, "the documentation is there: {paths:?}");
    paths
        .into_iter()
        .map(|path| Page {
            text: std::fs::read_to_string(repository(&path)).expect("a page is text"),
            path,
        })
        .collect()
}

fn collect(under: &str, below_too: bool, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(repository(under)).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let path = if under.is_empty() { name.clone() } else { format!("{under}/{name}") };
        if entry.file_type().expect("a type").is_dir() {
            if below_too {
                collect(&path, true, paths);
            }
        } else if name.ends_with(".md") {
            paths.push(path);
        }
    }
}

/// The fenced blocks of a page, in order. A fence that is not closed is a mistake of the page.
pub fn blocks(page: &Page) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in page.text.lines().enumerate() {
        match (line.strip_prefix("```"), is_open) {
            (Some(info), false) => {
                let (info, lines) = (info.trim().to_owned(), Vec::new());
                found.push(Block { info, line: number + 1, lines });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => found.last_mut().expect("one is open").lines.push(line.to_owned()),
            (None, false) => {}
        }
    }
    assert!(!is_open, "{}: a fence is not closed", page.path);
    found
}

/// The commands of a block, each with the number of its line: behind `$ `, or, in a block without
/// prompts, lines that begin as this project's commands do. A `\` at the end goes on.
pub fn commands(block: &Block) -> Vec<(usize, String)> {
    let has_prompts = block.lines.iter().any(|l| l.starts_with("$ "));
    let is_console = block.info.is_empty()
        || ["console", "sh", "text"].iter().any(|k| block.info.split(' ').next() == Some(k));
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (n, line) in block.lines.iter().enumerate().filter(|_| is_console) {
        let begins = match line.strip_prefix("$ ") {
            Some(command) => Some(command),
            None if has_prompts => None,
            None => ["writepath ", "cargo ", "./test"]
                .iter()
                .any(|w| line.starts_with(w) || line.contains(&format!("| {w}")))
                .then_some(line.as_str()),
        };
        let part = match (goes_on, begins) {
            (true, _) => line.as_str(),
            (false, Some(command)) => {
                found.push((block.line + n + 1, String::new()));
                command
            }
            (false, None) => continue,
        };
        let command = &mut found.last_mut().expect("one has begun").1;
        goes_on = part.ends_with('\\');
        command.push_str(part.trim_end_matches('\\'));
    }
    found
}
