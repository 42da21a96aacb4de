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
    "crates/f2fs/src/fs/mount.rs" {
        RECOVER_LAST, Order, "f2fs/recovery/last-block":
            "what recovery writes is durable before the checkpoint that says so";
        UNMOUNT_CP, Write, "f2fs/unmount/checkpoint": "an unmount ends with a checkpoint";
    }
}
