//! Where a file's blocks are: from the inode down to the node that has an address.
//!
//! Everything here is called with the inode's `map_lock` held, and, where it makes or frees
//! something, with [`F2fs::lock_op`] held since before that.
//!
//! Source: Linux `fs/f2fs/node.c` (`f2fs_get_dnode_of_data`), `fs/f2fs/data.c`
//! (`f2fs_reserve_new_blocks`).

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::Buffer;

use super::inode::{Inode, block_mut, block_of, fi};
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::{self, Footer, Node, addr};

/// How to look for a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Find {
    /// What is not there is a hole (`LOOKUP_NODE`).
    Lookup,
    /// As `Lookup`; its neighbours will be wanted too (`LOOKUP_NODE_RA`).
    Ahead,
    /// What is not there is made (`ALLOC_NODE`).
    Alloc,
}

/// A node with addresses, and one of them.
#[derive(Clone)]
pub(super) struct Dnode {
    /// The node.
    pub node: Rc<Buffer>,
    /// Its number.
    pub nid: u32,
    /// Its place in the tree.
    pub ofs: u32,
    /// The address.
    pub slot: u32,
    /// First block whose address it has.
    pub first: u64,
    /// Addresses in it.
    pub slots: u32,
}

impl Dnode {
    /// An address of it.
    pub fn addr(&self, inode: &Inode, slot: u32) -> u32 {
        let shape = inode.shape();
        self.node.with(|b| match self.ofs {
            0 => disk::Inode::of(block_of(b)).addr(&shape, slot),
            _ => Node::of(block_of(b)).word(slot),
        })
    }
}

/// What was found.
pub(super) enum Found {
    /// The node.
    At(Dnode),
    /// None: the next block that may be somewhere.
    Hole(u64),
}

impl F2fs {
    /// The node that has the address of block `index` (`f2fs_get_dnode_of_data`).
    ///
    /// Errors: `TooBig`; `NoSpace` when it makes some; `Corrupt`, `Io`.
    pub(super) async fn dnode(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
        how: Find,
    ) -> FsResult<Found> {
        let shape = inode.shape();
        let place = shape.place(index).ok_or(FsError::TooBig)?;
        let mut node = self.node(inode.ino).await?;
        let has_data = inode.has_inline(disk::inode::inline::DATA);
        if has_data && index > 0 {
            return Ok(Found::Hole(u64::MAX));
        }
        let mut nid = inode.ino;
        for (level, (entry, ofs)) in place.steps().iter().enumerate() {
            let of_inode = level == 0;
            let word = |b: &Rc<Buffer>, n: u32| {
                b.with(|b| match of_inode {
                    true => disk::Inode::of(block_of(b)).nid(n),
                    false => Node::of(block_of(b)).word(n),
                })
            };
            let next = word(&node, *entry);
            if next == 0 && how != Find::Alloc {
                return Ok(Found::Hole(next_after(&shape, place.depth, level as u32, index)));
            }
            let child = if next == 0 {
                self.grow(inode, &node, of_inode, *entry, *ofs).await?
            } else {
                let got = if how == Find::Ahead && level as u32 + 1 == place.depth && level > 0 {
                    let ahead: Vec<u32> = (entry + 1..(entry + 129).min(Node::WORDS))
                        .map(|n| word(&node, n))
                        .collect();
                    self.node_ra(next, &ahead).await
                } else {
                    self.node(next).await
                };
                match got {
                    Err(FsError::NotFound) if how != Find::Alloc => {
                        let next = next_after(&shape, place.depth, level as u32, index);
                        return Ok(Found::Hole(next));
                    }
                    got => (got?, next),
                }
            };
            self.check_owner(inode, &child.0, child.1, *ofs).await?;
            (node, nid) = child;
        }
        let ofs = place.offset();
        let first = shape.first_block(ofs).unwrap_or(index - u64::from(place.slot));
        let slots = shape.addrs_of(ofs);
        Ok(Found::At(Dnode { node, nid, ofs, slot: place.slot, first, slots }))
    }

