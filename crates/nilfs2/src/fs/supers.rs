//! The super blocks of a mounted file system.
//!
//! Source: fs/nilfs2/super.c, `nilfs_sb_will_flip`, `nilfs_setup_super`.

use wp_base::event::Flags;
use wp_base::{FsError, FsResult, Sector};
use wp_block::Bio;
use wp_medium::Slice;
use zerocopy::IntoBytes;

use super::Nilfs;
use crate::disk::SuperBlock;
use crate::disk::super_block::state;
use crate::image::Tip;
use crate::site;

/// Seconds after which a super block is written again. `NILFS_SB_FREQ`.
const PERIOD_SECS: u64 = 10;

/// Both copies: the one that is written next, or was last, and the other.
pub(super) struct Supers {
    current: (SuperBlock, u64),
    other: Option<(SuperBlock, u64)>,
    /// Times that one was written since the mount.
    written: u64,
    /// Does the newest log lie in another segment than a super block says?
    pub is_stale: bool,
    last_seq: u64,
    /// The newest log with a checkpoint: first block, sequence number, checkpoint.
    cursor: (u64, u64, u64),
    /// Recovery may follow logs from this sequence number on (`ns_prot_seq`).
    pub protected_seq: u64,
}

impl Supers {
    pub fn new(tip: &Tip, device_bytes: u64) -> Supers {
        let places = [SuperBlock::AT, SuperBlock::second_at(device_bytes)];
        let older = tip.other.as_ref().unwrap_or(&tip.sb);
        let [own, other] = if tip.is_second { [places[1], places[0]] } else { places };
        Supers {
            current: (tip.sb, own),
            other: tip.other.map(|sb| (sb, other)),
            written: 0,
            is_stale: false,
            last_seq: tip.root.seq,
            cursor: (tip.root.start, tip.root.seq, tip.cno),
            protected_seq: older.last_seq.get(),
        }
    }

    /// There is a newer checkpoint. `nilfs_set_last_segment`.
    pub fn point_to(&mut self, start: u64, seq: u64, cno: u64) {
        self.cursor = (start, seq, cno);
        self.is_stale |= self.last_seq != seq;
        self.last_seq = seq;
    }

    /// Is it time to write one? `nilfs_sb_need_update`.
    pub fn is_due(&self, now: u64) -> bool {
        let last = self.current.0.wtime.get();
        self.is_stale && (now < last || now > last + PERIOD_SECS)
    }

    fn flip(&mut self) {
        let bits = self.written & 0xF;
        if bits != 8
            && bits != 15
            && let Some(other) = &mut self.other
        {
            std::mem::swap(&mut self.current, other);
        }
    }

    /// Sequence number of the log that the copy names which names the older one.
    fn older_seq(&self) -> u64 {
        let sb = &self.current.0;
        let other = self.other.as_ref().map(|(sb, _)| sb);
        let older = other.filter(|o| o.last_cno.get() < sb.last_cno.get()).unwrap_or(sb);
        older.last_seq.get()
    }

    fn set_cursor(&mut self, free: u64) {
        let sb = &mut self.current.0;
        let (start, seq, cno) = self.cursor;
        (sb.last_pseg, sb.last_seq, sb.last_cno) = (start.into(), seq.into(), cno.into());
        sb.free_blocks_count = free.into();
    }
}

fn seal(sb: &mut SuperBlock, now: u64) {
    sb.wtime = now.into();
    sb.sum = sb.right_sum().unwrap_or(0).into();
}

impl Nilfs {
    fn free_blocks(&self) -> FsResult<u64> {
        let free = self.store.borrow_mut().segments_free()?;
        Ok(free.saturating_mul(self.g.segment_blocks))
    }

    /// A mount is noted in both copies; they are not clean from here on. `nilfs_setup_super`.
    pub(super) async fn note_mount(&self) -> FsResult<()> {
        let now = self.secs();
        {
            let s = &mut *self.supers.borrow_mut();
            let sb = &mut s.current.0;
            sb.mnt_count = sb.mnt_count.get().wrapping_add(1).into();
            sb.mtime = now.into();
            sb.state = (sb.state.get() & !state::VALID).into();
            if let Some((other, _)) = &mut s.other {
                *other = *sb;
            }
        }
        self.commit_super(true).await
    }

