//! Nodes and maps of files while they are being recovered.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};

use crate::disk::inode::inline;
use crate::disk::{Block, Footer, Inode, Node, Place, Shape, Summary, ZERO_BLOCK, addr, tree};
use crate::image::Image;

use super::tables::Tables;
use super::zones::ZoneTable;

/// A node and which of its addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) nid: u32,
    pub(super) slot: u32,
}

/// The file system while it is being recovered.
pub(super) struct State<'a> {
    pub(super) t: Tables<'a>,
    /// Nodes that differ from the image.
    pub(super) nodes: BTreeMap<u32, Box<Block>>,
    /// Blocks of directories that differ from the image, by inode and place in it.
    pub(super) names: BTreeMap<(u32, u64), Box<Block>>,
    /// Shapes of inodes as they were when they were first read: like the kernel's inode in memory,
    /// they do not follow flags that are recovered.
    shapes: BTreeMap<u32, Shape>,
    /// Inodes that got other blocks or a name.
    pub(super) changed: BTreeSet<u32>,
}

impl<'a> State<'a> {
    /// `aside`: see [`super::RecoverOptions::aside`].
    pub(super) fn new(image: &'a Image<'a>, zones: ZoneTable, aside: bool) -> State<'a> {
        State {
            t: Tables::new(image, zones, aside),
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            shapes: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    pub(super) fn feature(&self) -> u32 {
        self.t.image.super_block().feature.get()
    }

    /// A node as it is now. Errors: `NotFound`; `Corrupt`.
    pub(super) fn node(&self, nid: u32) -> FsResult<Box<Block>> {
        match self.nodes.get(&nid) {
            Some(block) => Ok(block.clone()),
            None if self.t.nat(nid)?.is_free() => Err(FsError::NotFound),
            None => Ok(self.t.image.node(nid)?.1),
        }
    }

    /// What `f` says of a node as it is now, without a copy of one that differs from the image.
    /// Errors: as [`State::node`].
    pub(super) fn of_node<T>(&self, nid: u32, f: impl FnOnce(&Block) -> T) -> FsResult<T> {
        match self.nodes.get(&nid) {
            Some(block) => Ok(f(block)),
            None => self.node(nid).map(|block| f(&block)),
        }
    }

    /// A node, to change it.
    pub(super) fn node_mut(&mut self, nid: u32) -> FsResult<&mut Block> {
        if !self.nodes.contains_key(&nid) {
            let block = self.node(nid)?;
            self.nodes.insert(nid, block);
        }
        self.nodes.get_mut(&nid).map(|b| &mut **b).ok_or(FsError::Io)
    }

    /// Looks at an inode for the first time: it must be one. `f2fs_iget`.
    pub(super) fn get(&mut self, ino: u32) -> FsResult<Shape> {
        if let Some(shape) = self.shapes.get(&ino) {
            return Ok(*shape);
        }
        let shape = if self.nodes.contains_key(&ino) {
            Shape::of(Inode::of(&*self.node(ino)?), self.feature())
        } else if self.t.nat(ino)?.is_free() {
            return Err(FsError::NotFound);
        } else {
            self.t.image.inode(ino)?.shape
        };
        self.shapes.insert(ino, shape);
        Ok(shape)
    }

    /// Looks at an inode anew, after its words have another use.
    pub(super) fn reshape(&mut self, ino: u32) -> FsResult<()> {
        let shape = Shape::of(Inode::of(&*self.node(ino)?), self.feature());
        self.shapes.insert(ino, shape);
        Ok(())
    }

    pub(super) fn inode_mut(&mut self, ino: u32) -> FsResult<&mut Inode> {
        self.node_mut(ino).map(Inode::of_mut)
    }

    fn add_blocks(&mut self, ino: u32, by: i64) -> FsResult<()> {
        let inode = self.inode_mut(ino)?;
        inode.blocks = inode.blocks.get().saturating_add_signed(by).into();
        Ok(())
    }

    /// The node with the address of a block of a file. Without `make`, `None` where there is none;
    /// with it, nodes are made. `f2fs_get_dnode_of_data`.
    pub(super) fn find(&mut self, ino: u32, block: u64, make: bool) -> FsResult<Option<Slot>> {
        let shape = self.get(ino)?;
        let Some(Place { slot, path, depth }) = shape.place(block) else {
            return Err(FsError::TooBig);
        };
        let mut nid = ino;
        for (level, (child, offset)) in path.iter().take(depth as usize).enumerate() {
            let next = self.of_node(nid, |parent| match level {
                0 => Inode::of(parent).nid(*child),
                _ => Node::of(parent).word(*child),
            })?;
            let next = match next {
                0 if !make => return Ok(None),
                0 => {
                    let fresh = self.new_node(ino, *offset)?;
                    let parent = self.node_mut(nid)?;
                    match level {
                        0 => Inode::of_mut(parent).set_nid(*child, fresh),
                        _ => Node::of_mut(parent).set_word(*child, fresh),
                    }
                    fresh
                }
                next => next,
            };
            let found = self.of_node(next, |block| *Footer::of(block))?;
            if found.ino.get() != ino || found.offset() != *offset {
                let expected = format!("offset {offset} of inode {ino} (node {next})");
                let structure = "f2fs node";
                return Err(FsError::corrupt(
                    structure,
                    "footer",
                    0,
                    found.ino.get().into(),
                    expected,
                ));
            }
            nid = next;
        }
        Ok(Some(Slot { nid, slot }))
    }

    /// A new node with nothing in it. `f2fs_new_node_page`.
    pub(super) fn new_node(&mut self, ino: u32, offset: u32) -> FsResult<u32> {
        let nid = self.t.free_nid()?;
        self.t.count_node()?;
        let is_dir = Inode::of(&*self.node(ino)?).is_dir();
        let mut block = Box::new(ZERO_BLOCK);
        let footer = Footer::of_mut(&mut block);
        (footer.nid, footer.ino) = (nid.into(), ino.into());
        footer.set_offset(offset);
        footer.set_mark(Footer::COLD, !is_dir);
        self.nodes.insert(nid, block);
        self.t.set_node(nid, ino, addr::NEW)?;
        self.add_blocks(ino, 1)?;
        Ok(nid)
    }

    /// The address in a slot.
    pub(super) fn address(&mut self, ino: u32, at: Slot) -> FsResult<u32> {
        let shape = self.get(ino)?;
        self.of_node(at.nid, |block| match at.nid == ino {
            true => Inode::of(block).addr(&shape, at.slot),
            false => Node::of(block).word(at.slot),
        })
    }

    /// Sets the address in a slot.
    pub(super) fn set_address(&mut self, ino: u32, at: Slot, to: u32) -> FsResult<()> {
        let shape = self.get(ino)?;
        let block = self.node_mut(at.nid)?;
        if at.nid == ino {
            Inode::of_mut(block).set_addr(&shape, at.slot, to);
        } else {
            Node::of_mut(block).set_word(at.slot, to);
        }
        // The cached run may have been here: none is better than a wrong one.
        self.inode_mut(ino)?.ext = crate::disk::inode::LargestExtent::default();
        Ok(())
    }

    /// Makes a hole of one block. `f2fs_truncate_data_blocks_range`.
    pub(super) fn punch(&mut self, ino: u32, at: Slot) -> FsResult<()> {
        let old = self.address(ino, at)?;
        if old == addr::NULL {
            return Ok(());
        }
        self.set_address(ino, at, addr::NULL)?;
        if addr::is_block(old) {
            self.t.mark(old, false)?;
        }
        self.t.counts.blocks = self.t.counts.blocks.saturating_sub(1);
        self.add_blocks(ino, -1)
    }

    /// Promises a block where there is a hole. `f2fs_reserve_new_block`.
    pub(super) fn reserve(&mut self, ino: u32, at: Slot) -> FsResult<()> {
        if self.address(ino, at)? != addr::NULL {
            return Ok(());
        }
        self.t.count_block()?;
        self.set_address(ino, at, addr::NEW)?;
        self.add_blocks(ino, 1)
    }

    /// Gives up a node and its number. `truncate_node`.
    pub(super) fn drop_node(&mut self, ino: u32, nid: u32) -> FsResult<()> {
        let entry = self.t.nat(nid)?;
        if entry.is_free() {
            return Ok(());
        }
        if addr::is_block(entry.block_addr.get()) {
            self.t.mark(entry.block_addr.get(), false)?;
        }
        self.nodes.remove(&nid);
        self.t.set_node(nid, entry.ino.get(), addr::NULL)?;
        self.t.counts.nodes = self.t.counts.nodes.saturating_sub(1);
        self.t.counts.blocks = self.t.counts.blocks.saturating_sub(1);
        if nid == ino {
            self.t.counts.inodes = self.t.counts.inodes.saturating_sub(1);
            return Ok(());
        }
        self.add_blocks(ino, -1)
    }

    /// Gives up all data of a file and the nodes below its inode. `f2fs_truncate_blocks` to 0.
    pub(super) fn truncate(&mut self, ino: u32) -> FsResult<()> {
        let shape = self.get(ino)?;
        let inode = self.node(ino)?;
        let inode = Inode::of(&inode);
        // Those of a device file are its number.
        let has_blocks = inode.is_file() || inode.is_dir() || inode.is_symlink();
        if has_blocks && inode.inline & (inline::DATA | inline::DENTRY) == 0 {
            for slot in 0..shape.inode_addrs {
                self.punch(ino, Slot { nid: ino, slot })?;
            }
        }
        let n = Node::WORDS;
        let roots = [(0, 1, 0), (1, 2, 0), (2, 3, 1), (3, 4 + n, 1), (4, 5 + 2 * n, 2)];
        for (slot, offset, level) in roots {
            let nid = inode.nid(slot);
            if nid != 0 {
                self.truncate_below(ino, nid, offset, level)?;
                self.inode_mut(ino)?.set_nid(slot, 0);
            }
        }
        self.names.retain(|(dir, _), _| *dir != ino);
        Ok(())
    }

    fn truncate_below(&mut self, ino: u32, nid: u32, offset: u32, level: u32) -> FsResult<()> {
        let block = self.node(nid)?;
        let footer = Footer::of(&block);
        if footer.ino.get() != ino || footer.offset() != offset {
            let expected = format!("offset {offset} of inode {ino} (node {nid})");
            let found = footer.ino.get().into();
            return Err(FsError::corrupt("f2fs node", "footer", 0, found, expected));
        }
        let step = if level == 2 { Node::WORDS + 1 } else { 1 };
        for (word, n) in Node::of(&block).words().zip(0..) {
            match level {
                _ if word == 0 => {}
                0 => self.punch(ino, Slot { nid, slot: n })?,
                _ => self.truncate_below(ino, word, offset + 1 + n * step, level - 1)?,
            }
        }
        self.drop_node(ino, nid)
    }

    /// Deletes a file without names. `f2fs_evict_inode`, `f2fs_remove_inode_page`.
    pub(super) fn delete(&mut self, ino: u32) -> FsResult<()> {
        self.get(ino)?;
        self.truncate(ino)?;
        let xattr = Inode::of(&*self.node(ino)?).xattr_nid.get();
        if xattr != 0 {
            self.drop_node(ino, xattr)?;
        }
        self.drop_node(ino, ino)?;
        self.shapes.remove(&ino);
        Ok(())
    }

    /// Summary of the block at a slot: whose it is.
    pub(super) fn owner_of(&self, at: Slot) -> FsResult<Summary> {
        Ok(Summary::new(at.nid, self.t.nat(at.nid)?.version, at.slot))
    }

    /// Takes the words of a node that roll-forward found as the attribute node of a file.
    /// `f2fs_recover_xattr_data`.
    pub(super) fn replace_attributes(&mut self, ino: u32, from: &Block) -> FsResult<()> {
        let old = Inode::of(&*self.node(ino)?).xattr_nid.get();
        if old != 0 {
            self.drop_node(ino, old)?;
        }
        let nid = self.new_node(ino, tree::XATTR_OFFSET)?;
        self.inode_mut(ino)?.xattr_nid = nid.into();
        let to = self.node_mut(nid)?;
        let bytes = from.get(..Node::BODY_BYTES).unwrap_or(&[]);
        to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(())
    }
}
