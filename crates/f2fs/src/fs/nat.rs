//! Where nodes are: the NAT, its cache, and what fsync must know of it.
//!
//! Source: Linux `fs/f2fs/node.c` (`f2fs_get_node_info`, `set_node_addr`,
//!         `f2fs_flush_nat_entries`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};

use super::checkpoint::Reason;
use super::meta::{change, show};
use super::mount::F2fs;
use crate::disk::{
    Journal, NatBits, NatEntry, NatJournalEntry, addr, bits, cp_flag, nid as reserved,
};

/// NAT entries in memory above which a checkpoint is due (`DEF_NAT_CACHE_THRESHOLD`).
const CACHED_MOST: usize = 100_000;

/// What the NAT says of a node (`struct node_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeInfo {
    /// Its number.
    pub nid: u32,
    /// Inode that it is of.
    pub ino: u32,
    /// Where it is: `NULL`, `NEW`, or a block.
    pub blk_addr: u32,
    /// How often the number was given anew.
    pub version: u8,
}

/// An entry in memory (`struct nat_entry`).
#[derive(Clone, Copy, Debug)]
struct Entry {
    info: NodeInfo,
    /// The last checkpoint has the node (`IS_CHECKPOINTED`).
    checkpointed: bool,
    /// Its inode was fsynced since (`HAS_FSYNCED_INODE`).
    fsynced_inode: bool,
    /// The last node of its file that was written had the mark (`HAS_LAST_FSYNC`).
    last_fsync: bool,
    dirty: bool,
    /// Its node was never written (`IS_PREALLOC`).
    fresh: bool,
    /// When it was made dirty last, for the order in the journal.
    stamp: u64,
}

/// The NAT of a mounted file system.
pub(crate) struct Nat {
    entries: RefCell<BTreeMap<u32, Entry>>,
    /// Dirty entries that were ever written, by block of the NAT (`nat_set_root`).
    sets: RefCell<BTreeMap<u32, BTreeSet<u32>>>,
    stamp: Cell<u64>,
    dirty: Cell<usize>,
    /// Which copy of each NAT block is valid.
    pub(super) versions: RefCell<Vec<u8>>,
    /// Blocks of the NAT without a free or without a used entry, if the image keeps them.
    pub(super) bits: RefCell<Option<NatBits>>,
}

impl Nat {
    pub(super) fn new(versions: Vec<u8>, bits: Option<NatBits>) -> Nat {
        Nat {
            entries: RefCell::default(),
            sets: RefCell::default(),
            stamp: Cell::new(0),
            dirty: Cell::new(0),
            versions: RefCell::new(versions),
            bits: RefCell::new(bits),
        }
    }

    /// Is there reason for a checkpoint (`excess_cached_nats`, `excess_dirty_nats`)?
    pub(super) fn is_full(&self) -> bool {
        self.entries.borrow().len() >= CACHED_MOST
    }

    /// Is a number in use, or was it since the last checkpoint (`add_free_nid`)?
    pub(super) fn is_taken(&self, nid: u32) -> bool {
        let entries = self.entries.borrow();
        entries.get(&nid).is_some_and(|e| !e.checkpointed || e.info.blk_addr != addr::NULL)
    }

    /// Makes an entry dirty (`__set_nat_cache_dirty`).
    fn set_dirty(&self, e: &mut Entry) {
        let fresh = e.info.blk_addr == addr::NEW;
        if !fresh {
            let mut sets = self.sets.borrow_mut();
            sets.entry(e.info.nid / NatEntry::PER_BLOCK).or_default().insert(e.info.nid);
        }
        e.fresh = fresh;
        e.stamp = self.stamp.get();
        self.stamp.set(e.stamp + 1);
        if !e.dirty {
            e.dirty = true;
            self.dirty.set(self.dirty.get() + 1);
        }
    }

    /// A node has moved (`set_node_addr`). `fsynced`: it carried the mark.
    pub(super) fn set_addr(&self, info: NodeInfo, to: u32, fsynced: bool) {
        let mut entries = self.entries.borrow_mut();
        let e = entries.entry(info.nid).or_insert_with(|| Entry::of(info));
        if to == addr::NEW {
            e.info = info;
        }
        if e.info.blk_addr != addr::NEW && to == addr::NULL {
            e.info.version = e.info.version.wrapping_add(1);
        }
        e.info.blk_addr = to;
        if !addr::is_block(to) {
            e.checkpointed = false;
        }
        self.set_dirty(e);
        if let Some(e) = entries.get_mut(&info.ino) {
            if fsynced && info.nid == info.ino {
                e.fsynced_inode = true;
            }
            e.last_fsync = fsynced;
        }
    }
}

