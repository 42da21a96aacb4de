//! The block map: extent trees, their lookup, growth and cutting.
//!
//! Picture:    root in the inode (4 entries) -> inner nodes -> leaves, a block each.
//! Invariants: 1. the tree changes only under the inode's `map_lock` and in a handle.
//!             2. a node's block belongs to the inode and is counted in `i_blocks`.
//! Source:     Linux `fs/ext4/extents.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_rt::soon;
use zerocopy::IntoBytes;

use super::clusters::{Gone, PIECES_PER_CUT, piece_behind};
use super::inode::Inode;
use super::mballoc::{Purpose, Request};
use super::mount::Ext4;
use crate::disk::extent::ExtentEntries;
use crate::disk::{Extent, ExtentHeader, ExtentIdx, ExtentNode};
use crate::site;

/// Groups that one step of a cut may return blocks to.
pub(super) const GROUPS_PER_CUT: usize = 16;

/// Blocks of metadata that one step of a cut may return: each takes a revoke credit.
pub(super) const METADATA_PER_CUT: u32 = 512;

/// A run of mapped blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// First logical block.
    pub logical: u64,
    /// First block on the device.
    pub phys: u64,
    /// Blocks.
    pub len: u32,
    /// Allocated, reads as zeroes.
    pub unwritten: bool,
}

/// A node held for changing.
#[derive(Clone)]
pub(super) struct Node {
    /// `None`: the root, in the inode.
    pub buf: Option<Rc<Buffer>>,
    header: ExtentHeader,
    pub leaf: Vec<Extent>,
    pub inner: Vec<ExtentIdx>,
    /// Which entry the path took (inner), or where the search ended (leaf).
    pub pos: usize,
}

/// What an allocation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fill {
    /// Written at once.
    Written,
    /// Reads as zeroes until somebody writes it (`EXT4_GET_BLOCKS_UNWRIT_EXT`).
    Unwritten,
    /// The same, and its data is on the way: kept apart from its neighbours until it is converted
    /// (`EXT4_GET_BLOCKS_PRE_IO`).
    BeforeIo,
}

/// Longest extent of its kind.
pub(super) fn longest(unwritten: bool) -> u32 {
    u32::from(Extent::LEN_MAX) - u32::from(unwritten)
}

/// Do two extents continue each other, and may they be one (`ext4_can_extents_be_merged`)?
pub(super) fn joins(a: &Extent, b: &Extent) -> bool {
    a.is_unwritten() == b.is_unwritten()
        && a.end() == u64::from(b.logical())
        && a.start() + u64::from(a.blocks()) == b.start()
        && a.blocks() + b.blocks() <= longest(a.is_unwritten())
}

