//! Crash-safety points of btrfs: steps that crash consistency depends on.

wp_base::sites! {
    "crates/btrfs/src/fs/commit.rs" {
        COMMIT_PENDING, Wait, "btrfs/commit/pending":
            "a commit waits for logged ordered extents and for running log syncs";
        COMMIT_WAIT, Wait, "btrfs/commit/wait":
            "tree blocks complete before the super blocks that point to them are sent";
        SUPER_FLUSH, Flush, "btrfs/super-block/flush":
            "the device's cache is flushed before the super blocks";
        SUPER_FUA, Fua, "btrfs/super-block/fua":
            "the first super block is durable when it completes (FUA)";
        SUPER_WAIT, Wait, "btrfs/super-block/wait":
            "a commit or log sync ends only after the first super block completes";
    }
    "crates/btrfs/src/fs/ordered.rs" {
        ITEMS_LATER, Order, "btrfs/data/items-after":
            "file extent items point to data only after the data completes";
        DATA_SUMS, Checksum, "btrfs/data/checksums":
            "completed data gets its checksums together with its file extent items";
    }
    "crates/btrfs/src/fs/log/mod.rs" {
        LOG_WAIT, Wait, "btrfs/log/wait":
            "log tree blocks complete before the super block that points to the log is sent";
        LOG_SUPER, Write, "btrfs/log/super-block": "a super block points to the written log";
        LOG_AFTER_COMMIT, Wait, "btrfs/log/after-commit":
            "the super block of a log is written after that of the preceding commit";
    }
    "crates/btrfs/src/fs/log/inode.rs" {
        LOG_MOVED, Order, "btrfs/log/moved":
            "fsync of a directory that a name was moved out of commits the transaction";
        LOG_CONFLICTS, Write, "btrfs/log/conflicts":
            "the previous owner of a name that is logged is logged too";
        LOG_XATTRS, Write, "btrfs/log/xattrs":
            "the extended attributes of an inode are logged with it";
        LOG_EXISTS, Order, "btrfs/log/exists":
            "an inode logged with LOG_INODE_EXISTS does not count as fsynced";
    }
    "crates/btrfs/src/fs/log/names.rs" {
        LOG_RANGES, Write, "btrfs/log/ranges":
            "the log records the index ranges of a directory that it covers";
        LOG_NEW_NAMES, Write, "btrfs/log/new-names":
            "inodes of a directory's new names are logged with it";
        LOG_ANCESTORS, Write, "btrfs/log/ancestors":
            "new parent directories of a file are logged with it";
        LOG_PARENTS, Write, "btrfs/log/parents":
            "directories in which a file lost a name are logged with it";
        LOG_GONE_PARENT, Order, "btrfs/log/gone-parent":
            "fsync commits if one of these directories was removed";
        LOG_UNLINK, Write, "btrfs/log/unlink": "a removed name is removed from the log too";
        LOG_RENAME, Write, "btrfs/log/rename": "a new name of a logged inode is logged";
    }
    "crates/btrfs/src/fs/log/extents.rs" {
        LOG_SUMS, Checksum, "btrfs/log/checksums":
            "the log has the checksums of the data that it points to";
        LOG_HOLES, Write, "btrfs/log/holes":
            "holes are logged, so that replay drops the old extents";
        LOG_PREALLOC, Write, "btrfs/log/prealloc": "preallocated extents beyond EOF are logged";
        LOG_ON_THEIR_WAY, Write, "btrfs/log/on-their-way":
            "ordered extents without file extent items are logged";
    }
    "crates/btrfs/src/fs/sync.rs" {
        FSYNC_WRITE, Write, "btrfs/fsync/data-write": "fsync sends the file's data";
        FSYNC_WAIT, Wait, "btrfs/fsync/wait": "data completes before fsync makes its items durable";
        FSYNC_COMMIT, Write, "btrfs/fsync/commit": "fsync makes the changes of the inode durable";
        FSYNC_FULL, Write, "btrfs/fsync/full-commit":
            "fsync commits the transaction if the log cannot express the changes";
        SYNC_DATA, Write, "btrfs/sync/data-write": "sync sends the data of all files";
        SYNC_ORDERED, Wait, "btrfs/sync/wait": "sync waits until all data has file extent items";
        SYNC_COMMIT, Write, "btrfs/sync/commit": "sync commits the transaction";
    }
    "crates/btrfs/src/trans/commit.rs" {
        UNPIN_LATER, Order, "btrfs/space/unpin":
            "space freed in a commit is reused only after that commit is on the device";
    }
    "crates/btrfs/src/trans/supers.rs" {
        COMMIT_ENDS_LOG, Write, "btrfs/commit/ends-log":
            "the super block of a commit has no log root";
    }
    "crates/btrfs/src/trans/logs.rs" {
        LOG_PINNED, Order, "btrfs/log/pinned":
            "log blocks are reused only after the commit that ends the log is on the device";
    }
    "crates/btrfs/src/space/mod.rs" {
        PIN_FREED, Order, "btrfs/space/pinned":
            "space freed in a transaction is not reused in the same transaction";
    }
    "crates/btrfs/src/replay/mod.rs" {
        RECOVER_LAST, Order, "btrfs/recovery/super-last":
            "replayed changes are durable before the super block that points to them";
    }
    "crates/btrfs/src/replay/log.rs" {
        REPLAY_PIN, Order, "btrfs/recovery/pin": "replay does not overwrite the log that it reads";
    }
    "crates/btrfs/src/replay/inodes.rs" {
        REPLAY_DIR_SIZE, Order, "btrfs/recovery/directory-size":
            "replayed names add to the size of the old directory inode";
        REPLAY_NAMES_GO, Write, "btrfs/recovery/deleted-names":
            "replay removes directory entries that the logged ranges do not have";
        REPLAY_XATTRS_GO, Write, "btrfs/recovery/deleted-xattrs":
            "replay removes extended attributes that the log does not have";
        REPLAY_LINKS, Write, "btrfs/recovery/link-counts":
            "replay recounts the links of logged inodes at its end";
    }
    "crates/btrfs/src/replay/refs.rs" {
        REPLAY_REFS_GO, Write, "btrfs/recovery/old-names":
            "replay removes names of an inode that its log does not have";
        REPLAY_ROOM, Order, "btrfs/recovery/conflicts":
            "replay removes the old owner of a name before it adds the logged one";
    }
    "crates/btrfs/src/replay/extents.rs" {
        REPLAY_SUMS, Checksum, "btrfs/recovery/checksums":
            "replay adds the checksums of logged data";
        REPLAY_DROP, Order, "btrfs/recovery/old-extents":
            "replay drops extents that a logged extent replaces";
    }
    "crates/btrfs/src/replay/mod.rs" {
        REPLAY_BEYOND, Order, "btrfs/recovery/beyond-end":
            "replay drops extents beyond EOF before it adds the logged ones";
    }
}
