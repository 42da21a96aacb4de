//! F2FS.
//!
//! [`disk`] has every on-disk structure, once. What else is here shares only that.

pub mod disk;
pub mod image;
pub mod mkfs;
