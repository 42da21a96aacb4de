//! A file system in memory, as far as it was read or changed.
//!
//! Picture:    [`Disk`] (bytes of the device) -> [`Core::open`]: super block, system's chunks,
//!             chunk tree -> trees, opened when they are first asked for, block by block.
//!             `tree` changes them, `space` finds places, `refs` counts uses, `trans` makes of it
//!             all what is to be written.
//! Invariants: 1. synchronous: nothing waits. What was not in memory is read at once and noted
//!                ([`Core::take_missed`]), so that a caller who simulates time can charge for it.
//!             2. pure: the same bytes and calls give the same bytes.
//!             3. a change that fails half way ([`FsError::NoSpace`], `Corrupt`) leaves the
//!                transaction useless ([`Core::is_broken`] says so, and commits are refused); what
//!                is on the device stays as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::View;
use zerocopy::FromBytes;

use crate::chunks::{ChunkMap, Device};
use crate::disk::node::{Common, Expected};
use crate::disk::{
    Chunk, DevItem, Key, NodeRef, RootItem, SuperBlock, at32, feature, id, kind, wide,
};
use crate::refs::Refs;
use crate::space::Space;
use crate::trans::Trans;
use crate::tree::Purpose;

type Read<'a> = dyn Fn(u64, &mut [u8]) -> FsResult<()> + 'a;

/// Where bytes are read from.
pub struct Disk<'a> {
    bytes: u64,
    read: Box<Read<'a>>,
}

