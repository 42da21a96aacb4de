//! What a mount does after a crash, in memory: orphans, roll-forward, write pointers of zones, and
//! the checkpoint that makes it last.
//!
//! Picture:    [`Image`] at the last checkpoint -> `files::State` (nodes, names and tables that
//!             differ from it) -> orphans are deleted -> `chain` -> `zones` -> `seal` writes into
//!             the overlay.
//! Invariants: 1. pure and synchronous: no clock, no runtime, nothing but the overlay changes, and
//!                that only at the end, when all has gone well.
//!             2. reads what it needs: checkpoint, chain, and what they name.
//! Left out:   quotas; a count of the whole SIT, which a mount makes too (`check` has it).
//! Source:     `f2fs_fill_super`, `f2fs_recover_orphan_inodes`, `f2fs_recover_fsync_data`.
//!
//! # Order-preserving recovery
//!
//! With [`RecoverOptions::oprw`], for an image that reports its zones ([`wp_medium::View::zones`]),
//! nodes whose data was not written when the power went are left out, and so are all later nodes of
//! the same inode. What the paper leaves open is decided thus:
//!
//! - (a) *Other inodes that depend on one that is left out.* Nothing is undone for them. A name
//!   stands in the inode that is fsynced, and a directory that is not in the checkpoint makes an
//!   fsync below it a checkpoint: roll-forward never needs another inode's node to give a name. If
//!   two inodes of the chain claim one name, the later one that is kept has it, as in Linux.
//! - (b) *Nodes that carry data themselves* (inline data, inline attributes, attribute nodes) have
//!   no addresses that could be unwritten, and are kept, unless their inode is skipped already.
//! - (c) *`check_index_in_prev_nodes`* sees blocks of kept nodes only, all below a write pointer;
//!   previous owners are of the checkpoint, or of kept nodes.
//! - (d) *That a block below the write pointer is of this version* holds as long as no zone is
//!   reset between two checkpoints once something was fsynced into it. Segments that were freed
//!   since the checkpoint are not given out before the next, so their zones are not reset either.
//!   It cannot be seen from the image, and is not checked.
//! - (e) *All addresses of a node are checked*, also those that the checkpoint has, as in the
//!   paper: [`Rejected::addresses_seen`] is the work to charge for. Conventional zones count as
//!   written.

mod chain;
mod files;
mod inodes;
mod names;
mod seal;
mod tables;
#[cfg(test)]
mod tests;
pub(super) mod zones;

use std::fmt;

use wp_base::{FsError, FsResult};
use wp_medium::{Overlay, View};
use wp_vfs::Version;

use crate::disk::inode::Stamp;
use crate::disk::{Geometry, Log, OrphanBlock, cp_flag};
use crate::era::Era;

use super::Image;
use files::State;
use seal::Seal;
use zones::{ZoneRepair, ZoneTable};

/// Rules that differ between kernels. They are asked for only where an image makes a difference of
/// them, so that versions with the same answers are known to recover it alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules(Era);

impl Rules {
    /// Of a kernel version.
    pub const fn of(era: Era) -> Rules {
        Rules(era)
    }

    /// Does a block that something else still has stop the recovery ([`Era::check_destination`])?
    pub fn check_destination(&self) -> bool {
        self.0.check_destination()
    }

    /// After a crash, does every log leave the zone that it has begun, wherever its write pointer
    /// is, and are open zones that no log writes finished ([`Era::leave_zones`])? Before, only logs
    /// that disagree with the pointer leave.
    pub fn leave_zones(&self) -> bool {
        self.0.leave_zones()
    }

    /// Are owners recovered ([`Era::recovers_owners`])?
    pub fn recovers_owners(&self) -> bool {
        self.0.recovers_owners()
    }

    /// Is an inode written if nothing but fields of its own was recovered
    /// ([`Era::recovery_writes_inodes`])?
    pub fn writes_inodes(&self) -> bool {
        self.0.recovery_writes_inodes()
    }

    /// The same by the numbers of the first release of a series.
    pub fn linux(major: u16, minor: u16) -> Rules {
        Rules::of(Era::of(Version(major, minor, 0)))
    }
}

