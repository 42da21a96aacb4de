//! An inode's blocks: extent trees and indirect blocks, every block claimed for its owner.

use crate::disk::Inode;
use crate::disk::extent::{ExtentEntries, ExtentHeader, ExtentNode};
use crate::disk::inode::flag;

use super::finding::Kind;
use super::state::State;

/// What a walk finds.
#[derive(Default)]
pub(super) struct Map {
    /// Blocks of data and of the map itself, all those of their clusters with bigalloc.
    pub blocks: u64,
    /// Last logical block that has a place.
    pub last: Option<u64>,
    /// Last one that is written.
    pub last_written: Option<u64>,
    /// Runs: first logical block, first block, number; only if they were asked for.
    pub runs: Vec<(u32, u64, u32)>,
    /// Is some of it unwritten?
    pub has_unwritten: bool,
    keep_runs: bool,
    complained: bool,
}

struct Walk<'a, 'b> {
    s: &'a mut State<'b>,
    number: u32,
    seed: u32,
    map: Map,
    /// First logical block that the next extent may have.
    next: u64,
    /// Cluster of the last extent's last block: in the file, on the device.
    cluster: Option<(u64, u64)>,
}

/// Walks the map of inode `number`. With `keep_runs` the runs are kept.
pub(super) fn walk(s: &mut State<'_>, number: u32, inode: &Inode, keep_runs: bool) -> Map {
    let seed = s.sums.inode_seed(number, inode.generation.get());
    let map = Map { keep_runs, ..Map::default() };
    let mut walk = Walk { s, number, seed, map, next: 0, cluster: None };
    if inode.has(flag::EXTENTS) {
        match ExtentNode::verify(&inode.block, 0, None) {
            Ok(root) => walk.node(&root, 60),
            Err(c) => walk.wrong(Kind::ExtentNode, c.field, c.found, c.expected),
        }
    } else {
        let mut logical = 0;
        for n in 0..15usize {
            let level = (n as u32 + 1).saturating_sub(Inode::DIRECT_BLOCKS);
            walk.pointer(inode.pointer(n), level, &mut logical);
        }
    }
    walk.map
}

/// Claims a block for `owner`.
pub(super) fn claim(s: &mut State<'_>, owner: &str, block: u64) -> bool {
    if !s.g.holds(block, 1) && block != u64::from(s.g.first_data_block) {
        let expected = "a block of the file system";
        s.add(Kind::BlockRange, owner.to_owned(), block, expected);
        return false;
    }
    let (cluster, _) = s.clusters(block, 1);
    if !s.claimed.add(cluster) {
        let expected = if s.meta.has(cluster) {
            "a block that is not metadata"
        } else {
            "a block with one owner"
        };
        s.add(Kind::BlockTwice, owner.to_owned(), block, expected);
    }
    true
}

impl Walk<'_, '_> {
    fn wrong(&mut self, kind: Kind, field: &str, found: u64, expected: impl ToString) {
        let place = format!("inode {}, {field}", self.number);
        self.s.add(kind, place, found, expected);
    }

    /// Claims a run, but for its first cluster if that is the one where the last run ended; is it
    /// on the device, and was none of it claimed before? One finding an inode about blocks claimed
    /// twice is enough.
    fn claim(&mut self, start: u64, blocks: u32, goes_on: bool) -> bool {
        if !self.s.spend(u64::from(blocks) + 1) {
            return false;
        }
        if !self.s.g.holds(start, blocks.into()) {
            self.wrong(Kind::BlockRange, "block", start, "blocks of the file system");
            return false;
        }
        let (first, n) = self.s.clusters(start, blocks.into());
        let skip = u64::from(goes_on);
        let twice = self.s.claimed.add_run(first + skip, n.saturating_sub(skip));
        if let (Some(cluster), false) = (twice, self.map.complained) {
            self.map.complained = true;
            let meta = self.s.meta.has(cluster);
            let b = cluster << self.s.g.cluster_bits;
            let expected =
                if meta { "a block that is not metadata" } else { "a block with one owner" };
            self.wrong(Kind::BlockTwice, "block", b, expected);
        }
        twice.is_none()
    }