impl Entry {
    /// As it comes to memory: the last checkpoint has it (`nat_reset_flag`).
    fn of(info: NodeInfo) -> Entry {
        Entry {
            info,
            checkpointed: true,
            fsynced_inode: false,
            last_fsync: true,
            dirty: false,
            fresh: false,
            stamp: 0,
        }
    }
}

/// A block of the NAT with its dirty entries, while they are flushed.
type Set = (u32, Vec<u32>);

impl F2fs {
    /// Is the number one that a node can have (`f2fs_check_nid_range`)? Errors: `Corrupt`.
    pub(super) fn check_nid(&self, nid: u32) -> FsResult<()> {
        if (reserved::ROOT..self.g.nids()).contains(&nid) {
            return Ok(());
        }
        self.set_need_fsck();
        let expected = format!("{} to {}", reserved::ROOT, self.g.nids() - 1);
        Err(FsError::corrupt("f2fs node", "nid", 0, u64::from(nid), expected))
    }

    /// Address of the valid copy of a NAT block (`current_nat_addr`).
    pub(super) fn nat_block_addr(&self, block: u32) -> u32 {
        self.g.nat_block(block, bits::test(&self.nat.versions.borrow(), block))
    }

    /// What the NAT says of a node (`f2fs_get_node_info`). Errors: `Corrupt` for a number that no
    /// node can have or an address beyond the area, `Io`.
    pub(crate) async fn nat(&self, nid: u32) -> FsResult<NodeInfo> {
        if let Some(e) = self.nat.entries.borrow().get(&nid) {
            return Ok(e.info);
        }
        self.check_nid(nid)?;
        let found =
            self.space.borrow().nat_journal.nats().iter().find(|e| e.nid.get() == nid).copied();
        let raw = match found {
            Some(e) => e.entry,
            None => {
                let (block, n) = self.g.nat_place(nid);
                let buf = self.meta_block(self.nat_block_addr(block)).await?;
                show(&buf, |b| NatEntry::all(b)[n])
            }
        };
        let blk_addr = raw.block_addr.get();
        if addr::is_block(blk_addr) && !self.g.is_main(blk_addr) {
            self.set_need_fsck();
            let expected = format!("a block of the main area (node {nid})");
            let found = u64::from(blk_addr);
            return Err(FsError::corrupt("f2fs NAT entry", "block_addr", 0, found, expected));
        }
        let info = NodeInfo { nid, ino: raw.ino.get(), blk_addr, version: raw.version };
        let mut entries = self.nat.entries.borrow_mut();
        Ok(entries.entry(nid).or_insert_with(|| Entry::of(info)).info)
    }

    /// Must the inode's fsync say where its name is (`f2fs_need_dentry_mark`)?
    pub(crate) fn need_dentry_mark(&self, nid: u32) -> bool {
        self.nat.entries.borrow().get(&nid).is_some_and(|e| !e.checkpointed && !e.fsynced_inode)
    }

    /// Does the last checkpoint know the node (`f2fs_is_checkpointed_node`)?
    pub(crate) fn is_checkpointed_node(&self, nid: u32) -> bool {
        self.nat.entries.borrow().get(&nid).is_none_or(|e| e.checkpointed)
    }

    /// Must an fsync write the inode's block too (`f2fs_need_inode_block_update`)?
    pub(crate) async fn need_inode_block_update(&self, ino: u32) -> bool {
        let _guard = self.node_write.acquire(1).await;
        let entries = self.nat.entries.borrow();
        !entries.get(&ino).is_some_and(|e| e.last_fsync && (e.checkpointed || e.fsynced_inode))
    }

    /// Takes the entries out of the journal, to be written with the others
    /// (`remove_nats_in_journal`).
    fn empty_nat_journal(&self) {
        let journal = std::mem::replace(&mut self.space.borrow_mut().nat_journal, Journal::empty());
        for j in journal.nats() {
            let (nid, raw) = (j.nid.get(), j.entry);
            if self.check_nid(nid).is_err() {
                continue;
            }
            let info = NodeInfo {
                nid,
                ino: raw.ino.get(),
                blk_addr: raw.block_addr.get(),
                version: raw.version,
            };
            let mut entries = self.nat.entries.borrow_mut();
            let e = entries.entry(nid).or_insert_with(|| Entry::of(info));
            if !e.dirty && raw.block_addr.get() == addr::NULL {
                self.nids.fewer();
            }
            self.nat.set_dirty(e);
        }
    }

