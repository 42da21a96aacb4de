//! Atomic writes of F2FS: what is written between a start and a commit is nobody's until the
//! commit, whose version has all of it. An untorn write (`RWF_ATOMIC`) is a commit of its own.
//!
//! Invariants: 1. no version of a block or length is made between a start and its commit: whatever
//!                of that is there is what the file never held;
//!             2. what a commit made is of one version, and [`Ledger::commits`] has its blocks.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::FsError;
use wp_medium::Slice;
use wp_vfs::AtomicWrite;
use wp_workload::program::Call;

use super::{Basis, Did, Ledger, Object, Open, SizeVersion, Walk};

/// An atomic write under way.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// The file began empty.
    replaces: bool,
    /// Length as its writers see it.
    size: u64,
    /// Contents of the blocks written since the start.
    blocks: BTreeMap<u64, Slice>,
    /// Of some write nobody knows how far it came, or which of two was later.
    is_loose: bool,
}

/// Those of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtomicWrites {
    /// Under way.
    pending: BTreeMap<Object, Pending>,
    /// Committed, in order.
    pub commits: Vec<Commit>,
    /// Files behind descriptors that may write.
    writers: BTreeMap<u32, Object>,
}

/// An atomic write that was committed, or an untorn write.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub version: u32,
    pub object: Object,
    /// Blocks that it changed, below the length that it gave.
    pub blocks: BTreeSet<u64>,
    /// Is a length part of it? That of an untorn write is only if it changes the length.
    pub has_length: bool,
    /// Is it an untorn write? Its data are whole, and an older length beside them is no part of it:
    /// the length is durable later, and so is a cut before the write.
    pub is_untorn: bool,
}

impl Ledger {
    /// The length of a file with what an atomic write under way gave it.
    pub(super) fn pending_size(&self, o: Object) -> Option<u64> {
        self.atomic.pending.get(&o).map(|p| p.size)
    }

    /// A block of a file in an atomic write, as its writers see it.
    pub(super) fn pending_block(&self, o: Object, block: u64) -> Option<Slice> {
        let pending = self.atomic.pending.get(&o)?;
        let zero = || pending.replaces.then(|| self.zero_block());
        pending.blocks.get(&block).cloned().or_else(zero)
    }

    /// Is the write part of an atomic one? Then it is kept for the commit.
    pub(super) fn writes_apart(
        &mut self,
        o: Object,
        (at, data): (u64, &[Slice]),
        maybe: bool,
    ) -> bool {
        if !self.atomic.pending.contains_key(&o) {
            return false;
        }
        let parts = self.blocks_of(o, at, data);
        let end = at + data.iter().map(|s| u64::from(s.len())).sum::<u64>();
        if let Some(pending) = self.atomic.pending.get_mut(&o) {
            pending.blocks.extend(parts);
            pending.size = pending.size.max(end);
            pending.is_loose |= maybe;
        }
        true
    }

    /// [`Ledger::written`], `atomic`: by an untorn write.
    pub(super) fn wrote(
        &mut self,
        n: u32,
        open: Open,
        range: (u64, u64),
        (atomic, walk): (bool, &mut Walk),
    ) {
        if atomic {
            self.untorn(open.object, n + 1, range);
        }
        self.written(n, open, range, walk);
    }

    /// An untorn write of bytes `from..to` has changed the file: whole or not at all, but with no
    /// promise of when.
    fn untorn(&mut self, object: Object, version: u32, (from, to): (u64, u64)) {
        if from >= to {
            return;
        }
        let blocks = (from / self.block..to.div_ceil(self.block)).collect();
        let sizes = &self.files[object as usize].sizes;
        let has_length = sizes.last().is_some_and(|size| size.version == version);
        self.atomic.commits.push(Commit { version, object, blocks, has_length, is_untorn: true });
    }