impl Node {
    pub(super) fn is_leaf(&self) -> bool {
        self.header.depth.get() == 0
    }
    pub(super) fn len(&self) -> usize {
        if self.is_leaf() { self.leaf.len() } else { self.inner.len() }
    }
    pub(super) fn is_full(&self) -> bool {
        self.len() >= usize::from(self.header.entries_max.get())
    }
    /// A root without children is an empty leaf.
    pub(super) fn flatten_if_empty(&mut self) {
        if self.len() == 0 {
            self.header.depth = 0.into();
        }
    }
    /// Last block of the leaf's extent before where the search ended, first of the one after it:
    /// (logical, place) each.
    fn neighbours(&self) -> [Option<(u64, u64)>; 2] {
        let left = self.pos.checked_sub(1).map(|i| &self.leaf[i]);
        let right = self.leaf.get(self.pos);
        [
            left.map(|e| (e.end() - 1, e.start() + u64::from(e.blocks()) - 1)),
            right.map(|e| (u64::from(e.logical()), e.start())),
        ]
    }
    /// Writes its entries to where it lives.
    fn fill(&mut self, ino: u32, bytes: &mut [u8]) {
        debug_assert!(
            self.leaf.is_sorted_by(|a, b| a.end() <= u64::from(b.logical())),
            "extents of inode {ino} overlap: {:?}",
            self.leaf.iter().map(|e| (e.logical(), e.blocks())).collect::<Vec<_>>()
        );
        self.header.entries = (self.len() as u16).into();
        self.header.write_to_prefix(bytes).expect("a node holds its header");
        let body = if self.is_leaf() { self.leaf.as_bytes() } else { self.inner.as_bytes() };
        bytes[size_of::<ExtentHeader>()..][..body.len()].copy_from_slice(body);
    }
    /// Puts an extent where the search ended. `false`: the leaf is full. With `merge` it becomes
    /// part of a neighbour that it continues, and of both if they meet.
    fn put(&mut self, new: Extent, merge: bool) -> bool {
        let (pos, whole) = (self.pos, |a: &Extent, b: &Extent| {
            Extent::new(a.logical(), a.start(), a.blocks() + b.blocks(), a.is_unwritten())
        });
        if merge && pos > 0 && joins(&self.leaf[pos - 1], &new) {
            let mut both = whole(&self.leaf[pos - 1], &new);
            if let Some(b) = self.leaf.get(pos).filter(|b| joins(&both, b)) {
                both = whole(&both, b);
                self.leaf.remove(pos);
            }
            self.leaf[pos - 1] = both;
            return true;
        }
        if merge && let Some(b) = self.leaf.get_mut(pos).filter(|b| joins(&new, b)) {
            *b = whole(&new, b);
            return true;
        }
        if self.is_full() {
            return false;
        }
        self.leaf.insert(pos, new);
        true
    }
    fn first_logical(&self) -> Option<u32> {
        if self.is_leaf() {
            self.leaf.first().map(Extent::logical)
        } else {
            self.inner.first().map(ExtentIdx::logical)
        }
    }
}

impl Inode {
    /// Writes a root's entries; the inode is to be put in its slot.
    fn store_root(&self, root: &mut Node) {
        root.fill(self.ino, &mut self.disk.borrow_mut().block);
        self.blocks_met.borrow_mut().clear();
    }
}

impl Ext4 {
    fn load_node(
        &self,
        inode: &Inode,
        buf: Option<Rc<Buffer>>,
        depth: Option<u16>,
    ) -> FsResult<Node> {
        let parse = |bytes: &[u8], at: u64| -> FsResult<Node> {
            let node = ExtentNode::verify(bytes, at, depth)?;
            let (leaf, inner) = match node.entries() {
                ExtentEntries::Leaf(l) => {
                    // Mostly one more is to come.
                    let mut leaf = Vec::with_capacity(l.len() + 1);
                    leaf.extend_from_slice(l);
                    (leaf, Vec::new())
                }
                ExtentEntries::Inner(i) => (Vec::new(), i.to_vec()),
            };
            Ok(Node { buf: None, header: *node.header(), leaf, inner, pos: 0 })
        };
        match buf {
            None => {
                let d = inode.disk.borrow();
                parse(&d.block, 0)
            }
            Some(b) => {
                let at = b.block() * u64::from(self.bs().bytes());
                if !b.flag(BufFlag::Verified) {
                    let seed =
                        self.csum.inode_seed(inode.ino, inode.disk.borrow().generation.get());
                    if !b.with(|bytes| self.csum.extent_block_ok(seed, bytes)) {
                        return Err(FsError::corrupt(
                            "ext4 extent node",
                            "et_checksum",
                            at,
                            u64::from(inode.ino),
                            "its checksum",
                        ));
                    }
                    b.set(BufFlag::Verified);
                }
                let mut node = b.with(|bytes| parse(bytes, at))?;
                node.buf = Some(b);
                Ok(node)
            }
        }
    }

    /// Nodes from the root to the leaf that covers `logical`.
    pub(super) async fn path(&self, inode: &Inode, logical: u32) -> FsResult<Vec<Node>> {
        let mut path = vec![self.load_node(inode, None, None)?];
        loop {
            let node = path.last_mut().expect("the root is there");
            if node.is_leaf() {
                node.pos = node.leaf.partition_point(|e| e.logical() <= logical);
                return Ok(path);
            }
            node.pos = node.inner.partition_point(|e| e.logical() <= logical).saturating_sub(1);
            let depth = node.header.depth.get() - 1;
            let child = node.inner[node.pos].leaf();
            if !self.geo.holds(child, 1) {
                return Err(FsError::corrupt(
                    "ext4 extent index",
                    "ei_leaf",
                    0,
                    child,
                    "a block of this file system",
                ));
            }
            let buf = self.bdev.read(child).await?;
            path.push(self.load_node(inode, Some(buf), Some(depth))?);
        }
    }

