//! Mounting and unmounting; what is shared by all of the file system.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use wp_base::live::{Kind, Tally};
use wp_base::{BlockSize, FsError, FsResult, Span, Time};
use wp_block::Partition;
use wp_cache::{Bdev, BufFlag, Buffer, Index, WbPolicy, Writeback};
use wp_jbd2::{CommitMode, Credits, DualMode, Handle, Journal, JournalOptions, LogMap};
use wp_rt::{CpuOp, Lock, MaybeReady, Rt, soon};
use wp_vfs::{JournalConflict, TimeSpec};

use super::balloc::Groups;
use super::conflicts::{Conflicts, FixedBlocks};
use super::convert::{Conversions, dioread_nolock};
use super::data_journal::DataMode;
use super::dir::Missed;
use super::dir_names::Names;
use super::discard::Discards;
use super::era::Era;
use super::fast_commit::{FastCommits, FastOptions};
use super::features;
use super::inode::Inode;
use super::lazy_init::LazyInit;
use super::mount_check::{Literature, ZEROOUT_KIB};
use super::mount_replay::{replay, view_of};
use super::orphan_file::OrphanFile;
use super::super_block::read_super;
use super::table_trim::{TableTrim, TableTrims};
use crate::disk::hash::{DirHash, NameHash};
use crate::disk::{Checksums, Geometry, GroupDesc, SuperBlock, incompat, ino};

/// Inodes in memory, and cached blocks of each, above which idle ones are dropped.
const LIMITS: (usize, usize) = (1 << 16, 1 << 18);

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Kernel whose rules apply.
    pub era: Era,
    /// `barrier` / `nobarrier`.
    pub barrier: bool,
    /// `delalloc` / `nodelalloc`.
    pub delalloc: bool,
    /// `dioread_nolock` / `dioread_lock`: buffered writes are allocated unwritten, and converted
    /// when their data has arrived. `None`: as the era has it by default.
    pub dioread_nolock: Option<bool>,
    /// `journal_async_commit`: the commit record is sent without waiting for the rest, one flush
    /// comes after all of it. Brings checksums of the journal.
    pub async_commit: bool,
    /// BarrierFS' dual-mode journaling, and CJFS' additions to it.
    pub dual: Option<DualMode>,
    /// Techniques of the literature.
    pub literature: Literature,
    /// How fast commits are written, where the image has the feature.
    pub fast: FastOptions,
    /// With dual-mode journaling: fsync only orders, as if the program called `fbarrier`.
    pub ordering_only: bool,
    /// Reads update access times as Linux's default has it (`relatime`), or never do (`noatime`).
    pub relatime: bool,
    /// Count every access to metadata, not only those with a conflict.
    pub count_access: bool,
    /// `data_err=abort`: a failed write of ordered data stops the journal.
    pub data_err_abort: bool,
    /// `auto_da_alloc`: data of a file that replaces another, or was cut to nothing, gets its
    /// places at the rename or close.
    pub auto_da_alloc: bool,
    /// Name of the task that converts (a kworker of `ext4-rsv-conversion`).
    pub conversion_task: String,
    /// `discard`: blocks that are freed are given back to the device.
    pub discard: bool,
    /// What a transaction freed that could not commit is not discarded (no kernel has this; bug
    /// N7).
    pub discard_committed: bool,
    /// What becomes of blocks of inode tables without an inode in use.
    pub table_trim: TableTrim,
    /// `data=`: how data and metadata of a file keep together.
    pub data: DataMode,
    /// A direct `O_DSYNC` write that moves the length on disk commits it (no kernel has this; bug
    /// N32).
    pub size_before_sync: bool,
    /// An untorn write of several blocks commits first what is not durable of the file's map. No
    /// kernel does this: fixes N50.
    pub untorn_commit: bool,
    /// Where it is mounted; the super block remembers it.
    pub mount_point: String,
    /// `commit=`: the journal's interval.
    pub commit_interval: Span,
    /// Name of the disk as the kernel has it, for task names: `sdb1`.
    pub disk: String,
    /// `init_itable=`: how many times as long as zeroing the first inode table took it is waited
    /// between tables; `None` is `noinit_itable`.
    pub init_itable: Option<u32>,
    /// The device is a rotating disk: groups near the goal are searched first (from 5.13).
    pub rotational: bool,
    /// `CONFIG_SMP`: the counts that inodes are placed by are kept for each CPU, and lag behind.
    pub smp: bool,
    /// CPUs of the machine: large files stream to this number of groups (from 6.17).
    pub cpus: u32,
    /// `extent_max_zeroout_kb` of sysfs: unwritten blocks beside a write that are zeroed past the
    /// journal, in KiB, and not split off. Before 3.7 it is 7 blocks.
    pub zeroout_kib: u32,
    /// Seconds since 1970 at power-on.
    pub epoch_secs: i64,
    /// The flusher's settings.
    pub writeback: WbPolicy,
}

