//! The images that are damaged: of mke2fs with a tree copied in, of the host's kernel, of ours.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use wp_ext4::mkfs::Features;
use wp_vfs::{OpenFlags, Vfs};

use crate::host;
use crate::support::{Setup, World, assert_nothing_lives, save, skip};

/// An image by name.
pub struct Base {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// Is it without a fault, and cleanly unmounted?
    pub is_clean: bool,
}

/// Recipe of an image of mke2fs.
struct Made {
    name: &'static str,
    mib: u64,
    block_size: &'static str,
    features: &'static str,
    more: &'static [&'static str],
    /// Is the tree written by the host's kernel, and how is it left?
    kernel: Option<Left>,
}

/// How the kernel leaves an image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Unmounted,
    /// As it is on disk while still mounted, with deleted files that are open.
    Mounted,
}

const fn made(
    name: &'static str,
    mib: u64,
    block_size: &'static str,
    features: &'static str,
    more: &'static [&'static str],
) -> Made {
    Made { name, mib, block_size, features, more, kernel: None }
}

const fn kernel(
    name: &'static str,
    block_size: &'static str,
    features: &'static str,
    left: Left,
) -> Made {
    Made { name, mib: 16, block_size, features, more: &[], kernel: Some(left) }
}

const ERA: &str = "^64bit,^metadata_csum,^orphan_file,uninit_bg";
const NO_EXTENTS: &str = "^extent,^64bit,^metadata_csum";

const MADE: &[Made] = &[
    made("today", 8, "1024", "orphan_file", &[]),
    made("today, groups", 40, "1024", "orphan_file", &[]),
    made("era", 8, "1024", ERA, &[]),
    made("era, groups", 40, "1024", ERA, &[]),
    made("indirect", 8, "1024", NO_EXTENTS, &[]),
    made("today, 4096", 16, "4096", "metadata_csum", &[]),
    made("2048, no flex_bg", 24, "2048", "^flex_bg,metadata_csum", &[]),
    made("2048, era, 4096 inodes", 24, "2048", ERA, &["-N", "4096"]),
    made("no dir_index", 8, "1024", "^dir_index,^metadata_csum", &[]),
    made("ext3", 16, "2048", "^extent,^flex_bg,^huge_file,^dir_nlink,^metadata_csum,^64bit", &[]),
    made("no journal", 8, "1024", "^has_journal,^orphan_file", &[]),
    made("ext2, 128-byte inodes", 8, "1024", "none,filetype,sparse_super", &["-I", "128"]),
    made("ext2, no filetype", 8, "1024", "none,sparse_super", &["-I", "128"]),
    made("128-byte inodes, checksums", 8, "1024", "metadata_csum", &["-I", "128"]),
    made("sparse_super2", 40, "1024", "sparse_super2,^resize_inode", &[]),
    made("no resize_inode", 8, "1024", "^resize_inode", &[]),
    made("quota, project", 16, "1024", "quota,project", &[]),
    made("large_dir", 8, "1024", "large_dir", &[]),
    made("bigalloc", 32, "4096", "bigalloc", &["-C", "16384"]),
    made("bigalloc, era", 32, "2048", "bigalloc,^64bit,^metadata_csum,uninit_bg", &["-C", "8192"]),
    made("checksum seed", 8, "1024", "metadata_csum_seed", &[]),
    kernel("kernel, today", "1024", "orphan_file", Left::Unmounted),
    kernel("kernel, today, 4096", "4096", "metadata_csum", Left::Unmounted),
    kernel("kernel, bigalloc", "4096", "bigalloc,orphan_file", Left::Unmounted),
    kernel("kernel, still mounted, bigalloc", "4096", "bigalloc,orphan_file", Left::Mounted),
    kernel("kernel, era", "1024", ERA, Left::Unmounted),
    kernel("kernel, indirect", "1024", NO_EXTENTS, Left::Unmounted),
    kernel("kernel, still mounted", "1024", "orphan_file", Left::Mounted),
    kernel("kernel, still mounted, chain", "2048", "^orphan_file", Left::Mounted),
];