    /// [`Ext4::path`] where all extents stand in the inode; else `None`.
    fn root_path(&self, inode: &Inode, logical: u32) -> FsResult<Option<Vec<Node>>> {
        if inode.disk.borrow().block[6..8] != [0, 0] {
            return Ok(None);
        }
        let mut root = self.load_node(inode, None, None)?;
        root.pos = root.leaf.partition_point(|e| e.logical() <= logical);
        Ok(Some(vec![root]))
    }

    /// [`Ext4::extent_lookup`] where all extents stand in the inode; else `None`.
    pub(super) fn root_lookup(
        &self,
        inode: &Inode,
        logical: u32,
    ) -> FsResult<Option<Result<Run, u64>>> {
        let d = inode.disk.borrow();
        let node = ExtentNode::verify(&d.block, 0, None)?;
        let ExtentEntries::Leaf(leaf) = node.entries() else { return Ok(None) };
        let pos = leaf.partition_point(|e| e.logical() <= logical);
        let logical = u64::from(logical);
        if let Some(e) = pos.checked_sub(1).and_then(|i| leaf.get(i))
            && logical < e.end()
        {
            return self.run_at(e, logical).map(|run| Some(Ok(run)));
        }
        let next = leaf.get(pos).map(|e| u64::from(e.logical()));
        Ok(Some(Err(next.map_or(u64::MAX - logical, |n| n.saturating_sub(logical)))))
    }

    /// What extent `e` says of `logical`, which lies in it, and of the blocks after it.
    fn run_at(&self, e: &Extent, logical: u64) -> FsResult<Run> {
        let skip = logical - u64::from(e.logical());
        if !self.geo.holds(e.start(), u64::from(e.blocks())) {
            return Err(FsError::corrupt(
                "ext4 extent",
                "ee_start",
                0,
                e.start(),
                "blocks of this file system",
            ));
        }
        Ok(Run {
            logical,
            phys: e.start() + skip,
            len: e.blocks() - skip as u32,
            unwritten: e.is_unwritten(),
        })
    }

    /// See [`Ext4::lookup`].
    pub(super) async fn extent_lookup(&self, inode: &Inode, l: u32) -> FsResult<Result<Run, u64>> {
        let path = self.path(inode, l).await?;
        let logical = u64::from(l);
        let leaf = path.last().expect("a path has a leaf");
        if let Some(e) = leaf.pos.checked_sub(1).map(|i| leaf.leaf[i])
            && logical < e.end()
        {
            return self.run_at(&e, logical).map(Ok);
        }
        // The hole ends at the next extent: in this leaf, or where the next subtree begins.
        let mut next = leaf.leaf.get(leaf.pos).map(|e| u64::from(e.logical()));
        for node in path.iter().rev().skip(1) {
            next = next.or(node.inner.get(node.pos + 1).map(|i| u64::from(i.logical())));
        }
        Ok(Err(next.map_or(u64::MAX - logical, |n| n.saturating_sub(logical))))
    }

    /// Where the next block of the file should go (`ext4_ext_find_goal`).
    fn goal(&self, inode: &Inode, path: &[Node], logical: u32) -> u64 {
        let leaf = path.last().expect("a path has a leaf");
        let before = leaf.pos.checked_sub(1).map(|i| leaf.leaf[i]);
        if let Some(e) = before.or(leaf.leaf.first().copied()) {
            // Before the device's first block there is no goal; the kernel's number wraps.
            let gap = i64::from(logical) - i64::from(e.logical());
            return e.start().checked_add_signed(gap).unwrap_or(u64::MAX);
        }
        leaf.buf.as_ref().map_or_else(|| self.first_goal(inode), |b| b.block())
    }

