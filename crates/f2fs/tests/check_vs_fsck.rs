//! Our check against fsck.f2fs: each kind of damage is found by both, and nothing in sound images
//! by either. The images are crashed ones of real kernels, recovered by us.

use crate::reference;
use crate::tools;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::images::Bytes;
use wp_f2fs::check::{CheckOptions, Kind, check};
use wp_f2fs::disk::{
    Block, Checkpoint, DentryArea, Footer, Geometry, Inode, Journal, Log, Node, SitJournalEntry,
    Summary, bits, nid,
};
use wp_f2fs::image::{Image, InodeRecord, InspectOptions, RecoverOptions, inspect, list, recover};
use wp_medium::{Overlay, View};
use zerocopy::IntoBytes;

/// A recovered image, in memory and in a file.
struct Bench {
    bytes: Bytes,
    file: tempfile::NamedTempFile,
}

/// What is written where.
type Damage = Vec<(u32, Block)>;

impl Bench {
    fn new(name: &str) -> Option<Bench> {
        if !tools::has_tool("f2fs check", "fsck.f2fs") {
            return None;
        }
        let (bytes, _) = reference::reference("f2fs check", name)?;
        let mut bytes = Bytes(bytes);
        let pages = {
            let overlay = Overlay::new(&bytes);
            recover(&overlay, &RecoverOptions::default()).expect("it recovers");
            overlay.pages()
        };
        for (n, page) in pages {
            bytes.0[n as usize * 4096..][..4096].copy_from_slice(page.bytes());
        }
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        file.as_file().write_all_at(&bytes.0, 0).expect("written");
        Some(Bench { bytes, file })
    }

    fn block(&self, n: u32) -> Block {
        let mut out = [0; 4096];
        self.bytes.read_at(Geometry::byte_of(n), &mut out).expect("within");
        out
    }

    fn put(&mut self, n: u32, block: &Block) {
        self.bytes.0[n as usize * 4096..][..4096].copy_from_slice(block);
        let file: &File = self.file.as_file();
        file.write_all_at(block, Geometry::byte_of(n)).expect("written");
    }

    /// Is it sound for fsck.f2fs?
    fn fsck(&self) -> bool {
        let run = Command::new("fsck.f2fs").arg("--dry-run").arg(self.file.path()).output();
        let run = run.expect("it runs");
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        run.status.success() && !said.contains("[Fail]") && !said.contains("[ASSERT]")
    }

    fn kinds(&self) -> Vec<Kind> {
        let report = check(&self.bytes, &CheckOptions::default()).expect("it is read");
        report.findings.iter().map(|f| f.kind).collect()
    }

    /// With some damage, for a moment.
    fn with<T>(&mut self, damage: &Damage, look: impl FnOnce(&Bench) -> T) -> T {
        let before: Damage = damage.iter().map(|(n, _)| (*n, self.block(*n))).collect();
        damage.iter().for_each(|(n, b)| self.put(*n, b));
        let out = look(self);
        before.iter().for_each(|(n, b)| self.put(*n, b));
        out
    }
}

/// The file `name` in the root's directory `d1`, as it stands.
fn file(image: &Image<'_>, name: &[u8]) -> InodeRecord {
    let root = image.inode(nid::ROOT).expect("a root");
    let find = |dir: &InodeRecord, name: &[u8]| {
        let names = image.names(dir).expect("names");
        let ino = names.iter().find(|n| n.name == name).expect("a file").ino;
        image.inode(ino).expect("an inode")
    };
    find(&find(&root, b"d1"), name)
}

fn place(record: &InodeRecord) -> u32 {
    (record.at / 4096) as u32
}

/// Changes an inode.
fn inode(record: &InodeRecord, change: impl FnOnce(&mut Inode)) -> Damage {
    let mut block = *record.block;
    change(Inode::of_mut(&mut block));
    vec![(place(record), block)]
}

/// Changes the checkpoint at both ends of its pack, and seals it.
fn checkpoint(image: &Image<'_>, change: impl FnOnce(&mut Checkpoint)) -> Damage {
    let mut cp = image.checkpoint().clone();
    change(&mut cp);
    cp.seal();
    let start = image.geometry().pack(image.is_second_pack());
    let last = start + cp.head().cp_pack_total_block_count.get() - 1;
    vec![(start, cp.block(0)), (last, cp.block(0))]
}

/// Changes compacted summaries of the pack.
fn summaries(image: &Image<'_>, block: Block, change: impl FnOnce(&mut Block)) -> Damage {
    let start = image.geometry().pack(image.is_second_pack());
    let at = start + image.checkpoint().head().cp_pack_start_sum.get();
    let mut block = block;
    change(&mut block);
    vec![(at, block)]
}

