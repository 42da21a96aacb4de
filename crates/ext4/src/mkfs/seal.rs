//! The last step: bitmaps, descriptors, inode tables and the copies of the super block.

use zerocopy::IntoBytes;

use crate::disk::{Checksums, GroupDesc, SuperBlock, ino, lo32};

use super::files::{LOST_FOUND, Maker, ORPHAN_FILE};
use super::meter::{Facts, kbytes_written};
use super::options::InodeTables;
use super::space::set_bits;
use super::tables::Places;

impl Maker<'_> {
    /// Writes everything that counts what the others made. `places` of all groups.
    pub(super) fn seal(&mut self, places: &[Places], tables: InodeTables, overhead: u64) {
        let used_inodes =
            if self.inodes.contains_key(&ORPHAN_FILE) { ORPHAN_FILE } else { LOST_FOUND };
        self.inode_tables(places);
        let mut bitmaps = Vec::new();
        let groups: Vec<GroupDesc> = (0..self.g.groups)
            .map(|n| self.group(n, &places[n as usize], used_inodes, tables, &mut bitmaps))
            .collect();
        let free: u64 = groups.iter().map(|d| u64::from(d.free_blocks_count())).sum();
        self.sb.set_free_blocks_count(free << self.g.cluster_bits);
        self.sb.free_inodes_count = (self.g.inodes_count - used_inodes).into();
        self.sb.overhead_clusters = lo32(overhead).into();
        self.sb.kbytes_written = self.kbytes(places, &bitmaps).into();
        self.descriptors(&groups);
        self.super_blocks();
    }

    fn kbytes(&self, places: &[Places], bitmaps: &[u64]) -> u64 {
        let made = &self.made;
        kbytes_written(&Facts {
            block_bytes: self.g.block_size.bytes().into(),
            inode_bytes: self.g.inode_bytes.into(),
            inode_table: places[0].inode_table,
            has_metadata_csum: self.sums.metadata(),
            desc_blocks: self.g.gdt_blocks.into(),
            root_block: made.root_block,
            lost_found_blocks: &made.lost_found_blocks,
            resize_blocks: &made.resize_blocks,
            journal: made
                .journal
                .first()
                .map(|(_, first, _)| (made.journal.len(), made.journal_node, *first)),
            orphan_blocks: &made.orphan_blocks,
            bitmaps,
        })
    }

    fn inode_tables(&mut self, places: &[Places]) {
        let block_bytes = self.g.block_size.bytes() as usize;
        for (number, raw) in &self.inodes {
            let slot = self.g.inode_slot(*number).expect("the first inodes exist");
            let at = places[slot.group as usize].inode_table + u64::from(slot.table_block);
            let block = self.blocks.entry(at).or_insert_with(|| vec![0; block_bytes]);
            block[slot.offset as usize..][..raw.len()].copy_from_slice(raw);
        }
    }

    /// Descriptor of group `n`; its bitmaps are written where they must be.
    fn group(
        &mut self,
        n: u32,
        at: &Places,
        used_inodes: u32,
        tables: InodeTables,
        bitmaps: &mut Vec<u64>,
    ) -> GroupDesc {
        let g = self.g;
        let (start, blocks) = (g.group_start(n), u64::from(g.blocks_in_group(n)));
        let clusters = u64::from(g.clusters_in_group(n));
        let first_inode = u64::from(n) * u64::from(g.inodes_per_group);
        let used =
            u64::from(used_inodes).saturating_sub(first_inode).min(g.inodes_per_group.into());
        let mut desc = GroupDesc::zeroed();
        desc.set_block_bitmap(at.block_bitmap);
        desc.set_inode_bitmap(at.inode_bitmap);
        desc.set_inode_table(at.inode_table);
        let taken = self.space.taken_in(start, start + blocks) >> g.cluster_bits;
        desc.set_free_blocks_count(lo32(clusters - taken));
        desc.set_free_inodes_count(g.inodes_per_group - lo32(used));
        desc.set_used_dirs_count(
            [ino::ROOT, LOST_FOUND].iter().filter(|i| self.is_in(n, **i)).count() as u32,
        );
        let mut flags = if tables == InodeTables::Zeroed { GroupDesc::INODE_ZEROED } else { 0 };
        if self.sums.descriptors() {
            desc.set_itable_unused(g.inodes_per_group - lo32(used));
            // The last group's bitmap always exists: it pads the blocks that do not.
            if n + 1 < g.groups && !self.touched.is(n) {
                flags |= GroupDesc::BLOCK_UNINIT;
            }
            if used == 0 {
                flags |= GroupDesc::INODE_UNINIT;
            }
        }
        desc.flags = flags.into();
        if flags & GroupDesc::BLOCK_UNINIT == 0 {
            let mut bits = vec![0xFF; g.block_size.bytes() as usize];
            let own = &mut bits[..g.block_bitmap_bytes()];
            self.space.bits(start, g.cluster_bits, own);
            set_bits(own, clusters, own.len() as u64 * 8);
            if self.sums.metadata() {
                desc.set_block_bitmap_csum(self.sums.bitmap(&bits[..g.block_bitmap_bytes()]));
            }
            self.blocks.insert(at.block_bitmap, bits);
            bitmaps.push(at.block_bitmap);
        }
        if flags & GroupDesc::INODE_UNINIT == 0 {
            let mut bits = vec![0xFF; g.block_size.bytes() as usize];
            let own = &mut bits[..g.inode_bitmap_bytes()];
            own.fill(0);
            set_bits(own, 0, used);
            if self.sums.metadata() {
                desc.set_inode_bitmap_csum(self.sums.bitmap(&bits[..g.inode_bitmap_bytes()]));
            }
            self.blocks.insert(at.inode_bitmap, bits);
            bitmaps.push(at.inode_bitmap);
        }
        self.sums.seal_group_desc(n, &mut desc);
        desc
    }

    fn is_in(&self, group: u32, number: u32) -> bool {
        self.g.inode_slot(number).is_some_and(|slot| slot.group == group)
    }

    /// All descriptors, behind every copy of the super block.
    fn descriptors(&mut self, groups: &[GroupDesc]) {
        let g = self.g;
        let block_bytes = g.block_size.bytes() as usize;
        let desc_bytes = usize::from(g.desc_bytes);
        let table: Vec<Vec<u8>> = groups
            .chunks(block_bytes / desc_bytes)
            .map(|part| {
                let mut block = vec![0u8; block_bytes];
                for (room, desc) in block.chunks_exact_mut(desc_bytes).zip(part) {
                    desc.store(room);
                }
                block
            })
            .collect();
        for n in (0..g.groups).filter(|n| g.has_super(*n)) {
            for (i, block) in table.iter().enumerate() {
                self.blocks.insert(g.group_start(n) + 1 + i as u64, block.clone());
            }
        }
    }

    /// The first super block, and the copies: these do not claim to be cleanly unmounted.
    fn super_blocks(&mut self) {
        let g = self.g;
        let block_bytes = g.block_size.bytes() as usize;
        for n in (0..g.groups).filter(|n| g.has_super(*n)) {
            let mut sb = self.sb;
            let at = if n == 0 {
                (SuperBlock::AT % u64::from(g.block_size.bytes())) as usize
            } else {
                sb.state = 0.into();
                sb.block_group_nr = crate::disk::lo16(n).into();
                0
            };
            if self.sums.metadata() {
                sb.checksum = Checksums::super_block(&sb).into();
            }
            if n == 0 {
                self.sb = sb;
            }
            let mut block = vec![0u8; block_bytes];
            block[at..at + SuperBlock::BYTES].copy_from_slice(sb.as_bytes());
            self.blocks.insert(g.group_start(n), block);
        }
    }
}
