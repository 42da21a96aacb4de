//! Random system calls of this host, on a simulated ext4 mounted through FUSE and on the kernel's
//! own ext4 on a loop device: each call is answered the same.
//!
//! `WRITEPATH_EXERCISE=1000000` makes as many calls, in runs of other seeds.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use wp_base::rng::Rng;

/// Calls of a run, and runs in a test.
const CALLS: u64 = 5_000;
const RUNS: u64 = 4;
/// Files open at once.
const SLOTS: u64 = 8;
const LONGEST: u64 = 200_000;
/// What `writepath mount` says.
const SAID: &str = "said";

/// A call.
#[derive(Clone, Debug)]
enum Op {
    Open { slot: usize, path: String, flags: OFlags, mode: u32 },
    Close(usize),
    Pwrite { slot: usize, at: u64, len: usize, seed: u8 },
    Pread { slot: usize, at: u64, len: usize },
    Ftruncate(usize, u64),
    Truncate(String, u64),
    Sync { slot: usize, data_only: bool },
    Fallocate { slot: usize, mode: FallocateFlags, at: u64, len: u64 },
    Seek { slot: usize, at: u64, data: bool },
    Copy { from: usize, to: usize, from_at: u64, to_at: u64, len: usize },
    Rename(String, String, RenameFlags),
    Link(String, String),
    Symlink(String, String),
    Unlink(String),
    Rmdir(String),
    Mkdir(String, u32),
    Mkfifo(String, u32),
    Chmod(String, u32),
    Chown(String, u32, u32),
    Utimens(String, i64, i64),
    Stat(String),
    Fstat(usize),
    List(String),
    SetXattr(String, String, usize, XattrFlags),
    GetXattr(String, String),
    RemoveXattr(String, String),
    ListXattrs(String),
    Read(String),
}

fn path(rng: &mut Rng) -> String {
    let name = |rng: &mut Rng| format!("{}{}", ["f", "g"][rng.below(2) as usize], rng.below(5));
    let dir = |rng: &mut Rng| format!("d{}", rng.below(3));
    match rng.below(10) {
        0 => dir(rng),
        1 => format!("{}/{}", dir(rng), dir(rng)),
        2..=4 => format!("{}/{}", dir(rng), name(rng)),
        5 => format!("{}/{}/{}", dir(rng), dir(rng), name(rng)),
        6 if rng.below(20) == 0 => format!("{}/{}/..", dir(rng), name(rng)),
        _ => name(rng),
    }
}

fn at(rng: &mut Rng) -> u64 {
    match rng.below(3) {
        0 => rng.below(LONGEST),
        1 => rng.below(LONGEST / 4096) * 4096,
        _ => rng.below(9_000),
    }
}

