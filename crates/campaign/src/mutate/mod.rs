//! Mutants: leaves out each crash-safety point in turn, and explores crash states until an oracle
//! detects it.
//!
//! Picture:    [`sites`] -> for each, programs of each [`Setting`] that would do the step, played
//!             without it -> [`wp_crash::Explorer`] -> [`Fate`]. A rule counts if it is broken in a
//!             program that does not break it with the step in place.
//! Invariants: 1. what comes out does not depend on the number of workers;
//!             2. only the program is played with the step left out: mkfs and recovery are whole,
//!                and mount and unmount where a setting has none of the device's whole life; a
//!                step of recovery is left out when states are recovered, and only then;
//!             3. a survivor has an argument in `equivalent.toml`, and an argument a survivor.

use std::collections::BTreeMap;
use std::fmt;

use ground::{Ground, Worker};
use serde::Deserialize;
pub use settings::{Hold, Recovery, SETTINGS, Setting};
use witness::Witnesses;
use wp_base::site::Site;
use wp_crash::{Rule, Violation};
use wp_machine::parallel::each;

mod ground;
mod of_techniques;
mod settings;
mod witness;

/// What kills each mutant: settings and programs, tried first, so that a run is a matter of
/// minutes. An entry that does not kill any more costs a search, and is told.
pub const WITNESSES_TOML: &str = include_str!("witnesses.toml");
/// Why survivors survive.
pub const EQUIVALENT_TOML: &str = include_str!("equivalent.toml");

/// Is it a step of recovery? Such a one is left out when states are recovered, any other when the
/// program is played.
pub(super) fn is_of_recovery(site: &Site) -> bool {
    site.name.contains("/recovery/")
}

/// Every site of every crate.
pub fn sites() -> Vec<&'static Site> {
    let below = [wp_block::site::ALL, wp_cache::site::ALL, wp_jbd2::site::ALL];
    let own = [wp_ext4::site::ALL, wp_f2fs::site::ALL, wp_nilfs2::site::ALL];
    [below.concat(), own.concat(), wp_btrfs::site::ALL.to_vec()].concat()
}

/// The site called `name`, for [`Bench::without`](super::Bench::without). Errors: there is none, or
/// it is of recovery, which is not played.
pub fn step(name: &str) -> Result<&'static Site, String> {
    let site = sites().into_iter().find(|s| s.name == name);
    let site = site.ok_or_else(|| {
        format!("no crash-safety point called `{name}`: `writepath list sites` lists them")
    })?;
    match is_of_recovery(site) {
        false => Ok(site),
        true => Err(format!("`{name}` is a step of recovery: writepath crash mutate {name}")),
    }
}

/// A program of a setting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Which {
    /// That of its generator with this number.
    Number(u64),
    /// One that was written for the site.
    Directed,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Number(n) => write!(f, "#{n}"),
            Which::Directed => f.write_str("directed"),
        }
    }
}

/// Where a mutant was noticed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct By {
    /// Name of the setting.
    pub setting: String,
    /// Which of its programs.
    pub program: Which,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.setting, self.program)
    }
}

/// What became of a mutant.
#[derive(Clone, Debug)]
pub enum Fate {
    /// A rule is broken that is not without the mutation.
    Killed {
        /// Setting and program.
        by: By,
        /// What is wrong.
        violation: Violation,
    },
    /// No rule is, but the mounted file system itself stopped, at an assertion or at damage that it
    /// saw.
    Stopped {
        /// Setting and program.
        by: By,
        /// How.
        why: String,
    },
    /// Nobody misses the step.
    Survives,
    /// No program does the step.
    NotReached,
    /// Interrupted before anything could be said.
    Interrupted,
}

/// A step left out, and its outcome.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The step.
    pub site: &'static Site,
    /// Its outcome.
    pub fate: Fate,
    /// Programs that would have done it and were played without it.
    pub programs: u64,
    /// States that were visited.
    pub states: u64,
    /// Programs and states by setting.
    pub spent: BTreeMap<String, (u64, u64)>,
    /// Has it an entry in the list of witnesses that does not kill it?
    pub stale: bool,
    /// Rules that the witness breaks with the step in place, on a device that keeps its word: a
    /// bug, and not the mutant's.
    pub without: Vec<Rule>,
}

