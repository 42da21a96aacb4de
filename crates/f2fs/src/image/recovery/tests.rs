//! Roll-forward, scenario by scenario, on images that are made here: a file in the checkpoint, and
//! a chain of nodes behind it. `F` is a node with an fsync mark, `D` one with a mark for its name.

use std::collections::BTreeSet;

use wp_base::{FsError, Sector, Zone, ZoneKind, ZoneState};
use wp_medium::{MediumView, Overlay, View, WithZones};

use crate::disk::inode::{inline, mode};
use crate::disk::{
    Block, Footer, Geometry, Inode, Log, Node, Shape, ZERO_BLOCK, addr, tree, xattr,
};
use crate::image::{Image, InspectOptions, list};
use crate::mkfs::{MkfsOptions, mkfs};

use super::*;

/// The file that the checkpoint has, and one that it has not.
const OLD: u32 = 4;
const NEW: u32 = 5;

/// An image to be crashed.
struct Bench {
    medium: wp_medium::Medium,
    bytes: u64,
    /// Next block of the warm node log, and of the warm data log.
    next: u32,
    data: u32,
}

impl Bench {
    /// An empty file system in which `OLD` was made, written, synced and checkpointed.
    fn new() -> Bench {
        let bytes = 128 << 20;
        let mut medium = wp_medium::Medium::new();
        mkfs(&MkfsOptions::new(bytes)).unwrap().write_to(&mut medium);
        let mut bench = Bench { medium, bytes, next: 0, data: 0 };
        bench.rewind();
        let at = bench.write_data(0xAA);
        bench.node(OLD, 0, Footer::FSYNC | Footer::DENTRY, |block, shape| {
            let i = Inode::of_mut(block);
            i.set_own_name(b"old");
            (i.size, i.pino) = (4096.into(), 3.into());
            i.set_addr(shape, 0, at);
        });
        bench.checkpoint();
        bench
    }

    fn view(&self) -> MediumView {
        let start = wp_base::Sector(0);
        MediumView { medium: self.medium.clone(), start, bytes: self.bytes }
    }

    fn rewind(&mut self) {
        let view = self.view();
        let image = Image::open(&view).unwrap();
        let head = |log| {
            let (segment, offset) = image.checkpoint().log(log);
            image.geometry().block(segment, offset)
        };
        (self.next, self.data) = (head(Log::WarmNode), head(Log::WarmData));
    }

    /// Recovers for good, which makes a checkpoint.
    fn checkpoint(&mut self) {
        let view = self.view();
        let overlay = Overlay::new(&view);
        let done = recover(&overlay, &RecoverOptions::default()).unwrap();
        assert_eq!(done.failed, None);
        for (sector, slice) in overlay.writes() {
            self.medium.write(sector, &slice);
        }
        self.rewind();
    }

    fn write(&mut self, at: u32, block: &Block) {
        let view = self.view();
        let overlay = Overlay::new(&view);
        overlay.write_at(Geometry::byte_of(at), block).unwrap();
        for (sector, slice) in overlay.writes() {
            self.medium.write(sector, &slice);
        }
    }

    /// Writes a block of `byte` behind what the data log has.
    fn write_data(&mut self, byte: u8) -> u32 {
        let at = self.data;
        self.write(at, &[byte; 4096]);
        self.data += 1;
        at
    }

    /// Writes a node to the end of the chain.
    fn node(&mut self, ino: u32, offset: u32, marks: u32, fill: impl FnOnce(&mut Block, &Shape)) {
        let version = {
            let view = self.view();
            Image::open(&view).unwrap().checkpoint().node_version()
        };
        let mut block = ZERO_BLOCK;
        if offset == 0 {
            let i = Inode::of_mut(&mut block);
            i.mode = (mode::FILE | 0o600).into();
            i.inline = inline::XATTR;
            (i.links, i.blocks) = (1.into(), 2.into());
        }
        let shape = Shape::of(Inode::of(&block), 0);
        fill(&mut block, &shape);
        let footer = Footer::of_mut(&mut block);
        // Numbers of other nodes do not matter: recovery gives its own.
        footer.nid = if offset == 0 { ino } else { ino + 100 }.into();
        footer.ino = ino.into();
        footer.set_offset(offset);
        footer.set_mark(marks | Footer::COLD, true);
        footer.cp_ver = version.into();
        footer.next_blkaddr = (self.next + 1).into();
        let at = self.next;
        self.write(at, &block);
        self.next += 1;
    }

