//! Where logical addresses lie on the device.
//!
//! Invariants: chunks do not overlap; all places lie within the device.
//! Left out:   more devices than one, and so every profile but single and DUP: refused by name.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};

use crate::disk::chunk::group;
use crate::disk::{Chunk, DevItem, Key};

/// A chunk, as far as mapping needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// First logical address.
    pub logical: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Type and profile, see [`group`].
    pub flags: u64,
    /// Where it begins on the device: one place, or the two of DUP.
    pub places: Vec<u64>,
}

/// The device, as chunks name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// Number.
    pub devid: u64,
    /// Bytes.
    pub bytes: u64,
    /// Identity.
    pub uuid: [u8; 16],
}

impl Device {
    /// The one that an item says.
    pub fn of(item: &DevItem) -> Device {
        let (devid, bytes) = (item.devid.get(), item.total_bytes.get());
        Device { devid, bytes, uuid: item.uuid }
    }
}

/// All chunks that are known.
#[derive(Clone, Default, Debug)]
pub struct ChunkMap {
    chunks: BTreeMap<u64, Mapped>,
}

impl ChunkMap {
    /// Adds a chunk as it was read. `at`: byte address of the chunk item, for the error.
    ///
    /// Source: `read_one_chunk`, `btrfs_check_chunk_valid`.
    pub fn add(&mut self, key: Key, chunk: &Chunk, device: Device, at: u64) -> FsResult<()> {
        let (logical, bytes) = (key.offset, chunk.head.length.get());
        let flags = chunk.head.kind.get();
        let wrong = |field, found, expected: &str| {
            Err(FsError::corrupt("btrfs chunk", field, at, found, format!("{expected} {key}")))
        };
        let copies = match flags & group::PROFILES {
            0 => 1,
            group::DUP => 2,
            other => {
                let name = group::profile_name(other);
                return Err(FsError::Unsupported(format!("btrfs block group profile: {name}")));
            }
        };
        if chunk.stripes.len() != copies {
            let found = chunk.head.num_stripes.get().into();
            return wrong("num_stripes", found, "as many as the profile has copies");
        }
        let Some(end) = logical.checked_add(bytes).filter(|_| logical.is_multiple_of(4096)) else {
            return wrong("logical", logical, "a multiple of the sector size below 2^64");
        };
        let mut places = Vec::new();
        for stripe in &chunk.stripes {
            if stripe.devid.get() != device.devid {
                return wrong("devid", stripe.devid.get(), "the device's own number");
            }
            if stripe.dev_uuid != device.uuid {
                return wrong("dev_uuid", stripe.devid.get(), "the device's own uuid");
            }
            let at = stripe.offset.get();
            if at.checked_add(bytes).is_none_or(|end| end > device.bytes)
                || !at.is_multiple_of(4096)
            {
                return wrong("offset", at, "a place within the device");
            }
            places.push(at);
        }
        let new = Mapped { logical, bytes, flags, places };
        match self.chunks.range(..end).next_back() {
            Some((_, old)) if *old == new => return Ok(()),
            Some((_, old)) if old.logical + old.bytes > logical => {
                return wrong("logical", logical, "an address that no other chunk has");
            }
            _ => {}
        }
        self.chunks.insert(logical, new);
        Ok(())
    }

    /// The chunk of an address.
    pub fn of(&self, logical: u64) -> Option<&Mapped> {
        let (_, chunk) = self.chunks.range(..=logical).next_back()?;
        (logical - chunk.logical < chunk.bytes).then_some(chunk)
    }

    /// Where `bytes` bytes from `logical` on lie: byte addresses on the device, one for each copy.
    /// Errors: `Corrupt` if they are not all in one chunk.
    pub fn places(&self, logical: u64, bytes: u64) -> FsResult<Vec<u64>> {
        if let Some(chunk) = self.of(logical) {
            let from = logical - chunk.logical;
            if bytes <= chunk.bytes - from {
                return Ok(chunk.places.iter().map(|at| at + from).collect());
            }
        }
        let expected = format!("{bytes} bytes of one chunk");
        Err(FsError::corrupt("btrfs chunk map", "logical", 0, logical, expected))
    }

    /// All chunks, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapped> {
        self.chunks.values()
    }

    /// The first logical address behind all chunks. `find_next_chunk`.
    pub fn next_logical(&self) -> u64 {
        self.chunks
            .last_key_value()
            .map_or(crate::disk::id::FIRST_CHUNK_TREE, |(_, c)| c.logical + c.bytes)
    }

    /// Parts of the device that chunks have, by address: first byte and length.
    pub fn device_extents(&self) -> BTreeMap<u64, u64> {
        self.iter().flat_map(|c| c.places.iter().map(|at| (*at, c.bytes))).collect()
    }
}
