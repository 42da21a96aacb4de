//! Bytes of files read, from the page cache or from the device.
//!
//! Source: fs/nilfs2/inode.c (`nilfs_readahead`, `nilfs_get_block`), file.c (`nilfs_page_mkwrite`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_cache::{BufFlag, Buffer, Readahead, ReadaheadRules};
use wp_medium::{Pieces, Slice};
use wp_rt::CpuOp;
use wp_vfs::page_stores;

use super::Nilfs;
use super::data::PAGE;
use super::pages::Inode;

/// Blocks of a bio of reads at most. `BIO_MAX_VECS`.
const BIO_BLOCKS: usize = 256;

/// Blocks to be read that lie side by side.
struct Run {
    place: u64,
    bufs: Vec<Rc<Buffer>>,
}

impl Nilfs {
    /// Has a file no block `key`, neither on the device nor in memory?
    pub(super) fn is_hole(&self, file: &Inode, key: u64) -> FsResult<bool> {
        if file.map.peek(key).is_some_and(|b| b.flag(BufFlag::Mapped)) {
            return Ok(false);
        }
        self.store.borrow_mut().is_hole(file.ino, key)
    }

    /// Begins to read what of blocks `from..to` is not in memory; holes are zeroes from here on.
    pub(super) fn start_reads(
        &self,
        file: &Rc<Inode>,
        (from, to): (u64, u64),
        flags: Flags,
    ) -> FsResult<()> {
        let (mut runs, mut result): (Vec<Run>, _) = (Vec::new(), Ok(()));
        for key in (from..to).filter(|key| file.map.is_missing(*key)) {
            let place = match self.store.borrow_mut().place_of(file.ino, key) {
                Ok(place) => place,
                Err(e) => {
                    result = Err(e);
                    break;
                }
            };
            let b = file.map.get(key);
            let Some(place) = place else {
                b.set_contents(Slice::zero(b.len()));
                b.set(BufFlag::Uptodate);
                continue;
            };
            b.set(BufFlag::Mapped);
            b.set(BufFlag::Reading);
            let is_next = |run: &&mut Run| {
                let last = run.bufs.last().map(|b| b.block());
                last.is_some_and(|last| last + 1 == key)
                    && run.place + run.bufs.len() as u64 == place
                    && run.bufs.len() < BIO_BLOCKS
            };
            match runs.last_mut().filter(is_next) {
                Some(run) => run.bufs.push(b),
                None => runs.push(Run { place, bufs: vec![b] }),
            }
        }
        for Run { place, bufs } in runs {
            let sectors = bufs.len() as u32 * (self.g.block_bytes() / 512) as u32;
            let bio = Bio::read(self.sector(place), sectors, flags).on_end(move |done| {
                let mut pieces = Pieces::new(&done.data);
                for b in bufs {
                    if done.status.is_ok() {
                        b.set_contents(pieces.take_one(b.len()));
                        b.set(BufFlag::Uptodate);
                    }
                    b.clear(BufFlag::Reading);
                    b.wake();
                }
            });
            self.part.submit(bio);
        }
        result
    }

    /// Block `key` of a file, up to date. Waits: for the device.
    pub(super) async fn block(&self, file: &Rc<Inode>, key: u64) -> FsResult<Rc<Buffer>> {
        self.start_reads(file, (key, key + 1), Flags::NONE)?;
        let b = file.map.get(key);
        b.wait_clear(BufFlag::Reading).await;
        if b.flag(BufFlag::Uptodate) { Ok(b) } else { Err(FsError::Io) }
    }

    fn readahead(&self) -> ReadaheadRules {
        ReadaheadRules::of(&self.opts.writeback.era, self.part.limits().max_sectors)
    }

    /// Up to `len` bytes from `offset`. Waits: for what is not in memory.
    pub(super) async fn read_bytes(
        &self,
        ino: u64,
        offset: u64,
        len: u64,
        ahead: &Readahead,
    ) -> FsResult<Vec<Slice>> {
        let asked = offset.saturating_add(len);
        let (file, rules) = (self.pages.inode(ino), self.readahead());
        let (bits, mut at, mut out) = (self.g.block_bits, offset, Vec::new());
        loop {
            // A truncate may come between two blocks.
            let size = self.inode(ino)?.size.get();
            if at >= size.min(asked) {
                return Ok(out);
            }
            let key = at >> bits;
            if let Some(window) = ahead.at(&file.map, key, (asked, size), &rules) {
                let _plug = self.part.plug();
                // What goes wrong is found by whoever uses the block.
                drop(self.start_reads(&file, (window.from, window.to), Flags::RAHEAD));
            }
            let b = self.block(&file, key).await?;
            self.rt.cpu(CpuOp::PageRead, 1).await;
            let skip = at - (key << bits);
            let n = ((1 << bits) - skip).min(size.min(asked) - at);
            out.push(b.snapshot().sub(skip as u32, n as u32));
            at += n;
        }
    }

    /// Stores `data` at `offset` through a mapping, page by page: all blocks of a page up to the
    /// end of the file become dirty, and get a place in the map where they have none. Only then
    /// does the file get new times. The caller has the inode's lock. `nilfs_page_mkwrite`,
    /// `nilfs_dirty_folio`.
    ///
    /// Errors: `NoSpace` (the program gets SIGBUS).
    pub(super) async fn store_mapped(
        &self,
        ino: u64,
        offset: u64,
        data: &[Slice],
        ahead: &Readahead,
    ) -> FsResult<()> {
        let file = self.pages.inode(ino);
        for store in page_stores(offset, data) {
            let (start, key) = (store.start, store.start >> self.g.block_bits);
            let size = self.inode(ino)?.size.get();
            if let Some(window) = ahead.at_fault(&file.map, key, size, &self.readahead()) {
                let _plug = self.part.plug();
                drop(self.start_reads(&file, (window.from, window.to), Flags::RAHEAD));
            }
            let held = self.read_bytes(ino, start, PAGE, &Readahead::default()).await?;
            let bytes = store.over(&held);
            if !bytes.is_empty() {
                let touches = self.has_unmapped(&file, key)?;
                let page = Slice::from_bytes(&bytes);
                self.change_page(ino, start, &page, touches).await?;
            }
        }
        Ok(())
    }

    /// Has the page of block `first` any block, behind the end of the file too, without a place in
    /// the file's map?
    fn has_unmapped(&self, file: &Inode, first: u64) -> FsResult<bool> {
        for key in first..first + (PAGE >> self.g.block_bits).max(1) {
            if self.is_hole(file, key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
