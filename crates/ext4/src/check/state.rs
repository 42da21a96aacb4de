//! What the passes share.

use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::FsResult;
use wp_medium::{Sound, View};

use crate::disk::{Checksums, Geometry, GroupDesc, Inode, SuperBlock};

use super::Severity;
use super::base::Base;
use super::bits::Bits;
use super::finding::{Kind, Report};
use super::supers;

/// What pass 1 learns about a directory.
#[derive(Default)]
pub(super) struct Dir {
    /// Blocks by logical number.
    pub blocks: BTreeMap<u32, u64>,
    /// Length in blocks.
    pub len: u32,
    /// Has it a hash tree?
    pub is_indexed: bool,
    /// Seed of its blocks' checksums.
    pub seed: u32,
    /// What its `..` names; 0 if there is none.
    pub dot_dot: u32,
    /// The directory that has a name for it; 0 if none was found.
    pub parent: u32,
}

/// What pass 1 learns about an inode in use.
#[derive(Clone, Copy)]
pub(super) struct Used {
    /// `i_mode`.
    pub mode: u16,
    /// `i_links_count`.
    pub links: u16,
    /// Names found.
    pub names: u32,
    /// A directory with a hash tree.
    pub indexed: bool,
}

/// Everything known so far.
pub(super) struct State<'a> {
    pub view: &'a dyn View,
    pub sound: &'a Sound,
    /// What other images of the set are compared with, as far as it is known for this one.
    pub base: Option<Rc<Base>>,
    pub sb: SuperBlock,
    pub g: Geometry,
    pub sums: Checksums,
    pub groups: Vec<GroupDesc>,
    pub report: Report,
    /// Clusters of super blocks, descriptors, bitmaps and inode tables. Here and below a cluster is
    /// a block without bigalloc.
    pub meta: Bits,
    /// All clusters that something owns.
    pub claimed: Bits,
    pub used: BTreeMap<u32, Used>,
    pub dirs: BTreeMap<u32, Dir>,
    /// Attribute blocks: (users seen, `h_refcount`).
    pub xattr_blocks: BTreeMap<u64, (u32, u32)>,
    /// The orphan file's runs.
    pub orphan_runs: Vec<(u32, u64, u32)>,
    /// Blocks that may still be walked.
    pub budget: u64,
}

impl<'a> State<'a> {
    /// Reads super block and descriptors. `None`: `report` says why nothing more can be checked.
    pub(super) fn open(
        view: &'a dyn View,
        sound: &'a Sound,
        report: &mut Report,
    ) -> FsResult<Option<State<'a>>> {
        let Some((sb, g)) = supers::super_block(view, report)? else { return Ok(None) };
        let sums = Checksums::of(&sb);
        let mut state = State {
            view,
            sound,
            base: Base::find(sound, &sb, &g, &sums),
            sb,
            g,
            sums,
            groups: Vec::new(),
            report: report.clone(),
            meta: Bits::new(g.clusters_of(g.blocks_count)),
            claimed: Bits::new(g.clusters_of(g.blocks_count)),
            used: BTreeMap::new(),
            dirs: BTreeMap::new(),
            xattr_blocks: BTreeMap::new(),
            orphan_runs: Vec::new(),
            budget: 4 * g.blocks_count + 1024,
        };
        supers::descriptors(&mut state);
        Ok(Some(state))
    }

    /// Gives back the findings; if there are none, other images of the set can be compared with
    /// this one.
    pub(super) fn finish(mut self, report: &mut Report) {
        *report = std::mem::replace(&mut self.report, Report::keeping(0));
        if report.findings.is_empty() && report.left_out == 0 && self.budget > 0 {
            Base::keep(self);
        }
    }

    pub(super) fn add(
        &mut self,
        kind: Kind,
        place: String,
        found: impl ToString,
        expected: impl ToString,
    ) {
        self.report.add(kind, place, found, expected);
    }

    pub(super) fn harmless(
        &mut self,
        kind: Kind,
        place: String,
        found: impl ToString,
        expected: impl ToString,
    ) {
        self.report.add_as(Severity::Harmless, kind, place, found, expected);
    }

    /// First cluster of `blocks` blocks from `start` on, and how many they are in.
    pub(super) fn clusters(&self, start: u64, blocks: u64) -> (u64, u64) {
        let bits = self.g.cluster_bits;
        let last = start.saturating_add(blocks.max(1) - 1) >> bits;
        (start >> bits, if blocks == 0 { 0 } else { last - (start >> bits) + 1 })
    }

    /// First cluster of a group, and how many it has.
    pub(super) fn group_clusters(&self, group: u32) -> (u64, u32) {
        let start = self.g.group_start(group) >> self.g.cluster_bits;
        (start, self.g.clusters_in_group(group))
    }

    /// Are `blocks` blocks from `start` on the same in all images of the set?
    pub(super) fn is_fixed(&self, start: u64, blocks: u64) -> bool {
        let bs = u64::from(self.g.block_size.bytes());
        let range = start.checked_mul(bs).zip(blocks.checked_mul(bs));
        range.is_some_and(|(at, bytes)| self.view.is_fixed(at, bytes))
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.g.block_size.bytes() as usize
    }

    /// A block's bytes; a finding if it cannot be read.
    pub(super) fn read(&mut self, block: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0u8; self.block_bytes()];
        let at = block.checked_mul(self.g.block_size.bytes().into())?;
        if block < self.g.blocks_count && self.view.read_at(at, &mut bytes).is_ok() {
            return Some(bytes);
        }
        self.add(Kind::ReadError, format!("block {block}"), "no bytes", "a readable block");
        None
    }

    /// All bytes of an inode.
    pub(super) fn inode(&mut self, ino: u32) -> Option<(Vec<u8>, Inode)> {
        let slot = self.g.inode_slot(ino)?;
        let table = self.groups.get(slot.group as usize)?.inode_table();
        let block = self.read(table + u64::from(slot.table_block))?;
        let raw = block.get(slot.offset as usize..)?.get(..usize::from(self.g.inode_bytes))?;
        Some((raw.to_vec(), Inode::load(raw)?))
    }

    /// Takes `n` from the budget; once it is used up, says so once and answers no.
    pub(super) fn spend(&mut self, n: u64) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget = self.budget.saturating_sub(n);
        if self.budget == 0 {
            let expected = "a plausible number of blocks";
            self.add(Kind::WalkBudget, "block maps".to_owned(), "too many blocks", expected);
        }
        self.budget > 0
    }
}
