//! A file in memory: its inode, its block map, and what of both was read or changed.

use std::collections::BTreeSet;

use wp_base::{FsError, FsResult};

use crate::disk::bmap::{self, Map};
use crate::disk::{BlockMap, Inode, ino};

use super::dat::Via;
use super::memory::Nodes;

/// What the pointers of a block map are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pointers {
    /// Blocks of the device: the DAT's own map.
    Physical,
    /// Virtual numbers that no checkpoint keeps: the files of checkpoints and of usage.
    Passing,
    /// Virtual numbers that checkpoints keep.
    Kept,
}

/// First of the pointers that stand for blocks without a place. `NILFS_BMAP_NEW_PTR_INIT`.
const NO_PLACE: u64 = 1 << 63;

/// A file.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// Its number.
    pub ino: u64,
    /// Its inode; the map in it is old, see [`Self::sealed_inode`].
    pub inode: Inode,
    /// What its pointers are.
    pub pointers: Pointers,
    /// Its block map.
    pub map: Map,
    /// Blocks of data with a pointer of their own already, that nothing on the medium has
    /// (`buffer_nilfs_volatile`), by their place in the file.
    pub fresh: BTreeSet<u64>,
    /// Nodes of the map that are in memory, by the pointer that leads to them.
    pub nodes: Nodes,
    /// Blocks that were added, less those that were taken away, since this was last asked for.
    pub added: i64,
    /// The key that got a pointer last, and the pointer: neighbours get neighbours.
    last: Option<(u64, u64)>,
    /// The next pointer without a place.
    next_pointer: u64,
    /// Its place among the files that the next checkpoint has (`ns_dirty_files`).
    pub queued: Option<u64>,
}

impl File {
    /// A file as its inode says. `at`: byte address of the inode, for errors.
    pub fn load(number: u64, inode: Inode, at: u64) -> FsResult<File> {
        // What is no file of blocks has the number of a device there, or nothing.
        let map = if inode.has_map() || inode.mode.get() == 0 {
            inode.bmap.load(at)?
        } else {
            Map::Direct([0; 6])
        };
        let pointers = match number {
            ino::DAT => Pointers::Physical,
            ino::CPFILE | ino::SUFILE => Pointers::Passing,
            _ => Pointers::Kept,
        };
        Ok(File {
            ino: number,
            inode,
            pointers,
            map,
            fresh: BTreeSet::new(),
            nodes: Nodes::default(),
            added: 0,
            last: None,
            next_pointer: NO_PLACE,
            queued: None,
        })
    }

    /// The inode with the map as it is now.
    pub fn sealed_inode(&mut self) -> Inode {
        self.next_pointer = NO_PLACE;
        if self.inode.has_map() || self.inode.mode.get() == 0 {
            self.inode.bmap = BlockMap::store(&self.map);
        }
        self.inode
    }

    /// Adds `n` blocks to the space in use, or takes them away.
    pub fn count(&mut self, n: i64, block_bits: u32) {
        self.inode.add_blocks(n, block_bits);
        self.added += n;
    }

    /// A pointer for the block or node `key`, as near to its neighbours' as there is one.
    ///
    /// Source: `nilfs_bmap_prepare_alloc_ptr` with `nilfs_btree_find_target_v`.
    pub fn take_pointer(
        &mut self,
        via: &mut Via<'_>,
        key: u64,
        near: Option<u64>,
    ) -> FsResult<u64> {
        let goal = self.goal(via, key, near);
        let pointer = self.take_pointer_at(via, goal)?;
        if self.pointers != Pointers::Physical {
            self.last = Some((key, pointer));
        }
        Ok(pointer)
    }

    /// A pointer from `goal` on.
    pub fn take_pointer_at(&mut self, via: &mut Via<'_>, goal: u64) -> FsResult<u64> {
        match &mut via.dat {
            Some(dat) => dat.take(via.disk, goal),
            None => {
                self.next_pointer += 1;
                Ok(self.next_pointer - 1)
            }
        }
    }

    /// Where the search for a free number starts. `nilfs_bmap_find_target_seq`,
    /// `nilfs_btree_find_near`, `nilfs_bmap_find_target_in_group`.
    fn goal(&self, via: &Via<'_>, key: u64, near: Option<u64>) -> u64 {
        if let Some((last_key, last)) = self.last
            && key.abs_diff(last_key) < 7
            && let Some(goal) = last.checked_add_signed(key.wrapping_sub(last_key).cast_signed())
            && goal != 0
        {
            return goal;
        }
        if let Some(near) = near {
            return near;
        }
        let entries = via.disk.g.dat.group_entries;
        (self.ino / entries * entries).saturating_add(self.ino % 8 * (entries / 8))
    }

    /// Where the block that a pointer leads to lies on the medium.
    pub fn locate(&self, via: &mut Via<'_>, pointer: u64) -> FsResult<u64> {
        let block = match &mut via.dat {
            Some(dat) => dat.locate(via.disk, pointer)?,
            None => pointer,
        };
        if !via.disk.g.is_in_segment(block) {
            let expected = format!("a block of a segment (file {}, pointer {pointer})", self.ino);
            return Err(FsError::corrupt("nilfs2 block map", "block", 0, block, expected));
        }
        Ok(block)
    }

    /// The pointer of block `key`. `None`: a hole.
    pub fn pointer(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<Option<u64>> {
        if let Map::Direct(pointers) = &self.map {
            return Ok(Some(bmap::direct(pointers, key)).filter(|p| *p != 0));
        }
        let (path, is_there) = self.path(via, key)?;
        Ok(if is_there { self.child(&path, 1).map(|(_, p)| p) } else { None })
    }

    /// The pointer that leads to the node of this level (0: to the block of data) whose first key
    /// is `key`. `None`: there is none.
    pub fn pointer_at(&mut self, via: &mut Via<'_>, key: u64, level: u8) -> FsResult<Option<u64>> {
        let Map::Tree(root) = &self.map else {
            return if level == 0 { self.pointer(via, key) } else { Ok(None) };
        };
        if level >= root.level {
            return Ok(None);
        }
        let (path, is_there) = self.path_to(via, key, level + 1)?;
        let above = usize::from(level) + 1;
        Ok(if is_there { self.child(&path, above).map(|(_, p)| p) } else { None })
    }
}
