//! What differs between the journals of kernel versions. `list eras` prints it.

use wp_base::event::Flags;
use wp_base::kernel::Version;
use wp_base::policies;

use crate::disk;

policies! { Journal:
    /// Writes of the log carry META and IDLE besides SYNC.
    log_has_priority = "jbd2: increase the journal IO's priority",
        Some(Version(6, 1, 0)), None,
        "log writes carry META and IDLE (blktrace: WSM); before, SYNC alone (WS)";
    /// A commit writes the part of a file that was filed, not all of it.
    ordered_ranges = "jbd2: introduce jbd2_inode dirty range scoping",
        Some(Version(5, 3, 0)), None,
        "a commit writes the filed range of an ordered file, not all of its dirty pages";
    /// A block stays in the shadow until the commit thread has processed its write, not only until
    /// the write ends: being on the shadow list was the mark.
    shadow_until_processed = "jbd2: refine waiting for shadow buffers (title from memory)",
        None, Some(Version(3, 11, 0)),
        "a handle waits for a buffer in the log until the commit thread has processed its write";
    /// Credits stand for control blocks with a thirty-second part on top.
    control_blocks_by_share = "JBD2_CONTROL_BLOCKS_SHIFT (commit not looked up)",
        Some(Version(3, 11, 0)), Some(Version(5, 5, 0)),
        "a transaction reserves 1/32 of its credits for descriptors and revoke blocks";
    /// Every transaction starts with the descriptors that it may need; revoke blocks have credits
    /// of their own.
    counts_descriptors = "jbd2: Account descriptor blocks into t_outstanding_credits",
        Some(Version(5, 5, 0)), None,
        "a transaction reserves the descriptors that it may need, handles their revoke blocks";
    /// A transaction may be a third of the log, not a quarter.
    third_of_log = "jbd2_journal_load (commit not looked up)",
        Some(Version(6, 16, 0)), None,
        "a transaction may be 1/3 of the log, before 1/4 (not checked against a source here)";
    /// A tag is thought to need 8 bytes when the batch of log blocks is sized, not 12.
    sizes_batch_by_tag = "jbd2_journal_commit_transaction (commit not looked up)",
        Some(Version(4, 13, 0)), None,
        "the batch of log blocks is sized with 8 bytes a tag, before with 12";
    /// The log's tail moves with a flush before and FUA, and also after a commit. Before, only a
    /// checkpoint moved it, and the superblock stayed in the drive's cache while the log was used
    /// again.
    forced_tail = "jbd2: issue cache flush after checkpointing even with internal journal",
        Some(Version(3, 4, 0)), None,
        "the log's tail moves with a FLUSH before and FUA, also after a commit (version from memory; jbd, of ext3, has the first since 3.5, fd2cbd4dfa3d)";
    /// A handle that is about to change metadata finds that writeback of some has failed, and
    /// aborts: the blocks that it would read may be old ones. Before, only a checkpoint looked.
    aborts_on_device_error = "jbd2: abort journal when detecting metadata writeback error of fs dev",
        Some(Version(6, 8, 0)), None,
        "a handle aborts the journal when writeback of metadata has failed (version from memory, seen in 6.18)";
    /// Why the journal was aborted is written with FUA.
    errno_forced = "ext4, jbd2: Add REQ_FUA flag when recording an error in the superblock",
        Some(Version(4, 3, 0)), None,
        "the error of an aborted journal is written with FUA (version from memory)";
    /// The log starts where the last mount stopped (`s_head`).
    cycle_record = "jbd2: continue to record log between each mount",
        Some(Version(6, 4, 0)), None,
        "a mount starts the log where the last one stopped, and records its head";
    /// Recovery: a commit record whose used 60 bytes are right counts although the rest of its
    /// block is not.
    partial_commit = "jbd2: avoid mount failed when commit block is partial submitted",
        Some(Version(6, 10, 0)), None,
        "recovery accepts a commit record whose first 60 bytes are right (in 6.12, not in 6.1)";
    /// Recovery: a checksum error in a transaction older than the one before it is left-over from
    /// an earlier file system: the log ends there.
    stale_by_time = "jbd2: avoid transaction reuse after reformatting",
        Some(Version(5, 10, 0)), None,
        "recovery ends at a wrong checksum whose commit time is older than the one before";
    /// Logs with checksums v2 are known.
    knows_checksum_v2 = "JBD2_FEATURE_INCOMPAT_CSUM_V2 (commit not looked up)",
        Some(Version(3, 5, 0)), None,
        "the journal knows checksums v2";
    /// Logs with checksums v3 are known.
    knows_checksum_v3 = "JBD2_FEATURE_INCOMPAT_CSUM_V3 (commit not looked up)",
        Some(Version(3, 18, 0)), None,
        "the journal knows checksums v3";
    /// Logs with a fast-commit area are known.
    knows_fast_commit = "JBD2_FEATURE_INCOMPAT_FAST_COMMIT (commit not looked up)",
        Some(Version(5, 10, 0)), None,
        "the journal knows fast commits";
}

impl Era {
    /// Flags of every write to the log.
    pub fn log_flags(&self) -> Flags {
        match self.log_has_priority() {
            true => Flags(Flags::SYNC.0 | Flags::META.0 | Flags::IDLE.0),
            false => Flags::SYNC,
        }
    }

    /// Those of the incompatible features `incompat` that it does not know.
    pub fn unknown_incompat(&self, incompat: u32) -> u32 {
        let mut known = disk::INCOMPAT_REVOKE | disk::INCOMPAT_64BIT | disk::INCOMPAT_ASYNC_COMMIT;
        // Only what is there is asked for.
        let knows = |bit: u32, knows: fn(&Era) -> bool| match incompat & bit != 0 && knows(self) {
            true => bit,
            false => 0,
        };
        known |= knows(disk::INCOMPAT_CSUM_V2, Era::knows_checksum_v2);
        known |= knows(disk::INCOMPAT_CSUM_V3, Era::knows_checksum_v3);
        known |= knows(disk::INCOMPAT_FAST_COMMIT, Era::knows_fast_commit);
        incompat & !known
    }
}
