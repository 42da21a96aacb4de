//! The mounted file system: calls change trees in memory, a thread commits them.
//!
//! Picture:    call -> [`Core`] (trees, space, references; in no time) -> `commit`: tree blocks,
//!             wait, flush, super blocks. Bytes go to the page cache; `writeback` gives them places
//!             and sends them (`ordered` extents); when they have arrived a worker makes the items
//!             that lead to them.
//! Invariants: 1. what a call changes in trees it changes without waiting in between: no commit has
//!                half of a call.
//!             2. items lead to data only when it has arrived.
//!             3. a call has reserved metadata for what it changes before, and waits for room
//!                there.
//!             4. a write of metadata that failed is the end of all writing: all who wait are told.
//! Left out:   compression, send, quotas, images without the feature NO_HOLES; tree blocks that are
//!             dropped from memory; items of inodes and names that the kernel delays within a
//!             transaction (`delayed-inode.c`), which changes shapes of trees and no promise.
//! Source:     fs/btrfs of Linux 6.12: inode.c, file.c, transaction.c, ordered-data.c, disk-io.c.

mod cleaner;
mod commit;
mod data;
mod direct;
mod fallocate;
pub(crate) mod file_flags;
mod inode;
mod log;
mod mapped;
mod mount;
mod namei;
mod ops;
mod ordered;
mod read;
mod reflink;
mod rename;
mod room;
mod snapshots;
mod subvolumes;
mod sync;
mod truncate;
mod writeback;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, Sector, Time};
use wp_block::{Bio, Partition};
use wp_cache::{Mapping, WbPolicy, Writeback};
use wp_medium::{MediumView, Slice};
use wp_rt::{Lock, Rt, Ticks};

use crate::core::Core;
use crate::disk::Timespec;
use crate::era::Era;
use crate::replay::{OldReplay, Overgrown};

use cleaner::Cleaner;
use commit::{Commits, TreeWriter};
use inode::Inode;
use log::Logs;
pub use log::{Mend, OldLog};
pub use ops::Mounted;
use ordered::Endings;
use subvolumes::{Subvol, Subvols};

/// Bytes of a block of the page cache, and of a sector of the format.
const BLOCK: u64 = 4096;

/// A subvolume of an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Subvolume {
    /// The one that the root tree's directory calls `default`.
    #[default]
    Default,
    /// By the number of its tree; 0: the first.
    Id(u64),
    /// By its path from the first.
    Path(String),
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Is the device's cache flushed before super blocks, which are forced (`barrier`)?
    pub barrier: bool,
    /// Is data written to new places (`datacow`)? Files keep what they were made with.
    pub datacow: bool,
    /// Has data checksums (`datasum`)?
    pub datasum: bool,
    /// Do direct writes of data with checksums go past the cache, as before `btrfs_direct_write`
    /// had a rule against it (6.12.117 has it)?
    pub direct_sums: bool,
    /// Which subvolume is mounted (`subvol`, `subvolid`).
    pub subvolume: Subvolume,
    /// May an fsync write a log (`treelog`)?
    pub treelog: bool,
    /// The kernel's rules.
    pub era: Era,
    /// Rules of logs that are left out, as older kernels did.
    pub old_log: OldLog,
    /// The same of their replay.
    pub old_replay: OldReplay,
    /// Rules of logs that Linux 6.12 has not.
    pub mend: Mend,
    /// What a replay does where that of Linux 6.12 panics.
    pub overgrown: Overgrown,
    /// Most bytes of a file that is kept in its item (`max_inline`).
    pub max_inline: u64,
    /// Seconds from a transaction's begin to its commit (`commit`).
    pub commit_secs: u64,
    /// Seconds since 1970 at power-on.
    pub epoch_secs: i64,
    /// How the flusher behaves.
    pub writeback: WbPolicy,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            barrier: true,
            datacow: true,
            datasum: true,
            direct_sums: false,
            subvolume: Subvolume::Default,
            treelog: true,
            era: Era::of(Era::COMPARED),
            old_log: OldLog::default(),
            mend: Mend::default(),
            old_replay: OldReplay::default(),
            overgrown: Overgrown::default(),
            max_inline: 2048,
            commit_secs: 30,
            epoch_secs: 0,
            writeback: WbPolicy::default(),
        }
    }
}

