//! How inodes are taken and returned; `orlov` says in which group.
//!
//! Source:     Linux `fs/ext4/ialloc.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_rt::{MaybeReady, soon};

use super::inode::{Inode, NewInode};
use super::mount::Ext4;
use super::orlov::Parent;
use crate::disk::{self, GroupDesc, ro_compat};

/// The first clear bit of `first..end`. Full bytes are passed over whole, eight at a time.
fn first_clear(bitmap: &[u8], first: u32, end: u32) -> Option<u32> {
    let (mut byte, bit) = (first as usize / 8, first % 8);
    let mut seen = *bitmap.get(byte)? | ((1 << bit) - 1);
    if seen == 0xFF {
        let rest = &bitmap[byte + 1..];
        let full = full_bytes::<64>(rest);
        let full = full + full_bytes::<8>(&rest[full..]);
        let more = rest[full..].iter().position(|b| *b != 0xFF)?;
        seen = rest[full + more];
        byte += 1 + full + more;
    }
    Some(byte as u32 * 8 + seen.trailing_ones()).filter(|i| *i < end)
}

/// How many bytes are full from the first on, in pieces of `N`.
fn full_bytes<const N: usize>(bytes: &[u8]) -> usize {
    let is_full = |piece: &&[u8]| piece.iter().fold(0xFF, |all, b| all & b) == 0xFF;
    bytes.chunks_exact(N).take_while(is_full).count() * N
}

impl Ext4 {
    /// `i_extra_isize` of a new inode: what the kernel knows of fields, or more if the super block
    /// says so, if there is room (`ext4_fill_super`; `i_projid` came with 4.5).
    pub(super) fn new_extra_isize(&self) -> u16 {
        let known = if self.opts.era.has_projects() { 32 } else { 28 };
        let sb = self.sb.borrow();
        let mut size: u16 = known;
        if sb.has_ro_compat(ro_compat::EXTRA_ISIZE) {
            size = size.max(sb.want_extra_isize.get()).max(sb.min_extra_isize.get());
        }
        let room = self.geo.inode_bytes - disk::Inode::BYTES as u16;
        if size > room { known } else { size }
    }

