//! What is in the image: every file with its attributes and a hash of its contents.

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use wp_vfs::{Digest, Entry, FileInfo, FileType, Listable, Misread, Xattr};

use crate::disk::{Checkpoint, ino};

use super::{Image, Record, RecoverOptions, Recovery, recover};

/// How to list.
#[derive(Clone, Debug)]
pub struct InspectOptions {
    /// Compute SHA-256 of regular files?
    pub hash: bool,
    /// Most bytes to read and hash in all, see [`wp_vfs::list`].
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
    pub findings: Vec<Misread>,
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
        findings.push(Misread { path: b"checkpoints".to_vec(), error });
        Vec::new()
    });
    Ok(Inspection { recovery, findings, files, checkpoints })
}

/// Lists an image as it is, without recovery: files sorted by path, and what is wrong.
pub fn list(image: &Image<'_>, options: &InspectOptions) -> (Vec<FileInfo>, Vec<Misread>) {
    wp_vfs::list(&mut Files(image), options.hash.then_some(options.hash_bytes_max))
}

/// The files of an image.
struct Files<'a>(&'a Image<'a>);

impl Listable for Files<'_> {
    type Record = Record;
    type Dir = u64;
    type Link = u64;

    fn root(&self) -> FsResult<(u64, (u64, u64))> {
        Ok((ino::ROOT, (0, ino::ROOT)))
    }

    fn entries(&mut self, number: &u64) -> FsResult<Vec<Entry<u64>>> {
        let names = self.0.names(&self.0.inode(*number)?)?;
        Ok(names.into_iter().map(|n| Entry { name: n.name, link: n.ino }).collect())
    }

    fn follow(&self, _: &u64, number: &u64) -> FsResult<Record> {
        self.0.inode(*number)
    }

    fn attributes(&self, record: &Record) -> FsResult<FileInfo> {
        let inode = &record.inode;
        let mode = inode.mode.get();
        let kind = FileType::from_mode(mode.into()).ok_or_else(|| {
            FsError::corrupt("nilfs2 inode", "i_mode", record.at, mode.into(), "a known type")
        })?;
        Ok(FileInfo {
            path: Vec::new(),
            kind,
            ino: record.ino,
            mode: (mode & 0o7777).into(),
            nlink: inode.links_count.get().into(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            size: inode.size.get(),
            sectors: inode.blocks.get(),
            sha256: None,
            target: None,
            xattrs: Vec::new(),
        })
    }

    fn identity(&self, record: &Record) -> (u64, u64) {
        (0, record.ino)
    }

    fn dir(&self, record: &Record) -> Option<u64> {
        Some(record.ino)
    }

    fn met_twice(&self, record: &Record) -> FsError {
        let expected = "a directory with one name";
        FsError::corrupt("nilfs2 directory", "inode", record.at, record.ino, expected)
    }

    /// NILFS2 has none.
    fn xattrs(&self, _: &Record) -> FsResult<Vec<Xattr>> {
        Ok(Vec::new())
    }

    fn link_target(&self, record: &Record) -> FsResult<Vec<u8>> {
        self.0.link_target(record)
    }

    fn sha256(&self, record: &Record, bytes_left: &mut u64) -> FsResult<Digest> {
        self.0.sha256(record, bytes_left)
    }
}
