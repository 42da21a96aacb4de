//! Images that the real `mkfs.ext4` makes and the host's kernel fills, and what that kernel finds
//! on them afterwards.

mod xattrs;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use wp_base::Sector;
use wp_medium::{Medium, Slice};
use wp_vfs::{FileType, Readahead, Vfs};

use crate::host;
use crate::support::{save, skip};

/// Path to (type, permissions, links, size, contents' CRC or target, seconds of mtime); directories
/// with size 0.
pub type Tree = BTreeMap<String, (char, u32, u64, u64, String, i64)>;

pub fn tool(name: &str, args: &[&str]) -> (bool, String) {
    let out = match Command::new(name).args(args).output() {
        Ok(out) => out,
        Err(e) => return (false, e.to_string()),
    };
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.success(), text)
}

/// A mounted loop device; unmounted on drop, whatever happens.
pub struct LoopMount {
    pub at: PathBuf,
}

impl LoopMount {
    pub fn new(image: &Path, at: PathBuf, options: &str) -> Result<LoopMount, String> {
        std::fs::create_dir_all(&at).expect("made");
        let (i, m) = (image.display().to_string(), at.display().to_string());
        let o = format!("loop{options}");
        let (ok, text) = tool("mount", &["-o", &o, "-t", "ext4", &i, &m]);
        if ok { Ok(LoopMount { at }) } else { Err(text) }
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        host::end_mount(&self.at.display().to_string());
    }
}

/// Can this host make and mount images? Says so if not.
pub fn can_mount(check: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("i");
    std::fs::File::create(&image).and_then(|f| f.set_len(16 << 20)).expect("made");
    let ok = tool("mkfs.ext4", &["-q", "-F", &image.display().to_string()]).0
        && LoopMount::new(&image, dir.path().join("m"), "").is_ok();
    if !ok {
        skip(check, "this host cannot mount an ext4 image (mkfs.ext4, root and loop devices)");
    }
    ok
}

/// `mkfs.ext4` with these arguments.
pub fn mkfs(image: &Path, mib: u64, args: &str) {
    std::fs::File::create(image).and_then(|f| f.set_len(mib << 20)).expect("made");
    let mut all: Vec<&str> = vec!["-q", "-F"];
    all.extend(args.split_whitespace());
    let name = image.display().to_string();
    all.push(&name);
    let (ok, text) = tool("mkfs.ext4", &all);
    assert!(ok, "mkfs.ext4 {args}: {text}");
}

/// The image as a medium; pages of zeroes stay holes.
pub fn load(image: &Path) -> Medium {
    let file = std::fs::File::open(image).expect("there");
    let len = file.metadata().expect("there").len();
    let mut m = Medium::new();
    let mut page = [0u8; 4096];
    for at in (0..len).step_by(4096) {
        let n = (len - at).min(4096) as usize;
        file.read_exact_at(&mut page[..n], at).expect("reads");
        if page[..n].iter().any(|b| *b != 0) {
            m.write(Sector(at / 512), &Slice::from_bytes(&page[..n]));
        }
    }
    m
}

fn sum(bytes: &[u8]) -> String {
    format!("{:08x}", wp_base::crc::crc32c(!0, bytes))
}

/// Fills a mounted image: files of all kinds and sizes, holes, links, a large directory.
pub fn fill(root: &Path) {
    let pattern = |seed: u64, len: usize| Slice::pattern(seed, 0, len as u32).to_vec();
    for d in ["a", "a/b", "a/b/c", "many", "gone"] {
        std::fs::create_dir(root.join(d)).expect("made");
    }
    for (i, len) in
        [0, 1, 59, 1000, 1024, 4096, 5000, 70_000, 300_000, 1_500_000].iter().enumerate()
    {
        std::fs::write(root.join(format!("a/f{i}")), pattern(i as u64, *len)).expect("written");
    }
    // Blocks that lie apart, and a file with holes up to the doubly indirect range.
    let sparse = std::fs::File::create(root.join("a/sparse")).expect("made");
    for (i, at) in [0u64, 13_000, 300_000, 1_200_000, 9_000_000].iter().enumerate() {
        sparse.write_all_at(&pattern(100 + i as u64, 3000), *at).expect("written");
    }
    for i in 0..400 {
        std::fs::write(root.join(format!("many/a file with a name of some length {i}")), b"x")
            .expect("written");
    }
    for i in 0..40 {
        std::fs::write(root.join(format!("gone/f{i}")), pattern(i, 9_000)).expect("written");
    }
    for i in (0..40).step_by(2) {
        std::fs::remove_file(root.join(format!("gone/f{i}"))).expect("removed");
    }
    for (target, name) in [("a/f1", "short"), (&"long/".repeat(40), "a/long")] {
        std::os::unix::fs::symlink(target, root.join(name)).expect("made");
    }
    std::fs::hard_link(root.join("a/f5"), root.join("a/b/f5 too")).expect("made");
}

/// What the host sees below a mounted directory.
pub fn host_tree(root: &Path) -> Tree {
    let mut out = Tree::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.strip_prefix(root).expect("below it").to_string_lossy().into_owned();
            if name == "lost+found" {
                continue;
            }
            let meta = std::fs::symlink_metadata(&path).expect("readable");
            let (kind, size, text) = if meta.is_dir() {
                todo.push(path.clone());
                ('d', 0, String::new())
            } else if meta.is_symlink() {
                let target = std::fs::read_link(&path).expect("a link");
                ('l', meta.size(), sum(target.as_os_str().as_bytes()))
            } else {
                ('f', meta.size(), sum(&std::fs::read(&path).expect("readable")))
            };
            let facts = (kind, meta.mode() & 0o7777, meta.nlink(), size, text, meta.mtime());
            out.insert(name, facts);
        }
    }
    out
}

/// The same through our system calls.
pub async fn our_tree(v: &Vfs) -> Tree {
    let mut out = Tree::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for e in v.read_dir(&dir).await.expect("lists") {
            let name = String::from_utf8_lossy(&e.name).into_owned();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            if path == "lost+found" {
                continue;
            }
            let attr = v.fs().attr(e.ino).await.expect("tells");
            assert_eq!(attr.kind, e.kind, "{path}");
            let (kind, size, text) = match e.kind {
                FileType::Dir => {
                    todo.push(path.clone());
                    ('d', 0, String::new())
                }
                FileType::Symlink => {
                    ('l', attr.size, sum(&v.fs().read_link(e.ino).await.expect("a link")))
                }
                _ => {
                    let got =
                        v.fs().read(e.ino, 0, 1 << 40, &Readahead::default()).await.expect("reads");
                    let bytes: Vec<u8> = Slice::concat(&got);
                    assert_eq!(bytes.len() as u64, attr.size, "{path}");
                    ('f', attr.size, sum(&bytes))
                }
            };
            let facts = (kind, attr.mode, u64::from(attr.nlink), size, text, attr.mtime.secs);
            out.insert(path, facts);
        }
    }
    out
}

/// What the host's kernel finds on our image: it mounts (recovers) it, lists it, and the image must
/// satisfy `e2fsck -fn` afterwards.
pub fn kernel_tree(medium: &Medium, mib: u64) -> Result<Tree, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    save(medium, mib, &image);
    let mounted = LoopMount::new(&image, dir.path().join("mnt"), "")?;
    let tree = host_tree(&mounted.at);
    drop(mounted);
    let (clean, text) = tool("e2fsck", &["-fn", &image.display().to_string()]);
    if clean { Ok(tree) } else { Err(format!("e2fsck after the kernel: {text}")) }
}
