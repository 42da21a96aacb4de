//! The mounted ext4 beside the kernel of this host: the same programs give the same answers and the
//! same trees, crashed or not; and many tasks at once leave a clean image.
//!
//! Needs root and loop devices for what the kernel judges; skipped by name elsewhere.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use wp_base::{FsResult, Rng, Sector, Span, live};
use wp_lab::machine::{Machine, MachineSpec};
use wp_lab::paper::ext4_fsync::profile;
use wp_lab::results::{events_to_ndjson, sha256};
use wp_lab::testing::skipped;
use wp_lab::{files, registry};
use wp_medium::{Medium, Slice};
use wp_vfs::{FileType, OpenFlags, Options, Reserve, Vfs, XattrSet};

/// Path to (links, size, hash of contents or target); directories with size 0 and no hash.
type Tree = BTreeMap<String, (u64, u64, String)>;

fn tool(name: &str, args: &[&str]) -> Option<(bool, String)> {
    let out = Command::new(name).args(args).output().ok()?;
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    Some((out.status.success(), text))
}

/// Unmounts. Another test's child that has not become its program yet may hold a file of ours open
/// for a moment.
fn unmount(at: &str) {
    for _ in 0..500 {
        if tool("umount", &[at]).expect("umount exists").0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{at} cannot be unmounted");
}

fn can_mount(check: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("i"), dir.path().join("m"));
    std::fs::create_dir(&at).expect("made");
    std::fs::File::create(&image).and_then(|f| f.set_len(16 << 20)).expect("made");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let ok = tool("mke2fs", &["-q", "-F", "-t", "ext4", &i]).is_some_and(|r| r.0)
        && tool("mount", &["-o", "loop", "-t", "ext4", &i, &m]).is_some_and(|r| r.0);
    if ok {
        unmount(&m);
    } else {
        skipped(check, "this host cannot mount an ext4 image (root and loop devices are needed)");
    }
    ok
}

fn spec(options: &str, mib: u64, elevator: &str, seed: u64) -> MachineSpec {
    let fs = registry::FILE_SYSTEMS[0];
    MachineSpec {
        seed,
        cpu: profile("i7-4770").model(),
        device: "ssd-128".to_owned(),
        device_params: Vec::new(),
        more: Vec::new(),
        elevator: elevator.to_owned(),
        start: Sector(0),
        sectors: Some(mib << 11),
        fs,
        fs_options: Options::parse(options, fs.options).expect("known"),
        disk: "sdb1".to_owned(),
        device_number: (8, 16),
        kernel: (4, 6),
    }
}

fn assert_clean(medium: &Medium, mib: u64, what: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    files::save(medium, Sector(0), mib << 20, &image).expect("saved");
    match tool("e2fsck", &["-fn", &image.display().to_string()]) {
        Some((ok, text)) => assert!(ok, "{what}: e2fsck says\n{text}"),
        None => skipped("e2fsck judges our images", "e2fsck is not installed"),
    }
}

async fn our_tree(v: &Vfs) -> Tree {
    let mut out = Tree::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for e in v.read_dir(&dir).await.expect("lists") {
            let name = String::from_utf8_lossy(&e.name).into_owned();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let attr = v.fs().attr(e.ino).await.expect("tells");
            let links = u64::from(attr.nlink);
            if path == "lost+found" {
                continue;
            }
            let (size, hash) = match e.kind {
                FileType::Dir => {
                    todo.push(path.clone());
                    (0, String::new())
                }
                FileType::Symlink => {
                    let target = v.fs().read_link(e.ino).await.expect("a link");
                    (target.len() as u64, sha256(&target))
                }
                _ => {
                    let got = v.fs().read(e.ino, 0, 1 << 40).await.expect("reads");
                    let bytes: Vec<u8> = got.iter().flat_map(Slice::to_vec).collect();
                    assert_eq!(bytes.len() as u64, attr.size);
                    (attr.size, sha256(&bytes))
                }
            };
            out.insert(path, (links, size, hash));
        }
    }
    out
}

fn host_tree(dir: &Path, prefix: &str, out: &mut Tree) {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(dir).expect("readable") {
        let entry = entry.expect("readable");
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if path == "lost+found" {
            continue;
        }
        let meta = entry.metadata().expect("readable");
        let (size, hash) = if meta.is_dir() {
            host_tree(&entry.path(), &format!("{path}/"), out);
            (0, String::new())
        } else if meta.is_symlink() {
            let target = std::fs::read_link(entry.path()).expect("a link");
            let bytes = target.as_os_str().as_encoded_bytes();
            (bytes.len() as u64, sha256(bytes))
        } else {
            let bytes = std::fs::read(entry.path()).expect("readable");
            (bytes.len() as u64, sha256(&bytes))
        };
        out.insert(path, (meta.nlink(), size, hash));
    }
}

