//! Subvolumes are made and given up: trees of files, their root items, and the blocks that a
//! snapshot has in common with its source.
//!
//! Picture:    a new subvolume is a leaf with a root directory. A snapshot is a copy of the
//!             source's root block: what that leads to has one use more, and each of both trees
//!             copies a block before it changes it for the first time (`tree::cow`).
//! Source:     `create_subvol`, `create_pending_snapshot`, `btrfs_copy_root`,
//!             `btrfs_delete_subvolume`.

use wp_base::FsResult;
use wp_base::rng::Rng;
use zerocopy::IntoBytes;

use crate::core::{Core, Root};
use crate::disk::inode::{mode, ref_bytes};
use crate::disk::misc::orphan_key;
use crate::disk::root::flag;
use crate::disk::{DiskKey, InodeItem, Key, RootItem, Timespec, id, kind, wide};
use crate::tree::page;

/// `BTRFS_INODE_ROOT_ITEM_INIT`, in the flags of a root item's inode.
const ROOT_ITEM_INIT: u64 = 1 << 31;

/// A tree that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRoot {
    /// Its number.
    pub tree: u64,
    /// The time.
    pub now: Timespec,
}

impl Core<'_> {
    /// A uuid for a tree. Linux takes a random one; here the same history has the same.
    /// `generate_random_guid`.
    fn new_uuid(&self, tree: u64) -> [u8; 16] {
        let [a, b] = [0, 8].map(|at| {
            let part = self.sb.fsid.iter().skip(at).take(8);
            part.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        });
        let mut rng = Rng::stream(a ^ b.rotate_left(1) ^ tree << 32 ^ self.transid(), "btrfs uuid");
        let mut uuid =
            (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_le_bytes();
        uuid[7] = uuid[7] & 0x0F | 0x40;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }

    /// Makes a tree of files with an empty root directory. It has no name yet. `create_subvol`.
    pub fn create_subvolume(&mut self, new: NewRoot, dir: &InodeItem) -> FsResult<()> {
        self.begin()?;
        let NewRoot { tree, now } = new;
        let key = Key::new(tree, kind::ROOT_ITEM, 0);
        let transid = self.transid();
        let mut item = RootItem::zeroed();
        item.inode = InodeItem {
            generation: 1.into(),
            size: 3.into(),
            nlink: 1.into(),
            nbytes: wide(self.node_bytes()).into(),
            mode: (mode::DIR | 0o755).into(),
            flags: ROOT_ITEM_INIT.into(),
            ..InodeItem::zeroed()
        };
        (item.generation, item.generation_v2) = (transid.into(), transid.into());
        (item.ctransid, item.otransid) = (transid.into(), transid.into());
        (item.otime, item.ctime) = (now, now);
        item.refs = 1.into();
        item.bytes_used = wide(self.node_bytes()).into();
        item.root_dirid = id::FIRST_FREE.into();
        item.uuid = self.new_uuid(tree);
        self.roots.insert(tree, Root::new(tree, key, item));
        let node = self.alloc_block(tree, 0, 0)?;
        item.bytenr = node.into();
        self.roots.insert(tree, Root::new(tree, key, item));
        self.insert_item(id::ROOT_TREE, key, item.as_bytes())?;
        self.join(tree)?;
        self.add_uuid(item.uuid, kind::UUID_KEY_SUBVOL, tree)?;
        let ino = id::FIRST_FREE;
        let above = ref_bytes(0, b"..");
        let items: [(Key, &[u8]); 2] = [
            (Key::new(ino, kind::INODE_ITEM, 0), dir.as_bytes()),
            (Key::new(ino, kind::INODE_REF, ino), &above),
        ];
        self.insert_items(tree, &items)
    }

    /// Makes a tree that is as `source` is now. It has no name yet. This is a part of the commit of
    /// the transaction: the source's blocks of it are copied once more when they change.
    /// `create_pending_snapshot`.
    pub fn create_snapshot(
        &mut self,
        new: NewRoot,
        source: u64,
        is_read_only: bool,
    ) -> FsResult<()> {
        self.join(source)?;
        let NewRoot { tree, now } = new;
        let transid = self.transid();
        let old = self.root_mut(source)?;
        old.item.last_snapshot = transid.into();
        let mut item = old.item;
        if item.inode.flags.get() & ROOT_ITEM_INIT == 0 {
            item.inode.flags = (item.inode.flags.get() | ROOT_ITEM_INIT).into();
            (item.flags, item.byte_limit) = (0.into(), 0.into());
        }
        let flags = item.flags.get() & !flag::RDONLY;
        item.flags = (flags | if is_read_only { flag::RDONLY } else { 0 }).into();
        item.generation_v2 = transid.into();
        (item.parent_uuid, item.uuid) = (item.uuid, self.new_uuid(tree));
        if !is_read_only {
            item.received_uuid = [0; 16];
            (item.stime, item.rtime) = (Timespec::seconds(0), Timespec::seconds(0));
            (item.stransid, item.rtransid) = (0.into(), 0.into());
        }
        (item.otime, item.otransid) = (now, transid.into());
        let (mut root, level) = self.load_root(source)?;
        if self.should_cow(source, root)? {
            root = self.cow(source, root, 0, 0)?;
        }
        let node = self.copy_shared(root, level, tree)?;
        self.root_mut(source)?.force_cow = true;
        (item.bytenr, item.level, item.generation) = (node.into(), level, transid.into());
        let key = Key::new(tree, kind::ROOT_ITEM, transid);
        self.insert_item(id::ROOT_TREE, key, item.as_bytes())?;
        self.roots.insert(tree, Root::new(tree, key, item));
        Ok(())
    }

    /// A snapshot is found by its uuids. `create_pending_snapshot`, after it has a name.
    pub fn register_uuids(&mut self, tree: u64) -> FsResult<()> {
        let item = self.root(tree)?.item;
        self.add_uuid(item.uuid, kind::UUID_KEY_SUBVOL, tree)?;
        match item.received_uuid {
            uuid if uuid == [0; 16] => Ok(()),
            received => self.add_uuid(received, kind::UUID_KEY_RECEIVED_SUBVOL, tree),
        }
    }

    /// A copy of a block for another tree, which uses what the block leads to as well.
    /// `btrfs_copy_root`.
    fn copy_shared(&mut self, block: u64, level: u8, tree: u64) -> FsResult<u64> {
        // For the block's owner only: what else it says is replaced.
        let key = Key::new(tree, kind::ROOT_ITEM, 0);
        self.roots.insert(tree, Root::new(tree, key, RootItem::zeroed()));
        let new = self.alloc_block(tree, level, block)?;
        let old = self.bytes_of(block)?;
        let header = *self.node(new)?.header();
        let bytes = self.block_mut(new)?;
        bytes.copy_from_slice(&old);
        let nritems = page::header(bytes).nritems;
        *page::header(bytes) = header;
        page::header(bytes).nritems = nritems;
        let copy = self.bytes_of(new)?;
        self.count_children(&copy, tree, None, true)?;
        Ok(new)
    }

    /// A tree has lost its name: it is to be deleted, block by block, whenever
    /// ([`Core::drop_tree`]). `btrfs_delete_subvolume`.
    pub fn give_up_subvolume(&mut self, tree: u64) -> FsResult<()> {
        self.join(tree)?;
        let item = &mut self.root_mut(tree)?.item;
        item.flags = (item.flags.get() | flag::DEAD).into();
        item.drop_progress = DiskKey::from(Key::MIN);
        item.drop_level = 0;
        item.refs = 0.into();
        let (uuid, received) = (item.uuid, item.received_uuid);
        self.add_orphan(id::ROOT_TREE, tree)?;
        self.remove_uuid(uuid, kind::UUID_KEY_SUBVOL, tree)?;
        if received != [0; 16] {
            self.remove_uuid(received, kind::UUID_KEY_RECEIVED_SUBVOL, tree)?;
        }
        Ok(())
    }

    /// Trees that were given up and are not deleted yet, by number. `btrfs_find_orphan_roots`.
    pub fn dead_trees(&mut self) -> FsResult<Vec<u64>> {
        let mut out = Vec::new();
        for tree in self.orphans(id::ROOT_TREE)? {
            if !self.find_root(tree)? {
                // Only the mark is left.
                self.remove_item(id::ROOT_TREE, orphan_key(tree))?;
            } else if self.root(tree)?.item.refs.get() == 0 {
                out.push(tree);
            }
        }
        Ok(out)
    }
}
