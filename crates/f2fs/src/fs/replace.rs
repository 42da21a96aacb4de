//! A block that stays where it is and is another one's from now on.
//!
//! Source: Linux `fs/f2fs/segment.c` (`f2fs_replace_block`).

use wp_base::FsResult;

use super::meta;
use super::mount::F2fs;
use crate::disk::{Log, Summary, SummaryBlock};

impl F2fs {
    /// Says in the summaries whose block `addr` is. Waits: for a summary block that is read.
    pub(super) async fn replace_summary(
        &self,
        addr: u32,
        nid: u32,
        version: u8,
        slot: u32,
    ) -> FsResult<()> {
        let _guard = self.alloc_lock.lock().await;
        let Some((segment, offset)) = self.g.place(addr) else { return Ok(()) };
        let summary = Summary::new(nid, version, slot);
        let log = {
            let space = self.space.borrow();
            Log::ALL.into_iter().find(|l| space.log(*l).segment == segment)
        };
        if let Some(log) = log {
            self.space.borrow_mut().log_mut(log).summary.set_entry(offset, summary);
            return Ok(());
        }
        let buf = self.meta_block(self.g.summary_block(segment)).await?;
        meta::change(&buf, |block| {
            let mut all = SummaryBlock::load(block);
            all.set_entry(offset, summary);
            *block = all.store();
        });
        self.dirty_meta(&buf);
        Ok(())
    }
}
