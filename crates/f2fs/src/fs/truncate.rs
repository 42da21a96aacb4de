//! Taking blocks and nodes away.
//!
//! Source: Linux `fs/f2fs/file.c` (`f2fs_do_truncate_blocks`, `f2fs_truncate_data_blocks_range`),
//! `fs/f2fs/node.c` (`f2fs_truncate_inode_blocks`, `f2fs_remove_inode_page`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};

use super::counts::Dirty;
use super::dnode::{Dnode, Find, Found};
use super::inode::{Inode, block_mut, block_of};
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::inode::{advise, inline};
use crate::disk::{self, Footer, Node, Shape, addr, tree};

impl F2fs {
    /// Frees the blocks of addresses `slot..slot + count` of a node
    /// (`f2fs_truncate_data_blocks_range`).
    pub(super) async fn free_addrs(
        &self,
        inode: &Rc<Inode>,
        dn: &Dnode,
        slots: std::ops::Range<u32>,
    ) -> FsResult<()> {
        let used: Vec<(u32, u32)> = slots
            .clone()
            .map(|slot| (slot, dn.addr(inode, slot)))
            .filter(|(_, at)| *at != addr::NULL)
            .collect();
        if used.is_empty() {
            return Ok(());
        }
        let cleared: Vec<(u32, u32)> = used.iter().map(|(slot, _)| (*slot, addr::NULL)).collect();
        self.set_addrs(inode, dn, &cleared).await;
        let mut freed = 0;
        for (_, at) in used {
            if addr::is_block(at) {
                if !self.g.is_main(at) {
                    self.set_need_fsck();
                    continue;
                }
                self.invalidate(at);
            }
            freed += 1;
        }
        if freed > 0 {
            let len = slots.end - slots.start;
            self.update_extent(inode, dn.first + u64::from(slots.start), len, 0);
            self.dec_valid_blocks(freed);
            self.add_blocks(inode, -(freed as i64));
        }
        Ok(())
    }

    /// Drops cached blocks `from..to`, dirty or not. Waits: for reads and writes of them.
    pub(super) async fn drop_pages(&self, inode: &Rc<Inode>, from: u64, to: u64) {
        loop {
            let busy = inode
                .map
                .range(from, to)
                .into_iter()
                .find(|b| b.flag(BufFlag::Writeback) || b.flag(BufFlag::Reading));
            let Some(b) = busy else { break };
            if b.flag(BufFlag::Reading) {
                b.wait_clear(BufFlag::Reading).await;
            } else {
                self.wait_on_page_writeback(&b, Kind::Data, true).await;
            }
        }
        for b in inode.map.range(from, to) {
            if b.flag(BufFlag::Dirty) {
                self.count_clean(inode);
            }
            b.clear(BufFlag::Uptodate);
        }
        inode.map.truncate_range(from, to).await;
        if inode.is_dir() && inode.dirty_pages.get() == 0 {
            self.dir_cleaned(inode.ino);
        }
    }

    /// Marks a block of a file to be written (`f2fs_dirty_data_folio`).
    pub(super) fn dirty_data(&self, inode: &Rc<Inode>, b: &Rc<Buffer>) {
        if !b.flag(BufFlag::Dirty) {
            inode.dirty_pages.set(inode.dirty_pages.get() + 1);
            if inode.is_dir() {
                self.counts.dirtied(Dirty::Dents);
                self.dir_dirtied(inode.ino);
            } else {
                self.counts.dirtied(Dirty::Data);
            }
        }
        inode.map.mark_dirty(b);
    }

    /// One dirty block fewer (`inode_dec_dirty_pages`).
    pub(super) fn count_clean(&self, inode: &Inode) {
        inode.dirty_pages.set(inode.dirty_pages.get().saturating_sub(1));
        self.counts.cleaned(if inode.is_dir() { Dirty::Dents } else { Dirty::Data });
    }

    /// Cuts a file's blocks off at byte `from` (`f2fs_truncate_blocks`), pages in the cache too.
    /// `lock`: takes [`F2fs::lock_op`]; else the caller has it.
    pub(super) async fn truncate_blocks(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        lock: bool,
    ) -> FsResult<()> {
        let free_from = from.div_ceil(4096);
        let op = if lock { Some(self.lock_op().await) } else { None };
        let tree = inode.map_lock.lock().await;
        self.drop_pages(inode, free_from, u64::MAX).await;
        if free_from < inode.shape().blocks_max() {
            self.truncate_tree(inode, from, free_from).await?;
        }
        drop((tree, op));
        self.zero_tail(inode, from).await
    }

    async fn truncate_tree(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        free_from: u64,
    ) -> FsResult<()> {
        if inode.has_inline(inline::DATA) {
            let buf = self.node(inode.ino).await?;
            self.truncate_inline(inode, &buf, from).await;
            return Ok(());
        }
        let mut next = free_from;
        if let Found::At(dn) = self.dnode(inode, free_from, Find::Ahead).await?
            && (dn.slot > 0 || dn.ofs == 0)
        {
            self.free_addrs(inode, &dn, dn.slot..dn.slots).await?;
            next = dn.first + u64::from(dn.slots);
        }
        self.truncate_nodes(inode, next).await
    }