/// A mounted btrfs.
pub struct Btrfs {
    me: Weak<Btrfs>,
    rt: Rt,
    part: Partition,
    opts: MountOptions,
    /// The tree of files that is mounted.
    top: Rc<Subvol>,
    /// Those that are in use, with it.
    subvols: Subvols,
    /// The number of the next subvolume.
    next_tree: Cell<u64>,
    core: RefCell<Core<'static>>,
    wb: Rc<Writeback>,
    /// The trees, as the flusher has them on its list (`btree_inode`).
    trees: Rc<Mapping>,
    /// Who sends their blocks.
    _tree_writer: Rc<TreeWriter>,
    inodes: RefCell<BTreeMap<u64, Rc<Inode>>>,
    /// Bytes of data promised to what was written and has no place yet.
    data_promised: Cell<u64>,
    commits: Commits,
    logs: Logs,
    endings: Endings,
    cleaner: Cleaner,
    /// Held by who moves a name between directories (`s_vfs_rename_mutex`).
    moves: Lock<()>,
    is_mounted: Cell<bool>,
    /// Did writing metadata fail, so that nothing is written any more?
    has_failed: Cell<bool>,
    /// Data that could not be read: where, and why.
    bad_data: RefCell<Vec<String>>,
}

/// The contents of a partition as they are, in no time.
fn contents(part: &Partition) -> MediumView {
    MediumView {
        medium: part.queue().with_device(|d| d.medium()),
        start: part.start(),
        bytes: part.sectors() * wp_base::SECTOR_BYTES,
    }
}

fn sector(at: u64) -> Sector {
    Sector(at / wp_base::SECTOR_BYTES)
}

impl Btrfs {
    fn rc(&self) -> Rc<Btrfs> {
        self.me.upgrade().expect("who calls holds it")
    }

    /// The time as inodes have it: at the tick. `current_time`.
    fn time(&self) -> Timespec {
        let ticks = self.ticks();
        self.time_of(ticks.time(ticks.at(self.rt.now())))
    }

    fn ticks(&self) -> Ticks {
        self.opts.writeback.ticks()
    }

    /// A time of the machine as one of the calendar.
    fn time_of(&self, now: Time) -> Timespec {
        let secs = self.opts.epoch_secs.saturating_add_unsigned(now.secs());
        Timespec { sec: secs.cast_unsigned().into(), nsec: now.subsec_nanos().into() }
    }

    fn check_writable(&self) -> FsResult<()> {
        let is_writable = self.is_mounted.get() && !self.has_failed.get();
        if is_writable { Ok(()) } else { Err(FsError::ReadOnly) }
    }

    /// Nothing is written any more; all who wait are told. `btrfs_abort_transaction`.
    fn abort(&self) {
        if !self.has_failed.replace(true) {
            self.commits.wake_all();
        }
    }

    /// Looks at trees, or changes them. What goes wrong half way is the end of all writing.
    fn with<T>(&self, f: impl FnOnce(&mut Core<'static>) -> FsResult<T>) -> FsResult<T> {
        let (done, is_broken) = {
            let mut core = self.core.borrow_mut();
            let done = f(&mut core);
            (done, core.is_broken())
        };
        if is_broken {
            self.abort();
        }
        self.note_transaction();
        done
    }

    /// The same, of what may not fail once it was begun. `btrfs_abort_transaction` if it does.
    fn must<T>(&self, f: impl FnOnce(&mut Core<'static>) -> FsResult<T>) -> FsResult<T> {
        self.with(|c| {
            let done = f(c);
            if done.is_err() {
                // Half of it may be done.
                c.break_off();
            }
            done
        })
    }

    /// Reads the tree blocks that a call has needed and that were not in memory, one after the
    /// other, as it would have met them. Waits: for the device.
    async fn settle(&self) -> FsResult<()> {
        let missed = self.core.borrow_mut().take_missed();
        for m in missed {
            let bio = Bio::read(sector(m.at), m.bytes / 512, Flags::META);
            self.part.submit_wait(bio).await.map_err(|_| FsError::Io)?;
        }
        self.repair().await;
        Ok(())
    }

    /// Writes good copies of tree blocks over bad ones that were met. Waits: for the device. That
    /// it fails changes nothing. `btrfs_repair_eb_io_failure`.
    async fn repair(&self) {
        // Taken here and not before: a commit sees to those that wait, and only after that is their
        // place another's.
        let repairs = self.core.borrow_mut().take_repairs();
        for r in repairs.iter().filter(|_| !self.has_failed.get()) {
            let segs: Vec<Slice> = r.bytes.chunks(4096).map(Slice::from_bytes).collect();
            let _ = self.part.submit_wait(Bio::write(sector(r.at), segs, Flags::SYNC)).await;
        }
    }

    /// The outcome of a call, when what it needed was read.
    async fn settled<T>(&self, out: FsResult<T>) -> FsResult<T> {
        self.settle().await?;
        out
    }
}
