//! The system calls that programs have.

use std::fmt;

use wp_vfs::{AtomicWrite, DeviceNumber, FileFlags, FileType, RenameHow, Seek, TimeSpec};

use super::advise::Advise;
use super::data::Data;
use super::words::Word;

/// Most descriptors that a generated program has, and the longest write, bytes (`prog.c` has as
/// much room).
pub const LIMITS: (u32, u32) = (64, 1 << 20);

/// Descriptors of a program are below this; a guest's are below that of [`LIMITS`].
pub(super) const FDS: u32 = 1 << 16;

/// Most asynchronous calls of a program that have begun and were not waited for.
pub const AIO_MOST: u32 = 256;

/// Most bytes of a `copy_file_range`, `reflink` or `dedupe` (`MAX_RW_COUNT` is more).
pub(super) const COPY_MAX: u32 = 1 << 30;

/// Words of `renameat2`.
pub(super) const RENAMES: [(&str, RenameHow); 3] = [
    ("noreplace", RenameHow::NoReplace),
    ("exchange", RenameHow::Exchange),
    ("whiteout", RenameHow::Whiteout),
];

fn rename_flag(how: RenameHow) -> &'static str {
    RENAMES.iter().find(|(_, h)| *h == how).map_or("", |(n, _)| n)
}

/// A time as seconds with nine digits behind the point, as [`Words::time`] reads it.
fn seconds(t: TimeSpec) -> String {
    format!("{}.{:09}", t.secs, t.nanos)
}

