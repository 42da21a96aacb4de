//! Mount and unmount.
//!
//! Source: fs/btrfs/disk-io.c (`open_ctree`, `close_ctree`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_block::Partition;
use wp_cache::{Mapping, Writeback};
use wp_medium::View;
use wp_rt::{Lock, Rt};

use crate::core::{Core, Disk};
use crate::disk::feature::incompat;
use crate::disk::{RootItem, id, kind};
use crate::replay::{RecoverOptions, replay};

use super::{
    Btrfs, Cleaner, Commits, Endings, Logs, MountOptions, Subvol, Subvolume, TreeWriter, contents,
};

/// The tree of files that is to be mounted. Errors: `NotFound` if there is none, `Invalid` for a
/// path to something that is no subvolume. `get_default_subvol_objectid`, `mount_subvol`.
fn tree_of(core: &mut Core<'_>, which: &Subvolume) -> FsResult<u64> {
    match which {
        Subvolume::Default => {
            let found = core.find_name(id::ROOT_TREE, id::ROOT_TREE_DIR, b"default")?;
            Ok(found.map_or(id::FS_TREE, |f| f.location.objectid))
        }
        Subvolume::Id(0) => Ok(id::FS_TREE),
        Subvolume::Id(n) => Ok(*n),
        Subvolume::Path(path) => {
            let mut tree = id::FS_TREE;
            let mut ino = root_item(core, tree)?.root_dirid.get();
            let mut is_root = true;
            for name in path.split('/').filter(|n| !n.is_empty()) {
                let found = core.find_name(tree, ino, name.as_bytes())?;
                let to = found.ok_or(FsError::NotFound)?.location;
                is_root = to.kind == kind::ROOT_ITEM;
                if is_root {
                    tree = to.objectid;
                    ino = root_item(core, tree)?.root_dirid.get();
                } else {
                    ino = to.objectid;
                }
            }
            if is_root { Ok(tree) } else { Err(FsError::Invalid("subvol: not a subvolume")) }
        }
    }
}

/// The item of a tree of files. Errors: `NotFound` if there is no such tree, or it is being
/// deleted.
pub(super) fn root_item(core: &mut Core<'_>, tree: u64) -> FsResult<RootItem> {
    if !id::is_file_tree(tree) || !core.find_root(tree)? {
        return Err(FsError::NotFound);
    }
    let item = core.root(tree)?.item;
    if item.refs.get() == 0 { Err(FsError::NotFound) } else { Ok(item) }
}

impl Btrfs {
    /// Mounts what lies on `part`: deletes what was to be, starts committer, cleaner and worker.
    ///
    /// What is read at mount takes no time; what the replay of a log changes is written as a
    /// commit.
    /// Errors: `Corrupt`; `Unsupported` for features that cannot be written here.
    pub async fn mount(rt: &Rt, part: Partition, opts: MountOptions) -> FsResult<Rc<Btrfs>> {
        let disk = {
            let part = part.clone();
            let bytes = part.sectors() * wp_base::SECTOR_BYTES;
            Disk::new(bytes, move |at, out| contents(&part).read_at(at, out))
        };
        let mut core = Core::open(disk)?;
        core.check_writable()?;
        if core.super_block().incompat_flags.get() & incompat::NO_HOLES == 0 {
            return Err(FsError::Unsupported("btrfs without feature: NO_HOLES".to_owned()));
        }
        let now = opts.epoch_secs.saturating_add_unsigned(rt.now().secs());
        let options = RecoverOptions {
            era: opts.era,
            now: u64::try_from(now).unwrap_or(0),
            old: opts.old_replay,
            overgrown: opts.overgrown,
        };
        let sb = core.super_block();
        let has_log = sb.log_root.get() != 0;
        let checks_uuids = sb.uuid_tree_generation.get() != sb.generation.get();
        let replayed = if has_log { replay(&mut core, &options)?.subvolumes } else { Vec::new() };
        let tree = tree_of(&mut core, &opts.subvolume)?;
        root_item(&mut core, tree)?;
        let others = [id::EXTENT_TREE, id::CSUM_TREE, id::DEV_TREE, id::FREE_SPACE_TREE];
        core.read_at_mount(&others)?;
        core.read_at_mount(&[id::ROOT_TREE, id::CHUNK_TREE, tree])?;
        if core.find_root(id::UUID_TREE)? {
            core.read_at_mount(&[id::UUID_TREE])?;
        }
        let top = Rc::new(Subvol::open(&mut core, tree)?);
        let next_tree = core.next_ino(id::ROOT_TREE)?;
        let last = core.super_block().generation.get();
        let wb = Writeback::new(rt, part.clone(), opts.writeback.clone());
        let trees = Mapping::new(rt, "btrfs trees", 4096, &wb);
        let fs = Rc::new_cyclic(|me| Btrfs {
            _tree_writer: TreeWriter::new(me, &trees),
            trees,
            me: me.clone(),
            rt: rt.clone(),
            subvols: RefCell::new(BTreeMap::from([(tree, top.clone())])),
            next_tree: Cell::new(next_tree),
            top,
            wb,
            inodes: RefCell::new(BTreeMap::new()),
            data_promised: Cell::new(0),
            commits: Commits::new(rt, last),
            logs: Logs::new(rt, core.chunks().iter().count()),
            endings: Endings::new(rt),
            cleaner: Cleaner::new(rt),
            moves: Lock::new(rt, "btrfs rename", ()),
            is_mounted: Cell::new(true),
            has_failed: Cell::new(false),
            bad_data: RefCell::default(),
            core: RefCell::new(core),
            part,
            opts,
        });
        fs.dir(fs.top.root_dir)?;
        fs.core.borrow_mut().take_missed();
        fs.repair().await;
        fs.start_endings();
        fs.start_committer();
        fs.start_cleaner();
        if has_log {
            // Before anything else happens, what logs brought is made to last.
            fs.commit_now().await?;
        }
        fs.find_dead_trees()?;
        for tree in replayed {
            fs.with(|c| fs.subvol(c, tree))?;
        }
        fs.clean_new_subvols().await?;
        if checks_uuids {
            fs.check_uuids()?;
        }
        Ok(fs)
    }

    /// What a mount does that finds the tree of uuids perhaps older than the others, as mkfs leaves
    /// it: looks there for each subvolume's. For that it begins a transaction, which the next sync
    /// then commits though nothing was changed. `btrfs_check_uuid_tree`, `btrfs_uuid_scan_kthread`.
    fn check_uuids(&self) -> FsResult<()> {
        let has_uuid = self.with(|c| {
            let has_tree = c.open_root(id::UUID_TREE).is_ok();
            Ok(has_tree && c.root(self.top.tree)?.item.uuid != [0; 16])
        })?;
        if has_uuid {
            self.with(Core::begin)?;
        }
        Ok(())
    }

    /// Writes everything; nothing can be changed afterwards. What cannot be written is lost, and
    /// told. `close_ctree`.
    pub(super) async fn unmount(&self) -> FsResult<()> {
        if !self.is_mounted.get() {
            return Err(FsError::ReadOnly);
        }
        let synced = self.sync_everything().await;
        self.write_all_data().await;
        self.cleaner.rest().await;
        let last = if self.has_failed.get() { Ok(()) } else { self.commit_now().await };
        self.is_mounted.set(false);
        self.commits.stop();
        self.endings.stop();
        self.cleaner.stop();
        self.wb.stop();
        self.inodes.borrow_mut().clear();
        synced.and(last)
    }
}
