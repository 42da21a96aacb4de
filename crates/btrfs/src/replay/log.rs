//! Log trees, read as a whole.

use std::collections::BTreeMap;

use wp_base::FsResult;

use crate::core::Core;
use crate::disk::dir::{self, name_hash};
use crate::disk::inode::{self, extref_hash};
use crate::disk::node::Expected;
use crate::disk::{DirLogItem, InodeItem, Key, NodeRef, RootItem, id, kind, view, wide};
use crate::site;

use super::broken;

/// The items and blocks of a tree.
#[derive(Default)]
struct Contents {
    items: BTreeMap<Key, Vec<u8>>,
    blocks: Vec<u64>,
}

impl Contents {
    fn read(core: &mut Core<'_>, root: &Expected) -> FsResult<Contents> {
        let mut out = Contents::default();
        out.walk(core, root, None)?;
        Ok(out)
    }

    /// `end`: all keys below are less than this, so that no block is seen twice.
    fn walk(&mut self, core: &mut Core<'_>, block: &Expected, end: Option<Key>) -> FsResult<()> {
        core.read_block(block)?;
        let bytes = core.bytes_of(block.bytenr)?;
        core.forget_block(block.bytenr);
        self.blocks.push(block.bytenr);
        let node = NodeRef::trusted(&bytes);
        let n = node.len();
        let owner = node.header().owner.get();
        if owner != id::TREE_LOG {
            return Err(broken("owner", owner, format!("{:#x}", id::TREE_LOG)));
        }
        if let (Some(end), Some(last)) = (end, n.checked_sub(1).and_then(|i| node.key(i)))
            && last >= end
        {
            return Err(broken("last key", last.objectid, format!("below {end}, not {last}")));
        }
        let Some(below) = node.level().checked_sub(1) else {
            self.items.extend(node.items().map(|(key, item)| (key, item.to_vec())));
            return Ok(());
        };
        for slot in 0..n {
            let Some(ptr) = node.ptr(slot) else { break };
            let child = Expected {
                bytenr: ptr.blockptr.get(),
                generation: Some(ptr.generation.get()),
                level: Some(below),
                first_key: Some(ptr.key.get()),
                owner: Some(id::TREE_LOG),
            };
            self.walk(core, &child, node.key(slot + 1).or(end))?;
        }
        Ok(())
    }
}

fn pin(core: &mut Core<'_>, blocks: &[u64]) -> FsResult<u64> {
    let bytes = wide(core.node_bytes());
    for block in blocks.iter().filter(|_| site::REPLAY_PIN.on()) {
        core.take_for_log(*block, bytes, true)?;
    }
    Ok(wide(blocks.len()))
}

/// The log root tree: where the logs of subvolumes are.
pub(super) struct LogRoots {
    /// By subvolume.
    pub all: BTreeMap<u64, RootItem>,
    blocks: Vec<u64>,
}

impl LogRoots {
    /// `generation`: that of the transaction that the log is of. `btrfs_replay_log`.
    pub fn read(core: &mut Core<'_>, generation: u64) -> FsResult<LogRoots> {
        let sb = core.super_block();
        let root = Expected {
            bytenr: sb.log_root.get(),
            generation: Some(generation),
            level: Some(sb.log_root_level),
            first_key: None,
            owner: Some(id::TREE_LOG),
        };
        let Contents { items, blocks } = Contents::read(core, &root)?;
        let mut all = BTreeMap::new();
        for (key, item) in items {
            if key.objectid == id::TREE_LOG {
                if key.kind != kind::ROOT_ITEM {
                    return Err(broken("root item", key.offset, format!("a root item, not {key}")));
                }
                all.insert(key.offset, RootItem::load(&item, 0)?);
            }
        }
        Ok(LogRoots { all, blocks })
    }

    /// Takes its blocks out of the free space; answers how many.
    pub fn pin(&self, core: &mut Core<'_>) -> FsResult<u64> {
        pin(core, &self.blocks)
    }
}

/// Addresses of the blocks of all log trees; none without a log.
///
/// Errors: as those with which a mount fails.
pub(crate) fn blocks(core: &mut Core<'_>) -> FsResult<Vec<u64>> {
    let sb = core.super_block();
    if sb.log_root.get() == 0 {
        return Ok(Vec::new());
    }
    let generation = sb.generation.get().wrapping_add(1);
    let roots = LogRoots::read(core, generation)?;
    let mut all = roots.blocks;
    for (subvolume, item) in &roots.all {
        all.extend(Log::read(core, *subvolume, item)?.blocks);
    }
    Ok(all)
}

