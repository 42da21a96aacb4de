//! Our mkfs against mkfs.btrfs: the same bytes in all that the super block leads to. What the
//! program draws by chance or from the clock (identities, time) is read from its image and given to
//! ours as options. Exempt are what the program's earlier transactions left: three backups of roots
//! in the super block, and bytes of leaves that no item has.

use crate::program;
use crate::tools;
use crate::world;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use wp_btrfs::core::Core;
use wp_btrfs::disk::{CsumKind, InodeItem, Key, RootItem, SuperBlock, id, kind, view};
use wp_btrfs::mkfs::{MkfsOptions, mkfs};
use wp_btrfs::tree::page;
use zerocopy::{FromBytes, IntoBytes};

const MIB: u64 = 1 << 20;

fn ours(bytes: u64, options: &[&str]) -> MkfsOptions {
    let mut o = MkfsOptions::new(bytes);
    for pair in options.windows(2) {
        match pair[0] {
            "-n" => o.node_bytes = pair[1].parse().expect("a number"),
            "-m" => o.dup_metadata = pair[1] == "dup",
            "-L" => o.label = pair[1].to_owned(),
            "--csum" => o.csum = CsumKind::Xxhash64,
            _ => {}
        }
    }
    o
}

fn read(file: &File, at: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    file.read_exact_at(&mut out, at).expect("within the image");
    out
}

/// What the program made, and the options that make it here.
fn run_program(bytes: u64, options: &[&str]) -> (tempfile::NamedTempFile, MkfsOptions) {
    let mut tries = 0;
    loop {
        let image = program::mkfs(bytes, options);
        let file = image.as_file();
        let mut o = ours(bytes, options);
        let theirs = SuperBlock::read_from_bytes(&read(file, SuperBlock::AT, 4096)).expect("4096");
        let mut core = world::open(file).expect("it opens");
        o.uuid = theirs.fsid;
        o.device_uuid = theirs.dev_item.uuid;
        o.chunk_uuid = core.chunk_tree_uuid();
        let root = core.lookup(id::ROOT_TREE, Key::new(id::FS_TREE, kind::ROOT_ITEM, 0));
        let root = RootItem::load(&root.expect("it reads").expect("it is there"), 0);
        o.subvolume_uuid = root.expect("a root item").uuid;
        let times = times(&mut core);
        o.now = times[0];
        // A second may have begun meanwhile. What never agrees is left to the comparison.
        tries += 1;
        if times.iter().all(|t| *t == o.now) || tries == 20 {
            drop(core);
            return (image, o);
        }
    }
}

/// Every time that the image has, in seconds: of root items, as far as they have one, and of the
/// root directories of trees.
fn times(core: &mut Core<'_>) -> Vec<u64> {
    let mut all = Vec::new();
    for (tree, dir) in
        [(id::FS_TREE, 256), (id::DATA_RELOC_TREE, 256), (id::ROOT_TREE, id::ROOT_TREE_DIR)]
    {
        let inode = core.lookup(tree, Key::new(dir, kind::INODE_ITEM, 0));
        let inode = inode.expect("it reads").expect("it is there");
        let inode = view::<InodeItem>(&inode, 0).expect("an inode");
        all.extend([inode.atime, inode.ctime, inode.mtime].map(|t| t.sec.get()));
    }
    let trees = [
        id::EXTENT_TREE,
        id::DEV_TREE,
        id::FS_TREE,
        id::CSUM_TREE,
        id::UUID_TREE,
        id::FREE_SPACE_TREE,
        id::DATA_RELOC_TREE,
    ];
    for tree in trees {
        let item = core.lookup(id::ROOT_TREE, Key::new(tree, kind::ROOT_ITEM, 0));
        let Some(item) = item.expect("it reads") else { continue };
        let root = RootItem::load(&item, 0).expect("a root item");
        let own = [root.ctime, root.otime, root.stime, root.rtime];
        let inner = [root.inode.atime, root.inode.ctime, root.inode.mtime];
        all.extend(own.iter().chain(&inner).map(|t| t.sec.get()).filter(|t| *t != 0));
    }
    all
}

#[test]
fn images_are_those_of_the_program_byte_for_byte() {
    if !tools::has_tool("btrfs mkfs", "mkfs.btrfs") {
        return;
    }
    let cases: [(u64, &[&str]); 10] = [
        (256 * MIB, &[]),
        (256 * MIB, &["-m", "single"]),
        (256 * MIB + 123_456, &["-m", "single", "-n", "4096", "-L", "label"]),
        (256 * MIB, &["-m", "dup", "-n", "4096"]),
        (256 * MIB, &["-m", "dup", "-n", "65536"]),
        (200 * MIB, &["-m", "single", "--csum", "xxhash", "-n", "32768"]),
        (1 << 30, &["--csum", "xxhash"]),
        (2000 * MIB, &[]),
        (20 << 30, &["-m", "dup"]),
        (300 << 30, &["-m", "dup"]),
    ];
    for (bytes, options) in cases {
        let (image, o) = run_program(bytes, options);
        let file = image.as_file();
        let made = mkfs(&o).unwrap_or_else(|e| panic!("{bytes} bytes {options:?}: {e}"));
        for (at, piece) in &made.pieces {
            let mut own = piece.clone();
            let mut other = read(file, *at, piece.len());
            if SuperBlock::copies_of_mkfs(bytes).any(|copy| copy == *at) {
                let mut sb = SuperBlock::read_from_bytes(&other).expect("the size is right");
                for n in [0, 2, 3] {
                    sb.super_roots[n] = made.super_block.super_roots[n];
                }
                sb.seal(*at);
                other = sb.as_bytes().to_vec();
            } else {
                page::wipe(&mut other);
                o.csum.seal(&mut other);
            }
            own.truncate(other.len());
            // The checksum comes last: what it differs for is told.
            let mut order = (32..own.len()).chain(0..32);
            let differs = order.find(|i| own[*i] != other[*i]);
            let show = |i: usize| format!("piece {at:#x}, byte {i:#x}");
            assert_eq!(differs.map(show), None, "{bytes} bytes {options:?}");
        }
    }
}

#[test]
fn images_are_clean_for_the_checker_and_the_least_device_is_the_same() {
    if !tools::has_tool("btrfs mkfs checked", "btrfs") {
        return;
    }
    for (options, dup) in [(&["-m", "single"][..], false), (&["-m", "dup"], true)] {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        let runs = |bytes: u64| {
            file.as_file().set_len(bytes).expect("room");
            let args = ["-q", "-f"];
            let run = Command::new("mkfs.btrfs").args(args).args(options).arg(file.path()).output();
            run.expect("it runs").status.success()
        };
        let own = |bytes: u64| {
            mkfs(&MkfsOptions { dup_metadata: dup, ..MkfsOptions::new(bytes) }).is_ok()
        };
        let (mut low, mut high) = (MIB, 256 * MIB);
        while high - low > 4096 {
            let mid = (low + high) / 2 / 4096 * 4096;
            *(if runs(mid) { &mut high } else { &mut low }) = mid;
        }
        assert!(own(high) && !own(high - 4096), "{options:?}: least is {high} bytes");

        file.as_file().set_len(0).expect("a file");
        file.as_file().set_len(256 * MIB).expect("room");
        let o = MkfsOptions { dup_metadata: dup, ..MkfsOptions::new(256 * MIB) };
        for (at, piece) in mkfs(&o).expect("it fits").pieces {
            file.as_file().write_all_at(&piece, at).expect("room");
        }
        assert_eq!(tools::check(file.path()), "", "{options:?}");
    }
}
