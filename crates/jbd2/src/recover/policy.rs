//! What recovery is told and what it answers.

use wp_base::kernel::Version;

use crate::disk;
use crate::era::Era;

/// What a complete transaction with a wrong commit checksum means, where the log is not
/// asynchronous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadCommit {
    /// The file system cannot be mounted (Linux): what came before is replayed, then recovery
    /// fails.
    Refuse,
    /// The log ends before it (e2fsck): said in [`RecoveryReport::failed_commit`].
    StopBefore,
}

/// Rules of recovery that differ between kernels and tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoverPolicy {
    /// What to do at a wrong commit checksum.
    pub bad_commit: BadCommit,
    /// Write the journal superblock as a checker does: empty, next sequence. A kernel that mounts
    /// leaves it to [`crate::Journal::load`], which starts the log anew.
    pub mark_empty: bool,
    /// The kernel; `None`: e2fsck 1.47. It is asked only for what an image makes a difference of,
    /// so that versions with the same answers are known to recover it alike.
    pub kernel: Option<Era>,
    /// Does it know iJournaling, which no kernel does?
    pub ijournal: bool,
}

impl RecoverPolicy {
    /// The rules of a kernel, which marks the log empty afterwards.
    pub const fn of(era: &Era) -> RecoverPolicy {
        RecoverPolicy {
            bad_commit: BadCommit::Refuse,
            mark_empty: true,
            kernel: Some(*era),
            ijournal: false,
        }
    }

    /// The same of that kernel with iJournaling.
    pub fn with_ijournal(self) -> RecoverPolicy {
        RecoverPolicy { ijournal: true, ..self }
    }

    /// The rules of Linux `major.minor`.
    pub fn linux(major: u16, minor: u16) -> RecoverPolicy {
        RecoverPolicy::of(&Era::of(Version(major, minor, 0)))
    }

    /// The rules of e2fsck 1.47.
    pub const fn e2fsck() -> RecoverPolicy {
        RecoverPolicy {
            bad_commit: BadCommit::StopBefore,
            mark_empty: true,
            kernel: None,
            ijournal: false,
        }
    }

    /// A commit record whose used 60 bytes are right counts although the rest of its block is not.
    pub fn partial_commit(&self) -> bool {
        self.kernel.is_some_and(|era| era.partial_commit())
    }

    /// A checksum error in a transaction older than the one before it is left-over from an earlier
    /// file system: the log ends there.
    pub fn stale_by_time(&self) -> bool {
        self.kernel.is_none_or(|era| era.stale_by_time())
    }

    /// Record the log's head in `s_head` when marking empty.
    pub fn record_head(&self) -> bool {
        self.kernel.is_some_and(|era| era.cycle_record())
    }

    /// Those of the incompatible features `incompat` that it does not know: an error.
    pub fn unknown_incompat(&self, incompat: u32) -> u32 {
        let incompat = if self.ijournal { incompat & !disk::INCOMPAT_IJOURNAL } else { incompat };
        self.kernel.map_or(incompat & !disk::INCOMPAT_KNOWN, |era| era.unknown_incompat(incompat))
    }
}

/// Why the scan found no further transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanEnd {
    /// `s_start` was 0: nothing to recover.
    Clean,
    /// The next block is no control block.
    NoMagic,
    /// The next control block is of another transaction than the expected one.
    OtherSequence(u32),
    /// The next control block is of an unknown type.
    UnknownType(u32),
    /// A commit record or, with checksum v1, its transaction has a wrong checksum.
    BadChecksum,
    /// A wrong checksum in something older than the transaction before it.
    Stale,
    /// A logged block cannot be read (checksum v1 only).
    Unreadable,
    /// Every block of the log was walked.
    WholeLog,
}

/// What recovery found and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveryReport {
    /// Id of the first transaction that was expected.
    pub first_tid: u32,
    /// Id after the last transaction that was replayed (equal to `first_tid` if none was).
    pub end_tid: u32,
    /// Logged blocks written to their homes.
    pub blocks_replayed: u64,
    /// Logged blocks not written because they are revoked.
    pub blocks_revoked: u64,
    /// Revoke records seen.
    pub revoke_records: u64,
    /// Why the scan ended.
    pub scan_end: ScanEnd,
    /// The transaction with the wrong commit checksum, if one ended the log.
    pub failed_commit: Option<u32>,
    /// First id that a new transaction may have: beyond everything seen.
    pub next_sequence: u32,
    /// Log block at which the next transaction would go in a log that continues.
    pub head: u32,
    /// Fast-commit area: (first log block, blocks), if the log has one.
    pub fast_commit: Option<(u32, u32)>,
    /// It holds i-transactions ([`disk::INCOMPAT_IJOURNAL`]).
    pub is_ijournal: bool,
    /// `s_errno` as found: why an earlier mount aborted the journal; 0 = it did not.
    pub errno: u32,
}

impl RecoveryReport {
    /// Transactions that were replayed.
    pub fn transactions(&self) -> u32 {
        self.end_tid.wrapping_sub(self.first_tid)
    }
}
