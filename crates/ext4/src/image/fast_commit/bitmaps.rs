//! Bitmaps during a replay, where a bit may already be as it shall be.

use wp_base::{FsError, FsResult};

use crate::disk::GroupDesc;

use super::super::editor::Editor;

/// Sets or clears the bits of `count` things from `first`; how many were otherwise before.
fn set(bits: &mut [u8], first: u32, count: u32, used: bool) -> u32 {
    let mut changed = 0;
    for n in first..first.saturating_add(count) {
        let mask = 1u8 << (n % 8);
        let Some(byte) = bits.get_mut((n / 8) as usize) else { break };
        if (*byte & mask != 0) != used {
            *byte ^= mask;
            changed += 1;
        }
    }
    changed
}

impl Editor<'_> {
    /// The bitmap of a group's blocks, made now if it was never written.
    ///
    /// Source: `ext4_read_block_bitmap`, `ext4_init_block_bitmap`.
    fn bits_or_new(&mut self, group: u32) -> FsResult<&mut Vec<u8>> {
        if self.bits(group)?.is_none() {
            let image = self.image();
            let g = *image.geometry();
            let desc = *image.groups().get(group as usize).ok_or(FsError::Io)?;
            let mut bits = vec![0u8; image.block_bytes()];
            let (start, here) = (g.group_start(group), g.blocks_in_group(group));
            let own = [
                (start, g.base_meta_blocks(group)),
                (desc.block_bitmap(), 1),
                (desc.inode_bitmap(), 1),
                (desc.inode_table(), g.itable_blocks),
            ];
            for (first, count) in own {
                for block in first..first.saturating_add(count.into()) {
                    let n = block.checked_sub(start).and_then(|n| u32::try_from(n).ok());
                    if let Some(n) = n.filter(|n| *n < here) {
                        set(&mut bits, n, 1, true);
                    }
                }
            }
            let used: u32 = bits.iter().map(|b| b.count_ones()).sum();
            let all = u32::try_from(bits.len() * 8).unwrap_or(u32::MAX);
            set(&mut bits, here, all.saturating_sub(here), true);
            self.set_bits(group, bits);
            self.change_group(group, |desc| {
                desc.flags = (desc.flags.get() & !GroupDesc::BLOCK_UNINIT).into();
                desc.set_free_blocks_count(here.saturating_sub(used));
            });
        }
        self.bits(group)?.ok_or(FsError::Io)
    }

    /// Marks blocks as in use or free. What lies beyond the device, or in a group whose bitmap is
    /// damaged, is left, as a kernel does. Source: `ext4_mb_mark_bb`.
    pub(super) fn mark_blocks(&mut self, start: u64, blocks: u64, used: bool) {
        let end = start.saturating_add(blocks);
        let mut at = start;
        while at < end {
            let g = self.image().geometry();
            let Some((group, first)) = g.locate_block(at) else { return };
            let room = g.blocks_per_group.saturating_sub(first);
            let n = u32::try_from(end - at).unwrap_or(u32::MAX).min(room).max(1);
            if !g.holds(at, n.into()) {
                return;
            }
            let Ok(bits) = self.bits_or_new(group) else { return };
            let changed = set(bits, first, n, used);
            if changed > 0 {
                self.change_group(group, |desc| {
                    let free = desc.free_blocks_count();
                    desc.set_free_blocks_count(match used {
                        true => free.saturating_sub(changed),
                        false => free.saturating_add(changed),
                    });
                });
            }
            at += u64::from(n);
        }
    }

    /// Takes the first free block from `goal` on, around all groups; `taken` says where blocks end
    /// that may not be had. Errors: `NoSpace`. Source: `ext4_mb_new_blocks_simple`.
    pub(super) fn take_free_block(
        &mut self,
        goal: u64,
        taken: impl Fn(u64) -> Option<u64>,
    ) -> FsResult<u64> {
        let g = *self.image().geometry();
        let (mut group, mut from) = g.locate_block(goal).unwrap_or((0, 0));
        for _ in 0..g.groups {
            let (start, here) = (g.group_start(group), g.blocks_in_group(group));
            let bits = self.bits_or_new(group)?;
            let mut n = from;
            while n < here {
                let byte = bits.get((n / 8) as usize).copied().unwrap_or(u8::MAX);
                if byte == u8::MAX {
                    n = (n / 8 + 1) * 8;
                    continue;
                }
                let block = start + u64::from(n);
                match taken(block) {
                    _ if byte >> (n % 8) & 1 == 1 => n += 1,
                    Some(end) => n = u32::try_from(end - start).unwrap_or(u32::MAX),
                    None => {
                        self.mark_blocks(block, 1, true);
                        return Ok(block);
                    }
                }
            }
            (group, from) = ((group + 1) % g.groups, 0);
        }
        Err(FsError::NoSpace)
    }

    /// Marks an inode's number as in use. The number of directories is left, as a kernel leaves it.
    ///
    /// Errors: `Corrupt` for a number that no file has, and for a damaged bitmap.
    /// Source: `ext4_mark_inode_used`.
    pub(super) fn mark_inode_used(&mut self, number: u32) -> FsResult<()> {
        let image = self.image();
        let g = *image.geometry();
        let slot = g.inode_slot(number).filter(|_| number >= g.first_inode);
        let Some(slot) = slot else {
            let expected = format!("{} to {}", g.first_inode, g.inodes_count);
            return Err(FsError::corrupt("ext4 inode", "number", 0, number.into(), expected));
        };
        let mut bits = match image.inode_bitmap(slot.group)? {
            Some(bits) => bits,
            None => {
                let mut bits = vec![0; image.block_bytes()];
                let all = u32::try_from(bits.len() * 8).unwrap_or(u32::MAX);
                set(&mut bits, g.inodes_per_group, all.saturating_sub(g.inodes_per_group), true);
                bits
            }
        };
        if set(&mut bits, slot.index, 1, true) == 0 {
            return Ok(());
        }
        let sums = *image.checksums();
        let own = bits.get(..g.inode_bitmap_bytes()).unwrap_or(&bits);
        let csum = sums.bitmap(own);
        let desc = *image.groups().get(slot.group as usize).ok_or(FsError::Io)?;
        self.write_block(desc.inode_bitmap(), &bits)?;
        if sums.descriptors() && desc.has(GroupDesc::BLOCK_UNINIT) {
            self.bits_or_new(slot.group)?;
        }
        self.change_group(slot.group, |desc| {
            if sums.descriptors() {
                let mut used = g.inodes_per_group.saturating_sub(desc.itable_unused());
                if desc.has(GroupDesc::INODE_UNINIT) {
                    desc.flags = (desc.flags.get() & !GroupDesc::INODE_UNINIT).into();
                    used = 0;
                }
                if slot.index >= used {
                    desc.set_itable_unused(g.inodes_per_group - slot.index - 1);
                }
            }
            desc.set_free_inodes_count(desc.free_inodes_count().saturating_sub(1));
            if sums.metadata() {
                desc.set_inode_bitmap_csum(csum);
            }
        });
        Ok(())
    }
}
