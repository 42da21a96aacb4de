//! Bytes of files read: from the cache, or from the device with their checksums verified.
//!
//! Source: fs/btrfs/extent_io.c (`btrfs_readahead`, `btrfs_do_readpage`), bio.c
//! (`btrfs_check_read_bio`).

use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::{Bio, BioEnd};
use wp_cache::{BufFlag, Buffer, Readahead, ReadaheadRules, WINDOW_PAGES};
use wp_medium::{Pieces, Slice};
use wp_rt::CpuOp;

use crate::disk::{CsumKind, id, index, wide};

use super::inode::Inode;
use super::{BLOCK, Btrfs, sector};

/// Blocks of a bio at most. `BIO_MAX_VECS`.
const BIO_BLOCKS: usize = 256;

/// Pages of a window of readahead: 4 MiB (`open_ctree`).
const RA_PAGES: u64 = 1024;

/// Blocks to be read side by side.
struct Run {
    bufs: Vec<Rc<Buffer>>,
    address: u64,
    sums: Vec<Option<u64>>,
}

impl Btrfs {
    /// Blocks `from..to` of a file are in memory afterwards, or are being read. Waits: for extents
    /// that are on their way.
    async fn start_reads(&self, inode: &Rc<Inode>, from: u64, to: u64) -> FsResult<()> {
        let missing = |i: u64| inode.map.is_missing(i);
        while (from..to).any(missing) && self.is_on_its_way(inode, from, to) {
            let first = (from..to).find(|i| missing(*i)).unwrap_or(from);
            let last = (from..to).rev().find(|i| missing(*i)).unwrap_or(from);
            self.wait_ordered(inode, first * BLOCK, (last + 1) * BLOCK).await;
        }
        // A truncate may have come: of a window nothing beyond its end may enter the cache.
        let to = to.min(inode.size().div_ceil(BLOCK)).max(from + 1);
        let wanted: Vec<u64> = (from..to).filter(|i| missing(*i)).collect();
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let (first, last) = (first * BLOCK, (last + 1) * BLOCK);
        let parts = self.with(|c| c.parts(inode.tree, inode.ino, first, last))?;
        let (mut runs, mut result): (Vec<Run>, _) = (Vec::new(), Ok(()));
        for i in wanted {
            let at = i * BLOCK;
            let b = inode.map.get(i);
            let part = parts.iter().find(|p| p.start <= at && p.end > at);
            let address = match part {
                Some(p) if p.is_inline() => {
                    let data = self.with(|c| c.inline_data(inode.tree, inode.ino));
                    let mut data = match data {
                        Ok(data) => data.unwrap_or_default(),
                        Err(e) => {
                            result = Err(e);
                            break;
                        }
                    };
                    data.resize(index(BLOCK), 0);
                    self.fill(inode, &b, Slice::from_bytes(&data));
                    continue;
                }
                Some(p) if p.item.is_some_and(|i| i.head.compression != 0) => {
                    result = Err(FsError::Unsupported("btrfs: compressed extents".to_owned()));
                    break;
                }
                Some(p) if !p.is_prealloc() => p.address(at),
                _ => None,
            };
            let Some(address) = address else {
                self.fill(inode, &b, Slice::zero(b.len()));
                continue;
            };
            b.set(BufFlag::Reading);
            let goes_on = runs.last().is_some_and(|r: &Run| {
                r.address + wide(r.bufs.len()) * BLOCK == address
                    && r.bufs.last().is_some_and(|l| l.block() + 1 == i)
                    && r.bufs.len() < BIO_BLOCKS
                    && part.is_some_and(|p| p.start < at)
            });
            match runs.last_mut() {
                Some(run) if goes_on => run.bufs.push(b),
                _ => runs.push(Run { bufs: vec![b], address, sums: Vec::new() }),
            }
        }
        for mut run in runs {
            if inode.has_sums() {
                let n = wide(run.bufs.len());
                match self.with(|c| c.data_sums(id::CSUM_TREE, run.address, n)) {
                    Ok(sums) => run.sums = sums,
                    Err(e) => {
                        result = result.and(Err(e));
                        end_reads(&run.bufs);
                        continue;
                    }
                }
            }
            self.read_run(inode, run, 0);
        }
        self.settled(result).await
    }

    fn is_on_its_way(&self, inode: &Inode, from: u64, to: u64) -> bool {
        let all = inode.ordered.borrow();
        let (from, to) = (from * BLOCK, to * BLOCK);
        (from..to).step_by(index(BLOCK)).any(|at| {
            inode.map.is_missing(at / BLOCK)
                && all.range(..=at).next_back().is_some_and(|(_, o)| o.end() > at)
        })
    }

    /// A block's contents; zeroes behind the end of the file.
    fn fill(&self, inode: &Inode, b: &Buffer, contents: Slice) {
        b.set_contents(contents);
        let end = inode.size().saturating_sub(b.block() * BLOCK);
        if end < BLOCK {
            b.with_mut(|bytes| bytes.iter_mut().skip(index(end)).for_each(|b| *b = 0));
        }
        b.set(BufFlag::Uptodate);
    }

