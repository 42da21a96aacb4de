//! btrfs: the real format, read and written.
//!
//! [`disk`] has every on-disk structure, once.

pub mod disk;
