//! What is in the image: every file with its attributes and a hash of its contents.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use wp_vfs::{Digest, FileType};

use crate::replay::{RecoverOptions, Recovery, recover};

use super::inodes::Xattr;
use super::{Image, Record};

/// A kind of file as `inspect --json` prints it.
pub const fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Dir => "dir",
        FileType::Symlink => "symlink",
        FileType::Char => "char",
        FileType::Block => "block",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// A file, directory or link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileInfo {
    /// Path from the root, without a leading slash, as bytes.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: FileType,
    /// The tree that it is in.
    pub tree: u64,
    /// Inode number.
    pub ino: u64,
    /// Permissions, with setuid, setgid and sticky.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space in use, in sectors of 512 bytes, as `stat` tells it.
    pub sectors: u64,
    /// Seconds and nanoseconds of last access, change of the inode, and of the contents.
    pub times: [(i64, u32); 3],
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
    /// Would a mount succeed?
    pub mountable: FsResult<()>,
    /// What is wrong with files.
    pub findings: Vec<Finding>,
    /// What Linux refuses to read of trees and of the device, with or without files.
    pub refused: Vec<FsError>,
    /// Every path but the root with what is in it, sorted by path.
    pub files: Vec<FileInfo>,
}

/// Recovers the file system in memory and lists it. Never writes to `view`.
///
/// Errors: those of [`Image::open`] and [`recover`].
pub fn inspect(view: &dyn View, options: &InspectOptions) -> FsResult<Inspection> {
    let overlay = Overlay::new(view);
    let recovery = recover(&overlay, &options.recover)?;
    let image = Image::open(&overlay)?;
    let mountable = super::mount::mount(&image);
    let (files, findings) = list(&image, options);
    let refused = super::tree_check::check_trees(&image);
    Ok(Inspection { recovery, mountable, findings, refused, files })
}

/// Lists an image as it is, without recovery: files of the default subvolume and of those in it,
/// sorted by path, and what is wrong.
pub fn list(image: &Image<'_>, options: &InspectOptions) -> (Vec<FileInfo>, Vec<Finding>) {
    let mut lister = Lister {
        image,
        hash: options.hash,
        hash_bytes_left: options.hash_bytes_max,
        dirs_seen: BTreeSet::new(),
        hashes: BTreeMap::new(),
        files: Vec::new(),
        findings: Vec::new(),
    };
    match image.root() {
        Ok(root) => lister.run(root),
        Err(error) => lister.findings.push(Finding { path: Vec::new(), error }),
    }
    let (mut files, mut findings) = (lister.files, lister.findings);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    findings.sort_by(|a, b| a.path.cmp(&b.path));
    (files, findings)
}

impl Image<'_> {
    /// The directory that a mount shows.
    pub fn root(&self) -> FsResult<Record> {
        let tree = self.tree_needed(self.default_subvolume()?)?;
        let root = self.inode(&tree, tree.item.root_dirid.get())?;
        if root.inode.is_dir() { Ok(root) } else { Err(FsError::NotDir) }
    }
}

struct Lister<'a> {
    image: &'a Image<'a>,
    hash: bool,
    hash_bytes_left: u64,
    dirs_seen: BTreeSet<(u64, u64)>,
    /// Hashes of files with several names, which are read once.
    hashes: BTreeMap<(u64, u64), Digest>,
    files: Vec<FileInfo>,
    findings: Vec<Finding>,
}

impl Lister<'_> {
    fn run(&mut self, root: Record) {
        self.dirs_seen.insert((root.tree.id, root.ino));
        // A list of what is to do instead of recursion: names nest as deep as an image says.
        let mut dirs = vec![(Vec::new(), root)];
        while let Some((path, record)) = dirs.pop() {
            match self.directory(&path, &record) {
                Ok(found) => dirs.extend(found),
                Err(error) => self.findings.push(Finding { path, error }),
            }
        }
    }

    /// Lists a directory; returns its subdirectories.
    fn directory(&mut self, path: &[u8], dir: &Record) -> FsResult<Vec<(Vec<u8>, Record)>> {
        let mut dirs = Vec::new();
        for name in self.image.names(dir)? {
            let mut full = path.to_vec();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(&name.name);
            let found = self.image.follow(dir, &name).and_then(|r| self.file(&full, r));
            match found {
                Ok(Some(record)) => dirs.push((full, record)),
                Ok(None) => {}
                Err(error) => self.findings.push(Finding { path: full, error }),
            }
        }
        Ok(dirs)
    }

    /// Lists one name; answers what it names, if it is a directory to be listed.
    fn file(&mut self, path: &[u8], record: Record) -> FsResult<Option<Record>> {
        let inode = &record.inode;
        let mode = inode.mode.get();
        let Some(kind) = FileType::from_mode(mode) else {
            let (found, at) = (mode.into(), record.at);
            return Err(FsError::corrupt("btrfs inode", "mode", at, found, "a known type"));
        };
        let place = (record.tree.id, record.ino);
        let is_dir = kind == FileType::Dir && !record.is_stub;
        if is_dir && !self.dirs_seen.insert(place) {
            let expected = "a directory with one name";
            let (at, ino) = (record.at, record.ino);
            return Err(FsError::corrupt("btrfs directory", "inode", at, ino, expected));
        }
        let time = |t: &crate::disk::Timespec| (t.sec.get().cast_signed(), t.nsec.get());
        let mut info = FileInfo {
            path: path.to_vec(),
            kind,
            tree: record.tree.id,
            ino: record.ino,
            mode: mode & 0o7777,
            nlink: inode.nlink.get(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            size: inode.size.get(),
            sectors: inode.nbytes.get().div_ceil(4096).saturating_mul(8),
            times: [time(&inode.atime), time(&inode.ctime), time(&inode.mtime)],
            sha256: None,
            target: None,
            xattrs: Vec::new(),
        };
        self.details(&record, &mut info);
        self.files.push(info);
        Ok(is_dir.then_some(record))
    }

    /// What may fail without the file being lost.
    fn details(&mut self, record: &Record, info: &mut FileInfo) {
        let mut findings = Vec::new();
        let mut keep = |error| findings.push(Finding { path: info.path.clone(), error });
        if info.kind == FileType::Symlink {
            match self.image.link_target(record) {
                Ok(target) => info.target = Some(target),
                Err(e) => keep(e),
            }
        }
        match self.image.xattrs(record) {
            Ok(xattrs) => info.xattrs = xattrs,
            Err(e) => keep(e),
        }
        if info.kind == FileType::File && self.hash {
            match self.hash(record) {
                Ok(hash) => info.sha256 = Some(hash),
                Err(e) => keep(e),
            }
        }
        self.findings.append(&mut findings);
    }

    fn hash(&mut self, record: &Record) -> FsResult<Digest> {
        let place = (record.tree.id, record.ino);
        if let Some(hash) = self.hashes.get(&place) {
            return Ok(*hash);
        }
        let hash = self.image.sha256(record, &mut self.hash_bytes_left)?;
        if record.inode.nlink.get() > 1 {
            self.hashes.insert(place, hash);
        }
        Ok(hash)
    }
}