fn op(rng: &mut Rng) -> Op {
    let slot = rng.below(SLOTS) as usize;
    let len = |rng: &mut Rng| {
        let most = if rng.below(4) == 0 { 70_000 } else { 5_000 };
        (1 + rng.below(most)) as usize
    };
    let xattr =
        |rng: &mut Rng| format!("user.{}", ["a", "b", "long-name-of-it"][rng.below(3) as usize]);
    match rng.below(48) {
        0..=5 => {
            let mut flags = [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR][rng.below(3) as usize];
            for (flag, of) in [
                (OFlags::CREATE, 2),
                (OFlags::EXCL, 6),
                (OFlags::TRUNC, 6),
                (OFlags::APPEND, 6),
                (OFlags::DIRECTORY, 20),
                (OFlags::NOFOLLOW, 10),
                (OFlags::SYNC, 20),
                (OFlags::DSYNC, 20),
            ] {
                if rng.below(of) == 0 {
                    flags |= flag;
                }
            }
            // A fifo waits for its other end.
            flags |= OFlags::NONBLOCK;
            let mode = [0o644, 0o600, 0o755, 0o4755, 0o400][rng.below(5) as usize];
            Op::Open { slot, path: path(rng), flags, mode }
        }
        6 => Op::Close(slot),
        7..=14 => Op::Pwrite { slot, at: at(rng), len: len(rng), seed: rng.below(250) as u8 + 1 },
        15..=18 => Op::Pread { slot, at: at(rng), len: len(rng) },
        19 => Op::Ftruncate(slot, at(rng)),
        20 => Op::Truncate(path(rng), at(rng)),
        21 => Op::Sync { slot, data_only: rng.below(2) == 0 },
        22 | 23 => {
            // The others are refused by FUSE in the kernel.
            let modes = [
                FallocateFlags::empty(),
                FallocateFlags::KEEP_SIZE,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                FallocateFlags::PUNCH_HOLE,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            ];
            let mode = modes[rng.below(modes.len() as u64) as usize];
            let (mut from, mut len) = (at(rng), 1 + rng.below(60_000));
            if rng.below(2) == 0 {
                (from, len) = (from / 4096 * 4096, len.next_multiple_of(4096));
            }
            Op::Fallocate { slot, mode, at: from, len }
        }
        24 => Op::Seek { slot, at: at(rng), data: rng.below(2) == 0 },
        25 => Op::Copy {
            from: slot,
            to: rng.below(SLOTS) as usize,
            from_at: at(rng),
            to_at: at(rng),
            len: len(rng),
        },
        26..=28 => {
            let how = match rng.below(4) {
                0 => RenameFlags::NOREPLACE,
                1 => RenameFlags::EXCHANGE,
                _ => RenameFlags::empty(),
            };
            Op::Rename(path(rng), path(rng), how)
        }
        29 => Op::Link(path(rng), path(rng)),
        30 => Op::Symlink(path(rng), path(rng)),
        31 => Op::Unlink(path(rng)),
        32 => Op::Rmdir(path(rng)),
        33 | 34 => Op::Mkdir(path(rng), [0o755, 0o700, 0o2775][rng.below(3) as usize]),
        35 => Op::Mkfifo(path(rng), 0o644),
        36 => Op::Chmod(path(rng), [0o644, 0o600, 0o4755, 0o2755, 0o1777][rng.below(5) as usize]),
        37 => Op::Chown(path(rng), rng.below(3) as u32, rng.below(3) as u32),
        38 => Op::Utimens(path(rng), rng.below(1 << 33) as i64, rng.below(1_000_000_000) as i64),
        39 | 40 => Op::Stat(path(rng)),
        41 => Op::Fstat(slot),
        42 => Op::List(if rng.below(3) == 0 { ".".to_owned() } else { path(rng) }),
        43 => {
            let how = match rng.below(4) {
                0 => XattrFlags::CREATE,
                1 => XattrFlags::REPLACE,
                _ => XattrFlags::empty(),
            };
            Op::SetXattr(path(rng), xattr(rng), rng.below(300) as usize, how)
        }
        44 => Op::GetXattr(path(rng), xattr(rng)),
        45 => Op::RemoveXattr(path(rng), xattr(rng)),
        46 => Op::ListXattrs(path(rng)),
        _ => Op::Read(path(rng)),
    }
}

/// A file system, and what is open there.
struct Side {
    root: PathBuf,
    fds: Vec<Option<OwnedFd>>,
}

fn bytes(at: u64, len: usize, seed: u8) -> Vec<u8> {
    (0..len as u64).map(|n| seed.wrapping_mul(((at + n) / 7) as u8 | 1)).collect()
}

fn digest(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    format!("{} bytes {sum:016x}", bytes.len())
}

fn told(stat: &Stat) -> String {
    let kind = FileType::from_raw_mode(stat.st_mode);
    // Directories are of the same size where their blocks split alike; links of the same by name.
    let size = if kind == FileType::Directory { 0 } else { stat.st_size };
    let (mode, links, uid, gid) = (stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid);
    format!("{mode:o} {links} {uid}:{gid} {size}")
}