impl fmt::Debug for Disk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<'a> Disk<'a> {
    /// A device of `bytes` bytes; `read` fills a slice from a byte address on.
    pub fn new(bytes: u64, read: impl Fn(u64, &mut [u8]) -> FsResult<()> + 'a) -> Disk<'a> {
        Disk { bytes, read: Box::new(read) }
    }

    /// An image.
    pub fn of_view(view: &'a dyn View) -> Disk<'a> {
        Disk::new(view.len_bytes(), |at, out| view.read_at(at, out))
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills a slice from a byte address on.
    pub fn read(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        (self.read)(at, out)
    }
}

/// A read that was made because a tree block was not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// Byte address on the device.
    pub at: u64,
    /// Bytes.
    pub bytes: u32,
}

/// A copy of a tree block that was bad while another was good.
#[derive(Clone, Debug)]
pub struct Repair {
    /// Byte address on the device.
    pub at: u64,
    /// What it is to be.
    pub bytes: Rc<[u8]>,
}

/// A tree that is open.
#[derive(Clone, Debug)]
pub struct Root {
    /// Number in headers and references: that of the tree, or `TREE_LOG`.
    pub owner: u64,
    /// Key of its root item in the root tree; the root tree and the chunk tree have none there.
    pub key: Key,
    /// Its root item, as it will be written.
    pub item: RootItem,
    /// Address of its root now.
    pub node: u64,
    /// Address of its root when the transaction began to change it.
    pub(crate) commit_node: u64,
    /// May other trees have blocks of it (snapshots)? `BTRFS_ROOT_SHAREABLE`.
    pub(crate) is_shareable: bool,
    /// Is its root item updated after those of files' trees? `BTRFS_ROOT_TRACK_DIRTY`.
    pub(crate) tracks_dirty: bool,
    pub(crate) is_dirty: bool,
    /// Is a snapshot being made of it? `BTRFS_ROOT_FORCE_COW`.
    pub(crate) force_cow: bool,
    /// Transaction that changed it last.
    pub(crate) last_trans: u64,
}

impl Root {
    pub(crate) fn new(owner: u64, key: Key, item: RootItem) -> Root {
        let tracked = [
            id::EXTENT_TREE,
            id::DEV_TREE,
            id::CSUM_TREE,
            id::FREE_SPACE_TREE,
            id::UUID_TREE,
            id::QUOTA_TREE,
        ];
        Root {
            owner,
            key,
            item,
            node: item.bytenr.get(),
            commit_node: item.bytenr.get(),
            is_shareable: id::is_file_tree(owner),
            tracks_dirty: tracked.contains(&owner),
            is_dirty: false,
            force_cow: false,
            last_trans: 0,
        }
    }
}

/// Tree blocks in memory.
#[derive(Default, Debug)]
pub(crate) struct Blocks {
    pub map: BTreeMap<u64, Rc<[u8]>>,
    /// Those that were changed and not written.
    pub dirty: BTreeSet<u64>,
    /// The same of log trees, which are written by themselves.
    pub dirty_log: BTreeSet<u64>,
}

/// A file system in memory.
#[derive(Debug)]
pub struct Core<'a> {
    pub(crate) disk: Disk<'a>,
    pub(crate) sb: Box<SuperBlock>,
    pub(crate) common: Common,
    pub(crate) chunks: ChunkMap,
    pub(crate) chunk_tree_uuid: [u8; 16],
    pub(crate) blocks: Blocks,
    pub(crate) roots: BTreeMap<u64, Root>,
    pub(crate) missed: Vec<Missed>,
    repairs: Vec<Repair>,
    pub(crate) space: Space,
    pub(crate) refs: Refs,
    pub(crate) trans: Trans,
}

impl<'a> Core<'a> {
    /// Opens the file system on a device by its first super block: reads that, the chunk tree, and
    /// nothing else.
    ///
    /// Errors: `Corrupt`; `Unsupported` for features, profiles and numbers of devices that are not
    /// done here, with their names. Whether it can be written, too: [`Core::check_writable`].
    pub fn open(disk: Disk<'a>) -> FsResult<Core<'a>> {
        let mut bytes = vec![0; SuperBlock::BYTES];
        disk.read(SuperBlock::AT, &mut bytes)?;
        let sb = SuperBlock::read_from_bytes(&bytes).map_err(|_| FsError::Io)?;
        Core::open_with(disk, Box::new(sb), SuperBlock::AT)
    }

    /// The same by a super block that was read from byte `at`.
    pub fn open_with(disk: Disk<'a>, sb: Box<SuperBlock>, at: u64) -> FsResult<Core<'a>> {
        sb.verify(at)?;
        feature::check(sb.incompat_flags.get(), sb.compat_ro_flags.get(), false)?;
        if sb.dev_item.total_bytes.get() > disk.len_bytes() {
            let found = sb.dev_item.total_bytes.get();
            let expected = format!("{:#x} or fewer", disk.len_bytes());
            let field = "dev_item.total_bytes";
            return Err(FsError::corrupt("btrfs super block", field, at, found, expected));
        }
        let common = Common {
            csum: sb.csum_kind(at)?,
            fsid: sb.tree_uuid(),
            node_bytes: at32(sb.nodesize.get()),
        };
        let mut chunks = ChunkMap::default();
        let device = Device::of(&sb.dev_item);
        for (key, chunk) in sb.system_chunks(at)? {
            chunks.add(key, &chunk, device, at)?;
        }
        let mut core = Core {
            disk,
            common,
            chunks,
            chunk_tree_uuid: [0; 16],
            blocks: Blocks::default(),
            roots: BTreeMap::new(),
            missed: Vec::new(),
            repairs: Vec::new(),
            space: Space::default(),
            refs: Refs::default(),
            trans: Trans::new(sb.generation.get()),
            sb,
        };
        let fixed = |bytenr, generation, level| {
            let mut item = RootItem::zeroed();
            (item.bytenr, item.generation, item.level) = (bytenr, generation, level);
            item
        };
        let sb = &core.sb;
        let chunk_tree = fixed(sb.chunk_root, sb.chunk_root_generation, sb.chunk_root_level);
        let root_tree = fixed(sb.root, sb.generation, sb.root_level);
        for (tree, item) in [(id::CHUNK_TREE, chunk_tree), (id::ROOT_TREE, root_tree)] {
            core.roots.insert(tree, Root::new(tree, Key::new(tree, kind::ROOT_ITEM, 0), item));
        }
        core.read_chunk_tree()?;
        Ok(core)
    }

    /// Source: `btrfs_read_chunk_tree`, `read_one_dev`.
    fn read_chunk_tree(&mut self) -> FsResult<()> {
        let (root, _) = self.load_root(id::CHUNK_TREE)?;
        self.chunk_tree_uuid = self.node(root)?.header().chunk_tree_uuid;
        let mut has_device = false;
        let mut path = self.seek(id::CHUNK_TREE, Key::MIN)?;
        while let Some(here) = &mut path {
            let at = self.place_of(here);
            let Some((key, bytes)) = self.item(here)? else { break };
            match key.kind {
                kind::CHUNK_ITEM => {
                    let chunk = Chunk::load_item(bytes, at)?;
                    self.sb.check_kinds(&chunk, at)?;
                    self.chunks.add(key, &chunk, Device::of(&self.sb.dev_item), at)?;
                }
                kind::DEV_ITEM => {
                    // It comes before all chunks.
                    let item = DevItem::load(key, bytes, at)?;
                    self.take_device(&item, at)?;
                    has_device = true;
                }
                _ => {}
            }
            if !self.next(here)? {
                break;
            }
        }
        if has_device {
            return Ok(());
        }
        let at = self.chunks.places(root, 1)?.first().copied().unwrap_or(0);
        let found = self.sb.dev_item.devid.get();
        Err(FsError::corrupt("btrfs chunk tree", "dev item", at, found, "one of this device"))
    }

    /// The device as its item has it: what the super block says of it only leads there.
    fn take_device(&mut self, item: &DevItem, at: u64) -> FsResult<()> {
        let wrong = |field, found: u64, expected: String| {
            Err(FsError::corrupt("btrfs dev item", field, at, found, expected))
        };
        let known = &self.sb.dev_item;
        let devid = item.devid.get();
        if devid != known.devid.get() {
            return wrong("devid", devid, "the device's own number".to_owned());
        }
        if item.uuid != known.uuid {
            return wrong("uuid", devid, "that of the device".to_owned());
        }
        if item.fsid != self.common.fsid {
            return wrong("fsid", devid, "that of the file system".to_owned());
        }
        let most = self.disk.len_bytes().min(self.sb.total_bytes.get());
        if item.total_bytes.get() > most {
            let expected = format!("{most:#x} or fewer, as the device and the file system have");
            return wrong("total_bytes", item.total_bytes.get(), expected);
        }
        self.sb.dev_item.total_bytes = item.total_bytes;
        self.sb.dev_item.bytes_used = item.bytes_used;
        Ok(())
    }

    /// Can it be written? Errors: `Unsupported` with names of features.
    pub fn check_writable(&self) -> FsResult<()> {
        feature::check(self.sb.incompat_flags.get(), self.sb.compat_ro_flags.get(), true)
    }

    /// The super block as it will be written next, but for what a commit changes.
    pub fn super_block(&self) -> &SuperBlock {
        &self.sb
    }

    /// Which parts of the device logical addresses mean.
    pub fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// Checksum, uuid and size of tree blocks.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Bytes of a tree block.
    pub fn node_bytes(&self) -> usize {
        self.common.node_bytes
    }

    /// The uuid of chunks.
    pub fn chunk_tree_uuid(&self) -> [u8; 16] {
        self.chunk_tree_uuid
    }

    /// The reads that were made since this was last called.
    pub fn take_missed(&mut self) -> Vec<Missed> {
        std::mem::take(&mut self.missed)
    }

    /// Bad copies that were met since this was last called. They are to be written before the next
    /// commit is: until then nothing else comes to their places. `btrfs_repair_eb_io_failure`.
    pub fn take_repairs(&mut self) -> Vec<Repair> {
        std::mem::take(&mut self.repairs)
    }

    /// Forgets blocks that can be read again, but for roots of trees.
    pub fn drop_clean(&mut self) {
        let Blocks { map, dirty, dirty_log } = &mut self.blocks;
        let kept = |n: &u64| {
            dirty.contains(n) || dirty_log.contains(n) || self.trans.unwritten.contains(n)
        };
        map.retain(|n, _| kept(n));
    }

    // Blocks.

    /// Tree blocks that were changed and not sent, those of logs as well.
    pub fn dirty_blocks(&self) -> usize {
        self.blocks.dirty.len() + self.blocks.dirty_log.len()
    }

    /// A tree block that is in memory.
    pub fn node(&self, bytenr: u64) -> FsResult<NodeRef<'_>> {
        self.blocks.map.get(&bytenr).map(|b| NodeRef::trusted(b)).ok_or_else(|| gone(bytenr))
    }

    pub(crate) fn bytes_of(&self, bytenr: u64) -> FsResult<Rc<[u8]>> {
        self.blocks.map.get(&bytenr).cloned().ok_or_else(|| gone(bytenr))
    }

    /// A tree block of this transaction, to be changed.
    pub(crate) fn block_mut(&mut self, bytenr: u64) -> FsResult<&mut [u8]> {
        let block = self.blocks.map.get_mut(&bytenr).ok_or_else(|| gone(bytenr))?;
        if NodeRef::trusted(block).header().owner.get() == id::TREE_LOG {
            self.blocks.dirty_log.insert(bytenr);
        } else {
            self.blocks.dirty.insert(bytenr);
        }
        Ok(Rc::make_mut(block))
    }

    /// Two tree blocks of this transaction, to be changed.
    pub(crate) fn with_two(
        &mut self,
        a: u64,
        b: u64,
        change: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> FsResult<()> {
        if a == b {
            return Err(gone(a));
        }
        self.block_mut(b)?;
        self.block_mut(a)?;
        let mut first = self.blocks.map.remove(&a).ok_or_else(|| gone(a))?;
        change(Rc::make_mut(&mut first), self.block_mut(b)?);
        self.blocks.map.insert(a, first);
        Ok(())
    }

    /// A block that was just allocated. Errors: `Corrupt` if it is one of a tree that is in use.
    pub(crate) fn put_new_block(&mut self, bytenr: u64, bytes: Vec<u8>) -> FsResult<()> {
        if self.roots.values().any(|r| r.node == bytenr) || self.blocks.dirty.contains(&bytenr) {
            let expected = "free: it is a block of a tree in use";
            return Err(FsError::corrupt("btrfs free space", "address", 0, bytenr, expected));
        }
        self.blocks.map.insert(bytenr, bytes.into());
        self.block_mut(bytenr).map(|_| ())
    }

    /// A block that no tree has any more. What the last commit has is kept while it is written:
    /// [`Core::with_committed`] cannot read it from the device before.
    pub(crate) fn forget_block(&mut self, bytenr: u64) {
        if self.trans.unwritten.contains(&bytenr) {
            self.trans.forgotten.push(bytenr);
        } else {
            self.blocks.map.remove(&bytenr);
        }
        self.blocks.dirty.remove(&bytenr);
        self.blocks.dirty_log.remove(&bytenr);
    }

    /// Reads a tree block, if it is not in memory: the first copy that is valid. A block in memory
    /// is also compared with what its parent expects: a block can have a second, wrong parent.
    /// `read_tree_block`.
    pub fn load_block(&mut self, expected: &Expected) -> FsResult<()> {
        let Some(block) = self.blocks.map.get(&expected.bytenr) else {
            return self.read_block(expected);
        };
        let node = NodeRef::trusted(block);
        // While the running transaction changes it, its first key may be ahead of its parent's.
        let is_live = node.header().generation.get() > self.sb.generation.get();
        let first_key = expected.first_key.filter(|_| !is_live);
        Expected { first_key, ..*expected }.verify(&node, 0)
    }

    /// Reads the child that a slot of a block leads to, if it is not in memory; answers its
    /// address. The child is of a tree that its parent may be of. `btrfs_read_node_slot`.
    pub(crate) fn load_child(&mut self, node: &NodeRef<'_>, slot: usize) -> FsResult<u64> {
        let below = node.level().checked_sub(1);
        let Some((ptr, level)) = node.ptr(slot).copied().zip(below) else {
            let n = wide(node.len());
            return Err(FsError::corrupt("btrfs node", "nritems", 0, n, format!("over {slot}")));
        };
        let bytenr = ptr.blockptr.get();
        self.load_block(&Expected {
            bytenr,
            generation: Some(ptr.generation.get()),
            level: Some(level),
            first_key: Some(ptr.key.get()),
            owner: Some(node.header().owner.get()),
        })?;
        Ok(bytenr)
    }

    /// Reads a tree block of which `expected` is known.
    pub fn read_block(&mut self, expected: &Expected) -> FsResult<()> {
        let bytes = self.common.node_bytes;
        let mut first_error = None;
        let mut bad = Vec::new();
        for at in self.chunks.places(expected.bytenr, wide(bytes))? {
            // Zeroed for nothing, but an Rc cannot be filled before it is.
            let mut block: Rc<[u8]> = std::iter::repeat_n(0, bytes).collect();
            let out = Rc::make_mut(&mut block);
            self.missed.push(Missed { at, bytes: self.sb.nodesize.get() });
            let read = self.disk.read(at, out);
            match read
                .and_then(|()| NodeRef::verify(&block, &self.common, expected, at).map(|_| ()))
            {
                Ok(()) => {
                    let copy = |at| Repair { at, bytes: Rc::clone(&block) };
                    self.repairs.extend(bad.into_iter().map(copy));
                    self.blocks.map.insert(expected.bytenr, block);
                    return Ok(());
                }
                Err(e) => {
                    bad.push(at);
                    first_error = first_error.or(Some(e));
                }
            }
        }
        Err(first_error.unwrap_or(FsError::Io))
    }

    // Trees.

    /// A tree that is open. Errors: `NotFound`.
    pub fn root(&self, tree: u64) -> FsResult<&Root> {
        self.roots.get(&tree).ok_or(FsError::NotFound)
    }

    pub(crate) fn root_mut(&mut self, tree: u64) -> FsResult<&mut Root> {
        self.roots.get_mut(&tree).ok_or(FsError::NotFound)
    }

    /// Opens a tree by its root item, if it is not open: the newest of its number. Errors:
    /// `Corrupt` if there is none.
    pub fn open_root(&mut self, tree: u64) -> FsResult<()> {
        if self.find_root(tree)? {
            return Ok(());
        }
        let root = self.root(id::ROOT_TREE)?.node;
        let at = self.chunks.places(root, 1)?.first().copied().unwrap_or(0);
        let expected = format!("one of tree {}", tree.cast_signed());
        Err(FsError::corrupt("btrfs root tree", "root item", at, tree, expected))
    }

    /// The same of a tree that there may be: `false`: there is none.
    pub fn find_root(&mut self, tree: u64) -> FsResult<bool> {
        if self.roots.contains_key(&tree) {
            return Ok(true);
        }
        let last = Key::new(tree, kind::ROOT_ITEM, u64::MAX);
        let Some(path) = self.seek_back(id::ROOT_TREE, last)? else { return Ok(false) };
        let at = self.place_of(&path);
        let found = self.item(&path)?;
        let Some((key, bytes)) = found.filter(|(k, _)| (k.objectid, k.kind) == (tree, last.kind))
        else {
            return Ok(false);
        };
        let item = RootItem::load(bytes, at)?;
        self.roots.insert(tree, Root::new(tree, key, item));
        Ok(true)
    }

    /// The root block of a tree, read if it is not in memory, and its level.
    pub(crate) fn load_root(&mut self, tree: u64) -> FsResult<(u64, u8)> {
        self.open_root(tree)?;
        let root = self.root(tree)?;
        let node = root.node;
        if let Ok(block) = self.node(node) {
            return Ok((node, block.level()));
        }
        let (level, generation) = (root.item.level, root.item.generation.get());
        self.load_block(&Expected {
            bytenr: node,
            generation: Some(generation),
            level: Some(level),
            first_key: None,
            owner: Some(root.owner),
        })?;
        Ok((node, level))
    }

    /// A tree has a block more, or fewer.
    pub(crate) fn count_tree_block(&mut self, tree: u64, is_more: bool) -> FsResult<()> {
        let bytes = wide(self.common.node_bytes);
        let used = &mut self.root_mut(tree)?.item.bytes_used;
        let n = used.get();
        *used = if is_more { n.wrapping_add(bytes) } else { n.saturating_sub(bytes) }.into();
        Ok(())
    }

    /// The path to a key for reading, without the item.
    pub fn path(&mut self, tree: u64, key: Key) -> FsResult<crate::tree::Path> {
        Ok(self.search(tree, key, Purpose::Read)?.0)
    }
}

fn gone(bytenr: u64) -> FsError {
    let expected = "a block that is in memory: the same address has two uses";
    FsError::corrupt("btrfs tree block", "address", 0, bytenr, expected)
}
