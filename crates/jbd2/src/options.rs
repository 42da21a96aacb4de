//! How a journal behaves: mount options, and what differs between kernels.

use std::num::NonZeroU32;
use std::rc::Rc;

use wp_base::Span;
use wp_base::event::Flags;
use wp_rt::Ticks;

use crate::disk;

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

/// How credits stand for the log blocks that hold no metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditRule {
    /// Not at all: a few spare blocks must do (up to 3.10).
    Plain,
    /// A thirty-second part on top (3.11 to 5.4, `JBD2_CONTROL_BLOCKS_SHIFT`).
    Shift,
    /// Every transaction starts with the descriptors that it may need; revoke blocks have credits
    /// of their own ("jbd2: Account descriptor blocks into t_outstanding_credits", 5.5).
    Descriptors,
}

/// Rules of the journal that differ between kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EraPolicy {
    /// Flags of every write to the log. SYNC alone up to 5.x (`WRITE_SYNC`: no more is to come);
    /// with META and IDLE since 6.1 ("jbd2: increase the journal IO's priority"): `WS` becomes
    /// `WSM` in traces.
    pub log_flags: Flags,
    /// The ordered-data list is walked newest first (`list_add` puts at the head). In every kernel
    /// so far.
    pub file_inode_lifo: bool,
    /// A commit writes the part of a file that was filed, not all of it ("jbd2: introduce
    /// jbd2_inode dirty range scoping", 5.3).
    pub ordered_ranges: bool,
    /// A block stays in the shadow until the commit thread has processed its write, not only until
    /// the write ends (up to 3.10, where being on the shadow list was the mark).
    pub shadow_until_processed: bool,
    /// Credits of control blocks.
    pub credits: CreditRule,
    /// A transaction may be this part of the log (4; 3 since 6.16, not checked against a source
    /// here).
    pub transaction_divisor: u32,
    /// Bytes that a tag is thought to need when the batch of log blocks is sized: 12, later 8.
    pub batch_tag_bytes: u32,
    /// The log's tail moves with a flush before and FUA ("jbd2: issue cache flush after
    /// checkpointing even with internal journal", 3.4), and also after a commit ("jbd2: cleanup
    /// journal tail after transaction commit", 3.4). Before, only a checkpoint moved it, and the
    /// superblock stayed in the drive's cache while the log was used again. The versions are from
    /// memory; jbd, of ext3, has the first since 3.5 (fd2cbd4dfa3d).
    pub forced_tail: bool,
    /// A handle that is about to change metadata finds that writeback of some has failed, and
    /// aborts ("jbd2: abort journal when detecting metadata writeback error of fs dev", 6.8;
    /// version from memory, seen in 6.18): the blocks that it would read may be old ones. Before,
    /// only a checkpoint looked.
    pub aborts_on_device_error: bool,
    /// Why the journal was aborted is written with FUA ("ext4, jbd2: Add REQ_FUA flag when
    /// recording an error in the superblock", 4.3; version from memory).
    pub errno_forced: bool,
    /// Start where the last mount stopped (`s_head`; "jbd2: continue to record log between each
    /// mount", 6.4).
    pub cycle_record: bool,
    /// A transaction that changed nothing still writes its commit record. Nothing in jbd2 has ever
    /// skipped it: today's kernels show no lone record because ext4 no longer starts such handles.
    pub lone_record: bool,
    /// Incompatible features that it knows.
    pub incompat_known: u32,
}

impl EraPolicy {
    /// The rules of Linux `major.minor`.
    pub const fn linux(major: u32, minor: u32) -> EraPolicy {
        let v = major * 1000 + minor;
        let log_flags = if v >= 6001 {
            Flags(Flags::SYNC.0 | Flags::META.0 | Flags::IDLE.0)
        } else {
            Flags::SYNC
        };
        let credits = if v >= 5005 {
            CreditRule::Descriptors
        } else if v >= 3011 {
            CreditRule::Shift
        } else {
            CreditRule::Plain
        };
        EraPolicy {
            log_flags,
            file_inode_lifo: true,
            ordered_ranges: v >= 5003,
            shadow_until_processed: v < 3011,
            credits,
            transaction_divisor: if v >= 6016 { 3 } else { 4 },
            batch_tag_bytes: if v >= 4013 { 8 } else { 12 },
            forced_tail: v >= 3004,
            aborts_on_device_error: v >= 6008,
            errno_forced: v >= 4003,
            cycle_record: v >= 6004,
            lone_record: true,
            incompat_known: crate::recover::RecoverPolicy::linux(major, minor).incompat_known,
        }
    }
}

impl Default for EraPolicy {
    /// Linux 6.1, whose source the rules were read in.
    fn default() -> EraPolicy {
        EraPolicy::linux(6, 1)
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
    pub policy: EraPolicy,
    /// Flush the device and force the record (`barrier`).
    pub barrier: bool,
    /// Send the commit record together with the transaction (`journal_async_commit`). Sets the
    /// feature.
    pub async_commit: bool,
    /// How commits become durable.
    pub mode: CommitMode,
    /// A synchronous handle waits at least this long for company (`min_batch_time`, 0).
    pub batch_min: Span,
    /// A synchronous handle waits at most this long for company (`max_batch_time`, 15 ms; 0 =
    /// never).
    pub batch_max: Span,
    /// A failed write of ordered data aborts the journal (`data_err=abort`).
    pub abort_on_data_error: bool,
    /// Keep the fast-commit area of a log that has one.
    pub fast_commit: bool,
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
    fn default() -> JournalOptions {
        JournalOptions {
            ino_name: "jbd2/sdb1-8".to_owned(),
            commit_interval: Span::secs(5),
            ticks: Ticks { hz: 250, wheel: false },
            policy: EraPolicy::default(),
            barrier: true,
            async_commit: false,
            mode: CommitMode::Flush,
            batch_min: Span::ZERO,
            batch_max: Span::millis(15),
            abort_on_data_error: false,
            fast_commit: false,
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
