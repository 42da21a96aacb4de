//! The checkpoint that ends a recovery: directories, nodes, NAT, SIT, summaries, and the pack.
//!
//! Picture:    blocks of directories -> hot data log; nodes -> node logs (indirect ones, then those
//!             of directories, then the others, each in order of numbers); NAT and SIT entries ->
//!             journals, or the other copy of their block; summaries -> SSA; pack -> the other one.
//! Invariants: 1. nothing that the last checkpoint needs is written over: a crash in between finds
//!                that checkpoint. Nodes of the chain are, see below.
//!             2. the second block of the pack makes it valid; it goes last.
//! Source:     `f2fs_write_checkpoint`, `do_checkpoint`, `f2fs_flush_nat_entries`,
//!             `f2fs_flush_sit_entries`.
//!
//! # A power cut during recovery
//!
//! A second cut before the new checkpoint is durable can lose files whose fsync had returned, here
//! as in Linux 6.1 and 6.12 on a device without zones. `recover_data` ends with
//! `f2fs_allocate_new_segments`, which moves the three data logs (`CURSEG_HOT_DATA` to
//! `CURSEG_COLD_DATA`) and no node log; so `CURSEG_WARM_NODE` still stands at the block in which
//! the chain begins (`NEXT_FREE_BLKADDR`, where `find_fsync_dnodes` starts), and there
//! `f2fs_write_checkpoint(CP_RECOVERY)` sends the recovered nodes (`block_operations`,
//! `f2fs_sync_node_pages`), without mark, and with the version that the chain's nodes have, as the
//! checkpoint's number is raised after that. When the power goes now, the next mount finds the old
//! checkpoint and a chain whose first nodes are unmarked. It is kept so: it is what Linux does, and
//! bug N5; with `recover_aside` node logs move as well, to segments that the chain is not in.
//!
//! With zones every log leaves a zone that was written since the checkpoint
//! (`f2fs_fix_curseg_write_pointer`), so that nothing is written over the chain. But a log that
//! stood at the start of its zone stays, and has the zone reset ("New zone for curseg is not yet
//! discarded"), chain and all, and so does a zone in which nothing is valid
//! (`check_zone_write_pointer`), both before the checkpoint: bug N6. Since 6.9 zones that no log
//! goes on in are finished there, too; what order-preserving recovery saw behind their write
//! pointers and left out looks written to the next one. `recover_aside` leaves zones that no log
//! goes on in as they are until the checkpoint is durable, and takes empty ones for its logs.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};
use wp_medium::Overlay;

use crate::disk::{
    Block, Compacted, Footer, Geometry, Journal, Log, NatEntry, NatJournalEntry, SitEntry,
    SitJournalEntry, Summary, SummaryBlock, addr, bits, cp_flag, tree,
};

use super::files::State;
use super::zones::ZoneTable;

/// What a checkpoint is to say besides.
pub(super) struct Seal {
    /// A check is due.
    pub(super) needs_check: bool,
}

