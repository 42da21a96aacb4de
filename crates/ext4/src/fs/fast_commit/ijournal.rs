//! iJournaling: an fsync logs its file alone, as an i-transaction in the area of its core.
//!
//! Picture:    `fsync` ([`Ext4::sync_one`]) -> is the file one that records can tell of, and do
//!             they hold without the rest of the transaction ([`Ext4::is_loggable`])? -> handles
//!             wait while the records are made -> the block with the tail, with PREFLUSH and FUA.
//!             Else the running transaction commits.
//! Invariants: 1. recovery begins with the last commit: an i-transaction names nothing that only
//!                the running transaction made (a directory), moved (a name of another file) or
//!                freed (a number; blocks come back at the commit).
//!             2. of one file no i-transaction begins before the last one is durable.
//!             3. the commit of the transaction makes its i-transactions void.
//! Source:     Park, Shin, "iJournaling", ATC'17; the records are those of Linux' fast commits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_jbd2::disk::{tid_after, tid_at_least};
use wp_jbd2::{FastBegin, Handle};
use wp_rt::{Lock, Rt};

use super::records::Records;
use super::{NameChange, Tracked};
use crate::disk::fast_commit::tag;
use crate::disk::ijournal::{BEGIN, Begin};
use crate::disk::inode::flag;
use crate::fs::inode::Inode;
use crate::fs::mount::Ext4;
use crate::site;

/// What i-transactions need to know besides what is tracked.
#[derive(Default)]
pub(super) struct Files {
    cores: Vec<Core>,
    /// Place of the next i-transaction.
    sequence: Cell<u64>,
    /// Inodes that no i-transaction is of until this transaction has committed: their number was
    /// freed in it, they left a list of orphans that is on the device, or an i-transaction failed.
    barred: RefCell<BTreeMap<u32, u32>>,
    /// Those that joined the list of orphans, and in which transaction.
    orphans: RefCell<BTreeMap<u32, u32>>,
}

/// A core's part of the area.
struct Core {
    /// Whose records are being put there: their blocks follow each other.
    turn: Lock<()>,
    /// Its own i-transactions, for a sequence that is none.
    sequence: Cell<u64>,
}

impl Files {
    /// Of as many cores.
    pub fn new(rt: &Rt, cores: u32) -> Files {
        let core = |_| Core {
            turn: Lock::new(rt, "i-transactions of a core", ()),
            sequence: Cell::new(0),
        };
        Files { cores: (0..cores).map(core).collect(), ..Files::default() }
    }

    /// The next place: in the order of all cores, or, without that, of one.
    fn next(&self, core: &Core) -> u64 {
        let last = if site::IJ_SEQUENCE.on() { &self.sequence } else { &core.sequence };
        last.replace(last.get() + 1)
    }

    /// Transaction `tid` has committed.
    fn committed(&self, tid: u32) {
        self.barred.borrow_mut().retain(|_, until| tid_after(*until, tid));
        self.orphans.borrow_mut().retain(|_, joined| tid_after(*joined, tid));
    }
}

/// What was put into a core's area.
enum Put<'a> {
    /// Nothing: only the commit of the transaction will do.
    Unloggable,
    /// Nothing: all that the file needs is logged.
    Logged,
    /// Records; the tail is not submitted yet.
    Records(Records<'a>),
}

impl Ext4 {
    fn files(&self) -> &Files {
        self.fast.files.get().expect("made when the journal was")
    }

