//! Clusters (`bigalloc`): space is taken and freed by clusters, and mapped by blocks.
//!
//! Picture:    a file's blocks of one logical cluster lie in one cluster of the device, each as far
//!             into it as into the file's. The first block takes the cluster, the others find it
//!             through their neighbours; the last one to go frees it.
//! Invariants: 1. a cluster belongs to one file, or to metadata; a node of a tree and an attribute
//!                block have one of their own.
//!             2. a cluster is promised to delayed blocks if it has any and no block with a place.
//!             3. without bigalloc a cluster is a block, and all of this comes to nothing.
//! Differs:    before 4.20 kernels promised a cluster twice at times, and gave it back later.
//! Source:     Linux `get_implied_cluster_alloc()`, `ext4_ext_check_overlap()`,
//!             `ext4_remove_blocks()` (`fs/ext4/extents.c`), `ext4_clu_alloc_state()`,
//!             `ext4_da_release_space()` (`fs/ext4/inode.c`), `ext4_rereserve_cluster()`.

use std::rc::Rc;

use wp_base::FsResult;
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_rt::soon;

use super::extents::METADATA_PER_CUT;
use super::inode::Inode;
use super::mballoc::Request;
use super::mount::Ext4;
use crate::disk::Extent;

/// Extents that one step of a cut takes at most.
pub(super) const PIECES_PER_CUT: usize = 64;
/// Nodes that one step of a cut may free.
const NODES_PER_CUT: u32 = 8;

/// Delayed blocks of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delayed {
    /// How many.
    blocks: u32,
    /// Is the cluster promised to them? If not, it has a place already.
    promised: bool,
}

/// A piece of a file's map that goes: first logical block, first block, blocks.
pub(super) type Gone = (u64, u64, u32);

/// What lies behind the first `keep` blocks of an extent.
pub(super) fn piece_behind(e: &Extent, keep: u32) -> Gone {
    let skip = u64::from(keep);
    (u64::from(e.logical()) + skip, e.start() + skip, e.blocks() - keep)
}

impl Ext4 {
    /// Adds `clusters` (may be negative) to what the inode says that it owns (`i_blocks`).
    pub(super) fn count_clusters(&self, inode: &Inode, clusters: i64) -> FsResult<()> {
        inode.add_blocks(clusters << self.geo.cluster_bits, self.bs().sectors())
    }

