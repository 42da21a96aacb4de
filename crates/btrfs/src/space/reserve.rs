//! Promises of space, so that a call that was begun does not run out of it half way.
//!
//! A call reserves for the items that it may change (`Core::reserve`), and gives the promise back
//! (`Core::unreserve`). What a commit itself needs is kept out of it: the global reserve, as large
//! as the trees that a commit changes beyond what calls have changed, so that it can copy all of
//! their blocks; and something for each extent whose references wait, which may get an item.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::chunk::group;
use crate::disk::{SuperBlock, id};

use super::Group;

const MIB: u64 = 1 << 20;

impl Core<'_> {
    /// Bytes of metadata that changing `items` items may take: a path for each item, and as much
    /// again for the splits on it. `btrfs_calc_insert_metadata_size`.
    pub fn metadata_bytes(&self, items: u64) -> u64 {
        self.block_bytes() * u64::from(SuperBlock::LEVELS) * 2 * items
    }

    /// Bytes that stay for commits and for removals. `btrfs_update_global_block_rsv`.
    pub fn global_reserve(&self) -> u64 {
        let trees = [id::ROOT_TREE, id::EXTENT_TREE, id::CSUM_TREE, id::FREE_SPACE_TREE];
        let used = |tree| self.root(tree).map_or(0, |r| r.item.bytes_used.get());
        // The sizes in root items are not validated, here as in Linux.
        let bytes = trees.into_iter().map(used).fold(0, u64::saturating_add);
        // Four trees, and what an unlink may need.
        let least = self.metadata_bytes(4 + 2 * 6);
        bytes.max(least).min(512 * MIB)
    }

    /// Reserves metadata for `items` items; allocates a chunk if necessary.
    ///
    /// Errors: `NoSpace`, without any change. What the running transaction has freed counts only
    /// after a commit: then it is worth another try.
    pub fn reserve(&mut self, items: u64) -> FsResult<()> {
        match self.reserve_within(items) {
            Err(FsError::NoSpace) if self.chunk_possible(group::METADATA) > 0 => {}
            other => return other,
        }
        self.make_metadata_chunk()?;
        let needed = self.metadata_bytes(items);
        if !self.fits(needed) {
            return Err(FsError::NoSpace);
        }
        self.space.promised += needed;
        Ok(())
    }

    /// The same without a chunk for that alone: what is promised already may be given back first,
    /// by writing what waits for a place. `btrfs_reserve_metadata_bytes` before `flush_space` comes
    /// to `ALLOC_CHUNK`.
    ///
    /// Errors: `NoSpace`, without any change.
    pub fn reserve_within(&mut self, items: u64) -> FsResult<()> {
        if self.is_broken() {
            return Err(FsError::ReadOnly);
        }
        // A promise is no change: it begins no transaction.
        self.check_writable()?;
        self.load_space()?;
        let needed = self.metadata_bytes(items);
        if self.fits(needed) {
            self.space.promised += needed;
            return Ok(());
        }
        // Promises are of the worst case and seldom used: they may count on what the device could
        // still give, as the kernel overcommits, half of it.
        let possible = self.chunk_possible(group::METADATA) / 2;
        let wanted = self.space.promised + needed + self.global_reserve();
        if possible == 0 || self.metadata_left() + possible < wanted {
            return Err(FsError::NoSpace);
        }
        if self.metadata_left() < self.global_reserve() + 2 * self.metadata_bytes(1) {
            self.make_metadata_chunk()?;
        }
        self.space.promised += needed;
        Ok(())
    }

    /// Promises metadata for a call that frees space (removal, truncation): it may use half of the
    /// global reserve. `btrfs_start_transaction_fallback_global_rsv`.
    pub fn reserve_for_removal(&mut self, items: u64) -> FsResult<()> {
        match self.reserve(items) {
            Err(FsError::NoSpace) => {
                let needed = self.metadata_bytes(items);
                if self.metadata_left() < self.space.promised + needed + self.global_reserve() / 2 {
                    return Err(FsError::NoSpace);
                }
                self.space.promised += needed;
                Ok(())
            }
            other => other,
        }
    }

    /// Gives back a reservation for `items` items.
    pub fn unreserve(&mut self, items: u64) {
        let bytes = self.metadata_bytes(items);
        self.space.promised = self.space.promised.saturating_sub(bytes);
    }

    fn make_metadata_chunk(&mut self) -> FsResult<()> {
        self.begin()?;
        match self.make_chunk(group::METADATA) {
            Err(FsError::NoSpace) | Ok(()) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Before data takes more of the device: what was promised, and what commits need, is there.
    pub(super) fn secure_metadata(&mut self) -> FsResult<()> {
        if self.fits(0) { Ok(()) } else { self.make_metadata_chunk() }
    }

    fn fits(&self, needed: u64) -> bool {
        self.metadata_left() >= self.space.promised + needed + self.global_reserve()
    }

    /// Bytes of metadata that could be given out now, less what references that wait will take.
    pub fn metadata_left(&self) -> u64 {
        let left: u64 = self.space.of_kind(group::METADATA).map(Group::available).sum();
        left.saturating_sub(self.refs.waiting() * self.block_bytes() / 8)
    }

    /// Allocates chunks of data until `bytes` bytes can be given out, in pieces, without another
    /// chunk. Errors: `NoSpace`, with the chunks allocated so far.
    /// `btrfs_alloc_data_chunk_ondemand`.
    pub fn ensure_data(&mut self, bytes: u64) -> FsResult<()> {
        self.load_space()?;
        loop {
            let left: u64 = self.space.of_kind(group::DATA).map(Group::available).sum();
            if left >= bytes {
                return Ok(());
            }
            self.begin()?;
            match self.make_chunk(group::DATA) {
                Err(FsError::NoSpace) => return Err(FsError::NoSpace),
                done => self.guard(done)?,
            }
        }
    }

    /// Bytes of data that could be given out now, with chunks that could be made.
    pub fn data_left(&self) -> u64 {
        let left: u64 = self.space.of_kind(group::DATA).map(Group::available).sum();
        left + self.chunk_possible(group::DATA)
    }
}