impl Mutant {
    fn new(site: &'static Site) -> Mutant {
        Mutant {
            site,
            fate: Fate::NotReached,
            programs: 0,
            states: 0,
            spent: BTreeMap::new(),
            stale: false,
            without: Vec::new(),
        }
    }

    /// Is it noticed?
    pub fn is_killed(&self) -> bool {
        matches!(self.fate, Fate::Killed { .. } | Fate::Stopped { .. })
    }
}

/// An argument why a survivor is one.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// The site.
    pub site: String,
    /// What is said.
    pub class: Class,
    /// Why.
    pub why: String,
}

/// What an argument says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// No observable difference can exist.
    Equivalent,
    /// One could; our programs, settings and rules have not shown it.
    Unkilled,
}

impl Class {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Equivalent => "equivalent",
            Class::Unkilled => "unkilled",
        }
    }
}

/// The arguments of [`EQUIVALENT_TOML`] by site. Errors: one that cannot be read, of no site, or
/// given twice.
pub fn arguments() -> Result<BTreeMap<String, Argument>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        survivor: Vec<Argument>,
    }
    let file: File = toml::from_str(EQUIVALENT_TOML).map_err(|e| e.to_string())?;
    let known = sites();
    let mut out = BTreeMap::new();
    for a in file.survivor {
        if !known.iter().any(|s| s.name == a.site) {
            return Err(format!("no crash-safety point called `{}`", a.site));
        }
        if let Some(twice) = out.insert(a.site.clone(), a) {
            return Err(format!("`{}` has two arguments", twice.site));
        }
    }
    Ok(out)
}

/// How long is looked for a mutant that no witness kills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Search {
    /// Programs for a site that has an argument why nobody misses it.
    pub survivor: u64,
    /// Programs for one that has none.
    pub open: u64,
}

impl Default for Search {
    fn default() -> Search {
        Search { survivor: 3, open: u64::MAX }
    }
}

