//! F2FS: images made, read, recovered and checked.
//!
//! [`disk`] has every on-disk structure, once; [`image`], [`mkfs`] and [`check`] share only that.

pub mod check;
pub mod disk;
mod entry;
mod evidence;
pub mod image;
pub mod mkfs;
pub mod zoned;

pub use entry::ENTRY;
pub use evidence::Blocks;
