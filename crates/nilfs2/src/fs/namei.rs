//! Files are made, named, renamed and dropped.
//!
//! Source: fs/nilfs2/namei.c.

use std::collections::BTreeSet;

use wp_base::{FsError, FsResult};
use wp_vfs::{FileType, NodeSpec, RenameHow, may_create, may_delete, may_link};

use super::Nilfs;
use super::file_flags::{flags_of, inherited};
use crate::disk::{Inode, ino};

/// Most links of a file. `NILFS_LINK_MAX`.
const LINKS_MAX: u16 = 32_000;

impl Nilfs {
    fn more_links(&self, number: u64) -> FsResult<()> {
        self.change(number, true, |i| {
            i.links_count = (i.links_count.get() + 1).into();
            self.stamp(i, false);
        })
    }

    fn fewer_links(&self, number: u64) -> FsResult<()> {
        self.change(number, true, |i| {
            i.links_count = i.links_count.get().saturating_sub(1).into();
            self.stamp(i, false);
        })?;
        self.drop_if_unused(number)
    }

    fn check_links(&self, number: u64) -> FsResult<()> {
        let links = self.inode(number)?.links_count.get();
        if links < LINKS_MAX { Ok(()) } else { Err(FsError::TooManyLinks) }
    }

    /// A file without names that nobody has open goes; when the next checkpoint has it, if that is
    /// to write anything of it.
    pub(super) fn drop_if_unused(&self, number: u64) -> FsResult<()> {
        let is_open = self.opens.borrow().get(&number).is_some_and(|n| *n > 0);
        if is_open || self.inode(number)?.links_count.get() > 0 {
            return Ok(());
        }
        if self.store.borrow().is_file_dirty(number) || self.in_log.borrow().contains(&number) {
            self.unused.borrow_mut().insert(number);
            return Ok(());
        }
        self.store.borrow_mut().drop_file(number)?;
        self.pages.forget(number);
        self.forget_names(number);
        self.inode_sync.borrow_mut().remove(&number);
        self.changed();
        Ok(())
    }

    /// Is there room for more, beside what is to be written anyway? `nilfs_near_disk_full`.
    pub(super) fn check_room(&self) -> FsResult<()> {
        let mut store = self.store.borrow_mut();
        let coming = store.blocks_to_write() / self.g.segment_blocks + 1;
        let is_full = store.segments_free()? <= self.g.reserved_segments() + coming;
        if is_full { Err(FsError::NoSpace) } else { Ok(()) }
    }

    /// Makes a node in a directory that is in memory.
    pub(super) fn make(&self, dir: u64, name: &[u8], spec: &NodeSpec) -> FsResult<u64> {
        match self.find_name(dir, name) {
            Ok(_) => return Err(FsError::Exists),
            Err(FsError::NotFound) => {}
            Err(e) => return Err(e),
        }
        let parent = self.inode(dir)?;
        may_create(flags_of(&parent))?;
        self.check_room()?;
        let is_dir = spec.kind == FileType::Dir;
        if is_dir {
            self.check_links(dir)?;
        }
        if spec.kind == FileType::Symlink && spec.target.len() >= self.g.block_bytes() {
            return Err(FsError::NameTooLong);
        }
        let mut inode = Inode::zeroed();
        let mode = spec.kind.mode_bits() | spec.mode & 0o7777;
        inode.mode = u16::try_from(mode).unwrap_or(u16::MAX).into();
        inode.links_count = if is_dir { 2 } else { 1 }.into();
        (inode.uid, inode.gid) = (spec.uid.into(), spec.gid.into());
        if matches!(spec.kind, FileType::Char | FileType::Block) {
            inode.set_device(spec.device);
        }
        inode.flags = inherited(&parent, &inode).into();
        self.stamp(&mut inode, true);
        let number = self.store.borrow_mut().make_file(inode)?;
        self.inode_sync.borrow_mut().insert(number);
        if is_dir {
            self.make_empty(number, dir)?;
            self.more_links(dir)?;
        } else if spec.kind == FileType::Symlink {
            let mut block = spec.target.clone();
            block.resize(self.g.block_bytes(), 0);
            self.put_block(number, 0, &block)?;
            let size = spec.target.len() as u64;
            self.change(number, true, |i| i.size = size.into())?;
        }
        self.add_name(dir, name, number, FileType::entry_of_mode(inode.mode.get().into()))?;
        self.changed();
        Ok(number)
    }

    /// Removes a name that is not a directory's.
    pub(super) fn unlink_name(&self, dir: u64, name: &[u8]) -> FsResult<()> {
        let found = self.find_name(dir, name)?;
        may_delete(flags_of(&self.inode(dir)?), flags_of(&self.inode(found.ino)?))?;
        if self.inode(found.ino)?.is_dir() {
            return Err(FsError::IsDir);
        }
        self.remove_name(dir, &found)?;
        self.fewer_links(found.ino)
    }

