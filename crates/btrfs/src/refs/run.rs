//! Changes of uses brought to the extent tree.

use wp_base::{FsError, FsResult};

use crate::core::Core;
use crate::disk::Reference;

use super::{Head, Refs};

impl Refs {
    /// `btrfs_select_ref_head`.
    fn next_head(&mut self) -> Option<u64> {
        if self.heads.range(self.run_from..).next().is_none() {
            self.run_from = 0;
        }
        let (bytenr, bytes) =
            self.heads.range(self.run_from..).next().map(|(at, h)| (*at, h.bytes))?;
        self.run_from = bytenr.saturating_add(bytes);
        Some(bytenr)
    }

    /// `select_delayed_ref`.
    fn next_user(&mut self, bytenr: u64) -> Option<(Reference, i64)> {
        let head = self.heads.get_mut(&bytenr)?;
        let who = match head.added.first() {
            Some(_) => head.added.remove(0),
            None => *head.users.first_key_value()?.0,
        };
        head.users.remove(&who).map(|by| (who, by))
    }
}

impl Core<'_> {
    /// Runs what waits: for `all`, also what comes of it, until nothing is left.
    /// `btrfs_run_delayed_refs`.
    pub(crate) fn run_refs(&mut self, all: bool) -> FsResult<()> {
        let mut most = self.refs.waiting();
        loop {
            // Also when nothing waits: looking in vain starts over from the first address.
            if let Some(bytenr) = self.refs.next_head() {
                self.run_head(bytenr)?;
            }
            most = most.saturating_sub(1);
            if all {
                self.finish_new_groups()?;
                if self.refs.heads.is_empty() {
                    return Ok(());
                }
            } else if most == 0 {
                return Ok(());
            }
        }
    }

    /// Some of what waits, if it is much: so that a commit does not find all of it.
    /// `btrfs_end_transaction`, which wakes a worker for it.
    pub fn run_some_refs(&mut self, most: u64) -> FsResult<()> {
        if self.refs.waiting() > most {
            let done = self.run_refs(false);
            self.guard(done)?;
        }
        Ok(())
    }

    fn run_head(&mut self, bytenr: u64) -> FsResult<()> {
        self.refs.running = Some(bytenr);
        let done = self.run_users(bytenr);
        self.refs.running = None;
        done?;
        let Some(head) = self.refs.heads.remove(&bytenr) else { return Ok(()) };
        if head.is_new {
            // Its uses went again before it was ever counted.
            self.pin_reserved(bytenr, head.bytes)?;
            if head.level.is_none() {
                self.drop_csums(bytenr, head.bytes)?;
            }
        }
        Ok(())
    }

    fn run_users(&mut self, bytenr: u64) -> FsResult<()> {
        loop {
            while let Some((who, by)) = self.refs.next_user(bytenr) {
                let Some(head) = self.refs.heads.get_mut(&bytenr) else { return Ok(()) };
                let is_new = std::mem::take(&mut head.is_new);
                let flags = if is_new { std::mem::take(&mut head.set_flags) } else { 0 };
                let Head { bytes, level, .. } = *head;
                if level.is_some() && by.abs() != 1 {
                    let expected = format!("1 use at once (tree block {bytenr})");
                    let found = by.unsigned_abs();
                    let structure = "btrfs delayed reference";
                    return Err(FsError::corrupt(structure, "count", 0, found, expected));
                }
                let count = u32::try_from(by.unsigned_abs()).map_err(|_| FsError::TooManyLinks)?;
                if by > 0 && is_new {
                    self.insert_extent((bytenr, bytes), level, who, count, flags)?;
                } else if by > 0 {
                    self.add_reference((bytenr, bytes), level, who, count)?;
                } else if self.drop_reference((bytenr, bytes), level, who, count)? {
                    if let Some(head) = self.refs.heads.get_mut(&bytenr) {
                        head.set_flags = 0;
                    }
                    if level.is_none() {
                        self.drop_csums(bytenr, bytes)?;
                    }
                    self.unuse_extent(bytenr, bytes)?;
                }
            }
            let Some(head) = self.refs.heads.get_mut(&bytenr) else { return Ok(()) };
            if head.set_flags == 0 || head.is_new {
                return Ok(());
            }
            let (flags, level, bytes) =
                (std::mem::take(&mut head.set_flags), head.level, head.bytes);
            self.set_extent_flags((bytenr, bytes), level, flags)?;
        }
    }
}
