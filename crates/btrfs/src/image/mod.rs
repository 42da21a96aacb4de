//! Reading a file system: purely, synchronously, from any [`View`], and never trusting it.
//!
//! Picture:    first super block -> chunks of its array -> chunk tree -> where all addresses lie;
//!             root tree -> trees of files -> inode, names, extents; checksum tree -> what data
//!             must be. [`list()`] lists all names below the default subvolume.
//! Invariants: 1. no bytes make it panic. A walk over a tree sees each of its blocks once: levels
//!                fall, and keys ascend over the whole tree, which is checked.
//!             2. nothing here writes.
//!             3. an error says where in the image it lies.
//! Left out:   contents that are compressed (refused by name); snapshots that are being deleted.
//! Source:     fs/btrfs of Linux 6.12: disk-io.c, tree-checker.c, inode.c, for what is believed.

#![deny(clippy::indexing_slicing)]

mod data;
mod inodes;
mod list;
mod mount;
mod reader;
mod survey;
mod tree_check;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::View;
use zerocopy::FromBytes;

use crate::chunks::{ChunkMap, Device};
use crate::disk::node::Common;
use crate::disk::{Chunk, Key, RootItem, SuperBlock, at32, dir, feature, id, kind};

pub use data::Piece;
pub use inodes::{DirName, Record, Target};
pub use list::{InspectOptions, Inspection, inspect, list};
pub use reader::Tree;
pub use survey::{survey, survey_as_is};

/// An opened file system.
pub struct Image<'a> {
    view: &'a dyn View,
    sb: Box<SuperBlock>,
    common: Common,
    chunks: ChunkMap,
    root_tree: Tree,
    trees: RefCell<BTreeMap<u64, Option<Tree>>>,
    held: RefCell<BTreeMap<u64, Rc<[u8]>>>,
    /// Are the items of leaves checked when they are read, as Linux does?
    is_strict: Cell<bool>,
    /// Blocks whose items were.
    checked: RefCell<BTreeSet<u64>>,
}