    /// What operation `n` does to atomic writes: starts, commits and aborts them, or opens and
    /// closes the file. Without a descriptor that may write, one is lost.
    pub(super) fn atomic_call(&mut self, n: u32, did: &Did, walk: &Walk) {
        match (&did.call, &did.error) {
            (Call::Atomic(fd, what), None) => self.atomic(n, *fd, *what, walk),
            (
                Call::Atomic(fd, AtomicWrite::Commit),
                Some(FsError::Io | FsError::ReadOnly | FsError::NoSpace),
            ) => self.atomic_failed(n, *fd, walk),
            (Call::Open(fd, _, how), None) => {
                self.atomic.writers.remove(fd);
                if let Some(open) = walk.open.get(fd).filter(|_| how.write) {
                    self.atomic.writers.insert(*fd, open.object);
                }
                self.ends_unfinished();
            }
            (Call::Close(fd), None) => {
                self.atomic.writers.remove(fd);
                self.ends_unfinished();
            }
            _ => {}
        }
    }

    fn atomic(&mut self, n: u32, fd: u32, what: AtomicWrite, walk: &Walk) {
        let Some(open) = walk.open.get(&fd).copied() else { return };
        let (o, size) = (open.object, self.size(open.object));
        match what {
            AtomicWrite::Start | AtomicWrite::Replace if self.atomic.pending.contains_key(&o) => {}
            AtomicWrite::Start | AtomicWrite::Replace => {
                let replaces = what == AtomicWrite::Replace;
                let size = if replaces { 0 } else { size };
                let (blocks, is_loose) = (BTreeMap::new(), false);
                self.atomic.pending.insert(o, Pending { replaces, size, blocks, is_loose });
            }
            AtomicWrite::Abort => drop(self.atomic.pending.remove(&o)),
            AtomicWrite::Commit => {
                let scope = self.scope_of(o, false);
                let any = walk.told.get(&o).copied().unwrap_or(0);
                let basis = match self.atomic.pending.remove(&o) {
                    Some(pending) => {
                        self.commit(n + 1, o, pending, false);
                        Basis::Commit
                    }
                    None => Basis::Sync,
                };
                self.promise(n, scope, basis, (open.since, any));
                if let Some(promise) = self.promises.last_mut() {
                    promise.is_full = false;
                }
            }
        }
    }

    /// A commit failed: Linux drops what was not the file's by then, and what was may stay.
    fn atomic_failed(&mut self, n: u32, fd: u32, walk: &Walk) {
        let object = walk.open.get(&fd).map(|open| open.object);
        if let Some((o, pending)) = object.and_then(|o| Some((o, self.atomic.pending.remove(&o)?)))
        {
            self.commit(n + 1, o, pending, true);
        }
    }

    fn ends_unfinished(&mut self) {
        let AtomicWrites { pending, writers, .. } = &mut self.atomic;
        pending.retain(|o, _| writers.values().any(|written| written == o));
    }

    fn commit(&mut self, version: u32, o: Object, pending: Pending, maybe: bool) {
        let mut blocks = pending.blocks;
        if pending.replaces {
            let held: Vec<u64> = self.files[o as usize].blocks.keys().copied().collect();
            for block in held {
                blocks.entry(block).or_insert_with(|| self.zero_block());
            }
        }
        let maybe = maybe || pending.is_loose;
        self.files[o as usize].touch(version);
        // What a replaced file had behind its new end was cut: a later length may show it again,
        // as after any cut.
        let end = pending.size.div_ceil(self.block);
        let changed: BTreeSet<u64> = blocks.range(..end).map(|(block, _)| *block).collect();
        for (block, data) in blocks {
            self.set_block(o, block, version, data);
            let versions = self.files[o as usize].blocks.get_mut(&block);
            if let Some(last) = versions.and_then(|v| v.last_mut()) {
                last.maybe = maybe;
            }
        }
        let to = pending.size;
        if to != self.size(o) {
            let sized = SizeVersion { version, from: to, to, wrote: None, maybe };
            self.files[o as usize].sizes.push(sized);
        }
        if !maybe {
            self.atomic.commits.push(Commit {
                version,
                object: o,
                blocks: changed,
                has_length: true,
                is_untorn: false,
            });
        }
    }
}
