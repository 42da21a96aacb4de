//! What blocks of an image hold, for reports: read from the extent tree of the last commit, and
//! from the log behind it, whose blocks no extent tree knows.

use std::collections::BTreeMap;

use wp_base::FsResult;
use wp_medium::View;
use wp_vfs::BlockMap;

use crate::core::{Core, Disk};
use crate::disk::chunk::group;
use crate::disk::extent::{Extent, flag};
use crate::disk::node::{HEADER_BYTES, ITEM_BYTES};
use crate::disk::{Header, Item, Key, Reference, SuperBlock, id, kind, view as view_of, wide};

/// Bytes of a block here: a sector of the format.
const BLOCK: u64 = 4096;

/// A run of blocks that are the same, by its first block.
#[derive(Clone, Copy)]
struct Run {
    blocks: u64,
    class: &'static str,
    /// The inode and its block at the run's start.
    owner: Option<(u64, u64)>,
}

/// Classes of an image's blocks.
pub struct Blocks {
    runs: BTreeMap<u64, Run>,
    /// Chunks on the device by their first block, for what no extent has.
    chunks: BTreeMap<u64, Run>,
    /// Blocks of a tree block.
    node_blocks: u64,
    /// What tree blocks begin with.
    uuid: [u8; 16],
}

fn class_of_tree(tree: u64) -> &'static str {
    match tree {
        id::ROOT_TREE => "root_tree",
        id::EXTENT_TREE => "extent_tree",
        id::CHUNK_TREE => "chunk_tree",
        id::DEV_TREE => "dev_tree",
        id::CSUM_TREE => "csum_tree",
        id::UUID_TREE => "uuid_tree",
        id::FREE_SPACE_TREE => "free_space_tree",
        id::TREE_LOG => "log_tree",
        _ => "fs_tree",
    }
}

/// What a tree block is by its head and first item; `None` if it is none.
fn class_of_head(head: &[u8], uuid: [u8; 16]) -> Option<&'static str> {
    let header: &Header = view_of(head, 0)?;
    if header.fsid != uuid || header.nritems.get() == 0 {
        return None;
    }
    let owner = header.owner.get();
    if owner != id::TREE_LOG || header.level > 0 {
        return Some(class_of_tree(owner));
    }
    // The tree of log trees and a log tree are both of this owner.
    let first: &Item = view_of(head, HEADER_BYTES)?;
    let key = first.key.get();
    let leads_to_logs = key.objectid == id::TREE_LOG && key.kind == kind::ROOT_ITEM;
    Some(if leads_to_logs { "log_root_tree" } else { "log_tree" })
}

impl Blocks {
    /// Reads an image. Errors: those of its trees.
    pub fn read(view: &dyn View) -> FsResult<Blocks> {
        let mut core = Core::open(Disk::of_view(view))?;
        let mut out = Blocks {
            runs: BTreeMap::new(),
            chunks: BTreeMap::new(),
            node_blocks: wide(core.node_bytes()) / BLOCK,
            uuid: core.super_block().tree_uuid(),
        };
        for c in core.chunks().iter() {
            let class = match c.flags & group::KINDS {
                group::DATA => "free_data",
                group::SYSTEM => "free_system",
                _ => "free_metadata",
            };
            for at in &c.places {
                let run = Run { blocks: c.bytes / BLOCK, class, owner: None };
                out.chunks.insert(at / BLOCK, run);
            }
        }
        let size = core.super_block().dev_item.total_bytes.get();
        for at in SuperBlock::copies(size) {
            let run = Run { blocks: 1, class: "superblock", owner: None };
            out.runs.insert(at / BLOCK, run);
        }
        out.add_extents(&mut core)?;
        let blocks = wide(core.node_bytes()) / BLOCK;
        for log in crate::replay::log_blocks(&mut core)? {
            for at in core.chunks().places(log, blocks * BLOCK)? {
                let run = Run { blocks, class: class_of_tree(id::TREE_LOG), owner: None };
                out.runs.insert(at / BLOCK, run);
            }
        }
        Ok(out)
    }

    fn add_extents(&mut self, core: &mut Core<'_>) -> FsResult<()> {
        let node = wide(core.node_bytes());
        let mut from = Key::MIN;
        while let Some((key, bytes)) = core.first(id::EXTENT_TREE, from, Key::MAX)? {
            let Some(next) = key.next() else { break };
            from = next;
            if !matches!(key.kind, kind::EXTENT_ITEM | kind::METADATA_ITEM) {
                continue;
            }
            let extent = Extent::load(key, &bytes, 0)?;
            let who = extent.refs.first().map(|r| r.who);
            let is_data = extent.head.flags.get() & flag::DATA != 0;
            let length = if key.kind == kind::METADATA_ITEM { node } else { key.offset };
            let (class, owner) = match who {
                Some(Reference::Data { objectid, offset, .. }) => {
                    ("data", Some((objectid, offset / BLOCK)))
                }
                Some(Reference::Tree { root }) => (class_of_tree(root), None),
                _ if is_data => ("data", None),
                _ => ("fs_tree", None),
            };
            for at in core.chunks().places(key.objectid, length)? {
                self.runs.insert(at / BLOCK, Run { blocks: length / BLOCK, class, owner });
            }
        }
        Ok(())
    }

    fn find(runs: &BTreeMap<u64, Run>, block: u64) -> Option<(u64, Run)> {
        let (first, run) = runs.range(..=block).next_back()?;
        (block - first < run.blocks).then_some((block - first, *run))
    }
}

impl BlockMap for Blocks {
    fn block_bytes(&self) -> u32 {
        4096
    }

    fn class(&self, block: u64) -> &'static str {
        let found = Blocks::find(&self.runs, block).or_else(|| Blocks::find(&self.chunks, block));
        found.map_or("free", |(_, run)| run.class)
    }

    fn owner(&self, block: u64) -> Option<(u64, u64)> {
        let (within, run) = Blocks::find(&self.runs, block)?;
        run.owner.map(|(ino, first)| (ino, first + within))
    }

    fn written(&self, view: &dyn View, block: u64) -> &'static str {
        let in_use = Blocks::find(&self.runs, block);
        let chunk = Blocks::find(&self.chunks, block);
        match (in_use, chunk) {
            // Nothing but data is written there.
            (None, Some((_, run))) if run.class == "free_data" => "data",
            (None, Some((within, _))) => {
                let mut head = [0u8; HEADER_BYTES + ITEM_BYTES];
                let at = (block - within % self.node_blocks) * BLOCK;
                let read = view.read_at(at, &mut head).is_ok();
                let told = class_of_head(&head, self.uuid).filter(|_| read);
                told.unwrap_or_else(|| self.class(block))
            }
            _ => self.class(block),
        }
    }
}
