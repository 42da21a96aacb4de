//! Feature bits of the super block: what an image may have, and what is refused.

use wp_base::{FsError, FsResult};

/// Bits of `incompat_flags`.
pub mod incompat {
    /// References are kept with extents.
    pub const MIXED_BACKREF: u64 = 1;
    /// The default subvolume is another than the first.
    pub const DEFAULT_SUBVOL: u64 = 1 << 1;
    /// Data and metadata in the same block groups.
    pub const MIXED_GROUPS: u64 = 1 << 2;
    /// Files compressed with LZO.
    pub const COMPRESS_LZO: u64 = 1 << 3;
    /// Files compressed with zstd.
    pub const COMPRESS_ZSTD: u64 = 1 << 4;
    /// Tree blocks larger than a page; Linux sets it at mount.
    pub const BIG_METADATA: u64 = 1 << 5;
    /// More names of an inode in one directory than an item holds.
    pub const EXTENDED_IREF: u64 = 1 << 6;
    /// Block groups of RAID5 or RAID6.
    pub const RAID56: u64 = 1 << 7;
    /// METADATA_ITEMs rather than EXTENT_ITEMs for tree blocks.
    pub const SKINNY_METADATA: u64 = 1 << 8;
    /// Holes of files have no items.
    pub const NO_HOLES: u64 = 1 << 9;
    /// Tree blocks have another uuid than the super block shows.
    pub const METADATA_UUID: u64 = 1 << 10;
    /// Block groups of three or four copies.
    pub const RAID1C34: u64 = 1 << 11;
    /// Zoned mode.
    pub const ZONED: u64 = 1 << 12;
    /// The next format of the extent tree.
    pub const EXTENT_TREE_V2: u64 = 1 << 13;
    /// The tree of stripes.
    pub const RAID_STRIPE_TREE: u64 = 1 << 14;
    /// Quotas that count at allocation.
    pub const SIMPLE_QUOTA: u64 = 1 << 16;

    /// What can be read and written here.
    pub const SUPPORTED: u64 = MIXED_BACKREF
        | DEFAULT_SUBVOL
        | COMPRESS_LZO
        | COMPRESS_ZSTD
        | BIG_METADATA
        | EXTENDED_IREF
        | SKINNY_METADATA
        | NO_HOLES;

    /// What can be read besides.
    pub const READABLE: u64 = SUPPORTED | MIXED_GROUPS;

    /// What must be set to write: without these, items of another kind would have to be made.
    pub const NEEDED: u64 = MIXED_BACKREF | EXTENDED_IREF | SKINNY_METADATA;

    /// What must be set to read: without it the format is another one.
    pub const READ_NEEDED: u64 = MIXED_BACKREF;
}

/// Bits of `compat_ro_flags`.
pub mod compat_ro {
    /// There is a free-space tree.
    pub const FREE_SPACE_TREE: u64 = 1;
    /// It is right.
    pub const FREE_SPACE_TREE_VALID: u64 = 1 << 1;
    /// Files with fs-verity.
    pub const VERITY: u64 = 1 << 2;
    /// Block groups have a tree of their own.
    pub const BLOCK_GROUP_TREE: u64 = 1 << 3;

    /// What can be written here.
    pub const SUPPORTED: u64 = FREE_SPACE_TREE | FREE_SPACE_TREE_VALID | VERITY;
    /// What must be set.
    pub const NEEDED: u64 = FREE_SPACE_TREE | FREE_SPACE_TREE_VALID;
}

