//! Atomic writes of a file: to blocks of an inode apart, which COMMIT gives to the file.
//!
//! Picture:    START: a COW inode without a name, an orphan. write -> the file's page cache ->
//!             writeback to blocks of the COW inode. COMMIT: data -> wait -> under
//!             [`F2fs::lock_op`] each block changes its owner -> the file's nodes, the last of
//!             them marked, behind a flush, forced, and not waited for.
//! Invariants: 1. until COMMIT no node of the file leads to a block that was written since START,
//!                and no node block has the file's new length;
//!             2. a checkpoint has all blocks of a COMMIT in the file, or none;
//!             3. garbage collection moves no block of a file between START and COMMIT, nor of a
//!                COW inode. (Linux 6.12 copies them without the page cache.)
//! Left out:   changes of the length by truncate and fallocate between START and COMMIT: refused.
//!             START before Linux 5.19, which kept dirty pages in memory: refused.
//! Source:     Linux `fs/f2fs/file.c` (`f2fs_ioc_start_atomic_write` and those beside it),
//!             `fs/f2fs/segment.c` (`f2fs_commit_atomic_write`, `f2fs_abort_atomic_write`),
//!             `fs/f2fs/data.c` (`prepare_atomic_write_begin`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::WbControl;
use wp_vfs::{AtomicWrite, ErrSeqCursor, FileType, SyncKind};

use super::checkpoint::OpGuard;
use super::data::BLOCK;
use super::dnode::{Find, Found};
use super::fsync::Ask;
use super::inode::{Inode, fi};
use super::mount::F2fs;
use super::new_inode::NewInode;
use crate::disk::addr;
use crate::disk::inode::inline;
use crate::disk::nid;
use crate::site;

/// A block that COMMIT gave to the file: its index, and the address that stood there.
type Swapped = (u64, u32);

impl Inode {
    /// Is it between START and the swap of COMMIT, so that its length and its blocks on the device
    /// are those of START?
    pub(super) fn is_held_back(&self) -> bool {
        self.is(fi::ATOMIC) && !self.is(fi::ATOMIC_COMMITTED)
    }

    /// The inode whose blocks hold what was written since START; `None` otherwise.
    fn held_back(&self) -> Option<Rc<Inode>> {
        if self.is_held_back() { self.cow.borrow().clone() } else { None }
    }
}

impl F2fs {
    /// An ioctl of atomic writes. Errors: `Unsupported` before 5.19, `NoSuchIoctl` for a replace
    /// before 6.2; `ReadOnly`, `NoSpace`, `Io`.
    pub(super) async fn atomic_write(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        what: AtomicWrite,
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        let era = &self.opts.era;
        if !era.atomic_cow() {
            let why = "atomic writes of F2FS before Linux 5.19; a later version: era=6.1";
            return Err(FsError::Unsupported(why.to_owned()));
        }
        if what == AtomicWrite::Replace && !era.atomic_replace() {
            return Err(FsError::NoSuchIoctl);
        }
        self.check_writable()?;
        match what {
            AtomicWrite::Start | AtomicWrite::Replace => {
                let _lock = self.lock_alone(inode).await;
                self.start_atomic(inode, what == AtomicWrite::Replace).await
            }
            AtomicWrite::Commit => {
                self.balance_fs(true).await;
                let _lock = self.lock_alone(inode).await;
                self.commit_atomic(inode, told).await
            }
            AtomicWrite::Abort => {
                let _lock = self.lock_alone(inode).await;
                self.end_atomic(inode, true).await;
                Ok(())
            }
        }
    }

    /// `f2fs_ioc_start_atomic_write`. The caller has the inode's `lock`.
    async fn start_atomic(self: &Rc<Self>, inode: &Rc<Inode>, replaces: bool) -> FsResult<()> {
        if inode.is(fi::ATOMIC) {
            return Ok(());
        }
        self.convert_inline(inode).await?;
        self.write_back(inode, 0, u64::MAX).await?;
        let known = inode.cow.borrow().clone();
        let cow = match known {
            Some(cow) => {
                cow.map.invalidate(0, u64::MAX);
                self.truncate_blocks(&cow, 0, true).await?;
                cow
            }
            None => self.new_cow(inode).await?,
        };
        self.write_inode(inode).await?;
        inode.set(fi::ATOMIC);
        inode.original_size.set(inode.size.get());
        if replaces {
            inode.set(fi::ATOMIC_REPLACE);
            self.drop_pages(inode, 0, u64::MAX).await;
            self.set_size(inode, 0);
        }
        self.set_size(&cow, inode.size.get());
        self.note_request();
        Ok(())
    }

