//! Hash trees of directories: lookup and insertion.
//!
//! Picture:    root (block 0: ".", "..", index) -> at most one level of index nodes -> leaves,
//!             which are directory blocks with names in no order. An index entry holds the lowest
//!             hash of its child; an odd one says that names with that hash stand in the child
//!             before, too.
//! Invariants: 1. a tree changes only under the directory's `lock`, in a handle, and between two
//!                awaits: who looks without the lock sees a whole tree.
//!             2. every change of shape makes the directory longer, which is how such a reader
//!                learns that it must look again.
//!             3. nothing shrinks: emptied leaves stay until the directory goes.
//! Left out:   the third level (large_dir), SipHash (encryption with casefolding).
//! Source:     Linux Documentation/filesystems/ext4/directory.rst; where blocks split and in which
//!             order they are made: `fs/ext4/namei.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::Buffer;
use wp_jbd2::Handle;
use wp_rt::{MaybeReady, soon};

use super::dir::Place;
use super::dir_names::Index;
use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::compat;
use crate::disk::dir::{self, DirEntryTail, DirIter};
use crate::disk::hash::{DirHash, NameHash};
use crate::disk::htree::{self, BLOCK_MASK, DxEntry, DxRootInfo, NODE_ENTRIES_AT, ROOT_ENTRIES_AT};
use crate::disk::inode::flag;
use zerocopy::{FromBytes, IntoBytes};

/// Levels of inner blocks, the root included, without large_dir (`EXT4_HTREE_LEVEL_COMPAT`).
const LEVELS_MAX: usize = 2;

/// An inner block, held with its entries.
struct Node {
    buf: Rc<Buffer>,
    entries_at: usize,
    entries: Rc<Vec<DxEntry>>,
    /// Which entry the path takes.
    pos: usize,
}

impl Node {
    fn child(&self) -> u64 {
        u64::from(self.entries[self.pos].block.get() & BLOCK_MASK)
    }
}

/// What a name hashes to in its directory, and by which rule.
struct Wanted {
    rule: DirHash,
    hash: NameHash,
}

/// The way from the root to the leaf where a name belongs.
struct Path {
    nodes: Vec<Node>,
    wanted: Wanted,
}

impl Path {
    /// Goes on to `node`, and to the entry of it that the name belongs below.
    fn push(&mut self, mut node: Node) {
        let hash = self.wanted.hash.major;
        // The first entry's hash reads as 0, so there is always one that is not greater.
        node.pos = node.entries.partition_point(|e| e.hash.get() <= hash) - 1;
        self.nodes.push(node);
    }
}

/// An entry of a leaf that is being split.
struct Moving<'a> {
    hash: u32,
    rec_len: usize,
    inode: u32,
    file_type: u8,
    name: &'a [u8],
}

fn entry(hash: u32, block: u64) -> DxEntry {
    let block = u32::try_from(block).expect("a directory has fewer than 2^28 blocks");
    DxEntry { hash: hash.into(), block: block.into() }
}

/// The root's own fields.
fn root_info(block: &[u8]) -> Option<DxRootInfo> {
    DxRootInfo::read_from_prefix(block.get(htree::ROOT_INFO_AT..)?).ok().map(|(info, _)| info)
}

fn set_root_info(block: &mut [u8], info: DxRootInfo) {
    info.write_to_prefix(&mut block[htree::ROOT_INFO_AT..]).expect("a block holds its root");
}

