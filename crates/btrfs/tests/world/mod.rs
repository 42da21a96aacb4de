//! A device in a file, opened by the core.

use std::fs::File;
use std::os::unix::fs::FileExt;

use wp_base::{FsError, FsResult};
use wp_btrfs::core::{Core, Disk};

/// The core on an image.
pub fn open(file: &File) -> FsResult<Core<'_>> {
    let bytes = file.metadata().expect("a file").len();
    Core::open(Disk::new(bytes, move |at, out| {
        file.read_exact_at(out, at).map_err(|_| FsError::Io)
    }))
}
