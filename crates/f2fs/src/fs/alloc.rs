//! Giving out blocks of the six logs.
//!
//! Source: Linux `fs/f2fs/segment.c` (`f2fs_allocate_data_block`).

use wp_base::{FsError, FsResult};
use wp_rt::LockGuard;

use crate::disk::{Block, Log, Summary, SummaryBlock};

use super::curseg::Left;
use super::mount::F2fs;

/// A block that was given out, and who gives out the next: what joins the bio of the log does so
/// before this is dropped.
pub(super) struct Given<'a> {
    /// The block.
    pub addr: u32,
    /// The one that the log gives out next.
    pub next: u32,
    _guard: LockGuard<'a, ()>,
}

impl F2fs {
    /// The log that a kind of block goes to with the logs that are in use
    /// (`__get_segment_type_{2,4,6}`).
    pub(super) fn active_log(&self, log: Log) -> Log {
        match (self.opts.active_logs, log) {
            (2, Log::HotData | Log::WarmData | Log::ColdData) => Log::HotData,
            (2, _) => Log::HotNode,
            (4, Log::WarmData) => Log::ColdData,
            (4, Log::HotNode) => Log::ColdNode,
            (_, log) => log,
        }
    }

    /// Gives out the next block of a log, for what was at `old` until now.
    ///
    /// Waits: for others who are given one, for the summary of a segment that is left or filled.
    /// Errors: `NoSpace` when there is no segment any more; nothing can be written then.
    pub(super) async fn allocate(
        &self,
        log: Log,
        old: u32,
        summary: Summary,
    ) -> FsResult<Given<'_>> {
        let guard = self.alloc_lock.lock().await;
        if self.cp_error() {
            return Err(FsError::Io);
        }
        if self.space.borrow().is_full(log) {
            return Err(FsError::NoSpace);
        }
        let next = self.space.borrow().next_addr(log);
        self.before_use(next).await?;
        let addr = {
            let mut space = self.space.borrow_mut();
            space.now = self.mtime();
            space.take(log, old, summary)
        };
        let full = self.space.borrow().is_full(log);
        if full {
            let ssr = self.need_ssr();
            let left = self.space.borrow_mut().advance(log, ssr);
            match left {
                Some(left) => {
                    // The block is given out whatever becomes of summaries.
                    if self.after_leaving(log, left).await.is_err() {
                        self.stop_checkpoint();
                    }
                }
                None => self.stop_checkpoint(),
            }
        }
        let mut space = self.space.borrow_mut();
        for block in [old, addr] {
            if let Some((segment, _)) = space.g.place(block) {
                space.locate_dirty(segment);
            }
        }
        let next = space.next_addr(log);
        Ok(Given { addr, next, _guard: guard })
    }

    /// Writes the summaries of a segment that a log has left, and reads those of the one that it
    /// fills.
    pub(super) async fn after_leaving(&self, log: Log, left: Left) -> FsResult<()> {
        self.put_meta(self.g.summary_block(left.segment), &left.summary.store()).await;
        if left.read {
            let segment = self.space.borrow().log(log).segment;
            let buf = self.meta_block(self.g.summary_block(segment)).await?;
            let read = buf.with(|b| <&Block>::try_from(b).map(SummaryBlock::load));
            if let Ok(read) = read {
                self.space.borrow_mut().log_mut(log).summary.entries = read.entries;
            }
        }
        Ok(())
    }
}
