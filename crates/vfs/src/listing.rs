//! What is in an image: every file with its attributes and a digest of its contents.
//!
//! Picture:    a file system's image, as a [`Listable`] -> [`list`] -> [`FileInfo`]s and
//!             [`Misread`]s, by path.
//! Invariants: 1. what cannot be read costs no more than itself: the listing goes on without it.
//!             2. a directory is listed once, however many names a damaged image gives it.

use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult};

use crate::{Digest, FileType, ListedFile};

/// An extended attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Xattr {
    /// Full name, with its prefix (`user.mime_type`).
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// A file, directory or link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileInfo {
    /// Path from the root, without a leading slash, as bytes.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: FileType,
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
    /// Digest of a regular file's contents, if asked for and readable.
    pub sha256: Option<Digest>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
}

/// What could not be read; the listing goes on without what it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misread {
    /// Path of the file; empty for the root.
    pub path: Vec<u8>,
    /// What is wrong.
    pub error: FsError,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<L> {
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub link: L,
}

/// An image whose files can be listed.
pub trait Listable {
    /// An inode that was read.
    type Record;
    /// What it takes to read a directory.
    type Dir;
    /// What a name leads to.
    type Link;

    /// The directory that a mount shows, and its [`Self::identity`].
    fn root(&self) -> FsResult<(Self::Dir, (u64, u64))>;
    /// Names of a directory, less `.`, `..` and what no listing shows.
    fn entries(&mut self, dir: &Self::Dir) -> FsResult<Vec<Entry<Self::Link>>>;
    /// The inode that a name leads to.
    fn follow(&self, dir: &Self::Dir, link: &Self::Link) -> FsResult<Self::Record>;
    /// Its attributes, but for those that have a function of their own here, and for the path.
    /// Errors: `Corrupt` for a type that is none.
    fn attributes(&self, record: &Self::Record) -> FsResult<FileInfo>;
    /// What tells it apart from all others: its tree (0 where there is one) and its number.
    fn identity(&self, record: &Self::Record) -> (u64, u64);
    /// The directory that it is; `None` for one whose names are elsewhere.
    fn dir(&self, record: &Self::Record) -> Option<Self::Dir>;
    /// The error of a directory that was met before.
    fn met_twice(&self, record: &Self::Record) -> FsError;
    /// Its extended attributes.
    fn xattrs(&self, record: &Self::Record) -> FsResult<Vec<Xattr>>;
    /// Where a symbolic link points.
    fn link_target(&self, record: &Self::Record) -> FsResult<Vec<u8>>;
    /// The digest of a regular file. Errors: those of [`Digest::of`].
    fn sha256(&self, record: &Self::Record, bytes_left: &mut u64) -> FsResult<Digest>;
}

/// Lists an image as it is: files, and what could not be read, each sorted by path.
///
/// `hash_bytes_max`: bytes to read and hash in all, so that blocks that many files have on paper do
/// not take years; a file that goes beyond has no digest, and a [`Misread`]. Holes of sparse files
/// are free. `None`: no digests.
pub fn list<I: Listable>(
    image: &mut I,
    hash_bytes_max: Option<u64>,
) -> (Vec<FileInfo>, Vec<Misread>) {
    let mut lister = Lister {
        image,
        hash_bytes_left: hash_bytes_max,
        dirs_seen: BTreeSet::new(),
        hashes: BTreeMap::new(),
        files: Vec::new(),
        misread: Vec::new(),
    };
    lister.run();
    let (mut files, mut misread) = (lister.files, lister.misread);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    misread.sort_by(|a, b| a.path.cmp(&b.path));
    (files, misread)
}

struct Lister<'i, I> {
    image: &'i mut I,
    hash_bytes_left: Option<u64>,
    dirs_seen: BTreeSet<(u64, u64)>,
    /// Digests of files with several names, which are read once.
    hashes: BTreeMap<(u64, u64), Digest>,
    files: Vec<FileInfo>,
    misread: Vec<Misread>,
}

