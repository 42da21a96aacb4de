//! Data of small files in their inode.
//!
//! Source: Linux `fs/f2fs/inline.c`.

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};

use super::inode::{Inode, block_mut, block_of, fi};
use super::io::{DataWrite, Kind};
use super::mount::F2fs;
use super::node::INLINE;
use crate::disk::inode::inline;
use crate::disk::{self, addr};
use crate::site;

impl F2fs {
    /// Fills a cached block from the inode (`f2fs_read_inline_data`).
    pub(super) async fn fill_inline(&self, inode: &Inode, b: &Rc<Buffer>) -> FsResult<()> {
        let node = self.node(inode.ino).await?;
        if b.flag(BufFlag::Uptodate) {
            return Ok(());
        }
        let shape = inode.shape();
        let data = if b.block() == 0 {
            node.with(|n| disk::Inode::of(block_of(n)).inline_area(&shape).to_vec())
        } else {
            Vec::new()
        };
        b.with_mut(|bytes| {
            let n = data.len().min(bytes.len());
            bytes[..n].copy_from_slice(&data[..n]);
            bytes[n..].fill(0);
        });
        b.set(BufFlag::Uptodate);
        Ok(())
    }

    /// Before block 0 of an inline file is written in the cache: it is there, and the node knows
    /// that it must be asked for (`prepare_write_begin`).
    pub(super) async fn begin_inline(&self, inode: &Rc<Inode>, b: &Rc<Buffer>) -> FsResult<()> {
        self.fill_inline(inode, b).await?;
        let node = self.node(inode.ino).await?;
        self.change(inode, |f| f.inline |= inline::DATA_EXIST);
        if inode.nlink() > 0 {
            node.set(INLINE);
        }
        Ok(())
    }

    /// Copies a cached block into the inode's node (`f2fs_write_inline_data`).
    pub(super) async fn write_inline(&self, inode: &Rc<Inode>, b: &Rc<Buffer>) -> FsResult<()> {
        let node = self.node(inode.ino).await?;
        self.wait_on_page_writeback(&node, Kind::Node, true).await;
        if !inode.has_inline(inline::DATA) || !b.flag(BufFlag::Dirty) {
            return Ok(());
        }
        let shape = inode.shape();
        b.with(|data| {
            node.with_mut(|n| {
                let area = disk::Inode::of_mut(block_mut(n)).inline_area_mut(&shape);
                let n = area.len().min(data.len());
                area[..n].copy_from_slice(&data[..n]);
            });
        });
        self.dirty_node(&node);
        if inode.map.clear_dirty(b) {
            self.count_clean(inode);
        }
        inode.map.drop_tag(b.block());
        inode.set(fi::APPEND_WRITE);
        self.change(inode, |f| f.inline |= inline::DATA_EXIST);
        node.clear(INLINE);
        Ok(())
    }

    /// Copies inline data that is dirty in the page cache into the inode's node
    /// (`flush_inline_data`).
    pub(super) async fn flush_inline_data(self: &Rc<Self>, ino: u32) -> FsResult<()> {
        let Some(inode) = self.inode_in_memory(ino) else { return Ok(()) };
        if !inode.has_inline(inline::DATA) {
            return Ok(());
        }
        match inode.map.peek(0) {
            Some(b) if b.flag(BufFlag::Uptodate) && b.flag(BufFlag::Dirty) => {
                self.write_inline(&inode, &b).await
            }
            _ => Ok(()),
        }
    }

    /// Moves inline data to a block of its own (`f2fs_convert_inline_inode`). Not to be called
    /// with [`F2fs::lock_op`] held.
    pub(super) async fn convert_inline(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if !inode.has_inline(inline::DATA) {
            return Ok(());
        }
        let op = self.lock_op().await;
        let tree = inode.map_lock.lock().await;
        if inode.has_inline(inline::DATA) {
            self.convert_inline_block(inode).await?;
        }
        drop((tree, op));
        self.balance_fs(true).await;
        Ok(())
    }

    /// `f2fs_convert_inline_page`.
    async fn convert_inline_block(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let b = inode.map.get(0);
        if inode.has_inline(inline::DATA_EXIST) {
            let (dn, old) = self.reserve_block(inode, 0).await?;
            let version = self.nat(dn.nid).await?.version;
            if old != addr::NEW {
                self.set_need_fsck();
                let at = self.node_at(inode.ino).await;
                let expected = format!("no address beside inline data (inode {})", inode.ino);
                return Err(FsError::corrupt("f2fs inode", "i_addr", at, old.into(), expected));
            }
            self.fill_inline(inode, &b).await?;
            self.wait_on_page_writeback(&b, Kind::Data, true).await;
            let was_dirty = b.flag(BufFlag::Dirty);
            inode.set(fi::HOT_DATA);
            let w = DataWrite {
                map: &inode.map,
                buf: &b,
                ino: inode.ino,
                log: self.log_of(inode, false),
                old,
                nid: dn.nid,
                ofs_in_node: dn.slot,
                version,
                flags: Flags::SYNC | Flags::PRIO,
                cp: false,
            };
            let new = self.write_data_outplace(&w).await?;
            if was_dirty {
                self.count_clean(inode);
            }
            self.move_block(inode, &dn, dn.slot, new).await;
            if site::INLINE_WAIT.on() {
                self.wait_on_page_writeback(&b, Kind::Data, true).await;
            }
            inode.set(fi::APPEND_WRITE);
            self.truncate_inline(inode, &dn.node, 0).await;
            dn.node.clear(INLINE);
        }
        self.change(inode, |f| f.inline &= !inline::DATA);
        Ok(())
    }
}
