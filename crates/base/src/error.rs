//! The three kinds of wrong: a request that cannot be done ([`FsError`]), an image that is wrong
//! ([`Corruption`]), and we are wrong (a panic, never made here).

use std::fmt;

/// What an operation answers instead of a result. One variant an errno.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FsError {
    /// `ENOENT`: no such name.
    NotFound,
    /// `EEXIST`: the name is taken.
    Exists,
    /// `ENOTDIR`: a directory was needed.
    NotDir,
    /// `EISDIR`: a directory was not wanted.
    IsDir,
    /// `ENOTEMPTY`: the directory still has entries.
    NotEmpty,
    /// `ENOSPC`: no free block or inode.
    NoSpace,
    /// `EFBIG`: beyond the largest offset that the format can hold.
    TooBig,
    /// `EMLINK`: the inode has all the links it can have.
    TooManyLinks,
    /// `ENAMETOOLONG`.
    NameTooLong,
    /// `EINVAL`, with what was wrong.
    Invalid(&'static str),
    /// `EROFS`: mounted read-only, or stopped after an error.
    ReadOnly,
    /// `EBADF`: not an open file, or not open for this.
    BadFile,
    /// `EIO`: the device failed the request.
    Io,
    /// `EXDEV`: across two file systems.
    CrossDevice,
    /// `EPERM`.
    NotPermitted,
    /// `EBUSY`: a name that is in use as such: the root, or `.` and `..` of a rename.
    Busy,
    /// `ELOOP`: too many symbolic links.
    Loop,
    /// `ENODATA`: no such extended attribute.
    NoData,
    /// `ERANGE`: a name beyond what attributes may have.
    Range,
    /// `EOPNOTSUPP`: the format or this build cannot do it; says what.
    Unsupported(String),
    /// `EUCLEAN`: the image contradicts itself.
    Corrupt(Box<Corruption>),
}

/// A place where an image is not what its format says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// Structure, such as "ext4 extent header".
    pub structure: &'static str,
    /// Field of it, by the format's name.
    pub field: &'static str,
    /// Where: byte address in the image.
    pub at: u64,
    /// What stood there.
    pub found: u64,
    /// What would have been right.
    pub expected: String,
}

/// Result of a file-system operation.
pub type FsResult<T> = Result<T, FsError>;

impl FsError {
    /// What [`FsError::errno`] may answer.
    pub const ERRNOS: [&str; 21] = [
        "ENOENT",
        "EEXIST",
        "ENOTDIR",
        "EISDIR",
        "ENOTEMPTY",
        "ENOSPC",
        "EFBIG",
        "EMLINK",
        "ENAMETOOLONG",
        "EINVAL",
        "EROFS",
        "EBADF",
        "EIO",
        "EXDEV",
        "EPERM",
        "EBUSY",
        "ELOOP",
        "ENODATA",
        "ERANGE",
        "EOPNOTSUPP",
        "EUCLEAN",
    ];

    /// The errno's symbolic name: one of [`FsError::ERRNOS`].
    pub fn errno(&self) -> &'static str {
        match self {
            FsError::NotFound => "ENOENT",
            FsError::Exists => "EEXIST",
            FsError::NotDir => "ENOTDIR",
            FsError::IsDir => "EISDIR",
            FsError::NotEmpty => "ENOTEMPTY",
            FsError::NoSpace => "ENOSPC",
            FsError::TooBig => "EFBIG",
            FsError::TooManyLinks => "EMLINK",
            FsError::NameTooLong => "ENAMETOOLONG",
            FsError::Invalid(_) => "EINVAL",
            FsError::ReadOnly => "EROFS",
            FsError::BadFile => "EBADF",
            FsError::Io => "EIO",
            FsError::CrossDevice => "EXDEV",
            FsError::NotPermitted => "EPERM",
            FsError::Busy => "EBUSY",
            FsError::Loop => "ELOOP",
            FsError::NoData => "ENODATA",
            FsError::Range => "ERANGE",
            FsError::Unsupported(_) => "EOPNOTSUPP",
            FsError::Corrupt(_) => "EUCLEAN",
        }
    }

    /// A [`Corruption`] as an error.
    pub fn corrupt(
        structure: &'static str,
        field: &'static str,
        at: u64,
        found: u64,
        expected: impl Into<String>,
    ) -> FsError {
        FsError::Corrupt(Box::new(Corruption {
            structure,
            field,
            at,
            found,
            expected: expected.into(),
        }))
    }
}

impl From<Corruption> for FsError {
    fn from(c: Corruption) -> FsError {
        FsError::Corrupt(Box::new(c))
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {}: {} is {:#x}, expected {}",
            self.structure, self.at, self.field, self.found, self.expected
        )
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FsError::Invalid(what) => write!(f, "EINVAL: {what}"),
            FsError::Unsupported(what) => write!(f, "EOPNOTSUPP: {what}"),
            FsError::Corrupt(c) => write!(f, "EUCLEAN: {c}"),
            other => f.write_str(other.errno()),
        }
    }
}

impl std::error::Error for FsError {}
