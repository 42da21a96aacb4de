//! Inodes in memory, and their way to and from the inode table.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use wp_base::live::{Kind, Tally};
use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer, Mapping};
use wp_jbd2::{Handle, JournalInode};
use wp_medium::Slice;
use wp_rt::{Lock, MaybeReady, WaitQueue, soon};
use wp_vfs::{Attr, FileType, TimeSpec};
use zerocopy::little_endian::U32;

use super::clusters::Delayed;
use super::fast_commit::Tracked;
use super::mount::Ext4;
use crate::disk::{self, InodeExtra, InodeSlot, Stamp, inode::flag};

/// When [`Ext4::write_inode`] puts an inode in its slot.
///
/// A handle that changes an inode several times says so each time, and that counts; its bytes are
/// made once, by the last change. No commit comes between: the handle is open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    AtOnce,
    /// At the handle's last change of it.
    Later,
    /// The same, and there was a change.
    Owed,
}

/// An inode in memory.
pub(super) struct Inode {
    pub ino: u32,
    /// All bytes of its slot in the inode table as they were read, or with the attributes last set:
    /// what this struct does not keep apart stays as it was. Empty: it is all zeroes.
    raw: RefCell<Vec<u8>>,
    slot_bytes: usize,
    slot: InodeSlot,
    /// The block of the inode table that it stands in, as it was met last. Weak, so that it counts
    /// as unused: while it is cached there is no other.
    table_block: RefCell<Weak<Buffer>>,
    /// Blocks of a directory by number, as they were met since its map changed last; weak
    /// likewise.
    pub blocks_met: RefCell<Vec<Weak<Buffer>>>,
    pub put: Cell<Put>,
    pub disk: RefCell<disk::Inode>,
    pub extra: RefCell<InodeExtra>,
    /// `i_size`: what readers see.
    pub size: Cell<u64>,
    /// `i_disksize`: what the inode table says, behind `size` while data waits for allocation.
    pub disksize: Cell<u64>,
    /// Clusters reserved for delayed allocation; blocks without bigalloc.
    pub reserved: Cell<u64>,
    cluster_bits: u32,
    pub map: Rc<Mapping>,
    pub jinode: RefCell<Option<Rc<JournalInode>>>,
    /// `i_mutex`.
    pub lock: Lock<()>,
    /// Clusters with delayed blocks; kept with bigalloc only.
    pub delayed: RefCell<BTreeMap<u64, Delayed>>,
    /// `i_data_sem`: the block map.
    pub map_lock: Lock<()>,
    pub sync_tid: Cell<u32>,
    pub datasync_tid: Cell<u32>,
    pub opens: Cell<u32>,
    /// Descriptors open for writing (`i_writecount`).
    pub writers: Cell<u32>,
    /// Direct I/O under way without `lock` (`i_dio_count`).
    pub dio: Cell<u32>,
    /// Those of them whose callers have gone on.
    pub dio_queued: Cell<u32>,
    pub dio_done: WaitQueue,
    /// Being freed: no longer to be found.
    pub gone: Cell<bool>,
    /// It was cut to nothing: the next close sends what is promised (`EXT4_STATE_DA_ALLOC_CLOSE`).
    pub alloc_on_close: Cell<bool>,
    /// Made without a name, it may get one (`I_LINKABLE`).
    pub linkable: Cell<bool>,
    /// It is written as `buffered_iomap` has it (`EXT4_STATE_BUFFERED_IOMAP`).
    pub iomap: Cell<bool>,
    /// The block that was zeroed when the file grew over its unaligned end: until it has arrived
    /// `disksize` stays (`EXT4_STATE_DISKSIZE_GROW_PENDING`).
    pub grow: Cell<Option<u64>>,
    /// What others would have made of the length on disk meanwhile.
    pub grow_to: Cell<u64>,
    /// What the next fast commit needs to know of it.
    pub fast: Cell<Tracked>,
    pub fs: Weak<Ext4>,
    _tally: Tally,
}