/// How to recover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoverOptions {
    /// Rules of the kernel.
    pub rules: Rules,
    /// Leave out nodes whose data was not written, as the zones tell that the image reports.
    pub oprw: bool,
    /// Write the recovered nodes to segments that the chain is not in, and leave zones that no log
    /// goes on in as they are until the new checkpoint is durable, which no kernel does: a power
    /// cut during recovery leaves the chain, and the write pointers, then (see `seal`).
    pub aside: bool,
    /// Time that changed directories get.
    pub now: Stamp,
}

impl Default for RecoverOptions {
    /// As today's kernel.
    fn default() -> RecoverOptions {
        let now = Stamp { secs: 1_388_534_400, nanos: 0 };
        RecoverOptions { rules: Rules::linux(6, 18), oprw: false, aside: false, now }
    }
}

/// Why OPRW left a node out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The first of its blocks that was not written, and where its zone's write pointer stands.
    Unwritten {
        /// That block.
        block: u32,
        /// The first block that was not written.
        pointer: u32,
    },
    /// An earlier node of its inode was left out.
    Later,
}

/// A node that OPRW left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RejectedNode {
    /// Its block.
    pub at: u32,
    /// The inode that it belongs to.
    pub ino: u32,
    /// Its place in the inode's tree (`ofs_of_node`).
    pub offset: u32,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for RejectedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node at block {} (inode {}, offset {}): ", self.at, self.ino, self.offset)?;
        match self.reason {
            Reason::Unwritten { block, pointer } => {
                write!(
                    f,
                    "its block {block} was not written; the zone's write pointer is at {pointer}"
                )
            }
            Reason::Later => f.write_str("an earlier node of that inode was left out"),
        }
    }
}

/// What OPRW checked and left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rejected {
    /// Nodes of the chain.
    pub nodes_seen: u32,
    /// Places for an address in them, holes included: the algorithm's loop.
    pub slots_seen: u64,
    /// Addresses in them that were compared with a write pointer.
    pub addresses_seen: u64,
    /// Nodes left out because of an unwritten block.
    pub unwritten: u32,
    /// Such blocks.
    pub addresses_unwritten: u32,
    /// Nodes left out because an earlier one of their inode was.
    pub later: u32,
    /// The inodes, in order of their first node that was left out.
    pub inodes: Vec<u32>,
    /// The nodes, in the order of the chain.
    pub nodes: Vec<RejectedNode>,
}

/// Work that roll-forward is, counted as the kernel does it, for whoever charges time for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Node blocks read from the device: the chain, once (the second pass finds it in memory).
    pub chain_blocks: u64,
    /// Times a node block of the chain was examined.
    pub nodes: u64,
    /// Entries of the list of fsynced inodes that were passed while one was looked for: the list is
    /// searched from its head for every node (`get_fsync_inode`), and an inode whose last mark was
    /// reached leaves it.
    pub entries_searched: u64,
    /// Inodes of the checkpoint that the list took in: each is read.
    pub inodes_read: u64,
    /// Addresses of nodes compared with those of the checkpoint (`do_recover_data`).
    pub addresses: u64,
    /// Names looked up and entered.
    pub names: u64,
}

/// What recovery found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Files without a name that were deleted, of the checkpoint's list.
    pub orphans: u32,
    /// Nodes of the chain behind the checkpoint.
    pub nodes_seen: u32,
    /// Those of them that were applied.
    pub nodes_applied: u32,
    /// Marked nodes whose inode was not known when they were found.
    pub nodes_without_inode: u32,
    /// Inodes that were recovered, in order of their first mark.
    pub inodes: Vec<u32>,
    /// Inodes that the checkpoint did not have.
    pub inodes_made: u32,
    /// Names that were recovered.
    pub names: u32,
    /// Blocks of data that came back.
    pub blocks: u32,
    /// Files that lost their last name to a recovered one.
    pub deleted: u32,
    /// Why roll-forward failed: the mount goes on at the checkpoint, and a check is due.
    pub failed: Option<FsError>,
    /// What became of zones.
    pub zones: ZoneRepair,
    /// What OPRW left out, if it was asked for.
    pub oprw: Option<Rejected>,
    /// What it took.
    pub work: Work,
    /// The block that makes the new checkpoint valid, if one was written: it goes last.
    pub last_block: Option<u32>,
}