/// Sets a block of a segment as in use or not, through the journal.
fn sit(bench: &Bench, image: &Image<'_>, at: u32, valid: bool) -> Damage {
    let (segment, offset) = image.geometry().place(at).expect("in the main area");
    let mut entry = image.sit(segment).expect("an entry");
    assert_ne!(bits::set(&mut entry.valid_map, offset, valid), valid);
    let log = Log::of(entry.kind()).expect("a log");
    let blocks = bits::ones(&entry.valid_map);
    entry.set(log, blocks);
    let mut journal = image.data_summaries()[2].journal;
    assert!(journal.put_sit(SitJournalEntry { segment: segment.into(), entry }));
    let start = image.geometry().pack(image.is_second_pack());
    let first = start + image.checkpoint().head().cp_pack_start_sum.get();
    summaries(image, bench.block(first), |b| {
        b[Journal::BYTES..2 * Journal::BYTES].copy_from_slice(journal.as_bytes());
    })
}

/// Every kind of damage, with what ours has to say about it.
fn damages(bench: &Bench) -> Vec<(&'static str, Kind, Damage)> {
    let image = Image::open(&bench.bytes).expect("an image");
    let g = image.geometry();
    let one = file(&image, b"base1");
    let two = file(&image, b"base9");
    let root = image.inode(nid::ROOT).expect("a root");
    let d1 = {
        let names = image.names(&root).expect("names");
        let ino = names.iter().find(|n| n.name == b"d1").expect("a directory").ino;
        image.inode(ino).expect("an inode")
    };
    let dir_block = image.address(&root, 0).expect("an address");
    let root_is_inline = !wp_f2fs::disk::addr::is_block(dir_block);
    assert!(!root_is_inline, "mkfs gives the root a block");
    let names = |change: &dyn Fn(&mut Block, u32)| {
        let mut block = bench.block(dir_block);
        let all = DentryArea::BLOCK.names(&block, 0).expect("names");
        let slot = all.iter().find(|d| d.name == b"big").expect("a file").slot;
        change(&mut block, slot);
        vec![(dir_block, block)]
    };
    let data = image.address(&one, 0).expect("an address");
    let first_free = {
        let (segment, offset) = image.checkpoint().log(Log::WarmData);
        g.block(segment, offset + 5)
    };
    let count = |what: fn(&mut Checkpoint)| checkpoint(&image, what);
    let entry_at = |slot: u32| 30 + slot as usize * 11;
    vec![
        ("links", Kind::Links, inode(&one, |i| i.links = (i.links.get() + 1).into())),
        ("blocks", Kind::InodeBlocks, inode(&one, |i| i.blocks = (i.blocks.get() + 1).into())),
        ("address outside", Kind::Address, inode(&one, |i| i.set_addr(&one.shape, 0, 5))),
        ("shared block", Kind::BlockShared, {
            let other = image.address(&two, 0).expect("an address");
            inode(&one, |i| i.set_addr(&one.shape, 0, other))
        }),
        ("lost block", Kind::BlockLost, inode(&one, |i| i.set_addr(&one.shape, 0, 0))),
        ("directory's links", Kind::Links, inode(&d1, |i| i.links = 7.into())),
        ("footer's inode", Kind::NodeFooter, {
            let mut block = *one.block;
            Footer::of_mut(&mut block).ino = 99.into();
            vec![(place(&one), block)]
        }),
        ("footer's number", Kind::NodeFooter, {
            let mut block = *one.block;
            Footer::of_mut(&mut block).nid = 99.into();
            vec![(place(&one), block)]
        }),
        ("name's inode", Kind::NatEntry, names(&|b, slot| b[entry_at(slot) + 4] ^= 0x40)),
        ("name's hash", Kind::DentryHash, names(&|b, slot| b[entry_at(slot)] ^= 1)),
        ("name's type", Kind::Dentry, names(&|b, slot| b[entry_at(slot) + 10] = 7)),
        ("block marked free", Kind::BlockFree, sit(bench, &image, data, false)),
        ("block marked used", Kind::BlockLost, sit(bench, &image, first_free, true)),
        (
            "valid blocks",
            Kind::CheckpointCount,
            count(|cp| {
                let h = cp.head_mut();
                h.valid_block_count = (h.valid_block_count.get() + 1).into();
            }),
        ),
        (
            "valid nodes",
            Kind::CheckpointCount,
            count(|cp| {
                let h = cp.head_mut();
                h.valid_node_count = (h.valid_node_count.get() + 1).into();
            }),
        ),
        (
            "valid inodes",
            Kind::CheckpointCount,
            count(|cp| {
                let h = cp.head_mut();
                h.valid_inode_count = (h.valid_inode_count.get() - 1).into();
            }),
        ),
        (
            "free segments",
            Kind::CheckpointCount,
            count(|cp| {
                let h = cp.head_mut();
                h.free_segment_count = (h.free_segment_count.get() - 1).into();
            }),
        ),
        (
            "log behind its blocks",
            Kind::LogHead,
            count(|cp| {
                let (segment, _) = cp.log(Log::HotNode);
                cp.set_log(Log::HotNode, segment, 0);
            }),
        ),
        ("summary", Kind::Summary, {
            let (segment, _) = g.place(data).expect("in the main area");
            let at = g.summary_block(segment);
            let mut block = bench.block(at);
            let (_, offset) = g.place(data).expect("in the main area");
            let bytes = Summary::new(77, 0, 3);
            block[offset as usize * 7..][..7].copy_from_slice(bytes.as_bytes());
            vec![(at, block)]
        }),
        ("node's inode in the tree", Kind::NodeFooter, {
            let big = {
                let names = image.names(&root).expect("names");
                let ino = names.iter().find(|n| n.name == b"big").expect("a file").ino;
                image.inode(ino).expect("an inode")
            };
            let nid = (0..5).map(|n| big.inode().nid(n)).find(|n| *n != 0).expect("a node");
            let (at, mut block) = image.node(nid).expect("a node");
            Footer::of_mut(&mut block).set_offset(40);
            assert!(Node::of(&block).words().len() == 1018);
            vec![((at / 4096) as u32, *block)]
        }),
    ]
}

