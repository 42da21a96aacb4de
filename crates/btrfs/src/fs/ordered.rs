//! Extents on their way: what has a place, is sent, and becomes items when it has arrived.
//!
//! Picture:    [`Ordered`] counts the bytes that have not ended; at 0 it is queued, and a worker
//!             (`btrfs-endio-write`) changes the trees.
//! Source:     fs/btrfs/ordered-data.c, `btrfs_finish_one_ordered` in inode.c.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, WbControl};
use wp_rt::{Rt, WaitQueue};

use crate::core::Core;
use crate::disk::file_extent::{FileExtentItem, extent_type};
use crate::disk::{id, wide};
use crate::site;

use super::inode::Inode;
use super::{BLOCK, Btrfs};

/// Where an extent's bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// To a new extent.
    New,
    /// To one that was allocated beforehand.
    Prealloc,
    /// Over what is there.
    Same,
}

/// An extent on its way. `struct btrfs_ordered_extent`.
pub(super) struct Ordered {
    /// First byte of the file.
    pub start: u64,
    pub bytes: u64,
    /// The whole extent: address and bytes.
    pub disk: (u64, u64),
    /// Byte of the extent at which this begins.
    pub offset: u64,
    pub place: Place,
    /// Bytes that have not ended.
    pub left: Cell<u64>,
    /// Bytes that count: fewer if the file was cut meanwhile.
    pub kept: Cell<u64>,
    pub has_failed: Cell<bool>,
    /// Checksums of what was sent, by address.
    pub sums: RefCell<BTreeMap<u64, Vec<u8>>>,
    /// Items promised for its end.
    pub items: Cell<u64>,
    /// Does the running transaction wait for it?
    pub is_awaited: Cell<bool>,
    /// Is it in a log?
    pub is_logged: Cell<bool>,
}

impl Ordered {
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
    /// Address of byte `at` of the file.
    pub fn address(&self, at: u64) -> u64 {
        self.disk.0 + self.offset + (at - self.start)
    }
    fn overlaps(&self, from: u64, to: u64) -> bool {
        self.start < to && self.end() > from
    }

    /// Notes the checksum of what is sent to an address, behind those before it.
    pub fn add_sum(&self, at: u64, sum: &[u8], each: usize) {
        let mut sums = self.sums.borrow_mut();
        if let Some((start, run)) = sums.range_mut(..at).next_back()
            && start + wide(run.len() / each) * BLOCK == at
        {
            run.extend(sum);
            return;
        }
        sums.insert(at, sum.to_vec());
    }

    /// The item that it becomes.
    pub fn item(&self, transid: u64) -> FileExtentItem {
        let kind = extent_type::REGULAR;
        FileExtentItem::new(kind, transid, self.disk, self.offset, self.kept.get())
    }
}

type Ending = (Rc<Inode>, Rc<Ordered>);

/// What waits for the worker.
pub(super) struct Endings {
    queue: RefCell<VecDeque<Ending>>,
    wake: Rc<WaitQueue>,
    is_stopped: Cell<bool>,
    /// Extents on their way in all.
    count: Cell<u64>,
    none: WaitQueue,
}

impl Endings {
    pub fn new(rt: &Rt) -> Endings {
        Endings {
            queue: RefCell::default(),
            wake: Rc::new(WaitQueue::new(rt, "btrfs-endio-write")),
            is_stopped: Cell::new(false),
            count: Cell::new(0),
            none: WaitQueue::new(rt, "btrfs ordered extents"),
        }
    }
    pub fn stop(&self) {
        self.is_stopped.set(true);
        self.wake.wake_all();
    }
}

impl Btrfs {
    pub(super) fn start_endings(&self) {
        let wake = self.endings.wake.clone();
        self.rt.spawn_daemon("kworker/u4:2", serve(self.me.clone(), wake));
    }

