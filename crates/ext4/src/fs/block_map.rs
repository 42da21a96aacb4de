//! The block map of a file, whichever of the two kinds it has.
//!
//! Picture:    [`Ext4::lookup`], [`Ext4::allocate`], [`Ext4::cut_once`] -> `extents` (a tree of
//!             extents in the inode) | `indirect` (15 pointers in the inode, blocks of pointers).
//! Invariants: a map changes only under the inode's `map_lock` and in a handle.
//! Source:     Linux `ext4_map_blocks` (`fs/ext4/inode.c`), `ext4_max_bitmap_size`
//!             (`fs/ext4/super.c`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_jbd2::Handle;
use wp_rt::{MaybeReady, soon};

use super::extents::{Fill, Run};
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::inode::flag;
use crate::disk::{SuperBlock, ro_compat};

impl Ext4 {
    /// Has the inode a map, that is, does `i_block` say where its blocks are?
    pub(super) fn has_map(&self, inode: &Inode) -> bool {
        let d = inode.disk.borrow();
        d.is_file() || d.is_dir() || (d.is_symlink() && !d.is_fast_symlink(self.bs().sectors()))
    }

    /// Looks up `logical`. `Ok(run)`: mapped, from `logical` on; `Err(hole)`: not mapped for at
    /// least `hole` blocks.
    pub(super) fn lookup<'a>(
        &'a self,
        inode: &'a Inode,
        logical: u64,
    ) -> MaybeReady<'a, FsResult<Result<Run, u64>>> {
        if !inode.has(flag::EXTENTS) {
            return MaybeReady::later(self.indirect_lookup(inode, logical));
        }
        let Ok(l) = u32::try_from(logical) else { return MaybeReady::now(Err(FsError::TooBig)) };
        match self.root_lookup(inode, l) {
            Ok(Some(found)) => MaybeReady::now(Ok(found)),
            Ok(None) => MaybeReady::later(self.extent_lookup(inode, l)),
            Err(e) => MaybeReady::now(Err(e)),
        }
    }

    /// Allocates up to `want` blocks at `logical`, which must be a hole, and puts them in the map.
    ///
    /// Returns the run. The caller holds `map_lock`. Waits: for bitmaps, nodes, the journal.
    /// Errors: `NoSpace`, `TooBig`.
    pub(super) async fn allocate(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        logical: u64,
        want: u32,
        promised: bool,
    ) -> FsResult<Run> {
        self.allocate_as(h, inode, logical, want, promised, Fill::Written).await
    }

    /// [`Ext4::allocate`] for something; only extents can be unwritten.
    pub(super) async fn allocate_as(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        logical: u64,
        want: u32,
        promised: bool,
        fill: Fill,
    ) -> FsResult<Run> {
        soon!(self.fast_settled(inode));
        let run = if inode.has(flag::EXTENTS) {
            self.extent_allocate(h, inode, logical, want, promised, fill).await?
        } else if self.geo.cluster_bits > 0 {
            let what = "bigalloc and a file without extents: Linux maps no blocks of it";
            return Err(FsError::Unsupported(what.into()));
        } else if fill == Fill::Written {
            Box::pin(self.indirect_allocate(h, inode, logical, want, promised)).await?
        } else {
            let what = "unwritten blocks in a file without extents";
            return Err(FsError::Unsupported(what.into()));
        };
        let end = run.logical + u64::from(run.len);
        self.fast_track_range(h, inode, (run.logical, end.saturating_sub(1)));
        Ok(run)
    }

    /// Removes blocks from `from` on, the last ones first, as many as fit a handle. `true`: nothing
    /// is left to remove.
    ///
    /// `metadata`: the blocks held metadata (a directory, a symbolic link's target).
    pub(super) async fn cut_once(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        metadata: bool,
    ) -> FsResult<bool> {
        soon!(self.fast_settled(inode));
        if inode.has(flag::EXTENTS) {
            self.extent_cut(h, inode, from, metadata).await
        } else if self.has_map(inode) {
            self.indirect_cut(h, inode, from, metadata).await
        } else {
            Ok(true)
        }
    }

    /// Bytes that a file of this inode can have at most.
    pub(super) fn size_limit(&self, inode: &Inode) -> u64 {
        let bs = u64::from(self.bs().bytes());
        if inode.has(flag::EXTENTS) {
            (u64::from(u32::MAX) - 1) * bs
        } else {
            bitmap_limit(bs, self.sb.borrow().has_ro_compat(ro_compat::HUGE_FILE))
        }
    }

    /// Says in the super block that some file is larger than 2 GiB, before one is. (The kernel does
    /// so in the handle that writes the inode, `ext4_do_update_inode`.)
    pub(super) async fn announce_size(&self, bytes: u64) -> FsResult<()> {
        let large = ro_compat::LARGE_FILE;
        if bytes <= i32::MAX as u64 || self.sb.borrow().has_ro_compat(large) {
            return Ok(());
        }
        let h = soon!(self.start(1))?;
        let set = |sb: &mut SuperBlock| {
            sb.feature_ro_compat = (sb.feature_ro_compat.get() | large).into();
        };
        let out = self.change_super(&h, set).await;
        soon!(self.stop(h, out))
    }

    /// Errors: `TooBig` for a length that the inode's map cannot reach.
    pub(super) fn check_size(&self, inode: &Inode, bytes: u64) -> FsResult<()> {
        if bytes > self.size_limit(inode) { Err(FsError::TooBig) } else { Ok(()) }
    }
}

/// Bytes of the largest file without extents: what three levels of pointers reach, and what
/// `i_blocks` counts with the pointers' own blocks (2^32 sectors; with `huge_file` 2^48).
fn bitmap_limit(block_bytes: u64, huge: bool) -> u64 {
    let per = block_bytes / 4;
    let all = 12 + per + per * per + per * per * per;
    let nodes = 1 + (1 + per) + (1 + per + per * per);
    let countable = if huge { (1 << 48) - 1 } else { ((1u64 << 32) - 1) / (block_bytes / 512) };
    if all + nodes <= countable {
        return all * block_bytes;
    }
    let rest = countable - 12 - per;
    let nodes = if rest < per * per {
        1 + 1 + rest.div_ceil(per)
    } else {
        let rest = rest - per * per;
        1 + (1 + per) + 1 + rest.div_ceil(per) + rest.div_ceil(per * per)
    };
    (countable - nodes) * block_bytes
}

#[cfg(test)]
mod tests {
    use super::bitmap_limit;

    #[test]
    fn the_largest_files_without_extents_are_those_that_the_kernel_allows() {
        // Documentation/filesystems/ext2.rst: 16 GiB, 256 GiB; 2 TiB by the count of sectors.
        assert_eq!(bitmap_limit(1024, false) >> 30, 16);
        assert_eq!(bitmap_limit(2048, false) >> 30, 256);
        assert_eq!(bitmap_limit(4096, false) >> 30, 2045);
        assert_eq!(bitmap_limit(4096, true) >> 30, 4100);
    }
}
