//! Node blocks: made, read, changed, written.
//!
//! A node's buffer has its nid as index, and its bytes with the footer. Who changes one waits for
//! its writeback first ([`F2fs::wait_on_page_writeback`] with [`Kind::Node`]).
//!
//! Source: Linux `fs/f2fs/node.c`.

use std::cell::Cell;
use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer, WbControl};
use wp_medium::Slice;
use wp_rt::CpuOp;

use super::counts::Dirty;
use super::inode::Inode;
use super::io::{Held, Kind};
use super::meta::{change, show};
use super::mount::F2fs;
use super::nat::NodeInfo;
use super::sent::{Of, Page};
use crate::disk::{Footer, Geometry, Log, Node, Summary, addr, tree};
use crate::site;

/// On the buffer of an inode's node: its inline data was changed in the page cache, and is copied
/// in before the node is written (`page_private_inline`).
pub(crate) const INLINE: BufFlag = BufFlag::Private1;

/// Sequence numbers of nodes that fsync has sent (`fsync_seg_id`); the nodes themselves are with
/// the bios.
#[derive(Default)]
pub(crate) struct FsyncNodes {
    next: Cell<u32>,
}

impl FsyncNodes {
    /// A checkpoint was written: numbers begin anew (`f2fs_reset_fsync_node_info`).
    pub(super) fn reset(&self) {
        self.next.set(0);
    }
}

/// The footer of a node in a buffer.
pub(super) fn footer(buf: &Buffer) -> Footer {
    show(buf, |b| *Footer::of(b))
}

/// Is it a direct node, an inode included (`IS_DNODE`)?
pub(super) fn is_direct(f: &Footer) -> bool {
    let ofs = f.offset();
    ofs == tree::XATTR_OFFSET || tree::is_direct(ofs)
}

/// How a node is written.
#[derive(Clone, Copy)]
struct How {
    /// It goes behind a flush, and to the medium.
    atomic: bool,
    /// It carries the mark of fsync.
    mark: bool,
    flags: Flags,
    /// Not by a checkpoint.
    balance: bool,
}

impl F2fs {
    /// A node, up to date. Errors: `NotFound` if it is not there (or was never written), `Corrupt`
    /// if its footer is another's or its checksum is wrong, `Io`.
    pub(crate) async fn node(&self, nid: u32) -> FsResult<Rc<Buffer>> {
        if nid == 0 {
            return Err(FsError::NotFound);
        }
        self.check_nid(nid)?;
        let buf = self.nodes.get(u64::from(nid));
        if !buf.flag(BufFlag::Uptodate) {
            let info = self.nat(nid).await?;
            if !addr::is_block(info.blk_addr) {
                return Err(FsError::NotFound);
            }
            self.fill(&buf, info.blk_addr, Flags::NONE).await?;
        }
        if !buf.flag(BufFlag::Verified) {
            self.verify_node(nid, &buf).await?;
        }
        Ok(buf)
    }

    async fn verify_node(&self, nid: u32, buf: &Rc<Buffer>) -> FsResult<()> {
        let found = footer(buf).nid.get();
        let wrong = if found != nid {
            Some(("footer.nid", u64::from(found), nid.to_string()))
        } else if footer(buf).is_inode() && !show(buf, |b| self.csum.inode_ok(b)) {
            let right = show(buf, |b| self.csum.inode(b)).unwrap_or(0);
            let found = show(buf, |b| crate::disk::Inode::of(b).extra().inode_checksum.get());
            Some(("i_inode_checksum", u64::from(found), format!("{right:#x} (inode {nid})")))
        } else {
            None
        };
        let Some((field, found, expected)) = wrong else {
            buf.set(BufFlag::Verified);
            return Ok(());
        };
        buf.clear(BufFlag::Uptodate);
        self.set_need_fsck();
        let at = Geometry::byte_of(self.nat(nid).await?.blk_addr);
        Err(FsError::corrupt("f2fs node", field, at, found, expected))
    }

    /// As [`F2fs::node`], and if it has to be read starts reading `more`, the nodes behind it in
    /// their parent (`f2fs_get_node_page_ra`).
    pub(crate) async fn node_ra(&self, nid: u32, more: &[u32]) -> FsResult<Rc<Buffer>> {
        let known = self.nodes.peek(u64::from(nid)).is_some_and(|b| b.flag(BufFlag::Uptodate));
        if !known && nid != 0 && self.check_nid(nid).is_ok() {
            self.ra_node(nid).await;
            let plug = self.io.part().plug();
            for nid in more.iter().take(128) {
                self.ra_node(*nid).await;
            }
            drop(plug);
        }
        self.node(nid).await
    }

