//! Names that move: with all that is below them.

use wp_vfs::FileType;

use super::{Ledger, Object, Replacement};

impl Ledger {
    pub(super) fn rename(&mut self, version: u32, a: &str, b: &str) {
        let Some(object) = self.at(a) else { return };
        if self.at(b) == Some(object) {
            // Two names of one file: nothing happens.
            return;
        }
        let is_file = |o: Object| self.files[o as usize].kind == FileType::File;
        if self.at(b).is_some_and(is_file) && is_file(object) {
            let path = b.to_owned();
            self.replacements.push(Replacement { version, path, object });
        }
        let moved = self.take_tree(a);
        self.put_tree(b, moved);
    }

    /// Two names change places, with all that is below them.
    pub(super) fn exchange(&mut self, a: &str, b: &str) {
        if self.at(a) == self.at(b) {
            return;
        }
        let (of_a, of_b) = (self.take_tree(a), self.take_tree(b));
        self.put_tree(b, of_a);
        self.put_tree(a, of_b);
    }

    /// Takes away a name and all below it: what follows it in each path, and the object.
    pub(super) fn take_tree(&mut self, at: &str) -> Vec<(String, Object)> {
        let names = self.names_now();
        let prefix = format!("{at}/");
        let below = names.range(prefix.clone()..).take_while(|(p, _)| p.starts_with(&prefix));
        let mut paths: Vec<String> = below.map(|(p, _)| p.clone()).collect();
        paths.push(at.to_owned());
        let take = |p: String| names.remove(&p).map(|o| (p[at.len()..].to_owned(), o));
        paths.into_iter().filter_map(take).collect()
    }

    /// Puts there what [`Ledger::take_tree`] took.
    pub(super) fn put_tree(&mut self, at: &str, tree: Vec<(String, Object)>) {
        let names = self.names_now();
        names.extend(tree.into_iter().map(|(rest, o)| (format!("{at}{rest}"), o)));
    }
}
