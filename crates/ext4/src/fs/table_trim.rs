//! Blocks of an inode table whose inodes are all free are discarded: paper `inode-trim`, and a way
//! of doing it that a power cut cannot turn against the file system. No kernel has it.
//!
//! Picture:    bit of an inode -> 0, all others of its table block 0 as well
//!             naive: the discard goes at once, as the paper's text has it.
//!             safe:  noted with the transaction -> that commits -> worker: discard, neighbours in
//!                    one -> the block counts as written home -> its copies in the log are revoked.
//! Invariants: 1. (safe) a block is discarded only while no inode of it was taken since the
//!                transaction that freed the last, and that is durable; while the discard is under
//!                way nobody takes one.
//!             2. (safe) what a transaction logged of a block stays in the log until the discard
//!                is durable. A discard that a power cut undoes would else bring back the table as
//!                it was written home last, inodes in use; the kernel asks bitmaps and would not
//!                see them, e2fsck reads tables and would.
//!             3. (safe) only whole units of the device's discards are sent: it may ignore the
//!                rest, which would stay what it was.
//! Left out:   putting `bg_itable_unused` back. A number in an NFS file handle finds no inode where
//!             it found a deleted one, and `debugfs lsdel` no file that was.
//! Source:     paper `inode-trim` §3; the rules of a freed block in `fs/ext4/mballoc.c`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_medium::Slice;
use wp_rt::{Rt, WaitQueue};

use super::mount::Ext4;
use crate::disk::GroupDesc;
use crate::site;

/// What becomes of table blocks without an inode in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableTrim {
    /// They stay what they are, as in every kernel.
    #[default]
    Off,
    /// Discarded by who frees the last inode, before that is durable: the paper's text as it
    /// stands. Loses files at a power cut.
    Naive,
    /// Discarded once that is durable.
    Safe,
}

impl TableTrim {
    /// From its name in options: nothing, `naive`, `safe`.
    pub fn from_name(name: &str) -> Option<TableTrim> {
        Some(match name {
            "" => TableTrim::Off,
            "naive" => TableTrim::Naive,
            "safe" => TableTrim::Safe,
            _ => return None,
        })
    }
}

/// Revokes of one handle.
const REVOKES: u32 = 64;

/// Blocks of one discard: 32 bits count its sectors.
const MOST: u64 = 1 << 20;

/// Where a block is on its way. FREE -commit-> DUE -worker-> FLYING -> gone, its copies UNREVOKED;
/// a block that fills no unit of the device with others waits in IDLE. Taking an inode of it takes
/// it out of all but FLYING, which is waited for.
pub(super) struct TableTrims {
    /// Without an inode in use, by the transaction that freed the last.
    free: RefCell<BTreeMap<u64, u32>>,
    /// The same, durable.
    due: RefCell<BTreeSet<u64>>,
    /// The same, and too few side by side for the device.
    idle: RefCell<BTreeSet<u64>>,
    flying: RefCell<BTreeSet<u64>>,
    landed: WaitQueue,
    /// Freed by this mount, so that the log may hold copies.
    logged: RefCell<BTreeSet<u64>>,
    /// Discarded, with copies in the log.
    unrevoked: RefCell<BTreeSet<u64>>,
    /// Groups whose tables an `fstrim` has seen to.
    seen: RefCell<BTreeSet<u32>>,
    wake: Rc<WaitQueue>,
    works: Cell<bool>,
    stopped: Cell<bool>,
    ended: WaitQueue,
}

impl TableTrims {
    pub(super) fn new(rt: &Rt) -> TableTrims {
        TableTrims {
            free: RefCell::default(),
            due: RefCell::default(),
            idle: RefCell::default(),
            flying: RefCell::default(),
            landed: WaitQueue::new(rt, "discard of an inode table"),
            logged: RefCell::default(),
            unrevoked: RefCell::default(),
            seen: RefCell::default(),
            wake: Rc::new(WaitQueue::new(rt, "ext4 table trim work")),
            works: Cell::new(false),
            stopped: Cell::new(false),
            ended: WaitQueue::new(rt, "ext4 table trim end"),
        }
    }

    /// An inode of `block` is taken.
    pub(super) fn reused(&self, block: u64) {
        if !site::TABLE_REUSED.on() {
            return;
        }
        self.free.borrow_mut().remove(&block);
        self.due.borrow_mut().remove(&block);
        self.idle.borrow_mut().remove(&block);
        self.unrevoked.borrow_mut().remove(&block);
    }