    /// Zeroes what is behind the end in the last block (`truncate_partial_data_page`).
    async fn zero_tail(self: &Rc<Self>, inode: &Rc<Inode>, from: u64) -> FsResult<()> {
        let skip = (from % 4096) as usize;
        let index = from / 4096;
        if inode.has_inline(inline::DATA) {
            // What the node has was cut; a cached copy must be as well.
            if let Some(b) = inode.map.peek(0).filter(|b| b.flag(BufFlag::Uptodate)) {
                let at = usize::try_from(from).unwrap_or(usize::MAX).min(4096);
                b.with_mut(|bytes| bytes[at..].fill(0));
            }
            return Ok(());
        }
        if skip == 0 {
            return Ok(());
        }
        let Some(b) = self.existing_block(inode, index).await? else { return Ok(()) };
        self.wait_on_page_writeback(&b, Kind::Data, true).await;
        b.with_mut(|bytes| bytes[skip..].fill(0));
        self.dirty_data(inode, &b);
        Ok(())
    }

    /// Frees blocks `from..to`, which are not in the cache any more (`f2fs_truncate_hole`). Nodes
    /// stay. The caller has the inode's `map_lock`.
    pub(super) async fn truncate_hole(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        from: u64,
        to: u64,
    ) -> FsResult<()> {
        let mut at = from;
        while at < to {
            match self.dnode(inode, at, Find::Lookup).await? {
                Found::Hole(next) => at = next,
                Found::At(dn) => {
                    let n = (to - at).min(u64::from(dn.slots - dn.slot)) as u32;
                    self.free_addrs(inode, &dn, dn.slot..dn.slot + n).await?;
                    at += u64::from(n);
                }
            }
        }
        Ok(())
    }

    /// Cuts a file to its length (`f2fs_truncate`).
    pub(super) async fn truncate_file(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if self.cp_error() {
            return Err(FsError::Io);
        }
        if inode.has_inline(inline::DATA) && inode.size.get() > inode.shape().inline_bytes().into()
        {
            self.convert_inline(inode).await?;
        }
        self.truncate_blocks(inode, inode.size.get(), true).await?;
        self.touch(inode);
        Ok(())
    }

    /// Frees the nodes below the inode from block `from` on, which begins a node
    /// (`f2fs_truncate_inode_blocks`).
    async fn truncate_nodes(self: &Rc<Self>, inode: &Rc<Inode>, from: u64) -> FsResult<()> {
        let shape = inode.shape();
        if from >= shape.blocks_max() {
            return Ok(());
        }
        let n = Node::WORDS;
        let roots = [(0, 1, 0), (1, 2, 0), (2, 3, 1), (3, 4 + n, 1), (4, 5 + 2 * n, 2)];
        let buf = self.node(inode.ino).await?;
        for (entry, ofs, depth) in roots {
            let nid = buf.with(|b| disk::Inode::of(block_of(b)).nid(entry));
            if nid == 0 {
                continue;
            }
            let whole = Box::pin(self.truncate_below(inode, nid, ofs, depth, from)).await?;
            if whole {
                self.set_nid(&buf, true, entry, 0).await;
            }
        }
        Ok(())
    }

