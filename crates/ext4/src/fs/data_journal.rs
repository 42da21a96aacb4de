//! `data=`: how a file's data and its metadata keep together; and data that goes through the
//! journal.
//!
//! Picture:    ordered: the commit waits for the data of new blocks. writeback: nobody waits.
//!             journal: `write()` logs the block like metadata; the commit makes it durable, and
//!             afterwards it goes to its place like any checkpoint.
//! Invariants: 1. a block that the journal holds is written home only after its commit.
//!             2. a block that is cut off leaves the journal before it is freed.
//! Source:     Linux `ext4_journalled_write_end`, `ext4_do_writepages` and
//!             `mpage_prepare_extent_to_map` (6.4 and later), `__ext4_journalled_invalidate_folio`,
//!             `ext4_forget`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer, WbControl};
use wp_jbd2::{Handle, JournalInode};

use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;

/// Credits of the handle that writeback of journalled data holds: it changes nothing.
const CREDITS_WRITEBACK: u32 = 8;

/// `data=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DataMode {
    /// Data of new blocks is on the device before the transaction that places them.
    #[default]
    Ordered,
    /// Data goes when it goes.
    Writeback,
    /// Data goes through the journal.
    Journal,
}

impl DataMode {
    /// The mode that the mount option names.
    pub fn from_name(name: &str) -> Option<DataMode> {
        match name {
            "ordered" => Some(DataMode::Ordered),
            "writeback" => Some(DataMode::Writeback),
            "journal" => Some(DataMode::Journal),
            _ => None,
        }
    }
}

impl Ext4 {
    /// Does this file's data go through the journal (`ext4_should_journal_data`)?
    pub(super) fn journals_data(&self, inode: &Inode) -> bool {
        let disk = inode.disk.borrow();
        let all = self.opts.data == DataMode::Journal;
        // The flag of a file has no effect beside delayed allocation. `ext4_inode_journal_mode` has
        // it of all links; those of other modes are written in order.
        let own = disk.has(flag::JOURNAL_DATA) && !self.opts.delalloc;
        disk.is_file() && (all || own) || disk.is_symlink() && all
    }

    /// Must transactions that place this file's data wait for it (`ext4_should_order_data`)? Not
    /// with `buffered_iomap`.
    pub(super) fn orders_data(&self, inode: &Inode) -> bool {
        self.opts.data != DataMode::Writeback && !self.journals_data(inode) && !inode.iomap.get()
    }

    /// The inode's ordered-data handle for the journal.
    pub(super) fn jinode(self: &Rc<Self>, inode: &Rc<Inode>) -> Rc<JournalInode> {
        let mut slot = inode.jinode.borrow_mut();
        slot.get_or_insert_with(|| {
            let data: Rc<dyn wp_jbd2::OrderedData> = inode.clone();
            self.journal().new_inode(Rc::downgrade(&data))
        })
        .clone()
    }

    /// Does delayed allocation that gives written blocks put a file on the ordered list?
    pub(super) fn files_delayed(&self, inode: &Inode) -> bool {
        let era = &self.opts.era;
        self.orders_data(inode) && (era.files_allocating_writeback() || era.files_in_map_blocks())
    }

    /// Says that a block of journalled data is about to change.
    ///
    /// Waits: as every access to a buffer of the journal.
    pub(super) async fn data_access(
        &self,
        h: &Handle,
        inode: &Inode,
        b: &Rc<Buffer>,
    ) -> FsResult<()> {
        h.get_write_access_in(&inode.map, b).await.map(|_| ())
    }

    /// Logs a changed block of data (`ext4_journalled_write_end`).
    pub(super) fn data_dirty(&self, h: &Handle, inode: &Rc<Inode>, b: &Rc<Buffer>) -> FsResult<()> {
        h.dirty_metadata(b)?;
        if crate::site::JOURNAL_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        if self.opts.era.journalled_data_home() {
            // The page is dirty though its buffer is the journal's: writeback will come by.
            inode.map.tag(b);
        }
        Ok(())
    }

