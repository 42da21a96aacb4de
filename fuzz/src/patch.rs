//! A patch list: an input that says what of a base image is changed, and whether the checksums of
//! what was hit are made right again.
//!
//! Picture:    base (1 byte) | flags (1) | records: spot (2), offset (2), operation (1), bytes.
//! Why:        raw images of megabytes would take a fuzzer for ever, and would end at the first
//!             checksum.

use std::collections::BTreeSet;

use wp_ext4::disk::inode::flag;
use wp_ext4::disk::{Checksums, GroupDesc, SuperBlock, htree, orphan};
use wp_ext4::image::{BlockClass, BlockClasses, Image};
use wp_jbd2::disk as log;
use wp_medium::{Overlay, View};

use super::base::{Base, Family};
use super::feed::Feed;

/// A structure of a base image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spot {
    /// Byte address.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// What it is.
    pub kind: Kind,
}

/// What a spot is, as far as its checksum goes; in the order in which they are sealed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The first super block.
    Super,
    /// Descriptor of this group.
    Group(u32),
    /// Bitmap of a group's blocks.
    BlockBitmap(u32),
    /// Bitmap of a group's inodes.
    InodeBitmap(u32),
    /// An inode.
    Inode(u32),
    /// Block of a directory: its inode.
    Dir(u32),
    /// Extent node or indirect block: its inode.
    Node(u32),
    /// Attribute block.
    Xattr,
    /// Block of the orphan file: its inode.
    Orphans(u32),
    /// Block of the log.
    Log(u32),
    /// Block of F2FS that has a checksum, or whose checkpoint has.
    F2fs(super::patch_f2fs::Part),
    /// A super block of btrfs, or part of a tree block.
    Btrfs(super::patch_btrfs::Part),
    /// A super block of NILFS2, or a block of a log.
    Nilfs2(super::patch_nilfs2::Part),
    /// Anything else.
    Other,
}

/// Log blocks of an image that are worth a patch.
const LOG_SPOTS: u32 = 48;

/// The structures of an image that can be opened, most telling first.
pub fn spots(view: &dyn View) -> Vec<Spot> {
    let image = Image::open(view).expect("a base image");
    let g = image.geometry();
    let bs = u64::from(g.block_size.bytes());
    let mut out = vec![Spot { at: SuperBlock::AT, bytes: 1024, kind: Kind::Super }];
    for group in 0..g.groups.min(4) {
        let (block, offset) = g.desc_place(group);
        let at = block * bs + offset as u64;
        out.push(Spot { at, bytes: g.desc_bytes.into(), kind: Kind::Group(group) });
    }
    for number in image.used_inodes().expect("bitmaps") {
        let Ok(record) = image.inode(number) else { continue };
        out.push(Spot { at: record.at, bytes: record.raw.len() as u32, kind: Kind::Inode(number) });
    }
    let orphan_file = image.super_block().orphan_file_inum.get();
    let classes = BlockClasses::of(&image).expect("a base image");
    for (start, n, class) in classes.runs() {
        for block in start..start + n {
            let kind = match class {
                BlockClass::BlockBitmap { group } => Kind::BlockBitmap(group),
                BlockClass::InodeBitmap { group } => Kind::InodeBitmap(group),
                BlockClass::Directory { ino, .. } => Kind::Dir(ino),
                BlockClass::MapNode { ino } => Kind::Node(ino),
                BlockClass::Xattr { .. } => Kind::Xattr,
                BlockClass::OrphanFile { .. } => Kind::Orphans(orphan_file),
                BlockClass::Symlink { .. } => Kind::Other,
                BlockClass::Journal { log } => {
                    let log = log + (block - start) as u32;
                    if log >= LOG_SPOTS {
                        break;
                    }
                    Kind::Log(log)
                }
                _ => break,
            };
            out.push(Spot { at: block * bs, bytes: bs as u32, kind });
        }
    }
    out
}

/// Flag of an input: checksums are made right.
const SEAL: u8 = 1;
/// Flag: the image ends early.
const CUT: u8 = 2;

/// What of an input is left for its target, and the length to which the image is cut.
pub struct Patched<'a> {
    /// Bytes behind the flags' byte that say how to go about it.
    pub how: u8,
    /// Length of the image, bytes.
    pub bytes: u64,
    /// Nothing, or what follows the last record (a record of length 0 and operation 255 ends
    /// them).
    pub rest: &'a [u8],
}

/// The patched image of an input, given to `use_it`; nothing if its base is not here.
pub fn patched(
    family: Family,
    input: &[u8],
    use_it: impl FnOnce(&Base, &Overlay<'_>, &Patched<'_>),
) {
    let Some((number, records)) = input.split_first() else { return };
    let Some(base) = family.base((*number).into()) else { return };
    let over = Overlay::new(&base.image);
    let patched = apply(records, &base, &over);
    use_it(&base, &over, &patched);
}

