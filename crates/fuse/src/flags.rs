//! Flags of files, in the words of the kernel.

use wp_vfs::FileFlags;
use wp_workload::program::Flags;

/// Bits of `open(2)`, as on every architecture that this runs on but for `O_DIRECT`.
mod bits {
    pub const TRUNC: i32 = 0o1000;
    pub const EXCL: i32 = 0o200;
    pub const APPEND: i32 = 0o2000;
    pub const DSYNC: i32 = 0o10000;
    pub const SYNC: i32 = 0o4_010_000;
    #[cfg(target_arch = "aarch64")]
    pub const DIRECT: i32 = 0o200_000;
    #[cfg(not(target_arch = "aarch64"))]
    pub const DIRECT: i32 = 0o40000;
}

/// `ioctl` of the flags of files (`include/uapi/linux/fs.h`), whose numbers have the order of the
/// host's bytes: the lowest first, on all that Writepath is built for.
pub(crate) mod ioctls {
    use wp_vfs::AtomicWrite;

    pub const GETFLAGS: u32 = 0x8008_6601;
    pub const SETFLAGS: u32 = 0x4008_6602;
    /// Since 6.17 the kernel asks for these before it sets the others (`vfs_fileattr_set`).
    pub const GETXATTR: u32 = 0x801c_581f;
    /// Atomic writes of F2FS (`include/uapi/linux/f2fs.h`), which carry nothing.
    pub fn atomic(number: u32) -> Option<AtomicWrite> {
        Some(match number {
            0xf501 => AtomicWrite::Start,
            0xf502 => AtomicWrite::Commit,
            0xf505 => AtomicWrite::Abort,
            0xf519 => AtomicWrite::Replace,
            _ => return None,
        })
    }

    /// Bytes of `struct fsxattr`, which begins with the flags.
    pub const XATTR_BYTES: usize = 28;
}

/// What `open(2)` asks for.
pub(crate) fn open_flags(flags: i32) -> Flags {
    let has = |bit: i32| flags & bit == bit;
    let sync = has(bits::SYNC);
    Flags {
        // O_WRONLY or O_RDWR.
        write: flags & 0o3 != 0,
        truncate: has(bits::TRUNC),
        append: has(bits::APPEND),
        direct: has(bits::DIRECT),
        dsync: has(bits::DSYNC) && !sync,
        sync,
        excl: has(bits::EXCL),
        ..Flags::default()
    }
}

/// Flags of a file as `FS_IOC_FSGETXATTR` has them. Source: `fileattr_fill_flags`.
pub(crate) fn extended(flags: u32) -> u32 {
    const SAME: [(FileFlags, u32); 5] = [
        (FileFlags::SYNC, 0x20),
        (FileFlags::IMMUTABLE, 0x8),
        (FileFlags::APPEND, 0x10),
        (FileFlags::NODUMP, 0x80),
        (FileFlags::NOATIME, 0x40),
    ];
    let set = SAME.iter().filter(|(flag, _)| FileFlags(flags).has(*flag));
    set.fold(0, |all, (_, bit)| all | bit)
}
