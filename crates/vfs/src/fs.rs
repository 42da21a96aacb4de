//! What a mounted file system offers.

use std::cell::Cell;

use wp_base::event::ZoneOp;
use wp_base::{DeviceNumber, FsError, FsResult, Ino, Zone};
use wp_block::{AtomicLimits, PlugGuard};
use wp_cache::{ErrMark, Fut, Readahead};
use wp_medium::Slice;
use wp_rt::MaybeReady;

use crate::atomic::AtomicWrite;
use crate::checkpoints::Checkpointing;
use crate::file_type::FileType;
use crate::flags::FileFlags;
use crate::kiocb::Kiocb;
use crate::seek::{Seek, seek_in_data};

/// A point in calendar time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct TimeSpec {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Kind.
    pub kind: FileType,
    /// Permission bits (low 12).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Where a symbolic link points; empty otherwise.
    pub target: Vec<u8>,
    /// Number of a device; 0 otherwise.
    pub device: DeviceNumber,
}

impl NodeSpec {
    /// A node of root's with these permission bits.
    pub fn new(kind: FileType, mode: u32) -> NodeSpec {
        let device = DeviceNumber::default();
        NodeSpec { kind, mode, uid: 0, gid: 0, target: Vec::new(), device }
    }
}

/// What `stat` tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Kind.
    pub kind: FileType,
    /// Permission bits (low 12).
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space in units of 512 bytes.
    pub blocks_512: u64,
    /// Number of a device; 0 otherwise.
    pub device: DeviceNumber,
    /// Last access.
    pub atime: TimeSpec,
    /// Last change of contents.
    pub mtime: TimeSpec,
    /// Last change of the inode.
    pub ctime: TimeSpec,
}

/// What `setattr` changes; `None` leaves a field alone.
#[derive(Clone, Debug, Default)]
pub struct AttrChange {
    /// New length in bytes.
    pub size: Option<u64>,
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New access time.
    pub atime: Option<TimeSpec>,
    /// New modification time.
    pub mtime: Option<TimeSpec>,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name; never `.` or `..`.
    pub name: Vec<u8>,
    /// Where it leads.
    pub ino: Ino,
    /// Kind, as the directory says.
    pub kind: FileType,
}

/// What `statfs` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Blocks for data in all.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free ones for others than root.
    pub blocks_available: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free ones.
    pub inodes_free: u64,
}

/// Calls of one task that met a metadata buffer of a transaction that is not over.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JournalConflict {
    /// The task.
    pub task: String,
    /// Type of block: S super block, G group descriptors, DB and IB bitmaps of blocks and inodes,
    /// IT inode table, D all other.
    pub block: &'static str,
    /// What was met: a name of the journal's.
    pub case: &'static str,
    /// Does it count as a conflict? Not where the transaction gets a version of its own.
    pub counts: bool,
    /// Calls.
    pub calls: u64,
    /// Virtual time that they waited, nanoseconds.
    pub lost_ns: u64,
}

/// What an application asks to be made durable or ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncKind {
    /// `fdatasync`: data, and the metadata needed to read it.
    DataOnly,
    /// `fsync`: data and all metadata.
    Full,
}

/// What an open file has been told of failed writes: of its own data, and of the file system's
/// (`f_wb_err`, `f_sb_err`).
#[derive(Debug, Default)]
pub struct ErrSeqCursor {
    /// Of the file's data.
    pub data: Cell<ErrMark>,
    /// Of anything on the file system.
    pub fs: Cell<ErrMark>,
}

/// What `fallocate` does to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// Gives it space (mode 0); with `keep_size` the file's length stays (`FALLOC_FL_KEEP_SIZE`).
    Space {
        /// The length stays.
        keep_size: bool,
    },
    /// Takes its space away; it reads as zeroes (`FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE`).
    Punch,
    /// Makes it read as zeroes, with space (`FALLOC_FL_ZERO_RANGE`).
    Zero {
        /// The length stays.
        keep_size: bool,
    },
    /// Takes the range out of the file (`FALLOC_FL_COLLAPSE_RANGE`).
    Collapse,
    /// Puts a hole between what is before and after (`FALLOC_FL_INSERT_RANGE`).
    Insert,
}

