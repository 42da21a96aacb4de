//! What the page cache has of files, and what the flusher does with it.
//!
//! Picture:    a write -> block of a [`Mapping`], dirty -> a construction takes it into a log:
//!             under writeback -> the log has arrived: clean.
//! Invariants: 1. a block is under writeback exactly while a log with it is made or sent. Whoever
//!                does that holds [`super::Nilfs::sem`], and so does whoever changes a block.
//!             2. blocks of metadata are in the store. Their files have mappings all the same, for
//!                their places among what is dirty; one tag stands for all of their blocks.
//! Source:     fs/nilfs2: inode.c (`nilfs_writepages`), mdt.c (`nilfs_mdt_write_folio`), segment.c
//!             (`nilfs_end_folio_io`).

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};

use wp_base::FsResult;
use wp_cache::{BufFlag, Buffer, Fut, Index, Mapping, WbControl, WbOps, Writeback};
use wp_medium::Versions;
use wp_rt::{Lock, Rt};

use super::Nilfs;
use crate::disk::ino;
use crate::log::{Block, FileData};

/// Files whose blocks the store has.
const TABLES: [u64; 4] = [ino::DAT, ino::CPFILE, ino::SUFILE, ino::IFILE];

/// A file in memory.
pub(super) struct Inode {
    /// Its number.
    pub ino: u64,
    /// Its blocks. One with a place in the file's map is [`BufFlag::Mapped`].
    pub map: Rc<Mapping>,
    /// Held by who writes it or changes its length, before [`Nilfs::sem`] (`i_rwsem`).
    pub lock: Rc<Lock<()>>,
    /// Of a directory: what logs have of its blocks, each of which differs little from the last.
    versions: RefCell<Option<BTreeMap<u64, Versions>>>,
    pages: Weak<Pages>,
}

impl Inode {
    /// It is a directory.
    pub fn keep_versions(&self) {
        self.versions.borrow_mut().get_or_insert_default();
    }
}

impl WbOps for Inode {
    /// A log of the range where somebody waits for it. The flusher by itself writes no page of a
    /// file (`nilfs_writepages`).
    fn writepages<'a>(&'a self, _map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            match Pages::mounted(&self.pages) {
                Some(fs) if wbc.sync => fs.write_data(self.ino, wbc.range.0, wbc.range.1).await,
                _ => Ok(()),
            }
        })
    }
}

/// A metadata file.
struct Table {
    ino: u64,
    map: Rc<Mapping>,
    /// Tagged as long as any block is dirty, and until the flusher finds that none is.
    any: Rc<Buffer>,
    pages: Weak<Pages>,
}

impl Table {
    /// Where somebody waits, a checkpoint has what is dirty. That it failed is recorded, as it is
    /// of no log of a file (`writepage_cb`).
    async fn write(&self, fs: &Nilfs, sync: bool) -> FsResult<()> {
        let is_dirty = || fs.store.borrow().is_metadata_dirty(self.ino);
        let done = match sync && is_dirty() {
            true => fs.write_all().await,
            false => Ok(()),
        };
        if done.is_err() {
            self.map.errors().set();
            fs.pages.wb.errors().set();
        }
        if !is_dirty() {
            self.map.drop_tag(self.any.block());
        }
        done
    }
}

impl WbOps for Table {
    fn writepages<'a>(&'a self, _map: &'a Rc<Mapping>, wbc: &'a WbControl) -> Fut<'a, ()> {
        Box::pin(async move {
            match Pages::mounted(&self.pages) {
                Some(fs) => self.write(&fs, wbc.sync).await,
                None => Ok(()),
            }
        })
    }
}

/// The page cache of a file system.
pub(super) struct Pages {
    me: Weak<Pages>,
    rt: Rt,
    block_bytes: u32,
    /// Its flusher.
    pub wb: Rc<Writeback>,
    fs: OnceCell<Weak<Nilfs>>,
    files: RefCell<Index<Rc<Inode>>>,
    tables: [Rc<Table>; 4],
    /// Blocks in logs that are made or on their way.
    in_log: RefCell<Vec<(Rc<Mapping>, Rc<Buffer>)>>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("in_log", &self.in_log.borrow().len()).finish_non_exhaustive()
    }
}

