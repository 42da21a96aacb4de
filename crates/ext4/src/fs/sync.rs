//! `fsync`, `sync`, and the data that the journal writes itself.
//!
//! Source: Linux `ext4_sync_file` (`fs/ext4/fsync.c`), `sync_filesystem`, `ext4_sync_fs`.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_block::Quasi;
use wp_cache::WbControl;
use wp_jbd2::OrderedData;
use wp_rt::CpuOp;
use wp_vfs::{ErrSeqCursor, SyncKind};

use super::inode::Inode;
use super::mount::Ext4;
use crate::site;

/// The inode's data as the committing journal sees it.
impl OrderedData for Inode {
    fn ino(&self) -> u64 {
        u64::from(self.ino)
    }

    /// Dirty blocks that have their place already: the journal may not allocate in its own commit.
    fn submit<'a>(&'a self, range: (u64, u64)) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        Box::pin(async move {
            let wbc = WbControl { range, mapped_only: true, ..WbControl::sync_all() };
            if !site::SUBMIT_ORDERED.on() {
                return Ok(());
            }
            self.map.writepages(&wbc).await
        })
    }

    fn is_clean(&self) -> bool {
        !self.map.has_dirty()
    }

    fn is_written(&self) -> bool {
        self.map.is_settled()
    }

    fn waited_for(&self, class: Quasi) {
        self.map.note_wait(class);
    }

    fn dispatched<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(self.map.wait_dispatched())
    }

    fn wait<'a>(&'a self) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>> {
        // The flag stays for fsync: until 4.13 the journal took it and set it again.
        Box::pin(async move {
            if !site::WAIT_ORDERED.on() {
                return Ok(());
            }
            self.map.wait_and_keep_error().await
        })
    }
}

impl Ext4 {
    /// Makes one file durable. Waits: for its data, for the commit of its transaction, for a flush
    /// if that commit will not send one.
    pub(super) async fn fsync(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        kind: SyncKind,
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        if self.opts.ordering_only && self.opts.dual.is_some() {
            return Box::pin(self.order_file(inode, kind == SyncKind::DataOnly, told)).await;
        }
        self.sync_range(inode, kind, (0, u64::MAX), told).await
    }

    /// [`Ext4::fsync`] that writes only the data of blocks `range`, both ends included: what
    /// follows an `O_SYNC` write (`generic_write_sync`).
    pub(super) async fn fsync_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        kind: SyncKind,
        range: (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        let done = self.sync_range(inode, kind, range, told).await;
        if !self.opts.barrier && self.opts.sync_flushes() && site::FSYNC_FLUSH.on() {
            // Only `fsync` and `fdatasync` are no more than an order.
            let flushed = self.bdev.queue().flush().await;
            return done.and(flushed.map_err(|_| FsError::Io));
        }
        done
    }

