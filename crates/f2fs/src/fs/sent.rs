//! A block on its way to the device.

use std::collections::VecDeque;
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
    /// Its number on the list of fsynced nodes, if it is there.
    pub listed: Option<u32>,
}

impl Page {
    /// It has been written: it goes from the list of fsynced nodes, if it is there.
    pub fn leave(&self, list: &mut VecDeque<(u32, Rc<Buffer>)>) {
        let Some(number) = self.listed else { return };
        let is_it = |b: &Rc<Buffer>| matches!(&self.of, Of::Cache(_, of) if Rc::ptr_eq(b, of));
        // Numbers ascend but where a checkpoint begins anew.
        let near = list.binary_search_by_key(&number, |(n, _)| *n).ok();
        let near = near.filter(|at| is_it(&list[*at].1));
        if let Some(at) = near.or_else(|| list.iter().position(|(_, b)| is_it(b))) {
            list.remove(at);
        }
    }
}
