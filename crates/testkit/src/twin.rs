//! The same calls here and on the host's kernel, with their answers as text, and the trees that
//! they leave.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use wp_base::{FsResult, LINUX_ERRNOS, Rng};
use wp_machine::results::sha256;
use wp_medium::Slice;
use wp_vfs::{FileType, OpenFlags, Readahead, Reserve, Share, Vfs, XattrSet};

use crate::host::tool;

/// Path to (links, size, hash of contents or target); directories with size 0 and no hash.
pub type Tree = BTreeMap<String, (u64, u64, String)>;

/// What a mounted file system here holds.
pub async fn our_tree(v: &Vfs) -> Tree {
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
                    let got =
                        v.fs().read(e.ino, 0, 1 << 40, &Readahead::default()).await.expect("reads");
                    let bytes: Vec<u8> = Slice::concat(&got);
                    assert_eq!(bytes.len() as u64, attr.size);
                    (attr.size, sha256(&bytes))
                }
            };
            out.insert(path, (links, size, hash));
        }
    }
    out
}

/// What a directory of the host holds; paths begin with `prefix`.
pub fn host_tree(dir: &Path, prefix: &str, out: &mut Tree) {
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

/// One call. Names are picked from few, so that calls meet each other.
#[derive(Clone, Debug)]
pub enum Call {
    /// `pwrite`: file, seed of the contents, offset, bytes.
    Write(String, u64, u64, u32),
    /// A write with `O_APPEND`: file, seed, bytes.
    Append(String, u64, u32),
    /// `open` with `O_EXCL`.
    Exclusive(String),
    /// All of a file.
    Read(String),
    /// `unlink`.
    Unlink(String),
    /// `truncate`, and the new length.
    Truncate(String, u64),
    /// `rename`, from and to.
    Rename(String, String),
    /// `link`, from and to.
    Link(String, String),
    /// `symlink`: target and name.
    Symlink(String, String),
    /// `mkdir`.
    Mkdir(String),
    /// `rmdir`.
    Rmdir(String),
    /// The names in a directory.
    List(String),
    /// `setxattr`: file, name, seed of the value, bytes.
    SetXattr(String, String, u64, u32),
    /// `getxattr`: file and name.
    GetXattr(String, String),
    /// `removexattr`: file and name.
    RemoveXattr(String, String),
    /// `sync`.
    Sync,
    /// `O_DIRECT`, and with the last field `O_DSYNC`.
    Direct(String, u64, u64, u32, bool),
    /// All of a file with `O_DIRECT`.
    DirectRead(String),
    /// `fallocate`: file, how, offset, bytes.
    Reserve(String, Reserve, u64, u64),
    /// Blocks that files share: of which file, into which one, how many bytes.
    Share(Share, (String, u64), (String, u64), u64),
    /// A new subvolume.
    Subvolume(String),
    /// Of which subvolume, where, and is it read-only?
    Snapshot(String, String, bool),
    /// A subvolume goes.
    DeleteSubvolume(String),
}

/// [`call`], a quarter of them past the cache or without data.
pub fn wide_call(rng: &mut Rng, step: u64) -> Call {
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

/// A path of up to two directories, of the few that calls use.
pub fn name(rng: &mut Rng) -> String {
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

/// A call by itself: data, names, links, attributes.
pub fn call(rng: &mut Rng, step: u64) -> Call {
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
pub fn call_or_xattr(rng: &mut Rng, step: u64) -> Call {
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

/// A clone, a dedupe or a copy, mostly of whole blocks. `last`: what was cloned last, which a
/// dedupe then finds equal.
pub fn share(rng: &mut Rng, last: &mut Option<Call>) -> Call {
    if let Some(Call::Share(_, from, to, _)) = last.take().filter(|_| rng.below(3) == 0) {
        let len = (1 + rng.below(4)) * 4096;
        return Call::Share(Share::Dedupe, from, to, len);
    }
    let mut place = |blocks| {
        // Mostly a file of the root directory, so that it is there.
        let file = if rng.below(6) == 0 { name(rng) } else { format!("f{}", rng.below(5)) };
        (file, rng.below(blocks) * 4096 + if rng.below(12) == 0 { 700 } else { 0 })
    };
    let (from, to) = (place(10), place(30));
    let len = match rng.below(5) {
        0 => 0,
        1 => 1 + rng.below(60_000),
        _ => (1 + rng.below(12)) * 4096,
    };
    match rng.below(8) {
        0 => Call::Share(Share::Dedupe, from, to, len),
        1..=2 => Call::Share(Share::Copy, from, to, len.max(1)),
        _ => {
            let clone = Call::Share(Share::Clone, from, to, len);
            *last = Some(clone.clone());
            clone
        }
    }
}

/// A subvolume, a snapshot, or the end of one; of directories and files they fail.
pub fn subvolume(rng: &mut Rng) -> Call {
    let path = name(rng);
    match rng.below(8) {
        0..=2 => Call::Subvolume(path),
        3..=6 => {
            let from = if rng.below(3) == 0 { ".".to_owned() } else { name(rng) };
            Call::Snapshot(from, path, rng.below(5) == 0)
        }
        _ => Call::DeleteSubvolume(path),
    }
}

/// Makes the call here. Its answer as text.
pub async fn ours(v: &Vfs, c: &Call) -> FsResult<String> {
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
            out.map(|s| sha256(&Slice::concat(&s)))
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
            out.map(|s| sha256(&Slice::concat(&s)))
        }
        Call::Share(how, (from, from_at), (to, to_at), len) => {
            let source = v.open(from, OpenFlags::READ, 0).await?;
            let target = match v.open(to, OpenFlags::CREATE, 0o644).await {
                Ok(target) => target,
                Err(e) => return v.close(source).await.and(Err(e)),
            };
            let (from, to) = ((source, *from_at), (target, *to_at));
            let out = match how {
                Share::Copy => v.copy_file_range(from, to, *len).await.map(|n| n.to_string()),
                Share::Clone => v.clone_range(from, to, *len).await.map(|()| String::new()),
                Share::Dedupe => v.dedupe_range(from, to, *len).await.map(|n| n.to_string()),
            };
            v.close(source).await?;
            v.close(target).await?;
            out
        }
        Call::Subvolume(path) => v.create_subvolume(path).await.map(|()| String::new()),
        Call::Snapshot(from, to, readonly) => {
            v.snapshot(from, to, *readonly).await.map(|()| String::new())
        }
        Call::DeleteSubvolume(path) => v.delete_subvolume(path).await.map(|()| String::new()),
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

/// Makes the call on the host's kernel, below `root`. Its answer as text.
pub fn theirs(root: &Path, c: &Call) -> std::io::Result<String> {
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
        Call::SetXattr(..)
        | Call::GetXattr(..)
        | Call::RemoveXattr(..)
        | Call::Share(..)
        | Call::Subvolume(_)
        | Call::Snapshot(..)
        | Call::DeleteSubvolume(_) => {
            unreachable!("what the standard library cannot call is asked of python")
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

/// Calls on the host's extended attributes, shared blocks and subvolumes, which the standard
/// library cannot make.
pub struct HostXattrs {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

const PYTHON: &str = r#"
import errno, fcntl, hashlib, os, struct, sys
FICLONERANGE, FIDEDUPERANGE = 0x4020940d, 0xc0189436
def share(how, src, src_at, dst, dst_at, n):
    src_at, dst_at, n = int(src_at), int(dst_at), int(n)
    a = os.open(src, os.O_RDONLY)
    try:
        b = os.open(dst, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if how == "copy":
                return str(os.copy_file_range(a, b, n, src_at, dst_at))
            if how == "clone":
                fcntl.ioctl(b, FICLONERANGE, struct.pack("qQQQ", a, src_at, n, dst_at))
                return ""
            ask = struct.pack("QQHHIqQQiI", src_at, n, 1, 0, 0, b, dst_at, 0, 0, 0)
            done, status = struct.unpack("QQHHIqQQiI", fcntl.ioctl(a, FIDEDUPERANGE, ask))[7:9]
            if status:
                # FILE_DEDUPE_RANGE_DIFFERS
                raise OSError(errno.EBADE if status == 1 else -status, "")
            return str(done)
        finally:
            os.close(b)
    finally:
        os.close(a)
SUBVOL_CREATE, SNAP_DESTROY, SNAP_CREATE_V2 = 0x5000940e, 0x5000940f, 0x50009417
def subvolume(how, dst, src, readonly):
    a = os.open(src, os.O_RDONLY) if how == "snapshot" else -1
    try:
        above, name = os.path.split(dst)
        b = os.open(above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if a >= 0:
                ask = struct.pack("qQQ32x4040s", a, 0, int(readonly) * 2, name.encode())
                fcntl.ioctl(b, SNAP_CREATE_V2, bytearray(ask))
            else:
                call = SUBVOL_CREATE if how == "create" else SNAP_DESTROY
                fcntl.ioctl(b, call, bytearray(struct.pack("q4088s", 0, name.encode())))
        finally:
            os.close(b)
    finally:
        if a >= 0:
            os.close(a)
for line in sys.stdin:
    w = line.rstrip("\n").split("\t")
    try:
        if w[0] == "set":
            os.setxattr(w[1], w[2], bytes.fromhex(w[3])); out = "ok "
        elif w[0] == "share":
            out = "ok " + share(*w[1:])
        elif w[0] == "subvolume":
            subvolume(*w[1:]); out = "ok "
        elif w[0] == "get":
            out = "ok " + hashlib.sha256(os.getxattr(w[1], w[2])).hexdigest()
        else:
            os.removexattr(w[1], w[2]); out = "ok "
    except OSError as e:
        # Two names of one number, of which ours is this.
        out = "no " + errno.errorcode[e.errno].replace("ENOTSUP", "EOPNOTSUPP")
    print(out, flush=True)
"#;

impl HostXattrs {
    /// Starts it. `None`: there is no Python.
    pub fn new() -> Option<HostXattrs> {
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

    /// Makes a call of attributes. Its answer as text, or the name of its error.
    pub fn ask(&mut self, root: &Path, c: &Call) -> Result<String, String> {
        let p = |n: &String| root.join(n).display().to_string();
        let line = match c {
            Call::SetXattr(path, n, seed, len) => {
                let value = Slice::pattern(*seed, 0, *len).to_vec();
                let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
                format!("set\t{}\t{n}\t{hex}", p(path))
            }
            Call::GetXattr(path, n) => format!("get\t{}\t{n}", p(path)),
            Call::RemoveXattr(path, n) => format!("rm\t{}\t{n}", p(path)),
            Call::Share(how, (from, from_at), (to, to_at), len) => {
                let how = match how {
                    Share::Copy => "copy",
                    Share::Clone => "clone",
                    Share::Dedupe => "dedupe",
                };
                format!("share\t{how}\t{}\t{from_at}\t{}\t{to_at}\t{len}", p(from), p(to))
            }
            Call::Subvolume(path) => format!("subvolume\tcreate\t{}\t\t0", p(path)),
            Call::DeleteSubvolume(path) => format!("subvolume\tdelete\t{}\t\t0", p(path)),
            Call::Snapshot(from, to, readonly) => {
                let readonly = u32::from(*readonly);
                format!("subvolume\tsnapshot\t{}\t{}\t{readonly}", p(to), p(from))
            }
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

/// `ENOENT` of an error.
pub fn errno_name(e: &std::io::Error) -> String {
    let n = e.raw_os_error().unwrap_or(0);
    let known = LINUX_ERRNOS.iter().find(|(_, number)| *number == n);
    known.map_or(format!("errno {n}"), |(name, _)| (*name).to_owned())
}
