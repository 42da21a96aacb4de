//! A log that is being made: which blocks it has, and whether there is room for more.

use crate::disk::summary::{Cursor, FILE_BYTES};
use crate::disk::{FileInfo, Geometry, Node, SummaryHead, wide};

use super::block::Block;
use super::sent::Sent;

/// A block that was chosen: of data (level 0) or of the map.
#[derive(Clone, Copy)]
pub(super) struct Chosen {
    pub level: usize,
    pub key: u64,
}

/// A file in a log that is being made.
pub(super) struct Part {
    pub ino: u64,
    /// Which of the versions that a cleaning moves, if it is one.
    pub moved: Option<usize>,
    pub data: Vec<Chosen>,
    pub nodes: Vec<Chosen>,
}

/// A log that is being made.
pub(super) struct Draft {
    pub segment: u64,
    /// First block of the segment.
    pub segment_start: u64,
    pub start: u64,
    /// Blocks that there are from its start to the end of the segment.
    pub room: u64,
    pub seq: u64,
    pub next_segment: u64,
    pub flags: u16,
    pub parts: Vec<Part>,
    cursor: Cursor,
    pub summary_blocks: u64,
    pub blocks: u64,
    pub has_root: bool,
}

impl Draft {
    pub fn new(g: &Geometry, segment: u64, offset: u64, seq: u64, next_segment: u64) -> Draft {
        let (segment_start, end) = g.segment(segment);
        let start = segment_start + offset;
        Draft {
            segment,
            segment_start,
            start,
            room: end.saturating_sub(start),
            seq,
            next_segment,
            flags: 0,
            parts: Vec::new(),
            cursor: Cursor::new(SummaryHead::BYTES, g.block_bytes()),
            summary_blocks: 1,
            blocks: 1,
            has_root: false,
        }
    }

    /// Without its blocks.
    pub fn reset(&mut self, g: &Geometry) {
        *self = Draft::new(
            g,
            self.segment,
            self.start - self.segment_start,
            self.seq,
            self.next_segment,
        );
    }

    /// Adds a block of a file, if there is room. `nilfs_segctor_add_file_block`.
    pub fn add(
        &mut self,
        g: &Geometry,
        of: (u64, Option<usize>),
        is_begun: bool,
        c: Chosen,
    ) -> bool {
        let (number, moved) = of;
        let mut cursor = self.cursor;
        if !is_begun {
            cursor.place(FILE_BYTES);
        }
        let is_data = c.level == 0;
        let bytes_of = if is_data { FileInfo::data_bytes } else { FileInfo::node_bytes };
        cursor.place(bytes_of(number));
        let summary_blocks = wide(cursor.bytes().div_ceil(g.block_bytes()));
        let more = summary_blocks.saturating_sub(self.summary_blocks);
        if self.blocks + more + 1 > self.room {
            return false;
        }
        self.cursor = cursor;
        self.summary_blocks += more;
        self.blocks += more + 1;
        if !is_begun {
            self.parts.push(Part { ino: number, moved, data: Vec::new(), nodes: Vec::new() });
        }
        if let Some(part) = self.parts.last_mut() {
            let list = if is_data { &mut part.data } else { &mut part.nodes };
            list.push(c);
        }
        true
    }
}

/// The blocks behind a summary.
pub(super) struct Payload {
    pub blocks: Vec<Block>,
    /// The checksum so far.
    pub sum: u32,
}

impl Payload {
    /// Adds a block.
    pub fn push(&mut self, block: Block) {
        self.sum = block.crc32(self.sum);
        self.blocks.push(block);
    }

    /// Adds a block that logs have had other versions of; which parts may differ from the last.
    pub fn push_version(&mut self, bytes: &[u8], touched: u16, sent: &mut Sent) {
        let block;
        (block, self.sum) = sent.next_of(bytes, touched, self.sum);
        self.blocks.push(block);
    }

    /// Adds a node of a block map, in blocks of `block_bytes`; which parts may differ from what
    /// logs have had.
    pub fn push_node(&mut self, node: &Node, block_bytes: usize, touched: u16, sent: &mut Sent) {
        let make = |n: usize, part: &mut [u8]| node.store_part(block_bytes, n * part.len(), part);
        let block;
        (block, self.sum) = sent.next(block_bytes, touched, self.sum, make);
        self.blocks.push(block);
    }
}
