//! The files of a fileset while threads run, and who is picked next.
//!
//! Picture:    a [`Group`] of files and one of empty directories, each entry in one of three rings:
//!             not placed yet, not there, there; and the directories of the tree.
//! Laws:       1. nothing is picked at random but at the start. A pick of what is there takes the
//!                first at or after its rotor, of what is not there the first at or after another;
//!                all threads and kinds of flowops share both. A flowop with `opennext` has a rotor
//!                of its thread instead;
//!             2. the rotor is then behind that one, also where it is busy and the next free one is
//!                taken;
//!             3. a busy entry is being opened, closed, deleted or examined. A pick waits while
//!                the count of those that are not busy is 0, and finds nothing where all of the
//!                ring are. The count is filebench's: a close of a file that another thread has
//!                open raises it by one too many.
//! Source:     `fileset_pick`, `fileset_unbusy` of filebench 1.5, by what they do; sequences
//!             watched with strace (`tests/filebench_oracle.rs`).

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_rt::{Rt, WaitQueue};

use super::chance::Chance;
use super::model::Fileset;
use super::ring::Ring;
use super::tree::{Leaf, Tree};

/// Which of a group's entries are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// Not placed yet: from a uniform index on.
    Free,
    /// Not there.
    Missing,
    /// There.
    Existing,
}

/// A pick's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Picked {
    /// This one; it is busy now.
    Entry(usize),
    /// Nothing of the kind.
    Nothing,
    /// All are busy: ask again when one is not.
    Wait,
}

struct Entry {
    path: Box<str>,
    size: u64,
    opens: i64,
    dir: u32,
    ring: Want,
    is_busy: bool,
}

/// Files, or empty directories.
pub(super) struct Group {
    entries: Vec<Entry>,
    rings: [Ring; 3],
    rotor_missing: usize,
    /// By thread, 0: shared by all.
    rotors_existing: BTreeMap<u32, usize>,
    idle: i64,
    /// Who waits for one that is not busy.
    pub(super) idlers: Rc<WaitQueue>,
    /// Who waits for a certain one.
    pub(super) waiters: Rc<WaitQueue>,
}