/// Entries one after another without gaps; the last one takes what is left.
fn pack(block: &mut [u8], entries: &[&Moving<'_>], has_tail: bool) {
    dir::format(block, has_tail);
    let end = block.len() - if has_tail { DirEntryTail::BYTES } else { 0 };
    let mut at = 0;
    for (i, e) in entries.iter().enumerate() {
        let len = if i + 1 == entries.len() { end - at } else { dir::space(e.name.len()) };
        dir::put(block, at, len, e.inode, e.name, e.file_type);
        at += len;
    }
}

/// How many of `sizes` (bytes, in the order of hashes) stay when a leaf of `bytes` is split.
///
/// From the highest hash down as many go as fill half of the block; an entry of which more than
/// half would lie in the other half stays. If all would go, half of them do.
fn kept_at_split(sizes: &[usize], bytes: usize) -> usize {
    let mut moved = 0;
    for (i, size) in sizes.iter().enumerate().rev() {
        if moved + size / 2 > bytes / 2 {
            return i + 1;
        }
        moved += size;
    }
    sizes.len() / 2
}

impl Ext4 {
    fn wrong_index(&self, buf: &Buffer, field: &'static str, found: u64, right: &str) -> FsError {
        let at = buf.block() * u64::from(self.bs().bytes());
        FsError::corrupt("ext4 directory index", field, at, found, right)
    }

    /// Loads inner block `n`; `entries_at` says whether it must be the root.
    fn index_node<'a>(
        &'a self,
        dir: &'a Inode,
        n: u64,
        entries_at: usize,
    ) -> MaybeReady<'a, FsResult<Node>> {
        match self.index_node_now(dir, n, entries_at) {
            Some(node) => MaybeReady::now(Ok(node)),
            None => MaybeReady::later(self.load_index_node(dir, n, entries_at)),
        }
    }

    async fn load_index_node(&self, dir: &Inode, n: u64, entries_at: usize) -> FsResult<Node> {
        let buf = soon!(self.dir_block(dir, n))?;
        let blocks = self.dir_blocks(dir);
        if let Some(known) = self.names.borrow_mut().index(&buf, entries_at, blocks) {
            return Ok(Node { buf, entries_at, entries: known.entries, pos: 0 });
        }
        if buf.with(htree::entries_at) != Some(entries_at) {
            return Err(self.wrong_index(&buf, "rec_len", n, "an inner block of the hash tree"));
        }
        let at = buf.block() * u64::from(self.bs().bytes());
        let csum = self.csum.metadata();
        let entries = buf.with(|b| htree::load_entries(b, at, entries_at, csum))?;
        let inside = |e: &DxEntry| (1..blocks).contains(&u64::from(e.block.get() & BLOCK_MASK));
        if let Some(e) = entries.iter().find(|e| !inside(e)) {
            let found = u64::from(e.block.get());
            return Err(self.wrong_index(&buf, "block", found, "a later block of the directory"));
        }
        let entries = Rc::new(entries);
        let known = Index { entries_at, entries: entries.clone(), blocks };
        self.names.borrow_mut().note_index(&buf, known);
        Ok(Node { buf, entries_at, entries, pos: 0 })
    }

    /// The name's hash; of the name asked for last without computing it again.
    fn hash(&self, rule: &DirHash, name: &[u8]) -> NameHash {
        let mut last = self.last_hash.borrow_mut();
        if let Some((r, n, hash)) = &*last
            && r == rule
            && n == name
        {
            return *hash;
        }
        let hash = rule.hash(name);
        let mut kept = last.take().map_or_else(Vec::new, |(_, kept, _)| kept);
        kept.clear();
        kept.extend_from_slice(name);
        *last = Some((*rule, kept, hash));
        hash
    }

    /// How names are hashed, and how many levels of inner blocks there are.
    fn root_rule(&self, root: &Node) -> FsResult<(DirHash, usize)> {
        let info = root.buf.with(root_info).expect("entries_at has seen the root");
        let Some(rule) = DirHash::of(&self.sb.borrow(), info.hash_version) else {
            let found = info.hash_version.into();
            return Err(self.wrong_index(&root.buf, "hash_version", found, "0, 1 or 2"));
        };
        let levels = usize::from(info.indirect_levels) + 1;
        if levels > LEVELS_MAX {
            let found = info.indirect_levels.into();
            return Err(self.wrong_index(&root.buf, "indirect_levels", found, "0 or 1"));
        }
        if info.unused_flags & 1 != 0 {
            let found = info.unused_flags.into();
            return Err(self.wrong_index(&root.buf, "unused_flags", found, "bit 0 clear"));
        }
        Ok((rule, levels))
    }

    /// [`Ext4::index_node`] where it need not wait and was read before.
    fn index_node_now(&self, dir: &Inode, n: u64, entries_at: usize) -> Option<Node> {
        let buf = self.dir_block_now(dir, n)?;
        let known = self.names.borrow_mut().index(&buf, entries_at, self.dir_blocks(dir))?;
        Some(Node { buf, entries_at, entries: known.entries, pos: 0 })
    }

    /// [`Ext4::find_indexed`] where it need not wait, and names of that hash stand in one leaf.
    pub(super) fn find_indexed_now(&self, dir: &Inode, name: &[u8]) -> Option<Option<Place>> {
        if name == b"." || name == b".." {
            return None;
        }
        let mut node = self.index_node_now(dir, 0, ROOT_ENTRIES_AT)?;
        let (rule, levels) = self.root_rule(&node).ok()?;
        let hash = self.hash(&rule, name);
        // The first hash of what follows the leaf.
        let mut next = None;
        for level in 1..=levels {
            node.pos = node.entries.partition_point(|e| e.hash.get() <= hash.major) - 1;
            next = node.entries.get(node.pos + 1).map(|e| e.hash.get()).or(next);
            if level < levels {
                node = self.index_node_now(dir, node.child(), NODE_ENTRIES_AT)?;
            }
        }
        let leaf = self.dir_block_now(dir, node.child())?;
        let found = self.find_in_block(&leaf, name);
        let goes_on = next.is_some_and(|h| h & !1 == hash.major);
        if found.is_none() && goes_on { None } else { Some(found) }
    }

    /// The path to the leaf where `name` belongs, or to the first of them.
    fn probe<'a>(&'a self, dir: &'a Inode, name: &'a [u8]) -> MaybeReady<'a, FsResult<Path>> {
        let Some(root) = self.index_node_now(dir, 0, ROOT_ENTRIES_AT) else {
            return MaybeReady::later(async {
                let root = self.load_index_node(dir, 0, ROOT_ENTRIES_AT).await?;
                let (mut path, levels) = self.path_from(root, name)?;
                self.descend(dir, &mut path, levels).await?;
                Ok(path)
            });
        };
        let (mut path, levels) = match self.path_from(root, name) {
            Ok(begun) => begun,
            Err(e) => return MaybeReady::now(Err(e)),
        };
        while path.nodes.len() < levels {
            let child = path.nodes.last().expect("the root is there").child();
            let Some(node) = self.index_node_now(dir, child, NODE_ENTRIES_AT) else {
                return MaybeReady::later(async move {
                    self.descend(dir, &mut path, levels).await?;
                    Ok(path)
                });
            };
            path.push(node);
        }
        MaybeReady::now(Ok(path))
    }

    /// A path that has only the root yet, and how many nodes it is to have.
    fn path_from(&self, root: Node, name: &[u8]) -> FsResult<(Path, usize)> {
        let (rule, levels) = self.root_rule(&root)?;
        let hash = self.hash(&rule, name);
        let mut path = Path { nodes: Vec::with_capacity(levels), wanted: Wanted { rule, hash } };
        path.push(root);
        Ok((path, levels))
    }

    /// Goes on down a path until it has `levels` nodes.
    async fn descend(&self, dir: &Inode, path: &mut Path, levels: usize) -> FsResult<()> {
        while path.nodes.len() < levels {
            let child = path.nodes.last().expect("the root is there").child();
            path.push(soon!(self.index_node(dir, child, NODE_ENTRIES_AT))?);
        }
        Ok(())
    }

    /// Goes to the next leaf if names with the wanted hash go on there.
    async fn next_leaf(&self, dir: &Inode, path: &mut Path) -> FsResult<bool> {
        let level = path.nodes.iter().rposition(|n| n.pos + 1 < n.entries.len());
        let Some(level) = level else { return Ok(false) };
        let node = &mut path.nodes[level];
        node.pos += 1;
        if node.entries[node.pos].hash.get() & !1 != path.wanted.hash.major {
            return Ok(false);
        }
        for below in level + 1..path.nodes.len() {
            let child = path.nodes[below - 1].child();
            path.nodes[below] = soon!(self.index_node(dir, child, NODE_ENTRIES_AT))?;
        }
        Ok(true)
    }

    /// Finds a name in a directory with a hash tree.
    pub(super) async fn find_indexed(&self, dir: &Inode, name: &[u8]) -> FsResult<Option<Place>> {
        if name == b"." || name == b".." {
            let root = soon!(self.dir_block(dir, 0))?;
            return Ok(self.find_in_block(&root, name));
        }
        let mut path = soon!(self.probe(dir, name))?;
        loop {
            let child = path.nodes.last().expect("the root is there").child();
            let leaf = soon!(self.dir_block(dir, child))?;
            if let Some(place) = self.find_in_block(&leaf, name) {
                return Ok(Some(place));
            }
            if !self.next_leaf(dir, &mut path).await? {
                return Ok(None);
            }
        }
    }

    /// Finds, or makes, room for `name` in a directory with a hash tree: a leaf in which it
    /// belongs, with write access, and the offset for it.
    ///
    /// Errors: `NoSpace` also when the tree can hold no more.
    pub(super) async fn room_indexed(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<(Rc<Buffer>, usize)> {
        loop {
            let mut path = soon!(self.probe(dir, name))?;
            let node = path.nodes.last_mut().expect("the root is there");
            let leaf = soon!(self.dir_block(dir, node.child()))?;
            soon!(h.get_write_access(&leaf))?;
            if let Some(offset) = self.room_in_block(&leaf, name)? {
                // add_dirent_to_buf()
                h.count_again(&leaf, 1);
                return Ok((leaf, offset));
            }
            if self.is_full(node) {
                Box::pin(self.split_index(h, dir, &mut path.nodes)).await?;
                continue;
            }
            let target = Box::pin(self.split_leaf(h, dir, node, &leaf, &path.wanted)).await?;
            if let Some(offset) = self.room_in_block(&target, name)? {
                return Ok((target, offset));
            }
        }
    }

    fn is_full(&self, node: &Node) -> bool {
        let bytes = self.bs().bytes() as usize;
        let limit = htree::limit(bytes, node.entries_at, self.csum.metadata());
        node.entries.len() >= usize::from(limit)
    }

    /// Writes a node's entries, seals it and gives it to the journal. It has write access.
    fn store_index(&self, h: &Handle, dir: &Inode, node: &Node) -> FsResult<()> {
        let csum = self.csum.metadata();
        node.buf.with_mut(|b| htree::store_entries(b, node.entries_at, csum, &node.entries));
        self.dirty_dir_block(h, dir, &node.buf)
    }

    /// A new block at the end of the directory, with its number.
    async fn append_numbered(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
    ) -> FsResult<(Rc<Buffer>, u64)> {
        let n = self.dir_blocks(dir);
        if n > u64::from(BLOCK_MASK) {
            return Err(FsError::NoSpace);
        }
        Ok((self.append_dir_block(h, dir).await?, n))
    }

    /// A linear directory of one full block gets a tree: its names go to a block of their own,
    /// which is split at once. Returns the leaf for `name` and the offset for it.
    pub(super) async fn make_indexed(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        first: &Rc<Buffer>,
        name: &[u8],
    ) -> FsResult<(Rc<Buffer>, usize)> {
        let version = self.sb.borrow().def_hash_version;
        let Some(rule) = DirHash::of(&self.sb.borrow(), version) else {
            return Err(FsError::Unsupported(format!("directory hash version {version}")));
        };
        soon!(h.get_write_access(first))?;
        let inodes = self.geo.inodes_count;
        let bytes = self.bs().bytes() as usize;
        let end = bytes - if self.csum.metadata() { DirEntryTail::BYTES } else { 0 };
        let at = first.block() * u64::from(self.bs().bytes());
        // "." and "..", then what moves, as it lies there.
        let (parent, from, last, names) = first.with(|b| -> FsResult<_> {
            let mut entries = DirIter::new(b, at, inodes);
            let (Some(dot), Some(up)) = (entries.next().transpose()?, entries.next().transpose()?)
            else {
                return Err(self.wrong_index(first, "rec_len", 0, "'.' and '..'"));
            };
            if dot.name != b"." || up.name != b".." {
                return Err(self.wrong_index(first, "name", 0, "'.' and '..'"));
            }
            let from = up.offset + up.rec_len;
            let mut last = None;
            for e in entries {
                let e = e?;
                if e.offset < end {
                    last = Some((e.offset, e.inode, e.file_type, e.name.to_vec()));
                }
            }
            Ok((up.inode, from, last, b[from.min(end)..end].to_vec()))
        })?;
        let Some((last_at, last_ino, last_type, last_name)) = last else {
            return Err(self.wrong_index(first, "rec_len", 0, "names after '..'"));
        };
        let (leaf, n) = self.append_numbered(h, dir).await?;
        {
            let mut d = dir.disk.borrow_mut();
            d.flags = (d.flags.get() | flag::INDEX).into();
        }
        leaf.with_mut(|b| {
            b[..names.len()].copy_from_slice(&names);
            let at = last_at - from;
            dir::put(b, at, end - at, last_ino, &last_name, last_type);
        });
        first.with_mut(|b| {
            b.fill(0);
            let kind = self.type_byte(crate::disk::inode::mode::DIR);
            dir::put(b, 0, dir::space(1), dir.ino, b".", kind);
            dir::put(b, dir::space(1), bytes - dir::space(1), parent, b"..", kind);
            let info = DxRootInfo {
                reserved_zero: 0.into(),
                hash_version: version,
                info_length: size_of::<DxRootInfo>() as u8,
                indirect_levels: 0,
                unused_flags: 0,
            };
            set_root_info(b, info);
        });
        let mut root = Node {
            buf: first.clone(),
            entries_at: ROOT_ENTRIES_AT,
            entries: Rc::new(vec![entry(0, n)]),
            pos: 0,
        };
        self.store_index(h, dir, &root)?;
        self.dirty_dir_block(h, dir, &leaf)?;
        soon!(self.write_inode(h, dir))?;
        // It is a directory again, whatever happens from here on.
        let wanted = Wanted { rule, hash: rule.hash(name) };
        let target = self.split_leaf(h, dir, &mut root, &leaf, &wanted).await?;
        match self.room_in_block(&target, name)? {
            Some(offset) => Ok((target, offset)),
            None => self.room_indexed(h, dir, name).await,
        }
    }

    /// Moves the names with the higher hashes of a leaf to a new one. `node` has room for an entry.
    /// Returns the half in which the wanted name belongs; the other one is with the journal.
    async fn split_leaf(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        node: &mut Node,
        leaf: &Rc<Buffer>,
        wanted: &Wanted,
    ) -> FsResult<Rc<Buffer>> {
        let at = leaf.block() * u64::from(self.bs().bytes());
        let inodes = self.geo.inodes_count;
        let old = leaf.with(|b| b.to_vec());
        let mut entries = Vec::with_capacity(old.len() / dir::space(1));
        for e in DirIter::new(&old, at, inodes) {
            let e = e?;
            if e.inode != 0 && !e.name.is_empty() {
                entries.push(Moving {
                    hash: wanted.rule.hash(e.name).major,
                    rec_len: e.rec_len,
                    inode: e.inode,
                    file_type: e.file_type,
                    name: e.name,
                });
            }
        }
        if entries.len() < 2 {
            let n = entries.len() as u64;
            return Err(self.wrong_index(leaf, "rec_len", n, "a full block has two names or more"));
        }
        let (new, n) = self.append_numbered(h, dir).await?;
        soon!(h.get_write_access(leaf))?;
        soon!(h.get_write_access(&node.buf))?;
        // No await from here to the end: see invariant 1.
        // Hash above, place in the leaf below.
        let mut order: Vec<u64> =
            (0u64..).zip(&entries).map(|(place, e)| u64::from(e.hash) << 32 | place).collect();
        order.sort_unstable();
        let ordered: Vec<&Moving<'_>> =
            order.iter().map(|key| &entries[*key as u32 as usize]).collect();
        let sizes: Vec<usize> = ordered.iter().map(|e| e.rec_len).collect();
        let (kept, moving) = ordered.split_at(kept_at_split(&sizes, self.bs().bytes() as usize));
        let border = moving.first().map_or(0, |e| e.hash);
        let goes_on = kept.last().is_some_and(|e| e.hash == border);
        // Those that stay keep their order.
        let first = order[kept.len()..].first().copied().unwrap_or(u64::MAX);
        let stays = |(place, e): &(u64, &Moving<'_>)| (u64::from(e.hash) << 32 | place) < first;
        let staying: Vec<&Moving<'_>> =
            (0u64..).zip(&entries).filter(stays).map(|(_, e)| e).collect();
        let csum = self.csum.metadata();
        new.with_mut(|b| pack(b, moving, csum));
        leaf.with_mut(|b| pack(b, &staying, csum));
        Rc::make_mut(&mut node.entries).insert(node.pos + 1, entry(border + u32::from(goes_on), n));
        let (target, other) = if wanted.hash.major >= border { (&new, leaf) } else { (leaf, &new) };
        self.dirty_dir_block(h, dir, other)?;
        self.store_index(h, dir, node)?;
        self.dirty_dir_block(h, dir, target)?;
        Ok(target.clone())
    }

    /// Makes room in the index: splits the lowest node whose parent has room, or adds a level.
    /// Errors: `NoSpace` if there may be no more levels.
    async fn split_index(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        nodes: &mut [Node],
    ) -> FsResult<()> {
        let mut level = nodes.len() - 1;
        while level > 0 && self.is_full(&nodes[level - 1]) {
            level -= 1;
        }
        if level == 0 && nodes.len() == LEVELS_MAX {
            return Err(FsError::NoSpace);
        }
        let (buf, n) = self.append_numbered(h, dir).await?;
        buf.with_mut(|b| {
            b.fill(0);
            dir::put(b, 0, b.len(), 0, &[], 0);
        });
        let mut new = Node { buf, entries_at: NODE_ENTRIES_AT, entries: Rc::default(), pos: 0 };
        soon!(h.get_write_access(&nodes[level].buf))?;
        if level == 0 {
            let root = &mut nodes[0];
            new.entries = std::mem::replace(&mut root.entries, Rc::new(vec![entry(0, n)]));
            root.buf.with_mut(|b| {
                let mut info = root_info(b).expect("the root was read");
                info.indirect_levels += 1;
                set_root_info(b, info);
            });
            self.store_index(h, dir, root)?;
            return self.store_index(h, dir, &new);
        }
        soon!(h.get_write_access(&nodes[level - 1].buf))?;
        let (above, below) = nodes.split_at_mut(level);
        let (parent, node) = (&mut above[level - 1], &mut below[0]);
        let half = node.entries.len() / 2;
        new.entries = Rc::new(Rc::make_mut(&mut node.entries).split_off(half));
        let border = new.entries[0].hash.get();
        Rc::make_mut(&mut parent.entries).insert(parent.pos + 1, entry(border, n));
        self.store_index(h, dir, &new)?;
        self.store_index(h, dir, parent)?;
        self.store_index(h, dir, node)
    }

    /// Should this directory get a tree when its only block is full?
    pub(super) fn may_index(&self, dir: &Inode) -> bool {
        self.dir_blocks(dir) == 1 && self.sb.borrow().has_compat(compat::DIR_INDEX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_splits_where_the_higher_hashes_fill_half_of_it() {
        assert_eq!(kept_at_split(&[16; 64], 1024), 32);
        // A last entry that takes most of the block goes alone.
        assert_eq!(kept_at_split(&[100, 100, 824], 1024), 2);
        // Entries that fill less than half, the rest being free: by count.
        assert_eq!(kept_at_split(&[12, 12, 12, 12], 1024), 2);
    }

    #[test]
    fn packed_entries_cover_their_block() {
        let name = |n: &'static str| Moving {
            hash: 0,
            rec_len: 0,
            inode: 11,
            file_type: 1,
            name: n.as_bytes(),
        };
        let (a, b) = (name("first"), name("second one"));
        for has_tail in [false, true] {
            let mut block = vec![0xFF; 1024];
            pack(&mut block, &[&a, &b], has_tail);
            let found: Vec<_> =
                DirIter::new(&block, 0, 100).map(|e| e.expect("right").rec_len).collect();
            let end = 1024 - if has_tail { 12 } else { 0 };
            assert_eq!(found[..2], [16, end - 16]);
            assert_eq!(DirEntryTail::find(&block).is_some(), has_tail);
        }
    }
}
