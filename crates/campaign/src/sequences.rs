//! Bounded exhaustive programs, as ACE makes them: every sequence of one, two or more operations on
//! a small set of files, each followed by every way to make something durable.
//!
//! Source: Mohan et al., OSDI 2018, section 5: file set, operations, persistence points, and
//!         dependencies that are durable before the sequence begins.

use std::cmp::Ordering;

use wp_vfs::{DeviceNumber, FileFlags, FileType, RenameHow, TimeSpec};
use wp_workload::program::{Alloc, Call, Flags, Program, Step};

/// Length of a file that is there before, bytes.
const LENGTH: u32 = 8192;
/// Descriptors: of the file that is worked on, and of what is synced.
const FD: u32 = 0;
const SYNC_FD: u32 = 1;

/// An operation on the file set `foo`, `bar`, `A/foo`, `B/bar`.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Create(&'static str),
    Mkdir(&'static str),
    Write {
        file: &'static str,
        at: u64,
        len: u32,
        direct: bool,
    },
    Truncate {
        file: &'static str,
        len: u64,
    },
    Fallocate {
        file: &'static str,
        how: Alloc,
        at: u64,
        len: u64,
    },
    Link(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Symlink(&'static str, &'static str),
    SetXattr {
        path: &'static str,
        len: u32,
    },
    RemoveXattr(&'static str),
    Chmod(&'static str),
    Chown(&'static str),
    Utimensat(&'static str),
    Mkfifo(&'static str),
    Mknod(&'static str),
    /// A file without a name that gets one.
    Tmpfile(&'static str),
    Renameat2(&'static str, &'static str, RenameHow),
    /// A store through a mapping, with `msync` behind it or without.
    Mmap {
        file: &'static str,
        at: u64,
        len: u32,
        syncs: bool,
    },
    /// A write to the end (`O_APPEND`).
    Append(&'static str),
    /// A write, and `sync_file_range` of it.
    SyncFileRange(&'static str),
    /// The first block of one file behind the end of another.
    CopyRange(&'static str, &'static str),
    /// All of one file behind the end of another, without a copy.
    Reflink(&'static str, &'static str),
    /// A block that is written to both files, and shared then.
    Dedupe(&'static str, &'static str),
    Chattr(&'static str, FileFlags),
    Subvolume(&'static str),
    /// A snapshot of everything.
    Snapshot(&'static str),
    /// The end of a subvolume that is durable, with a file in it.
    DeleteSubvolume(&'static str),
    /// A directory whose group, and that bit, go to what is made in it.
    SetGroup(&'static str),
}

use Operation::{
    Append, Chattr, Chmod, Chown, CopyRange, Create, Dedupe, DeleteSubvolume, Fallocate, Link,
    Mkdir, Mkfifo, Mknod, Mmap, Reflink, RemoveXattr, Rename, Renameat2, Rmdir, SetGroup, SetXattr,
    Snapshot, Subvolume, Symlink, SyncFileRange, Tmpfile, Truncate, Unlink, Utimensat, Write,
};

/// Those that are not ACE's.
const FURTHER: &[Operation] = &[
    Chmod("foo"),
    Chmod("A"),
    Chown("foo"),
    Utimensat("foo"),
    Mkfifo("A/pipe"),
    Mknod("node"),
    Tmpfile("baz"),
    Tmpfile("A/baz"),
    Renameat2("foo", "A/bar", RenameHow::NoReplace),
    Renameat2("foo", "A/foo", RenameHow::Exchange),
    Renameat2("A", "bar", RenameHow::Exchange),
    Renameat2("foo", "bar", RenameHow::Whiteout),
    Renameat2("A/foo", "baz", RenameHow::Whiteout),
    Mmap { file: "foo", at: 4096, len: 100, syncs: false },
    Mmap { file: "foo", at: 0, len: 8192, syncs: true },
    Fallocate { file: "foo", how: Alloc::Collapse, at: 0, len: 4096 },
    Fallocate { file: "foo", how: Alloc::Insert, at: 4096, len: 4096 },
    Append("foo"),
    SyncFileRange("foo"),
    CopyRange("foo", "bar"),
    Reflink("foo", "bar"),
    Dedupe("foo", "bar"),
    Chattr("foo", FileFlags::SYNC),
    Chattr("foo", FileFlags::APPEND),
    Chattr("foo", FileFlags::JOURNAL_DATA),
    Chattr("A", FileFlags::DIRSYNC),
    SetGroup("A"),
    Subvolume("A/foo"),
    Snapshot("snap"),
    DeleteSubvolume("B/sub"),
];

/// ACE's.
const OPERATIONS: &[Operation] = &[
    Create("foo"),
    Create("A/foo"),
    Mkdir("C"),
    Mkdir("A/C"),
    // Appends, overwrites of the start, across the end, unaligned, and behind a hole.
    Write { file: "foo", at: 8192, len: 4096, direct: false },
    Write { file: "foo", at: 0, len: 4096, direct: false },
    Write { file: "foo", at: 4096, len: 8192, direct: false },
    Write { file: "foo", at: 5000, len: 6000, direct: false },
    Write { file: "foo", at: 20480, len: 4096, direct: false },
    Write { file: "A/foo", at: 8192, len: 4096, direct: false },
    Write { file: "bar", at: 0, len: 8192, direct: false },
    Write { file: "foo", at: 8192, len: 4096, direct: true },
    Write { file: "foo", at: 0, len: 4096, direct: true },
    Truncate { file: "foo", len: 0 },
    Truncate { file: "foo", len: 2500 },
    Truncate { file: "foo", len: 16384 },
    Fallocate { file: "foo", how: Alloc::Extend, at: 8192, len: 8192 },
    Fallocate { file: "foo", how: Alloc::Keep, at: 8192, len: 8192 },
    Fallocate { file: "foo", how: Alloc::Punch, at: 4096, len: 4096 },
    Fallocate { file: "foo", how: Alloc::Zero, at: 4096, len: 8192 },
    Link("foo", "A/bar"),
    Link("foo", "baz"),
    Rename("foo", "bar"),
    Rename("foo", "A/bar"),
    Rename("A/foo", "foo"),
    Rename("A", "C"),
    Unlink("foo"),
    Unlink("A/foo"),
    Rmdir("B"),
    Symlink("foo", "A/link"),
    // One that fits beside the inode, and one that needs a block.
    SetXattr { path: "foo", len: 24 },
    SetXattr { path: "foo", len: 1000 },
    RemoveXattr("bar"),
];

/// The attribute that operations set and remove; `bar` has it before.
const ATTRIBUTE: &str = "user.note";

/// What follows an operation.
#[derive(Clone, Copy, Debug)]
enum Persist {
    Nothing,
    Fsync,
    Fdatasync,
    FsyncDir,
    Syncfs,
}

const PERSISTS: [Persist; 5] =
    [Persist::Fsync, Persist::Fdatasync, Persist::FsyncDir, Persist::Syncfs, Persist::Nothing];
/// The last operation is always followed by something.
const LAST_PERSISTS: u64 = 4;

impl Operation {
    /// Files that must be there before, with contents.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Create(_) | Mkdir(_) | Rmdir(_) | Symlink(..) => &[],
            Write { file: "A/foo", .. } | Unlink("A/foo") | Rename("A/foo" | "A", _) => &["A/foo"],
            Write { file: "bar", .. } | RemoveXattr(_) | Renameat2("A", ..) => &["bar"],
            Rename("foo", "bar") | Renameat2("foo", "bar", _) => &["foo", "bar"],
            CopyRange(..) | Reflink(..) | Dedupe(..) => &["foo", "bar"],
            Mkfifo(_) | Mknod(_) | Tmpfile(_) | Chmod("A") | Chattr("A", _) | SetGroup(_) => &[],
            Subvolume(_) | DeleteSubvolume(_) => &[],
            Snapshot(_) => &["foo", "A/foo"],
            Renameat2("foo", "A/foo", _) => &["foo", "A/foo"],
            Renameat2("A/foo", ..) => &["A/foo"],
            _ => &["foo"],
        }
    }

    /// What a sync after it is about, as it is called then.
    fn about(self) -> &'static str {
        match self {
            Create(f) | Mkdir(f) | Unlink(f) | Rmdir(f) => f,
            Write { file, .. } | Truncate { file, .. } | Fallocate { file, .. } => file,
            SetXattr { path, .. } | RemoveXattr(path) => path,
            Link(_, new) | Rename(_, new) | Symlink(_, new) => new,
            Mmap { file, .. } | Append(file) | SyncFileRange(file) => file,
            Chmod(path) | Chown(path) | Utimensat(path) => path,
            Chattr(path, _) | SetGroup(path) => path,
            Subvolume(path) | Snapshot(path) | DeleteSubvolume(path) => path,
            Mkfifo(path) | Mknod(path) | Tmpfile(path) => path,
            Renameat2(_, new, _) => new,
            CopyRange(_, new) | Reflink(_, new) | Dedupe(_, new) => new,
        }
    }

    /// Is there nothing of its own behind the name now that could be opened?
    fn is_of_name(self) -> bool {
        let is_gone = matches!(self, Unlink(_) | Rmdir(_) | DeleteSubvolume(_));
        is_gone || matches!(self, Symlink(..) | Mkfifo(_) | Mknod(_))
    }
}

/// Writes a program.
struct Writer {
    steps: Vec<Step>,
    seed: u32,
}

const WRITE: Flags = Flags::WRITE;
const CREATE: Flags = Flags::CREATE;
const READ: Flags = Flags::READ;

impl Writer {
    fn call(&mut self, call: Call) {
        self.steps.push(Step::call(call));
    }

    fn on(&mut self, file: &str, how: Flags, call: impl FnOnce(u32) -> Call) {
        self.seed += 1;
        let call = call(self.seed);
        self.call(Call::Open(FD, file.to_owned(), how));
        self.call(call);
        self.call(Call::Close(FD));
    }

    fn set_xattr(&mut self, path: &str, len: u32) {
        self.seed += 1;
        let (path, name, seed) = (path.to_owned(), ATTRIBUTE.to_owned(), self.seed);
        self.call(Call::SetXattr { path, name, len, data: seed.into() });
    }

    fn operation(&mut self, op: Operation) {
        match op {
            Create(file) => {
                self.call(Call::Open(FD, file.to_owned(), CREATE));
                self.call(Call::Close(FD));
            }
            Mkdir(dir) => self.call(Call::Mkdir(dir.to_owned())),
            Write { file, at, len, direct } => {
                let how = Flags { direct, ..WRITE };
                self.on(file, how, |seed| Call::pwrite(FD, len, at, seed));
            }
            Truncate { file, len } => self.on(file, WRITE, |_| Call::Ftruncate(FD, len)),
            Fallocate { file, how, at, len } => {
                self.on(file, WRITE, |_| Call::Fallocate(FD, how, at, len));
            }
            Link(old, new) => self.call(Call::Link(old.to_owned(), new.to_owned())),
            Rename(old, new) => self.call(Call::Rename(old.to_owned(), new.to_owned())),
            Unlink(file) => self.call(Call::Unlink(file.to_owned())),
            Rmdir(dir) => self.call(Call::Rmdir(dir.to_owned())),
            Symlink(to, path) => self.call(Call::Symlink(to.to_owned(), path.to_owned())),
            SetXattr { path, len } => self.set_xattr(path, len),
            Chmod(path) => self.call(Call::Chmod(path.to_owned(), 0o710)),
            Chown(path) => self.call(Call::Chown(path.to_owned(), 1000, 100)),
            Chattr(path, flags) => self.call(Call::Chattr(path.to_owned(), flags)),
            Subvolume(path) => self.call(Call::SubvolumeCreate(path.to_owned())),
            Snapshot(to) => {
                let (from, to, readonly) = (".".to_owned(), to.to_owned(), false);
                self.call(Call::Snapshot { from, to, readonly });
            }
            DeleteSubvolume(path) => self.call(Call::SubvolumeDelete(path.to_owned())),
            SetGroup(path) => {
                self.call(Call::Chown(path.to_owned(), 0, 100));
                self.call(Call::Chmod(path.to_owned(), 0o2755));
            }
            Utimensat(path) => {
                let time = |secs, nanos| TimeSpec { secs, nanos };
                let (atime, mtime) = (time(1_000_000_000, 1), time(1_000_000_001, 123_456_789));
                self.call(Call::Utimensat(path.to_owned(), atime, mtime));
            }
            Mkfifo(path) => self.call(Call::Mkfifo(path.to_owned())),
            Mknod(path) => {
                let device = DeviceNumber { major: 1, minor: 3 };
                self.call(Call::Mknod(path.to_owned(), FileType::Char, device));
            }
            Tmpfile(path) => {
                self.seed += 1;
                let (fd, len, at, seed) = (FD, LENGTH, 0, self.seed);
                self.call(Call::Open(FD, ".".to_owned(), Flags { tmpfile: true, ..WRITE }));
                self.call(Call::pwrite(fd, len, at, seed));
                self.call(Call::Linkat(FD, path.to_owned()));
                self.call(Call::Close(FD));
            }
            Renameat2(old, new, how) => {
                self.call(Call::Renameat2(old.to_owned(), new.to_owned(), how));
            }
            Mmap { file, at, len, syncs } => {
                self.seed += 1;
                let (fd, seed) = (FD, self.seed);
                self.call(Call::Open(FD, file.to_owned(), WRITE));
                self.call(Call::MmapWrite { fd, len, at, data: seed.into() });
                if syncs {
                    self.call(Call::Msync(FD, at, u64::from(len)));
                }
                self.call(Call::Close(FD));
            }
            Append(file) => {
                let how = Flags { append: true, ..WRITE };
                self.on(file, how, |seed| Call::pwrite(FD, 3000, 0, seed));
            }
            SyncFileRange(file) => {
                self.seed += 1;
                let (fd, len, at, seed) = (FD, LENGTH, 4096, self.seed);
                self.call(Call::Open(FD, file.to_owned(), WRITE));
                self.call(Call::pwrite(fd, len, at, seed));
                self.call(Call::SyncFileRange(FD, 4096, u64::from(LENGTH)));
                self.call(Call::Close(FD));
            }
            CopyRange(from, to) => {
                self.call(Call::Open(FD, from.to_owned(), READ));
                self.call(Call::Open(SYNC_FD, to.to_owned(), WRITE));
                let (from, to, to_at, len) = (FD, SYNC_FD, u64::from(LENGTH), 4096);
                self.call(Call::CopyFileRange { from, from_at: 0, to, to_at, len });
                self.call(Call::Close(SYNC_FD));
                self.call(Call::Close(FD));
            }
            Reflink(from, to) => {
                self.call(Call::Open(FD, from.to_owned(), READ));
                self.call(Call::Open(SYNC_FD, to.to_owned(), WRITE));
                let (from, to, to_at) = (FD, SYNC_FD, u64::from(LENGTH));
                self.call(Call::Reflink { from, from_at: 0, to, to_at, len: 0 });
                self.call(Call::Close(SYNC_FD));
                self.call(Call::Close(FD));
            }
            Dedupe(from, to) => {
                self.seed += 1;
                let (at, seed) = (0, self.seed);
                self.call(Call::Open(FD, from.to_owned(), WRITE));
                self.call(Call::Open(SYNC_FD, to.to_owned(), WRITE));
                for fd in [FD, SYNC_FD] {
                    self.call(Call::pwrite(fd, 4096, at, seed));
                }
                let (from, to, len) = (FD, SYNC_FD, 4096);
                self.call(Call::Dedupe { from, from_at: 0, to, to_at: 0, len });
                self.call(Call::Close(SYNC_FD));
                self.call(Call::Close(FD));
            }
            RemoveXattr(path) => {
                self.call(Call::RemoveXattr(path.to_owned(), ATTRIBUTE.to_owned()));
            }
        }
    }

    fn persist(&mut self, op: Operation, how: Persist) {
        let dir = op.about().rsplit_once('/').map_or(".", |(dir, _)| dir);
        // What was removed has no descriptor, nor has a link: the directory has.
        let file = if op.is_of_name() { dir } else { op.about() };
        let (path, call) = match how {
            Persist::Nothing => return,
            Persist::Fsync => (file, Call::Fsync(SYNC_FD)),
            Persist::Fdatasync => (file, Call::Fdatasync(SYNC_FD)),
            Persist::FsyncDir => (dir, Call::Fsync(SYNC_FD)),
            Persist::Syncfs => (".", Call::Syncfs(SYNC_FD)),
        };
        self.call(Call::Open(SYNC_FD, path.to_owned(), READ));
        self.call(call);
        self.call(Call::Close(SYNC_FD));
    }
}

/// Which operations sequences are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// ACE's.
    Ace,
    /// All that programs have, with one at least that is not ACE's.
    Further,
}

/// Ways to sync the operations of a sequence.
fn syncs(length: u32) -> u64 {
    (PERSISTS.len() as u64).pow(length.saturating_sub(1)) * LAST_PERSISTS
}

/// How many sequences of operations there are: for each place of the first that is not ACE's.
fn sequences(of: Of, length: u32) -> Vec<u64> {
    let (ace, further) = (OPERATIONS.len() as u64, FURTHER.len() as u64);
    match of {
        Of::Ace => vec![ace.pow(length)],
        Of::Further => {
            let at = |i| ace.pow(i) * further * (ace + further).pow(length - 1 - i);
            (0..length).map(at).collect()
        }
    }
}

/// How many programs of `length` operations there are.
pub fn count(of: Of, length: u32) -> u64 {
    sequences(of, length).iter().sum::<u64>() * syncs(length)
}

/// Takes the lowest digit of `n`, of `of` that there are.
fn take(n: &mut u64, of: u64) -> usize {
    let digit = *n % of;
    *n /= of;
    digit as usize
}

/// Operations number `n`, and how each is synced.
fn operations(of: Of, length: u32, n: u64) -> Vec<(Operation, Persist)> {
    let mut n = n % count(of, length).max(1);
    // Where the first stands that is not ACE's; behind the end: nowhere.
    let mut first = length;
    if of == Of::Further {
        first = 0;
        for many in sequences(of, length) {
            if n < many * syncs(length) {
                break;
            }
            n -= many * syncs(length);
            first += 1;
        }
    }
    let all = || OPERATIONS.iter().chain(FURTHER);
    let mut ops = Vec::new();
    for i in (0..length).rev() {
        let persists = if i + 1 == length { LAST_PERSISTS } else { PERSISTS.len() as u64 };
        let how = PERSISTS[take(&mut n, persists)];
        let (ace, further) = (OPERATIONS.len() as u64, FURTHER.len() as u64);
        let number = match i.cmp(&first) {
            Ordering::Less => take(&mut n, ace),
            Ordering::Equal => OPERATIONS.len() + take(&mut n, further),
            Ordering::Greater => take(&mut n, ace + further),
        };
        ops.extend(all().nth(number).map(|op| (*op, how)));
    }
    ops.reverse();
    ops
}

/// Program number `n` of those with `length` operations. Calls that fail, on what an earlier one
/// has taken away, are part of it.
pub fn program(of: Of, length: u32, n: u64) -> Program {
    let ops = operations(of, length, n);
    let mut w = Writer { steps: Vec::new(), seed: 0 };
    w.call(Call::Mkdir("A".to_owned()));
    w.call(Call::Mkdir("B".to_owned()));
    let mut needs: Vec<&str> = ops.iter().flat_map(|(op, _)| op.needs()).copied().collect();
    needs.sort_unstable();
    needs.dedup();
    for file in needs {
        w.on(file, CREATE, |seed| Call::pwrite(FD, LENGTH, 0, seed));
    }
    if ops.iter().any(|(op, _)| matches!(op, RemoveXattr(_))) {
        w.set_xattr("bar", 100);
    }
    for (op, _) in &ops {
        if let DeleteSubvolume(path) = op {
            w.call(Call::SubvolumeCreate((*path).to_owned()));
            w.on(&format!("{path}/foo"), CREATE, |seed| Call::pwrite(FD, LENGTH, 0, seed));
        }
    }
    w.call(Call::Open(SYNC_FD, ".".to_owned(), READ));
    w.call(Call::Syncfs(SYNC_FD));
    w.call(Call::Close(SYNC_FD));
    w.steps.push(Step::Case("sequence".to_owned()));
    for (op, how) in ops {
        w.operation(op);
        w.persist(op, how);
    }
    Program(w.steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_all_different_and_parse() {
        for of in [Of::Ace, Of::Further] {
            let all = count(of, 1);
            let texts: std::collections::BTreeSet<String> =
                (0..all).map(|n| program(of, 1, n).to_string()).collect();
            // A few coincide: what is about a removed file is about its directory.
            assert!(texts.len() as u64 > all * 8 / 10, "{} of {all}", texts.len());
            for n in (0..count(of, 2)).step_by(997) {
                let p = program(of, 2, n);
                assert_eq!(Program::parse(&p.to_string()), Ok(p));
            }
        }
    }

    #[test]
    fn each_sequence_of_further_calls_has_one_of_them() {
        let (ace, further) = (OPERATIONS.len() as u64, FURTHER.len() as u64);
        let pairs = (ace + further).pow(2) - ace.pow(2);
        assert_eq!(count(Of::Further, 2), pairs * syncs(2));
        let is_further =
            |op: &Operation| FURTHER.iter().any(|f| format!("{f:?}") == format!("{op:?}"));
        for n in (0..count(Of::Further, 3)).step_by(99_991) {
            let ops = operations(Of::Further, 3, n);
            assert!(ops.iter().any(|(op, _)| is_further(op)), "{n}: {ops:?}");
        }
    }
}
