//! Who waits for writeback of a file, and is told of writes that failed.

use std::rc::Rc;

use wp_base::{FsError, FsResult};

use super::Mapping;
use crate::{BufFlag, Buffer};

impl Mapping {
    /// Is nothing under writeback, and has no write failed that nobody was told of?
    pub fn is_settled(&self) -> bool {
        self.writeback.get() == 0 && !self.error.get()
    }

    /// Waits until nothing is under writeback (`filemap_fdatawait`). Errors: `Io`, once, if a write
    /// failed since the last call.
    pub async fn wait_writeback(&self) -> FsResult<()> {
        self.settle().await;
        if self.error.replace(false) { Err(FsError::Io) } else { Ok(()) }
    }

    /// Waits until nothing is under writeback; whoever asks for errors later is still told
    /// (`filemap_fdatawait_keep_errors`). Errors: `Io` if a write failed that nobody was told of.
    pub async fn wait_and_keep_error(&self) -> FsResult<()> {
        self.settle().await;
        if self.error.get() { Err(FsError::Io) } else { Ok(()) }
    }

    /// Has a write failed that nobody was told of?
    pub fn has_error(&self) -> bool {
        self.error.get()
    }

    /// Waits until nothing is under writeback.
    pub async fn settle(&self) {
        while self.writeback.get() > 0 {
            self.writeback_done.wait().await;
        }
    }

    /// Waits until nothing of indices `from..=to` is under writeback.
    pub async fn settle_range(&self, (from, to): (u64, u64)) {
        if self.writeback.get() == 0 {
            return;
        }
        let busy = |b: &Rc<Buffer>| b.flag(BufFlag::Writeback);
        let next = |at: u64| {
            let blocks = self.blocks.borrow();
            let mut left = blocks.range(at, to.saturating_add(1));
            left.find(|(_, b)| busy(b)).map(|(index, b)| (index, b.clone()))
        };
        let mut at = from;
        while let Some((index, b)) = next(at) {
            b.wait_clear(BufFlag::Writeback).await;
            at = index + 1;
        }
    }

    /// Waits until nothing of indices `from..=to` is under writeback (`filemap_fdatawait_range`).
    /// Errors: `Io`, once, if a write of the file failed since the last call, wherever it was.
    pub async fn wait_range(&self, range: (u64, u64)) -> FsResult<()> {
        self.settle_range(range).await;
        if self.error.replace(false) { Err(FsError::Io) } else { Ok(()) }
    }
}
