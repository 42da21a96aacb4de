//! Free node numbers.
//!
//! Source: Linux `fs/f2fs/node.c` (`f2fs_build_free_nids`, `f2fs_alloc_nid`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use wp_base::{FsError, FsResult};
use wp_rt::{Lock, Rt};

use super::meta::show;
use super::mount::F2fs;
use crate::disk::{NatBits, NatEntry, addr, bits};

/// Blocks of the NAT that are scanned at once (`FREE_NID_PAGES`).
const SCAN_BLOCKS: u32 = 8;
/// Number of free node numbers above which the scan stops (`MAX_FREE_NIDS`).
const FREE_MOST: usize = (NatEntry::PER_BLOCK * SCAN_BLOCKS) as usize;
const PER: u32 = NatEntry::PER_BLOCK;

/// Which numbers of a NAT block are free.
#[derive(Clone)]
struct FreeMap {
    free: [u64; 8],
    count: u32,
}

/// Free node numbers of a mounted file system.
pub(crate) struct Nids {
    /// Free ones, in the order in which they will be given out.
    list: RefCell<VecDeque<u32>>,
    /// Those on the list (true), and those given out and not yet in use (false).
    known: RefCell<BTreeMap<u32, bool>>,
    /// Free node numbers of the NAT blocks that were scanned (`nat_block_bitmap`,
    /// `free_nid_bitmap`).
    maps: RefCell<BTreeMap<u32, FreeMap>>,
    next_scan: Cell<u32>,
    /// Numbers that can be given out (`available_nids`).
    available: Cell<u32>,
    build: Lock<()>,
}

impl FreeMap {
    fn test(&self, n: u32) -> bool {
        self.free[(n / 64) as usize] & (1 << (n % 64)) != 0
    }

    fn put(&mut self, n: u32, to: bool) -> bool {
        let (word, bit) = (&mut self.free[(n / 64) as usize], 1u64 << (n % 64));
        let was = *word & bit != 0;
        if to != was {
            *word ^= bit;
        }
        was
    }
}

impl Nids {
    pub(super) fn new(rt: &Rt, next_scan: u32, available: u32) -> Nids {
        Nids {
            list: RefCell::default(),
            known: RefCell::default(),
            maps: RefCell::default(),
            next_scan: Cell::new(next_scan),
            available: Cell::new(available),
            build: Lock::new(rt, "free node numbers", ()),
        }
    }

    /// Blocks of the NAT that need not be read: full and empty ones (`load_free_nid_bitmap`).
    pub(super) fn know(&self, nat_blocks: u32, known: &NatBits) {
        let mut maps = self.maps.borrow_mut();
        let mut all_free = FreeMap { free: [0; 8], count: PER };
        (0..PER).for_each(|n| {
            all_free.put(n, true);
        });
        for block in 0..nat_blocks {
            if bits::test_le(&known.empty, block) {
                maps.insert(block, all_free.clone());
            } else if bits::test_le(&known.full, block) {
                maps.insert(block, FreeMap { free: [0; 8], count: 0 });
            }
        }
    }

    /// One fewer can be given out.
    pub(super) fn fewer(&self) {
        self.available.set(self.available.get().saturating_sub(1));
    }

    fn more(&self) {
        self.available.set(self.available.get() + 1);
    }

    /// Where the search will go on, or the first free one behind it (`next_free_nid`).
    pub(super) fn next_free(&self) -> u32 {
        self.list.borrow().front().copied().unwrap_or(self.next_scan.get())
    }

    /// `update_free_nid_bitmap`.
    fn note(&self, nid: u32, free: bool, building: bool) {
        if let Some(map) = self.maps.borrow_mut().get_mut(&(nid / PER)) {
            let was = map.put(nid % PER, free);
            match (was, free) {
                (false, true) => map.count += 1,
                (true, false) if !building => map.count -= 1,
                _ => {}
            }
        }
    }

    fn insert(&self, nid: u32) {
        self.known.borrow_mut().insert(nid, true);
        self.list.borrow_mut().push_back(nid);
    }

    /// A number is free by the NAT (`add_free_nid` with `build`). Is it?
    fn found(&self, fs: &F2fs, nid: u32) -> bool {
        if nid == 0 || fs.check_nid(nid).is_err() || fs.nat.is_taken(nid) {
            return false;
        }
        if let Some(listed) = self.known.borrow().get(&nid) {
            return *listed;
        }
        self.insert(nid);
        true
    }

    /// An entry of the NAT was flushed: its number is free from now on, or in use.
    pub(super) fn flushed(&self, nid: u32, is_free: bool) {
        if !is_free {
            self.note(nid, false, false);
            return;
        }
        let listed = self.known.borrow().contains_key(&nid);
        if !listed {
            self.insert(nid);
        }
        self.note(nid, true, false);
        self.more();
    }

    /// The journal knows better than the blocks (`scan_curseg_cache`).
    fn scan_journal(&self, fs: &F2fs) {
        let journal = fs.space.borrow().nat_journal;
        for e in journal.nats() {
            let nid = e.nid.get();
            if e.entry.block_addr.get() == addr::NULL {
                self.found(fs, nid);
            } else if self.known.borrow().get(&nid) == Some(&true) {
                self.known.borrow_mut().remove(&nid);
                self.list.borrow_mut().retain(|n| *n != nid);
            }
        }
    }