    /// Writes home what has committed; first, for a waiting caller, has it committed.
    ///
    /// Waits: for that commit, and for writes in flight if the caller waits.
    pub(super) async fn write_journalled(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        wbc: &WbControl,
    ) -> FsResult<()> {
        let handle = if self.opts.era.journalled_data_home() {
            if wbc.sync && crate::site::JOURNAL_COMMIT.on() {
                self.journal().complete_transaction(inode.datasync_tid.get()).await?;
            }
            // Held for pages that were dirtied behind the file system's back. There are none here,
            // but its transaction commits all the same.
            Some(self.start(CREDITS_WRITEBACK).await?)
        } else {
            None
        };
        let mut next = wbc.range.0;
        while wbc.budget.get() > 0 {
            let Some(index) = inode.map.first_tagged(next, wbc.range.1) else {
                break;
            };
            next = index + 1;
            let Some(b) = inode.map.peek(index) else {
                inode.map.drop_tag(index);
                continue;
            };
            if b.flag(BufFlag::Writeback) && wbc.sync && crate::site::JOURNAL_AGAIN.on() {
                b.wait_clear(BufFlag::Writeback).await;
            }
            let run = self.dirty_run(inode, index, wbc.range.1, wbc.budget.get());
            if run.is_empty() {
                // Still the journal's: its commit makes it dirty.
                if b.jh() == 0 && !b.flag(BufFlag::Writeback) {
                    inode.map.drop_tag(index);
                }
                continue;
            }
            self.submit_run(inode, &run, wbc, None);
            next = index + run.len() as u64;
            wbc.budget.set(wbc.budget.get().saturating_sub(run.len() as u64));
        }
        match handle {
            Some(h) => self.stop(h, Ok(())).await,
            None => Ok(()),
        }
    }

    /// Takes blocks from `first` on away from the journal: they are about to be cut off.
    ///
    /// Waits: while one is being written to its home.
    pub(super) async fn invalidate_journalled(&self, inode: &Inode, first: u64) {
        let journal = self.journal();
        for b in inode.map.range(first, u64::MAX) {
            if b.jh() != 0 && crate::site::JOURNAL_INVALIDATE.on() {
                journal.invalidate(&b).await;
            }
        }
    }

    /// Zeroes a part of a block of journalled data, in a handle of its own.
    pub(super) async fn zero_journalled(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        b: &Rc<Buffer>,
        range: std::ops::Range<usize>,
    ) -> FsResult<()> {
        let h = self.start(2).await?;
        let out = async {
            self.data_access(&h, inode, b).await?;
            b.with_mut(|bytes| bytes[range].fill(0));
            self.data_dirty(&h, inode, b)
        }
        .await;
        self.stop(h, out).await
    }

    /// Freed metadata must not be replayed over what comes after it: its older copies are revoked.
    /// Not under `data=journal`, where what comes after it is in the journal too (`ext4_forget`).
    pub(super) async fn forget_block(&self, h: &Handle, block: u64) -> FsResult<()> {
        let cached = self.bdev.peek(block);
        if self.opts.data != DataMode::Journal {
            return h.revoke(block, cached.as_ref()).await;
        }
        match cached {
            Some(b) if b.jh() != 0 => h.forget(&b).await,
            _ => Ok(()),
        }
    }

    /// The first open remembers in the super block where this is mounted
    /// (`ext4_sample_last_mounted`).
    pub(super) async fn sample_mount_point(&self) -> FsResult<()> {
        if self.mount_point_sampled.replace(true) || !self.opts.era.samples_mount_point() {
            return Ok(());
        }
        let path = self.opts.mount_point.as_bytes();
        let h = match self.start(1).await {
            // Nothing can be remembered any more, and nobody is told.
            Err(FsError::ReadOnly) => return Ok(()),
            other => other?,
        };
        let out = self
            .change_super(&h, |sb| {
                let n = path.len().min(sb.last_mounted.len() - 1);
                sb.last_mounted = [0; 64];
                sb.last_mounted[..n].copy_from_slice(&path[..n]);
            })
            .await;
        self.stop(h, out).await
    }
}
