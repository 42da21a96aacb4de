//! Orphans, in memory: what open and half-truncated files have left.
//!
//! Picture:    the chain from `s_last_orphan` through the inodes' `i_dtime`, then the slots of the
//!             orphan file; each inode is deleted, or cut to its size if it has a name.
//! Invariants: [`finish_staged`]: what changes of an orphan is of one transaction of the journal.
//! Source:     `ext4_orphan_cleanup`, `ext4_orphan_get`, `ext4_process_orphan`; Linux
//!             Documentation/filesystems/ext4/orphan.rst.

use std::collections::BTreeSet;

use wp_base::{BlockSize, FsError, FsResult};
use wp_jbd2::recover::{Addition, empty, read_super, wipe};
use wp_jbd2::{LogMap, RecoverPolicy};
use wp_medium::{Overlay, View};
use zerocopy::IntoBytes;

use crate::disk::orphan::{self, OrphanTail};
use crate::disk::{Checksums, Stamp, SuperBlock, compat, incompat, ro_compat};

use super::editor::Editor;
use super::{Image, InodeRecord, Recovery, log_map};

/// A block's place and its bytes.
type Block = (u64, Vec<u8>);

/// Finishes all orphans, in place.
///
/// Errors: `Corrupt` for an orphan that cannot be one, unless `lenient`: then it is noted, the file
///         system is marked as having errors, and what follows is left, as a kernel does. Always
///         for an orphan file that is none: no kernel mounts that.
pub(super) fn finish(
    editor: &mut Editor<'_>,
    recovery: &mut Recovery,
    now: u32,
    lenient: bool,
) -> FsResult<()> {
    let mut pass = Pass { recovery, now, lenient, seen: BTreeSet::new(), left: usize::MAX };
    pass.run(editor).map(drop)
}

/// Finishes all orphans of `image`, which lies below `dev`, in transactions of the log: after a
/// power failure at any write each of them is finished or still to do. The super block says "to be
/// recovered" before and behind it.
///
/// Errors: those of [`finish`]; `Unsupported` for an orphan of which the log cannot hold what
///         changes, and without a log: no kernel lists orphans then.
pub(super) fn finish_staged<'a>(
    dev: &'a Overlay<'a>,
    mut image: Image<'a>,
    policy: &RecoverPolicy,
    now: u32,
    recovery: &mut Recovery,
) -> FsResult<Image<'a>> {
    if !image.super_block().has_internal_journal() {
        let what = "ext4 with orphans and no journal of its own".to_owned();
        return Err(FsError::Unsupported(what));
    }
    let (log, bs) = (log_map(&image)?, image.geometry().block_size);
    if !image.super_block().has_incompat(incompat::RECOVER) {
        wipe(dev, &log, bs, policy)?;
        // Or nobody would look into the log.
        let mut sb = *image.super_block();
        sb.feature_incompat = (sb.feature_incompat.get() | incompat::RECOVER).into();
        write_super(dev, &image, sb)?;
        dev.barrier();
        image = image.again()?;
    }
    let (mut seen, mut at_once) = (BTreeSet::new(), usize::MAX);
    loop {
        let aside = Overlay::new(dev);
        let mut editor = Editor::over(image.over(&aside), &aside);
        let mut done = recovery.clone();
        let mut pass =
            Pass { recovery: &mut done, now, lenient: false, seen: seen.clone(), left: at_once };
        let is_whole = pass.run(&mut editor)?;
        let seen_now = pass.seen;
        editor.finish()?;
        match commit(dev, &log, bs, policy, &changed(&aside, dev, bs)?, now) {
            Ok(()) => (*recovery, seen) = (done, seen_now),
            Err(FsError::NoSpace) => {
                at_once = (seen_now.len() - seen.len()) / 2;
                if at_once == 0 {
                    let what = "ext4 with an orphan that changes more than the journal holds";
                    return Err(FsError::Unsupported(what.to_owned()));
                }
                continue;
            }
            Err(e) => return Err(e),
        }
        image = image.again()?;
        if is_whole {
            return Ok(image);
        }
    }
}