/// The log of a subvolume.
pub(super) struct Log {
    /// The subvolume.
    pub subvolume: u64,
    /// Its items.
    pub items: BTreeMap<Key, Vec<u8>>,
    blocks: Vec<u64>,
}

/// The inode that an item is.
pub(super) fn inode_of(item: &[u8], key: Key) -> FsResult<InodeItem> {
    let inode = view::<InodeItem>(item, 0).filter(|_| item.len() == size_of::<InodeItem>());
    inode.copied().ok_or_else(|| broken("inode", wide(item.len()), format!("160 bytes ({key})")))
}

impl Log {
    pub fn read(core: &mut Core<'_>, subvolume: u64, root: &RootItem) -> FsResult<Log> {
        let root = Expected {
            bytenr: root.bytenr.get(),
            generation: Some(root.generation.get()),
            level: Some(root.level),
            first_key: None,
            owner: Some(id::TREE_LOG),
        };
        let Contents { items, blocks } = Contents::read(core, &root)?;
        Ok(Log { subvolume, items, blocks })
    }

    /// Takes its blocks out of the free space; answers how many.
    pub fn pin(&self, core: &mut Core<'_>) -> FsResult<u64> {
        pin(core, &self.blocks)
    }

    fn get(&self, objectid: u64, kind: u8, offset: u64) -> Option<&[u8]> {
        self.items.get(&Key::new(objectid, kind, offset)).map(Vec::as_slice)
    }

    /// Has the log this name of an inode, in an INODE_REF? `backref_in_log`.
    pub fn has_plain_ref(&self, ino: u64, parent: u64, name: &[u8]) -> bool {
        let item = self.get(ino, kind::INODE_REF, parent).unwrap_or(&[]);
        inode::refs(item, parent).map_while(Result::ok).any(|n| n.name == name)
    }

    /// The same in an INODE_EXTREF.
    pub fn has_extref(&self, ino: u64, parent: u64, name: &[u8]) -> bool {
        let item = self.get(ino, kind::INODE_EXTREF, extref_hash(parent, name)).unwrap_or(&[]);
        let mut all = inode::extrefs(item).map_while(Result::ok);
        all.any(|n| n.parent == parent && n.name == name)
    }

    /// The same in either.
    pub fn has_ref(&self, ino: u64, parent: u64, name: &[u8]) -> bool {
        self.has_plain_ref(ino, parent, name) || self.has_extref(ino, parent, name)
    }

    /// Has the log this attribute?
    pub fn has_xattr(&self, ino: u64, name: &[u8]) -> bool {
        let item = self.get(ino, kind::XATTR_ITEM, name_hash(name)).unwrap_or(&[]);
        dir::entries(item).map_while(Result::ok).any(|e| e.name == name)
    }

    /// Has the log this name at this place of a directory?
    pub fn has_index(&self, folder: u64, index: u64, name: &[u8]) -> bool {
        let item = self.get(folder, kind::DIR_INDEX, index).unwrap_or(&[]);
        dir::entries(item).map_while(Result::ok).any(|e| e.name == name)
    }

    /// Places of a directory that the log has all names of: from, and up to. `find_dir_range`.
    pub fn ranges(&self, folder: u64) -> FsResult<Vec<(u64, u64)>> {
        let key = |offset| Key::new(folder, kind::DIR_LOG_INDEX, offset);
        let all = self.items.range(key(0)..=key(u64::MAX));
        all.map(|(key, item)| match view::<DirLogItem>(item, 0) {
            Some(range) => Ok((key.offset, range.end.get())),
            None => Err(broken("directory range", wide(item.len()), "8 bytes")),
        })
        .collect()
    }

    /// Checksums of these addresses that the log has: address and bytes of them.
    pub fn sums(&self, start: u64, end: u64, each: usize) -> Vec<(u64, Vec<u8>)> {
        let key = |offset| Key::new(id::EXTENT_CSUM, kind::EXTENT_CSUM, offset);
        let mut out = Vec::new();
        for (key, item) in self.items.range(key(0)..key(end)) {
            let at =
                |addr: u64| crate::disk::index((addr - key.offset) / 4096).saturating_mul(each);
            let stop = key.offset.saturating_add(wide(item.len() / each) * 4096).min(end);
            let from = start.max(key.offset);
            if from < stop {
                let part = item.get(at(from)..at(stop)).unwrap_or(&[]);
                out.push((from, part.to_vec()));
            }
        }
        out
    }
}
