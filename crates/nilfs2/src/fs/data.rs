//! Bytes of files.
//!
//! Source: fs/nilfs2/inode.c (`nilfs_write_begin`, `nilfs_write_end`, `nilfs_truncate`).

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_medium::Pieces;
use wp_medium::Slice;
use wp_rt::CpuOp;
use wp_vfs::page_stores;
use zerocopy::IntoBytes;

use super::Nilfs;
use crate::log::Block;

/// Blocks of a bio of reads at most. `BIO_MAX_VECS`.
const BIO_BLOCKS: u64 = 256;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// Bytes that are read around a page of a mapping (`read_ahead_kb`).
const AROUND: u64 = 128 << 10;

impl Nilfs {
    /// Reads blocks `from..=to` of a file that are not in memory. Waits: for the device.
    pub(super) async fn fetch(&self, ino: u64, from: u64, to: u64) -> FsResult<()> {
        // Runs of blocks: first in the file, first on the device, how many.
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        for key in from..=to {
            let Some(place) = self.store.borrow_mut().unread_block(ino, key)? else { continue };
            match runs.last_mut() {
                Some((first, start, n))
                    if *first + *n == key && *start + *n == place && *n < BIO_BLOCKS =>
                {
                    *n += 1;
                }
                _ => runs.push((key, place, 1)),
            }
        }
        let per_block = (self.g.block_bytes() / 512) as u32;
        let sent: Vec<_> = runs
            .iter()
            .map(|(_, start, n)| {
                let sectors = *n as u32 * per_block;
                self.part.send(Bio::read(self.sector(*start), sectors, Flags::NONE))
            })
            .collect();
        for ((first, start, n), bio) in runs.into_iter().zip(sent) {
            let data = bio.wait().await.map_err(|_| FsError::Io)?;
            let mut pieces = Pieces::new(&data);
            for i in 0..n {
                // The file may have been cut meanwhile. No place of a block is used again.
                let (key, place) = (first + i, start + i);
                let block = pieces.take_one(1 << self.g.block_bits).into();
                self.store.borrow_mut().put_read(ino, key, place, block)?;
            }
        }
        Ok(())
    }

    /// Up to `len` bytes from `offset`. Waits: for what is not in memory.
    pub(super) async fn read_bytes(&self, ino: u64, offset: u64, len: u64) -> FsResult<Vec<Slice>> {
        let end = self.inode(ino)?.size.get().min(offset.saturating_add(len));
        if offset >= end {
            return Ok(Vec::new());
        }
        let bits = self.g.block_bits;
        let (first, last) = (offset >> bits, (end - 1) >> bits);
        self.fetch(ino, first, last).await?;
        let mut out = Vec::new();
        for key in first..=last {
            let start = key << bits;
            let (a, b) =
                (offset.max(start) - start, end.min(start.saturating_add(1 << bits)) - start);
            self.rt.cpu(CpuOp::PageRead, 1).await;
            let mut store = self.store.borrow_mut();
            let block = store.block(ino, key)?.and_then(Block::slice);
            let (from, len) = (a as u32, (b - a) as u32);
            out.push(block.map_or_else(|| Slice::zero(len), |block| block.sub(from, len)));
        }
        Ok(out)
    }