    /// Takes free node numbers of NAT blocks that were scanned before (`scan_free_nid_bits`).
    fn scan_maps(&self, fs: &F2fs) {
        let mut free = Vec::new();
        for (block, map) in self.maps.borrow().iter().filter(|(_, m)| m.count > 0) {
            free.extend((0..PER).filter(|n| map.test(*n)).map(|n| block * PER + n));
            if free.len() > 2 * FREE_MOST {
                break;
            }
        }
        for nid in free {
            self.found(fs, nid);
            if self.list.borrow().len() >= FREE_MOST {
                break;
            }
        }
        self.scan_journal(fs);
    }
}

impl F2fs {
    /// Looks for free numbers, if there are few (`f2fs_build_free_nids`).
    pub(super) async fn build_free_nids(&self, mount: bool) -> FsResult<()> {
        let nids = &self.nids;
        let _guard = nids.build.lock().await;
        if nids.list.borrow().len() >= PER as usize {
            return Ok(());
        }
        if !mount {
            nids.scan_maps(self);
            if nids.list.borrow().len() >= PER as usize {
                return Ok(());
            }
        }
        let max = self.g.nids();
        let mut nid = nids.next_scan.get();
        nid = if nid >= max { 0 } else { nid / PER * PER };
        let blocks = (0..SCAN_BLOCKS).map(|n| (nid / PER + n) % self.g.nat_blocks);
        let ahead: Vec<u32> = blocks
            .filter(|b| !nids.maps.borrow().contains_key(b))
            .map(|b| self.nat_block_addr(b))
            .collect();
        self.read_ahead_meta(ahead.into_iter());
        for _ in 0..SCAN_BLOCKS {
            let block = nid / PER;
            if !nids.maps.borrow().contains_key(&block) {
                self.scan_nat_block(block).await?;
            }
            nid += PER;
            if nid >= max {
                nid = 0;
            }
        }
        nids.next_scan.set(nid);
        nids.scan_journal(self);
        Ok(())
    }

    /// Notes which numbers of a block are free (`scan_nat_page`).
    async fn scan_nat_block(&self, block: u32) -> FsResult<()> {
        let buf = self.meta_block(self.nat_block_addr(block)).await?;
        let used: Vec<bool> = show(&buf, |b| {
            NatEntry::all(b).iter().map(|e| e.block_addr.get() != addr::NULL).collect()
        });
        let empty = FreeMap { free: [0; 8], count: 0 };
        self.nids.maps.borrow_mut().insert(block, empty);
        let max = self.g.nids();
        for (nid, used) in (block * PER..max).zip(used) {
            let free = !used && self.nids.found(self, nid);
            self.nids.note(nid, free, true);
        }
        Ok(())
    }

    /// A free number, held until [`F2fs::alloc_nid_done`] or [`F2fs::alloc_nid_failed`]
    /// (`f2fs_alloc_nid`). Waits: for blocks of the NAT. Errors: `NoSpace`, `Io`, `Corrupt`.
    pub(crate) async fn alloc_nid(&self) -> FsResult<u32> {
        let nids = &self.nids;
        loop {
            if nids.available.get() == 0 {
                return Err(FsError::NoSpace);
            }
            let first =
                if nids.build.is_locked() { None } else { nids.list.borrow_mut().pop_front() };
            if let Some(nid) = first {
                nids.known.borrow_mut().insert(nid, false);
                nids.fewer();
                nids.note(nid, false, false);
                return Ok(nid);
            }
            self.build_free_nids(false).await?;
            let mut looked = 0;
            while nids.list.borrow().is_empty() {
                if looked > self.g.nat_blocks / SCAN_BLOCKS {
                    // All were scanned: the numbers that count as available cannot be allocated.
                    return Err(FsError::NoSpace);
                }
                self.build_free_nids(false).await?;
                looked += 1;
            }
        }
    }

    /// The number is in use (`f2fs_alloc_nid_done`).
    pub(crate) fn alloc_nid_done(&self, nid: u32) {
        self.nids.known.borrow_mut().remove(&nid);
    }

    /// The number is free again (`f2fs_alloc_nid_failed`).
    pub(crate) fn alloc_nid_failed(&self, nid: u32) {
        if self.nids.known.borrow_mut().remove(&nid).is_some() {
            self.nids.insert(nid);
            self.nids.more();
            self.nids.note(nid, true, false);
        }
    }

    /// Are the blocks of the NAT all known, so that bitmaps of them can be made
    /// (`f2fs_nat_bitmap_enabled`)? Those: full, empty.
    pub(super) fn nat_bits_now(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let maps = self.nids.maps.borrow();
        let len = (self.g.nat_blocks / 8) as usize;
        let (mut full, mut empty) = (vec![0; len], vec![0; len]);
        for block in 0..self.g.nat_blocks {
            let map = maps.get(&block)?;
            let free = (0..PER).filter(|n| map.test(*n)).count() as u32;
            // Number 0 is never used, and counts as taken.
            let taken = PER - free.min(PER);
            bits::set_le(&mut full, block, taken == PER);
            bits::set_le(&mut empty, block, taken == 0);
        }
        Some((full, empty))
    }
}