    /// Waits while `block` is being discarded. `true`: it was, and what the caller knew of the
    /// group may have changed. The discard waits for nothing of the journal's.
    pub(super) async fn hold(&self, block: u64) -> bool {
        let flew = self.flies(block);
        self.landed.wait_until(|| !self.flies(block)).await;
        flew
    }

    /// Does [`TableTrims::hold`] have to wait?
    pub(super) fn flies(&self, block: u64) -> bool {
        self.flying.borrow().contains(&block) && site::TABLE_HOLD.on()
    }

    /// Transaction `tid` is over; `failed`: and its blocks are as they were.
    pub(super) fn committed(&self, tid: u32, failed: bool) {
        let mut due = self.due.borrow_mut();
        self.free.borrow_mut().retain(|block, of| {
            if *of == tid && !failed {
                due.insert(*block);
            }
            *of != tid
        });
        if !due.is_empty() {
            self.wake.wake_all();
        }
    }
}

/// Neighbours of `blocks` as (first, how many), cut to whole units of `unit` blocks, `unit` counted
/// from `shift` blocks before block 0; and what that leaves.
fn whole_units(blocks: &BTreeSet<u64>, unit: u64, shift: u64) -> (Vec<(u64, u64)>, BTreeSet<u64>) {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let mut rest = BTreeSet::new();
    for block in blocks {
        match runs.last_mut() {
            Some((first, n)) if *first + *n == *block && *n < MOST => *n += 1,
            _ => runs.push((*block, 1)),
        }
    }
    let mut whole = Vec::new();
    for (first, n) in runs {
        let start = ((first + shift).next_multiple_of(unit) - shift).min(first + n);
        let end = ((first + n + shift) / unit * unit).saturating_sub(shift).max(start);
        rest.extend(first..start);
        rest.extend(end..first + n);
        if end > start {
            whole.push((start, end - start));
        }
    }
    (whole, rest)
}

impl Ext4 {
    /// Starts the worker.
    ///
    /// Errors: `Unsupported` on a device whose discarded blocks may read as what they were: inodes
    /// in use, to e2fsck.
    pub(super) fn start_table_trims(self: &Rc<Self>) -> FsResult<()> {
        if self.opts.table_trim == TableTrim::Safe {
            if !self.bdev.queue().limits().discard_zeroes {
                let what = "inode_trim=safe: the device does not read zeroes after a discard";
                return Err(FsError::Unsupported(what.into()));
            }
            self.table_trims.works.set(true);
            let (weak, wake) = (Rc::downgrade(self), self.table_trims.wake.clone());
            self.rt.spawn_daemon("ext4tabletrim", run(weak, wake));
        }
        Ok(())
    }

    /// Ends the worker, with all done that was due: what the last transactions freed as well.
    pub(super) async fn stop_table_trims(&self) {
        if !self.table_trims.works.get() {
            return;
        }
        // An aborted journal has told that of each transaction.
        let _aborted = self.journal().force_commit().await;
        self.table_trims.stopped.set(true);
        self.table_trims.wake.wake_all();
        self.table_trims.ended.wait_until(|| !self.table_trims.works.get()).await;
    }

    /// The block of the inode table of `group` that holds its inode `index`.
    pub(super) fn table_block(&self, group: u32, index: u32) -> u64 {
        let per = self.bs().bytes() / u32::from(self.geo.inode_bytes);
        self.inode_tables[group as usize] + u64::from(index / per)
    }

    /// The handle has cleared the bit of the inode `index` of `group` in its bitmap. Nothing is
    /// waited for before the block is noted.
    pub(super) async fn table_bit_cleared(
        &self,
        h: &Handle,
        bitmap: &Buffer,
        (group, index): (u32, u32),
    ) -> FsResult<()> {
        if self.opts.table_trim == TableTrim::Off {
            return Ok(());
        }
        let block = self.table_block(group, index);
        let in_table = (block - self.inode_tables[group as usize]) as u32;
        if !self.table_block_is_free(bitmap, in_table, None) {
            return Ok(());
        }
        if self.opts.table_trim == TableTrim::Naive || !site::TABLE_LATER.on() {
            // An error: the device cannot, or did not, and holds what nobody reads.
            let _done = self.bdev.queue().submit_wait(self.table_discard(block, 1)).await;
            return Ok(());
        }
        self.table_trims.logged.borrow_mut().insert(block);
        self.table_trims.free.borrow_mut().insert(block, h.tid());
        if !site::TABLE_LOGGED.on() {
            // As a freed block of a directory is forgotten.
            let b = self.bdev.read(block).await?;
            h.revoke(block, Some(&b)).await?;
        }
        Ok(())
    }

