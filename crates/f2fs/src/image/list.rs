//! What is in the image: every file with its attributes and a hash of its contents.

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use wp_vfs::{Digest, Entry, FileInfo, FileType, Listable, Misread, Xattr};

use crate::disk::inode::inline;
use crate::disk::nid;

use super::{Image, InodeRecord, RecoverOptions, Recovery, recover};

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
    /// With hashes, up to 1 TiB of them, and the rules of today's kernel.
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
    /// Every path but the root and lost+found with what is in it, sorted by path.
    pub files: Vec<FileInfo>,
}

/// Recovers the file system in memory and lists it. Never writes to `view`.
///
/// Errors: those of [`Image::open`] and [`recover`].
pub fn inspect(view: &dyn View, options: &InspectOptions) -> FsResult<Inspection> {
    let overlay = Overlay::new(view);
    let recovery = recover(&overlay, &options.recover)?;
    let image = Image::open(&overlay)?;
    super::mount::check(&image)?;
    let (files, findings) = list(&image, options);
    Ok(Inspection { recovery, findings, files })
}

/// Lists an image as it is, without recovery: files sorted by path, and what is wrong.
pub fn list(image: &Image<'_>, options: &InspectOptions) -> (Vec<FileInfo>, Vec<Misread>) {
    wp_vfs::list(&mut Files(image), options.hash.then_some(options.hash_bytes_max))
}

/// The files of an image.
struct Files<'a>(&'a Image<'a>);

impl Listable for Files<'_> {
    type Record = InodeRecord;
    type Dir = u32;
    type Link = u32;

    fn root(&self) -> FsResult<(u32, (u64, u64))> {
        Ok((nid::ROOT, (0, nid::ROOT.into())))
    }

    fn entries(&mut self, number: &u32) -> FsResult<Vec<Entry<u32>>> {
        let names = self.0.names(&self.0.inode(*number)?)?;
        let is_shown = |name: &[u8]| *number != nid::ROOT || name != b"lost+found";
        let shown = names.into_iter().filter(|n| is_shown(&n.name));
        Ok(shown.map(|n| Entry { name: n.name, link: n.ino }).collect())
    }

    fn follow(&self, _: &u32, number: &u32) -> FsResult<InodeRecord> {
        self.0.inode(*number)
    }

    fn attributes(&self, record: &InodeRecord) -> FsResult<FileInfo> {
        let inode = record.inode();
        let mode = inode.mode.get();
        let kind = FileType::from_mode(mode.into()).ok_or_else(|| {
            FsError::corrupt("f2fs inode", "i_mode", record.at, mode.into(), "a known type")
        })?;
        Ok(FileInfo {
            path: Vec::new(),
            kind,
            ino: record.ino.into(),
            mode: (mode & 0o7777).into(),
            nlink: inode.links.get(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            size: inode.size.get(),
            sectors: sectors(record),
            sha256: None,
            target: None,
            xattrs: Vec::new(),
        })
    }

    fn identity(&self, record: &InodeRecord) -> (u64, u64) {
        (0, record.ino.into())
    }

    fn dir(&self, record: &InodeRecord) -> Option<u32> {
        Some(record.ino)
    }

    fn met_twice(&self, record: &InodeRecord) -> FsError {
        let expected = "a directory with one name";
        FsError::corrupt("f2fs directory", "inode", record.at, record.ino.into(), expected)
    }

    fn xattrs(&self, record: &InodeRecord) -> FsResult<Vec<Xattr>> {
        let all = self.0.attributes(record)?.into_iter();
        Ok(all.map(|a| Xattr { name: a.full_name().into_bytes(), value: a.value }).collect())
    }

    fn link_target(&self, record: &InodeRecord) -> FsResult<Vec<u8>> {
        self.0.link_target(record)
    }

    fn sha256(&self, record: &InodeRecord, bytes_left: &mut u64) -> FsResult<Digest> {
        self.0.sha256(record, bytes_left)
    }
}

/// Space in use as `stat` tells it: the inode's own block does not count, inline contents do.
/// `f2fs_getattr`.
fn sectors(record: &InodeRecord) -> u64 {
    let inode = record.inode();
    let inside = (inode.is_file() && inode.has_inline(inline::DATA))
        || (inode.is_dir() && inode.has_inline(inline::DENTRY));
    let extra = if inside { inode.size.get().div_ceil(512) } else { 0 };
    inode.blocks.get().saturating_sub(1).saturating_mul(8).saturating_add(extra)
}
