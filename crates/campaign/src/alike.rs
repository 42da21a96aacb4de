//! Campaigns that differ in the kernel version alone. Programs do the same under all versions that
//! agree in the rules that were asked for while they were played, recovered and judged, so that
//! their states are explored once.
//!
//! Invariants: 1. what comes out is what each campaign comes to alone, to the number;
//!             2. a chunk ([`super::CHUNK`]) is played, recovered and judged by one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use wp_base::era::{Part, Policy, RuleSet, Rules, asked, forget_asked};
use wp_base::kernel::Version;
use wp_vfs::{EraRule, FsEntry};

use super::campaign::Campaign;
use super::findings::Findings;
use super::line;
use super::play::Bench;
use super::source::Source;

/// What chunks came to, under which rules.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<u64, Vec<Chunk>>>);

struct Chunk {
    /// The rules of the campaign.
    rules: RuleSet,
    /// Those that were asked for.
    asked: RuleSet,
    findings: Arc<Findings>,
}

/// A campaign's share in the work of those that are like it.
#[derive(Clone)]
pub struct Alike {
    rules: RuleSet,
    kept: Arc<Kept>,
    /// Programs that it did not have to explore.
    taken: Arc<AtomicU64>,
}

impl Alike {
    /// Lets campaigns that differ in the kernel version alone share their work. All of them have
    /// the same programs. Those of logs, and those with a check command, are left as they are.
    pub fn share(campaigns: &mut [&mut Campaign]) {
        let mut groups: BTreeMap<String, Arc<Kept>> = BTreeMap::new();
        for c in campaigns {
            if matches!(c.source, Source::Log(_)) || c.command.is_some() {
                continue;
            }
            let Some((era, rules)) = rules_of(&c.bench) else { continue };
            let but_for_era = line::arguments(c).replacen(&format!(",era={era}"), "", 1);
            let kept = groups.entry(but_for_era).or_default();
            c.alike = Some(Alike { rules, kept: kept.clone(), taken: Arc::default() });
        }
    }

    /// Programs that were explored under another version, and do the same under this.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The findings of the chunk that begins with program `first`: another campaign's, or those of
    /// `explore`. Errors: as of `explore`.
    pub(super) fn chunk<E>(
        &self,
        first: u64,
        explore: impl FnOnce() -> Result<Findings, E>,
    ) -> Result<Findings, E> {
        let kept = || self.kept.0.lock().unwrap_or_else(|e| e.into_inner());
        let same = |c: &&Chunk| c.rules.agrees(&self.rules, &c.asked);
        let found =
            kept().get(&first).and_then(|all| all.iter().find(same).map(|c| c.findings.clone()));
        if let Some(findings) = found {
            self.taken.fetch_add(findings.totals.programs, Ordering::Relaxed);
            return Ok(Findings::clone(&findings));
        }
        forget_asked();
        let findings = explore()?;
        let chunk =
            Chunk { rules: self.rules, asked: asked(), findings: Arc::new(findings.clone()) };
        kept().entry(first).or_default().push(chunk);
        Ok(findings)
    }
}

fn rules_in(holds: &[EraRule]) -> Rules {
    Rules::those(holds.iter().map(|r| r.holds))
}

/// The era of a machine and its rules: those of the era, and of the kernel for the block layer.
fn rules_of(bench: &Bench) -> Option<(&str, RuleSet)> {
    let era = bench.fs_options.get("era", bench.fs.options)?;
    let (major, minor) = bench.kernel;
    Some((era, set(bench.fs, era, Version(major, minor, 0))?))
}

fn set(fs: &FsEntry, era: &str, kernel: Version) -> Option<RuleSet> {
    let version = Version::parse(era)?;
    let of = |policies: &[Policy], version| Rules::of(policies, version);
    let set = RuleSet::default()
        .with(Part::Block, of(wp_block::POLICIES, kernel))
        .with(Part::Cache, of(wp_cache::POLICIES, version))
        .with(Part::Journal, of(wp_jbd2::POLICIES, version))
        .with(Part::FileSystem, rules_in(&(fs.eras)(era)?));
    Some(set)
}

/// Kernel versions of a file system no two of which have the same rules, the oldest with each, in
/// order. Power failures are modelled in all of them.
pub fn versions(fs: &FsEntry) -> Vec<String> {
    let [oldest, newest] = fs.kernels;
    let mut all: BTreeSet<Version> =
        [oldest, newest].into_iter().filter_map(Version::parse).collect();
    let bounds = |r: EraRule| {
        let texts = [r.from, r.until].into_iter().chain(r.backports);
        texts.filter_map(|text| Version::parse(&text)).collect::<Vec<_>>()
    };
    all.extend((fs.eras)(newest).unwrap_or_default().into_iter().flat_map(bounds));
    for policies in [wp_block::POLICIES, wp_cache::POLICIES, wp_jbd2::POLICIES] {
        all.extend(wp_base::era::rules(policies, Version(0, 0, 0)).into_iter().flat_map(bounds));
    }
    let mut seen = Vec::new();
    let mut is_new = |era: &String| {
        let Some(version) = Version::parse(era).filter(|_| fs.check_era(era).is_ok()) else {
            return false;
        };
        let Some(rules) = set(fs, era, version.series()) else { return false };
        let is_new = !seen.contains(&rules);
        seen.push(rules);
        is_new
    };
    all.iter().map(Version::to_string).filter(|era| is_new(era)).collect()
}

/// The same from the one on that has the rules of `era`; `None` if `era` is no version of it.
pub fn versions_from(fs: &FsEntry, era: &str) -> Option<Vec<String>> {
    let rules = |era: &str| set(fs, era, Version::parse(era)?.series());
    let (first, mut all) = (rules(era)?, versions(fs));
    let at = all.iter().position(|other| rules(other).as_ref() == Some(&first))?;
    Some(all.split_off(at))
}
