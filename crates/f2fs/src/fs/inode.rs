//! Inodes in memory, and their way to and from their node blocks.
//!
//! Invariants: 1. the tree of a file's nodes is walked and changed under `map_lock` only; whoever
//!                needs it besides [`F2fs::lock_op`] takes it after that.
//!             2. fields that differ from the node block mark the inode dirty. With `sync` a
//!                checkpoint copies them; without (times), only the flusher or an fsync.
//! Source:     Linux `fs/f2fs/inode.c`, `fs/f2fs/super.c` (`f2fs_inode_dirtied`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use wp_base::live::{Kind as LiveKind, Tally};
use wp_base::{FsError, FsResult, Rng};
use wp_cache::{Index, Mapping, WbOps};
use wp_rt::{Lock, Rt, WaitQueue};
use wp_vfs::{Attr, DeviceNumber, FileType, TimeSpec};

use super::extent::Extents;
use super::mount::F2fs;
use crate::disk::inode::{inline, mode};
use crate::disk::{self, Block, Shape};

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
    /// An atomic write is under way (`FI_ATOMIC_FILE`).
    pub const ATOMIC: u32 = 1 << 11;
    /// Its blocks are the file's (`FI_ATOMIC_COMMITTED`).
    pub const ATOMIC_COMMITTED: u32 = 1 << 12;
    /// The file has nothing but what it writes (`FI_ATOMIC_REPLACE`).
    pub const ATOMIC_REPLACE: u32 = 1 << 13;
    /// The inode became dirty meanwhile (`FI_ATOMIC_DIRTIED`).
    pub const ATOMIC_DIRTIED: u32 = 1 << 14;
    /// It holds the blocks of another file's atomic write (`FI_COW_FILE`).
    pub const COW: u32 = 1 << 15;
}

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
    /// Number of a device.
    pub device: DeviceNumber,
}

/// An inode in memory.
pub(crate) struct Inode {
    /// Its number.
    pub ino: u32,
    /// Its blocks.
    pub map: Rc<Mapping>,
    pub(super) f: RefCell<Fields>,
    /// Made without a name, it may get one (`I_LINKABLE`).
    pub(super) linkable: Cell<bool>,
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
    /// Its fsyncs come one after another, if they do.
    pub(super) sync_lock: Lock<()>,
    pub(super) opens: Cell<u32>,
    pub(super) writers: Cell<u32>,
    /// Direct I/O under way (`i_dio_count`).
    pub(super) dio: Cell<u32>,
    /// Of these, calls that hold no lock.
    pub(super) dio_queued: Cell<u32>,
    /// The last of it has ended, or garbage collection is done with a block.
    pub(super) dio_done: WaitQueue,
    /// Does garbage collection move a block of it (`i_gc_rwsem`, taken to write)?
    pub(super) is_moved: Cell<bool>,
    /// `direct=log`: pieces of direct writes that have arrived at the device, and of those the ones
    /// that a flush has made durable.
    pub(super) arrived: Cell<u64>,
    pub(super) flushed: Cell<u64>,
    /// Holds the blocks of its atomic writes; made by the first (`cow_inode`).
    pub(super) cow: RefCell<Option<Rc<Inode>>>,
    /// Length when its atomic write began (`original_i_size`).
    pub(super) original_size: Cell<u64>,
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

    /// Clears bits, and says which were set.
    pub(super) fn take(&self, bits: u32) -> u32 {
        let had = self.state.get() & bits;
        self.clear(bits);
        had
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
    pub(super) fn is_idle(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
            && self.opens.get() == 0
            && !self.gone.get()
            && !self.is(fi::DIRTY | fi::NEW)
            && self.has_disk_times()
            && self.dirty_pages.get() == 0
            && self.nlink() > 0
            && self.cow.borrow().is_none()
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
            device: f.device,
            atime: f.atime,
            mtime: f.mtime,
            ctime: f.ctime,
        }
    }
}

/// What the files' half keeps for a mounted file system.
pub(crate) struct Files {
    pub(super) inodes: RefCell<Index<Rc<Inode>>>,
    pub(super) order: RefCell<VecDeque<u32>>,
    /// Most inodes and blocks of one file in memory.
    pub(super) limits: Cell<(usize, usize)>,
    /// Numbers that tell generations of an inode number apart.
    pub(super) generations: RefCell<Rng>,
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

/// A buffer's bytes as a block.
pub(super) fn block_of(bytes: &[u8]) -> &Block {
    bytes.try_into().expect("buffers of this file system have 4096 bytes")
}

/// A buffer's bytes as a block, to change it.
pub(super) fn block_mut(bytes: &mut [u8]) -> &mut Block {
    bytes.try_into().expect("buffers of this file system have 4096 bytes")
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
            if inode.is_held_back() {
                inode.set(fi::ATOMIC_DIRTIED);
            }
            if !inode.is(fi::ATOMIC) {
                inode.map.mark_inode_dirty();
            }
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
        // Whatever state it is in: the quota's counting does (`dquot_claim_block`).
        inode.map.mark_inode_dirty();
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
        let sync = inode.is_dir() && self.opts.era.checkpoint_takes_dir_times();
        self.mark_inode_dirty(inode, sync);
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

    pub(super) fn adopt(self: &Rc<Self>, ino: u32, fields: Fields, size: u64) -> Rc<Inode> {
        let inode = Rc::new(Inode {
            ino,
            map: Mapping::new(&self.rt, "file", 4096, &self.wb),
            f: RefCell::new(fields),
            linkable: Cell::new(false),
            size: Cell::new(size),
            state: Cell::new(0),
            dirty_pages: Cell::new(0),
            last_disk_size: Cell::new(0),
            extents: RefCell::default(),
            room: Cell::new((0, 0)),
            aliases: RefCell::default(),
            lock: Lock::new(&self.rt, "i_rwsem", ()),
            map_lock: Lock::new(&self.rt, "node tree of an inode", ()),
            sync_lock: Lock::new(&self.rt, "fsync of an inode", ()),
            opens: Cell::new(0),
            writers: Cell::new(0),
            dio: Cell::new(0),
            dio_queued: Cell::new(0),
            dio_done: WaitQueue::new(&self.rt, "direct I/O on an inode"),
            is_moved: Cell::new(false),
            arrived: Cell::new(0),
            flushed: Cell::new(0),
            cow: RefCell::default(),
            original_size: Cell::new(0),
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

    /// Does the inode differ from its node block (`FI_DIRTY_INODE`)?
    pub(super) fn is_inode_dirty(&self, ino: u32) -> bool {
        self.inode_in_memory(ino).is_some_and(|inode| inode.is(fi::DIRTY))
    }
}
