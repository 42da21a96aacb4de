//! Steps of ext4 that a crash is safe by.

wp_base::sites! {
    "crates/ext4/src/fs/sync.rs" {
        FSYNC_WRITE, Write, "ext4/fsync/data-write": "fsync sends the file's data";
        FSYNC_DISPATCH, Wait, "ext4/fsync/data-dispatch":
            "the device has a file's data before the transaction that shows it (BarrierFS)";
        FSYNC_ARRIVE, Wait, "ext4/fsync/data-arrive":
            "data that fsync has only dispatched have arrived before it flushes them (BarrierFS)";
        ORDER_DISPATCH, Wait, "ext4/fbarrier/data-dispatch":
            "the device has a file's data before an ordering call asks for what comes behind them";
        ORDER_ARRIVE, Wait, "ext4/fbarrier/data-arrive":
            "data behind which no barrier was sent have arrived before an ordering call flushes them";
        ORDER_REST, Flush, "ext4/fbarrier/flush":
            "data behind which no barrier was sent are flushed before an ordering call returns";
        FSYNC_WAIT, Wait, "ext4/fsync/data-wait":
            "the data have arrived, and are converted, before fsync looks for their transaction";
        FSYNC_COMMIT, Wait, "ext4/fsync/commit-wait":
            "the transaction of the file is durable when fsync returns";
        FSYNC_FLUSH, Flush, "ext4/fsync/flush":
            "data that no commit flushes are flushed before fsync returns";
        FSYNC_WHOLE, Wait, "ext4/fsync/commit-whole":
            "fsync of a directory, or of journalled data, waits for the running transaction";
        SUBMIT_ORDERED, Write, "ext4/ordered/submit":
            "a commit writes the dirty data of a filed inode";
        WAIT_ORDERED, Wait, "ext4/ordered/wait":
            "a commit waits for data of a filed inode that are in writeback";
        SYNC_SEND, Write, "ext4/sync/data-start": "sync sends the data of all files";
        SYNC_AGAIN, Write, "ext4/sync/data-write": "sync sends what is dirty once more";
        SYNC_WAIT, Wait, "ext4/sync/data-wait": "sync waits for the data of all files";
        SYNC_COMMIT, Wait, "ext4/sync/commit-wait": "sync waits for the commit";
        SYNC_FLUSH, Flush, "ext4/sync/flush": "without a commit that flushes, sync flushes";
        SYNC_HOME, Wait, "ext4/sync/metadata-home":
            "sync writes the metadata of older transactions home";
    }
    "crates/ext4/src/fs/syncfs.rs" {
        SYNCFS_SEND, Write, "ext4/syncfs/data-start":
            "syncfs sends the data of all files before it asks for a commit";
        SYNCFS_WRITE, Write, "ext4/syncfs/data-write": "syncfs sends what is dirty once more";
        SYNCFS_WAIT, Wait, "ext4/syncfs/data-wait": "syncfs waits for the data of all files";
        SYNCFS_ASK, Write, "ext4/syncfs/commit-ask": "syncfs asks for a commit";
        SYNCFS_COMMIT, Wait, "ext4/syncfs/commit-wait": "syncfs waits for the commit";
        SYNCFS_FLUSH, Flush, "ext4/syncfs/flush":
            "without a commit that flushes, syncfs flushes";
        SYNCFS_HOME, Wait, "ext4/syncfs/metadata-home":
            "syncfs writes the metadata of older transactions home";
    }
    "crates/ext4/src/fs/convert.rs" {
        CONVERT, Write, "ext4/convert/convert": "an unwritten extent is converted after its data";
        CONVERT_FIRST, Order, "ext4/convert/before-writeback-ends":
            "who waits for writeback waits for the conversion as well";
        CONVERT_TID, Order, "ext4/convert/datasync-tid":
            "fsync waits for the transaction that converted the file's extents";
    }
    "crates/ext4/src/fs/writeback.rs" {
        DATA_ORDER, Order, "ext4/writeback/data-order":
            "data that a call has put in order reaches the device in it (BarrierFS)";
        UNWRITTEN, Order, "ext4/writeback/unwritten-first":
            "an extent without its data reads as zeroes";
        MAP_UNWRITTEN, Order, "ext4/writeback/unwritten-kept":
            "an extent of fallocate stays unwritten until its data have arrived";
        FILE_WRITTEN, Order, "ext4/writeback/file-inode":
            "data that got their place in writeback are ordered before the commit";
        DISKSIZE_LATER, Order, "ext4/writeback/disksize":
            "the length on disk follows when the blocks have their place";
        MAP_TID, Order, "ext4/writeback/datasync-tid":
            "fdatasync waits for the transaction that initialised the file's extents";
        WRITE_AGAIN, Wait, "ext4/writeback/one-at-a-time":
            "a block of data is sent when its last write has arrived";
    }
    "crates/ext4/src/fs/extents.rs" {
        ALLOC_TID, Order, "ext4/allocate/datasync-tid":
            "fdatasync waits for the transaction that gave the file blocks";
        ALIAS_CLEAN, Order, "ext4/allocate/clean-aliases":
            "what a block of data held as metadata does not go home over the data";
        ALIAS_WAIT, Wait, "ext4/allocate/aliases-wait":
            "what a block of data held as metadata is on its way home no more";
    }
    "crates/ext4/src/fs/indirect.rs" {
        INDIRECT_TID, Order, "ext4/indirect/datasync-tid":
            "fdatasync waits for the transaction that gave the file mapped blocks";
    }
    "crates/ext4/src/fs/ialloc.rs" {
        CREATE_TID, Order, "ext4/create/datasync-tid":
            "fdatasync waits for the transaction that made the file";
    }
    "crates/ext4/src/fs/unwritten.rs" {
        ZERO_OUT, Write, "ext4/initialise/zero-out":
            "what becomes written beside a write is zeroed";
        ZERO_OUT_WAIT, Wait, "ext4/initialise/zero-out-wait":
            "what becomes written beside a write is zeroed before that is committed";
    }
    "crates/ext4/src/fs/discard.rs" {
        DISCARD_LATER, Order, "ext4/discard/after-commit":
            "what was freed is discarded when the freeing is durable";
    }
    "crates/ext4/src/fs/table_trim.rs" {
        TABLE_LATER, Order, "ext4/table-trim/after-commit":
            "a block of inodes is discarded when the freeing of the last is durable";
        TABLE_REUSED, Order, "ext4/table-trim/reuse":
            "a block of inodes is not discarded once one was taken again";
        TABLE_HOLD, Wait, "ext4/table-trim/hold":
            "nobody takes an inode of a block that is being discarded";
        TABLE_LOGGED, Order, "ext4/table-trim/logged":
            "the log keeps freed inodes until the discard of their block is durable";
    }
    "crates/ext4/src/fs/lazy_init.rs" {
        LAZY_WAIT, Wait, "ext4/lazy-init/wait":
            "a table of inodes is zeroed before its descriptor says so";
        LAZY_FLUSH, Flush, "ext4/lazy-init/flush":
            "the zeroes of a table of inodes are durable before its descriptor says so";
    }
    "crates/ext4/src/fs/mount.rs" {
        RECOVER_HOME_FIRST, Order, "ext4/recovery/home-first":
            "what is replayed is durable at home before the log is empty";
        RECOVER_FLUSH, Flush, "ext4/recovery/flush":
            "each stage of a recovery is durable before the next";
    }
    "crates/ext4/src/fs/unmount.rs" {
        UNMOUNT_HOME, Write, "ext4/unmount/metadata-home":
            "metadata that the log does not know is at home when the image is clean";
    }
    "crates/ext4/src/fs/data.rs" {
        SIZE_MAPPED, Order, "ext4/write/disksize":
            "a write moves the length on disk only over blocks that have their place";
        FILE_EXTENDING, Order, "ext4/write/file-extending":
            "data that move the length within a block are ordered before it (3.4)";
        FILE_ALLOCATED, Order, "ext4/write/file-allocated":
            "data allocated in write() are ordered before the commit";
        WRITE_TID, Order, "ext4/write/datasync-tid":
            "fdatasync waits for the transaction that moved the length";
        INIT_TID, Order, "ext4/write/initialise-tid":
            "fdatasync waits for the transaction that a write initialised an extent in";
        EXTEND_GAP, Write, "ext4/write/zero-gap":
            "a write beyond the end zeroes the rest of the old last block";
        STABLE, Wait, "ext4/write/stable-pages":
            "a block does not change while it is written";
    }
    "crates/ext4/src/fs/inode.rs" {
        SYNC_TID, Order, "ext4/inode/sync-tid":
            "fsync waits for the transaction of the inode's last change";
        SIZE_TID, Order, "ext4/inode/datasync-tid":
            "fdatasync waits for the transaction of the last change of the length";
    }
    "crates/ext4/src/fs/truncate.rs" {
        TRUNCATE_ORPHAN, Order, "ext4/truncate/orphan":
            "a file that is being cut is found by the next mount";
        TRUNCATE_ZERO, Write, "ext4/truncate/zero-tail": "a cut zeroes the rest of the last block";
        EXTEND_ZERO, Write, "ext4/truncate/zero-tail-extend":
            "a truncate that extends zeroes the rest of the old last block";
        ZERO_FILE, Order, "ext4/truncate/file-zeroed":
            "zeroed parts of blocks are ordered before the commit";
        ORDERED_CUT, Write, "ext4/truncate/write-ordered":
            "data that a commit waits for is written before it is cut off";
        ZERO_STABLE, Wait, "ext4/truncate/stable-pages":
            "a block is not zeroed in part while it is written";
    }
    "crates/ext4/src/fs/namei.rs" {
        UNLINK_ORPHAN, Order, "ext4/unlink/orphan":
            "an inode without names is found by the next mount";
        REPLACE_ALLOC, Write, "ext4/replace/auto-da-alloc":
            "a file that replaces another gets its places with the change of the name";
    }
    "crates/ext4/src/fs/punch.rs" {
        EDGES, Write, "ext4/punch/zero-edges": "the edges of a punched or zeroed range are zeroed";
        PUNCH_WRITE, Write, "ext4/punch/write-back":
            "what a hole is punched into is written before (4.6 to 6.12, and journalled data)";
        PUNCH_SIZE, Order, "ext4/punch/length-first":
            "the length on disk does not wait for blocks that a hole takes away";
        FALLOCATE_TID, Order, "ext4/fallocate/datasync-tid":
            "fdatasync waits for the transaction of a fallocate";
        ZERO_TID, Order, "ext4/zero-range/datasync-tid":
            "fdatasync waits for the transaction that zeroed a range";
        PUNCH_TID, Order, "ext4/punch/datasync-tid":
            "fdatasync waits for the end of a punched hole";
        REMOVE_TID, Order, "ext4/punch/remove-tid":
            "fdatasync waits for the transaction that freed a hole's blocks";
    }
    "crates/ext4/src/fs/balloc.rs" {
        FREE_LATER, Order, "ext4/free/after-commit":
            "freed blocks are given out again when the freeing is durable";
        FORGET, Order, "ext4/free/revoke":
            "freed blocks of metadata are revoked";
    }
    "crates/ext4/src/fs/direct.rs" {
        DIRECT_ORPHAN, Order, "ext4/direct/orphan":
            "blocks behind the end of a file that a direct write grows are cut off by the next mount";
        DIRECT_FLUSH_CACHE, Write, "ext4/direct/write-back-first":
            "cached data are written before a direct write to the same range";
        DIRECT_WAIT, Wait, "ext4/direct/data-wait": "a direct write returns when it has arrived";
        DIRECT_FUA, Fua, "ext4/direct/fua":
            "a direct O_DSYNC write that needs no metadata is forced";
        DIRECT_SYNC, Flush, "ext4/direct/sync": "a direct O_DSYNC write is followed by an fsync";
        DIRECT_CLEAN, Order, "ext4/direct/fua-if-committed":
            "FUA alone is enough only where the file's metadata is committed";
        DIRECT_FRESH, Order, "ext4/direct/fua-if-written":
            "FUA alone is not enough where blocks were allocated or unwritten";
        DIRECT_UNWRITTEN, Order, "ext4/direct/unwritten-first":
            "blocks inside a file become written after their data";
        DIRECT_SIZE, Order, "ext4/direct/size-after-data":
            "a length that a direct write moves follows its data";
        DIRECT_TID, Order, "ext4/direct/datasync-tid":
            "fdatasync waits for the transaction that converted a direct write's extents";
        DIRECT_CONVERT, Write, "ext4/direct/convert":
            "the extents of a direct write become written when its data are there";
        DIRECT_MAP_TID, Order, "ext4/direct/map-tid":
            "fdatasync waits for the transaction that split a direct write's extents";
        DIRECT_GROW_TID, Order, "ext4/direct/growth-tid":
            "fdatasync waits for the transaction that moved the length behind a direct write";
        DIRECT_FILE, Order, "ext4/direct/file-inode":
            "data of a direct write beyond the end are ordered before their extents (3.8 to 4.6)";
    }
    "crates/ext4/src/fs/data_journal.rs" {
        JOURNAL_TID, Order, "ext4/data-journal/datasync-tid":
            "fsync waits for the transaction that has the file's data";
        JOURNAL_INVALIDATE, Order, "ext4/data-journal/invalidate":
            "cut data does not go home over who owns the block next";
        JOURNAL_COMMIT, Wait, "ext4/data-journal/commit-first":
            "journalled data is committed when fsync has sent it";
        JOURNAL_AGAIN, Wait, "ext4/data-journal/one-at-a-time":
            "a block of journalled data goes home when its last write has arrived";
    }
    "crates/ext4/src/fs/ops.rs" {
        SYNC_WRITE, Wait, "ext4/write/sync": "an O_SYNC or O_DSYNC write is durable when it returns";
        SYNC_RESERVE, Wait, "ext4/fallocate/sync":
            "fallocate through an O_SYNC or O_DSYNC descriptor is durable when it returns";
        CLOSE_ALLOC, Write, "ext4/close/auto-da-alloc":
            "a file that was cut to nothing and written anew gets its places at close";
    }
    "crates/ext4/src/fs/super_block.rs" {
        SUPER_CHECKSUM, Checksum, "ext4/checksum/super-block": "the super block is sealed";
        SUPER_FUA, Fua, "ext4/super-block/fua": "a super block outside the journal is durable";
        SUPER_WAIT, Wait, "ext4/super-block/wait":
            "a super block outside the journal has arrived before the mount goes on";
    }
    "crates/ext4/src/fs/orphan_file.rs" {
        ORPHAN_CHECKSUM, Checksum, "ext4/checksum/orphan-file": "the orphan file is sealed";
    }
    "crates/ext4/src/disk/group.rs" {
        BLOCK_BITMAP_CHECKSUM, Checksum, "ext4/checksum/block-bitmap": "block bitmaps are sealed";
        INODE_BITMAP_CHECKSUM, Checksum, "ext4/checksum/inode-bitmap": "inode bitmaps are sealed";
    }
    "crates/ext4/src/disk/csum.rs" {
        GROUP_CHECKSUM, Checksum, "ext4/checksum/group-descriptor": "group descriptors are sealed";
        INODE_CHECKSUM, Checksum, "ext4/checksum/inode": "inodes are sealed";
        EXTENT_CHECKSUM, Checksum, "ext4/checksum/extent-block": "nodes of extents are sealed";
        DIR_CHECKSUM, Checksum, "ext4/checksum/directory": "directory blocks are sealed";
        HTREE_CHECKSUM, Checksum, "ext4/checksum/htree": "nodes of hash trees are sealed";
        XATTR_CHECKSUM, Checksum, "ext4/checksum/xattr-block": "blocks of attributes are sealed";
    }
}
