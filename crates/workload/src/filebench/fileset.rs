//! The files of a fileset while threads run, and who is picked next.

use wp_base::rng::Rng;

use super::personality::{Fileset, Sizes};
use super::random::gamma;

/// Most bytes that a file is given at the start.
const MOST: f64 = 1e9;

#[derive(Clone, Copy, Default)]
struct Entry {
    exists: bool,
    /// A thread has picked it and is not done opening or deleting it.
    busy: bool,
    opens: u32,
    size: u64,
}

/// Which of its files is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    Existing,
    Missing,
}

/// A fileset's files. The rotors are shared by all threads.
pub(super) struct Files {
    name: String,
    per_dir: u64,
    entries: Vec<Entry>,
    /// Next to be looked at, of files that exist and of those that do not.
    rotors: [usize; 2],
}

impl Files {
    /// None of them there yet; `(place, bytes)` of those that are to be made, in the order in which
    /// they are.
    pub(super) fn new(set: &Fileset, rng: &mut Rng) -> (Files, Vec<(usize, u64)>) {
        let mut entries = vec![Entry::default(); set.entries as usize];
        for e in &mut entries {
            e.size = match set.sizes {
                Sizes::Fixed(bytes) => bytes,
                // Whole bytes, as filebench takes them.
                Sizes::Gamma { mean, shape } => gamma(rng, mean, shape).min(MOST) as u64,
            };
        }
        // Those that are there first are picked uniformly.
        let mut order: Vec<usize> = (0..entries.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let first = entries.len() * set.prealloc_percent as usize / 100;
        let made = order.into_iter().take(first).map(|i| (i, entries[i].size)).collect();
        let (name, per_dir) = (set.name.clone(), set.dir_width.max(1));
        (Files { name, per_dir, entries, rotors: [0; 2] }, made)
    }

    /// Directories of all files, and then the path of one.
    pub(super) fn directories(&self) -> Vec<String> {
        let last = (self.entries.len() as u64).div_ceil(self.per_dir).max(1);
        let below = (1..=last).map(|d| format!("{}/{d:08}", self.name));
        std::iter::once(self.name.clone()).chain(below).collect()
    }

    pub(super) fn path(&self, file: usize) -> String {
        let dir = file as u64 / self.per_dir + 1;
        format!("{}/{dir:08}/{:08}", self.name, file + 1)
    }

    /// Picks the next one that is wanted and that nobody has picked; it stays picked.
    pub(super) fn pick(&mut self, want: Want) -> Option<usize> {
        let rotor = want as usize;
        let n = self.entries.len();
        let from = self.rotors[rotor];
        let found = (0..n).map(|i| (from + i) % n).find(|i| {
            let e = &self.entries[*i];
            e.exists == (want == Want::Existing) && !e.busy
        })?;
        self.rotors[rotor] = (found + 1) % n;
        self.entries[found].busy = true;
        Some(found)
    }

    /// It is there now, of no length.
    pub(super) fn made(&mut self, file: usize) {
        self.entries[file].exists = true;
    }

    /// How long the fileset has it, in bytes.
    pub(super) fn size(&self, file: usize) -> u64 {
        self.entries[file].size
    }

    pub(super) fn is_open(&self, file: usize) -> bool {
        self.entries[file].opens > 0
    }

    pub(super) fn deleted(&mut self, file: usize) {
        self.entries[file].exists = false;
    }

    /// Nobody has it picked any more.
    pub(super) fn release(&mut self, file: usize) {
        self.entries[file].busy = false;
    }

    pub(super) fn opened(&mut self, file: usize) {
        self.entries[file].opens += 1;
    }

    pub(super) fn closed(&mut self, file: usize) {
        self.entries[file].opens -= 1;
    }

    pub(super) fn existing(&self) -> usize {
        self.entries.iter().filter(|e| e.exists).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::personality::varmail;
    use super::*;

    #[test]
    fn rotors_go_round_over_what_is_wanted_and_free() {
        let set = Fileset {
            entries: 5,
            sizes: Sizes::Fixed(1),
            prealloc_percent: 100,
            ..varmail(1).fileset
        };
        let (mut files, made) = Files::new(&set, &mut Rng::stream(1, "files"));
        assert_eq!(made.len(), 5);
        (0..5).for_each(|i| files.made(i));
        let next = |files: &mut Files, want| {
            let found = files.pick(want);
            found.into_iter().for_each(|f| files.release(f));
            found
        };
        assert_eq!(next(&mut files, Want::Missing), None);
        assert_eq!([0; 3].map(|_| next(&mut files, Want::Existing)), [Some(0), Some(1), Some(2)]);
        files.deleted(4);
        files.deleted(1);
        // Deletions and openings go on from where the last of either was.
        assert_eq!([0; 3].map(|_| next(&mut files, Want::Existing)), [Some(3), Some(0), Some(2)]);
        assert_eq!([0; 3].map(|_| next(&mut files, Want::Missing)), [Some(1), Some(4), Some(1)]);
        let held = files.pick(Want::Existing);
        assert_eq!(held, Some(3));
        assert_eq!([0; 3].map(|_| next(&mut files, Want::Existing)), [Some(0), Some(2), Some(0)]);
    }

    #[test]
    fn the_files_of_varmail_are_as_published() {
        let (files, made) = Files::new(&varmail(16).fileset, &mut Rng::stream(3, "files"));
        assert_eq!(made.len(), 800);
        assert!(made.windows(2).any(|w| w[0].0 > w[1].0), "made in no order");
        let mean = made.iter().map(|m| m.1).sum::<u64>() / 800;
        assert!((14_500..18_500).contains(&mean), "mean length {mean}");
        assert_eq!(files.directories(), ["bigfileset", "bigfileset/00000001"]);
        assert_eq!(files.path(539), "bigfileset/00000001/00000540");
    }
}
