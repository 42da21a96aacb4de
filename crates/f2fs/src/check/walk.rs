//! From the root through all names and nodes, noting who refers to what.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::FsResult;
use wp_vfs::FileType;

use crate::disk::feature;
use crate::disk::inode::{advise, flag, inline};
use crate::disk::{
    Block, Checksums, DentryArea, Footer, Geometry, Inode, Node, Shape, addr, hash, nid, tree,
    xattr,
};

use super::extent::LargestSeen;
use super::tables::Tables;
use super::{Kind, Report};

/// Longest name. `F2FS_NAME_LEN`.
const NAME_BYTES_MAX: u32 = 255;

/// Who a block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) nid: u32,
    /// Which address of it; `None`: the node's own block.
    pub(super) slot: Option<u32>,
}

/// What the walk has seen.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) owners: BTreeMap<u32, Owner>,
    pub(super) nodes: BTreeSet<u32>,
    pub(super) inodes: u32,
    /// Promised blocks, which count as valid without being anywhere.
    pub(super) promised: u64,
    /// Was something unreadable, so that what hangs on it may look lost?
    pub(super) gaps: bool,
    /// Names that lead to an inode.
    links: BTreeMap<u32, u32>,
    /// Links that inodes claim, and what they are.
    claimed: BTreeMap<u32, (u32, Option<FileType>)>,
    /// Directories below a directory.
    subdirs: BTreeMap<u32, u32>,
    dirs: Vec<(u32, u32)>,
}

pub(super) fn walk(t: &Tables<'_>, report: &mut Report) -> FsResult<Seen> {
    let mut s = Seen::default();
    inode(t, &mut s, report, nid::ROOT, nid::ROOT, Some(FileType::Dir.entry()))?;
    for ino in t.sb.qf_ino.iter().map(|i| i.get()).filter(|i| *i != 0) {
        inode(t, &mut s, report, ino, ino, Some(FileType::File.entry()))?;
        // Nothing names them.
        s.links.insert(ino, 1);
    }
    while let Some((ino, parent)) = s.dirs.pop() {
        names(t, &mut s, report, ino, parent)?;
    }
    for ino in t.orphans.clone() {
        if s.nodes.contains(&ino) && s.claimed.get(&ino).is_some_and(|c| c.0 > 0) {
            report.add(
                Kind::Orphan,
                format!("inode {ino}"),
                "an inode with names",
                "an inode without names",
            );
            continue;
        }
        inode(t, &mut s, report, ino, ino, None)?;
        s.claimed.remove(&ino);
    }
    for (ino, (claimed, kind)) in &s.claimed {
        let subdirs = s.subdirs.get(ino).copied().unwrap_or(0);
        let right = if *kind == Some(FileType::Dir) {
            2 + subdirs
        } else {
            s.links.get(ino).copied().unwrap_or(0)
        };
        if *claimed != right {
            report.add(Kind::Links, format!("inode {ino}"), claimed, right);
        }
    }
    Ok(s)
}

/// Notes that a node or data block belongs to someone.
fn claim(t: &Tables<'_>, s: &mut Seen, report: &mut Report, block: u32, owner: Owner) {
    if !t.g.is_main(block) {
        let place = format!("node {}", owner.nid);
        report.add(Kind::Address, place, block, "a block of the main area");
        return;
    }
    if let Some(first) = s.owners.insert(block, owner) {
        let place = format!("block {block}");
        let found = format!("nodes {} and {}", first.nid, owner.nid);
        report.add(Kind::BlockShared, place, found, "one owner");
    }
}

