//! The data of files: a construction asks for them, and does not keep them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use super::block::Block;

/// The data of files in memory. Whoever has them calls [`super::Store::dirty_block`] for each block
/// that becomes dirty; a construction asks which ones no log has yet.
pub trait FileData: fmt::Debug {
    /// Blocks `keys` of file `ino` that are dirty and in no log, in order
    /// (`nilfs_lookup_dirty_data_buffers`).
    fn dirty(&self, ino: u64, keys: RangeInclusive<u64>) -> Vec<u64>;

    /// Is any of these blocks dirty and in no log?
    fn is_dirty(&self, ino: u64, keys: RangeInclusive<u64>) -> bool;

    /// A log has block `key` of file `ino` from now on; its contents, by reference. `None`: it is
    /// not in memory.
    fn take(&self, ino: u64, key: u64) -> Option<Block>;

    /// The same bytes in the form in which the medium is to hold them.
    fn sent(&self, _ino: u64, _key: u64, contents: Block) -> Block {
        contents
    }
}

/// Dirty blocks by file and place, without a page cache: what a recovery writes again.
#[derive(Debug, Default)]
pub struct DirtyBlocks(RefCell<BTreeMap<(u64, u64), Block>>);

impl DirtyBlocks {
    /// Block `key` of file `ino` is to be written.
    pub fn put(&self, ino: u64, key: u64, what: impl Into<Block>) {
        self.0.borrow_mut().insert((ino, key), what.into());
    }

    /// Forgets what is to be written of file `ino` from block `key` on.
    pub fn cut(&self, ino: u64, key: u64) {
        self.0.borrow_mut().retain(|(of, at), _| *of != ino || *at < key);
    }
}

impl FileData for DirtyBlocks {
    fn dirty(&self, ino: u64, keys: RangeInclusive<u64>) -> Vec<u64> {
        let (from, to) = keys.into_inner();
        self.0.borrow().range((ino, from)..=(ino, to)).map(|((_, key), _)| *key).collect()
    }

    fn is_dirty(&self, ino: u64, keys: RangeInclusive<u64>) -> bool {
        let (from, to) = keys.into_inner();
        self.0.borrow().range((ino, from)..=(ino, to)).next().is_some()
    }

    fn take(&self, ino: u64, key: u64) -> Option<Block> {
        self.0.borrow_mut().remove(&(ino, key))
    }
}
