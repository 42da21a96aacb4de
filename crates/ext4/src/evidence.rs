//! What an image's bytes say about its layout and its log: for mounting, and for judging runs.
//!
//! Invariant: everything here is read from the image, by rules of the format, not from our file
//!            system's memory.

use std::collections::BTreeMap;

use wp_base::{FsError, FsResult, SECTOR_BYTES, Sector};
use wp_jbd2::{LogMap, disk as log_disk};
use wp_medium::View;
use wp_vfs::BlockMap;

use crate::disk::ijournal::Begin;
use crate::disk::{Inode, compat};
use crate::image::{BlockClass, BlockClasses, Image, log_map};

/// Where the internal journal's blocks lie. Errors: those of [`Image::open`], and of a journal that
/// is none.
pub fn journal_map(view: &dyn View) -> FsResult<LogMap> {
    let image = Image::open(view)?;
    if !image.super_block().has_internal_journal() {
        return Err(FsError::Unsupported("an ext4 without an internal journal".into()));
    }
    log_map(&image)
}

/// Places that the paper's traces name, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Landmarks {
    /// First block of the group descriptors.
    pub gdt: u64,
    /// Block bitmap of group 1.
    pub block_bitmap_1: u64,
    /// First block of group 0's inode table.
    pub inode_table: u64,
    /// First block of the journal.
    pub journal: u64,
}

/// Reads them from the image.
pub fn landmarks(view: &dyn View) -> FsResult<Landmarks> {
    let image = Image::open(view)?;
    let log = journal_map(view)?;
    let [first, second, ..] = image.groups() else {
        return Err(FsError::Invalid("landmarks are those of an image of two groups or more"));
    };
    Ok(Landmarks {
        gdt: image.geometry().desc_place(0).0,
        block_bitmap_1: second.block_bitmap(),
        inode_table: first.inode_table(),
        journal: log.block(0).unwrap_or(0),
    })
}

/// What a log holds of some inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Blocks that descriptors name: neither descriptors nor commit records.
    pub blocks: u32,
    /// For each inode the sizes that copies of it have, one entry a copy of its inode-table block.
    pub sizes: Vec<Vec<u64>>,
}

/// What is found among the log blocks `written` (partition sector, sectors), which must hold whole
/// transactions' descriptors and blocks, of the inodes `inos`.
pub fn logged(view: &dyn View, written: &[(u64, u32)], inos: &[u32]) -> FsResult<Logged> {
    let image = Image::open(view)?;
    let bs = image.geometry().block_size.bytes();
    let log = journal_map(view)?;
    // Where each inode lives: block, byte in it.
    let mut homes: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for (i, ino) in inos.iter().enumerate() {
        let slot = image.geometry().inode_slot(*ino).ok_or_else(|| {
            FsError::corrupt("ext4", "inode number", 0, u64::from(*ino), "an inode")
        })?;
        let home = image.groups()[slot.group as usize].inode_table() + u64::from(slot.table_block);
        homes.entry(home).or_default().push((i, slot.offset as usize));
    }
    let super_at = log.block(0).unwrap_or(0) * u64::from(bs);
    let mut bytes = vec![0u8; bs as usize];
    view.read_at(super_at, &mut bytes)?;
    let jsb = <log_disk::SuperBlock as zerocopy::FromBytes>::read_from_prefix(&bytes)
        .map_err(|_| FsError::Io)?
        .0;
    let format = log_disk::Format::of(&jsb);
    let mut found = Logged { blocks: 0, sizes: vec![Vec::new(); inos.len()] };
    for (sector, sectors) in written {
        let first = sector * SECTOR_BYTES / u64::from(bs);
        let end = first + u64::from(*sectors) * SECTOR_BYTES / u64::from(bs);
        // A descriptor is followed by the blocks that its tags name, in this request.
        let mut block = first;
        while block < end {
            view.read_at(block * u64::from(bs), &mut bytes)?;
            let is_descriptor = block_type(&bytes) == Some(log_disk::DESCRIPTOR);
            block += 1;
            if !is_descriptor {
                continue;
            }
            let mut at = size_of::<log_disk::Header>();
            while let Some(tag) = format.tag(&bytes, at) {
                if block < end {
                    found.blocks += 1;
                    let mut copy = vec![0u8; bs as usize];
                    for (i, offset) in homes.get(&tag.block).into_iter().flatten() {
                        view.read_at(block * u64::from(bs), &mut copy)?;
                        found.sizes[*i].extend(Inode::load(&copy[*offset..]).map(|i| i.size()));
                    }
                }
                block += 1;
                at += format.tag_bytes();
                if tag.flags & log_disk::TAG_SAME_UUID == 0 {
                    at += log_disk::UUID_BYTES;
                }
                if tag.flags & log_disk::TAG_LAST != 0 {
                    break;
                }
            }
        }
    }
    Ok(found)
}