    /// The inode that holds a file's blocks until COMMIT (`f2fs_get_tmpfile` in its directory).
    async fn new_cow(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<Rc<Inode>> {
        let met = inode.aliases.borrow().first().map(|(dir, _)| *dir);
        let parent = met.unwrap_or(inode.f.borrow().pino);
        let dir = match self.iget(parent).await {
            Err(FsError::NotFound) => self.iget(nid::ROOT).await?,
            found => found?,
        };
        let mode = FileType::File.mode_bits() as u16;
        let new = NewInode { mode, uid: 0, gid: 0, name: None, device: Default::default() };
        let cow = self.new_orphan(&dir, &new, None).await?;
        cow.set(fi::COW);
        self.change(&cow, |f| f.inline &= !inline::DATA);
        // As long as the file is in memory.
        cow.opens.set(1);
        *inode.cow.borrow_mut() = Some(cow.clone());
        Ok(cow)
    }

    /// The inode whose node says where a dirty block of a file is to go.
    pub(super) async fn owner_of(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
    ) -> FsResult<Rc<Inode>> {
        match inode.held_back() {
            Some(cow) if self.address(&cow, index).await? != addr::NULL => Ok(cow),
            _ => Ok(inode.clone()),
        }
    }

    /// Where a block of a file is to be read: as written since START, else as before; `NULL` or
    /// `NEW` where there is nothing. The caller has the file's `map_lock`.
    pub(super) async fn readable(self: &Rc<Self>, inode: &Rc<Inode>, index: u64) -> FsResult<u32> {
        if let Some(cow) = inode.held_back() {
            let at = self.address(&cow, index).await?;
            if addr::is_block(at) {
                return Ok(at);
            }
            if inode.is(fi::ATOMIC_REPLACE) {
                return Ok(addr::NULL);
            }
        }
        self.address_in(inode, index).await
    }

    /// Space in the COW inode for a block that is written (`prepare_atomic_write_begin`). Is there
    /// nothing to be read before a part of it is written?
    pub(super) async fn reserve_apart(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
    ) -> FsResult<bool> {
        let Some(cow) = inode.held_back() else {
            return Err(FsError::Invalid("an atomic write that did not start"));
        };
        if self.address(&cow, index).await? == addr::NULL {
            let _op = self.lock_op().await;
            let _tree = cow.map_lock.lock().await;
            self.reserve_block(&cow, index).await?;
        }
        let _tree = inode.map_lock.lock().await;
        Ok(!addr::is_block(self.readable(inode, index).await?))
    }

    /// Errors: `Unsupported` between START and COMMIT, for a call that changes length or space.
    pub(super) fn check_not_atomic(inode: &Inode) -> FsResult<()> {
        if inode.is(fi::ATOMIC) {
            let why = "truncate and fallocate of an F2FS file between START_ATOMIC_WRITE and \
                       COMMIT_ATOMIC_WRITE; make them before or after";
            return Err(FsError::Unsupported(why.to_owned()));
        }
        Ok(())
    }

    /// `f2fs_ioc_commit_atomic_write`. The caller has the inode's `lock`.
    async fn commit_atomic(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        let ask = Ask { kind: SyncKind::Full, range: (0, u64::MAX), told, atomic: true };
        if !inode.is(fi::ATOMIC) {
            let ask = Ask { kind: SyncKind::DataOnly, atomic: false, ..ask };
            return self.fsync_as(inode, &ask).await;
        }
        // With `fsync_alone` no other fsync sends the nodes of a part of it.
        let alone = if self.opts.fsync_alone { Some(inode.sync_lock.lock().await) } else { None };
        let mut done = self.swap_all(inode, told).await;
        if done.is_ok() {
            done = self.fsync_as(inode, &ask).await;
        }
        drop(alone);
        if done.is_ok() {
            // What the last node does not have (`FI_AUTO_RECOVER`) is copied for a later sync.
            self.write_inode(inode).await?;
        }
        self.end_atomic(inode, done.is_err()).await;
        done
    }

    /// Sends and awaits the data, then gives its blocks to the file (`f2fs_commit_atomic_write`).
    async fn swap_all(self: &Rc<Self>, inode: &Rc<Inode>, told: &ErrSeqCursor) -> FsResult<()> {
        let mut sent = inode.map.writepages(&WbControl::sync_all()).await;
        if site::ATOMIC_WAIT.on() {
            inode.map.settle().await;
            sent = sent.and(F2fs::tell(inode, told));
        }
        sent?;
        let Some(cow) = inode.held_back() else { return Ok(()) };
        let op = if site::ATOMIC_SWAP.on() { Some(self.lock_op().await) } else { None };
        let mut swapped = Vec::new();
        let done = self.swap(inode, &cow, &mut swapped, op.as_ref()).await;
        let _op = match op {
            Some(op) => op,
            None => self.lock_op().await,
        };
        if done.is_err() {
            for block in swapped.into_iter().rev() {
                self.swap_back(inode, block).await?;
            }
            return done;
        }
        inode.set(fi::ATOMIC_COMMITTED);
        if inode.take(fi::ATOMIC_DIRTIED) > 0 {
            self.mark_inode_dirty(inode, true);
        }
        if inode.is(fi::ATOMIC_REPLACE) {
            self.cut_the_rest(inode, &swapped).await?;
        }
        Ok(())
    }

    /// `__f2fs_commit_atomic_write`. `op`: held from the first block to the last, so that no
    /// checkpoint is written between them.
    async fn swap(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        cow: &Rc<Inode>,
        swapped: &mut Vec<Swapped>,
        op: Option<&OpGuard>,
    ) -> FsResult<()> {
        let end = inode.size.get().div_ceil(BLOCK);
        let mut at = 0;
        while at < end {
            let _each = if op.is_none() { Some(self.lock_op().await) } else { None };
            let tree = cow.map_lock.lock().await;
            let dn = match self.dnode(cow, at, Find::Ahead).await? {
                Found::At(dn) => dn,
                Found::Hole(next) => {
                    at = next;
                    continue;
                }
            };
            let slots = dn.slot..dn.slots;
            let next = slots.clone().find(|slot| addr::is_block(dn.addr(cow, *slot)));
            let Some(slot) = next else {
                at += slots.len() as u64;
                continue;
            };
            at += u64::from(slot - dn.slot);
            if at >= end {
                break;
            }
            let new = self.checked(cow, dn.addr(cow, slot))?;
            // Who reads the file has its lock first, then this one.
            drop(tree);
            let old = self.give(inode, at, new).await?;
            swapped.push((at, old));
            let _tree = cow.map_lock.lock().await;
            self.add_blocks(cow, -1);
            self.move_block(cow, &dn, slot, addr::NULL).await;
            at += 1;
        }
        Ok(())
    }

    /// Puts a block that is on the device into the file (`__replace_atomic_write_block`). What
    /// stood there.
    async fn give(self: &Rc<Self>, inode: &Rc<Inode>, index: u64, new: u32) -> FsResult<u32> {
        let _tree = inode.map_lock.lock().await;
        let Found::At(dn) = self.dnode(inode, index, Find::Alloc).await? else {
            return Err(FsError::Invalid("a block beside inline data"));
        };
        let version = self.nat(dn.nid).await?.version;
        // Both files count the block until it has left the one.
        self.inc_valid_blocks(1)?;
        self.add_blocks(inode, 1);
        let old = dn.addr(inode, dn.slot);
        self.free_addrs(inode, &dn, dn.slot..dn.slot + 1).await?;
        self.dec_valid_blocks(1);
        self.replace_summary(new, dn.nid, version, dn.slot).await?;
        self.move_block(inode, &dn, dn.slot, new).await;
        Ok(old)
    }

    /// A COMMIT that failed: the file has its old block again, and the new one is free
    /// (`__complete_revoke_list`).
    async fn swap_back(self: &Rc<Self>, inode: &Rc<Inode>, (index, old): Swapped) -> FsResult<()> {
        let _tree = inode.map_lock.lock().await;
        let Found::At(dn) = self.dnode(inode, index, Find::Lookup).await? else { return Ok(()) };
        let new = dn.addr(inode, dn.slot);
        self.invalidate(new);
        if old == addr::NULL {
            self.dec_valid_blocks(1);
            self.add_blocks(inode, -1);
        } else if addr::is_block(old) {
            let version = self.nat(dn.nid).await?.version;
            self.revalidate(old);
            self.replace_summary(old, dn.nid, version, dn.slot).await?;
        }
        self.move_block(inode, &dn, dn.slot, old).await;
        Ok(())
    }

    /// A replaced file has only what was written since START (`F2FS_IOC_START_ATOMIC_REPLACE`).
    async fn cut_the_rest(self: &Rc<Self>, inode: &Rc<Inode>, swapped: &[Swapped]) -> FsResult<()> {
        let mut from = 0;
        for (index, _) in swapped {
            let _tree = inode.map_lock.lock().await;
            self.truncate_hole(inode, from, *index).await?;
            from = index + 1;
        }
        self.truncate_blocks(inode, from * BLOCK, false).await
    }

    /// `f2fs_abort_atomic_write`; `drops`: what was written since START is lost. The caller has the
    /// inode's `lock`. Waits: for writeback of what is dropped.
    pub(super) async fn end_atomic(&self, inode: &Rc<Inode>, drops: bool) {
        if !inode.is(fi::ATOMIC) {
            return;
        }
        if drops {
            self.drop_pages(inode, 0, u64::MAX).await;
        }
        inode.clear(fi::ATOMIC | fi::ATOMIC_COMMITTED | fi::ATOMIC_REPLACE);
        if inode.take(fi::ATOMIC_DIRTIED) > 0 {
            self.mark_inode_dirty(inode, true);
        }
        if drops {
            self.set_size(inode, inode.original_size.get());
        }
    }

    /// Nobody has the file open for writing any more, or the file system goes: an atomic write that
    /// was not committed is lost (`f2fs_release_file`).
    pub(super) async fn abort_unfinished(&self, inode: &Rc<Inode>) {
        if inode.is(fi::ATOMIC) {
            let _lock = self.lock_alone(inode).await;
            self.end_atomic(inode, true).await;
        }
    }

    /// The same of all files, before an unmount.
    pub(super) async fn abort_all(&self) {
        let all: Vec<Rc<Inode>> = self.files.inodes.borrow().values().cloned().collect();
        for inode in all {
            self.abort_unfinished(&inode).await;
        }
    }
}
