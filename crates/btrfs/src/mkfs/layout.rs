//! Where mkfs.btrfs 6.2 puts chunks and leaves.

use crate::disk::chunk::{STRIPE_LEN, group};
use crate::disk::{Chunk, ChunkHead, Stripe, id, lo16, wide};

use super::MkfsOptions;

const MIB: u64 = 1 << 20;
/// Where the first chunk begins. `BTRFS_BLOCK_RESERVED_1M_FOR_SUPER`.
const START: u64 = MIB;
/// Bytes of the chunk of the system that the program begins with.
const FIRST_SYSTEM: u64 = 4 * MIB;
/// Bytes of the chunks of metadata and of data that it begins with; also of a later one of the
/// system.
const FIRST: u64 = 8 * MIB;

/// A chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NewChunk {
    pub logical: u64,
    pub bytes: u64,
    pub flags: u64,
    pub places: Vec<u64>,
}

impl NewChunk {
    pub fn is_system(&self) -> bool {
        self.flags & group::SYSTEM != 0
    }
    pub fn copies(&self) -> u64 {
        wide(self.places.len())
    }

    /// Its item. The one that the program writes before there are trees differs in three fields.
    pub fn item(&self, o: &MkfsOptions) -> Chunk {
        let is_first = self.logical == START;
        let align = if is_first { 4096 } else { 65536 };
        Chunk {
            head: ChunkHead {
                length: self.bytes.into(),
                owner: id::EXTENT_TREE.into(),
                stripe_len: STRIPE_LEN.into(),
                kind: self.flags.into(),
                io_align: align.into(),
                io_width: align.into(),
                sector_size: 4096.into(),
                num_stripes: lo16(self.places.len()).into(),
                sub_stripes: u16::from(!is_first).into(),
            },
            stripes: self
                .places
                .iter()
                .map(|at| Stripe { devid: 1.into(), offset: (*at).into(), dev_uuid: o.device_uuid })
                .collect(),
        }
    }
}

/// A tree's only leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Leaf {
    pub tree: u64,
    pub logical: u64,
    pub generation: u64,
}

/// Where everything is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub device_bytes: u64,
    /// By logical address.
    pub chunks: Vec<NewChunk>,
    pub leaves: Vec<Leaf>,
    /// Groups that the program has removed and left in the free-space tree: address and bytes.
    pub ghosts: Vec<(u64, u64)>,
}

/// Bytes of metadata in each of its copies: a twentieth of the device, within bounds.
fn dup_metadata_bytes(device: u64) -> u64 {
    let most = if device > 50 << 30 { 1 << 30 } else { 256 * MIB };
    (device / 20 / STRIPE_LEN * STRIPE_LEN).clamp(32 * MIB, most)
}

/// The least that mkfs.btrfs makes a file system on.
pub(super) fn device_min(o: &MkfsOptions) -> u64 {
    // `btrfs_min_dev_size`: what it begins with, and a chunk of each kind.
    let least = if o.dup_metadata { 2 * FIRST + 2 * 32 * MIB } else { 2 * FIRST };
    START + FIRST_SYSTEM + 2 * FIRST + least + FIRST
}

impl Layout {
    pub fn of(o: &MkfsOptions) -> Layout {
        let device_bytes = o.bytes / 4096 * 4096;
        let metadata = START + FIRST_SYSTEM;
        let data = metadata + FIRST;
        let single =
            |logical, bytes, flags| NewChunk { logical, bytes, flags, places: vec![logical] };
        let data_chunk = single(data, FIRST, group::DATA);
        // Trees with the number of their block in the group, and the generation.
        type Place = (u64, u64, u64);
        let (chunks, system, metadata, places, ghosts): (_, _, _, [Place; 9], _) = if o.dup_metadata
        {
            let system = data + FIRST;
            let dup = system + FIRST;
            let (at, bytes) = (dup + FIRST, dup_metadata_bytes(device_bytes));
            let copies = |logical, bytes, flags, at| NewChunk {
                logical,
                bytes,
                flags: flags | group::DUP,
                places: vec![at, at + bytes],
            };
            let chunks = vec![
                data_chunk,
                copies(system, FIRST, group::SYSTEM, system),
                copies(dup, bytes, group::METADATA, at),
            ];
            let places = [
                (id::CHUNK_TREE, 1, 6),
                (id::EXTENT_TREE, 0, 6),
                (id::FS_TREE, 1, 5),
                (id::CSUM_TREE, 5, 5),
                (id::DATA_RELOC_TREE, 7, 5),
                (id::UUID_TREE, 8, 5),
                (id::DEV_TREE, 9, 6),
                (id::FREE_SPACE_TREE, 10, 6),
                (id::ROOT_TREE, 11, 6),
            ];
            (chunks, system, dup, places, vec![(START, FIRST_SYSTEM), (metadata, FIRST)])
        } else {
            let chunks = vec![
                single(START, FIRST_SYSTEM, group::SYSTEM),
                single(metadata, FIRST, group::METADATA),
                data_chunk,
            ];
            let places = [
                (id::CHUNK_TREE, 1, 5),
                (id::ROOT_TREE, 0, 6),
                (id::EXTENT_TREE, 1, 6),
                (id::FS_TREE, 2, 5),
                (id::DEV_TREE, 4, 5),
                (id::FREE_SPACE_TREE, 5, 6),
                (id::CSUM_TREE, 9, 5),
                (id::DATA_RELOC_TREE, 11, 5),
                (id::UUID_TREE, 12, 5),
            ];
            (chunks, START, metadata, places, Vec::new())
        };
        let node = u64::from(o.node_bytes);
        let leaf = |(tree, n, generation)| {
            let start = if tree == id::CHUNK_TREE { system } else { metadata };
            Leaf { tree, logical: start + n * node, generation }
        };
        Layout { device_bytes, chunks, leaves: places.map(leaf).to_vec(), ghosts }
    }

    pub fn leaf(&self, tree: u64) -> Leaf {
        *self.leaves.iter().find(|l| l.tree == tree).expect("one of the nine trees")
    }

    /// Byte addresses on the device.
    pub fn places(&self, logical: u64) -> Vec<u64> {
        let chunk =
            self.chunks.iter().find(|c| (c.logical..c.logical + c.bytes).contains(&logical));
        let chunk = chunk.expect("leaves lie in chunks");
        chunk.places.iter().map(|at| at + logical - chunk.logical).collect()
    }
}
