//! Room for what a call changes: waited for before it changes anything.
//!
//! Source: fs/btrfs/{space-info,delalloc-space,block-rsv}.c.

use std::rc::Rc;

use wp_base::{FsError, FsResult};

use super::{BLOCK, Btrfs, Inode};

/// How often it is tried to make room: by sending what has no place yet, then by a commit, then by
/// one more, as what a commit frees is usable by the next.
const TRIES: u32 = 3;

/// Metadata promised; given back when it goes.
pub(super) struct Promise {
    fs: Rc<Btrfs>,
    items: u64,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.fs.unpromise(self.items);
    }
}

impl Promise {
    /// Keeps it, for somebody else to give back.
    pub fn keep(mut self) -> u64 {
        std::mem::take(&mut self.items)
    }
}

impl Btrfs {
    pub(super) fn unpromise(&self, items: u64) {
        // At a power cut tasks go in any order, also one that is in the middle of a change.
        if items > 0
            && let Ok(mut core) = self.core.try_borrow_mut()
        {
            core.unreserve(items);
        }
    }

    /// Reserves metadata for changes of `items` items. Waits: for space, by writeback and commits.
    /// Errors: `NoSpace`, `ReadOnly`. `btrfs_start_transaction`.
    pub(super) async fn reserve(&self, items: u64) -> FsResult<Promise> {
        self.reserve_for(items, false).await
    }

    /// The same for what frees space. `btrfs_start_transaction_fallback_global_rsv`.
    pub(super) async fn reserve_removal(&self, items: u64) -> FsResult<Promise> {
        self.reserve_for(items, true).await
    }

    async fn reserve_for(&self, items: u64, removes: bool) -> FsResult<Promise> {
        let mut tries = 0;
        loop {
            self.check_writable()?;
            self.wait_for_start().await;
            self.check_writable()?;
            let done = self.with(|c| match removes && tries >= TRIES {
                true => c.reserve_for_removal(items),
                // What waits for a place is sent before a chunk is made.
                false if tries == 0 => c.reserve_within(items),
                false => c.reserve(items),
            });
            self.settle().await?;
            match done {
                Ok(()) => return Ok(Promise { fs: self.rc(), items }),
                Err(FsError::NoSpace) if tries < TRIES => self.make_room(tries).await?,
                Err(e) => return Err(e),
            }
            tries += 1;
        }
    }

    /// `flush_space`.
    async fn make_room(&self, tries: u32) -> FsResult<()> {
        if tries == 0 {
            self.write_all_data().await;
            Ok(())
        } else {
            self.commit_now().await
        }
    }

    /// Promises data. Waits: as [`Btrfs::reserve`]. `btrfs_check_data_free_space`.
    pub(super) async fn reserve_data(&self, bytes: u64) -> FsResult<()> {
        let mut tries = 0;
        loop {
            self.check_writable()?;
            let all = self.data_promised.get() + bytes;
            let done = self.with(|c| c.ensure_data(all));
            if done.is_ok() {
                self.data_promised.set(all);
            }
            self.settle().await?;
            match done {
                Err(FsError::NoSpace) if tries < TRIES => self.make_room(tries).await?,
                other => return other,
            }
            tries += 1;
        }
    }

    pub(super) fn unreserve_data(&self, bytes: u64) {
        self.data_promised.set(self.data_promised.get().saturating_sub(bytes));
    }

    /// Items that writing `bytes` bytes in `extents` extents may take: file extents, the inode, and
    /// leaves of checksums. `btrfs_calculate_inode_block_rsv_size`.
    pub(super) fn items_for(&self, extents: u64, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let sums_per_leaf = 16_384 / 8;
        extents + 1 + (bytes / BLOCK).div_ceil(sums_per_leaf)
    }

    /// What an inode's data without a place holds of promises, brought to what it needs; the rest
    /// is answered, for who takes it on.
    pub(super) fn spare_items(&self, inode: &Inode) -> u64 {
        let needed = {
            let runs = inode.delalloc.borrow();
            self.items_for(crate::disk::wide(runs.len()), runs.bytes())
        };
        let held = inode.items_held.get();
        inode.items_held.set(held.min(needed));
        held.saturating_sub(needed)
    }

    pub(super) fn give_spare(&self, inode: &Inode) {
        let spare = self.spare_items(inode);
        self.unpromise(spare);
    }
}
