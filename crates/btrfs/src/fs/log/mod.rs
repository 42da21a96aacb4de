//! Logs: an fsync that is no commit. What was changed of a file is copied into a log tree, which is
//! written, and a super block leads to it; a commit makes it superfluous.
//!
//! Picture:    fsync -> [`Log::inode`] (items of the inode, its new extents and their checksums,
//!             its new names and directories) -> `sync`: blocks of the log tree and of the tree of
//!             log trees, wait, flush, super block with `log_root`.
//! Invariants: 1. a log is of one transaction, which is not committed while somebody syncs it.
//!             2. what a log cannot say is said by a commit ([`Stop::Full`]).
//!             3. a super block with a log leads to trees that are durable: it is written after
//!                that of the commit before.
//! Left out:   the wait for others on disks that turn (`BTRFS_ROOT_MULTI_LOG_TASKS`).
//! Source:     fs/btrfs/tree-log.c.

mod extents;
mod inode;
mod leaves;
mod names;
mod old;

use std::cell::Cell;
use std::rc::Rc;

use wp_base::event::{FS_ASKED, FS_BEGIN, FS_END, Flags};
use wp_base::{FsError, FsResult};
use wp_rt::{Lock, Rt};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::trans::logs::LOG_ROOT_TREE;

pub use old::{Mend, OldLog};

use super::Btrfs;
use super::inode::Inode;
use super::ordered::Ordered;
use super::subvolumes::Subvol;

/// What is known of a subvolume's log in the running transaction.
pub(super) struct TreeLog {
    /// The log tree, as it is open; `None`: there is none.
    tree: Cell<Option<u64>>,
    /// Has the tree of log trees an item of it?
    has_item: Cell<bool>,
    /// Number of the next sync (`log_transid`).
    next: Cell<i64>,
    /// Number of the last (`log_transid_committed`, `last_log_commit`).
    synced: Cell<i64>,
}

impl Default for TreeLog {
    fn default() -> TreeLog {
        TreeLog {
            tree: Cell::new(None),
            has_item: Cell::new(false),
            next: Cell::new(0),
            synced: Cell::new(-1),
        }
    }
}

impl TreeLog {
    /// Number of the sync that has what is changed now.
    pub fn next(&self) -> i64 {
        self.next.get()
    }

    /// It is not needed any more. `btrfs_free_log`.
    pub fn free(&self, c: &mut Core<'static>) -> FsResult<()> {
        if let Some(log) = self.tree.take() {
            c.free_log(log)?;
        }
        self.has_item.set(false);
        Ok(())
    }

    /// Was anything logged in the running transaction?
    pub fn is_open(&self) -> bool {
        self.tree.get().is_some()
    }
}

/// What is known of all logs of the running transaction.
pub(super) struct Logs {
    /// Is there a tree of log trees?
    has_root: Cell<bool>,
    /// The transaction that only a commit can make durable (`last_trans_log_full_commit`).
    full: Cell<u64>,
    /// Held by who syncs a log.
    lock: Lock<()>,
    /// Held by who writes super blocks (`tree_log_mutex`).
    pub(super) supers: Lock<()>,
    /// Syncs of logs in all, and fsyncs that had to be commits.
    pub(super) syncs: Cell<u64>,
    pub(super) refused: Cell<u64>,
    /// Chunks at the last commit: a log cannot lead into a new one.
    chunks: Cell<usize>,
}

impl Logs {
    pub fn new(rt: &Rt, chunks: usize) -> Logs {
        Logs {
            has_root: Cell::new(false),
            full: Cell::new(0),
            lock: Lock::new(rt, "btrfs log sync", ()),
            supers: Lock::new(rt, "btrfs super blocks", ()),
            syncs: Cell::new(0),
            refused: Cell::new(0),
            chunks: Cell::new(chunks),
        }
    }

    /// Only a commit makes this transaction durable. `btrfs_set_log_full_commit`.
    pub fn need_commit(&self, transid: u64) {
        self.full.set(transid);
    }
}