    /// The copy that is next names the newest checkpoint. Waits: for its write, behind a flush.
    pub(super) async fn update_super(&self) -> FsResult<()> {
        let _one = self.super_sem.lock().await;
        self.write_cursor().await
    }

    /// The same, unless a copy names a log of the newest segment already. Waits: for a write that
    /// somebody else has begun, too.
    pub(super) async fn update_stale_super(&self) -> FsResult<()> {
        let _one = self.super_sem.lock().await;
        if self.supers.borrow().is_stale { self.write_cursor().await } else { Ok(()) }
    }

    async fn write_cursor(&self) -> FsResult<()> {
        let free = self.free_blocks()?;
        {
            let mut s = self.supers.borrow_mut();
            s.flip();
            s.set_cursor(free);
        }
        self.commit_super(false).await
    }

    /// Both copies name the newest checkpoint, so that no older log is needed. Linux's cleaner
    /// freezes and thaws the file system for that. `nilfs_shrink_protected_region`.
    pub(super) async fn catch_up_supers(&self) -> FsResult<()> {
        let _one = self.super_sem.lock().await;
        let free = self.free_blocks()?;
        {
            let s = &mut *self.supers.borrow_mut();
            s.set_cursor(free);
            if let Some((other, _)) = &mut s.other {
                *other = s.current.0;
            }
        }
        self.commit_super(true).await
    }

    /// The file system is clean. `nilfs_cleanup_super`.
    pub(super) async fn note_unmount(&self) -> FsResult<()> {
        let free = self.free_blocks()?;
        let both = {
            let s = &mut *self.supers.borrow_mut();
            let valid = s.current.0.state.get() | state::VALID;
            s.current.0.state = valid.into();
            s.set_cursor(free);
            match &mut s.other {
                Some((other, _)) if other.last_cno == s.current.0.last_cno => {
                    other.state = valid.into();
                    true
                }
                _ => false,
            }
        };
        self.commit_super(both).await
    }

    /// `nilfs_commit_super`, `nilfs_sync_super`.
    async fn commit_super(&self, both: bool) -> FsResult<()> {
        let now = self.secs();
        let (writes, older) = {
            let s = &mut *self.supers.borrow_mut();
            seal(&mut s.current.0, now);
            s.is_stale = false;
            s.written += 1;
            let mut writes = vec![s.current];
            if let Some((other, _)) = s.other.as_mut().filter(|_| both) {
                seal(other, now);
            }
            writes.extend(s.other.filter(|_| both));
            (writes, s.older_seq())
        };
        let began = self.flush_begins();
        for (n, (sb, at)) in writes.into_iter().enumerate() {
            // The block of the device's cache that holds it.
            let size = self.g.block_bytes() as u64;
            let (block, within) = (at / size, (at % size) as usize);
            let mut bytes = vec![0; self.g.block_bytes()];
            bytes[within..within + SuperBlock::SPACE].copy_from_slice(sb.as_bytes());
            let flags = match n {
                0 if self.opts.barrier => {
                    let flush =
                        if site::SUPER_PREFLUSH.on() { Flags::PREFLUSH } else { Flags::NONE };
                    Flags::SYNC | flush | Flags::FUA
                }
                _ => Flags::SYNC,
            };
            let at = Sector(self.g.byte_of(block) / wp_base::SECTOR_BYTES);
            let bio = Bio::write(at, vec![Slice::from_bytes(&bytes)], flags);
            if self.part.submit_wait(bio).await.is_err() {
                // Linux goes on as if it were written.
                self.flush_ends(began, false);
                self.supers.borrow_mut().is_stale = true;
                return Err(FsError::Io);
            }
        }
        // Without barriers nothing was flushed, and nobody asks.
        self.flush_ends(began, true);
        self.supers.borrow_mut().protected_seq = older;
        Ok(())
    }
}
