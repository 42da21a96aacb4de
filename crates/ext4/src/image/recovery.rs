//! What a kernel does at mount after a crash, in memory: replay the journal, then finish what open
//! and half-truncated files have left (orphans).
//!
//! Source: `ext4_load_journal`, `ext4_orphan_cleanup`, Linux
//!         Documentation/filesystems/ext4/orphan.rst.

use std::collections::BTreeSet;

use wp_base::{FsError, FsResult};
use wp_jbd2::{LogMap, RecoverPolicy, RecoveryReport};
use wp_medium::Overlay;

use crate::disk::orphan::{self, OrphanTail};
use crate::disk::{SuperBlock, compat, fast_commit, incompat, ro_compat};

use super::editor::Editor;
use super::{Image, InodeRecord};

/// What recovery found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Replay of the journal; `None` if it was not needed.
    pub journal: Option<RecoveryReport>,
    /// Files without a name that were deleted.
    pub orphans_deleted: u32,
    /// Files that were cut to their size.
    pub orphans_truncated: u32,
}

impl Recovery {
    /// Was there anything to recover?
    pub fn is_needed(&self) -> bool {
        self.journal.is_some() || self.orphans_deleted > 0 || self.orphans_truncated > 0
    }
}

/// Recovers the file system below `dev` into it, to the state of a clean unmount.
///
/// Units:  `now`, seconds since 1970, becomes the time of deletion of orphans.
/// Errors: those of [`Image::open`] and of [`wp_jbd2::recover()`]; `Unsupported` for an external
///         journal and for a fast commit that a kernel would replay; `Corrupt` for an orphan that
///         cannot be one.
pub fn recover(dev: &Overlay<'_>, policy: &RecoverPolicy, now: u32) -> FsResult<Recovery> {
    let mut recovery = Recovery::default();
    let image = Image::open(dev)?;
    let sb = *image.super_block();
    if sb.has_incompat(incompat::RECOVER) {
        if !sb.has_internal_journal() {
            return Err(FsError::Unsupported("ext4 with a journal on another device".to_owned()));
        }
        let log = log_map(&image)?;
        let report = wp_jbd2::recover(dev, &log, image.geometry().block_size, policy)?;
        refuse_fast_commit(&image, &log, &report)?;
        recovery.journal = Some(report);
    }
    let mut editor = Editor::new(dev)?;
    let was_dirty = recovery.journal.is_some();
    if recovery.journal.as_ref().is_some_and(|r| r.errno != 0) {
        let state = editor.super_block().state.get();
        editor.super_block().state = (state | SuperBlock::STATE_ERROR).into();
    }
    let had_orphans = clean_up(&mut editor, &mut recovery, now)?;
    if was_dirty || had_orphans {
        let sb = editor.super_block();
        sb.feature_incompat = (sb.feature_incompat.get() & !incompat::RECOVER).into();
        sb.feature_ro_compat = (sb.feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT).into();
        editor.finish()?;
    }
    Ok(recovery)
}

