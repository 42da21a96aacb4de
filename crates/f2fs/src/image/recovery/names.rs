//! Names in directories while they are being recovered.
//!
//! Left out:   directories that ignore case, whose hashes need Unicode tables: `Unsupported`.
//! Source:     fs/f2fs/dir.c, fs/f2fs/inline.c.

use wp_base::{FsError, FsResult};
use wp_vfs::FileType;

use crate::disk::inode::{Stamp, inline};
use crate::disk::{
    Block, DentryArea, DentryEntry, Inode, ZERO_BLOCK, addr, count, dir, hash, lo16,
};
use crate::image::Image;

use super::files::{Slot, State};

/// Where a name stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Block of the directory; `None`: in the inode.
    block: Option<u64>,
    slot: u32,
    /// What it names.
    pub(super) ino: u32,
}

impl State<'_> {
    /// A block of a directory as it is now; `None` for a hole. `f2fs_find_data_page`.
    fn dir_block(&mut self, dir: u32, block: u64) -> FsResult<Option<Box<Block>>> {
        if let Some(b) = self.names.get(&(dir, block)) {
            return Ok(Some(b.clone()));
        }
        let Some(at) = self.find(dir, block, false)? else { return Ok(None) };
        match self.address(dir, at)? {
            addr::NULL => Ok(None),
            addr::NEW => Ok(Some(Box::new(ZERO_BLOCK))),
            place => Ok(Some(Box::new(self.t.image.read_block(place, "f2fs directory")?))),
        }
    }

    /// Looks for a name. `__f2fs_find_entry`.
    pub(super) fn find_name(&mut self, dir: u32, name: &[u8]) -> FsResult<Option<Found>> {
        let shape = self.get(dir)?;
        let node = self.node(dir)?;
        let inode = Inode::of(&node);
        if !inode.is_dir() {
            return Err(FsError::NotDir);
        }
        if Image::ignores_case(inode) {
            return Err(FsError::Unsupported(format!("names without case (inode {dir})")));
        }
        let hash = hash::name_hash(name);
        if inode.has_inline(inline::DENTRY) {
            let area = DentryArea::inline(shape.inline_bytes());
            let found = area.find(inode.inline_area(&shape), hash, name);
            return Ok(found.map(|(slot, e)| Found { block: None, slot, ino: e.ino.get() }));
        }
        for level in 0..inode.current_depth.get().min(hash::LEVELS_MAX) {
            for block in hash::bucket_of(level, inode.dir_level, hash) {
                if block >= shape.blocks_max() {
                    return Ok(None);
                }
                let Some(bytes) = self.dir_block(dir, block)? else { continue };
                if let Some((slot, e)) = DentryArea::BLOCK.find(&*bytes, hash, name) {
                    return Ok(Some(Found { block: Some(block), slot, ino: e.ino.get() }));
                }
            }
        }
        Ok(None)
    }

    /// Adds a name, and tells the inode its own. `f2fs_add_dentry`.
    pub(super) fn add_name(&mut self, dir: u32, name: &[u8], ino: u32, now: Stamp) -> FsResult<()> {
        let slots = dir::slots_of(name.len());
        let mode = Inode::of(&*self.node(ino)?).mode.get();
        let entry = DentryEntry {
            hash_code: hash::name_hash(name).into(),
            ino: ino.into(),
            name_len: lo16(count(name.len())).into(),
            file_type: FileType::entry_of_mode(mode.into()),
        };
        let shape = self.get(dir)?;
        let mut depth = 0;
        let is_inline = Inode::of(&*self.node(dir)?).has_inline(inline::DENTRY);
        let area = DentryArea::inline(shape.inline_bytes());
        let room = area.find_room(self.inode_mut(dir)?.inline_area(&shape), slots);
        match room.filter(|_| is_inline) {
            Some(slot) => {
                let bytes = self.inode_mut(dir)?.inline_area_mut(&shape);
                area.put(bytes, slot, &entry, name);
            }
            None => {
                if is_inline {
                    self.convert(dir)?;
                }
                depth = self.put_in_blocks(dir, &entry, name)?;
            }
        }
        let inode = self.inode_mut(ino)?;
        inode.set_own_name(name);
        inode.pino = dir.into();
        let parent = self.inode_mut(dir)?;
        stamp(parent, now);
        if depth > parent.current_depth.get() {
            parent.current_depth = depth.into();
        }
        Ok(())
    }

    /// Puts a name into the blocks of a directory; the depth that it then has.
    /// `f2fs_add_regular_entry`.
    fn put_in_blocks(&mut self, dir: u32, entry: &DentryEntry, name: &[u8]) -> FsResult<u32> {
        let slots = dir::slots_of(name.len());
        let inode = self.node(dir)?;
        let inode = Inode::of(&inode);
        let (mut depth, dir_level) = (inode.current_depth.get(), inode.dir_level);
        let hash = entry.hash_code.get();
        for level in 0..hash::LEVELS_MAX {
            depth = depth.max(level + 1);
            for block in hash::bucket_of(level, dir_level, hash) {
                let mut bytes = self.new_dir_block(dir, block)?;
                if let Some(slot) = DentryArea::BLOCK.find_room(&*bytes, slots) {
                    DentryArea::BLOCK.put(&mut *bytes, slot, entry, name);
                    self.names.insert((dir, block), bytes);
                    return Ok(depth);
                }
            }
        }
        Err(FsError::NoSpace)
    }

    /// A block of a directory, promised where there is none. `f2fs_get_new_data_page`.
    fn new_dir_block(&mut self, dir: u32, block: u64) -> FsResult<Box<Block>> {
        if let Some(bytes) = self.dir_block(dir, block)? {
            return Ok(bytes);
        }
        let at = self.find(dir, block, true)?.ok_or(FsError::TooBig)?;
        self.reserve(dir, at)?;
        let end = (block + 1) * 4096;
        let inode = self.inode_mut(dir)?;
        if inode.size.get() < end {
            inode.size = end.into();
        }
        self.names.insert((dir, block), Box::new(ZERO_BLOCK));
        Ok(Box::new(ZERO_BLOCK))
    }

    /// Moves the names in an inode to blocks. `do_convert_inline_dir`.
    fn convert(&mut self, dir: u32) -> FsResult<()> {
        let shape = self.get(dir)?;
        let node = self.node(dir)?;
        let inode = Inode::of(&node);
        let old = inode.inline_area(&shape);
        let area = DentryArea::inline(shape.inline_bytes());
        let all = area.names(old, 0)?;
        let dir_level = inode.dir_level;
        let inode = self.inode_mut(dir)?;
        inode.inline_area_mut(&shape).fill(0);
        inode.set_inline(inline::DENTRY, false);
        inode.set_inline(inline::DATA_EXIST, false);
        self.reshape(dir)?;
        if dir_level == 0 {
            // One block holds them at the same places.
            let at = Slot { nid: dir, slot: 0 };
            self.reserve(dir, at)?;
            let mut block = Box::new(ZERO_BLOCK);
            for d in all {
                DentryArea::BLOCK.put(&mut *block, d.slot, &d.entry, d.name);
            }
            self.names.insert((dir, 0), block);
            let inode = self.inode_mut(dir)?;
            inode.current_depth = 1.into();
            inode.size = inode.size.get().max(4096).into();
            return Ok(());
        }
        for d in all {
            let depth = self.put_in_blocks(dir, &d.entry, d.name)?;
            let inode = self.inode_mut(dir)?;
            inode.current_depth = depth.max(inode.current_depth.get()).into();
        }
        Ok(())
    }

    /// Takes a name away; the file loses a link. Has it none left? `f2fs_delete_entry`.
    pub(super) fn remove_name(
        &mut self,
        dir: u32,
        found: Found,
        name: &[u8],
        now: Stamp,
    ) -> FsResult<bool> {
        match found.block {
            None => {
                let shape = self.get(dir)?;
                let area = DentryArea::inline(shape.inline_bytes());
                let bytes = self.inode_mut(dir)?.inline_area_mut(&shape);
                area.remove(bytes, found.slot, name.len());
            }
            Some(block) => {
                let mut bytes = self.dir_block(dir, block)?.ok_or(FsError::Io)?;
                DentryArea::BLOCK.remove(&mut *bytes, found.slot, name.len());
                if DentryArea::BLOCK.is_empty(&*bytes) {
                    self.names.remove(&(dir, block));
                    if let Some(at) = self.find(dir, block, false)? {
                        self.punch(dir, at)?;
                    }
                } else {
                    self.names.insert((dir, block), bytes);
                }
            }
        }
        stamp(self.inode_mut(dir)?, now);
        let is_dir = Inode::of(&*self.node(found.ino)?).is_dir();
        if is_dir {
            let parent = self.inode_mut(dir)?;
            parent.links = parent.links.get().saturating_sub(1).into();
        }
        let inode = self.inode_mut(found.ino)?;
        (inode.ctime, inode.ctime_nsec) = (now.secs.cast_unsigned().into(), now.nanos.into());
        let lost = if is_dir { 2 } else { 1 };
        inode.links = inode.links.get().saturating_sub(lost).into();
        Ok(inode.links.get() == 0)
    }
}

fn stamp(inode: &mut Inode, now: Stamp) {
    (inode.ctime, inode.ctime_nsec) = (now.secs.cast_unsigned().into(), now.nanos.into());
    (inode.mtime, inode.mtime_nsec) = (inode.ctime, inode.ctime_nsec);
}
