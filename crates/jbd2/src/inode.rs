//! Ordered data: inodes whose data must be on the device before the transaction that they are filed
//!               in commits.
//!
//! Picture:    file_inode -> transaction's list -> (commit) submit, newest first -> wait -> next
//!             transaction or none.
//! Invariants: 1. an inode is on at most one list; a newer transaction that wants it too is
//!                remembered beside.
//!             2. the journal holds the file's data weakly: who frees an inode releases it here
//!                first.
//! Source:     Linux 6.1 `jbd2_journal_file_inode`, `journal_submit_data_buffers`,
//!             `journal_finish_inode_data_buffers`.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use wp_base::event::{Class, Event};
use wp_base::{FsError, FsResult};
use wp_block::Quasi;
use wp_rt::WaitQueue;

use crate::handle::Handle;
use crate::journal::Journal;
use crate::site;

/// A file's data, as a commit sees it.
pub trait OrderedData {
    /// Inode number, for events.
    fn ino(&self) -> u64;
    /// Submits those of the file's dirty blocks in `range` (first and last index) that have a place
    /// on the device, as SYNC writes; never allocates.
    fn submit<'a>(&'a self, range: (u64, u64)) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>>;
    /// Is nothing of the file dirty, so that [`OrderedData::submit`] would do nothing?
    fn is_clean(&self) -> bool {
        false
    }
    /// Is no write of the file under way, and did none fail, so that [`OrderedData::wait`] would
    /// answer at once?
    fn is_written(&self) -> bool {
        false
    }
    /// Waits until the device has the file's writes (dual mode).
    fn dispatched<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(std::future::ready(()))
    }
    /// Somebody waits for who waits for the file's writes.
    fn waited_for(&self, _class: Quasi) {}
    /// Waits until the file's writes are complete. Errors: `Io` if one failed.
    fn wait<'a>(&'a self) -> Pin<Box<dyn Future<Output = FsResult<()>> + 'a>>;
}

/// What a commit does with a filed inode's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordered {
    /// Write it and wait (`JI_WRITE_DATA | JI_WAIT_DATA`).
    WriteAndWait,
    /// Somebody has submitted it: only wait (`JI_WAIT_DATA`, 4.7 and later).
    Wait,
}

/// A file's place in ordered mode. `struct jbd2_inode`.
pub struct JournalInode {
    data: Weak<dyn OrderedData>,
    ino: u64,
    pub(crate) owner: Cell<Option<u32>>,
    pub(crate) next_owner: Cell<Option<u32>>,
    /// First and last block that were filed (`i_dirty_start`, `i_dirty_end`).
    range: Cell<Option<(u64, u64)>>,
    write: Cell<bool>,
    wait: Cell<bool>,
    /// It was filed to be written, or waited for, at some time.
    ever_write: Cell<bool>,
    ever_wait: Cell<bool>,
    /// The commit thread is at it.
    busy: Cell<bool>,
    idle: WaitQueue,
}

impl JournalInode {
    /// Remembers that the file was filed to be written, as if a commit had taken it off its list.
    pub fn remember_filed(&self) {
        self.ever_write.set(true);
        self.ever_wait.set(true);
    }
}

impl Journal {
    /// A file's place in ordered mode, on no list.
    ///
    /// Held weakly: a `data` that is gone has nothing to write. Call [`Journal::release_inode`]
    /// before the file's cache is dropped, or a commit in between would not write it.
    pub fn new_inode(&self, data: Weak<dyn OrderedData>) -> Rc<JournalInode> {
        let ino = data.upgrade().map_or(0, |d| d.ino());
        Rc::new(JournalInode {
            data,
            ino,
            owner: Cell::new(None),
            next_owner: Cell::new(None),
            range: Cell::new(None),
            write: Cell::new(false),
            wait: Cell::new(false),
            ever_write: Cell::new(false),
            ever_wait: Cell::new(false),
            busy: Cell::new(false),
            idle: WaitQueue::new(&self.rt, "ordered data of an inode"),
        })
    }

