//! Where things are on the flash.
//!
//! Picture:    channel -> die -> plane -> flash block -> flash page -> mapping units of 4 KiB
//!             ("slots"). A *program unit* is what one die programs at once: `pages_per_program`
//!             pages of each plane. A *superblock* is one flash block of every plane of every die;
//!             its program units are numbered across the dies first, so that what is written in
//!             order is striped over all of them. A slot's address (`Ppa`) counts slots in that
//!             order over the whole device.

use crate::config::{ConfigError, Settings};

/// Bytes of a mapping unit.
pub const SLOT_BYTES: u64 = 4096;

/// Sizes of everything, in the units of the layer below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Channels (buses).
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes of a die; they read, program and erase together.
    pub planes: u32,
    /// Slots of a flash page.
    pub page_slots: u32,
    /// Flash pages of one plane that are programmed at once.
    pub pages_per_program: u32,
    /// Program units of one die in a superblock.
    pub rows: u32,
    /// Superblocks: flash blocks of a plane.
    pub superblocks: u32,
    /// Dies in all.
    pub dies: u32,
    /// Slots of a program unit.
    pub unit_slots: u32,
    /// Program units of a superblock.
    pub superblock_units: u32,
    /// Slots of a superblock.
    pub superblock_slots: u32,
}

impl Geometry {
    /// From a preset's values. Errors: a number out of range, pages that are not whole slots,
    /// program units that do not divide a flash block, or more slots than a 32-bit address can
    /// name.
    pub fn from_settings(s: &Settings) -> Result<Geometry, ConfigError> {
        let channels = s.count("channels", 256)?;
        let dies_per_channel = s.count("dies_per_channel", 256)?;
        let planes = s.count("planes", 16)?;
        let page_bytes = s.get("page_bytes");
        if page_bytes == 0 || !page_bytes.is_multiple_of(SLOT_BYTES) || page_bytes > 1 << 20 {
            let reason = "must be a multiple of 4096 (the mapping unit) up to 1 MiB";
            return Err(ConfigError::new("page_bytes", page_bytes, reason));
        }
        let page_slots = (page_bytes / SLOT_BYTES) as u32;
        let pages_per_program = s.count("pages_per_program", 64)?;
        let pages_per_block = s.count("pages_per_block", 65536)?;
        if !pages_per_block.is_multiple_of(pages_per_program) {
            let reason = format!("must be a multiple of pages_per_program ({pages_per_program})");
            return Err(ConfigError::new("pages_per_block", u64::from(pages_per_block), reason));
        }
        let superblocks = s.count("blocks_per_plane", 1 << 20)?;
        let dies = channels * dies_per_channel;
        let unit_slots = page_slots * planes * pages_per_program;
        let rows = pages_per_block / pages_per_program;
        let slots =
            u64::from(unit_slots) * u64::from(rows) * u64::from(dies) * u64::from(superblocks);
        if slots >= u64::from(u32::MAX) {
            let reason = format!("makes {slots} mapping units of 4 KiB; addresses are of 32 bits");
            return Err(ConfigError::new("blocks_per_plane", u64::from(superblocks), reason));
        }
        Ok(Geometry {
            channels,
            dies_per_channel,
            planes,
            page_slots,
            pages_per_program,
            rows,
            superblocks,
            dies,
            unit_slots,
            superblock_units: rows * dies,
            superblock_slots: rows * dies * unit_slots,
        })
    }

    /// Bytes of a program unit.
    pub fn unit_bytes(&self) -> u64 {
        u64::from(self.unit_slots) * SLOT_BYTES
    }

    /// The die that holds program unit `unit`. Neighbours are on different channels first.
    pub fn die_of(&self, unit: u32) -> u32 {
        unit % self.dies
    }

    /// Rows of pages that are read together, one page of each plane, touched by `slots` from
    /// `first` of a unit.
    pub fn page_rows(&self, first: u32, slots: u32) -> u32 {
        let row = self.page_slots * self.planes;
        (first + slots - 1) / row - first / row + 1
    }
}
