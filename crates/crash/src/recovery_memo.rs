//! What was recovered already, found again by what recovery reads.
//!
//! A recovery reads one page, and what it reads next depends on what was there. So the recoveries
//! done so far are a tree: at each node a page, at each branch contents of it, at the leaves what
//! came out. A state that follows branches to a leaf is one that no recovery could tell from an
//! earlier one, whatever else differs.
//!
//! Shape: pages that only one branch leads through are one node, a run: a recovery reads hundreds
//!        of pages, and parts from the others at few of them.

use std::collections::BTreeMap;

enum Node {
    /// Number of a result.
    Leaf(u32),
    /// Pages that are read from here on, the contents of each, and the node behind them.
    Run { pages: Box<[u64]>, ids: Box<[u128]>, next: u32 },
    /// Page that is read here, and the node for each of its contents.
    Branch { page: u64, first: (u128, u32), more: BTreeMap<u128, u32> },
}

/// The tree.
#[derive(Default)]
pub(crate) struct RecoveryMemo {
    nodes: Vec<Node>,
    root: Option<u32>,
}

impl RecoveryMemo {
    /// The result for a state, of which `id(page)` tells the contents. `read` becomes the pages
    /// that led to it.
    pub(crate) fn find(&self, id: impl Fn(u64) -> u128, read: &mut Vec<u64>) -> Option<u32> {
        read.clear();
        self.walk(id, |pages| read.extend_from_slice(pages))
    }

    /// The result alone.
    pub(crate) fn result(&self, id: impl Fn(u64) -> u128) -> Option<u32> {
        self.walk(id, |_| {})
    }

    /// The way to a result; `read` is shown the pages on it.
    #[inline]
    fn walk(&self, id: impl Fn(u64) -> u128, mut read: impl FnMut(&[u64])) -> Option<u32> {
        let mut at = self.root?;
        loop {
            match self.nodes.get(at as usize)? {
                Node::Leaf(result) => return Some(*result),
                Node::Run { pages, ids, next } => {
                    if pages.iter().zip(ids).any(|(page, held)| id(*page) != *held) {
                        return None;
                    }
                    read(pages);
                    at = *next;
                }
                Node::Branch { page, first, more } => {
                    let id = id(*page);
                    read(std::slice::from_ref(page));
                    at = if first.0 == id { first.1 } else { *more.get(&id)? };
                }
            }
        }
    }

    /// Notes that a recovery read `pages` in this order and came to `result`.
    pub(crate) fn note(&mut self, pages: &[u64], id: impl Fn(u64) -> u128, result: u32) {
        let Some(mut at) = self.root else {
            self.root = Some(self.tail(pages, &id, result));
            return;
        };
        let mut left = pages;
        loop {
            let end = match self.nodes.get(at as usize) {
                // Two recoveries that read the same are the same.
                None | Some(Node::Leaf(_)) => return,
                Some(Node::Run { pages, ids, .. }) => {
                    debug_assert_eq!(
                        left.first(),
                        pages.first(),
                        "what is read next depends on what was read"
                    );
                    let same = left.iter().zip(ids).take_while(|(page, held)| id(**page) == **held);
                    same.count()
                }
                Some(Node::Branch { .. }) => 0,
            };
            left = &left[end..];
            match &mut self.nodes[at as usize] {
                Node::Leaf(_) => return,
                Node::Run { pages, next, .. } if end == pages.len() => at = *next,
                Node::Run { .. } => at = self.split(at, end),
                Node::Branch { page, first, more } => {
                    debug_assert_eq!(
                        left.first(),
                        Some(&*page),
                        "what is read next depends on what was read"
                    );
                    let Some((here, rest)) = left.split_first() else { return };
                    let id_here = id(*here);
                    let next = if first.0 == id_here {
                        Some(first.1)
                    } else {
                        more.get(&id_here).copied()
                    };
                    left = rest;
                    let Some(next) = next else {
                        let tail = self.tail(rest, &id, result);
                        if let Node::Branch { more, .. } = &mut self.nodes[at as usize] {
                            more.insert(id_here, tail);
                        }
                        return;
                    };
                    at = next;
                }
            }
        }
    }

