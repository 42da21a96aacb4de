//! Steps of the cache that a crash is safe by.

wp_base::sites! {
    "crates/cache/src/mapping.rs" {
        TRUNCATE_WAIT, Wait, "cache/truncate/writeback-wait":
            "blocks are cut off when no write to them is under way";
    }
}
