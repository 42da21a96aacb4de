//! Unwritten extents: splitting, converting, merging.
//!
//! Picture:    `[u u u u u u]` -> split at the borders of a write -> `[u][u u][u u u]` -> (its data
//!             is on the device) -> `[u][w w][u u u]`, and neighbours of one state become one
//!             again.
//! Invariants: 1. blocks become written only when their data has reached the device, or is filed as
//!                ordered data of the same transaction.
//!             2. every step leaves a whole tree: a split that finds no block for a node is undone.
//! Source:     Linux `fs/ext4/extents.c` (`ext4_split_extent`, `ext4_ext_convert_to_initialized`,
//!             `ext4_convert_unwritten_extents_endio`, `convert_initialized_extent`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_jbd2::Handle;
use wp_medium::Slice;

use super::extents::{joins, longest};
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::Extent;

impl Ext4 {
    /// Credits of a handle that changes one extent (`ext4_meta_trans_blocks` of one extent): nodes
    /// of its path and their splits, a bitmap and a descriptor for each, the inode and what stands
    /// beside it.
    pub(super) fn credits_one_extent(&self, inode: &Inode) -> u32 {
        let depth = inode.disk.borrow().block[6];
        let nodes = 2 * u32::from(depth);
        nodes + 2 * (nodes + 1) + 4
    }

    /// Makes `at` a border between extents, if it lies inside one. The caller holds `map_lock`.
    ///
    /// Waits: for nodes, the journal. Errors: `NoSpace` if there is no block for a node; the tree
    /// is as before then.
    pub(super) async fn split_at(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        at: u64,
    ) -> FsResult<()> {
        let Ok(l) = u32::try_from(at) else { return Ok(()) };
        let mut path = self.path(inode, l).await?;
        let leaf = path.last_mut().expect("a path has a leaf");
        let Some(i) = leaf.pos.checked_sub(1) else { return Ok(()) };
        let whole = leaf.leaf[i];
        if l == whole.logical() || at >= whole.end() {
            return Ok(());
        }
        let head = l - whole.logical();
        let state = whole.is_unwritten();
        let left = Extent::new(whole.logical(), whole.start(), head, state);
        let right = Extent::new(l, whole.start() + u64::from(head), whole.blocks() - head, state);
        if !leaf.is_full() {
            leaf.leaf[i] = left;
            leaf.leaf.insert(i + 1, right);
            return self.store_node(h, inode, leaf).await;
        }
        leaf.leaf[i] = left;
        self.store_node(h, inode, leaf).await?;
        let Err(e) = self.insert(h, inode, right, false).await else { return Ok(()) };
        // Nodes may have moved meanwhile; the left piece is where its first block leads.
        let mut path = self.path(inode, whole.logical()).await?;
        let leaf = path.last_mut().expect("a path has a leaf");
        let i = leaf.pos.checked_sub(1).expect("the left piece is in the tree");
        leaf.leaf[i] = whole;
        self.store_node(h, inode, leaf).await?;
        Err(e)
    }

    /// Sets the state of every extent in blocks `from..to`, splitting at the borders, and merges
    /// what continues each other. Holes are passed over. The caller holds `map_lock`.
    ///
    /// Waits and errors: as [`Ext4::split_at`].
    pub(super) async fn set_state(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        unwritten: bool,
    ) -> FsResult<()> {
        self.change_state(h, inode, from, to, unwritten).await?;
        self.fast_track_range(h, inode, (from, to.saturating_sub(1)));
        Ok(())
    }

    /// [`Ext4::set_state`] that fast commits are not told of.
    async fn change_state(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
        unwritten: bool,
    ) -> FsResult<()> {
        self.fast_settled(inode).await;
        let mut at = from;
        while at < to {
            let run = match self.lookup(inode, at).await? {
                Ok(run) => run,
                Err(hole) => {
                    at = at.saturating_add(hole);
                    continue;
                }
            };
            // An unwritten extent can be one block less long.
            let end = to.min(at + u64::from(run.len.min(longest(unwritten))));
            if run.unwritten != unwritten {
                self.split_at(h, inode, at).await?;
                self.split_at(h, inode, end).await?;
                self.flip(h, inode, at, unwritten).await?;
            }
            at = end;
        }
        Ok(())
    }

