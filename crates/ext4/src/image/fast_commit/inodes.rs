//! Inodes during a replay: held in memory from the first record that names them.

use std::collections::btree_map::Entry;

use wp_base::{FsError, FsResult};
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::inode::flag;
use crate::disk::{ExtentHeader, Inode, InodeExtra, Stamp, incompat, ino};

use super::super::{FileMap, InodeRecord};
use super::{Replay, ranges};

/// An inode, and its map once that was read.
pub(super) struct Held {
    pub record: InodeRecord,
    pub map: Option<FileMap>,
    /// The map is no longer what `i_block` says.
    pub is_remapped: bool,
    /// The tree has a block of its own although its extents would fit in the inode.
    pub is_tall: bool,
    /// The inode is no longer what the overlay holds.
    pub is_changed: bool,
    /// Its blocks are marked free, and excluded.
    pub is_cleared: bool,
}

/// Where `i_block` and what follows it stand in an inode.
const BLOCK_AT: usize = 0x28;
const GENERATION_AT: usize = 0x64;
/// Bytes of `extra_isize` with which there is a `ctime_extra`, and with a `mtime_extra`.
const WITH_CTIME: u16 = 8;
const WITH_MTIME: u16 = 12;

fn wrong_inode(record: &InodeRecord, field: &'static str, found: u64, expected: &str) -> FsError {
    let expected = format!("{expected} (inode {})", record.number);
    FsError::corrupt("ext4 fast commit", field, record.at, found, expected)
}

