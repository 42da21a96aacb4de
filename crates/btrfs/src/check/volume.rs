//! The image, its chunks, and trees walked with an eye on everything.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wp_base::{FsError, FsResult};
use wp_medium::View;

use crate::disk::chunk::group;
use crate::disk::node::{Common, Expected, flag};
use crate::disk::{Chunk, Header, Key, NodeRef, Reference, SuperBlock, extent, id, wide};

use super::Report;
use super::extents::Extents;
use super::finding::{At, Kind};

/// A chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ChunkSeen {
    pub bytes: u64,
    pub flags: u64,
    /// Byte addresses on the device.
    pub places: Vec<u64>,
    /// Where its item stands.
    pub at: u64,
}

/// The image and where addresses lie.
pub(super) struct Volume<'a> {
    pub view: &'a dyn View,
    pub sb: Box<SuperBlock>,
    pub common: Common,
    /// By logical address.
    pub chunks: BTreeMap<u64, ChunkSeen>,
    /// A profile that is not read here, of the first chunk that has one.
    pub profile: Option<&'static str>,
}

impl Volume<'_> {
    /// Adds a chunk; `false`, after saying so, if it cannot be.
    pub fn add_chunk(&mut self, key: Key, chunk: &Chunk, at: u64, report: &mut Report) -> bool {
        let place = At { tree: id::CHUNK_TREE, key, byte: at };
        let (start, bytes) = (key.offset, chunk.head.length.get());
        let flags = chunk.head.kind.get();
        if let Err(e) = self.sb.check_kinds(chunk, at) {
            report.error(Kind::Chunk, place, e);
            return false;
        }
        let copies = match flags & group::PROFILES {
            0 => 1,
            group::DUP => 2,
            other => {
                if other.is_power_of_two() {
                    self.profile = self.profile.or(Some(group::profile_name(flags)));
                } else {
                    report.add(Kind::Chunk, place, group::profile_name(flags), "one profile");
                }
                return false;
            }
        };
        if chunk.head.sector_size != self.sb.sectorsize {
            report.add(Kind::Chunk, place, chunk.head.sector_size, self.sb.sectorsize);
            return false;
        }
        if chunk.stripes.len() != copies {
            report.add(Kind::Chunk, place, chunk.stripes.len(), format!("{copies} places"));
            return false;
        }
        let device = (self.sb.dev_item.devid.get(), self.sb.dev_item.total_bytes.get());
        for s in &chunk.stripes {
            let end = s.offset.get().checked_add(bytes);
            if s.dev_uuid != self.sb.dev_item.uuid {
                report.add(Kind::Chunk, place, "another device", "the only device");
                return false;
            }
            if s.devid.get() != device.0 || end.is_none_or(|e| e > device.1) {
                report.add(Kind::Chunk, place, s.offset.get(), "a range inside the device");
                return false;
            }
        }
        let Some(end) = start.checked_add(bytes).filter(|_| start.is_multiple_of(4096)) else {
            report.add(Kind::Chunk, place, start, "a multiple of the sector size, below 2^64");
            return false;
        };
        let places = chunk.stripes.iter().map(|s| s.offset.get()).collect();
        let new = ChunkSeen { bytes, flags, places, at };
        if let Some((before, old)) = self.chunks.range(..end).next_back() {
            let is_same = *before == start
                && (old.bytes, old.flags, &old.places) == (new.bytes, new.flags, &new.places);
            if is_same {
                self.chunks.insert(start, new);
                return true;
            }
            if before + old.bytes > start {
                report.add(Kind::Chunk, place, start, "an address outside other chunks");
                return false;
            }
        }
        self.chunks.insert(start, new);
        true
    }

    /// The chunk of an address, and its first address.
    pub fn chunk_of(&self, logical: u64) -> Option<(u64, &ChunkSeen)> {
        let (start, chunk) = self.chunks.range(..=logical).next_back()?;
        (logical - start < chunk.bytes).then_some((*start, chunk))
    }

    /// The device address of `bytes` bytes from `logical` on, for each copy; none if they are not
    /// in one chunk.
    pub fn places(&self, logical: u64, bytes: u64) -> Vec<u64> {
        let Some((start, chunk)) = self.chunk_of(logical) else { return Vec::new() };
        let from = logical - start;
        if bytes > chunk.bytes - from {
            return Vec::new();
        }
        chunk.places.iter().map(|at| at + from).collect()
    }

    /// Byte address of the first copy, 0 if there is none.
    pub fn place(&self, logical: u64) -> u64 {
        self.places(logical, 1).first().copied().unwrap_or(0)
    }

    /// The root of the tree of log trees, if there is a log: a mount that cannot read it fails.
    /// `btrfs_replay_log`.
    pub fn check_log_root(&self, report: &mut Report) {
        if self.sb.log_root.get() != 0 {
            let what = Expected {
                bytenr: self.sb.log_root.get(),
                generation: Some(self.sb.generation.get().saturating_add(1)),
                level: Some(self.sb.log_root_level),
                first_key: None,
                owner: None,
            };
            self.read(&what, id::TREE_LOG, report);
        }
    }

    /// A tree block; says what is wrong with copies.
    fn read(&self, what: &Expected, tree: u64, report: &mut Report) -> Option<Rc<[u8]>> {
        let size = self.common.node_bytes;
        let place = format!("tree {}, block {}", tree.cast_signed(), what.bytenr);
        let places = self.places(what.bytenr, wide(size));
        if places.is_empty() {
            report.add(Kind::TreeBlock, place, what.bytenr, "an address in a chunk");
            return None;
        }
        let mut good = None;
        let mut errors = Vec::new();
        for at in places {
            let mut block = vec![0; size];
            let read = self.view.read_at(at, &mut block);
            match read.and_then(|()| NodeRef::verify(&block, &self.common, what, at).map(|_| ())) {
                Ok(()) => good = good.or(Some(Rc::from(block))),
                Err(e) => errors.push(e),
            }
        }
        let kind = if good.is_some() { Kind::TreeBlockCopy } else { Kind::TreeBlock };
        errors.into_iter().for_each(|e| report.error(kind, &place, e));
        good
    }
}

