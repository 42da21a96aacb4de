//! `lseek` with `SEEK_DATA` and `SEEK_HOLE`.

use wp_base::{FsError, FsResult};

use crate::file_type::FileType;
use crate::syscall::{Fd, Vfs};

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// `SEEK_DATA`: the first byte that is stored.
    Data,
    /// `SEEK_HOLE`: the first byte that is not.
    Hole,
}

/// Of a file of `size` bytes that is all data (`generic_file_llseek_size`). Errors: `NoSuchPlace`
/// from the end on.
pub fn seek_in_data(size: u64, offset: u64, what: Seek) -> FsResult<u64> {
    match what {
        _ if offset >= size => Err(FsError::NoSuchPlace),
        Seek::Data => Ok(offset),
        Seek::Hole => Ok(size),
    }
}

/// What a stretch of a file's blocks is to [`seek_in_runs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeekRun {
    /// Blocks of it, 1 or more.
    pub blocks: u64,
    /// Is it found by `SEEK_DATA`?
    pub is_data: bool,
    /// Is it found by `SEEK_HOLE`?
    pub is_hole: bool,
}

/// Where in a file of `size` bytes, with blocks of `block` bytes, the first stretch is that is
/// looked for, at or behind `offset` (`iomap_seek_data`, `iomap_seek_hole`). `run`: what begins
/// with a block. Errors: `NoSuchPlace` from the end on, and where no data follow; those of `run`.
pub async fn seek_in_runs(
    (size, block): (u64, u64),
    offset: u64,
    what: Seek,
    mut run: impl AsyncFnMut(u64) -> FsResult<SeekRun>,
) -> FsResult<u64> {
    if offset >= size {
        return Err(FsError::NoSuchPlace);
    }
    let mut at = offset / block;
    while at < size.div_ceil(block) {
        let found = run(at).await?;
        let ends = match what {
            Seek::Data => found.is_data,
            Seek::Hole => found.is_hole,
        };
        if ends {
            return Ok((at * block).max(offset));
        }
        at = at.saturating_add(found.blocks.max(1));
    }
    match what {
        Seek::Data => Err(FsError::NoSuchPlace),
        Seek::Hole => Ok(size),
    }
}

impl Vfs {
    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`; the descriptor's position stays where it is, as no
    /// call here uses it. Errors: `NoSuchPlace` from the end on, and if no data follow.
    pub async fn seek(&self, fd: Fd, offset: u64, what: Seek) -> FsResult<u64> {
        let body = async {
            let file = self.file(fd)?;
            if self.kind(file.ino).await? != FileType::File {
                let text = "seek_data and seek_hole of what is no regular file";
                return Err(FsError::Unsupported(text.to_owned()));
            }
            if i64::try_from(offset).is_err() {
                // Negative for the kernel.
                return Err(FsError::NoSuchPlace);
            }
            self.fs().seek(file.ino, offset, what).await
        };
        self.call("lseek", || fd.0.to_string(), |at| *at, body).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_all_data_has_its_hole_at_the_end() {
        assert_eq!(seek_in_data(100, 7, Seek::Data), Ok(7));
        assert_eq!(seek_in_data(100, 7, Seek::Hole), Ok(100));
        for what in [Seek::Data, Seek::Hole] {
            assert_eq!(seek_in_data(100, 100, what), Err(FsError::NoSuchPlace));
            assert_eq!(seek_in_data(0, 0, what), Err(FsError::NoSuchPlace));
        }
    }
}
