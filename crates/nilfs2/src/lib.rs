//! NILFS2: images made, read, recovered and checked.
//!
//! [`disk`] has every on-disk structure, once. [`log`] makes logs out of what changed in memory;
//! [`image`] needs it only to write down what a recovery brought back.

pub mod check;
pub mod disk;
mod entry;
pub mod era;
mod evidence;
pub mod fs;
pub mod image;
pub mod log;
pub mod mkfs;
pub mod site;
mod stages;

pub use entry::ENTRY;
pub use evidence::Blocks;