    fn table_discard(&self, first: u64, blocks: u64) -> Bio {
        // `MOST` sees to that.
        let sectors = blocks as u32 * self.bs().sectors();
        Bio::discard(self.bs().sector_of(first), sectors, Flags::SYNC)
    }

    /// Discards what is due, as far as it makes whole units of the device.
    async fn trim_tables(&self) {
        let trims = &self.table_trims;
        let mut all = std::mem::take(&mut *trims.due.borrow_mut());
        all.append(&mut trims.idle.borrow_mut());
        let per = u64::from(self.bs().sectors());
        let unit = u64::from(self.bdev.queue().limits().discard_granularity_sectors);
        let start = self.bdev.queue().start().0;
        if unit > per && !(start.is_multiple_of(per) && unit.is_multiple_of(per)) {
            // No block ends where a unit does.
            return;
        }
        let unit = unit.div_ceil(per).max(1);
        let (runs, rest) = whole_units(&all, unit, start / per);
        *trims.idle.borrow_mut() = rest;
        let blocks = || runs.iter().flat_map(|(first, n)| *first..*first + *n);
        let whole: BTreeSet<u64> = blocks().collect();
        let kept = match site::TABLE_REUSED.on() {
            true => self.still_in_use(&whole).await,
            false => BTreeSet::new(),
        };
        // Nothing is waited for between that look and this.
        if !kept.is_empty() {
            // What is left makes other units.
            let again = whole.into_iter().filter(|b| !kept.contains(b));
            return trims.due.borrow_mut().extend(again);
        }
        trims.flying.borrow_mut().extend(whole);
        for block in blocks() {
            // A write of it that is under way would fill the page again.
            if let Some(b) = self.bdev.peek(block) {
                b.wait_clear(BufFlag::Writeback).await;
            }
        }
        let is_dirty = |block| self.bdev.peek(block).is_some_and(|b| b.flag(BufFlag::Dirty));
        let dirty: BTreeSet<u64> = blocks().filter(|b| is_dirty(*b)).collect();
        let queue = self.bdev.queue();
        let sent: Vec<_> =
            runs.iter().map(|(first, n)| queue.send(self.table_discard(*first, *n))).collect();
        let mut again = Vec::new();
        for ((first, n), bio) in runs.iter().zip(sent) {
            if bio.wait().await.is_err() {
                // It goes home as ever.
                continue;
            }
            for block in *first..*first + *n {
                let Some(b) = self.bdev.peek(block) else {
                    self.table_gone(block);
                    continue;
                };
                let went = dirty.contains(&block) && !b.flag(BufFlag::Dirty);
                if went || b.flag(BufFlag::Writeback) {
                    again.push(block);
                } else if self.journal().home_is_discarded(&b) {
                    b.set_contents(Slice::zero(b.len()));
                    self.table_gone(block);
                }
            }
        }
        trims.due.borrow_mut().extend(again);
        trims.flying.borrow_mut().clear();
    }

    /// Those of `blocks` that have an inode in use, or are a transaction's that is not over. An
    /// inode that is taken takes its block out of what is due, but not while the bitmaps are read
    /// here.
    async fn still_in_use(&self, blocks: &BTreeSet<u64>) -> BTreeSet<u64> {
        let of_table = |table: u64| blocks.range(table..table + u64::from(self.geo.itable_blocks));
        let mut bitmaps = Vec::new();
        for (group, table) in (0..).zip(&self.inode_tables) {
            if of_table(*table).next().is_some() {
                // An error: nobody can tell.
                bitmaps.push((*table, self.inode_bitmap(group).await.ok()));
            }
        }
        let mut used = BTreeSet::new();
        for (table, bitmap) in &bitmaps {
            let is_free = |block: u64| {
                let n = (block - table) as u32;
                bitmap.as_ref().is_some_and(|b| self.table_block_is_free(b, n, None))
            };
            let owned = |block| self.bdev.peek(block).is_some_and(|b| self.journal().is_owned(&b));
            used.extend(of_table(*table).filter(|b| !is_free(**b) || owned(**b)));
        }
        used
    }

    fn table_gone(&self, block: u64) {
        if self.table_trims.logged.borrow_mut().remove(&block) {
            self.table_trims.unrevoked.borrow_mut().insert(block);
        }
    }