/// Reads a node that something refers to; `None`, after saying why, if it is not the one.
fn node(
    t: &Tables<'_>,
    s: &mut Seen,
    report: &mut Report,
    (nid, ino, offset): (u32, u32, u32),
) -> FsResult<Option<Block>> {
    let place = format!("node {nid} of inode {ino}");
    let Some(entry) = t.nat.get(&nid) else {
        s.gaps = true;
        report.add(Kind::NatEntry, place, "free", "a block");
        return Ok(None);
    };
    if !s.nodes.insert(nid) {
        report.add(Kind::BlockShared, place, "two references", "once");
        return Ok(None);
    }
    let at = entry.block_addr.get();
    if !addr::is_block(at) || !t.g.is_main(at) {
        s.gaps = true;
        return Ok(None);
    }
    claim(t, s, report, at, Owner { nid, slot: None });
    if entry.ino.get() != ino {
        report.add(Kind::NatEntry, place.as_str(), entry.ino.get(), ino);
    }
    let block = t.block(at)?;
    let footer = Footer::of(&block);
    let found = (footer.nid.get(), footer.ino.get(), footer.offset());
    if found != (nid, ino, offset) {
        s.gaps = true;
        let expected = format!("{:?}", (nid, ino, offset));
        report.add(Kind::NodeFooter, place, format!("{found:?}"), expected);
        return Ok(None);
    }
    Ok(Some(block))
}

/// Looks at an inode and all its nodes. `told`: its type, as the entry of its name has it.
fn inode(
    t: &Tables<'_>,
    s: &mut Seen,
    report: &mut Report,
    ino: u32,
    parent: u32,
    told: Option<u8>,
) -> FsResult<()> {
    let Some(block) = node(t, s, report, (ino, ino, 0))? else { return Ok(()) };
    let place = format!("inode {ino}");
    s.inodes += 1;
    let i = Inode::of(&block);
    if !Checksums::of(&t.sb).inode_ok(&block) {
        let right = Checksums::of(&t.sb).inode(&block).unwrap_or(0);
        let found = i.extra().inode_checksum.get();
        report.add(
            Kind::InodeChecksum,
            place.as_str(),
            format!("{found:#x}"),
            format!("{right:#x}"),
        );
    }
    if let Err(c) = Inode::verify(&block, t.sb.feature.get(), 0) {
        report.corrupt(Kind::Inode, &place, &c);
        s.gaps = true;
        return Ok(());
    }
    let own = FileType::from_mode(i.mode.get().into());
    if own.is_none() {
        report.add(Kind::Inode, place.as_str(), i.mode.get(), "a type");
    }
    let right = own.map_or(0, FileType::entry);
    if let Some(told) = told.filter(|told| *told != right) {
        let told = FileType::from_entry(told);
        report.add(Kind::Dentry, place.as_str(), FileType::word_of(told), FileType::word_of(own));
    }
    s.claimed.insert(ino, (i.links.get(), own));
    let mut count = 1;
    attributes(t, s, report, ino, i, &mut count)?;
    fields(t, report, i, &place);
    // The addresses of a device file are its number (`__set_inode_rdev`), and those of a FIFO or a
    // socket are none.
    let has_blocks = matches!(own, Some(FileType::File | FileType::Dir | FileType::Symlink));
    if has_blocks && i.inline & (inline::DATA | inline::DENTRY) == 0 {
        data(t, s, report, ino, &block, &mut count)?;
    }
    if i.blocks.get() != count && !s.gaps {
        report.add(Kind::InodeBlocks, place, i.blocks.get(), count);
    }
    if i.is_dir() {
        s.dirs.push((ino, parent));
    }
    Ok(())
}

/// Fields that no mount looks at.
fn fields(t: &Tables<'_>, report: &mut Report, i: &Inode, place: &str) {
    let mut wrong = |field: &str, found: u32, expected: &str| {
        report.add(Kind::Inode, format!("{place}: {field}"), format!("{found:#x}"), expected);
    };
    if i.namelen.get() > NAME_BYTES_MAX {
        wrong("i_namelen", i.namelen.get(), "up to 255");
    }
    let flags = i.flags.get();
    if flags & flag::COMPR != 0 && !t.sb.has(feature::COMPRESSION) {
        wrong("i_flags", flags, "no compression flag without the feature");
    }
    if i.inline & (inline::DATA | inline::DENTRY) == 0 {
        return;
    }
    let shape = Shape::of(i, t.sb.feature.get());
    // The address in front of contents in the inode is of no block.
    let reserved = i.addr(&shape, 0);
    if reserved != 0 {
        wrong("i_addr before the inline contents", reserved, "0");
    }
    if i.ext.len.get() != 0 {
        wrong("i_ext.len", i.ext.len.get(), "0 (inline contents)");
    }
    let has_bytes = i.inline_area(&shape).iter().any(|b| *b != 0);
    if i.has_inline(inline::DATA) && !i.has_inline(inline::DATA_EXIST) && has_bytes {
        wrong("i_inline", i.inline.into(), "the FI_DATA_EXIST flag");
    }
}

