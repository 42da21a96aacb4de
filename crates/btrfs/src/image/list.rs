//! What is in the image: every file with its attributes and a hash of its contents.

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use wp_vfs::{Digest, Entry, FileInfo, FileType, Listable, Misread, Xattr};

use crate::replay::{RecoverOptions, Recovery, recover};

use super::{DirName, Image, Record};

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
    /// Would a mount succeed?
    pub mountable: FsResult<()>,
    /// What is wrong with files.
    pub findings: Vec<Misread>,
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
pub fn list(image: &Image<'_>, options: &InspectOptions) -> (Vec<FileInfo>, Vec<Misread>) {
    wp_vfs::list(&mut Files(image), options.hash.then_some(options.hash_bytes_max))
}

impl Image<'_> {
    /// The directory that a mount shows.
    pub fn root(&self) -> FsResult<Record> {
        let tree = self.tree_needed(self.default_subvolume()?)?;
        let root = self.inode(&tree, tree.item.root_dirid.get())?;
        if root.inode.is_dir() { Ok(root) } else { Err(FsError::NotDir) }
    }
}

/// The files of an image.
struct Files<'a>(&'a Image<'a>);

impl Listable for Files<'_> {
    type Record = Record;
    type Dir = Record;
    type Link = DirName;

    fn root(&self) -> FsResult<(Record, (u64, u64))> {
        let root = self.0.root()?;
        let identity = self.identity(&root);
        Ok((root, identity))
    }

    fn entries(&mut self, dir: &Record) -> FsResult<Vec<Entry<DirName>>> {
        let names = self.0.names(dir)?.into_iter();
        Ok(names.map(|link| Entry { name: link.name.clone(), link }).collect())
    }

    fn follow(&self, dir: &Record, name: &DirName) -> FsResult<Record> {
        self.0.follow(dir, name)
    }

    fn attributes(&self, record: &Record) -> FsResult<FileInfo> {
        let inode = &record.inode;
        let mode = inode.mode.get();
        let kind = FileType::from_mode(mode).ok_or_else(|| {
            FsError::corrupt("btrfs inode", "mode", record.at, mode.into(), "a known type")
        })?;
        Ok(FileInfo {
            path: Vec::new(),
            kind,
            ino: record.ino,
            mode: mode & 0o7777,
            nlink: inode.nlink.get(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            size: inode.size.get(),
            sectors: inode.nbytes.get().div_ceil(4096).saturating_mul(8),
            sha256: None,
            target: None,
            xattrs: Vec::new(),
        })
    }

    fn identity(&self, record: &Record) -> (u64, u64) {
        (record.tree.id, record.ino)
    }

    /// A stub's names are those of a subvolume that is not there.
    fn dir(&self, record: &Record) -> Option<Record> {
        (!record.is_stub).then(|| record.clone())
    }

    fn met_twice(&self, record: &Record) -> FsError {
        let expected = "a directory with one name";
        FsError::corrupt("btrfs directory", "inode", record.at, record.ino, expected)
    }

    fn xattrs(&self, record: &Record) -> FsResult<Vec<Xattr>> {
        self.0.xattrs(record)
    }

    fn link_target(&self, record: &Record) -> FsResult<Vec<u8>> {
        self.0.link_target(record)
    }

    fn sha256(&self, record: &Record, bytes_left: &mut u64) -> FsResult<Digest> {
        self.0.sha256(record, bytes_left)
    }
}
