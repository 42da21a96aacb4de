//! Orphans, in memory: what open and half-truncated files have left.
//!
//! Picture:    the chain from `s_last_orphan` through the inodes' `i_dtime`, then the slots of the
//!             orphan file; each inode is deleted, or cut to its size if it has a name.
//! Invariants: changes of them are one transaction of the journal, as a kernel's are of several.
//! Source:     `ext4_orphan_cleanup`, `ext4_orphan_get`, `ext4_process_orphan`; Linux
//!             Documentation/filesystems/ext4/orphan.rst.

use std::collections::BTreeSet;

use wp_base::{FsError, FsResult};
use wp_jbd2::RecoverPolicy;
use wp_jbd2::recover::commit_blocks;
use wp_medium::{Overlay, View};
use zerocopy::IntoBytes;

use crate::disk::orphan::{self, OrphanTail};
use crate::disk::{Checksums, GroupDesc, SuperBlock, compat, incompat, ro_compat};

use super::editor::Editor;
use super::{Image, InodeRecord, Recovery, log_map};

/// A block's place and its bytes.
type Block = (u64, Vec<u8>);

/// How orphans are finished after the replay.
pub(super) struct After<'a> {
    pub(super) policy: &'a RecoverPolicy,
    pub(super) now: u32,
    /// See [`clean_up`].
    pub(super) is_lenient: bool,
}

impl After<'_> {
    /// Finishes all orphans of `image`, which lies below `dev`, so that a cut at any write leaves
    /// all of them to do, or none. The super block says "to be recovered" before and behind it.
    ///
    /// Errors: those of [`clean_up`]; `NoSpace` where the log is too short for what changes.
    pub(super) fn orphans<'a>(
        &self,
        dev: &'a Overlay<'a>,
        image: Image<'a>,
        recovery: &mut Recovery,
    ) -> FsResult<Image<'a>> {
        let aside = Overlay::new(dev);
        let mut editor = Editor::over(image.over(&aside), &aside);
        clean_up(&mut editor, recovery, self.now, self.is_lenient)?;
        let sb = editor.super_block();
        sb.feature_ro_compat = (sb.feature_ro_compat.get() & !ro_compat::ORPHAN_PRESENT).into();
        let has_journal = sb.has_internal_journal();
        if has_journal {
            sb.feature_incompat = (sb.feature_incompat.get() | incompat::RECOVER).into();
        }
        editor.finish()?;
        let blocks = changed(&image, &aside, dev)?;
        if !has_journal {
            return unjournaled(dev, image, blocks);
        }
        if !image.super_block().has_incompat(incompat::RECOVER) {
            // Or nobody would look into the log.
            let mut sb = *image.super_block();
            sb.feature_incompat = (sb.feature_incompat.get() | incompat::RECOVER).into();
            write_super(dev, &image, sb)?;
            dev.barrier();
        }
        let (log, bs) = (log_map(&image)?, image.geometry().block_size);
        commit_blocks(dev, &log, bs, self.policy, &blocks, self.now.into())?;
        image.again()
    }
}

/// Blocks of the file system that `aside` has otherwise than `dev`.
pub(super) fn changed(
    image: &Image<'_>,
    aside: &Overlay<'_>,
    dev: &Overlay<'_>,
) -> FsResult<Vec<Block>> {
    let bs = u64::from(image.geometry().block_size.bytes());
    let mut places = BTreeSet::new();
    aside.each_page(|page, _| {
        places.extend(page * 4096 / bs..=(page * 4096 + 4095) / bs);
    });
    let mut blocks = Vec::new();
    for block in places.into_iter().filter(|b| *b < image.geometry().blocks_count) {
        let (mut now, mut before) = (vec![0; bs as usize], vec![0; bs as usize]);
        aside.read_at(block * bs, &mut now)?;
        dev.read_at(block * bs, &mut before)?;
        if now != before {
            blocks.push((block, now));
        }
    }
    Ok(blocks)
}