/// Where a tree begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Start {
    pub tree: u64,
    pub bytenr: u64,
    pub level: u8,
    pub generation: u64,
    /// Where the deletion of it has come to, if it was begun: of what is before this key in blocks
    /// of this level and above nothing is left. `btrfs_drop_snapshot`.
    pub dropped: Option<(Key, u8)>,
}

/// An item on a walk.
pub(super) struct Found<'f> {
    pub at: At,
    pub bytes: &'f [u8],
    /// Its leaf, and the tree that this was made for.
    pub leaf: u64,
    pub owner: u64,
    /// Was its leaf not seen before, in another tree?
    pub is_first: bool,
}

/// A tree block that was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSeen {
    pub level: u8,
    pub owner: u64,
}

/// Blocks that are kept in memory, at most.
const HELD: usize = 2048;

/// Users of an extent, and how often.
pub(super) type Users = BTreeMap<Reference, u64>;

/// What all walks have seen.
#[derive(Default)]
pub(super) struct Seen {
    pub blocks: BTreeMap<u64, BlockSeen>,
    /// Users of tree blocks and of data.
    pub users: BTreeMap<u64, Users>,
    /// Bytes of data extents that files name.
    pub data: BTreeMap<u64, u64>,
    /// The subvolumes that reach an extent, if quota groups count them.
    pub subvolumes: Option<BTreeMap<u64, BTreeSet<u64>>>,
    /// Could a part of a tree not be read? Then counts are not to be believed.
    pub is_torn: bool,
    held: BTreeMap<u64, Rc<[u8]>>,
}

