//! F2FS: images made, read, recovered and checked, and the mounted file system.
//!
//! [`disk`] has every on-disk structure, once; [`image`], [`mkfs`], [`check`] and the mounted
//! [`fs`] share only that.

pub mod check;
pub mod disk;
mod entry;
pub mod era;
mod evidence;
pub mod fs;
pub mod image;
pub mod mkfs;
pub mod site;
mod stages;
pub mod zoned;

pub use entry::ENTRY;
pub use evidence::Blocks;
