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
    /// `EACCES`: a mapping that the descriptor does not allow.
    AccessDenied,
    /// `ENODEV`: what cannot be mapped, or has no space to reserve.
    NoDevice,
    /// `EFAULT`: memory that is not there: behind the end of a mapped file.
    Fault,
    /// `ENXIO`: nothing is there: no data, and no hole, from an offset on; no driver for a device.
    NoSuchPlace,
    /// `EBUSY`: a name that is in use as such: the root, or `.` and `..` of a rename.
    Busy,
    /// `ELOOP`: too many symbolic links.
    Loop,
    /// `EBADE`: ranges that were to be shared differ (`FILE_DEDUPE_RANGE_DIFFERS`).
    Differs,
    /// `ENODATA`: no such extended attribute.
    NoData,
    /// `ERANGE`: a name beyond what attributes may have.
    Range,
    /// `ENOTTY`: the file system has no such ioctl.
    NoSuchIoctl,
    /// `ENOSYS`: the kernel of that version has no such system call.
    NoSuchCall,
    /// `EOPNOTSUPP`, as the kernel of that version answers: its file system has no such call.
    NotInKernel,
    /// `EOPNOTSUPP`: this build cannot do it, whatever a kernel can; says what.
    Unsupported(String),
    /// `EAGAIN`: something is in the way for now; the caller may try again.
    Again,
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

/// Linux' numbers of errors by their names. fio knows the first 34, which have the numbers from 1.
pub const LINUX_ERRNOS: [(&str, i32); 44] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("ENOEXEC", 8),
    ("EBADF", 9),
    ("ECHILD", 10),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("ENOTBLK", 15),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("ENOTDIR", 20),
    ("EISDIR", 21),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("ETXTBSY", 26),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("ESPIPE", 29),
    ("EROFS", 30),
    ("EMLINK", 31),
    ("EPIPE", 32),
    ("EDOM", 33),
    ("ERANGE", 34),
    ("ENAMETOOLONG", 36),
    ("ENOSYS", 38),
    ("ENOTEMPTY", 39),
    ("ELOOP", 40),
    ("EBADE", 52),
    ("ENODATA", 61),
    ("EILSEQ", 84),
    ("EOPNOTSUPP", 95),
    ("EUCLEAN", 117),
    ("EDQUOT", 122),
];

/// Result of a file-system operation.
pub type FsResult<T> = Result<T, FsError>;

/// Linux' number of an error's name.
pub fn errno_number(name: &str) -> Option<i32> {
    LINUX_ERRNOS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

impl FsError {
    /// What [`FsError::errno`] may answer.
    pub const ERRNOS: [&str; 29] = [
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
        "EACCES",
        "ENODEV",
        "EFAULT",
        "ENXIO",
        "EBUSY",
        "ELOOP",
        "EBADE",
        "ENODATA",
        "ERANGE",
        "ENOTTY",
        "ENOSYS",
        "EOPNOTSUPP",
        "EAGAIN",
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
            FsError::AccessDenied => "EACCES",
            FsError::NoDevice => "ENODEV",
            FsError::Fault => "EFAULT",
            FsError::NoSuchPlace => "ENXIO",
            FsError::Busy => "EBUSY",
            FsError::Loop => "ELOOP",
            FsError::Differs => "EBADE",
            FsError::NoData => "ENODATA",
            FsError::Range => "ERANGE",
            FsError::NoSuchCall => "ENOSYS",
            FsError::NoSuchIoctl => "ENOTTY",
            FsError::NotInKernel | FsError::Unsupported(_) => "EOPNOTSUPP",
            FsError::Again => "EAGAIN",
            FsError::Corrupt(_) => "EUCLEAN",
        }
    }

    /// Linux' number of it.
    pub fn number(&self) -> i32 {
        // Every name is in the table: a test walks them.
        errno_number(self.errno()).unwrap_or(5)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_number_in_linux() {
        for name in FsError::ERRNOS {
            assert!(errno_number(name).is_some(), "{name}");
        }
        // include/uapi/asm-generic/errno-base.h: from 1, without a gap.
        let base = LINUX_ERRNOS[..34].iter().map(|e| e.1);
        assert!(base.eq(1..=34));
        let unsupported = FsError::Unsupported(String::new());
        assert_eq!((unsupported.number(), FsError::Io.number()), (95, 5));
    }
}
