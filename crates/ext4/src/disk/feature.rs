//! Feature bits of the super block, with the names that e2fsprogs prints.
//!
//! A file system with an unknown *incompat* bit must not be read at all, with an unknown
//! *ro_compat* bit not be written; *compat* bits may be ignored.
//! Source: `fs/ext4/ext4.h` (bits), `lib/e2p/feature.c` of e2fsprogs (names).

/// Features that an implementation may ignore.
pub mod compat {
    /// `dir_prealloc`, never implemented.
    pub const DIR_PREALLOC: u32 = 0x0001;
    /// `imagic_inodes`, AFS.
    pub const IMAGIC_INODES: u32 = 0x0002;
    /// `has_journal`.
    pub const HAS_JOURNAL: u32 = 0x0004;
    /// `ext_attr`.
    pub const EXT_ATTR: u32 = 0x0008;
    /// `resize_inode`: inode 7 owns reserved descriptor blocks.
    pub const RESIZE_INODE: u32 = 0x0010;
    /// `dir_index`: directories may have hash trees.
    pub const DIR_INDEX: u32 = 0x0020;
    /// `sparse_super2`: at most two backup super blocks.
    pub const SPARSE_SUPER2: u32 = 0x0200;
    /// `fast_commit`: the journal has a fast-commit area.
    pub const FAST_COMMIT: u32 = 0x0400;
    /// `stable_inodes`: inode numbers may not change.
    pub const STABLE_INODES: u32 = 0x0800;
    /// `orphan_file`: orphans are listed in a file, not in a chain.
    pub const ORPHAN_FILE: u32 = 0x1000;
    /// (bit, name), in order.
    pub const NAMES: &[(u32, &str)] = &[
        (DIR_PREALLOC, "dir_prealloc"),
        (IMAGIC_INODES, "imagic_inodes"),
        (HAS_JOURNAL, "has_journal"),
        (EXT_ATTR, "ext_attr"),
        (RESIZE_INODE, "resize_inode"),
        (DIR_INDEX, "dir_index"),
        (SPARSE_SUPER2, "sparse_super2"),
        (FAST_COMMIT, "fast_commit"),
        (STABLE_INODES, "stable_inodes"),
        (ORPHAN_FILE, "orphan_file"),
    ];
}

/// Features without which an implementation must refuse the file system.
pub mod incompat {
    /// `compression`, never implemented.
    pub const COMPRESSION: u32 = 0x0001;
    /// `filetype`: directory entries carry the type.
    pub const FILETYPE: u32 = 0x0002;
    /// `needs_recovery`: mounted, or not cleanly unmounted.
    pub const RECOVER: u32 = 0x0004;
    /// `journal_dev`: this is an external journal, not a file system.
    pub const JOURNAL_DEV: u32 = 0x0008;
    /// `meta_bg`: descriptors lie in their own groups.
    pub const META_BG: u32 = 0x0010;
    /// `extent`.
    pub const EXTENTS: u32 = 0x0040;
    /// `64bit`: block numbers above 2^32, descriptors of 64 bytes.
    pub const BIT64: u32 = 0x0080;
    /// `mmp`: multiple-mount protection.
    pub const MMP: u32 = 0x0100;
    /// `flex_bg`: a group's metadata may lie in another group.
    pub const FLEX_BG: u32 = 0x0200;
    /// `ea_inode`: attribute values may lie in inodes of their own.
    pub const EA_INODE: u32 = 0x0400;
    /// `dirdata`, Lustre.
    pub const DIRDATA: u32 = 0x1000;
    /// `metadata_csum_seed`: the checksum seed is stored, so that the UUID can change.
    pub const CSUM_SEED: u32 = 0x2000;
    /// `large_dir`: hash trees of three levels.
    pub const LARGEDIR: u32 = 0x4000;
    /// `inline_data`: small files and directories lie in the inode.
    pub const INLINE_DATA: u32 = 0x8000;
    /// `encrypt`.
    pub const ENCRYPT: u32 = 0x1_0000;
    /// `casefold`.
    pub const CASEFOLD: u32 = 0x2_0000;
    /// (bit, name), in order.
    pub const NAMES: &[(u32, &str)] = &[
        (COMPRESSION, "compression"),
        (FILETYPE, "filetype"),
        (RECOVER, "needs_recovery"),
        (JOURNAL_DEV, "journal_dev"),
        (META_BG, "meta_bg"),
        (EXTENTS, "extent"),
        (BIT64, "64bit"),
        (MMP, "mmp"),
        (FLEX_BG, "flex_bg"),
        (EA_INODE, "ea_inode"),
        (DIRDATA, "dirdata"),
        (CSUM_SEED, "metadata_csum_seed"),
        (LARGEDIR, "large_dir"),
        (INLINE_DATA, "inline_data"),
        (ENCRYPT, "encrypt"),
        (CASEFOLD, "casefold"),
    ];
}