    /// `fstrim` for the inode table of a group: blocks without an inode in use, unless the freeing
    /// of the last is not durable yet, in a table that need not be zeroed any more. Once a mount:
    /// what becomes free later the worker discards. Returns how many blocks.
    ///
    /// Errors: as of reading the bitmap.
    pub(super) async fn fstrim_table(&self, group: u32) -> FsResult<u64> {
        let trims = &self.table_trims;
        if !trims.works.get() || trims.seen.borrow().contains(&group) {
            return Ok(0);
        }
        if self.csum.descriptors() && !self.group_desc(group).has(GroupDesc::INODE_ZEROED) {
            return Ok(0);
        }
        let bitmap = self.inode_bitmap(group).await?;
        let table = self.inode_tables[group as usize];
        let mut found: BTreeSet<u64> = (0..self.geo.itable_blocks)
            .filter(|n| self.table_block_is_free(&bitmap, *n, None))
            .map(|n| table + u64::from(n))
            // What is freed and not durable yet is the worker's to wait for.
            .filter(|block| !trims.free.borrow().contains_key(block))
            .collect();
        trims.seen.borrow_mut().insert(group);
        let count = found.len() as u64;
        trims.due.borrow_mut().append(&mut found);
        trims.wake.wake_all();
        Ok(count)
    }

    /// Waits until the worker has nothing left to discard.
    pub(super) async fn table_trims_done(&self) {
        let trims = &self.table_trims;
        let rests = || trims.due.borrow().is_empty() && trims.flying.borrow().is_empty();
        trims.landed.wait_until(|| rests() || !trims.works.get()).await;
    }

    /// Revokes the copies that the log holds of discarded blocks: else the next recovery fills
    /// their pages again. With the transaction of the revokes the discards are durable, since its
    /// commit flushes the device.
    async fn revoke_tables(&self) -> FsResult<()> {
        while !self.table_trims.unrevoked.borrow().is_empty() {
            let h = self.start_revoking(1, REVOKES).await?;
            // Who took an inode meanwhile has taken its block out.
            let next = || self.table_trims.unrevoked.borrow_mut().pop_first();
            let mut out = Ok(());
            for _ in 0..REVOKES {
                let Some(block) = next() else { break };
                out = out.and(h.revoke(block, None).await);
            }
            self.stop(h, out).await?;
        }
        Ok(())
    }
}

/// The worker's task.
async fn run(weak: Weak<Ext4>, wake: Rc<WaitQueue>) {
    loop {
        let Some(fs) = weak.upgrade() else { return };
        let stopped = fs.table_trims.stopped.get();
        if fs.journal().is_aborted() {
            fs.table_trims.due.borrow_mut().clear();
            fs.table_trims.landed.wake_all();
        }
        if !fs.table_trims.due.borrow().is_empty() {
            fs.trim_tables().await;
            fs.table_trims.landed.wake_all();
            // An unmount leaves an empty log. Without the revokes, pages are filled again: no more.
            if !stopped && fs.revoke_tables().await.is_err() {
                fs.table_trims.unrevoked.borrow_mut().clear();
            }
        } else if stopped {
            fs.table_trims.works.set(false);
            return fs.table_trims.ended.wake_all();
        } else {
            let woken = wake.wait();
            drop(fs);
            woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_units_are_discarded() {
        let blocks: BTreeSet<u64> = (5..19).chain(24..28).chain([40]).collect();
        let (whole, rest) = whole_units(&blocks, 1, 0);
        assert_eq!((whole, rest.len()), (vec![(5, 14), (24, 4), (40, 1)], 0));
        let (whole, rest) = whole_units(&blocks, 4, 0);
        assert_eq!(whole, [(8, 8), (24, 4)]);
        assert_eq!(rest.into_iter().collect::<Vec<_>>(), [5, 6, 7, 16, 17, 18, 40]);
        // The partition begins three blocks behind a unit.
        let (whole, rest) = whole_units(&blocks, 4, 3);
        assert_eq!(whole, [(5, 12)]);
        assert_eq!(rest.into_iter().collect::<Vec<_>>(), [17, 18, 24, 25, 26, 27, 40]);
    }

    #[test]
    fn a_block_is_due_with_the_last_transaction_that_freed_in_it() {
        let trims = TableTrims::new(&Rt::new(1));
        trims.free.borrow_mut().extend([(10, 1), (11, 1), (12, 2), (13, 1)]);
        trims.reused(11);
        trims.free.borrow_mut().insert(13, 2);
        trims.committed(1, false);
        assert_eq!(*trims.due.borrow(), BTreeSet::from([10]));
        trims.reused(10);
        trims.committed(2, true);
        assert!(trims.due.borrow().is_empty() && trims.free.borrow().is_empty());
    }
}
