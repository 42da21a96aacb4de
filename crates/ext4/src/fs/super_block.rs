//! The super block of a mounted file system: what mounting, errors and unmounting write to it.
//!
//! Invariants: 1. in a handle it goes through the journal; the writes of mount, unmount and errors
//!                go straight to the device, as the kernel's do.
//!             2. its checksum is right whenever it is in its buffer.
//! Source:     Linux 6.1 `ext4_setup_super`, `ext4_update_super`, `ext4_commit_super`,
//!             `ext4_put_super`, `set_journal_csum_feature_set` (`fs/ext4/super.c`).

use wp_base::event::Flags;
use wp_base::{Corruption, FsError, FsResult, Sector};
use wp_block::{Bio, Partition};
use wp_cache::BufFlag;
use wp_jbd2::{Handle, Journal, disk as log};
use wp_medium::Slice;

use super::mount::Ext4;
use crate::disk::{Checksums, SuperBlock, compat, incompat, ro_compat};

/// `EXT4_ERR_EFSCORRUPTED` in `s_first_error_errcode`.
const ERR_CORRUPTED: u8 = 5;
/// `EXT4_ERR_EIO`.
const ERR_IO: u8 = 2;

/// A 40-bit time in its two fields (`__ext4_update_tstamp`).
fn stamp(lo: &mut zerocopy::little_endian::U32, hi: &mut u8, secs: i64) {
    let bytes = secs.clamp(0, (1 << 40) - 1).to_le_bytes();
    *lo = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into();
    *hi = bytes[4];
}

impl Ext4 {
    /// Puts the super block in memory into its buffer, sealed.
    pub(super) fn store_super(&self) {
        let mut sb = *self.sb.borrow();
        if sb.has_metadata_csum() && crate::site::SUPER_CHECKSUM.on() {
            sb.checksum = Checksums::super_block(&sb).into();
        }
        *self.sb.borrow_mut() = sb;
        let at = (SuperBlock::AT % u64::from(self.bs().bytes())) as usize;
        let bytes = zerocopy::IntoBytes::as_bytes(&sb).to_vec();
        self.sb_buf.with_mut(|b| b[at..at + SuperBlock::BYTES].copy_from_slice(&bytes));
    }

    /// Changes the super block in a handle.
    pub(super) async fn change_super(
        &self,
        h: &Handle,
        change: impl FnOnce(&mut SuperBlock),
    ) -> FsResult<()> {
        let buf = self.sb_buf.clone();
        h.get_write_access(&buf).await?;
        change(&mut self.sb.borrow_mut());
        self.store_super();
        self.dirty(h, &buf)
    }

    /// Writes the super block at once, outside the journal (`ext4_commit_super`).
    pub(super) async fn commit_super(&self) -> FsResult<()> {
        {
            let mut sb = self.sb.borrow_mut();
            let SuperBlock { wtime, wtime_hi, .. } = &mut *sb;
            stamp(wtime, wtime_hi, self.time().secs);
            let sectors = self.sectors_written() - self.sectors_at_mount.get();
            sb.kbytes_written = (self.kbytes_at_mount.get() + sectors / 2).into();
        }
        self.store_super();
        self.sb_buf.wait_clear(BufFlag::Writeback).await;
        let forced = self.opts.barrier && self.opts.era.super_fua() && crate::site::SUPER_FUA.on();
        let force = if forced { Flags::FUA } else { Flags::NONE };
        self.bdev.submit_write(&self.sb_buf, Flags::SYNC | force);
        if crate::site::SUPER_WAIT.on() { self.bdev.wait_on(&self.sb_buf).await } else { Ok(()) }
    }

    fn sectors_written(&self) -> u64 {
        self.bdev.queue().queue().counters().sectors_written
    }

    /// The image is in use: recovery is needed from here on. `s_state` stays as it is, for with a
    /// journal it says nothing about a clean unmount (`ext4_setup_super`).
    pub(super) async fn mark_in_use(&self) -> FsResult<()> {
        let now = self.time().secs;
        self.kbytes_at_mount.set(self.sb.borrow().kbytes_written.get());
        self.sectors_at_mount.set(self.sectors_written());
        {
            let mut sb = self.sb.borrow_mut();
            sb.feature_incompat = (sb.feature_incompat.get() | incompat::RECOVER).into();
            if self.opts.era.orphan_file() && sb.has_compat(compat::ORPHAN_FILE) {
                let ro = sb.feature_ro_compat.get() | ro_compat::ORPHAN_PRESENT;
                sb.feature_ro_compat = ro.into();
            }
            if sb.max_mnt_count.get() == 0 {
                // `EXT4_DFL_MAX_MNT_COUNT`
                sb.max_mnt_count = 20.into();
            }
            sb.mnt_count = sb.mnt_count.get().wrapping_add(1).into();
            let SuperBlock { mtime, mtime_hi, .. } = &mut *sb;
            stamp(mtime, mtime_hi, now);
        }
        self.commit_super().await
    }

