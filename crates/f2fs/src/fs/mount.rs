//! Mounting and unmounting; what is shared by all of the file system.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::live::Tally;
use wp_base::{FsResult, Span};
use wp_block::Partition;
use wp_cache::{Mapping, WbPolicy, Writeback};
use wp_rt::{Rt, Semaphore};

use super::checkpoint::CpState;
use super::counts::Counts;
use super::curseg::Logs;
use super::discard::Discards;
use super::era::Era;
use super::flush::Flusher;
use super::gc::GcState;
use super::ino_sets::InoSets;
use super::inode::Files;
use super::io::Io;
use super::nat::Nat;
use super::nids::Nids;
use super::node::FsyncNodes;
use super::segments::Segments;
use super::sit::Sit;
use crate::disk::{Checkpoint, Checksums, Geometry, SuperBlock};

/// `fsync_mode=`, and two ways of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsyncMode {
    /// Nodes are waited for, then the cache is flushed.
    Posix,
    /// The last node carries PREFLUSH and FUA, and is not waited for apart.
    Strict,
    /// As posix without the flush.
    NoBarrier,
    /// As strict, and a flush comes after the data before the last node is sent, on zoned devices
    /// too.
    StrictFixed,
}

/// `mode=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsMode {
    /// In place and into holes of segments where that is better.
    Adaptive,
    /// Only at the ends of the logs.
    Lfs,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Kernel whose rules apply.
    pub era: Era,
    /// `fsync_mode=`.
    pub fsync_mode: FsyncMode,
    /// fsync sends nodes without waiting for data, and waits for both once (order-preserving
    /// recovery and write). Brings recovery that looks at write pointers.
    pub oprw: bool,
    /// `mode=`. Zoned images are always [`FsMode::Lfs`].
    pub mode: FsMode,
    /// `barrier` / `nobarrier`.
    pub barrier: bool,
    /// `flush_merge`: flushes of several tasks are sent once.
    pub flush_merge: bool,
    /// `active_logs=`: 2, 4 or 6.
    pub active_logs: u32,
    /// `background_gc=on`.
    pub background_gc: bool,
    /// `discard`.
    pub discard: bool,
    /// `inline_data`.
    pub inline_data: bool,
    /// `inline_dentry`.
    pub inline_dentry: bool,
    /// `inline_xattr`.
    pub inline_xattr: bool,
    /// `user_xattr`.
    pub user_xattr: bool,
    /// `extent_cache`.
    pub extent_cache: bool,
    /// `fastboot`: node summaries are in every checkpoint.
    pub fastboot: bool,
    /// The first node that is fsynced after a checkpoint is waited for. Linux does not: its
    /// sequence number is 0, which means "nothing to wait for".
    pub wait_first_node: bool,
    /// `ipu_policy`'s `min_fsync_blocks`: an fsync of at most as many dirty blocks writes in place.
    pub min_fsync_blocks: u64,
    /// Name of the disk as the kernel has it: `sdb1`.
    pub disk: String,
    /// Device number, for names of threads.
    pub device: (u32, u32),
    /// Seconds since 1970 at power-on.
    pub epoch_secs: i64,
    /// The flusher's settings.
    pub writeback: WbPolicy,
}

impl MountOptions {
    /// The kernel's defaults in `era`, on disk `disk` with device number `device`.
    pub fn new(era: Era, disk: &str, device: (u32, u32)) -> MountOptions {
        MountOptions {
            era,
            fsync_mode: FsyncMode::Posix,
            oprw: false,
            mode: FsMode::Adaptive,
            barrier: true,
            flush_merge: true,
            active_logs: 6,
            background_gc: true,
            discard: true,
            inline_data: true,
            inline_dentry: true,
            inline_xattr: true,
            user_xattr: true,
            extent_cache: true,
            fastboot: false,
            wait_first_node: false,
            min_fsync_blocks: 8,
            disk: disk.to_owned(),
            device,
            epoch_secs: 1_700_000_000,
            writeback: WbPolicy {
                task: "kworker/u4:1".to_owned(),
                plug_across_inodes: true,
                wheel_timers: true,
                own_thread: false,
                ..WbPolicy::default()
            },
        }
    }
}

/// A mounted F2FS.
pub struct F2fs {
    pub(super) rt: Rt,
    pub(super) opts: MountOptions,
    pub(super) sb: SuperBlock,
    pub(super) g: Geometry,
    pub(super) csum: Checksums,
    pub(super) wb: Rc<Writeback>,
    pub(super) io: Io,
    /// Blocks before the main area, by address (`META_MAPPING`).
    pub(super) meta: Rc<Mapping>,
    /// Node blocks, by nid (`NODE_MAPPING`).
    pub(super) nodes: Rc<Mapping>,
    /// The checkpoint as it will be written next (`ckpt`).
    pub(super) cp: RefCell<Checkpoint>,
    pub(super) cps: CpState,
    pub(super) nat: Nat,
    pub(super) nids: Nids,
    pub(super) fsync_nodes: FsyncNodes,
    pub(super) sit: RefCell<Sit>,
    pub(super) segments: RefCell<Segments>,
    pub(super) logs: RefCell<Logs>,
    /// Who gives out blocks (`curseg_lock`, `sentry_lock`).
    pub(super) alloc_lock: wp_rt::Lock<()>,
    pub(super) counts: Counts,
    pub(super) inos: InoSets,
    pub(super) flusher: Flusher,
    pub(super) discards: Discards,
    pub(super) gc: GcState,
    /// What FILES keeps.
    pub(super) files: Files,
    /// Operations that change something hold one permit, a checkpoint all (`cp_rwsem`).
    pub(super) cp_rwsem: Semaphore,
    /// `node_write`: likewise for node writes.
    pub(super) node_write: Semaphore,
    /// Renames between directories (`s_vfs_rename_mutex`).
    pub(super) rename_lock: wp_rt::Lock<()>,
    pub(super) mounted: Cell<bool>,
    pub(super) _tally: Tally,
}

impl F2fs {
    /// Mounts what lies on `part`: recovers if it must, reads the tables, starts flusher and
    /// threads.
    ///
    /// Errors: `Corrupt` (with the place), `Unsupported` for features that this cannot write, `Io`.
    pub async fn mount(rt: &Rt, part: Partition, opts: MountOptions) -> FsResult<Rc<F2fs>> {
        let _ = (rt, part, opts);
        todo!()
    }

    /// Is it mounted still?
    pub(crate) fn is_mounted(&self) -> bool {
        self.mounted.get()
    }

    /// Only at the ends of the logs (`f2fs_lfs_mode`)?
    pub(crate) fn is_lfs(&self) -> bool {
        self.opts.mode == FsMode::Lfs
    }

    /// Seconds and nanoseconds now.
    pub(crate) fn now(&self) -> wp_vfs::TimeSpec {
        let ns = self.rt.now().0;
        wp_vfs::TimeSpec {
            secs: self.opts.epoch_secs + (ns / 1_000_000_000) as i64,
            nanos: (ns % 1_000_000_000) as u32,
        }
    }

    /// Writes everything and the last checkpoint. Later calls answer `ReadOnly`.
    pub(crate) async fn unmount_all(self: &Rc<Self>) -> FsResult<()> {
        todo!()
    }

    /// A jiffy's sleep in loops that wait for others (`DEFAULT_IO_TIMEOUT`, 20 ms).
    pub(crate) const IO_TIMEOUT: Span = Span::millis(20);
}