/// A machine whose image has arrived on the device: building one does not wait for its writes.
fn machine(options: &str, mib: u64, elevator: &str, seed: u64, image: Option<Medium>) -> Machine {
    let m = Machine::new(spec(options, mib, elevator, seed), image).expect("builds");
    m.rt.run_until(m.rt.now() + Span::secs(20));
    m
}

/// What the host's kernel finds on the image, which must be clean afterwards.
fn kernel_tree(medium: &Medium, mib: u64) -> Result<Tree, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&at).expect("made");
    files::save(medium, Sector(0), mib << 20, &image).expect("saved");
    let (i, m) = (image.display().to_string(), at.display().to_string());
    let (ok, text) = tool("mount", &["-o", "loop", "-t", "ext4", &i, &m]).expect("mount exists");
    if !ok {
        return Err(text);
    }
    let mut tree = Tree::new();
    host_tree(&at, "", &mut tree);
    unmount(&m);
    let (clean, text) = tool("e2fsck", &["-fn", &i]).expect("e2fsck exists");
    if clean { Ok(tree) } else { Err(format!("e2fsck after the kernel's recovery:\n{text}")) }
}

// ---- the same program on both ----

/// One call. Names are picked from few, so that calls meet each other.
#[derive(Clone, Debug)]
enum Call {
    Write(String, u64, u64, u32),
    Append(String, u64, u32),
    Exclusive(String),
    Read(String),
    Unlink(String),
    Truncate(String, u64),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Mkdir(String),
    Rmdir(String),
    List(String),
    SetXattr(String, String, u64, u32),
    GetXattr(String, String),
    RemoveXattr(String, String),
    Sync,
    /// `O_DIRECT`, and with the last field `O_DSYNC`.
    Direct(String, u64, u64, u32, bool),
    DirectRead(String),
    Reserve(String, Reserve, u64, u64),
}

/// [`call`], a quarter of them past the cache or without data.
fn wide_call(rng: &mut Rng, step: u64) -> Call {
    if rng.below(4) > 0 {
        return call(rng, step);
    }
    let a = name(rng);
    let (at, len) = (rng.below(150_000), 1 + rng.below(60_000));
    let keep_size = rng.below(2) == 0;
    match rng.below(8) {
        0..=2 => {
            let unit = [512, 4096, 1][rng.below(9).min(2).min(rng.below(3)) as usize];
            let (at, len) = (at / unit * unit, len.next_multiple_of(unit) as u32);
            Call::Direct(a, step, at, len, rng.below(4) == 0)
        }
        3 => Call::DirectRead(a),
        4 => Call::Reserve(a, Reserve::Space { keep_size }, at, len),
        5 => Call::Reserve(a, Reserve::Zero { keep_size }, at, len),
        _ => Call::Reserve(a, Reserve::Punch, at, len),
    }
}

fn name(rng: &mut Rng) -> String {
    let mut path = String::new();
    for _ in 0..rng.below(3) {
        path += &format!("d{}/", rng.below(3));
    }
    // Above the root of the mount the host has more than we do.
    if rng.below(40) == 0 && !path.is_empty() {
        path += if rng.below(2) == 0 { "../" } else { "f1/" };
    }
    path += &match rng.below(12) {
        0..=4 => format!("f{}", rng.below(5)),
        5..=8 => format!("d{}", rng.below(3)),
        9..=10 => format!("l{}", rng.below(3)),
        _ => format!("{}{}", "n".repeat(200 + rng.below(60) as usize), rng.below(3)),
    };
    path
}

fn call(rng: &mut Rng, step: u64) -> Call {
    let a = name(rng);
    match rng.below(20) {
        0..=3 => Call::Write(a, step, rng.below(120_000), 1 + rng.below(30_000) as u32),
        4 => Call::Append(a, step, 1 + rng.below(9_000) as u32),
        5 => Call::Exclusive(a),
        6 => Call::Read(a),
        7..=8 => Call::Unlink(a),
        9..=10 => Call::Truncate(a, rng.below(150_000)),
        11..=13 => Call::Rename(a, name(rng)),
        14 => Call::Link(a, name(rng)),
        15 => {
            let target = match rng.below(4) {
                0 => format!("d{}/f{}", rng.below(3), rng.below(5)),
                1 => format!("{}f1", "./".repeat(60)),
                2 => format!("l{}", rng.below(3)),
                _ => format!("f{}", rng.below(5)),
            };
            Call::Symlink(target, a)
        }
        16..=17 => Call::Mkdir(a),
        18 if rng.below(2) == 0 => Call::Rmdir(a),
        18 => Call::List(a),
        _ if rng.below(4) == 0 => Call::Sync,
        _ => Call::Rmdir(a),
    }
}

