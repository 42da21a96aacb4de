//! The kernel of this host as something that recovers states: it mounts an image through a loop
//! device, every file is read, it unmounts.
//!
//! Invariants: 1. what the block layer remembers of the loop device goes with its last user at
//!                unmount, so that the file can be written anew between two mounts. A mount
//!                namespace that somebody makes meanwhile has a copy of the mount and is such a
//!                user: the state is mounted again, on another device;
//!             2. nothing stays mounted or attached, whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use wp_base::SECTOR_BYTES;
use wp_base::plain::Shown as _;
use wp_crash::Survivor;
use wp_machine::host::leftover::{Held, Leftover, hold, pass};
use wp_medium::{Medium, Slice};
use wp_vfs::{DeviceNumber, FileFlags, FileType, Stat, TimeSpec};

/// Bytes read or written at a time.
const CHUNK: u64 = 256 << 10;
/// Loop devices that are tried for one state.
const DEVICES: u32 = 3;
/// What mount(2) answers to what is on the disk, and to nothing else.
const REFUSALS: [Errno; 6] =
    [Errno::INVAL, Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::OPNOTSUPP, Errno::ROFS];

/// What the kernel finds under a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A file, with whole blocks of zeros left out and the last, partial one always there.
    File(Box<Survivor>),
    /// Something that cannot be read: why.
    Unreadable(String),
}

/// What the kernel made of a state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Theirs {
    /// It answered this to mount(2).
    Refused(String),
    /// Everything below the root, without `lost+found`.
    Files(BTreeMap<String, Found>),
}

/// Wall time that was spent, and mounts that were tried.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spent {
    /// Mounts.
    pub mounts: u64,
    /// Writing images.
    pub write: Duration,
    /// In mount(2).
    pub mount: Duration,
    /// Reading names and files.
    pub read: Duration,
    /// In umount2(2).
    pub unmount: Duration,
}

impl Spent {
    /// Adds another's.
    pub fn add(&mut self, o: &Spent) {
        self.mounts += o.mounts;
        self.write += o.write;
        self.mount += o.mount;
        self.read += o.read;
        self.unmount += o.unmount;
    }
}

/// The file below the loop device, and what it shall hold. What a mount has written into it is not
/// known: all of it is written for each state, from memory in which little changes.
struct Image {
    file: File,
    state: Medium,
    bytes: Vec<u8>,
    /// Of each chunk: is there anything but zeros?
    is_used: Vec<bool>,
}

impl Image {
    fn new(file: File, bytes: u64) -> Image {
        let (state, chunks) = (Medium::new(), bytes.div_ceil(CHUNK) as usize);
        Image { file, state, bytes: vec![0; bytes as usize], is_used: vec![false; chunks] }
    }

    /// Makes the file what the medium is.
    fn write(&mut self, medium: &Medium) -> io::Result<()> {
        let (end, mut changed) = (self.bytes.len() as u64, BTreeSet::new());
        self.state.diff(medium, &mut |at, sectors| {
            let to = (at.bytes() + u64::from(sectors) * SECTOR_BYTES).min(end);
            if at.bytes() < to {
                medium.read_bytes(at.bytes(), &mut self.bytes[at.bytes() as usize..to as usize]);
                changed.extend(at.bytes() / CHUNK..to.div_ceil(CHUNK));
            }
        });
        self.state = medium.clone();
        for (n, chunk) in self.bytes.chunks(CHUNK as usize).enumerate() {
            let at = n as u64 * CHUNK;
            if changed.contains(&(n as u64)) {
                self.is_used[n] = chunk.iter().any(|b| *b != 0);
            }
            if self.is_used[n] {
                self.file.write_all_at(chunk, at)?;
            } else {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.file, hole, at, chunk.len() as u64)?;
            }
        }
        Ok(())
    }
}

/// A loop device over a file in memory, and a place to mount it.
pub struct HostKernel {
    // In this order they end.
    _mounted: Held,
    _attached: Held,
    _dir: Held,
    dir: PathBuf,
    at: PathBuf,
    device: String,
    /// Type of the file system, as mount(2) has it.
    fs: &'static str,
    image: Image,
    /// Time spent so far.
    pub spent: Spent,
}

#[expect(clippy::disallowed_methods, reason = "what is measured is the host")]
fn timed<T>(sum: &mut Duration, f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let out = f();
    *sum += start.elapsed();
    out
}

fn text(what: &str, e: impl std::fmt::Display) -> String {
    format!("{what}: {e}")
}

/// Version of the kernel that runs: (`6.18.44-…`, 6, 18).
///
/// Errors: why it cannot be said.
pub fn release() -> Result<(String, u16, u16), String> {
    let place = "/proc/sys/kernel/osrelease";
    let release = fs::read_to_string(place).map_err(|e| text(place, e))?.trim().to_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((release, major, minor)),
        _ => Err(format!("{place}: `{release}`")),
    }
}

impl HostKernel {
    /// Makes the new directory `dir` (in a file system in memory, best) with an image file of
    /// `bytes` bytes, and attaches a loop device to it.
    ///
    /// Errors: why this host cannot do it, in words.
    pub fn new(dir: &Path, bytes: u64) -> Result<HostKernel, String> {
        HostKernel::of(dir, bytes, "ext4")
    }

