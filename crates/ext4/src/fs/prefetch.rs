//! What is read before it is asked for: block bitmaps after the mount, inode-table blocks around
//! one that is read.
//!
//! Source: Linux `fs/ext4/mballoc.c` (`ext4_mb_prefetch`), `fs/ext4/super.c`
//! (`ext4_lazyinit_thread`), `fs/ext4/inode.c` (`__ext4_get_inode_loc`).

use std::rc::Rc;

use wp_base::Span;

use super::mount::Ext4;
use crate::disk::GroupDesc;

/// Blocks of an inode table that are read together (`inode_readahead_blks`).
const TABLE_BLOCKS: u64 = 32;
/// The thread begins within this time (`EXT4_DEF_LI_MAX_START_DELAY`), drawn at random.
const START_MOST: Span = Span::secs(5);

impl Ext4 {
    /// Starts the thread that reads the block bitmaps, where the era has it.
    pub(super) fn start_prefetch(self: &Rc<Self>) {
        if !self.opts.era.prefetches_bitmaps() {
            return;
        }
        let delay = Span(self.rt.rng("ext4lazyinit").below(START_MOST.0));
        let (weak, rt) = (Rc::downgrade(self), self.rt.clone());
        self.rt.spawn_daemon("ext4lazyinit", async move {
            rt.sleep(delay).await;
            let groups = weak.upgrade().map_or(0, |fs| fs.geo.groups);
            for group in 0..groups {
                let Some(fs) = weak.upgrade().filter(|fs| fs.is_mounted()) else { return };
                let desc = fs.group_desc(group);
                let unused = desc.has(GroupDesc::BLOCK_UNINIT);
                if (unused && !fs.opts.era.prefetches_unused_groups())
                    || desc.free_blocks_count() == 0
                {
                    continue;
                }
                // What cannot be read now is found out by whoever needs it.
                drop(fs.load_group(group).await);
            }
        });
    }

    /// Reads the blocks around an inode-table block that hold inodes in use, without waiting.
    pub(super) fn read_table_ahead(&self, group: u32, table_block: u32) {
        let desc = self.group_desc(group);
        let per = u64::from(self.bs().bytes()) / u64::from(self.geo.inode_bytes);
        let from = u64::from(table_block) / TABLE_BLOCKS * TABLE_BLOCKS;
        let mut inodes = u64::from(self.geo.inodes_per_group);
        if self.csum.descriptors() {
            inodes = inodes.saturating_sub(u64::from(desc.itable_unused()));
        }
        let last = (from + TABLE_BLOCKS).min(inodes / per);
        let last = last.min(u64::from(self.geo.itable_blocks) - 1);
        for block in from..=last {
            if block != u64::from(table_block) {
                self.bdev.read_ahead(desc.inode_table() + block);
            }
        }
    }
}
