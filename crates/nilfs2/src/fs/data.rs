//! Bytes of files.
//!
//! Source: fs/nilfs2/inode.c (`nilfs_write_begin`, `nilfs_write_end`, `nilfs_truncate`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_medium::{Pieces, Slice};
use wp_rt::CpuOp;
use zerocopy::IntoBytes;

use super::Nilfs;
use super::pages::Inode;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

impl Nilfs {
    /// Writes at `offset`, as much as there is room for; bytes written. Each page is a change of
    /// its own: logs may come between. The caller has the inode's lock, and not `sem`. Waits: for
    /// `sem`, for blocks that are written in part, while too much is dirty.
    ///
    /// Errors: those of the first page; `TooBig`.
    pub(super) async fn write_bytes(&self, ino: u64, offset: u64, data: &[Slice]) -> FsResult<u64> {
        let len: u64 = data.iter().map(|s| u64::from(s.len())).sum();
        if len == 0 {
            return Ok(0);
        }
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        if end > i64::MAX as u64 {
            return Err(FsError::TooBig);
        }
        let (mut at, mut pieces) = (offset, Pieces::new(data));
        while at < end {
            let n = (end - at).min(PAGE - at % PAGE);
            match self.change_page(ino, at, &pieces.take_one(n as u32), true).await {
                Ok(()) => at += n,
                Err(e) if at == offset => return Err(e),
                Err(_) => break,
            }
            self.pages.wb.balance_dirty().await;
        }
        Ok(at - offset)
    }

    /// Writes within a page; `touches`: the file gets new times. `nilfs_write_begin`,
    /// `nilfs_write_end`.
    pub(super) async fn change_page(
        &self,
        ino: u64,
        offset: u64,
        data: &Slice,
        touches: bool,
    ) -> FsResult<()> {
        let _sem = self.begin().await?;
        self.rt.cpu(CpuOp::PageWrite, 1).await;
        let file = self.pages.inode(ino);
        let size = 1u64 << self.g.block_bits;
        let before = self.inode(ino)?;
        let mut stamped = before;
        self.stamp(&mut stamped, true);
        if touches && stamped.as_bytes() != before.as_bytes() {
            // The new times make the inode dirty before its blocks are (`file_update_time`).
            self.store.borrow().announce_inode();
            file.map.mark_inode_dirty();
        }
        let (mut at, end) = (offset, offset + u64::from(data.len()));
        while at < end {
            let n = (end - at).min(size - at % size);
            let part = data.sub((at - offset) as u32, n as u32);
            self.write_within(&file, at / size, (at % size) as u32, part).await?;
            at += n;
        }
        let mut inode = self.inode(ino)?;
        let grows = at > inode.size.get();
        if touches {
            self.stamp(&mut inode, true);
        }
        if grows {
            inode.size = at.into();
        }
        // Written over within a tick: there is nothing new of it for the file of inodes
        // (`file_update_time`).
        let done = if inode.as_bytes() == before.as_bytes() {
            self.changed();
            Ok(())
        } else {
            self.change(ino, grows, |i| *i = inode)
        };
        self.settled(done).await
    }

    /// Writes in block `key`, from byte `within` on: by reference if it is all of the block.
    async fn write_within(
        &self,
        file: &Rc<Inode>,
        key: u64,
        within: u32,
        part: Slice,
    ) -> FsResult<()> {
        self.check_room()?;
        let b = if part.len() == file.map.block_bytes() {
            let b = file.map.get(key);
            b.wait_clear(BufFlag::Reading).await;
            b
        } else {
            self.block(file, key).await?
        };
        self.dirty_block(file, &b)?;
        b.put(within, &part);
        Ok(())
    }

    /// A block is about to be changed, and is to be written. Waits for nothing: the caller holds
    /// `sem`.
    pub(super) fn dirty_block(&self, file: &Rc<Inode>, b: &Rc<Buffer>) -> FsResult<()> {
        if !b.flag(BufFlag::Dirty) {
            self.store.borrow_mut().dirty_block(file.ino, b.block())?;
            b.set(BufFlag::Uptodate);
            b.set(BufFlag::Mapped);
        }
        file.map.mark_dirty(b);
        Ok(())
    }

    /// Fills block `key` of a file, which is to be written; the caller holds `sem`.
    pub(super) fn put_block(&self, ino: u64, key: u64, bytes: &[u8]) -> FsResult<()> {
        let file = self.pages.inode(ino);
        let b = file.map.get(key);
        self.dirty_block(&file, &b)?;
        b.set_contents(Slice::from_bytes(bytes));
        Ok(())
    }

    /// Sets a file's length; the caller holds `sem`. `nilfs_setattr`, `nilfs_truncate`.
    pub(super) async fn set_length(&self, ino: u64, size: u64) -> FsResult<()> {
        if size > i64::MAX as u64 {
            return Err(FsError::TooBig);
        }
        let (bits, old) = (self.g.block_bits, self.inode(ino)?.size.get());
        let within = size & ((1 << bits) - 1);
        if size != old {
            let file = self.pages.inode(ino);
            let (key, from) = (size >> bits, size.div_ceil(1 << bits));
            if within != 0 && !self.is_hole(&file, key)? {
                let b = self.block(&file, key).await?;
                self.dirty_block(&file, &b)?;
                b.with_mut(|bytes| bytes.iter_mut().skip(within as usize).for_each(|b| *b = 0));
            }
            file.map.wait_reads(from, u64::MAX).await;
            file.map.truncate(from).await;
            self.store.borrow_mut().truncate(ino, from)?;
        }
        self.change(ino, true, |i| {
            self.stamp(i, true);
            i.size = size.into();
        })
    }
}
