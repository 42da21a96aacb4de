//! What a WML text says, with its variables filled in: filesets, processes, threads, flowops.

use std::rc::Rc;

use super::chance::Drawn;

/// A number of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Num {
    /// Always this.
    Fixed(u64),
    /// Drawn each time that it is asked for: a place in [`Personality::drawn`].
    Drawn(usize),
}

/// `define fileset`, `define file`.
#[derive(Clone, PartialEq, Debug)]
pub struct Fileset {
    /// Its name, which is its directory's.
    pub name: String,
    /// Where that directory is.
    pub path: String,
    /// How many files it can have.
    pub entries: Num,
    /// Empty directories that `makedir` and `removedir` take.
    pub leafdirs: Num,
    /// Mean number of entries of a directory.
    pub dir_width: Num,
    /// Shape of the gamma distribution of widths and depths, in thousandths; 0: always the mean.
    pub dir_gamma: u64,
    /// A `randvar` for depths instead.
    pub dir_depth: Option<usize>,
    /// Lengths of files, in bytes.
    pub size: Num,
    /// Percent of the files that are there at the start, each by chance.
    pub prealloc_percent: u32,
    /// Made by up to 32 threads side by side.
    pub paralloc: bool,
    /// Files that exist are kept.
    pub reuse: bool,
    /// The page cache forgets its files when they are made (`cached=false`).
    pub is_cold: bool,
    /// Existing files are trusted to be there, without a check (`trusttree`).
    pub trusttree: bool,
    /// Opened for reading.
    pub readonly: bool,
    /// Opened for writing.
    pub writeonly: bool,
}

/// What a flowop does: the types of filebench's library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "named as filebench's flowops are")]
pub enum Kind {
    Write,
    Read,
    Block,
    Wakeup,
    Semblock,
    Sempost,
    Hog,
    Delay,
    Eventlimit,
    Bwlimit,
    Iopslimit,
    Opslimit,
    FinishOnCount,
    FinishOnBytes,
    OpenFile,
    CreateFile,
    CloseFile,
    MakeDir,
    RemoveDir,
    ListDir,
    Fsync,
    FsyncSet,
    StatFile,
    ReadWholeFile,
    AppendFile,
    AppendFileRand,
    DeleteFile,
    WriteWholeFile,
    Print,
    TestRandVar,
    AioWrite,
    AioWait,
}

impl Kind {
    /// All of them, in the library's order; the last two are of the local file system's module.
    pub const ALL: [Kind; 32] = [
        Kind::Write,
        Kind::Read,
        Kind::Block,
        Kind::Wakeup,
        Kind::Semblock,
        Kind::Sempost,
        Kind::Hog,
        Kind::Delay,
        Kind::Eventlimit,
        Kind::Bwlimit,
        Kind::Iopslimit,
        Kind::Opslimit,
        Kind::FinishOnCount,
        Kind::FinishOnBytes,
        Kind::OpenFile,
        Kind::CreateFile,
        Kind::CloseFile,
        Kind::MakeDir,
        Kind::RemoveDir,
        Kind::ListDir,
        Kind::Fsync,
        Kind::FsyncSet,
        Kind::StatFile,
        Kind::ReadWholeFile,
        Kind::AppendFile,
        Kind::AppendFileRand,
        Kind::DeleteFile,
        Kind::WriteWholeFile,
        Kind::Print,
        Kind::TestRandVar,
        Kind::AioWrite,
        Kind::AioWait,
    ];

    /// Its name in WML.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Write => "write",
            Kind::Read => "read",
            Kind::Block => "block",
            Kind::Wakeup => "wakeup",
            Kind::Semblock => "semblock",
            Kind::Sempost => "sempost",
            Kind::Hog => "hog",
            Kind::Delay => "delay",
            Kind::Eventlimit => "eventlimit",
            Kind::Bwlimit => "bwlimit",
            Kind::Iopslimit => "iopslimit",
            Kind::Opslimit => "opslimit",
            Kind::FinishOnCount => "finishoncount",
            Kind::FinishOnBytes => "finishonbytes",
            Kind::OpenFile => "openfile",
            Kind::CreateFile => "createfile",
            Kind::CloseFile => "closefile",
            Kind::MakeDir => "makedir",
            Kind::RemoveDir => "removedir",
            Kind::ListDir => "listdir",
            Kind::Fsync => "fsync",
            Kind::FsyncSet => "fsyncset",
            Kind::StatFile => "statfile",
            Kind::ReadWholeFile => "readwholefile",
            Kind::AppendFile => "appendfile",
            Kind::AppendFileRand => "appendfilerand",
            Kind::DeleteFile => "deletefile",
            Kind::WriteWholeFile => "writewholefile",
            Kind::Print => "print",
            Kind::TestRandVar => "testrandvar",
            Kind::AioWrite => "aiowrite",
            Kind::AioWait => "aiowait",
        }
    }

    /// Counted in filebench's summary of I/O.
    pub const fn is_io(self) -> bool {
        match self {
            Kind::Block
            | Kind::Wakeup
            | Kind::Semblock
            | Kind::Sempost
            | Kind::Hog
            | Kind::Delay
            | Kind::Eventlimit
            | Kind::Bwlimit
            | Kind::Iopslimit
            | Kind::Opslimit
            | Kind::FinishOnCount
            | Kind::FinishOnBytes
            | Kind::Print
            | Kind::TestRandVar => false,
            // Of the same kind as aiowrite in filebench.
            Kind::AioWait => true,
            _ => true,
        }
    }

    /// Its bytes are read.
    pub const fn reads(self) -> bool {
        matches!(self, Kind::Read | Kind::ReadWholeFile)
    }

    /// Its bytes are written.
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Kind::Write
                | Kind::AppendFile
                | Kind::AppendFileRand
                | Kind::WriteWholeFile
                | Kind::AioWrite
        )
    }
}