impl MountOptions {
    /// The kernel's defaults in `era`, on disk `disk` with device number `major:minor`.
    pub fn new(era: Era, disk: &str, major: u32, minor: u32) -> MountOptions {
        MountOptions {
            era,
            barrier: true,
            delalloc: true,
            dioread_nolock: None,
            async_commit: false,
            dual: None,
            literature: Literature::default(),
            fast: FastOptions::default(),
            ordering_only: false,
            relatime: false,
            count_access: false,
            data_err_abort: false,
            auto_da_alloc: true,
            discard: false,
            discard_committed: false,
            size_before_sync: false,
            untorn_commit: false,
            table_trim: TableTrim::Off,
            conversion_task: "kworker/u4:2".to_owned(),
            data: DataMode::Ordered,
            mount_point: "/mnt".to_owned(),
            commit_interval: Span::secs(5),
            disk: disk.to_owned(),
            init_itable: Some(10),
            zeroout_kib: ZEROOUT_KIB,
            rotational: false,
            smp: true,
            cpus: 2,
            epoch_secs: 1_700_000_000,
            writeback: WbPolicy::of(wp_cache::Era::of(era.version()), (major, minor)),
        }
    }
}

/// A mounted ext4.
pub struct Ext4 {
    pub(super) rt: Rt,
    pub(super) bdev: Rc<Bdev>,
    pub(super) wb: Rc<Writeback>,
    pub(super) opts: MountOptions,
    pub(super) sb: RefCell<SuperBlock>,
    pub(super) geo: Geometry,
    pub(super) csum: Checksums,
    pub(super) sb_buf: Rc<Buffer>,
    gdt: Vec<Rc<Buffer>>,
    /// The descriptors that stand in `gdt`, by group.
    pub(super) descs: RefCell<Vec<GroupDesc>>,
    /// Where each group's inode table starts, which never changes.
    pub(super) inode_tables: Vec<u64>,
    journal: OnceCell<Rc<Journal>>,
    conflicts: RefCell<Option<Rc<Conflicts>>>,
    pub(super) groups: Groups,
    pub(super) inodes: RefCell<Index<Rc<Inode>>>,
    pub(super) names: RefCell<Names>,
    /// The name that was hashed last: who looks for a name does so several times.
    pub(super) last_hash: RefCell<Option<(DirHash, Vec<u8>, NameHash)>>,
    /// The name that was last looked for in vain.
    pub(super) missed: RefCell<Missed>,
    /// Inode numbers in the order in which they came to memory; some are gone since.
    pub(super) inode_order: RefCell<VecDeque<u32>>,
    /// Inodes kept in memory before idle ones are dropped, and blocks of each.
    pub(super) limits: Cell<(usize, usize)>,
    /// Head of the orphan chain in memory order, newest first.
    pub(super) orphans: RefCell<Vec<u32>>,
    pub(super) lazy: LazyInit,
    pub(super) orphan_file: RefCell<Option<OrphanFile>>,
    pub(super) orphans_loading: Cell<bool>,
    pub(super) orphan_lock: Lock<()>,
    /// Renames and other operations on two directories go one after another (`s_vfs_rename_mutex`).
    pub(super) rename_lock: Lock<()>,
    pub(super) reserved_blocks: Cell<u64>,
    /// Buffered writes of files are allocated unwritten.
    pub(super) dioread_nolock: bool,
    /// Writeback that waits for its conversion.
    pub(super) conversions: Conversions,
    pub(super) discards: Discards,
    pub(super) table_trims: TableTrims,
    pub(super) fast: FastCommits,
    /// `s_kbytes_written` when it was mounted, and what the device had been sent by then.
    pub(super) kbytes_at_mount: Cell<u64>,
    pub(super) sectors_at_mount: Cell<u64>,
    /// The super block knows where this is mounted (`EXT4_MF_MNTDIR_SAMPLED`).
    pub(super) mount_point_sampled: Cell<bool>,
    /// Calendar time as the tick has it, and when the next tick comes.
    tick: Cell<(Time, TimeSpec)>,
    pub(super) mounted: Cell<bool>,
    /// Its journal was found aborted: nothing changes any more (`EXT4_MF_FS_ABORTED`).
    stopped: Cell<bool>,
    _tally: Tally,
}

