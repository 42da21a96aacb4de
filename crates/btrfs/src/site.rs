//! Steps of btrfs that a crash is safe by.

wp_base::sites! {
    "crates/btrfs/src/fs/commit.rs" {
        COMMIT_PENDING, Wait, "btrfs/commit/pending":
            "a commit waits for data that an fsync has logged and for those who log";
        COMMIT_WAIT, Wait, "btrfs/commit/wait":
            "tree blocks have arrived before the super blocks that lead to them are sent";
        SUPER_FLUSH, Flush, "btrfs/super-block/flush":
            "the device's cache is flushed before super blocks";
        SUPER_FUA, Fua, "btrfs/super-block/fua": "the first super block is durable when it arrives";
        SUPER_WAIT, Wait, "btrfs/super-block/wait":
            "the first super block has arrived before a commit or a log counts";
    }
    "crates/btrfs/src/fs/ordered.rs" {
        ITEMS_LATER, Order, "btrfs/data/items-after":
            "items lead to data only when it has arrived";
        DATA_SUMS, Checksum, "btrfs/data/checksums":
            "data that has arrived gets its checksums with its items";
    }
    "crates/btrfs/src/fs/log/mod.rs" {
        LOG_WAIT, Wait, "btrfs/log/wait":
            "blocks of a log have arrived before the super block that leads to it is sent";
        LOG_SUPER, Write, "btrfs/log/super-block": "a super block leads to a log that was written";
        LOG_AFTER_COMMIT, Wait, "btrfs/log/after-commit":
            "the super block of a log goes after that of the commit before it";
    }
    "crates/btrfs/src/fs/log/inode.rs" {
        LOG_MOVED, Order, "btrfs/log/moved":
            "the sync of a directory that a name moved away from is a commit";
        LOG_CONFLICTS, Write, "btrfs/log/conflicts":
            "who had a name before that is logged now is logged, too";
        LOG_XATTRS, Write, "btrfs/log/xattrs": "attributes of an inode are logged with it";
        LOG_EXISTS, Order, "btrfs/log/exists":
            "that an inode was logged to exist is no sync of it";
    }
    "crates/btrfs/src/fs/log/names.rs" {
        LOG_RANGES, Write, "btrfs/log/ranges":
            "the log says of which places of a directory it has all names";
        LOG_NEW_NAMES, Write, "btrfs/log/new-names":
            "inodes of new names of a directory are logged with it";
        LOG_ANCESTORS, Write, "btrfs/log/ancestors":
            "new directories above a file are logged with it";
        LOG_PARENTS, Write, "btrfs/log/parents":
            "directories that a file has lost a name in are logged with it";
        LOG_GONE_PARENT, Order, "btrfs/log/gone-parent":
            "if one of them is gone, an fsync is a commit";
        LOG_UNLINK, Write, "btrfs/log/unlink": "a name that is removed goes from the log, too";
        LOG_RENAME, Write, "btrfs/log/rename": "a new name of what is logged is logged";
    }
    "crates/btrfs/src/fs/log/extents.rs" {
        LOG_SUMS, Checksum, "btrfs/log/checksums":
            "the log has the checksums of data that it leads to";
        LOG_HOLES, Write, "btrfs/log/holes": "holes are logged, so that replay drops what was there";
        LOG_PREALLOC, Write, "btrfs/log/prealloc": "space behind the end of a file is logged";
        LOG_ON_THEIR_WAY, Write, "btrfs/log/on-their-way":
            "extents that have no items yet are logged";
    }
    "crates/btrfs/src/fs/sync.rs" {
        FSYNC_WRITE, Write, "btrfs/fsync/data-write": "an fsync sends the file's data";
        FSYNC_WAIT, Wait, "btrfs/fsync/wait": "data has arrived before an fsync makes items durable";
        FSYNC_COMMIT, Write, "btrfs/fsync/commit": "an fsync makes what was changed durable";
        FSYNC_FULL, Write, "btrfs/fsync/full-commit":
            "an fsync of what no log can say is a commit";
        SYNC_DATA, Write, "btrfs/sync/data-write": "a sync sends the data of all files";
        SYNC_ORDERED, Wait, "btrfs/sync/wait": "a sync waits until items lead to all data";
        SYNC_COMMIT, Write, "btrfs/sync/commit": "a sync is a commit";
    }
    "crates/btrfs/src/trans/commit.rs" {
        UNPIN_LATER, Order, "btrfs/space/unpin":
            "what a commit freed is given out when that commit is on the device";
    }
    "crates/btrfs/src/trans/supers.rs" {
        COMMIT_ENDS_LOG, Write, "btrfs/commit/ends-log": "the super block of a commit has no log";
    }
    "crates/btrfs/src/trans/logs.rs" {
        LOG_PINNED, Order, "btrfs/log/pinned":
            "blocks of a log are given out when the commit that ends it is on the device";
    }
    "crates/btrfs/src/space/mod.rs" {
        PIN_FREED, Order, "btrfs/space/pinned":
            "what a transaction frees is not given out in the same";
    }
    "crates/btrfs/src/replay/mod.rs" {
        RECOVER_LAST, Order, "btrfs/recovery/super-last":
            "what replay changed is durable before the super block that leads to it";
    }
    "crates/btrfs/src/replay/log.rs" {
        REPLAY_PIN, Order, "btrfs/recovery/pin": "replay writes nothing over the log that it reads";
    }
    "crates/btrfs/src/replay/inodes.rs" {
        REPLAY_DIR_SIZE, Order, "btrfs/recovery/directory-size":
            "a directory keeps its size, to which names that come add";
        REPLAY_NAMES_GO, Write, "btrfs/recovery/deleted-names":
            "names of a directory go that the log would have";
        REPLAY_XATTRS_GO, Write, "btrfs/recovery/deleted-xattrs":
            "attributes of an inode go that the log does not have";
        REPLAY_LINKS, Write, "btrfs/recovery/link-counts": "names of inodes are counted in the end";
    }
    "crates/btrfs/src/replay/refs.rs" {
        REPLAY_REFS_GO, Write, "btrfs/recovery/old-names":
            "names of an inode go that its log does not have";
        REPLAY_ROOM, Order, "btrfs/recovery/conflicts":
            "what has a name that the log gives to another goes first";
    }
    "crates/btrfs/src/replay/extents.rs" {
        REPLAY_SUMS, Checksum, "btrfs/recovery/checksums":
            "checksums of data come with the data from the log";
        REPLAY_DROP, Order, "btrfs/recovery/old-extents":
            "extents go whose place an extent of the log takes";
    }
    "crates/btrfs/src/replay/mod.rs" {
        REPLAY_BEYOND, Order, "btrfs/recovery/beyond-end":
            "what is behind the end of a file goes before the log's extents come";
    }
}
