//! The names by which the kernel knows files: node numbers, with the paths that lead to them.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult, Ino};
use wp_vfs::Attr;

/// The root directory's node.
pub(crate) const ROOT: u64 = 1;

/// A file that the kernel knows.
struct Node {
    ino: Ino,
    /// The directory and the name of each link that the kernel has looked up, the last one last.
    names: Vec<(u64, Vec<u8>)>,
    /// How often the kernel was told of it and has not forgotten it.
    lookups: u64,
    /// Its last link is gone: its attributes then. Its inode number may be another file's.
    last: Option<Attr>,
}

/// All of them. A file whose last link is gone keeps its node until the kernel forgets it, and its
/// inode number may come again with another node.
pub(crate) struct Nodes {
    nodes: BTreeMap<u64, Node>,
    by_ino: BTreeMap<Ino, u64>,
    by_name: BTreeMap<(u64, Vec<u8>), u64>,
    next: u64,
}

impl Nodes {
    pub fn new(root: Ino) -> Nodes {
        let node = Node { ino: root, names: Vec::new(), lookups: 1, last: None };
        Nodes {
            nodes: BTreeMap::from([(ROOT, node)]),
            by_ino: BTreeMap::from([(root, ROOT)]),
            by_name: BTreeMap::new(),
            next: ROOT + 1,
        }
    }

    /// Errors: the kernel has forgotten it.
    pub fn ino(&self, node: u64) -> FsResult<Ino> {
        self.nodes.get(&node).map(|n| n.ino).ok_or(FsError::NotFound)
    }

    /// What a file was like whose last link is gone.
    pub fn last(&self, node: u64) -> Option<Attr> {
        self.nodes.get(&node).and_then(|n| n.last.clone())
    }

    /// The node of a file, which the kernel need not know yet.
    pub fn number(&mut self, ino: Ino) -> u64 {
        let next = self.next;
        let number = *self.by_ino.entry(ino).or_insert(next);
        if number == next {
            self.next += 1;
            let node = Node { ino, names: Vec::new(), lookups: 0, last: None };
            self.nodes.insert(number, node);
        }
        number
    }

    /// The kernel is told that `name` in `dir` is this file: its node.
    pub fn tell(&mut self, dir: u64, name: &[u8], ino: Ino) -> u64 {
        let number = self.number(ino);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.lookups += 1;
        }
        self.name(dir, name, number);
        number
    }

    fn name(&mut self, dir: u64, name: &[u8], number: u64) {
        let key = (dir, name.to_vec());
        let before = self.by_name.insert(key.clone(), number);
        if before == Some(number) {
            return;
        }
        if let Some(before) = before.and_then(|before| self.nodes.get_mut(&before)) {
            before.names.retain(|n| *n != key);
        }
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.push(key);
        }
    }

    /// The kernel forgets a node `times` times.
    pub fn forget(&mut self, number: u64, times: u64) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups > 0 || number == ROOT {
            return;
        }
        let Some(node) = self.nodes.remove(&number) else { return };
        if self.by_ino.get(&node.ino) == Some(&number) {
            self.by_ino.remove(&node.ino);
        }
        for name in node.names {
            if self.by_name.get(&name) == Some(&number) {
                self.by_name.remove(&name);
            }
        }
    }

    /// The file has no such name any more; `last`: nor any other, and these attributes.
    pub fn unlinked(&mut self, dir: u64, name: &[u8], last: Option<Attr>) {
        let key = (dir, name.to_vec());
        let Some(number) = self.by_name.remove(&key) else { return };
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.names.retain(|n| *n != key);
        if last.is_some() {
            self.by_ino.remove(&node.ino);
            node.last = last;
        }
    }

    /// A name has moved, and what had the new one before is gone from there.
    pub fn renamed(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let key = (from.0, from.1.to_vec());
        let Some(number) = self.by_name.remove(&key) else { return };
        if let Some(node) = self.nodes.get_mut(&number) {
            node.names.retain(|n| *n != key);
        }
        self.name(to.0, to.1, number);
    }

    /// Two names have changed places.
    pub fn exchanged(&mut self, a: (u64, &[u8]), b: (u64, &[u8])) {
        let keys = [(a.0, a.1.to_vec()), (b.0, b.1.to_vec())];
        let [first, second] = [0, 1].map(|n| self.by_name.get(&keys[n]).copied());
        for (number, key) in [(first, &keys[0]), (second, &keys[1])] {
            if let Some(node) = number.and_then(|n| self.nodes.get_mut(&n)) {
                node.names.retain(|n| n != key);
            }
            self.by_name.remove(key);
        }
        if let Some(number) = first {
            self.name(b.0, b.1, number);
        }
        if let Some(number) = second {
            self.name(a.0, a.1, number);
        }
    }

    /// The node of a name that the kernel has looked up.
    pub fn named(&self, dir: u64, name: &[u8]) -> Option<u64> {
        self.by_name.get(&(dir, name.to_vec())).copied()
    }

    /// A path of the node, without a leading slash; `.` is the root. Errors: `NotFound` of a file
    /// that has no name any more, `Invalid` of a name that is no UTF-8.
    pub fn path(&self, number: u64) -> FsResult<String> {
        let (mut words, mut at) = (Vec::new(), number);
        while at != ROOT {
            let node = self.nodes.get(&at).ok_or(FsError::NotFound)?;
            let (dir, name) = node.names.last().ok_or(FsError::NotFound)?;
            words.push(text(name)?);
            at = *dir;
        }
        words.reverse();
        Ok(if words.is_empty() { ".".to_owned() } else { words.join("/") })
    }

    /// The path of `name` in a directory. Errors: as [`Nodes::path`].
    pub fn path_in(&self, dir: u64, name: &[u8]) -> FsResult<String> {
        let name = text(name)?;
        let dir = self.path(dir)?;
        Ok(if dir == "." { name.to_owned() } else { format!("{dir}/{name}") })
    }
}

