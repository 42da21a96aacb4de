//! O3 of atomic writes: all blocks and the length that a commit made are there, or none. Likewise
//! of an untorn write (`RWF_ATOMIC`).

use crate::ledger::{Commit, FileLife};
use crate::oracle::Judge;
use crate::rules::{Rule, Violation};
use crate::subject::Survivor;

impl Judge<'_> {
    /// Commits of which a part is there. What a later call wrote over says nothing of the commit
    /// before it.
    pub(crate) fn commits(&self, out: &mut Vec<Violation>) {
        let begun = self.ledger.atomic.commits.iter().filter(|c| c.version <= self.begun);
        for commit in begun.filter(|c| !self.is_reused(c.object)) {
            let Some(file) = self.find(commit.object) else { continue };
            let life = &self.ledger.files[commit.object as usize];
            let (made, lacking) = (self.made(commit, life, file), self.lacks(commit, life, file));
            let (Some(made), Some(lacking)) = (made, lacking) else { continue };
            out.push(Violation {
                rule: Rule::MixedVersions,
                path: file.path.clone(),
                offset: None,
                expected: format!("all or nothing of `{}`", self.ledger.text(commit.version)),
                seen: format!("{made} of it, {lacking} from before"),
            });
        }
    }

    /// Something that only the commit can have made, in words.
    fn made(&self, commit: &Commit, life: &FileLife, file: &Survivor) -> Option<String> {
        let is_own = |block: &u64| {
            let seen = self.seen_at(file, *block);
            let fits = |own: bool| {
                let mut may = life.blocks[block].iter().filter(|v| v.version <= self.begun);
                may.any(|v| (v.version == commit.version) == own && seen.is(&v.data, v.id))
            };
            fits(true) && !fits(false) && !self.is_zero(&seen)
        };
        let own = self.below_end(commit, file).find(is_own);
        let length = || {
            let mut fitting = life.sizes.iter().filter(|s| s.version <= self.begun);
            let is_its = fitting.all(|s| {
                let fits = s.from <= file.size && file.size <= s.to;
                fits == (s.version == commit.version)
            });
            (commit.has_length && is_its).then(|| format!("the length of {}", file.size))
        };
        own.map(|block| format!("block {block}")).or_else(length)
    }

    /// Something that is older than the commit for certain, in words.
    fn lacks(&self, commit: &Commit, life: &FileLife, file: &Survivor) -> Option<String> {
        let is_old = |block: &u64| {
            let seen = self.seen_at(file, *block);
            // What is of no version at all is O2's.
            let newest = self.version_of(life, *block, &seen);
            newest.is_some_and(|version| version < commit.version)
        };
        let old = self.below_end(commit, file).find(is_old);
        let length = || {
            let from = life.sizes.iter().rposition(|s| s.version <= commit.version)?;
            let mut may = life.sizes[from..].iter().filter(|s| s.version <= self.begun);
            let is_old = !may.any(|s| s.from <= file.size && file.size <= s.to);
            let counts = commit.has_length && !commit.is_untorn;
            (counts && is_old).then(|| format!("the length of {}", file.size))
        };
        old.map(|block| format!("block {block}")).or_else(length)
    }

    /// Blocks of a commit of which the file shows something.
    fn below_end<'c>(
        &self,
        commit: &'c Commit,
        file: &Survivor,
    ) -> impl Iterator<Item = u64> + use<'c> {
        let end = file.size.div_ceil(self.ledger.block_bytes());
        commit.blocks.range(..end).copied()
    }
}
