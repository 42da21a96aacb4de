//! The journal of ext4: compound transactions, a log, checkpoints, recovery.
//!
//! Picture:    [`Journal`] -> [`Handle`] (one update) -> transaction -> commit -> log -> checkpoint
//!             -> home.
//!             [`disk`]: the bytes. [`recover`](mod@recover): what a crashed log says, without a
//!             runtime.
//! Invariants: 1. recovery of what any power cut leaves gives a prefix of the committed
//!                transactions, whole.
//!             2. what a waiter was told is committed is in that prefix (with barriers on).
//!             3. two runs with one seed do the same I/O at the same times.
//! Left out:   external journals; fast-commit records (ext4 writes and replays them); journal
//!             barriers.
//! Source:     Linux 6.1 `fs/jbd2`, traces of 3.4.2 to 6.12; see each module.

mod access;
mod checkpoint;
mod commit;
mod counters;
pub mod disk;
mod era;
mod fast;
mod flushing;
mod handle;
mod heads;
mod inode;
mod journal;
mod log;
mod log_io;
mod options;
pub mod recover;
mod revoke;
pub mod site;
mod state;
mod superblock;
mod versions;

pub use counters::{FastStats, JournalCounters, RunStats};
pub use era::{Era, POLICIES};
pub use fast::{FastBegin, FastCleanup, FastKind, FastWrites};
pub use handle::{Credits, Handle, Reserved};
pub use inode::{JournalInode, Ordered, OrderedData};
pub use journal::{CommitCallback, Journal};
pub use log::LogMap;
pub use options::{CommitMode, Conflict, ConflictObserver, DualMode, JournalOptions};
pub use recover::{BadCommit, RecoverPolicy, RecoveryReport, ScanEnd, recover};
pub use state::TransactionState;
