//! The life of a file, in versions.

use std::collections::BTreeMap;

use wp_base::DeviceNumber;
use wp_medium::Slice;
use wp_vfs::{FileFlags, FileType, TimeSpec};

/// The contents of a block from some operation on.
#[derive(Clone, Debug)]
pub(crate) struct BlockVersion {
    /// Version.
    pub version: u32,
    /// What it holds.
    pub data: Slice,
    /// Identity of that.
    pub id: u128,
    /// The call failed: it may be there, and nobody promises it.
    pub maybe: bool,
    /// It was written to another block of the file, which had this place before blocks moved: what
    /// is not durable of the move shows it here.
    pub is_alias: bool,
}

/// A length from some operation on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeVersion {
    /// Version.
    pub version: u32,
    /// Length before, and after. A write that grows a file may have grown it by any number of
    /// blocks when power fails.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// Bytes that the operation wrote, if it wrote.
    pub wrote: Option<(u64, u64)>,
    /// See [`BlockVersion::maybe`].
    pub maybe: bool,
}

/// The value of an extended attribute from some operation on; `None`: there is none.
#[derive(Clone, Debug)]
pub(crate) struct XattrVersion {
    pub version: u32,
    pub value: Option<Vec<u8>>,
}

/// The life of one file.
#[derive(Clone, Debug)]
pub(crate) struct FileLife {
    pub kind: FileType,
    pub ino: Option<u64>,
    /// Is it the root directory of a subvolume?
    pub subvolume: bool,
    /// What a symbolic link points to.
    pub target: Option<String>,
    /// Permission bits, and user and group, each from a version on.
    pub modes: Vec<(u32, u32)>,
    /// See `modes`.
    pub owners: Vec<(u32, (u32, u32))>,
    /// The time of modification that was set; `None`: one that a later call gave it.
    pub mtimes: Vec<(u32, Option<TimeSpec>)>,
    /// Flags; `None`: any, as nothing was learned of them.
    pub flags: Vec<(u32, Option<FileFlags>)>,
    /// Number of a device.
    pub device: DeviceNumber,
    /// Extended attributes by name.
    pub xattrs: BTreeMap<String, Vec<XattrVersion>>,
    pub blocks: BTreeMap<u64, Vec<BlockVersion>>,
    pub sizes: Vec<SizeVersion>,
    /// Blocks that moved, and no sync has promised it: from which block on, and by how many.
    pub shifts: Vec<(u64, i64)>,
    /// Space that was asked for behind the end of the file: version, and the byte behind it; 0:
    /// some of it may be gone.
    pub reserved: Vec<(u32, u64)>,
}

impl FileLife {
    pub(super) fn new(kind: FileType, ino: Option<u64>, sizes: Vec<SizeVersion>) -> FileLife {
        let born = sizes.first().map_or(0, |s| s.version);
        FileLife {
            kind,
            ino,
            subvolume: false,
            target: None,
            modes: vec![(born, FileLife::first_mode(kind))],
            owners: vec![(born, (0, 0))],
            mtimes: Vec::new(),
            flags: vec![(born, None)],
            device: DeviceNumber::default(),
            xattrs: BTreeMap::new(),
            blocks: BTreeMap::new(),
            sizes,
            shifts: Vec::new(),
            reserved: Vec::new(),
        }
    }

    /// With what programs make files.
    fn first_mode(kind: FileType) -> u32 {
        match kind {
            FileType::Dir => 0o755,
            FileType::Symlink => 0o777,
            _ => 0o644,
        }
    }

    /// It belongs to others, and what runs as its owner no longer does
    /// (`setattr_should_drop_suidgid`).
    pub(super) fn chown(&mut self, version: u32, owner: (u32, u32)) {
        self.owners.push((version, owner));
        let mode = self.modes.last().map_or(0, |(_, mode)| *mode);
        let by_group = if mode & 0o010 == 0 { 0 } else { 0o2000 };
        let left = mode & !(0o4000 | by_group);
        if self.kind != FileType::Dir && left != mode {
            self.modes.push((version, left));
        }
    }

    /// A call gave it a new time of modification.
    pub(super) fn touch(&mut self, version: u32) {
        if self.mtimes.last().is_some_and(|(_, set)| set.is_some()) {
            self.mtimes.push((version, None));
        }
    }
}
