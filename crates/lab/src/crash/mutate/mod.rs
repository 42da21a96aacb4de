//! Mutants: each step that a crash is safe by is left out in turn, and power is cut until somebody
//! misses it.
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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use wp_base::site::{Armed, Site, watch};
use wp_crash::{Rule, Violation};

use super::play::{Asked, Bench, Played, play_with};
pub use settings::{Hold, Recovery, SETTINGS, Setting};

mod settings;

/// What killed each mutant when it was looked for: tried first, so that a run is a matter of
/// minutes. An entry that does not kill any more costs a search, and nothing else.
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
    [wp_block::site::ALL, wp_cache::site::ALL, wp_jbd2::site::ALL, wp_ext4::site::ALL].concat()
}

/// What became of a mutant.
#[derive(Clone, Debug)]
pub enum Fate {
    /// A rule is broken that is not without the mutation.
    Killed {
        /// Setting and program.
        by: (&'static str, u64),
        /// What is wrong.
        violation: Violation,
    },
    /// No rule is, but the mounted file system itself stopped, at an assertion or at damage that it
    /// saw.
    Stopped {
        /// Setting and program.
        by: (&'static str, u64),
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

/// A step left out, and what came of that.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The step.
    pub site: &'static Site,
    /// What came of it.
    pub fate: Fate,
    /// Programs that would have done it and were played without it.
    pub programs: u64,
    /// States that were visited.
    pub states: u64,
    /// Programs and states by setting.
    pub spent: BTreeMap<&'static str, (u64, u64)>,
}

impl Mutant {
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
            return Err(format!("there is no site `{}`", a.site));
        }
        if let Some(twice) = out.insert(a.site.clone(), a) {
            return Err(format!("`{}` has two arguments", twice.site));
        }
    }
    Ok(out)
}

/// Setting and program that killed a mutant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Witness {
    site: String,
    setting: String,
    program: u64,
}

/// Those of a text like [`WITNESSES_TOML`]. Errors: text that cannot be read, and a site that is
/// none.
fn witnesses(text: &str) -> Result<Vec<Witness>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        witness: Vec<Witness>,
    }
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    let known = sites();
    match file.witness.iter().find(|w| !known.iter().any(|s| s.name == w.site)) {
        Some(w) => Err(format!("there is no site `{}`", w.site)),
        None => Ok(file.witness),
    }
}

/// Everything that mutants are held against.
struct Ground<'a> {
    settings: Vec<(Setting, Bench)>,
    /// Sites that each program asks as it is; `None`: it cannot be played.
    asked: Vec<Vec<OnceLock<Option<Vec<&'static str>>>>>,
    /// Rules that each program breaks without any mutation. Few are needed.
    broken: Vec<Vec<OnceLock<Broken>>>,
    /// Asked before each program and each cut.
    go_on: &'a (dyn Fn() -> bool + Sync),
}

type Broken = [u64; Rule::ALL.len()];

/// Programs of each setting in the first round; the others follow when no setting's first ones
/// showed anything.
const FIRST: u64 = 4;

