//! Lazy initialisation of inode tables: what `mkfs` left unwritten is zeroed in the background, so
//! that a later `e2fsck` need not believe the descriptors.
//!
//! Picture:    task `ext4lazyinit`: wait (at first up to 5 s, by chance) -> one group's unused
//!             table blocks are zeroed in a handle that also sets `INODE_ZEROED` -> wait ten times
//!             as long as the first group took -> next group.
//! Invariants: an inode is put into an unused part of a table only when that part is not being
//!             zeroed ([`Ext4::itable_guard`], the kernel's `alloc_sem`).
//! Left out:   the reading ahead of block bitmaps that the same thread does since 5.9.
//! Source:     Linux 6.1 `ext4_lazyinit_thread`, `ext4_run_li_request` (`fs/ext4/super.c`),
//!             `ext4_init_inode_table` (`fs/ext4/ialloc.c`), `__blkdev_issue_zero_pages`.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, Span};
use wp_block::Bio;
use wp_medium::Slice;
use wp_rt::{Lock, LockGuard, Rt};

use super::mount::Ext4;
use crate::disk::GroupDesc;

/// Seconds within which the first group is initialized (`EXT4_DEF_LI_MAX_START_DELAY`).
const START_DELAY_SECS: u64 = 5;

/// The state that the thread and its file system share.
pub(super) struct LazyInit {
    /// A table is being zeroed.
    zeroing: Lock<()>,
    /// A step is under way; unmounting waits for it.
    step: Lock<()>,
    stopped: Cell<bool>,
}

impl LazyInit {
    pub(super) fn new(rt: &Rt) -> LazyInit {
        LazyInit {
            zeroing: Lock::new(rt, "alloc_sem", ()),
            step: Lock::new(rt, "lazy init", ()),
            stopped: Cell::new(false),
        }
    }
}

impl Ext4 {
    /// Starts the thread, if a table needs it and the mount options allow it
    /// (`ext4_register_li_request`). `multiplier` is that of `init_itable=`.
    pub(super) fn start_lazy_init(self: &Rc<Self>, multiplier: u32) {
        let Some(first) = self.next_not_zeroed(0) else { return };
        let thread = run(Rc::downgrade(self), self.rt.clone(), first, multiplier);
        self.rt.spawn_daemon("ext4lazyinit", thread);
    }

    /// Ends the thread; waits for a step under way (`ext4_unregister_li_request`).
    pub(super) async fn stop_lazy_init(&self) {
        self.lazy.stopped.set(true);
        drop(self.lazy.step.lock().await);
    }

    /// The first group from `group` on whose table is not known to be zero.
    fn next_not_zeroed(&self, group: u32) -> Option<u32> {
        if !self.csum.descriptors() {
            return None;
        }
        (group..self.geo.groups).find(|g| !self.group_desc(*g).has(GroupDesc::INODE_ZEROED))
    }

    /// Waits until no table is being zeroed, if the group's may be; held while the descriptor says
    /// that more of the table is in use.
    pub(super) async fn itable_guard(&self, group: u32) -> Option<LockGuard<'_, ()>> {
        if self.group_desc(group).has(GroupDesc::INODE_ZEROED) {
            return None;
        }
        Some(self.lazy.zeroing.lock().await)
    }

    /// Zeroes what is unused of a group's table. `flush`: before the descriptor says so.
    ///
    /// Errors: `Corrupt` if the count of unused inodes cannot be, `Io`.
    async fn init_inode_table(&self, group: u32, flush: bool) -> FsResult<()> {
        let h = self.start(1).await?;
        let zeroing = self.lazy.zeroing.lock().await;
        let out = async {
            let desc = self.group_desc(group);
            let per = self.geo.inodes_per_group;
            let mut used = 0;
            if !desc.has(GroupDesc::INODE_UNINIT) {
                let inodes = per.checked_sub(desc.itable_unused()).ok_or_else(|| {
                    FsError::corrupt(
                        "ext4 group descriptor",
                        "bg_itable_unused",
                        self.desc_address(group),
                        u64::from(desc.itable_unused()),
                        format!("at most {per}"),
                    )
                })?;
                used = inodes.div_ceil(self.bs().bytes() / u32::from(self.geo.inode_bytes));
            }
            let len = self.geo.itable_blocks.saturating_sub(used);
            self.zero_blocks(desc.inode_table() + u64::from(used), len).await?;
            if flush && len > 0 && self.opts.barrier && crate::site::LAZY_FLUSH.on() {
                self.bdev.queue().flush().await.map_err(|_| FsError::Io)?;
            }
            self.change_desc(&h, group, |d| {
                d.flags = (d.flags.get() | GroupDesc::INODE_ZEROED).into();
            })
            .await
        }
        .await;
        drop(zeroing);
        self.stop(h, out).await
    }

    /// Writes zeroes, in bios as large as they get, and waits for them (`sb_issue_zeroout` on a
    /// device without a command for it).
    async fn zero_blocks(&self, first: u64, len: u32) -> FsResult<()> {
        let plug = self.bdev.queue().plug();
        let mut waits = Vec::new();
        let mut at = 0;
        while at < len {
            let n = (len - at).min(self.bio_blocks() as u32);
            let segs = (0..n).map(|_| Slice::zero(self.bs().bytes())).collect();
            // The chain's last bio is the one that is waited for.
            let flags = if at + n == len { Flags::SYNC } else { Flags::NONE };
            let bio = Bio::write(self.bs().sector_of(first + u64::from(at)), segs, flags);
            let queue = self.bdev.queue().clone();
            waits.push(self.rt.spawn("ext4lazyinit", async move { queue.submit_wait(bio).await }));
            at += n;
        }
        drop(plug);
        for w in waits {
            if crate::site::LAZY_WAIT.on() {
                w.await.map_err(|_| FsError::Io)?;
            }
        }
        Ok(())
    }
}

/// The thread. It holds the file system only during a step.
async fn run(fs: Weak<Ext4>, rt: Rt, first: u32, multiplier: u32) {
    let Some(hz) = fs.upgrade().map(|f| f.opts.writeback.hz) else { return };
    let tick = Span(1_000_000_000 / hz);
    let mut wait = Span(tick.0 * rt.rng("ext4 lazy init").below(START_DELAY_SECS * hz));
    let mut timeout_ticks = 0;
    let mut next = first;
    loop {
        rt.sleep(wait).await;
        let Some(fs) = fs.upgrade() else { return };
        let _step = fs.lazy.step.lock().await;
        if fs.lazy.stopped.get() || !fs.is_mounted() {
            return;
        }
        let Some(group) = fs.next_not_zeroed(next) else { return };
        let began = rt.now();
        // An error ends the thread; one that matters has stopped the journal.
        if fs.init_inode_table(group, timeout_ticks == 0).await.is_err() {
            return;
        }
        if timeout_ticks == 0 {
            timeout_ticks = rt.now().since(began).0 * u64::from(multiplier) / tick.0;
        }
        wait = Span(tick.0 * timeout_ticks);
        next = group + 1;
    }
}
