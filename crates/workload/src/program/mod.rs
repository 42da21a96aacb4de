//! Programs: system calls as text, one step a line.
//!
//! ```text
//! case seq0                        what follows belongs to this case
//! align                            wait for the next tick (10 ms) and one millisecond more
//! @open_creat:0 open 0 s_a rw,creat   a timed call: its name and index, then the call
//! pwrite 0 4096 0 1                a call that is not timed: descriptor, bytes, offset, seed
//! aio_write 0 4096 0 1             io_submit of one pwrite; aio_read 0 4096 0: of one pread
//! aio_wait 1                       io_getevents: waits until this number has ended, takes all
//! begin writes 10 … end            times everything between as one
//! nap 20000                        sleep, microseconds
//! exit                             the process ends: every descriptor is closed
//! fail write data 2 1              the device fails requests, see [`Fault`], until `heal`
//! slow write data 2 1 50000        it begins requests late, see [`Slow`], until `heal`
//! tear write data 2 1 512 1024     it writes only a part, see [`Tear`], until `heal`
//! expect ENOENT                    the next call must fail with this error
//! ```
//! The same text is read by `prog.c` in the guest of `wp_lab::vtime`, but for `fail`, `slow`,
//! `tear`, `heal`, `expect`, `pread`, `drop_caches`, `mark`, `fbarrier` and `fdatabarrier`.
//! [`Player`] does the calls on a mounted file system of ours.

mod fault;
mod play;

use std::fmt;

use wp_base::FsError;

use crate::fio::MICROS_MAX;

