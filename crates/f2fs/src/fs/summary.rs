//! What a checkpoint says of the logs and segments: summaries and the SIT.
//!
//! Source: Linux `fs/f2fs/segment.c` (`f2fs_flush_sit_entries`, `f2fs_write_data_summaries`).

use crate::disk::{
    Block, Checkpoint, Compacted, Journal, Log, SitEntry, SitJournalEntry, ZERO_BLOCK, bits,
};

use super::mount::F2fs;
use super::space::Space;

/// Entries of a block of the SIT that are to be written.
struct Set {
    block: u32,
    count: usize,
}

/// Dirty segments by block of the SIT, in the order in which Linux writes them: a set moves behind
/// smaller ones as it grows (`add_sit_entry`, `adjust_sit_entry_set`).
struct Sets(Vec<Set>);

impl Sets {
    fn add(&mut self, block: u32) {
        let Some(at) = self.0.iter().position(|s| s.block == block) else {
            self.0.insert(0, Set { block, count: 1 });
            return;
        };
        let mut set = self.0.remove(at);
        set.count += 1;
        let behind = self.0[at..].iter().position(|s| set.count <= s.count);
        self.0.insert(behind.map_or(self.0.len(), |n| at + n), set);
    }
}

impl Space {
    /// Dirty segments as sets, those of the journal too if it is to be emptied.
    fn dirty_sets(&mut self) -> Vec<Set> {
        let mut sets = Sets(Vec::new());
        for segment in self.sit.dirty.iter() {
            sets.add(self.g.sit_place(*segment).0);
        }
        let used = usize::from(self.sit_journal.count.get());
        if used + self.sit.dirty.len() > Journal::SIT_MAX {
            for e in self.sit_journal.sits() {
                let segment = e.segment.get();
                if segment < self.g.segments && self.sit.dirty.insert(segment) {
                    sets.add(self.g.sit_place(segment).0);
                }
            }
            self.sit_journal = Journal::empty();
        }
        sets.0
    }

    /// Dirty segments of a block of the SIT.
    fn dirty_in(&self, block: u32) -> Vec<u32> {
        let first = block * SitEntry::PER_BLOCK;
        self.sit.dirty.range(first..first + SitEntry::PER_BLOCK).copied().collect()
    }

    /// The block as it is now.
    fn sit_block(&self, block: u32) -> Block {
        let first = block * SitEntry::PER_BLOCK;
        let mut out = ZERO_BLOCK;
        let segs = self.sit.segs.iter().skip(first as usize);
        for (to, seg) in SitEntry::all_mut(&mut out).iter_mut().zip(segs) {
            *to = seg.raw();
        }
        out
    }

    /// What is in use now is what the checkpoint has (`seg_info_to_raw_sit`).
    fn settle(&mut self, segment: u32) {
        let se = self.seg_mut(segment);
        se.ckpt_valid = se.valid;
        if let Some(m) = &mut se.maps {
            m.ckpt = m.cur;
        }
        self.sit.dirty.remove(&segment);
    }
}

impl F2fs {
    /// Writes changed entries of the SIT to the journal or their blocks, and frees what was emptied
    /// (`f2fs_flush_sit_entries`).
    pub(super) async fn flush_sit(&self) {
        let sets = self.space.borrow_mut().dirty_sets();
        let mut to_journal = true;
        for set in sets {
            let (segments, used) = {
                let space = self.space.borrow();
                let used = usize::from(space.sit_journal.count.get());
                (space.dirty_in(set.block), used)
            };
            to_journal = to_journal && used + set.count <= Journal::SIT_MAX;
            for segment in &segments {
                self.note_small_discards(*segment);
            }
            if to_journal {
                let mut space = self.space.borrow_mut();
                for segment in &segments {
                    let entry = space.seg(*segment).raw();
                    let entry = SitJournalEntry { segment: (*segment).into(), entry };
                    space.sit_journal.put_sit(entry);
                }
            } else {
                let (addr, bytes) = {
                    let mut space = self.space.borrow_mut();
                    let second = !bits::test(&space.sit.versions, set.block);
                    bits::set(&mut space.sit.versions, set.block, second);
                    (self.g.sit_block(set.block, second), space.sit_block(set.block))
                };
                self.put_meta(addr, &bytes).await;
            }
            let mut space = self.space.borrow_mut();
            segments.iter().for_each(|s| space.settle(*s));
        }
        self.space.borrow_mut().free_emptied();
    }

