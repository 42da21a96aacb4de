//! Inodes in memory, and their way to and from their node blocks.
//!
//! Invariants: 1. the tree of a file's nodes is walked and changed under `map_lock` only; whoever
//!                needs it besides [`F2fs::lock_op`] takes it after that.
//!             2. fields that differ from the node block mark the inode dirty. With `sync` a
//!                checkpoint copies them; without (times), only the flusher or an fsync.
//! Source:     Linux `fs/f2fs/inode.c`, `fs/f2fs/super.c` (`f2fs_inode_dirtied`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use wp_base::live::{Kind as LiveKind, Tally};
use wp_base::{FsError, FsResult, Rng};
use wp_cache::{Buffer, Index, Mapping, WbOps};
use wp_rt::{Lock, Rt, WaitQueue};
use wp_vfs::{Attr, FileType, TimeSpec};

use super::extent::{Extent, Extents};
use super::ino_sets::InoSet;
use super::io::Kind;
use super::mount::F2fs;
use crate::disk::inode::{advise, inline, mode};
use crate::disk::{self, Block, Footer, Geometry, InodeExtra, Shape, Stamp, feature};

/// Bits of an inode's state in memory (`FI_*`).
pub(super) mod fi {
    /// Its node block is not made yet (`FI_NEW_INODE`).
    pub const NEW: u32 = 1;
    /// Its fields differ from the node block (`FI_DIRTY_INODE`).
    pub const DIRTY: u32 = 1 << 1;
    /// Only what recovery finds by itself differs: size and blocks (`FI_AUTO_RECOVER`).
    pub const AUTO_RECOVER: u32 = 1 << 2;
    /// An fsync may write in place (`FI_NEED_IPU`).
    pub const NEED_IPU: u32 = 1 << 3;
    /// Data went to new places since the last fsync (`FI_APPEND_WRITE`).
    pub const APPEND_WRITE: u32 = 1 << 4;
    /// Data was written in place since (`FI_UPDATE_WRITE`).
    pub const UPDATE_WRITE: u32 = 1 << 5;
    /// A name is being added (`FI_INC_LINK`).
    pub const INC_LINK: u32 = 1 << 6;
    /// Being freed: no new blocks (`FI_NO_ALLOC`).
    pub const NO_ALLOC: u32 = 1 << 7;
    /// Few blocks are written: to the hot log (`FI_HOT_DATA`).
    pub const HOT_DATA: u32 = 1 << 8;
    /// Runs are not kept (`FI_NO_EXTENT`).
    pub const NO_EXTENT: u32 = 1 << 9;
    /// On the list that a checkpoint copies (`gdirty_list`).
    pub const LISTED: u32 = 1 << 10;
}

/// Flags of a directory that what is made in it has too (`F2FS_FL_INHERITED`).
const INHERITED: u32 = disk::inode::flag::SYNC
    | disk::inode::flag::NODUMP
    | disk::inode::flag::NOATIME
    | disk::inode::flag::DIRSYNC
    | disk::inode::flag::PROJINHERIT
    | disk::inode::flag::CASEFOLD;

/// Fields of an inode.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Blocks of nodes and data, without the inode's own (`i_blocks` in blocks).
    pub blocks: u64,
    pub atime: TimeSpec,
    pub ctime: TimeSpec,
    pub mtime: TimeSpec,
    pub crtime: TimeSpec,
    /// Times as the node block has them (`i_disk_time`).
    pub disk_times: [TimeSpec; 4],
    pub generation: u32,
    /// Levels of a directory; of a file `i_gc_failures`.
    pub depth: u32,
    pub xattr_nid: u32,
    pub flags: u32,
    pub advise: u8,
    /// Bits of [`inline`].
    pub inline: u8,
    pub pino: u32,
    pub dir_level: u8,
    pub extra_isize: u16,
    /// Words of attributes (`i_inline_xattr_size`).
    pub xattr_words: u16,
    pub projid: u32,
}