impl Side {
    fn of(root: &Path) -> Side {
        Side { root: root.to_owned(), fds: (0..SLOTS).map(|_| None).collect() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn fd(&self, slot: usize) -> Result<&OwnedFd, Errno> {
        self.fds[slot].as_ref().ok_or(Errno::BADF)
    }

    fn is_regular(&self, slot: usize) -> Result<bool, Errno> {
        let stat = rustix::fs::fstat(self.fd(slot)?)?;
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    fn call(&mut self, op: &Op) -> Result<String, Errno> {
        let done = |()| String::new();
        match op {
            Op::Open { slot, path, flags, mode } => {
                let fd = rustix::fs::open(self.at(path), *flags, Mode::from_raw_mode(*mode))?;
                self.fds[*slot] = Some(fd);
                Ok(String::new())
            }
            Op::Close(slot) => self.fds[*slot].take().map(|_| String::new()).ok_or(Errno::BADF),
            Op::Pwrite { slot, at, len, seed } => {
                // What a fifo holds is the kernel's.
                let fd = self.fd(*slot)?;
                rustix::io::pwrite(fd, &bytes(*at, *len, *seed), *at).map(|n| n.to_string())
            }
            Op::Pread { slot, at, len } => {
                let mut buffer = vec![0; *len];
                let n = rustix::io::pread(self.fd(*slot)?, &mut buffer, *at)?;
                Ok(digest(&buffer[..n]))
            }
            Op::Ftruncate(slot, len) => rustix::fs::ftruncate(self.fd(*slot)?, *len).map(done),
            Op::Truncate(path, len) => {
                let file = rustix::fs::open(
                    self.at(path),
                    OFlags::WRONLY | OFlags::NONBLOCK,
                    Mode::empty(),
                )?;
                rustix::fs::ftruncate(file, *len).map(done)
            }
            Op::Sync { slot, data_only: true } => rustix::fs::fdatasync(self.fd(*slot)?).map(done),
            Op::Sync { slot, .. } => rustix::fs::fsync(self.fd(*slot)?).map(done),
            Op::Fallocate { slot, mode, at, len } => {
                rustix::fs::fallocate(self.fd(*slot)?, *mode, *at, *len).map(done)
            }
            Op::Seek { slot, at, data } => {
                if !self.is_regular(*slot)? {
                    return Ok(String::new());
                }
                let to = if *data { SeekFrom::Data(*at) } else { SeekFrom::Hole(*at) };
                rustix::fs::seek(self.fd(*slot)?, to).map(|at| at.to_string())
            }
            Op::Copy { from, to, from_at, to_at, len } => {
                let (mut from_at, mut to_at) = (*from_at, *to_at);
                let (from, to) = (self.fd(*from)?, self.fd(*to)?);
                let places = (Some(&mut from_at), Some(&mut to_at));
                rustix::fs::copy_file_range(from, places.0, to, places.1, *len)
                    .map(|n| n.to_string())
            }
            Op::Rename(old, new, how) => {
                rustix::fs::renameat_with(CWD, self.at(old), CWD, self.at(new), *how).map(done)
            }
            Op::Link(old, new) => rustix::fs::link(self.at(old), self.at(new)).map(done),
            Op::Symlink(target, new) => rustix::fs::symlink(target, self.at(new)).map(done),
            Op::Unlink(path) => rustix::fs::unlink(self.at(path)).map(done),
            Op::Rmdir(path) => rustix::fs::rmdir(self.at(path)).map(done),
            Op::Mkdir(path, mode) => {
                rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(*mode)).map(done)
            }
            Op::Mkfifo(path, mode) => {
                let mode = Mode::from_raw_mode(*mode);
                rustix::fs::mknodat(CWD, self.at(path), FileType::Fifo, mode, 0).map(done)
            }
            Op::Chmod(path, mode) => {
                rustix::fs::chmod(self.at(path), Mode::from_raw_mode(*mode)).map(done)
            }
            Op::Chown(path, uid, gid) => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                rustix::fs::chownat(CWD, self.at(path), Some(uid), Some(gid), AtFlags::empty())
                    .map(done)
            }
            Op::Utimens(path, secs, nanos) => {
                let time = Timespec { tv_sec: *secs, tv_nsec: *nanos };
                let times = Timestamps { last_access: time, last_modification: time };
                let path = self.at(path);
                rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?;
                let stat = rustix::fs::stat(&path)?;
                Ok(format!("{} {}", stat.st_mtime, stat.st_mtime_nsec))
            }
            Op::Stat(path) => {
                let path = self.at(path);
                let stat = rustix::fs::lstat(&path)?;
                let target = match rustix::fs::readlink(&path, Vec::new()) {
                    Ok(target) => target.to_string_lossy().into_owned(),
                    Err(e) => e.to_string(),
                };
                Ok(format!("{} {target}", told(&stat)))
            }
            Op::Fstat(slot) => rustix::fs::fstat(self.fd(*slot)?).map(|s| told(&s)),
            Op::List(path) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let dir = rustix::fs::open(self.at(path), flags, Mode::empty())?;
                let mut names = Vec::new();
                for entry in Dir::read_from(dir)? {
                    let entry = entry?;
                    let name = entry.file_name().to_string_lossy().into_owned();
                    // What mkfs makes, and here does not.
                    if name != "lost+found" {
                        names.push(format!("{name} {:?}", entry.file_type()));
                    }
                }
                names.sort();
                Ok(names.join(", "))
            }
            Op::SetXattr(path, name, len, how) => {
                rustix::fs::setxattr(self.at(path), name, &bytes(0, *len, 9), *how).map(done)
            }
            Op::GetXattr(path, name) => {
                let mut value = vec![0; 1000];
                let n = rustix::fs::getxattr(self.at(path), name, &mut value[..])?;
                Ok(digest(&value[..n]))
            }
            Op::RemoveXattr(path, name) => rustix::fs::removexattr(self.at(path), name).map(done),
            Op::ListXattrs(path) => {
                let mut names = vec![0; 1000];
                let n = rustix::fs::listxattr(self.at(path), &mut names[..])?;
                let names = names[..n].split(|b| *b == 0).filter(|n| !n.is_empty());
                let mut names: Vec<_> = names.map(OsStr::from_bytes).collect();
                names.sort();
                Ok(format!("{names:?}"))
            }
            Op::Read(path) => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let fd = rustix::fs::open(self.at(path), flags, Mode::empty())?;
                let stat = rustix::fs::fstat(&fd)?;
                if FileType::from_raw_mode(stat.st_mode) == FileType::Fifo {
                    return Ok("fifo".to_owned());
                }
                let mut buffer = vec![0; 4 * LONGEST as usize];
                let n = rustix::io::pread(&fd, &mut buffer, 0)?;
                Ok(digest(&buffer[..n]))
            }
        }
    }
}

