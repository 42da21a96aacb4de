//! `cargo xtask licences`: what the program is built from, and under which licences.
//!
//! docs/dependencies.md has a table of it, which a test holds against `cargo metadata`, and
//! `cargo xtask dist` puts the texts beside the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::repo;

/// The page with the table.
const PAGE: &str = "docs/dependencies.md";
const BEGIN: &str = "<!-- dependencies: written by `cargo xtask licences --bless` -->";
const END: &str = "<!-- dependencies: end -->";

/// Licences that may be part of the program; of `A OR B` one is enough, of `A AND B` both are
/// needed.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// A crate of somebody else that is linked into the program.
pub struct Package {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Licence expression.
    pub licence: String,
    /// Where its sources lie.
    pub dir: PathBuf,
}

/// Compares the table with the dependencies; `bless` rewrites it.
pub fn run(bless: bool) -> Result<bool, String> {
    let root = repo::root()?;
    let packages = linked(&root)?;
    let mut clean = true;
    for p in packages.iter().filter(|p| !is_allowed(&p.licence)) {
        eprintln!("error: {} {}: licence `{}` is not in the list", p.name, p.version, p.licence);
        clean = false;
    }
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(|e| format!("{PAGE}: {e}"))?;
    let wanted = with_table(&page, &table(&packages))?;
    if bless && page != wanted {
        std::fs::write(&path, wanted).map_err(|e| format!("{PAGE}: {e}"))?;
    } else if page != wanted {
        eprintln!("error: {PAGE} is not up to date: cargo xtask licences --bless");
        clean = false;
    }
    println!("licences: {} crates of others", packages.len());
    Ok(clean)
}

/// Every crate of others that the command is built from, by name and version: tests' and build
/// scripts' own are none.
pub fn linked(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform"])
        .arg("x86_64-unknown-linux-gnu")
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let all: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let list = |v: &Value, key: &str| v[key].as_array().cloned().unwrap_or_default();
    let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_owned();
    let nodes: BTreeMap<String, Value> =
        list(&all["resolve"], "nodes").into_iter().map(|n| (text(&n, "id"), n)).collect();
    let packages: BTreeMap<String, Value> =
        list(&all, "packages").into_iter().map(|p| (text(&p, "id"), p)).collect();
    let mut left: Vec<String> = packages
        .iter()
        .filter(|(_, p)| p["name"] == "writepath" && p["source"].is_null())
        .map(|(id, _)| id.clone())
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = left.pop() {
        // What a procedural macro uses runs in the compiler, as it does itself.
        if packages.get(&id).is_some_and(is_macro) || !seen.insert(id.clone()) {
            continue;
        }
        for dep in nodes.get(&id).map(|n| list(n, "deps")).unwrap_or_default() {
            // What is linked has a kind without a name.
            if list(&dep, "dep_kinds").iter().any(|k| k["kind"].is_null()) {
                left.push(text(&dep, "pkg"));
            }
        }
    }
    let mut found: Vec<Package> = seen
        .iter()
        .filter_map(|id| packages.get(id))
        .filter(|p| !p["source"].is_null())
        .map(|p| Package {
            name: text(p, "name"),
            version: text(p, "version"),
            licence: text(p, "license").replace('/', " OR "),
            dir: Path::new(&text(p, "manifest_path"))
                .parent()
                .map(PathBuf::from)
                .unwrap_or_default(),
        })
        .collect();
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    if found.is_empty() {
        return Err("cargo metadata names no dependency of `writepath`".to_owned());
    }
    Ok(found)
}

/// A procedural macro runs in the compiler and is no part of the program.
fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().cloned().unwrap_or_default();
    targets.iter().any(|t| t["kind"].as_array().is_some_and(|k| k.contains(&"proc-macro".into())))
}

fn is_allowed(licence: &str) -> bool {
    let plain = licence.replace(['(', ')'], "");
    let one = |l: &str| ALLOWED.contains(&l.trim());
    plain.split(" AND ").all(|all| all.split(" OR ").any(one))
}

fn table(packages: &[Package]) -> String {
    let mut text = "| crate | version | licence |\n|---|---|---|\n".to_owned();
    for p in packages {
        text.push_str(&format!("| {} | {} | {} |\n", p.name, p.version, p.licence));
    }
    text
}

fn with_table(page: &str, table: &str) -> Result<String, String> {
    let cut = || {
        let (head, rest) = page.split_once(BEGIN)?;
        let (_, tail) = rest.split_once(END)?;
        Some(format!("{head}{BEGIN}\n\n{table}\n{END}{tail}"))
    };
    cut().ok_or_else(|| format!("{PAGE} has no place for the table: {BEGIN} … {END}"))
}

/// Files with the licence of a crate and of what it brings along (zstd, mimalloc, xz), by path
/// below its folder.
pub fn texts(package: &Package) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![(PathBuf::new(), 0)];
    while let Some((under, depth)) = left.pop() {
        let Ok(entries) = std::fs::read_dir(package.dir.join(&under)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let (path, name) = (under.join(&name), name.to_string_lossy().to_uppercase());
            let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
            if is_dir && depth < 3 {
                left.push((path, depth + 1));
            } else if !is_dir
                && ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|w| name.starts_with(w))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_what_the_program_is_built_from() {
        assert_eq!(run(false), Ok(true), "cargo xtask licences --bless");
    }

    #[test]
    fn one_of_two_licences_is_enough_and_both_of_two() {
        assert!(is_allowed("MIT OR GPL-3.0"));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
        assert!(!is_allowed(""));
    }
}