    /// The nearest blocks before and after `logical` that have a place: (logical, place) each
    /// (`ext4_ext_search_left`, `ext4_ext_search_right`).
    async fn neighbours(&self, inode: &Inode, path: &[Node]) -> FsResult<[Option<(u64, u64)>; 2]> {
        let [left, mut right] = path.last().expect("a path has a leaf").neighbours();
        let next = path.iter().rev().skip(1).find_map(|n| n.inner.get(n.pos + 1));
        if let (None, Some(next)) = (&right, next) {
            let path = self.path(inode, next.logical()).await?;
            let first = path.last().and_then(|leaf| leaf.leaf.first());
            right = first.map(|e| (u64::from(e.logical()), e.start()));
        }
        Ok([left, right])
    }

    /// See [`Ext4::allocate_as`].
    pub(super) async fn extent_allocate(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        logical: u64,
        want: u32,
        promised: bool,
        fill: Fill,
    ) -> FsResult<Run> {
        let unwritten = fill != Fill::Written;
        let Ok(l) = u32::try_from(logical) else { return Err(FsError::TooBig) };
        let mut path = match self.root_path(inode, l)? {
            Some(path) => path,
            None => Box::pin(self.path(inode, l)).await?,
        };
        let [left, right] = match &path[..] {
            [leaf] => leaf.neighbours(),
            path => Box::pin(self.neighbours(inode, path)).await?,
        };
        let purpose = match fill {
            _ if !inode.disk.borrow().is_file() => Purpose::Meta,
            // What fallocate asks for is all that is wanted (`EXT4_GET_BLOCKS_NO_NORMALIZE`).
            Fill::Unwritten => Purpose::DataExact,
            Fill::Written | Fill::BeforeIo => Purpose::Data,
        };
        let want = want.min(longest(unwritten));
        let goal = self.goal(inode, &path, l);
        let rq = Request { inode, purpose, logical, goal, want, left, right, promised };
        let (phys, len, taken) = self.take_for_map(h, &rq).await?;
        if !inode.is_dir() {
            self.forget_aliases(phys, len).await;
        }
        let new = Extent::new(l, phys, len, unwritten);
        self.count_clusters(inode, taken.1.into())?;
        let merge = fill != Fill::BeforeIo;
        // A tree of the root alone is stored with its inode.
        let with_inode = path.len() == 1;
        let inserted = if with_inode && path[0].put(new, merge) {
            inode.store_root(&mut path[0]);
            soon!(self.write_inode(h, inode))
        } else {
            Box::pin(self.insert_at(h, inode, path, new, merge)).await
        };
        if let Err(e) = inserted {
            // The tree has no room and the disk no block for a node: hand the data blocks back. The
            // tree may have become higher meanwhile.
            self.discard_prealloc(inode);
            Box::pin(self.return_taken(h, inode, taken)).await?;
            soon!(self.write_inode(h, inode))?;
            return Err(e);
        }
        if !with_inode {
            soon!(self.write_inode(h, inode))?;
        }
        self.claim_clusters(inode, logical, taken.1);
        // Unwritten blocks are for their conversion, or for fallocate, to count.
        if !unwritten && site::ALLOC_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        Ok(Run { logical, phys, len, unwritten })
    }

    /// Blocks that were metadata become data: a home write of the old contents must not come after
    /// the first of the new (`clean_bdev_aliases`).
    pub(super) async fn forget_aliases(&self, first: u64, len: u32) {
        for block in first..first + u64::from(len) {
            if let Some(old) = self.bdev.peek(block) {
                if old.flag(BufFlag::Dirty) && site::ALIAS_CLEAN.on() {
                    self.bdev.clear_dirty(&old);
                }
                if old.flag(BufFlag::Writeback) && site::ALIAS_WAIT.on() {
                    old.wait_clear(BufFlag::Writeback).await;
                }
            }
        }
    }

