//! What an image file is: the one place that every verb asks.
//!
//! Picture:    formats with a magic before all file systems (`known`) -> file systems that this
//!             build reads (`FsEntry::probe`) -> formats with another magic -> partition tables
//!             ([`partitions`]) -> formats whose magic is at the end -> nothing known.
//! Invariants: 1. no bytes make it panic, and it reads a bounded part of the image.
//!             2. a magic decides, not a checksum: a damaged super block is still one of its file
//!                system, and the file system says what is wrong with it.
//!             3. nothing here writes.
//! Left out:   what is inside of a container or behind encryption: the hint is the command that
//!             makes an image of it.
//! Source:     the documents of each format; magics as in `file(1)` and `blkid(8)`.

#![deny(clippy::indexing_slicing)]

mod known;
mod partitions;

pub use known::Known;
pub use partitions::{Partition, Scheme, Table};
use wp_base::SECTOR_BYTES;
use wp_medium::View;
use wp_vfs::FsEntry;

use crate::registry;

/// What an image is.
pub enum Identity {
    /// A file system that this build reads.
    FileSystem(&'static FsEntry),
    /// Another format, by name.
    Known(Known),
    /// A partition table.
    Table(Table),
    /// Nothing that is known here.
    Unknown(Unknown),
}

/// Why nothing is known of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// It has no bytes.
    Empty,
    /// Fewer bytes than the smallest file system.
    Short,
    /// All that was read of it is zero.
    Zeroes,
    /// A copy of a super block is there, and the first one is not.
    Copy {
        /// Name of the file system.
        fs: &'static str,
        /// Byte address of the copy.
        at: u64,
        /// What repairs it. `{}`: the file.
        fix: &'static str,
    },
    /// Other bytes.
    Other,
}

/// Bytes at the start that are all zero in an image called [`Unknown::Zeroes`].
const HEAD_BYTES: u64 = 128 << 10;

/// Bytes of the shortest image in which a super block fits: that of ext4 ends there.
const SMALLEST_BYTES: u64 = 2048;

/// What `view` is.
pub fn identify(view: &dyn View) -> Identity {
    if let Some(known) = known::at_start(view) {
        return Identity::Known(known);
    }
    if let Some(fs) = registry::FILE_SYSTEMS.iter().find(|fs| (fs.probe)(view)) {
        return Identity::FileSystem(fs);
    }
    if let Some(known) = known::behind(view) {
        return Identity::Known(known);
    }
    if let Some(table) = partitions::read(view) {
        return Identity::Table(table);
    }
    if let Some(known) = known::at_end(view) {
        return Identity::Known(known);
    }
    Identity::Unknown(unknown(view))
}

/// The partition table of `view`, whatever else it is.
pub fn partitions(view: &dyn View) -> Option<Table> {
    partitions::read(view)
}

/// In a container: a packed or encoded file, whose bytes are not those of a device.
pub fn container(view: &dyn View) -> Option<Known> {
    known::at_start(view).filter(Known::is_container)
}

fn unknown(view: &dyn View) -> Unknown {
    let bytes = view.len_bytes();
    if bytes == 0 {
        return Unknown::Empty;
    }
    if bytes < SMALLEST_BYTES {
        return Unknown::Short;
    }
    if let Some(copy) = known::copy(view) {
        return copy;
    }
    let is_zero = |at: u64| {
        let mut sector = [0; SECTOR_BYTES as usize];
        let n = usize::try_from((bytes - at).min(SECTOR_BYTES)).unwrap_or(0);
        let part = sector.get_mut(..n).unwrap_or(&mut []);
        view.read_at(at, part).is_ok() && part.iter().all(|b| *b == 0)
    };
    let end = bytes.min(HEAD_BYTES);
    match (0..end).step_by(SECTOR_BYTES as usize).all(is_zero) {
        true => Unknown::Zeroes,
        false => Unknown::Other,
    }
}

/// `N` bytes at byte `at`. `None`: the image ends before, or cannot be read.
fn bytes_at<const N: usize>(view: &dyn View, at: u64) -> Option<[u8; N]> {
    let end = at.checked_add(u64::try_from(N).ok()?)?;
    let mut bytes = [0; N];
    (end <= view.len_bytes() && view.read_at(at, &mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests;
