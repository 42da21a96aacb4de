//! Modelled CPUs: a number of cores and what each operation costs.
//!
//! A task needs a core to be polled. It keeps the core while it computes ([`crate::Rt::cpu`]) and
//! gives it up when it waits for anything else. Tasks get cores first come, first served. Work in
//! interrupt context ([`crate::Rt::spend`]) delays whatever runs on core 0, which takes the
//! interrupts. With a profile of zeroes there are no cores and no events at all.

use std::pin::Pin;
use std::task::{Context, Poll};

use wp_base::{Span, Time};

use crate::runtime::Rt;
use crate::tasks::TaskId;

/// A task that has held its core this long goes to the end of the run queue when its current burst
/// ends and others are ready: without it, a task that only computes would starve a kernel thread
/// for ever. Linux CFS `sched_min_granularity_ns`: 0.75 ms × (1 + log2(8 cores)).
pub const TIME_SLICE: Span = Span::millis(3);

macro_rules! cpu_ops {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// An operation that costs CPU time.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum CpuOp { $($(#[$doc])* $variant,)* }
        impl CpuOp {
            /// Every operation, in declaration order.
            pub const ALL: &[CpuOp] = &[$(CpuOp::$variant,)*];
            /// Its name in profiles and traces.
            pub const fn name(self) -> &'static str {
                match self { $(CpuOp::$variant => $name,)* }
            }
        }
    };
}

cpu_ops! {
    /// Entry into and return from the kernel.
    Syscall => "syscall",
    /// Look-up of one component of a path.
    PathComponent => "path_component",
    /// A name added to or removed from a directory.
    NameChange => "name_change",
    /// An inode allocated or freed.
    InodeChange => "inode_change",
    /// Copy of 4 KiB from user memory into the page cache, page look-up included.
    PageWrite => "page_write",
    /// Copy of 4 KiB from the page cache to user memory, page look-up included.
    PageRead => "page_read",
    /// Writeback of one page: find, lock, map, add to a bio.
    PageWriteback => "page_writeback",
    /// One call of the block allocator.
    BlockAlloc => "block_alloc",
    /// One node block through writeback (F2FS): look-up, marks, its place in the log.
    NodeWriteback => "node_writeback",
    /// An fsync before its first page: look-ups, locks, the plug.
    SyncStart => "sync_start",
    /// An fsync after its last wait.
    SyncEnd => "sync_end",
    /// A call that asks for a flush, whether or not the device has a cache to flush.
    FlushIssue => "flush_issue",
    /// Start and stop of a journal handle.
    HandleStart => "handle_start",
    /// One block through a journal commit.
    JournalBlock => "journal_block",
    /// A bio from the file system into the block layer.
    BioSubmit => "bio_submit",
    /// A request from the elevator to the driver.
    RequestDispatch => "request_dispatch",
    /// A request's completion.
    Completion => "completion",
    /// A core changes from one task to another, or from idle to a task.
    ContextSwitch => "context_switch",
}

impl CpuOp {
    /// The operation of that name.
    pub fn by_name(name: &str) -> Option<CpuOp> {
        CpuOp::ALL.iter().copied().find(|op| op.name() == name)
    }
}

/// Nanoseconds of CPU time for each operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostProfile {
    ns: [u64; CpuOp::ALL.len()],
}

impl CostProfile {
    /// Nothing costs anything.
    pub const fn zero() -> CostProfile {
        CostProfile { ns: [0; CpuOp::ALL.len()] }
    }
    /// Sets the cost of `op` in nanoseconds.
    pub fn set(&mut self, op: CpuOp, ns: u64) {
        self.ns[op as usize] = ns;
    }
    /// The cost of `op` in nanoseconds.
    pub const fn get(&self, op: CpuOp) -> u64 {
        self.ns[op as usize]
    }
    /// Does nothing cost anything?
    pub fn is_zero(&self) -> bool {
        self.ns.iter().all(|ns| *ns == 0)
    }
}

impl Default for CostProfile {
    fn default() -> CostProfile {
        CostProfile::zero()
    }
}

/// Cores and what operations cost on them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuModel {
    /// Number of cores, at least 1.
    pub cores: u32,
    /// Cost of each operation.
    pub profile: CostProfile,
}

impl CpuModel {
    /// One core on which nothing costs anything: CPU is not modelled.
    pub const fn free() -> CpuModel {
        CpuModel { cores: 1, profile: CostProfile::zero() }
    }
}

impl Default for CpuModel {
    fn default() -> CpuModel {
        CpuModel::free()
    }
}

/// One modelled core.
#[derive(Clone, Copy, Default)]
pub(crate) struct Core {
    /// Who holds it.
    pub task: Option<TaskId>,
    /// Who held it last.
    pub last: Option<TaskId>,
    pub busy: Span,
    /// Interrupts keep it until then; no task begins on it before.
    pub interrupted_until: Time,
}

/// Future of [`Rt::cpu`]: the task computes. Dropping it does not give the time back.
#[must_use = "CPU time passes only when awaited"]
pub struct Cpu<'a> {
    rt: &'a Rt,
    op: CpuOp,
    cost: Span,
    end: Option<Time>,
}

impl<'a> Cpu<'a> {
    pub(crate) fn new(rt: &'a Rt, op: CpuOp, cost: Span) -> Cpu<'a> {
        Cpu { rt, op, cost, end: None }
    }

    /// Begins to compute, if it has not; is it over already? What a poll does.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        if self.cost == Span::ZERO {
            return true;
        }
        let end = match self.end {
            Some(end) => end,
            None => match self.rt.compute(self.op, self.cost) {
                Some(end) => *self.end.insert(end),
                // Interrupt context: nobody to charge.
                None => return true,
            },
        };
        self.rt.now() >= end
    }
}

impl Future for Cpu<'_> {
    type Output = ();
    #[inline]
    fn poll(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }
}