/// Longest value of an extended attribute, bytes: `XATTR_SIZE_MAX`.
pub(super) const XATTR_MAX: u32 = 65536;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `O_RDWR` and not `O_RDONLY`.
    pub write: bool,
    /// `O_CREAT`.
    pub create: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_APPEND`: every write goes to the end, wherever it asks for.
    pub append: bool,
    /// `O_DIRECT`.
    pub direct: bool,
    /// `O_DSYNC`.
    pub dsync: bool,
    /// `O_SYNC`.
    pub sync: bool,
    /// `O_EXCL`.
    pub excl: bool,
    /// `O_TMPFILE`: the path is a directory's, and the file has no name until `linkat`.
    pub tmpfile: bool,
    /// Permission bits of a file that is made; `None`: 0644.
    pub mode: Option<u16>,
}

impl Flags {
    /// `O_RDONLY`.
    pub const READ: Flags = Flags {
        write: false,
        create: false,
        truncate: false,
        append: false,
        direct: false,
        dsync: false,
        sync: false,
        excl: false,
        tmpfile: false,
        mode: None,
    };
    /// `O_RDWR`.
    pub const WRITE: Flags = Flags { write: true, ..Flags::READ };
    /// `O_RDWR|O_CREAT`.
    pub const CREATE: Flags = Flags { create: true, ..Flags::WRITE };

    pub(super) fn parse(text: &str) -> Result<Flags, String> {
        let mut f = Flags::default();
        for word in text.split(',') {
            match word {
                "r" => {}
                "rw" => f.write = true,
                "creat" => f.create = true,
                "trunc" => f.truncate = true,
                "append" => f.append = true,
                "direct" => f.direct = true,
                "dsync" => f.dsync = true,
                "sync" => f.sync = true,
                "excl" => f.excl = true,
                "tmpfile" => f.tmpfile = true,
                _ => {
                    let mode =
                        word.strip_prefix("mode=").and_then(|m| u16::from_str_radix(m, 8).ok());
                    if let Some(mode) = mode.filter(|m| *m <= 0o7777) {
                        f.mode = Some(mode);
                        continue;
                    }
                    return Err(format!(
                        "`{word}`: flags are r, rw, creat, excl, tmpfile, trunc, append, direct, \
                         dsync, sync, mode=0600"
                    ));
                }
            }
        }
        Ok(f)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.write { "rw" } else { "r" })?;
        for (on, name) in [
            (self.create, "creat"),
            (self.excl, "excl"),
            (self.tmpfile, "tmpfile"),
            (self.truncate, "trunc"),
            (self.append, "append"),
            (self.direct, "direct"),
            (self.dsync, "dsync"),
            (self.sync, "sync"),
        ] {
            if on {
                write!(f, ",{name}")?;
            }
        }
        if let Some(mode) = self.mode {
            write!(f, ",mode={mode:04o}")?;
        }
        Ok(())
    }
}

/// What `fallocate` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alloc {
    /// Mode 0: space, and the size moves.
    Extend,
    /// `FALLOC_FL_KEEP_SIZE`.
    Keep,
    /// `FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE`.
    Punch,
    /// `FALLOC_FL_ZERO_RANGE`.
    Zero,
    /// `FALLOC_FL_ZERO_RANGE|FALLOC_FL_KEEP_SIZE`.
    ZeroKeep,
    /// `FALLOC_FL_COLLAPSE_RANGE`: the range goes, and what is behind it moves up.
    Collapse,
    /// `FALLOC_FL_INSERT_RANGE`: a hole comes in, and what is behind it moves down.
    Insert,
}

impl Alloc {
    pub(super) const NAMES: [(&'static str, Alloc); 7] = [
        ("extend", Alloc::Extend),
        ("keep", Alloc::Keep),
        ("punch", Alloc::Punch),
        ("zero", Alloc::Zero),
        ("zero-keep", Alloc::ZeroKeep),
        ("collapse", Alloc::Collapse),
        ("insert", Alloc::Insert),
    ];

    /// Its word in a program.
    pub fn name(self) -> &'static str {
        Alloc::NAMES.iter().find(|(_, a)| *a == self).map_or("", |(n, _)| n)
    }
}

/// A system call. Descriptors are numbers of the program's own, below 64; `.` is the root directory
/// of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `open`: descriptor, path, how.
    Open(u32, String, Flags),
    /// `close`.
    Close(u32),
    /// `pwrite`.
    Pwrite {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
        /// The contents.
        data: Data,
        /// With `RWF_ATOMIC`: whole or not at all after a power failure.
        atomic: bool,
    },
    /// A store through a mapping: `mmap` with `MAP_SHARED` of the pages, a store, `munmap`.
    MmapWrite {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
        /// The contents.
        data: Data,
    },
    /// `msync` with `MS_SYNC` of a mapping of the file: descriptor, offset, length.
    Msync(u32, u64, u64),
    /// `sync_file_range` with all of its flags: descriptor, offset, length; 0: to the end.
    SyncFileRange(u32, u64, u64),
    /// `copy_file_range`.
    CopyFileRange {
        /// Descriptor of what is copied.
        from: u32,
        /// Where it begins there.
        from_at: u64,
        /// Descriptor of the copy.
        to: u32,
        /// Where it begins there.
        to_at: u64,
        /// Bytes.
        len: u64,
    },
    /// `ioctl(FICLONERANGE)`.
    Reflink {
        /// Descriptor of whose blocks are shared.
        from: u32,
        /// Where the range begins there.
        from_at: u64,
        /// Descriptor of who gets them.
        to: u32,
        /// Where the range begins there.
        to_at: u64,
        /// Bytes; 0: up to the end of the source.
        len: u64,
    },
    /// `ioctl(FIDEDUPERANGE)` with one target.
    Dedupe {
        /// Descriptor of whose blocks are shared.
        from: u32,
        /// Where the range begins there.
        from_at: u64,
        /// Descriptor of who gets them if it has the same bytes.
        to: u32,
        /// Where the range begins there.
        to_at: u64,
        /// Bytes.
        len: u64,
    },
    /// `fsync`.
    Fsync(u32),
    /// `fdatasync`.
    Fdatasync(u32),
    /// `fbarrier` of BarrierFS: order, and no wait for the device.
    Fbarrier(u32),
    /// `fdatabarrier`.
    Fdatabarrier(u32),
    /// `syncfs`.
    Syncfs(u32),
    /// `sync`.
    Sync,
    /// `ftruncate`.
    Ftruncate(u32, u64),
    /// `fallocate`: descriptor, what, offset, length.
    Fallocate(u32, Alloc, u64, u64),
    /// `rename`.
    Rename(String, String),
    /// `renameat2` with one of its flags.
    Renameat2(String, String, RenameHow),
    /// `link`.
    Link(String, String),
    /// `linkat` of a descriptor, with `AT_EMPTY_PATH`: what was opened with `O_TMPFILE` gets its
    /// first name.
    Linkat(u32, String),
    /// `unlink`.
    Unlink(String),
    /// `mkdir`.
    Mkdir(String),
    /// `rmdir`.
    Rmdir(String),
    /// `symlink`: what it points to, and its own path.
    Symlink(String, String),
    /// `mknod` of a device: path, character or block, number.
    Mknod(String, FileType, DeviceNumber),
    /// `mkfifo`.
    Mkfifo(String),
    /// `chmod`: path, permission bits.
    Chmod(String, u32),
    /// `chown`: path, user, group.
    Chown(String, u32, u32),
    /// `utimensat`: path, times of access and of modification.
    Utimensat(String, TimeSpec, TimeSpec),
    /// `truncate`: path, length.
    Truncate(String, u64),
    /// `setxattr`.
    SetXattr {
        /// Path.
        path: String,
        /// Name, with its prefix.
        name: String,
        /// Bytes.
        len: u32,
        /// The value.
        data: Data,
    },
    /// `removexattr`: path, name.
    RemoveXattr(String, String),
    /// `BTRFS_IOC_SUBVOL_CREATE`.
    SubvolumeCreate(String),
    /// `BTRFS_IOC_SNAP_CREATE_V2`.
    Snapshot {
        /// The subvolume of which it is.
        from: String,
        /// Its own path.
        to: String,
        /// May it not be changed (`BTRFS_SUBVOL_RDONLY`)?
        readonly: bool,
    },
    /// `BTRFS_IOC_SNAP_DESTROY`.
    SubvolumeDelete(String),
    /// `FS_IOC_SETFLAGS`: path, and the flags that it has of those with words.
    Chattr(String, FileFlags),
    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`: descriptor, offset.
    Seek(u32, Seek, u64),
    /// An ioctl of F2FS' atomic writes.
    Atomic(u32, AtomicWrite),
    /// `mkcp`: makes a checkpoint; `true`: and a snapshot of it (`mkcp -s`).
    Mkcp(bool),
    /// `chcp`: makes checkpoint N a snapshot (`ss`), or one no more (`cp`).
    Chcp(bool, u64),
    /// `rmcp`: removes checkpoint N.
    Rmcp(u64),
    /// `pread`.
    Pread {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
    },
    /// `posix_fadvise` of a whole file.
    Fadvise(u32, Advise),
    /// `io_submit` of one `pwrite`.
    AioWrite {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
        /// Seed of the contents.
        seed: u32,
    },
    /// `io_submit` of one `pread`.
    AioRead {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
    },
    /// `io_getevents`: waits until this number of calls has ended, and takes all that
    /// have.
    AioWait(u32),
    /// What is cached and clean is forgotten (`/proc/sys/vm/drop_caches`).
    DropCaches,
    /// The program tells the world that there is such a file: whoever relies on that does so from
    /// here on. No call of the kernel's.
    Mark(String),
    /// The program tells the world something that must be true after a power failure: the check
    /// of a recovered tree gets all that was told by then. No call of the kernel's.
    Ack(Data),
}

