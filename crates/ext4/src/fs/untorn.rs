//! Untorn writes (`RWF_ATOMIC`): of one block since Linux 6.13, up to a cluster since 6.16.
//!
//! Rule:       a regular file with extents, past the cache, if the drive keeps so much whole. The
//!             least unit is a block, the longest a block, too, or with `bigalloc` a cluster.
//! Picture:    one mapping for the whole range: all of it written, or a hole or one unwritten
//!             extent that is converted in one transaction when the data are there. Anything else
//!             (*mixed*) is made written first: holes and unwritten parts are zeroed, and the
//!             transaction is committed before the data goes.
//! Over a cut: the range is one bio that is never split, and one request of the drive. Without the
//!             commit a part of it could come back as zeroes through the old map, beside new data.
//!             A range that is all written is not committed first, even if some of that is of a
//!             transaction which is not durable yet (N50).
//! Source:     behaviour of `ext4_atomic_write_init()`, `ext4_inode_can_atomic_write()`,
//!             `ext4_file_write_iter()` (Linux 6.13), `ext4_map_blocks_atomic_write()`,
//!             `ext4_iomap_alloc()`, `ext4_convert_unwritten_extents_atomic()` (Linux 6.16);
//!             `Documentation/filesystems/ext4/atomic_writes.rst`.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::AtomicLimits;
use wp_jbd2::Handle;
use wp_rt::soon;
use wp_vfs::Kiocb;

use super::data::{CREDITS_ALLOCATE, RETRIES};
use super::direct::Piece;
use super::extents::Run;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::incompat;
use crate::disk::inode::flag;
use crate::site;

/// Credits more for a range of which every other block may be another extent; beyond this number of
/// blocks their extents share leaves.
const MIXED_BLOCKS: u64 = 64;

impl Ext4 {
    /// What it offers of a file.
    pub(super) fn untorn_limits(&self, inode: &Inode) -> Option<AtomicLimits> {
        let is_fit = self.opts.era.has_untorn_writes()
            && self.sb.borrow().has_incompat(incompat::EXTENTS)
            && inode.disk.borrow().is_file()
            && inode.has(flag::EXTENTS);
        let drive = self.bdev.queue().atomic_limits().filter(|_| is_fit)?;
        let block = self.bs().bytes();
        let most =
            if self.opts.era.untorn_by_clusters() { self.geo.cluster_bytes() } else { block };
        let (unit_min, unit_max) = (block.max(drive.unit_min), most.min(drive.unit_max));
        (unit_min <= unit_max).then_some(AtomicLimits { unit_min, unit_max, ..drive })
    }

    /// May a direct write at `at` be untorn, if it is to be? A write to the end has no place before
    /// this. Errors: `Invalid`.
    pub(super) fn check_untorn(&self, io: &Kiocb, at: u64) -> FsResult<()> {
        match io.is_untorn() && !at.is_multiple_of(u64::from(self.bs().bytes())) {
            true => Err(FsError::Invalid("RWF_ATOMIC: the end of the file is within a block")),
            false => Ok(()),
        }
    }

    /// The place of what a direct write of bytes `at..end` sends next.
    pub(super) async fn map_as(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        (at, end): (u64, u64),
        how: Flags,
    ) -> FsResult<Piece> {
        if how.has(Flags::ATOMIC) && self.opts.era.untorn_by_clusters() {
            return Box::pin(self.map_untorn(inode, at, end)).await;
        }
        self.map_piece(inode, at, end).await
    }

    /// The place of bytes `at..end`, whole blocks, in one piece, made if there is none.
    ///
    /// Waits: for the journal, and for a commit if the range was mixed. Errors: `NoSpace`;
    /// `Invalid` if there is no such piece.
    async fn map_untorn(self: &Rc<Self>, inode: &Rc<Inode>, at: u64, end: u64) -> FsResult<Piece> {
        let bs = u64::from(self.bs().bytes());
        let (block, last) = (at / bs, end / bs);
        if end <= inode.size.get() {
            let map = inode.map_lock.lock().await;
            let written = self.one_written(inode, block, last).await?;
            drop(map);
            if let Some(run) = written {
                let is_old = last - block == 1 || self.is_datasync_clean(inode);
                if self.opts.untorn_commit && !is_old {
                    self.journal().force_commit().await?;
                }
                return Ok(Piece { run, fresh: false });
            }
        }
        let credits = CREDITS_ALLOCATE + 2 * (last - block).min(MIXED_BLOCKS) as u32;
        let mut tries = 0;
        let (piece, is_mixed) = loop {
            let h = soon!(self.start(credits))?;
            let map = inode.map_lock.lock().await;
            let out = self.map_whole(&h, inode, block, last).await;
            drop(map);
            match soon!(self.stop(h, out)) {
                Err(FsError::NoSpace) if tries < RETRIES && self.commit_for_space().await? => {
                    tries += 1;
                }
                other => break other?,
            }
        };
        if is_mixed && site::UNTORN_COMMIT.on() {
            self.journal().force_commit().await?;
        }
        Ok(piece)
    }

