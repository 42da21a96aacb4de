//! btrfs: the real format, read and written.
//!
//! [`disk`] has every on-disk structure, once. [`core`] holds a file system in memory, as far as it
//! was read or changed; [`tree`], [`space`], [`refs`] and [`trans`] are its parts. [`items`] has
//! what files are made of, [`fs`] is the mounted file system. [`image`] reads a file system that
//! somebody else made, and trusts nothing in it.

pub mod check;
pub mod chunks;
pub mod core;
pub mod disk;
mod entry;
pub mod era;
mod evidence;
pub mod fs;
pub mod image;
pub mod items;
pub mod mkfs;
pub mod refs;
pub mod replay;
pub mod site;
pub mod space;
mod stages;
pub mod trans;
pub mod tree;

pub use entry::ENTRY;
pub use evidence::Blocks;