    /// Makes the changes of a file in transaction `tid` durable: by an i-transaction where one will
    /// do.
    ///
    /// Waits: for the commit under way, for an i-transaction of the same file, for open handles,
    /// for the blocks. Errors: `Io`.
    pub(super) async fn sync_one(self: &Rc<Self>, inode: &Rc<Inode>, tid: u32) -> FsResult<()> {
        let journal = self.journal();
        loop {
            match journal.begin_fast(tid).await {
                Ok(FastBegin::Started) => break,
                Ok(FastBegin::Over) if tid_after(tid, journal.commit_sequence()) => {}
                Ok(FastBegin::Over) => {
                    journal.count_fast(|c| c.skipped += 1);
                    return Ok(());
                }
                Ok(FastBegin::TooEarly) | Err(_) => {
                    journal.count_fast(|c| c.failed += 1);
                    return journal.complete_transaction(tid).await;
                }
            }
        }
        if site::IJ_FILE.on() {
            // It may be lost while the next one, which tells what changed since, is not.
            self.fast.changes.wait_until(|| !inode.fast.get().logging).await;
        }
        inode.fast.set(Tracked { logging: true, ..inode.fast.get() });
        let done = self.write_one(inode).await;
        if done.is_err() {
            // Of what it was to tell nothing is known any more.
            self.files().barred.borrow_mut().insert(inode.ino, tid);
            self.fast_enqueue(inode);
        }
        inode.fast.set(Tracked { logging: false, ..inode.fast.get() });
        self.fast.changes.wake_all();
        journal.leave_fast();
        match done {
            Ok(Some(blocks)) => {
                journal.count_fast(|c| {
                    c.commits += u64::from(blocks > 0);
                    c.blocks += blocks as u64;
                    c.single += u64::from(blocks == 1);
                });
                return Ok(());
            }
            Ok(None) => journal.count_fast(|c| c.ineligible += 1),
            Err(_) => journal.count_fast(|c| c.failed += 1),
        }
        journal.complete_transaction(tid).await
    }

