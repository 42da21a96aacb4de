//! `fallocate`: space before there is data, holes, and zeroes.
//!
//! Invariants: 1. each handle is a whole change: a crash between two leaves what the inode owns
//!                counted.
//!             2. the caller holds the inode's `lock`, and no direct I/O is under way.
//! Source:     Linux `ext4_fallocate`, `ext4_alloc_file_blocks`, `ext4_zero_range`
//!             (`fs/ext4/extents.c`), `ext4_punch_hole` (`fs/ext4/inode.c`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, WbControl};
use wp_jbd2::Handle;
use wp_medium::PAGE_BYTES;
use wp_vfs::{FileType, Reserve};

use super::data::{CREDITS_ALLOCATE, RETRIES};
use super::extents::{Fill, longest};
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::Extent;
use crate::disk::inode::flag;

/// Credits of a handle that takes one extent out of the tree: a path of nodes, a split, bitmaps and
/// descriptors, inode and super block.
const CREDITS_PUNCH: u32 = 48;
/// Nodes that it may free.
const REVOKES_PUNCH: u32 = 8;

impl Ext4 {
    /// `fallocate(2)`. Waits: for the inode's `lock`, direct I/O, the journal; punching also for
    /// writeback of the range.
    ///
    /// Errors: `Unsupported` for what is not built and for files without extents; `TooBig`;
    /// `NoSpace`, when part of the range may have got its blocks.
    pub(super) async fn reserve(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        how: Reserve,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        if len == 0 {
            return Err(FsError::Invalid("fallocate: no length"));
        }
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        if end.div_ceil(bs) >= u64::from(u32::MAX) {
            return Err(FsError::TooBig);
        }
        if inode.is_dir() {
            return Err(FsError::IsDir);
        }
        if inode.kind() != FileType::File {
            return Err(FsError::Invalid("fallocate: not a regular file"));
        }
        let era = &self.opts.era;
        let known = match how {
            Reserve::Zero { .. } => era.zeroes_ranges(),
            Reserve::Collapse => era.collapses_ranges(),
            Reserve::Insert => era.inserts_ranges(),
            Reserve::Space { .. } | Reserve::Punch => true,
        };
        if !known {
            return Err(FsError::NotInKernel);
        }
        if !inode.has(flag::EXTENTS) {
            return Err(FsError::Unsupported("fallocate on a file with indirect blocks".into()));
        }
        if self.opts.era.punch_writes_back() {
            self.before_lock(inode, how, offset, end).await?;
        }
        let _mutex = self.lock_alone(inode).await;
        if inode.gone.get() {
            return Err(FsError::NotFound);
        }
        if self.opts.era.fallocate_updates_times_first() {
            self.update_time(inode).await?;
        }
        let keeps = !matches!(
            how,
            Reserve::Space { keep_size: false } | Reserve::Zero { keep_size: false }
        );
        Box::pin(self.settle_growth(inode, self.new_size(inode, end, keeps))).await?;
        match how {
            Reserve::Collapse => Box::pin(self.collapse(inode, offset, end)).await,
            Reserve::Insert => Box::pin(self.insert_hole(inode, offset, end)).await,
            Reserve::Punch => self.punch(inode, offset, end).await,
            Reserve::Zero { keep_size } => self.zero_range(inode, offset, end, keep_size).await,
            _ => {
                let size = self.new_size(inode, end, how == Reserve::Space { keep_size: true });
                self.update_time(inode).await?;
                self.fill_holes(inode, offset / bs, end.div_ceil(bs), size, false).await
            }
        }
    }

