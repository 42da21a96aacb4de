//! Settings of techniques of the literature.

use super::settings::{FIXED, Setting, WILD};

/// RFLUSH's sound variant, in the one mode that it has.
pub(super) const RFLUSH: Setting<'static> = Setting {
    name: "f2fs rflush",
    fs: "mode=lfs,wait_first_node,rflush=log",
    params: &[("capacity_bytes", 64 << 20), ("range_flush", 1)],
    ..FIXED
};

/// A drive that keeps a cluster of ext4 whole, and tears all else at sectors; for programs of its
/// own.
pub(super) const UNTORN: Setting<'static> = Setting {
    name: "6.18 untorn",
    fs: "era=6.18,cluster=16k",
    params: &[("capacity_bytes", 24 << 20), ("atomic_bytes", 16 << 10)],
    count: 0,
    atomic: Some(512),
    ..WILD
};
