//! How a journal behaves: mount options.

use std::num::NonZeroU32;
use std::rc::Rc;

use wp_base::Span;
use wp_base::kernel::Version;
use wp_rt::Ticks;

use crate::disk;
use crate::era::Era;
use crate::fast::FastKind;

/// How commits become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommitMode {
    /// One commit at a time: transfer, flush, record with FUA (stock jbd2).
    #[default]
    Flush,
    /// The commit thread only dispatches, in an order that the device keeps; a second thread waits
    /// for the transfers and flushes, so that several transactions commit at once (BarrierFS'
    /// dual-mode journaling). Durable on a device that honours `Limits::barrier_writes`.
    Barrier(DualMode),
}

impl CommitMode {
    /// Dual mode's switches.
    pub const fn dual(self) -> Option<DualMode> {
        match self {
            CommitMode::Flush => None,
            CommitMode::Barrier(dual) => Some(dual),
        }
    }
}

/// Switches of dual-mode journaling: BarrierFS with none of them, CJFS with all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DualMode {
    /// Multi-version shadow paging: this number of unfinished transactions may each have a version
    /// of a buffer; the log is written from copies. `None`: one owner and one heir at a time.
    /// [`DualMode::NO_CONFLICTS`]: no limit.
    pub versions: Option<NonZeroU32>,
    /// Opportunistic coalescing: a transaction that may not commit yet because of conflicts goes on
    /// taking handles.
    pub coalesce: bool,
    /// Compound flush: one flush for at most this number of transactions, or for all that were
    /// dispatched.
    pub compound_flush: NonZeroU32,
}

impl DualMode {
    /// No transaction ever finds its version taken.
    pub const NO_CONFLICTS: NonZeroU32 = NonZeroU32::MAX;
}

impl Default for DualMode {
    fn default() -> DualMode {
        DualMode { versions: None, coalesce: false, compound_flush: NonZeroU32::MIN }
    }
}

/// Who wants to know of each conflict (to count them by type of block). Hold the file system weakly
/// in it.
pub trait ConflictObserver {
    /// A handle met a buffer of another transaction; or, with [`JournalOptions::observe_all`], it
    /// did not. Told once a call, of what it met first. `waited` is zero but for
    /// [`Conflict::Shadow`].
    fn conflict(&self, block: u64, case: Conflict, waited: Span);
}

/// What a handle of the running transaction finds when it wants to change a buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Conflict {
    /// Case 0: the running transaction owns it, or nobody does. No conflict.
    None = 0,
    /// Case 1: the committing transaction owns it and the running one has asked for it before.
    Joined = 1,
    /// Case 2: the committing transaction has a copy of its own already.
    Frozen = 2,
    /// Case 3: its only copy is being written to the log: the handle waits.
    Shadow = 3,
    /// Case 4: not written to the log yet: the committing transaction gets a copy.
    Copy = 4,
    /// The fifth case: written to the log already, the commit not over. Nothing to copy, nothing to
    /// wait for.
    Logged = 5,
    /// With multi-version shadow paging: an older transaction has it, and this one gets a version
    /// of its own. No conflict.
    Versioned = 6,
    /// The same, but the version is in use: the transaction may not commit before that one is over.
    Slot = 7,
}

impl Conflict {
    /// Every case.
    pub const ALL: [Conflict; 8] = [
        Conflict::None,
        Conflict::Joined,
        Conflict::Frozen,
        Conflict::Shadow,
        Conflict::Copy,
        Conflict::Logged,
        Conflict::Versioned,
        Conflict::Slot,
    ];

    /// Does it count as a journal conflict: is an older owner in the way?
    pub const fn counts(self) -> bool {
        !matches!(self, Conflict::None | Conflict::Versioned)
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Conflict::None => "none",
            Conflict::Joined => "joined",
            Conflict::Frozen => "frozen",
            Conflict::Shadow => "shadow",
            Conflict::Copy => "copy",
            Conflict::Logged => "logged",
            Conflict::Versioned => "versioned",
            Conflict::Slot => "slot",
        }
    }
}

/// How to run a journal.
#[derive(Clone)]
pub struct JournalOptions {
    /// Name of its thread as traces show it: `jbd2/sdb1-8`.
    pub ino_name: String,
    /// Age at which a transaction is committed (`commit=`, 5 s).
    pub commit_interval: Span,
    /// Ticks a second, and how the timer that commits is rounded.
    pub ticks: Ticks,
    /// What differs between kernels.
    pub era: Era,
    /// Flush the device and force the record (`barrier`).
    pub barrier: bool,
    /// With `barrier`, flush before the record as well as behind it. Not where the device keeps all
    /// writes in order (OPTR): the log is durable before the record there.
    pub preflush: bool,
    /// Send the commit record together with the transaction (`journal_async_commit`). Sets the
    /// feature.
    pub async_commit: bool,
    /// How commits become durable.
    pub mode: CommitMode,
    /// A commit logs a copy of every buffer, so that no handle waits for a log write (`force_copy`
    /// of Alibaba Cloud Linux, `/proc/fs/jbd2/DEV/force_copy`). Not with versions of buffers, which
    /// are logged from copies already.
    pub force_copy: bool,
    /// A synchronous handle waits at least this long for company (`min_batch_time`, 0).
    pub batch_min: Span,
    /// A synchronous handle waits at most this long for company (`max_batch_time`, 15 ms; 0 =
    /// never).
    pub batch_max: Span,
    /// A failed write of ordered data aborts the journal (`data_err=abort`).
    pub abort_on_data_error: bool,
    /// What the last blocks of the log are for, which the file system writes.
    pub fast: FastKind,
    /// First transaction id after a recovery whose superblock was left alone
    /// ([`crate::RecoverPolicy::mark_empty`] off); `None` for a log that is empty on disk.
    pub recovered: Option<crate::RecoveryReport>,
    /// Seconds since 1970 at virtual time zero, for commit records.
    pub epoch_secs: u64,
    /// Receives every conflict.
    pub observer: Option<Rc<dyn ConflictObserver>>,
    /// The observer is told of accesses without one too ([`Conflict::None`]).
    pub observe_all: bool,
}

impl Default for JournalOptions {
    /// Linux 6.1, whose source the rules were read in.
    fn default() -> JournalOptions {
        JournalOptions {
            ino_name: "jbd2/sdb1-8".to_owned(),
            commit_interval: Span::secs(5),
            ticks: Ticks { hz: 250, wheel: false },
            era: Era::of(Version(6, 1, 0)),
            barrier: true,
            preflush: true,
            async_commit: false,
            mode: CommitMode::Flush,
            force_copy: false,
            batch_min: Span::ZERO,
            batch_max: Span::millis(15),
            abort_on_data_error: false,
            fast: FastKind::Off,
            recovered: None,
            // 2014-01-01, the year of the papers' kernels.
            epoch_secs: 1_388_534_400,
            observer: None,
            observe_all: false,
        }
    }
}

/// Blocks of a transaction that no credit stands for: rounding. `jbd2_log_space_left`.
pub(crate) const SPARE_BLOCKS: i64 = 32;

/// Blocks that one checkpoint batch submits under one plug. `JBD2_NR_BATCH`.
pub(crate) const CHECKPOINT_BATCH: usize = 64;

const _: () = assert!(disk::LOG_BLOCKS_MIN as i64 > 4 * SPARE_BLOCKS);