/// A directory tree with what maps and directories can look like.
fn source(dir: &Path) {
    std::fs::create_dir_all(dir.join("dir/sub/deep/deeper")).expect("made");
    std::fs::create_dir_all(dir.join("many")).expect("made");
    for n in 0..20usize {
        let len = n * n * 700;
        std::fs::write(dir.join(format!("dir/f{n}")), vec![n as u8; len]).expect("written");
    }
    for n in 0..220 {
        std::fs::write(dir.join(format!("many/a-longer-name-{n}")), []).expect("written");
    }
    // A hash tree of two levels with blocks of 1 KiB, and a tree of extents of two levels.
    std::fs::create_dir_all(dir.join("more")).expect("made");
    std::fs::write(dir.join("more/first"), []).expect("written");
    for n in 0..2600 {
        let name = format!("more/{:x>70}", n);
        std::fs::hard_link(dir.join("more/first"), dir.join(name)).expect("linked");
    }
    let holes = File::create(dir.join("dir/holes")).expect("made");
    for n in 0..30u64 {
        holes.write_all_at(&[7; 4096], n * 3 * 4096).expect("written");
    }
    let holes = File::create(dir.join("dir/many-holes")).expect("made");
    for n in 0..420u64 {
        holes.write_all_at(&[9; 1024], n * 5 * 4096).expect("written");
    }
    std::fs::hard_link(dir.join("dir/f3"), dir.join("dir/sub/again")).expect("linked");
    std::os::unix::fs::symlink("short", dir.join("dir/short")).expect("linked");
    std::os::unix::fs::symlink("x".repeat(200), dir.join("dir/sub/long")).expect("linked");
}

/// What a kernel makes of a mounted image: files that grow and shrink, shared attribute blocks.
fn use_it(at: &Path, tree: &str) {
    let sh = |line: &str| {
        let out = Command::new("sh").args(["-ec", line]).current_dir(at).output().expect("runs");
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    };
    sh(&format!("cp -r {tree}/dir {tree}/many ."));
    sh("mkdir k; for n in 1 2 3 4 5 6 7 8 9; do head -c ${n}0000 /dev/zero > k/g$n; done");
    sh("rm k/g3 many/*7; truncate -s 1000 k/g5; truncate -s 2000000 k/g6; mkfifo k/p");
    sh("mknod k/c c 300 70000; mknod k/b b 7 1; ln -s k/g1 short");
    sh("fallocate -l 100000 -n k/g7 || true; for n in 1 2 4 8; do mv k/g$n dir/sub/h$n; done");
    if Command::new("setfattr").arg("--version").output().is_ok() {
        let value = "w".repeat(280);
        sh(&format!("for n in 1 2 4 8; do setfattr -n user.same -v {value} dir/sub/h$n; done"));
        sh("setfattr -n user.small -v 12345 dir/f1");
    }
}

