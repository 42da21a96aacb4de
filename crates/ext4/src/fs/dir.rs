//! Directories: finding, adding and removing names.
//!
//! A directory block lives in the block device's cache, as in Linux. A hash tree (`htree`) is
//! listed as the linear blocks that it also is.

use std::rc::{Rc, Weak};

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};
use wp_jbd2::Handle;
use wp_rt::{MaybeReady, soon};

use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::dir::{self, DirIter, Wipe};
use crate::disk::htree;
use crate::disk::inode::flag;

/// Blocks of a directory that are remembered as they are met ([`Inode::blocks_met`]).
const BLOCKS_MET_MAX: u64 = 1 << 16;

/// Where a name stands.
pub(super) struct Place {
    pub buf: Rc<Buffer>,
    pub offset: usize,
    pub ino: u32,
}

/// A name that was looked for in a directory and was not there, and when: a call that makes a name
/// looks for it first, and the file system looks again.
#[derive(Default)]
pub(super) struct Missed {
    /// The task's poll; while it lasts, nobody else changes a directory.
    turn: Option<u64>,
    dir: u32,
    name: Vec<u8>,
}

impl Ext4 {
    /// `name` is not in `dir` now.
    pub(super) fn note_missing(&self, dir: u32, name: &[u8]) {
        let mut missed = self.missed.borrow_mut();
        missed.turn = self.rt.turn();
        missed.dir = dir;
        missed.name.clear();
        missed.name.extend_from_slice(name);
    }

    /// Was `name` looked for in `dir` in vain, with nothing done since by anybody?
    pub(super) fn is_known_missing(&self, dir: u32, name: &[u8]) -> bool {
        let missed = self.missed.borrow();
        missed.turn.is_some()
            && missed.dir == dir
            && missed.name == name
            && missed.turn == self.rt.turn()
    }

    pub(super) fn dir_blocks(&self, dir: &Inode) -> u64 {
        dir.size.get() / u64::from(self.bs().bytes())
    }

    /// Block `n` of a directory if neither the map nor the block need be waited for and both have
    /// been checked before.
    pub(super) fn dir_block_now(&self, dir: &Inode, n: u64) -> Option<Rc<Buffer>> {
        if dir.map_lock.is_locked() || !dir.has(flag::EXTENTS) {
            return None;
        }
        let met = dir.blocks_met.borrow().get(n as usize).and_then(Weak::upgrade);
        let buf = match met {
            Some(buf) => buf,
            None => self.meet_dir_block(dir, n)?,
        };
        (buf.flag(BufFlag::Uptodate) && buf.flag(BufFlag::Verified)).then_some(buf)
    }

    /// Looks up a directory's block in a map that need not be read, and remembers it.
    fn meet_dir_block(&self, dir: &Inode, n: u64) -> Option<Rc<Buffer>> {
        let run = self.root_lookup(dir, u32::try_from(n).ok()?).ok()??.ok()?;
        let buf = self.bdev.peek(run.phys)?;
        if n < BLOCKS_MET_MAX {
            let mut met = dir.blocks_met.borrow_mut();
            if met.len() <= n as usize {
                met.resize_with(n as usize + 1, Weak::new);
            }
            met[n as usize] = Rc::downgrade(&buf);
        }
        Some(buf)
    }