impl Ext4 {
    /// Mounts what lies on `part`: replays the journal if it must, reads descriptors, starts
    /// journal and flusher, finishes what orphans left undone, marks the image as in use.
    ///
    /// Errors: `Corrupt` (with the place), `Unsupported` for features that this cannot write, `Io`.
    pub async fn mount(rt: &Rt, part: Partition, opts: MountOptions) -> FsResult<Rc<Ext4>> {
        let sb = read_super(&part).await?;
        features::check(&sb)?;
        let geo = Geometry::from_super(&sb)?;
        let bytes = part.sectors() * wp_base::SECTOR_BYTES;
        let need = geo.blocks_count * u64::from(geo.block_size.bytes());
        if need > bytes {
            return Err(FsError::corrupt(
                "ext4 super block",
                "s_blocks_count",
                1024,
                geo.blocks_count,
                format!(
                    "at most the {} blocks of the device",
                    bytes / u64::from(geo.block_size.bytes())
                ),
            ));
        }
        opts.check()?;
        let dioread_nolock = dioread_nolock(&opts, geo.block_size)?;
        if sb.has_incompat(incompat::RECOVER) {
            replay(rt, &part, &opts).await?;
        }
        let sb = read_super(&part).await?;
        let bs = geo.block_size;
        let wb = Writeback::new(rt, part.clone(), opts.writeback.clone());
        let bdev = Bdev::new(rt, part, bs, &wb);
        let sb_buf = bdev.read(SuperBlock::AT / u64::from(bs.bytes())).await?;
        let mut gdt = Vec::new();
        let (first, _) = geo.desc_place(0);
        for n in 0..u64::from(geo.gdt_blocks) {
            gdt.push(bdev.read(first + n).await?);
        }
        let (per, desc_bytes) =
            (bs.bytes() / u32::from(geo.desc_bytes), usize::from(geo.desc_bytes));
        let load = |group: u32| {
            let at = (group % per) as usize * desc_bytes;
            let buf: &Rc<Buffer> = &gdt[(group / per) as usize];
            buf.with(|b| GroupDesc::load(&b[at..at + desc_bytes]))
        };
        let descs: Vec<GroupDesc> = (0..geo.groups).map(load).collect();
        let inode_tables = descs.iter().map(GroupDesc::inode_table).collect();
        let goals = if opts.era.stream_goals() { opts.cpus.min(geo.groups.div_ceil(4)) } else { 1 };
        let fs = Rc::new(Ext4 {
            rt: rt.clone(),
            csum: Checksums::of(&sb),
            groups: Groups::new(rt, &geo, goals, opts.smp),
            bdev,
            wb,
            opts,
            sb: RefCell::new(sb),
            geo,
            sb_buf,
            gdt,
            descs: RefCell::new(descs),
            inode_tables,
            journal: OnceCell::new(),
            conflicts: RefCell::new(None),
            inodes: RefCell::default(),
            names: RefCell::default(),
            last_hash: RefCell::default(),
            missed: RefCell::default(),
            inode_order: RefCell::default(),
            limits: Cell::new(LIMITS),
            orphans: RefCell::default(),
            lazy: LazyInit::new(rt),
            orphan_file: RefCell::default(),
            orphans_loading: Cell::new(false),
            orphan_lock: Lock::new(rt, "orphan list", ()),
            rename_lock: Lock::new(rt, "rename", ()),
            reserved_blocks: Cell::new(0),
            dioread_nolock,
            conversions: Conversions::new(rt),
            discards: Discards::new(rt),
            table_trims: TableTrims::new(rt),
            fast: FastCommits::new(rt),
            kbytes_at_mount: Cell::new(0),
            sectors_at_mount: Cell::new(0),
            mount_point_sampled: Cell::new(false),
            tick: Cell::new((Time::ZERO, TimeSpec::default())),
            mounted: Cell::new(true),
            stopped: Cell::new(false),
            _tally: Tally::new(Kind::World),
        });
        fs.verify_descriptors()?;
        fs.count_free();
        let journal = fs.open_journal().await?;
        fs.take_journal_error(&journal);
        fs.set_journal_features(&journal)?;
        assert!(fs.journal.set(journal).is_ok(), "it is mounted once");
        if fs.dioread_nolock || fs.opts.literature.iomap.on {
            fs.start_conversions();
        }
        fs.watch_commits();
        fs.start_discards();
        fs.start_table_trims()?;
        fs.check_root().await?;
        let orphans = fs.read_orphans().await?;
        fs.mark_in_use().await?;
        if let Some(multiplier) = fs.opts.init_itable {
            fs.start_lazy_init(multiplier);
        }
        fs.clean_orphans(orphans).await?;
        fs.start_prefetch();
        Ok(fs)
    }