/// Without a journal: the list is forgotten, then what it named is changed, then what that used is
/// free. A cut in between leaks space; nothing is used twice.
fn unjournaled<'a>(
    dev: &'a Overlay<'a>,
    image: Image<'a>,
    blocks: Vec<Block>,
) -> FsResult<Image<'a>> {
    let mut sb = *image.super_block();
    sb.last_orphan = 0.into();
    write_super(dev, &image, sb)?;
    dev.barrier();
    let g = image.geometry();
    let counts: BTreeSet<u64> = (0..)
        .zip(image.groups())
        .flat_map(|(n, d): (u32, &GroupDesc)| {
            [d.block_bitmap(), d.inode_bitmap(), g.desc_place(n).0]
        })
        .chain([SuperBlock::AT / u64::from(g.block_size.bytes())])
        .collect();
    let (counts, files): (Vec<Block>, Vec<Block>) =
        blocks.into_iter().partition(|(block, _)| counts.contains(block));
    for stage in [files, counts] {
        for (block, bytes) in stage {
            dev.write_at(image.byte_of(block), &bytes)?;
        }
        dev.barrier();
    }
    image.again()
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

/// Finishes all orphans.
///
/// Errors: `Corrupt` for an orphan that cannot be one, unless `lenient`: then it is noted, the file
///         system is marked as having errors, and what follows is left, as a kernel does. Always
///         for an orphan file that is none: no kernel mounts that.
fn clean_up(
    editor: &mut Editor<'_>,
    recovery: &mut Recovery,
    now: u32,
    lenient: bool,
) -> FsResult<()> {
    let sb = *editor.super_block();
    let file = if sb.has_compat(compat::ORPHAN_FILE) { sb.orphan_file_inum.get() } else { 0 };
    let file = if sb.has_ro_compat(ro_compat::ORPHAN_PRESENT) { file } else { 0 };
    let blocks = if file != 0 { orphan_file(editor, file)? } else { Vec::new() };
    if sb.state.get() & SuperBlock::STATE_ERROR != 0 {
        // A kernel trusts no chain of a file system with errors: it forgets it.
        editor.super_block().last_orphan = 0.into();
        return Ok(());
    }
    let mut pass = Pass { editor, recovery, now, seen: BTreeSet::new() };
    if let Err(e) = pass.chain(sb.last_orphan.get()) {
        pass.note(e, lenient)?;
    }
    pass.editor.super_block().last_orphan = 0.into();
    for (block, seed) in blocks {
        pass.slots(block, seed, lenient)?;
    }
    Ok(())
}

/// One pass over the orphans.
struct Pass<'e, 'a> {
    editor: &'e mut Editor<'a>,
    recovery: &'e mut Recovery,
    now: u32,
    seen: BTreeSet<u32>,
}

impl Pass<'_, '_> {
    /// Marks the file system as having errors, or hands the error on.
    fn note(&mut self, error: FsError, lenient: bool) -> FsResult<()> {
        if !lenient || matches!(error, FsError::Unsupported(_)) {
            return Err(error);
        }
        self.editor.mark_errors();
        self.recovery.reported.push(error);
        Ok(())
    }

    /// The chain through `i_dtime`.
    fn chain(&mut self, mut next: u32) -> FsResult<()> {
        while next != 0 {
            let mut record = orphan(self.editor, next, &mut self.seen)?;
            next = record.inode.dtime.get();
            record.inode.dtime = 0.into();
            finish_orphan(self.editor, record, self.recovery, self.now)?;
        }
        Ok(())
    }

    /// One block of the orphan file. A slot that names no orphan stays in use.
    fn slots(&mut self, block: u64, seed: u32, lenient: bool) -> FsResult<()> {
        let mut bytes = self.editor.image().read_block(block, "ext4 orphan file")?;
        let held: Vec<(usize, u32)> = orphan::slots(&bytes)
            .iter()
            .enumerate()
            .filter(|(_, n)| n.get() != 0)
            .map(|(slot, n)| (slot, n.get()))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        for (slot, number) in held {
            let done = orphan(self.editor, number, &mut self.seen)
                .and_then(|r| finish_orphan(self.editor, r, self.recovery, self.now));
            match done {
                Ok(()) => orphan::set_slot(&mut bytes, slot, 0),
                Err(e) => self.note(e, lenient)?,
            }
        }
        let sums = *self.editor.image().checksums();
        let checksum = if sums.metadata() { sums.orphan_block(seed, block, &bytes) } else { 0 };
        OrphanTail { magic: OrphanTail::MAGIC.into(), checksum: checksum.into() }.store(&mut bytes);
        self.editor.write_block(block, &bytes)
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