impl Call {
    /// The system call's name.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Open(..) => "open",
            Call::Close(_) => "close",
            Call::Pwrite { .. } => "pwrite",
            Call::MmapWrite { .. } => "mmap_write",
            Call::Msync(..) => "msync",
            Call::SyncFileRange(..) => "sync_file_range",
            Call::CopyFileRange { .. } => "copy_file_range",
            Call::Reflink { .. } => "reflink",
            Call::Dedupe { .. } => "dedupe",
            Call::Fsync(_) => "fsync",
            Call::Fdatasync(_) => "fdatasync",
            Call::Fbarrier(_) => "fbarrier",
            Call::Fdatabarrier(_) => "fdatabarrier",
            Call::Syncfs(_) => "syncfs",
            Call::Sync => "sync",
            Call::Ftruncate(..) => "ftruncate",
            Call::Fallocate(..) => "fallocate",
            Call::Rename(..) => "rename",
            Call::Renameat2(..) => "renameat2",
            Call::Link(..) => "link",
            Call::Linkat(..) => "linkat",
            Call::Mknod(..) => "mknod",
            Call::Mkfifo(_) => "mkfifo",
            Call::Chmod(..) => "chmod",
            Call::Chown(..) => "chown",
            Call::Utimensat(..) => "utimensat",
            Call::Truncate(..) => "truncate",
            Call::Unlink(_) => "unlink",
            Call::Mkdir(_) => "mkdir",
            Call::Rmdir(_) => "rmdir",
            Call::Symlink(..) => "symlink",
            Call::SetXattr { .. } => "setxattr",
            Call::RemoveXattr(..) => "removexattr",
            Call::SubvolumeCreate(_) => "subvolume_create",
            Call::Snapshot { .. } => "snapshot",
            Call::SubvolumeDelete(_) => "subvolume_delete",
            Call::Chattr(..) => "chattr",
            Call::Seek(_, Seek::Data, _) => "seek_data",
            Call::Seek(_, Seek::Hole, _) => "seek_hole",
            Call::Atomic(_, what) => what.word(),
            Call::Mkcp(_) => "mkcp",
            Call::Chcp(..) => "chcp",
            Call::Rmcp(_) => "rmcp",
            Call::Pread { .. } => "pread",
            Call::Fadvise(..) => "fadvise",
            Call::AioWrite { .. } => "aio_write",
            Call::AioRead { .. } => "aio_read",
            Call::AioWait(_) => "aio_wait",
            Call::DropCaches => "drop_caches",
            Call::Mark(_) => "mark",
            Call::Ack(_) => "ack",
        }
    }
}

