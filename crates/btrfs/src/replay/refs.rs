//! Names of inodes in the log: they come, those that they contradict go.

use wp_base::FsResult;

use crate::disk::inode::{self, Name, extref_hash};
use crate::disk::{Key, kind, wide};
use crate::site;

use super::{Replay, broken};

/// The names of an INODE_REF or INODE_EXTREF item, each: directory, place, name.
fn names(key: Key, item: &[u8]) -> FsResult<Vec<(u64, u64, Vec<u8>)>> {
    let own = |n: Name<'_>| (n.parent, n.index, n.name.to_vec());
    let all: Result<Vec<_>, usize> = match key.kind {
        kind::INODE_REF => inode::refs(item, key.offset).map(|n| n.map(own)).collect(),
        _ => inode::extrefs(item).map(|n| n.map(own)).collect(),
    };
    all.map_err(|at| broken("inode reference", wide(at), format!("whole names ({key})")))
}

impl Replay<'_, '_> {
    /// `add_inode_ref`.
    pub(super) fn replay_refs(&mut self, key: Key, item: &[u8]) -> FsResult<()> {
        let ino = key.objectid;
        let new = names(key, item)?;
        let Some((first, _, _)) = new.first() else {
            return Err(broken("inode reference", ino, "a name"));
        };
        // A directory that was not logged: the inode keeps the names that it has.
        if self.inode(*first)?.is_none() {
            return Ok(());
        }
        self.inode_needed(ino)?;
        for (folder, index, name) in &new {
            let (folder, index) = (*folder, *index);
            if self.inode(folder)?.is_none() || self.is_in_dir(folder, ino, index, name)? {
                continue;
            }
            if !self.make_room(folder, ino, index, name)? {
                return Ok(());
            }
            self.add_link(folder, ino, name, index, false)?;
            let inode = self.inode_needed(ino)?;
            self.put_inode(ino, &inode)?;
        }
        if !self.state.old.refs && site::REPLAY_REFS_GO.on() {
            self.unlink_old(key, &new)?;
        }
        self.overwrite_item(key, item)
    }

    /// Does the directory have this name at this place, for this inode? `inode_in_dir`.
    fn is_in_dir(&mut self, folder: u64, ino: u64, index: u64, name: &[u8]) -> FsResult<bool> {
        let both = [self.dir_index(folder, index, name)?, self.dir_item(folder, name)?];
        Ok(both.into_iter().all(|e| e.is_some_and(|e| e.location.objectid == ino)))
    }

    /// Names of the inode in this directory that the log does not have, and what else has the name
    /// or its place, go. `false`: it is the root directory's, which has none. `__add_inode_ref`.
    fn make_room(&mut self, folder: u64, ino: u64, index: u64, name: &[u8]) -> FsResult<bool> {
        if !site::REPLAY_ROOM.on() {
            return Ok(true);
        }
        let key = Key::new(ino, kind::INODE_REF, folder);
        while let Some(item) = self.core.lookup(self.tree, key)? {
            if ino == folder {
                return Ok(false);
            }
            let all = names(key, &item)?;
            let victim = all.iter().find(|(_, _, n)| !self.log.has_plain_ref(ino, folder, n));
            match victim {
                Some((_, _, n)) => self.unlink(folder, ino, n)?,
                None => break,
            }
        }
        let key = Key::new(ino, kind::INODE_EXTREF, extref_hash(folder, name));
        while let Some(item) = self.core.lookup(self.tree, key)? {
            let all = names(key, &item)?;
            if !all.iter().any(|(parent, _, n)| *parent == folder && n == name) {
                break;
            }
            let mut ours = all.iter().filter(|(parent, _, _)| *parent == folder);
            match ours.find(|(_, _, n)| !self.log.has_extref(ino, folder, n)) {
                Some((_, _, n)) => self.unlink(folder, ino, n)?,
                None => break,
            }
        }
        if let Some(found) = self.dir_index(folder, index, name)? {
            self.drop_entry(folder, &found)?;
        }
        if let Some(found) = self.dir_item(folder, name)? {
            self.drop_entry(folder, &found)?;
        }
        Ok(true)
    }

    /// Names in the subvolume's item that the log's does not have go. `unlink_old_inode_refs`.
    fn unlink_old(&mut self, key: Key, new: &[(u64, u64, Vec<u8>)]) -> FsResult<()> {
        while let Some(item) = self.core.lookup(self.tree, key)? {
            let all = names(key, &item)?;
            let old = all
                .iter()
                .find(|(parent, _, name)| !new.iter().any(|(p, _, n)| p == parent && n == name));
            match old {
                Some((parent, _, name)) => self.unlink(*parent, key.objectid, name)?,
                None => break,
            }
        }
        Ok(())
    }
}