fn attributes(
    t: &Tables<'_>,
    s: &mut Seen,
    report: &mut Report,
    ino: u32,
    i: &Inode,
    count: &mut u64,
) -> FsResult<()> {
    let shape = Shape::of(i, t.sb.feature.get());
    let mut bytes = Vec::new();
    if i.has_inline(inline::XATTR) {
        bytes.extend_from_slice(i.xattr_area(&shape));
    }
    let further = i.xattr_nid.get();
    if further != 0
        && let Some(block) = node(t, s, report, (further, ino, tree::XATTR_OFFSET))?
    {
        *count += 1;
        bytes.extend_from_slice(block.get(..Node::BODY_BYTES).unwrap_or(&[]));
    }
    match xattr::load(&bytes, 0) {
        Err(c) => report.corrupt(Kind::Attribute, format!("inode {ino}"), &c),
        Ok(all) => {
            let unknown = all.iter().find(|a| xattr::prefix(a.name_index).is_none());
            if let Some(a) = unknown {
                let place = format!("inode {ino}");
                report.add(Kind::Attribute, place, a.name_index, "an index of names");
            }
        }
    }
    Ok(())
}

/// Notes the blocks of a file and of the nodes below its inode.
fn data(
    t: &Tables<'_>,
    s: &mut Seen,
    report: &mut Report,
    ino: u32,
    block: &Block,
    count: &mut u64,
) -> FsResult<()> {
    let i = Inode::of(block);
    let shape = Shape::of(i, t.sb.feature.get());
    let words = if i.has_addresses() { shape.inode_addrs } else { 0 };
    let own: Vec<u32> = (0..words).map(|n| i.addr(&shape, n)).collect();
    let mut largest = LargestSeen::new(i);
    largest.see(0, &own);
    addresses(t, s, report, ino, &own, count);
    let n = Node::WORDS;
    // To be checked: node, offset, levels below it.
    let mut todo: Vec<(u32, u32, u32)> =
        [(0, 1, 0), (1, 2, 0), (2, 3, 1), (3, 4 + n, 1), (4, 5 + 2 * n, 2)]
            .iter()
            .map(|(slot, offset, level)| (i.nid(*slot), *offset, *level))
            .filter(|(nid, ..)| *nid != 0)
            .collect();
    while let Some((nid, offset, level)) = todo.pop() {
        let Some(block) = node(t, s, report, (nid, ino, offset))? else { continue };
        *count += 1;
        let words: Vec<u32> = Node::of(&block).words().collect();
        if level == 0 {
            if let Some(first) = shape.first_block(offset) {
                largest.see(first, &words);
            }
            addresses(t, s, report, nid, &words, count);
            continue;
        }
        let step = if level == 2 { n + 1 } else { 1 };
        let below = words.iter().zip(0..).filter(|(w, _)| **w != 0);
        todo.extend(below.map(|(w, k)| (*w, offset + 1 + k * step, level - 1)));
    }
    if !s.gaps && !largest.is_right() {
        let found = largest.to_string();
        report.add(
            Kind::Extent,
            format!("inode {ino}: i_ext"),
            found,
            "the addresses of its blocks",
        );
    }
    Ok(())
}

fn addresses(
    t: &Tables<'_>,
    s: &mut Seen,
    report: &mut Report,
    nid: u32,
    words: &[u32],
    count: &mut u64,
) {
    for (word, slot) in words.iter().zip(0..) {
        match *word {
            addr::NULL => continue,
            // A compressed cluster's head takes no block, but counts as promised.
            addr::NEW | addr::COMPRESS => s.promised += 1,
            word => claim(t, s, report, word, Owner { nid, slot: Some(slot) }),
        }
        *count += 1;
    }
}

