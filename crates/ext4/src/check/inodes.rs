//! Every inode that is in use: its fields, its map, its attributes.

use wp_vfs::FileType;

use crate::disk::inode::flag;
use crate::disk::{GroupDesc, Inode, InodeExtra, compat, incompat, ino, ro_compat};

use super::blocks::{self, Map};
use super::finding::Kind;
use super::state::{Dir, State, Used};
use super::{special, xattrs};

/// Reads all inode tables, but what their groups call unused.
pub(super) fn pass(s: &mut State<'_>) {
    let bytes = usize::from(s.g.inode_bytes);
    for group in 0..s.g.groups {
        let Some(desc) = s.groups.get(group as usize).copied() else { return };
        let hints = s.sums.descriptors();
        if hints && desc.has(GroupDesc::INODE_UNINIT) {
            continue;
        }
        let unused = if hints { desc.itable_unused() } else { 0 };
        let count = s.g.inodes_per_group.saturating_sub(unused);
        let per_block = s.g.block_size.bytes() / u32::from(s.g.inode_bytes);
        let first = group * s.g.inodes_per_group + 1;
        let mut table = Vec::new();
        for n in 0..count {
            if n % per_block == 0 {
                let block = desc.inode_table() + u64::from(n / per_block);
                table = s.read(block).unwrap_or_default();
            }
            let from = (n % per_block) as usize * bytes;
            let Some(raw) = table.get(from..from + bytes) else { continue };
            if raw.iter().any(|b| *b != 0) {
                one(s, first + n, raw);
            }
        }
    }
    for (number, is_needed) in [(ino::ROOT, true), (ino::JOURNAL, s.sb.has_internal_journal())] {
        if is_needed && !s.used.contains_key(&number) {
            s.add(Kind::InodeMode, format!("inode {number}"), "not in use", "in use");
        }
    }
    // All zero, it has been passed over.
    if s.sb.has_compat(compat::RESIZE_INODE) && !s.used.contains_key(&ino::RESIZE) {
        s.add(Kind::ResizeInode, "inode 7".to_owned(), "not in use", "in use");
    }
    xattrs::refcounts(s);
}

/// What groups call unused of their tables, where they say that it was zeroed
/// (`EXT4_BG_INODE_ZEROED`).
pub(super) fn unused(s: &mut State<'_>) {
    let per_block = s.g.block_size.bytes() / u32::from(s.g.inode_bytes);
    for group in 0..s.g.groups {
        let Some(desc) = s.groups.get(group as usize).copied() else { return };
        if !s.sums.descriptors() || !desc.has(GroupDesc::INODE_ZEROED) {
            continue;
        }
        let used = match desc.has(GroupDesc::INODE_UNINIT) {
            true => 0,
            false => s.g.inodes_per_group.saturating_sub(desc.itable_unused()),
        };
        for n in used.div_ceil(per_block)..s.g.itable_blocks {
            let block = desc.inode_table() + u64::from(n);
            if s.read(block).is_some_and(|bytes| bytes.iter().any(|b| *b != 0)) {
                let place = format!("group {group}, inode table, block {block}");
                s.add(Kind::InodeTable, place, "old contents", "zeroes (INODE_ZEROED)");
                break;
            }
        }
    }
}

fn place(number: u32, field: &str) -> String {
    format!("inode {number}, {field}")
}

fn one(s: &mut State<'_>, number: u32, raw: &[u8]) {
    let Some(i) = Inode::load(raw) else { return };
    if !s.sums.inode_ok(number, raw) {
        let right = s.sums.inode(number, raw);
        s.add(Kind::InodeChecksum, place(number, "i_checksum"), i.checksum_lo.get(), right);
    }
    if number < s.g.first_inode && number != ino::ROOT || special::is_hidden(s, number) {
        return special::reserved(s, number, &i);
    }
    if i.links_count.get() == 0 && number != ino::ROOT {
        special::low_dtime(s, number, &i);
        if i.dtime.get() == 0 && i.mode.get() != 0 {
            let expected = "the deletion time";
            s.add(Kind::InodeDtime, place(number, "i_dtime"), 0, expected);
        }
        return;
    }
    if i.dtime.get() != 0 {
        let found = i.dtime.get();
        s.add(Kind::InodeDtime, place(number, "i_dtime"), found, "0 for an inode in use");
    }
    let (mode, links, indexed) = (i.mode.get(), i.links_count.get(), i.has(flag::INDEX));
    let used = Used { mode, links, names: 0, indexed };
    s.used.insert(number, used);
    if number == ino::ROOT && !i.is_dir() {
        s.add(Kind::InodeMode, place(number, "i_mode"), i.mode.get(), "a directory");
    }
    fields(s, number, &i, raw);
    let spb = s.g.block_size.sectors();
    match FileType::from_mode(i.mode.get().into()) {
        Some(FileType::File) => file(s, number, &i),
        Some(FileType::Dir) => dir(s, number, &i),
        Some(FileType::Symlink) => symlink(s, number, &i, spb),
        None => {
            s.add(Kind::InodeMode, place(number, "i_mode"), i.mode.get(), "a known file type");
        }
        _ => device(s, number, &i),
    }
}

