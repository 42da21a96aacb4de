//! Reading a file system: purely, synchronously, from any [`View`], and never trusting it.
//!
//! Picture:    [`Image`] = super block, checkpoint, journals; nid -> NAT -> node -> addresses ->
//!             bytes, names, attributes; [`recover()`] does what a mount does after a crash, into
//!             an overlay; [`inspect`] lists the result.
//! Invariants: 1. no bytes make it panic, and no walk is longer than the image is large: each node
//!                says its place in its file's tree, and is believed at that place only.
//!             2. nothing here writes, but [`recover()`] into the overlay that it is given, at its
//!                end: an [`Image`] may keep what it has read.
//!             3. an error says where in the image it lies.
//! Left out:   encrypted and compressed contents: `Unsupported`.
//! Units:      several devices are one image, one behind the other ([`wp_medium::Joined`]).

#![deny(clippy::indexing_slicing)]

mod files;
mod list;
mod mount;
mod recovery;
mod survey;

use std::cell::RefCell;
use std::collections::BTreeMap;

use wp_base::{FsError, FsResult};
use wp_medium::View;

use crate::disk::{
    Block, Checkpoint, CheckpointHead, Checksums, Compacted, Footer, Geometry, Inode, Journal, Log,
    NatEntry, SEGMENT_BLOCKS, Shape, SitEntry, SummaryBlock, SuperBlock, ZERO_BLOCK, addr, cp_flag,
    feature, nid,
};

pub use files::{DirName, Run};
pub use list::{InspectOptions, Inspection, inspect, list};
pub use recovery::zones::{Moved, ZoneRepair};
pub use recovery::{
    Reason, RecoverOptions, Recovery, Rejected, RejectedNode, Rules, Work, recover,
};
pub use survey::survey;

/// An opened file system, as its last checkpoint has it.
pub struct Image<'a> {
    view: &'a dyn View,
    sb: SuperBlock,
    g: Geometry,
    cp: Checkpoint,
    /// Is it the second pack that counts?
    second_pack: bool,
    sums: Checksums,
    nat_journal: BTreeMap<u32, NatEntry>,
    sit_journal: BTreeMap<u32, SitEntry>,
    /// Summaries of the three data logs.
    data_summaries: [SummaryBlock; 3],
    /// The blocks of NAT and SIT that were read last: entries are mostly read in order.
    last_nat: RefCell<Held>,
    last_sit: RefCell<Held>,
}

/// A block that was read, and which.
type Held = Option<(u32, Box<Block>)>;

/// An inode with its block.
#[derive(Clone)]
pub struct InodeRecord {
    /// Its number.
    pub ino: u32,
    /// Byte address of its block.
    pub at: u64,
    /// All bytes of the block.
    pub block: Box<Block>,
    /// How its words are used.
    pub shape: Shape,
}

impl InodeRecord {
    /// The fields.
    pub fn inode(&self) -> &Inode {
        Inode::of(&self.block)
    }
}

/// Numbers of `statfs`. `f2fs_statfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Blocks of the file system.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that there can be besides those that are.
    pub files_free: u64,
}

/// Reads block `n`. Errors: `Corrupt`, naming `structure`, beyond the image.
fn read_block(view: &dyn View, n: u32, structure: &'static str) -> FsResult<Block> {
    let at = Geometry::byte_of(n);
    if at + 4096 > view.len_bytes() {
        let expected = format!("less than {}", view.len_bytes() / 4096);
        return Err(FsError::corrupt(structure, "block", at, n.into(), expected));
    }
    let mut block = ZERO_BLOCK;
    view.read_at(at, &mut block)?;
    Ok(block)
}

/// The first super block that is good. Errors: of the first copy, if both are bad.
fn read_super(view: &dyn View) -> FsResult<SuperBlock> {
    let mut first = None;
    for copy in 0..SuperBlock::COPIES {
        let sb = SuperBlock::load(&read_block(view, copy, "f2fs super block")?);
        sb.refuse()?;
        match sb.verify(Geometry::byte_of(copy) + SuperBlock::AT as u64) {
            Ok(()) => return Ok(sb),
            Err(e) => first = first.or(Some(e)),
        }
    }
    Err(first.map_or(FsError::Io, FsError::from))
}

/// The checkpoint of one pack and its version, if both its copies are good. `validate_checkpoint`.
fn read_pack(view: &dyn View, start: u32, payload: u32) -> FsResult<(u64, Checkpoint)> {
    let first = read_block(view, start, "f2fs checkpoint")?;
    let at = Geometry::byte_of(start);
    let version = Checkpoint::version_of(&first, at)?;
    let mut cp = Checkpoint::new(&first, payload);
    let total = cp.head().cp_pack_total_block_count.get();
    if total <= CheckpointHead::COPIES || total > SEGMENT_BLOCKS {
        let (field, expected) = ("cp_pack_total_block_count", "3 to 512");
        return Err(FsError::corrupt("f2fs checkpoint", field, at, total.into(), expected));
    }
    let last_at = start + total - 1;
    let last = read_block(view, last_at, "f2fs checkpoint")?;
    let found = Checkpoint::version_of(&last, Geometry::byte_of(last_at))?;
    if found != version {
        let expected = format!("{version:#x}, as in the pack's first block");
        let at = Geometry::byte_of(last_at);
        return Err(FsError::corrupt("f2fs checkpoint", "checkpoint_ver", at, found, expected));
    }
    for n in 1..=payload {
        cp.set_block(n, &read_block(view, start + n, "f2fs checkpoint payload")?);
    }
    Ok((version, cp))
}

