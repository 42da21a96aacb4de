//! The free space of each group, and how blocks are taken and returned.
//!
//! Picture:    a group's free space is a bitmap in memory: the disk's, plus blocks freed by
//!             transactions that are not durable yet, plus blocks set aside. `mballoc` chooses
//!             from it.
//! Invariants: 1. a bit that is clear in memory is clear on disk and in every transaction that may
//!                survive.
//!             2. blocks are taken in memory before anything waits, so two tasks never get the
//!                same.
//! Left out:   the colour by process that `nodelalloc` adds to a file's first goal.
//! Source:     Linux `fs/ext4/mballoc.c`, `fs/ext4/balloc.c`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_rt::{CpuOp, Lock, MaybeReady, Rt, soon};

use super::bits::Bits;
use super::data_journal::DataMode;
use super::inode::Inode;
use super::mballoc::{FLEX_SIZE_DIRS, Request};
use super::mount::Ext4;
use super::prealloc::Preallocs;
use crate::disk::{Geometry, GroupDesc};

/// Free-space state of all groups.
pub(super) struct Groups {
    bits: RefCell<Vec<Option<Bits>>>,
    load: Lock<()>,
    pub(super) prealloc: RefCell<Preallocs>,
    /// Where the last search for a large file ended, by inode number (`s_mb_last_groups`).
    streams: Vec<Cell<u32>>,
    /// Groups that were not loaded yet.
    pub(super) unread: Cell<u32>,
    /// Counts changes of groups' largest orders and mean runs.
    joins: Cell<u64>,
    /// Where a directory's last inode went (`i_last_alloc_group`).
    pub(super) last_inode_group: RefCell<BTreeMap<u32, u32>>,
    /// Free clusters over all groups, as the descriptors say; blocks without bigalloc, here and
    /// below.
    pub free_blocks: Cell<u64>,
    /// Free inodes over all groups.
    pub free_inodes: Cell<u64>,
    /// Free blocks, free inodes and directories as the kernel's approximate counters have them.
    pub(super) rough: Rough,
    /// Of the free blocks: freed by transactions that are not durable yet, so not to be given out.
    pending: Cell<u64>,
    generations: RefCell<Option<wp_base::Rng>>,
}

/// What `percpu_counter_read` says of counters that one CPU changes.
pub(super) struct Rough {
    pub blocks: RoughCounter,
    pub inodes: RoughCounter,
    pub dirs: RoughCounter,
}

/// A counter whose changes are seen only when they have come to a batch (`percpu_counter`).
pub(super) struct RoughCounter {
    batch: i64,
    seen: Cell<i64>,
    own: Cell<i64>,
}

impl RoughCounter {
    /// Without SMP (`smp`) it is exact.
    fn new(smp: bool) -> RoughCounter {
        // `percpu_counter_batch` of a machine with up to 16 CPUs.
        let batch = if smp { 32 } else { 1 };
        RoughCounter { batch, seen: Cell::new(0), own: Cell::new(0) }
    }

    pub(super) fn set(&self, value: u64) {
        self.seen.set(value as i64);
        self.own.set(0);
    }

    pub(super) fn add(&self, n: i64) {
        let own = self.own.get() + n;
        if own.abs() >= self.batch {
            self.seen.set(self.seen.get() + own);
            self.own.set(0);
        } else {
            self.own.set(own);
        }
    }

    pub(super) fn read(&self) -> u64 {
        self.seen.get().max(0) as u64
    }
}

impl Groups {
    /// `goals`: how many groups are remembered for large files. `smp`: see
    /// [`MountOptions::smp`](super::mount::MountOptions::smp).
    pub(super) fn new(rt: &Rt, geo: &Geometry, goals: u32, smp: bool) -> Groups {
        let (groups, cluster_bits) = (geo.groups, geo.cluster_bits);
        Groups {
            bits: RefCell::new((0..groups).map(|_| None).collect()),
            load: Lock::new(rt, "block group load", ()),
            prealloc: RefCell::new(Preallocs::new(cluster_bits)),
            streams: vec![Cell::new(0); goals.max(1) as usize],
            unread: Cell::new(groups),
            joins: Cell::new(0),
            last_inode_group: RefCell::default(),
            rough: Rough {
                blocks: RoughCounter::new(smp),
                inodes: RoughCounter::new(smp),
                dirs: RoughCounter::new(smp),
            },
            free_blocks: Cell::new(0),
            free_inodes: Cell::new(0),
            pending: Cell::new(0),
            generations: RefCell::new(None),
        }
    }

