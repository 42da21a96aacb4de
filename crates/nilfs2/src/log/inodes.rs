//! Files of the newest checkpoint in memory: inodes are made, changed and dropped, blocks read,
//! written and taken out.

use wp_base::{FsError, FsResult};

use crate::disk::{Inode, ino, view, view_mut};

use super::block::Block;
use super::dat::Via;
use super::file::File;
use super::{Store, palloc};

impl Store<'_> {
    /// Has the file `number` in memory from here on. Errors: `NotFound` if there is none of this
    /// number; `Corrupt`.
    fn load_file(&mut self, number: u64) -> FsResult<()> {
        if self.files.contains_key(&number) {
            return Ok(());
        }
        // Of the reserved numbers only the root has a name. `nilfs_check_folio`.
        if number != ino::ROOT && number < self.disk.g.first_ino {
            let expected = format!("{} or {} and more", ino::ROOT, self.disk.g.first_ino);
            return Err(FsError::corrupt("nilfs2 inode", "number", 0, number, expected));
        }
        let (block, at) = self.disk.g.ifile.place(number);
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let held = self.ifile.bytes(via, block)?.ok_or(FsError::NotFound)?;
        let inode = *view::<Inode>(held, at).ok_or(FsError::NotFound)?;
        if inode.links_count.get() == 0 {
            return Err(FsError::NotFound);
        }
        self.files.insert(number, File::load(number, inode, 0)?);
        Ok(())
    }

    fn file(&mut self, number: u64) -> FsResult<(&mut File, Via<'_>)> {
        self.load_file(number)?;
        let file = self.files.get_mut(&number).ok_or(FsError::NotFound)?;
        Ok((file, Via { disk: &self.disk, dat: Some(&mut self.dat) }))
    }

    /// The inode of a file; its block map is old. Errors: `NotFound`, `Corrupt`.
    pub fn inode(&mut self, number: u64) -> FsResult<Inode> {
        self.file(number).map(|(file, _)| file.inode)
    }

    /// Changes an inode, but not its block map. The next checkpoint has it.
    pub fn change_inode(&mut self, number: u64, f: impl FnOnce(&mut Inode)) -> FsResult<()> {
        let (file, _) = self.file(number)?;
        f(&mut file.inode);
        self.write_inode(number)?;
        self.list_inode(number)
    }

    /// Puts a file whose inode changes on the flusher's list, behind the file of inodes, which
    /// learns of it first (`nilfs_dirty_inode`).
    pub fn list_inode(&mut self, number: u64) -> FsResult<()> {
        self.ifile.list(&self.disk);
        let (file, via) = self.file(number)?;
        file.list(via.disk);
        Ok(())
    }

    /// The flusher's list: files, those of metadata too, in the order in which they became dirty.
    /// What became clean since is on it still.
    pub fn listed(&self) -> Vec<u64> {
        let mut all: Vec<(u64, u64)> = [&self.dat.file, &self.cpfile, &self.sufile, &self.ifile]
            .into_iter()
            .chain(self.files.values())
            .filter_map(|f| f.listed().map(|place| (place, f.ino)))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, number)| number).collect()
    }

    /// The flusher has processed a file on its list.
    pub fn looked_at(&mut self, number: u64) {
        if let Ok((file, _)) = self.file_mut(number) {
            file.looked_at();
        }
    }

    /// The inode as it is goes into its block, with the block map that stands there.
    /// `nilfs_update_inode`.
    fn write_inode(&mut self, number: u64) -> FsResult<()> {
        let (block, at) = self.disk.g.ifile.place(number);
        let inode = self.files.get(&number).ok_or(FsError::NotFound)?.inode;
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let bytes = self.ifile.existing_mut(via, block)?;
        let place = view_mut::<Inode>(bytes, at).ok_or(FsError::Io)?;
        let map = place.bmap;
        *place = inode;
        if inode.has_map() {
            place.bmap = map;
        }
        Ok(())
    }

    /// Makes a file, whose inode is `inode`; its number. Errors: `NoSpace`.
    ///
    /// Source: `nilfs_ifile_create_inode`.
    pub fn make_file(&mut self, inode: Inode) -> FsResult<u64> {
        let (p, bytes) = (self.disk.g.ifile, self.disk.g.block_bytes());
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let number = palloc::take(&mut self.ifile, via, &p, self.disk.g.first_ino)?;
        let (block, at) = p.place(number);
        let entry = self.ifile.block_mut(via, block, || Block::zero(bytes))?;
        let end = at + p.entry_bytes;
        entry.get_mut(at..end).ok_or(FsError::Io)?.fill(0);
        *view_mut::<Inode>(entry, at).ok_or(FsError::Io)? = inode;
        self.files.insert(number, File::load(number, inode, 0)?);
        self.inodes_count = self.inodes_count.saturating_add(1);
        Ok(number)
    }

    /// Drops a file with all that it has. `nilfs_evict_inode`.
    pub fn drop_file(&mut self, number: u64) -> FsResult<()> {
        self.truncate(number, 0)?;
        self.write_inode(number)?;
        let (p, (block, at)) = (self.disk.g.ifile, self.disk.g.ifile.place(number));
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let entry = self.ifile.existing_mut(via, block)?;
        let place = view_mut::<Inode>(entry, at).ok_or(FsError::Io)?;
        (place.flags, place.links_count) = (0.into(), 0.into());
        palloc::give(&mut self.ifile, via, &p, number)?;
        if let Some(file) = self.files.remove(&number) {
            self.blocks_count = self.blocks_count.saturating_add_signed(file.added);
            file.queued.map(|order| self.dirty.remove(&order));
        }
        self.inodes_count = self.inodes_count.saturating_sub(1);
        Ok(())
    }

    /// Bytes of block `key` of a file. `None`: a hole.
    pub fn read_block(&mut self, number: u64, key: u64) -> FsResult<Option<&[u8]>> {
        let (file, mut via) = self.file(number)?;
        file.bytes(&mut via, key)
    }

    /// Block `key` of a file, by reference. `None`: a hole.
    pub fn block(&mut self, number: u64, key: u64) -> FsResult<Option<&Block>> {
        let (file, mut via) = self.file(number)?;
        file.load_block(&mut via, key)?;
        Ok(file.blocks.get(key))
    }

    /// Where block `key` of a file is to be read from before it is used. `None`: it is in memory,
    /// or a hole.
    pub fn unread_block(&mut self, number: u64, key: u64) -> FsResult<Option<u64>> {
        let (file, mut via) = self.file(number)?;
        if file.blocks.contains(key) {
            return Ok(None);
        }
        let pointer = file.pointer(&mut via, key)?;
        pointer.map(|p| file.locate(&mut via, p)).transpose()
    }

    /// Has a file no block `key`?
    pub fn is_hole(&mut self, number: u64, key: u64) -> FsResult<bool> {
        let (file, mut via) = self.file(number)?;
        Ok(!file.blocks.contains(key) && file.pointer(&mut via, key)?.is_none())
    }

    /// Block `key` of a file as it was read from `place`, unless the file has another there now.
    pub fn put_read(&mut self, number: u64, key: u64, place: u64, what: Block) -> FsResult<()> {
        if self.unread_block(number, key)? == Some(place) {
            let (file, _) = self.file(number)?;
            file.blocks.put_clean(key, what);
        }
        Ok(())
    }

    /// Forgets blocks `from..=to` of a file that are as on the medium
    /// (`invalidate_mapping_pages`).
    pub fn forget_blocks(&mut self, number: u64, from: u64, to: u64) -> FsResult<()> {
        let (file, _) = self.file(number)?;
        file.blocks.forget(from..=to);
        Ok(())
    }

    /// Has a file data or nodes that are to be written?
    pub fn is_file_dirty(&self, number: u64) -> bool {
        self.files.get(&number).is_some_and(|file| file.queued.is_some())
    }

    /// Has a file data that no log has yet (`PAGECACHE_TAG_DIRTY`)?
    pub fn has_dirty_data(&mut self, number: u64) -> FsResult<bool> {
        if !self.is_file_dirty(number) {
            return Ok(false);
        }
        let (file, _) = self.file(number)?;
        Ok(file.has_dirty_blocks())
    }

    /// Blocks of data that were changed since the last checkpoint (`ns_ndirtyblks`).
    pub fn blocks_to_write(&self) -> u64 {
        self.blocks_to_write
    }

    /// All files with changes, in the order of their first change.
    pub fn dirty_files(&self) -> impl Iterator<Item = u64> {
        self.dirty.values().copied()
    }

    /// Inodes of the file system.
    pub fn inodes(&self) -> u64 {
        self.inodes_count
    }

    /// Writes a whole block of a file. Its length is not changed by that.
    ///
    /// Errors: `NotFound` without such a file; `NoSpace`; `Corrupt`.
    pub fn write_block(&mut self, number: u64, key: u64, what: impl Into<Block>) -> FsResult<()> {
        *self.dirty_block(number, key)? = what.into();
        Ok(())
    }

    /// Bytes of block `key` of a file, to be changed: zeroes where it was a hole.
    ///
    /// Errors: as those of [`Self::write_block`].
    pub fn change_block(&mut self, number: u64, key: u64) -> FsResult<&mut [u8]> {
        let (file, mut via) = self.file(number)?;
        file.load_block(&mut via, key)?;
        self.dirty_block(number, key).map(Block::bytes_mut)
    }

    /// Block `key` of a file is to be written; what is in memory of it, or zeroes.
    fn dirty_block(&mut self, number: u64, key: u64) -> FsResult<&mut Block> {
        let bytes = self.disk.g.block_bytes();
        let (file, mut via) = self.file(number)?;
        if !file.inode.has_map() {
            return Err(FsError::NotFound);
        }
        let was_volatile = file.blocks.is_volatile(key);
        let is_new = !was_volatile && file.pointer(&mut via, key)?.is_none();
        if is_new {
            file.insert(&mut via, key)?;
            // The inode has the map (`nilfs_get_block`).
            self.ifile.list(&self.disk);
        }
        let (file, via) = self.file(number)?;
        file.list(via.disk);
        let was_dirty = file.blocks.is_dirty(key);
        if is_new {
            file.blocks.put_fresh(key, Block::zero(bytes));
        } else if !file.blocks.contains(key) {
            file.blocks.put_clean(key, Block::zero(bytes));
        }
        self.blocks_to_write += u64::from(!was_dirty);
        self.mark_dirty(number);
        let file = self.files.get_mut(&number).ok_or(FsError::NotFound)?;
        file.blocks.dirty(key).map(|(block, _)| block).ok_or(FsError::Io)
    }

    /// Takes out the blocks of a file from `key` on. Its length is not changed by that; the next
    /// checkpoint has the file even if there were none. `nilfs_truncate`.
    pub fn truncate(&mut self, number: u64, key: u64) -> FsResult<()> {
        let (file, mut via) = self.file(number)?;
        file.truncate(&mut via, key)?;
        self.mark_dirty(number);
        Ok(())
    }

    fn mark_dirty(&mut self, number: u64) {
        let Some(file) = self.files.get_mut(&number).filter(|file| file.queued.is_none()) else {
            return;
        };
        file.queued = Some(self.next_dirty);
        self.dirty.insert(self.next_dirty, number);
        self.next_dirty += 1;
    }
}