/// Reads a directory's names, and goes to what they name.
fn names(t: &Tables<'_>, s: &mut Seen, report: &mut Report, ino: u32, parent: u32) -> FsResult<()> {
    let Some(entry) = t.nat.get(&ino) else { return Ok(()) };
    let block = t.block(entry.block_addr.get())?;
    let i = Inode::of(&block);
    if i.has_advice(advise::ENCRYPT) {
        s.gaps = true;
        return Ok(());
    }
    let shape = Shape::of(i, t.sb.feature.get());
    let mut known = Names::default();
    if i.has_inline(inline::DENTRY) {
        let area = DentryArea::inline(shape.inline_bytes());
        let bytes = i.inline_area(&shape);
        let place = Directory { ino, parent, inode: i, block: None };
        take(t, s, report, (&area, bytes), &place, &mut known)?;
    }
    let blocks =
        if i.has_inline(inline::DENTRY) { Vec::new() } else { blocks_of(t, &block, &shape)? };
    for (logical, place) in blocks {
        let bytes = t.block(place)?;
        let here = Directory { ino, parent, inode: i, block: Some(logical) };
        take(t, s, report, (&DentryArea::BLOCK, &bytes), &here, &mut known)?;
    }
    let dots = known.dots;
    if dots != 2 && !i.has_inline(inline::DOTS) {
        report.add(Kind::Dentry, format!("directory {ino}"), format!("{dots} dots"), "two");
    }
    Ok(())
}

/// The names of a directory so far.
#[derive(Default)]
struct Names {
    dots: u32,
    all: BTreeSet<Vec<u8>>,
}

/// The directory that names are read from.
struct Directory<'a> {
    ino: u32,
    parent: u32,
    inode: &'a Inode,
    block: Option<u64>,
}

/// Blocks of a directory: place in it, and address. Its nodes were checked already.
fn blocks_of(t: &Tables<'_>, block: &Block, shape: &Shape) -> FsResult<Vec<(u64, u32)>> {
    let i = Inode::of(block);
    let mut out = Vec::new();
    let mut add = |first: u64, words: &mut dyn Iterator<Item = u32>| {
        let used = words.zip(first..).filter(|(w, _)| t.g.is_main(*w));
        out.extend(used.map(|(w, n)| (n, w)));
    };
    add(0, &mut (0..shape.inode_addrs).map(|n| i.addr(shape, n)));
    let n = Node::WORDS;
    let mut todo: Vec<(u32, u32, u32)> =
        [(4, 5 + 2 * n, 2), (3, 4 + n, 1), (2, 3, 1), (1, 2, 0), (0, 1, 0)]
            .iter()
            .map(|(slot, offset, level)| (i.nid(*slot), *offset, *level))
            .collect();
    while let Some((nid, offset, level)) = todo.pop() {
        let at = t.nat.get(&nid).map_or(0, |e| e.block_addr.get());
        if nid == 0 || !t.g.is_main(at) {
            continue;
        }
        let node = t.block(at)?;
        // Only at its own place, so that no ring is walked for ever.
        if Footer::of(&node).offset() != offset || Footer::of(&node).nid.get() != nid {
            continue;
        }
        let words = Node::of(&node).words();
        match (level, shape.first_block(offset)) {
            (0, Some(first)) => add(first, &mut words.into_iter()),
            (0, None) => {}
            _ => {
                let step = if level == 2 { n + 1 } else { 1 };
                let below = words.zip(0..).filter(|(w, _)| *w != 0);
                let below: Vec<_> =
                    below.map(|(w, k)| (w, offset + 1 + k * step, level - 1)).collect();
                todo.extend(below.into_iter().rev());
            }
        }
    }
    Ok(out)
}

