//! Where bitmaps and inode tables lie.
//!
//! Picture:    without flex_bg each group starts with [copies | block bitmap | inode bitmap | inode
//!             table]; with it, a flexible group's first group has [copies | block bitmaps of all
//!             its groups | inode bitmaps of all | inode tables of all], around the copies in other
//!             groups.
//! Source:     Linux Documentation/filesystems/ext4/blockgroup.rst; the search order as in
//!             `ext2fs_allocate_group_table` of e2fsprogs 1.47.0.

use crate::disk::Geometry;

use super::options::MkfsError;
use super::space::Space;

/// The places of one group's tables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) inode_table: u64,
}

/// Takes the blocks of all copies and tables. Groups that hold another's tables are pushed to
/// `touched`.
pub(super) fn place(
    g: &Geometry,
    space: &mut Space,
    touched: &mut Touched,
) -> Result<Vec<Places>, MkfsError> {
    for group in (0..g.groups).filter(|n| g.has_super(*n)) {
        space.take(g.group_start(group), g.base_meta_blocks(group).into());
    }
    if g.groups_per_flex > 1 {
        return Flex { g, space, touched }.place();
    }
    (0..g.groups)
        .map(|group| {
            let (from, to) = (g.group_start(group), last_block(g, group));
            let mut take = |blocks: u32| {
                let at =
                    space.find(from, to, blocks.into()).ok_or(MkfsError::NoRoom("inode tables"))?;
                space.take(at, blocks.into());
                Ok(at)
            };
            Ok(Places {
                block_bitmap: take(1)?,
                inode_bitmap: take(1)?,
                inode_table: take(g.itable_blocks)?,
            })
        })
        .collect()
}

/// Groups of which a block is in use beyond the group's own metadata: their bitmaps must be
/// written.
#[derive(Clone, Debug)]
pub(super) struct Touched(Vec<bool>);

impl Touched {
    pub(super) fn new(groups: u32) -> Touched {
        Touched(vec![false; groups as usize])
    }
    pub(super) fn blocks(&mut self, g: &Geometry, start: u64, blocks: u64) {
        let group_of = |b| g.locate_block(b).map_or(0, |(group, _)| group);
        let last = start + blocks.max(1) - 1;
        for group in group_of(start)..=group_of(last) {
            self.0[group as usize] = true;
        }
    }
    pub(super) fn group(&mut self, group: u32) {
        self.0[group as usize] = true;
    }
    pub(super) fn is(&self, group: u32) -> bool {
        self.0[group as usize]
    }
}

fn last_block(g: &Geometry, group: u32) -> u64 {
    g.group_start(group) + u64::from(g.blocks_in_group(group)) - 1
}

struct Flex<'a> {
    g: &'a Geometry,
    space: &'a mut Space,
    touched: &'a mut Touched,
}

impl Flex<'_> {
    fn place(mut self) -> Result<Vec<Places>, MkfsError> {
        let mut all: Vec<Places> = Vec::with_capacity(self.g.groups as usize);
        for group in 0..self.g.groups {
            let before = match all.last() {
                Some(before) if group % self.g.groups_per_flex != 0 => Some(*before),
                _ => None,
            };
            let gap = u64::from(self.gap(group));
            let block_bitmap = self.put(group, before.map(|b| b.block_bitmap + 1), 1)?;
            let after = before.map_or(block_bitmap + gap, |b| b.inode_bitmap + 1);
            let inode_bitmap = self.put(group, Some(after), 1)?;
            let table = self.g.itable_blocks;
            let after = before.map_or(inode_bitmap + gap, |b| b.inode_table + u64::from(table));
            let inode_table = self.put(group, Some(after), table)?;
            all.push(Places { block_bitmap, inode_bitmap, inode_table });
        }
        Ok(all)
    }

    /// Last group of the flexible group that `group` is in.
    fn last_of_flex(&self, group: u32) -> u32 {
        (group | (self.g.groups_per_flex - 1)).min(self.g.groups - 1)
    }

    /// Blocks from the first bitmap of a kind to the first of the next kind. The last flexible
    /// group keeps its bitmaps together, unless it is a single group: then, as mke2fs does, it
    /// leaves room for a full one.
    fn gap(&self, group: u32) -> u32 {
        let last = self.last_of_flex(group);
        let index = last % self.g.groups_per_flex;
        if last == self.g.groups - 1 && index > 0 { index + 1 } else { self.g.groups_per_flex }
    }

    /// Takes `blocks` blocks, near `after` (behind the previous group's table of this kind) if it
    /// can.
    fn put(&mut self, group: u32, after: Option<u64>, blocks: u32) -> Result<u64, MkfsError> {
        let (g, blocks) = (self.g, u64::from(blocks));
        let left = self.last_of_flex(group) - group + 1;
        let room = (u64::from(left) * blocks).min(u64::from(g.blocks_per_group / 4));
        let flex_start = g.group_start(group - group % g.groups_per_flex);
        let end = last_block(g, self.last_of_flex(group));
        let space = &*self.space;
        let at = after
            .filter(|at| *at < g.blocks_count)
            .and_then(|at| space.find(at, at + room, blocks))
            .or_else(|| space.find(flex_start, end, room))
            .or_else(|| space.find(flex_start, end, blocks))
            .or_else(|| space.find(0, end, blocks))
            // What was found may be a start only: `room` is less than a table where groups are
            // small.
            .and_then(|at| {
                if space.is_free(at, blocks) { Some(at) } else { space.find(at, end, blocks) }
            })
            .ok_or(MkfsError::NoRoom("inode tables"))?;
        self.space.take(at, blocks);
        self.touched.blocks(g, at, blocks);
        Ok(at)
    }
}
