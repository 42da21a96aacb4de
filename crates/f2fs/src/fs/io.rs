//! Blocks on their way to and from the device: merged bios per type and temperature.
//!
//! Picture:    a block that got its address joins the bio of its log; the bio goes when the next
//!             block does not follow, when it is full, or when somebody asks for what it holds.
//! Source:     Linux `fs/f2fs/data.c` (`f2fs_submit_page_write`, `f2fs_submit_merged_write_cond`,
//!             `f2fs_merge_page_bio`, `f2fs_write_end_io`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use wp_base::event::{Flags, Op};
use wp_base::{FsError, FsResult};
use wp_block::{Bio, InFlight, Partition};
use wp_cache::{BufFlag, Buffer, Mapping};
use wp_medium::{Pieces, Slice};
use wp_rt::{CpuOp, Rt, WaitQueue};

use super::direct_log::Arrivals;
use super::mount::F2fs;
use super::sent::{Of, Page};
use crate::disk::{Geometry, Log, Summary};
use crate::site;

/// Blocks of a bio (`BIO_MAX_VECS`).
const BIO_BLOCKS: usize = 256;
/// Sectors of a block.
pub(super) const SECTORS: u32 = 8;

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
    /// Blocks of a direct write.
    Direct(&'a Rc<Arrivals>),
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

/// A bio that grows.
struct Merged {
    pages: Vec<Page>,
    segs: Vec<Slice>,
    start: u32,
    flags: Flags,
    kind: Kind,
}

impl Merged {
    fn last(&self) -> u32 {
        self.start + self.segs.len() as u32 - 1
    }

    fn holds(&self, what: Held<'_>) -> bool {
        self.pages.iter().any(|p| match (what, &p.of) {
            (Held::Map(map), Of::Cache(of, _)) => Rc::ptr_eq(of, map),
            (Held::Buf(buf), Of::Cache(_, of)) => Rc::ptr_eq(of, buf),
            (Held::Direct(write), Of::Direct(_, of)) => Rc::ptr_eq(of, write),
            (Held::Ino(ino), _) => p.ino == ino,
            _ => false,
        })
    }
}

/// What completions change.
pub(super) struct Shared {
    /// Blocks in bios that a checkpoint waits for (`F2FS_WB_CP_DATA`), and others.
    pub cp: Cell<u64>,
    pub data: Cell<u64>,
    /// Reads under way.
    pub reads: Cell<u64>,
    /// The last of the former has ended.
    pub cp_wait: WaitQueue,
    /// A write that a checkpoint needs has failed, or writing was stopped (`CP_ERROR_FLAG`).
    pub error: Cell<bool>,
    /// Nodes that were sent and are not there yet, with their sequence numbers
    /// (`fsync_node_list`).
    pub fsynced: RefCell<VecDeque<(u32, Rc<Buffer>)>>,
}

/// Merged bios of a mounted file system.
pub(crate) struct Io {
    pub(super) parts: Vec<Partition>,
    /// By kind and temperature: data 0 to 2, nodes 3 to 5, metadata 6.
    slots: RefCell<[Option<Merged>; 7]>,
    /// Bios of blocks that are written in place, by number.
    ipu: RefCell<Vec<(u64, Merged)>>,
    next_ipu: Cell<u64>,
    /// Devices, as bits, that a checkpoint must flush (`dirty_device`).
    pub(super) dirty: Cell<u8>,
    pub(super) shared: Rc<Shared>,
    /// A bio of data or nodes ends its task's plug (`f2fs_lfs_mode`).
    lfs: bool,
}

impl Io {
    pub(super) fn new(rt: &Rt, parts: Vec<Partition>, lfs: bool) -> Io {
        let shared = Rc::new(Shared {
            cp: Cell::new(0),
            data: Cell::new(0),
            reads: Cell::new(0),
            cp_wait: WaitQueue::new(rt, "checkpoint data"),
            error: Cell::new(false),
            fsynced: RefCell::default(),
        });
        let slots = RefCell::new([(); 7].map(|()| None));
        Io {
            parts,
            slots,
            ipu: RefCell::default(),
            next_ipu: Cell::new(0),
            dirty: Cell::new(0),
            shared,
            lfs,
        }
    }

    /// The first device.
    pub(super) fn part(&self) -> &Partition {
        &self.parts[0]
    }

    /// All devices, in order.
    pub(super) fn parts(&self) -> &[Partition] {
        &self.parts
    }

    fn slot(kind: Kind, log: Option<Log>) -> usize {
        match (kind, log) {
            (Kind::Meta, _) | (_, None) => 6,
            (_, Some(log)) => usize::from(log.number()),
        }
    }

    fn slots_of(kind: Kind) -> std::ops::Range<usize> {
        match kind {
            Kind::Data => 0..3,
            Kind::Node => 3..6,
            Kind::Meta => 6..7,
        }
    }
}

impl F2fs {
    /// Log of a file's data (`__get_segment_type_6` and its kin): `hot`: directories and files that
    /// are hot by their name; `cold`: by name, or moved by garbage collection. (`cold` wins.)
    pub(crate) fn data_log(&self, hot: bool, cold: bool) -> Log {
        self.active_log(match (hot, cold) {
            (_, true) => Log::ColdData,
            (true, _) => Log::HotData,
            _ => Log::WarmData,
        })
    }

    /// Gives a block a new place in its log and submits it there (`f2fs_outplace_write_data`, the
    /// address in the node is the caller's). Frees the old one. The new address.
    ///
    /// Waits: for who is given a block before, for a summary block that is read or written where a
    /// segment is left. Errors: `NoSpace`, `Io`; nothing is under writeback then, and the block is
    /// dirty again.
    pub(crate) async fn write_data_outplace(&self, w: &DataWrite<'_>) -> FsResult<u32> {
        w.map.begin_writeback(w.buf);
        let summary = Summary::new(w.nid, w.version, w.ofs_in_node);
        let given = match self.allocate(w.log, w.old, summary).await {
            Ok(given) => given,
            Err(e) => {
                w.map.end_writeback(w.buf, false);
                w.map.mark_dirty(w.buf);
                return Err(e);
            }
        };
        let of = Of::Cache(w.map.clone(), w.buf.clone());
        let page = Page { of, ino: w.ino, cp: w.cp, listed: None };
        self.merge(Kind::Data, Some(w.log), page, given.addr, w.flags);
        Ok(given.addr)
    }

    /// Writes a block where it is (`f2fs_inplace_write_data`). Without a run it goes at once.
    /// Errors: `Corrupt` if that is no segment of data.
    pub(crate) fn write_data_inplace(
        &self,
        w: &DataWrite<'_>,
        run: Option<&mut IpuRun>,
    ) -> FsResult<()> {
        if self.cp_error() {
            return Err(FsError::Io);
        }
        let is_data = {
            let space = self.space.borrow();
            space.g.place(w.old).is_some_and(|(s, _)| !space.seg(s).log.is_node())
        };
        if !is_data {
            self.set_need_fsck();
            let at = Geometry::byte_of(w.old);
            let expected = "a block of a segment of data";
            return Err(FsError::corrupt("f2fs node", "address", at, u64::from(w.old), expected));
        }
        w.map.begin_writeback(w.buf);
        let of = Of::Cache(w.map.clone(), w.buf.clone());
        let page = Page { of, ino: w.ino, cp: w.cp, listed: None };
        self.count(page.cp);
        self.note_device(w.ino, w.old, 1);
        let seg = w.buf.snapshot();
        let fresh = |page| Merged {
            pages: vec![page],
            segs: vec![seg.clone()],
            start: w.old,
            flags: w.flags,
            kind: Kind::Data,
        };
        let Some(run) = run else {
            self.send(fresh(page));
            return Ok(());
        };
        if run.id.is_some() && (run.last + 1 != w.old || !self.same_device(run.last, w.old)) {
            self.submit_ipu(run);
        }
        run.last = w.old;
        let mut ipu = self.io.ipu.borrow_mut();
        if let Some(at) = ipu.iter().position(|(id, _)| Some(*id) == run.id) {
            if ipu[at].1.segs.len() < BIO_BLOCKS {
                ipu[at].1.pages.push(page);
                ipu[at].1.segs.push(seg);
                return Ok(());
            }
            let (_, full) = ipu.remove(at);
            drop(ipu);
            self.send(full);
            ipu = self.io.ipu.borrow_mut();
        }
        let id = self.io.next_ipu.get();
        self.io.next_ipu.set(id + 1);
        ipu.push((id, fresh(page)));
        run.id = Some(id);
        Ok(())
    }

    /// Sends a run's bio, if it has one still (`f2fs_submit_merged_ipu_write`).
    pub(crate) fn submit_ipu(&self, run: &mut IpuRun) {
        let Some(id) = run.id.take() else { return };
        let mut ipu = self.io.ipu.borrow_mut();
        if let Some(at) = ipu.iter().position(|(n, _)| *n == id) {
            let (_, merged) = ipu.remove(at);
            drop(ipu);
            self.send(merged);
        }
    }

    /// Sends all bios of blocks in place (`f2fs_submit_all_merged_ipu_writes`).
    pub(super) fn submit_all_ipu(&self) {
        for (_, merged) in self.io.ipu.take() {
            self.send(merged);
        }
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
        let given = self.allocate(log, old, Summary::new(nid, version, ofs_in_node)).await?;
        Ok(given.addr)
    }

    fn count(&self, cp: bool) {
        let n = if cp { &self.io.shared.cp } else { &self.io.shared.data };
        n.set(n.get() + 1);
    }

    /// Puts a block into the bio of its log, which goes first if the block does not follow
    /// (`f2fs_submit_page_write`).
    pub(super) fn merge(&self, kind: Kind, log: Option<Log>, page: Page, addr: u32, flags: Flags) {
        self.count(page.cp);
        if kind != Kind::Meta {
            self.note_device(page.ino, addr, 1);
        }
        let slot = Io::slot(kind, log);
        let seg = page.of.contents(kind);
        // What need not be the same for a block to join a bio; the bio keeps its first block's.
        let passed_over = match self.opts.era.flush_flags_merge() {
            true => Flags::PREFLUSH | Flags::FUA,
            false => Flags::NONE,
        };
        let full = {
            let slots = self.io.slots.borrow();
            slots[slot].as_ref().is_some_and(|m| {
                m.flags.without(passed_over) != flags.without(passed_over)
                    || m.last() + 1 != addr
                    || m.segs.len() >= BIO_BLOCKS
                    || !self.same_device(m.last(), addr)
            })
        };
        if full {
            self.submit_slot(slot);
        }
        let mut slots = self.io.slots.borrow_mut();
        match &mut slots[slot] {
            Some(m) => {
                m.pages.push(page);
                m.segs.push(seg);
            }
            empty => {
                *empty =
                    Some(Merged { pages: vec![page], segs: vec![seg], start: addr, flags, kind });
            }
        }
        drop(slots);
        if self.cp_error() {
            self.submit_slot(slot);
        }
    }

    fn submit_slot(&self, slot: usize) {
        let merged = self.io.slots.borrow_mut()[slot].take();
        if let Some(merged) = merged {
            self.send(merged);
        }
    }

    /// Sends the merged bios of a kind (`f2fs_submit_merged_write`).
    pub(crate) fn submit_merged(&self, kind: Kind) {
        Io::slots_of(kind).for_each(|slot| self.submit_slot(slot));
    }

    /// Sends all of them (`f2fs_flush_merged_writes`).
    pub(super) fn submit_all_merged(&self) {
        [Kind::Data, Kind::Node, Kind::Meta].into_iter().for_each(|k| self.submit_merged(k));
    }

    /// Sends those that hold what is asked for (`f2fs_submit_merged_write_cond`).
    pub(crate) fn submit_merged_cond(&self, kind: Kind, what: Held<'_>) {
        for slot in Io::slots_of(kind) {
            let holds = self.io.slots.borrow()[slot].as_ref().is_some_and(|m| m.holds(what));
            if holds {
                self.submit_slot(slot);
            }
        }
    }

    /// Sends the merged bio of metadata as the end of a checkpoint: behind a flush, and to the
    /// medium (`META_FLUSH`).
    pub(super) fn submit_last_block(&self) {
        let merged = self.io.slots.borrow_mut()[6].take();
        let Some(mut merged) = merged else { return };
        merged.flags |= Flags::META | Flags::PRIO | Flags::SYNC;
        if self.opts.barrier {
            if site::CP_FLUSH.on() {
                merged.flags |= Flags::PREFLUSH;
            }
            if site::CP_FUA.on() {
                merged.flags |= Flags::FUA;
            }
        }
        self.send(merged);
    }

    /// Submits a bio (`__submit_bio`).
    fn send(&self, merged: Merged) {
        let Merged { pages, segs, start, flags, kind } = merged;
        let (part, at) = self.io.target(&self.g, start);
        let ends_plug = self.io.lfs && kind != Kind::Meta;
        if ends_plug {
            part.queue().empty_plug();
        }
        self.rt.spend(CpuOp::BioSubmit, 1);
        let shared = self.io.shared.clone();
        part.submit(Bio::write(at, segs, flags).on_end(move |end| {
            let failed = end.status.is_err();
            pages.into_iter().for_each(|page| shared.written(page, failed));
        }));
        if ends_plug {
            part.queue().empty_plug();
        }
    }

    /// The bio of blocks in place that holds this one.
    fn take_ipu(&self, buf: &Rc<Buffer>) -> Option<Merged> {
        let mut ipu = self.io.ipu.borrow_mut();
        let held = ipu.iter().position(|(_, m)| m.holds(Held::Buf(buf)));
        held.map(|at| ipu.remove(at).1)
    }

    /// Sends the merged bio that holds the block, and, if `ordered`, waits for it
    /// (`f2fs_wait_on_page_writeback`; without it, waiting for stable pages, no device here needs).
    pub(crate) async fn wait_on_page_writeback(&self, buf: &Rc<Buffer>, kind: Kind, ordered: bool) {
        // Again if somebody, who has no lock of the page here, began another meanwhile: that, too,
        // may be held back in a merged bio.
        while buf.flag(BufFlag::Writeback) {
            self.submit_merged_cond(kind, Held::Buf(buf));
            if let Some(merged) = self.take_ipu(buf) {
                self.send(merged);
            }
            if !ordered {
                return;
            }
            buf.io_wait().wait().await;
        }
    }

    // ---- reads ----

    fn check_main(&self, addr: u32) -> FsResult<()> {
        if self.g.is_main(addr) {
            return Ok(());
        }
        let expected = format!("a block of the main area, {} to {}", self.g.main, self.g.end());
        Err(FsError::corrupt("f2fs node", "address", 0, u64::from(addr), expected))
    }

    /// Fills `buf` from block `addr` of the main area. Errors: `Io`, `Corrupt` beyond the area.
    pub(crate) async fn read_block(&self, buf: &Rc<Buffer>, addr: u32) -> FsResult<()> {
        self.check_main(addr)?;
        self.fill(buf, addr, Flags::NONE).await
    }

    /// Fills `buf` from block `addr`, unless somebody does already. Errors: `Io`.
    pub(super) async fn fill(&self, buf: &Rc<Buffer>, addr: u32, flags: Flags) -> FsResult<()> {
        while buf.flag(BufFlag::Reading) {
            buf.wait_clear(BufFlag::Reading).await;
        }
        if buf.flag(BufFlag::Uptodate) {
            return Ok(());
        }
        self.start_read(vec![buf.clone()], addr, flags);
        buf.wait_clear(BufFlag::Reading).await;
        if buf.flag(BufFlag::Uptodate) { Ok(()) } else { Err(FsError::Io) }
    }

    /// Submits a read of consecutive blocks. `Reading` is set until it ends.
    pub(super) fn start_read(&self, mut bufs: Vec<Rc<Buffer>>, mut addr: u32, flags: Flags) {
        bufs.iter().for_each(|b| b.set(BufFlag::Reading));
        while !bufs.is_empty() {
            let n = self.io.on_one(&self.g, addr, bufs.len() as u32);
            let later = bufs.split_off(n as usize);
            self.read_on_one(bufs, addr, flags);
            (bufs, addr) = (later, addr + n);
        }
    }

    /// The same for blocks of one device.
    fn read_on_one(&self, bufs: Vec<Rc<Buffer>>, addr: u32, flags: Flags) {
        let (part, at) = self.io.target(&self.g, addr);
        let shared = self.io.shared.clone();
        shared.reads.set(shared.reads.get() + 1);
        self.rt.spend(CpuOp::BioSubmit, 1);
        part.submit(Bio::read(at, bufs.len() as u32 * SECTORS, flags).on_end(move |end| {
            shared.reads.set(shared.reads.get() - 1);
            let whole = Blocks::of(&end.data);
            for (n, buf) in bufs.iter().enumerate() {
                if end.status.is_ok() && !buf.flag(BufFlag::Uptodate) {
                    buf.set_contents(whole.block(n));
                    buf.set(BufFlag::Uptodate);
                }
                buf.clear(BufFlag::Reading);
                buf.wake();
            }
        }));
    }

    /// Sends bios of the caller's own to where the `blocks` blocks from `addr` on lie (direct I/O),
    /// one a device. Waits: for the CPU only. Errors: `Corrupt` beyond the main area.
    pub(crate) async fn send_direct(
        &self,
        addr: u32,
        write: Option<Vec<Slice>>,
        blocks: u32,
        flags: Flags,
    ) -> FsResult<DirectBios> {
        self.check_main(addr)?;
        let mut sent = Vec::new();
        let mut segs = write;
        let (mut addr, mut left) = (addr, blocks);
        while left > 0 {
            let n = self.io.on_one(&self.g, addr, left);
            let (part, at) = self.io.target(&self.g, addr);
            let bio = match &mut segs {
                Some(segs) if n == left => Bio::write(at, std::mem::take(segs), flags),
                Some(segs) => {
                    let now = Pieces::new(segs).take(n * SECTORS * 512);
                    let mut rest = Pieces::new(segs);
                    rest.take(n * SECTORS * 512);
                    *segs = rest.take((left - n) * SECTORS * 512);
                    Bio::write(at, now, flags)
                }
                None => Bio { op: Op::Read, ..Bio::read(at, n * SECTORS, flags) },
            };
            self.rt.cpu(CpuOp::BioSubmit, 1).await;
            sent.push(part.send(bio));
            (addr, left) = (addr + n, left - n);
        }
        Ok(DirectBios(sent))
    }

    /// Is anything on its way (`is_inflight_io`, `is_idle`)?
    pub(super) fn is_busy(&self) -> bool {
        let s = &self.io.shared;
        s.cp.get() + s.data.get() + s.reads.get() > 0
    }
}

impl Shared {
    /// A block of a bio has been written (`f2fs_write_end_io`).
    fn written(&self, page: Page, failed: bool) {
        if failed && page.cp {
            self.error.set(true);
        }
        page.leave(&mut self.fsynced.borrow_mut());
        let n = if page.cp { &self.cp } else { &self.data };
        n.set(n.get() - 1);
        if page.cp && n.get() == 0 {
            self.cp_wait.wake_all();
        }
        match page.of {
            Of::Cache(map, buf) => map.end_writeback(&buf, failed),
            Of::Direct(_, write) => write.arrived(failed),
        }
    }
}

/// What a read found, block by block.
struct Blocks<'a>(&'a [Slice]);

