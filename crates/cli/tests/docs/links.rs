//! Links within the documentation.

use std::path::{Component, Path, PathBuf};

use super::pages::{Page, repository};

/// Where a relative link leads.
pub struct Target {
    /// Path from the repository's root.
    pub path: String,
    /// Heading there, as a link names it.
    pub heading: Option<String>,
    /// Number of the link's line, from 1.
    pub line: usize,
}

/// The relative links of a page, code left out.
pub fn targets(page: &Page) -> Vec<Target> {
    let folder = Path::new(&page.path).parent().expect("a page is in a folder").to_owned();
    let mut found = Vec::new();
    for (n, line) in prose(&page.text) {
        for (at, _) in line.match_indices("](") {
            let Some((to, _)) = line[at + 2..].split_once(')') else { continue };
            if to.contains("://") || to.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = match to.split_once('#') {
                Some((file, heading)) => (file, Some(heading.to_owned())),
                None => (to, None),
            };
            let path = if file.is_empty() { page.path.clone() } else { join(&folder, file) };
            found.push(Target { path, heading, line: n });
        }
    }
    found
}

/// Links of a page that lead nowhere.
pub fn check(page: &Page, all: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for t in targets(page) {
        let to = all.iter().find(|p| p.path == t.path);
        let what = match (&t.heading, to) {
            _ if !repository(&t.path).exists() => format!("there is no {}", t.path),
            (Some(heading), Some(to)) if !headings(to).contains(heading) => {
                format!("{} has no heading #{heading}", t.path)
            }
            _ => continue,
        };
        wrong.push(format!("{}:{}: {what}", page.path, t.line));
    }
    wrong
}

/// A page's headings, as links name them: lower case, words joined by `-`, other signs left out.
fn headings(page: &Page) -> Vec<String> {
    prose(&page.text)
        .filter_map(|(_, line)| {
            let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
        })
        .collect()
}

/// The lines outside fenced blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_open = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        if line.starts_with("```") {
            is_open = !is_open;
            return None;
        }
        (!is_open).then_some((n + 1, line))
    })
}

fn join(folder: &Path, file: &str) -> String {
    let mut path = PathBuf::new();
    for part in folder.join(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}
