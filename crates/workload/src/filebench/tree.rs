//! The tree of a fileset: directories, files in those at the ends, empty ones for `makedir`.
//!
//! Picture:    `PATH/NAME` is the root, directory 0; below it directories `00000001`, ... of a
//!             width and to a depth that are drawn anew for each, until all files have a place.
//! Invariants: 1. indices go up in the order in which files (and so directories) are placed;
//!             2. the root has directories alone.
//! Source:     `fileset_populate` of filebench 1.5, by what it does.

use super::chance::{Chance, gamma};
use super::math::ln;
use super::model::{Fileset, Num};
use super::numbers::Numbers;

/// Deepest directory: a path has 4096 characters.
const DEPTH_MAX: u32 = 400;
/// Most entries of a fileset.
pub(super) const ENTRIES_MAX: u64 = 10_000_000;

/// A file or an empty directory of a tree.
#[derive(Clone, Copy)]
pub(super) struct Leaf {
    /// Its directory.
    pub(super) dir: u32,
    /// Its number there, which is its name.
    pub(super) serial: u32,
    /// Bytes.
    pub(super) size: u64,
}

/// A tree.
#[derive(Default)]
pub(super) struct Tree {
    /// Paths, the root's first.
    pub(super) dirs: Vec<String>,
    /// Files.
    pub(super) files: Vec<Leaf>,
    /// Empty directories.
    pub(super) leafdirs: Vec<Leaf>,
}

/// What a fileset's path is on the simulated file system: no empty parts.
pub(super) fn path_of(parts: &[&str]) -> String {
    let all = parts.iter().flat_map(|p| p.split('/')).filter(|p| !p.is_empty() && *p != ".");
    all.collect::<Vec<_>>().join("/")
}

struct Builder<'a> {
    set: &'a Fileset,
    numbers: &'a mut Numbers,
    chance: &'a mut Chance,
    files: u64,
    leafdirs: u64,
    mean_depth: f64,
    /// `None`: drawn as it is.
    mean_width: Option<f64>,
    tree: Tree,
}

impl Tree {
    /// Draws a tree. Errors: more entries than are possible here, or too deep a tree.
    pub(super) fn draw(
        set: &Fileset,
        numbers: &mut Numbers,
        chance: &mut Chance,
    ) -> Result<Tree, &'static str> {
        let files = numbers.whole(set.entries, chance);
        let leafdirs = numbers.whole(set.leafdirs, chance);
        if files.saturating_add(leafdirs) > ENTRIES_MAX {
            return Err("filebench: a fileset has more than 10,000,000 entries");
        }
        let (mean, mean_width) = match set.dir_width {
            Num::Drawn(i) if numbers.mean(i).is_some() => (numbers.mean(i).unwrap_or(0.0), None),
            other => {
                let n = numbers.whole(other, chance) as f64;
                (n, Some(n))
            }
        };
        let log = |x: f64| if x > 0.0 { ln(x) } else { f64::NEG_INFINITY };
        let mean_depth = log((files + leafdirs) as f64) / log(mean.trunc());
        let tree = Tree::default();
        let mut b = Builder { set, numbers, chance, files, leafdirs, mean_depth, mean_width, tree };
        b.directory(path_of(&[&set.path, &set.name]), 1)?;
        Ok(b.tree)
    }
}

