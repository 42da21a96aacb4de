//! Which blocks of which segment are in use: the SIT in memory.
//!
//! Source: Linux `fs/f2fs/segment.c` (`update_sit_entry`, `f2fs_invalidate_blocks`).

use super::mount::F2fs;

/// The SIT of a mounted file system.
pub(crate) struct Sit {}

impl F2fs {
    /// A block is not used any more (`f2fs_invalidate_blocks`). `NEW`: nothing happens.
    pub(crate) fn invalidate(&self, addr: u32) {
        let _ = addr;
        todo!()
    }

    /// Did the last checkpoint have the block in use (`f2fs_is_checkpointed_data`)? Yes for what is
    /// no block.
    pub(crate) fn is_checkpointed_data(&self, addr: u32) -> bool {
        let _ = addr;
        todo!()
    }

    /// Are holes of segments filled for want of free ones (`f2fs_need_SSR`)?
    pub(crate) fn need_ssr(&self) -> bool {
        todo!()
    }

    /// Percentage of the space in use (`utilization`).
    pub(crate) fn utilization(&self) -> u64 {
        todo!()
    }
}