impl Blocks<'_> {
    fn of(data: &[Slice]) -> Blocks<'_> {
        Blocks(data)
    }

    fn block(&self, n: usize) -> Slice {
        let bytes = SECTORS * 512;
        let (mut from, mut left) = (n as u64 * u64::from(bytes), u64::from(bytes));
        let mut parts = Vec::new();
        for s in self.0 {
            let len = u64::from(s.len());
            if from >= len {
                from -= len;
                continue;
            }
            let take = left.min(len - from);
            if take > 0 {
                parts.push(s.sub(from as u32, take as u32));
            }
            (from, left) = (0, left - take);
        }
        if let [one] = parts.as_slice() {
            return one.clone();
        }
        let mut page = [0u8; 4096];
        let mut at = 0;
        for p in parts {
            p.copy_to(&mut page[at..at + p.len() as usize]);
            at += p.len() as usize;
        }
        Slice::from_bytes(&page)
    }
}

/// Bios of direct I/O on their way.
pub(crate) struct DirectBios(Vec<InFlight>);

impl DirectBios {
    /// Waits: for all of them. Returns: what reads found. Errors: `Io`.
    pub(crate) async fn wait(self) -> FsResult<Vec<Slice>> {
        let mut read = Vec::new();
        let mut done = Ok(());
        for bio in self.0 {
            match bio.wait().await {
                Ok(data) => read.extend(data),
                Err(_) => done = Err(FsError::Io),
            }
        }
        done.map(|()| read)
    }
}
