#![expect(clippy::indexing_slicing, reason = "a test may panic")]

use wp_vfs::FileType;

use super::*;

const INODES: u32 = 100;

fn block_with(names: &[(&str, u32)]) -> Vec<u8> {
    let mut block = vec![0u8; 1024];
    dir::format(&mut block, true);
    for (name, ino) in names {
        let at = dir::find_room(&block, 0, INODES, 0, name.len()).unwrap().unwrap();
        dir::insert(&mut block, at, *ino, name.as_bytes(), FileType::File.entry());
    }
    block
}

fn names_of(block: &[u8]) -> Vec<(String, u32)> {
    DirIter::new(block, 0, INODES)
        .map(|e| e.unwrap())
        .filter(|e| e.inode != 0)
        .map(|e| (String::from_utf8(e.name.to_vec()).unwrap(), e.inode))
        .collect()
}

#[test]
fn a_directory_block_keeps_names_in_order_and_its_tail() {
    let block = block_with(&[("a", 11), ("bcde", 12), ("f", 13)]);
    let want: Vec<(String, u32)> = vec![("a".into(), 11), ("bcde".into(), 12), ("f".into(), 13)];
    assert_eq!(names_of(&block), want);
    assert!(DirEntryTail::find(&block).is_some());
}

#[test]
fn a_removed_entry_is_given_out_again() {
    for wipe in [dir::Wipe::Keep, dir::Wipe::Zero] {
        let mut block = block_with(&[("first", 11), ("second", 12), ("third", 13)]);
        let offsets: Vec<usize> =
            DirIter::new(&block, 0, INODES).map(|e| e.unwrap().offset).collect();
        dir::remove(&mut block, 0, INODES, offsets[1], wipe).unwrap();
        assert_eq!(names_of(&block).len(), 2);
        dir::remove(&mut block, 0, INODES, 0, wipe).unwrap();
        assert_eq!(names_of(&block), [("third".to_owned(), 13)]);
        // The first entry grew over the second before it became free.
        let at = dir::find_room(&block, 0, INODES, 0, 20).unwrap();
        assert_eq!(at, Some(0));
        assert_eq!(dir::insert(&mut block, 0, 20, &[b'x'; 20], 1), 0);
        assert_eq!(names_of(&block).len(), 2);
    }
}

#[test]
fn a_full_directory_block_has_no_room() {
    let mut block = vec![0u8; 1024];
    dir::format(&mut block, true);
    let mut n = 0;
    while let Some(at) = dir::find_room(&block, 0, INODES, 0, 4).unwrap() {
        dir::insert(&mut block, at, 11, b"name", 1);
        n += 1;
    }
    assert_eq!(n, (1024 - 12) / 12);
}

#[test]
fn wrong_entries_are_refused() {
    let good = block_with(&[("a", 11), ("b", 12)]);
    for (at, byte, field) in
        [(4, 0, "rec_len"), (4, 6, "rec_len"), (5, 200, "rec_len"), (6, 9, "name_len")]
    {
        let mut block = good.clone();
        block[at] = byte;
        let error = DirIter::new(&block, 0, INODES).find_map(Result::err).expect("an error");
        assert_eq!(error.field, field, "byte {at}");
    }
    let mut block = good;
    block[0] = 101;
    let error = DirIter::new(&block, 4096, INODES).find_map(Result::err).expect("an error");
    assert_eq!((error.field, error.at), ("inode", 4096));
}

#[test]
fn stamps_survive_their_encoding() {
    let cases = [
        0,
        1,
        -1,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        1 << 31,
        1 << 32,
        (1 << 34) - (1 << 31) - 1,
    ];
    for secs in cases {
        let stamp = Stamp { secs, nanos: 999_999_999 };
        let (lo, extra) = stamp.encode();
        assert_eq!(Stamp::decode(lo, extra), stamp, "{secs}");
    }
}

#[test]
fn extents_keep_length_and_state() {
    for (blocks, unwritten) in [(1, false), (32768, false), (1, true), (32767, true)] {
        let e = Extent::new(7, 0x1234_5678_9ABC, blocks, unwritten);
        assert_eq!(
            (e.blocks(), e.is_unwritten(), e.start()),
            (blocks, unwritten, 0x1234_5678_9ABC)
        );
    }
}

#[test]
fn only_sparse_groups_have_backups() {
    let mut sb = SuperBlock::zeroed();
    sb.magic = SuperBlock::MAGIC.into();
    sb.rev_level = 1.into();
    sb.first_ino = 11.into();
    sb.inode_size = 256.into();
    sb.log_block_size = 2.into();
    sb.blocks_per_group = 32768.into();
    sb.inodes_per_group = 8192.into();
    sb.blocks_count_lo = (32768 * 100).into();
    sb.inodes_count = (8192 * 100).into();
    sb.feature_ro_compat = ro_compat::SPARSE_SUPER.into();
    let g = Geometry::from_super(&sb).unwrap();
    let with: Vec<u32> = (0..g.groups).filter(|n| g.has_super(*n)).collect();
    assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
    let slot = g.inode_slot(8193).unwrap();
    assert_eq!(slot, InodeSlot { group: 1, index: 0, table_block: 0, offset: 0 });
    assert_eq!(g.inode_slot(0), None);
    assert_eq!(g.inode_slot(8192 * 100 + 1), None);
}

#[test]
fn htree_entries_come_back() {
    let mut block = vec![0u8; 4096];
    let entry = |hash: u32, block: u32| htree::DxEntry { hash: hash.into(), block: block.into() };
    let entries = [entry(0, 1), entry(100, 2), entry(200, 3)];
    htree::store_entries(&mut block, htree::NODE_ENTRIES_AT, true, &entries);
    let back = htree::load_entries(&block, 0, htree::NODE_ENTRIES_AT, true).unwrap();
    assert_eq!(back, entries);
    assert!(htree::load_entries(&block, 0, htree::NODE_ENTRIES_AT, false).is_err());
}

#[test]
fn a_name_finds_its_longest_prefix() {
    assert_eq!(xattr::split_name(b"user.k"), Some((1, &b"k"[..])));
    assert_eq!(xattr::split_name(b"system.posix_acl_access"), Some((2, &b""[..])));
    assert_eq!(xattr::split_name(b"system.data"), Some((7, &b"data"[..])));
    assert_eq!(xattr::split_name(b"nonsense"), None);
}