    /// Writes a node's entries to where it lives.
    pub(super) async fn store_node(
        &self,
        h: &Handle,
        inode: &Inode,
        node: &mut Node,
    ) -> FsResult<()> {
        let Some(buf) = node.buf.clone() else {
            inode.store_root(node);
            return soon!(self.write_inode(h, inode));
        };
        soon!(h.get_write_access(&buf))?;
        let seed = self.csum.inode_seed(inode.ino, inode.disk.borrow().generation.get());
        buf.with_mut(|bytes| {
            node.fill(inode.ino, bytes);
            self.csum.seal_extent_block(seed, bytes);
        });
        self.dirty(h, &buf)
    }

    /// Moves the entries of a lone leaf up into the inode, where they fit, and frees its block
    /// (`ext4_ext_try_to_merge_up`).
    pub(super) async fn merge_up(self: &Rc<Self>, h: &Handle, inode: &Inode) -> FsResult<()> {
        if !self.may_merge_up(inode) {
            return Ok(());
        }
        let mut root = self.load_node(inode, None, None)?;
        let [only] = &root.inner[..] else { return Ok(()) };
        let block = only.leaf();
        let buf = self.bdev.read(block).await?;
        let leaf = self.load_node(inode, Some(buf), Some(0))?.leaf;
        let fits = leaf.len() <= usize::from(root.header.entries_max.get());
        if !fits || !h.extend_with(2, self.revokes(1)) {
            return Ok(());
        }
        root.header.depth = 0.into();
        root.inner.clear();
        root.leaf = leaf;
        self.count_clusters(inode, -1)?;
        self.store_node(h, inode, &mut root).await?;
        self.return_blocks(h, block, 1, true).await
    }

    /// Has the tree one level of nodes below the inode, in a kernel that looks?
    fn may_merge_up(&self, inode: &Inode) -> bool {
        self.opts.era.leaf_into_inode() && inode.disk.borrow().block[6] == 1
    }

    /// Puts an extent into the tree; with `merge` as part of a neighbour where they continue each
    /// other, and the tree's only leaf into the inode where it fits.
    pub(super) async fn insert(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        new: Extent,
        merge: bool,
    ) -> FsResult<()> {
        let path = self.path(inode, new.logical()).await?;
        self.insert_at(h, inode, path, new, merge).await
    }

    /// [`Ext4::insert`] where the path to the new extent's place is known.
    async fn insert_at(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        path: Vec<Node>,
        new: Extent,
        merge: bool,
    ) -> FsResult<()> {
        self.insert_below(h, inode, path, new, merge).await?;
        // Boxed: few trees are to lose a level.
        if merge && self.may_merge_up(inode) {
            Box::pin(self.merge_up(h, inode)).await
        } else {
            Ok(())
        }
    }

    async fn insert_below(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        mut path: Vec<Node>,
        new: Extent,
        merge: bool,
    ) -> FsResult<()> {
        let leaf = path.last_mut().expect("a path has a leaf");
        let joins_left = merge && leaf.pos > 0 && joins(&leaf.leaf[leaf.pos - 1], &new);
        if !leaf.put(new, merge) {
            Box::pin(self.make_room(h, inode, new.logical())).await?;
            path = self.path(inode, new.logical()).await?;
            let has_room = path.last_mut().expect("a path has a leaf").put(new, false);
            assert!(has_room, "make_room left a leaf of inode {} full", inode.ino);
        }
        let leaf = path.last_mut().expect("a path has a leaf");
        if joins_left {
            self.store_node(h, inode, leaf).await
        } else {
            self.store_and_fix(h, inode, &mut path).await
        }
    }

    /// Stores the leaf, and corrects the indices above it if its first block changed.
    pub(super) async fn store_and_fix(
        &self,
        h: &Handle,
        inode: &Inode,
        path: &mut [Node],
    ) -> FsResult<()> {
        let (leaf, above) = path.split_last_mut().expect("a path has a leaf");
        self.store_node(h, inode, leaf).await?;
        let mut first = leaf.first_logical();
        for node in above.iter_mut().rev() {
            let Some(f) = first else { break };
            let pos = node.pos;
            if node.inner[pos].logical() == f {
                break;
            }
            node.inner[pos] = ExtentIdx::new(f, node.inner[pos].leaf());
            self.store_node(h, inode, node).await?;
            first = if pos == 0 { node.first_logical() } else { None };
        }
        Ok(())
    }

