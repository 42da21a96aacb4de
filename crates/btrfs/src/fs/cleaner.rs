//! The cleaner: deletes what nobody uses any more and could not be deleted at once.
//!
//! Source: fs/btrfs/disk-io.c (`cleaner_kthread`), inode.c (`btrfs_run_delayed_iputs`,
//! `btrfs_orphan_cleanup`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use wp_base::{FsError, FsResult};
use wp_rt::{Rt, WaitQueue};

use super::Btrfs;

/// What the cleaner is to do.
pub(super) struct Cleaner {
    unused: RefCell<BTreeSet<u64>>,
    /// Trees that were given up and that nobody uses any more, and which of them a mount found
    /// (`dead_roots`).
    dead: RefCell<VecDeque<(u64, bool)>>,
    /// Is it time for them? They alone do not wake the cleaner.
    is_time: Cell<bool>,
    wake: Rc<WaitQueue>,
    is_stopped: Cell<bool>,
    is_busy: Cell<bool>,
    idle: WaitQueue,
}

impl Cleaner {
    pub fn new(rt: &Rt) -> Cleaner {
        Cleaner {
            unused: RefCell::default(),
            dead: RefCell::default(),
            is_time: Cell::new(false),
            wake: Rc::new(WaitQueue::new(rt, "btrfs-cleaner")),
            is_stopped: Cell::new(false),
            is_busy: Cell::new(false),
            idle: WaitQueue::new(rt, "btrfs-cleaner at rest"),
        }
    }

    pub fn add(&self, handle: u64) {
        self.unused.borrow_mut().insert(handle);
        self.is_time.set(true);
        self.wake.wake_all();
    }

    /// A tree is to be deleted; `is_old`: a mount has found it. `btrfs_add_dead_root`.
    pub fn add_tree(&self, tree: u64, is_old: bool) {
        let mut dead = self.dead.borrow_mut();
        if dead.iter().all(|(known, _)| *known != tree) {
            dead.push_back((tree, is_old));
        }
    }

    pub fn stop(&self) {
        self.is_stopped.set(true);
        self.wake.wake_all();
    }

    /// Waits: until it has nothing to do.
    pub async fn rest(&self) {
        while self.is_busy.get() || !self.unused.borrow().is_empty() {
            self.idle.wait().await;
        }
    }
}

impl Btrfs {
    pub(super) fn start_cleaner(&self) {
        let wake = self.cleaner.wake.clone();
        self.rt.spawn_daemon("btrfs-cleaner", serve(self.me.clone(), wake));
    }

    pub(super) fn wake_cleaner(&self) {
        self.cleaner.is_time.set(true);
        self.cleaner.wake.wake_all();
    }

    /// What was to be deleted at the last power cut, is. `btrfs_orphan_cleanup`.
    pub(super) async fn clean_orphans(&self, tree: u64) -> FsResult<()> {
        let all = self.with(|c| c.orphans(tree))?;
        for ino in all {
            match self.with(|c| c.inode(tree, ino).and_then(|i| i.ok_or(FsError::NotFound))) {
                Ok(item) if item.nlink.get() == 0 => self.delete_items(tree, ino).await?,
                // It has a name again, or is gone: only the mark is too much.
                Ok(_) | Err(FsError::NotFound) => {
                    let _p = self.reserve_removal(1).await?;
                    self.must(|c| c.remove_orphan(tree, ino))?;
                }
                Err(e) => return Err(e),
            }
        }
        self.settle().await
    }
}

/// `cleaner_kthread`.
async fn serve(fs: Weak<Btrfs>, wake: Rc<WaitQueue>) {
    loop {
        let woken = wake.wait();
        let Some(up) = fs.upgrade() else { return };
        let next = up.cleaner.unused.borrow_mut().pop_first();
        match next {
            Some(ino) => {
                drop(woken);
                up.cleaner.is_busy.set(true);
                if let Some(inode) = up.inode_in_memory(ino) {
                    // What cannot be deleted now is, at the next mount.
                    let _ = up.put(&inode).await;
                }
                up.cleaner.is_busy.set(false);
                up.cleaner.idle.wake_all();
            }
            None if up.cleaner.is_stopped.get() => return,
            None if up.cleaner.is_time.get() => {
                let tree = up.cleaner.dead.borrow_mut().pop_front();
                match tree {
                    // What cannot be deleted now is, after the next mount.
                    Some((tree, is_old)) => drop(up.drop_dead_tree(tree, is_old).await),
                    None => up.cleaner.is_time.set(false),
                }
            }
            None => {
                drop(up);
                woken.await;
            }
        }
    }
}