/// One transaction in an empty log. Errors: `NoSpace` where the log is too short for it.
fn commit(
    dev: &Overlay<'_>,
    log: &LogMap,
    bs: BlockSize,
    policy: &RecoverPolicy,
    blocks: &[Block],
    now: u32,
) -> FsResult<()> {
    let sb = read_super(dev, log, bs)?;
    let added = Addition { at: sb.first.get(), tid: sb.sequence.get(), secs: now.into(), blocks };
    let head = added.commit(dev, log, bs)?;
    empty(dev, log, bs, &added, policy.record_head().then_some(head))
}

/// Blocks that `aside` has otherwise than `dev`, which lies below it.
pub(super) fn changed(
    aside: &Overlay<'_>,
    dev: &Overlay<'_>,
    bs: BlockSize,
) -> FsResult<Vec<Block>> {
    let bs = u64::from(bs.bytes());
    let mut places = BTreeSet::new();
    aside.each_page(|page, _| {
        places.extend(page * 4096 / bs..=(page * 4096 + 4095) / bs);
    });
    let mut blocks = Vec::new();
    for block in places.into_iter().filter(|b| (b + 1) * bs <= dev.len_bytes()) {
        let (mut now, mut before) = (vec![0; bs as usize], vec![0; bs as usize]);
        aside.read_at(block * bs, &mut now)?;
        dev.read_at(block * bs, &mut before)?;
        if now != before {
            blocks.push((block, now));
        }
    }
    Ok(blocks)
}

fn write_super(dev: &Overlay<'_>, image: &Image<'_>, mut sb: SuperBlock) -> FsResult<()> {
    if image.checksums().metadata() {
        sb.checksum = Checksums::super_block(&sb).into();
    }
    dev.write_at(SuperBlock::AT, sb.as_bytes())
}

/// Does the super block name orphans, or a file of them?
pub(super) fn are_listed(sb: &SuperBlock) -> bool {
    let has_file = sb.has_compat(compat::ORPHAN_FILE)
        && sb.has_ro_compat(ro_compat::ORPHAN_PRESENT)
        && sb.orphan_file_inum.get() != 0;
    sb.last_orphan.get() != 0 || has_file
}

/// One pass over the orphans.
struct Pass<'r> {
    recovery: &'r mut Recovery,
    now: u32,
    /// See [`finish`].
    lenient: bool,
    seen: BTreeSet<u32>,
    /// Orphans that this pass may yet finish.
    left: usize,
}