    fn run(&mut self, logical: u64, start: u64, blocks: u32, is_unwritten: bool) {
        let last = logical + u64::from(blocks) - 1;
        let bits = self.s.g.cluster_bits;
        let (_, clusters) = self.s.clusters(start, blocks.into());
        let goes_on = bits > 0 && self.cluster == Some((logical >> bits, start >> bits));
        self.map.blocks += (clusters - u64::from(goes_on)) << bits;
        self.cluster = Some((last >> bits, start.saturating_add(last - logical) >> bits));
        if (logical ^ start).trailing_zeros() < bits {
            let expected = "a block as far into its cluster as the file's block (bigalloc)";
            self.wrong(Kind::BlockRange, "block", start, expected);
        }
        self.map.last = self.map.last.max(Some(last));
        self.map.has_unwritten |= is_unwritten;
        if !is_unwritten {
            self.map.last_written = self.map.last_written.max(Some(last));
        }
        if self.map.keep_runs && self.s.budget > 0 {
            self.map.runs.push((logical as u32, start, blocks));
        }
        self.claim(start, blocks, goes_on);
    }

    fn node(&mut self, node: &ExtentNode<'_>, bytes: usize) {
        let room = (bytes - 12) / ExtentNode::ENTRY_BYTES;
        let max = usize::from(node.header().entries_max.get());
        if max + 2 < room {
            self.wrong(Kind::ExtentNode, "eh_max", max as u64, room);
        }
        match node.entries() {
            ExtentEntries::Leaf(leaf) => {
                for e in leaf {
                    if u64::from(e.logical()) < self.next {
                        let expected = format!("{} or more", self.next);
                        self.wrong(Kind::ExtentOrder, "ee_block", e.logical().into(), expected);
                    }
                    self.next = self.next.max(e.end());
                    self.run(e.logical().into(), e.start(), e.blocks(), e.is_unwritten());
                }
            }
            ExtentEntries::Inner(inner) => {
                let depth = node.header().depth.get() - 1;
                for e in inner {
                    if self.s.budget == 0 {
                        return;
                    }
                    self.child(e.leaf(), e.logical(), depth);
                }
            }
        }
    }

    fn child(&mut self, block: u64, logical: u32, depth: u16) {
        self.map.blocks += u64::from(self.s.g.cluster_blocks());
        // A node is walked once, whatever points to it: so the walk ends.
        if !self.claim(block, 1, false) {
            return;
        }
        let Some(mut bytes) = self.s.read(block) else { return };
        if !self.s.sums.extent_block_ok(self.seed, &bytes) {
            self.wrong(Kind::ExtentChecksum, "et_checksum", block, "a correct checksum");
        }
        if let Err(c) = ExtentNode::verify(&bytes, 0, Some(depth))
            && c.field == "eh_depth"
        {
            self.wrong(Kind::ExtentNode, c.field, c.found, c.expected);
            // What is left of it is read as what the parent says.
            let at = std::mem::offset_of!(ExtentHeader, depth);
            bytes.iter_mut().skip(at).zip(depth.to_le_bytes()).for_each(|(to, b)| *to = b);
        }
        let child = match ExtentNode::verify(&bytes, 0, Some(depth)) {
            Ok(child) => child,
            Err(c) => return self.wrong(Kind::ExtentNode, c.field, c.found, c.expected),
        };
        let first = match child.entries() {
            ExtentEntries::Leaf(l) => l.first().map(|e| e.logical()),
            ExtentEntries::Inner(i) => i.first().map(|e| e.logical()),
        };
        match first {
            Some(f) if f == logical => {}
            // Linux leaves no empty node behind the root.
            None => self.wrong(Kind::ExtentNode, "eh_entries", 0, "1 or more"),
            Some(f) => {
                let expected = format!("{f}, where the child starts");
                self.wrong(Kind::ExtentOrder, "ei_block", logical.into(), expected);
            }
        }
        self.node(&child, bytes.len());
    }

    fn pointer(&mut self, to: u32, level: u32, logical: &mut u64) {
        let per_block = self.s.block_bytes() as u64 / 4;
        let span = per_block.pow(level);
        if to == 0 || self.s.budget == 0 {
            *logical += span;
            return;
        }
        if level == 0 {
            self.run(*logical, to.into(), 1, false);
            *logical += 1;
            return;
        }
        self.map.blocks += u64::from(self.s.g.cluster_blocks());
        if !self.claim(to.into(), 1, false) {
            *logical += span;
            return;
        }
        let Some(bytes) = self.s.read(to.into()) else { return };
        let (pointers, _) = bytes.as_chunks::<4>();
        for p in pointers {
            self.pointer(u32::from_le_bytes(*p), level - 1, logical);
        }
    }
}
