//! Steps of NILFS2 that a crash is safe by.

wp_base::sites! {
    "crates/nilfs2/src/fs/segctor.rs" {
        LOG_WAIT, Wait, "nilfs2/log/wait":
            "logs have arrived before a sync returns or a super block names them";
        SEGMENT_FLUSH, Flush, "nilfs2/log/segment-flush":
            "with `flush_segments`, logs are durable before one follows in the next segment";
        DATASYNC_INODE, Order, "nilfs2/fdatasync/inode":
            "an fdatasync of a file whose length changed writes a checkpoint";
    }
    "crates/nilfs2/src/fs/mod.rs" {
        SYNC_FLUSH, Flush, "nilfs2/sync/flush": "a sync empties the device's cache";
    }
    "crates/nilfs2/src/fs/ops.rs" {
        FSYNC_LOG, Write, "nilfs2/fsync/log": "an fsync writes what was changed as a log";
        SYNC_LOG, Write, "nilfs2/sync/log": "a sync of all writes what was changed as a log";
    }
    "crates/nilfs2/src/fs/supers.rs" {
        SUPER_PREFLUSH, Flush, "nilfs2/super-block/preflush":
            "the device's cache is flushed before a super block";
    }
    "crates/nilfs2/src/log/dat.rs" {
        DAT_END, Order, "nilfs2/dat/end":
            "a block that is replaced ends with the checkpoint that is made";
    }
    "crates/nilfs2/src/image/search.rs" {
        RECOVERY_SUM, Checksum, "nilfs2/recovery/data-sum":
            "recovery takes a log whose blocks have its checksum";
    }
}
