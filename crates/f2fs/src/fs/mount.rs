//! Mounting and unmounting; what is shared by all of the file system.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wp_base::live::{Kind as LiveKind, Tally};
use wp_base::{FsError, FsResult, Span};
use wp_block::Partition;
use wp_cache::{Mapping, WbPolicy, Writeback};
use wp_rt::{Lock, Rt, Semaphore};

use super::checkpoint::{ALL, CpState, Reason};
use super::counts::Counts;
use super::curseg::SMALL_VOLUME;
use super::discard::Discards;
use super::flush::Flusher;
use super::gc::GcState;
use super::ino_sets::InoSets;
use super::inode::Files;
use super::io::Io;
use super::load;
use super::meta::Own;
use super::nat::Nat;
use super::nids::Nids;
use super::node::FsyncNodes;
use super::range_flush::RangeFlush;
use super::space::Space;
use crate::disk::{Checkpoint, Checksums, Geometry, SuperBlock, nid};
use crate::era::Era;
use crate::site;

/// `fsync_mode=`, and two ways of ours: those that are fixed.
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
    /// As posix, with a flush of the data before the nodes are sent, and a checkpoint where strict
    /// has one: each of its flushes may be narrowed (`rflush=`).
    PosixFixed,
}

impl FsyncMode {
    /// Has an fsync a checkpoint whenever recovery would not find the names?
    pub(super) const fn keeps_names(self) -> bool {
        matches!(self, FsyncMode::Strict | FsyncMode::StrictFixed | FsyncMode::PosixFixed)
    }

    /// Is the data durable before the nodes that lead to it are sent?
    pub(super) const fn flushes_data_first(self) -> bool {
        matches!(self, FsyncMode::StrictFixed | FsyncMode::PosixFixed)
    }
}

/// `mode=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsMode {
    /// In place and into holes of segments where that is better.
    Adaptive,
    /// Only at the ends of the logs.
    Lfs,
}

/// `direct=`, a way of ours: where direct writes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectMode {
    /// Where Linux has them go: in place, with [`FsMode::Lfs`] to new places that the node names
    /// before the data is there, and on zoned devices through the cache.
    Linux,
    /// To the end of the data log always, and no node names a block before its data is there.
    Log,
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
    /// Where direct writes go.
    pub direct: DirectMode,
    /// `barrier` / `nobarrier`.
    pub barrier: bool,
    /// `rflush=`: what an fsync flushes.
    pub range_flush: RangeFlush,
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
    /// An fsync in strict mode waits for the node that has the mark. Linux does not.
    pub wait_last_node: bool,
    /// An fsync in strict mode sends the node that has the mark when those before it have arrived,
    /// so that its flush covers them. Linux sends them together.
    pub wait_earlier_nodes: bool,
    /// A direct write past the end sets the length before `O_SYNC` or `O_DSYNC` makes it durable.
    /// Linux, since direct I/O goes through iomap (a1e09b03e6f5), sets it after that.
    pub size_before_sync: bool,
    /// An fsync waits for those of the same file that are under way, takes what is written from its
    /// nodes on for the next one's, and always flushes. Linux does none of it: one that comes while
    /// another waits for its flush finds nothing to do, and returns.
    pub fsync_alone: bool,
    /// Roll-forward leaves what it reads as it is, blocks and zones, until it has written its
    /// checkpoint ([`RecoverOptions::aside`](crate::image::RecoverOptions::aside)).
    pub recover_aside: bool,
    /// An atomic write reserves no blocks in the file itself (ours).
    pub atomic_all_apart: bool,
    /// An fsync writes the inode behind every change of its attributes. Linux does not if all that
    /// it compares, lengths and times, is as on the device, as in the tick of the change before
    /// (`f2fs_skip_inode_update`).
    pub sync_attributes: bool,
    /// fdatasync takes an inode for clean of which no block was added, as until "f2fs: fix
    /// fdatasync" (281518c694a5): a length or a node with holes that only memory has is not sent.
    pub old_fdatasync: bool,
    /// Zeroing a range behind the end with `FALLOC_FL_KEEP_SIZE` does not mark the inode for it, as
    /// until "f2fs: fix to set KEEP_SIZE bit in f2fs_zero_range" (17cd07ae9507).
    pub old_zero_range: bool,
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
            direct: DirectMode::Linux,
            barrier: true,
            range_flush: RangeFlush::Off,
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
            wait_last_node: false,
            wait_earlier_nodes: false,
            size_before_sync: false,
            fsync_alone: false,
            recover_aside: false,
            atomic_all_apart: false,
            sync_attributes: false,
            old_fdatasync: false,
            old_zero_range: false,
            min_fsync_blocks: 8,
            disk: disk.to_owned(),
            device,
            epoch_secs: 1_700_000_000,
            writeback: WbPolicy::of(wp_cache::Era::of(era.version()), device),
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
    /// Who cleans these two.
    _own: [Rc<Own>; 2],
    /// The checkpoint as it will be written next (`ckpt`).
    pub(super) cp: RefCell<Checkpoint>,
    pub(super) cps: CpState,
    pub(super) nat: Nat,
    pub(super) nids: Nids,
    pub(super) fsync_nodes: FsyncNodes,
    pub(super) space: RefCell<Space>,
    /// Who gives out blocks (`curseg_lock`, `sentry_lock`).
    pub(super) alloc_lock: Lock<()>,
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
    pub(super) rename_lock: Lock<()>,
    /// Seconds that it was mounted before, and the clock when it was mounted now.
    pub(super) elapsed_at_mount: Cell<u64>,
    pub(super) mounted_secs: Cell<u64>,
    /// KiB written before, and what the devices had been sent by then.
    pub(super) kbytes_at_mount: Cell<u64>,
    pub(super) sectors_at_mount: Cell<u64>,
    mounted: Cell<bool>,
    _tally: Tally,
}