    async fn sync_range(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        kind: SyncKind,
        range: (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        if self.is_stopped() {
            return if self.opts.era.fsync_knows_abort() { Err(FsError::ReadOnly) } else { Ok(()) };
        }
        let done = self.write_and_commit(inode, kind, range, told).await;
        self.rt.cpu(CpuOp::SyncEnd, 1).await;
        // What failed meanwhile is told now, not the next time.
        let failed = self.tell(inode, told);
        done.and(failed)
    }

    /// Is the open file to be told of a failed write (`file_check_and_advance_wb_err`)? Only since
    /// 4.13; before, waiting for writeback tells.
    pub(super) fn tell(&self, inode: &Inode, told: &ErrSeqCursor) -> FsResult<()> {
        if !self.opts.era.errors_by_open_file() {
            return Ok(());
        }
        inode.map.take_error();
        if inode.map.errors().check_and_advance(&told.data) { Err(FsError::Io) } else { Ok(()) }
    }

    /// What a file that is opened now has been told.
    pub(super) fn told(&self, inode: &Inode) -> ErrSeqCursor {
        let (era, told) = (&self.opts.era, ErrSeqCursor::default());
        if era.errors_by_open_file() {
            told.data.set(inode.map.errors().sample(era.errors_wait_for_a_file()));
        }
        if era.syncfs_tells_errors() {
            told.fs.set(self.wb.errors().sample(true));
        }
        told
    }

    async fn write_and_commit(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        kind: SyncKind,
        range: (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        self.rt.cpu(CpuOp::SyncStart, 1).await;
        let range = self.pages_of(range.0, range.1.saturating_add(1));
        let wbc = WbControl { range, ..WbControl::sync_all() };
        let mut written = Ok(());
        if site::FSYNC_WRITE.on() {
            written = inode.map.writepages(&wbc).await;
        }
        if self.dispatches_only(inode) && kind == SyncKind::Full {
            written?;
            if site::FSYNC_DISPATCH.on() {
                inode.map.wait_dispatched().await;
            }
        } else if site::FSYNC_WAIT.on() {
            inode.map.note_wait(Quasi::Sync);
            let arrived = if self.opts.era.errors_by_open_file() {
                inode.map.settle().await;
                self.tell(inode, told)
            } else {
                inode.map.wait_writeback().await
            };
            written.and(arrived)?;
        }
        let _mutex =
            if self.opts.era.fsync_takes_mutex() { Some(inode.lock.lock().await) } else { None };
        let tid = match kind {
            SyncKind::Full => inode.sync_tid.get(),
            SyncKind::DataOnly => inode.datasync_tid.get(),
        };
        let journal = self.journal();
        let forces = self.journals_data(inode) && !self.opts.era.journalled_data_home();
        if inode.is_dir() || forces {
            // What is no regular file counts as journalled data (`ext4_inode_journal_mode`):
            // whatever transaction runs is committed, and without one nothing is flushed.
            return match site::FSYNC_WHOLE.on() {
                true => journal.force_commit().await,
                false => Ok(()),
            };
        }
        let needs_flush = self.opts.barrier && !journal.will_send_data_barrier(tid);
        if site::FSYNC_COMMIT.on() {
            self.fast_commit(inode, tid).await?;
        }
        if self.dispatches_only(inode)
            && kind == SyncKind::Full
            && !self.opts.era.errors_by_open_file()
            && inode.map.take_error()
        {
            // Nobody has waited for the data: they have arrived with the record, or failed.
            return Err(FsError::Io);
        }
        if needs_flush
            && self.dispatches_only(inode)
            && kind == SyncKind::Full
            && site::FSYNC_ARRIVE.on()
        {
            // The flush is of what has arrived.
            inode.map.wait_writeback().await?;
        }
        if needs_flush && site::FSYNC_FLUSH.on() {
            self.bdev.queue().flush().await.map_err(|_| FsError::Io)?;
        }
        Ok(())
    }

    /// Is it enough that the device has a file's data when its transaction commits? Not where the
    /// transaction that shows the data begins after it has arrived.
    fn dispatches_only(&self, inode: &Inode) -> bool {
        self.opts.dual.is_some() && !self.writes_unwritten(inode) && !self.journals_data(inode)
    }

    /// Has what was written to a file reach the device, in its order, before what comes after this
    /// call; `data_only`: only the data, and what is needed to find it.
    ///
    /// Waits: until the device has the data and the transaction, not for their completion; where
    /// neither carries a barrier behind what the file sent before, for a flush. Errors:
    /// `Unsupported` without BarrierFS' journaling. Source: `ext4_fbarrier_file` of its kernel,
    /// which puts nothing in order where no transaction is left to commit.
    pub(super) async fn order_file(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        data_only: bool,
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        if self.opts.dual.is_none() {
            let what = "fbarrier, fdatabarrier: mount with journaling=barrier".to_owned();
            return Err(FsError::Unsupported(what));
        }
        if self.is_stopped() {
            return Err(FsError::ReadOnly);
        }
        self.rt.cpu(CpuOp::SyncStart, 1).await;
        let journal = self.journal();
        let commits = !data_only && journal.running_tid() == Some(inode.sync_tid.get());
        let wbc = WbControl { ordered: !commits, ..WbControl::sync_all() };
        let written = inode.map.writepages(&wbc).await;
        if site::ORDER_DISPATCH.on() {
            if self.dispatches_only(inode) {
                inode.map.wait_dispatched().await;
            } else {
                inode.map.settle().await;
            }
        }
        written?;
        let _mutex =
            if self.opts.era.fsync_takes_mutex() { Some(inode.lock.lock().await) } else { None };
        let tid = if data_only { inode.datasync_tid.get() } else { inode.sync_tid.get() };
        // A record that is sent from here on is behind all that the device has.
        let covered = journal.running_tid() == Some(tid);
        if covered {
            inode.map.set_unordered(false);
        }
        let done = if inode.is_dir() || self.journals_data(inode) {
            match journal.running_tid().or(journal.committing_tid()) {
                Some(tid) => journal.order_transaction(tid).await,
                None => Ok(()),
            }
        } else {
            journal.order_transaction(tid).await
        };
        let done = done.and(self.order_rest(inode).await);
        let failed = self.tell(inode, told);
        done.and(failed)
    }

    /// Puts a file's data in order that no barrier was sent behind.
    async fn order_rest(&self, inode: &Inode) -> FsResult<()> {
        if !inode.map.is_unordered() {
            return Ok(());
        }
        inode.map.set_unordered(false);
        if site::ORDER_ARRIVE.on() {
            inode.map.settle().await;
        }
        if self.opts.barrier && site::ORDER_REST.on() {
            self.bdev.queue().flush().await.map_err(|_| FsError::Io)?;
        }
        Ok(())
    }

    /// `sync`: data of all files, then the journal, then metadata at home.
    pub(super) async fn sync_everything(self: &Rc<Self>) -> FsResult<()> {
        if !self.is_mounted() {
            return Err(FsError::ReadOnly);
        }
        if site::SYNC_SEND.on() {
            self.wb.write_all(false).await;
        }
        if site::SYNC_AGAIN.on() {
            self.wb.write_all(true).await;
        }
        if site::SYNC_WAIT.on() {
            self.wb.wait_idle().await;
        }
        self.sync_forgets_errors();
        let journal = self.journal();
        let tid = journal.running_tid().or(journal.committing_tid());
        // Without a commit that flushes after it, data may be only in the device's cache. Nobody
        // remembers whether there is any, so this flushes for nothing now and then.
        let needs_flush = self.opts.sync_flushes()
            && self.opts.era.sync_flushes()
            && !tid.is_some_and(|t| journal.will_send_data_barrier(t));
        if site::SYNC_COMMIT.on() {
            journal.force_commit().await?;
        }
        if needs_flush && site::SYNC_FLUSH.on() {
            self.bdev.queue().flush().await.map_err(|_| FsError::Io)?;
        }
        if site::SYNC_HOME.on() { self.bdev.sync().await } else { Ok(()) }
    }

    /// Until 4.3 waiting for all files took what they had to tell (`wait_sb_inodes`).
    pub(super) fn sync_forgets_errors(&self) {
        if self.opts.era.sync_clears_errors() {
            self.inodes.borrow().values().filter(|i| !i.map.is_empty()).for_each(|i| {
                i.map.take_error();
            });
        }
    }
}