    /// Where the logs are.
    pub(super) fn note_logs(&self, cp: &mut Checkpoint) {
        let space = self.space.borrow();
        cp.head_mut().free_segment_count = space.segs.free_segments().into();
        for log in Log::ALL {
            let l = space.log(log);
            cp.set_log(log, l.segment, l.next);
            cp.set_alloc_type(log, l.alloc);
        }
    }

    /// Blocks that the summaries of the data logs take (`f2fs_npages_for_summary_flush`).
    pub(super) fn data_summary_blocks(&self, cp: &Checkpoint) -> u32 {
        Compacted::blocks(Compacted::counts(cp))
    }

    /// Summaries of the data logs, with the journals (`f2fs_write_data_summaries`).
    pub(super) fn data_summaries(&self) -> Vec<Block> {
        let (cp, space) = (self.cp.borrow(), self.space.borrow());
        let counts = Compacted::counts(&cp);
        if Compacted::blocks(counts) < 3 {
            let mut out = Compacted {
                nat: space.nat_journal,
                sit: space.sit_journal,
                data: Default::default(),
            };
            for ((to, log), n) in out.data.iter_mut().zip(Log::DATA).zip(counts) {
                to.extend(space.log(log).summary.entries.iter().take(n as usize));
            }
            let mut blocks = out.store();
            // A last block that ended full is no block more.
            blocks.truncate(Compacted::blocks(counts) as usize);
            return blocks;
        }
        Log::DATA
            .map(|log| {
                let mut summary = space.log(log).summary.clone();
                match log {
                    Log::HotData => summary.journal = space.nat_journal,
                    Log::ColdData => summary.journal = space.sit_journal,
                    _ => {}
                }
                summary.store()
            })
            .into()
    }

    /// Summaries of the node logs, with what was ever written (`f2fs_write_node_summaries`).
    pub(super) fn node_summaries(&self) -> Vec<Block> {
        let space = self.space.borrow();
        let kib =
            self.kbytes_at_mount.get() + (self.sectors_written() - self.sectors_at_mount.get()) / 2;
        Log::NODE
            .map(|log| {
                let mut summary = space.log(log).summary.clone();
                if log == Log::HotNode {
                    summary.journal.set_kbytes_written(kib);
                }
                summary.store()
            })
            .into()
    }

    /// Sectors that were written to the devices (`f2fs_get_sectors_written`).
    pub(super) fn sectors_written(&self) -> u64 {
        self.io.parts().iter().map(|p| p.queue().counters().sectors_written).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_stand_as_the_kernels_list_has_them() {
        let mut sets = Sets(Vec::new());
        // Segments 0, 1 of block 0; 60 of block 1; 120, 121 of block 2, in that order.
        for block in [0, 0, 1, 2, 2] {
            sets.add(block);
        }
        let order: Vec<(u32, usize)> = sets.0.iter().map(|s| (s.block, s.count)).collect();
        // A new set comes first; one that grew goes before the first that is as large.
        assert_eq!(order, [(1, 1), (2, 2), (0, 2)]);
    }

    #[test]
    fn few_changes_go_to_the_journal_and_many_to_their_blocks() {
        let mut s = crate::fs::space::tests::space(96, 1, 512);
        s.sit.dirty.clear();
        (0..3).for_each(|n| {
            s.sit.dirty.insert(n);
        });
        assert_eq!(s.dirty_sets().len(), 1);
        let entry = s.seg(9).raw();
        for n in 9..13u32 {
            s.sit_journal.put_sit(SitJournalEntry { segment: n.into(), entry });
        }
        // 3 and 4 are more than the six that fit: the journal is emptied, its segments are dirty.
        let sets = s.dirty_sets();
        assert_eq!((sets.len(), sets[0].count), (1, 7));
        assert_eq!(s.sit_journal.count.get(), 0);
        assert!(s.sit.dirty.contains(&12));
    }
}
