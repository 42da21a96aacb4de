//! What a kernel does at mount after a crash, in memory: replay of the journal, of its fast
//! commits, then what open and half-truncated files have left (orphans).
//!
//! Picture:    [`replay_journal`] (shared with the mounted file system) -> [`Editor`] -> root inode
//!             -> orphans -> super block and descriptors. All of it reads and writes one overlay.
//! Invariants: 1. pure and synchronous: no clock, no runtime, nothing but the overlay changes.
//!             2. reads what it needs and no more: super block, descriptors, journal inode, log
//!                blocks from `s_start` on, and what fast commits and orphans name.
//!             3. of [`recover_staged`], written stage by stage ([`Overlay::stages`]): after a
//!                power failure at any write a second recovery comes to the same. The log is
//!                emptied when its blocks are home, fast commits and orphans are transactions of
//!                it, and the flag in the super block goes last. Of the others as of Linux: fast
//!                commits go home in any order.
//! Source:     `ext4_fill_super`, `ext4_load_journal`, `ext4_orphan_cleanup`, Linux
//!             Documentation/filesystems/ext4/orphan.rst.

use wp_base::{FsError, FsResult};
use wp_jbd2::recover::{Addition, clear_errno, end_recovery, read_super, replay_log, verify_super};
use wp_jbd2::{LogMap, RecoverPolicy, RecoveryReport};
use wp_medium::Overlay;

use crate::disk::mmp::Mmp;
use crate::disk::{SuperBlock, compat, incompat, ino};

use super::Image;
use super::editor::Editor;
use super::fast_commit::{self, FastCommits};
use super::map::Run;
use super::orphans::{self, changed};

/// What recovery found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Replay of the journal; `None` if it was not needed.
    pub journal: Option<RecoveryReport>,
    /// Fast commits on top of it that were replayed.
    pub fast_commits: FastCommits,
    /// Files without a name that were deleted.
    pub orphans_deleted: u32,
    /// Files that were cut to their size.
    pub orphans_truncated: u32,
    /// Why the journal was aborted before (`s_errno`, negated as on disk); the file system is
    /// marked as having errors then. 0 = it was not.
    pub journal_errno: u32,
    /// What a kernel reports (`ext4_error`), marks the file system for, and mounts in spite of.
    pub reported: Vec<FsError>,
}

impl Recovery {
    /// Was there anything to recover?
    pub fn is_needed(&self) -> bool {
        self.journal.is_some()
            || self.orphans_deleted > 0
            || self.orphans_truncated > 0
            || self.journal_errno != 0
    }
}

/// Where a mount was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Super block and descriptors.
    Open,
    /// The passes over the log, or the replay of fast commits: Linux answers `EIO` to all of it.
    Replay,
    /// A whole transaction with a wrong checksum: Linux answers `EUCLEAN`.
    BadCommit,
    /// What came out of the log.
    Recovered,
}

/// What a mount after a crash would come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtMount {
    /// What was found and done; also of a mount that is refused.
    pub recovery: Recovery,
    /// Would the mount succeed? If not: where it ends, and what is wrong there.
    pub mounted: Result<(), (Stage, FsError)>,
}

impl AtMount {
    /// What `mount(2)` answers; `None` if it succeeds.
    pub fn errno(&self) -> Option<&'static str> {
        match &self.mounted {
            Ok(()) => None,
            Err((Stage::Replay, _)) => Some("EIO"),
            Err((_, e)) => Some(e.errno()),
        }
    }
}

/// How strictly to go about what a kernel only reports, and how what is behind the log goes home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The first thing that is wrong is the answer.
    Strict,
    /// So it is, and all of it goes through the log.
    Staged,
    /// As a mount: what only is reported is reported.
    Mount,
}

/// Recovers the file system below `dev` into it, to the state of a clean unmount.
///
/// Units:  `now`, seconds since 1970, becomes the time of deletion of orphans, and of change of
///         directories and files that fast commits change.
/// Errors: those of [`Image::open`] and of [`wp_jbd2::recover()`]; `Unsupported` for an external
///         journal; `Corrupt` for a fast commit that no kernel replays, and for an orphan that
///         cannot be one.
pub fn recover(dev: &Overlay<'_>, policy: &RecoverPolicy, now: u32) -> FsResult<Recovery> {
    recovered(dev, policy, now, Manner::Strict)
}

/// [`recover`] for a device: after a power failure at any write a second recovery comes to the
/// same.
///
/// Shape:  `policy`: a kernel's, which marks the log empty.
/// Errors: [`recover`]'s; `Unsupported` for orphans and fast commits that the log has no room for,
///         and for orphans without a log.
/// Crash:  stages of `dev`; see the module's invariants.
pub fn recover_staged(dev: &Overlay<'_>, policy: &RecoverPolicy, now: u32) -> FsResult<Recovery> {
    recovered(dev, policy, now, Manner::Staged)
}

