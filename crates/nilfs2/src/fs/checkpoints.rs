//! Checkpoints that are asked for, snapshots, and checkpoints that go.
//!
//! Source: fs/nilfs2/ioctl.c (`nilfs_ioctl_sync`, `nilfs_ioctl_change_cpmode`,
//!         `nilfs_ioctl_delete_checkpoint`).

use wp_base::FsResult;
use wp_vfs::Checkpointing;

use super::Nilfs;
use crate::site;

impl Nilfs {
    /// Makes, changes or removes a checkpoint; of one that is made the number. Waits: for a log
    /// where one is made, and for the device.
    pub(super) async fn checkpoint(&self, what: Checkpointing) -> FsResult<u64> {
        match what {
            Checkpointing::Make => self.make_checkpoint().await,
            Checkpointing::SetSnapshot(..) | Checkpointing::Delete(_) => {
                let _sem = self.begin().await?;
                let done = self.change_checkpoint(what);
                if done.is_ok() {
                    // The next log has it.
                    self.changed();
                }
                self.settled(done).await.map(|()| 0)
            }
        }
    }

    fn change_checkpoint(&self, what: Checkpointing) -> FsResult<()> {
        let mut store = self.store.borrow_mut();
        match what {
            Checkpointing::Make => Ok(()),
            Checkpointing::SetSnapshot(number, on) => store.set_snapshot(number, on),
            Checkpointing::Delete(number) => store.delete_checkpoint(number),
        }
    }

    /// Makes everything durable; the number of the newest checkpoint, which has it.
    async fn make_checkpoint(&self) -> FsResult<u64> {
        if site::SYNC_LOG.on() {
            self.write_all().await?;
        }
        self.flush_device().await?;
        // Not while a log is on its way (`ns_segctor_sem`).
        let _sem = self.sem.lock().await;
        let next = self.store.borrow().cno();
        Ok(next.wrapping_sub(1))
    }
}