/// Where the journal's blocks lie.
///
/// Errors: `Corrupt` if the journal's inode is free, no file, or has holes.
pub fn log_map(image: &Image<'_>) -> FsResult<LogMap> {
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
        if run.is_unwritten || u64::from(run.logical) != next {
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
    Ok(LogMap { blocks: map.runs.iter().map(|r| (r.logical, r.start, r.blocks)).collect() })
}

/// Fast commits that a kernel would replay now are beyond us: without them files would silently be
/// old. Errors: `Unsupported` if there are any.
pub(crate) fn refuse_fast_commit(
    image: &Image<'_>,
    log: &LogMap,
    report: &RecoveryReport,
) -> FsResult<()> {
    let Some((first, blocks)) = report.fast_commit else { return Ok(()) };
    if report.scan_end == wp_jbd2::ScanEnd::Clean
        || !image.super_block().has_compat(compat::FAST_COMMIT)
    {
        return Ok(());
    }
    let mut area = Vec::new();
    for n in first..first.saturating_add(blocks) {
        let Some(block) = log.block(n) else { break };
        area.push(image.read_block(block, "ext4 fast-commit area")?);
    }
    if fast_commit::holds_commit(area.iter().map(Vec::as_slice), report.end_tid) {
        let what = format!("replay of the fast commit after transaction {}", report.end_tid);
        return Err(FsError::Unsupported(what));
    }
    Ok(())
}

/// Finishes all orphans. Were there any, or a list of them?
fn clean_up(editor: &mut Editor<'_>, recovery: &mut Recovery, now: u32) -> FsResult<bool> {
    let sb = *editor.super_block();
    let file = if sb.has_compat(compat::ORPHAN_FILE) { sb.orphan_file_inum.get() } else { 0 };
    if sb.last_orphan.get() == 0 && (file == 0 || !sb.has_ro_compat(ro_compat::ORPHAN_PRESENT)) {
        return Ok(false);
    }
    if sb.state.get() & SuperBlock::STATE_ERROR != 0 {
        // A kernel trusts no chain of a file system with errors: it forgets it.
        editor.super_block().last_orphan = 0.into();
        return Ok(true);
    }
    let mut seen = BTreeSet::new();
    let mut next = sb.last_orphan.get();
    while next != 0 {
        let mut record = orphan(editor, next, &mut seen)?;
        next = record.inode.dtime.get();
        record.inode.dtime = 0.into();
        finish_orphan(editor, record, recovery, now)?;
    }
    editor.super_block().last_orphan = 0.into();
    if file != 0 && sb.has_ro_compat(ro_compat::ORPHAN_PRESENT) {
        orphan_file(editor, file, &mut seen, recovery, now)?;
    }
    Ok(true)
}

/// Reads an orphan and checks that it can be one. Source: `ext4_orphan_get`.
fn orphan(editor: &Editor<'_>, number: u32, seen: &mut BTreeSet<u32>) -> FsResult<InodeRecord> {
    let image = editor.image();
    let wrong = |expected: &str| {
        Err(FsError::corrupt("ext4 orphan", "inode", SuperBlock::AT, number.into(), expected))
    };
    if number < image.geometry().first_inode || number > image.geometry().inodes_count {
        return wrong("an inode that is not reserved");
    }
    if !seen.insert(number) {
        return wrong("a list without a loop");
    }
    if !editor.is_inode_used(number)? {
        return wrong("an inode that is in use");
    }
    image.inode(number)
}

fn finish_orphan(
    editor: &mut Editor<'_>,
    mut record: InodeRecord,
    recovery: &mut Recovery,
    now: u32,
) -> FsResult<()> {
    let bs = u64::from(editor.image().geometry().block_size.bytes());
    if record.inode.links_count.get() > 0 {
        let blocks = record.inode.size().div_ceil(bs);
        editor.shorten(&mut record, blocks)?;
        editor.write_inode(&mut record)?;
        recovery.orphans_truncated += 1;
        return Ok(());
    }
    editor.shorten(&mut record, 0)?;
    editor.drop_attributes(&mut record)?;
    if record.inode.is_file() || record.inode.is_dir() {
        record.inode.set_size(0);
    }
    record.inode.dtime = now.into();
    editor.write_inode(&mut record)?;
    editor.free_inode(&record)?;
    recovery.orphans_deleted += 1;
    Ok(())
}

fn orphan_file(
    editor: &mut Editor<'_>,
    file: u32,
    seen: &mut BTreeSet<u32>,
    recovery: &mut Recovery,
    now: u32,
) -> FsResult<()> {
    let record = editor.image().inode(file)?;
    let map = editor.image().map(&record)?;
    let seed = editor.image().seed_of(&record);
    for run in map.runs.iter().filter(|r| !r.is_unwritten) {
        for block in run.start..run.start + u64::from(run.blocks) {
            let bytes = editor.image().read_block(block, "ext4 orphan file")?;
            let at = editor.image().byte_of(block);
            let tail = OrphanTail::load(&bytes).ok_or(FsError::Io)?;
            let sums = *editor.image().checksums();
            if tail.magic.get() != OrphanTail::MAGIC {
                let found = tail.magic.get().into();
                return Err(FsError::corrupt(
                    "ext4 orphan file",
                    "ob_magic",
                    at,
                    found,
                    "0x0b10ca04",
                ));
            }
            let right = sums.orphan_block(seed, block, &bytes);
            if sums.metadata() && tail.checksum.get() != right {
                let found = tail.checksum.get().into();
                return Err(FsError::corrupt(
                    "ext4 orphan file",
                    "ob_checksum",
                    at,
                    found,
                    format!("{right:#x}"),
                ));
            }
            let numbers: Vec<u32> =
                orphan::slots(&bytes).iter().map(|n| n.get()).filter(|n| *n != 0).collect();
            if numbers.is_empty() {
                continue;
            }
            for number in numbers {
                let record = orphan(editor, number, seen)?;
                finish_orphan(editor, record, recovery, now)?;
            }
            let mut empty = vec![0u8; bytes.len()];
            let checksum = if sums.metadata() { sums.orphan_block(seed, block, &empty) } else { 0 };
            OrphanTail { magic: OrphanTail::MAGIC.into(), checksum: checksum.into() }
                .store(&mut empty);
            editor.write_block(block, &empty)?;
        }
    }
    Ok(())
}
