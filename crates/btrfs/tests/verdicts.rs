//! Kinds of damage that test images of btrfs-progs showed: what `fsck` must find, and what
//! `inspect` must refuse as Linux' tree checker does. The image is the host kernel's, with quota
//! groups, a snapshot and compressed files (`testdata/make-quota`).

use wp_base::Sector;
use wp_btrfs::check::{CheckOptions, Kind, check};
use wp_btrfs::disk::{CsumKind, Key, NodeRef, id, kind};
use wp_btrfs::image::{InspectOptions, inspect};
use wp_medium::{Medium, MediumView};
use wp_vfs::finding::Severity;

const IMAGE: &[u8] = include_bytes!("testdata/quota.img.zst");
const NODE: usize = 16384;

struct Disk {
    bytes: Vec<u8>,
    /// Bytes of a tree block.
    node: usize,
}

impl Disk {
    fn new() -> Disk {
        Disk::of(IMAGE)
    }

    fn of(packed: &[u8]) -> Disk {
        Disk { bytes: zstd::decode_all(packed).expect("it is packed"), node: NODE }
    }

    fn view(&self) -> MediumView {
        let mut medium = Medium::new();
        for (page, n) in self.bytes.chunks(4096).zip(0u64..) {
            if page.iter().any(|b| *b != 0) {
                medium.write_bytes(n * 4096, page);
            }
        }
        MediumView { medium, start: Sector(0), bytes: self.bytes.len() as u64 }
    }

    /// Changes the bytes of items that `is_it`, in each leaf that has them, with the checksum.
    fn change(&mut self, is_it: impl Fn(u64, Key) -> bool, how: impl Fn(&mut [u8])) -> &mut Self {
        let mut changed = 0;
        for block in self.bytes.chunks_exact_mut(self.node) {
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
        let view = self.view();
        let report = check(&view, &CheckOptions::default()).expect("it is checked");
        let found = report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Error)
            .map(|f| f.kind)
            .collect();
        let options = InspectOptions { hash: false, ..InspectOptions::default() };
        let listed = inspect(&view, &options).expect("it is listed");
        let mountable = listed.mountable.err().map(|e| e.to_string());
        let mut refused: Vec<String> = listed.refused.iter().map(ToString::to_string).collect();
        refused.extend(listed.findings.iter().map(|f| f.error.to_string()));
        refused.extend(mountable);
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

/// What a balance moved keeps a flag, and snapshots keep what it moved; of a subvolume whose
/// deletion has come half way, blocks are gone (`testdata/make-dropped`, by Linux 6.12).
#[test]
fn moved_blocks_and_a_subvolume_that_is_half_deleted_are_sound() {
    let moved = Disk::of(include_bytes!("testdata/moved.img.zst"));
    let has_flag = |b: &&[u8]| b[56] == 3 && CsumKind::Crc32c.is_sealed(b);
    assert!(moved.bytes.chunks_exact(4096).filter(has_flag).count() > 10);
    let dropped = Disk::of(include_bytes!("testdata/dropped.img.zst"));
    let view = dropped.view();
    let image = wp_btrfs::image::Image::open(&view).expect("an image");
    assert!(image.tree(256).expect("read").is_none(), "it has no references any more");
    for (disk, files) in [(&moved, 121), (&dropped, 2)] {
        assert_eq!(disk.judge(), (vec![], vec![]));
        let listed = inspect(&disk.view(), &InspectOptions::default()).expect("it is listed");
        assert_eq!(listed.files.len(), files);
    }
    // An extent that the deleted part has given back must be gone.
    let mut disk = dropped;
    disk.node = 4096;
    let is_it =
        |owner, k: Key| owner == id::ROOT_TREE && (k.objectid, k.kind) == (256, kind::ROOT_ITEM);
    disk.change(is_it, |root| root[225..242].fill(0));
    let (found, _) = disk.judge();
    assert!(found.contains(&Kind::TreeBlock), "without the key all of it is read: {found:?}");
}

/// Each change ends a mount by Linux 6.12: in a damaged leaf that it reads, or in what it compares.
#[test]
fn a_mount_reads_what_it_needs_and_no_more() {
    let not_read = |disk: &mut Disk| {
        disk.change(|t, k| (t, k.kind) == (256, kind::EXTENT_DATA), |b| b[20] = 9);
    };
    let mut disk = Disk::new();
    not_read(&mut disk);
    let options = InspectOptions { hash: false, ..InspectOptions::default() };
    let listed = inspect(&disk.view(), &options).expect("it is listed");
    assert!(!listed.refused.is_empty(), "a leaf of a subvolume is damaged");
    assert_eq!(listed.mountable, Ok(()), "which no mount reads");
    type Change = fn(&mut [u8]);
    let cases: &[(u8, u64, Change, &str)] = &[
        (kind::BLOCK_GROUP_ITEM, id::EXTENT_TREE, |b| b[7] = 9, "used"),
        (kind::DEV_EXTENT, id::DEV_TREE, |b| b[16] ^= 1, "chunk"),
        (kind::ROOT_ITEM, id::ROOT_TREE, |b| b[167] = 9, "generation"),
    ];
    for (of_kind, tree, how, says) in cases {
        let mut disk = Disk::new();
        disk.change(|owner, k| (owner, k.kind) == (*tree, *of_kind), how);
        let mountable = match inspect(&disk.view(), &options) {
            Ok(listed) => listed.mountable,
            Err(e) => Err(e),
        };
        let said = mountable.expect_err("it is not mounted").to_string();
        assert!(said.contains(says), "{says}: {said}");
    }
}