/// What fsck.f2fs 1.15 does not find: hashes it looks at only when it repairs, and a node's place
/// in the tree not at all.
const ONLY_OURS: [&str; 2] = ["name's hash", "node's inode in the tree"];

#[test]
fn every_damage_is_found_by_both() {
    let Some(mut bench) = Bench::new("f2fs-posix") else { return };
    assert_eq!(bench.kinds(), [], "ours, of a sound image");
    assert!(bench.fsck(), "fsck.f2fs, of a sound image");
    let all = damages(&bench);
    assert!(all.len() >= 20);
    let mut not_theirs = Vec::new();
    for (name, kind, damage) in all {
        let (ours, theirs) = bench.with(&damage, |b| (b.kinds(), b.fsck()));
        assert!(ours.contains(&kind), "{name}: {ours:?}, not {kind:?}");
        if theirs {
            not_theirs.push(name);
        }
    }
    assert_eq!(not_theirs, ONLY_OURS);
    assert_eq!(bench.kinds(), [], "undone");
}

#[test]
fn sound_images_are_sound_for_both() {
    for name in reference::IMAGES.iter().filter(|n| !n.starts_with("f2fs-z")) {
        let Some(bench) = Bench::new(name) else { return };
        assert_eq!(bench.kinds(), [], "{name}");
        assert!(bench.fsck(), "{name}");
    }
}

/// The number of a device stands where a file has addresses of blocks
/// (`testdata/make-devices`, by Linux 6.12, with a removed directory that is still open).
#[test]
fn device_files_have_no_blocks() {
    let packed: &[u8] = include_bytes!("testdata/devices.img.zst");
    let bytes = Bytes(zstd::decode_all(packed).expect("it is packed"));
    for recover in [None, Some(RecoverOptions::default())] {
        let report = check(&bytes, &CheckOptions { recover }).expect("it is checked");
        assert!(report.is_clean(), "{:?}", report.findings);
    }
    let image = Image::open(&bytes).expect("an image");
    let (files, findings) = list(&image, &InspectOptions::default());
    let kinds: Vec<&str> = files.iter().map(|f| f.kind.word()).collect();
    assert_eq!(kinds, ["block", "char", "char", "fifo", "socket"]);
    assert!(findings.is_empty(), "{findings:?}");
}

/// A root directory that `f2fs_fill_super` does not take ends the mount.
#[test]
fn a_mount_reads_the_root_directory() {
    let packed: &[u8] = include_bytes!("testdata/devices.img.zst");
    let sound = zstd::decode_all(packed).expect("it is packed");
    let root = Image::open(&Bytes(sound.clone())).and_then(|i| i.inode(nid::ROOT));
    let at = root.expect("a root").at as usize;
    assert!(inspect(&Bytes(sound.clone()), &InspectOptions::default()).is_ok());
    for (offset, value, says) in [(76, 1, "i_xattr_nid"), (12, 0, "i_links"), (1, 0x81, "i_mode")] {
        let mut bytes = sound.clone();
        bytes[at + offset] = value;
        let e = inspect(&Bytes(bytes), &InspectOptions::default()).expect_err("not mounted");
        assert!(e.to_string().contains(says), "{says}: {e}");
    }
}
