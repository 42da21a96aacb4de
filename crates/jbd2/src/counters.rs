//! What a journal counts.
//!
//! Source: `transaction_run_stats_s` and `/proc/fs/jbd2/DEV/info` of Linux; the rest is ours.

use crate::commit::Commit;
use crate::heads::On;
use crate::journal::Journal;
use crate::options::Conflict;

/// Sums over commits, by the phases that jbd2's own statistics have (`transaction_run_stats_s`,
/// `/proc/fs/jbd2/DEV/info`), in nanoseconds of virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunStats {
    /// Commits that somebody asked for before their time.
    pub requested: u64,
    /// From that until the transaction was locked.
    pub request_delay_ns: u64,
    /// From its beginning until it was locked.
    pub running_ns: u64,
    /// Until the next could begin.
    pub locked_ns: u64,
    /// Until its metadata was logged: ordered data is sent.
    pub flushing_ns: u64,
    /// Until its record was written (in dual mode: sent).
    pub logging_ns: u64,
    /// Handles.
    pub handles: u64,
    /// `rs_blocks`: buffers when logging began; before 5.5 the credits outstanding then.
    pub blocks: u64,
    /// Blocks written to the log.
    pub blocks_logged: u64,
}

/// Calls that asked for a fast commit, by what came of it (`struct ext4_fc_stats`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FastStats {
    /// Fast commits that did what they should.
    pub commits: u64,
    /// Blocks that they wrote.
    pub blocks: u64,
    /// Of the commits, those of one block.
    pub single: u64,
    /// Of the commits, those that sent no FLUSH (`fast_selective_flush`).
    pub without_flush: u64,
    /// Calls for which a commit that was under way did what was needed.
    pub skipped: u64,
    /// Calls that became a full commit because of an ineligible change.
    pub ineligible: u64,
    /// Calls that became a full commit because a fast one was not possible.
    pub failed: u64,
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
    /// Buffers that commits copied because [`crate::JournalOptions::force_copy`] asks for it.
    pub forced_copies: u64,
    /// `get_write_access` calls by [`Conflict`].
    pub conflicts: [u64; 8],
    /// Virtual time spent waiting in the shadow.
    pub shadow_wait_ns: u64,
    /// Waits for a write of the buffer to its home.
    pub home_write_waits: u64,
    /// Waits of handle starts because the running transaction was locked.
    pub locked_waits: u64,
    /// Virtual time that those took.
    pub locked_wait_ns: u64,
    /// Waits of handle starts because the running transaction was full.
    pub full_waits: u64,
    /// Virtual time that those took.
    pub full_wait_ns: u64,
    /// Waits of handle starts for room in the log.
    pub space_waits: u64,
    /// Virtual time that those took.
    pub space_wait_ns: u64,
    /// Waits of handle starts for reserved credits.
    pub reserved_waits: u64,
    /// Virtual time that those took.
    pub reserved_wait_ns: u64,
    /// Waits of handle starts because a fast commit kept handles from starting.
    pub barrier_waits: u64,
    /// Virtual time that those took.
    pub barrier_wait_ns: u64,
    /// Fast commits.
    pub fast: FastStats,
    /// What jbd2 keeps of its commits.
    pub stats: RunStats,
    /// Commits that waited for buffers of transactions before (dual mode).
    pub delayed_commits: u64,
    /// Virtual time that those took.
    pub delay_ns: u64,
    /// Buffers that commits found in the way when they were to begin.
    pub wait_list_sum: u64,
    /// Files whose ordered data a commit found on its way, and waited for.
    pub ordered_waits: u64,
    /// Times that a transaction took handles again because it could not commit yet.
    pub coalesced: u64,
    /// Transactions waiting for the flush thread when a commit began, summed over commits.
    pub in_flight_sum: u64,
    /// Most of those.
    pub in_flight_max: u64,
    /// Cache flushes that the flush thread sent.
    pub flushes: u64,
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
            ("forced_copies", self.forced_copies),
            ("shadow_wait_ns", self.shadow_wait_ns),
            ("home_write_waits", self.home_write_waits),
            ("locked_waits", self.locked_waits),
            ("locked_wait_ns", self.locked_wait_ns),
            ("full_waits", self.full_waits),
            ("full_wait_ns", self.full_wait_ns),
            ("space_waits", self.space_waits),
            ("space_wait_ns", self.space_wait_ns),
            ("reserved_waits", self.reserved_waits),
            ("reserved_wait_ns", self.reserved_wait_ns),
            ("barrier_waits", self.barrier_waits),
            ("barrier_wait_ns", self.barrier_wait_ns),
            ("fast_commits", self.fast.commits),
            ("fast_blocks", self.fast.blocks),
            ("fast_single", self.fast.single),
            ("fast_without_flush", self.fast.without_flush),
            ("fast_skipped", self.fast.skipped),
            ("fast_ineligible", self.fast.ineligible),
            ("fast_failed", self.fast.failed),
            ("commits_requested", self.stats.requested),
            ("transaction_request_delay_ns", self.stats.request_delay_ns),
            ("transaction_running_ns", self.stats.running_ns),
            ("transaction_locked_ns", self.stats.locked_ns),
            ("transaction_flushing_ns", self.stats.flushing_ns),
            ("transaction_logging_ns", self.stats.logging_ns),
            ("transaction_handles", self.stats.handles),
            ("transaction_blocks", self.stats.blocks),
            ("transaction_blocks_logged", self.stats.blocks_logged),
            ("delayed_commits", self.delayed_commits),
            ("delay_ns", self.delay_ns),
            ("wait_list_sum", self.wait_list_sum),
            ("coalesced", self.coalesced),
            ("in_flight_sum", self.in_flight_sum),
            ("in_flight_max", self.in_flight_max),
            ("journal_flushes", self.flushes),
            ("checkpoints", self.checkpoints),
            ("checkpoint_blocks", self.checkpoint_blocks),
            ("forced_commits", self.forced_commits),
            ("superblock_writes", self.superblock_writes),
            ("batch_sleeps", self.batch_sleeps),
            ("ordered_waits", self.ordered_waits),
        ];
        const NAMES: [&str; 8] = [
            "access_case0_none",
            "conflict_case1_joined",
            "conflict_case2_frozen",
            "conflict_case3_shadow",
            "conflict_case4_copy",
            "conflict_case5_logged",
            "access_versioned",
            "conflict_slot",
        ];
        all.extend(NAMES.iter().copied().zip(self.conflicts));
        all
    }

    /// Calls that met another transaction's buffer: all that count ([`Conflict::counts`]).
    pub fn conflicts_total(&self) -> u64 {
        let all = Conflict::ALL.iter().filter(|c| c.counts());
        all.map(|c| self.conflicts[*c as usize]).sum()
    }
}