/// Leaves out each of `sites` in turn, with `workers` threads. `done` is told of each mutant as it
/// is through, in no order; `witnessed` is a text like [`WITNESSES_TOML`]; when `go_on` says no,
/// what is left is [`Fate::Interrupted`].
///
/// Errors: a setting that cannot be, witnesses that cannot be read, and those of [`arguments`].
pub fn run(
    sites: &[&'static Site],
    settings: &[Setting<'_>],
    (witnessed, search): (&str, Search),
    workers: usize,
    done: &(dyn Fn(&Mutant) + Sync),
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Mutant>, String> {
    let (known, witnesses) = (arguments()?, Witnesses::parse(witnessed)?);
    let own = witnesses.settings(SETTINGS)?;
    let ground = Ground::new(settings, &own, go_on)?;
    let found = each(
        workers,
        sites.len(),
        || Worker::new(&ground),
        |worker, n| {
            let site = sites[n];
            let most = match known.contains_key(site.name) {
                true => search.survivor,
                false => search.open,
            };
            let mutant = worker.mutant(site, witnesses.of(site), most);
            done(&mutant);
            Some(mutant)
        },
    );
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_site_has_a_name_of_its_own_and_is_asked_in_its_file() {
        let all = sites();
        let mut names: Vec<&str> = all.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 60, "{} sites", all.len());
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for krate in ["block", "cache", "jbd2", "ext4", "f2fs", "nilfs2", "btrfs"] {
            let table = root.join("crates").join(krate).join("src/site.rs");
            let table = std::fs::read_to_string(table).expect("the table is there");
            // `        ID, Kind, "name"…`
            let ids = table.lines().filter_map(|l| {
                let id = l.strip_prefix("        ")?.split_once(", ")?.0;
                id.chars().all(|c| c.is_ascii_uppercase() || c == '_').then_some(id)
            });
            for (id, site) in
                ids.zip(all.iter().filter(|s| s.file.starts_with(&format!("crates/{krate}/"))))
            {
                let text = std::fs::read_to_string(root.join(site.file)).expect("its file");
                assert!(table.contains(&format!("{id}, ")) && table.contains(site.name));
                let uses = [format!("site::{id}.on()"), format!("&site::{id}")];
                assert!(
                    uses.iter().any(|u| text.contains(u)),
                    "{id} is not asked in {}",
                    site.file
                );
            }
        }
    }

    #[test]
    fn every_site_has_a_witness_or_an_argument_and_not_both() {
        let arguments = arguments().expect("they are");
        let witnesses = Witnesses::parse(WITNESSES_TOML).expect("they are");
        let own = witnesses.settings(SETTINGS).expect("they are like others");
        let named = |name: &str| SETTINGS.iter().chain(&own).find(|s| s.name == name);
        for w in witnesses.all() {
            let setting = named(&w.setting).unwrap_or_else(|| panic!("{w:?}: no such setting"));
            let is = match w.which() {
                Which::Number(n) => n < setting.count,
                Which::Directed => w.steps().is_some_and(|p| !p.0.is_empty()),
            };
            assert!(is, "{w:?}");
        }
        for site in sites() {
            let (killed, argued) = (witnesses.of(site).len(), arguments.contains_key(site.name));
            let is = (killed == 1) != argued && killed < 2;
            assert!(is, "{}: {killed} witnesses; an argument: {argued}", site.name);
        }
        for s in &own {
            let used = witnesses.all().iter().any(|w| w.setting == s.name)
                || own.iter().any(|o| witnesses.is_like(o.name, s.name));
            assert!(used, "{}: nobody uses it", s.name);
        }
        let mut names: Vec<&str> = SETTINGS.iter().chain(&own).map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len() + own.len(), "two settings have one name");
    }

    /// Every line that asks for a flush or FUA, or passes it on, stands beside a site, or is listed
    /// here with the reason why none is.
    #[test]
    fn no_flush_and_no_fua_goes_round_a_site() {
        // File, how many lines of it, and why.
        const NONE: [(&str, usize, &str); 17] = [
            ("block/src/bio.rs", 3, "what a flush is; whoever sends one is asked"),
            ("block/src/flush_set.rs", 1, "sends what its caller asks for"),
            ("block/src/queue.rs", 1, "sends what its caller asks for"),
            ("block/src/partition.rs", 1, "sends what its caller asks for"),
            ("block/src/entry.rs", 3, "tells kinds of bio apart; a device without a cache"),
            ("block/src/engine.rs", 2, "leads to the flush machine"),
            ("block/src/mq.rs", 1, "leads to the flush machine"),
            ("block/src/flush.rs", 1, "the flush that the steps above ask for"),
            ("block/src/pool.rs", 1, "keeps flushes out of merges"),
            ("block/src/merge.rs", 1, "keeps flushes out of merges"),
            ("block/src/dispatch.rs", 1, "PREFLUSH has been served"),
            ("block/src/zone_plug.rs", 1, "leads to the flush machine"),
            ("jbd2/src/superblock.rs", 1, "without barriers there are none"),
            ("jbd2/src/checkpoint.rs", 1, "asked by mark_empty"),
            ("block/src/epoch.rs", 1, "looks at a request's flags"),
            ("f2fs/src/fs/io.rs", 1, "looks at a bio's flags"),
            ("f2fs/src/fs/flush.rs", 2, "asked by FSYNC_FLUSH, and above by CP_OTHER_DEVICES"),
        ];
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut round: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for krate in ["block", "cache", "jbd2", "ext4", "f2fs", "btrfs"] {
            for (path, text) in sources(&root.join("crates").join(krate).join("src")) {
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let lines: Vec<&str> = code.lines().collect();
                for (n, line) in lines.iter().enumerate() {
                    let asks = ["Flags::PREFLUSH", "Flags::FUA", ".flush()", "Bio::flush"];
                    let line = line.trim();
                    if line.starts_with("//") || !asks.iter().any(|a| line.contains(a)) {
                        continue;
                    }
                    let near = &lines[n.saturating_sub(4)..(n + 2).min(lines.len())];
                    if !near.iter().any(|l| l.contains("site::")) {
                        let line = format!("{}: {line}", n + 1);
                        round.entry(path.clone()).or_default().push(line);
                    }
                }
            }
        }
        for (path, lines) in round {
            let listed = NONE.iter().find(|(f, _, _)| path.ends_with(f)).map_or(0, |l| l.1);
            assert!(lines.len() <= listed, "{path}: without a site:\n{}", lines.join("\n"));
        }
    }

    /// Path and text of every source below `dir`.
    fn sources(dir: &std::path::Path) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for entry in std::fs::read_dir(dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                out.extend(sources(&path));
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                out.push((path.to_string_lossy().into_owned(), text));
            }
        }
        out
    }
}