/// What an inode knows of logs.
#[derive(Default)]
pub(super) struct Logged {
    /// The transaction in whose log it is.
    pub trans: Cell<u64>,
    /// The sync that its last change comes before (`last_sub_trans`).
    pub last_sub: Cell<i64>,
    /// The same, of what was logged (`last_log_commit`).
    pub last_commit: Cell<i64>,
    /// The transaction in which it lost a name, or a name of a directory moved away.
    pub last_unlink: Cell<u64>,
    /// Of a directory: the transaction in which it got another name.
    pub renamed: Cell<u64>,
    /// The transaction in which it lost a name, otherwise than by its own rename.
    pub unlinked: Cell<u64>,
    /// An fsync has to examine all its items (`BTRFS_INODE_NEEDS_FULL_SYNC`).
    pub full_sync: Cell<bool>,
    /// An fsync has to examine all items but extents (`BTRFS_INODE_COPY_EVERYTHING`).
    pub copy_all: Cell<bool>,
    /// Of a directory: the last index that is in the log.
    pub last_index: Cell<u64>,
    /// The transaction in which it shared extents with another file, or may have
    /// (`last_reflink_trans`).
    pub last_reflink: Cell<u64>,
    /// Bytes of the file that got items in a transaction, and which.
    pub modified: std::cell::RefCell<(u64, crate::space::Runs)>,
}

/// Why something is not logged.
#[derive(Debug)]
pub(super) enum Stop {
    /// A commit is needed (`BTRFS_LOG_FORCE_COMMIT`).
    Full,
    /// There is nothing that a sync would make durable (`BTRFS_NO_LOG_SYNC`).
    Nothing,
}

impl From<FsError> for Stop {
    fn from(_: FsError) -> Stop {
        // What went wrong is met again by the commit, and told there.
        Stop::Full
    }
}

pub(super) type LogResult<T> = Result<T, Stop>;

/// How much of an inode is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// All that an fsync of it asks for.
    All,
    /// That it exists, with its names.
    Exists,
}

/// One call that logs (`struct btrfs_log_ctx`).
pub(super) struct Log<'a> {
    pub fs: &'a Btrfs,
    pub c: &'a mut Core<'static>,
    pub transid: u64,
    /// The subvolume, and its log tree.
    pub vol: Rc<Subvol>,
    pub tree: u64,
    pub log: u64,
    /// The inode that it is about.
    pub ino: u64,
    /// Is it for a rename or link, and not synced now?
    pub is_new_name: bool,
    /// New names were logged whose inodes are to follow.
    pub new_dentries: bool,
    pub conflicts: Vec<(u64, u64)>,
    pub conflicts_seen: u32,
    pub is_in_conflicts: bool,
    /// Extents on their way that were not logged yet.
    pub ordered: Vec<Rc<Ordered>>,
}

/// Who holds it has the running transaction not committed.
pub(super) struct Handle(Rc<Btrfs>);

impl Drop for Handle {
    fn drop(&mut self) {
        let n = &self.0.commits.handles;
        n.set(n.get().saturating_sub(1));
        self.0.commits.pending_done.wake_all();
    }
}

impl Btrfs {
    /// Waits: until a transaction may be changed; it is not committed until the handle goes.
    pub(super) async fn hold_transaction(&self) -> FsResult<Handle> {
        self.wait_for_start().await;
        if self.has_failed.get() {
            return Err(FsError::Io);
        }
        self.with(Core::begin)?;
        let n = &self.commits.handles;
        n.set(n.get() + 1);
        Ok(Handle(self.rc()))
    }

    /// Is an inode in the log of the running transaction as it is, and that log durable?
    /// `btrfs_inode_in_log`.
    pub(super) fn is_in_log(&self, inode: &Inode) -> bool {
        let l = &inode.logged;
        l.trans.get() == self.newest()
            && l.last_sub.get() <= l.last_commit.get()
            && l.last_sub.get() <= inode.vol.log.synced.get()
    }

