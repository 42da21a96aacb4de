//! What a cleaner finds in segments, and which of it is kept.
//!
//! Picture:    segment -> summaries of its logs -> numbers (kept while a checkpoint has them that
//!             stays) and blocks of the DAT (kept while they are the DAT's) -> contents of what is
//!             kept -> [`Cleaning`].
//! Left out:   reads of the device ahead of those that are asked for, as they come through a map of
//!             its memory in Linux.
//! Source:     nilfs-utils 2.2: lib/gc.c (`nilfs_acc_blocks`, `nilfs_vdesc_is_live`,
//!             `nilfs_toss_vdescs`, `nilfs_unify_period`, `nilfs_toss_bdescs`); fs/nilfs2/ioctl.c
//!             (`nilfs_ioctl_move_blocks`).

use std::ops::Range;

use wp_base::event::Flags;
use wp_base::{FsError, FsResult};
use wp_block::Bio;
use wp_medium::Slice;
use wp_medium::join;

use super::Nilfs;
use crate::disk::summary::summary_sum;
use crate::disk::{BlockInfo, DatEntry, Summary, SummaryHead, ino};
use crate::log::{Cleaning, DatBlock, Moved};

/// What may go.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// Recovery may follow logs from this sequence number on.
    pub seq: u64,
    /// Checkpoints from this one on stay, and all that are snapshots.
    pub cno: u64,
    /// Fewest blocks that segments are to give, on average, in blocks of one.
    pub reclaimed: u64,
}

/// What came of looking at segments.
pub(super) enum Found {
    /// Nothing may be freed yet, as all are needed for recovery or in use.
    Protected,
    /// Too little would come of it.
    TooFull(Vec<u64>),
    /// What is to be done.
    Work(Cleaning),
}

/// A block with a number, as a summary names it.
struct Numbered {
    ino: u64,
    cno: u64,
    offset: Option<u64>,
    number: u64,
    block: u64,
}

/// What the summaries of segments name.
#[derive(Default)]
struct Named {
    numbered: Vec<Numbered>,
    dat: Vec<DatBlock>,
}

impl Named {
    fn add(&mut self, summary: &Summary, mut block: u64) {
        for file in &summary.files {
            let data = file.data.iter().map(|b| (b, Some(b.offset)));
            let nodes = file.nodes.iter().map(|b: &BlockInfo| (b, None));
            for (info, offset) in data.chain(nodes) {
                if file.ino == ino::DAT {
                    let (offset, level) = (info.offset, info.level);
                    self.dat.push(DatBlock { block, offset, level });
                } else {
                    let (ino, cno, number) = (file.ino, file.cno, info.virtual_block);
                    self.numbered.push(Numbered { ino, cno, offset, number, block });
                }
                block += 1;
            }
        }
    }
}

/// Is a block needed by a checkpoint that stays? `nilfs_vdesc_is_live`.
fn is_live(of: &Numbered, entry: &DatEntry, limit: u64, snapshots: &[u64]) -> bool {
    let (start, end) = (entry.start.get(), entry.end.get());
    // Of files whose inodes stand in the super root no older version is kept.
    if of.cno == 0 {
        return end == DatEntry::LIVE;
    }
    // Written over within its own checkpoint.
    if end == of.cno {
        return false;
    }
    end == DatEntry::LIVE || end > limit || snapshots.iter().any(|s| start <= *s && *s < end)
}

/// Ranges in order, those that meet made one. `nilfs_unify_period`.
fn unite(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for r in ranges {
        match out.last_mut() {
            Some(last) if r.start <= last.end => last.end = last.end.max(r.end),
            _ => out.push(r),
        }
    }
    out
}

impl Nilfs {
    /// Looks at what lies in segments. Waits: for reads of their summaries, and of what is kept.
    ///
    /// Errors: `Corrupt` for summaries that contradict themselves; `Io`.
    pub(super) async fn examine(&self, segments: &[u64], limits: &Limits) -> FsResult<Found> {
        let mut named = Named::default();
        let mut taken = Vec::new();
        for segment in segments {
            let usage = self.store.borrow_mut().usage(*segment)?;
            if !self.is_reclaimable(*segment, &usage) {
                continue;
            }
            let used = u64::from(usage.nblocks.get());
            // Nothing was written there that counts.
            if used == 0 || self.read_summaries(*segment, used, limits.seq, &mut named).await? {
                taken.push(*segment);
            }
        }
        if taken.is_empty() {
            return Ok(Found::Protected);
        }
        let (mut cleaning, kept) = self.sort_out(named, limits)?;
        self.settle().await?;
        let n = taken.len() as u64;
        let kept_blocks = (kept.len() + cleaning.dat.len()) as u64;
        let reclaimed = (self.g.segment_blocks * n).saturating_sub(kept_blocks);
        if reclaimed < limits.reclaimed.saturating_mul(n) {
            return Ok(Found::TooFull(taken));
        }
        cleaning.segments = taken;
        cleaning.moved = self.read_kept(kept).await?;
        Ok(Found::Work(cleaning))
    }

