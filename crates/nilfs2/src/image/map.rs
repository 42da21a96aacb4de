//! From blocks of a file to blocks of the device.

use wp_base::{FsError, FsResult};

use crate::disk::bmap::{self, Map};
use crate::disk::{Node, ino};

use super::{Image, Record};

/// Blocks of a file that lie one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First block in the file.
    pub logical: u64,
    /// Its address.
    pub start: u64,
    /// How many.
    pub blocks: u64,
}

/// A walk over a whole map: the key that comes next at the earliest.
struct Walk<'w> {
    next: u64,
    /// Pointers of blocks of data by their key.
    data: &'w mut dyn FnMut(u64, u64) -> FsResult<()>,
}

impl Image<'_> {
    /// The block that a pointer of a file's map names.
    ///
    /// Errors: `Corrupt` for a virtual number that has no block, and a block in no segment.
    pub(super) fn translate(&self, file: &Record, pointer: u64) -> FsResult<u64> {
        let wrong = |field, found, expected: &str| {
            let expected = format!("{expected} (file {}, pointer {pointer})", file.ino);
            Err(FsError::corrupt("nilfs2 block map", field, file.at, found, expected))
        };
        let block = if file.ino == ino::DAT {
            pointer
        } else {
            match self.dat_entry(pointer)? {
                Some(entry) => entry.blocknr.get(),
                None => return wrong("virtual block", pointer, "an entry in the DAT"),
            }
        };
        if !self.geometry().is_in_segment(block) {
            return wrong("block", block, "a block of a segment");
        }
        Ok(block)
    }

    /// Reads a node of a file's map. Errors: `Corrupt` if it is none of this level.
    fn node(&self, file: &Record, pointer: u64, level: u8) -> FsResult<Node> {
        let place = self.translate(file, pointer)?;
        let block = self.block(place, "nilfs2 block map")?;
        Ok(Node::load(&block, level, self.geometry().byte_of(place))?)
    }

    fn load_map(&self, file: &Record) -> FsResult<Map> {
        Ok(file.inode.bmap.load(file.at)?)
    }

    /// The block of the device that holds block `key` of a file. `None`: a hole.
    pub fn block_of(&self, file: &Record, key: u64) -> FsResult<Option<u64>> {
        let pointer = match self.load_map(file)? {
            Map::Direct(pointers) => Some(bmap::direct(&pointers, key)).filter(|p| *p != 0),
            Map::Tree(root) => self.pointer_below(file, root, key)?,
        };
        pointer.map(|p| self.translate(file, p)).transpose()
    }

    fn pointer_below(&self, file: &Record, mut node: Node, key: u64) -> FsResult<Option<u64>> {
        while node.level > 1 {
            let child = node.child_of(key).and_then(|i| node.children.get(i));
            let Some((_, pointer)) = child else { return Ok(None) };
            node = self.node(file, *pointer, node.level - 1)?;
        }
        let found = node.find(key).ok().and_then(|i| node.children.get(i));
        Ok(found.map(|(_, pointer)| *pointer))
    }

    /// Where the blocks of a file are, in order.
    pub fn map(&self, file: &Record) -> FsResult<Vec<Run>> {
        let mut out: Vec<Run> = Vec::new();
        self.each_block(file, &mut |logical, start| {
            match out.last_mut() {
                Some(r) if logical - r.logical == r.blocks && r.start + r.blocks == start => {
                    r.blocks += 1;
                }
                _ => out.push(Run { logical, start, blocks: 1 }),
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// Calls `each(block of the file, block of the device)` for all that have one, in order.
    pub(super) fn each_block(
        &self,
        file: &Record,
        each: &mut dyn FnMut(u64, u64) -> FsResult<()>,
    ) -> FsResult<()> {
        let mut data = |key, pointer| each(key, self.translate(file, pointer)?);
        match self.load_map(file)? {
            Map::Direct(pointers) => {
                for (key, pointer) in (0..).zip(pointers).filter(|(_, p)| *p != 0) {
                    data(key, pointer)?;
                }
                Ok(())
            }
            Map::Tree(root) => self.walk(file, &root, &mut Walk { next: 0, data: &mut data }),
        }
    }

    fn walk(&self, file: &Record, node: &Node, walk: &mut Walk<'_>) -> FsResult<()> {
        for (key, pointer) in &node.children {
            if *key < walk.next {
                let expected = format!("{:#x} or more (file {})", walk.next, file.ino);
                return Err(FsError::corrupt("nilfs2 block map", "key", file.at, *key, expected));
            }
            if node.level == 1 {
                walk.next = key.saturating_add(1);
                (walk.data)(*key, *pointer)?;
            } else {
                let child = self.node(file, *pointer, node.level - 1)?;
                self.walk(file, &child, walk)?;
            }
        }
        Ok(())
    }
}
