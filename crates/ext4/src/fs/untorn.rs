//! Untorn writes of one block (`RWF_ATOMIC`, Linux 6.13).
//!
//! Rule:       a regular file with extents, past the cache, exactly one block, if the drive keeps
//!             so much whole: the least and the longest unit are the block size.
//! Over a cut: the block is one bio that is never split, and one request of the drive. A block that
//!             is allocated for it is unwritten until the data are there, so old is zeroes.
//! Left out:   several blocks, which need `bigalloc` (6.16); images with it are refused.
//! Source:     behaviour of `ext4_atomic_write_init()`, `ext4_inode_can_atomic_write()`,
//!             `ext4_file_write_iter()` (Linux 6.13).

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::AtomicLimits;
use wp_vfs::Kiocb;

use super::inode::Inode;
use super::mount::Ext4;
use crate::disk::incompat;
use crate::disk::inode::flag;

impl Ext4 {
    /// What it offers of a file.
    pub(super) fn untorn_limits(&self, inode: &Inode) -> Option<AtomicLimits> {
        let is_fit = self.opts.era.has_untorn_writes()
            && self.sb.borrow().has_incompat(incompat::EXTENTS)
            && inode.disk.borrow().is_file()
            && inode.has(flag::EXTENTS);
        let drive = self.bdev.queue().atomic_limits().filter(|_| is_fit)?;
        let block = self.bs().bytes();
        let (unit_min, unit_max) = (block.max(drive.unit_min), block.min(drive.unit_max));
        (unit_min <= unit_max).then_some(AtomicLimits { unit_min, unit_max, ..drive })
    }

    /// May a direct write at `at` be untorn, if it is to be? A write to the end has no place before
    /// this. Errors: `Invalid`.
    pub(super) fn check_untorn(&self, io: &Kiocb, at: u64) -> FsResult<()> {
        match io.is_untorn() && !at.is_multiple_of(u64::from(self.bs().bytes())) {
            true => Err(FsError::Invalid("RWF_ATOMIC: the end of the file is within a block")),
            false => Ok(()),
        }
    }
}

/// The flag of its bios.
pub(super) fn flag_of(io: &Kiocb) -> Flags {
    if io.is_untorn() { Flags::ATOMIC } else { Flags::NONE }
}
