//! Layers: each crate names its own (`[package.metadata] layer = 5`) and may use lower ones only.
//!
//! Invariants: 1. a dependency or build dependency on a workspace crate goes to a lower layer.
//!             2. the graph between the markers in ARCHITECTURE.md is the one of the manifests.
//! A test may look up (a dev-dependency): that is noted, not refused.

use std::collections::BTreeMap;

use crate::repo;

const BEGIN: &str = "<!-- layers: begin; written by `cargo xtask layers --bless` -->";
const END: &str = "<!-- layers: end -->";
const DOCUMENT: &str = "ARCHITECTURE.md";

/// One crate of the workspace, as its manifest declares it.
#[derive(Debug)]
struct Package {
    name: String,
    layer: u32,
    /// Names of what it is built from, workspace crates and others.
    uses: Vec<String>,
    /// Names of what its tests use besides.
    tests_use: Vec<String>,
}

/// What the check found.
#[derive(Debug, Default, PartialEq)]
struct Findings {
    errors: Vec<String>,
    notes: Vec<String>,
}

/// Checks the layers, prints the graph, and compares it with (or writes it into) ARCHITECTURE.md.
pub fn run(bless: bool) -> Result<bool, String> {
    let root = repo::root()?;
    let mut packages = Vec::new();
    for file in repo::text_files(&root)? {
        // A workspace of its own, such as the fuzzers', is no part of this one's graph.
        let is_own = file.text.lines().any(|line| line.trim() == "[workspace]");
        if file.path.ends_with("/Cargo.toml") && !is_own {
            packages.push(parse(&file.path, &file.text)?);
        }
    }
    let mut findings = check(&packages);
    let graph = graph(&packages);
    println!("{graph}");
    let path = root.join(DOCUMENT);
    let document =
        std::fs::read_to_string(&path).map_err(|e| format!("{DOCUMENT} cannot be read: {e}"))?;
    let wanted = splice(&document, &graph)?;
    if document != wanted {
        if bless {
            std::fs::write(&path, wanted).map_err(|e| format!("{DOCUMENT}: {e}"))?;
            findings.notes.push(format!("{DOCUMENT}: graph rewritten"));
        } else {
            findings.errors.push(format!(
                "{DOCUMENT}: the graph is not the one of the manifests: \
                 `cargo xtask layers --bless`"
            ));
        }
    }
    for note in &findings.notes {
        println!("note: {note}");
    }
    for error in &findings.errors {
        eprintln!("error: {error}");
    }
    Ok(findings.errors.is_empty())
}

fn parse(path: &str, text: &str) -> Result<Package, String> {
    let manifest: toml::Table = text.parse().map_err(|e| format!("{path}: {e}"))?;
    let package = manifest.get("package").and_then(toml::Value::as_table);
    let name = package.and_then(|p| p.get("name")).and_then(toml::Value::as_str);
    let layer = package
        .and_then(|p| p.get("metadata"))
        .and_then(|m| m.get("layer"))
        .and_then(toml::Value::as_integer)
        .and_then(|layer| u32::try_from(layer).ok());
    let name = name.ok_or_else(|| format!("{path}: no [package] name"))?;
    let layer = layer
        .ok_or_else(|| format!("{path}: no layer: add `[package.metadata]` with `layer = N`"))?;
    // `[target.'cfg(unix)'.dependencies]` counts like any other.
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables: Vec<&toml::Table> = std::iter::once(&manifest)
        .chain(targets.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table))
        .collect();
    let names = |section| tables.iter().flat_map(move |table| names_in(table, section));
    Ok(Package {
        name: name.to_owned(),
        layer,
        uses: names("dependencies").chain(names("build-dependencies")).collect(),
        tests_use: names("dev-dependencies").collect(),
    })
}

/// Names of the crates in one section of a manifest; `alias = { package = "name" }` is `name`.
fn names_in(table: &toml::Table, section: &str) -> Vec<String> {
    let entries = table.get(section).and_then(toml::Value::as_table);
    entries
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            value.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_owned()
        })
        .collect()
}

fn check(packages: &[Package]) -> Findings {
    let layer_of: BTreeMap<&str, u32> =
        packages.iter().map(|p| (p.name.as_str(), p.layer)).collect();
    let mut findings = Findings::default();
    for package in packages {
        let up = |used: &&String| {
            layer_of.get(used.as_str()).is_some_and(|&layer| layer >= package.layer)
        };
        for used in package.uses.iter().filter(up) {
            findings.errors.push(format!(
                "{} (layer {}) uses {used} (layer {}): arrows go down; let {} own a trait \
                 that the other implements, or move the code",
                package.name,
                package.layer,
                layer_of[used.as_str()],
                package.name
            ));
        }
        for used in package.tests_use.iter().filter(up) {
            findings.notes.push(format!(
                "tests of {} (layer {}) look up to {used} (layer {})",
                package.name,
                package.layer,
                layer_of[used.as_str()]
            ));
        }
    }
    findings
}

