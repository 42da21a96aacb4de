//! Blocks before the main area: checkpoint packs, SIT, NAT, SSA.
//!
//! Source: Linux `fs/f2fs/checkpoint.c` (`__get_meta_page`, `f2fs_sync_meta_pages`).

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use wp_base::FsResult;
use wp_base::event::Flags;
use wp_cache::{BufFlag, Buffer, Fut, Mapping, WbControl, WbOps};
use wp_medium::Slice;

use super::counts::Dirty;
use super::io::Kind;
use super::mount::F2fs;
use super::sent::{Of, Page};
use crate::disk::Block;

/// Flags of metadata, read and written.
const FLAGS: Flags = Flags(Flags::META.0 | Flags::PRIO.0);

/// Shows the bytes of a buffer that is a whole block.
pub(super) fn show<R>(buf: &Buffer, f: impl FnOnce(&Block) -> R) -> R {
    buf.with(|b| f(b.try_into().expect("a buffer here is a whole block")))
}

/// Shows the bytes of a buffer that is a whole block, to change them.
pub(super) fn change<R>(buf: &Buffer, f: impl FnOnce(&mut Block) -> R) -> R {
    buf.with_mut(|b| f(b.try_into().expect("a buffer here is a whole block")))
}

/// The flusher's way to the blocks before the main area, and to the nodes.
pub(super) struct Own {
    fs: RefCell<Weak<F2fs>>,
    nodes: bool,
}

impl Own {
    pub(super) fn new(nodes: bool) -> Rc<Own> {
        Rc::new(Own { fs: RefCell::new(Weak::new()), nodes })
    }

    pub(super) fn set(&self, fs: &Rc<F2fs>) {
        *self.fs.borrow_mut() = Rc::downgrade(fs);
    }
}

impl WbOps for Own {
    fn writepages<'a>(&'a self, _: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            let Some(fs) = self.fs.borrow().upgrade() else { return Ok(()) };
            if self.nodes { fs.write_node_pages(wbc).await } else { fs.write_meta_pages(wbc).await }
        })
    }
}

impl F2fs {
    /// A block before the main area, up to date (`f2fs_get_meta_page`). Errors: `Io`.
    pub(super) async fn meta_block(&self, addr: u32) -> FsResult<Rc<Buffer>> {
        let buf = self.meta.get(u64::from(addr));
        if !buf.flag(BufFlag::Uptodate) {
            self.fill(&buf, addr, FLAGS).await?;
        }
        Ok(buf)
    }

    /// Starts reading those of `addrs` that are not in memory, in as few bios as they lie
    /// (`f2fs_ra_meta_pages`).
    pub(super) fn read_ahead_meta(&self, addrs: impl Iterator<Item = u32>) {
        let mut run: Vec<Rc<Buffer>> = Vec::new();
        let mut start = 0;
        for addr in addrs {
            let buf = self.meta.get(u64::from(addr));
            let known = buf.flag(BufFlag::Uptodate) || buf.flag(BufFlag::Reading);
            let follows = start + run.len() as u32 == addr && run.len() < 256;
            if !run.is_empty() && (known || !follows) {
                self.start_read(std::mem::take(&mut run), start, FLAGS | Flags::SYNC);
            }
            if !known {
                if run.is_empty() {
                    start = addr;
                }
                run.push(buf);
            }
        }
        if !run.is_empty() {
            self.start_read(run, start, FLAGS | Flags::SYNC);
        }
    }

    /// A block before the main area that is going to be written over whole
    /// (`f2fs_grab_meta_page`). Waits: for its last write.
    pub(super) async fn grab_meta(&self, addr: u32) -> Rc<Buffer> {
        let buf = self.meta.get(u64::from(addr));
        self.wait_on_page_writeback(&buf, Kind::Meta, true).await;
        buf.set(BufFlag::Uptodate);
        buf
    }

    /// Replaces a block before the main area; it is written at the next occasion
    /// (`f2fs_update_meta_page`). Waits: for its last write.
    pub(super) async fn put_meta(&self, addr: u32, bytes: &Block) {
        let buf = self.grab_meta(addr).await;
        buf.set_contents(Slice::from_bytes(bytes));
        self.dirty_meta(&buf);
    }

    /// Marks a block before the main area to be written.
    pub(super) fn dirty_meta(&self, buf: &Rc<Buffer>) {
        if !buf.flag(BufFlag::Dirty) {
            self.counts.dirtied(Dirty::Meta);
        }
        self.meta.mark_dirty(buf);
    }

    /// Puts a dirty block into the bio of metadata (`f2fs_do_write_meta_page`).
    pub(super) fn write_meta(&self, buf: &Rc<Buffer>) {
        self.meta.begin_writeback(buf);
        self.counts.cleaned(Dirty::Meta);
        let of = Of::Cache(self.meta.clone(), buf.clone());
        let page = Page { of, ino: 0, cp: true, listed: None };
        let addr = buf.block() as u32;
        self.merge(Kind::Meta, None, page, addr, FLAGS | Flags::SYNC);
    }

    /// Sends the dirty blocks before the main area, up to `most` (`f2fs_sync_meta_pages`). How many
    /// it were.
    pub(super) async fn sync_meta(&self, most: u64) -> u64 {
        let plug = self.io.part().plug();
        let (mut next, mut sent) = (0, 0);
        let mut last = None;
        while sent < most
            && let Some(index) = self.meta.first_tagged(next, u64::MAX)
        {
            if most != u64::MAX && last.is_some_and(|l| l + 1 != index) {
                break;
            }
            next = index + 1;
            last = Some(index);
            let Some(buf) = self.meta.peek(index) else { continue };
            if !buf.flag(BufFlag::Dirty) {
                self.meta.drop_tag(index);
                continue;
            }
            self.wait_on_page_writeback(&buf, Kind::Meta, true).await;
            if buf.flag(BufFlag::Dirty) {
                self.write_meta(&buf);
                sent += 1;
            }
        }
        if sent > 0 {
            self.submit_merged(Kind::Meta);
        }
        drop(plug);
        sent
    }

    /// `f2fs_write_meta_pages`: in the background only if there are many, and never while a
    /// checkpoint is written.
    async fn write_meta_pages(&self, wbc: &WbControl) -> FsResult<()> {
        // `nr_pages_to_skip`: eight bios.
        let dirty = self.counts.dirty(Dirty::Meta);
        let guard = self.cps.global.try_lock();
        if (!wbc.sync && dirty < 8 * 256) || guard.is_none() {
            wbc.skipped.set(wbc.skipped.get() + dirty);
            return Ok(());
        }
        let most = if wbc.sync { u64::MAX } else { wbc.budget.get().max(2 * 256) };
        let sent = self.sync_meta(most).await;
        wbc.budget.set(wbc.budget.get().saturating_sub(sent));
        Ok(())
    }
}
