//! What was recovered already, found again by what recovery reads.
//!
//! A recovery reads one page, and what it reads next depends on what was there. So the recoveries
//! done so far are a tree: at each node a page, at each branch contents of it, at the leaves what
//! came out. A state that follows branches to a leaf is one that no recovery could tell from an
//! earlier one, whatever else differs.

use std::collections::BTreeMap;

enum Node {
    /// Number of a result.
    Leaf(u32),
    /// Page that is read here, and the node for each of its contents.
    Branch { page: u64, first: Option<(u128, u32)>, more: BTreeMap<u128, u32> },
}

/// The tree.
#[derive(Default)]
pub(crate) struct Known {
    nodes: Vec<Node>,
}

impl Known {
    /// The result for a state, of which `id(page)` tells the contents.
    pub(crate) fn find(&self, id: impl Fn(u64) -> u128) -> Option<u32> {
        let mut at = 0usize;
        loop {
            match self.nodes.get(at)? {
                Node::Leaf(result) => return Some(*result),
                Node::Branch { page, first, more } => {
                    let id = id(*page);
                    let next = match first {
                        Some((i, n)) if *i == id => Some(n),
                        _ => more.get(&id),
                    };
                    at = *next? as usize;
                }
            }
        }
    }

    /// Notes that a recovery read `pages` in this order and came to `result`.
    pub(crate) fn note(&mut self, pages: &[u64], id: impl Fn(u64) -> u128, result: u32) {
        if pages.is_empty() {
            if self.nodes.is_empty() {
                self.nodes.push(Node::Leaf(result));
            }
            return;
        }
        if self.nodes.is_empty() {
            self.nodes.push(branch(pages[0]));
        }
        let mut at = 0usize;
        for (i, page) in pages.iter().enumerate() {
            let end = self.nodes.len() as u32;
            let Some(Node::Branch { page: here, first, more }) = self.nodes.get_mut(at) else {
                // Two recoveries that read the same are the same.
                return;
            };
            debug_assert_eq!(here, page, "what is read next depends on what was read");
            let id = id(*page);
            let next = match first {
                Some((known, n)) if *known == id => Some(*n),
                _ => more.get(&id).copied(),
            };
            at = match next {
                Some(n) => n as usize,
                None => {
                    match first {
                        None => *first = Some((id, end)),
                        Some(_) => {
                            more.insert(id, end);
                        }
                    }
                    self.nodes.push(match pages.get(i + 1) {
                        Some(next) => branch(*next),
                        None => Node::Leaf(result),
                    });
                    end as usize
                }
            };
        }
    }
}

fn branch(page: u64) -> Node {
    Node::Branch { page, first: None, more: BTreeMap::new() }
}
