//! Atomic writes of F2FS: all writes between a start and a commit, or none.
//!
//! Source: Linux `include/uapi/linux/f2fs.h`, `fs/f2fs/file.c` (`f2fs_ioc_start_atomic_write` and
//!         those beside it).

use wp_base::{FsError, FsResult};

use crate::file_type::FileType;
use crate::syscall::{Fd, Vfs};

/// What is asked of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicWrite {
    /// Writes from here on belong together (`F2FS_IOC_START_ATOMIC_WRITE`). Under way already:
    /// nothing.
    Start,
    /// The same, and the file begins empty (`F2FS_IOC_START_ATOMIC_REPLACE`).
    Replace,
    /// All of them are the file's (`F2FS_IOC_COMMIT_ATOMIC_WRITE`). Without a start: an fdatasync.
    Commit,
    /// None of them is (`F2FS_IOC_ABORT_ATOMIC_WRITE`). Without a start: nothing.
    Abort,
}

impl AtomicWrite {
    const fn name(self) -> &'static str {
        match self {
            AtomicWrite::Start => "ioctl(F2FS_IOC_START_ATOMIC_WRITE)",
            AtomicWrite::Replace => "ioctl(F2FS_IOC_START_ATOMIC_REPLACE)",
            AtomicWrite::Commit => "ioctl(F2FS_IOC_COMMIT_ATOMIC_WRITE)",
            AtomicWrite::Abort => "ioctl(F2FS_IOC_ABORT_ATOMIC_WRITE)",
        }
    }

    /// Its words in programs.
    const WORDS: [(&'static str, AtomicWrite); 4] = [
        ("atomic_start", AtomicWrite::Start),
        ("atomic_replace", AtomicWrite::Replace),
        ("atomic_commit", AtomicWrite::Commit),
        ("atomic_abort", AtomicWrite::Abort),
    ];

    /// Its word in a program.
    pub fn word(self) -> &'static str {
        AtomicWrite::WORDS.iter().find(|(_, what)| *what == self).map_or("", |(word, _)| word)
    }

    /// What a word of a program asks for.
    pub fn of_word(word: &str) -> Option<AtomicWrite> {
        AtomicWrite::WORDS.iter().find(|(known, _)| *known == word).map(|(_, what)| *what)
    }

    const fn starts(self) -> bool {
        matches!(self, AtomicWrite::Start | AtomicWrite::Replace)
    }
}

impl Vfs {
    /// An ioctl of atomic writes on an open file.
    ///
    /// Errors: `NoSuchIoctl` of a file system without them; `BadFile` if not open for writing; for
    /// a start `Invalid` of what is no regular file, or is open with `O_DIRECT`; as
    /// [`crate::FileSystem::atomic_write`]. The one user is root, whom no file's owner refuses.
    pub async fn atomic_write(&self, fd: Fd, what: AtomicWrite) -> FsResult<()> {
        let body = async {
            let file = self.file(fd)?;
            if !self.fs().has_atomic_writes() {
                return Err(FsError::NoSuchIoctl);
            }
            if !file.is_for_writing() {
                return Err(FsError::BadFile);
            }
            if what.starts() && self.kind(file.ino).await? != FileType::File {
                return Err(FsError::Invalid("an atomic write is for regular files"));
            }
            if what.starts() && file.is_direct() {
                return Err(FsError::Invalid("an atomic write goes through the page cache"));
            }
            self.fs().atomic_write(file.ino, what, file.told()).await
        };
        self.call(what.name(), || fd.0.to_string(), |()| 0, body).await
    }
}
