//! The files of a new file system: `/`, `lost+found`, the resize inode, the journal, the orphan
//! file.

use std::collections::BTreeMap;

use wp_vfs::FileType;

use zerocopy::IntoBytes;

use crate::disk::inode::{flag, mode};
use crate::disk::orphan::OrphanTail;
use crate::disk::{
    Checksums, DirEntryTail, Extent, ExtentHeader, ExtentIdx, Geometry, Inode, InodeExtra,
    SuperBlock, compat, dir, hi32, incompat, ino, lo32,
};

use super::options::MkfsError;
use super::plan::Plan;
use super::space::Space;
use super::tables::Touched;

/// Inode of lost+found: the first that is not reserved.
pub(super) const LOST_FOUND: u32 = ino::GOOD_OLD_FIRST;
/// Inode of the orphan file.
pub(super) const ORPHAN_FILE: u32 = LOST_FOUND + 1;
/// Bytes that lost+found gets, so that e2fsck need not allocate in a damaged file system.
const LOST_FOUND_BYTES: u64 = 16 * 1024;

/// Places of what was made.
#[derive(Default)]
pub(super) struct Made {
    pub(super) root_block: u64,
    pub(super) lost_found_blocks: Vec<u64>,
    pub(super) resize_blocks: Vec<u64>,
    /// Pieces of the journal: (first log block, device block, blocks).
    pub(super) journal: Vec<(u32, u64, u32)>,
    pub(super) journal_node: Option<u64>,
    pub(super) orphan_blocks: Vec<u64>,
}

/// A file system in the making.
pub(super) struct Maker<'a> {
    pub(super) g: Geometry,
    pub(super) plan: &'a Plan,
    pub(super) sb: SuperBlock,
    pub(super) sums: Checksums,
    pub(super) now: u32,
    pub(super) space: Space,
    pub(super) touched: Touched,
    /// Contents of blocks that are not all zero.
    pub(super) blocks: BTreeMap<u64, Vec<u8>>,
    /// All bytes of inodes that are in use.
    pub(super) inodes: BTreeMap<u32, Vec<u8>>,
    pub(super) made: Made,
}

