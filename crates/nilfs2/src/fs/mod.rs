//! The mounted file system: calls change the page cache and a [`Store`], a thread writes both as
//! logs.
//!
//! Picture:    call -> `pages` (blocks of files), [`Store`] (maps and metadata) -> `segctor` (the
//!             thread `segctord`, five seconds after the first change, or when somebody syncs) ->
//!             logs -> now and then a super block.
//! Invariants: 1. who changes something holds `sem`, and so does who makes and writes a log: no log
//!                has half of a change. A call is one change; a write one for each page.
//!             2. a super block names a log only when that is durable.
//!             3. when a log cannot be written, all who wait are told, and nothing is written any
//!                more; but a device without a free segment leaves everything as it was.
//! Left out:   limits of metadata in memory (what was read or changed stays there, and is not
//!             counted as dirty pages); metadata that a call needs are read at its end; the logs
//!             without a checkpoint that Linux writes under memory pressure; a log that failed,
//!             which Linux tries again. Writes with `O_DIRECT` go through memory, as in Linux, and
//!             say so ([`wp_vfs::FileSystem::notes`]).
//! Source:     Linux fs/nilfs2: segment.c, super.c, inode.c, namei.c, dir.c.

mod checkpoints;
mod cleaner;
mod data;
pub(crate) mod file_flags;
mod namei;
mod names;
mod ops;
mod pages;
mod read;
mod segctor;
mod supers;
mod sync;
mod victims;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, Sector, Span};
use wp_block::{Bio, Partition};
use wp_cache::{WbPolicy, Writeback};
use wp_medium::{MediumView, Overlay, View};
use wp_rt::{Lock, LockGuard, OwnedLockGuard, Rt};

use crate::disk::{Geometry, Inode};
use crate::era::Era;
use crate::image::{Image, RecoverOptions, recover};
use crate::log::{Disk, Origin, Place, Store};
use crate::site;

use cleaner::Cleaner;
pub use cleaner::{CleanerOptions, Share};
use names::Names;
pub use ops::Mounted;
use pages::Pages;
use segctor::Segctor;
use supers::Supers;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The kernel's rules.
    pub era: Era,
    /// Are device caches flushed (`barrier`)?
    pub barrier: bool,
    /// Does an fdatasync write everything that came before it (`order=strict`)?
    pub strict_order: bool,
    /// Does an fsync write an inode that changed where no block of its file did? Linux does not:
    /// its fsync of a new empty file, or after a chmod, answers 0 and makes nothing durable.
    pub sync_inodes: bool,
    /// Does an fdatasync of an open file without a name write everything? Linux writes its data
    /// alone, and recovery, which has no inode to give them to, fails: it does not mount any more.
    pub sync_nameless: bool,
    /// Is the device flushed before a log that begins a segment? Recovery goes on there when the
    /// log before it is lost, and takes what builds on that for whole. Linux does not flush.
    pub flush_segments: bool,
    /// Is another's flush counted only when it has ended? Linux counts it from its beginning
    /// (N26), so that a sync that has nothing of its own to write returns before it.
    pub await_flush: bool,
    /// Seconds since 1970 at power-on.
    pub epoch_secs: i64,
    /// A timer tick: times of inodes are those of the last one (`current_time`).
    pub tick: Span,
    /// How the cleaner works; `None`: there is none.
    pub cleaner: Option<CleanerOptions>,
    /// How the flusher behaves.
    pub writeback: WbPolicy,
}

/// A mounted NILFS2.
pub struct Nilfs {
    rt: Rt,
    part: Partition,
    opts: MountOptions,
    g: Geometry,
    store: RefCell<Store<'static>>,
    pages: Rc<Pages>,
    /// Where the names of directories stand whose blocks are all in memory.
    names: RefCell<BTreeMap<u64, Names>>,
    /// Blocks of metadata that were not in memory when a call needed them.
    missed: Rc<RefCell<Vec<u64>>>,
    /// Held by who changes something, and by who writes logs (`ns_segctor_sem`).
    sem: Lock<()>,
    segctor: Segctor,
    cleaner: Cleaner,
    supers: RefCell<Supers>,
    /// Held by who writes a super block (`ns_sem`).
    super_sem: Lock<()>,
    /// Open descriptors of files.
    opens: RefCell<BTreeMap<u64, u32>>,
    /// Files whose inode an fdatasync needs too (`NILFS_I_INODE_SYNC`). A checkpoint takes those
    /// out that it has blocks of: one whose inode alone changed stays.
    inode_sync: RefCell<BTreeSet<u64>>,
    /// Files without names that nobody has open, but the next checkpoint: what they have is
    /// written before they go (the reference that `ns_dirty_files` holds).
    unused: RefCell<BTreeSet<u64>>,
    /// Those of them that a checkpoint has written (`sc_iput_queue`).
    written_unused: RefCell<Vec<u64>>,
    /// Files of the checkpoint that is on its way to the device (`NILFS_I_BUSY`).
    in_log: RefCell<BTreeSet<u64>>,
    /// Was the device flushed since the last log (`ns_flushed_device`)?
    is_flushed: Cell<bool>,
    /// How often something was written since that a flush has to cover.
    written: Cell<u64>,
    /// Writes with `O_DIRECT`, none of which was direct.
    through_memory: Cell<u64>,
    is_mounted: Cell<bool>,
    /// Did writing fail, so that nothing is written any more?
    has_failed: Cell<bool>,
}

