//! Block maps: where the blocks of a file are.
//!
//! Picture:    [`BlockMap`], 56 bytes in an inode = six pointers (direct), or the root of a B-tree
//!             with up to three children -> [`Node`] blocks -> pointers of data
//! Invariants: keys of a node ascend; the children of a node of level n are of level n - 1, and
//!             those of level 1 are data. A child's first key is its key in the parent.
//! Units:      keys are blocks of the file. Pointers are virtual block numbers; in the DAT's own
//!             map, blocks of the device. 0: a hole.

use std::ops::Range;

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{index, lo16, view, wide};

/// Blocks that a direct map can name. `NILFS_DIRECT_NBLOCKS`.
pub const DIRECT: u64 = 6;
/// Children that a root in an inode has room for. `NILFS_BTREE_ROOT_NCHILDREN_MAX`.
pub const ROOT_CHILDREN: usize = 3;
/// Levels are below this. `NILFS_BTREE_LEVEL_MAX`.
pub const LEVELS: u8 = 14;

/// Head of a node; keys and pointers follow. `struct nilfs_btree_node`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    /// `bn_flags`: [`ROOT`] in an inode.
    flags: u8,
    /// `bn_level`, from 1 on.
    level: u8,
    /// `bn_nchildren`.
    nchildren: U16,
    /// `bn_pad`.
    pad: U32,
}
const _: () = assert!(size_of::<Head>() == 8);

/// `NILFS_BTREE_NODE_ROOT`, also `NILFS_BMAP_LARGE`: the map is a tree.
const ROOT: u8 = 1;

/// `i_bmap` of an inode.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct BlockMap {
    /// A word with flags, and six more.
    pub words: [U64; 7],
}

/// What a block map is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Map {
    /// Pointers of blocks 0 to 5; 0: a hole.
    Direct([u64; 6]),
    /// The root of a tree.
    Tree(Node),
}

impl BlockMap {
    /// What it is. `at`: byte address of the inode, for the error.
    ///
    /// Source: `nilfs_btree_root_broken`.
    pub fn load(&self, at: u64) -> Result<Map, Corruption> {
        let bytes = self.as_bytes();
        if bytes.first().is_some_and(|flags| flags & ROOT == 0) {
            let [_, pointers @ ..] = self.words;
            return Ok(Map::Direct(pointers.map(U64::get)));
        }
        let (level, children) = parts(bytes, size_of::<Head>(), ROOT_CHILDREN)
            .map_err(|n| wrong("bn_nchildren", at, wide(n), format!("0 to {ROOT_CHILDREN}")))?;
        let node = Node { level, children };
        if node.children.is_empty() && level > 1 {
            return Err(wrong("bn_nchildren", at, 0, "1 or more above level 1".to_owned()));
        }
        node.verify(at)?;
        Ok(Map::Tree(node))
    }

    /// The map as it stands in an inode.
    ///
    /// Panics: a root with more children than it has room for.
    pub fn store(map: &Map) -> BlockMap {
        let mut out = BlockMap { words: [U64::new(0); 7] };
        match map {
            Map::Direct(pointers) => {
                let [_, words @ ..] = &mut out.words;
                *words = pointers.map(U64::new);
            }
            Map::Tree(root) => {
                assert!(root.children.len() <= ROOT_CHILDREN, "{} children", root.children.len());
                root.put(out.as_mut_bytes(), size_of::<Head>(), ROOT_CHILDREN, ROOT);
            }
        }
        out
    }
}

/// A node of a tree, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Level, from 1 on.
    pub level: u8,
    /// Keys with their pointers, ascending.
    pub children: Vec<(u64, u64)>,
}

impl Node {
    /// Where keys start in a node that is a block.
    const KEYS_AT: usize = size_of::<Head>() + 8;