    /// Makes the log tree if there is none, and begins to log. `start_log_trans`.
    pub(super) fn log_with<T>(
        &self,
        about: &Inode,
        is_new_name: bool,
        ordered: Vec<Rc<Ordered>>,
        f: impl FnOnce(&mut Log<'_>) -> LogResult<T>,
    ) -> LogResult<(T, i64)> {
        let logs = &self.logs;
        let mut core = self.core.borrow_mut();
        let c: &mut Core<'static> = &mut core;
        c.begin()?;
        let transid = c.transid();
        if logs.full.get() == transid || self.has_new_chunks(c) || !self.opts.treelog {
            return Err(Stop::Full);
        }
        // Room for copies of a few paths; a log that finds none is a commit instead.
        const ITEMS: u64 = 12;
        if c.reserve(ITEMS).is_err() {
            logs.need_commit(transid);
            return Err(Stop::Full);
        }
        let mut done = (|| {
            if !logs.has_root.get() {
                c.create_log(None)?;
                logs.has_root.set(true);
            }
            let vol = about.vol.clone();
            let log = match vol.log.tree.get() {
                Some(log) => log,
                None => {
                    let log = c.create_log(Some(vol.tree))?;
                    vol.log.tree.set(Some(log));
                    vol.log.has_item.set(false);
                    vol.log.next.set(0);
                    vol.log.synced.set(-1);
                    log
                }
            };
            let mut log = Log {
                fs: self,
                c: &mut *c,
                transid,
                tree: vol.tree,
                vol,
                log,
                ino: about.ino,
                is_new_name,
                new_dentries: false,
                conflicts: Vec::new(),
                conflicts_seen: 0,
                is_in_conflicts: false,
                ordered,
            };
            f(&mut log)
        })();
        c.unreserve(ITEMS);
        if self.has_new_chunks(c) {
            done = Err(Stop::Full);
        }
        let is_broken = c.is_broken();
        drop(core);
        self.note_transaction();
        if is_broken {
            self.abort();
        }
        if matches!(done, Err(Stop::Full)) {
            logs.need_commit(transid);
        }
        done.map(|t| (t, about.vol.log.next.get()))
    }

    /// Was a chunk made that no commit has? A log may lie in it, or lead there: it is not told from
    /// the others. `btrfs_make_block_group`, which calls `btrfs_set_log_full_commit`.
    fn has_new_chunks(&self, c: &Core<'static>) -> bool {
        c.chunks().iter().count() != self.logs.chunks.get()
    }

    /// A log's blocks and the super block that leads to it. Waits: until sync number `mine` is
    /// durable. `btrfs_sync_log`.
    pub(super) async fn sync_log(
        &self,
        vol: &Rc<Subvol>,
        transid: u64,
        mine: i64,
    ) -> LogResult<()> {
        let logs = &self.logs;
        // Numbers of logs begin with 0, which stands for none in a trace.
        let id = mine.unsigned_abs() + 1;
        self.tell("log", FS_ASKED, id);
        let _one = logs.lock.lock().await;
        if vol.log.synced.get() >= mine && logs.full.get() != transid {
            return Ok(());
        }
        self.tell("log", FS_BEGIN, id);
        let done = self.sync_log_alone(vol, transid).await;
        self.tell("log", FS_END, id);
        done
    }

    /// The sync of who has the lock.
    async fn sync_log_alone(&self, vol: &Rc<Subvol>, transid: u64) -> LogResult<()> {
        let logs = &self.logs;
        let sealed = {
            let mut core = self.core.borrow_mut();
            if !vol.log.is_open() {
                return Err(Stop::Full);
            }
            if logs.full.get() == transid || core.is_broken() {
                return Err(Stop::Full);
            }
            let sealed = self.seal_log(&mut core, &vol.log);
            if self.has_new_chunks(&core) {
                logs.need_commit(transid);
                return Err(Stop::Full);
            }
            sealed
        };
        let number = vol.log.next.get();
        let (blocks, root) = match sealed {
            Ok(sealed) => sealed,
            Err(e) => {
                logs.need_commit(transid);
                return Err(e.into());
            }
        };
        vol.log.next.set(number + 1);
        let waits = crate::site::LOG_WAIT.on();
        let written = async {
            self.settle().await?;
            self.write_blocks(&blocks, Flags::SYNC | Flags::META, waits).await?;
            if waits { self.wait_early(transid, true).await } else { Ok(()) }
        };
        if written.await.is_err() {
            logs.need_commit(transid);
            return Err(Stop::Full);
        }
        let supers = match crate::site::LOG_AFTER_COMMIT.on() {
            true => Some(logs.supers.lock().await),
            false => None,
        };
        if self.has_failed.get() {
            return Err(Stop::Full);
        }
        let sb = self.core.borrow().super_for_log(root.0, root.1);
        let writes = crate::site::LOG_SUPER.on();
        let done = if writes { self.write_supers(&[sb]).await } else { Ok(()) };
        drop(supers);
        if done.is_err() {
            logs.need_commit(transid);
            self.abort();
            return Err(Stop::Full);
        }
        vol.log.synced.set(number);
        logs.syncs.set(logs.syncs.get() + 1);
        Ok(())
    }

    /// Blocks to be written, and address and level of the root of the tree of log trees.
    fn seal_log(
        &self,
        c: &mut Core<'static>,
        of: &TreeLog,
    ) -> FsResult<(Vec<crate::trans::PlanBlock>, (u64, u8))> {
        let log = of.tree.get().ok_or(FsError::NotFound)?;
        let key = c.root(log)?.key;
        let item = c.log_item(log)?;
        if of.has_item.replace(true) {
            c.replace_item(LOG_ROOT_TREE, key, item.as_bytes())?;
        } else {
            c.insert_item(LOG_ROOT_TREE, key, item.as_bytes())?;
        }
        let root = c.log_item(LOG_ROOT_TREE)?;
        let of_root = c.log_blocks(LOG_ROOT_TREE)?;
        let has_others = self.subvols.borrow().values().filter(|v| v.log.is_open()).count() > 1;
        let mut blocks = match has_others {
            false => c.seal_log_blocks()?,
            // What is dirty of another subvolume's log stays so.
            true => {
                let own = c.log_blocks(log)?;
                c.seal_log_blocks_of(own.into_iter().chain(of_root.iter().copied()))?
            }
        };
        // The log is sent before the tree that leads to it, each by address.
        blocks.sort_by_key(|b| of_root.contains(&b.logical));
        Ok((blocks, (root.bytenr.get(), root.level)))
    }

    /// A commit is about to have all that the log has. `btrfs_free_log`,
    /// `btrfs_free_log_root_tree`.
    pub(super) fn free_logs(&self, c: &mut Core<'static>) -> FsResult<()> {
        let logs = &self.logs;
        for vol in self.subvols.borrow().values() {
            vol.log.free(c)?;
        }
        if logs.has_root.replace(false) {
            c.free_log(LOG_ROOT_TREE)?;
        }
        // Numbers start again with the next log, not here: what is changed before there is one has
        // the number that is left, and is synced again until a sync has that number.
        Ok(())
    }

    /// A commit was made.
    pub(super) fn note_chunks(&self, c: &Core<'static>) {
        self.logs.chunks.set(c.chunks().iter().count());
    }

    /// A write has put something into a file's cache, or past it. `btrfs_set_inode_last_sub_trans`.
    pub(super) fn note_write(&self, inode: &Inode) {
        inode.logged.last_sub.set(inode.vol.log.next());
    }

    /// An inode has changed in a transaction. `btrfs_set_inode_last_trans`.
    pub(super) fn note_change(&self, inode: &Inode, transid: u64) {
        inode.last_trans.set(transid);
        inode.logged.last_sub.set(inode.vol.log.next());
        inode.logged.last_commit.set(inode.vol.log.next() - 1);
    }
}