/// Features without which an implementation must not write.
pub mod ro_compat {
    /// `sparse_super`: backups only in groups 0, 1 and powers of 3, 5, 7.
    pub const SPARSE_SUPER: u32 = 0x0001;
    /// `large_file`: some file is 2 GiB or larger.
    pub const LARGE_FILE: u32 = 0x0002;
    /// `btree_dir`, never implemented.
    pub const BTREE_DIR: u32 = 0x0004;
    /// `huge_file`: an inode's block count may be in blocks and has 48 bits.
    pub const HUGE_FILE: u32 = 0x0008;
    /// `uninit_bg`: descriptors have a CRC-16 and tell what is uninitialised.
    pub const GDT_CSUM: u32 = 0x0010;
    /// `dir_nlink`: a directory may have any number of subdirectories.
    pub const DIR_NLINK: u32 = 0x0020;
    /// `extra_isize`: every inode has the fields from `i_extra_isize` on.
    pub const EXTRA_ISIZE: u32 = 0x0040;
    /// `quota`: quota files are hidden inodes.
    pub const QUOTA: u32 = 0x0100;
    /// `bigalloc`: the bitmap counts clusters of blocks.
    pub const BIGALLOC: u32 = 0x0200;
    /// `metadata_csum`: CRC-32C on all metadata.
    pub const METADATA_CSUM: u32 = 0x0400;
    /// `replica`, Android.
    pub const REPLICA: u32 = 0x0800;
    /// `read-only`.
    pub const READONLY: u32 = 0x1000;
    /// `project`: project quota ids.
    pub const PROJECT: u32 = 0x2000;
    /// `shared_blocks`, Android.
    pub const SHARED_BLOCKS: u32 = 0x4000;
    /// `verity`.
    pub const VERITY: u32 = 0x8000;
    /// `orphan_present`: the orphan file may have entries.
    pub const ORPHAN_PRESENT: u32 = 0x1_0000;
    /// (bit, name), in order.
    pub const NAMES: &[(u32, &str)] = &[
        (SPARSE_SUPER, "sparse_super"),
        (LARGE_FILE, "large_file"),
        (BTREE_DIR, "btree_dir"),
        (HUGE_FILE, "huge_file"),
        (GDT_CSUM, "uninit_bg"),
        (DIR_NLINK, "dir_nlink"),
        (EXTRA_ISIZE, "extra_isize"),
        (QUOTA, "quota"),
        (BIGALLOC, "bigalloc"),
        (METADATA_CSUM, "metadata_csum"),
        (REPLICA, "replica"),
        (READONLY, "read-only"),
        (PROJECT, "project"),
        (SHARED_BLOCKS, "shared_blocks"),
        (VERITY, "verity"),
        (ORPHAN_PRESENT, "orphan_present"),
    ];
}

/// The names of the bits set in `bits`, comma-separated; unknown bits as hexadecimal numbers.
pub fn names(bits: u32, table: &[(u32, &str)]) -> String {
    let mut out: Vec<String> = table
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let unknown = bits & !table.iter().fold(0, |all, (bit, _)| all | bit);
    if unknown != 0 {
        out.push(format!("{unknown:#x}"));
    }
    out.join(",")
}

/// The bit called `name` in `table`.
pub fn bit(name: &str, table: &[(u32, &str)]) -> Option<u32> {
    table.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
}