    /// Children that a block has room for. `NILFS_BTREE_NODE_NCHILDREN_MAX`.
    pub const fn children_max(block_bytes: usize) -> usize {
        (block_bytes - Self::KEYS_AT) / 16
    }
    /// Children that a block is not to have fewer of. `NILFS_BTREE_NODE_NCHILDREN_MIN`.
    pub const fn children_min(block_bytes: usize) -> usize {
        (Self::children_max(block_bytes) - 1) / 2 + 1
    }

    /// The node that a block holds, of which the parent says that it has this level. `at`: byte
    /// address of the block, for the error.
    ///
    /// Source: `nilfs_btree_node_broken`, `nilfs_btree_bad_node`.
    pub fn load(block: &[u8], level: u8, at: u64) -> Result<Node, Corruption> {
        let most = Self::children_max(block.len());
        let (found, children) = parts(block, Self::KEYS_AT, most)
            .map_err(|n| wrong("bn_nchildren", at, wide(n), format!("1 to {most}")))?;
        let flags = block.first().copied().unwrap_or(0);
        if flags & ROOT != 0 {
            return Err(wrong("bn_flags", at, flags.into(), "no root".to_owned()));
        }
        if found != level {
            return Err(wrong("bn_level", at, found.into(), level.to_string()));
        }
        if children.is_empty() {
            return Err(wrong("bn_nchildren", at, 0, format!("1 to {most}")));
        }
        let node = Node { level, children };
        node.verify(at)?;
        Ok(node)
    }

    fn verify(&self, at: u64) -> Result<(), Corruption> {
        if !(1..LEVELS).contains(&self.level) {
            let expected = format!("1 to {}", LEVELS - 1);
            return Err(wrong("bn_level", at, self.level.into(), expected));
        }
        for ((key, _), (next, _)) in self.children.iter().zip(self.children.iter().skip(1)) {
            if next <= key {
                return Err(wrong("key", at, *next, format!("more than {key:#x}")));
            }
        }
        Ok(())
    }

    /// The block that holds it.
    ///
    /// Panics: more children than it has room for.
    pub fn store(&self, block_bytes: usize) -> Vec<u8> {
        let mut block = vec![0; block_bytes];
        self.store_in(&mut block);
        block
    }

    /// The same, in a block of zeroes.
    pub fn store_in(&self, block: &mut [u8]) {
        let most = Self::children_max(block.len());
        assert!(self.children.len() <= most, "{} children", self.children.len());
        self.put(block, Self::KEYS_AT, most, 0);
    }

    fn put(&self, bytes: &mut [u8], keys_at: usize, most: usize, flags: u8) {
        let nchildren = lo16(wide(self.children.len())).into();
        let head = Head { flags, level: self.level, nchildren, pad: 0.into() };
        head.write_to_prefix(bytes).expect("a node has room for its head");
        let (_, words) = bytes.split_at_mut(keys_at);
        let words = <[U64]>::mut_from_bytes_with_elems(words, words.len() / 8);
        if let Ok(words) = words {
            let (keys, pointers) = words.split_at_mut(most);
            for ((k, p), (key, pointer)) in keys.iter_mut().zip(pointers).zip(&self.children) {
                (*k, *p) = ((*key).into(), (*pointer).into());
            }
        }
    }

    /// Bytes from `at` on, as many as `out` has, of the block of `block_bytes` that holds it; all
    /// of them multiples of eight.
    pub fn store_part(&self, block_bytes: usize, at: usize, out: &mut [u8]) {
        let most = Self::children_max(block_bytes);
        out.fill(0);
        let nchildren = lo16(wide(self.children.len())).into();
        let head = Head { flags: 0, level: self.level, nchildren, pad: 0.into() };
        if at == 0 {
            head.write_to_prefix(out).expect("a node has room for its head");
        }
        let Ok(words) = <[U64]>::mut_from_bytes(out) else { return };
        let mut store = |first: usize, word: fn(&(u64, u64)) -> u64| {
            let skipped = (at / 8).saturating_sub(first);
            let places = words.iter_mut().skip(first.saturating_sub(at / 8));
            let children = self.children.iter().skip(skipped).take(most.saturating_sub(skipped));
            places.zip(children).for_each(|(place, child)| *place = word(child).into());
        };
        store(Self::KEYS_AT / 8, |(key, _)| *key);
        store(Self::KEYS_AT / 8 + most, |(_, pointer)| *pointer);
    }

