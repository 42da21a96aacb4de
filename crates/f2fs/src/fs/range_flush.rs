//! RFLUSH: an fsync flushes only some of the device's cache, and which blocks those are.
//!
//! Picture:    every block that is sent is noted by its inode; nodes also in one list, from the
//!             last checkpoint on. An fsync takes its set from both, and what a flush has covered
//!             is noted no more.
//! Invariants: 1. what is noted may be durable already; what is not noted is;
//!             2. with [`RangeFlush::Log`] the set of an fsync holds every node that recovery reads
//!                up to the last one of this file, and the data of every file that recovery takes
//!                because of them.
//! Why nodes:  roll-forward follows `next_blkaddr` from node to node, whosever they are, and ends
//!             at the first that is missing (`find_fsync_dnodes`).
//! Source:     Yeon et al., "RFLUSH: Rethink the Flush" (FAST'18) and its published kernel, for
//!             [`RangeFlush::Data`]; the other two are ours.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use wp_base::{FsError, FsResult, Sector};
use wp_block::{FlushSet, Partition};
use wp_rt::CpuOp;

use super::io::SECTORS;
use super::mount::{F2fs, FsyncMode, MountOptions};
use crate::site;

/// `rflush=`: what an fsync in posix mode, or posix_fixed, flushes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeFlush {
    /// All of the cache, as Linux.
    Off,
    /// The data of the file, as published: its nodes are of the node inode, and stay behind.
    Data,
    /// The data of the file and its own nodes.
    File,
    /// The data of the file and the whole log of nodes since the last checkpoint.
    Log,
}

impl RangeFlush {
    /// By the value of `rflush=`; empty: off.
    pub fn from_name(name: &str) -> Option<RangeFlush> {
        Some(match name {
            "" => RangeFlush::Off,
            "data" => RangeFlush::Data,
            "file" => RangeFlush::File,
            "log" => RangeFlush::Log,
            _ => return None,
        })
    }
}

/// Order of a note: later ones are higher.
type Seq = u64;

#[derive(Default)]
struct Notes {
    seq: Seq,
    /// Data by inode and address.
    data: BTreeMap<u32, BTreeMap<u32, Seq>>,
    /// Nodes by address, each with its inode.
    nodes: BTreeMap<u32, (u32, Seq)>,
    /// Inodes that were ever fsynced: recovery takes nodes of these alone.
    synced: BTreeSet<u32>,
}

/// What may not be durable.
#[derive(Default)]
pub(crate) struct Unflushed(RefCell<Notes>);

/// What one flush covers.
struct Wanted {
    data: Vec<u32>,
    nodes: BTreeSet<u32>,
    set: FlushSet,
    /// What was noted until now is covered.
    upto: Seq,
}

impl Unflushed {
    fn note(&self, is_node: bool, ino: u32, addr: u32) {
        let mut notes = self.0.borrow_mut();
        notes.seq += 1;
        let seq = notes.seq;
        if is_node {
            notes.nodes.insert(addr, (ino, seq));
        } else {
            notes.data.entry(ino).or_default().insert(addr, seq);
        }
    }

    /// What an fsync of this inode flushes.
    fn wanted(&self, ino: u32, how: RangeFlush) -> Wanted {
        let notes = self.0.borrow();
        let of_log = how == RangeFlush::Log;
        let is_ours = |of: u32| of == ino || (of_log && site::RFLUSH_NODES.on());
        let listed = notes.nodes.iter().filter(|(_, (of, _))| is_ours(*of));
        let nodes: BTreeMap<u32, u32> = match how {
            RangeFlush::Off | RangeFlush::Data => BTreeMap::new(),
            RangeFlush::File | RangeFlush::Log => listed.map(|(addr, n)| (*addr, n.0)).collect(),
        };
        let others = nodes.values().filter(|of| notes.synced.contains(of));
        let others = others.filter(|_| of_log && site::RFLUSH_OTHERS.on()).copied();
        let data: BTreeSet<u32> = others.chain([ino]).collect();
        let blocks = data.iter().filter_map(|ino| notes.data.get(ino)).flat_map(BTreeMap::keys);
        let sector = |addr: &u32| Sector(u64::from(*addr) * u64::from(SECTORS));
        let ranges = blocks.chain(nodes.keys()).map(|a| (sector(a), u64::from(SECTORS)));
        Wanted {
            set: FlushSet::of(ranges),
            data: data.into_iter().collect(),
            nodes: nodes.into_keys().collect(),
            upto: notes.seq,
        }
    }