impl<'a> Image<'a> {
    /// Opens the file system in `view` by its first super block, as Linux does: the copies are for
    /// those who repair.
    ///
    /// Errors: `Corrupt`; `Unsupported` for features, profiles and checksums that are not done
    /// here, by name.
    pub fn open(view: &'a dyn View) -> FsResult<Image<'a>> {
        let sb = super_block(view)?;
        let at = SuperBlock::AT;
        feature::check(sb.incompat_flags.get(), sb.compat_ro_flags.get(), false)?;
        if sb.dev_item.total_bytes.get() > view.len_bytes() {
            let (found, field) = (sb.dev_item.total_bytes.get(), "dev_item.total_bytes");
            let expected = format!("{:#x} or fewer", view.len_bytes());
            return Err(FsError::corrupt("btrfs super block", field, at, found, expected));
        }
        let common = Common {
            csum: sb.csum_kind(at)?,
            fsid: sb.tree_uuid(),
            node_bytes: at32(sb.nodesize.get()),
        };
        let device = Device::of(&sb.dev_item);
        let mut chunks = ChunkMap::default();
        for (key, chunk) in sb.system_chunks(at)? {
            chunks.add(key, &chunk, device, at)?;
        }
        let root_tree = Tree {
            id: id::ROOT_TREE,
            bytenr: sb.root.get(),
            level: sb.root_level,
            generation: sb.generation.get(),
            item: RootItem::zeroed(),
        };
        let mut image = Image {
            view,
            sb,
            common,
            chunks,
            root_tree,
            trees: RefCell::default(),
            held: RefCell::default(),
            is_strict: Cell::default(),
            checked: RefCell::default(),
        };
        let mut found = Vec::new();
        image.each(&image.chunk_tree(), Key::MIN, Key::MAX, &mut |item| {
            if item.key.kind == kind::CHUNK_ITEM {
                let chunk = Chunk::load_item(item.bytes, item.at)?;
                image.sb.check_kinds(&chunk, item.at)?;
                found.push((item.key, chunk, item.at));
            }
            Ok(true)
        })?;
        for (key, chunk, at) in found {
            image.chunks.add(key, &chunk, device, at)?;
        }
        Ok(image)
    }

    /// The super block.
    pub fn super_block(&self) -> &SuperBlock {
        &self.sb
    }
    /// What it is read from.
    pub fn view(&self) -> &'a dyn View {
        self.view
    }
    /// Where logical addresses lie.
    pub fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }
    /// Checksum, uuid and size of tree blocks.
    pub fn common(&self) -> &Common {
        &self.common
    }
    /// The tree of chunks.
    fn chunk_tree(&self) -> Tree {
        Tree {
            id: id::CHUNK_TREE,
            bytenr: self.sb.chunk_root.get(),
            level: self.sb.chunk_root_level,
            generation: self.sb.chunk_root_generation.get(),
            item: RootItem::zeroed(),
        }
    }
    /// The tree of root items.
    pub fn root_tree(&self) -> &Tree {
        &self.root_tree
    }

    /// Byte address on the device of a logical address, of its first copy; 0 if it has none.
    pub(crate) fn place(&self, logical: u64) -> u64 {
        let places = self.chunks.places(logical, 1).unwrap_or_default();
        places.first().copied().unwrap_or(0)
    }

    /// A tree by its number: the newest root item. `None`: there is none, or it is being deleted.
    pub fn tree(&self, number: u64) -> FsResult<Option<Tree>> {
        if let Some(tree) = self.trees.borrow().get(&number) {
            return Ok(*tree);
        }
        let found = self.root_item(number)?.filter(|tree| tree.item.refs.get() > 0);
        self.trees.borrow_mut().insert(number, found);
        Ok(found)
    }

    /// The same, also one that is being deleted.
    fn root_item(&self, number: u64) -> FsResult<Option<Tree>> {
        let key = |offset| Key::new(number, kind::ROOT_ITEM, offset);
        let mut found = None;
        self.each(&self.root_tree, key(0), key(u64::MAX), &mut |item| {
            let root = RootItem::load(item.bytes, item.at)?;
            found = Some(Tree {
                id: number,
                bytenr: root.bytenr.get(),
                level: root.level,
                generation: root.generation.get(),
                item: root,
            });
            Ok(true)
        })?;
        Ok(found)
    }

    /// A tree by its number where there must be one. Errors: `Corrupt`.
    pub fn tree_needed(&self, number: u64) -> FsResult<Tree> {
        self.tree(number)?.ok_or_else(|| {
            let at = self.place(self.root_tree.bytenr);
            FsError::corrupt("btrfs root tree", "root item", at, number, "one of this tree")
        })
    }

    /// The subvolume that a mount shows: the one named `default` in the root tree's directory, or
    /// the first tree of files. `get_default_subvol_objectid`.
    pub fn default_subvolume(&self) -> FsResult<u64> {
        let name = b"default";
        let key = Key::new(id::ROOT_TREE_DIR, kind::DIR_ITEM, dir::name_hash(name));
        let mut found = id::FS_TREE;
        self.each(&self.root_tree, key, key, &mut |item| {
            for entry in dir::entries(item.bytes).map_while(Result::ok) {
                if entry.name == name && entry.location.kind == kind::ROOT_ITEM {
                    found = entry.location.objectid;
                }
            }
            Ok(true)
        })?;
        Ok(found)
    }
}

/// The first super block, checked. Errors: `Corrupt`, `Unsupported`, `Io`.
pub(crate) fn super_block(view: &dyn View) -> FsResult<Box<SuperBlock>> {
    let mut bytes = vec![0; SuperBlock::BYTES];
    if view.len_bytes() < SuperBlock::AT + crate::disk::wide(SuperBlock::BYTES) {
        let (found, expected) = (view.len_bytes(), "69632 bytes or more");
        return Err(FsError::corrupt("btrfs image", "length", 0, found, expected));
    }
    view.read_at(SuperBlock::AT, &mut bytes)?;
    let sb = SuperBlock::read_from_bytes(&bytes).map_err(|_| FsError::Io)?;
    sb.verify(SuperBlock::AT)?;
    Ok(Box::new(sb))
}