    /// A generation number for a new inode, from the world's seed.
    pub(super) fn next_generation(&self, rt: &Rt) -> u32 {
        self.generations.borrow_mut().get_or_insert_with(|| rt.rng("ext4 generation")).next_u64()
            as u32
    }

    /// Would a commit give blocks back?
    pub(super) fn has_pending(&self) -> bool {
        self.pending.get() > 0
    }

    /// Looks at a group that was loaded.
    pub(super) fn with<R>(&self, group: u32, f: impl FnOnce(&Bits) -> R) -> R {
        f(self.bits.borrow()[group as usize].as_ref().expect("the group was loaded"))
    }

    /// Looks at a group if it was loaded.
    pub(super) fn peek<R>(&self, group: u32, f: impl FnOnce(&Bits) -> R) -> Option<R> {
        self.bits.borrow()[group as usize].as_ref().map(f)
    }

    /// Which list the group is in, and when it joined it. `which`: 0 of largest orders, 1 of mean
    /// runs.
    pub(super) fn list_of(
        &self,
        group: u32,
        which: usize,
        list: impl FnOnce(&Bits) -> Option<u32>,
    ) -> Option<(u32, u64)> {
        self.peek(group, |b| list(b).map(|l| (l, b.joined[which]))).flatten()
    }

    /// Marks blocks of a loaded group busy or free in memory.
    pub(super) fn mark(&self, group: u32, start: u32, len: u32, busy: bool) {
        let mut bits = self.bits.borrow_mut();
        let b = bits[group as usize].as_mut().expect("the group was loaded");
        let lists = |b: &Bits| [b.largest_order(), b.mean_fragment().checked_ilog2()];
        let before = lists(b);
        b.set(start, len, busy);
        let after = lists(b);
        for i in 0..2 {
            if before[i] != after[i] {
                self.joins.set(self.joins.get() + 1);
                b.joined[i] = self.joins.get();
            }
        }
    }

    /// `n` blocks that were freed by a transaction can be allocated again.
    pub(super) fn came_back(&self, n: u32) {
        self.pending.set(self.pending.get() - u64::from(n));
    }

    /// Where the last search for a large file like this one ended.
    pub(super) fn stream_group(&self, ino: u32) -> &Cell<u32> {
        &self.streams[ino as usize % self.streams.len()]
    }
}