    /// Starts reading a node that is not in memory (`f2fs_ra_node_page`).
    pub(crate) async fn ra_node(&self, nid: u32) {
        if nid == 0 || self.check_nid(nid).is_err() || self.nodes.peek(u64::from(nid)).is_some() {
            return;
        }
        let Ok(info) = self.nat(nid).await else { return };
        let buf = self.nodes.get(u64::from(nid));
        let busy = buf.flag(BufFlag::Uptodate) || buf.flag(BufFlag::Reading);
        if addr::is_block(info.blk_addr) && !busy {
            self.start_read(vec![buf], info.blk_addr, Flags::RAHEAD);
        }
    }

    /// A fresh node of zeroes with its footer, dirty, its number in use from now on
    /// (`f2fs_new_node_page`; `i_blocks`, `i_xattr_nid` and [`F2fs::alloc_nid_done`] are the
    /// caller's). `ofs`: its place in the tree (0: the inode). Errors: `NoSpace`.
    pub(crate) async fn new_node(
        &self,
        ino: u32,
        nid: u32,
        ofs: u32,
        is_dir: bool,
    ) -> FsResult<Rc<Buffer>> {
        self.check_nid(nid)?;
        self.inc_valid_node()?;
        let info = NodeInfo { nid, ino, blk_addr: addr::NULL, version: 0 };
        self.nat.set_addr(info, addr::NEW, false);
        let buf = self.nodes.get(u64::from(nid));
        self.wait_on_page_writeback(&buf, Kind::Node, true).await;
        buf.set_contents(Slice::zero(4096));
        change(&buf, |b| {
            let f = Footer::of_mut(b);
            (f.nid, f.ino) = (nid.into(), ino.into());
            f.set_offset(ofs);
            f.set_mark(Footer::COLD, !is_dir);
        });
        buf.set(BufFlag::Uptodate);
        buf.set(BufFlag::Verified);
        buf.clear(INLINE);
        self.dirty_node(&buf);
        if ofs == 0 {
            let c = &self.counts.inodes;
            c.set(c.get() + 1);
        }
        self.set_fs_dirty();
        Ok(buf)
    }

    /// Marks a node to be written. No if it was already (`set_page_dirty`).
    pub(crate) fn dirty_node(&self, buf: &Rc<Buffer>) -> bool {
        let fresh = !buf.flag(BufFlag::Dirty);
        if fresh {
            self.counts.dirtied(Dirty::Nodes);
        }
        self.nodes.mark_dirty(buf);
        self.set_fs_dirty();
        fresh
    }

    fn clean_node(&self, buf: &Rc<Buffer>) {
        if self.nodes.clear_dirty(buf) {
            self.counts.cleaned(Dirty::Nodes);
        }
        self.nodes.drop_tag(buf.block());
    }

    /// Frees a node: its block, its number at the next checkpoint; of an inode its orphan entry
    /// too (`truncate_node`; `i_blocks` is the caller's). Numbers go round, so that the cache would
    /// keep a page for each file that ever was.
    pub(crate) async fn free_node(&self, nid: u32, buf: Rc<Buffer>) -> FsResult<()> {
        let info = self.nat(nid).await?;
        self.invalidate(info.blk_addr);
        self.dec_valid_node();
        self.nat.set_addr(info, addr::NULL, false);
        if nid == info.ino {
            self.remove_orphan(nid);
            let c = &self.counts.inodes;
            c.set(c.get().saturating_sub(1));
            self.inode_synced(nid);
        }
        self.clean_node(&buf);
        buf.clear(BufFlag::Uptodate);
        buf.clear(BufFlag::Verified);
        buf.clear(INLINE);
        self.set_fs_dirty();
        drop(buf);
        self.nodes.invalidate(u64::from(nid), u64::from(nid) + 1);
        Ok(())
    }

    /// Dirty nodes with these footers, in order of their numbers.
    fn dirty_nodes(&self, which: impl Fn(&Footer) -> bool) -> Vec<u64> {
        let all = self.nodes.tagged(0, u64::MAX, usize::MAX);
        all.into_iter()
            .filter(|n| self.nodes.peek(*n).is_some_and(|b| which(&footer(&b))))
            .collect()
    }

