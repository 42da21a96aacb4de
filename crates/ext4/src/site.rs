//! Crash-safety points of ext4: steps that crash consistency depends on.

wp_base::sites! {
    "crates/ext4/src/fs/sync.rs" {
        FSYNC_WRITE, Write, "ext4/fsync/data-write": "fsync sends the file's data";
        FSYNC_DISPATCH, Wait, "ext4/fsync/data-dispatch":
            "fsync dispatches data to the device before the transaction that shows it (BarrierFS)";
        FSYNC_ARRIVE, Wait, "ext4/fsync/data-arrive":
            "data that fsync only dispatched completes before fsync flushes it (BarrierFS)";
        ORDER_DISPATCH, Wait, "ext4/fbarrier/data-dispatch":
            "an ordering call dispatches the file's data to the device before any later write";
        ORDER_ARRIVE, Wait, "ext4/fbarrier/data-arrive":
            "data without a barrier behind it completes before an ordering call flushes it";
        ORDER_REST, Flush, "ext4/fbarrier/flush":
            "data without a barrier behind it is flushed before an ordering call returns";
        FSYNC_WAIT, Wait, "ext4/fsync/data-wait":
            "data completes and its extents are converted before fsync reads i_sync_tid";
        FSYNC_COMMIT, Wait, "ext4/fsync/commit-wait":
            "fsync waits for the commit of the file's transaction";
        FSYNC_FLUSH, Flush, "ext4/fsync/flush": "fsync flushes data that no commit flushes";
        FSYNC_WHOLE, Wait, "ext4/fsync/commit-whole":
            "fsync of a directory or of journaled data waits for the running transaction";
        SUBMIT_ORDERED, Write, "ext4/ordered/submit":
            "a commit writes the dirty data of the inodes on its list";
        WAIT_ORDERED, Wait, "ext4/ordered/wait":
            "a commit waits for writeback of the inodes on its list";
        SYNC_SEND, Write, "ext4/sync/data-start": "sync sends the data of all files";
        SYNC_AGAIN, Write, "ext4/sync/data-write": "sync sends data that became dirty again";
        SYNC_WAIT, Wait, "ext4/sync/data-wait": "sync waits for the data of all files";
        SYNC_COMMIT, Wait, "ext4/sync/commit-wait": "sync waits for the commit";
        SYNC_FLUSH, Flush, "ext4/sync/flush": "sync flushes the device's cache if no commit does";
        SYNC_HOME, Wait, "ext4/sync/metadata-home":
            "sync writes the metadata of older transactions in place";
    }
    "crates/ext4/src/fs/fast_commit/mod.rs" {
        FAST_INELIGIBLE, Order, "ext4/fast/ineligible":
            "a change that no record tells makes the next commit a full one";
        FAST_STAGING, Order, "ext4/fast/staging":
            "a change during a commit belongs to the next fast commit";
    }
    "crates/ext4/src/fs/fast_commit/commit.rs" {
        FAST_LOCK, Wait, "ext4/fast/lock":
            "no handle is open while a fast commit reads what it logs";
        FAST_HEAD, Write, "ext4/fast/head":
            "the first fast commit after a full one names the transaction whose place it takes";
        FAST_EACH, Fua, "ext4/fast/each-block":
            "5.10.0: each block of a fast commit is durable before the tail's write completes";
        FAST_FIRST, Fua, "ext4/fast/first-block":
            "the block that names the transaction, written last (fast_fix=head), is durable";
        FAST_FLUSH, Flush, "ext4/fast/tail-flush":
            "the synced data is durable before the tail of a fast commit is written";
        FAST_FUA, Fua, "ext4/fast/tail-fua":
            "the tail of a fast commit is durable when its write completes";
        FAST_WAIT, Wait, "ext4/fast/block-wait":
            "fsync returns only after the blocks of its fast commit are written";
    }
    "crates/ext4/src/image/fast_commit/ijournal.rs" {
        RECOVER_NEWER, Order, "ext4/recovery/i-transaction-newer":
            "recovery replays no i-transaction that a commit has made void";
    }
    "crates/ext4/src/fs/fast_commit/ijournal.rs" {
        IJ_SEQUENCE, Order, "ext4/ijournal/sequence":
            "i-transactions of all cores have one order, in which recovery replays them";
        IJ_FILE, Wait, "ext4/ijournal/one-at-a-time":
            "an i-transaction begins after the last one of its file is durable";
        IJ_FLUSH, Flush, "ext4/ijournal/flush":
            "fsync flushes data of a file of which there is nothing to log";
        IJ_BLOCKS, Wait, "ext4/ijournal/block-wait":
            "the blocks of an i-transaction complete before its tail flushes and is written";
        IJ_PARENT, Order, "ext4/ijournal/parent":
            "a file whose directory is in no commit yet is committed in full";
        IJ_NAME, Order, "ext4/ijournal/name":
            "a file whose name was another's in the same transaction is committed in full";
        IJ_BARRED, Order, "ext4/ijournal/number":
            "a file whose number was another's in the same transaction is committed in full";
        IJ_ORPHAN, Order, "ext4/ijournal/orphan":
            "a file on the list of orphans is committed in full";
    }
    "crates/ext4/src/fs/syncfs.rs" {
        SYNCFS_SEND, Write, "ext4/syncfs/data-start":
            "syncfs sends the data of all files before it starts a commit";
        SYNCFS_WRITE, Write, "ext4/syncfs/data-write": "syncfs sends data that became dirty again";
        SYNCFS_WAIT, Wait, "ext4/syncfs/data-wait": "syncfs waits for the data of all files";
        SYNCFS_ASK, Write, "ext4/syncfs/commit-ask": "syncfs starts a commit";
        SYNCFS_COMMIT, Wait, "ext4/syncfs/commit-wait": "syncfs waits for the commit";
        SYNCFS_FLUSH, Flush, "ext4/syncfs/flush":
            "syncfs flushes the device's cache if no commit does";
        SYNCFS_HOME, Wait, "ext4/syncfs/metadata-home":
            "syncfs writes the metadata of older transactions in place";
    }
    "crates/ext4/src/fs/convert.rs" {
        CONVERT, Write, "ext4/convert/convert":
            "an unwritten extent is converted after its data completes";
        CONVERT_FIRST, Order, "ext4/convert/before-writeback-ends":
            "writeback ends only after the conversion of its unwritten extents";
        CONVERT_TID, Order, "ext4/convert/datasync-tid":
            "fsync waits for the transaction that converted the file's extents";
    }
    "crates/ext4/src/fs/iomap.rs" {
        DIRECT_FILE, Order, "ext4/direct/file-inode":
            "data of an extending direct write is ordered before its extents (3.8 to 4.6)";
        UNWRITTEN, Order, "ext4/writeback/unwritten-first":
            "an allocated extent reads as zeroes until its data is written";
        IOMAP_GROW, Order, "ext4/iomap/grow-pending":
            "buffered_iomap: i_disksize waits for the zeroed rest of an unaligned old end";
        IOMAP_DEFER, Order, "ext4/iomap/grow-defer":
            "buffered_iomap: nothing else moves i_disksize while a zeroed block is on its way";
        IOMAP_FALLOCATE, Wait, "ext4/iomap/grow-fallocate":
            "buffered_iomap: fallocate and direct writes wait for the zeroed block";
        IOMAP_CUT, Wait, "ext4/iomap/grow-cut":
            "buffered_iomap: a cut above i_disksize waits for the zeroed block";
    }
    "crates/ext4/src/fs/writeback.rs" {
        IOMAP_WRITEBACK, Wait, "ext4/iomap/grow-writeback":
            "buffered_iomap: writeback waits for the zeroed block before it sends the rest";
        IOMAP_SIZE, Order, "ext4/iomap/size-after-data":
            "buffered_iomap: i_disksize moves only when the data below it has arrived";
        DATA_ORDER, Order, "ext4/writeback/data-order":
            "writeback keeps the order of ordering calls down to the device (BarrierFS)";
        MAP_UNWRITTEN, Order, "ext4/writeback/unwritten-kept":
            "a fallocated extent stays unwritten until its data completes";
        FILE_WRITTEN, Order, "ext4/writeback/file-inode":
            "data allocated in writeback is ordered before the commit";
        DISKSIZE_LATER, Order, "ext4/writeback/disksize":
            "i_disksize grows only after the blocks are allocated";
        MAP_TID, Order, "ext4/writeback/datasync-tid":
            "fdatasync waits for the transaction that initialized the file's extents";
        WRITE_AGAIN, Wait, "ext4/writeback/one-at-a-time":
            "a data block is written only after its previous write completes";
    }
    "crates/ext4/src/fs/extents.rs" {
        ALLOC_TID, Order, "ext4/allocate/datasync-tid":
            "fdatasync waits for the transaction that allocated the file's blocks";
        ALIAS_CLEAN, Order, "ext4/allocate/clean-aliases":
            "stale metadata buffers are not written over a block's new data";
        ALIAS_WAIT, Wait, "ext4/allocate/aliases-wait":
            "writes of stale metadata buffers complete before a block is reused for data";
    }
    "crates/ext4/src/fs/indirect.rs" {
        INDIRECT_TID, Order, "ext4/indirect/datasync-tid":
            "fdatasync waits for the transaction that allocated the file's indirect blocks";
    }
    "crates/ext4/src/fs/ialloc.rs" {
        CREATE_TID, Order, "ext4/create/datasync-tid":
            "fdatasync waits for the transaction that created the file";
    }
    "crates/ext4/src/fs/unwritten.rs" {
        ZERO_OUT, Write, "ext4/initialise/zero-out":
            "the rest of an initialized extent beside a write is zeroed";
        ZERO_OUT_WAIT, Wait, "ext4/initialise/zero-out-wait":
            "zeroing of an extent completes before the extent's commit";
    }
    "crates/ext4/src/fs/discard.rs" {
        DISCARD_LATER, Order, "ext4/discard/after-commit":
            "freed blocks are discarded only after the free is durable";
    }
    "crates/ext4/src/fs/table_trim.rs" {
        TABLE_LATER, Order, "ext4/table-trim/after-commit":
            "an inode-table block is discarded only after the free of its last inode is durable";
        TABLE_REUSED, Order, "ext4/table-trim/reuse":
            "an inode-table block is not discarded once one of its inodes is in use again";
        TABLE_HOLD, Wait, "ext4/table-trim/hold":
            "no inode is allocated in a block that is being discarded";
        TABLE_LOGGED, Order, "ext4/table-trim/logged":
            "the log keeps freed inodes until the discard of their block is durable";
    }
    "crates/ext4/src/fs/lazy_init.rs" {
        LAZY_WAIT, Wait, "ext4/lazy-init/wait":
            "an inode table is zeroed before its group descriptor says so";
        LAZY_FLUSH, Flush, "ext4/lazy-init/flush":
            "the zeroes of an inode table are durable before its group descriptor says so";
    }
    "crates/ext4/src/fs/mount_replay.rs" {
        RECOVER_HOME_FIRST, Order, "ext4/recovery/home-first":
            "replayed blocks are durable in place before the log is marked as empty";
        RECOVER_FLUSH, Flush, "ext4/recovery/flush":
            "each stage of recovery is durable before the next begins";
    }
    "crates/ext4/src/fs/unmount.rs" {
        UNMOUNT_HOME, Write, "ext4/unmount/metadata-home":
            "metadata outside the log is written in place before the image is marked as clean";
    }
    "crates/ext4/src/fs/data.rs" {
        SIZE_MAPPED, Order, "ext4/write/disksize":
            "a write moves i_disksize only over allocated blocks";
        FILE_EXTENDING, Order, "ext4/write/file-extending":
            "data of a write that grows a file within a block is ordered before the commit (3.4)";
        FILE_ALLOCATED, Order, "ext4/write/file-allocated":
            "data allocated in write() is ordered before the commit";
        INIT_TID, Order, "ext4/write/initialise-tid":
            "fdatasync waits for the transaction in which a write initialized an extent";
        EXTEND_GAP, Write, "ext4/write/zero-gap":
            "a write beyond EOF zeroes the rest of the old last block";
        STABLE, Wait, "ext4/write/stable-pages": "a page does not change during writeback";
    }
    "crates/ext4/src/fs/inode.rs" {
        SYNC_TID, Order, "ext4/inode/sync-tid":
            "fsync waits for the transaction of the inode's last change";
        SIZE_TID, Order, "ext4/inode/datasync-tid":
            "fdatasync waits for the transaction of the last change of the length";
    }
    "crates/ext4/src/fs/truncate.rs" {
        TRUNCATE_ORPHAN, Order, "ext4/truncate/orphan":
            "a file under truncate is on the orphan list";
        TRUNCATE_ZERO, Write, "ext4/truncate/zero-tail":
            "truncate zeroes the rest of the last block";
        EXTEND_ZERO, Write, "ext4/truncate/zero-tail-extend":
            "a truncate that extends a file zeroes the rest of the old last block";
        ZERO_FILE, Order, "ext4/truncate/file-zeroed":
            "partially zeroed blocks are ordered before the commit";
        ORDERED_CUT, Write, "ext4/truncate/write-ordered":
            "data that a commit waits for is written before truncate drops it";
        ZERO_STABLE, Wait, "ext4/truncate/stable-pages":
            "a block is not partially zeroed during writeback";
    }
    "crates/ext4/src/fs/namei.rs" {
        UNLINK_ORPHAN, Order, "ext4/unlink/orphan": "an unlinked open inode is on the orphan list";
        TMPFILE_ORPHAN, Order, "ext4/tmpfile/orphan":
            "a file made without a name is on the orphan list";
        LINK_ORPHAN, Order, "ext4/link/orphan":
            "a file that gets its first name leaves the orphan list in the same transaction";
    }
    "crates/ext4/src/fs/rename.rs" {
        REPLACE_ALLOC, Write, "ext4/replace/auto-da-alloc":
            "rename over a file allocates the blocks of the new file in the same transaction";
    }
    "crates/ext4/src/fs/punch.rs" {
        EDGES, Write, "ext4/punch/zero-edges":
            "punch hole and zero range zero the partial blocks at both ends";
        PUNCH_WRITE, Write, "ext4/punch/write-back":
            "punch hole writes dirty blocks of the range first (4.6 to 6.12, and journaled data)";
        PUNCH_SIZE, Order, "ext4/punch/length-first":
            "i_disksize does not wait for blocks that a hole removes";
        FALLOCATE_TID, Order, "ext4/fallocate/datasync-tid":
            "fdatasync waits for the transaction of a fallocate";
        ZERO_TID, Order, "ext4/zero-range/datasync-tid":
            "fdatasync waits for the transaction that zeroed a range";
        PUNCH_TID, Order, "ext4/punch/datasync-tid":
            "fdatasync waits for the last transaction of a punched hole";
        REMOVE_TID, Order, "ext4/punch/remove-tid":
            "fdatasync waits for the transaction that freed the blocks of a hole";
    }
    "crates/ext4/src/fs/balloc.rs" {
        FREE_LATER, Order, "ext4/free/after-commit":
            "freed blocks are reused only after the free is durable";
        FORGET, Order, "ext4/free/revoke": "freed metadata blocks are revoked";
    }
    "crates/ext4/src/fs/direct.rs" {
        DIRECT_ORPHAN, Order, "ext4/direct/orphan":
            "the next mount truncates blocks beyond EOF that an extending direct write left";
        DIRECT_FLUSH_CACHE, Write, "ext4/direct/write-back-first":
            "cached data is written before a direct write to the same range";
        DIRECT_WAIT, Wait, "ext4/direct/data-wait":
            "a direct write returns only after its data completes";
        DIRECT_FUA, Fua, "ext4/direct/fua":
            "a direct O_DSYNC write that needs no metadata uses FUA";
        DIRECT_SYNC, Flush, "ext4/direct/sync": "a direct O_DSYNC write is followed by an fsync";
        DIRECT_CLEAN, Order, "ext4/direct/fua-if-committed":
            "FUA alone is used only if the file's metadata is committed";
        DIRECT_FRESH, Order, "ext4/direct/fua-if-written":
            "FUA alone is not used for newly allocated or unwritten blocks";
        DIRECT_UNWRITTEN, Order, "ext4/direct/unwritten-first":
            "blocks inside a file become written only after their data completes";
        DIRECT_SIZE, Order, "ext4/direct/size-after-data":
            "an extending direct write changes the length after its data completes";
        DIRECT_CONVERT, Write, "ext4/direct/convert":
            "the extents of a direct write are converted after its data completes";
        DIRECT_MAP_TID, Order, "ext4/direct/map-tid":
            "fdatasync waits for the transaction that split a direct write's extents";
    }
    "crates/ext4/src/fs/untorn.rs" {
        DIRECT_TID, Order, "ext4/direct/datasync-tid":
            "fdatasync waits for the transaction that converted a direct write's extents";
        UNTORN_COMMIT, Flush, "ext4/untorn/commit-first":
            "a mixed range is written untorn only after the zeroes of its holes are committed";
    }
    "crates/ext4/src/fs/data_journal.rs" {
        JOURNAL_TID, Order, "ext4/data-journal/datasync-tid":
            "fsync waits for the transaction that has the file's data";
        JOURNAL_INVALIDATE, Order, "ext4/data-journal/invalidate":
            "truncated journaled data is not written over the block's next owner";
        JOURNAL_COMMIT, Wait, "ext4/data-journal/commit-first":
            "journaled data commits after fsync sends it";
        JOURNAL_AGAIN, Wait, "ext4/data-journal/one-at-a-time":
            "a journaled data block is checkpointed only after its previous write completes";
    }
    "crates/ext4/src/fs/ops.rs" {
        SYNC_WRITE, Wait, "ext4/write/sync":
            "an O_SYNC or O_DSYNC write is durable when it returns";
        SYNC_RESERVE, Wait, "ext4/fallocate/sync":
            "fallocate through an O_SYNC or O_DSYNC descriptor is durable when it returns";
        CLOSE_ALLOC, Write, "ext4/close/auto-da-alloc":
            "close allocates the blocks of a file that was truncated to 0 and rewritten";
    }
    "crates/ext4/src/fs/super_block.rs" {
        SUPER_CHECKSUM, Checksum, "ext4/checksum/super-block": "super blocks have a checksum";
        SUPER_FUA, Fua, "ext4/super-block/fua":
            "a super block written outside the journal is durable (FUA)";
        SUPER_WAIT, Wait, "ext4/super-block/wait":
            "mount waits for a super block that is written outside the journal";
    }
    "crates/ext4/src/fs/orphan_file.rs" {
        ORPHAN_CHECKSUM, Checksum, "ext4/checksum/orphan-file":
            "orphan file blocks have a checksum";
    }
    "crates/ext4/src/disk/group.rs" {
        BLOCK_BITMAP_CHECKSUM, Checksum, "ext4/checksum/block-bitmap":
            "block bitmaps have a checksum";
        INODE_BITMAP_CHECKSUM, Checksum, "ext4/checksum/inode-bitmap":
            "inode bitmaps have a checksum";
    }
    "crates/ext4/src/disk/csum.rs" {
        GROUP_CHECKSUM, Checksum, "ext4/checksum/group-descriptor":
            "group descriptors have a checksum";
        INODE_CHECKSUM, Checksum, "ext4/checksum/inode": "inodes have a checksum";
        EXTENT_CHECKSUM, Checksum, "ext4/checksum/extent-block": "extent blocks have a checksum";
        DIR_CHECKSUM, Checksum, "ext4/checksum/directory": "directory blocks have a checksum";
        HTREE_CHECKSUM, Checksum, "ext4/checksum/htree": "hash-tree nodes have a checksum";
        XATTR_CHECKSUM, Checksum, "ext4/checksum/xattr-block":
            "extended attribute blocks have a checksum";
    }
}