    /// An inode whose first address and size are given.
    fn inode(&mut self, ino: u32, marks: u32, size: u64, at: u32) {
        let name: &[u8] = if ino == OLD { b"old" } else { b"new" };
        self.node(ino, 0, marks, |block, shape| {
            let i = Inode::of_mut(block);
            i.set_own_name(name);
            (i.size, i.pino) = (size.into(), 3.into());
            i.set_addr(shape, 0, at);
        });
    }

    /// A direct node (the first of the file) with one address.
    fn dnode(&mut self, ino: u32, marks: u32, at: u32) {
        self.node(ino, 1, marks, |block, _| Node::of_mut(block).set_word(0, at));
    }

    /// Recovers, and lists as `name size first-byte-of-each-block-that-is-there`.
    fn recovered(&self, options: &RecoverOptions) -> (Recovery, Vec<String>) {
        self.recovered_with(options, Vec::new())
    }

    fn recovered_with(
        &self,
        options: &RecoverOptions,
        zones: Vec<Zone>,
    ) -> (Recovery, Vec<String>) {
        let view = self.view();
        let view = WithZones::new(&view, zones);
        let overlay = Overlay::new(&view);
        let done = recover(&overlay, options).unwrap();
        let image = Image::open(&overlay).unwrap();
        let (files, findings) = list(&image, &InspectOptions::default());
        assert_eq!(findings, []);
        let report = crate::check::check(&overlay, &crate::check::CheckOptions::default()).unwrap();
        assert_eq!(report.findings, []);
        let lines = files.iter().map(|f| {
            let record = image.inode(f.ino as u32).unwrap();
            let map = image.map(&record).unwrap();
            let blocks = map.iter().flat_map(|r| (0..r.blocks).map(move |n| (r, n)));
            let text: String = blocks
                .map(|(r, n)| {
                    let bytes = image.read_block(r.start + n, "data").unwrap();
                    format!(" {}:{:02x}", r.logical + u64::from(n), bytes.first().unwrap())
                })
                .collect();
            format!("{} {}{text}", String::from_utf8_lossy(&f.path), f.size)
        });
        (done, lines.collect())
    }

    fn lines(&self) -> Vec<String> {
        let (done, lines) = self.recovered(&RecoverOptions::default());
        assert_eq!(done.failed, None);
        lines
    }
}

const F: u32 = Footer::FSYNC;
const DF: u32 = Footer::FSYNC | Footer::DENTRY;
/// Where the addresses of a first direct node begin in the file, here.
const FIRST: u64 = 873;

#[test]
fn without_a_chain_there_is_nothing_to_recover() {
    let bench = Bench::new();
    let (done, lines) = bench.recovered(&RecoverOptions::default());
    assert!(!done.is_needed());
    assert_eq!(lines, ["old 4096 0:aa"]);
}

#[test]
fn scenario_1_an_unmarked_inode_before_the_mark_is_applied() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.inode(OLD, 0, 4_000_000, one);
    b.dnode(OLD, F, two);
    assert_eq!(b.lines(), [format!("old 4000000 0:01 {FIRST}:02")]);
}

#[test]
fn scenario_2_inode_and_node_are_applied() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.inode(OLD, F, 4_000_000, one);
    b.dnode(OLD, F, two);
    assert_eq!(b.lines(), [format!("old 4000000 0:01 {FIRST}:02")]);
}

#[test]
fn scenario_3_an_unmarked_inode_behind_the_mark_is_dropped() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.dnode(OLD, F, two);
    b.inode(OLD, 0, 4_000_000, one);
    // The size grows with the address, block by block.
    assert_eq!(b.lines(), [format!("old {} 0:aa {FIRST}:02", (FIRST + 1) * 4096)]);
}

#[test]
fn scenario_4_node_and_inode_are_applied() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.dnode(OLD, F, two);
    b.inode(OLD, F, 4_000_000, one);
    assert_eq!(b.lines(), [format!("old 4000000 0:01 {FIRST}:02")]);
}

#[test]
fn scenario_5_a_node_of_a_new_inode_without_marks_is_dropped() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.inode(NEW, 0, 4096, one);
    b.dnode(NEW, F, two);
    let (done, lines) = b.recovered(&RecoverOptions::default());
    assert_eq!((done.nodes_without_inode, done.is_needed()), (1, false));
    assert_eq!(lines, ["old 4096 0:aa"]);
}