    /// The same for images of the file system `fs`. Errors: as there.
    pub fn of(dir: &Path, bytes: u64, fs: &'static str) -> Result<HostKernel, String> {
        let host = |e: io::Error| text(&dir.shown(), e);
        let make = || {
            fs::create_dir(dir)?;
            Ok(((), Leftover::Directory(std::path::absolute(dir)?)))
        };
        let ((), in_dir) = hold(make).map_err(host)?;
        let (image, at) = (dir.join("image"), dir.join("mnt"));
        fs::create_dir(&at).map_err(host)?;
        let file = File::options().read(true).write(true).create_new(true).open(&image);
        let file = file.map_err(host)?;
        file.set_len(bytes).map_err(host)?;
        let (device, attached) = hold(|| attach(&image)).map_err(|e| text("losetup", e))?;
        let mounted = hold(|| Ok(((), Leftover::Mount(std::path::absolute(&at)?))));
        let ((), mounted) = mounted.map_err(host)?;
        Ok(HostKernel {
            _mounted: mounted,
            _attached: attached,
            _dir: in_dir,
            dir: dir.to_owned(),
            at,
            device,
            fs,
            image: Image::new(file, bytes),
            spent: Spent::default(),
        })
    }

    /// The image as it is now: after [`HostKernel::recover`], as the unmount left it.
    pub fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// Writes the state, mounts it with `options`, reads every file, and unmounts.
    ///
    /// Units: `block`, bytes of a block of the file system. Errors: those of the host that do not
    ///        come from the state, in words.
    pub fn recover(
        &mut self,
        medium: &Medium,
        options: &str,
        block: u32,
    ) -> Result<Theirs, String> {
        for _ in 0..DEVICES {
            let found = self.recover_once(medium, options, block)?;
            if is_released(&self.device) {
                return Ok(found);
            }
            self.renew()?;
        }
        Err(format!("{}: another mount namespace keeps what was unmounted", self.device))
    }

    /// Another file and loop device in place of one that somebody keeps.
    fn renew(&mut self) -> Result<(), String> {
        let host = |e: io::Error| text(&self.dir.shown(), e);
        let path = self.image();
        fs::remove_file(&path).map_err(host)?;
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(host)?;
        let bytes = self.image.bytes.len() as u64;
        file.set_len(bytes).map_err(host)?;
        let (device, attached) = hold(|| attach(&path)).map_err(|e| text("losetup", e))?;
        self.image = Image::new(file, bytes);
        (self.device, self._attached) = (device, attached);
        Ok(())
    }

    /// See [`HostKernel::recover`].
    fn recover_once(
        &mut self,
        medium: &Medium,
        options: &str,
        block: u32,
    ) -> Result<Theirs, String> {
        let HostKernel { image, spent, at, device, fs, .. } = self;
        let fs = *fs;
        timed(&mut spent.write, || image.write(medium)).map_err(|e| text("image", e))?;
        spent.mounts += 1;
        let data = std::ffi::CString::new(options).map_err(|e| text("options", e))?;
        let flags = MountFlags::NOATIME;
        let done = timed(&mut spent.mount, || {
            pass(|| soon(|| mount(device.as_str(), at.as_path(), fs, flags, data.as_c_str())))
        });
        match done {
            Ok(()) => {}
            Err(e) if REFUSALS.contains(&e) => return Ok(Theirs::Refused(errno(e))),
            Err(e) => return Err(text("mount", e)),
        }
        let mut files = BTreeMap::new();
        timed(&mut spent.read, || walk(at, "", block, &mut files));
        timed(&mut spent.unmount, || soon(|| unmount(at.as_path(), UnmountFlags::empty())))
            .map_err(|e| text("umount", e))?;
        Ok(Theirs::Files(files))
    }

    /// What `e2fsck -fn` says to the image as it is now, if it is not content.
    ///
    /// Errors: it could not be run.
    pub fn e2fsck(&self) -> Result<Option<String>, String> {
        let out = Command::new("e2fsck").arg("-fn").arg(self.image()).output();
        let out = out.map_err(|e| text("e2fsck", e))?;
        Ok((!out.status.success()).then(|| String::from_utf8_lossy(&out.stdout).into_owned()))
    }
}

/// Has nobody the device any more, a mount in another namespace either? What has it for a moment
/// is waited for.
fn is_released(device: &str) -> bool {
    const TRIES: u32 = 500;
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        match rustix::fs::open(device, flags, Mode::empty()) {
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(1)),
            _ => return true,
        }
    }
    false
}

/// A loop device for a file, which the interrupt of a terminal does not keep from being made.
fn attach(image: &Path) -> io::Result<(String, Leftover)> {
    let mut command = Command::new("losetup");
    let out = command.args(["--find", "--show"]).arg(image).process_group(0).output()?;
    if !out.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).trim().to_owned()));
    }
    let device = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    Ok((device.clone(), Leftover::Loop(device)))
}

