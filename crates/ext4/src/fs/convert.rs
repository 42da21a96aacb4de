//! The end of writeback to unwritten extents: conversion, in a task of its own and a handle that
//! was reserved before.
//!
//! Picture:    writepages: allocate unwritten -> bios, which share an [`IoEnd`] -> last completion
//!             puts it on the inode's list -> the worker converts, then ends the writeback of its
//!             blocks: who waits for them (fsync) commits the conversion too.
//! Invariants: 1. a block's `Writeback` ends after its extent was converted, so no truncate comes
//!                in between.
//!             2. an [`IoEnd`] has its credits from the start: conversion never waits for room in
//!                the log, which might wait for this writeback.
//! Source:     Linux `fs/ext4/page-io.c` (`ext4_end_bio`, `ext4_add_complete_io`,
//!             `ext4_do_flush_completed_IO`, `ext4_end_io_end`); "ext4: defer clearing of
//!             PageWriteback after extent conversion" (3.11).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use wp_base::{BlockSize, FsError, FsResult};
use wp_block::BioEnd;
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Reserved;
use wp_rt::{Rt, WaitQueue};

use super::inode::Inode;
use super::mount::{Ext4, MountOptions};
use crate::site;

/// What the bios of one run share (`ext4_io_end_t`).
pub(super) struct IoEnd {
    inode: Rc<Inode>,
    bufs: Vec<Rc<Buffer>>,
    reserved: Cell<Option<Reserved>>,
    /// Bios not complete yet.
    left: Cell<usize>,
    failed: Cell<bool>,
    /// Of `buffered_iomap`: is the extent unwritten, and up to which byte is it data?
    iomap: Option<(bool, u64)>,
}

impl IoEnd {
    /// For `bios` bios that write `bufs`, consecutive blocks of an unwritten run.
    pub fn new(
        inode: &Rc<Inode>,
        bufs: &[Rc<Buffer>],
        reserved: Option<Reserved>,
        bios: usize,
    ) -> Rc<IoEnd> {
        Rc::new(IoEnd {
            inode: inode.clone(),
            bufs: bufs.to_vec(),
            reserved: Cell::new(reserved),
            left: Cell::new(bios),
            failed: Cell::new(false),
            iomap: None,
        })
    }

    /// The same of `buffered_iomap`: is the run unwritten, and up to which byte is it data?
    pub fn of_iomap(
        inode: &Rc<Inode>,
        bufs: &[Rc<Buffer>],
        iomap: (bool, u64),
        bios: usize,
    ) -> Rc<IoEnd> {
        let (inode, bufs) = (inode.clone(), bufs.to_vec());
        let (left, failed) = (Cell::new(bios), Cell::new(false));
        let reserved = Cell::new(None);
        Rc::new(IoEnd { inode, bufs, reserved, left, failed, iomap: Some(iomap) })
    }

    pub fn inode(&self) -> &Rc<Inode> {
        &self.inode
    }

    pub fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// First block and the one behind the last.
    pub fn blocks(&self) -> (u64, u64) {
        let first = self.bufs[0].block();
        (first, first + self.bufs.len() as u64)
    }

    /// Is this block one of it?
    pub fn has(&self, block: u64) -> bool {
        let (first, to) = self.blocks();
        (first..to).contains(&block)
    }

    /// Its extent is unwritten still.
    pub fn mark_unwritten(&self) {
        self.bufs.iter().for_each(|b| b.set(BufFlag::Unwritten));
    }

    /// Ends the writeback of all.
    pub fn end_writeback(&self, failed: bool) {
        self.bufs.iter().for_each(|b| self.inode.map.end_writeback(b, failed));
    }
}

/// Completed writeback that waits for its conversion (`rsv_conversion_wq`: one item at a time).
pub(super) struct Conversions {
    /// One entry an inode: its list, until the worker takes it.
    queue: RefCell<VecDeque<Vec<Rc<IoEnd>>>>,
    wake: Rc<WaitQueue>,
    stopped: Cell<bool>,
}

impl Conversions {
    pub(super) fn new(rt: &Rt) -> Conversions {
        Conversions {
            queue: RefCell::default(),
            wake: Rc::new(WaitQueue::new(rt, "ext4-rsv-conversion work")),
            stopped: Cell::new(false),
        }
    }

    /// Ends the worker. For unmount: nothing is under writeback any more.
    pub(super) fn stop(&self) {
        self.stopped.set(true);
        self.wake.wake_all();
    }

