//! The tree of a file's nodes: which node has the address of which block.
//!
//! Picture:    a node's *offset* (upper bits of its footer's flag) is its place in the tree, with
//!             N = 1018:
//!
//! ```text
//! 0 inode
//! 1, 2 direct        3 indirect -> 4 .. 3+N direct      4+N indirect -> 5+N .. 4+2N direct
//! 5+2N double indirect -> 6+2N + i(N+1) indirect -> the N behind it, direct
//! ```
//!
//! Source:     `get_node_path`, `f2fs_start_bidx_of_node`, `IS_DNODE`, `addrs_per_inode`.

use std::mem::offset_of;
use std::ops::Range;

use super::inode::{InodeExtra, flag, inline};
use super::{Inode, Node, feature, index};

/// Words per indirect node.
const N: u32 = Node::WORDS;
/// Offset of the first indirect node.
const IND1: u32 = 3;
/// Offset of the second.
const IND2: u32 = 4 + N;
/// Offset of the double indirect node.
const DIND: u32 = 5 + 2 * N;

/// Offset in the footer of a node with attributes: all bits set. `XATTR_NODE_OFFSET`.
pub const XATTR_OFFSET: u32 = u32::MAX >> super::Footer::OFFSET_SHIFT;

/// Does a node with this offset have addresses of data? `IS_DNODE`, without attribute nodes.
pub fn is_direct(offset: u32) -> bool {
    match offset {
        IND1 | IND2 | DIND => false,
        o if o > DIND => !(o - DIND - 1).is_multiple_of(N + 1),
        _ => true,
    }
}

/// Offset of the last node that a tree can have.
pub const OFFSET_MAX: u32 = DIND + N * (N + 1);

/// How the words of an inode are used, on which the file's whole map depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Words of extra fields at the start.
    pub extra_words: u32,
    /// Words of attributes at the end.
    pub xattr_words: u32,
    /// Addresses of data in the inode. `ADDRS_PER_INODE`.
    pub inode_addrs: u32,
    /// Addresses of data in a direct node. `ADDRS_PER_BLOCK`.
    pub node_addrs: u32,
}

/// Where the address of a block of a file stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Nodes between the inode and the address: 0 (it is in the inode) to 3.
    pub depth: u32,
    /// For each of those nodes, from the inode down: its number among the node ids of the node
    /// above (0 to 4 in the inode), and its offset in the tree. The last one is a direct node.
    pub path: [(u32, u32); 3],
    /// Which address in the last node (in the inode: behind the extra fields).
    pub slot: u32,
}

impl Place {
    /// The steps from the inode to the node with the address.
    pub fn steps(&self) -> &[(u32, u32)] {
        self.path.get(..index(self.depth)).unwrap_or(&self.path)
    }

    /// Offset of the node with the address.
    pub fn offset(&self) -> u32 {
        self.steps().last().map_or(0, |s| s.1)
    }
}

impl Shape {
    /// Fewest words for attributes where there are some: their header.
    pub const XATTR_WORDS_MIN: u32 = 6;
    /// `MAX_INLINE_XATTR_SIZE`: extra fields, and `.` and `..` must fit besides.
    pub const XATTR_WORDS_MAX: u32 = Inode::WORDS - 9 - 1 - 10;

    /// Of an inode. `sb_feature`: of the super block. Wrong sizes are cut off, so that nothing
    /// reaches beyond the words ([`Inode::verify`] refuses them).
    pub fn of(inode: &Inode, sb_feature: u32) -> Shape {
        let extra_words = (inode.extra_bytes() / 4).min(Inode::WORDS);
        let xattr_words = if sb_feature & feature::FLEXIBLE_INLINE_XATTR != 0 {
            inode.extra().inline_xattr_size.get().into()
        } else if inode.inline & (inline::XATTR | inline::DENTRY) != 0 {
            Inode::XATTR_WORDS
        } else {
            0
        };
        let xattr_words = u32::min(xattr_words, Inode::WORDS - extra_words);
        let room = Inode::WORDS - extra_words - xattr_words;
        let cluster = Self::cluster_blocks(inode, sb_feature);
        Shape {
            extra_words,
            xattr_words,
            inode_addrs: room - room % cluster,
            node_addrs: N - N % cluster,
        }
    }

    /// Blocks of a compressed cluster; 1 without compression.
    fn cluster_blocks(inode: &Inode, sb_feature: u32) -> u32 {
        let end = offset_of!(InodeExtra, log_cluster_size) + 1;
        let log = u32::from(inode.extra().log_cluster_size);
        let is_compressed = inode.is_file()
            && sb_feature & feature::COMPRESSION != 0
            && inode.flags.get() & flag::COMPR != 0
            && inode.has_extra(end);
        // `MIN_COMPRESS_LOG_SIZE` to `MAX_COMPRESS_LOG_SIZE`.
        if is_compressed && (2..=8).contains(&log) { 1 << log } else { 1 }
    }

    /// Bytes of the words where inline data or names are.
    pub(super) fn inline_range(&self) -> Range<usize> {
        let start = self.extra_words + Inode::INLINE_RESERVED;
        let end = Inode::WORDS - self.xattr_words;
        4 * index(start.min(end))..4 * index(end)
    }

    /// Where in its block an inode's inline data begins, in bytes.
    pub fn inline_at(&self) -> u64 {
        super::wide(Inode::WORDS_AT + self.inline_range().start)
    }

