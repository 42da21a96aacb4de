//! What happened, typed: the one schema of events that traces, tests and reports read.
//!
//! A [`Probe`] is cheap to clone and costs one load and one untaken branch while its class is off.
//! Nothing is formatted here.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

mod device;

pub use device::{DeviceWork, Die, Work};

use crate::units::{Sector, Span, Time};

/// Operation of a bio or request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Empty the device's volatile cache; no data.
    Flush,
    /// The range's contents are no longer needed.
    Discard,
    /// Something with a zone of a zoned device.
    Zone(ZoneOp),
}

/// What is done with a zone (`REQ_OP_ZONE_*`). All but the append carry no data and name their zone
/// by its first sector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ZoneOp {
    /// Writes data at the write pointer, wherever that is by then; the completion tells.
    Append,
    /// Makes it empty.
    Reset,
    /// Makes all of them empty.
    ResetAll,
    /// Opens it.
    Open,
    /// Closes it.
    Close,
    /// Makes it full.
    Finish,
    /// Reports all of them (a driver's command: NVMe Zone Management Receive).
    Report,
}

impl ZoneOp {
    /// Does it carry data to the device?
    pub fn writes(self) -> bool {
        self == ZoneOp::Append
    }

    /// Its name in `nvme zns` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            ZoneOp::Append => "zone append",
            ZoneOp::Reset => "zone reset",
            ZoneOp::ResetAll => "zone reset all",
            ZoneOp::Open => "zone open",
            ZoneOp::Close => "zone close",
            ZoneOp::Finish => "zone finish",
            ZoneOp::Report => "zone report",
        }
    }
}

impl Op {
    /// Does it carry data to the device?
    pub fn writes(self) -> bool {
        matches!(self, Op::Write | Op::Zone(ZoneOp::Append))
    }
}

/// Flags of a bio or request (a bit set).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Flush the device cache before the data.
    pub const PREFLUSH: Flags = Flags(1);
    /// The data must be on the medium at completion.
    pub const FUA: Flags = Flags(2);
    /// Somebody waits for it.
    pub const SYNC: Flags = Flags(4);
    /// File-system metadata.
    pub const META: Flags = Flags(8);
    /// Read ahead of need; may be dropped.
    pub const RAHEAD: Flags = Flags(16);
    /// Boosted priority.
    pub const PRIO: Flags = Flags(32);
    /// The submitter expects more I/O soon (the elevator should not idle on it).
    pub const IDLE: Flags = Flags(64);
    /// Order-preserving within its epoch (BarrierFS).
    pub const ORDERED: Flags = Flags(128);
    /// Ends its epoch (BarrierFS).
    pub const BARRIER: Flags = Flags(256);
    /// An untorn write: after a power failure it is there whole or not at all (`REQ_ATOMIC`).
    pub const ATOMIC: Flags = Flags(512);

    /// Are all of `other` set?
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Is any of `other` set?
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
    /// Without `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
impl std::ops::BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}
impl std::fmt::Debug for Flags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [&str; 10] = [
            "PREFLUSH", "FUA", "SYNC", "META", "RAHEAD", "PRIO", "IDLE", "ORDERED", "BARRIER",
            "ATOMIC",
        ];
        let set: Vec<&str> = NAMES
            .iter()
            .enumerate()
            .filter(|(i, _)| self.0 & (1 << i) != 0)
            .map(|(_, n)| *n)
            .collect();
        f.write_str(&set.join("|"))
    }
}

/// The letters that blktrace prints for an operation and its flags, such as `FWFS`.
///
/// A flush that nobody waits for by itself, `FF`, is one that blk-mq's flush machine made
/// (`REQ_OP_FLUSH | REQ_PREFLUSH`, since 4.10).
///
/// Order (blkparse `fill_rwbs`): F preflush; D, W, R or N; F fua; A readahead; S sync; M meta; U
/// untorn.
pub fn rwbs(op: Op, flags: Flags) -> String {
    let mut s = String::with_capacity(4);
    if op == Op::Flush && flags.has(Flags::PREFLUSH) && !flags.has(Flags::SYNC) {
        return "FF".to_owned();
    }
    if flags.has(Flags::PREFLUSH) {
        s.push('F');
    }
    s.push(match op {
        Op::Discard => 'D',
        // The kernel sends a cache flush as an empty write.
        Op::Write | Op::Flush => 'W',
        Op::Read => 'R',
        // `blk_fill_rwbs()` up to 6.18 knows no zone operation.
        Op::Zone(_) => 'N',
    });
    if flags.has(Flags::FUA) {
        s.push('F');
    }
    if flags.has(Flags::RAHEAD) {
        s.push('A');
    }
    if flags.has(Flags::SYNC) {
        s.push('S');
    }
    if flags.has(Flags::META) {
        s.push('M');
    }
    if flags.has(Flags::ATOMIC) {
        s.push('U');
    }
    s
}

