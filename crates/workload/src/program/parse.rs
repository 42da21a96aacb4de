//! Calls of programs out of their words.

use wp_vfs::{AtomicWrite, DeviceNumber, FileFlags, FileType, Seek};

use super::advise::Advise;
use super::call::{AIO_MOST, Alloc, COPY_MAX, Call, Flags, LIMITS, RENAMES, XATTR_MAX};
use super::data::Data;
use super::pwrite;
use super::words::{Words, one_of};

pub(super) fn call(name: &str, w: &mut Words<'_>) -> Result<Call, String> {
    Ok(match name {
        "open" => Call::Open(w.fd()?, w.owned()?, Flags::parse(w.text()?)?),
        "close" => Call::Close(w.fd()?),
        "pwrite" => pwrite::parsed(w)?,
        "mmap_write" => {
            let (fd, len, at) = (w.fd()?, w.small(LIMITS.1 + 1)?, w.number()?);
            Call::MmapWrite { fd, len, at, data: Data::parse(w.text()?, len)? }
        }
        "msync" => Call::Msync(w.fd()?, w.number()?, w.number()?),
        "sync_file_range" => Call::SyncFileRange(w.fd()?, w.number()?, w.number()?),
        "copy_file_range" | "reflink" | "dedupe" => {
            let (from, from_at, to, to_at) = (w.fd()?, w.number()?, w.fd()?, w.number()?);
            let len = u64::from(w.small(COPY_MAX + 1)?);
            match name {
                "reflink" => Call::Reflink { from, from_at, to, to_at, len },
                "dedupe" => Call::Dedupe { from, from_at, to, to_at, len },
                _ => Call::CopyFileRange { from, from_at, to, to_at, len },
            }
        }
        "fsync" => Call::Fsync(w.fd()?),
        "fdatasync" => Call::Fdatasync(w.fd()?),
        "fbarrier" => Call::Fbarrier(w.fd()?),
        "fdatabarrier" => Call::Fdatabarrier(w.fd()?),
        "syncfs" => Call::Syncfs(w.fd()?),
        "sync" => Call::Sync,
        "ftruncate" => Call::Ftruncate(w.fd()?, w.number()?),
        "fallocate" => {
            let fd = w.fd()?;
            let mode = w.text()?;
            let mode = Alloc::NAMES
                .iter()
                .find(|(n, _)| *n == mode)
                .map(|(_, a)| *a)
                .ok_or_else(|| format!("`{mode}`: one of {}", one_of(&Alloc::NAMES)))?;
            Call::Fallocate(fd, mode, w.number()?, w.number()?)
        }
        "rename" => Call::Rename(w.owned()?, w.owned()?),
        "renameat2" => {
            let (a, b, flag) = (w.owned()?, w.owned()?, w.text()?);
            let known = RENAMES.iter().find(|(n, _)| *n == flag).map(|(_, how)| *how);
            let none = || format!("`{flag}`: one of {}", one_of(&RENAMES));
            Call::Renameat2(a, b, known.ok_or_else(none)?)
        }
        "link" => Call::Link(w.owned()?, w.owned()?),
        "linkat" => Call::Linkat(w.fd()?, w.owned()?),
        "mknod" => {
            let (path, kind) = (w.owned()?, w.text()?);
            let kind = match kind {
                "char" => FileType::Char,
                "block" => FileType::Block,
                _ => return Err(format!("`{kind}`: one of char, block")),
            };
            let (major, minor) = (w.small(1 << 12)?, w.small(1 << 20)?);
            Call::Mknod(path, kind, DeviceNumber { major, minor })
        }
        "mkfifo" => Call::Mkfifo(w.owned()?),
        "chmod" => Call::Chmod(w.owned()?, w.octal()?),
        "chown" => Call::Chown(w.owned()?, w.small(u32::MAX)?, w.small(u32::MAX)?),
        "utimensat" => Call::Utimensat(w.owned()?, w.time()?, w.time()?),
        "truncate" => Call::Truncate(w.owned()?, w.number()?),
        "unlink" => Call::Unlink(w.owned()?),
        "mkdir" => Call::Mkdir(w.owned()?),
        "rmdir" => Call::Rmdir(w.owned()?),
        "symlink" => Call::Symlink(w.owned()?, w.owned()?),
        "setxattr" => {
            let (path, name, len) = (w.owned()?, w.owned()?, w.small(XATTR_MAX + 1)?);
            Call::SetXattr { path, name, len, data: Data::parse(w.text()?, len)? }
        }
        "subvolume_create" => Call::SubvolumeCreate(w.owned()?),
        "snapshot" => {
            Call::Snapshot { from: w.owned()?, to: w.owned()?, readonly: w.has("readonly") }
        }
        "subvolume_delete" => Call::SubvolumeDelete(w.owned()?),
        "chattr" => Call::Chattr(w.owned()?, FileFlags::parse(w.text()?)?),
        "seek_data" => Call::Seek(w.fd()?, Seek::Data, w.number()?),
        "seek_hole" => Call::Seek(w.fd()?, Seek::Hole, w.number()?),
        "mkcp" => Call::Mkcp(w.option("-s")?),
        "chcp" => Call::Chcp(is_snapshot(w.text()?)?, w.number()?),
        "rmcp" => Call::Rmcp(w.number()?),
        "removexattr" => Call::RemoveXattr(w.owned()?, w.owned()?),
        "pread" => Call::Pread { fd: w.fd()?, len: w.small(LIMITS.1 + 1)?, at: w.number()? },
        "fadvise" => {
            let fd = w.fd()?;
            let what = w.text()?;
            let known = Advise::NAMES.iter().find(|(n, _)| *n == what).map(|(_, a)| *a);
            let none = || format!("`{what}`: one of normal, sequential, random, dontneed");
            Call::Fadvise(fd, known.ok_or_else(none)?)
        }
        "aio_write" => Call::AioWrite {
            fd: w.fd()?,
            len: w.small(LIMITS.1 + 1)?,
            at: w.number()?,
            seed: w.small(u32::MAX)?,
        },
        "aio_read" => Call::AioRead { fd: w.fd()?, len: w.small(LIMITS.1 + 1)?, at: w.number()? },
        "aio_wait" => Call::AioWait(w.small(AIO_MOST + 1)?),
        "drop_caches" => Call::DropCaches,
        "mark" => Call::Mark(w.owned()?),
        "ack" => Call::Ack(Data::said(w.text()?)?),
        _ => {
            if let Some(what) = AtomicWrite::of_word(name) {
                return Ok(Call::Atomic(w.fd()?, what));
            }
            return Err(match refused(name) {
                Some(why) => format!("`{name}`: {why}"),
                None => format!(
                    "`{name}` is neither a step nor a call of programs; `writepath list calls` has \
                     them"
                ),
            });
        }
    })
}

/// The mode that `chcp` gives a checkpoint.
fn is_snapshot(mode: &str) -> Result<bool, String> {
    match mode {
        "ss" => Ok(true),
        "cp" => Ok(false),
        mode => Err(format!("`{mode}`: one of ss, cp")),
    }
}

/// What people look for and programs have not: what to do instead.
fn refused(name: &str) -> Option<&'static str> {
    Some(match name {
        "subvolume" => "the calls are subvolume_create, snapshot and subvolume_delete",
        "quota" => "programs set no quotas; `writepath fsck` checks those of an image",
        "compression" => {
            "programs compress no files; `writepath inspect` lists images with such files"
        }
        _ => return None,
    })
}