/// The kernel's ext4 in a file, on a loop device; ends with it.
struct Loop(PathBuf);

impl Loop {
    fn mount(dir: &Path) -> Option<Loop> {
        let (image, at) = (dir.join("image"), dir.join("kernel"));
        fs::create_dir(&at).expect("a directory");
        let file = fs::File::create(&image).expect("a file");
        file.set_len(512 << 20).expect("a length");
        let quiet = |program: &str, args: &[&OsStr]| {
            let mut command = Command::new(program);
            command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|s| s.success())
        };
        let made = quiet("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_os_str()])
            && quiet("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()]);
        made.then_some(Loop(at))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// `writepath mount`; ends with it.
struct Ours(Child, PathBuf);

impl Ours {
    fn mount(dir: &Path) -> Ours {
        let at = dir.join("ours");
        fs::create_dir(&at).expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_writepath"));
        command.args(["mount", "--fs", "ext4,era=6.18"]);
        command.args(["--device", "fixed,capacity_bytes=536870912"]).arg(&at);
        let said = fs::File::create(dir.join(SAID)).expect("a file");
        command.stdout(Stdio::null()).stderr(said);
        let child = command.spawn().expect("it was built");
        let ours = Ours(child, at);
        #[expect(clippy::disallowed_methods, reason = "what does not mount is let go")]
        let begin = Instant::now();
        let outside = rustix::fs::stat(dir).expect("there").st_dev;
        while rustix::fs::stat(&ours.1).is_ok_and(|s| s.st_dev == outside) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it did not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        ours
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.1).status();
        let _ = self.0.wait();
    }
}

#[test]
fn calls_through_the_mount_are_answered_as_by_the_kernels_ext4() {
    let check = "exercise::calls_through_the_mount_are_answered_as_by_the_kernels_ext4";
    if !super::programs::can_mount(check) {
        return;
    }
    let wanted = std::env::var("WRITEPATH_EXERCISE").ok().and_then(|n| n.parse::<u64>().ok());
    let runs = wanted.map_or(RUNS, |calls| calls.div_ceil(CALLS));
    let (mut answered, mut cached) = ((0, 0), 0);
    for seed in 0..runs {
        let dir = tempfile::tempdir().expect("a directory");
        let Some(kernel) = Loop::mount(dir.path()) else {
            return wp_machine::testing::skipped(check, "no loop device with ext4");
        };
        let ours = Ours::mount(dir.path());
        let mut sides = [Side::of(&ours.1), Side::of(&kernel.0)];
        let mut rng = Rng::stream(seed, "exercise");
        let mut before: Vec<String> = Vec::new();
        for n in 0..CALLS {
            let op = op(&mut rng);
            let answers = sides.each_mut().map(|side| side.call(&op));
            before.push(format!("{op:?} -> {:?}", answers[1]));
            // Preallocated blocks are data where the kernel has read them into its page cache
            // (`mapping_seek_hole_data`), and those reads never come to us.
            let is_cached = matches!(op, Op::Seek { .. }) && answers[0] != answers[1];
            cached += u64::from(is_cached);
            assert!(
                answers[0] == answers[1] || is_cached,
                "seed {seed}, call {n}: {op:?}\nours {:?}, the kernel's {:?}\n{}\nbefore:\n{}",
                answers[0],
                answers[1],
                fs::read_to_string(dir.path().join(SAID)).expect("a file"),
                before[before.len().saturating_sub(60)..].join("\n")
            );
            answered.0 += 1;
            answered.1 += u64::from(answers[1].is_ok());
        }
        drop(sides);
    }
    let (all, ok) = answered;
    println!(
        "{all} calls, {ok} of them without an error; {cached} answers of SEEK_DATA and SEEK_HOLE differ"
    );
    assert!(cached * 1000 <= all, "{cached} answers of SEEK_DATA and SEEK_HOLE differ");
    assert!(ok * 4 > all, "{ok} of {all} calls did something");
}
