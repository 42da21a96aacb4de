//! What e2fsck's messages are about, in our classes of structures.
//!
//! Each line is matched against [`WORDS`] from the top; the first match counts. Where a message of
//! e2fsck is ambiguous, all classes that can be meant are listed:
//! - an illegal block is of the inode (`i_block`) or of a node of its map: `Map`, `Inode`;
//! - the size and the blocks of an inode follow from its map: `Inode`, `Map`;
//! - a name whose inode is not in use: `Dir`, or `Inode` if the inode is what was damaged, or
//!   `Group` if its group calls it unused, or `Links`;
//! - what e2fsck calls a conflict or a multiply-claimed block may be told of either owner: `Map`,
//!   `Group`, `Xattr`, `Resize`;
//! - a directory that e2fsck drops in pass 1 is reported again as missing entries and links.

use wp_ext4::check::Class::{self, *};

/// (part of a line, what it is about). No class: a line that says nothing about a structure.
const WORDS: &[(&str, &[Class])] = &[
    // Talk.
    ("e2fsck 1.", &[]),
    // Second lines of messages that are mapped by their first.
    ("+(", &[]),
    ("marking ", &[]),
    ("now = ", &[]),
    ("has the casefold flag", &[Inode]),
    ("has encrypt flag", &[Inode]),
    ("invalid unused inodes count", &[Group]),
    ("external journal", &[Super]),
    ("pass 1", &[]),
    ("contains large files", &[Super]),
    ("update quota info", &[]),
    ("[quota warning]", &[]),
    ("pass 2:", &[]),
    ("pass 3", &[]),
    ("pass 4:", &[]),
    ("pass 5:", &[]),
    // Of the resize inode e2fsck speaks as of any file.
    ("inode 7 has illegal", &[Resize, Map]),
    ("in inode 7.", &[Resize, Map]),
    ("inode 7, i_blocks", &[Resize]),
    ("journal superblock", &[Journal]),
    ("invalid journal", &[Journal, Inode, Map, Group]),
    ("directory passes checks but fails checksum", &[Dir, Htree]),
    ("directory corrupted", &[Dir, Map]),
    ("directory has no checksum", &[Dir]),
    ("extent block passes checks", &[Map, Inode]),
    ("problem in htree", &[Htree, Dir]),
    ("invalid htree", &[Htree, Dir]),
    ("extended attribute block", &[Xattr, Map, Inode]),
    ("warning: filesystem still has errors", &[]),
    ("contains a file system with errors", &[]),
    ("skipping journal recovery because", &[]),
    (" files (", &[]),
    ("file system was modified", &[]),
    ("could be optimized", &[]),
    ("running additional passes to resolve", &[]),
    ("have multiply-claimed blocks", &[]),
    ("inodes containing multiply-claimed blocks", &[Map]),
    ("mod time", &[]),
    ("filesystem metadata>", &[]),
    ("already reassigned or cloned", &[]),
    ("too many illegal blocks", &[Map, Inode]),
    ("backing up journal inode", &[]),
    ("clone multiply-claimed", &[]),
    ("delete file?", &[]),
    ("either the superblock or the partition table", &[Super]),
    ("the physical size of the device", &[Super]),
    ("is likely to be corrupt", &[]),
    ("adding dirhash hint", &[Super]),
    ("note: if several", &[]),
    ("of inode tables require relocation", &[]),
    ("running e2fsck with", &[]),
    ("again, you may wish", &[]),
    ("are from the same block", &[]),
    ("inode(s) or block", &[]),
    ("trying backup blocks", &[Super, Group, Count]),
    ("e2fsck: cannot proceed with file system check", &[]),
    ("e2fsck: aborted", &[]),
    ("filesystem.  if the device is valid", &[]),
    ("internal error: couldn't find dir_info", &[Dir, Inode, Links]),
    ("unknown checksum algorithm", &[Super]),
    ("e2fsck -b", &[]),
    ("bode well", &[]),
    ("creating orphan file", &[]),
    ("the bad block inode has probably been corrupted", &[Inode, Map]),
    ("should stop now and run e2fsck -c", &[]),
    // Super block.
    ("cannot proceed without a root inode", &[Inode]),
    ("root inode not allocated", &[Inode]),
    ("root inode is not a directory", &[Inode]),
    ("orphaned inode list", &[Inode, Orphan]),
    ("in orphaned", &[Orphan, Super]),
    ("rphan file", &[Orphan]),
    ("orphan_present", &[Orphan, Super]),
    ("superblock", &[Super]),
    ("uperblock", &[Super]),
    ("super-block", &[Super]),
    ("filesystem size", &[Super]),
    ("did not have a uuid", &[Super]),
    ("has feature flag(s) set, but is a revision 0", &[Super]),
    ("revision level too high", &[Super]),
    ("unsupported feature", &[Super]),
    ("unsupported read-only feature", &[Super]),
    ("bad required extra isize", &[Super]),
    ("bad desired extra isize", &[Super]),
    ("first_meta_bg", &[Super, Group]),
    ("mmp", &[Super]),
    ("test_fs flag", &[Super]),
    ("ransaction", &[Journal]),
    ("htree directory inode", &[Htree]),
    ("tree directory inode", &[Htree]),
    ("index_fl", &[Inode]),
    ("unexpected block in htree", &[Htree]),
    ("directory inode", &[Dir]),
    // Journal, resize inode, reserved inodes.
    ("ournal", &[Journal, Inode, Super]),
    ("resize inode", &[Resize]),
    ("resize_inode", &[Resize, Super]),
    ("resize inode", &[Resize]),
    ("uota", &[Inode, Super]),
    ("reserved inode", &[Inode]),
    ("ad block inode", &[Inode, Map]),
    ("bad block", &[Inode, Map]),
    ("is on the bad block list", &[Inode, Map]),
    // Group descriptors.
    ("group descriptor", &[Group]),
    ("group descriptor", &[Group]),
    ("for group", &[Group, Count, Bitmap]),
    ("is not in group", &[Group]),
    ("conflicts with some other fs block", &[Group]),
    ("conflicts with critical metadata", &[Map, Group, Resize]),
    ("block bitmap uninitialized", &[Group]),
    ("_inode_uninit is set", &[Group, Dir]),
    ("unused inodes area", &[Group, Dir]),
    ("but group is marked", &[Group]),
    ("does not match checksum", &[Inode, Map, Xattr, Bitmap]),
    ("relocat", &[Group]),
    // Counts and bitmaps.
    ("count wrong", &[Count, Group]),
    ("padding at end", &[Bitmap]),
    ("bitmap differences", &[Bitmap]),
    ("bitmap does not match checksum", &[Bitmap]),
    // Maps.
    ("checksum does not match extent", &[Map]),
    ("xtent", &[Map, Inode]),
    ("logical block", &[Map, Inode]),
    ("extent_fl", &[Inode]),
    ("extents_fl", &[Inode]),
    ("llegal block", &[Map, Inode]),
    ("overlaps filesystem metadata", &[Map, Group]),
    ("ultiply-claimed", &[Map, Group, Xattr, Resize]),
    ("too big", &[Map, Inode]),
    ("iterat", &[Map, Inode]),
    ("error reading block", &[Map, Dir, Xattr, Group, Inode]),
    ("can't read next inode", &[Inode, Group]),
    ("while reading in", &[Group, Bitmap]),
    // Attributes.
    ("xtended attribute", &[Xattr]),
    ("ea inode", &[Xattr]),
    ("ea_inode", &[Xattr, Inode]),
    ("ea_inode", &[Xattr, Inode]),
    ("i_file_acl", &[Xattr, Inode]),
    ("llocation collision", &[Xattr]),
    // Names and links.
    ("i_faddr", &[Inode]),
    ("i_frag", &[Inode]),
    ("i_fsize", &[Inode]),
    ("i_blocks_hi", &[Inode]),
    ("i_size_high", &[Inode]),
    ("duplicate entry", &[Dir]),
    ("duplicate", &[Dir]),
    ("non-unique filename", &[Dir]),
    ("eleted/unused inode", &[Dir, Inode, Links, Group]),
    ("invalid inode #", &[Dir]),
    ("is a link to directory", &[Dir, Links]),
    ("is a link to the root", &[Dir, Links]),
    ("is a link to '.'", &[Dir]),
    ("incorrect filetype", &[Dir, Inode]),
    ("illegal characters", &[Dir]),
    ("zero-length name", &[Dir]),
    ("setting filetype", &[Dir]),
    ("entry '", &[Dir]),
    ("irectory entry", &[Dir]),
    ("missing '.", &[Dir]),
    ("'..' in", &[Links, Dir]),
    ("invalid inode number for '.'", &[Dir]),
    ("unconnected", &[Links]),
    ("ecursively looped", &[Links]),
    ("nattached", &[Links]),
    ("ref count is", &[Links]),
    ("lost+found", &[Dir, Inode, Links]),
    ("symlink", &[Inode]),
    ("symlink", &[Inode, Map]),
    // Inodes.
    ("inline data", &[Inode]),
    ("inline_data", &[Inode]),
    ("nline directory", &[Dir, Inode]),
    ("i_size is", &[Inode, Map]),
    ("i_blocks is", &[Inode, Map, Resize]),
    ("llegal block device", &[Inode]),
    ("special (", &[Inode]),
    ("inode", &[Inode]),
    ("inode", &[Inode]),
    ("llegal character device", &[Inode]),
    ("llegal fifo", &[Inode]),
    ("llegal socket", &[Inode]),
    ("root inode", &[Inode]),
    // The end of a message of several lines.
    ("fix? no", &[]),
    ("clear? no", &[]),
    ("? no", &[]),
    ("ignored", &[]),
];

/// What each line is about; lines that say nothing are left out. `Err`: a line that no word fits.
pub fn lines(text: &str, image: &str) -> Vec<Result<&'static [Class], String>> {
    let mut out = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        // Questions alone on a line, the image's name and numbers of blocks say nothing.
        let line = line.replace(image, "image").to_lowercase();
        if line.starts_with("image: ") && line.contains(" files (")
            || line == "image"
            || line == "or"
        {
            continue;
        }
        match WORDS.iter().find(|(word, _)| line.contains(word)) {
            Some((_, [])) => {}
            Some((_, classes)) => out.push(Ok(*classes)),
            None if line.starts_with('(') || line.starts_with("[") => {}
            None => out.push(Err(line)),
        }
    }
    out
}
