//! System calls on a mounted file system.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use wp_base::event::{Class, Event};
use wp_base::{FsError, FsResult, Ino};
use wp_cache::{Advice, Readahead};
use wp_medium::Slice;
use wp_rt::{CpuOp, Rt, soon};

use crate::file_type::FileType;
use crate::flags::FileFlags;
use crate::fs::{AttrChange, ErrSeqCursor, FileSystem, NodeSpec, Reserve, StatFs, SyncKind};
use crate::kiocb::Kiocb;
use crate::walk::{End, Last, Walked};

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// An open descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fd(pub u32);

/// How to open.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFlags {
    /// For writing (`O_WRONLY`/`O_RDWR`); reading is always possible.
    pub write: bool,
    /// Make it if it is not there (`O_CREAT`).
    pub create: bool,
    /// With `create`: fail if it is there (`O_EXCL`).
    pub exclusive: bool,
    /// Cut to length 0 (`O_TRUNC`).
    pub truncate: bool,
    /// Every write goes to the end (`O_APPEND`).
    pub append: bool,
    /// Past the cache (`O_DIRECT`).
    pub direct: bool,
    /// A write is durable when it returns, as if fdatasync followed (`O_DSYNC`).
    pub dsync: bool,
    /// The same, as if fsync followed (`O_SYNC`).
    pub sync: bool,
    /// The path is a directory's: the file is made in its file system, without a name
    /// (`O_TMPFILE`). With `exclusive` it never gets one.
    pub unnamed: bool,
}

impl OpenFlags {
    /// `O_RDONLY`.
    pub const READ: OpenFlags = OpenFlags {
        write: false,
        create: false,
        exclusive: false,
        truncate: false,
        append: false,
        direct: false,
        dsync: false,
        sync: false,
        unnamed: false,
    };
    /// `O_RDWR`.
    pub const WRITE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };
    /// `O_RDWR|O_CREAT`.
    pub const CREATE: OpenFlags = OpenFlags { create: true, ..OpenFlags::WRITE };
}

pub(crate) struct OpenFile {
    pub(crate) ino: Ino,
    write: bool,
    append: bool,
    direct: bool,
    sync: Option<SyncKind>,
    pos: Cell<u64>,
    /// What it was told of failed writes.
    told: ErrSeqCursor,
    /// What it has read.
    ahead: Readahead,
}

impl OpenFile {
    /// Does every write go to the end (`O_APPEND`)?
    pub(crate) fn appends(&self) -> bool {
        self.append
    }

    /// Opened for writing?
    pub(crate) fn is_for_writing(&self) -> bool {
        self.write
    }

    /// Is a write durable when it returns (`O_DSYNC`, `O_SYNC`)?
    pub(crate) fn is_synced(&self) -> bool {
        self.sync.is_some()
    }

    /// What it was told of failed writes.
    pub(crate) fn told(&self) -> &ErrSeqCursor {
        &self.told
    }

    /// Past the cache (`O_DIRECT`)?
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }
}

/// The open files in the order of their descriptors, which only grow: mostly there are few.
#[derive(Default)]
struct OpenFiles(Vec<(u32, Rc<OpenFile>)>);

impl OpenFiles {
    fn place(&self, fd: u32) -> Option<usize> {
        match self.0.last() {
            Some((last, _)) if *last == fd => Some(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&fd, |(fd, _)| *fd).ok(),
        }
    }

    fn get(&self, fd: u32) -> Option<&Rc<OpenFile>> {
        self.place(fd).and_then(|at| self.0.get(at)).map(|(_, file)| file)
    }

    /// `fd` is greater than all before.
    fn push(&mut self, fd: u32, file: Rc<OpenFile>) {
        self.0.push((fd, file));
    }

    fn remove(&mut self, fd: u32) -> Option<Rc<OpenFile>> {
        self.place(fd).map(|at| self.0.remove(at).1)
    }
}

/// The system-call interface of one mounted file system. Clones share descriptors.
#[derive(Clone)]
pub struct Vfs(Rc<Inner>);

struct Inner {
    rt: Rt,
    fs: Rc<dyn FileSystem>,
    files: RefCell<OpenFiles>,
    next_fd: Cell<u32>,
    next_call: Cell<u64>,
    /// Calls that the storage failed: name of the call, errno, how often.
    failed: RefCell<BTreeMap<(&'static str, &'static str), u64>>,
}

