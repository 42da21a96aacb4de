//! Hash trees of directories during a replay.
//!
//! Written apart from the mounted file system's, on blocks instead of buffers: a mistake in one is
//! seen by the other.
//! Source: `fs/ext4/namei.c` (`dx_probe`, `ext4_dx_add_entry`, `do_split`, `make_indexed_dir`).

use wp_base::{FsError, FsResult};
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::dir::{self, DirEntryTail, DirIter};
use crate::disk::hash::DirHash;
use crate::disk::htree::{self, BLOCK_MASK, DxEntry, DxRootInfo, NODE_ENTRIES_AT, ROOT_ENTRIES_AT};
use crate::disk::inode::flag;

use super::Replay;
use super::names::{Dest, DirBlock};

/// Levels of inner blocks, the root included (`EXT4_HTREE_LEVEL_COMPAT`).
const LEVELS_MAX: usize = 2;

/// An inner block and its entries.
struct Node {
    held: DirBlock,
    entries_at: usize,
    entries: Vec<DxEntry>,
    pos: usize,
}

impl Node {
    fn child(&self) -> u32 {
        self.entries.get(self.pos).map_or(0, |e| e.block.get() & BLOCK_MASK)
    }
}

/// An entry of a leaf that is split.
struct Entry<'a> {
    hash: u32,
    rec_len: usize,
    inode: u32,
    file_type: u8,
    name: &'a [u8],
}

fn entry(hash: u32, block: u32) -> DxEntry {
    DxEntry { hash: hash.into(), block: block.into() }
}

fn root_info(block: &[u8]) -> Option<DxRootInfo> {
    DxRootInfo::read_from_prefix(block.get(htree::ROOT_INFO_AT..)?).ok().map(|(info, _)| info)
}

fn set_root_info(block: &mut [u8], info: DxRootInfo) {
    if let Some(to) = block.get_mut(htree::ROOT_INFO_AT..) {
        let _ = info.write_to_prefix(to);
    }
}

