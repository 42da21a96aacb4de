//! How a journal behaves: mount options, and what differs between kernels.

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
    /// A block stays in the shadow until the commit thread has looked at its write, not only until
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
    /// A handle met a buffer of another transaction. `waited` is zero but for [`Conflict::Shadow`].
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
}

impl Conflict {
    /// Every case.
    pub const ALL: [Conflict; 6] = [
        Conflict::None,
        Conflict::Joined,
        Conflict::Frozen,
        Conflict::Shadow,
        Conflict::Copy,
        Conflict::Logged,
    ];
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Conflict::None => "none",
            Conflict::Joined => "joined",
            Conflict::Frozen => "frozen",
            Conflict::Shadow => "shadow",
            Conflict::Copy => "copy",
            Conflict::Logged => "logged",
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
    /// Who is told of conflicts.
    pub observer: Option<Rc<dyn ConflictObserver>>,
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
        }
    }
}

/// What a journal has done since it was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalCounters {
    /// Handles started, restarts included.
    pub handles: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Metadata blocks written to the log.
    pub blocks_logged: u64,
    /// Descriptor, revoke and commit blocks written to the log.
    pub control_blocks: u64,
    /// Blocks whose first word was escaped.
    pub escaped: u64,
    /// `get_write_access` calls by [`Conflict`].
    pub conflicts: [u64; 6],
    /// Virtual time spent waiting in the shadow.
    pub shadow_wait_ns: u64,
    /// Waits for a write of the buffer to its home.
    pub home_write_waits: u64,
    /// Waits of handle starts because the running transaction was locked.
    pub locked_waits: u64,
    /// Waits of handle starts because the running transaction was full.
    pub full_waits: u64,
    /// Waits of handle starts for room in the log.
    pub space_waits: u64,
    /// Waits of handle starts for reserved credits.
    pub reserved_waits: u64,
    /// Checkpoints forced by lack of room or by a flush of the journal.
    pub checkpoints: u64,
    /// Blocks that checkpoints wrote to their homes.
    pub checkpoint_blocks: u64,
    /// Commits that a checkpoint forced because a newer transaction owned its buffer.
    pub forced_commits: u64,
    /// Superblock writes.
    pub superblock_writes: u64,
    /// Synchronous handles that waited for company.
    pub batch_sleeps: u64,
}

impl JournalCounters {
    /// Every counter with its name, in a fixed order.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let mut all = vec![
            ("handles", self.handles),
            ("commits", self.commits),
            ("blocks_logged", self.blocks_logged),
            ("control_blocks", self.control_blocks),
            ("escaped", self.escaped),
            ("shadow_wait_ns", self.shadow_wait_ns),
            ("home_write_waits", self.home_write_waits),
            ("locked_waits", self.locked_waits),
            ("full_waits", self.full_waits),
            ("space_waits", self.space_waits),
            ("reserved_waits", self.reserved_waits),
            ("checkpoints", self.checkpoints),
            ("checkpoint_blocks", self.checkpoint_blocks),
            ("forced_commits", self.forced_commits),
            ("superblock_writes", self.superblock_writes),
            ("batch_sleeps", self.batch_sleeps),
        ];
        const NAMES: [&str; 6] = [
            "access_case0_none",
            "conflict_case1_joined",
            "conflict_case2_frozen",
            "conflict_case3_shadow",
            "conflict_case4_copy",
            "conflict_case5_logged",
        ];
        all.extend(NAMES.iter().copied().zip(self.conflicts));
        all
    }

    /// Calls that met another transaction's buffer: cases 1 to 5.
    pub fn conflicts_total(&self) -> u64 {
        self.conflicts[1..].iter().sum()
    }
}

/// Blocks of a transaction that no credit stands for: rounding. `jbd2_log_space_left`.
pub(crate) const SPARE_BLOCKS: i64 = 32;

/// Blocks that one checkpoint batch submits under one plug. `JBD2_NR_BATCH`.
pub(crate) const CHECKPOINT_BATCH: usize = 64;

const _: () = assert!(disk::LOG_BLOCKS_MIN as i64 > 4 * SPARE_BLOCKS);