    /// What is made durable first where punching a hole writes its data back: the range, or with
    /// `data=journal` and zeroes for it the journal (`ext4_force_commit`).
    async fn before_lock(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        how: Reserve,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        match how {
            Reserve::Punch => self.write_range(inode, offset, end).await,
            Reserve::Zero { .. } if self.journals_data(inode) => {
                self.journal().force_commit().await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Writes what is dirty of a range, so that only clean blocks are thrown away.
    pub(super) async fn write_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        if !crate::site::PUNCH_WRITE.on() {
            return Ok(());
        }
        let bs = u64::from(self.bs().bytes());
        let range = self.pages_of(offset / bs, end.div_ceil(bs));
        let wbc = WbControl { range, ..WbControl::sync_all() };
        inode.map.writepages(&wbc).await?;
        inode.map.wait_range(range).await
    }

    /// What comes before cached blocks of a range are dropped: the size on disk, if whole blocks
    /// go. Since punching a hole does not write its data back: the size always, and data that goes
    /// to the journal, edges included (`ext4_truncate_page_cache_block_range`).
    async fn before_drop(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        let old = self.opts.era.punch_writes_back();
        if !old || offset.div_ceil(bs) < end / bs {
            self.size_before_punch(inode, offset, end).await?;
        }
        if !old && self.journals_data(inode) {
            self.write_range(inode, offset, end).await?;
        }
        Ok(())
    }

    /// The size that a range which ends at `end` gives the file, if it grows.
    fn new_size(&self, inode: &Inode, end: u64, keep: bool) -> Option<u64> {
        let grows = end > inode.size.get()
            || (end > inode.disksize.get() && self.opts.era.space_moves_disksize());
        (!keep && grows).then_some(end)
    }

    /// Gives blocks `from..to` unwritten extents where there are none; with `convert` makes written
    /// ones unwritten. The size follows up to `new_size` (`ext4_alloc_file_blocks`).
    async fn fill_holes(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        new_size: Option<u64>,
        convert: bool,
    ) -> FsResult<()> {
        let mut at = from;
        let mut tries = 0;
        while at < to {
            let old = inode.size.get();
            let h = self.start(CREDITS_ALLOCATE).await?;
            let out = self.fill_step(&h, inode, at, to, new_size, convert).await;
            match self.stop(h, out).await {
                Ok(next) => {
                    self.zero_gap(inode, old, inode.size.get()).await?;
                    (at, tries) = (next, 0);
                }
                Err(FsError::NoSpace) if tries < RETRIES && self.commit_for_space().await? => {
                    tries += 1;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    async fn fill_step(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        at: u64,
        to: u64,
        new_size: Option<u64>,
        convert: bool,
    ) -> FsResult<u64> {
        let bs = u64::from(self.bs().bytes());
        let map = inode.map_lock.lock().await;
        let mut counts = self.opts.era.space_counts_for_fdatasync();
        let next = match self.lookup(inode, at).await? {
            Ok(run) => {
                let end = to.min(at + u64::from(run.len.min(longest(true))));
                if convert && !run.unwritten {
                    counts = true;
                    self.set_state(h, inode, at, end, true).await?;
                }
                end
            }
            Err(hole) => {
                let want = hole.min(to - at).min(u64::from(longest(true))) as u32;
                let want = want.min(self.blocks_in(self.free_for_delay()).max(1));
                let run = self.allocate_as(h, inode, at, want, false, Fill::Unwritten).await?;
                let end = at + u64::from(run.len);
                // Delayed blocks have their place now.
                for b in inode.map.range(at, end) {
                    if self.undelay(inode, &b) {
                        b.map_to(run.phys + (b.block() - at));
                        b.set(BufFlag::Unwritten);
                        b.set(BufFlag::New);
                    }
                }
                end
            }
        };
        drop(map);
        let now = self.time();
        inode.set_ctime(now);
        let reached = (next * bs).min(new_size.unwrap_or(0));
        if reached > inode.size.get() {
            inode.size.set(reached);
            inode.set_mtime(now);
        }
        if reached > inode.disksize.get() {
            inode.disksize.set(reached);
        }
        if new_size.is_none() && next * bs > inode.size.get() && self.opts.era.eofblocks_flag() {
            let mut d = inode.disk.borrow_mut();
            d.flags = (d.flags.get() | flag::EOFBLOCKS).into();
        }
        self.write_inode(h, inode).await?;
        if counts && crate::site::FALLOCATE_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        Ok(next)
    }

    /// `FALLOC_FL_ZERO_RANGE`: whole blocks become unwritten, the edges are zeroed in the cache.
    async fn zero_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
        keep_size: bool,
    ) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        let (first, last) = (offset.div_ceil(bs), end / bs);
        let size = self.new_size(inode, end, keep_size);
        self.update_time(inode).await?;
        let partial = !offset.is_multiple_of(bs) || !end.is_multiple_of(bs);
        if partial {
            self.fill_holes(inode, offset / bs, end.div_ceil(bs), size, false).await?;
        }
        self.before_drop(inode, offset, end).await?;
        if first < last {
            self.drop_blocks_in(inode, first, last).await;
            self.fill_holes(inode, first, last, size, true).await?;
        }
        if !partial {
            return Ok(());
        }
        let h = self.start(2).await?;
        if let Some(size) = size {
            inode.size.set(inode.size.get().max(size));
            inode.disksize.set(inode.disksize.get().max(size));
        }
        let out = self.write_inode(&h, inode).await;
        if self.opts.era.holes_count_for_fdatasync() && crate::site::ZERO_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        self.stop(h, out).await?;
        self.zero_edges(inode, offset, end).await
    }

    /// `FALLOC_FL_PUNCH_HOLE`.
    async fn punch(self: &Rc<Self>, inode: &Rc<Inode>, offset: u64, end: u64) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        let size = inode.size.get();
        if offset >= size {
            return Ok(());
        }
        // Beyond the end only what shares the last page is touched.
        let page = PAGE_BYTES as u64;
        let end = if end > size { size + page - size % page } else { end };
        self.update_time(inode).await?;
        let (first, last) = (offset.div_ceil(bs), end / bs);
        self.before_drop(inode, offset, end).await?;
        if first < last {
            self.drop_blocks_in(inode, first, last).await;
        }
        self.zero_edges(inode, offset, end).await?;
        if first < last {
            self.discard_prealloc(inode);
        }
        let mut at = first;
        while at < last {
            let h = self.start_revoking(CREDITS_PUNCH, self.revokes(REVOKES_PUNCH)).await?;
            let map = inode.map_lock.lock().await;
            let out = self.remove_step(&h, inode, at, last).await;
            drop(map);
            self.fast_track_range(&h, inode, (first, last));
            at = self.stop(h, out).await?;
        }
        if first < last {
            // Readahead does not wait for who punches, and may have taken blocks that were there.
            inode.map.truncate_range(first, last).await;
        }
        let h = self.start(2).await?;
        self.sync_with(&h, inode);
        self.fast_track_range(&h, inode, (first, last));
        let now = self.time();
        inode.set_mtime(now);
        inode.set_ctime(now);
        let out = self.write_inode(&h, inode).await;
        if self.opts.era.holes_count_for_fdatasync() && crate::site::PUNCH_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        self.stop(h, out).await
    }

    /// The size on disk must not wait for blocks that are about to go
    /// (`ext4_update_disksize_before_punch`).
    async fn size_before_punch(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        let size = inode.size.get();
        let reached = match end < size && self.opts.era.punch_moves_disksize() {
            true => end,
            false => size,
        };
        if offset > size || end < reached || inode.disksize.get() >= reached {
            return Ok(());
        }
        if !crate::site::PUNCH_SIZE.on() {
            return Ok(());
        }
        let h = self.start(1).await?;
        inode.disksize.set(reached);
        let out = self.write_inode(&h, inode).await;
        self.stop(h, out).await
    }

    /// Drops cached blocks `from..to`, and what was reserved for them.
    pub(super) async fn drop_blocks_in(&self, inode: &Inode, from: u64, to: u64) {
        for b in inode.map.range(from, to) {
            self.undelay(inode, &b);
        }
        inode.map.truncate_range(from, to).await;
    }

    /// Zeroes the parts of blocks at the edges of a range (`ext4_zero_partial_blocks`).
    pub(super) async fn zero_edges(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.bs().bytes());
        let (a, b) = (offset / bs, (end - 1) / bs);
        if !crate::site::EDGES.on() {
            return Ok(());
        }
        if a == b {
            if !offset.is_multiple_of(bs) || !end.is_multiple_of(bs) {
                self.zero_part(inode, a, offset % bs, end - a * bs).await?;
            }
            return Ok(());
        }
        if !offset.is_multiple_of(bs) {
            self.zero_part(inode, a, offset % bs, bs).await?;
        }
        if !end.is_multiple_of(bs) {
            self.zero_part(inode, b, 0, end % bs).await?;
        }
        Ok(())
    }

    /// Takes the first extent of blocks `at..to` out of the tree and frees its blocks. Returns
    /// where to go on. The caller holds `map_lock` (`ext4_ext_remove_space`).
    pub(super) async fn remove_step(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        at: u64,
        to: u64,
    ) -> FsResult<u64> {
        self.fast_settled(inode).await;
        let run = match self.lookup(inode, at).await? {
            Ok(run) => run,
            Err(hole) => return Ok(at.saturating_add(hole)),
        };
        let end = to.min(at + u64::from(run.len));
        // What stays before and after must be extents of their own; the middle then goes whole.
        self.split_at(h, inode, at).await?;
        self.split_at(h, inode, end).await?;
        let l = u32::try_from(at).map_err(|_| FsError::TooBig)?;
        let mut path = self.path(inode, l).await?;
        let leaf = path.last_mut().expect("a path has a leaf");
        let i = leaf.pos.checked_sub(1).expect("an extent begins here");
        let gone: Extent = leaf.leaf.remove(i);
        let piece = (at, gone.start(), gone.blocks());
        self.return_piece(h, inode, piece, (false, true)).await?;
        // Nodes left empty go too.
        while path.len() > 1 && path.last().is_some_and(|n| n.len() == 0) {
            let node = path.pop().expect("longer than one");
            let block = node.buf.as_ref().expect("only the root is without a block").block();
            self.count_clusters(inode, -1)?;
            self.return_blocks(h, block, 1, true).await?;
            let parent = path.last_mut().expect("the root is there");
            parent.inner.remove(parent.pos);
            if parent.pos > 0 && parent.pos == parent.inner.len() {
                parent.pos -= 1;
            }
        }
        if path.len() == 1 {
            path[0].flatten_if_empty();
        }
        self.store_and_fix(h, inode, &mut path).await?;
        self.write_inode(h, inode).await?;
        if self.opts.era.holes_count_for_fdatasync() && crate::site::REMOVE_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        Ok(end)
    }
}
