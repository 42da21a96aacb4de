//! ext4: the format, its maker and readers, and the mounted file system.
//!
//! Picture:    [`disk`] (bytes) <- [`mkfs`], [`image`] (pure readers), [`check`] (a
//!             check of all of it), [`evidence`] (what runs are judged by) <- [`fs`] (the runtime,
//!             on jbd2).
//! Invariant:  only `disk` knows offsets; maker, readers and runtime share nothing else.

pub mod check;
pub mod disk;
mod entry;
pub mod evidence;
pub mod fs;
pub mod image;
pub mod mkfs;
pub mod site;
mod stages;

pub use entry::ENTRY;
pub use fs::era;
