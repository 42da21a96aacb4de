//! Waits for writeback, told to the block layer: what was sent as asynchronous may go before other
//! writes then (QASIO).

use wp_base::Sector;
use wp_block::Quasi;

use crate::bdev::Bdev;
use crate::buffer::{BufFlag, Buffer};
use crate::mapping::Mapping;

impl Bdev {
    /// A task begins to wait for the write of a block of metadata.
    pub fn note_wait(&self, b: &Buffer, class: Quasi) {
        let bytes = u64::from(b.len());
        let at = Sector(b.block() * bytes / wp_base::SECTOR_BYTES);
        self.queue().note_wait(std::iter::once((at, bytes / wp_base::SECTOR_BYTES)), class);
    }

    /// A task begins to wait for the write of a block of a file.
    pub fn note_data_wait(&self, b: &Buffer, class: Quasi) {
        self.queue().note_wait(place(b).into_iter(), class);
    }
}

/// Sectors of a block that has its place and is being written.
fn place(b: &Buffer) -> Option<(Sector, u64)> {
    let sectors = u64::from(b.len()) / wp_base::SECTOR_BYTES;
    let is_sent = b.flag(BufFlag::Writeback) && b.flag(BufFlag::Mapped);
    is_sent.then(|| (Sector(b.phys() * sectors), sectors))
}

impl Mapping {
    /// A task begins to wait for what of the file is being written.
    pub fn note_wait(&self, class: Quasi) {
        let Some(wb) = self.wb.upgrade().filter(|_| !self.is_settled()) else { return };
        if wb.part.queue().has_quasi() {
            let blocks = self.range(0, u64::MAX);
            wb.part.note_wait(blocks.iter().filter_map(|b| place(b)), class);
        }
    }
}