impl Recovery {
    /// Was there anything to recover?
    pub fn is_needed(&self) -> bool {
        self.last_block.is_some() || self.failed.is_some()
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_needed() {
            return f.write_str("nothing to recover");
        }
        write!(
            f,
            "{} of {} nodes applied, {} inodes ({} new), {} names, {} blocks",
            self.nodes_applied,
            self.nodes_seen,
            self.inodes.len(),
            self.inodes_made,
            self.names,
            self.blocks
        )?;
        if self.orphans + self.deleted > 0 {
            write!(f, "; {} orphans deleted, {} files replaced", self.orphans, self.deleted)?;
        }
        if let Some(r) = &self.oprw {
            write!(f, "; {} nodes left out as unwritten, {} after them", r.unwritten, r.later)?;
        }
        if let Some(e) = &self.failed {
            write!(f, "; roll-forward failed: {e}")?;
        }
        Ok(())
    }
}

/// Recovers the file system below `dev` into it, as a mount does.
///
/// A roll-forward that fails is no error: as in Linux, the mount then goes without it, and says so
/// ([`Recovery::failed`]).
///
/// Errors: those of [`Image::open`]; `Corrupt` for orphans that cannot be deleted; `Invalid` for
///         OPRW without zones, and for zones that do not fit.
pub fn recover(dev: &Overlay<'_>, options: &RecoverOptions) -> FsResult<Recovery> {
    let image = Image::open(dev)?;
    let mut zones = ZoneTable::new(dev.zones())?;
    if options.oprw && !zones.is_known() {
        return Err(FsError::Invalid("oprw: needs a report of the zones"));
    }
    let mut out = Recovery::default();
    let reported = zones.clone();
    let mut state = State::new(&image, zones.clone(), options.aside);
    orphans(&mut state, &mut out)?;
    // `checkpoint=disable`: a mount starts from the checkpoint.
    let is_disabled = image.checkpoint().has(cp_flag::DISABLED);
    let before = out.clone();
    let done =
        if is_disabled { Ok(()) } else { roll_forward(&mut state, options, &mut zones, &mut out) };
    if let Err(e) = done {
        out = Recovery { failed: Some(e), ..before };
        zones = reported;
        state = State::new(&image, zones.clone(), options.aside);
        orphans(&mut state, &mut Recovery::default())?;
    }
    let touched = !state.nodes.is_empty() || out.orphans > 0 || !out.zones.moved.is_empty();
    if touched {
        let seal = Seal { needs_check: out.failed.is_some() };
        if options.aside {
            let logs = Log::ALL.map(|log| state.t.log_head(log).0);
            let g = state.t.g;
            out.zones.put_off(|zone| {
                let section = g.place(zone).map(|(segment, _)| g.section_of(segment));
                logs.iter().any(|segment| Some(g.section_of(*segment)) == section)
            });
        }
        out.last_block = Some(state.seal(dev, &mut zones, &seal)?);
    }
    if touched || out.zones.touches_any() {
        dev.set_zones(zones.into_zones());
    }
    Ok(out)
}

fn roll_forward(
    state: &mut State<'_>,
    options: &RecoverOptions,
    zones: &mut ZoneTable,
    out: &mut Recovery,
) -> FsResult<()> {
    let chain = chain::find(state, options, zones, out)?;
    if !chain.is_empty() {
        chain::replay(state, chain, options, out)?;
    }
    if state.t.image.geometry().is_zoned && zones.is_known() {
        out.zones = zones::repair(&mut state.t, zones, options.rules)?;
    }
    Ok(())
}

/// Deletes the files of the checkpoint's orphan blocks. `f2fs_recover_orphan_inodes`.
fn orphans(state: &mut State<'_>, out: &mut Recovery) -> FsResult<()> {
    let image = state.t.image;
    let cp = image.checkpoint();
    if !cp.has(cp_flag::ORPHAN_PRESENT) {
        return Ok(());
    }
    let start = 1 + cp.payload();
    let pack = image.geometry().pack(image.is_second_pack());
    for n in start..cp.head().cp_pack_start_sum.get() {
        let block = image.read_block(pack + n, "f2fs orphan block")?;
        let orphans = OrphanBlock::load(&block, Geometry::byte_of(pack + n))?;
        for ino in orphans.inodes() {
            state.delete(ino)?;
            out.orphans += 1;
        }
    }
    Ok(())
}
