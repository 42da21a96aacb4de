//! Checkpoints and snapshots, as the programs of nilfs-utils make and remove them.
//!
//! Source: nilfs-utils 2.2: bin/mkcp.c, bin/chcp.c, bin/rmcp.c; include/uapi/linux/nilfs2_api.h.

use wp_base::FsResult;

use crate::syscall::Vfs;

/// What is done to checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpointing {
    /// Everything becomes durable, and the newest checkpoint has it (`NILFS_IOCTL_SYNC`).
    Make,
    /// A checkpoint becomes a snapshot, which nobody removes, or one no more
    /// (`NILFS_IOCTL_CHANGE_CPMODE`). Errors: `NotFound`; `Busy` of what is mounted.
    SetSnapshot(u64, bool),
    /// A checkpoint goes (`NILFS_IOCTL_DELETE_CHECKPOINT`). Errors: `NotFound`; `Busy` of a
    /// snapshot.
    Delete(u64),
}

impl Vfs {
    /// `mkcp`, with `is_snapshot` `mkcp -s`: makes everything durable; the number of the newest
    /// checkpoint. Waits: for the log, and the device. Errors: as
    /// [`crate::FileSystem::checkpoint`].
    pub async fn mkcp(&self, is_snapshot: bool) -> FsResult<u64> {
        let made = self.fs().checkpoint(Checkpointing::Make);
        let number = self.call("ioctl(NILFS_IOCTL_SYNC)", String::new, |n| *n, made).await?;
        if is_snapshot {
            self.chcp(number, true).await?;
        }
        Ok(number)
    }

    /// `chcp ss` and `chcp cp`: makes a checkpoint a snapshot, or one no more. Errors: as
    /// [`Checkpointing::SetSnapshot`].
    pub async fn chcp(&self, number: u64, is_snapshot: bool) -> FsResult<()> {
        let mode = if is_snapshot { "ss" } else { "cp" };
        let body = self.fs().checkpoint(Checkpointing::SetSnapshot(number, is_snapshot));
        let words = || format!("{mode}, {number}");
        self.call("ioctl(NILFS_IOCTL_CHANGE_CPMODE)", words, |_| 0, body).await.map(drop)
    }

    /// `rmcp`: removes a checkpoint. Errors: as [`Checkpointing::Delete`].
    pub async fn rmcp(&self, number: u64) -> FsResult<()> {
        let body = self.fs().checkpoint(Checkpointing::Delete(number));
        let words = || number.to_string();
        self.call("ioctl(NILFS_IOCTL_DELETE_CHECKPOINT)", words, |_| 0, body).await.map(drop)
    }
}
