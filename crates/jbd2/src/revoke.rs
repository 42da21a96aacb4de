//! Revokes: a freed metadata block must not come back at recovery over whoever owns it by then.
//!
//! Picture:    two tables by turns: one takes the running transaction's revokes, the other the
//!             committing one's, whose records are written to the log before its metadata.
//! Invariants: 1. a block that is journaled again in the same transaction has its revoke cancelled.
//!             2. a buffer's `Revoked` means something only with `RevokeValid`.
//! Left out:   the kernel's hash order of the records: here they are in block order.
//! Source:     Linux 6.1 `fs/jbd2/revoke.c`.

use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_cache::{BufFlag, Buffer};

use crate::disk;
use crate::handle::Handle;
use crate::heads::home_of;
use crate::journal::Journal;
use crate::site;

impl Handle {
    /// Says that `block` was freed: copies of it in the log up to this transaction are not
    /// replayed.
    ///
    /// With its buffer given, forgets that too ([`Handle::forget`]). Call it before the block is
    /// free for others.
    /// Waits:  for a write of the buffer to its home.
    /// Errors: `Io` without revoke credits (5.5 and later) or if the block is revoked already;
    ///         `Unsupported` in a journal of format version 1; `ReadOnly` on an aborted journal.
    /// Source: `jbd2_journal_revoke`.
    pub async fn revoke(&self, block: u64, buffer: Option<&Rc<Buffer>>) -> FsResult<()> {
        let j = self.journal();
        if self.is_aborted() {
            return Err(FsError::ReadOnly);
        }
        j.set_features(0, disk::INCOMPAT_REVOKE)?;
        if j.opts.era.counts_descriptors() && self.revoke_credits.get() <= 0 {
            return Err(FsError::Io);
        }
        let cached = buffer.cloned().or_else(|| j.bdev.peek(block));
        if let Some(b) = &cached {
            if b.flag(BufFlag::Revoked) {
                return Err(FsError::Io);
            }
            b.set(BufFlag::Revoked);
            b.set(BufFlag::RevokeValid);
        }
        if let Some(b) = buffer {
            self.forget(b).await?;
        }
        self.revoke_credits.set(self.revoke_credits.get() - 1);
        let mut st = j.st.borrow_mut();
        let now = st.revoke_now;
        st.revokes[now].insert(block);
        drop(st);
        j.emit("revoke", self.tid(), block);
        Ok(())
    }
}

impl Journal {
    /// The buffer is journaled again: a revoke of it in the running transaction is void.
    /// Source: `jbd2_journal_cancel_revoke`.
    pub(crate) fn cancel_revoke(&self, b: &Buffer) {
        let valid = b.flag(BufFlag::RevokeValid);
        b.set(BufFlag::RevokeValid);
        let revoked = b.clear(BufFlag::Revoked);
        if !valid || revoked {
            let mut st = self.st.borrow_mut();
            let now = st.revoke_now;
            let home = home_of(b);
            if st.revokes[now].contains(&home) && site::REVOKE_CANCEL.on() {
                st.revokes[now].remove(&home);
            }
        }
    }

    /// The running transaction goes into commit: its table is closed, the next one's begins empty.
    /// Source: `jbd2_clear_buffer_revoked_flags`, `jbd2_journal_switch_revoke_table`.
    pub(crate) fn switch_revoke_table(&self) {
        let mut st = self.st.borrow_mut();
        let closed = st.revoke_now;
        for block in &st.revokes[closed] {
            if let Some(b) = self.bdev.peek(*block) {
                b.clear(BufFlag::Revoked);
            }
        }
        st.revoke_now = 1 - closed;
        let open = st.revoke_now;
        st.revokes[open].clear();
    }

    /// The committing transaction's records, as blocks that lack only their place in the log.
    /// Empties the table.
    pub(crate) fn take_revoke_blocks(&self, tid: u32) -> Vec<Vec<u8>> {
        let records = {
            let mut st = self.st.borrow_mut();
            let closed = 1 - st.revoke_now;
            std::mem::take(&mut st.revokes[closed])
        };
        let format = self.format.get();
        let bytes = self.bs.bytes() as usize;
        let (record, header) = (format.revoke_bytes(), size_of::<disk::RevokeHeader>());
        let all: Vec<u64> = records.into_iter().collect();
        all.chunks(format.revokes_per_block(bytes) as usize)
            .map(|chunk| {
                let mut block = disk::control_block(bytes, disk::REVOKE, tid);
                for (i, home) in chunk.iter().enumerate() {
                    let at = header + i * record;
                    block[at..at + record].copy_from_slice(&home.to_be_bytes()[8 - record..]);
                }
                let used = (header + chunk.len() * record) as u32;
                block[header - 4..header].copy_from_slice(&used.to_be_bytes());
                if site::REVOKE_CHECKSUM.on() {
                    format.set_tail(&mut block);
                }
                block
            })
            .collect()
    }
}
