//! Counts of live objects by kind, so that a power cut can prove that it leaked nothing.
//!
//! An object that must not outlive its world holds a [`Tally`]. [`census`] lists what is alive on
//! this thread; after a world is dropped it must be what it was before.

use std::cell::Cell;

/// Kinds of objects that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A task of the executor.
    Task,
    /// A page of bytes in memory.
    Page,
    /// A bio between submission and completion.
    Bio,
    /// A cached block.
    Buffer,
    /// A file's or device's cached address space.
    Mapping,
    /// A journal transaction.
    Transaction,
    /// An in-memory inode.
    Inode,
    /// A runtime, queue, cache, journal or mounted file system.
    World,
}

const KINDS: usize = 8;
const NAMES: [&str; KINDS] =
    ["task", "page", "bio", "buffer", "mapping", "transaction", "inode", "world"];

thread_local! {
    static COUNTS: [Cell<u64>; KINDS] = const { [const { Cell::new(0) }; KINDS] };
}

/// One live object of a kind, for as long as it is held.
#[derive(Debug)]
pub struct Tally(Kind);

impl Tally {
    /// Counts one more `kind`.
    pub fn new(kind: Kind) -> Tally {
        COUNTS.with(|c| c[kind as usize].set(c[kind as usize].get() + 1));
        Tally(kind)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // The thread may be ending, its counters gone already: then nobody will read them.
        let _ = COUNTS.try_with(|c| c[self.0 as usize].set(c[self.0 as usize].get() - 1));
    }
}

/// Live objects on this thread: (kind, count), every kind, in a fixed order.
pub fn census() -> Vec<(&'static str, u64)> {
    COUNTS.with(|c| NAMES.iter().zip(c.iter()).map(|(n, c)| (*n, c.get())).collect())
}

/// Live objects of one kind on this thread.
pub fn count(kind: Kind) -> u64 {
    COUNTS.with(|c| c[kind as usize].get())
}