impl Seen {
    /// Notes that a subvolume reaches an extent.
    pub fn add_subvolume(&mut self, bytenr: u64, tree: u64) {
        if let Some(all) = self.subvolumes.as_mut().filter(|_| id::is_file_tree(tree)) {
            all.entry(bytenr).or_default().insert(tree);
        }
    }

    pub fn add_user(&mut self, bytenr: u64, who: Reference) {
        *self.users.entry(bytenr).or_default().entry(who).or_default() += 1;
    }
}

/// What to do with items.
pub(super) type Visit<'v> = dyn FnMut(&Found<'_>, &mut Seen, &mut Report) + 'v;

/// A walk over a tree.
pub(super) struct Walk<'w, 'a> {
    pub volume: &'w Volume<'a>,
    /// Extents, as far as they are known: which blocks count what is below them by their address.
    pub extents: Option<&'w Extents>,
    pub seen: &'w mut Seen,
    pub report: &'w mut Report,
    /// [`Start::dropped`] of the tree that is walked.
    pub dropped: Option<(Key, u8)>,
}

impl Walk<'_, '_> {
    /// Sees all of a tree.
    pub fn tree(&mut self, start: &Start, visit: &mut Visit<'_>) {
        let root = Expected {
            bytenr: start.bytenr,
            generation: Some(start.generation),
            level: Some(start.level),
            first_key: None,
            owner: None,
        };
        self.seen.add_user(start.bytenr, Reference::Tree { root: start.tree });
        self.dropped = start.dropped;
        self.block(&root, None, start.tree, visit);
        self.dropped = None;
    }

    fn counts_by_address(&self, bytenr: u64) -> bool {
        let found = self.extents.and_then(|e| e.all.get(&bytenr));
        found.is_some_and(|e| e.flags & extent::flag::FULL_BACKREF != 0)
    }

    /// The block, if it is right by itself and for what leads to it.
    fn load(&mut self, what: &Expected, tree: u64) -> Option<Rc<[u8]>> {
        let bytes = match self.seen.held.get(&what.bytenr) {
            Some(bytes) => Rc::clone(bytes),
            None => {
                let bytes = self.volume.read(what, tree, self.report)?;
                if self.seen.held.len() >= HELD {
                    self.seen.held.clear();
                }
                self.seen.held.insert(what.bytenr, Rc::clone(&bytes));
                bytes
            }
        };
        let node = NodeRef::trusted(&bytes);
        let header = node.header();
        let byte = self.volume.place(what.bytenr);
        let place = format!("tree {}, block {} at byte {byte:#x}", tree.cast_signed(), what.bytenr);
        let mut is_right = true;
        let mut wrong = |found: String, expected: String| {
            self.report.add(Kind::TreeBlock, &place, found, expected);
            is_right = false;
        };
        let (level, generation) = (header.level, header.generation.get());
        if what.level.is_some_and(|l| l != level) {
            let right = what.level.unwrap_or(0);
            wrong(format!("level {level}"), format!("level {right}"));
        }
        if what.generation.is_some_and(|g| g != generation) {
            let right = what.generation.unwrap_or(0);
            wrong(format!("generation {generation}"), format!("generation {right}"));
        }
        if what.first_key.is_some() && what.first_key != node.key(0) {
            let (right, found) = (what.first_key.unwrap_or_default(), node.key(0));
            wrong(format!("first key {found:?}"), format!("first key {right}"));
        }
        let owner = header.owner.get();
        if owner != tree && !(id::is_file_tree(owner) && id::is_file_tree(tree)) {
            wrong(format!("owner {}", owner.cast_signed()), "the tree's number".to_owned());
        }
        let flags = header.flags.get();
        // A balance leaves its flag on blocks that it has moved (`__btrfs_cow_block`).
        if flags & !flag::RELOC != flag::WRITTEN | Header::REVISION {
            let right = flag::WRITTEN | Header::REVISION;
            wrong(format!("flags {flags:#x}"), format!("flags {right:#x}"));
        }
        if generation > self.volume.sb.generation.get() {
            let right = self.volume.sb.generation.get();
            wrong(format!("generation {generation}"), format!("generation {right} or less"));
        }
        is_right.then_some(bytes)
    }

