//! Subvolumes and snapshots: what is below them, and what is promised of it.

use std::collections::BTreeMap;

use wp_vfs::FileType;

use crate::paths::ROOT_PATH;

use super::{Basis, BlockVersion, FileLife, Ledger, Object, Scope, SizeVersion, XattrVersion};

impl FileLife {
    /// A file that begins at `version` as this one is then. Of what this one may hold or not, it
    /// may hold or not too.
    fn copied(&self, version: u32) -> FileLife {
        let certain = self.sizes.iter().rposition(|s| !s.maybe).unwrap_or(0);
        let lengths = self.sizes.get(certain..).unwrap_or_default();
        let from = lengths.iter().map(|s| s.to).min().unwrap_or(0);
        let to = lengths.iter().map(|s| s.to).max().unwrap_or(0);
        let size = SizeVersion { version, from, to, wrote: None, maybe: false };
        let mut new = FileLife::new(self.kind, None, vec![size]);
        new.target.clone_from(&self.target);
        new.device = self.device;
        let last = |all: &[(u32, u32)]| all.last().map_or(0, |(_, mode)| *mode);
        new.modes = vec![(version, last(&self.modes))];
        new.owners = vec![(version, self.owners.last().map_or((0, 0), |(_, owner)| *owner))];
        new.mtimes = vec![(version, self.mtimes.last().and_then(|(_, time)| *time))];
        new.flags = vec![(version, self.flags.last().and_then(|(_, flags)| *flags))];
        for (name, versions) in &self.xattrs {
            if let Some(value) = versions.last().and_then(|v| v.value.clone()) {
                let value = XattrVersion { version, value: Some(value) };
                new.xattrs.insert(name.clone(), vec![value]);
            }
        }
        for (block, versions) in &self.blocks {
            let certain = versions.iter().rposition(|v| !v.maybe && !v.is_alias);
            let held = versions.get(certain.unwrap_or(0)..).unwrap_or_default();
            let copy = |v: &BlockVersion| BlockVersion { version, ..v.clone() };
            new.blocks.insert(*block, held.iter().map(copy).collect());
        }
        new
    }
}

impl Ledger {
    /// An empty subvolume. Nothing is promised of it before a commit.
    pub(super) fn make_subvolume(&mut self, version: u32, path: &str) {
        let object = self.make_unnamed(version, FileType::Dir, None);
        // It inherits nothing of the directory that it is in.
        self.files[object as usize].subvolume = true;
        self.names_now().insert(path.to_owned(), object);
    }

    /// A subvolume of what is below `from` now: it is durable when the call returns, as the call
    /// waits for the commit that makes it (`create_snapshot`), with all that was written before
    /// (`btrfs_start_delalloc_snapshot`). Subvolumes in `from` are empty directories in it.
    pub(super) fn snapshot(&mut self, n: u32, from: &str, to: &str) {
        let version = n + 1;
        let Some(source) = self.at(from) else { return };
        let prefix = if from == ROOT_PATH { String::new() } else { format!("{from}/") };
        let names = self.names_now().clone();
        let below = names.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let mut found: Vec<(String, Object)> = Vec::new();
        let mut others: Vec<String> = Vec::new();
        for (path, object) in below {
            if others.iter().any(|other| path.starts_with(other)) {
                continue;
            }
            if self.files[*object as usize].subvolume {
                others.push(format!("{path}/"));
            }
            found.push((path[prefix.len()..].to_owned(), *object));
        }
        let mut copies: BTreeMap<Object, Object> = BTreeMap::new();
        let root = self.copy(version, source);
        self.files[root as usize].subvolume = true;
        copies.insert(source, root);
        self.names_now().insert(to.to_owned(), root);
        for (rest, object) in found {
            let copy = match copies.get(&object) {
                Some(copy) => *copy,
                None if self.files[object as usize].subvolume => {
                    // Its attributes are made up when it is looked at (`new_simple_dir`).
                    self.make_unnamed(version, FileType::Dir, None)
                }
                None => self.copy(version, object),
            };
            copies.insert(object, copy);
            self.names_now().insert(format!("{to}/{rest}"), copy);
        }
        // Of data that a device has failed to write nothing is promised: the call does not look.
        let since = (version, version);
        let scope = Scope::Name { object: root, mark: self.marks.len() as u32 };
        self.marks.push(to.to_owned());
        self.promise(n, scope, Basis::Call, since);
        for copy in copies.into_values() {
            self.promise(n, self.scope_of(copy, true), Basis::Call, since);
        }
    }

    /// Another file with all that this one has.
    fn copy(&mut self, version: u32, object: Object) -> Object {
        let life = self.files[object as usize].copied(version);
        let copy = self.files.len() as Object;
        self.files.push(life);
        copy
    }
}
