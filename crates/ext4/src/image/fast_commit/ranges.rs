//! Ranges of blocks in a file's map, and the tree that is made of it.

use wp_base::{FsError, FsResult};
use zerocopy::IntoBytes;

use crate::disk::inode::flag;
use crate::disk::{Extent, ExtentHeader, ExtentIdx, ExtentNode};

use super::super::Run;
use super::Replay;

/// Extents and index entries that fit in an inode.
const IN_INODE: usize = 4;

/// Blocks that the tree of `extents` extents has besides its root.
pub(super) fn nodes(extents: usize, per_node: usize) -> usize {
    let (mut level, mut all) = (extents, 0);
    while level > IN_INODE {
        level = level.div_ceil(per_node);
        all += level;
    }
    all
}

/// The extents of which a map consists.
pub(super) fn extents(runs: &[Run]) -> impl Iterator<Item = Extent> + '_ {
    runs.iter().flat_map(|r| {
        let most = u32::from(Extent::LEN_MAX) - u32::from(r.is_unwritten);
        (0..r.blocks.div_ceil(most)).map(move |n| {
            let done = n * most;
            let blocks = (r.blocks - done).min(most);
            Extent::new(r.logical + done, r.start + u64::from(done), blocks, r.is_unwritten)
        })
    })
}

/// Takes logical blocks `from..to` out of `runs`; returns what was there.
pub(super) fn cut(runs: &mut Vec<Run>, from: u64, to: u64) -> Vec<Run> {
    let first = runs.partition_point(|r| r.end() <= from);
    let mut last = first;
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for r in runs.iter().skip(first).take_while(|r| u64::from(r.logical) < to) {
        last += 1;
        let start = u64::from(r.logical);
        // Before, in and behind what is cut: each a part of the run, or nothing.
        let part = |a: u64, b: u64| {
            let (a, b) = (a.max(start), b.min(r.end()));
            let blocks = u32::try_from(b.checked_sub(a)?).ok().filter(|n| *n > 0)?;
            let logical = u32::try_from(a).ok()?;
            Some(Run { logical, start: r.start + (a - start), blocks, ..*r })
        };
        kept.extend(part(0, from));
        gone.extend(part(from, to));
        kept.extend(part(to, u64::MAX));
    }
    runs.splice(first..last, kept);
    gone
}

/// Puts a run where there is a hole, and joins it with its neighbours.
pub(super) fn put(runs: &mut Vec<Run>, run: Run) {
    let at = runs.partition_point(|r| r.end() <= u64::from(run.logical));
    runs.insert(at, run);
    for n in [at + 1, at] {
        let Some([a, b]) = n.checked_sub(1).and_then(|p| runs.get_mut(p..=n)) else { continue };
        let joins = a.end() == u64::from(b.logical)
            && a.start + u64::from(a.blocks) == b.start
            && a.is_unwritten == b.is_unwritten;
        if let (true, Some(blocks)) = (joins, a.blocks.checked_add(b.blocks)) {
            a.blocks = blocks;
            runs.remove(n);
        }
    }
}

