//! Small items: checksums of data, identities of subvolumes, what is to be deleted, errors counted.

use wp_base::{Corruption, FsResult};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Key, id, kind, wide};

/// Counts of a device's errors: (`id::DEV_STATS`, PERSISTENT_ITEM, device).
/// `struct btrfs_dev_stats_item`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DevStats {
    /// `values`: writes, reads, flushes, corruptions, generations.
    pub values: [U64; 5],
}
const _: () = assert!(size_of::<DevStats>() == 40);

/// Key of the checksums from this logical address on.
pub fn csum_key(bytenr: u64) -> Key {
    Key::new(id::EXTENT_CSUM, kind::EXTENT_CSUM, bytenr)
}

/// Key of what says that an inode, or in the root tree a subvolume, is to be deleted.
pub fn orphan_key(of: u64) -> Key {
    Key::new(id::ORPHAN, kind::ORPHAN_ITEM, of)
}

/// Key of the subvolumes with this uuid. `btrfs_uuid_to_key`.
pub fn uuid_key(uuid: [u8; 16], kind: u8) -> Key {
    let [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7] = uuid;
    Key {
        objectid: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
        kind,
        offset: u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
    }
}

/// Most bytes of checksums in an item. `MAX_CSUM_ITEMS`: an item less than would fill a leaf, and
/// Linux keeps below a page for each.
pub fn csum_item_bytes_max(node_bytes: usize, csum_bytes: usize) -> usize {
    // Two items' heads are kept free in the leaf.
    let leaf = node_bytes.saturating_sub(super::node::HEADER_BYTES + 2 * super::node::ITEM_BYTES);
    (leaf / csum_bytes).saturating_sub(1).min(4096) * csum_bytes
}

/// Checks the length of a checksum item and where it begins. `at`: byte address, for the error.
///
/// Source: `check_csum_item`.
pub fn check_csum_item(key: Key, item_bytes: usize, csum_bytes: usize, at: u64) -> FsResult<()> {
    let fail = |field, found, expected: &str| {
        let expected = expected.to_owned();
        Err(Corruption { structure: "btrfs checksum item", field, at, found, expected }.into())
    };
    if !key.offset.is_multiple_of(4096) {
        return fail("key.offset", key.offset, "a multiple of the sector size");
    }
    if item_bytes == 0 || !item_bytes.is_multiple_of(csum_bytes) {
        return fail("size", wide(item_bytes), "whole checksums");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_split_in_two_numbers() {
        // As in a root tree that mkfs.btrfs made.
        let uuid = 0x28df_0911_bab8_4008_8d2e_c13b_d145_96fb_u128.to_be_bytes();
        let key = uuid_key(uuid, kind::UUID_KEY_SUBVOL);
        assert_eq!((key.objectid, key.offset), (0x0840_b8ba_1109_df28, 0xfb96_45d1_3bc1_2e8d));
    }
}
