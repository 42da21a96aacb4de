//! `fsync` in all modes, and `sync`.
//!
//! Picture:    data -> wait -> (a reason for a checkpoint: all of it) | nodes with marks -> wait ->
//!             flush. Strict: only the last node has the mark, behind a flush and forced, and is
//!             not waited for apart. OPRW: one wait for data and nodes.
//! Source:     Linux `fs/f2fs/file.c` (`f2fs_do_sync_file`, `need_do_checkpoint`).

use std::rc::Rc;

use wp_base::event::FS_ASKED;
use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, WbControl};
use wp_rt::CpuOp;
use wp_vfs::{ErrSeqCursor, SyncKind};

use super::ino_sets::InoSet;
use super::inode::{Inode, fi};
use super::mount::{F2fs, FsyncMode};
use crate::disk::inode::advise;
use crate::site;

/// Why an fsync writes a whole checkpoint (`enum cp_reason_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CpReason {
    /// `CP_NON_REGULAR`.
    NonRegular,
    /// `CP_HARDLINK`.
    HardLink,
    /// `CP_SB_NEED_CP`.
    SbNeedCp,
    /// `CP_WRONG_PINO`.
    WrongPino,
    /// `CP_NO_SPC_ROLL`.
    NoSpaceRoll,
    /// `CP_NODE_NEED_CP`.
    NodeNeedCp,
    /// `CP_FASTBOOT_MODE`.
    FastbootMode,
    /// `CP_SPEC_LOG_NUM`.
    SpecLogNum,
    /// `CP_RECOVER_DIR`.
    RecoverDir,
    /// `CP_XATTR_DIR`.
    XattrDir,
}

/// What an fsync is asked for.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub kind: SyncKind,
    /// Of data only these blocks.
    pub range: (u64, u64),
    pub told: &'a ErrSeqCursor,
    /// Only the last node has the mark, behind a flush and forced; nothing is waited for then
    /// (COMMIT of an atomic write).
    pub atomic: bool,
}

impl CpReason {
    /// In words.
    const fn name(self) -> &'static str {
        match self {
            CpReason::NonRegular => "not a regular file",
            CpReason::HardLink => "the link count is not 1",
            CpReason::SbNeedCp => "every fsync before the next checkpoint needs one",
            CpReason::WrongPino => "its i_pino may be wrong",
            CpReason::NoSpaceRoll => "no space for roll-forward of more nodes",
            CpReason::NodeNeedCp => "its directory is not in a checkpoint yet",
            CpReason::FastbootMode => "mount option fastboot",
            CpReason::SpecLogNum => "mount option active_logs=2",
            CpReason::RecoverDir => "strict mode, and its directory changed",
            CpReason::XattrDir => "its directory got extended attributes",
        }
    }
}

impl F2fs {
    /// Must an fsync be a checkpoint (`need_do_checkpoint`)?
    pub(super) fn need_checkpoint(&self, inode: &Inode) -> Option<CpReason> {
        let pino = inode.f.borrow().pino;
        let reason = if !inode.is_file() {
            CpReason::NonRegular
        } else if inode.nlink() != 1 {
            CpReason::HardLink
        } else if self.is_need_cp() {
            CpReason::SbNeedCp
        } else if inode.has_advice(advise::LOST_PINO) {
            CpReason::WrongPino
        } else if !self.space_for_roll_forward() {
            CpReason::NoSpaceRoll
        } else if !self.is_checkpointed_node(pino) {
            CpReason::NodeNeedCp
        } else if self.opts.fastboot {
            CpReason::FastbootMode
        } else if self.opts.active_logs == 2 {
            CpReason::SpecLogNum
        } else if self.opts.fsync_mode.keeps_names()
            && self.need_dentry_mark(inode.ino)
            && self.has_ino(pino, InoSet::TransDir)
        {
            CpReason::RecoverDir
        } else if self.opts.era.xattr_dir_checkpoint() && self.has_ino(pino, InoSet::XattrDir) {
            CpReason::XattrDir
        } else {
            return None;
        };
        Some(reason)
    }

    /// Does recovery find all that changed of the inode by itself (`f2fs_skip_inode_update`)?
    fn skips_inode(&self, inode: &Inode, kind: SyncKind) -> bool {
        if kind == SyncKind::DataOnly {
            return self.opts.old_fdatasync || !inode.is(fi::LISTED);
        }
        inode.is(fi::AUTO_RECOVER)
            && !inode.has_advice(advise::KEEP_SIZE)
            && inode.size.get().is_multiple_of(4096)
            && inode.has_disk_times()
            && inode.last_disk_size.get() == inode.size.get()
    }

    /// `need_inode_page_update`.
    async fn needs_inode_node(&self, ino: u32) -> bool {
        let dirty = self.nodes.peek(u64::from(ino)).is_some_and(|b| b.flag(BufFlag::Dirty));
        dirty || self.need_inode_block_update(ino).await
    }