impl Journal {
    /// What jbd2 calls a transaction's blocks when logging begins (`rs_blocks`): its buffers since
    /// 5.5, when descriptors got credits too; before, the credits outstanding.
    pub(crate) fn count_blocks(&self, tid: u32) {
        let mut st = self.st.borrow_mut();
        let t = st.transaction(tid);
        let blocks = match self.opts.era.counts_descriptors() {
            true => u64::from(t.list(On::Metadata).len),
            false => t.outstanding.max(0) as u64,
        };
        st.counters.stats.blocks += blocks;
    }

    /// What jbd2 keeps of a commit that has written its record.
    pub(crate) fn count_run(&self, c: &Commit) {
        let now = self.rt.now();
        let mut st = self.st.borrow_mut();
        let took = now.since(c.flush_started);
        st.average_commit = match st.average_commit.0 {
            0 => took,
            average => wp_base::Span((took.0 + average * 3) / 4),
        };
        st.commit_sequence = c.tid;
        st.committing = None;
        st.counters.commits += 1;
        let t = st.transaction(c.tid);
        let (requested, at) = (t.requested, t.requested_at);
        let (started, handles) = (t.started, t.handles);
        let stats = &mut st.counters.stats;
        if requested {
            stats.requested += 1;
            stats.request_delay_ns += c.locked.since(at).0;
        }
        stats.running_ns += c.locked.since(started).0;
        stats.locked_ns += c.flush_started.since(c.locked).0;
        stats.flushing_ns += c.logging_started.since(c.flush_started).0;
        stats.logging_ns += now.since(c.logging_started).0;
        stats.handles += u64::from(handles);
        stats.blocks_logged += c.blocks_logged;
    }
}