fn run(tool: &str, args: &[&str], path: &Path) {
    let now = ("E2FSPROGS_FAKE_TIME", "1700000000");
    let out = Command::new(tool).args(args).arg(path).env(now.0, now.1).output().expect("runs");
    let ok = out.status.code().is_some_and(|c| c <= 1);
    assert!(ok, "{tool} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn quietly(tool: &str, args: &[&str]) -> bool {
    Command::new(tool).args(args).output().is_ok_and(|o| o.status.success())
}

/// A mount that ends with the value.
struct Mount(String);

impl Drop for Mount {
    fn drop(&mut self) {
        host::end_mount(&self.0);
    }
}

fn one(made: &Made, dir: &Path, tree: &str) -> Option<Base> {
    let path = dir.join("base");
    let _ = std::fs::remove_file(&path);
    File::create(&path).and_then(|f| f.set_len(made.mib << 20)).expect("made");
    let id = "0f0f0f0f-0000-4000-8000-000000000112";
    let seed = format!("hash_seed={id}");
    let (bs, features) = (made.block_size, made.features);
    let mut args = vec!["-q", "-F", "-t", "ext4", "-b", bs, "-O", features, "-U", id, "-E", &seed];
    args.extend(made.more);
    if made.kernel.is_none() {
        args.extend(["-d", tree]);
    }
    run("mke2fs", &args, &path);
    let mut is_clean = true;
    if let Some(left) = made.kernel {
        let at = dir.join("mnt");
        std::fs::create_dir_all(&at).expect("made");
        let (i, m) = (path.display().to_string(), at.display().to_string());
        if !quietly("mount", &["-o", "loop,user_xattr", "-t", "ext4", &i, &m]) {
            return None;
        }
        let mount = Mount(m);
        use_it(&at, tree);
        if left == Left::Mounted {
            let open = File::open(at.join("k/g9")).expect("opens");
            std::fs::remove_file(at.join("k/g9")).expect("removes");
            assert!(quietly("sync", &["-f", &mount.0]), "syncs");
            let bytes = std::fs::read(&path).expect("read");
            drop(open);
            drop(mount);
            return Some(Base { name: made.name, bytes, is_clean: false });
        }
        drop(mount);
        is_clean = true;
    } else {
        for n in 0..3 {
            let set = format!("ea_set dir/f{n} user.attribute {}", "v".repeat(300));
            run("debugfs", &["-w", "-R", &set], &path);
        }
        run("debugfs", &["-w", "-R", "mknod dir/pipe p"], &path);
        run("debugfs", &["-w", "-R", "mknod dir/device c 4 5"], &path);
        run("e2fsck", &["-fyD"], &path);
    }
    Some(Base { name: made.name, bytes: std::fs::read(&path).expect("read"), is_clean })
}

/// Every `step`-th of the base images, and ours. Those of the host's kernel, which hold its times,
/// are left out of a sample, whose outcome is to be the same each time; else they are skipped by
/// name where it cannot mount them.
pub fn bases(dir: &Path, check: &str, step: usize) -> Vec<Base> {
    let tree = dir.join("tree");
    source(&tree);
    let tree = tree.to_str().expect("text").to_owned();
    let mut out = Vec::new();
    let mut without = 0;
    for made in MADE.iter().step_by(step).filter(|m| step == 1 || m.kernel.is_none()) {
        match one(made, dir, &tree) {
            Some(base) => out.push(base),
            None => without += 1,
        }
    }
    if without > 0 {
        skip(check, &format!("{without} images that the host's kernel cannot write here"));
    }
    for (name, features, bs, era) in [
        ("ours, era", Features::era_2012(), 1024, "4.6"),
        ("ours, today", Features::today(), 1024, "4.6"),
        ("ours, era, 4096", Features::era_2012(), 4096, "3.4"),
        ("ours, today, 2048", Features::today(), 2048, "4.6"),
    ] {
        let mut setup = Setup::new(era);
        (setup.mib, setup.block_size, setup.features) = (16, bs, features);
        let w = World::fresh(&setup);
        let vfs = w.mount(&setup).expect("mounts");
        let v = vfs.clone();
        w.run(async move { program(&v).await });
        w.unmount(&vfs);
        let path = dir.join("ours");
        save(&w.medium(), setup.mib, &path);
        drop(vfs);
        w.end();
        out.push(Base { name, bytes: std::fs::read(&path).expect("read"), is_clean: true });
    }
    assert_nothing_lives();
    out
}

/// What our file system does to an image.
pub async fn program(v: &Vfs) {
    for d in 0..4 {
        v.mkdir(&format!("d{d}"), 0o755).await.expect("makes a directory");
        for n in 0..20u64 {
            let name = format!("d{d}/file-{n}");
            let fd = v.open(&name, OpenFlags::CREATE, 0o644).await.expect("opens");
            for k in 0..n {
                v.pwrite(fd, k * 3000, &[wp_medium::Slice::pattern(n, 0, 900)])
                    .await
                    .expect("writes");
            }
            v.close(fd).await.expect("closes");
        }
    }
    for n in 0..10 {
        v.unlink(&format!("d1/file-{n}")).await.expect("removes");
    }
    v.symlink("d1/file-3", "short").await.expect("links");
    v.symlink(&"y".repeat(150), "long").await.expect("links");
    v.link("d1/file-15", "d2/other").await.expect("links");
    v.mkdir("d3/in", 0o755).await.expect("makes a directory");
    v.mkdir("d3/in/deep", 0o755).await.expect("makes a directory");
}
