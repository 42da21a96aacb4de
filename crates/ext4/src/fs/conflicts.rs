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

/// Runs of blocks with a fixed place, sorted: first block, length, type.
pub(super) struct FixedBlocks(Vec<(u64, u64, &'static str)>);

/// What has a place of its own is none of these: directories, map nodes, journalled data.
const ELSEWHERE: &str = "D";

impl FixedBlocks {
    pub fn new(geo: &Geometry, descs: &[GroupDesc]) -> FixedBlocks {
        let first = geo.desc_place(0).0;
        let last = geo.desc_place(descs.len().saturating_sub(1) as u32).0;
        // The super block stands in the block before, or in the first part of block 0.
        let mut runs = vec![(first.saturating_sub(1), 1, "S"), (first, last - first + 1, "G")];
        for d in descs {
            runs.push((d.block_bitmap(), 1, "DB"));
            runs.push((d.inode_bitmap(), 1, "IB"));
            runs.push((d.inode_table(), u64::from(geo.itable_blocks), "IT"));
        }
        runs.sort_unstable();
        FixedBlocks(runs)
    }

    fn of(&self, block: u64) -> &'static str {
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
    met: RefCell<BTreeMap<Key, (u64, Span)>>,
}

/// Task, block type, case.
type Key = (Rc<str>, &'static str, Conflict);

impl Conflicts {
    pub fn new(rt: &Rt, blocks: FixedBlocks) -> Rc<Conflicts> {
        Rc::new(Conflicts { rt: rt.clone(), blocks, met: RefCell::default() })
    }

    /// What was met so far, sorted by task, type and case.
    pub fn all(&self) -> Vec<JournalConflict> {
        let row = |((task, block, case), (calls, lost)): (&Key, &(u64, Span))| JournalConflict {
            task: task.to_string(),
            block,
            case: case.name(),
            counts: case.counts(),
            calls: *calls,
            lost_ns: lost.0,
        };
        self.met.borrow().iter().map(row).collect()
    }
}

impl ConflictObserver for Conflicts {
    fn conflict(&self, block: u64, case: Conflict, waited: Span) {
        let key = (self.rt.current_name(), self.blocks.of(block), case);
        let mut met = self.met.borrow_mut();
        let (calls, lost) = met.entry(key).or_default();
        *calls += 1;
        lost.0 += waited.0;
    }
}
