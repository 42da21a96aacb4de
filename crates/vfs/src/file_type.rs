//! What a name names: a file, a directory, a device.

/// Kind of a directory entry or inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Character device.
    Char,
    /// Block device.
    Block,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

impl FileType {
    /// The type bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileType::Fifo => 0o010_000,
            FileType::Char => 0o020_000,
            FileType::Dir => 0o040_000,
            FileType::Block => 0o060_000,
            FileType::File => 0o100_000,
            FileType::Symlink => 0o120_000,
            FileType::Socket => 0o140_000,
        }
    }

    /// From `st_mode`; `None` for bits that mean nothing.
    pub const fn from_mode(mode: u32) -> Option<FileType> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileType::Fifo,
            0o020_000 => FileType::Char,
            0o040_000 => FileType::Dir,
            0o060_000 => FileType::Block,
            0o100_000 => FileType::File,
            0o120_000 => FileType::Symlink,
            0o140_000 => FileType::Socket,
            _ => return None,
        })
    }

    /// The number of its entries in directories: `FT_*` of include/linux/fs_types.h, which all four
    /// file systems write. 0 stands for an entry that does not tell.
    pub const fn entry(self) -> u8 {
        match self {
            FileType::File => 1,
            FileType::Dir => 2,
            FileType::Char => 3,
            FileType::Block => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }

    /// From the number of an entry; `None` for 0 and for numbers that mean nothing.
    pub const fn from_entry(number: u8) -> Option<FileType> {
        Some(match number {
            1 => FileType::File,
            2 => FileType::Dir,
            3 => FileType::Char,
            4 => FileType::Block,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => return None,
        })
    }

    /// The number of the entries of an inode with this `st_mode`; 0 if its type bits mean nothing.
    pub const fn entry_of_mode(mode: u32) -> u8 {
        match FileType::from_mode(mode) {
            Some(kind) => kind.entry(),
            None => 0,
        }
    }

    /// The word that listings use.
    pub const fn word(self) -> &'static str {
        match self {
            FileType::File => "file",
            FileType::Dir => "dir",
            FileType::Symlink => "symlink",
            FileType::Char => "char",
            FileType::Block => "block",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
        }
    }

    /// The word of a type that may be none.
    pub const fn word_of(kind: Option<FileType>) -> &'static str {
        match kind {
            Some(kind) => kind.word(),
            None => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FileType;

    #[test]
    fn numbers_and_modes_come_back() {
        let known: Vec<FileType> = (0..=u8::MAX).filter_map(FileType::from_entry).collect();
        assert_eq!(known.len(), 7);
        for kind in known {
            assert_eq!(FileType::from_entry(kind.entry()), Some(kind));
            assert_eq!(FileType::from_mode(kind.mode_bits() | 0o7777), Some(kind));
            assert_eq!(FileType::entry_of_mode(kind.mode_bits()), kind.entry());
        }
        assert_eq!(FileType::entry_of_mode(0o030_644), 0, "no type has these bits");
    }
}