/// A program that another thread starts has every descriptor of ours until its `execve`: what is
/// busy now is not for long.
fn soon(mut f: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    const TRIES: u32 = 2000;
    for _ in 0..TRIES {
        match f() {
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
    f()
}

fn errno(e: Errno) -> String {
    let name = match e {
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::UCLEAN => "EUCLEAN",
        Errno::BADMSG => "EBADMSG",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::ROFS => "EROFS",
        other => return other.to_string(),
    };
    name.to_owned()
}

fn walk(dir: &Path, path: &str, block: u32, out: &mut BTreeMap<String, Found>) {
    let names: io::Result<Vec<_>> = fs::read_dir(dir).and_then(Iterator::collect);
    let names = match names {
        Ok(names) => names,
        Err(e) => {
            out.insert(path.to_owned(), Found::Unreadable(e.to_string()));
            return;
        }
    };
    for name in names {
        let here = name.file_name();
        let text = here.to_string_lossy();
        if path.is_empty() && text == "lost+found" {
            continue;
        }
        let full = if path.is_empty() { text.into_owned() } else { format!("{path}/{text}") };
        let place = name.path();
        match file(&place, &full, block) {
            Ok(file) => {
                let is_dir = file.kind == FileType::Dir;
                out.insert(full.clone(), Found::File(Box::new(file)));
                if is_dir {
                    walk(&place, &full, block, out);
                }
            }
            Err(e) => drop(out.insert(full, Found::Unreadable(e.to_string()))),
        }
    }
}

fn file(place: &Path, path: &str, block: u32) -> io::Result<Survivor> {
    let meta = fs::symlink_metadata(place)?;
    let kind = FileType::from_mode(meta.mode())
        .ok_or_else(|| io::Error::other(format!("mode {:o}", meta.mode())))?;
    let target = match kind {
        FileType::Symlink => Some(fs::read_link(place)?.to_string_lossy().into_owned()),
        _ => None,
    };
    // As in our survey: a file is there, also if its attributes cannot be read.
    let xattrs = xattrs(place).ok();
    let (mut blocks, mut tail) = (Vec::new(), None);
    if kind == FileType::File {
        (blocks, tail) = contents(place, meta.size(), u64::from(block))?;
    }
    Ok(Survivor {
        path: path.to_owned(),
        kind,
        ino: meta.ino(),
        nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        size: meta.size(),
        stat: Some(stat(place, &meta)),
        target,
        xattrs,
        blocks,
        tail,
        allocated: None,
    })
}

/// Flags of a file or directory; none of one that cannot be opened or has none.
fn flags(place: &Path, meta: &fs::Metadata) -> FileFlags {
    if !meta.is_file() && !meta.is_dir() {
        return FileFlags::NONE;
    }
    let flags = fs::File::open(place).ok().and_then(|f| rustix::fs::ioctl_getflags(f).ok());
    FileFlags(flags.map_or(0, |f| f.bits()) & FileFlags::SETTABLE.0)
}

fn stat(place: &Path, meta: &fs::Metadata) -> Stat {
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
    Stat {
        mode: meta.mode() & 0o7777,
        owner: (meta.uid(), meta.gid()),
        mtime: TimeSpec { secs: meta.mtime(), nanos },
        device: DeviceNumber { major, minor },
        flags: flags(place, meta),
    }
}

/// Extended attributes by name; of a symbolic link its own.
fn xattrs(place: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(place, &mut names)?;
    let names = names[..length].split(|b| *b == 0).filter(|name| !name.is_empty());
    let mut value = vec![0; 1 << 16];
    let mut out = Vec::new();
    for name in names {
        let length = rustix::fs::lgetxattr(place, name, &mut value)?;
        out.push((String::from_utf8_lossy(name).into_owned(), value[..length].to_vec()));
    }
    out.sort();
    Ok(out)
}

/// Whole blocks that are not zero, and what is left of the last.
type Contents = (Vec<(u64, u128)>, Option<Vec<u8>>);

fn contents(place: &Path, size: u64, block: u64) -> io::Result<Contents> {
    let mut file = File::open(place)?;
    let (mut blocks, mut tail) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; CHUNK as usize];
    let mut at = 0;
    while at < size {
        if size > 64 * CHUNK && at.is_multiple_of(CHUNK) {
            // A length gone wild: holes are not read one by one.
            at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
                Ok(data) => (data / block * block).max(at),
                Err(Errno::NXIO) => size / block * block,
                Err(e) => return Err(e.into()),
            };
            rustix::fs::seek(&file, SeekFrom::Start(at))?;
        }
        let part = &mut buffer[..(size - at).min(CHUNK - at % CHUNK) as usize];
        file.read_exact(part)?;
        for (i, bytes) in part.chunks(block as usize).enumerate() {
            match bytes.len() as u64 == block {
                true if bytes.iter().all(|b| *b == 0) => {}
                true => blocks.push((at / block + i as u64, Slice::from_bytes(bytes).id())),
                false => tail = bytes.to_vec(),
            }
        }
        at += part.len() as u64;
    }
    Ok((blocks, (!size.is_multiple_of(block)).then_some(tail)))
}