/// The errno of what no program brings about by itself: the storage has no room, or fails.
fn storage_errno(e: &FsError) -> Option<&'static str> {
    match e {
        FsError::NoSpace => Some("ENOSPC"),
        FsError::TooBig => Some("EFBIG"),
        FsError::ReadOnly => Some("EROFS"),
        FsError::Io => Some("EIO"),
        FsError::Corrupt(_) => Some("EUCLEAN"),
        _ => None,
    }
}

impl Vfs {
    /// System calls on `fs`.
    pub fn new(rt: &Rt, fs: Rc<dyn FileSystem>) -> Vfs {
        Vfs(Rc::new(Inner {
            rt: rt.clone(),
            fs,
            files: RefCell::default(),
            next_fd: Cell::new(3),
            next_call: Cell::new(0),
            failed: RefCell::default(),
        }))
    }

    /// The file system below.
    pub fn fs(&self) -> &Rc<dyn FileSystem> {
        &self.0.fs
    }

    /// Calls that were made so far.
    pub fn calls(&self) -> u64 {
        self.0.next_call.get()
    }

    /// Calls so far that failed because the storage has no room or fails: name of the call, errno,
    /// how often.
    pub fn failed_calls(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.0.failed.borrow().iter().map(|((name, errno), n)| (*name, *errno, *n)).collect()
    }

    /// The runtime it lives on.
    pub fn rt(&self) -> &Rt {
        &self.0.rt
    }

    pub(crate) async fn call<T>(
        &self,
        name: &'static str,
        target: impl FnOnce() -> String,
        value: impl FnOnce(&T) -> u64,
        body: impl Future<Output = FsResult<T>>,
    ) -> FsResult<T> {
        let rt = &self.0.rt;
        let id = self.0.next_call.get();
        self.0.next_call.set(id + 1);
        rt.emit(Class::SYSCALL, || Event::SyscallEnter { name, id, target: target().into() });
        rt.cpu(CpuOp::Syscall, 1).await;
        let out = body.await;
        self.note_failure(name, &out);
        rt.emit(Class::SYSCALL, || Event::SyscallExit {
            name,
            id,
            value: out.as_ref().map(value).unwrap_or(0),
            ok: out.is_ok(),
        });
        out
    }

    /// Counts a call that the storage failed.
    pub(crate) fn note_failure<T>(&self, name: &'static str, out: &FsResult<T>) {
        if let Some(errno) = out.as_ref().err().and_then(storage_errno) {
            *self.0.failed.borrow_mut().entry((name, errno)).or_default() += 1;
        }
    }

    pub(crate) fn file(&self, fd: Fd) -> FsResult<Rc<OpenFile>> {
        self.0.files.borrow().get(fd.0).cloned().ok_or(FsError::BadFile)
    }

