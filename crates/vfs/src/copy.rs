//! Copies within the file system.
//!
//! Source: `vfs_copy_file_range`, `splice_file_range`.

use wp_base::{FsError, FsResult};
use wp_rt::soon;

use crate::fs::FileType;
use crate::kiocb::Kiocb;
use crate::syscall::{Fd, Vfs};

/// Bytes that go through a pipe at once: its 16 pages (`splice_direct_to_actor`).
const PIPE_BYTES: u64 = 16 * 4096;

impl Vfs {
    /// Copies up to `len` bytes; answers how many, 0 at the end of the source. A file system that
    /// shares extents shares them; else the bytes are read and written in pieces of a pipe's size.
    ///
    /// Errors: `BadFile` for a target that is not open for writing or with `O_APPEND`; `Invalid`
    /// for what is no regular file, and for ranges of one file that overlap; what reading and
    /// writing say if nothing was copied.
    pub async fn copy_file_range(
        &self,
        (from, from_at): (Fd, u64),
        (to, to_at): (Fd, u64),
        len: u64,
    ) -> FsResult<u64> {
        let body = async {
            let (source, target) = (self.file(from)?, self.file_to_write(to)?);
            for ino in [source.ino, target.ino] {
                match self.kind(ino).await? {
                    FileType::File => {}
                    FileType::Dir => return Err(FsError::IsDir),
                    _ => return Err(FsError::Invalid("copy_file_range of no regular file")),
                }
            }
            if target.appends() {
                return Err(FsError::BadFile);
            }
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
            let shared = self.fs().share_range((source.ino, from_at), (target.ino, to_at), len);
            if let Some(n) = shared.await? {
                return Ok(n);
            }
            let mut done = 0;
            while done < len {
                let io = Kiocb::blocking();
                let piece = (len - done).min(PIPE_BYTES);
                let out = async {
                    let data = self.read_at(&source, from_at + done, piece, &io).await?;
                    match data.is_empty() {
                        true => Ok(0),
                        false => self.write_at(&target, to_at + done, &data, &io).await,
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
        };
        self.call("copy_file_range", || format!("{} -> {}", from.0, to.0), |n| *n, body).await
    }
}