fn recovered(
    dev: &Overlay<'_>,
    policy: &RecoverPolicy,
    now: u32,
    manner: Manner,
) -> FsResult<Recovery> {
    let mut recovery = Recovery::default();
    match run(dev, policy, now, manner, &mut recovery) {
        Ok(_) => Ok(recovery),
        Err((_, e)) => Err(e),
    }
}

/// Does what a mount (read-write, by the kernel of `policy`) and an unmount would do, and says how
/// the mount would end.
///
/// The caller lays `dev` over the crashed medium (a [`wp_medium::MediumView`] of a clone, or any
/// reader of its own), finds what was written in [`Overlay::each_page`], and what was read with a
/// [`wp_medium::Watched`] between the two.
///
/// Units: as [`recover`]. Unlike it, an orphan that cannot be one does not end the mount: it is in
///        [`Recovery::reported`], as a kernel reports it, and the rest of its list is left.
/// Left out: what a mount checks besides (quota files, options, feature bits of a kernel that is
///        older than the image).
pub fn recover_at_mount(dev: &Overlay<'_>, policy: &RecoverPolicy, now: u32) -> AtMount {
    let mut recovery = Recovery::default();
    let mounted = run(dev, policy, now, Manner::Mount, &mut recovery).map(drop);
    AtMount { recovery, mounted }
}

/// [`recover_at_mount`], and the file system that it leaves.
pub(super) fn mounted<'a>(
    dev: &'a Overlay<'a>,
    policy: &RecoverPolicy,
    now: u32,
) -> FsResult<(Recovery, Image<'a>)> {
    let mut recovery = Recovery::default();
    let image = run(dev, policy, now, Manner::Mount, &mut recovery).map_err(|(_, e)| e)?;
    Ok((recovery, image.again()?))
}

/// What comes back is as it was before the last changes.
fn run<'a>(
    dev: &'a Overlay<'a>,
    policy: &RecoverPolicy,
    now: u32,
    manner: Manner,
    recovery: &mut Recovery,
) -> Result<Image<'a>, (Stage, FsError)> {
    let image = Image::open(dev).map_err(|e| (Stage::Open, e))?;
    let is_as_read = replay_image(dev, &image, policy, now, manner, recovery)?;
    let after = |e| (Stage::Recovered, e);
    // Without a replay nothing has changed: what was read is good.
    let mut image = if is_as_read { image } else { image.again().map_err(after)? };
    let was_dirty = recovery.journal.is_some() || recovery.journal_errno != 0;
    if recovery.journal_errno != 0 {
        image = take_error(dev, image).map_err(after)?;
    }
    if manner == Manner::Mount {
        check_root(&image).map_err(after)?;
    }
    let had_orphans = orphans::are_listed(image.super_block());
    if had_orphans && manner == Manner::Staged {
        image = orphans::finish_staged(dev, image, policy, now, recovery).map_err(after)?;
    }
    let mut editor = Editor::over(image, dev);
    if had_orphans && manner != Manner::Staged {
        orphans::finish(&mut editor, recovery, now, manner == Manner::Mount).map_err(after)?;
    }
    if was_dirty || had_orphans {
        let sb = editor.super_block();
        sb.feature_incompat = (sb.feature_incompat.get() & !incompat::RECOVER).into();
        editor.finish().map_err(after)?;
    }
    Ok(editor.into_image())
}

/// From now on the file system knows that the journal was aborted, and only then no longer the log.
/// Source: `ext4_clear_journal_err`.
fn take_error<'a>(dev: &'a Overlay<'a>, image: Image<'a>) -> FsResult<Image<'a>> {
    let (log, bs) = (log_map(&image)?, image.geometry().block_size);
    let mut editor = Editor::over(image, dev);
    editor.mark_errors();
    editor.finish()?;
    dev.barrier();
    clear_errno(dev, &log, bs)?;
    dev.barrier();
    Ok(editor.into_image())
}

/// Replays the journal of the file system below `dev`, and its fast commits, as every mount does.
///
/// Orphans are left, and a recorded error stays in the log for the mount to take. Errors: those of
/// [`recover`].
pub fn replay_journal(dev: &Overlay<'_>, policy: &RecoverPolicy, now: u32) -> FsResult<Recovery> {
    let mut recovery = Recovery::default();
    let image = Image::open(dev)?;
    let manner = Manner::Mount;
    replay_image(dev, &image, policy, now, manner, &mut recovery).map_err(|(_, e)| e)?;
    Ok(recovery)
}