    /// Opens `path`. Errors: `NotFound`, `Exists`, `IsDir` for writing a directory, `Invalid` for
    /// `O_DIRECT` on what is no file, and what creation says.
    pub async fn open(&self, path: &str, flags: OpenFlags, mode: u32) -> FsResult<Fd> {
        let body = async {
            let fs = &self.0.fs;
            let mut spec = NodeSpec::new(FileType::File, mode);
            // What is made here is not cut as well (`FMODE_CREATED` drops `O_TRUNC`).
            let mut truncate = flags.truncate;
            if flags.unnamed && flags.create {
                // `build_open_flags`: `O_TMPFILE` has the bit of `O_DIRECTORY`.
                return Err(FsError::Invalid("O_TMPFILE with O_CREAT"));
            }
            if flags.unnamed {
                let made = Box::pin(self.make_unnamed(path, flags, spec)).await?;
                return Ok(self.descriptor(made, flags));
            }
            if flags.create && End::of(path.as_bytes()) == End::Slash {
                // No file is made where a directory is named, nor is one opened.
                return Box::pin(self.last(path, FsError::IsDir)).await.and(Err(FsError::IsDir));
            }
            let found = loop {
                if flags.create && flags.exclusive {
                    // Whatever stands there, a link too, is in the way.
                    let Last { dir, name, .. } = Box::pin(self.last(path, FsError::Exists)).await?;
                    truncate = false;
                    self.inherit_group(dir, &mut spec).await?;
                    break fs.create(dir, name, &spec).await?;
                }
                let (dir, name) = match self.walk_or_miss(path).await {
                    Walked::Found(ino) => {
                        let needs_file = flags.write || flags.create || flags.truncate;
                        if needs_file && self.kind(ino).await? == FileType::Dir {
                            return Err(FsError::IsDir);
                        }
                        break ino;
                    }
                    Walked::Missing(dir, name) if flags.create => (dir, name),
                    Walked::Missing(..) => return Err(FsError::NotFound),
                    Walked::Failed(FsError::NotFound) if flags.create => {
                        let (dir, name) = Box::pin(self.creation(path)).await?;
                        (dir, name.into())
                    }
                    Walked::Failed(e) => return Err(e),
                };
                self.inherit_group(dir, &mut spec).await?;
                match fs.create(dir, &name, &spec).await {
                    // Another task was quicker between our look and our making it.
                    Err(FsError::Exists) => {}
                    made => {
                        truncate = false;
                        break made?;
                    }
                }
            };
            match self.kind(found).await? {
                FileType::File => {}
                FileType::Block if fs.has_devices() => {}
                FileType::Dir if flags.direct => {
                    return Err(FsError::Invalid(
                        "O_DIRECT is for regular files and block devices",
                    ));
                }
                FileType::Fifo => {
                    return Err(FsError::Unsupported("opening a named pipe".to_owned()));
                }
                // As of a device for which no driver is there (`chrdev_open`), and of a socket
                // (`sock_no_open`).
                FileType::Char | FileType::Block | FileType::Socket => {
                    return Err(FsError::NoSuchPlace);
                }
                FileType::Dir | FileType::Symlink => {}
            }
            self.may_open(found, (flags.write, flags.append), truncate)?;
            soon!(fs.open(found, flags.write))?;
            if truncate {
                let change = AttrChange { size: Some(0), ..AttrChange::default() };
                if let Err(e) = fs.set_attr(found, &change).await {
                    soon!(fs.release(found, flags.write))?;
                    return Err(e);
                }
            }
            Ok(self.descriptor(found, flags))
        };
        self.call("open", || path.to_owned(), |fd| u64::from(fd.0), pin!(body)).await
    }

    /// `do_tmpfile`. Errors: `NotDir`, `Invalid` for a file that is not to be written.
    async fn make_unnamed(
        &self,
        path: &str,
        flags: OpenFlags,
        mut spec: NodeSpec,
    ) -> FsResult<Ino> {
        if !flags.write {
            return Err(FsError::Invalid("O_TMPFILE needs O_RDWR or O_WRONLY"));
        }
        let dir = self.walk(path).await?;
        if self.kind(dir).await? != FileType::Dir {
            return Err(FsError::NotDir);
        }
        crate::flags::may_create(self.0.fs.flags_in_memory(dir))?;
        self.inherit_group(dir, &mut spec).await?;
        let made = self.0.fs.open_unnamed(dir, &spec, !flags.exclusive, true).await?;
        Ok(made)
    }

    /// A descriptor of an inode that is open.
    fn descriptor(&self, ino: Ino, flags: OpenFlags) -> Fd {
        let fd = self.0.next_fd.get();
        self.0.next_fd.set(fd + 1);
        let sync = match (flags.sync, flags.dsync) {
            (true, _) => Some(SyncKind::Full),
            (false, true) => Some(SyncKind::DataOnly),
            _ => None,
        };
        let file = OpenFile {
            ino,
            write: flags.write,
            append: flags.append,
            direct: flags.direct,
            sync,
            pos: Cell::new(0),
            told: self.0.fs.told(ino),
            ahead: Readahead::default(),
        };
        self.0.files.borrow_mut().push(fd, Rc::new(file));
        Fd(fd)
    }

    /// Closes a descriptor.
    pub async fn close(&self, fd: Fd) -> FsResult<()> {
        let body = async {
            let file = self.0.files.borrow_mut().remove(fd.0).ok_or(FsError::BadFile)?;
            soon!(self.0.fs.release(file.ino, file.write))
        };
        self.call("close", || fd.0.to_string(), |()| 0, body).await
    }

