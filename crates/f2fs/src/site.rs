//! Crash-safety points of F2FS: steps that crash consistency depends on.

wp_base::sites! {
    "crates/f2fs/src/fs/checkpoint.rs" {
        CP_NODES, Write, "f2fs/checkpoint/nodes":
            "a checkpoint writes every dirty node before the NAT entries that point to it";
        CP_DENTS, Write, "f2fs/checkpoint/dentries":
            "a checkpoint writes dirty directory blocks first";
        CP_WAIT_META, Wait, "f2fs/checkpoint/wait":
            "nodes, tables and the checkpoint pack complete before the pack's last block is sent";
        CP_WAIT_LAST, Wait, "f2fs/checkpoint/wait-last":
            "a checkpoint counts only after the pack's last block completes";
        CP_OTHER_PACK, Order, "f2fs/checkpoint/other-pack":
            "a checkpoint overwrites the older pack, not the current one";
        CP_ORPHANS, Write, "f2fs/checkpoint/orphans":
            "the checkpoint pack lists unlinked open files as orphans";
    }
    "crates/f2fs/src/fs/io.rs" {
        CP_FLUSH, Flush, "f2fs/checkpoint/preflush":
            "the device's cache is flushed before the pack's last block";
        CP_FUA, Fua, "f2fs/checkpoint/fua":
            "the pack's last block is durable when it completes (FUA)";
    }
    "crates/f2fs/src/fs/node.rs" {
        NODE_FLUSH, Flush, "f2fs/fsync/strict-preflush":
            "in strict mode a flush precedes the last node";
        NODE_FUA, Fua, "f2fs/fsync/strict-fua":
            "in strict mode the last node is durable when it completes (FUA)";
        NODE_MARK, Order, "f2fs/fsync/mark": "an fsynced node carries the fsync mark for recovery";
        NODE_DENTRY, Order, "f2fs/fsync/dentry-mark":
            "the inode of a file that is not in a checkpoint carries its name and parent";
        NODE_WAIT, Wait, "f2fs/fsync/node-wait": "fsync waits for the nodes that it sent";
    }
    "crates/f2fs/src/fs/flush.rs" {
        FSYNC_FLUSH, Flush, "f2fs/fsync/flush":
            "fsync flushes the device's cache before it returns";
        CP_OTHER_DEVICES, Flush, "f2fs/checkpoint/other-devices":
            "all other devices are flushed before the pack's last block";
    }
    "crates/f2fs/src/fs/range_flush.rs" {
        RFLUSH_NODES, Flush, "f2fs/rflush/nodes":
            "with rflush=log fsync flushes the nodes of other files that recovery reads before its own";
        RFLUSH_OTHERS, Flush, "f2fs/rflush/others-data":
            "with rflush=log fsync flushes the data of other files whose synced nodes it flushes";
    }
    "crates/f2fs/src/fs/segments.rs" {
        FREE_LATER, Order, "f2fs/segments/free-later":
            "an emptied segment is reused only after the next checkpoint";
    }
    "crates/f2fs/src/fs/discard.rs" {
        DISCARD_LATER, Order, "f2fs/discard/after-checkpoint":
            "blocks are discarded and zones reset only after a checkpoint without them is durable";
    }
    "crates/f2fs/src/fs/load.rs" {
        RECOVER_LAST, Order, "f2fs/recovery/last-block":
            "blocks that recovery writes are durable before the checkpoint that points to them";
    }
    "crates/f2fs/src/fs/mount.rs" {
        UNMOUNT_CP, Write, "f2fs/unmount/checkpoint": "unmount ends with a checkpoint";
    }
    "crates/f2fs/src/fs/fsync.rs" {
        FSYNC_WRITE, Write, "f2fs/fsync/data-write": "fsync sends the file's data";
        FSYNC_WAIT, Wait, "f2fs/fsync/data-wait":
            "the file's data completes before fsync sends the nodes that point to it";
        FSYNC_LATE_WAIT, Wait, "f2fs/fsync/oprw-data-wait":
            "with OPRW fsync waits for data and nodes before it flushes";
        FSYNC_CHECKPOINT, Write, "f2fs/fsync/checkpoint":
            "fsync writes a checkpoint if roll-forward could not recover the file";
        FSYNC_NODES, Write, "f2fs/fsync/nodes": "fsync sends the file's nodes";
        FSYNC_FIRST_FLUSH, Flush, "f2fs/fsync/fixed-flush":
            "in a fixed mode the data is flushed before the nodes are sent";
        SYNC_SEND, Write, "f2fs/sync/data-start": "sync sends the data of all files";
        SYNC_AGAIN, Write, "f2fs/sync/data-write": "sync sends data that became dirty again";
        SYNC_WAIT, Wait, "f2fs/sync/data-wait": "sync waits for the data of all files";
        SYNC_CHECKPOINT, Write, "f2fs/sync/checkpoint": "sync ends with a checkpoint";
        SYNCFS_SEND, Write, "f2fs/syncfs/data-start": "syncfs sends the data of all files";
        SYNCFS_WRITE, Write, "f2fs/syncfs/data-write": "syncfs sends data that became dirty again";
        SYNCFS_WAIT, Wait, "f2fs/syncfs/data-wait": "syncfs waits for the data of all files";
        SYNCFS_CHECKPOINT, Write, "f2fs/syncfs/checkpoint": "syncfs ends with a checkpoint";
    }
    "crates/f2fs/src/fs/atomic.rs" {
        ATOMIC_WAIT, Wait, "f2fs/atomic/data-wait":
            "COMMIT_ATOMIC_WRITE waits for the data before nodes of the file point to it";
        ATOMIC_SWAP, Order, "f2fs/atomic/one-checkpoint":
            "no checkpoint is written between the blocks that COMMIT_ATOMIC_WRITE gives to the file";
    }
    "crates/f2fs/src/fs/writeback.rs" {
        DATA_AGAIN, Wait, "f2fs/writeback/one-at-a-time":
            "a data block is written only after its previous write completes";
    }
    "crates/f2fs/src/fs/direct_log.rs" {
        DIRECT_LOG_WAIT, Wait, "f2fs/direct-log/data-wait":
            "with direct=log a node points to a block only after the block's data completes";
        DIRECT_LOG_FUA, Fua, "f2fs/direct-log/fua":
            "with direct=log an O_SYNC write is durable before its node points to it (FUA)";
        DIRECT_LOG_FLUSH, Flush, "f2fs/direct-log/flush":
            "with direct=log fsync flushes direct data before it sends a node with the fsync mark";
    }
    "crates/f2fs/src/fs/inline_data.rs" {
        INLINE_WAIT, Wait, "f2fs/inline/convert-wait":
            "inline data moved to a block completes before the inode drops its inline copy";
    }
    "crates/f2fs/src/fs/direct.rs" {
        DIRECT_SYNC, Write, "f2fs/direct/sync": "a direct O_SYNC write is followed by an fsync";
        DIRECT_FUA, Fua, "f2fs/direct/fua":
            "a direct O_DSYNC overwrite without a following fsync uses FUA";
    }
    "crates/f2fs/src/fs/ops.rs" {
        SYNC_WRITE, Write, "f2fs/write/o-sync": "an O_SYNC write is followed by an fsync";
    }
}