/// Who asks for blocks to be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// `copy_file_range`: fewer bytes will do (`REMAP_FILE_CAN_SHORTEN`).
    Copy,
    /// `ioctl(FICLONERANGE)`.
    Clone,
    /// `ioctl(FIDEDUPERANGE)`: only where the bytes are equal; fewer will do.
    Dedupe,
}

/// What `renameat2` is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameHow {
    /// Whatever has the new name loses it (`rename`).
    #[default]
    Replace,
    /// Nothing may have the new name (`RENAME_NOREPLACE`).
    NoReplace,
    /// Both names change places (`RENAME_EXCHANGE`).
    Exchange,
    /// As `Replace`; a character device 0:0 takes the old name (`RENAME_WHITEOUT`).
    Whiteout,
}

impl RenameHow {
    /// What takes the old name.
    pub fn left_behind(self) -> Option<NodeSpec> {
        // `WHITEOUT_MODE`
        (self == RenameHow::Whiteout).then(|| NodeSpec::new(FileType::Char, 0))
    }
}

/// What must be true of an attribute that is set (`setxattr`'s flags).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrSet {
    /// It is made or replaced.
    Any,
    /// It must not be there (`XATTR_CREATE`).
    Create,
    /// It must be there (`XATTR_REPLACE`); so also for removal.
    Replace,
}

/// The answer of an operation that mostly need not wait.
pub type Call<'a, T> = MaybeReady<'a, FsResult<T>>;