    /// An extent is on its way. `btrfs_alloc_ordered_extent`.
    pub(super) fn add_ordered(
        &self,
        inode: &Inode,
        (start, bytes): (u64, u64),
        disk: (u64, u64),
        offset: u64,
        place: Place,
    ) -> Rc<Ordered> {
        let o = Rc::new(Ordered {
            start,
            bytes,
            disk,
            offset,
            place,
            left: Cell::new(bytes),
            kept: Cell::new(bytes),
            has_failed: Cell::new(false),
            sums: RefCell::default(),
            items: Cell::new(0),
            is_awaited: Cell::new(false),
            is_logged: Cell::new(false),
        });
        inode.ordered.borrow_mut().insert(start, o.clone());
        self.endings.count.set(self.endings.count.get() + 1);
        if !site::ITEMS_LATER.on() {
            let inode = self.inode_in_memory(inode.handle);
            o.left.set(0);
            self.endings.queue.borrow_mut().extend(inode.map(|i| (i, o.clone())));
            self.endings.wake.wake_all();
        }
        o
    }

    /// `bytes` bytes of it have been written, or have failed. Also called in interrupt context.
    pub(super) fn end_part(&self, inode: &Rc<Inode>, o: &Rc<Ordered>, bytes: u64, failed: bool) {
        if failed {
            o.has_failed.set(true);
        }
        let left = o.left.get().saturating_sub(bytes);
        let was_left = o.left.replace(left);
        if left == 0 && was_left > 0 {
            self.endings.queue.borrow_mut().push_back((inode.clone(), o.clone()));
            self.endings.wake.wake_all();
        }
    }

    /// Bytes of a file got items in a transaction.
    pub(super) fn note_modified(&self, inode: &Inode, from: u64, to: u64, transid: u64) {
        let mut modified = inode.logged.modified.borrow_mut();
        if modified.0 != transid {
            *modified = (transid, Default::default());
        }
        modified.1.cut(from, to - from);
        // There is none of it, so it cannot be there twice.
        let _ = modified.1.add(from, to - from);
    }

    /// Extents on their way that no log has. `btrfs_get_ordered_extents_for_logging`.
    pub(super) fn ordered_to_log(&self, inode: &Inode) -> Vec<Rc<Ordered>> {
        inode.ordered.borrow().values().filter(|o| !o.is_logged.get()).cloned().collect()
    }

    /// The ordered extent that a byte of a file lies in.
    pub(super) fn ordered_at(&self, inode: &Inode, at: u64) -> Option<Rc<Ordered>> {
        let all = inode.ordered.borrow();
        let (_, o) = all.range(..=at).next_back()?;
        (o.end() > at).then(|| o.clone())
    }

    fn ordered_in(&self, inode: &Inode, from: u64, to: u64) -> Option<Rc<Ordered>> {
        let all = inode.ordered.borrow();
        all.values().find(|o| o.overlaps(from, to)).cloned()
    }