    /// Reads a run from its copy number `copy`; if that is wrong, from the next.
    fn read_run(&self, inode: &Rc<Inode>, run: Run, copy: usize) {
        let bytes = wide(run.bufs.len()) * BLOCK;
        let places = self.core.borrow().chunks().places(run.address, bytes).unwrap_or_default();
        let Some(at) = places.get(copy).copied() else {
            end_reads(&run.bufs);
            return;
        };
        let (fs, inode) = (self.me.clone(), inode.clone());
        let sectors = u32::try_from(bytes / 512).unwrap_or(0);
        let bio = Bio::read(sector(at), sectors, Flags::RAHEAD).on_end(move |done| {
            if let Some(fs) = fs.upgrade() {
                fs.end_run(&inode, run, done, (at, copy));
            }
        });
        self.part.submit(bio);
    }

    fn end_run(&self, inode: &Rc<Inode>, run: Run, done: BioEnd, (place, copy): (u64, usize)) {
        let kind = self.core.try_borrow().map(|c| c.common().csum).unwrap_or(CsumKind::Crc32c);
        let ok = done.status.is_ok();
        let mut pieces = Pieces::new(&done.data);
        for (i, b) in run.bufs.iter().enumerate() {
            let contents = if ok { Some(pieces.take_one(b.len())) } else { None };
            let expected = run.sums.get(i).copied();
            let wrong = match (&contents, expected) {
                (None, _) => Some("the device failed".to_owned()),
                (Some(_), None) => None,
                (Some(_), Some(None)) => Some("it has no checksum".to_owned()),
                (Some(s), Some(Some(sum))) => {
                    let found = kind.sum(&s.to_vec());
                    (found != sum).then(|| format!("checksum {found:#x}, expected {sum:#x}"))
                }
            };
            match (contents, wrong) {
                (Some(contents), None) => {
                    self.fill(inode, b, contents);
                    b.clear(BufFlag::Reading);
                    b.wake();
                }
                (_, why) => {
                    let why = why.unwrap_or_default();
                    let file = b.block() * BLOCK;
                    let at = place + wide(i) * BLOCK;
                    let line = format!("inode {} byte {file}, at byte {at}: {why}", inode.ino);
                    let mut notes = self.bad_data.borrow_mut();
                    if notes.len() < 100 && !notes.contains(&line) {
                        notes.push(line);
                    }
                    drop(notes);
                    let one = Run {
                        bufs: vec![b.clone()],
                        address: run.address + wide(i) * BLOCK,
                        sums: expected.into_iter().collect(),
                    };
                    // Without another copy this ends the read.
                    self.read_run(inode, one, copy + 1);
                }
            }
        }
    }

    /// Block `i` of a file, up to date. Waits: for the device.
    pub(super) async fn block(&self, inode: &Rc<Inode>, i: u64) -> FsResult<Rc<Buffer>> {
        self.start_reads(inode, i, i + 1).await?;
        let b = inode.map.get(i);
        b.wait_clear(BufFlag::Reading).await;
        if b.flag(BufFlag::Uptodate) { Ok(b) } else { Err(FsError::Io) }
    }

    fn readahead() -> ReadaheadRules {
        ReadaheadRules {
            pages: RA_PAGES,
            // Of a `backing_dev_info` of its own (`bdi_alloc`).
            io_pages: WINDOW_PAGES,
            ..ReadaheadRules::of(&wp_cache::Era::default(), 0)
        }
    }

    /// A page of a mapping is about to be used: reads what of the pages around it is missing.
    pub(super) async fn read_around(&self, inode: &Rc<Inode>, block: u64, ahead: &Readahead) {
        let rules = Btrfs::readahead();
        if let Some(window) = ahead.at_fault(&inode.map, block, inode.size(), &rules) {
            let _plug = self.part.plug();
            // What goes wrong is found by whoever uses the block.
            drop(self.start_reads(inode, window.from, window.to).await);
        }
    }

    /// Up to `len` bytes from `offset`. Waits: for what is not in memory. Errors: `Io` for data
    /// that is not what its checksum says; where, is said by
    /// [`wp_vfs::FileSystem::notes`].
    pub(super) async fn read_data(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
        ahead: &Readahead,
    ) -> FsResult<Vec<Slice>> {
        let asked = offset.saturating_add(len);
        let end = inode.size().min(asked);
        let rules = Btrfs::readahead();
        let mut out = Vec::new();
        let mut at = offset;
        while at < end.min(inode.size()) {
            let i = at / BLOCK;
            if let Some(window) = ahead.at(&inode.map, i, (asked, inode.size()), &rules) {
                let _plug = self.part.plug();
                // What goes wrong is found by whoever uses the block.
                drop(self.start_reads(inode, window.from, window.to).await);
            }
            let b = self.block(inode, i).await?;
            self.rt.cpu(CpuOp::PageRead, 1).await;
            let skip = at % BLOCK;
            let n = (BLOCK - skip).min(end - at).min(inode.size().saturating_sub(at));
            if n == 0 {
                break;
            }
            let (skip, n32) = (u32::try_from(skip).unwrap_or(0), u32::try_from(n).unwrap_or(0));
            out.push(b.snapshot().sub(skip, n32));
            at += n;
        }
        Ok(out)
    }
}

fn end_reads(bufs: &[Rc<Buffer>]) {
    for b in bufs {
        b.clear(BufFlag::Reading);
        b.wake();
    }
}
