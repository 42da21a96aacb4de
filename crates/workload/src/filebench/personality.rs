//! What a personality says: filesets, threads, flowops.

/// Lengths of a fileset's files.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sizes {
    /// All the same, in bytes.
    Fixed(u64),
    /// `cvar(type=cvar-gamma)`.
    Gamma {
        /// Mean in bytes.
        mean: f64,
        /// Shape.
        shape: f64,
    },
}

/// `define fileset`.
#[derive(Clone, PartialEq, Debug)]
pub struct Fileset {
    /// Its name, which is its directory's.
    pub name: String,
    /// How many files it can have.
    pub entries: u32,
    /// Mean number of entries of a directory. At least `entries`: one directory.
    pub dir_width: u64,
    /// Lengths of the files that are there at the start.
    pub sizes: Sizes,
    /// Percent of the files that are there at the start.
    pub prealloc_percent: u32,
}

/// `flowop`. Files of one thread are told apart by `fd`, as in WML; 1 where it says nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Flowop {
    /// `deletefile`.
    Delete,
    /// `createfile`: a file that is not there, opened.
    Create {
        /// Descriptor.
        fd: u32,
    },
    /// `openfile`: a file that is there.
    Open {
        /// Descriptor.
        fd: u32,
    },
    /// `closefile`.
    Close {
        /// Descriptor.
        fd: u32,
    },
    /// `readwholefile`.
    ReadWhole {
        /// Descriptor.
        fd: u32,
        /// Bytes at a time.
        iosize: u64,
    },
    /// `appendfilerand`.
    AppendRandom {
        /// Descriptor.
        fd: u32,
        /// Lengths are below this.
        iosize: u64,
    },
    /// `writewholefile`: as long as the fileset says that the file is.
    WriteWhole {
        /// Descriptor.
        fd: u32,
        /// Bytes at a time.
        iosize: u64,
    },
    /// `statfile`: a file that is there.
    Stat,
    /// `fsync`.
    Fsync {
        /// Descriptor.
        fd: u32,
    },
}

impl Flowop {
    /// Its name in WML.
    pub const fn name(self) -> &'static str {
        match self {
            Flowop::Delete => "deletefile",
            Flowop::Create { .. } => "createfile",
            Flowop::Open { .. } => "openfile",
            Flowop::Close { .. } => "closefile",
            Flowop::ReadWhole { .. } => "readwholefile",
            Flowop::AppendRandom { .. } => "appendfilerand",
            Flowop::WriteWhole { .. } => "writewholefile",
            Flowop::Stat => "statfile",
            Flowop::Fsync { .. } => "fsync",
        }
    }
}

/// A personality with one fileset and one kind of threads.
#[derive(Clone, PartialEq, Debug)]
pub struct Personality {
    /// Its name.
    pub name: String,
    /// Its files.
    pub fileset: Fileset,
    /// Threads, each of which goes through the list again and again.
    pub threads: u32,
    /// The list.
    pub flowops: Vec<Flowop>,
    /// Nanoseconds of a thread's own computing for each flowop: clock reads, locks, the choice of a
    /// file. No part of WML: what filebench itself takes.
    pub flowop_ns: u64,
}

/// The published mail server (`varmail.f` of filebench 1.5, by its parameters), with so many
/// threads (it has 16).
pub fn varmail(threads: u32) -> Personality {
    const MIB: u64 = 1 << 20;
    const APPEND: u64 = 16 << 10;
    Personality {
        name: "varmail".to_owned(),
        fileset: Fileset {
            name: "bigfileset".to_owned(),
            entries: 1000,
            dir_width: 1_000_000,
            sizes: Sizes::Gamma { mean: 16_384.0, shape: 1.5 },
            prealloc_percent: 80,
        },
        threads,
        flowops: vec![
            Flowop::Delete,
            Flowop::Create { fd: 1 },
            Flowop::AppendRandom { fd: 1, iosize: APPEND },
            Flowop::Fsync { fd: 1 },
            Flowop::Close { fd: 1 },
            Flowop::Open { fd: 1 },
            Flowop::ReadWhole { fd: 1, iosize: MIB },
            Flowop::AppendRandom { fd: 1, iosize: APPEND },
            Flowop::Fsync { fd: 1 },
            Flowop::Close { fd: 1 },
            Flowop::Open { fd: 1 },
            Flowop::ReadWhole { fd: 1, iosize: MIB },
            Flowop::Close { fd: 1 },
        ],
        flowop_ns: 0,
    }
}

/// The published file server (`fileserver.f` of filebench 1.5, by its parameters), with so many
/// threads and files (it has 50 and 10,000).
pub fn fileserver(threads: u32, files: u32) -> Personality {
    const MIB: u64 = 1 << 20;
    const APPEND: u64 = 16 << 10;
    Personality {
        name: "fileserver".to_owned(),
        fileset: Fileset {
            name: "bigfileset".to_owned(),
            entries: files,
            dir_width: 20,
            sizes: Sizes::Gamma { mean: 131_072.0, shape: 1.5 },
            prealloc_percent: 80,
        },
        threads,
        flowops: vec![
            Flowop::Create { fd: 1 },
            Flowop::WriteWhole { fd: 1, iosize: MIB },
            Flowop::Close { fd: 1 },
            Flowop::Open { fd: 1 },
            Flowop::AppendRandom { fd: 1, iosize: APPEND },
            Flowop::Close { fd: 1 },
            Flowop::Open { fd: 1 },
            Flowop::ReadWhole { fd: 1, iosize: MIB },
            Flowop::Close { fd: 1 },
            Flowop::Delete,
            Flowop::Stat,
        ],
        flowop_ns: 0,
    }
}
