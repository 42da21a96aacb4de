//! Untorn writes of system calls: `pwritev2` with `RWF_ATOMIC`, and what `statx` tells of them.
//!
//! Picture:    may the file be written so at all ([`FileSystem::atomic_limits`])? -> one buffer, a
//!             power of two long, at a multiple of that, past the cache -> the file system's direct
//!             write, which makes one bio of it.
//! Promise:    after a power failure the write is there whole or not at all. Durability is that of
//!             any write: `O_DSYNC`, `fsync`.
//! Source:     behaviour of `kiocb_set_rw_flags()`, `generic_atomic_write_valid()`,
//!             `generic_fill_statx_atomic_writes()` (Linux 6.13).

use std::pin::pin;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_block::Status;
use wp_medium::Slice;
use wp_rt::soon;

use crate::kiocb::Kiocb;
use crate::syscall::{Fd, OpenFile, Vfs, total};

#[cfg(doc)]
use crate::fs::FileSystem;

/// What `statx(STATX_WRITE_ATOMIC)` tells of a file. Bytes; all 0: it has no untorn writes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WriteAtomic {
    /// The shortest untorn write.
    pub unit_min: u32,
    /// The longest.
    pub unit_max: u32,
    /// User buffers that one may have.
    pub segments_max: u32,
}

/// What a call answers for a write that the block layer failed: only an untorn one is refused as
/// such (`blk_status_to_errno()`).
pub const fn failed_write(status: Status) -> FsError {
    match status {
        Status::Invalid => FsError::Invalid("RWF_ATOMIC: the block layer would have to split it"),
        _ => FsError::Io,
    }
}

impl Vfs {
    /// Writes at an offset from user buffers, whole or not at all (`pwritev2` with `RWF_ATOMIC`).
    ///
    /// Errors: `NotInKernel` (EOPNOTSUPP) for a file that cannot be written so and through a
    /// descriptor without `O_DIRECT`; `Invalid` for several buffers, a length that is no power of
    /// two or not within the limits, an offset that is no multiple of the length; as
    /// [`Vfs::pwrite`].
    pub async fn pwrite_atomic(&self, fd: Fd, offset: u64, buffers: &[&[Slice]]) -> FsResult<u64> {
        let body = async {
            let file = self.file_to_write(fd)?;
            self.may_be_untorn(&file, offset, buffers)?;
            let data = buffers.first().copied().unwrap_or_default();
            self.write_at(&file, offset, data, &Kiocb::untorn()).await
        };
        self.call("pwritev2", || fd.0.to_string(), |n| *n, pin!(body)).await
    }

    /// An open file that may be written, untorn (`kiocb_set_rw_flags`). Errors: `BadFile`,
    /// `NotInKernel`.
    pub(crate) fn file_to_be_untorn(&self, fd: Fd) -> FsResult<Rc<OpenFile>> {
        let file = self.file_to_write(fd)?;
        let offered = self.fs().atomic_limits(file.ino);
        offered.map(|_| file).ok_or(FsError::NotInKernel)
    }

    /// Is it one that may be made?
    pub(crate) fn may_be_untorn(
        &self,
        file: &OpenFile,
        offset: u64,
        buffers: &[&[Slice]],
    ) -> FsResult<()> {
        let limits = self.fs().atomic_limits(file.ino).ok_or(FsError::NotInKernel)?;
        let len: u64 = buffers.iter().map(|b| total(b)).sum();
        if self.fs().has_devices() {
            // A block device leaves the limits to the block layer, and writes nothing at once.
            if len == 0 {
                return Ok(());
            }
        } else if len < u64::from(limits.unit_min) || len > u64::from(limits.unit_max) {
            return Err(FsError::Invalid("RWF_ATOMIC: a length outside statx's limits"));
        }
        if buffers.len() != 1 {
            return Err(FsError::Invalid("RWF_ATOMIC: more than one user buffer"));
        }
        if !len.is_power_of_two() {
            return Err(FsError::Invalid("RWF_ATOMIC: a length that is no power of two"));
        }
        if !offset.is_multiple_of(len) {
            return Err(FsError::Invalid(
                "RWF_ATOMIC: an offset that is no multiple of the length",
            ));
        }
        if !file.is_direct() {
            return Err(FsError::NotInKernel);
        }
        Ok(())
    }

    /// What `statx` tells of untorn writes to a file.
    pub async fn statx_write_atomic(&self, path: &str) -> FsResult<WriteAtomic> {
        let body = async {
            let ino = self.walk(path).await?;
            // So that the inode is in memory.
            soon!(self.fs().attr(ino))?;
            let limits = self.fs().atomic_limits(ino);
            Ok(limits.map_or(WriteAtomic::default(), |l| WriteAtomic {
                unit_min: l.unit_min,
                unit_max: l.unit_max,
                segments_max: 1,
            }))
        };
        let told = |w: &WriteAtomic| u64::from(w.unit_max);
        self.call("statx", || path.to_owned(), told, pin!(body)).await
    }
}
