//! A guest's memory: files that it shares, mapped; and addresses of its process in them.

use std::fs::File;
use std::sync::Arc;

use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// Most regions (what vhost-user allows).
pub const MAX_REGIONS: usize = 8;

/// Memory of the guest, by its physical addresses. Requests in flight keep the one that they began
/// with.
pub type Shared = Arc<GuestMemoryMmap>;

/// A region as the front end tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Physical address in the guest.
    pub guest: u64,
    /// Bytes.
    pub bytes: u64,
    /// Address in the front end's process, which rings are told by.
    pub user: u64,
    /// Where in its file it begins.
    pub offset: u64,
}

/// All regions.
pub struct Memory {
    regions: Vec<Region>,
    shared: Shared,
}

impl Memory {
    /// Maps regions of files. Errors: they overlap, are empty or longer than their files; the
    /// host's.
    pub fn map(regions: Vec<Region>, files: Vec<File>) -> Result<Memory, String> {
        if regions.is_empty() || regions.len() > MAX_REGIONS || regions.len() != files.len() {
            return Err(format!("{} regions of memory in {} files", regions.len(), files.len()));
        }
        let mut parts = Vec::new();
        for (r, file) in regions.iter().zip(files) {
            let bytes = usize::try_from(r.bytes).map_err(|_| "a region is too long")?;
            let wraps = r.user.checked_add(r.bytes).is_none();
            // What lies behind the end of its file would be mapped, and could not be read.
            let held = file.metadata().map_err(|e| format!("a region of memory: {e}"))?.len();
            let end = r.offset.checked_add(r.bytes).filter(|end| *end <= held);
            if bytes == 0 || wraps || end.is_none() {
                return Err(format!(
                    "a region of {bytes} bytes at {:#x}, from {} on in a file of {held}",
                    r.user, r.offset
                ));
            }
            let file = FileOffset::new(file, r.offset);
            let part = GuestRegionMmap::from_range(GuestAddress(r.guest), bytes, Some(file))
                .map_err(|e| format!("a region of memory: {e}"))?;
            parts.push(part);
        }
        parts.sort_by_key(|p| vm_memory::GuestMemoryRegion::start_addr(p).0);
        let shared = GuestMemoryMmap::from_regions(parts).map_err(|e| format!("memory: {e}"))?;
        Ok(Memory { regions, shared: Arc::new(shared) })
    }

    /// The memory itself.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The physical address of one of the front end's process.
    pub fn physical(&self, user: u64) -> Option<GuestAddress> {
        let region = self.regions.iter().find(|r| (r.user..r.user + r.bytes).contains(&user))?;
        region.guest.checked_add(user - region.user).map(GuestAddress)
    }
}
