//! Images made by e2fsprogs with what the kernel's images do not show: indirect blocks, inline
//! data, hash trees, deep extent trees, attributes everywhere, orphans of all kinds.

#![expect(clippy::unwrap_used, reason = "what cannot be read or run fails the test")]

use crate::skip;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use wp_base::{FsError, FsResult, Rng};
use wp_ext4::image::{Image, InspectOptions, inspect, recover};
use wp_jbd2::RecoverPolicy;
use wp_medium::{Overlay, View};
use wp_vfs::{FileInfo, FileType};

/// An image in a file.
struct FileView {
    file: File,
    bytes: u64,
}

impl View for FileView {
    fn len_bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, at: u64, out: &mut [u8]) -> FsResult<()> {
        self.file.read_exact_at(out, at).map_err(|_| FsError::Io)
    }
}

fn open(path: &Path) -> FileView {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    FileView { file, bytes }
}

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    // e2fsck says 1 when it has changed something, which is what it is asked to.
    assert!(out.status.code().is_some_and(|c| c <= 1), "{program} {args:?}: {text}");
    text
}

fn debugfs(image: &Path, commands: &[String]) {
    let script = image.with_extension("debugfs");
    std::fs::write(&script, commands.join("\n") + "\n").unwrap();
    run("debugfs", &["-w", "-f", script.to_str().unwrap(), image.to_str().unwrap()]);
}

/// What a tree holds: path -> contents, or target of a link, or nothing for a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    File(Vec<u8>),
    Link(String),
    Dir,
}

fn bytes_of(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut v = vec![0; len];
    rng.fill(&mut v);
    v
}

/// A tree with something for every structure.
fn tree() -> BTreeMap<String, Node> {
    let mut rng = Rng::stream(1, "tree");
    let mut t = BTreeMap::new();
    for (name, len) in
        [("empty", 0), ("tiny", 20), ("inline", 140), ("block", 5000), ("large", 3_000_000)]
    {
        t.insert(name.to_owned(), Node::File(bytes_of(&mut rng, len)));
    }
    // Every other block a hole: one extent for each block, so a tree of two levels; and far away,
    // so that all levels of indirect blocks are used.
    let mut holes = vec![0u8; 3_198_000];
    for chunk in holes.chunks_mut(8192) {
        let n = chunk.len().min(4096);
        rng.fill(&mut chunk[..n]);
    }
    t.insert("holes".to_owned(), Node::File(holes));
    let mut far = vec![0u8; 70_000_000];
    let end = far.len() - 5000;
    rng.fill(&mut far[end..]);
    t.insert("far".to_owned(), Node::File(far));
    t.insert("short".to_owned(), Node::Link("tiny".to_owned()));
    t.insert("long".to_owned(), Node::Link("x".repeat(300)));
    t.insert("exactly59".to_owned(), Node::Link("y".repeat(59)));
    t.insert("exactly60".to_owned(), Node::Link("z".repeat(60)));
    t.insert("dir".to_owned(), Node::Dir);
    t.insert("dir/sub".to_owned(), Node::Dir);
    t.insert("dir/sub/file".to_owned(), Node::File(bytes_of(&mut rng, 100)));
    t.insert("many".to_owned(), Node::Dir);
    for n in 0..900 {
        t.insert(
            format!("many/a_rather_long_name_so_that_blocks_fill_up_{n}"),
            Node::File(vec![b'0'; n % 3]),
        );
    }
    t
}

fn write_tree(root: &Path, tree: &BTreeMap<String, Node>) {
    for (name, node) in tree {
        let path = root.join(name);
        match node {
            Node::Dir => std::fs::create_dir(path).unwrap(),
            Node::Link(to) => std::os::unix::fs::symlink(to, path).unwrap(),
            Node::File(bytes) => {
                let mut f = File::create(path).unwrap();
                f.set_len(bytes.len() as u64).unwrap();
                for (n, chunk) in bytes.chunks(4096).enumerate() {
                    if chunk.iter().any(|b| *b != 0) {
                        f.seek(SeekFrom::Start(n as u64 * 4096)).unwrap();
                        f.write_all(chunk).unwrap();
                    }
                }
            }
        }
    }
}

/// Reads everything back through our reader.
fn read_tree(path: &Path) -> (BTreeMap<String, Node>, Vec<FileInfo>) {
    let view = open(path);
    let found =
        inspect(&view, &InspectOptions { hash: false, ..InspectOptions::default() }).unwrap();
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let overlay = Overlay::new(&view);
    recover(&overlay, &RecoverPolicy::linux(6, 18), 1).unwrap();
    let image = Image::open(&overlay).unwrap();
    let nodes = found.files.iter().map(|f| {
        let node = match f.kind {
            FileType::Dir => Node::Dir,
            FileType::Symlink => Node::Link(String::from_utf8(f.target.clone().unwrap()).unwrap()),
            _ => {
                let mut bytes = Vec::new();
                let record = image.inode(f.ino as u32).unwrap();
                image.read_file(&record, &mut |p| p.append_to(&mut bytes, 1 << 30)).unwrap();
                Node::File(bytes)
            }
        };
        (String::from_utf8(f.path.clone()).unwrap(), node)
    });
    (nodes.collect(), found.files.clone())
}