impl Builder<'_> {
    /// A depth or width around a mean.
    fn around(&mut self, mean: f64) -> f64 {
        let shape = self.set.dir_gamma as f64 / 1000.0;
        if shape > 0.0 && mean.is_finite() && mean >= 0.0 {
            gamma(self.chance, mean, shape)
        } else {
            mean
        }
    }

    fn is_full(&self) -> (bool, bool) {
        (
            self.tree.files.len() as u64 >= self.files,
            self.tree.leafdirs.len() as u64 >= self.leafdirs,
        )
    }

    /// Places a directory at `depth`, the root's being 1, and what is below it.
    fn directory(&mut self, path: String, depth: u32) -> Result<(), &'static str> {
        if depth > DEPTH_MAX {
            return Err("filebench: a fileset's directories nest too deep");
        }
        let is_root = depth == 1;
        let here = self.tree.dirs.len() as u32;
        let deepest = match self.set.dir_depth {
            Some(i) => self.numbers.around(i, self.mean_depth, self.chance).trunc(),
            None => self.around(self.mean_depth).trunc(),
        };
        let width = match (self.mean_width, self.set.dir_width) {
            (None, Num::Drawn(i)) => self.numbers.real(i, self.chance),
            (mean, _) => self.around(mean.unwrap_or(0.0)),
        };
        let deepest = if deepest == 0.0 { 1.0 } else { deepest };
        let width = if width == 0.0 { 1.0 } else { width };
        // A depth that is no number (one entry a directory) is less than any in filebench.
        let is_leaf = !deepest.is_finite() || f64::from(depth) >= deepest;
        self.tree.dirs.push(path.clone());
        for leafdirs in [false, true] {
            let mut serial = 1u32;
            while is_root || f64::from(serial) < width + 1.0 {
                let full = self.is_full();
                if if leafdirs { full.1 } else { full.0 } {
                    break;
                }
                if is_root || !is_leaf {
                    self.directory(format!("{path}/{serial:08}"), depth + 1)?;
                } else if leafdirs {
                    self.tree.leafdirs.push(Leaf { dir: here, serial, size: 0 });
                } else {
                    let size = self.numbers.whole(self.set.size, self.chance);
                    self.tree.files.push(Leaf { dir: here, serial, size });
                }
                serial += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(entries: u64, width: u64, gamma: u64, leafdirs: u64) -> Fileset {
        Fileset {
            name: "set".to_owned(),
            path: "/a//./b/".to_owned(),
            entries: Num::Fixed(entries),
            leafdirs: Num::Fixed(leafdirs),
            dir_width: Num::Fixed(width),
            dir_gamma: gamma,
            dir_depth: None,
            size: Num::Fixed(7),
            prealloc_percent: 0,
            paralloc: false,
            reuse: false,
            is_cold: false,
            trusttree: false,
            readonly: false,
            writeonly: false,
        }
    }

    fn draw(set: &Fileset) -> Tree {
        let mut chance = Chance::seeded(1, "tree");
        Tree::draw(set, &mut Numbers::new(&[]), &mut chance).expect("a tree")
    }

    #[test]
    fn of_fixed_width_it_is_regular() {
        // 8 files, 2 a directory: the depth is 3, the root's directories are at 2.
        let tree = draw(&set(8, 2, 0, 0));
        let paths: Vec<&str> =
            tree.dirs.iter().map(|d| d.strip_prefix("a/b/set").unwrap_or(d)).collect();
        assert_eq!(
            paths,
            [
                "",
                "/00000001",
                "/00000001/00000001",
                "/00000001/00000002",
                "/00000002",
                "/00000002/00000001",
                "/00000002/00000002"
            ]
        );
        assert_eq!(tree.files.len(), 8);
        assert!(tree.files.iter().all(|f| f.size == 7 && (1..=2).contains(&f.serial)));
        // `define file` is one file in one directory.
        let tree = draw(&set(1, 10, 0, 0));
        assert_eq!((tree.dirs.len(), tree.files.len()), (2, 1));
    }

    #[test]
    fn of_any_width_all_files_have_a_place() {
        for (entries, width, leafdirs) in
            [(1000, 20, 0), (100, 1, 0), (50, 0, 3), (0, 4, 9), (5, 1_000_000, 0)]
        {
            let tree = draw(&set(entries, width, 1500, leafdirs));
            assert_eq!((tree.files.len() as u64, tree.leafdirs.len() as u64), (entries, leafdirs));
            assert!(tree.files.iter().all(|f| f.dir > 0), "a file in the root");
        }
        assert!(
            Tree::draw(&set(1 << 40, 20, 0, 0), &mut Numbers::new(&[]), &mut Chance::seeded(1, ""))
                .is_err()
        );
    }
}