/// [`call`], with some calls on extended attributes among the others.
fn call_or_xattr(rng: &mut Rng, step: u64) -> Call {
    if rng.below(5) != 0 {
        return call(rng, step);
    }
    let (path, name) = (name(rng), format!("user.k{}", rng.below(6)));
    match rng.below(4) {
        0..=1 => {
            let len = if rng.below(4) == 0 { rng.below(3_500) } else { rng.below(60) };
            Call::SetXattr(path, name, rng.below(3), len as u32)
        }
        2 => Call::GetXattr(path, name),
        _ => Call::RemoveXattr(path, name),
    }
}

async fn ours(v: &Vfs, c: &Call) -> FsResult<String> {
    match c {
        Call::Write(n, seed, at, len) => {
            let fd = v.open(n, OpenFlags::CREATE, 0o644).await?;
            let out = v.pwrite(fd, *at, &[Slice::pattern(*seed, 0, *len)]).await;
            v.close(fd).await?;
            out.map(|n| n.to_string())
        }
        Call::Append(n, seed, len) => {
            let fd = v.open(n, OpenFlags { append: true, ..OpenFlags::WRITE }, 0).await?;
            let out = v.write(fd, &[Slice::pattern(*seed, 0, *len)]).await;
            v.close(fd).await?;
            out.map(|n| n.to_string())
        }
        Call::Exclusive(n) => {
            let flags = OpenFlags { exclusive: true, ..OpenFlags::CREATE };
            let fd = v.open(n, flags, 0o644).await?;
            v.close(fd).await.map(|()| String::new())
        }
        Call::Read(n) => {
            let fd = v.open(n, OpenFlags::READ, 0).await?;
            let out = v.pread(fd, 0, 1 << 30).await;
            v.close(fd).await?;
            out.map(|s| sha256(&s.iter().flat_map(Slice::to_vec).collect::<Vec<u8>>()))
        }
        Call::Unlink(n) => v.unlink(n).await.map(|()| String::new()),
        Call::Truncate(n, size) => v.truncate(n, *size).await.map(|()| String::new()),
        Call::Rename(a, b) => v.rename(a, b).await.map(|()| String::new()),
        Call::Link(a, b) => v.link(a, b).await.map(|()| String::new()),
        Call::Symlink(t, n) => v.symlink(t, n).await.map(|()| String::new()),
        Call::Mkdir(n) => v.mkdir(n, 0o755).await.map(|()| String::new()),
        Call::Rmdir(n) => v.rmdir(n).await.map(|()| String::new()),
        Call::List(n) => {
            let mut names: Vec<Vec<u8>> = v
                .read_dir(n)
                .await?
                .into_iter()
                .map(|e| e.name)
                .filter(|n| n != b"lost+found")
                .collect();
            names.sort();
            Ok(sha256(&names.concat()))
        }
        Call::SetXattr(p, n, seed, len) => {
            let value = Slice::pattern(*seed, 0, *len).to_vec();
            v.set_xattr(p, n, &value, XattrSet::Any).await.map(|()| String::new())
        }
        Call::GetXattr(p, n) => v.get_xattr(p, n).await.map(|b| sha256(&b)),
        Call::RemoveXattr(p, n) => v.remove_xattr(p, n).await.map(|()| String::new()),
        Call::Sync => v.sync().await.map(|()| String::new()),
        Call::Direct(n, seed, at, len, dsync) => {
            let flags = OpenFlags { direct: true, dsync: *dsync, ..OpenFlags::CREATE };
            let fd = v.open(n, flags, 0o644).await?;
            let out = v.pwrite(fd, *at, &[Slice::pattern(*seed, 0, *len)]).await;
            v.close(fd).await?;
            out.map(|n| n.to_string())
        }
        Call::DirectRead(n) => {
            let fd = v.open(n, OpenFlags { direct: true, ..OpenFlags::READ }, 0).await?;
            let out = v.pread(fd, 0, DIRECT_READ as u64).await;
            v.close(fd).await?;
            out.map(|s| sha256(&s.iter().flat_map(Slice::to_vec).collect::<Vec<u8>>()))
        }
        Call::Reserve(n, how, at, len) => {
            let fd = v.open(n, OpenFlags::CREATE, 0o644).await?;
            let out = v.fallocate(fd, *how, *at, *len).await;
            v.close(fd).await?;
            out.map(|()| String::new())
        }
    }
}