/// `EXT2_IMAGIC_FL`, of AFS.
const IMAGIC: u32 = 0x2000;

/// Fields that every inode has.
fn fields(s: &mut State<'_>, number: u32, i: &Inode, raw: &[u8]) {
    let zero = |s: &mut State<'_>, field: &str, found: u32| {
        if found != 0 {
            s.add(Kind::InodeField, place(number, field), found, 0);
        }
    };
    zero(s, "i_obso_faddr", i.obso_faddr.get());
    if !s.sb.has_incompat(incompat::BIT64) {
        zero(s, "i_file_acl_high", i.file_acl_hi.get().into());
    }
    if !s.sb.has_ro_compat(ro_compat::HUGE_FILE) {
        zero(s, "i_blocks_high", i.blocks_hi.get().into());
    }
    if i.is_dir() && !s.sb.has_incompat(incompat::LARGEDIR) {
        zero(s, "i_size_high", i.size_hi.get());
    }
    if s.g.inode_bytes > 128 {
        let size = InodeExtra::load(raw).extra_isize.get();
        let room = s.g.inode_bytes - 128;
        if size != 0 && (size < 4 || size > room || !size.is_multiple_of(4)) {
            let expected = format!("a multiple of 4, from 4 to {room}");
            s.add(Kind::InodeExtraSize, place(number, "i_extra_isize"), size, expected);
        } else {
            xattrs::in_inode(s, number, raw, size);
        }
    }
    let index_wanted = i.is_dir() && s.sb.has_compat(compat::DIR_INDEX);
    if i.has(flag::INDEX) && !index_wanted && (i.is_file() || i.is_dir()) {
        let expected = "the flag only on directories, with dir_index";
        s.add(Kind::InodeFlags, place(number, "INDEX"), i.flags.get(), expected);
    }
    for (bit, name) in [
        (flag::INLINE_DATA, "INLINE_DATA"),
        (flag::ENCRYPT, "ENCRYPT"),
        (flag::CASEFOLD, "CASEFOLD"),
        (flag::VERITY, "VERITY"),
        (IMAGIC, "IMAGIC"),
    ] {
        if i.has(bit) {
            let expected = "no flag of a feature that the file system lacks";
            s.add(Kind::InodeFlags, place(number, name), i.flags.get(), expected);
        }
    }
    if i.has(flag::EXTENTS) && !s.sb.has_incompat(incompat::EXTENTS) {
        let expected = "no flag without the feature";
        s.add(Kind::InodeFlags, place(number, "EXTENTS"), i.flags.get(), expected);
    }
}

/// Checks i_blocks against what a map and the attributes use.
fn sectors(s: &mut State<'_>, number: u32, i: &Inode, map_blocks: u64) {
    let attributes = xattrs::block(s, number, i);
    let spb = u64::from(s.g.block_size.sectors());
    let has_huge = s.sb.has_ro_compat(ro_compat::HUGE_FILE);
    let unit = if has_huge && i.has(flag::HUGE_FILE) { spb } else { 1 };
    let raw = if has_huge { i.blocks_raw() } else { i.blocks_lo.get().into() };
    let right = (map_blocks + (attributes << s.g.cluster_bits)) * spb / unit;
    if raw != right {
        s.add(Kind::InodeBlocks, place(number, "i_blocks"), raw, right);
    }
}

fn size_in(s: &mut State<'_>, number: u32, i: &Inode, is_right: bool, expected: &str) {
    if !is_right {
        s.add(Kind::InodeSize, place(number, "i_size"), i.size(), expected);
    }
}

/// A regular file's map, size and blocks.
pub(super) fn file(s: &mut State<'_>, number: u32, i: &Inode) {
    let is_orphan_file =
        s.sb.has_compat(compat::ORPHAN_FILE) && number == s.sb.orphan_file_inum.get();
    let map = blocks::walk(s, number, i, is_orphan_file);
    file_of(s, number, i, &map);
    s.orphan_runs.extend(map.runs);
}