impl<'a> Image<'a> {
    /// Opens the file system in `view`, at its last checkpoint.
    ///
    /// Errors: `Corrupt` for wrong super blocks, no good checkpoint pack, a wrong checkpoint or
    ///         journal, an image that is shorter than its file system.
    /// Source: `read_raw_super_block`, `f2fs_get_valid_checkpoint`, `restore_curseg_summaries`.
    pub fn open(view: &'a dyn View) -> FsResult<Image<'a>> {
        let sb = read_super(view)?;
        let g = Geometry::from_super(&sb)?;
        if g.bytes() > view.len_bytes() {
            let expected = format!("{} bytes or more", g.bytes());
            let (structure, found) = ("f2fs image", view.len_bytes());
            return Err(FsError::corrupt(structure, "length", 0, found, expected));
        }
        let packs = [false, true].map(|second| read_pack(view, g.pack(second), g.cp_payload));
        let (second_pack, cp) = match packs {
            // `ver_after`: versions may wrap around.
            [Ok((v1, _)), Ok((v2, cp))] if v2.wrapping_sub(v1).cast_signed() > 0 => (true, cp),
            [Ok((_, cp)), _] => (false, cp),
            [Err(_), Ok((_, cp))] => (true, cp),
            [Err(e), Err(_)] => return Err(e),
        };
        cp.verify(&sb, &g, Geometry::byte_of(g.pack(second_pack)))?;
        let sums = Checksums::of(&sb);
        let empty = [(); 3].map(|()| SummaryBlock::empty(false));
        let mut image = Image {
            view,
            sb,
            g,
            cp,
            second_pack,
            sums,
            nat_journal: BTreeMap::new(),
            sit_journal: BTreeMap::new(),
            data_summaries: empty,
            last_nat: RefCell::default(),
            last_sit: RefCell::default(),
        };
        image.read_summaries()?;
        Ok(image)
    }

    fn read_summaries(&mut self) -> FsResult<()> {
        let pack = self.g.pack(self.second_pack);
        if self.cp.has(cp_flag::COMPACT_SUM) {
            let mut next = pack + self.cp.head().cp_pack_start_sum.get();
            let read = Compacted::load(Compacted::counts(&self.cp), || {
                next += 1;
                read_block(self.view, next - 1, "f2fs compacted summaries")
            })?;
            for (block, log) in self.data_summaries.iter_mut().zip(&read.data) {
                log.iter().zip(0..).for_each(|(s, n)| block.set_entry(n, *s));
            }
            let [hot, _, cold] = &mut self.data_summaries;
            (hot.journal, cold.journal) = (read.nat, read.sit);
        } else {
            for (block, log) in self.data_summaries.iter_mut().zip(Log::DATA) {
                let at = self.cp.summary_place(log).unwrap_or(0);
                let bytes = read_block(self.view, pack + at, "f2fs summary block")?;
                *block = SummaryBlock::load(&bytes);
            }
        }
        let [hot, _, cold] = &self.data_summaries;
        let counts =
            [(hot.journal.count, Journal::NAT_MAX), (cold.journal.count, Journal::SIT_MAX)];
        for (found, most) in counts {
            if usize::from(found.get()) > most {
                let at = Geometry::byte_of(pack);
                let expected = format!("up to {most}");
                return Err(FsError::corrupt(
                    "f2fs journal",
                    "count",
                    at,
                    u64::from(found.get()),
                    expected,
                ));
            }
        }
        self.nat_journal = hot.journal.nats().iter().map(|e| (e.nid.get(), e.entry)).collect();
        self.sit_journal = cold.journal.sits().iter().map(|e| (e.segment.get(), e.entry)).collect();
        Ok(())
    }

    /// The super block.
    pub fn super_block(&self) -> &SuperBlock {
        &self.sb
    }
    /// Its layout.
    pub fn geometry(&self) -> &Geometry {
        &self.g
    }
    /// The checkpoint that counts.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.cp
    }
    /// Is it the one of the second pack?
    pub fn is_second_pack(&self) -> bool {
        self.second_pack
    }
    /// Summaries of the hot, warm and cold data log, with the journals.
    pub fn data_summaries(&self) -> &[SummaryBlock; 3] {
        &self.data_summaries
    }
    /// How its inodes are sealed.
    pub fn checksums(&self) -> &Checksums {
        &self.sums
    }
    /// What it is read from.
    pub fn view(&self) -> &'a dyn View {
        self.view
    }

    /// A block's bytes. Errors: `Corrupt`, naming `structure`, for one beyond the image.
    pub fn read_block(&self, n: u32, structure: &'static str) -> FsResult<Block> {
        read_block(self.view, n, structure)
    }

    /// Where a node is. Errors: `Corrupt` for a number that no node has. `f2fs_get_node_info`.
    pub fn nat(&self, nid: u32) -> FsResult<NatEntry> {
        if nid < nid::ROOT || nid >= self.g.nids() {
            let expected = format!("{} to {}", nid::ROOT, self.g.nids() - 1);
            return Err(FsError::corrupt("f2fs node", "nid", 0, nid.into(), expected));
        }
        if let Some(entry) = self.nat_journal.get(&nid) {
            return Ok(*entry);
        }
        let (block, n) = self.g.nat_place(nid);
        let at = self.g.current_nat_block(block, &self.cp);
        let of = |block: &Block| NatEntry::all(block).get(n).copied();
        self.in_table(&self.last_nat, at, "f2fs NAT block", of)
    }

    /// An entry of a table's block `at`, which is read unless it was the last that was.
    fn in_table<T>(
        &self,
        last: &RefCell<Held>,
        at: u32,
        structure: &'static str,
        of: impl Fn(&Block) -> Option<T>,
    ) -> FsResult<T> {
        let mut held = last.borrow_mut();
        let block = match &mut *held {
            Some((n, block)) if *n == at => block,
            other => {
                let read = Box::new(self.read_block(at, structure)?);
                &mut other.insert((at, read)).1
            }
        };
        of(block).ok_or(FsError::Io)
    }

    /// What of a segment is in use. Errors: `Corrupt` for a wrong entry.
    pub fn sit(&self, segment: u32) -> FsResult<SitEntry> {
        let (block, n) = self.g.sit_place(segment);
        let at = self.g.current_sit_block(block, &self.cp);
        let entry = match self.sit_journal.get(&segment) {
            Some(entry) => *entry,
            None => {
                let of = |block: &Block| SitEntry::all(block).get(n).copied();
                self.in_table(&self.last_sit, at, "f2fs SIT block", of)?
            }
        };
        entry.verify(segment, Geometry::byte_of(at))?;
        Ok(entry)
    }

    /// Reads a node and checks that it is the one. Errors: `NotFound` if its number is free;
    /// `Corrupt`.
    pub fn node(&self, nid: u32) -> FsResult<(u64, Box<Block>)> {
        let entry = self.nat(nid)?;
        if entry.is_free() {
            return Err(FsError::NotFound);
        }
        let place = entry.block_addr.get();
        if !addr::is_block(place) || !self.g.is_main(place) {
            let expected = format!("a block of the main area (node {nid})");
            return Err(FsError::corrupt(
                "f2fs NAT entry",
                "block_addr",
                0,
                place.into(),
                expected,
            ));
        }
        let block = self.read_block(place, "f2fs node")?;
        let at = Geometry::byte_of(place);
        let found = Footer::of(&block).nid.get();
        if found != nid {
            let expected = nid.to_string();
            return Err(FsError::corrupt("f2fs node", "footer.nid", at, found.into(), expected));
        }
        Ok((at, Box::new(block)))
    }

    /// Reads inode `ino` and checks its checksum and its shape. Errors: as [`Self::node`].
    pub fn inode(&self, ino: u32) -> FsResult<InodeRecord> {
        let (at, block) = self.node(ino)?;
        if !self.sums.inode_ok(&block) {
            let right = self.sums.inode(&block).unwrap_or(0);
            let found = Inode::of(&block).extra().inode_checksum.get().into();
            let expected = format!("{right:#x} (inode {ino})");
            return Err(FsError::corrupt("f2fs inode", "i_inode_checksum", at, found, expected));
        }
        Inode::verify(&block, self.sb.feature.get(), at)?;
        let shape = Shape::of(Inode::of(&block), self.sb.feature.get());
        Ok(InodeRecord { ino, at, block, shape })
    }

    /// Numbers of `statfs`, as the checkpoint has them.
    pub fn statfs(&self) -> StatFs {
        let h = self.cp.head();
        let user = h.user_block_count.get();
        let free = user.saturating_sub(h.valid_block_count.get());
        let nodes = u64::from(self.g.nids().saturating_sub(nid::RESERVED));
        let (files, files_free) = if nodes > user {
            (user, free)
        } else {
            (nodes, nodes.saturating_sub(h.valid_node_count.get().into()).min(free))
        };
        let blocks = self.g.blocks.saturating_sub(self.g.segment0.into());
        StatFs { blocks, blocks_free: free, files, files_free }
    }

    /// Names of the features, for people.
    pub fn features(&self) -> String {
        feature::names(self.sb.feature.get())
    }
}
