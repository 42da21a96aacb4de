//! Requests of FUSE, each as what [`Live`](crate::live::Live) does for it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use wp_vfs::{DeviceNumber, FileType, RenameHow, Seek, XattrSet};
use wp_workload::program::Flags;

use crate::control::{Control, END};
use crate::door::Door;
use crate::flags::{extended, ioctls, open_flags};
use crate::live::{Caller, Change, When};
use crate::reply::{
    FOREVER, WallTime, device_number, empty, entry, errno, file_attr, kind, time_spec, ttl, xattr,
};

/// Bytes of a write that the kernel sends whole.
const WRITE_MAX: u32 = 1 << 20;

/// What the kernel asks for before each first write to a file (`file_remove_privs`).
const CAPABILITY: &str = "security.capability";

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

/// The descriptor behind a handle.
fn descriptor(handle: FileHandle) -> u32 {
    handle.0 as u32
}

fn when(time: TimeOrNow) -> When {
    match time {
        TimeOrNow::Now => When::Now,
        TimeOrNow::SpecificTime(t) => When::At(time_spec(t)),
    }
}

impl Filesystem for Door {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // An old kernel has its own limits; it says what it takes.
        let _ = config.set_max_write(WRITE_MAX);
        for wanted in [InitFlags::FUSE_ATOMIC_O_TRUNC, InitFlags::FUSE_HANDLE_KILLPRIV_V2] {
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.ask(request, move |live| async move {
            entry(reply, live.lookup(parent.0, &name).await);
        });
    }

    fn forget(&self, request: &Request, node: INodeNo, times: u64) {
        self.ask(request, move |live| async move { live.forget(node.0, times) });
    }