    /// Writes at an offset. Errors: `BadFile` if not open for writing, `NoSpace`, `TooBig`.
    pub async fn pwrite(&self, fd: Fd, offset: u64, data: &[Slice]) -> FsResult<u64> {
        let body = async {
            let file = self.file_to_write(fd)?;
            self.write_at(&file, offset, data, &Kiocb::blocking()).await
        };
        self.call("pwrite64", || fd.0.to_string(), |n| *n, pin!(body)).await
    }

    /// Writes at the descriptor's position and moves it.
    pub async fn write(&self, fd: Fd, data: &[Slice]) -> FsResult<u64> {
        let body = async {
            let file = self.file(fd)?;
            if !file.write {
                return Err(FsError::BadFile);
            }
            let pos = file.pos.get();
            let n = self.write_at(&file, pos, data, &Kiocb::blocking()).await?;
            file.pos.set(pos + n);
            Ok(n)
        };
        self.call("write", || fd.0.to_string(), |n| *n, pin!(body)).await
    }

    /// An open file that may be written. Errors: `BadFile`.
    pub(crate) fn file_to_write(&self, fd: Fd) -> FsResult<Rc<OpenFile>> {
        self.file(fd).and_then(|file| if file.write { Ok(file) } else { Err(FsError::BadFile) })
    }

    /// A write as the descriptor's flags have it.
    pub(crate) async fn write_at(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[Slice],
        io: &Kiocb,
    ) -> FsResult<u64> {
        let fs = &self.0.fs;
        let flags = fs.flags_in_memory(file.ino);
        if self.refuses_write(flags) {
            return Err(FsError::NotPermitted);
        }
        if total(data) == 0 {
            // `generic_write_checks` ends such a write before anything is changed or aligned.
            return Ok(0);
        }
        // `IS_SYNC` is as `O_DSYNC` (`iocb_is_dsync`).
        let sync = file.sync.or(flags.has(FileFlags::SYNC).then_some(SyncKind::DataOnly));
        let at = (!file.append).then_some(offset);
        if file.direct {
            return fs.write_direct(file.ino, at, data, sync, &file.told, io).await;
        }
        let n = soon!(fs.write(file.ino, at, data))?;
        if let Some(kind) = sync
            && n > 0
        {
            let from = match at {
                Some(from) => from,
                None if fs.append_syncs_elsewhere() => offset,
                None => soon!(fs.attr(file.ino))?.size.saturating_sub(n),
            };
            fs.sync_range(file.ino, kind, (from, from + n), &file.told).await?;
        }
        Ok(n)
    }

    /// `fallocate`. Errors: `BadFile` if not open for writing, and what the file system says.
    pub async fn fallocate(&self, fd: Fd, how: Reserve, offset: u64, len: u64) -> FsResult<()> {
        let body = async {
            let file = self.file(fd)?;
            if len == 0 {
                return Err(FsError::Invalid("fallocate of no bytes"));
            }
            if !file.write {
                return Err(FsError::BadFile);
            }
            self.may_reserve(file.ino, how)?;
            self.0.fs.reserve(file.ino, how, offset, len).await?;
            if file.sync.is_some() {
                self.0.fs.sync_reserve(file.ino, how, offset, len).await?;
            }
            Ok(())
        };
        self.call("fallocate", || fd.0.to_string(), |()| 0, body).await
    }

    /// Reads from an offset; fewer bytes at the end of the file.
    pub async fn pread(&self, fd: Fd, offset: u64, len: u64) -> FsResult<Vec<Slice>> {
        let body = async {
            let file = self.file(fd)?;
            self.read_at(&file, offset, len, &Kiocb::blocking()).await
        };
        self.call("pread64", || fd.0.to_string(), |s| total(s), body).await
    }

    /// A read as the descriptor's flags have it.
    pub(crate) async fn read_at(
        &self,
        file: &OpenFile,
        offset: u64,
        len: u64,
        io: &Kiocb,
    ) -> FsResult<Vec<Slice>> {
        if file.direct {
            return self.0.fs.read_direct(file.ino, offset, len, io).await;
        }
        let got = self.0.fs.read(file.ino, offset, len, &file.ahead).await?;
        let n = total(&got);
        if n > 0 {
            file.ahead.read_to(offset + n);
        }
        Ok(got)
    }

