//! What a mount does after a crash, in memory: data of fdatasyncs behind the newest checkpoint come
//! back, and a checkpoint makes that last.
//!
//! Picture:    [`search()`] -> logs behind the newest super root -> blocks of data -> [`Store`]:
//!             they are written again, into fresh segments -> super blocks.
//! Invariants: 1. pure and synchronous; nothing but the overlay changes, and that only at the end,
//!                when all has gone well.
//!             2. a file system that was unmounted in order is left as it is.
//! Source:     `load_nilfs`, `nilfs_salvage_orphan_logs`.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, PAGE_BYTES, View};
use zerocopy::IntoBytes;

use crate::disk::summary::flag;
use crate::disk::super_block::state;
use crate::disk::{Summary, SuperBlock};
use crate::era::Era;
use crate::log::{DirtyBlocks, Disk, Kind, Log, Origin, Place, Store};

use super::search::{Stray, read_block, read_log};
use super::{Image, Orphans, Tip, search};

/// How to recover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoverOptions {
    /// Time that the new log and the super block get, in seconds since 1970.
    pub now: u64,
    /// The kernel; `None`: one without its faults.
    pub era: Option<Era>,
}

impl RecoverOptions {
    /// Does a block smaller than a page come back where its block of the log stands in a page
    /// ([`Era::recovery_misplaces`])?
    fn misplaces(&self) -> bool {
        self.era.is_some_and(|era| era.recovery_misplaces())
    }
}

impl Default for RecoverOptions {
    fn default() -> RecoverOptions {
        RecoverOptions { now: 1_388_534_400, era: None }
    }
}

/// What recovery found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Was the file system not unmounted in order?
    pub is_needed: bool,
    /// Did it start from the other super block, as the newer one led nowhere?
    pub fell_back: bool,
    /// Was there a newer checkpoint than the super block's?
    pub is_newer: bool,
    /// The checkpoint that was found.
    pub cno: u64,
    /// Blocks of data that came back.
    pub blocks: u64,
    /// The files that they belong to, in order of their first.
    pub files: Vec<u64>,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_needed {
            return f.write_str("nothing to recover");
        }
        let from = if self.fell_back { ", from the other super block" } else { "" };
        write!(f, "checkpoint {}{from}, {} blocks", self.cno, self.blocks)?;
        write!(f, " of {} files recovered", self.files.len())
    }
}

/// A block of data in a log behind the checkpoint.
struct Salvaged {
    ino: u64,
    key: u64,
    /// Where it lies.
    place: u64,
}

/// Recovers the file system below `dev` into it, as a mount does.
///
/// Errors: those of [`Image::open`]; `Corrupt` for logs that contradict themselves and for data of
///         no file; `NoSpace` without a segment for the new checkpoint.
pub fn recover(dev: &Overlay<'_>, options: &RecoverOptions) -> FsResult<Recovery> {
    let tip = search(dev)?;
    let image = Image::at(dev, tip.clone(), None)?;
    let mut out = Recovery { cno: tip.cno, ..Recovery::default() };
    if tip.is_clean {
        return Ok(out);
    }
    (out.is_needed, out.fell_back, out.is_newer) = (true, tip.fell_back, tip.is_newer);
    let found = match tip.orphans {
        Some(orphans) => salvage(dev, &tip, orphans)?,
        None => Vec::new(),
    };
    let mut supers = Supers::of(&tip);
    let mut zeroed = None;
    let mut logs = Vec::new();
    if !found.is_empty() {
        let data = Rc::new(DirtyBlocks::default());
        let mut store = open_store(dev, &image, data.clone())?;
        let mut all = Vec::with_capacity(found.len());
        for block in &found {
            all.push(read_block(dev, &tip.g, block.place, "nilfs2 log")?);
        }
        if 1 << tip.g.block_bits < PAGE_BYTES && options.misplaces() {
            misplace(&found, &mut all);
        }
        for (block, bytes) in found.iter().zip(all) {
            store.dirty_block(block.ino, block.key)?;
            data.put(block.ino, block.key, bytes);
            out.blocks += 1;
            if !out.files.contains(&block.ino) {
                out.files.push(block.ino);
            }
        }
        store.leave_segments([tip.last.segment, tip.last.next_segment], tip.last.seq)?;
        logs = store.construct(Kind::Checkpoint, options.now)?;
        let free = store.segments_free()?.saturating_mul(tip.g.segment_blocks);
        supers.flip();
        supers.point_to(logs.last(), tip.cno.wrapping_add(1), free);
        // So that nothing finds these logs again: they go on from the old super root.
        zeroed = tip
            .orphans
            .map(|o| o.start)
            .filter(|start| tip.g.segment_of(*start) == tip.g.segment_of(tip.root.start));
    } else {
        let free = image.usage_header()?.ncleansegs.get();
        let free = free.saturating_mul(tip.g.segment_blocks);
        supers.current.free_blocks_count = free.into();
        supers.current.last_cno = tip.cno.into();
        supers.current.last_pseg = tip.root.start.into();
        supers.current.last_seq = tip.root.seq.into();
    }
    for log in &logs {
        for (block, what) in (log.start..).zip(&log.blocks) {
            dev.write_at(tip.g.byte_of(block), &what.to_vec())?;
        }
    }
    // Logs before the super block that leads to them, and that before old logs are forgotten.
    dev.barrier();
    supers.write(dev, options.now)?;
    if let Some(block) = zeroed {
        dev.write_at(tip.g.byte_of(block), &vec![0; tip.g.block_bytes()])?;
        dev.barrier();
    }
    Ok(out)
}