    /// `end`: all keys are less than this.
    fn block(&mut self, what: &Expected, end: Option<Key>, tree: u64, visit: &mut Visit<'_>) {
        let Some(bytes) = self.load(what, tree) else {
            self.seen.is_torn = true;
            return;
        };
        let node = NodeRef::trusted(&bytes);
        let n = node.len();
        let last = n.checked_sub(1).and_then(|i| node.key(i));
        if let (Some(end), Some(last)) = (end, last)
            && last >= end
        {
            let place = At { tree, key: last, byte: self.volume.place(what.bytenr) };
            self.report.add(Kind::KeyOrder, place, last, format!("a key below {end}"));
            self.seen.is_torn = true;
            return;
        }
        let (level, generation) = (node.level(), node.header().generation.get());
        let owner = node.header().owner.get();
        let seen = BlockSeen { level, owner };
        let is_first = self.seen.blocks.insert(what.bytenr, seen).is_none();
        self.seen.add_subvolume(what.bytenr, tree);
        let Some(below) = level.checked_sub(1) else {
            let byte = self.volume.place(what.bytenr);
            for slot in 0..n {
                let (Some(key), Some(bytes)) = (node.key(slot), node.data(slot)) else { break };
                let at = At { tree, key, byte: byte + wide(node.data_at(slot)) };
                let found = Found { at, bytes, leaf: what.bytenr, owner, is_first };
                visit(&found, self.seen, self.report);
            }
            return;
        };
        let by_address = self.counts_by_address(what.bytenr);
        let first = match self.dropped {
            Some((key, of)) if level == of => node.find(key).unwrap_or_else(|slot| slot),
            Some((key, of)) if level > of => node.child_of(key),
            _ => 0,
        };
        for slot in first..n {
            let Some(ptr) = node.ptr(slot) else { break };
            let child = Expected {
                bytenr: ptr.blockptr.get(),
                generation: Some(ptr.generation.get()),
                level: Some(below),
                first_key: Some(ptr.key.get()),
                owner: None,
            };
            if is_first {
                let parent = what.bytenr;
                let who = if by_address {
                    Reference::SharedTree { parent }
                } else {
                    Reference::Tree { root: owner }
                };
                self.seen.add_user(child.bytenr, who);
            }
            if ptr.generation.get() > generation {
                let place = At { tree, key: ptr.key.get(), byte: self.volume.place(what.bytenr) };
                let found = format!("pointer's generation {}", ptr.generation.get());
                self.report.add(Kind::TreeBlock, place, found, format!("{generation} or less"));
            }
            self.block(&child, node.key(slot + 1).or(end), tree, visit);
        }
    }
}

/// The first super block, verified: what stands in the way is a finding, but features.
pub(super) fn super_block(
    view: &dyn View,
    report: &mut Report,
) -> FsResult<Option<Box<SuperBlock>>> {
    match crate::check::read_super(view, SuperBlock::AT) {
        Ok(sb) => {
            let verified = sb.verify(SuperBlock::AT).and_then(|()| {
                let (incompat, ro) = (sb.incompat_flags.get(), sb.compat_ro_flags.get());
                crate::disk::feature::check(incompat, ro, false)
            });
            match verified {
                Ok(()) => Ok(Some(sb)),
                Err(FsError::Corrupt(c)) => {
                    report.corrupt(Kind::SuperBlock, "super block", &c);
                    Ok(None)
                }
                Err(e) => Err(e),
            }
        }
        Err(FsError::Corrupt(c)) => {
            report.corrupt(Kind::SuperBlock, "super block", &c);
            Ok(None)
        }
        Err(e) => Err(e),
    }
}
