//! Damage planted in images of the real kernel: the check finds each piece, and calls it by its
//! name.

use crate::images::Bytes;
use crate::reference;
use crate::reseal;
use wp_medium::View;
use wp_nilfs2::check::{CheckOptions, Kind, check};
use wp_nilfs2::disk::{DatEntry, Geometry, Inode, SuperBlock, ino};
use wp_nilfs2::image::{Image, Record};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An image in which something is to be damaged.
struct Field {
    bytes: Vec<u8>,
    g: Geometry,
}

impl Field {
    /// Asks an image of it.
    fn ask<R>(&self, f: impl FnOnce(&Image<'_>) -> R) -> R {
        f(&Image::open(&Bytes(self.bytes.clone())).expect("an image"))
    }

    /// Byte address of byte `at` of block `key` of a file.
    fn place(&self, of: impl FnOnce(&Image<'_>) -> Record, (key, at): (u64, usize)) -> usize {
        let block = self.ask(|i| i.block_of(&of(i), key)).expect("a map").expect("no hole");
        self.g.byte_of(block) as usize + at
    }

    /// Changes the structure at a byte address.
    fn change<T>(&mut self, at: usize, f: impl FnOnce(&mut T))
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable,
    {
        let (what, _) = T::mut_from_prefix(&mut self.bytes[at..]).expect("within");
        f(what);
    }

    fn inode(&self, number: u64) -> usize {
        self.place(|i| i.ifile().clone(), self.g.ifile.place(number))
    }

    fn dat_entry(&self, number: u64) -> usize {
        self.place(|i| i.dat().clone(), self.g.dat.place(number))
    }

    /// The inode with a path, and the first virtual number of its direct map.
    fn file(&self, path: &str) -> (u64, u64) {
        self.ask(|image| {
            let (files, _) = wp_nilfs2::image::list(image, &Default::default());
            let found = files.iter().find(|f| f.path == path.as_bytes()).expect("a file");
            let inode = image.inode(found.ino).expect("an inode").inode;
            (found.ino, inode.bmap.words[1].get())
        })
    }

    /// Where a name stands in the directory `dir`.
    fn name(&self, dir: u64, name: &[u8]) -> usize {
        let at = self.place(|i| i.inode(dir).expect("a directory"), (0, 0));
        let block = &self.bytes[at..at + self.g.block_bytes()];
        let slots = wp_nilfs2::disk::dir::slots(block, 0).expect("names");
        at + slots.iter().find(|s| s.name == name).expect("the name").at
    }
}

type Damage = fn(&mut Field);

/// What is planted, and what has to be found, if nothing else.
const PLANTS: &[(&str, &[Kind], Damage)] = &[
    ("a bit of the first super block", &[Kind::SuperCopies], |f| {
        f.bytes[SuperBlock::AT as usize + 0x48] ^= 1;
    }),
    ("a number of an older checkpoint's block", &[Kind::DatEntry], |f| {
        let (_, number) = f.file("d1/base1");
        let at = f.dat_entry(number);
        f.change(at, |e: &mut DatEntry| e.end = 5.into());
    }),
    ("a number that starts in the future", &[Kind::DatEntry], |f| {
        let (_, number) = f.file("d1/base1");
        let at = f.dat_entry(number);
        f.change(at, |e: &mut DatEntry| e.start = 77.into());
    }),
    ("a number that leads to another's block", &[Kind::BlockShared], |f| {
        let [(_, a), (_, b)] = ["d1/base1", "d1/base3"].map(|p| f.file(p));
        let (from, to) = (f.dat_entry(b), f.dat_entry(a));
        let other = DatEntry::read_from_bytes(&f.bytes[from..from + 32]).expect("an entry");
        f.change(to, |e: &mut DatEntry| e.blocknr = other.blocknr);
    }),
    ("a number that leads to a block of no file", &[Kind::Summary], |f| {
        let (_, number) = f.file("d1/base1");
        let at = f.dat_entry(number);
        let summary = f.g.segment(1).0;
        f.change(at, |e: &mut DatEntry| e.blocknr = summary.into());
    }),
    ("a number that leads beyond the segments", &[Kind::Address], |f| {
        let (_, number) = f.file("d1/base1");
        let (at, end) = (f.dat_entry(number), f.g.end());
        f.change(at, |e: &mut DatEntry| e.blocknr = end.into());
    }),
    ("a number that is not given out", &[Kind::NotAllocated, Kind::FreeCount], |f| {
        let (_, number) = f.file("d1/base1");
        let (group, n) = f.g.dat.group_of(number);
        let map = f.place(|i| i.dat().clone(), (f.g.dat.bitmap_block(group), 0));
        f.bytes[map + n as usize / 8] &= !(1 << (n % 8));
    }),
    ("a live number that nothing refers to", &[Kind::DatLost], |f| {
        let (ino, _) = f.file("d1/base1");
        let at = f.inode(ino);
        f.change(at, |i: &mut Inode| i.bmap.words[1] = 0.into());
    }),
    ("a count of free numbers", &[Kind::FreeCount], |f| {
        let at = f.place(|i| i.dat().clone(), (0, 0));
        f.bytes[at] ^= 1;
    }),
    ("a count of free inodes", &[Kind::FreeCount], |f| {
        let at = f.place(|i| i.ifile().clone(), (0, 0));
        f.bytes[at] ^= 1;
    }),
    ("a segment in use that is said to be free", &[Kind::BlockFree, Kind::UsageCount], |f| {
        let at = f.place(|i| i.sufile().clone(), f.g.sufile.place(0));
        f.bytes[at + 12] = 0;
    }),
    ("logs that reach less far", &[Kind::BlockFree], |f| {
        let at = f.place(|i| i.sufile().clone(), f.g.sufile.place(2));
        f.bytes[at + 8] = 20;
    }),
    ("a count of free segments", &[Kind::UsageCount], |f| {
        let at = f.place(|i| i.sufile().clone(), (0, 0));
        f.bytes[at] ^= 1;
    }),
    ("a count of checkpoints", &[Kind::CheckpointCount], |f| {
        let at = f.place(|i| i.cpfile().clone(), (0, 0));
        f.bytes[at] ^= 1;
    }),
    ("a count of snapshots", &[Kind::CheckpointCount], |f| {
        let at = f.place(|i| i.cpfile().clone(), (0, 8));
        f.bytes[at] ^= 3;
    }),
    ("the list of snapshots", &[Kind::Snapshots], |f| {
        let at = f.place(|i| i.cpfile().clone(), (0, 16));
        f.bytes[at] ^= 1;
    }),
    ("the number of a checkpoint", &[Kind::Checkpoint], |f| {
        let (block, at) = f.g.cpfile.place(3);
        let at = f.place(|i| i.cpfile().clone(), (block, at + 24));
        f.bytes[at] ^= 8;
    }),
    ("a checkpoint's count of blocks", &[Kind::CheckpointCount], |f| {
        let newest = f.ask(|i| i.tip().cno);
        let (block, at) = f.g.cpfile.place(newest);
        let at = f.place(|i| i.cpfile().clone(), (block, at + 56));
        f.bytes[at] ^= 1;
    }),
    ("a count of links", &[Kind::Links], |f| {
        let (ino, _) = f.file("d1/base1");
        let at = f.inode(ino);
        f.change(at, |i: &mut Inode| i.links_count = 3.into());
    }),
    ("a count of blocks", &[Kind::InodeBlocks], |f| {
        let (ino, _) = f.file("d1/base1");
        let at = f.inode(ino);
        f.change(at, |i: &mut Inode| i.blocks = 8.into());
    }),
    ("a length that ends before the last block", &[Kind::Inode], |f| {
        let (ino, _) = f.file("d1/base1");
        let at = f.inode(ino);
        f.change(at, |i: &mut Inode| i.size = 4096.into());
    }),
    ("a file of no type", &[Kind::Inode], |f| {
        let (ino, _) = f.file("d1/base1");
        let at = f.inode(ino);
        f.change(at, |i: &mut Inode| i.mode = 0o644.into());
    }),
    ("a file without links", &[Kind::Orphan], |f| {
        let (ino, _) = f.file("d1/base3");
        let at = f.inode(ino);
        f.change(at, |i: &mut Inode| i.links_count = 0.into());
    }),
    ("a name that is gone", &[Kind::InodeLost], |f| {
        let (dir, _) = f.file("d1");
        let at = f.name(dir, b"base3");
        f.bytes[at..at + 8].fill(0);
    }),
    ("a name of another type", &[Kind::Dentry], |f| {
        let (dir, _) = f.file("d1");
        let at = f.name(dir, b"base3");
        f.bytes[at + 11] = 2;
    }),
    ("a name of an inode that is not given out", &[Kind::NotAllocated], |f| {
        let (dir, _) = f.file("d1");
        let at = f.name(dir, b"base3");
        f.bytes[at..at + 8].copy_from_slice(&3000u64.to_le_bytes());
    }),
    ("an entry that leads beyond its block", &[Kind::Dentry], |f| {
        let (dir, _) = f.file("d1");
        let at = f.name(dir, b"base3");
        f.bytes[at + 8..at + 10].copy_from_slice(&8000u16.to_le_bytes());
    }),
    ("a directory that is not itself", &[Kind::Dentry], |f| {
        let (dir, _) = f.file("d1");
        let at = f.name(dir, b".");
        f.bytes[at] = ino::ROOT as u8;
    }),
    ("a root of a map with too many children", &[Kind::BlockMap], |f| {
        let (ino, _) = f.file("big");
        let at = f.inode(ino);
        f.bytes[at + 56 + 2] = 9;
    }),
    ("a key of a map", &[Kind::BlockMap], |f| {
        let (ino, _) = f.file("big");
        let at = f.inode(ino);
        // The first key of the root: its child says another.
        f.bytes[at + 64] = 1;
    }),
    ("a summary that names another file", &[Kind::Summary], |f| {
        let tip = f.ask(|i| i.tip().root.start);
        let at = f.g.byte_of(tip) as usize + 64;
        f.bytes[at] ^= 1;
    }),
    ("the length of a super root", &[Kind::SuperRoot], |f| {
        let block = f.ask(|i| i.tip().root.start + i.tip().root.blocks - 1);
        let at = f.g.byte_of(block) as usize + 4;
        f.bytes[at..at + 2].copy_from_slice(&100u16.to_le_bytes());
    }),
];

#[test]
fn each_piece_of_damage_is_found() {
    let Some((bytes, _)) = reference::reference("nilfs2 planted", "nilfs2-cps") else { return };
    let whole = Bytes(bytes);
    let g = Image::open(&whole).expect("an image").geometry().clone();
    for (what, expected, damage) in PLANTS {
        let mut field = Field { bytes: whole.0.clone(), g: g.clone() };
        damage(&mut field);
        assert!(field.bytes != whole.0, "{what}: nothing changed");
        reseal::reseal(&mut field.bytes, &g);
        let report = check(&Bytes(field.bytes), &CheckOptions::default())
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let found: Vec<Kind> = report.findings.iter().map(|f| f.kind).collect();
        for kind in *expected {
            assert!(found.contains(kind), "{what}: {kind:?} is not in {:?}", report.findings);
        }
        let harmless = expected.iter().all(|k| k.is_harmless()) && found.len() == expected.len();
        assert_eq!(report.is_clean(), harmless, "{what}: {:?}", report.findings);
        for f in &report.findings {
            assert!(!f.place.is_empty() && !f.expected.is_empty(), "{what}: {f:?}");
        }
    }
    // Any byte of a log in use, without a seal.
    let places = [g.byte_of(g.segment(0).0 + 3) + 77, g.byte_of(g.segment(2).0) + 3000];
    for at in places {
        let mut bytes = whole.0.clone();
        bytes[at as usize] ^= 0x10;
        let view = Bytes(bytes);
        let report = check(&view, &CheckOptions::default()).expect("a report");
        let kinds: Vec<Kind> = report.findings.iter().map(|f| f.kind).collect();
        assert!(kinds.contains(&Kind::Log), "byte {at} of {}: {kinds:?}", view.len_bytes());
    }
}

/// A directory that was removed and is still open has blocks and no length; numbers of devices are
/// no block maps (`testdata/make-removed`, by Linux 6.12).
#[test]
fn a_removed_directory_and_device_files_are_sound() {
    let packed: &[u8] = include_bytes!("testdata/removed.img.zst");
    let bytes = Bytes(zstd::decode_all(packed).expect("it is packed"));
    let report = check(&bytes, &CheckOptions::default()).expect("it is checked");
    assert!(report.is_clean(), "{:?}", report.findings);
    assert!(report.findings.iter().any(|f| f.kind == Kind::Orphan), "{:?}", report.findings);
    let image = Image::open(&bytes).expect("an image");
    let (files, _) = wp_nilfs2::image::list(&image, &Default::default());
    let kinds: Vec<&str> = files.iter().map(|f| f.kind.word()).collect();
    // The first is `.nilfs`.
    assert_eq!(kinds, ["file", "char", "fifo", "socket"]);
}
