//! Crash-safety points of the cache: steps that crash consistency depends on.

wp_base::sites! {
    "crates/cache/src/mapping.rs" {
        TRUNCATE_WAIT, Wait, "cache/truncate/writeback-wait":
            "truncate waits for writeback of the pages that it removes";
    }
    "crates/cache/src/bdev.rs" {
        HOME_AGAIN, Wait, "cache/device/one-at-a-time":
            "a metadata buffer is written only after its previous write completes";
    }
}
