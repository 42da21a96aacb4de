//! From logical blocks to device blocks: extent trees, and indirect blocks of older files.

use std::collections::BTreeSet;

use wp_base::{Corruption, FsError, FsResult};

use crate::disk::extent::ExtentEntries;
use crate::disk::inode::flag;
use crate::disk::{Extent, ExtentNode, Inode};

use super::{Image, InodeRecord};

/// A run of blocks of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First logical block.
    pub logical: u32,
    /// First block on the device.
    pub start: u64,
    /// Blocks in it.
    pub blocks: u32,
    /// Allocated, but reads as zeroes.
    pub is_unwritten: bool,
}

impl Run {
    /// First logical block behind it.
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.blocks)
    }
}

/// Where a file's blocks lie.
///
/// Invariants: runs ascend by logical block and do not overlap; every block is one that the device
///             has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileMap {
    /// The runs; gaps between them are holes.
    pub runs: Vec<Run>,
    /// Blocks of the map itself: extent nodes or indirect blocks.
    pub nodes: Vec<u64>,
}

impl FileMap {
    /// The run that holds logical block `logical`.
    pub fn find(&self, logical: u32) -> Option<&Run> {
        let after = self.runs.partition_point(|r| r.logical <= logical);
        let run = self.runs.get(after.checked_sub(1)?)?;
        (u64::from(logical) < run.end()).then_some(run)
    }

    /// Device block of logical block `logical`; `None` in a hole or an unwritten run.
    pub fn block(&self, logical: u32) -> Option<u64> {
        let run = self.find(logical).filter(|r| !r.is_unwritten)?;
        Some(run.start + u64::from(logical - run.logical))
    }

    fn push(&mut self, run: Run) {
        if let Some(last) = self.runs.last_mut()
            && last.end() == u64::from(run.logical)
            && last.start + u64::from(last.blocks) == run.start
            && last.is_unwritten == run.is_unwritten
            && let Some(blocks) = last.blocks.checked_add(run.blocks)
        {
            last.blocks = blocks;
        } else {
            self.runs.push(run);
        }
    }
}

impl Image<'_> {
    /// Where the blocks of an inode lie. Empty for one whose `i_block` maps nothing (short symbolic
    /// links, inline data, devices).
    ///
    /// Errors: `Corrupt` for a tree that is not one, a block beyond the device, a node used twice.
    pub fn map(&self, record: &InodeRecord) -> FsResult<FileMap> {
        let mut walk = Walk { image: self, record, map: FileMap::default(), seen: BTreeSet::new() };
        if record.has_map(self.block_size().sectors()) {
            if record.inode.has(flag::EXTENTS) {
                walk.extents()?;
            } else {
                walk.pointers()?;
            }
        }
        Ok(walk.map)
    }
}

struct Walk<'a> {
    image: &'a Image<'a>,
    record: &'a InodeRecord,
    map: FileMap,
    /// Nodes seen: a tree never visits one twice, so the walk ends.
    seen: BTreeSet<u64>,
}

/// Where `i_block` stands in an inode.
const BLOCK_AT: u64 = 0x28;