const INCOMPAT_NAMES: [(u64, &str); 16] = [
    (incompat::MIXED_BACKREF, "MIXED_BACKREF"),
    (incompat::DEFAULT_SUBVOL, "DEFAULT_SUBVOL"),
    (incompat::MIXED_GROUPS, "MIXED_GROUPS"),
    (incompat::COMPRESS_LZO, "COMPRESS_LZO"),
    (incompat::COMPRESS_ZSTD, "COMPRESS_ZSTD"),
    (incompat::BIG_METADATA, "BIG_METADATA"),
    (incompat::EXTENDED_IREF, "EXTENDED_IREF"),
    (incompat::RAID56, "RAID56"),
    (incompat::SKINNY_METADATA, "SKINNY_METADATA"),
    (incompat::NO_HOLES, "NO_HOLES"),
    (incompat::METADATA_UUID, "METADATA_UUID"),
    (incompat::RAID1C34, "RAID1C34"),
    (incompat::ZONED, "ZONED"),
    (incompat::EXTENT_TREE_V2, "EXTENT_TREE_V2"),
    (incompat::RAID_STRIPE_TREE, "RAID_STRIPE_TREE"),
    (incompat::SIMPLE_QUOTA, "SIMPLE_QUOTA"),
];

const COMPAT_RO_NAMES: [(u64, &str); 4] = [
    (compat_ro::FREE_SPACE_TREE, "FREE_SPACE_TREE"),
    (compat_ro::FREE_SPACE_TREE_VALID, "FREE_SPACE_TREE_VALID"),
    (compat_ro::VERITY, "VERITY"),
    (compat_ro::BLOCK_GROUP_TREE, "BLOCK_GROUP_TREE"),
];

/// Names of bits, those without a name by their number.
fn names(bits: u64, known: &[(u64, &str)]) -> String {
    let mut out: Vec<String> = Vec::new();
    for bit in (0..64).map(|n| 1u64 << n).filter(|bit| bits & bit != 0) {
        match known.iter().find(|(b, _)| *b == bit) {
            Some((_, name)) => out.push((*name).to_owned()),
            None => out.push(format!("bit {}", bit.trailing_zeros())),
        }
    }
    out.join(", ")
}

/// Refuses what is not done here, by name. `writes`: is the image to be written, too?
pub fn check(incompat_flags: u64, compat_ro_flags: u64, writes: bool) -> FsResult<()> {
    let refuse = |what: &str, bits: u64, known| {
        Err(FsError::Unsupported(format!("btrfs {what}: {}", names(bits, known))))
    };
    let (known, needed) = match writes {
        true => (incompat::SUPPORTED, incompat::NEEDED),
        false => (incompat::READABLE, incompat::READ_NEEDED),
    };
    let unknown = incompat_flags & !known;
    if unknown != 0 {
        return refuse("incompatible feature", unknown, &INCOMPAT_NAMES);
    }
    let missing = needed & !incompat_flags;
    if missing != 0 {
        return refuse("without feature", missing, &INCOMPAT_NAMES);
    }
    let unknown = compat_ro_flags & !compat_ro::SUPPORTED;
    // The block group tree moves items that readers need as well.
    if unknown & compat_ro::BLOCK_GROUP_TREE != 0 || (writes && unknown != 0) {
        return refuse("feature", unknown, &COMPAT_RO_NAMES);
    }
    let missing = compat_ro::NEEDED & !compat_ro_flags;
    if writes && missing != 0 {
        return refuse("without feature", missing, &COMPAT_RO_NAMES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named() {
        let plain = incompat::NEEDED | incompat::NO_HOLES;
        assert_eq!(check(plain, compat_ro::NEEDED, true), Ok(()));
        let said = |i, c| check(i, c, true).expect_err("refused").to_string();
        assert!(said(plain | incompat::ZONED | 1 << 40, 3).ends_with("ZONED, bit 40"));
        assert!(said(plain & !incompat::SKINNY_METADATA, 3).ends_with("SKINNY_METADATA"));
        assert!(said(plain, 3 | compat_ro::BLOCK_GROUP_TREE).ends_with("BLOCK_GROUP_TREE"));
        assert!(said(plain, 1).ends_with("FREE_SPACE_TREE_VALID"));
        assert!(said(plain | incompat::MIXED_GROUPS, 3).ends_with("MIXED_GROUPS"));
        assert_eq!(check(plain, 0, false), Ok(()));
        let old = incompat::MIXED_BACKREF | incompat::MIXED_GROUPS;
        assert_eq!(check(old, 0, false), Ok(()), "it is read");
    }
}
