//! Flags of inodes (`chattr`), and what they forbid whichever the file system.

use std::fmt;

use wp_base::{FsError, FsResult, Ino};

use crate::file_type::FileType;
use crate::fs::Reserve;
use crate::syscall::Vfs;
use crate::walk::End;

/// Flags of an inode, as `FS_IOC_GETFLAGS` tells them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileFlags(pub u32);

impl FileFlags {
    /// None.
    pub const NONE: FileFlags = FileFlags(0);
    /// `FS_COMPR_FL`: contents are compressed.
    pub const COMPRESS: FileFlags = FileFlags(0x4);
    /// `FS_SYNC_FL`: every write is synchronous.
    pub const SYNC: FileFlags = FileFlags(0x8);
    /// `FS_IMMUTABLE_FL`: neither contents nor attributes nor names change.
    pub const IMMUTABLE: FileFlags = FileFlags(0x10);
    /// `FS_APPEND_FL`: it is only appended to.
    pub const APPEND: FileFlags = FileFlags(0x20);
    /// `FS_NODUMP_FL`.
    pub const NODUMP: FileFlags = FileFlags(0x40);
    /// `FS_NOATIME_FL`.
    pub const NOATIME: FileFlags = FileFlags(0x80);
    /// `FS_JOURNAL_DATA_FL`: data go through the journal.
    pub const JOURNAL_DATA: FileFlags = FileFlags(0x4000);
    /// `FS_DIRSYNC_FL`: changes of the directory's names are synchronous.
    pub const DIRSYNC: FileFlags = FileFlags(0x1_0000);
    /// `FS_NOCOW_FL`: blocks are overwritten in place.
    pub const NOCOW: FileFlags = FileFlags(0x80_0000);

    /// The words for those that `chattr` sets here.
    pub const NAMES: [(&'static str, FileFlags); 9] = [
        ("append", FileFlags::APPEND),
        ("immutable", FileFlags::IMMUTABLE),
        ("nodump", FileFlags::NODUMP),
        ("noatime", FileFlags::NOATIME),
        ("sync", FileFlags::SYNC),
        ("dirsync", FileFlags::DIRSYNC),
        ("journal-data", FileFlags::JOURNAL_DATA),
        ("nocow", FileFlags::NOCOW),
        ("compress", FileFlags::COMPRESS),
    ];

    /// All that have a word: `chattr` replaces these, and leaves others as they are.
    pub const SETTABLE: FileFlags = FileFlags(0x81_40fc);
    /// Those that a regular file cannot have (`EXT4_REG_FLMASK` and its like).
    pub const OF_DIRECTORIES: FileFlags = FileFlags::DIRSYNC;

    /// Has it one of `others`?
    pub const fn has(self, others: FileFlags) -> bool {
        self.0 & others.0 != 0
    }

    /// These and `others`.
    pub const fn and(self, others: FileFlags) -> FileFlags {
        FileFlags(self.0 | others.0)
    }

    /// Those of these that `others` has not.
    pub const fn without(self, others: FileFlags) -> FileFlags {
        FileFlags(self.0 & !others.0)
    }

    /// May its names, its length and its attributes not be changed (`IS_IMMUTABLE`, `IS_APPEND`)?
    pub const fn is_protected(self) -> bool {
        self.has(FileFlags::IMMUTABLE.and(FileFlags::APPEND))
    }

    /// Is every change of a directory's names synchronous (`IS_DIRSYNC`)?
    pub const fn is_dirsync(self) -> bool {
        self.has(FileFlags::SYNC.and(FileFlags::DIRSYNC))
    }

    /// Reads words that are joined by commas; `none`: none. Errors: an unknown word.
    pub fn parse(text: &str) -> Result<FileFlags, String> {
        if text == "none" {
            return Ok(FileFlags::NONE);
        }
        let mut flags = FileFlags::NONE;
        for word in text.split(',') {
            let known = FileFlags::NAMES.iter().find(|(name, _)| *name == word);
            let names: Vec<&str> = FileFlags::NAMES.iter().map(|(name, _)| *name).collect();
            let unknown = || format!("`{word}`: none, or some of {}", names.join(", "));
            flags = flags.and(known.ok_or_else(unknown)?.1);
        }
        Ok(flags)
    }
}

impl fmt::Display for FileFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = FileFlags::NAMES.iter().filter(|(_, flag)| self.has(*flag));
        let words: Vec<&str> = named.map(|(name, _)| *name).collect();
        f.write_str(if words.is_empty() { "none".to_owned() } else { words.join(",") }.as_str())
    }
}

/// May a name be made in a directory (`may_create`, `inode_permission`)? Errors: `NotPermitted`.
pub fn may_create(dir: FileFlags) -> FsResult<()> {
    if dir.has(FileFlags::IMMUTABLE) { Err(FsError::NotPermitted) } else { Ok(()) }
}