    /// A flush has covered this.
    fn covered(&self, wanted: &Wanted) {
        let mut notes = self.0.borrow_mut();
        for ino in &wanted.data {
            if let Some(blocks) = notes.data.get_mut(ino) {
                blocks.retain(|_, seq| *seq > wanted.upto);
            }
        }
        notes.data.retain(|_, blocks| !blocks.is_empty());
        notes.nodes.retain(|addr, (_, seq)| *seq > wanted.upto || !wanted.nodes.contains(addr));
    }
}

impl MountOptions {
    /// Can it be mounted so on these devices?
    ///
    /// Errors: `Invalid` for options that rflush cannot be together with; `Unsupported` on a device
    /// that flushes all or nothing.
    pub(crate) fn check_range_flush(&self, parts: &[Partition]) -> FsResult<()> {
        if self.range_flush == RangeFlush::Off {
            return Ok(());
        }
        let why = match () {
            () if !matches!(self.fsync_mode, FsyncMode::Posix | FsyncMode::PosixFixed) => {
                "rflush needs fsync_mode=posix or posix_fixed: others flush with the last node, or not"
            }
            () if !self.barrier => "rflush with nobarrier: there is no flush to narrow",
            () if self.oprw => "rflush with oprw: a zoned drive keeps a prefix of each zone",
            () if parts.len() > 1 => "rflush on several devices",
            () => "",
        };
        if !why.is_empty() {
            return Err(FsError::Invalid(why));
        }
        let lacks = |p: &Partition| p.limits().volatile_cache && !p.limits().range_flush;
        if parts.iter().any(lacks) {
            let what = "rflush on a drive without a FLUSH of ranges; try range_flush=1 in --device";
            return Err(FsError::Unsupported(what.into()));
        }
        Ok(())
    }
}

impl F2fs {
    /// A block was given this address and is sent.
    pub(super) fn note_unflushed(&self, ino: u32, addr: u32, blocks: u32) {
        if self.opts.range_flush == RangeFlush::Off {
            return;
        }
        let is_node = {
            let space = self.space.borrow();
            space.g.place(addr).is_some_and(|(s, _)| space.seg(s).log.is_node())
        };
        (addr..addr + blocks).for_each(|addr| self.flusher.unflushed.note(is_node, ino, addr));
    }

    /// An fsync of this inode begins: from its nodes on recovery takes the file.
    pub(super) fn note_synced(&self, ino: u32) {
        if self.opts.range_flush == RangeFlush::Log {
            self.flusher.unflushed.0.borrow_mut().synced.insert(ino);
        }
    }

    /// The last note now: what [`F2fs::checkpointed`] is told when the checkpoint counts.
    pub(super) fn last_note(&self) -> Seq {
        self.flusher.unflushed.0.borrow().seq
    }

    /// A checkpoint is durable whose nodes were all sent and waited for at this note: recovery
    /// begins behind them.
    pub(super) fn checkpointed(&self, upto: Seq) {
        self.flusher.unflushed.0.borrow_mut().nodes.retain(|_, (_, seq)| *seq > upto);
    }

    /// The flush of an fsync (`f2fs_issue_irflush`): not shared with other tasks'. Waits: for it.
    /// Errors: `Io`.
    pub(super) async fn issue_range_flush(&self, ino: u32) -> FsResult<()> {
        self.rt.cpu(CpuOp::FlushIssue, 1).await;
        let wanted = self.flusher.unflushed.wanted(ino, self.opts.range_flush);
        self.io.part().flush_set(&wanted.set).await.map_err(|_| FsError::Io)?;
        self.flusher.unflushed.covered(&wanted);
        Ok(())
    }
}
