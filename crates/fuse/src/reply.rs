//! What files are, in the words of FUSE.

use std::time::{Duration, UNIX_EPOCH};

use fuser::{Errno, FileAttr, Generation, INodeNo, ReplyEmpty, ReplyEntry, ReplyXattr};
use wp_base::{FsError, FsResult};
use wp_vfs::{Attr, FileType, TimeSpec};

use crate::control::Control;

/// A time as FUSE's crate has it.
#[expect(
    clippy::disallowed_types,
    reason = "a file's time comes from its caller, not from a clock"
)]
pub(crate) type WallTime = std::time::SystemTime;

/// How long the kernel may remember an answer: nobody else changes the file system.
pub(crate) const FOREVER: Duration = Duration::from_secs(86_400);

pub(crate) fn entry(reply: ReplyEntry, made: FsResult<(u64, Attr)>) {
    match made {
        Ok((node, attr)) => reply.entry(&ttl(node), &file_attr(node, &attr), Generation(0)),
        Err(e) => reply.error(errno(&e)),
    }
}

pub(crate) fn ttl(node: u64) -> Duration {
    if Control::of(node).is_some() { Duration::ZERO } else { FOREVER }
}

pub(crate) fn empty(reply: ReplyEmpty, done: FsResult<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(&e)),
    }
}

pub(crate) fn xattr(reply: ReplyXattr, size: u32, value: FsResult<Vec<u8>>) {
    match value {
        Err(e) => reply.error(errno(&e)),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

pub(crate) fn errno(error: &FsError) -> Errno {
    Errno::from_i32(error.number())
}

pub(crate) fn system_time(t: TimeSpec) -> WallTime {
    let span = Duration::from_secs(t.secs.unsigned_abs());
    let second = match t.secs < 0 {
        true => UNIX_EPOCH.checked_sub(span),
        false => UNIX_EPOCH.checked_add(span),
    };
    second.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(u64::from(t.nanos))
}

pub(crate) fn time_spec(t: WallTime) -> TimeSpec {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => TimeSpec {
            secs: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            nanos: d.subsec_nanos(),
        },
        Err(e) => {
            let before = e.duration();
            let (secs, nanos) = (before.as_secs() as i64, before.subsec_nanos());
            match nanos {
                0 => TimeSpec { secs: -secs, nanos: 0 },
                n => TimeSpec { secs: -secs - 1, nanos: 1_000_000_000 - n },
            }
        }
    }
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::File => fuser::FileType::RegularFile,
        FileType::Dir => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Char => fuser::FileType::CharDevice,
        FileType::Block => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// `new_encode_dev`.
pub(crate) fn device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// `new_decode_dev`.
pub(crate) fn device_number(rdev: u32) -> (u32, u32) {
    ((rdev & 0x000f_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00))
}

pub(crate) fn file_attr(node: u64, a: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: a.size,
        blocks: a.blocks_512,
        atime: system_time(a.atime),
        mtime: system_time(a.mtime),
        ctime: system_time(a.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(a.kind),
        perm: a.mode as u16,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: device(a.device.major, a.device.minor),
        blksize: 4096,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_back() {
        for (secs, nanos) in [(0, 0), (5, 7), (-1, 999_999_999), (-5, 0), (1 << 33, 1)] {
            let t = TimeSpec { secs, nanos };
            assert_eq!(time_spec(system_time(t)), t);
        }
    }

    #[test]
    fn numbers_of_devices_come_back() {
        for (major, minor) in [(0, 0), (8, 16), (259, 3), (4095, (1 << 20) - 1)] {
            assert_eq!(device_number(device(major, minor)), (major, minor));
        }
    }
}