/// An inode in memory.
pub(crate) struct Inode {
    /// Its number.
    pub ino: u32,
    /// Its blocks.
    pub map: Rc<Mapping>,
    pub(super) f: RefCell<Fields>,
    /// Length in bytes.
    pub(super) size: Cell<u64>,
    state: Cell<u32>,
    /// Dirty blocks in the cache (`dirty_pages`).
    pub(super) dirty_pages: Cell<u64>,
    /// Length that the blocks on the device give (`last_disk_size`).
    pub(super) last_disk_size: Cell<u64>,
    pub(super) extents: RefCell<Extents>,
    /// Hash of the name that was looked for last, and the level with room for it (`chash`,
    /// `clevel`).
    pub(super) room: Cell<(u32, u32)>,
    /// Names by which it was met: directory and name (its dentries).
    pub(super) aliases: RefCell<Vec<(u32, Vec<u8>)>>,
    /// `i_rwsem`.
    pub(super) lock: Lock<()>,
    /// The tree of its nodes.
    pub(super) map_lock: Lock<()>,
    pub(super) opens: Cell<u32>,
    pub(super) writers: Cell<u32>,
    /// Direct I/O under way (`i_dio_count`).
    pub(super) dio: Cell<u32>,
    pub(super) dio_done: WaitQueue,
    /// Being freed: no longer to be found.
    pub(super) gone: Cell<bool>,
    pub(super) fs: Weak<F2fs>,
    _tally: Tally,
}

impl Inode {
    /// Is a bit of [`fi`] set?
    pub(super) fn is(&self, bit: u32) -> bool {
        self.state.get() & bit != 0
    }

    pub(super) fn set(&self, bit: u32) {
        self.state.set(self.state.get() | bit);
    }

    pub(super) fn clear(&self, bit: u32) {
        self.state.set(self.state.get() & !bit);
    }

    pub(super) fn is_dir(&self) -> bool {
        self.f.borrow().mode & mode::TYPE == mode::DIR
    }

    pub(super) fn is_file(&self) -> bool {
        self.f.borrow().mode & mode::TYPE == mode::FILE
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_mode(u32::from(self.f.borrow().mode)).unwrap_or(FileType::File)
    }

    pub(super) fn nlink(&self) -> u32 {
        self.f.borrow().nlink
    }

    /// Has it a bit of [`inline`]?
    pub(super) fn has_inline(&self, bits: u8) -> bool {
        self.f.borrow().inline & bits != 0
    }

    /// Has it a bit of [`advise`]?
    pub(super) fn has_advice(&self, bits: u8) -> bool {
        self.f.borrow().advise & bits != 0
    }

    /// Has it a bit of `i_flags`?
    pub(super) fn has_flag(&self, bits: u32) -> bool {
        self.f.borrow().flags & bits != 0
    }

    /// How the words of its node block are used.
    pub(super) fn shape(&self) -> Shape {
        let f = self.f.borrow();
        let extra_words = u32::from(f.extra_isize) / 4;
        let xattr_words = u32::from(f.xattr_words);
        Shape {
            extra_words,
            xattr_words,
            inode_addrs: disk::Inode::WORDS.saturating_sub(extra_words + xattr_words),
            node_addrs: disk::Node::WORDS,
        }
    }

    /// Do its times stand in the node block (`f2fs_is_time_consistent`)?
    pub(super) fn has_disk_times(&self) -> bool {
        let f = self.f.borrow();
        f.disk_times == [f.atime, f.ctime, f.mtime, f.crtime]
    }

    /// Is nobody using it, and does its node block say all that is known of it?
    fn is_idle(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
            && self.opens.get() == 0
            && !self.gone.get()
            && !self.is(fi::DIRTY | fi::NEW)
            && self.has_disk_times()
            && self.dirty_pages.get() == 0
            && self.nlink() > 0
            && self.map.is_idle()
    }

    pub(super) fn attr(&self) -> Attr {
        let f = self.f.borrow();
        let size = self.size.get();
        let mut blocks_512 = f.blocks * 8;
        if f.inline & (inline::DATA | inline::DENTRY) != 0 {
            blocks_512 += size.div_ceil(512);
        }
        Attr {
            ino: wp_base::Ino(u64::from(self.ino)),
            kind: FileType::from_mode(u32::from(f.mode)).unwrap_or(FileType::File),
            mode: u32::from(f.mode) & 0o7777,
            nlink: f.nlink,
            uid: f.uid,
            gid: f.gid,
            size,
            blocks_512,
            atime: f.atime,
            mtime: f.mtime,
            ctime: f.ctime,
        }
    }
}

