//! Steps of the cache that a crash is safe by.

wp_base::sites! {
    "crates/cache/src/mapping.rs" {
        TRUNCATE_WAIT, Wait, "cache/truncate/writeback-wait":
            "blocks are cut off when no write to them is under way";
    }
    "crates/cache/src/bdev.rs" {
        HOME_AGAIN, Wait, "cache/device/one-at-a-time":
            "a block of metadata is sent when its last write has arrived";
    }
}
