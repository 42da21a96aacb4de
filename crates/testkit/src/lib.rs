//! What tests of several crates share: the same calls here and on the kernel of this host.

pub mod btrfs_twin;
pub mod host;
pub mod twin;
