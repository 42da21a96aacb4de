//! What a program did, and what was there before.

use wp_base::FsError;
use wp_medium::Slice;
use wp_vfs::{FileFlags, FileType, Stat, TimeSpec};
use wp_workload::program::{Call, Ended};

use super::Used;

/// What an operation of a program did.
#[derive(Clone, Debug)]
pub struct Did {
    /// The call.
    pub call: Call,
    /// Thread of the process that made it; 0: the main thread.
    pub thread: u32,
    /// The files behind its descriptors when it began, where threads are told apart.
    pub uses: Vec<Used>,
    /// What it answered, if no success.
    pub error: Option<FsError>,
    /// For `pwrite`: bytes that it wrote, if it answered fewer than it was given.
    pub short: Option<u32>,
    /// For `pread`: what was there.
    pub read: Vec<Slice>,
    /// For `open`: the inode behind the descriptor.
    pub ino: Option<u64>,
    /// For `mkcp`: the number of the newest checkpoint.
    pub checkpoint: Option<u64>,
    /// For `utimensat`: the time of modification that the file has now.
    pub mtime: Option<TimeSpec>,
    /// For `open` and `chattr`: the flags that the file has now.
    pub flags: Option<FileFlags>,
    /// For a failed `ftruncate`, `truncate` or `fallocate`: the length that the file has now.
    pub size: Option<u64>,
    /// For `aio_wait`: what has ended, by the number of the operation that submitted it.
    pub ended: Vec<Ended>,
}

impl Did {
    /// A call that succeeded, and read, opened and ended nothing.
    pub fn of(call: Call) -> Did {
        Did {
            call,
            thread: 0,
            uses: Vec::new(),
            error: None,
            short: None,
            read: Vec::new(),
            ino: None,
            checkpoint: None,
            mtime: None,
            flags: None,
            size: None,
            ended: Vec::new(),
        }
    }

    /// The line of a program that makes the call, without the contents of a recorded one.
    pub fn text(&self) -> String {
        match self.thread {
            0 => format!("{:#}", self.call),
            thread => format!("thread {thread}: {:#}", self.call),
        }
    }
}

/// A file that is there before the program.
#[derive(Clone, PartialEq, Debug)]
pub struct Before {
    /// Path without a leading slash; `.` is the root directory. Two with one inode number are names
    /// of one file.
    pub path: String,
    /// Kind.
    pub kind: FileType,
    /// Inode number.
    pub ino: u64,
    /// Is it the root directory of a subvolume?
    pub subvolume: bool,
    /// Length in bytes.
    pub size: u64,
    /// Plain attributes.
    pub stat: Stat,
    /// Target of a symbolic link.
    pub target: Option<String>,
    /// Extended attributes, by name with its prefix.
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// What it holds, by the byte at which it begins; the rest is zeroes.
    pub data: Vec<(u64, Slice)>,
}
