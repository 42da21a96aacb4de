//! Writing dirty file data: delayed allocation takes place here.
//!
//! Source: Linux `fs/ext4/inode.c` (`ext4_writepages`, `mpage_map_and_submit_extent`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::{BufFlag, Buffer, Fut, Mapping, WbControl, WbOps};
use wp_jbd2::{Credits, Handle, Ordered, Reserved};
use wp_medium::{PAGE_BYTES, Slice};
use wp_rt::{CpuOp, soon};

use super::convert::IoEnd;
use super::data::{CREDITS_ALLOCATE, RETRIES};
use super::inode::{Inode, Put};
use super::mount::Ext4;
use crate::site;

/// Blocks that one handle of writeback gives places to at most (`MAX_WRITEPAGES_EXTENT_LEN`).
const EXTENT_MOST: usize = 2048;

/// What is known of where a dirty block goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing: space is promised.
    Promised,
    /// Its place, in an unwritten extent.
    Unwritten,
    /// Its place.
    Known,
}

impl Place {
    /// Is such a block sent without a handle? With `buffered_iomap` an unwritten one, too.
    fn is_sent_alone(self, inode: &Inode) -> bool {
        self == Place::Known || (self == Place::Unwritten && inode.iomap.get())
    }

    fn of(b: &Rc<Buffer>) -> Place {
        match (b.flag(BufFlag::Mapped), b.flag(BufFlag::Unwritten)) {
            (false, _) => Place::Promised,
            (true, true) => Place::Unwritten,
            (true, false) => Place::Known,
        }
    }
}

/// Can `b`, the block after `prev`, be written together with it?
fn follows(prev: &Rc<Buffer>, b: &Rc<Buffer>) -> bool {
    let place = Place::of(b);
    place == Place::of(prev) && (place == Place::Promised || b.phys() == prev.phys() + 1)
}

/// Flags of a run's bio; `last`: of its last one.
fn data_flags(wbc: &WbControl, last: bool) -> Flags {
    let mut flags = if wbc.sync { Flags::SYNC } else { Flags::NONE };
    if wbc.ordered && site::DATA_ORDER.on() {
        flags |= Flags::ORDERED;
        if last {
            flags |= Flags::BARRIER;
        }
    }
    flags
}

impl Ext4 {
    /// Sends a file's data if some of it has no place yet: whoever replaces a file by a rename, or
    /// by cutting it and writing it anew, rarely calls fsync (`ext4_alloc_da_blocks`, mount option
    /// `auto_da_alloc`, on by default since 2.6.30). Errors are left to the next fsync.
    ///
    /// Waits: for what allocating needs, not for the data.
    pub(super) async fn allocate_promised(self: &Rc<Self>, inode: &Rc<Inode>) {
        if inode.reserved.get() == 0 || !self.opts.auto_da_alloc {
            return;
        }
        let wbc = WbControl { sync: false, ..WbControl::sync_all() };
        // What found no place stays dirty; what failed on its way is remembered by the mapping.
        drop(inode.map.writepages(&wbc).await);
    }

