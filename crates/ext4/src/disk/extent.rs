//! Extent trees: the root lies in the inode, other nodes fill a block each.
//!
//! Picture:    node = header, then `entries_max` slots of 12 bytes (leaf: [`Extent`], inner:
//!             [`ExtentIdx`]), then, outside inodes and with metadata_csum, [`ExtentTail`].
//! Invariants: 1. entries are sorted by first logical block and do not overlap.
//!             2. `depth` falls by one at each level and is 0 in leaves.

use std::mem::offset_of;

use wp_base::Corruption;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{hi32, index, lo16, lo32};

/// Node header, the first 12 bytes. `struct ext4_extent_header`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ExtentHeader {
    /// `eh_magic`, always [`Self::MAGIC`].
    pub magic: U16,
    /// `eh_entries`, entries in use, at most `entries_max`.
    pub entries: U16,
    /// `eh_max`, entries that fit in this node.
    pub entries_max: U16,
    /// `eh_depth`, 0 in a leaf, at most [`Self::DEPTH_MAX`].
    pub depth: U16,
    /// `eh_generation`, unused by Linux; kept on rewrite.
    pub generation: U32,
}
const _: () = assert!(size_of::<ExtentHeader>() == 12);
const _: () = assert!(offset_of!(ExtentHeader, depth) == 6);

/// Entry of a leaf: a run of blocks. `struct ext4_extent`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Extent {
    /// `ee_block`, first logical block.
    pub block: U32,
    /// `ee_len`; see [`Self::blocks`] and [`Self::is_unwritten`].
    pub len: U16,
    /// `ee_start_hi`.
    pub start_hi: U16,
    /// `ee_start_lo`.
    pub start_lo: U32,
}
const _: () = assert!(size_of::<Extent>() == ExtentNode::ENTRY_BYTES);
const _: () = assert!(offset_of!(Extent, start_lo) == 8);

/// Entry of an inner node: where the child lies. `struct ext4_extent_idx`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ExtentIdx {
    /// `ei_block`, the child covers logical blocks from here on.
    pub block: U32,
    /// `ei_leaf_lo`.
    pub leaf_lo: U32,
    /// `ei_leaf_hi`.
    pub leaf_hi: U16,
    /// `ei_unused`.
    pub unused: U16,
}
const _: () = assert!(size_of::<ExtentIdx>() == ExtentNode::ENTRY_BYTES);
const _: () = assert!(offset_of!(ExtentIdx, leaf_hi) == 8);

/// Checksum after the last slot of a node in a block of its own. `struct ext4_extent_tail`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ExtentTail {
    /// `et_checksum`, of everything before it.
    pub checksum: U32,
}
const _: () = assert!(size_of::<ExtentTail>() == 4);

impl ExtentHeader {
    /// `EXT4_EXT_MAGIC`.
    pub const MAGIC: u16 = 0xF30A;
    /// `EXT4_MAX_EXTENT_DEPTH`: a tree as deep maps more than 2^32 blocks, so a deeper one is
    /// wrong.
    pub const DEPTH_MAX: u16 = 5;

    /// Header of an empty node of `bytes` bytes: 60 in an inode, else the block size.
    pub fn empty(bytes: usize, depth: u16) -> ExtentHeader {
        let slots = (bytes - size_of::<ExtentHeader>()) / ExtentNode::ENTRY_BYTES;
        ExtentHeader {
            magic: Self::MAGIC.into(),
            entries: 0.into(),
            entries_max: u16::try_from(slots)
                .expect("a block holds fewer than 2^16 entries")
                .into(),
            depth: depth.into(),
            generation: 0.into(),
        }
    }
}

impl Extent {
    /// Longest initialised extent (`EXT_INIT_MAX_LEN`). A larger length means unwritten and is this
    /// much too large; unwritten extents end one block earlier.
    pub const LEN_MAX: u16 = 1 << 15;

    /// A run of `blocks` blocks. Panics if they are more than an extent can hold, or none.
    pub fn new(logical: u32, start: u64, blocks: u32, unwritten: bool) -> Extent {
        let max = u32::from(Self::LEN_MAX) - u32::from(unwritten);
        assert!(blocks > 0 && blocks <= max, "{blocks} blocks do not fit an extent");
        let len = if unwritten { blocks + u32::from(Self::LEN_MAX) } else { blocks };
        Extent {
            block: logical.into(),
            len: lo16(len).into(),
            start_hi: lo16(hi32(start)).into(),
            start_lo: lo32(start).into(),
        }
    }
    /// First logical block.
    pub fn logical(&self) -> u32 {
        self.block.get()
    }
    /// Blocks in the run.
    pub fn blocks(&self) -> u32 {
        let len = self.len.get();
        u32::from(if len > Self::LEN_MAX { len - Self::LEN_MAX } else { len })
    }
    /// Allocated, but reads as zeroes.
    pub fn is_unwritten(&self) -> bool {
        self.len.get() > Self::LEN_MAX
    }
    /// First block on the device.
    pub fn start(&self) -> u64 {
        u64::from(self.start_lo.get()) | u64::from(self.start_hi.get()) << 32
    }
    /// First logical block after the run; may be 2^32.
    pub fn end(&self) -> u64 {
        u64::from(self.logical()) + u64::from(self.blocks())
    }
}

