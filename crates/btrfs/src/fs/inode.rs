//! Inodes in memory.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use wp_base::{FsError, FsResult, Ino};
use wp_cache::{BufFlag, Mapping};
use wp_rt::{Lock, WaitQueue};
use wp_vfs::{Attr, FileType, TimeSpec};

use crate::core::Core;
use crate::disk::inode::flag;
use crate::disk::{InodeItem, Key, Timespec, kind};
use crate::space::Runs;

use super::log::Logged;
use super::ordered::Ordered;
use super::subvolumes::Subvol;
use super::{BLOCK, Btrfs};

/// A block of data without a promise: it is written in place.
pub(super) const IN_PLACE: BufFlag = BufFlag::Private1;

/// An inode in memory.
pub(super) struct Inode {
    /// The number that calls know it by.
    pub handle: u64,
    /// The tree that it is in, and its number there.
    pub tree: u64,
    pub ino: u64,
    pub vol: Rc<Subvol>,
    pub fs: Weak<Btrfs>,
    /// As calls see it; `size` may be ahead of what the tree has.
    pub item: RefCell<InodeItem>,
    /// The length that the tree has, or gets with the next change (`disk_i_size`).
    pub disk_size: Cell<u64>,
    pub map: Rc<Mapping>,
    /// `i_rwsem`.
    pub lock: Lock<()>,
    pub opens: Cell<u32>,
    /// Made without a name, it may get one (`I_LINKABLE`).
    pub linkable: Cell<bool>,
    /// Calls under way that have it in use by its name.
    pub users: Cell<u32>,
    /// Bytes of the file that were written and have no place yet.
    pub delalloc: RefCell<Runs>,
    /// Blocks under writeback: who waits for them does not look at all that are cached.
    pub writing: RefCell<BTreeSet<u64>>,
    /// Items promised for them.
    pub items_held: Cell<u64>,
    /// Extents on their way, by first byte of the file.
    pub ordered: RefCell<BTreeMap<u64, Rc<Ordered>>>,
    pub ordered_done: WaitQueue,
    /// Index of a directory's next name; 0: not known yet.
    pub next_index: Cell<u64>,
    /// The transaction that changed it last, in any way that an fsync has to see.
    pub last_trans: Cell<u64>,
    pub logged: Logged,
    /// It was cut to nothing: what is written then is sent when it is closed
    /// (`BTRFS_INODE_FLUSH_ON_CLOSE`).
    pub flush_on_close: Cell<bool>,
    /// It was deleted.
    pub is_gone: Cell<bool>,
    /// Direct I/O under way.
    pub dio: Cell<u32>,
    pub dio_done: WaitQueue,
}

/// An inode in the middle of a call: as good as open, it is not deleted under the call.
pub(super) struct InUse(pub Rc<Inode>);

impl InUse {
    pub fn new(inode: &Rc<Inode>) -> InUse {
        inode.users.set(inode.users.get() + 1);
        InUse(inode.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.users.set(self.0.users.get().saturating_sub(1));
        if let Some(fs) = self.0.fs.upgrade() {
            fs.note_unused(&self.0);
        }
    }
}

impl Inode {
    /// Does anybody have it, by a descriptor or in a call?
    pub fn is_used(&self) -> bool {
        self.opens.get() > 0 || self.users.get() > 0
    }
    /// Is it to be forgotten once nobody has it, as it or its tree has no name any more?
    pub fn is_unwanted(&self) -> bool {
        self.nlink() == 0 || self.vol.is_dead.get()
    }
    pub fn size(&self) -> u64 {
        self.item.borrow().size.get()
    }
    pub fn set_size(&self, size: u64) {
        self.item.borrow_mut().size = size.into();
    }
    pub fn nlink(&self) -> u32 {
        self.item.borrow().nlink.get()
    }
    pub fn is_dir(&self) -> bool {
        self.item.borrow().is_dir()
    }
    pub fn is_file(&self) -> bool {
        self.item.borrow().is_file()
    }
    pub fn has(&self, bits: u64) -> bool {
        self.item.borrow().flags.get() & bits != 0
    }
    /// Is its data written in place where it can be?
    pub fn is_nodatacow(&self) -> bool {
        self.has(flag::NODATACOW)
    }
    pub fn has_sums(&self) -> bool {
        !self.has(flag::NODATASUM)
    }
    pub fn kind(&self) -> FileType {
        FileType::from_mode(self.item.borrow().mode.get()).unwrap_or(FileType::File)
    }
    pub fn key(&self) -> Key {
        Key::new(self.ino, kind::INODE_ITEM, 0)
    }
    /// Changes the item in memory.
    pub fn change(&self, f: impl FnOnce(&mut InodeItem)) {
        let mut item = self.item.borrow_mut();
        f(&mut item);
        item.sequence = item.sequence.get().wrapping_add(1).into();
    }
    /// The next fsync examines all its items, those as well that were shared in the last
    /// transaction that changed it, whether they were or not. `btrfs_set_inode_full_sync`.
    pub fn need_full_sync(&self) {
        self.logged.full_sync.set(true);
        let last = self.logged.last_reflink.get().max(self.last_trans.get());
        self.logged.last_reflink.set(last);
    }
    pub fn add_bytes(&self, more: u64, fewer: u64) {
        let mut item = self.item.borrow_mut();
        item.nbytes = (item.nbytes.get() + more).saturating_sub(fewer).into();
    }