/// Reads of an image that a walk may take: a few for each KiB.
pub fn reads(view: &dyn View) -> u64 {
    64 * (view.len_bytes() / 1024) + 100_000
}

/// Applies the records of `input` to the overlay.
pub fn apply<'a>(input: &'a [u8], base: &Base, over: &Overlay<'_>) -> Patched<'a> {
    let spots = &base.spots;
    let mut feed = Feed::new(input);
    let (flags, how) = (feed.u8(), feed.u8());
    let mut bytes = over.len_bytes();
    if flags & CUT != 0 {
        bytes = bytes * u64::from(feed.u16()) / 0x1_0000;
    }
    let mut hit = BTreeSet::new();
    while !feed.is_empty() {
        let n = usize::from(feed.u16()) % spots.len();
        let spot = spots[n];
        let offset = u32::from(feed.u16()) % spot.bytes;
        let op = feed.u8();
        let room = (spot.bytes - offset) as usize;
        let at = spot.at + u64::from(offset);
        if op == 255 {
            break;
        }
        let width = [1, 2, 4, 8][usize::from(op >> 4) % 4].min(room);
        let mut old = [0u8; 8];
        over.read_at(at, &mut old[..width]).expect("within the image");
        let word = u64::from_le_bytes(old);
        let put = |n: u64| over.write_at(at, &n.to_le_bytes()[..width]).expect("within the image");
        match op & 15 {
            0..=3 => {
                let mut new = [0; 8];
                new[..width].iter_mut().zip(feed.bytes(width)).for_each(|(to, b)| *to = *b);
                put(u64::from_le_bytes(new));
            }
            4 => put(word ^ 1 << (feed.u8() % 64)),
            5 => put(word.wrapping_add(i64::from(feed.u8().cast_signed()).cast_unsigned())),
            6 => put(0),
            7 => put(u64::MAX),
            8 | 9 => {
                let n = usize::from(feed.u8()).min(room);
                over.write_at(at, feed.bytes(n)).expect("within the image");
            }
            10 => {
                // Another structure of the image instead of this one.
                let from = spots[usize::from(feed.u16()) % spots.len()];
                let mut bytes = vec![0; from.bytes.min(room as u32) as usize];
                over.read_at(from.at, &mut bytes).expect("within the image");
                over.write_at(at, &bytes).expect("within the image");
            }
            11 => put(u64::from(feed.u8())),
            // Big-endian: the journal's words.
            12 => {
                let n = u64::from(feed.u16()) << (64 - 8 * width.max(1));
                put(n.swap_bytes());
            }
            13 => {
                let bytes = vec![feed.u8(); usize::from(feed.u16()).min(room)];
                over.write_at(at, &bytes).expect("within the image");
            }
            _ => put(u64::from(feed.u32())),
        }
        hit.insert(spot);
    }
    if flags & SEAL != 0 {
        (base.seal)(&hit, over);
    }
    Patched { how, bytes, rest: feed.rest() }
}

fn bytes_of(spot: &Spot, over: &Overlay<'_>) -> Vec<u8> {
    let mut bytes = vec![0; spot.bytes as usize];
    over.read_at(spot.at, &mut bytes).expect("within the image");
    bytes
}

