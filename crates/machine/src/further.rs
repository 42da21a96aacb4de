//! Calls that few programs make, for programs that are made up: files without a name, exchanges and
//! whiteouts, devices and pipes, permissions, owners and times, stores through mappings, ranges
//! that are taken out and put in, writes to the end, copies, blocks that files share, subvolumes
//! and snapshots, checkpoints, flags, seeks for data and holes.

use wp_vfs::{DeviceNumber, FileFlags, FileType, Offers, RenameHow, Seek, TimeSpec};
use wp_workload::program::{Alloc, Call, Flags};

/// Descriptors in use at most.
pub const OPEN: u32 = 6;

/// An open descriptor of a program, as the program knows it.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Its number.
    pub fd: u32,
    /// Length of its file.
    pub size: u64,
    /// Opened with `O_DIRECT`.
    pub direct: bool,
}

/// Who makes up a program.
pub trait Author {
    /// A number below `n`, or 0.
    fn below(&mut self, n: u64) -> u64;
    /// Adds a call.
    fn call(&mut self, call: Call);
    /// A name that nothing has.
    fn new_name(&mut self) -> String;
    /// Names of files.
    fn files(&mut self) -> &mut Vec<String>;
    /// Names of directories.
    fn dirs(&mut self) -> &mut Vec<String>;
    /// What is open.
    fn open(&mut self) -> &mut Vec<Open>;
    /// A seed of contents.
    fn seed(&mut self) -> u32;
}

fn one_of(a: &mut impl Author, of: &[String]) -> Option<String> {
    let i = a.below(of.len() as u64) as usize;
    of.get(i).cloned()
}

fn a_file(a: &mut impl Author) -> Option<String> {
    let files = a.files().clone();
    one_of(a, &files)
}

fn an_open_one(a: &mut impl Author) -> Option<(usize, Open)> {
    let n = a.open().len() as u64;
    let at = a.below(n) as usize;
    a.open().get(at).map(|o| (at, *o))
}

fn free_fd(a: &mut impl Author) -> Option<u32> {
    (0..OPEN).find(|fd| !a.open().iter().any(|o| o.fd == *fd))
}

/// Adds such a call, or some, of those that the file system has.
pub fn call(a: &mut impl Author, has: &Offers) {
    // Drawn only where it can happen, so that the programs without are what they were.
    if has.subvolumes && a.below(5) == 0 {
        return subvolume(a);
    }
    // Nothing changes where there are none.
    match a.below(if has.checkpoints { 21 } else { 18 }) {
        18.. => checkpoint(a),
        16 => chattr(a),
        17 => seek(a),
        0..=1 if has.unnamed => tmpfile(a),
        2..=3 => renameat2(a, has),
        4 => node(a),
        5..=7 => stat(a),
        8..=11 => mapped(a),
        12 => append(a),
        13 if has.copies => copy(a, has),
        14..=15 if has.moves_ranges => shift(a),
        _ => mapped(a),
    }
}

/// Is the last name of a path one that [`subvolume`] gives?
fn is_subvolume(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with('s'))
}

/// A subvolume, a snapshot, or the end of one with all that is in it.
fn subvolume(a: &mut impl Author) {
    let subvolumes: Vec<String> =
        a.dirs().iter().filter(|dir| is_subvolume(dir)).cloned().collect();
    let name = a.new_name();
    let name = match name.rsplit_once('/') {
        Some((dir, name)) => format!("{dir}/s{name}"),
        None => format!("s{name}"),
    };
    match a.below(8) {
        0..=2 => {
            a.call(Call::SubvolumeCreate(name.clone()));
            a.dirs().push(name);
        }
        3..=6 => {
            let from = one_of(a, &subvolumes).filter(|_| a.below(4) > 0);
            let readonly = a.below(4) == 0;
            let (source, prefix) = match from {
                Some(from) => (from.clone(), format!("{from}/")),
                None => (".".to_owned(), String::new()),
            };
            let copy = |all: &[String]| -> Vec<String> {
                let inside = all.iter().filter_map(|path| path.strip_prefix(&prefix));
                let own = inside.filter(|rest| {
                    let dirs = rest.rsplit_once('/').map_or("", |(dirs, _)| dirs);
                    !dirs.split('/').any(|dir| dir.starts_with('s'))
                });
                own.take(8).map(|rest| format!("{name}/{rest}")).collect()
            };
            let (files, dirs) = (copy(a.files()), copy(a.dirs()));
            a.files().extend(files);
            // What a snapshot has instead of a subvolume is empty, and stays so.
            a.dirs().extend(dirs.into_iter().filter(|dir| !is_subvolume(dir)));
            a.dirs().push(name.clone());
            a.call(Call::Snapshot { from: source, to: name, readonly });
        }
        _ => {
            let Some(gone) = one_of(a, &subvolumes) else { return };
            let inside = format!("{gone}/");
            a.dirs().retain(|dir| *dir != gone && !dir.starts_with(&inside));
            a.files().retain(|file| !file.starts_with(&inside));
            a.call(Call::SubvolumeDelete(gone));
        }
    }
}