impl Inode {
    /// Does nobody use it, and does the inode table (or its cached block) say all that is known
    /// of it?
    fn is_idle(self: &Rc<Self>) -> bool {
        // A journal's list holds the file's place in ordered mode, and that leads here.
        let filed = self.jinode.borrow().as_ref().is_some_and(|j| Rc::strong_count(j) > 1);
        Rc::strong_count(self) == 1
            && !filed
            && self.opens.get() == 0
            && !self.gone.get()
            && !self.fast.get().is_queued()
            && self.reserved.get() == 0
            && self.size.get() == self.disksize.get()
            && self.map.is_idle()
            && !self.map.is_journalled()
    }

    /// Has it the extents flag?
    pub fn has(&self, flags: u32) -> bool {
        self.disk.borrow().has(flags)
    }

    pub fn is_dir(&self) -> bool {
        self.disk.borrow().is_dir()
    }

    pub fn nlink(&self) -> u16 {
        self.disk.borrow().links_count.get()
    }

    pub fn set_nlink(&self, n: u16) {
        self.disk.borrow_mut().links_count = n.into();
    }

    pub fn kind(&self) -> FileType {
        FileType::from_mode(u32::from(self.disk.borrow().mode.get())).unwrap_or(FileType::File)
    }

    /// Adds `blocks` (may be negative) file-system blocks to `i_blocks`. Errors: `Corrupt` if the
    /// inode frees more than its image says it owns.
    pub fn add_blocks(&self, blocks: i64, sectors_per_block: u32) -> FsResult<()> {
        let mut d = self.disk.borrow_mut();
        let unit = if d.has(flag::HUGE_FILE) { 1 } else { i64::from(sectors_per_block) };
        let now = d.blocks_raw() as i64 + blocks * unit;
        if now < 0 {
            return Err(FsError::corrupt(
                "ext4 inode",
                "i_blocks",
                0,
                d.blocks_raw(),
                format!("at least the {} blocks that inode {} frees", -blocks, self.ino),
            ));
        }
        d.set_blocks_raw(now as u64);
        Ok(())
    }

    pub fn mtime(&self) -> TimeSpec {
        time_of(Stamp::decode(self.disk.borrow().mtime, self.extra.borrow().mtime_extra))
    }

    pub fn ctime(&self) -> TimeSpec {
        time_of(Stamp::decode(self.disk.borrow().ctime, self.extra.borrow().ctime_extra))
    }

    /// A time as this inode can hold it: without its extra word, which lies up to byte `end` of
    /// what `i_extra_isize` counts, only the seconds that 32 bits hold (`EXT4_INODE_SET_XTIME`).
    fn encode(&self, t: TimeSpec, end: u16) -> (U32, U32) {
        if self.extra.borrow().extra_isize.get() >= end {
            return stamp_of(t).encode();
        }
        let secs = t.secs.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        (Stamp { secs, nanos: 0 }.encode().0, 0.into())
    }

    pub fn atime(&self) -> TimeSpec {
        time_of(Stamp::decode(self.disk.borrow().atime, self.extra.borrow().atime_extra))
    }

    /// Blocks that it occupies, its tree's included; in the units that the disk has them.
    pub fn is_empty(&self) -> bool {
        self.disk.borrow().blocks_raw() == 0
    }

    pub fn set_mtime(&self, t: TimeSpec) {
        let (secs, extra) = self.encode(t, 12);
        self.disk.borrow_mut().mtime = secs;
        self.extra.borrow_mut().mtime_extra = extra;
    }

    pub fn set_ctime(&self, t: TimeSpec) {
        let (secs, extra) = self.encode(t, 8);
        self.disk.borrow_mut().ctime = secs;
        self.extra.borrow_mut().ctime_extra = extra;
    }

    pub fn set_atime(&self, t: TimeSpec) {
        let (secs, extra) = self.encode(t, 16);
        self.disk.borrow_mut().atime = secs;
        self.extra.borrow_mut().atime_extra = extra;
    }

    pub fn set_crtime(&self, t: TimeSpec) {
        let (secs, extra) = self.encode(t, 24);
        let mut e = self.extra.borrow_mut();
        (e.crtime, e.crtime_extra) = (secs, extra);
    }