    /// Takes a file off the lists. Waits: while a commit is at its data.
    /// Source: `jbd2_journal_release_jbd_inode`.
    pub async fn release_inode(&self, inode: &Rc<JournalInode>) {
        while inode.busy.get() && site::RELEASE_WAIT.on() {
            inode.idle.wait().await;
        }
        if let Some(tid) = inode.owner.take() {
            let mut st = self.st.borrow_mut();
            if let Some(t) = st.transactions.get_mut(tid) {
                t.inodes.retain(|i| !Rc::ptr_eq(i, inode));
            }
        }
        inode.next_owner.set(None);
    }

    /// Writes a file's data from block `from` on if the committing transaction still needs it,
    /// before a truncate throws it away.
    ///
    /// Waits: for what submitting waits for. Errors: `Io`, which also aborts the journal.
    /// Source: `jbd2_journal_begin_ordered_truncate`.
    pub async fn begin_ordered_truncate(
        &self,
        inode: &Rc<JournalInode>,
        from: u64,
    ) -> FsResult<()> {
        let committing = self.committing_tid();
        let wanted = committing.is_some() && inode.owner.get() == committing;
        if !wanted || !site::TRUNCATE_ORDERED.on() {
            return Ok(());
        }
        let Some(data) = inode.data.upgrade() else { return Ok(()) };
        let done = data.submit((from, u64::MAX)).await;
        if let Err(e) = &done {
            self.abort(e.clone());
        }
        done
    }

    /// Submits the data that a file has filed to be written, whatever its transaction. Was there
    /// any?
    ///
    /// That a file was filed is never forgotten (`JI_WRITE_DATA` stays); once its transaction has
    /// committed what is left is its first page. Errors: `Io`. Source: `jbd2_submit_inode_data`.
    pub async fn submit_inode(&self, inode: &Rc<JournalInode>) -> FsResult<bool> {
        let data = inode.data.upgrade().filter(|d| !d.is_clean());
        let Some(data) = data.filter(|_| inode.ever_write.get()) else { return Ok(false) };
        data.submit(inode.range.get().unwrap_or((0, 0))).await?;
        Ok(true)
    }

    /// Waits for the data that a file has filed, whatever its transaction. Was there any to wait
    /// for? Errors: `Io`. Source: `jbd2_wait_inode_data`.
    pub async fn wait_inode(&self, inode: &Rc<JournalInode>) -> FsResult<bool> {
        let data = inode.data.upgrade().filter(|d| !d.is_written());
        let Some(data) = data.filter(|_| inode.ever_wait.get()) else { return Ok(false) };
        data.wait().await?;
        Ok(true)
    }

    /// Submits the data of every inode filed in `tid`.
    pub(crate) async fn submit_ordered(&self, tid: u32) -> FsResult<()> {
        let mut result = Ok(());
        for inode in self.ordered(tid) {
            // Only the one at hand is kept from being released.
            if inode.owner.get() != Some(tid) || !inode.write.get() {
                continue;
            }
            inode.busy.set(true);
            self.emit("submit_inode_data", tid, inode.ino);
            if let Some(data) = inode.data.upgrade().filter(|d| !d.is_clean()) {
                let range = inode.range.get().unwrap_or((0, u64::MAX));
                result = result.and(data.submit(range).await);
            }
            inode.busy.set(false);
            inode.idle.wake_all();
        }
        result
    }

    /// Waits until the device has the data of every inode filed in `tid` (dual mode).
    ///
    /// Before the log is sent: behind the log's barrier they would be in the record's epoch, and a
    /// power cut might leave the record without them.
    pub(crate) async fn wait_ordered_dispatched(&self, tid: u32) {
        for inode in self.ordered(tid) {
            if inode.owner.get() != Some(tid) || !inode.wait.get() {
                continue;
            }
            inode.busy.set(true);
            if let Some(data) = inode.data.upgrade().filter(|d| !d.is_written())
                && site::ORDERED_DISPATCH.on()
            {
                data.dispatched().await;
            }
            inode.busy.set(false);
            inode.idle.wake_all();
        }
    }