impl F2fs {
    /// Mounts what lies on `parts`, one or more in order: recovers if it must, reads the tables,
    /// starts flusher and threads.
    ///
    /// Errors: `Corrupt` (with the place), `Unsupported` for features that this cannot write, `Io`.
    pub async fn mount(
        rt: &Rt,
        parts: Vec<Partition>,
        mut opts: MountOptions,
    ) -> FsResult<Rc<F2fs>> {
        let loaded = load::recover_and_read(rt, &parts, &opts).await?;
        let (sb, g, cp) = (loaded.sb, loaded.g, loaded.cp);
        if g.is_zoned {
            opts.mode = FsMode::Lfs;
        }
        let lfs = opts.mode == FsMode::Lfs;
        let wb = Writeback::new(rt, parts[0].clone(), opts.writeback.clone());
        let (meta_ops, node_ops) = (Own::new(false), Own::new(true));
        let meta = Mapping::new(rt, "f2fs metadata", 4096, &wb);
        let nodes = Mapping::new(rt, "f2fs nodes", 4096, &wb);
        for (map, ops) in [(&meta, &meta_ops), (&nodes, &node_ops)] {
            let ops: Rc<dyn wp_cache::WbOps> = ops.clone();
            map.set_ops(Rc::downgrade(&ops));
        }
        let mut space = Space::new(&g, &cp, loaded.cap, lfs);
        space.sit.overwrites = opts.era.ssr_overwrites();
        let h = *cp.head();
        let in_use = h.valid_node_count.get() + nid::RESERVED;
        let fs = Rc::new(F2fs {
            rt: rt.clone(),
            csum: Checksums::of(&sb),
            io: Io::new(rt, parts, lfs),
            meta,
            nodes,
            cps: CpState::new(rt, loaded.second, cp.node_version()),
            nat: Nat::new(cp.nat_bitmap().to_vec(), None),
            nids: Nids::new(rt, h.next_free_nid.get(), g.nids().saturating_sub(in_use)),
            fsync_nodes: FsyncNodes::default(),
            space: RefCell::new(space),
            alloc_lock: Lock::new(rt, "block allocation", ()),
            counts: Counts::new(&h, g.nids()),
            inos: InoSets::new(&cp),
            flusher: Flusher::new(rt),
            discards: Discards::new(rt),
            gc: GcState::new(rt),
            files: Files::new(rt),
            cp_rwsem: Semaphore::new(rt, "f2fs operations", ALL),
            node_write: Semaphore::new(rt, "f2fs node writes", ALL),
            rename_lock: Lock::new(rt, "rename", ()),
            elapsed_at_mount: Cell::new(h.elapsed_time.get()),
            mounted_secs: Cell::new(rt.now().0 / 1_000_000_000),
            kbytes_at_mount: Cell::new(0),
            sectors_at_mount: Cell::new(0),
            mounted: Cell::new(true),
            cp: RefCell::new(cp),
            wb,
            opts,
            sb,
            g,
            _own: [meta_ops.clone(), node_ops.clone()],
            _tally: Tally::new(LiveKind::World),
        });
        meta_ops.set(&fs);
        node_ops.set(&fs);
        fs.sectors_at_mount.set(fs.sectors_written());
        fs.read_segments().await?;
        fs.read_nat_bits().await?;
        fs.build_free_nids(true).await?;
        if fs.opts.era.thread_writes_checkpoints() {
            fs.start_checkpoint_thread();
        }
        fs.start_flush_thread();
        fs.start_discard_thread();
        fs.check_root().await?;
        if fs.opts.background_gc {
            fs.start_gc_thread();
        }
        fs.counts.changed.set(false);
        Ok(fs)
    }