/// Entries one after another; the last one takes what is left.
fn pack(block: &mut [u8], entries: &[&Entry<'_>], has_tail: bool) {
    dir::format(block, has_tail);
    let end = block.len() - if has_tail { DirEntryTail::BYTES } else { 0 };
    let mut at = 0;
    for (i, e) in entries.iter().enumerate() {
        let len = if i + 1 == entries.len() { end - at } else { dir::space(e.name.len()) };
        dir::put(block, at, len, e.inode, e.name, e.file_type);
        at += len;
    }
}

/// How many of the entries, in the order of their hashes, stay when a leaf is split.
fn kept(sizes: &[usize], bytes: usize) -> usize {
    let mut moved = 0;
    for (i, size) in sizes.iter().enumerate().rev() {
        if moved + size / 2 > bytes / 2 {
            return i + 1;
        }
        moved += size;
    }
    sizes.len() / 2
}

impl Replay<'_> {
    fn wrong_index(&self, block: u64, field: &'static str, found: u64, right: &str) -> FsError {
        let at = self.editor.image().byte_of(block);
        FsError::corrupt("ext4 directory index", field, at, found, right)
    }

    fn has_csum(&self) -> bool {
        self.editor.image().checksums().metadata()
    }

    fn node(&mut self, dir: u32, n: u32, entries_at: usize) -> FsResult<Node> {
        let blocks = self.dir_blocks(dir)?;
        let held = self.dir_block(dir, n)?;
        if htree::entries_at(&held.bytes) != Some(entries_at) {
            let right = "an inner block of the hash tree";
            return Err(self.wrong_index(held.block, "rec_len", n.into(), right));
        }
        let at = self.editor.image().byte_of(held.block);
        let entries = htree::load_entries(&held.bytes, at, entries_at, self.has_csum())?;
        let inside = |e: &DxEntry| (1..blocks).contains(&(e.block.get() & BLOCK_MASK));
        if let Some(e) = entries.iter().find(|e| !inside(e)) {
            let (found, right) = (e.block.get().into(), "a later block of the directory");
            return Err(self.wrong_index(held.block, "block", found, right));
        }
        Ok(Node { held, entries_at, entries, pos: 0 })
    }

    fn hash_rule(&self, block: u64, version: u8) -> FsResult<DirHash> {
        DirHash::of(self.editor.image().super_block(), version)
            .ok_or_else(|| self.wrong_index(block, "hash_version", version.into(), "0, 1 or 2"))
    }

    /// The inner blocks on the way to `name`, its hash, and the rule of hashing.
    fn probe(&mut self, dir: u32, name: &[u8]) -> FsResult<(Vec<Node>, u32, DirHash)> {
        let root = self.node(dir, 0, ROOT_ENTRIES_AT)?;
        let block = root.held.block;
        let info = root_info(&root.held.bytes).ok_or(FsError::Io)?;
        let rule = self.hash_rule(block, info.hash_version)?;
        let levels = usize::from(info.indirect_levels) + 1;
        if levels > LEVELS_MAX {
            let found = info.indirect_levels.into();
            return Err(self.wrong_index(block, "indirect_levels", found, "0 or 1"));
        }
        let hash = rule.hash(name).major;
        let mut path = vec![root];
        loop {
            let full = path.len() == levels;
            let Some(node) = path.last_mut() else { return Err(FsError::Io) };
            // The first entry's hash reads as 0.
            let after = node.entries.partition_point(|e| e.hash.get() <= hash);
            node.pos = after.saturating_sub(1);
            if full {
                return Ok((path, hash, rule));
            }
            let child = node.child();
            path.push(self.node(dir, child, NODE_ENTRIES_AT)?);
        }
    }

    /// Goes to the next leaf if names with this hash go on there.
    fn next_leaf(&mut self, dir: u32, path: &mut [Node], hash: u32) -> FsResult<bool> {
        let level = path.iter().rposition(|n| n.pos + 1 < n.entries.len());
        let Some(level) = level else { return Ok(false) };
        let Some(node) = path.get_mut(level) else { return Ok(false) };
        node.pos += 1;
        if node.entries.get(node.pos).map_or(0, |e| e.hash.get()) & !1 != hash {
            return Ok(false);
        }
        let mut child = node.child();
        for below in path.iter_mut().skip(level + 1) {
            *below = self.node(dir, child, NODE_ENTRIES_AT)?;
            child = below.child();
        }
        Ok(true)
    }

    /// Finds a name in an indexed directory.
    pub(super) fn find_indexed(
        &mut self,
        dir: u32,
        name: &[u8],
    ) -> FsResult<Option<(DirBlock, usize, u32)>> {
        let (mut path, hash, _) = self.probe(dir, name)?;
        loop {
            let child = path.last().map_or(0, Node::child);
            let leaf = self.dir_block(dir, child)?;
            if let Some((offset, ino)) = dir::find(&leaf.bytes, name) {
                return Ok(Some((leaf, offset, ino)));
            }
            if !self.next_leaf(dir, &mut path, hash)? {
                return Ok(None);
            }
        }
    }

    /// Adds a name to an indexed directory. `false`: it was there.
    pub(super) fn add_indexed(
        &mut self,
        dir: u32,
        name: &[u8],
        ino: u32,
        kind: u8,
    ) -> FsResult<bool> {
        // A leaf is split at most once for a name, the index once or twice.
        for _ in 0..8 {
            let (mut path, _, rule) = self.probe(dir, name)?;
            let Some(node) = path.last() else { return Err(FsError::Io) };
            let mut leaf = self.dir_block(dir, node.child())?;
            match self.dest(&leaf, name)? {
                Dest::Exists => return Ok(false),
                Dest::Room(at) => {
                    self.insert(dir, &mut leaf, at, name, ino, kind)?;
                    return Ok(true);
                }
                Dest::Full if self.is_full(node) => self.split_index(dir, &mut path)?,
                Dest::Full => {
                    let Some(node) = path.last_mut() else { return Err(FsError::Io) };
                    self.split_leaf(dir, node, leaf, &rule)?;
                }
            }
        }
        Err(FsError::NoSpace)
    }

    fn is_full(&self, node: &Node) -> bool {
        let bytes = self.editor.image().block_bytes();
        node.entries.len() >= usize::from(htree::limit(bytes, node.entries_at, self.has_csum()))
    }

    fn store_node(&mut self, dir: u32, node: &mut Node) -> FsResult<()> {
        let csum = self.has_csum();
        htree::store_entries(&mut node.held.bytes, node.entries_at, csum, &node.entries);
        self.store_dir_block(dir, &mut node.held)
    }

    /// Moves the names with the higher hashes of a leaf to a new one. `node` has room.
    fn split_leaf(
        &mut self,
        dir: u32,
        node: &mut Node,
        mut leaf: DirBlock,
        rule: &DirHash,
    ) -> FsResult<()> {
        let (n, mut new) = self.append_dir_block(dir)?;
        let image = self.editor.image();
        let (at, inodes) = (image.byte_of(leaf.block), image.geometry().inodes_count);
        let (bytes, csum) = (image.block_bytes(), self.has_csum());
        let old = leaf.bytes.clone();
        let mut entries = Vec::new();
        for e in DirIter::new(&old, at, inodes) {
            let e = e?;
            if e.inode != 0 && !e.name.is_empty() {
                entries.push(Entry {
                    hash: rule.hash(e.name).major,
                    rec_len: e.rec_len,
                    inode: e.inode,
                    file_type: e.file_type,
                    name: e.name,
                });
            }
        }
        if entries.len() < 2 {
            let found = entries.len() as u64;
            return Err(self.wrong_index(leaf.block, "rec_len", found, "two names or more"));
        }
        let mut order: Vec<(usize, &Entry<'_>)> = entries.iter().enumerate().collect();
        order.sort_by_key(|(_, e)| e.hash);
        let sizes: Vec<usize> = order.iter().map(|(_, e)| e.rec_len).collect();
        let moving: Vec<&Entry<'_>> =
            order.split_off(kept(&sizes, bytes)).into_iter().map(|(_, e)| e).collect();
        let border = moving.first().map_or(0, |e| e.hash);
        let goes_on = order.last().is_some_and(|(_, e)| e.hash == border);
        // Those that stay keep their order.
        order.sort_by_key(|(place, _)| *place);
        let staying: Vec<&Entry<'_>> = order.into_iter().map(|(_, e)| e).collect();
        pack(&mut new.bytes, &moving, csum);
        pack(&mut leaf.bytes, &staying, csum);
        node.entries.insert(node.pos + 1, entry(border + u32::from(goes_on), n));
        self.store_dir_block(dir, &mut leaf)?;
        self.store_dir_block(dir, &mut new)?;
        self.store_node(dir, node)
    }

    /// Makes room in the index: splits the lowest node whose parent has room, or adds a level.
    fn split_index(&mut self, dir: u32, path: &mut [Node]) -> FsResult<()> {
        let mut level = path.len().saturating_sub(1);
        while level > 0 && path.get(level - 1).is_some_and(|n| self.is_full(n)) {
            level -= 1;
        }
        if level == 0 && path.len() == LEVELS_MAX {
            return Err(FsError::NoSpace);
        }
        let (n, mut held) = self.append_dir_block(dir)?;
        held.bytes.fill(0);
        let bytes = held.bytes.len();
        dir::put(&mut held.bytes, 0, bytes, 0, &[], 0);
        let mut new = Node { held, entries_at: NODE_ENTRIES_AT, entries: Vec::new(), pos: 0 };
        let (above, below) = path.split_at_mut(level);
        let Some(node) = below.first_mut() else { return Err(FsError::Io) };
        match above.last_mut() {
            None => {
                new.entries = std::mem::replace(&mut node.entries, vec![entry(0, n)]);
                let mut info = root_info(&node.held.bytes).ok_or(FsError::Io)?;
                info.indirect_levels += 1;
                set_root_info(&mut node.held.bytes, info);
            }
            Some(parent) => {
                new.entries = node.entries.split_off(node.entries.len() / 2);
                let border = new.entries.first().map_or(0, |e| e.hash.get());
                parent.entries.insert(parent.pos + 1, entry(border, n));
                self.store_node(dir, parent)?;
            }
        }
        self.store_node(dir, &mut new)?;
        self.store_node(dir, node)
    }

    /// A directory of one full block gets a tree: its names go to a block of their own.
    pub(super) fn make_indexed(&mut self, dir: u32, mut first: DirBlock) -> FsResult<()> {
        let version = self.editor.image().super_block().def_hash_version;
        self.hash_rule(first.block, version)?;
        let image = self.editor.image();
        let (at, inodes) = (image.byte_of(first.block), image.geometry().inodes_count);
        let (bytes, end) = (image.block_bytes(), self.dir_end());
        let old = first.bytes.clone();
        let mut entries = DirIter::new(&old, at, inodes);
        let dots = (entries.next().transpose()?, entries.next().transpose()?);
        let (Some(dot), Some(up)) = dots else {
            return Err(self.wrong_index(first.block, "rec_len", 0, "'.' and '..'"));
        };
        if dot.name != b"." || up.name != b".." {
            return Err(self.wrong_index(first.block, "name", 0, "'.' and '..'"));
        }
        let from = up.offset + up.rec_len;
        let mut last = None;
        for e in entries {
            let e = e?;
            last = if e.offset < end { Some(e) } else { last };
        }
        let (Some(last), Some(names)) = (last, old.get(from..end)) else {
            return Err(self.wrong_index(first.block, "rec_len", 0, "names after '..'"));
        };
        let (n, mut leaf) = self.append_dir_block(dir)?;
        let flags = self.held(dir)?.record.inode.flags.get() | flag::INDEX;
        self.held(dir)?.record.inode.flags = flags.into();
        leaf.bytes.iter_mut().zip(names).for_each(|(to, from)| *to = *from);
        let to = last.offset - from;
        dir::put(&mut leaf.bytes, to, end - to, last.inode, last.name, last.file_type);
        first.bytes.fill(0);
        self.put_dots(&mut first.bytes, dir, up.inode, bytes);
        let info = DxRootInfo {
            reserved_zero: 0.into(),
            hash_version: version,
            info_length: size_of::<DxRootInfo>() as u8,
            indirect_levels: 0,
            unused_flags: 0,
        };
        set_root_info(&mut first.bytes, info);
        let entries = vec![entry(0, n)];
        let mut root = Node { held: first, entries_at: ROOT_ENTRIES_AT, entries, pos: 0 };
        self.store_dir_block(dir, &mut leaf)?;
        self.store_node(dir, &mut root)
    }
}