impl Walk<'_> {
    fn wrong(
        &self,
        structure: &'static str,
        field: &'static str,
        at: u64,
        found: u64,
        expected: &str,
    ) -> FsError {
        let expected = format!("{expected} (inode {})", self.record.number);
        FsError::Corrupt(Box::new(Corruption { structure, field, at, found, expected }))
    }

    fn node_block(&mut self, block: u64, structure: &'static str, at: u64) -> FsResult<Vec<u8>> {
        if !self.image.g.holds(block, 1) {
            return Err(self.wrong(structure, "block", at, block, "a block of the device"));
        }
        if !self.seen.insert(block) {
            return Err(self.wrong(
                structure,
                "block",
                at,
                block,
                "a block that is in the tree once",
            ));
        }
        self.map.nodes.push(block);
        self.image.read_block(block, structure)
    }

    fn extents(&mut self) -> FsResult<()> {
        let at = self.record.at + BLOCK_AT;
        let record = self.record;
        let root = ExtentNode::verify(&record.inode.block, at, None)?;
        self.extent_node(&root, at, 0, u64::from(u32::MAX))
    }

    /// Walks a node that covers logical blocks `from..to`.
    fn extent_node(&mut self, node: &ExtentNode<'_>, at: u64, from: u64, to: u64) -> FsResult<()> {
        match node.entries() {
            ExtentEntries::Leaf(leaf) => {
                for e in leaf {
                    if u64::from(e.logical()) < from || e.end() > to {
                        let found = e.logical().into();
                        return Err(self.wrong(
                            "ext4 extent",
                            "ee_block",
                            at,
                            found,
                            "a block that the node covers",
                        ));
                    }
                    self.extent(e, at)?;
                }
            }
            ExtentEntries::Inner(inner) => {
                let depth = node.header().depth.get() - 1;
                for (n, e) in inner.iter().enumerate() {
                    let start = u64::from(e.logical());
                    let end = inner.get(n + 1).map_or(to, |next| next.logical().into());
                    if start < from || end > to {
                        return Err(self.wrong(
                            "ext4 extent index",
                            "ei_block",
                            at,
                            start,
                            "a block that the node covers",
                        ));
                    }
                    let bytes = self.node_block(e.leaf(), "ext4 extent index", at)?;
                    let child_at = self.image.byte_of(e.leaf());
                    let child = ExtentNode::verify(&bytes, child_at, Some(depth))?;
                    if !self.image.sums.extent_block_ok(self.image.seed_of(self.record), &bytes) {
                        return Err(self.wrong(
                            "ext4 extent node",
                            "et_checksum",
                            child_at,
                            0,
                            "the right checksum",
                        ));
                    }
                    self.extent_node(&child, child_at, start, end)?;
                }
            }
        }
        Ok(())
    }

    fn extent(&mut self, e: &Extent, at: u64) -> FsResult<()> {
        if !self.image.g.holds(e.start(), e.blocks().into()) {
            return Err(self.wrong(
                "ext4 extent",
                "ee_start",
                at,
                e.start(),
                "blocks of the device",
            ));
        }
        self.map.push(Run {
            logical: e.logical(),
            start: e.start(),
            blocks: e.blocks(),
            is_unwritten: e.is_unwritten(),
        });
        Ok(())
    }

    fn pointers(&mut self) -> FsResult<()> {
        let at = self.record.at + BLOCK_AT;
        let mut logical = 0u64;
        for n in 0..15usize {
            let pointer = self.record.inode.pointer(n);
            let level = (n as u32 + 1).saturating_sub(Inode::DIRECT_BLOCKS);
            self.pointer(pointer, level, &mut logical, at)?;
        }
        Ok(())
    }

    /// Walks what pointer `to` reaches through `level` indirect blocks; `logical` is where it
    /// starts, and is moved behind it.
    fn pointer(&mut self, to: u32, level: u32, logical: &mut u64, at: u64) -> FsResult<()> {
        let per_block = self.image.block_bytes() as u64 / 4;
        let span = per_block.pow(level);
        if to == 0 {
            *logical += span;
            return Ok(());
        }
        if level == 0 {
            if !self.image.g.holds(to.into(), 1) {
                return Err(self.wrong(
                    "ext4 block pointer",
                    "block",
                    at,
                    to.into(),
                    "a block of the device",
                ));
            }
            let Ok(n) = u32::try_from(*logical) else {
                return Err(self.wrong(
                    "ext4 block pointer",
                    "logical block",
                    at,
                    *logical,
                    "less than 2^32",
                ));
            };
            self.map.push(Run { logical: n, start: to.into(), blocks: 1, is_unwritten: false });
            *logical += 1;
            return Ok(());
        }
        let bytes = self.node_block(to.into(), "ext4 indirect block", at)?;
        let at = self.image.byte_of(to.into());
        let (pointers, _) = bytes.as_chunks::<4>();
        for p in pointers {
            self.pointer(u32::from_le_bytes(*p), level - 1, logical, at)?;
        }
        Ok(())
    }
}
