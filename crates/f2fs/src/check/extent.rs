//! The largest extent that an inode remembers, against the addresses of its blocks.

use std::fmt;

use crate::disk::Inode;
use crate::disk::inode::{LargestExtent, flag};

/// `i_ext` and what was seen of the blocks that it names. `check_extent_info` of fsck.f2fs.
pub(super) struct LargestSeen {
    extent: LargestExtent,
    /// Blocks of it that are where it says.
    right: u64,
    is_wrong: bool,
}

impl LargestSeen {
    /// Of an inode.
    pub(super) fn new(inode: &Inode) -> LargestSeen {
        let mut extent = inode.ext;
        // The addresses of a compressed cluster are no run of blocks.
        if inode.flags.get() & flag::COMPR != 0 {
            extent.len = 0.into();
        }
        LargestSeen { extent, right: 0, is_wrong: false }
    }

    /// Notes the addresses of blocks of the file from `first` on.
    pub(super) fn see(&mut self, first: u64, addresses: &[u32]) {
        let (start, block) = (u64::from(self.extent.fofs.get()), u64::from(self.extent.blk.get()));
        let blocks = u64::from(self.extent.len.get());
        if blocks == 0 {
            return;
        }
        for (address, logical) in addresses.iter().zip(first..) {
            let address = u64::from(*address);
            if (start..start + blocks).contains(&logical) {
                match address == block + (logical - start) {
                    true => self.right += 1,
                    false => self.is_wrong = true,
                }
            } else if (block..block + blocks).contains(&address) {
                self.is_wrong = true;
            }
        }
    }

    /// Are all of its blocks where it says?
    pub(super) fn is_right(&self) -> bool {
        !self.is_wrong && self.right == u64::from(self.extent.len.get())
    }
}

impl fmt::Display for LargestSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.extent;
        write!(f, "{} blocks at {} from block {} on", e.len.get(), e.blk.get(), e.fofs.get())
    }
}