    /// Nothing can be done without a root directory.
    async fn check_root(self: &Rc<Self>) -> FsResult<()> {
        let root = soon!(self.inode(ino::ROOT));
        let mode = match &root {
            Ok(i) => i.disk.borrow().mode.get(),
            Err(FsError::NotFound) => 0,
            Err(e) => return Err(e.clone()),
        };
        match root {
            Ok(i) if i.is_dir() && i.size.get() > 0 => Ok(()),
            _ => Err(FsError::corrupt(
                "ext4 root inode",
                "i_mode",
                self.group_desc(0).inode_table() * u64::from(self.bs().bytes())
                    + u64::from(self.geo.inode_bytes),
                u64::from(mode),
                "a directory with links and a length",
            )),
        }
    }

    async fn open_journal(self: &Rc<Self>) -> FsResult<Rc<Journal>> {
        let sb = *self.sb.borrow();
        if !sb.has_internal_journal() {
            return Err(FsError::Unsupported(
                "an ext4 without an internal journal; make one with has_journal".into(),
            ));
        }
        let log = self.journal_map()?;
        let mut era = wp_jbd2::Era::of(self.opts.era.version());
        if self.opts.dual.is_some() {
            // BarrierFS' kernel has BH_Shadow, though it is a 3.10.
            era = era.with("shadow_until_processed", false);
        }
        let blocks = FixedBlocks::new(&self.geo, &self.descs.borrow());
        let conflicts = Conflicts::new(&self.rt, blocks);
        *self.conflicts.borrow_mut() = Some(conflicts.clone());
        let opts = JournalOptions {
            ino_name: format!("jbd2/{}-{}", self.opts.disk, sb.journal_inum.get()),
            commit_interval: self.opts.commit_interval,
            ticks: self.opts.writeback.ticks(),
            barrier: self.opts.barrier,
            abort_on_data_error: self.opts.data_err_abort,
            era,
            mode: self.opts.dual.map_or(CommitMode::Flush, CommitMode::Barrier),
            force_copy: self.opts.literature.force_copy,
            preflush: !self.opts.literature.optr,
            fast: self.wants_fast_commits(&sb)?,
            observer: Some(conflicts),
            observe_all: self.opts.count_access,
            epoch_secs: self.opts.epoch_secs as u64,
            ..JournalOptions::default()
        };
        Journal::load(&self.rt, &self.bdev, log, opts).await
    }

    /// Where the journal inode's blocks lie.
    fn journal_map(&self) -> FsResult<LogMap> {
        crate::evidence::journal_map(&view_of(self.bdev.queue()))
    }

    /// Journal conflicts since the mount.
    pub fn journal_conflicts(&self) -> Vec<JournalConflict> {
        self.conflicts.borrow().as_ref().map_or(Vec::new(), |c| c.all())
    }

    pub(super) fn journal(&self) -> &Rc<Journal> {
        self.journal.get().expect("a mounted file system has its journal")
    }

    /// The journal, for reports.
    pub fn journal_handle(&self) -> Rc<Journal> {
        self.journal().clone()
    }

    pub(super) fn bs(&self) -> BlockSize {
        self.geo.block_size
    }

    /// The block cache, for reports.
    pub fn bdev(&self) -> &Rc<Bdev> {
        &self.bdev
    }

    /// Sets how many inodes, and how many blocks of each file and of the metadata, are kept in
    /// memory before idle ones are dropped, oldest first. For tests, and machines with little.
    pub fn set_cache_limits(&self, inodes: usize, blocks: usize) {
        self.limits.set((inodes, blocks));
        self.bdev.mapping().set_limit(blocks);
        self.inodes.borrow().values().for_each(|i| i.map.set_limit(blocks));
    }

