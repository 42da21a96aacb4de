//! Changes of a block map: insertion, new pointers for what is written, places in a log.
//!
//! Picture:    a path = for each level from 1 to the root's the node and the place in it.
//! Invariants: a node's key in its parent is its first key.
//! Source:     fs/nilfs2/btree.c and direct.c for which node is split or shares with which
//!             neighbour, so that maps come out as the kernel's.

use std::ops::{Index, IndexMut};

use wp_base::{FsError, FsResult};

use crate::disk::bmap::{LEVELS, Map, ROOT_CHILDREN};
use crate::disk::{BlockInfo, Node, index};

use super::dat::Via;
use super::file::{File, Pointers};

/// A step of a path: the node, `None` for the root, and the place in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The pointer that leads to the node.
    pub node: Option<u64>,
    /// The place.
    pub at: usize,
}

/// A step for each level from 1 up to the root's, by which it is indexed. In no memory of its own:
/// each block of a log needs a few.
#[derive(Clone, Debug)]
pub(super) struct Path {
    steps: [Step; LEVELS as usize],
    top: usize,
}

impl Path {
    fn of(levels: u8) -> Path {
        Path { steps: [Step { node: None, at: 0 }; LEVELS as usize], top: levels.into() }
    }

    /// The root's level.
    pub fn top(&self) -> usize {
        self.top
    }

    fn steps(&self) -> &[Step] {
        self.steps.get(..self.top).expect("no tree has more levels")
    }

    /// The root is a level higher.
    fn grow(&mut self) {
        self.top += 1;
        let top = self.top;
        self[top] = Step { node: None, at: 0 };
    }
}

impl Index<usize> for Path {
    type Output = Step;
    fn index(&self, level: usize) -> &Step {
        self.steps().get(level - 1).expect("a level of the tree")
    }
}

impl IndexMut<usize> for Path {
    fn index_mut(&mut self, level: usize) -> &mut Step {
        self.steps.get_mut(level - 1).expect("a level of the tree")
    }
}

impl File {
    fn root(&mut self) -> &mut Node {
        match &mut self.map {
            Map::Tree(root) => root,
            Map::Direct(_) => unreachable!("asked for of trees only"),
        }
    }

    /// Levels of the tree, the root's included.
    fn height(&mut self) -> usize {
        usize::from(self.root().level)
    }

    /// The node of a step. Its path was read, so it is in memory.
    pub(super) fn node(&mut self, step: Step) -> &Node {
        match step.node {
            None => self.root(),
            Some(p) => self.nodes.get(p).expect("a node on a path is in memory"),
        }
    }

    pub(super) fn dirty_node(&mut self, step: Step) -> &mut Node {
        match step.node {
            None => self.root(),
            Some(p) => self.nodes.dirty(p).expect("a node on a path is in memory"),
        }
    }

    /// Key and pointer at a path's place on a level.
    pub(super) fn child(&mut self, path: &Path, level: usize) -> Option<(u64, u64)> {
        let step = path[level];
        self.node(step).children.get(step.at).copied()
    }

    /// Reads a node, if it is not in memory.
    pub(super) fn load_node(&mut self, via: &mut Via<'_>, pointer: u64, level: u8) -> FsResult<()> {
        if let Some(held) = self.nodes.get(pointer) {
            if held.level == level {
                return Ok(());
            }
            let (found, expected) = (held.level.into(), level.to_string());
            return Err(FsError::corrupt("nilfs2 block map", "bn_level", 0, found, expected));
        }
        let place = self.locate(via, pointer)?;
        let block = via.disk.read(place)?;
        let node = Node::load(&block, level, via.disk.g.byte_of(place))?;
        self.nodes.put_clean(pointer, node);
        Ok(())
    }

