//! Several devices: where a block lies, and which of them hold something that is not flushed.
//!
//! Source: Linux `fs/f2fs/data.c` (`f2fs_target_device`), `segment.c` (`f2fs_update_device_state`).

use wp_base::Sector;
use wp_block::Partition;

use super::io::{Io, SECTORS};
use super::mount::F2fs;
use crate::disk::Geometry;

impl Io {
    /// Where a block lies.
    pub(super) fn target(&self, g: &Geometry, addr: u32) -> (&Partition, Sector) {
        let sector = |n: u32| Sector(u64::from(n) * u64::from(SECTORS));
        if self.parts.len() > 1
            && let Some((n, at)) = g.device_of(addr)
            && let Some(part) = self.parts.get(n)
        {
            return (part, sector(at));
        }
        (&self.parts[0], sector(addr))
    }

    /// How many of the `blocks` blocks from `addr` on lie on the device of the first one.
    pub(super) fn on_one(&self, g: &Geometry, addr: u32, blocks: u32) -> u32 {
        match g.device_of(addr) {
            Some((n, at)) if self.parts.len() > 1 => {
                blocks.min(g.devices[n].end - g.devices[n].start - at)
            }
            _ => blocks,
        }
    }
}

impl F2fs {
    /// Are two blocks on one device?
    pub(super) fn same_device(&self, a: u32, b: u32) -> bool {
        self.io.parts.len() == 1
            || self.g.device_of(a).map(|d| d.0) == self.g.device_of(b).map(|d| d.0)
    }

    /// The device of these blocks will hold something of the inode that is not flushed
    /// (`f2fs_update_device_state`).
    pub(super) fn note_device(&self, ino: u32, addr: u32, blocks: u32) {
        self.note_unflushed(ino, addr, blocks);
        if self.io.parts.len() == 1 {
            return;
        }
        let (mut addr, mut left) = (addr, blocks);
        while left > 0 {
            if let Some((device, _)) = self.g.device_of(addr) {
                self.inos.dirty_device(ino, device);
                self.io.dirty.set(self.io.dirty.get() | 1 << device);
            }
            let n = self.io.on_one(&self.g, addr, left);
            (addr, left) = (addr + n, left - n);
        }
    }

    /// Takes down that a device but the first has been flushed, or is to be; was it to be?
    pub(super) fn take_dirty(&self, device: usize) -> bool {
        let all = self.io.dirty.get();
        self.io.dirty.set(all & !(1 << device));
        all & 1 << device != 0
    }
}