    fn add(&self, end: Rc<IoEnd>) {
        let mut queue = self.queue.borrow_mut();
        match queue.iter_mut().find(|list| Rc::ptr_eq(&list[0].inode, &end.inode)) {
            Some(list) => list.push(end),
            None => queue.push_back(vec![end]),
        }
        drop(queue);
        self.wake.wake_all();
    }
}

/// Does a mount with these options allocate buffered writes unwritten? Errors: `Unsupported` if
/// that was asked for where it cannot be.
pub(super) fn dioread_nolock(o: &MountOptions, bs: BlockSize) -> FsResult<bool> {
    let small = (bs.bytes() as usize) < wp_medium::PAGE_BYTES;
    let era = &o.era;
    let default = era.dioread_nolock_default()
        && (!small
            || era.dioread_nolock_default_small_early()
            || era.dioread_nolock_default_small());
    match o.dioread_nolock {
        Some(true) if !era.reserved_conversion() => Err(FsError::Unsupported(
            "dioread_nolock before 3.11: conversion without reserved handles is not built".into(),
        )),
        Some(true) if small && !era.dioread_nolock_small() => Err(FsError::Unsupported(
            "dioread_nolock with blocks smaller than a page: kernels before 5.6 refuse it".into(),
        )),
        given => Ok(given.unwrap_or(default)),
    }
}

impl Ext4 {
    /// Are buffered writes of this file allocated unwritten (`ext4_should_dioread_nolock`)?
    pub(super) fn writes_unwritten(&self, inode: &Inode) -> bool {
        if inode.iomap.get() {
            return true;
        }
        self.dioread_nolock
            && inode.disk.borrow().is_file()
            && !self.journals_data(inode)
            && inode.has(crate::disk::inode::flag::EXTENTS)
            && !self.journals_data(inode)
            && (self.opts.delalloc || !self.opts.era.dioread_needs_delalloc())
    }

    /// Starts the worker.
    pub(super) fn start_conversions(self: &Rc<Self>) {
        let (weak, wake) = (Rc::downgrade(self), self.conversions.wake.clone());
        let task = self.opts.conversion_task.as_str();
        self.rt.spawn_daemon(task, run(weak, wake));
    }

    /// A bio of an unwritten run is complete; interrupt context.
    pub(super) fn bio_done(&self, io: &Rc<IoEnd>, end: &BioEnd) {
        if end.status.is_err() {
            io.failed.set(true);
        }
        io.left.set(io.left.get() - 1);
        if io.left.get() == 0 {
            self.conversions.add(io.clone());
        }
    }

    /// Converts what was written and ends its writeback.
    async fn finish(self: &Rc<Self>, io: &IoEnd) {
        if let Some(what) = io.iomap {
            return Box::pin(self.finish_iomap(io, what)).await;
        }
        let (first, to) = io.blocks();
        let wrote = !io.failed.get() || !self.opts.era.keeps_failed_unwritten();
        let late = site::CONVERT_FIRST.on();
        if !late {
            io.end_writeback(io.failed.get());
        }
        let converted = match io.reserved.take() {
            Some(reserved) if wrote => self.convert_reserved(&io.inode, first, to, reserved).await,
            None if wrote => Err(FsError::Io),
            _ => Ok(()),
        };
        let failed = io.failed.get() || converted.is_err();
        if late {
            io.end_writeback(failed);
        }
    }

    async fn convert_reserved(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        reserved: Reserved,
    ) -> FsResult<()> {
        let h = self.journal().start_reserved(reserved).await?;
        let map = inode.map_lock.lock().await;
        let out = async {
            if site::CONVERT.on() {
                self.set_state(&h, inode, from, to, false).await?;
            }
            self.write_inode(&h, inode).await
        }
        .await;
        if site::CONVERT_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        drop(map);
        self.stop(h, out).await
    }
}

/// The worker's task.
async fn run(weak: Weak<Ext4>, wake: Rc<WaitQueue>) {
    loop {
        let Some(fs) = weak.upgrade() else { return };
        let next = fs.conversions.queue.borrow_mut().pop_front();
        match next {
            Some(list) => {
                for io in list {
                    fs.finish(&io).await;
                }
            }
            None if fs.conversions.stopped.get() => return,
            None => {
                let woken = wake.wait();
                drop(fs);
                woken.await;
            }
        }
    }
}
