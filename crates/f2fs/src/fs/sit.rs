//! Which blocks of which segment are in use: the SIT in memory.
//!
//! Source: Linux `fs/f2fs/segment.c` (`update_sit_entry`, `f2fs_flush_sit_entries`).

use std::collections::BTreeSet;

use crate::disk::{Log, SEGMENT_BLOCKS, SitEntry, bits};

use super::counts::Dirty;
use super::mount::F2fs;
use super::space::Space;

/// Bitmaps of a segment, highest bit of a byte first.
#[derive(Clone)]
pub(super) struct Maps {
    /// In use now (`cur_valid_map`).
    pub cur: [u8; 64],
    /// In use at the last checkpoint, or since (`ckpt_valid_map`).
    pub ckpt: [u8; 64],
    /// Known to the device, as far as we know: in use, or never discarded the other way round
    /// (`discard_map`: set means that nothing is to be discarded).
    pub discard: [u8; 64],
}

/// A segment (`struct seg_entry`).
#[derive(Clone)]
pub(super) struct Seg {
    pub valid: u32,
    pub ckpt_valid: u32,
    pub log: Log,
    pub mtime: u64,
    /// `None`: nothing is or was in use.
    pub maps: Option<Box<Maps>>,
}

/// The SIT of a mounted file system.
pub(super) struct Sit {
    pub segs: Vec<Seg>,
    /// Blocks in use by section.
    pub sections: Vec<u32>,
    /// Segments that changed since the last checkpoint.
    pub dirty: BTreeSet<u32>,
    /// Which copy of each SIT block is valid.
    pub versions: Vec<u8>,
    /// Blocks in use in all (`written_valid_blocks`).
    pub written: u64,
    pub min_mtime: u64,
    pub max_mtime: u64,
    /// What a bitmap of discards begins with: the last mount discarded everything.
    pub trimmed: bool,
    /// Holes are filled with data that is newer than the checkpoint ([`Era::ssr_overwrites`]).
    ///
    /// [`Era::ssr_overwrites`]: crate::era::Era::ssr_overwrites
    pub overwrites: bool,
    /// Blocks that could be discarded.
    pub discard_blocks: u64,
}

impl Seg {
    pub fn maps(&mut self, trimmed: bool) -> &mut Maps {
        let discard = [if trimmed { 0xFF } else { 0 }; 64];
        self.maps.get_or_insert_with(|| Box::new(Maps { cur: [0; 64], ckpt: [0; 64], discard }))
    }

    pub fn is_valid(&self, offset: u32) -> bool {
        self.maps.as_ref().is_some_and(|m| bits::test(&m.cur, offset))
    }

    pub fn is_ckpt_valid(&self, offset: u32) -> bool {
        self.maps.as_ref().is_some_and(|m| bits::test(&m.ckpt, offset))
    }

    /// The first place from `from` on that is free, and was at the last checkpoint
    /// (`__next_free_blkoff`); 512 if there is none.
    pub fn next_hole(&self, from: u32) -> u32 {
        let Some(m) = &self.maps else { return from.min(SEGMENT_BLOCKS) };
        let free = |n: &u32| !bits::test(&m.cur, *n) && !bits::test(&m.ckpt, *n);
        (from..SEGMENT_BLOCKS).find(free).unwrap_or(SEGMENT_BLOCKS)
    }

    /// As the SIT on disk has it (`seg_info_to_raw_sit`).
    pub fn raw(&self) -> SitEntry {
        let mut e = SitEntry::default();
        e.set(self.log, self.valid);
        if let Some(m) = &self.maps {
            e.valid_map = m.cur;
        }
        e.mtime = self.mtime.into();
        e
    }
}

impl Space {
    /// Blocks in use of the section of `segment` (`get_valid_blocks`).
    pub fn section_valid(&self, segment: u32) -> u32 {
        self.sit.sections[self.g.section_of(segment) as usize]
    }

    /// Those that were in use at the last checkpoint, or since (`get_ckpt_valid_blocks`).
    pub fn section_ckpt_valid(&self, segment: u32) -> u32 {
        let start = self.g.section_of(segment) * self.g.section_segments;
        (start..start + self.g.section_segments).map(|s| self.seg(s).ckpt_valid).sum()
    }

    pub fn seg(&self, segment: u32) -> &Seg {
        &self.sit.segs[segment as usize]
    }

    pub fn seg_mut(&mut self, segment: u32) -> &mut Seg {
        &mut self.sit.segs[segment as usize]
    }

