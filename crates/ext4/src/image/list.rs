//! What is in the image: every file with its attributes and a hash of its contents.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};
use wp_jbd2::RecoverPolicy;
use wp_medium::{Overlay, View};
use wp_vfs::Digest;

use crate::disk::inode::{flag, mode};
use crate::disk::{FileType, ino};

use super::{AtMount, Image, InodeRecord, Recovery, Xattr, recover_at_mount};

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
    pub ino: u32,
    /// Permissions, with setuid, setgid and sticky.
    pub mode: u16,
    /// Links.
    pub nlink: u16,
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
    /// Extended attributes, by name.
    pub xattrs: Vec<Xattr>,
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
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// Compute SHA-256 of regular files?
    pub hash: bool,
    /// Most bytes to read and hash in all, so that blocks that many files have on paper do not take
    /// years. A file that goes beyond gets no hash, and a finding. Holes of sparse files are free.
    pub hash_bytes_max: u64,
    /// Rules of recovery.
    pub policy: RecoverPolicy,
    /// Version of Linux whose checks at mount apply.
    pub version: (u16, u16),
    /// Time of deletion that orphans get, in seconds since 1970.
    pub now: u32,
}

impl Default for InspectOptions {
    /// With hashes, up to 1 TiB of them, and the rules of Linux 6.18.
    fn default() -> InspectOptions {
        InspectOptions {
            hash: true,
            hash_bytes_max: 1 << 40,
            policy: RecoverPolicy::linux(6, 18),
            version: (6, 18),
            now: 1,
        }
    }
}

/// The result of [`inspect`].
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Journal and orphans; what recovery found.
    pub recovery: Recovery,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Every path but the root and lost+found with what is in it, sorted by path.
    pub files: Vec<FileInfo>,
}

/// Recovers the file system in memory as a mount does, and lists it. Never writes to `view`.
///
/// Errors: those of the mount.
pub fn inspect(view: &dyn View, options: &InspectOptions) -> FsResult<Inspection> {
    let overlay = Overlay::new(view);
    super::mount::check_super(&Image::open(view)?, options.version)?;
    let AtMount { recovery, mounted } = recover_at_mount(&overlay, &options.policy, options.now);
    mounted.map_err(|(_, e)| e)?;
    let image = Image::open(&overlay)?;
    super::mount::check_blocks(&image, options.version)?;
    let (files, mut findings) = list(&image, options);
    let reported = recovery.reported.iter().cloned();
    findings.extend(reported.map(|error| Finding { path: Vec::new(), error }));
    Ok(Inspection { recovery, findings, files })
}

/// Lists an image as it is, without recovery: files sorted by path, and what is wrong.
pub fn list(image: &Image<'_>, options: &InspectOptions) -> (Vec<FileInfo>, Vec<Finding>) {
    let mut lister = Lister {
        image,
        hash: options.hash,
        hash_bytes_left: options.hash_bytes_max,
        // Each block of a sound file system belongs to one directory, each inode to one.
        blocks_left: image.g.blocks_count.saturating_mul(2),
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
    blocks_left: u64,
    dirs_seen: BTreeSet<u32>,
    /// Hashes of files with several names, which are read once.
    hashes: BTreeMap<u32, Digest>,
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
    fn directory(&mut self, path: &[u8], number: u32) -> FsResult<Vec<(Vec<u8>, u32)>> {
        let record = self.image.inode(number)?;
        if !record.inode.is_dir() {
            let found = record.inode.mode.get().into();
            return Err(FsError::corrupt("ext4 inode", "i_mode", record.at, found, "a directory"));
        }
        if !record.inode.has(flag::INLINE_DATA) {
            let blocks = u64::from(self.image.dir_blocks(&record)?);
            self.blocks_left = self.blocks_left.checked_sub(blocks).ok_or_else(|| {
                FsError::corrupt("ext4 directory", "i_size", record.at, blocks, "blocks of its own")
            })?;
        }
        let mut dirs = Vec::new();
        for name in self.image.names(&record)? {
            if path.is_empty() && name.name == b"lost+found" {
                continue;
            }
            let mut full = path.to_vec();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(&name.name);
            match self.file(&full, name.inode) {
                Ok(FileKind::Dir) => dirs.push((full, name.inode)),
                Ok(_) => {}
                Err(error) => self.findings.push(Finding { path: full, error }),
            }
        }
        Ok(dirs)
    }

    /// Lists one name.
    fn file(&mut self, path: &[u8], number: u32) -> FsResult<FileKind> {
        let record = self.image.named_inode(number)?;
        let inode = &record.inode;
        let kind = FileKind::of_mode(inode.mode.get());
        if kind == FileKind::Unknown {
            let found = inode.mode.get().into();
            return Err(FsError::corrupt("ext4 inode", "i_mode", record.at, found, "a known type"));
        }
        if kind == FileKind::Dir && !self.dirs_seen.insert(number) {
            let expected = "a directory with one name";
            return Err(FsError::corrupt(
                "ext4 directory",
                "inode",
                record.at,
                number.into(),
                expected,
            ));
        }
        let mut info = FileInfo {
            path: path.to_vec(),
            kind,
            ino: number,
            mode: inode.mode.get() & mode::PERMISSIONS,
            nlink: inode.links_count.get(),
            uid: inode.uid(),
            gid: inode.gid(),
            size: inode.size(),
            sectors: inode.sectors(self.image.block_size().sectors()),
            sha256: None,
            target: None,
            xattrs: Vec::new(),
        };
        self.details(&record, &mut info);
        self.files.push(info);
        Ok(kind)
    }

    /// What may fail without the file being lost.
    fn details(&mut self, record: &InodeRecord, info: &mut FileInfo) {
        let mut findings = Vec::new();
        let mut keep = |error| findings.push(Finding { path: info.path.clone(), error });
        match self.image.xattrs(record) {
            Ok(xattrs) => info.xattrs = xattrs,
            Err(e) => keep(e),
        }
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

    fn hash(&mut self, record: &InodeRecord) -> FsResult<Digest> {
        if let Some(hash) = self.hashes.get(&record.number) {
            return Ok(*hash);
        }
        let hash = self.image.sha256(record, &mut self.hash_bytes_left)?;
        if record.inode.links_count.get() > 1 {
            self.hashes.insert(record.number, hash);
        }
        Ok(hash)
    }
}