/// May `victim` lose a name in a directory (`may_delete`)? Errors: `NotPermitted`.
pub fn may_delete(dir: FileFlags, victim: FileFlags) -> FsResult<()> {
    let is_free = !dir.is_protected() && !victim.is_protected();
    if is_free { Ok(()) } else { Err(FsError::NotPermitted) }
}

/// May an inode get a name in a directory (`vfs_link`)? Errors: `NotPermitted`.
pub fn may_link(dir: FileFlags, inode: FileFlags) -> FsResult<()> {
    may_create(dir)?;
    if inode.is_protected() { Err(FsError::NotPermitted) } else { Ok(()) }
}

impl Vfs {
    /// Replaces the flags that have words (`FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`), as `chattr` of
    /// e2fsprogs does: of regular files and directories, and not through a symbolic link. Errors:
    /// `NotInKernel` for other files, and for flags that the file system lacks.
    pub async fn chattr(&self, path: &str, flags: FileFlags) -> FsResult<()> {
        let body = async {
            let ino = match End::of(path.as_bytes()) {
                End::Name => {
                    let at = self.last(path, FsError::NotInKernel).await?;
                    wp_rt::soon!(self.fs().lookup(at.dir, at.name))?
                }
                _ => self.walk(path).await?,
            };
            match self.kind(ino).await? {
                FileType::File | FileType::Dir => {
                    // It opens the file for the ioctl, and a close can send data.
                    wp_rt::soon!(self.fs().open(ino, false))?;
                    let set = self.fs().set_flags(ino, flags).await;
                    wp_rt::soon!(self.fs().release(ino, false)).and(set)
                }
                _ => Err(FsError::NotInKernel),
            }
        };
        self.call("ioctl(FS_IOC_SETFLAGS)", || path.to_owned(), |()| 0, body).await
    }

    /// May an inode be opened like this (`may_open`)? Errors: `NotPermitted`.
    pub(crate) fn may_open(
        &self,
        ino: Ino,
        (write, append): (bool, bool),
        cut: bool,
    ) -> FsResult<()> {
        let flags = self.fs().flags_in_memory(ino);
        let refused = (write || cut) && flags.has(FileFlags::IMMUTABLE)
            || flags.has(FileFlags::APPEND) && (cut || write && !append);
        if refused { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    /// May its attributes be changed (`may_setattr`, `xattr_permission`)? Errors: `NotPermitted`.
    pub(crate) fn may_change(&self, ino: Ino) -> FsResult<()> {
        let is_protected = self.fs().flags_in_memory(ino).is_protected();
        if is_protected { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    /// May space be reserved or given back (`vfs_fallocate`)? Errors: `NotPermitted`.
    pub(crate) fn may_reserve(&self, ino: Ino, how: Reserve) -> FsResult<()> {
        let flags = self.fs().flags_in_memory(ino);
        let adds = matches!(how, Reserve::Space { .. });
        let refused = flags.has(FileFlags::IMMUTABLE) || !adds && flags.has(FileFlags::APPEND);
        if refused { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    /// Does the file system refuse a write to what became immutable after it was opened
    /// (`ext4_write_checks`, `f2fs_write_checks`; btrfs and NILFS2 do not look)?
    pub(crate) fn refuses_write(&self, flags: FileFlags) -> bool {
        flags.has(FileFlags::IMMUTABLE) && self.fs().checks_immutable_writes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_words() {
        for text in ["none", "append", "immutable,sync", "nodump,noatime,dirsync,journal-data"] {
            assert_eq!(FileFlags::parse(text).expect(text).to_string(), text);
        }
        let all = FileFlags::NAMES.iter().fold(FileFlags::NONE, |all, (_, flag)| all.and(*flag));
        assert_eq!(all, FileFlags::SETTABLE);
        assert!(FileFlags::parse("immutable,").is_err() && FileFlags::parse("i").is_err());
    }

    #[test]
    fn protected_inodes_keep_their_names() {
        let (none, fixed, grows) = (FileFlags::NONE, FileFlags::IMMUTABLE, FileFlags::APPEND);
        assert_eq!(may_create(grows), Ok(()));
        assert_eq!(may_create(fixed), Err(FsError::NotPermitted));
        assert_eq!(may_delete(none, none), Ok(()));
        for (dir, victim) in [(fixed, none), (grows, none), (none, fixed), (none, grows)] {
            assert_eq!(may_delete(dir, victim), Err(FsError::NotPermitted));
        }
        assert_eq!(may_link(grows, none), Ok(()));
        assert_eq!(may_link(none, grows), Err(FsError::NotPermitted));
    }
}