    /// A node of a tree must be of that file, and of that place.
    async fn check_owner(
        &self,
        inode: &Inode,
        node: &Rc<Buffer>,
        nid: u32,
        ofs: u32,
    ) -> FsResult<()> {
        let (ino, found) = node.with(|b| {
            let f = Footer::of(block_of(b));
            (f.ino.get(), f.offset())
        });
        if ino != inode.ino || found != ofs {
            let at = self.node_at(nid).await;
            let expected = format!("inode {}, place {ofs} (node {nid})", inode.ino);
            return Err(FsError::corrupt("f2fs node", "footer", at, ino.into(), expected));
        }
        Ok(())
    }

    /// Makes a node below `parent`.
    async fn grow(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        parent: &Rc<Buffer>,
        of_inode: bool,
        entry: u32,
        ofs: u32,
    ) -> FsResult<(Rc<Buffer>, u32)> {
        if inode.is(fi::NO_ALLOC) {
            return Err(FsError::NotPermitted);
        }
        let nid = self.alloc_nid().await?;
        let node = match self.new_node(inode.ino, nid, ofs, inode.is_dir()).await {
            Ok(node) => node,
            Err(e) => {
                self.alloc_nid_failed(nid);
                return Err(e);
            }
        };
        self.add_blocks(inode, 1);
        self.set_nid(parent, of_inode, entry, nid).await;
        self.alloc_nid_done(nid);
        Ok((node, nid))
    }

    /// Sets a node's number in the node above (`set_nid`).
    pub(super) async fn set_nid(&self, parent: &Rc<Buffer>, of_inode: bool, entry: u32, nid: u32) {
        self.wait_on_page_writeback(parent, Kind::Node, true).await;
        parent.with_mut(|b| match of_inode {
            true => disk::Inode::of_mut(block_mut(b)).set_nid(entry, nid),
            false => Node::of_mut(block_mut(b)).set_word(entry, nid),
        });
        self.dirty_node(parent);
    }

    /// Sets addresses from slot `slot` on (`f2fs_set_data_blkaddr`). Waits: for the node's
    /// writeback.
    pub(super) async fn set_addrs(&self, inode: &Inode, dn: &Dnode, to: &[(u32, u32)]) {
        self.wait_on_page_writeback(&dn.node, Kind::Node, true).await;
        let shape = inode.shape();
        dn.node.with_mut(|b| {
            for (slot, addr) in to {
                match dn.ofs {
                    0 => disk::Inode::of_mut(block_mut(b)).set_addr(&shape, *slot, *addr),
                    _ => Node::of_mut(block_mut(b)).set_word(*slot, *addr),
                }
            }
        });
        self.dirty_node(&dn.node);
    }

    /// [`F2fs::set_addrs`] of one, and what is known of runs (`f2fs_update_data_blkaddr`).
    pub(super) async fn move_block(&self, inode: &Rc<Inode>, dn: &Dnode, slot: u32, to: u32) {
        self.set_addrs(inode, dn, &[(slot, to)]).await;
        let blk = if addr::is_block(to) { to } else { 0 };
        self.update_extent(inode, dn.first + u64::from(slot), 1, blk);
    }

    /// Blocks from `index` on are at `blk` (0: nowhere).
    pub(super) fn update_extent(&self, inode: &Rc<Inode>, index: u64, len: u32, blk: u32) {
        let Ok(fofs) = u32::try_from(index) else { return };
        if inode.is(fi::NO_EXTENT) {
            return;
        }
        let changed = inode.extents.borrow_mut().update(fofs, len, blk);
        if changed.give_up {
            inode.set(fi::NO_EXTENT);
        }
        if changed.largest {
            self.mark_inode_dirty(inode, true);
        }
    }

