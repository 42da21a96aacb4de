//! Crash-safety points of the journal: steps that crash consistency depends on.

wp_base::sites! {
    "crates/jbd2/src/commit.rs" {
        LOG_START, Write, "jbd2/commit/log-start":
            "the super block records the start of an empty log before its first commit is durable";
        HANDLES_WAIT, Wait, "jbd2/commit/handles-wait":
            "commit waits for all open handles of its transaction";
        ORDERED_SUBMIT, Write, "jbd2/commit/ordered-submit":
            "ordered data is submitted before the commit record";
        REVOKES, Write, "jbd2/commit/revoke-records":
            "revoke records prevent replay of freed metadata over a block's new contents";
        METADATA_WAIT, Wait, "jbd2/commit/metadata-wait":
            "logged blocks complete before the commit record is sent";
        CONTROL_WAIT, Wait, "jbd2/commit/control-wait":
            "descriptor and revoke blocks complete before the commit record is sent";
        PREFLUSH, Flush, "jbd2/commit/preflush":
            "the transaction and its ordered data are durable before the commit record is written";
        RECORD_FUA, Fua, "jbd2/commit/record-fua":
            "the commit record is durable when its write completes";
        RECORD_WAIT, Wait, "jbd2/commit/record-wait":
            "waiters of a commit are woken only after the commit record's write completes";
        ESCAPE, Write, "jbd2/commit/escape":
            "the magic number at the start of a logged block is escaped";
        SHADOW_KEEP, Order, "jbd2/commit/shadow":
            "a buffer does not change during its write to the log";
        TAG_CHECKSUM, Checksum, "jbd2/commit/tag-checksum":
            "a tag's checksum detects a corrupt logged block";
        DESCRIPTOR_CHECKSUM, Checksum, "jbd2/commit/descriptor-checksum":
            "a descriptor block's checksum detects corruption";
        RECORD_CHECKSUM, Checksum, "jbd2/commit/record-checksum":
            "a commit record's checksum detects corruption";
        CHECKPOINT_LIST, Order, "jbd2/commit/checkpoint-list":
            "a logged buffer stays on the checkpoint list until it is written in place";
        TAIL_LATER, Order, "jbd2/commit/tail-after-record":
            "the log tail moves only after the commit record's flush covers the checkpoint writes";
        ASYNC_FLUSH, Flush, "jbd2/commit/async-flush":
            "an asynchronous commit record and its transaction are flushed before the commit ends";
    }
    "crates/jbd2/src/flushing.rs" {
        EPOCH_END, Order, "jbd2/dual/epoch-end":
            "a barrier ends the epoch of the log blocks, and another that of the commit record";
        CONFLICT_WAIT, Wait, "jbd2/dual/conflict-wait":
            "a transaction commits only when no older transaction holds one of its buffers";
        LOG_DISPATCH, Wait, "jbd2/dual/log-dispatch":
            "log blocks are dispatched to the device before the commit record is sent";
        RECORD_DISPATCH, Wait, "jbd2/dual/record-dispatch":
            "the commit record is dispatched to the device before the next transaction is sent";
        DUAL_FLUSH, Flush, "jbd2/dual/flush":
            "a transaction with waiters is flushed before it ends";
        SETTLED_FLUSH, Flush, "jbd2/dual/settled-flush":
            "a wait on a transaction that ended without a flush flushes the device";
        DURABLE_WAIT, Wait, "jbd2/dual/durable-wait":
            "a waiter is woken only after the flush that a later transaction sends for its commit";
        ORDER_WAIT, Wait, "jbd2/dual/order-wait":
            "writes after an ordering call are sent only after its transaction";
    }
    "crates/jbd2/src/versions.rs" {
        VERSION_SLOT, Order, "jbd2/versions/slot":
            "a transaction commits only when slots for its buffer versions are free";
        VERSION_COPY, Order, "jbd2/versions/copy":
            "a buffer that a newer transaction takes is logged with its old contents";
    }
    "crates/jbd2/src/handle.rs" {
        LOCKED_WAIT, Wait, "jbd2/handle/locked-wait": "no handle joins a locked transaction";
        FULL_WAIT, Wait, "jbd2/handle/full-wait":
            "a transaction does not grow beyond the free log space";
        SPACE_WAIT, Wait, "jbd2/handle/space-wait":
            "a handle starts only if the log has space for its whole transaction";
    }
    "crates/jbd2/src/journal.rs" {
        LOAD_FUA, Fua, "jbd2/load/superblock-fua":
            "after recovery, log space is reused only after the journal super block is durable";
    }
    "crates/jbd2/src/revoke.rs" {
        REVOKE_CHECKSUM, Checksum, "jbd2/revoke/checksum":
            "a revoke block's checksum detects corruption";
        REVOKE_CANCEL, Order, "jbd2/revoke/cancel":
            "a revoke is cancelled when its block becomes metadata again in the same transaction";
    }
    "crates/jbd2/src/superblock.rs" {
        TAIL_FUA, Fua, "jbd2/tail/superblock-fua":
            "log space is reused only after the super block with the new tail is durable";
        TAIL_ORDER, Order, "jbd2/tail/superblock-order":
            "log space is rewritten only behind a barrier after the new tail (dual mode)";
        TAIL_WRITE, Write, "jbd2/tail/superblock-write":
            "log space is reused only after the super block with the new tail is written";
        SUPER_WAIT, Wait, "jbd2/tail/superblock-wait":
            "log space is reused only after the super block's write completes";
        SUPER_CHECKSUM, Checksum, "jbd2/tail/superblock-checksum":
            "the journal super block's checksum detects corruption";
        SUPER_ONE, Wait, "jbd2/tail/superblock-one-at-a-time":
            "a super block is written only after its previous write completes";
        EMPTY_PREFLUSH, Flush, "jbd2/empty/preflush":
            "checkpointed blocks are durable before the super block marks the log as empty";
        EMPTY_FUA, Fua, "jbd2/empty/fua":
            "the super block of an empty log is durable before any later super block is written";
        ERRNO_FUA, Fua, "jbd2/abort/errno-fua": "the errno of an abort is durable";
    }
    "crates/jbd2/src/checkpoint.rs" {
        TAIL_FLUSH, Flush, "jbd2/tail/flush":
            "checkpointed blocks are flushed before the log tail passes them";
        NEWER_COMMIT, Order, "jbd2/checkpoint/newer-first":
            "a buffer that a newer transaction changed is checkpointed only after that commit";
        HOME_WAIT, Wait, "jbd2/checkpoint/home-wait":
            "a checkpoint write completes before the log drops the block";
        HOME_WRITE, Write, "jbd2/checkpoint/home-write":
            "a full log writes the buffers of the oldest transaction in place";
        BATCH_WAIT, Wait, "jbd2/checkpoint/batch-wait":
            "a buffer under a checkpoint write is written again only after that write";
    }
    "crates/jbd2/src/state.rs" {
        CLEAN_BUSY, Wait, "jbd2/checkpoint/still-busy":
            "a dirty or locked buffer stays on the checkpoint list";
        UNDIRTY, Order, "jbd2/file/undirty":
            "a buffer that a transaction modifies is not written in place";
        RELEASE_DIRTY, Order, "jbd2/unfile/dirty":
            "a committed buffer becomes dirty, so that it is checkpointed";
    }
    "crates/jbd2/src/access.rs" {
        FROZEN_COPY, Order, "jbd2/access/frozen-copy":
            "the commit logs a buffer as it was when the transaction was locked";
        SHADOW_WAIT, Wait, "jbd2/access/shadow-wait":
            "a buffer changes only after its write to the log completes";
        HOME_LOCK, Wait, "jbd2/access/home-write-wait":
            "a buffer changes only after its checkpoint write completes";
        FORGET_CLEAN, Order, "jbd2/forget/clean":
            "a freed metadata buffer is not written over the block's new owner";
        FORGET_KEEP, Order, "jbd2/forget/keep-log-copy":
            "the log copy of a freed block is kept until the free commits";
        FREED, Order, "jbd2/forget/freed": "a buffer freed during its commit is not checkpointed";
        CREATE_CLEAN, Order, "jbd2/create/clean":
            "a stale buffer is not written over the block's new contents";
        FORGET_WAIT, Wait, "jbd2/forget/home-write-wait":
            "a freed block is reused only after its checkpoint write completes";
        INVALIDATE_WAIT, Wait, "jbd2/invalidate/home-write-wait":
            "a truncated journaled block is freed only after its checkpoint write completes";
        INVALIDATE_FREED, Order, "jbd2/invalidate/freed":
            "journaled data truncated during its commit is not checkpointed";
    }
    "crates/jbd2/src/inode.rs" {
        ORDERED_WAIT, Wait, "jbd2/commit/ordered-wait":
            "ordered data completes before the commit record is sent";
        ORDERED_DISPATCH, Wait, "jbd2/dual/ordered-dispatch":
            "ordered data is dispatched to the device before the log blocks of its transaction";
        FILE_INODE, Order, "jbd2/ordered/file":
            "an inode with ordered data is on its transaction's inode list";
        FILE_NEXT, Order, "jbd2/ordered/file-next":
            "an inode on the committing transaction's list also joins the next transaction's list";
        TRUNCATE_ORDERED, Write, "jbd2/ordered/before-truncate":
            "data that a commit waits for is written before a truncate drops it";
        RELEASE_WAIT, Wait, "jbd2/ordered/release-wait":
            "an inode is freed only when no commit uses it";
    }
    "crates/jbd2/src/recover/scan.rs" {
        SCAN_CONTROL, Checksum, "jbd2/recovery/scan-control-checksum":
            "a torn descriptor block ends the scan of the log";
        SCAN_RECORD, Checksum, "jbd2/recovery/record-checksum":
            "a torn commit record ends the scan of the log";
    }
    "crates/jbd2/src/recover/ring.rs" {
        SCAN_SEQUENCE, Order, "jbd2/recovery/sequence":
            "blocks of an earlier pass over the log do not belong to its end";
    }
    "crates/jbd2/src/recover/replay.rs" {
        SEEN_CONTROL, Checksum, "jbd2/recovery/control-checksum":
            "a descriptor block with a wrong checksum is not replayed";
        SEEN_BLOCK, Checksum, "jbd2/recovery/block-checksum":
            "a logged block with a wrong checksum is not replayed";
        REVOKED, Order, "jbd2/recovery/revoked": "revoked blocks are not replayed";
        UNESCAPE, Write, "jbd2/recovery/unescape":
            "replay restores the magic number of an escaped block";
    }
    "crates/jbd2/src/recover/super_block.rs" {
        SEEN_SUPER, Checksum, "jbd2/recovery/superblock-checksum":
            "a journal super block with a wrong checksum is rejected";
    }
}
