//! Buffered writes as the patches for iomap have them (`buffered_iomap`): no ordered data, lengths
//! that move when data has arrived.
//!
//! Picture:    write() -> i_size only. writeback: allocate unwritten, no handle kept for later ->
//!             bios -> last completion -> the worker: one handle converts and moves `i_disksize`.
//!             Growth over an unaligned end: zero the rest of the block, and keep `i_disksize` back
//!             until that block has arrived ([`Inode::grow`], `DISKSIZE_GROW_PENDING`).
//! Invariants: 1. no commit waits for data of such a file: it is on no journal's list.
//!             2. while [`Inode::grow`] is set nobody moves `i_disksize` up.
//!             3. a block's writeback ends after its extent was converted and the length moved: who
//!                waits for the one has the other.
//! Source:     "ext4: use iomap for regular file's buffered I/O path", v2 to v7 (2026, not in a
//!             release): text of v2's patch 13 and v4's patches 14, 17 and 23, titles of v7. What
//!             they leave open is in `docs/techniques/buffered-iomap.md`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer, WbControl};
use wp_jbd2::Handle;
use wp_vfs::Version;

use super::convert::IoEnd;
use super::data::CREDITS_ALLOCATE;
use super::extents::{Fill, Run};
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;
use crate::site;

/// How regular files are written through the cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IomapOptions {
    /// `buffered_iomap`.
    pub on: bool,
    /// A cut keeps the length back as a growth does, until its zeroed block has arrived: fixes N60.
    pub tail: bool,
    /// When a zeroed block has arrived the length moves over what has arrived: fixes N61.
    pub length: bool,
    /// The length moves over data whose write failed, too: fixes N62.
    pub errors: bool,
}

impl IomapOptions {
    /// Takes names of fixes with + in between, or `all`. `None`: one that there is not.
    #[must_use]
    pub fn fixed(self, names: &str) -> Option<IomapOptions> {
        names.split('+').filter(|n| !n.is_empty()).try_fold(self, |o, name| match name {
            "tail" => Some(IomapOptions { tail: true, ..o }),
            "length" => Some(IomapOptions { length: true, ..o }),
            "errors" => Some(IomapOptions { errors: true, ..o }),
            "all" => Some(IomapOptions { tail: true, length: true, errors: true, ..o }),
            _ => None,
        })
    }

    /// Is anything fixed of what is not on?
    pub fn is_wrong(self) -> bool {
        !self.on && (self.tail || self.length || self.errors)
    }

    /// What a mount is given: on and off, the era, names of fixes. Errors: `Invalid` for both of
    /// two opposites, for a fix that there is not, and in an era that is a release.
    pub fn of([on, off]: [bool; 2], era: &str, fixes: &str) -> FsResult<IomapOptions> {
        if on && off {
            return Err(FsError::Invalid("buffered_iomap or nobuffered_iomap, not both"));
        }
        if on && era != Version::NEXT {
            return Err(FsError::Invalid("buffered_iomap: no release has it; add era=next"));
        }
        let plain = IomapOptions { on, ..IomapOptions::default() };
        plain.fixed(fixes).ok_or(FsError::Invalid("iomap_fix: tail, length, errors, or all"))
    }
}

impl Ext4 {
    /// Does this file take the path (`ext4_enable_buffered_iomap`)? Decided when the inode comes to
    /// memory.
    pub(super) fn takes_iomap(&self, inode: &Inode) -> bool {
        const OTHERS: u32 = flag::INLINE_DATA | flag::VERITY | flag::ENCRYPT;
        let disk = inode.disk.borrow();
        let fits = disk.is_file() && disk.has(flag::EXTENTS) && disk.flags.get() & OTHERS == 0;
        drop(disk);
        self.opts.literature.iomap.on && fits && !self.journals_data(inode)
    }

    /// Gives a block of such a file a place at once, where nothing is delayed and the map says
    /// `found`: an unwritten one. `None`: it has a written one, or the file is none of them; else,
    /// was it allocated now? The caller holds `map_lock`.
    ///
    /// Waits: for the journal, for bitmaps. Errors: `NoSpace`.
    pub(super) async fn place_iomap(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
        found: &Result<Run, u64>,
    ) -> Option<FsResult<bool>> {
        match found {
            _ if !inode.iomap.get() => None,
            Ok(run) if !run.unwritten => None,
            Ok(_) => Some(self.promise(inode, b, *found, false).map(|()| false)),
            Err(_) => Some(self.place_unwritten(h, inode, b).await.map(|()| true)),
        }
    }

    async fn place_unwritten(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
    ) -> FsResult<()> {
        let run = self.allocate_as(h, inode, b.block(), 1, true, Fill::Unwritten).await?;
        self.undelay(inode, b);
        b.map_to(run.phys);
        b.set(BufFlag::New);
        b.set(BufFlag::Unwritten);
        Ok(())
    }