/// What the block layer did, by blktrace's letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockAction {
    /// `Q`: a bio entered the queue.
    Queue,
    /// `A`: remapped from a partition to its device.
    Remap,
    /// `X`: split.
    Split,
    /// `G`: a request was allocated for it.
    GetRequest,
    /// `M`: merged at the back of a request.
    BackMerge,
    /// `F`: merged at the front of a request.
    FrontMerge,
    /// `P`: the queue is plugged by a task.
    Plug,
    /// `U`: unplugged.
    Unplug,
    /// `I`: the request entered the elevator.
    Insert,
    /// `D`: the request was issued to the driver.
    Issue,
    /// `R`: the device was busy; the request went back.
    Requeue,
    /// `C`: the request completed.
    Complete,
}

impl BlockAction {
    /// blktrace's letter.
    pub const fn letter(self) -> char {
        match self {
            BlockAction::Queue => 'Q',
            BlockAction::Remap => 'A',
            BlockAction::Split => 'X',
            BlockAction::GetRequest => 'G',
            BlockAction::BackMerge => 'M',
            BlockAction::FrontMerge => 'F',
            BlockAction::Plug => 'P',
            BlockAction::Unplug => 'U',
            BlockAction::Insert => 'I',
            BlockAction::Issue => 'D',
            BlockAction::Requeue => 'R',
            BlockAction::Complete => 'C',
        }
    }
}

/// Step of an [`Event::Fs`]: the task of the record asks for it.
pub const FS_ASKED: &str = "asked";
/// Step of an [`Event::Fs`]: it begins.
pub const FS_BEGIN: &str = "begin";
/// Step of an [`Event::Fs`]: it is over.
pub const FS_END: &str = "end";

/// One event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The block layer. Sectors are absolute device sectors (after partition remap) except in the
    /// first field of `Remap`'s pair.
    Block {
        /// What was done.
        action: BlockAction,
        /// To which operation.
        op: Op,
        /// With which flags.
        flags: Flags,
        /// First sector. For `Plug`/`Unplug`: 0.
        at: Sector,
        /// Sectors; for `Unplug` the number of requests.
        sectors: u32,
        /// For `Remap`: sector within the partition. For `Complete`: queue-to-complete nanoseconds.
        extra: u64,
    },
    /// A journal commit changed phase (jbd2 trace-event name without `jbd2_`).
    Jbd2 {
        /// `start_commit`, `commit_locking`, `commit_flushing`, `commit_logging`, `end_commit`,
        /// `checkpoint`, `submit_inode_data`, `file_inode`, …
        what: &'static str,
        /// Transaction id.
        tid: u32,
        /// Event's own number (inode, blocks, …).
        value: u64,
    },
    /// A file system was asked for, begins, goes on in or ends a piece of work that several calls
    /// may share. jbd2 tells the phases of its commits as [`Event::Jbd2`].
    Fs {
        /// Which: `commit`, `checkpoint`, `log`, `garbage collection`, ….
        work: &'static str,
        /// [`FS_ASKED`], [`FS_BEGIN`], [`FS_END`], or the name of a phase.
        step: &'static str,
        /// Its number: transaction, version of a checkpoint, ….
        id: u64,
        /// Why it was asked for or begun; empty where that goes without saying.
        why: &'static str,
    },
    /// A task was charged modelled CPU time, by operation.
    Cpu {
        /// Name of the operation in the cost profile.
        what: &'static str,
        /// Nanoseconds.
        span: Span,
    },
    /// The task of this record, or interrupt context, made another ready to run (`sched_wakeup`).
    Wakeup {
        /// Name of the task that was woken. It did not run, and nobody had woken it yet.
        task: Rc<str>,
        /// Its own sleep ended; nobody woke it.
        timer: bool,
        /// Name of the lock, queue or completion that it had waited for; empty if none is known.
        on: &'static str,
    },
    /// The task of this record got a core (`sched_switch` to it). Only where CPU time is modelled.
    SwitchIn {
        /// Which, from 0.
        core: u32,
    },
    /// The task of this record gave its core up (`sched_switch` from it).
    SwitchOut {
        /// It was ready to go on: it waits for a core, and for nothing else.
        ready: bool,
    },
    /// A system call began.
    SyscallEnter {
        /// Its name.
        name: &'static str,
        /// Sequence number that the exit repeats.
        id: u64,
        /// Path or descriptor as text.
        target: Rc<str>,
    },
    /// A system call returned.
    SyscallExit {
        /// Its name.
        name: &'static str,
        /// Sequence number of its enter.
        id: u64,
        /// Bytes, descriptor or 0; the negative errno is not modelled: `ok` says.
        value: u64,
        /// Did it succeed?
        ok: bool,
    },
    /// A note that an experiment puts in the trace (phase marks).
    Mark {
        /// Its text.
        text: Rc<str>,
    },
    /// The device took a command: a request, or a part of it.
    Command {
        /// Its number in this trace, from 1.
        id: u64,
        /// What to do.
        op: Op,
        /// How; only [`Flags::FUA`] means anything to a device.
        flags: Flags,
        /// First sector.
        at: Sector,
        /// Sectors; 0 for a flush.
        sectors: u32,
    },
    /// The device completed a command.
    CommandEnd {
        /// Its number.
        id: u64,
        /// Did it succeed?
        ok: bool,
    },
    /// What the device did within.
    Device(Box<DeviceWork>),
}