    /// Blocks of `clusters` clusters, as much as 32 bits hold.
    pub(super) fn blocks_in(&self, clusters: u64) -> u32 {
        let blocks = clusters.checked_mul(self.geo.cluster_blocks().into());
        blocks.and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX)
    }

    /// Revoke records of a handle that frees `blocks` blocks of metadata: all blocks of a cluster
    /// are revoked with it (`ext4_free_metadata_revoke_credits`).
    pub(super) fn revokes(&self, blocks: u32) -> u32 {
        blocks << self.geo.cluster_bits
    }

    /// Revoke credits of a handle for one step of a cut: its blocks and a path of nodes; with
    /// bigalloc the rest of the clusters at both ends of each extent, too.
    pub(super) fn revokes_of_cut(&self) -> u32 {
        let ends = if self.geo.cluster_bits == 0 { 0 } else { 2 * PIECES_PER_CUT as u32 };
        METADATA_PER_CUT + self.revokes(NODES_PER_CUT + ends)
    }

    /// The place of `logical`, a hole, in a cluster that a neighbour has already, and how many of
    /// `want` blocks lie there (`get_implied_cluster_alloc`).
    fn implied(
        &self,
        logical: u64,
        want: u32,
        [left, right]: [Option<(u64, u64)>; 2],
    ) -> Option<(u64, u32)> {
        let start = self.geo.cluster_floor(logical);
        let end = start + u64::from(self.geo.cluster_blocks());
        let is_near = |(l, _): &(u64, u64)| (start..end).contains(l);
        let end = right.map_or(end, |(r, _)| r.min(end));
        let len = u64::from(want).min(end - logical) as u32;
        let place = match (left.filter(is_near), right.filter(is_near)) {
            (Some((l, place)), _) => place + (logical - l),
            (None, Some((r, place))) => place.checked_sub(r - logical)?,
            (None, None) => return None,
        };
        Some((place, len))
    }

    /// Takes space for a file's blocks from `rq.logical` on, a hole, whose goal is this block's:
    /// first block, how many of `rq.want` blocks have a place there, and the clusters that were
    /// taken for them (first block, how many; none where a neighbour has the cluster).
    pub(super) async fn take_for_map(
        &self,
        h: &Handle,
        rq: &Request<'_>,
    ) -> FsResult<(u64, u32, (u64, u32))> {
        if self.geo.cluster_bits == 0 {
            let (phys, len) = self.take_blocks(h, rq).await?;
            return Ok((phys, len, (phys, len)));
        }
        let (logical, want) = (rq.logical, rq.want);
        if let Some((phys, len)) = self.implied(logical, want, [rq.left, rq.right]) {
            return Ok((phys, len, (phys, 0)));
        }
        // A cluster that blocks behind have already is theirs (`ext4_ext_check_overlap`).
        let room = rq.right.map_or(u64::MAX, |(r, _)| self.geo.cluster_floor(r) - logical);
        let want = u64::from(want).min(room);
        let skip = logical - self.geo.cluster_floor(logical);
        let rq = Request {
            // The kernel's number wraps, too.
            goal: rq.goal.wrapping_sub(skip),
            logical: logical - skip,
            want: self.geo.clusters_of(skip + want) as u32,
            ..*rq
        };
        let (start, n) = self.take_blocks(h, &rq).await?;
        let len = u64::from(self.blocks_in(n.into())) - skip;
        Ok((start + skip, len.min(want) as u32, (start, n)))
    }

    /// Hands back what [`Ext4::take_for_map`] took.
    pub(super) async fn return_taken(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Inode,
        (start, clusters): (u64, u32),
    ) -> FsResult<()> {
        if clusters == 0 {
            return Ok(());
        }
        self.count_clusters(inode, -i64::from(clusters))?;
        self.return_blocks(h, start, self.blocks_in(clusters.into()), false).await
    }

    /// Is one of blocks `from..to` mapped? The caller holds `map_lock`.
    async fn maps_any(&self, inode: &Inode, from: u64, to: u64) -> FsResult<bool> {
        let mut at = from;
        while at < to {
            match soon!(self.lookup(inode, at))? {
                Ok(_) => return Ok(true),
                Err(hole) => at = at.saturating_add(hole),
            }
        }
        Ok(false)
    }

    /// Has the cluster of a block a place? The caller holds `map_lock`.
    pub(super) async fn cluster_has_place(&self, inode: &Inode, block: u64) -> FsResult<bool> {
        let start = self.geo.cluster_floor(block);
        self.maps_any(inode, start, start + u64::from(self.geo.cluster_blocks())).await
    }

    /// Frees the blocks of a piece that is taken out of the map: with bigalloc the clusters of
    /// which no other block is mapped. The map is as before the piece went, or as after. `right`:
    /// may blocks behind the piece stay? The caller holds `map_lock`.
    pub(super) async fn return_piece(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Inode,
        (logical, start, len): Gone,
        (metadata, right): (bool, bool),
    ) -> FsResult<()> {
        if self.geo.cluster_bits == 0 {
            inode.add_blocks(-i64::from(len), self.bs().sectors())?;
            return self.return_blocks(h, start, len, metadata).await;
        }
        let ratio = u64::from(self.geo.cluster_blocks());
        let (mut from, mut to) = (logical, logical + u64::from(len));
        if from % ratio != 0 && self.maps_any(inode, from - from % ratio, from).await? {
            from = from.next_multiple_of(ratio);
        }
        if right
            && to % ratio != 0
            && from < to
            && self.maps_any(inode, to, to.next_multiple_of(ratio)).await?
        {
            to -= to % ratio;
        }
        if from >= to {
            return Ok(());
        }
        let clusters = (to - 1) / ratio - from / ratio + 1;
        self.count_clusters(inode, -(clusters as i64))?;
        let first = self.geo.cluster_floor(start + (from - logical));
        self.return_blocks(h, first, self.blocks_in(clusters), metadata).await?;
        self.promise_again(inode, from / ratio, clusters);
        Ok(())
    }

    /// Clusters that have lost their place are promised to the delayed blocks that they still have
    /// (`ext4_rereserve_cluster`).
    fn promise_again(&self, inode: &Inode, first: u64, clusters: u64) {
        let mut delayed = inode.delayed.borrow_mut();
        for (_, d) in delayed.range_mut(first..first + clusters).filter(|(_, d)| !d.promised) {
            d.promised = true;
            self.reserve_cluster(inode);
        }
    }

    fn reserve_cluster(&self, inode: &Inode) {
        inode.reserved.set(inode.reserved.get() + 1);
        self.reserved_blocks.set(self.reserved_blocks.get() + 1);
    }

    /// Clusters of `logical` and what follows have been given places: none of them is promised any
    /// more, whatever delayed blocks they still have.
    pub(super) fn claim_clusters(&self, inode: &Inode, logical: u64, clusters: u32) {
        if self.geo.cluster_bits == 0 {
            return;
        }
        let first = logical >> self.geo.cluster_bits;
        let mut delayed = inode.delayed.borrow_mut();
        for (_, d) in delayed.range_mut(first..first + u64::from(clusters)) {
            if std::mem::take(&mut d.promised) {
                self.unreserve(inode, 1);
            }
        }
    }

    /// Notes that a block is delayed, and promises its cluster to it, unless that has a place
    /// (`placed`) or is promised. `false`: there is no space for that.
    pub(super) fn delay(&self, inode: &Inode, b: &Buffer, placed: bool) -> bool {
        if b.flag(BufFlag::Delay) {
            return true;
        }
        let cluster = b.block() >> self.geo.cluster_bits;
        let is_big = self.geo.cluster_bits > 0;
        let mut delayed = inode.delayed.borrow_mut();
        let is_known = is_big && delayed.contains_key(&cluster);
        if !is_known && !placed {
            // What is promised to other blocks is not there to be taken.
            if self.free_for_delay() == 0 {
                return false;
            }
            self.reserve_cluster(inode);
        }
        if is_big {
            let promised = !placed;
            delayed.entry(cluster).or_insert(Delayed { blocks: 0, promised }).blocks += 1;
        }
        b.set(BufFlag::Delay);
        true
    }

    /// A block has its place, or is dropped: what was promised for it alone is not promised any
    /// more.
    pub(super) fn undelay(&self, inode: &Inode, b: &Buffer) -> bool {
        if !b.clear(BufFlag::Delay) {
            return false;
        }
        if self.geo.cluster_bits == 0 {
            self.unreserve(inode, 1);
            return true;
        }
        let cluster = b.block() >> self.geo.cluster_bits;
        let mut delayed = inode.delayed.borrow_mut();
        if let Some(d) = delayed.get_mut(&cluster) {
            d.blocks -= 1;
            if d.blocks == 0 {
                if d.promised {
                    self.unreserve(inode, 1);
                }
                delayed.remove(&cluster);
            }
        }
        true
    }
}