    fn getattr(&self, request: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.ask(request, move |live| async move {
            match live.attr(node.0).await {
                Ok(attr) => reply.attr(&ttl(node.0), &file_attr(node.0, &attr)),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<WallTime>,
        handle: Option<FileHandle>,
        _: Option<WallTime>,
        _: Option<WallTime>,
        _: Option<WallTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(when), mtime.map(when));
        let change = Change { mode, uid, gid, size, atime, mtime };
        self.ask(request, move |live| async move {
            match live.set_attr(node.0, handle.map(descriptor), change).await {
                Ok(attr) => reply.attr(&ttl(node.0), &file_attr(node.0, &attr)),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        self.ask(request, move |live| async move {
            match live.read_link(node.0).await {
                Ok(target) => reply.data(&target),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (name, who) = (name.as_bytes().to_vec(), caller(request));
        let (major, minor) = device_number(rdev);
        self.ask(request, move |live| async move {
            let kind = FileType::from_mode(mode).unwrap_or(FileType::File);
            let device = DeviceNumber { major, minor };
            entry(reply, live.mknod((parent.0, &name), (kind, mode), device, who).await);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let (name, who) = (name.as_bytes().to_vec(), caller(request));
        self.ask(request, move |live| async move {
            entry(reply, live.mkdir((parent.0, &name), mode, who).await);
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.ask(request, move |live| async move {
            empty(reply, live.unlink(parent.0, &name, false).await);
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.ask(request, move |live| async move {
            empty(reply, live.unlink(parent.0, &name, true).await);
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, who) = (name.as_bytes().to_vec(), caller(request));
        let target = target.as_os_str().as_bytes().to_vec();
        self.ask(request, move |live| async move {
            entry(reply, live.symlink((parent.0, &name), &target, who).await);
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        how: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (old, new) = (name.as_bytes().to_vec(), new_name.as_bytes().to_vec());
        // RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT
        let how = match how.bits() {
            0 => RenameHow::Replace,
            1 => RenameHow::NoReplace,
            2 => RenameHow::Exchange,
            4 => RenameHow::Whiteout,
            _ => return reply.error(Errno::EINVAL),
        };
        self.ask(request, move |live| async move {
            empty(reply, live.rename((parent.0, &old), (new_parent.0, &new), how).await);
        });
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = new_name.as_bytes().to_vec();
        self.ask(request, move |live| async move {
            entry(reply, live.link(node.0, (new_parent.0, &name)).await);
        });
    }

    fn open(&self, request: &Request, node: INodeNo, how: OpenFlags, reply: ReplyOpen) {
        if Control::of(node.0).is_some() {
            // Lines come at once and whole.
            return reply.opened(FileHandle(node.0), FopenFlags::FOPEN_DIRECT_IO);
        }
        self.ask(request, move |live| async move {
            match live.open(node.0, open_flags(how.0)).await {
                Ok(fd) => reply.opened(FileHandle(u64::from(fd)), FopenFlags::FOPEN_KEEP_CACHE),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        how: i32,
        reply: ReplyCreate,
    ) {
        let (name, who) = (name.as_bytes().to_vec(), caller(request));
        let mode = (mode & 0o7777) as u16;
        let how = Flags { mode: (mode != 0o644).then_some(mode), ..open_flags(how) };
        self.ask(request, move |live| async move {
            match live.create((parent.0, &name), how, who).await {
                Ok((node, attr, fd)) => reply.created(
                    &FOREVER,
                    &file_attr(node, &attr),
                    Generation(0),
                    FileHandle(u64::from(fd)),
                    FopenFlags::FOPEN_KEEP_CACHE,
                ),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if Control::of(handle.0).is_some() {
            return reply.data(&[]);
        }
        self.ask(request, move |live| async move {
            match live.read(descriptor(handle), offset, size).await {
                Ok(bytes) => reply.data(&bytes),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        if let Some(control) = Control::of(handle.0) {
            return self.ask(request, move |live| async move {
                match live.told(control, &data) {
                    Ok(()) => reply.written(data.len() as u32),
                    Err(e) => reply.error(errno(&e)),
                }
            });
        }
        let is_mapped = how.contains(WriteFlags::FUSE_WRITE_CACHE);
        self.ask(request, move |live| async move {
            match live.write(descriptor(handle), offset, &data, is_mapped).await {
                Ok(n) => reply.written(n),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // `close` does nothing here that its release does not: the kernel asks once.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if Control::of(handle.0).is_some() {
            return reply.ok();
        }
        self.ask(request, move |live| async move {
            empty(reply, live.release(descriptor(handle)).await);
        });
    }

    fn fsync(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        if Control::of(handle.0).is_some() {
            return reply.ok();
        }
        self.ask(request, move |live| async move {
            empty(reply, live.fsync(descriptor(handle), data_only).await);
        });
    }

    fn opendir(&self, request: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.ask(request, move |live| async move {
            match live.open(node.0, Flags::READ).await {
                Ok(fd) => reply.opened(FileHandle(u64::from(fd)), FopenFlags::empty()),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn readdir(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.ask(request, move |live| async move {
            let listed = async {
                if offset == 0 {
                    live.rewind(node.0, handle.0).await?;
                }
                live.list(node.0, handle.0, offset, |ino, next, of, name| {
                    reply.add(INodeNo(ino), next, kind(of), OsStr::from_bytes(name))
                })
            };
            match listed.await {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn releasedir(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.ask(request, move |live| async move {
            empty(reply, live.close_dir(handle.0).await);
        });
    }

    fn fsyncdir(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.ask(request, move |live| async move {
            empty(reply, live.fsync(descriptor(handle), data_only).await);
        });
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.ask(request, move |live| async move {
            match live.stat_fs().await {
                Ok(s) => reply.statfs(
                    s.blocks,
                    s.blocks_free,
                    s.blocks_available,
                    s.inodes,
                    s.inodes_free,
                    s.block_bytes,
                    255,
                    s.block_bytes,
                ),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        how: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if name == CAPABILITY {
            self.has_capabilities.store(true, Ordering::Relaxed);
        }
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        let how = match how {
            0 => XattrSet::Any,
            1 => XattrSet::Create,
            2 => XattrSet::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        self.ask(request, move |live| async move {
            empty(reply, live.set_xattr(node.0, &name, &value, how).await);
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        if name == END && node == INodeNo::ROOT {
            self.end();
            return reply.error(Errno::ENODATA);
        }
        if name == CAPABILITY && !self.has_capabilities.load(Ordering::Relaxed) {
            return reply.error(Errno::ENODATA);
        }
        let name = name.as_bytes().to_vec();
        self.ask(request, move |live| async move {
            xattr(reply, size, live.get_xattr(node.0, &name).await);
        });
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        command: u32,
        input: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        if let Some(what) = ioctls::atomic(command).filter(|_| Control::of(handle.0).is_none()) {
            return self.ask(request, move |live| async move {
                match live.atomic_write(descriptor(handle), what).await {
                    Ok(()) => reply.ioctl(0, &[]),
                    Err(e) => reply.error(errno(&e)),
                }
            });
        }
        let given = input.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        self.ask(request, move |live| async move {
            let answer = match (command, given) {
                (ioctls::GETFLAGS, _) => live.flags(node.0).await.map(|f| f.to_le_bytes().to_vec()),
                (ioctls::GETXATTR, _) => live.flags(node.0).await.map(|flags| {
                    let mut answer = extended(flags).to_le_bytes().to_vec();
                    answer.resize(ioctls::XATTR_BYTES, 0);
                    answer
                }),
                // What is set has no answer.
                (ioctls::SETFLAGS, Some(flags)) => {
                    live.set_flags(node.0, flags).await.map(|()| Vec::new())
                }
                _ => return reply.error(Errno::ENOTTY),
            };
            match answer {
                Ok(answer) => reply.ioctl(0, &answer),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.ask(request, move |live| async move {
            xattr(reply, size, live.list_xattrs(node.0).await);
        });
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.ask(request, move |live| async move {
            empty(reply, live.remove_xattr(node.0, &name).await);
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.ask(request, move |live| async move {
            empty(reply, live.allocate(descriptor(handle), mode, offset, length).await);
        });
    }

    fn lseek(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // SEEK_DATA, SEEK_HOLE: the kernel does the others.
        let what = match whence {
            3 => Seek::Data,
            4 => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(at) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        self.ask(request, move |live| async move {
            match live.seek(descriptor(handle), at, what).await {
                Ok(at) => reply.offset(at as i64),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_at: u64,
        _: INodeNo,
        to: FileHandle,
        to_at: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.ask(request, move |live| async move {
            let (from, to) = ((descriptor(from), from_at), (descriptor(to), to_at));
            match live.copy(from, to, len).await {
                Ok(n) => reply.written(n),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }
}
