//! Bounded exhaustive programs, as ACE makes them: every sequence of one, two or more operations on
//! a small set of files, each followed by every way to make something durable.
//!
//! Source: Mohan et al., OSDI 2018, section 5: file set, operations, persistence points, and
//!         dependencies that are durable before the sequence begins.

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
    Write { file: &'static str, at: u64, len: u32, direct: bool },
    Truncate { file: &'static str, len: u64 },
    Fallocate { file: &'static str, how: Alloc, at: u64, len: u64 },
    Link(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Symlink(&'static str, &'static str),
    SetXattr { path: &'static str, len: u32 },
    RemoveXattr(&'static str),
}

use Operation::{
    Create, Fallocate, Link, Mkdir, RemoveXattr, Rename, Rmdir, SetXattr, Symlink, Truncate,
    Unlink, Write,
};

/// All of them.
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
            Write { file: "bar", .. } | RemoveXattr(_) => &["bar"],
            Rename("foo", "bar") => &["foo", "bar"],
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
        }
    }

    /// Is there nothing of its own behind the name now that could be opened?
    fn is_of_name(self) -> bool {
        matches!(self, Unlink(_) | Rmdir(_) | Symlink(..))
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
        self.steps.push(Step::Call(None, call));
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
        self.call(Call::SetXattr { path, name, len, seed });
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
                self.on(file, how, |seed| Call::Pwrite { fd: FD, len, at, seed });
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

/// How many programs of `length` operations there are.
pub fn count(length: u32) -> u64 {
    let ops = OPERATIONS.len() as u64;
    ops.pow(length) * (PERSISTS.len() as u64).pow(length.saturating_sub(1)) * LAST_PERSISTS
}

/// Program number `n` of those with `length` operations. Calls that fail, on what an earlier one
/// has taken away, are part of it.
pub fn program(length: u32, n: u64) -> Program {
    let mut n = n % count(length).max(1);
    let mut take = |of: u64| {
        let digit = n % of;
        n /= of;
        digit as usize
    };
    let mut ops = Vec::new();
    for i in (0..length).rev() {
        let persists = if i + 1 == length { LAST_PERSISTS } else { PERSISTS.len() as u64 };
        let how = PERSISTS[take(persists)];
        ops.push((OPERATIONS[take(OPERATIONS.len() as u64)], how));
    }
    ops.reverse();
    let mut w = Writer { steps: Vec::new(), seed: 0 };
    w.call(Call::Mkdir("A".to_owned()));
    w.call(Call::Mkdir("B".to_owned()));
    let mut needs: Vec<&str> = ops.iter().flat_map(|(op, _)| op.needs()).copied().collect();
    needs.sort_unstable();
    needs.dedup();
    for file in needs {
        w.on(file, CREATE, |seed| Call::Pwrite { fd: FD, len: LENGTH, at: 0, seed });
    }
    if ops.iter().any(|(op, _)| matches!(op, RemoveXattr(_))) {
        w.set_xattr("bar", 100);
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
        let texts: std::collections::BTreeSet<String> =
            (0..count(1)).map(|n| program(1, n).to_string()).collect();
        // A few coincide: what is about a removed file is about its directory.
        assert!(texts.len() as u64 > count(1) * 9 / 10, "{} of {}", texts.len(), count(1));
        for n in (0..count(2)).step_by(997) {
            let p = program(2, n);
            assert_eq!(Program::parse(&p.to_string()), Ok(p));
        }
    }
}