/// What the files' half keeps for a mounted file system.
pub(crate) struct Files {
    pub(super) inodes: RefCell<Index<Rc<Inode>>>,
    order: RefCell<VecDeque<u32>>,
    /// Most inodes and blocks of one file in memory.
    pub(super) limits: Cell<(usize, usize)>,
    /// Numbers that tell generations of an inode number apart.
    generations: RefCell<Rng>,
    /// Writers of data of whom somebody waits for (`wb_sync_req[DATA]`).
    pub(super) sync_writers: Cell<u32>,
    /// Long passes of writeback come one after another (`sbi->writepages`).
    pub(super) writepages: Lock<()>,
}

impl Files {
    pub(super) fn new(rt: &Rt) -> Files {
        Files {
            inodes: RefCell::default(),
            order: RefCell::default(),
            limits: Cell::new((1 << 16, 1 << 18)),
            generations: RefCell::new(rt.rng("f2fs inode generations")),
            sync_writers: Cell::new(0),
            writepages: Lock::new(rt, "f2fs writepages", ()),
        }
    }
}

fn time_of(s: Stamp) -> TimeSpec {
    TimeSpec { secs: s.secs, nanos: s.nanos }
}

/// A buffer's bytes as a block.
pub(super) fn block_of(bytes: &[u8]) -> &Block {
    bytes.try_into().expect("buffers of this file system have 4096 bytes")
}

/// A buffer's bytes as a block, to change it.
pub(super) fn block_mut(bytes: &mut [u8]) -> &mut Block {
    bytes.try_into().expect("buffers of this file system have 4096 bytes")
}

/// What a new inode begins with.
pub(super) struct NewInode<'a> {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Its name, if that says how warm it is.
    pub name: Option<&'a [u8]>,
}

impl F2fs {
    /// The time as inodes have it: at the tick (`current_time`).
    pub(super) fn time(&self) -> TimeSpec {
        let tick = 1_000_000_000 / self.opts.writeback.hz.max(1);
        let ns = self.rt.now().0 / tick * tick;
        TimeSpec {
            secs: self.opts.epoch_secs + (ns / 1_000_000_000) as i64,
            nanos: (ns % 1_000_000_000) as u32,
        }
    }

    /// Marks an inode dirty (`f2fs_mark_inode_dirty_sync`); `sync`: so that a checkpoint takes it.
    pub(super) fn mark_inode_dirty(&self, inode: &Rc<Inode>, sync: bool) {
        if inode.is(fi::NEW) {
            return;
        }
        if sync && !inode.is(fi::LISTED) {
            inode.set(fi::LISTED);
            self.inode_dirtied(inode.ino);
        }
        if !inode.is(fi::DIRTY) {
            inode.set(fi::DIRTY);
            inode.map.mark_inode_dirty();
        }
    }

    /// Its node block says all of it (`f2fs_inode_synced`).
    pub(super) fn mark_inode_synced(&self, inode: &Inode) {
        if inode.is(fi::LISTED) {
            self.inode_synced(inode.ino);
        }
        inode.clear(fi::DIRTY | fi::AUTO_RECOVER | fi::LISTED);
    }

    /// After a change that recovery would find by itself.
    fn mark_recoverable(&self, inode: &Rc<Inode>) {
        let clean = !inode.is(fi::DIRTY) || inode.is(fi::AUTO_RECOVER);
        self.mark_inode_dirty(inode, true);
        if clean {
            inode.set(fi::AUTO_RECOVER);
        }
    }

    /// `f2fs_i_size_write`.
    pub(super) fn set_size(&self, inode: &Rc<Inode>, size: u64) {
        if inode.size.get() != size {
            inode.size.set(size);
            self.mark_recoverable(inode);
        }
    }