impl Call {
    /// Is it there to make something durable? Writes through a descriptor with `O_SYNC` or
    /// `O_DSYNC` are not told from others.
    pub fn is_sync(&self) -> bool {
        matches!(
            self,
            Call::Fsync(_)
                | Call::Fdatasync(_)
                | Call::Syncfs(_)
                | Call::Sync
                | Call::Msync(..)
                | Call::SyncFileRange(..)
        )
    }

    /// The descriptor that it uses, or makes.
    pub fn descriptor(&self) -> Option<u32> {
        self.clone().descriptors_mut().first().map(|fd| **fd)
    }

    /// All of them, that first, to be changed.
    pub fn descriptors_mut(&mut self) -> Vec<&mut u32> {
        match self {
            Call::Open(fd, ..)
            | Call::Close(fd)
            | Call::Pwrite { fd, .. }
            | Call::Pread { fd, .. }
            | Call::AioWrite { fd, .. }
            | Call::AioRead { fd, .. }
            | Call::Fsync(fd)
            | Call::Fdatasync(fd)
            | Call::Fbarrier(fd)
            | Call::Fdatabarrier(fd)
            | Call::Syncfs(fd)
            | Call::Ftruncate(fd, _)
            | Call::Fadvise(fd, _)
            | Call::MmapWrite { fd, .. }
            | Call::Msync(fd, ..)
            | Call::SyncFileRange(fd, ..)
            | Call::Linkat(fd, _)
            | Call::Seek(fd, ..)
            | Call::Atomic(fd, _)
            | Call::Fallocate(fd, ..) => vec![fd],
            Call::CopyFileRange { from, to, .. }
            | Call::Reflink { from, to, .. }
            | Call::Dedupe { from, to, .. } => vec![to, from],
            Call::Sync
            | Call::DropCaches
            | Call::AioWait(_)
            | Call::Rename(..)
            | Call::Renameat2(..)
            | Call::Link(..)
            | Call::Unlink(_)
            | Call::Mkdir(_)
            | Call::Mknod(..)
            | Call::Mkfifo(_)
            | Call::Chmod(..)
            | Call::Chown(..)
            | Call::Utimensat(..)
            | Call::Truncate(..)
            | Call::Rmdir(_)
            | Call::Symlink(..)
            | Call::SetXattr { .. }
            | Call::RemoveXattr(..)
            | Call::Chattr(..)
            | Call::Ack(_)
            | Call::SubvolumeCreate(_)
            | Call::Snapshot { .. }
            | Call::SubvolumeDelete(_)
            | Call::Mkcp(_)
            | Call::Chcp(..)
            | Call::Rmcp(_)
            | Call::Mark(_) => Vec::new(),
        }
    }

    /// The paths that it names, to be changed.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        match self {
            Call::Open(_, p, _)
            | Call::Unlink(p)
            | Call::Mkdir(p)
            | Call::Rmdir(p)
            | Call::Symlink(_, p)
            | Call::Linkat(_, p)
            | Call::Mknod(p, ..)
            | Call::Mkfifo(p)
            | Call::Chmod(p, _)
            | Call::Chown(p, ..)
            | Call::Utimensat(p, ..)
            | Call::Truncate(p, _)
            | Call::SetXattr { path: p, .. }
            | Call::RemoveXattr(p, _)
            | Call::Chattr(p, _)
            | Call::SubvolumeCreate(p)
            | Call::SubvolumeDelete(p)
            | Call::Mark(p) => vec![p],
            Call::Rename(a, b)
            | Call::Renameat2(a, b, _)
            | Call::Snapshot { from: a, to: b, .. }
            | Call::Link(a, b) => vec![a, b],
            Call::Close(_)
            | Call::Pwrite { .. }
            | Call::Pread { .. }
            | Call::Fadvise(..)
            | Call::AioWrite { .. }
            | Call::AioRead { .. }
            | Call::AioWait(_)
            | Call::MmapWrite { .. }
            | Call::Msync(..)
            | Call::SyncFileRange(..)
            | Call::CopyFileRange { .. }
            | Call::Reflink { .. }
            | Call::Dedupe { .. }
            | Call::Fsync(_)
            | Call::Fdatasync(_)
            | Call::Fbarrier(_)
            | Call::Fdatabarrier(_)
            | Call::Syncfs(_)
            | Call::Sync
            | Call::Ftruncate(..)
            | Call::Fallocate(..)
            | Call::Seek(..)
            | Call::Atomic(..)
            | Call::Ack(_)
            | Call::Mkcp(_)
            | Call::Chcp(..)
            | Call::Rmcp(_)
            | Call::DropCaches => Vec::new(),
        }
    }
}