    /// Writes changed entries to the journal or their blocks (`f2fs_flush_nat_entries`).
    pub(super) async fn flush_nat(&self, reason: Reason) -> FsResult<()> {
        let unmounts = reason.is_umount();
        let keeps_bits = self.cp.borrow().has(cp_flag::NAT_BITS);
        let whole = unmounts && (self.opts.era.umount_flushes_nat() || keeps_bits);
        if whole {
            self.empty_nat_journal();
        }
        if self.nat.dirty.get() == 0 {
            return Ok(());
        }
        let used = || usize::from(self.space.borrow().nat_journal.count.get());
        if whole || used() + self.nat.dirty.get() > Journal::NAT_MAX {
            self.empty_nat_journal();
        }
        // Small sets first, as more of them fit the journal.
        let most = Journal::NAT_MAX - used();
        let mut sets: Vec<Set> = Vec::new();
        for (block, nids) in self.nat.sets.take() {
            let mut nids: Vec<u32> = nids.into_iter().collect();
            let stamp = |nid: &u32| self.nat.entries.borrow().get(nid).map_or(0, |e| e.stamp);
            nids.sort_by_key(stamp);
            let at = if nids.len() >= most {
                sets.len()
            } else {
                let larger = |s: &Set| s.1.len() >= nids.len();
                sets.iter().position(larger).unwrap_or(sets.len())
            };
            sets.insert(at, (block, nids));
        }
        for (block, nids) in sets {
            let to_journal = !whole && used() + nids.len() <= Journal::NAT_MAX;
            if to_journal {
                self.nat_to_journal(&nids);
            } else {
                self.nat_to_block(block, &nids).await?;
            }
            nids.iter().for_each(|nid| self.nat_flushed(*nid));
        }
        Ok(())
    }

    fn raw_nat(&self, nid: u32) -> NatEntry {
        let entries = self.nat.entries.borrow();
        entries.get(&nid).map_or(NatEntry::new(0, 0, 0), |e| {
            NatEntry::new(e.info.version, e.info.ino, e.info.blk_addr)
        })
    }

    fn nat_to_journal(&self, nids: &[u32]) {
        let mut space = self.space.borrow_mut();
        for nid in nids {
            let entry = NatJournalEntry { nid: (*nid).into(), entry: self.raw_nat(*nid) };
            space.nat_journal.put_nat(entry);
        }
    }

    /// Writes entries into the other copy of their block (`get_next_nat_page`).
    async fn nat_to_block(&self, block: u32, nids: &[u32]) -> FsResult<()> {
        let from = self.meta_block(self.nat_block_addr(block)).await?;
        let second = !bits::test(&self.nat.versions.borrow(), block);
        let buf = self.grab_meta(self.g.nat_block(block, second)).await;
        buf.set_contents(from.snapshot());
        bits::set(&mut self.nat.versions.borrow_mut(), block, second);
        let used = change(&buf, |b| {
            let all = NatEntry::all_mut(b);
            for nid in nids {
                all[self.g.nat_place(*nid).1] = self.raw_nat(*nid);
            }
            let first = usize::from(block == 0);
            let used = all.iter().skip(first).filter(|e| e.block_addr.get() != addr::NULL).count();
            used + first
        });
        self.dirty_meta(&buf);
        if let Some(b) = &mut *self.nat.bits.borrow_mut() {
            b.put(block, used);
        }
        Ok(())
    }

    /// An entry is where the checkpoint finds it.
    fn nat_flushed(&self, nid: u32) {
        let mut entries = self.nat.entries.borrow_mut();
        let Some(e) = entries.get_mut(&nid) else { return };
        *e = Entry::of(e.info);
        self.nat.dirty.set(self.nat.dirty.get() - 1);
        let is_free = e.info.blk_addr == addr::NULL;
        drop(entries);
        self.nids.flushed(nid, is_free);
    }

    /// Forgets clean entries, if there are too many (`f2fs_try_to_free_nats`).
    pub(super) fn shrink_nat(&self) {
        let mut entries = self.nat.entries.borrow_mut();
        if entries.len() >= CACHED_MOST {
            entries.retain(|_, e| e.dirty);
        }
    }
}
