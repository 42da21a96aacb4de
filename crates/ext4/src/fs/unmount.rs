//! The end of a mount.
//!
//! Source: Linux `generic_shutdown_super` (`fs/super.c`), `ext4_put_super` (`fs/ext4/super.c`).

use std::rc::Rc;

use wp_base::FsResult;

use super::mount::Ext4;
use crate::site;

impl Ext4 {
    /// Writes everything, empties the journal, marks the image clean. Later calls answer
    /// `ReadOnly`. What fails on the way stops nothing of that but what hangs on it: an aborted
    /// journal stays as it is, and the image is not called clean.
    ///
    /// Errors: the first that there was. Source: `generic_shutdown_super`, `ext4_put_super`; the
    ///         kernel's unmount keeps errors to itself.
    pub(super) async fn unmount_all(self: &Rc<Self>) -> FsResult<()> {
        if !self.mounted.get() {
            return Ok(());
        }
        self.stop_lazy_init().await;
        let freed = self.free_unlinked().await;
        let synced = self.sync_everything().await;
        self.stop_table_trims().await;
        self.mounted.set(false);
        self.stop_discards().await;
        let was_aborted = self.journal().is_aborted();
        let closed = self.journal().destroy().await;
        if closed.is_err() && !was_aborted {
            // "Couldn't clean up the journal"
            self.stop_changes().await;
        }
        let home = if site::UNMOUNT_HOME.on() { self.bdev.sync().await } else { Ok(()) };
        let marked = match (self.is_stopped(), was_aborted) {
            // It is read-only, and its super block tells why.
            (true, _) => Ok(()),
            (false, true) => self.commit_super().await,
            (false, false) => self.mark_clean().await,
        };
        self.wb.stop();
        self.conversions.stop();
        self.inodes.borrow_mut().clear();
        freed.and(synced).and(closed).and(home).and(marked)
    }

    /// Who still had files open is gone: what only they kept is freed, as at their exit.
    async fn free_unlinked(self: &Rc<Self>) -> FsResult<()> {
        for ino in self.all_orphans() {
            let inode = self.inode(ino).await?;
            if inode.nlink() == 0 && !inode.gone.get() {
                inode.opens.set(0);
                self.delete_inode(&inode).await?;
            }
        }
        Ok(())
    }
}