/// Bytes of a direct read: more than any file has.
const DIRECT_READ: usize = 1 << 18;
/// `O_DIRECT` and `O_DSYNC` of Linux on x86-64 and most others.
const O_DIRECT: i32 = 0o40_000;
const O_DSYNC: i32 = 0o10_000;

/// `len` bytes at an address that direct I/O takes.
fn aligned(len: usize) -> (Vec<u8>, std::ops::Range<usize>) {
    let bytes = vec![0u8; len + 4096];
    let skip = bytes.as_ptr().align_offset(4096);
    (bytes, skip..skip + len)
}

/// `fallocate` by its command: the standard library has no such call.
fn their_fallocate(at: &Path, how: Reserve, offset: u64, len: u64) -> std::io::Result<String> {
    let mut args = vec!["-o".to_owned(), offset.to_string(), "-l".to_owned(), len.to_string()];
    args.extend(
        match how {
            Reserve::Space { keep_size: true } => vec!["-n"],
            Reserve::Punch => vec!["-p"],
            Reserve::Zero { keep_size: true } => vec!["-z", "-n"],
            Reserve::Zero { keep_size: false } => vec!["-z"],
            _ => vec![],
        }
        .into_iter()
        .map(str::to_owned),
    );
    args.push(at.display().to_string());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match tool("fallocate", &args) {
        Some((true, _)) => Ok(String::new()),
        Some((false, text)) => Err(std::io::Error::other(text)),
        None => Err(std::io::Error::other("fallocate is not installed")),
    }
}

fn theirs(root: &Path, c: &Call) -> std::io::Result<String> {
    let p = |n: &String| root.join(n);
    let open = std::fs::OpenOptions::new;
    let nothing = |()| String::new();
    match c {
        Call::Write(n, seed, at, len) => {
            let f = open().write(true).create(true).truncate(false).open(p(n))?;
            f.write_all_at(&Slice::pattern(*seed, 0, *len).to_vec(), *at)?;
            Ok(len.to_string())
        }
        Call::Append(n, seed, len) => {
            use std::io::Write;
            let mut f = open().append(true).open(p(n))?;
            f.write_all(&Slice::pattern(*seed, 0, *len).to_vec())?;
            Ok(len.to_string())
        }
        Call::Exclusive(n) => open().write(true).create_new(true).open(p(n)).map(|_| String::new()),
        Call::Read(n) => std::fs::read(p(n)).map(|b| sha256(&b)),
        Call::Unlink(n) => std::fs::remove_file(p(n)).map(nothing),
        // `truncate(2)` by path: opening would follow the same links and name the same errors.
        Call::Truncate(n, size) => {
            open().write(true).open(p(n)).and_then(|f| f.set_len(*size)).map(nothing)
        }
        Call::Rename(a, b) => std::fs::rename(p(a), p(b)).map(nothing),
        Call::Link(a, b) => std::fs::hard_link(p(a), p(b)).map(nothing),
        Call::Symlink(t, n) => std::os::unix::fs::symlink(t, p(n)).map(nothing),
        Call::Mkdir(n) => std::fs::create_dir(p(n)).map(nothing),
        Call::Rmdir(n) => std::fs::remove_dir(p(n)).map(nothing),
        Call::List(n) => {
            let mut names: Vec<Vec<u8>> = std::fs::read_dir(p(n))?
                .map(|e| e.map(|e| e.file_name().as_encoded_bytes().to_vec()))
                .collect::<Result<Vec<_>, _>>()?;
            names.retain(|n| n != b"lost+found");
            names.sort();
            Ok(sha256(&names.concat()))
        }
        Call::SetXattr(..) | Call::GetXattr(..) | Call::RemoveXattr(..) => {
            unreachable!("the host's attributes are asked of python")
        }
        Call::Sync => Ok(String::new()),
        Call::Direct(n, seed, at, len, dsync) => {
            let flags = O_DIRECT | if *dsync { O_DSYNC } else { 0 };
            let f =
                open().write(true).create(true).truncate(false).custom_flags(flags).open(p(n))?;
            let (mut bytes, place) = aligned(*len as usize);
            bytes[place.clone()].copy_from_slice(&Slice::pattern(*seed, 0, *len).to_vec());
            f.write_at(&bytes[place], *at).map(|n| n.to_string())
        }
        Call::DirectRead(n) => {
            use std::io::Read;
            let mut f = open().read(true).custom_flags(O_DIRECT).open(p(n))?;
            let (mut bytes, place) = aligned(DIRECT_READ);
            let got = f.read(&mut bytes[place.clone()])?;
            Ok(sha256(&bytes[place.start..place.start + got]))
        }
        Call::Reserve(n, how, at, len) => {
            let path = p(n);
            drop(open().write(true).create(true).truncate(false).open(&path)?);
            their_fallocate(&path, *how, *at, *len)
        }
    }
}

