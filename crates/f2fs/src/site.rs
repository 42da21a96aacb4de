//! Steps of F2FS that a crash is safe by.

wp_base::sites! {
    "crates/f2fs/src/fs/checkpoint.rs" {
        CP_NODES, Write, "f2fs/checkpoint/nodes":
            "a checkpoint writes every dirty node before it notes where they are";
        CP_DENTS, Write, "f2fs/checkpoint/dentries":
            "a checkpoint writes the dirty blocks of directories first";
        CP_WAIT_META, Wait, "f2fs/checkpoint/wait":
            "nodes, tables and the pack have arrived before the pack's last block is sent";
        CP_WAIT_LAST, Wait, "f2fs/checkpoint/wait-last":
            "the pack's last block has arrived before the checkpoint counts";
        CP_OTHER_PACK, Order, "f2fs/checkpoint/other-pack":
            "a checkpoint is written over the older pack, not over the one that counts";
        CP_ORPHANS, Write, "f2fs/checkpoint/orphans":
            "files that are open without a name are listed in the pack";
    }
    "crates/f2fs/src/fs/io.rs" {
        CP_FLUSH, Flush, "f2fs/checkpoint/preflush":
            "the device's cache is flushed before the pack's last block";
        CP_FUA, Fua, "f2fs/checkpoint/fua": "the pack's last block is on the medium when it is done";
    }
    "crates/f2fs/src/fs/node.rs" {
        NODE_FLUSH, Flush, "f2fs/fsync/strict-preflush":
            "in strict mode the last node goes after a flush";
        NODE_FUA, Fua, "f2fs/fsync/strict-fua":
            "in strict mode the last node is on the medium when it is done";
        NODE_MARK, Order, "f2fs/fsync/mark": "an fsynced node carries the mark that recovery looks for";
        NODE_DENTRY, Order, "f2fs/fsync/dentry-mark":
            "the inode of a file that no checkpoint knows says where its name is";
        NODE_WAIT, Wait, "f2fs/fsync/node-wait": "fsync waits for the nodes that it has sent";
    }
    "crates/f2fs/src/fs/flush.rs" {
        FSYNC_FLUSH, Flush, "f2fs/fsync/flush": "fsync empties the device's cache before it returns";
        CP_OTHER_DEVICES, Flush, "f2fs/checkpoint/other-devices":
            "devices but the first are flushed before the pack's last block";
    }
    "crates/f2fs/src/fs/segments.rs" {
        FREE_LATER, Order, "f2fs/segments/free-later":
            "a segment that was emptied is given out after the next checkpoint only";
    }
    "crates/f2fs/src/fs/discard.rs" {
        DISCARD_LATER, Order, "f2fs/discard/after-checkpoint":
            "blocks are discarded, and zones reset, when a checkpoint without them is durable";
    }
    "crates/f2fs/src/fs/load.rs" {
        RECOVER_LAST, Order, "f2fs/recovery/last-block":
            "what recovery writes is durable before the checkpoint that says so";
    }
    "crates/f2fs/src/fs/mount.rs" {
        UNMOUNT_CP, Write, "f2fs/unmount/checkpoint": "an unmount ends with a checkpoint";
    }
    "crates/f2fs/src/fs/fsync.rs" {
        FSYNC_WRITE, Write, "f2fs/fsync/data-write": "fsync sends the file's data";
        FSYNC_WAIT, Wait, "f2fs/fsync/data-wait":
            "the data have arrived before fsync sends the nodes that lead to them";
        FSYNC_LATE_WAIT, Wait, "f2fs/fsync/oprw-data-wait":
            "with OPRW fsync waits for data and nodes before it flushes";
        FSYNC_CHECKPOINT, Write, "f2fs/fsync/checkpoint":
            "an fsync that recovery could not follow is a checkpoint";
        FSYNC_NODES, Write, "f2fs/fsync/nodes": "fsync sends the file's nodes";
        FSYNC_FIRST_FLUSH, Flush, "f2fs/fsync/fixed-flush":
            "in mode strict_fixed the data are flushed before the nodes are sent";
        SYNC_SEND, Write, "f2fs/sync/data-start": "sync sends the data of all files";
        SYNC_AGAIN, Write, "f2fs/sync/data-write": "sync sends what is dirty once more";
        SYNC_WAIT, Wait, "f2fs/sync/data-wait": "sync waits for the data of all files";
        SYNC_CHECKPOINT, Write, "f2fs/sync/checkpoint": "sync ends with a checkpoint";
        SYNCFS_SEND, Write, "f2fs/syncfs/data-start": "syncfs sends the data of all files";
        SYNCFS_WRITE, Write, "f2fs/syncfs/data-write": "syncfs sends what is dirty once more";
        SYNCFS_WAIT, Wait, "f2fs/syncfs/data-wait": "syncfs waits for the data of all files";
        SYNCFS_CHECKPOINT, Write, "f2fs/syncfs/checkpoint": "syncfs ends with a checkpoint";
    }
    "crates/f2fs/src/fs/writeback.rs" {
        DATA_AGAIN, Wait, "f2fs/writeback/one-at-a-time":
            "a block of data is sent when its last write has arrived";
    }
    "crates/f2fs/src/fs/direct_log.rs" {
        DIRECT_LOG_WAIT, Wait, "f2fs/direct-log/data-wait":
            "with direct=log a node names a block when its data has arrived";
        DIRECT_LOG_FUA, Fua, "f2fs/direct-log/fua":
            "with direct=log a write with O_SYNC is on the medium when its node names it";
        DIRECT_LOG_FLUSH, Flush, "f2fs/direct-log/flush":
            "with direct=log an fsync flushes direct data before it sends a node with its mark";
    }
    "crates/f2fs/src/fs/inline_data.rs" {
        INLINE_WAIT, Wait, "f2fs/inline/convert-wait":
            "data that leave the inode have arrived before the inode forgets them";
    }
    "crates/f2fs/src/fs/direct.rs" {
        DIRECT_SYNC, Write, "f2fs/direct/sync": "a direct O_SYNC write is followed by an fsync";
        DIRECT_FUA, Fua, "f2fs/direct/fua":
            "a direct O_DSYNC overwrite that is not followed by an fsync is forced to the medium";
    }
    "crates/f2fs/src/fs/ops.rs" {
        SYNC_WRITE, Write, "f2fs/write/o-sync": "an O_SYNC write is followed by an fsync";
    }
}