#[test]
fn scenario_6_a_new_inode_and_its_node_are_applied() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.inode(NEW, DF, 4_000_000, one);
    b.dnode(NEW, F, two);
    assert_eq!(b.lines(), [format!("new 4000000 0:01 {FIRST}:02"), "old 4096 0:aa".into()]);
}

#[test]
fn scenario_7_a_node_before_its_new_inode_is_applied_with_it() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.dnode(NEW, F, two);
    b.inode(NEW, DF, 4_000_000, one);
    let (done, lines) = b.recovered(&RecoverOptions::default());
    assert_eq!((done.nodes_without_inode, done.inodes_made), (1, 1));
    assert_eq!(lines, [format!("new 4000000 0:01 {FIRST}:02"), "old 4096 0:aa".into()]);
}

#[test]
fn scenario_8_a_node_before_an_unmarked_new_inode_is_dropped() {
    let mut b = Bench::new();
    let (one, two) = (b.write_data(1), b.write_data(2));
    b.dnode(NEW, F, two);
    b.inode(NEW, 0, 4096, one);
    assert_eq!(b.lines(), ["old 4096 0:aa"]);
}

#[test]
fn holes_and_promises_are_recovered() {
    let mut b = Bench::new();
    b.inode(OLD, F, 8192, addr::NULL);
    assert_eq!(b.lines(), ["old 8192"]);
    let mut b = Bench::new();
    b.inode(OLD, F, 8192, addr::NEW);
    assert_eq!(b.lines(), ["old 8192"]);
}

#[test]
fn a_block_that_an_older_version_of_the_chain_had_elsewhere_moves() {
    let mut b = Bench::new();
    let one = b.write_data(1);
    b.node(OLD, 0, F, |block, shape| {
        let i = Inode::of_mut(block);
        i.set_own_name(b"old");
        (i.size, i.pino) = (8192.into(), 3.into());
        i.set_addr(shape, 0, one);
    });
    // The same block one place further on, as a collapse of a range leaves it.
    b.node(OLD, 0, F, |block, shape| {
        let i = Inode::of_mut(block);
        i.set_own_name(b"old");
        (i.size, i.pino) = (8192.into(), 3.into());
        i.set_addr(shape, 1, one);
    });
    assert_eq!(b.lines(), ["old 8192 1:01"]);
    // Given to another file before the first let it go: that file has it.
    let mut b = Bench::new();
    let one = b.write_data(1);
    b.inode(OLD, F, 4096, one);
    b.inode(NEW, DF, 4096, one);
    assert_eq!(b.lines(), ["new 4096 0:01", "old 4096"]);
}

#[test]
fn inline_data_comes_and_goes() {
    let mut b = Bench::new();
    b.node(OLD, 0, F, |block, shape| {
        let i = Inode::of_mut(block);
        i.set_own_name(b"old");
        (i.size, i.pino) = (5.into(), 3.into());
        i.set_inline(inline::DATA | inline::DATA_EXIST, true);
        i.inline_area_mut(shape).get_mut(..5).unwrap().copy_from_slice(b"hello");
    });
    b.checkpoint();
    assert_eq!(b.lines(), ["old 5"]);
    {
        let view = b.view();
        let image = Image::open(&view).unwrap();
        let mut text = Vec::new();
        let record = image.inode(OLD).unwrap();
        image.read_file(&record, &mut |part| part.append_to(&mut text, 1 << 30)).unwrap();
        assert_eq!(text, b"hello");
    }
    let one = b.write_data(1);
    b.inode(OLD, F, 4096, one);
    assert_eq!(b.lines(), ["old 4096 0:01"]);
}

#[test]
fn attributes_are_recovered_in_the_inode_and_in_a_node() {
    let mut b = Bench::new();
    let small = xattr::Attribute { name_index: 1, name: b"k".to_vec(), value: b"v".to_vec() };
    let large = xattr::Attribute { name_index: 1, name: b"large".to_vec(), value: vec![7; 3000] };
    let bytes = xattr::store(&[small.clone(), large.clone()]);
    let room = 200;
    b.node(OLD, 0, F, |block, shape| {
        let i = Inode::of_mut(block);
        i.set_own_name(b"old");
        (i.size, i.pino) = (0.into(), 3.into());
        i.xattr_area_mut(shape).copy_from_slice(bytes.get(..room).unwrap());
    });
    b.node(OLD, tree::XATTR_OFFSET, F, |block, _| {
        let rest = bytes.get(room..).unwrap();
        block.get_mut(..rest.len()).unwrap().copy_from_slice(rest);
    });
    b.checkpoint();
    let view = b.view();
    let image = Image::open(&view).unwrap();
    let record = image.inode(OLD).unwrap();
    assert_eq!(image.attributes(&record).unwrap(), [small, large]);
}