    fn push(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// A leaf, and a run of pages to it.
    fn tail(&mut self, pages: &[u64], id: &impl Fn(u64) -> u128, result: u32) -> u32 {
        let next = self.push(Node::Leaf(result));
        let ids = pages.iter().map(|page| id(*page)).collect();
        if pages.is_empty() {
            next
        } else {
            self.push(Node::Run { pages: pages.into(), ids, next })
        }
    }

    /// Takes a run apart at its page `n`, where another recovery has read other contents: the
    /// branch that stands there then.
    fn split(&mut self, at: u32, n: usize) -> u32 {
        let run = std::mem::replace(&mut self.nodes[at as usize], Node::Leaf(0));
        let Node::Run { pages, ids, next } = run else { unreachable!("only runs are taken apart") };
        let (behind, ids_behind) = (&pages[n + 1..], &ids[n + 1..]);
        let rest = match behind.is_empty() {
            true => next,
            false => self.push(Node::Run { pages: behind.into(), ids: ids_behind.into(), next }),
        };
        let branch = Node::Branch { page: pages[n], first: (ids[n], rest), more: BTreeMap::new() };
        if n == 0 {
            self.nodes[at as usize] = branch;
            return at;
        }
        let next = self.push(branch);
        self.nodes[at as usize] =
            Node::Run { pages: pages[..n].into(), ids: ids[..n].into(), next };
        next
    }
}

#[cfg(test)]
mod tests {
    use wp_base::Rng;

    use super::*;

    /// A disk of few pages with few contents; a recovery whose next page depends on what it read.
    fn recover(disk: &[u128]) -> (Vec<u64>, u32) {
        let (mut pages, mut at, mut sum) = (Vec::new(), 0u64, 0u32);
        for step in 0..12u64 {
            let held = disk[at as usize];
            pages.push(at);
            sum = sum.wrapping_mul(7).wrapping_add(held as u32);
            if held == 3 {
                break;
            }
            at = (at + 1 + step + held as u64) % disk.len() as u64;
        }
        (pages, sum)
    }

    #[test]
    fn what_is_found_is_what_a_recovery_would_come_to() {
        let mut rng = Rng::stream(1, "known");
        let mut known = RecoveryMemo::default();
        let mut read = Vec::new();
        let (mut hits, mut misses) = (0, 0);
        for _ in 0..4000 {
            let disk: Vec<u128> = (0..16).map(|_| u128::from(rng.below(4))).collect();
            let id = |page: u64| disk[page as usize];
            let (pages, result) = recover(&disk);
            match known.find(id, &mut read) {
                Some(found) => {
                    hits += 1;
                    assert_eq!(found, result);
                    assert_eq!(read, pages);
                }
                None => {
                    misses += 1;
                    known.note(&pages, id, result);
                    assert_eq!(known.find(id, &mut read), Some(result));
                    known.note(&pages, id, result);
                }
            }
        }
        assert!(hits > 500 && misses > 500, "{hits} hits, {misses} misses");
    }

    #[test]
    fn a_recovery_that_reads_nothing_is_known_for_every_state() {
        let mut known = RecoveryMemo::default();
        let mut read = Vec::new();
        assert_eq!(known.find(|_| 0, &mut read), None);
        known.note(&[], |_| 0, 5);
        assert_eq!(known.find(|_| 9, &mut read), Some(5));
    }

    #[test]
    fn pages_of_one_recovery_alone_are_one_node() {
        let mut known = RecoveryMemo::default();
        let pages: Vec<u64> = (0..1000).collect();
        known.note(&pages, |_| 1, 1);
        known.note(&pages, |page| u128::from(page != 500), 2);
        assert_eq!(known.nodes.len(), 6, "a run, a branch, two runs, two leaves");
    }
}
