//! What each name led to, version by version: a question about one name does not go through the
//! trees of all versions. A database writes thousands of times for each name that it makes.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{Ledger, Names, Object};

/// For each path the versions from which on it led to something else; `None`: to nothing.
pub(super) type ByName = BTreeMap<String, Vec<(u32, Option<Object>)>>;

/// The trees of all versions, turned around.
fn by_name(trees: &[Rc<Names>]) -> ByName {
    let mut all = ByName::new();
    let mut note = |version: u32, path: &String, object: Option<Object>| match all.get_mut(path) {
        Some(changes) => changes.push((version, object)),
        None => {
            all.insert(path.clone(), vec![(version, object)]);
        }
    };
    for (path, object) in trees.first().into_iter().flat_map(|names| names.iter()) {
        note(0, path, Some(*object));
    }
    for (pair, version) in trees.windows(2).zip(1..) {
        // Versions that change no name share the tree.
        if Rc::ptr_eq(&pair[0], &pair[1]) {
            continue;
        }
        let (mut old, mut new) = (pair[0].iter().peekable(), pair[1].iter().peekable());
        loop {
            match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some((a, x)), Some((b, y))) if a == b => {
                    if x != y {
                        note(version, b, Some(**y));
                    }
                    old.next();
                    new.next();
                }
                (Some((a, _)), other) if other.is_none_or(|(b, _)| a < b) => {
                    note(version, a, None);
                    old.next();
                }
                (_, Some((b, y))) => {
                    note(version, b, Some(**y));
                    new.next();
                }
                (Some(_), None) => {
                    old.next();
                }
            }
        }
    }
    all
}

impl Ledger {
    /// What `path` led to in the versions `from..=to`, without immediate repetitions.
    fn led_to(&self, path: &str, (from, to): (u32, u32)) -> impl Iterator<Item = Option<Object>> {
        let all = self.by_name.get_or_init(|| by_name(&self.names));
        let changes = all.get(path).map_or(&[][..], |changes| &changes[..]);
        let first = changes.partition_point(|(version, _)| *version <= from);
        let before = first.checked_sub(1).and_then(|at| changes[at].1);
        let later = changes[first..].iter().take_while(move |(version, _)| *version <= to);
        std::iter::once(before).chain(later.map(|(_, object)| *object))
    }

    /// The objects that had this name in the versions `from..=to`, in order.
    pub(crate) fn had(&self, path: &str, versions: (u32, u32)) -> impl Iterator<Item = Object> {
        self.led_to(path, versions).flatten()
    }

    /// Was there something of this name in these versions, or in a directory that has moved here
    /// since, with a name that had left it? Nobody has promised that the directory is without it.
    pub(crate) fn may_have(&self, path: &str, versions: (u32, u32)) -> bool {
        !self.may_lead_to(path, versions).is_empty()
    }

    fn may_lead_to(&self, path: &str, versions: (u32, u32)) -> Vec<Object> {
        let mut all: Vec<Object> = self.had(path, versions).collect();
        if let Some((parent, name)) = path.rsplit_once('/') {
            for dir in self.may_lead_to(parent, versions) {
                for path in self.paths_of(dir, versions).filter(|p| *p != parent) {
                    all.extend(self.had(&format!("{path}/{name}"), versions));
                }
            }
        }
        all
    }

    /// The names that an object had in these versions.
    fn paths_of(&self, object: Object, versions: (u32, u32)) -> impl Iterator<Item = &str> {
        let all = self.by_name.get_or_init(|| by_name(&self.names));
        let had = move |path: &&String| self.had(path, versions).any(|o| o == object);
        all.keys().filter(had).map(String::as_str)
    }

    /// Did the name lead to something else than `object`, or to nothing, in one of these versions?
    pub(crate) fn has_left(&self, path: &str, versions: (u32, u32), object: Object) -> bool {
        self.led_to(path, versions).any(|o| o != Some(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_led_to_what_the_trees_say() {
        let tree = |names: &[(&str, Object)]| {
            Rc::new(names.iter().map(|(p, o)| ((*p).to_owned(), *o)).collect::<Names>())
        };
        let same = tree(&[("b", 2), ("c", 3), ("z", 9)]);
        let trees = [
            tree(&[("a", 1)]),
            tree(&[("a", 1), ("b", 2), ("z", 9)]),
            same.clone(),
            same,
            tree(&[("a", 4), ("b", 3), ("c", 3)]),
            tree(&[]),
        ];
        let mut ledger = Ledger::new(&[], 4096);
        ledger.names = trees.to_vec();
        let last = trees.len() as u32 - 1;
        for path in ["a", "b", "c", "d", "z"] {
            for from in 0..=last {
                for to in from..=last {
                    let range = &trees[from as usize..=to as usize];
                    let mut expected: Vec<_> = range.iter().map(|n| n.get(path).copied()).collect();
                    expected.dedup();
                    let found: Vec<_> = ledger.led_to(path, (from, to)).collect();
                    assert_eq!(found, expected, "{path} in {from}..={to}");
                    let left = range.iter().any(|n| n.get(path) != Some(&3));
                    assert_eq!(ledger.has_left(path, (from, to), 3), left);
                }
            }
        }
        assert_eq!(ledger.had("a", (0, u32::MAX)).collect::<Vec<_>>(), [1, 4]);
    }

    /// `rename a/x/f g; rename a/x a/y; rename a c`.
    #[test]
    fn what_has_left_a_directory_may_be_where_it_moves() {
        let tree = |names: &[(&str, Object)]| {
            Rc::new(names.iter().map(|(p, o)| ((*p).to_owned(), *o)).collect::<Names>())
        };
        let mut ledger = Ledger::new(&[], 4096);
        ledger.names = vec![
            tree(&[("a", 1), ("a/x", 2), ("a/x/f", 3)]),
            tree(&[("a", 1), ("a/x", 2), ("g", 3)]),
            tree(&[("a", 1), ("a/y", 2), ("g", 3)]),
            tree(&[("c", 1), ("c/y", 2), ("g", 3)]),
        ];
        for path in ["a/x/f", "a/y/f", "c/x/f", "c/y/f", "c/x", "g"] {
            assert!(ledger.may_have(path, (0, 3)), "{path}");
        }
        // It had left the directory when that was promised.
        for path in ["a/x/f", "a/y/f", "c/x/f", "c/y/f"] {
            assert!(!ledger.may_have(path, (1, 3)), "{path}");
        }
        assert!(!ledger.may_have("c/g", (0, 3)) && !ledger.may_have("f", (0, 3)));
    }
}