/// What the old recovery makes of blocks that are smaller than a page: each is copied into its
/// file's page at the offset of its block of the log, and what then stands at its own is written.
/// What nobody copied there is zeroes here; in Linux it is what the memory held.
///
/// Source: `nilfs_recovery_copy_block` before Linux 6.8.
fn misplace(found: &[Salvaged], all: &mut [Vec<u8>]) {
    let of_page = all.first().map_or(1, |first| (PAGE_BYTES / first.len().max(1)).max(1)) as u64;
    // By file, page, and place in it.
    let mut pages: BTreeMap<(u64, u64, u64), Vec<u8>> = BTreeMap::new();
    for (block, data) in found.iter().zip(&*all) {
        pages.insert((block.ino, block.key / of_page, block.place % of_page), data.clone());
    }
    for (block, data) in found.iter().zip(all) {
        let own = pages.get(&(block.ino, block.key / of_page, block.key % of_page));
        *data = own.cloned().unwrap_or_else(|| vec![0; data.len()]);
    }
}

/// The file system as its newest checkpoint has it, ready for a log behind that with what `data`
/// has.
fn open_store<'a>(
    dev: &'a Overlay<'_>,
    image: &Image<'_>,
    data: Rc<DirtyBlocks>,
) -> FsResult<Store<'a>> {
    let tip = image.tip();
    let g = tip.g.clone();
    let (start, _) = g.segment(tip.root.segment);
    let origin = Origin {
        root: image.super_root().clone(),
        at: image.dat().at,
        checkpoint: *image.checkpoint(),
        cno: tip.cno.wrapping_add(1),
        place: Place {
            segment: tip.root.segment,
            offset: tip.root.start + tip.root.blocks - start,
            next_segment: tip.root.next_segment,
            seq: tip.root.seq,
        },
    };
    let read_g = g.clone();
    let disk = Disk::new(g, move |block| read_block(dev, &read_g, block, "nilfs2 block"));
    Store::open(disk, &origin, data)
}