    /// Writes an i-transaction, and waits for it. Returns its blocks, 0 if all was logged before;
    /// `None`: there can be none. Errors: `NoSpace` if the core's area is full, `Io`.
    async fn write_one(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<Option<usize>> {
        self.write_ordered_of(std::slice::from_ref(inode)).await?;
        let (journal, files) = (self.journal(), self.files());
        let number = self.rt.place() % journal.fast_parts();
        let core = &files.cores[number as usize];
        let turn = core.turn.lock().await;
        if site::FAST_LOCK.on() {
            journal.lock_updates().await;
        }
        let put = self.put_one(inode, (number, core)).await;
        journal.unlock_updates();
        drop(turn);
        match put? {
            Put::Unloggable => Ok(None),
            Put::Logged => {
                // The data may be later than what was logged.
                if self.opts.barrier && site::IJ_FLUSH.on() {
                    self.bdev.queue().flush().await.map_err(|_| FsError::Io)?;
                }
                Ok(Some(0))
            }
            Put::Records(mut records) => {
                self.end_records(&mut records, site::IJ_BLOCKS.on(), true).await?;
                let blocks = records.writes.len();
                if site::FAST_WAIT.on() {
                    records.writes.wait(blocks).await?;
                }
                Ok(Some(blocks))
            }
        }
    }

    /// Puts the records of a file into the area of a core. No handle is open meanwhile.
    async fn put_one<'a>(
        self: &'a Rc<Self>,
        inode: &Rc<Inode>,
        (number, core): (u32, &Core),
    ) -> FsResult<Put<'a>> {
        let tid = self.journal().running_tid().ok_or(FsError::Io)?;
        if !self.is_loggable(inode) {
            return Ok(Put::Unloggable);
        }
        let names = self.unlogged_names(inode.ino);
        if !inode.fast.get().queued && names.is_empty() {
            return Ok(Put::Logged);
        }
        let mut records = self.new_records(number);
        let sequence = self.files().next(core);
        let begin = Begin { tid: tid.into(), core: number.into(), sequence: sequence.into() };
        records.put_of(BEGIN, &begin).await?;
        for change in &names {
            self.put_name(&mut records, change).await?;
        }
        self.put_ranges(&mut records, inode).await?;
        self.put_raw(&mut records, inode).await?;
        records.end(tid).await?;
        let mut main = self.fast.main.borrow_mut();
        main.names.iter_mut().filter(|n| n.ino == inode.ino).for_each(|n| n.logged = true);
        main.inodes.retain(|ino| *ino != inode.ino);
        inode.fast.set(Tracked { queued: false, ..inode.fast.get() });
        Ok(Put::Records(records))
    }

    /// Names of a file that came or went, and that no i-transaction tells of.
    fn unlogged_names(&self, ino: u32) -> Vec<NameChange> {
        let main = self.fast.main.borrow();
        main.names.iter().filter(|n| n.ino == ino && !n.logged).cloned().collect()
    }

    /// Can records tell what a file is now, and do they hold on top of the last commit?
    fn is_loggable(&self, inode: &Inode) -> bool {
        let fast = &self.fast;
        let is_plain = {
            let disk = inode.disk.borrow();
            disk.is_file() && disk.file_acl() == 0 && inode.has(flag::EXTENTS)
        };
        // Data that is sent where a block is mapped already must have arrived.
        let arrives =
            self.writes_unwritten(inode) || (inode.map.is_settled() && !inode.map.has_dirty());
        is_plain
            && inode.nlink() == 1
            && arrives
            && !fast.ineligible.get()
            && !self.journals_data(inode)
            && !(self.is_orphan(inode.ino) && site::IJ_ORPHAN.on())
            && !(self.files().barred.borrow().contains_key(&inode.ino) && site::IJ_BARRED.on())
            && self.names_hold(inode.ino)
    }

    /// Do the names of a file that are to be logged hold without the rest of the transaction?
    fn names_hold(&self, ino: u32) -> bool {
        let main = self.fast.main.borrow();
        let is_new = |dir: u32| main.names.iter().any(|n| n.op == tag::CREAT && n.ino == dir);
        let is_anothers = |mine: &NameChange| {
            let other = |n: &&NameChange| n.ino != ino && n.parent == mine.parent;
            main.names.iter().filter(other).any(|n| n.name == mine.name)
        };
        let mut own = main.names.iter().filter(|n| n.ino == ino && !n.logged);
        own.all(|n| {
            let unmade = is_new(n.parent) && site::IJ_PARENT.on();
            let taken = is_anothers(n) && site::IJ_NAME.on();
            !unmade && !taken
        })
    }

    /// A full commit of transaction `tid` is over: what it has is tracked no more.
    pub(super) fn files_committed(&self, tid: u32) {
        self.files().committed(tid);
        let mut main = self.fast.main.borrow_mut();
        let inode_of = |ino: u32| self.inodes.borrow().get(u64::from(ino)).cloned();
        main.inodes.retain(|ino| {
            let Some(inode) = inode_of(*ino) else { return false };
            let is_over = tid_at_least(tid, inode.sync_tid.get());
            if is_over {
                let of_names = Tracked { created: inode.fast.get().created, ..Tracked::default() };
                inode.fast.set(Tracked { logging: inode.fast.get().logging, ..of_names });
            }
            !is_over
        });
        main.names.retain(|n| {
            let is_over = tid_at_least(tid, n.tid);
            if let Some(inode) = inode_of(n.ino).filter(|_| is_over && n.op == tag::CREAT) {
                inode.fast.set(Tracked { created: false, ..inode.fast.get() });
            }
            !is_over
        });
    }

    /// The number of an inode is free for others: of none that takes it in this transaction there
    /// is an i-transaction, for on the device another has names.
    pub(in crate::fs) fn fast_freed(&self, h: &Handle, ino: u32) {
        if self.opts.fast.ijournal {
            self.files().barred.borrow_mut().insert(ino, h.tid());
        }
    }

    /// An inode joins the list of orphans.
    pub(super) fn file_joins_orphans(&self, h: &Handle, ino: u32) {
        self.files().orphans.borrow_mut().insert(ino, h.tid());
    }

    /// An inode leaves the list of orphans. If the one on the device has it, its record would break
    /// the chain there.
    pub(in crate::fs) fn fast_orphan_left(&self, h: &Handle, ino: u32) {
        if !self.opts.fast.ijournal {
            return;
        }
        let files = self.files();
        let joined = files.orphans.borrow_mut().remove(&ino);
        if joined != Some(h.tid()) {
            files.barred.borrow_mut().insert(ino, h.tid());
        }
    }
}
