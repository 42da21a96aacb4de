//! Every structure of `disk`, against images of the real mkfs and of real kernels: what one of them
//! says of another must hold.

use crate::reference;
use crate::tools;
use std::collections::BTreeMap;
use std::process::Command;

use wp_f2fs::disk::inode::inline;
use wp_f2fs::disk::nat::NatBits;
use wp_f2fs::disk::{
    Block, Checkpoint, Checksums, Compacted, DentryArea, Footer, Geometry, Inode, Journal, Log,
    NatEntry, Node, OrphanBlock, Shape, SitEntry, SummaryBlock, SuperBlock, ZERO_BLOCK, addr,
    cp_flag, feature, hash, nid, tree, xattr,
};

/// An image with what a mount reads first.
struct Opened {
    bytes: Vec<u8>,
    sb: SuperBlock,
    g: Geometry,
    cp: Checkpoint,
    /// First block of the valid pack.
    pack: u32,
    nat_journal: Journal,
    sit_journal: Journal,
    /// Of the three data logs.
    summaries: [SummaryBlock; 3],
}

impl Opened {
    fn block(&self, n: u32) -> Block {
        block_of(&self.bytes, n)
    }

    fn nat(&self, nid: u32) -> NatEntry {
        let journaled = self.nat_journal.nats().iter().find(|e| e.nid.get() == nid);
        journaled.map_or_else(
            || {
                let (block, n) = self.g.nat_place(nid);
                NatEntry::all(&self.block(self.g.current_nat_block(block, &self.cp)))[n]
            },
            |e| e.entry,
        )
    }

    fn sit(&self, segment: u32) -> SitEntry {
        let journaled = self.sit_journal.sits().iter().find(|e| e.segment.get() == segment);
        journaled.map_or_else(
            || {
                let (block, n) = self.g.sit_place(segment);
                SitEntry::all(&self.block(self.g.current_sit_block(block, &self.cp)))[n]
            },
            |e| e.entry,
        )
    }
}

fn block_of(bytes: &[u8], n: u32) -> Block {
    let at = n as usize * 4096;
    bytes[at..at + 4096].try_into().expect("a block")
}

/// A pack whose two checkpoints agree.
fn pack(bytes: &[u8], start: u32, payload: u32) -> Option<Checkpoint> {
    let first = block_of(bytes, start);
    let version = Checkpoint::version_of(&first, 0).ok()?;
    let mut cp = Checkpoint::new(&first, payload);
    let total = cp.head().cp_pack_total_block_count.get();
    let last = block_of(bytes, start + total - 1);
    assert_eq!(Checkpoint::version_of(&last, 0).ok(), Some(version));
    for n in 1..=payload {
        cp.set_block(n, &block_of(bytes, start + n));
    }
    Some(cp)
}

fn open(bytes: Vec<u8>) -> Opened {
    let copies = [0, 1].map(|n| SuperBlock::load(&block_of(&bytes, n)));
    for sb in &copies {
        sb.verify(1024).expect("a good super block");
    }
    let [sb, _] = copies;
    let g = Geometry::from_super(&sb).expect("a good layout");
    assert!(g.bytes() <= bytes.len() as u64);
    let packs = [false, true].map(|second| {
        let start = g.pack(second);
        pack(&bytes, start, g.cp_payload).map(|cp| (cp.head().checkpoint_ver.get(), start, cp))
    });
    let (_, pack, cp) = packs.into_iter().flatten().max_by_key(|p| p.0).expect("a valid pack");
    cp.verify(&sb, &g, 0).expect("a good checkpoint");
    let mut resealed = cp.clone();
    resealed.seal();
    assert!(resealed == cp, "the checksum is found where it is written");
    let mut summaries = [(); 3].map(|()| SummaryBlock::empty(false));
    let (nat_journal, sit_journal) = if cp.has(cp_flag::COMPACT_SUM) {
        let start = pack + cp.head().cp_pack_start_sum.get();
        let mut next = start;
        let counts = Compacted::counts(&cp);
        let read = Compacted::load(counts, || {
            next += 1;
            Ok::<Block, ()>(block_of(&bytes, next - 1))
        });
        let read = read.expect("nothing fails");
        let blocks = read.store();
        assert_eq!(blocks.len() as u32, Compacted::blocks(counts));
        for (n, block) in blocks.iter().enumerate() {
            let there = block_of(&bytes, start + n as u32);
            assert_eq!(block[..4091], there[..4091], "compacted block {n}");
        }
        for (block, log) in summaries.iter_mut().zip(&read.data) {
            log.iter().zip(0..).for_each(|(s, n)| block.set_entry(n, *s));
        }
        (read.nat, read.sit)
    } else {
        let at = |log| pack + cp.summary_place(log).expect("whole summaries");
        summaries = Log::DATA.map(|log| SummaryBlock::load(&block_of(&bytes, at(log))));
        (summaries[0].journal, summaries[2].journal)
    };
    Opened { bytes, sb, g, cp, pack, nat_journal, sit_journal, summaries }
}