    /// The group's inode bitmap buffer, verified; computed if the group has no inode yet.
    pub(super) fn inode_bitmap(&self, group: u32) -> MaybeReady<'_, FsResult<Rc<Buffer>>> {
        let (at, unused) = {
            let desc = &self.descs.borrow()[group as usize];
            (desc.inode_bitmap(), desc.has(GroupDesc::INODE_UNINIT))
        };
        match self
            .bdev
            .peek(at)
            .filter(|b| !unused && b.flag(BufFlag::Uptodate) && b.flag(BufFlag::Verified))
        {
            Some(b) => MaybeReady::now(Ok(b)),
            None => MaybeReady::later(self.load_inode_bitmap(group)),
        }
    }

    async fn load_inode_bitmap(&self, group: u32) -> FsResult<Rc<Buffer>> {
        let desc = self.group_desc(group);
        let at = desc.inode_bitmap();
        let n = self.geo.inode_bitmap_bytes();
        if desc.has(GroupDesc::INODE_UNINIT) && self.csum.descriptors() {
            let b = self.bdev.get(at);
            if !b.flag(BufFlag::Uptodate) {
                b.with_mut(|bytes| {
                    bytes.fill(0);
                    bytes[n..].fill(0xFF);
                });
                b.set(BufFlag::Uptodate);
                b.set(BufFlag::Verified);
            }
            return Ok(b);
        }
        let b = self.bdev.read(at).await?;
        if !b.flag(BufFlag::Verified) {
            if !b.with(|bytes| {
                self.csum.bitmap_ok(&bytes[..n], self.group_desc(group).inode_bitmap_csum())
            }) {
                return Err(FsError::corrupt(
                    "ext4 inode bitmap",
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

    /// Does the inode bitmap say that `ino` is in use?
    pub(super) async fn is_taken(&self, ino: u32) -> FsResult<bool> {
        let Some(slot) = self.geo.inode_slot(ino) else { return Ok(false) };
        let b = soon!(self.inode_bitmap(slot.group))?;
        Ok(b.with(|bytes| bytes[slot.index as usize / 8] >> (slot.index % 8) & 1 == 1))
    }

    /// Are all other inodes of `ino`'s table block free, so that its contents do not matter?
    pub(super) async fn itable_block_is_unused(
        &self,
        group: u32,
        table_block: u32,
        ino: u32,
    ) -> FsResult<bool> {
        let b = soon!(self.inode_bitmap(group))?;
        let own = (ino - 1) % self.geo.inodes_per_group;
        Ok(self.table_block_is_free(&b, table_block, Some(own)))
    }

    /// Has a block of the table whose group has this bitmap no inode in use, but perhaps the
    /// group's inode `own`? Waits for nothing.
    pub(super) fn table_block_is_free(
        &self,
        bitmap: &Buffer,
        table_block: u32,
        own: Option<u32>,
    ) -> bool {
        let per = self.bs().bytes() / u32::from(self.geo.inode_bytes);
        let first = table_block * per;
        let is_free = |bytes: &[u8], i: u32| bytes[i as usize / 8] >> (i % 8) & 1 == 0;
        bitmap.with(|b| (first..first + per).all(|i| Some(i) == own || is_free(b, i)))
    }

    /// Takes an inode near directory `parent`, for `name` in it, and makes it in memory; the caller
    /// fills and writes it.
    ///
    /// Errors: `NoSpace`.
    pub(super) async fn take_inode(
        self: &Rc<Self>,
        h: &Handle,
        parent: &Inode,
        name: Option<&[u8]>,
        new: &NewInode,
    ) -> FsResult<Rc<Inode>> {
        let is_dir = new.mode & 0xF000 == 0x4000;
        let near = Parent { ino: parent.ino, flags: parent.disk.borrow().flags.get() };
        let first = self.group_for(near, is_dir, name).ok_or(FsError::NoSpace)?;
        let mut tries = 0..self.geo.groups;
        loop {
            let group = (first + tries.next().ok_or(FsError::NoSpace)?) % self.geo.groups;
            if self.group_desc(group).free_inodes_count() == 0 {
                continue;
            }
            let buf = soon!(self.inode_bitmap(group))?;
            soon!(h.get_write_access(&buf))?;
            let per = self.geo.inodes_per_group;
            let first = if group == 0 { self.geo.first_inode - 1 } else { 0 };
            let mut free = buf.with(|b| first_clear(b, first, per));
            while let Some(i) = free
                && self.table_trims.flies(self.table_block(group, i))
                && self.table_trims.hold(self.table_block(group, i)).await
            {
                free = buf.with(|b| first_clear(b, first, per));
            }
            let Some(index) = free else {
                if self.group_desc(group).free_inodes_count() == 0 {
                    // Another task took the last one while we waited for the bitmap.
                    continue;
                }
                return Err(FsError::corrupt(
                    "ext4 group descriptor",
                    "bg_free_inodes_count",
                    0,
                    u64::from(group),
                    "0, since its bitmap is full",
                ));
            };
            buf.with_mut(|b| b[index as usize / 8] |= 1 << (index % 8));
            buf.set(BufFlag::Verified);
            self.table_trims.reused(self.table_block(group, index));
            self.dirty(h, &buf)?;
            if self.is_without_bitmap(group) {
                Box::pin(self.init_group_blocks(h, group)).await?;
            }
            let _not_zeroing = self.itable_guard(group).await;
            soon!(self.desc_access(h, group))?;
            // Only now: another handle may have changed the bitmap while this one waited.
            let n = self.geo.inode_bitmap_bytes();
            let csum = buf.with(|b| self.csum.bitmap(&b[..n]));
            self.change_accessed_desc(h, group, |d| {
                if self.csum.descriptors() {
                    // The table is in use up to this inode.
                    let unused = if d.has(GroupDesc::INODE_UNINIT) {
                        d.flags = (d.flags.get() & !GroupDesc::INODE_UNINIT).into();
                        per
                    } else {
                        d.itable_unused()
                    };
                    d.set_itable_unused(unused.min(per - index - 1));
                }
                d.set_free_inodes_count(d.free_inodes_count().saturating_sub(1));
                if is_dir {
                    d.set_used_dirs_count(d.used_dirs_count() + 1);
                }
                if self.csum.metadata() {
                    d.set_inode_bitmap_csum(csum);
                }
            })?;
            self.groups.free_inodes.set(self.groups.free_inodes.get().saturating_sub(1));
            self.groups.rough.inodes.add(-1);
            self.groups.rough.dirs.add(i64::from(is_dir));
            let ino = group * per + index + 1;
            let inode = self.new_inode(ino, new);
            // Without it even fdatasync would not make the file findable.
            if crate::site::CREATE_TID.on() {
                inode.datasync_tid.set(h.tid());
            }
            return Ok(inode);
        }
    }

    /// Returns an inode.
    pub(super) async fn return_inode(
        &self,
        h: &Handle,
        inode: &Inode,
        was_dir: bool,
    ) -> FsResult<()> {
        let slot = self.geo.inode_slot(inode.ino).expect("an inode in memory has a number");
        let buf = soon!(self.inode_bitmap(slot.group))?;
        soon!(h.get_write_access(&buf))?;
        // From the bit on nothing waits: whoever sees it clear must find all else of it done.
        soon!(self.desc_access(h, slot.group))?;
        let index = slot.index;
        if buf.with(|b| b[index as usize / 8] >> (index % 8) & 1 == 0) {
            return Err(FsError::corrupt(
                "ext4 inode bitmap",
                "bit",
                buf.block() * u64::from(self.bs().bytes()),
                u64::from(inode.ino),
                "an inode in use",
            ));
        }
        self.fast_freed(h, inode.ino);
        buf.with_mut(|b| b[index as usize / 8] &= !(1 << (index % 8)));
        let n = self.geo.inode_bitmap_bytes();
        let csum = buf.with(|b| self.csum.bitmap(&b[..n]));
        self.dirty(h, &buf)?;
        self.change_accessed_desc(h, slot.group, |d| {
            d.set_free_inodes_count(d.free_inodes_count() + 1);
            if was_dir {
                d.set_used_dirs_count(d.used_dirs_count().saturating_sub(1));
            }
            if self.csum.metadata() {
                d.set_inode_bitmap_csum(csum);
            }
        })?;
        self.groups.free_inodes.set(self.groups.free_inodes.get() + 1);
        self.groups.rough.inodes.add(1);
        if was_dir {
            self.groups.rough.dirs.add(-1);
            self.groups.last_inode_group.borrow_mut().remove(&inode.ino);
        }
        self.table_bit_cleared(h, &buf, (slot.group, index)).await
    }
}

#[cfg(test)]
mod tests {
    use super::first_clear;

    #[test]
    fn first_clear_is_that_of_looking_at_each_bit() {
        let maps: [&[u8]; 5] = [
            &[0; 4],
            &[0xFF; 4],
            &[0xFF, 0xFF, 0xFE, 0xFF],
            &[0x7F, 0, 0xFF, 0x0F],
            &[1, 3, 7, 15],
        ];
        for map in maps {
            for first in 0..32 {
                for end in 0..=32 {
                    let slow = (first..end).find(|i| map[*i as usize / 8] >> (i % 8) & 1 == 0);
                    assert_eq!(first_clear(map, first, end), slow, "{map:?} {first}..{end}");
                }
            }
        }
    }
}
