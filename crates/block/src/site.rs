//! Crash-safety points of this layer: steps that crash consistency depends on.

wp_base::sites! {
    "crates/block/src/entry.rs" {
        UNTORN_WHOLE, Order, "block/untorn/never-split":
            "an untorn write reaches the device as one request: what would split it is refused";
    }
    "crates/block/src/flush.rs" {
        PREFLUSH, Flush, "block/flush/preflush":
            "a PREFLUSH write is sent only after a flush of all earlier completed writes";
        POSTFLUSH, Flush, "block/flush/postflush":
            "on a device without FUA, a FUA write is followed by a flush before it completes";
        FUA_KEPT, Fua, "block/flush/fua":
            "on a device with FUA, a FUA write is sent with the FUA bit";
        EMPTY_FLUSH, Flush, "block/flush/explicit": "a flush without data is sent to the device";
        FLUSH_AFTER, Order, "block/flush/not-the-running-one":
            "a flush request is served only by a device flush that starts after it";
    }
}