    /// A fresh block for a node of the inode's tree.
    pub(super) async fn node_block(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Inode,
        goal: u64,
    ) -> FsResult<Rc<Buffer>> {
        let (block, _) = self.take_blocks(h, &Request::meta(inode, goal)).await?;
        self.count_clusters(inode, 1)?;
        let buf = self.bdev.get(block);
        h.get_create_access(&buf).await?;
        buf.with_mut(|b| b.fill(0));
        buf.set(BufFlag::Uptodate);
        buf.set(BufFlag::Verified);
        Ok(buf)
    }

    fn block_slots(&self) -> u16 {
        let tail = usize::from(self.csum.metadata()) * size_of::<crate::disk::ExtentTail>();
        ExtentHeader::empty(self.bs().bytes() as usize - tail, 0).entries_max.get()
    }

    /// Splits nodes, or grows the tree by a level, until the leaf for `logical` has room.
    async fn make_room(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        logical: u32,
    ) -> FsResult<()> {
        loop {
            let path = self.path(inode, logical).await?;
            if !path.last().expect("a path has a leaf").is_full() {
                return Ok(());
            }
            // The lowest node that is full while its parent is not can be split; if all are, the
            // tree grows.
            let split =
                (1..path.len()).rev().find(|i| path[*i].is_full() && !path[*i - 1].is_full());
            match split {
                Some(level) => self.split(h, inode, path, level, logical).await?,
                None => self.grow(h, inode).await?,
            }
        }
    }

    /// Moves the root's entries to a block of their own and makes the root an index of one entry.
    async fn grow(self: &Rc<Self>, h: &Handle, inode: &Rc<Inode>) -> FsResult<()> {
        let mut root = self.load_node(inode, None, None)?;
        let depth = root.header.depth.get();
        if depth >= ExtentHeader::DEPTH_MAX {
            return Err(FsError::TooBig);
        }
        let buf = self.node_block(h, inode, self.first_goal(inode)).await?;
        let block = buf.block();
        let mut child = root.clone();
        child.buf = Some(buf);
        child.header.entries_max = self.block_slots().into();
        let first = root.first_logical().unwrap_or(0);
        self.store_node(h, inode, &mut child).await?;
        root.header.depth = (depth + 1).into();
        root.leaf.clear();
        root.inner = vec![ExtentIdx::new(first, block)];
        self.store_node(h, inode, &mut root).await
    }

    /// Splits the full node at `level`. A file that grows at its end gets an empty right sibling,
    /// so that the left one stays full, as in Linux.
    async fn split(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        mut path: Vec<Node>,
        level: usize,
        logical: u32,
    ) -> FsResult<()> {
        let goal = self.goal(inode, &path, logical);
        let buf = self.node_block(h, inode, goal).await?;
        let block = buf.block();
        let node = &mut path[level];
        let mut right = Node {
            buf: Some(buf),
            header: ExtentHeader::empty(12, 0),
            leaf: vec![],
            inner: vec![],
            pos: 0,
        };
        right.header.depth = node.header.depth;
        right.header.entries_max = self.block_slots().into();
        let border = if node.is_leaf() {
            // The left one keeps its first extent even if the new one comes before it: two indices
            // of one block cannot be.
            let at = node.pos.clamp(1, node.leaf.len());
            right.leaf = node.leaf.split_off(at);
            right.leaf.first().map_or(logical, Extent::logical)
        } else {
            let at = node.pos + 1;
            right.inner = node.inner.split_off(at);
            right.inner.first().map_or(logical, ExtentIdx::logical)
        };
        if !right.is_leaf() && right.inner.is_empty() {
            // An empty inner node cannot be: give it the last child of the left one.
            let last = node.inner.pop().expect("a full node has entries");
            right.inner.push(last);
        }
        let border = right.first_logical().unwrap_or(border);
        let mut left = node.clone();
        self.store_node(h, inode, &mut right).await?;
        self.store_node(h, inode, &mut left).await?;
        let parent = &mut path[level - 1];
        parent.inner.insert(parent.pos + 1, ExtentIdx::new(border, block));
        let mut parent = parent.clone();
        self.store_node(h, inode, &mut parent).await
    }

