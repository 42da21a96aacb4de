//! Which blocks are given out, and how they are taken and returned.
//!
//! Picture:    a group's free space is a bitmap in memory: the disk's, plus blocks freed by
//!             transactions that are not durable yet, plus blocks set aside for small open files.
//!             From it follow the buddies that Linux' allocator would see (aligned free runs of a
//!             power of two).
//! Invariants: 1. a bit that is clear in memory is clear on disk and in every transaction that may
//!                survive.
//!             2. blocks are taken in memory before anything waits, so two tasks never get the
//!                same.
//! Left out:   preallocation to inodes: large files are allocated after their last extent.
//! Source:     Linux `fs/ext4/mballoc.c`: goal, criteria 0 (buddies) and 1 (best fit), locality
//!             groups.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_rt::{CpuOp, Lock, Rt};

use super::bits::Bits;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::GroupDesc;

/// Blocks set aside at a time for small files (`s_mb_group_prealloc`).
const GROUP_PREALLOC: u32 = 512;
/// Files above this many blocks are not small (`s_mb_stream_request`).
const STREAM_REQUEST: u64 = 16;
/// Free-space state of all groups.
pub(super) struct Groups {
    bits: RefCell<Vec<Option<Bits>>>,
    load: Lock<()>,
    prealloc: RefCell<Option<Prealloc>>,
    /// Free blocks over all groups, as the descriptors say.
    pub free_blocks: Cell<u64>,
    /// Free inodes over all groups.
    pub free_inodes: Cell<u64>,
    /// Of the free blocks: freed by transactions that are not durable yet, so not to be given out.
    pending: Cell<u64>,
    generations: RefCell<Option<wp_base::Rng>>,
}

/// Blocks set aside for small files (a locality group's preallocation).
#[derive(Clone, Copy)]
struct Prealloc {
    next: u64,
    left: u32,
}

/// What is asked for.
pub(super) struct Request {
    /// Preferred first block.
    pub goal: u64,
    /// The goal continues what the file has: take it if it is free.
    pub adjacent: bool,
    /// Blocks wanted; fewer may be given.
    pub want: u32,
    /// Take from what is set aside for small files.
    pub from_group_prealloc: bool,
    /// The space was promised to the caller, or a promise cannot be kept without it (a tree's
    /// node): others' promises do not stand in the way.
    pub promised: bool,
}