    /// The path to a key, or to where it would be, and whether it is there.
    pub(super) fn path(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<(Path, bool)> {
        self.path_to(via, key, 1)
    }

    /// The same down to the nodes of level `lowest` only; levels below have steps without meaning.
    pub(super) fn path_to(
        &mut self,
        via: &mut Via<'_>,
        key: u64,
        lowest: u8,
    ) -> FsResult<(Path, bool)> {
        let mut step = Step { node: None, at: 0 };
        let mut level = self.root().level;
        let mut path = Path::of(level);
        loop {
            let node = self.node(step);
            let is_there;
            (step.at, is_there) = if level > 1 {
                let at = node.child_of(key).unwrap_or(0);
                (at, node.children.get(at).is_some_and(|(k, _)| *k == key))
            } else {
                match node.find(key) {
                    Ok(at) => (at, true),
                    Err(at) => (at, false),
                }
            };
            let child = node.children.get(step.at).copied();
            path[usize::from(level)] = step;
            let (Some((_, pointer)), true) = (child, level > lowest) else {
                return Ok((path, is_there));
            };
            level -= 1;
            self.load_node(via, pointer, level)?;
            step = Step { node: Some(pointer), at: 0 };
        }
    }

    /// A place's key has become `key`: so it is above, as far as it is the first.
    pub(super) fn promote(&mut self, path: &Path, from: usize, key: u64) {
        for step in path.steps().iter().skip(from - 1) {
            if let Some(child) = self.dirty_node(*step).children.get_mut(step.at) {
                child.0 = key;
            }
            if step.at != 0 {
                break;
            }
        }
    }

    /// Makes block `key` part of the file: it gets a pointer. Its contents are the caller's.
    ///
    /// Errors: `Exists`; `NoSpace` without a free virtual number; `Corrupt`.
    pub(super) fn insert(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<()> {
        self.insert_pointer(via, key)?;
        self.fresh.insert(key);
        Ok(())
    }

    fn insert_pointer(&mut self, via: &mut Via<'_>, key: u64) -> FsResult<()> {
        if let Map::Direct(pointers) = self.map {
            return match pointers.get(index(key)) {
                Some(0) => {
                    let pointer = self.take_pointer(via, key, None)?;
                    if let Map::Direct(pointers) = &mut self.map
                        && let Some(place) = pointers.get_mut(index(key))
                    {
                        *place = pointer;
                    }
                    self.count(1, via.disk.g.block_bits);
                    Ok(())
                }
                Some(_) => Err(FsError::Exists),
                None => self.become_tree(via, key, &pointers),
            };
        }
        let (path, is_there) = self.path(via, key)?;
        if is_there {
            return Err(FsError::Exists);
        }
        let near = self.near(&path);
        let pointer = self.take_pointer(via, key, near)?;
        self.insert_at(via, path, key, pointer)
    }

    /// A number beside which a new one is looked for. `nilfs_btree_find_near`.
    fn near(&mut self, path: &Path) -> Option<u64> {
        let first = path[1];
        if let Some(before) = first.at.checked_sub(1) {
            return self.node(first).children.get(before).map(|(_, p)| *p);
        }
        if path.top() < 2 { None } else { self.child(path, 2).map(|(_, p)| p) }
    }

    /// A direct map becomes a tree, as block `key` does not fit. `nilfs_btree_convert_and_insert`.
    fn become_tree(&mut self, via: &mut Via<'_>, key: u64, pointers: &[u64; 6]) -> FsResult<()> {
        let mut children: Vec<(u64, u64)> =
            (0..).zip(pointers.iter().copied()).filter(|(_, p)| *p != 0).collect();
        let pointer = self.take_pointer(via, key, None)?;
        let first = children.first().map_or(key, |(k, _)| *k);
        children.push((key, pointer));
        let leaf = Node { level: 1, children };
        if leaf.children.len() <= ROOT_CHILDREN {
            self.map = Map::Tree(leaf);
            self.count(1, via.disk.g.block_bits);
            return Ok(());
        }
        let node = self.take_pointer_at(via, pointer.wrapping_add(1))?;
        self.nodes.put_fresh(node, leaf);
        self.map = Map::Tree(Node { level: 2, children: vec![(first, node)] });
        self.count(2, via.disk.g.block_bits);
        Ok(())
    }

    /// Inserts at a path's place on level 1; splits and shares upwards as far as it must.
    fn insert_at(
        &mut self,
        via: &mut Via<'_>,
        mut path: Path,
        mut key: u64,
        mut pointer: u64,
    ) -> FsResult<()> {
        let bits = via.disk.g.block_bits;
        let most = Node::children_max(via.disk.g.block_bytes());
        self.count(1, bits);
        let mut level = 1;
        while level < self.height() {
            let step = path[level];
            if self.node(step).children.len() < most || self.share(via, &mut path, level, most)? {
                self.put(&path, level, key, pointer);
                return Ok(());
            }
            // Split: the right half goes to a new node, which is inserted above.
            let new = self.take_pointer_at(via, pointer.wrapping_add(1))?;
            self.count(1, bits);
            let at = path[level].at;
            let node = self.dirty_node(step);
            let n = node.children.len();
            let mut moved = n.div_ceil(2);
            let goes_right = moved > n - at;
            moved -= usize::from(goes_right);
            let mut right =
                Node { level: node.level, children: node.children.split_off(n - moved) };
            let left = node.children.len();
            if goes_right {
                right.children.insert(at - left, (key, pointer));
                self.nodes.put_fresh(new, right);
            } else {
                self.nodes.put_fresh(new, right);
                self.put(&path, level, key, pointer);
            }
            let first = self.nodes.get(new).and_then(|node| node.children.first().copied());
            (key, pointer) = (first.map_or(key, |(k, _)| k), new);
            path[level + 1].at += 1;
            level += 1;
        }
        if self.root().children.len() < ROOT_CHILDREN {
            self.put(&path, level, key, pointer);
            return Ok(());
        }
        // The root's children move below a new node, which is the root's only child.
        let new = self.take_pointer_at(via, pointer.wrapping_add(1))?;
        self.count(1, bits);
        let root = self.root();
        let child = Node { level: root.level, children: std::mem::take(&mut root.children) };
        root.level += 1;
        self.nodes.put_fresh(new, child);
        let at = path[level].at;
        path[level] = Step { node: Some(new), at };
        let first = self.nodes.get(new).and_then(|node| node.children.first().copied());
        self.root().children.push((first.map_or(key, |(k, _)| k), new));
        path.grow();
        self.put(&path, level, key, pointer);
        Ok(())
    }

    /// Inserts into the node of a path's level, which has room.
    fn put(&mut self, path: &Path, level: usize, key: u64, pointer: u64) {
        let step = path[level];
        self.dirty_node(step).children.insert(step.at, (key, pointer));
        if step.at == 0 && level < path.top() {
            self.promote(path, level + 1, key);
        }
    }

    /// Gives children of a full node to a neighbour that has room, if one has; the path follows
    /// its place. `nilfs_btree_carry_left`, `nilfs_btree_carry_right`.
    fn share(
        &mut self,
        via: &mut Via<'_>,
        path: &mut Path,
        level: usize,
        most: usize,
    ) -> FsResult<bool> {
        let (step, above) = (path[level], path[level + 1]);
        let level_number = self.node(step).level;
        let n = self.node(step).children.len();
        let beside = |file: &mut File, via: &mut Via<'_>, at: Option<usize>| -> FsResult<_> {
            let child = at.and_then(|at| file.node(above).children.get(at).copied());
            let Some((_, pointer)) = child else { return Ok(None) };
            file.load_node(via, pointer, level_number)?;
            let beside = Step { node: Some(pointer), at: 0 };
            Ok(Some(beside).filter(|s| file.node(*s).children.len() < most))
        };
        if let Some(left) = beside(self, via, above.at.checked_sub(1))? {
            let have = self.node(left).children.len();
            let mut moved = (n + have).div_ceil(2) - have;
            let goes_left = moved > step.at;
            moved -= usize::from(goes_left);
            let rest = self.dirty_node(step).children.split_off(moved);
            let given = std::mem::replace(&mut self.dirty_node(step).children, rest);
            self.dirty_node(left).children.extend(given);
            let first = self.node(step).children.first().map_or(0, |(k, _)| *k);
            self.promote(path, level + 1, first);
            if goes_left {
                path[level] = Step { node: left.node, at: step.at + have };
                path[level + 1].at -= 1;
            } else {
                path[level].at -= moved;
            }
            return Ok(true);
        }
        if let Some(right) = beside(self, via, above.at.checked_add(1))? {
            let have = self.node(right).children.len();
            let mut moved = (n + have).div_ceil(2) - have;
            let goes_right = moved > n - step.at;
            moved -= usize::from(goes_right);
            let mut given = self.dirty_node(step).children.split_off(n - moved);
            let node = self.dirty_node(right);
            given.append(&mut node.children);
            node.children = given;
            let first = node.children.first().map_or(0, |(k, _)| *k);
            path[level + 1].at += 1;
            self.promote(path, level + 1, first);
            if goes_right {
                path[level] = Step { node: right.node, at: step.at - (n - moved) };
            } else {
                path[level + 1].at -= 1;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// What is to be written at this level (0: data) and key gets a pointer of its own, and so do
    /// the nodes above it. `nilfs_bmap_propagate`.
    pub(super) fn propagate(&mut self, via: &mut Via<'_>, level: usize, key: u64) -> FsResult<()> {
        if let Map::Direct(pointers) = self.map {
            if self.pointers == Pointers::Physical {
                return Ok(());
            }
            let old = pointers.get(index(key)).copied().unwrap_or(0);
            let new = self.renew(via, 0, key, old, old)?;
            if let Map::Direct(pointers) = &mut self.map
                && let Some(place) = pointers.get_mut(index(key))
            {
                *place = new;
            }
            return Ok(());
        }
        let lowest = level as u8 + 1;
        let (mut path, _) = self.path_to(via, key, lowest)?;
        if self.pointers != Pointers::Physical {
            let (_, old) = self.child(&path, level + 1).ok_or(FsError::Io)?;
            let new = self.renew(via, level, key, old, old.wrapping_add(1))?;
            self.point(via, &path, level + 1, new);
        }
        for above in level + 1..path.top() {
            let step = path[above];
            let pointer = step.node.ok_or(FsError::Io)?;
            let was_dirty = self.nodes.mark(pointer).ok_or(FsError::Io)?;
            if was_dirty {
                break;
            }
            if self.pointers != Pointers::Physical {
                let goal = pointer.wrapping_add(1);
                let is_passing = self.pointers == Pointers::Passing;
                let dat = via.dat.as_mut().ok_or(FsError::Io)?;
                let new = dat.replace(via.disk, pointer, goal, is_passing)?;
                self.nodes.rename(pointer, new);
                path[above].node = Some(new);
                self.point(via, &path, above + 1, new);
            }
        }
        Ok(())
    }

    /// The pointer under which a block or node is written: its own if it has one already.
    fn renew(
        &mut self,
        via: &mut Via<'_>,
        level: usize,
        key: u64,
        old: u64,
        goal: u64,
    ) -> FsResult<u64> {
        let is_passing = self.pointers == Pointers::Passing;
        let dat = via.dat.as_mut().ok_or(FsError::Io)?;
        let is_volatile = match level {
            0 => self.fresh.contains(&key),
            _ => self.nodes.is_volatile(old),
        };
        if is_volatile {
            dat.touch(via.disk, old)?;
            return Ok(old);
        }
        let new = dat.replace(via.disk, old, goal, is_passing)?;
        if level > 0 {
            self.nodes.rename(old, new);
        } else {
            self.fresh.insert(key);
        }
        Ok(new)
    }

    /// Sets the pointer at a path's place on a level. Nothing becomes dirty by that: it is.
    fn point(&mut self, via: &Via<'_>, path: &Path, level: usize, pointer: u64) {
        let step = path[level];
        match step.node {
            Some(node) => self.nodes.point(node, step.at, pointer, via.disk.g.block_bytes()),
            None => {
                if let Some(child) = self.root().children.get_mut(step.at) {
                    child.1 = pointer;
                }
            }
        }
    }

    /// What is at this level (0: data) and key lies at `block` of the device now; what the log's
    /// summary says of it. `nilfs_bmap_assign`.
    pub(super) fn assign(
        &mut self,
        via: &mut Via<'_>,
        level: usize,
        key: u64,
        block: u64,
    ) -> FsResult<BlockInfo> {
        let level_number = level as u8;
        if let Map::Direct(pointers) = &mut self.map {
            let place = pointers.get_mut(index(key)).ok_or(FsError::Io)?;
            return Ok(match via.dat.as_mut() {
                Some(dat) => {
                    dat.start(via.disk, *place, block)?;
                    BlockInfo { virtual_block: *place, offset: key, level: 0 }
                }
                None => {
                    *place = block;
                    BlockInfo { virtual_block: 0, offset: key, level: 0 }
                }
            });
        }
        let (path, _) = self.path_to(via, key, level_number + 1)?;
        let (first, pointer) = self.child(&path, level + 1).ok_or(FsError::Io)?;
        if let Some(dat) = via.dat.as_mut() {
            dat.start(via.disk, pointer, block)?;
            let offset = if level == 0 { first } else { 0 };
            return Ok(BlockInfo { virtual_block: pointer, offset, level: level_number });
        }
        if level > 0 {
            self.nodes.rename(pointer, block);
        }
        self.point(via, &path, level + 1, block);
        Ok(BlockInfo { virtual_block: 0, offset: first, level: level_number })
    }

    /// Nodes that are to be written, in the order of their pointers: level and first key.
    pub(super) fn wanted_nodes(&self) -> Vec<(usize, u64)> {
        let wanted = self.nodes.wanted(0..=u64::MAX).filter_map(|pointer| self.nodes.get(pointer));
        wanted.map(|n| (usize::from(n.level), n.children.first().map_or(0, |(k, _)| *k))).collect()
    }
}