impl Replay<'_> {
    /// Holds the inode. `false` for one that a kernel would not get: no such number, no links, an
    /// impossible shape. Source: `ext4_iget`, which verifies no checksum during a replay.
    pub(super) fn hold(&mut self, number: u32) -> FsResult<bool> {
        let image = self.editor.image();
        if let Entry::Vacant(place) = self.inodes.entry(number) {
            let is_reserved = number < image.geometry().first_inode && number != ino::ROOT;
            if is_reserved || number > image.geometry().inodes_count {
                return Ok(false);
            }
            let record = image.inode_unchecked(number)?;
            let held = Held {
                record,
                map: None,
                is_remapped: false,
                is_tall: false,
                is_changed: false,
                is_cleared: false,
            };
            place.insert(held);
        }
        let Some(held) = self.inodes.get(&number) else { return Ok(false) };
        let record = &held.record;
        let room = image_room(self.editor.image().geometry().inode_bytes);
        let isize = record.extra.extra_isize.get();
        let acl = record.inode.file_acl();
        let is_sound = record.inode.links_count.get() > 0
            && isize <= room
            && isize.is_multiple_of(4)
            && (acl == 0 || self.editor.image().geometry().holds(acl, 1));
        if !is_sound && !held.is_changed {
            // As if never seen: a later record may write it anew.
            self.inodes.remove(&number);
        }
        Ok(is_sound)
    }

    /// An inode that [`Self::hold`] has found.
    pub(super) fn held(&mut self, number: u32) -> FsResult<&mut Held> {
        self.inodes.get_mut(&number).ok_or(FsError::Io)
    }

    /// Its map. Errors: `Corrupt` for a tree that is none.
    pub(super) fn map(&mut self, number: u32) -> FsResult<&FileMap> {
        let held = self.inodes.get_mut(&number).ok_or(FsError::Io)?;
        if held.map.is_none() {
            let map = self.editor.image().map(&held.record)?;
            held.is_tall = !map.nodes.is_empty();
            held.map = Some(map);
        }
        held.map.as_ref().ok_or(FsError::Io)
    }

    /// Its map, to be changed. Errors: also `Corrupt` for one that is no tree of extents.
    pub(super) fn map_mut(&mut self, number: u32) -> FsResult<&mut FileMap> {
        self.map(number)?;
        let held = self.held(number)?;
        if !held.record.inode.has(flag::EXTENTS) {
            let found = held.record.inode.flags.get().into();
            return Err(wrong_inode(&held.record, "i_flags", found, "a map of extents"));
        }
        (held.is_remapped, held.is_changed, held.is_cleared) = (true, true, false);
        held.map.as_mut().ok_or(FsError::Io)
    }

    /// Sets the inode's time of change, and of modification where that is meant, to now.
    pub(super) fn touch(&mut self, number: u32, with_mtime: bool) -> FsResult<()> {
        let (secs, extra) = Stamp { secs: self.now.into(), nanos: 0 }.encode();
        let held = self.held(number)?;
        held.is_changed = true;
        let r = &mut held.record;
        let isize = r.extra.extra_isize.get();
        r.inode.ctime = secs;
        if isize >= WITH_CTIME {
            r.extra.ctime_extra = extra;
        }
        if with_mtime {
            r.inode.mtime = secs;
            if isize >= WITH_MTIME {
                r.extra.mtime_extra = extra;
            }
        }
        Ok(())
    }

    /// A record of an inode: everything but its map and what follows the record.
    ///
    /// Errors: `Corrupt` for a number that no file has, and for an inode without links.
    /// Source: `ext4_fc_replay_inode`.
    pub(super) fn inode(&mut self, number: u32, raw: &[u8]) -> FsResult<()> {
        if self.hold(number)? {
            self.clear_blocks(number);
        }
        self.modified.insert(number);
        let mut held = match self.inodes.remove(&number) {
            Some(held) => held,
            None => Held {
                record: self.editor.image().inode_unchecked(number)?,
                map: None,
                is_remapped: false,
                is_tall: false,
                is_changed: false,
                is_cleared: false,
            },
        };
        let was_tree = held.record.inode.has(flag::EXTENTS);
        held.store();
        let whole = &mut held.record.raw;
        let mut copy = |from: usize, to: usize| {
            if let (Some(to), Some(from)) = (whole.get_mut(from..to), raw.get(from..to)) {
                to.copy_from_slice(from);
            }
        };
        copy(0, BLOCK_AT);
        copy(GENERATION_AT, raw.len());
        let flags = Inode::load(raw).map_or(0, |i| i.flags.get());
        if flags & flag::EXTENTS == 0 && flags & flag::INLINE_DATA != 0 {
            copy(BLOCK_AT, GENERATION_AT);
        }
        held.load();
        if held.record.inode.has(flag::EXTENTS) {
            let magic = ExtentHeader::read_from_prefix(&held.record.inode.block[..]);
            if magic.is_ok_and(|(h, _)| h.magic.get() != ExtentHeader::MAGIC) {
                held.empty_tree();
            }
        }
        if was_tree != held.record.inode.has(flag::EXTENTS) {
            (held.map, held.is_remapped) = (None, false);
        }
        held.is_changed = true;
        let (record, is_inline) = (&held.record, held.record.inode.has(flag::INLINE_DATA));
        if record.inode.links_count.get() == 0 {
            return Err(wrong_inode(record, "i_links_count", 0, "an inode with a name"));
        }
        let first = self.editor.image().geometry().first_inode;
        if number < first {
            return Err(wrong_inode(record, "fc_ino", number.into(), "an inode of a file"));
        }
        self.inodes.insert(number, held);
        self.editor.mark_inode_used(number)?;
        if !self.hold(number)? {
            return Err(FsError::corrupt(
                "ext4 fast commit",
                "fc_ino",
                0,
                number.into(),
                "a sound inode",
            ));
        }
        if !is_inline && self.held(number)?.record.inode.has(flag::EXTENTS) {
            self.count_blocks(number)?;
        }
        Ok(())
    }

    /// `i_blocks` from the map; blocks of attributes are not in it. Source:
    /// `ext4_ext_replay_set_iblocks`.
    fn count_blocks(&mut self, number: u32) -> FsResult<()> {
        let per_node = self.extents_per_node();
        let sectors = u64::from(self.editor.image().block_size().sectors());
        // A kernel leaves the count as it is where the tree is none.
        let Ok(map) = self.map(number) else { return Ok(()) };
        let blocks: u64 = map.runs.iter().map(|r| u64::from(r.blocks)).sum();
        let extents = ranges::extents(&map.runs).count();
        let held = self.held(number)?;
        let nodes = ranges::nodes(extents, per_node).max(usize::from(held.is_tall));
        let count = (blocks + nodes as u64).saturating_mul(sectors);
        held.record.inode.set_blocks_raw(count);
        let flags = held.record.inode.flags.get() & !flag::HUGE_FILE;
        held.record.inode.flags = flags.into();
        Ok(())
    }

    /// Marks the inode's blocks free, but gives them to nobody: a record may still name them.
    ///
    /// Source: `ext4_ext_clear_bb`.
    fn clear_blocks(&mut self, number: u32) {
        let Some(held) = self.inodes.get(&number) else { return };
        if held.is_cleared || !held.record.inode.has(flag::EXTENTS) || self.map(number).is_err() {
            return;
        }
        let Some(held) = self.inodes.get_mut(&number) else { return };
        held.is_cleared = true;
        for (start, blocks) in held.blocks() {
            self.editor.mark_blocks(start, blocks, false);
            self.exclude(start, blocks);
        }
    }

    /// Marks the inode's blocks in use, if it is still there.
    pub(super) fn mark_used(&mut self, number: u32) {
        if !self.hold(number).unwrap_or(false) || self.map(number).is_err() {
            return;
        }
        let Some(held) = self.inodes.get(&number) else { return };
        for (start, blocks) in held.blocks() {
            self.editor.mark_blocks(start, blocks, true);
        }
    }

    /// Frees an inode whose last name is gone, as the end of its use does outside of a replay.
    pub(super) fn delete(&mut self, number: u32) -> FsResult<()> {
        let has_map = self.map(number).is_ok();
        let Some(mut held) = self.inodes.remove(&number) else { return Ok(()) };
        if has_map {
            for (start, blocks) in held.blocks() {
                self.editor.mark_blocks(start, blocks, false);
            }
        }
        self.editor.drop_attributes(&mut held.record)?;
        if held.record.inode.has(flag::EXTENTS) {
            held.empty_tree();
        }
        let i = &mut held.record.inode;
        if i.is_file() || i.is_dir() {
            i.set_size(0);
        }
        i.set_blocks_raw(0);
        i.dtime = self.now.into();
        held.store();
        self.editor.write_inode(&mut held.record)?;
        if self.editor.is_inode_used(number)? {
            self.editor.free_inode(&held.record)?;
        }
        Ok(())
    }

    /// Writes an inode and its map, if they changed.
    pub(super) fn write_back(&mut self, number: u32) -> FsResult<()> {
        let is_remapped = self.inodes.get(&number).is_some_and(|h| h.is_remapped);
        if is_remapped {
            self.write_tree(number)?;
        }
        let Some(held) = self.inodes.get_mut(&number) else { return Ok(()) };
        if held.is_changed {
            held.store();
            held.is_changed = false;
            self.editor.write_inode(&mut held.record)?;
        }
        Ok(())
    }

    /// Refuses what only a file system with inline data has.
    pub(super) fn refuse_inline(&self) -> FsResult<()> {
        if self.editor.image().super_block().has_incompat(incompat::INLINE_DATA) {
            let what = "replay of names in a file system with inline data".to_owned();
            return Err(FsError::Unsupported(what));
        }
        Ok(())
    }
}

