//! Settings of techniques of the literature.

use super::settings::{FIXED, Setting};

/// RFLUSH's sound variant, in the one mode that it has.
pub(super) const RFLUSH: Setting<'static> = Setting {
    name: "f2fs rflush",
    fs: "mode=lfs,wait_first_node,rflush=log",
    params: &[("capacity_bytes", 64 << 20), ("range_flush", 1)],
    ..FIXED
};