impl State<'_> {
    /// Writes everything into `dev`; the last block of the pack. Blocks of zones go behind those
    /// that `zones` has as written.
    pub(super) fn seal(
        mut self,
        dev: &Overlay<'_>,
        zones: &mut ZoneTable,
        seal: &Seal,
    ) -> FsResult<u32> {
        let mut out: BTreeMap<u32, Block> = BTreeMap::new();
        self.write_names(&mut out)?;
        self.write_nodes(&mut out)?;
        let next_nid = self.t.peek_free_nid();
        let mut cp = self.t.image.checkpoint().clone();
        let version = cp.head().checkpoint_ver.get().wrapping_add(1);
        cp.head_mut().checkpoint_ver = version.into();
        let mut nat = self.journal(Log::HotData);
        self.flush_nat(&mut nat, &mut cp, &mut out)?;
        let mut sit = self.journal(Log::ColdData);
        self.flush_sit(&mut sit, &mut cp, &mut out)?;
        for (segment, summary) in &self.t.summaries {
            out.insert(self.t.g.summary_block(*segment), summary.store());
        }
        for (log, journal) in [(Log::HotData, nat), (Log::ColdData, sit)] {
            if let Some(s) = &mut self.t.log_mut(log).summary {
                s.journal = journal;
            }
        }
        for (block, bytes) in &out {
            write(dev, *block, bytes)?;
        }
        for log in Log::ALL {
            let (segment, offset) = self.t.log_head(log);
            zones.written_to(self.t.g.block(segment, offset));
        }
        self.write_pack(dev, cp, next_nid, seal)
    }

    fn journal(&self, log: Log) -> Journal {
        self.t.log(log).summary.as_ref().map_or(Journal::empty(), |s| s.journal)
    }

    fn write_names(&mut self, out: &mut BTreeMap<u32, Block>) -> FsResult<()> {
        for ((dir, block), bytes) in std::mem::take(&mut self.names) {
            let Some(at) = self.find(dir, block, false)? else { continue };
            let owner = self.owner_of(at)?;
            let old = self.address(dir, at)?;
            let place = self.t.take(Log::HotData, owner)?;
            if addr::is_block(old) {
                self.t.mark(old, false)?;
            }
            self.set_address(dir, at, place)?;
            out.insert(place, *bytes);
        }
        Ok(())
    }

    fn write_nodes(&mut self, out: &mut BTreeMap<u32, Block>) -> FsResult<()> {
        let cp_ver = self.t.image.checkpoint().node_version();
        let sums = *self.t.image.checksums();
        let log_of = |block: &Block| {
            let footer = Footer::of(block);
            let is_direct =
                footer.offset() == tree::XATTR_OFFSET || tree::is_direct(footer.offset());
            match (is_direct, footer.has(Footer::COLD)) {
                (false, _) => Log::ColdNode,
                (true, false) => Log::HotNode,
                (true, true) => Log::WarmNode,
            }
        };
        let nodes = std::mem::take(&mut self.nodes);
        for log in [Log::ColdNode, Log::HotNode, Log::WarmNode] {
            for (nid, block) in nodes.iter().filter(|(_, b)| log_of(b) == log) {
                let mut block = *block.clone();
                let old = self.t.nat(*nid)?;
                let place = self.t.take(log, Summary::new(*nid, 0, 0))?;
                if addr::is_block(old.block_addr.get()) {
                    self.t.mark(old.block_addr.get(), false)?;
                }
                let footer = Footer::of_mut(&mut block);
                footer.set_mark(Footer::FSYNC | Footer::DENTRY, false);
                footer.cp_ver = cp_ver.into();
                footer.next_blkaddr = self.t.next_block(log).into();
                let ino = footer.ino.get();
                sums.seal_inode(&mut block);
                self.t.set_node(*nid, ino, place)?;
                out.insert(place, block);
            }
        }
        Ok(())
    }

    fn flush_nat(
        &mut self,
        journal: &mut Journal,
        cp: &mut crate::disk::Checkpoint,
        out: &mut BTreeMap<u32, Block>,
    ) -> FsResult<()> {
        let mut dirty = std::mem::take(&mut self.t.nat);
        let room = Journal::NAT_MAX.saturating_sub(usize::from(journal.count.get()));
        if dirty.len() > room {
            for e in journal.nats() {
                dirty.entry(e.nid.get()).or_insert(e.entry);
            }
            *journal = Journal::empty();
        }
        let mut sets: BTreeMap<u32, Vec<(u32, NatEntry)>> = BTreeMap::new();
        for (nid, entry) in dirty {
            sets.entry(nid / NatEntry::PER_BLOCK).or_default().push((nid, entry));
        }
        let mut sets: Vec<(u32, Vec<(u32, NatEntry)>)> = sets.into_iter().collect();
        // Small sets first: more of them fit the journal.
        sets.sort_by_key(|(_, set)| set.len());
        for (n, set) in sets {
            if set.len() + usize::from(journal.count.get()) <= Journal::NAT_MAX {
                for (nid, entry) in set {
                    journal.put_nat(NatJournalEntry { nid: nid.into(), entry });
                }
                continue;
            }
            let g = self.t.g;
            let now = g.current_nat_block(n, self.t.image.checkpoint());
            let mut block = self.t.image.read_block(now, "f2fs NAT block")?;
            for (nid, entry) in set {
                if let Some(e) = NatEntry::all_mut(&mut block).get_mut(g.nat_place(nid).1) {
                    *e = entry;
                }
            }
            let to = !bits::test(cp.nat_bitmap(), n);
            bits::set(cp.nat_bitmap_mut(), n, to);
            out.insert(g.nat_block(n, to), block);
        }
        Ok(())
    }

    fn flush_sit(
        &mut self,
        journal: &mut Journal,
        cp: &mut crate::disk::Checkpoint,
        out: &mut BTreeMap<u32, Block>,
    ) -> FsResult<()> {
        let mut dirty: BTreeSet<u32> = self.t.changed_segments.clone();
        let room = Journal::SIT_MAX.saturating_sub(usize::from(journal.count.get()));
        if dirty.len() > room {
            dirty.extend(journal.sits().iter().map(|e| e.segment.get()));
            *journal = Journal::empty();
        }
        let mut sets: BTreeMap<u32, Vec<(u32, SitEntry)>> = BTreeMap::new();
        for segment in dirty {
            let entry = self.t.segment(segment)?.entry;
            sets.entry(self.t.g.sit_place(segment).0).or_default().push((segment, entry));
        }
        let mut sets: Vec<(u32, Vec<(u32, SitEntry)>)> = sets.into_iter().collect();
        sets.sort_by_key(|(_, set)| set.len());
        for (n, set) in sets {
            if set.len() + usize::from(journal.count.get()) <= Journal::SIT_MAX {
                for (segment, entry) in set {
                    journal.put_sit(SitJournalEntry { segment: segment.into(), entry });
                }
                continue;
            }
            let g = self.t.g;
            let now = g.current_sit_block(n, self.t.image.checkpoint());
            let mut block = self.t.image.read_block(now, "f2fs SIT block")?;
            for (segment, entry) in set {
                if let Some(e) = SitEntry::all_mut(&mut block).get_mut(g.sit_place(segment).1) {
                    *e = entry;
                }
            }
            let to = !bits::test(cp.sit_bitmap(), n);
            bits::set(cp.sit_bitmap_mut(), n, to);
            out.insert(g.sit_block(n, to), block);
        }
        Ok(())
    }

    fn write_pack(
        &self,
        dev: &Overlay<'_>,
        mut cp: crate::disk::Checkpoint,
        next_nid: u32,
        seal: &Seal,
    ) -> FsResult<u32> {
        let t = &self.t;
        for log in Log::ALL {
            let (segment, offset) = t.log_head(log);
            cp.set_log(log, segment, offset);
            cp.set_alloc_type(log, t.log(log).alloc);
        }
        let blocks = Compacted::blocks(Compacted::counts(&cp));
        let off = cp_flag::UMOUNT
            | cp_flag::FASTBOOT
            | cp_flag::TRIMMED
            | cp_flag::ORPHAN_PRESENT
            | cp_flag::NOCRC_RECOVERY
            | cp_flag::RESIZEFS;
        cp.set_flag(off, false);
        cp.set_flag(cp_flag::CRC_RECOVERY, true);
        cp.set_flag(cp_flag::COMPACT_SUM, blocks < 3);
        if seal.needs_check {
            cp.set_flag(cp_flag::FSCK, true);
        }
        let payload = cp.payload();
        let h = cp.head_mut();
        h.valid_block_count = t.counts.blocks.into();
        h.valid_node_count = t.counts.nodes.into();
        h.valid_inode_count = t.counts.inodes.into();
        h.free_segment_count = t.free_segments().into();
        h.next_free_nid = next_nid.into();
        h.cp_pack_start_sum = (1 + payload).into();
        h.cp_pack_total_block_count = (2 + payload + blocks).into();
        cp.seal();
        let start = t.g.pack(!t.image.is_second_pack());
        for n in 0..=payload {
            write(dev, start + n, &cp.block(n))?;
        }
        let data = Log::DATA.map(|log| t.log(log).summary.clone());
        let data = data.map(|s| s.unwrap_or(SummaryBlock::empty(false)));
        let sums: Vec<Block> = if blocks < 3 {
            let counts = Compacted::counts(&cp);
            let [hot, _, cold] = &data;
            let mut compacted =
                Compacted { nat: hot.journal, sit: cold.journal, data: Default::default() };
            for ((to, from), n) in compacted.data.iter_mut().zip(&data).zip(counts) {
                to.extend(from.entries.iter().take(n as usize));
            }
            compacted.store()
        } else {
            data.iter().map(SummaryBlock::store).collect()
        };
        for (n, block) in (1 + payload..).zip(&sums) {
            write(dev, start + n, block)?;
        }
        let last = start + 1 + payload + blocks;
        dev.barrier();
        write(dev, last, &cp.block(0))?;
        dev.barrier();
        Ok(last)
    }
}

fn write(dev: &Overlay<'_>, block: u32, bytes: &Block) -> FsResult<()> {
    if block < crate::disk::SuperBlock::COPIES {
        return Err(FsError::Io);
    }
    dev.write_at(Geometry::byte_of(block), bytes)
}