    /// Adds to the blocks that it has, or (`add` less than 0) takes from them
    /// (`f2fs_i_blocks_write`).
    pub(super) fn add_blocks(&self, inode: &Rc<Inode>, add: i64) {
        {
            let mut f = inode.f.borrow_mut();
            f.blocks = f.blocks.saturating_add_signed(add);
        }
        self.mark_recoverable(inode);
    }

    /// `f2fs_i_links_write`.
    pub(super) fn add_links(&self, inode: &Rc<Inode>, add: i32) {
        {
            let mut f = inode.f.borrow_mut();
            f.nlink = f.nlink.saturating_add_signed(add);
        }
        self.mark_inode_dirty(inode, true);
    }

    /// Changes fields that a checkpoint is to have.
    pub(super) fn change(&self, inode: &Rc<Inode>, f: impl FnOnce(&mut Fields)) {
        f(&mut inode.f.borrow_mut());
        self.mark_inode_dirty(inode, true);
    }

    /// New times of a directory or file whose contents changed.
    pub(super) fn touch(&self, inode: &Rc<Inode>) {
        let now = self.time();
        {
            let mut f = inode.f.borrow_mut();
            (f.ctime, f.mtime) = (now, now);
        }
        self.mark_inode_dirty(inode, false);
    }

    /// The inode, if it is in memory (`ilookup`).
    pub(super) fn inode_in_memory(&self, ino: u32) -> Option<Rc<Inode>> {
        self.files.inodes.borrow().get(u64::from(ino)).cloned()
    }

    /// The inode (`f2fs_iget`). Errors: `NotFound`, `Corrupt`, `Io`.
    pub(super) async fn iget(self: &Rc<Self>, ino: u32) -> FsResult<Rc<Inode>> {
        if let Some(inode) = self.inode_in_memory(ino) {
            return if inode.gone.get() { Err(FsError::NotFound) } else { Ok(inode) };
        }
        let inode = self.read_inode(ino).await?;
        Ok(inode)
    }

    /// `do_read_inode`.
    async fn read_inode(self: &Rc<Self>, ino: u32) -> FsResult<Rc<Inode>> {
        if ino < disk::nid::ROOT || ino >= self.g.nids() {
            let expected = format!("{} to {}", disk::nid::ROOT, self.g.nids() - 1);
            return Err(FsError::corrupt("f2fs directory entry", "ino", 0, ino.into(), expected));
        }
        let buf = self.node(ino).await?;
        // Somebody may have read it while we waited.
        if let Some(inode) = self.inode_in_memory(ino) {
            return if inode.gone.get() { Err(FsError::NotFound) } else { Ok(inode) };
        }
        let feature = self.sb.feature.get();
        let (fields, size, largest, rest, at_cold) = buf.with(|b| {
            let block = block_of(b);
            disk::Inode::verify(block, feature, 0).map_err(FsError::from)?;
            let d = disk::Inode::of(block);
            let ext = Extent { fofs: d.ext.fofs.get(), blk: d.ext.blk.get(), len: d.ext.len.get() };
            let shape = Shape::of(d, feature);
            let has_data = d.inline_area(&shape).iter().any(|b| *b != 0);
            let cold = Footer::of(block).has(Footer::COLD);
            FsResult::Ok((fields_of(d, feature), d.size.get(), ext, has_data, cold))
        })?;
        self.check_extent(ino, largest)?;
        let is_file = fields.mode & mode::TYPE == mode::FILE;
        let is_dir = fields.mode & mode::TYPE == mode::DIR;
        let inode = self.adopt(ino, fields, size);
        if is_file && self.opts.extent_cache {
            *inode.extents.borrow_mut() = Extents::of(largest);
        } else {
            inode.set(fi::NO_EXTENT);
        }
        if inode.has_inline(inline::DATA) && !inode.has_inline(inline::DATA_EXIST) && rest {
            self.change(&inode, |f| f.inline |= inline::DATA_EXIST);
        }
        if !is_dir && !at_cold {
            self.wait_on_page_writeback(&buf, Kind::Node, true).await;
            buf.with_mut(|b| Footer::of_mut(block_mut(b)).set_mark(Footer::COLD, true));
            self.dirty_node(&buf);
        }
        if !self.need_inode_block_update(ino).await {
            inode.last_disk_size.set(size);
        }
        Ok(inode)
    }