    /// The bytes of a child's pointer in a block of `block_bytes`.
    pub fn pointer_at(child: usize, block_bytes: usize) -> Range<usize> {
        let at = Self::KEYS_AT + (Self::children_max(block_bytes) + child) * 8;
        at..at + 8
    }

    /// Which child a key is below, or is: the last with a key of no more. `None`: before all.
    pub fn child_of(&self, key: u64) -> Option<usize> {
        self.children.partition_point(|(k, _)| *k <= key).checked_sub(1)
    }

    /// The place of a key that is there, or where it would be.
    pub fn find(&self, key: u64) -> Result<usize, usize> {
        self.children.binary_search_by_key(&key, |(k, _)| *k)
    }
}

/// Level and children; `Err` with their number if there are more than `most`.
fn parts(bytes: &[u8], keys_at: usize, most: usize) -> Result<(u8, Vec<(u64, u64)>), usize> {
    let head = view::<Head>(bytes, 0).ok_or(usize::MAX)?;
    let n = usize::from(head.nchildren.get());
    if n > most {
        return Err(n);
    }
    let word = |i: usize| view::<U64>(bytes, keys_at + i * 8).map_or(0, |w| w.get());
    Ok((head.level, (0..n).map(|i| (word(i), word(most + i))).collect()))
}

fn wrong(field: &'static str, at: u64, found: u64, expected: String) -> Corruption {
    Corruption { structure: "nilfs2 block map", field, at, found, expected }
}

/// The pointer of a block in a direct map; 0 beyond what it can name.
pub fn direct(pointers: &[u64; 6], key: u64) -> u64 {
    pointers.get(index(key)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_nodes_are_read_as_they_were_written() {
        let direct = Map::Direct([9, 0, 7, 0, 0, 1]);
        let root = Node { level: 2, children: vec![(0, 5), (77, 3), (1 << 40, 8)] };
        for map in [direct, Map::Tree(root)] {
            assert_eq!(BlockMap::store(&map).load(0), Ok(map));
        }
        for block in [1024, 4096] {
            let most = Node::children_max(block);
            let children = (0..wide(most)).map(|n| (n * 3, n + 100)).collect();
            let node = Node { level: 1, children };
            let bytes = node.store(block);
            assert_eq!(Node::load(&bytes, 1, 0), Ok(node));
            assert!(Node::load(&bytes, 2, 0).is_err());
        }
        assert_eq!((Node::children_max(4096), Node::children_max(1024)), (255, 63));
    }

    #[test]
    fn a_part_of_a_block_is_that_of_the_whole() {
        for block in [1024, 4096] {
            for n in [1, 30, Node::children_max(block) - 1, Node::children_max(block)] {
                let children = (0..wide(n)).map(|n| (n * 3 + 1, n + 100)).collect();
                let node = Node { level: 1, children };
                let whole = node.store(block);
                for part in [8, 64, 256, block] {
                    let mut parts = vec![9; block];
                    for (i, out) in parts.chunks_mut(part).enumerate() {
                        node.store_part(block, i * part, out);
                    }
                    assert_eq!(parts, whole, "{n} children, parts of {part}");
                }
                let mut moved = node.clone();
                moved.children.last_mut().expect("one at least").1 = u64::MAX;
                let bytes = moved.store(block);
                let differ = (0..block).filter(|at| bytes.get(*at) != whole.get(*at));
                assert!(differ.into_iter().all(|at| Node::pointer_at(n - 1, block).contains(&at)));
            }
        }
    }

    #[test]
    fn keys_that_do_not_ascend_are_refused() {
        let node = Node { level: 1, children: vec![(5, 1), (5, 2)] };
        assert!(Node::load(&node.store(1024), 1, 0).is_err());
    }
}