    /// Sends the dirty direct nodes of a file with fsync marks (`f2fs_fsync_node_pages`): all of
    /// them marked, or (`atomic`) the last alone, behind a flush. The sequence number of the last
    /// one sent goes to `seq`.
    pub(crate) async fn fsync_node_pages(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        atomic: bool,
        seq: &mut u32,
    ) -> FsResult<()> {
        let ino = inode.ino;
        let ours = |f: &Footer| is_direct(f) && f.has(Footer::COLD) && f.ino.get() == ino;
        let mut sent = false;
        let done = 'done: {
            let mut last = None;
            if atomic {
                last = self.dirty_nodes(ours).last().copied();
                if last.is_none() {
                    break 'done Ok(());
                }
            }
            loop {
                let mut marked = false;
                let mut next = 0;
                while let Some(index) = self.nodes.first_tagged(next, u64::MAX) {
                    next = index + 1;
                    if self.cp_error() {
                        break 'done Err(FsError::Io);
                    }
                    let Some(buf) = self.nodes.peek(index) else { continue };
                    if !ours(&footer(&buf)) {
                        continue;
                    }
                    let is_last = Some(index) == last;
                    if !buf.flag(BufFlag::Dirty) && !is_last {
                        continue;
                    }
                    if is_last && sent && self.opts.wait_earlier_nodes {
                        self.submit_merged_cond(Kind::Node, Held::Ino(ino));
                        if let Err(e) = self.wait_node_writeback(*seq).await {
                            break 'done Err(e);
                        }
                    }
                    self.wait_on_page_writeback(&buf, Kind::Node, true).await;
                    let mark = !atomic || is_last;
                    if mark {
                        let n = &self.counts.fsynced;
                        n.set(n.get() + 1);
                        if footer(&buf).is_inode() && self.is_inode_dirty(ino) {
                            self.update_inode(inode, &buf).await?;
                        }
                        self.dirty_node(&buf);
                    }
                    if !buf.flag(BufFlag::Dirty) {
                        continue;
                    }
                    let how =
                        How { atomic: atomic && is_last, mark, flags: Flags::SYNC, balance: true };
                    match self.write_node(&buf, how, Some(seq)).await {
                        Ok(wrote) => sent |= wrote,
                        Err(e) => break 'done Err(e),
                    }
                    if is_last {
                        marked = true;
                        break;
                    }
                }
                if !atomic || marked {
                    break 'done Ok(());
                }
                // Somebody else has written the last one without the mark.
                let Some(buf) = last.and_then(|n| self.nodes.peek(n)) else { break 'done Ok(()) };
                self.wait_on_page_writeback(&buf, Kind::Node, true).await;
                self.dirty_node(&buf);
            }
        };
        if sent {
            self.submit_merged_cond(Kind::Node, Held::Ino(ino));
        }
        done
    }