    /// The longest run must lie in the main area (`sanity_check_extent_cache`).
    fn check_extent(&self, ino: u32, e: Extent) -> FsResult<()> {
        let last = e.blk.saturating_add(e.len).saturating_sub(1);
        if e.len > 0 && !(self.g.is_main(e.blk) && self.g.is_main(last)) {
            let expected = format!("a run in the main area (inode {ino})");
            let found = u64::from(e.blk);
            return Err(FsError::corrupt("f2fs inode", "i_ext", 0, found, expected));
        }
        Ok(())
    }

    fn adopt(self: &Rc<Self>, ino: u32, fields: Fields, size: u64) -> Rc<Inode> {
        let inode = Rc::new(Inode {
            ino,
            map: Mapping::new(&self.rt, "file", 4096, &self.wb),
            f: RefCell::new(fields),
            size: Cell::new(size),
            state: Cell::new(0),
            dirty_pages: Cell::new(0),
            last_disk_size: Cell::new(0),
            extents: RefCell::default(),
            room: Cell::new((0, 0)),
            aliases: RefCell::default(),
            lock: Lock::new(&self.rt, "i_rwsem", ()),
            map_lock: Lock::new(&self.rt, "node tree of an inode", ()),
            opens: Cell::new(0),
            writers: Cell::new(0),
            dio: Cell::new(0),
            dio_done: WaitQueue::new(&self.rt, "direct I/O on an inode"),
            gone: Cell::new(false),
            fs: Rc::downgrade(self),
            _tally: Tally::new(LiveKind::Inode),
        });
        let ops: Rc<dyn WbOps> = inode.clone();
        inode.map.set_ops(Rc::downgrade(&ops));
        inode.map.set_limit(self.files.limits.get().1);
        self.drop_idle_inodes();
        self.files.inodes.borrow_mut().insert(u64::from(ino), inode.clone());
        self.files.order.borrow_mut().push_back(ino);
        inode
    }

    /// Drops idle inodes, oldest first, if there are too many.
    fn drop_idle_inodes(&self) {
        let mut inodes = self.files.inodes.borrow_mut();
        let mut order = self.files.order.borrow_mut();
        if order.len() > 2 * inodes.len() + 64 {
            let mut seen = BTreeSet::new();
            order.retain(|i| inodes.contains(u64::from(*i)) && seen.insert(*i));
        }
        let mut looks = order.len().min(64);
        while inodes.len() >= self.files.limits.get().0 && looks > 0 {
            looks -= 1;
            let Some(ino) = order.pop_front() else { break };
            match inodes.get(u64::from(ino)) {
                None => {}
                Some(i) if i.is_idle() => {
                    self.remember_writes(i);
                    inodes.remove(u64::from(ino));
                }
                Some(_) => order.push_back(ino),
            }
        }
    }

    /// What an fsync must know of an inode that leaves memory (end of `f2fs_evict_inode`).
    fn remember_writes(&self, inode: &Inode) {
        for (bit, set) in [(fi::APPEND_WRITE, InoSet::Append), (fi::UPDATE_WRITE, InoSet::Update)] {
            if inode.is(bit) {
                self.add_ino(inode.ino, set);
            }
        }
    }

    /// Forgets idle inodes and clean blocks (`drop_caches`).
    pub(super) fn drop_file_caches(&self) {
        let mut inodes = self.files.inodes.borrow_mut();
        for i in inodes.values() {
            i.map.invalidate(0, u64::MAX);
        }
        let idle: Vec<u64> =
            inodes.values().filter(|i| i.is_idle()).map(|i| u64::from(i.ino)).collect();
        for ino in idle {
            if let Some(i) = inodes.remove(ino) {
                self.remember_writes(&i);
            }
        }
    }