    /// Waits for the data of every inode filed in `tid` (in dual mode that was done) and hands the
    /// inodes on.
    pub(crate) async fn finish_ordered(&self, tid: u32) -> FsResult<()> {
        let mut result = Ok(());
        for inode in self.ordered(tid) {
            if inode.owner.get() != Some(tid) || !inode.wait.get() {
                continue;
            }
            inode.busy.set(true);
            if let Some(data) = inode.data.upgrade().filter(|d| !d.is_written())
                && self.opts.mode.dual().is_none()
                && site::ORDERED_WAIT.on()
            {
                self.st.borrow_mut().counters.ordered_waits += 1;
                self.waits_for(Some(data.clone()));
                result = result.and(data.wait().await);
                self.waits_for(None);
            }
            inode.busy.set(false);
            inode.idle.wake_all();
        }
        let mut st = self.st.borrow_mut();
        let inodes = std::mem::take(&mut st.transaction_mut(tid).inodes);
        for inode in self.in_walk_order(inodes) {
            let next = inode.next_owner.take();
            inode.owner.set(next);
            match next {
                Some(next) => st.transaction_mut(next).inodes.push(inode),
                None => {
                    inode.write.set(false);
                    inode.wait.set(false);
                    inode.range.set(None);
                }
            }
        }
        result
    }

    /// The commit begins to wait for a file's data, or has waited: those that wait for the commit
    /// wait for that data.
    fn waits_for(&self, data: Option<Rc<dyn OrderedData>>) {
        *self.waited_data.borrow_mut() = data;
        if self.wait_done_commit.waiters() > 0 {
            self.somebody_waits(Quasi::Commit);
        }
        if self.wait_transaction_locked.waiters() > 0 {
            self.somebody_waits(Quasi::Handle);
        }
    }

    /// A task begins to wait for the commit, or for a handle.
    pub(crate) fn somebody_waits(&self, class: Quasi) {
        let data = self.waited_data.borrow().clone();
        if let Some(data) = data {
            data.waited_for(class);
        }
    }

    /// The inodes of `tid` in the order in which a commit walks them.
    fn ordered(&self, tid: u32) -> Vec<Rc<JournalInode>> {
        let inodes = self.st.borrow().transaction(tid).inodes.clone();
        self.in_walk_order(inodes)
    }

    fn in_walk_order(&self, mut inodes: Vec<Rc<JournalInode>>) -> Vec<Rc<JournalInode>> {
        inodes.reverse();
        inodes
    }
}

impl Handle {
    /// Files a file's data in this handle's transaction, all of it.
    ///
    /// Errors: as [`Handle::file_inode_range`].
    pub fn file_inode(&self, inode: &Rc<JournalInode>, how: Ordered) -> FsResult<()> {
        self.file_inode_range(inode, how, (0, u64::MAX))
    }

    /// Files blocks `range` (first and last index) of a file in this handle's transaction. They are
    /// one range with what was filed before and is not committed; kernels before 5.3 write all of
    /// the file.
    ///
    /// Errors: `ReadOnly` on an aborted journal. Source: `jbd2_journal_file_inode`.
    pub fn file_inode_range(
        &self,
        inode: &Rc<JournalInode>,
        how: Ordered,
        range: (u64, u64),
    ) -> FsResult<()> {
        let tid = self.tid();
        let mut st = self.journal().st.borrow_mut();
        if st.aborted() {
            return Err(FsError::ReadOnly);
        }
        self.journal().rt.emit(Class::JBD2, || Event::Jbd2 {
            what: "file_inode",
            tid,
            value: inode.ino,
        });
        let range = if self.journal().opts.era.ordered_ranges() { range } else { (0, u64::MAX) };
        let (first, last) = inode.range.get().unwrap_or(range);
        inode.range.set(Some((first.min(range.0), last.max(range.1))));
        inode.wait.set(true);
        inode.ever_wait.set(true);
        if how == Ordered::WriteAndWait {
            inode.write.set(true);
            inode.remember_filed();
        }
        if inode.owner.get() == Some(tid) || inode.next_owner.get() == Some(tid) {
            return Ok(());
        }
        st.transaction_mut(tid).need_data_flush = true;
        if inode.owner.get().is_some() {
            assert!(
                inode.next_owner.get().is_none() && inode.owner.get() == st.committing,
                "inode {} is filed by two commits",
                inode.ino
            );
            if site::FILE_NEXT.on() {
                inode.next_owner.set(Some(tid));
            }
            return Ok(());
        }
        if site::FILE_INODE.on() {
            inode.owner.set(Some(tid));
            st.transaction_mut(tid).inodes.push(inode.clone());
        }
        Ok(())
    }
}