fn node(a: &mut impl Author) {
    let name = a.new_name();
    // No program opens it: a pipe would wait for its other end.
    let made = match a.below(3) {
        0 => Call::Mkfifo(name),
        1 => Call::Mknod(name, FileType::Char, DeviceNumber { major: 1, minor: 3 }),
        // Too large for 16 bits.
        _ => Call::Mknod(name, FileType::Block, DeviceNumber { major: 259, minor: 300 }),
    };
    a.call(made);
}

fn write(a: &mut impl Author, at: usize) {
    let Some(Open { fd, size, direct }) = a.open().get(at).copied() else { return };
    let grain = if direct { 4096 } else { 512 };
    let (len, offset) = ((1 + a.below(16)) * grain, a.below(size / grain + 2) * grain);
    a.open()[at].size = size.max(offset + len);
    let seed = a.seed();
    a.call(Call::pwrite(fd, len as u32, offset, seed));
}

fn tmpfile(a: &mut impl Author) {
    let Some(fd) = free_fd(a) else { return };
    let dirs = a.dirs().clone();
    let dir = one_of(a, &dirs).unwrap_or_else(|| ".".to_owned());
    a.call(Call::Open(fd, dir, Flags { tmpfile: true, ..Flags::WRITE }));
    a.open().push(Open { fd, size: 0, direct: false });
    let at = a.open().len() - 1;
    if a.below(3) > 0 {
        write(a, at);
    }
    if a.below(4) > 0 {
        let name = a.new_name();
        a.files().push(name.clone());
        a.call(Call::Linkat(fd, name));
    }
}

fn renameat2(a: &mut impl Author, has: &Offers) {
    let Some(old) = a_file(a) else { return };
    let other = a_file(a).filter(|other| *other != old);
    let kind = if has.unnamed { a.below(3) } else { 2 };
    match (kind, other) {
        (0, Some(other)) => a.call(Call::Renameat2(old, other, RenameHow::Exchange)),
        (1, other) => {
            let new = other.unwrap_or_else(|| a.new_name());
            // The old name is a device's now.
            a.files().retain(|f| *f != new && *f != old);
            a.files().push(new.clone());
            a.call(Call::Renameat2(old, new, RenameHow::Whiteout));
        }
        _ => {
            let new = a.new_name();
            a.files().retain(|f| *f != old);
            a.files().push(new.clone());
            a.call(Call::Renameat2(old, new, RenameHow::NoReplace));
        }
    }
}

fn stat(a: &mut impl Author) {
    let mut all = a.files().clone();
    all.extend(a.dirs().iter().cloned());
    let Some(path) = one_of(a, &all) else { return };
    let n = a.seed();
    let is_dir = a.dirs().contains(&path);
    match a.below(3) {
        // What is made in it from here on has its group.
        0 if is_dir => a.call(Call::Chmod(path, 0o2755)),
        0 => a.call(Call::Chmod(path, 0o600 + n % 0o100)),
        1 => a.call(Call::Chown(path, 1000 + n, 70_000 + n)),
        _ => {
            let time = |secs, nanos| TimeSpec { secs, nanos };
            let (atime, mtime) = (time(1_000_000_000, 1), time(1_000_000_000 + i64::from(n), n));
            a.call(Call::Utimensat(path, atime, mtime));
        }
    }
}

/// Flags that do little, and some that forbid much, mostly for a while only.
fn chattr(a: &mut impl Author) {
    let (dirs, many) = (a.dirs().clone(), a.below(3));
    let dir = if many == 0 { one_of(a, &dirs) } else { None };
    if let Some(dir) = dir {
        let all = [FileFlags::NONE, FileFlags::DIRSYNC, FileFlags::SYNC, FileFlags::NODUMP];
        let flags = all[a.below(4) as usize];
        return a.call(Call::Chattr(dir, flags));
    }
    let Some(file) = a_file(a) else { return };
    let all = [
        FileFlags::NONE,
        FileFlags::SYNC,
        FileFlags::SYNC.and(FileFlags::NOATIME),
        FileFlags::NODUMP,
        FileFlags::JOURNAL_DATA,
        FileFlags::NOCOW,
        FileFlags::APPEND,
        FileFlags::IMMUTABLE,
    ];
    let flags = all[a.below(8) as usize];
    a.call(Call::Chattr(file.clone(), flags));
    if flags.is_protected() {
        if let Some((at, _)) = an_open_one(a) {
            write(a, at);
        }
        if a.below(4) > 0 {
            a.call(Call::Chattr(file, FileFlags::NONE));
        }
    }
}

/// Checkpoints 1 to 12: programs seldom make more.
fn checkpoint(a: &mut impl Author) {
    let number = 1 + a.below(12);
    match a.below(8) {
        0..=2 => a.call(Call::Mkcp(true)),
        3 => a.call(Call::Mkcp(false)),
        4..=5 => a.call(Call::Chcp(true, number)),
        6 => a.call(Call::Chcp(false, number)),
        _ => a.call(Call::Rmcp(number)),
    }
}

