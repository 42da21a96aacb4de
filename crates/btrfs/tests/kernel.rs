//! Images that the host's kernel makes and the core changes, and the other way round: subvolumes
//! with snapshots, so that tree blocks and data have several users. Needs the right to mount.

mod commit;
mod program;
mod skip;
mod tools;
mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use wp_btrfs::core::Core;
use wp_btrfs::disk::inode::mode;
use wp_btrfs::disk::{FileKind, InodeItem, Key, id, kind};

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
        mount.args(["-t", "btrfs", "-o", "loop"]).arg(image).arg(at.path());
        let out = mount.output().ok()?;
        out.status.success().then_some(Mounted { at })
    }
    fn path(&self) -> PathBuf {
        self.at.path().to_owned()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.at.path()).status();
        assert!(done.is_ok_and(|s| s.success()) || std::thread::panicking(), "umount");
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
    core.add_name(tree, ROOT, index, name.as_bytes(), location, FileKind::File).expect("new");
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
