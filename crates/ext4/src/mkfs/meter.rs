//! How many KiB mke2fs believes to have written: `s_kbytes_written` of a new file system.
//!
//! mke2fs counts what leaves its block cache (8 blocks, least recently used first) before it closes
//! the file system, then adds an estimate for super block and descriptors. What is still in the
//! cache does not count, nor do zeroes that the kernel writes for it. So that our super block
//! equals its byte for byte, its accesses are played here against a cache of the same shape.
//! Nothing else depends on this.
//! Source: traces of `pwrite` of mke2fs 1.47.0, `ext2fs_close2` and the cache of its `unix_io.c`.

/// Blocks in mke2fs's cache.
const CACHE_BLOCKS: usize = 8;
/// Inodes that libext2fs keeps apart from that.
const INODE_CACHE: usize = 4;

/// What was made, as far as the count depends on it. All places in blocks.
pub(super) struct Facts<'a> {
    pub(super) block_bytes: u64,
    pub(super) inode_bytes: u64,
    pub(super) inode_table: u64,
    pub(super) has_metadata_csum: bool,
    pub(super) desc_blocks: u64,
    pub(super) root_block: u64,
    pub(super) lost_found_blocks: &'a [u64],
    /// Reserved descriptor blocks, then the resize inode's double-indirect block.
    pub(super) resize_blocks: &'a [u64],
    /// Pieces of the journal, its extent node if it has one, and its first block.
    pub(super) journal: Option<(usize, Option<u64>, u64)>,
    pub(super) orphan_blocks: &'a [u64],
    /// In the order in which they are written.
    pub(super) bitmaps: &'a [u64],
}

struct Meter {
    bytes: u64,
    block_bytes: u64,
    /// (block, dirty), least recently used first.
    cache: Vec<(u64, bool)>,
    inode_bytes: u64,
    inode_table: u64,
    /// Inodes in the order they were cached.
    inodes: Vec<u32>,
    /// Block of the inode table in the buffer that inodes are cut from.
    table_block: Option<u64>,
}

impl Meter {
    fn touch(&mut self, block: u64, write: bool) {
        let mut dirty = write;
        if let Some(i) = self.cache.iter().position(|(b, _)| *b == block) {
            dirty |= self.cache.remove(i).1;
        } else if self.cache.len() == CACHE_BLOCKS {
            let (_, evicted_dirty) = self.cache.remove(0);
            self.bytes += if evicted_dirty { self.block_bytes } else { 0 };
        }
        self.cache.push((block, dirty));
    }

    fn write(&mut self, block: u64) {
        self.touch(block, true);
    }
    fn read(&mut self, block: u64) {
        self.touch(block, false);
    }

    /// Makes the inode's block the one in the buffer; returns it.
    fn table_block(&mut self, ino: u32) -> u64 {
        let block = self.inode_table + u64::from(ino - 1) * self.inode_bytes / self.block_bytes;
        if self.table_block != Some(block) {
            self.read(block);
            self.table_block = Some(block);
        }
        block
    }

    fn read_inode(&mut self, ino: u32) {
        if !self.inodes.contains(&ino) {
            self.table_block(ino);
            if self.inodes.len() == INODE_CACHE {
                self.inodes.remove(0);
            }
            self.inodes.push(ino);
        }
    }

    fn write_whole_inode(&mut self, ino: u32) {
        let block = self.table_block(ino);
        self.write(block);
    }

    /// Writes the first 128 bytes of an inode, which takes reading the others.
    fn write_inode(&mut self, ino: u32) {
        if self.inode_bytes > 128 {
            self.read_inode(ino);
        }
        self.write_whole_inode(ino);
    }
}

/// The value of `s_kbytes_written`.
pub(super) fn kbytes_written(f: &Facts<'_>) -> u64 {
    let mut m = Meter {
        // Boot block and old super block are wiped with uncached writes of 1 and 3 KiB.
        bytes: 4096,
        block_bytes: f.block_bytes,
        cache: Vec::with_capacity(CACHE_BLOCKS),
        inode_bytes: f.inode_bytes,
        inode_table: f.inode_table,
        inodes: Vec::with_capacity(INODE_CACHE),
        table_block: None,
    };
    if f.has_metadata_csum {
        (1..=10).for_each(|ino| m.write_whole_inode(ino));
    }
    directories(&mut m, f);
    m.read_inode(1);
    m.write_inode(1);
    if !f.resize_blocks.is_empty() {
        m.read_inode(7);
        f.resize_blocks.iter().for_each(|b| m.write(*b));
        m.write_whole_inode(7);
    }
    if let Some((pieces, node, first)) = f.journal {
        m.read_inode(8);
        for piece in 0..pieces {
            match node.filter(|_| piece >= 4) {
                Some(node) => m.write(node),
                None => m.write_inode(8),
            }
            if piece == 4 {
                m.write_inode(8);
            }
        }
        m.write_whole_inode(8);
        node.iter().for_each(|node| m.read(*node));
        m.write(first);
    }
    if !f.orphan_blocks.is_empty() {
        m.read_inode(12);
        m.write_inode(12);
        for block in f.orphan_blocks {
            m.write(*block);
            m.write_inode(12);
        }
        m.write_whole_inode(12);
    }
    f.bitmaps.iter().for_each(|b| m.write(*b));
    1 + m.bytes / 1024 + (f.desc_blocks + 1) / (f.block_bytes / 1024)
}

fn directories(m: &mut Meter, f: &Facts<'_>) {
    m.write_whole_inode(2);
    let sealed = |m: &mut Meter, ino| {
        if f.has_metadata_csum {
            m.read_inode(ino);
        }
    };
    sealed(m, 2);
    m.write(f.root_block);
    m.write_inode(2);
    let (first, more) = f.lost_found_blocks.split_first().expect("lost+found has a block");
    m.read_inode(2);
    m.write_whole_inode(11);
    sealed(m, 11);
    m.write(*first);
    m.write_inode(11);
    m.read_inode(2);
    m.read(f.root_block);
    m.write(f.root_block);
    m.write_inode(2);
    m.read(f.root_block);
    for block in more {
        m.read_inode(11);
        m.write(*block);
        m.write_inode(11);
    }
}