    /// Reads the summaries of a segment's logs. `false`: it is needed for recovery.
    async fn read_summaries(
        &self,
        segment: u64,
        used: u64,
        protected: u64,
        named: &mut Named,
    ) -> FsResult<bool> {
        let g = &self.g;
        let (mut start, end) = g.segment(segment);
        let used_end = (start + used).min(end);
        while start < used_end {
            let mut bytes = self.read_blocks(start, 1).await?;
            let head = SummaryHead::load(&bytes);
            let blocks = u64::from(head.nblocks.get());
            let wrong = |field, found, expected: &str| {
                Err(FsError::corrupt("nilfs2 log", field, g.byte_of(start), found, expected))
            };
            if head.magic.get() != SummaryHead::MAGIC {
                return wrong("ss_magic", head.magic.get().into(), "the head of a log");
            }
            // A difference below 2^63 says that it is not older, as the kernel compares.
            if head.seq.get().wrapping_sub(protected) < 1 << 63 {
                return Ok(false);
            }
            let summary = head.summary_blocks(g);
            if summary == 0 || blocks < summary || start + blocks > used_end {
                return wrong("ss_nblocks", blocks, "a log within what is used of the segment");
            }
            if summary > 1 {
                bytes.append(&mut self.read_blocks(start + 1, summary - 1).await?);
            }
            let sum = summary_sum(g.crc_seed, &bytes, head.sumbytes.get().into());
            if head.sumsum.get() != sum {
                return wrong("ss_sumsum", head.sumsum.get().into(), "the summary's checksum");
            }
            named.add(&Summary::load(&bytes, g, g.byte_of(start))?, start + summary);
            start += blocks;
        }
        Ok(true)
    }

    /// What is kept and what goes. `nilfs_toss_vdescs`, `nilfs_toss_bdescs`.
    fn sort_out(&self, named: Named, limits: &Limits) -> FsResult<(Cleaning, Vec<Numbered>)> {
        let mut store = self.store.borrow_mut();
        let snapshots = store.snapshots()?;
        let mut out = Cleaning::default();
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for of in named.numbered {
            let entry = store.dat_entry(of.number)?;
            if is_live(&of, &entry, limits.cno, &snapshots) {
                kept.push(of);
                continue;
            }
            out.dead.push(of.number);
            if of.cno != 0 {
                gone.push(entry.start.get()..entry.end.get());
            }
        }
        out.dead.sort_unstable();
        out.gone = unite(gone);
        kept.sort_by_key(|of| of.block);
        for dat in named.dat {
            if store.dat_block(dat.offset, dat.level)? == Some(dat.block) {
                out.dat.push(dat);
            }
        }
        out.dat.sort_by_key(|d| (d.level, d.offset));
        Ok((out, kept))
    }

    /// Reads what is kept, each block by itself, as the kernel does.
    async fn read_kept(&self, kept: Vec<Numbered>) -> FsResult<Vec<Moved>> {
        let sectors = (self.g.block_bytes() / 512) as u32;
        let sent: Vec<_> = kept
            .iter()
            .map(|of| self.part.send(Bio::read(self.sector(of.block), sectors, Flags::NONE)))
            .collect();
        let mut out = Vec::new();
        let mut result = Ok(());
        for (of, bio) in kept.into_iter().zip(sent) {
            match bio.wait().await {
                Ok(data) => {
                    let contents = join(data).into();
                    let Numbered { ino, cno, offset, number, .. } = of;
                    out.push(Moved { ino, cno, offset, number, contents });
                }
                Err(_) => result = Err(FsError::Io),
            }
        }
        result.map(|()| out)
    }

    async fn read_blocks(&self, block: u64, n: u64) -> FsResult<Vec<u8>> {
        let sectors = (n * (self.g.block_bytes() as u64 / 512)) as u32;
        let bio = Bio::read(self.sector(block), sectors, Flags::NONE);
        let data = self.part.submit_wait(bio).await.map_err(|_| FsError::Io)?;
        Ok(Slice::concat(&data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u64, end: u64) -> DatEntry {
        DatEntry { blocknr: 7.into(), start: start.into(), end: end.into(), rsv: 0.into() }
    }

    #[test]
    fn a_block_lives_as_long_as_a_checkpoint_has_it_that_stays() {
        let of = |cno| Numbered { ino: 12, cno, offset: Some(0), number: 5, block: 99 };
        let cases = [
            // It is the newest version.
            (3, entry(3, DatEntry::LIVE), 9, &[][..], true),
            // Checkpoints 3 to 5 have it; those from 5 on stay.
            (3, entry(3, 6), 5, &[][..], true),
            (3, entry(3, 6), 6, &[][..], false),
            // A snapshot has it, or one before or behind its life.
            (3, entry(3, 6), 9, &[5][..], true),
            (3, entry(3, 6), 9, &[2, 6][..], false),
            // Written over before its checkpoint was made.
            (6, entry(6, 6), 1, &[6][..], false),
            // Of the files of checkpoints and usage the newest version only.
            (0, entry(3, 3), 1, &[3][..], false),
            (0, entry(3, DatEntry::LIVE), 9, &[][..], true),
        ];
        for (cno, entry, limit, snapshots, right) in cases {
            let (start, end) = (entry.start.get(), entry.end.get());
            assert_eq!(is_live(&of(cno), &entry, limit, snapshots), right, "{start}..{end}");
        }
    }

    #[test]
    fn ranges_that_meet_are_one() {
        assert_eq!(unite(vec![5..6, 1..3, 3..4, 2..3, 9..9]), vec![1..4, 5..6, 9..9]);
    }
}