    /// Changes the state of the extent that begins at `at` and merges it with its neighbours in the
    /// leaf.
    async fn flip(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Inode,
        at: u64,
        unwritten: bool,
    ) -> FsResult<()> {
        let l = u32::try_from(at).map_err(|_| FsError::TooBig)?;
        let mut path = self.path(inode, l).await?;
        let leaf = path.last_mut().expect("a path has a leaf");
        let mut i = leaf.pos.checked_sub(1).expect("an extent begins here");
        let e = leaf.leaf[i];
        leaf.leaf[i] = Extent::new(e.logical(), e.start(), e.blocks(), unwritten);
        let one = |a: &Extent, b: &Extent| {
            Extent::new(a.logical(), a.start(), a.blocks() + b.blocks(), unwritten)
        };
        if i + 1 < leaf.leaf.len() && joins(&leaf.leaf[i], &leaf.leaf[i + 1]) {
            leaf.leaf[i] = one(&leaf.leaf[i], &leaf.leaf[i + 1]);
            leaf.leaf.remove(i + 1);
        }
        if i > 0 && joins(&leaf.leaf[i - 1], &leaf.leaf[i]) {
            leaf.leaf[i - 1] = one(&leaf.leaf[i - 1], &leaf.leaf[i]);
            leaf.leaf.remove(i);
            i -= 1;
        }
        leaf.pos = i + 1;
        self.store_node(h, inode, leaf).await?;
        self.merge_up(h, inode).await
    }

    /// Makes blocks `from..to`, part of one unwritten extent, written before their data is: the
    /// caller files it as ordered. Short pieces that would be left are zeroed and made written too.
    /// Returns the end of what is written now beyond `from`, at most `to`. The caller holds
    /// `map_lock`.
    ///
    /// Waits: for the journal, and for the zeroes. Source: `ext4_ext_convert_to_initialized`.
    pub(super) async fn initialise(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> FsResult<u64> {
        let l = u32::try_from(from).map_err(|_| FsError::TooBig)?;
        let path = self.path(inode, l).await?;
        let leaf = path.last().expect("a path has a leaf");
        let Some(e) = leaf.pos.checked_sub(1).map(|i| leaf.leaf[i]) else { return Ok(from) };
        let to = to.min(e.end());
        let bs = u64::from(self.bs().bytes());
        let eof = match self.opts.era.zeroes_before_disksize() {
            true => inode.disksize.get(),
            false => inode.size.get(),
        };
        let eof = eof.div_ceil(bs).max(to);
        // Where a written neighbour takes the blocks over, its border moves and nothing is split,
        // so nothing is zeroed.
        let i = leaf.pos - 1;
        let neighbour = |i: usize| leaf.leaf.get(i).filter(|n| !n.is_unwritten());
        let fits = |n: &Extent| u64::from(n.blocks()) + (to - from) < u64::from(longest(false));
        let left = i.checked_sub(1).and_then(neighbour).filter(|n| {
            n.end() == from && n.start() + u64::from(n.blocks()) == e.start() && fits(n)
        });
        let right = neighbour(i + 1).filter(|n| {
            u64::from(n.logical()) == to
                && e.start() + u64::from(e.blocks()) == n.start()
                && fits(n)
        });
        let moves = to - from < u64::from(e.blocks())
            && ((from == u64::from(e.logical()) && left.is_some())
                || (to == e.end() && right.is_some()));
        let room = if e.end() <= eof && !moves { self.zeroout_blocks() } else { 0 };
        let (first, end) = (u64::from(e.logical()), e.end());
        let place = |block: u64| e.start() + (block - first);
        let (mut a, mut b) = (from, to);
        if room > 0 && end > to {
            if end - from <= room {
                self.zero_out(place(to), (end - to) as u32).await?;
                b = end;
            }
            if b - first < room {
                if first < from {
                    self.zero_out(place(first), (from - first) as u32).await?;
                }
                a = first;
            }
        }
        self.change_state(h, inode, a, b, false).await?;
        // What was zeroed beside it reads the same either way, until it is overwritten in place
        // (`ext4_map_blocks`, N55).
        let tracked = if self.opts.fast.fixes.zeroed { (a, b) } else { (from, to) };
        self.fast_track_range(h, inode, (tracked.0, tracked.1.saturating_sub(1)));
        Ok(to)
    }

    /// Blocks of an extent that are rather zeroed than split off.
    fn zeroout_blocks(&self) -> u64 {
        match self.opts.era.zeroes_by_kib() {
            true => u64::from(self.opts.zeroout_kib) * 1024 / u64::from(self.bs().bytes()),
            false => 7,
        }
    }

    /// Writes zeroes to a run of blocks and waits (`ext4_ext_zeroout`).
    pub(super) async fn zero_out(&self, first: u64, blocks: u32) -> FsResult<()> {
        let zeroes = vec![Slice::zero(self.bs().bytes()); blocks as usize];
        let bio = Bio::write(self.bs().sector_of(first), zeroes, Flags::SYNC);
        if !crate::site::ZERO_OUT.on() {
            return Ok(());
        }
        if !crate::site::ZERO_OUT_WAIT.on() {
            self.bdev.queue().submit(bio);
            return Ok(());
        }
        self.bdev.queue().submit_wait(bio).await.map(|_| ()).map_err(|_| FsError::Io)
    }
}