/// The blocks of data that whole groups of logs behind the checkpoint have, in their order.
///
/// Errors: `Corrupt` for a group that a log of another kind interrupts. `nilfs_do_roll_forward`.
fn salvage(view: &dyn View, tip: &Tip, orphans: Orphans) -> FsResult<Vec<Salvaged>> {
    let g = &tip.g;
    let (mut start, mut seq) = (orphans.start, orphans.seq);
    let mut segment = g.segment_of(start);
    let mut next_segment = 0;
    let (mut out, mut group) = (Vec::new(), None::<Vec<Salvaged>>);
    let mut was_empty = false;
    while segment != tip.last.segment || start <= tip.last.start {
        let mut within = 0;
        match read_log(view, g, start, seq) {
            Err(Stray::Failed(e)) => return Err(e),
            Err(Stray::Bad(_) | Stray::WrongSum(..)) => {}
            Ok(head) => {
                let is_sync = head.has(flag::DATA_SYNC);
                if head.has(flag::SUPER_ROOT) || group.is_some() && !is_sync {
                    let (found, at) = (head.flags.get().into(), g.byte_of(start));
                    let expected = "a log of data only";
                    return Err(FsError::corrupt("nilfs2 log", "ss_flags", at, found, expected));
                }
                was_empty = false;
                within = u64::from(head.nblocks.get());
                next_segment = g.segment_of(head.next.get());
                if group.is_none() && is_sync && head.has(flag::BEGIN) {
                    group = Some(Vec::new());
                }
                if let Some(group) = &mut group {
                    let used = head.summary_blocks(g).min(within).max(1);
                    let bytes: FsResult<Vec<_>> = (start..start + used)
                        .map(|n| read_block(view, g, n, "nilfs2 log"))
                        .collect();
                    let summary = Summary::load(&bytes?.concat(), g, g.byte_of(start))?;
                    group.append(&mut blocks_of(&summary, start + used));
                }
                if head.has(flag::END) {
                    out.append(&mut group.take().unwrap_or_default());
                }
            }
        }
        if start == orphans.end {
            break;
        }
        start += within;
        let (_, end) = g.segment(segment);
        if within > 0 && start + 1 < end {
            continue;
        }
        if was_empty || next_segment >= g.segments {
            break;
        }
        was_empty = true;
        seq = seq.wrapping_add(1);
        segment = next_segment;
        (start, _) = g.segment(segment);
    }
    Ok(out)
}

/// The blocks of data of a log whose first block behind the summary is `place`.
fn blocks_of(summary: &Summary, mut place: u64) -> Vec<Salvaged> {
    let mut out = Vec::new();
    for file in &summary.files {
        for info in &file.data {
            out.push(Salvaged { ino: file.ino, key: info.offset, place });
            place += 1;
        }
        place += file.nodes.len() as u64;
    }
    out
}

/// Both super blocks while they are changed.
struct Supers {
    current: SuperBlock,
    other: Option<SuperBlock>,
    is_second: bool,
}

impl Supers {
    fn of(tip: &Tip) -> Supers {
        let mut current = tip.sb;
        current.state = (current.state.get() | state::VALID).into();
        // One that contradicts the copy that led to the checkpoint would lead nowhere, whatever
        // checkpoint it names.
        let other = tip.other.map(|other| if other.is_copy_of(&tip.sb) { other } else { tip.sb });
        Supers { current, other, is_second: tip.is_second }
    }

    /// The other copy, if there is one, is written from here on. `nilfs_sb_will_flip`.
    fn flip(&mut self) {
        if let Some(other) = self.other {
            let valid = state::VALID;
            self.other = Some(std::mem::replace(&mut self.current, other));
            self.current.state = (self.current.state.get() | valid).into();
            self.is_second = !self.is_second;
        }
    }

    /// The newest checkpoint is that of this log.
    fn point_to(&mut self, log: Option<&Log>, cno: u64, free: u64) {
        if let Some(log) = log {
            self.current.last_pseg = log.start.into();
            self.current.last_seq = log.seq.into();
            self.current.last_cno = cno.into();
        }
        self.current.free_blocks_count = free.into();
    }

    /// Writes what changed; the copies are both written where they name the same checkpoint.
    /// `nilfs_cleanup_super`.
    fn write(&mut self, dev: &Overlay<'_>, now: u64) -> FsResult<()> {
        let second_at = SuperBlock::second_at(dev.len_bytes());
        let place = |is_second| if is_second { second_at } else { SuperBlock::AT };
        self.current.wtime = now.into();
        self.current.sum = self.current.right_sum().unwrap_or(0).into();
        dev.write_at(place(self.is_second), self.current.as_bytes())?;
        dev.barrier();
        if let Some(other) = &mut self.other
            && other.last_cno == self.current.last_cno
        {
            other.state = self.current.state;
            other.wtime = now.into();
            other.sum = other.right_sum().unwrap_or(0).into();
            dev.write_at(place(!self.is_second), other.as_bytes())?;
            dev.barrier();
        }
        Ok(())
    }
}
