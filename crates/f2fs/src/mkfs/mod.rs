//! Making a file system: the same bytes as mkfs.f2fs 1.15.
//!
//! Picture:    [`MkfsOptions`] -> [`Plan`] (where everything lies, how much is kept back) ->
//!             blocks.
//! Left out:   quota files (`quota`, `project_quota`), encrypted or case-folded roots, read-only
//!             images, and the placement at the end of the device that `-a 1` asked for:
//!             `Unsupported`.
//! Source:     mkfs.f2fs(8) and images that it made; tests hold the two side by side.

#![deny(clippy::indexing_slicing)]

mod files;
mod plan;

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult, Sector, Zone};
use wp_medium::{Medium, Page, Slice};

use crate::disk::{Block, Geometry, feature};

pub use plan::Plan;

/// A device to be made part of the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// Its path, as the super block keeps it where there are several.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What to make.
#[derive(Clone, PartialEq, Debug)]
pub struct MkfsOptions {
    /// The devices, the one with the super block first (`-c` names the others).
    pub devices: Vec<DeviceSpec>,
    /// Zones of the last device (`-m`): sections are as large as they. `None`: it has none.
    pub zones: Option<Vec<Zone>>,
    /// Bytes of a sector of the devices, 512 to 4096.
    pub sector_bytes: u32,
    /// Segments of a section (`-s`); with zones, what a zone has.
    pub segments_per_section: u32,
    /// Sections of a zone (`-z`).
    pub sections_per_zone: u32,
    /// Features (`-O`), see [`feature`].
    pub features: u32,
    /// Bitmaps of the NAT for more node ids (`-i`).
    pub large_nat_bitmap: bool,
    /// Percent kept back for cleaning (`-o`); `None`: what leaves most for users.
    pub overprovision: Option<f64>,
    /// Label (`-l`).
    pub label: String,
    /// Identity (`-U`).
    pub uuid: [u8; 16],
    /// Text about the kernel, as `/proc/version` has it.
    pub version: String,
    /// Version of the first checkpoint: an odd random number in mkfs.f2fs.
    pub checkpoint_ver: u32,
    /// Time that everything gets, in seconds since 1970.
    pub now: u64,
    /// Was everything discarded (`-t 1`, the default)?
    pub trimmed: bool,
}

impl MkfsOptions {
    /// The defaults of mkfs.f2fs for one device of `bytes` bytes.
    pub fn new(bytes: u64) -> MkfsOptions {
        MkfsOptions {
            devices: vec![DeviceSpec { path: String::new(), bytes }],
            zones: None,
            sector_bytes: 512,
            segments_per_section: 1,
            sections_per_zone: 1,
            features: 0,
            large_nat_bitmap: false,
            overprovision: None,
            label: String::new(),
            uuid: *b"writepathf2fs\0\0\x01",
            version: "Linux".to_owned(),
            checkpoint_ver: 1,
            now: 1_388_534_400,
            trimmed: true,
        }
    }

    /// Switches a feature on or off by the name that `-O` has for it. Errors: an unknown name.
    pub fn set_feature(&mut self, name: &str, on: bool) -> FsResult<()> {
        let found = feature::NAMES.iter().find(|(_, n)| *n == name);
        let (bit, _) = found.ok_or_else(|| {
            let known: Vec<&str> = feature::NAMES.iter().map(|(_, n)| *n).collect();
            FsError::Unsupported(format!("mkfs: feature {name}; known: {}", known.join(", ")))
        })?;
        self.features = if on { self.features | bit } else { self.features & !bit };
        Ok(())
    }
}

/// Features that we can make.
pub const MADE: u32 = feature::ENCRYPT
    | feature::BLKZONED
    | feature::EXTRA_ATTR
    | feature::INODE_CHKSUM
    | feature::FLEXIBLE_INLINE_XATTR
    | feature::INODE_CRTIME
    | feature::LOST_FOUND
    | feature::VERITY
    | feature::SB_CHKSUM
    | feature::COMPRESSION;

/// A file system that is to be written to zeroed devices.
pub struct Made {
    /// Where everything lies.
    pub plan: Plan,
    /// Blocks that are not zero, by address.
    pub blocks: BTreeMap<u32, Block>,
}

impl Made {
    /// Writes it to a medium of zeroes, the devices one behind the other.
    pub fn write_to(&self, medium: &mut Medium) {
        for (block, bytes) in &self.blocks {
            let mut page = Page::zeroed();
            page.make_mut().copy_from_slice(bytes);
            let sector = Sector(Geometry::byte_of(*block) / wp_base::SECTOR_BYTES);
            medium.write(sector, &Slice::of_page(page, 0, 4096));
        }
    }
}

/// Makes a file system. Errors: `Invalid`, `Unsupported` for options that cannot be, `NoSpace` for
/// devices that are too small.
pub fn mkfs(options: &MkfsOptions) -> FsResult<Made> {
    let plan = Plan::new(options)?;
    let blocks = files::blocks(options, &plan)?;
    Ok(Made { plan, blocks })
}