    /// Blocks `from..to`, if all of them are written and side by side; extents that continue each
    /// other count as one, in two leaves too (`EXT4_GET_BLOCKS_QUERY_LAST_IN_LEAF`). The caller
    /// holds `map_lock`.
    async fn one_written(&self, inode: &Inode, from: u64, to: u64) -> FsResult<Option<Run>> {
        let mut whole: Option<Run> = None;
        let mut at = from;
        while at < to {
            let Ok(run) = soon!(self.lookup(inode, at))? else { return Ok(None) };
            let first = whole.map_or(run.phys, |w| w.phys);
            if run.unwritten || run.phys != first + (at - from) {
                return Ok(None);
            }
            at = to.min(at + u64::from(run.len));
            let len = (at - from) as u32;
            whole = Some(Run { logical: from, phys: first, len, unwritten: false });
        }
        Ok(whole)
    }

    /// [`Ext4::map_untorn`] in a handle (`ext4_map_blocks_atomic_write`). `true`: the range was
    /// mixed.
    async fn map_whole(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        block: u64,
        last: u64,
    ) -> FsResult<(Piece, bool)> {
        if let Some(run) = self.one_written(inode, block, last).await? {
            return Ok((Piece { run, fresh: false }, false));
        }
        let piece = self.map_in_handle(h, inode, block, last).await?;
        if u64::from(piece.run.len) == last - block {
            return Ok((piece, false));
        }
        self.make_written(h, inode, block, last).await?;
        let wrong = FsError::Invalid("RWF_ATOMIC: the range is not in one piece");
        let run = self.one_written(inode, block, last).await?.ok_or(wrong)?;
        Ok((Piece { run, fresh: false }, true))
    }

    /// Makes every block of a range written; holes and unwritten ones are zeroed
    /// (`ext4_map_blocks_atomic_write_slow`, `EXT4_GET_BLOCKS_CREATE_ZERO`).
    async fn make_written(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        block: u64,
        last: u64,
    ) -> FsResult<()> {
        let mut at = block;
        while at < last {
            at = match soon!(self.lookup(inode, at))? {
                Ok(run) => {
                    let to = last.min(at + u64::from(run.len));
                    if run.unwritten {
                        self.initialise(h, inode, at, to).await?;
                        self.zero_out(run.phys, (to - at) as u32).await?;
                    }
                    to
                }
                Err(hole) => {
                    let want = hole.min(last - at) as u32;
                    let run = self.allocate(h, inode, at, want, false).await?;
                    self.zero_out(run.phys, run.len).await?;
                    at + u64::from(run.len)
                }
            };
        }
        soon!(self.write_inode(h, inode))?;
        inode.datasync_tid.set(h.tid());
        Ok(())
    }

    /// Converts what a direct write found unwritten in blocks `from..to`.
    pub(super) async fn convert_written(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        io: &Kiocb,
    ) -> FsResult<()> {
        if io.is_untorn() && self.opts.era.untorn_by_clusters() {
            return self.convert_whole(inode, from, to).await;
        }
        self.convert_range(inode, from, to).await
    }

    /// Converts what was unwritten in blocks `from..to`, an extent a handle
    /// (`ext4_convert_unwritten_extents`).
    async fn convert_range(self: &Rc<Self>, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let mut at = from;
        while at < to {
            let h = soon!(self.start(CREDITS_ALLOCATE))?;
            let map = inode.map_lock.lock().await;
            let out = async {
                let run = match soon!(self.lookup(inode, at))? {
                    Ok(run) => run,
                    Err(hole) => return Ok(at.saturating_add(hole)),
                };
                let end = to.min(at + u64::from(run.len));
                self.set_state(&h, inode, at, end, false).await?;
                soon!(self.write_inode(&h, inode))?;
                if site::DIRECT_TID.on() {
                    inode.datasync_tid.set(h.tid());
                }
                Ok(end)
            }
            .await;
            drop(map);
            at = soon!(self.stop(h, out))?;
        }
        Ok(())
    }

    /// Converts what was unwritten in blocks `from..to`, in one transaction
    /// (`ext4_convert_unwritten_extents_atomic`).
    async fn convert_whole(self: &Rc<Self>, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let h = soon!(self.start(CREDITS_ALLOCATE))?;
        let map = inode.map_lock.lock().await;
        let out = async {
            self.set_state(&h, inode, from, to, false).await?;
            soon!(self.write_inode(&h, inode))
        }
        .await;
        if site::DIRECT_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        drop(map);
        soon!(self.stop(h, out))
    }
}

/// The flag of its bios.
pub(super) fn flag_of(io: &Kiocb) -> Flags {
    if io.is_untorn() { Flags::ATOMIC } else { Flags::NONE }
}
