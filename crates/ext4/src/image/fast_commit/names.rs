//! Names during a replay: creating, linking and unlinking them in directories.

use wp_base::{FsError, FsResult};
use wp_vfs::FileType;

use crate::disk::dir::{self, DirEntryTail, DirIter, Wipe};
use crate::disk::fast_commit::Name;
use crate::disk::htree;
use crate::disk::inode::flag;
use crate::disk::{compat, incompat};

use super::super::Run;
use super::{Replay, ranges};

/// A block of a directory.
pub(super) struct DirBlock {
    /// Where it lies.
    pub block: u64,
    pub bytes: Vec<u8>,
}

/// What a block has for a name.
pub(super) enum Dest {
    /// The name itself.
    Exists,
    /// Room at this entry.
    Room(usize),
    Full,
}

impl Replay<'_> {
    /// A new file's name. Errors: `Corrupt` for an inode that was not recorded before.
    /// Source: `ext4_fc_replay_create`.
    pub(super) fn create(&mut self, n: &Name<'_>) -> FsResult<()> {
        self.refuse_inline()?;
        self.editor.mark_inode_used(n.ino)?;
        if !self.hold(n.ino)? {
            let expected = "an inode that was recorded before its name";
            return Err(FsError::corrupt("ext4 fast commit", "fc_ino", 0, n.ino.into(), expected));
        }
        if self.held(n.ino)?.record.inode.is_dir() {
            // What goes wrong with the directory's own block is no error: it has no name then.
            if !self.hold(n.parent)? || self.make_dir(n.ino, n.parent).is_err() {
                return Ok(());
            }
        }
        self.add_link(n)?;
        let held = self.held(n.ino)?;
        held.record.inode.links_count = 1.into();
        held.is_changed = true;
        Ok(())
    }

    /// Another name. Source: `ext4_fc_replay_link`.
    pub(super) fn link(&mut self, n: &Name<'_>) -> FsResult<()> {
        self.refuse_inline()?;
        if self.hold(n.ino)? { self.add_link(n) } else { Ok(()) }
    }

    /// A name that is there already, and a directory that is not, are no errors.
    ///
    /// Source: `ext4_fc_replay_link_internal`, `__ext4_link`.
    fn add_link(&mut self, n: &Name<'_>) -> FsResult<()> {
        if !self.hold(n.parent)? {
            return Ok(());
        }
        let kind = match self.editor.image().super_block().has_incompat(incompat::FILETYPE) {
            true => FileType::entry_of_mode(self.held(n.ino)?.record.inode.mode.get().into()),
            false => 0,
        };
        if !self.add_name(n.parent, n.name, n.ino, kind)? {
            return Ok(());
        }
        self.touch(n.parent, true)?;
        let links = &mut self.held(n.ino)?.record.inode.links_count;
        *links = links.get().saturating_add(1).into();
        self.touch(n.ino, false)
    }

    /// A name that is gone; with its last one the inode goes.
    ///
    /// Source: `ext4_fc_replay_unlink`, `__ext4_unlink`.
    pub(super) fn unlink(&mut self, n: &Name<'_>) -> FsResult<()> {
        self.refuse_inline()?;
        if !self.hold(n.ino)? || !self.hold(n.parent)? {
            return Ok(());
        }
        let Some((mut found, offset, ino)) = self.find_name(n.parent, n.name)? else {
            return Ok(());
        };
        // The name may be another inode's by now: then only the link is dropped.
        if ino == n.ino {
            let at = self.editor.image().byte_of(found.block);
            let inodes = self.editor.image().geometry().inodes_count;
            dir::remove(&mut found.bytes, at, inodes, offset, Wipe::Zero)?;
            self.store_dir_block(n.parent, &mut found)?;
            self.touch(n.parent, true)?;
        }
        let links = &mut self.held(n.ino)?.record.inode.links_count;
        *links = links.get().saturating_sub(1).into();
        let is_gone = links.get() == 0;
        self.touch(n.ino, false)?;
        if is_gone { self.delete(n.ino) } else { Ok(()) }
    }

    /// The first block of a new directory. Errors: also if it has one. Source: `ext4_init_new_dir`.
    fn make_dir(&mut self, ino: u32, parent: u32) -> FsResult<()> {
        if self.map(ino)?.find(0).is_some() {
            return Err(FsError::Exists);
        }
        self.held(ino)?.record.inode.set_size(0);
        let mut first = self.append_dir_block(ino)?.1;
        self.put_dots(&mut first.bytes, ino, parent, self.dir_end());
        self.held(ino)?.record.inode.links_count = 2.into();
        self.store_dir_block(ino, &mut first)
    }

    /// "." and "..", the latter up to `end`.
    pub(super) fn put_dots(&self, bytes: &mut [u8], ino: u32, parent: u32, end: usize) {
        let has_type = self.editor.image().super_block().has_incompat(incompat::FILETYPE);
        let kind = if has_type { FileType::Dir.entry() } else { 0 };
        let dot = dir::space(1);
        dir::put(bytes, 0, dot, ino, b".", kind);
        dir::put(bytes, dot, end - dot, parent, b"..", kind);
    }

    /// Where names end in a block of a directory.
    pub(super) fn dir_end(&self) -> usize {
        let has_tail = self.editor.image().checksums().metadata();
        self.editor.image().block_bytes() - if has_tail { DirEntryTail::BYTES } else { 0 }
    }

    /// Blocks of a directory. Errors: `NotDir`, `Corrupt` for an impossible size.
    pub(super) fn dir_blocks(&mut self, ino: u32) -> FsResult<u32> {
        let image = self.editor.image();
        let record = &self.inodes.get(&ino).ok_or(FsError::Io)?.record;
        if !record.inode.is_dir() {
            return Err(FsError::NotDir);
        }
        image.dir_blocks(record)
    }

    /// Block `n` of a directory, verified.
    pub(super) fn dir_block(&mut self, ino: u32, n: u32) -> FsResult<DirBlock> {
        self.map(ino)?;
        let held = self.inodes.get(&ino).ok_or(FsError::Io)?;
        let map = held.map.as_ref().ok_or(FsError::Io)?;
        let (bytes, at) = self.editor.image().dir_block(&held.record, map, n)?;
        let block = at / u64::from(self.editor.image().block_size().bytes());
        Ok(DirBlock { block, bytes })
    }

    /// Seals a block of a directory and writes it.
    pub(super) fn store_dir_block(&mut self, ino: u32, b: &mut DirBlock) -> FsResult<()> {
        let held = self.inodes.get(&ino).ok_or(FsError::Io)?;
        let image = self.editor.image();
        let (seed, sums) = (image.seed_of(&held.record), image.checksums());
        // With checksums a leaf never looks like an inner block: its tail is an entry.
        let is_indexed = held.record.inode.has(flag::INDEX) && sums.metadata();
        match htree::entries_at(&b.bytes).filter(|_| is_indexed) {
            Some(at) => sums.seal_htree_block(seed, &mut b.bytes, at),
            None => sums.seal_dir_block(seed, &mut b.bytes),
        }
        self.editor.write_block(b.block, &b.bytes)
    }

    /// An empty block at the end of a directory, with its number; it is not written yet.
    ///
    /// `i_blocks` stays: during a replay nothing counts them. Source: `ext4_append`.
    pub(super) fn append_dir_block(&mut self, ino: u32) -> FsResult<(u32, DirBlock)> {
        let n = self.dir_blocks(ino)?;
        if self.map(ino)?.find(n).is_some() {
            let expected = "a directory without blocks behind its end";
            return Err(FsError::corrupt("ext4 directory", "i_size", 0, n.into(), expected));
        }
        // A map that cannot take the block is found out before the block is taken.
        self.map_mut(ino)?;
        let goal = self.goal(ino, n.into())?;
        let block = self.new_block(goal)?;
        let run = Run { logical: n, start: block, blocks: 1, is_unwritten: false };
        ranges::put(&mut self.map_mut(ino)?.runs, run);
        let bs = self.editor.image().block_bytes();
        let mut bytes = vec![0; bs];
        dir::format(&mut bytes, self.editor.image().checksums().metadata());
        let held = self.held(ino)?;
        held.record.inode.set_size((u64::from(n) + 1) * bs as u64);
        held.is_changed = true;
        Ok((n, DirBlock { block, bytes }))
    }

    /// What a block has for `name`: an entry of that name counts only before the first room, as a
    /// kernel looks. Source: `ext4_find_dest_de`.
    pub(super) fn dest(&self, b: &DirBlock, name: &[u8]) -> FsResult<Dest> {
        let image = self.editor.image();
        let need = dir::space(name.len());
        let end = self.dir_end();
        for e in DirIter::new(&b.bytes, image.byte_of(b.block), image.geometry().inodes_count) {
            let e = e?;
            if e.offset >= end {
                break;
            }
            if e.inode != 0 && e.name == name {
                return Ok(Dest::Exists);
            }
            if e.spare() >= need {
                return Ok(Dest::Room(e.offset));
            }
        }
        Ok(Dest::Full)
    }

    /// Writes a name at the room found for it.
    pub(super) fn insert(
        &mut self,
        dir: u32,
        b: &mut DirBlock,
        at: usize,
        name: &[u8],
        ino: u32,
        kind: u8,
    ) -> FsResult<()> {
        dir::insert(&mut b.bytes, at, ino, name, kind);
        self.store_dir_block(dir, b)
    }

    /// Adds a name. `false`: it was there. Source: `ext4_add_entry`.
    fn add_name(&mut self, dir: u32, name: &[u8], ino: u32, kind: u8) -> FsResult<bool> {
        if name.iter().any(|c| matches!(c, 0 | b'/')) {
            let expected = "a name without slashes and zero bytes";
            return Err(FsError::corrupt("ext4 fast commit", "fc_dname", 0, dir.into(), expected));
        }
        let blocks = self.dir_blocks(dir)?;
        if self.held(dir)?.record.inode.has(flag::INDEX) {
            return self.add_indexed(dir, name, ino, kind);
        }
        for n in 0..blocks {
            let mut b = self.dir_block(dir, n)?;
            match self.dest(&b, name)? {
                Dest::Exists => return Ok(false),
                Dest::Room(at) => {
                    self.insert(dir, &mut b, at, name, ino, kind)?;
                    return Ok(true);
                }
                Dest::Full => {}
            }
            if blocks == 1 && self.editor.image().super_block().has_compat(compat::DIR_INDEX) {
                self.make_indexed(dir, b)?;
                return self.add_indexed(dir, name, ino, kind);
            }
        }
        let mut b = self.append_dir_block(dir)?.1;
        self.insert(dir, &mut b, 0, name, ino, kind)?;
        Ok(true)
    }

    /// Where a name stands: block, offset, inode.
    fn find_name(&mut self, dir: u32, name: &[u8]) -> FsResult<Option<(DirBlock, usize, u32)>> {
        let blocks = self.dir_blocks(dir)?;
        if self.held(dir)?.record.inode.has(flag::INDEX) {
            return self.find_indexed(dir, name);
        }
        for n in 0..blocks {
            let b = self.dir_block(dir, n)?;
            if let Some((offset, ino)) = dir::find(&b.bytes, name) {
                return Ok(Some((b, offset, ino)));
            }
        }
        Ok(None)
    }
}