impl ExtentIdx {
    /// The child at block `leaf`, which covers logical blocks from `logical` on.
    pub fn new(logical: u32, leaf: u64) -> ExtentIdx {
        ExtentIdx {
            block: logical.into(),
            leaf_lo: lo32(leaf).into(),
            leaf_hi: lo16(hi32(leaf)).into(),
            unused: 0.into(),
        }
    }
    /// First logical block that the child covers.
    pub fn logical(&self) -> u32 {
        self.block.get()
    }
    /// Block of the child.
    pub fn leaf(&self) -> u64 {
        u64::from(self.leaf_lo.get()) | u64::from(self.leaf_hi.get()) << 32
    }
}

/// A verified node.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    header: ExtentHeader,
    slots: &'a [u8],
}

/// What an [`ExtentNode`] holds.
#[derive(Clone, Copy, Debug)]
pub enum ExtentEntries<'a> {
    /// Of a leaf.
    Leaf(&'a [Extent]),
    /// Of an inner node.
    Inner(&'a [ExtentIdx]),
}

impl<'a> ExtentNode<'a> {
    /// Bytes of an entry, whichever kind.
    pub const ENTRY_BYTES: usize = 12;

    /// The node in `bytes` (60 of an inode, or a block), which was read from byte address `at`.
    ///
    /// `depth` is what the parent demands, `None` for a root. Checks what `ext4_ext_check` does:
    /// header, number of entries, their order, and that runs end before logical block 2^32. Whether
    /// blocks lie on the device is for the caller, who knows it.
    pub fn verify(
        bytes: &'a [u8],
        at: u64,
        depth: Option<u16>,
    ) -> Result<ExtentNode<'a>, Corruption> {
        let wrong = |field, found: u64, expected: String| Corruption {
            structure: "ext4 extent node",
            field,
            at,
            found,
            expected,
        };
        let Ok((header, slots)) = ExtentHeader::read_from_prefix(bytes) else {
            return Err(wrong("eh_magic", 0, "12 bytes or more".to_owned()));
        };
        if header.magic.get() != ExtentHeader::MAGIC {
            return Err(wrong("eh_magic", header.magic.get().into(), "0xf30a".to_owned()));
        }
        let found = header.depth.get();
        match depth {
            Some(d) if found != d => return Err(wrong("eh_depth", found.into(), d.to_string())),
            _ if found > ExtentHeader::DEPTH_MAX => {
                return Err(wrong("eh_depth", found.into(), "0 to 5".to_owned()));
            }
            _ => {}
        }
        let room = slots.len() / Self::ENTRY_BYTES;
        let max = usize::from(header.entries_max.get());
        if max == 0 || max > room {
            return Err(wrong("eh_max", super::wide(max), format!("1 to {room}")));
        }
        let used = usize::from(header.entries.get());
        if used > max {
            return Err(wrong("eh_entries", super::wide(used), format!("0 to {max}")));
        }
        if used == 0 && found > 0 {
            return Err(wrong("eh_entries", 0, "1 or more in an inner node".to_owned()));
        }
        let node =
            ExtentNode { header, slots: slots.get(..used * Self::ENTRY_BYTES).unwrap_or(&[]) };
        node.verify_order()
            .map_err(|(field, n)| wrong(field, n, "ascending, without overlap".to_owned()))?;
        Ok(node)
    }

    fn verify_order(&self) -> Result<(), (&'static str, u64)> {
        let mut next = 0u64;
        match self.entries() {
            ExtentEntries::Leaf(leaf) => {
                for e in leaf {
                    if e.blocks() == 0 {
                        return Err(("ee_len", 0));
                    }
                    if u64::from(e.logical()) < next {
                        return Err(("ee_block", e.logical().into()));
                    }
                    // Linux knows logical blocks up to 2^32 - 2.
                    if e.end() > u64::from(u32::MAX) {
                        return Err(("ee_len", e.blocks().into()));
                    }
                    next = e.end();
                }
            }
            ExtentEntries::Inner(inner) => {
                for e in inner {
                    if u64::from(e.logical()) < next {
                        return Err(("ei_block", e.logical().into()));
                    }
                    next = u64::from(e.logical()) + 1;
                }
            }
        }
        Ok(())
    }

    /// Its header.
    pub fn header(&self) -> &ExtentHeader {
        &self.header
    }

    /// Its entries in use.
    pub fn entries(&self) -> ExtentEntries<'a> {
        let n = index(self.header.entries.get().into());
        let why = "verify() has cut the slots to size";
        if self.header.depth.get() == 0 {
            ExtentEntries::Leaf(<[Extent]>::ref_from_bytes_with_elems(self.slots, n).expect(why))
        } else {
            ExtentEntries::Inner(
                <[ExtentIdx]>::ref_from_bytes_with_elems(self.slots, n).expect(why),
            )
        }
    }

    /// Where the checksum stands in a node of `entries_max` slots.
    pub fn tail_at(entries_max: u16) -> usize {
        size_of::<ExtentHeader>() + usize::from(entries_max) * Self::ENTRY_BYTES
    }
}
