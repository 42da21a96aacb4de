//! Parts of the device: chunks and the device tree say the same of them.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::{DevExtent, Key, id, kind, view, wide};

impl Core<'_> {
    /// Holds the device tree against chunks: each of their places is an item there, each item is
    /// such a place, within the device, and none overlaps another. Else what is written through one
    /// chunk would be another's. `btrfs_verify_dev_extents`.
    pub(super) fn verify_device(&mut self) -> FsResult<()> {
        let device = &self.sb.dev_item;
        let (devid, device_bytes) = (device.devid.get(), device.total_bytes.get());
        let mut chunks: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for chunk in self.chunks.iter() {
            for place in &chunk.places {
                if chunks.insert(*place, (chunk.logical, chunk.bytes)).is_some() {
                    let expected = format!("a place of its own (chunk {})", chunk.logical);
                    return Err(FsError::corrupt("btrfs chunk", "offset", 0, *place, expected));
                }
            }
        }
        let mut end = 0;
        let mut path = self.seek(id::DEV_TREE, Key::new(0, kind::DEV_EXTENT, 0))?;
        while let Some(here) = &mut path {
            let at = self.place_of(here);
            let fail = |field, found: u64, expected: String| {
                Err(FsError::corrupt("btrfs dev extent", field, at, found, expected))
            };
            let Some((key, bytes)) = self.item(here)? else { break };
            if key.kind == kind::DEV_EXTENT {
                let Some(item) = view::<DevExtent>(bytes, 0) else {
                    return fail("size", wide(bytes.len()), "48".to_owned());
                };
                let (start, length) = (key.offset, item.length.get());
                let logical = item.chunk_offset.get();
                if key.objectid != devid {
                    return fail("key.objectid", key.objectid, format!("{devid}, the device"));
                }
                if start < end {
                    return fail("key.offset", start, format!("{end:#x} or more: they overlap"));
                }
                if chunks.remove(&start) != Some((logical, length)) {
                    return fail("chunk_offset", logical, format!("a chunk at {start:#x} {key}"));
                }
                // Places of chunks are within the device that the super block knew.
                end = start.saturating_add(length);
                if end > device_bytes {
                    return fail(
                        "length",
                        length,
                        format!("an end within {device_bytes:#x} bytes"),
                    );
                }
            }
            if !self.next(here)? {
                break;
            }
        }
        match chunks.first_key_value() {
            None => Ok(()),
            Some((place, (logical, _))) => {
                let expected = format!("an item for each place of a chunk (chunk {logical})");
                Err(FsError::corrupt("btrfs dev extent", "key.offset", 0, *place, expected))
            }
        }
    }
}