/// Calls on the host's extended attributes, which the standard library cannot make.
struct HostXattrs {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

const PYTHON: &str = r#"
import errno, hashlib, os, sys
for line in sys.stdin:
    w = line.rstrip("\n").split("\t")
    try:
        if w[0] == "set":
            os.setxattr(w[1], w[2], bytes.fromhex(w[3])); out = "ok "
        elif w[0] == "get":
            out = "ok " + hashlib.sha256(os.getxattr(w[1], w[2])).hexdigest()
        else:
            os.removexattr(w[1], w[2]); out = "ok "
    except OSError as e:
        out = "no " + errno.errorcode[e.errno]
    print(out, flush=True)
"#;

impl HostXattrs {
    fn new() -> Option<HostXattrs> {
        let mut child = Command::new("python3")
            .args(["-c", PYTHON])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let input = child.stdin.take()?;
        let output = BufReader::new(child.stdout.take()?);
        Some(HostXattrs { child, input, output })
    }

    fn ask(&mut self, root: &Path, c: &Call) -> Result<String, String> {
        let p = |n: &String| root.join(n).display().to_string();
        let line = match c {
            Call::SetXattr(path, n, seed, len) => {
                let value = Slice::pattern(*seed, 0, *len).to_vec();
                let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
                format!("set\t{}\t{n}\t{hex}", p(path))
            }
            Call::GetXattr(path, n) => format!("get\t{}\t{n}", p(path)),
            Call::RemoveXattr(path, n) => format!("rm\t{}\t{n}", p(path)),
            other => return theirs(root, other).map_err(|e| errno_name(&e)),
        };
        writeln!(self.input, "{line}").expect("python reads");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("python answers");
        match answer.trim_end_matches('\n').split_once(' ') {
            Some(("ok", text)) => Ok(text.to_owned()),
            Some((_, errno)) => Err(errno.to_owned()),
            None => panic!("python answers {answer:?}"),
        }
    }
}

impl Drop for HostXattrs {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn errno_name(e: &std::io::Error) -> String {
    let names = [
        (1, "EPERM"),
        (2, "ENOENT"),
        (16, "EBUSY"),
        (17, "EEXIST"),
        (20, "ENOTDIR"),
        (21, "EISDIR"),
        (22, "EINVAL"),
        (28, "ENOSPC"),
        (31, "EMLINK"),
        (36, "ENAMETOOLONG"),
        (39, "ENOTEMPTY"),
        (40, "ELOOP"),
        (61, "ENODATA"),
        (95, "EOPNOTSUPP"),
    ];
    let n = e.raw_os_error().unwrap_or(0);
    names.iter().find(|(k, _)| *k == n).map_or(format!("errno {n}"), |(_, s)| (*s).to_owned())
}

/// Calls of one program.
const CALLS: u64 = 1500;

#[test]
fn the_same_program_gives_the_same_answers_here_and_on_the_host_kernel() {
    if !can_mount("programs here and on the host kernel") {
        return;
    }
    same_program(
        call,
        &[
            (1, "era=3.4,block_size=1024"),
            (2, "era=4.6"),
            (3, "era=3.8,nodelalloc"),
            (4, "era=4.6"),
            (5, "era=6.1,block_size=1024"),
            (6, "era=4.6"),
            (7, "era=3.4"),
            (8, "era=4.6"),
            (9, "era=4.6,block_size=1024"),
        ],
    );
}

#[test]
fn direct_and_reserved_space_give_the_same_answers_here_and_on_the_host_kernel() {
    if !can_mount("direct I/O and fallocate here and on the host kernel") {
        return;
    }
    if tool("fallocate", &["--version"]).is_none() {
        skipped("fallocate here and on the host kernel", "fallocate is not installed");
        return;
    }
    same_program(
        wide_call,
        &[
            (21, "era=6.18"),
            (22, "era=6.18,block_size=1024"),
            (23, "era=5.10"),
            (24, "era=4.6"),
            (25, "era=3.4,block_size=1024"),
            (26, "era=6.18,nodelalloc"),
            (27, "era=6.18"),
            (28, "era=6.12,dioread_lock"),
        ],
    );
}

/// Runs `CALLS` calls in each of `worlds`, here and there; `DIFFERENTIAL_ROUNDS` times with other
/// seeds.
fn same_program(next: fn(&mut Rng, u64) -> Call, worlds: &[(u64, &str)]) {
    let rounds = std::env::var("DIFFERENTIAL_ROUNDS").ok().and_then(|n| n.parse().ok());
    let rounds: u64 = rounds.unwrap_or(1);
    let all = (0..rounds).flat_map(|r| worlds.iter().map(move |(seed, o)| (seed + 1000 * r, *o)));
    let mut same = 0;
    for (seed, options) in all {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
        std::fs::create_dir(&at).expect("made");
        std::fs::File::create(&image).and_then(|f| f.set_len(64 << 20)).expect("made");
        let (i, m) = (image.display().to_string(), at.display().to_string());
        assert!(tool("mke2fs", &["-q", "-F", "-t", "ext4", &i]).expect("runs").0);
        assert!(tool("mount", &["-o", "loop", &i, &m]).expect("runs").0);
        let mut rng = Rng::stream(seed, "calls");
        let calls: Vec<Call> = (0..CALLS).map(|step| next(&mut rng, step)).collect();
        let expected: Vec<Result<String, String>> =
            calls.iter().map(|c| theirs(&at, c).map_err(|e| errno_name(&e))).collect();
        let mut tree = Tree::new();
        host_tree(&at, "", &mut tree);
        unmount(&m);

        let host = machine(options, 64, "cfq", seed, None);
        let vfs = host.mount().expect("mounts");
        let v = vfs.clone();
        let got = host
            .block_on("calls", async move {
                for (i, (c, want)) in calls.iter().zip(&expected).enumerate() {
                    let got = ours(&v, c).await.map_err(|e| e.errno().to_owned());
                    assert_eq!(got, *want, "seed {seed}, call {i}: {c:?}");
                }
                our_tree(&v).await
            })
            .expect("runs");
        assert_eq!(got, tree, "seed {seed}");
        host.unmount(&vfs).expect("unmounts");
        let medium = host.view().medium;
        assert_clean(&medium, 64, &format!("seed {seed}"));
        assert_eq!(kernel_tree(&medium, 64), Ok(got), "seed {seed}: the kernel reads ours");
        drop(vfs);
        host.rt.cut();
        same += CALLS;
    }
    println!("{same} calls, the same answers; trees equal, images clean");
}

/// Features of an image made today, by name: e2fsprogs older than 1.47.1 must be told.
const TODAY: &str = "-O orphan_file,metadata_csum_seed";

/// An image that `mkfs.ext4` makes with these arguments.
fn real_image(args: &str, mib: u64) -> Medium {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|f| f.set_len(mib << 20)).expect("made");
    let name = image.display().to_string();
    let mut all: Vec<&str> = vec!["-q", "-F"];
    all.extend(args.split_whitespace());
    all.push(&name);
    let (ok, text) = tool("mkfs.ext4", &all).expect("mkfs.ext4 exists");
    assert!(ok, "mkfs.ext4 {args}: {text}");
    files::load(&image).expect("read").0
}

#[test]
fn images_of_the_real_mkfs_serve_the_same_program_with_attributes_as_the_host_kernel() {
    if !can_mount("programs with attributes on default images, here and on the host kernel") {
        return;
    }
    for (seed, args) in [
        (21, format!("{TODAY} -b 4096")),
        (22, format!("{TODAY} -b 1024")),
        (23, "-O ^extents,^64bit -b 1024".to_owned()),
        (24, "-I 128 -b 2048".to_owned()),
    ] {
        let Some(mut host) = HostXattrs::new() else {
            skipped("programs with attributes on default images", "python3 is not installed");
            return;
        };
        let start = real_image(&args, 64);
        let dir = tempfile::tempdir().expect("a directory");
        let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
        std::fs::create_dir(&at).expect("made");
        files::save(&start, Sector(0), 64 << 20, &image).expect("saved");
        let (i, m) = (image.display().to_string(), at.display().to_string());
        assert!(tool("mount", &["-o", "loop", &i, &m]).expect("runs").0);
        let mut rng = Rng::stream(seed, "calls");
        let calls: Vec<Call> = (0..1500).map(|step| call_or_xattr(&mut rng, step)).collect();
        let expected: Vec<Result<String, String>> =
            calls.iter().map(|c| host.ask(&at, c)).collect();
        let mut tree = Tree::new();
        host_tree(&at, "", &mut tree);
        drop(host);
        unmount(&m);

        let here = machine("era=6.1", 64, "noop", seed, Some(start));
        let vfs = here.mount().expect("mounts");
        let v = vfs.clone();
        let what = args.clone();
        let got = here
            .block_on("calls", async move {
                for (i, (c, want)) in calls.iter().zip(&expected).enumerate() {
                    let got = ours(&v, c).await.map_err(|e| e.errno().to_owned());
                    assert_eq!(got, *want, "{what}, call {i}: {c:?}");
                }
                our_tree(&v).await
            })
            .expect("runs");
        assert_eq!(got, tree, "{args}");
        here.unmount(&vfs).expect("unmounts");
        let medium = here.view().medium;
        assert_clean(&medium, 64, &args);
        assert_eq!(kernel_tree(&medium, 64), Ok(got), "{args}: the kernel reads ours");
        drop(vfs);
        here.rt.cut();
    }
}

// ---- many tasks ----

async fn worker(v: Vfs, who: u64, seed: u64, steps: u64) {
    let mut rng = Rng::stream(seed * 100 + who, "worker");
    for step in 0..steps {
        let c = wide_call(&mut rng, who * 1_000_000 + step);
        // Any answer will do, if it is one that the call can have.
        if let Err(e) = ours(&v, &c).await {
            let known = [
                "ENOENT",
                "EEXIST",
                "ENOTDIR",
                "EISDIR",
                "ENOTEMPTY",
                "EINVAL",
                "EPERM",
                "ELOOP",
                "ENAMETOOLONG",
                "ENOSPC",
            ];
            assert!(known.contains(&e.errno()), "task {who}, step {step}, {c:?}: {e}");
        }
        if rng.below(12) == 0
            && let Ok(fd) = v.open(&name(&mut rng), OpenFlags::WRITE, 0).await
        {
            drop(v.pwrite(fd, rng.below(50_000), &[Slice::pattern(step, 0, 5_000)]).await);
            let synced = if rng.below(2) == 0 { v.fsync(fd).await } else { v.fdatasync(fd).await };
            synced.expect("syncs");
            v.rt().sleep(Span::millis(rng.below(3_000))).await;
            v.pwrite(fd, rng.below(50_000), &[Slice::pattern(step, 0, 5_000)])
                .await
                .expect("writes");
            v.ftruncate(fd, rng.below(60_000)).await.expect("cuts");
            v.close(fd).await.expect("closes");
        }
    }
}

fn crowd(options: &str, mib: u64, elevator: &str, seed: u64, tasks: u64) -> String {
    let m = machine(options, mib, elevator, seed, None);
    let vfs = m.mount().unwrap_or_else(|e| panic!("{options} {mib} {elevator}: {e}"));
    m.record(wp_base::event::Class::ALL);
    let v = vfs.clone();
    let rt = m.rt.clone();
    m.block_on("crowd", async move {
        let all: Vec<_> = (0..tasks)
            .map(|who| rt.spawn(format!("task-{who}"), worker(v.clone(), who, seed, 250)))
            .collect();
        for one in all {
            one.await;
        }
    })
    .unwrap_or_else(|e| panic!("{options} {elevator} seed {seed}: {e}"));
    let events = events_to_ndjson(&m.rt.probe().take());
    let v = vfs.clone();
    let tree = m.block_on("walk", async move { our_tree(&v).await }).expect("walks");
    m.unmount(&vfs).expect("unmounts");
    let medium = m.view().medium;
    let what = format!("{options} {elevator} seed {seed}");
    assert_clean(&medium, mib, &what);
    drop(vfs);
    let rt = m.rt.clone();
    drop(m);
    rt.cut();
    drop(rt);
    // What a fresh mount reads is what the tasks left.
    let again = machine(options, mib, elevator, seed, Some(medium));
    let vfs = again.mount().expect("mounts again");
    let v = vfs.clone();
    let read = again.block_on("walk", async move { our_tree(&v).await }).expect("walks");
    assert_eq!(read, tree, "{what}");
    drop(vfs);
    again.rt.cut();
    sha256(&events)
}

#[test]
fn many_tasks_on_the_same_names_leave_a_clean_image_and_one_history() {
    let before = live::census();
    let eras = [
        "era=3.4,block_size=1024",
        "era=3.8",
        "era=4.6,nodelalloc",
        "era=4.6,block_size=1024",
        "era=6.18",
        "era=6.18,block_size=1024",
    ];
    for (i, options) in eras.iter().enumerate() {
        for (elevator, tasks) in [("cfq", 8), ("noop", 5)] {
            let seed = i as u64 + 1;
            let first = crowd(options, 48, elevator, seed, tasks);
            assert_eq!(live::census(), before, "{options} {elevator}");
            if i == 1 {
                assert_eq!(
                    first,
                    crowd(options, 48, elevator, seed, tasks),
                    "one seed, one history"
                );
            }
        }
    }
    // A disk that is full most of the time.
    for seed in 10..13 {
        crowd("era=4.6,block_size=1024", 10, "cfq", seed, 6);
        crowd("era=6.18,block_size=1024", 10, "cfq", seed, 6);
    }
    assert_eq!(live::census(), before);
}

// ---- orphans across a crash ----

async fn orphan_maker(v: Vfs, who: u64, seed: u64) {
    let mut rng = Rng::stream(seed * 10 + who, "orphans");
    for step in 0..u64::MAX {
        let n = format!("o{who}-{}", rng.below(3));
        let Ok(fd) = v.open(&n, OpenFlags::CREATE, 0o644).await else { continue };
        let base = rng.below(50_000);
        for i in 0..1 + rng.below(60) {
            v.pwrite(fd, base + i * 8192, &[Slice::pattern(step, i, 4000)]).await.expect("writes");
        }
        if rng.below(2) == 0 {
            v.fsync(fd).await.expect("syncs");
        }
        match rng.below(5) {
            0 => {
                // A direct write that grows the file is an orphan while its data is under way.
                let flags = OpenFlags { direct: true, append: true, ..OpenFlags::WRITE };
                let size = v.fstat(fd).await.expect("tells").size.next_multiple_of(4096);
                v.ftruncate(fd, size).await.expect("extends");
                let direct = v.open(&n, flags, 0).await.expect("opens");
                let data = Slice::pattern(step, 7, 4096 * (1 + rng.below(20)) as u32);
                v.write(direct, &[data]).await.expect("writes");
                v.close(direct).await.expect("closes");
            }
            1 => {
                let space = Reserve::Space { keep_size: true };
                v.fallocate(fd, space, 100_000, 500_000).await.expect("reserves");
                v.fallocate(fd, Reserve::Punch, 9_000, 90_000).await.expect("punches");
            }
            _ => {}
        }
        match rng.below(4) {
            0 => v.unlink(&n).await.expect("removes"),
            1 => v.ftruncate(fd, rng.below(300_000)).await.expect("cuts"),
            2 => {
                v.unlink(&n).await.expect("removes");
                v.sync().await.expect("syncs");
            }
            _ => {
                v.ftruncate(fd, rng.below(9_000)).await.expect("cuts");
                v.ftruncate(fd, 200_000).await.expect("extends");
            }
        }
        v.rt().sleep(Span::micros(rng.below(2_500_000))).await;
        v.close(fd).await.expect("closes");
    }
}

#[test]
fn orphans_and_half_done_cuts_are_finished_alike_here_and_by_the_host_kernel() {
    if !can_mount("orphans after a crash, here and on the host kernel") {
        return;
    }
    for (options, seed) in [
        ("era=3.4,block_size=1024", 1),
        ("era=4.6", 2),
        ("era=4.6,block_size=1024", 3),
        ("era=6.18", 4),
        ("era=6.18,block_size=1024", 5),
        ("era=6.1", 6),
    ] {
        // The last one lists its orphans in a file.
        let image = (seed == 6).then(|| real_image(&format!("{TODAY} -b 1024"), 48));
        let m = machine(options, 48, "cfq", seed, image);
        let vfs = m.mount().expect("mounts");
        for who in 0..3 {
            drop(m.rt.spawn(format!("maker-{who}"), orphan_maker(vfs.clone(), who, seed)));
        }
        let mut rng = Rng::stream(seed, "cuts");
        for cut in 0..25 {
            m.rt.run_until(m.rt.now() + Span::micros(rng.below(1_500_000)));
            let now = m.rt.now();
            let view = m.queue.with_device(|d| d.crash_view(now));
            let mut medium = view.medium.clone();
            for unit in &view.loss {
                if rng.below(2) == 0 {
                    unit.apply(&mut medium);
                }
            }
            let what = format!("{options} cut {cut} at {now}");
            let theirs = kernel_tree(&medium, 48).unwrap_or_else(|e| panic!("{what}: {e}"));
            let r = machine(options, 48, "cfq", seed, Some(medium));
            let again = r.mount().unwrap_or_else(|e| panic!("{what}: {e}"));
            let v = again.clone();
            let ours = r.block_on("walk", async move { our_tree(&v).await }).expect("walks");
            assert_eq!(ours, theirs, "{what}");
            r.unmount(&again).expect("unmounts");
            assert_clean(&r.view().medium, 48, &what);
            drop(again);
            r.rt.cut();
        }
        drop(vfs);
        m.rt.cut();
    }
}
