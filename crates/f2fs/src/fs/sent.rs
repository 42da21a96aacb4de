//! A block on its way to the device.

use std::rc::Rc;

use wp_cache::{Buffer, Mapping};
use wp_medium::Slice;

use super::direct_log::Arrivals;
use super::io::Kind;

/// Whose a block in a bio is.
pub(super) enum Of {
    /// A cache's.
    Cache(Rc<Mapping>, Rc<Buffer>),
    /// A direct write's: its contents, and who waits.
    Direct(Slice, Rc<Arrivals>),
}

impl Of {
    /// Its contents as they are sent. Most of a node or of a block of metadata is zeroes and
    /// changes again soon: the device gets a compact page, and the cache keeps its own without a
    /// copy.
    pub(super) fn contents(&self, kind: Kind) -> Slice {
        match self {
            Of::Cache(_, buf) if kind == Kind::Data => buf.snapshot(),
            Of::Cache(_, buf) => buf.compact(),
            Of::Direct(data, _) => data.clone(),
        }
    }
}

/// A block in a bio.
pub(super) struct Page {
    pub of: Of,
    /// Inode that a node is of.
    pub ino: u32,
    /// A checkpoint waits for it.
    pub cp: bool,
    /// It is on the list of fsynced nodes.
    pub listed: bool,
}