/// Makes the checksums of what was hit right, as far as the image still says how.
pub fn seal(hit: &BTreeSet<Spot>, over: &Overlay<'_>) {
    let mut by_kind: Vec<&Spot> = hit.iter().collect();
    by_kind.sort_by_key(|s| (s.kind, s.at));
    seal_super(over);
    // With a super block that cannot be opened there is nothing to seal with.
    let Ok(image) = Image::open(over) else {
        let mut bytes = [0u8; SuperBlock::BYTES];
        over.read_at(SuperBlock::AT, &mut bytes).expect("within the image");
        if let Some(sb) = SuperBlock::load(&bytes) {
            let sums = Checksums::of(&sb);
            for spot in by_kind {
                if let Kind::Group(n) = spot.kind {
                    seal_group(&sums, n, spot, over);
                }
            }
        }
        return;
    };
    let sums = image.checksums();
    let seed = |ino: u32| {
        let record = image.inode(ino).ok();
        sums.inode_seed(ino, record.map_or(0, |r| r.inode.generation.get()))
    };
    for spot in by_kind {
        let mut bytes = bytes_of(spot, over);
        match spot.kind {
            Kind::Super | Kind::Other => continue,
            Kind::F2fs(_) | Kind::Btrfs(_) | Kind::Nilfs2(_) => continue,
            Kind::Group(n) => {
                seal_group(sums, n, spot, over);
                continue;
            }
            Kind::BlockBitmap(n) | Kind::InodeBitmap(n) => {
                let g = image.geometry();
                let (block, offset) = g.desc_place(n);
                let at = block * u64::from(g.block_size.bytes()) + offset as u64;
                let place = Spot { at, bytes: g.desc_bytes.into(), kind: Kind::Group(n) };
                let raw = bytes_of(&place, over);
                let mut desc = GroupDesc::load(&raw);
                if matches!(spot.kind, Kind::BlockBitmap(_)) {
                    let own = g.block_bitmap_bytes().min(bytes.len());
                    desc.set_block_bitmap_csum(sums.bitmap(&bytes[..own]));
                } else {
                    let own = g.inode_bitmap_bytes().min(bytes.len());
                    desc.set_inode_bitmap_csum(sums.bitmap(&bytes[..own]));
                }
                let mut raw = raw;
                desc.store(&mut raw);
                over.write_at(at, &raw).expect("within the image");
                seal_group(sums, n, &place, over);
                continue;
            }
            Kind::Inode(n) => sums.seal_inode(n, &mut bytes),
            Kind::Dir(n) => {
                let has_index = image.inode(n).is_ok_and(|r| r.inode.has(flag::INDEX));
                match htree::entries_at(&bytes).filter(|_| has_index) {
                    Some(from) => {
                        if let Some((at, sum)) = sums.htree_block(seed(n), &bytes, from)
                            && sums.metadata()
                        {
                            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
                        }
                    }
                    None => sums.seal_dir_block(seed(n), &mut bytes),
                }
            }
            Kind::Node(n) => {
                let has_tree = image.inode(n).is_ok_and(|r| r.inode.has(flag::EXTENTS));
                if has_tree && sums.extent_block(seed(n), &bytes).is_some() {
                    sums.seal_extent_block(seed(n), &mut bytes);
                }
            }
            Kind::Xattr => {
                let block = spot.at / u64::from(image.geometry().block_size.bytes());
                sums.seal_xattr_block(block, &mut bytes);
            }
            Kind::Orphans(n) => {
                let block = spot.at / u64::from(image.geometry().block_size.bytes());
                if let Some(mut tail) = orphan::OrphanTail::load(&bytes)
                    && sums.metadata()
                {
                    tail.checksum = sums.orphan_block(seed(n), block, &bytes).into();
                    tail.store(&mut bytes);
                }
            }
            Kind::Log(n) => seal_log(&image, n, over, &mut bytes),
        }
        over.write_at(spot.at, &bytes).expect("within the image");
    }
}

fn seal_super(over: &Overlay<'_>) {
    let mut bytes = [0u8; SuperBlock::BYTES];
    over.read_at(SuperBlock::AT, &mut bytes).expect("within the image");
    if let Some(sb) = SuperBlock::load(&bytes)
        && sb.has_metadata_csum()
    {
        bytes[1020..].copy_from_slice(&Checksums::super_block(&sb).to_le_bytes());
        over.write_at(SuperBlock::AT, &bytes).expect("within the image");
    }
}

fn seal_group(sums: &Checksums, n: u32, spot: &Spot, over: &Overlay<'_>) {
    let mut bytes = bytes_of(spot, over);
    let mut desc = GroupDesc::load(&bytes);
    sums.seal_group_desc(n, &mut desc);
    desc.store(&mut bytes);
    over.write_at(spot.at, &bytes).expect("within the image");
}

/// Block `n` of the log: its own checksum, and those of the tags of the descriptor `n`.
fn seal_log(image: &Image<'_>, n: u32, over: &Overlay<'_>, bytes: &mut [u8]) {
    use zerocopy::FromBytes;
    use zerocopy::IntoBytes;
    let Ok(map) = wp_ext4::image::log_map(image) else { return };
    let bs = image.geometry().block_size;
    let Ok(sb) = wp_jbd2::recover::read_super(over, &map, bs) else { return };
    if n == 0 {
        if let Ok((mut sb, _)) = log::SuperBlock::read_from_prefix(bytes)
            && log::Format::of(&sb).csum_v2or3()
        {
            sb.checksum = sb.checksum_now().into();
            bytes[..1024].copy_from_slice(sb.as_bytes());
        }
        return;
    }
    let format = log::Format::of(&sb);
    let Ok((header, _)) = log::Header::read_from_prefix(bytes) else { return };
    if header.magic.get() != log::MAGIC {
        return;
    }
    match header.blocktype.get() {
        log::COMMIT => format.set_commit(bytes),
        log::REVOKE => format.set_tail(bytes),
        log::DESCRIPTOR => {
            let (mut at, mut next) = (12, n + 1);
            while let Some(mut tag) = format.tag(bytes, at) {
                let mut data = vec![0; bs.bytes() as usize];
                let place = map.block(next).map(|b| b * u64::from(bs.bytes()));
                if place.is_none_or(|place| over.read_at(place, &mut data).is_err()) {
                    break;
                }
                tag.checksum = format.tag_checksum(header.sequence.get(), &data);
                format.put_tag(bytes, at, &tag);
                at += format.tag_bytes();
                if tag.flags & log::TAG_SAME_UUID == 0 {
                    at += log::UUID_BYTES;
                }
                if tag.flags & log::TAG_LAST != 0 {
                    break;
                }
                next += 1;
            }
            format.set_tail(bytes);
        }
        _ => {}
    }
}
