//! Checkpoints that become snapshots, that are snapshots no more, and that go.
//!
//! Picture:    the head of the file of checkpoints -> `next` -> the oldest snapshot -> `next` -> …
//!             -> the newest -> `next` -> 0, the head; `prev` leads the other way.
//! Source:     `nilfs_cpfile_set_snapshot`, `nilfs_cpfile_clear_snapshot`,
//!             `nilfs_cpfile_delete_checkpoint`, `nilfs_checkpoint_is_mounted` of Linux 6.12.

use wp_base::{FsError, FsResult};

use crate::disk::checkpoint::{SnapshotList, flag};
use crate::disk::{Checkpoint, CheckpointHeader};

use super::Store;
use super::dat::Via;
use super::tables::within;

impl Store<'_> {
    /// A checkpoint's entry, to be changed. Errors: `NotFound` without such a checkpoint.
    fn checkpoint_mut(&mut self, cno: u64) -> FsResult<&mut Checkpoint> {
        if self.checkpoint(cno)?.is_none() {
            return Err(FsError::NotFound);
        }
        let at = self.disk.g.cpfile.place(cno);
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        within(&mut self.cpfile, via, at)
    }

    fn checkpoint_head(&mut self) -> FsResult<&mut CheckpointHeader> {
        let via = &mut Via { disk: &self.disk, dat: Some(&mut self.dat) };
        within(&mut self.cpfile, via, (0, 0))
    }

    /// The neighbours of a snapshot, or of the head, which is number 0.
    fn neighbours(&mut self, cno: u64) -> FsResult<&mut SnapshotList> {
        match cno {
            0 => Ok(&mut self.checkpoint_head()?.snapshot_list),
            // A list that leads to what is no checkpoint is damage, and not for the caller to know.
            _ => match self.checkpoint_mut(cno) {
                Ok(cp) => Ok(&mut cp.snapshot_list),
                Err(FsError::NotFound) => Err(FsError::Io),
                Err(e) => Err(e),
            },
        }
    }

    /// Makes a checkpoint a snapshot, or one no more; what it is already it stays.
    ///
    /// Errors: `NotFound` without such a checkpoint; `Busy` for the newest, the next, and what is
    /// mounted (number 0), which stay snapshots or none; `Io` for a list that leads nowhere.
    pub fn set_snapshot(&mut self, cno: u64, is_snapshot: bool) -> FsResult<()> {
        let next = self.dat.cno;
        if !is_snapshot && (cno == 0 || cno <= next && cno >= next.saturating_sub(1)) {
            return Err(FsError::Busy);
        }
        let found = self.checkpoint(cno)?.ok_or(FsError::NotFound)?;
        if found.is_snapshot() == is_snapshot {
            return Ok(());
        }
        let (prev, next) = if is_snapshot {
            let all = self.snapshots()?;
            let older = all.iter().rev().find(|other| **other < cno);
            let newer = all.iter().find(|other| **other > cno);
            (older.copied().unwrap_or(0), newer.copied().unwrap_or(0))
        } else {
            (found.snapshot_list.prev.get(), found.snapshot_list.next.get())
        };
        let (after, before) = if is_snapshot { (cno, cno) } else { (next, prev) };
        self.neighbours(next)?.prev = before.into();
        self.neighbours(prev)?.next = after.into();
        let cp = self.checkpoint_mut(cno)?;
        let list = if is_snapshot { (prev, next) } else { (0, 0) };
        cp.snapshot_list = SnapshotList { prev: list.0.into(), next: list.1.into() };
        cp.flags = match is_snapshot {
            true => cp.flags.get() | flag::SNAPSHOT,
            false => cp.flags.get() & !flag::SNAPSHOT,
        }
        .into();
        let head = self.checkpoint_head()?;
        let count = head.nsnapshots.get();
        head.nsnapshots =
            if is_snapshot { count.wrapping_add(1) } else { count.wrapping_sub(1) }.into();
        Ok(())
    }

    /// A checkpoint goes. Errors: `NotFound` without such a checkpoint; `Busy` for a snapshot.
    pub fn delete_checkpoint(&mut self, cno: u64) -> FsResult<()> {
        match self.checkpoint(cno)? {
            None => Err(FsError::NotFound),
            Some(cp) if cp.is_snapshot() => Err(FsError::Busy),
            Some(_) => self.delete_checkpoints(cno..cno.saturating_add(1)),
        }
    }
}
