//! `ioctl` on block devices.

use wp_base::event::ZoneOp;
use wp_base::{FsResult, Zone};

use crate::syscall::{Fd, Vfs};

impl Vfs {
    /// `ioctl(BLKDISCARD)`: discards bytes `offset..offset + len`. Waits: for the device.
    ///
    /// Errors: `BadFile` if not open for writing; as [`crate::FileSystem::discard`].
    pub async fn discard(&self, fd: Fd, offset: u64, len: u64) -> FsResult<()> {
        let body = async {
            let file = self.file_to_write(fd)?;
            self.fs().discard(file.ino, offset, len).await
        };
        self.call("ioctl(BLKDISCARD)", || fd.0.to_string(), |()| 0, body).await
    }

    /// `ioctl(BLKREPORTZONE)`: the zones of a device; none of one without zones.
    ///
    /// Errors: as [`crate::FileSystem::zones`].
    pub async fn report_zones(&self, fd: Fd) -> FsResult<Vec<Zone>> {
        let body = async {
            let file = self.file(fd)?;
            self.fs().zones(file.ino).await
        };
        let count = |zones: &Vec<Zone>| zones.len() as u64;
        self.call("ioctl(BLKREPORTZONE)", || fd.0.to_string(), count, body).await
    }

    /// Zones of a device that may be open at a time (`queue/max_open_zones`); 0: no limit.
    ///
    /// Errors: `BadFile`.
    pub fn max_open_zones(&self, fd: Fd) -> FsResult<u32> {
        Ok(self.fs().max_open_zones(self.file(fd)?.ino))
    }

    /// `ioctl(BLKRESETZONE)` and its like, for the zone that begins at byte `at`.
    ///
    /// Errors: `BadFile` if not open for writing; as [`crate::FileSystem::manage_zone`].
    pub async fn manage_zone(&self, fd: Fd, op: ZoneOp, at: u64) -> FsResult<()> {
        let name = match op {
            ZoneOp::Open => "ioctl(BLKOPENZONE)",
            ZoneOp::Close => "ioctl(BLKCLOSEZONE)",
            ZoneOp::Finish => "ioctl(BLKFINISHZONE)",
            _ => "ioctl(BLKRESETZONE)",
        };
        let body = async {
            let file = self.file_to_write(fd)?;
            self.fs().manage_zone(file.ino, op, at).await
        };
        self.call(name, || fd.0.to_string(), |()| 0, body).await
    }
}