    /// Says how a file will be read (`posix_fadvise` of all of it).
    pub async fn fadvise(&self, fd: Fd, advice: Advice) -> FsResult<()> {
        let body = async {
            self.file(fd)?.ahead.advise(advice);
            Ok(())
        };
        self.call("fadvise64", || format!("{} {advice:?}", fd.0), |()| 0, body).await
    }

    /// Stores through a shared mapping of the file, made for this and unmapped after it
    /// (`do_mmap`, then faults). Errors: `Invalid` for no bytes, `AccessDenied` if not open for
    /// reading and writing; as [`FileSystem::write_mapped`].
    pub async fn write_mapped(&self, fd: Fd, offset: u64, data: &[Slice]) -> FsResult<()> {
        let body = async {
            let file = self.file(fd)?;
            if total(data) == 0 {
                return Err(FsError::Invalid("a mapping of no bytes"));
            }
            if !file.write {
                return Err(FsError::AccessDenied);
            }
            let flags = self.0.fs.flags_in_memory(file.ino);
            if flags.has(FileFlags::APPEND) {
                return Err(FsError::AccessDenied);
            }
            if self.kind(file.ino).await? != FileType::File {
                return Err(FsError::NoDevice);
            }
            let end = offset.checked_add(total(data)).ok_or(FsError::TooBig)?;
            let size = soon!(self.0.fs.attr(file.ino))?.size;
            if end.div_ceil(PAGE) > size.div_ceil(PAGE) || self.refuses_write(flags) {
                return Err(FsError::Fault);
            }
            self.0.fs.write_mapped(file.ino, offset, data, &file.ahead).await
        };
        self.call("mmap_write", || fd.0.to_string(), |()| 0, pin!(body)).await
    }

    /// `msync(MS_SYNC)` of a mapping of bytes `offset..offset + len`: fdatasync of them
    /// (`vfs_fsync_range` with `datasync`).
    pub async fn msync(&self, fd: Fd, offset: u64, len: u64) -> FsResult<()> {
        let body = async {
            let file = self.file(fd)?;
            let end = end_in_file(offset, len)?;
            if self.kind(file.ino).await? != FileType::File {
                return Err(FsError::NoDevice);
            }
            if len == 0 {
                return Ok(());
            }
            let (from, to) = (offset / PAGE * PAGE, end.div_ceil(PAGE) * PAGE);
            self.0.fs.sync_range(file.ino, SyncKind::DataOnly, (from, to), &file.told).await
        };
        self.call("msync", || fd.0.to_string(), |()| 0, body).await
    }

    /// `sync_file_range` with `WAIT_BEFORE`, `WRITE` and `WAIT_AFTER`; length 0: to the end.
    pub async fn sync_file_range(&self, fd: Fd, offset: u64, len: u64) -> FsResult<()> {
        let body = async {
            let file = self.file(fd)?;
            let end = end_in_file(offset, len)?;
            let to = if len == 0 { u64::MAX } else { end };
            self.0.fs.write_range(file.ino, (offset, to), &file.told).await
        };
        self.call("sync_file_range", || fd.0.to_string(), |()| 0, body).await
    }

    async fn order_one(&self, fd: Fd, data_only: bool) -> FsResult<()> {
        let file = self.file(fd)?;
        self.0.fs.order_file(file.ino, data_only, &file.told).await
    }

    async fn sync_one(&self, fd: Fd, kind: SyncKind) -> FsResult<()> {
        self.sync_file(&*self.file(fd)?, kind).await
    }

    pub(crate) async fn sync_file(&self, file: &OpenFile, kind: SyncKind) -> FsResult<()> {
        self.0.fs.sync_file(file.ino, kind, &file.told).await
    }

    /// Makes the file durable.
    pub async fn fsync(&self, fd: Fd) -> FsResult<()> {
        let body = self.sync_one(fd, SyncKind::Full);
        self.call("fsync", || fd.0.to_string(), |()| 0, body).await
    }

    /// Makes the file's data durable.
    pub async fn fdatasync(&self, fd: Fd) -> FsResult<()> {
        let body = self.sync_one(fd, SyncKind::DataOnly);
        self.call("fdatasync", || fd.0.to_string(), |()| 0, body).await
    }