/// What was seen in an image, so that a test knows that it has tested something.
#[derive(Default, Debug)]
struct Seen {
    inodes: u32,
    direct: u32,
    indirect: u32,
    names: u32,
    attributes: u32,
    checksums: u32,
    summaries: u32,
}

/// Follows everything from the NAT on. Errors of any kind panic.
fn walk(o: &Opened, seen: &mut Seen) {
    let sums = Checksums::of(&o.sb);
    let mut owned: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut nodes = 0;
    for n in nid::ROOT..o.g.nids() {
        let entry = o.nat(n);
        if entry.is_free() || entry.block_addr.get() == addr::NEW {
            continue;
        }
        nodes += 1;
        let block = o.block(entry.block_addr.get());
        let footer = Footer::of(&block);
        assert_eq!((footer.nid.get(), footer.ino), (n, entry.ino));
        assert!(o.g.place(entry.block_addr.get()).is_some());
        assert_eq!(owned.insert(entry.block_addr.get(), (n, 0)), None);
        if footer.is_inode() {
            Inode::verify(&block, o.sb.feature.get(), 0).expect("a good inode");
            assert!(sums.inode_ok(&block), "checksum of inode {n}");
            seen.checksums += u32::from(sums.inode(&block).is_some());
            seen.inodes += 1;
            inode(o, &block, &mut owned, seen);
        }
    }
    assert_eq!(nodes, o.cp.head().valid_node_count.get());
    let mut valid = 0;
    for segment in 0..o.g.segments {
        let entry = o.sit(segment);
        entry.verify(segment, 0).expect("a good entry");
        valid += entry.valid_blocks();
        let log = Log::ALL.into_iter().find(|l| o.cp.log(*l).0 == segment);
        let summary = match log {
            None => SummaryBlock::load(&o.block(o.g.summary_block(segment))),
            Some(log) if !log.is_node() => o.summaries[usize::from(log.number())].clone(),
            // Those of node logs are in the pack only after an unmount.
            Some(log) => match o.cp.summary_place(log) {
                Some(n) => SummaryBlock::load(&o.block(o.pack + n)),
                None => SummaryBlock::empty(true),
            },
        };
        let is_known = log.is_none_or(|l| !l.is_node()) || o.cp.has_node_summaries();
        for offset in 0..512 {
            let here = o.g.block(segment, offset);
            let owner = owned.get(&here);
            assert_eq!(entry.is_valid(offset), owner.is_some(), "block {here}");
            if let Some((n, slot)) = owner.filter(|_| is_known) {
                let s = summary.entry(offset);
                assert_eq!(s.nid.get(), *n, "summary of block {here}");
                let is_node = summary.footer.entry_type == SummaryBlock::NODE;
                assert!(is_node || s.ofs_in_node.get() == *slot as u16);
                seen.summaries += 1;
            }
        }
    }
    assert_eq!(valid as usize, owned.len());
    assert!(u64::from(valid) <= o.cp.head().valid_block_count.get(), "promised blocks count too");
}

fn inode(o: &Opened, block: &Block, owned: &mut BTreeMap<u32, (u32, u32)>, seen: &mut Seen) {
    let i = Inode::of(block);
    let ino = Footer::of(block).nid.get();
    let shape = Shape::of(i, o.sb.feature.get());
    let mut attributes = i.xattr_area(&shape).to_vec();
    if i.xattr_nid.get() != 0 {
        let node = o.block(o.nat(i.xattr_nid.get()).block_addr.get());
        assert_eq!(Footer::of(&node).offset(), tree::XATTR_OFFSET);
        attributes.extend_from_slice(&node[..Node::BODY_BYTES]);
    }
    let all = xattr::load(&attributes, 0).expect("good attributes");
    let stored = xattr::store(&all);
    assert_eq!(stored, attributes[..stored.len()], "attributes of inode {ino}");
    seen.attributes += all.len() as u32;
    if i.has_inline(inline::DATA) {
        return;
    }
    if i.has_inline(inline::DENTRY) {
        names(&DentryArea::inline(shape.inline_bytes()), i.inline_area(&shape), seen);
        return;
    }
    let mut block_number = 0;
    // Direct nodes without any address in between are in no image here for more than 64 MiB.
    while let Some(place) = shape.place(block_number).filter(|_| block_number < 16384) {
        let mut node = *block;
        let mut at = ino;
        for (step, (child, offset)) in place.steps().iter().enumerate() {
            at =
                if step == 0 { Inode::of(&node).nid(*child) } else { Node::of(&node).word(*child) };
            if at == 0 {
                break;
            }
            node = o.block(o.nat(at).block_addr.get());
            let footer = Footer::of(&node);
            assert_eq!((footer.nid.get(), footer.ino.get(), footer.offset()), (at, ino, *offset));
            assert_eq!(tree::is_direct(*offset), step + 1 == place.steps().len());
            *(if tree::is_direct(*offset) { &mut seen.direct } else { &mut seen.indirect }) += 1;
        }
        let inside = place.depth == 0;
        let slots = shape.addrs_of(place.offset());
        for slot in (0..slots).filter(|_| at != 0) {
            let found = if inside {
                Inode::of(&node).addr(&shape, slot)
            } else {
                Node::of(&node).word(slot)
            };
            if addr::is_block(found) {
                assert_eq!(owned.insert(found, (at, slot)), None, "two owners of {found}");
                if i.is_dir() {
                    names(&DentryArea::BLOCK, &o.block(found), seen);
                }
            }
        }
        block_number += u64::from(slots);
    }
}