/// One line a crate, highest layer first; its workspace dependencies in the same order.
fn graph(packages: &[Package]) -> String {
    let mut order: Vec<&Package> = packages.iter().collect();
    order.sort_by(|a, b| b.layer.cmp(&a.layer).then_with(|| a.name.cmp(&b.name)));
    let width = order.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for package in &order {
        let uses: Vec<&str> = order
            .iter()
            .map(|other| other.name.as_str())
            .filter(|name| package.uses.iter().any(|used| used == name))
            .collect();
        let line =
            format!("L{:<3} {:<width$}  -> {}", package.layer, package.name, uses.join(", "));
        lines.push(line.trim_end_matches(" -> ").trim_end().to_owned());
    }
    lines.join("\n")
}

/// Puts the graph between the markers of the document.
fn splice(document: &str, graph: &str) -> Result<String, String> {
    let missing =
        || format!("{DOCUMENT}: put the lines `{BEGIN}` and `{END}` where the graph goes");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n```text\n{graph}\n```\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, layer: u32, sections: &str) -> Package {
        let text = format!(
            "[package]\nname = \"{name}\"\n[package.metadata]\nlayer = {layer}\n{sections}"
        );
        parse(&format!("crates/{name}/Cargo.toml"), &text).unwrap()
    }

    #[test]
    fn an_arrow_down_is_accepted_and_other_crates_are_ignored() {
        let base = package("base", 0, "");
        let upper = package("upper", 2, "[dependencies]\nbase = {}\nserde = \"1\"\n");
        assert_eq!(check(&[base, upper]), Findings::default());
    }

    #[test]
    fn an_arrow_up_fails_and_names_both_layers() {
        let low = package("low", 1, "[dependencies]\nhigh.workspace = true\n");
        let findings = check(&[low, package("high", 4, "")]);
        assert_eq!(findings.errors.len(), 1);
        assert!(findings.errors[0].contains("low (layer 1) uses high (layer 4)"));
    }

    #[test]
    fn an_arrow_to_the_same_layer_fails() {
        let one = package("one", 3, "[dependencies]\ntwo = { path = \"../two\" }\n");
        assert_eq!(check(&[one, package("two", 3, "")]).errors.len(), 1);
    }

    #[test]
    fn build_and_target_dependencies_and_renamed_ones_count() {
        let build = package("build", 1, "[build-dependencies]\nhigh = {}\n");
        let target = package("target", 1, "[target.'cfg(unix)'.dependencies]\nhigh = {}\n");
        let alias = package("alias", 1, "[dependencies]\nh = { package = \"high\" }\n");
        let high = package("high", 2, "");
        assert_eq!(check(&[build, target, alias, high]).errors.len(), 3);
    }

    #[test]
    fn a_test_may_look_up_and_that_is_noted() {
        let low = package("low", 1, "[dev-dependencies]\nhigh = {}\n");
        let findings = check(&[low, package("high", 4, "")]);
        assert!(findings.errors.is_empty());
        assert_eq!(findings.notes, ["tests of low (layer 1) look up to high (layer 4)"]);
    }

    #[test]
    fn a_crate_without_a_layer_is_refused() {
        let error = parse("crates/x/Cargo.toml", "[package]\nname = \"x\"\n").unwrap_err();
        assert!(error.contains("no layer"));
    }

    #[test]
    fn the_graph_lists_high_layers_first_and_workspace_crates_only() {
        let base = package("base", 0, "");
        let rt = package("rt", 1, "[dependencies]\nbase = {}\ntoml = \"1\"\n");
        let top = package("top", 10, "[dependencies]\nbase = {}\nrt = {}\n");
        let lines = ["L10  top   -> rt, base", "L1   rt    -> base", "L0   base"];
        assert_eq!(graph(&[base, rt, top]), lines.join("\n"));
    }

    #[test]
    fn the_graph_replaces_what_stands_between_the_markers() {
        let document = format!("# A\n{BEGIN}\nold\n{END}\nafter\n");
        let new = splice(&document, "L0   base").unwrap();
        assert_eq!(new, format!("# A\n{BEGIN}\n```text\nL0   base\n```\n{END}\nafter\n"));
        assert_eq!(splice(&new, "L0   base").unwrap(), new);
        assert!(splice("no markers", "x").is_err());
    }
}
