//! The blocks of a new file system: super blocks, both packs, the NAT, the root directory.

use std::collections::BTreeMap;
use std::mem::offset_of;

use wp_base::FsResult;
use wp_vfs::FileType;

use crate::disk::inode::{InodeExtra, inline, mode};
use crate::disk::nat::NatBits;
use crate::disk::{
    Block, Checkpoint, CheckpointHead, Checksums, Compacted, DentryArea, DentryEntry, Footer,
    Geometry, Inode, Journal, Log, NatEntry, NatJournalEntry, Shape, SitEntry, SitJournalEntry,
    Summary, SummaryBlock, SuperBlock, ZERO_BLOCK, bits, count, cp_flag, dir, feature, hash, lo16,
    nid,
};

use super::{MkfsOptions, Plan};

/// Name of the directory that fsck puts lost files into.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Its inode, if there is one: the first that is free.
const LOST_INO: u32 = nid::ROOT + 1;

/// A directory of the new file system.
struct NewDir {
    ino: u32,
    parent: u32,
    mode: u16,
    links: u32,
    name: &'static [u8],
    /// Names besides `.` and `..`.
    names: Vec<(&'static [u8], u32)>,
}

/// All blocks that are not zero.
pub(super) fn blocks(o: &MkfsOptions, plan: &Plan) -> FsResult<BTreeMap<u32, Block>> {
    let sb = &plan.super_block;
    let g = Geometry::from_super(sb)?;
    let mut out = BTreeMap::new();
    for copy in 0..SuperBlock::COPIES {
        let mut block = ZERO_BLOCK;
        sb.store(&mut block);
        out.insert(copy, block);
    }
    let has_lost = sb.has(feature::LOST_FOUND);
    let root = NewDir {
        ino: nid::ROOT,
        parent: nid::ROOT,
        mode: mode::DIR | 0o755,
        links: if has_lost { 3 } else { 2 },
        name: b"",
        names: if has_lost { vec![(LOST_AND_FOUND, LOST_INO)] } else { Vec::new() },
    };
    let lost = NewDir {
        ino: LOST_INO,
        parent: nid::ROOT,
        mode: mode::DIR | 0o700,
        links: 2,
        name: LOST_AND_FOUND,
        names: Vec::new(),
    };
    let dirs = if has_lost { vec![root, lost] } else { vec![root] };
    let [hot_data, _, _, hot_node, _, _] = plan.logs;
    for (dir, n) in dirs.iter().zip(0..) {
        let (data, node) = (g.block(hot_data, n), g.block(hot_node, n));
        out.insert(data, names_of(dir));
        out.insert(node, inode_of(o, sb, dir, data, node + 1));
    }
    let mut nat = ZERO_BLOCK;
    let fixed = [(nid::NODE, 1), (nid::META, 1), (nid::ROOT, g.block(hot_node, 0))];
    for (n, place) in fixed {
        if let Some(entry) = NatEntry::all_mut(&mut nat).get_mut(n as usize) {
            *entry = NatEntry::new(0, n, place);
        }
    }
    out.insert(g.nat_block(0, false), nat);
    packs(o, plan, &g, &dirs, &mut out);
    Ok(out)
}

fn names_of(dir: &NewDir) -> Block {
    let mut block = ZERO_BLOCK;
    let dots: [(&[u8], u32); 2] = [(b".", dir.ino), (b"..", dir.parent)];
    let mut slot = 0;
    for (name, ino) in dots.iter().chain(&dir.names) {
        let entry = DentryEntry {
            hash_code: hash::name_hash(name).into(),
            ino: (*ino).into(),
            name_len: lo16(count(name.len())).into(),
            file_type: FileType::Dir.entry(),
        };
        DentryArea::BLOCK.put(&mut block, slot, &entry, name);
        slot += dir::slots_of(name.len());
    }
    block
}

/// Bytes of extra fields: up to the last one that a feature needs. `calc_extra_isize`.
fn extra_bytes(sb: &SuperBlock) -> usize {
    let ends = [
        (feature::EXTRA_ATTR, offset_of!(InodeExtra, projid)),
        (feature::PRJQUOTA, offset_of!(InodeExtra, inode_checksum)),
        (feature::INODE_CHKSUM, offset_of!(InodeExtra, crtime)),
        (feature::INODE_CRTIME, offset_of!(InodeExtra, compr_blocks)),
        (feature::COMPRESSION, InodeExtra::BYTES),
    ];
    ends.iter().filter(|(bit, _)| sb.has(*bit)).map(|(_, end)| *end).max().unwrap_or(0)
}

fn inode_of(o: &MkfsOptions, sb: &SuperBlock, dir: &NewDir, data: u32, next: u32) -> Block {
    let mut block = ZERO_BLOCK;
    let footer = Footer::of_mut(&mut block);
    (footer.nid, footer.ino) = (dir.ino.into(), dir.ino.into());
    footer.cp_ver = 1.into();
    footer.next_blkaddr = next.into();
    let inode = Inode::of_mut(&mut block);
    inode.mode = dir.mode.into();
    inode.links = dir.links.into();
    inode.size = 4096.into();
    inode.blocks = 2.into();
    (inode.atime, inode.ctime, inode.mtime) = (o.now.into(), o.now.into(), o.now.into());
    inode.current_depth = 1.into();
    if !dir.name.is_empty() {
        inode.pino = dir.parent.into();
        inode.set_own_name(dir.name);
    }
    if sb.has(feature::EXTRA_ATTR) {
        inode.set_inline(inline::EXTRA_ATTR, true);
        let extra = inode.extra_mut();
        extra.extra_isize = lo16(count(extra_bytes(sb))).into();
        if sb.has(feature::INODE_CRTIME) {
            extra.crtime = o.now.into();
        }
    }
    let shape = Shape::of(inode, sb.feature.get());
    inode.set_addr(&shape, 0, data);
    Checksums::of(sb).seal_inode(&mut block);
    block
}

/// Both packs: the first with everything, the second only a checkpoint of version 0.
fn packs(
    o: &MkfsOptions,
    plan: &Plan,
    g: &Geometry,
    dirs: &[NewDir],
    out: &mut BTreeMap<u32, Block>,
) {
    let used = count(dirs.len());
    let mut cp = checkpoint(o, plan, g, used);
    let start = g.pack(false);
    let payload = g.cp_payload;
    out.insert(start, cp.block(0));
    let [hot_data, _, _, hot_node, _, _] = plan.logs;
    let mut nat = Journal::empty();
    for (d, n) in dirs.iter().zip(0..) {
        let entry = NatEntry::new(0, d.ino, g.block(hot_node, n));
        nat.put_nat(NatJournalEntry { nid: d.ino.into(), entry });
    }
    let mut sit = Journal::empty();
    let order =
        [Log::HotNode, Log::WarmNode, Log::ColdNode, Log::HotData, Log::WarmData, Log::ColdData];
    for log in order {
        let segment = cp.log(log).0;
        let blocks = if segment == hot_data || segment == hot_node { used } else { 0 };
        let mut entry = SitEntry::default();
        (0..blocks).for_each(|n| {
            bits::set(&mut entry.valid_map, n, true);
        });
        entry.set(log, blocks);
        sit.put_sit(SitJournalEntry { segment: segment.into(), entry });
    }
    let owners: Vec<Summary> = dirs.iter().map(|d| Summary::new(d.ino, 0, 0)).collect();
    let compacted = Compacted { nat, sit, data: [owners.clone(), Vec::new(), Vec::new()] };
    let mut at = start + 1 + payload;
    for block in compacted.store() {
        out.insert(at, block);
        at += 1;
    }
    for log in Log::NODE {
        let mut summary = SummaryBlock::empty(true);
        if log == Log::HotNode {
            owners.iter().zip(0..).for_each(|(s, n)| summary.set_entry(n, *s));
        }
        out.insert(at, summary.store());
        at += 1;
    }
    out.insert(at, cp.block(0));
    if cp.has(cp_flag::NAT_BITS) {
        let len = (g.nat_blocks / 8) as usize;
        let mut nat_bits = NatBits {
            version: cp.head().checkpoint_ver.get() | u64::from(cp.crc()) << 32,
            full: vec![0; len],
            empty: vec![0xFF; len],
        };
        bits::set_le(&mut nat_bits.empty, 0, false);
        let first = g.pack(true) - g.nat_bits_blocks();
        let bytes = nat_bits.store();
        let (blocks, _) = bytes.as_chunks::<4096>();
        out.extend((first..).zip(blocks.iter().copied()));
    }
    cp.head_mut().checkpoint_ver = 0.into();
    cp.seal();
    let second = g.pack(true);
    out.insert(second, cp.block(0));
    out.insert(second + at - start, cp.block(0));
}

fn checkpoint(o: &MkfsOptions, plan: &Plan, g: &Geometry, used: u32) -> Checkpoint {
    let mut cp = Checkpoint::zeroed(g.cp_payload);
    let payload = g.cp_payload;
    let h = cp.head_mut();
    h.checkpoint_ver = u64::from(o.checkpoint_ver).into();
    for n in [&mut h.cur_node_segno, &mut h.cur_data_segno] {
        n.iter_mut().skip(3).for_each(|s| *s = u32::MAX.into());
    }
    h.valid_block_count = u64::from(2 * used).into();
    h.rsvd_segment_count = plan.reserved_segments.into();
    h.overprov_segment_count = plan.overprovision_segments.into();
    let user = u64::from(plan.usable_segments - plan.overprovision_segments) * 512;
    h.user_block_count = user.into();
    h.free_segment_count = plan.usable_segments.saturating_sub(6).into();
    h.cp_pack_total_block_count = (6 + payload).into();
    h.cp_pack_start_sum = (1 + payload).into();
    (h.valid_node_count, h.valid_inode_count) = (used.into(), used.into());
    h.next_free_nid = (nid::ROOT + used).into();
    h.sit_ver_bitmap_bytesize = g.sit_bitmap_bytes().into();
    h.nat_ver_bitmap_bytesize = g.nat_bitmap_bytes().into();
    let large = o.large_nat_bitmap;
    let at = if large { CheckpointHead::CHECKSUM_AT_MIN } else { CheckpointHead::CHECKSUM_AT };
    h.checksum_offset = at.into();
    for log in Log::ALL {
        let segment = plan.logs.get(usize::from(log.number())).copied().unwrap_or(0);
        let is_used = matches!(log, Log::HotData | Log::HotNode);
        cp.set_log(log, segment, if is_used { used } else { 0 });
    }
    cp.set_flag(cp_flag::UMOUNT | cp_flag::COMPACT_SUM, true);
    cp.set_flag(cp_flag::NAT_BITS, 6 + payload <= 512 - g.nat_bits_blocks());
    cp.set_flag(cp_flag::TRIMMED, o.trimmed);
    cp.set_flag(cp_flag::LARGE_NAT_BITMAP, large);
    cp.seal();
    cp
}