impl<I: Listable> Lister<'_, I> {
    fn run(&mut self) {
        // A list of what is to do instead of recursion: names nest as deep as an image says.
        let mut dirs = Vec::new();
        match self.image.root() {
            Ok((root, identity)) => {
                self.dirs_seen.insert(identity);
                dirs.push((Vec::new(), root));
            }
            Err(error) => self.misread.push(Misread { path: Vec::new(), error }),
        }
        while let Some((path, dir)) = dirs.pop() {
            match self.directory(&path, &dir) {
                Ok(found) => dirs.extend(found),
                Err(error) => self.misread.push(Misread { path, error }),
            }
        }
    }

    /// Lists a directory; returns its subdirectories.
    fn directory(&mut self, path: &[u8], dir: &I::Dir) -> FsResult<Vec<(Vec<u8>, I::Dir)>> {
        let mut dirs = Vec::new();
        for entry in self.image.entries(dir)? {
            let mut full = path.to_vec();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(&entry.name);
            let record = self.image.follow(dir, &entry.link);
            match record.and_then(|record| self.file(&full, &record)) {
                Ok(Some(dir)) => dirs.push((full, dir)),
                Ok(None) => {}
                Err(error) => self.misread.push(Misread { path: full, error }),
            }
        }
        Ok(dirs)
    }

    /// Lists one name; returns the directory that it names, if it names one.
    fn file(&mut self, path: &[u8], record: &I::Record) -> FsResult<Option<I::Dir>> {
        let mut info = self.image.attributes(record)?;
        let dir = match info.kind {
            FileType::Dir => self.image.dir(record),
            _ => None,
        };
        if dir.is_some() && !self.dirs_seen.insert(self.image.identity(record)) {
            return Err(self.image.met_twice(record));
        }
        info.path = path.to_vec();
        self.details(record, &mut info);
        self.files.push(info);
        Ok(dir)
    }

    /// What may fail without the file being lost.
    fn details(&mut self, record: &I::Record, info: &mut FileInfo) {
        match self.image.xattrs(record) {
            Ok(xattrs) => info.xattrs = xattrs,
            Err(error) => self.misread.push(Misread { path: info.path.clone(), error }),
        }
        if info.kind == FileType::Symlink {
            match self.image.link_target(record) {
                Ok(target) => info.target = Some(target),
                Err(error) => self.misread.push(Misread { path: info.path.clone(), error }),
            }
        }
        if info.kind == FileType::File {
            match self.hash(record, info.nlink) {
                Ok(hash) => info.sha256 = hash,
                Err(error) => self.misread.push(Misread { path: info.path.clone(), error }),
            }
        }
    }

    fn hash(&mut self, record: &I::Record, nlink: u32) -> FsResult<Option<Digest>> {
        let Some(bytes_left) = &mut self.hash_bytes_left else { return Ok(None) };
        let identity = self.image.identity(record);
        if let Some(hash) = self.hashes.get(&identity) {
            return Ok(Some(*hash));
        }
        let hash = self.image.sha256(record, bytes_left)?;
        if nlink > 1 {
            self.hashes.insert(identity, hash);
        }
        Ok(Some(hash))
    }
}

impl FileInfo {
    /// The same with text for bytes, as `inspect` prints it.
    pub fn listed(&self) -> ListedFile {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ListedFile {
            path: text(&self.path),
            kind: self.kind.word(),
            ino: self.ino,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            sha256: self.sha256.map(|d| d.to_string()),
            target: self.target.as_deref().map(text),
            xattrs: self.xattrs.iter().map(|x| (text(&x.name), value_text(&x.value))).collect(),
        }
    }
}

/// An attribute's value as `getfattr` prints it: text, or hexadecimal where it is none.
fn value_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(s) if !s.chars().any(char::is_control) => s.to_owned(),
        _ => value.iter().fold("0x".to_owned(), |t, b| t + &format!("{b:02x}")),
    }
}