    /// The image is not in use any more (`ext4_put_super`).
    pub(super) async fn mark_clean(&self) -> FsResult<()> {
        {
            let mut sb = self.sb.borrow_mut();
            sb.feature_incompat = (sb.feature_incompat.get() & !incompat::RECOVER).into();
            let ro = sb.feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT;
            sb.feature_ro_compat = ro.into();
            sb.set_free_blocks_count(self.groups.free_blocks.get() << self.geo.cluster_bits);
            sb.free_inodes_count = (self.groups.free_inodes.get() as u32).into();
        }
        self.commit_super().await
    }

    /// Remembers an error for who looks at the image later, and writes that
    /// (`__save_error_info`). The kernel names a function and a line; we have the structure.
    pub(super) async fn save_error(&self, e: &Corruption) {
        let block = e.at / u64::from(self.bs().bytes());
        self.save_error_of(e.structure, block, ERR_CORRUPTED).await;
    }

    /// The same of a device that failed, found by the kernel's function `func`.
    pub(super) async fn save_io_error(&self, func: &str) {
        self.save_error_of(func, 0, ERR_IO).await;
    }

    async fn save_error_of(&self, what: &str, block: u64, code: u8) {
        {
            let mut sb = self.sb.borrow_mut();
            let now = self.time().secs;
            let mut func = [0u8; 32];
            func.iter_mut().zip(what.bytes().take(31)).for_each(|(to, from)| *to = from);
            sb.state = (sb.state.get() | SuperBlock::STATE_ERROR).into();
            let SuperBlock { first_error_time, first_error_time_hi, .. } = &mut *sb;
            if first_error_time.get() == 0 && *first_error_time_hi == 0 {
                stamp(first_error_time, first_error_time_hi, now);
                sb.first_error_func = func;
                sb.first_error_line = 0.into();
                sb.first_error_ino = 0.into();
                sb.first_error_block = block.into();
                sb.first_error_errcode = code;
            }
            let SuperBlock { last_error_time, last_error_time_hi, .. } = &mut *sb;
            stamp(last_error_time, last_error_time_hi, now);
            sb.last_error_func = func;
            sb.last_error_line = 0.into();
            sb.last_error_ino = 0.into();
            sb.last_error_block = block.into();
            sb.last_error_errcode = code;
            sb.error_count = sb.error_count.get().saturating_add(1).into();
        }
        // The device may be what failed; then nobody will read it anyway.
        let _written = self.commit_super().await;
    }

    /// What the super block demands of the journal's format: wide block numbers, and checksums of
    /// version 3 where all metadata has some (`ext4_load_journal`, `set_journal_csum_feature_set`).
    pub(super) fn set_journal_features(&self, journal: &Journal) -> FsResult<()> {
        let sb = *self.sb.borrow();
        if sb.has_incompat(incompat::BIT64) {
            journal.set_features(0, log::INCOMPAT_64BIT)?;
        }
        let csum = log::INCOMPAT_CSUM_V2 | log::INCOMPAT_CSUM_V3;
        let wanted = match (sb.has_metadata_csum(), self.opts.era.journal_checksums()) {
            (true, true) => log::INCOMPAT_CSUM_V3,
            _ => 0,
        };
        let now = log::Format::of(&journal.superblock());
        if now.incompat & csum != wanted || now.csum_v1() {
            journal.clear_features(log::COMPAT_CHECKSUM, csum);
            if wanted != 0 {
                journal.set_features(0, wanted)?;
            }
        }
        if !self.opts.async_commit {
            journal.clear_features(0, log::INCOMPAT_ASYNC_COMMIT);
            return Ok(());
        }
        // The option brings `journal_checksum` with it; version 3 does without the old kind.
        let compat = if wanted == 0 { log::COMPAT_CHECKSUM } else { 0 };
        journal.set_features(compat, log::INCOMPAT_ASYNC_COMMIT)
    }

    /// The journal says why the last mount stopped: the image has errors
    /// (`ext4_clear_journal_err`).
    pub(super) fn take_journal_error(&self, journal: &Journal) {
        if journal.clear_error() != 0 {
            let mut sb = self.sb.borrow_mut();
            sb.state = (sb.state.get() | SuperBlock::STATE_ERROR).into();
        }
    }
}

/// Reads the super block of what lies on `part`. Errors: `Corrupt`, `Io`.
pub(super) async fn read_super(part: &Partition) -> FsResult<SuperBlock> {
    if part.sectors() < 4 {
        return Err(FsError::corrupt(
            "ext4 super block",
            "device length",
            0,
            part.sectors() * 512,
            "2048 bytes or more",
        ));
    }
    let got = part.submit_wait(Bio::read(Sector(2), 2, Flags::SYNC | Flags::META)).await;
    let bytes = Slice::concat(&got.map_err(|_| FsError::Io)?);
    let sb = SuperBlock::load(&bytes).ok_or(FsError::Io)?;
    sb.verify(SuperBlock::AT)?;
    Ok(sb)
}
