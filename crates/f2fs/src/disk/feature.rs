//! Bits of `feature` in the super block. `F2FS_FEATURE_*`.

/// Files may be encrypted.
pub const ENCRYPT: u32 = 0x1;
/// Made for a zoned device.
pub const BLKZONED: u32 = 0x2;
/// Atomic writes were once a feature; unused.
pub const ATOMIC_WRITE: u32 = 0x4;
/// Inodes have the fields of [`super::InodeExtra`].
pub const EXTRA_ATTR: u32 = 0x8;
/// Quotas by project.
pub const PRJQUOTA: u32 = 0x10;
/// Inodes have a checksum.
pub const INODE_CHKSUM: u32 = 0x20;
/// Each inode says how much room its attributes have.
pub const FLEXIBLE_INLINE_XATTR: u32 = 0x40;
/// Quotas lie in hidden inodes.
pub const QUOTA_INO: u32 = 0x80;
/// Inodes have the time of their making.
pub const INODE_CRTIME: u32 = 0x100;
/// There is a directory lost+found.
pub const LOST_FOUND: u32 = 0x200;
/// Files may be sealed with a Merkle tree.
pub const VERITY: u32 = 0x400;
/// The super block has a checksum.
pub const SB_CHKSUM: u32 = 0x800;
/// Directories may ignore case.
pub const CASEFOLD: u32 = 0x1000;
/// Files may be compressed.
pub const COMPRESSION: u32 = 0x2000;
/// Never written after it was made.
pub const RO: u32 = 0x4000;
/// Files may stand for whole devices (newer kernels than 6.1).
pub const DEVICE_ALIAS: u32 = 0x8000;

/// Every bit with the name that mkfs.f2fs has for it (`-O`).
pub const NAMES: &[(u32, &str)] = &[
    (ENCRYPT, "encrypt"),
    (BLKZONED, "blkzoned"),
    (ATOMIC_WRITE, "atomic_write"),
    (EXTRA_ATTR, "extra_attr"),
    (PRJQUOTA, "project_quota"),
    (INODE_CHKSUM, "inode_checksum"),
    (FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
    (QUOTA_INO, "quota"),
    (INODE_CRTIME, "inode_crtime"),
    (LOST_FOUND, "lost_found"),
    (VERITY, "verity"),
    (SB_CHKSUM, "sb_checksum"),
    (CASEFOLD, "casefold"),
    (COMPRESSION, "compression"),
    (RO, "ro"),
    (DEVICE_ALIAS, "device_alias"),
];

/// Names of the bits in `set`, joined by commas; bits without a name as one number.
pub fn names(set: u32) -> String {
    let known = NAMES.iter().filter(|(bit, _)| set & bit != 0);
    let mut out: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
    let rest = NAMES.iter().fold(set, |rest, (bit, _)| rest & !bit);
    if rest != 0 {
        out.push(format!("{rest:#x}"));
    }
    out.join(",")
}
