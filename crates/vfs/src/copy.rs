//! Copies within the file system, and blocks that files share.
//!
//! Source: `vfs_copy_file_range`, `splice_file_range` (fs/read_write.c, splice.c),
//! `vfs_clone_file_range`, `vfs_dedupe_file_range` (fs/remap_range.c) of Linux 6.12.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::Slice;
use wp_rt::soon;

use crate::file_type::FileType;
use crate::flags::FileFlags;
use crate::fs::{Share, SyncKind};
use crate::kiocb::Kiocb;
use crate::syscall::{Fd, OpenFile, Vfs};

/// Bytes of a page of memory.
const PAGE: u64 = 4096;
/// Bytes that go through a pipe at once: its 16 pages (`splice_direct_to_actor`).
const PIPE_BYTES: u64 = 16 * PAGE;
/// Most bytes that one call shares: `MAX_RW_COUNT` of a copy, and 1 GiB of a dedupe.
const COPY_MAX: u64 = (i32::MAX as u64) / 4096 * 4096;
const DEDUPE_MAX: u64 = 1 << 30;

impl Vfs {
    /// Copies up to `len` bytes; answers how many, 0 at the end of the source. A file system that
    /// shares extents shares them where that can be; else the bytes are read and written in pieces
    /// of a pipe's size.
    ///
    /// Errors: `NoSuchCall` before Linux 4.5; `BadFile` for a target that is not open for writing
    /// or with `O_APPEND`; `IsDir` and `Invalid` for what is no regular file, and `Invalid` for
    /// ranges of one file that overlap; what reading and writing say if nothing was copied.
    pub async fn copy_file_range(
        &self,
        (from, from_at): (Fd, u64),
        (to, to_at): (Fd, u64),
        len: u64,
    ) -> FsResult<u64> {
        let body = async {
            if !self.fs().has_copy_range() {
                return Err(FsError::NoSuchCall);
            }
            let (source, target) = (self.file(from)?, self.file(to)?);
            self.check_files(&source, &target).await?;
            let far = from_at.checked_add(len).and(to_at.checked_add(len));
            far.ok_or(FsError::TooBig)?;
            let size = soon!(self.fs().attr(source.ino))?.size;
            let len = len.min(size.saturating_sub(from_at));
            let (from_end, to_end) = (from_at + len, to_at + len);
            if source.ino == target.ino && from_at < to_end && to_at < from_end {
                return Err(FsError::Invalid("copy_file_range of ranges that overlap"));
            }
            if len == 0 {
                return Ok(0);
            }
            if self.fs().can_share() {
                let ranges = [(&source, from_at), (&target, to_at)];
                match self.share(ranges, len.min(COPY_MAX), Share::Copy).await {
                    Ok(n) if n > 0 => return Ok(n),
                    Err(e @ FsError::Unsupported(_)) => return Err(e),
                    // The bytes are copied instead, whatever the error was.
                    Ok(_) | Err(_) => {}
                }
            }
            self.splice((&source, from_at), (&target, to_at), len).await
        };
        self.call("copy_file_range", || format!("{} -> {}", from.0, to.0), |n| *n, body).await
    }

    /// `ioctl(FICLONERANGE)`: a range of a file shares the blocks of another; `len` 0: up to the
    /// end of the source.
    ///
    /// Errors: `NotInKernel` where the file system shares nothing; as
    /// [`Vfs::copy_file_range`] and [`crate::FileSystem::share_range`].
    pub async fn clone_range(
        &self,
        (from, from_at): (Fd, u64),
        (to, to_at): (Fd, u64),
        len: u64,
    ) -> FsResult<()> {
        let body = async {
            let target = self.file(to)?;
            let source = self.file(from)?;
            self.check_files(&source, &target).await?;
            if !self.fs().can_share() {
                return Err(FsError::NotInKernel);
            }
            check_area(from_at, len)?;
            check_area(to_at, len)?;
            let ranges = [(&source, from_at), (&target, to_at)];
            let cloned = self.share(ranges, len, Share::Clone).await?;
            match len == 0 || cloned == len {
                true => Ok(()),
                false => Err(FsError::Invalid("a range that can be cloned in part only")),
            }
        };
        let name = "ioctl(FICLONERANGE)";
        self.call(name, || format!("{} -> {}", from.0, to.0), |()| len, body).await
    }