fn take(
    t: &Tables<'_>,
    s: &mut Seen,
    report: &mut Report,
    (area, bytes): (&DentryArea, &[u8]),
    dir: &Directory<'_>,
    known: &mut Names,
) -> FsResult<()> {
    let place = format!("directory {}", dir.ino);
    let all = match area.names(bytes, Geometry::byte_of(0)) {
        Ok(all) => all,
        Err(c) => {
            report.corrupt(Kind::Dentry, &place, &c);
            s.gaps = true;
            return Ok(());
        }
    };
    for d in all {
        let ino = d.entry.ino.get();
        let name = String::from_utf8_lossy(d.name).into_owned();
        let at = format!("{place}: {name}");
        if !known.all.insert(d.name.to_vec()) {
            report.add(Kind::Dentry, at.as_str(), "a second entry of this name", "one");
        }
        if d.name == b"." || d.name == b".." {
            known.dots += 1;
            dot(report, dir, &d, &at);
            continue;
        }
        if d.name.contains(&b'/') || d.name.contains(&0) {
            report.add(Kind::Dentry, at.as_str(), "a name with `/` or a zero byte", "a name");
        }
        check_hash(report, dir, &d, &at);
        let kind = FileType::from_entry(d.entry.file_type);
        if ino < nid::ROOT || ino == dir.ino || ino == nid::ROOT {
            report.add(Kind::Dentry, at, ino, "another file's inode");
            continue;
        }
        *s.links.entry(ino).or_insert(0) += 1;
        if kind == Some(FileType::Dir) {
            *s.subdirs.entry(dir.ino).or_insert(0) += 1;
        }
        let is_second = s.nodes.contains(&ino) && s.claimed.contains_key(&ino);
        if !is_second {
            inode(t, s, report, ino, dir.ino, Some(d.entry.file_type))?;
        } else if kind == Some(FileType::Dir) {
            report.add(Kind::Dentry, at, format!("directory {ino} again"), "one name");
        } else if let Some((_, own)) = s.claimed.get(&ino).filter(|(_, own)| *own != kind) {
            report.add(Kind::Dentry, at, FileType::word_of(kind), FileType::word_of(*own));
        }
    }
    Ok(())
}

/// An entry of a directory for itself or for its parent.
fn dot(report: &mut Report, dir: &Directory<'_>, d: &crate::disk::dir::Dentry<'_>, at: &str) {
    let ino = d.entry.ino.get();
    let right = if d.name == b"." { dir.ino } else { dir.parent };
    // Of lost+found mkfs.f2fs makes both lead to itself.
    if ino != right && ino != dir.ino {
        report.add(Kind::Dentry, at, ino, right);
    }
    let parent = dir.inode.pino.get();
    if d.name == b".." && dir.ino != nid::ROOT && ino == right && ino != parent {
        report.add(Kind::Inode, format!("inode {}: i_pino", dir.ino), parent, ino);
    }
    let kind = FileType::from_entry(d.entry.file_type);
    if kind != Some(FileType::Dir) {
        report.add(Kind::Dentry, at, FileType::word_of(kind), FileType::Dir.word());
    }
    // `f2fs_hash_filename()` gives both the hash 0.
    let hash = d.entry.hash_code.get();
    if hash != 0 {
        report.add(Kind::DentryHash, at, format!("{hash:#x}"), "0x0");
    }
}

/// Has a name the right hash, and stands it where a look-up comes by?
fn check_hash(
    report: &mut Report,
    dir: &Directory<'_>,
    d: &crate::disk::dir::Dentry<'_>,
    at: &str,
) {
    if dir.inode.flags.get() & flag::CASEFOLD != 0 {
        return;
    }
    let right = hash::name_hash(d.name);
    let found = d.entry.hash_code.get();
    if found != right {
        report.add(Kind::DentryHash, at, format!("{found:#x}"), format!("{right:#x}"));
        return;
    }
    let Some(block) = dir.block else { return };
    let depth = dir.inode.current_depth.get().min(hash::LEVELS_MAX);
    let level = dir.inode.dir_level;
    if !(0..depth).any(|l| hash::bucket_of(l, level, right).contains(&block)) {
        report.add(Kind::DentryHash, at, format!("block {block}"), "a block of its bucket");
    }
}