impl Pages {
    /// An empty one, of blocks of `block_bytes`.
    pub fn new(rt: &Rt, wb: Rc<Writeback>, block_bytes: u32) -> Rc<Pages> {
        Rc::new_cyclic(|me: &Weak<Pages>| Pages {
            me: me.clone(),
            rt: rt.clone(),
            block_bytes,
            fs: OnceCell::new(),
            files: RefCell::default(),
            tables: TABLES.map(|ino| {
                let map = Mapping::new(rt, "nilfs2 metadata", block_bytes, &wb);
                let table = Rc::new(Table { ino, any: map.get(0), map, pages: me.clone() });
                let ops: Weak<Table> = Rc::downgrade(&table);
                table.map.set_ops(ops);
                table
            }),
            in_log: RefCell::default(),
            wb,
        })
    }

    /// Whose it is.
    pub fn belongs_to(&self, fs: Weak<Nilfs>) {
        // It is said once, at the mount.
        let _ = self.fs.set(fs);
    }

    fn mounted(pages: &Weak<Pages>) -> Option<Rc<Nilfs>> {
        pages.upgrade()?.fs.get()?.upgrade()
    }

    /// A file.
    pub fn inode(&self, ino: u64) -> Rc<Inode> {
        if let Some(inode) = self.files.borrow().get(ino) {
            return inode.clone();
        }
        let inode = Rc::new(Inode {
            ino,
            map: Mapping::new(&self.rt, "nilfs2 file", self.block_bytes, &self.wb),
            lock: Rc::new(Lock::new(&self.rt, "nilfs2 inode", ())),
            versions: RefCell::default(),
            pages: self.me.clone(),
        });
        let ops: Weak<Inode> = Rc::downgrade(&inode);
        inode.map.set_ops(ops);
        self.files.borrow_mut().insert(ino, inode.clone());
        inode
    }

    /// A file goes, of which nothing is dirty.
    pub fn forget(&self, ino: u64) {
        if let Some(inode) = self.files.borrow_mut().remove(ino) {
            self.wb.forget(&inode.map);
        }
    }

    /// Forgets all blocks that are as on the medium of those of its files that `which` names.
    pub fn drop_clean(&self, which: impl Fn(u64) -> bool) {
        for inode in self.files.borrow().values().filter(|inode| which(inode.ino)) {
            inode.map.invalidate(0, u64::MAX);
        }
    }

    /// A block of a metadata file has become dirty (`nilfs_mdt_mark_dirty`).
    pub fn table_dirtied(&self, ino: u64) {
        if let Some(table) = self.tables.iter().find(|table| table.ino == ino)
            && !table.map.has_dirty()
        {
            table.map.tag(&table.any);
        }
    }

    /// What of files was in the logs that were made last has arrived; or no log has it, and it is
    /// dirty again. No error is recorded (`nilfs_end_folio_io`).
    pub fn end_logs(&self, have_arrived: bool) {
        for (map, b) in self.in_log.take() {
            map.end_writeback(&b, false);
            if !have_arrived {
                map.mark_dirty(&b);
            }
        }
    }
}

impl FileData for Pages {
    fn dirty(&self, ino: u64, keys: RangeInclusive<u64>) -> Vec<u64> {
        let files = self.files.borrow();
        files
            .get(ino)
            .map_or_else(Vec::new, |inode| inode.map.tagged(*keys.start(), *keys.end(), usize::MAX))
    }

    fn is_dirty(&self, ino: u64, keys: RangeInclusive<u64>) -> bool {
        let first = |inode: &Rc<Inode>| inode.map.first_tagged(*keys.start(), *keys.end());
        self.files.borrow().get(ino).and_then(first).is_some()
    }

    fn take(&self, ino: u64, key: u64) -> Option<Block> {
        let map = self.files.borrow().get(ino)?.map.clone();
        let b = map.peek(key).filter(|b| b.flag(BufFlag::Dirty))?;
        map.begin_writeback(&b);
        let contents = b.snapshot();
        self.in_log.borrow_mut().push((map, b));
        Some(contents.into())
    }

    fn sent(&self, ino: u64, key: u64, mut contents: Block) -> Block {
        let files = self.files.borrow();
        let Some(inode) = files.get(ino) else { return contents };
        match &mut *inode.versions.borrow_mut() {
            Some(all) => Block::version(contents.bytes(), all.entry(key).or_default()),
            None => contents,
        }
    }
}
