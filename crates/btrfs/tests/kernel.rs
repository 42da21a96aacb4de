//! Images that the host's kernel makes and the core changes, and the other way round: subvolumes
//! with snapshots, so that tree blocks and data have several users. Needs the right to mount.

use crate::commit;
use crate::host;
use crate::program;
use crate::skip;
use crate::tools;
use crate::world;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use wp_btrfs::core::Core;
use wp_btrfs::disk::inode::mode;
use wp_btrfs::disk::{InodeItem, Key, id, kind};
use wp_vfs::FileType;

const MIB: u64 = 1 << 20;
const ROOT: u64 = 256;

/// An image that is mounted as long as this lives.
struct Mounted {
    at: tempfile::TempDir,
}

impl Mounted {
    /// `None`: it cannot be mounted here.
    fn new(image: &Path) -> Option<Mounted> {
        let at = tempfile::tempdir().expect("a scratch folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "btrfs", "-o", "loop,commit=300"]).arg(image).arg(at.path());
        let out = mount.output().ok()?;
        out.status.success().then_some(Mounted { at })
    }
    fn path(&self) -> PathBuf {
        self.at.path().to_owned()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        host::end_mount(&self.at.path().display().to_string());
    }
}

fn run(program: &str, args: &[&str]) {
    let out = Command::new(program).args(args).output().expect("it runs");
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Names in the root directory of a tree.
fn names(core: &mut Core<'_>, tree: u64) -> BTreeMap<Vec<u8>, (u64, u64)> {
    let mut out = BTreeMap::new();
    let mut from = 0;
    while let Some((index, e)) = core.read_dir(tree, ROOT, from).expect("it reads") {
        out.insert(e.name, (index, e.location.objectid));
        from = index + 1;
    }
    out
}

fn resize_root(core: &mut Core<'_>, tree: u64, by: i64) {
    let mut root = core.inode(tree, ROOT).expect("it reads").expect("a directory");
    root.size = root.size.get().saturating_add_signed(by).into();
    root.transid = core.transid().into();
    core.update_inode(tree, ROOT, &root).expect("it is there");
}

fn remove(core: &mut Core<'_>, tree: u64, name: &[u8], (index, ino): (u64, u64)) {
    core.remove_name(tree, ROOT, index, name).expect("it is there");
    core.remove_ref(tree, ino, ROOT, name).expect("it is there");
    while core.remove_inode_items(tree, Key::new(ino, 0, 0), 100).expect("it is sound") {}
    resize_root(core, tree, -2 * name.len() as i64);
}

fn create(core: &mut Core<'_>, tree: u64, name: &str) {
    core.begin().expect("it can be written");
    let ino = core.next_ino(tree).expect("it reads");
    let mut inode = InodeItem::zeroed();
    (inode.generation, inode.transid) = (core.transid().into(), core.transid().into());
    (inode.mode, inode.nlink) = ((mode::FILE | 0o644).into(), 1.into());
    (inode.size, inode.nbytes) = (9.into(), 9.into());
    core.insert_inode(tree, ino, &inode).expect("new");
    let index = core.next_index(tree, ROOT).expect("it reads");
    let location = Key::new(ino, kind::INODE_ITEM, 0);
    core.add_name(tree, ROOT, index, name.as_bytes(), location, FileType::File.entry())
        .expect("new");
    core.add_ref(tree, ino, ROOT, index, name.as_bytes()).expect("new");
    core.insert_inline(tree, ino, b"nine byte").expect("new");
    resize_root(core, tree, 2 * name.len() as i64);
}

/// Contents of all files below a folder, by name.
fn contents(folder: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let mut out = BTreeMap::new();
    for e in std::fs::read_dir(folder).expect("a folder") {
        let e = e.expect("an entry");
        if e.file_type().expect("a type").is_file() {
            let bytes = std::fs::read(e.path()).expect("its checksums are right");
            out.insert(e.file_name().as_bytes().to_vec(), bytes);
        }
    }
    out
}

#[test]
fn shared_trees_are_changed_as_the_kernel_would() {
    if !tools::has_tool("btrfs kernel", "btrfs") {
        return;
    }
    for options in [&["-n", "4096", "-m", "dup"][..], &["-m", "single"]] {
        let image = program::mkfs(256 * MIB, options);
        let Some(mounted) = Mounted::new(image.path()) else {
            return skip::skipped("btrfs kernel", "an image cannot be mounted here");
        };
        let at = mounted.path();
        let sub = |name: &str| at.join(name).to_str().expect("UTF-8").to_owned();
        run("btrfs", &["subvolume", "create", &sub("a")]);
        for n in 0..900usize {
            let bytes: Vec<u8> = (0..n * 11 % 9000).map(|i| (i * n) as u8).collect();
            std::fs::write(at.join(format!("a/file{n}")), bytes).expect("room");
        }
        for name in ["b", "c", "d"] {
            run("btrfs", &["subvolume", "snapshot", &sub("a"), &sub(name)]);
        }
        let before = contents(&at.join("d"));
        drop(mounted);

        // Trees 256 to 259 are the subvolumes: others in each.
        let file = image.as_file();
        for round in 0..6u64 {
            let mut core = world::open(file).expect("it opens");
            for tree in 256..259 {
                for (i, (name, place)) in names(&mut core, tree).into_iter().enumerate() {
                    if i as u64 % 7 == (round + tree) % 7 {
                        remove(&mut core, tree, &name, place);
                    } else if i as u64 % 29 == round {
                        create(&mut core, tree, &format!("new {round} {i}"));
                    }
                }
                if round % 2 == 0 {
                    commit::commit(&mut core, file).expect("a commit");
                }
            }
            commit::commit(&mut core, file).expect("a commit");
            assert_eq!(tools::check(image.path()), "", "{options:?}, round {round}");
        }

        let mut core = world::open(file).expect("it opens");
        let listed: Vec<_> = (256..260).map(|tree| names(&mut core, tree)).collect();
        let mounted = Mounted::new(image.path()).expect("the kernel mounts it");
        let at = mounted.path();
        for (name, own) in ["a", "b", "c", "d"].into_iter().zip(listed) {
            let theirs = contents(&at.join(name));
            assert_eq!(theirs.keys().collect::<Vec<_>>(), own.keys().collect::<Vec<_>>());
            for (file, bytes) in &theirs {
                let is_new = file.starts_with(b"new ");
                let right = if is_new { &b"nine byte"[..] } else { &before[file][..] };
                assert!(bytes == right, "{name}/{}", String::from_utf8_lossy(file));
            }
        }
        // The kernel goes on with what it finds.
        for n in 0..200 {
            std::fs::write(at.join(format!("b/late{n}")), vec![n as u8; 5000]).expect("room");
        }
        drop(mounted);
        assert_eq!(tools::check(image.path()), "", "{options:?}, after the kernel");
        let mut core = world::open(file).expect("it opens");
        for tree in [id::ROOT_TREE, id::EXTENT_TREE, id::FREE_SPACE_TREE, 256, 257, 258, 259] {
            core.verify_tree(tree).expect("it is sound");
        }
    }
}

/// Keys of all blocks of a tree, from the root down and from left to right.
fn shape(core: &mut Core<'_>, tree: u64) -> Vec<(u8, Vec<Key>)> {
    core.verify_tree(tree).expect("it is sound");
    let mut out = Vec::new();
    let mut todo = vec![core.root(tree).expect("it is open").node];
    while let Some(block) = todo.pop() {
        let node = core.node(block).expect("it was read");
        out.push((node.level(), (0..node.len()).filter_map(|i| node.key(i)).collect()));
        if node.level() > 0 {
            todo.extend((0..node.len()).rev().filter_map(|i| Some(node.ptr(i)?.blockptr.get())));
        }
    }
    out
}

#[test]
fn trees_come_out_as_the_kernels() {
    if !tools::has_tool("btrfs shapes", "btrfs") {
        return;
    }
    const INO: u64 = 257;
    for (seed, node_bytes, most) in [
        (1u64, "4096", 900u64),
        (2, "4096", 3900),
        (3, "4096", 60),
        (4, "8192", 7900),
        (5, "16384", 3000),
    ] {
        let image = program::mkfs(512 * MIB, &["-n", node_bytes, "-m", "single"]);
        let Some(mounted) = Mounted::new(image.path()) else {
            return skip::skipped("btrfs shapes", "an image cannot be mounted here");
        };
        std::fs::write(mounted.path().join("file"), b"").expect("room");
        drop(mounted);
        let own = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::copy(image.path(), own.path()).expect("room");

        // Attributes are items that are inserted and removed at once, one at a time.
        let mut rng = wp_base::Rng::stream(seed, "shapes");
        let mut names: Vec<String> = Vec::new();
        let mut steps: Vec<(String, Option<Vec<u8>>)> = Vec::new();
        for n in 0..6000u64 {
            // It grows, then shrinks, and again.
            let shrinks = n / 1000 % 3 == 2;
            if !names.is_empty() && rng.below(10) < if shrinks { 9 } else { 2 } {
                let at = rng.below(names.len() as u64) as usize;
                steps.push((names.swap_remove(at), None));
            } else {
                let name = format!("user.{n}");
                let size = if rng.below(3) == 0 { rng.below(most) } else { rng.below(most / 6) };
                names.push(name.clone());
                steps.push((name, Some(vec![n as u8; size as usize])));
            }
        }
        let mut core = world::open(own.as_file()).expect("it opens");
        let mounted = Mounted::new(image.path()).expect("it was mounted before");
        let path = mounted.path().join("file");
        for (n, (name, value)) in steps.iter().enumerate() {
            match value {
                Some(value) => {
                    let flags = rustix::fs::XattrFlags::empty();
                    rustix::fs::setxattr(&path, name, value, flags).expect("room");
                    let how = wp_btrfs::items::Set::Any;
                    core.set_xattr(id::FS_TREE, INO, name.as_bytes(), value, how).expect("room");
                }
                None => {
                    rustix::fs::removexattr(&path, name).expect("it is there");
                    core.remove_xattr(id::FS_TREE, INO, name.as_bytes()).expect("it is there");
                }
            }
            if n % 500 == 499 {
                commit::commit(&mut core, own.as_file()).expect("a commit");
            }
        }
        drop(mounted);
        commit::commit(&mut core, own.as_file()).expect("a commit");
        assert_eq!(tools::check(own.path()), "", "seed {seed}");
        let ours = shape(&mut core, id::FS_TREE);
        let mut theirs = world::open(image.as_file()).expect("it opens");
        let theirs = shape(&mut theirs, id::FS_TREE);
        assert!(theirs.len() > 20, "seed {seed}: {} blocks", theirs.len());
        let differs = (0..ours.len().max(theirs.len())).find(|i| ours.get(*i) != theirs.get(*i));
        assert_eq!(differs, None, "seed {seed}: {} and {} blocks", ours.len(), theirs.len());
        println!("seed {seed}: {} blocks, {} levels", ours.len(), ours[0].0 + 1);
    }
}

/// Where all blocks of all trees are, with their generations.
fn places(core: &mut Core<'_>) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let mut out = BTreeMap::new();
    let trees =
        [id::ROOT_TREE, id::EXTENT_TREE, id::CHUNK_TREE, id::DEV_TREE, id::FS_TREE, id::CSUM_TREE];
    for tree in trees.into_iter().chain([id::UUID_TREE, id::FREE_SPACE_TREE]) {
        core.verify_tree(tree).expect("it is sound");
        let mut todo = vec![core.root(tree).expect("it is open").node];
        let mut all = Vec::new();
        while let Some(block) = todo.pop() {
            let node = core.node(block).expect("it was read");
            all.push((block, node.header().generation.get()));
            if node.level() > 0 {
                let ptrs = (0..node.len()).rev().filter_map(|i| node.ptr(i));
                todo.extend(ptrs.map(|p| p.blockptr.get()));
            }
        }
        out.insert(tree, all);
    }
    out
}

#[test]
fn blocks_go_where_the_kernel_puts_them() {
    if !tools::has_tool("btrfs places", "btrfs") {
        return;
    }
    const INO: u64 = 257;
    for (seed, node_bytes, profile) in
        [(1u64, "16384", "single"), (2, "4096", "dup"), (3, "4096", "single")]
    {
        let image = program::mkfs(512 * MIB, &["-n", node_bytes, "-m", profile]);
        let Some(mounted) = Mounted::new(image.path()) else {
            return skip::skipped("btrfs places", "an image cannot be mounted here");
        };
        std::fs::write(mounted.path().join("file"), b"").expect("room");
        drop(mounted);
        let own = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::copy(image.path(), own.path()).expect("room");
        let mut core = world::open(own.as_file()).expect("it opens");
        let mounted = Mounted::new(image.path()).expect("it was mounted before");
        let path = mounted.path().join("file");
        let mut rng = wp_base::Rng::stream(seed, "places");
        let mut names: Vec<String> = Vec::new();
        for round in 0..40u64 {
            for n in 0..1 + rng.below(40) {
                if rng.below(3) == 0 && !names.is_empty() {
                    let at = rng.below(names.len() as u64) as usize;
                    let name = names.swap_remove(at);
                    rustix::fs::removexattr(&path, &name).expect("it is there");
                    core.remove_xattr(id::FS_TREE, INO, name.as_bytes()).expect("it is there");
                } else {
                    let name = format!("user.{round}.{n}");
                    let value = vec![n as u8; rng.below(1500) as usize];
                    let flags = rustix::fs::XattrFlags::empty();
                    rustix::fs::setxattr(&path, &name, &value, flags).expect("room");
                    let how = wp_btrfs::items::Set::Any;
                    core.set_xattr(id::FS_TREE, INO, name.as_bytes(), &value, how).expect("room");
                    names.push(name);
                }
            }
            let at = mounted.path().to_str().expect("UTF-8").to_owned();
            run("btrfs", &["filesystem", "sync", &at]);
            // The kernel writes the inode late, too.
            core.commit_prepare().expect("room");
            let inode = core.inode(id::FS_TREE, INO).expect("it reads").expect("it is there");
            core.update_inode(id::FS_TREE, INO, &inode).expect("it is there");
            commit::commit(&mut core, own.as_file()).expect("a commit");
            let mut theirs = world::open(image.as_file()).expect("it opens");
            assert_eq!(
                places(&mut core),
                places(&mut theirs),
                "seed {seed}, round {round}, {} attributes",
                names.len()
            );
        }
    }
}
