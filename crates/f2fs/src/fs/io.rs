//! Blocks on their way to and from the device: merged bios per type and temperature.
//!
//! Picture:    a block that got its address joins the bio of its log; the bio goes when the next
//!             block does not follow, when it is full, or when somebody asks for what it holds.
//! Source:     Linux `fs/f2fs/data.c` (`f2fs_submit_page_write`, `f2fs_submit_merged_write_cond`,
//!             `f2fs_merge_page_bio`).

use std::rc::Rc;

use wp_base::FsResult;
use wp_base::event::Flags;
use wp_cache::{Buffer, Mapping};
use wp_medium::Slice;

use super::mount::F2fs;
use crate::disk::Log;

/// What a block is (`enum page_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Of a file or directory.
    Data,
    /// A node.
    Node,
    /// Before the main area.
    Meta,
}

/// Whom somebody waits for, of those in a merged bio.
#[derive(Clone, Copy)]
pub(crate) enum Held<'a> {
    /// Any block of a file.
    Map(&'a Rc<Mapping>),
    /// This block.
    Buf(&'a Rc<Buffer>),
    /// Nodes of this inode.
    Ino(u32),
}

/// A block of data to be written (`struct f2fs_io_info`).
pub(crate) struct DataWrite<'a> {
    /// The file's mapping.
    pub map: &'a Rc<Mapping>,
    /// Its block. `write_*` marks it as under writeback and clears `Dirty`.
    pub buf: &'a Rc<Buffer>,
    /// Its inode.
    pub ino: u32,
    /// Log that it goes to: [`F2fs::data_log`].
    pub log: Log,
    /// Where it is now; `NULL` or `NEW` if nowhere.
    pub old: u32,
    /// Node that has its address, for the summary.
    pub nid: u32,
    /// Slot in that node.
    pub ofs_in_node: u32,
    /// Version of that node ([`super::nat::NodeInfo::version`]).
    pub version: u8,
    /// `SYNC` or none.
    pub flags: Flags,
    /// A checkpoint waits for it: blocks of directories, and of garbage collection
    /// (`__is_cp_guaranteed`).
    pub cp: bool,
}

/// Blocks in place that one pass of writeback puts together (`bio` and `last_block` of
/// `f2fs_write_cache_pages`). Send it with [`F2fs::submit_ipu`] at the end of the pass.
#[derive(Debug, Default)]
pub(crate) struct IpuRun {
    /// Its bio's number, while it has one.
    pub id: Option<u64>,
    /// Address of the last block.
    pub last: u32,
}

/// Merged bios of a mounted file system.
pub(crate) struct Io {}

impl F2fs {
    /// Log of a file's data (`__get_segment_type_6` and its kin): `hot`: directories and files that
    /// are hot by their name; `cold`: by name, or moved by garbage collection.
    pub(crate) fn data_log(&self, hot: bool, cold: bool) -> Log {
        let _ = (hot, cold);
        todo!()
    }

    /// Gives a block a new place in its log and submits it there (`f2fs_outplace_write_data`, the
    /// address in the node is the caller's). Frees the old one. The new address.
    ///
    /// Waits: for a summary block that is read, if the log goes on in holes.
    pub(crate) async fn write_data_outplace(&self, w: &DataWrite<'_>) -> FsResult<u32> {
        let _ = w;
        todo!()
    }

    /// Writes a block where it is (`f2fs_inplace_write_data`). Without a run it goes at once.
    /// Errors: `Corrupt` if that is no segment of data.
    pub(crate) fn write_data_inplace(
        &self,
        w: &DataWrite<'_>,
        run: Option<&mut IpuRun>,
    ) -> FsResult<()> {
        let _ = (w, run);
        todo!()
    }

    /// Sends a run's bio, if it has one still (`f2fs_submit_merged_ipu_write`).
    pub(crate) fn submit_ipu(&self, run: &mut IpuRun) {
        let _ = run;
        todo!()
    }

    /// A place in a log for a block that the caller writes itself (direct writes), and its
    /// summary. As `f2fs_allocate_data_block` without a page.
    pub(crate) async fn allocate_for_direct(
        &self,
        log: Log,
        old: u32,
        nid: u32,
        ofs_in_node: u32,
        version: u8,
    ) -> FsResult<u32> {
        let _ = (log, old, nid, ofs_in_node, version);
        todo!()
    }

    /// Sends the merged bios of a kind (`f2fs_submit_merged_write`).
    pub(crate) fn submit_merged(&self, kind: Kind) {
        let _ = kind;
        todo!()
    }

    /// Sends those that hold what is asked for (`f2fs_submit_merged_write_cond`).
    pub(crate) fn submit_merged_cond(&self, kind: Kind, what: Held<'_>) {
        let _ = (kind, what);
        todo!()
    }

    /// Sends the merged bio that holds the block, and, if `ordered`, waits for it
    /// (`f2fs_wait_on_page_writeback`; without it, waiting for stable pages, no device here needs).
    pub(crate) async fn wait_on_page_writeback(&self, buf: &Rc<Buffer>, kind: Kind, ordered: bool) {
        let _ = (buf, kind, ordered);
        todo!()
    }

    /// Fills `buf` from block `addr` of the main area. Errors: `Io`, `Corrupt` beyond the area.
    pub(crate) async fn read_block(&self, buf: &Rc<Buffer>, addr: u32) -> FsResult<()> {
        let _ = (buf, addr);
        todo!()
    }

    /// Starts reading consecutive blocks into `bufs` from `addr` on, as one bio; nobody waits.
    pub(crate) fn read_ahead(&self, bufs: Vec<Rc<Buffer>>, addr: u32) {
        let _ = (bufs, addr);
        todo!()
    }

    /// Sends a bio of the caller's own to where block `addr` lies (direct I/O), and waits.
    pub(crate) async fn direct(
        &self,
        addr: u32,
        write: Option<Vec<Slice>>,
        blocks: u32,
        flags: Flags,
    ) -> FsResult<Vec<Slice>> {
        let _ = (addr, write, blocks, flags);
        todo!()
    }
}