pub use fault::{Asked, Fault, Place, Slow, Tear};
pub use play::{Ended, MAGIC_SEED, Player, contents};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `O_RDWR` and not `O_RDONLY`.
    pub write: bool,
    /// `O_CREAT`.
    pub create: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_APPEND`: every write goes to the end, wherever it asks for.
    pub append: bool,
    /// `O_DIRECT`.
    pub direct: bool,
    /// `O_DSYNC`.
    pub dsync: bool,
    /// `O_SYNC`.
    pub sync: bool,
}

impl Flags {
    /// `O_RDONLY`.
    pub const READ: Flags = Flags {
        write: false,
        create: false,
        truncate: false,
        append: false,
        direct: false,
        dsync: false,
        sync: false,
    };
    /// `O_RDWR`.
    pub const WRITE: Flags = Flags { write: true, ..Flags::READ };
    /// `O_RDWR|O_CREAT`.
    pub const CREATE: Flags = Flags { create: true, ..Flags::WRITE };

    fn parse(text: &str) -> Result<Flags, String> {
        let mut f = Flags::default();
        for word in text.split(',') {
            match word {
                "r" => {}
                "rw" => f.write = true,
                "creat" => f.create = true,
                "trunc" => f.truncate = true,
                "append" => f.append = true,
                "direct" => f.direct = true,
                "dsync" => f.dsync = true,
                "sync" => f.sync = true,
                _ => {
                    return Err(format!(
                        "`{word}`: flags are r, rw, creat, trunc, append, direct, dsync, sync"
                    ));
                }
            }
        }
        Ok(f)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.write { "rw" } else { "r" })?;
        for (on, name) in [
            (self.create, "creat"),
            (self.truncate, "trunc"),
            (self.append, "append"),
            (self.direct, "direct"),
            (self.dsync, "dsync"),
            (self.sync, "sync"),
        ] {
            if on {
                write!(f, ",{name}")?;
            }
        }
        Ok(())
    }
}

/// What `fallocate` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alloc {
    /// Mode 0: space, and the size moves.
    Extend,
    /// `FALLOC_FL_KEEP_SIZE`.
    Keep,
    /// `FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE`.
    Punch,
    /// `FALLOC_FL_ZERO_RANGE`.
    Zero,
    /// `FALLOC_FL_ZERO_RANGE|FALLOC_FL_KEEP_SIZE`.
    ZeroKeep,
}

impl Alloc {
    const NAMES: [(&'static str, Alloc); 5] = [
        ("extend", Alloc::Extend),
        ("keep", Alloc::Keep),
        ("punch", Alloc::Punch),
        ("zero", Alloc::Zero),
        ("zero-keep", Alloc::ZeroKeep),
    ];

    /// Its word in a program.
    pub fn name(self) -> &'static str {
        Alloc::NAMES.iter().find(|(_, a)| *a == self).map_or("", |(n, _)| n)
    }
}

/// What `fadvise` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advise {
    /// Nothing of its reads (`POSIX_FADV_NORMAL`).
    Normal,
    /// They are in order (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
    /// They are not (`POSIX_FADV_RANDOM`).
    Random,
    /// What is cached is not needed any more (`POSIX_FADV_DONTNEED`).
    DontNeed,
}

impl Advise {
    /// Their names.
    pub const NAMES: [(&'static str, Advise); 4] = [
        ("normal", Advise::Normal),
        ("sequential", Advise::Sequential),
        ("random", Advise::Random),
        ("dontneed", Advise::DontNeed),
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        Advise::NAMES.iter().find(|(_, a)| *a == self).map_or("", |(n, _)| n)
    }
}

/// A system call. Descriptors are numbers of the program's own, below 64; `.` is the root directory
/// of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `open`: descriptor, path, how.
    Open(u32, String, Flags),
    /// `close`.
    Close(u32),
    /// `pwrite`.
    Pwrite {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
        /// Seed of the contents.
        seed: u32,
    },
    /// `fsync`.
    Fsync(u32),
    /// `fdatasync`.
    Fdatasync(u32),
    /// `fbarrier` of BarrierFS: order, and no wait for the device.
    Fbarrier(u32),
    /// `fdatabarrier`.
    Fdatabarrier(u32),
    /// `syncfs`.
    Syncfs(u32),
    /// `sync`.
    Sync,
    /// `ftruncate`.
    Ftruncate(u32, u64),
    /// `fallocate`: descriptor, what, offset, length.
    Fallocate(u32, Alloc, u64, u64),
    /// `rename`.
    Rename(String, String),
    /// `link`.
    Link(String, String),
    /// `unlink`.
    Unlink(String),
    /// `mkdir`.
    Mkdir(String),
    /// `rmdir`.
    Rmdir(String),
    /// `symlink`: what it points to, and its own path.
    Symlink(String, String),
    /// `setxattr`.
    SetXattr {
        /// Path.
        path: String,
        /// Name, with its prefix.
        name: String,
        /// Bytes.
        len: u32,
        /// Seed of the value.
        seed: u32,
    },
    /// `removexattr`: path, name.
    RemoveXattr(String, String),
    /// `pread`.
    Pread {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
    },
    /// `posix_fadvise` of a whole file.
    Fadvise(u32, Advise),
    /// `io_submit` of one `pwrite`.
    AioWrite {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
        /// Seed of the contents.
        seed: u32,
    },
    /// `io_submit` of one `pread`.
    AioRead {
        /// Descriptor.
        fd: u32,
        /// Bytes.
        len: u32,
        /// Where.
        at: u64,
    },
    /// `io_getevents`: waits until this number of calls has ended, and takes all that
    /// have.
    AioWait(u32),
    /// What is cached and clean is forgotten (`/proc/sys/vm/drop_caches`).
    DropCaches,
    /// The program tells the world that there is such a file: whoever relies on that does so from
    /// here on. No call of the kernel's.
    Mark(String),
}

impl Call {
    /// The system call's name.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Open(..) => "open",
            Call::Close(_) => "close",
            Call::Pwrite { .. } => "pwrite",
            Call::Fsync(_) => "fsync",
            Call::Fdatasync(_) => "fdatasync",
            Call::Fbarrier(_) => "fbarrier",
            Call::Fdatabarrier(_) => "fdatabarrier",
            Call::Syncfs(_) => "syncfs",
            Call::Sync => "sync",
            Call::Ftruncate(..) => "ftruncate",
            Call::Fallocate(..) => "fallocate",
            Call::Rename(..) => "rename",
            Call::Link(..) => "link",
            Call::Unlink(_) => "unlink",
            Call::Mkdir(_) => "mkdir",
            Call::Rmdir(_) => "rmdir",
            Call::Symlink(..) => "symlink",
            Call::SetXattr { .. } => "setxattr",
            Call::RemoveXattr(..) => "removexattr",
            Call::Pread { .. } => "pread",
            Call::Fadvise(..) => "fadvise",
            Call::AioWrite { .. } => "aio_write",
            Call::AioRead { .. } => "aio_read",
            Call::AioWait(_) => "aio_wait",
            Call::DropCaches => "drop_caches",
            Call::Mark(_) => "mark",
        }
    }
}

impl Call {
    /// The descriptor that it uses, or makes.
    pub fn descriptor(&self) -> Option<u32> {
        self.clone().descriptor_mut().copied()
    }

    /// The same, to be changed.
    pub fn descriptor_mut(&mut self) -> Option<&mut u32> {
        match self {
            Call::Open(fd, ..)
            | Call::Close(fd)
            | Call::Pwrite { fd, .. }
            | Call::Pread { fd, .. }
            | Call::AioWrite { fd, .. }
            | Call::AioRead { fd, .. }
            | Call::Fsync(fd)
            | Call::Fdatasync(fd)
            | Call::Fbarrier(fd)
            | Call::Fdatabarrier(fd)
            | Call::Syncfs(fd)
            | Call::Ftruncate(fd, _)
            | Call::Fadvise(fd, _)
            | Call::Fallocate(fd, ..) => Some(fd),
            Call::Sync
            | Call::DropCaches
            | Call::AioWait(_)
            | Call::Rename(..)
            | Call::Link(..)
            | Call::Unlink(_)
            | Call::Mkdir(_)
            | Call::Rmdir(_)
            | Call::Symlink(..)
            | Call::SetXattr { .. }
            | Call::RemoveXattr(..)
            | Call::Mark(_) => None,
        }
    }

    /// The paths that it names, to be changed.
    pub fn paths_mut(&mut self) -> Vec<&mut String> {
        match self {
            Call::Open(_, p, _)
            | Call::Unlink(p)
            | Call::Mkdir(p)
            | Call::Rmdir(p)
            | Call::Symlink(_, p)
            | Call::SetXattr { path: p, .. }
            | Call::RemoveXattr(p, _)
            | Call::Mark(p) => vec![p],
            Call::Rename(a, b) | Call::Link(a, b) => vec![a, b],
            Call::Close(_)
            | Call::Pwrite { .. }
            | Call::Pread { .. }
            | Call::Fadvise(..)
            | Call::AioWrite { .. }
            | Call::AioRead { .. }
            | Call::AioWait(_)
            | Call::Fsync(_)
            | Call::Fdatasync(_)
            | Call::Fbarrier(_)
            | Call::Fdatabarrier(_)
            | Call::Syncfs(_)
            | Call::Sync
            | Call::Ftruncate(..)
            | Call::Fallocate(..)
            | Call::DropCaches => Vec::new(),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Call::Open(fd, path, how) => write!(f, "{name} {fd} {path} {how}"),
            Call::Close(fd)
            | Call::Fsync(fd)
            | Call::Fdatasync(fd)
            | Call::Fbarrier(fd)
            | Call::Fdatabarrier(fd)
            | Call::Syncfs(fd) => write!(f, "{name} {fd}"),
            Call::Sync => f.write_str(name),
            Call::Pwrite { fd, len, at, seed } | Call::AioWrite { fd, len, at, seed } => {
                write!(f, "{name} {fd} {len} {at} {seed}")
            }
            Call::AioWait(n) => write!(f, "{name} {n}"),
            Call::Ftruncate(fd, len) => write!(f, "{name} {fd} {len}"),
            Call::Fadvise(fd, what) => write!(f, "{name} {fd} {}", what.name()),
            Call::Fallocate(fd, mode, at, len) => {
                write!(f, "{name} {fd} {} {at} {len}", mode.name())
            }
            Call::Rename(a, b)
            | Call::Link(a, b)
            | Call::Symlink(a, b)
            | Call::RemoveXattr(a, b) => write!(f, "{name} {a} {b}"),
            Call::SetXattr { path, name: of, len, seed } => {
                write!(f, "{name} {path} {of} {len} {seed}")
            }
            Call::Unlink(a) | Call::Mkdir(a) | Call::Rmdir(a) | Call::Mark(a) => {
                write!(f, "{name} {a}")
            }
            Call::Pread { fd, len, at } | Call::AioRead { fd, len, at } => {
                write!(f, "{name} {fd} {len} {at}")
            }
            Call::DropCaches => f.write_str(name),
        }
    }
}

/// What a timed stretch is called: a name, and which of that name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Name.
    pub op: String,
    /// Index.
    pub index: u32,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// What follows belongs to this case.
    Case(String),
    /// Sleep to the next tick and one millisecond more.
    Align,
    /// Sleep, microseconds.
    Nap(u64),
    /// A timed stretch begins.
    Begin(Label),
    /// It ends.
    End,
    /// Every descriptor is closed.
    Exit,
    /// A call, timed if it has a label.
    Call(Option<Label>, Call),
    /// The device fails requests from here on. A later one is added to it.
    Fail(Fault),
    /// It begins requests late from here on. A later one is added to it.
    Slow(Slow),
    /// It leaves out a part of writes from here on. A later one is added to it.
    Tear(Tear),
    /// It fails none any more, is as quick as it is, and writes all.
    Heal,
    /// The next call must fail with the error of this name, such as `ENOENT`.
    Expect(&'static str),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Case(name) => write!(f, "case {name}"),
            Step::Align => f.write_str("align"),
            Step::Nap(us) => write!(f, "nap {us}"),
            Step::Begin(l) => write!(f, "begin {} {}", l.op, l.index),
            Step::End => f.write_str("end"),
            Step::Exit => f.write_str("exit"),
            Step::Fail(fault) => fault.fmt(f),
            Step::Slow(slow) => slow.fmt(f),
            Step::Tear(tear) => tear.fmt(f),
            Step::Heal => f.write_str("heal"),
            Step::Expect(errno) => write!(f, "expect {errno}"),
            Step::Call(None, c) => write!(f, "{c}"),
            Step::Call(Some(l), c) => write!(f, "@{}:{} {c}", l.op, l.index),
        }
    }
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program(pub Vec<Step>);

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|s| writeln!(f, "{s}"))
    }
}

/// Most descriptors that a program has, and the longest write, bytes (`prog.c` has as much room).
pub const LIMITS: (u32, u32) = (64, 1 << 20);

/// Most asynchronous calls of a program that have begun and were not waited for.
pub const AIO_MOST: u32 = 256;

/// Longest value of an extended attribute, bytes: `XATTR_SIZE_MAX`.
const XATTR_MAX: u32 = 65536;

struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn text(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }
    /// Microseconds, as [`Words::number`].
    fn micros(&mut self) -> Result<u64, String> {
        let us = self.number()?;
        match us <= MICROS_MAX {
            true => Ok(us),
            false => Err(format!("`{us}`: at most {MICROS_MAX} us, ten years")),
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        let w = self.text()?;
        w.parse().map_err(|_| format!("`{w}`: a whole number is needed"))
    }
    fn small(&mut self, below: u32) -> Result<u32, String> {
        let n = self.number()?;
        u32::try_from(n)
            .ok()
            .filter(|n| *n < below)
            .ok_or_else(|| format!("{n}: must be below {below}"))
    }
    fn fd(&mut self) -> Result<u32, String> {
        self.small(LIMITS.0)
    }
    fn owned(&mut self) -> Result<String, String> {
        self.text().map(str::to_owned)
    }
}

impl Program {
    /// Its calls.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.0.iter().filter_map(|s| match s {
            Step::Call(_, call) => Some(call),
            _ => None,
        })
    }

    /// The number of the line of `text` on which each step of its program stands, from 1.
    pub fn lines(text: &str) -> Vec<usize> {
        let is_step = |line: &str| !without_comment(line).trim().is_empty();
        text.lines().enumerate().filter(|(_, l)| is_step(l)).map(|(n, _)| n + 1).collect()
    }

    /// Reads a program; `#` starts a comment. Errors: the first wrong line, with its number.
    pub fn parse(text: &str) -> Result<Program, String> {
        let mut steps = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = without_comment(line);
            if line.trim().is_empty() {
                continue;
            }
            steps.push(step(line).map_err(|e| format!("line {}: {e}", n + 1))?);
        }
        Ok(Program(steps))
    }
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

