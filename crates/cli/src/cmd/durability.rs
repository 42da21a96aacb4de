//! `list durability`: what kernels changed about what survives a power failure, and which rule here
//! models it.

use std::fmt::Write;

use serde_json::{Value, json};

/// The tables, by file system.
const TABLES: [(&str, &str); 4] = [
    ("ext4", include_str!("../../../../kernels/ext4-durability.tsv")),
    ("f2fs", include_str!("../../../../kernels/f2fs-durability.tsv")),
    ("nilfs2", include_str!("../../../../kernels/nilfs2-durability.tsv")),
    ("btrfs", include_str!("../../../../kernels/btrfs-durability.tsv")),
];

/// A commit.
struct Change<'a> {
    /// Its first digits; `?`: not found.
    commit: &'a str,
    title: &'a str,
    /// First release of the mainline.
    since: &'a str,
    /// Releases of stable series that have it too.
    stable: &'a str,
    /// What went wrong before.
    before: &'a str,
    /// The rule that models it; or `no: ` and why none does.
    here: &'a str,
}

fn changes(table: &str) -> impl Iterator<Item = Change<'_>> {
    let lines = table.lines().filter(|l| !l.starts_with('#')).skip(1);
    lines.map(|line| {
        let mut parts = line.split('\t');
        let mut next = || parts.next().unwrap_or_default();
        Change {
            commit: next(),
            title: next(),
            since: next(),
            stable: next(),
            before: next(),
            here: next(),
        }
    })
}

/// All, or those of a file system.
pub(super) fn list(name: Option<&str>) -> (Value, String) {
    let mut text = String::new();
    let mut all = Vec::new();
    let line = "a string takes it";
    for (fs, table) in TABLES.iter().filter(|(fs, _)| name.is_none_or(|n| n == *fs)) {
        let modelled = changes(table).filter(|c| !c.here.starts_with("no: ")).count();
        writeln!(text, "{fs}: {} changes, {modelled} modelled", changes(table).count())
            .expect(line);
        for c in changes(table) {
            writeln!(text, "  {:<8} {} {}", c.since, c.commit, c.title).expect(line);
            if !c.stable.is_empty() {
                writeln!(text, "           also in {}", c.stable).expect(line);
            }
            writeln!(text, "           before: {}", c.before).expect(line);
            let here = match c.here.strip_prefix("no: ") {
                Some(why) => format!("not modelled: {why}"),
                None => c.here.to_owned(),
            };
            writeln!(text, "           here: {here}").expect(line);
            all.push(json!({
                "fs": fs, "commit": c.commit, "title": c.title, "since": c.since,
                "stable": c.stable.split_whitespace().collect::<Vec<_>>(), "before": c.before,
                "here": c.here,
            }));
        }
    }
    (json!(all), text)
}

#[cfg(test)]
mod tests {
    use wp_campaign::bugs;
    use wp_machine::registry;
    use wp_vfs::Version;

    use super::*;

    #[test]
    fn what_is_modelled_is_a_rule_of_that_version() {
        for (fs, table) in TABLES {
            let entry = registry::find("file system", registry::FILE_SYSTEMS, |f| f.name, fs);
            let rules = (entry.expect("a file system").eras)("6.12").expect("its rules");
            for c in changes(table) {
                assert!(!c.before.is_empty() && !c.here.is_empty(), "{fs}: {}", c.title);
                if ["no: ", "crash bug ", "option "].iter().any(|p| c.here.starts_with(p)) {
                    continue;
                }
                let rule = rules.iter().find(|r| r.name == c.here);
                let rule = rule.unwrap_or_else(|| panic!("{fs}: {} is no rule", c.here));
                let bound = if rule.until.is_empty() { &rule.from } else { &rule.until };
                let both = [c.since, rule.from.as_str(), bound];
                let [since, from, until] = both.map(Version::parse);
                assert!(since.is_some() && (since == from || since == until), "{}", c.title);
                // Stable releases of a rule are those that took over what ends it, if it ends.
                if since == until {
                    assert_eq!(c.stable, rule.backports.join(" "), "{}", c.title);
                }
            }
        }
    }

    #[test]
    fn the_bug_of_a_rule_is_where_the_rule_is_not() {
        let named = bugs::all().filter_map(|b| Some((b, b.rule_name?)));
        let mut count = 0;
        for (bug, rule) in named {
            let [affected, fixed] = bugs::versions_of(bug).expect("an era on both sides");
            let held = |(fs, era): (&str, &str)| {
                let all = registry::FILE_SYSTEMS.iter().find(|f| f.name == fs);
                let rules = (all.expect("a file system").eras)(era).expect("an era");
                rules.iter().find(|r| r.name == rule).expect("a rule of that name").holds
            };
            assert_ne!(held(affected), held(fixed), "{}", bug.id);
            count += 1;
        }
        assert_eq!(count, 29);
    }
}