    /// See [`Ext4::cut_once`]: one leaf a call.
    pub(super) async fn extent_cut(
        self: &Rc<Self>,
        h: &Handle,
        inode: &Rc<Inode>,
        from: u64,
        metadata: bool,
    ) -> FsResult<bool> {
        let mut path = self.path(inode, u32::MAX - 1).await?;
        let leaf = path.last_mut().expect("a path has a leaf");
        let mut freed: Vec<Gone> = Vec::new();
        let mut groups: Vec<u32> = Vec::new();
        let mut room = if metadata { METADATA_PER_CUT } else { u32::MAX };
        let mut more_here = false;
        while let Some(e) = leaf.leaf.last().copied() {
            if e.end() <= from {
                break;
            }
            // One step must fit the handle: a bitmap and perhaps a descriptor block a group.
            let group = self.geo.locate_block(e.start()).map_or(0, |(g, _)| g);
            let new_group = !groups.contains(&group);
            let full = freed.len() >= PIECES_PER_CUT || room == 0;
            if full || (new_group && groups.len() >= GROUPS_PER_CUT) {
                more_here = true;
                break;
            }
            if new_group {
                groups.push(group);
            }
            let keep =
                from.saturating_sub(u64::from(e.logical())).min(u64::from(e.blocks())) as u32;
            let wanted = keep;
            let keep = keep.max(e.blocks().saturating_sub(room));
            more_here |= keep > wanted;
            room = room.saturating_sub(e.blocks() - keep);
            freed.push(piece_behind(&e, keep));
            leaf.leaf.pop();
            if keep > 0 {
                leaf.leaf.push(Extent::new(e.logical(), e.start(), keep, e.is_unwritten()));
                break;
            }
        }
        let cut_to_nothing = leaf.leaf.is_empty();
        for piece in &freed {
            self.return_piece(h, inode, *piece, (metadata, false)).await?;
        }
        // Each step is a whole change: a crash between two must find what the inode owns counted.
        if !freed.is_empty() && !cut_to_nothing && path.len() > 1 {
            soon!(self.write_inode(h, inode))?;
        }
        if !cut_to_nothing || path.len() == 1 {
            let mut node = path.pop().expect("a path has a leaf");
            let in_inode = node.buf.is_none();
            if !freed.is_empty() {
                self.store_node(h, inode, &mut node).await?;
                // dquot_free_block() and ext4_ext_dirty() for each extent.
                let pieces = freed.len() as u32;
                self.count_again(h, inode, if in_inode { 2 * pieces - 1 } else { pieces });
            }
            let emptied_root = path.is_empty() && node.leaf.is_empty();
            if emptied_root && in_inode {
                // ext4_ext_remove_space(): the tree's depth
                self.count_again(h, inode, 1);
            }
            return Ok(
                !more_here && (emptied_root || node.leaf.last().is_none_or(|e| e.end() <= from))
            );
        }
        // The leaf is empty: remove it, and every index above it that becomes empty.
        while path.len() > 1 {
            let node = path.pop().expect("longer than one");
            if node.len() > 0 {
                let mut node = node;
                self.store_node(h, inode, &mut node).await?;
                soon!(self.write_inode(h, inode))?;
                return Ok(false);
            }
            let block = node.buf.as_ref().expect("only the root is without a block").block();
            self.count_clusters(inode, -1)?;
            self.return_blocks(h, block, 1, true).await?;
            let parent = path.last_mut().expect("the root is there");
            parent.inner.remove(parent.pos);
        }
        let mut root = path.pop().expect("the root is there");
        if root.inner.is_empty() {
            root.header.depth = 0.into();
        }
        self.store_node(h, inode, &mut root).await?;
        let done = root.is_leaf();
        Ok(done)
    }
}