/// The contents of a partition as they are, in no time.
fn contents(part: &Partition) -> MediumView {
    MediumView {
        medium: part.queue().with_device(|d| d.medium()),
        start: part.start(),
        bytes: part.sectors() * wp_base::SECTOR_BYTES,
    }
}

impl Nilfs {
    /// Mounts what lies on `part`: recovers if it must, starts the thread.
    ///
    /// What recovery reads takes no time; what it writes goes out as requests. Errors: `Corrupt`,
    /// `Unsupported`, `Io`.
    pub async fn mount(rt: &Rt, part: Partition, opts: MountOptions) -> FsResult<Rc<Nilfs>> {
        let secs = u64::try_from(opts.epoch_secs).unwrap_or(0) + rt.now().secs();
        replay(&part, &RecoverOptions { now: secs, era: Some(opts.era) }).await?;
        let view = contents(&part);
        let image = Image::open(&view)?;
        let g = image.geometry().clone();
        if g.block_bits > 12 {
            return Err(FsError::Unsupported("blocks of more than 4096 bytes".into()));
        }
        let origin = origin_of(&image);
        let wb = Writeback::new(rt, part.clone(), opts.writeback.clone());
        let pages = Pages::new(rt, wb, 1 << g.block_bits);
        let missed = Rc::new(RefCell::new(Vec::new()));
        let disk = Disk::new(g.clone(), {
            let (part, bits, missed) = (part.clone(), g.block_bits, missed.clone());
            move |block| {
                missed.borrow_mut().push(block);
                let mut bytes = vec![0; 1 << bits];
                contents(&part).read_at(block << bits, &mut bytes)?;
                Ok(bytes)
            }
        });
        let disk = disk.on_dirty({
            let pages = pages.clone();
            move |number| pages.table_dirtied(number)
        });
        let supers = Supers::new(image.tip(), part.sectors() * wp_base::SECTOR_BYTES);
        let fs = Rc::new(Nilfs {
            rt: rt.clone(),
            store: RefCell::new(Store::open(disk, &origin, pages.clone())?),
            pages,
            names: RefCell::default(),
            missed,
            sem: Lock::new(rt, "nilfs2 logs", ()),
            segctor: Segctor::new(rt, image.super_block()),
            cleaner: Cleaner::new(rt),
            supers: RefCell::new(supers),
            super_sem: Lock::new(rt, "nilfs2 super blocks", ()),
            opens: RefCell::default(),
            inode_sync: RefCell::default(),
            unused: RefCell::default(),
            written_unused: RefCell::default(),
            in_log: RefCell::default(),
            is_flushed: Cell::new(false),
            written: Cell::new(0),
            through_memory: Cell::new(0),
            is_mounted: Cell::new(true),
            has_failed: Cell::new(false),
            part,
            opts,
            g,
        });
        fs.pages.belongs_to(Rc::downgrade(&fs));
        fs.store.borrow_mut().read_at_mount()?;
        fs.missed.take();
        fs.note_mount().await?;
        fs.start_segctor();
        fs.start_cleaner();
        Ok(fs)
    }

    fn secs(&self) -> u64 {
        u64::try_from(self.opts.epoch_secs).unwrap_or(0) + self.rt.now().secs()
    }

    fn check_writable(&self) -> FsResult<()> {
        let is_writable = self.is_mounted.get() && !self.has_failed.get();
        if is_writable { Ok(()) } else { Err(FsError::ReadOnly) }
    }

    /// Who writes a file or changes its length holds this, before `sem` (`i_rwsem`).
    async fn lock_inode(&self, number: u64) -> OwnedLockGuard<()> {
        self.pages.inode(number).lock.clone().lock_owned().await
    }