impl Replay<'_> {
    /// A file has these blocks. Source: `ext4_fc_replay_add_range`.
    pub(super) fn add_range(&mut self, ino: u32, extent: &Extent) -> FsResult<()> {
        if !self.hold(ino)? {
            return Ok(());
        }
        self.modified.insert(ino);
        let blocks = extent.blocks();
        let (start, is_unwritten) = (extent.start(), extent.is_unwritten());
        let from = u64::from(extent.logical());
        if extent.end() > u64::from(u32::MAX) {
            let expected = "a run that ends before logical block 2^32";
            return Err(FsError::corrupt("ext4 fast commit", "ee_len", 0, from, expected));
        }
        let runs = &mut self.map_mut(ino)?.runs;
        if blocks == 0 {
            return Ok(());
        }
        let old = cut(runs, from, extent.end());
        // What is cut out of extents makes more of them before any are merged.
        let pieces = if old.is_empty() { 0 } else { extents(runs).count() + 1 };
        put(runs, Run { logical: extent.logical(), start, blocks, is_unwritten });
        let at_home = |r: &Run| r.start == start + (u64::from(r.logical) - from);
        self.resize(ino, pieces, old.iter().any(at_home))?;
        for r in old {
            // Elsewhere before: its old blocks are free, unless a modified inode still has them.
            if !at_home(&r) {
                self.editor.mark_blocks(r.start, r.blocks.into(), false);
            }
        }
        Ok(())
    }

    /// A file has no blocks there. Source: `ext4_fc_replay_del_range`.
    pub(super) fn del_range(&mut self, ino: u32, logical: u32, blocks: u32) -> FsResult<()> {
        if !self.hold(ino)? {
            return Ok(());
        }
        self.modified.insert(ino);
        let from = u64::from(logical);
        let gone = cut(&mut self.map_mut(ino)?.runs, from, from + u64::from(blocks));
        self.resize(ino, 0, false)?;
        for r in gone {
            self.editor.mark_blocks(r.start, r.blocks.into(), false);
        }
        Ok(())
    }

    /// Follows the height of the tree: it grows when the inode no longer holds the extents, of
    /// which there were `pieces` for a moment, and is merged back only by a look at all extents
    /// below the size, or, if it `is_merged`, at others.
    ///
    /// Source: `ext4_ext_replay_shrink_inode`, `ext4_ext_try_to_merge_up`.
    fn resize(&mut self, ino: u32, pieces: usize, is_merged: bool) -> FsResult<()> {
        let bs = self.editor.image().block_bytes() as u64;
        let now = extents(&self.map(ino)?.runs).count();
        let held = self.held(ino)?;
        held.is_tall |= pieces.max(now) > IN_INODE;
        let is_looked_at = is_merged || held.record.inode.size() >= bs;
        if now == 0 || (is_looked_at && now <= IN_INODE) {
            held.is_tall = false;
        }
        Ok(())
    }

    /// Extents that fit in a block.
    pub(super) fn extents_per_node(&self) -> usize {
        let header = ExtentHeader::empty(self.editor.image().block_bytes(), 0);
        usize::from(header.entries_max.get())
    }

    /// Makes the tree of a changed map: packed, its old blocks used again.
    pub(super) fn write_tree(&mut self, ino: u32) -> FsResult<()> {
        let per_node = self.extents_per_node();
        let bytes = self.editor.image().block_bytes();
        let held = self.inodes.get(&ino).ok_or(FsError::Io)?;
        let seed = self.editor.image().seed_of(&held.record);
        let goal = self.goal(ino, 0)?;
        let map = self.map(ino)?;
        let mut entries: Vec<(u32, [u8; ExtentNode::ENTRY_BYTES])> =
            extents(&map.runs).map(|e| (e.logical(), as_slot(e.as_bytes()))).collect();
        let mut old = map.nodes.clone().into_iter();
        let mut used = Vec::new();
        let mut depth = 0u16;
        let is_tall = self.held(ino)?.is_tall;
        while entries.len() > IN_INODE || (is_tall && depth == 0 && !entries.is_empty()) {
            let mut above = Vec::new();
            for part in entries.chunks(per_node) {
                let block = match old.next() {
                    Some(block) => block,
                    None => self.new_block(goal)?,
                };
                let mut node = vec![0; bytes];
                fill(&mut node, depth, part);
                self.editor.image().checksums().seal_extent_block(seed, &mut node);
                self.editor.write_block(block, &node)?;
                used.push(block);
                let logical = part.first().map_or(0, |(logical, _)| *logical);
                above.push((logical, as_slot(ExtentIdx::new(logical, block).as_bytes())));
            }
            entries = above;
            depth += 1;
        }
        for block in old {
            self.editor.mark_blocks(block, 1, false);
        }
        let held = self.held(ino)?;
        let root = &mut held.record.inode.block;
        root.fill(0);
        fill(root, depth, &entries);
        held.record.inode.flags = (held.record.inode.flags.get() | flag::EXTENTS).into();
        if let Some(map) = &mut held.map {
            map.nodes = used;
        }
        held.is_remapped = false;
        Ok(())
    }

    /// Where a new block of a file had best lie. Source: `ext4_ext_find_goal`.
    pub(super) fn goal(&mut self, ino: u32, logical: u64) -> FsResult<u64> {
        let geometry = *self.editor.image().geometry();
        let map = self.map(ino)?;
        let near = map.runs.partition_point(|r| u64::from(r.logical) <= logical);
        if let Some(r) = near.checked_sub(1).and_then(|n| map.runs.get(n)) {
            return Ok(r.start.saturating_add(logical - u64::from(r.logical)));
        }
        if let Some(r) = map.runs.first() {
            return Ok(r.start.saturating_sub(u64::from(r.logical) - logical));
        }
        // `ext4_inode_to_goal_block`: the first group of the inode's flex group, the second one for
        // files.
        let mut group = geometry.inode_slot(ino).map_or(0, |slot| slot.group);
        let flex = geometry.groups_per_flex;
        if flex >= 4 {
            group -= group % flex;
            group += u32::from(self.held(ino)?.record.inode.is_file());
        }
        Ok(geometry.group_start(group))
    }
}