    /// `ioctl(FIDEDUPERANGE)` with one target: a range of a file shares the blocks of another if
    /// both have the same bytes; answers the bytes that were asked for. The target need not be
    /// open for writing: there is no other user than root (`may_dedupe_file`).
    ///
    /// Errors: `Differs` if the bytes differ; `NotInKernel` where the file system shares nothing;
    /// `IsDir` and `Invalid` for what is no regular file or not within the files; as
    /// [`crate::FileSystem::share_range`].
    pub async fn dedupe_range(
        &self,
        (from, from_at): (Fd, u64),
        (to, to_at): (Fd, u64),
        len: u64,
    ) -> FsResult<u64> {
        let body = async {
            let source = self.file(from)?;
            match self.kind(source.ino).await? {
                FileType::File => {}
                FileType::Dir => return Err(FsError::IsDir),
                _ => return Err(FsError::Invalid("a dedupe of no regular file")),
            }
            if !self.fs().can_share() {
                return Err(FsError::NotInKernel);
            }
            check_area(from_at, len)?;
            let size = soon!(self.fs().attr(source.ino))?.size;
            if from_at + len > size {
                return Err(FsError::Invalid("a dedupe of bytes behind the end of the source"));
            }
            let len = len.min(DEDUPE_MAX);
            let target = self.file(to)?;
            check_area(to_at, len)?;
            match self.kind(target.ino).await? {
                FileType::File => {}
                FileType::Dir => return Err(FsError::IsDir),
                _ => return Err(FsError::Invalid("a dedupe into no regular file")),
            }
            if len > 0 {
                let ranges = [(&source, from_at), (&target, to_at)];
                self.share(ranges, len, Share::Dedupe).await?;
            }
            Ok(len)
        };
        let name = "ioctl(FIDEDUPERANGE)";
        self.call(name, || format!("{} -> {}", from.0, to.0), |n| *n, body).await
    }

    /// `generic_file_rw_checks`.
    async fn check_files(&self, source: &OpenFile, target: &OpenFile) -> FsResult<()> {
        let kinds = [self.kind(source.ino).await?, self.kind(target.ino).await?];
        if kinds.contains(&FileType::Dir) {
            return Err(FsError::IsDir);
        }
        if kinds != [FileType::File; 2] {
            return Err(FsError::Invalid("a copy of no regular file"));
        }
        if !target.is_for_writing() || target.appends() {
            return Err(FsError::BadFile);
        }
        // `generic_copy_file_checks`, `__generic_remap_file_range_prep`.
        match self.fs().flags_in_memory(target.ino).has(FileFlags::IMMUTABLE) {
            true => Err(FsError::NotPermitted),
            false => Ok(()),
        }
    }

    /// Blocks are shared; if one of the descriptors or files is synchronous (`file_sync_write`)
    /// both files are synced then (`btrfs_remap_file_range`).
    async fn share(
        &self,
        [(source, from_at), (target, to_at)]: [(&Rc<OpenFile>, u64); 2],
        len: u64,
        how: Share,
    ) -> FsResult<u64> {
        let ranges = ((source.ino, from_at), (target.ino, to_at));
        let n = self.fs().share_range(ranges.0, ranges.1, len, how).await?;
        let is_synced = |file: &OpenFile| {
            file.is_synced() || self.fs().flags_in_memory(file.ino).has(FileFlags::SYNC)
        };
        if n > 0 && (is_synced(source) || is_synced(target)) {
            for file in [source, target] {
                self.fs().sync_file(file.ino, SyncKind::Full, file.told()).await?;
            }
        }
        Ok(n)
    }

    /// Bytes are read and written. `do_splice_direct`.
    async fn splice(
        &self,
        (source, from_at): (&OpenFile, u64),
        (target, to_at): (&OpenFile, u64),
        len: u64,
    ) -> FsResult<u64> {
        let mut done = 0;
        while done < len {
            let io = Kiocb::blocking();
            let piece = (len - done).min(PIPE_BYTES);
            // A page of the cache that is begun within takes a page of the pipe, so the last one
            // that is read may find none (`filemap_splice_read`).
            let within = if source.is_direct() { 0 } else { (from_at + done) % PAGE };
            let out = async {
                let mut data = self.read_at(source, from_at + done, piece, &io).await?;
                cut(&mut data, PIPE_BYTES - within);
                match data.is_empty() {
                    true => Ok(0),
                    false => self.write_at(target, to_at + done, &data, &io).await,
                }
            };
            match out.await {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

/// Leaves the first `most` bytes.
fn cut(data: &mut Vec<Slice>, most: u64) {
    let mut left = most;
    data.retain_mut(|s| {
        let kept = left.min(u64::from(s.len()));
        left -= kept;
        *s = s.sub(0, kept as u32);
        kept > 0
    });
}

/// `remap_verify_area`.
fn check_area(at: u64, len: u64) -> FsResult<()> {
    let end = at.checked_add(len).filter(|end| *end <= i64::MAX.cast_unsigned());
    end.map(drop).ok_or(FsError::Invalid("a range beyond the offsets that there are"))
}