/// Is the image still as it was read?
fn replay_image(
    dev: &Overlay<'_>,
    image: &Image<'_>,
    policy: &RecoverPolicy,
    now: u32,
    manner: Manner,
    recovery: &mut Recovery,
) -> Result<bool, (Stage, FsError)> {
    let open = |e| (Stage::Open, e);
    let in_log = |e| (Stage::Replay, e);
    let bs = image.geometry().block_size;
    check_mounts(image).map_err(open)?;
    if !image.super_block().has_incompat(incompat::RECOVER) {
        // A log that need not be replayed may still say that it was aborted.
        recovery.journal_errno = recorded_error(dev, image, policy).map_err(open)?;
        return Ok(true);
    }
    if !image.super_block().has_internal_journal() {
        let what = "ext4 with a journal on another device".to_owned();
        return Err((Stage::Open, FsError::Unsupported(what)));
    }
    let log = log_map(image).map_err(open)?;
    let report = replay_log(dev, &log, bs, policy, &has_room).map_err(in_log)?;
    let is_clean = report.scan_end == wp_jbd2::ScanEnd::Clean;
    dev.barrier();
    let replayed = match manner {
        Manner::Staged => staged_fast_commits(dev, image, &log, &report, now),
        // iJournaling's mount is not Linux': what the log has no room for goes home directly.
        _ if report.is_ijournal => match staged_fast_commits(dev, image, &log, &report, now) {
            Err(FsError::Unsupported(_)) => fast_commit::replay(dev, image, &log, &report, now),
            done => done,
        },
        _ => fast_commit::replay(dev, image, &log, &report, now),
    };
    recovery.fast_commits = replayed.map_err(in_log)?;
    dev.barrier();
    recovery.journal_errno = report.errno;
    recovery.journal = Some(report.clone());
    end_recovery(dev, &log, bs, policy, &report).map_err(|e| (Stage::BadCommit, e))?;
    dev.barrier();
    Ok(is_clean)
}

/// [`fast_commit::replay`], and what it changes goes home as one more transaction of the log: of a
/// part of it a second replay would not come to the same.
fn staged_fast_commits(
    dev: &Overlay<'_>,
    image: &Image<'_>,
    log: &LogMap,
    report: &RecoveryReport,
    now: u32,
) -> FsResult<FastCommits> {
    if report.fast_commit.is_none() || report.failed_commit.is_some() {
        // Behind a transaction with a wrong checksum the recovery ends.
        return Ok(FastCommits::default());
    }
    let aside = Overlay::new(dev);
    let done = fast_commit::replay(&aside, &image.over(&aside), log, report, now)?;
    let bs = image.geometry().block_size;
    let blocks = changed(&aside, dev, bs)?;
    if blocks.is_empty() {
        return Ok(done);
    }
    if report.next_sequence != report.end_tid.wrapping_add(1) {
        // Their ids could not be told from the one of the transaction that is added.
        let what = "ext4 with fast commits and later transactions in an asynchronous log";
        return Err(FsError::Unsupported(what.to_owned()));
    }
    match Addition::behind(report, now.into(), &blocks).commit(dev, log, bs) {
        Ok(_) => Ok(done),
        Err(FsError::NoSpace) => {
            let what = "ext4 with fast commits that change more than the journal holds";
            Err(FsError::Unsupported(what.to_owned()))
        }
        Err(e) => Err(e),
    }
}

/// Has the super block, as replayed so far, room for a block of the log?
///
/// A kernel's super block is the buffer that the replay writes into. If a write cache lost the
/// logged copy and no checksum tells, what took its place is in force for all blocks of the log
/// that are read after it, until a later copy heals it.
/// Source: `jbd2_journal_bmap`, `__check_block_validity`, `ext4_sb_block_valid`.
fn has_room(dev: &Overlay<'_>, block: u64) -> bool {
    let at = SuperBlock::AT as usize;
    // Until the replay has written it, it is the one that the mount began with.
    let replayed = dev.page(0).and_then(|page| SuperBlock::load(page.bytes().get(at..)?));
    replayed
        .is_none_or(|sb| block > u64::from(sb.first_data_block.get()) && block < sb.blocks_count())
}

/// Why the journal of an image that needs no replay was aborted; 0 = it was not.
///
/// Errors: a mount's, which opens the journal whether it is to be replayed or not.
/// Source: `ext4_open_inode_journal`, `jbd2_journal_load`.
fn recorded_error(dev: &Overlay<'_>, image: &Image<'_>, policy: &RecoverPolicy) -> FsResult<u32> {
    if !image.super_block().has_internal_journal() {
        return Ok(0);
    }
    // What is not replayed may have holes: a mount finds the first block only.
    let (log, bs) = (map_of_log(image, true)?, image.geometry().block_size);
    let sb = read_super(dev, &log, bs)?;
    let at = log.block(0).unwrap_or(0) * u64::from(bs.bytes());
    verify_super(&sb, &log, bs, at, |incompat| policy.unknown_incompat(incompat))?;
    Ok(sb.errno.get())
}