    /// Its layout.
    pub fn geometry(&self) -> &Geometry {
        &self.geo
    }

    /// Calendar time at the resolution of the kernel's tick (`current_fs_time`).
    pub(super) fn time(&self) -> TimeSpec {
        let now = self.rt.now();
        let (until, time) = self.tick.get();
        if now < until { time } else { self.next_tick(now) }
    }

    /// The tick that `now` is in, remembered until it ends.
    fn next_tick(&self, now: Time) -> TimeSpec {
        let hz = self.opts.writeback.hz;
        let tick = 1_000_000_000 / hz;
        // Inodes of 128 bytes know whole seconds only (`s_time_gran`).
        let tick = if self.geo.inode_bytes > 128 { tick } else { 1_000_000_000 };
        let ns = now.0 / tick * tick;
        let time = TimeSpec {
            secs: self.opts.epoch_secs + (ns / 1_000_000_000) as i64,
            nanos: (ns % 1_000_000_000) as u32,
        };
        self.tick.set((Time(ns + tick), time));
        time
    }

    /// Starts a handle. Errors: `ReadOnly` after unmount or an abort.
    pub(super) fn start(&self, credits: u32) -> MaybeReady<'_, FsResult<Handle>> {
        self.start_revoking(credits, 0)
    }

    /// [`Ext4::start`] of a handle that may free `revokes` metadata blocks.
    pub(super) fn start_revoking(
        &self,
        credits: u32,
        revokes: u32,
    ) -> MaybeReady<'_, FsResult<Handle>> {
        self.start_with(Credits { blocks: credits, revokes, reserve: 0 })
    }

    /// [`Ext4::start`] with all that a handle can ask for.
    pub(super) fn start_with(&self, wanted: Credits) -> MaybeReady<'_, FsResult<Handle>> {
        if !self.mounted.get() {
            return MaybeReady::now(Err(FsError::ReadOnly));
        }
        let journal = self.journal();
        if journal.is_aborted() {
            return MaybeReady::later(async {
                self.stop_changes().await;
                Err(FsError::ReadOnly)
            });
        }
        let mut computing = self.rt.cpu(CpuOp::HandleStart, 1);
        if !computing.is_over() {
            return MaybeReady::later(async move {
                computing.await;
                journal.start_with(wanted).await
            });
        }
        journal.start_with(wanted)
    }

    /// The journal was aborted behind our back: the file system is read-only from now on, whatever
    /// `errors=` says, and its super block tells why (`ext4_journal_check_start`, `ext4_abort`).
    pub(super) async fn stop_changes(&self) {
        if !self.stopped.replace(true) {
            self.save_io_error("ext4_journal_check_start").await;
        }
    }

    /// Was it stopped by an aborted journal that somebody has noticed?
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Forgets cached blocks that are clean and that nobody uses, of files and of the device.
    pub(super) fn drop_caches(&self) {
        self.inodes.borrow().values().for_each(|inode| self.drop_pages(inode));
        self.bdev.mapping().invalidate(0, u64::MAX);
    }

    /// Drops a file's clean pages (`ext4_release_folio`).
    pub(super) fn drop_pages(&self, inode: &Inode) {
        if let Some(journal) = self.journal.get() {
            inode.map.range(0, u64::MAX).iter().for_each(|b| journal.let_go(b));
        }
        inode.map.invalidate(0, u64::MAX);
    }

    /// Ends a handle; the first error of the two is the answer. An image that turned out to
    /// contradict itself in the middle of a change stops the journal: half a change must not become
    /// durable.
    pub(super) fn stop<'a, T: 'a>(
        &'a self,
        h: Handle,
        out: FsResult<T>,
    ) -> MaybeReady<'a, FsResult<T>> {
        if let Err(e @ FsError::Corrupt(_)) = &out {
            self.journal().abort(e.clone());
            self.stopped.set(true);
            return MaybeReady::later(self.stop_wrong(h, out));
        }
        match h.stop() {
            MaybeReady::Now(Some(stopped)) => {
                MaybeReady::now(out.and_then(|value| stopped.map(|()| value)))
            }
            stopped => MaybeReady::later(async {
                let stopped = stopped.await;
                out.and_then(|value| stopped.map(|()| value))
            }),
        }
    }

    /// [`Ext4::stop`] of a change that met a wrong image: its super block says so first.
    async fn stop_wrong<T>(&self, h: Handle, out: FsResult<T>) -> FsResult<T> {
        if let Err(FsError::Corrupt(why)) = &out {
            self.save_error(why).await;
        }
        // The image's error is the first of the two.
        drop(soon!(h.stop()));
        out
    }

    /// Gives a changed buffer to the journal.
    pub(super) fn dirty(&self, h: &Handle, b: &Rc<Buffer>) -> FsResult<()> {
        if self.opts.era.marks_metadata() {
            b.set(BufFlag::Meta);
            b.set(BufFlag::Prio);
        }
        b.set(BufFlag::Uptodate);
        h.dirty_metadata(b)
    }

    // ---- group descriptors ----

    fn desc_place(&self, group: u32) -> (usize, usize) {
        let per = self.bs().bytes() as usize / usize::from(self.geo.desc_bytes);
        (group as usize / per, group as usize % per * usize::from(self.geo.desc_bytes))
    }

    /// Where a group's descriptor stands, in bytes.
    pub(super) fn desc_address(&self, group: u32) -> u64 {
        let (n, at) = self.desc_place(group);
        self.gdt[n].block() * u64::from(self.bs().bytes()) + at as u64
    }

    pub(super) fn group_desc(&self, group: u32) -> GroupDesc {
        self.descs.borrow()[group as usize]
    }

    /// Says that a descriptor is about to change ([`Ext4::change_accessed_desc`]).
    pub(super) fn desc_access<'a>(
        &'a self,
        h: &'a Handle,
        group: u32,
    ) -> MaybeReady<'a, FsResult<()>> {
        h.get_write_access(&self.gdt[self.desc_place(group).0])
    }

    /// Changes a descriptor in a handle, and seals it.
    pub(super) async fn change_desc(
        &self,
        h: &Handle,
        group: u32,
        change: impl FnOnce(&mut GroupDesc),
    ) -> FsResult<()> {
        soon!(self.desc_access(h, group))?;
        self.change_accessed_desc(h, group, change)
    }

    /// [`Ext4::change_desc`] in a handle that has said so already; waits for nothing.
    pub(super) fn change_accessed_desc(
        &self,
        h: &Handle,
        group: u32,
        change: impl FnOnce(&mut GroupDesc),
    ) -> FsResult<()> {
        let (n, at) = self.desc_place(group);
        let len = usize::from(self.geo.desc_bytes);
        let buf = &self.gdt[n];
        let desc = &mut self.descs.borrow_mut()[group as usize];
        change(desc);
        self.csum.seal_group_desc(group, desc);
        desc.shorten(len);
        buf.with_mut(|b| desc.store(&mut b[at..at + len]));
        self.dirty(h, buf)
    }

    fn verify_descriptors(&self) -> FsResult<()> {
        for group in 0..self.geo.groups {
            let place = self.desc_address(group);
            let desc = self.group_desc(group);
            if !self.csum.group_desc_ok(group, &desc) {
                return Err(FsError::corrupt(
                    "ext4 group descriptor",
                    "bg_checksum",
                    place,
                    u64::from(desc.checksum.get()),
                    format!("{:#x}", self.csum.group_desc(group, &desc)),
                ));
            }
            let table = desc.inode_table();
            let itable = u64::from(self.geo.itable_blocks);
            for (field, block, n) in [
                ("bg_block_bitmap", desc.block_bitmap(), 1),
                ("bg_inode_bitmap", desc.inode_bitmap(), 1),
                ("bg_inode_table", table, itable),
            ] {
                if !self.geo.holds(block, n) {
                    return Err(FsError::corrupt(
                        "ext4 group descriptor",
                        field,
                        place,
                        block,
                        "blocks of this file system",
                    ));
                }
            }
        }
        Ok(())
    }

    fn count_free(&self) {
        let (mut blocks, mut inodes, mut dirs) = (0u64, 0u64, 0u64);
        for group in 0..self.geo.groups {
            let d = self.group_desc(group);
            blocks += u64::from(d.free_blocks_count());
            inodes += u64::from(d.free_inodes_count());
            dirs += u64::from(d.used_dirs_count());
        }
        self.groups.rough.blocks.set(blocks);
        self.groups.rough.inodes.set(inodes);
        self.groups.rough.dirs.set(dirs);
        self.groups.free_blocks.set(blocks);
        self.groups.free_inodes.set(inodes);
    }

    pub(super) fn is_mounted(&self) -> bool {
        self.mounted.get()
    }
}