/// `{:#}` leaves out bytes that were given, for people; without it the text is the call.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Call::Open(fd, path, how) => write!(f, "{name} {fd} {} {how}", Word(path)),
            Call::Close(fd)
            | Call::Fsync(fd)
            | Call::Fdatasync(fd)
            | Call::Fbarrier(fd)
            | Call::Fdatabarrier(fd)
            | Call::Syncfs(fd)
            | Call::Atomic(fd, _) => write!(f, "{name} {fd}"),
            Call::Sync | Call::DropCaches => f.write_str(name),
            Call::Pwrite { fd, len, at, data, .. } | Call::MmapWrite { fd, len, at, data } => {
                write!(f, "{name} {fd} {len} {at} ")?;
                data.fmt(f)?;
                f.write_str(self.suffix())
            }
            Call::AioWrite { fd, len, at, seed } => write!(f, "{name} {fd} {len} {at} {seed}"),
            Call::Msync(fd, at, len) | Call::SyncFileRange(fd, at, len) => {
                write!(f, "{name} {fd} {at} {len}")
            }
            Call::CopyFileRange { from, from_at, to, to_at, len }
            | Call::Reflink { from, from_at, to, to_at, len }
            | Call::Dedupe { from, from_at, to, to_at, len } => {
                write!(f, "{name} {from} {from_at} {to} {to_at} {len}")
            }
            Call::Renameat2(a, b, how) => {
                write!(f, "{name} {} {} {}", Word(a), Word(b), rename_flag(*how))
            }
            Call::Snapshot { from, to, readonly } => {
                let end = if *readonly { " readonly" } else { "" };
                write!(f, "{name} {} {}{end}", Word(from), Word(to))
            }
            Call::Linkat(fd, path) => write!(f, "{name} {fd} {}", Word(path)),
            Call::Mknod(path, kind, DeviceNumber { major, minor }) => {
                write!(f, "{name} {} {} {major} {minor}", Word(path), kind.word())
            }
            Call::Chmod(path, mode) => write!(f, "{name} {} {mode:04o}", Word(path)),
            Call::Chown(path, uid, gid) => write!(f, "{name} {} {uid} {gid}", Word(path)),
            Call::Utimensat(path, atime, mtime) => {
                let (atime, mtime) = (seconds(*atime), seconds(*mtime));
                write!(f, "{name} {} {atime} {mtime}", Word(path))
            }
            Call::Chattr(path, flags) => write!(f, "{name} {} {flags}", Word(path)),
            Call::Seek(fd, _, at) => write!(f, "{name} {fd} {at}"),
            Call::Truncate(path, len) => write!(f, "{name} {} {len}", Word(path)),
            Call::Mkcp(is_snapshot) => f.write_str(if *is_snapshot { "mkcp -s" } else { name }),
            Call::Chcp(true, number) => write!(f, "{name} ss {number}"),
            Call::Chcp(false, number) => write!(f, "{name} cp {number}"),
            Call::Rmcp(number) => write!(f, "{name} {number}"),
            Call::AioWait(n) => write!(f, "{name} {n}"),
            Call::Ftruncate(fd, len) => write!(f, "{name} {fd} {len}"),
            Call::Fadvise(fd, what) => write!(f, "{name} {fd} {}", what.name()),
            Call::Fallocate(fd, mode, at, len) => {
                write!(f, "{name} {fd} {} {at} {len}", mode.name())
            }
            Call::Rename(a, b)
            | Call::Link(a, b)
            | Call::Symlink(a, b)
            | Call::RemoveXattr(a, b) => write!(f, "{name} {} {}", Word(a), Word(b)),
            Call::SetXattr { path, name: of, len, data } => {
                write!(f, "{name} {} {} {len} ", Word(path), Word(of))?;
                data.fmt(f)
            }
            Call::Unlink(a)
            | Call::Mkdir(a)
            | Call::Rmdir(a)
            | Call::Mkfifo(a)
            | Call::SubvolumeCreate(a)
            | Call::SubvolumeDelete(a)
            | Call::Mark(a) => write!(f, "{name} {}", Word(a)),
            Call::Pread { fd, len, at } | Call::AioRead { fd, len, at } => {
                write!(f, "{name} {fd} {len} {at}")
            }
            Call::Ack(said) => {
                write!(f, "{name} ")?;
                said.fmt(f)
            }
        }
    }
}