fn seek(a: &mut impl Author) {
    let Some((_, Open { fd, size, .. })) = an_open_one(a) else { return };
    let (what, at) = (a.below(2), a.below(size + 2000));
    a.call(Call::Seek(fd, if what == 0 { Seek::Data } else { Seek::Hole }, at));
}

/// A store through a mapping, `msync`, `sync_file_range`.
fn mapped(a: &mut impl Author) {
    let Some((at, Open { fd, size, .. })) = an_open_one(a) else { return };
    let from = a.below(size);
    let (most, all) = (1 + a.below(12_000), a.below(2) == 0);
    match a.below(4) {
        0 => a.call(Call::Msync(fd, from / 4096 * 4096, most)),
        1 => a.call(Call::SyncFileRange(fd, from, if all { 0 } else { 8192 })),
        _ if size > 0 => {
            let len = (1 + a.below(9000)).min(size - from) as u32;
            let seed = a.seed();
            a.call(Call::MmapWrite { fd, len, at: from, data: seed.into() });
        }
        _ => write(a, at),
    }
}

fn append(a: &mut impl Author) {
    let (Some(fd), Some(name)) = (free_fd(a), a_file(a)) else { return };
    a.call(Call::Open(fd, name, Flags { append: true, ..Flags::WRITE }));
    for _ in 0..1 + a.below(3) {
        let (len, seed) = (1 + a.below(6000) as u32, a.seed());
        a.call(Call::pwrite(fd, len, 0, seed));
    }
    if a.below(2) == 0 {
        a.call(Call::Fsync(fd));
    }
    a.call(Call::Close(fd));
}

/// Adds a copy, or a clone or dedupe where the file system shares blocks.
pub fn copy(a: &mut impl Author, has: &Offers) {
    let (Some((_, from)), Some((at, to))) = (an_open_one(a), an_open_one(a)) else { return };
    if from.direct || to.direct {
        return;
    }
    if has.shares && a.below(4) > 0 {
        return share(a, from, (at, to));
    }
    let (from_at, to_at) = (a.below(from.size + 1), a.below(to.size + 1));
    let len = 1 + a.below(20_000);
    a.call(Call::CopyFileRange { from: from.fd, from_at, to: to.fd, to_at, len });
}

/// Blocks that two files share, mostly of ranges that can be shared.
fn share(a: &mut impl Author, source: Open, (at, target): (usize, Open)) {
    let (from, to) = (source.fd, target.fd);
    let blocks = source.size / 4096;
    let from_at = a.below(blocks + 1) * 4096;
    let to_at = a.below(target.size / 4096 + 2) * 4096;
    let len = match a.below(4) {
        // Up to the end.
        0 => 0,
        // As far as it goes, or farther: nothing.
        _ => (1 + a.below((blocks + 1).saturating_sub(from_at / 4096))) * 4096,
    };
    match a.below(8) {
        0 => a.call(Call::Dedupe { from, from_at, to, to_at, len: len.max(4096) }),
        1 if from != to => {
            // The same bytes in both, so that there is something to share.
            let (seed, bytes) = (a.seed(), (1 + a.below(4)) as u32 * 4096);
            for fd in [from, to] {
                a.call(Call::pwrite(fd, bytes, from_at, seed));
            }
            let open = &mut a.open()[at];
            open.size = open.size.max(from_at + u64::from(bytes));
            let len = u64::from(bytes);
            a.call(Call::Dedupe { from, from_at, to, to_at: from_at, len });
        }
        2 => {
            // Within blocks: no clone, but a copy.
            let (from_at, to_at) = (from_at + 4096, to_at);
            a.call(Call::CopyFileRange { from, from_at, to, to_at, len: len + 1000 });
        }
        3 => a.call(Call::CopyFileRange { from, from_at, to, to_at, len: len.max(4096) }),
        _ => {
            let all = if len == 0 { source.size.saturating_sub(from_at) } else { len };
            if from_at + all <= source.size {
                let open = &mut a.open()[at];
                open.size = open.size.max(to_at + all);
            }
            a.call(Call::Reflink { from, from_at, to, to_at, len });
        }
    }
}

/// A range of whole blocks that goes, or comes in.
fn shift(a: &mut impl Author) {
    let Some((at, Open { fd, size, .. })) = an_open_one(a) else { return };
    let blocks = size / 4096;
    if blocks < 2 {
        return write(a, at);
    }
    let offset = a.below(blocks) * 4096;
    let len = (1 + a.below(3)) * 4096;
    let goes = a.below(2) == 0 && offset + len < size;
    let (mode, new) = match goes {
        true => (Alloc::Collapse, size - len),
        false => (Alloc::Insert, size + len),
    };
    a.open()[at].size = new;
    a.call(Call::Fallocate(fd, mode, offset, len));
}