fn names(area: &DentryArea, bytes: &[u8], seen: &mut Seen) {
    let all = area.names(bytes, 0).expect("good names");
    for d in &all {
        assert_eq!(d.entry.hash_code.get(), hash::name_hash(d.name), "{:?}", d.name);
        assert_eq!(area.find(bytes, d.entry.hash_code.get(), d.name), Some((d.slot, d.entry)));
        seen.names += 1;
    }
    // Written again, they come to the same places.
    let mut again = ZERO_BLOCK;
    let again = &mut again[..bytes.len()];
    all.iter().for_each(|d| area.put(again, d.slot, &d.entry, d.name));
    assert_eq!(area.names(again, 0).expect("good names"), all);
}

#[test]
fn structures_of_crashed_images_agree_with_one_another() {
    let mut seen = Seen::default();
    for name in reference::IMAGES {
        let Some((bytes, _)) = reference::reference("f2fs structures", name) else { return };
        let o = open(bytes);
        walk(&o, &mut seen);
        if o.cp.has(cp_flag::ORPHAN_PRESENT) {
            let first = o.block(o.pack + 1 + o.g.cp_payload);
            let orphans: Vec<u32> = OrphanBlock::load(&first, 0).expect("good").inodes().collect();
            assert!(!orphans.is_empty());
            assert_eq!(OrphanBlock::blocks(&orphans), [first]);
        }
    }
    // No attribute was checkpointed in these.
    let Seen { inodes, direct, indirect, names, attributes, summaries, .. } = seen;
    assert!(inodes > 300 && names > 300 && summaries > 1000, "{seen:?}");
    assert!(direct > 10 && indirect > 3 && attributes == 0, "{seen:?}");
}

#[test]
fn structures_of_new_images_agree_with_one_another() {
    if !tools::has_tool("f2fs structures", "mkfs.f2fs") {
        return;
    }
    let all = "extra_attr,inode_checksum,sb_checksum,inode_crtime,flexible_inline_xattr,\
               project_quota,quota,lost_found,verity,encrypt,compression";
    let layouts: [&[&str]; 4] =
        [&[], &["-O", all], &["-s", "4", "-z", "2", "-O", all], &["-i", "-O", "sb_checksum"]];
    let folder = tempfile::tempdir().expect("a scratch directory");
    let mut seen = Seen::default();
    for (n, options) in layouts.iter().enumerate() {
        let path = folder.path().join(n.to_string());
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(256 << 20).expect("room");
        let run = Command::new("mkfs.f2fs").args(*options).arg("-q").arg(&path).output();
        assert!(run.expect("it runs").status.success(), "mkfs.f2fs {options:?}");
        let o = open(std::fs::read(&path).expect("an image"));
        assert_eq!(o.sb.has(feature::SB_CHKSUM), n > 0);
        assert_eq!(o.cp.has(cp_flag::LARGE_NAT_BITMAP), n == 3);
        walk(&o, &mut seen);
        let blocks = o.g.nat_bits_blocks();
        if o.cp.has(cp_flag::NAT_BITS) {
            let start = o.pack + 512 - blocks;
            let raw: Vec<u8> = (start..start + blocks).flat_map(|b| o.block(b)).collect();
            let bits = NatBits::load(&raw, o.g.nat_blocks).expect("enough bytes");
            assert_eq!(bits.store(), raw);
            let version = o.cp.head().checkpoint_ver.get() | u64::from(o.cp.crc()) << 32;
            assert_eq!(bits.version, version);
        }
    }
    assert!(seen.inodes >= 4 && seen.names >= 8 && seen.checksums >= 2, "{seen:?}");
}
