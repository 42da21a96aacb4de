//! The super blocks of a commit.

use wp_base::FsResult;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::disk::feature::incompat;
use crate::disk::super_block::flag;
use crate::disk::{RootBackup, SuperBlock, id};
use crate::site;

impl Core<'_> {
    /// The super blocks after the running transaction, for all copies. `update_super_roots`,
    /// `backup_super_roots`, `write_all_supers`.
    pub(super) fn make_supers(&mut self) -> FsResult<Vec<(u64, Vec<u8>)>> {
        let last = self.sb.generation.get();
        let chunk = self.root(id::CHUNK_TREE)?.item;
        let tree = self.root(id::ROOT_TREE)?.item;
        let has_uuid_tree = self.open_root(id::UUID_TREE).is_ok();
        let big = if self.node_bytes() > 4096 { incompat::BIG_METADATA } else { 0 };
        let sb = &mut self.sb;
        sb.chunk_root = chunk.bytenr;
        sb.chunk_root_generation = chunk.generation;
        sb.chunk_root_level = chunk.level;
        sb.root = tree.bytenr;
        sb.generation = tree.generation;
        sb.root_level = tree.level;
        sb.bytes_used = self.space.bytes_used.into();
        if has_uuid_tree {
            sb.uuid_tree_generation = tree.generation;
        }
        sb.incompat_flags = (sb.incompat_flags.get() | big).into();
        sb.flags = (sb.flags.get() | flag::WRITTEN).into();
        if site::COMMIT_ENDS_LOG.on() {
            (sb.log_root, sb.log_root_level) = (0.into(), 0);
        }
        let backup = self.backup()?;
        let slots = &mut self.sb.super_roots;
        let newest = slots.iter().position(|b| b.tree_root_gen.get() == last);
        let next = newest.map_or(0, |n| (n + 1) % slots.len());
        if let Some(slot) = slots.get_mut(next) {
            *slot = backup;
        }
        self.trans.last_super = Some(self.sb.clone());
        Ok(self.copies(&self.sb))
    }

    fn copies(&self, sb: &SuperBlock) -> Vec<(u64, Vec<u8>)> {
        let copy = |at| {
            let mut copy = *sb;
            copy.seal(at);
            (at, copy.as_bytes().to_vec())
        };
        SuperBlock::copies(self.sb.dev_item.total_bytes.get()).map(copy).collect()
    }

    /// The first super block as the last commit wrote it, with a log: the second half of a log's
    /// sync. `btrfs_sync_log`, `write_all_supers` for one copy.
    pub fn super_for_log(&self, log_root: u64, level: u8) -> (u64, Vec<u8>) {
        let mut sb = self.trans.last_super.as_deref().copied().unwrap_or(*self.sb);
        (sb.log_root, sb.log_root_level) = (log_root.into(), level);
        sb.flags = (sb.flags.get() | flag::WRITTEN).into();
        sb.seal(SuperBlock::AT);
        (SuperBlock::AT, sb.as_bytes().to_vec())
    }

    fn backup(&mut self) -> FsResult<RootBackup> {
        let is_replay = std::mem::take(&mut self.trans.is_replay);
        let mut at = |tree| {
            self.load_root(tree)?;
            let root = self.root(tree)?;
            let header = self.node(root.node)?.header();
            Ok::<_, wp_base::FsError>((root.node.into(), header.generation, header.level))
        };
        let (tree_root, tree_root_gen, tree_root_level) = at(id::ROOT_TREE)?;
        let (chunk_root, chunk_root_gen, chunk_root_level) = at(id::CHUNK_TREE)?;
        let (extent_root, extent_root_gen, extent_root_level) = at(id::EXTENT_TREE)?;
        // A mount opens the first tree of files after it has committed what logs had.
        let (fs_root, fs_root_gen, fs_root_level) = match is_replay {
            true => (0.into(), 0.into(), 0),
            false => at(id::FS_TREE)?,
        };
        let (dev_root, dev_root_gen, dev_root_level) = at(id::DEV_TREE)?;
        let (csum_root, csum_root_gen, csum_root_level) = at(id::CSUM_TREE)?;
        let sb = &self.sb;
        Ok(RootBackup {
            tree_root,
            tree_root_gen,
            chunk_root,
            chunk_root_gen,
            extent_root,
            extent_root_gen,
            fs_root,
            fs_root_gen,
            dev_root,
            dev_root_gen,
            csum_root,
            csum_root_gen,
            total_bytes: sb.total_bytes,
            bytes_used: sb.bytes_used,
            num_devices: sb.num_devices,
            unused_64: [0.into(); 4],
            tree_root_level,
            chunk_root_level,
            extent_root_level,
            fs_root_level,
            dev_root_level,
            csum_root_level,
            unused_8: [0; 10],
        })
    }
}