    /// Frees what lies in or below a node from block `from` on. Yes: the node went too.
    async fn truncate_below(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        nid: u32,
        ofs: u32,
        depth: u32,
        from: u64,
    ) -> FsResult<bool> {
        let shape = inode.shape();
        let (first, unit) = span_of(&shape, ofs, depth);
        if from >= first + unit * if depth == 0 { 1 } else { u64::from(Node::WORDS) } {
            return Ok(false);
        }
        let node = match self.node(nid).await {
            Ok(node) => node,
            // It was never written, or is gone: nothing is left of it.
            Err(FsError::NotFound) => return Ok(true),
            Err(e) => return Err(e),
        };
        let footer = node.with(|b| *Footer::of(block_of(b)));
        if footer.ino.get() != inode.ino || footer.is_inode() || footer.offset() != ofs {
            self.set_need_fsck();
            let at = self.node_at(nid).await;
            let expected = format!("inode {}, place {ofs} (node {nid})", inode.ino);
            let found = footer.ino.get().into();
            return Err(FsError::corrupt("f2fs node", "footer", at, found, expected));
        }
        if depth == 0 {
            let dn = Dnode { node, nid, ofs, slot: 0, first, slots: shape.node_addrs };
            self.free_addrs(inode, &dn, 0..dn.slots).await?;
            self.free_tree_node(inode, nid, dn.node).await?;
            return Ok(true);
        }
        let start = (from.saturating_sub(first) / unit) as u32;
        let ahead: Vec<u32> =
            node.with(|b| Node::of(block_of(b)).words().skip(start as usize).collect());
        for nid in ahead.iter().copied().filter(|nid| *nid != 0) {
            self.ra_node(nid).await;
        }
        for (entry, child) in (start..).zip(ahead) {
            if child == 0 {
                continue;
            }
            let step = if depth == 2 { Node::WORDS + 1 } else { 1 };
            let child_ofs = ofs + 1 + entry * step;
            let whole =
                Box::pin(self.truncate_below(inode, child, child_ofs, depth - 1, from)).await?;
            if whole {
                self.set_nid(&node, false, entry, 0).await;
            }
        }
        if from <= first {
            self.free_tree_node(inode, nid, node).await?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn free_tree_node(&self, inode: &Rc<Inode>, nid: u32, node: Rc<Buffer>) -> FsResult<()> {
        self.free_node(nid, node).await?;
        self.add_blocks(inode, -1);
        Ok(())
    }

    /// Frees the node with attributes, if there is one (`f2fs_truncate_xattr_node`).
    pub(super) async fn free_xattr_node(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let nid = inode.f.borrow().xattr_nid;
        if nid == 0 {
            return Ok(());
        }
        let node = self.node(nid).await?;
        let footer = node.with(|b| *Footer::of(block_of(b)));
        if footer.ino.get() != inode.ino || footer.offset() != tree::XATTR_OFFSET {
            let at = self.node_at(nid).await;
            let expected = format!("inode {}, attributes (node {nid})", inode.ino);
            let found = footer.ino.get().into();
            return Err(FsError::corrupt("f2fs node", "footer", at, found, expected));
        }
        self.free_tree_node(inode, nid, node).await?;
        self.change(inode, |f| f.xattr_nid = 0);
        Ok(())
    }

    /// Frees the inode's own node, of which everything else is free (`f2fs_remove_inode_page`).
    pub(super) async fn remove_inode_node(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        let _tree = inode.map_lock.lock().await;
        let node = self.node(inode.ino).await?;
        self.free_xattr_node(inode).await?;
        if inode.is_file() && !inode.has_inline(inline::DATA) {
            let dn = Dnode {
                node: node.clone(),
                nid: inode.ino,
                ofs: 0,
                slot: 0,
                first: 0,
                slots: inode.shape().inode_addrs,
            };
            self.free_addrs(inode, &dn, 0..1).await?;
        }
        // Marks that were set until here are for a node that is no more.
        self.mark_inode_synced(inode);
        self.free_node(inode.ino, node).await
    }

    /// Zeroes inline data from byte `from` on (`f2fs_truncate_inline_inode`).
    pub(super) async fn truncate_inline(&self, inode: &Rc<Inode>, node: &Rc<Buffer>, from: u64) {
        let shape = inode.shape();
        if from >= u64::from(shape.inline_bytes()) {
            return;
        }
        self.wait_on_page_writeback(node, Kind::Node, true).await;
        node.with_mut(|b| {
            let area = disk::Inode::of_mut(block_mut(b)).inline_area_mut(&shape);
            if let Some(tail) = area.get_mut(from as usize..) {
                tail.fill(0);
            }
        });
        self.dirty_node(node);
        if from == 0 {
            self.change(inode, |f| f.inline &= !inline::DATA_EXIST);
        }
    }

    /// A new length (`f2fs_setattr` with `ATTR_SIZE`). The caller has the inode's `lock`.
    pub(super) async fn set_length(self: &Rc<Self>, inode: &Rc<Inode>, size: u64) -> FsResult<()> {
        let old = inode.size.get();
        F2fs::check_not_atomic(inode)?;
        if size > inode.shape().blocks_max() * 4096 {
            return Err(FsError::TooBig);
        }
        if size > u64::from(inode.shape().inline_bytes()) {
            self.convert_inline(inode).await?;
        }
        self.zero_beyond_end(inode, size, true).await?;
        inode.size.set(size);
        if size <= old {
            self.truncate_file(inode).await?;
        }
        self.touch(inode);
        inode.last_disk_size.set(size);
        Ok(())
    }

    /// Blocks lie beyond the end: recovery is not to take them for more length
    /// (`file_set_keep_isize`).
    pub(super) fn keep_size(&self, inode: &Rc<Inode>) {
        if !inode.has_advice(advise::KEEP_SIZE) {
            self.change(inode, |f| f.advise |= advise::KEEP_SIZE);
        }
    }
}

/// First block below a node, and blocks that each of its entries stands for (of a node with
/// addresses: those that it has in all).
fn span_of(shape: &Shape, ofs: u32, depth: u32) -> (u64, u64) {
    let per_node = u64::from(shape.node_addrs);
    let below = ofs + depth;
    let first = shape.first_block(below).unwrap_or(0);
    let unit = match depth {
        0 | 1 => per_node,
        _ => per_node * u64::from(Node::WORDS),
    };
    (first, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stands_for_the_blocks_below_it() {
        let shape = Shape { extra_words: 0, xattr_words: 50, inode_addrs: 873, node_addrs: 1018 };
        assert_eq!(span_of(&shape, 1, 0), (873, 1018));
        assert_eq!(span_of(&shape, 3, 1), (873 + 2 * 1018, 1018));
        let double = 873 + 2 * 1018 + 2 * 1018 * 1018;
        assert_eq!(span_of(&shape, 5 + 2 * 1018, 2), (double, 1018 * 1018));
        assert_eq!(span_of(&shape, 6 + 2 * 1018, 1), (double, 1018));
    }
}