#[test]
fn a_recovered_name_takes_the_place_of_another_file() {
    let mut b = Bench::new();
    let one = b.write_data(1);
    b.node(NEW, 0, DF, |block, shape| {
        let i = Inode::of_mut(block);
        i.set_own_name(b"old");
        (i.size, i.pino) = (4096.into(), 3.into());
        i.set_addr(shape, 0, one);
    });
    let (done, lines) = b.recovered(&RecoverOptions::default());
    assert_eq!((done.names, done.deleted), (1, 1));
    assert_eq!(lines, ["old 4096 0:01"]);
}

#[test]
fn a_chain_that_bites_its_tail_is_left_and_a_check_is_due() {
    let mut b = Bench::new();
    let one = b.write_data(1);
    let first = b.next;
    b.inode(OLD, F, 4096, one);
    let last = b.next;
    b.inode(OLD, F, 4096, one);
    for to in [last, first] {
        let mut block = b.view_block(last);
        Footer::of_mut(&mut block).next_blkaddr = to.into();
        b.write(last, &block);
        let (done, lines) = b.recovered(&RecoverOptions::default());
        let failed = done.failed.unwrap();
        assert!(failed.to_string().contains("next_blkaddr"), "{failed}");
        assert_eq!(lines, ["old 4096 0:aa"]);
    }
}

impl Bench {
    fn view_block(&self, at: u32) -> Block {
        let mut block = ZERO_BLOCK;
        self.view().read_at(Geometry::byte_of(at), &mut block).unwrap();
        block
    }
}

#[test]
fn an_address_that_is_a_nodes_stops_roll_forward() {
    let mut b = Bench::new();
    let node = {
        let view = b.view();
        Image::open(&view).unwrap().nat(3).unwrap().block_addr.get()
    };
    b.inode(OLD, F, 4096, node);
    for rules in [Rules::linux(5, 14), Rules::linux(6, 1)] {
        let options = RecoverOptions { rules, ..RecoverOptions::default() };
        let (done, lines) = b.recovered(&options);
        assert!(done.failed.is_some());
        assert_eq!(lines, ["old 4096 0:aa"]);
    }
}

impl Bench {
    /// Lets the chain go on at another block.
    fn jump(&mut self, to: u32) {
        let at = self.next - 1;
        let view = self.view();
        let mut block = Image::open(&view).unwrap().read_block(at, "node").unwrap();
        Footer::of_mut(&mut block).next_blkaddr = to.into();
        self.write(at, &block);
        self.next = to;
    }

    /// Those of `blocks` that recovery writes.
    fn written_of(&self, blocks: &[u32], options: &RecoverOptions) -> Vec<u32> {
        let view = self.view();
        let overlay = Overlay::new(&view);
        assert_eq!(recover(&overlay, options).unwrap().failed, None);
        let pages: BTreeSet<u64> = overlay.pages().into_iter().map(|(page, _)| page).collect();
        blocks.iter().copied().filter(|b| pages.contains(&u64::from(*b))).collect()
    }
}

#[test]
fn aside_recovery_writes_over_no_node_of_the_chain_wherever_that_goes() {
    let (stock, aside) =
        (RecoverOptions::default(), RecoverOptions { aside: true, ..Default::default() });
    let (segments, main) = {
        let view = Bench::new().view();
        let g = Image::open(&view).unwrap().geometry().clone();
        (g.segments, (0..g.segments).map(|s| g.block(s, 0)).collect::<Vec<u32>>())
    };
    let (mut looked, mut second) = (0, 0);
    for (segment, first) in (0..segments).zip(main) {
        let mut b = Bench::new();
        let in_use = {
            let view = b.view();
            let image = Image::open(&view).unwrap();
            let is_log = Log::ALL.iter().any(|l| image.checkpoint().log(*l).0 == segment);
            is_log || image.sit(segment).unwrap().valid_blocks() > 0
        };
        if in_use {
            continue;
        }
        let chain = [b.next, first];
        let (one, two) = (b.write_data(1), b.write_data(2));
        b.inode(OLD, F, 4096, one);
        b.jump(chain[1]);
        b.inode(NEW, DF, 4096, two);
        let over = b.written_of(&chain, &stock);
        assert!(over.contains(&chain[0]), "as in Linux");
        second += usize::from(over.contains(&chain[1]));
        assert!(b.written_of(&chain, &aside).is_empty(), "segment {segment}");
        assert_eq!(b.recovered(&aside).1, b.recovered(&stock).1);
        looked += 1;
    }
    assert!(looked > 20 && second > 0, "{looked} segments, {second} of them written over");
}