    /// Writes at `offset`, as much as there is room for; bytes written. Each page is a change of
    /// its own: logs may come between. The caller has the inode's lock, and not `sem`. Waits: for
    /// `sem`, for blocks that are written in part.
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
            match self.write_page(ino, at, &pieces.take_one(n as u32)).await {
                Ok(()) => at += n,
                Err(e) if at == offset => return Err(e),
                Err(_) => break,
            }
        }
        Ok(at - offset)
    }

    /// Stores `data` at `offset` through a mapping, page by page: all blocks of a page up to the
    /// end of the file become dirty, and get a place in the map where they have none. Only then
    /// does the file get new times. The caller has the inode's lock. `nilfs_page_mkwrite`,
    /// `nilfs_dirty_folio`.
    ///
    /// Errors: `NoSpace` (the program gets SIGBUS).
    pub(super) async fn store_mapped(&self, ino: u64, offset: u64, data: &[Slice]) -> FsResult<()> {
        for store in page_stores(offset, data) {
            let start = store.start;
            self.read_around(ino, start).await?;
            let bytes = store.over(&self.read_bytes(ino, start, PAGE).await?);
            if !bytes.is_empty() {
                let touches = self.has_unmapped(ino, start >> self.g.block_bits)?;
                let page = Slice::from_bytes(&bytes);
                self.change_page(ino, start, &page, touches).await?;
            }
        }
        Ok(())
    }

    /// A page of a mapping is about to be used: if it is not in memory, the window around it is
    /// read (`do_sync_mmap_readahead`). Waits: for all of the window, not only for the page.
    async fn read_around(&self, ino: u64, start: u64) -> FsResult<()> {
        let bits = self.g.block_bits;
        if self.store.borrow_mut().unread_block(ino, start >> bits)?.is_none() {
            return Ok(());
        }
        let from = start.saturating_sub(AROUND / 2);
        let end = (from + AROUND).min(self.inode(ino)?.size.get()).max(from + 1);
        self.fetch(ino, from >> bits, (end - 1) >> bits).await
    }

    /// Has the page of block `first` any block, behind the end of the file too, without a place in
    /// the file's map?
    fn has_unmapped(&self, ino: u64, first: u64) -> FsResult<bool> {
        let mut store = self.store.borrow_mut();
        for key in first..first + (PAGE >> self.g.block_bits).max(1) {
            if store.block(ino, key)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes within a page. `nilfs_write_begin`, `nilfs_write_end`.
    async fn write_page(&self, ino: u64, offset: u64, data: &Slice) -> FsResult<()> {
        self.change_page(ino, offset, data, true).await
    }

    /// The same; `touches`: the file gets new times.
    async fn change_page(
        &self,
        ino: u64,
        offset: u64,
        data: &Slice,
        touches: bool,
    ) -> FsResult<()> {
        let _sem = self.begin().await?;
        self.rt.cpu(CpuOp::PageWrite, 1).await;
        let size = 1u64 << self.g.block_bits;
        let before = self.inode(ino)?;
        let mut stamped = before;
        self.stamp(&mut stamped, true);
        if touches && stamped.as_bytes() != before.as_bytes() {
            // The new times make the inode dirty before its blocks are (`file_update_time`).
            self.store.borrow_mut().list_inode(ino)?;
        }
        let (mut at, end) = (offset, offset + u64::from(data.len()));
        while at < end {
            let n = (end - at).min(size - at % size);
            let part = data.sub((at - offset) as u32, n as u32);
            self.write_within(ino, at / size, (at % size) as usize, part).await?;
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
    async fn write_within(&self, ino: u64, key: u64, within: usize, part: Slice) -> FsResult<()> {
        self.check_room()?;
        let len = part.len() as usize;
        if len == self.g.block_bytes() {
            return self.store.borrow_mut().write_block(ino, key, part);
        }
        self.fetch(ino, key, key).await?;
        let mut store = self.store.borrow_mut();
        let block = store.change_block(ino, key)?;
        part.copy_to(block.get_mut(within..within + len).ok_or(FsError::Io)?);
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
            if within != 0 {
                let key = size >> bits;
                self.fetch(ino, key, key).await?;
                let mut store = self.store.borrow_mut();
                if store.block(ino, key)?.is_some() {
                    let block = store.change_block(ino, key)?;
                    block.get_mut(within as usize..).ok_or(FsError::Io)?.fill(0);
                }
            }
            self.store.borrow_mut().truncate(ino, size.div_ceil(1 << bits))?;
        }
        self.change(ino, true, |i| {
            self.stamp(i, true);
            i.size = size.into();
        })
    }
}