    /// Sends a dirty node (`__write_node_page`). No if it is gone. Errors: `NoSpace`, `Io`,
    /// `Corrupt`; it stays dirty.
    async fn write_node(
        self: &Rc<Self>,
        buf: &Rc<Buffer>,
        how: How,
        seq: Option<&mut u32>,
    ) -> FsResult<bool> {
        let nid = buf.block() as u32;
        self.rt.cpu(CpuOp::NodeWriteback, 1).await;
        if self.cp_error() {
            self.clean_node(buf);
            buf.clear(BufFlag::Uptodate);
            return Err(FsError::Io);
        }
        self.nat(nid).await?;
        let direct = how.mark.then(|| self.inode_in_memory(footer(buf).ino.get())).flatten();
        // Held when direct data came while others were flushed: nothing new is named then.
        let (mut rounds, mut names) = (0, None);
        let (guard, info) = loop {
            let guard = self.node_write.acquire(1).await;
            // Nothing is waited for between the last time here and where the node is taken as it
            // is.
            let info = self.nat(nid).await?;
            match &direct {
                Some(inode) if self.must_flush_direct(inode, how.atomic) => {
                    drop(guard);
                    if rounds == 1 {
                        names = Some(inode.map_lock.lock().await);
                    }
                    rounds += 1;
                    self.flush_direct(inode).await?;
                }
                _ => break (guard, info),
            }
        };
        if info.blk_addr == addr::NULL {
            self.clean_node(buf);
            buf.clear(BufFlag::Uptodate);
            return Ok(false);
        }
        if !buf.flag(BufFlag::Dirty) || buf.flag(BufFlag::Writeback) {
            // Somebody wrote it while we waited.
            return Ok(false);
        }
        let mut flags = how.flags;
        let flushed = self.g.is_zoned && self.opts.era.zoned_flush_not_fua();
        if how.atomic && self.opts.barrier && !flushed {
            if site::NODE_FLUSH.on() {
                flags |= Flags::PREFLUSH;
            }
            if site::NODE_FUA.on() {
                flags |= Flags::FUA;
            }
        }
        let f = footer(buf);
        let says_name = f.is_inode()
            && (how.atomic || how.mark)
            && self.need_dentry_mark(f.ino.get())
            && site::NODE_DENTRY.on();
        change(buf, |b| {
            let f = Footer::of_mut(b);
            f.set_mark(Footer::DENTRY, says_name);
            f.set_mark(Footer::FSYNC, how.mark && site::NODE_MARK.on());
        });
        let listed = (is_direct(&f) && f.has(Footer::COLD)).then(|| self.list_fsynced(buf));
        if let (Some(n), Some(seq)) = (listed, seq) {
            *seq = n;
        }
        let log = self.active_log(match (is_direct(&f), f.has(Footer::COLD)) {
            (true, true) => Log::WarmNode,
            (true, false) => Log::HotNode,
            (false, _) => Log::ColdNode,
        });
        self.nodes.begin_writeback(buf);
        self.counts.cleaned(Dirty::Nodes);
        let given = match self.allocate(log, info.blk_addr, Summary::new(nid, 0, 0)).await {
            Ok(given) => given,
            Err(e) => {
                self.io.shared.fsynced.borrow_mut().retain(|(_, b)| !Rc::ptr_eq(b, buf));
                self.nodes.end_writeback(buf, false);
                self.dirty_node(buf);
                return Err(e);
            }
        };
        let version = self.cps.node_version.get();
        change(buf, |b| {
            let f = Footer::of_mut(b);
            (f.cp_ver, f.next_blkaddr) = (version.into(), given.next.into());
            if f.is_inode() {
                self.csum.seal_inode(b);
            }
        });
        let page = Page {
            of: Of::Cache(self.nodes.clone(), buf.clone()),
            ino: f.ino.get(),
            cp: true,
            listed,
        };
        self.merge(Kind::Node, Some(log), page, given.addr, flags);
        // Without the mark there fsync would send it again for ever.
        self.nat.set_addr(info, given.addr, how.mark);
        drop(given);
        drop(guard);
        drop(names);
        if how.balance {
            Box::pin(self.balance_fs(false)).await;
        }
        Ok(true)
    }

    /// A node is about to be sent, and who waits for fsynced nodes waits for it; its number among
    /// them (`f2fs_add_fsync_node_entry`).
    fn list_fsynced(&self, buf: &Rc<Buffer>) -> u32 {
        let n = self.fsync_nodes.next.get();
        self.fsync_nodes.next.set(n + 1);
        self.io.shared.fsynced.borrow_mut().push_back((n, buf.clone()));
        n
    }

    /// Writes a node whole of which the address is to change: garbage collection
    /// (`f2fs_move_node_page`). Yes: something was submitted.
    pub(super) async fn move_node(self: &Rc<Self>, nid: u32, foreground: bool) -> FsResult<bool> {
        let buf = self.node(nid).await?;
        if !foreground {
            if !buf.flag(BufFlag::Writeback) {
                self.dirty_node(&buf);
            }
            return Ok(false);
        }
        self.wait_on_page_writeback(&buf, Kind::Node, true).await;
        self.dirty_node(&buf);
        let how = How { atomic: false, mark: false, flags: Flags::SYNC, balance: false };
        self.write_node(&buf, how, None).await
    }

