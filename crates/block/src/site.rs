//! Steps of this layer that a crash is safe by.

wp_base::sites! {
    "crates/block/src/flush.rs" {
        PREFLUSH, Flush, "block/flush/preflush":
            "what completed before a PREFLUSH write is durable before that write is sent";
        POSTFLUSH, Flush, "block/flush/postflush":
            "a FUA write to a device without FUA is flushed before it ends";
        FUA_KEPT, Fua, "block/flush/fua":
            "a device with FUA is told to force a FUA write";
        EMPTY_FLUSH, Flush, "block/flush/explicit":
            "a flush without data reaches the device";
        FLUSH_AFTER, Order, "block/flush/not-the-running-one":
            "a step is served by a flush that was issued after it was asked for";
    }
}