impl Group {
    fn new(rt: &Rt, leaves: &[Leaf], dirs: &[String]) -> Group {
        let entry = |l: &Leaf| Entry {
            path: format!("{}/{:08}", dirs[l.dir as usize], l.serial).into(),
            size: l.size,
            opens: 0,
            dir: l.dir,
            ring: Want::Free,
            is_busy: false,
        };
        let mut free = Ring::new(leaves.len());
        (0..leaves.len()).for_each(|i| free.insert(i));
        Group {
            entries: leaves.iter().map(entry).collect(),
            rings: [free, Ring::new(leaves.len()), Ring::new(leaves.len())],
            rotor_missing: 0,
            rotors_existing: BTreeMap::new(),
            idle: leaves.len() as i64,
            idlers: Rc::new(WaitQueue::new(rt, "filebench: a file that is not busy")),
            waiters: Rc::new(WaitQueue::new(rt, "filebench: a file that is busy")),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn count(&self, want: Want) -> usize {
        self.rings[want as usize].len()
    }

    /// Picks one. `rotor`: 0, or the thread that has one of its own; `index` instead of a rotor.
    pub(super) fn pick(
        &mut self,
        want: Want,
        rotor: u32,
        index: Option<u64>,
        chance: &mut Chance,
    ) -> Picked {
        if self.entries.is_empty() {
            return Picked::Nothing;
        }
        if self.idle == 0 {
            return Picked::Wait;
        }
        let ring = &self.rings[want as usize];
        if ring.len() == 0 {
            return Picked::Nothing;
        }
        let from = match (want, index) {
            (Want::Free, None) => chance.below(self.entries.len() as u64, 0) as usize,
            (_, Some(n)) => n as usize,
            (Want::Missing, None) => self.rotor_missing,
            (Want::Existing, None) => self.rotors_existing.get(&rotor).copied().unwrap_or(0),
        };
        let Some(first) = ring.next(from) else { return Picked::Nothing };
        match (want, index) {
            (Want::Missing, None) => self.rotor_missing = first + 1,
            (Want::Existing, None) => drop(self.rotors_existing.insert(rotor, first + 1)),
            _ => {}
        }
        let mut found = first;
        while self.entries[found].is_busy {
            match ring.next(found + 1) {
                Some(next) if next != first => found = next,
                _ => return Picked::Nothing,
            }
        }
        self.idle -= 1;
        self.entries[found].is_busy = true;
        Picked::Entry(found)
    }

    /// No longer busy. `ring`: where it is from now on, if that changes; `opens` is added to its
    /// open count.
    pub(super) fn release(&mut self, i: usize, ring: Option<Want>, opens: i64) {
        let e = &mut self.entries[i];
        if let Some(ring) = ring.filter(|r| *r != e.ring) {
            self.rings[e.ring as usize].remove(i);
            self.rings[ring as usize].insert(i);
            e.ring = ring;
        }
        e.opens += opens;
        if e.is_busy {
            e.is_busy = false;
            self.idle += 1;
            self.waiters.wake_all();
            if self.idle >= 1 {
                self.idlers.wake_one();
            }
        }
    }

    pub(super) fn is_busy(&self, i: usize) -> bool {
        self.entries[i].is_busy
    }

    /// Busy, because its thread deletes it.
    pub(super) fn hold(&mut self, i: usize) {
        self.entries[i].is_busy = true;
        self.idle -= 1;
    }

    /// Busy, because a thread closes it.
    pub(super) fn hold_to_close(&mut self, i: usize) {
        self.entries[i].is_busy = true;
        self.idle -= i64::from(self.entries[i].opens == 1);
    }

    pub(super) fn opens(&self, i: usize) -> i64 {
        self.entries[i].opens
    }

    pub(super) fn path(&self, i: usize) -> &str {
        &self.entries[i].path
    }

    /// The directory that it is in.
    pub(super) fn dir(&self, i: usize) -> usize {
        self.entries[i].dir as usize
    }

    /// Bytes that the fileset has for it, whatever was written since.
    pub(super) fn size(&self, i: usize) -> u64 {
        self.entries[i].size
    }
}

/// A fileset.
pub(super) struct Files {
    /// What the text says of it.
    pub(super) spec: Fileset,
    /// Its files.
    pub(super) files: Group,
    /// Its empty directories.
    pub(super) leafdirs: Group,
    /// Paths of the directories of its tree, the root's first.
    pub(super) dirs: Vec<String>,
    dirs_busy: Vec<bool>,
    dir_rotor: usize,
    dirs_idle: i64,
    /// Who waits for a directory that is not busy.
    pub(super) dir_idlers: Rc<WaitQueue>,
}

impl Files {
    pub(super) fn new(rt: &Rt, spec: &Fileset, tree: Tree) -> Files {
        Files {
            spec: spec.clone(),
            files: Group::new(rt, &tree.files, &tree.dirs),
            leafdirs: Group::new(rt, &tree.leafdirs, &tree.dirs),
            dirs_busy: vec![false; tree.dirs.len()],
            dirs_idle: tree.dirs.len() as i64,
            dirs: tree.dirs,
            dir_rotor: 0,
            dir_idlers: Rc::new(WaitQueue::new(rt, "filebench: a directory that is not busy")),
        }
    }

    /// Picks a directory of the tree.
    pub(super) fn pick_dir(&mut self) -> Picked {
        let n = self.dirs.len();
        if self.dirs_idle == 0 {
            return Picked::Wait;
        }
        let first = if self.dir_rotor < n { self.dir_rotor } else { 0 };
        self.dir_rotor = first + 1;
        let Some(found) = (0..n).map(|i| (first + i) % n).find(|i| !self.dirs_busy[*i]) else {
            return Picked::Nothing;
        };
        self.dirs_busy[found] = true;
        self.dirs_idle -= 1;
        Picked::Entry(found)
    }

    /// A directory is no longer busy.
    pub(super) fn release_dir(&mut self, i: usize) {
        self.dirs_busy[i] = false;
        self.dirs_idle += 1;
        self.dir_idlers.wake_one();
    }

    /// Wakes all that wait: nobody will be served any more.
    pub(super) fn wake(&self) {
        for group in [&self.files, &self.leafdirs] {
            group.idlers.wake_all();
            group.waiters.wake_all();
        }
        self.dir_idlers.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(n: u32) -> (Group, Chance) {
        let leaves: Vec<Leaf> = (0..n).map(|i| Leaf { dir: 0, serial: i + 1, size: 0 }).collect();
        (Group::new(&Rt::new(1), &leaves, &["set".to_owned()]), Chance::own(0))
    }

    /// All there.
    fn full(n: u32) -> (Group, Chance) {
        let (mut g, mut chance) = group(n);
        while let Picked::Entry(i) = g.pick(Want::Free, 0, None, &mut chance) {
            g.release(i, Some(Want::Existing), 0);
        }
        assert_eq!((g.count(Want::Existing), g.count(Want::Free)), (n as usize, 0));
        (g, chance)
    }

    #[test]
    fn rotors_go_round_over_what_is_wanted_and_free() {
        let (mut g, mut chance) = full(5);
        let mut next = |g: &mut Group, want| match g.pick(want, 0, None, &mut chance) {
            Picked::Entry(i) => {
                g.release(i, None, 0);
                i as i64
            }
            _ => -1,
        };
        assert_eq!(next(&mut g, Want::Missing), -1);
        assert_eq!([0; 3].map(|_| next(&mut g, Want::Existing)), [0, 1, 2]);
        g.release(4, Some(Want::Missing), 0);
        g.release(1, Some(Want::Missing), 0);
        // Deletions and openings go on from where the last of either was.
        assert_eq!([0; 3].map(|_| next(&mut g, Want::Existing)), [3, 0, 2]);
        assert_eq!([0; 3].map(|_| next(&mut g, Want::Missing)), [1, 4, 1]);
        // 3 is busy: 0 instead, and the rotor is behind 3, not behind 0.
        assert_eq!(g.pick(Want::Existing, 0, Some(3), &mut Chance::own(0)), Picked::Entry(3));
        assert_eq!([0; 3].map(|_| next(&mut g, Want::Existing)), [0, 0, 2]);
        // A thread of its own rotor begins at the lowest.
        assert_eq!(g.pick(Want::Existing, 7, None, &mut Chance::own(0)), Picked::Entry(0));
    }

    #[test]
    fn a_pick_waits_where_all_are_busy_and_finds_nothing_where_its_ring_is() {
        let (mut g, mut chance) = full(2);
        let pick = |g: &mut Group, want, chance: &mut Chance| g.pick(want, 0, None, chance);
        assert_eq!(pick(&mut g, Want::Existing, &mut chance), Picked::Entry(0));
        g.release(1, Some(Want::Missing), 0);
        assert_eq!(pick(&mut g, Want::Existing, &mut chance), Picked::Nothing, "0 is busy");
        assert_eq!(pick(&mut g, Want::Missing, &mut chance), Picked::Entry(1));
        assert_eq!(pick(&mut g, Want::Existing, &mut chance), Picked::Wait);
        assert_eq!(pick(&mut g, Want::Missing, &mut chance), Picked::Wait);
        g.release(0, None, 2);
        // A close where another thread has it open: one more counts as not busy than there is.
        g.hold_to_close(0);
        g.release(0, None, -1);
        assert_eq!((g.idle, g.opens(0)), (2, 1));
        g.hold_to_close(0);
        g.release(0, None, -1);
        assert_eq!((g.idle, g.opens(0), g.path(0)), (2, 0, "set/00000001"));
    }
}