/// `flowop` of a type of the library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flowop {
    /// Its name.
    pub name: Rc<str>,
    /// Its type.
    pub kind: Kind,
    /// `filename`, `filesetname`: a place in [`Personality::filesets`].
    pub fileset: Option<usize>,
    /// Which of the thread's descriptors.
    pub fd: u32,
    /// Whose file says how much is written.
    pub srcfd: u32,
    /// Bytes at a time.
    pub iosize: Num,
    /// Bytes of the file that are used; 0: all.
    pub workingset: Num,
    /// Times in a row.
    pub iters: Num,
    /// What it waits for, posts, burns or counts to.
    pub value: Num,
    /// At random offsets.
    pub random: bool,
    /// Opened `O_SYNC`.
    pub dsync: bool,
    /// Opened `O_DIRECT`.
    pub directio: bool,
    /// Reads are said to be random (`POSIX_FADV_RANDOM`).
    pub noreadahead: bool,
    /// Goes round the thread's descriptors, and round the fileset with a rotor of the thread's.
    pub opennext: bool,
    /// `sempost` waits where its targets are behind.
    pub blocking: bool,
    /// How far a `semblock` may be behind.
    pub highwater: u64,
    /// Number of the file that is taken.
    pub indexed: Option<Num>,
    /// Name of the flowop that is woken, posted to, or examined.
    pub target: Option<Rc<str>>,
    /// What `print` says.
    pub text: Rc<str>,
}

impl Flowop {
    /// With every attribute left out.
    pub fn new(name: &str, kind: Kind) -> Flowop {
        let zero = Num::Fixed(0);
        Flowop {
            name: name.into(),
            kind,
            fileset: None,
            fd: 0,
            srcfd: 0,
            iosize: zero,
            workingset: zero,
            iters: Num::Fixed(1),
            value: zero,
            random: false,
            dsync: false,
            directio: false,
            noreadahead: false,
            opennext: false,
            blocking: false,
            highwater: 1,
            indexed: None,
            target: None,
            text: "".into(),
        }
    }
}

/// A step through a thread's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A flowop.
    Do(Flowop),
    /// The steps of a flowop of the text's own (`define flowop`), so often.
    Repeat(Num, Vec<Step>),
}

/// `thread`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadKind {
    /// Its name.
    pub name: String,
    /// How many.
    pub instances: Num,
    /// Bytes from which it reads and writes; 0: a buffer for each flowop.
    pub memory: Num,
    /// Its list, gone through again and again.
    pub steps: Vec<Step>,
}

/// `define process`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// How many.
    pub instances: Num,
    /// Its kinds of threads.
    pub threads: Vec<ThreadKind>,
}

/// `set mode quit`: what ends a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum QuitMode {
    /// Time. A thread that finds no file is an error.
    #[default]
    Timeout,
    /// The first thread that finds no more work.
    FirstDone,
    /// All of them.
    AllDone,
}

/// A command that does something, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// `create files`.
    Create,
    /// `system "sync"`.
    Sync,
    /// `system "echo 3 > /proc/sys/vm/drop_caches"`.
    DropCaches,
    /// `sleep`, in seconds.
    Sleep(u64),
    /// `run`, `psrun`: the number of seconds; 0: the mode's own end.
    Run(u64),
}

impl Personality {
    /// Bytes that are there at the start, by fileset: as many as its mean length makes likely. A
    /// length or a number that is drawn counts as nothing.
    pub fn preallocated_bytes(&self) -> Vec<(String, u64)> {
        let fixed = |n: Num| if let Num::Fixed(n) = n { n } else { 0 };
        let of = |f: &Fileset| {
            let bytes = u128::from(fixed(f.entries)) * u128::from(fixed(f.size));
            let bytes = bytes * u128::from(f.prealloc_percent) / 100;
            (f.name.clone(), u64::try_from(bytes).unwrap_or(u64::MAX))
        };
        self.filesets.iter().map(of).filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// What a text says.
#[derive(Clone, PartialEq, Debug)]
pub struct Personality {
    /// Its name: of the file.
    pub name: String,
    /// What it does, to the run.
    pub commands: Vec<Command>,
    /// Its files, in the order of the text.
    pub filesets: Vec<Fileset>,
    /// Its processes, in the order of the text.
    pub processes: Vec<Process>,
    /// Its variables that are drawn.
    pub drawn: Vec<Drawn>,
    /// `set mode quit`.
    pub mode: QuitMode,
    /// `eventgen rate`, events a second; 0: no limits.
    pub event_rate: Num,
    /// `enable lathist`.
    pub histograms: bool,
    /// Nanoseconds of a thread's own computing for each flowop: clock reads, locks, the choice of a
    /// file. No part of WML: what filebench itself takes.
    pub flowop_ns: u64,
    /// Draw the numbers that filebench draws and not those of the run's seed.
    pub own_numbers: bool,
}

impl Personality {
    /// Threads that its processes have, where their number is fixed.
    pub fn threads(&self) -> u64 {
        let fixed = |n: Num| match n {
            Num::Fixed(n) => n,
            Num::Drawn(_) => 1,
        };
        let of = |p: &Process| -> u64 {
            let kinds = p.threads.iter().map(|t| fixed(t.instances).max(1));
            kinds.fold(0u64, u64::saturating_add).saturating_mul(fixed(p.instances))
        };
        self.processes.iter().map(of).fold(0, u64::saturating_add)
    }
}
