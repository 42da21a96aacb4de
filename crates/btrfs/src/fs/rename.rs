//! Names that move.
//!
//! Source: fs/btrfs/inode.c (`btrfs_rename2`).

use std::collections::BTreeSet;
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_rt::CpuOp;
use wp_vfs::{RenameHow, may_create, may_delete};

use crate::core::Core;

use super::Btrfs;
use super::inode::Inode;
use super::namei::Place;

/// What an exchange cannot be done with.
const STUBS: &str = "btrfs: an exchange of the name of a subvolume that is not there";

/// Only a subvolume's name moves to another tree. `btrfs_rename`.
fn check_trees(from: &Inode, to: &Inode, moved: &Inode) -> FsResult<()> {
    match from.tree == to.tree || moved.is_subvol() {
        _ if to.is_stub() => Err(FsError::NotPermitted),
        true => Ok(()),
        false => Err(FsError::CrossDevice),
    }
}

impl Btrfs {
    /// May names of both directories be changed? `may_delete`, `may_create`.
    fn may_move(&self, from: &Inode, to: &Inode) -> FsResult<()> {
        self.check_writable_in(from)?;
        self.check_writable_in(to)
    }

    /// What has moved has a new time; of a subvolume, whose name is not its own, in memory only.
    fn update_moved(&self, c: &mut Core<'static>, moved: &Inode) -> FsResult<()> {
        if moved.is_subvol() { Ok(()) } else { self.update_inode(c, moved) }
    }

    /// Is `ino` the directory `dir`, or above it, in whatever subvolume? Errors: `Corrupt` if the
    /// way up is a ring.
    fn is_above(&self, ino: u64, mut dir: u64) -> FsResult<bool> {
        let mut seen = BTreeSet::new();
        loop {
            if !seen.insert(dir) {
                let expected = "a way to the root";
                return Err(FsError::corrupt("btrfs inode ref", "offset", 0, dir, expected));
            }
            if dir == ino {
                return Ok(true);
            }
            let Some(above) = self.above(dir)? else { return Ok(false) };
            dir = above;
        }
    }