    /// `btrfs_getattr`.
    pub fn attr(&self) -> Attr {
        let i = self.item.borrow();
        let time = |t: Timespec| TimeSpec { secs: t.sec.get().cast_signed(), nanos: t.nsec.get() };
        let used = i.nbytes.get().next_multiple_of(BLOCK) + self.delalloc.borrow().bytes();
        Attr {
            ino: Ino(self.handle),
            kind: FileType::from_mode(i.mode.get()).unwrap_or(FileType::File),
            mode: i.mode.get() & 0o7777,
            nlink: i.nlink.get(),
            uid: i.uid.get(),
            gid: i.gid.get(),
            size: i.size.get(),
            blocks_512: used / 512,
            device: i.device(),
            atime: time(i.atime),
            mtime: time(i.mtime),
            ctime: time(i.ctime),
        }
    }
}

impl Btrfs {
    pub(super) fn inode_in_memory(&self, handle: u64) -> Option<Rc<Inode>> {
        self.inodes.borrow().get(&handle).cloned()
    }

    /// An inode that is not in memory. Errors: `NotFound`.
    pub(super) fn load_inode(
        &self,
        c: &mut Core<'static>,
        tree: u64,
        ino: u64,
    ) -> FsResult<Rc<Inode>> {
        let vol = self.subvol(c, tree)?;
        let item = c.inode(tree, ino)?.ok_or(FsError::NotFound)?;
        if FileType::from_mode(item.mode.get()).is_none() {
            let found = item.mode.get().into();
            return Err(FsError::corrupt("btrfs inode item", "mode", 0, found, "a type of file"));
        }
        self.add_inode(&vol, ino, item, false)
    }

    /// Brings an inode into memory.
    pub(super) fn add_inode(
        &self,
        vol: &Rc<Subvol>,
        ino: u64,
        item: InodeItem,
        is_new: bool,
    ) -> FsResult<Rc<Inode>> {
        Ok(self.add_inode_as(self.handle(vol.tree, ino)?, vol, ino, item, is_new))
    }

    /// The same, under the number that calls know it by.
    pub(super) fn add_inode_as(
        &self,
        handle: u64,
        vol: &Rc<Subvol>,
        ino: u64,
        item: InodeItem,
        is_new: bool,
    ) -> Rc<Inode> {
        let rt = &self.rt;
        let map = Mapping::new(rt, "btrfs file", 4096, &self.wb);
        let inode = Rc::new(Inode {
            handle,
            tree: vol.tree,
            ino,
            vol: vol.clone(),
            fs: self.me.clone(),
            disk_size: Cell::new(item.size.get()),
            last_trans: Cell::new(item.transid.get()),
            item: RefCell::new(item),
            lock: Lock::new(rt, "btrfs inode", ()),
            opens: Cell::new(0),
            linkable: Cell::new(false),
            users: Cell::new(0),
            delalloc: RefCell::default(),
            writing: RefCell::default(),
            items_held: Cell::new(0),
            ordered: RefCell::default(),
            ordered_done: WaitQueue::new(rt, "btrfs ordered extent"),
            next_index: Cell::new(if is_new { crate::items::INDEX_START } else { 0 }),
            flush_on_close: Cell::new(false),
            is_gone: Cell::new(false),
            logged: Logged::default(),
            dio: Cell::new(0),
            dio_done: WaitQueue::new(rt, "btrfs direct I/O"),
            map,
        });
        // What was changed before it was forgotten is not known any more.
        let changed = inode.last_trans.get();
        inode.logged.full_sync.set(is_new || changed > self.commits.last());
        inode.logged.last_unlink.set(if is_new { 0 } else { changed });
        inode.logged.last_reflink.set(if is_new { 0 } else { changed });
        if self.opts.mend.reloaded && !is_new && changed > self.commits.last() {
            self.note_change(&inode, changed);
        }
        let ops: Rc<dyn wp_cache::WbOps> = inode.clone();
        inode.map.set_ops(Rc::downgrade(&ops));
        self.inodes.borrow_mut().insert(handle, inode.clone());
        inode
    }

    /// Brings an inode's item up to date in its tree. `btrfs_update_inode`.
    pub(super) fn update_inode(&self, c: &mut Core<'static>, inode: &Inode) -> FsResult<()> {
        let transid = c.transid_begun()?;
        let mut item = *inode.item.borrow();
        item.transid = transid.into();
        inode.item.borrow_mut().transid = transid.into();
        item.size = inode.disk_size.get().into();
        self.note_change(inode, transid);
        c.update_inode(inode.tree, inode.ino, &item)?;
        // `btrfs_update_root_times` looks at the clock itself, not at the tick.
        c.touch_root(inode.tree, self.time_of(self.rt.now()))
    }

    /// New times of a change: of the inode, and if `modified` of its contents.
    pub(super) fn stamp(&self, inode: &Inode, modified: bool) {
        let now = self.time();
        inode.change(|i| {
            i.ctime = now;
            if modified {
                i.mtime = now;
            }
        });
    }

    /// Forgets inodes that nobody uses. The mount itself uses the root's.
    pub(super) fn drop_idle(&self) {
        self.inodes.borrow_mut().retain(|_, inode| {
            inode.map.invalidate(0, u64::MAX);
            let has_use = Rc::strong_count(inode) > 1 || inode.is_used();
            let is_busy = !inode.map.is_idle() || !inode.ordered.borrow().is_empty();
            let differs = inode.disk_size.get() != inode.size();
            let is_logged = inode.logged.trans.get() > self.commits.last();
            let is_root = inode.handle == self.top.root_dir;
            has_use || is_busy || differs || is_logged || is_root || inode.nlink() == 0
        });
    }
}