impl Ground<'_> {
    fn new<'a>(
        settings: &[Setting],
        go_on: &'a (dyn Fn() -> bool + Sync),
    ) -> Result<Ground<'a>, String> {
        let settings: Result<Vec<(Setting, Bench)>, String> = settings
            .iter()
            .map(|s| s.bench().map(|b| (*s, b)).map_err(|e| format!("{}: {e}", s.name)))
            .collect();
        let settings = settings?;
        fn slots<T>(settings: &[(Setting, Bench)]) -> Vec<Vec<OnceLock<T>>> {
            let of = |s: &Setting| (0..s.count).map(|_| OnceLock::new()).collect();
            settings.iter().map(|(s, _)| of(s)).collect()
        }
        Ok(Ground { asked: slots(&settings), broken: slots(&settings), settings, go_on })
    }

    /// Would program `n` of setting `s` do the step? Of a step of recovery one only sees that when
    /// it recovers.
    fn asks(&self, s: usize, n: u64, site: &Site) -> bool {
        let setting = &self.settings[s].0;
        if !setting.takes(site) {
            return false;
        }
        if setting.recovery.is_some() {
            return true;
        }
        let slot = self.asked[s][n as usize]
            .get_or_init(|| self.play(s, n, || Some(watch())).ok().map(|(_, asked)| asked.names));
        slot.as_ref().is_some_and(|names| names.contains(&site.name))
    }

    fn play(
        &self,
        s: usize,
        n: u64,
        arm: impl FnOnce() -> Option<Armed>,
    ) -> Result<(Played, Asked), String> {
        let (setting, bench) = &self.settings[s];
        let (program, around) = (setting.program(n), setting.around(n));
        catch_unwind(AssertUnwindSafe(|| {
            let played = bench.image().and_then(|i| play_with(bench, i, &program, &around, arm));
            played.map_err(|e| e.to_string())
        }))
        .unwrap_or_else(|panic| Err(said(&*panic)))
    }

    /// Rules that program `n` of setting `s` breaks as it is.
    fn broken(&self, s: usize, n: u64) -> &Broken {
        let (setting, bench) = &self.settings[s];
        self.broken[s][n as usize].get_or_init(|| match self.play(s, n, || None) {
            Ok((played, _)) => {
                setting.explore(bench, &played, &[1; Rule::ALL.len()], self.go_on).broken
            }
            Err(_) => [1; Rule::ALL.len()],
        })
    }

    fn mutant(&self, site: &'static Site, witness: Option<&Witness>, thorough: bool) -> Mutant {
        let mut out =
            Mutant { site, fate: Fate::NotReached, programs: 0, states: 0, spent: BTreeMap::new() };
        if let Some(w) = witness
            && let Some(s) = self.settings.iter().position(|(s, _)| s.name == w.setting)
            && w.program < self.settings[s].0.count
        {
            self.try_one(s, w.program, &mut out);
            if out.is_killed() && (self.go_on)() {
                return out;
            }
        }
        if !thorough {
            return self.sample(out);
        }
        for (from, to) in [(0, FIRST), (FIRST, u64::MAX)] {
            for s in 0..self.settings.len() {
                // The n-th program that does the step, not the n-th of all: some are rare.
                let count = self.settings[s].0.count;
                let programs = (0..count).filter(|n| self.asks(s, *n, site));
                for n in programs.skip(from as usize).take((to - from) as usize) {
                    if !(self.go_on)() {
                        return Mutant { fate: Fate::Interrupted, ..out };
                    }
                    self.try_one(s, n, &mut out);
                    if matches!(out.fate, Fate::Killed { .. }) {
                        return out;
                    }
                }
            }
        }
        if !(self.go_on)() {
            return Mutant { fate: Fate::Interrupted, ..out };
        }
        out
    }

    /// The first program of each setting, for a step that has an argument why nobody misses it.
    fn sample(&self, mut out: Mutant) -> Mutant {
        for s in 0..self.settings.len() {
            if !(self.go_on)() {
                return Mutant { fate: Fate::Interrupted, ..out };
            }
            if self.settings[s].0.takes(out.site) {
                self.try_one(s, 0, &mut out);
            }
            if matches!(out.fate, Fate::Killed { .. }) {
                break;
            }
        }
        out
    }

    /// Plays program `n` of setting `s` without the step, and looks who notices.
    fn try_one(&self, s: usize, n: u64, out: &mut Mutant) {
        let (setting, bench) = &self.settings[s];
        let site = out.site;
        let recovery = setting.recovery.is_some();
        let (played, asked) = match self.play(s, n, || (!recovery).then(|| site.leave_out())) {
            Ok(p) => p,
            Err(why) => {
                out.programs += 1;
                if !out.is_killed() {
                    out.fate = Fate::Stopped { by: (setting.name, n), why };
                }
                return;
            }
        };
        let explore = |but: &[u64]| {
            let armed = recovery.then(|| site.leave_out());
            let explored = setting.explore(bench, &played, but, self.go_on);
            (explored, armed.map_or(asked.reached, |a| a.reached()))
        };
        if !recovery && asked.reached == 0 {
            return;
        }
        // A drive that lies breaks rules before recovery can.
        let none = [0; Rule::ALL.len()];
        let (mut explored, reached) = explore(if recovery { self.broken(s, n) } else { &none });
        if reached == 0 {
            return;
        }
        out.programs += 1;
        out.states += explored.states;
        let spent = out.spent.entry(setting.name).or_default();
        *spent = (spent.0 + 1, spent.1 + explored.states);
        if explored.first.is_some() && !recovery {
            let known = self.broken(s, n);
            if known.iter().any(|n| *n > 0) {
                explored = explore(known).0;
            }
        }
        if let Some(violation) = explored.first {
            out.fate = Fate::Killed { by: (setting.name, n), violation };
        } else if matches!(out.fate, Fate::NotReached) {
            out.fate = Fate::Survives;
        }
    }
}