    /// A change, or a log, begins: nobody else changes or writes until the guard goes.
    async fn begin(&self) -> FsResult<LockGuard<'_, ()>> {
        self.check_writable()?;
        self.wait_for_room().await;
        let guard = self.sem.lock().await;
        // The log that it waited for may have failed.
        self.check_writable()?;
        Ok(guard)
    }

    fn inode(&self, number: u64) -> FsResult<Inode> {
        self.store.borrow_mut().inode(number)
    }

    /// Changes an inode; with `sync`, an fdatasync needs it.
    fn change(&self, number: u64, sync: bool, f: impl FnOnce(&mut Inode)) -> FsResult<()> {
        self.store.borrow_mut().change_inode(number, f)?;
        self.pages.inode(number).map.mark_inode_dirty();
        if sync {
            self.inode_sync.borrow_mut().insert(number);
        }
        self.changed();
        Ok(())
    }

    /// Sets the times of an inode's change.
    fn stamp(&self, inode: &mut Inode, modified: bool) {
        let nanos = u64::from(self.rt.now().subsec_nanos());
        // A second is a whole number of ticks.
        let (secs, nanos) = (self.secs(), (nanos - nanos % self.opts.tick.0) as u32);
        (inode.ctime, inode.ctime_nsec) = (secs.into(), nanos.into());
        if modified {
            (inode.mtime, inode.mtime_nsec) = (secs.into(), nanos.into());
        }
    }

    fn sector(&self, block: u64) -> Sector {
        Sector(self.g.byte_of(block) / wp_base::SECTOR_BYTES)
    }

    /// Reads the blocks of metadata that a call has needed and that were not in memory, one after
    /// the other, as it would have met them. Waits: for the device.
    async fn settle(&self) -> FsResult<()> {
        let sectors = (self.g.block_bytes() / 512) as u32;
        for block in self.missed.take() {
            let bio = Bio::read(self.sector(block), sectors, Flags::NONE);
            self.part.submit_wait(bio).await.map_err(|_| FsError::Io)?;
        }
        Ok(())
    }

    /// The outcome of a call, when what it needed was read.
    async fn settled<T>(&self, out: FsResult<T>) -> FsResult<T> {
        self.settle().await?;
        out
    }

    /// Empties the device's cache, whatever flushes others have under way, which may have begun
    /// before what is to be durable arrived.
    async fn flush_now(&self) -> FsResult<()> {
        if !self.opts.barrier {
            return Ok(());
        }
        self.part.flush().await.map_err(|_| FsError::Io)
    }

    /// Empties the device's cache, unless nothing was written since. Whoever comes while another's
    /// flush is under way does not wait for its end, as in Linux; with `await_flush` it flushes
    /// too, and waits. `nilfs_flush_device`.
    async fn flush_device(&self) -> FsResult<()> {
        if !self.opts.barrier || self.is_flushed.get() {
            return Ok(());
        }
        let began = self.flush_begins();
        let done = match site::SYNC_FLUSH.on() {
            true => self.flush_now().await,
            false => Ok(()),
        };
        self.flush_ends(began, done.is_ok());
        done
    }

    /// A log, or data, has arrived at the device: what it was flushed before does not cover it.
    fn arrives(&self) {
        self.is_flushed.set(false);
        self.written.set(self.written.get() + 1);
    }

    /// A flush is about to be sent; what [`Nilfs::flush_ends`] is to be told.
    fn flush_begins(&self) -> u64 {
        if !self.opts.await_flush {
            self.is_flushed.set(true);
        }
        self.written.get()
    }

    /// It has ended, well or not.
    fn flush_ends(&self, began: u64, is_good: bool) {
        if !is_good {
            // Linux takes it for flushed, and tells nobody else.
            self.is_flushed.set(false);
        } else if self.opts.await_flush && self.written.get() == began {
            self.is_flushed.set(true);
        }
    }
}

/// Where a mount goes on.
fn origin_of(image: &Image<'_>) -> Origin {
    let (g, root) = (image.geometry(), image.tip().root);
    Origin {
        root: image.super_root().clone(),
        at: 0,
        checkpoint: *image.checkpoint(),
        cno: image.tip().cno.wrapping_add(1),
        place: Place {
            segment: root.segment,
            offset: root.start + root.blocks - g.segment(root.segment).0,
            next_segment: root.next_segment,
            seq: root.seq,
        },
    }
}

/// Recovery is a pure function of the image; what it changed is then written, in its order.
async fn replay(part: &Partition, options: &RecoverOptions) -> FsResult<()> {
    let view = contents(part);
    let overlay = Overlay::new(&view);
    let has_logs = recover(&overlay, options)?.blocks > 0;
    let mut ends = overlay.staged_writes();
    let logs = if has_logs { ends.remove(0) } else { Vec::new() };
    let sent: Vec<_> = logs
        .into_iter()
        .map(|(at, what)| part.send(Bio::write(at, vec![what], Flags::SYNC)))
        .collect();
    for bio in sent {
        bio.wait().await.map_err(|_| FsError::Io)?;
    }
    for (at, what) in ends.into_iter().flatten() {
        let flags = Flags::SYNC | Flags::PREFLUSH | Flags::FUA;
        part.submit_wait(Bio::write(at, vec![what], flags)).await.map_err(|_| FsError::Io)?;
    }
    Ok(())
}