    pub fn attr(&self, sectors_per_block: u32) -> Attr {
        let (d, e) = (self.disk.borrow(), self.extra.borrow());
        Attr {
            ino: wp_base::Ino(u64::from(self.ino)),
            kind: FileType::from_mode(u32::from(d.mode.get())).unwrap_or(FileType::File),
            mode: u32::from(d.mode.get()) & 0o7777,
            nlink: u32::from(d.links_count.get()),
            uid: d.uid(),
            gid: d.gid(),
            size: self.size.get(),
            blocks_512: d.sectors(sectors_per_block)
                + (self.reserved.get() << self.cluster_bits) * u64::from(sectors_per_block),
            device: d.device(),
            atime: time_of(Stamp::decode(d.atime, e.atime_extra)),
            mtime: time_of(Stamp::decode(d.mtime, e.mtime_extra)),
            ctime: time_of(Stamp::decode(d.ctime, e.ctime_extra)),
        }
    }

    /// The bytes behind the fields, which hold attributes. Empty if the inode has none.
    pub fn xattr_area(&self) -> Vec<u8> {
        let isize = usize::from(self.extra.borrow().extra_isize.get());
        let raw = self.raw.borrow();
        if isize == 0 {
            Vec::new()
        } else if raw.is_empty() {
            vec![0; self.slot_bytes.saturating_sub(disk::Inode::BYTES + isize)]
        } else {
            raw.get(disk::Inode::BYTES + isize..).unwrap_or(&[]).to_vec()
        }
    }

    /// Puts bytes of the length of [`Self::xattr_area`] in its place.
    pub fn set_xattr_area(&self, area: &[u8]) {
        let mut raw = self.raw.borrow_mut();
        raw.resize(self.slot_bytes, 0);
        let at = raw.len() - area.len();
        raw[at..].copy_from_slice(area);
    }

    /// Fills its slot in the inode table, checksum not set.
    fn fill_slot(&self, slot: &mut [u8]) {
        let raw = self.raw.borrow();
        if raw.is_empty() {
            slot[disk::Inode::BYTES..].fill(0);
        } else {
            slot.copy_from_slice(&raw);
        }
        let mut d = self.disk.borrow_mut();
        d.set_size(self.disksize.get());
        d.store(slot);
        if slot.len() > disk::Inode::BYTES {
            self.extra.borrow().store(slot);
        }
    }
}

pub(super) fn time_of(s: Stamp) -> TimeSpec {
    TimeSpec { secs: s.secs, nanos: s.nanos }
}

pub(super) fn stamp_of(t: TimeSpec) -> Stamp {
    Stamp { secs: t.secs, nanos: t.nanos }
}

/// What a new inode starts with.
pub(super) struct NewInode {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub flags: u32,
    pub generation: u32,
}

