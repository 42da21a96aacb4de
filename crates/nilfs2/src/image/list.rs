//! What is in the image: every file with its attributes and a hash of its contents.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use wp_vfs::Digest;

use crate::disk::{Checkpoint, FileType, ino};

use super::{Image, Record, RecoverOptions, Recovery, recover};

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// The type bits mean nothing.
    Unknown,
}

impl FileKind {
    /// As `inspect --json` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Dir => "dir",
            FileKind::Symlink => "symlink",
            FileKind::CharDevice => "char",
            FileKind::BlockDevice => "block",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::Unknown => "unknown",
        }
    }

    fn of_mode(m: u16) -> FileKind {
        match FileType::of_mode(m) {
            FileType::File => FileKind::File,
            FileType::Dir => FileKind::Dir,
            FileType::Symlink => FileKind::Symlink,
            FileType::CharDevice => FileKind::CharDevice,
            FileType::BlockDevice => FileKind::BlockDevice,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
            FileType::Unknown => FileKind::Unknown,
        }
    }
}

/// A file, directory or link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileInfo {
    /// Path from the root, without a leading slash, as bytes.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: FileKind,
    /// Inode number.
    pub ino: u64,
    /// Permissions, with setuid, setgid and sticky.
    pub mode: u16,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space in use, in sectors of 512 bytes.
    pub sectors: u64,
    /// Digest of a regular file's contents, if asked for and readable.
    pub sha256: Option<Digest>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
}

/// Something wrong with a file; the listing goes on without what it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Path of the file; empty for the root.
    pub path: Vec<u8>,
    /// What is wrong.
    pub error: FsError,
}

/// How to list.
#[derive(Clone, Debug)]
pub struct InspectOptions {
    /// Compute SHA-256 of regular files?
    pub hash: bool,
    /// Most bytes to read and hash in all, so that blocks that many files have on paper do not take
    /// years. A file that goes beyond gets no hash, and a finding. Holes of sparse files are free.
    pub hash_bytes_max: u64,
    /// How to recover.
    pub recover: RecoverOptions,
}

impl Default for InspectOptions {
    /// With hashes, up to 1 TiB of them.
    fn default() -> InspectOptions {
        let recover = RecoverOptions::default();
        InspectOptions { hash: true, hash_bytes_max: 1 << 40, recover }
    }
}

/// The result of [`inspect`].
#[derive(Clone, Debug)]
pub struct Inspection {
    /// What recovery found and did.
    pub recovery: Recovery,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Every path but the root with what is in it, sorted by path.
    pub files: Vec<FileInfo>,
    /// Checkpoints, in order.
    pub checkpoints: Vec<Checkpoint>,
}

/// Recovers the file system in memory and lists it. Never writes to `view`.
///
/// Errors: those of [`Image::open`] and [`recover`].
pub fn inspect(view: &dyn View, options: &InspectOptions) -> FsResult<Inspection> {
    let overlay = Overlay::new(view);
    let recovery = recover(&overlay, &options.recover)?;
    let image = Image::open(&overlay)?;
    let (files, mut findings) = list(&image, options);
    let checkpoints = image.checkpoints().unwrap_or_else(|error| {
        findings.push(Finding { path: b"checkpoints".to_vec(), error });
        Vec::new()
    });
    Ok(Inspection { recovery, findings, files, checkpoints })
}

/// Lists an image as it is, without recovery: files sorted by path, and what is wrong.
pub fn list(image: &Image<'_>, options: &InspectOptions) -> (Vec<FileInfo>, Vec<Finding>) {
    let mut lister = Lister {
        image,
        hash: options.hash,
        hash_bytes_left: options.hash_bytes_max,
        dirs_seen: BTreeSet::from([ino::ROOT]),
        hashes: BTreeMap::new(),
        files: Vec::new(),
        findings: Vec::new(),
    };
    lister.run();
    let (mut files, mut findings) = (lister.files, lister.findings);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    findings.sort_by(|a, b| a.path.cmp(&b.path));
    (files, findings)
}

struct Lister<'a> {
    image: &'a Image<'a>,
    hash: bool,
    hash_bytes_left: u64,
    dirs_seen: BTreeSet<u64>,
    /// Hashes of files with several names, which are read once.
    hashes: BTreeMap<u64, Digest>,
    files: Vec<FileInfo>,
    findings: Vec<Finding>,
}

impl Lister<'_> {
    fn run(&mut self) {
        // A list of what is to do instead of recursion: names nest as deep as an image says.
        let mut dirs = vec![(Vec::new(), ino::ROOT)];
        while let Some((path, number)) = dirs.pop() {
            match self.directory(&path, number) {
                Ok(found) => dirs.extend(found),
                Err(error) => self.findings.push(Finding { path, error }),
            }
        }
    }

    /// Lists a directory; returns its subdirectories.
    fn directory(&mut self, path: &[u8], number: u64) -> FsResult<Vec<(Vec<u8>, u64)>> {
        let record = self.image.inode(number)?;
        let mut dirs = Vec::new();
        for name in self.image.names(&record)? {
            let mut full = path.to_vec();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(&name.name);
            match self.file(&full, name.ino) {
                Ok(FileKind::Dir) => dirs.push((full, name.ino)),
                Ok(_) => {}
                Err(error) => self.findings.push(Finding { path: full, error }),
            }
        }
        Ok(dirs)
    }

    /// Lists one name.
    fn file(&mut self, path: &[u8], number: u64) -> FsResult<FileKind> {
        let record = self.image.inode(number)?;
        let inode = &record.inode;
        let kind = FileKind::of_mode(inode.mode.get());
        if kind == FileKind::Unknown {
            let found = inode.mode.get().into();
            return Err(FsError::corrupt(
                "nilfs2 inode",
                "i_mode",
                record.at,
                found,
                "a known type",
            ));
        }
        if kind == FileKind::Dir && !self.dirs_seen.insert(number) {
            let expected = "a directory with one name";
            return Err(FsError::corrupt("nilfs2 directory", "inode", record.at, number, expected));
        }
        let mut info = FileInfo {
            path: path.to_vec(),
            kind,
            ino: number,
            mode: inode.mode.get() & 0o7777,
            nlink: inode.links_count.get().into(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            size: inode.size.get(),
            sectors: inode.blocks.get(),
            sha256: None,
            target: None,
        };
        self.details(&record, &mut info);
        self.files.push(info);
        Ok(kind)
    }

    /// What may fail without the file being lost.
    fn details(&mut self, record: &Record, info: &mut FileInfo) {
        let mut findings = Vec::new();
        let mut keep = |error| findings.push(Finding { path: info.path.clone(), error });
        if info.kind == FileKind::Symlink {
            match self.image.link_target(record) {
                Ok(target) => info.target = Some(target),
                Err(e) => keep(e),
            }
        }
        if info.kind == FileKind::File && self.hash {
            match self.hash(record) {
                Ok(hash) => info.sha256 = Some(hash),
                Err(e) => keep(e),
            }
        }
        self.findings.append(&mut findings);
    }

    fn hash(&mut self, record: &Record) -> FsResult<Digest> {
        if let Some(hash) = self.hashes.get(&record.ino) {
            return Ok(*hash);
        }
        let hash = self.image.sha256(record, &mut self.hash_bytes_left)?;
        if record.inode.links_count.get() > 1 {
            self.hashes.insert(record.ino, hash);
        }
        Ok(hash)
    }
}