    /// Notes when a segment was written last (`update_segment_mtime`); with `old`, that a block
    /// came from one written then.
    pub fn touch(&mut self, addr: u32, old: u64) {
        let Some((segment, _)) = self.g.place(addr) else { return };
        let now = self.now;
        let mtime = if old == 0 { now } else { old };
        let se = self.seg_mut(segment);
        let n = u64::from(se.valid);
        se.mtime = match se.mtime {
            0 => mtime,
            t => t.saturating_mul(n).saturating_add(mtime) / (n + 1),
        };
        self.sit.max_mtime = self.sit.max_mtime.max(now);
    }

    /// Takes a block into use, or out of it (`update_sit_entry`). A bit that was so already is left
    /// alone; no then.
    pub fn update(&mut self, addr: u32, to: bool) -> bool {
        let Some((segment, offset)) = self.g.place(addr) else { return true };
        let (trimmed, overwrites) = (self.sit.trimmed, self.sit.overwrites);
        let section = self.g.section_of(segment) as usize;
        let se = &mut self.sit.segs[segment as usize];
        let keeps = se.log.is_node() || !overwrites;
        let maps = se.maps(trimmed);
        if bits::set(&mut maps.cur, offset, to) == to {
            return false;
        }
        let was_ckpt = bits::test(&maps.ckpt, offset);
        if to {
            // Holes must not be filled with what the checkpoint needs, or what is newer than it.
            if keeps {
                bits::set(&mut maps.ckpt, offset, true);
            }
            let known = bits::set(&mut maps.discard, offset, true);
            self.sit.discard_blocks = self.sit.discard_blocks.saturating_sub((!known).into());
            se.ckpt_valid += u32::from(!was_ckpt);
            se.valid += 1;
            self.sit.sections[section] += 1;
            self.sit.written += 1;
        } else {
            let known = bits::set(&mut maps.discard, offset, false);
            self.sit.discard_blocks += u64::from(known);
            se.ckpt_valid -= u32::from(!was_ckpt);
            se.valid -= 1;
            self.sit.sections[section] -= 1;
            self.sit.written -= 1;
        }
        self.sit.dirty.insert(segment);
        true
    }
}

impl F2fs {
    /// A block is not used any more (`f2fs_invalidate_blocks`). `NEW` and `NULL`: nothing happens.
    pub(crate) fn invalidate(&self, addr: u32) {
        let mut space = self.space.borrow_mut();
        space.now = self.mtime();
        space.invalidate(addr);
    }

    /// A block that was given up since the last checkpoint is in use again
    /// (`f2fs_replace_block` with `recover_newaddr`).
    pub(crate) fn revalidate(&self, addr: u32) {
        let mut space = self.space.borrow_mut();
        space.now = self.mtime();
        let Some((segment, _)) = space.g.place(addr) else { return };
        space.touch(addr, 0);
        space.update(addr, true);
        space.segs.emptied.put(segment, false);
        space.locate_dirty(segment);
    }

    /// Did the last checkpoint have the block in use, or is it newer (`f2fs_is_checkpointed_data`)?
    /// Yes for what is no block.
    pub(crate) fn is_checkpointed_data(&self, addr: u32) -> bool {
        let space = self.space.borrow();
        space.g.place(addr).is_none_or(|(s, offset)| space.seg(s).is_ckpt_valid(offset))
    }

    /// Seconds that the file system was mounted, ever (`get_mtime`).
    pub(super) fn mtime(&self) -> u64 {
        self.elapsed_at_mount.get() + self.rt.now().0 / 1_000_000_000 - self.mounted_secs.get()
    }

    /// Are holes of segments filled for want of free ones (`f2fs_need_SSR`)?
    pub(crate) fn need_ssr(&self) -> bool {
        let space = self.space.borrow();
        !space.lfs && u64::from(space.segs.free_sections()) <= self.ssr_limit(&space)
    }

    /// Free sections at which holes are filled.
    pub(super) fn ssr_limit(&self, space: &Space) -> u64 {
        let per = u64::from(self.g.section_blocks());
        let secs = |kind| self.counts.dirty(kind).div_ceil(per);
        secs(Dirty::Nodes)
            + 2 * secs(Dirty::Dents)
            + secs(Dirty::Inodes)
            + u64::from(self.reserved_sections(space)) * 2
    }

    /// Sections set aside for cleaning (`reserved_sections`).
    pub(super) fn reserved_sections(&self, space: &Space) -> u32 {
        self.cp.borrow().head().rsvd_segment_count.get() / space.g.section_segments
    }
}