impl Bench {
    /// One conventional zone over everything before the warm data log, and sequential ones of a
    /// segment each, written up to `data` in the data log and full elsewhere.
    fn zones(&self, data: u32) -> Vec<Zone> {
        let view = self.view();
        let image = Image::open(&view).unwrap();
        let g = image.geometry();
        let segment = image.checkpoint().log(Log::WarmData).0;
        let start = g.block(segment, 0);
        let zone = |start: u32, blocks: u32, written: u32, kind| Zone {
            start: Sector(u64::from(start) * 8),
            sectors: u64::from(blocks) * 8,
            capacity: u64::from(blocks) * 8,
            wp: Sector(u64::from(start + written) * 8),
            kind,
            state: ZoneState::ImplicitOpen,
        };
        let behind = start + 512;
        vec![
            zone(0, start, 0, ZoneKind::Conventional),
            zone(start, 512, data - start, ZoneKind::Sequential),
            zone(behind, g.end() - behind, 0, ZoneKind::Conventional),
        ]
    }
}

#[test]
fn oprw_leaves_out_what_was_not_written_and_all_later_nodes_of_that_inode() {
    let mut b = Bench::new();
    let (one, two, three) = (b.write_data(1), b.write_data(2), b.write_data(3));
    b.inode(OLD, F, 4096, one);
    b.inode(NEW, DF, 4096, two);
    // Not written when the power went:
    b.inode(OLD, F, 8192, three);
    b.inode(OLD, F, 12288, one);
    let oprw = RecoverOptions { oprw: true, ..RecoverOptions::default() };
    let (done, lines) = b.recovered_with(&oprw, b.zones(three));
    let rejected = done.oprw.unwrap();
    assert_eq!((rejected.nodes_seen, rejected.unwritten, rejected.later), (4, 1, 1));
    assert_eq!((rejected.addresses_unwritten, rejected.inodes), (1, vec![OLD]));
    assert_eq!(lines, ["new 4096 0:02", "old 4096 0:01"]);
    // Without it the kernel takes the garbage, and says nothing.
    let plain = RecoverOptions::default();
    assert_eq!(b.recovered_with(&plain, b.zones(three)).1, ["new 4096 0:02", "old 12288 0:01"]);
    // All written: nothing is left out.
    let (done, lines) = b.recovered_with(&oprw, b.zones(three + 1));
    assert_eq!(done.oprw.unwrap().unwritten, 0);
    assert_eq!(lines, ["new 4096 0:02", "old 12288 0:01"]);
    // A new file whose data is missing is not there at all.
    let (done, lines) = b.recovered_with(&oprw, b.zones(two));
    assert_eq!((done.inodes_made, done.oprw.unwrap().inodes), (0, vec![NEW, OLD]));
    assert_eq!(lines, ["old 4096 0:01"]);
}

#[test]
fn oprw_looks_at_no_holes_promises_or_inline_data() {
    let mut b = Bench::new();
    b.inode(OLD, F, 4096, addr::NEW);
    b.node(NEW, 0, DF, |block, shape| {
        let i = Inode::of_mut(block);
        i.set_own_name(b"new");
        (i.size, i.pino) = (5.into(), 3.into());
        i.set_inline(inline::DATA | inline::DATA_EXIST, true);
        // As an address this would lie far behind the write pointer.
        i.inline_area_mut(shape).fill(0x11);
    });
    let options = RecoverOptions { oprw: true, ..RecoverOptions::default() };
    let (done, lines) = b.recovered_with(&options, b.zones(b.data));
    let rejected = done.oprw.unwrap();
    assert_eq!((rejected.unwritten, rejected.addresses_seen), (0, 0));
    assert_eq!(lines, ["new 5", "old 4096"]);
    let e = recover(
        &Overlay::new(&b.view()),
        &RecoverOptions { oprw: true, ..RecoverOptions::default() },
    );
    assert_eq!(e, Err(FsError::Invalid("oprw: needs a report of the zones")));
}