/// The same with a map that is known.
pub(super) fn file_of(s: &mut State<'_>, number: u32, i: &Inode, map: &Map) {
    sectors(s, number, i, map.blocks);
    let bs = u64::from(s.g.block_size.bytes());
    let fits = map.last_written.is_none_or(|last| i.size() >= last * bs);
    size_in(s, number, i, fits, "a size up to the last written block or more");
    if i.is_file() && i.size() > 0x7FFF_FFFF && !s.sb.has_ro_compat(ro_compat::LARGE_FILE) {
        let place = place(number, "i_size");
        s.add(Kind::SuperFeature, place, i.size(), "less than 2 GiB without large_file");
    }
    let max = if i.has(flag::EXTENTS) { (bs << 32) - 1 } else { u64::MAX };
    let fits = i.size() <= max && (i.has(flag::EXTENTS) || fits_pointers(s, i.size()));
    size_in(s, number, i, fits, "at most the limit of the block map");
}

/// Can 15 pointers map `size` bytes?
pub(super) fn fits_pointers(s: &State<'_>, size: u64) -> bool {
    let bs = u64::from(s.g.block_size.bytes());
    let p = bs / 4;
    size <= ((12 + p + p * p + p * p * p) * bs).min(1 << 41)
}

fn dir(s: &mut State<'_>, number: u32, i: &Inode) {
    let map = blocks::walk(s, number, i, true);
    sectors(s, number, i, map.blocks);
    let bs = u64::from(s.g.block_size.bytes());
    let len = map.last.map_or(0, |l| l + 1);
    let fits = i.size() == len * bs && len > 0;
    size_in(s, number, i, fits, &format!("{} bytes, the size of its blocks", len * bs));
    if map.has_unwritten {
        let expected = "no unwritten blocks in a directory";
        s.add(Kind::DirHole, place(number, "i_block"), "unwritten blocks", expected);
    }
    let mut dir = Dir {
        len: u32::try_from(len).unwrap_or(u32::MAX),
        is_indexed: i.has(flag::INDEX) && s.sb.has_compat(compat::DIR_INDEX),
        seed: s.sums.inode_seed(number, i.generation.get()),
        ..Dir::default()
    };
    for (logical, start, n) in map.runs {
        let within = s.g.holds(start, n.into());
        dir.blocks.extend(
            (0..if within { n } else { 0 })
                .map(|k| (logical.saturating_add(k), start + u64::from(k))),
        );
    }
    s.dirs.insert(number, dir);
}

/// Flags that what is no file and no directory cannot have (`forbidden`), or has without a use.
fn special_flags(s: &mut State<'_>, number: u32, i: &Inode, forbidden: u32) {
    let (flags, expected) = (i.flags.get(), "this flag only on files and directories");
    if flags & forbidden != 0 {
        s.add(Kind::InodeFlags, place(number, "i_flags"), flags, expected);
    } else if flags & (flag::IMMUTABLE | flag::APPEND) != 0 {
        s.harmless(Kind::InodeFlags, place(number, "i_flags"), flags, expected);
    }
}

fn symlink(s: &mut State<'_>, number: u32, i: &Inode, spb: u32) {
    let size = i.size();
    let is_fast = i.is_fast_symlink(spb);
    let map = if is_fast { Map::default() } else { blocks::walk(s, number, i, true) };
    sectors(s, number, i, map.blocks);
    special_flags(s, number, i, flag::INDEX);
    let target = if is_fast {
        if i.has(flag::EXTENTS) {
            let expected = "no extents in a fast symbolic link";
            s.add(Kind::InodeFlags, place(number, "EXTENTS"), i.flags.get(), expected);
        }
        i.block.to_vec()
    } else {
        match map.runs.as_slice() {
            [(0, start, 1)] => s.read(*start).unwrap_or_default(),
            _ => Vec::new(),
        }
    };
    let len = target.iter().position(|b| *b == 0).unwrap_or(target.len()) as u64;
    if size == 0 || len != size || size >= target.len() as u64 {
        s.add(Kind::SymlinkTarget, place(number, "i_size"), size, len);
    }
}

fn device(s: &mut State<'_>, number: u32, i: &Inode) {
    sectors(s, number, i, 0);
    size_in(s, number, i, i.size() == 0, "0");
    special_flags(s, number, i, flag::INDEX | flag::EXTENTS);
    // Pipes and sockets have no number; nobody minds what stands in its place.
    if i.block.get(16..).is_some_and(|b| b.iter().any(|b| *b != 0)) {
        let expected = "zeroes after the device number";
        s.harmless(Kind::InodeField, place(number, "i_block"), "not zero", expected);
    }
}
