//! Making a file system: what mkfs.btrfs 6.2 makes.
//!
//! Picture:    super block (and copies), and one leaf for each of nine trees, at the places and
//!             with the generations that the program's six transactions leave.
//! Invariants: only `disk` is shared with what reads and writes images.
//! Left out:   leaves of the transactions before the last, which the program leaves behind, and
//!             three of the four backups of roots, which lead to them; data in two copies; mixed
//!             block groups; more devices.
//! Source:     mkfs.btrfs(8) and images that it made; a test holds the two side by side.

#![deny(clippy::indexing_slicing)]

mod layout;
mod trees;

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult, Sector};
use wp_medium::{Medium, Slice};
use zerocopy::IntoBytes;

use crate::disk::feature::{compat_ro, incompat};
use crate::disk::super_block::flag;
use crate::disk::{Chunk, CsumKind, DevItem, RootBackup, SuperBlock, at32, id};

use layout::Layout;

/// Bytes of a chunk of one stripe in the super block's array, with its key.
const FIRST_CHUNK_BYTES: usize = 17 + 80;

/// What to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MkfsOptions {
    /// Bytes of the device.
    pub bytes: u64,
    /// Bytes of a tree block (`-n`).
    pub node_bytes: u32,
    /// Metadata in two copies (`-m dup`) or one (`-m single`)?
    pub dup_metadata: bool,
    /// Checksum (`--csum`).
    pub csum: CsumKind,
    /// Label (`-L`), up to 255 bytes.
    pub label: String,
    /// Identity (`-U`).
    pub uuid: [u8; 16],
    /// Identity of the device, of chunks and of the first tree of files: random numbers in
    /// mkfs.btrfs.
    pub device_uuid: [u8; 16],
    /// Of chunks.
    pub chunk_uuid: [u8; 16],
    /// Of the first tree of files.
    pub subvolume_uuid: [u8; 16],
    /// Time that everything gets, in seconds since 1970.
    pub now: u64,
}

impl MkfsOptions {
    /// The defaults of mkfs.btrfs for a device of `bytes` bytes.
    pub fn new(bytes: u64) -> MkfsOptions {
        MkfsOptions {
            bytes,
            node_bytes: 16384,
            dup_metadata: true,
            csum: CsumKind::Crc32c,
            label: String::new(),
            uuid: *b"writepathbtrfs\0\x01",
            device_uuid: *b"writepathbtrfs\0\x02",
            chunk_uuid: *b"writepathbtrfs\0\x03",
            subvolume_uuid: *b"writepathbtrfs\0\x04",
            now: 1_388_534_400,
        }
    }

    fn check(&self) -> FsResult<()> {
        if !self.node_bytes.is_power_of_two() || !(4096..=65536).contains(&self.node_bytes) {
            return Err(FsError::Invalid("node size: a power of two, 4096 to 65536"));
        }
        if self.label.len() > 255 {
            return Err(FsError::Invalid("label: up to 255 bytes"));
        }
        if self.bytes < layout::device_min(self) {
            return Err(FsError::NoSpace);
        }
        Ok(())
    }
}

/// A file system that is to be written to a zeroed device.
pub struct Made {
    /// The first super block.
    pub super_block: Box<SuperBlock>,
    /// What is to be written: byte addresses with contents.
    pub pieces: BTreeMap<u64, Vec<u8>>,
}

impl Made {
    /// Writes it to a medium of zeroes.
    pub fn write_to(&self, medium: &mut Medium) {
        for (at, bytes) in &self.pieces {
            for (sector, part) in (at / 512..).zip(bytes.chunks(512)) {
                medium.write(Sector(sector), &Slice::from_bytes(part));
            }
        }
    }
}