/// Sector of the journal's super block, from the start of the partition.
pub fn journal_super_sector(view: &dyn View) -> FsResult<Sector> {
    let bs = Image::open(view)?.geometry().block_size;
    Ok(bs.sector_of(journal_map(view)?.block(0).unwrap_or(0)))
}

/// Type of a control block of the log; `None` for a block that is none.
fn block_type(bytes: &[u8]) -> Option<u32> {
    (log_disk::word(bytes, 0) == Some(log_disk::MAGIC)).then(|| log_disk::word(bytes, 4)).flatten()
}

/// Classes of an image's blocks under the names of the reference data: those of [`BlockClasses`],
/// and in the log `journal_super`, `journal_commit` and `journal`, told apart by what stands there.
pub struct Blocks {
    classes: BlockClasses,
    block_bytes: u32,
    control: BTreeMap<u64, u32>,
    /// Log block from which on fast commits go.
    fast_from: u32,
}

impl Blocks {
    /// Reads them. Errors: those of [`Image::open`].
    pub fn read(view: &dyn View) -> FsResult<Blocks> {
        let image = Image::open(view)?;
        let block_bytes = image.geometry().block_size.bytes();
        let mut control = BTreeMap::new();
        let mut fast_from = u32::MAX;
        if image.super_block().has_internal_journal() {
            let log = log_map(&image)?;
            let length = log.blocks.iter().map(|(at, _, len)| at + len).max().unwrap_or(0);
            let mut bytes = vec![0u8; block_bytes as usize];
            view.read_at(log.block(0).unwrap_or(0) * u64::from(block_bytes), &mut bytes)?;
            let jsb = <log_disk::SuperBlock as zerocopy::FromBytes>::read_from_prefix(&bytes);
            // While the log is empty its super block does not say so, though the next mount will.
            let wanted = image.super_block().has_compat(compat::FAST_COMMIT);
            let fast = jsb.map_or(0, |(mut jsb, _)| {
                if wanted {
                    let on = jsb.feature_incompat.get() | log_disk::INCOMPAT_FAST_COMMIT;
                    jsb.feature_incompat = on.into();
                }
                jsb.fast_commit_blocks()
            });
            if fast > 0 {
                fast_from = length.saturating_sub(fast);
            }
            for (_, first, len) in log.blocks {
                for block in first..first + u64::from(len) {
                    let mut head = [0u8; 8];
                    view.read_at(block * u64::from(block_bytes), &mut head)?;
                    if let Some(kind) = block_type(&head) {
                        control.insert(block, kind);
                    }
                }
            }
        }
        Ok(Blocks { classes: BlockClasses::of(&image)?, block_bytes, control, fast_from })
    }
}

/// Blocks before one of an i-transaction among which its first is looked for: of a longer one,
/// which has over three thousand extents, the rest goes by the name of fast commits.
const I_TRANSACTION_BLOCKS: u64 = 16;

impl Blocks {
    fn begins_i_transaction(&self, view: &dyn View, block: u64) -> bool {
        let mut head = [0; Begin::BYTES];
        let read = view.read_at(block * u64::from(self.block_bytes), &mut head);
        read.is_ok() && Begin::of(&head).is_some()
    }
}

impl BlockMap for Blocks {
    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn class(&self, block: u64) -> &'static str {
        match self.classes.class(block) {
            BlockClass::SuperBlock { .. } => "superblock",
            BlockClass::Journal { .. } => match self.control.get(&block) {
                Some(&log_disk::COMMIT) => "journal_commit",
                Some(&(log_disk::SUPER_V1 | log_disk::SUPER_V2)) => "journal_super",
                _ => "journal",
            },
            other => other.name(),
        }
    }

    fn written(&self, view: &dyn View, block: u64) -> &'static str {
        match self.classes.class(block) {
            BlockClass::Journal { log } if log >= self.fast_from => {
                let most = u64::from(log - self.fast_from).min(I_TRANSACTION_BLOCKS);
                let of_one = (0..=most).any(|n| self.begins_i_transaction(view, block - n));
                if of_one { "i_transaction" } else { "fast_commit" }
            }
            _ => self.class(block),
        }
    }

    fn owner(&self, block: u64) -> Option<(u64, u64)> {
        match self.classes.class(block) {
            BlockClass::Data { ino, logical } | BlockClass::Directory { ino, logical } => {
                Some((u64::from(ino), u64::from(logical)))
            }
            _ => None,
        }
    }
}