/// A mounted file system. One boxed future an operation, if it may have to wait; plain code below.
///
/// Inode numbers given out stay valid until the file is unlinked and every [`FileSystem::open`] of
/// it has been followed by a [`FileSystem::release`].
pub trait FileSystem {
    /// Its name, as `list fs` prints it.
    fn name(&self) -> &'static str;
    /// The root directory.
    fn root(&self) -> Ino;
    /// Finds `name` in `dir`. Errors: `NotFound`, `NotDir`, `NameTooLong`.
    fn lookup<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Call<'a, Ino>;
    /// Makes a node. Errors: `Exists`, `NoSpace`, `NameTooLong`, `TooManyLinks`.
    fn create<'a>(&'a self, dir: Ino, name: &'a [u8], spec: &'a NodeSpec) -> Fut<'a, Ino>;
    /// Removes a name that is not a directory's.
    fn unlink<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()>;
    /// Removes an empty directory. Errors: `NotEmpty`, `NotDir`.
    fn rmdir<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()>;
    /// Makes a file without a name in the file system of `dir`, and opens it (`O_TMPFILE`). Until
    /// it gets a name it is gone with its last descriptor. `linkable`: it may get one (no
    /// `O_EXCL`). Errors: `NotInKernel` where Linux has no such files.
    fn open_unnamed<'a>(
        &'a self,
        dir: Ino,
        spec: &'a NodeSpec,
        linkable: bool,
        write: bool,
    ) -> Fut<'a, Ino> {
        let _ = (dir, spec, linkable, write);
        Box::pin(async { Err(FsError::NotInKernel) })
    }
    /// Moves a name. Errors: `Exists` with `NoReplace`, `NotFound` with `Exchange`, `Invalid` where
    /// Linux has no such rename.
    fn rename<'a>(
        &'a self,
        from: (Ino, &'a [u8]),
        to: (Ino, &'a [u8]),
        how: RenameHow,
    ) -> Fut<'a, ()>;
    /// Adds a name to an inode. Errors: `NotFound` for one without names that may not get one.
    fn link<'a>(&'a self, ino: Ino, dir: Ino, name: &'a [u8]) -> Fut<'a, ()>;
    /// Where a symbolic link points.
    fn read_link<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<u8>>;
    /// What `stat` tells.
    fn attr<'a>(&'a self, ino: Ino) -> Call<'a, Attr>;
    /// The kind that [`FileSystem::attr`] would tell, if it can be told without waiting.
    fn kind_in_memory(&self, _ino: Ino) -> Option<FileType> {
        None
    }
    /// Changes attributes; a new size truncates or extends.
    fn set_attr<'a>(&'a self, ino: Ino, change: &'a AttrChange) -> Fut<'a, ()>;
    /// The flags of an inode in memory; none of another.
    fn flags_in_memory(&self, _ino: Ino) -> FileFlags {
        FileFlags::NONE
    }
    /// Replaces the flags of [`FileFlags::SETTABLE`] of a regular file or directory
    /// (`fileattr_set`). Errors: `NotInKernel` for flags that Linux refuses there, `Unsupported`
    /// for those that only this build does.
    fn set_flags<'a>(&'a self, ino: Ino, flags: FileFlags) -> Fut<'a, ()> {
        let _ = (ino, flags);
        Box::pin(async { Err(FsError::NotInKernel) })
    }
    /// What it offers of untorn writes to a file that is open, or that a path leads to
    /// (`FMODE_CAN_ATOMIC_WRITE`); `None`: nothing.
    fn atomic_limits(&self, _ino: Ino) -> Option<AtomicLimits> {
        None
    }
    /// Does it refuse writes to what became immutable after it was opened?
    fn checks_immutable_writes(&self) -> bool {
        false
    }
    /// Where data or a hole is, at or behind `offset`, in a regular file. Errors: `NoSuchPlace`.
    fn seek<'a>(&'a self, ino: Ino, offset: u64, what: Seek) -> Fut<'a, u64> {
        Box::pin(async move { seek_in_data(self.attr(ino).await?.size, offset, what) })
    }
    /// All entries but `.` and `..`, in the directory's own order.
    fn read_dir<'a>(&'a self, dir: Ino) -> Fut<'a, Vec<DirEntry>>;
    /// Are the devices that its files stand for there, to be opened, read and written?
    fn has_devices(&self) -> bool {
        false
    }
    /// One more open descriptor; `write` if it may write.
    fn open<'a>(&'a self, ino: Ino, write: bool) -> Call<'a, ()>;
    /// One fewer; the last of an unlinked file frees it.
    fn release<'a>(&'a self, ino: Ino, write: bool) -> Call<'a, ()>;
    /// Reads up to `len` bytes from `offset`; fewer at the end of the file. `ahead`: what the open
    /// file has read before, for readahead.
    fn read<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        len: u64,
        ahead: &'a Readahead,
    ) -> Fut<'a, Vec<Slice>>;
    /// Writes `data` at `offset` (at the end if `None`); returns the bytes written.
    fn write<'a>(&'a self, ino: Ino, offset: Option<u64>, data: &'a [Slice]) -> Call<'a, u64>;
    /// Stores `data` at `offset` through a shared mapping of the file (`mmap`, a store, `munmap`):
    /// for each page `page_mkwrite`, then the bytes. The length does not change; of the last page
    /// what is behind the end is lost. Errors: `Fault` for a page that is wholly behind the end
    /// (the program gets SIGBUS), `NoSpace`. `ahead`: as for a read.
    fn write_mapped<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        data: &'a [Slice],
        ahead: &'a Readahead,
    ) -> Fut<'a, ()> {
        let _ = (ino, offset, data, ahead);
        Box::pin(async { Err(FsError::Unsupported("stores through a mapping".into())) })
    }
    /// Waits for writeback of bytes `from..to`, writes what is dirty of them, and waits for that
    /// (`sync_file_range` with all three flags). Nothing is promised: neither metadata nor the
    /// device's cache is written. Errors: `Io`, as [`FileSystem::sync_file`].
    fn write_range<'a>(
        &'a self,
        ino: Ino,
        (from, to): (u64, u64),
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        let _ = (ino, from, to, told);
        Box::pin(async { Err(FsError::Unsupported("sync_file_range".into())) })
    }
    /// Is there `copy_file_range` in the kernel of that version?
    fn has_copy_range(&self) -> bool {
        true
    }
    /// Can ranges of its files share blocks (`remap_file_range`)?
    fn can_share(&self) -> bool {
        false
    }
    /// Has a range of a regular file share the blocks of another (`remap_file_range`); answers how
    /// many bytes. `len` 0: up to the end of the source, but for a dedupe nothing. Errors:
    /// `NotInKernel` where [`FileSystem::can_share`] is false; `Invalid` for ranges that cannot be
    /// shared; `Differs` for a dedupe of other contents; `NoSpace`, `Io`, `ReadOnly`, `TooBig`.
    fn share_range<'a>(
        &'a self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        how: Share,
    ) -> Fut<'a, u64> {
        let _ = (from, to, len, how);
        Box::pin(async { Err(FsError::NotInKernel) })
    }
    /// Makes an empty subvolume `name` in a directory (`BTRFS_IOC_SUBVOL_CREATE`). Errors:
    /// `NoSuchIoctl` where the file system has none; those of a directory that is made.
    fn create_subvolume<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        let _ = (dir, name);
        Box::pin(async { Err(FsError::NoSuchIoctl) })
    }
    /// Makes a subvolume of what another has (`BTRFS_IOC_SNAP_CREATE_V2`). It is durable when the
    /// call returns. Errors: the same; `Invalid` if the source is no subvolume.
    fn snapshot<'a>(&'a self, source: Ino, to: (Ino, &'a [u8]), is_read_only: bool) -> Fut<'a, ()> {
        let _ = (source, to, is_read_only);
        Box::pin(async { Err(FsError::NoSuchIoctl) })
    }
    /// Deletes a subvolume with all that is in it (`BTRFS_IOC_SNAP_DESTROY`). Errors:
    /// `NoSuchIoctl`; `Invalid` for what is no subvolume; `NotEmpty` if it has subvolumes;
    /// `NotFound`, `NotDir`.
    fn delete_subvolume<'a>(&'a self, dir: Ino, name: &'a [u8]) -> Fut<'a, ()> {
        let _ = (dir, name);
        Box::pin(async { Err(FsError::NoSuchIoctl) })
    }
    /// What a file that is opened now begins with.
    fn told(&self, _ino: Ino) -> ErrSeqCursor {
        ErrSeqCursor::default()
    }
    /// Makes one file durable. Errors: `Io` if data could not be written since the open file was
    /// last told so, or anybody, as the era has it.
    fn sync_file<'a>(&'a self, ino: Ino, kind: SyncKind, told: &'a ErrSeqCursor) -> Fut<'a, ()>;
    /// Has what was written to the file reach the device before what is written after this returns,
    /// without making it durable (BarrierFS: `fbarrier`; `fdatabarrier` with `data_only`). Errors:
    /// `Unsupported` where the file system keeps no order.
    fn order_file<'a>(&'a self, ino: Ino, data_only: bool, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        let _ = (ino, data_only, told);
        Box::pin(async { Err(FsError::Unsupported("fbarrier, fdatabarrier".into())) })
    }
    /// Journal conflicts so far. None of a file system without such a journal.
    fn journal_conflicts(&self) -> Vec<JournalConflict> {
        Vec::new()
    }
    /// What it has counted so far, by names that say the unit, in a fixed order.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// What its user should know of this mount and cannot see: requests that were answered in
    /// another way than asked for. The program that runs it prints each line once.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Does a synchronous write to the end of a file (`O_APPEND`) sync the range that it asked for
    /// and not the one that it wrote? So until d311d79de305 (Linux 3.14).
    fn append_syncs_elsewhere(&self) -> bool {
        false
    }
    /// Makes durable what a write to bytes `from..to` changed (`generic_write_sync`).
    fn sync_range<'a>(
        &'a self,
        ino: Ino,
        kind: SyncKind,
        (from, to): (u64, u64),
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        let _ = (from, to);
        self.sync_file(ino, kind, told)
    }
    /// Reads past the cache (`O_DIRECT`). Errors: `Invalid` for a range that is not aligned as the
    /// device wants it, `Unsupported` where the file system has no direct I/O.
    fn read_direct<'a>(
        &'a self,
        ino: Ino,
        offset: u64,
        len: u64,
        io: &'a Kiocb,
    ) -> Fut<'a, Vec<Slice>> {
        let _ = (ino, offset, len, io);
        Box::pin(async { Err(FsError::Unsupported("direct I/O".into())) })
    }
    /// Holds back what the current task sends to its device, until the guard is dropped or the task
    /// waits (`blk_start_plug`). `None`: it has no block device of its own.
    fn plug(&self) -> Option<PlugGuard> {
        None
    }
    /// Writes past the cache (`O_DIRECT`), at the end if `offset` is `None`; with `sync` the data
    /// is durable as if that call had followed. Returns the bytes written. Errors: as
    /// [`FileSystem::read_direct`] and [`FileSystem::write`].
    fn write_direct<'a>(
        &'a self,
        ino: Ino,
        offset: Option<u64>,
        data: &'a [Slice],
        sync: Option<SyncKind>,
        told: &'a ErrSeqCursor,
        io: &'a Kiocb,
    ) -> Fut<'a, u64> {
        let _ = (ino, offset, data, sync, told, io);
        Box::pin(async { Err(FsError::Unsupported("direct I/O".into())) })
    }
    /// `fallocate`. Errors: `Unsupported` for what the file system cannot do, `NoSpace`, `TooBig`.
    fn reserve<'a>(&'a self, ino: Ino, how: Reserve, offset: u64, len: u64) -> Fut<'a, ()> {
        let _ = (ino, how, offset, len);
        Box::pin(async { Err(FsError::Unsupported("fallocate".into())) })
    }
    /// Makes the metadata of `reserve` durable, for a descriptor with `O_SYNC` or `O_DSYNC`: a
    /// commit, without the file's data or a flush of its own.
    fn sync_reserve<'a>(&'a self, ino: Ino, how: Reserve, offset: u64, len: u64) -> Fut<'a, ()>;
    /// Discards free space from byte `start` on, `len` bytes, in pieces of at least `least` bytes;
    /// returns how many bytes (`FITRIM`). Errors: `Unsupported` where the file system or its device
    /// cannot, `Invalid` for a range that is none.
    fn trim<'a>(&'a self, start: u64, len: u64, least: u64) -> Fut<'a, u64> {
        let _ = (start, len, least);
        Box::pin(async { Err(FsError::Unsupported("fstrim".into())) })
    }
    /// Makes, changes or removes a checkpoint; of one that is made the number. Errors:
    /// `NoSuchIoctl` of a file system without checkpoints; as [`Checkpointing`] says.
    fn checkpoint<'a>(&'a self, _what: Checkpointing) -> Fut<'a, u64> {
        Box::pin(async { Err(FsError::NoSuchIoctl) })
    }
    /// Has it the ioctls of [`AtomicWrite`]?
    fn has_atomic_writes(&self) -> bool {
        false
    }
    /// Begins, commits or aborts an atomic write of a regular file that is open for writing. A
    /// commit makes nothing durable. Errors: `NoSuchIoctl`; `Unsupported` where a kernel has it in
    /// another way; `Io`, `NoSpace`, `ReadOnly`.
    fn atomic_write<'a>(
        &'a self,
        ino: Ino,
        what: AtomicWrite,
        told: &'a ErrSeqCursor,
    ) -> Fut<'a, ()> {
        let _ = (ino, what, told);
        Box::pin(async { Err(FsError::NoSuchIoctl) })
    }
    /// Discards a range of bytes of a block device (`ioctl(BLKDISCARD)`). Errors: `Invalid` of
    /// what is none, or for a range that is not on it; `Unsupported` of a device that does not;
    /// `Io`.
    fn discard<'a>(&'a self, ino: Ino, offset: u64, len: u64) -> Fut<'a, ()> {
        let _ = (ino, offset, len);
        Box::pin(async { Err(no_device()) })
    }
    /// The zones of a block device, addressed from its start; none of one without zones
    /// (`ioctl(BLKREPORTZONE)`). Errors: as [`FileSystem::discard`].
    fn zones<'a>(&'a self, ino: Ino) -> Fut<'a, Vec<Zone>> {
        let _ = ino;
        Box::pin(async { Err(no_device()) })
    }
    /// Zones of a block device that may be open at a time; 0: no limit.
    fn max_open_zones(&self, _ino: Ino) -> u32 {
        0
    }
    /// Does something with the zone of a block device that begins at byte `at`
    /// (`ioctl(BLKRESETZONE)`, `BLKFINISHZONE`, ...). Errors: as [`FileSystem::discard`].
    fn manage_zone<'a>(&'a self, ino: Ino, op: ZoneOp, at: u64) -> Fut<'a, ()> {
        let _ = (ino, op, at);
        Box::pin(async { Err(no_device()) })
    }
    /// Makes everything durable.
    fn sync_all<'a>(&'a self) -> Fut<'a, ()>;
    /// Makes everything of this file system durable, as `syncfs` does, which sends less and waits
    /// in another order than `sync`.
    /// The open file is told of failed writes of anything there, where the era does that.
    fn sync_fs<'a>(&'a self, told: &'a ErrSeqCursor) -> Fut<'a, ()> {
        let _ = told;
        self.sync_all()
    }
    /// Forgets what is cached and clean (`/proc/sys/vm/drop_caches`).
    fn drop_caches(&self) {}
    /// Starts writing what is dirty of a file, and forgets what is cached of it and clean
    /// (`POSIX_FADV_DONTNEED`). False: it cannot.
    fn drop_file_cache<'a>(&'a self, _ino: Ino) -> Call<'a, bool> {
        Call::now(Ok(false))
    }
    /// The value of an extended attribute, by its full name. Errors: `NoData` if it is not there,
    /// `Range` for a name that cannot be, `NotInKernel`.
    fn get_xattr<'a>(&'a self, _ino: Ino, _name: &'a [u8]) -> Fut<'a, Vec<u8>> {
        Box::pin(async { Err(FsError::NotInKernel) })
    }
    /// The full names of all extended attributes.
    fn list_xattrs<'a>(&'a self, _ino: Ino) -> Fut<'a, Vec<Vec<u8>>> {
        Box::pin(async { Err(FsError::NotInKernel) })
    }
    /// Sets an extended attribute, or removes it (`None`). Errors: `Exists`, `NoData` as `how`
    /// says, `NoSpace`, `NotPermitted`, `Range`, `NotInKernel`.
    fn set_xattr<'a>(
        &'a self,
        _ino: Ino,
        _name: &'a [u8],
        _value: Option<&'a [u8]>,
        _how: XattrSet,
    ) -> Fut<'a, ()> {
        Box::pin(async { Err(FsError::NotInKernel) })
    }
    /// Space and inodes.
    fn stat_fs<'a>(&'a self) -> Fut<'a, StatFs>;
    /// Writes everything and marks the image clean. The file system is read-only afterwards.
    fn unmount<'a>(&'a self) -> Fut<'a, ()>;
    /// After the unmount: had it stopped for an error, and has it seen word of that arrive where
    /// the next mount looks?
    fn error_recorded_on_disk(&self) -> bool {
        false
    }
}

fn no_device() -> FsError {
    FsError::Invalid("ioctl: the file is no block device")
}
