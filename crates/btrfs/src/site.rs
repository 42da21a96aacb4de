//! Steps of btrfs that a crash is safe by.

wp_base::sites! {
    "crates/btrfs/src/fs/commit.rs" {
        COMMIT_WAIT, Wait, "btrfs/commit/wait":
            "tree blocks have arrived before the super blocks that lead to them are sent";
        SUPER_FLUSH, Flush, "btrfs/super-block/flush":
            "the device's cache is flushed before super blocks";
        SUPER_FUA, Fua, "btrfs/super-block/fua": "the first super block is durable when it arrives";
    }
    "crates/btrfs/src/fs/log/mod.rs" {
        LOG_WAIT, Wait, "btrfs/log/wait":
            "blocks of a log have arrived before the super block that leads to it is sent";
    }
    "crates/btrfs/src/fs/sync.rs" {
        FSYNC_WAIT, Wait, "btrfs/fsync/wait": "data has arrived before an fsync makes items durable";
        FSYNC_COMMIT, Write, "btrfs/fsync/commit": "an fsync makes what was changed durable";
    }
}
