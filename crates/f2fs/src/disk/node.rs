//! Node blocks: what all of them have, the footer, and direct and indirect ones.
//!
//! Picture:    node block = inode | 1018 addresses of data | 1018 node ids; then 24 bytes of
//!             footer.
//! Source:     `struct f2fs_node`, fs/f2fs/node.h.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES, Block, index};

/// End of every node block. `struct node_footer`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Footer {
    /// `nid` of this node.
    pub nid: U32,
    /// `ino` of the file that it belongs to; of an inode its own number.
    pub ino: U32,
    /// `flag`: marks, and from bit 3 on the node's place in its file's tree.
    pub flag: U32,
    /// `cp_ver`: the checkpoint after which it was written, [`super::Checkpoint::node_version`].
    pub cp_ver: U64,
    /// `next_blkaddr`: where the log goes on. Recovery follows it.
    pub next_blkaddr: U32,
}
const _: () = assert!(size_of::<Footer>() == Footer::BYTES);

impl Footer {
    /// Its size in bytes.
    pub const BYTES: usize = 24;
    /// Bit of `flag`: belongs to no directory (or is rarely written). `COLD_BIT_SHIFT`.
    pub const COLD: u32 = 1;
    /// Bit of `flag`: written by an fsync. `FSYNC_BIT_SHIFT`.
    pub const FSYNC: u32 = 2;
    /// Bit of `flag`: the inode's name is to be recovered too. `DENT_BIT_SHIFT`.
    pub const DENTRY: u32 = 4;
    /// `OFFSET_BIT_SHIFT`.
    pub const OFFSET_SHIFT: u32 = 3;

    /// The footer of a block.
    pub fn of(block: &Block) -> &Footer {
        Footer::ref_from_suffix(block).expect("a block is longer").1
    }

    /// The footer of a block, to change it.
    pub fn of_mut(block: &mut Block) -> &mut Footer {
        Footer::mut_from_suffix(block).expect("a block is longer").1
    }

    /// Has it all of these marks?
    pub fn has(&self, marks: u32) -> bool {
        self.flag.get() & marks == marks
    }

    /// Sets or clears marks.
    pub fn set_mark(&mut self, marks: u32, to: bool) {
        let now = self.flag.get();
        self.flag = if to { now | marks } else { now & !marks }.into();
    }

    /// Place of the node in its file's tree, see [`super::tree`]. `ofs_of_node`.
    pub fn offset(&self) -> u32 {
        self.flag.get() >> Self::OFFSET_SHIFT
    }

    /// Sets the place in the tree; marks stay. `fill_node_footer`.
    pub fn set_offset(&mut self, offset: u32) {
        let marks = self.flag.get() & ((1 << Self::OFFSET_SHIFT) - 1);
        self.flag = (offset << Self::OFFSET_SHIFT | marks).into();
    }

    /// Is it that of an inode? `IS_INODE`.
    pub fn is_inode(&self) -> bool {
        self.nid == self.ino
    }
}

/// A direct or an indirect node: addresses of data or ids of nodes. `struct direct_node`,
/// `struct indirect_node`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Node {
    words: [U32; 1018],
    /// `footer`.
    pub footer: Footer,
}
const _: () = assert!(size_of::<Node>() == BLOCK_BYTES);
const _: () = assert!(offset_of!(Node, footer) == BLOCK_BYTES - Footer::BYTES);

impl Node {
    /// `DEF_ADDRS_PER_BLOCK`, `NIDS_PER_BLOCK`.
    pub const WORDS: u32 = 1018;
    /// Bytes of a node without the footer; what attributes have in a node of theirs.
    pub const BODY_BYTES: usize = BLOCK_BYTES - Footer::BYTES;

    /// A block as a direct or indirect node.
    pub fn of(block: &Block) -> &Node {
        Node::ref_from_bytes(block).expect("it is a whole block")
    }

    /// A block as a direct or indirect node, to change it.
    pub fn of_mut(block: &mut Block) -> &mut Node {
        Node::mut_from_bytes(block).expect("it is a whole block")
    }

    /// Address or node id number `n`; 0 beyond the last.
    pub fn word(&self, n: u32) -> u32 {
        self.words.get(index(n)).map_or(0, |w| w.get())
    }

    /// Sets address or node id number `n`. Panics beyond the last.
    pub fn set_word(&mut self, n: u32, to: u32) {
        *self.words.get_mut(index(n)).expect("a place of the node") = to.into();
    }

    /// All of them.
    pub fn words(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.words.iter().map(|w| w.get())
    }
}