/// Bytes behind the first 128 of an inode.
fn image_room(inode_bytes: u16) -> u16 {
    inode_bytes.saturating_sub(Inode::BYTES as u16)
}

impl Held {
    /// From the fields to the bytes.
    fn store(&mut self) {
        let r = &mut self.record;
        r.inode.store(&mut r.raw);
        let room = r.raw.len().saturating_sub(Inode::BYTES);
        if usize::from(r.extra.extra_isize.get()) <= room {
            r.extra.store(&mut r.raw);
        }
    }

    /// From the bytes to the fields.
    fn load(&mut self) {
        let r = &mut self.record;
        if let Some(inode) = Inode::load(&r.raw) {
            r.inode = inode;
        }
        r.extra = InodeExtra::load(&r.raw);
    }

    fn empty_tree(&mut self) {
        let block = &mut self.record.inode.block;
        let header = ExtentHeader::empty(block.len(), 0);
        block.fill(0);
        let _ = header.write_to_prefix(&mut block[..]);
        (self.map, self.is_remapped) = (None, false);
    }

    /// All blocks of the map, if it was read, and the map's own blocks: (first, number).
    fn blocks(&self) -> Vec<(u64, u64)> {
        let Some(map) = &self.map else { return Vec::new() };
        let nodes = map.nodes.iter().map(|n| (*n, 1));
        nodes.chain(map.runs.iter().map(|r| (r.start, u64::from(r.blocks)))).collect()
    }
}