impl Ext4 {
    /// The group's block bitmap buffer, verified; computed if the group was never used.
    pub(super) fn block_bitmap(&self, group: u32) -> MaybeReady<'_, FsResult<Rc<Buffer>>> {
        let (at, unused) = {
            let desc = &self.descs.borrow()[group as usize];
            (desc.block_bitmap(), desc.has(GroupDesc::BLOCK_UNINIT))
        };
        match self
            .bdev
            .peek(at)
            .filter(|b| !unused && b.flag(BufFlag::Uptodate) && b.flag(BufFlag::Verified))
        {
            Some(b) => MaybeReady::now(Ok(b)),
            None => MaybeReady::later(self.load_block_bitmap(group)),
        }
    }

    async fn load_block_bitmap(&self, group: u32) -> FsResult<Rc<Buffer>> {
        let desc = self.group_desc(group);
        let at = desc.block_bitmap();
        if desc.has(GroupDesc::BLOCK_UNINIT) && self.csum.descriptors() {
            let b = self.bdev.get(at);
            if !b.flag(BufFlag::Uptodate) {
                b.with_mut(|bytes| self.init_block_bitmap(group, bytes));
                b.set(BufFlag::Uptodate);
            }
            return Ok(b);
        }
        let b = self.bdev.read(at).await?;
        if !b.flag(BufFlag::Verified) {
            let n = self.geo.block_bitmap_bytes();
            if !b.with(|bytes| {
                self.csum.bitmap_ok(&bytes[..n], self.group_desc(group).block_bitmap_csum())
            }) {
                return Err(FsError::corrupt(
                    "ext4 block bitmap",
                    "checksum",
                    at * u64::from(self.bs().bytes()),
                    u64::from(group),
                    "the checksum in its group descriptor",
                ));
            }
            b.set(BufFlag::Verified);
        }
        Ok(b)
    }

    /// What a group holds that was never used: its copy of the super block and descriptors, and
    /// metadata that lies in it.
    fn init_block_bitmap(&self, group: u32, bytes: &mut [u8]) {
        bytes.fill(0);
        let start = self.geo.group_start(group);
        let blocks = self.geo.blocks_in_group(group);
        let shift = self.geo.cluster_bits;
        let bits = bytes.len() as u32 * 8;
        let mut set = |bit: u32| bytes[bit as usize / 8] |= 1 << (bit % 8);
        let copies = self.geo.clusters_of(self.geo.base_meta_blocks(group).into());
        (0..copies as u32).for_each(&mut set);
        let d = self.group_desc(group);
        let table = d.inode_table();
        let own = [(d.block_bitmap(), 1), (d.inode_bitmap(), 1), (table, self.geo.itable_blocks)];
        for (first, len) in own {
            for b in first..first + u64::from(len) {
                if b >= start && b < start + u64::from(blocks) {
                    set((b - start) as u32 >> shift);
                }
            }
        }
        (self.geo.clusters_in_group(group)..bits).for_each(set);
    }

    pub(super) fn load_group(&self, group: u32) -> MaybeReady<'_, FsResult<()>> {
        match self.groups.bits.borrow()[group as usize] {
            Some(_) => MaybeReady::now(Ok(())),
            None => MaybeReady::later(self.read_group(group)),
        }
    }

    async fn read_group(&self, group: u32) -> FsResult<()> {
        let _one = self.groups.load.lock().await;
        if self.groups.bits.borrow()[group as usize].is_some() {
            return Ok(());
        }
        let b = soon!(self.block_bitmap(group))?;
        let blocks = self.geo.clusters_in_group(group);
        let bits = b.with(|bytes| Bits::from_bytes(bytes, blocks, self.bs().bits() + 1));
        // Nothing of this group was taken or returned before it was loaded, so the two must agree
        // (`ext4_mb_generate_buddy`).
        let (says, has) = (self.group_desc(group).free_blocks_count(), bits.free_blocks());
        if says != has {
            return Err(FsError::corrupt(
                "ext4 group descriptor",
                "bg_free_blocks_count",
                self.desc_address(group),
                u64::from(says),
                format!("{has}, what the block bitmap of group {group} says"),
            ));
        }
        let mut bits = bits;
        self.groups.joins.set(self.groups.joins.get() + 1);
        self.groups.unread.set(self.groups.unread.get() - 1);
        bits.joined = [self.groups.joins.get(); 2];
        self.groups.bits.borrow_mut()[group as usize] = Some(bits);
        Ok(())
    }

    /// Clusters that may still be promised to delayed writes; blocks without bigalloc.
    pub(super) fn free_for_delay(&self) -> u64 {
        // `s_resv_clusters`: 2 % or 4096 blocks, so that writeback never fails for want of a tree
        // block.
        let spare = ((self.geo.blocks_count >> self.geo.cluster_bits) / 50).min(4096);
        self.groups.free_blocks.get().saturating_sub(self.reserved_blocks.get() + spare)
    }

    /// Reads the bitmaps of the groups from `first` to the end of its flex group, at most of as
    /// many as there are, and makes them ready (`ext4_mb_might_prefetch`, `ext4_mb_prefetch_fini`).
    pub(super) async fn read_groups_from(&self, first: u32) -> FsResult<()> {
        let flex = self.geo.groups_per_flex;
        let n = (flex - first % flex).min(self.geo.groups);
        let wanted = |g: &u32| {
            let d = self.group_desc(*g);
            let unused = d.has(GroupDesc::BLOCK_UNINIT) && self.csum.descriptors();
            self.groups.peek(*g, |_| ()).is_none()
                && d.free_blocks_count() > 0
                && (!unused || self.opts.era.prefetches_unused_groups())
        };
        let window = (0..n).map(|i| (first + i) % self.geo.groups);
        let groups: Vec<u32> = window.filter(wanted).collect();
        for group in &groups {
            let d = self.group_desc(*group);
            if !(d.has(GroupDesc::BLOCK_UNINIT) && self.csum.descriptors()) {
                self.bdev.read_ahead(d.block_bitmap());
            }
        }
        for group in groups {
            soon!(self.load_group(group))?;
        }
        Ok(())
    }

    /// Gives `len` clusters from block `start` on back that were busy in memory only.
    pub(super) fn free_in_memory(&self, start: u64, len: u32) {
        let (group, bit) = self.geo.locate_cluster(start).expect("it was chosen from a group");
        self.groups.mark(group, bit, len, false);
    }

    /// Where a file's first block should go (`ext4_inode_to_goal_block`). Beyond the last block:
    /// there is no such group, and no preference.
    pub(super) fn first_goal(&self, inode: &Inode) -> u64 {
        let mut group = self.geo.inode_slot(inode.ino).map_or(0, |s| s.group);
        let flex = self.geo.groups_per_flex;
        if flex >= FLEX_SIZE_DIRS {
            // Data of files keeps out of the first group of a flex group, which is left to
            // directories.
            group &= !(flex - 1);
            if inode.disk.borrow().is_file() {
                group += 1;
            }
        }
        if group < self.geo.groups { self.geo.group_start(group) } else { u64::MAX }
    }

    /// Takes clusters (blocks without bigalloc) and records that in the handle. Returns (first
    /// block, how many clusters).
    ///
    /// Waits: for bitmaps, for the journal. Errors: `NoSpace`.
    pub(super) async fn take_blocks(&self, h: &Handle, rq: &Request<'_>) -> FsResult<(u64, u32)> {
        self.rt.cpu(CpuOp::BlockAlloc, 1).await;
        // What is promised to delayed writes is not there to be taken: half as much may be
        // (`ext4_claim_free_clusters`).
        let mut want = rq.want;
        while !rq.promised && u64::from(want) > self.free_for_delay() {
            want /= 2;
        }
        if want == 0 {
            return Err(FsError::NoSpace);
        }
        let (start, len) = self.choose(rq, want).await?.ok_or(FsError::NoSpace)?;
        match self.record(h, start, len, true).await {
            Ok(()) => Ok((start, len)),
            Err(e) => {
                self.free_in_memory(start, len);
                Err(e)
            }
        }
    }

    /// Records in bitmap and descriptor that `len` clusters from block `start` on are taken or
    /// free.
    async fn record(&self, h: &Handle, start: u64, len: u32, taken: bool) -> FsResult<()> {
        let (group, bit) =
            self.geo.locate_cluster(start).ok_or(FsError::Invalid("block number"))?;
        let buf = soon!(self.block_bitmap(group))?;
        soon!(h.get_write_access(&buf))?;
        let wrong = buf.with(|bytes| {
            (bit..bit + len).find(|b| (bytes[*b as usize / 8] >> (b % 8) & 1 == 1) == taken)
        });
        if let Some(b) = wrong {
            return Err(FsError::corrupt(
                "ext4 block bitmap",
                "bit",
                buf.block() * u64::from(self.bs().bytes()),
                self.geo.cluster_start(group, b),
                if taken { "a free block" } else { "a block in use" },
            ));
        }
        buf.with_mut(|bytes| {
            for b in bit..bit + len {
                if taken {
                    bytes[b as usize / 8] |= 1 << (b % 8)
                } else {
                    bytes[b as usize / 8] &= !(1 << (b % 8))
                }
            }
        });
        buf.set(BufFlag::Verified);
        self.dirty(h, &buf)?;
        soon!(self.desc_access(h, group))?;
        // Only now: another handle may have changed the bitmap while this one waited.
        let n = self.geo.block_bitmap_bytes();
        let csum = buf.with(|bytes| self.csum.bitmap(&bytes[..n]));
        self.change_accessed_desc(h, group, |d| {
            if d.has(GroupDesc::BLOCK_UNINIT) {
                d.flags = (d.flags.get() & !GroupDesc::BLOCK_UNINIT).into();
            }
            let free = d.free_blocks_count();
            d.set_free_blocks_count(if taken { free - len } else { free + len });
            if self.csum.metadata() {
                d.set_block_bitmap_csum(csum);
            }
        })?;
        let free = self.groups.free_blocks.get();
        self.groups.free_blocks.set(if taken {
            free - u64::from(len)
        } else {
            free + u64::from(len)
        });
        self.groups.rough.blocks.add(if taken { -i64::from(len) } else { i64::from(len) });
        Ok(())
    }

    /// Was the group never used, so that its bitmap is not real yet?
    pub(super) fn is_without_bitmap(&self, group: u32) -> bool {
        self.csum.descriptors() && self.descs.borrow()[group as usize].has(GroupDesc::BLOCK_UNINIT)
    }

    /// Makes a group's bitmap real if the group was never used: an inode is about to live in it.
    pub(super) async fn init_group_blocks(&self, h: &Handle, group: u32) -> FsResult<()> {
        if !self.is_without_bitmap(group) {
            return Ok(());
        }
        let buf = soon!(self.block_bitmap(group))?;
        soon!(h.get_write_access(&buf))?;
        self.dirty(h, &buf)?;
        soon!(self.desc_access(h, group))?;
        // Only now: another handle may have changed the bitmap while this one waited.
        let n = self.geo.block_bitmap_bytes();
        let csum = buf.with(|bytes| self.csum.bitmap(&bytes[..n]));
        self.change_accessed_desc(h, group, |d| {
            d.flags = (d.flags.get() & !GroupDesc::BLOCK_UNINIT).into();
            if self.csum.metadata() {
                d.set_block_bitmap_csum(csum);
            }
        })
    }

    /// Returns blocks, and with bigalloc all of the clusters that they are in. They can be given
    /// out again once this transaction is durable.
    ///
    /// `metadata`: they were logged as metadata, so the journal must not replay over their next
    /// owner.
    pub(super) async fn return_blocks(
        self: &Rc<Self>,
        h: &Handle,
        start: u64,
        len: u32,
        metadata: bool,
    ) -> FsResult<()> {
        if !self.geo.holds(start, u64::from(len)) {
            return Err(FsError::corrupt(
                "ext4 extent",
                "ee_start",
                0,
                start,
                "blocks of this file system",
            ));
        }
        let end = start + u64::from(len);
        let mut at = self.geo.cluster_floor(start);
        while at < end {
            let (group, bit) = self.geo.locate_cluster(at).expect("the range was checked");
            let room = u64::from(self.geo.clusters_in_group(group) - bit);
            let n = room.min(self.geo.clusters_of(end - at)) as u32;
            let blocks = u64::from(n) << self.geo.cluster_bits;
            if metadata && crate::site::FORGET.on() {
                for block in at..at + blocks {
                    self.forget_block(h, block).await?;
                }
            }
            soon!(self.load_group(group))?;
            self.record(h, at, n, false).await?;
            let groups = &self.groups;
            groups.pending.set(groups.pending.get() + u64::from(n));
            at += blocks;
            let at_once = !metadata && self.opts.data == DataMode::Writeback;
            if self.discard_later(h.tid(), (group, bit, n), at_once).await {
                continue;
            }
            let weak = Rc::downgrade(self);
            let again = Box::new(move || {
                if let Some(fs) = weak.upgrade() {
                    fs.groups.mark(group, bit, n, false);
                    fs.groups.came_back(n);
                    fs.discards.untrim(group);
                }
            });
            if crate::site::FREE_LATER.on() {
                h.on_commit(again);
            } else {
                again();
            }
        }
        Ok(())
    }
}