    /// After a checkpoint a file with one name knows its directory again (`try_to_fix_pino`).
    fn fix_pino(&self, inode: &Rc<Inode>) {
        if !inode.has_advice(advise::LOST_PINO) || inode.nlink() != 1 {
            return;
        }
        let alias = inode.aliases.borrow().first().map(|(dir, _)| *dir);
        if let Some(dir) = alias {
            self.change(inode, |f| {
                f.pino = dir;
                f.advise &= !advise::LOST_PINO;
            });
        }
    }

    /// What a file that is opened now has been told.
    pub(super) fn told(&self, inode: &Inode) -> ErrSeqCursor {
        let told = ErrSeqCursor::default();
        told.data.set(inode.map.errors().sample(true));
        told.fs.set(self.wb.errors().sample(true));
        told
    }

    /// Is the open file to be told of a failed write (`file_check_and_advance_wb_err`)?
    pub(super) fn tell(inode: &Inode, told: &ErrSeqCursor) -> FsResult<()> {
        inode.map.take_error();
        if inode.map.errors().check_and_advance(&told.data) { Err(FsError::Io) } else { Ok(()) }
    }

    /// Makes one file durable, of its data only blocks `range`. Waits: for data, nodes or a
    /// checkpoint, a flush. Errors: `Io`.
    pub(super) async fn fsync(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        kind: SyncKind,
        range: (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        self.fsync_as(inode, &Ask { kind, range, told, atomic: false }).await
    }

    /// [`F2fs::fsync`], or that of a COMMIT.
    pub(super) async fn fsync_as(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        ask: &Ask<'_>,
    ) -> FsResult<()> {
        if self.cp_error() {
            return Err(FsError::Io);
        }
        if !self.is_mounted() {
            return Err(FsError::ReadOnly);
        }
        // A COMMIT is no `vfs_fsync`, which takes them.
        if ask.kind == SyncKind::Full && !ask.atomic {
            inode.map.take_times();
        }
        self.note_request();
        self.note_synced(inode.ino);
        self.rt.cpu(CpuOp::SyncStart, 1).await;
        let out = self.do_sync(inode, ask).await;
        self.rt.cpu(CpuOp::SyncEnd, 1).await;
        let failed = F2fs::tell(inode, ask.told);
        out.and(failed)
    }

    async fn do_sync(self: &Rc<Self>, inode: &Rc<Inode>, ask: &Ask<'_>) -> FsResult<()> {
        if !self.opts.fsync_alone {
            return self.sync_once(inode, ask, &mut 0).await;
        }
        // A COMMIT has it since before its swap.
        let _alone = if ask.atomic { None } else { Some(inode.sync_lock.lock().await) };
        let mut wrote = 0;
        let done = self.sync_once(inode, ask, &mut wrote).await;
        if done.is_err() {
            inode.set(wrote);
        }
        done
    }

    /// `wrote`: with `fsync_alone` the marks of writes are taken there before nodes are sent.
    async fn sync_once(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        ask: &Ask<'_>,
        wrote: &mut u32,
    ) -> FsResult<()> {
        let Ask { kind, range, told, mut atomic } = *ask;
        let alone = self.opts.fsync_alone;
        if self.logs_direct() && self.has_ino(inode.ino, InoSet::Append) {
            // The inode left memory meanwhile, and with it what it knew of flushes.
            inode.arrived.set(inode.arrived.get().max(inode.flushed.get() + 1));
        }
        if !inode.is_dir() {
            self.sync_data(inode, kind, range, told).await?;
            if alone {
                *wrote = inode.take(fi::APPEND_WRITE | fi::UPDATE_WRITE);
            }
            if !self.skips_inode(inode, kind) {
                self.write_inode(inode).await?;
            } else if (*wrote & fi::APPEND_WRITE == 0 && !inode.is(fi::APPEND_WRITE))
                && !self.has_ino(inode.ino, InoSet::Append)
            {
                if !self.needs_inode_node(inode.ino).await {
                    let updated = alone
                        || inode.is(fi::UPDATE_WRITE)
                        || self.has_ino(inode.ino, InoSet::Update);
                    self.settle_data(inode, told).await?;
                    return if updated { self.end_sync(inode, atomic).await } else { Ok(()) };
                }
            } else {
                atomic |= match self.opts.fsync_mode {
                    FsyncMode::Strict => self.opts.era.strict_is_atomic(),
                    mode => mode == FsyncMode::StrictFixed,
                };
            }
        }
        if let Some(reason) = self.need_checkpoint(inode) {
            let version = self.cp_version().wrapping_add(1);
            self.tell_checkpoint(FS_ASKED, version, reason.name());
            self.settle_data(inode, told).await?;
            if site::FSYNC_CHECKPOINT.on() {
                self.sync_checkpoint().await?;
            }
            self.fix_pino(inode);
            if alone {
                // The checkpoint may have been another's, whose flush came before our data.
                self.issue_flush(inode.ino).await?;
            } else {
                inode.clear(fi::APPEND_WRITE | fi::UPDATE_WRITE);
            }
            return Ok(());
        }
        let sent = *wrote > 0 || inode.is(fi::APPEND_WRITE | fi::UPDATE_WRITE);
        if self.opts.fsync_mode.flushes_data_first() && sent && site::FSYNC_FIRST_FLUSH.on() {
            self.issue_flush(inode.ino).await?;
        }
        let mut seq = 0;
        loop {
            if site::FSYNC_NODES.on() {
                self.fsync_node_pages(inode, atomic, &mut seq).await?;
            }
            if self.cp_error() {
                return Err(FsError::Io);
            }
            if !self.need_inode_block_update(inode.ino).await {
                break;
            }
            self.mark_inode_dirty(inode, true);
            self.write_inode(inode).await?;
            if !site::FSYNC_NODES.on() {
                break;
            }
        }
        let arrived = self.settle_data(inode, told).await;
        if !atomic || self.opts.wait_last_node {
            self.wait_node_writeback(seq).await?;
        }
        arrived?;
        self.remove_ino(inode.ino, InoSet::Append);
        if !alone {
            inode.clear(fi::APPEND_WRITE);
        }
        self.end_sync(inode, atomic).await
    }

    /// Sends the data and waits for it; with OPRW it is waited for later.
    async fn sync_data(
        self: &Rc<Self>,
        inode: &Rc<Inode>,
        kind: SyncKind,
        range: (u64, u64),
        told: &ErrSeqCursor,
    ) -> FsResult<()> {
        if kind == SyncKind::DataOnly || inode.dirty_pages.get() <= self.opts.min_fsync_blocks {
            inode.set(fi::NEED_IPU);
        }
        let wbc = WbControl { range, ..WbControl::sync_all() };
        let mut out = Ok(());
        if site::FSYNC_WRITE.on() {
            out = inode.map.writepages(&wbc).await;
        }
        if !self.opts.oprw && site::FSYNC_WAIT.on() {
            inode.map.settle().await;
            out = out.and(F2fs::tell(inode, told));
        }
        inode.clear(fi::NEED_IPU);
        out
    }

    /// OPRW's one wait for data.
    async fn settle_data(&self, inode: &Inode, told: &ErrSeqCursor) -> FsResult<()> {
        if !self.opts.oprw || !site::FSYNC_LATE_WAIT.on() {
            return Ok(());
        }
        inode.map.settle().await;
        F2fs::tell(inode, told)
    }

    /// The flush, if there is one, and what need not be remembered after it (`flush_out`).
    async fn end_sync(&self, inode: &Inode, atomic: bool) -> FsResult<()> {
        let flushes = if atomic {
            // A last node that is forced makes nothing else durable: neither does the flush before
            // it, if the data was still on its way.
            let forces = !self.opts.era.zoned_flush_not_fua() && !self.opts.oprw;
            self.opts.barrier && self.g.is_zoned && !forces
        } else {
            self.opts.fsync_mode != FsyncMode::NoBarrier
        };
        if flushes {
            self.issue_flush(inode.ino).await?;
        }
        self.remove_ino(inode.ino, InoSet::Update);
        if !self.opts.fsync_alone {
            inode.clear(fi::UPDATE_WRITE);
        }
        self.inos.flushed(inode.ino);
        Ok(())
    }

    /// `sync`: the data of all files, then a checkpoint.
    pub(super) async fn sync_everything(self: &Rc<Self>) -> FsResult<()> {
        if !self.is_mounted() {
            return Err(FsError::ReadOnly);
        }
        if site::SYNC_SEND.on() {
            self.wb.write_all(false).await;
        }
        if site::SYNC_AGAIN.on() {
            self.wb.write_all(true).await;
        }
        if site::SYNC_WAIT.on() {
            self.wb.wait_files().await;
        }
        if site::SYNC_CHECKPOINT.on() { self.sync_checkpoint().await } else { Ok(()) }
    }

    /// `syncfs`, which tells the open file of failed writes of anything.
    pub(super) async fn sync_file_system(self: &Rc<Self>, told: &ErrSeqCursor) -> FsResult<()> {
        if !self.is_mounted() {
            return Err(FsError::ReadOnly);
        }
        let mut done = Ok(());
        if !self.cp_error() {
            if site::SYNCFS_SEND.on() {
                self.wb.write_files(false).await;
            }
            if site::SYNCFS_WRITE.on() {
                self.wb.write_files(true).await;
            }
            if site::SYNCFS_WAIT.on() {
                self.wb.wait_files().await;
            }
            if site::SYNCFS_CHECKPOINT.on() {
                done = self.sync_checkpoint().await;
            }
        }
        let failed = self.wb.errors().check_and_advance(&told.fs);
        done.and(if failed { Err(FsError::Io) } else { Ok(()) })
    }
}