    /// A new inode in memory, with a number that is not in use yet (`f2fs_new_inode`). Errors:
    /// `NoSpace`.
    pub(super) async fn new_inode(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        new: &NewInode<'_>,
    ) -> FsResult<Rc<Inode>> {
        let ino = self.alloc_nid().await?;
        let now = self.time();
        let (is_dir, is_file) =
            (new.mode & mode::TYPE == mode::DIR, new.mode & mode::TYPE == mode::FILE);
        let is_link = new.mode & mode::TYPE == mode::SYMLINK;
        let mut f = Fields {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            nlink: 1,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: now,
            generation: self.files.generations.borrow_mut().next_u64() as u32,
            depth: u32::from(is_dir),
            ..Fields::default()
        };
        let flags = dir.f.borrow().flags & INHERITED;
        f.flags = match (is_dir, is_file) {
            (true, _) => flags | disk::inode::flag::INDEX,
            (_, true) => {
                use disk::inode::flag::{CASEFOLD, DIRSYNC, PROJINHERIT};
                flags & !(DIRSYNC | PROJINHERIT | CASEFOLD)
            }
            _ => flags & (disk::inode::flag::NODUMP | disk::inode::flag::NOATIME),
        };
        if self.sb.has(feature::EXTRA_ATTR) {
            f.inline |= inline::EXTRA_ATTR;
            f.extra_isize = InodeExtra::BYTES as u16;
        }
        if self.opts.inline_xattr {
            f.inline |= inline::XATTR;
        }
        if is_dir && self.opts.inline_dentry {
            f.inline |= inline::DENTRY;
        }
        let has_room = f.inline & inline::XATTR != 0
            || (f.inline & inline::DENTRY != 0 && !self.sb.has(feature::FLEXIBLE_INLINE_XATTR));
        f.xattr_words = if has_room { disk::Inode::XATTR_WORDS as u16 } else { 0 };
        if self.opts.inline_data && (is_file || is_link) {
            f.inline |= inline::DATA;
        }
        if is_file && let Some(name) = new.name {
            f.advise |= self.temperature(name);
        }
        let inode = self.adopt(ino, f, 0);
        inode.set(fi::NEW);
        if !is_file || !self.opts.extent_cache {
            inode.set(fi::NO_EXTENT);
        }
        Ok(inode)
    }

    /// Does the inode differ from its node block (`FI_DIRTY_INODE`)?
    pub(super) fn is_inode_dirty(&self, ino: u32) -> bool {
        self.inode_in_memory(ino).is_some_and(|inode| inode.is(fi::DIRTY))
    }

    /// Copies a dirty inode's fields into its node block, and marks that dirty
    /// (`f2fs_update_inode`); takes it off the list of dirty inodes. Waits: for writeback of the
    /// block.
    pub(super) async fn update_inode(&self, inode: &Rc<Inode>, buf: &Rc<Buffer>) -> FsResult<()> {
        self.wait_on_page_writeback(buf, Kind::Node, true).await;
        self.dirty_node(buf);
        self.mark_inode_synced(inode);
        buf.with_mut(|b| self.store_inode(inode, block_mut(b)));
        if inode.nlink() == 0 {
            buf.clear(super::node::INLINE);
        }
        let mut f = inode.f.borrow_mut();
        f.disk_times = [f.atime, f.ctime, f.mtime, f.crtime];
        Ok(())
    }