const VARIANTS: [(&str, &[&str]); 6] = [
    ("today", &[]),
    ("indirect", &["-O", "^extent,^64bit,^has_journal"]),
    ("indirect-1k", &["-b", "1024", "-O", "^extent,^64bit,^has_journal,^metadata_csum"]),
    ("inline", &["-O", "inline_data"]),
    ("one-k", &["-b", "1024", "-O", "^metadata_csum"]),
    ("large-inodes", &["-I", "1024", "-O", "inline_data,ea_inode,orphan_file"]),
];

fn make(dir: &Path, name: &str, options: &[&str], tree: &BTreeMap<String, Node>) -> PathBuf {
    let source = dir.join(format!("{name}.tree"));
    std::fs::create_dir(&source).unwrap();
    write_tree(&source, tree);
    let image = dir.join(format!("{name}.img"));
    File::create(&image).unwrap().set_len(128 << 20).unwrap();
    let mut args = vec!["-q", "-F", "-t", "ext4", "-i", "16384", "-d", source.to_str().unwrap()];
    args.extend(options);
    args.push(image.to_str().unwrap());
    run("mke2fs", &args);
    // Gives large directories their hash trees.
    run("e2fsck", &["-fyD", image.to_str().unwrap()]);
    std::fs::remove_dir_all(&source).unwrap();
    image
}

fn differs(a: &BTreeMap<String, Node>, b: &BTreeMap<String, Node>) -> Option<String> {
    let names = a.keys().chain(b.keys());
    names.into_iter().find(|n| a.get(*n) != b.get(*n)).cloned()
}

