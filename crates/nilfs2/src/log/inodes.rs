//! Files of the newest checkpoint in memory: inodes are made, changed and dropped, blocks get a
//! place in a file and are taken out.

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

    pub(super) fn file(&mut self, number: u64) -> FsResult<(&mut File, Via<'_>)> {
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
        self.write_inode(number)
    }

    /// The file of inodes learns that an inode is about to change (`nilfs_dirty_inode`).
    pub fn announce_inode(&self) {
        self.disk.dirtied(ino::IFILE);
    }

    /// The inode as it is goes into its block, with the block map that stands there.
    /// `nilfs_update_inode`.
    fn write_inode(&mut self, number: u64) -> FsResult<()> {
        let (block, at) = self.disk.g.ifile.place(number);
        let inode = self.files.get(&number).ok_or(FsError::NotFound)?.inode;
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let bytes = self.ifile.existing_mut(via, block, at..at + size_of::<Inode>())?;
        let place = view_mut::<Inode>(bytes, 0).ok_or(FsError::Io)?;
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
        let range = at..at + p.entry_bytes;
        let entry = self.ifile.block_mut(via, block, range, || Block::zero(bytes))?;
        entry.fill(0);
        *view_mut::<Inode>(entry, 0).ok_or(FsError::Io)? = inode;
        self.files.insert(number, File::load(number, inode, 0)?);
        self.inodes_count = self.inodes_count.saturating_add(1);
        Ok(number)
    }

    /// Drops a file with all that it has, of which nothing may be dirty any more.
    /// `nilfs_evict_inode`.
    pub fn drop_file(&mut self, number: u64) -> FsResult<()> {
        self.truncate(number, 0)?;
        self.write_inode(number)?;
        let (p, (block, at)) = (self.disk.g.ifile, self.disk.g.ifile.place(number));
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        let entry = self.ifile.existing_mut(via, block, at..at + size_of::<Inode>())?;
        let place = view_mut::<Inode>(entry, 0).ok_or(FsError::Io)?;
        (place.flags, place.links_count) = (0.into(), 0.into());
        palloc::give(&mut self.ifile, via, &p, number)?;
        if let Some(file) = self.files.remove(&number) {
            self.blocks_count = self.blocks_count.saturating_add_signed(file.added);
            file.queued.map(|order| self.dirty.remove(&order));
        }
        self.inodes_count = self.inodes_count.saturating_sub(1);
        Ok(())
    }

    /// Where block `key` of a file lies on the device. `None`: a hole.
    pub fn place_of(&mut self, number: u64, key: u64) -> FsResult<Option<u64>> {
        let (file, mut via) = self.file(number)?;
        let pointer = file.pointer(&mut via, key)?;
        pointer.map(|p| file.locate(&mut via, p)).transpose()
    }

    /// Has a file no block `key`?
    pub fn is_hole(&mut self, number: u64, key: u64) -> FsResult<bool> {
        let (file, mut via) = self.file(number)?;
        Ok(file.pointer(&mut via, key)?.is_none())
    }

    /// Has a file data or nodes that are to be written?
    pub fn is_file_dirty(&self, number: u64) -> bool {
        self.files.get(&number).is_some_and(|file| file.queued.is_some())
    }

    /// Blocks of data that became dirty since the last checkpoint (`ns_ndirtyblks`).
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

    /// Block `key` of a file becomes dirty: it gets a pointer, if it was a hole. The file's length
    /// is not changed by that.
    ///
    /// Errors: `NotFound` without such a file; `NoSpace`; `Corrupt`.
    pub fn dirty_block(&mut self, number: u64, key: u64) -> FsResult<()> {
        let (file, mut via) = self.file(number)?;
        if !file.inode.has_map() {
            return Err(FsError::NotFound);
        }
        if !file.fresh.contains(&key) && file.pointer(&mut via, key)?.is_none() {
            file.insert(&mut via, key)?;
            // The inode has the map (`nilfs_get_block`).
            self.disk.dirtied(ino::IFILE);
        }
        self.blocks_to_write += 1;
        self.mark_dirty(number);
        Ok(())
    }

    /// Takes the blocks of a file from `key` on out of its map; none of them may be dirty any more.
    /// Its length is not changed by that; the next checkpoint has the file even if there were none.
    /// `nilfs_truncate`.
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