    /// Block `n` of a directory, verified.
    pub(super) fn dir_block<'a>(
        &'a self,
        dir: &'a Inode,
        n: u64,
    ) -> MaybeReady<'a, FsResult<Rc<Buffer>>> {
        match self.dir_block_now(dir, n) {
            Some(buf) => MaybeReady::now(Ok(buf)),
            None => MaybeReady::later(self.load_dir_block(dir, n)),
        }
    }

    async fn load_dir_block(&self, dir: &Inode, n: u64) -> FsResult<Rc<Buffer>> {
        let run = self.find_run(dir, n).await?;
        let Ok(run) = run else {
            return Err(FsError::corrupt(
                "ext4 directory",
                "hole at block",
                0,
                n,
                "a mapped block",
            ));
        };
        let buf = self.bdev.read(run.phys).await?;
        if !buf.flag(BufFlag::Verified) {
            let at = buf.block() * u64::from(self.bs().bytes());
            let seed = self.csum.inode_seed(dir.ino, dir.disk.borrow().generation.get());
            let indexed = dir.has(flag::INDEX);
            let ok = buf.with(|b| {
                self.csum.dir_block_ok(seed, b)
                    || (indexed
                        && htree::entries_at(b)
                            .is_some_and(|e| self.csum.htree_block_ok(seed, b, e)))
            });
            if !ok {
                return Err(FsError::corrupt(
                    "ext4 directory block",
                    "checksum",
                    at,
                    u64::from(dir.ino),
                    "its checksum",
                ));
            }
            let inodes = self.geo.inodes_count;
            buf.with(|b| DirIter::new(b, at, inodes).try_for_each(|e| e.map(|_| ())))?;
            buf.set(BufFlag::Verified);
        }
        Ok(buf)
    }

    /// [`Ext4::find`] where it need not wait. `None`: it may have to, or something is wrong.
    pub(super) fn find_now(&self, dir: &Inode, name: &[u8]) -> Option<Option<Place>> {
        if !dir.is_dir() || name.len() > dir::NAME_MAX {
            return None;
        }
        if dir.has(flag::INDEX) {
            return self.find_indexed_now(dir, name);
        }
        for n in 0..self.dir_blocks(dir) {
            if let Some(place) = self.find_in_block(&self.dir_block_now(dir, n)?, name) {
                return Some(Some(place));
            }
        }
        Some(None)
    }

    /// Finds a name.
    pub(super) fn find<'a>(
        &'a self,
        dir: &'a Inode,
        name: &'a [u8],
    ) -> MaybeReady<'a, FsResult<Option<Place>>> {
        match self.find_now(dir, name) {
            Some(found) => MaybeReady::now(Ok(found)),
            None => MaybeReady::later(self.find_or_wait(dir, name)),
        }
    }

    async fn find_or_wait(&self, dir: &Inode, name: &[u8]) -> FsResult<Option<Place>> {
        if !dir.is_dir() {
            return Err(FsError::NotDir);
        }
        if name.len() > dir::NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        loop {
            let size = dir.size.get();
            let found = if dir.has(flag::INDEX) {
                self.find_indexed(dir, name).await?
            } else {
                self.find_linear(dir, name).await?
            };
            // A lookup does not lock the directory: a name may have moved to a block that was added
            // meanwhile.
            if found.is_some() || dir.size.get() == size {
                return Ok(found);
            }
        }
    }

    async fn find_linear(&self, dir: &Inode, name: &[u8]) -> FsResult<Option<Place>> {
        for n in 0..self.dir_blocks(dir) {
            let buf = soon!(self.dir_block(dir, n))?;
            if let Some(place) = self.find_in_block(&buf, name) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Finds a name in one block.
    pub(super) fn find_in_block(&self, buf: &Rc<Buffer>, name: &[u8]) -> Option<Place> {
        let (offset, ino) = self.names.borrow_mut().find(buf, name)?;
        Some(Place { buf: buf.clone(), offset, ino })
    }

    /// Where in a block there is room for `name`, if anywhere.
    pub(super) fn room_in_block(&self, buf: &Rc<Buffer>, name: &[u8]) -> FsResult<Option<usize>> {
        let mut names = self.names.borrow_mut();
        let bytes = dir::space(name.len());
        let from = names.room_from(buf, bytes);
        let inodes = self.geo.inodes_count;
        let room = buf.with(|b| dir::find_room(b, 0, inodes, from, name.len()))?;
        names.room_found(buf, bytes, room);
        Ok(room)
    }

    /// Every entry in use: (name, inode, type byte), `.` and `..` included.
    pub(super) async fn list(&self, dir: &Inode) -> FsResult<Vec<(Vec<u8>, u32, u8)>> {
        // All blocks first, and then at one instant: names move between blocks.
        let mut blocks = Vec::new();
        while (blocks.len() as u64) < self.dir_blocks(dir) {
            blocks.push(soon!(self.dir_block(dir, blocks.len() as u64))?);
        }
        let inodes = self.geo.inodes_count;
        let mut out = Vec::new();
        for buf in blocks {
            buf.with(|b| {
                for e in DirIter::new(b, 0, inodes).flatten().filter(|e| e.inode != 0) {
                    out.push((e.name.to_vec(), e.inode, e.file_type));
                }
            });
        }
        Ok(out)
    }

    /// Seals a changed directory block and gives it to the journal.
    pub(super) fn dirty_dir_block(
        &self,
        h: &Handle,
        dir: &Inode,
        buf: &Rc<Buffer>,
    ) -> FsResult<()> {
        self.missed.borrow_mut().turn = None;
        let seed = self.csum.inode_seed(dir.ino, dir.disk.borrow().generation.get());
        // With checksums a leaf never looks like an inner block: its tail is an entry.
        let indexed = dir.has(flag::INDEX) && self.csum.metadata();
        buf.with_mut(|b| match htree::entries_at(b).filter(|_| indexed) {
            Some(entries_at) => self.csum.seal_htree_block(seed, b, entries_at),
            None => self.csum.seal_dir_block(seed, b),
        });
        buf.set(BufFlag::Verified);
        self.dirty(h, buf)
    }

    /// Adds a name. The caller has checked that it is not there. Errors: `NoSpace`, `NameTooLong`.
    pub(super) async fn add_name(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        ino: u32,
        kind: u8,
    ) -> FsResult<()> {
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(FsError::Invalid("a name may not be empty, nor hold '/' or a zero byte"));
        }
        if name.len() > dir::NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let (buf, offset) = if dir.has(flag::INDEX) {
            self.room_indexed(h, dir, name).await?
        } else {
            self.room_linear(h, dir, name).await?
        };
        let changes = buf.changes();
        let at = buf.with_mut(|b| dir::insert(b, offset, ino, name, kind));
        self.dirty_dir_block(h, dir, &buf)?;
        self.names.borrow_mut().inserted(&buf, changes, at, name);
        let now = self.time();
        dir.set_mtime(now);
        dir.set_ctime(now);
        soon!(self.write_inode(h, dir))
    }

    /// Finds, or makes, room for `name`: a block with write access, and the offset.
    async fn room_linear(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<(Rc<Buffer>, usize)> {
        for n in 0..self.dir_blocks(dir) {
            let buf = soon!(self.dir_block(dir, n))?;
            if let Some(offset) = self.room_in_block(&buf, name)? {
                soon!(h.get_write_access(&buf))?;
                return Ok((buf, offset));
            }
            if self.may_index(dir) {
                return Box::pin(self.make_indexed(h, dir, &buf, name)).await;
            }
        }
        Ok((Box::pin(self.append_dir_block(h, dir)).await?, 0))
    }

    /// Adds an empty block at the end of a directory.
    pub(super) async fn append_dir_block(
        self: &Rc<Self>,
        h: &Handle,
        dir: &Rc<Inode>,
    ) -> FsResult<Rc<Buffer>> {
        let bs = u64::from(self.bs().bytes());
        let map = dir.map_lock.lock().await;
        let run = self.allocate(h, dir, self.dir_blocks(dir), 1, false).await?;
        drop(map);
        let buf = self.bdev.get(run.phys);
        h.get_create_access(&buf).await?;
        buf.with_mut(|b| dir::format(b, self.csum.metadata()));
        buf.set(BufFlag::Uptodate);
        buf.set(BufFlag::Verified);
        dir.size.set(dir.size.get() + bs);
        dir.disksize.set(dir.size.get());
        soon!(self.write_inode(h, dir))?;
        Ok(buf)
    }

    /// Removes `name`, which is at `place`.
    pub(super) async fn remove_name(
        &self,
        h: &Handle,
        dir: &Rc<Inode>,
        place: &Place,
        name: &[u8],
    ) -> FsResult<()> {
        soon!(h.get_write_access(&place.buf))?;
        let wipe = if self.opts.era.wipes_dirents() { Wipe::Zero } else { Wipe::Keep };
        let at = place.buf.block() * u64::from(self.bs().bytes());
        let inodes = self.geo.inodes_count;
        let changes = place.buf.changes();
        place.buf.with_mut(|b| dir::remove(b, at, inodes, place.offset, wipe))?;
        self.dirty_dir_block(h, dir, &place.buf)?;
        self.names.borrow_mut().removed(&place.buf, changes, place.offset, name);
        let now = self.time();
        dir.set_mtime(now);
        dir.set_ctime(now);
        soon!(self.write_inode(h, dir))
    }

    /// Points the name at `place` to another inode.
    pub(super) async fn retarget(
        &self,
        h: &Handle,
        dir: &Rc<Inode>,
        place: &Place,
        ino: u32,
        kind: u8,
    ) -> FsResult<()> {
        soon!(h.get_write_access(&place.buf))?;
        place.buf.with_mut(|b| dir::set_target(b, place.offset, ino, kind));
        self.dirty_dir_block(h, dir, &place.buf)
    }

    /// Is there nothing but `.` and `..`?
    pub(super) async fn is_empty_dir(&self, dir: &Inode) -> FsResult<bool> {
        Ok(self.list(dir).await?.iter().all(|(n, _, _)| n == b"." || n == b".."))
    }
}