#[test]
fn trees_of_every_shape_are_read_back() {
    let test = "trees_of_every_shape_are_read_back";
    if !["mke2fs", "e2fsck"].iter().all(|t| skip::has_tool(test, t)) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let wanted = tree();
    for (name, options) in VARIANTS {
        let image = make(dir.path(), name, options, &wanted);
        let (found, files) = read_tree(&image);
        assert_eq!(differs(&wanted, &found), None, "{name}");
        let many = files.iter().find(|f| f.path == b"many").unwrap();
        let view = open(&image);
        let opened = Image::open(&view).unwrap();
        let record = opened.inode(many.ino as u32).unwrap();
        assert!(
            record.inode.has(wp_ext4::disk::inode::flag::INDEX),
            "{name}: the test wants a hash tree"
        );
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn attributes_are_read_from_inodes_blocks_and_inodes_of_their_own() {
    let test = "attributes_are_read_from_inodes_blocks_and_inodes_of_their_own";
    if !["mke2fs", "e2fsck", "debugfs"].iter().all(|t| skip::has_tool(test, t)) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let wanted: BTreeMap<String, Node> =
        [("f".to_owned(), Node::File(b"x".to_vec())), ("g".to_owned(), Node::File(b"y".to_vec()))]
            .into();
    for (name, options, sizes) in [
        ("small-inodes", &["-I", "128"][..], &[3usize, 40, 300][..]),
        ("today", &["-b", "4096"][..], &[3, 40, 300, 2000]),
        ("values-in-inodes", &["-O", "ea_inode"][..], &[3, 40, 700, 1000]),
        ("no-csum", &["-b", "4096", "-O", "^metadata_csum"][..], &[3, 40, 300, 2000]),
    ] {
        let image = make(dir.path(), name, options, &wanted);
        let mut expected = BTreeMap::new();
        let mut commands = Vec::new();
        for (n, size) in sizes.iter().enumerate() {
            let value: Vec<u8> = (0..*size).map(|i| b'a' + (i % 26) as u8).collect();
            let file = dir.path().join(format!("value{n}"));
            std::fs::write(&file, &value).unwrap();
            let key = ["user.a", "trusted.b", "security.c", "user.d"][n];
            commands.push(format!("ea_set -f {} /f {key}", file.display()));
            expected.insert(key.as_bytes().to_vec(), value);
        }
        debugfs(&image, &commands);
        let (_, files) = read_tree(&image);
        let f = files.iter().find(|f| f.path == b"f").unwrap();
        let found: BTreeMap<_, _> =
            f.xattrs.iter().map(|x| (x.name.clone(), x.value.clone())).collect();
        let sizes = |m: &BTreeMap<Vec<u8>, Vec<u8>>| {
            m.iter()
                .map(|(k, v)| (String::from_utf8_lossy(k).into_owned(), v.len()))
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(&found), sizes(&expected), "{name}");
        assert_eq!(found, expected, "{name}");
    }
}

/// Makes `files` orphans: a chain through the deletion times. Those in `deleted` lose their name
/// and links, the others are to be cut to their new size.
fn orphan(image: &Path, files: &[(&str, u32, Option<u64>)]) {
    let mut commands = Vec::new();
    let next = files.iter().skip(1).map(|(_, ino, _)| *ino).chain([0]);
    for ((name, ino, size), next) in files.iter().zip(next) {
        match size {
            Some(size) => commands.push(format!("sif <{ino}> size {size}")),
            None => {
                commands.push(format!("unlink /{name}"));
                commands.push(format!("sif <{ino}> links_count 0"));
            }
        }
        // debugfs takes a number of a time field as seconds with @.
        commands.push(format!("sif <{ino}> dtime @0x{next:x}"));
    }
    commands.push(format!("ssv last_orphan {}", files[0].1));
    debugfs(image, &commands);
}

#[test]
fn orphans_are_deleted_and_cut_and_the_image_is_clean() {
    let test = "orphans_are_deleted_and_cut_and_the_image_is_clean";
    if !["mke2fs", "e2fsck", "debugfs"].iter().all(|t| skip::has_tool(test, t)) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let all = tree();
    for (name, options) in VARIANTS {
        let image = make(dir.path(), name, options, &all);
        let value = dir.path().join("value");
        std::fs::write(&value, vec![b'v'; 700]).unwrap();
        debugfs(&image, &[format!("ea_set -f {} /large user.big", value.display())]);
        let (_, files) = read_tree(&image);
        let ino = |path: &str| files.iter().find(|f| f.path == path.as_bytes()).unwrap().ino as u32;
        let mut wanted = all.clone();
        let mut list: Vec<(&str, u32, Option<u64>)> = Vec::new();
        for gone in ["large", "long", "short", "empty", "tiny"] {
            wanted.remove(gone);
            list.push((gone, ino(gone), None));
        }
        for (cut, size) in [("holes", 1_000_100usize), ("far", 69_997_000), ("block", 4096)] {
            let Some(Node::File(bytes)) = wanted.get_mut(cut) else { unreachable!() };
            bytes.truncate(size);
            list.push((cut, ino(cut), Some(size as u64)));
        }
        orphan(&image, &list);
        let view = open(&image);
        let overlay = Overlay::new(&view);
        let report = recover(&overlay, &RecoverPolicy::linux(6, 18), 1_800_000_000).unwrap();
        assert_eq!((report.orphans_deleted, report.orphans_truncated), (5, 3), "{name}");
        let recovered = image.with_extension("recovered");
        std::fs::copy(&image, &recovered).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&recovered).unwrap();
        for (at, slice) in overlay.writes() {
            file.write_all_at(&slice.to_vec(), at.bytes()).unwrap();
        }
        drop(file);
        let (found, _) = read_tree(&recovered);
        assert_eq!(differs(&wanted, &found), None, "{name}");
        let out = Command::new("e2fsck").arg("-fn").arg(&recovered).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{name}: {text}");
        std::fs::remove_file(&image).unwrap();
        std::fs::remove_file(&recovered).unwrap();
    }
}

#[test]
fn a_loop_of_orphans_is_found() {
    let test = "a_loop_of_orphans_is_found";
    if !["mke2fs", "e2fsck", "debugfs"].iter().all(|t| skip::has_tool(test, t)) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let tree: BTreeMap<String, Node> = [("f".to_owned(), Node::File(vec![1; 9000]))].into();
    let image = make(dir.path(), "loop", &["-O", "^metadata_csum"], &tree);
    let (_, files) = read_tree(&image);
    orphan(&image, &[("f", files[0].ino as u32, Some(5000))]);
    debugfs(&image, &[format!("sif <{n}> dtime @0x{n:x}", n = files[0].ino)]);
    let view = open(&image);
    let error = recover(&Overlay::new(&view), &RecoverPolicy::linux(6, 18), 1).unwrap_err();
    assert!(error.to_string().contains("a list without a loop"), "{error}");
}

#[test]
fn all_bytes_of_the_view_are_read_through_the_trait() {
    // Guards the helper above: a short file must be an error, not zeroes.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[1, 2, 3]).unwrap();
    file.rewind().unwrap();
    let mut all = Vec::new();
    file.read_to_end(&mut all).unwrap();
    let view = FileView { file, bytes: 3 };
    assert_eq!(view.read_at(1, &mut [0; 3]), Err(FsError::Io));
}