    /// Promises space to those of `slots` that have none (`f2fs_reserve_new_blocks`). How many got
    /// it; fewer than there are, if space ran out.
    ///
    /// Errors: `NoSpace` if none could.
    pub(super) async fn reserve(
        &self,
        inode: &Rc<Inode>,
        dn: &Dnode,
        slots: std::ops::Range<u32>,
    ) -> FsResult<u64> {
        let null = |slot: &u32| dn.addr(inode, *slot) == addr::NULL;
        let mut want: Vec<u32> = slots.filter(null).collect();
        if want.is_empty() {
            return Ok(0);
        }
        if inode.is(fi::NO_ALLOC) {
            return Err(FsError::NotPermitted);
        }
        let granted = self.inc_valid_blocks(want.len() as u64)?;
        want.truncate(granted as usize);
        self.add_blocks(inode, granted as i64);
        let to: Vec<(u32, u32)> = want.iter().map(|slot| (*slot, addr::NEW)).collect();
        self.set_addrs(inode, dn, &to).await;
        Ok(granted)
    }

    /// The node for block `index`, made if it must be, and the block's address, promised if it has
    /// none (`f2fs_reserve_block`).
    pub(super) async fn reserve_block(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
    ) -> FsResult<(Dnode, u32)> {
        let Found::At(dn) = self.dnode(inode, index, Find::Alloc).await? else {
            return Err(FsError::Invalid("a block beside inline data"));
        };
        let found = dn.addr(inode, dn.slot);
        if found != addr::NULL {
            return Ok((dn, found));
        }
        self.reserve(inode, &dn, dn.slot..dn.slot + 1).await?;
        Ok((dn, addr::NEW))
    }

    /// A block's address, `NULL` if it is nowhere; what is known of runs is asked first. Takes
    /// `map_lock`.
    pub(super) async fn address(self: &Rc<Self>, inode: &Rc<Inode>, index: u64) -> FsResult<u32> {
        let _tree = inode.map_lock.lock().await;
        self.address_in(inode, index).await
    }

    /// [`F2fs::address`] for those who hold the lock.
    pub(super) async fn address_in(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        index: u64,
    ) -> FsResult<u32> {
        if let Some((at, _)) = inode.extents.borrow().find(index) {
            return Ok(at);
        }
        match self.dnode(inode, index, Find::Lookup).await? {
            Found::Hole(_) => Ok(addr::NULL),
            Found::At(dn) => self.checked(inode, dn.addr(inode, dn.slot)),
        }
    }

    /// An address that is none of the main area is the image's fault.
    pub(super) fn checked(&self, inode: &Inode, found: u32) -> FsResult<u32> {
        if found == addr::COMPRESS {
            let why = format!("compressed data (inode {})", inode.ino);
            return Err(FsError::Unsupported(why));
        }
        if addr::is_block(found) && !self.g.is_main(found) {
            let expected = format!("a block of the main area (inode {})", inode.ino);
            return Err(FsError::corrupt("f2fs node", "addr", 0, found.into(), expected));
        }
        Ok(found)
    }
}

/// The first block behind the hole that a missing node at `level` (0: below the inode) leaves
/// (`f2fs_get_next_page_offset`).
fn next_after(shape: &disk::Shape, depth: u32, level: u32, index: u64) -> u64 {
    let (per_node, n) = (u64::from(shape.node_addrs), u64::from(Node::WORDS));
    let unit = per_node * n.pow(depth - 1 - level);
    let mut base = u64::from(shape.inode_addrs);
    if depth >= 2 {
        base += 2 * per_node;
    }
    if depth == 3 {
        base += 2 * per_node * n;
    }
    ((index - base) / unit + 1) * unit + base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_node_leaves_a_hole_up_to_the_next_node_of_its_level() {
        let shape =
            disk::Shape { extra_words: 0, xattr_words: 50, inode_addrs: 873, node_addrs: 1018 };
        assert_eq!(next_after(&shape, 1, 0, 900), 873 + 1018);
        let first = 873 + 2 * 1018;
        assert_eq!(next_after(&shape, 2, 1, first + 5), first + 1018);
        assert_eq!(next_after(&shape, 2, 0, first + 5), first + 1018 * 1018);
        let double = first + 2 * 1018 * 1018;
        assert_eq!(next_after(&shape, 3, 0, double), double + 1018 * 1018 * 1018);
    }
}