    /// Waits: until no extent of `from..to` is on its way; what has a place and was not sent is
    /// sent. `btrfs_start_ordered_extent` for each.
    pub(super) async fn wait_ordered(&self, inode: &Rc<Inode>, from: u64, to: u64) {
        while let Some(o) = self.ordered_in(inode, from, to) {
            let range = (o.start / BLOCK, o.end().div_ceil(BLOCK) - 1);
            let wbc = WbControl { range, ..WbControl::sync_all() };
            // What fails is told by the file's error.
            let _ = inode.map.writepages(&wbc).await;
            loop {
                let now = inode.ordered.borrow().get(&o.start).cloned();
                if !now.is_some_and(|n| Rc::ptr_eq(&n, &o)) || self.has_ended() {
                    break;
                }
                inode.ordered_done.wait().await;
            }
            if self.has_ended() {
                return;
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.endings.is_stopped.get()
    }

    /// Waits: for each block of `first..=last` under writeback, in order, so that who waits is
    /// woken by the end of the first bio and goes on before the worker whom the end of an extent
    /// calls.
    /// Errors: `Io` if a write failed that nobody was told of. `filemap_fdatawait_range`.
    pub(super) async fn wait_blocks(
        &self,
        inode: &Inode,
        (first, last): (u64, u64),
    ) -> FsResult<()> {
        let next = |from: u64| {
            let writing = inode.writing.borrow();
            if from <= last { writing.range(from..=last).next().copied() } else { None }
        };
        let mut at = next(first);
        while let Some(block) = at {
            if let Some(b) = inode.map.peek(block) {
                b.wait_clear(BufFlag::Writeback).await;
            }
            at = next(block + 1);
        }
        if inode.map.has_error() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Sends what was written of `from..to`, and waits until items lead to it. Errors: `Io` if a
    /// write failed. `btrfs_wait_ordered_range`.
    pub(super) async fn write_ordered(
        &self,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> FsResult<()> {
        if from >= to {
            return Ok(());
        }
        let range = (from / BLOCK, (to - 1) / BLOCK);
        let wbc = WbControl { range, ..WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        let arrived = self.wait_blocks(inode, range).await;
        self.wait_ordered(inode, from, to).await;
        written.and(arrived)
    }

    /// Waits: until nothing is on its way. `btrfs_wait_ordered_roots`.
    pub(super) async fn wait_all_ordered(&self) {
        loop {
            let some = {
                let inodes = self.inodes.borrow();
                inodes.values().find(|i| !i.ordered.borrow().is_empty()).cloned()
            };
            match some {
                Some(inode) => self.wait_ordered(&inode, 0, u64::MAX).await,
                None if self.endings.count.get() > 0 && !self.has_ended() => {
                    self.endings.none.wait().await;
                }
                None => return,
            }
            if self.has_ended() {
                return;
            }
        }
    }

    /// An extent has arrived: items lead to it. `btrfs_finish_one_ordered`.
    async fn finish_ordered(&self, inode: &Rc<Inode>, o: &Rc<Ordered>) {
        let kept = o.kept.get();
        let has_failed = o.has_failed.get() || self.has_failed.get();
        let done = if has_failed || (kept == 0 && o.place == Place::New) {
            // Nothing leads there; what was sent may still be on its way in the device.
            if o.place == Place::New {
                self.with(|c| match has_failed {
                    true => c.pin_reserved(o.disk.0, o.disk.1),
                    false => c.free_reserved(o.disk.0, o.disk.1),
                })
            } else {
                Ok(())
            }
        } else {
            self.must(|c| self.make_items(c, inode, o))
        };
        if done.is_err() {
            inode.map.errors().set();
        }
        let read = self.settle().await;
        if read.is_err() {
            self.abort();
        }
        self.unpromise(o.items.take());
        let removed = {
            let mut all = inode.ordered.borrow_mut();
            match all.get(&o.start) {
                Some(now) if Rc::ptr_eq(now, o) => all.remove(&o.start).is_some(),
                _ => false,
            }
        };
        if removed {
            self.endings.count.set(self.endings.count.get().saturating_sub(1));
        }
        if o.is_awaited.replace(false) {
            let pending = &self.commits.pending;
            pending.set(pending.get().saturating_sub(1));
            self.commits.pending_done.wake_all();
        }
        inode.ordered_done.wake_all();
        if self.endings.count.get() == 0 {
            self.endings.none.wake_all();
        }
        self.note_unused(inode);
    }

    fn make_items(&self, c: &mut Core<'static>, inode: &Inode, o: &Ordered) -> FsResult<()> {
        let (tree, kept) = (inode.tree, o.kept.get());
        let transid = c.transid_begun()?;
        match o.place {
            Place::New => {
                let dropped = c.drop_extents(tree, inode.ino, o.start, o.start + kept)?;
                c.insert_extent_item(tree, inode.ino, o.start, &o.item(transid), true)?;
                inode.add_bytes(kept, dropped);
            }
            Place::Prealloc if kept > 0 => {
                c.mark_written(tree, inode.ino, o.start, o.start + kept)?;
            }
            Place::Prealloc | Place::Same => {}
        }
        for (at, sums) in o.sums.borrow().iter().filter(|_| site::DATA_SUMS.on()) {
            c.insert_csums(id::CSUM_TREE, *at, sums)?;
        }
        if o.place != Place::Same {
            self.note_modified(inode, o.start, o.start + kept, transid);
        }
        inode.disk_size.set(inode.size());
        match self.update_inode(c, inode) {
            // It was deleted meanwhile.
            Err(FsError::NotFound) if inode.is_gone.get() => Ok(()),
            other => other,
        }
    }
}

/// The worker. `btrfs_work_helper` of `endio_write_workers`.
async fn serve(fs: Weak<Btrfs>, wake: Rc<WaitQueue>) {
    loop {
        let woken = wake.wait();
        let Some(up) = fs.upgrade() else { return };
        let next = up.endings.queue.borrow_mut().pop_front();
        match next {
            Some((inode, o)) => {
                drop(woken);
                up.finish_ordered(&inode, &o).await;
            }
            None if up.endings.is_stopped.get() => return,
            None => {
                drop(up);
                woken.await;
            }
        }
    }
}