    /// Gives places to `bufs`, consecutive blocks that are all promised or all lie in unwritten
    /// extents, as far as one run reaches. `true`: they are unwritten, and must be converted when
    /// their data has arrived; and where the run ends.
    async fn map_dirty(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        bufs: &[Rc<Buffer>],
    ) -> FsResult<(bool, u64)> {
        let first = bufs[0].block();
        let map = inode.map_lock.lock().await;
        let state = Place::of(&bufs[0]);
        // A truncate may have taken them back while we waited; from here on it waits for the map,
        // and cuts what we allocate.
        let still = |b: &&Rc<Buffer>| {
            Place::of(b) == state
                && inode.map.peek(b.block()).is_some_and(|now| Rc::ptr_eq(&now, b))
        };
        let bufs = &bufs[..bufs.iter().take(EXTENT_MOST).take_while(still).count()];
        if bufs.is_empty() || state == Place::Known {
            return Ok((false, first));
        }
        let convert = self.writes_unwritten(inode);
        let to = if state == Place::Promised {
            let fill = self.fill_of(inode, convert);
            // Mostly the size follows.
            inode.put.set(Put::Later);
            let run = self.allocate_as(h, inode, first, bufs.len() as u32, true, fill).await;
            if run.is_err() {
                self.put_owed(h, inode)?;
            }
            let run = run?;
            // dquot_claim_block()
            self.count_again(h, inode, 1);
            for (i, b) in bufs.iter().take(run.len as usize).enumerate() {
                b.map_to(run.phys + i as u64);
                // If not, a truncate took the promise back meanwhile.
                self.undelay(inode, b);
            }
            // Nobody is left to use what was set aside (`ext4_da_update_reserve_space`).
            if inode.reserved.get() == 0 && inode.writers.get() == 0 {
                self.discard_prealloc(inode);
            }
            first + u64::from(run.len)
        } else {
            Box::pin(self.map_unwritten(h, inode, bufs, convert)).await?
        };
        drop(map);
        if !convert && self.files_delayed(inode) && site::FILE_WRITTEN.on() {
            let filed = self.file_written(h, inode, first, to);
            if filed.is_err() {
                self.put_owed(h, inode)?;
            }
            filed?;
        }
        if inode.iomap.get() && site::IOMAP_SIZE.on() {
            self.put_owed(h, inode)?;
            return Ok((convert, to));
        }
        let end = if site::DISKSIZE_LATER.on() { to } else { u64::MAX / PAGE_BYTES as u64 };
        let disksize = (end * u64::from(self.bs().bytes())).min(inode.size.get());
        if disksize > inode.disksize.get() {
            inode.disksize.set(disksize);
            inode.put.set(Put::AtOnce);
            soon!(self.write_inode(h, inode))?;
        } else {
            self.put_owed(h, inode)?;
        }
        Ok((convert, to))
    }

    /// The part of [`Ext4::map_dirty`] for blocks of unwritten extents: splits off what is written,
    /// and converts it at once if it will not be later. Returns where that ends.
    async fn map_unwritten(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        bufs: &[Rc<Buffer>],
        convert: bool,
    ) -> FsResult<u64> {
        let first = bufs[0].block();
        let last = first + bufs.len() as u64;
        let to = match soon!(self.lookup(inode, first))? {
            Ok(run) if run.unwritten => last.min(first + u64::from(run.len)),
            Ok(run) => {
                // Written since by another way; nothing is left to do for it.
                let to = last.min(first + u64::from(run.len));
                bufs.iter().take_while(|b| b.block() < to).for_each(|b| {
                    b.clear(BufFlag::Unwritten);
                });
                return Ok(to);
            }
            Err(_) => {
                return Err(FsError::corrupt(
                    "ext4 extent tree",
                    "ee_block",
                    0,
                    first,
                    "the extent that the cached block was found in",
                ));
            }
        };
        if convert && site::MAP_UNWRITTEN.on() {
            self.split_at(h, inode, first).await?;
            self.split_at(h, inode, to).await?;
        } else {
            self.initialise(h, inode, first, to).await?;
            if site::MAP_TID.on() {
                inode.datasync_tid.set(h.tid());
            }
        }
        soon!(self.write_inode(h, inode))?;
        bufs.iter().take_while(|b| b.block() < to).for_each(|b| {
            b.clear(BufFlag::Unwritten);
        });
        Ok(to)
    }