/// Makes a file system. Errors: `Invalid` for options that cannot be; `NoSpace` for a device that
/// mkfs.btrfs calls too small.
pub fn mkfs(o: &MkfsOptions) -> FsResult<Made> {
    o.check()?;
    let layout = Layout::of(o);
    let mut pieces = BTreeMap::new();
    for (logical, block) in trees::leaves(o, &layout)? {
        for at in layout.places(logical) {
            pieces.insert(at, block.clone());
        }
    }
    let mut sb = super_block(o, &layout)?;
    for at in SuperBlock::copies_of_mkfs(layout.device_bytes) {
        sb.seal(at);
        pieces.insert(at, sb.as_bytes().to_vec());
    }
    sb.seal(SuperBlock::AT);
    Ok(Made { super_block: sb, pieces })
}

fn super_block(o: &MkfsOptions, layout: &Layout) -> FsResult<Box<SuperBlock>> {
    let mut sb = Box::new(SuperBlock::zeroed());
    let at = |tree| {
        let leaf = layout.leaf(tree);
        (leaf.logical.into(), leaf.generation.into())
    };
    sb.fsid = o.uuid;
    sb.flags = flag::WRITTEN.into();
    sb.magic = SuperBlock::MAGIC.into();
    (sb.root, sb.generation) = at(id::ROOT_TREE);
    (sb.chunk_root, sb.chunk_root_generation) = at(id::CHUNK_TREE);
    sb.total_bytes = layout.device_bytes.into();
    sb.bytes_used = (9 * u64::from(o.node_bytes)).into();
    sb.root_dir_objectid = id::ROOT_TREE_DIR.into();
    sb.num_devices = 1.into();
    sb.sectorsize = 4096.into();
    (sb.nodesize, sb.unused_leafsize) = (o.node_bytes.into(), o.node_bytes.into());
    sb.stripesize = 4096.into();
    sb.compat_ro_flags = (compat_ro::FREE_SPACE_TREE | compat_ro::FREE_SPACE_TREE_VALID).into();
    let features = incompat::MIXED_BACKREF
        | incompat::EXTENDED_IREF
        | incompat::SKINNY_METADATA
        | incompat::NO_HOLES;
    sb.incompat_flags = features.into();
    sb.csum_type = o.csum.number().into();
    sb.dev_item = dev_item(o, layout);
    for (place, byte) in sb.label.iter_mut().zip(o.label.bytes()) {
        *place = byte;
    }
    for chunk in layout.chunks.iter().filter(|c| c.is_system()) {
        sb.add_system_chunk(Chunk::key(chunk.logical), &chunk.item(o))?;
    }
    if o.dup_metadata {
        // The program has removed its first system chunk: what followed it moved down, and its end
        // stayed where it was as well.
        let end = at32(sb.sys_chunk_array_size.get());
        sb.sys_chunk_array.copy_within(end - FIRST_CHUNK_BYTES..end, end);
    }
    let mut backup = RootBackup {
        total_bytes: sb.total_bytes,
        bytes_used: sb.bytes_used,
        num_devices: sb.num_devices,
        ..zerocopy::FromZeros::new_zeroed()
    };
    (backup.tree_root, backup.tree_root_gen) = at(id::ROOT_TREE);
    (backup.chunk_root, backup.chunk_root_gen) = at(id::CHUNK_TREE);
    (backup.extent_root, backup.extent_root_gen) = at(id::EXTENT_TREE);
    (backup.fs_root, backup.fs_root_gen) = at(id::FS_TREE);
    (backup.dev_root, backup.dev_root_gen) = at(id::DEV_TREE);
    (backup.csum_root, backup.csum_root_gen) = at(id::CSUM_TREE);
    let [_, second, ..] = &mut sb.super_roots;
    *second = backup;
    Ok(sb)
}

fn dev_item(o: &MkfsOptions, layout: &Layout) -> DevItem {
    let used: u64 = layout.chunks.iter().map(|c| c.bytes * c.copies()).sum();
    DevItem {
        devid: 1.into(),
        total_bytes: layout.device_bytes.into(),
        bytes_used: used.into(),
        io_align: 4096.into(),
        io_width: 4096.into(),
        sector_size: 4096.into(),
        kind: 0.into(),
        generation: 0.into(),
        start_offset: 0.into(),
        dev_group: 0.into(),
        seek_speed: 0,
        bandwidth: 0,
        uuid: o.device_uuid,
        fsid: o.uuid,
    }
}
