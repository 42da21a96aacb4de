//! A file system in memory that answers as Linux does: names, contents, lengths, links.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};

/// A file, directory or link of the model.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub names: Option<BTreeMap<String, usize>>,
    pub target: Option<String>,
    pub data: Vec<u8>,
    pub links: u32,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: Vec<Node>,
}

impl Model {
    pub fn new() -> Model {
        Model { nodes: vec![Node { names: Some(BTreeMap::new()), links: 1, ..Node::default() }] }
    }

    pub fn at(&self, path: &str) -> Option<usize> {
        let mut parts = path.split('/').filter(|p| !p.is_empty());
        parts.try_fold(0, |at, p| self.nodes[at].names.as_ref()?.get(p).copied())
    }

    pub fn split(path: &str) -> (&str, &str) {
        path.rsplit_once('/').unwrap_or(("", path))
    }

    pub fn names(&mut self, dir: usize) -> &mut BTreeMap<String, usize> {
        self.nodes[dir].names.as_mut().expect("a directory")
    }

    pub fn is_dir(&self, n: usize) -> bool {
        self.nodes[n].names.is_some()
    }

    pub fn add(&mut self, path: &str, node: Node) -> FsResult<usize> {
        let (dir, name) = Model::split(path);
        let dir = self.at(dir).ok_or(FsError::NotFound)?;
        if !self.is_dir(dir) {
            return Err(FsError::NotDir);
        }
        if self.names(dir).contains_key(name) {
            return Err(FsError::Exists);
        }
        self.nodes.push(node);
        let n = self.nodes.len() - 1;
        self.names(dir).insert(name.to_owned(), n);
        Ok(n)
    }

    pub fn remove(&mut self, path: &str, want_dir: bool) -> FsResult<usize> {
        let (dir, name) = Model::split(path);
        let n = self.at(path).ok_or(FsError::NotFound)?;
        match (self.is_dir(n), want_dir) {
            (true, false) => return Err(FsError::IsDir),
            (false, true) => return Err(FsError::NotDir),
            (true, true) if !self.names(n).is_empty() => return Err(FsError::NotEmpty),
            _ => {}
        }
        let dir = self.at(dir).ok_or(FsError::NotFound)?;
        self.names(dir).remove(name);
        self.nodes[n].links -= 1;
        Ok(n)
    }

    pub fn rename(&mut self, from: &str, to: &str) -> FsResult<()> {
        let n = self.at(from).ok_or(FsError::NotFound)?;
        let (from_dir, from_name) = Model::split(from);
        let (to_dir, to_name) = Model::split(to);
        let a = self.at(from_dir).ok_or(FsError::NotFound)?;
        let b = self.at(to_dir).ok_or(FsError::NotFound)?;
        if !self.is_dir(b) {
            return Err(FsError::NotDir);
        }
        let old = self.at(to);
        if old == Some(n) {
            return Ok(());
        }
        if self.is_dir(n) && format!("{to}/").starts_with(&format!("{from}/")) {
            return Err(FsError::Invalid(""));
        }
        if let Some(old) = old {
            match (self.is_dir(n), self.is_dir(old)) {
                (true, false) => return Err(FsError::NotDir),
                (false, true) => return Err(FsError::IsDir),
                (true, true) if !self.names(old).is_empty() => return Err(FsError::NotEmpty),
                _ => {}
            }
            self.remove(to, self.is_dir(old))?;
        }
        self.names(a).remove(from_name);
        self.names(b).insert(to_name.to_owned(), n);
        Ok(())
    }

    pub fn walk(&self) -> Vec<(String, usize)> {
        let mut out = Vec::new();
        let mut todo = vec![(String::new(), 0)];
        while let Some((path, n)) = todo.pop() {
            for (name, child) in self.nodes[n].names.iter().flatten() {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                out.push((path.clone(), *child));
                if self.is_dir(*child) {
                    todo.push((path, *child));
                }
            }
        }
        out.sort();
        out
    }
}