fn step(line: &str) -> Result<Step, String> {
    let mut w = Words(line.split_whitespace());
    let first = w.text()?;
    let step =
        if let Some(label) = first.strip_prefix('@') {
            let (op, index) = label.rsplit_once(':').ok_or("a label is @name:index")?;
            let index = index.parse().map_err(|_| format!("`{index}`: a label is @name:index"))?;
            let name = w.text()?;
            Step::Call(Some(Label { op: op.to_owned(), index }), call(name, &mut w)?)
        } else {
            match first {
                "case" => Step::Case(w.owned()?),
                "align" => Step::Align,
                "nap" => Step::Nap(w.micros()?),
                "begin" => Step::Begin(Label { op: w.owned()?, index: w.small(u32::MAX)? }),
                "end" => Step::End,
                "exit" => Step::Exit,
                "fail" => Step::Fail(Fault::parse(&mut w)?),
                "slow" => Step::Slow(Slow::parse(&mut w)?),
                "tear" => Step::Tear(Tear::parse(&mut w)?),
                "heal" => Step::Heal,
                "expect" => {
                    let word = w.text()?;
                    let known = FsError::ERRNOS.iter().find(|e| **e == word);
                    Step::Expect(known.ok_or_else(|| {
                        format!("`{word}`: one of {}", FsError::ERRNOS.join(", "))
                    })?)
                }
                name => Step::Call(None, call(name, &mut w)?),
            }
        };
    match w.0.next() {
        None => Ok(step),
        Some(extra) => Err(format!("`{extra}` is one word too many")),
    }
}

