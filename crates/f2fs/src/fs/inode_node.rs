//! Inodes on their way from and to their node blocks.
//!
//! Source:     Linux `fs/f2fs/inode.c` (`do_read_inode`, `f2fs_update_inode`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::Buffer;
use wp_vfs::TimeSpec;

use super::extent::{Extent, Extents};
use super::inode::{Fields, Inode, block_mut, block_of, fi};
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::inode::{inline, mode};
use crate::disk::{self, Block, Footer, Geometry, InodeExtra, Shape, Stamp, feature};

fn time_of(s: Stamp) -> TimeSpec {
    TimeSpec { secs: s.secs, nanos: s.nanos }
}

impl F2fs {
    /// `do_read_inode`.
    pub(super) async fn read_inode(self: &Rc<Self>, ino: u32) -> FsResult<Rc<Inode>> {
        if ino < disk::nid::ROOT || ino >= self.g.nids() {
            let expected = format!("{} to {}", disk::nid::ROOT, self.g.nids() - 1);
            return Err(FsError::corrupt("f2fs directory entry", "ino", 0, ino.into(), expected));
        }
        let buf = self.node(ino).await?;
        // Somebody may have read it while we waited.
        if let Some(inode) = self.inode_in_memory(ino) {
            return if inode.gone.get() { Err(FsError::NotFound) } else { Ok(inode) };
        }
        let feature = self.sb.feature.get();
        let (fields, size, largest, rest, at_cold) = buf.with(|b| {
            let block = block_of(b);
            disk::Inode::verify(block, feature, 0).map_err(FsError::from)?;
            let d = disk::Inode::of(block);
            let ext = Extent { fofs: d.ext.fofs.get(), blk: d.ext.blk.get(), len: d.ext.len.get() };
            let shape = Shape::of(d, feature);
            let has_data = d.inline_area(&shape).iter().any(|b| *b != 0);
            let cold = Footer::of(block).has(Footer::COLD);
            FsResult::Ok((fields_of(d, feature), d.size.get(), ext, has_data, cold))
        })?;
        self.check_extent(ino, largest)?;
        let is_file = fields.mode & mode::TYPE == mode::FILE;
        let is_dir = fields.mode & mode::TYPE == mode::DIR;
        let inode = self.adopt(ino, fields, size);
        if is_file && self.opts.extent_cache {
            *inode.extents.borrow_mut() = Extents::of(largest);
        } else {
            inode.set(fi::NO_EXTENT);
        }
        if inode.has_inline(inline::DATA) && !inode.has_inline(inline::DATA_EXIST) && rest {
            self.change(&inode, |f| f.inline |= inline::DATA_EXIST);
        }
        if !is_dir && !at_cold {
            self.wait_on_page_writeback(&buf, Kind::Node, true).await;
            buf.with_mut(|b| Footer::of_mut(block_mut(b)).set_mark(Footer::COLD, true));
            self.dirty_node(&buf);
        }
        if !self.need_inode_block_update(ino).await {
            inode.last_disk_size.set(size);
        }
        Ok(inode)
    }

    /// The longest run must lie in the main area (`sanity_check_extent_cache`).
    fn check_extent(&self, ino: u32, e: Extent) -> FsResult<()> {
        let last = e.blk.saturating_add(e.len).saturating_sub(1);
        if e.len > 0 && !(self.g.is_main(e.blk) && self.g.is_main(last)) {
            let expected = format!("a run in the main area (inode {ino})");
            let found = u64::from(e.blk);
            return Err(FsError::corrupt("f2fs inode", "i_ext", 0, found, expected));
        }
        Ok(())
    }

    /// Copies a dirty inode's fields into its node block, and marks that dirty
    /// (`f2fs_update_inode`); takes it off the list of dirty inodes. Waits: for writeback of the
    /// block.
    pub(super) async fn update_inode(&self, inode: &Rc<Inode>, buf: &Rc<Buffer>) -> FsResult<()> {
        self.wait_on_page_writeback(buf, Kind::Node, true).await;
        self.dirty_node(buf);
        self.mark_inode_synced(inode);
        buf.with_mut(|b| self.store_inode(inode, block_mut(b)));
        if inode.nlink() == 0 {
            buf.clear(super::node::INLINE);
        }
        let mut f = inode.f.borrow_mut();
        f.disk_times = [f.atime, f.ctime, f.mtime, f.crtime];
        Ok(())
    }