    /// Drops the file's clean pages, and starts the writeback of dirty ones (`posix_fadvise` with
    /// `POSIX_FADV_DONTNEED`, of all of it). False if the file system cannot.
    pub async fn fadvise_dontneed(&self, fd: Fd) -> FsResult<bool> {
        let body = async { self.0.fs.drop_file_cache(self.file(fd)?.ino).await };
        self.call("fadvise64", || fd.0.to_string(), |_| 0, body).await
    }

    /// What was written to the file reaches the device before what is written after this returns
    /// (BarrierFS). Errors: `Unsupported` where the file system keeps no order.
    pub async fn fbarrier(&self, fd: Fd) -> FsResult<()> {
        let body = self.order_one(fd, false);
        self.call("fbarrier", || fd.0.to_string(), |()| 0, body).await
    }

    /// As [`Vfs::fbarrier`] for the file's data; commits only what the data needs to be found.
    pub async fn fdatabarrier(&self, fd: Fd) -> FsResult<()> {
        let body = self.order_one(fd, true);
        self.call("fdatabarrier", || fd.0.to_string(), |()| 0, body).await
    }

    /// Makes everything durable.
    pub async fn sync(&self) -> FsResult<()> {
        self.call("sync", String::new, |()| 0, self.0.fs.sync_all()).await
    }

    /// Makes everything of the file system durable on which `fd` is open.
    pub async fn syncfs(&self, fd: Fd) -> FsResult<()> {
        let body = async {
            let file = self.file(fd)?;
            self.0.fs.sync_fs(&file.told).await
        };
        self.call("syncfs", || fd.0.to_string(), |()| 0, body).await
    }

    /// `fstrim`: discards free space from byte `start` on, `len` bytes, in pieces of at least
    /// `least` bytes; returns how many bytes.
    pub async fn fstrim(&self, start: u64, len: u64, least: u64) -> FsResult<u64> {
        let body = self.0.fs.trim(start, len, least);
        self.call("ioctl(FITRIM)", || format!("{start}, {len}, {least}"), |n| *n, body).await
    }

    /// Cuts or extends an open file.
    pub async fn ftruncate(&self, fd: Fd, size: u64) -> FsResult<()> {
        let body = async {
            let file = self.file(fd)?;
            if !file.write {
                // Of all calls on a descriptor the one that says so (`do_ftruncate`).
                return Err(FsError::Invalid("ftruncate of a file not open for writing"));
            }
            if self.0.fs.flags_in_memory(file.ino).has(FileFlags::APPEND) {
                return Err(FsError::NotPermitted);
            }
            let change = AttrChange { size: Some(size), ..AttrChange::default() };
            self.0.fs.set_attr(file.ino, &change).await
        };
        self.call("ftruncate", || fd.0.to_string(), |()| 0, body).await
    }

    /// Cuts or extends a file by path.
    pub async fn truncate(&self, path: &str, size: u64) -> FsResult<()> {
        let body = async {
            let ino = self.walk(path).await?;
            // What kind it is counts before whether it may be written (`vfs_truncate`).
            match self.kind(ino).await? {
                FileType::File => self.may_change(ino)?,
                FileType::Dir => return Err(FsError::IsDir),
                _ => return Err(FsError::Invalid("truncate of what is no regular file")),
            }
            self.0.fs.set_attr(ino, &AttrChange { size: Some(size), ..AttrChange::default() }).await
        };
        self.call("truncate", || path.to_owned(), |()| 0, body).await
    }

    /// Space and inodes.
    pub async fn stat_fs(&self) -> FsResult<StatFs> {
        self.call("statfs", String::new, |s: &StatFs| s.blocks_free, self.0.fs.stat_fs()).await
    }

    /// The inode behind a descriptor.
    pub fn ino(&self, fd: Fd) -> FsResult<Ino> {
        self.file(fd).map(|f| f.ino)
    }
}

/// Where a range of a file ends. Errors: `Invalid` behind the last byte that a file may have.
fn end_in_file(offset: u64, len: u64) -> FsResult<u64> {
    let most = i64::MAX as u64 / PAGE * PAGE;
    let end = offset.checked_add(len).filter(|end| *end <= most);
    end.ok_or(FsError::Invalid("a range behind the largest file"))
}

pub(crate) fn total(slices: &[Slice]) -> u64 {
    slices.iter().map(|s| u64::from(s.len())).sum()
}