    /// Puts the inode on the ordered list for data that writeback is about to submit.
    fn file_written(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> FsResult<()> {
        let wait_only = self.opts.era.delalloc_data_waits_only();
        let how = if wait_only { Ordered::Wait } else { Ordered::WriteAndWait };
        h.file_inode_range(&self.jinode(inode), how, self.pages_of(from, to))
    }

    /// Sends a run of consecutive blocks with consecutive places. With `convert`, the credits for
    /// the conversion of their unwritten extent.
    pub(super) fn submit_run(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        run: &[Rc<Buffer>],
        wbc: &WbControl,
        convert: Option<Option<Reserved>>,
    ) {
        let most = self.bio_blocks();
        // A bio has whole pages, but for a run that begins within one.
        let lead = run[0].block() as usize % self.page_blocks();
        let bios = (lead + run.len()).div_ceil(most);
        let (head, tail) = run.split_at(run.len().min(most - lead));
        let mut left = bios;
        let io = match inode.iomap.get() {
            true => self.iomap_end(inode, run, convert.is_some(), bios),
            false => convert.map(|reserved| IoEnd::new(inode, run, reserved, bios)),
        };
        for part in std::iter::once(head).chain(tail.chunks(most)) {
            for b in part {
                b.clear(BufFlag::New);
                inode.map.begin_writeback(b);
            }
            let segs: Vec<Slice> = part.iter().map(|b| b.snapshot()).collect();
            let at = self.bs().sector_of(part[0].phys());
            left -= 1;
            let bio = Bio::write(at, segs, data_flags(wbc, left == 0));
            let bio = if self.opts.dual.is_some() {
                inode.map.will_dispatch();
                let (map, plain) = (inode.map.clone(), !wbc.ordered);
                if wbc.ordered && left == 0 {
                    map.set_unordered(false);
                }
                bio.on_dispatch(move || {
                    map.set_unordered(map.is_unordered() || plain);
                    map.dispatched();
                })
            } else {
                bio
            };
            let bio = match &io {
                Some(io) => {
                    let (fs, io) = (Rc::downgrade(self), io.clone());
                    bio.on_end(move |end| {
                        if let Some(fs) = fs.upgrade() {
                            fs.bio_done(&io, &end);
                        }
                    })
                }
                None => {
                    let (map, first, more) =
                        (inode.map.clone(), part[0].clone(), part[1..].to_vec());
                    bio.on_end(move |end| {
                        for b in std::iter::once(&first).chain(&more) {
                            map.end_writeback(b, end.status.is_err());
                        }
                    })
                }
            };
            self.bdev.queue().submit(bio);
        }
    }

    /// Consecutive dirty blocks from `index` on that can be written together: all promised, all in
    /// unwritten extents, or all placed one after another.
    pub(super) fn dirty_run(
        &self,
        inode: &Inode,
        index: u64,
        last: u64,
        budget: u64,
    ) -> Vec<Rc<Buffer>> {
        // What is dirty has its tag, and tags are cheaper to look at than blocks.
        let tagged = inode.map.tagged_run(index, last, budget);
        let mut run: Vec<Rc<Buffer>> = Vec::with_capacity(tagged as usize);
        for i in index..index + tagged {
            let Some(b) = inode.map.peek(i) else { break };
            if !b.flag(BufFlag::Dirty)
                || b.flag(BufFlag::Writeback)
                || run.last().is_some_and(|prev| !follows(prev, &b))
            {
                break;
            }
            run.push(b);
        }
        run
    }

    /// Is it still the file's block there, dirty, and not being written?
    fn is_writable(&self, inode: &Inode, b: &Rc<Buffer>) -> bool {
        b.flag(BufFlag::Dirty)
            && !b.flag(BufFlag::Writeback)
            && inode.map.peek(b.block()).is_some_and(|now| Rc::ptr_eq(&now, b))
    }

    /// First block of the page that the file ends in, if that page has blocks behind the end.
    ///
    /// The kernel's pass without a handle ends at such a block as at one that needs a place, and
    /// the page is written by the pass that starts a handle (`mpage_process_page_bufs`): if none
    /// was running, a transaction is from then on.
    fn cut_page(&self, inode: &Inode) -> Option<u64> {
        let block = u64::from(self.bs().bytes());
        let (blocks, in_page) = (inode.size.get().div_ceil(block), PAGE_BYTES as u64 / block);
        let behind = blocks % in_page;
        (behind > 0 && !inode.iomap.get()).then(|| blocks - behind)
    }

    pub(super) async fn writepages_range(
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
            let Some(index) = inode.map.first_tagged(next, to) else { break };
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
                if site::WRITE_AGAIN.on() {
                    b.wait_clear(BufFlag::Writeback).await;
                }
            }
            if !self.is_writable(inode, &b) {
                continue;
            }
            let placed = Place::of(&b).is_sent_alone(inode);
            let cut = if wbc.mapped_only || handle_seen { None } else { self.cut_page(inode) };
            let is_cut = cut.is_some_and(|first| index >= first);
            // What lies before that page goes without a handle.
            let to = match cut {
                Some(first) if placed && !is_cut => to.min(first - 1),
                _ => to,
            };
            if !placed && wbc.mapped_only {
                next = index + self.dirty_run(inode, index, to, wbc.budget.get()).len() as u64;
                continue;
            }
            let starts_handle = !placed
                || is_cut
                || (self.opts.era.writeback_starts_handle() && !wbc.mapped_only && !handle_seen);
            let done = if starts_handle {
                handle_seen = true;
                let converts = self.writes_unwritten(inode) && !inode.iomap.get();
                let reserve = if converts { self.credits_one_extent(inode) } else { 0 };
                let h = soon!(self.start_with(Credits {
                    blocks: CREDITS_ALLOCATE,
                    revokes: 0,
                    reserve
                }))?;
                // A block may have gone or been written while the handle was waited for.
                let mut run = self.dirty_run(inode, index, to, wbc.budget.get());
                let first = run.first().map(Place::of);
                let mapped = match first {
                    None | Some(Place::Known) => Ok((false, u64::MAX)),
                    Some(_) => {
                        // Boxed: see `Ext4::write_direct`; overwrites come without it.
                        let mapped = Box::pin(self.map_dirty(&h, inode, &run)).await;
                        // The same may have happened since, and a run may have come in pieces.
                        let goes_on = |i: usize| {
                            self.is_writable(inode, &run[i])
                                && (i == 0 || follows(&run[i - 1], &run[i]))
                        };
                        run.truncate((0..run.len()).take_while(|i| goes_on(*i)).count());
                        mapped
                    }
                };
                run.retain(|b| Place::of(b) == Place::Known);
                if let Ok((_, end)) = mapped {
                    run.retain(|b| b.block() < end);
                }
                if let Ok((convert, _)) = mapped
                    && !run.is_empty()
                {
                    let reserved = convert.then(|| h.take_reserved());
                    self.submit_run(inode, &run, wbc, reserved);
                }
                let done = run.len() as u64;
                let out = mapped.map(|_| ());
                next = index + done.max(1);
                wbc.budget.set(wbc.budget.get().saturating_sub(done));
                match soon!(self.stop(h, out)) {
                    // What is free may be free only after a commit (`ext4_writepages`).
                    Err(FsError::NoSpace)
                        if tries < RETRIES && Box::pin(self.commit_for_space()).await? =>
                    {
                        tries += 1;
                        next = index;
                    }
                    other => other?,
                }
                done
            } else {
                let run = self.dirty_run(inode, index, to, wbc.budget.get());
                self.submit_placed(inode, &run, wbc);
                next = index + run.len() as u64;
                wbc.budget.set(wbc.budget.get().saturating_sub(run.len() as u64));
                run.len() as u64
            };
            self.rt.cpu(CpuOp::BioSubmit, done.div_ceil(self.bio_blocks() as u64)).await;
            self.rt.cpu(CpuOp::PageWriteback, done).await;
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
            let Some(me) = fs.inodes.borrow().get(u64::from(self.ino)).cloned() else {
                return Ok(());
            };
            if fs.is_stopped() {
                return Err(FsError::ReadOnly);
            }
            if !Rc::ptr_eq(&me.map, map) {
                // Its number is another's by now: what it held was dropped when it was freed.
                return Ok(());
            }
            if me.iomap.get() && me.grow.get().is_some() && site::IOMAP_WRITEBACK.on() {
                Box::pin(fs.finish_growth(&me)).await?;
            }
            let plug = fs.bdev.queue().plug();
            if fs.journals_data(&me) {
                return Box::pin(fs.write_journalled(&me, wbc)).await;
            }
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