    fn store_inode(&self, inode: &Inode, block: &mut Block) {
        let f = inode.f.borrow();
        let d = disk::Inode::of_mut(block);
        d.mode = f.mode.into();
        d.advise = f.advise;
        d.uid = f.uid.into();
        d.gid = f.gid.into();
        d.links = f.nlink.into();
        d.blocks = (f.blocks + 1).into();
        d.size = inode.size.get().into();
        let ext = if f.mode & mode::TYPE == mode::FILE && self.opts.extent_cache {
            inode.extents.borrow().largest
        } else {
            Extent::default()
        };
        d.ext = disk::inode::LargestExtent {
            fofs: ext.fofs.into(),
            blk: ext.blk.into(),
            len: ext.len.into(),
        };
        d.inline = f.inline;
        (d.atime, d.atime_nsec) = (f.atime.secs.cast_unsigned().into(), f.atime.nanos.into());
        (d.ctime, d.ctime_nsec) = (f.ctime.secs.cast_unsigned().into(), f.ctime.nanos.into());
        (d.mtime, d.mtime_nsec) = (f.mtime.secs.cast_unsigned().into(), f.mtime.nanos.into());
        match f.mode & mode::TYPE {
            mode::DIR => d.current_depth = f.depth.into(),
            mode::FILE => {
                let high = d.current_depth.get() & 0xFFFF_0000;
                d.current_depth = (high | (f.depth & 0xFFFF)).into();
            }
            _ => {}
        }
        d.xattr_nid = f.xattr_nid.into();
        d.flags = f.flags.into();
        d.pino = f.pino.into();
        d.generation = f.generation.into();
        d.dir_level = f.dir_level;
        if f.inline & inline::EXTRA_ATTR != 0 {
            let has = |end: usize| usize::from(f.extra_isize) >= end;
            let e = d.extra_mut();
            e.extra_isize = f.extra_isize.into();
            if self.sb.has(feature::FLEXIBLE_INLINE_XATTR) {
                e.inline_xattr_size = f.xattr_words.into();
            }
            if self.sb.has(feature::PRJQUOTA)
                && has(std::mem::offset_of!(InodeExtra, inode_checksum))
            {
                e.projid = f.projid.into();
            }
            if self.sb.has(feature::INODE_CRTIME)
                && has(std::mem::offset_of!(InodeExtra, compr_blocks))
            {
                e.crtime = f.crtime.secs.cast_unsigned().into();
                e.crtime_nsec = f.crtime.nanos.into();
            }
        }
    }

    /// Copies an inode's fields into its node block (`f2fs_update_inode_page`). An inode that has
    /// none any more is left.
    pub(super) async fn update_inode_page(&self, inode: &Rc<Inode>) -> FsResult<()> {
        match self.node(inode.ino).await {
            Ok(buf) => self.update_inode(inode, &buf).await,
            Err(FsError::NotFound) => Ok(()),
            Err(e) => {
                self.stop_checkpoint();
                Err(e)
            }
        }
    }

    /// `f2fs_write_inode`: nothing, if the node block says all.
    pub(super) async fn write_inode(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.is(fi::NEW) || (inode.has_disk_times() && !inode.is(fi::DIRTY)) {
            return Ok(());
        }
        self.update_inode_page(inode).await
    }

    /// Finds the dirty inode's node block and copies it there (`sync_inode_metadata`,
    /// `f2fs_update_inode_page`). An inode that is not in memory is taken off the list.
    pub(super) async fn sync_inode(self: &Rc<Self>, ino: u32) -> FsResult<()> {
        match self.inode_in_memory(ino) {
            Some(inode) if inode.is(fi::LISTED) => {
                self.update_inode_page(&inode).await?;
                if inode.is(fi::LISTED) && inode.gone.get() {
                    self.mark_inode_synced(&inode);
                }
                Ok(())
            }
            _ => {
                self.inode_synced(ino);
                Ok(())
            }
        }
    }

    /// An inode that nobody uses and that has no name any more is freed, with all that it has
    /// (`f2fs_evict_inode`). Not to be called with [`F2fs::lock_op`] held.
    pub(super) async fn free_if_unused(self: &Rc<Self>, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.nlink() > 0 || inode.opens.get() > 0 || inode.gone.replace(true) {
            return Ok(());
        }
        if self.cp_error() || !self.is_mounted() {
            return Ok(());
        }
        self.drop_pages(inode, 0, u64::MAX).await;
        for set in [InoSet::Append, InoSet::Update, InoSet::Flush] {
            self.remove_ino(inode.ino, set);
        }
        inode.set(fi::NO_ALLOC);
        inode.size.set(0);
        if inode.is_file() {
            inode.extents.borrow_mut().clear();
            inode.set(fi::NO_EXTENT);
        }
        let own_blocks = u64::from(inode.f.borrow().xattr_nid != 0);
        let mut out = Ok(());
        if inode.f.borrow().blocks > own_blocks {
            out = self.truncate_blocks(inode, 0, true).await;
        }
        if out.is_ok() {
            let op = self.lock_op().await;
            out = self.remove_inode_node(inode).await;
            drop(op);
        }
        match out {
            Ok(()) | Err(FsError::NotFound) => out = Ok(()),
            Err(_) => self.update_inode_page(inode).await?,
        }
        self.mark_inode_synced(inode);
        self.forget_inode(inode);
        out
    }

