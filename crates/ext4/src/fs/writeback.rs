//! Writing dirty file data: delayed allocation takes place here.
//!
//! Source: Linux `fs/ext4/inode.c` (`ext4_writepages`, `mpage_map_and_submit_extent`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::{BufFlag, Buffer, Fut, Mapping, WbControl, WbOps};
use wp_jbd2::Handle;
use wp_medium::Slice;
use wp_rt::CpuOp;

use super::data::{BIO_BLOCKS, CREDITS_ALLOCATE, RETRIES};
use super::inode::Inode;
use super::mount::Ext4;

impl Ext4 {
    /// Allocates what `bufs` (consecutive, promised) wait for, as far as one run reaches.
    async fn allocate_delayed(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        bufs: &[Rc<Buffer>],
    ) -> FsResult<()> {
        let first = bufs[0].block();
        let map = inode.map_lock.lock().await;
        // A truncate may have taken them back while we waited; from here on it waits for the map,
        // and cuts what we allocate.
        let still = |b: &&Rc<Buffer>| {
            b.flag(BufFlag::Delay)
                && inode.map.peek(b.block()).is_some_and(|now| Rc::ptr_eq(&now, b))
        };
        let bufs = &bufs[..bufs.iter().take_while(still).count()];
        if bufs.is_empty() {
            return Ok(());
        }
        let run = self.allocate(h, inode, first, bufs.len() as u32, true).await?;
        for (i, b) in bufs.iter().take(run.len as usize).enumerate() {
            b.map_to(run.phys + i as u64);
            // If not, a truncate took the promise back meanwhile.
            if b.clear(BufFlag::Delay) {
                self.unreserve(inode, 1);
            }
        }
        drop(map);
        let era = &self.opts.era;
        if era.files_allocating_writeback || era.files_in_map_blocks {
            self.file_inode(h, inode)?;
        }
        let reach = (first + u64::from(run.len)) * u64::from(self.bs().bytes());
        let disksize = reach.min(inode.size.get());
        if disksize > inode.disksize.get() {
            inode.disksize.set(disksize);
            self.write_inode(h, inode).await?;
        }
        Ok(())
    }

    /// Sends a run of consecutive blocks with consecutive places.
    fn submit_run(&self, inode: &Rc<Inode>, run: &[Rc<Buffer>], sync: bool) {
        self.data_unflushed.set(true);
        for part in run.chunks(BIO_BLOCKS) {
            for b in part {
                b.clear(BufFlag::New);
                inode.map.begin_writeback(b);
            }
            let segs: Vec<Slice> = part.iter().map(|b| b.snapshot()).collect();
            let at = self.bs().sector_of(part[0].phys());
            let (map, bufs) = (inode.map.clone(), part.to_vec());
            let bio = Bio::write(at, segs, if sync { Flags::SYNC } else { Flags::NONE });
            self.bdev.queue().submit(bio.on_end(move |end| {
                for b in &bufs {
                    map.end_writeback(b, end.status.is_err());
                }
            }));
        }
    }

    /// Consecutive dirty blocks from `index` on that can be written together: all promised, or all
    /// placed one after another.
    fn dirty_run(&self, inode: &Inode, index: u64, last: u64, budget: u64) -> Vec<Rc<Buffer>> {
        let mut run: Vec<Rc<Buffer>> = Vec::new();
        for i in index..=last {
            let Some(b) = inode.map.peek(i) else { break };
            if !b.flag(BufFlag::Dirty) || b.flag(BufFlag::Writeback) || run.len() as u64 >= budget {
                break;
            }
            if let Some(prev) = run.last() {
                let placed = b.flag(BufFlag::Mapped);
                if placed != prev.flag(BufFlag::Mapped) || (placed && b.phys() != prev.phys() + 1) {
                    break;
                }
            }
            run.push(b);
        }
        run
    }

    async fn writepages_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        wbc: &WbControl,
        from: u64,
        to: u64,
    ) -> FsResult<()> {
        let mut next = from;
        let mut handle_seen = false;
        let mut tries = 0;
        while wbc.budget.get() > 0 {
            let Some(index) = inode.map.tagged(next, to, 1).first().copied() else { break };
            next = index + 1;
            let Some(b) = inode.map.peek(index) else {
                inode.map.drop_tag(index);
                continue;
            };
            if !b.flag(BufFlag::Dirty) {
                inode.map.drop_tag(index);
                continue;
            }
            if b.flag(BufFlag::Writeback) {
                if !wbc.sync {
                    continue;
                }
                b.wait_clear(BufFlag::Writeback).await;
            }
            let mut run = self.dirty_run(inode, index, to, wbc.budget.get());
            if run.is_empty() {
                continue;
            }
            let placed = run[0].flag(BufFlag::Mapped);
            if !placed && wbc.mapped_only {
                next = index + run.len() as u64;
                continue;
            }
            if !placed
                || (self.opts.era.writeback_starts_handle && !wbc.mapped_only && !handle_seen)
            {
                handle_seen = true;
                let h = self.start(CREDITS_ALLOCATE).await?;
                // A block of the run may have gone or been written while the handle was waited for.
                run = self.dirty_run(inode, index, to, wbc.budget.get());
                let promised = run.first().is_some_and(|b| b.flag(BufFlag::Delay));
                let out =
                    if promised { self.allocate_delayed(&h, inode, &run).await } else { Ok(()) };
                run = self.dirty_run(inode, index, to, wbc.budget.get());
                run.retain(|b| b.flag(BufFlag::Mapped));
                if out.is_ok() && !run.is_empty() {
                    self.submit_run(inode, &run, wbc.sync);
                }
                let done = run.len() as u64;
                next = index + done.max(1);
                wbc.budget.set(wbc.budget.get().saturating_sub(done));
                match self.stop(h, out).await {
                    // What is free may be free only after a commit (`ext4_writepages`).
                    Err(FsError::NoSpace) if tries < RETRIES && self.commit_for_space().await? => {
                        tries += 1;
                        next = index;
                    }
                    other => other?,
                }
            } else {
                self.submit_run(inode, &run, wbc.sync);
                next = index + run.len() as u64;
                wbc.budget.set(wbc.budget.get().saturating_sub(run.len() as u64));
            }
            self.rt.cpu(CpuOp::BioSubmit, run.len().div_ceil(BIO_BLOCKS) as u64).await;
            self.rt.cpu(CpuOp::PageWriteback, run.len() as u64).await;
            inode.map.set_next_index(next);
        }
        Ok(())
    }
}

impl WbOps for Inode {
    fn writepages<'a>(&'a self, map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            let Some(fs) = self.fs.upgrade() else { return Ok(()) };
            // The inode as a shared pointer: it is in the table as long as it has dirty blocks.
            let Some(me) = fs.inodes.borrow().get(&self.ino).cloned() else { return Ok(()) };
            if !Rc::ptr_eq(&me.map, map) {
                // Its number is another's by now: what it held was dropped when it was freed.
                return Ok(());
            }
            let plug = fs.bdev.queue().plug();
            let start = if wbc.cyclic { me.map.next_index() } else { wbc.range.0 };
            fs.writepages_range(&me, wbc, start, wbc.range.1).await?;
            if wbc.cyclic && start > 0 {
                fs.writepages_range(&me, wbc, 0, start - 1).await?;
            }
            drop(plug);
            Ok(())
        })
    }
}
