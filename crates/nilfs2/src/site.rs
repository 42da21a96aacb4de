//! Crash-safety points of NILFS2: steps that crash consistency depends on.

wp_base::sites! {
    "crates/nilfs2/src/fs/segctor.rs" {
        LOG_WAIT, Wait, "nilfs2/log/wait":
            "log writes complete before a sync returns or a super block points to them";
        SEGMENT_FLUSH, Flush, "nilfs2/log/segment-flush":
            "with `flush_segments`, all logs are durable before the next segment begins";
        DATASYNC_INODE, Order, "nilfs2/fdatasync/inode":
            "fdatasync of a file with a new length writes a checkpoint";
    }
    "crates/nilfs2/src/fs/mod.rs" {
        SYNC_FLUSH, Flush, "nilfs2/sync/flush": "sync flushes the device's cache";
    }
    "crates/nilfs2/src/fs/sync.rs" {
        FSYNC_LOG, Write, "nilfs2/fsync/log": "fsync writes the changed blocks as a log";
        SYNC_LOG, Write, "nilfs2/sync/log": "sync and syncfs write all changed blocks as a log";
    }
    "crates/nilfs2/src/fs/supers.rs" {
        SUPER_PREFLUSH, Flush, "nilfs2/super-block/preflush":
            "the device's cache is flushed before a super block is written";
    }
    "crates/nilfs2/src/log/dat.rs" {
        DAT_END, Order, "nilfs2/dat/end":
            "the DAT entry of a replaced block ends at the new checkpoint";
    }
    "crates/nilfs2/src/image/search.rs" {
        RECOVERY_SUM, Checksum, "nilfs2/recovery/data-sum":
            "recovery accepts a log only if the checksum over its blocks matches";
    }
}