/// A mount ends if it is not told where the journal is, and if the block of multiple-mount
/// protection is damaged or e2fsck's. Source: `ext4_load_journal`, `read_mmp_block`,
/// `ext4_multi_mount_protect`.
fn check_mounts(image: &Image<'_>) -> FsResult<()> {
    let sb = image.super_block();
    let has_journal = sb.has_compat(compat::HAS_JOURNAL);
    if has_journal && sb.journal_inum.get() == 0 && sb.journal_dev.get() == 0 {
        let expected = "the journal's inode, or s_journal_dev";
        return Err(FsError::corrupt(
            "ext4 super block",
            "s_journal_inum",
            SuperBlock::AT,
            0,
            expected,
        ));
    }
    if !sb.has_incompat(incompat::MMP) {
        return Ok(());
    }
    let block = sb.mmp_block.get();
    let at = block.saturating_mul(u64::from(image.geometry().block_size.bytes()));
    let wrong = |field, found: u32, expected: String| {
        let structure = "ext4 multiple-mount protection";
        Err(FsError::corrupt(structure, field, at, found.into(), expected))
    };
    if !image.geometry().holds(block, 1) {
        let expected = "a block of the file system";
        return Err(FsError::corrupt(
            "ext4 super block",
            "s_mmp_block",
            SuperBlock::AT,
            block,
            expected,
        ));
    }
    let bytes = image.read_block(block, "ext4 multiple-mount protection")?;
    let Some(mmp) = Mmp::load(&bytes) else { return Ok(()) };
    let right = image.checksums().mmp(&mmp);
    if mmp.magic.get() != Mmp::MAGIC {
        return wrong("mmp_magic", mmp.magic.get(), format!("{:#x}", Mmp::MAGIC));
    }
    if image.checksums().metadata() && mmp.checksum.get() != right {
        return wrong("mmp_checksum", mmp.checksum.get(), format!("{right:#x}"));
    }
    if mmp.seq.get() == Mmp::SEQ_FSCK {
        return wrong("mmp_seq", mmp.seq.get(), "no e2fsck at work".to_owned());
    }
    Ok(())
}

/// A mount ends without a root directory. Source: `__ext4_fill_super`.
fn check_root(image: &Image<'_>) -> FsResult<()> {
    let record = image.inode(ino::ROOT)?;
    let i = &record.inode;
    if i.is_dir() && i.links_count.get() > 0 && i.blocks_raw() > 0 && i.size() > 0 {
        return Ok(());
    }
    let expected = "a directory with a link, blocks and a length";
    Err(FsError::corrupt("ext4 root inode", "i_mode", record.at, i.mode.get().into(), expected))
}

/// Where the journal's blocks lie.
///
/// Errors: `Corrupt` if the journal's inode is free, no file, or has holes.
pub fn log_map(image: &Image<'_>) -> FsResult<LogMap> {
    map_of_log(image, false)
}

/// [`log_map`], where blocks may be missing.
fn map_of_log(image: &Image<'_>, may_have_holes: bool) -> FsResult<LogMap> {
    let number = image.super_block().journal_inum.get();
    let record = image.inode(number)?;
    if record.inode.links_count.get() == 0 || !record.inode.is_file() {
        let found = record.inode.mode.get().into();
        return Err(FsError::corrupt(
            "ext4 journal inode",
            "i_mode",
            record.at,
            found,
            "a file with a link",
        ));
    }
    let mut next = 0u64;
    let map = image.map(&record)?;
    for run in &map.runs {
        if !may_have_holes && (run.is_unwritten || u64::from(run.logical) != next) {
            let expected = "a journal without holes";
            return Err(FsError::corrupt(
                "ext4 journal inode",
                "i_block",
                record.at,
                next,
                expected,
            ));
        }
        next = run.end();
    }
    // What is behind the file's length is none of the log: one that says more is too short.
    let length = record.inode.size() / u64::from(image.geometry().block_size.bytes());
    let within = |r: &Run| {
        let left = length.saturating_sub(r.logical.into());
        let blocks = u64::from(r.blocks).min(left);
        Some((r.logical, r.start, u32::try_from(blocks).ok()?)).filter(|(.., n)| *n > 0)
    };
    Ok(LogMap { blocks: map.runs.iter().filter_map(within).collect() })
}