    /// What writeback allocates; `convert`: unwritten, until the data has arrived.
    pub(super) fn fill_of(&self, inode: &Inode, convert: bool) -> Fill {
        match convert && site::UNWRITTEN.on() {
            true if inode.iomap.get() => Fill::Unwritten,
            true => Fill::BeforeIo,
            false => Fill::Written,
        }
    }

    /// Sends a run whose blocks have their places; what is unwritten of such a file is split off by
    /// whoever ends its writeback.
    pub(super) fn submit_placed(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        run: &[Rc<Buffer>],
        wbc: &WbControl,
    ) {
        let unwritten = run.iter().filter(|b| b.clear(BufFlag::Unwritten)).count() > 0;
        self.submit_run(inode, run, wbc, unwritten.then_some(None));
    }

    /// Does a direct write that grows a file put it on the ordered list?
    pub(super) fn files_direct(&self, inode: &Inode) -> bool {
        self.opts.era.files_in_map_blocks() && !inode.iomap.get() && site::DIRECT_FILE.on()
    }

    /// The first handle of a direct write that grows a file.
    ///
    /// Waits: for the block of a growth under way, for the journal.
    pub(super) async fn start_growth(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<Handle> {
        self.settle_growth(inode, None).await?;
        self.start(8).await
    }

    /// What is left to do when the bios of `run` are complete, if anything is: to convert, to move
    /// the length, or to end a growth (`ext4_iomap_writeback_submit`).
    pub(super) fn iomap_end(
        &self,
        inode: &Rc<Inode>,
        run: &[Rc<Buffer>],
        unwritten: bool,
        bios: usize,
    ) -> Option<Rc<IoEnd>> {
        let bs = u64::from(self.bs().bytes());
        let (first, last) = (run[0].block(), run[0].block() + run.len() as u64);
        // Bytes behind the end are no data of the file ("iomap: fix zero padding data issue in
        // concurrent append writes").
        let end = (last * bs).min(inode.size.get());
        let grows = inode.grow.get().is_some_and(|b| (first..last).contains(&b));
        let wanted = unwritten || grows || end > inode.disksize.get() || self.opts.data_err_abort;
        wanted.then(|| IoEnd::of_iomap(inode, run, (unwritten, end), bios))
    }

    /// The end of such writeback, in the worker (`ext4_iomap_finish_ioend`).
    pub(super) async fn finish_iomap(self: &Rc<Self>, io: &IoEnd, (unwritten, end): (bool, u64)) {
        let failed = io.has_failed();
        let late = site::CONVERT_FIRST.on();
        if !late {
            io.end_writeback(failed);
        }
        let done = match failed {
            true => self.failed_iomap(io, end).await,
            false => self.move_length(io, unwritten, end).await,
        };
        if done.is_err() && unwritten {
            // Whoever writes the block again finds its extent as it is.
            io.mark_unwritten();
        }
        if late {
            io.end_writeback(done.is_err());
        }
    }

    /// The data did not arrive: the length stays where it was, and nothing waits for the block any
    /// more. Whoever syncs is told once; a sync after that answers 0, and the length is in no
    /// commit (N62). Errors: always.
    async fn failed_iomap(self: &Rc<Self>, io: &IoEnd, end: u64) -> FsResult<()> {
        if self.opts.data_err_abort {
            self.journal().abort(FsError::Io);
        }
        if self.opts.literature.iomap.errors {
            // As buffer heads have it: what did not arrive reads as it stands on the drive.
            self.move_length(io, false, end).await?;
        } else if io.inode().grow.get().is_some_and(|b| io.has(b)) {
            io.inode().grow.set(None);
        }
        Err(FsError::Io)
    }

    /// Converts what was written, and moves the length on disk over it.
    async fn move_length(self: &Rc<Self>, io: &IoEnd, unwritten: bool, end: u64) -> FsResult<()> {
        let inode = io.inode();
        let grows = inode.grow.get().is_some_and(|b| io.has(b));
        if !(unwritten || grows || end > inode.disksize.get()) {
            return Ok(());
        }
        let h = self.start(CREDITS_ALLOCATE).await?;
        let map = inode.map_lock.lock().await;
        let out = async {
            if unwritten && site::CONVERT.on() {
                let (first, to) = io.blocks();
                self.set_state(&h, inode, first, to, false).await?;
            }
            let length = self.arrived_length(io, end);
            if let Some(length) = length {
                inode.disksize.set(length);
            }
            if unwritten || length.is_some() {
                self.write_inode(&h, inode).await?;
            }
            Ok(())
        }
        .await;
        if unwritten && site::CONVERT_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        drop(map);
        self.stop(h, out).await
    }

    /// Where the length on disk goes now that `io`, data up to byte `end`, has arrived.
    fn arrived_length(&self, io: &IoEnd, end: u64) -> Option<u64> {
        let inode = io.inode();
        let size = inode.size.get();
        let to = match inode.grow.get() {
            Some(block) if io.has(block) => {
                inode.grow.set(None);
                match self.opts.literature.iomap.length {
                    true => end.max(inode.grow_to.get()).min(size),
                    false => size,
                }
            }
            Some(_) if site::IOMAP_DEFER.on() => {
                inode.grow_to.set(inode.grow_to.get().max(end.min(size)));
                return None;
            }
            _ => end.min(size),
        };
        (to > inode.disksize.get()).then_some(to)
    }

    /// A call gives the file this length, on disk too, if that need not wait for a block that was
    /// zeroed.
    pub(super) fn set_length(&self, inode: &Inode, size: u64) {
        if inode.grow.get().is_some() && site::IOMAP_DEFER.on() {
            inode.grow_to.set(inode.grow_to.get().max(size));
        } else {
            inode.disksize.set(size);
        }
    }

    /// From here on the length on disk waits for a block.
    fn wait_for(&self, inode: &Inode, block: u64) {
        if inode.grow.replace(Some(block)).is_none() {
            inode.grow_to.set(inode.disksize.get());
        }
    }

    /// Before the file grows from `old` to `to`: the rest of the block that it ends in becomes
    /// zeroes, up to `to`, and the length on disk waits for that block (`ext4_block_zero_eof`). The
    /// caller has no handle.
    ///
    /// Waits: for an earlier growth over another block; to read the block.
    pub(super) async fn grow_over(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        old: u64,
        to: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        let block = old / bs;
        if old.is_multiple_of(bs) || old >= to || !site::EXTEND_ZERO.on() {
            return Ok(());
        }
        if inode.grow.get().is_some_and(|b| b != block) {
            self.finish_growth(inode).await?;
        }
        let end = bs.min(to - block * bs);
        let zeroed = self.zero_part(inode, block, old % bs, end).await?;
        if zeroed && site::IOMAP_GROW.on() {
            self.wait_for(inode, block);
        }
        Ok(())
    }

    /// The same of a cut to `size`, which has zeroed the rest of its last block: in no patch.
    pub(super) fn cut_over(&self, inode: &Inode, size: u64, zeroed: bool) {
        if zeroed && inode.iomap.get() && self.opts.literature.iomap.tail && site::IOMAP_GROW.on() {
            self.wait_for(inode, size / u64::from(self.bs().bytes()));
        }
    }

    /// Sends the block that a growth waits for. Waits: for an earlier write of it, and what giving
    /// it a place needs; not for the block. The caller has no handle.
    pub(super) async fn send_growth(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let Some(block) = inode.grow.get() else { return Ok(()) };
        let (first, last) = self.pages_of(block, block + 1);
        let wbc = WbControl { range: (first, last), ..WbControl::sync_all() };
        self.writepages_range(inode, &wbc, first, last).await
    }

    /// Sends the block that a growth waits for, and waits for it: the length on disk is then that
    /// in memory. The caller has no handle.
    pub(super) async fn finish_growth(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        while let Some(block) = inode.grow.get() {
            self.send_growth(inode).await?;
            match inode.map.peek(block).filter(|b| b.flag(BufFlag::Writeback)) {
                Some(b) => b.wait_clear(BufFlag::Writeback).await,
                // It arrived or failed meanwhile, or was taken out of the file.
                None if inode.grow.get() == Some(block) => inode.grow.set(None),
                None => {}
            }
        }
        Ok(())
    }

    /// Before a cut to `size` sets the length on disk: that must not pass what a growth still waits
    /// for, and afterwards nothing is left to wait for. The caller has no handle.
    pub(super) async fn end_growth_for_cut(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        size: u64,
    ) -> FsResult<()> {
        if size > inode.disksize.get() && site::IOMAP_CUT.on() {
            self.finish_growth(inode).await?;
        }
        inode.grow.set(None);
        Ok(())
    }

    /// Before `fallocate` changes anything, or a direct write grows the file: the growth under way
    /// ends first, and where the file itself grows from here on (`to`) that one too.
    pub(super) async fn settle_growth(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        to: Option<u64>,
    ) -> FsResult<()> {
        if !inode.iomap.get() {
            return Ok(());
        }
        if let Some(to) = to {
            self.grow_over(inode, inode.size.get(), to).await?;
        }
        match site::IOMAP_FALLOCATE.on() {
            true => self.finish_growth(inode).await,
            false => Ok(()),
        }
    }
}