    fn store_inode(&self, inode: &Inode, block: &mut Block) {
        let f = inode.f.borrow();
        let d = disk::Inode::of_mut(block);
        d.mode = f.mode.into();
        d.advise = f.advise;
        d.uid = f.uid.into();
        d.gid = f.gid.into();
        d.links = f.nlink.into();
        d.blocks = (f.blocks + 1).into();
        if !inode.is_held_back() {
            d.size = inode.size.get().into();
        }
        let ext = if f.mode & mode::TYPE == mode::FILE && self.opts.extent_cache {
            inode.extents.borrow().largest
        } else {
            Extent::default()
        };
        d.ext = disk::inode::LargestExtent {
            fofs: ext.fofs.into(),
            blk: ext.blk.into(),
            len: ext.len.into(),
        };
        d.inline = f.inline;
        (d.atime, d.atime_nsec) = (f.atime.secs.cast_unsigned().into(), f.atime.nanos.into());
        (d.ctime, d.ctime_nsec) = (f.ctime.secs.cast_unsigned().into(), f.ctime.nanos.into());
        (d.mtime, d.mtime_nsec) = (f.mtime.secs.cast_unsigned().into(), f.mtime.nanos.into());
        match f.mode & mode::TYPE {
            mode::DIR => d.current_depth = f.depth.into(),
            mode::FILE => {
                let high = d.current_depth.get() & 0xFFFF_0000;
                d.current_depth = (high | (f.depth & 0xFFFF)).into();
            }
            _ => {}
        }
        d.xattr_nid = f.xattr_nid.into();
        d.flags = f.flags.into();
        d.pino = f.pino.into();
        d.generation = f.generation.into();
        d.dir_level = f.dir_level;
        if matches!(f.mode & mode::TYPE, mode::CHAR_DEVICE | mode::BLOCK_DEVICE) {
            let shape = Shape::of(d, self.sb.feature.get());
            d.set_device(&shape, f.device);
        }
        if f.inline & inline::EXTRA_ATTR != 0 {
            let has = |end: usize| usize::from(f.extra_isize) >= end;
            let e = d.extra_mut();
            e.extra_isize = f.extra_isize.into();
            if self.sb.has(feature::FLEXIBLE_INLINE_XATTR) {
                e.inline_xattr_size = f.xattr_words.into();
            }
            if self.sb.has(feature::PRJQUOTA)
                && has(std::mem::offset_of!(InodeExtra, inode_checksum))
            {
                e.projid = f.projid.into();
            }
            if self.sb.has(feature::INODE_CRTIME)
                && has(std::mem::offset_of!(InodeExtra, compr_blocks))
            {
                e.crtime = f.crtime.secs.cast_unsigned().into();
                e.crtime_nsec = f.crtime.nanos.into();
            }
        }
    }

    /// Copies an inode's fields into its node block (`f2fs_update_inode_page`). An inode that has
    /// none any more is left.
    pub(super) async fn update_inode_page(&self, inode: &Rc<Inode>) -> FsResult<()> {
        match self.node(inode.ino).await {
            Ok(buf) => self.update_inode(inode, &buf).await,
            Err(FsError::NotFound) => Ok(()),
            Err(e) => {
                self.stop_checkpoint();
                Err(e)
            }
        }
    }

    /// `f2fs_write_inode`: nothing, if the node block says all.
    pub(super) async fn write_inode(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.is(fi::NEW) || (inode.has_disk_times() && !inode.is(fi::DIRTY)) {
            return Ok(());
        }
        self.update_inode_page(inode).await
    }

    /// Finds the dirty inode's node block and copies it there (`sync_inode_metadata`,
    /// `f2fs_update_inode_page`). An inode that is not in memory is taken off the list.
    pub(super) async fn sync_inode(self: &Rc<Self>, ino: u32) -> FsResult<()> {
        match self.inode_in_memory(ino) {
            Some(inode) if inode.is(fi::LISTED) => {
                self.update_inode_page(&inode).await?;
                if inode.is(fi::LISTED) && inode.gone.get() {
                    self.mark_inode_synced(&inode);
                }
                Ok(())
            }
            _ => {
                self.inode_synced(ino);
                Ok(())
            }
        }
    }

    /// Byte address of a node's block, for errors.
    pub(super) async fn node_at(&self, nid: u32) -> u64 {
        self.nat(nid).await.map_or(0, |n| {
            if disk::addr::is_block(n.blk_addr) { Geometry::byte_of(n.blk_addr) } else { 0 }
        })
    }
}

fn fields_of(d: &disk::Inode, sb_feature: u32) -> Fields {
    let shape = Shape::of(d, sb_feature);
    let (atime, ctime, mtime) =
        (time_of(d.accessed()), time_of(d.changed()), time_of(d.modified()));
    let crtime = match d.created() {
        Some(c) if sb_feature & feature::INODE_CRTIME != 0 => time_of(c),
        _ => TimeSpec::default(),
    };
    let mut flags = d.flags.get();
    if d.is_file() {
        flags &= !disk::inode::flag::PROJINHERIT;
    }
    let projid_end = std::mem::offset_of!(InodeExtra, inode_checksum);
    let has_projid = sb_feature & feature::PRJQUOTA != 0 && d.has_extra(projid_end);
    Fields {
        mode: d.mode.get(),
        uid: d.uid.get(),
        gid: d.gid.get(),
        nlink: d.links.get(),
        blocks: d.blocks.get().saturating_sub(1),
        atime,
        ctime,
        mtime,
        crtime,
        disk_times: [atime, ctime, mtime, crtime],
        generation: d.generation.get(),
        depth: if d.is_file() { d.current_depth.get() & 0xFFFF } else { d.current_depth.get() },
        xattr_nid: d.xattr_nid.get(),
        flags,
        advise: d.advise,
        inline: d.inline,
        pino: d.pino.get(),
        dir_level: d.dir_level,
        extra_isize: d.extra_bytes() as u16,
        xattr_words: shape.xattr_words as u16,
        projid: if has_projid { d.extra().projid.get() } else { 0 },
        device: d.device(&shape),
    }
}
