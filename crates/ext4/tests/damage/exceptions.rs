//! Disagreements with e2fsck that are meant, each with its reason.
//!
//! Another one fails the test; the test prints how often each of these was met.

use wp_ext4::check::Kind::{self, *};

/// A disagreement that is meant: what was damaged, what e2fsck says, what we say, and why.
pub struct Known {
    /// Part of the description of the damage; empty: whatever.
    pub damage: &'static str,
    /// Part of e2fsck's text; empty: whatever.
    pub says: &'static str,
    /// Does e2fsck call the image clean?
    pub e2fsck_clean: bool,
    /// The errors that we find, at most; where e2fsck is not content and we are, none.
    pub finds: &'static [Kind],
    /// Where e2fsck 1.47.0 decides.
    pub function: &'static str,
    pub why: &'static str,
}

pub const KNOWN: &[Known] = &[
    Known {
        damage: "",
        says: "IGNORED.",
        e2fsck_clean: true,
        finds: &[GroupChecksum, GroupFlags, BlockBitmap, InodeBitmap, GroupCount, BitmapChecksum],
        function: "check_super_block, PR_0_GDT_CSUM",
        why: "a descriptor's checksum is wrong: with -n e2fsck names it and goes on, whatever \
              the descriptor says of bitmaps, and its exit code is 0; a kernel refuses to mount",
    },
    Known {
        damage: "journal",
        says: "",
        e2fsck_clean: true,
        finds: &[JournalSuper],
        function: "e2fsck_journal_load",
        why: "s_first is looked at when a log is replayed only, and a log of no length is \
              content; a kernel refuses the journal",
    },
    Known {
        damage: "",
        says: "",
        e2fsck_clean: true,
        finds: &[ExtentNode],
        function: "scan_extent_node",
        why: "e2fsck counts levels itself and asks nothing of an empty node; a kernel refuses \
              a depth that its parent does not demand, and an empty inner node",
    },
    Known {
        damage: "",
        says: "uninitialized without feature set",
        e2fsck_clean: false,
        finds: &[],
        function: "check_super_block, PR_0_GDT_UNINIT",
        why: "without checksums of descriptors their flags mean nothing to a kernel, \
              but e2fsck skips what they call unused",
    },
    Known {
        damage: "bitmap",
        says: "",
        e2fsck_clean: true,
        finds: &[BlockBitmap, BitmapChecksum],
        function: "read_bitmaps of libext2fs, ext2fs_reserve_super_and_bgd and its like",
        why: "tables of a group whose own bitmap is uninitialised: e2fsck sets their bits in \
              memory, wherever they lie, and does not see that the disk has them clear",
    },
    Known {
        damage: "i_file_acl",
        says: "",
        e2fsck_clean: true,
        finds: &[XattrBlock, BlockRange, ResizeInode],
        function: "e2fsck_process_bad_inode",
        why: "e2fsck asks whether the block exists only of inodes that a name leads to, \
              so not of the journal, the resize inode and the orphan file",
    },
    Known {
        damage: "journal: s_errno",
        says: "Can't read next inode",
        e2fsck_clean: false,
        finds: &[],
        function: "e2fsck_check_ext3_journal",
        why: "with some images e2fsck stops with an error of its own; with others it is content",
    },
    Known {
        damage: "e_value_size",
        says: "",
        e2fsck_clean: true,
        finds: &[XattrEntry],
        function: "ext2fs_ext_attr_hash_entry",
        why: "e2fsck hashes a value's padding as it stands, we as the zeroes that it should be",
    },
    Known {
        damage: "",
        says: "Update quota info",
        e2fsck_clean: false,
        finds: &[],
        function: "check_super_block's caller e2fsck_run, PR_6_UPDATE_QUOTAS",
        why: "we do not read quota files, and so do not count what users and projects own",
    },
    Known {
        damage: "",
        says: "",
        e2fsck_clean: true,
        finds: &[ResizeInode, BlockTwice],
        function: "check_resize_inode, PR_0_RESIZE_INODE_INVALID",
        why: "e2fsck compares the first quarter of the reserved blocks only, and with -n an \
              invalid resize inode alone does not make its exit code 4; a kernel refuses to grow",
    },
    Known {
        damage: "hash tree of",
        says: "",
        e2fsck_clean: true,
        finds: &[HtreeHash, HtreeNode],
        function: "parse_int_node (pass2.c)",
        why: "the last entry of an inner node has no upper bound for e2fsck, whatever the root \
              says; a kernel looks for these names in another node",
    },
];