    /// Forgets an inode in memory, unless its number leads to another by now.
    pub(super) fn forget_inode(&self, inode: &Rc<Inode>) {
        let mut inodes = self.files.inodes.borrow_mut();
        if inodes.get(u64::from(inode.ino)).is_some_and(|i| Rc::ptr_eq(i, inode)) {
            inodes.remove(u64::from(inode.ino));
        }
    }

    /// At unmount, before the last checkpoint: frees what only open descriptors kept, drops
    /// what is in memory after everything was written.
    pub(super) async fn evict_all(self: &Rc<Self>) -> FsResult<()> {
        let all: Vec<Rc<Inode>> = self.files.inodes.borrow().values().cloned().collect();
        for inode in all {
            inode.opens.set(0);
            self.free_if_unused(&inode).await?;
            if !inode.gone.get() {
                self.write_inode(&inode).await?;
            }
        }
        Ok(())
    }

    /// Advice for a file's name: hot or cold by its extension (`set_file_temperature`).
    fn temperature(&self, name: &[u8]) -> u8 {
        let (cold, hot) = self.sb.extensions();
        if cold.iter().any(|e| has_extension(name, e)) {
            advise::COLD
        } else if hot.iter().any(|e| has_extension(name, e)) {
            advise::HOT
        } else {
            0
        }
    }

    /// Byte address of a node's block, for errors.
    pub(super) async fn node_at(&self, nid: u32) -> u64 {
        self.nat(nid).await.map_or(0, |n| {
            if disk::addr::is_block(n.blk_addr) { Geometry::byte_of(n.blk_addr) } else { 0 }
        })
    }
}

/// Has a name this extension, perhaps with another one behind (`is_extension_exist`)?
fn has_extension(name: &[u8], ext: &[u8]) -> bool {
    if ext == b"*" {
        return true;
    }
    if name.len() < ext.len() + 2 {
        return false;
    }
    (1..name.len() - ext.len()).any(|i| {
        name[i] == b'.'
            && name.get(i + 1..i + 1 + ext.len()).is_some_and(|n| n.eq_ignore_ascii_case(ext))
    })
}

fn fields_of(d: &disk::Inode, sb_feature: u32) -> Fields {
    let shape = Shape::of(d, sb_feature);
    let (atime, ctime, mtime) =
        (time_of(d.accessed()), time_of(d.changed()), time_of(d.modified()));
    let crtime = match d.created() {
        Some(c) if sb_feature & feature::INODE_CRTIME != 0 => time_of(c),
        _ => TimeSpec::default(),
    };
    let mut flags = d.flags.get();
    if d.is_file() {
        flags &= !disk::inode::flag::PROJINHERIT;
    }
    let projid_end = std::mem::offset_of!(InodeExtra, inode_checksum);
    let has_projid = sb_feature & feature::PRJQUOTA != 0 && d.has_extra(projid_end);
    Fields {
        mode: d.mode.get(),
        uid: d.uid.get(),
        gid: d.gid.get(),
        nlink: d.links.get(),
        blocks: d.blocks.get().saturating_sub(1),
        atime,
        ctime,
        mtime,
        crtime,
        disk_times: [atime, ctime, mtime, crtime],
        generation: d.generation.get(),
        depth: if d.is_file() { d.current_depth.get() & 0xFFFF } else { d.current_depth.get() },
        xattr_nid: d.xattr_nid.get(),
        flags,
        advise: d.advise,
        inline: d.inline,
        pino: d.pino.get(),
        dir_level: d.dir_level,
        extra_isize: d.extra_bytes() as u16,
        xattr_words: shape.xattr_words as u16,
        projid: if has_projid { d.extra().projid.get() } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_counts_behind_a_dot_only_and_with_one_more_behind() {
        assert!(has_extension(b"a.mp3", b"mp3"));
        assert!(has_extension(b"a.MP3.part", b"mp3"));
        assert!(!has_extension(b".mp3", b"mp3"));
        assert!(!has_extension(b"amp3", b"mp3"));
        assert!(has_extension(b"x", b"*"));
    }
}