/// What an assertion said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("assertion: {}", text.unwrap_or("without a word"))
}

/// Leaves out each of `sites` in turn, with `workers` threads; those that have an argument why they
/// survive with the first program of each setting only. `done` is told of each mutant as it
/// is through, in no order; `witnessed` is a text like [`WITNESSES_TOML`]; when `go_on` says no,
/// what is left is [`Fate::Interrupted`].
///
/// Errors: a setting that cannot be, and those of [`arguments`].
pub fn run(
    sites: &[&'static Site],
    settings: &[Setting],
    witnessed: &str,
    workers: usize,
    done: &(dyn Fn(&Mutant) + Sync),
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Mutant>, String> {
    let (known, witnesses) = (arguments()?, witnesses(witnessed)?);
    let ground = Ground::new(settings, go_on)?;
    let slots: Vec<OnceLock<Mutant>> = sites.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    let (Some(site), Some(slot)) = (sites.get(n), slots.get(n)) else { return };
                    let witness = witnesses.iter().find(|w| w.site == site.name);
                    let thorough = !known.contains_key(site.name);
                    done(slot.get_or_init(|| ground.mutant(site, witness, thorough)));
                }
            });
        }
    });
    Ok(slots.into_iter().filter_map(OnceLock::into_inner).collect())
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
        for krate in ["block", "cache", "jbd2", "ext4"] {
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
    fn arguments_and_witnesses_are_of_sites() {
        let arguments = arguments().expect("they are");
        for w in witnesses(WITNESSES_TOML).expect("they are") {
            assert!(!arguments.contains_key(&w.site), "{} is killed, and argued for", w.site);
            let setting = SETTINGS.iter().find(|s| s.name == w.setting);
            assert!(setting.is_some_and(|s| w.program < s.count), "{w:?}");
        }
        let names: std::collections::BTreeSet<&str> = SETTINGS.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), SETTINGS.len(), "two settings have one name");
    }

    /// Every line that asks for a flush or FUA, or passes it on, stands beside a site, or is listed
    /// here with the reason why none is.
    #[test]
    fn no_flush_and_no_fua_goes_round_a_site() {
        // File, how many lines of it, and why.
        const NONE: [(&str, usize, &str); 12] = [
            ("block/src/bio.rs", 2, "what a flush is; whoever sends one is asked"),
            ("block/src/queue.rs", 1, "sends what its caller asks for"),
            ("block/src/partition.rs", 1, "sends what its caller asks for"),
            ("block/src/entry.rs", 3, "tells kinds of bio apart; a device without a cache"),
            ("block/src/engine.rs", 2, "leads to the flush machine"),
            ("block/src/mq.rs", 1, "leads to the flush machine"),
            ("block/src/flush.rs", 1, "the flush that the steps above ask for"),
            ("block/src/pool.rs", 1, "keeps flushes out of merges"),
            ("block/src/merge.rs", 1, "keeps flushes out of merges"),
            ("block/src/dispatch.rs", 1, "PREFLUSH has been served"),
            ("jbd2/src/superblock.rs", 1, "without barriers there are none"),
            ("jbd2/src/checkpoint.rs", 1, "asked by mark_empty"),
        ];
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut round: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for krate in ["block", "cache", "jbd2", "ext4"] {
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
                out.push((path.display().to_string(), text));
            }
        }
        out
    }
}
