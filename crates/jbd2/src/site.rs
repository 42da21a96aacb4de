//! Steps of the journal that a crash is safe by.

wp_base::sites! {
    "crates/jbd2/src/commit.rs" {
        LOG_START, Write, "jbd2/commit/log-start":
            "a log that was empty says where it begins before its first record is durable";
        HANDLES_WAIT, Wait, "jbd2/commit/handles-wait":
            "every change of an operation is in the transaction that commits";
        ORDERED_SUBMIT, Write, "jbd2/commit/ordered-submit":
            "ordered data is sent before the record";
        REVOKES, Write, "jbd2/commit/revoke-records":
            "freed metadata is not replayed over what took its place";
        METADATA_WAIT, Wait, "jbd2/commit/metadata-wait":
            "logged blocks have arrived before the record is sent";
        CONTROL_WAIT, Wait, "jbd2/commit/control-wait":
            "descriptors and revoke blocks have arrived before the record is sent";
        PREFLUSH, Flush, "jbd2/commit/preflush":
            "the transaction and its data are durable before the record is written";
        RECORD_FUA, Fua, "jbd2/commit/record-fua":
            "the record is durable when it completes";
        RECORD_WAIT, Wait, "jbd2/commit/record-wait":
            "nobody is told of a commit whose record has not arrived";
        ESCAPE, Write, "jbd2/commit/escape":
            "a logged block that begins like a control block is not taken for one";
        SHADOW_KEEP, Order, "jbd2/commit/shadow":
            "a block that is being written to the log is not changed";
        TAG_CHECKSUM, Checksum, "jbd2/commit/tag-checksum":
            "a logged block that is not what was written is seen";
        DESCRIPTOR_CHECKSUM, Checksum, "jbd2/commit/descriptor-checksum":
            "a descriptor that is not what was written is seen";
        RECORD_CHECKSUM, Checksum, "jbd2/commit/record-checksum":
            "a record that is not what was written is seen";
        CHECKPOINT_LIST, Order, "jbd2/commit/checkpoint-list":
            "the log keeps a block until it is home";
        TAIL_LATER, Order, "jbd2/commit/tail-after-record":
            "the tail moves when the record's flush has covered what was written home";
        ASYNC_FLUSH, Flush, "jbd2/commit/async-flush":
            "an asynchronous record and its transaction are durable when the commit ends";
    }
    "crates/jbd2/src/flushing.rs" {
        EPOCH_END, Order, "jbd2/dual/epoch-end":
            "a transaction's log blocks, and then its record, are epochs of their own";
        CONFLICT_WAIT, Wait, "jbd2/dual/conflict-wait":
            "a transaction commits when no older one has a buffer of it";
        LOG_DISPATCH, Wait, "jbd2/dual/log-dispatch":
            "the device has the log blocks before the record is sent";
        RECORD_DISPATCH, Wait, "jbd2/dual/record-dispatch":
            "the device has the record before the next transaction is sent";
        DUAL_FLUSH, Flush, "jbd2/dual/flush":
            "a transaction that somebody waits for is durable when it is over";
        SETTLED_FLUSH, Flush, "jbd2/dual/settled-flush":
            "a transaction that is over without a flush is durable for who asks afterwards";
        DURABLE_WAIT, Wait, "jbd2/dual/durable-wait":
            "nobody is told of a commit whose flush was left to a later one";
        ORDER_WAIT, Wait, "jbd2/dual/order-wait":
            "what is written after an ordering call is sent after its transaction";
    }
    "crates/jbd2/src/versions.rs" {
        VERSION_SLOT, Order, "jbd2/versions/slot":
            "a transaction commits when its versions' slots are free";
        VERSION_COPY, Order, "jbd2/versions/copy":
            "a buffer that a newer transaction takes is logged as it was";
    }
    "crates/jbd2/src/handle.rs" {
        LOCKED_WAIT, Wait, "jbd2/handle/locked-wait":
            "no change joins a transaction that goes into commit";
        FULL_WAIT, Wait, "jbd2/handle/full-wait":
            "a transaction does not grow beyond what the log has room for";
        SPACE_WAIT, Wait, "jbd2/handle/space-wait":
            "a change begins when the log has room for all of its transaction";
    }
    "crates/jbd2/src/journal.rs" {
        LOAD_FUA, Fua, "jbd2/load/superblock-fua":
            "a log that goes on after a crash is reused after its super block is durable";
    }
    "crates/jbd2/src/revoke.rs" {
        REVOKE_CHECKSUM, Checksum, "jbd2/revoke/checksum":
            "a block of revoke records that is not what was written is seen";
        REVOKE_CANCEL, Order, "jbd2/revoke/cancel":
            "a block that is metadata again in the same transaction is replayed";
    }
    "crates/jbd2/src/superblock.rs" {
        TAIL_FUA, Fua, "jbd2/tail/superblock-fua":
            "log space is reused after a super block that no longer needs it is durable";
        TAIL_ORDER, Order, "jbd2/tail/superblock-order":
            "log space is written again behind a super block that no longer needs it (dual mode)";
        TAIL_WRITE, Write, "jbd2/tail/superblock-write":
            "log space is reused after a super block that no longer needs it was written";
        SUPER_WAIT, Wait, "jbd2/tail/superblock-wait":
            "log space is reused after the super block has arrived";
        SUPER_CHECKSUM, Checksum, "jbd2/tail/superblock-checksum":
            "a journal's super block that is not what was written is seen";
        SUPER_ONE, Wait, "jbd2/tail/superblock-one-at-a-time":
            "a super block is sent when the one before has arrived";
        EMPTY_PREFLUSH, Flush, "jbd2/empty/preflush":
            "blocks are durable at home before a super block says that the log is empty";
        EMPTY_FUA, Fua, "jbd2/empty/fua":
            "that the log is empty is durable before anything else is said of it";
        ERRNO_FUA, Fua, "jbd2/abort/errno-fua":
            "the reason of an abort is durable";
    }
    "crates/jbd2/src/checkpoint.rs" {
        TAIL_FLUSH, Flush, "jbd2/tail/flush":
            "blocks are durable at home before the log forgets them";
        NEWER_COMMIT, Order, "jbd2/checkpoint/newer-first":
            "a block that a newer transaction changed goes home after that one's commit";
        HOME_WAIT, Wait, "jbd2/checkpoint/home-wait":
            "a block is at home before the log forgets it";
        HOME_WRITE, Write, "jbd2/checkpoint/home-write":
            "the blocks of the oldest transaction are written home when the log is full";
        BATCH_WAIT, Wait, "jbd2/checkpoint/batch-wait":
            "a block that is on its way home is sent again after that";
    }
    "crates/jbd2/src/state.rs" {
        CLEAN_BUSY, Wait, "jbd2/checkpoint/still-busy":
            "a block that is dirty or on its way home stays on the checkpoint list";
        UNDIRTY, Order, "jbd2/file/undirty":
            "a block that a transaction is changing is not written home";
        RELEASE_DIRTY, Order, "jbd2/unfile/dirty":
            "a committed block becomes dirty, to go home";
    }
    "crates/jbd2/src/access.rs" {
        FROZEN_COPY, Order, "jbd2/access/frozen-copy":
            "the committing transaction logs a block as it was when it closed";
        SHADOW_WAIT, Wait, "jbd2/access/shadow-wait":
            "a block changes only when its write to the log is over";
        HOME_LOCK, Wait, "jbd2/access/home-write-wait":
            "a block changes only when its write home is over";
        FORGET_CLEAN, Order, "jbd2/forget/clean":
            "a freed block of metadata is not written home over its next owner";
        FORGET_KEEP, Order, "jbd2/forget/keep-log-copy":
            "the older log copy of a freed block is kept until the freeing is committed";
        FREED, Order, "jbd2/forget/freed":
            "a block freed while it commits does not go home afterwards";
        CREATE_CLEAN, Order, "jbd2/create/clean":
            "a block's earlier life is not written home over its new one";
        FORGET_WAIT, Wait, "jbd2/forget/home-write-wait":
            "a freed block is on its way home no more when it is given out again";
        INVALIDATE_WAIT, Wait, "jbd2/invalidate/home-write-wait":
            "cut data is on its way home no more when its block is freed";
        INVALIDATE_FREED, Order, "jbd2/invalidate/freed":
            "data that is cut off while it commits does not go home afterwards";
    }
    "crates/jbd2/src/inode.rs" {
        ORDERED_WAIT, Wait, "jbd2/commit/ordered-wait":
            "ordered data has arrived before the record is sent";
        ORDERED_DISPATCH, Wait, "jbd2/dual/ordered-dispatch":
            "the device has ordered data before the log blocks of their transaction are sent";
        FILE_INODE, Order, "jbd2/ordered/file":
            "a file with data to wait for is on its transaction's list";
        FILE_NEXT, Order, "jbd2/ordered/file-next":
            "a file on the committing transaction's list gets on the next one's as well";
        TRUNCATE_ORDERED, Write, "jbd2/ordered/before-truncate":
            "data that a commit waits for is written before a truncate throws it away";
        RELEASE_WAIT, Wait, "jbd2/ordered/release-wait":
            "a file is freed when no commit is at its data";
    }
    "crates/jbd2/src/recover/scan.rs" {
        SCAN_CONTROL, Checksum, "jbd2/recovery/scan-control-checksum":
            "a torn descriptor ends the log";
        SCAN_RECORD, Checksum, "jbd2/recovery/record-checksum": "a torn record ends the log";
    }
    "crates/jbd2/src/recover/ring.rs" {
        SCAN_SEQUENCE, Order, "jbd2/recovery/sequence":
            "what an earlier turn around the log left is not taken for its end";
    }
    "crates/jbd2/src/recover/replay.rs" {
        SEEN_CONTROL, Checksum, "jbd2/recovery/control-checksum":
            "a descriptor that is not what was written is not replayed";
        SEEN_BLOCK, Checksum, "jbd2/recovery/block-checksum":
            "a logged block that is not what was written is not replayed";
        REVOKED, Order, "jbd2/recovery/revoked": "freed metadata is not replayed";
        UNESCAPE, Write, "jbd2/recovery/unescape":
            "a logged block that begins like a control block is what it was";
    }
    "crates/jbd2/src/recover/super_block.rs" {
        SEEN_SUPER, Checksum, "jbd2/recovery/superblock-checksum":
            "a torn super block of the journal is not believed";
    }
}
