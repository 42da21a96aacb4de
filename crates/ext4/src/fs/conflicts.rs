//! Journal conflicts, counted by what the block is, by case, and by whose call met it.
//!
//! Source: paper journal-conflict §4.2 (S, G, DB, IB, IT, D); a call counts each time it finds an
//!         older owner, as on the published BarrierFS kernel.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::Span;
use wp_jbd2::{Conflict, ConflictObserver};
use wp_rt::Rt;
use wp_vfs::JournalConflict;

use crate::disk::{Geometry, GroupDesc};

/// Types of blocks, sorted by name.
const TYPES: [&str; 6] = ["D", "DB", "G", "IB", "IT", "S"];

/// What has a place of its own is of no fixed type: directories, map nodes, journalled data.
const ELSEWHERE: usize = 0;

/// Runs of blocks with a fixed place, sorted: first block, length, type.
pub(super) struct FixedBlocks(Vec<(u64, u64, usize)>);

impl FixedBlocks {
    pub fn new(geo: &Geometry, descs: &[GroupDesc]) -> FixedBlocks {
        let [_, data_bitmap, desc, inode_bitmap, inode_table, super_block] = [0, 1, 2, 3, 4, 5];
        let first = geo.desc_place(0).0;
        let last = geo.desc_place(descs.len().saturating_sub(1) as u32).0;
        // The super block stands in the block before, or in the first part of block 0.
        let mut runs =
            vec![(first.saturating_sub(1), 1, super_block), (first, last - first + 1, desc)];
        for d in descs {
            runs.push((d.block_bitmap(), 1, data_bitmap));
            runs.push((d.inode_bitmap(), 1, inode_bitmap));
            runs.push((d.inode_table(), u64::from(geo.itable_blocks), inode_table));
        }
        runs.sort_unstable();
        FixedBlocks(runs)
    }

    fn of(&self, block: u64) -> usize {
        let after = self.0.partition_point(|(first, _, _)| *first <= block);
        match after.checked_sub(1).map(|i| self.0[i]) {
            Some((first, len, what)) if block - first < len => what,
            _ => ELSEWHERE,
        }
    }
}

/// Counts them.
pub(super) struct Conflicts {
    rt: Rt,
    blocks: FixedBlocks,
    met: RefCell<Met>,
}

/// Calls and time lost of each type and case.
type Counts = [[(u64, Span); Conflict::ALL.len()]; TYPES.len()];

/// What each task met, in the order of their first. Few tasks call often: they are found by their
/// name's address, the last one first.
#[derive(Default)]
struct Met {
    tasks: Vec<(Rc<str>, Counts)>,
    last: usize,
}

impl Met {
    fn of(&mut self, task: &Rc<str>) -> &mut Counts {
        let is_it = |(name, _): &(Rc<str>, Counts)| Rc::ptr_eq(name, task);
        if !self.tasks.get(self.last).is_some_and(is_it) {
            self.last = self.tasks.iter().position(is_it).unwrap_or_else(|| {
                self.tasks.push((task.clone(), Counts::default()));
                self.tasks.len() - 1
            });
        }
        &mut self.tasks[self.last].1
    }
}

impl Conflicts {
    pub fn new(rt: &Rt, blocks: FixedBlocks) -> Rc<Conflicts> {
        Rc::new(Conflicts { rt: rt.clone(), blocks, met: RefCell::default() })
    }

    /// What was met so far, sorted by task, type and case.
    pub fn all(&self) -> Vec<JournalConflict> {
        // Tasks may share a name.
        let mut sums: BTreeMap<(Rc<str>, usize, Conflict), (u64, Span)> = BTreeMap::new();
        for (task, counts) in &self.met.borrow().tasks {
            for (what, cases) in counts.iter().enumerate() {
                for (case, (calls, lost)) in Conflict::ALL.iter().zip(cases) {
                    if *calls > 0 {
                        let sum = sums.entry((task.clone(), what, *case)).or_default();
                        *sum = (sum.0 + calls, sum.1 + *lost);
                    }
                }
            }
        }
        let row =
            |((task, what, case), (calls, lost)): (&(Rc<str>, usize, Conflict), &(u64, Span))| {
                JournalConflict {
                    task: task.to_string(),
                    block: TYPES[*what],
                    case: case.name(),
                    counts: case.counts(),
                    calls: *calls,
                    lost_ns: lost.0,
                }
            };
        sums.iter().map(row).collect()
    }
}

impl ConflictObserver for Conflicts {
    fn conflict(&self, block: u64, case: Conflict, waited: Span) {
        let task = self.rt.current_name();
        let mut met = self.met.borrow_mut();
        let (calls, lost) = &mut met.of(&task)[self.blocks.of(block)][case as usize];
        *calls += 1;
        lost.0 += waited.0;
    }
}