    /// Removes an empty directory; both are in memory.
    pub(super) fn remove_dir(&self, dir: u64, name: &[u8]) -> FsResult<()> {
        let found = self.find_name(dir, name)?;
        may_delete(flags_of(&self.inode(dir)?), flags_of(&self.inode(found.ino)?))?;
        if !self.inode(found.ino)?.is_dir() {
            return Err(FsError::NotDir);
        }
        if !self.is_empty(found.ino)? {
            return Err(FsError::NotEmpty);
        }
        self.remove_name(dir, &found)?;
        self.change(found.ino, true, |i| i.links_count = 0.into())?;
        self.drop_if_unused(found.ino)?;
        self.fewer_links(dir)
    }

    /// Adds a name to an inode.
    pub(super) fn link_name(&self, number: u64, dir: u64, name: &[u8]) -> FsResult<()> {
        let inode = self.inode(number)?;
        match self.find_name(dir, name) {
            Ok(_) => return Err(FsError::Exists),
            Err(FsError::NotFound) => {}
            Err(e) => return Err(e),
        }
        may_link(flags_of(&self.inode(dir)?), flags_of(&inode))?;
        if inode.is_dir() {
            return Err(FsError::NotPermitted);
        }
        // The kernel makes no file of this file system without a name (`vfs_link`).
        if inode.links_count.get() == 0 {
            return Err(FsError::NotFound);
        }
        self.check_links(number)?;
        self.check_room()?;
        self.more_links(number)?;
        self.add_name(dir, name, number, FileType::entry_of_mode(inode.mode.get().into()))
    }

    /// Is `number` the directory `dir`, or above it? Errors: `Corrupt` if the way up is a ring.
    pub(super) async fn is_above(&self, number: u64, mut dir: u64) -> FsResult<bool> {
        let mut seen = BTreeSet::new();
        loop {
            if !seen.insert(dir) {
                let expected = "a way to the root";
                return Err(FsError::corrupt("nilfs2 directory", "..", 0, dir, expected));
            }
            if dir == number {
                return Ok(true);
            }
            if dir == ino::ROOT {
                return Ok(false);
            }
            self.load_dir(dir).await?;
            dir = self.find_name(dir, b"..")?.ino;
        }
    }

    /// What `vfs_rename` says of a rename before the file system sees its flag.
    pub(super) fn check_special_rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
    ) -> FsResult<()> {
        let flags = |number| Ok::<_, FsError>(flags_of(&self.inode(number)?));
        let moved = self.find_name(from.0, from.1)?.ino;
        let other = match self.find_name(to.0, to.1) {
            Ok(other) => Some(other.ino),
            Err(FsError::NotFound) if how != RenameHow::Exchange => None,
            Err(e) => return Err(e),
        };
        if other != Some(moved) {
            may_delete(flags(from.0)?, flags(moved)?)?;
            match other {
                Some(other) => may_delete(flags(to.0)?, flags(other)?)?,
                None => may_create(flags(to.0)?)?,
            }
        }
        Ok(())
    }

    /// Moves a name, replacing what stands at the new one; all directories are in memory.
    /// `nilfs_rename`.
    pub(super) fn move_name(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> FsResult<()> {
        let found = self.find_name(from.0, from.1)?;
        let inode = self.inode(found.ino)?;
        let old = match self.find_name(to.0, to.1) {
            Ok(old) if old.ino == found.ino => return Ok(()),
            Ok(old) => Some(flags_of(&self.inode(old.ino)?)),
            Err(_) => None,
        };
        may_delete(flags_of(&self.inode(from.0)?), flags_of(&inode))?;
        let target = flags_of(&self.inode(to.0)?);
        match old {
            Some(old) => may_delete(target, old)?,
            None => may_create(target)?,
        }
        self.check_room()?;
        let kind = FileType::entry_of_mode(inode.mode.get().into());
        let is_dir = inode.is_dir();
        let moves_dir = is_dir && from.0 != to.0;
        match self.find_name(to.0, to.1) {
            Ok(old) if old.ino == found.ino => return Ok(()),
            Ok(old) => {
                let other = self.inode(old.ino)?;
                match (is_dir, other.is_dir()) {
                    (true, false) => return Err(FsError::NotDir),
                    (false, true) => return Err(FsError::IsDir),
                    (true, true) if !self.is_empty(old.ino)? => return Err(FsError::NotEmpty),
                    _ => {}
                }
                self.set_name(to.0, &old, found.ino, kind)?;
                if is_dir {
                    self.change(old.ino, true, |i| i.links_count = 0.into())?;
                    self.drop_if_unused(old.ino)?;
                    // Its `..` is gone; the moved one's comes below.
                    self.fewer_links(to.0)?;
                } else {
                    self.fewer_links(old.ino)?;
                }
            }
            Err(FsError::NotFound) => {
                if moves_dir {
                    self.check_links(to.0)?;
                }
                self.add_name(to.0, to.1, found.ino, kind)?;
            }
            Err(e) => return Err(e),
        }
        self.change(found.ino, true, |i| self.stamp(i, false))?;
        // The new name may have moved the old one within its block.
        let old_name = self.find_name(from.0, from.1)?;
        self.remove_name(from.0, &old_name)?;
        if moves_dir || (is_dir && self.opts.era.rename_writes_dotdot()) {
            let dots = self.find_name(found.ino, b"..")?;
            self.set_name(found.ino, &dots, to.0, FileType::Dir.entry())?;
        }
        if moves_dir {
            self.more_links(to.0)?;
            self.fewer_links(from.0)?;
        }
        Ok(())
    }
}