impl Ext4 {
    /// The inode, from memory or from its table. Errors: `Corrupt` if the image says nonsense,
    /// `Io`.
    pub(super) fn inode(self: &Rc<Self>, ino: u32) -> MaybeReady<'_, FsResult<Rc<Inode>>> {
        match self.inodes.borrow().get(u64::from(ino)) {
            Some(i) => MaybeReady::now(Ok(i.clone())),
            None => MaybeReady::later(self.read_inode(ino)),
        }
    }

    async fn read_inode(self: &Rc<Self>, ino: u32) -> FsResult<Rc<Inode>> {
        let Some(slot) = self.geo.inode_slot(ino) else {
            return Err(FsError::corrupt(
                "ext4 directory entry",
                "inode",
                0,
                u64::from(ino),
                "an inode number",
            ));
        };
        let table = self.inode_tables[slot.group as usize];
        let block = table + u64::from(slot.table_block);
        if self.bdev.peek(block).is_none_or(|b| !b.flag(BufFlag::Uptodate)) {
            self.read_table_ahead(slot.group, slot.table_block);
        }
        let buf = self.bdev.read(block).await?;
        // Somebody may have read it while we waited.
        if let Some(i) = self.inodes.borrow().get(u64::from(ino)) {
            return Ok(i.clone());
        }
        let bytes = usize::from(self.geo.inode_bytes);
        let raw = buf.with(|b| b[slot.offset as usize..slot.offset as usize + bytes].to_vec());
        let at = buf.block() * u64::from(self.bs().bytes()) + u64::from(slot.offset);
        if !self.csum.inode_ok(ino, &raw) {
            return Err(FsError::corrupt(
                "ext4 inode",
                "i_checksum",
                at,
                u64::from(ino),
                "its checksum",
            ));
        }
        let d = disk::Inode::load(&raw).expect("a slot has 128 bytes or more");
        // Without links it is free, or waits on the orphan chain to be freed.
        if d.links_count.get() == 0 && !self.orphan_found(ino) {
            return Err(FsError::NotFound);
        }
        let (d, extra) = (disk::Inode::load(&raw), InodeExtra::load(&raw));
        let inode = self.adopt(ino, raw, d.expect("a slot has 128 bytes or more"), extra);
        let tid = self.journal().running_tid().or(self.journal().committing_tid()).unwrap_or(0);
        inode.sync_tid.set(tid);
        inode.datasync_tid.set(tid);
        Ok(inode)
    }

    /// Makes an inode in memory from the bytes of its slot (empty: zeroes) and what they say.
    fn adopt(
        self: &Rc<Self>,
        ino: u32,
        raw: Vec<u8>,
        d: disk::Inode,
        extra: InodeExtra,
    ) -> Rc<Inode> {
        let inode = Rc::new(Inode {
            ino,
            size: Cell::new(d.size()),
            disksize: Cell::new(d.size()),
            disk: RefCell::new(d),
            extra: RefCell::new(extra),
            raw: RefCell::new(raw),
            slot_bytes: usize::from(self.geo.inode_bytes),
            slot: self.geo.inode_slot(ino).expect("an inode in memory has a number"),
            table_block: RefCell::default(),
            blocks_met: RefCell::default(),
            put: Cell::new(Put::AtOnce),
            reserved: Cell::new(0),
            delayed: RefCell::default(),
            cluster_bits: self.geo.cluster_bits,
            map: Mapping::new(&self.rt, "file", self.bs().bytes(), &self.wb),
            jinode: RefCell::new(None),
            lock: Lock::new(&self.rt, "i_mutex", ()),
            map_lock: Lock::new(&self.rt, "i_data_sem", ()),
            sync_tid: Cell::new(0),
            datasync_tid: Cell::new(0),
            opens: Cell::new(0),
            writers: Cell::new(0),
            dio: Cell::new(0),
            dio_queued: Cell::new(0),
            dio_done: WaitQueue::new(&self.rt, "direct I/O on an inode"),
            gone: Cell::new(false),
            alloc_on_close: Cell::new(false),
            linkable: Cell::new(false),
            iomap: Cell::new(false),
            grow: Cell::new(None),
            grow_to: Cell::new(0),
            fast: Cell::default(),
            fs: Rc::downgrade(self),
            _tally: Tally::new(Kind::Inode),
        });
        let ops: Rc<dyn wp_cache::WbOps> = inode.clone();
        inode.map.set_ops(Rc::downgrade(&ops));
        inode.map.set_limit(self.limits.get().1);
        if !self.journals_data(&inode) {
            inode.map.keep_ahead();
        }
        inode.iomap.set(self.takes_iomap(&inode));
        self.drop_idle_inodes();
        self.inodes.borrow_mut().insert(u64::from(ino), inode.clone());
        self.inode_order.borrow_mut().push_back(ino);
        inode
    }

    /// Drops idle inodes, oldest first, if there are too many.
    fn drop_idle_inodes(&self) {
        let (mut inodes, mut order) = (self.inodes.borrow_mut(), self.inode_order.borrow_mut());
        if order.len() > 2 * inodes.len() + 64 {
            // Freed inodes leave their numbers behind.
            let mut seen = BTreeSet::new();
            order.retain(|i| inodes.contains(u64::from(*i)) && seen.insert(*i));
        }
        let mut looks = order.len().min(64);
        while inodes.len() >= self.limits.get().0 && looks > 0 {
            looks -= 1;
            let Some(ino) = order.pop_front() else { break };
            match inodes.get(u64::from(ino)) {
                None => {}
                Some(i) if i.is_idle() && !self.is_orphan(ino) => {
                    inodes.remove(u64::from(ino));
                }
                Some(_) => order.push_back(ino),
            }
        }
    }

    /// A new inode in memory; its slot is written by [`Ext4::write_inode`].
    pub(super) fn new_inode(self: &Rc<Self>, ino: u32, new: &NewInode) -> Rc<Inode> {
        let mut d = disk::Inode::zeroed();
        d.mode = new.mode.into();
        d.set_owner(new.uid, new.gid);
        d.flags = new.flags.into();
        d.generation = new.generation.into();
        if new.flags & flag::EXTENTS != 0 {
            let root = disk::ExtentHeader::empty(d.block.len(), 0);
            zerocopy::IntoBytes::write_to_prefix(&root, &mut d.block)
                .expect("60 bytes hold a header");
        }
        let mut e = InodeExtra::zeroed();
        if usize::from(self.geo.inode_bytes) > disk::Inode::BYTES {
            e.extra_isize = self.new_extra_isize().into();
        }
        let inode = self.adopt(ino, Vec::new(), d, e);
        let now = self.time();
        inode.set_atime(now);
        inode.set_mtime(now);
        inode.set_ctime(now);
        inode.set_crtime(now);
        inode
    }

    /// The inode-table block of `ino`, an inode that is in memory whole. A block whose other inodes
    /// are all free is not read but zeroed, as `__ext4_get_inode_loc` does: what a discard or lazy
    /// initialisation left there does not matter.
    pub(super) async fn itable_buffer(&self, ino: u32) -> FsResult<Rc<Buffer>> {
        let slot = self.geo.inode_slot(ino).ok_or(FsError::Invalid("inode number"))?;
        let table = self.inode_tables[slot.group as usize];
        let block = table + u64::from(slot.table_block);
        if let Some(b) = self.bdev.peek(block)
            && b.flag(BufFlag::Uptodate)
        {
            return Ok(b);
        }
        if self.itable_block_is_unused(slot.group, slot.table_block, ino).await? {
            let b = self.bdev.get(block);
            if !b.flag(BufFlag::Uptodate) {
                b.set_contents(Slice::zero(b.len()));
                b.set(BufFlag::Uptodate);
            }
            return Ok(b);
        }
        self.bdev.read(block).await
    }

    /// Logs the inode's slot. Waits: for the table block, and for the journal (conflicts).
    pub(super) fn write_inode<'a>(
        &'a self,
        h: &'a Handle,
        inode: &'a Inode,
    ) -> MaybeReady<'a, FsResult<()>> {
        if let Some(done) = self.write_inode_now(h, inode) {
            return MaybeReady::now(done);
        }
        MaybeReady::later(async {
            soon!(self.fast_settled(inode));
            let met = inode.table_block.borrow().upgrade();
            let buf = match met.filter(|b| b.flag(BufFlag::Uptodate)) {
                Some(buf) => buf,
                None => self.itable_buffer(inode.ino).await?,
            };
            *inode.table_block.borrow_mut() = Rc::downgrade(&buf);
            soon!(h.get_write_access(&buf))?;
            self.put_inode(h, inode, &buf)
        })
    }

    /// [`Ext4::write_inode`] where it need not wait; else `None`, and nothing is done.
    pub(super) fn write_inode_now(&self, h: &Handle, inode: &Inode) -> Option<FsResult<()>> {
        inode.fast.get().may_change()?;
        let met = inode.table_block.borrow().upgrade();
        let met = met.filter(|b| b.flag(BufFlag::Uptodate));
        let buf = met.or_else(|| self.meet_table_block(inode))?;
        let access = h.write_access_now(&buf)?;
        Some(access.and_then(|()| self.put_inode(h, inode, &buf)))
    }

    /// The block of the inode table that an inode stands in, remembered, if it is cached.
    fn meet_table_block(&self, inode: &Inode) -> Option<Rc<Buffer>> {
        let slot = &inode.slot;
        let block = self.inode_tables[slot.group as usize] + u64::from(slot.table_block);
        let buf = self.bdev.peek(block).filter(|b| b.flag(BufFlag::Uptodate))?;
        *inode.table_block.borrow_mut() = Rc::downgrade(&buf);
        Some(buf)
    }

    /// Puts an inode in its slot of `buf`, to which the handle has write access.
    fn put_inode(&self, h: &Handle, inode: &Inode, buf: &Rc<Buffer>) -> FsResult<()> {
        self.fast_track_inode(h, inode);
        if inode.put.get() != Put::AtOnce {
            inode.put.set(Put::Owed);
            return self.dirty(h, buf);
        }
        let start = inode.slot.offset as usize;
        let size_before = buf.with_mut(|b| {
            let slot = &mut b[start..start + inode.slot_bytes];
            let size = disk::Inode::size_in(slot);
            inode.fill_slot(slot);
            self.csum.seal_inode(inode.ino, slot);
            size
        });
        self.dirty(h, buf)?;
        if crate::site::SYNC_TID.on() {
            inode.sync_tid.set(h.tid());
        }
        let moves = size_before != inode.disksize.get();
        if moves && self.opts.era.size_counts_for_fdatasync() && crate::site::SIZE_TID.on() {
            inode.datasync_tid.set(h.tid());
        }
        Ok(())
    }

    /// Puts an inode in its slot, if [`Ext4::write_inode`] has left that for later.
    pub(super) fn put_owed(&self, h: &Handle, inode: &Inode) -> FsResult<()> {
        if inode.put.replace(Put::AtOnce) != Put::Owed {
            return Ok(());
        }
        let buf = inode.table_block.borrow().upgrade();
        self.put_inode(h, inode, &buf.expect("its transaction keeps the block in memory"))
    }

    /// Counts `n` times more that the handle will change the inode, which it has just written. How
    /// often that is, is Linux 3.10.61's; later kernels say it less often.
    pub(super) fn count_again(&self, h: &Handle, inode: &Inode, n: u32) {
        if let Some(buf) = inode.table_block.borrow().upgrade() {
            h.count_again(&buf, n);
        }
    }

    /// Has the inode's slot, in which nothing is new, in the transaction of `h`, or of a handle of
    /// its own (`mark_inode_dirty` where only the size in memory has changed).
    pub(super) async fn touch_inode(
        self: &Rc<Self>,
        h: Option<&Handle>,
        inode: &Rc<Inode>,
    ) -> FsResult<()> {
        match h {
            Some(h) => soon!(self.write_inode(h, inode)),
            None => soon!(self.dirty_inode(inode)),
        }
    }

    /// [`Ext4::write_inode`] in a handle of its own (`ext4_dirty_inode`).
    pub(super) fn dirty_inode<'a>(
        self: &'a Rc<Self>,
        inode: &Rc<Inode>,
    ) -> MaybeReady<'a, FsResult<()>> {
        match self.start(2) {
            MaybeReady::Now(Some(Ok(h))) => match self.write_inode_now(&h, inode) {
                Some(out) => self.dirtied(h, inode, out),
                None => MaybeReady::later(self.dirty_later(h, inode.clone())),
            },
            started => {
                let inode = inode.clone();
                MaybeReady::later(async move { self.dirty_later(started.await?, inode).await })
            }
        }
    }

    /// [`Ext4::dirty_inode`] in its handle.
    async fn dirty_later(&self, h: Handle, inode: Rc<Inode>) -> FsResult<()> {
        let out = soon!(self.write_inode(&h, &inode));
        soon!(self.dirtied(h, &inode, out))
    }

    /// The end of [`Ext4::dirty_inode`].
    fn dirtied(&self, h: Handle, inode: &Inode, out: FsResult<()>) -> MaybeReady<'_, FsResult<()>> {
        inode.map.mark_inode_dirty();
        self.stop(h, out)
    }

    /// Forgets an inode in memory, unless its number leads to another by now.
    pub(super) fn forget_inode(&self, inode: &Rc<Inode>) {
        self.fast_forget(inode);
        let mut inodes = self.inodes.borrow_mut();
        if inodes.get(u64::from(inode.ino)).is_some_and(|i| Rc::ptr_eq(i, inode)) {
            inodes.remove(u64::from(inode.ino));
        }
    }
}
