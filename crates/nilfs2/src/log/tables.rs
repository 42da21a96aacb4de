//! The usage of segments and the checkpoints while a log is made.

use std::ops::Range;

use wp_base::{FsError, FsResult};

use crate::disk::checkpoint::flag as cp_flag;
use crate::disk::usage::flag;
use crate::disk::{
    Checkpoint, CheckpointHeader, Inode, SegmentUsage, UsageHeader, lo32, view_mut, wide,
};

use super::Store;
use super::block::Block;
use super::dat::Via;
use super::meta_file::MetaFile;

/// A structure in block `block` of a metadata file, to be changed; the block must be there.
pub(super) fn within<'f, T>(
    file: &'f mut MetaFile,
    via: &mut Via<'_>,
    at: (u64, usize),
) -> FsResult<&'f mut T>
where
    T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::KnownLayout,
{
    view_mut(file.existing_mut(via, at.0, at.1..at.1 + size_of::<T>())?, 0).ok_or(FsError::Io)
}

impl Store<'_> {
    fn usage_mut(&mut self, segment: u64, may_make: bool) -> FsResult<&mut SegmentUsage> {
        let g = &self.disk.g;
        if segment >= g.segments {
            let expected = format!("less than {}", g.segments);
            return Err(FsError::corrupt("nilfs2 segment", "number", 0, segment, expected));
        }
        let (at, bytes) = (g.sufile.place(segment), g.block_bytes());
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        if may_make {
            self.sufile.block_mut(via, at.0, 0..0, || Block::zero(bytes))?;
        }
        within(&mut self.sufile, via, at)
    }

    fn usage_head(&mut self) -> FsResult<&mut UsageHeader> {
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        within(&mut self.sufile, via, (0, 0))
    }

    /// Adds to the counts of free segments and of those in use.
    fn count_segments(&mut self, clean: i64, dirty: i64) -> FsResult<()> {
        let head = self.usage_head()?;
        head.ncleansegs = head.ncleansegs.get().wrapping_add_signed(clean).into();
        head.ndirtysegs = head.ndirtysegs.get().wrapping_add_signed(dirty).into();
        Ok(())
    }

    /// Has in memory what a mount reads: the newest checkpoint, the head of the usage of segments,
    /// the root's inode.
    pub fn read_at_mount(&mut self) -> FsResult<()> {
        self.segments_free()?;
        let (block, _) = self.disk.g.cpfile.place(self.dat.cno.saturating_sub(1));
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        self.cpfile.load_block(via, block)?;
        self.inode(crate::disk::ino::ROOT).map(|_| ())
    }

    /// Free segments, as the head of their file counts them.
    pub fn segments_free(&mut self) -> FsResult<u64> {
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let held = self.sufile.bytes(via, 0)?.ok_or(FsError::Io)?;
        let head = crate::disk::view::<UsageHeader>(held, 0).ok_or(FsError::Io)?;
        Ok(head.ncleansegs.get())
    }

    /// Takes the next free segment behind the one that was taken last. `nilfs_sufile_alloc`.
    ///
    /// Errors: `NoSpace`.
    pub(super) fn take_segment(&mut self) -> FsResult<u64> {
        let segments = self.disk.g.segments;
        let last = self.usage_head()?.last_alloc.get();
        for i in 0..segments {
            let segment = last.wrapping_add(1 + i) % segments;
            // A part of the file that was never written is all free.
            let is_clean = {
                let at = self.disk.g.sufile.place(segment);
                let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
                let held = self.sufile.bytes(via, at.0)?;
                let usage = held.and_then(|h| crate::disk::view::<SegmentUsage>(h, at.1));
                usage.is_none_or(SegmentUsage::is_clean)
            };
            if is_clean {
                let usage = self.usage_mut(segment, true)?;
                usage.flags = (usage.flags.get() | flag::DIRTY).into();
                self.count_segments(-1, 1)?;
                self.usage_head()?.last_alloc = segment.into();
                return Ok(segment);
            }
        }
        Err(FsError::NoSpace)
    }

    /// A segment is free again. `nilfs_sufile_do_free`.
    pub(super) fn free_segment(&mut self, segment: u64) -> FsResult<()> {
        let usage = self.usage_mut(segment, false)?;
        if usage.is_clean() {
            return Ok(());
        }
        let was_dirty = usage.is_dirty();
        *usage = SegmentUsage { lastmod: 0.into(), nblocks: 0.into(), flags: 0.into() };
        self.count_segments(1, if was_dirty { -1 } else { 0 })
    }

    /// A segment that was freed is in use after all. `nilfs_sufile_do_cancel_free`.
    pub(super) fn reuse_segment(&mut self, segment: u64) -> FsResult<()> {
        let usage = self.usage_mut(segment, false)?;
        if !usage.is_clean() {
            return Ok(());
        }
        usage.flags = flag::DIRTY.into();
        self.count_segments(-1, 1)
    }

    /// How a segment is used.
    pub fn usage(&mut self, segment: u64) -> FsResult<SegmentUsage> {
        let at = self.disk.g.sufile.place(segment);
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let held = self.sufile.bytes(via, at.0)?;
        let usage = held.and_then(|h| crate::disk::view::<SegmentUsage>(h, at.1));
        let free = SegmentUsage { lastmod: 0.into(), nblocks: 0.into(), flags: 0.into() };
        Ok(usage.copied().unwrap_or(free))
    }

    /// A segment counts as written at `now`. `nilfs_sufile_set_suinfo`.
    pub fn set_written(&mut self, segment: u64, now: u64) -> FsResult<()> {
        self.usage_mut(segment, false)?.lastmod = now.into();
        Ok(())
    }

    /// Checkpoint `cno`. `None`: there is none.
    pub fn checkpoint(&mut self, cno: u64) -> FsResult<Option<Checkpoint>> {
        if cno == 0 {
            return Ok(None);
        }
        let (block, at) = self.disk.g.cpfile.place(cno);
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let held = self.cpfile.bytes(via, block)?;
        let found = held.and_then(|h| crate::disk::view::<Checkpoint>(h, at)).copied();
        Ok(found.filter(Checkpoint::is_valid))
    }

    /// The checkpoints that are snapshots, in order. Errors: `Corrupt` for a list that does not
    /// ascend.
    pub fn snapshots(&mut self) -> FsResult<Vec<u64>> {
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let held = self.cpfile.bytes(via, 0)?.ok_or(FsError::Io)?;
        let head = crate::disk::view::<CheckpointHeader>(held, 0).ok_or(FsError::Io)?;
        let mut out: Vec<u64> = Vec::new();
        let mut next = head.snapshot_list.next.get();
        while next != 0 {
            if out.last().is_some_and(|last| *last >= next) {
                let expected = format!("more than {:?}", out.last());
                return Err(FsError::corrupt("nilfs2 snapshots", "ssl_next", 0, next, expected));
            }
            out.push(next);
            next = self.checkpoint(next)?.map_or(0, |cp| cp.snapshot_list.next.get());
        }
        Ok(out)
    }

    /// Checkpoints go, but no snapshots. `nilfs_cpfile_delete_checkpoints`.
    ///
    /// Errors: `Invalid` if there are snapshots among them, which stay.
    pub(super) fn delete_checkpoints(&mut self, range: Range<u64>) -> FsResult<()> {
        let table = self.disk.g.cpfile;
        let end = range.end.min(self.dat.cno);
        let (mut cno, mut deleted, mut snapshots) = (range.start.max(1), 0u64, 0u64);
        while cno < end {
            let (block, _) = table.place(cno);
            let entries: Vec<(u64, usize)> =
                table.in_block(block).filter(|(n, _)| *n >= cno && *n < end).collect();
            let Some((last, _)) = entries.last().copied() else { break };
            cno = last + 1;
            let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
            let Some(held) = self.cpfile.bytes(via, block)? else { continue };
            let valid = |at: &usize| {
                crate::disk::view::<Checkpoint>(held, *at).is_some_and(Checkpoint::is_valid)
            };
            let kept = |at: &usize| {
                crate::disk::view::<Checkpoint>(held, *at).is_some_and(Checkpoint::is_snapshot)
            };
            let valid: Vec<usize> = entries.iter().map(|(_, at)| *at).filter(valid).collect();
            let (stay, go): (Vec<usize>, Vec<usize>) = valid.into_iter().partition(kept);
            snapshots += wide(stay.len());
            let here = lo32(wide(go.len()));
            if here == 0 {
                continue;
            }
            for at in go {
                let cp: &mut Checkpoint = within(&mut self.cpfile, via, (block, at))?;
                cp.flags = (cp.flags.get() | cp_flag::INVALID).into();
            }
            deleted += u64::from(here);
            let first: &mut Checkpoint = within(&mut self.cpfile, via, (block, 0))?;
            if block == 0 {
                continue;
            }
            let left = first.checkpoints_count.get().saturating_sub(here);
            first.checkpoints_count = left.into();
            if left == 0 {
                let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
                self.cpfile.remove(via, block)?;
            }
        }
        if deleted > 0 {
            let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
            let head: &mut CheckpointHeader = within(&mut self.cpfile, via, (0, 0))?;
            head.ncheckpoints = head.ncheckpoints.get().saturating_sub(deleted).into();
        }
        if snapshots == 0 {
            return Ok(());
        }
        Err(FsError::Invalid("a snapshot among the checkpoints that go"))
    }

    /// A segment's contents do not count; it is for the cleaner. `nilfs_sufile_do_scrap`.
    pub(super) fn scrap_segment(&mut self, segment: u64) -> FsResult<()> {
        let usage = self.usage_mut(segment, true)?;
        if usage.flags.get() == flag::DIRTY && usage.nblocks.get() == 0 {
            return Ok(());
        }
        let (was_clean, was_dirty) = (usage.is_clean(), usage.is_dirty());
        let flags = flag::DIRTY.into();
        *usage = SegmentUsage { lastmod: 0.into(), nblocks: 0.into(), flags };
        self.count_segments(-i64::from(was_clean), i64::from(!was_dirty))
    }

    /// A segment is in use. `nilfs_sufile_mark_dirty`.
    pub(super) fn use_segment(&mut self, segment: u64) -> FsResult<()> {
        let usage = self.usage_mut(segment, false)?;
        if usage.is_bad() {
            let found = usage.flags.get().into();
            return Err(FsError::corrupt("nilfs2 segment usage", "su_flags", 0, found, "no error"));
        }
        usage.flags = (usage.flags.get() | flag::DIRTY).into();
        Ok(())
    }

    /// How far logs reach in a segment, and when. `nilfs_sufile_set_segment_usage`.
    pub(super) fn set_usage(&mut self, segment: u64, blocks: u64, now: u64) -> FsResult<()> {
        let usage = self.usage_mut(segment, false)?;
        usage.nblocks = lo32(blocks).into();
        usage.lastmod = now.into();
        Ok(())
    }

    /// There is to be a checkpoint of this number. `nilfs_cpfile_create_checkpoint`.
    pub(super) fn create_checkpoint(&mut self, cno: u64) -> FsResult<()> {
        let table = self.disk.g.cpfile;
        let (block, at) = table.place(cno);
        let bytes = self.disk.g.block_bytes();
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let fresh = || {
            Block::made(bytes, |fresh| {
                for (_, at) in table.in_block(block) {
                    if let Some(cp) = view_mut::<Checkpoint>(fresh, at) {
                        cp.flags = cp_flag::INVALID.into();
                    }
                }
            })
        };
        self.cpfile.block_mut(via, block, 0..0, fresh)?;
        let cp: &mut Checkpoint = within(&mut self.cpfile, via, (block, at))?;
        if cp.is_valid() {
            return Ok(());
        }
        cp.flags = (cp.flags.get() & !cp_flag::INVALID).into();
        if block != 0 {
            let first: &mut Checkpoint = within(&mut self.cpfile, via, (block, 0))?;
            first.checkpoints_count = first.checkpoints_count.get().saturating_add(1).into();
        }
        let head: &mut CheckpointHeader = within(&mut self.cpfile, via, (0, 0))?;
        head.ncheckpoints = head.ncheckpoints.get().saturating_add(1).into();
        Ok(())
    }

    /// What that checkpoint says. `nilfs_cpfile_finalize_checkpoint`.
    pub(super) fn fill_checkpoint(
        &mut self,
        cno: u64,
        blocks: u64,
        now: u64,
        is_minor: bool,
    ) -> FsResult<()> {
        let at = self.disk.g.cpfile.place(cno);
        let ifile_inode: Inode = self.ifile.file.sealed_inode();
        let (inodes, blocks_count) = (self.inodes_count, self.blocks_count);
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let cp: &mut Checkpoint = within(&mut self.cpfile, via, at)?;
        let minor = if is_minor { cp_flag::MINOR } else { 0 };
        cp.flags = (cp.flags.get() & !cp_flag::MINOR | minor).into();
        (cp.snapshot_list.next, cp.snapshot_list.prev) = (0.into(), 0.into());
        (cp.cno, cp.create) = (cno.into(), now.into());
        cp.nblk_inc = blocks.into();
        cp.inodes_count = inodes.into();
        cp.blocks_count = blocks_count.into();
        cp.ifile_inode = ifile_inode;
        Ok(())
    }
}