    /// Two directories in the order in which they are locked: one above the other first, as a
    /// removal locks them, else the lesser number. `lock_rename`, which knows from memory who is
    /// above.
    fn in_order<'i>(
        &self,
        a: &'i Rc<Inode>,
        b: &'i Rc<Inode>,
    ) -> FsResult<(&'i Rc<Inode>, &'i Rc<Inode>)> {
        if a.handle == b.handle {
            return Ok((a, b));
        }
        let known = self.core.borrow().missed.len();
        let is_above = |a: &Inode, b: &Inode| {
            self.check_dir(b).and_then(|()| self.is_above(a.handle, b.handle))
        };
        let above = is_above(a, b).and_then(|ab| Ok((ab, is_above(b, a)?)));
        self.core.borrow_mut().missed.truncate(known);
        let a_first = match above? {
            (true, _) => true,
            (_, true) => false,
            _ => a.handle < b.handle,
        };
        Ok(if a_first { (a, b) } else { (b, a) })
    }

    /// May a name move, and what stands at the new one?
    fn check_rename(
        &self,
        from: Place<'_>,
        to: Place<'_>,
    ) -> FsResult<(Rc<Inode>, Option<Rc<Inode>>)> {
        let moved = self.find_in(from)?.ok_or(FsError::NotFound)?;
        self.check_dir(to.0)?;
        let old = self.find_in(to)?;
        let crosses = from.0.handle != to.0.handle;
        if moved.is_dir() && crosses && self.is_above(moved.handle, to.0.handle)? {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        if let Some(old) = old.as_ref().filter(|old| old.handle != moved.handle) {
            // Before anything is said of what they are (`do_renameat2`).
            if old.is_dir() && crosses && self.is_above(old.handle, from.0.handle)? {
                return Err(FsError::NotEmpty);
            }
            self.may_move(from.0, to.0)?;
            may_delete(from.0.file_flags(), moved.file_flags())?;
            may_delete(to.0.file_flags(), old.file_flags())?;
            match (moved.is_dir(), old.is_dir()) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                _ => {}
            }
            check_trees(from.0, to.0, &moved)?;
            match (moved.is_dir(), old.is_dir()) {
                _ if moved.is_stub() || old.is_subvol() => return Err(FsError::NotEmpty),
                (true, true) if old.size() > 0 => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        if old.is_none() {
            self.may_move(from.0, to.0)?;
            may_delete(from.0.file_flags(), moved.file_flags())?;
            may_create(to.0.file_flags())?;
            check_trees(from.0, to.0, &moved)?;
            if moved.is_stub() {
                return Err(FsError::NotEmpty);
            }
        }
        Ok((moved, old))
    }

    /// Moves a name, replacing what stands at the new one. `btrfs_rename`.
    pub(super) async fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: RenameHow,
    ) -> FsResult<()> {
        let (a, b) = (self.dir(from.0)?, self.dir(to.0)?);
        let _one = if a.handle == b.handle { None } else { Some(self.moves.lock().await) };
        let (first, second) = self.in_order(&a, &b)?;
        let lock = first.lock.lock().await;
        let other =
            if first.handle == second.handle { None } else { Some(second.lock.lock().await) };
        self.check_writable()?;
        let (from, to) = ((&a, from.1), (&b, to.1));
        if how == RenameHow::Exchange {
            return self.exchange(from, to).await;
        }
        if how == RenameHow::NoReplace {
            // Before what the two are (`do_renameat2`).
            self.find_in(from)?.ok_or(FsError::NotFound)?;
            if self.find_in(to)?.is_some() {
                return Err(FsError::Exists);
            }
        }
        let (moved, old) = self.check_rename(from, to)?;
        // What is replaced is no directory that is locked: that one is not empty.
        let victim = match old.as_ref().filter(|old| old.handle != moved.handle) {
            Some(old) => Some(old.lock.lock().await),
            None => None,
        };
        // What replaces a file that has something is sent now, not with the commit.
        let replaced = old.as_ref().filter(|old| old.handle != moved.handle);
        if moved.is_file() && replaced.is_some_and(|old| old.size() > 0) {
            self.start_flush(&moved).await;
        }
        // Names, references and inodes of both, directories, orphan; a whiteout.
        let left = how.left_behind();
        let p = self.reserve(11 + if left.is_some() { 5 } else { 0 }).await?;
        self.rt.cpu(CpuOp::NameChange, 2).await;
        let (moved, again) = self.check_rename(from, to)?;
        if again.as_ref().is_some_and(|old| old.handle == moved.handle) {
            return Ok(());
        }
        if again.is_none() {
            self.with(|c| c.check_name(b.tree, b.ino, to.1))?;
        }
        let index = self.with(|c| self.take_index(c, &b))?;
        if moved.is_subvol() {
            // No log tells of it.
            self.logs.need_commit(self.with(|c| c.transid_begun())?);
        } else {
            // The one step that may find no room.
            self.with(|c| c.add_ref(b.tree, moved.ino, b.ino, index, to.1))?;
        }
        if a.handle != b.handle {
            self.note_move(&a, &moved);
        }
        let done = self.must(|c| {
            let was = self.remove_name(c, from, &moved)?;
            self.update_moved(c, &moved)?;
            let gone = match &again {
                Some(old) => Some(self.drop_name(c, to, old)?),
                None => None,
            };
            self.add_name(c, to, &moved, index)?;
            Ok((was, gone))
        });
        if let Ok((was, gone)) = done {
            moved.logged.renamed.set(self.newest());
            if let (Some(old), Some(gone)) = (&again, gone) {
                self.note_replaced(&b, old);
                self.forget_logged_name(to, old, gone);
            }
            if !moved.is_subvol() {
                self.log_new_name(&moved, Some((&a, from.1, was)));
            }
        }
        let done = match (&done, left) {
            (Ok(_), Some(mut spec)) => {
                let dir = a.attr();
                // `inode_init_owner`
                spec.gid = if dir.mode & 0o2000 == 0 { spec.gid } else { dir.gid };
                let ino = a.vol.take_ino();
                self.must(|c| self.make_in(c, from, ino, &spec).map(drop))
            }
            _ => done.map(|_| ()),
        };
        let done = self.settled(done).await;
        drop((p, victim, other, lock));
        done?;
        match again {
            Some(old) => self.put_quietly(&old).await,
            None => Ok(()),
        }
    }

    /// Two names change places. The caller has the locks of both directories.
    /// `btrfs_rename_exchange`.
    async fn exchange(&self, from: Place<'_>, to: Place<'_>) -> FsResult<()> {
        let (a, b) = (from.0, to.0);
        let crosses = a.handle != b.handle;
        let find = || -> FsResult<(Rc<Inode>, Rc<Inode>)> {
            let x = self.find_in(from)?.ok_or(FsError::NotFound)?;
            self.check_dir(b)?;
            let y = self.find_in(to)?.ok_or(FsError::NotFound)?;
            if crosses
                && (x.is_dir() && self.is_above(x.handle, b.handle)?
                    || y.is_dir() && self.is_above(y.handle, a.handle)?)
            {
                return Err(FsError::Invalid("a directory cannot move into itself"));
            }
            if x.handle != y.handle {
                self.may_move(a, b)?;
                may_delete(a.file_flags(), x.file_flags())?;
                may_delete(b.file_flags(), y.file_flags())?;
                if a.tree != b.tree && !(x.is_subvol() && y.is_subvol()) {
                    return Err(FsError::CrossDevice);
                }
                if x.is_stub() || y.is_stub() {
                    return Err(FsError::Unsupported(STUBS.to_owned()));
                }
            }
            Ok((x, y))
        };
        find()?;
        // Names, references and inodes of both, directories.
        let _p = self.reserve(16).await?;
        self.rt.cpu(CpuOp::NameChange, 2).await;
        let (x, y) = find()?;
        if x.handle == y.handle {
            return Ok(());
        }
        let (of_x, of_y) = self.with(|c| Ok((self.take_index(c, b)?, self.take_index(c, a)?)))?;
        if x.is_subvol() || y.is_subvol() {
            self.logs.need_commit(self.with(|c| c.transid_begun())?);
        }
        // The steps that may find no room.
        if !x.is_subvol() {
            self.with(|c| c.add_ref(b.tree, x.ino, b.ino, of_x, to.1))?;
        }
        if !y.is_subvol()
            && let Err(e) = self.with(|c| c.add_ref(a.tree, y.ino, a.ino, of_y, from.1))
        {
            if !x.is_subvol() {
                self.with(|c| c.remove_ref(b.tree, x.ino, b.ino, to.1))?;
            }
            return Err(e);
        }
        if crosses {
            self.note_move(a, &x);
            self.note_move(b, &y);
        }
        let done = self.must(|c| {
            let was_x = self.remove_name(c, from, &x)?;
            self.update_moved(c, &x)?;
            let was_y = self.remove_name(c, to, &y)?;
            self.update_moved(c, &y)?;
            self.add_name(c, to, &x, of_x)?;
            self.add_name(c, from, &y, of_y)?;
            Ok((was_x, was_y))
        });
        if let Ok((was_x, was_y)) = done {
            let now = self.newest();
            x.logged.renamed.set(now);
            y.logged.renamed.set(now);
            let both = [(&x, (a, from.1, was_x)), (&y, (b, to.1, was_y))];
            for (inode, was) in both.into_iter().filter(|(inode, _)| !inode.is_subvol()) {
                self.log_new_name(inode, Some(was));
            }
        }
        self.settled(done.map(|_| ())).await
    }
}
