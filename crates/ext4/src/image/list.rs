//! What is in the image: every file with its attributes and a hash of its contents.

use wp_base::{FsError, FsResult};
use wp_jbd2::RecoverPolicy;
use wp_medium::{Overlay, View};
use wp_vfs::{Digest, Entry, FileInfo, FileType, Listable, Misread, Xattr};

use crate::disk::ino;
use crate::disk::inode::{flag, mode};

use super::{AtMount, Image, InodeRecord, Recovery, recover_at_mount};

/// How to list.
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// Compute SHA-256 of regular files?
    pub hash: bool,
    /// Most bytes to read and hash in all, see [`wp_vfs::list`].
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
    pub findings: Vec<Misread>,
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
    findings.extend(reported.map(|error| Misread { path: Vec::new(), error }));
    Ok(Inspection { recovery, findings, files })
}

/// Lists an image as it is, without recovery: files sorted by path, and what is wrong.
pub fn list(image: &Image<'_>, options: &InspectOptions) -> (Vec<FileInfo>, Vec<Misread>) {
    // Each block of a sound file system belongs to one directory, each inode to one.
    let mut files = Files { image, blocks_left: image.g.blocks_count.saturating_mul(2) };
    wp_vfs::list(&mut files, options.hash.then_some(options.hash_bytes_max))
}

/// The files of an image.
struct Files<'a> {
    image: &'a Image<'a>,
    /// Blocks of directories that may still be read.
    blocks_left: u64,
}

impl Listable for Files<'_> {
    type Record = InodeRecord;
    type Dir = u32;
    type Link = u32;

    fn root(&self) -> FsResult<(u32, (u64, u64))> {
        Ok((ino::ROOT, (0, ino::ROOT.into())))
    }

    fn entries(&mut self, number: &u32) -> FsResult<Vec<Entry<u32>>> {
        let record = self.image.inode(*number)?;
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
        let is_shown = |name: &[u8]| *number != ino::ROOT || name != b"lost+found";
        let names = self.image.names(&record)?.into_iter().filter(|n| is_shown(&n.name));
        Ok(names.map(|n| Entry { name: n.name, link: n.inode }).collect())
    }

    fn follow(&self, _: &u32, number: &u32) -> FsResult<InodeRecord> {
        self.image.named_inode(*number)
    }

    fn attributes(&self, record: &InodeRecord) -> FsResult<FileInfo> {
        let inode = &record.inode;
        let all = inode.mode.get();
        let kind = FileType::from_mode(all.into()).ok_or_else(|| {
            FsError::corrupt("ext4 inode", "i_mode", record.at, all.into(), "a known type")
        })?;
        Ok(FileInfo {
            path: Vec::new(),
            kind,
            ino: record.number.into(),
            mode: (all & mode::PERMISSIONS).into(),
            nlink: inode.links_count.get().into(),
            uid: inode.uid(),
            gid: inode.gid(),
            size: inode.size(),
            sectors: inode.sectors(self.image.block_size().sectors()),
            sha256: None,
            target: None,
            xattrs: Vec::new(),
        })
    }

    fn identity(&self, record: &InodeRecord) -> (u64, u64) {
        (0, record.number.into())
    }

    fn dir(&self, record: &InodeRecord) -> Option<u32> {
        Some(record.number)
    }

    fn met_twice(&self, record: &InodeRecord) -> FsError {
        let expected = "a directory with one name";
        FsError::corrupt("ext4 directory", "inode", record.at, record.number.into(), expected)
    }

    fn xattrs(&self, record: &InodeRecord) -> FsResult<Vec<Xattr>> {
        self.image.xattrs(record)
    }

    fn link_target(&self, record: &InodeRecord) -> FsResult<Vec<u8>> {
        self.image.link_target(record)
    }

    fn sha256(&self, record: &InodeRecord, bytes_left: &mut u64) -> FsResult<Digest> {
        self.image.sha256(record, bytes_left)
    }
}