impl Pass<'_> {
    /// Processes at most `left` orphans; the others stay in their lists. Were all processed?
    fn run(&mut self, editor: &mut Editor<'_>) -> FsResult<bool> {
        let sb = *editor.super_block();
        let file = if sb.has_compat(compat::ORPHAN_FILE) { sb.orphan_file_inum.get() } else { 0 };
        let file = if sb.has_ro_compat(ro_compat::ORPHAN_PRESENT) { file } else { 0 };
        let blocks = if file != 0 { orphan_file(editor, file)? } else { Vec::new() };
        let mut is_whole = true;
        if sb.state.get() & SuperBlock::STATE_ERROR != 0 {
            // A kernel trusts no chain of a file system with errors: it forgets it.
            editor.super_block().last_orphan = 0.into();
        } else {
            let next = match self.chain(editor, sb.last_orphan.get()) {
                Ok(next) => next,
                Err(e) => {
                    self.note(editor, e)?;
                    0
                }
            };
            editor.super_block().last_orphan = next.into();
            is_whole = next == 0;
            for (block, seed) in blocks {
                is_whole &= self.slots(editor, block, seed)?;
            }
        }
        if is_whole {
            let sb = editor.super_block();
            sb.feature_ro_compat = (sb.feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT).into();
        }
        Ok(is_whole)
    }

    /// Marks the file system as having errors, or hands the error on.
    fn note(&mut self, editor: &mut Editor<'_>, error: FsError) -> FsResult<()> {
        if !self.lenient || matches!(error, FsError::Unsupported(_)) {
            return Err(error);
        }
        editor.mark_errors();
        self.recovery.reported.push(error);
        Ok(())
    }

    /// The chain through `i_dtime`, from inode `next` on; the first one that is left, or 0.
    fn chain(&mut self, editor: &mut Editor<'_>, mut next: u32) -> FsResult<u32> {
        while next != 0 && self.left > 0 {
            let mut record = orphan(editor, next, &mut self.seen)?;
            self.left -= 1;
            next = record.inode.dtime.get();
            record.inode.dtime = 0.into();
            finish_orphan(editor, record, self.recovery, self.now)?;
        }
        Ok(next)
    }

    /// One block of the orphan file. A slot that names no orphan stays in use. Was that all of it?
    fn slots(&mut self, editor: &mut Editor<'_>, block: u64, seed: u32) -> FsResult<bool> {
        let mut bytes = editor.image().read_block(block, "ext4 orphan file")?;
        let held: Vec<(usize, u32)> = orphan::slots(&bytes)
            .iter()
            .enumerate()
            .filter(|(_, n)| n.get() != 0)
            .map(|(slot, n)| (slot, n.get()))
            .collect();
        let now = held.len().min(self.left);
        if now == 0 {
            return Ok(held.is_empty());
        }
        self.left -= now;
        for (slot, number) in held.iter().take(now) {
            let done = orphan(editor, *number, &mut self.seen)
                .and_then(|r| finish_orphan(editor, r, self.recovery, self.now));
            match done {
                Ok(()) => orphan::set_slot(&mut bytes, *slot, 0),
                Err(e) => self.note(editor, e)?,
            }
        }
        let sums = *editor.image().checksums();
        let checksum = if sums.metadata() { sums.orphan_block(seed, block, &bytes) } else { 0 };
        OrphanTail { magic: OrphanTail::MAGIC.into(), checksum: checksum.into() }.store(&mut bytes);
        editor.write_block(block, &bytes)?;
        Ok(now == held.len())
    }
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

/// Cuts an orphan that has a name to its size, and deletes one that has none. Source:
/// `ext4_process_orphan`.
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
        if record.can_be_truncated(editor.image().block_size().sectors()) {
            // The truncate that ends here is one of the mount (`ext4_truncate`).
            let (secs, extra) = Stamp { secs: now.into(), nanos: 0 }.encode();
            (record.inode.mtime, record.inode.ctime) = (secs, secs);
            (record.extra.mtime_extra, record.extra.ctime_extra) = (extra, extra);
            record.extra.store(&mut record.raw);
        }
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

/// The blocks of the orphan file, each with the seed of its checksum. Source:
/// `ext4_init_orphan_info`.
fn orphan_file(editor: &Editor<'_>, file: u32) -> FsResult<Vec<(u64, u32)>> {
    let image = editor.image();
    let record = image.inode(file)?;
    let map = image.map(&record)?;
    let seed = image.seed_of(&record);
    let sums = *image.checksums();
    let mut blocks = Vec::new();
    for run in map.runs.iter().filter(|r| !r.is_unwritten) {
        for block in run.start..run.start + u64::from(run.blocks) {
            let bytes = image.read_block(block, "ext4 orphan file")?;
            let at = image.byte_of(block);
            let wrong = |field, found: u32, right: u32| {
                let right = format!("{right:#x}");
                Err(FsError::corrupt("ext4 orphan file", field, at, found.into(), right))
            };
            let tail = OrphanTail::load(&bytes).ok_or(FsError::Io)?;
            if tail.magic.get() != OrphanTail::MAGIC {
                return wrong("ob_magic", tail.magic.get(), OrphanTail::MAGIC);
            }
            let right = sums.orphan_block(seed, block, &bytes);
            if sums.metadata() && tail.checksum.get() != right {
                return wrong("ob_checksum", tail.checksum.get(), right);
            }
            blocks.push((block, seed));
        }
    }
    Ok(blocks)
}
