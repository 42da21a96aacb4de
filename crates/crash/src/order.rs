//! O5: what is there of the order in which a program did things.
//!
//! Picture:    the newest operation of which something is there -> whatever a barrier that had
//!             returned before that operation was called put before it is there too.
//! Invariants: an operation is named only if nothing older could have left what is there.
//! Left out:   extended attributes as a sign of an operation.
//! Source:     BarrierFS (Won et al., FAST 2018), `fbarrier` and `fdatabarrier`; by epochs: all of
//!             those before k, and any part of k.

use wp_vfs::FileType;

use crate::ledger::{FileLife, Names};
use crate::oracle::{Judge, Seen};
use crate::subject::Survivor;

impl Judge<'_> {
    /// The newest version of which something must be there; 0: all that is there was there before
    /// the program.
    pub(crate) fn newest_there(&self) -> u32 {
        let files = self.outcome.files.iter().filter(|f| f.kind == FileType::File);
        let newest = files.map(|f| self.newest_of(f)).max().unwrap_or(0);
        match self.profile.names_in_order {
            true => newest.max(self.names_there()),
            false => newest,
        }
    }

    /// The first version whose tree of names this is. Names change in the order of the calls.
    fn names_there(&self) -> u32 {
        let may = &self.ledger.names[..=self.begun as usize];
        may.iter().position(|n| self.is_tree(n)).unwrap_or(0) as u32
    }

    /// Are these the names, of these files?
    pub(crate) fn is_tree(&self, names: &Names) -> bool {
        let files = &self.outcome.files;
        names.len() == files.len()
            && files.iter().all(|f| {
                names.get(&f.path).is_some_and(|o| {
                    let life = &self.ledger.files[*o as usize];
                    life.kind == f.kind && life.ino.is_none_or(|i| i == f.ino)
                })
            })
    }

    /// The newest version that a file's blocks or length are of, at the earliest.
    fn newest_of(&self, file: &Survivor) -> u32 {
        let candidates = self.candidates(file);
        let lives = || candidates.iter().map(|o| &self.ledger.files[*o as usize]);
        let blocks = self.seen(file).filter_map(|(block, seen)| {
            lives().filter_map(|life| self.first_version(life, block, &seen)).min()
        });
        let length = lives().filter_map(|life| {
            let may = life.sizes.iter().filter(|s| s.version <= self.begun);
            may.filter(|s| s.from <= file.size && file.size <= s.to).map(|s| s.version).min()
        });
        blocks.max().unwrap_or(0).max(length.min().unwrap_or(0))
    }

    /// The oldest version at which `life` held in `block` what is seen there.
    fn first_version(&self, life: &FileLife, block: u64, seen: &Seen<'_>) -> Option<u32> {
        if self.is_zero(seen) {
            return Some(0);
        }
        let versions = life.blocks.get(&block)?.iter().filter(|v| v.version <= self.begun);
        versions.filter(|v| seen.is(&v.data, v.id)).map(|v| v.version).min()
    }
}