    /// Nothing can be done without a root directory.
    async fn check_root(self: &Rc<Self>) -> FsResult<()> {
        let root = self.sb.root_ino.get();
        let info = self.nat(root).await?;
        if let Err(FsError::NotFound) = self.node(root).await {
            let expected = "an inode, as the root directory has one";
            let found = u64::from(info.blk_addr);
            return Err(FsError::corrupt("f2fs NAT entry", "block_addr", 0, found, expected));
        }
        let root = self.iget(root).await?;
        drop(root);
        Ok(())
    }

    /// Is it mounted still?
    pub(crate) fn is_mounted(&self) -> bool {
        self.mounted.get()
    }

    /// Only at the ends of the logs (`f2fs_lfs_mode`)?
    pub(crate) fn is_lfs(&self) -> bool {
        self.opts.mode == FsMode::Lfs
    }

    /// Is it so small that data is always written in place, and segments are taken from the start
    /// of the area (`f2fs_tuning_parameters`)?
    pub(crate) fn is_small_volume(&self) -> bool {
        self.g.segments <= SMALL_VOLUME
    }

    /// Writes everything and the last checkpoint. Later calls answer `ReadOnly`.
    ///
    /// In the order of `kill_f2fs_super`: a checkpoint of what is there, then everybody's data with
    /// another, and a third if that left something.
    pub(crate) async fn unmount_all(self: &Rc<Self>) -> FsResult<()> {
        if !self.mounted.get() {
            return Ok(());
        }
        self.cps.closing.set(true);
        self.stop_gc_thread();
        self.stop_discard_thread();
        let is_clean = |fs: &F2fs| {
            let umount = fs.cp.borrow().has(crate::disk::cp_flag::UMOUNT);
            !fs.counts.changed.get() && umount
        };
        let done = 'done: {
            if !site::UNMOUNT_CP.on() {
                break 'done Ok(());
            }
            if !is_clean(self)
                && let e @ Err(_) = self.write_checkpoint(Reason::Umount).await
            {
                break 'done e;
            }
            self.wb.write_files(false).await;
            self.wb.write_files(true).await;
            self.wb.wait_files().await;
            if let e @ Err(_) = self.write_checkpoint(Reason::Umount).await {
                break 'done e;
            }
            if let e @ Err(_) = self.evict_all().await {
                break 'done e;
            }
            self.stop_checkpoint_thread().await;
            if !is_clean(self)
                && let e @ Err(_) = self.write_checkpoint(Reason::Umount).await
            {
                break 'done e;
            }
            self.finish_discards().await;
            let trimmed = self.opts.discard
                && self.can_discard()
                && self.space.borrow().sit.discard_blocks == 0;
            if trimmed { self.write_checkpoint(Reason::Trimmed).await } else { Ok(()) }
        };
        self.submit_all_merged();
        self.submit_all_ipu();
        self.wait_cp().await;
        self.mounted.set(false);
        self.stop_checkpoint_thread().await;
        self.flusher.stop();
        self.wb.stop();
        done
    }

    /// A sleep in loops that wait for others (`DEFAULT_IO_TIMEOUT`, 20 ms).
    pub(crate) const IO_TIMEOUT: Span = Span::millis(20);
}