    /// Bytes of inline data that fit. `MAX_INLINE_DATA`.
    pub fn inline_bytes(&self) -> u32 {
        super::count(self.inline_range().len())
    }

    /// Bytes of the words where attributes are.
    pub(super) fn xattr_range(&self) -> Range<usize> {
        4 * index(Inode::WORDS - self.xattr_words)..4 * index(Inode::WORDS)
    }

    /// Blocks that a file can have.
    pub fn blocks_max(&self) -> u64 {
        let (node, n) = (u64::from(self.node_addrs), u64::from(N));
        u64::from(self.inode_addrs) + node * (2 + 2 * n + n * n)
    }

    /// Where the address of block `block` of the file stands; `None` beyond the largest file.
    pub fn place(&self, block: u64) -> Option<Place> {
        let per_node = u64::from(self.node_addrs);
        let n = u64::from(N);
        let at = |rest: u64| super::lo32(rest % per_node);
        let inode = u64::from(self.inode_addrs);
        if block < inode {
            return Some(Place { depth: 0, path: [(0, 0); 3], slot: super::lo32(block) });
        }
        let rest = block - inode;
        if rest < 2 * per_node {
            let which = super::lo32(rest / per_node);
            let path = [(which, 1 + which), (0, 0), (0, 0)];
            return Some(Place { depth: 1, path, slot: at(rest) });
        }
        let rest = rest - 2 * per_node;
        if rest < 2 * n * per_node {
            let which = super::lo32(rest / (n * per_node));
            let child = super::lo32(rest / per_node % n);
            let node = IND1 + which * (N + 1);
            let path = [(2 + which, node), (child, node + 1 + child), (0, 0)];
            return Some(Place { depth: 2, path, slot: at(rest) });
        }
        let rest = rest - 2 * n * per_node;
        if rest < n * n * per_node {
            let middle = super::lo32(rest / (n * per_node));
            let child = super::lo32(rest / per_node % n);
            let node = DIND + 1 + middle * (N + 1);
            let path = [(4, DIND), (middle, node), (child, node + 1 + child)];
            return Some(Place { depth: 3, path, slot: at(rest) });
        }
        None
    }

    /// First block of the file whose address stands in the direct node with this offset.
    /// `None` for a node that has none. `f2fs_start_bidx_of_node`.
    pub fn first_block(&self, offset: u32) -> Option<u64> {
        if offset == 0 {
            return Some(0);
        }
        if !is_direct(offset) || offset > OFFSET_MAX {
            return None;
        }
        // How many direct nodes come before it.
        let before = match offset {
            1 | 2 => offset - 1,
            o if o < IND2 => o - 2,
            o if o < DIND => o - 3,
            o => {
                let (group, child) = ((o - DIND - 1) / (N + 1), (o - DIND - 1) % (N + 1) - 1);
                2 + 2 * N + group * N + child
            }
        };
        Some(u64::from(self.inode_addrs) + u64::from(before) * u64::from(self.node_addrs))
    }

    /// Addresses of data in the node with this offset; 0 in one that has none.
    pub fn addrs_of(&self, offset: u32) -> u32 {
        match offset {
            0 => self.inode_addrs,
            o if is_direct(o) => self.node_addrs,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shape =
        Shape { extra_words: 0, xattr_words: 50, inode_addrs: 873, node_addrs: 1018 };

    #[test]
    fn place_and_first_block_agree_at_every_boundary() {
        let n = u64::from(N);
        let starts = [
            (0, 0),
            (873, 1),
            (873 + n, 2),
            (873 + 2 * n, 4),
            (873 + (2 + n) * n, 5 + N),
            (873 + (2 + 2 * n) * n, DIND + 2),
            (873 + (2 + 3 * n) * n, DIND + 2 + N + 1),
        ];
        for (block, offset) in starts {
            let place = PLAIN.place(block).expect("within the largest file");
            assert_eq!((place.offset(), place.slot), (offset, 0), "block {block}");
            assert_eq!(PLAIN.first_block(offset), Some(block));
            if block > 0 {
                let before = PLAIN.place(block - 1).expect("within the largest file");
                assert!(
                    before.offset() < offset && before.slot + 1 == PLAIN.addrs_of(before.offset())
                );
            }
        }
        assert_eq!(PLAIN.place(PLAIN.blocks_max()), None);
        let last = PLAIN.place(PLAIN.blocks_max() - 1).expect("the last block");
        assert_eq!((last.offset(), last.slot, last.depth), (OFFSET_MAX, 1017, 3));
    }

    #[test]
    fn every_offset_of_a_tree_is_found_again_from_its_first_block() {
        let offsets = (0..3000).chain(DIND - 5..DIND + 4000).chain(OFFSET_MAX - 3000..=OFFSET_MAX);
        for offset in offsets {
            match PLAIN.first_block(offset) {
                Some(block) => {
                    let place = PLAIN.place(block).expect("within the largest file");
                    assert_eq!((place.offset(), place.slot), (offset, 0));
                }
                None => assert!(!is_direct(offset), "{offset}"),
            }
        }
        assert_eq!(PLAIN.first_block(OFFSET_MAX + 1), None);
        assert_eq!(PLAIN.first_block(XATTR_OFFSET), None);
    }
}