    /// Waits for the nodes that fsync has sent up to `seq`
    /// (`f2fs_wait_on_node_pages_writeback`). Errors: `Io` if one failed.
    pub(crate) async fn wait_node_writeback(&self, seq: u32) -> FsResult<()> {
        let first = || self.io.shared.fsynced.borrow().front().cloned();
        if site::NODE_WAIT.on() && (seq > 0 || self.opts.wait_first_node) {
            while let Some((n, buf)) = first() {
                if n > seq {
                    break;
                }
                self.wait_on_page_writeback(&buf, Kind::Node, true).await;
                if n == seq {
                    break;
                }
            }
        }
        if self.nodes.take_error() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Sends dirty nodes: indirect ones, those of directories, those of files
    /// (`f2fs_sync_node_pages`). `sync`: somebody waits; `balance`: not in a checkpoint.
    pub(crate) async fn sync_node_pages(
        self: &Rc<Self>,
        sync: bool,
        balance: bool,
        budget: &mut u64,
    ) -> FsResult<()> {
        let mut sent = false;
        let mut done = Ok(());
        let flags = if sync { Flags::SYNC } else { Flags::NONE };
        'steps: for step in 0..3 {
            // The flusher leaves the nodes of files to fsync and checkpoints.
            if step == 2 && !sync {
                break;
            }
            let mut next = 0;
            while let Some(index) = self.nodes.first_tagged(next, u64::MAX) {
                next = index + 1;
                let Some(buf) = self.nodes.peek(index) else { continue };
                let f = footer(&buf);
                let of_step = match (is_direct(&f), f.has(Footer::COLD)) {
                    (false, _) => 0,
                    (true, false) => 1,
                    (true, true) => 2,
                };
                if of_step != step {
                    continue;
                }
                if !buf.flag(BufFlag::Dirty) {
                    self.nodes.drop_tag(index);
                    continue;
                }
                if balance {
                    self.before_writing(&buf, &f).await?;
                }
                self.wait_on_page_writeback(&buf, Kind::Node, true).await;
                if !buf.flag(BufFlag::Dirty) {
                    continue;
                }
                let how = How { atomic: false, mark: false, flags, balance };
                match self.write_node(&buf, how, None).await {
                    Ok(wrote) => sent |= wrote,
                    Err(e) => done = Err(e),
                }
                *budget = budget.saturating_sub(1);
                if *budget == 0 {
                    break 'steps;
                }
            }
        }
        if sent {
            self.submit_merged(Kind::Node);
        }
        if self.cp_error() {
            return Err(FsError::Io);
        }
        done
    }

    /// What the node does not have yet of its inode.
    async fn before_writing(self: &Rc<Self>, buf: &Rc<Buffer>, f: &Footer) -> FsResult<()> {
        let ino = f.ino.get();
        if buf.clear(INLINE) {
            self.flush_inline_data(ino).await?;
        }
        if f.is_inode()
            && self.is_inode_dirty(ino)
            && let Some(inode) = self.inode_in_memory(ino)
        {
            self.update_inode(&inode, buf).await?;
        }
        Ok(())
    }

    /// Copies all inline data that is dirty into its nodes (`f2fs_flush_inline_data`).
    pub(super) async fn flush_all_inline_data(self: &Rc<Self>) -> FsResult<()> {
        let mut next = 0;
        while let Some(index) = self.nodes.first_tagged(next, u64::MAX) {
            next = index + 1;
            let Some(buf) = self.nodes.peek(index) else { continue };
            let f = footer(&buf);
            if is_direct(&f) && buf.flag(BufFlag::Dirty) && buf.clear(INLINE) {
                self.flush_inline_data(f.ino.get()).await?;
            }
        }
        Ok(())
    }

    /// The flusher's way to nodes (`f2fs_write_node_pages`).
    pub(super) async fn write_node_pages(self: &Rc<Self>, wbc: &WbControl) -> FsResult<()> {
        Box::pin(self.balance_bg()).await;
        // `nr_pages_to_skip`: eight segments' worth.
        let dirty = self.counts.dirty(Dirty::Nodes);
        if !wbc.sync && dirty < 8 * 512 {
            wbc.skipped.set(wbc.skipped.get() + dirty);
            return Ok(());
        }
        let plug = self.io.part().plug();
        let mut budget = wbc.budget.get().max(2 * 256);
        let had = budget;
        let done = self.sync_node_pages(wbc.sync, true, &mut budget).await;
        drop(plug);
        wbc.budget.set(wbc.budget.get().saturating_sub(had - budget));
        done
    }

    /// The words of a node that are addresses or node numbers, for garbage collection.
    pub(super) fn node_word(&self, buf: &Buffer, slot: u32) -> u32 {
        show(buf, |b| Node::of(b).word(slot))
    }
}
