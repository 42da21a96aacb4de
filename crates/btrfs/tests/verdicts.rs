//! Kinds of damage that test images of btrfs-progs showed: what `fsck` must find, and what
//! `inspect` must refuse as Linux' tree checker does. The image is the host kernel's, with quota
//! groups, a snapshot and compressed files (`testdata/make-quota`).

use wp_base::Sector;
use wp_btrfs::check::{CheckOptions, Kind, check};
use wp_btrfs::disk::{CsumKind, Key, NodeRef, id, kind};
use wp_btrfs::image::{InspectOptions, inspect};
use wp_medium::{Medium, MediumView};

const IMAGE: &[u8] = include_bytes!("testdata/quota.img.zst");
const NODE: usize = 16384;

struct Disk {
    bytes: Vec<u8>,
}

impl Disk {
    fn new() -> Disk {
        Disk { bytes: zstd::decode_all(IMAGE).expect("it is packed") }
    }

    /// Changes the bytes of items that `is_it`, in each leaf that has them, with the checksum.
    fn change(&mut self, is_it: impl Fn(u64, Key) -> bool, how: impl Fn(&mut [u8])) -> &mut Self {
        let mut changed = 0;
        for block in self.bytes.chunks_exact_mut(NODE) {
            if !CsumKind::Crc32c.is_sealed(block) || block[100] != 0 {
                continue;
            }
            let node = NodeRef::trusted(block);
            let owner = node.header().owner.get();
            let found = (0..node.len()).find(|n| node.key(*n).is_some_and(|k| is_it(owner, k)));
            let Some(slot) = found else { continue };
            let (at, n) = (node.data_at(slot), node.data(slot).map_or(0, <[u8]>::len));
            how(&mut block[at..at + n]);
            CsumKind::Crc32c.seal(block);
            changed += 1;
        }
        assert!(changed > 0, "there is such an item");
        self
    }

    /// What fsck finds that does harm, and what inspect is refused.
    fn judge(&self) -> (Vec<Kind>, Vec<String>) {
        let mut medium = Medium::new();
        for (page, n) in self.bytes.chunks(4096).zip(0u64..) {
            if page.iter().any(|b| *b != 0) {
                medium.write_bytes(n * 4096, page);
            }
        }
        let view = MediumView { medium, start: Sector(0), bytes: self.bytes.len() as u64 };
        let report = check(&view, &CheckOptions::default()).expect("it is checked");
        let found = report.findings.iter().filter(|f| !f.is_harmless()).map(|f| f.kind).collect();
        let options = InspectOptions { hash: false, ..InspectOptions::default() };
        let listed = inspect(&view, &options).expect("it is listed");
        let mut refused: Vec<String> = listed.refused.iter().map(ToString::to_string).collect();
        refused.extend(listed.findings.iter().map(|f| f.error.to_string()));
        (found, refused)
    }
}

#[test]
fn quota_groups_of_a_kernel_are_counted_as_it_counts_them() {
    assert_eq!(Disk::new().judge(), (vec![], vec![]), "sound");
    for (group, word) in [(257, 1), (257, 3), (256, 1), (1 << 48 | 1, 3)] {
        let is_it = |_, k: Key| k.kind == kind::QGROUP_INFO && k.offset == group;
        let mut disk = Disk::new();
        disk.change(is_it, |bytes| bytes[word * 8 + 1] ^= 0x40);
        assert_eq!(disk.judge(), (vec![Kind::Quota], vec![]), "group {group}, word {word}");
    }
    // Linux does not believe them either.
    let mut disk = Disk::new();
    let is_it = |_, k: Key| k.kind == kind::QGROUP_INFO && k.offset == 257;
    disk.change(is_it, |bytes| bytes[9] ^= 0x40);
    disk.change(|_, k| k.kind == kind::QGROUP_STATUS, |bytes| bytes[16] |= 4);
    assert_eq!(disk.judge(), (vec![], vec![]), "marked as inconsistent");
}

#[test]
fn inspect_refuses_what_the_tree_checker_refuses() {
    type Change = fn(&mut [u8]);
    let cases: &[(&str, u8, u64, Change, &str)] = &[
        ("mode of an inode", kind::INODE_ITEM, id::FIRST_FREE, |b| b[53] = 0, "mode"),
        ("generation of an inode", kind::INODE_ITEM, id::FIRST_FREE, |b| b[7] = 9, "generation"),
        ("transid of an inode", kind::INODE_ITEM, id::FIRST_FREE, |b| b[15] = 9, "transid"),
        (
            "generation of an extent",
            kind::EXTENT_ITEM,
            id::EXTENT_TREE,
            |b| b[15] = 9,
            "generation",
        ),
        ("flags of an extent", kind::EXTENT_ITEM, id::EXTENT_TREE, |b| b[16] = 3, "flags"),
        ("refs of an extent", kind::METADATA_ITEM, id::EXTENT_TREE, |b| b[0] = 0, "refs"),
        ("used of a group", kind::BLOCK_GROUP_ITEM, id::EXTENT_TREE, |b| b[7] = 9, "used"),
        ("flags of a group", kind::BLOCK_GROUP_ITEM, id::EXTENT_TREE, |b| b[16] = 0, "flags"),
        ("generation of a root", kind::ROOT_ITEM, id::ROOT_TREE, |b| b[167] = 9, "generation"),
        ("drop_level of a root", kind::ROOT_ITEM, id::ROOT_TREE, |b| b[237] = 9, "drop_level"),
        ("name of an entry", kind::DIR_ITEM, id::FIRST_FREE, |b| b[30] ^= 1, "hash"),
        ("type of an entry", kind::DIR_INDEX, id::FIRST_FREE, |b| b[29] = 8, "type"),
        ("length of a device extent", kind::DEV_EXTENT, id::DEV_TREE, |b| b[26] ^= 1, "offset"),
        ("size of a device", kind::DEV_ITEM, id::CHUNK_TREE, |b| b[15] = 1, "total_bytes"),
    ];
    for (what, of_kind, tree, how, says) in cases {
        let mut disk = Disk::new();
        disk.change(|owner, k| (owner, k.kind) == (*tree, *of_kind), how);
        let (found, refused) = disk.judge();
        assert!(refused.iter().any(|r| r.contains(says)), "{what}: {refused:?}");
        assert!(!found.is_empty(), "{what}: fsck finds it too");
    }
}