fn text(name: &[u8]) -> FsResult<&str> {
    std::str::from_utf8(name).map_err(|_| FsError::Invalid("a name that is no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wp_vfs::{DeviceNumber, FileType, TimeSpec};

    const NEVER: TimeSpec = TimeSpec { secs: 0, nanos: 0 };
    const ATTR: Attr = Attr {
        ino: Ino(12),
        kind: FileType::Fifo,
        mode: 0o644,
        nlink: 0,
        uid: 0,
        gid: 0,
        size: 0,
        blocks_512: 0,
        device: DeviceNumber { major: 0, minor: 0 },
        atime: NEVER,
        mtime: NEVER,
        ctime: NEVER,
    };

    #[test]
    fn paths_follow_renames_of_directories() {
        let mut nodes = Nodes::new(Ino(2));
        let dir = nodes.tell(ROOT, b"d", Ino(12));
        let file = nodes.tell(dir, b"f", Ino(13));
        assert_eq!(nodes.path(file), Ok("d/f".to_owned()));
        nodes.renamed((ROOT, b"d"), (ROOT, b"e"));
        assert_eq!(nodes.path(file), Ok("e/f".to_owned()));
        assert_eq!(nodes.path_in(ROOT, b"x"), Ok("x".to_owned()));
    }

    #[test]
    fn an_inode_number_that_comes_again_is_another_node() {
        let mut nodes = Nodes::new(Ino(2));
        let old = nodes.tell(ROOT, b"a", Ino(12));
        nodes.unlinked(ROOT, b"a", Some(ATTR));
        let new = nodes.tell(ROOT, b"b", Ino(12));
        assert_ne!(old, new);
        assert_eq!(nodes.path(old), Err(FsError::NotFound));
        assert_eq!(nodes.last(old).map(|a| a.kind), Some(FileType::Fifo));
        assert_eq!(nodes.last(new).map(|a| a.kind), None);
        nodes.forget(old, 1);
        assert_eq!(nodes.path(new), Ok("b".to_owned()), "forgetting the old one leaves the new");
        nodes.forget(new, 1);
        assert_eq!(nodes.ino(new), Err(FsError::NotFound));
    }

    #[test]
    fn a_file_with_two_links_is_one_node_and_exchanges_move_names() {
        let mut nodes = Nodes::new(Ino(2));
        let a = nodes.tell(ROOT, b"a", Ino(12));
        assert_eq!(nodes.tell(ROOT, b"b", Ino(12)), a);
        nodes.unlinked(ROOT, b"b", None);
        assert_eq!(nodes.path(a), Ok("a".to_owned()));
        let c = nodes.tell(ROOT, b"c", Ino(14));
        nodes.exchanged((ROOT, b"a"), (ROOT, b"c"));
        assert_eq!((nodes.path(a), nodes.path(c)), (Ok("c".to_owned()), Ok("a".to_owned())));
        assert_eq!(nodes.named(ROOT, b"a"), Some(c));
    }
}