fn as_slot(bytes: &[u8]) -> [u8; ExtentNode::ENTRY_BYTES] {
    bytes.first_chunk().copied().unwrap_or_default()
}

/// Writes header and entries of a node, which has room for them.
fn fill(node: &mut [u8], depth: u16, entries: &[(u32, [u8; ExtentNode::ENTRY_BYTES])]) {
    let mut header = ExtentHeader::empty(node.len(), depth);
    header.entries = u16::try_from(entries.len()).unwrap_or(0).into();
    let slots = entries.iter().flat_map(|(_, slot)| slot);
    let all = header.as_bytes().iter().chain(slots);
    node.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that indexes wrongly fails")]
mod tests {
    use super::*;

    fn run(logical: u32, start: u64, blocks: u32) -> Run {
        Run { logical, start, blocks, is_unwritten: false }
    }

    #[test]
    fn runs_are_cut_and_joined_as_single_blocks_would_be() {
        // Against an array of one entry a logical block.
        let mut rng = wp_base::Rng::stream(3, "ranges");
        for _ in 0..300 {
            let mut runs = Vec::new();
            let mut model = [None; 64];
            for _ in 0..30 {
                let from = rng.below(60);
                let blocks = 1 + rng.below(64 - from).min(9);
                let mut gone = cut(&mut runs, from, from + blocks);
                let was: Vec<Option<u64>> =
                    (from..from + blocks).map(|n| model[n as usize].take()).collect();
                let mut said = vec![None; blocks as usize];
                for r in gone.drain(..) {
                    for n in 0..u64::from(r.blocks) {
                        said[(u64::from(r.logical) - from + n) as usize] = Some(r.start + n);
                    }
                }
                assert_eq!(said, was);
                if rng.below(3) > 0 {
                    let start = 1000 + rng.below(4) * 64 + from;
                    put(&mut runs, run(from as u32, start, blocks as u32));
                    (0..blocks).for_each(|n| model[(from + n) as usize] = Some(start + n));
                }
                let mut now = [None; 64];
                for r in &runs {
                    for n in 0..r.blocks {
                        assert!(now[(r.logical + n) as usize].is_none());
                        now[(r.logical + n) as usize] = Some(r.start + u64::from(n));
                    }
                }
                assert_eq!(now, model);
                let joined = runs.windows(2).all(|w| {
                    w[0].end() < w[1].logical.into()
                        || w[0].start + u64::from(w[0].blocks) != w[1].start
                });
                assert!(joined, "{runs:?}");
            }
        }
    }

    #[test]
    fn a_tree_has_the_blocks_that_its_extents_need() {
        assert_eq!([0, 4, 5, 340, 341].map(|n| nodes(n, 340)), [0, 0, 1, 1, 2]);
        assert_eq!(nodes(5 * 340, 340), 5 + 1);
    }

    #[test]
    fn a_long_run_becomes_extents_that_hold_it() {
        let unwritten = Run { is_unwritten: true, ..run(10, 100, 70_000) };
        let found: Vec<(u32, u64, u32)> =
            extents(&[unwritten]).map(|e| (e.logical(), e.start(), e.blocks())).collect();
        assert_eq!(found, [(10, 100, 32_767), (32_777, 32_867, 32_767), (65_544, 65_634, 4_466)]);
    }
}