impl Groups {
    pub(super) fn new(rt: &Rt, groups: u32) -> Groups {
        Groups {
            bits: RefCell::new((0..groups).map(|_| None).collect()),
            load: Lock::new(rt, "block group load", ()),
            prealloc: RefCell::new(None),
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

    fn with<R>(&self, group: u32, f: impl FnOnce(&mut Bits) -> R) -> R {
        f(self.bits.borrow_mut()[group as usize].as_mut().expect("the group was loaded"))
    }
}

impl Ext4 {
    /// The group's block bitmap buffer, verified; computed if the group was never used.
    pub(super) async fn block_bitmap(&self, group: u32) -> FsResult<Rc<Buffer>> {
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
        let bits = bytes.len() as u32 * 8;
        let mut set = |bit: u32| bytes[bit as usize / 8] |= 1 << (bit % 8);
        (0..self.geo.base_meta_blocks(group)).for_each(&mut set);
        let d = self.group_desc(group);
        let table = d.inode_table();
        let own = [(d.block_bitmap(), 1), (d.inode_bitmap(), 1), (table, self.geo.itable_blocks)];
        for (first, len) in own {
            for b in first..first + u64::from(len) {
                if b >= start && b < start + u64::from(blocks) {
                    set((b - start) as u32);
                }
            }
        }
        (blocks..bits).for_each(set);
    }

    async fn load_group(&self, group: u32) -> FsResult<()> {
        if self.groups.bits.borrow()[group as usize].is_some() {
            return Ok(());
        }
        let _one = self.groups.load.lock().await;
        if self.groups.bits.borrow()[group as usize].is_some() {
            return Ok(());
        }
        let b = self.block_bitmap(group).await?;
        let blocks = self.geo.blocks_in_group(group);
        let bits = b.with(|bytes| Bits::from_bytes(bytes, blocks));
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
        self.groups.bits.borrow_mut()[group as usize] = Some(bits);
        Ok(())
    }

    /// Blocks that may still be promised to delayed writes.
    pub(super) fn free_for_delay(&self) -> u64 {
        // `s_resv_clusters`: 2 % or 4096 blocks, so that writeback never fails for want of a tree
        // block.
        let spare = (self.geo.blocks_count / 50).min(4096);
        self.groups.free_blocks.get().saturating_sub(self.reserved_blocks.get() + spare)
    }

    /// Where a file's first block should go (`ext4_inode_to_goal_block`).
    pub(super) fn first_goal(&self, inode: &Inode) -> u64 {
        let mut group = self.geo.inode_slot(inode.ino).map_or(0, |s| s.group);
        let flex = self.geo.groups_per_flex;
        if flex >= 4 {
            // Data of files keeps out of the first group of a flex group, which is left to
            // directories.
            group &= !(flex - 1);
            if !inode.is_dir() && !self.is_symlink(inode) && group + 1 < self.geo.groups {
                group += 1;
            }
        }
        self.geo.group_start(group)
    }

    fn is_symlink(&self, inode: &Inode) -> bool {
        inode.disk.borrow().is_symlink()
    }

    /// Should this file take from what is set aside for small files (`ext4_mb_group_or_file`)?
    pub(super) fn wants_group_prealloc(&self, inode: &Inode, end_block: u64) -> bool {
        let bs = u64::from(self.bs().bytes());
        let isize = inode.size.get().div_ceil(bs);
        if inode.is_dir() || !inode.disk.borrow().is_file() {
            return false;
        }
        // A file that nobody has open for writing, allocated to its very end, grows no more.
        if end_block == isize && inode.writers.get() == 0 {
            return false;
        }
        end_block.max(isize) <= STREAM_REQUEST
    }

    /// Takes blocks and records that in the handle. Returns (first block, count).
    ///
    /// Waits: for bitmaps, for the journal. Errors: `NoSpace`.
    pub(super) async fn take_blocks(&self, h: &Handle, rq: &Request) -> FsResult<(u64, u32)> {
        self.rt.cpu(CpuOp::BlockAlloc, 1).await;
        // What is promised to delayed writes is not there to be taken.
        if !rq.promised && self.free_for_delay() == 0 {
            return Err(FsError::NoSpace);
        }
        let (start, len) = match self.choose(rq).await? {
            Some(run) => run,
            None => {
                self.drop_prealloc();
                self.choose(rq).await?.ok_or(FsError::NoSpace)?
            }
        };
        match self.record(h, start, len, true).await {
            Ok(()) => Ok((start, len)),
            Err(e) => {
                let (group, bit) =
                    self.geo.locate_block(start).expect("it was chosen from a group");
                self.groups.with(group, |b| b.set(bit, len, false));
                Err(e)
            }
        }
    }

    /// Chooses blocks and marks them busy in memory.
    async fn choose(&self, rq: &Request) -> FsResult<Option<(u64, u32)>> {
        if rq.from_group_prealloc
            && let Some(run) = self.take_prealloc(rq).await?
        {
            return Ok(Some(run));
        }
        let (goal_group, goal_bit) = self.geo.locate_block(rq.goal).unwrap_or((0, 0));
        if rq.adjacent {
            self.load_group(goal_group).await?;
            let got = self.groups.with(goal_group, |b| {
                if !b.is_free(goal_bit) {
                    return None;
                }
                let end = b.next(goal_bit, false).unwrap_or(b.blocks);
                let len = rq.want.min(end - goal_bit);
                b.set(goal_bit, len, true);
                Some(len)
            });
            if let Some(len) = got {
                return Ok(Some((rq.goal, len)));
            }
        }
        // First a group that holds all of it in one run; then whatever is largest.
        for whole in [true, false] {
            for i in 0..self.geo.groups {
                let group = (goal_group + i) % self.geo.groups;
                if self.group_desc(group).free_blocks_count() == 0 {
                    continue;
                }
                self.load_group(group).await?;
                let start = self.geo.group_start(group);
                let got = self.groups.with(group, |b| {
                    let run = if whole && rq.want > 1 && rq.want.is_power_of_two() && rq.want >= 4 {
                        b.buddy(rq.want.ilog2(), self.bs().bits() + 1).map(|at| (at, rq.want))
                    } else {
                        b.best(0, rq.want)
                    };
                    let (at, len) = run?;
                    if whole && len < rq.want {
                        return None;
                    }
                    let len = len.min(rq.want);
                    b.set(at, len, true);
                    Some((start + u64::from(at), len))
                });
                if got.is_some() {
                    return Ok(got);
                }
            }
        }
        Ok(None)
    }

    /// Blocks for a small open file, from what is set aside; sets more aside if there is none left.
    async fn take_prealloc(&self, rq: &Request) -> FsResult<Option<(u64, u32)>> {
        let enough = self.groups.prealloc.borrow().is_some_and(|p| p.left >= rq.want);
        if !enough {
            let (goal_group, _) = self.geo.locate_block(rq.goal).unwrap_or((0, 0));
            let mut fresh = None;
            for i in 0..self.geo.groups {
                let group = (goal_group + i) % self.geo.groups;
                if self.group_desc(group).free_blocks_count() < GROUP_PREALLOC {
                    continue;
                }
                self.load_group(group).await?;
                let order = GROUP_PREALLOC.ilog2();
                let got = self.groups.with(group, |b| {
                    let at = b.buddy(order, self.bs().bits() + 1)?;
                    b.set(at, GROUP_PREALLOC, true);
                    Some(at)
                });
                if let Some(at) = got {
                    fresh = Some(Prealloc {
                        next: self.geo.group_start(group) + u64::from(at),
                        left: GROUP_PREALLOC,
                    });
                    break;
                }
            }
            let Some(fresh) = fresh else { return Ok(None) };
            self.drop_prealloc();
            *self.groups.prealloc.borrow_mut() = Some(fresh);
        }
        let mut slot = self.groups.prealloc.borrow_mut();
        Ok(slot.as_mut().map(|p| {
            let len = rq.want.min(p.left);
            let run = (p.next, len);
            p.next += u64::from(len);
            p.left -= len;
            run
        }))
    }

    /// Gives back what is set aside and not used.
    pub(super) fn drop_prealloc(&self) {
        if let Some(p) = self.groups.prealloc.borrow_mut().take()
            && p.left > 0
            && let Some((group, bit)) = self.geo.locate_block(p.next)
        {
            self.groups.with(group, |b| b.set(bit, p.left, false));
        }
    }

    /// Records in bitmap and descriptor that blocks are taken or free.
    async fn record(&self, h: &Handle, start: u64, len: u32, taken: bool) -> FsResult<()> {
        let (group, bit) = self.geo.locate_block(start).ok_or(FsError::Invalid("block number"))?;
        let buf = self.block_bitmap(group).await?;
        h.get_write_access(&buf).await?;
        let wrong = buf.with(|bytes| {
            (bit..bit + len).find(|b| (bytes[*b as usize / 8] >> (b % 8) & 1 == 1) == taken)
        });
        if let Some(b) = wrong {
            return Err(FsError::corrupt(
                "ext4 block bitmap",
                "bit",
                buf.block() * u64::from(self.bs().bytes()),
                start + u64::from(b - bit),
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
        let n = self.geo.block_bitmap_bytes();
        let csum = buf.with(|bytes| self.csum.bitmap(&bytes[..n]));
        buf.set(BufFlag::Verified);
        self.dirty(h, &buf)?;
        self.change_desc(h, group, |d| {
            if d.has(GroupDesc::BLOCK_UNINIT) {
                d.flags = (d.flags.get() & !GroupDesc::BLOCK_UNINIT).into();
            }
            let free = d.free_blocks_count();
            d.set_free_blocks_count(if taken { free - len } else { free + len });
            if self.csum.metadata() {
                d.set_block_bitmap_csum(csum);
            }
        })
        .await?;
        let free = self.groups.free_blocks.get();
        self.groups.free_blocks.set(if taken {
            free - u64::from(len)
        } else {
            free + u64::from(len)
        });
        Ok(())
    }

    /// Makes a group's bitmap real if the group was never used: an inode is about to live in it.
    pub(super) async fn init_group_blocks(&self, h: &Handle, group: u32) -> FsResult<()> {
        if !self.csum.descriptors() || !self.group_desc(group).has(GroupDesc::BLOCK_UNINIT) {
            return Ok(());
        }
        let buf = self.block_bitmap(group).await?;
        h.get_write_access(&buf).await?;
        self.dirty(h, &buf)?;
        let n = self.geo.block_bitmap_bytes();
        let csum = buf.with(|bytes| self.csum.bitmap(&bytes[..n]));
        self.change_desc(h, group, |d| {
            d.flags = (d.flags.get() & !GroupDesc::BLOCK_UNINIT).into();
            if self.csum.metadata() {
                d.set_block_bitmap_csum(csum);
            }
        })
        .await
    }

    /// Returns blocks. They can be given out again once this transaction is durable.
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
        let mut at = start;
        let end = start + u64::from(len);
        while at < end {
            let (group, bit) = self.geo.locate_block(at).expect("the range was checked");
            let n = u64::from(self.geo.blocks_in_group(group) - bit).min(end - at) as u32;
            if metadata && crate::site::FORGET.on() {
                for block in at..at + u64::from(n) {
                    self.forget_block(h, block).await?;
                }
            }
            self.load_group(group).await?;
            self.record(h, at, n, false).await?;
            let groups = &self.groups;
            groups.pending.set(groups.pending.get() + u64::from(n));
            let weak = Rc::downgrade(self);
            let again = Box::new(move || {
                if let Some(fs) = weak.upgrade() {
                    fs.groups.with(group, |b| b.set(bit, n, false));
                    fs.groups.pending.set(fs.groups.pending.get() - u64::from(n));
                }
            });
            if crate::site::FREE_LATER.on() {
                h.on_commit(again);
            } else {
                again();
            }
            at += u64::from(n);
        }
        Ok(())
    }
}