/// Classes of events, for the mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(pub u32);

impl Class {
    /// [`Event::Block`].
    pub const BLOCK: Class = Class(1);
    /// [`Event::Jbd2`].
    pub const JBD2: Class = Class(2);
    /// [`Event::Cpu`].
    pub const CPU: Class = Class(4);
    /// [`Event::SyscallEnter`] and [`Event::SyscallExit`].
    pub const SYSCALL: Class = Class(8);
    /// [`Event::Mark`].
    pub const MARK: Class = Class(16);
    /// [`Event::Command`], [`Event::CommandEnd`] and [`Event::Device`].
    pub const DEVICE: Class = Class(32);
    /// [`Event::Wakeup`], [`Event::SwitchIn`] and [`Event::SwitchOut`].
    pub const SCHED: Class = Class(64);
    /// [`Event::Fs`].
    pub const FS: Class = Class(128);
    /// Everything.
    pub const ALL: Class = Class(u32::MAX);
}

/// An event with its time and the task that was running.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// When.
    pub at: Time,
    /// Name of the running task; `swapper` in completion context.
    pub task: Rc<str>,
    /// What.
    pub event: Event,
}

/// Where events go. Clones share one log.
#[derive(Clone, Default)]
pub struct Probe(Rc<ProbeInner>);

#[derive(Default)]
struct ProbeInner {
    mask: Cell<u32>,
    log: RefCell<Vec<Record>>,
    /// Most records that are kept; `None`: all.
    limit: Cell<Option<usize>>,
    left_out: Cell<u64>,
}

impl Probe {
    /// A probe with everything off.
    pub fn new() -> Probe {
        Probe::default()
    }
    /// Switches classes on; the others go off.
    pub fn set_mask(&self, class: Class) {
        self.0.mask.set(class.0);
    }
    /// Is the class on?
    #[inline]
    pub fn on(&self, class: Class) -> bool {
        self.0.mask.get() & class.0 != 0
    }
    /// Keeps at most `limit` records; later ones are only counted.
    pub fn set_limit(&self, limit: usize) {
        /// Records that get their place at once: a log that grows is copied each time, and the
        /// memory of all its copies stays with the program.
        const AT_ONCE: usize = 1 << 21;
        // Without room the log grows as it would.
        let _ = self.0.log.borrow_mut().try_reserve_exact(limit.min(AT_ONCE));
        self.0.limit.set(Some(limit));
    }
    /// Records that were not kept.
    pub fn left_out(&self) -> u64 {
        self.0.left_out.get()
    }
    /// Appends a record. Call only when its class is on.
    pub fn push(&self, record: Record) {
        let mut log = self.0.log.borrow_mut();
        if self.0.limit.get().is_some_and(|limit| log.len() >= limit) {
            self.0.left_out.set(self.0.left_out.get() + 1);
            return;
        }
        log.push(record);
    }
    /// Records so far.
    pub fn len(&self) -> usize {
        self.0.log.borrow().len()
    }
    /// No record yet?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Takes all records out.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.0.log.borrow_mut())
    }
    /// A copy of the records from index `from`.
    pub fn since(&self, from: usize) -> Vec<Record> {
        self.0.log.borrow()[from..].to_vec()
    }
}
