//! New inodes.
//!
//! Source:     Linux `fs/f2fs/namei.c` (`f2fs_new_inode`, `set_file_temperature`).

use std::rc::Rc;

use wp_base::{DeviceNumber, FsResult};

use super::inode::{Fields, Inode, fi};
use super::mount::F2fs;
use crate::disk::inode::{advise, inline, mode};
use crate::disk::{self, InodeExtra, feature};

/// Flags of a directory that what is made in it has too (`F2FS_FL_INHERITED`).
const INHERITED: u32 = disk::inode::flag::SYNC
    | disk::inode::flag::NODUMP
    | disk::inode::flag::NOATIME
    | disk::inode::flag::DIRSYNC
    | disk::inode::flag::PROJINHERIT
    | disk::inode::flag::CASEFOLD;

/// What a new inode begins with.
pub(super) struct NewInode<'a> {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Its name, if that says how warm it is.
    pub name: Option<&'a [u8]>,
    /// Number of a device.
    pub device: DeviceNumber,
}

impl F2fs {
    /// A new inode in memory, with a number that is not in use yet (`f2fs_new_inode`). Errors:
    /// `NoSpace`.
    pub(super) async fn new_inode(
        self: &Rc<Self>,
        dir: &Rc<Inode>,
        new: &NewInode<'_>,
    ) -> FsResult<Rc<Inode>> {
        let ino = self.alloc_nid().await?;
        let now = self.time();
        let (is_dir, is_file) =
            (new.mode & mode::TYPE == mode::DIR, new.mode & mode::TYPE == mode::FILE);
        let is_link = new.mode & mode::TYPE == mode::SYMLINK;
        let mut f = Fields {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            nlink: 1,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: now,
            generation: self.files.generations.borrow_mut().next_u64() as u32,
            depth: u32::from(is_dir),
            device: new.device,
            ..Fields::default()
        };
        let flags = dir.f.borrow().flags & INHERITED;
        f.flags = match (is_dir, is_file) {
            (true, _) => flags | disk::inode::flag::INDEX,
            (_, true) => {
                use disk::inode::flag::{CASEFOLD, DIRSYNC, PROJINHERIT};
                flags & !(DIRSYNC | PROJINHERIT | CASEFOLD)
            }
            _ => flags & (disk::inode::flag::NODUMP | disk::inode::flag::NOATIME),
        };
        if self.sb.has(feature::EXTRA_ATTR) {
            f.inline |= inline::EXTRA_ATTR;
            f.extra_isize = InodeExtra::BYTES as u16;
        }
        if self.opts.inline_xattr {
            f.inline |= inline::XATTR;
        }
        if is_dir && self.opts.inline_dentry {
            f.inline |= inline::DENTRY;
        }
        let has_room = f.inline & inline::XATTR != 0
            || (f.inline & inline::DENTRY != 0 && !self.sb.has(feature::FLEXIBLE_INLINE_XATTR));
        f.xattr_words = if has_room { disk::Inode::XATTR_WORDS as u16 } else { 0 };
        if self.opts.inline_data && (is_file || is_link) {
            f.inline |= inline::DATA;
        }
        if is_file && let Some(name) = new.name {
            f.advise |= self.temperature(name);
        }
        let inode = self.adopt(ino, f, 0);
        inode.set(fi::NEW);
        if !is_file || !self.opts.extent_cache {
            inode.set(fi::NO_EXTENT);
        }
        Ok(inode)
    }

    /// Advice for a file's name: hot or cold by its extension (`set_file_temperature`).
    fn temperature(&self, name: &[u8]) -> u8 {
        let (cold, hot) = self.sb.extensions();
        if cold.iter().any(|e| has_extension(name, e)) {
            advise::COLD
        } else if hot.iter().any(|e| has_extension(name, e)) {
            advise::HOT
        } else {
            0
        }
    }
}

/// Has a name this extension, perhaps with another one behind (`is_extension_exist`)?
fn has_extension(name: &[u8], ext: &[u8]) -> bool {
    if ext == b"*" {
        return true;
    }
    if name.len() < ext.len() + 2 {
        return false;
    }
    (1..name.len() - ext.len()).any(|i| {
        name[i] == b'.'
            && name.get(i + 1..i + 1 + ext.len()).is_some_and(|n| n.eq_ignore_ascii_case(ext))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_counts_behind_a_dot_only_and_with_one_more_behind() {
        assert!(has_extension(b"a.mp3", b"mp3"));
        assert!(has_extension(b"a.MP3.part", b"mp3"));
        assert!(!has_extension(b".mp3", b"mp3"));
        assert!(!has_extension(b"amp3", b"mp3"));
        assert!(has_extension(b"x", b"*"));
    }
}