fn call(name: &str, w: &mut Words<'_>) -> Result<Call, String> {
    Ok(match name {
        "open" => Call::Open(w.fd()?, w.owned()?, Flags::parse(w.text()?)?),
        "close" => Call::Close(w.fd()?),
        "pwrite" => Call::Pwrite {
            fd: w.fd()?,
            len: w.small(LIMITS.1 + 1)?,
            at: w.number()?,
            seed: w.small(u32::MAX)?,
        },
        "fsync" => Call::Fsync(w.fd()?),
        "fdatasync" => Call::Fdatasync(w.fd()?),
        "fbarrier" => Call::Fbarrier(w.fd()?),
        "fdatabarrier" => Call::Fdatabarrier(w.fd()?),
        "syncfs" => Call::Syncfs(w.fd()?),
        "sync" => Call::Sync,
        "ftruncate" => Call::Ftruncate(w.fd()?, w.number()?),
        "fallocate" => {
            let fd = w.fd()?;
            let mode = w.text()?;
            let mode = Alloc::NAMES
                .iter()
                .find(|(n, _)| *n == mode)
                .map(|(_, a)| *a)
                .ok_or_else(|| format!("`{mode}`: one of extend, keep, punch, zero"))?;
            Call::Fallocate(fd, mode, w.number()?, w.number()?)
        }
        "rename" => Call::Rename(w.owned()?, w.owned()?),
        "link" => Call::Link(w.owned()?, w.owned()?),
        "unlink" => Call::Unlink(w.owned()?),
        "mkdir" => Call::Mkdir(w.owned()?),
        "rmdir" => Call::Rmdir(w.owned()?),
        "symlink" => Call::Symlink(w.owned()?, w.owned()?),
        "setxattr" => Call::SetXattr {
            path: w.owned()?,
            name: w.owned()?,
            len: w.small(XATTR_MAX + 1)?,
            seed: w.small(u32::MAX)?,
        },
        "removexattr" => Call::RemoveXattr(w.owned()?, w.owned()?),
        "pread" => Call::Pread { fd: w.fd()?, len: w.small(LIMITS.1 + 1)?, at: w.number()? },
        "fadvise" => {
            let fd = w.fd()?;
            let what = w.text()?;
            let known = Advise::NAMES.iter().find(|(n, _)| *n == what).map(|(_, a)| *a);
            let none = || format!("`{what}`: one of normal, sequential, random, dontneed");
            Call::Fadvise(fd, known.ok_or_else(none)?)
        }
        "aio_write" => Call::AioWrite {
            fd: w.fd()?,
            len: w.small(LIMITS.1 + 1)?,
            at: w.number()?,
            seed: w.small(u32::MAX)?,
        },
        "aio_read" => Call::AioRead { fd: w.fd()?, len: w.small(LIMITS.1 + 1)?, at: w.number()? },
        "aio_wait" => Call::AioWait(w.small(AIO_MOST + 1)?),
        "drop_caches" => Call::DropCaches,
        "mark" => Call::Mark(w.owned()?),
        _ => return Err(format!("`{name}` is neither a step nor a call that programs have")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_its_text() {
        let text = "case a\nalign\n@open:0 open 0 f rw,creat,trunc,direct,dsync,sync\n\
                    begin w 3\npwrite 0 3072 1024 7\nend\n@s:1 fsync 0\nfdatasync 0\nsyncfs 0\n\
                    fbarrier 0\nfdatabarrier 0\nsync\n\
                    ftruncate 0 8192\nfallocate 0 keep 0 4096\nrename f g\nlink g h\nunlink h\n\
                    mkdir d\nrmdir d\nsymlink d/f l\nsetxattr f user.a 40 7\n\
                    removexattr f user.a\npread 0 4096 0\n\
                    fadvise 0 dontneed\nfadvise 0 random\n\
                    aio_write 0 4096 0 1\naio_read 0 4096 0\naio_wait 2\ndrop_caches\nmark d/f\n\
                    fail write data 2 1\n\
                    fail flush any 0 always\nfail read 2048+8 0 3\nslow write meta 1 2 900\n\
                    tear write journal 0 1 512 1024\nheal\nexpect EBADF\nclose 0\n\
                    nap 20000\nexit\n";
        let p = Program::parse(text).expect("a program");
        assert_eq!(p.to_string(), text);
    }

    #[test]
    fn every_step_knows_its_line() {
        let text = "# what is here\nmkdir d\n\n  # more\nsync  # and so on\nrmdir d";
        let steps = Program::parse(text).expect("a program").0.len();
        assert_eq!(Program::lines(text), [2, 5, 6]);
        assert_eq!(steps, 3);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for bad in [
            "fly 0",
            "fsync",
            "fsync 64",
            "fsync 0 0",
            "open 0 a w",
            "@x fsync 0",
            "pwrite 0 1048577 0 0",
            "aio_wait 257",
            "fail write dat 0 1",
            "fail write data 0",
            "fail write 8+x 0 1",
            "slow write data 0 1",
            "tear write data 0 1 100 512",
            "expect",
            "expect ENOSUCH",
        ] {
            let e = Program::parse(&format!("align\n{bad}")).expect_err(bad);
            assert!(e.starts_with("line 2: "), "{e}");
        }
    }
}