impl Maker<'_> {
    /// Makes all files, in mke2fs's order, which decides where they lie.
    pub(super) fn files(&mut self) -> Result<(), MkfsError> {
        if self.sums.metadata() {
            // mke2fs writes reserved inodes as zeroes, but sealed.
            (1..ino::GOOD_OLD_FIRST).for_each(|n| self.put_inode(n, &Inode::zeroed(), None));
        }
        self.directories()?;
        let mut bad_blocks = Inode::zeroed();
        self.stamp(&mut bad_blocks);
        self.put_inode(1, &bad_blocks, None);
        if self.sb.has_compat(compat::RESIZE_INODE) {
            self.resize_inode()?;
        }
        if self.plan.journal_blocks > 0 {
            self.journal()?;
        }
        if self.plan.orphan_blocks > 0 {
            self.orphan_file()?;
        }
        Ok(())
    }

    fn block_bytes(&self) -> usize {
        self.g.block_size.bytes() as usize
    }

    fn stamp(&self, inode: &mut Inode) {
        inode.atime = self.now.into();
        inode.ctime = self.now.into();
        inode.mtime = self.now.into();
    }

    /// First free block from `goal` on, its cluster taken.
    fn alloc(&mut self, goal: u64, what: &'static str) -> Result<u64, MkfsError> {
        let goal = self.g.cluster_floor(goal);
        let block = self.space.first_free(goal).ok_or(MkfsError::NoRoom(what))?;
        self.space.take(block, self.g.cluster_blocks().into());
        self.touched.blocks(&self.g, block, 1);
        Ok(block)
    }

    /// The block after `before` if that lies in the same cluster, else one near `goal`.
    fn alloc_after(
        &mut self,
        before: Option<u64>,
        goal: u64,
        what: &'static str,
    ) -> Result<u64, MkfsError> {
        match before.map(|b| b + 1).filter(|next| self.g.cluster_floor(*next) != *next) {
            Some(next) => Ok(next),
            None => self.alloc(goal, what),
        }
    }

    /// Keeps an inode, sealed. `crtime`: when it was made; `None` for the reserved ones without
    /// extra fields.
    fn put_inode(&mut self, number: u32, inode: &Inode, crtime: Option<u32>) {
        let mut raw = vec![0u8; self.g.inode_bytes.into()];
        inode.store(&mut raw);
        if let Some(crtime) = crtime.filter(|_| raw.len() > Inode::BYTES) {
            let mut extra = InodeExtra::zeroed();
            extra.extra_isize = 32.into();
            extra.crtime = crtime.into();
            extra.store(&mut raw);
        }
        self.sums.seal_inode(number, &mut raw);
        self.inodes.insert(number, raw);
    }

    /// Keeps the inode of a new file of `size` bytes in `clusters` clusters.
    fn put_new(&mut self, number: u32, mut inode: Inode, size: u64, clusters: u64) {
        self.stamp(&mut inode);
        inode.set_size(size);
        let blocks = clusters << self.g.cluster_bits;
        inode.set_blocks_raw(blocks * u64::from(self.g.block_size.sectors()));
        self.put_inode(number, &inode, Some(self.now));
    }

    /// Gives `inode` an extent tree of `pieces` (first logical block, device block, blocks) in its
    /// root.
    fn root_extents(&self, inode: &mut Inode, pieces: &[(u32, u64, u32)]) {
        let mut header = ExtentHeader::empty(inode.block.len(), 0);
        header.entries = u16::try_from(pieces.len()).expect("at most four in a root").into();
        let (at_head, slots) = inode.block.split_at_mut(size_of::<ExtentHeader>());
        at_head.copy_from_slice(header.as_bytes());
        for (slot, (logical, start, blocks)) in
            slots.chunks_exact_mut(size_of::<Extent>()).zip(pieces)
        {
            slot.copy_from_slice(Extent::new(*logical, *start, *blocks, false).as_bytes());
        }
        inode.flags = (inode.flags.get() | flag::EXTENTS).into();
    }

    /// Maps single `blocks`, in order, of a file or directory.
    fn map_blocks(
        &self,
        inode: &mut Inode,
        blocks: &[u64],
        what: &'static str,
    ) -> Result<(), MkfsError> {
        if !self.sb.has_incompat(incompat::EXTENTS) {
            // Directories only, of 12 blocks at most.
            for (n, block) in blocks.iter().enumerate() {
                inode.set_pointer(n, u32::try_from(*block).expect("64bit needs extent"));
            }
            return Ok(());
        }
        let mut pieces: Vec<(u32, u64, u32)> = Vec::new();
        for (n, block) in blocks.iter().enumerate() {
            match pieces.last_mut() {
                Some((_, start, len)) if *start + u64::from(*len) == *block => *len += 1,
                _ => pieces.push((n as u32, *block, 1)),
            }
        }
        if pieces.len() > 4 {
            return Err(MkfsError::NoRoom(what));
        }
        self.root_extents(inode, &pieces);
        Ok(())
    }

    fn directories(&mut self) -> Result<(), MkfsError> {
        let start = self.g.group_start(0);
        let root_block = self.alloc(start, "the root directory")?;
        let mut lost_found_blocks = vec![self.alloc(start, "lost+found")?];
        let wanted = (LOST_FOUND_BYTES / self.g.block_size.bytes() as u64).clamp(2, 12);
        while (lost_found_blocks.len() as u64) < wanted {
            let last = lost_found_blocks[lost_found_blocks.len() - 1];
            lost_found_blocks.push(self.alloc_after(Some(last), last, "lost+found")?);
        }
        let has_types = self.sb.has_incompat(incompat::FILETYPE);
        let dir_type = if has_types { FileType::Dir.entry() } else { 0 };
        let tail = if self.sums.metadata() { DirEntryTail::BYTES } else { 0 };

        let mut root = self.new_dir_block(ino::ROOT, ino::ROOT, dir_type);
        dir::insert(&mut root, dir::space(1), LOST_FOUND, b"lost+found", dir_type);
        self.keep_dir_block(ino::ROOT, root_block, root);
        let first = self.new_dir_block(LOST_FOUND, ino::ROOT, dir_type);
        self.keep_dir_block(LOST_FOUND, lost_found_blocks[0], first);
        for block in &lost_found_blocks[1..] {
            let mut empty = vec![0u8; self.block_bytes()];
            dir::format(&mut empty, tail > 0);
            self.keep_dir_block(LOST_FOUND, *block, empty);
        }

        for (number, permissions, links, blocks) in [
            (ino::ROOT, 0o755, 3u16, vec![root_block]),
            (LOST_FOUND, 0o700, 2, lost_found_blocks.clone()),
        ] {
            let mut inode = Inode::zeroed();
            inode.mode = (mode::DIR | permissions).into();
            inode.links_count = links.into();
            self.map_blocks(&mut inode, &blocks, "lost+found")?;
            let count = blocks.len() as u64;
            let size = count * self.block_bytes() as u64;
            self.put_new(number, inode, size, self.g.clusters_of(count));
        }
        // Tiny groups only: mke2fs takes an inode of a new group for a sign that its blocks are in
        // use too.
        match self.g.inode_slot(LOST_FOUND) {
            Some(slot) if slot.group > 0 => self.touched.group(slot.group),
            _ => {}
        }
        self.made.root_block = root_block;
        self.made.lost_found_blocks = lost_found_blocks;
        Ok(())
    }

    /// A block with the entries "." and "..".
    fn new_dir_block(&self, own: u32, parent: u32, dir_type: u8) -> Vec<u8> {
        let mut block = vec![0u8; self.block_bytes()];
        dir::format(&mut block, self.sums.metadata());
        let at = dir::insert(&mut block, 0, own, b".", dir_type);
        dir::insert(&mut block, at, parent, b"..", dir_type);
        block
    }

    fn keep_dir_block(&mut self, number: u32, at: u64, mut block: Vec<u8>) {
        self.sums.seal_dir_block(self.sums.inode_seed(number, 0), &mut block);
        self.blocks.insert(at, block);
    }

    /// Inode 7 owns the reserved descriptor blocks: a double-indirect block points to those behind
    /// the first descriptors, and each of these lists its counterparts in the groups with copies.
    fn resize_inode(&mut self) -> Result<(), MkfsError> {
        let g = self.g;
        let pointers = self.block_bytes() / 4;
        let reserved = u64::from(g.reserved_gdt_blocks);
        let first = u64::from(g.first_data_block) + 1 + u64::from(g.gdt_blocks);
        let double =
            self.alloc(first + reserved + 1 + u64::from(g.itable_blocks), "the resize inode")?;
        let backups: Vec<u64> = (1..g.groups)
            .filter(|n| g.has_super(*n))
            .map(|n| g.group_start(n) - g.group_start(0))
            .collect();
        let mut doubles = vec![0u8; self.block_bytes()];
        for n in 0..reserved {
            let block = first + n;
            let slot = (g.gdt_blocks as usize + n as usize) % pointers;
            put_pointer(&mut doubles, slot, block);
            let mut copies = vec![0u8; self.block_bytes()];
            for (i, distance) in backups.iter().enumerate() {
                put_pointer(&mut copies, i, block + distance);
            }
            self.blocks.insert(block, copies);
            self.made.resize_blocks.push(block);
        }
        self.made.resize_blocks.push(double);
        self.blocks.insert(double, doubles);
        let mut inode = Inode::zeroed();
        inode.mode = (mode::FILE | 0o600).into();
        inode.links_count = 1.into();
        inode.set_pointer(13, u32::try_from(double).expect("no resize inode beyond 2^32 blocks"));
        let mapped = (pointers * pointers + pointers + 12) as u64;
        let blocks = 1 + reserved * (1 + backups.len() as u64);
        self.put_new(ino::RESIZE, inode, mapped * self.block_bytes() as u64, blocks);
        Ok(())
    }

    /// Group around the middle with the most free blocks, so that no seek from data to journal is
    /// long.
    fn journal_group(&self) -> u32 {
        let g = &self.g;
        let has_short_counts = g.cluster_bits > 0 && !self.sb.has_incompat(incompat::BIT64);
        let free = |n: u32| {
            let start = g.group_start(n);
            let blocks = u64::from(g.blocks_in_group(n));
            let free = blocks - self.space.taken_in(start, start + blocks);
            // With bigalloc it counts blocks here, and short descriptors have 16 bits for them.
            if has_short_counts { free & 0xFFFF } else { free }
        };
        // Half the length counts as a block number; that is how it has always been.
        let half = (g.blocks_count - u64::from(g.first_data_block)) / 2;
        let middle = g.locate_block(half.max(g.first_data_block.into())).map_or(0, |(n, _)| n);
        let flex = g.groups_per_flex;
        let (start, centre) = if flex > 1 && middle > flex {
            let n = (middle - middle % flex..g.groups).find(|n| free(*n) > 0).unwrap_or(0);
            (n, n)
        } else {
            (middle.saturating_sub(1), middle)
        };
        let end = if centre + 1 < g.groups { centre + 1 } else { centre };
        (start..=end).fold(start, |best, n| if free(n) > free(best) { n } else { best })
    }

    /// The journal of a file system without extents: block by block from the start of its inode's
    /// group, each block of pointers just before the first block that it leads to.
    fn pointed_journal(&mut self, inode: &mut Inode) -> Result<u64, MkfsError> {
        const WHAT: &str = "the journal";
        let per = self.block_bytes() / 4;
        let mut goal = self.g.group_start(0);
        let mut nodes: Vec<(u64, Vec<u8>)> = Vec::new();
        // The open block of pointers of each level, and how many of its slots are used.
        let mut open: [Option<(usize, usize)>; 3] = [None; 3];
        let mut pieces: Vec<(u32, u64, u32)> = Vec::new();
        for n in 0..self.plan.journal_blocks {
            let mut slots: Option<usize> = None;
            if n < 12 {
                slots = Some(n as usize);
            } else if open[0].is_none_or(|(_, used)| used == per) {
                // A new block of pointers to data, and above it what it needs.
                let behind = n as usize - 12;
                let level = if behind < per {
                    1
                } else if behind < per + per * per {
                    2
                } else {
                    3
                };
                for l in (0..level).rev() {
                    if l > 0 && open[l].is_some_and(|(_, used)| used < per) {
                        continue;
                    }
                    let at = self.alloc(goal, WHAT)?;
                    goal = at + 1;
                    match open.get(l + 1).copied().flatten().filter(|_| l + 1 < level) {
                        None => inode.set_pointer(12 + l, lo32(at)),
                        Some((parent, used)) => {
                            put_pointer(&mut nodes[parent].1, used, at);
                            open[l + 1] = Some((parent, used + 1));
                        }
                    }
                    open[l] = Some((nodes.len(), 0));
                    nodes.push((at, vec![0u8; self.block_bytes()]));
                }
            }
            let at = self.alloc(goal, WHAT)?;
            goal = at + 1;
            match (slots, open[0]) {
                (Some(slot), _) => inode.set_pointer(slot, lo32(at)),
                (None, Some((node, used))) => {
                    put_pointer(&mut nodes[node].1, used, at);
                    open[0] = Some((node, used + 1));
                }
                (None, None) => unreachable!("a block of pointers was just opened"),
            }
            match pieces.last_mut() {
                Some((_, start, len)) if *start + u64::from(*len) == at => *len += 1,
                _ => pieces.push((n, at, 1)),
            }
        }
        let count = nodes.len() as u64;
        self.blocks.extend(nodes);
        self.made.journal = pieces;
        Ok(count)
    }

    fn journal(&mut self) -> Result<(), MkfsError> {
        if !self.sb.has_incompat(incompat::EXTENTS) {
            let mut inode = Inode::zeroed();
            inode.mode = (mode::FILE | 0o600).into();
            inode.links_count = 1.into();
            let nodes = self.pointed_journal(&mut inode)?;
            self.keep_journal(inode, nodes);
            return Ok(());
        }
        let no_room = MkfsError::NoRoom("the journal");
        let total = self.plan.journal_blocks;
        let mut goal = self.g.group_start(self.journal_group());
        let mut pieces: Vec<(u32, u64, u32)> = Vec::new();
        let mut node = None;
        let mut done = 0u32;
        while done < total {
            let max = (total - done).min(Extent::LEN_MAX.into());
            let (start, blocks) = self.space.first_run(goal, max.into()).ok_or(no_room.clone())?;
            let whole = self.g.clusters_of(blocks) << self.g.cluster_bits;
            self.space.take(start, whole);
            self.touched.blocks(&self.g, start, blocks);
            pieces.push((done, start, lo32(blocks)));
            if pieces.len() == 5 {
                // The root is full: its extents move to a leaf, which is wanted just before the
                // first one.
                node = Some(self.alloc(pieces[0].1 - 1, "the journal's extents")?);
            }
            done += lo32(blocks);
            goal = if start + blocks < self.g.blocks_count { start + blocks } else { 0 };
        }
        let mut inode = Inode::zeroed();
        inode.mode = (mode::FILE | 0o600).into();
        inode.links_count = 1.into();
        self.root_extents(&mut inode, &pieces[..pieces.len().min(4)]);
        if let Some(node) = node {
            self.journal_leaf(&mut inode, node, &pieces)?;
        }
        self.made.journal = pieces;
        self.made.journal_node = node;
        self.keep_journal(inode, u64::from(node.is_some()));
        Ok(())
    }

    /// Keeps the journal's inode, with `nodes` blocks of its map, its copy in the super block and
    /// the log's first block.
    fn keep_journal(&mut self, inode: Inode, nodes: u64) {
        let total = u64::from(self.plan.journal_blocks);
        let size = total * self.block_bytes() as u64;
        let (words, _) = inode.block.as_chunks::<4>();
        for (to, from) in self.sb.jnl_blocks.iter_mut().zip(words) {
            *to = u32::from_le_bytes(*from).into();
        }
        self.sb.jnl_blocks[15] = hi32(size).into();
        self.sb.jnl_blocks[16] = lo32(size).into();
        self.sb.jnl_backup_type = 1;
        self.sb.journal_inum = ino::JOURNAL.into();
        self.put_new(ino::JOURNAL, inode, size, self.g.clusters_of(total) + nodes);
        let log_super = self.log_super_block();
        let first = self.made.journal[0].1;
        self.blocks.insert(first, log_super);
    }

    /// Puts all extents into the leaf `node` and its index into the root. The root's other slots
    /// keep the extents that stood there: mke2fs does not wipe them.
    fn journal_leaf(
        &mut self,
        inode: &mut Inode,
        node: u64,
        pieces: &[(u32, u64, u32)],
    ) -> Result<(), MkfsError> {
        let mut leaf = vec![0u8; self.block_bytes()];
        let mut header = ExtentHeader::empty(leaf.len(), 0);
        if pieces.len() > header.entries_max.get().into() {
            return Err(MkfsError::JournalPieces(pieces.len() as u64));
        }
        header.entries = u16::try_from(pieces.len()).expect("at most entries_max").into();
        let (at_head, slots) = leaf.split_at_mut(size_of::<ExtentHeader>());
        at_head.copy_from_slice(header.as_bytes());
        for (slot, (logical, start, blocks)) in
            slots.chunks_exact_mut(size_of::<Extent>()).zip(pieces)
        {
            slot.copy_from_slice(Extent::new(*logical, *start, *blocks, false).as_bytes());
        }
        self.sums.seal_extent_block(self.sums.inode_seed(ino::JOURNAL, 0), &mut leaf);
        self.blocks.insert(node, leaf);
        let mut header = ExtentHeader::empty(inode.block.len(), 1);
        header.entries = 1.into();
        let (at_head, slots) = inode.block.split_at_mut(size_of::<ExtentHeader>());
        at_head.copy_from_slice(header.as_bytes());
        slots[..size_of::<ExtentIdx>()].copy_from_slice(ExtentIdx::new(0, node).as_bytes());
        Ok(())
    }

    /// The journal's own super block: empty, first transaction 1, no features yet.
    fn log_super_block(&self) -> Vec<u8> {
        let mut block =
            wp_jbd2::disk::control_block(self.block_bytes(), wp_jbd2::disk::SUPER_V2, 0);
        let (sb, _) =
            <wp_jbd2::disk::SuperBlock as zerocopy::FromBytes>::mut_from_prefix(&mut block)
                .expect("1 KiB or more");
        sb.blocksize = self.g.block_size.bytes().into();
        sb.maxlen = self.plan.journal_blocks.into();
        sb.first = 1.into();
        sb.sequence = 1.into();
        sb.uuid = self.sb.uuid;
        sb.nr_users = 1.into();
        sb.num_fc_blks = self.plan.fast_commit_blocks.into();
        block
    }

    fn orphan_file(&mut self) -> Result<(), MkfsError> {
        let seed = self.sums.inode_seed(ORPHAN_FILE, 0);
        let mut blocks = Vec::new();
        for _ in 0..self.plan.orphan_blocks {
            let last = blocks.last().copied();
            let at = self.alloc_after(last, last.unwrap_or(0), "the orphan file")?;
            blocks.push(at);
            let mut block = vec![0u8; self.block_bytes()];
            let checksum =
                if self.sums.metadata() { self.sums.orphan_block(seed, at, &block) } else { 0 };
            OrphanTail { magic: OrphanTail::MAGIC.into(), checksum: checksum.into() }
                .store(&mut block);
            self.blocks.insert(at, block);
        }
        let mut inode = Inode::zeroed();
        inode.mode = (mode::FILE | 0o600).into();
        inode.links_count = 1.into();
        self.map_blocks(&mut inode, &blocks, "the orphan file")?;
        let count = blocks.len() as u64;
        let size = count * self.block_bytes() as u64;
        self.put_new(ORPHAN_FILE, inode, size, self.g.clusters_of(count));
        self.sb.orphan_file_inum = ORPHAN_FILE.into();
        self.made.orphan_blocks = blocks;
        Ok(())
    }
}

fn put_pointer(block: &mut [u8], slot: usize, to: u64) {
    let to = u32::try_from(to).expect("no resize inode beyond 2^32 blocks");
    block[slot * 4..slot * 4 + 4].copy_from_slice(&to.to_le_bytes());
}
